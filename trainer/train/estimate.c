#include "train/estimate.h"

#include "support/clock.h"
#include "train/checkpoint.h"
#include "train/progress.h"
#include "train/one_update.h"

#include <stdio.h>

enum { WARM_UP = 3, FEWEST = 3, MOST = 20 }; /* updates */
#define LONG_ENOUGH 2.0                      /* seconds */

/* All ranks stop when one has measured long enough. */
static bool is_enough(const experiment *e, int timed, double seconds) {
    int enough = timed >= MOST || seconds >= LONG_ENOUGH;
    if (timed < FEWEST) return false;
    comm_most(e->comm, &enough, 1);
    return enough;
}

/* As the loop does, each update is concluded after the next has begun. */
static int time_updates(experiment *e, estimate *out) {
    checkpoint_meta at = {0};
    update last = {0};
    double begun = 0, clock = 0;
    int64_t items = 0;
    for (int i = 0;; i++) {
        const int timed = i - WARM_UP;
        update u = {0};
        if (is_enough(e, timed, clock - begun)) break;
        if (update_begin(e, &at, false, &u) || (i && update_end(e, &last))) return -1;
        snprintf(out->diverged, sizeof out->diverged, "%s", *last.diverged ? last.diverged : u.diverged);
        if (*out->diverged) return 0;
        last = u;
        clock = clock_seconds();
        if (timed < 0) begun = clock, items = at.tokens;
        out->updates = timed + 1;
    }
    if (update_end(e, &last)) return -1;
    out->update = (clock_seconds() - begun) / out->updates;
    out->items = (double)(at.tokens - items) / out->updates;
    return 0;
}

int estimate_run(experiment *e, estimate *out) {
    const train_options silent = {.show = TRAIN_SILENT};
    progress p;
    *out = (estimate){0};
    progress_begin(&p, &silent, e, 0, 0);
    if (time_updates(e, out)) return -1;
    if (*out->diverged) return 0;
    const double clock = clock_seconds();
    if (e->task->evaluate(e, SPLIT_VALID, TASK_PERIODIC, NULL, NULL, &p.valid)) return -1;
    out->evaluation = clock_seconds() - clock;
    progress_spent(&p, PROGRESS_TRAINING, out->update);
    progress_spent(&p, PROGRESS_EVALUATING, out->evaluation);
    out->whole = progress_left(&p);
    return 0;
}
