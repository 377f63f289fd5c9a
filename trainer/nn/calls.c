/* Fills each step's call: the types of values, addresses, sums that are left for later, and steps that are done
 * together. */
#include "nn/plan.h"
#include "core/error.h"
#include "support/random.h"

#include <stdlib.h>

/* ---- types ---- */

static bool nn_reads_full(const nn_node *node, int k) { return node->op->full_inputs >> k & 1; }

/* Whether a step reads v in the type that values have, not as f32. */
static bool nn_read_as_value(const nn_plan *plan, nn_value v) {
    for (int s = 0; s < plan->n_forward; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->input[k] == v && !nn_reads_full(node, k)) return true;
        }
    }
    return false;
}

/* In mixed precision values are bf16, except persistent ones and those that ops want in full. */
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
        case NN_FROM_PARAM:
        case NN_FROM_CONSTANT: break;
    }
    return NN_BF16;
}

/* Fails unless every op that reads f32 gets f32: a parameter, or an input before its conversion. */
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

/* Fails unless the loss suits a device, which keeps its gradient as f32: a 1 and some zeros. */
static adamod_status nn_check_loss(const nn_plan *plan) {
    const nn_value loss = plan->options.loss;
    if (!plan->on_device || loss < 0) return ADAMOD_OK;
    const int64_t numbers = nn_numbers(&plan->graph->values[loss].shape);
    if (plan->type[loss] == NN_F32 && numbers <= LOSS_NUMBERS) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "the loss is %lld numbers of %s, a device takes at most %d of f32",
                        (long long)numbers, plan->type[loss] == NN_BF16 ? "bf16" : "f32", LOSS_NUMBERS);
}

adamod_status nn_plan_types(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        plan->type[v] = nn_type_of(plan, v);
        plan->converted[v] = info->source == NN_FROM_INPUT && !info->state && plan->type[v] == NN_BF16;
    }
    const adamod_status status = nn_check_full_inputs(plan);
    return status ? status : nn_check_loss(plan);
}

/* ---- addresses ---- */

static void *nn_address(const nn_plan *plan, const piece *p) {
    return p->last >= p->first ? plan->block + (p->in ? p->in : p)->offset : NULL;
}

/* The address of a value or its gradient. */
static void *nn_placed_address(const nn_plan *plan, const piece *pieces, nn_value v) {
    const plan_place *p = &plan->place[v];
    char *block = nn_address(plan, &pieces[p->in]);
    return block ? block + p->offset * (plan->type[v] == NN_BF16 ? 2 : 4) : NULL;
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

static void *nn_constant_data(const nn_plan *plan, const nn_value_info *info) {
    if (plan->on_device) return nn_device_constant(plan->on_device, info->constant);
    return (void *)(uintptr_t)info->constant; /* which no kernel writes */
}

void *nn_plan_address(const nn_plan *plan, nn_value value) {
    const nn_graph *g = plan->graph;
    const nn_value v = nn_memory_of(g, value);
    const nn_value_info *info = &g->values[v];
    nn_plan *lender = info->state ? plan->options.states : NULL;
    if (lender) return nn_plan_address(lender, nn_named_value(lender->graph, info->name));
    if (info->source == NN_FROM_PARAM) return nn_param_data(plan, &g->params->list[info->index]);
    if (info->source == NN_FROM_PERSISTENT) return nn_state_data(plan, &g->params->states[info->index]);
    if (info->source == NN_FROM_CONSTANT) return nn_constant_data(plan, info);
    if (plan->on_device && info->source == NN_FROM_INPUT && !info->state && !plan->converted[v])
        return nn_plan_given(plan, v);
    return nn_placed_address(plan, plan->data, v);
}

/* The live rows of a symbol, in the device's memory. */
static const int64_t *nn_live_rows(const nn_plan *plan, int symbol) {
    const plan_header *header = (const plan_header *)(const void *)plan->traffic.device_inputs;
    return header && symbol ? &header->rows[symbol] : NULL;
}

/* All but its memory. */
static nn_array nn_array_shape(const nn_plan *plan, nn_value v) {
    if (v < 0) return (nn_array){0};
    const nn_shape *shape = &plan->graph->values[v].shape;
    const nn_shape *block = &plan->graph->values[plan->place[v].in].shape;
    nn_array a = {.rows = shape->dim[0], .cols = nn_columns(shape), .type = plan->type[v], .shape = shape};
    a.stride = nn_last_dimension(block);
    a.offset = plan->place[v].offset;
    if (shape->rows && !plan->on_device) a.rows = plan->rows[shape->rows];
    a.live_rows = nn_live_rows(plan, shape->rows);
    return a;
}

static nn_array nn_array_of(const nn_plan *plan, const plan_step *step, nn_value v) {
    nn_array a = nn_array_shape(plan, v);
    if (v < 0) return a;
    a.data = nn_plan_uses_remade(plan, step, v) ? nn_address(plan, &plan->remade[v]) : nn_plan_address(plan, v);
    return a;
}

/* An input of a step: an op that reads f32 gets the f32 behind a bf16. */
static nn_array nn_array_read(const nn_plan *plan, const plan_step *step, int k) {
    const nn_node *node = step->node;
    const nn_value v = node->input[k];
    nn_array a = nn_array_of(plan, step, v);
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
    if (info->source != NN_FROM_PARAM) return nn_placed_address(plan, plan->grad, v);
    const nn_params *params = plan->graph->params;
    return (plan->on_device ? plan->on_device->grad : params->grad) + params->list[info->index].offset;
}

/* ---- sums over rows ---- */

/* Counts the steps that write each value's gradient. */
static bool nn_count_writers(const nn_plan *plan, int **out) {
    int *writers = *out = calloc((size_t)plan->graph->n_values + 1, sizeof *writers);
    for (int s = plan->n_forward; writers && s < plan->n_steps; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; plan->steps[s].backward && k < node->n_inputs; k++) {
            if (node->input[k] >= 0) writers[node->input[k]]++;
        }
    }
    return writers != NULL;
}

/* Whether a step may leave its sums for the end of the pass, on a device. These sums run in no fixed order, so the step
 * must be the only one that adds to its parameters. */
static bool nn_may_wait(const nn_plan *plan, const nn_node *node, const int *writers) {
    bool alone = plan->on_device != NULL;
    for (int k = 0; k < node->n_inputs; k++) {
        const nn_value v = node->input[k];
        if (v >= 0 && plan->graph->values[v].source == NN_FROM_PARAM) alone = alone && writers[v] == 1;
    }
    return alone;
}

/* A bias's gradient is the sum over rows of the gradient of its node's output. If one step writes all of the latter and
 * can sum its rows on the way, it takes over from the bias's own node. */
static void nn_hand_on_bias(nn_plan *plan, plan_step *step, int k, const int *writers) {
    const nn_graph *g = plan->graph;
    const nn_value v = step->node->input[k];
    if (v < 0 || g->values[v].source != NN_FROM_NODE || g->values[v].which != 0 || writers[v] != 1) return;
    const nn_node *maker = &g->nodes[g->values[v].index];
    const nn_value bias = maker->bias ? maker->input[maker->bias] : -1;
    if (bias < 0 || writers[bias] != 1 || nn_numbers(&g->values[bias].shape) != nn_columns(&g->values[v].shape)) return;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        nn_gradients *other = &plan->steps[s].grad;
        if (plan->steps[s].node != maker || !plan->steps[s].backward) continue;
        step->grad.row_sums[k] = other->input[maker->bias];
        other->input[maker->bias] = NULL;
    }
}

static void nn_hand_on_biases(nn_plan *plan, const int *writers) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        for (int k = 0; step->backward && k < step->node->n_inputs; k++) {
            if (step->kernels.row_sums & (1u << k)) nn_hand_on_bias(plan, step, k, writers);
        }
    }
}

static void nn_size_partials(nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const size_t bytes = step->backward ? nn_plan_asked(plan, step->kernels.partials, &step->call) : 0;
        step->partials = (piece){.bytes = bytes, .first = 0, .last = -1};
    }
}

/* ---- calls ---- */

/* Fills what calls have before there is memory for values. */
static void nn_begin_calls(nn_plan *plan, const int *writers) {
    const nn_graph *g = plan->graph;
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_call *c = &step->call;
        const nn_node *node = step->node;
        c->attributes = node->attributes;
        c->pool = plan->options.pool;
        c->training = plan->options.training;
        c->constant = plan->options.constant;
        c->mixed = !plan->on_device && g->params->precision == NN_MIXED;
        c->grad = &step->grad;
        c->fused = &step->fused;
        c->sync = &step->sync;
        if (plan->on_device) {
            c->device = &step->device;
            step->device.node = (uint64_t)(node - g->nodes);
            step->device.precision = plan->on_device->precision;
        }
        for (int k = 0; k < NN_MAX_OUTPUTS; k++) c->output[k] = nn_array_shape(plan, node->output[k]);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            c->input[k] = nn_array_shape(plan, v);
            if (v >= 0 && nn_reads_full(node, k) && c->input[k].type == NN_BF16) c->input[k].type = NN_F32;
            if (!step->backward || v < 0) continue;
            const bool param = g->values[v].source == NN_FROM_PARAM;
            step->grad.type[k] = param ? NN_F32 : plan->type[v];
            if (param) step->grad.input[k] = nn_plan_grad_address(plan, v);
        }
        if (step->backward && nn_may_wait(plan, node, writers)) step->grad.sums = &plan->sums;
    }
}

void nn_plan_finish_calls(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const nn_node *node = step->node;
        step->call.saved = nn_address(plan, &plan->saved[node - g->nodes]);
        if (plan->on_device) {
            step->device.stream = plan->f->stream(plan->on_device->device);
            step->device.random = &((const plan_header *)(const void *)plan->traffic.device_inputs)->random;
        }
        if (!step->backward) continue;
        if (step->partials.bytes) step->grad.partials = nn_address(plan, &step->partials);
        for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
            if (step->given >> k & 1) step->grad.output[k] = nn_plan_grad_address(plan, node->output[k]);
        }
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v >= 0 && g->values[v].source != NN_FROM_PARAM) step->grad.input[k] = nn_plan_grad_address(plan, v);
        }
    }
}

void nn_plan_bind(nn_plan *plan, plan_step *step) {
    for (int k = 0; k < step->node->n_inputs; k++) step->call.input[k] = nn_array_read(plan, step, k);
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) step->call.output[k] = nn_array_of(plan, step, step->node->output[k]);
    step->call.workspace = plan->workspace;
    step->call.key = nn_key(plan->seed, plan->random_step, (uint64_t)(step->node - plan->graph->nodes));
}

/* ---- pairs ---- */

static bool nn_same_dimensions(const nn_shape *a, const nn_shape *b) {
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->dim[d] == b->dim[d];
    return same;
}

/* Whether a step's backward_weights is small and gives only gradients of parameters, whose time does not matter.
 * Input 0 is backward's own. */
static bool nn_can_pair(const nn_plan *plan, const plan_step *step, const int *writers) {
    const nn_graph *g = plan->graph;
    bool can = step->backward && step->kernels.backward_weights && step->kernels.pairs &&
               nn_may_wait(plan, step->node, writers);
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
        alike = (x < 0) == (y < 0) && (x < 0 || nn_same_dimensions(&g->values[x].shape, &g->values[y].shape));
    }
    for (int k = 0; alike && k < a->n_inputs; k++) {
        const nn_value x = a->input[k], y = b->input[k];
        alike = (x < 0) == (y < 0) && (x < 0 || (g->values[x].has_grad == g->values[y].has_grad &&
                                                 g->values[x].source == g->values[y].source &&
                                                 nn_same_dimensions(&g->values[x].shape, &g->values[y].shape)));
    }
    return alike;
}

static void nn_pair_steps(nn_plan *plan, const int *writers) {
    for (int s = plan->n_forward; plan->on_device && s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        if (!nn_can_pair(plan, step, writers)) continue;
        for (int t = s - 1; t >= plan->n_forward && t >= s - PAIR_STEPS; t--) {
            plan_step *other = &plan->steps[t];
            if (other->paired_in || other->grad.paired_with || !nn_can_pair(plan, other, writers) ||
                !nn_alike(plan->graph, step->node, other->node))
                continue;
            other->paired_in = s;
            step->grad.paired_with = &other->call;
            break;
        }
    }
}

/* Called once the steps are listed. */
adamod_status nn_plan_calls(nn_plan *plan) {
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
    return memory ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the calls of a plan");
}
