/* The Transformer as a whole: its size, its gradient, the same numbers from every backend and any number of threads, and
 * decoding with kept keys and values against the training graph.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "optim/internal.h"
#include "small_transformer.h"

#include <math.h>
#include <stdlib.h>

TEST(sizes_follow_from_the_architecture) {
    /* Transformer-base with one table of 37,000 tokens, and -small with three tables of 10,000. */
    transformer_config base = {.encoder_layers = 6,
                               .decoder_layers = 6,
                               .d = 512,
                               .ffn = 2048,
                               .heads = 8,
                               .share_all = true,
                               .src_vocab = 37000,
                               .tgt_vocab = 37000};
    transformer_config small = {.encoder_layers = 6,
                                .decoder_layers = 6,
                                .d = 512,
                                .ffn = 1024,
                                .heads = 4,
                                .src_vocab = 10000,
                                .tgt_vocab = 10000};
    transformer_config tied = small, pre = small;
    tied.tie_output = true;
    pre.pre_norm = true;
    const transformer_config *all[] = {&base, &small, &tied, &pre};
    /* 6 (12 d^2 ..) by hand: 44,138,496 without embeddings in base, 31,543,296 in small */
    const int64_t expected[] = {44138496 + 37000 * 512, 31543296 + 3 * 10000 * 512, 31543296 + 2 * 10000 * 512,
                                31543296 + 3 * 10000 * 512 + 4 * 512};
    for (int i = 0; i < 4; i++) {
        nn_params *params = nn_params_create();
        nn_graph *g = nn_graph_create(params);
        transformer_symbols symbols;
        CHECK(transformer_training(g, all[i], &(transformer_sizes){SMALL_SRC, SMALL_TGT, SMALL_SENTENCES}, &symbols) >=
              0);
        CHECK_INT(nn_params_total(params), expected[i]);
        nn_graph_free(g);
        nn_params_free(params);
    }
}

/* Along a random direction, against central differences of the loss. The corners of ReLU make the difference wrong by an
 * amount proportional to h (0.007 seen at 1e-3); the loss, a sum of about 130 stored in 24 bits, by 1.5e-5 / 2h = 0.008. */
static void check_gradient(transformer_config c, bool training) {
    small_transformer s = small_make(&c, "ref", 1, training);
    small_feed(&s);
    nn_plan_forward(s.plan);
    nn_plan_backward(s.plan, false);
    const int64_t n = s.params->count;
    float *keep = malloc((size_t)n * sizeof *keep);
    memcpy(keep, s.params->data, (size_t)n * sizeof *keep);
    for (int trial = 0; trial < 4; trial++) {
        double slope = 0, loss[2];
        const double h = 1e-3;
        for (int64_t i = 0; i < n; i++) {
            const double u = nn_normal(100 + (uint64_t)trial, (uint64_t)i) / sqrt((double)n);
            slope += u * (double)s.params->grad[i];
        }
        for (int side = 0; side < 2; side++) {
            for (int64_t i = 0; i < n; i++) {
                const double u = nn_normal(100 + (uint64_t)trial, (uint64_t)i) / sqrt((double)n);
                s.params->data[i] = (float)((double)keep[i] + (side ? h : -h) * u);
            }
            nn_plan_forward(s.plan);
            loss[side] = (double)((float *)nn_plan_data(s.plan, "loss"))[0];
        }
        CHECK_CLOSE((loss[1] - loss[0]) / (2 * h), slope, 0.02);
    }
    memcpy(s.params->data, keep, (size_t)n * sizeof *keep);
    free(keep);
    small_free(&s);
}

TEST(gradient_is_the_slope_of_the_loss) {
    transformer_config c = small_config();
    check_gradient(c, false);
    c.dropout = c.attention_dropout = 0.2;
    check_gradient(c, true);
    c.pre_norm = true;
    c.tie_output = true;
    check_gradient(c, true);
    c.src_vocab = c.tgt_vocab;
    c.share_all = true;
    check_gradient(c, false);
}

TEST(cpu_agrees_with_ref) {
    transformer_config c = small_config();
    c.dropout = c.attention_dropout = 0.1;
    small_transformer ref = small_make(&c, "ref", 1, true), cpu = small_make(&c, "cpu", 2, true);
    small_feed(&ref);
    small_feed(&cpu);
    nn_plan_forward(ref.plan);
    nn_plan_forward(cpu.plan);
    nn_plan_backward(ref.plan, false);
    nn_plan_backward(cpu.plan, false);
    const float *x = nn_plan_data(ref.plan, "loss"), *y = nn_plan_data(cpu.plan, "loss");
    for (int k = 0; k < 4; k++) CHECK_CLOSE(x[k], y[k], 1e-5 * fabs((double)x[k]) + 1e-5);
    double distance = 0, size = 0;
    for (int64_t i = 0; i < ref.params->count; i++) {
        const double d = (double)ref.params->grad[i] - (double)cpu.params->grad[i];
        distance += d * d;
        size += (double)ref.params->grad[i] * (double)ref.params->grad[i];
    }
    CHECK(size > 1);
    CHECK_CLOSE(sqrt(distance / size), 0, 1e-5);
    small_free(&ref);
    small_free(&cpu);
}

TEST(threads_do_not_change_a_bit) {
    transformer_config c = small_config();
    c.dropout = c.attention_dropout = 0.1;
    small_transformer one = small_make(&c, "cpu", 1, true);
    small_feed(&one);
    nn_plan_forward(one.plan);
    nn_plan_backward(one.plan, false);
    for (int threads = 2; threads <= 5; threads++) {
        small_transformer many = small_make(&c, "cpu", threads, true);
        small_feed(&many);
        nn_plan_forward(many.plan);
        nn_plan_backward(many.plan, false);
        CHECK(memcmp(nn_plan_data(one.plan, "loss"), nn_plan_data(many.plan, "loss"), 16) == 0);
        CHECK(memcmp(one.params->grad, many.params->grad, (size_t)one.params->count * sizeof(float)) == 0);
        small_free(&many);
    }
    small_free(&one);
}

TEST(gradients_add_up_over_batches) {
    transformer_config c = small_config();
    small_transformer s = small_make(&c, "cpu", 2, false);
    small_feed(&s);
    nn_plan_forward(s.plan);
    nn_plan_backward(s.plan, false);
    float *once = malloc((size_t)s.params->count * sizeof *once);
    memcpy(once, s.params->grad, (size_t)s.params->count * sizeof *once);
    nn_plan_forward(s.plan);
    nn_plan_backward(s.plan, true);
    double worst = 0, most = 0;
    for (int64_t i = 0; i < s.params->count; i++) {
        worst = fmax(worst, fabs(2 * (double)once[i] - (double)s.params->grad[i]));
        most = fmax(most, fabs((double)once[i]));
    }
    CHECK(most > 0.01);
    CHECK_CLOSE(worst, 0, 1e-5 * most);
    free(once);
    small_free(&s);
}

TEST(memory_is_shared_by_lifetime) {
    transformer_config c = small_config();
    small_transformer s = small_make(&c, "cpu", 1, true);
    const nn_memory m = nn_plan_memory(s.plan);
    CHECK(m.values > 0 && m.values < m.without_reuse * 3 / 4);
    CHECK_INT(m.params, 2 * (size_t)s.params->count * sizeof(float));
    small_free(&s);
}

TEST(decoding_agrees_with_the_training_graph) {
    transformer_config c = small_config();
    c.smoothing = 0;
    small_transformer s = small_make(&c, "cpu", 2, false);
    /* Larger weights than at the start, so that not everything is equally likely. */
    for (int64_t i = 0; i < s.params->count; i++) s.params->data[i] *= 1.7f;
    const int32_t src[] = {3, 5, 9, 1, 4, 4, 7, 2, 11, 1, 20, 1};
    const int32_t ranges[3][2] = {{0, 4}, {4, 10}, {10, 12}};
    for (int beam = 1; beam <= 5; beam += 2) {
        decoder *d = NULL;
        decode_result results[3], alone;
        const decode_options o = {.beam = beam,
                                  .max_length = 12,
                                  .length_penalty = 1,
                                  .sentences = 3,
                                  .src_tokens = 30,
                                  .start = 0,
                                  .end = 1,
                                  .backend = "cpu",
                                  .pool = s.pool};
        if (!CHECK_INT(decoder_create(&d, s.params, &c, &o), ADAMOD_OK)) break;
        CHECK_INT(decoder_run(d, 3, src, ranges, results), ADAMOD_OK);
        for (int i = 0; i < 3; i++) {
            const int length = results[i].length + (results[i].complete ? 1 : 0);
            CHECK(length >= 1 && length <= 12);
            CHECK_CLOSE(results[i].score * length, small_score(&s, src, ranges[i], &results[i]), 1e-4 * length);
        }
        /* As many results as hypotheses, all different, the best first, each with the score of its own tokens. */
        for (int i = 0; i < 3; i++) {
            decode_result r, before = results[i];
            CHECK(!decoder_result(d, i, beam, &r));
            for (int k = 0; k < beam; k++) {
                if (!CHECK(decoder_result(d, i, k, &r))) break;
                const int length = r.length + (r.complete ? 1 : 0);
                CHECK_CLOSE(r.score * length, small_score(&s, src, ranges[i], &r), 1e-4 * length);
                CHECK(k == 0 ? r.tokens == before.tokens : before.complete > r.complete || before.score >= r.score);
                CHECK(k == 0 || r.length != before.length ||
                      memcmp(r.tokens, before.tokens, (size_t)r.length * sizeof *r.tokens) != 0);
                before = r;
            }
        }
        /* A sentence's translation does not depend on its company. */
        int32_t tokens[12];
        const int length = results[1].length;
        memcpy(tokens, results[1].tokens, (size_t)length * sizeof *tokens);
        const int32_t own[1][2] = {{0, 6}};
        CHECK_INT(decoder_run(d, 1, src + 4, own, &alone), ADAMOD_OK);
        if (CHECK_INT(alone.length, length)) CHECK(memcmp(alone.tokens, tokens, (size_t)length * sizeof *tokens) == 0);
        CHECK_INT(decoder_run(d, 4, src, ranges, results), ADAMOD_ERROR_RANGE);
        decoder_free(d);
    }
    small_free(&s);
}

TEST(mistakes_are_told) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    transformer_config c = small_config();
    transformer_symbols symbols;
    nn_plan *plan = NULL;
    c.heads = 5; /* does not divide 16 */
    CHECK(transformer_training(g, &c, &(transformer_sizes){SMALL_SRC, SMALL_TGT, SMALL_SENTENCES}, &symbols) < 0);
    CHECK_INT(nn_params_allocate(params, 1), ADAMOD_OK);
    CHECK_INT(nn_plan_create(&plan, g, &(nn_plan_options){.loss = -1}), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "encoder.0.attention: 16 columns do not divide into 5 heads");
    nn_graph_free(g);
    /* Through an op that has no gradient there is none. */
    nn_params *others = nn_params_create();
    g = nn_graph_create(others);
    const int rows = nn_symbol(g, "rows", 4);
    const nn_value w = nn_parameter(g, "w", 2, (int64_t[]){5, 3}, (nn_init){NN_XAVIER, 0});
    const nn_value x = nn_linear(g, nn_input(g, "x", NN_F32, rows, 3), w, -1, NN_LINEAR);
    const nn_value loss = nn_cross_entropy(g, nn_log_softmax(g, x), nn_input(g, "targets", NN_I32, rows, 0), 0);
    CHECK(loss >= 0);
    CHECK_INT(nn_params_allocate(others, 1), ADAMOD_OK);
    CHECK_INT(nn_plan_create(&plan, g, &(nn_plan_options){.loss = loss}), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "log_softmax has no gradient");
    nn_graph_free(g);
    nn_params_free(others);
    nn_params_free(params);
}

/* A graph's words on one op, given values of types that may be wrong. */
typedef struct some_values {
    nn_value x, ids, ranges, table;
} some_values;

static void check_types(nn_value (*build)(nn_graph *g, const some_values *v), const char *expected) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    nn_plan *plan = NULL;
    const int rows = nn_symbol(g, "rows", 4);
    const some_values v = {nn_input(g, "x", NN_F32, rows, 6), nn_input(g, "ids", NN_I32, rows, 0),
                           nn_input(g, "ranges", NN_I32, rows, 2),
                           nn_parameter(g, "table", 2, (int64_t[]){6, 6}, (nn_init){NN_NORMAL, 1})};
    nn_output(g, "y", build(g, &v));
    const adamod_status status = nn_plan_create(&plan, g, &(nn_plan_options){.loss = -1});
    CHECK_INT(status, ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), expected);
    nn_plan_free(plan);
    nn_graph_free(g);
    nn_params_free(params);
}

static nn_value embeds_activations(nn_graph *g, const some_values *v) {
    return nn_embedding(g, nn_input(g, "f", NN_F32, 1, 0), -1, v->table, 1);
}
static nn_value embeds_at_activations(nn_graph *g, const some_values *v) {
    return nn_embedding(g, v->ids, nn_input(g, "f", NN_F32, 1, 0), v->table, 1);
}
static nn_value embeds_from_ids(nn_graph *g, const some_values *v) { return nn_embedding(g, v->ids, -1, v->ranges, 1); }
static nn_value multiplies_ids(nn_graph *g, const some_values *v) {
    return nn_linear(g, nn_input(g, "i", NN_I32, 1, 6), v->table, -1, NN_LINEAR);
}
static nn_value drops_ids(nn_graph *g, const some_values *v) { return nn_dropout(g, v->ids, 0.5); }
static nn_value adds_ids(nn_graph *g, const some_values *v) { return nn_add(g, v->ranges, v->ranges, 0); }
static nn_value attends_by_activations(nn_graph *g, const some_values *v) {
    return nn_attention(g, v->x, -1, v->ranges, nn_input(g, "f", NN_F32, 1, 2), 2, false, 0);
}
static nn_value expects_activations(nn_graph *g, const some_values *v) {
    return nn_cross_entropy(g, v->x, nn_input(g, "f", NN_F32, 1, 0), 0);
}
static nn_value follows_activations(nn_graph *g, const some_values *v) {
    return nn_path_attention(g, v->x, v->x, v->ranges, nn_input(g, "f", NN_F32, 1, 0), 1, 1);
}

TEST(ops_refuse_values_of_the_wrong_type) {
    check_types(embeds_activations, "embedding: ids is f32, expected i32");
    check_types(embeds_at_activations, "embedding: positions is f32, expected i32");
    check_types(embeds_from_ids, "embedding: table is i32, expected f32");
    check_types(multiplies_ids, "linear: x is i32, expected f32");
    check_types(drops_ids, "dropout: x is i32, expected f32");
    check_types(adds_ids, "add: x is i32, expected f32");
    check_types(attends_by_activations, "attention: k_ranges is f32, expected i32");
    check_types(expects_activations, "cross_entropy: targets is f32, expected i32");
    check_types(follows_activations, "path_attention: positions is f32, expected i32");
}

RUN_TESTS(ENTRY(sizes_follow_from_the_architecture), ENTRY(gradient_is_the_slope_of_the_loss),
          ENTRY(cpu_agrees_with_ref), ENTRY(threads_do_not_change_a_bit), ENTRY(gradients_add_up_over_batches),
          ENTRY(memory_is_shared_by_lifetime), ENTRY(decoding_agrees_with_the_training_graph), ENTRY(mistakes_are_told),
          ENTRY(ops_refuse_values_of_the_wrong_type))
