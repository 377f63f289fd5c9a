/* The ops of decoder-only models: gelu, swiglu, rms_norm, query_key, linear_cross_entropy. Attention with grouped keys is in
 * test_ops_sequence.c. */
#include "nn/backend/cpu/cpu.h"
#include "check.h"
#include "decoder_cases.h"
#include "nn/ops/linear_cross_entropy.h"
#include "nn/ops/query_key.h"
#include "values.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 512 };
static int32_t numbers[MOST_ROWS];

static bool is_ref(opcheck o, const nn_kernels *kernels) { return opcheck_kernels(&o, kernels); }
static bool has_gradients(opcheck o) { return opcheck_gradients(&o); }

/* The ref kernels' and the cpu's of one op. */
typedef struct both {
    const nn_kernels *kernels[2];
} both;

/* ---- gelu, swiglu, rms_norm ---- */

static const int64_t sizes[][2] = {{0, 5}, {1, 1}, {2, 7}, {3, 63}, {17, 65}, {33, 4}, {64, 48}, {70, 512}, {2, 17000}};
enum { SIZES = sizeof sizes / sizeof *sizes };

TEST(elementwise_refs_have_the_gradients_of_differences) {
    CHECK(has_gradients(gelu_case(5, 9)));
    CHECK(has_gradients(swiglu_case(5, 9)));
    CHECK(has_gradients(rms_norm_case(4, 5)));
    CHECK(has_gradients(rms_norm_case(3, 2)));
}

TEST(elementwise_kernels_are_ref) {
    for (int s = 0; s < SIZES; s++) {
        CHECK(is_ref(gelu_case(sizes[s][0], sizes[s][1]), &nn_cpu_gelu));
        CHECK(is_ref(swiglu_case(sizes[s][0], sizes[s][1]), &nn_cpu_swiglu));
        CHECK(is_ref(rms_norm_case(sizes[s][0], sizes[s][1]), &nn_cpu_rms_norm));
    }
}

/* One row through kernels that need no workspace. */
static void forward_row(const nn_kernels *k, float *x, int64_t cols, float *y, int64_t out_cols) {
    const nn_call c = {OPCHECK_NO_PARTS, .input = {{.data = x, .rows = 1, .cols = cols, .type = NN_F32}},
                       .output = {{.data = y, .rows = 1, .cols = out_cols, .type = NN_F32}}};
    k->forward(&c);
}

/* The argument of the exponential is off by its rounding, so that the result is off by the argument times that. */
static double rounding(double argument) { return 3e-7 + 1.2e-7 * fabs(argument); }

/* Numbers from PyTorch 2.15.0 in float64: torch.nn.functional.gelu(x, approximate="tanh") and silu(x). */
TEST(gelu_and_silu_are_those_of_pytorch) {
    static const double at[] = {-12, -5, -3.5, -2, -1, -0.5, -0.015625, 0, 0.015625, 0.75, 1.5, 3, 8},
                        gelu[] = {-0,
                                  -2.29179619726239e-07,
                                  -0.00061619765537374,
                                  -0.0454023059122249,
                                  -0.158808009391723,
                                  -0.154285990174856,
                                  -0.00771510596492662,
                                  0,
                                  0.00790989403507338,
                                  0.57996055516562,
                                  1.39957157698023,
                                  2.99636260791823,
                                  8},
                        silu[] = {-7.37300952265766e-05, -0.0334642546214243, -0.102592807629747,   -0.238405844044235,
                                  -0.268941421369995,    -0.188770334399073,  -0.00775146608548312, 0,
                                  0.00787353391451688,   0.509384024381545,   1.22636171429047,     2.8577223804673,
                                  7.99731719895627};
    enum { N = sizeof at / sizeof *at };
    const both g = {{&nn_op_gelu.ref, &nn_cpu_gelu}}, s = {{&nn_op_swiglu.ref, &nn_cpu_swiglu}};
    float x[2 * N], y[N];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) x[i] = (float)at[i], x[N + i] = 1;
        forward_row(g.kernels[k], x, N, y, N);
        for (int i = 0; i < N; i++) {
            const double argument = 1.6 * at[i] * (1 + 0.045 * at[i] * at[i]);
            CHECK_CLOSE(y[i], gelu[i], rounding(argument) * fabs(gelu[i]) + 1e-12);
        }
        forward_row(s.kernels[k], x, 2 * N, y, N);
        for (int i = 0; i < N; i++) CHECK_CLOSE(y[i], silu[i], rounding(at[i]) * fabs(silu[i]) + 1e-12);
    }
}

TEST(activations_keep_nan_and_infinity) {
    const both g = {{&nn_op_gelu.ref, &nn_cpu_gelu}}, s = {{&nn_op_swiglu.ref, &nn_cpu_swiglu}};
    float x[6] = {NAN, INFINITY, 1e30f, 1, 1, 1}, y[3];
    for (int k = 0; k < 2; k++) {
        forward_row(g.kernels[k], x, 3, y, 3);
        CHECK(isnan(y[0]) && isinf(y[1]) && y[2] == 1e30f);
        forward_row(s.kernels[k], x, 6, y, 3);
        CHECK(isnan(y[0]) && isinf(y[1]) && y[2] == 1e30f);
    }
}

/* ---- query_key ---- */

static bool query_key_is_ref(query_key_sizes s) { return is_ref(query_key_case(&s, numbers), &nn_cpu_query_key); }
static bool query_key_gradients(query_key_sizes s) { return has_gradients(query_key_case(&s, numbers)); }

TEST(query_key_ref_has_the_gradients_of_differences) {
    CHECK(query_key_gradients((query_key_sizes){3, 2, 1, 4, true, true, 100}));
    CHECK(query_key_gradients((query_key_sizes){3, 1, 1, 6, false, false, 10000}));
    CHECK(query_key_gradients((query_key_sizes){2, 2, 2, 3, true, false, 0}));
    CHECK(query_key_gradients((query_key_sizes){2, 2, 1, 2, false, true, 10}));
}

TEST(query_key_cpu_is_ref) {
    static const int head_sizes[] = {2, 6, 32, 34, 64, 128};
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 4; k++) {
            CHECK(query_key_is_ref((query_key_sizes){37, 6, 2, head_sizes[i], k & 1, k & 2, 10000}));
            CHECK(query_key_is_ref((query_key_sizes){5, 3, 3, head_sizes[i] - 1, k & 1, k & 2, 0}));
        }
    }
    CHECK(query_key_is_ref((query_key_sizes){0, 2, 2, 4, true, true, 10}));
    CHECK(query_key_is_ref((query_key_sizes){300, 12, 12, 64, true, true, 10000}));
}

/* transformers' apply_rotary_pos_emb of a head of 4 at position 3, base 100: angles 3 and 0.3. */
TEST(rotation_pairs_halves_as_hugging_face_does) {
    const both q = {{&nn_op_query_key.ref, &nn_cpu_query_key}};
    const nn_query_key_attributes a = {.heads = 1, .kv_heads = 1, .base = 100, .eps = 1e-5};
    float x[12] = {1, 2, 3, 4, 1, 0, 0, 1, 5, 6, 7, 8}, y[12], workspace[256];
    int32_t position = 3;
    const double want[12] = {cos(3) - 3 * sin(3),
                             2 * cos(0.3) - 4 * sin(0.3),
                             3 * cos(3) + sin(3),
                             4 * cos(0.3) + 2 * sin(0.3),
                             cos(3),
                             -sin(0.3),
                             sin(3),
                             cos(0.3),
                             5,
                             6,
                             7,
                             8};
    for (int k = 0; k < 2; k++) {
        const nn_call c = {.attributes = &a,
                           OPCHECK_NO_PARTS,
                           .input = {{.data = x, .rows = 1, .cols = 12, .type = NN_F32},
                                     {.data = &position, .rows = 1, .cols = 1, .type = NN_I32}},
                           .output = {{.data = y, .rows = 1, .cols = 12, .type = NN_F32}},
                           .workspace = workspace};
        CHECK(q.kernels[k]->workspace(&c) <= 256);
        q.kernels[k]->forward(&c);
        for (int i = 0; i < 12; i++) CHECK_CLOSE(y[i], want[i], 1e-6);
    }
}

TEST(query_key_says_what_is_wrong_with_shapes) {
    opcheck o = query_key_case(&(query_key_sizes){3, 4, 2, 6, true, true, 100}, numbers);
    CHECK(!opcheck_shape(&o));
    o.attributes.query_key.heads = 5;
    CHECK_HAS(opcheck_shape(&o), "48 columns do not divide into 5 heads of q, and 2 of each");
    o.attributes.query_key.heads = 12;
    CHECK_HAS(opcheck_shape(&o), "q_gain must be a vector of 3");
    o.input[QUERY_KEY_Q_GAIN] = o.input[QUERY_KEY_K_GAIN] = (opcheck_input)OPCHECK_NONE;
    CHECK_HAS(opcheck_shape(&o), "heads of 3 columns have no pairs to rotate");
    o.attributes.query_key.heads = 4;
    o.input[QUERY_KEY_POSITIONS].shape.dim[0] = 2;
    CHECK_HAS(opcheck_shape(&o), "positions for");
    o.input[QUERY_KEY_POSITIONS] = (opcheck_input)OPCHECK_NONE;
    CHECK_HAS(opcheck_shape(&o), "rotation wants positions");
    o.attributes.query_key.base = 0;
    CHECK(!opcheck_shape(&o));
}

/* ---- linear_cross_entropy ---- */

/* In training, forward computes the gradients; else backward does. */
static bool entropy_is_ref(int64_t rows, int64_t in, int64_t words, bool bias, double smoothing, double z) {
    opcheck o = linear_cross_entropy_case(rows, in, words, bias, smoothing, z, numbers);
    bool ok = true;
    for (int training = 0; training < 2; training++) {
        o.training = training;
        ok = opcheck_kernels(&o, &nn_cpu_linear_cross_entropy) && ok;
    }
    return ok;
}

TEST(linear_cross_entropy_ref_has_the_gradients_of_differences) {
    CHECK(has_gradients(linear_cross_entropy_case(4, 3, 5, true, 0, 0, numbers)));
    CHECK(has_gradients(linear_cross_entropy_case(3, 2, 7, false, 0.1, 0, numbers)));
    CHECK(has_gradients(linear_cross_entropy_case(4, 3, 6, true, 0.2, 0.05, numbers)));
    CHECK(has_gradients(linear_cross_entropy_case(3, 4, 2, false, 0, 0.1, numbers)));
}

TEST(linear_cross_entropy_cpu_is_ref) {
    CHECK(entropy_is_ref(0, 4, 9, true, 0.1, 0.01));
    CHECK(entropy_is_ref(1, 1, 1, false, 0, 0));
    CHECK(entropy_is_ref(7, 5, 33, true, 0, 0));
    CHECK(entropy_is_ref(50, 16, 130, false, 0.1, 0));
    CHECK(entropy_is_ref(33, 24, 257, true, 0.1, 1e-3));
    CHECK(fast() ? entropy_is_ref(70, 32, 300, false, 0, 1e-4) : entropy_is_ref(200, 64, 500, false, 0, 1e-4));
}

/* More words than logits of all rows fit the workspace for: two chunks of rows, of about equal size. */
TEST(linear_cross_entropy_cpu_is_ref_in_chunks) {
    if (THREAD_SANITIZED) SKIP("threads meet in every chunk as they do in one, and 34 million logits take long");
    CHECK(entropy_is_ref(66, 1, 520000, false, 0.1, 1e-4));
}

/* The sum of cross entropies that nn_cross_entropy gives for the same logits. */
TEST(linear_cross_entropy_is_linear_then_cross_entropy) {
    enum { ROWS = 6, IN = 3, WORDS = 5 };
    float x[ROWS * IN], w[WORDS * IN], b[WORDS], logits[ROWS * WORDS], y[4], want[4], saved[512], workspace[512];
    int32_t targets[ROWS] = {0, 4, -1, 2, 2, 1};
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)nn_normal(1, (uint64_t)i);
    for (int i = 0; i < WORDS * IN; i++) w[i] = (float)nn_normal(2, (uint64_t)i);
    for (int i = 0; i < WORDS; i++) b[i] = (float)nn_normal(3, (uint64_t)i);
    const nn_array ids = {.data = targets, .rows = ROWS, .cols = 1, .type = NN_I32};
    nn_call c = {.attributes = &(nn_linear_attributes){NN_LINEAR},
                 OPCHECK_NO_PARTS,
                 .input = {{.data = x, .rows = ROWS, .cols = IN},
                           {.data = w, .rows = WORDS, .cols = IN},
                           {.data = b, .rows = WORDS, .cols = 1},
                           ids},
                 .output = {{.data = logits, .rows = ROWS, .cols = WORDS}},
                 .saved = saved,
                 .workspace = workspace};
    nn_op_linear.ref.forward(&c);
    const nn_call entropy = {.attributes = &(nn_cross_entropy_attributes){.smoothing = 0.1},
                             OPCHECK_NO_PARTS,
                             .input = {{.data = logits, .rows = ROWS, .cols = WORDS}, ids},
                             .output = {{.data = want, .rows = 1, .cols = 4}},
                             .saved = saved,
                             .workspace = workspace};
    nn_op_cross_entropy.ref.forward(&entropy);
    c.attributes = &(nn_linear_cross_entropy_attributes){.smoothing = 0.1};
    c.output[0] = (nn_array){.data = y, .rows = 1, .cols = 4};
    const both e = {{&nn_op_linear_cross_entropy.ref, &nn_cpu_linear_cross_entropy}};
    for (int k = 0; k < 2; k++) {
        CHECK(e.kernels[k]->workspace(&c) <= 512);
        e.kernels[k]->forward(&c);
        for (int i = 0; i < 4; i++) CHECK_CLOSE(y[i], want[i], 1e-5);
    }
}

TEST(linear_cross_entropy_says_what_is_wrong_with_shapes) {
    opcheck o = linear_cross_entropy_case(3, 4, 6, true, 0, 0, numbers);
    CHECK(!opcheck_shape(&o));
    o.attributes.linear_cross_entropy.z = -1;
    CHECK_HAS(opcheck_shape(&o), "z must be 0 or more");
    o.attributes.linear_cross_entropy.z = 0;
    o.input[LCE_B].shape.dim[0] = 5;
    CHECK_HAS(opcheck_shape(&o), "b must be a vector of 6");
    o.input[LCE_W].shape.dim[1] = 5;
    CHECK_HAS(opcheck_shape(&o), "x has 4 columns, W wants 5");
}

/* ---- a model of them all ---- */

/* Two sequences. The plan lets gradients take the memory of values that only the ops above still read, and lets forward of
 * the last one save more than the op says. */
enum { TOKENS = 14, WORDS = 11, HEADS = 4, KV_HEADS = 2, SIZE = 4, D = HEADS * SIZE, WIDE = 20 };

static nn_value weight(nn_graph *g, const char *name, int64_t out, int64_t in) {
    return nn_parameter(g, name, 2, (int64_t[]){out, in}, (nn_init){NN_XAVIER, 0});
}

static nn_value gain(nn_graph *g, const char *name, int64_t n) {
    return nn_parameter(g, name, 1, &n, (nn_init){NN_UNIFORM, 1});
}

static nn_value decoder_block(nn_graph *g, nn_value x, nn_value positions, nn_value ranges) {
    const int64_t qkv_cols = (HEADS + 2 * KV_HEADS) * SIZE;
    nn_value y = nn_rms_norm(g, x, gain(g, "norm1", D), 1e-5);
    y = nn_linear(g, y, weight(g, "qkv", qkv_cols, D), -1, NN_LINEAR);
    y = nn_query_key(g, y, positions, gain(g, "q_gain", SIZE), gain(g, "k_gain", SIZE), HEADS, KV_HEADS, 100, 1e-5);
    y = nn_grouped_attention(g, y, ranges, HEADS, KV_HEADS, true, 0);
    x = nn_add(g, x, nn_linear(g, y, weight(g, "out", D, D), -1, NN_LINEAR), 0);
    y = nn_linear(g, nn_rms_norm(g, x, gain(g, "norm2", D), 1e-5), weight(g, "up", 2 * WIDE, D), -1, NN_LINEAR);
    y = nn_gelu(g, nn_linear(g, nn_swiglu(g, y), weight(g, "middle", WIDE, WIDE), -1, NN_LINEAR));
    return nn_add(g, x, nn_linear(g, y, weight(g, "down", D, WIDE), -1, NN_LINEAR), 0);
}

typedef struct decoder {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
} decoder;

static decoder decoder_make(const char *backend, bool training) {
    decoder m = {.params = nn_params_create()};
    nn_graph *g = m.graph = nn_graph_create(m.params);
    const int tokens = nn_symbol(g, "tokens", TOKENS + 3), sequences = nn_symbol(g, "sequences", 2);
    const nn_value ids = nn_input(g, "ids", NN_I32, tokens, 0), positions = nn_input(g, "positions", NN_I32, tokens, 0);
    const nn_value ranges = nn_input(g, "ranges", NN_I32, sequences, 2);
    const nn_value targets = nn_input(g, "targets", NN_I32, tokens, 0), table = weight(g, "table", WORDS, D);
    nn_value x = nn_embedding(g, ids, -1, table, 3);
    for (int i = 0; i < 2; i++) {
        nn_scope_push(g, "block%d", i);
        x = decoder_block(g, x, positions, ranges);
        nn_scope_pop(g);
    }
    const nn_value loss = nn_linear_cross_entropy(g, x, table, -1, targets, 0.1, 0.01);
    nn_output(g, "loss", loss);
    CHECK_INT(nn_params_allocate(m.params, 5), ADAMOD_OK);
    CHECK_INT(nn_plan_create(&m.plan, g, &(nn_plan_options){.backend = backend, .loss = loss, .training = training}),
              ADAMOD_OK);
    CHECK_INT(nn_plan_set_rows(m.plan, tokens, TOKENS), ADAMOD_OK);
    CHECK_INT(nn_plan_set_rows(m.plan, sequences, 2), ADAMOD_OK);
    for (int i = 0; i < TOKENS; i++) {
        ((int32_t *)nn_plan_data(m.plan, "ids"))[i] = (int32_t)nn_below(1, (uint64_t)i, WORDS);
        ((int32_t *)nn_plan_data(m.plan, "targets"))[i] = i == 3 ? -1 : (int32_t)nn_below(2, (uint64_t)i, WORDS);
        ((int32_t *)nn_plan_data(m.plan, "positions"))[i] = i < 9 ? i : i - 9;
    }
    memcpy(nn_plan_data(m.plan, "ranges"), (int32_t[]){0, 9, 9, TOKENS}, 4 * sizeof(int32_t));
    nn_plan_forward(m.plan);
    nn_plan_backward(m.plan, false);
    return m;
}

static void decoder_free(decoder *m) {
    nn_plan_free(m->plan);
    nn_graph_free(m->graph);
    nn_params_free(m->params);
}

/* The loss with a parameter moved by step along a direction. */
static double loss_at(decoder *m, const nn_param *p, const float *direction, double step) {
    float *x = m->params->data + p->offset;
    float before[2 * WIDE * D];
    memcpy(before, x, (size_t)p->count * sizeof *x);
    for (int64_t i = 0; i < p->count; i++) x[i] = (float)((double)x[i] + step * (double)direction[i]);
    nn_plan_forward(m->plan);
    memcpy(x, before, (size_t)p->count * sizeof *x);
    return (double)*(float *)nn_plan_data(m->plan, "loss");
}

/* Along its own direction, a gradient's derivative is its length. */
TEST(a_model_of_them_has_the_gradients_of_differences) {
    for (int k = 0; k < 4; k++) {
        decoder m = decoder_make(k % 2 ? "cpu" : "ref", k / 2);
        for (int n = 0; n < m.params->n; n++) {
            const nn_param *p = &m.params->list[n];
            const double h = 0.01;
            float direction[2 * WIDE * D];
            double squares = 0;
            for (int64_t i = 0; i < p->count; i++) squares += pow((double)m.params->grad[p->offset + i], 2);
            for (int64_t i = 0; i < p->count; i++)
                direction[i] = (float)((double)m.params->grad[p->offset + i] / sqrt(squares));
            const double near = loss_at(&m, p, direction, h) - loss_at(&m, p, direction, -h);
            const double far = loss_at(&m, p, direction, 2 * h) - loss_at(&m, p, direction, -2 * h);
            CHECK(squares > 1e-4);
            /* a loss of about 32 is off by 2^-19 or so */
            CHECK_CLOSE((8 * near - far) / (12 * h), sqrt(squares), 5e-4 + 1e-4 * sqrt(squares));
        }
        decoder_free(&m);
    }
}

RUN_TESTS(ENTRY(elementwise_refs_have_the_gradients_of_differences), ENTRY(elementwise_kernels_are_ref),
          ENTRY(gelu_and_silu_are_those_of_pytorch), ENTRY(activations_keep_nan_and_infinity),
          ENTRY(query_key_ref_has_the_gradients_of_differences), ENTRY(query_key_cpu_is_ref),
          ENTRY(rotation_pairs_halves_as_hugging_face_does), ENTRY(query_key_says_what_is_wrong_with_shapes),
          ENTRY(linear_cross_entropy_ref_has_the_gradients_of_differences), ENTRY(linear_cross_entropy_cpu_is_ref),
          ENTRY(linear_cross_entropy_cpu_is_ref_in_chunks), ENTRY(linear_cross_entropy_is_linear_then_cross_entropy),
          ENTRY(linear_cross_entropy_says_what_is_wrong_with_shapes),
          ENTRY(a_model_of_them_has_the_gradients_of_differences))
