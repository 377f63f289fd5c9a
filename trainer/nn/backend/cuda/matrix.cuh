/* Instructions for products of small matrices, and for what they read in shared memory. */
#ifndef ADAMOD_NN_CUDA_MATRIX_H
#define ADAMOD_NN_CUDA_MATRIX_H

#include "nn/backend/cuda/cuda.h"

/* 16 bytes from global to shared memory, zeros if there is nothing to read; done after copies_wait<0>. */
__device__ static inline void copy_async(void *to, const void *from, bool there) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ static inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Until at most `left` of the groups that this thread committed are under way. */
template <int left> __device__ static inline void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

/* Four 8x8 matrices; lane 8 i + r gives the address of row r of matrix i. */
__device__ static inline void load_matrices(uint32_t m[4], const bf16 *row) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

__device__ static inline void load_matrices_transposed(uint32_t m[4], const bf16 *row) {
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

/* c += a b, where a is 16 x 16 and b is 16 x 8. */
__device__ static inline void multiply_add(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
