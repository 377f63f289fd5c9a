/* The step before the update: the norm of the gradients, and one block that decides and counts. Also small kernels that
 * change tables, with data passed as parameters of the launch. */
#include "kernels/cuda/device.cuh"

#include "rules/coefs.inc.h"
#include "optim/schedule.inc.h"

/* ---- tables ---- */

static __global__ void set_group_kernel(device_group *to, const __grid_constant__ device_group from) {
    const uint32_t *in = (const uint32_t *)&from;
    for (unsigned i = threadIdx.x; i < sizeof from / 4; i += blockDim.x) ((uint32_t *)to)[i] = in[i];
}

void cuda_set_group(device_group *to, const device_group *from, cudaStream_t stream) {
    static_assert(sizeof *from % 4 == 0 && sizeof *from < 4000, "a group travels with a launch");
    set_group_kernel<<<1, 256, 0, stream>>>(to, *from);
}

struct pointers {
    enum { MOST = 160 };
    void *p[MOST];
    const void *g[MOST];
    uint8_t path[MOST];
};

static __global__ void set_pointers_kernel(device_tensor *to, int n, const __grid_constant__ pointers from) {
    const int i = (int)threadIdx.x;
    if (i >= n) return;
    to[i].p = from.p[i];
    to[i].g = from.g[i];
    to[i].path = from.path[i];
}

void cuda_set_pointers(device_tensor *tensors, const device_tensor *from, int64_t first, int64_t n,
                       cudaStream_t stream) {
    for (int64_t at = first; at < first + n; at += pointers::MOST) {
        pointers x;
        const int m = first + n - at < pointers::MOST ? (int)(first + n - at) : (int)pointers::MOST;
        for (int i = 0; i < m; i++) {
            x.p[i] = from[at + i].p;
            x.g[i] = from[at + i].g;
            x.path[i] = from[at + i].path;
        }
        set_pointers_kernel<<<1, pointers::MOST, 0, stream>>>(tensors + at, m, x);
    }
}

static __global__ void set_control_kernel(control *to, const float *found_inf, const float *loss_scale,
                                          const device_schedule *schedules, const int64_t *numbers) {
    to->found_inf = found_inf;
    to->loss_scale = loss_scale;
    to->schedules = schedules;
    to->numbers = numbers;
}

void cuda_set_control(control *to, const float *found_inf, const float *loss_scale, const device_schedule *schedules,
                      const int64_t *numbers, cudaStream_t stream) {
    set_control_kernel<<<1, 1, 0, stream>>>(to, found_inf, loss_scale, schedules, numbers);
}

static bool aligned_to(const void *p, uintptr_t bytes) { return (uintptr_t)p % bytes == 0; }

/* Masters are always f32. Masters and states may be the caller's, at any address. */
static bool states_aligned_to(const device_tensor *t, uintptr_t bytes) {
    bool aligned = aligned_to(t->master, 16);
    for (int i = 0; i < KERNEL_STATES; i++) aligned = aligned && aligned_to(t->state[i], bytes);
    return aligned;
}

uint8_t cuda_path(const device_tensor *t) {
    if (t->queue && t->count % 4 != 0) return PATH_ANY; /* arrays in the queue are not aligned */
    if (!states_aligned_to(t, 16)) return PATH_ANY;
    const bool f32 = t->p_type == ADAMOD_F32 && t->g_type == ADAMOD_F32 && t->state_type == ADAMOD_F32;
    if (f32 && aligned_to(t->p, 16) && aligned_to(t->g, 16)) return PATH_F32;
    const bool q8 = t->p_type == ADAMOD_F32 && t->g_type == ADAMOD_F32 && t->state_type == ADAMOD_Q8;
    if (q8 && aligned_to(t->p, 16) && aligned_to(t->g, 16)) return PATH_Q8;
    const bool low = t->p_type == ADAMOD_BF16 && aligned_to(t->p, 8);
    const bool bf16 = low && t->g_type == ADAMOD_BF16 && aligned_to(t->g, 8);
    if (bf16 && t->master && t->state_type == ADAMOD_F32) return PATH_MASTER;
    if (low && t->master && t->g_type == ADAMOD_F32 && t->state_type == ADAMOD_F32 && aligned_to(t->g, 16)) {
        return PATH_COPY;
    }
    const bool all = bf16 && !t->master && t->state_type == ADAMOD_BF16;
    if (all && aligned_to(t->p, 16) && aligned_to(t->g, 16)) return PATH_BF16;
    return PATH_ANY;
}

/* ---- states before the first update ---- */

static __global__ void fill_kernel(void *to, int type, int64_t count, double value) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (int64_t)blockDim.x) {
        switch (type) {
            case ADAMOD_F32: ((float *)to)[i] = (float)value; break;
            case ADAMOD_F64: ((double *)to)[i] = value; break;
            case ADAMOD_Q8: ((uint8_t *)to)[i] = (uint8_t)value; break; /* a code */
            default: ((uint16_t *)to)[i] = nearest(type, (float)value); break;
        }
    }
}

void cuda_fill(void *to, adamod_type type, int64_t count, double value, cudaStream_t stream) {
    if (count > 0) fill_kernel<<<1024, 256, 0, stream>>>(to, (int)type, count, value);
}

static __global__ void widen_kernel(float *to, const void *from, int type, int64_t count) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (int64_t)blockDim.x) {
        to[i] = load_as<float>(from, type, i);
    }
}

void cuda_widen(float *to, const void *from, adamod_type type, int64_t count, cudaStream_t stream) {
    if (count > 0) widen_kernel<<<1024, 256, 0, stream>>>(to, from, (int)type, count);
}

/* ---- a plain copy ---- */

template <bool STREAM>
static __global__ void __launch_bounds__(256) copy_kernel(uint4 *to, const uint4 *from, int64_t n) {
    enum { EACH = 4 };
    const int64_t first = (int64_t)blockIdx.x * (256 * EACH) + threadIdx.x;
    uint4 x[EACH];
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        const int64_t i = first + 256 * u;
        if (i < n) x[u] = STREAM ? __ldcs(from + i) : from[i];
    }
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        const int64_t i = first + 256 * u;
        if (i < n && STREAM) __stcs(to + i, x[u]);
        else if (i < n) to[i] = x[u];
    }
}

void cuda_copy(void *to, const void *from, size_t bytes, int hint, cudaStream_t stream) {
    const int64_t n = (int64_t)(bytes / sizeof(uint4));
    const unsigned blocks = (unsigned)((n + 1023) / 1024);
    (hint ? copy_kernel<true> : copy_kernel<false>)<<<blocks, 256, 0, stream>>>((uint4 *)to, (const uint4 *)from, n);
}

/* ---- the norm ---- */

/* The gradients' factor before clipping. */
static __device__ __forceinline__ double gradient_scale(const view &v) {
    const double scale = v.groups[0].options[OPT_GRAD_SCALE];
    return v.shared->loss_scale ? scale * (1 / (double)*v.shared->loss_scale) : scale;
}

/* A warp's sum of squares of a block of n elements, in the library's order, and the largest. Unscaled squares of f32 are
 * exact in f64, so that a fused multiply-add gives the same bits, and the largest is found by its bits, NaNs above
 * infinity. */
template <bool SCALED, class R, int TYPE>
static __device__ __forceinline__ void block_squares(const void *g, int64_t first, int n, double scale, double *sum,
                                                     double *most) {
    constexpr bool BY_BITS = !SCALED && sizeof(R) == 4;
    const int lane = (int)threadIdx.x % 32;
    double s = 0, m = 0;
    uint32_t bits = 0;
#pragma unroll
    for (int r = 0; r < BLOCK / 32; r++) {
        const int i = 32 * r + lane;
        if (i >= n) continue;
        const R x = load_as<R>(g, TYPE, first + i);
        if constexpr (BY_BITS) {
            s = __fma_rn((double)x, (double)x, s);
            bits = max(bits, __float_as_uint(x) & 0x7fffffffu);
        } else {
            const double d = (double)x * (SCALED ? scale : 1);
            s += d * d;
            m = larger(m, fabs(d));
        }
    }
    *sum = sum_lanes(s);
    *most = BY_BITS ? (double)__uint_as_float(__reduce_max_sync(0xffffffffu, bits)) : largest_lane(m);
}

template <bool SCALED>
static __device__ void gradient_squares(const device_tensor &t, int64_t first, int n, double scale, double *sum,
                                        double *most) {
    switch (t.g_type) {
        case ADAMOD_F32: return block_squares<SCALED, float, ADAMOD_F32>(t.g, first, n, scale, sum, most);
        case ADAMOD_F64: return block_squares<SCALED, double, ADAMOD_F64>(t.g, first, n, scale, sum, most);
        case ADAMOD_BF16: return block_squares<SCALED, float, ADAMOD_BF16>(t.g, first, n, scale, sum, most);
        default: return block_squares<SCALED, float, ADAMOD_F16>(t.g, first, n, scale, sum, most);
    }
}

/* A block's sum of squares and largest of one chunk; thread 0 has them. If SCALED, each element is scaled before it is
 * squared, else the results are not scaled at all. */
template <bool SCALED>
static __device__ void chunk_squares(const view &v, int64_t chunk, double scale, rounds<2> *shared, double *sum,
                                     double *most) {
    const piece c = v.chunks[chunk];
    const device_tensor &t = v.tensors[c.tensor];
    const int64_t first = c.index * v.chunk, last = first + v.chunk < t.count ? first + v.chunk : t.count;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    double total = 0, largest = 0;
    int round = 0;
    for (int64_t at = first; t.g && at < last; at += warps * BLOCK, round++) {
        const int64_t begin = at + warp * BLOCK;
        double x[2] = {0, 0};
        if (begin < last) {
            const int n = last - begin < BLOCK ? (int)(last - begin) : (int)BLOCK;
            gradient_squares<SCALED>(t, begin, n, scale, &x[0], &x[1]);
        }
        shared->gather(round, x, active_warps(at, last), [&](int j, double y) {
            if (j == 0) total += y;
            else largest = larger(largest, y);
        });
    }
    __syncthreads(); /* shared may be used again */
    *sum = total;
    *most = largest;
}

static __global__ void __launch_bounds__(SUM_THREADS) norm_kernel(const __grid_constant__ view v) {
    __shared__ rounds<2> shared;
    double sum, most;
    chunk_squares<false>(v, blockIdx.x, 1, &shared, &sum, &most);
    if (threadIdx.x != 0) return;
    const double scale = gradient_scale(v);
    v.partial[blockIdx.x] = sum * (scale * scale);
    v.largest[blockIdx.x] = most * scale;
}

/* Adds the chunks' numbers, 32 at a time. Called by a warp; thread 0 has the results. */
static __device__ void add_chunks(const view &v, double *sum, double *most) {
    double total = 0, largest = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x % 32; i < v.n_chunks; i += 32) {
        total += v.partial[i];
        largest = larger(largest, v.largest[i]);
    }
    *sum = sum_lanes(total);
    *most = largest_lane(largest);
}

/* This rank's numbers; other ranks' are 0 until they are added up. */
static __global__ void part_kernel(const __grid_constant__ view v) {
    double sum, most;
    add_chunks(v, &sum, &most);
    for (int i = (int)threadIdx.x; i < 2 * v.ranks; i += 32) v.part_sums[i] = 0;
    __syncwarp();
    if (threadIdx.x == 0) v.part_sums[2 * v.rank] = sum, v.part_sums[2 * v.rank + 1] = most;
}

/* Adds the numbers of all ranks, in their order. */
static __device__ void add_parts(const view &v, double *sum, double *most) {
    *sum = *most = 0;
    for (int r = 0; r < v.ranks; r++) {
        *sum += v.part_sums[2 * r];
        *most = larger(*most, v.part_sums[2 * r + 1]);
    }
}

void cuda_norm(const view *v, cudaStream_t stream) {
    if (v->n_chunks > 0) norm_kernel<<<(unsigned)v->n_chunks, SUM_THREADS, 0, stream>>>(*v);
    if (v->ranks > 0) part_kernel<<<1, 32, 0, stream>>>(*v);
}

/* Squares of doubles may overflow or vanish where the numbers do not: sums once more, scaled. Slow, since this is one
 * block, and rare. All threads call it; thread 0 has the norm. */
static __device__ double rescaled_norm(const view &v, double most, rounds<2> *shared) {
    const double rescale = 1 / fmax(most, 1e-300), scale = gradient_scale(v) * rescale;
    double sum = 0, ignored;
    for (int64_t c = 0; c < v.n_chunks; c++) {
        chunk_squares<true>(v, c, scale, shared, &sum, &ignored);
        if (threadIdx.x == 0) v.partial[c] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) add_chunks(v, &sum, &ignored);
    return sqrt(sum) / rescale;
}

/* ---- prepare ---- */

static __device__ double scheduled(const view &v, int node, double base, int64_t t) {
    const device_schedule *s = &v.shared->schedules[node];
    while (s->kind == SCHEDULE_CHAIN) {
        const int64_t part = adamod__chain_part(v.shared->numbers + s->list, s->whole, &t);
        s = &v.shared->schedules[s->first + part];
    }
    return adamod__schedule_simple(s->kind, s->number, s->whole, v.shared->numbers + s->list, base, t);
}

static __device__ bool within(const device_limit &limit, double x) {
    return (limit.min_open ? x > limit.min : x >= limit.min) && (limit.max_open ? x < limit.max : x <= limit.max);
}

static __device__ bool within(const number_range &range, double x) {
    return x == 0 || (x >= range.least && x <= range.most);
}

/* The fault of an option of a group; *range is the type in which it is out of range. */
static __device__ range_fault option_fault(const view &v, const device_group &g, int o, double x, int *range) {
    if (!within(v.limits[o], x)) return RANGE_BOUNDS;
    for (*range = 0; *range < RANGE_TYPES; ++*range) {
        if (g.computes[*range] && !within(v.limits[o].in[*range], x)) return RANGE_TYPE;
    }
    return RANGE_FINE;
}

/* The fault of a group's options together. */
static __device__ range_fault group_fault(const view &v, int g, int *range) {
    range_fault fault = RANGE_FINE;
    for (int i = 0; i < RANGE_TYPES && !fault; i++) {
        if (!v.groups[g].computes[i]) continue;
        *range = i;
        fault = adamod__fault_combined(v.effective + g * OPT_COUNT, v.base_lr[g], v.limits[OPT_GRAD_SCALE].in[i].most,
                                       v.limits[OPT_LR].in[i].most);
    }
    return fault;
}

/* Evaluates option i of all groups. False if a schedule's or the device's value is out of bounds. */
static __device__ bool prepare_option(const view &v, int i, int64_t t) {
    const device_group &g = v.groups[i / OPT_COUNT];
    const int o = i % OPT_COUNT;
    double x = g.options[o];
    if (g.value[o])
        x = g.value_type[o] == ADAMOD_F64 ? *(const double *)g.value[o] : (double)*(const float *)g.value[o];
    if (o == OPT_LR) v.base_lr[i / OPT_COUNT] = x;
    if (g.schedule[o] >= 0) x = scheduled(v, g.schedule[o], x, t);
    v.effective[i] = x;
    int range;
    return (g.schedule[o] < 0 && !g.value[o]) || option_fault(v, g, o, x, &range) == RANGE_FINE;
}

static __device__ void rule_coefs(int rule, const double *o, const step_info *info, adamod__coef_f64 *c) {
    switch (rule) {
#define RULE(name)                                                                                                     \
    case RULE_##name:                                                                                                  \
        adamod__##name##_coefs(o, info, c);                                                                            \
        break;
#include "rules/names.inc.h"
        default: break;
    }
}

/* The coefficients of a parameter's update, after its step is counted. */
static __device__ void prepare_tensor(const view &v, int64_t i, double grad_scale) {
    const device_tensor &t = v.tensors[i];
    const double *o = v.effective + t.group * OPT_COUNT;
    const step_info info = {v.steps[i], v.base_lr[t.group], t.rows, t.cols, t.first, t.count};
    adamod__coef_f64 c = {};
    adamod__option_coefs(o, &c);
    rule_coefs(v.rule, o, &info, &c);
    adamod__common_coefs(o, grad_scale, &c);
    array_step &now = v.now[i];
    set_coefs(&now, c);
    now.transform = c.l2 != 0 || c.clip < INFINITY;
    now.key = adamod__array_key((uint64_t)o[OPT_SEED], t.stream, info.t);
    now.turn = t.queue ? (info.t - 1) % t.queue * t.count : 0;
}

static __device__ void report(const view &v, const device_error &what) {
    device_error *e = &v.mirror->error;
    e->status = what.status;
    e->step = v.shared->steps + 1;
    e->tensor = what.tensor;
    e->group = what.group;
    e->option = what.option;
    e->fault = what.fault;
    e->range = what.range;
    e->value = what.value;
    __threadfence_system();
    *(volatile uint32_t *)&e->count = ++v.shared->errors;
}

static __device__ void report_gradient(const view &v, int64_t tensor, double largest) {
    device_error e = {};
    e.status = ADAMOD_ERROR_NONFINITE;
    e.tensor = tensor;
    e.value = largest;
    report(v, e);
}

/* A group has FAULTS places: one for each option, and one for all together. */
enum { FAULTS = OPT_COUNT + 1 };
static __device__ void report_option(const view &v, int place) {
    device_error e = {};
    e.status = ADAMOD_ERROR_RANGE;
    e.tensor = -1;
    e.group = place / FAULTS;
    e.option = place % FAULTS;
    const double *o = v.effective + e.group * OPT_COUNT;
    if (e.option < OPT_COUNT) {
        e.value = o[e.option];
        e.fault = option_fault(v, v.groups[e.group], e.option, e.value, &e.range);
    } else {
        e.fault = group_fault(v, e.group, &e.range);
        e.value = e.fault == RANGE_RATE ? adamod__rate_of_zeros(o) : adamod__final_lr(o, v.base_lr[e.group]);
    }
    report(v, e);
}

/* The first parameter whose gradient, or the gradient's square, is not finite in the update; -1: none. *largest is the
 * gradient's largest element, scaled and clipped to the norm. */
static __device__ int64_t find_nonfinite(const view &v, double factor, double *largest) {
    const double scale = gradient_scale(v);
    for (int64_t i = 0; i < v.n_chunks; i++) {
        const int64_t found = v.chunks[i].tensor;
        const device_tensor &t = v.tensors[found];
        const double clip = v.effective[t.group * OPT_COUNT + OPT_CLIP_VALUE];
        const bool wide = t.p_type == ADAMOD_F64 && t.state_type == ADAMOD_F64;
        if (!t.g || adamod__seen_finite(v.largest[i], scale, factor, clip, wide)) continue;
        double most = 0;
        for (int64_t c = v.first_chunk[found]; c < v.first_chunk[found + 1]; c++) most = larger(most, v.largest[c]);
        *largest = most * factor;
        return found;
    }
    return -1;
}

struct decision {
    int fault; /* the first place of an option outside its bounds */
    int skip;
    double sum, most, factor;
};

/* Does not wait for the write to host memory, which would take longer than all else: see device_report. */
static __device__ void report_attempt(const view &v, int64_t attempt, int taken, double norm) {
    device_report *to = &v.mirror->reports[attempt % ADAMOD_REPORTS];
    const double lr = v.effective[OPT_LR];
    to->report.attempt = attempt;
    to->report.taken = taken;
    to->report.grad_norm = norm;
    to->report.lr = lr;
    to->check = adamod__report_check(attempt, taken, norm, lr);
}

/* Thread 0: whether the step is taken, and what the gradients are multiplied by for clipping. */
static __device__ void decide(const view &v, decision *d, const device_step &how, double norm) {
    control *c = v.shared;
    const double *o = v.groups[0].options;
    d->factor = how.norm && norm > o[OPT_CLIP_NORM] ? o[OPT_CLIP_NORM] / norm : 1;
    const bool doubtful = o[OPT_NONFINITE] != NONFINITE_PASS && !adamod__surely_finite(norm, gradient_scale(v));
    double largest = norm;
    int64_t bad = doubtful ? find_nonfinite(v, d->factor, &largest) : -1;
    bool nonfinite = doubtful && (bad >= 0 || !isfinite(norm));
    if (doubtful && v.ranks > 0) { /* all ranks decide alike, by the same largest */
        const double clip = v.effective[OPT_CLIP_VALUE];
        nonfinite = !isfinite(norm) || !adamod__seen_finite(d->most, gradient_scale(v), d->factor, clip, false);
        if (nonfinite && bad < 0) bad = -2;
    }
    bool count = nonfinite && o[OPT_NONFINITE] == NONFINITE_SKIP;
    if (d->fault < v.n_groups * FAULTS) {
        report_option(v, d->fault);
        d->skip = 1;
        count = false;
    } else if (nonfinite && o[OPT_NONFINITE] == NONFINITE_ERROR) {
        report_gradient(v, bad, largest);
        d->skip = 1;
    } else {
        c->norm = how.norm ? norm : -1;
        if (c->found_inf && *c->found_inf != 0) count = true;
        d->skip = count;
    }
    c->skip = d->skip;
    c->skipped += count && c->skipped < ADAMOD__MOST_STEPS;
    c->steps += !d->skip && c->steps < ADAMOD__MOST_STEPS;
    if (!d->skip) c->filled = how.collect;
    if (count || !d->skip) report_attempt(v, c->steps + c->skipped, !d->skip, c->norm);
}

static __device__ __forceinline__ void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* The last update has evicted the tables from the caches: fetch all at once. */
static __device__ void prefetch_tables(const view &v) {
    enum { LINE = 128 };
    const size_t groups = (size_t)v.n_groups * sizeof *v.groups;
    for (size_t i = threadIdx.x * LINE; i < groups; i += blockDim.x * LINE) prefetch((const char *)v.groups + i);
    for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
        prefetch(&v.tensors[i]);
        prefetch(&v.steps[i]);
    }
}

static __global__ void __launch_bounds__(SUM_THREADS)
    prepare_kernel(const __grid_constant__ view v, const device_step how) {
    __shared__ rounds<2> shared;
    __shared__ decision d;
    let_next_start();
    prefetch_tables(v);
    if (threadIdx.x == 0) d.fault = v.n_groups * FAULTS;
    __syncthreads();
    const int64_t update = v.shared->steps + 1;
    for (int i = (int)threadIdx.x; i < v.n_groups * OPT_COUNT; i += (int)blockDim.x) {
        if (!prepare_option(v, i, update)) atomicMin(&d.fault, i / OPT_COUNT * FAULTS + i % OPT_COUNT);
    }
    double norm = 0;
    if (how.norm) {
        double sum = 0, most = 0;
        if (v.ranks > 0) add_parts(v, &sum, &most);
        else if (threadIdx.x < 32) add_chunks(v, &sum, &most);
        if (threadIdx.x == 0) d.sum = sum, d.most = most;
        __syncthreads();
        const bool plain = (isfinite(d.sum) && d.sum > 1e-280) || (v.ranks > 0 && isfinite(d.most) && d.most > 0);
        if (plain) norm = sqrt(d.sum); /* gradients of ranks are f32, whose squares fit a double */
        else if (!isfinite(d.most) || d.most == 0) norm = d.most;
        else norm = rescaled_norm(v, d.most, &shared);
    }
    __syncthreads();
    for (int g = (int)threadIdx.x, range; g < v.n_groups; g += (int)blockDim.x) {
        if (group_fault(v, g, &range)) atomicMin(&d.fault, g * FAULTS + OPT_COUNT);
    }
    __syncthreads();
    if (threadIdx.x == 0) decide(v, &d, how, norm);
    __syncthreads();
    if (d.skip) return;
    const double grad_scale = gradient_scale(v) * d.factor;
    for (int64_t i = threadIdx.x; i < v.n; i += blockDim.x) {
        if (!v.tensors[i].g) continue;
        v.steps[i]++;
        prepare_tensor(v, i, grad_scale);
        if (v.steps[i] > ADAMOD__MOST_STEPS) v.steps[i] = ADAMOD__MOST_STEPS;
    }
}

void cuda_prepare(const view *v, const device_step *how, cudaStream_t stream) {
    prepare_kernel<<<1, SUM_THREADS, 0, stream>>>(*v, *how);
}

static __global__ void clear_counts_kernel(const __grid_constant__ view v) {
    if (!v.shared->skip) v.counts[blockIdx.x].clear();
}

void cuda_clear_counts(const view *v, cudaStream_t stream) {
    clear_counts_kernel<<<(unsigned)v->n_groups, 256, 0, stream>>>(*v);
}
