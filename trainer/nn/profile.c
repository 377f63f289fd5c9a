/* See profile.h. Kernels on a device are timed by a recording of many calls in a row, replayed between two clock
 * readings, so that enqueueing and waiting do not count. Data that a kernel reads again and again may stay in the
 * device's caches; in a run most of it was just written there, too. */
#include "nn/profile.h"
#include "nn/backend/cpu/gemm.h"
#include "support/clock.h"
#include "core/error.h"
#include "nn/plan.h"

#include <stdio.h>
#include <string.h>

enum { CALLS = 20, REPLAYS = 5, PEAK_SIZE = 8192 };

/* ---- a recording ---- */

static adamod_status record(const nn_plan *plan, adamod_status (*enqueue)(void *), void *context, int calls,
                            void **out) {
    nn_device *d = plan->on_device->device;
    plan->f->watch(d, true);
    adamod_status status = enqueue(context); /* libraries load what they need when first called */
    if (!status) status = plan->f->wait(d);
    plan->f->watch(d, false);
    if (!status) status = plan->f->record_begin(d);
    if (status) return status;
    for (int i = 0; !status && i < calls; i++) status = enqueue(context);
    const adamod_status ended = plan->f->record_end(d, out);
    return status ? status : ended;
}

static adamod_status replay(const nn_plan *plan, void *recording, int times) {
    adamod_status status = ADAMOD_OK;
    for (int i = 0; !status && i < times; i++) status = plan->f->replay(plan->on_device->device, recording);
    return status ? status : plan->f->wait(plan->on_device->device);
}

adamod_status nn_profile_time(nn_plan *plan, adamod_status (*enqueue)(void *context), void *context, int calls,
                              double *seconds) {
    void *recording = NULL;
    adamod_status status = record(plan, enqueue, context, calls, &recording);
    if (!status) status = replay(plan, recording, 1);
    const double start = clock_seconds();
    if (!status) status = replay(plan, recording, REPLAYS);
    *seconds = (clock_seconds() - start) / (calls * REPLAYS);
    plan->f->drop(plan->on_device->device, recording);
    return status;
}

/* ---- steps ---- */

/* The sums at the end of a backward pass follow the ops. */
int nn_profile_steps(const nn_plan *plan) { return plan->n_steps + (plan->n_steps > plan->n_forward); }

typedef struct profiled {
    nn_plan *plan;
    const plan_step *step;
    int sums; /* noted by the steps before */
} profiled;

static adamod_status call_step(void *context) {
    const profiled *p = context;
    const plan_step *step = p->step;
    p->plan->sums.count = p->sums; /* each call notes its sums again */
    (step->backward ? step->kernels.backward : step->kernels.forward)(&step->call);
    if (step->backward && step->kernels.backward_weights && !step->paired_in)
        step->kernels.backward_weights(&step->call);
    return ADAMOD_OK;
}

static adamod_status call_sums(void *context) {
    const nn_plan *plan = context;
    plan->f->sum(plan->on_device->device, plan->sums.count, plan->sums.list);
    return ADAMOD_OK;
}

static size_t add_array(char *out, size_t size, size_t used, const char *before, const nn_array *a) {
    if (used >= size) return used;
    return used +
           (size_t)snprintf(out + used, size - used, "%s[%lld, %lld]", before, (long long)a->rows, (long long)a->cols);
}

/* The matrices among the inputs, and the output. */
static void describe(const plan_step *step, char *out, size_t size) {
    size_t used = 0;
    for (int k = 0; k < step->node->n_inputs; k++) {
        const nn_array *a = &step->call.input[k];
        if (a->data && a->cols > 2) used = add_array(out, size, used, used ? " x " : "", a);
    }
    add_array(out, size, used, used ? " -> " : "", &step->call.output[0]);
}

static adamod_status run_sums(nn_plan *plan, nn_profile_step *out) {
    *out = (nn_profile_step){.op = NN_PROFILE_SUMS, .backward = true};
    snprintf(out->shape, sizeof out->shape, "%d at the end", plan->sums.count);
    return nn_profile_time(plan, call_sums, plan, CALLS, &out->seconds);
}

adamod_status nn_profile_run(nn_plan *plan, int step, nn_profile_step *out) {
    if (step == plan->n_steps) return run_sums(plan, out);
    plan_step *s = &plan->steps[step];
    profiled p = {plan, s, step > plan->n_forward ? plan->sums.count : 0};
    nn_plan_bind(plan, s);
    *out = (nn_profile_step){.op = s->node->op->name, .backward = s->backward};
    describe(s, out->shape, sizeof out->shape);
    return nn_profile_time(plan, call_step, &p, CALLS, &out->seconds);
}

/* ---- products ---- */

bool nn_profile_input_at(const nn_graph *g, int i, nn_profile_input *out) {
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *x = &g->values[v];
        if (x->source != NN_FROM_INPUT || x->state || i-- > 0) continue;
        *out = (nn_profile_input){x->name, x->type, x->shape.rows, x->type == NN_BF16 ? 2 : 4, x->shape};
        for (int d = 1; d < x->shape.ndim; d++) out->row_bytes *= (size_t)x->shape.dim[d];
        return true;
    }
    return false;
}

bool nn_profile_product_at(const nn_graph *g, int i, nn_profile_product *out) {
    for (int n = 0; n < g->n_nodes; i -= g->nodes[n++].op->matrices) {
        const nn_node *node = &g->nodes[n];
        if (i >= node->op->matrices) continue;
        const nn_shape *x = &g->values[node->input[0]].shape, *w = &g->values[node->input[1 + i]].shape;
        const nn_shape *y = &g->values[node->output[0]].shape;
        *out = (nn_profile_product){x->rows, x->dim[0], w->dim[0], nn_columns(w), 1};
        if (y->ndim == 4) out->pixels = y->dim[1] * y->dim[2];
        return true;
    }
    return false;
}

void nn_profile_forward_product(adamod_pool *pool, const nn_profile_product *p, int64_t rows,
                                const nn_profile_arrays *a) {
    nn_gemm(pool, &(nn_product){.m = rows,
                                .n = p->out,
                                .k = p->in,
                                .a = {.data = a->x, .stride = p->in},
                                .b = {a->w, p->in, .transposed = true},
                                .c = a->y,
                                .ldc = p->out,
                                .narrow = a->narrow});
}

void nn_profile_backward_products(adamod_pool *pool, const nn_profile_product *p, int64_t rows,
                                  const nn_profile_arrays *a) {
    nn_gemm(pool, &(nn_product){.m = p->out,
                                .n = p->in,
                                .k = rows,
                                .a = {a->dy, p->out, .transposed = true},
                                .b = {.data = a->x, .stride = p->in},
                                .c = a->dw,
                                .ldc = p->in,
                                .narrow = a->narrow});
    nn_gemm(pool, &(nn_product){.m = rows,
                                .n = p->in,
                                .k = p->out,
                                .a = {.data = a->dy, .stride = p->out},
                                .b = {.data = a->w, .stride = p->in},
                                .c = a->dx,
                                .ldc = p->in,
                                .narrow = a->narrow});
}

size_t nn_profile_narrow_floats(const nn_profile_product *p, int64_t rows) {
    return nn_narrow_floats(rows, p->in) + nn_narrow_floats(rows, p->out) + nn_narrow_floats(p->out, p->in);
}

const char *nn_profile_library(void) { return nn_gemm_library(); }

const char *nn_profile_narrow(void) { return nn_narrow_instructions(); }

/* ---- the device ---- */

size_t nn_profile_device_bytes(const nn_plan *plan) { return plan->f->info(plan->on_device->device).used; }

const char *nn_profile_device_name(const nn_plan *plan, char *out, size_t size) {
    snprintf(out, size, "%s (%s)", plan->on_device->name, plan->f->info(plan->on_device->device).name);
    return out;
}

static adamod_status time_product(nn_params *params, nn_graph *g, const nn_device_params *on, double *flops) {
    const int64_t shape[2] = {PEAK_SIZE, PEAK_SIZE};
    const nn_value w = nn_parameter(g, "w", 2, shape, (nn_init){NN_UNIFORM, 1});
    nn_keep(g, "y", nn_linear(g, w, w, -1, NN_LINEAR));
    const nn_plan_options o = {.loss = -1};
    nn_plan *plan = NULL;
    nn_profile_step found = {0};
    adamod_status status = nn_params_allocate(params, 1);
    if (!status) status = nn_params_to_device(params, on->name, on->precision);
    if (!status) status = nn_plan_create(&plan, g, &o);
    if (!status) status = nn_profile_run(plan, 0, &found);
    nn_plan_free(plan);
    if (!status) *flops = nn_graph_flops(g) / found.seconds;
    return status;
}

adamod_status nn_profile_peak(const nn_params *params, double *flops) {
    nn_params *own = nn_params_create();
    nn_graph *g = own ? nn_graph_create(own) : NULL;
    const adamod_status status = g ? time_product(own, g, params->on_device, flops)
                                   : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a product of matrices");
    nn_graph_free(g);
    nn_params_free(own);
    return status;
}

/* The first entry that the name begins with counts. */
double nn_profile_data_sheet(const char *gpu) {
    static const struct {
        const char *name;
        double teraflops;
    } known[] = {{"NVIDIA GB200", 2500},
                 {"NVIDIA B200", 2250},
                 {"NVIDIA GH200", 989.4},
                 {"NVIDIA H200", 989.4},
                 {"NVIDIA H100 NVL", 835},
                 {"NVIDIA H100 PCIe", 756},
                 {"NVIDIA H100", 989.4},
                 {"NVIDIA A100", 312},
                 {"NVIDIA A10G", 70},
                 {"NVIDIA A10", 125},
                 {"NVIDIA L40S", 362},
                 {"NVIDIA L40", 181},
                 {"NVIDIA L4", 121},
                 {"NVIDIA RTX A6000", 155},
                 {"NVIDIA GeForce RTX 4090", 165.2},
                 {"NVIDIA GeForce RTX 3090", 71}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(gpu, known[i].name, strlen(known[i].name)) == 0) return 1e12 * known[i].teraflops;
    }
    return 0;
}

double nn_profile_data_sheet_peak(const nn_plan *plan) {
    const nn_device_params *on = plan->on_device;
    return on && on->precision == NN_MIXED ? nn_profile_data_sheet(plan->f->info(on->device).name) : 0;
}
