/* Launches of each formula for each kind of tensor, from which update.cu chooses. */
#ifndef ADAMOD_CUDA_UPDATE_LAUNCHES_H
#define ADAMOD_CUDA_UPDATE_LAUNCHES_H

#include "kernels/cuda/cuda_backend.h"

/* The launch of a formula for a kind of tensor. */
struct variant_launch {
    const void *kernel; /* NULL: there is none */
    void (*update)(const view *v, const update_class *c, cudaStream_t stream);
    void (*collect)(const view *v, const update_class *c, cudaStream_t stream);
    int threads, tile;
    bool stay;
    const char *name; /* of a tuning */
};

/* Launches of a formula: the standard one of each kind, and those that `optim bench` can try instead. */
struct variant_launches {
    variant_launch standard[KINDS];
    struct {
        const variant_launch *at;
        int n;
    } tunings[KINDS];
};

/* Kernels of all rules in one file would take minutes to compile on one core. So update_slice_0.cu and so on each compile
 * update_slice.cuh for the rules whose number has that remainder. */
enum { UPDATE_SLICES = 8 };

/* [f64][rule]: the launches of each of its variants; NULL for a rule of another slice. */
typedef const variant_launches *update_table[2][RULE_COUNT];
template <int SLICE> const update_table &cuda_update_table();

#endif
