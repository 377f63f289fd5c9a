/* libFuzzer target: trainer/data/npy.c, on the bytes of a .npy file.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "data/npy.h"
#include "core/error.h"

static void check_array(const npy_array *a, size_t size) {
    uint64_t count = 1;
    require(a->ndim >= 0 && a->ndim <= NPY_MAX_DIMS);
    for (int i = 0; i < a->ndim; i++) {
        require(a->shape[i] >= 0);
        count *= (uint64_t)a->shape[i];
    }
    require(count == a->count);
    require(a->type == NPY_F32 || a->type == NPY_F64);
    require(a->data && a->count <= size / npy_type_size(a->type));
    /* volatile, so that every byte is really read */
    const volatile unsigned char *bytes = a->data;
    for (size_t i = 0; i < a->count * npy_type_size(a->type); i++) (void)bytes[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    npy_array array;
    if (npy_parse(data, size, "f", &array) == 0) {
        check_array(&array, size);
        npy_free(&array);
    } else {
        require(!array.data && !strncmp(adamod__last_message(), "f: ", 3) && is_line(adamod__last_message()));
    }
    return 0;
}
