/* small_transformer.h - a Transformer with a batch, for tests of whole models. */
#ifndef SMALL_TRANSFORMER_H
#define SMALL_TRANSFORMER_H

#include "models/transformer.h"
#include "support/random.h"
#include "tasks/decode.h"

enum { SMALL_SRC = 40, SMALL_TGT = 44, SMALL_SENTENCES = 4, SMALL_VOCAB = 23 };

typedef struct small_transformer {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
    nn_value loss;
    transformer_symbols symbols;
    adamod_pool *pool;
} small_transformer;

transformer_config small_config(void); /* 2 + 2 layers of 16, 4 heads */

/* Exits with a message where it cannot be made. */
small_transformer small_make(const transformer_config *c, const char *backend, int threads, bool training);
small_transformer small_make_mixed(const transformer_config *c, int threads); /* on the host, training */
small_transformer small_make_on(const transformer_config *c, const char *device, nn_precision precision, bool training);
void small_free(small_transformer *s);

/* A batch of sentences of several lengths, fewer tokens than there is room for. */
void small_feed(small_transformer *s);

/* The score of what a decoder found, by the training graph given the same tokens. */
double small_score(small_transformer *s, const int32_t *src, const int32_t range[2], const decode_result *r);

#endif
