/* Everything a recipe needs in memory: text, vocabularies, model, plans, optimizer, decoder. */
#ifndef ADAMOD_SESSION_H
#define ADAMOD_SESSION_H

#include "batch.h"
#include "decode.h"
#include "recipe.h"
#include "transformer.h"

enum { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST, SPLITS };

typedef struct session {
    recipe recipe;
    adamod_pool *pool;
    corpus_text text[SPLITS];
    corpus pairs[SPLITS];
    vocab *src_vocab, *tgt_vocab; /* may be the same one */
    text_unit unit;
    transformer_config config;
    nn_params *params;
    /* training */
    batcher *batches;
    nn_graph *graph;
    nn_plan *plan;
    transformer_symbols symbols;
    adamod_optimizer *optimizer;
    /* scoring, with all of a split in the order of lengths */
    nn_graph *score_graph;
    nn_plan *score_plan;
    transformer_symbols score_symbols;
    batch_shape score_shape;
    decoder *decoder;
} session;

typedef enum session_use {
    SESSION_TRAIN = 1, /* training batches, plan and optimizer */
    SESSION_SCORE = 2, /* loss on held-out text */
    SESSION_DECODE = 4
} session_use;

/* 0, or -1 with one line in message; the session is then empty. uses is a sum of session_use. */
int session_open(session *s, const recipe *r, int uses, char *message, size_t size);
void session_close(session *s);

/* A vocabulary saved with a run replaces the one the training text would give, so that text is not needed again. */
int session_save_vocab(const session *s, const char *directory, char *message, size_t size);

/* Copies a batch into a plan's inputs. */
void session_feed(nn_plan *plan, const transformer_symbols *symbols, const batch *b);

typedef struct session_score {
    double loss, nll; /* per target token */
    double tokens;
    double accuracy; /* of next tokens */
} session_score;

int session_score_split(session *s, int split, session_score *out, char *message, size_t size);

/* Decodes the first n pairs of a split (all, if n is 0) and compares. each, if given, is called with the texts. */
typedef void (*session_each)(void *context, const char *source, const char *reference, const char *output);
typedef struct session_quality {
    double bleu, exact; /* over the decoded */
    int64_t sentences;
    double seconds;
} session_quality;
int session_decode_split(session *s, int split, int64_t n, session_each each, void *context, session_quality *out,
                         char *message, size_t size);

/* Translates lines of text, n <= 64 of them; out[i] is to be freed. */
int session_translate(session *s, int n, const char *const *lines, char **out, char *message, size_t size);

#endif
