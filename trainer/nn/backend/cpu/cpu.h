/* The cpu backend's kernels, and their common code. */
#pragma once

#include "nn/op.h"

#include <stdint.h>

/* The backend's ops; others run by their reference kernels. */
#define NN_CPU_IMAGE_OPS(X) X(convolution) X(batch_norm) X(average_pool) X(concat) X(scale_shift)
#define NN_CPU_OPS(X)                                                                                                  \
    NN_DENSE_OPS(X) NN_DECODER_OPS(X) X(best) X(path_attention) NN_CPU_IMAGE_OPS(X) X(lstm) X(locked_dropout)

#define NN_CPU_DECLARE(name) extern const nn_kernels nn_cpu_##name;
NN_CPU_OPS(NN_CPU_DECLARE)
#undef NN_CPU_DECLARE

/* Builds a function for several instruction sets; the loader chooses one. All compute the same bits, as contraction is
 * off and sums have a fixed number of lanes. For static functions only: clang 14 misnames others. Off under the thread
 * sanitizer, which is not initialised yet when the loader chooses. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define NN_NO_CLONES
#endif
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && !defined(NN_NO_CLONES)
#define NN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define NN_CLONES
#endif

/* About how many elements a task has: some microseconds of work that stays in the second-level cache. */
enum { NN_CHUNK = 16384 };

static inline int64_t nn_parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Dropout of elements first .. first + n - 1 of a stream: factor[j] = scale where element first + j is kept, else 0.
 * scale is 1 / (1 - p). */
void nn_cpu_mask(uint64_t key, uint64_t first, int64_t n, uint32_t threshold, float scale, float *factor);

/* The dropout of a call: what to draw, if anything. */
typedef struct nn_drop {
    bool drops;
    uint64_t key;
    uint32_t threshold;
    float scale;
} nn_drop;

nn_drop nn_cpu_drop(const nn_call *c);
/* y = x + factor b; x NULL: 0, factor NULL: 1. Where factor is 0, factor b is 0, whatever b is. y may be x or b. */
void nn_cpu_multiply_add(int64_t n, const float *x, const float *factor, const float *b, float *y);
/* y = x + dropout(b) for elements first .. first + n - 1 of these arrays; x NULL: 0. y may be x or b. */
void nn_cpu_add_dropped(const nn_drop *d, int64_t first, int64_t n, const float *x, const float *b, float *y);
/* y = x + dropout(b) for arrays as large as output 0, on the call's pool. */
void nn_cpu_add_dropped_array(const nn_call *c, nn_drop d, const float *x, const float *b, float *y);

/* sum_j = the sum of column j of parts, [n, cols] with rows stride apart, in the order of rows; added to what sum holds
 * if add. */
void nn_cpu_sum_rows(adamod_pool *pool, const float *parts, int64_t stride, int64_t n, int64_t cols, float *sum,
                     bool add);
