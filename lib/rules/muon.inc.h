/* Muon: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", kellerjordan.github.io/posts/muon, as in
 * torch.optim.Muon. Arrays of two dimensions or more are matrices [first dimension, all others], see muon.c:
 *
 *   m = mu m + (1 - mu) g        u = (1 - mu) g + mu m, or m without nesterov
 *   X = u / max(|u|, eps)        ns_steps times: A = X X^T, X = a X + (b A + c A^2) X
 *   p = p - lr lambda p - lr f X        f: adjust_lr
 *
 * All others, and with use_muon = 0 every one, take Adam's step with options of their own, as in the author's program. */
#ifdef ADAMOD_RULE_NAME

RULE(muon)
DRIVER(muon)
OPTION(NS_STEPS)
OPTION(NS_A)
OPTION(NS_B)
OPTION(NS_C)
OPTION(NS_EPS)
OPTION(ADJUST_LR)
OPTION(USE_MUON)
OPTION(ADAMW_LR)
OPTION(ADAMW_EPS)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(muon_adamw) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.step = x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    x.p = x.p - k->low * x.p;
    x.p = x.p - x.step * (x.m * k->mscale);
    return x;
}
KERNEL(muon_adamw, M | VV)

/* Stores the matrix to be made orthogonal in p. */
FORMULA(muon_momentum) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.p = k->flag ? k->beta1c * x.g + k->beta1 * x.m : x.m;
    return x;
}
KERNEL(muon_momentum, M)

/* g is X. */
FORMULA(muon_step) {
    x.step = x.eta = (V){0} + k->lr;
    x.p = x.p - k->low * x.p;
    x.p = x.p - k->lr * x.g;
    return x;
}
KERNEL(muon_step, 0)
VARIANTS(muon){VARIANT(muon_adamw), VARIANT(muon_momentum), VARIANT(muon_step)};

#elif defined(ADAMOD_RULE_COEFS)

/* The factor of lr: see torch.optim.Muon. */
static ADAMOD__DEVICE double adamod__muon_adjustment(const double *o, const step_info *info) {
    const double rows = (double)info->first, cols = (double)(info->count / info->first);
    if (o[OPT_ADJUST_LR] == ADJUST_MATCH_RMS_ADAMW) return 0.2 * sqrt(fmax(rows, cols));
    const double ratio = rows / cols;
    return sqrt(o[OPT_ADJUST_LR] == ADJUST_SPECTRAL_UNCLAMPED ? ratio : fmax(1.0, ratio));
}

COEFS(muon) {
    c->decays = 1;
    if (info->cols > 0 && o[OPT_USE_MUON] != 0) {
        c->variant = 1;
        c->lr = o[OPT_LR] * adamod__muon_adjustment(o, info);
        c->beta1 = o[OPT_MOMENTUM];
        c->beta1c = 1 - o[OPT_MOMENTUM];
        c->flag = o[OPT_NESTEROV] != 0;
        c->low = adamod__decay_of(o);
        return;
    }
    adamod__moments(o, info, c);
    c->eps = o[OPT_ADAMW_EPS];
    c->lr = o[OPT_ADAMW_LR] * (info->base_lr > 0 ? o[OPT_LR] / info->base_lr : 1); /* it follows the schedule of lr */
    c->low = o[OPT_DECAY] == DECAY_DECOUPLED ? c->lr * o[OPT_WEIGHT_DECAY] : adamod__decay_of(o);
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

HAS_STATE(muon) {
    const bool orthogonal = ndim >= 2 && o[OPT_USE_MUON] != 0;
    return (strcmp(s->name, "momentum_buffer") == 0) == orthogonal;
}

static const char *const adamod__adjustments[] = {"original", "match_rms_adamw", "spectral_unclamped", NULL};

RULE_DEFINITION(
    muon, .summary = "momentum made orthogonal, for matrices; AdamW for other arrays", .year = 2024,
    .source = "kellerjordan.github.io/posts/muon", .driver = &adamod__muon_driver, .shaped = true,
    .matrices_only = true, .has_state = adamod__muon_has_state,
    STATES(OPTIONAL_STATE(0, "momentum_buffer"), OPTIONAL_STATE(0, "exp_avg"), OPTIONAL_STATE(1, "exp_avg_sq")),
    OPTIONS(OPTION_LR(1e-3), OPTION_DECAY_RATE_OF(MOMENTUM, "momentum", 0.95, "mu: decay of the average of gradients"),
            OPTION_SWITCH(NESTEROV, "nesterov", 1, 0, "1: Nesterov's momentum"),
            OPTION_INTEGER(NS_STEPS, "ns_steps", 5, 0, 99, 0, "Newton-Schulz iterations"),
            OPTION_REAL(NS_A, "ns_a", 3.4445, -10, 10, 0, "a of X = a X + (b A + c A^2) X"),
            OPTION_REAL(NS_B, "ns_b", -4.775, -10, 10, 0, "b"), OPTION_REAL(NS_C, "ns_c", 2.0315, -10, 10, 0, "c"),
            OPTION_REAL(NS_EPS, "eps", 1e-7, 1e-30, 1e30, 0, "smallest norm that a matrix is divided by"),
            OPTION_CHOICE(ADJUST_LR, "adjust_lr", ADJUST_ORIGINAL, adamod__adjustments, 0,
                          "factor of lr: sqrt(max(1, rows / cols)); 0.2 sqrt(max(rows, cols)); sqrt(rows / cols)"),
            OPTION_SWITCH(USE_MUON, "use_muon", 1, 1, "0: AdamW for matrices, too"),
            OPTION_REAL(ADAMW_LR, "adamw_lr", 3e-4, 0, 1e9, 0, "learning rate of arrays that AdamW updates"),
            OPTION_DECAY_RATE_OF(BETA1, "adamw_beta1", 0.9, "AdamW's decay of the average of gradients"),
            OPTION_DECAY_RATE_OF(BETA2, "adamw_beta2", 0.95, "AdamW's decay of the average of squared gradients"),
            OPTION_REAL(ADAMW_EPS, "adamw_eps", 1e-10, 1e-28, 1e9, 0, "AdamW's eps, added to its divisor")));

#endif
