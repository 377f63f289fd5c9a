/* SOAP: Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", arXiv 2409.11321, as the authors' program
 * (github.com/nikhilvyas/SOAP). Arrays of two dimensions or more are matrices [first dimension, all others], see soap.c.
 * The first update moves nothing: it begins the averages L and R, whose eigenvectors QL and QR are. Then
 *
 *   m = beta1 m + (1 - beta1) g      v = beta2 v + (1 - beta2) (QL^T g QR)^2
 *   p = p - lr_t QL ((QL^T m QR) / (sqrt(v) + eps)) QR^T        lr_t = lr sqrt(1 - beta2^(t-1)) / (1 - beta1^(t-1))
 *   p = p - lr lambda p
 *   L = beta L + (1 - beta) g g^T    R = beta R + (1 - beta) g^T g
 *
 * and every precondition_frequency updates QL and QR follow L and R. A side longer than max_precondition_dim has no matrices;
 * other arrays have none at all, which leaves Adam. */
#ifdef ADAMOD_RULE_NAME

RULE(soap)
DRIVER(soap)
OPTION(SHAMPOO_BETA)
OPTION(PRECONDITION_FREQUENCY)
OPTION(MAX_PRECONDITION_DIM)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(soap_adam) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.step = x.eta = k->lr / (SQRT(x.v) + k->eps);
    x.p = x.p - x.step * x.m;
    x.p = x.p - k->low * x.p;
    return x;
}
KERNEL(soap_adam, M | VV)

/* g is Adam's step in the other basis, without lr. */
FORMULA(soap_step) {
    x.step = x.eta = (V){0} + k->lr;
    x.p = x.p - k->lr * x.g;
    x.p = x.p - k->low * x.p;
    return x;
}
KERNEL(soap_step, 0)
VARIANTS(soap){VARIANT(soap_adam), VARIANT(soap_adam), VARIANT(soap_step)};

#elif defined(ADAMOD_RULE_COEFS)

COEFS(soap) {
    const double t = (double)(info->t - 1);
    c->decays = 1;
    c->variant = info->cols > 0;
    if (info->t == 1) {
        c->lr = c->beta1c = c->beta2c = 0;
        c->beta1 = c->beta2 = c->eps = 1;
        return;
    }
    if (o[OPT_BIAS_CORRECTION] != 0) c->lr *= sqrt(1 - pow(o[OPT_BETA2], t)) / (1 - pow(o[OPT_BETA1], t));
    c->low = adamod__decay_of(o);
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

HAS_STATE(soap) { return ndim >= 2; }

RULE_DEFINITION(
    soap, .summary = "Adam in the eigenbasis of Shampoo, for matrices", .year = 2024, .source = "arXiv 2409.11321",
    .driver = &adamod__soap_driver, .shaped = true, .matrices_only = true, .has_state = adamod__soap_has_state,
    STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), OPTIONAL_STATE(2, "GG_0", .shape = ADAMOD_SHAPE_FIRST_SQUARE),
           OPTIONAL_STATE(3, "GG_1", .shape = ADAMOD_SHAPE_OTHERS_SQUARE),
           OPTIONAL_STATE(4, "Q_0", .shape = ADAMOD_SHAPE_FIRST_SQUARE),
           OPTIONAL_STATE(5, "Q_1", .shape = ADAMOD_SHAPE_OTHERS_SQUARE)),
    OPTIONS(OPTION_LR(3e-3), OPTION_BETA1(0.95), OPTION_BETA2(0.95), OPTION_EPS(1e-8),
            OPTION_SWITCH(BIAS_CORRECTION, "bias_correction", 1, 0, "0: averages are not corrected"),
            OPTION_REAL(SHAMPOO_BETA, "shampoo_beta", -1, -1, 1, 1, "decay of the averages L and R; below 0: beta2"),
            OPTION_INTEGER(PRECONDITION_FREQUENCY, "precondition_frequency", 10, 1, 1000000, 0,
                           "updates from one change of the basis to the next"),
            OPTION_INTEGER(MAX_PRECONDITION_DIM, "max_precondition_dim", 10000, 0, 65536, 1,
                           "the longest side of a matrix that has a basis of its own")));

#endif
