/* tasks.h - the kinds of problem this program trains on.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TASKS_H
#define ADAMOD_TASKS_H

#include "base/metric.h"

/* Every metric of any task, for readers of run directories that do not describe their own (those of version 0.1.0
 * before task.json was written). */
const metric *tasks_metrics(int *n);

#endif
