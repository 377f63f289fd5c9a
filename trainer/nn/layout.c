/* Places a plan's arrays: each is needed from one step to another, and arrays whose times do not overlap may use the
 * same memory. */
#include "nn/plan.h"

#include <stdlib.h>

/* ---- sizes ---- */

size_t nn_plan_bytes(const nn_plan *plan, const nn_shape *shape, nn_type type) {
    const size_t align = plan->on_device ? 256 : 64;
    const size_t n = (size_t)nn_numbers(shape) * nn_type_bytes(type);
    return (n + align - 1) / align * align;
}

/* Bytes that a kernel asks for. */
size_t nn_plan_asked(const nn_plan *plan, size_t (*ask)(const nn_call *c), const nn_call *c) {
    const nn_shape shape = {.ndim = 1, .dim = {ask ? (int64_t)ask(c) : 0}};
    return nn_plan_bytes(plan, &shape, NN_F32);
}

/* ---- how long each array is needed ---- */

static bool nn_is_used(const piece *p) { return p->last >= p->first; }

/* The pieces in which a value and its gradient lie. */
static piece *nn_data_of(const nn_plan *plan, const plan_step *step, nn_value v) {
    return &(nn_plan_uses_remade(plan, step, v) ? plan->remade : plan->data)[plan->place[v].in];
}
static piece *nn_grad_of(const nn_plan *plan, nn_value v) { return &plan->grad[plan->place[v].in]; }

static void nn_use(piece *p, int step) {
    const bool unused = !nn_is_used(p);
    if (unused || step < p->first) p->first = step;
    if (unused || step > p->last) p->last = step;
}

/* Marks what a step's backward_weights reads. */
static void nn_use_for_weights(nn_plan *plan, const plan_step *step, int end) {
    const nn_node *node = step->node;
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        if (step->given >> k & 1) nn_use(nn_grad_of(plan, node->output[k]), end);
    }
    for (int k = 0; k < node->n_inputs; k++) {
        if (node->input[k] >= 0 && (node->backward_needs & (1u << k)))
            nn_use(nn_data_of(plan, step, node->input[k]), end);
    }
}

/* Parameters, persistent states, constants, another plan's states and aliases have memory elsewhere; on a device, so
 * have inputs that need no conversion, and the gradient of the loss. */
static void nn_leave_out(nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    const bool param = info->source != NN_FROM_INPUT && info->source != NN_FROM_NODE;
    if (param || nn_memory_of(plan->graph, v) != v || (info->state && plan->options.states) ||
        (plan->on_device && info->source == NN_FROM_INPUT && !info->state && !plan->converted[v]))
        plan->data[v].first = 0, plan->data[v].last = -1;
    if (param || (plan->on_device && v == plan->options.loss)) plan->grad[v].first = 0, plan->grad[v].last = -1;
}

static void nn_use_outputs(nn_plan *plan, const plan_step *step, int s, unsigned needs) {
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        const nn_value v = step->node->output[k];
        if (v < 0 || (k == 0 && step->done_in)) continue;
        const nn_value_info *info = &plan->graph->values[v];
        const bool read = needs & (NN_NEEDS_OUTPUT << k) || (k == 0 && step->fused.output_linear.first);
        if (read) nn_use(nn_data_of(plan, step, v), s);
        if (info->output || info->kept) nn_use(nn_data_of(plan, step, v), plan->n_steps);
        if (step->given >> k & 1) nn_use(nn_grad_of(plan, v), s);
    }
}

static void nn_use_in_step(nn_plan *plan, int i) {
    const nn_graph *g = plan->graph;
    plan_step *step = &plan->steps[i];
    const int s = step->done_in ? step->done_in : i;
    const nn_node *node = step->node;
    piece *saved = &plan->saved[node - g->nodes];
    const unsigned needs = step->backward ? node->backward_needs : ~0u;
    if (step->partials.bytes) nn_use(&step->partials, s), nn_use(&step->partials, plan->n_steps);
    if (node->saved.ndim) nn_use(saved, s);
    if (i < plan->n_forward) saved->bytes += nn_plan_asked(plan, step->kernels.extra_saved, &step->call);
    nn_use_outputs(plan, step, s, needs);
    if (step->fused.reader) nn_use(nn_data_of(plan, step, plan->steps[i + 1].node->output[0]), s);
    if (step->backward && step->kernels.backward_weights)
        nn_use_for_weights(plan, step, step->paired_in ? step->paired_in : s);
    for (int k = 0; k < node->n_inputs; k++) {
        const nn_value v = node->input[k];
        if (v < 0 || (k == 0 && step->fused.maker)) continue;
        if (needs & (1u << k)) nn_use(nn_data_of(plan, step, v), s);
        if (step->backward && g->values[v].has_grad) nn_use(nn_grad_of(plan, v), s);
    }
}

static void nn_lifetimes(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        const size_t bytes = nn_plan_bytes(plan, &info->shape, plan->type[v]);
        plan->data[v] = plan->grad[v] = (piece){.bytes = bytes, .first = 0, .last = -1};
        plan->remade[v] = (piece){.bytes = plan->remade[v].bytes ? bytes : 0, .first = 0, .last = -1};
        /* Inputs are written before a run and outputs read after it. */
        if (info->source == NN_FROM_INPUT) nn_use(&plan->data[v], 0), nn_use(&plan->data[v], plan->n_steps);
    }
    for (int n = 0; n < g->n_nodes; n++) {
        plan->saved[n] = (piece){.bytes = nn_plan_bytes(plan, &g->nodes[n].saved, NN_F32), .first = 0, .last = -1};
    }
    for (int s = 0; s < plan->n_steps; s++) nn_use_in_step(plan, s);
    /* The gradient of the loss is written before a backward pass, which may begin with steps of the forward pass. */
    if (plan->options.loss >= 0 && plan->n_forward < plan->n_steps)
        nn_use(&plan->grad[plan->options.loss], plan->n_forward);
    for (int v = 0; v < g->n_values; v++) nn_leave_out(plan, v);
}

/* A gradient takes its value's place if the step that writes it is the last to read the value. */
static void nn_overlay(nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        const nn_node *node = step->node;
        for (int k = 0; step->backward && k < node->n_inputs; k++) {
            if (node->input[k] < 0 || !(node->op->in_place & (1u << k))) continue;
            if (nn_plan_overlaps(plan, node->input[k])) continue;
            piece *data = nn_data_of(plan, step, node->input[k]), *grad = &plan->grad[node->input[k]];
            if (data->last != s || grad->first != s || data->bytes != grad->bytes) continue;
            data->last = grad->last;
            grad->in = data;
        }
    }
}

/* The next step after s that reads or writes a value's gradient; n_steps: none. */
static int nn_next_use(const nn_plan *plan, int s, nn_value v) {
    int next = plan->n_steps;
    for (int t = plan->n_steps - 1; t > s; t--) {
        const plan_step *step = &plan->steps[t];
        for (int k = 0; step->backward && k < NN_MAX_OUTPUTS; k++) next = step->node->output[k] == v ? t : next;
        for (int k = 0; step->backward && k < step->node->n_inputs; k++) next = step->node->input[k] == v ? t : next;
    }
    return next;
}

/* Whether input k's gradient, which begins in step s, may lie in the place of output 0's. */
static bool nn_can_pass(const nn_plan *plan, int s, int k) {
    const nn_node *node = plan->steps[s].node;
    const nn_value v = node->input[k], y = node->output[0];
    if (!(node->passes >> k & 1) || v < 0 || plan->graph->values[v].source != NN_FROM_NODE) return false;
    if (nn_plan_overlaps(plan, v) || plan->grad[v].in || plan->grad[v].first != s) return false;
    return plan->grad[v].bytes == plan->grad[y].bytes && plan->type[v] == plan->type[y];
}

/* Whether a value's gradient stays unchanged from step s to its last use: no other reader of the value adds to it, and
 * the node that made the value does not write there. */
static bool nn_stays(const nn_plan *plan, int s, nn_value v) {
    const nn_node *maker = &plan->graph->nodes[plan->graph->values[v].index];
    const int next = nn_next_use(plan, s, v);
    return maker->leaves_gradient && (next == plan->n_steps || plan->steps[next].node == maker);
}

/* Places gradients of inputs that equal the output's gradient in its memory: that of the last such input, and that of
 * another one if nothing is added to it before the last use of the first. */
static void nn_pass_gradients(nn_plan *plan, int s) {
    const nn_node *node = plan->steps[s].node;
    piece *dy = nn_grad_of(plan, node->output[0]), *place = dy->in ? dy->in : dy;
    nn_value passed = -1;
    if (nn_plan_overlaps(plan, node->output[0]) || !nn_is_used(dy) || dy->last != s || place->last != s) return;
    for (int k = node->n_inputs - 1; k >= 0; k--) {
        const nn_value v = node->input[k];
        if (!nn_can_pass(plan, s, k)) continue;
        piece *dx = &plan->grad[v];
        if (passed >= 0 && (!nn_stays(plan, s, passed) || plan->grad[passed].last >= nn_next_use(plan, s, v))) continue;
        dx->in = place;
        place->last = dx->last > place->last ? dx->last : place->last;
        passed = v;
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

/* Gives a piece the lowest gap between the pieces already placed that live at the same time. */
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
    const size_t most = 3 * (size_t)g->n_values + (size_t)g->n_nodes + (size_t)plan->n_steps + 1;
    piece **all = calloc(most, sizeof *all), **scratch = calloc(most, sizeof *scratch);
    int n = 0;
    for (int v = 0; all && v < g->n_values; v++) {
        if (nn_is_used(&plan->data[v])) all[n++] = &plan->data[v];
        if (nn_is_used(&plan->remade[v])) all[n++] = &plan->remade[v];
        if (nn_is_used(&plan->grad[v]) && !plan->grad[v].in) all[n++] = &plan->grad[v];
    }
    for (int i = 0; all && i < g->n_nodes; i++) {
        if (nn_is_used(&plan->saved[i])) all[n++] = &plan->saved[i];
    }
    for (int s = 0; all && s < plan->n_steps; s++) {
        if (plan->steps[s].partials.bytes) all[n++] = &plan->steps[s].partials;
    }
    if (all && scratch) qsort(all, (size_t)n, sizeof *all, nn_larger_first);
    for (int i = 0; all && scratch && i < n; i++) {
        nn_find_gap(all[i], all, i, scratch);
        plan->without_reuse_bytes += all[i]->bytes;
        if (all[i]->offset + all[i]->bytes > plan->block_bytes) plan->block_bytes = all[i]->offset + all[i]->bytes;
    }
    const bool done = all && scratch;
    free(all);
    free(scratch);
    return done;
}

bool nn_plan_layout(nn_plan *plan) {
    nn_lifetimes(plan);
    nn_overlay(plan);
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        if (plan->steps[s].backward && plan->steps[s].node->passes) nn_pass_gradients(plan, s);
    }
    return nn_layout(plan);
}
