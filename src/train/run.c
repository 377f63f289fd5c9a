/* run.c - see run.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "train/run.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "base/file.h"
#include "train/tfevents.h"
#include "train/training_loss.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What grows while a run goes on. */
enum { METRICS, HISTOGRAMS, SAMPLES, EVENTS, FILES };
enum { NAME = 96, DESCRIPTIONS = 16 };

typedef struct appended {
    char name[NAME];
    int fd;
    int64_t size;
} appended;

struct run {
    char *directory;
    appended file[FILES];
    recipe recipe;
    bool resume;
    bool made;        /* the directory */
    int except;       /* in what the recipe may differ from the one that is there */
    char machine[24]; /* the file's name; "" until it is written */
    double started;
    char description[DESCRIPTIONS][2][128];
    int n_descriptions;
};

/* Where to complain. */
typedef struct line {
    char *message;
    size_t size;
} line;

const char *run_directory(const run *r) { return r->directory; }

static int fail_at(const run *r, const char *name, const line *to, const char *what, int error) {
    return text_fail(to->message, to->size, "%s/%s: %s: %s", r->directory, name, what, strerror(error));
}

/* DIRECTORY/NAME in memory of its own; without memory there is a message. */
static char *path_of(const run *r, const char *name, const line *to) {
    const size_t size = strlen(r->directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", r->directory, name);
    else (void)fail_at(r, name, to, "out of memory", ENOMEM);
    return path;
}

/* ---- Files that grow --------------------------------------------------------------------------------------------- */

/* One write, so that a crash leaves whole lines. Where the system takes only a part (a full disk), that part is cut off
 * again. */
static int append(run *r, int index, const void *data, size_t n, const line *to) {
    appended *f = &r->file[index];
    for (size_t done = 0; done < n;) {
        const ssize_t got = write(f->fd, (const char *)data + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            const int error = got ? errno : EIO;
            (void)adamod__file_cut(f->fd, (uint64_t)f->size);
            return fail_at(r, f->name, to, "cannot write", error);
        }
        done += (size_t)got;
    }
    f->size += (int64_t)n;
    return 0;
}

/* A line for one of the files and (n > 0) a record for TensorBoard; both or none. */
static int append_both(run *r, int index, json *j, tfevents *e, const line *to) {
    json_end_line(j);
    const int64_t before = r->file[index].size;
    int status = 0;
    if (j->failed || e->failed) status = fail_at(r, r->file[index].name, to, "cannot write", ENOMEM);
    if (!status) status = append(r, index, j->text, j->n, to);
    if (!status && e->n && (status = append(r, EVENTS, e->data, e->n, to))) {
        if (!adamod__file_cut(r->file[index].fd, (uint64_t)before)) r->file[index].size = before;
    }
    json_free(j);
    tfevents_free(e);
    return status;
}

static int open_file(run *r, int index, const line *to) {
    appended *f = &r->file[index];
    char *path = path_of(r, f->name, to);
    struct stat st;
    if (!path) return -1;
    f->fd = adamod__file_open(path, O_RDWR | O_CREAT | O_APPEND);
    free(path);
    if (f->fd < 0) return fail_at(r, f->name, to, "cannot open", errno);
    if (fstat(f->fd, &st)) return fail_at(r, f->name, to, "cannot get its size", errno);
    if (!S_ISREG(st.st_mode)) return text_fail(to->message, to->size, "%s/%s is not a file", r->directory, f->name);
    f->size = (int64_t)st.st_size;
    return 0;
}

static int cut(run *r, int index, int64_t size, const line *to) {
    appended *f = &r->file[index];
    if (size == f->size) return 0;
    const int error = adamod__file_cut(f->fd, (uint64_t)size);
    if (error) return fail_at(r, f->name, to, "cannot truncate", error);
    f->size = size;
    return 0;
}

/* The end of a file's last whole line. */
static int64_t whole_lines(const appended *f) {
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

static int cut_torn(run *r, int index, const line *to) {
    const int64_t whole = index == EVENTS ? tfevents_whole(r->file[index].fd, NULL) : whole_lines(&r->file[index]);
    if (whole < 0) return fail_at(r, r->file[index].name, to, "cannot read", errno);
    return cut(r, index, whole, to);
}

/* ---- Files that are written at once ------------------------------------------------------------------------------ */

static int write_whole(const run *r, const char *name, const char *text, size_t n, const line *to) {
    char *path = path_of(r, name, to);
    const int status = path ? text_write(path, (text_slice){text, n}, to->message, to->size) : -1;
    free(path);
    return status;
}

static int write_json(const run *r, const char *name, json *j, const line *to) {
    json_end_line(j);
    const int status =
        j->failed ? fail_at(r, name, to, "cannot write", ENOMEM) : write_whole(r, name, j->text, j->n, to);
    json_free(j);
    return status;
}

static int write_recipe(const run *r, const line *to) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    int status = file ? recipe_write(&r->recipe, file) : -1;
    if (file && fclose(file)) status = -1;
    if (status) (void)fail_at(r, "recipe.yaml", to, "cannot write", ENOMEM);
    else status = write_whole(r, "recipe.yaml", text, n, to);
    free(text);
    return status;
}

/* What follows the first ": " of the first line of a file that begins with key. */
static void read_system(const char *path, const char *key, char *out, size_t size) {
    char text[512];
    FILE *file = fopen(path, "re");
    *out = '\0';
    while (file && !*out && fgets(text, sizeof text, file)) {
        const char *colon = strchr(text, ':');
        if (strncmp(text, key, strlen(key)) != 0 || !colon) continue;
        colon += strspn(colon, ": \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (file) fclose(file);
}

static void add_machine(const run *r, json *j) {
    char processor[128], host[128] = "", began[40] = "";
    adamod_optimizer *opt = NULL;
    const time_t seconds = (time_t)r->started;
    struct tm utc;
    read_system("/proc/cpuinfo", "model name", processor, sizeof processor);
    (void)gethostname(host, sizeof host - 1);
    if (gmtime_r(&seconds, &utc)) strftime(began, sizeof began, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_open(j, '{');
    json_pair(j, "version", adamod_version_string());
#ifdef __clang__
    json_pair(j, "compiler", "clang " __clang_version__);
#else
    json_pair(j, "compiler", "gcc " __VERSION__);
#endif
    json_pair(j, "started", began);
    json_pair(j, "host", host);
    json_pair(j, "processor", processor);
    json_key(j, "cores");
    json_integer(j, sysconf(_SC_NPROCESSORS_ONLN));
    if (adamod_create(&opt, "adamod") == ADAMOD_OK) json_pair(j, "instruction_set", adamod_isa(opt));
    adamod_free(opt);
    for (int i = 0; i < r->n_descriptions; i++) json_pair(j, r->description[i][0], r->description[i][1]);
    json_close(j, '}');
}

static int write_machine(run *r, const line *to) {
    json j = {0};
    for (int i = 2; r->resume && !*r->machine; i++) { /* each process leaves its own */
        char name[sizeof r->machine];
        snprintf(name, sizeof name, "machine.%d.json", i);
        char *path = path_of(r, name, to);
        if (!path) return -1;
        if (access(path, F_OK) != 0) snprintf(r->machine, sizeof r->machine, "%s", name);
        free(path);
    }
    if (!*r->machine) snprintf(r->machine, sizeof r->machine, "machine.json");
    add_machine(r, &j);
    return write_json(r, r->machine, &j, to);
}

static void add_metric(json *j, const metric *m) {
    static const char *const better[] = {"lower", "neither", "higher"};
    json_open(j, '{');
    json_pair(j, "name", m->name);
    json_pair(j, "label", m->label);
    json_pair(j, "about", m->about);
    json_pair(j, "unit", m->unit);
    json_key(j, "scale");
    json_number(j, m->scale);
    json_key(j, "decimals");
    json_integer(j, m->decimals);
    json_pair(j, "better", better[m->better - METRIC_LOWER]);
    json_key(j, "headline");
    json_boolean(j, m->headline);
    if (m->signature) json_pair(j, "signature", m->signature);
    json_close(j, '}');
}

static int write_task(const run *r, const line *to) {
    const task *t = recipe_task(&r->recipe);
    json j = {0};
    json_open(&j, '{');
    json_pair(&j, "task", t->name);
    json_pair(&j, "about", t->about);
    json_pair(&j, "items", t->items);
    json_pair(&j, "samples", t->samples);
    if (t->answers) json_pair(&j, "answers", t->answers);
    if (t->limit) json_pair(&j, "limit", t->limit);
    json_key(&j, "subtitle");
    json_open(&j, '[');
    for (const char *const *key = t->subtitle; key && *key; key++) json_string(&j, *key);
    json_close(&j, ']');
    json_key(&j, "metrics");
    json_open(&j, '[');
    for (int i = 0; i < t->n_metrics; i++) {
        if (!t->measures || t->measures(&r->recipe, i)) add_metric(&j, &t->metrics[i]);
    }
    json_close(&j, ']');
    json_close(&j, '}');
    return write_json(r, "task.json", &j, to);
}

int run_add_data(run *r, int n, const task_part *parts, char *message, size_t size) {
    const line to = {message, size};
    json j = {0};
    json_open(&j, '{');
    json_key(&j, "parts");
    json_open(&j, '[');
    for (int i = 0; i < n; i++) {
        char fingerprint[24];
        snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, parts[i].fingerprint);
        json_open(&j, '{');
        json_pair(&j, "split", task_split_name(parts[i].split));
        json_pair(&j, "key", parts[i].key);
        json_pair(&j, "file", parts[i].file);
        json_pair(&j, "fingerprint", fingerprint);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    return write_json(r, "data.json", &j, &to);
}

int run_describe(run *r, int n, const char *const (*pairs)[2], char *message, size_t size) {
    const line to = {message, size};
    for (int i = 0; i < n; i++) {
        if (r->n_descriptions == DESCRIPTIONS) return fail_at(r, "machine.json", &to, pairs[i][0], E2BIG);
        char(*pair)[128] = r->description[r->n_descriptions++];
        snprintf(pair[0], sizeof pair[0], "%s", pairs[i][0]);
        snprintf(pair[1], sizeof pair[1], "%s", pairs[i][1]);
    }
    /* A resumed run says what it runs on once it really goes on. */
    return *r->machine || !r->resume ? write_machine(r, &to) : 0;
}

/* ---- The directory ----------------------------------------------------------------------------------------------- */

/* 1: there is nothing in it; 0: there is; -1: it cannot be read. */
static int is_empty(const char *directory) {
    DIR *d = opendir(directory);
    if (!d) return -1;
    int empty = 1;
    for (struct dirent *e; empty && (e = readdir(d));) {
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    }
    closedir(d);
    return empty;
}

/* The directory with those above it. 0, or an errno; *made tells whether it was not there. */
static int make_directory(const char *path, bool *made) {
    char *copy = strdup(path);
    if (!copy) return ENOMEM;
    int error = 0;
    for (char *slash = copy; !error && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(copy, 0777) && errno != EEXIST) error = errno;
        *slash = '/';
    }
    *made = !error && mkdir(copy, 0777) == 0;
    if (!error && !*made) error = errno;
    free(copy);
    return error == EEXIST ? 0 : error;
}

static int prepare_new(const char *directory, bool *made, const line *to) {
    const int error = make_directory(directory, made);
    if (error) {
        return text_fail(to->message, to->size, "%s: cannot make the directory: %s", directory, strerror(error));
    }
    const int empty = is_empty(directory);
    if (empty > 0) return 0;
    if (empty < 0) return text_fail(to->message, to->size, "%s: %s", directory, strerror(errno));
    return text_fail(to->message, to->size,
                     "%s exists and is not empty: choose another --out, or --resume to continue it", directory);
}

/* The recipe of a run that exists must allow this one to continue it. */
static int check_recipe(const run *r, const line *to) {
    char difference[512];
    recipe was;
    char *path = path_of(r, "recipe.yaml", to);
    if (!path) return -1;
    recipe_defaults(&was, r->recipe.tasks);
    if (access(path, F_OK) != 0) {
        const int error = errno;
        free(path);
        return text_fail(to->message, to->size, "%s: no run to resume: recipe.yaml: %s", r->directory, strerror(error));
    }
    int status = recipe_load(&was, path, to->message, to->size);
    free(path);
    if (!status && recipe_compare(&was, &r->recipe, r->except, difference, sizeof difference)) {
        status =
            text_fail(to->message, to->size, "%s cannot be resumed with another recipe: %s", r->directory, difference);
    }
    return status;
}

/* The events file that is there, the last by name if there are several; else a new name, as TensorBoard makes them. */
static void name_events(run *r) {
    char host[48] = "", *name = r->file[EVENTS].name;
    *name = '\0';
    DIR *d = opendir(r->directory);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "events.out.tfevents.", 20) != 0 || strlen(e->d_name) >= NAME) continue;
        if (strcmp(e->d_name, name) > 0) snprintf(name, NAME, "%s", e->d_name);
    }
    if (d) closedir(d);
    if (*name) return;
    (void)gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c)) *c = '-';
    }
    snprintf(name, NAME, "events.out.tfevents.%010lld.%s", (long long)r->started, *host ? host : "host");
}

static int begin_events(run *r, const line *to) {
    tfevents e = {0};
    if (r->file[EVENTS].size) return 0;
    tfevents_version(&e, r->started);
    const int status =
        e.failed ? fail_at(r, r->file[EVENTS].name, to, "cannot write", ENOMEM) : append(r, EVENTS, e.data, e.n, to);
    tfevents_free(&e);
    return status;
}

/* What a process that was killed while it wrote a file has left. It takes a little room, nothing else. The names are
 * those of earlier versions. */
static void remove_temporaries(const run *r) {
    adamod__file_clean(r->directory);
    static const char *const kinds[] = {".yaml.tmp.", ".json.tmp.", ".vocab.tmp."};
    DIR *d = opendir(r->directory);
    for (struct dirent *e; d && (e = readdir(d));) {
        for (int i = 0; i < 3; i++) {
            if (strstr(e->d_name, kinds[i])) (void)unlinkat(dirfd(d), e->d_name, 0);
        }
    }
    if (d) closedir(d);
}

static int open_files(run *r, const line *to) {
    static const char *const names[FILES] = {"metrics.jsonl", "histograms.jsonl", "samples.jsonl"};
    char *checkpoints = path_of(r, "checkpoints", to);
    if (!checkpoints) return -1;
    const int made = mkdir(checkpoints, 0777), error = errno;
    free(checkpoints);
    if (made && error != EEXIST) return fail_at(r, "checkpoints", to, "cannot make the directory", error);
    for (int i = 0; i < EVENTS; i++) snprintf(r->file[i].name, NAME, "%s", names[i]);
    name_events(r);
    for (int i = 0; i < FILES; i++) {
        if (open_file(r, i, to)) return -1;
        /* Two processes in one directory would ruin each other's files. Where locks do not exist, so be it. */
        if (i == METRICS && flock(r->file[i].fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            return text_fail(to->message, to->size, "%s is in use by another process", r->directory);
        }
        if (r->resume && cut_torn(r, i, to)) return -1;
    }
    if (r->resume) remove_temporaries(r);
    return begin_events(r, to);
}

/* Takes back what run_open has made in a directory that was empty. */
static void remove_new(const run *r) {
    static const char *const others[] = {"recipe.yaml", "machine.json", "task.json"};
    char unused[8];
    const line to = {unused, sizeof unused};
    for (int i = 0; i < FILES + 3; i++) {
        const char *name = i < FILES ? r->file[i].name : others[i - FILES];
        char *path = *name ? path_of(r, name, &to) : NULL;
        if (path) (void)unlink(path);
        free(path);
    }
    char *checkpoints = path_of(r, "checkpoints", &to);
    if (checkpoints) (void)rmdir(checkpoints);
    free(checkpoints);
    if (r->made) (void)rmdir(r->directory);
}

int run_open(run **out, const char *directory, const recipe *recipe_now, bool resume, int except, char *message,
             size_t size) {
    const line to = {message, size};
    bool made = false;
    if (!*directory) return text_fail(message, size, "the run's directory has an empty name");
    if (!resume && prepare_new(directory, &made, &to)) return -1;
    run *r = calloc(1, sizeof *r);
    if (r) r->directory = strdup(directory);
    if (!r || !r->directory) {
        free(r);
        return text_fail(message, size, "%s: out of memory", directory);
    }
    for (int i = 0; i < FILES; i++) r->file[i].fd = -1;
    r->recipe = *recipe_now;
    r->resume = resume;
    r->made = made;
    r->except = except;
    r->started = clock_wall_seconds();
    int status = resume ? check_recipe(r, &to) : 0;
    if (!status) status = open_files(r, &to);
    if (!status && !resume) status = write_recipe(r, &to) || write_machine(r, &to) || write_task(r, &to) ? -1 : 0;
    if (!status) {
        *out = r;
        return 0;
    }
    run_discard(r);
    return -1;
}

void run_discard(run *r) {
    if (r && !r->resume) remove_new(r);
    run_close(r);
}

void run_close(run *r) {
    if (!r) return;
    for (int i = 0; i < FILES; i++) {
        if (r->file[i].fd >= 0) close(r->file[i].fd);
    }
    free(r->directory);
    free(r);
}

/* ---- Metrics, histograms, samples -------------------------------------------------------------------------------- */

static void put(run_metrics *m, const char *name, double value, bool scalar) {
    if (isnan(value) || m->n == RUN_VALUES) return;
    snprintf(m->at[m->n].name, sizeof m->at[m->n].name, "%s", name);
    m->at[m->n].value = value;
    m->at[m->n++].scalar = scalar;
}

void run_measured(run_metrics *m, const char *name, double value) { put(m, name, value, true); }
void run_counted(run_metrics *m, const char *name, double value) { put(m, name, value, false); }

/* The object's fields, and (e may be NULL) the same for TensorBoard. */
static void add_metrics(const run_metrics *m, json *j, tfevents *e) {
    char tag[64];
    json_pair(j, "kind", m->kind);
    json_key(j, "step");
    json_integer(j, m->step);
    for (int i = 0; i < m->n; i++) {
        json_key(j, m->at[i].name);
        json_number(j, m->at[i].value);
        if (!e || !m->at[i].scalar || !isfinite(m->at[i].value)) continue;
        snprintf(tag, sizeof tag, "%s/%s", m->kind, m->at[i].name);
        tfevents_scalar(e, tag, m->at[i].value);
    }
}

int run_add_metrics(run *r, const run_metrics *m, char *message, size_t size) {
    const line to = {message, size};
    json j = {0};
    tfevents e = {0};
    json_open(&j, '{');
    tfevents_begin(&e, clock_wall_seconds(), m->step);
    add_metrics(m, &j, &e);
    tfevents_end(&e);
    json_close(&j, '}');
    return append_both(r, METRICS, &j, &e, &to);
}

static void add_counts(json *j, const char *name, const int64_t *counts) {
    char first_name[32];
    int first = 0, end = ADAMOD_HIST_BINS;
    while (first < end && !counts[first]) first++;
    while (first < end && !counts[end - 1]) end--;
    snprintf(first_name, sizeof first_name, "%s_first", name);
    json_key(j, first_name);
    json_integer(j, first == end ? 0 : first);
    json_key(j, name);
    json_open(j, '[');
    for (int i = first; i < end; i++) json_integer(j, counts[i]);
    json_close(j, ']');
}

static double log10_within(double x) {
    const double y = x > 0 ? log10(x) : ADAMOD_HIST_LOW;
    return y < ADAMOD_HIST_LOW ? ADAMOD_HIST_LOW : y > ADAMOD_HIST_HIGH ? ADAMOD_HIST_HIGH : y;
}

static void add_histogram(tfevents *e, const char *tag, double least, double most, const int64_t *counts) {
    const double width = (ADAMOD_HIST_HIGH - ADAMOD_HIST_LOW) / ADAMOD_HIST_BINS;
    const tfevents_histogram h = {ADAMOD_HIST_LOW,    width,  log10_within(least),
                                  log10_within(most), counts, ADAMOD_HIST_BINS};
    tfevents_add_histogram(e, tag, &h);
}

int run_add_histogram(run *r, int64_t step, const adamod_statistics *s, char *message, size_t size) {
    const line to = {message, size};
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"bounded", s->bounded},       {"eta_min", s->eta_min},
                   {"eta_median", s->eta_median}, {"eta_max", s->eta_max},
                   {"step_min", s->step_min},     {"step_median", s->step_median},
                   {"step_max", s->step_max},     {"nonfinite", (double)s->nonfinite},
                   {"low", ADAMOD_HIST_LOW},      {"high", ADAMOD_HIST_HIGH},
                   {"bins", ADAMOD_HIST_BINS}};
    json j = {0};
    tfevents e = {0};
    json_open(&j, '{');
    json_key(&j, "step");
    json_integer(&j, step);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(&j, numbers[i].name);
        json_number(&j, numbers[i].value);
    }
    add_counts(&j, "eta", s->eta);
    add_counts(&j, "effective", s->step);
    add_counts(&j, "idle_eta", s->idle_eta);
    add_counts(&j, "idle_effective", s->idle_step);
    json_close(&j, '}');
    if (s->elements > 0) {
        tfevents_begin(&e, clock_wall_seconds(), step);
        add_histogram(&e, "learning_rate/before_bound", s->eta_min, s->eta_max, s->eta);
        add_histogram(&e, "learning_rate/after_bound", s->step_min, s->step_max, s->step);
        tfevents_end(&e);
    }
    return append_both(r, HISTOGRAMS, &j, &e, &to);
}

int run_add_sample(run *r, int64_t step, int n, const task_text *texts, char *message, size_t size) {
    const line to = {message, size};
    json j = {0};
    tfevents none = {0};
    json_open(&j, '{');
    json_key(&j, "step");
    json_integer(&j, step);
    for (int i = 0; i < n; i++) json_pair(&j, texts[i].name, texts[i].text);
    json_close(&j, '}');
    return append_both(r, SAMPLES, &j, &none, &to);
}

/* ---- Marks ------------------------------------------------------------------------------------------------------- */

int run_mark(run *r, char *mark, size_t mark_size, char *message, size_t size) {
    const line to = {message, size};
    size_t used = 0;
    for (int i = 0; i < FILES; i++) {
        const appended *f = &r->file[i];
        const int error = adamod__file_sync(f->fd);
        if (error) return fail_at(r, f->name, &to, "cannot sync", error);
        used += (size_t)snprintf(mark + used, mark_size - used, "%s%s %" PRId64, i ? " " : "", f->name, f->size);
        if (used >= mark_size) return fail_at(r, f->name, &to, "no room for the mark", ENAMETOOLONG);
    }
    return 0;
}

/* "metrics.jsonl 120 histograms.jsonl 0 ..." into sizes; -1 where a file is not named. */
static int parse_mark(const run *r, const char *mark, int64_t sizes[FILES], const line *to) {
    char name[NAME];
    int used = 0;
    for (int i = 0; i < FILES; i++) sizes[i] = -1;
    for (const char *at = mark; *at; at += used) {
        int64_t value = -1;
        int i = 0;
        if (sscanf(at, "%95s %" SCNd64 "%n", name, &value, &used) != 2 || value < 0 || (at[used] && at[used] != ' ')) {
            return text_fail(to->message, to->size, "%s: the mark '%.80s' is damaged", r->directory, mark);
        }
        while (i < FILES && strcmp(r->file[i].name, name) != 0) i++;
        if (i < FILES) sizes[i] = value;
    }
    return 0;
}

/* A file that is shorter than it was, or has no line's end where one was, is not the one that was marked. */
static int check_mark(const run *r, int index, int64_t size, const line *to) {
    const appended *f = &r->file[index];
    char last = '\n';
    if (size < 0) return text_fail(to->message, to->size, "%s: the mark does not name %s", r->directory, f->name);
    uint64_t got;
    if (index != EVENTS && size > 0 && size <= f->size) {
        const int error = adamod__file_read(f->fd, (uint64_t)(size - 1), &last, 1, &got);
        if (error || !got) return fail_at(r, f->name, to, "cannot read", error ? error : EIO);
    }
    if (size <= f->size && last == '\n') return 0;
    return text_fail(to->message, to->size,
                     "%s/%s was changed since the checkpoint: it had %" PRId64 " bytes, now %" PRId64, r->directory,
                     f->name, size, f->size);
}

/* TensorBoard's file can be deleted at no loss: a new one then begins here. */
static int mark_sizes(const run *r, const char *mark, int64_t sizes[FILES], const line *to) {
    int64_t first;
    if (tfevents_whole(r->file[EVENTS].fd, &first) < 0)
        return fail_at(r, r->file[EVENTS].name, to, "cannot read", errno);
    for (int i = 0; i < FILES; i++) sizes[i] = 0;
    if (mark && parse_mark(r, mark, sizes, to)) return -1;
    if (sizes[EVENTS] < first) sizes[EVENTS] = first;
    for (int i = 0; i < FILES; i++) {
        if (check_mark(r, i, sizes[i], to)) return -1;
    }
    return 0;
}

int run_check_mark(const run *r, const char *mark, char *message, size_t size) {
    const line to = {message, size};
    int64_t sizes[FILES];
    return mark_sizes(r, mark, sizes, &to);
}

int run_rewind(run *r, const char *mark, char *message, size_t size) {
    const line to = {message, size};
    int64_t sizes[FILES];
    if (mark_sizes(r, mark, sizes, &to)) return -1;
    for (int i = 0; i < FILES; i++) {
        if (cut(r, i, sizes[i], &to)) return -1;
    }
    char *result = path_of(r, "result.json", &to);
    if (!result) return -1;
    const int removed = unlink(result), error = errno;
    free(result);
    if (removed && error != ENOENT) return fail_at(r, "result.json", &to, "cannot remove", error);
    if (write_recipe(r, &to) || write_task(r, &to)) return -1;
    return *r->machine ? 0 : write_machine(r, &to);
}

static int find_training_loss(const run *r, int64_t step, double *out, const line *to) {
    char *path = path_of(r, r->file[METRICS].name, to);
    const int status = path ? training_loss(path, step, out, to->message, to->size) : -1;
    free(path);
    return status;
}

static void add_metrics_object(json *j, const run_metrics *m) {
    if (!m) return;
    json_key(j, m->kind);
    json_open(j, '{');
    add_metrics(m, j, NULL);
    json_close(j, '}');
}

int run_finish(run *r, const run_result *result, double *loss, char *message, size_t size) {
    const line to = {message, size};
    char ignored[RUN_MARK];
    json j = {0};
    if (run_mark(r, ignored, sizeof ignored, message, size)) return -1; /* a result must not outlive its data */
    if (find_training_loss(r, result->step, loss, &to)) return -1;
    json_open(&j, '{');
    json_pair(&j, "status", result->status);
    json_key(&j, "step");
    json_integer(&j, result->step);
    json_key(&j, "seconds");
    json_number(&j, result->seconds);
    if (!isnan(*loss)) {
        json_key(&j, "training_loss");
        json_number(&j, *loss);
    }
    if (result->early) {
        json_key(&j, "early");
        json_boolean(&j, true);
    }
    add_metrics_object(&j, result->valid);
    add_metrics_object(&j, result->final);
    json_close(&j, '}');
    return write_json(r, "result.json", &j, &to);
}

/* The beginning of result.json, where its status is; "": there is none. */
static void read_result(const char *directory, char *out, size_t size) {
    char path[4096];
    *out = '\0';
    if ((size_t)snprintf(path, sizeof path, "%s/result.json", directory) >= sizeof path) return;
    FILE *file = fopen(path, "re");
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
