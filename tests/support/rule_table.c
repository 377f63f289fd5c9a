/* reference_defaults.c - what options are where nothing is said, as papers and programs have it. See reference.h.
 *
 * SPDX-License-Identifier: MIT
 */
#include "reference.h"

#include <math.h>
#include <string.h>

/* adamod always, the others with the option. */
static int has_bound(const char *rule) {
    static const char *const without[] = {"sgd", "adabound", "amsbound", "lion", "schedulefree_sgd", "muon", "soap"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (!strcmp(rule, without[i])) return 0;
    return 1;
}

void ref_defaults(const char *rule, ref_options *o) {
    memset(o, 0, sizeof *o);
    o->lr = 1e-3;
    o->clip_value = INFINITY;
    o->grad_scale = 1;
    o->decay = REF_DECAY_DECOUPLED;
    if (has_bound(rule)) o->beta3 = 0.999;
    if (!strcmp(rule, "sgd")) {
        o->lr = 1e-2;
        o->decay = REF_DECAY_L2;
    } else if (!strcmp(rule, "adagrad")) {
        o->lr = 1e-2;
        o->eps = 1e-10;
        o->decay = REF_DECAY_L2;
    } else if (!strcmp(rule, "rmsprop")) {
        o->lr = 1e-2;
        o->alpha = 0.99;
        o->eps = 1e-8;
        o->decay = REF_DECAY_L2;
    } else if (!strcmp(rule, "adadelta")) {
        o->lr = 1;
        o->rho = 0.9;
        o->eps = 1e-6;
        o->decay = REF_DECAY_L2;
    } else if (!strcmp(rule, "adafactor")) {
        o->eps1 = 1e-30;
        o->eps2 = 1e-3;
        o->clip_threshold = 1;
        o->decay_rate = 0.8;
        o->relative_step = 1;
        o->scale_parameter = 1;
    } else if (!strcmp(rule, "muon")) {
        o->base_lr = o->lr;
        o->momentum = 0.95;
        o->nesterov = 1;
        o->ns_steps = 5;
        o->ns_a = 3.4445;
        o->ns_b = -4.775;
        o->ns_c = 2.0315;
        o->eps = 1e-7;
        o->use_muon = 1;
        o->adamw_lr = 3e-4;
        o->adamw_beta1 = 0.9;
        o->adamw_beta2 = 0.95;
        o->adamw_eps = 1e-10;
    } else { /* the family of Adam */
        o->beta1 = 0.9;
        o->beta2 = 0.999;
        o->eps = 1e-8;
        if (!strcmp(rule, "soap")) {
            o->lr = 3e-3;
            o->beta1 = o->beta2 = 0.95;
            o->bias_correction = 1;
        }
        if (!strcmp(rule, "amsgrad")) {
            o->bias_correction = 1;
        } else if (!strcmp(rule, "adabound") || !strcmp(rule, "amsbound")) {
            o->final_lr = 0.1;
            o->base_lr = o->lr;
            o->gamma = 1e-3;
        } else if (!strcmp(rule, "adashift")) {
            o->eps = 1e-10;
            o->window = 10;
            o->spatial_max = 1;
        } else if (!strcmp(rule, "nosadam")) {
            o->beta2 = 0;
            o->gamma = 0.1;
            o->bias_correction = 1;
        } else if (!strcmp(rule, "lion")) {
            o->lr = 1e-4;
            o->beta2 = 0.99;
            o->eps = 0;
        } else if (!strcmp(rule, "nadam")) {
            o->lr = 2e-3;
            o->momentum_decay = 4e-3;
        } else if (!strcmp(rule, "adamax")) {
            o->lr = 2e-3;
        } else if (!strcmp(rule, "adabelief")) {
            o->eps = 1e-16;
            o->rectify = 1;
        } else if (!strcmp(rule, "adopt")) {
            o->beta2 = 0.9999;
            o->eps = 1e-6;
            o->clip = 1;
        } else if (!strcmp(rule, "ademamix")) {
            o->beta_slow = 0.9999;
            o->alpha = 2;
        } else if (!strncmp(rule, "schedulefree", 12)) {
            o->lr = 2.5e-3;
            o->weight_lr_power = 2;
            if (!strcmp(rule, "schedulefree_sgd")) o->lr = 1, o->beta2 = o->eps = 0;
        } else if (!strcmp(rule, "sophia")) {
            o->lr = 1e-4;
            o->beta1 = 0.965;
            o->beta2 = o->eps = 0;
            o->rho = 0.04;
            o->bs = 5120;
        } else if (!strcmp(rule, "lamb")) {
            o->eps = 1e-6;
            o->bias_correction = 1;
        } else if (!strcmp(rule, "stableadamw")) {
            o->beta2 = 0.99;
            o->eps = 1e-6;
        } else if (!strcmp(rule, "prodigy")) {
            o->lr = 1;
            o->d0 = 1e-6;
            o->d_coef = 1;
            o->growth_rate = INFINITY;
        } else if (!strcmp(rule, "adan")) {
            o->beta1 = 0.98;
            o->beta2 = 0.99;
            o->beta_diff = 0.92;
        }
    }
}
