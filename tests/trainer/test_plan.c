/* Plans on a device: sums over rows, and the steps that compute them. The device is the host's memory, and its kernels
 * are the reference ones, which leave sums over rows to the plan as a device's may. */
#include "check.h"
#include "fake_device.h"
#include "nn/plan.h"
#include "nn/ops/attributes.h"
#include "sums_graph.h"

#include <stdlib.h>

/* Sums of the passes so far, and weight gradients done two at a time. */
static int at_once, handed_on, pairs;

/* ---- kernels ---- */

/* Inputs whose gradients are sums over rows: a bias, gamma and beta. */
static unsigned summed(const nn_op *op) {
    return op == &nn_op_linear ? 1u << 2 : op == &nn_op_add_norm ? 1u << 2 | 1u << 3 : 0;
}

static int64_t columns(const nn_call *c, const nn_op *op, int k) {
    if (c->grad->row_sums[k]) return c->input[k].cols;
    return c->grad->input[k] && (summed(op) & (1u << k)) ? c->input[k].rows : 0;
}

static size_t find_partials(const nn_call *c, const nn_op *op) {
    size_t n = 0;
    for (int k = 0; k < NN_MAX_INPUTS; k++) n += 2 * (size_t)columns(c, op, k);
    return n;
}

/* Two rows of parts, the second of zeros. */
static void leave(const nn_call *c, const float *parts, int64_t cols, float *to, bool add) {
    const nn_sum s = {parts, cols, 2, cols, to, add};
    if (c->grad->sums) c->grad->sums->list[c->grad->sums->count++] = s;
    else at_once++, fake_device_sum(&s);
}

static void sum_rows(const nn_array *shape, const float *x, float *parts) {
    for (int64_t j = 0; j < shape->cols; j++) {
        double all = 0;
        for (int64_t i = 0; i < shape->rows; i++) all += (double)x[i * shape->cols + j];
        parts[j] = (float)all;
    }
}

/* Only where the gradient of z is that of the output: backward_weights finds nothing else that backward knew. */
static bool waits(const nn_call *c) { return NN_ATTR(linear, c)->activation == NN_LINEAR; }

static void weight_gradient(const nn_call *c, bool add) {
    nn_call d = *c;
    nn_gradients grad = *c->grad;
    d.grad = &grad;
    grad.input[0] = grad.input[2] = NULL;
    grad.accumulate[1] = add;
    if (waits(c)) nn_op_linear.ref.backward(&d);
}

static void linear_backward_weights(const nn_call *c) {
    if (c->grad->paired_with) weight_gradient(c->grad->paired_with, c->grad->accumulate[1]);
    weight_gradient(c, c->grad->accumulate[1]);
    pairs += c->grad->paired_with != NULL;
}

static void run_backward(const nn_call *c, const nn_op *op) {
    nn_call d = *c;
    nn_gradients grad = *c->grad;
    d.grad = &grad;
    float *parts = c->grad->partials;
    if (op == &nn_op_linear && waits(c)) grad.input[1] = NULL;
    for (int k = 0; k < NN_MAX_INPUTS; k++) {
        const int64_t cols = columns(c, op, k);
        if (cols && !c->grad->row_sums[k]) grad.input[k] = parts, grad.accumulate[k] = false;
        if (cols) memset(parts + cols, 0, (size_t)cols * sizeof *parts);
        parts += 2 * cols;
    }
    op->ref.backward(&d);
    parts = c->grad->partials;
    for (int k = 0; k < NN_MAX_INPUTS; k++) {
        const int64_t cols = columns(c, op, k);
        if (c->grad->row_sums[k]) {
            CHECK(!c->grad->accumulate[k]);
            handed_on++;
            sum_rows(&c->input[k], c->grad->input[k], parts);
            leave(c, parts, cols, c->grad->row_sums[k], c->grad->accumulate_sums);
        } else if (cols) {
            leave(c, parts, cols, c->grad->input[k], c->grad->accumulate[k]);
        }
        parts += 2 * cols;
    }
}

/* A remark as of a kernel that is fast only for few rows. */
static bool linear_remark(const nn_call *c, char *out, size_t size) {
    if (c->output[0].rows < 40) return false;
    snprintf(out, size, "%lld rows are slow", (long long)c->output[0].rows);
    return true;
}

enum {
#define ID_OF(name) ID_##name,
    NN_OPS(ID_OF)
};

#define KERNELS(name)                                                                                                  \
    static void name##_forward(const nn_call *c) { nn_op_##name.ref.forward(c); }                                      \
    static void name##_backward(const nn_call *c) { run_backward(c, &nn_op_##name); }                                  \
    static size_t name##_workspace(const nn_call *c) {                                                                 \
        return nn_op_##name.ref.workspace ? nn_op_##name.ref.workspace(c) : 0;                                         \
    }                                                                                                                  \
    static size_t name##_partials(const nn_call *c) { return find_partials(c, &nn_op_##name); }                        \
    static const nn_kernels name##_kernels = {                                                                         \
        .forward = name##_forward,                                                                                     \
        .backward = name##_backward,                                                                                   \
        .backward_weights = ID_##name == ID_linear ? linear_backward_weights : NULL,                                   \
        .workspace = name##_workspace,                                                                                 \
        .partials = name##_partials,                                                                                   \
        .row_sums = ID_##name == ID_add_norm    ? 2u                                                                   \
                    : ID_##name == ID_attention ? 3u                                                                   \
                                                : 0,                                                                   \
        .pairs = ID_##name == ID_linear,                                                                               \
        .remark = ID_##name == ID_linear ? linear_remark : NULL,                                                       \
    };
NN_OPS(KERNELS)

static const nn_backend_op ops[] = {
#define ENTRY_OF(name) {#name, &name##_kernels},
    NN_OPS(ENTRY_OF){NULL, NULL},
};

static const nn_backend backend = {.name = "test", .ops = ops, .device = &fake_device_functions};

static adamod_status on_the_device(nn_params *p, void *context) {
    (void)context;
    return fake_device_take(p, &backend, NN_FULL);
}

/* ---- tests ---- */

TEST(gradients_are_those_of_the_host) {
    static const int64_t sizes[][2] = {{5, 20}, {37, 20}, {700, 64}};
    for (int i = 0; i < 3; i++) {
        nn_params *host = sums_gradient(sizes[i][0], sizes[i][1], NULL, NULL);
        nn_params *device = sums_gradient(sizes[i][0], sizes[i][1], on_the_device, NULL);
        if (CHECK(host && device)) CHECK(sums_agree(host, device, 1e-5));
        nn_params_free(host);
        nn_params_free(device);
    }
}

/* w6 and w7, w3 and w4: the others are of other shapes, or have a bias in common. */
TEST(weight_gradients_of_one_shape_are_done_two_at_a_time) {
    enum { PASSES = 3 };
    pairs = 0;
    nn_params_free(sums_gradient(50, 24, on_the_device, NULL));
    CHECK_INT(pairs, 2 * PASSES);
}

/* Two layers have one bias, and two norms one gamma and beta: these are summed at once, as is b2, which one of these norms
 * sums for its layer. */
TEST(sums_wait_for_the_end_unless_two_add_to_one) {
    enum { PASSES = 3 };
    at_once = fake_device_sums = handed_on = 0;
    nn_params_free(sums_gradient(50, 20, on_the_device, NULL));
    CHECK_INT(handed_on, 5 * PASSES);                   /* b2, b5, b6, b7, b8 */
    CHECK_INT(at_once, (2 + 5) * PASSES);               /* b twice; gamma and beta of two norms, and b2 with them */
    CHECK_INT(fake_device_sums, (4 + 10 + 3) * PASSES); /* b5 to b8; five norms' own; b3, b4, b_out */
}

/* ---- places ---- */

/* If nothing reads a value after the step that writes its gradient, they share memory; an output is read. */
TEST(the_gradient_of_logits_lies_upon_them) {
    for (int output = 0; output < 2; output++) {
        nn_params *params = nn_params_create();
        nn_graph *g = nn_graph_create(params);
        const int rows = nn_symbol(g, "rows", 6);
        const nn_value x = nn_input(g, "x", NN_F32, rows, 4), targets = nn_input(g, "targets", NN_I32, rows, 0);
        const nn_value w = nn_parameter(g, "w", 2, (int64_t[]){5, 4}, (nn_init){NN_UNIFORM, 1});
        const nn_value logits = nn_linear(g, x, w, -1, NN_LINEAR), loss = nn_cross_entropy(g, logits, targets, 0.1);
        if (output) nn_output(g, "logits", logits);
        nn_plan *plan = NULL;
        CHECK_INT(nn_params_allocate(params, 1), ADAMOD_OK);
        CHECK_INT(nn_plan_create(&plan, g, &(nn_plan_options){.loss = loss}), ADAMOD_OK);
        if (plan) CHECK(((void *)nn_plan_grad_address(plan, logits) == nn_plan_address(plan, logits)) == !output);
        nn_plan_free(plan);
        nn_graph_free(g);
        nn_params_free(params);
    }
}

/* The plan names the first op that has a slow way; the host's kernels have none. */
TEST(a_plan_says_which_slow_way_it_takes) {
    for (int i = 0; i < 3; i++) {
        nn_params *params = nn_params_create();
        nn_graph *g = nn_graph_create(params);
        const int few = nn_symbol(g, "few", 3), many = nn_symbol(g, "many", i == 1 ? 39 : 40);
        const nn_value w = nn_parameter(g, "w", 2, (int64_t[]){5, 4}, (nn_init){NN_UNIFORM, 1});
        nn_output(g, "first", nn_linear(g, nn_input(g, "x", NN_F32, few, 4), w, -1, NN_LINEAR));
        nn_output(g, "second", nn_linear(g, nn_input(g, "z", NN_F32, many, 4), w, -1, NN_LINEAR));
        nn_plan *plan = NULL;
        char text[64] = "";
        CHECK_INT(nn_params_allocate(params, 1), ADAMOD_OK);
        if (i < 2) CHECK_INT(on_the_device(params, NULL), ADAMOD_OK);
        CHECK_INT(nn_plan_create(&plan, g, &(nn_plan_options){.loss = -1}), ADAMOD_OK);
        if (plan) CHECK(nn_plan_remark(plan, text, sizeof text) == (i == 0));
        CHECK_STR(text, i == 0 ? "40 rows are slow" : "");
        nn_plan_free(plan);
        nn_graph_free(g);
        nn_params_free(params);
    }
}

TEST(names_of_devices) {
    static const char *const wrong[] = {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:4294967296"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) CHECK_INT(nn_device_status(wrong[i]), ADAMOD_ERROR_NAME);
    CHECK_INT(nn_device_status("cpu"), ADAMOD_OK);
}

/* A device like a GPU whose libraries are missing: callers get a message, and can go on without it. */
TEST(a_backend_that_cannot_be_loaded) {
    setenv("ADAMOD_NN_CUDA_LIBRARY", "/nowhere/libadamod_nn_cuda.so", 1);
    CHECK_INT(nn_device_status("cuda"), ADAMOD_ERROR_NO_CUDA);
    CHECK_HAS(adamod_last_error(), "/nowhere/libadamod_nn_cuda.so");
    unsetenv("ADAMOD_NN_CUDA_LIBRARY");
}

RUN_TESTS(ENTRY(names_of_devices), ENTRY(a_backend_that_cannot_be_loaded), ENTRY(the_gradient_of_logits_lies_upon_them),
          ENTRY(a_plan_says_which_slow_way_it_takes), ENTRY(gradients_are_those_of_the_host),
          ENTRY(weight_gradients_of_one_shape_are_done_two_at_a_time),
          ENTRY(sums_wait_for_the_end_unless_two_add_to_one))
