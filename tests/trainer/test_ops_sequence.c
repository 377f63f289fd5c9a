/* The ops on sequences: attention, cross entropy, log softmax, embedding, best and path_attention; and the vector loops that
 * they are made of. */
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/vector.h"
#include "check.h"
#include "attention_cases.h"
#include "dense_cases.h"
#include "opcheck.h"
#include "values.h"
#include "nn/ops/attention.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>

/* ---- instruction sets ---- */

/* Runs what for every instruction set this processor has. */
static void each_isa(void (*what)(void)) {
    const char *before = getenv("ADAMOD_ISA");
    char *kept = before ? strdup(before) : NULL;
    for (int i = 0; adamod_isa_name(i); i++) {
        setenv("ADAMOD_ISA", adamod_isa_name(i), 1);
        const int failures = check_failures;
        what();
        if (check_failures > failures) printf("with ADAMOD_ISA=%s\n", adamod_isa_name(i));
    }
    if (kept) setenv("ADAMOD_ISA", kept, 1);
    else unsetenv("ADAMOD_ISA");
    free(kept);
}

static void check_exp(void) {
    const nn_vector *x = nn_vector_choose();
    double worst = 0;
    for (int i = 0; i < 100000; i++) {
        const float at = (float)(-87 + 175e-5 * i);
        float s[NN_LANES] = {at};
        x->weights(1, NN_LANES, 0, s);
        worst = fmax(worst, fabs(s[0] / exp((double)at) - 1));
    }
    CHECK(worst < 1e-7);
    float s[NN_LANES] = {-88, -INFINITY, 0, NAN, -1e30f};
    CHECK(isnan(x->weights(5, NN_LANES, 0, s)));
    CHECK(s[0] == 0 && s[1] == 0 && s[2] == 1 && isnan(s[3]) && s[4] == 0 && s[5] == 0);
}

TEST(exp_is_off_by_less_than_1e_7_and_keeps_nan) { each_isa(check_exp); }

static void check_dots(void) {
    enum { M = 23, WIDTH = 70 };
    const nn_vector *x = nn_vector_choose();
    float w[M * WIDTH], a[WIDTH], y[M + 1];
    for (int i = 0; i < M * WIDTH; i++) w[i] = (float)nn_normal(3, (uint64_t)i);
    for (int i = 0; i < WIDTH; i++) a[i] = (float)nn_normal(4, (uint64_t)i);
    for (int m = 0; m <= M; m++) {
        for (int n = 0; n < WIDTH; n += 3) {
            y[m] = 7;
            x->dots(m, n, w, WIDTH, a, y);
            for (int i = 0; i < m; i++) CHECK(y[i] == x->dot(n, w + i * WIDTH, a));
            CHECK(y[m] == 7);
        }
    }
}

TEST(dots_of_rows_are_each_dot) { each_isa(check_dots); }

static void check_transpose(void) {
    enum { MOST = 50, WIDTH = 64 };
    const nn_vector *x = nn_vector_choose();
    static float from[MOST * MOST], to[MOST * WIDTH + 1];
    for (int i = 0; i < MOST * MOST; i++) from[i] = (float)(i + 1);
    for (int m = 0; m <= MOST; m += 3) {
        for (int n = 0; n <= MOST; n++) {
            for (int i = 0; i <= MOST * WIDTH; i++) to[i] = -1;
            x->transpose(m, n, from, MOST, to, WIDTH);
            for (int i = 0; i <= MOST * WIDTH; i++) {
                const int row = i / WIDTH, column = i % WIDTH;
                CHECK(to[i] == (row >= n ? -1 : column < m ? from[column * MOST + row] : 0));
            }
        }
    }
}

TEST(transposes_have_columns_as_rows_and_zeros_behind) { each_isa(check_transpose); }

/* A result of everything that sums, so that sets with a fused multiply-add can be compared bit for bit. */
static void vector_results(float *out) {
    enum { N = 77, WIDTH = 80 };
    const nn_vector *x = nn_vector_choose();
    float a[N * WIDTH], b[N * WIDTH];
    for (int i = 0; i < N * WIDTH; i++) {
        a[i] = (float)nn_normal(1, (uint64_t)i);
        b[i] = (float)nn_normal(2, (uint64_t)i);
    }
    x->product(N, WIDTH, N, (nn_tile){a, WIDTH, 1}, (nn_tile){b, WIDTH, 1}, (nn_tile){out, WIDTH, 1}, false);
    out += N * WIDTH;
    out[0] = x->dot(N, a, b);
    out[1] = x->most(N, a);
    double sum_x;
    out[2] = (float)x->sum_exp(N * WIDTH, a, 3, &sum_x);
    out[3] = (float)sum_x;
    out[4] = x->weights(N, WIDTH, 3, a);
    out[5] = x->weights(3, WIDTH, 3, b);
    x->dots(N, N, a, WIDTH, b, out + 6);
}

TEST(instruction_sets_with_fused_products_agree_bit_for_bit) {
    enum { SIZE = 77 * 80 + 6 + 77 };
    static float first[SIZE], other[SIZE];
    const char *before = getenv("ADAMOD_ISA");
    if (before) SKIP("ADAMOD_ISA is set");
    vector_results(first);
    for (int i = 1; adamod_isa_name(i) && strcmp(adamod_isa_name(i), "plain") != 0; i++) {
        setenv("ADAMOD_ISA", adamod_isa_name(i), 1);
        vector_results(other);
        for (int k = 0; k < SIZE; k++) CHECK(first[k] == other[k]);
    }
    unsetenv("ADAMOD_ISA");
}

/* ---- attention ---- */

static bool attention_gradients(attention_case a) {
    attention_setup x;
    attention_set_up(&x, &a);
    return opcheck_gradients(&x.o);
}

static bool attention_kernels(attention_case a) {
    attention_setup x;
    attention_set_up(&x, &a);
    return attention_told(&a, opcheck_kernels(&x.o, &nn_cpu_attention));
}

TEST(attention_ref_has_the_gradients_of_differences) {
    for (int causal = 0; causal < 2; causal++) {
        CHECK(attention_gradients((attention_case){1, 3, .causal = causal, .n = 2, .nq = {2, 3}}));
        CHECK(attention_gradients((attention_case){2, 2, .causal = causal, .n = 4, .nq = {3, -2, 0, 1}}));
        CHECK(attention_gradients(
            (attention_case){2, 2, .causal = causal, .cross = true, .n = 3, .nq = {2, 1, 3}, .nk = {4, 0, 2}}));
        CHECK(attention_gradients((attention_case){2, 1, .causal = causal, .dropout = 0.4, .n = 2, .nq = {4, 2}}));
    }
    CHECK(attention_gradients(
        (attention_case){1, 2, .cross = true, .dropout = 0.5, .n = 2, .nq = {2, -1}, .nk = {5, -3}}));
}

static void check_attention_sizes(void) {
    static const int sizes[] = {1, 8, 32, 33, 64, 128};
    for (int i = 0; i < 6; i++) {
        for (int causal = 0; causal < 2; causal++) {
            const int heads = i < 3 ? 4 : 2;
            CHECK(attention_kernels((attention_case){heads, sizes[i], .causal = causal, .n = 3, .nq = {17, 5, 21}}));
            CHECK(attention_kernels((attention_case){heads, sizes[i], .causal = causal, .cross = true, .n = 3,
                                                     .nq = {9, 18, 3}, .nk = {16, 7, 20}}));
        }
    }
}

TEST(attention_cpu_is_ref_for_all_sizes_of_heads) { each_isa(check_attention_sizes); }

TEST(attention_cpu_is_ref_for_random_lengths) {
    for (uint64_t seed = 0; seed < (fast() ? 12 : 40); seed++) {
        CHECK(attention_kernels(attention_at_random(seed, 30)));
    }
}

/* More queries and keys than a tile of the cpu's has. */
static void check_attention_long(void) {
    for (int causal = 0; causal < 2; causal++) {
        CHECK(attention_kernels((attention_case){1, 16, .causal = causal, .n = 2, .nq = {300, 65}}));
        CHECK(attention_kernels((attention_case){2, 5, .causal = causal, .dropout = 0.2, .cross = true, .n = 3,
                                                 .nq = {70, 3, 270}, .nk = {600, 257, 12}}));
    }
}

TEST(attention_cpu_is_ref_for_long_sequences) { each_isa(check_attention_long); }

TEST(attention_with_grouped_keys_has_the_gradients_of_differences) {
    for (int causal = 0; causal < 2; causal++) {
        CHECK(attention_gradients((attention_case){4, 2, .causal = causal, .n = 2, .nq = {2, 3}, .kv_heads = 2}));
        CHECK(attention_gradients((attention_case){3, 2, .causal = causal, .cross = true, .dropout = 0.3, .n = 2,
                                                   .nq = {2, 3}, .nk = {4, 1}, .kv_heads = 1}));
    }
}

static void check_attention_groups(void) {
    for (int causal = 0; causal < 2; causal++) {
        CHECK(attention_kernels(
            (attention_case){6, 16, .causal = causal, .dropout = 0.2, .n = 4, .nq = {17, -3, 0, 70}, .kv_heads = 2}));
        CHECK(attention_kernels((attention_case){4, 5, .causal = causal, .n = 2, .nq = {300, 65}, .kv_heads = 1}));
        CHECK(attention_kernels((attention_case){4, 8, .causal = causal, .cross = true, .n = 3, .nq = {70, 3, 1},
                                                 .nk = {300, 0, 25}, .kv_heads = 2}));
    }
}

TEST(attention_with_grouped_keys_cpu_is_ref) { each_isa(check_attention_groups); }

TEST(attention_cpu_is_ref_when_decoding) {
    CHECK(attention_kernels((attention_case){8, 64, .cross = true, .n = 3, .nq = {1, 1, 1}, .nk = {300, 1, 25}}));
    CHECK(attention_kernels((attention_case){16, 4, .causal = true, .cross = true, .n = 1, .nq = {1}, .nk = {99}}));
}

TEST(attention_beside_a_cache_takes_only_the_queries_of_a_packed_row) {
    attention_setup x;
    attention_set_up(&x, &(attention_case){4, 8, .causal = true, .cross = true, .n = 2, .nq = {1, 3}, .nk = {20, 9}});
    x.o.input[ATTENTION_Q].shape.dim[1] *= 3;
    x.o.input[ATTENTION_Q].no_grad = x.o.input[ATTENTION_KV].no_grad = true;
    CHECK(opcheck_kernels(&x.o, &nn_cpu_attention));
}

TEST(attention_of_nothing_is_nothing) {
    CHECK(attention_kernels((attention_case){2, 4, .n = 0}));
    CHECK(attention_kernels((attention_case){2, 4, .n = 2, .nq = {0, 0}}));
    CHECK(attention_kernels((attention_case){2, 4, .n = 1, .nq = {-7}}));
    CHECK(attention_kernels((attention_case){2, 4, .cross = true, .n = 2, .nq = {3, 0}, .nk = {0, 4}}));
}

/* Equal scores make weights 1 / n, so outputs are means of what is seen; rows in no range, and queries without keys,
 * have 0. */
static void check_attention_means(const nn_kernels *kernels) {
    enum { ROWS = 7, HEADS = 2, SIZE = 3, D = HEADS * SIZE };
    int32_t q_ranges[2][2] = {{0, 4}, {5, 7}}, k_ranges[2][2] = {{0, 2}, {2, 6}};
    float q[ROWS * D] = {0}, kv[6 * 2 * D], y[ROWS * D], saved[2 * ROWS * HEADS], *workspace = malloc(1 << 20);
    for (int i = 0; i < 6 * 2 * D; i++) kv[i] = (float)(i / (2 * D));
    memset(y, 0xff, sizeof y);
    const nn_attention_attributes a = {.heads = HEADS, .causal = true, .dropout = 0.5};
    const nn_call c = {.attributes = &a,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = q, .rows = ROWS, .cols = D, .type = NN_F32},
                                 {.data = kv, .rows = 6, .cols = 2 * D, .type = NN_F32},
                                 {.data = q_ranges, .rows = 2, .cols = 2, .type = NN_I32},
                                 {.data = k_ranges, .rows = 2, .cols = 2, .type = NN_I32}},
                       .output = {{.data = y, .rows = ROWS, .cols = D, .type = NN_F32}},
                       .saved = saved,
                       .workspace = workspace};
    CHECK(kernels->workspace(&c) <= (1 << 20) / sizeof(float));
    kernels->forward(&c);
    static const float means[ROWS] = {0, 0, 0, 0.5f, 0, 3, 3.5f};
    for (int i = 0; i < ROWS * D; i++) CHECK_CLOSE(y[i], means[i / D], 1e-6);
    free(workspace);
}

TEST(attention_to_equal_keys_is_the_mean_of_what_is_seen) {
    check_attention_means(&nn_op_attention.ref);
    check_attention_means(&nn_cpu_attention);
}

TEST(attention_says_what_is_wrong_with_shapes) {
    attention_setup x;
    attention_set_up(&x, &(attention_case){2, 4, .n = 1, .nq = {3}});
    CHECK(!opcheck_shape(&x.o));
    x.o.attributes.attention.heads = 3;
    CHECK_HAS(opcheck_shape(&x.o), "8 columns do not divide into 3 heads");
    x.o.attributes.attention.heads = 2;
    x.o.attributes.attention.kv_heads = 3;
    CHECK_HAS(opcheck_shape(&x.o), "3 heads of keys and values do not divide 2 heads");
    x.o.attributes.attention.kv_heads = 1;
    x.o.input[0].shape.dim[1] = 25;
    CHECK_HAS(opcheck_shape(&x.o), "25 columns, not 4 equal parts");
    x.o.attributes.attention.kv_heads = 0;
    CHECK_HAS(opcheck_shape(&x.o), "25 columns, not 3 equal parts");
    x.o.input[1] = (opcheck_input)OPCHECK_ROWS(3, 4, 16);
    CHECK_HAS(opcheck_shape(&x.o), "kv has 16 columns, q wants 50");
    x.o.input[0].shape.dim[1] = 8;
    CHECK(!opcheck_shape(&x.o));
    x.o.attributes.attention.dropout = 1;
    CHECK_HAS(opcheck_shape(&x.o), "dropout");
    x.o.attributes.attention.dropout = 0;
    x.o.input[3].shape.dim[1] = 3;
    CHECK_HAS(opcheck_shape(&x.o), "ranges must be [sequences, 2]");
}

/* ---- cross entropy ---- */

TEST(cross_entropy_ref_has_the_gradients_of_differences) {
    int32_t targets[16];
    for (int s = 0; s < 2; s++) {
        opcheck o = cross_entropy_case(6, 7, 0.1 * s, targets);
        CHECK(opcheck_gradients(&o));
        o = cross_entropy_case(3, 2, 0.3 * s, targets);
        CHECK(opcheck_gradients(&o));
    }
}

static void check_cross_entropy(void) {
    static const int64_t rows[] = {0, 1, 3, 50, 17, 33, 20, 2}, classes[] = {5, 1, 2, 30, 31, 129, 1000, 40000};
    int32_t targets[64];
    for (int i = 0; i < 8; i++) {
        opcheck o = cross_entropy_case(rows[i], classes[i], i % 2 ? 0.1 : 0, targets);
        CHECK(opcheck_kernels(&o, &nn_cpu_cross_entropy));
        o.input[0].scale = 20; /* confident */
        CHECK(opcheck_kernels(&o, &nn_cpu_cross_entropy));
    }
}

TEST(cross_entropy_cpu_is_ref) { each_isa(check_cross_entropy); }

static void check_cross_entropy_sums(const nn_kernels *kernels, int32_t target, float largest, const double *want) {
    float x[4] = {1, largest, 1, largest}, y[4], saved[1], workspace[64];
    const nn_cross_entropy_attributes a = {.smoothing = 0.2};
    const nn_call c = {.attributes = &a,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = x, .rows = 1, .cols = 4, .type = NN_F32},
                                 {.data = &target, .rows = 1, .cols = 1, .type = NN_I32}},
                       .output = {{.data = y, .rows = 1, .cols = 4, .type = NN_F32}},
                       .saved = saved,
                       .workspace = workspace};
    kernels->forward(&c);
    for (int k = 0; k < 4; k++) CHECK(isnan(want[k]) ? isnan(y[k]) : fabs(y[k] - want[k]) <= 1e-6);
}

TEST(cross_entropy_sums_are_what_the_header_says) {
    const nn_kernels *both[2] = {&nn_op_cross_entropy.ref, &nn_cpu_cross_entropy};
    const double lse = log(2 * exp(1) + 2 * exp(3));
    for (int k = 0; k < 2; k++) {
        const double loss = 0.8 * (lse - 3) + 0.2 * (lse - 2);
        check_cross_entropy_sums(both[k], 1, 3, (double[]){loss, lse - 3, 1, 1});
        check_cross_entropy_sums(both[k], 3, 3, (double[]){loss, lse - 3, 0, 1}); /* the second of the largest */
        check_cross_entropy_sums(both[k], 0, 3, (double[]){0.8 * (lse - 1) + 0.2 * (lse - 2), lse - 1, 0, 1});
        check_cross_entropy_sums(both[k], -1, 3, (double[]){0, 0, 0, 0});
        check_cross_entropy_sums(both[k], 0, NAN, (double[]){NAN, NAN, 1, 1}); /* NaN must not go unnoticed */
    }
}

TEST(cross_entropy_says_what_is_wrong_with_shapes) {
    int32_t targets[8];
    opcheck o = cross_entropy_case(3, 4, 1, targets);
    CHECK_HAS(opcheck_shape(&o), "smoothing");
    o.attributes.cross_entropy.smoothing = 0;
    o.input[1].shape.rows = 2;
    CHECK_HAS(opcheck_shape(&o), "another symbol");
    o.input[1].shape.ndim = 2;
    CHECK_HAS(opcheck_shape(&o), "targets must be a vector");
}

/* ---- log softmax ---- */

static void check_log_softmax(void) {
    static const int64_t rows[] = {0, 1, 20, 3}, cols[] = {5, 1, 37, 40000};
    for (int i = 0; i < 4; i++) {
        opcheck o = {.op = &nn_op_log_softmax, .n_inputs = 1, .input = {OPCHECK_ROWS(1, rows[i], cols[i])}, .seed = 3};
        CHECK(opcheck_kernels(&o, &nn_cpu_log_softmax));
        o.input[0].scale = 30;
        CHECK(opcheck_kernels(&o, &nn_cpu_log_softmax));
    }
}

TEST(log_softmax_cpu_is_ref) { each_isa(check_log_softmax); }

/* ---- embedding ---- */

TEST(embedding_ref_has_the_gradients_of_differences) {
    int32_t ids[8], positions[8];
    opcheck o = embedding_case(8, 5, 3, ids, positions, 10);
    CHECK(opcheck_gradients(&o));
    o = embedding_case(5, 2, 4, ids, NULL, 0);
    CHECK(opcheck_gradients(&o));
}

TEST(embedding_cpu_is_ref) {
    enum { MOST = 300 };
    static const int64_t rows[] = {0, 1, 7, MOST, 64, 33, 40}, n[] = {3, 1, 2500, 40, 5, 9, 3};
    static const int64_t d[] = {8, 1, 6, 128, 2, 3, 300};
    int32_t ids[MOST], positions[MOST];
    for (int i = 0; i < 7; i++) {
        opcheck o = embedding_case(rows[i], n[i], d[i], ids, NULL, 0);
        CHECK(opcheck_kernels(&o, &nn_cpu_embedding));
        o = embedding_case(rows[i], n[i], d[i], ids, positions, 100);
        CHECK(opcheck_kernels(&o, &nn_cpu_embedding));
        o = embedding_case(rows[i], n[i], d[i], ids, positions, 5000); /* further than a table of sinusoids goes */
        CHECK(opcheck_kernels(&o, &nn_cpu_embedding));
    }
}

TEST(positions_are_laid_out_sin_then_cos) {
    enum { D = 6 };
    int32_t id = 0, position = 5;
    float table[D] = {0}, y[D], workspace[1024 * D + 64];
    const nn_embedding_attributes a = {.scale = 1};
    const nn_call c = {.attributes = &a,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = &id, .rows = 1, .cols = 1, .type = NN_I32},
                                 {.data = &position, .rows = 1, .cols = 1, .type = NN_I32},
                                 {.data = table, .rows = 1, .cols = D, .type = NN_F32}},
                       .output = {{.data = y, .rows = 1, .cols = D, .type = NN_F32}},
                       .workspace = workspace};
    const nn_kernels *both[2] = {&nn_op_embedding.ref, &nn_cpu_embedding};
    for (int k = 0; k < 2; k++) {
        both[k]->forward(&c);
        for (int j = 0; j < D / 2; j++) {
            CHECK_CLOSE(y[j], sin(5 / pow(100, j)), 1e-7);
            CHECK_CLOSE(y[D / 2 + j], cos(5 / pow(100, j)), 1e-7);
        }
    }
}

/* ---- best ---- */

TEST(best_cpu_is_ref) {
    static const int64_t rows[] = {0, 1, 9, 33}, cols[] = {7, 1, 300, 1027};
    static const int n[] = {3, 1, 21, 11};
    for (int i = 0; i < 4; i++) {
        opcheck o = {.op = &nn_op_best,
                     .attributes = {.best = {.n = n[i]}},
                     .n_inputs = 1,
                     .input = {OPCHECK_ROWS(1, rows[i], cols[i])},
                     .seed = 3 + (uint64_t)i,
                     .longest_sum = (double)cols[i]};
        CHECK(opcheck_kernels(&o, &nn_cpu_best));
    }
}

TEST(best_are_in_order_and_equals_by_their_columns) {
    const float x[6] = {1, 3, 2, 3, 0, 2};
    float y[8];
    const nn_best_attributes a = {.n = 4};
    const nn_call c = {.attributes = &a,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = (void *)(uintptr_t)x, .rows = 1, .cols = 6, .type = NN_F32}},
                       .output = {{.data = y, .rows = 1, .cols = 8, .type = NN_F32}}};
    const nn_kernels *both[2] = {&nn_op_best.ref, &nn_cpu_best};
    const double sum = log(2 * exp(3) + 2 * exp(2) + exp(1) + 1);
    for (int k = 0; k < 2; k++) {
        static const float columns[4] = {1, 3, 2, 5};
        both[k]->forward(&c);
        for (int i = 0; i < 4; i++) CHECK(y[4 + i] == columns[i]);
        for (int i = 0; i < 4; i++) CHECK_CLOSE(y[i], (double)x[(int)columns[i]] - sum, 1e-6);
    }
}

/* ---- path_attention ---- */

/* Paths that cross: row r goes through rows of other hypotheses. Every fifth row has no hypothesis. */
static void make_paths(int64_t rows, int length, int32_t *paths, int32_t *positions) {
    for (int64_t r = 0; r < rows; r++) {
        positions[r] = (int32_t)(r * 7 % length);
        for (int t = 0; t < length; t++) paths[r * length + t] = (int32_t)((r + t * 3) % rows * length + t);
        paths[r * length + positions[r]] = r % 5 == 4 ? -1 : (int32_t)(r * length + positions[r]);
    }
    /* A row that is written in this step is read by its own hypothesis alone. */
    for (int64_t r = 0; r < rows; r++) {
        for (int t = 0; t < positions[r]; t++) {
            int32_t *at = &paths[r * length + t];
            if (positions[*at / length] == t) *at = (int32_t)(r * length + t);
        }
    }
}

TEST(path_attention_cpu_is_ref) {
    enum { ROWS = 23, LENGTH = 40 };
    static int32_t paths[ROWS * LENGTH], positions[ROWS];
    static const int sizes[][3] = {
        {16, 4, 4}, {6, 1, 1}, {96, 2, 2}, {48, 6, 2}, {20, 4, 1}}; /* columns, heads, of keys */
    for (int i = 0; i < 5; i++) {
        const int64_t d = sizes[i][0], d_k = d / sizes[i][1] * sizes[i][2];
        make_paths(ROWS, LENGTH, paths, positions);
        opcheck o = {.op = &nn_op_path_attention,
                     .attributes = {.path_attention = {.heads = sizes[i][1], .kv_heads = sizes[i][2]}},
                     .n_inputs = 4,
                     .input = {OPCHECK_ROWS(1, ROWS, d + 2 * d_k), OPCHECK_ROWS(2, ROWS * LENGTH, 2 * d_k),
                               OPCHECK_INDEX(1, ROWS, LENGTH, paths), OPCHECK_INDEX(1, ROWS, 0, positions)},
                     .seed = 11,
                     .longest_sum = LENGTH + (double)d};
        CHECK(opcheck_kernels(&o, &nn_cpu_path_attention));
    }
}

/* With equal scores the result is the mean of the values on the path, which ends with the row's own. */
TEST(path_attention_reads_along_the_path) {
    enum { D = 2, LENGTH = 3 };
    float q[2 * 3 * D] = {0, 0, 5, 5, 30, 60}, y[2 * D], workspace[64];
    float cache[4 * 2 * D] = {0, 0, 1, 2, 0, 0, 100, 100, 0, 0, 10, 20};
    const int32_t paths[2 * LENGTH] = {2, 0, 3, -1, 0, 0}, positions[2] = {2, 0};
    const nn_path_attention_attributes a = {.heads = 1, .kv_heads = 1};
    const nn_call c = {.attributes = &a,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = q, .rows = 2, .cols = 3 * D, .type = NN_F32},
                                 {.data = cache, .rows = 4, .cols = 2 * D, .type = NN_F32},
                                 {.data = (void *)(uintptr_t)paths, .rows = 2, .cols = LENGTH, .type = NN_I32},
                                 {.data = (void *)(uintptr_t)positions, .rows = 2, .cols = 1, .type = NN_I32}},
                       .output = {{.data = y, .rows = 2, .cols = D, .type = NN_F32},
                                  {.data = cache, .rows = 4, .cols = 2 * D, .type = NN_F32}},
                       .workspace = workspace};
    const nn_kernels *both[2] = {&nn_op_path_attention.ref, &nn_cpu_path_attention};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2 * D; i++) cache[3 * 2 * D + i] = -1;
        both[k]->forward(&c);
        CHECK_CLOSE(y[0], (10 + 1 + 30) / 3.0, 1e-5);
        CHECK_CLOSE(y[1], (20 + 2 + 60) / 3.0, 1e-5);
        CHECK(y[2] == 0 && y[3] == 0);
        CHECK(memcmp(cache + 3 * 2 * D, q + D, 2 * D * sizeof *q) == 0);
    }
}

RUN_TESTS(ENTRY(exp_is_off_by_less_than_1e_7_and_keeps_nan), ENTRY(dots_of_rows_are_each_dot),
          ENTRY(transposes_have_columns_as_rows_and_zeros_behind),
          ENTRY(instruction_sets_with_fused_products_agree_bit_for_bit),
          ENTRY(attention_ref_has_the_gradients_of_differences), ENTRY(attention_cpu_is_ref_for_all_sizes_of_heads),
          ENTRY(attention_cpu_is_ref_for_random_lengths), ENTRY(attention_cpu_is_ref_for_long_sequences),
          ENTRY(attention_with_grouped_keys_has_the_gradients_of_differences),
          ENTRY(attention_with_grouped_keys_cpu_is_ref), ENTRY(attention_cpu_is_ref_when_decoding),
          ENTRY(attention_beside_a_cache_takes_only_the_queries_of_a_packed_row),
          ENTRY(attention_of_nothing_is_nothing), ENTRY(attention_to_equal_keys_is_the_mean_of_what_is_seen),
          ENTRY(attention_says_what_is_wrong_with_shapes), ENTRY(cross_entropy_ref_has_the_gradients_of_differences),
          ENTRY(cross_entropy_cpu_is_ref), ENTRY(cross_entropy_sums_are_what_the_header_says),
          ENTRY(cross_entropy_says_what_is_wrong_with_shapes), ENTRY(log_softmax_cpu_is_ref),
          ENTRY(embedding_ref_has_the_gradients_of_differences), ENTRY(embedding_cpu_is_ref),
          ENTRY(positions_are_laid_out_sin_then_cos), ENTRY(best_cpu_is_ref),
          ENTRY(best_are_in_order_and_equals_by_their_columns), ENTRY(path_attention_cpu_is_ref),
          ENTRY(path_attention_reads_along_the_path))
