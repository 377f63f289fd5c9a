/* AdaShift: Zhou et al., arXiv 1810.00143, as in the authors' later code. n is the window.
 *
 *   m = sum over i < n of beta1^i g_{t-i}, divided by the sum of beta1^i; kept by recursion
 *   v = beta2 v + (1 - beta2) phi(g_{t-n}^2)        phi: the largest in the array (spatial = max), or itself (none)
 *   p = p - lr / (sqrt(v / (1 - beta2^{t-n})) + eps) m        for t > n, and where v > 0; before that p stays
 *
 * s is the slot of the queue that holds g_{t-n} and takes g_t. The momental bound's average is t; with spatial = max, where an
 * array has one learning rate, it is one number, too, and the driver's. It takes no part until there is a v. */
#ifdef ADAMOD_RULE_NAME

RULE(adashift)
DRIVER(adashift)
OPTION(WINDOW)
OPTION(SPATIAL)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adashift) {
    x.m = k->beta1 * x.m + (k->beta1c * x.g - k->low * x.s);
    x.v = k->beta2 * x.v + k->beta2c * x.s * x.s;
    x.s = x.g;
    const V all = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    x.eta = WHERE_POSITIVE(x.v, all);
    BOUND(t)
    x.eta = all;
    if (k->flag) x.p = x.p - x.step * x.m;
    return x;
}
KERNEL(adashift, M | VV | S)
BOUNDED(adashift_bounded, adashift, M | VV | S | T)

/* spatial = max: v is one number for the array, and lr already divided by it; high is lr before the bound */
FORMULA(adashift_max) {
    x.m = k->beta1 * x.m + (k->beta1c * x.g - k->low * x.s);
    x.s = x.g;
    x.eta = (V){0} + k->high;
    x.step = (V){0} + k->lr;
    if (k->flag) x.p = x.p - x.step * x.m;
    return x;
}
KERNEL(adashift_max, M | S)
VARIANTS(adashift){VARIANT(adashift), VARIANT(adashift_max), VARIANT(adashift_bounded)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adashift) {
    const double n = o[OPT_WINDOW], beta1 = o[OPT_BETA1], t = (double)info->t;
    const double weights = beta1 < 1 ? (1 - pow(beta1, n)) / (1 - beta1) : n;
    c->beta1 = beta1;
    c->beta1c = 1 / weights;
    c->low = pow(beta1, n) / weights;
    c->flag = t > n;
    c->vscale = c->flag ? 1 / (1 - pow(o[OPT_BETA2], t - n)) : 1;
    c->variant = o[OPT_SPATIAL] == SPATIAL_MAX ? 1 : 2 * adamod__bounded(o);
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

HAS_STATE(adashift) {
    const bool scalar = o[OPT_SPATIAL] == SPATIAL_MAX;
    return (s->shape == ADAMOD_SHAPE_SCALAR) == scalar && (s->index == 1 || adamod__bounded(o));
}

static const char *const adamod__spatials[] = {"max", "none", NULL};
RULE_DEFINITION(adashift, .summary = "Adam with a gradient in v that is n updates old", .year = 2018,
                .source = "arXiv 1810.00143", .driver = &adamod__adashift_driver,
                .has_state = adamod__adashift_has_state,
                STATES(STATE(0, "exp_avg"), OPTIONAL_STATE(1, "exp_avg_sq"),
                       OPTIONAL_STATE(1, "exp_avg_sq", .shape = ADAMOD_SHAPE_SCALAR),
                       STATE(2, "grad_queue", .shape = ADAMOD_SHAPE_QUEUE), OPTIONAL_STATE(3, "exp_avg_lr"),
                       OPTIONAL_STATE(3, "exp_avg_lr", .shape = ADAMOD_SHAPE_SCALAR)),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999),
                        OPTION_REAL(EPS, "eps", 1e-10, 0, INFINITY, 1,
                                    "added to the divisor; may be 0, as nothing moves where v is"),
                        OPTION_INTEGER(WINDOW, "window", 10, 1, 1000, 1, "n: age in updates of the gradient in v"),
                        OPTION_CHOICE(SPATIAL, "spatial", SPATIAL_MAX, adamod__spatials, 1,
                                      "v uses the array's largest squared gradient, or each element's own"),
                        OPTIONS_BOUND_ONLY));

#endif
