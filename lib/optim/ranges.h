/* A set of address ranges that finds overlaps in logarithmic time.
 *
 * A treap (Seidel and Aragon, Randomized search trees, 1996) sorted by begin, in which every node knows the furthest end
 * in its subtree. A node's priority is a hash of its index, so that the tree does not depend on chance. */
#ifndef ADAMOD_RANGES_H
#define ADAMOD_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct adamod__range {
    uintptr_t begin, end;
    uintptr_t reach, reach_written; /* furthest end in the subtree, of all ranges and of written ones */
    int32_t left, right;            /* 0: none */
    int32_t owner, order;           /* a parameter's number, and which of its arrays */
    bool written;
} adamod__range;

/* Start from {0}. */
typedef struct adamod__ranges {
    adamod__range *nodes;
    int32_t root, used, capacity, unused; /* unused: head of the list of removed nodes */
} adamod__ranges;

/* Makes room for more ranges; false if out of memory. */
bool adamod__ranges_reserve(adamod__ranges *r, size_t more);
/* Adds a range, for which there must be room. An empty range, or one at NULL, is ignored. */
void adamod__ranges_add(adamod__ranges *r, const void *data, size_t bytes, int64_t owner, int order, bool written);
/* Removes a range that was added with these arguments. */
void adamod__ranges_remove(adamod__ranges *r, const void *data, size_t bytes, int64_t owner, int order);
/* Returns a range that overlaps these bytes, or NULL. If they are only read, ranges that are only read do not count. */
const adamod__range *adamod__ranges_find(const adamod__ranges *r, const void *data, size_t bytes, bool written);
/* Removes all ranges and keeps the room. */
void adamod__ranges_clear(adamod__ranges *r);
void adamod__ranges_free(adamod__ranges *r);

#endif
