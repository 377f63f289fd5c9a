/* The steps of an LSTM layer in one kernel. A step's product is small; its cost is moving the weights to the
 * multiprocessors, and the state from each of them to all others. So the weights are loaded once, into registers,
 * and the state goes through memory that is its own flag.
 *
 * Exchange: a slot for each step has the vectors that all multiprocessors read, [chunks of 16 k][n][16 k], n the
 * sequences, in bf16. Before the kernel it is filled with EMPTY, a NaN that no conversion gives. A reader polls its
 * numbers until none is EMPTY. That is a barrier and a broadcast for the price of one read from the L2 cache,
 * without a fence: each number itself says whether it has arrived. Blocks wait for each other, so the launch is
 * cooperative.
 *
 * Forward: a block has UNITS units, so 4 UNITS = 48 rows of the weights. Its 8 warps take 16 k in turn, as fragments
 * of mma.m16n8k16; their sums meet in shared memory, in one order. Backward: dy_(t-1) = dgates_t W has four times as
 * many k as outputs. So a cluster of 4 blocks has 4 UNITS units; block r takes the k of gate r, for all 48, and sums
 * the cluster's parts for its own UNITS through distributed shared memory. Each block then reads a quarter of the
 * gradients of gates. */
#include "nn/backend/cuda/lstm_resident.h"

#include <cooperative_groups.h>

#include <stdio.h>

namespace cg = cooperative_groups;

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    UNITS = 12,                   /* of a block */
    RANKS = 4,                    /* blocks of a cluster: gates */
    ROWS = 4 * UNITS,             /* of a block's product */
    TILES = ROWS / 16,            /* the same in fragments */
    K = 16,                       /* of a fragment, so of a chunk */
    STRIDE = ROWS + 4,            /* of a warp's sums, from sequence to sequence: no two lanes meet in a bank */
    MOST_BATCH = THREADS / UNITS, /* a thread for each unit and sequence */
    MOST_CHUNKS = 9,              /* of a warp, so that registers suffice */
    MOST_UNITS = MOST_CHUNKS * WARPS * K,
    LEAST_MAJOR = 9,     /* compute capability: clusters */
    EMPTY = 0xffff,      /* a number that is not there yet */
    MOST_BYTES = 1 << 30 /* of an exchange */
};

__host__ __device__ static inline int chunks_of(int h) { return (h + K - 1) / K; }
__host__ __device__ static inline int tiles_of(int batch) { return (batch + 7) / 8; }
/* Numbers of a vector in a slot. */
__host__ __device__ static inline int64_t vector_of(int batch, int h) {
    return (int64_t)chunks_of(h) * K * 8 * tiles_of(batch);
}
/* The place of number k of sequence n in a vector. */
__device__ static inline int place_of(int batch, int n, int k) { return (k / K * 8 * tiles_of(batch) + n) * K + k % K; }

/* ---- the exchange ---- */

__device__ static inline uint2 read_again(const bf16 *p) {
    uint2 x;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p));
    return x;
}

__device__ static inline void tell(bf16 *p, bf16 x) {
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" : : "l"(p), "h"(__bfloat16_as_ushort(x)));
}

/* Whether none of the numbers is EMPTY, given the largest of each half. */
__device__ static inline bool is_full(uint32_t most) { return (most & 0xffff) != EMPTY && most >> 16 != EMPTY; }

/* The warp's chunks of a vector, as fragments. */
template <int CHUNKS, int NT>
__device__ static inline void hear(const bf16 *vector, int chunks, uint2 (&b)[CHUNKS][NT]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned pending = 0;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) pending |= (unsigned)(warp + i * WARPS < chunks) << i;
    while (pending) {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            if (!(pending >> i & 1)) continue;
            const bf16 *p = vector + ((warp + i * WARPS) * 8 * NT + lane / 4) * K + lane % 4 * 4;
#pragma unroll
            for (int n = 0; n < NT; n++) b[i][n] = read_again(p + n * 8 * K);
        }
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            if (!(pending >> i & 1)) continue;
            uint32_t most = 0;
#pragma unroll
            for (int n = 0; n < NT; n++) most = __vmaxu2(most, __vmaxu2(b[i][n].x, b[i][n].y));
            if (is_full(most)) pending &= ~(1u << i);
        }
    }
    __syncwarp();
}

/* All of the slots that a run needs: EMPTY where a number will be, else 0. Slots have `vectors` vectors; begin, if any, is
 * what slot 0 holds. */
__global__ static void fill_kernel(bf16 *exchange, const int64_t *live_rows, int steps, int batch, int h, int vectors,
                                   const float *begin, const int32_t *carried) {
    const int64_t vector = vector_of(batch, h), slot = vectors * vector;
    const int live = live_rows ? (int)(*live_rows / batch) : steps;
    const int64_t n = slot * (begin ? live + 1 : live), first = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    if (first >= n) return;
    pack<bf16> r;
    for (int i = 0; i < 8; i++) {
        const int64_t place = (first + i) % vector;
        const int k = (int)(place / (8 * tiles_of(batch) * K) * K + place % K),
                  b = (int)(place / K % (8 * tiles_of(batch)));
        const bool there = k < h && b < batch;
        float x = 0;
        if (begin && first < slot && there && *carried) x = begin[b * h + k];
        r.x[i] = there && !(begin && first < slot) ? __ushort_as_bfloat16(EMPTY) : narrow<bf16>(x);
    }
    store_pack(exchange + first, r);
}

/* ---- products ---- */

/* D += A B: 16 rows, 16 k, 8 columns. */
__device__ static inline void multiply(float (&d)[4], const uint4 &a, const uint2 &b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

/* The warp's part of the product into its sums, [sequences][rows]. Lane l has 4 of a chunk's 16 k, from 4 (l % 4) on,
 * both in a and in b, so that the order of k within a fragment does not matter. */
template <int CHUNKS, int NT>
__device__ static inline void multiply_all(const uint4 (&a)[CHUNKS][TILES], const uint2 (&b)[CHUNKS][NT], int chunks,
                                           float *sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float d[TILES][NT][4] = {};
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        if (warp + i * WARPS >= chunks) continue;
#pragma unroll
        for (int m = 0; m < TILES; m++) {
#pragma unroll
            for (int n = 0; n < NT; n++) multiply(d[m][n], a[i][m], b[i][n]);
        }
    }
    float *to = sums + (warp * 8 * NT + lane % 4 * 2) * STRIDE + lane / 4;
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float *p = to + n * 8 * STRIDE + m * 16;
            p[0] = d[m][n][0], p[STRIDE] = d[m][n][1], p[8] = d[m][n][2], p[STRIDE + 8] = d[m][n][3];
        }
    }
}

/* Four rows' sums of all warps. */
template <int NT> __device__ static inline float4 sum_warps(const float *sums, int n, int row) {
    float4 s = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++) {
        const float4 x = *(const float4 *)(sums + (warp * 8 * NT + n) * STRIDE + row);
        s.x += x.x, s.y += x.y, s.z += x.z, s.w += x.w;
    }
    return s;
}

/* The place of the weight of a row and k; negative: it is 0. Rows of a block's product are, forward, the gates i, f,
 * g, o of one unit after another, and backward the units of the cluster. */
template <bool BACKWARD> __device__ static inline int64_t weight_at(int row, int k, int h) {
    if (BACKWARD) {
        const int unit = (int)(blockIdx.x / RANKS) * ROWS + row;
        return unit < h && k < h ? ((int64_t)(blockIdx.x % RANKS) * h + k) * h + unit : -1;
    }
    const int unit = (int)blockIdx.x * UNITS + row / 4;
    return unit < h && k < h ? ((int64_t)(row % 4) * h + unit) * h + k : -1;
}

template <bool BACKWARD> __device__ static inline uint32_t two_weights(const bf16 *w, int row, int k, int h) {
    const int64_t at = weight_at<BACKWARD>(row, k, h);
    if (!BACKWARD) return at < 0 ? 0 : *(const uint32_t *)(w + at); /* h and k are even */
    const uint16_t *p = (const uint16_t *)w + at;
    uint32_t two;
    /* here and now, or the compiler keeps both in registers of their own */
    asm volatile("mov.b32 %0, {%1, %2};"
                 : "=r"(two)
                 : "h"(at < 0 ? (uint16_t)0 : p[0]), "h"(at < 0 ? (uint16_t)0 : p[h]));
    return two;
}

template <bool BACKWARD, int CHUNKS>
__device__ static inline void load_weights(const bf16 *w, int h, uint4 (&a)[CHUNKS][TILES]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int k = (warp + i * WARPS) * K + lane % 4 * 4;
#pragma unroll
        for (int m = 0; m < TILES; m++) {
            const int row = m * 16 + lane / 4;
            a[i][m].x = two_weights<BACKWARD>(w, row, k, h);
            a[i][m].y = two_weights<BACKWARD>(w, row + 8, k, h);
            a[i][m].z = two_weights<BACKWARD>(w, row, k + 2, h);
            a[i][m].w = two_weights<BACKWARD>(w, row + 8, k + 2, h);
        }
        __syncwarp(); /* or there are more loads under way than registers for them */
    }
}

/* ---- forward ---- */

__device__ static inline float sigmoid(float z) { return __fdividef(1, 1 + __expf(-z)); }
__device__ static inline float tanh_of(float z) { return 2 * sigmoid(2 * z) - 1; }

/* Floats of shared memory: two steps' sums of all warps. */
template <int NT> __host__ __device__ constexpr int sums_of(void) { return WARPS * 8 * NT * STRIDE; }

template <int CHUNKS, int NT>
__global__ static void __launch_bounds__(THREADS, 1)
    forward_kernel(const __grid_constant__ lstm_forward_arrays<bf16> a, bf16 *exchange) {
    extern __shared__ float4 shared[];
    const int h = a.h, n = a.batch * h, chunks = chunks_of(h), live = lstm_live_steps(a);
    const int b = (int)threadIdx.x / UNITS, own = (int)threadIdx.x % UNITS, unit = (int)blockIdx.x * UNITS + own;
    const int i = b * h + unit;
    const bool has = b < a.batch && unit < h;
    const int64_t vector = vector_of(a.batch, h);
    uint4 weights[CHUNKS][TILES];
    load_weights<false, CHUNKS>(a.weights, h, weights);
    float bias[4] = {}, c = 0, state = 0;
    if (has) {
        const bool carried = *a.carried;
        for (int k = 0; k < 4; k++) bias[k] = a.b_in[k * h + unit] + a.b_state[k * h + unit];
        c = carried ? a.state_c[i] : 0;
        state = carried ? a.state_h[i] : 0;
        a.c0[i] = c;
        if (a.steps > 0) a.before[i] = narrow<bf16>(state);
    }
    for (int t = 0; t < live; t++) {
        float *sums = (float *)shared + t % 2 * sums_of<NT>();
        float *gates = a.gates + ((int64_t)t * a.batch + b) * 4 * h + unit;
        float x[4] = {};
        for (int k = 0; has && k < 4; k++) x[k] = gates[k * h] + bias[k];
        uint2 heard[CHUNKS][NT];
        hear<CHUNKS, NT>(exchange + t * vector, chunks, heard);
        multiply_all<CHUNKS, NT>(weights, heard, chunks, sums);
        __syncthreads();
        if (!has) continue;
        const float4 s = sum_warps<NT>(sums, b, own * 4);
        const float in = sigmoid(x[0] + s.x), forget = sigmoid(x[1] + s.y), g = tanh_of(x[2] + s.z),
                    out = sigmoid(x[3] + s.w);
        c = forget * c + in * g;
        const bf16 y = narrow<bf16>(out * tanh_of(c));
        const int64_t at = (int64_t)t * n + i;
        if (t + 1 < live) tell(exchange + (t + 1) * vector + place_of(a.batch, b, unit), y);
        state = widen(y);
        a.y[at] = y;
        if (t + 1 < a.steps) a.before[at + n] = y;
        gates[0] = in, gates[h] = forget, gates[2 * h] = g, gates[3 * h] = out;
        a.cells[at] = c;
    }
    if (!has) return;
    for (int t = live; t < a.steps; t++) {
        a.y[(int64_t)t * n + i] = narrow<bf16>(0);
        if (t + 1 < a.steps) a.before[(int64_t)(t + 1) * n + i] = narrow<bf16>(0);
    }
    a.state_h[i] = state;
    a.state_c[i] = c;
}

/* ---- backward ---- */

enum { PARTS = RANKS * MOST_BATCH * UNITS }; /* floats that a block gets from its cluster in a step */

template <int CHUNKS, int NT>
__global__ static void __launch_bounds__(THREADS, 1)
    backward_kernel(const __grid_constant__ lstm_backward_arrays<bf16> a, bf16 *exchange, target<float> db_in,
                    target<float> db_state) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ float4 shared[];
    float *const parts = (float *)shared + 2 * sums_of<NT>();
    const cg::cluster_group cluster = cg::this_cluster();
    const int h = a.h, n = a.batch * h, chunks = chunks_of(h), live = lstm_live_steps(a);
    const int rank = (int)(blockIdx.x % RANKS), first = (int)(blockIdx.x / RANKS) * ROWS + rank * UNITS;
    const int b = (int)threadIdx.x / UNITS, own = (int)threadIdx.x % UNITS, unit = first + own, i = b * h + unit;
    const bool has = b < a.batch && unit < h;
    const int64_t vector = vector_of(a.batch, h);
    uint4 weights[CHUNKS][TILES];
    load_weights<true, CHUNKS>(a.weights, h, weights);
    /* the block of the units whose four rows, from 4 own on, this thread sums */
    float *const there = cluster.map_shared_rank(parts, own / 3) + (rank * MOST_BATCH + b) * UNITS + own % 3 * 4;
    float dc = 0, bias[4] = {};
    cluster.sync(); /* all blocks of it have begun */
    for (int t = live - 1; t >= 0; t--) {
        float *sums = (float *)shared + t % 2 * sums_of<NT>();
        const int64_t at = (int64_t)t * n + i, gate = ((int64_t)t * a.batch + b) * 4 * h + unit;
        float x[4] = {}, cell = 0, before = 0, dy = 0;
        if (has) {
            for (int k = 0; k < 4; k++) x[k] = a.gates[gate + k * h];
            cell = a.cells[at];
            before = t ? a.cells[at - n] : a.c0[i];
            dy = widen(a.dy[at]);
        }
        if (t < live - 1) {
            uint2 heard[CHUNKS][NT];
            hear<CHUNKS, NT>(exchange + ((t + 1) * (int64_t)RANKS + rank) * vector, chunks, heard);
            multiply_all<CHUNKS, NT>(weights, heard, chunks, sums);
            __syncthreads();
            const int half = t % 2 * PARTS;
            if (b < a.batch) *(float4 *)(there + half) = sum_warps<NT>(sums, b, own * 4);
            cluster.sync();
            for (int r = 0; has && r < RANKS; r++) dy += parts[half + (r * MOST_BATCH + b) * UNITS + own];
        }
        if (!has) continue;
        const float in = x[0], forget = x[1], g = x[2], out = x[3], tanh_c = tanh_of(cell);
        const float d = dc + dy * out * (1 - tanh_c * tanh_c);
        const float grad[4] = {d * g * in * (1 - in), d * before * forget * (1 - forget), d * in * (1 - g * g),
                               dy * tanh_c * out * (1 - out)};
        dc = d * forget;
        for (int k = 0; k < 4; k++) {
            const bf16 rounded = narrow<bf16>(grad[k]);
            if (t > 0) tell(exchange + (t * (int64_t)RANKS + k) * vector + place_of(a.batch, b, unit), rounded);
            a.dgates[gate + k * h] = rounded;
            bias[k] += grad[k];
        }
    }
    for (int t = live; has && t < a.steps; t++) {
        for (int k = 0; k < 4; k++) a.dgates[((int64_t)t * a.batch + b) * 4 * h + k * h + unit] = narrow<bf16>(0);
    }
    __syncthreads(); /* sums have been read */
    for (int k = 0; k < 4; k++) ((float *)shared)[k * THREADS + threadIdx.x] = has ? bias[k] : 0;
    __syncthreads();
    const int k = (int)threadIdx.x / UNITS;
    if (k >= 4 || unit >= h) return;
    float sum = 0;
    for (int s = 0; s < a.batch; s++) sum += ((const float *)shared)[k * THREADS + s * UNITS + own];
    put<1>(db_in, k * h + unit, &sum);
    put<1>(db_state, k * h + unit, &sum);
#endif
}

/* ---- launches ---- */

typedef struct launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attribute[2];
} launch;

static void prepare_launch(launch *l, int blocks, size_t bytes, bool cluster, cudaStream_t stream) {
    *l = launch{};
    l->config.gridDim = dim3((unsigned)blocks);
    l->config.blockDim = dim3(THREADS);
    l->config.dynamicSmemBytes = bytes;
    l->config.stream = stream;
    l->config.attrs = l->attribute;
    l->config.numAttrs = cluster ? 2 : 1;
    l->attribute[0].id = cudaLaunchAttributeCooperative;
    l->attribute[0].val.cooperative = 1;
    l->attribute[1].id = cudaLaunchAttributeClusterDimension;
    l->attribute[1].val.clusterDim = {RANKS, 1, 1};
}

typedef void (*forward_function)(lstm_forward_arrays<bf16>, bf16 *);
typedef void (*backward_function)(lstm_backward_arrays<bf16>, bf16 *, target<float>, target<float>);

/* The kernels for each number of tiles of sequences, and for the two numbers of chunks. */
enum { FEW_CHUNKS = 4 };
#define BY_SIZE(kernel, batch, h)                                                                                      \
    (chunks_of(h) <= FEW_CHUNKS * WARPS ? (tiles_of(batch) == 1   ? kernel<FEW_CHUNKS, 1>                              \
                                           : tiles_of(batch) == 2 ? kernel<FEW_CHUNKS, 2>                              \
                                                                  : kernel<FEW_CHUNKS, 3>)                             \
                                        : (tiles_of(batch) == 1   ? kernel<MOST_CHUNKS, 1>                             \
                                           : tiles_of(batch) == 2 ? kernel<MOST_CHUNKS, 2>                             \
                                                                  : kernel<MOST_CHUNKS, 3>))

static int forward_blocks(int64_t h) { return (int)parts(h, UNITS); }
static int backward_blocks(int64_t h) { return (int)parts(h, ROWS) * RANKS; }
static size_t shared_bytes(int64_t batch, bool backward) {
    const int sums = WARPS * 8 * tiles_of((int)batch) * STRIDE;
    return (size_t)(2 * sums + (backward ? 2 * PARTS : 0)) * sizeof(float);
}

size_t lstm_resident_bytes(int64_t steps, int64_t batch, int64_t h, bool backward) {
    const size_t vectors = backward ? (size_t)steps * RANKS : (size_t)steps + 1;
    return vectors * (size_t)vector_of((int)batch, (int)h) * sizeof(bf16);
}

static bool can_allow(const void *kernel, size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) == cudaSuccess;
}

/* Whether all blocks run at the same time. */
static bool all_at_once(int batch, int h, int processors) {
    const forward_function forward = BY_SIZE(forward_kernel, batch, h);
    const backward_function backward = BY_SIZE(backward_kernel, batch, h);
    const size_t bytes[2] = {shared_bytes(batch, false), shared_bytes(batch, true)};
    int blocks = 0, clusters = 0;
    launch l;
    prepare_launch(&l, backward_blocks(h), bytes[1], true, NULL);
    return can_allow((const void *)forward, bytes[0]) && can_allow((const void *)backward, bytes[1]) &&
           cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, forward, THREADS, bytes[0]) == cudaSuccess &&
           blocks * processors >= forward_blocks(h) &&
           cudaOccupancyMaxActiveClusters(&clusters, backward, &l.config) == cudaSuccess &&
           clusters * RANKS >= backward_blocks(h);
}

bool lstm_resident_fits(int64_t steps, int64_t batch, int64_t h) {
    int device = 0, major = 0, processors = 0;
    if (h > MOST_UNITS || h % 2 || batch > MOST_BATCH || lstm_resident_bytes(steps, batch, h, true) > MOST_BYTES)
        return false;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return false;
    const bool fits = major >= LEAST_MAJOR && all_at_once((int)batch, (int)h, processors);
    cudaGetLastError(); /* a device that cannot do it is no failure */
    return fits;
}

/* Whether the current device has the instructions. */
static bool device_can(void) {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           major >= LEAST_MAJOR;
}

void lstm_resident_describe(char *out, size_t size) {
    if (device_can())
        snprintf(out, size, "weights stay on the chip up to %d units x %d sequences, in mixed precision", MOST_UNITS,
                 MOST_BATCH);
    else snprintf(out, size, "weights are streamed at each time step");
}

void lstm_resident_refuse(bool mixed, int64_t batch, int64_t h, char *out, size_t size) {
    char why[80] = "a GPU with compute capability 9.0 or later would keep them";
    if (device_can() && !mixed) snprintf(why, sizeof why, "they stay on the chip in mixed precision only");
    else if (device_can())
        snprintf(why, sizeof why, "they stay on the chip up to %d units, if even, x %d sequences", MOST_UNITS,
                 MOST_BATCH);
    snprintf(out, size, "LSTM of %lld units x %lld sequences: weights are streamed at each time step; %s", (long long)h,
             (long long)batch, why);
}

static void fill(cudaStream_t stream, const lstm_arrays<bf16> &a, void *exchange, int vectors, const float *begin,
                 const int32_t *carried) {
    const int64_t n = vectors * vector_of(a.batch, a.h) * (begin ? a.steps + 1 : a.steps);
    fill_kernel<<<(unsigned)parts(n / 8, 256), 256, 0, stream>>>((bf16 *)exchange, a.live_rows, a.steps, a.batch, a.h,
                                                                 vectors, begin, carried);
}

static void check(cudaError_t error) {
    if (error != cudaSuccess) nn_cuda_launch_failed("an LSTM", cudaGetErrorString(error));
}

void lstm_resident_forward(cudaStream_t stream, const lstm_forward_arrays<bf16> &a, void *exchange) {
    launch l;
    fill(stream, a, exchange, 1, a.state_h, a.carried);
    prepare_launch(&l, forward_blocks(a.h), shared_bytes(a.batch, false), false, stream);
    const forward_function kernel = BY_SIZE(forward_kernel, a.batch, a.h);
    check(cudaLaunchKernelEx(&l.config, kernel, a, (bf16 *)exchange));
}

void lstm_resident_backward(cudaStream_t stream, const lstm_backward_arrays<bf16> &a, void *exchange,
                            target<float> db_in, target<float> db_state) {
    launch l;
    fill(stream, a, exchange, RANKS, NULL, NULL);
    prepare_launch(&l, backward_blocks(a.h), shared_bytes(a.batch, true), true, stream);
    const backward_function kernel = BY_SIZE(backward_kernel, a.batch, a.h);
    check(cudaLaunchKernelEx(&l.config, kernel, a, (bf16 *)exchange, db_in, db_state));
}
