/* AdEMAMix: Pagliardini, Ablin, Grangier, "The AdEMAMix Optimizer: Better, Faster, Older", arXiv 2409.03137, Algorithm 1,
 * with the schedules of the authors' package.
 *
 *   m = beta1 m + (1 - beta1) g        n = beta_slow n + (1 - beta_slow) g        v = beta2 v + (1 - beta2) g^2
 *   p = p - lr / (sqrt(v / (1 - beta2^t)) + eps) (m / (1 - beta1^t) + alpha n)
 *   alpha_warmup: alpha grows from 0 along a line; beta_slow_warmup: the half-life of n grows from beta1's along a line */
#ifdef ADAMOD_RULE_NAME

RULE(ademamix)
OPTION(BETA_SLOW)
OPTION(MIX)
OPTION(MIX_WARMUP)
OPTION(SLOW_WARMUP)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(ademamix) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.s = k->beta4 * x.s + k->beta4c * x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(t)
    x.p = x.p - x.step * (x.m * k->mscale + k->weight * x.s);
    return x;
}
BOUNDABLE(ademamix, M | VV | S | Q8_EACH, T)

#elif defined(ADAMOD_RULE_COEFS)

/* A decay's half-life, less 1; the package adds 1e-8, which must not make it 1 or more. */
static ADAMOD__DEVICE double adamod__half_life(double beta) {
    return log(0.5) / log(beta + 1e-8 < 1 ? beta + 1e-8 : beta) - 1;
}

COEFS(ademamix) {
    const double t = (double)info->t, mix = o[OPT_MIX_WARMUP], slow = o[OPT_SLOW_WARMUP];
    adamod__moments(o, info, c);
    c->weight = t < mix ? t / mix * o[OPT_MIX] : o[OPT_MIX];
    c->beta4 = o[OPT_BETA_SLOW];
    if (t < slow) {
        const double part = t / slow;
        const double life = (1 - part) * adamod__half_life(o[OPT_BETA1]) + part * adamod__half_life(o[OPT_BETA_SLOW]);
        const volatile double half = 0.5; /* or clang makes exp2 of it */
        c->beta4 = pow(half, 1 / (life + 1));
    }
    c->beta4c = 1 - c->beta4;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(ademamix, .summary = "Adam with a second, slow average of gradients", .year = 2024,
                .source = "arXiv 2409.03137", .q8 = true, .more_signed = 1 << 2,
                STATES(STATE(0, "exp_avg_fast"), STATE(1, "exp_avg_sq"), STATE(2, "exp_avg_slow"), BOUND_STATE(3)),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999),
                        OPTION_DECAY_RATE_OF(BETA_SLOW, "beta_slow", 0.9999, "decay of the slow average of gradients"),
                        OPTION_REAL(MIX, "alpha", 2, 0, INFINITY, 1, "weight of the slow average"),
                        OPTION_INTEGER(MIX_WARMUP, "alpha_warmup", 0, 0, 9007199254740991, 0,
                                       "updates until alpha has grown from 0"),
                        OPTION_INTEGER(SLOW_WARMUP, "beta_slow_warmup", 0, 0, 9007199254740991, 0,
                                       "updates until beta_slow has grown from beta1"),
                        OPTION_EPS(1e-8), OPTIONS_BOUND));

#endif
