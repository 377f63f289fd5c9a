/* ADOPT: Taniguchi et al., "ADOPT: Modified Adam Can Converge with Any beta2 with the Optimal Rate", arXiv 2411.02853,
 * Algorithm 2, as in the authors' package: the first update only fills v, and c_t is (t - 1)^0.25.
 *
 *   m = beta1 m + (1 - beta1) clip(g / max(sqrt(v), eps), c_t)        p = p - lr m        v = beta2 v + (1 - beta2) g^2
 *
 * With the momental bound m is made of bounded steps, as rmsprop's momentum: m = beta1 m + (1 - beta1) clip(min(eta, s) g,
 * lr c_t), p = p - m, with eta = lr / max(sqrt(v), eps). */
#ifdef ADAMOD_RULE_NAME

RULE(adopt)
CAN_BE_CAUTIOUS(adopt)
OPTION(CLIP)

#elif defined(ADAMOD_RULE_FORMULAS)

/* v takes the gradient after it was divided by; in the first update all of it, and nothing else happens. */
FORMULA(adopt) {
    const V before = x.v, root = GREATER(SQRT(before), (V){0} + k->eps);
    x.v = k->beta2 * before + k->beta2c * x.g * x.g;
    x.step = x.eta = (V){0};
    if (k->flag & 1) {
        x.eta = k->lr / root;
        BOUND_SINCE(s, before)
        const V limit = (V){0} + k->high, step = bounded ? x.step * x.g : x.g / root;
        /* g - g is 0 but where g is not finite, which clipping would hide.
         * NOLINTNEXTLINE(misc-redundant-expression) */
        x.m = k->beta1 * x.m + k->beta1c * (GREATER(-limit, LESSER(limit, step)) + (x.g - x.g));
        MOVE(bounded ? x.m : k->lr * x.m)
    }
    return x;
}
CAUTIOUS_BOUNDABLE(adopt, M | VV | Q8_EACH, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adopt) {
    const int first = info->t == 1;
    c->beta2 = first ? 0 : o[OPT_BETA2];
    c->beta2c = first ? 1 : 1 - o[OPT_BETA2];
    c->flag = !first;
    c->high = o[OPT_CLIP] == 0 ? INFINITY : pow((double)(info->t - 1), 0.25);
    if (adamod__bounded(o) && c->lr < 1e300) c->high = o[OPT_CLIP] == 0 ? INFINITY : c->high * c->lr;
    /* the first update does nothing but fill v */
    c->decays = first;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(adopt, .summary = "Adam that divides by the v of the update before", .year = 2024,
                .source = "arXiv 2411.02853", .q8 = true, CAUTIOUS_RULE, STATES(ADAM_STATES),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.9999),
                        OPTION_DIVISOR(EPS, "eps", 1e-6, "the least divisor"),
                        OPTION_SWITCH(CLIP, "clip", 1, 0, "1: a normalized gradient is clipped to (t - 1)^0.25"),
                        OPTIONS_BOUND, OPTION_CAUTIOUS));

#endif
