/* AdaMod: Ding, Ren, Luo, Sun, "An Adaptive and Momental Bound Method for Stochastic Learning", arXiv 1910.12249.
 *
 *   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
 *   paper (Algorithm 2)    eta = lr / (sqrt(v / (1 - beta2^t)) + eps)                          step on m / (1 - beta1^t)
 *   published (the package) eta = lr sqrt(1 - beta2^t) / (1 - beta1^t) / (sqrt(v) + eps)       step on m
 *   keras (its ports)      eta = lr sqrt(1 - beta2^t) / (sqrt(v) + eps)                        step on m / (1 - beta1^t)
 *   adamd (St John, arXiv 2110.10828) eta as in keras                                         step on m
 *   s = beta3 s + (1 - beta3) eta      p = p - min(eta, s) m
 *
 * The flavours are one formula: lr, vscale and mscale carry the corrections. */
#ifdef ADAMOD_RULE_NAME

RULE(adamod)
CAN_BE_CAUTIOUS(adamod)

#elif defined(ADAMOD_RULE_FORMULAS)

/* Adam has the same formula without the bound. */
FORMULA(adam) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(s)
    MOVE(x.step * (x.m * k->mscale))
    return x;
}
BOUNDED(adamod, adam, M | VV | S | COMPUTED | Q8 | BF16 | TUNED)
CAUTIOUS(adamod_cautious, adam, M | VV | S | COMPUTED | Q8, 1)
VARIANTS(adamod){VARIANT(adamod), VARIANT(adamod_cautious)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adamod) {
    adamod__moments(o, info, c);
    c->variant = o[OPT_CAUTIOUS] != 0;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adamod, .summary = "Adam bounded by a running average of each element's learning rate", .year = 2019,
                .source = "arXiv 1910.12249", .q8 = true, CAUTIOUS_RULE,
                STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), STATE(2, "exp_avg_lr")),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999),
                        OPTION_DECAY_RATE_OF(BETA3, "beta3", 0.999,
                                             "decay of the average of learning rates; 0 is Adam"),
                        OPTION_EPS(1e-8), OPTION_FLAVOUR, OPTION_SKIP_IDLE, OPTION_CAUTIOUS));

#endif
