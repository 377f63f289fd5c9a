/* RAdam: Liu et al., arXiv 1908.03265, as PyTorch has it (rectified from rho_t > 5).
 *
 *   rho = 2 / (1 - beta2) - 1        rho_t = rho - 2 t beta2^t / (1 - beta2^t)
 *   rho_t > 5:  r = sqrt((rho_t - 4) (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t))
 *               p = p - lr r sqrt(1 - beta2^t) / (sqrt(v) + eps) m / (1 - beta1^t)
 *   otherwise   p = p - lr m / (1 - beta1^t) */
#ifdef ADAMOD_RULE_NAME

RULE(radam)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(radam) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->flag ? k->lr / (SQRT(x.v) + k->eps) : (V){0} + k->lr;
    BOUND(s)
    x.p = x.p - x.step * (x.m * k->mscale);
    return x;
}
BOUNDABLE(radam, M | VV | Q8, S)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(radam) {
    const double t = (double)info->t, beta2 = o[OPT_BETA2], correction = 1 - pow(beta2, t);
    const double rho = 2 / (1 - beta2) - 1, rho_t = rho - 2 * t * pow(beta2, t) / correction;
    adamod__moments(o, info, c);
    c->flag = rho_t > 5;
    if (c->flag) {
        c->lr = o[OPT_LR] * sqrt(correction) * sqrt((rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t));
    }
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

RULE_DEFINITION(radam, .summary = "Adam whose early learning rates are rectified by their variance", .year = 2019,
                .source = "arXiv 1908.03265", .q8 = true, STATES(ADAM_STATES),
                OPTIONS(OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999), OPTION_EPS(1e-8), OPTIONS_BOUND));

#endif
