/* translation.h - sentence pairs and a Transformer: the tasks "bitext" (files) and "numbers" (generated). */
#pragma once

#include "data/batch.h"
#include "models/transformer.h"
#include "tasks/decode.h"
#include "tasks/raw_text.h"
#include "train/task.h"

typedef struct translation_settings {
    struct {
        int64_t train, valid, test; /* numbers: pairs */
        uint64_t seed;              /* of the choice of training numbers; held-out ones are fixed */
        /* bitext: a data set of the cache, or "files": the paths below, absolute or "" */
        char set[16];
        char source[RECIPE_PATH], target[RECIPE_PATH];
        char valid_source[RECIPE_PATH], valid_target[RECIPE_PATH];
        char test_source[RECIPE_PATH], test_target[RECIPE_PATH];
        bool raw; /* files are raw text */
        char source_lang[16], target_lang[16];
        char bpe[RECIPE_PATH]; /* codes; "": learned from the training text */
        int merges;
        text_unit tokens;
        bool joint;                     /* one vocabulary for both languages */
        char vocabularies[RECIPE_PATH]; /* a run to read them from; "": made from the training text */
        int min_count, max_vocab;
        int max_length;
        double max_ratio;
        bool skip_empty;
        int sentences; /* a batch; 0: by tokens */
        int max_tokens;
        bool sort_by_length; /* false: batches of `sentences` random pairs */
    } data;
    struct {
        int64_t evaluate_pairs; /* validation pairs translated at each evaluation; 0: none */
    } train;
    struct {
        int beam, max_length;
        double length_penalty;
        int samples; /* translations kept for the report */
    } decode;
} translation_settings;

static inline const translation_settings *translation_settings_of(const recipe *r) {
    return (const translation_settings *)(const void *)r->task_settings;
}

static inline const transformer_settings *transformer_settings_of(const recipe *r) {
    return (const transformer_settings *)(const void *)r->model_settings;
}

/* The task's part of an experiment. */
typedef struct translation {
    corpus_text text[SPLITS];
    corpus pairs[SPLITS];
    char files[SPLITS][2][RECIPE_PATH]; /* bitext: the files read, source and target */
    bool is_raw;                        /* data.raw is true, or the data set is in subwords: text goes through raw */
    raw_text raw;
    corpus_text raw_pairs[SPLITS]; /* held-out pairs as raw text, if is_raw */
    uint64_t raw_hash[SPLITS][RAW_SIDES];
    vocab *src_vocab, *tgt_vocab; /* may be the same one */
    text_unit unit;
    transformer_config config;
    batcher *batches;
    batch_shape shape; /* of the largest training batch */
    transformer_symbols symbols;
    /* scoring; a split is read in the order of lengths */
    nn_graph *score_graph;
    nn_plan *score_plan;
    transformer_symbols score_symbols;
    decoder *decoder;
} translation;

static inline translation *translation_of(const experiment *e) { return e->state; }

extern const task task_bitext, task_numbers;
extern const task_bench translation_bench;

/* Translates n lines of UTF-8; answers[i * nbest + k] is the (k+1)-th best of line i. nbest is at most the beam. An empty
 * line gives an empty one; a line is cut to data.max_length tokens. On success the caller frees the texts. */
typedef struct translation_answer {
    char *text;     /* NULL: the search found fewer */
    double score;   /* sum of log p / length^decode.length_penalty; 0 for an empty line */
    int64_t tokens; /* first answer of a line: number of tokens in the line, including those cut */
} translation_answer;
int translation_translate(experiment *e, int n, const text_slice *lines, int nbest, translation_answer *answers);
/* decode.beam, but no more than there are tokens. */
int translation_beam(const experiment *e);
