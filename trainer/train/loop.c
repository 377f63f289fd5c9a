#include "train/loop.h"

#include "support/clock.h"
#include "core/pool.h"
#include "core/error.h"
#include "nn/profile.h"
#include "train/checkpoint.h"
#include "train/checkpoints.h"
#include "train/progress.h"
#include "train/resume.h"
#include "train/run.h"
#include "train/shard.h"
#include "train/rank_setup.h"
#include "train/one_update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A loop under way. */
typedef struct trainer {
    const train_options *o;
    experiment s;
    run *run;                  /* NULL: another rank writes it */
    bool again;                /* a run without a checkpoint is to be resumed: it starts over */
    bool stop, save;           /* requests of the user, equal on all ranks */
    checkpoint_writer *writer; /* NULL: no checkpoint is being written by this rank */
    bool unsaved;              /* a checkpoint could not be written, on any rank */
    bool prune;                /* delete old checkpoints after writing */
    checkpoint_meta at;        /* the position of the run */
    double last_loss;          /* per target, of the last update */
    double started;            /* clock at the start of training, less the seconds of earlier processes */
    progress progress;
    task_result valid;  /* of the last evaluation */
    char diverged[200]; /* why training cannot continue; "": it can */
    bool pending;       /* under_way is not concluded */
    update under_way;
    double last_end; /* of the update concluded last, in seconds of training */
} trainer;

static double seconds(const trainer *t) { return clock_seconds() - t->started; }

/* Fails on all ranks if it failed on any. */
static int agree(const trainer *t, int failed) { return comm_agree(t->o->comm, failed) ? -1 : 0; }

/* Shares requests of the user and failures of writers with all ranks. */
static void ask_user(trainer *t) {
    int told[] = {t->o->stop && *t->o->stop, t->o->save && *t->o->save, checkpoint_has_failed(t->writer)};
    comm_most(t->o->comm, told, 3);
    t->stop = told[0];
    t->save = told[1];
    t->unsaved = told[2];
}

/* ---- one update ---- */

static bool wants_histogram(const recipe *r, int64_t step) {
    return step <= r->train.histogram_dense || (r->train.histogram_every > 0 && step % r->train.histogram_every == 0);
}

/* By default every update at first, then every tenth, to keep files small. Reports need the first and the last update;
 * with patience any evaluation may be the last. */
static bool wants_metrics(const experiment *e, int64_t step) {
    const recipe *r = &e->recipe;
    if (r->train.patience > 0 && epochs_due(e->epoch, r->train.evaluate_every, step)) return true;
    const int64_t every = r->train.log_every > 0 ? r->train.log_every : step <= 2000 ? 1 : 10;
    return step == 1 || step % every == 0 || step == e->steps;
}

/* Whether this update must be done before anything else begins. */
static bool pauses(const trainer *t, int64_t step) {
    const recipe *r = &t->s.recipe;
    return wants_histogram(r, step) || epochs_due(t->s.epoch, r->train.evaluate_every, step) ||
           epochs_due(t->s.epoch, r->train.checkpoint_every, step) ||
           epochs_due(t->s.epoch, r->train.keep_every, step) || t->save || step == t->s.steps || t->stop;
}

static int record(trainer *t, const update *u) {
    const recipe *r = &t->s.recipe;
    if (!t->run) return 0;
    if (wants_metrics(&t->s, u->step)) {
        char rate[64];
        run_metrics m = {.kind = "train", .step = u->step};
        snprintf(rate, sizeof rate, "%s_per_second", t->s.task->items);
        run_counted(&m, "epoch", u->epoch);
        run_counted(&m, "time", u->end);
        run_measured(&m, "loss", u->sums[0] / u->sums[3]);
        run_measured(&m, "nll", u->sums[1] / u->sums[3]);
        if (task_metric(t->s.task, "accuracy") >= 0) run_measured(&m, "accuracy", u->sums[2] / u->sums[3]);
        run_measured(&m, "lr", u->lr);
        run_counted(&m, t->s.task->items, (double)u->items);
        run_measured(&m, rate, (double)u->own_items / (u->end - u->begin));
        if (t->progress.most_items > 0)
            run_measured(&m, "mfu", (double)u->own_items / (u->end - u->begin) / t->progress.most_items);
        run_measured(&m, "grad_norm", u->norm < 0 ? NAN : u->norm);
        if (run_add_metrics(t->run, &m)) return -1;
    }
    if (wants_histogram(r, u->step) && !t->s.shard) {
        adamod_statistics *s = malloc(sizeof *s);
        const bool have = s && adamod_get_statistics(t->s.optimizer, -1, s) == ADAMOD_OK;
        const int failed = have ? run_add_histogram(t->run, u->step, s) : 0;
        free(s);
        return failed;
    }
    return 0;
}

/* A skipped update has a line without a loss. */
static int record_skipped(trainer *t, const update *u) {
    run_metrics m = {.kind = "train", .step = u->step};
    run_counted(&m, "epoch", u->epoch);
    run_counted(&m, "time", u->end);
    run_counted(&m, t->s.task->items, (double)u->items);
    return t->run ? run_add_metrics(t->run, &m) : 0;
}

/* Records a finished update. Sets t->diverged if training must stop. */
static int conclude(trainer *t, update *u) {
    u->end = seconds(t);
    if (u->begin < t->last_end) u->begin = t->last_end; /* it began before the previous one ended */
    t->last_end = u->end;
    if (*u->diverged) {
        snprintf(t->diverged, sizeof t->diverged, "%s", u->diverged);
        return 0;
    }
    if (!u->taken) return record_skipped(t, u);
    t->last_loss = u->sums[0] / u->sums[3];
    return record(t, u);
}

static int end_and_conclude(trainer *t, update *u) { return agree(t, update_end(&t->s, u) || conclude(t, u)); }

/* The next update. On a device it is concluded after the following one has begun, so the device never waits for the host,
 * unless it must be done first. */
static int update_once(trainer *t) {
    const double begin = seconds(t);
    update u;
    const bool collect = wants_histogram(&t->s.recipe, t->at.step + 1);
    if (agree(t, update_begin(&t->s, &t->at, collect, &u))) return -1;
    u.begin = begin;
    ask_user(t);
    if (t->pending) {
        t->pending = false;
        if (end_and_conclude(t, &t->under_way)) return -1;
        if (*t->diverged) return 0;
    }
    if (!update_is_pending(&t->s) || *u.diverged || pauses(t, u.step)) return end_and_conclude(t, &u);
    t->under_way = u;
    t->pending = true;
    return 0;
}

/* ---- evaluation and checkpoints ---- */

static bool is_kept(const void *trainer_, int64_t step) {
    const trainer *t = trainer_;
    return epochs_due(t->s.epoch, t->s.recipe.train.keep_every, step);
}

/* Waits for the writer. */
static int end_saving(trainer *t) {
    char directory[1200];
    int failed = checkpoint_end(t->writer);
    snprintf(directory, sizeof directory, "%s/checkpoints", t->o->directory);
    if (!failed && t->prune && t->run) {
        const size_t n = (size_t)t->s.recipe.train.average;
        failed = checkpoint_prune(directory, n, is_kept, t);
    }
    t->writer = NULL;
    t->prune = false;
    return agree(t, failed);
}

enum { NAMES = 3 }; /* most names of a checkpoint */

/* Whether a checkpoint has the optimizer's states. */
static bool wants_states(const trainer *t, const char *name) {
    if (t->s.recipe.train.keep_states || strcmp(name, "last") == 0) return true;
    return strcmp(name, "best") != 0 && is_kept(t, t->at.step);
}

static int begin_writing(trainer *t, const char *const *names, int n, const adamod_optimizer *full) {
    path_text path[NAMES];
    checkpoint_target targets[NAMES];
    if (!t->run) return 0;
    if (run_mark(t->run, t->at.mark, sizeof t->at.mark)) return -1;
    for (int i = 0; i < n; i++) {
        path[i] = checkpoints_path(t->o->directory, names[i]);
        targets[i] = (checkpoint_target){path[i].text, wants_states(t, names[i])};
    }
    t->writer = checkpoint_begin(targets, n, t->s.params, full ? full : t->s.optimizer, &t->at);
    return t->writer ? 0 : -1;
}

/* Saves a checkpoint under these names while training goes on. "last" must be the last name. */
static int save(trainer *t, const char *const *names, int n) {
    adamod_optimizer *full = NULL;
    if (end_saving(t)) return -1;
    t->at.seconds = seconds(t);
    if (t->s.shard && shard_gather(t->s.shard, &full)) return -1;
    const int failed = begin_writing(t, names, n, full);
    adamod_free(full);
    if (agree(t, failed)) return -1;
    for (int i = 0; i < n; i++) t->prune |= strncmp(names[i], "step-", 5) == 0;
    if (strcmp(names[n - 1], "last") == 0) t->at.last_step = t->at.step;
    return 0;
}

/* Saves "last" and waits until it is written. */
static int save_last(trainer *t) {
    static const char *const name = "last";
    return save(t, &name, 1) ? -1 : end_saving(t);
}

static int swap_weights(trainer *t, bool to_evaluate) {
    if (t->s.shard) return shard_evaluation(t->s.shard, to_evaluate);
    return adamod_evaluation(t->s.optimizer, to_evaluate);
}

/* Evaluates with the rule's weights for evaluation, which may differ from those it trains. */
static int measure_with(trainer *t, task_split split, task_depth depth, task_sample sample, task_result *out) {
    adamod__failure failure;
    if (swap_weights(t, true)) return -1;
    const int failed = agree(t, t->s.task->evaluate(&t->s, split, depth, sample, t, out));
    if (failed) {
        adamod__save_failure(&failure);
        (void)swap_weights(t, false);
        return adamod__fail_again(&failure);
    }
    comm_broadcast(t->o->comm, out, sizeof *out, 0); /* another processor may differ in the last bit */
    return swap_weights(t, false);
}

static int measure(trainer *t, task_split split, task_depth depth, task_result *out) {
    return measure_with(t, split, depth, NULL, out);
}

static run_metrics measured(const char *kind, const trainer *t, const task_result *result) {
    run_metrics m = {.kind = kind, .step = t->at.step};
    run_counted(&m, "epoch", epochs_done(t->s.epoch, t->at.epoch, t->at.batch));
    run_counted(&m, "time", seconds(t));
    run_counted(&m, t->s.task->items, result->items);
    for (int i = 0; i < t->s.task->n_metrics; i++) run_measured(&m, t->s.task->metrics[i].name, result->value[i]);
    return m;
}

/* Whether the last evaluation is the best so far by train.best. */
static bool is_best(const trainer *t, double *value) {
    const int i = task_metric(t->s.task, t->s.recipe.train.best);
    const bool higher = t->s.task->metrics[i].better == METRIC_HIGHER;
    *value = t->valid.value[i];
    if (!isfinite(t->valid.value[0]) || !isfinite(*value)) return false;
    return t->at.best_step == 0 || (higher ? *value > t->at.best : *value < t->at.best);
}

static int evaluate(trainer *t, bool *best) {
    const double clock = clock_seconds();
    double value;
    progress_split(&t->progress, "validation");
    if (measure(t, SPLIT_VALID, TASK_PERIODIC, &t->valid)) return -1;
    progress_split(&t->progress, NULL);
    t->started += clock_seconds() - clock; /* not counted as training */
    const run_metrics m = measured("valid", t, &t->valid);
    if (agree(t, t->run ? run_add_metrics(t->run, &m) : 0)) return -1;
    if (t->valid.items > 0) t->at.stale++;
    *best = is_best(t, &value);
    if (!*best) return 0;
    t->at.best = value;
    t->at.best_step = t->at.step;
    t->at.stale = 0;
    return 0;
}

static void show_evaluation(trainer *t) {
    t->progress.best = t->at.best;
    t->progress.best_step = t->at.best_step;
    progress_evaluated(&t->progress, &t->valid);
}

/* Whether all numbers are finite, by their bits, at the speed of memory. */
static bool is_finite(const float *x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= UINT32_C(0x7f800000);
        if (bits > most) most = bits;
    }
    return most < UINT32_C(0x7f800000);
}

/* An update that ruins the model shows in the loss of the next one, after a checkpoint may have replaced a good one. So
 * before saving, the parameters and the loss of some validation data must be finite. */
static int check_model(trainer *t) {
    const nn_params *p = t->s.params;
    const double clock = clock_seconds();
    task_result glance;
    bool finite = true;
    if (agree(t, nn_params_fetch(p))) return -1;
    for (int i = 0; finite && i < p->n; i++) finite = is_finite(p->data + p->list[i].offset, p->list[i].count);
    if (finite && measure(t, SPLIT_VALID, TASK_GLANCE, &glance)) return -1;
    if (!finite || !isfinite(glance.value[0])) {
        snprintf(t->diverged, sizeof t->diverged, "the %s not finite any more after update %lld",
                 finite ? "validation loss is" : "parameters are", (long long)t->at.step);
    }
    t->started += clock_seconds() - clock;
    return 0;
}

/* Whether train.patience is exhausted. */
static bool is_stale(const trainer *t) {
    return t->s.recipe.train.patience > 0 && t->at.stale >= t->s.recipe.train.patience;
}

static int save_on_demand(trainer *t) {
    if (t->o->save) *t->o->save = 0;
    t->save = false;
    if (check_model(t) || *t->diverged) return *t->diverged ? 0 : -1;
    if (save_last(t)) return -1;
    progress_say(&t->progress, "saved a checkpoint");
    return 0;
}

/* Whether to save step-N: to average at the end, or to keep. */
static bool wants_step(const trainer *t) { return t->s.recipe.train.average > 0 || is_kept(t, t->at.step); }

static int after_update(trainer *t) {
    const recipe *r = &t->s.recipe;
    const bool last = t->at.step == t->s.steps;
    const bool evaluates = last || epochs_due(t->s.epoch, r->train.evaluate_every, t->at.step);
    const bool saves = last || epochs_due(t->s.epoch, r->train.checkpoint_every, t->at.step) || is_kept(t, t->at.step);
    const char *names[NAMES];
    char step[32];
    int n = 0;
    double clock = clock_seconds();
    if ((evaluates || saves) && (check_model(t) || *t->diverged)) return *t->diverged ? 0 : -1;
    if (evaluates) {
        bool best;
        if (evaluate(t, &best)) return -1;
        if (best) names[n++] = "best";
        progress_spent(&t->progress, PROGRESS_EVALUATING, clock_seconds() - clock);
        show_evaluation(t);
        clock = clock_seconds();
    }
    if (saves || is_stale(t)) {
        snprintf(step, sizeof step, "step-%lld", (long long)t->at.step);
        if (wants_step(t)) names[n++] = step;
        names[n++] = "last";
    }
    if (n > 0 && save(t, names, n)) return -1;
    if (n > 0) progress_spent(&t->progress, PROGRESS_SAVING, clock_seconds() - clock);
    return t->save ? save_on_demand(t) : 0;
}

/* ---- the end ---- */

static int keep_sample(void *context, int n, const task_text *texts) {
    trainer *t = context;
    return run_add_sample(t->run, t->at.step, n, texts);
}

static int write_average(const trainer *t, const char *out) {
    enum { MOST = 100 };
    char directory[1200], paths[MOST][1300];
    const char *list[MOST];
    int64_t *steps = NULL;
    size_t n = 0;
    snprintf(directory, sizeof directory, "%s/checkpoints", t->o->directory);
    if (checkpoint_list(directory, &steps, &n)) return -1;
    if (n > (size_t)t->s.recipe.train.average) n = (size_t)t->s.recipe.train.average;
    if (n > MOST) n = MOST;
    for (size_t i = 0; i < n; i++) {
        checkpoint_path(directory, steps[i], paths[n - 1 - i], sizeof paths[i]);
        list[n - 1 - i] = paths[n - 1 - i];
    }
    free(steps);
    return n == 0 ? 0 : checkpoint_average(list, n, out);
}

/* The model for the evaluation at the end. */
typedef struct tested {
    const char *name; /* of its checkpoint */
    int64_t step;     /* updates made when it was saved */
    bool loaded;      /* from its checkpoint, with weights for evaluation */
} tested;

static int load_tested(trainer *t, tested *out, const char *name, int64_t step) {
    *out = (tested){name, step, true};
    return agree(t, checkpoint_load(checkpoints_path(t->o->directory, name).text, t->s.params, NULL, NULL));
}

static int average(trainer *t) {
    return agree(t, t->run ? write_average(t, checkpoints_path(t->o->directory, "averaged").text) : 0);
}

/* Without checkpoints to average, the last is tested. */
static int take_averaged(trainer *t, tested *out) {
    int there = t->run && access(checkpoints_path(t->o->directory, "averaged").text, F_OK) == 0;
    comm_most(t->o->comm, &there, 1);
    return there ? load_tested(t, out, "averaged", t->at.step) : 0;
}

/* If its checkpoint was removed, the last is tested. */
static int take_best(trainer *t, tested *out) {
    checkpoint_meta meta = {0};
    const path_text path = checkpoints_path(t->o->directory, "best");
    int there = t->run && checkpoint_info(path.text, &meta, NULL) == 0 && meta.step == t->at.best_step;
    comm_most(t->o->comm, &there, 1);
    if (!there) return 0;
    if (t->at.best_step < t->at.step) return load_tested(t, out, "best", t->at.best_step);
    out->name = "best";
    return 0;
}

static recipe_tested tested_by(const recipe *r) {
    if (r->train.test != TEST_AUTO) return r->train.test;
    if (r->train.average > 0) return TEST_AVERAGED;
    return r->train.patience > 0 ? TEST_BEST : TEST_LAST;
}

static int choose_tested(trainer *t, tested *out) {
    *out = (tested){"last", t->at.step, false};
    if (t->s.recipe.train.average > 0 && average(t)) return -1;
    const recipe_tested which = tested_by(&t->s.recipe);
    if (which == TEST_AVERAGED) return take_averaged(t, out);
    return which == TEST_BEST ? take_best(t, out) : 0;
}

/* Writes the result of the evaluation at the end to the run's files. */
static int write_final(trainer *t, const task_result *final, train_result *out) {
    const task_split split = out->final_split;
    run_metrics valid = measured("valid", t, &t->valid),
                last = measured(split == SPLIT_TEST ? "test" : "final_valid", t, final);
    const run_result result = {"finished", out->step, out->seconds, &valid, &last, out->early};
    if (!t->run) return 0;
    last.model = out->tested;
    last.model_step = out->tested_step;
    if (t->s.task->write_details && t->s.task->write_details(&t->s, split, t->at.step, run_directory(t->run)))
        return -1;
    if (run_add_metrics(t->run, &last)) return -1;
    return run_finish(t->run, &result, &out->train_loss);
}

static int finish(trainer *t, train_result *out) {
    const task_split split = t->s.task->count(&t->s, SPLIT_TEST) > 0 ? SPLIT_TEST : SPLIT_VALID;
    task_result final;
    tested model;
    const double clock = clock_seconds();
    if (end_saving(t) || choose_tested(t, &model)) return -1;
    progress_split(&t->progress, split == SPLIT_TEST ? "test" : "validation");
    const task_sample sample = t->run ? keep_sample : NULL;
    const int failed = model.loaded ? t->s.task->evaluate(&t->s, split, TASK_WHOLE, sample, t, &final)
                                    : measure_with(t, split, TASK_WHOLE, sample, &final);
    if (agree(t, failed)) return -1;
    t->started += clock_seconds() - clock;
    *out = (train_result){.status = TRAIN_FINISHED,
                          .step = t->at.step,
                          .early = t->at.step < t->s.steps,
                          .seconds = seconds(t),
                          .valid = t->valid,
                          .final = final,
                          .final_split = split,
                          .tested = model.name,
                          .tested_step = model.step};
    return agree(t, write_final(t, &final, out));
}

/* Ends an interrupted or diverged run. A diverged model is not saved. */
static int stop_early(trainer *t, train_result *out) {
    if (end_saving(t)) return -1;
    if (!*t->diverged && check_model(t)) return -1;
    const bool diverged = *t->diverged != '\0';
    if (!diverged && save_last(t)) return -1;
    *out = (train_result){
        .status = diverged ? TRAIN_DIVERGED : TRAIN_INTERRUPTED, .step = t->at.step, .seconds = seconds(t)};
    memcpy(out->reason, t->diverged, sizeof out->reason);
    const run_result result = {diverged ? "diverged" : "interrupted", out->step, out->seconds, NULL, NULL, false};
    const int failed = t->run ? run_finish(t->run, &result, &out->train_loss) : 0;
    return agree(t, failed);
}

/* ---- the whole ---- */

static int start(trainer *t) {
    const resume_options o = {t->o->resume, t->again, t->o->resume_from, t->o->reset, t->o->note};
    const int failed = t->run ? resume_begin(&t->s, t->run, &o, &t->at) : 0;
    if (agree(t, failed)) return -1;
    comm_broadcast(t->o->comm, &t->at, sizeof t->at, 0);
    t->at.recipe = &t->s.recipe;
    const bool follows = !t->run && o.resume;
    if (agree(t, follows ? resume_follow(&t->s, t->o->directory, &t->at) : 0)) return -1;
    t->started = clock_seconds() - t->at.seconds;
    progress_begin(&t->progress, t->o, &t->s, t->at.step, t->at.tokens);
    t->progress.best = t->at.best;
    t->progress.best_step = t->at.best_step;
    t->s.progress = (task_progress){progress_within, &t->progress};
    return 0;
}

/* Notes the hardware and libraries in use in machine.json. */
static int describe(trainer *t) {
    const bool device = t->s.params->on_device, plain = recipe_backend_of(&t->s.recipe, NULL) == BACKEND_REF;
    char threads[16], ranks[16], beside[16], name[192], library[96];
    const char *bf16 = experiment_bf16(&t->s);
    snprintf(library, sizeof library, "%s%s%s", nn_profile_library(), bf16 ? ", " : "", bf16 ? bf16 : "");
    snprintf(ranks, sizeof ranks, "%d", comm_size(t->o->comm));
    snprintf(threads, sizeof threads, "%d", adamod_pool_threads(t->s.pool));
    snprintf(beside, sizeof beside, "%d", t->o->at_once - 1);
    const char *const pairs[][2] = {{"backend", device  ? "cuda"
                                                : plain ? "ref"
                                                        : "cpu"},
                                    {"device", device ? nn_profile_device_name(t->s.plan, name, sizeof name) : "cpu"},
                                    {"precision", experiment_precision(&t->s)},
                                    {"matrix_library", plain    ? "reference kernels"
                                                       : device ? "cuBLASLt"
                                                                : library},
                                    {"threads", threads},
                                    {"ranks", ranks},
                                    {"comm", device && exchange_is_on_device(t->s.exchange) ? "nccl"
                                             : t->o->comm                                   ? "mpi"
                                                                                            : "none"},
                                    {"beside", beside}};
    const int n = sizeof pairs / sizeof *pairs;
    if (!t->run) return 0;
    return run_describe(t->run, t->o->at_once > 0 ? n : n - 1, pairs);
}

void train_note(const experiment *e, const recipe *r, const train_options *o) {
    const int ranks = comm_size(e->comm);
    char line[RECIPE_PATH + 1024];
    if (o->note && ranks > 1 && !o->resume && r->train.accumulate < ranks) {
        snprintf(line, sizeof line, "%d ranks: an update takes %d batches, one for each rank; the recipe has %d", ranks,
                 ranks, r->train.accumulate);
        o->note(line);
    }
    for (int split = 0; o->note && split < SPLITS; split++) {
        if (e->task->note(e, (task_split)split, line, sizeof line)) o->note(line);
    }
}

/* "updates 41 to 80, 0.5 epochs" */
static void tell_updates(const trainer *t, double updates_in_epoch, char *out, size_t size) {
    const int64_t done = t->at.step, all = t->s.steps;
    const double epochs = (double)all / updates_in_epoch;
    if (done < all) {
        snprintf(out, size, "updates %lld to %lld, %.4g epoch%s", (long long)(done + 1), (long long)all, epochs,
                 epochs == 1 ? "" : "s");
    } else {
        snprintf(out, size, "no updates left of %lld, %lld are done", (long long)all, (long long)done);
    }
}

/* Writes how many samples there are, and how many an update takes. */
static void tell_data(const trainer *t, double updates_in_epoch, char *out, size_t size) {
    const experiment *e = &t->s;
    const int64_t n = e->task->count(e, SPLIT_TRAIN), batch = e->task->batch ? e->task->batch(e) : 0;
    const double mean = fmin((double)n / updates_in_epoch, (double)n);
    snprintf(out, size, "%lld %s to train with, %s%.0f in an update", (long long)n, e->task->samples,
             batch ? "" : "about ", batch ? (double)(batch * e->epoch.accumulate) : mean);
}

/* Prints one line about the run. */
static void introduce(trainer *t) {
    const experiment *e = &t->s;
    const int ranks = comm_size(t->o->comm);
    const double updates = (double)e->epoch.batches / e->epoch.accumulate; /* in an epoch */
    char device[192] = "cpu", data[128] = "", among[32] = "", ahead[128], line[RECIPE_PATH + 1024];
    if (e->params->on_device) nn_profile_device_name(e->plan, device, sizeof device);
    if (experiment_bf16(e)) snprintf(device, sizeof device, "cpu in mixed precision (%s)", experiment_bf16(e));
    tell_data(t, updates, data, sizeof data);
    if (ranks > 1) snprintf(among, sizeof among, ", %d ranks", ranks);
    tell_updates(t, updates, ahead, sizeof ahead);
    snprintf(line, sizeof line, "%s of %lld parameters, rule %s, on %s, %d thread%s%s; %s; %s; in %s",
             e->recipe.model.kind, (long long)nn_params_total(e->params), e->recipe.optimizer.rule, device,
             adamod_pool_threads(e->pool), adamod_pool_threads(e->pool) > 1 ? "s" : "", among, data, ahead,
             t->o->directory);
    progress_introduce(&t->progress, line);
}

/* Tells the user about avoidable slowness. */
static void note_plan(const trainer *t) {
    char line[256];
    if (t->o->note && *t->s.slow) t->o->note(t->s.slow);
    if (t->o->note && experiment_bf16(&t->s) && !nn_profile_narrow())
        t->o->note("train.precision is mixed, but this processor has no instructions for bf16, or the matrix library "
                   "none: full is as fast, and more exact");
    if (t->o->note && nn_plan_remark(t->s.plan, line, sizeof line)) t->o->note(line);
}

static int loop(trainer *t, train_result *out) {
    while (t->at.step < t->s.steps && !is_stale(t)) {
        ask_user(t);
        if (t->unsaved) return end_saving(t);
        if (t->stop && !t->pending) return stop_early(t, out);
        const double clock = clock_seconds();
        if (update_once(t)) return -1;
        progress_spent(&t->progress, PROGRESS_TRAINING, clock_seconds() - clock);
        progress_update(&t->progress, t->at.step, t->at.tokens, epochs_done(t->s.epoch, t->at.epoch, t->at.batch),
                        t->last_loss);
        if (!*t->diverged && !t->pending && after_update(t)) return -1;
        if (*t->diverged) return stop_early(t, out);
    }
    if (t->valid.items == 0 && measure(t, SPLIT_VALID, TASK_PERIODIC, &t->valid))
        return -1; /* resumed after the last evaluation */
    return finish(t, out);
}

/* A new run has at least one batch per rank in an update; a resumed run keeps its number. */
static int set_accumulate(recipe *r, const train_options *o) {
    const int ranks = comm_size(o->comm);
    if (ranks > 1 && o->resume) {
        recipe was;
        if (recipe_defaults(&was, r->tasks)) return -1;
        const int failed = checkpoints_recipe(o->directory, &was);
        if (!failed) r->train.accumulate = was.train.accumulate;
        recipe_free(&was);
        return failed;
    }
    if (r->train.accumulate < ranks) r->train.accumulate = ranks;
    return 0;
}

static int check_samples(const experiment *e, const comm *c) {
    const int64_t n = c ? e->task->count(e, SPLIT_TRAIN) : INT64_MAX;
    if (n >= comm_size(c)) return 0;
    return adamod__refuse("%d ranks, but only %lld %s to train with: start at most as many ranks", comm_size(c),
                          (long long)n, e->task->samples);
}

int train_open(experiment *e, const recipe *r, const train_options *o) {
    recipe shared = *r; /* its lists are still those of r */
    progress before;
    progress_reading reading;
    const int cores = adamod__cores(), n = o->at_once;
    if (r->train.threads == 0 && n > 1) shared.train.threads = cores > n ? cores / n : 1;
    int failed = comm_agree(o->comm, set_accumulate(&shared, o));
    if (!failed) failed = rank_setup_devices(&shared, o->comm);
    if (!failed) {
        progress_outside(&before, o->show, o->label, r->train.progress_every);
        before.board = o->board;
        before.place = o->place;
        progress_reading_begin(&reading, &before);
        failed = experiment_open_telling(e, &shared, NULL, TASK_TRAIN | TASK_SCORE | TASK_APPLY,
                                         (task_progress){progress_within, &before});
        progress_reading_end(&reading);
        progress_end(&before);
        failed = comm_agree(o->comm, failed);
    }
    if (!failed) failed = check_samples(e, o->comm);
    if (!failed && o->comm) failed = experiment_join(e, o->comm);
    if (!failed) e->recipe.train.threads = r->train.threads;
    if (!failed) memcpy(e->recipe.train.backend, r->train.backend, sizeof r->train.backend);
    return failed ? -1 : 0;
}

/* Everything before the first update. */
static int begin(trainer *t, const recipe *r) {
    const train_options *o = t->o;
    if (train_open(&t->s, r, o)) return -1;
    if (o->reading) *o->reading = 0;
    if (agree(t, o->resume ? 0 : resume_init(&t->s))) return -1;
    if (rank_setup_compare(&t->s)) return -1;
    int failed = 0;
    if (comm_rank(o->comm) == 0)
        failed = run_open(&t->run, o->directory, &t->s.recipe, o->resume, resume_except(o->reset));
    if (agree(t, failed)) return -1;
    if (rank_setup_see(o->comm, o->directory)) {
        run_discard(t->run);
        t->run = NULL;
        return -1;
    }
    if (agree(t, describe(t)) || start(t)) return -1;
    train_note(&t->s, r, o); /* after all checks, so that a refusal is the only line */
    note_plan(t);
    introduce(t);
    return 0;
}

/* Whether to start over although the user asks to resume: nothing was saved. */
static bool begins_again(const train_options *o, const recipe *r) {
    int again = comm_rank(o->comm) == 0 && o->resume && !o->resume_from && run_is_unbegun(o->directory, r);
    comm_broadcast(o->comm, &again, sizeof again, 0);
    return again;
}

int train_run(const recipe *r, const train_options *o, train_result *out) {
    trainer *t = calloc(1, sizeof *t);
    if (!t) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the trainer");
    train_options how = *o;
    t->o = &how;
    t->again = begins_again(o, r);
    if (t->again) how.resume = false;
    t->last_loss = NAN;
    adamod__failure failure;
    const int failed = begin(t, r) || loop(t, out);
    if (failed) adamod__save_failure(&failure);
    (void)checkpoint_end(t->writer); /* only a failed run still has one */
    progress_end(&t->progress);
    if (t->run) run_close(t->run);
    experiment_close(&t->s);
    free(t);
    return failed ? adamod__fail_again(&failure) : 0;
}
