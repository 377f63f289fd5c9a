/* Tests of SOAP on matrices: the basis it begins with; from there on against a reference in double, to 1e-12 over 200
 * updates, whatever the signs of the basis' vectors; eigenvectors and orthogonal factors by themselves; threads; matrices
 * that are degenerate.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "optim/eigen.h"
#include "optim/matrices.h"
#include "reference.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

static double *room(int64_t n) {
    double *p = calloc((size_t)n + 1, sizeof *p);
    if (!p) abort();
    return p;
}

/* out = a b, or with a or b transposed; the result has r x c, the sum k. */
static void multiply(double *out, const double *a, bool ta, const double *b, bool tb, int64_t r, int64_t c, int64_t k) {
    for (int64_t i = 0; i < r; i++) {
        for (int64_t j = 0; j < c; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (ta ? a[l * r + i] : a[i * k + l]) * (tb ? b[j * k + l] : b[l * c + j]);
            out[i * c + j] = sum;
        }
    }
}

/* ---- eigenvectors and orthogonal factors ---- */

static double not_orthogonal(const double *q, int64_t n) {
    double *p = room(n * n), most = 0;
    multiply(p, q, true, q, false, n, n, n);
    for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs(p[i] - (i % (n + 1) == 0)));
    free(p);
    return most;
}

/* Kinds: full rank, half rank, diagonal, zeros, tiny, and a first column whose reflection has a scale of exactly 1. */
static void fill_symmetric(double *a, int64_t n, int kind) {
    double *g = room(n * n);
    const int64_t rank = kind == 1 ? (n + 1) / 2 : n;
    for (int64_t i = 0; i < n * rank; i++) g[i] = noise((uint64_t)(i + 1000 * n));
    multiply(a, g, false, g, true, n, n, rank);
    for (int64_t i = 0; i < n * n; i++) {
        if (kind == 2) a[i] = i % (n + 1) == 0 ? noise((uint64_t)i) : 0;
        if (kind == 3 || kind == 4) a[i] *= kind == 3 ? 0 : 1e-200;
        const int64_t low = i / n < i % n ? i / n : i % n, high = i / n + i % n - low;
        if (kind == 5) a[i] = low || !high ? 0.9 * noise((uint64_t)(low * n + high)) : high > 1 && high < 6 ? 0.5 : 0;
    }
    free(g);
}

TEST(eigenvectors) {
    for (int64_t n = 1; n <= 20; n += n < 5 ? 1 : 5) {
        for (int kind = 0; kind < 6; kind++) {
            double *a = room(n * n), *q = room(n * n), *t = room(n * n), *d = room(n * n), *space = room(4 * n),
                   most = 0;
            fill_symmetric(a, n, kind);
            for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs(q[i] = a[i]));
            adamod__eigenvectors(q, n, space);
            CHECK(not_orthogonal(q, n) <= 1e-13);
            multiply(t, a, false, q, false, n, n, n);
            multiply(d, q, true, t, false, n, n, n);
            for (int64_t i = 0; i < n * n; i++) {
                if (i % (n + 1)) CHECK(fabs(d[i]) <= 1e-13 * most);
                else if (i > 0) CHECK(d[i] <= d[i - n - 1] + 1e-13 * most);
            }
            free(a), free(q), free(t), free(d), free(space);
        }
    }
    double bad[4] = {1, NAN, NAN, 1}, space[8];
    adamod__eigenvectors(bad, 2, space);
    for (int i = 0; i < 4; i++) CHECK(isnan(bad[i]));
}

/* The first columns span the same, and the triangle has LAPACK's signs: minus that of the column's first element. */
TEST(orthogonal_factors) {
    for (int64_t n = 1; n <= 9; n++) {
        double *a = room(n * n), *q = room(n * n), *r = room(n * n), *space = room(2 * n);
        for (int64_t i = 0; i < n * n; i++) q[i] = a[i] = noise((uint64_t)(i + n));
        adamod__orthogonal_factor(q, n, space);
        CHECK(not_orthogonal(q, n) <= 1e-14);
        multiply(r, q, true, a, false, n, n, n);
        for (int64_t i = 0; i < n * n; i++) {
            if (i / n > i % n) CHECK(fabs(r[i]) <= 1e-14);
        }
        CHECK(n == 1 || (r[0] < 0) == (a[0] >= 0));
        CHECK(n > 1 || q[0] == 1);
        free(a), free(q), free(r), free(space);
    }
}

/* ---- against a reference ---- */

typedef struct soap_options {
    double lr, beta1, beta2, shampoo, eps, weight_decay;
    int frequency, most, correct;
} soap_options;

typedef struct soap_reference {
    int64_t n[2]; /* 0: no basis */
    double *average[2], *q[2], *m, *v, *a, *b;
} soap_reference;

/* b becomes x in the basis, or back out of it. */
static void turn(const soap_reference *s, const double *x, bool back, int64_t r, int64_t c) {
    if (s->n[0]) multiply(s->a, s->q[0], !back, x, false, r, c, r);
    else memcpy(s->a, x, (size_t)(r * c) * sizeof *x);
    if (s->n[1]) multiply(s->b, s->a, false, s->q[1], back, r, c, c);
    else memcpy(s->b, s->a, (size_t)(r * c) * sizeof *x);
}

/* Columns of q times the average, by size, made orthogonal one after the other, twice since once is not exact. */
static void follow(soap_reference *s, int side, int64_t r, int64_t c) {
    const int64_t n = s->n[side];
    double *p = room(n * n), *size = room(n), *v = room(r * c);
    int64_t *order = (int64_t *)(void *)room(n);
    multiply(p, s->average[side], false, s->q[side], false, n, n, n);
    for (int64_t k = 0; k < n * n; k++) size[k % n] += s->q[side][k] * p[k];
    for (int64_t i = 0; i < n; i++) {
        int64_t rank = 0;
        for (int64_t j = 0; j < n; j++) rank += size[j] > size[i] || (size[j] == size[i] && j < i);
        order[rank] = i;
    }
    for (int64_t i = 0; i < r * c; i++) v[i] = s->v[side ? i / c * c + order[i % c] : order[i / c] * c + i % c];
    memcpy(s->v, v, (size_t)(r * c) * sizeof *v);
    for (int64_t j = 0; j < n; j++) {
        double *column = v, length = 0; /* v has room for one: r * c >= n */
        for (int64_t i = 0; i < n; i++) column[i] = p[i * n + order[j]];
        for (int again = 0; again < 2; again++) {
            for (int64_t l = 0; l < j; l++) {
                double dot = 0;
                for (int64_t i = 0; i < n; i++) dot += column[i] * s->q[side][i * n + l];
                for (int64_t i = 0; i < n; i++) column[i] -= dot * s->q[side][i * n + l];
            }
        }
        for (int64_t i = 0; i < n; i++) length += column[i] * column[i];
        for (int64_t i = 0; i < n; i++) s->q[side][i * n + j] = column[i] / sqrt(length);
    }
    free(p), free(size), free(v), free(order);
}

static void reference_step(soap_reference *s, const soap_options *o, int64_t t, double *p, const double *g, int64_t r,
                           int64_t c) {
    if (t > 0) {
        const double correction = sqrt(1 - pow(o->beta2, (double)t)) / (1 - pow(o->beta1, (double)t));
        turn(s, g, false, r, c);
        for (int64_t i = 0; i < r * c; i++) {
            s->m[i] = o->beta1 * s->m[i] + (1 - o->beta1) * g[i];
            s->v[i] = o->beta2 * s->v[i] + (1 - o->beta2) * s->b[i] * s->b[i];
        }
        turn(s, s->m, false, r, c);
        for (int64_t i = 0; i < r * c; i++) s->b[i] /= sqrt(s->v[i]) + o->eps;
        turn(s, s->b, true, r, c);
        for (int64_t i = 0; i < r * c; i++) {
            p[i] -= o->lr * (o->correct ? correction : 1) * s->b[i];
            p[i] -= o->lr * o->weight_decay * p[i];
        }
    }
    for (int side = 0; side < 2; side++) {
        const int64_t n = s->n[side], k = r * c / (n ? n : 1);
        double *outer = room(n * n);
        multiply(outer, g, side == 1, g, side == 0, n, n, k);
        for (int64_t i = 0; i < n * n; i++) {
            s->average[side][i] = o->shampoo * s->average[side][i] + (1 - o->shampoo) * outer[i];
        }
        free(outer);
        if (n && t > 0 && t % o->frequency == 0) follow(s, side, r, c);
    }
}

/* The library's basis of the first update is of eigenvectors of what the reference has; the reference takes it. */
static void take_basis(adamod_optimizer *opt, soap_reference *s, adamod_type type) {
    for (int side = 0; side < 2; side++) {
        void *q = NULL;
        const int64_t n = s->n[side];
        int64_t count = -1;
        CHECK_INT(adamod_state(opt, 0, side ? "Q_1" : "Q_0", &q, NULL, &count), ADAMOD_OK);
        CHECK_INT(count, n * n);
        for (int64_t i = 0; i < n * n; i++) s->q[side][i] = get(type, q, i);
        double *x = room(n * n), *y = room(n * n), most = 0;
        multiply(x, s->average[side], false, s->q[side], false, n, n, n);
        multiply(y, s->q[side], true, x, false, n, n, n);
        for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs(s->average[side][i]));
        for (int64_t i = 0; i < n * n; i++) {
            if (i % (n + 1)) CHECK(fabs(y[i]) <= (type == ADAMOD_F64 ? 1e-13 : 1e-5) * most);
        }
        free(x), free(y);
    }
}

static double distance(adamod_type type, int64_t r, int64_t c, const soap_options *o, int steps) {
    const int64_t n = r * c, shape[] = {r, c};
    soap_reference s = {.n = {r <= o->most ? r : 0, c <= o->most ? c : 0}};
    double **const arrays[] = {&s.m, &s.v, &s.a, &s.b};
    for (int i = 0; i < 4; i++) *arrays[i] = room(n);
    for (int i = 0; i < 2; i++) s.average[i] = room(s.n[i] * s.n[i]), s.q[i] = room(s.n[i] * s.n[i]);
    double *p = room(n), *q = room(n), *g = room(n), *h = room(n), most = 0;
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "soap"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", o->lr) | adamod_set(opt, "beta1", o->beta1) | adamod_set(opt, "beta2", o->beta2) |
                  adamod_set(opt, "eps", o->eps) | adamod_set(opt, "weight_decay", o->weight_decay) |
                  adamod_set(opt, "precondition_frequency", o->frequency) |
                  adamod_set(opt, "max_precondition_dim", o->most) | adamod_set(opt, "bias_correction", o->correct) |
                  adamod_set(opt, "shampoo_beta", o->shampoo == o->beta2 ? -1 : o->shampoo),
              ADAMOD_OK);
    const adamod_tensor t = {.name = "w",
                             .param = p,
                             .grad = g,
                             .param_type = type,
                             .grad_type = type,
                             .ndim = 2,
                             .shape = {shape[0], shape[1]}};
    for (int64_t i = 0; i < n; i++) {
        put(type, p, i, noise((uint64_t)i));
        q[i] = get(type, p, i);
    }
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
    for (int k = 0; k < steps; k++) {
        for (int64_t i = 0; i < n; i++) {
            put(type, g, i, noise((uint64_t)(i + n * (k + 1))));
            h[i] = get(type, g, i);
        }
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        reference_step(&s, o, k, q, h, r, c);
        if (k == 0) take_basis(opt, &s, type);
        for (int64_t i = 0; i < n; i++) {
            const double d = fabs(get(type, p, i) - q[i]);
            most = d > most || d != d ? d : most;
        }
    }
    adamod_free(opt);
    for (int i = 0; i < 4; i++) free(*arrays[i]);
    for (int i = 0; i < 2; i++) free(s.average[i]), free(s.q[i]);
    free(p), free(q), free(g), free(h);
    return most;
}

/* The basis changes only when averages have full rank: before, eigenvectors for an eigenvalue of 0 are not unique. */
TEST(matrices_against_the_reference) {
    static const int64_t shapes[][2] = {{1, 1}, {1, 4}, {4, 1}, {5, 7}, {7, 5}, {6, 6}, {12, 3}};
    static const soap_options sets[] = {
        {3e-3, 0.95, 0.95, 0.95, 1e-8, 0, 10, 10000, 1},
        {1e-2, 0.9, 0.99, 0.8, 1e-3, 0.1, 5, 10000, 1},
        {1e-2, 0.5, 0.9, 0.9, 1e-8, 0.01, 3, 6, 0},
        {1e-2, 0.5, 0.9, 0.9, 1e-8, 0.01, 3, 0, 1},
    };
    for (int s = 0; s < 7; s++) {
        for (int k = 0; k < 4; k++) {
            const double d = distance(ADAMOD_F64, shapes[s][0], shapes[s][1], &sets[k], fast() && s > 3 ? 40 : 200);
            if (!CHECK(d <= 1e-12)) printf("  shape %d, set %d: %g\n", s, k, d);
            const double e = distance(ADAMOD_F32, shapes[s][0], shapes[s][1], &sets[k], 20);
            if (!CHECK(e <= 2e-3)) printf("  f32, shape %d, set %d: %g\n", s, k, e);
        }
    }
}

/* ---- threads ---- */

static void run_threads(int threads, float *p) {
    enum { N = 150 * 130, LONG = 50000 }; /* enough for a handle to use threads */
    static float g[N], vector[LONG], slope[LONG];
    float tiny[2][20], h[20];
    adamod_optimizer *opt = NULL;
    CHECK_INT(adamod_create(&opt, "soap"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "threads", threads) | adamod_set(opt, "precondition_frequency", 1), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", p, g, 3, (const int64_t[]){150, 13, 10}), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "vector", vector, slope, 1, (const int64_t[]){LONG}), ADAMOD_OK);
    for (int a = 0; a < 2; a++) CHECK_INT(adamod_add(opt, NULL, tiny[a], h, 2, (const int64_t[]){4, 5}), ADAMOD_OK);
    for (int i = 0; i < 20; i++) tiny[0][i] = tiny[1][i] = 1, h[i] = (float)noise((uint64_t)i);
    for (int i = 0; i < N; i++) p[i] = (float)noise((uint64_t)i), g[i] = (float)noise((uint64_t)(i + N));
    for (int k = 0; k < 3; k++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK(memcmp(tiny[0], tiny[1], sizeof tiny[0]) == 0 && tiny[0][0] != 1);
    CHECK(threads == 1 || threads_now() < 0 || threads_now() >= threads);
    adamod_free(opt);
}

TEST(threads_change_no_bit) {
    static float one[150 * 130], more[150 * 130];
    run_threads(1, one);
    run_threads(3, more);
    CHECK(memcmp(one, more, sizeof one) == 0);
}

/* ---- degenerate matrices ---- */

TEST(zeros_and_nothing) {
    float p[12], g[12] = {0}, none[1];
    adamod_optimizer *opt = NULL;
    for (int i = 0; i < 12; i++) p[i] = 1;
    CHECK_INT(adamod_create(&opt, "soap"), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "zeros", p, g, 2, (const int64_t[]){3, 4}), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "empty", none, none, 2, (const int64_t[]){0, 4}), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "precondition_frequency", 1), ADAMOD_OK);
    for (int k = 0; k < 3; k++) CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < 12; i++) CHECK(p[i] == 1);
    for (int i = 0; i < 12; i++) g[i] = (float)(i + 1);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    for (int i = 0; i < 12; i++) CHECK(isfinite(p[i]) && p[i] != 1);
    adamod_free(opt);
}

/* The averages' decay is beta2 unless it is 0 or more. */
TEST(a_shampoo_beta_below_0_is_beta2) {
    static const double betas[] = {-1, -0.25, 0.95, 0.5};
    float p[4][6];
    for (int k = 0; k < 4; k++) {
        float g[6];
        adamod_optimizer *opt = NULL;
        CHECK_INT(adamod_create(&opt, "soap"), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "shampoo_beta", betas[k]) | adamod_set(opt, "precondition_frequency", 1), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, NULL, p[k], g, 2, (const int64_t[]){2, 3}), ADAMOD_OK);
        for (int i = 0; i < 6; i++) p[k][i] = 1;
        for (int t = 0; t < 4; t++) {
            for (int i = 0; i < 6; i++) g[i] = (float)noise((uint64_t)(i + 6 * t));
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
        }
        adamod_free(opt);
    }
    CHECK(memcmp(p[0], p[1], sizeof p[0]) == 0 && memcmp(p[0], p[2], sizeof p[0]) == 0);
    CHECK(memcmp(p[0], p[3], sizeof p[0]) != 0);
}

/* A NaN or an infinity makes its matrix NaN at the next update, a number whose square is infinite at that after the next
 * change of the basis; and no other array. With nonfinite = skip it changes nothing. */
TEST(not_finite) {
    static const float bad[] = {NAN, INFINITY, -1e30f};
    for (int k = 0; k < 6; k++) {
        const bool skip = k % 2;
        float p[2][6], g[2][6];
        adamod_optimizer *opt = NULL;
        CHECK_INT(adamod_create(&opt, "soap"), ADAMOD_OK);
        if (skip) CHECK_INT(adamod_set_text(opt, "nonfinite", "skip"), ADAMOD_OK);
        for (int a = 0; a < 2; a++) {
            for (int i = 0; i < 6; i++) p[a][i] = 1, g[a][i] = (float)(i * i + 1);
            CHECK_INT(adamod_add(opt, NULL, p[a], g[a], 2, (const int64_t[]){2, 3}), ADAMOD_OK);
        }
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        for (int i = 0; i < 6; i++) CHECK(p[0][i] == 1); /* the first moves nothing */
        CHECK_INT(adamod_set(opt, "precondition_frequency", 1), ADAMOD_OK);
        g[0][4] = bad[k / 2];
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        if (isfinite(bad[k / 2])) CHECK_INT(adamod_step(opt), ADAMOD_OK);
        for (int i = 0; i < 6; i++) {
            CHECK(skip ? p[0][i] == 1 : isnan(p[0][i]));
            CHECK(skip ? p[1][i] == 1 : isfinite(p[1][i]) && p[1][i] != 1);
        }
        adamod_free(opt);
    }
}

/* Sizes of workspaces, of which there can be no more than memory has addresses. */
TEST(sizes_beyond_all_memory) {
    CHECK(adamod__more_bytes(0, 3, 4) == 64);
    CHECK(adamod__more_bytes(64, 16, 4) == 128);
    CHECK(adamod__more_bytes(SIZE_MAX / 2, INT64_C(1) << 62, 8) == SIZE_MAX);
    CHECK(adamod__more_bytes(SIZE_MAX - 100, 1, 200) == SIZE_MAX);
    CHECK(adamod__more_bytes(SIZE_MAX, 0, 1) == SIZE_MAX);
}

RUN_TESTS(ENTRY(eigenvectors), ENTRY(orthogonal_factors), ENTRY(matrices_against_the_reference),
          ENTRY(threads_change_no_bit), ENTRY(zeros_and_nothing), ENTRY(a_shampoo_beta_below_0_is_beta2),
          ENTRY(not_finite), ENTRY(sizes_beyond_all_memory))
