/* The element-wise update: one launch for all parameters of a kind, whatever their number and sizes.
 *
 * Memory is the limit, so what matters is that many wide loads are on their way at any time: blocks stay and take one
 * tile after the other, and each thread asks for all it needs of several groups of four elements before it computes. The
 * launch overlaps prepare: only what prepare writes is waited for, after the first tile was asked for. */
#include "optim/kernels/cuda/update_kernels.cuh"

/* ---- launches ---- */

/* How a formula is launched for tensors of a kind. */
struct variant_launch {
    const void *kernel; /* NULL: there is none */
    void (*update)(const view *v, const update_class *c, cudaStream_t stream);
    void (*collect)(const view *v, const update_class *c, cudaStream_t stream);
    int threads, tile;
    bool stay;
    const char *name; /* of a tuning */
};

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

/* ---- all there are ---- */

/* Of one formula: the standard launch of each kind, and those that `optim bench` can try in its place. */
struct variant_launches {
    variant_launch standard[KINDS];
    struct {
        const variant_launch *at;
        int n;
    } tunings[KINDS];
};

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
    if constexpr (RULE::has & HAS_Q8) x.standard[KIND_Q8] = make_launch<RULE, q8_cut, KIND_Q8>("");
    if constexpr (f32 && RULE::has & HAS_BF16) x.standard[KIND_BF16] = make_launch<RULE, bf16_cut, KIND_BF16>("");
    if constexpr (f32 && RULE::has & HAS_TUNINGS) add_tunings<RULE>(&x);
    return x;
}

template <class... RULES> static const variant_launches *launches_of(rule_variants<RULES...>) {
    static const variant_launches all[] = {make_launches<RULES>()...};
    return all;
}

#define ADAMOD_RULE_NAME
#define OPTION(id)
static const variant_launches &launches_at(int rule, int f64, int variant) {
    static const variant_launches *const all[2][RULE_COUNT] = {
        {
#define RULE(name) launches_of(name##_variants_f32),
#include "optim/rules/list.inc.h"
#undef RULE
        },
        {
#define RULE(name) launches_of(name##_variants_f64),
#include "optim/rules/list.inc.h"
#undef RULE
        },
    };
    return all[f64][rule][variant];
}
#undef OPTION
#undef ADAMOD_RULE_NAME

/* ---- which one ---- */

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
    if (c->kind == KIND_Q8) { /* or rings might find room for few blocks */
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
