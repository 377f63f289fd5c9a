/* run.h - a run directory: the interface between training and its readers.
 *
 *   recipe.yaml          the resolved recipe
 *   machine.json         processor, cores, instruction set, compiler, version, the commit that was built (if known), start
 *                        time, and from run_describe what was used ("backend":"cpu","device":"cpu","precision":"full",
 *                        "matrix_library":"oneDNN 2.6.3" or, in mixed precision, "oneDNN 2.6.3, AVX512_BF16",
 *                        "threads":"2","ranks":"1","comm":"none", "mpi" or "nccl") and how many other runs of a
 *                        comparison ran at the same time, at most ("beside":"3"). A resumed run also has machine.2.json,
 *                        machine.3.json, ..., with the checkpoint ("resumed_from":"last", "resumed_at":"40") and what was reset ("reset":"optimizer")
 *   task.json            what was trained and measured, so that readers need not know the task:
 *                          {"format":1,"task":"numbers","about":"German number words to English","items":"tokens",
 *                           "samples":"sentences","answers":"Translations","limit":"train.evaluate_pairs",
 *                           "subtitle":["model.kind","model.layers"],"metrics":[
 *                           {"name":"bleu","label":"BLEU","about":"BLEU","unit":"","scale":1,"decimals":2,
 *                            "better":"higher","headline":true,"signature":"nrefs:1|..."}, ...]}
 *                          (see support/metric.h; "format" is of the whole directory: support/run_format.h)
 *   data.json            what was trained and evaluated on, with fingerprints of the content:
 *                          {"train_samples":500,"parts":[{"split":"train","key":"data.source","file":"/data/train.de",
 *                           "fingerprint":"0123456789abcdef"}, ...]}  (file "": generated; "text": of the raw text)
 *                        Of data in the cache of data sets also which, and whether they are as published; if not, why:
 *                          "set":"cifar100","published":false,"why":"no record of how it was prepared"
 *   note.txt             a line about the run's data or circumstances, which tables and figures show; written by people, or
 *                        by adamod report --record DIR --note TEXT
 *   metrics.jsonl        one JSON object per line, each in one write. Training has a line for the first and the last update
 *                        and every train.log_every; by default for the first 2000 and then every tenth:
 *                          {"kind":"train","step":10,"epoch":0.005,"time":1.23,"loss":2.9,"nll":2.8,"accuracy":0.4,"lr":0.003,
 *                           "tokens":12345,"tokens_per_second":9000,"grad_norm":1.2}
 *                            (without a loss: the update was skipped, see train.nonfinite)
 *                            ("epoch": epochs done, with a fraction; "tokens": the task's items)
 *                          {"kind":"valid","step":100,"epoch":..,"time":..,"tokens":..,"loss":..,...}
 *                            (the task's metrics that were measured)
 *                          {"kind":"test","step":900,...}
 *                            (at the end, the whole test set, by the model that train.test chooses:
 *                            "model":"best","model_step":700)
 *                          {"kind":"final_valid","step":900,...}
 *                            (the validation set, if there is no test set; versions before 0.2 called this "test")
 *   histograms.jsonl     {"step":1,"bounded":0.1,"eta_min":..,"eta_median":..,"eta_max":..,"step_min":..,
 *                         "step_median":..,"step_max":..,"nonfinite":0,"low":-12,"high":8,"bins":200,"eta_first":..,
 *                         "eta":[...],"effective_first":..,"effective":[...],"idle_eta_first":..,"idle_eta":[...],
 *                         "idle_effective_first":..,"idle_effective":[...]}  (without zeros at both ends: "eta_first" is
 *                         the index of the first count; "idle": elements that never had a gradient)
 *   samples.jsonl        {"step":900,"source":"..","reference":"..","output":".."}  (named by the task)
 *   classes.json         of a classifier, at the end: results by class (see docs/training.md):
 *                          {"step":900,"split":"test","classes":["coat","boot"],"confusion":[[90,10],[4,96]],
 *                           "picture":{"height":28,"width":28,"channels":1},
 *                           "mistakes":[{"label":0,"prediction":1,"probability":0.998,"pixels":"base64"}, ...]}
 *   events.out.tfevents.*  the same scalars ("train/loss") and histograms of log10 ("learning_rate/before_bound" and
 *                        "after_bound") for TensorBoard
 *   checkpoints/last.safetensors, best.safetensors, averaged.safetensors, step-N.safetensors
 *                        see checkpoint.h
 *   result.json          written at the end: status ("finished", "diverged", "interrupted"), step, seconds,
 *                        "training_loss" (see mean_loss.h); of a finished run also "valid", the last evaluation, and
 *                        "test" or "final_valid", as in metrics.jsonl; "early":true if train.patience ended it
 *
 * time is seconds of training without interruptions. Numbers that are not finite are null. After a crash files may be
 * ahead of the last checkpoint; resuming cuts them back to the sizes in it. Lines and records are written in full or not
 * at all. */
#pragma once

#include "adamod.h"
#include "train/task.h"

typedef struct run run;

/* Makes the directory and its parents, and writes recipe and machine. It must not exist, be empty, or hold a run without a
 * checkpoint, which is replaced. With resume, opens an existing run that the recipe can continue (recipe_compare with
 * except) and cuts off torn last lines; run_rewind must follow. Only one process can have a directory open. */
int run_open(run **out, const char *directory, const recipe *r, bool resume, int except);
void run_close(run *r); /* NULL is fine */
/* Closes a run before its start and removes what run_open has made. NULL is fine. */
void run_discard(run *r);
/* Whether a new run has replaced one without a checkpoint. */
bool run_begins_again(const run *r);
const char *run_directory(const run *r);

/* Adds fields to machine.json. */
int run_describe(run *r, int n, const char *const (*pairs)[2]);

/* Writes data.json. set: in the cache, which the data are from; NULL: none. */
int run_add_data(run *r, int64_t train_samples, const struct data_set *set, int n, const task_part *parts);

/* Numbers by name; NAN is left out. */
enum { RUN_VALUES = 24 };
typedef struct run_metrics {
    const char *kind; /* train, valid, test, final_valid */
    int64_t step;
    const char *model; /* checkpoint that was measured; NULL: the model in training */
    int64_t model_step;
    struct {
        char name[40];
        double value;
        bool scalar; /* for TensorBoard too */
    } at[RUN_VALUES];
    int n;
} run_metrics;

/* Adds a measurement, or a count such as time or tokens, which TensorBoard does not show. */
void run_measured(run_metrics *m, const char *name, double value);
void run_counted(run_metrics *m, const char *name, double value);

int run_add_metrics(run *r, const run_metrics *m);
int run_add_histogram(run *r, int64_t step, const adamod_statistics *s);
int run_add_sample(run *r, int64_t step, int n, const task_text *texts);

/* Syncs all files and writes their sizes as a text for checkpoint_meta.mark, of less than RUN_MARK bytes. */
#define RUN_MARK 512
int run_mark(run *r, char *mark, size_t mark_size);
/* Cuts the files back to a mark, or with NULL to nothing; writes the current recipe, and removes result.json. Checks all
 * files first, as run_check_mark does. */
int run_rewind(run *r, const char *mark);
int run_check_mark(const run *r, const char *mark);

/* valid and final may be NULL. */
typedef struct run_result {
    const char *status;
    int64_t step;
    double seconds;
    const run_metrics *valid, *final;
    bool early; /* stopped by train.patience */
} run_result;
/* Writes result.json. *training_loss: as written; NAN: none. */
int run_finish(run *r, const run_result *result, double *training_loss);

/* Whether a directory is empty or has only files of a run before its first checkpoint, so that it can start over. False if
 * there is no directory. */
bool run_is_unbegun(const char *directory, const recipe *r);
/* Whether result.json says that the run finished or was interrupted, so that it saved "last". */
bool run_was_saved(const char *directory);
/* Whether the run finished or diverged, so that there is nothing to resume. */
bool run_is_over(const char *directory);
/* The seconds of training in result.json. NAN: there is none, or the run diverged. */
double run_seconds(const char *directory);
