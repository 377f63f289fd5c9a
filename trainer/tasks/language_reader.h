/* language_reader.h - how a model reads text: an LSTM in columns (language_columns.c), GPT in windows (language_windows.c). */
#pragma once

#include "models/gpt.h"
#include "tasks/language_predictor.h"

struct language_reader {
    bool gpt; /* the model is GPT, whose sizes language_gpt tells */
    /* The fewest tokens of a split that can be read; why says so for people: "two for each of data.batch 4 columns". */
    int64_t (*least)(const language_settings *r, int split, char *why, size_t size);
    /* Says which tokens of a split are never read: "uses 40 of 43 tokens". False: it reads all. */
    bool (*unused)(const experiment *e, int split, char *out, size_t size);
    /* Sets language.batches, and makes what training needs. */
    int (*begin)(experiment *e);
    /* The graphs of a training step and of scoring a split; both have the output "loss". */
    nn_value (*build)(experiment *e, nn_graph *g);
    nn_value (*build_scoring)(const experiment *e, nn_graph *g, int split, language_scoring *x);
    /* Feeds batch language.index of language.epoch to e->plan, and sets items and lr_factor. */
    void (*feed)(experiment *e, task_batch *out);
    /* After epoch and index were changed. */
    void (*seek)(experiment *e);
    /* Adds up the nll of a split's tokens, of its first batch at a glance. */
    int (*score)(experiment *e, task_split split, bool glance, double *sum, int64_t *tokens);
    /* Makes the predictor that writes text (language_predictor.h). */
    int (*predict)(language_predictor **out, const experiment *e);
};

extern const language_reader language_columns, language_windows;

/* The sizes of an experiment's GPT. */
gpt_config language_gpt(const experiment *e);

/* The rows of a split's batches: columns or windows. */
static inline int language_batch(const language_settings *r, int split) {
    return split == SPLIT_TRAIN ? r->data.batch : split == SPLIT_VALID ? r->data.valid_batch : r->data.test_batch;
}
static inline const char *language_batch_key(int split) {
    static const char *const keys[SPLITS] = {"data.batch", "data.valid_batch", "data.test_batch"};
    return keys[split];
}

/* Time steps of a batch of an evaluation. */
static inline int64_t language_score_length(const language_settings *r) {
    return r->data.score_length ? r->data.score_length : r->data.length;
}
