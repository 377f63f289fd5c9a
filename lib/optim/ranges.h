/* Ranges of addresses, so that one which overlaps another is found in a time that grows as the logarithm of their number.
 *
 * A treap (Seidel and Aragon, Randomized search trees, 1996) in the order of beginnings, in which every node knows how far
 * the ranges below it reach. A node's priority is a hash of its place in memory, so that nothing depends on chance. */
#ifndef ADAMOD_RANGES_H
#define ADAMOD_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct adamod__range {
    uintptr_t begin, end;
    uintptr_t reach, reach_written; /* the furthest end of this and those below, and of what is written among them */
    int32_t left, right;            /* 0: none */
    int32_t owner, order;           /* a parameter's number, and which of its arrays */
    bool written;
} adamod__range;

/* Start from {0}. */
typedef struct adamod__ranges {
    adamod__range *nodes;
    int32_t root, used, capacity, unused; /* unused: the first of those that were removed */
} adamod__ranges;

/* Makes room for so many more; false: no memory. */
bool adamod__ranges_reserve(adamod__ranges *r, size_t more);
/* Needs room. A range without bytes, or at NULL, is none. */
void adamod__ranges_add(adamod__ranges *r, const void *data, size_t bytes, int64_t owner, int order, bool written);
/* As it was added. */
void adamod__ranges_remove(adamod__ranges *r, const void *data, size_t bytes, int64_t owner, int order);
/* One that overlaps these bytes, among all if they are written and among those that are written if not; NULL: none. */
const adamod__range *adamod__ranges_find(const adamod__ranges *r, const void *data, size_t bytes, bool written);
/* Forgets all of them, and keeps the room. */
void adamod__ranges_clear(adamod__ranges *r);
void adamod__ranges_free(adamod__ranges *r);

#endif
