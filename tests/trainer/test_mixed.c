/* Mixed precision on the host: products whose factors are rounded to bf16, ops and a model that use them.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "decoder_cases.h"
#include "image_cases.h"
#include "lstm_case.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/gemm.h"
#include "small_transformer.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

/* ---- products ---- */

/* Numbers with more bits than bf16 has. */
static float *random_array(int64_t n, uint64_t key) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)nn_normal(key, (uint64_t)i);
    return x;
}

typedef struct product_case {
    int64_t m, n, k, gap; /* gap: numbers between rows that belong to nothing */
    bool trans_a, trans_b, add;
} product_case;

typedef struct arrays {
    float *a, *b, *before, *c, *room;
    nn_product p;
} arrays;

static arrays make_arrays(const product_case *o) {
    const int64_t a_rows = o->trans_a ? o->k : o->m, a_cols = o->trans_a ? o->m : o->k;
    const int64_t b_rows = o->trans_b ? o->n : o->k, b_cols = o->trans_b ? o->k : o->n;
    const int64_t numbers = o->m * (o->n + o->gap);
    arrays x = {.a = random_array(a_rows * (a_cols + o->gap), 1), .b = random_array(b_rows * (b_cols + o->gap), 2)};
    x.before = random_array(numbers, 3), x.c = malloc((size_t)(numbers + 1) * sizeof(float));
    for (int64_t i = 0; !o->add && i < numbers; i++) x.before[i] = NAN;
    x.room = malloc((nn_narrow_floats(a_rows, a_cols) + nn_narrow_floats(b_rows, b_cols)) * sizeof(float));
    x.p = (nn_product){.m = o->m,
                       .n = o->n,
                       .k = o->k,
                       .a = {x.a, a_cols + o->gap, .transposed = o->trans_a},
                       .b = {x.b, b_cols + o->gap, .transposed = o->trans_b},
                       .c = x.c,
                       .ldc = o->n + o->gap,
                       .add = o->add,
                       .narrow = x.room};
    memcpy(x.c, x.before, (size_t)numbers * sizeof(float));
    return x;
}

static void free_arrays(arrays *x) { free(x->a), free(x->b), free(x->before), free(x->c), free(x->room); }

static double at(const nn_factor *f, int64_t i, int64_t j, bool round) {
    const float x = f->data[f->transposed ? j * f->stride + i : i * f->stride + j];
    return (double)(round ? opcheck_to_bf16(x) : x);
}

/* The sum over k in double precision, and the sum of the terms' sizes. */
static double expected(const arrays *x, int64_t i, int64_t j, bool round, double *size) {
    double sum = x->p.add ? (double)x->before[i * x->p.ldc + j] : 0;
    *size = fabs(sum);
    for (int64_t d = 0; d < x->p.k; d++) {
        const double term = at(&x->p.a, i, d, round) * at(&x->p.b, d, j, round);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* With rounded factors each element is off by what sums of f32 are, and with others it would be by far more. */
static bool is_right(const product_case *o, bool rounds) {
    arrays x = make_arrays(o);
    double off = 0;
    nn_gemm(NULL, &x.p);
    bool ok = true;
    for (int64_t i = 0; i < o->m; i++) {
        for (int64_t j = 0; j < o->n; j++) {
            double size;
            const float *got = &x.c[i * x.p.ldc + j];
            ok = ok && fabs((double)*got - expected(&x, i, j, rounds, &size)) <= (double)(o->k + 3) * 0x1p-24 * size;
            off = fmax(off, fabs((double)*got - expected(&x, i, j, false, &size)) / size);
        }
        const size_t between = (size_t)o->gap * sizeof(float);
        ok = ok && memcmp(x.c + i * x.p.ldc + o->n, x.before + i * x.p.ldc + o->n, between) == 0;
    }
    ok = ok && rounds == (off > 0x1p-14);
    free_arrays(&x);
    return ok;
}

TEST(products_of_rounded_factors_are_right_for_all_shapes) {
    static const int64_t sizes[][3] = {{130, 70, 65}, {33, 100, 300}, {300, 513, 33}, {64, 64, 1100}, {257, 32, 64}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int bits = fast() ? (int)s : 0; bits < 16; bits += fast() ? 5 : 1) {
            const product_case o = {sizes[s][0], sizes[s][1], sizes[s][2], bits & 4 ? 5 : 0,
                                    bits & 1,    bits & 2,    !(bits & 8)};
            if (!CHECK(is_right(&o, true))) printf("m %lld n %lld, case %d\n", (long long)o.m, (long long)o.n, bits);
        }
    }
}

TEST(small_products_stay_in_f32) {
    static const int64_t sizes[][3] = {{31, 200, 200}, {200, 31, 200}, {400, 400, 15}, {40, 40, 40}};
    for (int s = 0; s < 4; s++) {
        const product_case o = {.m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2]};
        CHECK(is_right(&o, false));
    }
}

/* The nearest number of bf16, and of two the even one; infinities and NaN stay what they are. */
TEST(factors_are_rounded_to_the_nearest) {
    enum { N = 128 };
    static float a[N * N], b[N * N], c[N * N], room[4 * N * N];
    static const float cases[][2] = {{1.00390625f, 1},
                                     {1.01171875f, 1.015625f},
                                     {1.00390637f, 1.0078125f},
                                     {-1.00390625f, -1},
                                     {3.4e38f, INFINITY},
                                     {INFINITY, INFINITY},
                                     {-INFINITY, -INFINITY},
                                     {NAN, NAN},
                                     {0x1.fep-100f, 0x1.fep-100f}};
    for (int i = 0; i < N; i++) b[i * N + i] = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) a[k * N] = cases[k][0];
    const nn_product p = {.m = N,
                          .n = N,
                          .k = N,
                          .a = {.data = a, .stride = N},
                          .b = {.data = b, .stride = N},
                          .c = c,
                          .ldc = N,
                          .narrow = room};
    CHECK(2 * nn_narrow_floats(N, N) <= 4 * N * N);
    nn_gemm(NULL, &p);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const float got = c[k * N];
        if (!CHECK(got == cases[k][1] || (isnan(got) && isnan(cases[k][1])))) printf("case %zu: %a\n", k, (double)got);
    }
}

/* Products of one call share the room: a factor of two of them is there once. */
TEST(products_of_one_call_share_their_room) {
    enum { M = 90, N = 70, K = 110 };
    float *a = random_array(M * K, 1), *b = random_array(K * N, 2), *d = random_array(M * N, 3);
    float *first = malloc(M * N * sizeof *first), *second = malloc(K * N * sizeof *second);
    float *both = malloc(M * N * sizeof *both), *other = malloc(K * N * sizeof *other);
    const size_t size = nn_narrow_floats(M, K) + nn_narrow_floats(K, N) + nn_narrow_floats(M, N);
    float *room = malloc((size + 1) * sizeof *room);
    room[size] = 7;
    nn_product p[2] = {{.m = M, .n = N, .k = K, .a = {a, K, false}, .b = {b, N, false}, .c = first, .ldc = N},
                       {.m = K, .n = N, .k = M, .a = {a, K, true}, .b = {d, N, false}, .c = second, .ldc = N}};
    p[0].narrow = p[1].narrow = room;
    nn_gemm(NULL, &p[0]);
    nn_gemm(NULL, &p[1]);
    p[0].c = both, p[1].c = other;
    nn_products(NULL, p, 2);
    CHECK(memcmp(first, both, M * N * sizeof *both) == 0 && memcmp(second, other, K * N * sizeof *other) == 0);
    CHECK(room[size] == 7);
    free(a), free(b), free(d), free(first), free(second), free(both), free(other), free(room);
}

TEST(products_of_rounded_factors_are_the_same_bits_for_any_number_of_threads) {
    for (int t = 0; t < 4; t++) {
        arrays x = make_arrays(&(product_case){700, 300, 400, 0, t & 1, t & 2, false});
        const size_t bytes = 700 * 300 * sizeof(float);
        float *one = malloc(bytes);
        nn_gemm(NULL, &x.p);
        memcpy(one, x.c, bytes);
        for (int threads = 1; threads <= 4; threads++) {
            adamod_pool *pool = NULL;
            if (!CHECK(adamod_pool_create(&pool, threads) == ADAMOD_OK)) continue;
            for (int repeat = 0; repeat < 3; repeat++) {
                memset(x.c, 0xff, bytes);
                nn_gemm(pool, &x.p);
                CHECK(memcmp(x.c, one, bytes) == 0);
            }
            adamod_pool_free(pool);
        }
        free(one);
        free_arrays(&x);
    }
}

TEST(the_instructions_have_a_name) {
    const char *name = nn_narrow_instructions();
    CHECK(!name || strcmp(name, "AVX512_BF16") == 0 || strcmp(name, "AMX_BF16") == 0);
    printf("products of bf16 by %s\n", name ? name : "f32 instructions");
}

/* ---- ops ---- */

static opcheck linear_case(nn_activation activation, int64_t rows, int64_t in, int64_t out) {
    opcheck o = {.op = &nn_op_linear,
                 .attributes = {.linear = {.activation = activation}},
                 .n_inputs = 3,
                 .input = {OPCHECK_ROWS(1, rows, in), OPCHECK_MATRIX(out, in), OPCHECK_VECTOR(out)},
                 .training = true,
                 .seed = (uint64_t)(rows + in + out),
                 .longest_sum = (double)(rows > in + out ? rows : in + out),
                 .mixed = true};
    for (int i = 0; i < 3; i++) o.input[i].step = activation == NN_RELU ? 0.25 : 0;
    return o;
}

TEST(linear_is_the_reference_of_rounded_factors) {
    static const int64_t sizes[][3] = {{70, 64, 130}, {333, 96, 200}, {1100, 40, 48}, {1, 64, 64}, {40, 16, 16}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int a = NN_LINEAR; a <= NN_GELU; a++) {
            opcheck o = linear_case((nn_activation)a, sizes[s][0], sizes[s][1], sizes[s][2]);
            o.rounded = a == NN_GELU ? 2 : 0; /* dz has more bits than bf16; of many sums some are off by twice that */
            CHECK(opcheck_kernels(&o, &nn_cpu_linear));
        }
    }
}

TEST(convolution_is_the_reference_of_rounded_factors) {
    static const conv_sizes sizes[] = {
        {3, 16, 16, 3, 64, 3, 1, 1, 0, 0}, {2, 17, 15, 32, 64, 3, 2, 1, 5, 0}, {2, 16, 15, 48, 40, 1, 1, 0, 8, 16},
        {9, 9, 9, 32, 48, 1, 2, 0, 0, 2},  {2, 8, 8, 16, 16, 3, 1, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        opcheck o = convolution_case(&sizes[i]);
        o.mixed = true;
        if (!CHECK(opcheck_kernels(&o, &nn_cpu_convolution))) printf("sizes %zu\n", i);
    }
}

TEST(linear_cross_entropy_is_the_reference_of_rounded_factors) {
    static int32_t targets[1000];
    for (int training = 0; training < 2; training++) {
        opcheck o = linear_cross_entropy_case(200, 64, 300, true, 0.1, 0.01, targets);
        o.training = training;
        o.mixed = true;
        o.rounded = 2; /* the gradient of logits, of which a row has few large ones */
        CHECK(opcheck_kernels(&o, &nn_cpu_linear_cross_entropy));
    }
}

TEST(lstm_is_the_reference_of_rounded_factors) {
    static const lstm_case cases[] = {
        {.steps = 6, .batch = 20, .in = 70, .h = 40, .carried = true, .training = true},
        {.steps = 3, .batch = 75, .in = 30, .h = 37, .dropout = 0.3, .training = true},
        {.steps = 2, .batch = 1, .in = 1, .h = 1, .carried = true, .training = true},
        {.steps = 2, .batch = 3, .in = 2, .h = 150},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opcheck o = lstm_of(&cases[i]);
        o.mixed = true;
        o.rounded = 2; /* states, and the gradients of gates */
        if (!CHECK(opcheck_kernels(&o, &nn_cpu_lstm))) printf("case %zu\n", i);
    }
}

/* ---- a model ---- */

static transformer_config config(void) {
    transformer_config c = small_config();
    c.d = 128, c.ffn = 256;
    return c;
}

/* The loss of a target, and its gradients, with what a batch's random numbers drop. */
static double loss_of(small_transformer *s) {
    nn_plan_forward(s->plan);
    nn_plan_backward(s->plan, false);
    const float *sums = nn_plan_data(s->plan, "loss");
    return (double)sums[0] / (double)sums[3];
}

enum { STEPS = 20 };

/* Losses of steps of gradient descent on one batch. */
static void train(small_transformer *s, double *losses) {
    small_feed(s);
    for (int i = 0; i < STEPS; i++) {
        losses[i] = loss_of(s);
        for (int64_t k = 0; k < s->params->count; k++) s->params->data[k] -= 3e-4f * s->params->grad[k];
    }
}

/* bf16 has 8 bits, so that each product is off by up to 2^-8 of its terms; a loss averages over very many of them. */
TEST(losses_are_those_of_full_precision_within_rounding) {
    const transformer_config c = config();
    small_transformer full = small_make(&c, "cpu", 1, true), mixed = small_make_mixed(&c, 1);
    double a[STEPS], b[STEPS], most = 0;
    train(&full, a);
    train(&mixed, b);
    for (int i = 0; i < STEPS; i++) most = fmax(most, fabs(a[i] - b[i]) / a[i]);
    printf("full %.5f to %.5f, mixed %.5f to %.5f, at most %.2g apart\n", a[0], a[STEPS - 1], b[0], b[STEPS - 1], most);
    CHECK(a[STEPS - 1] < 0.6 * a[0]);
    CHECK(most < 2e-3);
    CHECK(most > 0); /* it is another precision */
    small_free(&full);
    small_free(&mixed);
}

TEST(a_model_has_the_same_bits_for_any_number_of_threads) {
    transformer_config c = config();
    c.dropout = 0.1;
    small_transformer one = small_make_mixed(&c, 1);
    double a[STEPS], b[STEPS];
    train(&one, a);
    for (int threads = fast() ? 3 : 1; threads <= 3; threads++) {
        small_transformer other = small_make_mixed(&c, threads);
        train(&other, b);
        CHECK(memcmp(a, b, sizeof a) == 0);
        CHECK(memcmp(one.params->data, other.params->data, (size_t)one.params->count * sizeof(float)) == 0);
        small_free(&other);
    }
    small_free(&one);
}

RUN_TESTS(ENTRY_OF_ONE_THREAD(products_of_rounded_factors_are_right_for_all_shapes), ENTRY(small_products_stay_in_f32),
          ENTRY(factors_are_rounded_to_the_nearest), ENTRY(products_of_one_call_share_their_room),
          ENTRY(products_of_rounded_factors_are_the_same_bits_for_any_number_of_threads),
          ENTRY(the_instructions_have_a_name), ENTRY(linear_is_the_reference_of_rounded_factors),
          ENTRY(convolution_is_the_reference_of_rounded_factors),
          ENTRY(linear_cross_entropy_is_the_reference_of_rounded_factors),
          ENTRY(lstm_is_the_reference_of_rounded_factors),
          ENTRY_OF_ONE_THREAD(losses_are_those_of_full_precision_within_rounding),
          ENTRY(a_model_has_the_same_bits_for_any_number_of_threads))
