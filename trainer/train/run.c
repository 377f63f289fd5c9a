#include "train/run_parts.h"

#include "support/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "train/checkpoints.h"
#include "train/mean_loss.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *run_directory(const run *r) { return r->directory; }

int run_fail_at(const run *r, const char *name, const char *what, int error) {
    return adamod__fail(ADAMOD_ERROR_IO, "%s/%s: %s: %s", r->directory, name, what, strerror(error));
}

/* ---- Files that grow --------------------------------------------------------------------------------------------- */

/* Appends in one write, so that a crash leaves whole lines. On a full disk, a part that was written is cut off again. */
static int append(run *r, int index, const void *data, size_t n) {
    run_file *f = &r->file[index];
    for (size_t done = 0; done < n;) {
        const ssize_t got = write(f->fd, (const char *)data + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            const int error = got ? errno : EIO;
            (void)adamod__file_cut(f->fd, (uint64_t)f->size);
            return run_fail_at(r, f->name, "cannot write", error);
        }
        done += (size_t)got;
    }
    f->size += (int64_t)n;
    return 0;
}

int run_append(run *r, int index, json *j, tfevents *e) {
    json_end_line(j);
    const int64_t before = r->file[index].size;
    int status = 0;
    if (j->failed || e->bytes.failed) status = run_fail_at(r, r->file[index].name, "cannot write", ENOMEM);
    if (!status) status = append(r, index, j->text, j->n);
    if (!status && e->bytes.n && (status = append(r, RUN_EVENTS, e->bytes.text, e->bytes.n))) {
        if (!adamod__file_cut(r->file[index].fd, (uint64_t)before)) r->file[index].size = before;
    }
    json_free(j);
    tfevents_free(e);
    return status;
}

int run_open_file(run *r, int index) {
    run_file *f = &r->file[index];
    const path_text path = path_join(r->directory, f->name);
    struct stat st;
    f->fd = adamod__file_open(path.text, O_RDWR | O_APPEND);
    const bool make = f->fd < 0 && errno == ENOENT;
    if (make) f->fd = adamod__file_open(path.text, O_RDWR | O_CREAT | O_EXCL | O_APPEND);
    f->made = make && f->fd >= 0;
    const int error = f->fd < 0 ? errno : 0;
    if (error) (void)run_fail_at(r, f->name, "cannot open", error);
    if (error) return make && (error == EEXIST || error == ENOENT) ? 1 : -1;
    if (fstat(f->fd, &st)) return run_fail_at(r, f->name, "cannot get its size", errno);
    if (!S_ISREG(st.st_mode)) return adamod__refuse("%s/%s is not a file", r->directory, f->name);
    f->size = (int64_t)st.st_size;
    return 0;
}

static int cut(run *r, int index, int64_t size) {
    run_file *f = &r->file[index];
    if (size == f->size) return 0;
    const int error = adamod__file_cut(f->fd, (uint64_t)size);
    if (error) return run_fail_at(r, f->name, "cannot truncate", error);
    f->size = size;
    return 0;
}

/* The end of a file's last whole line. */
static int64_t whole_lines(const run_file *f) {
    char block[4096];
    for (int64_t end = f->size; end > 0;) {
        const int64_t begin = end > (int64_t)sizeof block ? end - (int64_t)sizeof block : 0;
        uint64_t got;
        errno = adamod__file_read(f->fd, (uint64_t)begin, block, (uint64_t)(end - begin), &got);
        if (errno || got != (uint64_t)(end - begin)) return -1;
        const char *last = memrchr(block, '\n', (size_t)got);
        if (last) return begin + (last - block) + 1;
        end = begin;
    }
    return 0;
}

static int cut_torn(run *r, int index) {
    const int64_t whole = index == RUN_EVENTS ? tfevents_whole(r->file[index].fd, NULL) : whole_lines(&r->file[index]);
    if (whole < 0) return run_fail_at(r, r->file[index].name, "cannot read", errno);
    return cut(r, index, whole);
}

/* ---- The directory ----------------------------------------------------------------------------------------------- */

static int check_recipe(const run *r) {
    recipe was;
    if (recipe_defaults(&was, r->recipe.tasks)) return -1;
    int failed = checkpoints_recipe(r->directory, &was);
    if (!failed && recipe_compare(&was, &r->recipe, r->except))
        failed = adamod__context("%s cannot be resumed with another recipe: ", r->directory);
    recipe_free(&was);
    return failed;
}

/* The last events file by name; if there is none, a new name in TensorBoard's style. */
static void name_events(run *r) {
    char host[48] = "", *name = r->file[RUN_EVENTS].name;
    *name = '\0';
    DIR *d = opendir(r->directory);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "events.out.tfevents.", 20) != 0 || strlen(e->d_name) >= RUN_NAME) continue;
        if (strcmp(e->d_name, name) > 0) snprintf(name, RUN_NAME, "%s", e->d_name);
    }
    if (d) closedir(d);
    if (*name) return;
    (void)gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c)) *c = '-';
    }
    snprintf(name, RUN_NAME, "events.out.tfevents.%010lld.%s", (long long)r->started, *host ? host : "host");
}

static int begin_events(run *r) {
    tfevents e = {0};
    if (r->file[RUN_EVENTS].size) return 0;
    tfevents_version(&e, r->started);
    const int status = e.bytes.failed ? run_fail_at(r, r->file[RUN_EVENTS].name, "cannot write", ENOMEM)
                                      : append(r, RUN_EVENTS, e.bytes.text, e.bytes.n);
    tfevents_free(&e);
    return status;
}

/* Removes temporary files of a killed process: of core/file.h, of earlier versions, and of rank_setup.c. */
static void remove_temporaries(const run *r) {
    adamod__file_clean(r->directory);
    static const char *const kinds[] = {".yaml.tmp.", ".json.tmp.", ".vocab.tmp.", ".ranks-"};
    DIR *d = opendir(r->directory);
    for (struct dirent *e; d && (e = readdir(d));) {
        for (int i = 0; i < 4; i++) {
            if (strstr(e->d_name, kinds[i])) (void)unlinkat(dirfd(d), e->d_name, 0);
        }
    }
    if (d) closedir(d);
}

static int make_checkpoints(run *r) {
    r->made_checkpoints = mkdir(path_join(r->directory, "checkpoints").text, 0777) == 0;
    const int error = r->made_checkpoints ? 0 : errno;
    return error && error != EEXIST ? run_fail_at(r, "checkpoints", "cannot make the directory", error) : 0;
}

/* metrics.jsonl is open already, as the lock. */
static int open_files(run *r) {
    if (make_checkpoints(r)) return -1;
    name_events(r);
    for (int i = 0; i < RUN_FILES; i++) {
        const int status = i == RUN_METRICS ? 0 : run_open_file(r, i);
        if (status || (r->resume && cut_torn(r, i))) return -1;
    }
    if (r->resume) remove_temporaries(r);
    return begin_events(r);
}

/* The recipe is written first, as --resume needs it to start over. */
static int begin_new(run *r) {
    if (run_take_new(r) || run_write_recipe(r) || open_files(r)) return -1;
    return run_write_machine(r) || run_write_task(r) ? -1 : 0;
}

static int open_existing(run *r) { return run_take_existing(r) || check_recipe(r) || open_files(r) ? -1 : 0; }

int run_open(run **out, const char *directory, const recipe *recipe_now, bool resume, int except) {
    static const char *const names[RUN_FILES] = {"metrics.jsonl", "histograms.jsonl", "samples.jsonl", ""};
    if (!*directory) return adamod__refuse("the run's directory has an empty name");
    run *r = calloc(1, sizeof *r);
    if (r) r->directory = strdup(directory);
    if (!r || !r->directory || recipe_copy(&r->recipe, recipe_now)) {
        if (r) free(r->directory);
        free(r);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", directory);
    }
    for (int i = 0; i < RUN_FILES; i++) {
        r->file[i].fd = -1;
        snprintf(r->file[i].name, RUN_NAME, "%s", names[i]);
    }
    r->resume = resume;
    r->except = except;
    r->started = clock_wall_seconds();
    if (resume ? open_existing(r) : begin_new(r)) return run_discard(r), -1;
    *out = r;
    return 0;
}

bool run_begins_again(const run *r) { return r->again; }

void run_discard(run *r) {
    if (r) run_give_up(r);
    run_close(r);
}

void run_close(run *r) {
    if (!r) return;
    for (int i = 0; i < RUN_FILES; i++) {
        if (r->file[i].fd >= 0) close(r->file[i].fd);
    }
    free(r->directory);
    recipe_free(&r->recipe);
    free(r);
}

/* ---- Marks ------------------------------------------------------------------------------------------------------- */

int run_mark(run *r, char *mark, size_t mark_size) {
    size_t used = 0;
    for (int i = 0; i < RUN_FILES; i++) {
        const run_file *f = &r->file[i];
        const int error = adamod__file_sync(f->fd);
        if (error) return run_fail_at(r, f->name, "cannot sync", error);
        used += (size_t)snprintf(mark + used, mark_size - used, "%s%s %" PRId64, i ? " " : "", f->name, f->size);
        if (used >= mark_size) return run_fail_at(r, f->name, "no room for the mark", ENAMETOOLONG);
    }
    return 0;
}

/* Parses "metrics.jsonl 120 histograms.jsonl 0 ..."; the size of a missing file is -1. */
static int parse_mark(const run *r, const char *mark, int64_t sizes[RUN_FILES]) {
    char name[RUN_NAME];
    int used = 0;
    for (int i = 0; i < RUN_FILES; i++) sizes[i] = -1;
    for (const char *at = mark; *at; at += used) {
        int64_t value = -1;
        int i = 0;
        if (sscanf(at, "%95s %" SCNd64 "%n", name, &value, &used) != 2 || value < 0 || (at[used] && at[used] != ' ')) {
            return adamod__refuse("%s: the checkpoint's list of file sizes, '%.80s', is damaged", r->directory, mark);
        }
        while (i < RUN_FILES && strcmp(r->file[i].name, name) != 0) i++;
        if (i < RUN_FILES) sizes[i] = value;
    }
    return 0;
}

/* Fails if a file is shorter than it was, or has no line end at its old size. */
static int check_mark(const run *r, int index, int64_t size) {
    const run_file *f = &r->file[index];
    char last = '\n';
    if (size < 0) return adamod__refuse("%s: the checkpoint's list of file sizes lacks %s", r->directory, f->name);
    uint64_t got;
    if (index != RUN_EVENTS && size > 0 && size <= f->size) {
        const int error = adamod__file_read(f->fd, (uint64_t)(size - 1), &last, 1, &got);
        if (error || !got) return run_fail_at(r, f->name, "cannot read", error ? error : EIO);
    }
    if (size <= f->size && last == '\n') return 0;
    return adamod__refuse("%s/%s was changed since the checkpoint: it had %" PRId64 " bytes, now %" PRId64
                          "; restore it, or begin another run from these weights: --init-from %s",
                          r->directory, f->name, size, f->size, r->directory);
}

/* Gets the sizes of a mark and checks the files. TensorBoard's file may have been deleted and begun again. */
static int mark_sizes(const run *r, const char *mark, int64_t sizes[RUN_FILES]) {
    int64_t first;
    if (tfevents_whole(r->file[RUN_EVENTS].fd, &first) < 0)
        return run_fail_at(r, r->file[RUN_EVENTS].name, "cannot read", errno);
    for (int i = 0; i < RUN_FILES; i++) sizes[i] = 0;
    if (mark && parse_mark(r, mark, sizes)) return -1;
    if (sizes[RUN_EVENTS] < first) sizes[RUN_EVENTS] = first;
    for (int i = 0; i < RUN_FILES; i++) {
        if (check_mark(r, i, sizes[i])) return -1;
    }
    return 0;
}

int run_check_mark(const run *r, const char *mark) {
    int64_t sizes[RUN_FILES];
    return mark_sizes(r, mark, sizes);
}

int run_rewind(run *r, const char *mark) {
    int64_t sizes[RUN_FILES];
    if (mark_sizes(r, mark, sizes)) return -1;
    for (int i = 0; i < RUN_FILES; i++) {
        if (cut(r, i, sizes[i])) return -1;
    }
    if (unlink(path_join(r->directory, "result.json").text) && errno != ENOENT)
        return run_fail_at(r, "result.json", "cannot remove", errno);
    if (run_write_recipe(r) || run_write_task(r)) return -1;
    return *r->machine ? 0 : run_write_machine(r);
}

static int find_training_loss(const run *r, int64_t step, double *out) {
    return mean_training_loss(path_join(r->directory, r->file[RUN_METRICS].name).text, step, out);
}

static void add_metrics_object(json *j, const run_metrics *m) {
    if (!m) return;
    json_pair_open(j, m->kind, '{');
    run_put_metrics(m, j, NULL);
    json_close(j, '}');
}

int run_finish(run *r, const run_result *result, double *loss) {
    char ignored[RUN_MARK];
    json j = {0};
    if (run_mark(r, ignored, sizeof ignored)) return -1; /* the data must be on disk before the result */
    if (find_training_loss(r, result->step, loss)) return -1;
    json_open(&j, '{');
    json_pair(&j, "status", result->status);
    json_pair_integer(&j, "step", result->step);
    json_pair_number(&j, "seconds", result->seconds);
    if (!isnan(*loss)) {
        json_pair_number(&j, "training_loss", *loss);
    }
    if (result->early) {
        json_pair_boolean(&j, "early", true);
    }
    add_metrics_object(&j, result->valid);
    add_metrics_object(&j, result->final);
    json_close(&j, '}');
    return run_write_json(r, "result.json", &j);
}

/* Reads the beginning of result.json, which has the status; "": there is none. */
static void read_result(const char *directory, char *out, size_t size) {
    FILE *file = fopen(path_join(directory, "result.json").text, "re");
    *out = '\0';
    if (!file) return;
    (void)!fgets(out, (int)size, file);
    fclose(file);
}

bool run_is_over(const char *directory) {
    char text[64];
    read_result(directory, text, sizeof text);
    return strstr(text, "\"finished\"") || strstr(text, "\"diverged\"");
}

bool run_was_saved(const char *directory) {
    char text[64];
    read_result(directory, text, sizeof text);
    return strstr(text, "\"finished\"") || strstr(text, "\"interrupted\"");
}

double run_seconds(const char *directory) {
    static const char key[] = "\"seconds\":";
    char text[256];
    read_result(directory, text, sizeof text);
    const char *at = strstr(text, "\"diverged\"") ? NULL : strstr(text, key);
    char *end = NULL;
    const double seconds = at ? strtod(at + sizeof key - 1, &end) : NAN;
    return end && end > at + sizeof key - 1 ? seconds : NAN;
}
