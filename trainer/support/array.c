#include "support/array.h"

#include "core/error.h"

bool array_grow(void *array, size_t n, size_t *room, size_t size) {
    const size_t more = n > SIZE_MAX / 4 ? n : 2 * n + 16;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    if (!(grown = adamod__resize(old, more, size))) return false;
    memcpy(array, &grown, sizeof grown);
    *room = more;
    return true;
}
