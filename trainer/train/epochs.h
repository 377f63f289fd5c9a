/* epochs.h - converts epochs to updates.
 *
 * n epochs of b batches are ceil(n b / a) updates of a batches. b is task.batches, also if a later epoch has more or fewer
 * batches, as with batches by tokens: all epochs in a recipe are converted once. */
#pragma once

#include "support/keys.h"

#include <stdint.h>

typedef struct epoch_length {
    int64_t batches; /* per epoch; 0: not known yet */
    int accumulate;  /* batches per update */
} epoch_length;

/* At least 1. */
int64_t epochs_to_updates(epoch_length length, double epochs);

/* How often something that happens at 1, 2, ... times the span has happened after update step. */
int64_t epochs_times(epoch_length length, key_span every, int64_t step);
/* Whether it happens at this update. */
bool epochs_due(epoch_length length, key_span every, int64_t step);

/* Epochs done when batch index of an epoch is next, to six decimals. It stays below epoch + 1. */
double epochs_done(epoch_length length, int64_t epoch, int64_t index);

/* Replaces each "150 epochs" in a schedule by updates, for the library. If the length is not known yet, by a number as long
 * as the text, to check the rest. False: it does not fit. */
bool epochs_schedule(epoch_length length, const char *text, char *out, size_t size);
