/* AdaGrad: Duchi, Hazan, Singer, JMLR 12 (2011).
 *
 *   v = v + g^2        p = p - lr / (1 + (t - 1) lr_decay) / (sqrt(v) + eps) g */
#ifdef ADAMOD_RULE_NAME

RULE(adagrad)
OPTION(LR_DECAY)
OPTION(INITIAL)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adagrad) {
    x.v = x.v + x.g * x.g;
    x.eta = k->lr / (SQRT(x.v) + k->eps);
    BOUND(s)
    x.p = x.p - x.step * x.g;
    return x;
}
BOUNDABLE(adagrad, VV | Q8_EACH, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adagrad) { c->lr = o[OPT_LR] / (1 + (double)(info->t - 1) * o[OPT_LR_DECAY]); }

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adagrad, .summary = "divides by the root of the sum of all squared gradients", .year = 2011,
                .source = "JMLR 12, 2121–2159", .l2_decay = true, .q8 = true, .sparse = true,
                STATES(STATE(1, "sum", .begins = ADAMOD_BEGINS_AT_OPTION), BOUND_STATE(2)),
                OPTIONS(OPTION_LR(1e-2),
                        OPTION_REAL(LR_DECAY, "lr_decay", 0, 0, INFINITY, 1, "lr is divided by 1 + (t - 1) lr_decay"),
                        OPTION_STRUCTURAL_REAL(INITIAL, "initial", 0, 0, INFINITY, 1,
                                               "what the sum of squares starts from"),
                        OPTION_EPS(1e-10), OPTIONS_BOUND));

#endif
