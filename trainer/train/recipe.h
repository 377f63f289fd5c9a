/* recipe.h - what to train and how: a YAML file, overridden key by key from the command line.
 *
 * Every key is a dotted path ("model.d", "train.steps"). Keys of the loop are fields below. A task and a model have
 * tables of their own keys; data.task and model.kind choose them. An unknown key, a wrong type or a value out of range
 * is refused with file, line, the expected value and the nearest valid key. The library checks options of the optimizer:
 * "optimizer.beta3" is an option of the rule, "optimizer.schedule.lr" a schedule, "optimizer.groups.head.lr" an option
 * of a group of parameters.
 *
 * A function that fails changes nothing. */
#pragma once

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
#define RECIPE_MAX_KEYS 128
#define RECIPE_PATH 512

typedef struct recipe_pair {
    char key[64]; /* option of the rule; in a group "head.lr" */
    char value[192];
    int line; /* as in recipe_given */
} recipe_pair;

typedef struct recipe_pairs {
    recipe_pair *at;
    int n;
} recipe_pairs;

/* A key that was given. Its text is kept to set it again after another task or model is chosen. */
typedef struct recipe_given {
    char path[48];
    char text[RECIPE_PATH];
    int line; /* in recipe.file; 0: in an earlier file; -1: --set */
} recipe_given;

/* Values of keys of train, in the order of their choices. */
typedef enum recipe_precision { PRECISION_AUTO, PRECISION_FULL, PRECISION_TF32, PRECISION_MIXED } recipe_precision;
typedef enum recipe_overlap { OVERLAP_AUTO, OVERLAP_ON, OVERLAP_OFF } recipe_overlap;
typedef enum recipe_comm { SUM_BY_ANY, SUM_BY_MPI, SUM_BY_NCCL } recipe_comm;
typedef enum recipe_nonfinite { STOP_TRAINING, SKIP_UPDATE } recipe_nonfinite;
typedef enum recipe_tested { TEST_AUTO, TEST_LAST, TEST_BEST, TEST_AVERAGED } recipe_tested;

typedef struct task task;
typedef struct task_model task_model;

typedef struct recipe {
    char name[64]; /* of the run */
    struct {
        char task[16]; /* name of one of tasks */
    } data;
    struct {
        char kind[16]; /* name of one of the task's models */
    } model;
    struct {
        char rule[24];
        recipe_pairs options, schedules;
        recipe_pairs groups; /* match, freeze and options of groups of parameters */
        char dropped[1024];  /* options that recipe_set removed because the rule lacks them: "beta3,schedule.beta3" */
        char no_decay[32];   /* parameters without weight decay: a list of biases, norms */
    } optimizer;
    struct {
        int64_t steps;          /* updates, unless ... */
        double epochs;          /* ... this is not 0 */
        int accumulate;         /* batches per update, over all ranks */
        comm_order sum;         /* order in which gradients of several batches are added */
        recipe_overlap overlap; /* sums over ranks begin during the backward pass */
        bool shard;             /* divide the optimizer's states among ranks */
        recipe_comm comm;       /* library that sums gradients of several GPUs */
        uint64_t seed;
        int threads;
        char backend[16]; /* name of a device, as nn takes it; auto: cuda if it can be used, else cpu */
        recipe_precision precision;
        key_span evaluate_every, checkpoint_every; /* 0: at the end only */
        char best[32];                             /* metric that selects the best checkpoint */
        int patience;                              /* evaluations without a better one until training stops; 0: never */
        recipe_tested test;    /* model of the evaluation at the end; auto: averaged, with patience best, else last */
        int log_every;         /* updates between lines of metrics; 0: 1 for the first 2000, then 10 */
        double progress_every; /* seconds between lines of progress if there is no terminal; 0: none */
        int histogram_dense;   /* number of first updates with a histogram each, then ... */
        int histogram_every;   /* ... updates between histograms; 0: no more */
        int average;           /* number of last checkpoints to average at the end; 0: none */
        key_span keep_every;   /* time between checkpoints that are never deleted */
        bool keep_states;      /* keep the optimizer's states in all checkpoints */
        char init_from[RECIPE_PATH]; /* run or safetensors file with the initial weights; "": none */
        char init_skip[256];         /* patterns of parameters that init_from does not set */
        recipe_nonfinite nonfinite;  /* what to do if a loss is not finite */
    } train;

    /* The structs that the key tables of the task and of the model describe, and of their size; each owner casts its
     * own. model_settings is NULL if the task has no such model. */
    void *task_settings, *model_settings;

    const task *const *tasks; /* choices of data.task; ends with NULL */

    /* Origin of the values. */
    char file[RECIPE_PATH]; /* loaded last; "": none */
    recipe_given *given;
    int n_given;
} recipe;

/* Makes a recipe with the default of every key, the first of the tasks and the first of its models; to be freed. */
int recipe_defaults(recipe *r, const task *const *tasks);
/* Makes a copy, to be freed too. After a failure it is empty. */
int recipe_copy(recipe *to, const recipe *from);
/* Leaves the recipe empty: all bytes 0, which may be freed again. */
void recipe_free(recipe *r);

/* The task and the model that are chosen. The model is NULL if the task has none of that kind, which recipe_check
 * refuses. */
const task *recipe_task(const recipe *r);
const task_model *recipe_model(const recipe *r);

/* Sets the keys that the file gives and adds its options and schedules to the recipe's. Relative paths are relative to the
 * file's directory and made absolute. */
int recipe_load(recipe *r, const char *path);
/* Like recipe_load, from memory. name stands for the file in messages. */
int recipe_parse(recipe *r, const char *text, size_t n, const char *name);

/* Sets a key by "train.steps=100"; messages begin with "--set". "optimizer.beta3=" removes an option or a schedule.
 * "optimizer=sgd" is short for optimizer.rule. Setting the rule drops options that only other rules have. Relative paths
 * are relative to the current directory. */
int recipe_set(recipe *r, const char *assignment);
/* The origin of a key that recipe_set_by sets. Messages begin with the flag; with RECIPE_BY_CALLER the caller adds the
 * origin. */
typedef enum recipe_origin { RECIPE_BY_SET = 1, RECIPE_BY_VARY, RECIPE_BY_TUNE, RECIPE_BY_CALLER } recipe_origin;
int recipe_set_by(recipe *r, recipe_origin by, const char *assignment);
/* Sets a key by a flag of its own, such as "--beam" for "decode.beam". Messages name the flag. */
int recipe_set_flag(recipe *r, const char *flag, const char *path, const char *value);

/* What train.backend names, and the number of "cuda:2"; -1: none given. */
typedef enum recipe_backend { BACKEND_AUTO, BACKEND_REF, BACKEND_CPU, BACKEND_CUDA } recipe_backend;
recipe_backend recipe_backend_of(const recipe *r, int *gpu);

/* Whether the task measures a metric; known: the names of all that it does. */
bool recipe_measures(const recipe *r, const char *name, char *known, size_t size);

/* Whether recipe_set dropped options; line says which. */
bool recipe_dropped(const recipe *r, char *line, size_t size);

/* Checks the whole recipe: rule, options, schedules, and combinations of keys that the task and the model forbid. */
int recipe_check(const recipe *r);

/* Makes the recipe's optimizer on a device ("cpu", "cuda:0") with options, schedules and groups, but without parameters.
 * batches: batches per epoch, for schedules in epochs; 0: not known yet, to check the rest. */
int recipe_optimizer(const recipe *r, const char *device, int64_t batches, adamod_optimizer **out);

/* Groups of parameters (optimizer.groups), in the order of the recipe. */
typedef struct recipe_group {
    char name[32];
    const char *match; /* patterns of parameters (key_matches) */
    bool freeze;       /* not trained */
} recipe_group;
int recipe_groups(const recipe *r, recipe_group out[RECIPE_MAX_GROUPS]);
/* The pair with a key, or NULL. */
recipe_pair *recipe_find_pair(const recipe_pairs *list, const char *key);
/* Option number index of a group; NULL past the end. */
const recipe_pair *recipe_group_option(const recipe *r, const char *group, int index);

/* The number of a parameter's group, from 1 on: the last that matches; 0: none. */
int recipe_group_of(const recipe *r, const char *parameter, bool *frozen);

/* The library's groups that recipe_optimizer makes: how many, and the number of the one for a group of the recipe. */
int recipe_library_groups(const recipe *r);
int recipe_library_group(const recipe *r, int group, bool undecayed);

/* Whether a run of one recipe can continue with the other: 0, or -1 and "model.d is 256, but was 128". LOOSE keys may
 * differ, such as the length of the training and paths, and the parts in except, a sum of the constants. Both recipes
 * must have passed recipe_check. */
enum { RECIPE_RULE = 1, RECIPE_OPTIONS = 2 }; /* optimizer.rule; options and schedules */
int recipe_compare(const recipe *was, const recipe *is, int except);

/* Writes the whole recipe as YAML that recipe_load reads back to the same values. */
int recipe_write(const recipe *r, FILE *file);

/* Prints a line for each key, for docs and --help: path, bounds or choices, default, help. Keys of all recipes come
 * first, then those of each task and each model. */
void recipe_describe(FILE *file, const task *const *tasks);
