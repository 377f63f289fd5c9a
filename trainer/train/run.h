/* run.h - a run directory: the interface between training and everything that looks at it.
 *
 *   recipe.yaml          the resolved recipe
 *   machine.json         processor, cores, instruction set, compiler, version, start time, and what run_describe adds:
 *                        what was really used, whatever the recipe leaves open ("backend":"cpu","device":"cpu",
 *                        "precision":"full","matrix_library":"oneDNN 2.6.3","threads":"2","ranks":"1",
 *                        "comm":"none", or what sums gradients of several ranks: "mpi", "nccl"); how many other
 *                        runs of a comparison were made at the same time, at most ("beside":"3"); a run that was resumed
 *                        has machine.2.json, machine.3.json, ... as well, which say from where it went on
 *                        ("resumed_from":"last","resumed_at":"40") and what was begun anew ("reset":"optimizer")
 *   task.json            what was trained and measured, so that nobody else need know:
 *                          {"task":"numbers","about":"German number words to English","items":"tokens",
 *                           "samples":"sentences","answers":"Translations","limit":"train.evaluate_pairs",
 *                           "subtitle":["model.kind","model.layers"],"metrics":[
 *                           {"name":"bleu","label":"BLEU","about":"BLEU","unit":"","scale":1,"decimals":2,
 *                            "better":"higher","headline":true,"signature":"nrefs:1|..."}, ...]}  (see base/metric.h)
 *   data.json            what was trained and evaluated on, with fingerprints of the content:
 *                          {"parts":[{"split":"train","key":"data.source","file":"/data/train.de",
 *                           "fingerprint":"0123456789abcdef"}, ...]}  (file "": generated; "text": of raw text, what it was)
 *   metrics.jsonl        one JSON object a line, each in one write; of training each of the first 2000 updates and then
 *                        every tenth, or as train.log_every says, but always the first and the last:
 *                          {"kind":"train","step":10,"epoch":0.005,"time":1.23,"loss":2.9,"nll":2.8,"accuracy":0.4,"lr":0.003,
 *                           "tokens":12345,"tokens_per_second":9000,"grad_norm":1.2}
 *                            (without a loss: the update was skipped, see train.nonfinite)
 *                            ("epoch": epochs done, with a fraction; "tokens": the task's items)
 *                          {"kind":"valid","step":100,"epoch":..,"time":..,"tokens":..,"loss":..,...}
 *                            (the task's metrics, those that were measured)
 *                          {"kind":"test","step":900,...}
 *                            (at the end: the whole test set, by the averaged model where there is one; with
 *                            train.patience by the best; else by the last: "model":"best","model_step":700 say which)
 *                          {"kind":"final_valid","step":900,...}
 *                            (the same of the validation set, where there is no test set; versions before 0.2 called
 *                            this "test" too)
 *   histograms.jsonl     {"step":1,"bounded":0.1,"eta_min":..,"eta_median":..,"eta_max":..,"step_min":..,
 *                         "step_median":..,"step_max":..,"nonfinite":0,"low":-12,"high":8,"bins":200,"eta_first":..,
 *                         "eta":[...],"effective_first":..,"effective":[...],"idle_eta_first":..,"idle_eta":[...],
 *                         "idle_effective_first":..,"idle_effective":[...]}  (runs of zeros at both ends left out:
 *                         "eta_first" and the like give the index of the first count; "idle": those among them that
 *                         never had a gradient)
 *   samples.jsonl        {"step":900,"source":"..","reference":"..","output":".."}  (texts by the task's names)
 *   classes.json         of a classifier, written at the end: how it did, class by class (docs/training.md says more):
 *                          {"step":900,"split":"test","classes":["coat","boot"],"confusion":[[90,10],[4,96]],
 *                           "picture":{"height":28,"width":28,"channels":1},
 *                           "mistakes":[{"label":0,"prediction":1,"probability":0.998,"pixels":"base64"}, ...]}
 *   events.out.tfevents.*  the same scalars ("train/loss") and histograms of log10 ("learning_rate/before_bound" and
 *                        "after_bound") for TensorBoard
 *   checkpoints/last.safetensors, best.safetensors, averaged.safetensors, step-N.safetensors
 *                        see checkpoint.h
 *   result.json          written at the end: status ("finished", "diverged", "interrupted"), step, seconds,
 *                        "training_loss" (see mean_loss.h), and of a run that finished "valid", the last evaluation,
 *                        and "test" or "final_valid", as in metrics.jsonl; "early":true where train.patience ended it
 *
 * time is seconds of training, not counting interruptions. After a crash the files may be ahead of the last checkpoint:
 * resuming cuts them back to the sizes it recorded. A number that is not finite is null in JSON.
 *
 * A line or record that could not be written in full is not there. */
#ifndef ADAMOD_RUN_H
#define ADAMOD_RUN_H

#include "adamod.h"
#include "train/task.h"

typedef struct run run;

/* Makes the directory with those above it, and writes recipe and machine. It must not exist, or be empty, or hold a run
 * without a checkpoint, which this one replaces. Or, with resume, opens it: the recipe must be one that can continue it
 * (recipe_compare, except as there); a torn last line is cut off. run_rewind must follow then. In both cases no other process
 * may have it open: of several that come at once, one gets it. */
int run_open(run **out, const char *directory, const recipe *r, bool resume, int except);
void run_close(run *r); /* NULL is fine */
/* Closes one in which nothing was done yet; what run_open has made does not stay. NULL is fine. */
void run_discard(run *r);
/* Whether a new run replaces one without a checkpoint. */
bool run_begins_again(const run *r);
const char *run_directory(const run *r);

/* More fields of machine.json: keys and values. */
int run_describe(run *r, int n, const char *const (*pairs)[2]);

/* data.json. */
int run_add_data(run *r, int n, const task_part *parts);

/* Numbers by name. What is NAN is left out. */
enum { RUN_VALUES = 24 };
typedef struct run_metrics {
    const char *kind; /* train, valid, test, final_valid */
    int64_t step;
    const char *model; /* which checkpoint's was measured, and after which update; NULL: the one in training */
    int64_t model_step;
    struct {
        char name[40];
        double value;
        bool scalar; /* for TensorBoard too */
    } at[RUN_VALUES];
    int n;
} run_metrics;

/* A measured number; and one that only places it (time, how many tokens), which TensorBoard does not show. */
void run_measured(run_metrics *m, const char *name, double value);
void run_counted(run_metrics *m, const char *name, double value);

int run_add_metrics(run *r, const run_metrics *m);
int run_add_histogram(run *r, int64_t step, const adamod_statistics *s);
int run_add_sample(run *r, int64_t step, int n, const task_text *texts);

/* Pushes everything to disk and tells how long each file is, as text for a checkpoint's metadata. RUN_MARK bytes are
 * always enough for it. */
#define RUN_MARK 512
int run_mark(run *r, char *mark, size_t mark_size);
/* The way back: cuts the files to a mark, or with NULL to their beginnings (a run that died before its first
 * checkpoint); writes the recipe of now, and removes result.json. Checks all files before it cuts one: run_check_mark
 * does that alone. */
int run_rewind(run *r, const char *mark);
int run_check_mark(const run *r, const char *mark);

/* valid and final, of the test or else the validation set, may be NULL. */
typedef struct run_result {
    const char *status;
    int64_t step;
    double seconds;
    const run_metrics *valid, *final;
    bool early; /* finished because train.patience was at its end */
} run_result;
/* *training_loss: as it was written; NAN: there is none. */
int run_finish(run *r, const run_result *result, double *training_loss);

/* Whether there is nothing in a directory but what a run has before its first checkpoint, of a task of the recipe's: it can be
 * begun again. False also where there is no directory. */
bool run_is_unbegun(const char *directory, const recipe *r);
/* Whether the run in a directory has ever been saved as a whole: it finished, or was interrupted and says so. */
bool run_was_saved(const char *directory);
/* Whether the run in a directory came to its end, by finishing or diverging: it need not be continued. */
bool run_is_over(const char *directory);

#endif
