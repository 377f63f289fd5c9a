/* Products of matrices by four warps together, of what is in shared memory: instructions of chips of compute capability 9.0
 * alone.
 *
 * Matrices in shared memory are slabs: rows of 64 numbers, one after the other, whose packs of 8 change places within each 8
 * rows; a slab begins at a multiple of 1024 bytes. */
#ifndef ADAMOD_NN_CUDA_WARP_GROUP_H
#define ADAMOD_NN_CUDA_WARP_GROUP_H

#include "nn/backend/cuda/hopper/hopper.cuh"
#include "nn/backend/cuda/matrix.cuh"

enum { SLAB = 64 }; /* numbers of a slab's row */

/* Where a pack of a row lies in its slab. */
__device__ static inline int slab_place(int row, int pack) { return row * SLAB + (pack ^ (row & 7)) * 8; }

/* The box of a map of two dimensions at a place. */
__device__ static inline void slab_load(bf16 *to, const CUtensorMap *map, int64_t column, int64_t row,
                                        uint64_t *barrier) {
    box_load(shared_address(to), map, {(int)column, (int)row, 0, 0}, shared_address(barrier));
}

/* A slab from some number on, as the instructions want it: its 8 rows are 1024 bytes, and packs change places in 128. */
__device__ static inline uint64_t slab_matrix(const bf16 *from) {
    const uint64_t address = (uint32_t)__cvta_generic_to_shared(from);
    return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Four 8x8 matrices to shared memory, as load_matrices reads them. */
__device__ static inline void store_matrices(bf16 *row, const uint32_t (&m)[4]) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

#define ACC_4(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define ACC_16(c, n) ACC_4(c, n), ACC_4(c, n + 1), ACC_4(c, n + 2), ACC_4(c, n + 3)
#define ACC_32(c, n) ACC_16(c, n), ACC_16(c, n + 4)
#define ACC_64(c, n) ACC_32(c, n), ACC_32(c, n + 8)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                                       \
    NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "  \
             "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* c = a b, or c += a b, where a is 64 x 16, a warp's 16 rows in its registers as multiply_add has them, and b^T is 16
 * numbers of each of 8 N rows of a slab. */
__device__ static inline void multiply_rows(float (&c)[4][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" NAMES_16
                 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}"
                 : ACC_16(c, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}

/* DOWN: b is 16 rows of a slab instead, 64 numbers each. */
template <bool DOWN = false>
__device__ static inline void multiply_rows(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
                 : ACC_32(c, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"((int)DOWN));
}

__device__ static inline void multiply_rows(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
                 : ACC_64(c, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}

/* The same of matrices that are both in shared memory, b as 16 rows of a slab, 64 numbers each; a as 16 numbers of each of
 * 64 rows, or, DOWN, as 16 rows of 64 numbers. */
template <bool DOWN> __device__ static inline void multiply_slabs(float (&c)[8][4], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32 "}, %32, %33, p, 1, 1, %35, 1;\n}"
                 : ACC_32(c, 0)
                 : "l"(a), "l"(b), "r"((int)add), "n"((int)DOWN));
}

#endif
