/* The driver of rules that need two sums over an array first: see ../../sums.c. */
#include "optim/kernels/cuda/update_any.cuh"

/* finish, of each of these rules */
#define FINISH(rule)                                                                                                   \
    static __device__ void adamod__##rule##_finish(const double *o, const double *sum, int64_t count,                  \
                                                   adamod__coef_f64 *c)
#define ADAMOD_RULE_FINISH
#include "optim/rules/list.inc.h"
#undef ADAMOD_RULE_FINISH
#undef FINISH

/* A block of threads takes a chunk, a warp BLOCK elements of it at a time, so that sums come in the library's order. */
template <class RULE>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    sums_kernel(const __grid_constant__ view v, int variant, int f64) {
    typedef typename RULE::R R;
    __shared__ rounds<2> shared;
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || t.variant != variant || (t.p_type == ADAMOD_F64) != (f64 != 0) || !t.g) return;
    const array_step &now = v.now[c.tensor];
    typename RULE::K k = real<R>::of(now);
    k.flag = 1;
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = UPDATE_THREADS / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double sums[2] = {0, 0};
    int round = 0;
    for (int64_t at = first; at < last; at += warps * BLOCK, round++) {
        const int64_t block = at + warp * BLOCK;
        double sum[2] = {0, 0};
        for (int r = lane; r < BLOCK && block + r < last; r += 32) {
            R before;
            const element<R> x = update_element<RULE>(load_element<RULE, false>(t, now, k, block + r, &before), k);
            sum[0] += (double)x.eta * (double)x.eta;
            sum[1] += (double)x.step * (double)x.step;
        }
        sum[0] = sum_lanes(sum[0]);
        sum[1] = sum_lanes(sum[1]);
        shared.gather(round, sum, active_warps(at, last), [&](int j, double y) { sums[j] += y; });
    }
    if (threadIdx.x != 0) return;
    v.partial[2 * blockIdx.x] = sums[0];
    v.partial[2 * blockIdx.x + 1] = sums[1];
}

static __device__ void finish(int rule, const double *o, const double *sum, int64_t count, adamod__coef_f64 *c) {
    switch (rule) {
#define FINISH(rule)                                                                                                   \
    case RULE_##rule:                                                                                                  \
        adamod__##rule##_finish(o, sum, count, c);                                                                     \
        break;
#define ADAMOD_RULE_SUMS
#include "optim/rules/list.inc.h"
#undef ADAMOD_RULE_SUMS
#undef FINISH
        default: break;
    }
}

static __global__ void finish_kernel(const __grid_constant__ view v) {
    if (v.shared->skip) return;
    for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
        const device_tensor &t = v.tensors[i];
        if (!t.g || t.count == 0) continue;
        double sum[2] = {0, 0};
        for (int64_t chunk = v.first_chunk[i]; chunk < v.first_chunk[i + 1]; chunk++) {
            sum[0] += v.partial[2 * chunk];
            sum[1] += v.partial[2 * chunk + 1];
        }
        adamod__coef_f64 c = v.now[i].wide;
        finish(v.rule, v.effective + t.group * OPT_COUNT, sum, t.count, &c);
        v.now[i].wide = c;
        v.now[i].narrow = narrowed(c);
    }
}

template <class... RULES> static void run_sums(const view *v, cudaStream_t stream, int f64, rule_variants<RULES...>) {
    int variant = 0;
    (sums_kernel<RULES><<<(unsigned)v->n_chunks, UPDATE_THREADS, 0, stream>>>(*v, variant++, f64), ...);
}

#define SUMS_DRIVER(name)                                                                                              \
    static void run_##name(const view *v, int, cudaStream_t stream) {                                                  \
        if (v->n_chunks == 0) return;                                                                                  \
        run_sums(v, stream, 0, name##_variants_f32);                                                                   \
        run_sums(v, stream, 1, name##_variants_f64);                                                                   \
        finish_kernel<<<1, 256, 0, stream>>>(*v);                                                                      \
    }                                                                                                                  \
    extern const cuda_driver cuda_##name##_driver;                                                                     \
    const cuda_driver cuda_##name##_driver = {run_##name, 0, false, NULL};
#define FINISH(name) SUMS_DRIVER(name)
#define ADAMOD_RULE_SUMS
#include "optim/rules/list.inc.h"
#undef ADAMOD_RULE_SUMS
#undef FINISH
