/* libFuzzer target: trainer/data/npy.c, on the bytes of a .npy file.
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Ilib -Itrainer tests/fuzz/fuzz_npy.c trainer/data/npy.c lib/core/file.c
 *
 * SPDX-License-Identifier: MIT
 */
#include "data/npy.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition) {
    if (!condition) abort();
}

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
        require(!array.data && !strncmp(adamod__last_message(), "f: ", 3) &&
                !strpbrk(adamod__last_message(), "\n\r\033"));
    }
    return 0;
}
