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

#include <stdint.h>

/* Values of flavour and decay. */
enum { REF_PAPER = 0, REF_PUBLISHED = 1, REF_KERAS = 2, REF_ADAMD = 3 };
enum { REF_DECAY_NONE = 0, REF_DECAY_L2 = 1, REF_DECAY_DECOUPLED = 2, REF_DECAY_INDEPENDENT = 3 };

/* All options of all rules; a rule reads its own and the common ones. */
typedef struct ref_options {
    double lr, beta1, beta2, beta3, eps;
    double weight_decay;
    double momentum, dampening;                    /* sgd, rmsprop */
    double lr_decay, initial;                      /* adagrad */
    double alpha;                                  /* rmsprop */
    double rho;                                    /* adadelta */
    double final_lr, base_lr;                      /* adabound, amsbound; base_lr is lr without its schedule */
    double gamma;                                  /* adabound, amsbound, nosadam */
    double eps1, eps2, clip_threshold, decay_rate; /* adafactor */
    double momentum_decay;                         /* nadam */
    double beta_slow;                              /* ademamix, and alpha */
    double beta_diff;                              /* adan */
    double r, weight_lr_power;                     /* schedulefree */
    double d0, d_coef, growth_rate, beta_d;        /* prodigy */
    double clip_value, grad_scale;
    int flavour;                                          /* adamod, adam, amsgrad */
    double ns_a, ns_b, ns_c;                              /* muon, and eps of matrices */
    double adamw_lr, adamw_beta1, adamw_beta2, adamw_eps; /* muon's other tensors */
    int ns_steps, adjust_lr, use_muon;                    /* muon */
    int nesterov;                                         /* sgd, muon */
    int centered;                                         /* rmsprop */
    int window, spatial_max;                              /* adashift */
    int bias_correction;                                  /* amsgrad, nosadam */
    int relative_step, scale_parameter, warmup_init;      /* adafactor */
    int rectify;                                          /* adabelief */
    int clip;                                             /* adopt */
    int alpha_warmup, beta_slow_warmup;                   /* ademamix */
    int bs;                                               /* sophia, and rho */
    int use_bias_correction, safeguard_warmup;            /* prodigy */
    int warmup_steps;                                     /* schedulefree */
    double factor;                                        /* lamb, prodigy (its d): instead of its own, unless 0 */
    int magnitudes;                                       /* gradients are magnitudes, and so are their differences */
    int bound;                                            /* 0 none, 1 momental: of every rule that has it */
    int decay;                                            /* 0 none, 1 l2, 2 decoupled, 3 independent */
    int maximize;
} ref_options;

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
