/* Schedule-Free: Defazio et al., "The Road Less Scheduled", arXiv 2405.15682, as in the authors' package. The parameter is
 * y, where gradients are taken; x, an average of z, is what to evaluate with (adamod_evaluate_with):
 *
 *   a = lr min(1, t / warmup_steps)        w = t^r min(1, t / warmup_steps)^weight_lr_power        c = w / (sum of all w so far)
 *   AdamW   v = beta2 v + (1 - beta2) g^2, u = a / (sqrt(v / (1 - beta2^t)) + eps) g + a lambda y        SGD  u = a (g + lambda y)
 *   y = (1 - c) y + c z - (1 - beta1 (1 - c)) u        z = z - u        z = y at the start
 *   x = y + (1 - 1 / beta1) (z - y)
 *
 * The package's weights follow a schedule of lr as well; here they follow the warm-up alone, as there is no other. */
#ifdef ADAMOD_RULE_NAME

RULE(schedulefree_adamw)
RULE(schedulefree_sgd)
OPTION(WARMUP_STEPS)
OPTION(WEIGHT_POWER)
OPTION(WEIGHT_LR_POWER)

#elif defined(ADAMOD_RULE_FORMULAS)

FORMULA(schedulefree_adamw) {
    x.m = k->flag ? x.p : x.m;
    x.v = k->beta2 * x.v + k->beta2c * x.g * x.g;
    x.eta = k->lr / (SQRT(x.v * k->vscale) + k->eps);
    BOUND(s)
    const V u = x.step * x.g + k->low * x.p;
    x.p = x.p + k->weight * (x.m - x.p) - k->high * u;
    x.m = x.m - u;
    return x;
}
BOUNDABLE(schedulefree_adamw, M | VV, S)

FORMULA(schedulefree_sgd) {
    x.m = k->flag ? x.p : x.m;
    x.step = x.eta = (V){0} + k->lr;
    const V u = k->lr * x.g + k->low * x.p;
    x.p = x.p + k->weight * (x.m - x.p) - k->high * u;
    x.m = x.m - u;
    return x;
}
ONLY_KERNEL(schedulefree_sgd, M)

#elif defined(ADAMOD_RULE_COEFS)

/* The sum of all weights up to update t: of the warm-up, and after it. */
static ADAMOD__DEVICE double adamod__weight_sum(double t, double warmup, double r, double power) {
    const double last = t < warmup ? t : warmup;
    double sum = warmup > 0 ? adamod__power_sum((int64_t)last, -r - power) / pow(warmup, power) : 0;
    if (t > warmup)
        sum += adamod__power_sum((int64_t)t, -r) - (warmup > 0 ? adamod__power_sum((int64_t)warmup, -r) : 0);
    return sum;
}

COEFS(schedulefree_sgd) {
    const double t = (double)info->t, warmup = o[OPT_WARMUP_STEPS], part = t < warmup ? t / warmup : 1;
    const double r = o[OPT_WEIGHT_POWER], power = o[OPT_WEIGHT_LR_POWER];
    c->lr = o[OPT_LR] * part;
    c->low = adamod__decay_of(o) * part;
    c->decays = 1;
    c->weight = pow(t, r) * pow(part, power) / adamod__weight_sum(t, warmup, r, power);
    c->high = 1 - o[OPT_BETA1] * (1 - c->weight);
    c->flag = info->t == 1;
}

COEFS(schedulefree_adamw) {
    adamod__schedulefree_sgd_coefs(o, info, c);
    c->vscale = 1 / adamod__corrections_of(o, info).second;
}

#elif defined(ADAMOD_RULE_DESCRIPTION)

#define SCHEDULEFREE_OPTIONS                                                                                           \
    OPTION_REAL(BETA1, "beta1", 0.9, 0.01, 1, 1, "weight of the average x in y; from 0.01 on"),                        \
        OPTION_INTEGER(WARMUP_STEPS, "warmup_steps", 0, 0, 9007199254740991, 0,                                        \
                       "updates in which lr grows to its value"),                                                      \
        OPTION_REAL(WEIGHT_POWER, "r", 0, 0, 10, 0, "update t weighs t^r in the average"),                             \
        OPTION_REAL(WEIGHT_LR_POWER, "weight_lr_power", 2, 0, 10, 0,                                                   \
                    "in the warm-up, an update weighs its lr to this power")

RULE_DEFINITION(schedulefree_adamw, .summary = "AdamW that averages its path in place of a schedule", .year = 2024,
                .source = "arXiv 2405.15682", .averages = true,
                STATES(STATE(0, "z", .begins = ADAMOD_BEGINS_AS_PARAM), STATE(1, "exp_avg_sq"), BOUND_STATE(2)),
                OPTIONS(OPTION_LR(2.5e-3), SCHEDULEFREE_OPTIONS, OPTION_BETA2(0.999), OPTION_EPS(1e-8), OPTIONS_BOUND));
RULE_DEFINITION(schedulefree_sgd, .summary = "sgd that averages its path in place of a schedule", .year = 2024,
                .source = "arXiv 2405.15682", .averages = true, STATES(STATE(0, "z", .begins = ADAMOD_BEGINS_AS_PARAM)),
                OPTIONS(OPTION_LR(1), SCHEDULEFREE_OPTIONS));

#endif
