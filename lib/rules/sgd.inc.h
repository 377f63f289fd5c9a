/* Stochastic gradient descent, with momentum as PyTorch has it: the first gradient enters undampened.
 *
 *   b = momentum b + (1 - dampening) g        (b = g in the first update)
 *   p = p - lr b                              nesterov: p = p - lr (g + momentum b) */
#ifdef ADAMOD_RULE_NAME

RULE(sgd)
CAN_BE_CAUTIOUS(sgd)
OPTION(DAMPENING)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(sgd) {
    x.step = x.eta = (V){0} + k->lr;
    x.p = x.p - k->lr * x.g;
    return x;
}
KERNEL(sgd, 0)

FORMULA(sgd_momentum) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.step = x.eta = (V){0} + k->lr;
    MOVE(k->lr * (k->flag & 1 ? x.g + k->beta2 * x.m : x.m))
    return x;
}
KERNEL(sgd_momentum, M | Q8)
CAUTIOUS(sgd_momentum_cautious, sgd_momentum, M | Q8, 0)
VARIANTS(sgd){VARIANT(sgd), VARIANT(sgd_momentum), VARIANT(sgd_momentum_cautious)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(sgd) {
    const int first = info->t == 1;
    c->beta1 = first ? 0 : o[OPT_MOMENTUM];
    c->beta1c = first ? 1 : 1 - o[OPT_DAMPENING];
    c->beta2 = o[OPT_MOMENTUM];
    c->flag = o[OPT_NESTEROV] != 0;
    c->variant = o[OPT_MOMENTUM] == 0 ? 0 : o[OPT_CAUTIOUS] == 0 ? 1 : 2;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

HAS_STATE(sgd) { return o[OPT_MOMENTUM] != 0; }

RULE_DEFINITION(sgd, .summary = "stochastic gradient descent, with momentum, dampening, Nesterov", .year = 1951,
                .source = "Robbins, Monro; Polyak 1964", .l2_decay = true, .q8 = true, CAUTIOUS_RULE, .uncounted = true,
                .sparse = true, .has_state = adamod__sgd_has_state, STATES(OPTIONAL_STATE(0, "momentum_buffer")),
                OPTIONS(OPTION_LR(1e-2), OPTION_MOMENTUM,
                        OPTION_REAL(DAMPENING, "dampening", 0, 0, 1, 0,
                                    "gradients are multiplied by 1 - dampening in the buffer"),
                        OPTION_SWITCH(NESTEROV, "nesterov", 0, 0, "1: Nesterov's momentum"), OPTION_CAUTIOUS));

#endif
