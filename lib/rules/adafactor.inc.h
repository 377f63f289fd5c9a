/* Adafactor: Shazeer and Stern, arXiv 1804.04235, as in fairseq. It is not element-wise (see adafactor.c): here are
 * its description and the last pass, p = p - u, or with momentum m = beta1 m + (1 - beta1) u, p = p - m, where the
 * gradient of the pass is u already. The momental bound, which is on what the gradient is multiplied by, is in u, and its
 * average, state 3, is the driver's. */
#ifdef ADAMOD_RULE_NAME

RULE(adafactor)
DRIVER(adafactor)
OPTION(EPS1)
OPTION(EPS2)
OPTION(CLIP_THRESHOLD)
OPTION(DECAY_RATE)
OPTION(RELATIVE_STEP)
OPTION(SCALE_PARAMETER)
OPTION(WARMUP_INIT)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(adafactor) {
    x.p = x.p - x.g;
    return x;
}
KERNEL(adafactor, 0)

FORMULA(adafactor_momentum) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.p = x.p - x.m;
    return x;
}
KERNEL(adafactor_momentum, M)
VARIANTS(adafactor){VARIANT(adafactor), VARIANT(adafactor_momentum)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adafactor) {
    const double t = (double)info->t, most = o[OPT_WARMUP_INIT] != 0 ? 1e-6 * t : 1e-2;
    c->lr = o[OPT_RELATIVE_STEP] != 0 ? fmin(most, 1 / sqrt(t)) : o[OPT_LR];
    c->beta2c = pow(t, -o[OPT_DECAY_RATE]);
    c->beta2 = 1 - c->beta2c;
    c->eps = o[OPT_EPS1];
    c->variant = o[OPT_BETA1] != 0;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

HAS_STATE(adafactor) {
    if (s->index == 0) return o[OPT_BETA1] != 0;
    return (s->shape == ADAMOD_SHAPE_SAME) == (ndim < 2);
}

RULE_DEFINITION(
    adafactor, .summary = "Adam's v as the product of a row and a column, for matrices", .year = 2018,
    .source = "arXiv 1804.04235", .driver = &adamod__adafactor_driver, .shaped = true,
    .has_state = adamod__adafactor_has_state,
    STATES(OPTIONAL_STATE(0, "exp_avg"), OPTIONAL_STATE(1, "exp_avg_sq_row", .shape = ADAMOD_SHAPE_ROWS),
           OPTIONAL_STATE(2, "exp_avg_sq_col", .shape = ADAMOD_SHAPE_COLS), OPTIONAL_STATE(1, "exp_avg_sq"),
           BOUND_STATE(3)),
    OPTIONS(OPTION_REAL(LR, "lr", 1e-3, 0, INFINITY, 1, "learning rate; ignored while relative_step is 1"),
            OPTION_STRUCTURAL_REAL(BETA1, "beta1", 0, 0, 1, 1, "decay of the average of updates; 0: none is kept"),
            OPTION_DIVISOR(EPS1, "eps1", 1e-30, "added to squared gradients"),
            OPTION_REAL(EPS2, "eps2", 1e-3, 0, INFINITY, 1,
                        "smallest root mean square of a parameter that scale_parameter uses"),
            OPTION_REAL(CLIP_THRESHOLD, "clip_threshold", 1, 0, INFINITY, 0,
                        "d: largest root mean square of an update"),
            OPTION_REAL(DECAY_RATE, "decay_rate", 0.8, 0, INFINITY, 1, "c: beta2_t is 1 - t^-c"),
            OPTION_SWITCH(RELATIVE_STEP, "relative_step", 1, 0, "1: the learning rate is min(0.01, 1 / sqrt(t))"),
            OPTION_SWITCH(SCALE_PARAMETER, "scale_parameter", 1, 0,
                          "1: multiply the learning rate by the parameter's root mean square"),
            OPTION_SWITCH(WARMUP_INIT, "warmup_init", 0, 0, "1: relative_step starts at 1e-6 t"), OPTIONS_BOUND));

#endif
