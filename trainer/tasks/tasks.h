/* tasks.h - the kinds of problem this program trains on. A new one is a file beside this one and a line in tasks.c. */
#ifndef ADAMOD_TASKS_H
#define ADAMOD_TASKS_H

#include "train/task.h"

/* What data.task may say, for recipe_defaults; the first is the default. Ends with NULL. */
extern const task *const tasks_all[];

/* Every metric of any task, for readers of run directories without a task.json, which versions before 0.2 made. */
const metric *tasks_metrics(int *n);

/* What a recipe takes from elsewhere and a run keeps a copy of: the key that names it, where it was, and what the run calls
 * it ("": it is the run itself). */
typedef struct tasks_kept {
    const char *key, *from, *name;
} tasks_kept;
enum { TASKS_KEPT = 2 };
int tasks_keep(const recipe *r, tasks_kept out[TASKS_KEPT]);

#endif
