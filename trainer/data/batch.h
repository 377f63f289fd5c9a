/* batch.h - batches of packed sentence pairs, prepared by a thread of their own.
 *
 *     batcher *b;
 *     if (batcher_create(&b, &pairs, &(batch_policy){.tokens = 4000, .shuffle = 1}, seed)) ...
 *     batch_shape most = batcher_capacity(b);                    // before the first batch: what arrays must hold
 *     if (batcher_seek(b, epoch, index)) ...    // to resume; a new one stands at epoch 0, index 0
 *     for (;;) {
 *         const batch *x = batcher_next(b);                      // for ever; x->last ends an epoch
 *         ...
 *     }
 *     batcher_free(b);
 *
 * Batch `index` of epoch `epoch` follows from the corpus, the policy and the seed alone, whatever was asked for before.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef BATCH_H
#define BATCH_H

#include "data/corpus.h"

#include <stddef.h>
#include <stdint.h>

/* Sentences stand end to end. The source ends in </s>; the target as the decoder is given it begins with <s>, and as it
 * is expected ends in </s>. Positions count from 0 in each sentence; sentence i has rows ranges[i][0] .. ranges[i][1].
 *
 * Behind the rows in use, up to the capacity, stand rows that count for nothing, so that a graph of fixed shape may
 * read them: id </s>, position 0, tgt_out -1, ranges 0, 0. */
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

/* By sentences: every batch has so many, the last of an epoch what is left, in the order of the shuffle.
 *
 * By tokens, as fairseq does it: shuffled, stably sorted by target and then by source length (so that the source
 * decides), and cut so that sentences x longest <= tokens, where a sentence is as long as the longer of its sides with
 * </s>; then the batches are shuffled. Each epoch shuffles anew, where fairseq keeps the batches and shuffles only
 * their order; the lengths in every batch are the same either way, as sorting leaves only equals to chance. With
 * `sentences` given too, it is a limit as well.
 *
 * Without shuffle, pairs come in the order of the corpus, by tokens in the order of their lengths.
 *
 * With ranks > 1, an epoch's batches are dealt out: step `index` of this rank is batch index * ranks + rank, and all
 * ranks have as many steps; where batches run out, the last is empty (n is 0). */
typedef struct batch_policy {
    int64_t sentences; /* 0: no limit */
    int64_t tokens;    /* 0: by sentences */
    int shuffle;
    int rank, ranks; /* 0, 0: one process */
    int ring;        /* batches in memory, the one in use included, 2 to 64; 0: 3 */
} batch_policy;

typedef struct batch_shape {
    int32_t n, n_src, n_tgt;
} batch_shape;

typedef struct batcher batcher;

/* The corpus must outlive the batcher and stay as it is. */
int batcher_create(batcher **out, const corpus *c, const batch_policy *policy, uint64_t seed);
void batcher_free(batcher *b); /* NULL is fine */

/* Batches of one epoch, for this rank. */
int64_t batcher_steps(const batcher *b);
/* No batch of any epoch is larger. By tokens it is exact; by sentences it is what the longest sentences would make if
 * chance put them together. */
batch_shape batcher_capacity(const batcher *b);

/* The next batch will be this one; an index of batcher_steps is the beginning of the next epoch. If there is no
 * such batch, it fails and changes nothing. */
int batcher_seek(batcher *b, int64_t epoch, int64_t index);

/* Valid until the next call for this batcher. One thread at a time may call. */
const batch *batcher_next(batcher *b);

#endif
