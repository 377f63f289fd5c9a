/* AdaBound and AMSBound: Luo, Xiong, Liu, Sun, arXiv 1902.09843, as in the authors' package.
 *
 *   eta = lr sqrt(1 - beta2^t) / (1 - beta1^t) / (sqrt(v) + eps)        (AMSBound: the largest v so far)
 *   f = final_lr lr / base_lr                                           (final_lr follows the schedule of lr)
 *   p = p - min(max(eta, f (1 - 1 / (gamma t + 1))), f (1 + 1 / (gamma t))) m */
#ifdef ADAMOD_RULE_NAME

RULE(adabound)
RULE(amsbound)
OPTION(FINAL_LR)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adabound) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v) + k->eps);
    x.step = LESSER((V){0} + k->high, GREATER((V){0} + k->low, x.eta));
    x.p = x.p - x.step * x.m;
    return x;
}
ONLY_KERNEL(adabound, M | VV | Q8)

FORMULA(amsbound) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.s = GREATER(x.v, x.s);
    x.eta = k->lr / (SQRT(x.s) + k->eps);
    x.step = LESSER((V){0} + k->high, GREATER((V){0} + k->low, x.eta));
    x.p = x.p - x.step * x.m;
    return x;
}
ONLY_KERNEL(amsbound, M | VV | S | Q8_EACH)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adabound) {
    const double t = (double)info->t, gamma = o[OPT_GAMMA];
    const double final = adamod__final_lr(o, info->base_lr);
    const adamod__corrections x = adamod__corrections_of(o, info);
    c->lr = o[OPT_LR] * sqrt(x.second) / x.first;
    c->low = final * (1 - 1 / (gamma * t + 1));
    c->high = gamma > 0 ? final * (1 + 1 / (gamma * t)) : INFINITY;
}

COEFS(amsbound) { adamod__adabound_coefs(o, info, c); }

#elif defined(ADAMOD_RULE_DESCRIPTION)

#define ADABOUND_OPTIONS                                                                                               \
    OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999),                                                           \
        OPTION_REAL(FINAL_LR, "final_lr", 0.1, 0, INFINITY, 1,                                                         \
                    "the learning rate of sgd that the bounds close in on"),                                           \
        OPTION_REAL(GAMMA, "gamma", 1e-3, 0, 1, 1, "how fast the bounds close"), OPTION_EPS(1e-8)

RULE_DEFINITION(adabound, .summary = "Adam clipped to bounds that close in on sgd", .year = 2019,
                .source = "arXiv 1902.09843", .q8 = true, STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq")),
                OPTIONS(ADABOUND_OPTIONS));
RULE_DEFINITION(amsbound, .summary = "AdaBound with the largest v so far", .year = 2019, .source = "arXiv 1902.09843",
                .q8 = true, STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), STATE(2, "max_exp_avg_sq")),
                OPTIONS(ADABOUND_OPTIONS));

#endif
