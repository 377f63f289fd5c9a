/* Prodigy: Mishchenko and Defazio, "Prodigy: An Expeditiously Adaptive Parameter-Free Learner", arXiv 2306.06101, Algorithm 4,
 * as in the authors' package. d, an estimate of how far the solution is, is one number for all arrays of an update:
 *
 *   a = d lr, times sqrt(1 - beta2^t) / (1 - beta1^t) with use_bias_correction
 *   r = betad r + d / d0 a sum of g (p0 - p)        s = betad s + d / d0 a g        (safeguard_warmup: d in place of a in s)
 *   m = beta1 m + (1 - beta1) d g                   v = beta2 v + (1 - beta2) d^2 g^2
 *   p = p - a lambda p - a d / (sqrt(v) + d' eps) m / d        d' is the new d:
 *
 *   e = d_coef r / (sum of |s|)        d_max = max(d_max, e)        d' = min(d_max, growth_rate d), or d_max while d is d0
 *
 * p0 is the parameter at the start. The division by d makes a d / (sqrt(v) + d' eps) a learning rate like Adam's: statistics
 * show it, and the momental bound is on it. If lr is 0, m, v and s stay, and the sums leave the array out. The driver
 * (prodigy.c) puts d into the coefficients, and lets the formula run first with SUMS_FLAG set, which leaves the numbers to be
 * summed and stores nothing. */
#ifdef ADAMOD_RULE_NAME

RULE(prodigy)
DRIVER(prodigy)
OPTION(D0)
OPTION(D_COEF)
OPTION(GROWTH_RATE)
OPTION(BETA_D)
OPTION(SAFEGUARD_WARMUP)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(prodigy) {
    x.t = k->flag & 1 ? x.p : x.t; /* the first update of the array */
    const V along = x.g * (x.t - x.p);
    x.s = k->beta4 * x.s + k->beta4c * x.g;
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v) + k->eps);
    BOUND(u)
    x.p = x.p - k->low * x.p;
    x.p = x.p - x.step * (x.m * k->mscale);
    x.eta = k->flag & SUMS_FLAG ? k->weight * GREATER(x.s, -x.s) : x.eta;
    x.step = k->flag & SUMS_FLAG ? along : x.step;
    return x;
}
BOUNDABLE(prodigy, M | VV | S | T, U)

#elif defined(ADAMOD_RULE_COEFS)

/* Computed as if d and d0 were 1; prodigy.h puts d in. */
COEFS(prodigy) {
    const adamod__corrections x = adamod__corrections_of(o, info);
    const double corrected = o[OPT_BIAS_CORRECTION] != 0 ? sqrt(x.second) / x.first : 1;
    c->lr = o[OPT_LR] * corrected;
    c->beta4 = o[OPT_BETA_D] > 0 ? o[OPT_BETA_D] : sqrt(o[OPT_BETA2]);
    c->low = adamod__decay_of(o) * (o[OPT_DECAY] == DECAY_DECOUPLED ? corrected : 1);
    c->decays = 1;
    c->flag = info->t == 1;
    c->weight = 1;
    if (o[OPT_LR] == 0) {
        c->beta1 = c->beta2 = c->beta4 = 1;
        c->beta1c = c->beta2c = c->weight = 0;
    }
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(
    prodigy, .summary = "Adam that estimates its learning rate from how far it has come", .year = 2023,
    .source = "arXiv 2306.06101", .driver = &adamod__prodigy_driver, .couples_arrays = true,
    STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), STATE(2, "s"), STATE(3, "p0", .begins = ADAMOD_BEGINS_AS_PARAM),
           BOUND_STATE(4), STATE(5, "d", .shape = ADAMOD_SHAPE_SCALAR), STATE(6, "d_max", .shape = ADAMOD_SHAPE_SCALAR),
           STATE(7, "d_numerator", .shape = ADAMOD_SHAPE_SCALAR)),
    OPTIONS(
        OPTION_REAL(LR, "lr", 1, 0, INFINITY, 1, "factor of d in the learning rate; the authors advise 1"),
        OPTION_BETA1(0.9), OPTION_BETA2(0.999),
        OPTION_REAL(BETA_D, "beta_d", 0, 0, 1, 1, "decay of the sums that d is estimated from; 0: the root of beta2"),
        OPTION_EPS(1e-8), OPTION_REAL(D0, "d0", 1e-6, 1e-15, 1e6, 0, "initial d"),
        OPTION_REAL(D_COEF, "d_coef", 1, 1e-6, 1e6, 0, "factor of the estimate d; tune this rather than lr"),
        OPTION_REAL(GROWTH_RATE, "growth_rate", INFINITY, 1, INFINITY, 0,
                    "d grows by at most this factor in an update"),
        OPTION_SWITCH(BIAS_CORRECTION, "use_bias_correction", 0, 0, "1: Adam's correction of averages"),
        OPTION_SWITCH(SAFEGUARD_WARMUP, "safeguard_warmup", 0, 0, "1: leave lr out of the denominator of d's estimate"),
        OPTIONS_BOUND));

#endif
