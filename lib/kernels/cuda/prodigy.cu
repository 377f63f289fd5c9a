/* Prodigy's driver, which estimates d, one number for all tensors (rules/prodigy.c). */
#include "kernels/cuda/sums.cuh"
#include "rules/prodigy.h"

enum { DECIDE_THREADS = 256 };

static __device__ bool takes_part(const device_tensor &t) { return t.g && t.count > 0; }

/* The first of the tensors with the most updates; -1: there is no gradient. Called by all threads. */
static __device__ int64_t find_lead(const view &v) {
    __shared__ int64_t found[DECIDE_THREADS];
    int64_t lead = -1;
    for (int64_t i = threadIdx.x; i < v.n; i += DECIDE_THREADS) {
        if (takes_part(v.tensors[i]) && (lead < 0 || v.steps[i] > v.steps[lead])) lead = i;
    }
    found[threadIdx.x] = lead;
    __syncthreads();
    for (int j = 0; j < DECIDE_THREADS; j++) {
        const int64_t i = found[j];
        if (i < 0) continue;
        const bool first = lead < 0 || v.steps[i] > v.steps[lead] || (v.steps[i] == v.steps[lead] && i < lead);
        if (first) lead = i;
    }
    return lead;
}

static __device__ double load_number(const device_tensor &t, int state) {
    if (t.p_type == ADAMOD_F64) return load_as<double>(t.state[state], t.state_type, 0);
    return (double)load_as<float>(t.state[state], t.state_type, 0);
}

static __device__ void store_number(const device_tensor &t, int state, double x, uint64_t key) {
    if (t.p_type == ADAMOD_F64) store_state<double>(t, state, 0, 0, 0, x, key);
    else store_state<float>(t, state, 0, 0, 0, (float)x, key);
}

static __device__ prodigy_numbers numbers_of(const view &v, int64_t lead) {
    const device_tensor &t = v.tensors[lead];
    const prodigy_numbers x = {load_number(t, PRODIGY_D), load_number(t, PRODIGY_MOST),
                               load_number(t, PRODIGY_NUMERATOR)};
    return adamod__prodigy_started(x, options_of(v, lead));
}

static __global__ void __launch_bounds__(DECIDE_THREADS) begin_kernel(const __grid_constant__ view v) {
    if (v.shared->skip) return;
    const int64_t lead = find_lead(v);
    if (lead < 0) return;
    const double d = numbers_of(v, lead).d, d0 = options_of(v, lead)[OPT_D0];
    for (int64_t i = threadIdx.x; i < v.n; i += DECIDE_THREADS) {
        adamod__coef_f64 c = v.now[i].wide;
        adamod__prodigy_begin(options_of(v, i), d, d0, &c);
        set_coefs(&v.now[i], c);
    }
}

/* One thread adds the tensors in order; the sums of each are stored at its first chunk. */
static __device__ prodigy_numbers estimate(const view &v, int64_t lead) {
    double along = 0, size = 0;
    for (int64_t i = 0; i < v.n; i++) {
        if (!takes_part(v.tensors[i])) continue;
        const double *sum = &v.partial[2 * v.first_chunk[i]];
        size += sum[0];
        along += v.now[i].wide.high * sum[1];
    }
    prodigy_numbers x = numbers_of(v, lead);
    const adamod_type type = (adamod_type)v.tensors[lead].state_type;
    adamod__prodigy_estimate(options_of(v, lead), along, size, adamod__prodigy_kept(type), &x);
    return x;
}

/* Sums of a tensor, by a warp. */
static __global__ void __launch_bounds__(32 * JOIN_WARPS) tensors_kernel(const __grid_constant__ view v) {
    __shared__ double numbers[JOIN_WARPS][ORDERED];
    const int64_t i = blockIdx.x * (int64_t)JOIN_WARPS + threadIdx.x / 32;
    if (v.shared->skip || i >= v.n || !takes_part(v.tensors[i])) return;
    double sum[2];
    join_chunks(v, v.first_chunk[i], v.first_chunk[i + 1], numbers[threadIdx.x / 32], sum);
    if (threadIdx.x % 32 != 0) return;
    v.partial[2 * v.first_chunk[i]] = sum[0];
    v.partial[2 * v.first_chunk[i] + 1] = sum[1];
}

static __global__ void __launch_bounds__(DECIDE_THREADS) estimate_kernel(const __grid_constant__ view v) {
    __shared__ prodigy_numbers now;
    if (v.shared->skip) return;
    const int64_t lead = find_lead(v);
    if (lead < 0) return;
    if (threadIdx.x == 0) now = estimate(v, lead);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < v.n; i += DECIDE_THREADS) {
        const device_tensor &t = v.tensors[i];
        adamod__coef_f64 c = v.now[i].wide;
        adamod__prodigy_end(now.d, &c);
        set_coefs(&v.now[i], c);
        if (!takes_part(t)) continue;
        store_number(t, PRODIGY_D, now.d, v.now[i].key);
        store_number(t, PRODIGY_MOST, now.most, v.now[i].key);
        store_number(t, PRODIGY_NUMERATOR, now.numerator, v.now[i].key);
    }
}

static void run(const view *v, int, cudaStream_t stream) {
    if (v->n_chunks == 0) return;
    begin_kernel<<<1, DECIDE_THREADS, 0, stream>>>(*v);
    run_sums<false>(v, stream, 0, prodigy_variants_f32);
    run_sums<false>(v, stream, 1, prodigy_variants_f64);
    run_join(v, stream);
    tensors_kernel<<<(unsigned)((v->n + JOIN_WARPS - 1) / JOIN_WARPS), 32 * JOIN_WARPS, 0, stream>>>(*v);
    estimate_kernel<<<1, DECIDE_THREADS, 0, stream>>>(*v);
}

const cuda_driver cuda_prodigy_driver = {run, 0, false, NULL};
