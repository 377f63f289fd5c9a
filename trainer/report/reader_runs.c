#include "report/reader_parts.h"

#include "core/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RUNS = 4096 };

typedef struct found {
    char *path;
    char started[64];
} found;

static bool is_run(const char *directory) { return access(reader_file(directory, "recipe.yaml").path, F_OK) == 0; }

/* Whether there may be a run that cannot be seen: left out, it would change the numbers of others. */
static bool is_hidden(const char *directory) {
    const char *slash = strrchr(directory, '/');
    return !is_run(directory) && errno == EACCES && strcmp(slash ? slash + 1 : directory, "lost+found") != 0;
}

/* Finds when the run was started, as text that sorts; "": unknown. */
static void find_start(found *f) {
    report_run r = {.directory = f->path};
    const char *started = reader_value(&r, "machine.json", READER_BYTES, reader_machine) < 0
                              ? NULL
                              : report_pairs_find(&r.machine[0], "started");
    snprintf(f->started, sizeof f->started, "%s", started ? started : "");
    reader_free_pairs(&r.machine[0]);
}

static int by_start(const void *a, const void *b) {
    const found *x = a, *y = b;
    const int order = strcmp(x->started, y->started);
    return order ? order : strcmp(x->path, y->path);
}

static void free_found(found *list, size_t n) {
    for (size_t i = 0; i < n; i++) free(list[i].path);
    free(list);
}

static int add_found(found **list, size_t *n, const char *directory, const char *name) {
    char *path = strdup(name ? reader_file(directory, name).path : directory);
    if (path && is_hidden(path)) {
        (void)adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path, strerror(errno));
        free(path);
        return -1;
    }
    if (path && !is_run(path)) {
        free(path);
        return 0;
    }
    if (!path || *n == MOST_RUNS || !ARRAY_EXTEND(*list, *n)) {
        if (path && *n == MOST_RUNS) (void)adamod__refuse("%s: more than %d runs", directory, MOST_RUNS);
        else (void)adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", directory);
        free(path);
        return -1;
    }
    found *f = &(*list)[(*n)++];
    f->path = path;
    find_start(f);
    return 0;
}

static int search(const char *path, found **list, size_t *n) {
    int status = add_found(list, n, path, NULL);
    if (status || *n) return status;
    DIR *directory = opendir(path);
    if (!directory) return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; status == 0 && (entry = readdir(directory));) {
        if (entry->d_name[0] != '.') status = add_found(list, n, path, entry->d_name);
    }
    closedir(directory);
    if (status || *n) return status;
    return adamod__refuse("%s: not a run directory (no recipe.yaml), and no run directories in it", path);
}

int report_runs_find(const char *path, char ***out, int *n) {
    found *list = NULL;
    size_t count = 0;
    const int status = search(path, &list, &count);
    char **names = status ? NULL : calloc(count + 1, sizeof *names);
    if (!names || !list) {
        if (!status) (void)adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
        free_found(list, count);
        free(names);
        return -1;
    }
    qsort(list, count, sizeof *list, by_start);
    for (size_t i = 0; i < count; i++) names[i] = list[i].path;
    free(list);
    *out = names;
    *n = (int)count;
    return 0;
}
