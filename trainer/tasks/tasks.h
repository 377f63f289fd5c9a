/* tasks.h - the kinds of problem that this program trains on. A new one is a file beside this one and a line in tasks.c. */
#pragma once

#include "train/task.h"

/* The choices of data.task, for recipe_defaults; the first is the default. Ends with NULL. */
extern const task *const tasks_all[];

/* All metrics of all tasks, to read run directories without a task.json, which versions before 0.2 made. */
const metric *tasks_metrics(int *n);
