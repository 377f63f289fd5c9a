/* epochs.h - from epochs to updates, once it is known how many batches an epoch has.
 *
 * After n epochs of b batches, with a batches for an update, ceil(n b / a) updates are done: the first update that ends at
 * or after the end of the epoch. An epoch has the batches that task.batches tells. Where a later one has a few more or
 * fewer, as batches by tokens may have, nothing moves: all that a recipe gives in epochs is converted once, by this number. */
#ifndef ADAMOD_EPOCHS_H
#define ADAMOD_EPOCHS_H

#include "support/keys.h"

#include <stdint.h>

typedef struct epoch_length {
    int64_t batches; /* of an epoch; 0: not known yet */
    int accumulate;  /* batches for an update */
} epoch_length;

/* At least 1. */
int64_t epochs_to_updates(epoch_length length, double epochs);

/* How often something that happens every so often has happened by then: after 1, 2, ... times the span. */
int64_t epochs_times(epoch_length length, key_span every, int64_t step);
/* Whether this update is one of those at which it happens. */
bool epochs_due(epoch_length length, key_span every, int64_t step);

/* How many epochs are done when batch index of an epoch comes next, as a fraction to six decimals. An epoch that has more
 * batches than the length stays below the next one. */
double epochs_done(epoch_length length, int64_t epoch, int64_t index);

/* A schedule as the library reads it: each "150 epochs" in the text becomes so many updates. Where the length is not known
 * yet, epochs become numbers that are as long as the text they stand for, to check the rest of it. False: it does not fit. */
bool epochs_schedule(epoch_length length, const char *text, char *out, size_t size);

#endif
