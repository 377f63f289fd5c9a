/* min_heap.h - a queue that gives the least item first. */
#pragma once

#include "support/array.h"

#include <stdint.h>

/* Ordered by key, then by tie. */
typedef struct min_heap_item {
    uint64_t key, tie;
    int64_t value;
} min_heap_item;

typedef struct min_heap {
    min_heap_item *items;
    size_t n, room;
} min_heap;

static inline bool min_heap_less(const min_heap_item *a, const min_heap_item *b) {
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

/* false: out of memory. */
static inline bool min_heap_push(min_heap *h, min_heap_item item) {
    if (!ARRAY_RESERVE(h->items, h->n + 1, h->room)) return false;
    size_t i = h->n++;
    for (; i && min_heap_less(&item, &h->items[(i - 1) / 2]); i = (i - 1) / 2) h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = item;
    return true;
}

/* Takes the least item; there must be one. */
static inline min_heap_item min_heap_pop(min_heap *h) {
    const min_heap_item least = h->items[0], last = h->items[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && min_heap_less(&h->items[child + 1], &h->items[child])) child++;
        if (!min_heap_less(&h->items[child], &last)) break;
        h->items[i] = h->items[child];
    }
    h->items[i] = last;
    return least;
}
