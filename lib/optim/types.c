/* The version, types of elements, shapes of arrays. */
#include "optim/internal.h"

#include <stdio.h>

int adamod_version(void) { return ADAMOD_VERSION; }

const char *adamod_version_string(void) {
#define TEXT(x) #x
#define DOTTED(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
    return DOTTED(ADAMOD_VERSION_MAJOR, ADAMOD_VERSION_MINOR, ADAMOD_VERSION_PATCH);
#undef DOTTED
#undef TEXT
}

bool adamod__is_real(adamod_type type) { return adamod__type_size(type) && type != ADAMOD_Q8; }

const char *adamod__type_name(adamod_type type) {
    static const char *const names[] = {"f32", "f64", "bf16", "f16", "q8"};
    return adamod__type_size(type) ? names[type] : "an unknown type";
}

int64_t adamod__element_count(int ndim, const int64_t *shape) {
    int64_t count = 1;
    bool empty = false; /* a zero makes a shape empty wherever it stands */
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0) return -1;
        empty = empty || shape[d] == 0;
    }
    for (int d = 0; d < ndim && !empty; d++) {
        if (__builtin_mul_overflow(count, shape[d], &count)) return -1;
    }
    if (empty) return 0;
    return count >> ADAMOD__COUNT_BITS == 0 ? count : -1;
}

void adamod__shape_text(int ndim, const int64_t *shape, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (used < size) snprintf(out + used, size - used, "]");
}

adamod_status adamod__check_shape(const char *name, int ndim, const int64_t *shape) {
    char text[192];
    if (ndim < 0 || ndim > ADAMOD_MAX_DIMS) {
        return adamod__refuse("%s: ndim is %d, expected 0 <= ndim <= %d", name, ndim, ADAMOD_MAX_DIMS);
    }
    if (ndim > 0 && !shape) return adamod__refuse("%s: shape is NULL", name);
    if (adamod__element_count(ndim, shape) >= 0) return ADAMOD_OK;
    adamod__shape_text(ndim, shape, text, sizeof text);
    return adamod__refuse("%s: shape is %s, expected no negative dimension and fewer than 2^%d elements", name, text,
                          ADAMOD__COUNT_BITS);
}

bool adamod__overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a && b && a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}
