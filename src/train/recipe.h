/* recipe.h - what to train and how: a YAML file by schema, overridden key by key from the command line.
 *
 * Every key is a dotted path ("model.d", "train.steps"). An unknown key, a wrong type or a value out of range is
 * refused with file, line, what was expected, and the nearest valid key. Options of the optimizer are checked by the
 * library: "optimizer.beta3" is whatever option the rule has, "optimizer.schedule.lr" a schedule's text.
 *
 * Functions that can fail return 0, or -1 with one line in message and nothing changed.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_RECIPE_H
#define ADAMOD_RECIPE_H

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RECIPE_MAX_OPTIONS 40
#define RECIPE_MAX_SCHEDULES 8
#define RECIPE_MAX_KEYS 64
#define RECIPE_PATH 512

typedef struct recipe_pair {
    char key[64]; /* an option of the rule; for schedules the option it drives */
    char value[192];
    int line; /* as in recipe.line */
} recipe_pair;

typedef struct recipe {
    char name[64]; /* of runs; "numbers" */
    struct {
        char task[16];              /* numbers, bitext */
        int64_t train, valid, test; /* pairs of numbers */
        uint64_t seed;              /* of the choice of training numbers; the held-out ones are always the same */
        /* bitext: files; absolute, or "" */
        char source[RECIPE_PATH], target[RECIPE_PATH];
        char valid_source[RECIPE_PATH], valid_target[RECIPE_PATH];
        char test_source[RECIPE_PATH], test_target[RECIPE_PATH];
        char tokens[16]; /* words, characters */
        bool joint;      /* one vocabulary for both languages */
        int min_count, max_vocab;
        int max_length;
        double max_ratio;
        bool skip_empty;
        int sentences; /* a batch; 0: by tokens */
        int max_tokens;
    } data;
    struct {
        char kind[16]; /* transformer */
        int layers, d, ffn, heads;
        bool pre_norm, share_all, tie_output;
        double dropout, attention_dropout, smoothing;
    } model;
    struct {
        char rule[24];
        recipe_pair option[RECIPE_MAX_OPTIONS];
        int n_options;
        recipe_pair schedule[RECIPE_MAX_SCHEDULES];
        int n_schedules;
    } optimizer;
    struct {
        int64_t steps;
        int accumulate; /* batches for an update */
        uint64_t seed;
        int threads;
        char backend[16]; /* auto: cuda where it can be used, else cpu */
        char precision[8];
        int64_t evaluate_every, checkpoint_every; /* updates; 0: at the end only */
        int64_t evaluate_pairs; /* of the validation text, translated at each evaluation for exact and BLEU; 0: none */
        int log_every;          /* a line of metrics each so many updates; 0: each of the first 2000, then each tenth */
        int histogram_dense;    /* learning-rate histograms of each of the first so many updates, then ... */
        int histogram_every;    /* ... every so many; 0: no more */
        int average;            /* mean of the last so many checkpoints at the end; 0: none */
        char nonfinite[8];      /* a loss that is not finite: stop, skip */
    } train;
    struct {
        int beam, max_length;
        double length_penalty;
        int samples; /* translations kept for the report */
    } decode;

    /* Where values came from, for messages. */
    char file[RECIPE_PATH];    /* what was loaded last; "": nothing */
    int line[RECIPE_MAX_KEYS]; /* of each key of the schema: its line in file; 0: the default; -1: --set */
} recipe;

/* The defaults of every key. */
void recipe_defaults(recipe *r);

/* Sets what the file gives; the rest stays as it is. The options and schedules it gives are added to those that are
 * there. A relative path in it is relative to the file's directory, and made absolute. */
int recipe_load(recipe *r, const char *path, char *message, size_t size);
/* The same from memory; name stands for the file in messages. */
int recipe_parse(recipe *r, const char *text, size_t n, const char *name, char *message, size_t size);

/* "train.steps=100", with "--set" named in a message. "optimizer.beta3=" takes an option or a schedule away. A relative
 * path is relative to the current directory. */
int recipe_set(recipe *r, const char *assignment, char *message, size_t size);
/* The same for a flag that stands for a key, "--beam" for "decode.beam", with the flag named in a message. */
int recipe_set_flag(recipe *r, const char *flag, const char *path, const char *value, char *message, size_t size);

/* After all is set: what no single key can tell (rule and its options, schedules, heads dividing d, files given). */
int recipe_check(const recipe *r, char *message, size_t size);

/* The optimizer that the recipe describes, on a device ("cpu", "cuda:0"), options and schedules set; its parameters are still to be added. */
int recipe_optimizer(const recipe *r, const char *device, adamod_optimizer **out, char *message, size_t size);

/* 0 if a run of one recipe can be continued with the other: they may differ in how long to train, what to watch and how
 * to decode, not in what is computed. Else -1 and "model.d is 256, and was 128". Both must have passed recipe_check. */
int recipe_compare(const recipe *was, const recipe *is, char *message, size_t size);

/* The whole recipe, as YAML that recipe_load reads back to the same. -1: the file could not be written. */
int recipe_write(const recipe *r, FILE *file);

/* One line for each key: path, type, bounds or choices, default, help; for docs and --help. */
void recipe_describe(FILE *file);

#endif
