/* A step of beam search: see ops/beam.c. A block takes a sentence; one of its threads decides (ops/beam.h), all of them copy
 * what follows from it. */
#include "nn/backend/cuda/cuda.h"
#include "nn/ops/beam.h"

enum { THREADS = 64, LISTS = 4096 }; /* LISTS: floats of a sentence's lists that are read ahead */

struct beam_call {
    nn_beam_options o;
    const float *best;
    int n; /* of a list */
    int32_t *search, *ids, *positions, *paths;
    float *live;
};

__global__ static void __launch_bounds__(THREADS) beam_kernel(beam_call p) {
    __shared__ nn_beam_step s;
    __shared__ float lists[LISTS];
    const int beam = p.o.beam, length = p.o.max_length, thread = (int)threadIdx.x;
    const int64_t sentence = blockIdx.x, row = sentence * beam;
    const nn_beam_view v = nn_beam_at(beam, length, p.search + sentence * nn_beam_width(beam, length));
    int32_t *paths = p.paths + row * length;
    if (v.count[BEAM_DONE]) {
        if (thread == 0) p.live[sentence] = 0;
        return;
    }
    const float *best = p.best + row * 2 * p.n;
    const int floats = beam * 2 * p.n;
    if (floats <= LISTS) {
        for (int i = thread; i < floats; i += THREADS) lists[i] = best[i];
        best = lists;
    }
    __syncthreads();
    if (thread == 0) nn_beam_decide(&v, &p.o, best, p.n, &s);
    __syncthreads();
    for (int k = 0; k < s.copies; k++) {
        for (int t = thread; t <= s.time; t += THREADS) nn_beam_copy_token(&v, &s, &s.copy[k], paths, t);
    }
    __syncthreads();
    for (int t = thread; !s.done && t <= s.time; t += THREADS) nn_beam_follow(&v, &s, paths, t);
    __syncthreads();
    for (int b = thread; b < beam; b += THREADS) nn_beam_feed(&v, &s, b, p.ids + row, p.positions + row, paths);
    if (thread == 0) p.live[sentence] = s.done ? 0 : 1;
}

static void beam_forward(const nn_call *c) {
    const beam_call p = {*NN_ATTR(beam, c),
                         (const float *)c->input[BEAM_BEST].data,
                         (int)(c->input[BEAM_BEST].cols / 2),
                         (int32_t *)c->output[BEAM_SEARCH].data,
                         (int32_t *)c->output[BEAM_IDS].data,
                         (int32_t *)c->output[BEAM_POSITIONS].data,
                         (int32_t *)c->output[BEAM_PATHS].data,
                         (float *)c->output[0].data};
    if (c->output[0].rows > 0) beam_kernel<<<(unsigned)c->output[0].rows, THREADS, 0, stream_of(c)>>>(p);
}

extern "C" const nn_kernels nn_cuda_beam = {.forward = beam_forward};
