/* The rules' descriptions: options, states, and the coefficients their formulas read. The formulas stand beside them in
 * rules/, and are compiled in kernels/. */
#include "optim/internal.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

#include "rules/caution.h"
#include "rules/coefs.inc.h"

static const char *const adamod__bounds[] = {"none", "momental", NULL};
static const char *const adamod__flavours[] = {"paper", "published", "keras", "adamd", NULL};

/* Options of several rules. */
#define OPTION_LR(value) OPTION_REAL(LR, "lr", value, 0, INFINITY, 1, "learning rate")
#define OPTION_DECAY_RATE_OF(id, name, value, help) OPTION_REAL(id, name, value, 0, 1, 1, help)
#define OPTION_BETA1(value) OPTION_DECAY_RATE_OF(BETA1, "beta1", value, "decay of the average of gradients")
#define OPTION_BETA2(value) OPTION_DECAY_RATE_OF(BETA2, "beta2", value, "decay of the average of squared gradients")
/* A number that lr is divided by where all gradients were zeros. */
#define OPTION_DIVISOR(id, name, value, help)                                                                          \
    OPTION_OF(id, ADAMOD_REAL, name, value, 0, INFINITY, 1, 1, NULL, 0, 0, help)
#define OPTION_EPS(value) OPTION_DIVISOR(EPS, "eps", value, "added to the divisor")
#define OPTION_MOMENTUM                                                                                                \
    OPTION_STRUCTURAL_REAL(MOMENTUM, "momentum", 0, 0, 1, 1, "decay of the momentum buffer; 0: no buffer")

#define OPTION_FLAVOUR                                                                                                 \
    OPTION_CHOICE(FLAVOUR, "flavour", FLAVOUR_PAPER, adamod__flavours, 0,                                              \
                  "variant of the formula: where the bias corrections are")
#define OPTION_BETA3                                                                                                   \
    OPTION_DECAY_RATE_OF(BETA3, "beta3", 0.999, "decay of the bound's average of learning rates; 0: no bound")
#define OPTION_SKIP_IDLE                                                                                               \
    OPTION_SWITCH(SKIP_IDLE, "skip_idle", 0, 0,                                                                        \
                  "1: an element's average of learning rates begins with its first gradient other than 0")
#define OPTION_CAUTIOUS                                                                                                \
    OPTION_SWITCH(CAUTIOUS, "cautious", 0, 0,                                                                          \
                  "1: elements that would step against their gradient stay, and the others step further")
/* For rules with a learning rate for each element. Their states have BOUND_STATE, their formulas BOUND. */
#define OPTIONS_BOUND OPTIONS_BOUND_ONLY, OPTION_SKIP_IDLE
/* For rules whose average of learning rates begins late without an option. */
#define OPTIONS_BOUND_ONLY                                                                                             \
    OPTION_CHOICE(BOUND, "bound", BOUND_NONE, adamod__bounds, 1,                                                       \
                  "momental: AdaMod's bound on each element's learning rate"),                                         \
        OPTION_BETA3

/* States: the index by which formulas know it (m, v, s, t, u: see kernels.h), its name, and fields of adamod_rule_state
 * that are not 0. */
#define STATE(place, ...)                                                                                              \
    { .index = place, .name = __VA_ARGS__ }
/* Exists where HAS_STATE says so. */
#define OPTIONAL_STATE(place, ...)                                                                                     \
    { .index = place, .presence = ADAMOD_STATE_OPTIONAL, .name = __VA_ARGS__ }
#define HAS_STATE(rule)                                                                                                \
    static bool adamod__##rule##_has_state(const double *o __attribute__((unused)), int ndim __attribute__((unused)),  \
                                           const adamod_rule_state *s __attribute__((unused)))
#define BOUND_STATE(place)                                                                                             \
    { .index = place, .presence = ADAMOD_STATE_WITH_BOUND, .name = "exp_avg_lr" }
#define ADAM_STATES STATE(0, "exp_avg"), STATE(1, "exp_avg_sq"), BOUND_STATE(2)

/* Fields of a rule. */
#define CAUTIOUS_RULE .cautious = true, .finish = adamod__caution_finish
#define STATES(...)                                                                                                    \
    .states = (const adamod_rule_state[]){__VA_ARGS__},                                                                \
    .n_states = sizeof((const adamod_rule_state[]){__VA_ARGS__}) / sizeof(adamod_rule_state)
#define OPTIONS(...)                                                                                                   \
    .options = (const option_spec[]){__VA_ARGS__},                                                                     \
    .n_options = sizeof((const option_spec[]){__VA_ARGS__}) / sizeof(option_spec)
/* summary, year, source, STATES, OPTIONS and what else is special about the rule, as fields of it. */
#define RULE_DEFINITION(rule_name, ...)                                                                                \
    static const rule adamod__rule_##rule_name = {                                                                     \
        .id = RULE_##rule_name, .name = #rule_name, .coefs = adamod__##rule_name##_coefs, __VA_ARGS__}
/* Another name for a rule, with other defaults. */
#define RULE_ALIAS(alias, rule_name, ...)                                                                              \
    static const rule adamod__rule_##alias = {.id = RULE_##rule_name,                                                  \
                                              .name = #alias,                                                          \
                                              .file_name = #rule_name,                                                 \
                                              .coefs = adamod__##rule_name##_coefs,                                    \
                                              __VA_ARGS__}

/* Rules with the driver sums.c change their coefficients by the sums. */
#define FINISH(rule)                                                                                                   \
    static void adamod__##rule##_finish(const double *o, const double *sum, int64_t count __attribute__((unused)),     \
                                        adamod__coef_f64 *c)
#define ADAMOD_RULE_FINISH
#include "rules/list.inc.h"
#undef ADAMOD_RULE_FINISH
#undef FINISH

#define DRIVER(name) extern const rule_driver adamod__##name##_driver;
#include "rules/names.inc.h"
extern const rule_driver adamod__sums_driver;

#define ADAMOD_RULE_DESCRIPTION
#include "rules/list.inc.h"
#undef ADAMOD_RULE_DESCRIPTION

const rule *const adamod__rules[RULE_COUNT] = {
#define RULE(name) &adamod__rule_##name,
#include "rules/names.inc.h"
};

const char *adamod_rule_name(int index) { return index >= 0 && index < RULE_COUNT ? adamod__rules[index]->name : NULL; }

const char *adamod_rule_summary(int index) {
    return index >= 0 && index < RULE_COUNT ? adamod__rules[index]->summary : NULL;
}

adamod_status adamod_rule_info(const char *rule_name, adamod_rule *out, size_t size) {
    const rule *r = adamod__find_rule(rule_name);
    if (!r) return rule_name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    if (!out) return adamod__refuse("out is NULL");
    adamod_rule info = {
        .name = adamod__rule_in_files(r),
        .summary = r->summary,
        .source = r->source,
        .year = r->year,
        .n_states = r->n_states,
        .states = r->states,
        .shaped = r->shaped,
        .whole_arrays = r->driver != NULL,
        .couples_arrays = r->couples_arrays,
        .sparse_gradients = r->sparse,
        .q8_states = r->q8,
        .averages = r->averages,
        .uncounted = r->uncounted,
        .signed_states = (int)adamod__signed_states(r),
        .matrices_only = r->matrices_only,
    };
    for (int i = 0; i < r->n_options; i++) {
        if (r->options[i].id == OPT_BOUND) info.bound = ADAMOD_BOUND_OPTION;
    }
    for (int i = 0; i < r->n_states; i++) {
        if (r->states[i].presence == ADAMOD_STATE_ALWAYS && !strcmp(r->states[i].name, "exp_avg_lr"))
            info.bound = ADAMOD_BOUND_ALWAYS;
    }
    memset(out, 0, size);
    memcpy(out, &info, size < sizeof info ? size : sizeof info);
    return ADAMOD_OK;
}

const char *adamod__rule_alias(int index, const char **summary) {
    const rule *alias = index >= 0 && index < RULE_COUNT ? adamod__rules[index]->alias : NULL;
    if (alias && summary) *summary = alias->summary;
    return alias ? alias->name : NULL;
}

void adamod__coefs(const rule *r, const double *options, const step_info *info, double grad_scale,
                   adamod__coef_f64 *c) {
    *c = (adamod__coef_f64){0};
    adamod__option_coefs(options, c);
    r->coefs(options, info, c);
    adamod__common_coefs(options, grad_scale, c);
}

adamod_status adamod__check_combined(const rule *r, const double *options, double base_lr, adamod_type type,
                                     const char *where) {
    const double rates = adamod__number_range(OPT_GRAD_SCALE, type).most;
    const double factors = adamod__number_range(OPT_LR, type).most;
    const range_fault fault = adamod__fault_combined(options, base_lr, rates, factors);
    if (!fault) return ADAMOD_OK;
    const double value = fault == RANGE_RATE ? adamod__rate_of_zeros(options) : adamod__final_lr(options, base_lr);
    return adamod__combined_fault(r, fault, value, type, where);
}

adamod_status adamod__check_q8_options(const rule *r, const double *options, const char *where) {
    if (!r->q8_without || options[r->q8_without] == 0) return ADAMOD_OK;
    const char *name = "";
    for (int i = 0; i < r->n_options; i++) name = r->options[i].id == r->q8_without ? r->options[i].info.name : name;
    return adamod__fail(ADAMOD_ERROR_RANGE, "%s: %s: states in 8 bits (q8) do not go with %s, expected %s = 0", where,
                        r->name, name, name);
}

bool adamod__has_state(const rule *r, const double *options, int ndim, const adamod_rule_state *s) {
    switch (s->presence) {
        case ADAMOD_STATE_WITH_BOUND: return adamod__bounded(options);
        case ADAMOD_STATE_OPTIONAL: return r->has_state(options, ndim, s);
        default: return true;
    }
}

void adamod__states(const rule *r, const double *options, int ndim, state_spec specs[ADAMOD_MAX_STATES]) {
    memset(specs, 0, ADAMOD_MAX_STATES * sizeof *specs);
    for (int i = 0; i < r->n_states; i++) {
        const adamod_rule_state *s = &r->states[i];
        if (!adamod__has_state(r, options, ndim, s)) continue;
        const double initial = s->begins == ADAMOD_BEGINS_AT_OPTION ? options[OPT_INITIAL] : 0;
        specs[s->index] = (state_spec){s->name, s->shape, initial};
    }
}

/* The side of a square state; 0: the parameter has no such state. */
static int64_t adamod__square_side(const double *options, int ndim, const int64_t *shape, bool first) {
    const int64_t side = first ? shape[0] : adamod__element_count(ndim - 1, shape + 1);
    return (double)side <= options[OPT_MAX_PRECONDITION_DIM] && adamod__element_count(ndim, shape) > 0 ? side : 0;
}

adamod_status adamod__state_size(const state_spec *spec, const double *options, int ndim, const int64_t *shape,
                                 adamod_state_desc *out) {
    *out = (adamod_state_desc){0};
    if (!spec->name) return ADAMOD_OK;
    *out = (adamod_state_desc){.name = spec->name, .initial = spec->initial, .ndim = ndim};
    if (ndim > 0) memcpy(out->shape, shape, (size_t)ndim * sizeof *shape);
    switch (spec->shape) {
        case ADAMOD_SHAPE_SAME: break;
        case ADAMOD_SHAPE_SCALAR: out->ndim = 0; break;
        case ADAMOD_SHAPE_ROWS: out->ndim--; break;
        case ADAMOD_SHAPE_COLS:
            out->ndim--;
            out->shape[ndim - 2] = shape[ndim - 1];
            break;
        case ADAMOD_SHAPE_QUEUE:
            if (ndim == ADAMOD_MAX_DIMS) {
                return adamod__refuse("a queue of gradients needs at most %d dimensions, got %d", ADAMOD_MAX_DIMS - 1,
                                      ndim);
            }
            if (ndim > 0) memcpy(out->shape + 1, shape, (size_t)ndim * sizeof *shape);
            out->shape[0] = (int64_t)options[OPT_WINDOW];
            out->ndim++;
            break;
        case ADAMOD_SHAPE_FIRST_SQUARE:
        case ADAMOD_SHAPE_OTHERS_SQUARE:
            out->ndim = 2;
            out->shape[0] = out->shape[1] =
                adamod__square_side(options, ndim, shape, spec->shape == ADAMOD_SHAPE_FIRST_SQUARE);
            break;
    }
    for (int d = out->ndim; d < ADAMOD_MAX_DIMS; d++) out->shape[d] = 0;
    out->count = adamod__element_count(out->ndim, out->shape);
    if (out->count >= 0) return ADAMOD_OK;
    char text[192];
    adamod__shape_text(out->ndim, out->shape, text, sizeof text);
    return adamod__refuse("state %s: size overflows: shape is %s, expected fewer than 2^%d elements", spec->name, text,
                          ADAMOD__COUNT_BITS);
}
