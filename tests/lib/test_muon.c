/* Tests of Muon on matrices: against the reference in double, in f64 to 1e-12 over 200 updates and in f32; that neither
 * threads nor instruction sets change a bit; and matrices of one row, of zeros, of nothing, of numbers that are not finite.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "option_sets.h"
#include "reference.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

typedef struct shape {
    int ndim;
    int64_t dims[4];
} shape;

static int64_t count_of(const shape *s) {
    int64_t n = 1;
    for (int d = 0; d < s->ndim; d++) n *= s->dims[d];
    return n;
}

static void *room(int64_t n, adamod_type type) {
    void *p = calloc((size_t)n + 1, type_size(type));
    if (!p) abort();
    return p;
}

static adamod_tensor tensor_of(const shape *s, adamod_type type, void *p, void *g) {
    adamod_tensor t = {.name = "w", .param = p, .grad = g, .param_type = type, .grad_type = type, .ndim = s->ndim};
    for (int d = 0; d < s->ndim; d++) t.shape[d] = s->dims[d];
    return t;
}

/* The largest distance of a parameter from the reference's, over some updates. */
static double distance(const shape *s, const char *options, adamod_type type, int steps) {
    const int64_t n = count_of(s);
    void *p = room(n, type), *g = room(n, type);
    double *q = room(n, ADAMOD_F64), *h = room(n, ADAMOD_F64), most = 0;
    adamod_optimizer *opt = NULL;
    ref_options o;
    ref_defaults("muon", &o);
    apply(options, &o, NULL, -1, NULL);
    ref_state *ref = ref_create("muon", &o, s->ndim, s->dims);
    if (!CHECK(ref) || !CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK)) abort();
    apply(options, NULL, opt, -1, NULL);
    const adamod_tensor t = tensor_of(s, type, p, g);
    for (int64_t i = 0; i < n; i++) {
        put(type, p, i, noise((uint64_t)i));
        q[i] = get(type, p, i);
    }
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
    for (int k = 1; k <= steps; k++) {
        for (int64_t i = 0; i < n; i++) {
            put(type, g, i, noise((uint64_t)(i + n * k)));
            h[i] = get(type, g, i);
        }
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        ref_step(ref, q, h, &o);
        for (int64_t i = 0; i < n; i++) {
            const double d = fabs(get(type, p, i) - q[i]);
            most = d > most || d != d ? d : most;
        }
    }
    adamod_free(opt);
    ref_free(ref);
    free(p), free(g), free(q), free(h);
    return most;
}

/* Shapes of one task and, in large, of several; 5000 is deeper than the panels that are copied at once. */
static const shape shapes[] = {
    {2, {1, 1}},   {2, {1, 9}},    {2, {9, 1}},    {2, {5, 7}},        {2, {7, 5}},
    {2, {33, 33}}, {2, {13, 100}}, {3, {3, 4, 5}}, {4, {20, 3, 3, 3}}, {4, {6, 1, 2, 2}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const shape large[] = {{2, {130, 140}}, {2, {200, 97}}, {2, {4, 5000}}, {2, {5000, 4}}};

static const char *const sets[] = {
    "lr=0.02",
    "lr=0.02 nesterov=0 momentum=0.5 weight_decay=0.1",
    "lr=0.02 ns_steps=1 ns_a=1.5 ns_b=-0.5 ns_c=0 adjust_lr=match_rms_adamw weight_decay=0.01 decay=independent",
    "lr=0.02 ns_steps=0 adjust_lr=spectral_unclamped grad_scale=0.5 maximize=1 weight_decay=0.01 decay=l2",
    "lr=0.02 eps=100",
};
enum { SETS = sizeof sets / sizeof *sets };

/* f32: noise of full rank has no singular values so small that steps would enlarge their rounding. */
TEST(matrices_against_the_reference) {
    for (int s = 0; s < SHAPES; s++) {
        for (int k = 0; k < SETS; k++) {
            const int steps = fast() ? 20 : 200;
            if (!CHECK(distance(&shapes[s], sets[k], ADAMOD_F64, steps) <= 1e-12) ||
                !CHECK(distance(&shapes[s], sets[k], ADAMOD_F32, steps) <= 2e-5)) {
                printf("  shape %d, %s\n", s, sets[k]);
            }
        }
    }
    for (int s = 0; s < (int)(sizeof large / sizeof *large); s++) {
        if (!CHECK(distance(&large[s], sets[0], ADAMOD_F64, 2) <= 1e-12) ||
            !CHECK(distance(&large[s], sets[1], ADAMOD_F32, 2) <= 2e-6))
            printf("  large %d\n", s);
    }
}

/* ---- what comes out is nearly orthogonal ---- */

/* Rows of the update of a wide matrix: lengths from 0.7 to 1.2, and next to nothing in common. */
TEST(updates_are_nearly_orthogonal) {
    enum { ROWS = 8, COLS = 64 };
    static float p[ROWS * COLS], g[ROWS * COLS];
    adamod_optimizer *opt = NULL;
    for (int i = 0; i < ROWS * COLS; i++) g[i] = (float)noise((uint64_t)i) * (float)(1 + i / COLS);
    CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", 1), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", p, g, 2, (const int64_t[]){ROWS, COLS}), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (int k = 0; k < COLS; k++) dot += (double)p[i * COLS + k] * (double)p[j * COLS + k];
            CHECK(i == j ? dot > 0.4 && dot < 1.5 : fabs(dot) < 0.25);
        }
    }
    adamod_free(opt);
}

/* ---- degenerate matrices ---- */

/* A matrix of zeros, at the first update and after others; one of no elements; a scalar and a vector beside them. */
TEST(zeros_and_nothing) {
    float p[12], g[12] = {0}, v[3] = {1, 1, 1}, h[3] = {1, -1, 0}, none[1], x = 2, one = 1;
    adamod_optimizer *opt = NULL;
    for (int i = 0; i < 12; i++) p[i] = 1;
    CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "zeros", p, g, 2, (const int64_t[]){3, 4}), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "empty", none, none, 2, (const int64_t[]){0, 4}), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "vector", v, h, 1, (const int64_t[]){3}), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "scalar", &x, &one, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < 12; i++) CHECK(p[i] == 1);
    CHECK_CLOSE(v[0], 1 - 3e-4, 1e-7); /* Adam's first step is its learning rate */
    CHECK_CLOSE(v[1], 1 + 3e-4, 1e-7);
    CHECK(v[2] == 1);
    CHECK_CLOSE(x, 2 - 3e-4, 3e-7);
    adamod_free(opt);
}

/* A row is divided by its length, and the steps change its length alone. */
TEST(one_row) {
    float p[4] = {0}, g[4] = {3, 0, -4, 0};
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", 1), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "row", p, g, 2, (const int64_t[]){1, 4}), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    double length = 1;
    for (int i = 0; i < 5; i++) length = 3.4445 * length - 4.775 * pow(length, 3) + 2.0315 * pow(length, 5);
    CHECK_CLOSE(p[0], -0.6 * length, 1e-6);
    CHECK_CLOSE(p[2], 0.8 * length, 1e-6);
    CHECK(p[1] == 0 && p[3] == 0);
    adamod_free(opt);
}

/* One NaN or infinity makes the whole matrix NaN, which statistics count, and no other array; with nonfinite = skip it
 * changes nothing. */
TEST(not_finite) {
    static const float bad[] = {NAN, INFINITY};
    for (int k = 0; k < 4; k++) {
        float p[2][6], g[2][6];
        adamod_optimizer *opt = NULL;
        CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
        CHECK_INT(adamod_collect(opt, 1), ADAMOD_OK);
        if (k >= 2) CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
        for (int a = 0; a < 2; a++) {
            for (int i = 0; i < 6; i++) p[a][i] = 1, g[a][i] = (float)(i + 1);
            CHECK_INT(adamod_add(opt, a ? "b" : "a", p[a], g[a], 2, (const int64_t[]){2, 3}), ADAMOD_OK);
        }
        g[0][4] = bad[k % 2];
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        for (int i = 0; i < 6; i++) {
            CHECK(k >= 2 ? p[0][i] == 1 : isnan(p[0][i]));
            CHECK(k >= 2 ? p[1][i] == 1 : isfinite(p[1][i]) && p[1][i] != 1);
        }
        adamod_statistics s;
        if (k < 2) {
            CHECK_INT(adamod_get_statistics(opt, 0, &s), ADAMOD_OK);
            CHECK_INT(s.nonfinite, 6);
        }
        adamod_free(opt);
    }
}

/* Squares that overflow or vanish do not change the update. */
TEST(large_and_small_gradients) {
    double first[6] = {0};
    for (int k = 0; k < 3; k++) {
        double p[6] = {0}, g[6];
        adamod_optimizer *opt = NULL;
        const shape s = {2, {2, 3}};
        const adamod_tensor t = tensor_of(&s, ADAMOD_F64, p, g);
        CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "eps", 1e-30) | adamod_set(opt, "lr", 1), ADAMOD_OK);
        for (int i = 0; i < 6; i++) g[i] = ldexp(noise((uint64_t)i), k == 0 ? 0 : k == 1 ? 900 : -90);
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        for (int i = 0; i < 6; i++) {
            if (k == 0) first[i] = p[i];
            else CHECK_CLOSE(p[i], first[i], 1e-12);
        }
        adamod_free(opt);
    }
}

/* ---- threads, and the statistics ---- */

static void run_threads(const shape *s, int threads, int small, float *p) {
    const int64_t n = count_of(s);
    enum { LONG = 40000 }; /* with which a handle takes to threads */
    static float vector[LONG], slope[LONG];
    float *g = room(n, ADAMOD_F32), tiny[2][20], h[20];
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "threads", threads), ADAMOD_OK);
    const adamod_tensor t = tensor_of(s, ADAMOD_F32, p, g);
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "vector", vector, slope, 1, (const int64_t[]){LONG}), ADAMOD_OK);
    for (int a = 0; a < small; a++) {
        CHECK_INT(adamod_add(opt, a ? "y" : "x", tiny[a], h, 2, (const int64_t[]){4, 5}), ADAMOD_OK);
    }
    for (int i = 0; i < 20; i++) tiny[0][i] = tiny[1][i] = 1, h[i] = (float)noise((uint64_t)i);
    for (int64_t i = 0; i < n; i++) p[i] = (float)noise((uint64_t)i), g[i] = (float)noise((uint64_t)(i + n));
    for (int k = 0; k < 2; k++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(threads == 1 || threads_now() < 0 || threads_now() >= threads);
    if (small) CHECK(memcmp(tiny[0], tiny[1], sizeof tiny[0]) == 0);
    adamod_free(opt);
    free(g);
}

TEST(threads_change_no_bit) {
    static const shape s = {2, {200, 130}}; /* several blocks of a product, either way */
    float *one = room(200 * 130, ADAMOD_F32), *more = room(200 * 130, ADAMOD_F32);
    run_threads(&s, 1, 0, one);
    for (int threads = 2; threads <= 5; threads += 3) {
        run_threads(&s, threads, 2, more);
        CHECK(memcmp(one, more, 200 * 130 * sizeof *one) == 0);
    }
    free(one), free(more);
}

/* The learning rate of a matrix's elements is lr as it is adjusted. */
TEST(statistics_of_matrices) {
    float p[32] = {0}, g[32];
    adamod_optimizer *opt = NULL;
    adamod_statistics s;
    double sum = 0, moved = 0;
    for (int i = 0; i < 32; i++) g[i] = (float)noise((uint64_t)i), sum += (double)g[i] * (double)g[i];
    CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", 0.25) | adamod_collect(opt, 1), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", p, g, 2, (const int64_t[]){16, 2}), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < 32; i++) moved += (double)p[i] * (double)p[i];
    CHECK_INT(adamod_get_statistics(opt, 0, &s), ADAMOD_OK);
    CHECK_INT(s.elements, 32);
    CHECK_CLOSE(s.eta_min, 0.25 * sqrt(8), 1e-6);
    CHECK_CLOSE(s.step_max, 0.25 * sqrt(8), 1e-6);
    CHECK_CLOSE(s.grad_norm, sqrt(sum), 1e-6);
    CHECK_CLOSE(s.update_norm, sqrt(moved), 1e-6);
    CHECK(s.bounded == 0);
    adamod_free(opt);
}

/* ---- who takes what ---- */

TEST(use_muon_of_a_group) {
    float p[2][6] = {{0}, {0}}, g[6] = {1, 2, 3, 4, 5, 6};
    adamod_optimizer *opt = NULL;
    int group;
    void *data;
    adamod_type type;
    int64_t n;
    CHECK_INT(adamod_create(&opt, "muon"), ADAMOD_OK);
    CHECK_INT(adamod_add_group(opt, &group), ADAMOD_OK);
    CHECK_INT(adamod_group_set(opt, group, "use_muon", 0), ADAMOD_OK);
    for (int a = 0; a < 2; a++) {
        const shape s = {2, {2, 3}};
        adamod_tensor t = tensor_of(&s, ADAMOD_F32, p[a], g);
        t.name = a ? "embedding" : "hidden";
        CHECK_INT(adamod_add_tensor(opt, a ? group : 0, &t, NULL), ADAMOD_OK);
    }
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_state(opt, 0, "momentum_buffer", &data, &type, &n), ADAMOD_OK);
    CHECK(adamod_state(opt, 0, "exp_avg", &data, &type, &n) != ADAMOD_OK);
    CHECK_INT(adamod_state(opt, 1, "exp_avg_sq", &data, &type, &n), ADAMOD_OK);
    CHECK(adamod_state(opt, 1, "momentum_buffer", &data, &type, &n) != ADAMOD_OK);
    for (int i = 0; i < 6; i++) CHECK_CLOSE(p[1][i], -3e-4, 1e-9);
    CHECK(fabs((double)p[0][0] - (double)p[0][5]) > 1e-5);
    adamod_free(opt);
}

RUN_TESTS(ENTRY_OF_ONE_THREAD(matrices_against_the_reference), ENTRY(updates_are_nearly_orthogonal),
          ENTRY(zeros_and_nothing), ENTRY(one_row), ENTRY(not_finite), ENTRY(large_and_small_gradients),
          ENTRY(threads_change_no_bit), ENTRY(statistics_of_matrices), ENTRY(use_muon_of_a_group))
