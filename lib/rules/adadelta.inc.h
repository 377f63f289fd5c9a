/* AdaDelta: Zeiler, arXiv 1212.5701. As PyTorch has it, with a learning rate (the paper's is 1).
 *
 *   v = rho v + (1 - rho) g^2        d = sqrt(s + eps) / sqrt(v + eps) g        s = rho s + (1 - rho) d^2
 *   p = p - lr d */
#ifdef ADAMOD_RULE_NAME

RULE(adadelta)
OPTION(RHO)
OPTION(ROOT_EPS)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adadelta) {
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    const V rate = SQRT(x.s + k->eps) / SQRT(x.v + k->eps);
    const V delta = rate * x.g;
    x.s = k->beta2 * x.s + k->beta2c * delta * delta;
    x.eta = k->lr * rate;
    BOUND(t)
    x.p = x.p - (bounded ? x.step * x.g : k->lr * delta);
    return x;
}
BOUNDABLE(adadelta, VV | S | Q8_EACH, T)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adadelta) {
    c->eps = o[OPT_ROOT_EPS];
    c->beta2 = o[OPT_RHO];
    c->beta2c = 1 - o[OPT_RHO];
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adadelta, .summary = "steps as large as past steps were, without a unit", .year = 2012,
                .source = "arXiv 1212.5701", .l2_decay = true, .q8 = true,
                STATES(STATE(1, "square_avg"), STATE(2, "acc_delta"), BOUND_STATE(3)),
                OPTIONS(OPTION_LR(1.0), OPTION_DECAY_RATE_OF(RHO, "rho", 0.9, "decay of both averages"),
                        OPTION_DIVISOR(ROOT_EPS, "eps", 1e-6, "added to the divisor"), OPTIONS_BOUND));

#endif
