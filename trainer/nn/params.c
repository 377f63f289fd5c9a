/* Parameters and persistent states on the host: names, memory, initial values. */
#include "support/random.h"
#include "support/array.h"
#include "support/fingerprint.h"
#include "support/zeros.h"
#include "nn/device_params.h"
#include "nn/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARAM_ALIGN = 128 }; /* numbers: 256 bytes as bf16, the alignment that the fastest products on a device need */

nn_params *nn_params_create(void) { return calloc(1, sizeof(nn_params)); }

void nn_params_free(nn_params *p) {
    if (!p) return;
    for (int i = 0; i < p->n; i++) free(p->list[i].name);
    for (int i = 0; i < p->n_states; i++) free(p->states[i].name);
    free(p->list);
    free(p->states);
    zeros_free(p->state_data);
    zeros_free(p->data);
    zeros_free(p->grad);
    nn_device_params_free(p->on_device);
    free(p);
}

static nn_param *nn_find_param(nn_param *list, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i].name, name) == 0) return &list[i];
    }
    return NULL;
}

nn_param *nn_params_find(const nn_params *p, const char *name) { return nn_find_param(p->list, p->n, name); }

nn_param *nn_params_find_state(const nn_params *p, const char *name) {
    return nn_find_param(p->states, p->n_states, name);
}

int64_t nn_params_total(const nn_params *p) {
    int64_t total = 0;
    for (int i = 0; i < p->n; i++) total += p->list[i].count;
    return total;
}

static void nn_fill(const nn_param *p, float *data, uint64_t seed) {
    const uint64_t key = nn_key(seed, 0, fingerprint_names(FINGERPRINT_NAMES, p->name, strlen(p->name)));
    double bound = p->init.scale;
    if (p->init.kind == NN_XAVIER) bound = sqrt(6.0 / (double)(p->shape[0] + p->count / p->shape[0]));
    if (p->init.kind == NN_FAN_IN) bound = 1 / sqrt((double)(p->count / p->shape[0]));
    for (int64_t i = 0; i < p->count; i++) {
        switch (p->init.kind) {
            case NN_ZEROS: data[i] = 0; break;
            case NN_ONES: data[i] = 1; break;
            case NN_NORMAL: data[i] = (float)(p->init.scale * nn_normal(key, (uint64_t)i)); break;
            case NN_UNIFORM:
            case NN_XAVIER:
            case NN_FAN_IN: data[i] = (float)((2 * nn_uniform(key, (uint64_t)i) - 1) * bound); break;
            case NN_UNIT: data[i] = (float)(nn_uniform(key, (uint64_t)i) * bound); break;
        }
    }
}

/* Room for count numbers. */
static float *nn_numbers_of(int64_t count) { return zeros_new(((size_t)count + PARAM_ALIGN) * sizeof(float), true); }

adamod_status nn_params_allocate_zeros(nn_params *p) {
    if (p->data) return ADAMOD_ERROR_ORDER;
    float *data = nn_numbers_of(p->count), *grad = nn_numbers_of(p->count);
    float *states = p->n_states ? nn_numbers_of(p->state_count) : NULL;
    if (!data || !grad || (p->n_states && !states)) {
        zeros_free(data);
        zeros_free(grad);
        zeros_free(states);
        return ADAMOD_ERROR_MEMORY;
    }
    p->data = data;
    p->grad = grad;
    p->state_data = states;
    return ADAMOD_OK;
}

adamod_status nn_params_allocate(nn_params *p, uint64_t seed) {
    const adamod_status status = nn_params_allocate_zeros(p);
    for (int i = 0; !status && i < p->n; i++) nn_fill(&p->list[i], p->data + p->list[i].offset, seed);
    for (int i = 0; !status && i < p->n_states; i++) nn_fill(&p->states[i], p->state_data + p->states[i].offset, seed);
    return status;
}

nn_param *nn_params_add(nn_param **list, int *n, int64_t *count, const nn_param *like) {
    if (!ARRAY_EXTEND(*list, *n)) return NULL;
    nn_param *x = &(*list)[*n];
    *x = *like;
    x->name = strdup(like->name);
    x->count = 1;
    x->offset = *count;
    if (!x->name) return NULL;
    for (int d = 0; d < x->ndim; d++) x->count *= x->shape[d];
    ++*n;
    *count += (x->count + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    return x;
}
