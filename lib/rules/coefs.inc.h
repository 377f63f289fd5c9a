/* The coefficients that rules' formulas read, from the options and the number of the update. Included by rules.c and,
 * for the device, by kernels/cuda/prepare.cu. */
#define COEFS(rule)                                                                                                    \
    static ADAMOD__DEVICE void adamod__##rule##_coefs(const double *o __attribute__((unused)),                         \
                                                      const step_info *info __attribute__((unused)),                   \
                                                      adamod__coef_f64 *c __attribute__((unused)))

/* 1 with the momental bound, else 0. */
static ADAMOD__DEVICE int adamod__bounded(const double *o) { return o[OPT_BOUND] == BOUND_MOMENTAL; }

/* The coefficients before COEFS: options of the same names, no bias corrections, and of BOUNDABLE's variants the
 * one with the bound and the caution that are set. Options that a rule does not have are 0. */
static ADAMOD__DEVICE void adamod__option_coefs(const double *o, adamod__coef_f64 *c) {
    c->lr = o[OPT_LR];
    c->eps = o[OPT_EPS];
    c->beta1 = o[OPT_BETA1];
    c->beta1c = 1 - o[OPT_BETA1];
    c->beta2 = o[OPT_BETA2];
    c->beta2c = 1 - o[OPT_BETA2];
    c->mscale = c->vscale = c->caution = 1;
    c->variant = adamod__bounded(o) + 2 * (o[OPT_CAUTIOUS] != 0);
}

/* 1 - beta^t of both moments. */
typedef struct adamod__corrections {
    double first, second;
} adamod__corrections;
static ADAMOD__DEVICE adamod__corrections adamod__corrections_of(const double *o, const step_info *info) {
    const double t = (double)info->t;
    const adamod__corrections x = {1 - pow(o[OPT_BETA1], t), 1 - pow(o[OPT_BETA2], t)};
    return x;
}

/* Bias corrections in the flavour that is set; rules without the option have paper. */
static ADAMOD__DEVICE void adamod__moments(const double *o, const step_info *info, adamod__coef_f64 *c) {
    const adamod__corrections x = adamod__corrections_of(o, info);
    if (o[OPT_FLAVOUR] == FLAVOUR_PUBLISHED) {
        c->lr = o[OPT_LR] * sqrt(x.second) / x.first;
    } else if (o[OPT_FLAVOUR] == FLAVOUR_KERAS || o[OPT_FLAVOUR] == FLAVOUR_ADAMD) {
        if (o[OPT_FLAVOUR] == FLAVOUR_KERAS) c->mscale = 1 / x.first;
        c->lr = o[OPT_LR] * sqrt(x.second);
    } else {
        c->mscale = 1 / x.first;
        c->vscale = 1 / x.second;
    }
}

/* How much of the parameter decoupled or independent decay takes. */
static ADAMOD__DEVICE double adamod__decay_of(const double *o) {
    const double factor = o[OPT_DECAY] == DECAY_DECOUPLED ? o[OPT_LR] : o[OPT_DECAY] == DECAY_INDEPENDENT;
    return factor * o[OPT_WEIGHT_DECAY];
}

/* The learning rate of sgd that AdaBound's bounds close in on: it follows the schedule of lr. */
static ADAMOD__DEVICE double adamod__final_lr(const double *o, double base_lr) {
    return base_lr > 0 ? o[OPT_FINAL_LR] * o[OPT_LR] / base_lr : o[OPT_FINAL_LR];
}

/* The learning rate of an element whose gradients were all zeros, with the largest bias correction; 0 without eps. */
static ADAMOD__DEVICE double adamod__rate_of_zeros(const double *o) {
    return o[OPT_EPS] > 0 ? o[OPT_LR] / (1 - o[OPT_BETA1]) / o[OPT_EPS] : 0;
}

/* Checks numbers computed from options that are each in range. rates: the largest learning rate of an element; factors: the
 * largest factor of lr. The rate of zeros must be finite, since it is multiplied by a zero. */
static ADAMOD__DEVICE range_fault adamod__fault_combined(const double *o, double base_lr, double rates,
                                                         double factors) {
    /* a quotient is slow on a device, so products are compared first */
    const bool rate = o[OPT_LR] <= rates * o[OPT_EPS] * (1 - o[OPT_BETA1]);
    if (!rate && adamod__rate_of_zeros(o) > rates) return RANGE_RATE;
    const bool final = base_lr == o[OPT_LR] || o[OPT_FINAL_LR] == 0;
    return !final && !(adamod__final_lr(o, base_lr) <= factors) ? RANGE_FINAL : RANGE_FINE;
}

/* 1 + 2^-gamma + ... + t^-gamma: the first terms one by one, the rest by the Euler-Maclaurin formula, whose error here
 * is under 2e-14 of the sum for gamma from -20 to 10. */
static ADAMOD__DEVICE double adamod__power_sum(int64_t t, double gamma) {
    enum { DIRECT = 64 };
    double sum = 0;
    for (int64_t k = 1; k <= t && k <= DIRECT; k++) {
        /* clang replaces pow of a known base by another function, exp2 for 2, which may round otherwise. */
        const volatile double base = (double)k;
        sum += pow(base, -gamma);
    }
    if (t <= DIRECT) return sum;
    const volatile double direct = DIRECT;
    const double a = direct, b = (double)t;
    /* (b^(1-gamma) - a^(1-gamma)) / (1-gamma), also where gamma is near 1 */
    const double power = 1 - gamma, span = log(b / a);
    const double integral = power == 0 ? span : pow(a, power) * expm1(power * span) / power;
    const double ends = (pow(b, -gamma) - pow(a, -gamma)) / 2; /* the term a is in sum already */
    const double first = gamma / 12 * (pow(a, -gamma - 1) - pow(b, -gamma - 1));
    const double rising = gamma * (gamma + 1) * (gamma + 2);
    const double third = rising / 720 * (pow(a, -gamma - 3) - pow(b, -gamma - 3));
    sum = sum + integral + ends + first - third;
    if (gamma >= -4) return sum; /* the next terms are less than a rounding error */
    const double fifth = rising * (gamma + 3) * (gamma + 4) / 30240 * (pow(a, -gamma - 5) - pow(b, -gamma - 5));
    const double seventh = rising * (gamma + 3) * (gamma + 4) * (gamma + 5) * (gamma + 6) / 1209600 *
                           (pow(a, -gamma - 7) - pow(b, -gamma - 7));
    return sum + fifth - seventh;
}

#define ADAMOD_RULE_COEFS
#include "rules/list.inc.h"
#undef ADAMOD_RULE_COEFS
#undef COEFS

/* The coefficients that every rule has. grad_scale includes the clipping of the global norm. */
static ADAMOD__DEVICE void adamod__common_coefs(const double *o, double grad_scale, adamod__coef_f64 *c) {
    c->beta3 = o[OPT_BETA3];
    c->beta3c = 1 - o[OPT_BETA3];
    c->idle = o[OPT_SKIP_IDLE] != 0 ? 0 : -INFINITY;
    c->gscale = o[OPT_MAXIMIZE] != 0 ? -grad_scale : grad_scale;
    c->clip = o[OPT_CLIP_VALUE];
    c->l2 = o[OPT_DECAY] == DECAY_L2 ? o[OPT_WEIGHT_DECAY] : 0;
    c->decay = c->decays ? 0 : adamod__decay_of(o);
}
