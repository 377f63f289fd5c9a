/* batch.h - batches of packed sentence pairs, prepared by a background thread.
 *
 *     batcher *b;
 *     if (batcher_create(&b, &pairs, &(batch_policy){.tokens = 4000, .shuffle = 1}, seed)) ...
 *     batch_shape most = batcher_capacity(b);                    // the size that arrays need
 *     if (batcher_seek(b, epoch, index)) ...    // to resume; starts at epoch 0, index 0
 *     for (;;) {
 *         const batch *x = batcher_next(b);                      // endless; x->last ends an epoch
 *         ...
 *     }
 *     batcher_free(b);
 *
 * A batch depends only on the corpus, the policy, the seed, its epoch and its index. */
#pragma once

#include "data/corpus.h"

#include <stdint.h>

/* Sentences are packed end to end. The source ends with </s>; the decoder's input begins with <s>, its expected output ends
 * with </s>. Positions count from 0 in each sentence; sentence i has rows ranges[i][0] .. ranges[i][1].
 *
 * Rows after those in use, up to the capacity, are padding for graphs of fixed shape: id </s>, position 0, tgt_out -1,
 * ranges 0, 0. */
typedef struct batch {
    int64_t epoch, index;
    int last;                 /* of its epoch */
    int32_t n;                /* sentences */
    int32_t n_src, n_tgt;     /* rows */
    int64_t *pairs;           /* [n] which of the corpus */
    int32_t *src_ids;         /* [n_src] */
    int32_t *src_positions;   /* [n_src] */
    int32_t (*src_ranges)[2]; /* [n][2] */
    int32_t *tgt_in;          /* [n_tgt] */
    int32_t *tgt_out;         /* [n_tgt] */
    int32_t *tgt_positions;   /* [n_tgt] */
    int32_t (*tgt_ranges)[2]; /* [n][2] */
} batch;

/* By sentences: each batch has `sentences` pairs in shuffled order; the last of an epoch has the rest.
 *
 * By tokens, as in fairseq: pairs are shuffled, stably sorted by target and then by source length, and cut so that
 * sentences * longest <= tokens, where the length of a pair is that of its longer side with </s>. Then the batches are
 * shuffled. Unlike fairseq, which only reorders batches, each epoch also shuffles pairs of equal lengths. `sentences`,
 * if given, is a limit too.
 *
 * Without shuffle, pairs have the order of the corpus, or by tokens the order of their lengths.
 *
 * With ranks > 1, step `index` of a rank is batch index * ranks + rank. All ranks have equally many steps; if batches run
 * out, the last is empty (n is 0). */
typedef struct batch_policy {
    int64_t sentences; /* 0: no limit */
    int64_t tokens;    /* 0: by sentences */
    int shuffle;
    int rank, ranks; /* 0, 0: one process */
    int ring;        /* batches in memory, including the one in use: 2 to 64; 0: 3 */
} batch_policy;

typedef struct batch_shape {
    int32_t n, n_src, n_tgt;
} batch_shape;

typedef struct batcher batcher;

/* The corpus must outlive the batcher and not change. */
int batcher_create(batcher **out, const corpus *c, const batch_policy *policy, uint64_t seed);
void batcher_free(batcher *b); /* NULL is fine */

/* Batches of this rank per epoch. */
int64_t batcher_steps(const batcher *b);
/* The size of the largest batch of any epoch. By sentences, it is that of a batch of the longest sentences. */
batch_shape batcher_capacity(const batcher *b);

/* Makes this the next batch; index batcher_steps(b) is the first of the next epoch. Fails if there is no such batch. */
int batcher_seek(batcher *b, int64_t epoch, int64_t index);

/* Valid until the next call. Call it from one thread at a time. */
const batch *batcher_next(batcher *b);
