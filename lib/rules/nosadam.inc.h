/* NosAdam: Huang, Wang, Dong, arXiv 1805.07557, with the authors' bias correction of m.
 *
 *   B_t = sum over k <= t of k^-gamma        beta2_t = B_{t-1} / B_t
 *   m = beta1 m + (1 - beta1) g              v = beta2_t v + (1 - beta2_t) g^2
 *   p = p - lr / (sqrt(v) + eps) m / (1 - beta1^t) */
#ifdef ADAMOD_RULE_NAME

RULE(nosadam)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(nosadam) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v) + k->eps);
    BOUND(s)
    x.p = x.p - x.step * (x.m * k->mscale);
    return x;
}
BOUNDABLE(nosadam, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(nosadam) {
    const double weight = pow((double)info->t, -o[OPT_GAMMA]);
    c->beta2c = weight / adamod__power_sum(info->t, o[OPT_GAMMA]);
    c->beta2 = 1 - c->beta2c;
    c->mscale = o[OPT_BIAS_CORRECTION] != 0 ? 1 / (1 - pow(o[OPT_BETA1], (double)info->t)) : 1;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(
    nosadam, .summary = "Adam that weighs past gradients more than new ones in v", .year = 2018,
    .source = "arXiv 1805.07557", .q8 = true, STATES(ADAM_STATES),
    OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9),
            OPTION_REAL(GAMMA, "gamma", 0.1, 0, 10, 0, "update k weighs k^-gamma in v: more of the past than Adam"),
            OPTION_EPS(1e-8),
            OPTION_SWITCH(BIAS_CORRECTION, "bias_correction", 1, 0, "0: m is not corrected, as the paper writes it"),
            OPTIONS_BOUND));

#endif
