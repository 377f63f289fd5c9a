/* RMSProp: Tieleman and Hinton, Coursera lecture 6.5 (2012); centred: Graves, arXiv 1308.0850. As PyTorch has it.
 *
 *   v = alpha v + (1 - alpha) g^2        centred: a = alpha a + (1 - alpha) g, and v - a^2 in place of v below
 *   p = p - lr / (sqrt(v) + eps) g       momentum: b = momentum b + g / (sqrt(v) + eps), p = p - lr b
 *
 * With the momental bound the buffer is made of bounded steps, b = momentum b + min(eta, s) g, p = p - b: the bound is on
 * lr / (sqrt(v) + eps), and to divide it by lr again would fail where lr is 0. */
#ifdef ADAMOD_RULE_NAME

RULE(rmsprop)
OPTION(ALPHA)
OPTION(CENTERED)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(rmsprop) {
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v) + k->eps);
    BOUND(t)
    x.p = x.p - x.step * x.g;
    return x;
}
KERNEL(rmsprop, VV | Q8_EACH)
BOUNDED(rmsprop_bounded, rmsprop, VV | T | Q8_EACH)

FORMULA(rmsprop_momentum) {
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    const V root = SQRT(x.v) + k->eps;
    x.eta = k->lr / root;
    BOUND(t)
    x.m = k->beta1 * x.m + (bounded ? x.step * x.g : x.g / root);
    x.p = x.p - (bounded ? x.m : k->lr * x.m);
    return x;
}
KERNEL(rmsprop_momentum, M | VV | Q8_EACH)
BOUNDED(rmsprop_momentum_bounded, rmsprop_momentum, M | VV | T | Q8_EACH)

/* v - a^2 is a variance; rounding may take it below zero. In 8 bits it would be nothing but the error of rounding. */
FORMULA(rmsprop_centered) {
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.s = k->beta2 * x.s + k->beta2c * x.g;
    x.eta = k->lr / (SQRT(GREATER((V){0}, x.v - x.s * x.s)) + k->eps);
    BOUND(t)
    x.p = x.p - x.step * x.g;
    return x;
}
KERNEL(rmsprop_centered, VV | S)
BOUNDED(rmsprop_centered_bounded, rmsprop_centered, VV | S | T)

FORMULA(rmsprop_centered_momentum) {
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.s = k->beta2 * x.s + k->beta2c * x.g;
    const V root = SQRT(GREATER((V){0}, x.v - x.s * x.s)) + k->eps;
    x.eta = k->lr / root;
    BOUND(t)
    x.m = k->beta1 * x.m + (bounded ? x.step * x.g : x.g / root);
    x.p = x.p - (bounded ? x.m : k->lr * x.m);
    return x;
}
KERNEL(rmsprop_centered_momentum, M | VV | S)
BOUNDED(rmsprop_centered_momentum_bounded, rmsprop_centered_momentum, M | VV | S | T)
VARIANTS(rmsprop){VARIANT(rmsprop),
                  VARIANT(rmsprop_momentum),
                  VARIANT(rmsprop_centered),
                  VARIANT(rmsprop_centered_momentum),
                  VARIANT(rmsprop_bounded),
                  VARIANT(rmsprop_momentum_bounded),
                  VARIANT(rmsprop_centered_bounded),
                  VARIANT(rmsprop_centered_momentum_bounded)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(rmsprop) {
    c->beta1 = o[OPT_MOMENTUM];
    c->beta2 = o[OPT_ALPHA];
    c->beta2c = 1 - o[OPT_ALPHA];
    c->variant = (o[OPT_MOMENTUM] != 0) + 2 * (o[OPT_CENTERED] != 0) + 4 * adamod__bounded(o);
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

HAS_STATE(rmsprop) { return o[s->index == 0 ? OPT_MOMENTUM : OPT_CENTERED] != 0; }

RULE_DEFINITION(
    rmsprop, .summary = "divides by a running root mean square of the gradients", .year = 2012,
    .source = "Coursera lecture 6.5", .l2_decay = true, .q8 = true, .q8_without = OPT_CENTERED, .more_signed = 1 << 2,
    .has_state = adamod__rmsprop_has_state,
    STATES(OPTIONAL_STATE(0, "momentum_buffer"), STATE(1, "square_avg"), OPTIONAL_STATE(2, "grad_avg"), BOUND_STATE(3)),
    OPTIONS(OPTION_LR(1e-2), OPTION_DECAY_RATE_OF(ALPHA, "alpha", 0.99, "decay of the average of squared gradients"),
            OPTION_EPS(1e-8), OPTION_MOMENTUM,
            OPTION_SWITCH(CENTERED, "centered", 0, 1, "1: divide by the standard deviation, not the root mean square"),
            OPTIONS_BOUND));

#endif
