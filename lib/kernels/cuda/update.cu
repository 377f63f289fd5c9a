/* The element-wise update: chooses the launch for all parameters of a kind. The kernels are in update_slice.cuh. */
#include "kernels/cuda/update_launches.h"

#include <utility>

template <int... SLICE>
static const variant_launches *launches_in(std::integer_sequence<int, SLICE...>, int f64, int rule) {
    static const update_table *const tables[] = {&cuda_update_table<SLICE>()...};
    return (*tables[rule % UPDATE_SLICES])[f64][rule];
}

static const variant_launches &launches_at(int rule, int f64, int variant) {
    return launches_in(std::make_integer_sequence<int, UPDATE_SLICES>(), f64, rule)[variant];
}

static int is_f64(const device_tensor *t) { return t->p_type == ADAMOD_F64; }

int cuda_kind(int rule, const device_tensor *t) {
    return kind_of(t, launches_at(rule, is_f64(t), t->variant).standard[KIND_BF16].kernel != NULL);
}

bool cuda_has_kernel(int rule, const device_tensor *t) {
    return launches_at(rule, is_f64(t), t->variant).standard[cuda_kind(rule, t)].kernel != NULL;
}

const char *cuda_tuning(int rule, int index, int kind) {
    const auto &tunings = launches_at(rule, 0, 0).tunings[kind];
    return index >= 0 && index < tunings.n ? tunings.at[index].name : NULL;
}

static const variant_launch *launch_of(int rule, int tuning, int f64, int kind, int variant) {
    const variant_launches &launches = launches_at(rule, f64, variant);
    const auto &tunings = launches.tunings[kind];
    return tuning >= 0 && tuning < tunings.n ? &tunings.at[tuning] : &launches.standard[kind];
}

int64_t cuda_tile(int rule, int tuning, const device_tensor *t) {
    return launch_of(rule, tuning, is_f64(t), cuda_kind(rule, t), t->variant)->tile;
}

cudaError_t cuda_choose(int rule, int tuning, int processors, update_class *c) {
    int blocks = 1;
    c->launch = launch_of(rule, tuning, c->f64, c->kind, c->variant);
    if (c->kind == KIND_Q8) { /* or shared memory might have room for few blocks */
        const cudaError_t error = cudaFuncSetAttribute(
            c->launch->kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
        if (error) return error;
    }
    const cudaError_t error =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, c->launch->kernel, c->launch->threads, 0);
    c->blocks = c->launch->stay ? (int64_t)processors * (blocks > 0 ? blocks : 1) : INT32_MAX;
    return error;
}

void cuda_update(const view *v, const update_class *c, cudaStream_t stream) {
    if (c->n_tiles > 0) c->launch->update(v, c, stream);
}

void cuda_update_collect(const view *v, const update_class *c, cudaStream_t stream) {
    if (v->n_chunks > 0) c->launch->collect(v, c, stream);
}
