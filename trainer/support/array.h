/* array.h - arrays that grow at the end.
 *
 *     int *ids = NULL;
 *     size_t n = 0, room = 0;
 *     if (!ARRAY_RESERVE(ids, n + 1, room)) ...       // out of memory: ids is as it was
 *     ids[n++] = 7; */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes room for n elements. Evaluates n and room twice. */
#define ARRAY_RESERVE(array, n, room)                                                                                  \
    ((size_t)(n) <= (room) || array_grow(&(array), (size_t)(n), &(room), sizeof *(array)))

/* Makes room for element n of an array that has grown by this macro alone, from NULL. Its room follows from n: the next power
 * of two. */
#define ARRAY_EXTEND(array, n) array_extend(&(array), (size_t)(n), sizeof *(array))

/* array points to the pointer to the first element. */
bool array_extend(void *array, size_t n, size_t size);
bool array_grow(void *array, size_t n, size_t *room, size_t size);
