/* load_model.h - the optimizers whose state files fuzz_load loads and seed_corpus writes: small ones, so that a file has
 * few bytes, of rules and types whose states differ.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_FUZZ_LOAD_MODEL_H
#define ADAMOD_FUZZ_LOAD_MODEL_H

#include "adamod.h"

#include <stdlib.h>

static const struct {
    const char *rule, *option, *value; /* an option that makes its states others */
    adamod_type type;
} load_models[] = {
    {"adamod", "state_type", "auto", ADAMOD_F32},  {"adamod", "state_type", "q8", ADAMOD_F32},
    {"adamod", "state_type", "auto", ADAMOD_BF16}, {"sgd", "momentum", "0.9", ADAMOD_F64},
    {"adafactor", "lr", "0.01", ADAMOD_F32},       {"adashift", "lr", "0.01", ADAMOD_F16},
};
enum { LOAD_MODELS = sizeof load_models / sizeof *load_models, LOAD_MOST = 6 };

typedef struct load_model {
    adamod_optimizer *opt;
    double p[2][LOAD_MOST], g[2][LOAD_MOST]; /* room for the largest type; zeros are zeros in each */
} load_model;

static void load_require(int condition) {
    if (!condition) abort();
}

/* A matrix and a single number, after one update. */
static void load_model_make(load_model *m, int which) {
    static const int64_t shape[2] = {2, 3};
    *m = (load_model){0};
    load_require(adamod_create(&m->opt, load_models[which].rule) == ADAMOD_OK);
    load_require(adamod_set(m->opt, "threads", 1) == ADAMOD_OK);
    load_require(adamod_set_text(m->opt, load_models[which].option, load_models[which].value) == ADAMOD_OK);
    for (int i = 0; i < 2; i++) {
        const adamod_type type = load_models[which].type;
        adamod_tensor t = {.name = i ? "b" : "w", .param = m->p[i], .grad = m->g[i], .ndim = i ? 0 : 2};
        t.param_type = t.grad_type = type;
        for (int d = 0; d < t.ndim; d++) t.shape[d] = shape[d];
        for (int k = 0; k < (i ? 1 : LOAD_MOST); k++) {
            if (type == ADAMOD_F64) m->g[i][k] = 1.0 + k;
            else if (type == ADAMOD_F32) ((float *)m->g[i])[k] = 1.0f + (float)k;
            else ((uint16_t *)m->g[i])[k] = (uint16_t)(0x3c00 + 64 * k); /* some number of either type */
        }
        load_require(adamod_add_tensor(m->opt, 0, &t, NULL) == ADAMOD_OK);
    }
    load_require(adamod_step(m->opt) == ADAMOD_OK);
}

#endif
