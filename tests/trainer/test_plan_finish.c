/* Linear layers that do the forward work of the gelu or the residual addition behind them (nn/fuse.c), and gradients of
 * residual additions that lie in the place of their output's (nn/layout.c): a GPT trains with both as without, on a device
 * whose kernels are the reference's. */
#include "check.h"
#include "fake_device.h"
#include "small_gpt.h"
#include "nn/plan.h"

#include <math.h>
#include <string.h>

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

static small_gpt run(bool finishes, gpt_recompute recompute, double dropout) {
    gpt_settings settings = small_gpt_settings();
    settings.model.recompute = recompute;
    settings.model.dropout = dropout;
    small_gpt s = small_gpt_make(settings, 11);
    finish = finishes;
    gelus = additions = 0;
    CHECK_INT(fake_device_take(s.params, &device, NN_FULL), ADAMOD_OK);
    small_gpt_step(&s);
    return s;
}

/* Without the gaps between parameters. */
static double square_of_gradients(const nn_params *p) {
    double sum = 0;
    for (int k = 0; k < p->n; k++) {
        for (int64_t i = 0; i < p->list[k].count; i++) sum += pow((double)p->grad[p->list[k].offset + i], 2);
    }
    return sum;
}

static void check_same(const small_gpt *a, const small_gpt *b) {
    const double size = square_of_gradients(b->params);
    CHECK(isfinite(a->loss) && a->loss == b->loss);
    CHECK(isfinite(size) && size > 0);
    CHECK_INT(memcmp(a->params->grad, b->params->grad, (size_t)a->params->count * sizeof(float)), 0);
}

/* ---- forward ---- */

TEST(a_layer_may_finish_what_reads_it) {
    small_gpt alone = run(false, GPT_KEEP, 0);
    CHECK_INT(gelus + additions, 0);
    small_gpt together = run(true, GPT_KEEP, 0);
    CHECK_INT(gelus, SMALL_GPT_LAYERS);
    CHECK_INT(additions, 2 * SMALL_GPT_LAYERS);
    check_same(&together, &alone);
    small_gpt_free(&alone);
    small_gpt_free(&together);
}

/* What backward computes again has the bits of its own kernel, so forward has, too. */
TEST(what_is_computed_again_is_not_finished) {
    small_gpt alone = run(false, GPT_RECOMPUTE_CHEAP, 0), together = run(true, GPT_RECOMPUTE_CHEAP, 0);
    CHECK_INT(gelus, 0);
    CHECK_INT(additions, 2 * SMALL_GPT_LAYERS);
    check_same(&together, &alone);
    small_gpt_free(&together);
    together = run(true, GPT_RECOMPUTE_BLOCKS, 0);
    CHECK_INT(gelus, 0);
    check_same(&together, &alone);
    small_gpt_free(&alone);
    small_gpt_free(&together);
}

/* ---- backward ---- */

static bool is_addition(const nn_node *node) { return strcmp(node->op->name, "add") == 0; }

/* Gradients of inputs of the residual additions that lie where the output's lies. */
static int passed_in(const small_gpt *r) {
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
    small_gpt r = run(false, GPT_KEEP, 0);
    CHECK_INT(passed_in(&r), 2 * 2 * SMALL_GPT_LAYERS + 1);
    small_gpt_free(&r);
    r = run(false, GPT_KEEP, 0.1);
    CHECK_INT(passed_in(&r), 1); /* words and positions, without dropout */
    small_gpt_free(&r);
}

/* Where all gradients lie apart. */
static small_gpt run_on_host(gpt_recompute recompute) {
    gpt_settings settings = small_gpt_settings();
    settings.model.recompute = recompute;
    small_gpt s = small_gpt_make(settings, 11);
    for (int i = 0; i < s.graph->n_nodes; i++) s.graph->nodes[i].passes = 0;
    small_gpt_step(&s);
    return s;
}

TEST(a_gpt_has_the_gradients_of_the_host) {
    for (int recompute = GPT_KEEP; recompute <= GPT_RECOMPUTE_BLOCKS; recompute++) {
        small_gpt host = run_on_host((gpt_recompute)recompute), there = run(true, (gpt_recompute)recompute, 0);
        CHECK_INT(passed_in(&host), 0);
        CHECK_CLOSE(there.loss, host.loss, 1e-5);
        for (int k = 0; k < host.params->n; k++) {
            const nn_param *p = &host.params->list[k];
            for (int64_t i = p->offset; i < p->offset + p->count; i++)
                CHECK_CLOSE(there.params->grad[i], host.params->grad[i], 1e-5);
        }
        small_gpt_free(&there);
        small_gpt_free(&host);
    }
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
    CHECK_INT(nn_params_allocate(params, 1), ADAMOD_OK);
    nn_plan *plan = NULL;
    const nn_plan_options o = {.loss = loss, .training = true, .backend = "cpu"};
    if (!CHECK_INT(nn_plan_create(&plan, g, &o), ADAMOD_OK)) return;
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
          ENTRY(gradients_of_additions_are_not_copied), ENTRY(a_gpt_has_the_gradients_of_the_host),
          ENTRY(a_value_added_to_itself_has_twice_the_gradient))
