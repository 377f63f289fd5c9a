/* Plans: which kernels run in which order, where every value lies, and the replay.
 *
 * Forward runs the nodes in the order they were built, backward in the reverse. Each value, gradient and saved array
 * is needed from one step to another; arrays whose times do not meet share memory. */
#include "graph.h"
#include "internal.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

/* An array in the block, needed in steps first..last. */
typedef struct piece {
    size_t bytes, offset;
    int first, last; /* last < first: not needed at all */
} piece;

typedef struct plan_step {
    const nn_node *node;
    nn_kernels kernels;
    nn_call call;
    bool backward;
} plan_step;

struct nn_plan {
    nn_graph *graph;
    nn_plan_options options;
    plan_step *steps;
    int n_steps, n_forward;
    piece *data, *grad, *saved; /* of each value; of each value; of each node */
    char *block;
    size_t block_bytes, unshared_bytes;
    float *workspace;
    int64_t rows[NN_MAX_SYMBOLS + 1];
    uint64_t seed, random_step;
};

void nn_parallel(adamod_pool *pool, int64_t n, void (*task)(void *context, int64_t i), void *context) {
    adamod__pool_run(pool, n, task, context);
}

/* ---- which nodes ---- */

/* Marks the nodes that the outputs and the loss need. */
static bool *nn_needed(const nn_graph *g, nn_value loss) {
    bool *needed = calloc((size_t)g->n_nodes + 1, sizeof *needed);
    for (int i = g->n_nodes - 1; needed && i >= 0; i--) {
        const nn_value out = g->nodes[i].output;
        if (out == loss || g->values[out].output) needed[i] = true;
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
    const nn_kernels *cpu = nn_backend_cpu.kernels[op];
    return strcmp(plan->options.backend, "cpu") == 0 && cpu ? *cpu : nn_ops[op]->ref;
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

static size_t nn_shape_bytes(const nn_shape *shape) {
    size_t n = shape->ndim ? 4 : 0;
    for (int d = 0; d < shape->ndim; d++) n *= (size_t)shape->dim[d];
    return (n + 63) / 64 * 64;
}

static void nn_use(piece *p, int step) {
    const bool unused = p->last < p->first;
    if (unused || step < p->first) p->first = step;
    if (unused || step > p->last) p->last = step;
}

static void nn_lifetimes(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        const bool in_place = info->source == NN_FROM_NODE && g->nodes[info->index].op == NN_OP_cache_write;
        plan->data[v] = (piece){.bytes = in_place ? 0 : nn_shape_bytes(&info->shape), .first = 0, .last = -1};
        plan->grad[v] = plan->data[v];
        /* Inputs are written before a run and outputs read after it. */
        if (info->source == NN_FROM_INPUT) nn_use(&plan->data[v], 0), nn_use(&plan->data[v], plan->n_steps);
    }
    for (int n = 0; n < g->n_nodes; n++) {
        plan->saved[n] = (piece){.bytes = nn_shape_bytes(&g->nodes[n].saved), .first = 0, .last = -1};
    }
    for (int s = 0; s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        const nn_node *node = step->node;
        const unsigned needs = step->backward ? node->backward_needs : ~0u;
        if (node->saved.ndim) nn_use(&plan->saved[node - g->nodes], s);
        if (needs & NN_NEEDS_OUTPUT) nn_use(&plan->data[node->output], s);
        if (g->values[node->output].output) nn_use(&plan->data[node->output], plan->n_steps);
        if (step->backward) nn_use(&plan->grad[node->output], s);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v < 0) continue;
            if (needs & (1u << k)) nn_use(&plan->data[v], s);
            if (step->backward && g->values[v].has_grad) nn_use(&plan->grad[v], s);
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].source == NN_FROM_PARAM)
            plan->data[v].last = plan->grad[v].last = -1, plan->data[v].first = plan->grad[v].first = 0;
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
static void nn_place(piece *p, piece **placed, int n, piece **scratch) {
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
    const size_t most = 2 * (size_t)g->n_values + (size_t)g->n_nodes + 1;
    piece **all = calloc(most, sizeof *all), **scratch = calloc(most, sizeof *scratch);
    int n = 0;
    for (int v = 0; all && v < g->n_values; v++) {
        if (plan->data[v].last >= plan->data[v].first) all[n++] = &plan->data[v];
        if (plan->grad[v].last >= plan->grad[v].first) all[n++] = &plan->grad[v];
    }
    for (int i = 0; all && i < g->n_nodes; i++) {
        if (plan->saved[i].last >= plan->saved[i].first) all[n++] = &plan->saved[i];
    }
    if (all && scratch) qsort(all, (size_t)n, sizeof *all, nn_larger_first);
    for (int i = 0; all && scratch && i < n; i++) {
        nn_place(all[i], all, i, scratch);
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
    return p->last >= p->first ? plan->block + p->offset : NULL;
}

static void *nn_value_data(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    if (info->source == NN_FROM_PARAM) return plan->graph->params->data + plan->graph->params->list[info->index].offset;
    if (info->source == NN_FROM_NODE && plan->graph->nodes[info->index].op == NN_OP_cache_write) {
        return nn_value_data(plan, plan->graph->nodes[info->index].input[0]); /* written in place */
    }
    return nn_address(plan, &plan->data[v]);
}

static nn_array nn_array_of(const nn_plan *plan, nn_value v) {
    if (v < 0) return (nn_array){0};
    const nn_shape *shape = &plan->graph->values[v].shape;
    nn_array a = {
        .data = nn_value_data(plan, v), .rows = shape->rows ? plan->rows[shape->rows] : shape->dim[0], .cols = 1};
    for (int d = 1; d < shape->ndim; d++) a.cols *= shape->dim[d];
    return a;
}

static float *nn_value_grad(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    if (!info->has_grad) return NULL;
    if (info->source == NN_FROM_PARAM) return plan->graph->params->grad + plan->graph->params->list[info->index].offset;
    return nn_address(plan, &plan->grad[v]);
}

static void nn_fill_calls(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    bool *written = calloc((size_t)g->n_values + 1, sizeof *written);
    for (int s = 0; written && s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_call *c = &step->call;
        const nn_node *node = step->node;
        c->attributes = &node->attributes;
        c->saved = nn_address(plan, &plan->saved[node - g->nodes]);
        c->pool = plan->options.pool;
        c->training = plan->options.training;
        if (!step->backward) continue;
        c->output_grad = nn_value_grad(plan, node->output);
        for (int k = 0; k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (v < 0) continue;
            c->input_grad[k] = nn_value_grad(plan, v);
            c->accumulate[k] = written[v];
            written[v] = true;
        }
    }
    free(written);
}

/* The parts of a call that change from run to run. */
static void nn_bind(nn_plan *plan, plan_step *step) {
    for (int k = 0; k < step->node->n_inputs; k++) step->call.input[k] = nn_array_of(plan, step->node->input[k]);
    step->call.output = nn_array_of(plan, step->node->output);
    step->call.workspace = plan->workspace;
    step->call.key = nn_key(plan->seed, plan->random_step, (uint64_t)(step->node - plan->graph->nodes));
}

static bool nn_make_workspace(nn_plan *plan) {
    size_t most = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        nn_bind(plan, &plan->steps[s]);
        const size_t n = plan->steps[s].kernels.workspace ? plan->steps[s].kernels.workspace(&plan->steps[s].call) : 0;
        if (n > most) most = n;
    }
    void *p = NULL;
    if (posix_memalign(&p, 64, (most + 16) * sizeof(float))) return false;
    plan->workspace = p;
    return true;
}

/* ---- create, run, free ---- */

void nn_plan_free(nn_plan *plan) {
    if (!plan) return;
    free(plan->steps);
    free(plan->data);
    free(plan->grad);
    free(plan->saved);
    free(plan->block);
    free(plan->workspace);
    free(plan);
}

/* An op without a gradient may not stand between a parameter and the loss. */
static const nn_node *nn_without_gradient(const nn_plan *plan) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        if (!plan->steps[s].kernels.backward) return plan->steps[s].node;
    }
    return NULL;
}

static adamod_status nn_plan_build(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    const size_t values = (size_t)g->n_values + 1, nodes = (size_t)g->n_nodes + 1;
    bool *needed = nn_needed(g, plan->options.loss), *wanted = nn_differentiated(g, plan->options.loss);
    plan->steps = calloc(2 * nodes, sizeof *plan->steps);
    plan->data = calloc(values, sizeof *plan->data);
    plan->grad = calloc(values, sizeof *plan->grad);
    plan->saved = calloc(nodes, sizeof *plan->saved);
    bool done = needed && wanted && plan->steps && plan->data && plan->grad && plan->saved;
    const nn_node *stuck = NULL;
    if (done) {
        nn_list_steps(plan, needed, wanted);
        stuck = nn_without_gradient(plan);
        nn_lifetimes(plan);
        void *memory = NULL;
        done = nn_layout(plan) && posix_memalign(&memory, 64, plan->block_bytes + 64) == 0;
        plan->block = memory;
    }
    if (done) {
        memset(plan->block, 0, plan->block_bytes + 64);
        nn_fill_calls(plan);
        done = nn_make_workspace(plan);
    }
    free(needed);
    free(wanted);
    if (stuck) {
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s has no gradient, and the loss depends on parameters through it",
                            nn_ops[stuck->op]->name);
    }
    return done ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan of %d ops", g->n_nodes);
}

adamod_status nn_plan_create(nn_plan **out, nn_graph *g, const nn_plan_options *options) {
    if (*g->error) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s", g->error);
    const char *backend = options->backend && strcmp(options->backend, "auto") != 0 ? options->backend : "cpu";
    if (strcmp(backend, "ref") != 0 && strcmp(backend, "cpu") != 0) {
        return adamod__fail(ADAMOD_ERROR_NAME, "no backend '%.40s', expected ref or cpu", backend);
    }
    if (!g->params->data) return adamod__fail(ADAMOD_ERROR_ORDER, "the model's parameters have no memory yet");
    nn_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return adamod__fail(ADAMOD_ERROR_MEMORY, "no memory for a plan");
    plan->graph = g;
    plan->options = *options;
    plan->options.backend = backend;
    for (int s = 1; s <= g->n_symbols; s++) plan->rows[s] = g->symbols[s - 1].capacity;
    const adamod_status status = nn_plan_build(plan);
    if (status) nn_plan_free(plan);
    else *out = plan;
    return status;
}

void *nn_plan_data(nn_plan *plan, const char *name) {
    for (int v = 0; v < plan->graph->n_values; v++) {
        const nn_value_info *info = &plan->graph->values[v];
        if (info->name && strcmp(info->name, name) == 0) return nn_value_data(plan, v);
    }
    return NULL;
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

void nn_plan_forward(nn_plan *plan) {
    for (int s = 0; s < plan->n_forward; s++) {
        nn_bind(plan, &plan->steps[s]);
        plan->steps[s].kernels.forward(&plan->steps[s].call);
    }
}

/* A parameter's first gradient of a run replaces what was there, unless runs are to be added up. */
void nn_plan_backward(nn_plan *plan, float scale, bool accumulate) {
    const nn_graph *g = plan->graph;
    if (plan->options.loss < 0) return;
    float *seed = nn_value_grad(plan, plan->options.loss);
    if (!seed) return;
    memset(seed, 0, nn_shape_bytes(&g->values[plan->options.loss].shape));
    seed[0] = scale;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        nn_bind(plan, step);
        nn_call call = step->call;
        for (int k = 0; accumulate && k < step->node->n_inputs; k++) {
            const nn_value v = step->node->input[k];
            if (v >= 0 && g->values[v].source == NN_FROM_PARAM) call.accumulate[k] = true;
        }
        step->kernels.backward(&call);
    }
}

nn_memory nn_plan_memory(const nn_plan *plan) {
    return (nn_memory){plan->block_bytes, plan->unshared_bytes, 2 * (size_t)plan->graph->params->count * sizeof(float)};
}
