/* Places values inside others, so that an op that joins values has nothing to copy; and finds which step writes a
 * gradient first.
 *
 * A joined value is placed in the result, and its gradient in the result's gradient, with the same distance from
 * pixel to pixel. All readers then add to one block of gradients. The first to write a part of the block replaces
 * it, so no step may write or read a range of which only a part was written: if the order of steps would do that,
 * the values stay apart, and the op copies. */
#include "nn/plan.h"

#include <stdlib.h>
#include <string.h>

/* Whether all that read a value take it inside a wider one. */
static bool readers_take_strides(const nn_plan *plan, nn_value v) {
    for (int s = 0; s < plan->n_steps; s++) {
        const nn_node *node = plan->steps[s].node;
        for (int k = 0; k < node->n_inputs; k++) {
            if (node->input[k] == v && !(node->op->strided_inputs >> k & 1)) return false;
        }
    }
    return true;
}

static bool may_lie_in(const nn_plan *plan, nn_value v, nn_value whole) {
    const nn_graph *g = plan->graph;
    const nn_value_info *info = &g->values[v];
    if (info->source != NN_FROM_NODE || info->output || info->kept || v == plan->options.loss) return false;
    const nn_op *maker = g->nodes[info->index].op;
    return plan->place[v].in == v && nn_memory_of(g, v) == v && !plan->remade[v].bytes &&
           (maker->strided_outputs >> info->which & 1) && plan->type[v] == plan->type[whole] &&
           readers_take_strides(plan, v);
}

/* Places each value inside the one that it is joined into first. */
static void place_inputs(nn_plan *plan) {
    for (int s = 0; s < plan->n_forward; s++) {
        const nn_node *node = plan->steps[s].node;
        int64_t offset = 0;
        for (int k = 0; node->op->joins && k < node->n_inputs; k++) {
            const nn_value v = node->input[k];
            if (may_lie_in(plan, v, node->output[0])) plan->place[v] = (plan_place){node->output[0], offset};
            offset += nn_last_dimension(&plan->graph->values[v].shape);
        }
    }
}

/* Resolves chains: a value inside a value that is inside a third becomes one inside the third. From the last value to
 * the first, as results come after their inputs. */
static void resolve_places(nn_plan *plan) {
    for (nn_value v = plan->graph->n_values - 1; v >= 0; v--) {
        const plan_place outer = plan->place[plan->place[v].in];
        if (plan->place[v].in == v) continue;
        plan->place[v].in = outer.in;
        plan->place[v].offset += outer.offset;
    }
}

/* ---- gradients ---- */

typedef enum extent { NONE, SOME, ALL } extent;

/* The channels of each block of gradients that have been written. */
typedef struct written {
    const nn_plan *plan;
    size_t *first; /* of each value that has a block, in flags */
    bool *flags;
} written;

static bool *flags_of(const written *w, nn_value v) {
    const plan_place *p = &w->plan->place[v];
    return w->flags + w->first[p->in] + p->offset;
}

static extent extent_of(const written *w, nn_value v) {
    const int64_t n = nn_last_dimension(&w->plan->graph->values[v].shape);
    const bool *flags = flags_of(w, v);
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) count += flags[k];
    return count == 0 ? NONE : count == n ? ALL : SOME;
}

static void mark(const written *w, nn_value v) {
    memset(flags_of(w, v), true, (size_t)nn_last_dimension(&w->plan->graph->values[v].shape));
}

/* Finds which outputs' gradients a step has, and whether it adds to its inputs'. Returns a value of which only a
 * part was written; -1: none. */
static nn_value step_gradients(const written *w, plan_step *step) {
    const nn_node *node = step->node;
    const nn_graph *g = w->plan->graph;
    step->given = 0;
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        const nn_value v = node->output[k];
        if (v < 0 || !g->values[v].has_grad) continue;
        const extent e = extent_of(w, v);
        if (e == SOME) return v;
        if (e == ALL) step->given |= 1u << k;
    }
    for (int k = 0; k < node->n_inputs; k++) {
        const nn_value v = node->input[k];
        if (v < 0 || !g->values[v].has_grad) continue;
        const extent e = extent_of(w, v);
        if (e == SOME) return v;
        step->grad.accumulate[k] = e == ALL;
        mark(w, v);
    }
    return -1;
}

static nn_value follow_gradients(const written *w) {
    nn_value partly = -1;
    if (w->plan->options.loss >= 0) mark(w, w->plan->options.loss);
    for (int s = w->plan->n_forward; partly < 0 && s < w->plan->n_steps; s++) {
        if (w->plan->steps[s].backward) partly = step_gradients(w, &w->plan->steps[s]);
    }
    return partly;
}

/* Takes all values out of the block that v lies in. */
static void take_apart(nn_plan *plan, nn_value v) {
    const nn_value whole = plan->place[v].in;
    for (nn_value k = 0; k < plan->graph->n_values; k++) {
        if (plan->place[k].in == whole) plan->place[k] = (plan_place){k, 0};
    }
}

bool nn_plan_join(nn_plan *plan) {
    const nn_graph *g = plan->graph;
    size_t n = 0;
    written w = {.plan = plan, .first = calloc((size_t)g->n_values + 1, sizeof *w.first)};
    for (nn_value v = 0; w.first && v < g->n_values; v++) {
        plan->place[v] = (plan_place){v, 0};
        w.first[v] = n;
        n += (size_t)nn_last_dimension(&g->values[v].shape);
    }
    w.flags = calloc(n + 1, sizeof *w.flags);
    const bool memory = w.first && w.flags;
    if (memory) {
        place_inputs(plan);
        resolve_places(plan);
        for (nn_value v; (v = follow_gradients(&w)) >= 0;) {
            take_apart(plan, v);
            memset(w.flags, 0, n * sizeof *w.flags);
        }
    }
    free(w.first);
    free(w.flags);
    return memory;
}

bool nn_plan_overlaps(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    return plan->place[v].in != v || (info->source == NN_FROM_NODE && plan->graph->nodes[info->index].op->joins);
}
