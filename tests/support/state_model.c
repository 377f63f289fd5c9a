/* Optimizers for the tests of state files: see state_model.h. */
#include "state_model.h"
#include "option_sets.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

/* ---- rules, and types ---- */

option_set model_rule(int i) {
    option_set set = {0};
    return rule_options(ROW_FILES, i, &set) ? set : (option_set){0};
}

int model_rule_of(const char *rule, const char *options) {
    int i = 0;
    for (option_set set; (set = model_rule(i)).rule; i++) {
        if (!strcmp(set.rule, rule) && !strcmp(set.options, options)) return i;
    }
    abort();
}

const kind model_kinds[] = {
    {ADAMOD_F32, false, false}, {ADAMOD_F64, false, false}, {ADAMOD_BF16, false, false},
    {ADAMOD_BF16, true, false}, {ADAMOD_F32, false, true},  {ADAMOD_BF16, true, true},
    {ADAMOD_F16, false, false}, {ADAMOD_F16, true, true},   {ADAMOD_F64, false, true},
};
const int model_kind_count = sizeof model_kinds / sizeof *model_kinds;

const model_shape model_layout[TENSORS] = {
    {"layer.0.weight", 2, {5, 7}}, {"layer.0.bias", 1, {9}}, {"scale", 0, {0}},
    {"nothing", 2, {0, 3}},        {"late", 3, {2, 2, 3}},
};

static void set(adamod_type type, void *array, int64_t i, double x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (type == ADAMOD_F64) ((double *)array)[i] = x;
    if (type == ADAMOD_F32) ((float *)array)[i] = f;
    if (type == ADAMOD_BF16) ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    /* f16 of a normal number, truncated; smaller ones become 0 */
    const uint32_t exponent = bits >> 23 & 0xff;
    const uint32_t half = exponent < 113 ? 0 : ((exponent - 112) << 10 | (bits >> 13 & 0x3ff));
    if (type == ADAMOD_F16) ((uint16_t *)array)[i] = (uint16_t)((bits >> 16 & 0x8000) | half);
}

static int64_t count_of(int k) {
    int64_t n = 1;
    for (int d = 0; d < model_layout[k].ndim; d++) n *= model_layout[k].shape[d];
    return n;
}

static void gradients(model *m, int step) {
    for (int k = 0; k < TENSORS; k++) {
        for (int64_t i = 0; i < count_of(k); i++) {
            set(m->kind.type, m->g[k], i, noise((uint64_t)(k * 10000 + step * 100 + i)));
        }
    }
}

void model_make_as(model *m, int rule, kind types, const adamod_allocator *allocator, const char *rename_last) {
    memset(m, 0, sizeof *m);
    m->kind = types;
    if (!CHECK_INT(adamod_create_with(&m->opt, model_rule(rule).rule, allocator), ADAMOD_OK)) abort();
    apply(model_rule(rule).options, NULL, m->opt, -1, NULL);
    if (types.stochastic) CHECK_INT(adamod_set_text(m->opt, "low_precision", "stochastic"), ADAMOD_OK);
    if (types.bf16_states) CHECK_INT(adamod_set_text(m->opt, "state_type", "bf16"), ADAMOD_OK);
    CHECK_INT(adamod_set_text(m->opt, "nonfinite", "skip"), ADAMOD_OK);
    CHECK_INT(adamod_set(m->opt, "seed", 42), ADAMOD_OK);
    CHECK_INT(adamod_set(m->opt, "threads", 1), ADAMOD_OK);
    adamod_schedule *s = NULL;
    CHECK_INT(adamod_schedule_warmup_rsqrt(&s, 0, 6), ADAMOD_OK);
    CHECK_INT(adamod_set_schedule(m->opt, 0, "lr", s), ADAMOD_OK);
    adamod_schedule_free(s);
    for (int k = 0; k < TENSORS; k++) {
        for (int64_t i = 0; i < count_of(k); i++) set(types.type, m->p[k], i, noise((uint64_t)(k * 1000 + i)));
        adamod_tensor t = {.name = model_layout[k].name,
                           .param = m->p[k],
                           .grad = k == LATE ? NULL : m->g[k],
                           .param_type = types.type,
                           .grad_type = types.type,
                           .ndim = model_layout[k].ndim};
        if (k == LATE && rename_last) t.name = rename_last;
        memcpy(t.shape, model_layout[k].shape, sizeof model_layout[k].shape);
        CHECK_INT(adamod_add_tensor(m->opt, 0, &t, NULL), ADAMOD_OK);
    }
}

void model_make(model *m, int rule, kind types) { model_make_as(m, rule, types, NULL, NULL); }

void model_updates(model *m, int from, int to) {
    for (int t = from; t <= to; t++) {
        gradients(m, t);
        if (t == 3) {
            memset(m->g[0], 0xff, 8); /* NaN in every type */
            CHECK_INT(adamod_step(m->opt), ADAMOD_OK);
            gradients(m, t);
        }
        if (t == 4) {
            CHECK_INT(adamod_set_grad(m->opt, LATE, m->g[LATE]), ADAMOD_OK);
            m->late = true;
        }
        CHECK_INT(adamod_step(m->opt), ADAMOD_OK);
    }
}

/* ---- whether two optimizers are the same ---- */

static snapshot one, two;
char model_message[600];

/* With the addresses of the states, if told to. */
static void take(snapshot *s, const model *m, bool addresses) {
    s->n = 0;
    const int64_t counts[] = {adamod_steps(m->opt), adamod_skipped(m->opt), adamod_tensors(m->opt)};
    size_t states = 0, seen = 0;
    adamod_memory(m->opt, &states, NULL);
    snapshot_put(s, counts, sizeof counts);
    snapshot_put(s, m->p, sizeof m->p);
    for (int k = 0; k < TENSORS; k++) {
        int64_t steps = -1;
        CHECK_INT(adamod_tensor_steps(m->opt, k, &steps), ADAMOD_OK);
        snapshot_put(s, &steps, sizeof steps);
        for (int i = 0; state_name(i); i++) {
            void *data = NULL;
            adamod_type type = ADAMOD_F32;
            int64_t n = 0;
            if (adamod_state(m->opt, k, state_name(i), &data, &type, &n)) continue;
            snapshot_put(s, data, (size_t)n * type_size(type));
            if (addresses) snapshot_put(s, &data, sizeof data);
            seen += (size_t)n * type_size(type);
        }
    }
    CHECK_INT(seen, states); /* no state is unknown to this test */
}

bool model_same(const model *a, const model *b) {
    take(&one, a, false);
    take(&two, b, false);
    return snapshot_same(&one, &two);
}

void model_remember(const model *m) { take(&one, m, true); }

bool model_unchanged(const model *m) {
    take(&two, m, true);
    return snapshot_same(&one, &two);
}

bool model_refused(const model *m, const char *path, adamod_status status, const char *part, const char *file,
                   int line) {
    model_remember(m);
    const adamod_status found = adamod_load(m->opt, path);
    snprintf(model_message, sizeof model_message, "%s", adamod_last_error());
    const int failures = check_failures;
    if (status != ADAMOD_OK) check_int(found, status, part, file, line);
    else check_true(found != ADAMOD_OK, part, file, line);
    if (found) check_has(model_message, part, "the message", file, line);
    check_true(model_unchanged(m), "nothing changes", file, line);
    return check_failures == failures;
}
