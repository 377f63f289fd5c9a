/* Tests of the step: gradients that are not finite, the norm, reports, and threads, which change no bit.
 *
 * SPDX-License-Identifier: MIT
 */
#include "values.h"
#include "api_fixture.h"
#include "optim/optim.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Steps -------------------------------------------------------------------------------------------------------- */

TEST(step_without_parameters) {
    api_fixture f;
    api_fixture_arrays(&f, "adamod");
    CHECK_INT(adamod_create(&f.opt, "adamod"), ADAMOD_OK);
    REFUSED(&f, adamod_step(f.opt), ADAMOD_ERROR_ORDER, "no parameters were added");
    CHECK_INT(adamod_steps(f.opt), 0);
    CHECK(adamod_grad_norm(f.opt) < 0);
    adamod_free(f.opt);
}

TEST(nonfinite_gradients) {
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        api_fixture f, clean;
        if (!api_fixture_make(&f, "adamod", 3) || !api_fixture_make(&clean, "adamod", 3)) return;
        CHECK_INT(adamod_set_text(f.opt, "nonfinite", "error"), ADAMOD_OK);
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(clean.opt), ADAMOD_OK);
        /* one in each array in turn, and the message names the array */
        f.matrix_grad[34] = (float)bad[k];
        REFUSED(&f, adamod_step(f.opt), ADAMOD_ERROR_NONFINITE, "matrix: its gradient holds a NaN or an infinity");
        f.matrix_grad[34] = clean.matrix_grad[34];
        f.half_grad[8] = to_bf16(bad[k]);
        REFUSED(&f, adamod_step(f.opt), ADAMOD_ERROR_NONFINITE, "half: its gradient");
        f.half_grad[8] = clean.half_grad[8];
        f.scalar_grad = bad[k];
        REFUSED(&f, adamod_step(f.opt), ADAMOD_ERROR_NONFINITE, "scalar: its gradient");
        CHECK_INT(adamod_steps(f.opt), 4);
        CHECK_INT(adamod_skipped(f.opt), 0);
        CHECK_INT(adamod_set_text(f.opt, "nonfinite", "skip"), ADAMOD_OK);
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        CHECK_INT(adamod_skipped(f.opt), 2);
        CHECK_INT(adamod_steps(f.opt), 4);
        CHECK(!isfinite(adamod_grad_norm(f.opt)));
        CHECK_INT(steps_of(f.opt, MATRIX), 4);
        f.scalar_grad = clean.scalar_grad;
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        CHECK_INT(adamod_step(clean.opt), ADAMOD_OK);
        /* after all that the two have done the same */
        CHECK(memcmp(f.matrix, clean.matrix, sizeof f.matrix) == 0);
        CHECK(memcmp(f.half, clean.half, sizeof f.half) == 0);
        CHECK(f.scalar == clean.scalar);
        CHECK_INT(adamod_set_text(f.opt, "nonfinite", "pass"), ADAMOD_OK);
        f.matrix_grad[0] = (float)bad[k];
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        CHECK(!isfinite(f.matrix[0]));
        CHECK(isfinite(f.matrix[1]));
        CHECK(adamod_grad_norm(f.opt) < 0);
        adamod_free(f.opt);
        adamod_free(clean.opt);
    }
}

/* A gradient that is not looked at cannot stop a step. */
TEST(nonfinite_frozen_gradients) {
    api_fixture f;
    if (!api_fixture_make(&f, "adamod", 3)) return;
    CHECK_INT(adamod_set_text(f.opt, "nonfinite", "error"), ADAMOD_OK);
    f.matrix_grad[3] = NAN;
    CHECK_INT(adamod_set_grad(f.opt, MATRIX, NULL), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_INT(adamod_set_grad(f.opt, MATRIX, f.matrix_grad), ADAMOD_OK);
    REFUSED(&f, adamod_step(f.opt), ADAMOD_ERROR_NONFINITE, "in update 5");
    adamod_free(f.opt);
}

/* Finite as it is given, and not, or its square is not, as the update sees it in its type of computation. */
TEST(gradients_that_are_too_large) {
    enum { NEITHER = 0, IN_F64 = 2, BOTH = 3 };
    static const struct {
        double g, scale, clip_norm, clip_value;
        int taken; /* bit 0: by an f32 parameter, 1: by f64 */
    } cases[] = {{1e300, 1, INFINITY, INFINITY, NEITHER},
                 {1.4e154, 1, INFINITY, INFINITY, NEITHER},
                 {1.3e154, 1, INFINITY, INFINITY, IN_F64},
                 {3.5e38, 1, INFINITY, INFINITY, IN_F64},
                 {3.4e38, 1, INFINITY, INFINITY, IN_F64},
                 {1.85e19, 1, INFINITY, INFINITY, IN_F64},
                 {1.84e19, 1, INFINITY, INFINITY, BOTH},
                 {1e10, 1e30, INFINITY, INFINITY, IN_F64},
                 {1e-12, 1e30, INFINITY, INFINITY, BOTH},
                 {1e30, 1e-12, INFINITY, INFINITY, BOTH},
                 /* clipping brings a number back into range, and an infinity not */
                 {1e300, 1, 1, INFINITY, IN_F64},
                 {3.4e38, 1, 1, INFINITY, BOTH},
                 {1e10, 1e30, 1, INFINITY, BOTH},
                 {1e300, 1, INFINITY, 1, IN_F64},
                 {3.4e38, 1, INFINITY, 1, BOTH},
                 {3.4e38, 1, INFINITY, 1e20, IN_F64},
                 {INFINITY, 1, INFINITY, 1, NEITHER},
                 {NAN, 1, INFINITY, 1, NEITHER}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int wide = 0; wide < 2; wide++) {
            adamod_optimizer *opt;
            double p64 = 1, g = cases[i].g;
            float p32 = 1;
            adamod_tensor t = {.name = "w", .param = wide ? (void *)&p64 : &p32, .grad = &g, .grad_type = ADAMOD_F64};
            t.param_type = wide ? ADAMOD_F64 : ADAMOD_F32;
            CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK);
            CHECK_INT(adamod_set(opt, "grad_scale", cases[i].scale), ADAMOD_OK);
            CHECK_INT(adamod_set(opt, "clip_norm", cases[i].clip_norm), ADAMOD_OK);
            CHECK_INT(adamod_set(opt, "clip_value", cases[i].clip_value), ADAMOD_OK);
            CHECK_INT(adamod_set_text(opt, "nonfinite", "error"), ADAMOD_OK);
            CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
            const bool taken = cases[i].taken >> wide & 1;
            if (!CHECK_INT(adamod_step(opt), taken ? ADAMOD_OK : ADAMOD_ERROR_NONFINITE)) printf("    case %zu\n", i);
            char expected[128];
            if (!isfinite(g)) {
                snprintf(expected, sizeof expected, "w: its gradient holds a NaN or an infinity in update 1");
            } else {
                const double seen = cases[i].clip_norm == 1 ? 1 : g * cases[i].scale;
                snprintf(expected, sizeof expected,
                         "w: its gradient is too large in update 1: the square of %.0e overflows %s", seen,
                         wide ? "f64" : "f32");
            }
            if (!taken) CHECK_HAS(adamod_last_error(), expected);
            CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            CHECK_INT(adamod_skipped(opt), !taken);
            CHECK(isfinite(p32) && isfinite(p64));
            adamod_free(opt);
        }
    }
}

/* States of fewer bits have f32's range, also those of f64 parameters. */
TEST(gradients_too_large_for_states) {
    static const char *const types[] = {"auto", "bf16", "q8"};
    for (int s = 0; s < 3; s++) {
        for (int momentum = 0; momentum < 2; momentum++) {
            adamod_optimizer *opt;
            double p = 1, g = 1e25;
            const adamod_tensor t = {
                .name = "w", .param = &p, .grad = &g, .param_type = ADAMOD_F64, .grad_type = ADAMOD_F64};
            CHECK_INT(adamod_create(&opt, "sgd"), ADAMOD_OK);
            CHECK_INT(adamod_set(opt, "momentum", 0.5 * momentum), ADAMOD_OK);
            CHECK_INT(adamod_set_text(opt, "state_type", types[s]), ADAMOD_OK);
            CHECK_INT(adamod_set_text(opt, "nonfinite", "error"), ADAMOD_OK);
            CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
            const bool taken = s == 0 || !momentum;
            CHECK_INT(adamod_step(opt), taken ? ADAMOD_OK : ADAMOD_ERROR_NONFINITE);
            if (!taken) CHECK_HAS(adamod_last_error(), "the square of 1e+25 overflows f32");
            adamod_free(opt);
        }
    }
}

TEST(gradient_norm) {
    api_fixture f;
    if (!api_fixture_make(&f, "sgd", 1)) return;
    double sum = 0, norm;
    for (int i = 0; i < 35; i++) sum += (double)f.matrix_grad[i] * (double)f.matrix_grad[i];
    for (int i = 0; i < 9; i++) {
        const uint32_t bits = (uint32_t)f.half_grad[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        sum += (double)x * (double)x;
    }
    norm = sqrt(sum + f.scalar_grad * f.scalar_grad);
    CHECK(adamod_grad_norm(f.opt) == -1); /* no option needed it */
    CHECK_INT(adamod_set(f.opt, "clip_norm", 1e9), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_CLOSE(adamod_grad_norm(f.opt), norm, 1e-12 * norm);
    CHECK_INT(adamod_set(f.opt, "grad_scale", 0.25), ADAMOD_OK);
    CHECK_INT(adamod_set(f.opt, "clip_norm", 1e-3), ADAMOD_OK); /* before clipping, after scaling */
    CHECK_INT(adamod_set(f.opt, "lr", 1), ADAMOD_OK);
    const double p = f.scalar;
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_CLOSE(adamod_grad_norm(f.opt), norm / 4, 1e-12 * norm);
    CHECK_CLOSE(p - f.scalar, f.scalar_grad / norm * 1e-3, 1e-12);
    CHECK_INT(adamod_set(f.opt, "clip_norm", INFINITY), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK(adamod_grad_norm(f.opt) == -1);
    CHECK_INT(adamod_collect(f.opt, 1), ADAMOD_OK);
    CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
    CHECK_CLOSE(adamod_grad_norm(f.opt), norm / 4, 1e-12 * norm);
    adamod_free(f.opt);
}

/* Training with several ranks measures all gradients before each rank updates its part. */
TEST(a_step_is_measured_without_an_update) {
    float p[2] = {1, 2}, g[2] = {3, 4};
    double factor = 0, norm = 0;
    bool finite = false;
    adamod_optimizer *opt;
    if (!CHECK_INT(adamod_create(&opt, "adam"), ADAMOD_OK)) return;
    CHECK_INT(adamod_add(opt, "w", p, g, 1, (const int64_t[]){2}), ADAMOD_OK);
    CHECK_INT(adamod__measure(opt, 7, &factor, &norm, &finite), ADAMOD_OK);
    CHECK(factor == 1 && norm < 0 && finite);
    CHECK_INT(adamod_set(opt, "clip_norm", 0.5), ADAMOD_OK);
    CHECK_INT(adamod__measure(opt, 7, &factor, &norm, &finite), ADAMOD_OK);
    CHECK(fabs(factor - 0.1) < 1e-6 && norm == 5 && finite);
    g[1] = NAN;
    CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
    CHECK_INT(adamod__measure(opt, 7, &factor, &norm, &finite), ADAMOD_OK);
    CHECK(!finite);
    CHECK_INT(adamod_set_text(opt, "nonfinite", "error"), ADAMOD_OK);
    CHECK_INT(adamod__measure(opt, 7, &factor, &norm, &finite), ADAMOD_ERROR_NONFINITE);
    CHECK_HAS(adamod_last_error(), "in update 7");
    CHECK(p[0] == 1 && p[1] == 2);
    adamod_free(opt);
}

TEST(reports_of_attempts) {
    api_fixture f;
    adamod_step_report r = {0};
    adamod_schedule *s;
    if (!api_fixture_make(&f, "adamod", 0)) return;
    CHECK_INT(adamod_report(NULL, 1, &r), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_report(f.opt, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_report(f.opt, 0, &r), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_report(f.opt, 1, &r), ADAMOD_ERROR_ORDER);
    CHECK_HAS(adamod_last_error(), "attempt 1 is not done yet");
    if (!CHECK_INT(adamod_schedule_warmup(&s, 0, 20), ADAMOD_OK)) return;
    CHECK_INT(adamod_set_schedule(f.opt, 0, "lr", s), ADAMOD_OK);
    adamod_schedule_free(s);
    CHECK_INT(adamod_set_text(f.opt, "nonfinite", "skip"), ADAMOD_OK);
    for (int t = 1; t <= 12; t++) { /* the tenth is skipped */
        const double kept = f.scalar_grad;
        double lr = 0;
        CHECK_INT(adamod_scheduled(f.opt, 0, "lr", &lr), ADAMOD_OK);
        if (t == 10) f.scalar_grad = NAN;
        CHECK_INT(adamod_step(f.opt), ADAMOD_OK);
        f.scalar_grad = kept;
        CHECK_INT(adamod_report(f.opt, t, &r), ADAMOD_OK);
        CHECK_INT(r.attempt, t);
        CHECK_INT(r.taken, t != 10);
        CHECK(r.lr == lr);
        CHECK(t == 10 ? r.grad_norm != r.grad_norm : r.grad_norm == adamod_grad_norm(f.opt));
    }
    CHECK_INT(adamod_steps(f.opt) + adamod_skipped(f.opt), 12);
    for (int t = 5; t <= 12; t++) CHECK_INT(adamod_report(f.opt, t, &r), ADAMOD_OK);
    CHECK_INT(adamod_report(f.opt, 4, &r), ADAMOD_ERROR_ORDER);
    CHECK_HAS(adamod_last_error(), "attempt 4 is no longer kept: only the last 8 are");
    CHECK_INT(adamod_report(f.opt, 13, &r), ADAMOD_ERROR_ORDER);
    CHECK_HAS(adamod_last_error(), "attempt 13 is not done yet");
    CHECK_INT(adamod_save(f.opt, "reports.tmp"), ADAMOD_OK);
    CHECK_INT(adamod_load(f.opt, "reports.tmp"), ADAMOD_OK);
    CHECK_INT(adamod_report(f.opt, 12, &r), ADAMOD_ERROR_ORDER);
    remove("reports.tmp");
    adamod_free(f.opt);
}

/* ---- Threads ------------------------------------------------------------------------------------------------------ */

enum { LARGE = 70001 }; /* several chunks, none of them full at the end */
typedef struct run {
    adamod_optimizer *opt;
    float *p, *g;
    uint64_t seed;
    adamod_status status;
    adamod_pool *pool;
    int wrong;
} run;

static int run_make(run *x, const char *rule, uint64_t seed) {
    *x = (run){.p = calloc(LARGE, sizeof *x->p), .g = calloc(LARGE, sizeof *x->g), .seed = seed};
    if (!x->p || !x->g) abort();
    for (uint64_t i = 0; i < LARGE; i++) {
        x->p[i] = (float)noise(seed + i);
        x->g[i] = (float)noise(seed + LARGE + i);
    }
    const int64_t shape[] = {LARGE};
    if (!CHECK_INT(adamod_create(&x->opt, rule), ADAMOD_OK)) return 0;
    CHECK_INT(adamod_set(x->opt, "clip_norm", 100), ADAMOD_OK);
    return CHECK_INT(adamod_add(x->opt, "large", x->p, x->g, 1, shape), ADAMOD_OK);
}

static void run_free(run *x) {
    adamod_free(x->opt);
    free(x->p);
    free(x->g);
}

enum { UPDATES = 12 };

static void *run_main(void *argument) {
    run *x = argument;
    for (int i = 0; i < UPDATES && x->status == ADAMOD_OK; i++) x->status = adamod_step(x->opt);
    return NULL;
}

/* Many short runs on a pool, so that those of two threads meet. */
static void *norms_main(void *argument) {
    run *x = argument;
    const adamod_span span = {.grad = x->g, .count = LARGE};
    double expected = 0, norm = 0;
    x->status = adamod_norm(&span, 1, NULL, &expected);
    for (int i = 0; i < 300 && x->status == ADAMOD_OK; i++) {
        x->status = adamod_norm(&span, 1, x->pool, &norm);
        if (norm != expected) x->wrong++;
    }
    return NULL;
}

static void compare_runs(const run *a, const run *b) {
    void *x = NULL, *y = NULL;
    CHECK(memcmp(a->p, b->p, LARGE * sizeof(float)) == 0);
    CHECK_INT(adamod_state(a->opt, 0, "exp_avg", &x, NULL, NULL), ADAMOD_OK);
    CHECK_INT(adamod_state(b->opt, 0, "exp_avg", &y, NULL, NULL), ADAMOD_OK);
    CHECK(x && y && memcmp(x, y, LARGE * sizeof(float)) == 0);
    CHECK(adamod_grad_norm(a->opt) == adamod_grad_norm(b->opt));
}

TEST(threads_change_between_steps) {
    static const int threads[UPDATES] = {1, 2, 3, 0, 8, 1, 0, 5, 2, 2, 16, 1};
    run one, many;
    if (!run_make(&one, "adamod", 1) || !run_make(&many, "adamod", 1)) return;
    CHECK_INT(adamod_set(one.opt, "threads", 1), ADAMOD_OK);
    run_main(&one);
    CHECK_INT(one.status, ADAMOD_OK);
    for (int i = 0; i < UPDATES; i++) {
        CHECK_INT(adamod_set(many.opt, "threads", threads[i]), ADAMOD_OK);
        CHECK_INT(adamod_step(many.opt), ADAMOD_OK);
    }
    compare_runs(&one, &many);
    run_free(&one);
    run_free(&many);
}

TEST(zero_threads_is_one_for_each_core) {
    run one, many;
    double threads = -7;
    if (!run_make(&one, "adamod", 2) || !run_make(&many, "adamod", 2)) return;
    CHECK_INT(adamod_set(one.opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_get(many.opt, "threads", &threads), ADAMOD_OK);
    CHECK_INT(threads, 0);
    run_main(&one);
    run_main(&many);
    CHECK_INT(many.status, ADAMOD_OK);
    compare_runs(&one, &many);
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_pool_create(&pool, 0), ADAMOD_OK);
    CHECK(adamod_pool_threads(pool) >= 1);
    CHECK(adamod_pool_threads(pool) <= sysconf(_SC_NPROCESSORS_CONF));
    adamod_pool_free(pool);
    run_free(&one);
    run_free(&many);
}

TEST(a_pool_shared_by_two_threads) {
    run expected[2], shared[2];
    pthread_t thread[2];
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    CHECK_INT(adamod_pool_threads(pool), 3);
    for (int i = 0; i < 2; i++) {
        const char *rule = i ? "adam" : "adamod";
        if (!run_make(&expected[i], rule, (uint64_t)i * 1000) || !run_make(&shared[i], rule, (uint64_t)i * 1000))
            return;
        CHECK_INT(adamod_set(expected[i].opt, "threads", 1), ADAMOD_OK);
        CHECK_INT(adamod_set_pool(shared[i].opt, pool), ADAMOD_OK);
        run_main(&expected[i]);
    }
    for (int phase = 0; phase < 2; phase++) {
        for (int i = 0; i < 2; i++) {
            shared[i].pool = pool;
            CHECK_INT(pthread_create(&thread[i], NULL, phase ? norms_main : run_main, &shared[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            CHECK_INT(shared[i].status, ADAMOD_OK);
            CHECK_INT(shared[i].wrong, 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        compare_runs(&expected[i], &shared[i]);
        /* handed back, the handle goes on with threads of its own */
        CHECK_INT(adamod_set_pool(shared[i].opt, NULL), ADAMOD_OK);
        CHECK_INT(adamod_set(shared[i].opt, "threads", 2), ADAMOD_OK);
    }
    adamod_pool_free(pool);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(adamod_step(shared[i].opt), ADAMOD_OK);
        CHECK_INT(adamod_step(expected[i].opt), ADAMOD_OK);
        compare_runs(&expected[i], &shared[i]);
        run_free(&expected[i]);
        run_free(&shared[i]);
    }
}

TEST(pools_of_many_sizes) {
    double norms[4] = {0};
    static float g[LARGE];
    for (uint64_t i = 0; i < LARGE; i++) g[i] = (float)noise(i);
    const adamod_span x = {.grad = g, .count = LARGE};
    const int sizes[] = {1, 2, 7, 40};
    for (int i = 0; i < 4; i++) {
        adamod_pool *pool = NULL;
        CHECK_INT(adamod_pool_create(&pool, sizes[i]), ADAMOD_OK);
        CHECK_INT(adamod_pool_threads(pool), sizes[i]);
        for (int k = 0; k < 20; k++) CHECK_INT(adamod_norm(&x, 1, pool, &norms[i]), ADAMOD_OK);
        CHECK(norms[i] == norms[0] && norms[i] > 1);
        adamod_pool_free(pool);
    }
}

/* In a child process: uses a handle and a pool whose threads fork has left behind. 0 if all is well. */
static int in_a_child(run *x, const run *expected, adamod_pool *pool) {
    const adamod_span span = {.grad = x->g, .count = LARGE};
    double norm = -1, alone = -2;
    if (adamod_step(x->opt) || memcmp(x->p, expected->p, LARGE * sizeof(float)) != 0) return 1;
    if (adamod_norm(&span, 1, pool, &norm) || adamod_norm(&span, 1, NULL, &alone) || norm != alone) return 2;
    adamod_free(x->opt);
    adamod_pool_free(pool);
    return 0;
}

#ifdef __SANITIZE_THREAD__
enum { THREADS_IN_A_CHILD = 0 };
#else
enum { THREADS_IN_A_CHILD = 1 };
#endif

TEST(a_child_process_has_no_threads_of_its_parent) {
    run one, many;
    adamod_pool *pool = NULL;
    double norm;
    int status = -1;
    if (!THREADS_IN_A_CHILD) SKIP("the thread sanitizer lets no child start threads");
    if (getenv("ADAMOD_TEST_EMULATED")) SKIP("qemu crashes where a child of several threads starts one");
    if (!run_make(&one, "adamod", 3) || !run_make(&many, "adamod", 3)) return;
    const adamod_span span = {.grad = many.g, .count = LARGE};
    CHECK_INT(adamod_set(one.opt, "threads", 1), ADAMOD_OK);
    CHECK_INT(adamod_set(many.opt, "threads", 3), ADAMOD_OK);
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    CHECK_INT(adamod_norm(&span, 1, pool, &norm), ADAMOD_OK);
    CHECK_INT(adamod_step(many.opt), ADAMOD_OK);
    for (int i = 0; i < 2; i++) CHECK_INT(adamod_step(one.opt), ADAMOD_OK);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); /* one that waits for a thread that is not there would wait for ever */
        _exit(in_a_child(&many, &one, pool));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(adamod_step(many.opt), ADAMOD_OK); /* the parent has them still */
    compare_runs(&one, &many);
    adamod_pool_free(pool);
    run_free(&one);
    run_free(&many);
}

/* Rules that average their path put x in the parameters' place, and y back, bit for bit. */
TEST(weights_to_evaluate_with) {
    static const struct {
        const char *rule;
        adamod_type type;
        double near;
    } cases[] = {{"schedulefree_adamw", ADAMOD_F64, 1e-15},
                 {"schedulefree_sgd", ADAMOD_F32, 1e-6},
                 {"schedulefree_adamw", ADAMOD_BF16, 0x1p-8}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        enum { N = 700 };
        double p[N] = {0}, g[N] = {0}, before[N], average[N];
        adamod_optimizer *opt;
        CHECK_INT(adamod_create(&opt, cases[k].rule), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "lr", 0.01), ADAMOD_OK);
        const adamod_tensor t = {
            .param = p, .grad = g, .param_type = cases[k].type, .grad_type = cases[k].type, .ndim = 1, .shape = {N}};
        for (int i = 0; i < N; i++) put(t.param_type, p, i, noise((uint64_t)i));
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
        memcpy(before, p, sizeof p);
        CHECK_INT(adamod_evaluation(opt, 1), ADAMOD_OK); /* no update yet: they are the same */
        CHECK(!memcmp(before, p, sizeof p));
        CHECK_INT(adamod_evaluation(opt, 0), ADAMOD_OK);
        for (int step = 1; step <= 6; step++) {
            for (int i = 0; i < N; i++) put(t.param_type, g, i, noise((uint64_t)(step * N + i)));
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            void *z;
            adamod_type z_type;
            CHECK_INT(adamod_state(opt, 0, "z", &z, &z_type, NULL), ADAMOD_OK);
            /* with equal weights x is the mean of all z */
            for (int i = 0; i < N; i++) {
                average[i] = ((step - 1) * (step > 1 ? average[i] : 0) + get(z_type, z, i)) / step;
            }
        }
        memcpy(before, p, sizeof p);
        CHECK_INT(adamod_evaluation(opt, 1), ADAMOD_OK);
        CHECK_INT(adamod_evaluation(opt, 1), ADAMOD_OK);
        double worst = 0;
        for (int i = 0; i < N; i++) worst = fmax(worst, fabs(get(t.param_type, p, i) - average[i]));
        CHECK(worst <= cases[k].near && memcmp(before, p, sizeof p) != 0);
        CHECK_INT(adamod_step(opt), ADAMOD_ERROR_ORDER);
        CHECK_HAS(adamod_last_error(), "end the evaluation first");
        CHECK_INT(adamod_save(opt, "a file"), ADAMOD_ERROR_ORDER);
        CHECK_HAS(adamod_last_error(), "save: the parameters are the ones to evaluate with");
        CHECK(access("a file", F_OK) != 0);
        CHECK_INT(adamod_load(opt, "a file"), ADAMOD_ERROR_ORDER);
        CHECK_HAS(adamod_last_error(), "load: the parameters are the ones to evaluate with");
        CHECK_INT(adamod_evaluation(opt, 0), ADAMOD_OK);
        CHECK(!memcmp(before, p, sizeof p));
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        CHECK_INT(adamod_evaluation(opt, 1), ADAMOD_OK);
        adamod_free(opt); /* as it is */
    }
    adamod_optimizer *adam;
    CHECK_INT(adamod_create(&adam, "adam"), ADAMOD_OK);
    CHECK_INT(adamod_evaluation(adam, 1), ADAMOD_OK);
    adamod_free(adam);
    CHECK_INT(adamod_evaluation(NULL, 1), ADAMOD_ERROR_ARGUMENT);
}

RUN_TESTS(ENTRY(step_without_parameters), ENTRY(nonfinite_gradients), ENTRY(nonfinite_frozen_gradients),
          ENTRY(gradients_that_are_too_large), ENTRY(gradients_too_large_for_states), ENTRY(gradient_norm),
          ENTRY(a_step_is_measured_without_an_update), ENTRY(reports_of_attempts), ENTRY(threads_change_between_steps),
          ENTRY(zero_threads_is_one_for_each_core), ENTRY(a_pool_shared_by_two_threads), ENTRY(pools_of_many_sizes),
          ENTRY(a_child_process_has_no_threads_of_its_parent), ENTRY(weights_to_evaluate_with))
