/* array.h - arrays that grow at the end.
 *
 *     int *ids = NULL;
 *     size_t n = 0, room = 0;
 *     if (!ARRAY_RESERVE(ids, n + 1, room)) ...       // out of memory: ids is as it was
 *     ids[n++] = 7;
 */
#ifndef ADAMOD_SUPPORT_ARRAY_H
#define ADAMOD_SUPPORT_ARRAY_H

#include "core/error.h"

/* Makes room for n elements. array points to the pointer to the first of them. */
static inline bool array_reserve(void *array, size_t n, size_t *room, size_t size) {
    if (n <= *room) return true;
    const size_t more = n > SIZE_MAX / 4 ? n : 2 * n + 16;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    if (!(grown = adamod__resize(old, more, size))) return false;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return true;
}
#define ARRAY_RESERVE(array, n, room) array_reserve(&(array), (size_t)(n), &(room), sizeof *(array))

#endif
