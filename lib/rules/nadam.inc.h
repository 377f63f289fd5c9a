/* NAdam: Dozat, "Incorporating Nesterov Momentum into Adam", ICLR workshop 2016, as PyTorch has it.
 *
 *   mu_t = beta1 (1 - 0.96^(t psi) / 2)        M_t = mu_1 mu_2 ... mu_t        psi is momentum_decay
 *   m = beta1 m + (1 - beta1) g                v = beta2 v + (1 - beta2) g^2
 *   p = p - lr / (sqrt(v / (1 - beta2^t)) + eps) ((1 - mu_t) / (1 - M_t) g + mu_{t+1} / (1 - M_{t+1}) m) */
#ifdef ADAMOD_RULE_NAME

RULE(nadam)
CAN_BE_CAUTIOUS(nadam)
OPTION(MOMENTUM_DECAY)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(nadam) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(s)
    MOVE(x.step * (x.g * k->low + x.m * k->high))
    return x;
}
CAUTIOUS_BOUNDABLE(nadam, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(nadam) {
    const double beta1 = o[OPT_BETA1], psi = o[OPT_MOMENTUM_DECAY], t = (double)info->t;
    const adamod__corrections x = adamod__corrections_of(o, info);
    const double mu = beta1 * (1 - pow(0.96, t * psi) / 2), next = beta1 * (1 - pow(0.96, (t + 1) * psi) / 2);
    /* 1 - product is 1 once the product is below 1e-20 */
    double product = 1;
    for (int64_t i = 1; i <= info->t && product > 1e-20; i++) {
        product *= beta1 * (1 - pow(0.96, (double)i * psi) / 2);
    }
    c->vscale = 1 / x.second;
    c->low = (1 - mu) / (1 - product);
    c->high = next / (1 - product * next);
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(nadam, .summary = "Adam with Nesterov's momentum", .year = 2016, .source = "Dozat, ICLR workshop",
                .q8 = true, CAUTIOUS_RULE, STATES(ADAM_STATES),
                OPTIONS(OPTION_LR(2e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999), OPTION_EPS(1e-8),
                        OPTION_REAL(MOMENTUM_DECAY, "momentum_decay", 4e-3, 0, INFINITY, 1,
                                    "psi: how fast the momentum grows to beta1"),
                        OPTIONS_BOUND, OPTION_CAUTIOUS));

#endif
