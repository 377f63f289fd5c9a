/* What the optimizer needs of schedules beyond the public interface. */
#ifndef ADAMOD_SCHEDULE_H
#define ADAMOD_SCHEDULE_H

#include "optim/internal.h"

/* number is start, end or factor; whole is steps, or how many follow in list: milestones, or lengths of parts. */
struct adamod_schedule {
    int kind; /* a schedule_kind of schedule.inc.h */
    double number;
    int64_t whole;
    int64_t *list;
    adamod_schedule **parts;
    int depth; /* of chains within each other, this one included; what walks a schedule calls itself so often */
};

/* NULL, with the last error set, if there is no memory. */
adamod_schedule *adamod__schedule_copy(const adamod_schedule *from);

#endif
