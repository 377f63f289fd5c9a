/* PTX instructions of sm_90a: mbarrier, TMA (cp.async.bulk.tensor), wgmma and stmatrix. Only files compiled for sm_90a include
 * this. The PTX ISA has them under "mbarrier", "Tensor copy" and "Asynchronous Warpgroup Level Matrix Instructions".
 *
 * Tiles in shared memory have the 128-byte swizzle (CU_TENSOR_MAP_SWIZZLE_128B): rows of 64 bf16, in which 16-byte chunk c of
 * row r lies at chunk c ^ r % 8. A tile begins at a multiple of 1024 bytes, which is one swizzle atom of 8 rows. */
#ifndef ADAMOD_NN_CUDA_HOPPER_PTX_H
#define ADAMOD_NN_CUDA_HOPPER_PTX_H

#include "nn/backend/cuda/matrix.cuh"

#include <cuda.h>

enum {
    SW128_ROW = 128,            /* bytes */
    SW128_COLS = SW128_ROW / 2, /* bf16 of a row */
    SW128_ATOM = 8 * SW128_ROW, /* bytes */
    WARPGROUP = 128             /* threads */
};

extern __shared__ unsigned char smem[];

__device__ static inline uint32_t smem_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* The first swizzle atom of dynamic shared memory. */
__device__ static inline uint32_t smem_begin(void) {
    return (smem_address(smem) + SW128_ATOM - 1) / SW128_ATOM * SW128_ATOM;
}

/* The first element of a 16-byte chunk of a swizzled tile. */
__device__ static inline int swizzled(int row, int chunk) { return row * SW128_COLS + (chunk ^ (row & 7)) * 8; }

/* ---- mbarrier ---- */

__device__ static inline void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes mbarrier.init visible to the async proxy. Threads synchronize after it. */
__device__ static inline void fence_mbarrier_init(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ static inline void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ static inline void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Waits until the phase of this parity is complete. */
__device__ static inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
}

/* Stage and phase parity of a circular buffer: CUTLASS' PipelineState. */
template <int STAGES> struct pipeline_state {
    int stage = 0;
    uint32_t phase = 0;
    __device__ void advance(void) {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

/* Full and empty mbarriers of a circular buffer that one thread fills by TMA: CUTLASS' PipelineTmaAsync. */
template <int STAGES> struct pipeline {
    enum { BARRIERS = 2 * STAGES };
    uint32_t full, empty; /* addresses in shared memory, 8 bytes for each stage */
    __device__ explicit pipeline(uint32_t barriers) : full(barriers), empty(barriers + 8 * STAGES) {}
    __device__ void init(int consumer_warps) const {
        for (int i = 0; i < STAGES; i++) mbarrier_init(full + 8 * i, 1), mbarrier_init(empty + 8 * i, consumer_warps);
    }
    /* Returns the mbarrier for the stage's copies, which have `bytes` in all. */
    __device__ uint32_t producer_acquire(const pipeline_state<STAGES> &s, uint32_t bytes) const {
        mbarrier_wait(empty + 8 * s.stage, s.phase ^ 1);
        mbarrier_arrive_expect_tx(full + 8 * s.stage, bytes);
        return full + 8 * s.stage;
    }
    __device__ void consumer_wait(const pipeline_state<STAGES> &s) const { mbarrier_wait(full + 8 * s.stage, s.phase); }
    /* Called by all threads of a warp. */
    __device__ void consumer_release(int stage) const {
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * stage);
    }
};

/* ---- barriers of threads ---- */

__device__ static inline void cluster_sync(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ static inline uint32_t cluster_cta_rank(void) {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ static inline void warpgroup_sync(int warpgroup) {
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

/* Two warpgroups take turns: CUTLASS' OrderedSequenceBarrier. One waits until the other arrives for it. */
__device__ static inline void order_wait(int warpgroup) {
    asm volatile("bar.sync %0, 256;" ::"r"(warpgroup + 3) : "memory");
}
__device__ static inline void order_arrive(int warpgroup) {
    asm volatile("bar.arrive %0, 256;" ::"r"(warpgroup + 3) : "memory");
}

/* ---- TMA ---- */

/* Coordinates of a box, the innermost dimension first. */
struct tma_coords {
    int c, a, b, d;
};

__device__ static inline void tma_load(uint32_t to, const CUtensorMap *map, const tma_coords &p, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(p.c), "r"(p.a), "r"(p.b), "r"(p.d)
                 : "memory");
}

__device__ static inline void tma_load(bf16 *to, const CUtensorMap *map, int64_t column, int64_t row,
                                       uint64_t *barrier) {
    tma_load(smem_address(to), map, {(int)column, (int)row, 0, 0}, smem_address(barrier));
}

/* Stores a box, or adds it to global memory, and commits the bulk group. */
__device__ static inline void tma_store(const CUtensorMap *map, const tma_coords &p, uint32_t from, bool add) {
    if (add)
        asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group [%1, {%2, %3, %4, %5}], "
                     "[%0];" ::"r"(from),
                     "l"(map), "r"(p.c), "r"(p.a), "r"(p.b), "r"(p.d)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], [%0];" ::"r"(from),
                     "l"(map), "r"(p.c), "r"(p.a), "r"(p.b), "r"(p.d)
                     : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until TMA has read the shared memory of this thread's stores. */
__device__ static inline void tma_store_wait_read(void) {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Makes writes to shared memory visible to TMA and wgmma, which use the async proxy. Threads synchronize after it. */
__device__ static inline void fence_proxy_async(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- wgmma ---- */

/* Matrix descriptor of a swizzled tile. K-major (rows hold consecutive k): stride is from 8 rows to the next 8, and leading is
 * not used. MN-major (rows hold consecutive m or n): stride is from 8 k to the next 8, leading from 64 m or n to the next 64.
 * All in bytes. */
__device__ static inline uint64_t wgmma_descriptor(uint32_t address, uint32_t stride, uint32_t leading) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(leading >> 4 & 0x3fff) << 16 |
           (uint64_t)(stride >> 4 & 0x3fff) << 32 | (uint64_t)1 << 62;
}
__device__ static inline uint64_t wgmma_descriptor(const bf16 *tile) {
    const uint64_t address = smem_address(tile);
    return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | (uint64_t)(SW128_ATOM >> 4) << 32 | (uint64_t)1 << 62;
}
/* The address is in the low word and does not overflow: one addition, without a carry. */
__device__ static inline uint64_t descriptor_advance(uint64_t descriptor, uint32_t bytes) {
    return (descriptor & 0xffffffff00000000) | ((uint32_t)descriptor + (bytes >> 4));
}

__device__ static inline void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void wgmma_commit_group(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING groups are under way. */
template <int PENDING> __device__ static inline void wgmma_wait_group(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving uses of accumulators across: CUTLASS' warpgroup_fence_operand. */
template <int COUNT> __device__ static inline void wgmma_fence_operand(float (&acc)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(acc[i])::"memory");
}

/* Names of operands 10 t to 10 t + 9, and of all before 10 t. */
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define BELOW_30 TEN() TEN(1) TEN(2)
#define BELOW_60 BELOW_30 TEN(3) TEN(4) TEN(5)
#define BELOW_90 BELOW_60 TEN(6) TEN(7) TEN(8)

#define ACC_8(i)                                                                                                       \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]),              \
        "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define ACC_16(i) ACC_8(i), ACC_8((i) + 8)
#define ACC_32(i) ACC_16(i), ACC_16((i) + 16)
#define ACC_64(i) ACC_32(i), ACC_32((i) + 32)

/* d = a b, or d += a b: 64 x N sums of 16 products each. A thread has 4 numbers of each 8 columns, of rows lane / 4 and
 * lane / 4 + 8 of its warp's 16, columns lane % 4 * 2 and the next. SS: a and b in shared memory. RS: a in registers, a warp's
 * 16 rows as ldmatrix loads them. TA, TB: a, b are MN-major. */
#define WGMMA_SS(N, D, ACC, A, B, ADD, MAJOR_A, MAJOR_B)                                                               \
    template <int TA, int TB>                                                                                          \
    __device__ static inline void wgmma_ss(float(&d)[N / 2], uint64_t a, uint64_t b, int add) {                        \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                  \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" D "}, " A ", " B                     \
                     ", p, 1, 1, " MAJOR_A ", " MAJOR_B ";\n}"                                                         \
                     : ACC                                                                                             \
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));                                                    \
    }
#define WGMMA_RS(N, D, ACC, A, B, ADD, MAJOR_B)                                                                        \
    template <int TB>                                                                                                  \
    __device__ static inline void wgmma_rs(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b, int add) {             \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                                  \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" D "}, {" A "}, " B                   \
                     ", p, 1, 1, " MAJOR_B ";\n}"                                                                      \
                     : ACC                                                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB));                         \
    }
#define LIST(...) __VA_ARGS__

WGMMA_SS(64, BELOW_30 "%30,%31", LIST(ACC_32(0)), "%32", "%33", "%34", "%35", "%36")
WGMMA_SS(96, BELOW_30 TEN(3) "%40,%41,%42,%43,%44,%45,%46,%47", LIST(ACC_32(0), ACC_16(32)), "%48", "%49", "%50", "%51",
         "%52")
WGMMA_SS(128, BELOW_60 "%60,%61,%62,%63", LIST(ACC_64(0)), "%64", "%65", "%66", "%67", "%68")
WGMMA_SS(192, BELOW_90 "%90,%91,%92,%93,%94,%95", LIST(ACC_64(0), ACC_32(64)), "%96", "%97", "%98", "%99", "%100")
WGMMA_SS(256, BELOW_90 TEN(9) TEN(10) TEN(11) "%120,%121,%122,%123,%124,%125,%126,%127", LIST(ACC_64(0), ACC_64(64)),
         "%128", "%129", "%130", "%131", "%132")
WGMMA_RS(32, TEN() "%10,%11,%12,%13,%14,%15", LIST(ACC_16(0)), "%16,%17,%18,%19", "%20", "%21", "%22")
WGMMA_RS(64, BELOW_30 "%30,%31", LIST(ACC_32(0)), "%32,%33,%34,%35", "%36", "%37", "%38")
WGMMA_RS(128, BELOW_60 "%60,%61,%62,%63", LIST(ACC_64(0)), "%64,%65,%66,%67", "%68", "%69", "%70")
#undef WGMMA_SS
#undef WGMMA_RS

/* For accumulators [8 columns][4]. */
template <int TA, int TB, int EIGHTS>
__device__ static inline void wgmma_ss(float (&d)[EIGHTS][4], uint64_t a, uint64_t b, int add) {
    wgmma_ss<TA, TB>(reinterpret_cast<float(&)[EIGHTS * 4]>(d), a, b, add);
}
template <int TB, int EIGHTS>
__device__ static inline void wgmma_rs(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b, int add) {
    wgmma_rs<TB>(reinterpret_cast<float(&)[EIGHTS * 4]>(d), a, b, add);
}

/* ---- stmatrix ---- */

/* Four 8 x 8 matrices; lane 8 i + r has the address of row r of matrix i. */
__device__ static inline void stmatrix_x4(bf16 *row, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(row)), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}
__device__ static inline void stmatrix_x4_trans(uint32_t row, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

#endif
