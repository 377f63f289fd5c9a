/* The element-wise update of the rules of slice UPDATE_SLICE; see update_launches.h.
 *
 * Memory is the limit, and many wide loads must be under way at any time: blocks take one tile after the other, and each
 * thread loads all it needs of several groups of four elements before it computes. The launch overlaps prepare, and waits
 * for it only after the loads of the first tile. */
#include "kernels/cuda/update_kernels.cuh"
#include "kernels/cuda/update_launches.h"

/* ---- launches ---- */

template <class RULE, class CUT, int KIND> static constexpr auto kernel_of() {
    if constexpr (KIND == KIND_ANY) return update_kernel<RULE, CUT>;
    else return update_blocks_kernel<RULE, CUT, KIND>;
}

template <class RULE, class CUT, int KIND>
static void launch_update(const view *v, const update_class *c, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(c->n_tiles < c->blocks ? c->n_tiles : c->blocks));
    config.blockDim = dim3(CUT::threads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = c->early ? 1 : 0;
    if constexpr (KIND == KIND_ANY)
        (void)cudaLaunchKernelEx(&config, kernel_of<RULE, CUT, KIND>(), *v, c->tiles, c->n_tiles);
    else (void)cudaLaunchKernelEx(&config, kernel_of<RULE, CUT, KIND>(), *v, c->tiles);
}

template <class RULE, int KIND> static void launch_collect(const view *v, const update_class *c, cudaStream_t stream) {
    const int kind = c->kind;
    collect_kernel<RULE, KIND == KIND_Q8>
        <<<(unsigned)v->n_chunks, UPDATE_THREADS, 0, stream>>>(*v, c->variant, c->f64, kind);
}

template <class RULE, class CUT, int KIND> static variant_launch make_launch(const char *name) {
    return variant_launch{(const void *)kernel_of<RULE, CUT, KIND>(),
                          launch_update<RULE, CUT, KIND>,
                          launch_collect<RULE, KIND>,
                          CUT::threads,
                          CUT::tile,
                          CUT::stay && KIND == KIND_ANY,
                          name};
}

/* ---- the table ---- */

#define NAME_TUNING(threads, groups, blocks, stay)                                                                     \
#threads " threads, " #groups " groups, " #blocks " blocks, stay " #stay
#define TUNING(...) make_launch<RULE, cut<__VA_ARGS__>, KIND_ANY>(NAME_TUNING(__VA_ARGS__)),
#define BF16_TUNING(...) make_launch<RULE, cut<__VA_ARGS__>, KIND_BF16>("bf16, " NAME_TUNING(__VA_ARGS__)),
#define Q8_TUNING(warps, rounds, blocks, stages, run, stream)                                                          \
    make_launch<RULE, ring_cut<warps, rounds, blocks, stages, run, stream>, KIND_Q8>(                                  \
        "q8, " #warps " warps, " #rounds " rounds, " #blocks " blocks, " #stages " stages, run " #run                  \
        ", stream " #stream),

template <class RULE> static void add_tunings(variant_launches *to) {
    static const variant_launch any[] = {TUNINGS(TUNING)};
    static const variant_launch q8[] = {Q8_TUNINGS(Q8_TUNING)};
    static const variant_launch bf16[] = {BF16_TUNINGS(BF16_TUNING)};
    to->tunings[KIND_ANY] = {any, sizeof any / sizeof *any};
    to->tunings[KIND_Q8] = {q8, sizeof q8 / sizeof *q8};
    to->tunings[KIND_BF16] = {bf16, sizeof bf16 / sizeof *bf16};
}

template <class RULE> static variant_launches make_launches() {
    constexpr bool f32 = sizeof(typename RULE::R) == 4;
    variant_launches x = {};
    x.standard[KIND_ANY] = make_launch<RULE, standard_cut, KIND_ANY>("");
    if constexpr (RULE::has & HAS_ANY_Q8) x.standard[KIND_Q8] = make_launch<RULE, q8_cut, KIND_Q8>("");
    if constexpr (f32 && RULE::has & HAS_BF16) x.standard[KIND_BF16] = make_launch<RULE, bf16_cut, KIND_BF16>("");
    if constexpr (f32 && RULE::has & HAS_TUNINGS) add_tunings<RULE>(&x);
    return x;
}

template <class... RULES> static const variant_launches *launches_of(rule_variants<RULES...>) {
    static const variant_launches all[] = {make_launches<RULES>()...};
    return all;
}

/* NULL, without code, for a rule of another slice. */
template <int SLICE, int RULE, class VARIANTS> static const variant_launches *launches_here(VARIANTS variants) {
    if constexpr (RULE % UPDATE_SLICES == SLICE) return launches_of(variants);
    else return NULL;
}

template <int SLICE> const update_table &cuda_update_table() {
    static const update_table table = {
        {
#define RULE(name) launches_here<SLICE, RULE_##name>(name##_variants_f32),
#include "rules/names.inc.h"
        },
        {
#define RULE(name) launches_here<SLICE, RULE_##name>(name##_variants_f64),
#include "rules/names.inc.h"
        },
    };
    return table;
}

template const update_table &cuda_update_table<UPDATE_SLICE>();
