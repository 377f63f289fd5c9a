/* StableAdamW: Wortsman et al., "Stable and low-precision training for large-scale vision-language models", arXiv 2304.13013,
 * Algorithm 2: Adam with the update clipping of Adafactor. As in optimi: averages are corrected through their decays.
 *
 *   b1 = beta1 (1 - beta1^(t-1)) / (1 - beta1^t), b2 likewise        m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
 *   r = root of the mean, over the whole array, of g^2 / max(v, eps^2)
 *   p = p - lr / max(1, r) / (sqrt(v) + eps) m                       decoupled decay has the same learning rate
 *
 * With the flag set the formula leaves what r is made of to be summed: see optim/sums.c. */
#ifdef ADAMOD_RULE_NAME

RULE(stableadamw)
DRIVER(stableadamw)
SUMS(stableadamw)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(stableadamw) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v) + k->eps);
    BOUND(s)
    x.p = x.p - x.step * x.m;
    if (k->flag) {
        x.eta = x.g / SQRT(GREATER(x.v, (V){0} + k->high));
        x.step = (V){0}; /* not summed: nothing need be computed for it */
    }
    return x;
}
BOUNDABLE(stableadamw, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(stableadamw) {
    const adamod__corrections x = adamod__corrections_of(o, info);
    c->beta1c = (1 - o[OPT_BETA1]) / x.first;
    c->beta1 = 1 - c->beta1c;
    c->beta2c = (1 - o[OPT_BETA2]) / x.second;
    c->beta2 = 1 - c->beta2c;
    c->high = fmax(o[OPT_EPS] * o[OPT_EPS], 1e-37); /* not 0 in f32, or zeros would be divided by it */
}

#elif defined(ADAMOD_RULE_FINISH)

FINISH(stableadamw) {
    const double r = sqrt(sum[0] / (double)count), by = r > 1 || r != r ? r : 1;
    c->lr /= by;
    if (o[OPT_DECAY] == DECAY_DECOUPLED) c->decay /= by;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(stableadamw, .summary = "AdamW that steps less where gradients are larger than they were", .year = 2023,
                .source = "arXiv 2304.13013", .q8 = true, .driver = &adamod__sums_driver,
                .finish = adamod__stableadamw_finish, STATES(ADAM_STATES),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.99), OPTION_EPS(1e-6), OPTIONS_BOUND));

#endif
