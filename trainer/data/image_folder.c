#include "data/image_folder.h"

#include "core/error.h"
#include "data/image_file.h"
#include "support/array.h"
#include "support/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- names in a directory ---- */

void image_names_free(image_names *l) {
    for (int64_t i = 0; i < l->n; i++) free(l->name[i]);
    free(l->name);
    *l = (image_names){0};
}

int image_names_add(image_names *l, const char *name) {
    char *copy = ARRAY_RESERVE(l->name, l->n + 1, l->room) ? strdup(name) : NULL;
    if (!copy) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the names of files");
    l->name[l->n++] = copy;
    return 0;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_picture(const char *name) {
    static const char *const ends[] = {".png", ".jpg", ".jpeg"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n > m && strcasecmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}

/* Counts a skipped file and keeps the first in byte order. class: its directory; NULL: none. */
static void pass_over(image_folder_counts *counts, const char *class, const char *name) {
    char path[sizeof counts->first_passed];
    snprintf(path, sizeof path, "%s%s%s", class ? class : "", class ? "/" : "", name);
    if (counts->passed_over++ && strcmp(path, counts->first_passed) >= 0) return;
    memcpy(counts->first_passed, path, sizeof path);
}

/* Lists the subdirectories (class NULL) or the pictures of a directory, sorted. */
static int list(image_names *out, const char *directory, const char *class, image_folder_counts *counts) {
    const bool directories = !class;
    char path[2400];
    struct stat info;
    int failed = 0;
    DIR *d = opendir(directory);
    *out = (image_names){0};
    if (!d) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", directory, strerror(errno));
    errno = 0;
    for (const struct dirent *e; !failed && (e = readdir(d)); errno = 0) {
        if (e->d_name[0] == '.') continue;
        if (!directories && !is_picture(e->d_name)) {
            pass_over(counts, class, e->d_name);
            continue;
        }
        const int n = snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        if (n >= (int)sizeof path) continue;
        const bool there = stat(path, &info) == 0; /* else a dangling link: an unreadable picture or class */
        if (directories && !there) failed = adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
        else if (!there || (directories ? S_ISDIR(info.st_mode) : S_ISREG(info.st_mode)))
            failed = image_names_add(out, e->d_name);
        else if (is_picture(e->d_name)) pass_over(counts, class, e->d_name);
    }
    if (!failed && errno) failed = adamod__fail(ADAMOD_ERROR_IO, "%s: %s", directory, strerror(errno));
    closedir(d);
    if (failed) image_names_free(out);
    else if (out->n) qsort(out->name, (size_t)out->n, sizeof *out->name, by_bytes);
    return failed;
}

/* ---- all pictures below a directory ---- */

static char *join(const char *directory, const char *name) {
    const size_t n = strlen(directory), m = strlen(name);
    char *path = malloc(n + m + 2);
    const bool slash = n && directory[n - 1] == '/';
    if (path) snprintf(path, n + m + 2, "%s%s%s", directory, slash ? "" : "/", name);
    return path;
}

/* Whether an entry is a directory, not a link to one, which could be a cycle; or a picture, even a dangling link. */
static bool is_below(const char *path, bool directory) {
    struct stat info;
    if (directory) return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
    return is_picture(path) && (stat(path, &info) != 0 || S_ISREG(info.st_mode));
}

/* A directory that cannot be read is listed itself, so that reading it as a picture fails with the reason. */
static int walk(image_names *out, const char *directory) {
    image_names below = {0};
    int failed = 0;
    DIR *d = opendir(directory);
    if (!d) return image_names_add(out, directory);
    for (const struct dirent *e; !failed && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char *path = join(directory, e->d_name);
        if (!path) failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the names of files");
        else if (is_below(path, true)) failed = image_names_add(&below, path);
        else if (is_below(path, false)) failed = image_names_add(out, path);
        free(path);
    }
    closedir(d);
    for (int64_t i = 0; !failed && i < below.n; i++) failed = walk(out, below.name[i]);
    image_names_free(&below);
    return failed;
}

int image_folder_find(image_names *out, const char *directory) {
    const int64_t before = out->n;
    if (walk(out, directory)) return -1;
    if (out->n > before) qsort(out->name + before, (size_t)(out->n - before), sizeof *out->name, by_bytes);
    return 0;
}

/* ---- what there is to read ---- */

typedef struct work {
    image_names paths;
    int32_t *labels; /* [paths.n] */
    pictures *to;
    image_folder_counts *counts;
    char **reasons; /* [paths.n]; NULL: it was read */
} work;

static void free_work(work *w) {
    for (int64_t i = 0; w->reasons && i < w->paths.n; i++) free(w->reasons[i]);
    free(w->reasons);
    free(w->labels);
    image_names_free(&w->paths);
}

static int list_class(work *w, const char *directory, const char *class, int32_t label) {
    image_names files;
    if (list(&files, directory, class, w->counts)) return -1;
    int failed = 0;
    int32_t *grown = realloc(w->labels, (size_t)(w->paths.n + files.n + 1) * sizeof *grown);
    if (grown) w->labels = grown;
    else failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the names of files");
    for (int64_t i = 0; !failed && i < files.n; i++) {
        w->labels[w->paths.n] = label;
        failed = image_names_add(&w->paths, path_join(directory, files.name[i]).text);
    }
    image_names_free(&files);
    return failed;
}

static int name_classes(class_names *c, const image_names *found, const char *directory) {
    for (int64_t i = 0; i < found->n; i++) {
        if (class_names_add(c, found->name[i])) return adamod__context("%s/%s: ", directory, found->name[i]);
    }
    return 0;
}

static int list_classes(work *w, class_names *classes, const char *directory) {
    image_names found;
    if (list(&found, directory, NULL, w->counts)) return -1;
    int failed = 0;
    if (!found.n) failed = adamod__refuse("%s: no subdirectory in it, expected one for each class", directory);
    if (!failed && !classes->n) failed = name_classes(classes, &found, directory);
    for (int64_t i = 0; !failed && i < found.n; i++) {
        const int label = class_names_find(classes, found.name[i]);
        if (label < 0)
            failed = adamod__refuse("%s: class '%.60s' is not in the training set", directory, found.name[i]);
        else failed = list_class(w, path_join(directory, found.name[i]).text, found.name[i], label);
    }
    image_names_free(&found);
    if (!failed && !w->paths.n)
        failed = adamod__refuse("%s: no picture in its subdirectories, expected .png, .jpg or .jpeg", directory);
    return failed;
}

/* ---- reading ---- */

static void read_one(void *context, int64_t i, int thread) {
    work *w = context;
    (void)thread;
    uint8_t *to = w->to->bytes + (size_t)(w->to->n + i) * pictures_bytes(w->to);
    const int failed = image_read_square(w->paths.name[i], w->to->size, to);
    if (failed) w->reasons[i] = strdup(adamod__last_message());
    w->to->labels[w->to->n + i] = failed ? -1 : w->labels[i];
}

/* Counts the classes of no picture from `from` on. */
static int count_missing(const pictures *p, int64_t from, int *out) {
    bool *seen = calloc((size_t)p->classes.n, sizeof *seen);
    if (!seen) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %d classes", p->classes.n);
    *out = p->classes.n;
    for (int64_t i = from; i < p->n; i++) {
        *out -= !seen[p->labels[i]];
        seen[p->labels[i]] = true;
    }
    free(seen);
    return 0;
}

/* Removes the pictures that could not be read. */
static int gather(work *w, bool skip, image_folder_counts *counts) {
    pictures *p = w->to;
    const size_t bytes = pictures_bytes(p);
    int64_t kept = p->n;
    for (int64_t i = 0; i < w->paths.n; i++) {
        if (p->labels[p->n + i] < 0) {
            if (counts->unreadable++ == 0)
                snprintf(counts->first, sizeof counts->first, "%.200s: %.190s", w->paths.name[i],
                         w->reasons[i] ? w->reasons[i] : "out of memory");
            continue;
        }
        if (kept != p->n + i) memcpy(p->bytes + (size_t)kept * bytes, p->bytes + (size_t)(p->n + i) * bytes, bytes);
        p->labels[kept++] = p->labels[p->n + i];
    }
    if (counts->unreadable && (!skip || kept == p->n)) {
        const bool others = counts->unreadable > 1;
        if (!others) return adamod__refuse("%s", counts->first);
        return adamod__refuse("%s; %lld of %lld pictures cannot be read", counts->first, (long long)counts->unreadable,
                              (long long)counts->files);
    }
    p->n = kept;
    return 0;
}

int image_folder_read(pictures *out, const char *directory, const image_folder_options *o,
                      image_folder_counts *counts) {
    work w = {.to = out, .counts = counts};
    const bool named = out->classes.n > 0;
    const int64_t before = out->n;
    *counts = (image_folder_counts){0};
    int failed = *image_formats() ? 0
                                  : adamod__refuse("%s: this build reads no pictures: it was made without "
                                                   "libpng and libjpeg",
                                                   directory);
    if (!failed) failed = list_classes(&w, &out->classes, directory);
    if (!failed) failed = pictures_reserve(out, w.paths.n);
    if (!failed && !(w.reasons = calloc((size_t)w.paths.n, sizeof *w.reasons)))
        failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld pictures", (long long)w.paths.n);
    if (!failed) {
        counts->files = w.paths.n;
        pictures_each(&o->crew, w.paths.n, read_one, &w);
        failed = gather(&w, o->skip, counts);
    }
    if (!failed && count_missing(out, before, &counts->missing)) {
        out->n = before;
        failed = -1;
    }
    free_work(&w);
    if (failed && !named) class_names_free(&out->classes);
    return failed ? -1 : 0;
}
