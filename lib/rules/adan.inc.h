/* Adan: Xie et al., "Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep Models", arXiv 2208.06677, as in
 * the authors' package. d is the gradient less that of the update before, 0 in the first.
 *
 *   m = beta1 m + (1 - beta1) g        n = beta_diff n + (1 - beta_diff) d
 *   v = beta2 v + (1 - beta2) (g + beta_diff d)^2
 *   p = p - lr / (sqrt(v / (1 - beta2^t)) + eps) (m / (1 - beta1^t) + beta_diff n / (1 - beta_diff^t)) */
#ifdef ADAMOD_RULE_NAME

RULE(adan)
OPTION(BETA_DIFF)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adan) {
    const V change = k->flag ? (V){0} : x.g + x.t;
    const V ahead = x.g + k->beta4 * change;
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.s = k->beta4 * x.s + k->beta4c * change;
    x.v = k->beta2 * x.v + k->beta2c * ahead * ahead;
    x.t = -x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(u)
    x.p = x.p - x.step * (x.m * k->mscale + x.s * k->weight);
    return x;
}
BOUNDABLE(adan, M | VV | S | T | Q8_EACH, U)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adan) {
    adamod__moments(o, info, c);
    c->beta4 = o[OPT_BETA_DIFF];
    c->beta4c = 1 - o[OPT_BETA_DIFF];
    c->weight = o[OPT_BETA_DIFF] / (1 - pow(o[OPT_BETA_DIFF], (double)info->t));
    c->flag = info->t == 1;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adan, .summary = "Adam with an average of the changes of gradients", .year = 2022,
                .source = "arXiv 2208.06677", .q8 = true, .more_signed = 1 << 2 | 1 << 3,
                STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), STATE(2, "exp_avg_diff"), STATE(3, "neg_pre_grad"),
                       BOUND_STATE(4)),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.98),
                        OPTION_DECAY_RATE_OF(BETA_DIFF, "beta_diff", 0.92,
                                             "decay of the average of changes of gradients"),
                        OPTION_DECAY_RATE_OF(BETA2, "beta2", 0.99, "decay of the average of squares"), OPTION_EPS(1e-8),
                        OPTIONS_BOUND));

#endif
