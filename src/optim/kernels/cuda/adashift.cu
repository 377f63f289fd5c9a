/* AdaShift's driver: with spatial = max, v of a tensor, which is one number: see ../../adashift.c. */
#include "optim/kernels/cuda/device.cuh"

static __device__ bool is_spatial(const view &v, int64_t i) {
    return v.tensors[i].g && v.tensors[i].variant == 1 && v.tensors[i].count > 0;
}

/* The largest of a chunk of what leaves the queue. */
static __global__ void __launch_bounds__(SUM_THREADS) spatial_kernel(const __grid_constant__ view v) {
    const piece c = v.chunks[blockIdx.x];
    const device_tensor &t = v.tensors[c.tensor];
    if (v.shared->skip || !is_spatial(v, c.tensor)) return;
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int64_t turn = v.now[c.tensor].turn;
    double most = 0;
    for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) {
        most = larger(most, fabs(load_as<double>(t.state[2], t.state_type, turn + i)));
    }
    __shared__ double warps[SUM_THREADS / 32];
    most = largest_lane(most);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < SUM_THREADS / 32; w++) most = larger(most, warps[w]);
    v.largest[blockIdx.x] = most;
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
    double most = 0;
    for (int64_t chunk = v.first_chunk[i]; chunk < v.first_chunk[i + 1]; chunk++) most = larger(most, v.largest[chunk]);
    const double before = (double)load_as<R>(t.state[1], t.state_type, 0);
    const double x = c.beta2 * before + c.beta2c * most * most;
    store_state<R>(t, 1, 0, 0, 0, (R)adamod__saturated(x, t.state_type == ADAMOD_F64), now.key);
    c.high = x > 0 ? c.lr / (sqrt(x * c.vscale) + c.eps) : x;
    c.lr = t.state[3] ? bound_rate<R>(t, c, c.high, now.key) : c.high;
    now.wide = c;
    now.narrow = narrowed(c);
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
    spatial_kernel<<<(unsigned)v->n_chunks, SUM_THREADS, 0, stream>>>(*v);
    finish_spatial_kernel<<<1, 256, 0, stream>>>(*v);
}

extern const cuda_driver cuda_adashift_driver;
const cuda_driver cuda_adashift_driver = {run, 0, false, NULL};
