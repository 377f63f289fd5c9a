/* Tests of what the public interface refuses and how it says so, and that a refused call changes nothing: null pointers,
 * numbers out of range, names. Its other parts have programs of their own.
 *
 * SPDX-License-Identifier: MIT
 */
#include "counting_allocator.h"
#include "api_fixture.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- Null pointers, numbers out of range -------------------------------------------------------------------------- */

TEST(null_handles) {
    double value = 5;
    int64_t n = 5;
    int group = 5;
    size_t states = 5, other = 5;
    void *data = &n;
    adamod_statistics statistics;
    const adamod_tensor t = {.param = &value, .param_type = ADAMOD_F64};
    const int64_t shape[] = {1};
    float x = 0;
    CHECK_INT(adamod_create(NULL, "adam"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_create_with(NULL, "adam", NULL), ADAMOD_ERROR_ARGUMENT);
    adamod_free(NULL);
    CHECK_INT(adamod_add(NULL, "x", &x, NULL, 1, shape), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "the optimizer is NULL");
    CHECK_INT(adamod_step(NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_steps(NULL), 0);
    CHECK_INT(adamod_skipped(NULL), 0);
    CHECK(adamod_grad_norm(NULL) < 0);
    CHECK_INT(adamod_set(NULL, "lr", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_text(NULL, "lr", "1"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_get(NULL, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_add_group(NULL, &group), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_group_set(NULL, 0, "lr", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_group_set_text(NULL, 0, "lr", "1"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_group_get(NULL, 0, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_add_tensor(NULL, 0, &t, &n), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_tensors(NULL), 0);
    CHECK_INT(adamod_set_param(NULL, 0, &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_grad(NULL, 0, &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_schedule(NULL, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_scheduled(NULL, 0, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_collect(NULL, 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_get_statistics(NULL, 0, &statistics), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_save(NULL, "x"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_load(NULL, "x"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state(NULL, 0, "exp_avg", &data, NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_tensor_steps(NULL, 0, &n), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_set_pool(NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK(adamod_isa(NULL) == NULL);
    adamod_memory(NULL, &states, &other);
    CHECK_INT(states, 0);
    CHECK_INT(other, 0);
    adamod_memory(NULL, NULL, NULL);
    CHECK(value == 5 && n == 5 && group == 5 && data == &n);

    CHECK_INT(adamod_hyper_create(NULL, "adam"), ADAMOD_ERROR_ARGUMENT);
    adamod_hyper_free(NULL);
    adamod_state_desc desc;
    CHECK_INT(adamod_hyper_set(NULL, "lr", 1), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_set_text(NULL, "lr", "1"), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_hyper_get(NULL, "lr", &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_state_at(NULL, 1, shape, 0, &desc), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_update(NULL, NULL, 0, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_norm(NULL, 1, NULL, &value), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_norm(NULL, 0, NULL, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_pool_create(NULL, 1), ADAMOD_ERROR_ARGUMENT);
    adamod_pool_free(NULL);
    CHECK_INT(adamod_pool_threads(NULL), 1);
    adamod_option o;
    CHECK_INT(adamod_option_at(NULL, 0, &o), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_at("adam", 0, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_find(NULL, "lr", &o), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_find("adam", NULL, &o), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_option_find("adam", "lr", NULL), ADAMOD_ERROR_ARGUMENT);
}

TEST(null_arguments) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    double value = 5;
    void *data = &f;
    adamod_type type = ADAMOD_F16;
    int64_t count = 7;
    float x[1] = {0};
    const int64_t shape[] = {1};
    const adamod_tensor no_param = {.ndim = 1, .shape = {1}};
    adamod_optimizer *none = NULL;
    REFUSED(&f, adamod_create(&none, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_create_with(&none, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    CHECK(none == NULL);
    REFUSED(&f, adamod_set(f.opt, NULL, 1), ADAMOD_ERROR_ARGUMENT, "option's name is NULL");
    REFUSED(&f, adamod_set_text(f.opt, NULL, "1"), ADAMOD_ERROR_ARGUMENT, "option's name is NULL");
    REFUSED(&f, adamod_set_text(f.opt, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "value is NULL");
    REFUSED(&f, adamod_get(f.opt, NULL, &value), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_get(f.opt, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&f, adamod_add_group(f.opt, NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&f, adamod_group_set(f.opt, 0, NULL, 1), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_group_set_text(f.opt, 0, NULL, "1"), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_group_set_text(f.opt, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_group_get(f.opt, 0, NULL, &value), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_group_get(f.opt, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_add_tensor(f.opt, 0, NULL, &count), ADAMOD_ERROR_ARGUMENT, "tensor is NULL");
    REFUSED(&f, adamod_add_tensor(f.opt, 0, &no_param, &count), ADAMOD_ERROR_ARGUMENT, "param is NULL");
    REFUSED(&f, adamod_add(f.opt, "x", NULL, NULL, 1, shape), ADAMOD_ERROR_ARGUMENT, "x: param is NULL");
    REFUSED(&f, adamod_add(f.opt, "x", x, NULL, 1, NULL), ADAMOD_ERROR_ARGUMENT, "x: shape is NULL");
    REFUSED(&f, adamod_add(f.opt, NULL, x, NULL, 1, NULL), ADAMOD_ERROR_ARGUMENT, "shape is NULL");
    REFUSED(&f, adamod_set_param(f.opt, MATRIX, NULL), ADAMOD_ERROR_ARGUMENT, "matrix: param is NULL");
    REFUSED(&f, adamod_set_schedule(f.opt, 0, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_scheduled(f.opt, 0, "lr", NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&f, adamod_scheduled(f.opt, 0, NULL, &value), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_state(f.opt, 0, NULL, &data, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_state(f.opt, 0, "exp_avg", NULL, NULL, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_tensor_steps(f.opt, 0, NULL), ADAMOD_ERROR_ARGUMENT, "steps is NULL");
    REFUSED(&f, adamod_get_statistics(f.opt, 0, NULL), ADAMOD_ERROR_ARGUMENT, "out is NULL");
    REFUSED(&f, adamod_save(f.opt, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    REFUSED(&f, adamod_load(f.opt, NULL), ADAMOD_ERROR_ARGUMENT, "NULL");
    CHECK(value == 5 && data == &f && type == ADAMOD_F16 && count == 7);
    CHECK_INT(adamod_state(f.opt, MATRIX, "exp_avg", &data, NULL, NULL), ADAMOD_OK);
    CHECK_INT(adamod_state(f.opt, MATRIX, "exp_avg", &data, &type, &count), ADAMOD_OK);
    CHECK_INT(type, ADAMOD_F32);
    CHECK_INT(count, 35);

    allocation_counts a = {0};
    adamod_allocator no_alloc = counting_allocator(&a), no_free = no_alloc;
    no_alloc.alloc = NULL;
    no_free.free = NULL;
    REFUSED(&f, adamod_create_with(&none, "adam", &no_alloc), ADAMOD_ERROR_ARGUMENT, "allocator");
    REFUSED(&f, adamod_create_with(&none, "adam", &no_free), ADAMOD_ERROR_ARGUMENT, "allocator");
    CHECK(none == NULL);
    adamod_free(f.opt);
}

TEST(numbers_out_of_range) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    const adamod_tensor t = {.name = "t", .param = f.frozen_grad, .ndim = 1, .shape = {4}};
    adamod_schedule *s = NULL;
    adamod_statistics statistics;
    double value = 5;
    void *data = &f;
    int64_t id = 7;
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_schedule_constant(&s), ADAMOD_OK);
    const int groups[] = {-2, -1, 2, 3, 1000000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const int g = groups[i];
        REFUSED(&f, adamod_group_set(f.opt, g, "lr", 1), ADAMOD_ERROR_RANGE, "expected 0 <= group < 2");
        REFUSED(&f, adamod_group_set_text(f.opt, g, "lr", "1"), ADAMOD_ERROR_RANGE, "expected 0 <= group < 2");
        REFUSED(&f, adamod_group_get(f.opt, g, "lr", &value), ADAMOD_ERROR_RANGE, "group is");
        REFUSED(&f, adamod_add_tensor(f.opt, g, &t, &id), ADAMOD_ERROR_RANGE, "group is");
        REFUSED(&f, adamod_scheduled(f.opt, g, "lr", &value), ADAMOD_ERROR_RANGE, "group is");
        if (g == -1) continue; /* all groups, in these two */
        REFUSED(&f, adamod_set_schedule(f.opt, g, "lr", s), ADAMOD_ERROR_RANGE, "expected -1 for all, or 0 <=");
        REFUSED(&f, adamod_get_statistics(f.opt, g, &statistics), ADAMOD_ERROR_RANGE, "group is");
    }
    const int64_t ids[] = {-1, PARAMETERS, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        REFUSED(&f, adamod_set_param(f.opt, ids[i], f.matrix), ADAMOD_ERROR_RANGE, "expected 0 <= number < 5");
        REFUSED(&f, adamod_set_grad(f.opt, ids[i], f.matrix_grad), ADAMOD_ERROR_RANGE, "number is");
        REFUSED(&f, adamod_state(f.opt, ids[i], "exp_avg", &data, NULL, NULL), ADAMOD_ERROR_RANGE, "number is");
        REFUSED(&f, adamod_tensor_steps(f.opt, ids[i], &id), ADAMOD_ERROR_RANGE, "number is");
    }
    REFUSED(&f, adamod_pool_create(&pool, -1), ADAMOD_ERROR_RANGE, "threads is -1");
    REFUSED(&f, adamod_pool_create(&pool, 1025), ADAMOD_ERROR_RANGE, "<= 1024");
    CHECK(value == 5 && data == &f && id == 7 && pool == NULL);
    CHECK(adamod_rule_name(-1) == NULL && adamod_rule_summary(-1) == NULL && adamod_isa_name(-1) == NULL);
    adamod_schedule_free(s);
    adamod_free(f.opt);
}

/* ---- Names -------------------------------------------------------------------------------------------------------- */

TEST(rules_by_index) {
    int n = 0;
    for (; adamod_rule_name(n); n++) {
        CHECK(adamod_rule_summary(n) && strlen(adamod_rule_summary(n)) > 10);
        CHECK(!strchr(adamod_rule_summary(n), '\n'));
        for (int i = 0; i < n; i++) CHECK(strcmp(adamod_rule_name(i), adamod_rule_name(n)) != 0);
        adamod_optimizer *opt = NULL;
        CHECK_INT(adamod_create(&opt, adamod_rule_name(n)), ADAMOD_OK);
        adamod_free(opt);
    }
    CHECK(n >= 13);
    CHECK_STR(adamod_rule_name(0), "adamod");
    CHECK(adamod_rule_name(n) == NULL && adamod_rule_summary(n) == NULL);
    CHECK(adamod_rule_name(INT32_MAX) == NULL);
}

/* For every rule: its states are those that adamod_state_at finds for some options and shapes, and all of them. */
static void check_states(const adamod_rule *info) {
    bool found[2 * ADAMOD_MAX_STATES] = {false};
    CHECK(info->n_states <= 2 * ADAMOD_MAX_STATES);
    for (int way = 0; way < 16; way++) { /* dimensions, the bound, momentum or what replaces it, other switches */
        adamod_hyper *h;
        if (!CHECK_INT(adamod_hyper_create(&h, info->name), ADAMOD_OK)) return;
        if (way & 2) adamod_hyper_set_text(h, "bound", "momental");
        if (way & 4 && adamod_hyper_set(h, "momentum", 0.9)) adamod_hyper_set(h, "beta1", 0.9);
        if (way & 8 && adamod_hyper_set(h, "centered", 1)) adamod_hyper_set_text(h, "spatial", "none");
        const int64_t shape[] = {3, 5};
        for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
            adamod_state_desc desc;
            CHECK_INT(adamod_state_at(h, 1 + way % 2, shape, i, &desc), ADAMOD_OK);
            bool known = !desc.name;
            for (int s = 0; s < info->n_states; s++) {
                const adamod_rule_state *x = &info->states[s];
                const bool same = (x->shape == ADAMOD_SHAPE_SAME) == (desc.count == (way % 2 ? 15 : 3));
                if (x->index != i || !desc.name || strcmp(x->name, desc.name) != 0 || !same) continue;
                known = found[s] = true;
            }
            CHECK(known);
        }
        adamod_hyper_free(h);
    }
    for (int s = 0; s < info->n_states; s++) CHECK(found[s]);
}

TEST(facts_of_rules) {
    adamod_rule info, wider[2];
    for (int i = 0; adamod_rule_name(i); i++) {
        CHECK_INT(adamod_rule_info(adamod_rule_name(i), &info, sizeof info), ADAMOD_OK);
        CHECK_STR(info.name, adamod_rule_name(i));
        CHECK_STR(info.summary, adamod_rule_summary(i));
        CHECK(info.year > 1900 && strlen(info.source) > 5);
        check_states(&info);
        adamod_option o;
        const bool has_bound = adamod_option_find(info.name, "bound", &o) == ADAMOD_OK;
        CHECK_INT(info.bound == ADAMOD_BOUND_OPTION, has_bound);
        CHECK_INT(adamod_option_find(info.name, "state_type", &o), ADAMOD_OK);
        CHECK_INT(info.q8_states, o.max == 2);
        CHECK(!info.couples_arrays || info.whole_arrays);
        CHECK(!info.shaped || info.whole_arrays);
        CHECK(!info.matrices_only || info.shaped);
    }
    CHECK_INT(adamod_rule_info("adamod", &info, sizeof info), ADAMOD_OK);
    CHECK_INT(info.bound, ADAMOD_BOUND_ALWAYS);
    CHECK_INT(adamod_rule_info("adagrad", &info, sizeof info), ADAMOD_OK);
    CHECK(info.sparse_gradients && info.states[0].begins == ADAMOD_BEGINS_AT_OPTION);
    CHECK_INT(adamod_rule_info("prodigy", &info, sizeof info), ADAMOD_OK);
    CHECK(info.couples_arrays && !info.shaped && info.states[3].begins == ADAMOD_BEGINS_AS_PARAM);
    CHECK_INT(adamod_rule_info("schedulefree_sgd", &info, sizeof info), ADAMOD_OK);
    CHECK(info.averages && !info.whole_arrays && info.states[0].begins == ADAMOD_BEGINS_AS_PARAM);
    CHECK_INT(adamod_rule_info("soap", &info, sizeof info), ADAMOD_OK);
    CHECK(info.shaped && info.matrices_only && info.states[2].shape == ADAMOD_SHAPE_FIRST_SQUARE);
    CHECK_INT(adamod_rule_info("adafactor", &info, sizeof info), ADAMOD_OK);
    CHECK(info.shaped && !info.matrices_only);
    CHECK_INT(adamod_rule_info("adamw", &info, sizeof info), ADAMOD_OK);
    CHECK_STR(info.name, "adam");

    /* A caller with an older header gets the fields it knows, one with a newer header zeros after these. */
    memset(wider, 1, sizeof wider);
    CHECK_INT(adamod_rule_info("lion", wider, sizeof wider), ADAMOD_OK);
    CHECK_STR(wider[0].name, "lion");
    CHECK(wider[1].name == NULL && wider[1].bound == ADAMOD_BOUND_NEVER);
    info.year = 7;
    CHECK_INT(adamod_rule_info("lion", &info, offsetof(adamod_rule, year)), ADAMOD_OK);
    CHECK(info.year == 7 && !strcmp(info.name, "lion"));

    CHECK_INT(adamod_rule_info("lino", &info, sizeof info), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'lion'");
    CHECK_INT(adamod_rule_info(NULL, &info, sizeof info), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_rule_info("lion", NULL, sizeof info), ADAMOD_ERROR_ARGUMENT);
}

TEST(unknown_rules) {
    adamod_optimizer *opt = NULL;
    adamod_hyper *h = NULL;
    adamod_option o;
    CHECK_INT(adamod_create(&opt, "adamodd"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "'adamodd'; did you mean 'adamod'?");
    CHECK_INT(adamod_create(&opt, "Adam"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'adam'?");
    CHECK_INT(adamod_create_with(&opt, "ada-bound", NULL), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'adabound'?");
    CHECK_INT(adamod_hyper_create(&h, "RMSprop"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'rmsprop'?");
    CHECK_INT(adamod_option_at("nosadm", 0, &o), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'nosadam'?");
    CHECK_INT(adamod_option_find("adashft", "lr", &o), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "did you mean 'adashift'?");
    /* No name is near: the message lists all. */
    CHECK_INT(adamod_create(&opt, "stochastic gradient descent"), ADAMOD_ERROR_NAME);
    for (int i = 0; adamod_rule_name(i); i++) CHECK_HAS(adamod_last_error(), adamod_rule_name(i));
    CHECK_INT(adamod_create(&opt, ""), ADAMOD_ERROR_NAME);
    /* A word of three letters is near every other, so there is no suggestion. */
    CHECK_INT(adamod_create(&opt, "xyz"), ADAMOD_ERROR_NAME);
    CHECK(!strstr(adamod_last_error(), "did you mean"));
    char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK_INT(adamod_create(&opt, longest), ADAMOD_ERROR_NAME);
    CHECK(strlen(adamod_last_error()) < 2056);
    CHECK(opt == NULL && h == NULL);
}

TEST(unknown_options) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    double value = 5;
    adamod_option o;
    adamod_hyper *h = NULL;
    CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK);
    REFUSED(&f, adamod_set(f.opt, "beta4", 0.5), ADAMOD_ERROR_NAME, "adamod has no option 'beta4'; did you mean 'beta");
    REFUSED(&f, adamod_set_text(f.opt, "Weight_decay", "0.5"), ADAMOD_ERROR_NAME, "did you mean 'weight_decay'?");
    REFUSED(&f, adamod_get(f.opt, "clipnorm", &value), ADAMOD_ERROR_NAME, "did you mean 'clip_norm'?");
    REFUSED(&f, adamod_group_set(f.opt, 1, "flavor", 0), ADAMOD_ERROR_NAME, "did you mean 'flavour'?");
    REFUSED(&f, adamod_group_set_text(f.opt, 1, "beta_3", "0"), ADAMOD_ERROR_NAME, "did you mean 'beta3'?");
    REFUSED(&f, adamod_group_get(f.opt, 1, "maximise", &value), ADAMOD_ERROR_NAME, "did you mean 'maximize'?");
    REFUSED(&f, adamod_scheduled(f.opt, 0, "beta33", &value), ADAMOD_ERROR_NAME, "did you mean 'beta3'?");
    REFUSED(&f, adamod_set_schedule(f.opt, 0, "beta33", NULL), ADAMOD_ERROR_NAME, "did you mean 'beta3'?");
    REFUSED(&f, adamod_hyper_set(h, "epsilon", 1), ADAMOD_ERROR_NAME, "adamod has no option 'epsilon'");
    REFUSED(&f, adamod_hyper_set_text(h, "momentum", "1"), ADAMOD_ERROR_NAME, "adamod has no option 'momentum'");
    REFUSED(&f, adamod_hyper_get(h, "rho", &value), ADAMOD_ERROR_NAME, "adamod has no option 'rho'");
    REFUSED(&f, adamod_option_find("sgd", "betas", &o), ADAMOD_ERROR_NAME, "sgd has no option 'betas'");
    /* No option is near: the message lists the rule's own, and those of all rules. */
    REFUSED(&f, adamod_set(f.opt, "learning_rate", 1), ADAMOD_ERROR_NAME, "lr, beta1, beta2, beta3, eps, flavour");
    for (int i = 0; adamod_rule_name(i); i++) {
        CHECK_INT(adamod_option_find(adamod_rule_name(i), "wd", &o), ADAMOD_ERROR_NAME);
        CHECK_HAS(adamod_last_error(), "; all rules have weight_decay, decay, ");
        CHECK_HAS(adamod_last_error(), "seed, threads");
    }
    REFUSED(&f, adamod_option_at("adamod", 999, &o), ADAMOD_ERROR_NAME, "no option number 999");
    REFUSED(&f, adamod_option_at("adamod", -1, &o), ADAMOD_ERROR_NAME, "no option number -1");
    CHECK(value == 5);
    adamod_hyper_free(h);
    adamod_free(f.opt);
}

TEST(unknown_choices_and_states) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    void *data = &f;
    REFUSED(&f, adamod_set_text(f.opt, "decay", "decupled"), ADAMOD_ERROR_NAME,
            "decay is 'decupled', expected one of none, l2, decoupled, independent; did you mean 'decoupled'?");
    REFUSED(&f, adamod_set_text(f.opt, "flavour", "2"), ADAMOD_ERROR_NAME, "one of paper, published, keras");
    REFUSED(&f, adamod_set_text(f.opt, "nonfinite", ""), ADAMOD_ERROR_NAME, "one of pass, skip, error");
    REFUSED(&f, adamod_group_set_text(f.opt, 1, "flavour", "PAPER"), ADAMOD_ERROR_NAME,
            "one of paper, published, keras, adamd; did you mean 'paper'?");
    REFUSED(&f, adamod_set_text(f.opt, "lr", "fast"), ADAMOD_ERROR_RANGE, "lr is 'fast', expected a number");
    REFUSED(&f, adamod_set_text(f.opt, "lr", ""), ADAMOD_ERROR_RANGE, "expected a number");
    REFUSED(&f, adamod_set_text(f.opt, "lr", "1e-3x"), ADAMOD_ERROR_RANGE, "lr is '1e-3x', expected a number");
    REFUSED(&f, adamod_set_text(f.opt, "lr", "1e-3 "), ADAMOD_ERROR_RANGE, "expected a number");
    REFUSED(&f, adamod_set_text(f.opt, "lr", "nan"), ADAMOD_ERROR_RANGE, "lr is nan, expected 0 <= lr");
    REFUSED(&f, adamod_set_text(f.opt, "lr", "-1"), ADAMOD_ERROR_RANGE, "lr is -1, expected 0 <= lr");
    REFUSED(&f, adamod_set_text(f.opt, "maximize", "0.5"), ADAMOD_ERROR_RANGE, "a whole number");
    REFUSED(&f, adamod_state(f.opt, HALF, "exp_avgs", &data, NULL, NULL), ADAMOD_ERROR_NAME,
            "half: no state 'exp_avgs', there are exp_avg, exp_avg_sq, exp_avg_lr, master");
    REFUSED(&f, adamod_state(f.opt, MATRIX, "master", &data, NULL, NULL), ADAMOD_ERROR_NAME, "matrix: no state");
    CHECK(data == &f);
    double value = 9;
    CHECK_INT(adamod_set_text(f.opt, "decay", "independent"), ADAMOD_OK);
    CHECK_INT(adamod_get(f.opt, "decay", &value), ADAMOD_OK);
    CHECK_INT(value, 3);
    CHECK_INT(adamod_set_text(f.opt, "lr", "0x1p-3"), ADAMOD_OK);
    CHECK_INT(adamod_get(f.opt, "lr", &value), ADAMOD_OK);
    CHECK(value == 0.125);
    adamod_free(f.opt);
    adamod_optimizer *sgd = NULL;
    CHECK_INT(adamod_create(&sgd, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_add(sgd, "x", f.frozen, NULL, 1, (const int64_t[]){4}), ADAMOD_OK);
    CHECK_INT(adamod_state(sgd, 0, "exp_avg", &data, NULL, NULL), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "x: no state 'exp_avg', there is none");
    adamod_free(sgd);
}

TEST(messages) {
    for (int status = 0; status >= -15; status--) {
        const char *text = adamod_strerror((adamod_status)status);
        CHECK(text && *text && strcmp(text, "unknown status") != 0);
        for (int other = 0; other > status; other--) {
            CHECK(strcmp(text, adamod_strerror((adamod_status)other)) != 0);
        }
    }
    CHECK_STR(adamod_strerror((adamod_status)-16), "unknown status");
    CHECK_STR(adamod_strerror((adamod_status)1), "unknown status");
    CHECK_STR(adamod_strerror(ADAMOD_OK), "success");
    CHECK(adamod_last_error() != NULL);
    adamod_optimizer *opt = NULL;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    /* The message stays until the next failure, whatever calls succeed meanwhile. */
    CHECK_INT(adamod_set(opt, "lr", -1), ADAMOD_ERROR_RANGE);
    keep_message(ADAMOD_OK);
    CHECK_HAS(message, "lr is -1, expected 0 <= lr");
    CHECK(!strchr(message, '\n'));
    CHECK_INT(adamod_set(opt, "lr", 1), ADAMOD_OK);
    CHECK_STR(adamod_last_error(), message);
    /* A name longer than the line. */
    char name[3000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    float x = 0;
    CHECK_INT(adamod_add(opt, name, &x, NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, name, &x, NULL, 0, NULL), ADAMOD_ERROR_NAME);
    CHECK(strlen(adamod_last_error()) < 2056);
    CHECK_HAS(adamod_last_error(), "...nnn");
    CHECK_HAS(adamod_last_error(), "n: another parameter has this name");
    CHECK_INT(adamod_set_param(opt, 0, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "n: param is NULL");
    memset(name, '/', 600);
    strcpy(name + 600, "nowhere/at all");
    CHECK_INT(adamod_load(opt, name), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod_last_error(), "nowhere/at all: cannot open: No such file or directory");
    /* The message is one line, even if a name has control characters, bytes that are not UTF-8, or a cut character. */
    CHECK_INT(adamod_create(&opt, "a\nb\x1b[31m \x7f \xc2\x9b \xff \xc3."), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "no rule 'a?b?[31m ? ? ? ?.'; ");
    CHECK_INT(adamod_create(&opt, "\u202egnp\u2066.\u200f\u061c\u2028\u2069x"), ADAMOD_ERROR_NAME); /* nor direction */
    CHECK_HAS(adamod_last_error(), "no rule '?gnp?.????x'; ");
    strcpy(name, "1");
    for (int i = 0; i < 20; i++) strcat(name, "\u00e4");
    CHECK_INT(adamod_create(&opt, name), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "\u00e4\u00e4?'; ");
    adamod_free(opt);
}

static void *fails_elsewhere(void *out) {
    adamod_optimizer *opt = NULL;
    snprintf(out, 600, "%s|", adamod_last_error());
    adamod_create(&opt, "of another thread");
    strncat(out, adamod_last_error(), 500);
    return NULL;
}

TEST(last_error_of_each_thread) {
    adamod_optimizer *opt = NULL;
    char other[600];
    pthread_t thread;
    CHECK_INT(adamod_create(&opt, "of this thread"), ADAMOD_ERROR_NAME);
    if (!CHECK_INT(pthread_create(&thread, NULL, fails_elsewhere, other), 0)) return;
    pthread_join(thread, NULL);
    CHECK_HAS(other, "of another thread");
    CHECK(!strstr(other, "of this thread"));
    CHECK_HAS(adamod_last_error(), "of this thread");
}

/* ---- Versions, instruction sets ----------------------------------------------------------------------------------- */

TEST(version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", ADAMOD_VERSION_MAJOR, ADAMOD_VERSION_MINOR, ADAMOD_VERSION_PATCH);
    CHECK_INT(adamod_version(), ADAMOD_VERSION);
    CHECK_STR(adamod_version_string(), text);
}

TEST(instruction_sets) {
    int n = 0;
    char keep[64] = "", known[128] = "";
    const char *was = getenv("ADAMOD_ISA");
    if (was) snprintf(keep, sizeof keep, "%s", was);
    for (; adamod_isa_name(n); n++) {
        adamod_optimizer *opt = NULL;
        setenv("ADAMOD_ISA", adamod_isa_name(n), 1);
        CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
        CHECK_STR(adamod_isa(opt), adamod_isa_name(n));
        setenv("ADAMOD_ISA", "plain", 1);
        CHECK_STR(adamod_isa(opt), adamod_isa_name(n)); /* chosen when the handle is made */
        adamod_free(opt);
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", n ? ", " : "", adamod_isa_name(n));
    }
    CHECK(n >= 1);
    CHECK_STR(adamod_isa_name(n - 1), "plain");
    CHECK(adamod_isa_name(n) == NULL && adamod_isa_name(1000) == NULL);
    /* none, or nothing: the best */
    for (int i = 0; i < 2; i++) {
        adamod_optimizer *opt = NULL;
        if (i) setenv("ADAMOD_ISA", "", 1);
        else unsetenv("ADAMOD_ISA");
        CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
        CHECK_STR(adamod_isa(opt), adamod_isa_name(0));
        adamod_free(opt);
    }
    adamod_optimizer *opt = NULL;
    adamod_hyper *h = NULL;
    adamod_pool *pool = NULL;
    double norm = 5;
    adamod_optimizer *kept = NULL;
    adamod_hyper *kept_h = NULL;
    adamod_pool *kept_pool = NULL;
    static float p[100000], g[100000];
    const adamod_span span = {.param = p, .grad = g, .count = 100, .step = 1};
    CHECK_INT(adamod_create(&kept, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_set(kept, "threads", 2), ADAMOD_OK);
    CHECK_INT(adamod_add(kept, "w", p, g, 1, (int64_t[]){100000}), ADAMOD_OK);
    CHECK_INT(adamod_hyper_create(&kept_h, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_pool_create(&kept_pool, 2), ADAMOD_OK);
    setenv("ADAMOD_ISA", "sse9", 1);
    CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "ADAMOD_ISA is 'sse9', this processor has ");
    CHECK_HAS(adamod_last_error(), known);
    CHECK_INT(adamod_hyper_create(&h, "adam"), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "ADAMOD_ISA is 'sse9'");
    CHECK_INT(adamod_pool_create(&pool, 2), ADAMOD_ERROR_NAME);
    CHECK(opt == NULL && h == NULL && pool == NULL);
    /* The environment is read only when one of these is created, since another thread may be setting it. */
    CHECK_INT(adamod_norm(NULL, 0, NULL, &norm), ADAMOD_OK);
    CHECK_CLOSE(norm, 0, 0);
    CHECK_INT(adamod_update(kept_h, &span, 1, NULL), ADAMOD_OK);
    CHECK_INT(adamod_norm(&span, 1, kept_pool, &norm), ADAMOD_OK);
    CHECK_INT(adamod_step(kept), ADAMOD_OK); /* which makes threads */
    adamod_free(kept);
    adamod_hyper_free(kept_h);
    adamod_pool_free(kept_pool);
    if (was) setenv("ADAMOD_ISA", keep, 1);
    else unsetenv("ADAMOD_ISA");
}

RUN_TESTS(ENTRY(null_handles), ENTRY(null_arguments), ENTRY(numbers_out_of_range), ENTRY(rules_by_index),
          ENTRY(facts_of_rules), ENTRY(unknown_rules), ENTRY(unknown_options), ENTRY(unknown_choices_and_states),
          ENTRY(messages), ENTRY(last_error_of_each_thread), ENTRY(version), ENTRY(instruction_sets))
