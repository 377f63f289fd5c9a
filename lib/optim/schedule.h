/* Schedules, for the files of the optimizer. */
#ifndef ADAMOD_SCHEDULE_H
#define ADAMOD_SCHEDULE_H

#include "optim/internal.h"

/* number is start, end or factor. whole is steps, or the number of entries of list: milestones, or lengths of parts. */
struct adamod_schedule {
    int kind; /* a schedule_kind of schedule.inc.h */
    double number;
    int64_t whole;
    int64_t *list;
    adamod_schedule **parts;
    int depth; /* nesting of chains, this one included: bounds the recursion of functions that walk a schedule */
};

/* Returns NULL, with the message set, if out of memory. */
adamod_schedule *adamod__schedule_copy(const adamod_schedule *from);

#endif
