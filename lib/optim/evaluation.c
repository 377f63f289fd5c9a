/* Evaluation of schedule-free rules: their averaged weights x, while steps start from y. */
#include "optim/optim.h"
#include "optim/optimizer.h"
#include "optim/update.h"

#include <stdlib.h>
#include <string.h>

static size_t adamod__param_bytes(const adamod_span *x) { return (size_t)x->count * adamod__type_size(x->param_type); }

void adamod__forget_kept(adamod_optimizer *opt) {
    for (int64_t i = 0; opt->kept && i < opt->n_kept; i++) free(opt->kept[i]);
    free(opt->kept);
    opt->kept = NULL;
}

/* Copies an array to host memory; free *copy. */
static adamod_status adamod__fetched(const adamod_optimizer *opt, const void *array, size_t bytes, void **copy) {
    *copy = malloc(bytes + 1);
    if (!*copy) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %zu bytes of weights", bytes);
    if (opt->device) return adamod__device_out(opt, *copy, array, bytes);
    memcpy(*copy, array, bytes);
    return ADAMOD_OK;
}

static adamod_status adamod__store(const adamod_optimizer *opt, void *array, const void *from, size_t bytes) {
    if (opt->device) return adamod__device_in(opt, array, from, bytes);
    memcpy(array, from, bytes);
    return ADAMOD_OK;
}

/* x = y + weight (z - y) of n numbers, into out in the parameter's type. */
static void adamod__mix_block(const adamod_optimizer *opt, const tensor *t, const void *y, adamod_type y_type,
                              const void *z, double weight, int64_t first, size_t n, void *out) {
    const adamod_type compute = adamod__compute_type(t->span.param_type);
    double y_room[BLOCK], z_room[BLOCK], mixed[BLOCK];
    const void *a = adamod__read_block(opt->kernels, compute, y, y_type, first, n, y_room);
    const void *b = adamod__read_block(opt->kernels, compute, z, t->span.state_type, first, n, z_room);
    for (size_t i = 0; i < n; i++) {
        if (compute == ADAMOD_F64) {
            const double from = ((const double *)a)[i];
            mixed[i] = from + weight * (((const double *)b)[i] - from);
        } else {
            const float from = ((const float *)a)[i];
            ((float *)mixed)[i] = from + (float)weight * (((const float *)b)[i] - from);
        }
    }
    if (t->span.param_type == compute) {
        const size_t size = adamod__type_size(compute);
        memcpy((char *)out + (size_t)first * size, mixed, n * size);
    } else {
        adamod__write_block(opt->kernels, compute, out, t->span.param_type, first, n, mixed, NULL);
    }
}

double adamod__evaluation_weight(const adamod_optimizer *opt) {
    return opt->rule->averages ? 1 - 1 / opt->groups[0].options[OPT_BETA1] : 0;
}

/* Computes x of a parameter in new memory; kept is a copy of the parameter. */
static adamod_status adamod__mixed(const adamod_optimizer *opt, const tensor *t, const void *kept, void **out) {
    const adamod_span *x = &t->span;
    const double weight = 1 - 1 / opt->groups[t->group].options[OPT_BETA1];
    void *master = NULL, *z = NULL;
    *out = malloc(adamod__param_bytes(x) + 1);
    adamod_status status = *out ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for weights");
    if (!status) status = adamod__fetched(opt, x->state[0], t->state_bytes[0], &z);
    if (!status && x->master) {
        status = adamod__fetched(opt, x->master, (size_t)x->count * sizeof(float), &master);
    }
    for (int64_t at = 0; !status && at < x->count; at += BLOCK) {
        const size_t n = adamod__block_length(x->count, at);
        adamod__mix_block(opt, t, master ? master : kept, master ? ADAMOD_F32 : x->param_type, z, weight, at, n, *out);
    }
    free(master);
    free(z);
    return status;
}

/* Computes all averages before it changes the first parameter. */
static adamod_status adamod__begin_evaluation(adamod_optimizer *opt) {
    adamod_status status = adamod__refresh(opt);
    void **mixed = calloc((size_t)opt->n + 1, sizeof *mixed);
    opt->kept = calloc((size_t)opt->n + 1, sizeof *opt->kept);
    opt->n_kept = opt->n;
    if (!status && (!mixed || !opt->kept)) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for weights");
    for (int64_t i = 0; !status && i < opt->n; i++) {
        const tensor *t = &opt->tensors[i];
        if (t->span.step == 0 || t->span.count == 0) continue; /* there is no z yet */
        status = adamod__fetched(opt, t->span.param, adamod__param_bytes(&t->span), &opt->kept[i]);
        if (!status) status = adamod__mixed(opt, t, opt->kept[i], &mixed[i]);
    }
    for (int64_t i = 0; !status && i < opt->n; i++) {
        const adamod_span *x = &opt->tensors[i].span;
        if (mixed[i]) status = adamod__store(opt, x->param, mixed[i], adamod__param_bytes(x));
    }
    for (int64_t i = 0; mixed && i < opt->n; i++) free(mixed[i]);
    free(mixed);
    if (status) adamod__forget_kept(opt);
    return status;
}

static adamod_status adamod__end_evaluation(adamod_optimizer *opt) {
    adamod_status status = ADAMOD_OK;
    for (int64_t i = 0; !status && i < opt->n_kept; i++) {
        const adamod_span *x = &opt->tensors[i].span;
        if (opt->kept[i]) status = adamod__store(opt, x->param, opt->kept[i], adamod__param_bytes(x));
    }
    if (!status) adamod__forget_kept(opt);
    return status;
}

adamod_status adamod__evaluates(const char *call) {
    return adamod__fail(ADAMOD_ERROR_ORDER,
                        "%s: the parameters are the ones to evaluate with: end the evaluation first", call);
}

adamod_status adamod_evaluation(adamod_optimizer *opt, int on) {
    if (!opt) return adamod__null_handle();
    if (!opt->rule->averages || (on != 0) == (opt->kept != NULL)) return ADAMOD_OK;
    return on ? adamod__begin_evaluation(opt) : adamod__end_evaluation(opt);
}
