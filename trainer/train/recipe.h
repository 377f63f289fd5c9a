/* recipe.h - what to train and how: a YAML file by schema, overridden key by key from the command line.
 *
 * Every key is a dotted path ("model.d", "train.steps"). Some belong to the loop and are fields below; those of a task
 * or a model are in tables that these own, chosen by data.task and model.kind. An unknown key, a wrong type or a value
 * out of range is refused with file, line, what was expected, and the nearest valid key. Options of the optimizer are
 * checked by the library: "optimizer.beta3" is whatever option the rule has, "optimizer.schedule.lr" a schedule's text,
 * "optimizer.groups.head.lr" an option of some parameters alone.
 *
 * A function that fails has changed nothing.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_RECIPE_H
#define ADAMOD_RECIPE_H

#include "adamod.h"
#include "comm/comm.h"
#include "support/keys.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RECIPE_MAX_OPTIONS 40
#define RECIPE_MAX_SCHEDULES 8
#define RECIPE_MAX_GROUPS 16
#define RECIPE_MAX_GROUP_KEYS 48
#define RECIPE_MAX_KEYS 80
#define RECIPE_PATH 512

typedef struct recipe_pair {
    char key[64]; /* an option of the rule; for schedules the option it drives; of a group "head.lr" */
    char value[192];
    int line; /* as in recipe_given */
} recipe_pair;

/* A key that was given: its text, so that it can be set again where another task or model is chosen. */
typedef struct recipe_given {
    char path[48];
    char text[RECIPE_PATH];
    int line; /* in recipe.file; 0: in another file before; -1: --set */
} recipe_given;

/* Values of keys of train, in the order of their choices. */
typedef enum recipe_precision { PRECISION_AUTO, PRECISION_FULL, PRECISION_TF32, PRECISION_MIXED } recipe_precision;
typedef enum recipe_overlap { OVERLAP_AUTO, OVERLAP_ON, OVERLAP_OFF } recipe_overlap;
typedef enum recipe_comm { SUM_BY_ANY, SUM_BY_MPI, SUM_BY_NCCL } recipe_comm;
typedef enum recipe_nonfinite { STOP_TRAINING, SKIP_UPDATE } recipe_nonfinite;

typedef struct task task;
typedef struct task_model task_model;

typedef struct recipe {
    char name[64]; /* of runs */
    struct {
        char task[16]; /* what kind of problem: one of tasks */
    } data;
    struct {
        char kind[16]; /* which architecture: one of the task's */
    } model;
    struct {
        char rule[24];
        recipe_pair *option, *schedule;
        int n_options, n_schedules;
        recipe_pair *group; /* match, freeze and options of groups of parameters */
        int n_group_keys;
        char dropped[1024]; /* what recipe_set took away with the rule that had it: a list, "beta3,schedule.beta3" */
        char no_decay[32];  /* kinds of parameters without weight decay: a list of biases, norms */
    } optimizer;
    struct {
        int64_t steps;          /* updates, unless ... */
        double epochs;          /* ... this is not 0 */
        int accumulate;         /* batches for an update, of all ranks */
        comm_order sum;         /* order in which gradients of several batches are added */
        recipe_overlap overlap; /* sums over ranks begin during the backward pass */
        bool shard;             /* each rank keeps a part of the optimizer's states alone */
        recipe_comm comm;       /* library that sums gradients of several GPUs */
        uint64_t seed;
        int threads;
        char backend[16]; /* name of a device, as nn takes it; auto: cuda if it can be used, else cpu */
        recipe_precision precision;
        key_span evaluate_every, checkpoint_every; /* 0: at the end only */
        char best[32];                             /* the metric by which a checkpoint is the best so far */
        int patience;          /* evaluations without a better one after which training ends; 0: it does not */
        int log_every;         /* a line of metrics each so many updates; 0: each of the first 2000, then each tenth */
        double progress_every; /* seconds between lines of progress, where there is no terminal; 0: none */
        int histogram_dense;   /* learning-rate histograms of each of the first so many updates, then ... */
        int histogram_every;   /* ... every so many; 0: no more */
        int average;           /* mean of the last so many checkpoints at the end; 0: none */
        key_span keep_every;   /* a checkpoint each so often that is never deleted */
        bool keep_states;      /* of the optimizer in other checkpoints than these and the last, too */
        char init_from[RECIPE_PATH]; /* a run or a safetensors file whose weights a run begins with; "": none */
        char init_skip[256];         /* patterns of parameters that begin as they would without init_from */
        recipe_nonfinite nonfinite;  /* what to do if a loss is not finite */
    } train;

    /* The structs that the key tables of the task and of the model describe, and of their size; each owner casts its
     * own. model_settings is NULL if the task has no such model. */
    void *task_settings, *model_settings;

    const task *const *tasks; /* that data.task may name; ends with NULL */

    /* Where values came from. */
    char file[RECIPE_PATH]; /* what was loaded last; "": nothing */
    recipe_given *given;
    int n_given;
} recipe;

/* Makes a recipe with the default of every key, the first of the tasks and the first of its models; to be freed. */
int recipe_defaults(recipe *r, const task *const *tasks);
/* Makes a copy, to be freed too. After a failure it is empty. */
int recipe_copy(recipe *to, const recipe *from);
/* Leaves the recipe empty: all bytes 0, which may be freed again. */
void recipe_free(recipe *r);

/* What data.task and model.kind name. The model is NULL where the task has none of that kind, which recipe_check
 * refuses. */
const task *recipe_task(const recipe *r);
const task_model *recipe_model(const recipe *r);

/* Sets what the file gives; the rest stays as it is. The options and schedules it gives are added to those that are
 * there. A relative path in it is relative to the file's directory, and made absolute. */
int recipe_load(recipe *r, const char *path);
/* The same from memory; name stands for the file in messages. */
int recipe_parse(recipe *r, const char *text, size_t n, const char *name);

/* "train.steps=100", with "--set" named in a message. "optimizer.beta3=" takes an option or a schedule away. "optimizer=sgd"
 * is short for optimizer.rule; options and schedules that the rule does not have, but another one has, are dropped. A
 * relative path is relative to the current directory. */
int recipe_set(recipe *r, const char *assignment);
/* The same for a flag that stands for a key, "--beam" for "decode.beam", with the flag named in a message. */
int recipe_set_flag(recipe *r, const char *flag, const char *path, const char *value);

/* Whether recipe_set dropped options with the rule that had them; line says which. */
bool recipe_dropped(const recipe *r, char *line, size_t size);

/* After all is set: what no single key can tell (rule and its options, schedules, what the task and the model check). */
int recipe_check(const recipe *r);

/* The optimizer that the recipe describes, on a device ("cpu", "cuda:0"), options, schedules and
 * groups set; its parameters are still to be added. batches: of an epoch, for schedules that count epochs; 0: not known yet, only to check the rest. */
int recipe_optimizer(const recipe *r, const char *device, int64_t batches, adamod_optimizer **out);

/* Groups of parameters that are treated differently (optimizer.groups), in the order in which the recipe names them. */
typedef struct recipe_group {
    char name[32];
    const char *match; /* patterns of parameters (key_matches) */
    bool freeze;       /* they are not trained */
} recipe_group;
int recipe_groups(const recipe *r, recipe_group out[RECIPE_MAX_GROUPS]);
/* Option number index of a group, with a key as "head.lr"; NULL past the end. */
const recipe_pair *recipe_group_option(const recipe *r, const char *group, int index);

/* Which of them, from 1 on, a parameter belongs to: the last that matches; 0: none. */
int recipe_group_of(const recipe *r, const char *parameter, bool *frozen);

/* The groups of an optimizer that recipe_optimizer has made: how many, and which is that group's. */
int recipe_library_groups(const recipe *r);
int recipe_library_group(const recipe *r, int group, bool undecayed);

/* 0 if a run of one recipe can be continued with the other: they may differ in how long to train, where data is, what to
 * watch and how to decode, not in what is computed; except says in what else (a sum). Else -1 and "model.d is 256, but
 * was 128". Both must have passed recipe_check. */
enum { RECIPE_RULE = 1, RECIPE_OPTIONS = 2 }; /* optimizer.rule; the optimizer's options and schedules */
int recipe_compare(const recipe *was, const recipe *is, int except);

/* The whole recipe, as YAML that recipe_load reads back to the same. -1: the file could not be written. */
int recipe_write(const recipe *r, FILE *file);

/* One line for each key: path, type, bounds or choices, default, help; for docs and --help. First those of every recipe,
 * then those of each task and each model. */
void recipe_describe(FILE *file, const task *const *tasks);

#endif
