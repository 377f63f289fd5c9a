#include "train/checkpoints.h"

#include "core/error.h"
#include "core/file.h"
#include "support/text.h"
#include "support/array.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- In a directory ---------------------------------------------------------------------------------------------- */

bool checkpoint_path(const char *directory, int64_t step, char *out, size_t size) {
    return (size_t)snprintf(out, size, "%s/step-%" PRId64 ".safetensors", directory, step) < size;
}

/* The N of step-N.safetensors, or -1. */
static int64_t step_of(const char *name) {
    int64_t step;
    char again[64];
    if (sscanf(name, "step-%" SCNd64, &step) != 1 || step < 0) return -1;
    snprintf(again, sizeof again, "step-%" PRId64 ".safetensors", step);
    return strcmp(name, again) == 0 ? step : -1;
}

static int descending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int checkpoint_list(const char *directory, int64_t **steps, size_t *n) {
    size_t found = 0;
    int64_t *list = NULL;
    DIR *d = opendir(directory);
    if (!d) return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", directory, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        const int64_t step = step_of(e->d_name);
        if (step < 0) continue;
        if (!ARRAY_EXTEND(list, found)) {
            free(list);
            closedir(d);
            return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", directory);
        }
        list[found++] = step;
    }
    closedir(d);
    if (found) qsort(list, found, sizeof *list, descending);
    *steps = list;
    *n = found;
    return 0;
}

static int remove_file(const char *directory, const char *name) {
    if (unlink(path_join(directory, name).text) == 0) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "%s/%s: cannot remove: %s", directory, name, strerror(errno));
}

static int remove_step(const char *directory, int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "step-%" PRId64 ".safetensors", step);
    return remove_file(directory, name);
}

int checkpoint_prune(const char *directory, size_t keep, checkpoint_kept *kept, const void *context) {
    int64_t *steps = NULL;
    size_t n = 0;
    if (checkpoint_list(directory, &steps, &n)) return -1;
    int status = 0;
    for (size_t i = keep; !status && i < n; i++) {
        if (!kept || !kept(context, steps[i])) status = remove_step(directory, steps[i]);
    }
    free(steps);
    DIR *d = status ? NULL : opendir(directory);
    for (struct dirent *e; d && (e = readdir(d));) {
        /* temporary files of earlier versions */
        if (!status && strstr(e->d_name, ".safetensors.tmp.")) status = remove_file(directory, e->d_name);
    }
    if (d) closedir(d);
    if (!status) adamod__file_clean(directory);
    return status;
}

int checkpoint_drop_after(const char *directory, int64_t step) {
    int64_t *steps = NULL;
    size_t n = 0;
    if (checkpoint_list(directory, &steps, &n)) return -1;
    int status = 0;
    for (size_t i = 0; !status && i < n && steps[i] > step; i++) {
        status = remove_step(directory, steps[i]);
    }
    free(steps);
    return status;
}

/* ---- By name ----------------------------------------------------------------------------------------------------- */

/* In order of preference. */
static const char *const names[] = {"averaged", "best", "last"};
enum { NAMES = sizeof names / sizeof *names };

static bool is_own(const char *which) {
    char file[80];
    for (int i = 0; i < NAMES; i++) {
        if (strcmp(which, names[i]) == 0) return true;
    }
    return snprintf(file, sizeof file, "%.60s.safetensors", which) < (int)sizeof file && step_of(file) >= 0;
}

path_text checkpoints_path(const char *directory, const char *name) {
    path_text path;
    snprintf(path.text, sizeof path.text, "%s/checkpoints/%s.safetensors", directory, name);
    return path;
}

bool checkpoints_is_name(const char *which) {
    return is_own(which) || strchr(which, '/') || text_ends(which, ".safetensors") || access(which, F_OK) == 0;
}

/* False only if there is no such file: one that cannot be opened is there. */
static bool is_there(const char *path) { return access(path, R_OK) == 0 || errno != ENOENT; }

int checkpoints_find(const char *directory, const char **which, char *path, size_t path_size) {
    for (int i = 0; !*which && i < NAMES; i++) {
        if (is_there(checkpoints_path(directory, names[i]).text)) *which = names[i];
    }
    if (!*which) return adamod__refuse("%s: the run has no checkpoint yet", directory);
    const path_text own = checkpoints_path(directory, *which);
    if ((size_t)snprintf(path, path_size, "%s", is_own(*which) ? own.text : *which) >= path_size)
        return adamod__refuse("%s: the path of the checkpoint is too long", directory);
    if (access(path, R_OK) == 0) return 0;
    if (errno == ENOENT && strcmp(*which, "averaged") == 0)
        return adamod__refuse("%s: no averaged checkpoint: one is made at the end of a run with train.average",
                              directory);
    return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path, strerror(errno));
}

uint64_t checkpoints_recipe_now(const char *directory) {
    char *text = NULL;
    size_t n = 0;
    if (text_read(path_join(directory, "recipe.yaml").text, &text, &n)) return 0;
    const uint64_t hash = fingerprint_names(FINGERPRINT_NAMES, text, n);
    free(text);
    return hash;
}

int checkpoints_recipe(const char *directory, recipe *r) {
    const path_text path = checkpoints_path(directory, "last");
    checkpoint_meta last = {0};
    if (checkpoint_info(path.text, &last, NULL) == 0 && last.replaces &&
        last.replaces == checkpoints_recipe_now(directory)) {
        return checkpoint_info(path.text, &last, r);
    }
    return recipe_load(r, path_join(directory, "recipe.yaml").text);
}

/* A list of checkpoints: "best (update 10), step-20 (update 20)". */
typedef struct offer {
    const char *directory, *path; /* of the run; of the checkpoint that could not be loaded */
    bool resume;                  /* only with an optimizer's states */
    char text[400];
    int n;
} offer;

static void add_if_whole(offer *o, const char *name) {
    const path_text path = checkpoints_path(o->directory, name);
    checkpoint_meta meta = {0};
    bool resumable;
    if (strcmp(path.text, o->path) == 0 || access(path.text, R_OK)) return;
    if (checkpoint_verify(path.text, &resumable, &meta) || (o->resume && !resumable)) return;
    text_add(o->text, sizeof o->text, "%s%s (update %" PRId64 ")", o->n++ ? ", " : "", name, meta.step);
}

/* Adds the latest few. */
static void add_steps(offer *o) {
    enum { ENOUGH = 3 };
    char name[64];
    int64_t *steps = NULL;
    size_t n = 0;
    if (checkpoint_list(path_join(o->directory, "checkpoints").text, &steps, &n)) return;
    const int before = o->n;
    for (size_t i = 0; i < n && o->n < before + ENOUGH; i++) {
        snprintf(name, sizeof name, "step-%" PRId64, steps[i]);
        add_if_whole(o, name);
    }
    free(steps);
}

static offer make_offer(const char *directory, const char *path, bool resume) {
    offer o = {.directory = directory, .path = path, .resume = resume};
    for (int i = NAMES - 1; i >= 0; i--) add_if_whole(&o, names[i]);
    add_steps(&o);
    return o;
}

int checkpoints_offer(const char *directory, const char *path, bool resume) {
    adamod__failure failure;
    checkpoint_meta meta = {0};
    bool resumable;
    adamod__save_failure(&failure);
    if (checkpoint_verify(path, &resumable, &meta) == 0) return adamod__fail_again(&failure);
    offer o = make_offer(directory, path, resume);
    const bool without = resume && o.n == 0;
    if (without) o = make_offer(directory, path, false);
    if (o.n == 0) return adamod__fail(failure.status, "%s; no other checkpoint of the run is whole", failure.message);
    return adamod__fail(failure.status, "%s; whole%s: %s: choose one with %s NAME%s", failure.message,
                        without ? ", without the optimizer's states" : "", o.text,
                        resume ? "--resume-from" : "--checkpoint", without ? " --reset optimizer" : "");
}
