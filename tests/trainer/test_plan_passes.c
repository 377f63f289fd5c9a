/* Gradients that lie in the place of an addition's output's (nn/layout.c): any graph has the gradients that it has where
 * all of them have memory of their own, on the host and on a device whose layers do the work of ops behind them, write
 * over gradients and leave those of weights for later, as a GPU's do. */
#include "check.h"
#include "fake_device.h"
#include "values.h"
#include "nn/ops/attributes.h"
#include "nn/plan.h"
#include "core/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 4, COLS = 5, MOST_VALUES = 24 };

/* ---- a device that does what kernels of GPUs do, by the reference's ---- */

static int finished, pairs, handed_on;

static bool is_addition(const nn_call *reader) { return reader->input[1].cols > 0; }

static bool linear_finishes(const nn_call *c, const char *reader_op, const nn_call *reader) {
    if (NN_ATTR(linear, c)->activation != NN_LINEAR) return false;
    return strcmp(reader_op, "gelu") == 0 || (strcmp(reader_op, "add") == 0 && nn_dropout_of(reader->attributes) == 0);
}

/* An addition's branch is not kept. */
static void linear_forward(const nn_call *c) {
    const nn_call *reader = c->fused->reader;
    nn_op_linear.ref.forward(c);
    if (!reader) return;
    (is_addition(reader) ? nn_op_add : nn_op_gelu).ref.forward(reader);
    finished++;
    for (int64_t i = 0; is_addition(reader) && i < c->output[0].rows * c->output[0].cols; i++)
        ((float *)c->output[0].data)[i] = NAN;
}

static size_t linear_workspace(const nn_call *c) { return nn_op_linear.ref.workspace(c); }

/* The gradient of some inputs, from that of z. */
static void gradient_of(const nn_call *c, const nn_gradients *from, unsigned inputs) {
    const nn_linear_attributes plain = {.activation = NN_LINEAR};
    nn_gradients grad = *from;
    nn_call part = *c;
    for (int k = 0; k < NN_MAX_INPUTS; k++) grad.input[k] = inputs >> k & 1 ? grad.input[k] : NULL;
    part.attributes = &plain;
    part.grad = &grad;
    nn_op_linear.ref.backward(&part);
}

/* The gradient of y becomes that of z, where it lies. */
static void linear_backward(const nn_call *c) {
    const float *y = c->output[0].data;
    float *dz = c->grad->output[0];
    const bool relu = NN_ATTR(linear, c)->activation == NN_RELU;
    for (int64_t i = 0; relu && i < c->output[0].rows * c->output[0].cols; i++) dz[i] = y[i] > 0 ? dz[i] : 0;
    gradient_of(c, c->grad, 1u << 0);
}

/* Two at once, the other one's with it. */
static void linear_backward_weights(const nn_call *c) {
    const nn_call *other = c->grad->paired_with;
    if (other) {
        nn_gradients grad = *other->grad;
        memcpy(grad.accumulate, c->grad->accumulate, sizeof grad.accumulate);
        gradient_of(other, &grad, 1u << 1 | 1u << 2);
        pairs++;
    }
    gradient_of(c, c->grad, 1u << 1 | 1u << 2);
}

/* The gradient of a bias in x on the way. */
static void gelu_backward(const nn_call *c) {
    const int64_t cols = c->output[0].cols;
    float *sums = c->grad->row_sums[0];
    nn_op_gelu.ref.backward(c);
    for (int64_t j = 0; sums && j < cols; j++) {
        double sum = c->grad->accumulate_sums ? sums[j] : 0;
        for (int64_t i = 0; i < c->output[0].rows; i++) sum += c->grad->input[0][i * cols + j];
        sums[j] = (float)sum;
        handed_on++;
    }
}

static void gelu_forward(const nn_call *c) { nn_op_gelu.ref.forward(c); }

static const nn_kernels linear_kernels = {.forward = linear_forward,
                                          .backward = linear_backward,
                                          .backward_weights = linear_backward_weights,
                                          .workspace = linear_workspace,
                                          .pairs = true,
                                          .fusion = {.finishes = linear_finishes}},
                        gelu_kernels = {.forward = gelu_forward, .backward = gelu_backward, .row_sums = 1u << 0};

static const nn_backend_op ops[] = {{"linear", &linear_kernels},
                                    {"add", &nn_op_add.ref},
                                    {"add_norm", &nn_op_add_norm.ref},
                                    {"dropout", &nn_op_dropout.ref},
                                    {"gelu", &gelu_kernels},
                                    {"cross_entropy", &nn_op_cross_entropy.ref},
                                    {NULL, NULL}};
static const nn_backend device = {.name = "test", .ops = ops, .device = &fake_device_functions};

/* ---- graphs ---- */

/* What becomes of the values so far; the last one's rows are the logits. */
typedef void build(nn_graph *g, nn_value x, nn_value *all, int *n);

static nn_value vector(nn_graph *g, int number) {
    char name[16];
    snprintf(name, sizeof name, "v%d", number);
    return nn_parameter(g, name, 1, (int64_t[]){COLS}, (nn_init){NN_UNIFORM, 1});
}

static nn_value layer(nn_graph *g, nn_value x, nn_activation activation, int number) {
    char name[16];
    snprintf(name, sizeof name, "w%d", number);
    const nn_value w = nn_parameter(g, name, 2, (int64_t[]){COLS, COLS}, (nn_init){NN_UNIFORM, 1});
    return nn_linear(g, x, w, number % 2 ? vector(g, number) : -1, activation);
}

static int below(int n) { return (int)(rng() % (uint64_t)n); }

/* One of the last few, most often. */
static nn_value any(const nn_value *all, int n) { return all[below(4) ? n - 1 - below(n < 4 ? n : 4) : below(n)]; }

static nn_value any_op(nn_graph *g, const nn_value *all, int n) {
    static const nn_activation activations[] = {NN_LINEAR, NN_LINEAR, NN_LINEAR, NN_RELU};
    const nn_value a = any(all, n), b = any(all, n);
    switch (below(9)) {
        case 0:
        case 1:
        case 2: return layer(g, a, activations[below(4)], n);
        case 3: return nn_gelu(g, a);
        case 4: return nn_add_norm(g, a, -1, 0, vector(g, n), vector(g, n + MOST_VALUES), 1e-5);
        case 5: return nn_add(g, a, b, 0.2);
        default: return nn_add(g, a, b, 0);
    }
}

/* What nothing reads is added up at the end, more often than not. */
static void build_any(nn_graph *g, nn_value x, nn_value *all, int *n) {
    const int most = 4 + below(MOST_VALUES - 4);
    all[0] = below(2) ? layer(g, x, NN_LINEAR, 0) : x;
    for (*n = 1; *n < most; ++*n) {
        nn_recompute(g, below(3) == 0);
        all[*n] = any_op(g, all, *n);
        nn_recompute(g, false);
        if (below(10) == 0) nn_output(g, "seen", all[*n]);
    }
    for (int i = 0; below(4) && i + 1 < most; i++) all[most - 1] = nn_add(g, all[most - 1], all[i], 0);
}

/* ---- a step ---- */

typedef struct step {
    float loss, *grad;
    int64_t numbers;
    int passed; /* gradients in the place of an addition's */
} step;

static void check_ok(adamod_status status) {
    if (!status) return;
    printf("test_plan_passes: %s\n", adamod_last_error());
    exit(1);
}

static void forget_passes(nn_graph *g) {
    for (int i = 0; i < g->n_nodes; i++) g->nodes[i].passes = 0;
}

static int count_passed(const nn_graph *g, const nn_plan *plan) {
    int passed = 0;
    for (int v = 0; v < g->n_values; v++) {
        const piece *in = plan->grad[v].in;
        passed += in && in != &plan->data[v] && in != &plan->remade[v];
    }
    return passed;
}

/* Twice, the second time adding to the first one's gradients, with fewer rows. What has no value yet is NaN. */
static void run(nn_plan *plan, int rows) {
    float *in = nn_plan_data(plan, "x");
    int32_t *targets = nn_plan_data(plan, "targets");
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < CAPACITY * COLS; i++) in[i] = (float)noise((uint64_t)(i + 100 * k));
        for (int i = 0; i < CAPACITY; i++) targets[i] = i % COLS;
        check_ok(nn_plan_set_rows(plan, rows, CAPACITY - k));
        nn_plan_set_random(plan, 5, (uint64_t)k);
        nn_plan_forward(plan);
        nn_plan_backward(plan, k > 0);
        check_ok(nn_plan_wait(plan));
    }
}

static step make(build *b, uint64_t seed, bool passes, bool on_device) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    const int rows = nn_symbol(g, "rows", CAPACITY);
    const nn_value x = nn_input(g, "x", NN_F32, rows, COLS), targets = nn_input(g, "targets", NN_I32, rows, 0);
    nn_value all[MOST_VALUES];
    int n;
    nn_pad(g, targets, -1);
    rng_state = seed;
    b(g, x, all, &n);
    nn_recompute(g, seed % 2);
    const nn_value logits = layer(g, all[n - 1], NN_LINEAR, 99);
    nn_recompute(g, false);
    const nn_plan_options o = {.loss = nn_cross_entropy(g, logits, targets, 0), .training = true, .backend = "cpu"};
    nn_output(g, "loss", o.loss);
    check_ok(nn_params_allocate(params, 1));
    if (on_device) check_ok(fake_device_take(params, &device, NN_FULL));
    if (!passes) forget_passes(g);
    nn_plan *plan = NULL;
    check_ok(nn_plan_create(&plan, g, &o));
    memset(plan->block, 0xff, plan->block_bytes);
    run(plan, rows);
    if (on_device) check_ok(nn_params_fetch_grad(params));
    step s = {.loss = *(const float *)nn_plan_data(plan, "loss"), .numbers = params->count};
    s.passed = count_passed(g, plan);
    s.grad = malloc((size_t)s.numbers * sizeof(float));
    memcpy(s.grad, params->grad, (size_t)s.numbers * sizeof(float));
    nn_plan_free(plan);
    nn_graph_free(g);
    nn_params_free(params);
    return s;
}

/* Gradients where all lie apart, for comparison with the host's, and how many lie in others' places if they may. */
static step check_same(build *b, uint64_t seed, bool on_device) {
    const step together = make(b, seed, true, on_device);
    step apart = make(b, seed, false, on_device);
    const bool same = CHECK_INT(together.numbers, apart.numbers) && CHECK(isfinite(apart.loss)) &&
                      CHECK(together.loss == apart.loss) &&
                      CHECK_INT(memcmp(together.grad, apart.grad, (size_t)apart.numbers * sizeof(float)), 0);
    if (!same) printf("graph %llu%s\n", (unsigned long long)seed, on_device ? " on the device" : "");
    CHECK_INT(apart.passed, 0);
    free(together.grad);
    apart.passed = together.passed;
    return apart;
}

/* What nothing writes is 0 on the host, and NaN on the device. */
static void check_close_to_host(const step *there, const step *host) {
    double most = 0, difference = 0;
    for (int64_t i = 0; i < host->numbers; i++) {
        const double a = isnan(there->grad[i]) ? 0 : (double)there->grad[i], b = (double)host->grad[i];
        most = fmax(most, fabs(b));
        difference = fmax(difference, fabs(a - b));
    }
    CHECK(isfinite(most) && most > 0);
    CHECK(difference <= 1e-4 * most);
}

/* Returns how many gradients lie in others' places, on the host and on the device. */
static int check_both(build *b, uint64_t seed) {
    const step host = check_same(b, seed, false), there = check_same(b, seed, true);
    check_close_to_host(&there, &host);
    free(host.grad);
    free(there.grad);
    return host.passed + there.passed;
}

/* ---- tests ---- */

TEST(any_graph_has_the_same_gradients) {
    int passed = 0;
    finished = pairs = handed_on = 0;
    for (uint64_t seed = 1; seed <= 600 && !check_failures; seed++) passed += check_both(build_any, seed);
    CHECK(passed > 100 && finished > 100 && pairs > 100 && handed_on > 100);
}

/* The branch is read by a gelu, too, whose gradient is added to the branch's: x's gradient cannot lie there.
 * So each addition hands its place on once. */
static void build_branch_read_twice(nn_graph *g, nn_value x, nn_value *all, int *n) {
    const nn_value residual = layer(g, x, NN_LINEAR, 0), branch = layer(g, x, NN_LINEAR, 1), more = nn_gelu(g, branch);
    all[0] = nn_add(g, nn_add(g, residual, branch, 0), more, 0);
    *n = 1;
}

TEST(a_branch_that_is_read_twice_keeps_its_gradient_to_itself) {
    CHECK_INT(check_both(build_branch_read_twice, 1), 2 * 2);
}

RUN_TESTS(ENTRY(any_graph_has_the_same_gradients), ENTRY(a_branch_that_is_read_twice_keeps_its_gradient_to_itself))
