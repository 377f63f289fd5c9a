/* The driver of rules that need two sums over an array first: see ../../sums.c. */
#include "optim/kernels/cuda/sums.cuh"

/* finish, of each of these rules */
#define FINISH(rule)                                                                                                   \
    static __device__ void adamod__##rule##_finish(const double *o, const double *sum, int64_t count,                  \
                                                   adamod__coef_f64 *c)
#define ADAMOD_RULE_FINISH
#include "optim/rules/list.inc.h"
#undef ADAMOD_RULE_FINISH
#undef FINISH

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
        double sum[2];
        tensor_sums(v, i, sum);
        adamod__coef_f64 c = v.now[i].wide;
        finish(v.rule, v.effective + t.group * OPT_COUNT, sum, t.count, &c);
        v.now[i].wide = c;
        v.now[i].narrow = narrowed(c);
    }
}

#define SUMS_DRIVER(name)                                                                                              \
    static void run_##name(const view *v, int, cudaStream_t stream) {                                                  \
        if (v->n_chunks == 0) return;                                                                                  \
        run_sums<true>(v, stream, 0, name##_variants_f32);                                                             \
        run_sums<true>(v, stream, 1, name##_variants_f64);                                                             \
        finish_kernel<<<1, 256, 0, stream>>>(*v);                                                                      \
    }                                                                                                                  \
    extern const cuda_driver cuda_##name##_driver;                                                                     \
    const cuda_driver cuda_##name##_driver = {run_##name, 0, false, NULL};
#define FINISH(name) SUMS_DRIVER(name)
#define ADAMOD_RULE_SUMS
#include "optim/rules/list.inc.h"
#undef ADAMOD_RULE_SUMS
#undef FINISH
