/* Plans: which kernels run in which order, where every value lies, and the replay.
 *
 * Forward runs the nodes in the order they were built, backward in the reverse. Each value, gradient and saved array
 * is needed from one step to another; arrays whose times do not meet share memory. */
#include "nn/plan.h"
#include "base/error.h"
#include "base/pool.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>

typedef struct parallel_task {
    void (*task)(void *context, int64_t i);
    void *context;
} parallel_task;

static void nn_run_task(void *context, int64_t i, int thread) {
    const parallel_task *t = context;
    (void)thread;
    t->task(t->context, i);
}

void nn_parallel(adamod_pool *pool, int64_t n, void (*task)(void *context, int64_t i), void *context) {
    adamod__pool_run(pool, n, nn_run_task, &(parallel_task){task, context});
}

/* ---- which nodes ---- */

/* Marks the nodes that the outputs and the loss need. */
static bool *nn_needed(const nn_graph *g, nn_value loss) {
    bool *needed = calloc((size_t)g->n_nodes + 1, sizeof *needed);
    for (int i = g->n_nodes - 1; needed && i >= 0; i--) {
        for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
            const nn_value out = g->nodes[i].output[k];
            if (out >= 0 && (out == loss || g->values[out].output || g->values[out].kept)) needed[i] = true;
        }
        for (int k = 0; needed[i] && k < g->nodes[i].n_inputs; k++) {
            const nn_value v = g->nodes[i].input[k];
            if (v >= 0 && g->values[v].source == NN_FROM_NODE) needed[g->values[v].index] = true;
        }
    }
    return needed;
}

/* Keeps, among the needed, those that lie between a parameter and the loss. */
static bool *nn_differentiated(const nn_graph *g, nn_value loss) {
    bool *wanted = calloc((size_t)g->n_nodes + 1, sizeof *wanted);
    for (int i = g->n_nodes - 1; wanted && i >= 0; i--) {
        for (int k = 0; loss >= 0 && k < NN_MAX_OUTPUTS; k++) {
            if (g->nodes[i].output[k] == loss && g->values[loss].has_grad) wanted[i] = true;
        }
        for (int k = 0; wanted[i] && k < g->nodes[i].n_inputs; k++) {
            const nn_value v = g->nodes[i].input[k];
            if (v >= 0 && g->values[v].source == NN_FROM_NODE && g->values[v].has_grad)
                wanted[g->values[v].index] = true;
        }
    }
    return wanted;
}

/* On the host the reference kernels stand in for those that the backend lacks. */
static adamod_status nn_add_step(nn_plan *plan, const nn_node *node, bool backward) {
    const nn_device_params *on = plan->on_device;
    const bool ref = strcmp(plan->options.backend, "ref") == 0;
    const nn_backend *backend = on ? on->backend : &nn_backend_cpu;
    const nn_kernels *kernels = ref ? NULL : nn_backend_kernels(backend, node->op->name);
    if (!kernels && on)
        return adamod__fail(ADAMOD_ERROR_NAME, "%s: the backend has no op '%s'", backend->name, node->op->name);
    if (!kernels) kernels = &node->op->ref;
    plan->steps[plan->n_steps++] = (plan_step){.node = node, .kernels = *kernels, .backward = backward};
    if (!backward || kernels->backward) return ADAMOD_OK;
    if (node->op->ref.backward)
        return adamod__fail(ADAMOD_ERROR_NAME, "%s: the backend has no gradient of '%s'", backend->name,
                            node->op->name);
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s has no gradient, and the loss depends on parameters through it",
                        node->op->name);
}

static adamod_status nn_list_steps(nn_plan *plan, const bool *needed, const bool *wanted) {
    const nn_graph *g = plan->graph;
    adamod_status status = ADAMOD_OK;
    for (int i = 0; !status && i < g->n_nodes; i++) {
        if (needed[i]) status = nn_add_step(plan, &g->nodes[i], false);
    }
    plan->n_forward = plan->n_steps;
    for (int i = g->n_nodes - 1; !status && i >= 0; i--) {
        if (wanted[i]) status = nn_add_step(plan, &g->nodes[i], true);
    }
    return status;
}

/* ---- sizes ---- */

size_t nn_plan_bytes(const nn_plan *plan, const nn_shape *shape, nn_type type) {
    const size_t align = plan->on_device ? 256 : 64;
    const size_t n = (size_t)nn_numbers(shape) * (type == NN_BF16 ? 2 : 4);
    return (n + align - 1) / align * align;
}

/* Bytes of what a kernel asks for. */
static size_t nn_asked_bytes(const nn_plan *plan, size_t (*ask)(const nn_call *c), const nn_call *c) {
    const nn_shape shape = {.ndim = 1, .dim = {ask ? (int64_t)ask(c) : 0}};
    return nn_plan_bytes(plan, &shape, NN_F32);
}

/* ---- types ---- */

static bool nn_reads_full(const nn_node *node, int k) { return node->op->full_inputs >> k & 1; }

/* Whether a step reads an input's numbers as those of any other value. */
static bool nn_read_as_value(const nn_plan *plan, nn_value v) {
    for (int s = 0; s < plan->n_forward; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->input[k] == v && !nn_reads_full(node, k)) return true;
        }
    }
    return false;
}

/* Values are bf16 under mixed precision, but for those that last and those that ops want in full. */
static nn_type nn_type_of(const nn_plan *plan, nn_value v) {
    const nn_graph *g = plan->graph;
    const nn_value_info *info = &g->values[v];
    const bool mixed = plan->on_device && plan->on_device->precision == NN_MIXED;
    if (info->type != NN_F32 || !mixed) return info->type;
    if (nn_memory_of(g, v) != v) return plan->type[nn_memory_of(g, v)];
    switch (info->source) {
        case NN_FROM_PERSISTENT: return NN_F32;
        case NN_FROM_NODE: return g->nodes[info->index].op->full_outputs >> info->which & 1 ? NN_F32 : NN_BF16;
        case NN_FROM_INPUT: return info->state || nn_read_as_value(plan, v) ? NN_BF16 : NN_F32;
        case NN_FROM_PARAM: break;
    }
    return NN_BF16;
}

/* An op that reads in full is given what is there in full: a parameter, or an input as it came. */
static adamod_status nn_check_full_inputs(const nn_plan *plan) {
    for (int s = 0; s < plan->n_forward; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v < 0 || !nn_reads_full(node, k) || plan->type[v] != NN_BF16 || plan->converted[v]) continue;
            if (plan->graph->values[v].source == NN_FROM_PARAM) continue;
            return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s reads %s as f32, but mixed precision keeps it as bf16",
                                node->op->name, node->op->inputs[k]);
        }
    }
    return ADAMOD_OK;
}

/* On a device the gradient of the loss lies ready, as f32: a 1 and some zeros. */
static adamod_status nn_check_loss(const nn_plan *plan) {
    const nn_value loss = plan->options.loss;
    if (!plan->on_device || loss < 0) return ADAMOD_OK;
    const int64_t numbers = nn_numbers(&plan->graph->values[loss].shape);
    if (plan->type[loss] == NN_F32 && numbers <= LOSS_NUMBERS) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the loss is %lld numbers of %s, a device takes at most %d of f32",
                        (long long)numbers, plan->type[loss] == NN_BF16 ? "bf16" : "f32", LOSS_NUMBERS);
}

static adamod_status nn_types(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        plan->type[v] = nn_type_of(plan, v);
        plan->converted[v] = info->source == NN_FROM_INPUT && !info->state && plan->type[v] == NN_BF16;
    }
    const adamod_status status = nn_check_full_inputs(plan);
    return status ? status : nn_check_loss(plan);
}

/* ---- how long each array is needed ---- */

static bool nn_is_used(const piece *p) { return p->last >= p->first; }

static void nn_use(piece *p, int step) {
    const bool unused = !nn_is_used(p);
    if (unused || step < p->first) p->first = step;
    if (unused || step > p->last) p->last = step;
}

/* Whether an output of a step backward has a gradient: the steps before wrote it, or it is the loss. */
static bool nn_grad_comes(const nn_plan *plan, nn_value v) {
    return v >= 0 && (v == plan->options.loss || nn_is_used(&plan->grad[v]));
}

/* What a node's backward_weights reads. */
static void nn_use_for_weights(nn_plan *plan, const nn_node *node, int end) {
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        if (nn_grad_comes(plan, node->output[k])) nn_use(&plan->grad[node->output[k]], end);
    }
    for (int k = 0; k < node->n_inputs; k++) {
        if (node->input[k] >= 0 && (node->backward_needs & (1u << k))) nn_use(&plan->data[node->input[k]], end);
    }
}

/* Parameters and persistent states are elsewhere, and what is written in another's memory; on a device, so are inputs that
 * come anew and are used as they come, and the gradient of the loss. */
static void nn_leave_out(nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    const bool param = info->source == NN_FROM_PARAM || info->source == NN_FROM_PERSISTENT;
    if (param || nn_memory_of(plan->graph, v) != v ||
        (plan->on_device && info->source == NN_FROM_INPUT && !info->state && !plan->converted[v]))
        plan->data[v].first = 0, plan->data[v].last = -1;
    if (param || (plan->on_device && v == plan->options.loss)) plan->grad[v].first = 0, plan->grad[v].last = -1;
}

static void nn_use_outputs(nn_plan *plan, const plan_step *step, int s, unsigned needs) {
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        const nn_value v = step->node->output[k];
        if (v < 0) continue;
        const nn_value_info *info = &plan->graph->values[v];
        if (needs & (NN_NEEDS_OUTPUT << k)) nn_use(&plan->data[v], s);
        if (info->output || info->kept) nn_use(&plan->data[v], plan->n_steps);
        if (step->backward && nn_grad_comes(plan, v)) nn_use(&plan->grad[v], s);
    }
}

static void nn_use_in_step(nn_plan *plan, int s) {
    const nn_graph *g = plan->graph;
    plan_step *step = &plan->steps[s];
    const nn_node *node = step->node;
    piece *saved = &plan->saved[node - g->nodes];
    const unsigned needs = step->backward ? node->backward_needs : ~0u;
    if (step->partials.bytes) nn_use(&step->partials, s), nn_use(&step->partials, plan->n_steps);
    if (node->saved.ndim) nn_use(saved, s);
    if (!step->backward) saved->bytes += nn_asked_bytes(plan, step->kernels.extra_saved, &step->call);
    nn_use_outputs(plan, step, s, needs);
    if (step->backward && step->kernels.backward_weights)
        nn_use_for_weights(plan, node, step->paired_in ? step->paired_in : s);
    for (int k = 0; k < node->n_inputs; k++) {
        const nn_value v = node->input[k];
        if (v < 0) continue;
        if (needs & (1u << k)) nn_use(&plan->data[v], s);
        if (step->backward && g->values[v].has_grad) nn_use(&plan->grad[v], s);
    }
}

static void nn_lifetimes(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        const size_t bytes = nn_plan_bytes(plan, &info->shape, plan->type[v]);
        plan->data[v] = plan->grad[v] = (piece){.bytes = bytes, .first = 0, .last = -1};
        /* Inputs are written before a run and outputs read after it. */
        if (info->source == NN_FROM_INPUT) nn_use(&plan->data[v], 0), nn_use(&plan->data[v], plan->n_steps);
    }
    for (int n = 0; n < g->n_nodes; n++) {
        plan->saved[n] = (piece){.bytes = nn_plan_bytes(plan, &g->nodes[n].saved, NN_F32), .first = 0, .last = -1};
    }
    for (int s = 0; s < plan->n_steps; s++) nn_use_in_step(plan, s);
    for (int v = 0; v < g->n_values; v++) nn_leave_out(plan, v);
}

/* A gradient takes the place of its value where the step that writes it is the last to read the value. */
static void nn_overlay(nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->input[k] < 0 || !(node->op->in_place & (1u << k))) continue;
            piece *data = &plan->data[node->input[k]], *grad = &plan->grad[node->input[k]];
            if (data->last != s || grad->first != s || data->bytes != grad->bytes) continue;
            data->last = grad->last;
            grad->in = data;
        }
    }
}

/* ---- where each array lies ---- */

static bool nn_meet(const piece *a, const piece *b) { return a->first <= b->last && b->first <= a->last; }

static int nn_larger_first(const void *a, const void *b) {
    const piece *x = *(piece *const *)a, *y = *(piece *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x < y ? -1 : x > y);
}

static int nn_lower_first(const void *a, const void *b) {
    const piece *x = *(piece *const *)a, *y = *(piece *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Gives a piece the lowest gap between those placed already that live at the same time. */
static void nn_find_gap(piece *p, piece **placed, int n, piece **scratch) {
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (nn_meet(p, placed[i])) scratch[m++] = placed[i];
    }
    qsort(scratch, (size_t)m, sizeof *scratch, nn_lower_first);
    size_t at = 0;
    for (int i = 0; i < m; i++) {
        if (at + p->bytes <= scratch[i]->offset) break;
        if (scratch[i]->offset + scratch[i]->bytes > at) at = scratch[i]->offset + scratch[i]->bytes;
    }
    p->offset = at;
}

static bool nn_layout(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    const size_t most = 2 * (size_t)g->n_values + (size_t)g->n_nodes + (size_t)plan->n_steps + 1;
    piece **all = calloc(most, sizeof *all), **scratch = calloc(most, sizeof *scratch);
    int n = 0;
    for (int v = 0; all && v < g->n_values; v++) {
        if (plan->data[v].last >= plan->data[v].first) all[n++] = &plan->data[v];
        if (plan->grad[v].last >= plan->grad[v].first && !plan->grad[v].in) all[n++] = &plan->grad[v];
    }
    for (int i = 0; all && i < g->n_nodes; i++) {
        if (plan->saved[i].last >= plan->saved[i].first) all[n++] = &plan->saved[i];
    }
    for (int s = 0; all && s < plan->n_steps; s++) {
        if (plan->steps[s].partials.bytes) all[n++] = &plan->steps[s].partials;
    }
    if (all && scratch) qsort(all, (size_t)n, sizeof *all, nn_larger_first);
    for (int i = 0; all && scratch && i < n; i++) {
        nn_find_gap(all[i], all, i, scratch);
        plan->unshared_bytes += all[i]->bytes;
        if (all[i]->offset + all[i]->bytes > plan->block_bytes) plan->block_bytes = all[i]->offset + all[i]->bytes;
    }
    const bool done = all && scratch;
    free(all);
    free(scratch);
    return done;
}

/* ---- calls ---- */

static void *nn_address(const nn_plan *plan, const piece *p) {
    return p->last >= p->first ? plan->block + (p->in ? p->in : p)->offset : NULL;
}

void *nn_plan_given(const nn_plan *plan, nn_value v) { return plan->traffic.device_inputs + plan->traffic.offset[v]; }

/* A parameter as kernels of this plan see it. */
static void *nn_param_data(const nn_plan *plan, const nn_param *p) {
    if (!plan->on_device) return plan->graph->params->data + p->offset;
    if (plan->on_device->half) return (char *)plan->on_device->half + 2 * p->offset;
    return plan->on_device->data + p->offset;
}

static void *nn_state_data(const nn_plan *plan, const nn_param *p) {
    return (plan->on_device ? plan->on_device->states : plan->graph->params->state_data) + p->offset;
}

void *nn_plan_address(const nn_plan *plan, nn_value value) {
    const nn_graph *g = plan->graph;
    const nn_value v = nn_memory_of(g, value);
    const nn_value_info *info = &g->values[v];
    if (info->source == NN_FROM_PARAM) return nn_param_data(plan, &g->params->list[info->index]);
    if (info->source == NN_FROM_PERSISTENT) return nn_state_data(plan, &g->params->states[info->index]);
    if (plan->on_device && info->source == NN_FROM_INPUT && !info->state && !plan->converted[v])
        return nn_plan_given(plan, v);
    return nn_address(plan, &plan->data[v]);
}

/* Where kernels on a device find the live rows of a symbol. */
static const int64_t *nn_live_rows(const nn_plan *plan, int symbol) {
    const plan_header *header = (const plan_header *)(const void *)plan->traffic.device_inputs;
    return header && symbol ? &header->rows[symbol] : NULL;
}

/* All but its memory. */
static nn_array nn_array_shape(const nn_plan *plan, nn_value v) {
    if (v < 0) return (nn_array){0};
    const nn_shape *shape = &plan->graph->values[v].shape;
    nn_array a = {.rows = shape->dim[0], .cols = nn_columns(shape), .type = plan->type[v], .shape = shape};
    if (shape->rows && !plan->on_device) a.rows = plan->rows[shape->rows];
    a.live_rows = nn_live_rows(plan, shape->rows);
    return a;
}

static nn_array nn_array_of(const nn_plan *plan, nn_value v) {
    nn_array a = nn_array_shape(plan, v);
    if (v >= 0) a.data = nn_plan_address(plan, v);
    return a;
}

/* The same for what a step reads: an op that reads in full gets the f32 behind a bf16. */
static nn_array nn_array_read(const nn_plan *plan, const nn_node *node, int k) {
    const nn_value v = node->input[k];
    nn_array a = nn_array_of(plan, v);
    if (v < 0 || !nn_reads_full(node, k) || a.type != NN_BF16) return a;
    const nn_value_info *info = &plan->graph->values[v];
    a.type = NN_F32;
    a.data = info->source == NN_FROM_PARAM
                 ? (void *)(plan->on_device->data + plan->graph->params->list[info->index].offset)
                 : nn_plan_given(plan, v);
    return a;
}

float *nn_plan_grad_address(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    if (!info->has_grad) return NULL;
    if (plan->on_device && v == plan->options.loss) return plan->traffic.device_one;
    if (info->source != NN_FROM_PARAM) return nn_address(plan, &plan->grad[v]);
    const nn_params *params = plan->graph->params;
    return (plan->on_device ? plan->on_device->grad : params->grad) + params->list[info->index].offset;
}

/* Memory where the plan runs, filled with 0. */
static adamod_status nn_allocate(nn_plan *plan, void **out, size_t bytes) {
    if (plan->on_device) return plan->f->allocate(plan->on_device->device, out, bytes);
    if (posix_memalign(out, 64, bytes))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan: %.1f MiB", (double)bytes / 1048576);
    memset(*out, 0, bytes);
    return ADAMOD_OK;
}

static void nn_release(const nn_plan *plan, void *memory, size_t bytes) {
    if (plan->on_device) plan->f->release(plan->on_device->device, memory, bytes);
    else free(memory);
}

/* How many steps write each value's gradient; of these, the second and later ones add to it. */
static bool nn_count_writers(nn_plan *plan, int **out) {
    int *writers = *out = calloc((size_t)plan->graph->n_values + 1, sizeof *writers);
    for (int s = plan->n_forward; writers && s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        for (int k = 0; k < step->node->n_inputs; k++) {
            const nn_value v = step->node->input[k];
            if (v >= 0) step->call.accumulate[k] = writers[v]++ > 0;
        }
    }
    return writers != NULL;
}

/* Sums at the end of a pass have no order, so that a step with a parameter that another adds to sums at once. */
static bool nn_may_wait(const nn_plan *plan, const nn_node *node, const int *writers) {
    bool alone = plan->on_device != NULL;
    for (int k = 0; k < node->n_inputs; k++) {
        const nn_value v = node->input[k];
        if (v >= 0 && plan->graph->values[v].source == NN_FROM_PARAM) alone = alone && writers[v] == 1;
    }
    return alone;
}

/* A bias's gradient is the sum over rows of its node's output's. Where one step writes all of that, and can sum it on the
 * way, the bias's own node is relieved. */
static void nn_hand_on_bias(nn_plan *plan, plan_step *step, int k, const int *writers) {
    const nn_graph *g = plan->graph;
    const nn_value v = step->node->input[k];
    if (v < 0 || g->values[v].source != NN_FROM_NODE || g->values[v].which != 0 || writers[v] != 1) return;
    const nn_node *maker = &g->nodes[g->values[v].index];
    const nn_value bias = maker->bias ? maker->input[maker->bias] : -1;
    if (bias < 0 || writers[bias] != 1 || nn_numbers(&g->values[bias].shape) != nn_columns(&g->values[v].shape)) return;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        nn_call *c = &plan->steps[s].call;
        if (plan->steps[s].node != maker) continue;
        step->call.row_sums[k] = c->input_grad[maker->bias];
        c->input_grad[maker->bias] = NULL;
    }
}

static void nn_hand_on_biases(nn_plan *plan, const int *writers) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        for (int k = 0; k < step->node->n_inputs; k++) {
            if (step->kernels.row_sums & (1u << k)) nn_hand_on_bias(plan, step, k, writers);
        }
    }
}

static void nn_size_partials(nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const size_t bytes = nn_asked_bytes(plan, step->kernels.partials, &step->call);
        step->partials = (piece){.bytes = bytes, .first = 0, .last = -1};
    }
}

/* What calls have before there is memory for values. */
static void nn_begin_calls(nn_plan *plan, const int *writers) {
    const nn_graph *g = plan->graph;
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_call *c = &step->call;
        const nn_node *node = step->node;
        c->attributes = &node->attributes;
        c->pool = plan->options.pool;
        c->training = plan->options.training;
        c->node = (uint64_t)(node - g->nodes);
        if (plan->on_device) c->precision = plan->on_device->precision;
        for (int k = 0; k < NN_MAX_OUTPUTS; k++) c->output[k] = nn_array_shape(plan, node->output[k]);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            c->input[k] = nn_array_shape(plan, v);
            if (v >= 0 && nn_reads_full(node, k) && c->input[k].type == NN_BF16) c->input[k].type = NN_F32;
            if (!step->backward || v < 0) continue;
            const bool param = g->values[v].source == NN_FROM_PARAM;
            c->input_grad_type[k] = param ? NN_F32 : plan->type[v];
            if (param) c->input_grad[k] = nn_plan_grad_address(plan, v);
        }
        if (step->backward && nn_may_wait(plan, node, writers)) c->sums = &plan->sums;
    }
}

static void nn_finish_calls(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_call *c = &step->call;
        const nn_node *node = step->node;
        c->saved = nn_address(plan, &plan->saved[node - g->nodes]);
        if (plan->on_device) {
            c->stream = plan->f->stream(plan->on_device->device);
            c->random = &((const plan_header *)(const void *)plan->traffic.device_inputs)->random;
        }
        if (!step->backward) continue;
        if (step->partials.bytes) c->partials = nn_address(plan, &step->partials);
        for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
            if (node->output[k] >= 0) c->output_grad[k] = nn_plan_grad_address(plan, node->output[k]);
        }
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v >= 0 && g->values[v].source != NN_FROM_PARAM) c->input_grad[k] = nn_plan_grad_address(plan, v);
        }
    }
}

void nn_plan_bind(nn_plan *plan, plan_step *step) {
    for (int k = 0; k < step->node->n_inputs; k++) step->call.input[k] = nn_array_read(plan, step->node, k);
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) step->call.output[k] = nn_array_of(plan, step->node->output[k]);
    step->call.workspace = plan->workspace;
    step->call.key = nn_key(plan->seed, plan->random_step, step->call.node);
}

static adamod_status nn_make_workspace(nn_plan *plan) {
    size_t most = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_plan_bind(plan, step);
        if (step->kernels.prepare) {
            const adamod_status status = step->kernels.prepare(&step->call, &step->call.prepared);
            if (status) return status;
        }
        const size_t n = step->kernels.workspace ? step->kernels.workspace(&step->call) : 0;
        if (n > most) most = n;
    }
    plan->workspace_bytes = (most + 16) * sizeof(float);
    void *p = NULL;
    const adamod_status status = nn_allocate(plan, &p, plan->workspace_bytes);
    plan->workspace = p;
    return status;
}

/* ---- create and free ---- */

void nn_plan_free(nn_plan *plan) {
    if (!plan) return;
    for (int s = 0; plan->steps && s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        if (step->kernels.release && step->call.prepared) step->kernels.release(step->call.prepared);
    }
    if (plan->on_device) nn_traffic_free(plan);
    nn_release(plan, plan->block, plan->block_bytes);
    nn_release(plan, plan->workspace, plan->workspace_bytes);
    free(plan->sums.list);
    free(plan->steps);
    free(plan->type);
    free(plan->converted);
    free(plan->data);
    free(plan->grad);
    free(plan->saved);
    free(plan);
}

/* ---- pairs ---- */

static bool nn_same_shape(const nn_shape *a, const nn_shape *b) {
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->dim[d] == b->dim[d];
    return same;
}

/* Whether a step's backward_weights is small, and gives gradients of parameters alone, of which it does not matter when they
 * come. Input 0 is backward's own. */
static bool nn_can_pair(const nn_plan *plan, const plan_step *step, const int *writers) {
    const nn_graph *g = plan->graph;
    bool can = step->kernels.backward_weights && step->kernels.pairs && nn_may_wait(plan, step->node, writers);
    for (int k = 0; can && k < step->node->n_inputs; k++) {
        const nn_value v = step->node->input[k];
        if (v < 0 || (k == 0 && g->values[v].source != NN_FROM_PARAM)) continue;
        can = g->values[v].source == NN_FROM_PARAM && nn_numbers(&g->values[v].shape) <= PAIR_NUMBERS;
    }
    return can;
}

static bool nn_alike(const nn_graph *g, const nn_node *a, const nn_node *b) {
    bool alike = a->op == b->op && a->n_inputs == b->n_inputs;
    for (int k = 0; alike && k < NN_MAX_OUTPUTS; k++) {
        const nn_value x = a->output[k], y = b->output[k];
        alike = (x < 0) == (y < 0) && (x < 0 || nn_same_shape(&g->values[x].shape, &g->values[y].shape));
    }
    for (int k = 0; alike && k < a->n_inputs; k++) {
        const nn_value x = a->input[k], y = b->input[k];
        alike = (x < 0) == (y < 0) && (x < 0 || (g->values[x].has_grad == g->values[y].has_grad &&
                                                 g->values[x].source == g->values[y].source &&
                                                 nn_same_shape(&g->values[x].shape, &g->values[y].shape)));
    }
    return alike;
}

static void nn_pair_steps(nn_plan *plan, const int *writers) {
    for (int s = plan->n_forward; plan->on_device && s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        if (!nn_can_pair(plan, step, writers)) continue;
        for (int t = s - 1; t >= plan->n_forward && t >= s - PAIR_STEPS; t--) {
            plan_step *other = &plan->steps[t];
            if (other->paired_in || other->call.paired_with || !nn_can_pair(plan, other, writers) ||
                !nn_alike(plan->graph, step->node, other->node))
                continue;
            other->paired_in = s;
            step->call.paired_with = &other->call;
            break;
        }
    }
}

/* Which steps there are is known; what each does, and where its sums go. */
static adamod_status nn_make_calls(nn_plan *plan) {
    const size_t steps = (size_t)(plan->n_steps - plan->n_forward);
    int *writers = NULL;
    if (plan->on_device) plan->sums.list = calloc(NN_MAX_INPUTS * steps + 1, sizeof *plan->sums.list);
    const bool memory = nn_count_writers(plan, &writers) && (plan->sums.list || !plan->on_device);
    if (memory) {
        nn_begin_calls(plan, writers);
        nn_hand_on_biases(plan, writers);
        nn_pair_steps(plan, writers);
        nn_size_partials(plan);
    }
    free(writers);
    return memory ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for the calls of a plan");
}

static adamod_status nn_make_memory(nn_plan *plan) {
    void *memory = NULL;
    nn_lifetimes(plan);
    nn_overlay(plan);
    if (!nn_layout(plan)) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory to lay out a plan");
    plan->block_bytes += 64;
    adamod_status status = nn_allocate(plan, &memory, plan->block_bytes);
    plan->block = memory;
    if (!status && plan->on_device) status = nn_traffic_create(plan);
    if (status) return status;
    nn_finish_calls(plan);
    return nn_make_workspace(plan);
}

static adamod_status nn_plan_build(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    const size_t values = (size_t)g->n_values + 1, nodes = (size_t)g->n_nodes + 1;
    bool *needed = nn_needed(g, plan->options.loss), *wanted = nn_differentiated(g, plan->options.loss);
    plan->steps = calloc(2 * nodes, sizeof *plan->steps);
    plan->type = calloc(values, sizeof *plan->type);
    plan->converted = calloc(values, sizeof *plan->converted);
    plan->data = calloc(values, sizeof *plan->data);
    plan->grad = calloc(values, sizeof *plan->grad);
    plan->saved = calloc(nodes, sizeof *plan->saved);
    const bool memory =
        needed && wanted && plan->steps && plan->type && plan->converted && plan->data && plan->grad && plan->saved;
    adamod_status status = memory ? nn_list_steps(plan, needed, wanted)
                                  : adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan of %d ops", g->n_nodes);
    free(needed);
    free(wanted);
    if (!status) status = nn_types(plan);
    if (!status) status = nn_make_calls(plan);
    return status ? status : nn_make_memory(plan);
}

adamod_status nn_plan_create(nn_plan **out, nn_graph *g, const nn_plan_options *options) {
    if (*g->error) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s", g->error);
    const char *backend = options->backend && strcmp(options->backend, "auto") != 0 ? options->backend : "cpu";
    if (g->params->on_device) backend = g->params->on_device->backend->name;
    else if (strcmp(backend, "ref") != 0 && strcmp(backend, "cpu") != 0)
        return adamod__fail(ADAMOD_ERROR_NAME, "no backend '%.40s', expected ref or cpu", backend);
    if (!g->params->data) return adamod__fail(ADAMOD_ERROR_ORDER, "the model's parameters have no memory yet");
    nn_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan");
    plan->graph = g;
    plan->options = *options;
    plan->options.backend = backend;
    plan->on_device = g->params->on_device;
    plan->f = plan->on_device ? plan->on_device->backend->device : NULL;
    for (int s = 1; s <= g->n_symbols; s++) plan->rows[s] = g->symbols[s - 1].capacity;
    const adamod_status status = nn_plan_build(plan);
    if (status) nn_plan_free(plan);
    else *out = plan;
    return status;
}

nn_memory nn_plan_memory(const nn_plan *plan) {
    size_t number = 2 * sizeof(float);
    if (plan->on_device && plan->on_device->half) number += 2;
    const nn_params *p = plan->graph->params;
    return (nn_memory){plan->block_bytes, plan->unshared_bytes,
                       number * (size_t)p->count + sizeof(float) * (size_t)p->state_count, plan->workspace_bytes};
}
