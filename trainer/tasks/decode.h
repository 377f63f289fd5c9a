/* Beam search with the Transformer, many sentences at once, keys and values of earlier tokens kept.
 *
 * All of a search is in states of the step's plan (nn_beam), wherever that runs: on a device a step is one recording, and
 * the host only looks, one step behind, which sentences are still searched. They leave when they are done: the others
 * move up, and a device goes on with a smaller plan. */
#ifndef ADAMOD_DECODE_H
#define ADAMOD_DECODE_H

#include "models/transformer.h"

typedef struct decode_options {
    int beam;
    int max_length;        /* tokens of an output, its end included */
    double length_penalty; /* scores are sums of log p divided by length^penalty */
    int sentences;         /* decoded at once, at most */
    int64_t src_tokens;    /* of those, in all */
    int32_t start, end;    /* tokens */
    bool constant;         /* parameters do not change after the first run */
    const char *backend;
    adamod_pool *pool;
} decode_options;

typedef struct decode_result {
    const int32_t *tokens; /* without start and end; in the decoder's memory until its next run */
    int length;
    double score;
    bool complete; /* ended by itself, not by max_length */
} decode_result;

typedef struct decoder decoder;

/* How many sentences are best decoded at once: on a device as many as fill it, if the cache of their keys and values takes
 * no more than some GiB. */
int decode_sentences(const nn_params *params, const transformer_config *config, int beam, int max_length);

/* The parameters are read at each run, unless they are constant, so that one decoder serves a model while it trains. */
adamod_status decoder_create(decoder **out, nn_params *params, const transformer_config *config,
                             const decode_options *o);
void decoder_free(decoder *d);

/* n sentences, sentence i is the tokens [ranges[i][0], ranges[i][1]) of src. ADAMOD_ERROR_RANGE if they are more than
 * the decoder was made for. The result is the same for any number of threads, and for any batching up to rounding. */
adamod_status decoder_run(decoder *d, int n, const int32_t *src, const int32_t (*ranges)[2], decode_result *results);

/* Of a sentence of the last run, the result that is better than all but k: 0 is the one decoder_run gave. There are as
 * many as hypotheses in the beam, unless the search ran out of them (false). Those that ended by themselves come first. */
bool decoder_result(const decoder *d, int sentence, int k, decode_result *out);

/* Any number of sentences, sentence i the tokens [at[i], at[i + 1]) of src, in runs of similar lengths. After each run,
 * take(context, i, place) is called for its sentences: decoder_result(d, place, ...) gives what was found for sentence i.
 * What take returns, if not 0, ends it and is *taken. */
adamod_status decoder_run_all(decoder *d, int64_t n, const int32_t *src, const int64_t *at,
                              int (*take)(void *context, int64_t sentence, int place), void *context, int *taken);

#endif
