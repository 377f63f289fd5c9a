/* Runs plans: on the host the kernels one after another; on a device with copies of inputs and outputs, as
 * recordings. */
#include "nn/plan.h"
#include "core/error.h"
#include "support/random.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is given and read ---- */

void *nn_plan_data(nn_plan *plan, const char *name) {
    const nn_value v = nn_named_value(plan->graph, name);
    if (v < 0) return NULL;
    if (!plan->on_device) return nn_plan_address(plan, v);
    const nn_value_info *info = &plan->graph->values[v];
    if (info->source == NN_FROM_INPUT && !info->state) return plan->traffic.inputs + plan->traffic.offset[v];
    return info->output ? plan->traffic.outputs + plan->traffic.offset[v] : NULL;
}

adamod_status nn_plan_set_rows(nn_plan *plan, int symbol, int64_t rows) {
    const int64_t capacity = nn_capacity(plan->graph, symbol);
    if (rows < 0 || rows > capacity) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "%lld rows, expected 0 to %lld", (long long)rows, (long long)capacity);
    }
    plan->rows[symbol] = rows;
    return ADAMOD_OK;
}

int64_t nn_plan_rows(const nn_plan *plan, int symbol) { return plan->rows[symbol]; }

void nn_plan_set_random(nn_plan *plan, uint64_t seed, uint64_t step) {
    plan->seed = seed;
    plan->random_step = step;
}

/* ---- to a device and back ---- */

enum { HEADER_BYTES = 256 }; /* keeps the inputs behind it aligned */
static_assert(sizeof(plan_header) <= HEADER_BYTES, "the header has room");

/* Offsets of inputs and outputs, each kind in a block of its own. */
static void nn_traffic_layout(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    plan_traffic *t = &plan->traffic;
    t->input_bytes = HEADER_BYTES;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        const bool input = info->source == NN_FROM_INPUT && !info->state;
        if (!input && !info->output) continue;
        size_t *end = input ? &t->input_bytes : &t->output_bytes;
        t->offset[v] = *end;
        *end += nn_plan_bytes(plan, &info->shape, NN_F32);
    }
}

adamod_status nn_traffic_create(nn_plan *plan) {
    plan_traffic *t = &plan->traffic;
    nn_device *d = plan->on_device->device;
    void *memory = NULL;
    const float one = 1;
    t->offset = calloc((size_t)plan->graph->n_values + 1, sizeof *t->offset);
    if (!t->offset) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a plan");
    nn_traffic_layout(plan);
    t->inputs = calloc(1, t->input_bytes);
    t->outputs = calloc(1, t->output_bytes + 1);
    if (!t->inputs || !t->outputs) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a plan's inputs");
    adamod_status status = plan->f->allocate(d, &memory, t->input_bytes + LOSS_NUMBERS * sizeof(float));
    t->device_inputs = memory;
    if (status) return status;
    t->device_one = (float *)(void *)(t->device_inputs + t->input_bytes);
    plan->f->upload(d, t->device_one, &one, sizeof one);
    for (int i = 0; !status && i < SLOTS; i++) {
        status = plan->f->allocate_host(d, &memory, t->input_bytes);
        if (status) break;
        t->input_slot[i] = memory;
        status = plan->f->allocate_host(d, &memory, t->output_bytes + 1);
        if (status) break;
        t->output_slot[i] = memory;
    }
    return status ? status : plan->f->wait(d);
}

void nn_traffic_free(nn_plan *plan) {
    plan_traffic *t = &plan->traffic;
    nn_device *d = plan->on_device->device;
    for (int i = 0; i < SLOTS; i++) {
        for (int k = 0; k < NN_VARIANTS; k++) plan->f->drop(d, t->recording[k][i]);
        plan->f->release_host(d, t->input_slot[i]);
        plan->f->release_host(d, t->output_slot[i]);
        plan->f->forget(d, t->done[i]);
    }
    plan->f->release(d, t->device_inputs, t->input_bytes + LOSS_NUMBERS * sizeof(float));
    free(t->offset);
    free(t->inputs);
    free(t->outputs);
}

/* Fills the rows of an input behind the batch's; those of f32 with 0. */
static void nn_pad_input(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    const int64_t used = info->shape.rows ? plan->rows[info->shape.rows] : info->shape.dim[0];
    const int64_t width = nn_columns(&info->shape);
    int32_t *x = (int32_t *)(void *)(plan->traffic.inputs + plan->traffic.offset[v]);
    for (int64_t i = used * width; i < info->shape.dim[0] * width; i++) x[i] = info->pad;
}

static int nn_slot(const nn_plan *plan) { return (int)((plan->traffic.begun - 1) % SLOTS); }

/* Copies the inputs into a slot that the device no longer reads. */
static void nn_begin(nn_plan *plan) {
    plan_traffic *t = &plan->traffic;
    t->begun++;
    const int slot = nn_slot(plan);
    if (t->begun - t->waited > SLOTS) t->waited = t->begun - SLOTS; /* the outputs were never asked for */
    if (t->done[slot]) plan->f->wait_for(plan->on_device->device, t->done[slot]);
    plan_header header = {.random = nn_run_key(plan->seed, plan->random_step)};
    memcpy(header.rows, plan->rows, sizeof header.rows);
    memcpy(t->inputs, &header, sizeof header);
    for (int v = 0; v < plan->graph->n_values; v++) {
        const nn_value_info *info = &plan->graph->values[v];
        if (info->source == NN_FROM_INPUT && !info->state) nn_pad_input(plan, v);
    }
    memcpy(t->input_slot[slot], t->inputs, t->input_bytes);
}

static void nn_enqueue_outputs(nn_plan *plan) {
    plan_traffic *t = &plan->traffic;
    char *to = t->output_slot[nn_slot(plan)];
    for (int v = 0; v < plan->graph->n_values; v++) {
        const nn_value_info *info = &plan->graph->values[v];
        if (!info->output) continue;
        plan->f->download(plan->on_device->device, to + t->offset[v], nn_plan_address(plan, v),
                          nn_plan_bytes(plan, &info->shape, plan->type[v]));
    }
}

/* The caller reads f32; a bf16 is the upper half of one. */
static void nn_take_output(nn_plan *plan, int slot, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    plan_traffic *t = &plan->traffic;
    if (!info->output) return;
    char *to = t->outputs + t->offset[v];
    const char *from = t->output_slot[slot] + t->offset[v];
    const int64_t n = nn_numbers(&info->shape);
    if (plan->type[v] != NN_BF16) {
        memcpy(to, from, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, from + 2 * i, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(to + 4 * i, &bits, sizeof bits);
    }
}

adamod_status nn_plan_wait(nn_plan *plan) {
    plan_traffic *t = &plan->traffic;
    if (!plan->on_device || t->waited == t->begun) return ADAMOD_OK;
    const int slot = (int)(t->waited++ % SLOTS);
    const adamod_status status = plan->f->wait_for(plan->on_device->device, t->done[slot]);
    for (int v = 0; !status && v < plan->graph->n_values; v++) nn_take_output(plan, slot, v);
    return status;
}

/* ---- runs ---- */

static void nn_run_forward(nn_plan *plan) {
    for (int s = 0; s < plan->n_forward; s++) {
        nn_plan_bind(plan, &plan->steps[s]);
        plan->steps[s].kernels.forward(&plan->steps[s].call);
    }
}

/* Converts f32 inputs to bf16 for mixed precision. */
static void nn_convert_inputs(nn_plan *plan) {
    for (int v = 0; v < plan->graph->n_values; v++) {
        if (!plan->converted[v]) continue;
        plan->f->narrow(plan->on_device->device, nn_plan_address(plan, v), nn_plan_given(plan, v),
                        nn_numbers(&plan->graph->values[v].shape));
    }
}

void nn_plan_forward(nn_plan *plan) {
    if (!plan->on_device) {
        nn_run_forward(plan);
        return;
    }
    plan_traffic *t = &plan->traffic;
    if (!t->replaying) nn_begin(plan);
    plan->f->upload(plan->on_device->device, t->device_inputs, t->input_slot[nn_slot(plan)], t->input_bytes);
    nn_convert_inputs(plan);
    nn_run_forward(plan);
    nn_enqueue_outputs(plan);
    if (!t->replaying) plan->f->mark(plan->on_device->device, &t->done[nn_slot(plan)]);
}

/* A parameter's first gradient of a run replaces the old one, unless runs accumulate. */
void nn_plan_backward(nn_plan *plan, bool accumulate) {
    const nn_graph *g = plan->graph;
    if (plan->options.loss < 0) return;
    float *seed = nn_plan_grad_address(plan, plan->options.loss);
    if (!seed) return;
    if (!plan->on_device) {
        memset(seed, 0, nn_plan_bytes(plan, &g->values[plan->options.loss].shape, NN_F32));
        seed[0] = 1;
    }
    plan->sums.count = 0;
    plan->watch.told = 0;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_plan_bind(plan, step);
        if (!step->backward) {
            step->kernels.forward(&step->call);
            continue;
        }
        nn_call call = step->call;
        nn_gradients grad = step->grad;
        call.grad = &grad;
        grad.accumulate_sums = accumulate;
        for (int k = 0; accumulate && k < step->node->n_inputs; k++) {
            const nn_value v = step->node->input[k];
            if (v >= 0 && g->values[v].source == NN_FROM_PARAM) grad.accumulate[k] = true;
        }
        step->kernels.backward(&call);
        if (step->kernels.backward_weights && !step->paired_in) step->kernels.backward_weights(&call);
        nn_plan_tell(plan, s);
    }
    if (plan->on_device) plan->f->sum(plan->on_device->device, plan->sums.count, plan->sums.list);
}

/* The first run of a variant is not recorded: libraries load what they need when first called. */
static adamod_status nn_replay_slot(nn_plan *plan, int variant, adamod_status (*steps)(void *context), void *context) {
    plan_traffic *t = &plan->traffic;
    nn_device *d = plan->on_device->device;
    void **recording = &t->recording[variant][nn_slot(plan)];
    if (!t->known[variant] || plan->unrecorded) {
        t->known[variant] = true;
        return steps(context);
    }
    if (!*recording) {
        adamod_status status = plan->f->record_begin(d);
        if (status) return status;
        status = steps(context);
        const adamod_status ended = plan->f->record_end(d, recording);
        if (status || ended) { /* the recording is incomplete */
            plan->f->drop(d, *recording);
            *recording = NULL;
            return status ? status : ended;
        }
    }
    return plan->f->replay(d, *recording);
}

adamod_status nn_plan_replay(nn_plan *plan, int variant, adamod_status (*steps)(void *context), void *context) {
    if (!plan->on_device) return steps(context);
    plan_traffic *t = &plan->traffic;
    nn_begin(plan);
    t->replaying = true;
    const adamod_status status = nn_replay_slot(plan, variant, steps, context);
    t->replaying = false;
    const adamod_status marked = plan->f->mark(plan->on_device->device, &t->done[nn_slot(plan)]);
    return status ? status : marked;
}

/* ---- states ---- */

static char *nn_state_rows(nn_plan *plan, const char *state, int64_t first, int64_t rows, size_t *bytes) {
    const nn_value v = nn_named_value(plan->graph, state);
    assert(v >= 0 && plan->type[v] == NN_I32 && first >= 0);
    const size_t row = (size_t)nn_columns(&plan->graph->values[v].shape) * sizeof(int32_t);
    *bytes = (size_t)rows * row;
    return (char *)nn_plan_address(plan, v) + (size_t)first * row;
}

void nn_plan_write(nn_plan *plan, const char *state, int64_t first, int64_t rows, const int32_t *data) {
    size_t bytes;
    char *to = nn_state_rows(plan, state, first, rows, &bytes);
    if (plan->on_device) plan->f->upload(plan->on_device->device, to, data, bytes);
    else memcpy(to, data, bytes);
}

adamod_status nn_plan_read(nn_plan *plan, const char *state, int64_t first, int64_t rows, int32_t *data) {
    size_t bytes;
    const char *from = nn_state_rows(plan, state, first, rows, &bytes);
    if (!plan->on_device) {
        memcpy(data, from, bytes);
        return ADAMOD_OK;
    }
    plan->f->download(plan->on_device->device, data, from, bytes);
    return plan->f->wait(plan->on_device->device);
}

static size_t nn_row_bytes(const nn_plan *plan, nn_value v) {
    return (size_t)nn_columns(&plan->graph->values[v].shape) * nn_type_bytes(plan->type[v]);
}

void nn_plan_copy(nn_plan *to, const char *state, nn_plan *from, const char *kept, int64_t rows) {
    const nn_value a = nn_named_value(from->graph, kept), b = nn_named_value(to->graph, state);
    if (a < 0 || b < 0) return;
    const size_t bytes = (size_t)rows * nn_row_bytes(to, b);
    if (to->on_device) to->f->copy(to->on_device->device, nn_plan_address(to, b), nn_plan_address(from, a), bytes);
    else memcpy(nn_plan_address(to, b), nn_plan_address(from, a), bytes);
}

typedef struct move_work {
    char *base;
    size_t row;
    const int64_t *from, *to, *rows;
} move_work;

static void move_task(void *context, int64_t i) {
    const move_work *w = context;
    memcpy(w->base + (size_t)w->to[i] * w->row, w->base + (size_t)w->from[i] * w->row, (size_t)w->rows[i] * w->row);
}

void nn_plan_move(nn_plan *plan, const char *state, int64_t n, const int64_t *from, const int64_t *to,
                  const int64_t *rows) {
    const nn_value v = nn_named_value(plan->graph, state);
    if (v < 0 || n == 0) return;
    const move_work w = {nn_plan_address(plan, v), nn_row_bytes(plan, v), from, to, rows};
    if (plan->on_device) plan->f->move(plan->on_device->device, w.base, (int64_t)w.row, n, from, to, rows);
    else nn_parallel(plan->options.pool, n, move_task, (void *)(uintptr_t)&w);
}
