/* test_by_hand.c - parameters of 16 bits that someone changes between steps, though they have masters: each element that is
 * no longer its master, rounded, is where the next update starts, and all others go on from their masters.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "against_reference.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- all rules ---- */

/* A run in 16 bits with masters, and the same in f32. Changes by hand to one are made to the other, too. */
typedef struct twin {
    adamod_optimizer *opt[2];
    array param[2], grad[2];
    float *own; /* the master, if the caller keeps it; NULL: the library */
    int64_t n;
} twin;

static bool twin_open(twin *x, const option_set *set, adamod_type type, adamod_type grad_type, int64_t n, bool own) {
    bool good = true;
    *x = (twin){.n = n};
    for (int k = 0; k < 2; k++) {
        x->param[k] = make_array(k ? ADAMOD_F32 : type, n, k);
        x->grad[k] = make_array(k ? ADAMOD_F32 : grad_type, n, 1 - k);
    }
    if (own) x->own = malloc((size_t)n * sizeof *x->own);
    for (int64_t i = 0; i < n; i++) {
        put(type, x->param[0].data, i, random_param());
        const double value = get(type, x->param[0].data, i);
        put(ADAMOD_F32, x->param[1].data, i, value);
        if (own) x->own[i] = (float)value;
    }
    for (int k = 0; k < 2; k++) {
        good = CHECK_INT(adamod_create(&x->opt[k], set->rule), 0) && good;
        apply(set->options, NULL, x->opt[k], -1, NULL);
        const adamod_tensor t = {.name = "x",
                                 .param = x->param[k].data,
                                 .grad = x->grad[k].data,
                                 .param_type = x->param[k].type,
                                 .grad_type = x->grad[k].type,
                                 .ndim = n % 6 == 0 ? 2 : 1,
                                 .shape = {n % 6 == 0 ? n / 6 : n, 6},
                                 .master = k ? NULL : x->own};
        good = CHECK_INT(adamod_add_tensor(x->opt[k], 0, &t, NULL), 0) && good;
    }
    return good;
}

static void twin_close(twin *x) {
    for (int k = 0; k < 2; k++) {
        adamod_free(x->opt[k]);
        free(x->param[k].memory);
        free(x->grad[k].memory);
    }
    free(x->own);
}

static bool twin_step(twin *x) {
    for (int64_t i = 0; i < x->n; i++) {
        /* 8 bits, in a range that all types hold */
        put(ADAMOD_BF16, x->grad[0].data, 0, random_gradient());
        const double g = get(ADAMOD_BF16, x->grad[0].data, 0);
        put(ADAMOD_F32, x->grad[1].data, i, fabs(g) < 0x1p-13 ? 0 : g);
    }
    for (int64_t i = 0; i < x->n; i++) {
        put(x->grad[0].type, x->grad[0].data, i, get(ADAMOD_F32, x->grad[1].data, i));
    }
    return CHECK_INT(adamod_step(x->opt[0]), 0) && CHECK_INT(adamod_step(x->opt[1]), 0);
}

static float *twin_master(const twin *x) {
    void *master = x->own;
    if (!master) CHECK_INT(adamod_state(x->opt[0], 0, "master", &master, NULL, NULL), 0);
    return master;
}

/* Changes about one in `one_in` elements, by a little or by much. */
static void twin_change(twin *x, int64_t one_in) {
    const adamod_type type = x->param[0].type;
    for (int64_t i = 0; i < x->n; i++) {
        if (rng() % (uint64_t)one_in) continue;
        uint16_t *p = &((uint16_t *)x->param[0].data)[i];
        const uint16_t to = i % 2 ? *p ^ 1 /* the number next to it */ : put16(type, random_param());
        if (to == *p) continue; /* no change */
        *p = to;
        put(ADAMOD_F32, x->param[1].data, i, get16(type, *p));
    }
}

static bool twin_agrees(const twin *x) {
    const float *master = twin_master(x);
    bool good = CHECK(!memcmp(master, x->param[1].data, (size_t)x->n * sizeof *master));
    for (int64_t i = 0; good && i < x->n; i++) {
        good = CHECK_INT(((uint16_t *)x->param[0].data)[i], nearest16(x->param[0].type, (double)master[i]));
    }
    for (int i = 0; good && state_name(i); i++) {
        void *a = NULL, *b = NULL;
        adamod_type type;
        int64_t count;
        if (!strcmp(state_name(i), "master")) continue;
        if (adamod_state(x->opt[0], 0, state_name(i), &a, &type, &count)) continue;
        good = CHECK_INT(adamod_state(x->opt[1], 0, state_name(i), &b, &type, &count), 0) &&
               CHECK(!memcmp(a, b, (size_t)count * type_size(type)));
    }
    return good;
}

/* Statistics also measure updates from where they start. */
static bool twin_statistics_agree(const twin *x) {
    adamod_statistics s[2];
    for (int k = 0; k < 2; k++) CHECK_INT(adamod_get_statistics(x->opt[k], -1, &s[k]), 0);
    return CHECK(s[0].update_norm == s[1].update_norm && s[0].grad_norm == s[1].grad_norm);
}

static bool twins_stay_equal(const option_set *set, adamod_type type, adamod_type grad_type, int64_t n, bool own) {
    twin x;
    bool good = twin_open(&x, set, type, grad_type, n, own);
    for (int t = 0; good && t < 6; t++) {
        const bool collect = t == 4;
        if (t > 1) twin_change(&x, t == 2 ? 1 : t == 3 ? n : 5); /* all, about one, some */
        for (int k = 0; k < 2; k++) CHECK_INT(adamod_collect(x.opt[k], collect), 0);
        good = twin_step(&x) && twin_agrees(&x) && (!collect || twin_statistics_agree(&x));
    }
    twin_close(&x);
    return good;
}

TEST(every_rule_starts_from_a_changed_parameter) {
    const char *was = getenv("ADAMOD_ISA");
    char keep[32] = "";
    option_set set;
    if (was) snprintf(keep, sizeof keep, "%s", was);
    rng_state = 21;
    int sets = 0;
    while (adamod_isa_name(sets)) sets++;
    for (int isa = 0; isa < sets; isa++) {
        setenv("ADAMOD_ISA", adamod_isa_name(isa), 1);
        for (int i = 0; set_at(i, &set); i++) {
            if (fast() && i % sets != isa) continue; /* each with one of them */
            const adamod_type type = (i + isa) % 3 ? ADAMOD_BF16 : ADAMOD_F16, grad_type = (adamod_type)((i + isa) % 4);
            const bool good = twins_stay_equal(&set, type, grad_type, i % 5 ? 45 : 1032, i % 2);
            if (!good) printf("%s {%s}, type %d, gradients %d\n", set.rule, set.options, (int)type, (int)grad_type);
        }
        /* Updates that have kernels of their own, on all instruction sets. */
        for (int r = fast() ? isa : 0; adamod_rule_name(r); r += fast() ? sets : 1) {
            set = (option_set){adamod_rule_name(r), r % 3 == 2 ? "state_type=bf16" : ""};
            const adamod_type type = r % 4 == 3 ? ADAMOD_F16 : ADAMOD_BF16;
            for (int g = 0; g < 2; g++) {
                if (!twins_stay_equal(&set, type, g ? ADAMOD_F32 : ADAMOD_BF16, 601, g))
                    printf("%s {%s}\n", set.rule, set.options);
            }
        }
    }
    if (was) setenv("ADAMOD_ISA", keep, 1);
    else unsetenv("ADAMOD_ISA");
}

/* ---- numbers that are not ordinary ---- */

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A master and its parameter after an update by 0, for each type and instruction set. */
typedef struct special {
    adamod_type type;
    uint32_t master;
    uint16_t param;
    uint32_t after;
    uint16_t param_after;
} special;

TEST(what_is_not_finite_and_signs_of_zero) {
#define BF ADAMOD_BF16
#define H ADAMOD_F16
    enum { COPIES = 33 };
    static const special cases[] = {
        {BF, 0x3f801234, 0x3f80, 0x3f801234, 0x3f80}, /* untouched */
        {BF, 0x3f808000, 0x3f80, 0x3f808000, 0x3f80}, /* a tie, to even */
        {BF, 0x3f808000, 0x3f81, 0x3f810000, 0x3f81}, /* the other side of it is a change */
        {BF, 0x80000000, 0x8000, 0x80000000, 0x8000}, /* -0 */
        {BF, 0x80000000, 0x0000, 0x00000000, 0x0000}, /* set to 0 */
        {BF, 0x7f7fffff, 0x7f80, 0x7f7fffff, 0x7f80}, /* too large for bf16: the master survives */
        {BF, 0x7f7fffff, 0x7f7f, 0x7f7f0000, 0x7f7f}, /* clamped */
        {BF, 0x7f800000, 0x3f80, 0x3f800000, 0x3f80}, /* an infinity that was mended */
        {BF, 0x7fc12345, 0x7fc1, 0x7fc12345, 0x7fc1}, /* a NaN, as it is rounded */
        {BF, 0x7fffffff, 0x7fff, 0x7fffffff, 0x7fff}, /* not the one that carries into the sign */
        {BF, 0xffc00000, 0x4000, 0x40000000, 0x4000}, /* a NaN that was mended */
        {H, 0x477ff000, 0x7c00, 0x477ff000, 0x7c00},  /* 65520 is infinite in f16 */
        {H, 0x4788b800, 0x7c00, 0x4788b800, 0x7c00},  /* 70000 */
        {H, 0x4788b800, 0x7bff, 0x477fe000, 0x7bff},  /* clamped to 65504 */
        {H, 0xc788b800, 0xfbff, 0xc77fe000, 0xfbff},  /* and from below */
        {H, 0x33000000, 0x0000, 0x33000000, 0x0000},  /* 2^-25 rounds to 0 */
        {H, 0x33000001, 0x0001, 0x33000001, 0x0001},  /* a little more, to the least number */
        {H, 0x7fc00000, 0x7e00, 0x7fc00000, 0x7e00},  /* a NaN */
        {H, 0x7fc00000, 0x3c00, 0x3f800000, 0x3c00},  /* that was mended */
        {H, 0xbf800000, 0x3c00, 0x3f800000, 0x3c00},  /* the sign alone */
    };
    const int n_cases = (int)(sizeof cases / sizeof cases[0]);
    const char *was = getenv("ADAMOD_ISA");
    char keep[32] = "";
    if (was) snprintf(keep, sizeof keep, "%s", was);
    for (int isa = 0; adamod_isa_name(isa); isa++) {
        adamod_hyper *h = NULL;
        setenv("ADAMOD_ISA", adamod_isa_name(isa), 1);
        CHECK_INT(adamod_hyper_create(&h, "sgd"), 0);
        CHECK_INT(adamod_hyper_set(h, "lr", 0), 0);
        for (int i = 0; i < n_cases; i++) {
            const special *c = &cases[i];
            float master[COPIES], zero[COPIES] = {0};
            uint16_t param[COPIES];
            for (int j = 0; j < COPIES; j++) master[j] = float_of(c->master), param[j] = c->param;
            adamod_span x = {.param = param, .grad = zero, .master = master, .param_type = c->type, .count = COPIES};
            for (x.step = 1; x.step <= 2; x.step++) CHECK_INT(adamod_update(h, &x, 1, NULL), 0);
            bool good = true;
            for (int j = 0; j < COPIES; j++) {
                uint32_t bits;
                memcpy(&bits, &master[j], sizeof bits);
                good = good && bits == c->after && param[j] == c->param_after;
            }
            if (!CHECK(good)) printf("%s, case %d\n", adamod_isa_name(isa), i);
        }
        adamod_hyper_free(h);
    }
    if (was) setenv("ADAMOD_ISA", keep, 1);
    else unsetenv("ADAMOD_ISA");
}

/* ---- state files ---- */

/* A state is loaded, and its masters; the parameters are the caller's, as they were when it was saved, or others. */
TEST(loaded_parameters_are_where_a_loaded_state_goes_on) {
    enum { N = 700 };
    const option_set set = {"adamod", "lr=0.01"};
    char path[64];
    twin x;
    rng_state = 22;
    snprintf(path, sizeof path, "by_hand.%d.safetensors", (int)getpid());
    if (!twin_open(&x, &set, ADAMOD_BF16, ADAMOD_BF16, N, false)) return;
    for (int t = 0; t < 3; t++) twin_step(&x);
    uint16_t saved[N];
    float exact[N];
    memcpy(saved, x.param[0].data, sizeof saved);
    memcpy(exact, x.param[1].data, sizeof exact);
    CHECK_INT(adamod_save(x.opt[0], path), 0);
    const uint64_t gradients = rng_state;
    for (int t = 0; t < 3; t++) twin_step(&x);
    float expected[2][N];
    for (int other = 0; other < 2; other++) {
        CHECK_INT(adamod_load(x.opt[0], path), 0);
        memcpy(x.param[0].data, saved, sizeof saved);
        for (int64_t i = 0; other && i < N; i += 3) ((uint16_t *)x.param[0].data)[i] ^= 0x8001;
        rng_state = gradients;
        twin_step(&x);
        memcpy(expected[other], twin_master(&x), sizeof expected[other]);
    }
    for (int64_t i = 0; i < N; i++) {
        /* steps do not depend on the parameter: without decay, they are the same from wherever they start */
        const double step = (double)expected[0][i] - (double)exact[i];
        const double from = i % 3 ? (double)exact[i] : get16(ADAMOD_BF16, saved[i] ^ 0x8001);
        if (i % 3) CHECK(expected[1][i] == expected[0][i]);
        if (!CHECK_CLOSE(expected[1][i], from + step, 0x1p-22 * (fabs(from) + fabs(step)))) break;
    }
    CHECK_INT(unlink(path), 0);
    twin_close(&x);
}

RUN_TESTS(ENTRY(every_rule_starts_from_a_changed_parameter), ENTRY(what_is_not_finite_and_signs_of_zero),
          ENTRY(loaded_parameters_are_where_a_loaded_state_goes_on))
