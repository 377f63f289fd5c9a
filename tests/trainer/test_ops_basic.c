/* Matrix products, and the ops linear, dropout, add and add_norm. */
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/gemm.h"
#include "nn/backend/cpu/vector.h"
#include "check.h"
#include "dense_cases.h"
#include "opcheck.h"
#include "values.h"
#include "support/random.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

/* ---- matrix products ---- */

static float *random_array(int64_t n, uint64_t key) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)nn_normal(key, (uint64_t)i);
    return x;
}

typedef struct product_case {
    bool trans_a, trans_b;
    int64_t m, n, k, gap; /* gap: numbers between rows that belong to nothing */
    bool add;
} product_case;

/* An element of op(A) op(B), plus C if add; and the sum of sizes of its terms. */
static double expected_element(const product_case *p, const float *a, const float *b, float c, int64_t i, int64_t j,
                               double *size) {
    const int64_t lda = (p->trans_a ? p->m : p->k) + p->gap, ldb = (p->trans_b ? p->k : p->n) + p->gap;
    double sum = p->add ? c : 0;
    *size = fabs(sum);
    for (int64_t d = 0; d < p->k; d++) {
        const double term =
            (double)a[p->trans_a ? d * lda + i : i * lda + d] * b[p->trans_b ? j * ldb + d : d * ldb + j];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* Each element is off by at most (k + 3) u times the sum of sizes, and what lies between rows stays. */
static bool product_is_right(const product_case *p) {
    const int64_t lda = (p->trans_a ? p->m : p->k) + p->gap, ldb = (p->trans_b ? p->k : p->n) + p->gap;
    const int64_t ldc = p->n + p->gap;
    float *a = random_array((p->trans_a ? p->k : p->m) * lda, 1),
          *b = random_array((p->trans_b ? p->n : p->k) * ldb, 2);
    float *before = random_array(p->m * ldc, 3), *c = malloc((size_t)(p->m * ldc + 1) * sizeof *c);
    for (int64_t i = 0; !p->add && i < p->m * ldc; i++) before[i] = NAN;
    memcpy(c, before, (size_t)(p->m * ldc) * sizeof *c);
    nn_gemm(NULL, &(nn_product){.m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a = {a, lda, .transposed = p->trans_a},
                                .b = {b, ldb, .transposed = p->trans_b},
                                .c = c,
                                .ldc = ldc,
                                .add = p->add});
    bool ok = true;
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            double size;
            const double want = expected_element(p, a, b, before[i * ldc + j], i, j, &size);
            ok = ok && fabs(c[i * ldc + j] - want) <= (double)(p->k + 3) * 0x1p-24 * size;
        }
        ok = ok && memcmp(c + i * ldc + p->n, before + i * ldc + p->n, (size_t)p->gap * sizeof *c) == 0;
    }
    free(a), free(b), free(c), free(before);
    return ok;
}

TEST(products_are_right_for_all_shapes_and_transpositions) {
    static const int64_t sizes[][3] = {{1, 1, 1},      {5, 3, 7},    {0, 4, 3},       {4, 0, 3},      {4, 3, 0},
                                       {1, 130, 65},   {129, 1, 9},  {300, 257, 129}, {70, 600, 270}, {513, 48, 3},
                                       {17, 129, 700}, {3, 70, 500}, {4, 211, 37},    {2, 66, 2000}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int bits = fast() ? (int)s % 3 : 0; bits < 16; bits += fast() ? 3 : 1) {
            const product_case p = {bits & 1,    bits & 2,         sizes[s][0], sizes[s][1],
                                    sizes[s][2], bits & 4 ? 5 : 0, !(bits & 8)};
            if (!CHECK(product_is_right(&p))) {
                printf("m %lld n %lld k %lld, case %d\n", (long long)p.m, (long long)p.n, (long long)p.k, bits);
            }
        }
    }
}

static int threads_of_this_process(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2; /* . and .. */
}

TEST(products_are_the_same_bits_for_any_number_of_threads) {
    enum { M = 700, N = 300, K = 400 };
    float *a = random_array(M * K, 1), *b = random_array(N * K, 2), *one = malloc(M * N * sizeof *one),
          *c = malloc(M * N * sizeof *c);
    for (int t = 0; t < 4; t++) {
        const bool ta = t & 1, tb = t & 2;
        nn_product p = {.m = M, .n = N, .k = K, .c = one, .ldc = N};
        p.a = (nn_factor){a, ta ? M : K, .transposed = ta};
        p.b = (nn_factor){b, tb ? K : N, .transposed = tb};
        nn_gemm(NULL, &p);
        p.c = c;
        for (int threads = 1; threads <= 4; threads++) {
            adamod_pool *pool = NULL;
            if (!CHECK(adamod_pool_create(&pool, threads) == ADAMOD_OK)) continue;
            for (int repeat = 0; repeat < 3; repeat++) {
                memset(c, 0xff, M * N * sizeof *c);
                nn_gemm(pool, &p);
                CHECK(memcmp(c, one, M * N * sizeof *c) == 0);
            }
            adamod_pool_free(pool);
        }
    }
    free(a), free(b), free(c), free(one);
}

/* The path of its own that they take: dot products of rows. */
TEST(products_of_few_rows_are_dot_products) {
    enum { M = 3, N = 1000, K = 300 };
    const nn_vector *v = nn_vector_choose();
    float *a = random_array(M * K, 1), *b = random_array(N * K, 2), *c = malloc(M * N * sizeof *c);
    for (int threads = 1; threads <= 3; threads++) {
        adamod_pool *pool = NULL;
        if (!CHECK(adamod_pool_create(&pool, threads) == ADAMOD_OK)) continue;
        memset(c, 0xff, M * N * sizeof *c);
        nn_gemm(pool, &(nn_product){.m = M,
                                    .n = N,
                                    .k = K,
                                    .a = {.data = a, .stride = K},
                                    .b = {b, K, .transposed = true},
                                    .c = c,
                                    .ldc = N});
        for (int64_t i = 0; i < M * N; i++) CHECK(c[i] == v->dot(K, a + i / N * K, b + i % N * K));
        adamod_pool_free(pool);
    }
    free(a), free(b), free(c);
}

TEST(products_start_no_threads) {
    if (threads_of_this_process() < 1) SKIP("there is no /proc");
    adamod_pool *pool = NULL;
    if (!CHECK(adamod_pool_create(&pool, 3) == ADAMOD_OK)) return;
    const int before = threads_of_this_process();
    float *a = random_array(1024 * 512, 1), *b = random_array(512 * 512, 2), *c = random_array(1024 * 512, 3);
    const nn_product p = {.m = 1024,
                          .n = 512,
                          .k = 512,
                          .a = {.data = a, .stride = 512},
                          .b = {b, 512, .transposed = true},
                          .c = c,
                          .ldc = 512};
    for (int i = 0; i < 5; i++) nn_gemm(pool, &p);
    nn_gemm(NULL, &p);
    CHECK_INT(threads_of_this_process(), before);
    free(a), free(b), free(c);
    adamod_pool_free(pool);
}

static void count_tile(void *context, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    unsigned char(*seen)[333] = context;
    for (int64_t i = row; i < row + rows; i++) {
        for (int64_t j = col; j < col + cols; j++) seen[i][j]++;
    }
}

TEST(each_element_of_a_product_is_finished_once) {
    static unsigned char seen[900][333];
    float *a = random_array(900 * 333, 1), *c = random_array(900 * 333, 3);
    adamod_pool *pool = NULL;
    if (!CHECK(adamod_pool_create(&pool, 3) == ADAMOD_OK)) return;
    for (int t = 0; t < 2; t++) {
        memset(seen, 0, sizeof seen);
        const nn_product p = {.m = 900,
                              .n = 333,
                              .k = 333,
                              .a = {a, t == 0 ? 900 : 333, .transposed = t == 0},
                              .b = {a, 333, .transposed = t == 1},
                              .c = c,
                              .ldc = 333,
                              .then = count_tile,
                              .context = seen};
        nn_products(pool, &p, 1);
        bool once = true;
        for (int i = 0; i < 900 * 333; i++) once = once && seen[i / 333][i % 333] == 1;
        CHECK(once);
    }
    adamod_pool_free(pool);
    free(a), free(c);
}

TEST(the_library_has_a_name) {
    CHECK(strlen(nn_gemm_library()) > 3);
    printf("products by %s\n", nn_gemm_library());
}

/* ---- linear ---- */

/* Numbers of few bits, so that both backends compute the same z and agree on which are positive. */
static opcheck linear_case(nn_activation activation, bool bias, int64_t rows, int64_t in, int64_t out, double step) {
    opcheck o = {
        .op = &nn_op_linear,
        .attributes = {.linear = {.activation = activation}},
        .n_inputs = 3,
        .input = {OPCHECK_ROWS(1, rows, in), OPCHECK_MATRIX(out, in), OPCHECK_NONE},
        .training = true,
        .seed = (uint64_t)(rows + in + out),
        .longest_sum = (double)(rows > in + out ? rows : in + out),
    };
    if (bias) o.input[2] = (opcheck_input)OPCHECK_VECTOR(out);
    o.input[1].scale = in > 16 ? 4 / sqrt((double)in) : 1;
    for (int i = 0; i < 3; i++) o.input[i].step = step;
    return o;
}

TEST(gradients_of_linear) {
    for (int a = NN_LINEAR; a <= NN_GELU; a++) {
        for (int bias = 0; bias < 2; bias++) {
            const opcheck o = linear_case((nn_activation)a, bias, 4, 5, 3, 0);
            CHECK(opcheck_gradients(&o));
        }
    }
}

TEST(linear_on_the_cpu_is_the_reference) {
    static const int64_t sizes[][3] = {{0, 5, 3},    {1, 1, 1},   {1, 64, 48},    {2, 7, 130},     {7, 33, 5},
                                       {64, 16, 16}, {65, 48, 3}, {333, 96, 200}, {1100, 24, 130}, {70, 600, 40}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int a = NN_LINEAR; a <= NN_GELU; a++) {
            for (int bias = 0; bias < 2; bias++) {
                if (fast() && (s + (size_t)a + (size_t)bias) % 2) continue;
                const double step = a == NN_RELU ? 0.25 : 0;
                opcheck o = linear_case((nn_activation)a, bias, sizes[s][0], sizes[s][1], sizes[s][2], step);
                o.input[0].no_grad = bias && s % 2; /* what a graph's input is */
                CHECK(opcheck_kernels(&o, &nn_cpu_linear));
            }
        }
    }
}

TEST(gelu_is_right_over_its_whole_range) {
    enum { N = 4001 };
    static float x[N];
    const float one = 1;
    for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 0.01f;
    opcheck o = linear_case(NN_GELU, false, N, 1, 1, 0);
    o.input[0].data = x;
    o.input[1].data = &one;
    o.longest_sum = 0;
    o.input[1].no_grad = true;
    CHECK(opcheck_kernels(&o, &nn_cpu_linear));
}

TEST(linear_keeps_nan) {
    const float x[2] = {NAN, 1}, w = 1;
    for (int a = NN_LINEAR; a <= NN_GELU; a++) {
        const nn_linear_attributes attributes = {.activation = (nn_activation)a};
        const nn_kernels *both[2] = {&nn_op_linear.ref, &nn_cpu_linear};
        for (int b = 0; b < 2; b++) {
            float y[2], saved[2];
            const nn_call c = {.attributes = &attributes,
                               OPCHECK_NO_PARTS,
                               .input = {{.data = (void *)(uintptr_t)x, .rows = 2, .cols = 1, .type = NN_F32},
                                         {.data = (void *)(uintptr_t)&w, .rows = 1, .cols = 1, .type = NN_F32}},
                               .output = {{.data = y, .rows = 2, .cols = 1, .type = NN_F32}},
                               .saved = saved};
            both[b]->forward(&c);
            CHECK(isnan(y[0]) && y[1] > 0);
        }
    }
}

TEST(linear_says_which_shapes_do_not_fit) {
    opcheck o = linear_case(NN_RELU, true, 4, 5, 3, 0);
    CHECK(!opcheck_shape(&o));
    o.input[1] = (opcheck_input)OPCHECK_MATRIX(3, 4);
    CHECK_STR(opcheck_shape(&o), "x has 5 columns, W wants 4");
    o = linear_case(NN_RELU, true, 4, 5, 3, 0);
    o.input[2] = (opcheck_input)OPCHECK_VECTOR(4);
    CHECK_HAS(opcheck_shape(&o), "b must be a vector of 3");
}

/* ---- dropout ---- */

TEST(masks_are_the_numbers_of_random_h) {
    enum { MOST = 400 };
    float factor[MOST];
    for (uint64_t k = 0; k < 200; k++) {
        /* Among others around 2^34, where a block's number needs its upper half. */
        const uint64_t first = k % 2 ? k * 13 : (uint64_t)4 * 0xffffffe0u + k;
        const int64_t n = (int64_t)(k * 2);
        const uint32_t threshold = nn_drop_threshold(0.1 + 0.004 * (double)k);
        nn_cpu_mask(77 + k * 0x123456789u, first, n, threshold, 1.5f, factor);
        bool same = true;
        for (int64_t i = 0; i < n; i++) {
            const bool kept = nn_random_bits(77 + k * 0x123456789u, first + (uint64_t)i) >= threshold;
            same = same && factor[i] == (kept ? 1.5f : 0);
        }
        CHECK(same);
    }
}

static const int64_t row_sizes[][2] = {{0, 5},  {1, 1},   {1, 64},   {2, 7},    {3, 63},   {17, 65},
                                       {33, 4}, {64, 48}, {70, 512}, {333, 97}, {2, 17000}};
enum { ROW_SIZES = sizeof row_sizes / sizeof *row_sizes };

TEST(gradients_of_dropout) {
    for (int k = 0; k < 4; k++) {
        const opcheck o = dropout_case(3, 7, k & 1 ? 0.3 : 0, k & 2);
        CHECK(opcheck_gradients(&o));
    }
}

TEST(dropout_on_the_cpu_is_the_reference) {
    for (int s = 0; s < ROW_SIZES; s++) {
        for (int k = 0; k < 4; k++) {
            const opcheck o = dropout_case(row_sizes[s][0], row_sizes[s][1], k & 1 ? 0.3 : 0, k & 2);
            CHECK(opcheck_kernels(&o, &nn_cpu_dropout));
        }
    }
}

TEST(dropout_makes_zero_of_anything_and_keeps_the_share) {
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = i % 2 ? INFINITY : 1;
    const nn_dropout_attributes attributes = {.dropout = 0.3};
    const nn_kernels *both[2] = {&nn_op_dropout.ref, &nn_cpu_dropout};
    for (int b = 0; b < 2; b++) {
        const nn_call c = {.attributes = &attributes,
                           OPCHECK_NO_PARTS,
                           .input = {{.data = x, .rows = N, .cols = 1, .type = NN_F32}},
                           .output = {{.data = y, .rows = N, .cols = 1, .type = NN_F32}},
                           .training = true,
                           .key = 5};
        both[b]->forward(&c);
        int zeros = 0, others = 0;
        for (int i = 0; i < N; i++) {
            zeros += y[i] == 0;
            others += y[i] != 0 && y[i] != INFINITY && fabsf(y[i] - 1 / 0.7f) > 1e-6f;
        }
        CHECK_INT(others, 0);
        CHECK_CLOSE(zeros, 0.3 * N, 4 * sqrt(0.3 * 0.7 * N));
    }
    free(x), free(y);
}

/* ---- add ---- */

static opcheck add_case(int64_t rows, int64_t cols, double p, bool training) {
    opcheck o = dropout_case(rows, cols, p, training);
    o.op = &nn_op_add;
    o.n_inputs = 2;
    o.input[1] = o.input[0];
    return o;
}

TEST(gradients_of_add) {
    for (int k = 0; k < 4; k++) {
        const opcheck o = add_case(3, 7, k & 1 ? 0.3 : 0, k & 2);
        CHECK(opcheck_gradients(&o));
    }
}

TEST(add_on_the_cpu_is_the_reference) {
    for (int s = 0; s < ROW_SIZES; s++) {
        for (int k = 0; k < 4; k++) {
            const opcheck o = add_case(row_sizes[s][0], row_sizes[s][1], k & 1 ? 0.3 : 0, k & 2);
            CHECK(opcheck_kernels(&o, &nn_cpu_add));
        }
    }
}

/* ---- add_norm ---- */

TEST(gradients_of_add_norm) {
    for (int k = 0; k < 8; k++) {
        const opcheck o = add_norm_case(3, 7, k & 4, k & 1 ? 0.3 : 0, k & 2);
        CHECK(opcheck_gradients(&o));
    }
}

TEST(add_norm_on_the_cpu_is_the_reference) {
    for (int s = 0; s < ROW_SIZES; s++) {
        for (int k = fast() ? s % 3 : 0; k < 8; k += fast() ? 3 : 1) {
            opcheck o = add_norm_case(row_sizes[s][0], row_sizes[s][1], k & 4, k & 1 ? 0.3 : 0, k & 2);
            /* Rows of one or few numbers can have almost no variance: h is off by as much as 1 / sqrt(eps) u. */
            if (row_sizes[s][1] < 8) o.slack = 20;
            CHECK(opcheck_kernels(&o, &nn_cpu_add_norm));
        }
    }
}

TEST(add_norm_of_equal_numbers_is_beta) {
    enum { ROWS = 3, COLS = 40 };
    float x[ROWS * COLS], gamma[COLS], beta[COLS], y[ROWS * COLS], saved[2 * ROWS], workspace[5 * COLS];
    for (int i = 0; i < ROWS * COLS; i++) x[i] = 0.75f;
    for (int j = 0; j < COLS; j++) gamma[j] = 2, beta[j] = (float)j;
    const nn_add_norm_attributes attributes = {.eps = 1e-5};
    const nn_call c = {.attributes = &attributes,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = x, .rows = ROWS, .cols = COLS, .type = NN_F32},
                                 {0},
                                 {.data = gamma, .rows = COLS, .cols = 1, .type = NN_F32},
                                 {.data = beta, .rows = COLS, .cols = 1, .type = NN_F32}},
                       .output = {{.data = y, .rows = ROWS, .cols = COLS}},
                       .saved = saved,
                       .workspace = workspace};
    nn_cpu_add_norm.forward(&c);
    for (int i = 0; i < ROWS * COLS; i++) CHECK_CLOSE(y[i], beta[i % COLS], 0);
}

/* A value added to itself: a plan gives both inputs the same gradient, which is first replaced, then added to. */
static void check_shared_gradient(const opcheck *o, const nn_kernels *kernels, int vectors) {
    enum { ROWS = 5, COLS = 24, N = ROWS * COLS };
    float *x = random_array(N, 1), *dy = random_array(N, 2), *one = random_array(COLS, 3), y[N], saved[2 * ROWS];
    float both[N], apart[2][N], *workspace = malloc(4 * N * sizeof *workspace);
    nn_gradients grad = {0};
    nn_call c = {.attributes = &o->attributes,
                 .grad = &grad,
                 .input = {{.data = x, .rows = ROWS, .cols = COLS}, {.data = x, .rows = ROWS, .cols = COLS}},
                 .output = {{.data = y, .rows = ROWS, .cols = COLS}},
                 .saved = saved,
                 .workspace = workspace,
                 .training = true,
                 .key = 3};
    for (int i = 0; i < vectors; i++) c.input[2 + i] = (nn_array){.data = one, .rows = COLS, .cols = 1};
    kernels->forward(&c);
    grad.output[0] = dy;
    grad.input[0] = apart[0], grad.input[1] = apart[1];
    kernels->backward(&c);
    grad.input[0] = grad.input[1] = both;
    grad.accumulate[1] = true;
    kernels->backward(&c);
    for (int i = 0; i < N; i++) CHECK_CLOSE(both[i], apart[0][i] + apart[1][i], 1e-6);
    free(x), free(dy), free(one), free(workspace);
}

TEST(a_value_may_be_added_to_itself) {
    const opcheck add = add_case(5, 24, 0.3, true), norm = add_norm_case(5, 24, true, 0.3, true);
    check_shared_gradient(&add, &nn_op_add.ref, 0);
    check_shared_gradient(&add, &nn_cpu_add, 0);
    check_shared_gradient(&norm, &nn_op_add_norm.ref, 2);
    check_shared_gradient(&norm, &nn_cpu_add_norm, 2);
}

TEST(sums_say_which_shapes_do_not_fit) {
    opcheck o = add_case(4, 5, 0.1, true);
    CHECK(!opcheck_shape(&o));
    o.input[1].shape.dim[1] = 6;
    CHECK_HAS(opcheck_shape(&o), "one shape");
    o = add_case(4, 5, 1, true);
    CHECK_HAS(opcheck_shape(&o), "dropout is 1, expected 0 <= p < 1");
    o = add_norm_case(4, 5, true, 0.1, true);
    CHECK(!opcheck_shape(&o));
    o.input[1].shape.rows = 2;
    CHECK_HAS(opcheck_shape(&o), "one shape");
    o = add_norm_case(4, 5, false, 0.1, true);
    o.input[3] = (opcheck_input)OPCHECK_VECTOR(4);
    CHECK_HAS(opcheck_shape(&o), "vectors of 5");
}

RUN_TESTS(ENTRY_OF_ONE_THREAD(products_are_right_for_all_shapes_and_transpositions),
          ENTRY(products_are_the_same_bits_for_any_number_of_threads), ENTRY(products_of_few_rows_are_dot_products),
          ENTRY(products_start_no_threads), ENTRY(each_element_of_a_product_is_finished_once),
          ENTRY(the_library_has_a_name), ENTRY(gradients_of_linear), ENTRY(linear_on_the_cpu_is_the_reference),
          ENTRY(gelu_is_right_over_its_whole_range), ENTRY(linear_keeps_nan),
          ENTRY(linear_says_which_shapes_do_not_fit), ENTRY(masks_are_the_numbers_of_random_h),
          ENTRY(gradients_of_dropout), ENTRY(dropout_on_the_cpu_is_the_reference),
          ENTRY(dropout_makes_zero_of_anything_and_keeps_the_share), ENTRY(gradients_of_add),
          ENTRY(add_on_the_cpu_is_the_reference), ENTRY(gradients_of_add_norm),
          ENTRY(add_norm_on_the_cpu_is_the_reference), ENTRY(add_norm_of_equal_numbers_is_beta),
          ENTRY(a_value_may_be_added_to_itself), ENTRY(sums_say_which_shapes_do_not_fit))
