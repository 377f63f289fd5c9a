/* mean_loss.h - what "training loss" means in result.json, on the terminal and in reports: the mean of the losses in
 * metrics.jsonl over the last twentieth of the updates, that is those after 0.95 times the last. A loss stands for all
 * updates since the one before it that has a line; updates that were skipped count nothing. A mean, since the loss of a
 * single batch tells little. */
#ifndef ADAMOD_MEAN_LOSS_H
#define ADAMOD_MEAN_LOSS_H

#include <stddef.h>
#include <stdint.h>

/* Of a metrics.jsonl, the last update being step. *out is NAN where there is no loss. */
int mean_training_loss(const char *path, int64_t step, double *out);

#endif
