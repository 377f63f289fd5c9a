#include "train/resume.h"

#include "core/error.h"
#include "support/run_format.h"
#include "support/text.h"
#include "train/checkpoints.h"
#include "train/patterns.h"
#include "train/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096 };

typedef struct resuming {
    experiment *e;
    run *run;
    const resume_options *o;
    checkpoint_meta *at;
    adamod_optimizer *full; /* all states, if they are divided among ranks; else NULL */
    task_part part[TASK_MOST_PARTS];
    int n_parts;
} resuming;

int resume_except(int reset) {
    return (reset & RESET_OPTIMIZER ? RECIPE_RULE | RECIPE_OPTIONS : 0) | (reset & RESET_OPTIONS ? RECIPE_OPTIONS : 0);
}

/* ---- Weights of another run -------------------------------------------------------------------------------------- */

/* Advice for weights with another meaning: a vocabulary can be taken from the run, classes cannot. */
static void find_way_out(const experiment *e, const char *meaning, char *out, size_t size) {
    const char *key = e->task->vocabulary_key, *from = e->recipe.train.init_from, *end = strstr(from, "/checkpoints/");
    *out = '\0';
    if (key && end) snprintf(out, size, "--set %s=%.*s takes that of the run", key, (int)(end - from), from);
    if (!key && *meaning) snprintf(out, size, "--set 'train.init_skip=%s' makes a new layer for these", meaning);
}

static int take_weights(experiment *e) {
    const recipe *r = &e->recipe;
    char meaning[128] = "", way_out[RECIPE_PATH + 128];
    const task_model *model = recipe_model(&e->recipe);
    if (model->meaning) snprintf(meaning, sizeof meaning, "%s", model->meaning);
    else if (model->write_meaning) model->write_meaning(&e->recipe, meaning, sizeof meaning);
    find_way_out(e, meaning, way_out, sizeof way_out);
    const checkpoint_weights how = {.fingerprint = e->task->fingerprint(e),
                                    .skip = r->train.init_skip,
                                    .meaning = *meaning ? meaning : NULL,
                                    .other = e->task->other_meaning ? e->task->other_meaning : "other data",
                                    .way_out = way_out};
    bool foreign = false;
    if (patterns_check(e->params, "train.init_skip", r->train.init_skip)) return -1;
    if (e->task->foreign && e->task->foreign(e, r->train.init_from, &foreign)) return -1;
    if (foreign) return 0;
    return checkpoint_load_weights(r->train.init_from, e->params, &how);
}

int resume_init(experiment *e) {
    char *from = e->recipe.train.init_from, path[PATH];
    const char *which = NULL;
    struct stat st;
    if (!*from) return 0;
    if (stat(from, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (run_format_check(from)) return -1;
        const path_text foreign = path_join(from, "model.safetensors");
        if (access(foreign.text, R_OK) == 0) snprintf(path, sizeof path, "%s", foreign.text);
        else if (checkpoints_find(from, &which, path, sizeof path))
            return adamod__refuse("%s: neither a run directory with a checkpoint nor a safetensors file", from);
        if (strlen(path) >= sizeof e->recipe.train.init_from)
            return adamod__refuse("%s: the path of its checkpoint is too long", from);
        memcpy(from, path, strlen(path) + 1);
    }
    return take_weights(e);
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static void write_data(resuming *s) {
    *s->at->data = '\0';
    for (int i = 0; i < s->n_parts; i++) {
        text_add(s->at->data, sizeof s->at->data, "%s%.40s %016" PRIx64, i ? " " : "", s->part[i].key,
                 s->part[i].fingerprint);
    }
}

/* The fingerprint of a key in a checkpoint's text; false: none, as for new parts and in earlier versions. */
static bool find_part(const char *text, const char *key, uint64_t *out) {
    char found[64];
    int used = 0;
    for (; sscanf(text, " %63s %" SCNx64 "%n", found, out, &used) == 2; text += used) {
        if (strcmp(found, key) == 0) return true;
    }
    return false;
}

static bool differs(const task_part *p, const char *was) {
    uint64_t before;
    return find_part(was, p->key, &before) && before != p->fingerprint;
}

bool resume_other_data(const experiment *e, task_split split, const checkpoint_meta *at, const char *directory,
                       char *out, size_t size) {
    task_part part[TASK_MOST_PARTS];
    const int n = e->task->data(e, part);
    for (int i = 0; i < n; i++) {
        const task_part *p = &part[i];
        if (p->split != split || !differs(p, at->data)) continue;
        snprintf(out, size, "%s: not the %s data that the run had; it may have been trained on some of these",
                 *p->file ? p->file : directory, task_split_label(split));
        return true;
    }
    return false;
}

static int check_data(const resuming *s, const char *was) {
    for (int i = 0; i < s->n_parts; i++) {
        const task_part *p = &s->part[i];
        if (!differs(p, was) || (s->o->reset & RESET_DATA)) continue;
        return adamod__refuse(
            "%s: %s is not what the run has been trained with: its content has changed; restore it, or go "
            "on with what is there by --reset data",
            *p->file ? p->file : run_directory(s->run), p->key);
    }
    return 0;
}

/* Other data may give another vocabulary, for which the checkpoint has no parameters. */
static int check_vocabulary(const resuming *s, const char *path, uint64_t was) {
    const char *key = s->e->task->vocabulary_key;
    if (!(s->o->reset & RESET_DATA) || !key || !was || was == s->at->fingerprint) return 0;
    return adamod__refuse("%s: made with another vocabulary than these data give: --set %s=%s keeps the run's own",
                          path, key, run_directory(s->run));
}

static void forget_best(checkpoint_meta *at) {
    at->best = NAN;
    at->best_step = at->stale = 0;
}

/* The position in the old data does not apply to the new, nor does the best on another validation set. */
static void move_to_new_data(resuming *s, const char *was) {
    bool changed = false;
    for (int i = 0; i < s->n_parts; i++) {
        if (!differs(&s->part[i], was)) continue;
        if (s->part[i].split == SPLIT_VALID) forget_best(s->at);
        changed |= s->part[i].split == SPLIT_TRAIN;
    }
    if (!changed || s->at->batch == 0) return;
    s->at->epoch++;
    s->at->batch = 0;
}

/* ---- Which checkpoint -------------------------------------------------------------------------------------------- */

/* Whether a checkpoint says that there was a "last". */
static bool knows_of_last(const char *directory, const char *name) {
    const path_text path = checkpoints_path(directory, name);
    checkpoint_meta meta = {0};
    if (access(path.text, F_OK)) return false;
    return checkpoint_info(path.text, &meta, NULL) || meta.last_step != 0;
}

/* Whether "last" was removed, rather than never made. */
static bool last_is_lost(const resuming *s) {
    const char *directory = run_directory(s->run);
    char name[64];
    int64_t *steps = NULL;
    size_t n = 0;
    bool lost = run_was_saved(directory) || knows_of_last(directory, "best") || knows_of_last(directory, "averaged");
    if (!lost && checkpoint_list(path_join(directory, "checkpoints").text, &steps, &n)) return false;
    for (size_t i = 0; i < n && !lost; i++) {
        snprintf(name, sizeof name, "step-%" PRId64, steps[i]);
        lost = knows_of_last(directory, name);
    }
    free(steps);
    return lost;
}

/* ---- Going on ---------------------------------------------------------------------------------------------------- */

/* Whether a checkpoint is of a later update than the one the run resumes from. */
static bool is_later(const resuming *s, const char *name) {
    checkpoint_meta meta = {0};
    const path_text path = checkpoints_path(run_directory(s->run), name);
    return checkpoint_info(path.text, &meta, NULL) == 0 && meta.step > s->at->step;
}

/* Deletes checkpoints of later updates. */
static int drop_later(const resuming *s) {
    static const char *const names[] = {"best", "averaged"};
    for (int i = 0; i < 2; i++) {
        const path_text path = checkpoints_path(run_directory(s->run), names[i]);
        if (!is_later(s, names[i]) || unlink(path.text) == 0) continue;
        return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot remove: %s", path.text, strerror(errno));
    }
    return checkpoint_drop_after(path_join(run_directory(s->run), "checkpoints").text, s->at->step);
}

/* Saves the checkpoint as "last" before the files are cut back and the recipe is written. Its rename is the commit point,
 * for the recipe too: after a crash, --resume needs no other flags again. */
static int become_last(resuming *s) {
    const path_text path = checkpoints_path(run_directory(s->run), "last");
    s->at->replaces = checkpoints_recipe_now(run_directory(s->run));
    const int failed = checkpoint_save(path.text, s->e->params, s->full ? s->full : s->e->optimizer, s->at);
    s->at->replaces = 0;
    return failed;
}

static int describe(resuming *s, const char *which) {
    char step[24], reset[40] = "";
    static const char *const names[] = {"optimizer", "options", "data"};
    for (int i = 0; i < 3; i++) {
        if (s->o->reset & 1 << i) text_join(reset, sizeof reset, " ", names[i]);
    }
    snprintf(step, sizeof step, "%" PRId64, s->at->step);
    const char *const pairs[][2] = {{"resumed_from", which}, {"resumed_at", step}, {"reset", reset}};
    return run_describe(s->run, *reset ? 3 : 2, pairs);
}

/* Loads and checks everything before a file is changed. */
static int load(resuming *s, const char *path) {
    checkpoint_meta found = {0};
    recipe was = {.tasks = s->e->recipe.tasks};
    const bool anew = s->o->reset & RESET_OPTIMIZER;
    if (s->e->shard && shard_full(s->e->shard, &s->full)) return -1;
    adamod_optimizer *optimizer = anew ? NULL : s->full ? s->full : s->e->optimizer;
    if (checkpoint_info(path, &found, &was)) return -1;
    const bool same_metric = strcmp(was.train.best, s->e->recipe.train.best) == 0;
    recipe_free(&was);
    if (check_data(s, found.data) || check_vocabulary(s, path, found.fingerprint)) return -1;
    if (checkpoint_load(path, s->e->params, optimizer, s->at)) return -1;
    if (s->full && shard_take(s->e->shard, s->full)) return -1;
    move_to_new_data(s, found.data);
    if (!same_metric) forget_best(s->at);
    write_data(s);
    if (s->o->reset) s->at->stale = 0;
    if (s->e->task->seek(s->e, s->at->epoch, s->at->batch)) return -1;
    return run_check_mark(s->run, s->at->mark);
}

static int go_on(resuming *s, const char *which) {
    const char *directory = run_directory(s->run);
    char path[PATH] = "";
    if (checkpoints_find(directory, &which, path, sizeof path) || load(s, path))
        return checkpoints_offer(directory, path, true);
    s->at->last_step = s->at->step; /* it becomes the last */
    s->at->replaces = 0;
    if (is_later(s, "best")) forget_best(s->at);
    if ((s->o->from || s->o->reset) && become_last(s)) return -1;
    if (describe(s, which) || run_rewind(s->run, s->at->mark)) return -1;
    return drop_later(s);
}

static void note_beginning(const resuming *s) {
    char line[PATH + 64];
    snprintf(line, sizeof line, "%s: there is no checkpoint yet: training begins anew", run_directory(s->run));
    if (s->o->note) s->o->note(line);
}

/* The run died before its first checkpoint. */
static int begin_again(resuming *s) {
    note_beginning(s);
    if (resume_init(s->e) || run_rewind(s->run, NULL)) return -1;
    return drop_later(s);
}

static int choose(resuming *s) {
    const char *directory = run_directory(s->run);
    if (checkpoint_prune(path_join(directory, "checkpoints").text, SIZE_MAX, NULL, NULL))
        return -1; /* removes temporary files */
    if (s->o->from || access(checkpoints_path(directory, "last").text, F_OK) == 0 || last_is_lost(s))
        return go_on(s, s->o->from ? s->o->from : "last");
    return begin_again(s);
}

int resume_begin(experiment *e, run *r, const resume_options *o, checkpoint_meta *at) {
    resuming s = {.e = e, .run = r, .o = o, .at = at};
    *at = (checkpoint_meta){
        .recipe = &e->recipe, .except = resume_except(o->reset), .fingerprint = e->task->fingerprint(e), .best = NAN};
    s.n_parts = e->task->data ? e->task->data(e, s.part) : 0;
    write_data(&s);
    if (o->again || run_begins_again(r)) note_beginning(&s);
    const int failed = o->resume ? choose(&s) : 0;
    adamod_free(s.full);
    if (failed) return -1;
    e->updates_before = at->step - adamod_steps(e->optimizer) - adamod_skipped(e->optimizer);
    if (run_add_data(r, e->task->count(e, SPLIT_TRAIN), e->set, s.n_parts, s.part)) return -1;
    return e->task->save(e, run_directory(r));
}

int resume_follow(experiment *e, const char *directory, const checkpoint_meta *at) {
    checkpoint_meta found = {.recipe = &e->recipe, .except = at->except, .fingerprint = at->fingerprint};
    const path_text path = checkpoints_path(directory, "last");
    if (at->step == 0) return resume_init(e);
    adamod_optimizer *full = NULL;
    if (e->shard && shard_full(e->shard, &full)) return -1;
    int failed = checkpoint_load(path.text, e->params, full ? full : e->optimizer, &found);
    if (!failed && full) failed = shard_take(e->shard, full);
    adamod_free(full);
    if (failed) return -1;
    if (found.step != at->step)
        return adamod__refuse("%s is after update %" PRId64 ", but rank 0 has read it after update %" PRId64, path.text,
                              found.step, at->step);
    e->updates_before = at->step - adamod_steps(e->optimizer) - adamod_skipped(e->optimizer);
    return e->task->seek(e, at->epoch, at->batch);
}
