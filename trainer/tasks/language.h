/* language.h - the task "language": a model predicts the next token of a text from those before it. An LSTM and GPT read the
 * text in different ways: see language_reader.h. */
#pragma once

#include "data/markov.h"
#include "data/byte_bpe.h"
#include "data/token_file.h"
#include "data/vocab.h"
#include "tasks/subword_codes.h"
#include "train/task.h"

/* Values of keys, in the order of their choices. */
typedef enum language_set {
    LANGUAGE_GENERATED,
    LANGUAGE_TEXT,
    LANGUAGE_PACKED,
    LANGUAGE_PTB,
    LANGUAGE_TINYSHAKESPEARE,
    LANGUAGE_TINYSTORIES,
    LANGUAGE_FINEWEB,
    LANGUAGE_FINEWEB_10B
} language_set;
typedef enum language_tokens { LANGUAGE_WORDS, LANGUAGE_CHARACTERS, LANGUAGE_SUBWORDS, LANGUAGE_BYTES } language_tokens;

typedef struct language_settings {
    struct {
        language_set set;
        char path[RECIPE_PATH];                                                        /* a directory, absolute */
        char train_file[RECIPE_PATH], valid_file[RECIPE_PATH], test_file[RECIPE_PATH]; /* in it */
        language_tokens tokens;
        char bpe[RECIPE_PATH]; /* codes of subwords; bytes: a directory */
        int merges;
        char vocabularies[RECIPE_PATH]; /* a run's directory, or "" */
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
        int samples, prompt; /* texts for the report; held-out tokens that each continues */
        int64_t tokens, top_k;
        double temperature, top_p;
        int end; /* a token; -1: none */
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
    int rows;    /* symbol */
    int windows; /* symbol; GPT */
} language_scoring;

/* The task's part of an experiment. */
typedef struct language {
    char folder[RECIPE_PATH]; /* data.path, or the cache's directory of the set */
    vocab *vocab;             /* of words, characters and subwords; NULL: others */
    subword_codes codes;
    byte_bpe *bytes; /* NULL: others; generated words and packed ids may be mere numbers */
    byte_bpe_encoder *encoder;
    int words;
    int32_t *text[SPLITS];
    token_set *packed[SPLITS]; /* instead of text */
    int32_t *ids;              /* a window of these */
    int64_t n[SPLITS];
    uint64_t hash[SPLITS]; /* of the tokens as text, not of their numbers */
    int64_t unknown[SPLITS];
    language_scoring scoring[SPLITS];
    /* training */
    int rows, n_windows;   /* symbols; the second one GPT's */
    int64_t batches;       /* of an epoch */
    int64_t epoch, index;  /* of the next batch */
    int64_t ordered_epoch; /* the epoch that `lengths` or `windows` belongs to; -1: none */
    /* columns */
    int64_t *drawn, *lengths; /* of batches: as drawn, and in this epoch's order */
    int64_t longest;
    int64_t place; /* the next batch's first time step */
    /* windows */
    int64_t *windows; /* in this epoch's order */
    int64_t first;    /* token of this epoch's window 0 */
} language;

static inline language *language_of(const experiment *e) { return e->state; }

/* The entropy of the generated language in nats a word, which no model can beat; NAN: not generated. */
double language_entropy(const recipe *r);

/* Whether the text is generated, not read from files. */
static inline bool language_is_generated(const recipe *r) {
    return language_settings_of(r)->data.set == LANGUAGE_GENERATED;
}
/* The name of data.set, as recipes write it. */
const char *language_set_name(const language_settings *r);

/* Whether the text is files of ids (token_file.h), which are not read into memory. */
bool language_is_packed(const recipe *r);
/* Whether data.set is a public data set, whose files have names of their own. */
bool language_is_named(const language_settings *r);

/* Whether tokens are those of byte-level BPE. */
static inline bool language_is_bytes(const recipe *r) {
    return language_is_packed(r) || language_settings_of(r)->data.tokens == LANGUAGE_BYTES;
}

/* The name of a split's file in a public data set; "": none. */
const char *language_own_file(const language_settings *r, int split);
/* The name of a split's file in the folder; "": none. */
const char *language_file(const language_settings *r, int split);

typedef struct language_reader language_reader;
const language_reader *language_reader_of(const recipe *r);

extern const task task_language;
extern const task_bench language_bench; /* language_bench.c */

/* Fills vocab, words, text and n for training, or for the use of a run's model (see task.open). A failure may leave parts. */
int language_load(experiment *e, const char *directory, int uses);

/* Allocates the numbers of a line's tokens, without <eos>, and returns how many; -1: out of memory. */
enum { LANGUAGE_EOS, LANGUAGE_UNK };
int64_t language_encode(const experiment *e, text_slice line, int32_t **out);

/* language_bytes.c. Opens the vocabulary: from a run's directory unless it is NULL, from data.bpe, or by learning it. */
int language_bytes_open(experiment *e, const char *run, const char *train_file);
void language_bytes_close(language *s);
int language_bytes_read(experiment *e, int split, const char *path);
/* Opens the files that a pattern matches. */
int language_packed_open(experiment *e, int split, const char *pattern);
/* Copies the length + 1 ids of a window of a split, in the order of the files. */
int language_packed_at(const language *s, int split, int64_t length, int64_t window, int32_t *ids);

/* Has the model write generate.samples texts for the report, "prompt" and "output", that continue lines from all over a
 * split (language_samples.c). */
int language_samples(const experiment *e, task_split split, task_sample sample, void *context);
