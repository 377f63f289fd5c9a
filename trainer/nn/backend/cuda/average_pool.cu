/* Means over windows and their gradient (ops/average_pool.c): a thread has N channels of one output pixel. */
#include "nn/backend/cuda/moments.cuh"

struct pool_shape {
    int64_t pixels, packs; /* of the output */
    int64_t height, width, size, x_stride, y_stride;
};

/* The first pixel of an output pixel's window. */
__device__ static inline int64_t first_of(const pool_shape &s, int64_t to) {
    const int64_t width = s.width / s.size, height = s.height / s.size;
    return (to / (width * height) * s.height + to / width % height * s.size) * s.width + to % width * s.size;
}

template <typename T, int N> __global__ static void forward_kernel(pool_shape s, const T *x, T *y) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, to = i / s.packs, j = i % s.packs * N;
    if (to >= s.pixels) return;
    const T *window = x + first_of(s, to) * s.x_stride + j;
    float sum[N] = {};
    for (int64_t a = 0; a < s.size; a++) {
        for (int64_t b = 0; b < s.size; b++) {
            float v[N];
            load_floats<N>(window + (a * s.width + b) * s.x_stride, v);
            for (int k = 0; k < N; k++) sum[k] += v[k];
        }
    }
    for (int k = 0; k < N; k++) sum[k] /= (float)(s.size * s.size);
    store_floats<N>(y + to * s.y_stride + j, sum);
}

/* An output's gradient: the numbers in memory, and the linear part in live rows. */
template <typename T> struct pool_grad {
    const T *dy, *y;
    nn_channel_pairs linear;
    const int64_t *live_rows;
    int64_t pixels_a_row;
    __device__ bool has_part(int64_t pixel) const {
        return linear.first && (!live_rows || pixel < *live_rows * pixels_a_row);
    }
};

template <typename T, int N> __global__ static void backward_kernel(pool_shape s, pool_grad<T> from, target<T> dx) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, to = i / s.packs, j = i % s.packs * N;
    if (to >= s.pixels) return;
    const int64_t first = first_of(s, to);
    float g[N];
    load_floats<N>(from.dy + to * s.y_stride + j, g);
    if (from.has_part(to)) {
        float y[N];
        load_floats<N>(from.y + to * s.y_stride + j, y);
        for (int k = 0; k < N; k++)
            g[k] += fmaf(from.linear.first[from.linear.stride + j + k], y[k], from.linear.first[j + k]);
    }
    for (int k = 0; k < N; k++) g[k] /= (float)(s.size * s.size);
    for (int64_t a = 0; a < s.size; a++) {
        for (int64_t b = 0; b < s.size; b++) put<N>(dx, (first + a * s.width + b) * s.x_stride + j, g);
    }
}

template <typename T, int N> static void run(const nn_call *c) {
    const nn_array *x = &c->input[0], *y = &c->output[0];
    const pool_shape s = {
        nn_pixels(y), nn_channels(y) / N, x->shape->dim[1], x->shape->dim[2], NN_ATTR(average_pool, c)->size,
        x->stride,    y->stride};
    const unsigned blocks = (unsigned)parts(s.pixels * s.packs, 256);
    if (blocks == 0) return;
    if (!c->grad->output[0]) {
        forward_kernel<T, N><<<blocks, 256, 0, stream_of(c)>>>(s, (const T *)x->data, (T *)y->data);
    } else if (c->grad->input[0]) {
        const pool_grad<T> from = {(const T *)c->grad->output[0], (const T *)y->data, c->fused->output_linear,
                                   y->live_rows, y->cols / nn_channels(y)};
        backward_kernel<T, N><<<blocks, 256, 0, stream_of(c)>>>(s, from, target_of<T>(c, 0));
    }
}

template <typename T> static void by_access(const nn_call *c) {
    constexpr int N = pack<T>::N;
    const nn_array *x = &c->input[0], *y = &c->output[0];
    bool packs = nn_channels(x) % N == 0 && x->stride % N == 0 && y->stride % N == 0;
    const void *const data[] = {x->data, y->data, c->grad->output[0], c->grad->input[0]};
    for (const void *p : data) packs = packs && (uintptr_t)p % 16 == 0;
    if (packs) run<T, N>(c);
    else run<T, 1>(c);
}

/* ---- moments of the output ---- */

static moments_work moments_of_y(const nn_call *c) {
    return moments_of(nn_pixels(&c->output[0]), nn_channels(&c->output[0]));
}

static bool wants_moments(const nn_call *c) { return c->fused->output_moments.first && !c->grad->output[0]; }

static adamod_status pool_prepare(const nn_call *c, void **counters) {
    const moments_work w = moments_of_y(c);
    const size_t n = (size_t)moments_columns(w.channels);
    return wants_moments(c) ? nn_cuda_zeros(counters, n * sizeof(unsigned), c) : ADAMOD_OK;
}

static void pool_release(void *counters) { cudaFree(counters); }

static size_t pool_workspace(const nn_call *c) {
    const moments_work w = moments_of_y(c);
    return wants_moments(c) ? moments_floats(w.tiles, w.channels) : 0;
}

static bool pool_gives_moments(const nn_call *c) {
    const nn_array *y = &c->output[0];
    return y->type == NN_BF16 && nn_channels(y) % 8 == 0 && y->stride % 8 == 0 && y->offset % 8 == 0;
}

static bool pool_takes_linear(const nn_call *) { return true; }

/* ---- forward and backward ---- */

static void average_pool(const nn_call *c) {
    const nn_array *y = &c->output[0];
    BY_TYPE(c->input[0].type, by_access, c);
    if (!wants_moments(c)) return;
    moments_work w = moments_of_y(c);
    w.partials = c->workspace;
    w.counters = (unsigned *)c->prepared;
    w.to = c->fused->output_moments;
    find_moments(c, w, y, y->data, y->stride, NULL);
}

const nn_kernels nn_cuda_average_pool = {
    .forward = average_pool,
    .backward = average_pool,
    .workspace = pool_workspace,
    .prepare = pool_prepare,
    .release = pool_release,
    .fusion = {.gives_moments = pool_gives_moments, .takes_linear = pool_takes_linear}};
