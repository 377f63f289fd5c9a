/* AdaShift's driver for spatial = max, where v of a tensor is one number (rules/adashift.c). */
#include "kernels/cuda/joins.cuh"

static __device__ bool is_spatial(const view &v, int64_t i) {
    return v.tensors[i].g && v.tensors[i].variant == 1 && v.tensors[i].count > 0;
}

/* A tensor's largest, by its bits, which order as the numbers do. Reset to 0 when it is read. */
static __device__ unsigned long long *largest_of(const view &v, int64_t i) {
    return (unsigned long long *)v.block_sums + 2 * first_block(v, i, 0, v.first_chunk[i]);
}

enum { SPATIAL_EACH = 16 }; /* elements of a thread */

/* In f32 by the bits, which order as the numbers do. */
template <int TYPE>
static __device__ __forceinline__ double known_largest(const device_tensor &t, int64_t at, int64_t left) {
    float x[SPATIAL_EACH];
    uint32_t most = 0;
#pragma unroll
    for (int r = 0; r < SPATIAL_EACH; r++) {
        x[r] = r * SUM_THREADS < left ? load_as<float>(t.state[2], TYPE, at + r * SUM_THREADS) : 0;
    }
#pragma unroll
    for (int r = 0; r < SPATIAL_EACH; r++) most = max(most, __float_as_uint(x[r]) & 0x7fffffffu);
    return (double)__uint_as_float(__reduce_max_sync(0xffffffffu, most));
}

static __device__ double any_largest(const device_tensor &t, int64_t at, int64_t left) {
    double most = 0;
    for (int r = 0; r < SPATIAL_EACH && r * SUM_THREADS < left; r++) {
        most = larger(most, fabs(load_as<double>(t.state[2], t.state_type, at + r * SUM_THREADS)));
    }
    return largest_lane(most);
}

/* The largest element that leaves the queue; `tiles` blocks of threads share a chunk. */
static __global__ void __launch_bounds__(SUM_THREADS) spatial_kernel(const __grid_constant__ view v, int tiles) {
    const piece c = v.chunks[blockIdx.x / (unsigned)tiles];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || !is_spatial(v, c.tensor)) return;
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int64_t i = first + (int64_t)(blockIdx.x % (unsigned)tiles) * (SPATIAL_EACH * SUM_THREADS) + threadIdx.x;
    const int64_t turn = v.now[c.tensor].turn;
    double most;
    if (t.state_type == ADAMOD_F32) most = known_largest<ADAMOD_F32>(t, turn + i, last - i);
    else if (t.state_type == ADAMOD_BF16) most = known_largest<ADAMOD_BF16>(t, turn + i, last - i);
    else most = any_largest(t, turn + i, last - i);
    __shared__ double warps[SUM_THREADS / 32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < SUM_THREADS / 32; w++) most = larger(most, warps[w]);
    const unsigned long long bits = (unsigned long long)__double_as_longlong(fabs(most));
    unsigned long long *to = largest_of(v, c.tensor);
    if (bits > *(volatile unsigned long long *)to) atomicMax(to, bits); /* NaNs are above infinity */
}

/* The momental bound of the tensor's learning rate. */
template <class R>
static __device__ double bound_rate(const device_tensor &t, const adamod__coef_f64 &c, double rate, uint64_t key) {
    const double s = c.beta3 * (double)load_as<R>(t.state[3], t.state_type, 0) + c.beta3c * rate;
    store_state<R>(t, 3, 0, 0, 0, (R)s, key);
    return s < rate ? s : rate;
}

/* v takes the largest square; lr then is divided by its root here, once. */
template <class R> static __device__ void finish_spatial(const view &v, int64_t i) {
    const device_tensor &t = v.tensors[i];
    array_step &now = v.now[i];
    adamod__coef_f64 c = now.wide;
    const double most = __longlong_as_double((long long)*largest_of(v, i));
    *largest_of(v, i) = 0;
    const double before = (double)load_as<R>(t.state[1], t.state_type, 0);
    const double x = c.beta2 * before + c.beta2c * most * most;
    store_state<R>(t, 1, 0, 0, 0, (R)adamod__saturated(x, t.state_type == ADAMOD_F64), now.key);
    c.high = x > 0 ? c.lr / (sqrt(x * c.vscale) + c.eps) : x;
    c.lr = t.state[3] ? bound_rate<R>(t, c, c.high, now.key) : c.high;
    set_coefs(&now, c);
}

static __global__ void finish_spatial_kernel(const __grid_constant__ view v) {
    if (v.shared->skip) return;
    for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
        if (!is_spatial(v, i)) continue;
        if (v.tensors[i].p_type == ADAMOD_F64) finish_spatial<double>(v, i);
        else finish_spatial<float>(v, i);
    }
}

static void run(const view *v, int, cudaStream_t stream) {
    if (v->n_chunks == 0) return;
    const int tiles = (int)((v->chunk + SPATIAL_EACH * SUM_THREADS - 1) / (SPATIAL_EACH * SUM_THREADS));
    spatial_kernel<<<(unsigned)v->n_chunks *(unsigned)tiles, SUM_THREADS, 0, stream>>>(*v, tiles);
    finish_spatial_kernel<<<1, 256, 0, stream>>>(*v);
}

const cuda_driver cuda_adashift_driver = {run, 0, false, NULL};
