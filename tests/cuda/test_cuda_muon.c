/* Muon's matrices on a GPU, whose steps of Newton and Schulz are in bf16 with sums in f32: against the same steps taken
 * here in double and rounded to bf16 at the same places; against the CPU's, which are in f32; the same bits whatever
 * other matrices there are; degenerate matrices; graphs. Skipped where there is no GPU.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cuda_pair.h"
#include "kernels/half.h"

#include <math.h>
#include <stdlib.h>

/* ---- the steps ---- */

typedef struct polynomial {
    double a, b, c;
    int steps;
} polynomial;

static double rounded(double x) {
    const uint32_t bits = adamod__to_bits((float)x);
    return (double)adamod__from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* out = rounded(alpha a b^T + beta d), n x n or n x m; element (i, k) of an operand is at [i * row + k * col]. */
static void multiply(double *out, const double *a, int64_t n, int64_t k, const double *b, int64_t m, int64_t row,
                     int64_t col, double alpha, double beta, const double *d) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i * k + l] * b[j * row + l * col];
            out[i * m + j] = rounded((float)(alpha * sum) + (float)(d ? beta * d[i * m + j] : 0));
        }
    }
}

/* Replaces u (n <= m) by the result of the steps. */
static void orthogonalize(double *u, int64_t n, int64_t m, const polynomial *p) {
    double sum = 0, *gram = malloc((size_t)(n * n) * 8), *poly = malloc((size_t)(n * n) * 8);
    double *next = malloc((size_t)(n * m) * 8);
    for (int64_t i = 0; i < n * m; i++) sum += u[i] * u[i];
    for (int64_t i = 0; i < n * m; i++) u[i] = rounded((double)((float)u[i] * (float)(1 / fmax(sqrt(sum), 1e-7))));
    for (int s = 0; s < p->steps; s++) {
        multiply(gram, u, n, m, u, n, m, 1, 1, 0, NULL);
        multiply(poly, gram, n, n, gram, n, n, 1, p->c, p->b, gram);
        multiply(next, poly, n, n, u, m, 1, m, 1, p->a, u);
        memcpy(u, next, (size_t)(n * m) * 8);
    }
    free(gram), free(poly), free(next);
}

/* The distance of the GPU's first update from that of the steps here, and of the CPU's, as shares of the update. */
typedef struct distances {
    double steps, cpu;
} distances;

static distances first_update(adamod_type type, int ndim, const int64_t *shape, const char *options,
                              const polynomial *p) {
    pair *x = pair_new("muon");
    pair_set(x, "lr=1 adjust_lr=spectral_unclamped nesterov=0");
    pair_set(x, options);
    pair_add_at(x, 0, type, type, ndim, shape, 0);
    pair_array *array = &x->arrays[0];
    const int64_t count = (int64_t)array->count, rows = shape[0], cols = count / rows;
    const bool tall = rows > cols;
    const int64_t n = tall ? cols : rows, m = tall ? rows : cols;
    double *u = malloc((size_t)count * 8), *gpu = malloc((size_t)count * 8), *cpu = malloc((size_t)count * 8);
    const size_t bytes = (size_t)count * adamod__type_size(type);
    memset(array->p, 0, bytes);
    to_device(array->device_p, array->p, bytes);
    for (int64_t i = 0; i < count; i++) {
        pair_put(type, array->g, (size_t)i, pair_uniform(x));
        u[tall ? i % cols * rows + i / cols : i] = pair_value(type, array->g, (size_t)i);
    }
    pair_send_grads(x);
    pair_step(x);
    for (int64_t i = 0; i < count; i++) cpu[i] = -pair_value(type, array->p, (size_t)i);
    to_host(array->p, array->device_p, bytes);
    for (int64_t i = 0; i < count; i++) gpu[i] = -pair_value(type, array->p, (size_t)i);
    for (int64_t i = 0; i < count; i++) u[i] *= 0.05;
    orthogonalize(u, n, m, p);
    double size = 0;
    distances found = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        const double expected = u[tall ? i % cols * rows + i / cols : i] * sqrt((double)rows / (double)cols);
        size += expected * expected;
        found.steps += (gpu[i] - expected) * (gpu[i] - expected);
        found.cpu += (gpu[i] - cpu[i]) * (gpu[i] - cpu[i]);
    }
    found.steps = sqrt(found.steps / size);
    found.cpu = sqrt(found.cpu / size);
    free(u), free(gpu), free(cpu);
    pair_free(x);
    return found;
}

static const struct {
    int ndim;
    int64_t dims[4];
} shapes[] = {
    {2, {1, 1}},     {2, {1, 9}},    {2, {9, 1}},    {2, {5, 7}},        {2, {7, 5}},     {2, {33, 33}},
    {2, {13, 100}},  {2, {100, 13}}, {3, {3, 4, 5}}, {4, {20, 3, 3, 3}}, {2, {128, 128}}, {2, {130, 140}},
    {2, {257, 150}}, {2, {64, 520}}, {2, {520, 64}}, {2, {136, 200}},    {2, {3, 3000}},  {2, {3000, 3}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* One step hardly enlarges the effect of a sum that bf16 rounds the other way; five steps do. */
TEST(steps_in_bf16) {
    NEED_CUDA;
    static const polynomial one = {1.5, -0.5, 0.25, 1}, none = {1, 0, 0, 0}, five = {3.4445, -4.775, 2.0315, 5};
    for (int s = 0; s < SHAPES; s++) {
        const int64_t *d = shapes[s].dims;
        const int n = shapes[s].ndim;
        const distances a = first_update(ADAMOD_F32, n, d, "ns_steps=1 ns_a=1.5 ns_b=-0.5 ns_c=0.25", &one);
        const distances b = first_update(ADAMOD_F32, n, d, "ns_steps=0", &none);
        const distances c = first_update(ADAMOD_F32, n, d, "", &five);
        if (!CHECK(a.steps <= 1e-3) || !CHECK(b.steps <= 2e-4) || !CHECK(c.steps <= 0.03) || !CHECK(c.cpu <= 0.06)) {
            printf("    shape %d [%lld, %lld ...]: %g, %g, %g; %g, %g, %g from the CPU\n", s, (long long)d[0],
                   (long long)d[1], a.steps, b.steps, c.steps, a.cpu, b.cpu, c.cpu);
        }
    }
    static const adamod_type types[] = {ADAMOD_F64, ADAMOD_BF16, ADAMOD_F16};
    for (int t = 0; t < 3; t++) {
        const distances a =
            first_update(types[t], 2, (int64_t[]){72, 136}, "ns_steps=1 ns_a=1.5 ns_b=-0.5 ns_c=0.25", &one);
        const double places = types[t] == ADAMOD_BF16 ? 4e-3 : types[t] == ADAMOD_F16 ? 1e-3 : 0;
        if (!CHECK(a.steps <= 1e-3 + places)) printf("    %s: %g\n", adamod__type_name(types[t]), a.steps);
    }
}

/* ---- company ---- */

/* More than a batch has room for; the same bits as each alone, and again. */
TEST(the_same_bits_in_any_company) {
    NEED_CUDA;
    enum { N = 90, MOST = 200 * 70 };
    static float alone[N][MOST], together[MOST];
    for (int run = 0; run < 2; run++) {
        adamod_optimizer *opt = NULL;
        float *memory = device_alloc((size_t)2 * N * MOST * 4);
        OK(adamod_create_on(&opt, "muon", "cuda"));
        for (int i = 0; i < N; i++) {
            const int64_t shape[] = {20 + 2 * i % 180, 3 + i * 7 % 67}, count = shape[0] * shape[1];
            float *p = memory + (size_t)2 * (size_t)i * MOST, *g = p + MOST;
            for (int64_t k = 0; k < count; k++) together[k] = (float)((k * 7919 + i) % 1013) / 1013 - 0.5f;
            to_device(g, together, (size_t)count * 4);
            memset(together, 0, sizeof together);
            to_device(p, together, (size_t)count * 4);
            OK(adamod_add(opt, NULL, p, g, 2, shape));
            if (run) continue;
            OK(adamod_step(opt));
            to_host(alone[i], p, (size_t)count * 4);
            adamod_free(opt);
            OK(adamod_create_on(&opt, "muon", "cuda"));
        }
        if (run) OK(adamod_step(opt));
        for (int i = 0; run && i < N; i++) {
            const size_t count = (size_t)((20 + 2 * i % 180) * (3 + i * 7 % 67));
            to_host(together, memory + (size_t)2 * (size_t)i * MOST, count * 4);
            CHECK(memcmp(together, alone[i], count * 4) == 0);
            CHECK(together[1] != 0);
        }
        adamod_free(opt);
        device_free(memory);
    }
}

/* ---- degenerate matrices ---- */

TEST(zeros_and_nothing) {
    NEED_CUDA;
    pair *x = pair_new("muon");
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){0, 4}, 0);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){4, 0}, 0);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 0, NULL, 0);
    pair_run(x, 2);
    pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){30, 4}, 0);
    memset(x->arrays[3].g, 0, 30 * 4 * 4);
    pair_send_grads(x);
    x->arrays[3].near = 0;
    pair_step(x);
    CHECK(pair_same(x)); /* nothing to be made orthogonal */
    pair_free(x);
}

TEST(not_finite) {
    NEED_CUDA;
    static const float bad[] = {NAN, INFINITY};
    for (int k = 0; k < 4; k++) {
        pair *x = pair_new("muon");
        if (k >= 2) pair_set(x, "nonfinite=skip");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20, 30}, 0);
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){20, 31}, 0);
        pair_run(x, 1);
        OK(adamod_collect(x->cpu, 1));
        OK(adamod_collect(x->gpu, 1));
        ((float *)x->arrays[0].g)[4] = bad[k % 2];
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
        float p[600];
        to_host(p, x->arrays[0].device_p, sizeof p);
        for (int i = 0; i < 600; i++) CHECK(k >= 2 ? isfinite(p[i]) : isnan(p[i]));
        to_host(p, x->arrays[1].device_p, sizeof p);
        for (int i = 0; i < 600; i++) CHECK(isfinite(p[i]));
        adamod_statistics s;
        if (k < 2) {
            OK(adamod_get_statistics(x->gpu, -1, &s));
            CHECK_INT(s.nonfinite, 600);
        }
        pair_free(x);
    }
}

/* Squares that overflow or vanish do not change the update. */
TEST(large_and_small_gradients) {
    NEED_CUDA;
    double first[40 * 6] = {0};
    for (int k = 0; k < 3; k++) {
        pair *x = pair_new("muon");
        pair_set(x, "lr=1 eps=1e-30");
        pair_add_at(x, 0, ADAMOD_F64, ADAMOD_F64, 2, (int64_t[]){40, 6}, 0);
        double *p = x->arrays[0].p, *g = x->arrays[0].g;
        memset(p, 0, sizeof first);
        to_device(x->arrays[0].device_p, p, sizeof first);
        for (int i = 0; i < 40 * 6; i++)
            g[i] = ldexp((double)((i * 7919) % 101) / 101 - 0.4, k == 0 ? 0 : k == 1 ? 900 : -90);
        pair_send_grads(x);
        pair_step(x);
        CHECK(pair_same(x));
        to_host(p, x->arrays[0].device_p, sizeof first);
        for (int i = 0; i < 40 * 6; i++) {
            if (k == 0) first[i] = p[i];
            else CHECK_CLOSE(p[i], first[i], 1e-6);
        }
        pair_free(x);
    }
}

/* ---- graphs ---- */

/* A graph takes no more steps than it was captured with, and fewer if they are changed to that. */
TEST(a_graph_and_ns_steps) {
    NEED_CUDA;
    enum { N = 24 * 40 };
    float p[4][N], g[N];
    for (int i = 0; i < N; i++) g[i] = (float)((i * 7919) % 1013) / 1013 - 0.5f;
    for (int k = 0; k < 4; k++) { /* 5; 2; a graph of 5, then 2; a graph of 5, then 9 */
        pair *x = pair_new("muon");
        void *stream = NULL, *graph = NULL;
        pair_set(x, k == 1 ? "ns_steps=2" : "ns_steps=5");
        pair_add_at(x, 0, ADAMOD_F32, ADAMOD_F32, 2, (int64_t[]){24, 40}, 0);
        memcpy(x->arrays[0].g, g, sizeof g);
        pair_send_grads(x);
        OK(adamod_step(x->gpu));
        DEVICE_OK(x->gpu->api->stream_create(x->gpu->device, &stream));
        OK(adamod_set_stream(x->gpu, stream));
        DEVICE_OK(x->gpu->api->graph_begin(x->gpu->device));
        OK(adamod_step(x->gpu));
        DEVICE_OK(x->gpu->api->graph_end(x->gpu->device, &graph));
        if (k >= 2) OK(adamod_set(x->gpu, "ns_steps", k == 2 ? 2 : 9));
        memset(p[k], 0, sizeof g);
        to_device(x->arrays[0].device_p, p[k], sizeof g);
        DEVICE_OK(x->gpu->api->graph_launch(x->gpu->device, graph));
        OK(adamod_sync(x->gpu));
        to_host(p[k], x->arrays[0].device_p, sizeof g);
        x->gpu->api->graph_free(x->gpu->device, graph);
        OK(adamod_set_stream(x->gpu, NULL));
        x->gpu->api->stream_destroy(x->gpu->device, stream);
        pair_free(x);
    }
    CHECK(memcmp(p[0], p[1], sizeof g) != 0);
    CHECK(memcmp(p[1], p[2], sizeof g) == 0);
    CHECK(memcmp(p[0], p[3], sizeof g) == 0);
}

RUN_TESTS(ENTRY(steps_in_bf16), ENTRY(the_same_bits_in_any_company), ENTRY(zeros_and_nothing), ENTRY(not_finite),
          ENTRY(large_and_small_gradients), ENTRY(a_graph_and_ns_steps))
