/* mean_loss.h - the "training loss" of result.json, the terminal and reports: the mean of the losses in metrics.jsonl over
 * the last 5 % of the updates. A loss stands for all updates since the previous line; skipped updates do not count. */
#pragma once

#include <stdint.h>

/* path: of metrics.jsonl; step: the last update. *out is NAN if there is no loss. */
int mean_training_loss(const char *path, int64_t step, double *out);
