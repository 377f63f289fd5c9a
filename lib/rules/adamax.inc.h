/* Adamax: Kingma and Ba, arXiv 1412.6980, Algorithm 2, with the eps of PyTorch.
 *
 *   m = beta1 m + (1 - beta1) g        u = max(beta2 u, |g| + eps)
 *   p = p - lr / (1 - beta1^t) / u m */
#ifdef ADAMOD_RULE_NAME

RULE(adamax)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adamax) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = GREATER(k->beta2 * x.v, GREATER(x.g, -x.g) + k->eps);
    x.eta = k->lr / x.v;
    BOUND_SINCE(s, SEEN(s))
    x.p = x.p - x.step * x.m;
    return x;
}
BOUNDABLE(adamax, M | VV | Q8_EACH, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adamax) { c->lr = o[OPT_LR] / adamod__corrections_of(o, info).first; }

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adamax, .summary = "Adam with the largest gradient in place of the root mean square", .year = 2014,
                .source = "arXiv 1412.6980", .q8 = true,
                STATES(STATE(0, "exp_avg"), STATE(1, "exp_inf"), BOUND_STATE(2)),
                OPTIONS(OPTION_LR(2e-3), OPTION_BETA1(0.9),
                        OPTION_DECAY_RATE_OF(BETA2, "beta2", 0.999, "decay of the largest gradient"), OPTION_EPS(1e-8),
                        OPTIONS_BOUND));

#endif
