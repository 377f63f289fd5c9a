/* pair_map.h - maps two numbers, neither negative, to one.
 *
 *     pair_map m = {0};
 *     int32_t *value = pair_map_at(&m, 3, 4);          // NULL: out of memory
 *     if (*value == PAIR_MAP_NEW) *value = 7;
 *     pair_map_free(&m); */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PAIR_MAP_NEW = INT32_MIN }; /* the value of a new entry */

typedef struct pair_map {
    struct pair_map_slot {
        int32_t a, b, value; /* a is -1: free */
    } * slots;
    size_t mask, count;
} pair_map;

/* The value of two numbers, valid until the next call. NULL: out of memory. */
int32_t *pair_map_at(pair_map *m, int32_t a, int32_t b);
/* The value, or PAIR_MAP_NEW if there is none. */
int32_t pair_map_get(const pair_map *m, int32_t a, int32_t b);
void pair_map_free(pair_map *m);
