/* Tests of adamod_save and adamod_load: an optimizer goes on from a file as if it had never stopped, bit for bit; what
 * is in the file; and with an allocator of one's own.
 *
 * SPDX-License-Identifier: MIT
 */
#include "counting_allocator.h"
#include "state_model.h"
#include "core/safetensors.h"
#include "optim/optim.h"
#include "scratch.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Going on ----------------------------------------------------------------------------------------------------- */

TEST(goes_on_bit_for_bit) {
    enum { BEFORE = 6, ALL = 12 };
    for (int r = 0; model_rule(r).rule; r++) {
        for (int k = 0; k < model_kind_count; k++) {
            model first, second;
            unsigned char saved[16384], again[16384];
            enter_scratch(true);
            model_make(&first, r, model_kinds[k]);
            model_make(&second, r, model_kinds[k]);
            model_updates(&first, 1, BEFORE);
            CHECK_INT(adamod_skipped(first.opt), 1);
            CHECK_INT(adamod_save(first.opt, FILE_NAME), ADAMOD_OK);
            CHECK_INT(scratch_files(), 1);
            /* into a fresh one, with the parameters as their owner saved them */
            memcpy(second.p, first.p, sizeof first.p);
            CHECK_INT(adamod_load(second.opt, FILE_NAME), ADAMOD_OK);
            CHECK_INT(adamod_set_grad(second.opt, LATE, second.g[LATE]), ADAMOD_OK);
            CHECK(model_same(&first, &second));
            const size_t n = get_file(FILE_NAME, saved, sizeof saved);
            CHECK_INT(adamod_save(second.opt, "again"), ADAMOD_OK);
            CHECK_INT(get_file("again", again, sizeof again), n);
            CHECK(memcmp(saved, again, n) == 0);
            model_updates(&first, BEFORE + 1, ALL);
            model_updates(&second, BEFORE + 1, ALL);
            if (!CHECK(model_same(&first, &second))) printf("  %s %d\n", model_rule(r).rule, k);
            int64_t steps = -1;
            CHECK_INT(adamod_tensor_steps(second.opt, LATE, &steps), ADAMOD_OK);
            CHECK_INT(steps, ALL - 3);
            CHECK_INT(adamod_steps(second.opt), ALL);
            CHECK_INT(adamod_skipped(second.opt), 1);
            adamod_free(first.opt);
            adamod_free(second.opt);
        }
    }
}

/* The same optimizer loads a file more than once, and continues from there each time. */
TEST(goes_back) {
    enter_scratch(true);
    model m;
    static double p[TENSORS][MOST], end[TENSORS][MOST];
    model_make(&m, 0, model_kinds[3]);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    memcpy(p, m.p, sizeof p);
    model_updates(&m, 6, 9);
    memcpy(end, m.p, sizeof end);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
        CHECK_INT(adamod_steps(m.opt), 5);
        memcpy(m.p, p, sizeof p);
        model_updates(&m, 6, 9);
        CHECK(memcmp(end, m.p, sizeof end) == 0);
    }
    adamod_free(m.opt);
}

/* A process with one part of an optimizer, whose other parts are in other processes. */
TEST(takes_a_part_of_another) {
    static const char *const names[] = {"a", "b", "c"};
    float p[2][3][2] = {{{0}}}, g[3][2] = {{1, 2}, {-3, 4}, {5, 0.5f}};
    adamod_optimizer *all = NULL, *part = NULL;
    adamod__state_list list = {0}, own = {0};
    CHECK_INT(adamod_create(&all, "adam"), ADAMOD_OK);
    CHECK_INT(adamod_create(&part, "adam"), ADAMOD_OK);
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_add(all, names[i], p[0][i], g[i], 1, (int64_t[]){2}), ADAMOD_OK);
    CHECK_INT(adamod_add(part, "b", p[1][1], g[1], 1, (int64_t[]){2}), ADAMOD_OK);
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(all), ADAMOD_OK);
    memcpy(p[1], p[0], sizeof p[0]);
    CHECK_INT(adamod__state_list_make(all, "", &list), ADAMOD_OK);
    CHECK_INT(adamod__state_take(part, &list), ADAMOD_OK);
    adamod__state_list_free(&list);
    CHECK_INT(adamod_step(all), ADAMOD_OK);
    CHECK_INT(adamod_step(part), ADAMOD_OK);
    CHECK(memcmp(p[0][1], p[1][1], sizeof p[0][1]) == 0);
    /* the other way there is too little */
    CHECK_INT(adamod__state_list_make(part, "", &own), ADAMOD_OK);
    CHECK_INT(adamod__state_take(all, &own), ADAMOD_ERROR_MISMATCH);
    CHECK_HAS(adamod_last_error(), "no state 'a.exp_avg' to take");
    adamod__state_list_free(&own);
    adamod_free(all);
    adamod_free(part);
}

/* Before the first update, and with nothing to save at all. */
TEST(fresh_and_empty) {
    enter_scratch(true);
    model a, b;
    model_make(&a, 0, model_kinds[2]);
    model_make(&b, 0, model_kinds[2]);
    CHECK_INT(adamod_save(a.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(b.opt, FILE_NAME), ADAMOD_OK);
    CHECK(model_same(&a, &b));
    model_updates(&b, 1, 4);
    CHECK_INT(adamod_load(b.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_steps(b.opt), 0);
    adamod_optimizer *none = NULL;
    CHECK_INT(adamod_create(&none, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_save(none, "none"), ADAMOD_OK);
    CHECK_INT(adamod_load(none, "none"), ADAMOD_OK);
    CHECK_INT(adamod_load(none, FILE_NAME), ADAMOD_ERROR_MISMATCH);
    REFUSED(&b, "none", ADAMOD_ERROR_MISMATCH, "0 tensors, expected ");
    adamod_free(none);
    adamod_free(a.opt);
    adamod_free(b.opt);
}

/* Another name of Adam, with PyTorch's weight decay: the same bits, and files that either reads. */
TEST(adamw_is_adam_with_weight_decay) {
    enter_scratch(true);
    float p[4] = {1, 2, 3, 4}, q[4] = {1, 2, 3, 4}, g[4] = {1, -1, 2, 5};
    const int64_t shape[] = {4};
    adamod_optimizer *adam = NULL, *adamw = NULL;
    adamod_option o;
    CHECK_INT(adamod_create(&adam, "adam"), ADAMOD_OK);
    CHECK_INT(adamod_create(&adamw, "adamw"), ADAMOD_OK);
    CHECK_INT(adamod_set(adam, "weight_decay", 0.01), ADAMOD_OK);
    CHECK_INT(adamod_add(adam, "x", p, g, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(adamw, "x", q, g, 1, shape), ADAMOD_OK);
    for (int i = 0; i < 6; i++) {
        if (i == 2) CHECK_INT(adamod_save(adam, FILE_NAME) || adamod_load(adamw, FILE_NAME), ADAMOD_OK);
        if (i == 4) CHECK_INT(adamod_save(adamw, FILE_NAME) || adamod_load(adam, FILE_NAME), ADAMOD_OK);
        CHECK_INT(adamod_step(adam) || adamod_step(adamw), ADAMOD_OK);
    }
    CHECK(memcmp(p, q, sizeof p) == 0);
    CHECK_INT(adamod_option_find("adamw", "weight_decay", &o), ADAMOD_OK);
    CHECK(o.value == 0.01);
    CHECK_INT(adamod_set(adamw, "lr", -1), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "adamw: lr is -1");
    adamod_free(adam);
    adamod_free(adamw);
}

/* Parameters are found by name, not by number. */
TEST(another_order) {
    enter_scratch(true);
    float p[4] = {1, 2, 3, 4}, g[4] = {1, -1, 2, 5}, q[4];
    adamod_optimizer *a = NULL, *b = NULL;
    const int64_t shape[] = {2};
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_create(&b, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "x", p, g, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "y", p + 2, g + 2, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(b, "y", q + 2, g + 2, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(b, "x", q, g, 1, shape), ADAMOD_OK);
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(a), ADAMOD_OK);
    CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(b, FILE_NAME), ADAMOD_OK);
    memcpy(q, p, sizeof q);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_step(a), ADAMOD_OK);
        CHECK_INT(adamod_step(b), ADAMOD_OK);
    }
    CHECK(memcmp(p, q, sizeof p) == 0);
    adamod_free(a);
    adamod_free(b);
}

TEST(large) {
    enum { N = 300001 };
    enter_scratch(true);
    float *p = calloc(N, sizeof *p), *g = calloc(N, sizeof *g), *q = calloc(N, sizeof *q);
    adamod_optimizer *a = NULL, *b = NULL;
    const int64_t shape[] = {N};
    if (!p || !g || !q) abort();
    for (uint64_t i = 0; i < N; i++) g[i] = (float)noise(i);
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_create(&b, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "w", p, g, 1, shape), ADAMOD_OK);
    CHECK_INT(adamod_add(b, "w", q, g, 1, shape), ADAMOD_OK);
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_step(a), ADAMOD_OK);
    CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(b, FILE_NAME), ADAMOD_OK);
    memcpy(q, p, N * sizeof *p);
    CHECK_INT(adamod_step(a), ADAMOD_OK);
    CHECK_INT(adamod_step(b), ADAMOD_OK);
    CHECK(memcmp(p, q, N * sizeof *p) == 0);
    adamod_free(a);
    adamod_free(b);
    free(p);
    free(q);
    free(g);
}

/* ---- What is in a file --------------------------------------------------------------------------------------------- */

static void check_entry(const adamod__st_file *f, const char *name, const char *dtype, int ndim, const int64_t *shape) {
    const adamod__st_entry *e = adamod__st_find(f, name);
    if (!CHECK(e != NULL)) {
        printf("  no %s\n", name);
        return;
    }
    CHECK_STR(adamod__st_dtype_name(e->dtype), dtype);
    CHECK_INT(e->ndim, ndim);
    for (int d = 0; d < ndim && d < e->ndim; d++) CHECK_INT(e->shape[d], shape[d]);
}

TEST(names_in_a_file) {
    static const struct {
        const char *rule, *option, *value;
        const char *states[4]; /* of a matrix */
        const char *vector[4]; /* of a vector, where it differs */
    } expected[] = {
        {"adamod", NULL, NULL, {"exp_avg", "exp_avg_sq", "exp_avg_lr"}, {0}},
        {"adam", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
        {"amsgrad", NULL, NULL, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {0}},
        {"sgd", NULL, NULL, {0}, {0}},
        {"sgd", "momentum", "0.9", {"momentum_buffer"}, {0}},
        {"adagrad", NULL, NULL, {"sum"}, {0}},
        {"rmsprop", NULL, NULL, {"square_avg"}, {0}},
        {"rmsprop", "centered", "1", {"square_avg", "grad_avg"}, {0}},
        {"rmsprop", "momentum", "0.9", {"square_avg", "momentum_buffer"}, {0}},
        {"adadelta", NULL, NULL, {"square_avg", "acc_delta"}, {0}},
        {"adabound", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
        {"amsbound", NULL, NULL, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {0}},
        {"adashift", NULL, NULL, {"exp_avg", "exp_avg_sq", "grad_queue"}, {0}},
        {"nosadam", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
        {"adafactor", NULL, NULL, {"exp_avg_sq_row", "exp_avg_sq_col"}, {"exp_avg_sq"}},
        {"radam", NULL, NULL, {"exp_avg", "exp_avg_sq"}, {0}},
    };
    float w[6] = {0}, b[3] = {0};
    const float g[6] = {1, 2, 3, 4, 5, 6};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        adamod_optimizer *opt = NULL;
        adamod__st_file f;
        char name[64];
        enter_scratch(true);
        CHECK_INT(adamod_create(&opt, expected[i].rule), ADAMOD_OK);
        if (expected[i].option) CHECK_INT(adamod_set_text(opt, expected[i].option, expected[i].value), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "fc.weight", w, g, 2, (const int64_t[]){2, 3}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "fc.bias", b, g, 1, (const int64_t[]){3}), ADAMOD_OK);
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK_INT(adamod_save(opt, FILE_NAME), ADAMOD_OK);
        if (!CHECK_INT(adamod__st_open_within(FILE_NAME, ADAMOD__ST_MAX_HEADER, &f), ADAMOD_OK)) return;
        size_t n = 2;
        for (int k = 0; k < 4; k++) {
            const char *vector = expected[i].vector[0] ? expected[i].vector[k] : expected[i].states[k];
            if (expected[i].states[k]) {
                n++;
                snprintf(name, sizeof name, "fc.weight.%s", expected[i].states[k]);
                CHECK(adamod__st_find(&f, name) != NULL);
            }
            if (vector) {
                n++;
                snprintf(name, sizeof name, "fc.bias.%s", vector);
                CHECK(adamod__st_find(&f, name) != NULL);
            }
        }
        if (!CHECK_INT(f.n_entries, n)) printf("  %s\n", expected[i].rule);
        check_entry(&f, "fc.weight.step", "I64", 0, NULL);
        check_entry(&f, "fc.bias.step", "I64", 0, NULL);
        CHECK_STR(adamod__st_metadata(&f, "format"), "adamod optimizer state 1");
        CHECK_STR(adamod__st_metadata(&f, "rule"), expected[i].rule);
        CHECK_STR(adamod__st_metadata(&f, "steps"), "1");
        CHECK_STR(adamod__st_metadata(&f, "skipped"), "0");
        CHECK_INT(f.n_metadata, 4);
        adamod__st_close(&f);
        adamod_free(opt);
    }
}

TEST(types_and_shapes_in_a_file) {
    adamod__st_file f;
    model m;
    int64_t step = -1;
    enter_scratch(true);
    model_make(&m, 0, model_kinds[2]); /* bf16 with masters */
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    if (!CHECK_INT(adamod__st_open_within(FILE_NAME, ADAMOD__ST_MAX_HEADER, &f), ADAMOD_OK)) return;
    CHECK_INT(f.n_entries, 25);
    check_entry(&f, "layer.0.weight.exp_avg", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "layer.0.weight.exp_avg_sq", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "layer.0.weight.exp_avg_lr", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "layer.0.weight.master", "F32", 2, (const int64_t[]){5, 7});
    check_entry(&f, "scale.exp_avg", "F32", 0, NULL);
    check_entry(&f, "nothing.exp_avg", "F32", 2, (const int64_t[]){0, 3});
    check_entry(&f, "late.exp_avg", "F32", 3, (const int64_t[]){2, 2, 3});
    const adamod__st_entry *e = adamod__st_find(&f, "late.step");
    if (CHECK(e != NULL)) CHECK_INT(adamod__st_read(&f, e, &step), ADAMOD_OK);
    CHECK_INT(step, 2);
    CHECK_STR(adamod__st_metadata(&f, "steps"), "5");
    CHECK_STR(adamod__st_metadata(&f, "skipped"), "1");
    adamod__st_close(&f);
    adamod_free(m.opt);
    model_make(&m, model_rule_of("adashift", "window=3"), model_kinds[8]); /* f64 with bf16 states */
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    if (!CHECK_INT(adamod__st_open_within(FILE_NAME, ADAMOD__ST_MAX_HEADER, &f), ADAMOD_OK)) return;
    CHECK_INT(f.n_entries, 20);
    check_entry(&f, "layer.0.weight.grad_queue", "BF16", 3, (const int64_t[]){3, 5, 7});
    check_entry(&f, "layer.0.weight.exp_avg_sq", "BF16", 0, NULL);
    check_entry(&f, "scale.grad_queue", "BF16", 1, (const int64_t[]){3});
    adamod__st_close(&f);
    adamod_free(m.opt);
    model_make(&m, 0, model_kinds[1]); /* f64 */
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    if (!CHECK_INT(adamod__st_open_within(FILE_NAME, ADAMOD__ST_MAX_HEADER, &f), ADAMOD_OK)) return;
    check_entry(&f, "layer.0.bias.exp_avg", "F64", 1, (const int64_t[]){9});
    adamod__st_close(&f);
    adamod_free(m.opt);
}

TEST(unusual_names) {
    static const char *const names[] = {
        "",
        " ",
        ".",
        "a",
        "a.exp_avg",
        "a.exp_avg.exp_avg",
        "a.step",
        "\"quoted\"",
        "back\\slash\\u0041",
        "module/layer/0",
        "../../etc/passwd",
        "line\nbreak\ttab",
        "control\x01\x1f\x7f",
        "\xc3\xa4\xc3\xb6\xc3\xbc \xce\xb8\xe2\x82\x81",     /* umlauts, theta with an index */
        "\xe6\xa8\xa1\xe5\x9e\x8b.\xe6\x9d\x83\xe9\x87\x8d", /* Chinese */
        "\xf0\x9f\x94\xa5",                                  /* an emoji */
        "__metadata__",
        "{\"dtype\":\"F32\"}",
        "%s%n%d",
    };
    enum { N = sizeof names / sizeof *names };
    float p[N + 1] = {0}, q[N + 1] = {0}, g[N + 1];
    adamod_optimizer *a = NULL, *b = NULL;
    char longest[3000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    enter_scratch(true);
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_create(&b, "adamod"), ADAMOD_OK);
    for (int i = 0; i <= N; i++) {
        g[i] = (float)(i + 1);
        CHECK_INT(adamod_add(a, i < N ? names[i] : longest, &p[i], &g[i], 0, NULL), ADAMOD_OK);
        const int k = N - i;
        CHECK_INT(adamod_add(b, k < N ? names[k] : longest, &q[k], &g[k], 0, NULL), ADAMOD_OK);
    }
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_step(a), ADAMOD_OK);
    if (!CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_OK)) printf("  %s\n", adamod_last_error());
    if (!CHECK_INT(adamod_load(b, FILE_NAME), ADAMOD_OK)) printf("  %s\n", adamod_last_error());
    memcpy(q, p, sizeof q);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(adamod_step(a), ADAMOD_OK);
        CHECK_INT(adamod_step(b), ADAMOD_OK);
    }
    CHECK(memcmp(p, q, sizeof p) == 0);
    adamod_free(a);
    adamod_free(b);
    /* A name that is not UTF-8 cannot be in a file: it is refused when it would be written. */
    float x = 0;
    CHECK_INT(adamod_create(&a, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(a, "caf\xe9", &x, NULL, 0, NULL), ADAMOD_OK);
    enter_scratch(true);
    CHECK_INT(adamod_save(a, FILE_NAME), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "UTF-8");
    CHECK_INT(scratch_files(), 0);
    adamod_free(a);
}

/* ---- An allocator of one's own ------------------------------------------------------------------------------------ */

TEST(loading_with_an_allocator) {
    enter_scratch(true);
    allocation_counts a = {0};
    const adamod_allocator allocator = counting_allocator(&a);
    model m;
    model_make_as(&m, 0, model_kinds[2], &allocator, NULL);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t bytes = a.bytes;
    const int live = a.live;
    for (int i = 0; i < 3; i++) CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(a.bytes, bytes);
    CHECK_INT(a.live, live);
    model_updates(&m, 6, 6);
    int failures = 0;
    for (long k = 1; k < 100; k++) {
        countdown = k;
        model_remember(&m);
        const adamod_status status = adamod_load(m.opt, FILE_NAME);
        const bool reached = countdown == 0;
        countdown = 0;
        if (!reached) {
            CHECK_INT(status, ADAMOD_OK);
            break;
        }
        failures++;
        CHECK_INT(status, ADAMOD_ERROR_MEMORY);
        CHECK(model_unchanged(&m));
        CHECK_INT(a.bytes, bytes);
    }
    CHECK(failures >= 17);
    adamod_free(m.opt);
    CHECK_INT(a.bytes, 0);
    CHECK_INT(a.live, 0);
}

/* Names that are as long as names may be, and beside what killed processes left, whatever their numbers were. */
TEST(names_and_what_others_left) {
    char name[256], stale[64];
    enter_scratch(true);
    model m;
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 2);
    memset(name, 'n', 255);
    name[255] = '\0';
    if (!CHECK_INT(adamod_save(m.opt, name), ADAMOD_OK)) puts(adamod_last_error());
    CHECK_INT(adamod_load(m.opt, name), ADAMOD_OK);
    CHECK_INT(scratch_files(), 1);
    for (int i = 0; i < 100; i++) { /* as earlier versions called theirs */
        snprintf(stale, sizeof stale, i ? FILE_NAME ".tmp.%ld.%d" : FILE_NAME ".tmp.%ld", (long)getpid(), i);
        put_file(stale, "", 0);
    }
    if (!CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK)) puts(adamod_last_error());
    CHECK_INT(scratch_files(), 102);
    adamod_free(m.opt);
}

/* The last count there is stays what it is, and what is saved there can be loaded. */
TEST(counts_that_end) {
    const int64_t most = (INT64_C(1) << 62) - 1;
    enter_scratch(true);
    for (int r = 0; model_rule(r).rule; r++) {
        model m;
        int64_t steps = 0;
        model_make(&m, r, model_kinds[0]);
        model_updates(&m, 1, 5);
        for (int i = 0; i < TENSORS; i++) CHECK_INT(adamod_set_tensor_steps(m.opt, i, most - 1), ADAMOD_OK);
        for (int k = 0; k < 3; k++) {
            CHECK_INT(adamod_step(m.opt), ADAMOD_OK);
            CHECK_INT(adamod_tensor_steps(m.opt, 0, &steps), ADAMOD_OK);
            CHECK_INT(steps, most);
            CHECK_INT(adamod_steps(m.opt), most);
            CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
            if (!CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK)) puts(adamod_last_error());
        }
        adamod_free(m.opt);
    }
}

/* So do those of updates that were skipped, and one that is skipped leaves the others as they were. */
TEST(counts_of_skipped_updates_that_end) {
    enter_scratch(true);
    float p = 1, g = 1;
    int64_t steps = 0;
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", &p, &g, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_set_tensor_steps(opt, 0, (INT64_C(1) << 62) - 1), ADAMOD_OK);
    g = INFINITY;
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_skipped(opt), 1);
    CHECK_INT(adamod_tensor_steps(opt, 0, &steps), ADAMOD_OK);
    CHECK_INT(steps, (INT64_C(1) << 62) - 1);
    /* a file whose count of skipped updates is the last there is */
    CHECK_INT(adamod_save(opt, FILE_NAME), ADAMOD_OK);
    adamod__st_file f;
    float state[3] = {0};
    if (!CHECK_INT(adamod__st_open_within(FILE_NAME, ADAMOD__ST_MAX_HEADER, &f), ADAMOD_OK)) return;
    adamod__st_tensor tensors[8];
    adamod__st_pair pairs[8];
    for (size_t i = 0; i < f.n_metadata; i++) {
        pairs[i] = f.metadata[i];
        if (!strcmp(pairs[i].key, "skipped")) pairs[i].value = "4611686018427387903";
    }
    for (size_t i = 0; i < f.n_entries; i++) {
        const adamod__st_entry *e = &f.entries[i];
        tensors[i] = (adamod__st_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim, .data = state};
        if (e->dtype == ADAMOD__ST_I64) tensors[i].data = &steps;
    }
    CHECK_INT(adamod__st_write(FILE_NAME, pairs, f.n_metadata, tensors, f.n_entries), ADAMOD_OK);
    adamod__st_close(&f);
    CHECK_INT(adamod_load(opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_skipped(opt), (INT64_C(1) << 62) - 1);
    CHECK_INT(adamod_save(opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(opt, FILE_NAME), ADAMOD_OK);
    adamod_free(opt);
}

RUN_TESTS(ENTRY(goes_on_bit_for_bit), ENTRY(goes_back), ENTRY(takes_a_part_of_another), ENTRY(fresh_and_empty),
          ENTRY(adamw_is_adam_with_weight_decay), ENTRY(another_order), ENTRY(large), ENTRY(names_in_a_file),
          ENTRY(types_and_shapes_in_a_file), ENTRY(unusual_names), ENTRY(loading_with_an_allocator),
          ENTRY(names_and_what_others_left), ENTRY(counts_that_end), ENTRY(counts_of_skipped_updates_that_end))
