/* The driver of rules that first need two sums over an array (optim/sums.c). */
#include "kernels/cuda/sums.cuh"
#include "rules/caution.h"

/* finish of each rule */
#define FINISH(rule)                                                                                                   \
    static __device__ void adamod__##rule##_finish(const double *o, const double *sum, [[maybe_unused]] int64_t count, \
                                                   adamod__coef_f64 *c)
#define ADAMOD_RULE_FINISH
#include "rules/list.inc.h"
#undef ADAMOD_RULE_FINISH
#undef FINISH

static __device__ void finish(int rule, const double *o, const double *sum, int64_t count, adamod__coef_f64 *c) {
#define SUMS(name)                                                                                                     \
    if (rule == RULE_##name) adamod__##name##_finish(o, sum, count, c);
#define CAN_BE_CAUTIOUS(name)                                                                                          \
    if (rule == RULE_##name) adamod__caution_finish(o, sum, count, c);
#include "rules/names.inc.h"
}

/* Coefficients of a tensor, by a warp. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) finish_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[JOIN_WARPS][ORDERED];
    const int64_t i = blockIdx.x * (int64_t)JOIN_WARPS + threadIdx.x / 32;
    if (v.shared->skip || i >= v.n) return;
    const device_tensor &t = v.tensors[i];
    if (!t.g || t.count == 0) return;
    double sum[2];
    join_chunks(v, v.first_chunk[i], v.first_chunk[i + 1], numbers[threadIdx.x / 32], sum);
    if (threadIdx.x % 32 != 0) return;
    adamod__coef_f64 c = v.now[i].wide;
    finish(v.rule, v.effective + t.group * OPT_COUNT, sum, t.count, &c);
    set_coefs(&v.now[i], c);
}

static void run_finish(const view *v, cudaStream_t stream) {
    finish_kernel<<<(unsigned)((v->n + JOIN_WARPS - 1) / JOIN_WARPS), 32 * JOIN_WARPS, 0, stream>>>(*v);
}

#define SUMS(name)                                                                                                     \
    static void run_##name(const view *v, int, cudaStream_t stream) {                                                  \
        if (v->n_chunks == 0) return;                                                                                  \
        run_sums<true>(v, stream, 0, name##_variants_f32);                                                             \
        run_sums<true>(v, stream, 1, name##_variants_f64);                                                             \
        run_join(v, stream);                                                                                           \
        run_finish(v, stream);                                                                                         \
    }                                                                                                                  \
    const cuda_driver cuda_##name##_driver = {run_##name, 0, false, NULL};
#include "rules/names.inc.h"

/* Cautious steps, of any rule that can take them: the elements that move are counted first. */
static void run_caution(const view *v, int, cudaStream_t stream) {
    if (v->n_chunks == 0) return;
#define CAN_BE_CAUTIOUS(name)                                                                                          \
    if (v->rule == RULE_##name) {                                                                                      \
        run_cautious_sums(v, stream, 0, name##_variants_f32);                                                          \
        run_cautious_sums(v, stream, 1, name##_variants_f64);                                                          \
    }
#include "rules/names.inc.h"
    run_join(v, stream);
    run_finish(v, stream);
}
const cuda_driver cuda_caution_driver = {run_caution, 0, false, NULL};
