/* Batch norm with residual and activation (ops/batch_norm.c): statistics, then z and the activation, in one launch.
 *
 * A block has some channels of some pixels. It sums over its pixels, meets the blocks with the same channels at a
 * barrier, adds up their sums and goes over its pixels again; pixels that fit into shared memory are read only once.
 * The blocks, and so the order of all sums, follow from the sizes alone. Blocks that meet must all run at once: a
 * launch has no more blocks than fit on the chip, and blocks that wait for room get it when earlier kernels end. On
 * a chip that is too small the two halves are separate launches.
 *
 * If the moments of x are known, forward is the second half alone. Sums over several processes are added up between
 * the halves, in double precision and about 0, since each process has another x_0.
 *
 * Sums are of x - x_0, x_0 the channel's first number, so that a mean far from 0 does not cost the variance digits. */
#include "nn/backend/cuda/hopper/launch.cuh"

#include <stdlib.h>

enum {
    THREADS = 512,
    PACKS = 8,               /* of a block: accesses side by side of a pixel */
    LANES = THREADS / PACKS, /* pixels at once */
    AHEAD = 4,               /* loads of a thread under way at once */
    MOST_BLOCKS = 128        /* as many multiprocessors as chips for this have, or fewer */
};

enum halves { BOTH, SUMS, APPLY };
enum keeps { NOTHING, SOME, ALL }; /* how many of a block's pixels stay in shared memory between the halves */

/* ---- the work of a launch ---- */

typedef struct norm_plan {
    unsigned *barriers;    /* for each group of channels */
    int64_t groups, parts; /* blocks: of channels, and of pixels */
    bool together, beside_others;
    int64_t kept; /* pixels of a block that are read once; 0: everything is read again */
    bool keeps_all;
    size_t shared; /* bytes of shared memory for them */
} norm_plan;

template <typename T> struct norm_work {
    const T *x, *residual, *y; /* y: of forward, where backward needs it; else NULL */
    int64_t x_stride, residual_stride, y_stride;
    const float *gamma, *beta;
    float *saved;    /* mean, then scale */
    float *partials; /* [2, parts, channels] */
    double *totals;  /* [2, channels] of all processes, then their pixels; NULL: this one is alone */
    nn_channel_pairs moments;
    unsigned *barriers;
    const int64_t *live_rows;
    int64_t rows, pixels_a_row, channels, parts, pixels_a_part, kept;
    float eps, momentum;
    bool training, relu;
};

/* A thread's place: its block's channels and pixels, its own first channel, and its lane among pixels. */
template <int N> struct place {
    int64_t channel, first, end; /* pixels */
    int64_t part, group;
    int lane, pack;
    bool there; /* the channel exists */
    template <typename T> __device__ explicit place(const norm_work<T> &w) {
        group = blockIdx.x / w.parts;
        part = blockIdx.x % w.parts;
        pack = (int)threadIdx.x % PACKS;
        lane = (int)threadIdx.x / PACKS;
        channel = (group * PACKS + pack) * N;
        first = part * w.pixels_a_part;
        const int64_t live = (w.live_rows ? *w.live_rows : w.rows) * w.pixels_a_row;
        end = first + w.pixels_a_part < live ? first + w.pixels_a_part : live;
        there = channel < w.channels;
    }
};

template <typename T> __device__ static inline float live_pixels(const norm_work<T> &w) {
    return (float)((w.live_rows ? *w.live_rows : w.rows) * w.pixels_a_row);
}

/* A barrier for the blocks of one group: all see afterwards what each wrote before. The additions of all blocks
 * together flip the highest bit of the counter, for which each waits. */
__device__ static inline void meet(unsigned *counter, int64_t part, unsigned blocks) {
    constexpr unsigned TURN = 1u << 31;
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before = add_acquire_release(counter, part == 0 ? TURN - (blocks - 1) : 1);
        while (((load_acquire(counter) ^ before) & TURN) == 0) {}
    }
    __syncthreads();
}

/* The block's sums of two numbers for each of its channels, into its row of partials. */
template <typename T, int N>
__device__ static inline void leave_sums(const norm_work<T> &w, const place<N> &at, const float (&a)[N],
                                         const float (&b)[N]) {
    __shared__ float shared[2][THREADS / 32][PACKS * N];
    const int warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < N; k++) {
        float s = a[k], t = b[k];
        for (int step = 16; step >= PACKS; step /= 2) {
            s += __shfl_xor_sync(0xffffffffu, s, step);
            t += __shfl_xor_sync(0xffffffffu, t, step);
        }
        if ((int)threadIdx.x % 32 < PACKS) shared[0][warp][at.pack * N + k] = s, shared[1][warp][at.pack * N + k] = t;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 2 * PACKS * N; i += THREADS) {
        const int which = i / (PACKS * N), j = i % (PACKS * N);
        const int64_t channel = at.group * PACKS * N + j;
        float sum = 0;
        for (int k = 0; k < THREADS / 32; k++) sum += shared[which][k][j];
        if (channel < w.channels) w.partials[(which * w.parts + at.part) * w.channels + channel] = sum;
    }
}

/* This process's part of the totals. */
template <typename T> __global__ static void total_kernel(norm_work<T> w, bool backward) {
    const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= w.channels) return;
    const double n = live_pixels(w), origin = backward || n == 0 ? 0 : (double)widen(w.x[k]);
    double a = 0, b = 0;
    for (int64_t part = 0; part < w.parts; part++) {
        a += w.partials[part * w.channels + k];
        b += w.partials[(w.parts + part) * w.channels + k];
    }
    w.totals[k] = a + n * origin;
    w.totals[w.channels + k] = b + origin * (2 * a + n * origin);
    if (k == 0) w.totals[2 * w.channels] = n;
}

template <typename T> __device__ static inline float all_pixels(const norm_work<T> &w) {
    return w.totals ? (float)w.totals[2 * w.channels] : live_pixels(w);
}

/* The sums of all parts, of the thread's channels. */
template <typename T, int N>
__device__ static inline void take_sums(const norm_work<T> &w, const place<N> &at, float (&a)[N], float (&b)[N]) {
    constexpr int COLS = 2 * PACKS * N, SLICES = THREADS / COLS > 0 ? THREADS / COLS : 1;
    constexpr int BATCH = 16; /* on their way at once */
    __shared__ float shared[SLICES][COLS];
    for (int i = (int)threadIdx.x; i < SLICES * COLS; i += THREADS) {
        const int slice = i / COLS, which = i % COLS / (PACKS * N), j = i % (PACKS * N);
        const int64_t channel = at.group * PACKS * N + j;
        float sum = 0;
        if (channel < w.channels) {
            const float *p = w.partials + which * w.parts * w.channels + channel;
            for (int64_t part = slice; part < w.parts; part += BATCH * SLICES) {
                float x[BATCH];
#pragma unroll
                for (int k = 0; k < BATCH; k++) {
                    const int64_t at = part + k * SLICES;
                    x[k] = at < w.parts ? __ldcg(p + at * w.channels) : 0;
                }
#pragma unroll
                for (int k = 0; k < BATCH; k++) sum += x[k];
            }
        }
        shared[slice][i % COLS] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) {
        a[k] = b[k] = 0;
        for (int slice = 0; slice < SLICES; slice++) {
            a[k] += shared[slice][at.pack * N + k];
            b[k] += shared[slice][PACKS * N + at.pack * N + k];
        }
    }
}

/* N numbers as they are stored. */
template <int N, typename T> using raw = typename std::conditional<N == 1, T, uint4>::type;

template <int N, typename T> __device__ static inline raw<N, T> fetch(const T *p) {
    return *reinterpret_cast<const raw<N, T> *>(p);
}
template <int N, typename T> __device__ static inline void open_raw(const raw<N, T> &r, float (&x)[N]) {
    if constexpr (N == 1) x[0] = widen(r);
    else widen_raw<T>(r, x);
}

/* f(pixel, what was loaded) for each of the thread's pixels, AHEAD of them at once: load(pixel) first for all. */
template <int N, typename Load, typename F>
__device__ static inline void each_pixel(const place<N> &at, Load load, F f) {
    if (!at.there) return;
    for (int64_t p = at.first + at.lane; p < at.end; p += AHEAD * LANES) {
        decltype(load(p)) r[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (p + k * LANES < at.end) r[k] = load(p + k * LANES);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (p + k * LANES < at.end) f(p + k * LANES, r[k]);
        }
    }
}

template <keeps KEEP, typename T, int N>
__device__ static inline bool is_kept(const norm_work<T> &w, const place<N> &at, int64_t p) {
    return KEEP == ALL || (KEEP == SOME && p - at.first < w.kept);
}

/* Calls f(place, kept) for the block's pixels that are not in shared memory, then for those that are; a place has the
 * range of pixels. */
template <keeps KEEP, typename T, int N, typename F>
__device__ static inline void each_kind(const norm_work<T> &w, const place<N> &at, F f) {
    place<N> kept = at, other = at;
    if (KEEP == SOME && at.first + w.kept < at.end) kept.end = at.first + w.kept;
    if (KEEP == SOME) other.first = at.first + w.kept;
    if (KEEP != ALL) f(other, false);
    if (KEEP != NOTHING) f(kept, true);
}

/* Zeros in rows that are not of the batch: others' sums over all rows may meet them. */
template <typename T, int N>
__device__ static inline void clear_dead(const norm_work<T> &w, const place<N> &at, T *to, int64_t stride) {
    if (!w.live_rows || !at.there || !to) return;
    const float zero[N] = {};
    const int64_t live = *w.live_rows * w.pixels_a_row, all = w.rows * w.pixels_a_row;
    const int64_t last = at.first + w.pixels_a_part < all ? at.first + w.pixels_a_part : all;
    for (int64_t p = (at.first > live ? at.first : live) + at.lane; p < last; p += LANES)
        store_floats<N>(to + p * stride + at.channel, zero);
}

/* ---- forward ---- */

extern __shared__ __align__(16) unsigned char kept[];

/* The thread's part of a pixel in shared memory. */
template <int N, typename T>
__device__ static inline raw<N, T> *kept_at(const place<N> &at, int64_t p, int array, int64_t pixels) {
    return reinterpret_cast<raw<N, T> *>(kept) + (array * pixels + p - at.first) * PACKS + at.pack;
}

/* Running means and variances. */
struct norm_running {
    float *mean, *variance;
};

/* A thread's numbers of its channels, loaded first, so that nothing waits for them later. The first thread of the
 * first part stores results for all. */
template <int N> struct norm_start {
    float origin[N] = {}, gamma[N], beta[N], mean[N] = {}, variance[N] = {};
    bool tells;
    template <typename T>
    __device__ norm_start(const norm_work<T> &w, const place<N> &at, const norm_running &running) {
        const int64_t channel = at.there ? at.channel : 0;
        tells = at.part == 0 && at.lane == 0 && at.there;
#pragma unroll
        for (int k = 0; k < N; k++) gamma[k] = w.gamma[channel + k], beta[k] = w.beta[channel + k];
        if (w.training && !tells) return;
#pragma unroll
        for (int k = 0; k < N; k++) mean[k] = running.mean[channel + k], variance[k] = running.variance[channel + k];
    }
};

template <typename T, int N, keeps KEEP>
__device__ static inline void forward_sums(const norm_work<T> &w, const place<N> &at, const float (&origin)[N]) {
    float sum[N] = {}, squares[N] = {};
    each_pixel<N>(
        at, [&](int64_t p) { return fetch<N>(w.x + p * w.x_stride + at.channel); },
        [&](int64_t p, const raw<N, T> &r) {
            float x[N];
            open_raw<N, T>(r, x);
            if (is_kept<KEEP>(w, at, p)) *kept_at<N, T>(at, p, 0, 0) = r;
            for (int k = 0; k < N; k++) {
                const float d = x[k] - origin[k];
                sum[k] += d;
                squares[k] = fmaf(d, d, squares[k]);
            }
        });
    leave_sums<T, N>(w, at, sum, squares);
}

/* Mean and scale of the thread's channels. */
template <typename T, int N>
__device__ static inline void find_moments(const norm_work<T> &w, const place<N> &at, const norm_start<N> &start,
                                           const norm_running &running, float (&mean)[N], float (&scale)[N]) {
    if (w.training) {
        float sum[N] = {}, squares[N] = {};
        const float n = all_pixels(w);
        if (!w.moments.first && !w.totals) take_sums<T, N>(w, at, sum, squares);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float d = n > 0 ? sum[k] / n : 0;
            float v = n > 0 ? fmaxf(squares[k] - sum[k] * d, 0) : 0;
            mean[k] = start.origin[k] + d;
            if (w.moments.first && at.there) {
                mean[k] = w.moments.first[at.channel + k];
                v = w.moments.first[w.moments.stride + at.channel + k] * n;
            }
            if (w.totals && at.there) {
                const double s = w.totals[at.channel + k], m = s / w.totals[2 * w.channels];
                mean[k] = n > 0 ? (float)m : 0;
                v = n > 0 ? (float)fmax(w.totals[w.channels + at.channel + k] - s * m, 0.0) : 0;
            }
            scale[k] = 1 / sqrtf(v / fmaxf(n, 1) + w.eps);
            if (!start.tells || n == 0) continue;
            running.mean[at.channel + k] = (1 - w.momentum) * start.mean[k] + w.momentum * mean[k];
            running.variance[at.channel + k] =
                (1 - w.momentum) * start.variance[k] + w.momentum * (v / (n > 1 ? n - 1 : 1));
        }
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) mean[k] = start.mean[k], scale[k] = 1 / sqrtf(start.variance[k] + w.eps);
    }
    if (!start.tells) return;
    for (int k = 0; k < N; k++) w.saved[at.channel + k] = mean[k], w.saved[w.channels + at.channel + k] = scale[k];
}

template <typename T, int N, keeps KEEP>
__device__ static inline void forward_apply(const norm_work<T> &w, const place<N> &at, const norm_start<N> &start,
                                            const norm_running &running, T *y) {
    float mean[N] = {}, scale[N] = {};
    find_moments<T, N>(w, at, start, running, mean, scale);
#pragma unroll
    for (int k = 0; k < N; k++) scale[k] *= start.gamma[k];
    struct pair {
        raw<N, T> x, residual;
    };
    const auto of_pixels = [&](const place<N> &some, bool kept) {
        each_pixel<N>(
            some,
            [&](int64_t p) {
                pair r;
                r.x = kept ? *kept_at<N, T>(at, p, 0, 0) : fetch<N>(w.x + p * w.x_stride + at.channel);
                if (w.residual) r.residual = fetch<N>(w.residual + p * w.residual_stride + at.channel);
                return r;
            },
            [&](int64_t p, const pair &r) {
                float x[N], other[N] = {};
                open_raw<N, T>(r.x, x);
                if (w.residual) open_raw<N, T>(r.residual, other);
                for (int k = 0; k < N; k++) {
                    const float z = fmaf(x[k] - mean[k], scale[k], start.beta[k]) + other[k];
                    x[k] = w.relu && z < 0 ? 0 : z;
                }
                store_floats<N>(y + p * w.y_stride + at.channel, x);
            });
    };
    each_kind<KEEP>(w, at, of_pixels);
}

template <typename T, int N, halves WHICH, keeps KEEP>
__global__ static void __launch_bounds__(THREADS) forward_kernel(norm_work<T> w, norm_running running, T *y) {
    const place<N> at(w);
    norm_start<N> start(w, at, running);
    if (WHICH == BOTH) grid_dependency_sync();
    load_floats<N>(w.x + (at.there ? at.channel : 0), start.origin);
    if (WHICH != APPLY) forward_sums<T, N, KEEP>(w, at, start.origin);
    if (WHICH == BOTH) meet(w.barriers + at.group, at.part, (unsigned)w.parts);
    if (WHICH != SUMS) {
        forward_apply<T, N, KEEP>(w, at, start, running, y);
        clear_dead<T, N>(w, at, y, w.y_stride);
    }
}

/* ---- backward ---- */

/* Targets of the gradients. */
template <typename T> struct norm_grads {
    const T *dy;
    target<T> dx, dresidual;
    target<float> dgamma, dbeta;
    nn_channel_pairs linear; /* zeros where dx is not added to: all of the gradient is in dx */
};

template <int N, typename T> struct pixel_grad { raw<N, T> x, dy, y; };

/* Inputs of z in forward, for a thread's channels. */
template <int N> struct norm_channels {
    float mean[N], scale[N], factor[N], beta[N]; /* factor: gamma times scale */
    template <typename T> __device__ norm_channels(const norm_work<T> &w, const place<N> &at) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int64_t channel = at.there ? at.channel + k : 0; /* nothing is done where there is none */
            mean[k] = w.saved[channel];
            scale[k] = w.saved[w.channels + channel];
            factor[k] = scale[k] * w.gamma[channel];
            beta[k] = w.beta[channel];
        }
    }
};

/* The gradient of z, from the numbers loaded. If z had a residual, y tells where relu was 0; else that is computed
 * again. */
template <int N, typename T>
__device__ static inline void grad_of(const norm_work<T> &w, const norm_channels<N> &of, const pixel_grad<N, T> &r,
                                      const float (&x)[N], float (&g)[N]) {
    open_raw<N, T>(r.dy, g);
    if (!w.relu) return;
    float z[N];
    if (w.y) open_raw<N, T>(r.y, z);
    for (int k = 0; k < N; k++) {
        if (!w.y) z[k] = fmaf(x[k] - of.mean[k], of.factor[k], of.beta[k]);
        g[k] = z[k] > 0 ? g[k] : 0;
    }
}

template <int N, typename T>
__device__ static inline pixel_grad<N, T> load_grad(const norm_work<T> &w, const norm_grads<T> &to, const place<N> &at,
                                                    int64_t p) {
    pixel_grad<N, T> r;
    r.x = fetch<N>(w.x + p * w.x_stride + at.channel);
    r.dy = fetch<N>(to.dy + p * w.y_stride + at.channel);
    if (w.y) r.y = fetch<N>(w.y + p * w.y_stride + at.channel);
    return r;
}

template <typename T, int N, keeps KEEP>
__device__ static inline void backward_sums(const norm_work<T> &w, const norm_grads<T> &to, const place<N> &at,
                                            const norm_channels<N> &of) {
    float sum[N] = {}, product[N] = {};
    each_pixel<N>(
        at, [&](int64_t p) { return load_grad<N>(w, to, at, p); },
        [&](int64_t p, const pixel_grad<N, T> &r) {
            float x[N], g[N];
            open_raw<N, T>(r.x, x);
            grad_of<N>(w, of, r, x, g);
            if (is_kept<KEEP>(w, at, p)) {
                *kept_at<N, T>(at, p, 0, w.kept) = r.x;
                store_floats<N>(reinterpret_cast<T *>(kept_at<N, T>(at, p, 1, w.kept)), g);
            }
            for (int k = 0; k < N; k++) {
                sum[k] += g[k];
                product[k] = fmaf(g[k], x[k] - of.mean[k], product[k]);
            }
        });
    leave_sums<T, N>(w, at, sum, product);
}

/* Turns the sums into the means that the gradient of x needs, and stores the gradients of gamma and beta. */
template <typename T, int N>
__device__ static inline void find_sums(const norm_work<T> &w, const norm_grads<T> &to, const place<N> &at,
                                        const norm_channels<N> &of, float (&sum)[N], float (&product)[N]) {
    take_sums<T, N>(w, at, sum, product);
    const float n = fmaxf(all_pixels(w), 1);
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (at.part == 0 && at.lane == 0 && at.there) {
            const float dgamma[1] = {product[k] * of.scale[k]}, dbeta[1] = {sum[k]};
            put<1>(to.dgamma, at.channel + k, dgamma);
            put<1>(to.dbeta, at.channel + k, dbeta);
            if (to.linear.first && !to.dx.add)
                to.linear.first[at.channel + k] = to.linear.first[to.linear.stride + at.channel + k] = 0;
        }
        if (w.totals && at.there) { /* gradients of parameters are added up later, with all others */
            sum[k] = (float)w.totals[at.channel + k];
            product[k] = (float)w.totals[w.channels + at.channel + k];
        }
        sum[k] = w.training ? sum[k] / n : 0;
        product[k] = w.training ? product[k] * of.scale[k] * of.scale[k] / n : 0;
    }
}

/* x and residual may be one value, with one gradient. So a number's dx is complete before its residual's gradient
 * begins. */
template <typename T, int N, keeps KEEP>
__device__ static inline void backward_apply(const norm_work<T> &w, const norm_grads<T> &to, const place<N> &at,
                                             const norm_channels<N> &of) {
    float sum[N], product[N];
    find_sums<T, N>(w, to, at, of, sum, product);
    if (!to.dx.to && !to.dresidual.to) return;
    const auto of_pixels = [&](const place<N> &some, bool kept) {
        each_pixel<N>(
            some,
            [&](int64_t p) {
                if (!kept) return load_grad<N>(w, to, at, p);
                pixel_grad<N, T> r;
                r.x = *kept_at<N, T>(at, p, 0, w.kept);
                r.dy = *kept_at<N, T>(at, p, 1, w.kept);
                return r;
            },
            [&](int64_t p, const pixel_grad<N, T> &r) {
                float x[N], g[N];
                open_raw<N, T>(r.x, x);
                if (kept) open_raw<N, T>(r.dy, g);
                else grad_of<N>(w, of, r, x, g);
                for (int k = 0; k < N; k++) x[k] = (g[k] - sum[k] - (x[k] - of.mean[k]) * product[k]) * of.factor[k];
                put<N>(to.dx, p * w.x_stride + at.channel, x);
                put<N>(to.dresidual, p * w.residual_stride + at.channel, g);
            });
    };
    each_kind<KEEP>(w, at, of_pixels);
}

template <typename T, int N, halves WHICH, keeps KEEP>
__global__ static void __launch_bounds__(THREADS) backward_kernel(norm_work<T> w, norm_grads<T> to) {
    const place<N> at(w);
    const norm_channels<N> of(w, at);
    if (WHICH == BOTH) grid_dependency_sync();
    if (WHICH != APPLY) backward_sums<T, N, KEEP>(w, to, at, of);
    if (WHICH == BOTH) meet(w.barriers + at.group, at.part, (unsigned)w.parts);
    if (WHICH != SUMS) {
        backward_apply<T, N, KEEP>(w, to, at, of);
        clear_dead<T, N>(w, at, to.dx.add ? NULL : to.dx.to, w.x_stride);
        clear_dead<T, N>(w, at, to.dresidual.add ? NULL : to.dresidual.to, w.residual_stride);
    }
}

/* ---- launches ---- */

/* Numbers of an access: a pack where every pixel's channels begin at one, else one. */
static bool in_packs(const nn_call *c) {
    const int64_t n = c->input[0].type == NN_BF16 ? 8 : 4;
    bool whole = nn_channels(&c->input[0]) % n == 0 && c->input[0].stride % n == 0 && c->output[0].stride % n == 0;
    if (c->input[1].shape) whole = whole && c->input[1].stride % n == 0;
    const void *const data[] = {c->input[0].data,   c->input[1].data,  c->output[0].data,
                                c->grad->output[0], c->grad->input[0], c->grad->input[1]};
    for (const void *p : data) whole = whole && (uintptr_t)p % 16 == 0;
    return whole;
}

static int64_t group_of(const nn_call *c) { return PACKS * (!in_packs(c) ? 1 : c->input[0].type == NN_BF16 ? 8 : 4); }

static int64_t capacity_pixels(const nn_call *c) { return nn_pixels(&c->input[0]); }

static void count_blocks(const nn_call *c, norm_plan *p) {
    const int64_t most = parts(capacity_pixels(c), LANES);
    p->groups = parts(nn_channels(&c->input[0]), group_of(c));
    p->parts = MOST_BLOCKS / p->groups;
    if (p->parts > most) p->parts = most;
    if (p->parts < 1) p->parts = 1;
}

template <typename T> static norm_work<T> work_of(const nn_call *c) {
    const norm_plan *p = (const norm_plan *)c->prepared;
    norm_work<T> w = {};
    w.relu = NN_ATTR(batch_norm, c)->activation == NN_RELU;
    w.x = (const T *)c->input[0].data;
    w.residual = (const T *)c->input[1].data;
    w.y = w.relu && c->input[1].shape ? (const T *)c->output[0].data : NULL;
    w.x_stride = c->input[0].stride;
    w.residual_stride = c->input[1].stride;
    w.y_stride = c->output[0].stride;
    w.gamma = (const float *)c->input[2].data;
    w.beta = (const float *)c->input[3].data;
    w.saved = c->saved;
    w.partials = c->workspace;
    w.moments = c->fused->moments;
    w.barriers = p->barriers;
    w.live_rows = c->input[0].live_rows;
    w.rows = c->input[0].rows;
    w.channels = nn_channels(&c->input[0]);
    w.pixels_a_row = c->input[0].cols / w.channels;
    w.parts = p->parts;
    w.pixels_a_part = parts(w.rows * w.pixels_a_row, w.parts);
    w.kept = p->kept;
    w.eps = (float)NN_ATTR(batch_norm, c)->eps;
    w.momentum = (float)NN_ATTR(batch_norm, c)->momentum;
    w.training = c->training;
    if (c->sync->add_up && c->training) w.totals = (double *)(void *)(w.partials + 2 * w.parts * w.channels);
    return w;
}

static void tell(cudaError_t e) {
    if (e != cudaSuccess) nn_cuda_launch_failed("a batch norm", cudaGetErrorString(e));
}

static void launch(const void *kernel, unsigned blocks, size_t shared, void **arguments, const nn_call *c) {
    if (blocks != 0) tell(cudaLaunchKernel(kernel, blocks, THREADS, arguments, shared, stream_of(c)));
}

/* Launches blocks that wait for each other. If kernels of other processes run at the same time, the launch must be
 * cooperative: two such kernels with half of their blocks running each would wait forever. */
static void launch_meeting(const void *kernel, unsigned blocks, size_t shared, void **arguments, const nn_call *c) {
    const norm_plan *p = (const norm_plan *)c->prepared;
    if (p->beside_others && blocks != 0)
        tell(cudaLaunchCooperativeKernel(kernel, blocks, THREADS, arguments, shared, stream_of(c)));
    else if (blocks != 0 && may_launch_dependent(kernel, stream_of(c)))
        tell(launch_dependent(kernel, blocks, THREADS, arguments, shared, stream_of(c)));
    else launch(kernel, blocks, shared, arguments, c);
}

/* The kernels of one shape. */
struct norm_kernels {
    const void *all, *some, *both, *sums, *apply; /* kernels that keep all or some pixels in shared memory, and none */
};

template <typename T> static void add_up_totals(const nn_call *c, const norm_work<T> &w, bool backward) {
    if (!w.totals) return;
    total_kernel<T><<<(unsigned)parts(w.channels, 128), 128, 0, stream_of(c)>>>(w, backward);
    c->sync->add_up(c->sync->context, w.totals, 2 * w.channels + 1);
}

template <typename T, int N> static norm_kernels kernels_of(bool backward) {
    norm_kernels k;
    if (backward) {
        k.all = (const void *)backward_kernel<T, N, BOTH, ALL>;
        k.some = (const void *)backward_kernel<T, N, BOTH, SOME>;
        k.both = (const void *)backward_kernel<T, N, BOTH, NOTHING>;
        k.sums = (const void *)backward_kernel<T, N, SUMS, NOTHING>;
        k.apply = (const void *)backward_kernel<T, N, APPLY, NOTHING>;
    } else {
        k.all = (const void *)forward_kernel<T, N, BOTH, ALL>;
        k.some = (const void *)forward_kernel<T, N, BOTH, SOME>;
        k.both = (const void *)forward_kernel<T, N, BOTH, NOTHING>;
        k.sums = (const void *)forward_kernel<T, N, SUMS, NOTHING>;
        k.apply = (const void *)forward_kernel<T, N, APPLY, NOTHING>;
    }
    return k;
}

static norm_kernels kernels_for(const nn_call *c, bool backward) {
    const bool packs = in_packs(c);
    if (c->input[0].type == NN_BF16) return packs ? kernels_of<bf16, 8>(backward) : kernels_of<bf16, 1>(backward);
    return packs ? kernels_of<float, 4>(backward) : kernels_of<float, 1>(backward);
}

static const void *meeting_kernel(const norm_kernels &k, const norm_plan *p) {
    return p->kept == 0 ? k.both : p->keeps_all ? k.all : k.some;
}

template <typename T>
static void launch_halves(const nn_call *c, const norm_work<T> &w, bool backward, void **arguments) {
    const norm_plan *p = (const norm_plan *)c->prepared;
    const norm_kernels k = kernels_for(c, backward);
    const unsigned blocks = (unsigned)(p->groups * p->parts);
    if (!backward && (!c->training || c->fused->moments.first)) launch(k.apply, blocks, 0, arguments, c);
    else if (p->together && !w.totals) launch_meeting(meeting_kernel(k, p), blocks, p->shared, arguments, c);
    else {
        launch(k.sums, blocks, 0, arguments, c);
        add_up_totals(c, w, backward);
        launch(k.apply, blocks, 0, arguments, c);
    }
}

template <typename T> static void run_forward(const nn_call *c) {
    norm_work<T> w = work_of<T>(c);
    norm_running running = {(float *)c->output[1].data, (float *)c->output[2].data};
    T *y = (T *)c->output[0].data;
    void *arguments[] = {&w, &running, &y};
    launch_halves(c, w, false, arguments);
}

template <typename T> static void run_backward(const nn_call *c) {
    norm_work<T> w = work_of<T>(c);
    norm_grads<T> to = {(const T *)c->grad->output[0], target_of<T>(c, 0),     target_of<T>(c, 1),
                        target_of<float>(c, 2),        target_of<float>(c, 3), c->fused->linear};
    void *arguments[] = {&w, &to};
    launch_halves(c, w, true, arguments);
}

/* ---- plans ---- */

static void norm_release(void *prepared) {
    norm_plan *p = (norm_plan *)prepared;
    if (!p) return;
    cudaFree(p->barriers);
    free(p);
}

static int device_number(cudaDeviceAttr which) {
    int device = 0, n = 0;
    const bool known =
        cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&n, which, device) == cudaSuccess;
    cudaGetLastError();
    return known ? n : 0;
}

/* Whether all blocks run at once. */
static bool fits(const void *kernel, size_t shared, int64_t blocks) {
    const int processors = device_number(cudaDevAttrMultiProcessorCount);
    int each = 0;
    const bool ok = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, THREADS, shared) == cudaSuccess;
    cudaGetLastError();
    return ok && blocks <= (int64_t)processors * each;
}

/* The most shared memory of a block of that kernel; one limit for all nodes. */
static size_t most_shared(const void *kernel) {
    const int all = device_number(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    cudaFuncAttributes a;
    bool ok = cudaFuncGetAttributes(&a, kernel) == cudaSuccess && (size_t)all > a.sharedSizeBytes;
    const size_t most = ok ? (size_t)all - a.sharedSizeBytes : 0;
    ok = ok && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most) == cudaSuccess;
    cudaGetLastError();
    return ok ? most : 0;
}

/* As many of a block's pixels as there is room for. A block asks for more than half of a multiprocessor's memory, so
 * that each multiprocessor gets one block; else blocks that begin while another kernel ends would crowd on the first
 * multiprocessors that are free. */
static void keep_pixels(const nn_call *c, norm_plan *p, const norm_kernels &k, bool backward) {
    const int64_t size = group_of(c) * (c->input[0].type == NN_BF16 ? 2 : 4) * (backward ? 2 : 1);
    const int64_t all = parts(capacity_pixels(c), p->parts);
    const size_t most_all = most_shared(k.all), most_some = most_shared(k.some);
    const int64_t most = (int64_t)(most_all < most_some ? most_all : most_some), half = most / 2 + 1024;
    p->keeps_all = all * size <= most;
    p->kept = p->keeps_all ? all : most / size / LANES * LANES;
    if (p->kept == 0) return;
    p->shared = (size_t)(p->kept * size > half ? p->kept * size : half);
    if (!fits(meeting_kernel(k, p), p->shared, p->groups * p->parts)) p->kept = 0, p->shared = 0;
}

/* NVIDIA's Multi-Process Service lets several processes' kernels run at the same time. */
static bool has_service() { return device_number(cudaDevAttrMpsEnabled) != 0; }

static adamod_status norm_prepare(const nn_call *c, void **prepared) {
    norm_plan *p = (norm_plan *)calloc(1, sizeof *p);
    if (!p) return nn_cuda_fail(ADAMOD_ERROR_MEMORY, "out of memory for a batch norm");
    const bool backward = c->grad->output[0];
    const norm_kernels k = kernels_for(c, backward);
    count_blocks(c, p);
    keep_pixels(c, p, k, backward);
    p->beside_others = has_service();
    p->together = p->kept || fits(k.both, 0, p->groups * p->parts);
    const size_t bytes = (size_t)p->groups * sizeof *p->barriers;
    cudaError_t e = cudaMalloc((void **)&p->barriers, bytes);
    if (e == cudaSuccess) e = cudaMemsetAsync(p->barriers, 0, bytes, stream_of(c));
    const adamod_status status = nn_cuda_failed(e, "preparing a batch norm");
    if (status) norm_release(p);
    else *prepared = p;
    return status;
}

static size_t norm_workspace(const nn_call *c) {
    const norm_plan *p = (const norm_plan *)c->prepared;
    const int64_t channels = nn_channels(&c->input[0]),
                  totals = NN_ATTR(batch_norm, c)->synced ? 2 * (2 * channels + 1) : 0;
    return (size_t)(2 * p->parts * channels + totals);
}

const nn_kernels nn_cuda_batch_norm = {.forward = NN_BY_TYPE(input[0], run_forward),
                                       .backward = NN_BY_TYPE(input[0], run_backward),
                                       .workspace = norm_workspace,
                                       .prepare = norm_prepare,
                                       .release = norm_release,
                                       .fusion = {.takes_moments = true, .leaves_linear = true}};
