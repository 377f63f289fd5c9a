/* Sophia: Liu et al., "Sophia: A Scalable Stochastic Second-order Optimizer for Language Model Pre-training", arXiv
 * 2305.14342, the element-wise part, as in the authors' SophiaG. h is a running estimate of the Hessian's diagonal that the
 * caller writes between updates; while it is 0, steps are lr sign(m).
 *
 *   m = beta1 m + (1 - beta1) g        p = p - lr sign(m) min(|m| / (rho bs h + 1e-15), 1)
 *
 * With the momental bound, eta = lr / (rho bs h + 1e-15), and s is 0 and bounds nothing while h is 0: it would fill with
 * lr / 1e-15, and take thousands of updates to forget that. */
#ifdef ADAMOD_RULE_NAME

RULE(sophia)
OPTION(SOPHIA_RHO)
OPTION(BATCH_SIZE)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(sophia) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    const V h = k->high * x.v, estimated = GREATER(h, -h);
    x.step = x.eta = k->lr / (h + k->eps);
    if (bounded) {
        x.s = WHERE_POSITIVE(estimated, k->beta3 * x.s + k->beta3c * x.eta);
        x.step = LESSER(x.s + (x.eta - WHERE_POSITIVE(estimated, x.eta)), x.eta);
    }
    const V size = LESSER(GREATER(x.m, -x.m) * x.step, (V){0} + k->lr);
    /* m - m is 0 but where m is not finite, which clipping would hide.
     * NOLINTNEXTLINE(misc-redundant-expression) */
    x.p = x.p - (WHERE_POSITIVE(x.m, size) - WHERE_POSITIVE(-x.m, size) + (x.m - x.m));
    return x;
}
BOUNDABLE(sophia, M | VV, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(sophia) {
    c->eps = 1e-15;
    c->high = o[OPT_SOPHIA_RHO] * o[OPT_BATCH_SIZE];
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(sophia, .summary = "divides by a Hessian's diagonal that the caller gives, and clips", .year = 2023,
                .source = "arXiv 2305.14342", STATES(STATE(0, "exp_avg"), STATE(1, "hessian"), BOUND_STATE(2)),
                OPTIONS(OPTION_LR(1e-4), OPTION_BETA1(0.965),
                        OPTION_REAL(SOPHIA_RHO, "rho", 0.04, 0, 1e6, 0,
                                    "the average is divided by rho times bs times the Hessian"),
                        OPTION_INTEGER(BATCH_SIZE, "bs", 5120, 1, 1000000000, 0,
                                       "number of tokens or samples in an estimate of the Hessian"),
                        OPTIONS_BOUND_ONLY));

#endif
