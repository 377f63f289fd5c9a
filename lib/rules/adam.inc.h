/* Adam: Kingma and Ba, arXiv 1412.6980. AMSGrad: Reddi, Kale, Kumar, arXiv 1904.09237.
 *
 *   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2        (AMSGrad: u = max(u, v) in place of v below)
 *   paper      p = p - lr / (sqrt(v / (1 - beta2^t)) + eps) m / (1 - beta1^t)             (Algorithm 1; PyTorch)
 *   published  p = p - lr sqrt(1 - beta2^t) / (1 - beta1^t) / (sqrt(v) + eps) m           (its section 2; TensorFlow)
 *
 * Adam's formula is AdaMod's with the bound left out (adamod.inc.h), and with bound = momental it is AdaMod. */
#ifdef ADAMOD_RULE_NAME

RULE(adam)
RULE(amsgrad)
CAN_BE_CAUTIOUS(adam)
CAN_BE_CAUTIOUS(amsgrad)

#elif defined(ADAMOD_RULE_FORMULAS)

KERNEL(adam, M | VV | COMPUTED | Q8 | BF16)
CAUTIOUS(adam_cautious, adam, M | VV | COMPUTED | Q8, 0)
VARIANTS(adam){VARIANT(adam), VARIANT(adamod), VARIANT(adam_cautious), VARIANT(adamod_cautious)};

FORMULA(amsgrad) {
    x.m = k->beta1 * x.m + k->beta1c * x.g;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.s = GREATER(x.v, x.s);
    x.eta = k->lr / (SQRT(x.s * k->vscale) + k->eps);
    BOUND_SINCE(t, x.s)
    /* without another bound, statistics show what the largest v does */
    if (!bounded) x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    MOVE(x.step * (x.m * k->mscale))
    return x;
}
CAUTIOUS_BOUNDABLE(amsgrad, M | VV | S | Q8_EACH, T)

#elif defined(ADAMOD_RULE_COEFS)

COEFS(adam) { adamod__moments(o, info, c); }

COEFS(amsgrad) {
    adamod__moments(o, info, c);
    if (o[OPT_BIAS_CORRECTION] == 0) {
        c->lr = o[OPT_LR];
        c->mscale = c->vscale = 1;
    }
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

#define ADAM_OPTIONS                                                                                                   \
    OPTION_LR(1e-3), OPTION_BETA1(0.9), OPTION_BETA2(0.999), OPTION_EPS(1e-8), OPTION_FLAVOUR, OPTIONS_BOUND,          \
        OPTION_CAUTIOUS

/* AdamW: Loshchilov and Hutter, arXiv 1711.05101, with PyTorch's weight_decay. */
RULE_ALIAS(adamw, adam, .summary = "adam with weight_decay 0.01, as in PyTorch", .year = 2017,
           .source = "arXiv 1711.05101", .default_weight_decay = 0.01, .q8 = true, CAUTIOUS_RULE, STATES(ADAM_STATES),
           OPTIONS(ADAM_OPTIONS));
RULE_DEFINITION(adam, .summary = "adaptive moments; with decoupled decay it is AdamW", .year = 2014,
                .source = "arXiv 1412.6980", .alias = &adamod__rule_adamw, .q8 = true, CAUTIOUS_RULE,
                STATES(ADAM_STATES), OPTIONS(ADAM_OPTIONS));

RULE_DEFINITION(amsgrad, .summary = "Adam with the largest v so far", .year = 2018, .source = "arXiv 1904.09237",
                .q8 = true, CAUTIOUS_RULE,
                STATES(STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), STATE(2, "max_exp_avg_sq"), BOUND_STATE(3)),
                OPTIONS(ADAM_OPTIONS,
                        OPTION_SWITCH(BIAS_CORRECTION, "bias_correction", 1, 0, "0: none, as Reddi et al. write it")));

#endif
