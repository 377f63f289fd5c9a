/* The ops of the cuda backend but linear and attention, against the reference: as test_ops_basic.c and
 * test_ops_sequence.c do it for the processor, and at the sizes of real models. Results are rounded to bf16 only where
 * they are stored, so that opcheck's `rounded` stays 0. */
#include "nn/backend.h"
#include "check.h"
#include "cudacheck.h"
#include "dense_cases.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>

#define NEEDS_DEVICE()                                                                                                 \
    if (!cudacheck_open()) SKIP(adamod_last_error())

static void check_both(const opcheck *o) {
    CHECK(cudacheck(o, NN_F32));
    CHECK(cudacheck(o, NN_BF16));
}

/* ADAMOD_TEST_FAST leaves out most of what takes the reference long. */
static void check_small(const opcheck *o) {
    enum { MOST = 200000 };
    for (int i = 0; getenv("ADAMOD_TEST_FAST") && i < o->n_inputs; i++) {
        const nn_shape *s = &o->input[i].shape;
        if (s->ndim == 2 && s->dim[0] * s->dim[1] > MOST) return;
    }
    check_both(o);
}

/* ---- kernels called one by one ---- */

static nn_device *device;

static const nn_device_functions *functions(void) { return nn_backend_find("cuda")->device; }

static const nn_kernels *kernels_of(const char *op) { return nn_backend_kernels(nn_backend_find("cuda"), op); }

static void *send(const void *from, size_t bytes) {
    void *there = NULL;
    if (!device) CHECK_INT(functions()->open(&device, 0), ADAMOD_OK);
    CHECK_INT(functions()->allocate(device, &there, bytes), ADAMOD_OK);
    functions()->upload(device, there, from, bytes);
    return there;
}

static void receive(void *to, const void *there, size_t bytes) {
    functions()->download(device, to, there, bytes);
    CHECK_INT(functions()->wait(device), ADAMOD_OK);
}

static void drop(void *there, size_t bytes) { functions()->release(device, there, bytes); }

static float *random_array(int64_t n, uint64_t key) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)nn_normal(key, (uint64_t)i);
    return x;
}

/* ---- dropout, add ---- */

/* The last ones have more rows than kernels have groups of threads. */
static const int64_t row_sizes[][2] = {{0, 5},    {1, 1},    {1, 64},    {2, 7},     {3, 63},     {17, 65},
                                       {33, 4},   {64, 48},  {70, 512},  {333, 97},  {2, 17000},  {5, 8},
                                       {9, 3000}, {7, 4096}, {12, 4104}, {300, 768}, {2200, 512}, {1100, 1024}};
enum { ROW_SIZES = sizeof row_sizes / sizeof *row_sizes };

/* With ADAMOD_TEST_FAST, only every second size is tested, from the second on. */
static int first_size(void) { return getenv("ADAMOD_TEST_FAST") ? 1 : 0; }

TEST(dropout_is_the_reference) {
    NEEDS_DEVICE();
    for (int s = first_size(); s < ROW_SIZES; s += 1 + first_size()) {
        for (int k = 0; k < 4; k++) {
            const opcheck o = dropout_case(row_sizes[s][0], row_sizes[s][1], k & 1 ? 0.3 : 0, k & 2);
            check_small(&o);
        }
    }
}

TEST(dropout_makes_zero_of_anything) {
    NEEDS_DEVICE();
    enum { N = 1003 };
    static float x[N], y[N];
    const uint64_t random[1] = {nn_run_key(5, 6)}, key = nn_key(5, 6, 7);
    for (int i = 0; i < N; i++) x[i] = i % 2 ? INFINITY : NAN;
    const nn_dropout_attributes attributes = {.dropout = 0.3};
    void *there = send(x, sizeof x), *result = send(y, sizeof y), *numbers = send(random, sizeof random);
    const nn_call c = {.attributes = &attributes,
                       .input = {{.data = there, .rows = N, .cols = 1, .type = NN_F32}},
                       .output = {{.data = result, .rows = N, .cols = 1, .type = NN_F32}},
                       .training = true,
                       .grad = &(nn_gradients){0},
                       .device = &(nn_on_device){.random = numbers, .node = 7, .stream = functions()->stream(device)}};
    kernels_of("dropout")->forward(&c);
    receive(y, result, sizeof y);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        const bool kept = nn_random_bits(key, (uint64_t)i) >= nn_drop_threshold(0.3);
        wrong += kept ? isfinite(y[i]) : y[i] != 0;
    }
    CHECK_INT(wrong, 0);
    drop(there, sizeof x), drop(result, sizeof y), drop(numbers, sizeof random);
}

static opcheck add_case(int64_t rows, int64_t cols, double p, bool training) {
    opcheck o = dropout_case(rows, cols, p, training);
    o.op = &nn_op_add;
    o.n_inputs = 2;
    o.input[1] = o.input[0];
    return o;
}

TEST(add_is_the_reference) {
    NEEDS_DEVICE();
    for (int s = first_size(); s < ROW_SIZES; s += 1 + first_size()) {
        for (int k = 0; k < 4; k++) {
            const opcheck o = add_case(row_sizes[s][0], row_sizes[s][1], k & 1 ? 0.3 : 0, k & 2);
            check_small(&o);
        }
    }
}

/* ---- add_norm ---- */

TEST(add_norm_is_the_reference) {
    NEEDS_DEVICE();
    for (int s = first_size(); s < ROW_SIZES; s += 1 + first_size()) {
        const int options = row_sizes[s][0] > 1000 ? 7 : 0; /* all of them at small sizes only: the reference is slow */
        for (int k = options; k < 8; k++) {
            opcheck o = add_norm_case(row_sizes[s][0], row_sizes[s][1], k & 4, k & 1 ? 0.3 : 0, k & 2);
            /* Rows of one or few numbers can have almost no variance: h is off by as much as 1 / sqrt(eps) u. */
            if (row_sizes[s][1] < 8) o.slack = 20;
            check_small(&o);
        }
    }
}

TEST(add_norm_sums_over_more_rows_than_blocks) {
    NEEDS_DEVICE();
    static const int64_t sizes[][2] = {{530, 2048}, {270, 4096}, {270, 4100}, {600, 30}};
    for (int s = 0; s < 4; s++) {
        opcheck o = add_norm_case(sizes[s][0], sizes[s][1], true, 0.1, true);
        o.input[0].no_grad = o.input[1].no_grad = s % 2;
        check_both(&o);
    }
}

TEST(add_norm_of_equal_numbers_is_beta) {
    NEEDS_DEVICE();
    enum { ROWS = 3, MOST = 48 };
    for (int cols = 40; cols <= 41; cols++) {
        float x[ROWS * MOST], gamma[MOST], beta[MOST], y[ROWS * MOST], saved[2 * ROWS];
        for (int i = 0; i < ROWS * MOST; i++) x[i] = 0.75f;
        for (int j = 0; j < MOST; j++) gamma[j] = 2, beta[j] = (float)j;
        void *t[5] = {send(x, sizeof x), send(gamma, sizeof gamma), send(beta, sizeof beta), send(y, sizeof y),
                      send(saved, sizeof saved)};
        const nn_add_norm_attributes attributes = {.eps = 1e-5};
        const nn_call c = {.attributes = &attributes,
                           .input = {{.data = t[0], .rows = ROWS, .cols = cols, .type = NN_F32},
                                     {0},
                                     {.data = t[1], .rows = cols, .cols = 1, .type = NN_F32},
                                     {.data = t[2], .rows = cols, .cols = 1, .type = NN_F32}},
                           .output = {{.data = t[3], .rows = ROWS, .cols = cols, .type = NN_F32}},
                           .saved = t[4],
                           .grad = &(nn_gradients){0},
                           .device = &(nn_on_device){.stream = functions()->stream(device)}};
        kernels_of("add_norm")->forward(&c);
        receive(y, t[3], sizeof y);
        for (int i = 0; i < ROWS * cols; i++) CHECK_CLOSE(y[i], beta[i % cols], 0);
        drop(t[0], sizeof x), drop(t[1], sizeof gamma), drop(t[2], sizeof beta), drop(t[3], sizeof y);
        drop(t[4], sizeof saved);
    }
}

/* A value added to itself: a plan gives both inputs the same gradient, which is first replaced, then added to. */
static void check_shared_gradient(const char *op, int64_t cols, int vectors) {
    enum { ROWS = 5, MOST = ROWS * 24 };
    const size_t bytes = MOST * sizeof(float);
    const uint64_t random[1] = {nn_run_key(1, 2)};
    const nn_add_norm_attributes attributes = {.dropout = 0.3, .eps = 1e-5};
    float *host[3] = {random_array(MOST, 1), random_array(MOST, 2), random_array(MOST, 3)}, got[3][MOST];
    void *x = send(host[0], bytes), *dy = send(host[1], bytes), *one = send(host[2], bytes);
    void *y = send(host[0], bytes), *saved = send(host[0], bytes), *numbers = send(random, sizeof random);
    void *grads[3] = {send(host[0], bytes), send(host[0], bytes), send(host[0], bytes)};
    nn_gradients grad = {0};
    nn_call c = {.attributes = &attributes,
                 .input = {{.data = x, .rows = ROWS, .cols = cols, .type = NN_F32},
                           {.data = x, .rows = ROWS, .cols = cols, .type = NN_F32}},
                 .output = {{.data = y, .rows = ROWS, .cols = cols, .type = NN_F32}},
                 .saved = saved,
                 .training = true,
                 .grad = &grad,
                 .device = &(nn_on_device){.random = numbers, .stream = functions()->stream(device)}};
    for (int i = 0; i < vectors; i++) c.input[2 + i] = (nn_array){.data = one, .rows = cols, .cols = 1, .type = NN_F32};
    kernels_of(op)->forward(&c);
    grad.output[0] = dy;
    grad.input[0] = grads[0], grad.input[1] = grads[1];
    kernels_of(op)->backward(&c);
    grad.input[0] = grad.input[1] = grads[2];
    grad.accumulate[1] = true;
    kernels_of(op)->backward(&c);
    for (int k = 0; k < 3; k++) receive(got[k], grads[k], bytes);
    for (int64_t i = 0; i < ROWS * cols; i++) CHECK_CLOSE(got[2][i], got[0][i] + got[1][i], 1e-6);
    void *all[] = {x, dy, one, y, saved, grads[0], grads[1], grads[2]};
    for (int k = 0; k < 8; k++) drop(all[k], bytes);
    drop(numbers, sizeof random);
    free(host[0]), free(host[1]), free(host[2]);
}

TEST(a_value_may_be_added_to_itself) {
    NEEDS_DEVICE();
    for (int64_t cols = 23; cols <= 24; cols++) {
        check_shared_gradient("add", cols, 0);
        check_shared_gradient("add_norm", cols, 2);
    }
}

/* ---- cross entropy, log softmax ---- */

TEST(cross_entropy_is_the_reference) {
    NEEDS_DEVICE();
    static const int64_t rows[] = {0, 1, 3, 50, 17, 33, 20, 2, 3000, 300, 30, 3},
                         classes[] = {5, 1, 2, 30, 31, 129, 1000, 40000, 60, 10000, 10001, 50257};
    int32_t targets[3000];
    for (int i = 0; i < 12; i++) {
        opcheck o = cross_entropy_case(rows[i], classes[i], i % 2 ? 0.1 : 0, targets);
        check_small(&o);
        /* Confident. The log-sum-exp, up to 90, is saved as f32 by the reference and here: where it lies half way
         * between two of them, sums that differ in the last bit make it differ by 128 u, and the probabilities with it,
         * of which a gradient is what 1 leaves: a number that may be 0, and is allowed a tenth of (8 + 16) u then. */
        o.input[0].scale = 20;
        o.slack = 128 / (0.1 * (8 + o.longest_sum));
        check_small(&o);
    }
}

static void check_sums(int32_t goal, float largest, const double *want) {
    const float x[4] = {1, largest, 1, largest};
    float y[4], row[4] = {0};
    const nn_cross_entropy_attributes a = {.smoothing = 0.2};
    void *t[5] = {send(x, sizeof x), send(&goal, sizeof goal), send(y, sizeof y), send(row, sizeof row),
                  send(row, sizeof row)};
    const nn_call c = {.attributes = &a,
                       .input = {{.data = t[0], .rows = 1, .cols = 4, .type = NN_F32},
                                 {.data = t[1], .rows = 1, .cols = 1, .type = NN_I32}},
                       .output = {{.data = t[2], .rows = 1, .cols = 4, .type = NN_F32}},
                       .saved = t[3],
                       .workspace = t[4],
                       .grad = &(nn_gradients){0},
                       .device = &(nn_on_device){.stream = functions()->stream(device)}};
    kernels_of("cross_entropy")->forward(&c);
    receive(y, t[2], sizeof y);
    for (int k = 0; k < 4; k++) CHECK(isnan(want[k]) ? isnan(y[k]) : fabs(y[k] - want[k]) <= 1e-6);
    drop(t[0], sizeof x), drop(t[1], sizeof goal), drop(t[2], sizeof y), drop(t[3], sizeof row), drop(t[4], sizeof row);
}

TEST(cross_entropy_sums_are_what_the_header_says) {
    NEEDS_DEVICE();
    const double lse = log(2 * exp(1) + 2 * exp(3)), loss = 0.8 * (lse - 3) + 0.2 * (lse - 2);
    check_sums(1, 3, (double[]){loss, lse - 3, 1, 1});
    check_sums(3, 3, (double[]){loss, lse - 3, 0, 1}); /* the second of the largest */
    check_sums(0, 3, (double[]){0.8 * (lse - 1) + 0.2 * (lse - 2), lse - 1, 0, 1});
    check_sums(-1, 3, (double[]){0, 0, 0, 0});
    check_sums(0, NAN, (double[]){NAN, NAN, 1, 1}); /* NaN must not go unnoticed */
    check_sums(1, NAN, (double[]){NAN, NAN, 0, 1});
}

TEST(log_softmax_is_the_reference) {
    NEEDS_DEVICE();
    static const int64_t rows[] = {0, 1, 20, 3, 40, 7}, cols[] = {5, 1, 37, 40000, 10000, 10001};
    for (int i = 0; i < 6; i++) {
        opcheck o = {.op = &nn_op_log_softmax, .n_inputs = 1, .input = {OPCHECK_ROWS(1, rows[i], cols[i])}, .seed = 3};
        check_small(&o);
        o.input[0].scale = 30;
        check_small(&o);
    }
}

/* ---- embedding ---- */

enum { MOST_TOKENS = 4000 };
static int32_t ids[MOST_TOKENS], positions[MOST_TOKENS];

TEST(embedding_is_the_reference) {
    NEEDS_DEVICE();
    static const int64_t rows[] = {0, 1, 7, 300, 64, 33, 40, 3000, 777, 1025},
                         n[] = {3, 1, 2500, 40, 5, 9, 3, 3, 1, 700}, d[] = {8, 1, 6, 128, 2, 3, 300, 72, 16, 1024};
    for (int i = 0; i < 10; i++) {
        opcheck o = embedding_case(rows[i], n[i], d[i], ids, NULL, 0);
        check_small(&o);
        o = embedding_case(rows[i], n[i], d[i], ids, positions, 100);
        check_small(&o);
        o = embedding_case(rows[i], n[i], d[i], ids, positions, 5000);
        o.longest_sum = 0; /* of forward, which sums nothing: positions far away must not be off */
        o.input[2].no_grad = true;
        check_small(&o);
    }
}

TEST(embedding_of_a_batch_with_padding_is_the_reference) {
    NEEDS_DEVICE();
    opcheck o = embedding_case(MOST_TOKENS, 10000, 512, ids, positions, 60);
    for (int i = 0; i < MOST_TOKENS; i++) {
        if (i % 25 == 24) ids[i] = 2;   /* the end of a sentence */
        if (i >= 3000) ids[i] = 0;      /* padding */
        if (i == 1234) ids[i] = 9999;   /* the last of the table */
        if (i % 125 == 0) ids[i] = 777; /* 32 in all: the most that one warp takes */
    }
    check_small(&o);
}

/* ---- decoding ---- */

TEST(best_is_the_reference) {
    NEEDS_DEVICE();
    static const int64_t rows[] = {0, 1, 9, 33, 64}, cols[] = {7, 1, 300, 1027, 10000};
    static const int n[] = {3, 1, 21, 11, 11};
    for (int i = 0; i < 5; i++) {
        const opcheck o = {.op = &nn_op_best,
                           .attributes = {.best = {.n = n[i]}},
                           .n_inputs = 1,
                           .input = {OPCHECK_ROWS(1, rows[i], cols[i])},
                           .seed = 3 + (uint64_t)i,
                           .longest_sum = (double)cols[i]};
        CHECK(cudacheck(&o, NN_F32));
    }
}

/* Each row has a path through rows that are not written in this step, and a place of its own; every fifth has no
 * hypothesis. */
TEST(path_attention_is_the_reference) {
    NEEDS_DEVICE();
    enum { ROWS = 60, LENGTH = 70 };
    static int32_t paths[ROWS * LENGTH], path_positions[ROWS];
    /* columns, heads, heads of keys and values */
    static const int sizes[][3] = {{512, 4, 4}, {64, 4, 4},  {96, 2, 2}, {6, 1, 1},
                                   {500, 2, 2}, {512, 8, 2}, {60, 6, 1}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int r = 0; r < ROWS; r++) {
        path_positions[r] = r * 7 % LENGTH;
        for (int t = 0; t < LENGTH; t++) paths[r * LENGTH + t] = ROWS + (r * 31 + t * 17) % (4 * ROWS);
        paths[r * LENGTH + path_positions[r]] = r % 5 == 4 ? -1 : r;
    }
    for (int i = 0; i < SIZES; i++) {
        const int64_t d = sizes[i][0], d_k = d / sizes[i][1] * sizes[i][2];
        const opcheck o = {.op = &nn_op_path_attention,
                           .attributes = {.path_attention = {.heads = sizes[i][1], .kv_heads = sizes[i][2]}},
                           .n_inputs = 4,
                           .input = {OPCHECK_ROWS(1, ROWS, d + 2 * d_k), OPCHECK_ROWS(2, 5 * ROWS, 2 * d_k),
                                     OPCHECK_INDEX(1, ROWS, LENGTH, paths), OPCHECK_INDEX(1, ROWS, 0, path_positions)},
                           .seed = 11,
                           .longest_sum = LENGTH + (double)d,
                           .rounded = 3};
        check_small(&o);
    }
}

RUN_TESTS(ENTRY(dropout_is_the_reference), ENTRY(dropout_makes_zero_of_anything), ENTRY(add_is_the_reference),
          ENTRY(add_norm_is_the_reference), ENTRY(add_norm_sums_over_more_rows_than_blocks),
          ENTRY(add_norm_of_equal_numbers_is_beta), ENTRY(a_value_may_be_added_to_itself),
          ENTRY(cross_entropy_is_the_reference), ENTRY(cross_entropy_sums_are_what_the_header_says),
          ENTRY(log_softmax_is_the_reference), ENTRY(embedding_is_the_reference),
          ENTRY(embedding_of_a_batch_with_padding_is_the_reference), ENTRY(best_is_the_reference),
          ENTRY(path_attention_is_the_reference))
