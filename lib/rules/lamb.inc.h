/* LAMB: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", arXiv 1904.00962, Algorithm 2
 * with phi(z) = z. A ratio of which a norm is 0 counts as 1, as in the authors' program.
 *
 *   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
 *   u = lr / (sqrt(v / (1 - beta2^t)) + eps) m / (1 - beta1^t) + lr lambda p        (the momental bound is on the first factor)
 *   p = p - lr |p| / |u| u                                                          norms over the whole array
 *
 * That is decoupled decay. Independent decay is no part of u, or the ratio would give it the learning rate: it takes
 * lambda p from p first, as in other rules.
 *
 * With the flag set the formula leaves u and p to be summed: see optim/sums.c. */
#ifdef ADAMOD_RULE_NAME

RULE(lamb)
DRIVER(lamb)
SUMS(lamb)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(lamb) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(s)
    const V u = x.step * (x.m * k->mscale) + k->low * x.p;
    x.eta = k->flag ? u * k->high : x.eta * k->weight;
    x.step = k->flag ? x.p : x.step * k->weight;
    x.p = x.p - k->weight * u;
    return x;
}
BOUNDABLE(lamb, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(lamb) {
    if (o[OPT_BIAS_CORRECTION] != 0) adamod__moments(o, info, c);
    c->decays = o[OPT_DECAY] == DECAY_DECOUPLED;
    c->low = c->decays ? adamod__decay_of(o) : 0;
    c->high = o[OPT_LR] > 1 ? 1 / o[OPT_LR] : 1; /* or squares might overflow */
    c->weight = 1;
}

#elif defined(ADAMOD_RULE_FINISH)

FINISH(lamb) {
    c->weight = sum[0] > 0 && sum[1] > 0 ? fmin(o[OPT_LR], 1.0) * sqrt(sum[1]) / sqrt(sum[0]) : 1;
    if (!(sum[0] + sum[1] < INFINITY)) c->weight = sum[0] + sum[1]; /* a NaN, too: the array shows it */
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(lamb, .summary = "Adam whose steps are as long as lr times the array", .year = 2019,
                .source = "arXiv 1904.00962", .q8 = true, .driver = &adamod__sums_driver, .finish = adamod__lamb_finish,
                STATES(ADAM_STATES),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999), OPTION_EPS(1e-6),
                        OPTION_SWITCH(BIAS_CORRECTION, "bias_correction", 1, 0, "0: averages are not corrected"),
                        OPTIONS_BOUND));

#endif
