/* Reports the gradients that a backward pass has finished: stretches of the parameters' gradients, each once no
 * later step of the pass writes there. */
#include "core/error.h"
#include "nn/plan.h"

#include <stdlib.h>
#include <string.h>

/* The last step that writes a parameter's gradient: one that reads it, or its pair. */
static int nn_last_writer(const nn_plan *plan, int param) {
    const nn_graph *g = plan->graph;
    int last = 0;
    for (int s = plan->n_forward; s < plan->n_steps; s++) {
        const plan_step *step = &plan->steps[s];
        for (int k = 0; step->backward && k < step->node->n_inputs; k++) {
            const nn_value v = step->node->input[k];
            if (v < 0 || g->values[v].source != NN_FROM_PARAM || g->values[v].index != param) continue;
            const int writes = step->paired_in > s ? step->paired_in : s;
            if (writes > last) last = writes;
        }
    }
    return last;
}

static int nn_compare_stretches(const void *a, const void *b) {
    const plan_stretch *x = a, *y = b;
    if (x->ready != y->ready) return x->ready < y->ready ? -1 : 1;
    return x->first > y->first ? -1 : x->first < y->first; /* a pass goes from the end to the beginning */
}

adamod_status nn_plan_watch(nn_plan *plan, int64_t numbers, nn_gradient_ready *ready, void *context) {
    const nn_params *p = plan->graph->params;
    plan_watch w = {.ready = ready, .context = context};
    const int64_t n = ready ? (p->count + numbers - 1) / numbers : 0;
    if (n > 0) w.list = calloc((size_t)n, sizeof *w.list);
    if (n > 0 && !w.list) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the stretches of a plan");
    w.n = (int)n;
    for (int i = 0; i < w.n; i++) {
        const int64_t first = i * numbers, left = p->count - first;
        w.list[i] = (plan_stretch){first, left < numbers ? left : numbers, 0};
    }
    for (int i = 0; w.n > 0 && i < p->n; i++) {
        const int last = nn_last_writer(plan, i);
        const int64_t end = p->list[i].offset + p->list[i].count;
        for (int64_t k = p->list[i].offset / numbers; k * numbers < end; k++) {
            if (last > w.list[k].ready) w.list[k].ready = last;
        }
    }
    if (w.n > 0) qsort(w.list, (size_t)w.n, sizeof *w.list, nn_compare_stretches);
    free(plan->watch.list);
    plan->watch = w;
    return ADAMOD_OK;
}

/* Sums left for the end of the pass may belong to such a stretch. */
void nn_plan_tell(nn_plan *plan, int step) {
    plan_watch *w = &plan->watch;
    if (w->told == w->n || w->list[w->told].ready > step) return;
    if (plan->on_device) plan->f->sum(plan->on_device->device, plan->sums.count, plan->sums.list);
    plan->sums.count = 0;
    for (; w->told < w->n && w->list[w->told].ready <= step; w->told++)
        w->ready(w->context, w->list[w->told].first, w->list[w->told].count);
}

void nn_plan_tell_all(nn_plan *plan) {
    plan->watch.told = 0;
    for (int i = 0; i < plan->watch.n; i++)
        plan->watch.ready(plan->watch.context, plan->watch.list[i].first, plan->watch.list[i].count);
}

/* ---- norms of several processes ---- */

adamod_status nn_plan_sync(nn_plan *plan, nn_add_up *add, void *context, bool waits, bool *any) {
    *any = false;
    for (int s = 0; s < plan->n_steps; s++) {
        nn_sync *sync = &plan->steps[s].sync;
        if (!plan->steps[s].node->synced) continue;
        *any = true;
        sync->add_up = add;
        sync->context = context;
    }
    plan->unrecorded = *any && waits;
    if (!*any || (plan->on_device ? plan->options.synced : strcmp(plan->options.backend, "cpu") == 0)) return ADAMOD_OK;
    return adamod__fail(ADAMOD_ERROR_NAME, "backend %s has no batch norms of several processes", plan->options.backend);
}

/* ---- running statistics of several processes ---- */

static int64_t nn_count_running(const plan_step *step, int output) {
    const nn_array *a = &step->call.output[output];
    const bool runs = (step->node->op->running >> output & 1) && !step->node->synced;
    return runs ? a->rows * a->cols : 0;
}

static int64_t nn_count_step(const plan_step *step) {
    int64_t n = 0;
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) n += nn_count_running(step, k);
    return n;
}

int64_t nn_plan_defers(const nn_plan *plan) {
    int64_t n = 0;
    for (int s = 0; s < plan->n_forward; s++) n += nn_count_step(&plan->steps[s]);
    return n;
}

void nn_plan_defer(nn_plan *plan, double *added) {
    for (int s = 0; s < plan->n_forward; s++) {
        const int64_t n = nn_count_step(&plan->steps[s]);
        plan->steps[s].sync.added = n > 0 ? added : NULL;
        if (added) added += n;
    }
}

void nn_plan_take(nn_plan *plan, const double *added) {
    for (int s = 0; s < plan->n_forward; s++) {
        const nn_call *c = &plan->steps[s].call;
        for (int k = 0; k < NN_MAX_OUTPUTS; k++) {
            const int64_t n = nn_count_running(&plan->steps[s], k);
            float *state = c->output[k].data;
            for (int64_t i = 0; i < n; i++) state[i] = nn_run(state[i], plan->steps[s].node->momentum, added[i]);
            added += n;
        }
    }
}
