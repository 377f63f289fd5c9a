/* Hopper's own instructions: copies of boxes of an array by the tensor memory accelerator (TMA), the barriers in shared
 * memory that they complete, and products by warp groups of four warps. Only files compiled for sm_90a include this.
 *
 * Boxes have 64 numbers of bf16, a line of 128 bytes, as their innermost extent, and lie in shared memory with the swizzle of
 * 128 bytes: 16-byte unit u of line l is at unit u ^ l % 8. They begin at multiples of 1024 bytes. */
#ifndef ADAMOD_NN_CUDA_HOPPER_HOPPER_H
#define ADAMOD_NN_CUDA_HOPPER_HOPPER_H

#include "nn/backend/cuda/cuda.h"

#include <cuda.h>

enum {
    LINE = 128,
    LINE_NUMBERS = 64,
    ATOM = 8 * LINE,
    GROUP = 128 /* threads of a warp group */
};

extern __shared__ unsigned char shared_memory[];

__device__ static inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Where boxes may begin. */
__device__ static inline uint32_t shared_begin(void) {
    return (shared_address(shared_memory) + ATOM - 1) / ATOM * ATOM;
}

/* ---- barriers ---- */

__device__ static inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* After all are initialised, before a barrier of threads. */
__device__ static inline void barriers_are_made(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and has the phase wait for so many bytes. */
__device__ static inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ static inline void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Until the phase of that parity is complete. */
__device__ static inline void barrier_wait(uint32_t barrier, uint32_t parity) {
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

/* All threads of a cluster. */
__device__ static inline void cluster_meet(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ static inline uint32_t cluster_rank(void) {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Threads of a warp group. */
__device__ static inline void group_meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

/* Warp groups in turns: group number `group` waits until another has given it the turn. */
__device__ static inline void turn_wait(int group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 3) : "memory"); }
__device__ static inline void turn_give(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(group + 3) : "memory"); }

/* A place in a ring of slots that are filled and emptied in turn. */
template <int SLOTS> struct ring_place {
    int slot = 0;
    uint32_t parity = 0;
    __device__ void next(void) {
        if (++slot == SLOTS) slot = 0, parity ^= 1;
    }
};

/* ---- boxes ---- */

/* Place of a box in an array of four dimensions, the innermost first. */
struct box_place {
    int c, a, b, d;
};

__device__ static inline void box_load(uint32_t to, const CUtensorMap *map, const box_place &p, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(p.c), "r"(p.a), "r"(p.b), "r"(p.d)
                 : "memory");
}

__device__ static inline void box_store(const CUtensorMap *map, const box_place &p, uint32_t from, bool add) {
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

/* Until what this thread stored has been read from shared memory. */
__device__ static inline void boxes_are_read(void) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/* What threads wrote to shared memory, for copies that begin after their barrier. */
__device__ static inline void fence_for_boxes(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- products ---- */

/* A matrix in shared memory. Its lines hold consecutive k of one row or column (then step is from 8 of these to the next 8,
 * and there is no other), or consecutive rows or columns of one k (then step is from 8 k to the next 8, and wide from 64 rows or
 * columns to the next). In bytes. */
__device__ static inline uint64_t matrix_at(uint32_t address, uint32_t step, uint32_t wide) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(wide >> 4 & 0x3fff) << 16 |
           (uint64_t)(step >> 4 & 0x3fff) << 32 | (uint64_t)1 << 62;
}

/* So many bytes further. */
__device__ static inline uint64_t matrix_moved(uint64_t matrix, uint32_t bytes) { return matrix + (bytes >> 4); }

__device__ static inline void products_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void products_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until at most PENDING commits are not done. */
template <int PENDING> __device__ static inline void products_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* The compiler must not move uses of sums across, nor keep what it has computed from them. */
template <int COUNT> __device__ static inline void keep_in_place(float (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

template <int N> struct columns {};

#define REGISTERS_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define REGISTERS_8 "%8,%9,%10,%11,%12,%13,%14,%15"
#define REGISTERS_16 "%16,%17,%18,%19,%20,%21,%22,%23"
#define REGISTERS_24 "%24,%25,%26,%27,%28,%29,%30,%31"
#define REGISTERS_32 "%32,%33,%34,%35,%36,%37,%38,%39"
#define REGISTERS_40 "%40,%41,%42,%43,%44,%45,%46,%47"
#define REGISTERS_48 "%48,%49,%50,%51,%52,%53,%54,%55"
#define REGISTERS_56 "%56,%57,%58,%59,%60,%61,%62,%63"
#define REGISTERS_64 "%64,%65,%66,%67,%68,%69,%70,%71"
#define REGISTERS_72 "%72,%73,%74,%75,%76,%77,%78,%79"
#define REGISTERS_80 "%80,%81,%82,%83,%84,%85,%86,%87"
#define REGISTERS_88 "%88,%89,%90,%91,%92,%93,%94,%95"
#define REGISTERS_96 "%96,%97,%98,%99,%100,%101,%102,%103"
#define REGISTERS_104 "%104,%105,%106,%107,%108,%109,%110,%111"
#define REGISTERS_112 "%112,%113,%114,%115,%116,%117,%118,%119"
#define REGISTERS_120 "%120,%121,%122,%123,%124,%125,%126,%127"

#define SUMS_8(i)                                                                                                      \
    "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]),              \
        "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define SUMS_32(i) SUMS_8(i), SUMS_8((i) + 8), SUMS_8((i) + 16), SUMS_8((i) + 24)

/* 64 x N sums of 16 products each: 4 numbers of d for each 8 columns, of rows lane / 4 and 8 more
 * of the warp's 16, columns lane % 4 * 2 and one more. TA, TB: lines of a, b hold one k. */
#define WARP_GROUP_PRODUCT(N, REGISTERS, SUMS, A, B, ADD, TRANSPOSE_A, TRANSPOSE_B)                                    \
    template <int TA, int TB>                                                                                          \
    __device__ static inline void multiply(columns<N>, float(&d)[N / 2], uint64_t a, uint64_t b, int add) {            \
        asm volatile("{\n"                                                                                             \
                     ".reg .pred p;\n"                                                                                 \
                     "setp.ne.b32 p, " ADD ", 0;\n"                                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS "}, " A ", " B             \
                     ", p, 1, 1, " TRANSPOSE_A ", " TRANSPOSE_B ";\n"                                                  \
                     "}"                                                                                               \
                     : SUMS                                                                                            \
                     : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));                                                    \
    }

#define ARGUMENTS(...) __VA_ARGS__
WARP_GROUP_PRODUCT(64, REGISTERS_0 "," REGISTERS_8 "," REGISTERS_16 "," REGISTERS_24, ARGUMENTS(SUMS_32(0)), "%32",
                   "%33", "%34", "%35", "%36")
WARP_GROUP_PRODUCT(96, REGISTERS_0 "," REGISTERS_8 "," REGISTERS_16 "," REGISTERS_24 "," REGISTERS_32 "," REGISTERS_40,
                   ARGUMENTS(SUMS_32(0), SUMS_8(32), SUMS_8(40)), "%48", "%49", "%50", "%51", "%52")
WARP_GROUP_PRODUCT(128,
                   REGISTERS_0 "," REGISTERS_8 "," REGISTERS_16 "," REGISTERS_24 "," REGISTERS_32 "," REGISTERS_40
                               "," REGISTERS_48 "," REGISTERS_56,
                   ARGUMENTS(SUMS_32(0), SUMS_32(32)), "%64", "%65", "%66", "%67", "%68")
WARP_GROUP_PRODUCT(192,
                   REGISTERS_0 "," REGISTERS_8 "," REGISTERS_16 "," REGISTERS_24 "," REGISTERS_32 "," REGISTERS_40
                               "," REGISTERS_48 "," REGISTERS_56 "," REGISTERS_64 "," REGISTERS_72 "," REGISTERS_80
                               "," REGISTERS_88,
                   ARGUMENTS(SUMS_32(0), SUMS_32(32), SUMS_32(64)), "%96", "%97", "%98", "%99", "%100")
WARP_GROUP_PRODUCT(256,
                   REGISTERS_0 "," REGISTERS_8 "," REGISTERS_16 "," REGISTERS_24 "," REGISTERS_32 "," REGISTERS_40
                               "," REGISTERS_48 "," REGISTERS_56 "," REGISTERS_64 "," REGISTERS_72 "," REGISTERS_80
                               "," REGISTERS_88 "," REGISTERS_96 "," REGISTERS_104 "," REGISTERS_112 "," REGISTERS_120,
                   ARGUMENTS(SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96)), "%128", "%129", "%130", "%131", "%132")
#undef WARP_GROUP_PRODUCT
#undef ARGUMENTS

#endif
