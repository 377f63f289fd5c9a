/* Options by name, and the hyper-parameters of the raw interface. */
#include "optim/internal.h"
#include "core/edit_distance.h"
#include "core/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const adamod__decays[] = {"none", "l2", "decoupled", "independent", NULL};
static const char *const adamod__low_precisions[] = {"master", "stochastic", NULL};
static const char *const adamod__state_types[] = {"auto", "bf16", NULL};
static const char *const adamod__state_types_q8[] = {"auto", "bf16", "q8", NULL};
static const char *const adamod__nonfinites[] = {"pass", "skip", "error", NULL};

static const option_spec adamod__common[] = {
    OPTION_REAL(WEIGHT_DECAY, "weight_decay", 0, 0, INFINITY, 1, "strength of the weight decay (lambda)"),
    OPTION_CHOICE(DECAY, "decay", DECAY_DECOUPLED, adamod__decays, 0,
                  "how weight_decay acts; l2: added to the gradient; decoupled: times lr; independent: without lr"),
    OPTION_SWITCH(MAXIMIZE, "maximize", 0, 0, "1: ascend instead of descend"),
    OPTION_OF(CLIP_VALUE, ADAMOD_REAL, "clip_value", INFINITY, 0, INFINITY, 1, 0, NULL, 0, 0,
              "gradients are clamped to plus and minus this"),
    OPTION_CHOICE(LOW_PRECISION, "low_precision", LOW_PRECISION_MASTER, adamod__low_precisions, 1,
                  "bf16 and f16 parameters: keep an f32 master copy, or round at random"),
    OPTION_CHOICE(STATE_TYPE, "state_type", STATE_AUTO, adamod__state_types, 1,
                  "type of the states; auto: that of the computation; bf16: rounded at random"),
    OPTION_INTEGER(MIN_8BIT_SIZE, "min_8bit_size", 0, 0, 9007199254740991, 1,
                   "with state_type q8, parameters with fewer elements have states of type auto"),
    OPTION_OF(GRAD_SCALE, ADAMOD_REAL, "grad_scale", 1, 0, INFINITY, 1, 1, NULL, 0, 1,
              "gradients are multiplied by this"),
    OPTION_OF(CLIP_NORM, ADAMOD_REAL, "clip_norm", INFINITY, 0, INFINITY, 1, 0, NULL, 0, 1,
              "largest global norm of the gradients"),
    OPTION_OF(NONFINITE, ADAMOD_CHOICE, "nonfinite", NONFINITE_PASS, 0, 2, 0, 0, adamod__nonfinites, 0, 1,
              "what to do if a gradient or its square is not finite"),
    OPTION_OF(SEED, ADAMOD_INTEGER, "seed", 0, 0, 9007199254740991, 0, 0, NULL, 0, 1, "seed of stochastic rounding"),
    OPTION_OF(THREADS, ADAMOD_INTEGER, "threads", 0, 0, 1024, 0, 0, NULL, 0, 1,
              "number of threads; 0: one for each core"),
};
enum { COMMON_COUNT = sizeof adamod__common / sizeof *adamod__common };

/* For rules whose states can be kept in 8 bits. */
static const option_spec adamod__state_type_q8 =
    OPTION_CHOICE(STATE_TYPE, "state_type", STATE_AUTO, adamod__state_types_q8, 1,
                  "type of the states; auto: that of the computation; bf16, q8: 16 or 8 bits, rounded at random");

const option_spec *adamod__option(const rule *r, int index) {
    if (index < 0 || index >= r->n_options + COMMON_COUNT) return NULL;
    const option_spec *o = index < r->n_options ? &r->options[index] : &adamod__common[index - r->n_options];
    return o->id == OPT_STATE_TYPE && r->q8 ? &adamod__state_type_q8 : o;
}

/* Suggestions for an unknown name: a list of all names, and the nearest one if it is near enough. */
typedef struct suggestion {
    const char *name, *best;
    int distance;
    char known[24 * RULE_COUNT];
} suggestion;

static void adamod__suggest(suggestion *s, const char *separator, const char *candidate) {
    const size_t used = strlen(s->known);
    snprintf(s->known + used, sizeof s->known - used, "%s%s", used ? separator : "", candidate);
    const int d = adamod__edit_distance(s->name, candidate);
    /* Most letters of a short word must be right: three changes turn it into any other. */
    if (d > 3 || 2 * d > (int)strlen(s->name) || (s->best && d >= s->distance)) return;
    s->distance = d;
    s->best = candidate;
}

const rule *adamod__find_rule(const char *name) {
    if (!name) {
        adamod__refuse("the rule's name is NULL");
        return NULL;
    }
    for (int i = 0; i < RULE_COUNT; i++) {
        const rule *alias = adamod__rules[i]->alias;
        if (strcmp(adamod__rules[i]->name, name) == 0) return adamod__rules[i];
        if (alias && strcmp(alias->name, name) == 0) return alias;
    }
    suggestion s = {.name = name};
    for (int i = 0; i < RULE_COUNT; i++) adamod__suggest(&s, ", ", adamod__rules[i]->name);
    if (s.best) adamod__fail(ADAMOD_ERROR_NAME, "no rule '%.40s'; did you mean '%s'?", name, s.best);
    else adamod__fail(ADAMOD_ERROR_NAME, "no rule '%.40s'; there are %s", name, s.known);
    return NULL;
}

const option_spec *adamod__find_option(const rule *r, const char *name) {
    if (!name) {
        adamod__refuse("%s: the option's name is NULL", r->name);
        return NULL;
    }
    const option_spec *o;
    for (int i = 0; (o = adamod__option(r, i)); i++) {
        if (strcmp(o->info.name, name) == 0) return o;
    }
    suggestion s = {.name = name};
    for (int i = 0; (o = adamod__option(r, i)); i++) {
        adamod__suggest(&s, i == r->n_options ? "; all rules have " : ", ", o->info.name);
    }
    if (s.best) adamod__fail(ADAMOD_ERROR_NAME, "%s has no option '%.40s'; did you mean '%s'?", r->name, name, s.best);
    else adamod__fail(ADAMOD_ERROR_NAME, "%s has no option '%.40s'; its own are %.383s", r->name, name, s.known);
    return NULL;
}

static bool adamod__within(const adamod_option *o, double value) {
    const bool above = o->min_open ? value > o->min : value >= o->min;
    const bool below = o->max_open ? value < o->max : value <= o->max;
    return above && below && (o->kind == ADAMOD_REAL || value == floor(value));
}

adamod_status adamod__check_value(const rule *r, const option_spec *o, double value) {
    const adamod_option *i = &o->info;
    if (adamod__within(i, value)) return ADAMOD_OK;
    char is[32], min[32], max[32], usual[32];
    const bool divisor = i->min_open && (o->id == OPT_EPS || o->id == OPT_ROOT_EPS || o->id == OPT_EPS1);
    return adamod__fail(ADAMOD_ERROR_RANGE, "%s: %s is %s, expected %s%s %s %s %s %s%s%s", r->name, i->name,
                        adamod__number(value, is), i->kind == ADAMOD_REAL ? "" : "a whole number, ",
                        adamod__number(i->min, min), i->min_open ? "<" : "<=", i->name,
                        i->max_open ? "<" : "<=", adamod__number(i->max, max),
                        divisor ? ": it alone divides where all gradients are zero; the default is " : "",
                        divisor ? adamod__number(i->value, usual) : "");
}

/* The product of two such numbers is finite. A divisor is not subnormal, since a processor may take that for 0. */
number_range adamod__number_range(option_id id, adamod_type type) {
    const bool wide = type == ADAMOD_F64;
    const double tiny = wide ? 2.3e-308 : 1.2e-38, factor = wide ? 1.3e154 : 1.8e19;
    switch (id) {
        case OPT_LR:
        case OPT_FINAL_LR:
        case OPT_MIX:
        case OPT_EPS2: return (number_range){0, factor};
        case OPT_WEIGHT_DECAY: return (number_range){0, wide ? 1e153 : 1e18}; /* L2: squared with the parameter */
        case OPT_EPS:
        case OPT_ROOT_EPS:
        case OPT_EPS1: return (number_range){tiny, factor};
        case OPT_INITIAL: return (number_range){0, wide ? 1.6e308 : 3.2e38};
        case OPT_GRAD_SCALE: return (number_range){tiny, wide ? 1.7e308 : 3.4e38};
        case OPT_CLIP_VALUE:
        case OPT_CLIP_NORM: return (number_range){tiny, INFINITY};
        case OPT_NS_A:
        case OPT_NS_B:
        case OPT_NS_C:
        case OPT_SHAMPOO_BETA: return (number_range){-INFINITY, INFINITY};
        default: return (number_range){0, INFINITY}; /* betas; and what becomes a small number in f64 */
    }
}

static const char *adamod__colon(const char *where) { return where ? ": " : ""; }

adamod_status adamod__check_number(const rule *r, const option_spec *o, double value, adamod_type type,
                                   const char *where) {
    const number_range range = adamod__number_range(o->id, type);
    if (value == 0 || (value >= range.least && value <= range.most)) return ADAMOD_OK;
    const bool small = value < range.least;
    char is[32], limit[32];
    return adamod__fail(ADAMOD_ERROR_RANGE, "%s%s%s: %s is %s, expected %s%s %s %s in %s", where ? where : "",
                        adamod__colon(where), r->name, o->info.name, adamod__number(value, is),
                        small && o->info.min == 0 && !o->info.min_open ? "0 or " : "", o->info.name,
                        small ? ">=" : "<=", adamod__number(small ? range.least : range.most, limit),
                        adamod__type_name(type));
}

adamod_status adamod__combined_fault(const rule *r, range_fault fault, double value, adamod_type type,
                                     const char *where) {
    char limit[32];
    const double most = adamod__number_range(fault == RANGE_RATE ? OPT_GRAD_SCALE : OPT_LR, type).most;
    bool beta1 = false;
    for (int i = 0; i < r->n_options; i++) beta1 = beta1 || r->options[i].id == OPT_BETA1;
    return adamod__fail(ADAMOD_ERROR_RANGE, "%s%s%s: %s is %.0e, expected at most %s in %s", where ? where : "",
                        adamod__colon(where), r->name,
                        fault == RANGE_FINAL ? "final_lr times lr's schedule"
                        : beta1              ? "lr / (1 - beta1) / eps"
                                             : "lr / eps",
                        value, adamod__number(most, limit), adamod__type_name(type));
}

adamod_status adamod__check_numbers(const rule *r, const double *options, adamod_type type, const char *where) {
    const option_spec *o;
    adamod_status status = ADAMOD_OK;
    for (int i = 0; !status && (o = adamod__option(r, i)); i++) {
        if (o->info.kind == ADAMOD_REAL) status = adamod__check_number(r, o, options[o->id], type, where);
    }
    return status ? status : adamod__check_combined(r, options, options[OPT_LR], type, where);
}

adamod_status adamod__parse_value(const rule *r, const option_spec *o, const char *text, double *value) {
    if (!text) return adamod__refuse("%s: the value of %s is NULL", r->name, o->info.name);
    for (int i = 0; o->info.choices && o->info.choices[i]; i++) {
        if (strcmp(o->info.choices[i], text) != 0) continue;
        *value = i;
        return ADAMOD_OK;
    }
    char *end;
    const double x = adamod__read_number(text, &end);
    if (o->info.kind == ADAMOD_CHOICE) {
        suggestion s = {.name = text};
        char meant[64] = "";
        for (int i = 0; o->info.choices[i]; i++) adamod__suggest(&s, ", ", o->info.choices[i]);
        if (s.best) snprintf(meant, sizeof meant, "; did you mean '%.40s'?", s.best);
        return adamod__fail(ADAMOD_ERROR_NAME, "%s: %s is '%.40s', expected one of %s%s", r->name, o->info.name, text,
                            s.known, meant);
    }
    if (end == text || *end) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "%s: %s is '%.40s', expected a number", r->name, o->info.name, text);
    }
    *value = x;
    return adamod__check_value(r, o, x);
}

void adamod__default_options(const rule *r, double options[OPT_COUNT]) {
    const option_spec *o;
    memset(options, 0, OPT_COUNT * sizeof *options);
    for (int i = 0; (o = adamod__option(r, i)); i++) options[o->id] = o->info.value;
    options[OPT_DECAY] = adamod__default_decay(r);
    options[OPT_WEIGHT_DECAY] = r->default_weight_decay;
}

static adamod_status adamod__option_out(const rule *r, const option_spec *o, adamod_option *out) {
    if (!out) return adamod__refuse("out is NULL");
    *out = o->info;
    if (o->id == OPT_DECAY) out->value = adamod__default_decay(r);
    if (o->id == OPT_WEIGHT_DECAY) out->value = r->default_weight_decay;
    return ADAMOD_OK;
}

adamod_status adamod_option_at(const char *rule_name, int index, adamod_option *out) {
    const rule *r = adamod__find_rule(rule_name);
    if (!r) return rule_name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    const option_spec *o = adamod__option(r, index);
    if (!o) return adamod__fail(ADAMOD_ERROR_NAME, "%s has no option number %d", r->name, index);
    return adamod__option_out(r, o, out);
}

adamod_status adamod_option_find(const char *rule_name, const char *name, adamod_option *out) {
    const rule *r = adamod__find_rule(rule_name);
    if (!r) return rule_name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    const option_spec *o = adamod__find_option(r, name);
    if (!o) return name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    return adamod__option_out(r, o, out);
}

/* ---- hyper-parameters ---- */

adamod_status adamod_hyper_create(adamod_hyper **out, const char *rule_name) {
    if (!out) return adamod__refuse("out is NULL");
    const rule *r = adamod__find_rule(rule_name);
    if (!r) return rule_name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    const kernel_set *kernels = adamod__kernels_choose();
    if (!kernels) return ADAMOD_ERROR_NAME;
    adamod_hyper *h = malloc(sizeof *h);
    if (!h) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the options of %s", r->name);
    h->rule = r;
    h->kernels = kernels;
    adamod__default_options(r, h->options);
    *out = h;
    return ADAMOD_OK;
}

void adamod_hyper_free(adamod_hyper *h) { free(h); }

/* Refuses options that only an optimizer can follow; the raw interface would ignore them. */
static adamod_status adamod__hyper_allows(const adamod_hyper *h, const option_spec *o) {
    if (o->id != OPT_CLIP_NORM && o->id != OPT_NONFINITE && o->id != OPT_THREADS) return ADAMOD_OK;
    return adamod__refuse("%s: %s needs an optimizer: with a hyper use adamod_norm, grad_scale and a pool",
                          h->rule->name, o->info.name);
}

/* value NULL: it is in text. */
static adamod_status adamod__set_hyper(adamod_hyper *h, const char *option, const double *value, const char *text) {
    if (!h) return adamod__refuse("the hyper is NULL");
    const option_spec *o = adamod__find_option(h->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    double x = value ? *value : 0;
    ADAMOD__TRY(adamod__hyper_allows(h, o));
    ADAMOD__TRY(value ? adamod__check_value(h->rule, o, x) : adamod__parse_value(h->rule, o, text, &x));
    h->options[o->id] = x;
    return ADAMOD_OK;
}

adamod_status adamod_hyper_set(adamod_hyper *h, const char *option, double value) {
    return adamod__set_hyper(h, option, &value, NULL);
}

adamod_status adamod_hyper_set_text(adamod_hyper *h, const char *option, const char *text) {
    return adamod__set_hyper(h, option, NULL, text);
}

adamod_status adamod_hyper_get(const adamod_hyper *h, const char *option, double *out) {
    if (!h || !out) return adamod__refuse("%s is NULL", h ? "out" : "the hyper");
    const option_spec *o = adamod__find_option(h->rule, option);
    if (!o) return option ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    *out = h->options[o->id];
    return ADAMOD_OK;
}

adamod_status adamod_hyper_check(const adamod_hyper *h, adamod_type param_type) {
    if (!h) return adamod__refuse("the hyper is NULL");
    if (!adamod__is_real(param_type)) {
        return adamod__refuse("param_type is %d, expected ADAMOD_F32, _F64, _BF16 or _F16", (int)param_type);
    }
    const bool wide = param_type == ADAMOD_F64 && h->options[OPT_STATE_TYPE] == STATE_AUTO;
    return adamod__check_numbers(h->rule, h->options, wide ? ADAMOD_F64 : ADAMOD_F32, NULL);
}

adamod_status adamod_state_at(const adamod_hyper *h, int ndim, const int64_t *shape, int index,
                              adamod_state_desc *out) {
    if (!h || !out) return adamod__refuse("%s is NULL", h ? "out" : "the hyper");
    ADAMOD__TRY(adamod__check_shape("state_at", ndim, shape));
    if (index < 0 || index >= ADAMOD_MAX_STATES) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "state index is %d, expected 0 <= index < %d", index,
                            ADAMOD_MAX_STATES);
    }
    state_spec specs[ADAMOD_MAX_STATES];
    adamod__states(h->rule, h->options, ndim, specs);
    return adamod__state_size(&specs[index], h->options, ndim, shape, out);
}
