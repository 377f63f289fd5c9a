/* How each formula is launched for tensors of each kind: what update.cu chooses from. */
#ifndef ADAMOD_CUDA_UPDATE_LAUNCHES_H
#define ADAMOD_CUDA_UPDATE_LAUNCHES_H

#include "kernels/cuda/cuda_backend.h"

/* How a formula is launched for tensors of a kind. */
struct variant_launch {
    const void *kernel; /* NULL: there is none */
    void (*update)(const view *v, const update_class *c, cudaStream_t stream);
    void (*collect)(const view *v, const update_class *c, cudaStream_t stream);
    int threads, tile;
    bool stay;
    const char *name; /* of a tuning */
};

/* Of one formula: the standard launch of each kind, and those that `optim bench` can try in its place. */
struct variant_launches {
    variant_launch standard[KINDS];
    struct {
        const variant_launch *at;
        int n;
    } tunings[KINDS];
};

/* Kernels of all rules in one file would take minutes to compile, on one core. So update_slice_0.cu
 * and so on compile update_slice.cuh, each for the rules whose number leaves this remainder. */
enum { UPDATE_SLICES = 8 };

/* [f64][rule]: the launches of each of its variants; NULL for a rule of another slice. */
typedef const variant_launches *update_table[2][RULE_COUNT];
template <int SLICE> const update_table &cuda_update_table();

#endif
