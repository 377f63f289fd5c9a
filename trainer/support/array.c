#include "support/array.h"

#include "core/error.h"

static bool resize(void *array, size_t n, size_t size) {
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    if (!(grown = adamod__resize(old, n, size))) return false;
    memcpy(array, &grown, sizeof grown);
    return true;
}

bool array_extend(void *array, size_t n, size_t size) {
    return (n & (n - 1)) != 0 || resize(array, n ? 2 * n : 1, size);
}

bool array_grow(void *array, size_t n, size_t *room, size_t size) {
    const size_t more = n > SIZE_MAX / 4 ? n : 2 * n + 16;
    if (!resize(array, more, size)) return false;
    *room = more;
    return true;
}
