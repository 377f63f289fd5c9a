/* LaProp: Ziyin, Wang, Ueda, "LaProp: Separating Momentum and Adaptivity in Adam", arXiv 2002.04839, Algorithm 1.
 *
 *   v = beta2 v + (1 - beta2) g^2        eta = lr / (sqrt(v / (1 - beta2^t)) + eps)
 *   m = beta1 m + (1 - beta1) eta g      p = p - m / (1 - beta1^t) */
#ifdef ADAMOD_RULE_NAME

RULE(laprop)
CAN_BE_CAUTIOUS(laprop)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(laprop) {
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(s)
    x.m = k->beta1 * x.m + k->beta1c * (x.step * x.g);
    MOVE(x.m * k->mscale)
    return x;
}
CAUTIOUS_BOUNDABLE(laprop, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(laprop) { adamod__moments(o, info, c); }

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(laprop, .summary = "momentum of gradients that were divided first", .year = 2020,
                .source = "arXiv 2002.04839", .q8 = true, CAUTIOUS_RULE,
                STATES(STATE(0, "exp_avg_step"), STATE(1, "exp_avg_sq"), BOUND_STATE(2)),
                OPTIONS(OPTION_LR(4e-4), OPTION_BETA1(0.9), OPTION_BETA2(0.999), OPTION_EPS(1e-15), OPTIONS_BOUND,
                        OPTION_CAUTIOUS));

#endif
