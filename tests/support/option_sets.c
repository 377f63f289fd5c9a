/* Options for the library and the reference: see option_sets.h. */
#include "option_sets.h"
#include "check.h"
#include "values.h"

#include <stddef.h>
#include <stdlib.h>

/* ---- options, for both sides ---- */

#define FIELD(name)                                                                                                    \
    { #name, offsetof(ref_options, name), 0 }
#define COUNT(name)                                                                                                    \
    { #name, offsetof(ref_options, name), 1 }
static const struct {
    const char *name;
    size_t at;
    int whole;
} fields[] = {
    FIELD(lr),
    FIELD(beta1),
    FIELD(beta2),
    FIELD(beta3),
    FIELD(eps),
    FIELD(momentum),
    FIELD(dampening),
    FIELD(weight_decay),
    FIELD(lr_decay),
    FIELD(initial),
    FIELD(alpha),
    FIELD(rho),
    FIELD(final_lr),
    FIELD(gamma),
    FIELD(eps1),
    FIELD(eps2),
    FIELD(clip_threshold),
    FIELD(decay_rate),
    FIELD(momentum_decay),
    FIELD(beta_slow),
    FIELD(beta_diff),
    FIELD(r),
    FIELD(weight_lr_power),
    FIELD(ns_a),
    FIELD(ns_b),
    FIELD(ns_c),
    FIELD(adamw_lr),
    FIELD(adamw_beta1),
    FIELD(adamw_beta2),
    FIELD(adamw_eps),
    FIELD(d0),
    FIELD(d_coef),
    FIELD(growth_rate),
    FIELD(beta_d),
    FIELD(clip_value),
    FIELD(grad_scale),
    COUNT(nesterov),
    COUNT(ns_steps),
    COUNT(adjust_lr),
    COUNT(use_muon),
    COUNT(centered),
    COUNT(window),
    COUNT(relative_step),
    COUNT(bias_correction),
    COUNT(maximize),
    COUNT(scale_parameter),
    COUNT(warmup_init),
    COUNT(decay),
    COUNT(flavour),
    COUNT(rectify),
    COUNT(clip),
    COUNT(alpha_warmup),
    COUNT(beta_slow_warmup),
    COUNT(warmup_steps),
    COUNT(bs),
    COUNT(use_bias_correction),
    COUNT(safeguard_warmup),
    COUNT(bound),
};
enum { FIELDS = sizeof fields / sizeof *fields };

const char *reference_option(int i) { return i < FIELDS ? fields[i].name : NULL; }

double reference_value(const ref_options *o, int i) {
    const char *at = (const char *)o + fields[i].at;
    return fields[i].whole ? *(const int *)at : *(const double *)at;
}

/* A reference's option by the library's name and numbers; false if it has none of that name. */
static bool set_reference(ref_options *o, const char *name, double value) {
    if (!strcmp(name, "spatial")) return o->spatial_max = value == 0, true;
    if (!strcmp(name, "lr")) o->base_lr = value;
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(fields[i].name, name) != 0) continue;
        if (fields[i].whole) *(int *)((char *)o + fields[i].at) = (int)value;
        else *(double *)((char *)o + fields[i].at) = value;
        return true;
    }
    return false;
}

/* Words of choices, by their numbers in the library. */
static double value_of(const char *text) {
    static const char *const words[][4] = {{"paper", "published", "keras", "adamd"},
                                           {"none", "l2", "decoupled", "independent"},
                                           {"max", "", "", ""},
                                           {"", "momental", "", ""},
                                           {"original", "match_rms_adamw", "spectral_unclamped", ""}};
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 4; j++) {
            if (!strcmp(words[i][j], text)) return j;
        }
    }
    return strtod(text, NULL);
}

void apply(const char *text, ref_options *o, adamod_optimizer *opt, int group, adamod_hyper *h) {
    char copy[256], *rest = copy, *name, *value;
    snprintf(copy, sizeof copy, "%s", text);
    while (next_option(&rest, &name, &value)) {
        if (o) {
            const double number = !strcmp(name, "spatial") && !strcmp(value, "none") ? 1 : value_of(value);
            const bool known = set_reference(o, name, number);
            CHECK(known || !strcmp(name, "clip_norm") || !strcmp(name, "state_type") || !strcmp(name, "low_precision"));
        }
        if (opt)
            CHECK_INT(group < 0 ? adamod_set_text(opt, name, value) : adamod_group_set_text(opt, group, name, value),
                      0);
        if (h) CHECK_INT(adamod_hyper_set_text(h, name, value), 0);
    }
}

/* ---- the lists ---- */

/* For every rule. */
static const char *const common_sets[] = {
    "",
    "lr=0.1",
    "weight_decay=0.02 decay=none",
    "weight_decay=0.01 decay=l2",
    "weight_decay=0.02 decay=decoupled",
    "weight_decay=0.002 decay=independent",
    "maximize=1",
    "clip_value=0.5",
    "grad_scale=0.0078125",
    "grad_scale=0.3 maximize=1 clip_value=2 weight_decay=0.01 decay=l2",
    "grad_scale=0.3 maximize=1 clip_value=2 weight_decay=0.01 decay=decoupled",
};
enum { COMMON_SETS = sizeof common_sets / sizeof *common_sets };

const option_set own_sets[] = {
    {"adamod", "flavour=paper beta3=0.9"},
    {"adamod", "flavour=published"},
    {"adamod", "flavour=keras"},
    {"adamod", "flavour=adamd beta3=0.9"},
    {"adamod", "flavour=published beta3=0.9999 weight_decay=0.05"},
    {"adamod", "flavour=keras beta1=0.5 beta2=0.95 beta3=0.8 lr=0.02 eps=0.001"},
    {"adamod", "beta3=0"},
    {"adamod", "beta1=0 beta2=0"},
    {"adam", "flavour=published"},
    {"adam", "flavour=keras"},
    {"adam", "flavour=adamd"},
    {"adam", "beta1=0 beta2=0.99 eps=0.1"},
    {"adam", "beta1=0.99 beta2=0.9 flavour=published eps=1e-7"},
    {"adam", "bound=momental"},
    {"adam", "bound=momental flavour=published beta3=0.9"},
    {"amsgrad", "flavour=published"},
    {"amsgrad", "bound=momental beta3=0.9"},
    {"amsgrad", "bound=momental bias_correction=0"},
    {"amsgrad", "flavour=keras"},
    {"amsgrad", "flavour=adamd"},
    {"amsgrad", "bias_correction=0"},
    {"amsgrad", "bias_correction=0 flavour=published beta2=0.9"},
    {"sgd", "momentum=0.9"},
    {"sgd", "momentum=0.9 nesterov=1"},
    {"sgd", "momentum=0.9 dampening=0.5"},
    {"sgd", "momentum=0.5 dampening=1 nesterov=1"},
    {"sgd", "momentum=0.9 nesterov=1 weight_decay=0.01 maximize=1"},
    {"adagrad", "lr_decay=0.1"},
    {"adagrad", "bound=momental beta3=0.8"},
    {"adagrad", "initial=0.1 eps=1e-7"},
    {"adagrad", "initial=3 lr_decay=0.01 weight_decay=0.01 decay=decoupled"},
    {"rmsprop", "alpha=0.9"},
    {"rmsprop", "bound=momental"},
    {"rmsprop", "bound=momental momentum=0.9"},
    {"rmsprop", "bound=momental centered=1 beta3=0.9"},
    {"rmsprop", "bound=momental centered=1 momentum=0.5"},
    {"rmsprop", "momentum=0.9"},
    {"rmsprop", "centered=1"},
    {"rmsprop", "centered=1 momentum=0.8"},
    {"rmsprop", "centered=1 eps=0.1 weight_decay=0.01"},
    {"rmsprop", "momentum=0.5 eps=1 weight_decay=0.01 decay=decoupled"},
    {"adadelta", "rho=0.95 eps=1e-7"},
    {"adadelta", "rho=0.5 lr=0.3"},
    {"adadelta", "bound=momental beta3=0.9"},
    {"adadelta", "weight_decay=0.01 decay=decoupled"},
    {"adabound", "gamma=0.1"},
    {"adabound", "gamma=0"},
    {"adabound", "final_lr=0.001 gamma=0.01 lr=0.01"},
    {"amsbound", "gamma=0.1"},
    {"amsbound", "final_lr=0.001 gamma=0.01 beta2=0.9"},
    {"adashift", "spatial=none"},
    {"adashift", "window=1"},
    {"adashift", "window=1 spatial=none"},
    {"adashift", "window=3"},
    {"adashift", "window=3 spatial=none beta1=0.5 beta2=0.9"},
    {"adashift", "window=10 spatial=max lr=0.01 eps=0.001 weight_decay=0.02"},
    {"adashift", "window=10 spatial=none beta1=0"},
    {"adashift", "window=3 bound=momental beta3=0.9"},
    {"adashift", "window=3 spatial=none bound=momental beta3=0.9"},
    {"nosadam", "bias_correction=0"},
    {"nosadam", "gamma=0"},
    {"nosadam", "bound=momental beta3=0.95"},
    {"nosadam", "gamma=1"},
    {"nosadam", "gamma=1.7 beta1=0.5"},
    {"adafactor", "beta1=0.9"},
    {"adafactor", "relative_step=0"},
    {"adafactor", "relative_step=0 scale_parameter=0"},
    {"adafactor", "relative_step=0 scale_parameter=0 beta1=0.8 weight_decay=0.1"},
    {"adafactor", "scale_parameter=0"},
    {"adafactor", "warmup_init=1"},
    {"adafactor", "warmup_init=1 beta1=0.5 weight_decay=3 clip_threshold=0.3"},
    {"adafactor", "decay_rate=0.5 clip_threshold=2 eps1=1e-8 eps2=0.9"},
    {"adafactor", "clip_threshold=inf relative_step=0"},
    {"adafactor", "bound=momental beta3=0.9"},
    {"adafactor", "bound=momental beta3=0.9 beta1=0.9 relative_step=0 scale_parameter=0"},
    {"radam", "beta2=0.9"},
    {"radam", "bound=momental beta2=0.9 beta3=0.9"},
    {"radam", "beta2=0.5"},
    {"radam", "beta1=0.5 beta2=0.99 lr=0.1 eps=0.001"},
    {"lion", "beta1=0.5 beta2=0.9"},
    {"nadam", "beta1=0.5 beta2=0.9 momentum_decay=0.5 eps=0.001"},
    {"nadam", "momentum_decay=0"},
    {"nadam", "bound=momental beta3=0.9"},
    {"adamax", "beta1=0.5 beta2=0.9 eps=0.001"},
    {"adamax", "bound=momental beta3=0.9"},
    {"adabelief", "rectify=0"},
    {"adabelief", "rectify=0 eps=0.001 beta1=0.5 beta2=0.9"},
    {"adabelief", "beta2=0.9 eps=1e-8"},
    {"adabelief", "bound=momental beta3=0.9 eps=1e-8"},
    {"adopt", "clip=0"},
    {"adopt", "beta1=0.5 beta2=0.9 eps=0.1"},
    {"adopt", "bound=momental beta3=0.9"},
    {"adopt", "bound=momental clip=0"},
    {"ademamix", "alpha=5 beta_slow=0.99 beta1=0.5"},
    {"ademamix", "alpha_warmup=30 beta_slow_warmup=40"},
    {"ademamix", "beta_slow=0.999999999 beta_slow_warmup=400 alpha=1000000"},
    {"ademamix", "bound=momental beta3=0.9"},
    {"adan", "beta1=0.9 beta2=0.9 beta_diff=0.5 eps=0.001"},
    {"adan", "bound=momental beta3=0.9"},
    {"lamb", "bias_correction=0 beta1=0.5 beta2=0.9"},
    {"lamb", "bound=momental beta3=0.9 weight_decay=0.1"},
    {"stableadamw", "beta1=0.5 beta2=0.9 eps=0.001"},
    {"stableadamw", "bound=momental beta3=0.9"},
    {"schedulefree_adamw", "warmup_steps=20 beta1=0.5"},
    {"schedulefree_adamw", "r=1.5 weight_lr_power=1 warmup_steps=90 bound=momental"},
    {"schedulefree_sgd", "lr=0.1 warmup_steps=20 r=2"},
    {"schedulefree_sgd", "lr=0.1 warmup_steps=90 r=10 weight_lr_power=10"},
    {"sophia", "beta1=0.5 rho=0.1 bs=7"},
    {"sophia", "bound=momental"},
    {"prodigy", "d0=0.001 d_coef=2"},
    {"prodigy", "d0=0.001 growth_rate=1.05 use_bias_correction=1 beta1=0.5 beta2=0.9 eps=0.001"},
    {"prodigy", "d0=0.01 safeguard_warmup=1 beta_d=0.9 lr=0.5 weight_decay=0.1"},
    {"prodigy", "d0=0.001 bound=momental beta3=0.9"},
    {"muon", "adamw_lr=0.01 adamw_beta1=0.5 adamw_beta2=0.9 adamw_eps=0.001"},
    {"soap", "beta1=0.5 beta2=0.9 eps=0.001"},
    {"soap", "bias_correction=0 weight_decay=0.1"},
};
const int own_set_count = sizeof own_sets / sizeof *own_sets;

bool set_at(int i, option_set *out) {
    if (i < own_set_count) {
        *out = own_sets[i];
        return true;
    }
    i -= own_set_count;
    *out = (option_set){adamod_rule_name(i / COMMON_SETS), common_sets[i % COMMON_SETS]};
    return out->rule != NULL;
}
