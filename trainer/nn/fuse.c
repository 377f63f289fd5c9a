/* Fuses steps, in training on a device, by what their kernels say they can do (nn_fusion).
 *
 *   moments         mean and variance of a value's channels: the step that writes the value finds them, for the many that
 *                   read it in a block of joined values
 *   linear parts    of the gradient of such a block: a + b x for each channel. All readers' parts add up to one, which the
 *                   step that made the channel applies once
 *   whole ops       a step does the work of the one before it, whose output is then never written
 *   forward passes  a step does the forward work of the one behind it */
#include "nn/plan.h"
#include "core/error.h"

#include <stdlib.h>

static bool lies_in(const nn_plan *plan, nn_value v, nn_value whole) { return v >= 0 && plan->place[v].in == whole; }

/* Whether an op that joins has nothing to copy. */
static bool is_joined(const nn_plan *plan, const nn_node *node) {
    bool joined = node->op->joins;
    for (int k = 0; joined && k < node->n_inputs; k++)
        joined = plan->place[node->input[k]].in == plan->place[node->output[0]].in;
    return joined;
}

static nn_channel_pairs pairs_of(const nn_plan *plan, float *first, nn_value v) {
    const plan_place *p = &plan->place[v];
    return (nn_channel_pairs){first + p->offset, nn_last_dimension(&plan->graph->values[p->in].shape)};
}

/* Whether a step writes no part of a block, or only as output 0 and with kernels that can do something for it. */
static bool writes_with(const nn_plan *plan, const plan_step *step, nn_value whole, bool (*can)(const nn_call *c)) {
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
        if (lies_in(plan, step->node->output[k], whole) && (k > 0 || !can || !can(&step->call))) return false;
    }
    return true;
}

/* ---- moments ---- */

/* Whether all steps that write a part of a block can leave its moments, and some step wants them. */
static bool moments_fit(const nn_plan *plan, nn_value whole) {
    bool wanted = false;
    for (int s = 0; s < plan->n_forward; s++) {
        const plan_step *step = &plan->steps[s];
        if (is_joined(plan, step->node)) continue;
        wanted = wanted || (lies_in(plan, step->node->input[0], whole) && step->fusion.takes_moments);
        if (!writes_with(plan, step, whole, step->fusion.gives_moments)) return false;
    }
    return wanted;
}

static void tell_moments(nn_plan *plan, nn_value whole, float *first) {
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const nn_value x = step->node->input[0], y = step->node->output[0];
        if (is_joined(plan, step->node)) continue;
        if (lies_in(plan, x, whole) && step->fusion.takes_moments) step->fused.moments = pairs_of(plan, first, x);
        if (!step->backward && lies_in(plan, y, whole)) step->fused.output_moments = pairs_of(plan, first, y);
    }
}

/* ---- linear parts of gradients ---- */

/* Whether all steps that write the gradient leave the part, and all that read it apply it. */
static bool linear_fits(const nn_plan *plan, nn_value whole) {
    if (!nn_plan_overlaps(plan, whole) || plan->options.loss == whole) return false;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        const nn_fusion *fusion = &step->fusion;
        if (!step->backward || is_joined(plan, step->node)) continue;
        for (int k = 0; k < step->node->n_inputs; k++) {
            if (lies_in(plan, step->node->input[k], whole) && (k > 0 || !fusion->leaves_linear)) return false;
        }
        if (!writes_with(plan, step, whole, fusion->takes_linear)) return false;
    }
    return true;
}

static void tell_linear(nn_plan *plan, nn_value whole, float *first) {
    for (int s = 0; s < plan->n_steps; s++) {
        plan_step *step = &plan->steps[s];
        const nn_value x = step->node->input[0], y = step->node->output[0];
        if (is_joined(plan, step->node)) continue;
        if (lies_in(plan, x, whole)) step->fused.linear = pairs_of(plan, first, x);
        if (step->backward && lies_in(plan, y, whole)) step->fused.output_linear = pairs_of(plan, first, y);
    }
}

/* ---- all blocks ---- */

/* Whether a value has memory of its own, and some of it is read by kernels that take moments. */
static bool may_have_pairs(const nn_plan *plan, nn_value v) {
    bool may = false;
    if (plan->graph->values[v].source != NN_FROM_NODE || plan->place[v].in != v) return false;
    for (int s = 0; !may && s < plan->n_forward; s++)
        may = plan->steps[s].fusion.takes_moments && lies_in(plan, plan->steps[s].node->input[0], v);
    return may;
}

/* Allocates both kinds of pairs for every value that may have them. room[v]: the place of value v's, in floats; -1:
 * none. */
static adamod_status make_room(nn_plan *plan, int64_t *room) {
    const nn_graph *g = plan->graph;
    void *memory = NULL;
    int64_t floats = 0;
    for (nn_value v = 0; v < g->n_values; v++) {
        room[v] = may_have_pairs(plan, v) ? floats : -1;
        if (room[v] >= 0) floats += 4 * nn_last_dimension(&g->values[v].shape);
    }
    if (!floats) return ADAMOD_OK;
    plan->pairs_bytes = (size_t)floats * sizeof(float);
    const adamod_status status = plan->f->allocate(plan->on_device->device, &memory, plan->pairs_bytes);
    plan->pairs = memory;
    return status;
}

/* Assigns moments and linear parts to the values that fit now; earlier assignments stay. */
static void assign_pairs(nn_plan *plan, const int64_t *room) {
    for (nn_value v = 0; v < plan->graph->n_values; v++) {
        if (room[v] < 0) continue;
        float *const first = plan->pairs + room[v];
        if (moments_fit(plan, v)) tell_moments(plan, v, first);
        if (linear_fits(plan, v)) tell_linear(plan, v, first + 2 * nn_last_dimension(&plan->graph->values[v].shape));
    }
}

/* ---- ops inside others ---- */

static void done_elsewhere(const nn_call *c) { (void)c; }

/* Whether nothing but one input of one step reads a value. */
static bool is_read_once(const nn_plan *plan, nn_value v) {
    const nn_value_info *info = &plan->graph->values[v];
    int readers = 0;
    for (int i = 0; i < plan->n_forward; i++) {
        for (int k = 0; k < plan->steps[i].node->n_inputs; k++) readers += plan->steps[i].node->input[k] == v;
    }
    return readers == 1 && !info->output && !info->kept && v != plan->options.loss;
}

/* Whether step s is the only one to read the output of the step before it. */
static bool follows_alone(const nn_plan *plan, int s) {
    const nn_value v = plan->steps[s].node->input[0];
    if (s < 1 || v < 0 || plan->steps[s - 1].node->output[0] != v || plan->place[v].in != v) return false;
    return is_read_once(plan, v);
}

static int backward_of(const nn_plan *plan, const nn_node *node) {
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        if (plan->steps[s].backward && plan->steps[s].node == node) return s;
    }
    return -1;
}

static bool can_absorb(const nn_plan *plan, int s, int maker) {
    const plan_step *step = &plan->steps[s], *other = &plan->steps[maker];
    if (plan->options.synced && other->node->synced) return false;
    return step->fusion.absorbs && step->fusion.absorbs(&step->call, other->node->op->name, &other->call);
}

static void absorb(nn_plan *plan, int s, int maker) {
    plan_step *other = &plan->steps[maker];
    plan->steps[s].fused.maker = &other->call;
    other->done_in = s;
    other->kernels = (nn_kernels){.forward = done_elsewhere, .backward = done_elsewhere};
}

static void absorb_makers(nn_plan *plan) {
    for (int s = 1; s < plan->n_forward; s++) {
        if (!plan->steps[s].fusion.absorbs || plan->steps[s].fused.maker || !follows_alone(plan, s)) continue;
        const int back = backward_of(plan, plan->steps[s].node);
        if (back < 0 || back + 1 >= plan->n_steps || plan->steps[back + 1].node != plan->steps[s - 1].node) continue;
        if (!can_absorb(plan, s, s - 1) || !can_absorb(plan, back, back + 1)) continue;
        absorb(plan, s, s - 1);
        absorb(plan, back, back + 1);
    }
}

/* ---- forward passes inside others ---- */

static bool reads(const plan_step *step, nn_value v) {
    bool found = false;
    for (int k = 0; k < step->node->n_inputs; k++) found = found || step->node->input[k] == v;
    return found;
}

/* A node that backward runs again must not be fused: its bits must be those of its own kernels. */
static bool can_finish(const nn_plan *plan, const plan_step *step, const plan_step *next) {
    const nn_value v = step->node->output[0];
    if (!step->fusion.finishes || step->done_in || next->done_in || next->fused.maker) return false;
    if (next->node->recompute || !reads(next, v) || !is_read_once(plan, v)) return false;
    return step->fusion.finishes(&step->call, next->node->op->name, &next->call);
}

static void finish_readers(nn_plan *plan) {
    for (int s = 0; s + 1 < plan->n_forward; s++) {
        plan_step *step = &plan->steps[s], *next = &plan->steps[s + 1];
        if (!can_finish(plan, step, next)) continue;
        step->fused.reader = &next->call;
        next->kernels.forward = done_elsewhere;
    }
}

/* Assigns pairs and absorbs makers twice: an op that has absorbed another may leave moments that it could not leave
 * before, so that further ops can be absorbed. */
adamod_status nn_plan_fuse(nn_plan *plan) {
    if (!plan->on_device || !plan->options.training) return ADAMOD_OK;
    int64_t *room = calloc((size_t)plan->graph->n_values + 1, sizeof *room);
    adamod_status status =
        room ? make_room(plan, room) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a plan's values");
    if (!status && plan->pairs) {
        assign_pairs(plan, room);
        absorb_makers(plan);
        assign_pairs(plan, room);
        absorb_makers(plan);
    }
    if (!status) finish_readers(plan);
    free(room);
    return status;
}
