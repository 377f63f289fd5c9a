/* test_rules.c - every rule against tests/support/reference.c: all options, types, sizes and alignments, by handle and by raw
 * pointers. against_reference.h says how near the two must come.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "against_reference.h"
#include "values.h"

#include <stdlib.h>

TEST(names_and_defaults) {
    int i = 0;
    for (; adamod_rule_name(i); i++) CHECK_STR(adamod_rule_name(i), ref_rule_name(i));
    CHECK(!ref_rule_name(i));
    for (i = 0; adamod_rule_name(i); i++) {
        const char *rule = adamod_rule_name(i);
        ref_options o;
        adamod_option option;
        ref_defaults(rule, &o);
        for (int f = 0; reference_option(f); f++) {
            if (adamod_option_find(rule, reference_option(f), &option)) continue;
            if (!CHECK(option.value == reference_value(&o, f))) printf("%s: default of %s\n", rule, option.name);
        }
        if (!adamod_option_find(rule, "spatial", &option)) CHECK_INT(option.value == 0, o.spatial_max);
    }
}

/* Every set of options, updates in the hundreds. */
static void long_runs(adamod_type type, bool raw, int steps) {
    scenario sc = {
        .param_type = type, .grad_type = type, .ndim = 1, .shape = {37}, .steps = fast() ? steps / 8 : steps};
    sc.raw = raw;
    option_set set;
    for (int i = 0; set_at(i, &set); i++) {
        if (fast() && (i + (type == ADAMOD_F32) + raw) % 2) continue; /* each in one type by handle, in the other raw */
        rng_state = 1 + (uint64_t)type; /* so that no set's numbers depend on the sets before it */
        sc.rule = set.rule;
        sc.options = set.options;
        check_against_reference(&sc);
    }
}

TEST(long_runs_f64) { long_runs(ADAMOD_F64, false, 500); }
TEST(long_runs_f32) { long_runs(ADAMOD_F32, false, 300); }
TEST(long_runs_f64_raw) { long_runs(ADAMOD_F64, true, 200); }
TEST(long_runs_f32_raw) { long_runs(ADAMOD_F32, true, 200); }

/* Past the 64 terms of NosAdam's sum that are added one by one, and AdaBound's and RAdam's early phases. */
TEST(thousands_of_updates) {
    rng_state = 2;
    for (int i = 0; adamod_rule_name(i); i++) {
        scenario sc = {.rule = adamod_rule_name(i), .options = "", .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64};
        sc.ndim = 1, sc.shape[0] = 3, sc.steps = fast() ? 400 : 4000;
        check_against_reference(&sc);
    }
}

/* Adafactor looks at the last two dimensions. 700 columns are more than one block of columns, 40 rows of them more than
 * one chunk of rows. */
TEST(shapes_of_adafactor) {
    static const struct {
        int ndim;
        int64_t shape[MAX_SHAPE];
    } shapes[] = {
        {0, {0}},          {1, {5}},       {1, {600}},     {2, {6, 7}},    {2, {1, 9}},     {2, {9, 1}},
        {2, {1, 1}},       {2, {40, 700}}, {2, {513, 3}},  {3, {2, 5, 4}}, {3, {3, 1, 17}}, {3, {2, 20, 600}},
        {4, {4, 3, 3, 3}}, {2, {0, 5}},    {3, {2, 3, 0}}, {1, {0}},
    };
    rng_state = 3;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const int64_t n = count_of(shapes[k].ndim, shapes[k].shape);
        const rule_row *row = rule_row_of("adafactor");
        for (int i = 0; i < ROW_OPTIONS && row->options[ROW_SETS][i]; i++) {
            for (int way = 0; way < 4; way++) {
                if (n > 1000 && (fast() ? way != i % 4 : way > 1 && i % 2)) continue;
                scenario sc = {
                    .rule = "adafactor", .options = row->options[ROW_SETS][i], .ndim = shapes[k].ndim, .raw = way / 2};
                sc.param_type = sc.grad_type = way % 2 ? ADAMOD_F32 : ADAMOD_F64;
                memcpy(sc.shape, shapes[k].shape, sizeof sc.shape);
                sc.steps = fast() ? (n > 100 ? 2 : 8) : n > 1000 ? 3 : 100;
                check_against_reference(&sc);
            }
        }
    }
}

/* Sizes around vectors and blocks (512), and several chunks, also on threads; arrays that begin anywhere. */
TEST(sizes_and_alignment) {
    const int64_t sizes[] = {0, 1, 2, 7, 15, 16, 17, 31, 511, 512, 513, 1025, fast() ? 20001 : 70001};
    rng_state = 4;
    int turn = 0;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            for (int way = 0; way < 4; way++) {
                if (sizes[k] > 20000 && (fast() ? way != i % 2 : way != i % 2 && way != 2 + i % 2)) continue;
                if (fast() && sizes[k] > 500 && way % 2 != (i + (int)k) % 2) continue;
                scenario sc = {.rule = adamod_rule_name(i), .options = "window=2", .ndim = 1, .raw = way / 2};
                if (strcmp(sc.rule, "adashift") != 0) sc.options = turn % 2 ? "weight_decay=0.01 decay=l2" : "";
                sc.param_type = sc.grad_type = way % 2 ? ADAMOD_F32 : ADAMOD_F64;
                sc.shape[0] = sizes[k];
                sc.offset = turn++ % 4;
                sc.steps = sizes[k] > 20000 ? (fast() ? 2 : 4) : sizes[k] > 500 ? (fast() ? 3 : 8) : 25;
                check_against_reference(&sc);
            }
        }
    }
}

/* The gradient's type is its own. */
TEST(types_of_gradients) {
    rng_state = 5;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (int type = ADAMOD_F32; type <= ADAMOD_F16; type++) {
            for (int way = 0; way < 4; way++) {
                if (fast() && way % 2 != (i + type) % 2) continue;
                scenario sc = {.rule = adamod_rule_name(i), .options = "", .ndim = 1, .raw = way / 2, .offset = type};
                sc.param_type = way % 2 ? ADAMOD_F32 : ADAMOD_F64;
                sc.grad_type = (adamod_type)type;
                sc.options = i % 2 ? "grad_scale=3 clip_value=8" : "";
                sc.shape[0] = fast() ? 530 : 1025; /* three blocks, or two */
                sc.steps = fast() ? 4 : 15;
                check_against_reference(&sc);
            }
        }
    }
}

TEST(schedules_of_the_learning_rate) {
    static const char *const schedules[] = {"warmup_rsqrt(1e-7,20)", "multistep(5,30;0.5)", "linear(1e-5,40)"};
    rng_state = 6;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (int k = 0; k < 12; k++) {
            scenario sc = {.rule = adamod_rule_name(i), .ndim = 1, .shape = {19}, .steps = 60, .raw = k / 6};
            sc.options = "weight_decay=0.02 decay=decoupled";
            if (!strcmp(sc.rule, "adafactor")) sc.options = "relative_step=0 weight_decay=0.02";
            sc.param_type = sc.grad_type = k % 6 < 3 ? ADAMOD_F64 : ADAMOD_F32;
            sc.schedule = schedules[k % 3];
            check_against_reference(&sc);
        }
    }
}

/* Any real option may have a schedule: beta3 here, from 0.9 to 0.9999. */
TEST(schedule_of_beta3) {
    const scenario sc = {.rule = "adamod",
                         .options = "beta3=0.9",
                         .param_type = ADAMOD_F64,
                         .grad_type = ADAMOD_F64,
                         .ndim = 1,
                         .shape = {19},
                         .steps = 100};
    subject s;
    model m;
    rng_state = 7;
    subject_open(&s, &sc);
    model_open(&m, &sc);
    adamod_schedule *schedule = NULL;
    CHECK_INT(adamod_schedule_linear(&schedule, 0.9999, 50), 0);
    CHECK_INT(adamod_set_schedule(s.opt, -1, "beta3", schedule), 0);
    adamod_schedule_free(schedule);
    for (int64_t i = 0; i < m.n; i++) m.p[i] = get(sc.param_type, s.param.data, i);
    double *g = s.grad.data;
    for (int t = 1; t <= sc.steps; t++) {
        for (int64_t i = 0; i < m.n; i++) g[i] = next_gradient(&m.o, 0);
        m.o.beta3 = t < 50 ? 0.9 + (0.9999 - 0.9) * t / 50 : 0.9999;
        model_step(&m, g, m.o.lr, 1);
        CHECK_INT(adamod_step(s.opt), 0);
        if (!compare(&s, &m)) break;
    }
    subject_close(&s);
    model_close(&m);
}

/* The norm is checked as well, and that gradients below it are not touched. */
TEST(clip_norm) {
    rng_state = 8;
    for (int i = 0; adamod_rule_name(i); i++) {
        for (int k = 0; k < 8; k++) {
            scenario sc = {
                .rule = adamod_rule_name(i), .ndim = 1, .shape = {k % 2 ? 1025 : 33}, .steps = k % 2 ? 10 : 60};
            sc.options = k / 2 % 2 ? "grad_scale=0.01 clip_value=0.5" : "";
            sc.param_type = k / 4 ? ADAMOD_F64 : ADAMOD_F32;
            sc.grad_type = (adamod_type)(k % 4);
            sc.clip_norm = k / 2 % 2 ? 1.5 : 100;
            check_against_reference(&sc);
        }
    }
}

/* ---- several parameters and groups ---- */

enum { TENSORS = 6 };

static const struct {
    int group;
    adamod_type param_type, grad_type;
    int ndim;
    int64_t shape[MAX_SHAPE];
    int frozen_from, frozen_to; /* updates without a gradient */
} layout[TENSORS] = {
    {0, ADAMOD_F32, ADAMOD_F32, 2, {7, 5}, 0, 0},         {1, ADAMOD_F64, ADAMOD_F32, 1, {33}, 5, 9},
    {2, ADAMOD_F64, ADAMOD_F64, 3, {2, 3, 4}, 0, 0},      {1, ADAMOD_F32, ADAMOD_BF16, 0, {0}, 1, 1},
    {0, ADAMOD_F64, ADAMOD_F16, 4, {2, 2, 3, 3}, 20, 40}, {2, ADAMOD_F32, ADAMOD_F64, 1, {0}, 0, 0},
};
static const char *const group_options[3] = {"weight_decay=0.01", "lr=0.02 decay=l2 weight_decay=0.005 maximize=1",
                                             "clip_value=0.7 weight_decay=0.001 decay=independent"};

/* Options of a group are its own, a schedule counts the optimizer's updates and bias corrections count the parameter's.
 * A frozen parameter, its states and its count stand still. */
static void run_groups(const char *rule) {
    static const char schedule_text[] = "warmup_rsqrt(1e-7,20)";
    adamod_optimizer *opt;
    scenario sc[TENSORS];
    model m[TENSORS];
    array param[TENSORS], grad[TENSORS];
    int updates[TENSORS] = {0};
    double base[TENSORS];
    int64_t steps;
    if (!CHECK_INT(adamod_create(&opt, rule), 0)) return;
    const char *first = !strcmp(rule, "adafactor") ? "relative_step=0" : "lr=0.005";
    apply(first, NULL, opt, -1, NULL);
    for (int i = 1; i < 3; i++) {
        int group = -1;
        CHECK_INT(adamod_add_group(opt, &group), 0);
        CHECK_INT(group, i);
    }
    for (int i = 0; i < 3; i++) apply(group_options[i], NULL, opt, i, NULL);
    adamod_schedule *schedule = NULL;
    CHECK_INT(adamod_schedule_parse(&schedule, schedule_text), 0);
    CHECK_INT(adamod_set_schedule(opt, 1, "lr", schedule), 0);
    adamod_schedule_free(schedule);
    for (int k = 0; k < TENSORS; k++) {
        sc[k] = (scenario){.rule = rule,
                           .options = group_options[layout[k].group],
                           .param_type = layout[k].param_type,
                           .grad_type = layout[k].grad_type,
                           .ndim = layout[k].ndim};
        memcpy(sc[k].shape, layout[k].shape, sizeof sc[k].shape);
        model_open(&m[k], &sc[k]);
        ref_defaults(rule, &m[k].o);
        apply(first, &m[k].o, NULL, -1, NULL);
        apply(sc[k].options, &m[k].o, NULL, -1, NULL);
        base[k] = m[k].o.base_lr = m[k].o.lr;
        param[k] = make_array(layout[k].param_type, m[k].n, k % 4);
        grad[k] = make_array(layout[k].grad_type, m[k].n, (k + 2) % 4);
        for (int64_t i = 0; i < m[k].n; i++) {
            put(param[k].type, param[k].data, i, random_param());
            m[k].p[i] = get(param[k].type, param[k].data, i);
        }
        adamod_tensor t = {.param = param[k].data,
                           .grad = grad[k].data,
                           .param_type = param[k].type,
                           .grad_type = grad[k].type,
                           .ndim = layout[k].ndim};
        memcpy(t.shape, layout[k].shape, sizeof layout[k].shape);
        int64_t id = -1;
        CHECK_INT(adamod_add_tensor(opt, layout[k].group, &t, &id), 0);
        CHECK_INT(id, k);
    }
    bool good = true;
    for (int t = 1; good && t <= 50; t++) {
        for (int k = 0; k < TENSORS; k++) {
            const bool frozen = t >= layout[k].frozen_from && t <= layout[k].frozen_to;
            double *g = zeros(m[k].n);
            for (int64_t i = 0; i < m[k].n; i++) {
                put(grad[k].type, grad[k].data, i, next_gradient(&m[k].o, get(param[k].type, param[k].data, i)));
                g[i] = get(grad[k].type, grad[k].data, i);
            }
            CHECK_INT(adamod_set_grad(opt, k, frozen ? NULL : grad[k].data), 0);
            if (!frozen) {
                model_step(&m[k], g, layout[k].group == 1 ? scheduled(schedule_text, base[k], t) : base[k], 1);
            }
            updates[k] += !frozen;
            free(g);
        }
        good = CHECK_INT(adamod_step(opt), 0);
        for (int k = 0; good && k < TENSORS; k++) {
            CHECK_INT(adamod_tensor_steps(opt, k, &steps), 0);
            CHECK_INT(steps, updates[k]);
            good = compare_param(&m[k], &param[k]);
            for (int i = 0; good && state_name(i); i++) {
                array a = {0};
                const bool there = ref_get(m[k].ref, state_name(i), NULL) != NULL;
                const adamod_status status = adamod_state(opt, k, state_name(i), &a.data, &a.type, &a.n);
                good = CHECK_INT(status, there ? ADAMOD_OK : ADAMOD_ERROR_NAME);
                if (good && there) good = compare_state(&m[k], state_name(i), &a);
            }
        }
    }
    CHECK_INT(adamod_steps(opt), 50);
    adamod_free(opt);
    for (int k = 0; k < TENSORS; k++) {
        model_close(&m[k]);
        free(param[k].memory);
        free(grad[k].memory);
    }
}

TEST(several_groups) {
    rng_state = 9;
    for (int i = 0; adamod_rule_name(i); i++) {
        const char *rule = adamod_rule_name(i);
        /* test_muon.c and test_soap.c say how near matrices must be, test_prodigy.c what arrays have in common */
        if (strcmp(rule, "muon") != 0 && strcmp(rule, "soap") != 0 && strcmp(rule, "prodigy") != 0) run_groups(rule);
    }
}

RUN_TESTS(ENTRY(names_and_defaults), ENTRY(long_runs_f64), ENTRY(long_runs_f32), ENTRY(long_runs_f64_raw),
          ENTRY(long_runs_f32_raw), ENTRY(thousands_of_updates), ENTRY(shapes_of_adafactor), ENTRY(sizes_and_alignment),
          ENTRY(types_of_gradients), ENTRY(schedules_of_the_learning_rate), ENTRY(schedule_of_beta3), ENTRY(clip_norm),
          ENTRY(several_groups))
