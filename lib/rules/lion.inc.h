/* Lion: Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, Algorithm 2.
 *
 *   p = p - lr sign(beta1 m + (1 - beta1) g)        m = beta2 m + (1 - beta2) g */
#ifdef ADAMOD_RULE_NAME

RULE(lion)
CAN_BE_CAUTIOUS(lion)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(lion) {
    const V c = k->beta1 * x.m + k->beta1c * x.g;
    x.m = k->beta2 * x.m + k->beta2c * x.g;
    x.step = x.eta = (V){0} + k->lr;
    /* c - c is 0 but where c is not finite, so that the parameter shows it as with other rules.
     * NOLINTNEXTLINE(misc-redundant-expression) */
    MOVE(WHERE_POSITIVE(c, x.step) - WHERE_POSITIVE(-c, x.step) + (c - c))
    return x;
}
KERNEL(lion, M | Q8)
CAUTIOUS(lion_cautious, lion, M | Q8, 0)
VARIANTS(lion){VARIANT(lion), VARIANT(lion_cautious)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(lion) { c->variant = o[OPT_CAUTIOUS] != 0; }

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(lion, .summary = "the sign of an average of gradients", .year = 2023, .source = "arXiv 2302.06675",
                .q8 = true, CAUTIOUS_RULE, .uncounted = true, STATES(STATE(0, "exp_avg")),
                OPTIONS(OPTION_LR(1e-4),
                        OPTION_DECAY_RATE_OF(BETA1, "beta1", 0.9, "weight of the average in the step's sign"),
                        OPTION_DECAY_RATE_OF(BETA2, "beta2", 0.99, "decay of the average of gradients"),
                        OPTION_CAUTIOUS));

#endif
