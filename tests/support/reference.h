/* reference.h - every update rule of the library once more, in plain double arithmetic, for the tests.
 *
 * Written from the papers and the published programs, independently of the library: one function for each rule, one
 * call for each tensor and step, the formula as it is printed, powers by pow(). Slow, and meant to be read. What the
 * sources disagree about is in docs/optimizers.md.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_REFERENCE_H
#define ADAMOD_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

/* Values of flavour and decay. */
enum { REF_PAPER = 0, REF_PUBLISHED = 1, REF_KERAS = 2, REF_ADAMD = 3 };
enum { REF_DECAY_NONE = 0, REF_DECAY_L2 = 1, REF_DECAY_DECOUPLED = 2, REF_DECAY_INDEPENDENT = 3 };

/* All options of all rules, by the library's names: real numbers, and whole ones or choices. A rule reads its own and the
 * common ones. */
/* clang-format off */
#define REF_OPTIONS(REAL, WHOLE) \
    REAL(lr) REAL(beta1) REAL(beta2) REAL(beta3) REAL(eps) REAL(weight_decay) REAL(momentum) REAL(dampening) \
    REAL(lr_decay) REAL(initial) REAL(alpha) REAL(rho) REAL(final_lr) REAL(gamma) REAL(eps1) REAL(eps2) \
    REAL(clip_threshold) REAL(decay_rate) REAL(momentum_decay) REAL(beta_slow) REAL(beta_diff) REAL(r) \
    REAL(weight_lr_power) REAL(d0) REAL(d_coef) REAL(growth_rate) REAL(beta_d) REAL(ns_a) REAL(ns_b) REAL(ns_c) \
    REAL(adamw_lr) REAL(adamw_beta1) REAL(adamw_beta2) REAL(adamw_eps) REAL(clip_value) REAL(grad_scale) \
    WHOLE(nesterov) WHOLE(ns_steps) WHOLE(adjust_lr) WHOLE(use_muon) WHOLE(centered) WHOLE(window) \
    WHOLE(relative_step) WHOLE(bias_correction) WHOLE(maximize) WHOLE(scale_parameter) WHOLE(warmup_init) \
    WHOLE(decay) WHOLE(flavour) WHOLE(rectify) WHOLE(clip) WHOLE(alpha_warmup) WHOLE(beta_slow_warmup) \
    WHOLE(warmup_steps) WHOLE(bs) WHOLE(use_bias_correction) WHOLE(safeguard_warmup) WHOLE(bound) WHOLE(skip_idle) WHOLE(cautious)
/* clang-format on */
typedef struct ref_options {
#define REF_REAL(name) double name;
#define REF_WHOLE(name) int name;
    REF_OPTIONS(REF_REAL, REF_WHOLE)
#undef REF_REAL
#undef REF_WHOLE
    double base_lr;  /* lr without its schedule */
    int spatial_max; /* the option spatial */
    double factor;   /* lamb, prodigy (its d): instead of its own, unless 0 */
    int magnitudes;  /* gradients are magnitudes, and so are their differences */
} ref_options;

/* Set an option by the library's name, from a number or from text; false if there is none of that name. */
bool ref_set(ref_options *o, const char *name, double value);
bool ref_set_text(ref_options *o, const char *name, const char *text);
/* Option number i, by the library's name, NULL past the end, and its value. spatial is not among them. */
const char *reference_option(int i);
double reference_value(const ref_options *o, int i);

/* The defaults of a rule. Options the rule does not read are zero. The name must be one of ref_rule_name's. */
void ref_defaults(const char *rule, ref_options *o);

/* The rules by index; NULL past the end. */
const char *ref_rule_name(int index);

/* The state of one tensor. ndim 0 is a scalar. Which states exist follows from the options given here (momentum,
 * centered, window, spatial_max, adafactor's beta1 > 0) and stays as it is. NULL: no such rule, or no memory. */
typedef struct ref_state ref_state;
ref_state *ref_create(const char *rule, const ref_options *o, int ndim, const int64_t *shape);
void ref_free(ref_state *s);

/* One update. The options may differ from step to step, as schedules make them.
 *
 *   g = grad * grad_scale;  maximize: g = -g;  g clamped to [-clip_value, clip_value];  l2: g += weight_decay * p
 *   decoupled: p -= lr * weight_decay * p;  independent: p -= weight_decay * p;  then the rule
 *
 * adafactor's decoupled decay has its own step size in place of lr. */
void ref_step(ref_state *s, double *param, const double *grad, const ref_options *o);

/* A state by PyTorch's name ("exp_avg"), or NULL if this tensor has none of that name. count may be NULL.
 * adashift's grad_queue is a ring of window gradients: after step t, g_k with t - window < k <= t is number
 * (k - 1) mod window. exp_avg_sq of adashift is one number when spatial_max is set. */
const double *ref_get(const ref_state *s, const char *state_name, int64_t *count);

/* By which a step was multiplied because of sums over the tensor: lamb, stableadamw; prodigy: the new d. */
double ref_factor(const ref_state *s);

/* Updates done. */
int64_t ref_steps(const ref_state *s);

#endif
