/* How updates are cut into blocks of threads and tiles of elements. */
#ifndef ADAMOD_CUDA_CUTS_CUH
#define ADAMOD_CUDA_CUTS_CUH

#include "kernels/cuda/cuda_backend.h"
#include "kernels/q8.h"

/* An update's cut: threads of a block, groups of four elements of each thread, blocks that a multiprocessor must hold, and
 * whether blocks stay for several tiles. If a warp takes Q8_BLOCK elements at a time: rounds in a tile, elements from
 * one round to the next, and from a warp's first to the next warp's first. */
template <int THREADS, int GROUPS, int BLOCKS, bool STAY> struct cut {
    enum { threads = THREADS, groups = GROUPS, blocks = BLOCKS, stay = STAY, tile = 4 * GROUPS * THREADS };
    enum { rounds = GROUPS / 2, step = THREADS / 32 * Q8_BLOCK, apart = Q8_BLOCK };
    static_assert(tile % BLOCK == 0, "a tile is whole blocks of the library's");
    static_assert(rounds <= 32, "a bit, or a lane, for each");
};
typedef cut<256, 2, 3, false> standard_cut;
/* All in bf16; stay: a warp prefetches its next elements before it computes. */
typedef cut<256, 8, 3, false> bf16_cut;

/* States in 8 bits: WARPS of a block with ROUNDS each, STAGES of which are loading or at work. If RUN, a warp's rounds are
 * adjacent. If STREAM, the L2 cache evicts first not only gradients. */
template <int WARPS, int ROUNDS, int BLOCKS, int STAGES, bool RUN, bool STREAM>
struct ring_cut : cut<32 * WARPS, 2 * ROUNDS, BLOCKS, false> {
    enum { warps = WARPS, stages = STAGES, stream = STREAM };
    enum { step = RUN ? Q8_BLOCK : WARPS * Q8_BLOCK, apart = RUN ? ROUNDS * Q8_BLOCK : Q8_BLOCK };
};
typedef ring_cut<4, 8, 6, 3, false, false> q8_cut;

/* Cuts that `optim bench` can try instead. */
#define TUNINGS(X)                                                                                                     \
    X(256, 2, 3, true)                                                                                                 \
    X(256, 2, 3, false)                                                                                                \
    X(256, 1, 4, false)                                                                                                \
    X(128, 4, 4, false)
#define BF16_TUNINGS(X)                                                                                                \
    X(256, 8, 3, false)                                                                                                \
    X(256, 16, 3, false)                                                                                               \
    X(256, 8, 3, true)
#define Q8_TUNINGS(X)                                                                                                  \
    X(4, 8, 6, 3, false, false)                                                                                        \
    X(4, 8, 6, 3, false, true)                                                                                         \
    X(4, 8, 6, 3, true, false)                                                                                         \
    X(4, 8, 6, 2, false, false)                                                                                        \
    X(4, 8, 5, 3, false, false)                                                                                        \
    X(4, 8, 4, 4, false, false)                                                                                        \
    X(4, 16, 6, 3, false, false)                                                                                       \
    X(8, 8, 3, 2, false, false)

#endif
