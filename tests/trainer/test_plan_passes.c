/* Gradients that lie in the place of an addition's (nn/layout.c): any graph has the gradients that it has where all of them
 * have memory of their own, on the host and on a device whose layers do what reads them (nn/fuse.c). */
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

/* ---- a device whose kernels are the reference's ---- */

static bool is_addition(const nn_call *reader) { return reader->input[1].cols > 0; }

static bool linear_finishes(const nn_call *c, const char *reader_op, const nn_call *reader) {
    (void)reader;
    if (NN_ATTR(linear, c)->activation != NN_LINEAR) return false;
    return strcmp(reader_op, "gelu") == 0 || strcmp(reader_op, "add") == 0;
}

/* An addition's branch is not kept. */
static void linear_forward(const nn_call *c) {
    const nn_call *reader = c->fused->reader;
    nn_op_linear.ref.forward(c);
    if (!reader) return;
    (is_addition(reader) ? nn_op_add : nn_op_gelu).ref.forward(reader);
    for (int64_t i = 0; is_addition(reader) && i < c->output[0].rows * c->output[0].cols; i++)
        ((float *)c->output[0].data)[i] = NAN;
}

static size_t linear_workspace(const nn_call *c) { return nn_op_linear.ref.workspace(c); }
static void linear_backward(const nn_call *c) { nn_op_linear.ref.backward(c); }

static const nn_kernels linear_kernels = {.forward = linear_forward,
                                          .backward = linear_backward,
                                          .workspace = linear_workspace,
                                          .fusion = {.finishes = linear_finishes}};

static const nn_backend_op ops[] = {{"linear", &linear_kernels},
                                    {"add", &nn_op_add.ref},
                                    {"add_norm", &nn_op_add_norm.ref},
                                    {"dropout", &nn_op_dropout.ref},
                                    {"gelu", &nn_op_gelu.ref},
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
    const nn_plan_options o = {.loss = nn_cross_entropy(g, layer(g, all[n - 1], NN_LINEAR, 99), targets, 0),
                               .training = true,
                               .backend = "cpu"};
    nn_output(g, "loss", o.loss);
    check_ok(nn_params_allocate(params, 1));
    if (on_device) check_ok(fake_device_take(params, &device, NN_FULL));
    if (!passes) forget_passes(g);
    nn_plan *plan = NULL;
    check_ok(nn_plan_create(&plan, g, &o));
    memset(plan->block, 0xff, plan->block_bytes);
    run(plan, rows);
    if (on_device) check_ok(nn_params_fetch(params));
    step s = {.loss = *(const float *)nn_plan_data(plan, "loss"), .numbers = params->count};
    s.passed = count_passed(g, plan);
    s.grad = malloc((size_t)s.numbers * sizeof(float));
    memcpy(s.grad, params->grad, (size_t)s.numbers * sizeof(float));
    nn_plan_free(plan);
    nn_graph_free(g);
    nn_params_free(params);
    return s;
}

/* Returns how many gradients were passed on. */
static int check_same(build *b, uint64_t seed, bool on_device) {
    const step together = make(b, seed, true, on_device), apart = make(b, seed, false, on_device);
    const bool same = CHECK_INT(together.numbers, apart.numbers) && CHECK(isfinite(apart.loss)) &&
                      CHECK(together.loss == apart.loss) &&
                      CHECK_INT(memcmp(together.grad, apart.grad, (size_t)apart.numbers * sizeof(float)), 0);
    if (!same) printf("graph %llu%s\n", (unsigned long long)seed, on_device ? " on the device" : "");
    CHECK_INT(apart.passed, 0);
    free(together.grad);
    free(apart.grad);
    return together.passed;
}

/* ---- tests ---- */

TEST(any_graph_has_the_same_gradients) {
    int passed = 0;
    for (uint64_t seed = 1; seed <= (fast() ? 60 : 600) && !check_failures; seed++) {
        for (int on_device = 0; on_device < 2; on_device++) passed += check_same(build_any, seed, on_device);
    }
    CHECK(passed > 100);
}

/* The branch is read by a gelu, too, whose gradient is added to the branch's: x's gradient cannot lie there. */
static void build_branch_read_twice(nn_graph *g, nn_value x, nn_value *all, int *n) {
    const nn_value residual = layer(g, x, NN_LINEAR, 0), branch = layer(g, x, NN_LINEAR, 1), more = nn_gelu(g, branch);
    all[0] = nn_add(g, nn_add(g, residual, branch, 0), more, 0);
    *n = 1;
}

TEST(a_branch_that_is_read_twice_keeps_its_gradient_to_itself) {
    for (int on_device = 0; on_device < 2; on_device++) CHECK(check_same(build_branch_read_twice, 1, on_device) > 0);
}

RUN_TESTS(ENTRY(any_graph_has_the_same_gradients), ENTRY(a_branch_that_is_read_twice_keeps_its_gradient_to_itself))
