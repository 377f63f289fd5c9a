/* AdaBelief: Zhuang et al., "AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed Gradients", arXiv
 * 2010.07468, as in the authors' package: eps is added to v in every update, and rectify is RAdam's.
 *
 *   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) (g - m)^2 + eps
 *   rectify = 0   p = p - lr / (sqrt(v / (1 - beta2^t)) + eps) m / (1 - beta1^t)
 *   rectify = 1   rho and r as in radam.inc.h, but from rho_t >= 5 on
 *                 p = p - lr r sqrt(1 - beta2^t) / (sqrt(v) + eps) m / (1 - beta1^t), before that lr m / (1 - beta1^t) */
#ifdef ADAMOD_RULE_NAME

RULE(adabelief)
OPTION(RECTIFY)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adabelief) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    const V surprise = x.g - x.m;
    x.v = k->beta2 * x.v + k->beta2c * surprise * surprise + k->eps;
    x.eta = k->flag ? k->lr / (SQRT(x.v * k->vscale) + k->eps) : (V){0} + k->lr;
    BOUND_SINCE(s, SEEN(s))
    x.p = x.p - x.step * (x.m * k->mscale);
    return x;
}
BOUNDABLE(adabelief, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adabelief) {
    const double t = (double)info->t, beta2 = o[OPT_BETA2];
    const adamod__corrections x = adamod__corrections_of(o, info);
    const double rho = 2 / (1 - beta2) - 1, rho_t = rho - 2 * t * pow(beta2, t) / x.second;
    c->mscale = 1 / x.first;
    c->flag = o[OPT_RECTIFY] == 0 || rho_t >= 5;
    if (o[OPT_RECTIFY] == 0) {
        c->vscale = 1 / x.second;
    } else if (c->flag) {
        c->lr *= sqrt(x.second * (rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t));
    }
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adabelief, .summary = "divides by how far gradients were from their average", .year = 2020,
                .source = "arXiv 2010.07468", .q8 = true,
                STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_var"), BOUND_STATE(2)),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9),
                        OPTION_DECAY_RATE_OF(BETA2, "beta2", 0.999, "decay of the average of squared surprises"),
                        OPTION_DIVISOR(EPS, "eps", 1e-16, "added to the divisor, and to the average in every update"),
                        OPTION_SWITCH(RECTIFY, "rectify", 1, 0, "1: early learning rates are rectified, as RAdam's"),
                        OPTIONS_BOUND));

#endif
