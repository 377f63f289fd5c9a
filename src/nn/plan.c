/* Plans: which kernels run in which order, where every value lies, and the replay.
 *
 * Forward runs the nodes in the order they were built, backward in the reverse. Each value, gradient and saved array
 * is needed from one step to another; arrays whose times do not meet share memory. */
#include "plan.h"
#include "internal.h"
#include "random.h"

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
        const nn_value out = g->nodes[i].output;
        if (out == loss || g->values[out].output || g->values[out].kept) needed[i] = true;
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
        if (g->nodes[i].output == loss) wanted[i] = g->values[loss].has_grad;
        for (int k = 0; wanted[i] && k < g->nodes[i].n_inputs; k++) {
            const nn_value v = g->nodes[i].input[k];
            if (v >= 0 && g->values[v].source == NN_FROM_NODE && g->values[v].has_grad)
                wanted[g->values[v].index] = true;
        }
    }
    return wanted;
}

static nn_kernels nn_choose(const nn_plan *plan, nn_op_id op) {
    if (strcmp(plan->options.backend, "ref") == 0) return nn_ops[op]->ref;
    const nn_kernels *found = (plan->place ? plan->place->backend : &nn_backend_cpu)->kernels[op];
    return found ? *found : nn_ops[op]->ref;
}

static void nn_list_steps(nn_plan *plan, const bool *needed, const bool *wanted) {
    const nn_graph *g = plan->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!needed[i]) continue;
        plan->steps[plan->n_steps++] = (plan_step){.node = &g->nodes[i], .kernels = nn_choose(plan, g->nodes[i].op)};
    }
    plan->n_forward = plan->n_steps;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        if (!wanted[i]) continue;
        plan->steps[plan->n_steps++] =
            (plan_step){.node = &g->nodes[i], .kernels = nn_choose(plan, g->nodes[i].op), .backward = true};
    }
}

/* ---- how long each array is needed ---- */

size_t nn_plan_bytes(const nn_plan *plan, const nn_shape *shape, nn_type type) {
    const size_t align = plan->place ? 256 : 64;
    size_t n = shape->ndim ? (type == NN_BF16 ? 2 : 4) : 0;
    for (int d = 0; d < shape->ndim; d++) n *= (size_t)shape->dim[d];
    return (n + align - 1) / align * align;
}

/* Bytes of what a kernel asks for. */
static size_t nn_asked_bytes(const nn_plan *plan, size_t (*ask)(const nn_call *c), const nn_call *c) {
    const nn_shape shape = {.ndim = 1, .dim = {ask ? (int64_t)ask(c) : 0}};
    return nn_plan_bytes(plan, &shape, NN_F32);
}

static void nn_types(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    const bool mixed = plan->place && plan->place->precision == NN_MIXED;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        const bool full = info->source == NN_FROM_NODE && nn_ops[g->nodes[info->index].op]->full_output;
        plan->type[v] = info->type == NN_F32 && mixed && !full ? NN_BF16 : info->type;
    }
}

static void nn_use(piece *p, int step) {
    const bool unused = p->last < p->first;
    if (unused || step < p->first) p->first = step;
    if (unused || step > p->last) p->last = step;
}

/* What the late part of a node's backward reads. */
static void nn_use_late(nn_plan *plan, const nn_node *node, int end) {
    nn_use(&plan->grad[node->output], end);
    for (int k = 0; k < node->n_inputs; k++) {
        if (node->input[k] >= 0 && (node->backward_needs & (1u << k))) nn_use(&plan->data[node->input[k]], end);
    }
}

/* Parameters are elsewhere; on a device, so are inputs that come anew and the gradient of the loss. */
static void nn_leave_out(nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    const bool param = info->source == NN_FROM_PARAM;
    if (param || (plan->place && info->source == NN_FROM_INPUT && !info->state))
        plan->data[v].first = 0, plan->data[v].last = -1;
    if (param || (plan->place && v == plan->options.loss)) plan->grad[v].first = 0, plan->grad[v].last = -1;
}

static void nn_lifetimes(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        const bool in_place = info->source == NN_FROM_NODE && g->nodes[info->index].op == NN_OP_cache_write;
        const size_t bytes = in_place ? 0 : nn_plan_bytes(plan, &info->shape, plan->type[v]);
        plan->data[v] = plan->grad[v] = (piece){.bytes = bytes, .first = 0, .last = -1};
        /* Inputs are written before a run and outputs read after it. */
        if (info->source == NN_FROM_INPUT) nn_use(&plan->data[v], 0), nn_use(&plan->data[v], plan->n_steps);
    }
    for (int n = 0; n < g->n_nodes; n++) {
        plan->saved[n] = (piece){.bytes = nn_plan_bytes(plan, &g->nodes[n].saved, NN_F32), .first = 0, .last = -1};
    }
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const nn_node *node = step->node;
        const unsigned needs = step->backward ? node->backward_needs : ~0u;
        if (step->parts.bytes) nn_use(&step->parts, s), nn_use(&step->parts, plan->n_steps);
        if (step->backward && step->kernels.late) nn_use_late(plan, node, step->taken_by ? step->taken_by : s);
        if (node->saved.ndim) nn_use(&plan->saved[node - g->nodes], s);
        if (!step->backward)
            plan->saved[node - g->nodes].bytes += nn_asked_bytes(plan, step->kernels.keeps, &step->call);
        if (needs & NN_NEEDS_OUTPUT) nn_use(&plan->data[node->output], s);
        if (g->values[node->output].output || g->values[node->output].kept)
            nn_use(&plan->data[node->output], plan->n_steps);
        if (step->backward) nn_use(&plan->grad[node->output], s);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v < 0) continue;
            if (needs & (1u << k)) nn_use(&plan->data[v], s);
            if (step->backward && g->values[v].has_grad) nn_use(&plan->grad[v], s);
        }
    }
    for (int v = 0; v < g->n_values; v++) nn_leave_out(plan, v);
}

/* A gradient takes the place of its value where the step that writes it is the last to read the value. */
static void nn_overlay(nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->input[k] < 0 || !(nn_ops[node->op]->in_place & (1u << k))) continue;
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
static void nn_place_piece(piece *p, piece **placed, int n, piece **scratch) {
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
        if (plan->steps[s].parts.bytes) all[n++] = &plan->steps[s].parts;
    }
    if (all && scratch) qsort(all, (size_t)n, sizeof *all, nn_larger_first);
    for (int i = 0; all && scratch && i < n; i++) {
        nn_place_piece(all[i], all, i, scratch);
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

/* A parameter as kernels of this plan see it. */
static void *nn_param_data(const nn_plan *plan, const nn_param *p) {
    if (!plan->place) return plan->graph->params->data + p->offset;
    if (plan->place->half) return (char *)plan->place->half + 2 * p->offset;
    return plan->place->data + p->offset;
}

void *nn_plan_address(const nn_plan *plan, nn_value v) {
    const nn_graph *g = plan->graph;
    const nn_value_info *info = &g->values[v];
    if (info->source == NN_FROM_PARAM) return nn_param_data(plan, &g->params->list[info->index]);
    if (info->source == NN_FROM_NODE && g->nodes[info->index].op == NN_OP_cache_write) {
        return nn_plan_address(plan, g->nodes[info->index].input[0]); /* written in place */
    }
    if (plan->place && info->source == NN_FROM_INPUT && !info->state)
        return plan->traffic.device_inputs + plan->traffic.offset[v];
    return nn_address(plan, &plan->data[v]);
}

/* All but its memory. */
static nn_array nn_array_shape(const nn_plan *plan, nn_value v) {
    if (v < 0) return (nn_array){0};
    const nn_shape *shape = &plan->graph->values[v].shape;
    nn_array a = {.rows = shape->dim[0], .cols = 1, .type = plan->type[v]};
    if (shape->rows && !plan->place) a.rows = plan->rows[shape->rows];
    for (int d = 1; d < shape->ndim; d++) a.cols *= shape->dim[d];
    return a;
}

static nn_array nn_array_of(const nn_plan *plan, nn_value v) {
    nn_array a = nn_array_shape(plan, v);
    if (v >= 0) a.data = nn_plan_address(plan, v);
    return a;
}

float *nn_plan_grad_address(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    if (!info->has_grad) return NULL;
    if (plan->place && v == plan->options.loss) return plan->traffic.device_one;
    if (info->source != NN_FROM_PARAM) return nn_address(plan, &plan->grad[v]);
    const nn_params *params = plan->graph->params;
    return (plan->place ? plan->place->grad : params->grad) + params->list[info->index].offset;
}

/* Memory where the plan runs, filled with 0. */
static adamod_status nn_allocate(nn_plan *plan, void **out, size_t bytes) {
    if (plan->place) return plan->f->allocate(plan->place->device, out, bytes);
    if (posix_memalign(out, 64, bytes))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan: %.1f MiB", (double)bytes / 1048576);
    memset(*out, 0, bytes);
    return ADAMOD_OK;
}

static void nn_release(const nn_plan *plan, void *memory, size_t bytes) {
    if (plan->place) plan->f->release(plan->place->device, memory, bytes);
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
    bool alone = plan->place != NULL;
    for (int k = 0; k < node->n_inputs; k++) {
        const nn_value v = node->input[k];
        if (v >= 0 && plan->graph->values[v].source == NN_FROM_PARAM) alone = alone && writers[v] == 1;
    }
    return alone;
}

/* The bias that a node adds last. */
static nn_value nn_last_bias(const nn_node *node) {
    const bool plain = node->op == NN_OP_linear && node->attributes.activation == NN_LINEAR;
    return plain && node->n_inputs > 2 ? node->input[2] : -1;
}

/* A bias's gradient is the sum over rows of its node's output's. Where one step writes all of that, and can sum it on the
 * way, the bias's own node is relieved. */
static void nn_hand_on_bias(nn_plan *plan, plan_step *step, int k, const int *writers) {
    const nn_graph *g = plan->graph;
    const nn_value v = step->node->input[k];
    if (v < 0 || g->values[v].source != NN_FROM_NODE || writers[v] != 1) return;
    const nn_node *maker = &g->nodes[g->values[v].index];
    const nn_value bias = nn_last_bias(maker);
    if (bias < 0 || writers[bias] != 1) return;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        nn_call *c = &plan->steps[s].call;
        if (plan->steps[s].node != maker) continue;
        step->call.row_sums[k] = c->input_grad[2];
        c->input_grad[2] = NULL;
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

static void nn_size_parts(nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const size_t bytes = nn_asked_bytes(plan, step->kernels.parts, &step->call);
        step->parts = (piece){.bytes = bytes, .first = 0, .last = -1};
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
        if (plan->place) c->precision = plan->place->precision;
        c->output = nn_array_shape(plan, node->output);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            c->input[k] = nn_array_shape(plan, v);
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
        if (plan->place) {
            c->stream = plan->f->stream(plan->place->device);
            c->random = (const uint64_t *)(void *)plan->traffic.device_inputs;
        }
        if (!step->backward) continue;
        if (step->parts.bytes) c->parts = nn_address(plan, &step->parts);
        c->output_grad = nn_plan_grad_address(plan, node->output);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v >= 0 && g->values[v].source != NN_FROM_PARAM) c->input_grad[k] = nn_plan_grad_address(plan, v);
        }
    }
}

void nn_plan_bind(nn_plan *plan, plan_step *step) {
    for (int k = 0; k < step->node->n_inputs; k++) step->call.input[k] = nn_array_of(plan, step->node->input[k]);
    step->call.output = nn_array_of(plan, step->node->output);
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
    if (plan->place) nn_traffic_free(plan);
    nn_release(plan, plan->block, plan->block_bytes);
    nn_release(plan, plan->workspace, plan->workspace_bytes);
    free(plan->sums.list);
    free(plan->steps);
    free(plan->type);
    free(plan->data);
    free(plan->grad);
    free(plan->saved);
    free(plan);
}

/* An op without a gradient may not stand between a parameter and the loss. */
static const nn_node *nn_without_gradient(const nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        if (!plan->steps[s].kernels.backward) return plan->steps[s].node;
    }
    return NULL;
}

/* ---- pairs ---- */

static bool nn_same_shape(const nn_shape *a, const nn_shape *b) {
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->dim[d] == b->dim[d];
    return same;
}

/* Whether a step's late part is small, and gives gradients of parameters alone, of which it does not matter when they
 * come. Input 0 is backward's own. */
static bool nn_can_pair(const nn_plan *plan, const plan_step *step, const int *writers) {
    const nn_graph *g = plan->graph;
    bool can = step->kernels.late && step->kernels.pairs && nn_may_wait(plan, step->node, writers);
    for (int k = 0; can && k < step->node->n_inputs; k++) {
        const nn_value v = step->node->input[k];
        if (v < 0 || (k == 0 && g->values[v].source != NN_FROM_PARAM)) continue;
        const nn_shape *shape = &g->values[v].shape;
        int64_t numbers = 1;
        for (int d = 0; d < shape->ndim; d++) numbers *= shape->dim[d];
        can = g->values[v].source == NN_FROM_PARAM && numbers <= PAIR_NUMBERS;
    }
    return can;
}

static bool nn_alike(const nn_graph *g, const nn_node *a, const nn_node *b) {
    bool alike = a->op == b->op && a->n_inputs == b->n_inputs &&
                 nn_same_shape(&g->values[a->output].shape, &g->values[b->output].shape);
    for (int k = 0; alike && k < a->n_inputs; k++) {
        const nn_value x = a->input[k], y = b->input[k];
        alike = (x < 0) == (y < 0) && (x < 0 || (g->values[x].has_grad == g->values[y].has_grad &&
                                                 g->values[x].source == g->values[y].source &&
                                                 nn_same_shape(&g->values[x].shape, &g->values[y].shape)));
    }
    return alike;
}

static void nn_pair_steps(nn_plan *plan, const int *writers) {
    for (int s = plan->n_forward; plan->place && s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        if (!nn_can_pair(plan, step, writers)) continue;
        for (int t = s - 1; t >= plan->n_forward && t >= s - PAIR_STEPS; t--) {
            plan_step *mate = &plan->steps[t];
            if (mate->taken_by || mate->call.mate || !nn_can_pair(plan, mate, writers) ||
                !nn_alike(plan->graph, step->node, mate->node))
                continue;
            mate->taken_by = s;
            step->call.mate = &mate->call;
            break;
        }
    }
}

/* Which steps there are is known; what each does, and where its sums go. */
static adamod_status nn_make_calls(nn_plan *plan) {
    const size_t steps = (size_t)(plan->n_steps - plan->n_forward);
    int *writers = NULL;
    nn_types(plan);
    if (plan->place) plan->sums.list = calloc(NN_MAX_INPUTS * steps + 1, sizeof *plan->sums.list);
    const bool memory = nn_count_writers(plan, &writers) && (plan->sums.list || !plan->place);
    if (memory) {
        nn_begin_calls(plan, writers);
        nn_hand_on_biases(plan, writers);
        nn_pair_steps(plan, writers);
        nn_size_parts(plan);
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
    if (!status && plan->place) status = nn_traffic_create(plan);
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
    plan->data = calloc(values, sizeof *plan->data);
    plan->grad = calloc(values, sizeof *plan->grad);
    plan->saved = calloc(nodes, sizeof *plan->saved);
    const bool memory = needed && wanted && plan->steps && plan->type && plan->data && plan->grad && plan->saved;
    if (memory) nn_list_steps(plan, needed, wanted);
    free(needed);
    free(wanted);
    if (!memory) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan of %d ops", g->n_nodes);
    const nn_node *stuck = nn_without_gradient(plan);
    if (stuck) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s has no gradient, and the loss depends on parameters through it",
                            nn_ops[stuck->op]->name);
    }
    const adamod_status status = nn_make_calls(plan);
    return status ? status : nn_make_memory(plan);
}

adamod_status nn_plan_create(nn_plan **out, nn_graph *g, const nn_plan_options *options) {
    if (*g->error) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s", g->error);
    const char *backend = options->backend && strcmp(options->backend, "auto") != 0 ? options->backend : "cpu";
    if (g->params->place) backend = g->params->place->backend->name;
    else if (strcmp(backend, "ref") != 0 && strcmp(backend, "cpu") != 0)
        return adamod__fail(ADAMOD_ERROR_NAME, "no backend '%.40s', expected ref or cpu", backend);
    if (!g->params->data) return adamod__fail(ADAMOD_ERROR_ORDER, "the model's parameters have no memory yet");
    nn_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan");
    plan->graph = g;
    plan->options = *options;
    plan->options.backend = backend;
    plan->place = g->params->place;
    plan->f = plan->place ? plan->place->backend->device : NULL;
    for (int s = 1; s <= g->n_symbols; s++) plan->rows[s] = g->symbols[s - 1].capacity;
    const adamod_status status = nn_plan_build(plan);
    if (status) nn_plan_free(plan);
    else *out = plan;
    return status;
}

nn_memory nn_plan_memory(const nn_plan *plan) {
    size_t number = 2 * sizeof(float);
    if (plan->place && plan->place->half) number += 2;
    return (nn_memory){plan->block_bytes, plan->unshared_bytes, number * (size_t)plan->graph->params->count,
                       plan->workspace_bytes};
}
