/* Linear layers that do the forward work of the gelu or the residual addition behind them (nn/fuse.c), and gradients of
 * residual additions that lie in the place of their output's (nn/layout.c): a GPT trains with both as without, on a device
 * whose kernels are the reference's. */
#include "check.h"
#include "fake_device.h"
#include "models/gpt.h"
#include "nn/plan.h"
#include "core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 11, LENGTH = 6, WINDOWS = 2, TOKENS = WINDOWS * LENGTH, LAYERS = 3 };

static bool finish;
static int gelus, additions;

/* ---- the device ---- */

static bool linear_finishes(const nn_call *c, const char *reader_op, const nn_call *reader) {
    (void)c, (void)reader;
    return finish && (strcmp(reader_op, "gelu") == 0 || strcmp(reader_op, "add") == 0);
}

/* An addition's branch is not kept. */
static void linear_forward(const nn_call *c) {
    const nn_call *reader = c->fused->reader;
    nn_op_linear.ref.forward(c);
    if (!reader) return;
    const bool addition = reader->input[1].data != NULL;
    (addition ? nn_op_add : nn_op_gelu).ref.forward(reader);
    for (int64_t i = 0; addition && i < c->output[0].rows * c->output[0].cols; i++)
        ((float *)c->output[0].data)[i] = NAN;
    *(addition ? &additions : &gelus) += 1;
}

static size_t linear_workspace(const nn_call *c) { return nn_op_linear.ref.workspace(c); }
static void linear_backward(const nn_call *c) { nn_op_linear.ref.backward(c); }

static const nn_kernels linear_kernels = {.forward = linear_forward,
                                          .backward = linear_backward,
                                          .workspace = linear_workspace,
                                          .fusion = {.finishes = linear_finishes}};

static const nn_backend_op ops[] = {{"linear", &linear_kernels},
                                    {"embedding", &nn_op_embedding.ref},
                                    {"add", &nn_op_add.ref},
                                    {"add_norm", &nn_op_add_norm.ref},
                                    {"attention", &nn_op_attention.ref},
                                    {"dropout", &nn_op_dropout.ref},
                                    {"gelu", &nn_op_gelu.ref},
                                    {"linear_cross_entropy", &nn_op_linear_cross_entropy.ref},
                                    {NULL, NULL}};
static const nn_backend device = {.name = "test", .ops = ops, .device = &fake_device_functions};

/* ---- a step ---- */

typedef struct step_result {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
    float loss;
} step_result;

static void check_ok(adamod_status status) {
    if (!status) return;
    printf("test_plan_finish: %s\n", adamod_last_error());
    exit(1);
}

static void fill(nn_plan *plan, const gpt_symbols *s) {
    int32_t *ids = nn_plan_data(plan, "ids"), *positions = nn_plan_data(plan, "positions"),
            *targets = nn_plan_data(plan, "targets"), *ranges = nn_plan_data(plan, "ranges");
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i * 7 % WORDS;
        positions[i] = i % LENGTH;
        targets[i] = (i + 1) * 7 % WORDS;
    }
    for (int w = 0; w < WINDOWS; w++) ranges[2 * w] = w * LENGTH, ranges[2 * w + 1] = (w + 1) * LENGTH;
    check_ok(nn_plan_set_rows(plan, s->tokens, TOKENS));
    check_ok(nn_plan_set_rows(plan, s->windows, WINDOWS));
}

static step_result run(bool finishes, gpt_recompute recompute, double dropout) {
    gpt_settings settings;
    memset(&settings, 0, sizeof settings);
    key_defaults(&gpt_keys, &settings);
    settings.model.layers = LAYERS, settings.model.d = 8, settings.model.heads = 2;
    settings.model.recompute = recompute, settings.model.dropout = dropout;
    const gpt_config c = gpt_configure(&settings, WORDS, LENGTH);
    step_result r = {.params = nn_params_create()};
    gpt_symbols symbols;
    r.graph = nn_graph_create(r.params);
    const nn_plan_options o = {.loss = gpt_training(r.graph, &c, TOKENS, WINDOWS, &symbols), .training = true};
    check_ok(nn_params_allocate(r.params, 3));
    finish = finishes;
    gelus = additions = 0;
    check_ok(fake_device_take(r.params, &device, NN_FULL));
    check_ok(nn_plan_create(&r.plan, r.graph, &o));
    fill(r.plan, &symbols);
    nn_plan_forward(r.plan);
    nn_plan_backward(r.plan, false);
    check_ok(nn_plan_wait(r.plan));
    r.loss = *(const float *)nn_plan_data(r.plan, "loss");
    check_ok(nn_params_fetch(r.params));
    return r;
}

static void release(step_result *r) {
    nn_plan_free(r->plan);
    nn_graph_free(r->graph);
    nn_params_free(r->params);
}

static void check_same(const step_result *a, const step_result *b) {
    CHECK(isfinite(a->loss) && a->loss == b->loss);
    CHECK_INT(memcmp(a->params->grad, b->params->grad, (size_t)a->params->count * sizeof(float)), 0);
}

/* ---- forward ---- */

TEST(a_layer_may_finish_what_reads_it) {
    step_result alone = run(false, GPT_KEEP, 0);
    CHECK_INT(gelus + additions, 0);
    step_result together = run(true, GPT_KEEP, 0);
    CHECK_INT(gelus, LAYERS);
    CHECK_INT(additions, 2 * LAYERS);
    check_same(&together, &alone);
    release(&alone);
    release(&together);
}

/* What backward computes again has the bits of its own kernel, so forward has, too. */
TEST(what_is_computed_again_is_not_finished) {
    step_result alone = run(false, GPT_RECOMPUTE_CHEAP, 0), together = run(true, GPT_RECOMPUTE_CHEAP, 0);
    CHECK_INT(gelus, 0);
    CHECK_INT(additions, 2 * LAYERS);
    check_same(&together, &alone);
    release(&together);
    together = run(true, GPT_RECOMPUTE_BLOCKS, 0);
    CHECK_INT(gelus, 0);
    check_same(&together, &alone);
    release(&alone);
    release(&together);
}

/* ---- backward ---- */

static bool is_addition(const nn_node *node) { return strcmp(node->op->name, "add") == 0; }

/* Gradients of inputs of the residual additions that lie where the output's lies. */
static int passed_in(const step_result *r) {
    int passed = 0;
    for (int i = 0; i < r->graph->n_nodes; i++) {
        const nn_node *node = &r->graph->nodes[i];
        for (int k = 0; is_addition(node) && k < node->n_inputs; k++)
            passed += nn_plan_grad_address(r->plan, node->input[k]) == nn_plan_grad_address(r->plan, node->output[0]);
    }
    return passed;
}

/* The sum of words and positions is an addition, too: embeddings keep the gradients of their outputs, but do not say so. */
TEST(gradients_of_additions_are_not_copied) {
    step_result r = run(false, GPT_KEEP, 0);
    CHECK_INT(passed_in(&r), 2 * 2 * LAYERS + 1);
    release(&r);
    r = run(false, GPT_KEEP, 0.1);
    CHECK_INT(passed_in(&r), 1); /* words and positions, without dropout */
    release(&r);
}

/* A value added to itself has twice the output's gradient. */
TEST(a_value_added_to_itself_has_twice_the_gradient) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    const int rows = nn_symbol(g, "rows", 2);
    const nn_value w = nn_parameter(g, "w", 2, (int64_t[]){3, 3}, (nn_init){NN_UNIFORM, 1});
    const nn_value x = nn_linear(g, nn_input(g, "x", NN_F32, rows, 3), w, -1, NN_LINEAR);
    const nn_value targets = nn_input(g, "targets", NN_I32, rows, 0);
    const nn_value twice = nn_add(g, x, x, 0), loss = nn_cross_entropy(g, twice, targets, 0);
    nn_output(g, "loss", loss);
    check_ok(nn_params_allocate(params, 1));
    nn_plan *plan = NULL;
    const nn_plan_options o = {.loss = loss, .training = true, .backend = "cpu"};
    check_ok(nn_plan_create(&plan, g, &o));
    float *in = nn_plan_data(plan, "x");
    for (int i = 0; i < 6; i++) in[i] = 0.5f * (float)i - 1;
    nn_plan_forward(plan);
    nn_plan_backward(plan, false);
    /* the numbers of W, one at a time: a step of h either way */
    const double h = 1e-2;
    for (int i = 0; i < 9; i++) {
        const float was = params->data[i], slope = params->grad[i];
        double at[2];
        for (int k = 0; k < 2; k++) {
            params->data[i] = was + (float)(k ? h : -h);
            nn_plan_forward(plan);
            at[k] = (double)*(const float *)nn_plan_data(plan, "loss");
        }
        params->data[i] = was;
        CHECK_CLOSE(slope, (at[1] - at[0]) / (2 * h), 2e-3);
    }
    nn_plan_free(plan);
    nn_graph_free(g);
    nn_params_free(params);
}

RUN_TESTS(ENTRY(a_layer_may_finish_what_reads_it), ENTRY(what_is_computed_again_is_not_finished),
          ENTRY(gradients_of_additions_are_not_copied), ENTRY(a_value_added_to_itself_has_twice_the_gradient))
