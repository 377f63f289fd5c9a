/* decode.h - beam search with the Transformer for many sentences at once; keys and values of earlier tokens are cached.
 *
 * The whole search is in states of the step's plan (nn_beam). On a device a step is one recording, and the host only
 * checks, one step behind, which sentences are still being searched. Finished sentences leave: the others move up, and a
 * device goes on with a smaller plan. */
#pragma once

#include "models/transformer.h"

typedef struct decode_options {
    int beam;
    int max_length;        /* tokens of an output, its end included */
    double length_penalty; /* scores are sums of log p divided by length^penalty */
    int sentences;         /* most that are decoded at once */
    int64_t src_tokens;    /* most source tokens of these together */
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

/* The best number of sentences to decode at once: on a device as many as fill it, while their cache of keys and values
 * takes no more than a few GiB. */
int decode_sentences(const nn_params *params, const transformer_config *config, int beam, int max_length);

/* Every run reads the parameters again, unless they are constant, so that one decoder serves a model while it trains. */
adamod_status decoder_create(decoder **out, nn_params *params, const transformer_config *config,
                             const decode_options *o);
void decoder_free(decoder *d);

/* Decodes n sentences; sentence i is the tokens [ranges[i][0], ranges[i][1]) of src. ADAMOD_ERROR_RANGE: they are more
 * than the decoder was made for. The result does not depend on the number of threads, nor on the batching except for
 * rounding. */
adamod_status decoder_run(decoder *d, int n, const int32_t *src, const int32_t (*ranges)[2], decode_result *results);

/* The (k+1)-th best result for a sentence of the last run; k = 0 is the one that decoder_run gave. False: the search found
 * fewer, at most one for each hypothesis of the beam. Results that ended by themselves come first. */
bool decoder_result(const decoder *d, int sentence, int k, decode_result *out);

/* Decodes any number of sentences in runs of similar lengths; sentence i is the tokens [at[i], at[i + 1]) of src. After a
 * run, calls take(context, i, place) for its sentences: decoder_result(d, place, ...) gives the results for sentence i. A
 * value other than 0 from take ends the decoding and is stored in *taken. */
adamod_status decoder_run_all(decoder *d, int64_t n, const int32_t *src, const int64_t *at,
                              int (*take)(void *context, int64_t sentence, int place), void *context, int *taken);
