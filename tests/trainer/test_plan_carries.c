/* Things that plans carry from op to op: several outputs, states that last, the live rows of a batch, images, inputs of f32
 * under mixed precision, backends that lack an op. On the host, and on a device that is the host's memory. */
#include "check.h"
#include "fake_device.h"
#include "nn/graph.h"
#include "opcheck.h"
#include "nn/plan.h"
#include "plan_ops.h"

#include <math.h>
#include <stdlib.h>

/* ---- a device that has these ops alone ---- */

static nn_call seen; /* the last call of probe there */

static void probe_there(const nn_call *c) {
    seen = *c;
    plan_op_probe.ref.forward(c);
}

static void forward_of_center(const nn_call *c) { plan_op_center.ref.forward(c); }
static void backward_of_center(const nn_call *c) { plan_op_center.ref.backward(c); }
static void forward_of_linear(const nn_call *c) { nn_op_linear.ref.forward(c); }
static void backward_of_linear(const nn_call *c) { nn_op_linear.ref.backward(c); }
static size_t workspace_of_linear(const nn_call *c) { return nn_op_linear.ref.workspace(c); }
static void forward_of_loss(const nn_call *c) { nn_op_cross_entropy.ref.forward(c); }
static void backward_of_loss(const nn_call *c) { nn_op_cross_entropy.ref.backward(c); }
static void forward_alone(const nn_call *c) { plan_op_two_ways.ref.forward(c); }

static const nn_kernels probe_kernels = {.forward = probe_there};
static const nn_kernels center_kernels = {.forward = forward_of_center, .backward = backward_of_center};
static const nn_kernels linear_kernels = {
    .forward = forward_of_linear, .backward = backward_of_linear, .workspace = workspace_of_linear};
static const nn_kernels loss_kernels = {.forward = forward_of_loss, .backward = backward_of_loss};
static const nn_kernels half_kernels = {.forward = forward_alone};

static const nn_backend_op ops[] = {{"probe", &probe_kernels},   {"center", &center_kernels},
                                    {"linear", &linear_kernels}, {"cross_entropy", &loss_kernels},
                                    {"two_ways", &half_kernels}, {NULL, NULL}};
static const nn_backend device = {.name = "test", .ops = ops, .device = &fake_device_functions};

/* ---- a graph ---- */

enum { ROWS = 8, COLS = 5, CLASSES = 3 };
static const nn_init uniform = {NN_UNIFORM, 1}, ones = {.kind = NN_ONES};

typedef struct model {
    nn_params *params;
    nn_graph *g;
    int rows;
    nn_value x, targets, loss;
    nn_plan *plan;
} model;

static model begin(void) {
    model m = {.params = nn_params_create()};
    m.g = nn_graph_create(m.params);
    m.rows = nn_symbol(m.g, "rows", ROWS);
    m.x = nn_input(m.g, "x", NN_F32, m.rows, COLS);
    m.targets = nn_input(m.g, "targets", NN_I32, m.rows, 0);
    nn_pad(m.g, m.targets, -1);
    return m;
}

static void end_with_loss(model *m, nn_value v) {
    const nn_value w = nn_parameter(m->g, "out", 2, (int64_t[]){CLASSES, nn_columns(&m->g->values[v].shape)}, uniform);
    m->loss = nn_cross_entropy(m->g, nn_linear(m->g, v, w, -1, NN_LINEAR), m->targets, 0.1);
    nn_output(m->g, "loss", m->loss);
}

static adamod_status plan(model *m, const char *backend, bool training) {
    if (!m->params->data) CHECK_INT(nn_params_allocate(m->params, 7), ADAMOD_OK);
    const nn_plan_options o = {.backend = backend, .loss = m->loss, .training = training};
    return nn_plan_create(&m->plan, m->g, &o);
}

static void feed(nn_plan *p, int symbol, int64_t rows) {
    float *x = nn_plan_data(p, "x");
    int32_t *targets = nn_plan_data(p, "targets");
    CHECK_INT(nn_plan_set_rows(p, symbol, rows), ADAMOD_OK);
    for (int64_t i = 0; i < rows * COLS; i++) x[i] = sinf((float)(3 * i + rows));
    for (int64_t i = 0; targets && i < rows; i++) targets[i] = (int32_t)(i % CLASSES);
}

static double run(nn_plan *p) {
    nn_plan_forward(p);
    nn_plan_backward(p, false);
    CHECK_INT(nn_plan_wait(p), ADAMOD_OK);
    return (double)((const float *)nn_plan_data(p, "loss"))[0];
}

static void drop(model *m) {
    nn_plan_free(m->plan);
    nn_graph_free(m->g);
    nn_params_free(m->params);
}

/* ---- several outputs ---- */

TEST(kernels_with_two_outputs_have_the_right_gradients) {
    const opcheck o = {
        .op = &plan_op_two_ways, .n_inputs = 2, .input = {OPCHECK_ROWS(1, 6, 4), OPCHECK_VECTOR(4)}, .seed = 5};
    CHECK(opcheck_gradients(&o));
}

/* used: 1: the loss has output 0; 2: output 1; 3: both. */
static model with_outputs(unsigned used) {
    model m = begin();
    const nn_value w = nn_parameter(m.g, "w", 1, (int64_t[]){COLS}, uniform);
    const nn_value y0 = plan_two_ways(m.g, m.x, w), y1 = plan_output_of(m.g, y0, 1);
    nn_output(m.g, "mean", plan_output_of(m.g, y0, 2));
    end_with_loss(&m, used == 1 ? y0 : used == 2 ? y1 : nn_add(m.g, y0, y1, 0));
    return m;
}

TEST(gradients_flow_back_from_the_outputs_that_the_loss_has) {
    static const char *const backends[] = {"ref", "cpu"};
    for (int i = 0; i < 6; i++) {
        model m = with_outputs((unsigned)i % 3 + 1);
        if (!CHECK_INT(plan(&m, backends[i / 3], true), ADAMOD_OK)) break;
        feed(m.plan, m.rows, ROWS - 1);
        run(m.plan);
        float *w = m.params->data + nn_params_find(m.params, "w")->offset, grad[COLS];
        memcpy(grad, m.params->grad + (w - m.params->data), sizeof grad);
        for (int j = 0; j < COLS; j++) {
            const float before = w[j], h = 0x1p-7f;
            w[j] = before + h;
            const double more = run(m.plan);
            w[j] = before - h;
            const double less = run(m.plan);
            w[j] = before;
            CHECK_CLOSE(grad[j], (more - less) / (2 * h), 2e-3);
        }
        drop(&m);
    }
}

TEST(an_output_without_a_gradient_is_given_all_the_same) {
    model m = with_outputs(1);
    if (!CHECK_INT(plan(&m, "ref", true), ADAMOD_OK)) return;
    feed(m.plan, m.rows, 4);
    run(m.plan);
    const float *mean = nn_plan_data(m.plan, "mean"), *x = nn_plan_data(m.plan, "x");
    CHECK_CLOSE(mean[1], (x[1] + x[COLS + 1] + x[2 * COLS + 1] + x[3 * COLS + 1]) / 4, 1e-6);
    const nn_value y0 = nn_named_value(m.g, "mean") - 2;
    CHECK(!nn_plan_grad_address(m.plan, nn_named_value(m.g, "mean")));
    CHECK(nn_plan_grad_address(m.plan, y0) && !nn_plan_grad_address(m.plan, y0 + 1));
    CHECK_INT(plan_output_of(m.g, y0, 3), -1);
    drop(&m);
}

/* ---- states ---- */

static model with_state(void) {
    model m = begin();
    nn_scope_push(m.g, "norm");
    const nn_value running = nn_persistent(m.g, "running", 1, (int64_t[]){COLS}, ones);
    CHECK_INT(nn_persistent(m.g, "running", 1, (int64_t[]){COLS}, ones), running); /* one state */
    nn_scope_pop(m.g);
    const nn_value w = nn_parameter(m.g, "first", 2, (int64_t[]){COLS, COLS}, uniform);
    const nn_value y = plan_center(m.g, nn_linear(m.g, m.x, w, -1, NN_LINEAR), running);
    end_with_loss(&m, y);
    return m;
}

static const float *running_of(const nn_params *p) {
    return p->state_data + nn_params_find_state(p, "norm.running")->offset;
}

TEST(kernels_that_write_a_state_have_the_right_gradients) {
    opcheck o = {.op = &plan_op_center,
                 .n_inputs = 2,
                 .input = {OPCHECK_ROWS(1, 6, 4), OPCHECK_VECTOR(4)},
                 .training = true,
                 .seed = 5};
    o.input[1].no_grad = true;
    CHECK(opcheck_gradients(&o));
    o.training = false;
    CHECK(opcheck_gradients(&o));
}

/* Training and scoring have a plan each, and one state. */
TEST(a_state_lasts_from_run_to_run_and_from_plan_to_plan) {
    model m = with_state();
    nn_plan *scoring = NULL;
    if (!CHECK_INT(plan(&m, "cpu", true), ADAMOD_OK)) return;
    const nn_plan_options o = {.loss = -1};
    if (!CHECK_INT(nn_plan_create(&scoring, m.g, &o), ADAMOD_OK)) return;
    CHECK_INT(m.params->n, 2); /* what an optimizer sees */
    CHECK_INT(nn_params_total(m.params), COLS * COLS + COLS * CLASSES);
    float kept[2][COLS];
    for (int i = 0; i < 2; i++) {
        feed(m.plan, m.rows, 5);
        run(m.plan);
        memcpy(kept[i], running_of(m.params), sizeof kept[i]);
    }
    for (int j = 0; j < COLS; j++) {
        const double mean = (kept[0][j] - 0.75) / 0.25; /* it was 1 */
        CHECK_CLOSE(kept[1][j], 0.75 * (double)kept[0][j] + 0.25 * mean, 1e-6);
    }
    feed(scoring, m.rows, 5);
    nn_plan_forward(scoring);
    CHECK(memcmp(running_of(m.params), kept[1], sizeof kept[1]) == 0);
    const double loss = (double)((const float *)nn_plan_data(scoring, "loss"))[0];
    ((float *)(uintptr_t)running_of(m.params))[0] += 1;
    nn_plan_forward(scoring);
    CHECK(fabs((double)((const float *)nn_plan_data(scoring, "loss"))[0] - loss) > 1e-3);
    nn_plan_free(scoring);
    drop(&m);
}

TEST(a_device_keeps_states_in_full_and_gives_them_back) {
    for (int mixed = 0; mixed < 2; mixed++) {
        model m = with_state();
        CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
        float *data = m.params->state_data + nn_params_find_state(m.params, "norm.running")->offset;
        for (int j = 0; j < COLS; j++) data[j] = 1.0f / (float)(j + 3); /* no bf16 */
        CHECK_INT(fake_device_take(m.params, &device, mixed ? NN_MIXED : NN_FULL), ADAMOD_OK);
        memset(data, 0, COLS * sizeof *data);
        CHECK_INT(nn_params_fetch(m.params), ADAMOD_OK);
        for (int j = 0; j < COLS; j++) CHECK(data[j] == 1.0f / (float)(j + 3));
        if (CHECK_INT(plan(&m, NULL, true), ADAMOD_OK)) {
            const plan_step *step = &m.plan->steps[1];
            CHECK(step->node->op == &plan_op_center);
            CHECK_INT(step->call.input[1].type, NN_F32);
            CHECK_INT(step->call.output[1].type, NN_F32);
            CHECK(step->call.output[1].data == step->call.input[1].data);
            CHECK_INT(step->call.output[0].type, mixed ? NN_BF16 : NN_F32);
        }
        drop(&m);
    }
}

TEST(mistakes_with_states_are_told) {
    model m = begin();
    nn_persistent(m.g, "s", 1, (int64_t[]){4}, ones);
    nn_persistent(m.g, "s", 1, (int64_t[]){5}, ones);
    CHECK_STR(m.g->error, "persistent state s exists with another shape");
    drop(&m);
    m = begin();
    CHECK_INT(nn_params_allocate(m.params, 1), ADAMOD_OK);
    nn_persistent(m.g, "s", 1, (int64_t[]){4}, ones);
    CHECK_STR(m.g->error, "persistent state s does not exist in the model");
    drop(&m);
    m = begin();
    plan_center(m.g, m.x, nn_parameter(m.g, "w", 1, (int64_t[]){COLS}, ones));
    CHECK_STR(m.g->error, "center: running is written, so it must be a state");
    drop(&m);
}

/* ---- live rows ---- */

static bool same_gradients(const nn_params *a, const nn_params *b) {
    bool same = true;
    for (int p = 0; p < a->n; p++) {
        const int64_t first = a->list[p].offset, n = a->list[p].count;
        for (int64_t i = first; i < first + n; i++) same = same && fabsf(a->grad[i] - b->grad[i]) <= 1e-5f;
    }
    return same;
}

/* A device runs all rows of the capacity: the mean is that of the batch's rows for all that. */
TEST(a_device_knows_the_rows_of_a_batch) {
    model host = with_state(), there = with_state();
    if (!CHECK_INT(plan(&host, "ref", true), ADAMOD_OK)) return;
    CHECK_INT(nn_params_allocate(there.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(there.params, &device, NN_FULL), ADAMOD_OK);
    if (!CHECK_INT(plan(&there, NULL, true), ADAMOD_OK)) return;
    for (int64_t rows = ROWS; rows > 0; rows -= 3) {
        feed(host.plan, host.rows, rows);
        feed(there.plan, there.rows, rows);
        const double a = run(host.plan), b = run(there.plan);
        CHECK_CLOSE(a, b, 1e-6);
        CHECK_INT(there.plan->steps[1].call.input[0].rows, ROWS);
        CHECK_INT(*there.plan->steps[1].call.input[0].live_rows, rows);
        CHECK(!host.plan->steps[1].call.input[0].live_rows);
        CHECK_INT(nn_params_fetch(there.params), ADAMOD_OK);
        CHECK_INT(nn_params_fetch_grad(there.params), ADAMOD_OK);
        for (int j = 0; j < COLS; j++) CHECK_CLOSE(running_of(there.params)[j], running_of(host.params)[j], 1e-6);
        CHECK(same_gradients(host.params, there.params));
    }
    drop(&host);
    drop(&there);
}

/* ---- f32 under mixed precision ---- */

static float half_of(const void *p, int64_t i) {
    uint16_t half;
    memcpy(&half, (const char *)p + 2 * i, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TEST(inputs_become_bf16_where_kernels_expect_it) {
    model m = begin();
    const nn_value w = nn_parameter(m.g, "w", 1, (int64_t[]){COLS}, uniform);
    nn_output(m.g, "y", plan_probe(m.g, m.x, m.x, w));
    m.loss = -1;
    CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(m.params, &device, NN_MIXED), ADAMOD_OK);
    if (!CHECK_INT(plan(&m, NULL, false), ADAMOD_OK)) return;
    for (int64_t rows = ROWS; rows > 3; rows--) {
        feed(m.plan, m.rows, rows);
        nn_plan_forward(m.plan);
        CHECK_INT(nn_plan_wait(m.plan), ADAMOD_OK);
        const float *x = nn_plan_data(m.plan, "x"), *y = nn_plan_data(m.plan, "y");
        CHECK_INT(seen.input[0].type, NN_BF16);
        CHECK_INT(seen.input[1].type, NN_F32);
        CHECK_INT(seen.input[2].type, NN_F32);
        CHECK(memcmp(seen.input[1].data, x, sizeof(float) * ROWS * COLS) == 0);
        CHECK(memcmp(seen.input[2].data, m.params->data, sizeof(float) * COLS) == 0);
        for (int64_t i = 0; i < rows * COLS; i++) {
            CHECK(half_of(seen.input[0].data, i) == opcheck_to_bf16(x[i]));
            CHECK(y[i] == opcheck_to_bf16(x[i])); /* who reads it reads f32 */
        }
    }
    drop(&m);
}

TEST(an_input_that_is_only_read_in_full_is_not_converted) {
    model m = begin();
    const nn_value w = nn_parameter(m.g, "w", 1, (int64_t[]){COLS}, uniform);
    nn_output(m.g, "y", plan_probe(m.g, w, m.x, w));
    m.loss = -1;
    CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(m.params, &device, NN_MIXED), ADAMOD_OK);
    if (!CHECK_INT(plan(&m, NULL, false), ADAMOD_OK)) return;
    CHECK_INT(m.plan->type[m.x], NN_F32);
    CHECK(!m.plan->converted[m.x]);
    CHECK(nn_plan_address(m.plan, m.x) == nn_plan_given(m.plan, m.x));
    drop(&m);
}

TEST(a_value_that_was_rounded_cannot_be_read_in_full) {
    model m = begin();
    const nn_value w = nn_parameter(m.g, "w", 2, (int64_t[]){COLS, COLS}, uniform);
    const nn_value y = nn_linear(m.g, m.x, w, -1, NN_LINEAR);
    nn_output(m.g, "y", plan_probe(m.g, m.x, y, w));
    m.loss = -1;
    CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(m.params, &device, NN_MIXED), ADAMOD_OK);
    CHECK_INT(plan(&m, NULL, false), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "probe reads again as f32, but mixed precision keeps it as bf16");
    drop(&m);
}

TEST(a_loss_that_a_device_cannot_seed_is_refused) {
    for (int mixed = 0; mixed < 2; mixed++) {
        model m = begin();
        const nn_value w = nn_parameter(m.g, "w", 2, (int64_t[]){9, COLS}, uniform);
        m.loss = nn_linear(m.g, m.x, w, -1, NN_LINEAR);
        CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
        CHECK_INT(fake_device_take(m.params, &device, mixed ? NN_MIXED : NN_FULL), ADAMOD_OK);
        CHECK_INT(plan(&m, NULL, false), ADAMOD_ERROR_ARGUMENT);
        CHECK_HAS(adamod_last_error(), mixed ? "the loss is 72 numbers of bf16, a device takes at most 64 of f32"
                                             : "the loss is 72 numbers of f32, a device takes at most 64 of f32");
        drop(&m);
    }
}

/* ---- images ---- */

TEST(images_have_height_width_and_channels) {
    model m = begin();
    const nn_value images = nn_input_images(m.g, "images", NN_F32, m.rows, 4, 3, 2);
    const nn_value w = nn_parameter(m.g, "w", 1, (int64_t[]){1}, ones);
    nn_output(m.g, "y", plan_probe(m.g, images, images, w));
    const nn_shape s = nn_shape_of(m.g, nn_named_value(m.g, "y"));
    CHECK(s.ndim == 4 && s.rows == m.rows && s.dim[0] == ROWS && s.dim[1] == 4 && s.dim[2] == 3 && s.dim[3] == 2);
    m.loss = -1;
    CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(m.params, &device, NN_FULL), ADAMOD_OK);
    if (!CHECK_INT(plan(&m, NULL, false), ADAMOD_OK)) return;
    float *x = nn_plan_data(m.plan, "images");
    for (int i = 0; i < ROWS * 24; i++) x[i] = (float)(i + 1);
    CHECK_INT(nn_plan_set_rows(m.plan, m.rows, 3), ADAMOD_OK);
    nn_plan_forward(m.plan);
    CHECK_INT(nn_plan_wait(m.plan), ADAMOD_OK);
    CHECK(seen.input[0].rows == ROWS && seen.input[0].cols == 24);
    CHECK(seen.input[0].shape->ndim == 4 && seen.input[0].shape->dim[1] == 4 && seen.input[0].shape->dim[3] == 2);
    const float *y = nn_plan_data(m.plan, "y");
    for (int i = 0; i < ROWS * 24; i++) CHECK(y[i] == (i < 3 * 24 ? (float)(i + 1) : 0)); /* padding is 0 */
    drop(&m);
}

TEST(shapes_of_images_are_checked) {
    static const struct {
        int64_t height, width, channels;
        const char *shape;
    } wrong[] = {{0, 3, 2, "[rows, 0, 3, 2]"},
                 {4, -1, 2, "[rows, 4, -1, 2]"},
                 {INT64_MAX / 2, 3, 2, "[rows, 4611686018427387903, 3, 2]"}};
    for (int i = 0; i < 3; i++) {
        model m = begin();
        nn_input_images(m.g, "images", NN_F32, m.rows, wrong[i].height, wrong[i].width, wrong[i].channels);
        CHECK_HAS(m.g->error, "input images: no array can have the shape ");
        CHECK_HAS(m.g->error, wrong[i].shape);
        drop(&m);
    }
    model m = begin();
    nn_input_images(m.g, "images", NN_F32, 99, 4, 3, 2);
    CHECK_STR(m.g->error, "input images: rows are not a symbol");
    drop(&m);
}

/* ---- backends that lack an op ---- */

TEST(on_the_host_the_reference_takes_the_place_of_a_missing_op) {
    model m = with_outputs(3);
    if (!CHECK_INT(plan(&m, "cpu", true), ADAMOD_OK)) return;
    CHECK(m.plan->steps[0].kernels.forward == plan_op_two_ways.ref.forward);
    CHECK(m.plan->steps[1].kernels.forward != nn_op_add.ref.forward); /* which it has */
    drop(&m);
}

TEST(on_a_device_a_missing_op_is_named) {
    model m = with_outputs(3); /* has an add */
    CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(m.params, &device, NN_FULL), ADAMOD_OK);
    CHECK_INT(plan(&m, NULL, true), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "test: the backend has no op 'add'");
    CHECK(!m.plan);
    drop(&m);
    m = with_outputs(1);
    CHECK_INT(nn_params_allocate(m.params, 7), ADAMOD_OK);
    CHECK_INT(fake_device_take(m.params, &device, NN_FULL), ADAMOD_OK);
    CHECK_INT(plan(&m, NULL, true), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "test: the backend has no gradient of 'two_ways'");
    drop(&m);
}

/* ---- initial values ---- */

TEST(initial_values_by_fan_in) {
    static const struct {
        int ndim;
        int64_t shape[4];
        double fan_in;
    } cases[] = {{2, {64, 100}, 100}, {4, {32, 16, 3, 3}, 144}, {4, {64, 25, 1, 1}, 25}};
    for (int i = 0; i < 3; i++) {
        nn_params *p = nn_params_create();
        nn_graph *g = nn_graph_create(p);
        nn_parameter(g, "w", cases[i].ndim, cases[i].shape, (nn_init){.kind = NN_FAN_IN});
        CHECK_INT(nn_params_allocate(p, 3), ADAMOD_OK);
        const double bound = 1 / sqrt(cases[i].fan_in);
        double most = 0, sum = 0, squares = 0;
        const double n = (double)p->list[0].count;
        for (int64_t k = 0; k < p->list[0].count; k++) {
            const double x = (double)p->data[k];
            most = fmax(most, fabs(x));
            sum += x;
            squares += x * x;
        }
        CHECK(most <= bound && most > 0.99 * bound);
        CHECK_CLOSE(sum / n, 0, 4 * bound / sqrt(3 * n));
        CHECK_CLOSE(squares / n, bound * bound / 3, 0.1 * bound * bound);
        nn_graph_free(g);
        nn_params_free(p);
    }
}

RUN_TESTS(ENTRY(kernels_with_two_outputs_have_the_right_gradients),
          ENTRY(gradients_flow_back_from_the_outputs_that_the_loss_has),
          ENTRY(an_output_without_a_gradient_is_given_all_the_same),
          ENTRY(kernels_that_write_a_state_have_the_right_gradients),
          ENTRY(a_state_lasts_from_run_to_run_and_from_plan_to_plan),
          ENTRY(a_device_keeps_states_in_full_and_gives_them_back), ENTRY(mistakes_with_states_are_told),
          ENTRY(a_device_knows_the_rows_of_a_batch), ENTRY(inputs_become_bf16_where_kernels_expect_it),
          ENTRY(an_input_that_is_only_read_in_full_is_not_converted),
          ENTRY(a_value_that_was_rounded_cannot_be_read_in_full), ENTRY(a_loss_that_a_device_cannot_seed_is_refused),
          ENTRY(images_have_height_width_and_channels), ENTRY(shapes_of_images_are_checked),
          ENTRY(on_the_host_the_reference_takes_the_place_of_a_missing_op), ENTRY(on_a_device_a_missing_op_is_named),
          ENTRY(initial_values_by_fan_in))
