/* Rows into a cache, on the processor. */
#include "nn/backend/cpu/cpu.h"

#include <assert.h>
#include <string.h>

enum { ROWS = 64 }; /* of a task */

static void copy_rows(void *context, int64_t task) {
    const nn_call *c = context;
    const int32_t *index = c->input[2].data;
    const int64_t d = c->output[0].cols, width = c->input[1].cols, rows = c->input[1].rows;
    const int64_t end = (task + 1) * ROWS < rows ? (task + 1) * ROWS : rows;
    for (int64_t i = task * ROWS; i < end; i++) {
        assert(index[i] >= 0 && index[i] < c->output[0].rows);
        memcpy((float *)c->output[0].data + index[i] * d, (const float *)c->input[1].data + (i + 1) * width - d,
               (size_t)d * sizeof(float));
    }
}

static void cache_write_forward(const nn_call *c) {
    nn_call call = *c;
    nn_parallel(c->pool, nn_parts(c->input[1].rows, ROWS), copy_rows, &call);
}

const nn_kernels nn_cpu_cache_write = {.forward = cache_write_forward};
