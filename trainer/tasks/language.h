/* language.h - the task "language": the next word or character of a text, by a recurrent network.
 *
 * A text is cut into as many columns as a batch has, and read from left to right. The state of the network goes on from
 * batch to batch; it is zeros where an epoch or an evaluation begins. The lengths of batches are drawn once, and come in
 * another order in each epoch, so that epochs are of one length. */
#ifndef ADAMOD_LANGUAGE_H
#define ADAMOD_LANGUAGE_H

#include "data/markov.h"
#include "data/vocab.h"
#include "tasks/subword_codes.h"
#include "train/task.h"

#include <string.h>

typedef struct language_settings {
    struct {
        char set[16];                                                                  /* generated, text, ptb */
        char path[RECIPE_PATH];                                                        /* a directory, absolute */
        char train_file[RECIPE_PATH], valid_file[RECIPE_PATH], test_file[RECIPE_PATH]; /* in it */
        char tokens[16];                                                               /* words, characters, subwords */
        char bpe[RECIPE_PATH];                                                         /* codes of subwords */
        int merges;
        char vocabularies[RECIPE_PATH]; /* of a run */
        bool eos;
        int min_count, max_vocab;
        int words, branches, order; /* generated */
        int64_t train, valid, test; /* generated: words */
        uint64_t seed;
        int batch, valid_batch, test_batch; /* columns */
        int length, score_length, shortest; /* time steps */
        double halved, spread;
        bool scale_lr;
    } data;
    struct {
        int samples, prompt; /* texts for the report, and tokens of held-out text that each goes on from */
        int64_t tokens, top_k;
        double temperature, top_p;
        uint64_t seed;
    } generate;
} language_settings;

static inline const language_settings *language_settings_of(const recipe *r) {
    return (const language_settings *)(const void *)r->task_settings;
}

/* A graph that scores a text, and its plan. */
typedef struct language_scoring {
    nn_graph *graph;
    nn_plan *plan;
    int rows; /* symbol */
} language_scoring;

/* The task's part of an experiment. */
typedef struct language {
    char folder[RECIPE_PATH]; /* of the files: data.path, or where a set of the cache is */
    vocab *vocab;             /* NULL: generated */
    subword_codes codes;
    int words;
    int32_t *text[SPLITS];
    int64_t n[SPLITS];
    uint64_t hash[SPLITS]; /* of the tokens themselves, whatever their numbers */
    int64_t unknown[SPLITS];
    language_scoring scoring[SPLITS];
    /* training */
    int rows;                 /* symbol */
    int64_t *drawn, *lengths; /* of an epoch's batches: as drawn, and in this epoch's order */
    int64_t batches, longest;
    int64_t ordered_epoch; /* that lengths is of; -1: none */
    int64_t epoch, index;  /* of the batch that comes next */
    int64_t place;         /* the time step it begins with */
} language;

static inline language *language_of(const experiment *e) { return e->state; }

/* In nats a word, what no model can be better than, but by chance; NAN: not known. */
double language_entropy(const recipe *r);

/* Whether it is made of tokens that were drawn, not of a file's. */
static inline bool language_is_generated(const recipe *r) {
    return strcmp(language_settings_of(r)->data.set, "generated") == 0;
}

/* The name of a split's file, in that folder; "": there is none. */
const char *language_file(const language_settings *r, int split);

extern const task task_language;
extern const task_bench language_bench; /* language_bench.c */

/* Fills vocab, words, text and n: for training, or for the use of a run's model (see task.open). A failure may leave parts. */
int language_load(experiment *e, const char *directory, int uses);

/* The tokens of a text file's line in numbers, to be freed; <eos> is 0, and not among them. How many; -1: out of memory. */
enum { LANGUAGE_EOS, LANGUAGE_UNK };
int64_t language_encode(const experiment *e, text_slice line, int32_t **out);

#endif
