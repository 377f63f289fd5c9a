/* y = x + dropout(branch): see ops/add.c. */
#include "nn/backend/cuda/cuda.h"

enum { THREADS = 256, CHUNK = 8 /* numbers of a thread */ };

template <typename T> __global__ static void forward_kernel(drop d, const T *x, const T *branch, T *y, int64_t n) {
    const int64_t first = CHUNK * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    const uint64_t key = drop_key(d);
    if (first + CHUNK <= n) {
        float z[CHUNK], b[CHUNK];
        load_floats<CHUNK>(x + first, z);
        load_floats<CHUNK>(branch + first, b);
        const unsigned kept = drop_kept(d, key, first);
        for (int k = 0; k < CHUNK; k++) z[k] += kept >> k & 1 ? d.scale * b[k] : 0;
        store_floats<CHUNK>(y + first, z);
        return;
    }
    for (int64_t i = first; i < n; i++) {
        y[i] = narrow<T>(widen(x[i]) + (drop_keeps(d, key, i) ? d.scale * widen(branch[i]) : 0));
    }
}

/* x and branch may be one value, with one gradient. So a number's dx is complete before its branch's gradient begins. */
template <typename T>
__global__ static void backward_kernel(drop d, const T *dy, target<T> dx, target<T> db, int64_t n) {
    const int64_t first = CHUNK * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    const uint64_t key = db.to ? drop_key(d) : 0;
    if (first + CHUNK <= n) {
        float g[CHUNK];
        load_floats<CHUNK>(dy + first, g);
        put<CHUNK>(dx, first, g);
        if (!db.to) return;
        const unsigned kept = drop_kept(d, key, first);
        for (int k = 0; k < CHUNK; k++) g[k] = kept >> k & 1 ? d.scale * g[k] : 0;
        put<CHUNK>(db, first, g);
        return;
    }
    for (int64_t i = first; i < n; i++) {
        const float g = widen(dy[i]), dropped = drop_keeps(d, key, i) ? d.scale * g : 0;
        put<1>(dx, i, &g);
        put<1>(db, i, &dropped);
    }
}

static int64_t count_of(const nn_call *c) { return c->output[0].rows * c->output[0].cols; }

static unsigned blocks_of(const nn_call *c) { return (unsigned)parts(count_of(c), CHUNK * THREADS); }

template <typename T> static void forward(const nn_call *c) {
    if (count_of(c) == 0) return;
    forward_kernel<T><<<blocks_of(c), THREADS, 0, stream_of(c)>>>(
        drop_of(c), (const T *)c->input[0].data, (const T *)c->input[1].data, (T *)c->output[0].data, count_of(c));
}

/* A gradient in the place of the output's is there already. */
template <typename T> static target<T> target_elsewhere(const nn_call *c, int input) {
    const target<T> t = target_of<T>(c, input);
    return t.to == (T *)c->grad->output[0] && !t.add ? target<T>{NULL, false} : t;
}

template <typename T> static void backward(const nn_call *c) {
    const target<T> dx = target_elsewhere<T>(c, 0), db = target_elsewhere<T>(c, 1);
    if (count_of(c) == 0 || (!dx.to && !db.to)) return;
    backward_kernel<T>
        <<<blocks_of(c), THREADS, 0, stream_of(c)>>>(drop_of(c), (const T *)c->grad->output[0], dx, db, count_of(c));
}

extern "C" const nn_kernels nn_cuda_add = {.forward = NN_BY_TYPE(output[0], forward),
                                           .backward = NN_BY_TYPE(output[0], backward)};
