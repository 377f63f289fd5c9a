/* Plans: which kernels run in which order, and their memory. join.c places values inside others, calls.c fills the
 * kernels' calls, fuse.c lets kernels work for each other, layout.c places values in memory; replay.c runs plans.
 *
 * Forward runs the nodes in the order they were built, backward in the reverse. */
#include "nn/plan.h"
#include "core/error.h"
#include "core/pool.h"
#include "nn/backend/cpu/gemm.h"
#include "support/zeros.h"

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

/* Whether a run must compute a value for its own sake. With grad: whether differentiation begins there. */
static bool nn_is_goal(const nn_graph *g, nn_value v, nn_value loss, bool grad) {
    if (v < 0) return false;
    return grad ? v == loss && g->values[v].has_grad : v == loss || g->values[v].output || g->values[v].kept;
}

/* Marks the nodes that the outputs and the loss need; with grad, those between a parameter and the loss. */
static bool *nn_needed(const nn_graph *g, nn_value loss, bool grad) {
    bool *needed = calloc((size_t)g->n_nodes + 1, sizeof *needed);
    for (int i = g->n_nodes - 1; needed && i >= 0; i--) {
        for (int k = 0; k < NN_MAX_OUTPUTS; k++)
            needed[i] = needed[i] || nn_is_goal(g, g->nodes[i].output[k], loss, grad);
        for (int k = 0; needed[i] && k < g->nodes[i].n_inputs; k++) {
            const nn_value v = g->nodes[i].input[k];
            if (v >= 0 && g->values[v].source == NN_FROM_NODE && (!grad || g->values[v].has_grad))
                needed[g->values[v].index] = true;
        }
    }
    return needed;
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
    plan_step *step = &plan->steps[plan->n_steps++];
    *step = (plan_step){.node = node, .kernels = *kernels, .backward = backward};
    /* no other step knows the statistics of several processes, and no step runs another's work again */
    const bool alone = !(plan->options.synced && node->synced) && !node->recompute;
    if (on && alone) step->fusion = kernels->fusion;
    if (!backward || kernels->backward) return ADAMOD_OK;
    if (node->op->ref.backward)
        return adamod__fail(ADAMOD_ERROR_NAME, "%s: the backend has no gradient of '%s'", backend->name,
                            node->op->name);
    return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s has no gradient, and the loss depends on parameters through it",
                        node->op->name);
}

/* ---- values that backward makes again ---- */

/* Whether a value is dropped after its last use in the forward pass. */
static bool nn_is_dropped(const nn_plan *plan, nn_value v) {
    const nn_graph *g = plan->graph;
    if (v < 0 || g->values[v].source != NN_FROM_NODE || !g->nodes[g->values[v].index].recompute) return false;
    bool dropped = true;
    for (int k = 0; k < NN_MAX_OUTPUTS; k++)
        dropped = dropped && !nn_is_goal(g, g->nodes[g->values[v].index].output[k], plan->options.loss, false);
    return dropped;
}

/* Makes a dropped value again, unless an earlier step of the pass has. Its inputs are made first, in the order of the
 * forward pass; the recursion is at most as deep as a chain of dropped values. */
static adamod_status nn_make_again(nn_plan *plan, nn_value v) {
    const nn_graph *g = plan->graph;
    if (!nn_is_dropped(plan, v) || plan->remade[v].bytes) return ADAMOD_OK;
    const nn_node *node = &g->nodes[g->values[v].index];
    adamod_status status = ADAMOD_OK;
    for (int k = 0; !status && k < node->n_inputs; k++) status = nn_make_again(plan, node->input[k]);
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        if (node->output[k] >= 0) plan->remade[node->output[k]].bytes = 1; /* layout.c knows its size */
    }
    return status ? status : nn_add_step(plan, node, false);
}

static adamod_status nn_add_backward(nn_plan *plan, const nn_node *node) {
    adamod_status status = ADAMOD_OK;
    for (int k = 0; !status && k < node->n_inputs; k++) {
        if (node->backward_needs >> k & 1) status = nn_make_again(plan, node->input[k]);
    }
    for (int k = 0; !status && k < NN_MAX_OUTPUTS; k++) {
        if (node->backward_needs & (NN_NEEDS_OUTPUT << k)) status = nn_make_again(plan, node->output[k]);
    }
    return status ? status : nn_add_step(plan, node, true);
}

static adamod_status nn_list_steps(nn_plan *plan, const bool *needed, const bool *wanted) {
    const nn_graph *g = plan->graph;
    adamod_status status = ADAMOD_OK;
    for (int i = 0; !status && i < g->n_nodes; i++) {
        if (needed[i]) status = nn_add_step(plan, &g->nodes[i], false);
    }
    plan->n_forward = plan->n_steps;
    for (int i = g->n_nodes - 1; !status && i >= 0; i--) {
        if (wanted[i]) status = nn_add_backward(plan, &g->nodes[i]);
    }
    return status;
}

/* ---- memory ---- */

/* Memory where the plan runs, filled with 0. */
static adamod_status nn_allocate(nn_plan *plan, void **out, size_t bytes) {
    if (plan->on_device) return plan->f->allocate(plan->on_device->device, out, bytes);
    /* training uses all of it; a decoder's cache is made for the longest outputs */
    *out = zeros_new(bytes, plan->options.training);
    return *out ? ADAMOD_OK
                : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a plan: %.1f MiB", (double)bytes / 1048576);
}

static void nn_release(const nn_plan *plan, void *memory, size_t bytes) {
    if (plan->on_device) plan->f->release(plan->on_device->device, memory, bytes);
    else zeros_free(memory);
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

/* ---- constants ---- */

/* Holds the graph's constants on the device. */
static adamod_status nn_upload_constants(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    adamod_status status = ADAMOD_OK;
    for (int v = 0; !status && v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        if (info->source != NN_FROM_CONSTANT) continue;
        const size_t bytes = (size_t)nn_numbers(&info->shape) * nn_type_bytes(info->type);
        if (!info->constant) status = adamod__fail(ADAMOD_ERROR_ORDER, "constant %s has no data", info->name);
        else if (plan->on_device) status = nn_device_keep_constant(plan->on_device, info->constant, bytes);
        if (!status) plan->constants++;
    }
    return status;
}

/* Drops the constants it holds, in the same order. */
static void nn_drop_constants(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    for (int v = 0; plan->on_device && plan->constants > 0; v++) {
        if (g->values[v].source != NN_FROM_CONSTANT) continue;
        nn_device_drop_constant(plan->on_device, g->values[v].constant);
        plan->constants--;
    }
}

/* ---- states of another plan ---- */

static adamod_status nn_check_states(const nn_plan *plan) {
    const nn_graph *g = plan->graph;
    const nn_plan *lender = plan->options.states;
    for (int v = 0; lender && v < g->n_values; v++) {
        const nn_value_info *info = &g->values[v];
        if (!info->state) continue;
        const nn_value there = nn_named_value(lender->graph, info->name);
        const nn_value_info *other = there < 0 ? NULL : &lender->graph->values[there];
        if (other && other->state && other->type == info->type && other->shape.dim[0] >= info->shape.dim[0] &&
            nn_columns(&other->shape) == nn_columns(&info->shape))
            continue;
        return adamod__fail(ADAMOD_ERROR_ARGUMENT, "state %s is not one of the other plan, or of another shape",
                            info->name);
    }
    return ADAMOD_OK;
}

/* ---- create and free ---- */

void nn_plan_free(nn_plan *plan) {
    if (!plan) return;
    for (int s = 0; plan->steps && s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        if (step->kernels.release && step->call.prepared) step->kernels.release(step->call.prepared);
    }
    if (plan->on_device) nn_traffic_free(plan);
    nn_drop_constants(plan);
    nn_release(plan, plan->pairs, plan->pairs_bytes);
    nn_release(plan, plan->block, plan->block_bytes);
    nn_release(plan, plan->workspace, plan->workspace_bytes);
    free(plan->sums.list);
    free(plan->watch.list);
    free(plan->steps);
    free(plan->type);
    free(plan->place);
    free(plan->converted);
    free(plan->data);
    free(plan->grad);
    free(plan->saved);
    free(plan->remade);
    free(plan);
}

static adamod_status nn_make_memory(nn_plan *plan) {
    void *memory = NULL;
    if (!nn_plan_layout(plan)) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory laying out a plan");
    plan->block_bytes += 64;
    adamod_status status = nn_allocate(plan, &memory, plan->block_bytes);
    plan->block = memory;
    if (!status && plan->on_device) status = nn_traffic_create(plan);
    if (status) return status;
    nn_plan_finish_calls(plan);
    return nn_make_workspace(plan);
}

static adamod_status nn_plan_build(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    const size_t values = (size_t)g->n_values + 1, nodes = (size_t)g->n_nodes + 1;
    bool *needed = nn_needed(g, plan->options.loss, false), *wanted = nn_needed(g, plan->options.loss, true);
    plan->steps = calloc(3 * nodes, sizeof *plan->steps); /* forward, backward, forward again */
    plan->type = calloc(values, sizeof *plan->type);
    plan->place = calloc(values, sizeof *plan->place);
    plan->converted = calloc(values, sizeof *plan->converted);
    plan->data = calloc(values, sizeof *plan->data);
    plan->grad = calloc(values, sizeof *plan->grad);
    plan->saved = calloc(nodes, sizeof *plan->saved);
    plan->remade = calloc(values, sizeof *plan->remade);
    const bool memory = needed && wanted && plan->steps && plan->type && plan->place && plan->converted && plan->data &&
                        plan->grad && plan->saved && plan->remade;
    adamod_status status = memory ? nn_list_steps(plan, needed, wanted)
                                  : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a plan of %d ops", g->n_nodes);
    free(needed);
    free(wanted);
    if (!status) status = nn_check_states(plan);
    if (!status) status = nn_upload_constants(plan);
    if (!status) status = nn_plan_types(plan);
    if (!status && !nn_plan_join(plan))
        status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory joining a plan's values");
    if (!status) status = nn_plan_calls(plan);
    if (!status) status = nn_plan_fuse(plan);
    return status ? status : nn_make_memory(plan);
}

adamod_status nn_plan_create(nn_plan **out, nn_graph *g, const nn_plan_options *options) {
    if (*g->error) return adamod__fail(ADAMOD_ERROR_ARGUMENT, "%s", g->error);
    const char *backend = options->backend && strcmp(options->backend, "auto") != 0 ? options->backend : "cpu";
    if (g->params->on_device) backend = g->params->on_device->backend->name;
    else if (strcmp(backend, "ref") != 0 && strcmp(backend, "cpu") != 0)
        return adamod__fail(ADAMOD_ERROR_NAME, "no backend '%.40s', expected ref or cpu", backend);
    if (!g->params->data) return adamod__fail(ADAMOD_ERROR_ORDER, "the model's parameters have no memory yet");
    const adamod_status ready = strcmp(backend, "cpu") == 0 ? nn_gemm_prepare() : ADAMOD_OK;
    if (ready) return ready;
    nn_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a plan");
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
    return (nn_memory){plan->block_bytes + plan->pairs_bytes, plan->without_reuse_bytes,
                       number * (size_t)p->count + sizeof(float) * (size_t)p->state_count, plan->workspace_bytes};
}

bool nn_plan_remark(const nn_plan *plan, char *out, size_t size) {
    for (int s = 0; s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        if (step->kernels.remark && step->kernels.remark(&step->call, out, size)) return true;
    }
    return false;
}
