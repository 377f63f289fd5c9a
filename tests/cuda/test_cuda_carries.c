/* Things that plans on a GPU carry from op to op: inputs of f32 under mixed precision, images, the live rows of a batch in
 * recordings, states that last, ops that the backend lacks. See test_plan_carries.c for the same without a GPU.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "cudacheck.h"
#include "nn/device_params.h"
#include "nn/plan.h"
#include "plan_ops.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 40, HEIGHT = 4, WIDTH = 4, CHANNELS = 8, COLS = HEIGHT * WIDTH * CHANNELS, OUT = 64, RUNS = 5 };

typedef struct model {
    nn_params *params;
    nn_graph *g;
    nn_plan *plan;
    int rows;
    nn_value y, loss;
} model;

static model make(const char *device, nn_precision precision) {
    model m = {.params = nn_params_create()};
    m.g = nn_graph_create(m.params);
    m.rows = nn_symbol(m.g, "rows", ROWS);
    const nn_value x = nn_input_images(m.g, "x", NN_F32, m.rows, HEIGHT, WIDTH, CHANNELS);
    const nn_value targets = nn_input(m.g, "targets", NN_I32, m.rows, 0);
    const nn_value w = nn_parameter(m.g, "w", 2, (int64_t[]){OUT, COLS}, (nn_init){.kind = NN_FAN_IN});
    nn_pad(m.g, targets, -1);
    m.y = nn_linear(m.g, x, w, -1, NN_LINEAR);
    m.loss = nn_cross_entropy(m.g, m.y, targets, 0);
    nn_output(m.g, "y", m.y);
    nn_output(m.g, "loss", m.loss);
    CHECK_INT(nn_params_allocate(m.params, 5), ADAMOD_OK);
    CHECK_INT(nn_params_to_device(m.params, device, precision), ADAMOD_OK);
    if (!CHECK_INT(nn_plan_create(&m.plan, m.g, &(nn_plan_options){.loss = m.loss, .training = true}), ADAMOD_OK))
        printf("%s\n", adamod_last_error());
    return m;
}

static void drop(model *m) {
    nn_plan_free(m->plan);
    nn_graph_free(m->g);
    nn_params_free(m->params);
}

static void feed(nn_plan *plan, int symbol, int run) {
    const int64_t rows = ROWS - 7 * run;
    float *x = nn_plan_data(plan, "x");
    CHECK_INT(nn_plan_set_rows(plan, symbol, rows), ADAMOD_OK);
    for (int64_t i = 0; i < ROWS * COLS; i++) x[i] = i < rows * COLS ? sinf((float)(i + 100 * run)) : 1e30f;
    for (int64_t i = 0; i < rows; i++) ((int32_t *)nn_plan_data(plan, "targets"))[i] = (int32_t)((i + run) % OUT);
}

static adamod_status both_ways(void *context) {
    nn_plan_forward(context);
    nn_plan_backward(context, false);
    return ADAMOD_OK;
}

static void replay(nn_plan *plan) {
    CHECK_INT(nn_plan_replay(plan, 0, both_ways, plan), ADAMOD_OK);
    if (!CHECK_INT(nn_plan_wait(plan), ADAMOD_OK)) printf("%s\n", adamod_last_error());
}

/* Five runs: the first is not recorded, the next two are recorded, the others replayed, each with other rows. Rounding to
 * bf16 is a 256th of factors of size about one; the sums of 128 products are of size one. */
static void compare(nn_precision precision, double tolerance) {
    model cpu = make("cpu", NN_FULL), cuda = make("cuda", precision);
    for (int run = 0; cpu.plan && cuda.plan && run < RUNS; run++) {
        feed(cpu.plan, cpu.rows, run);
        feed(cuda.plan, cuda.rows, run);
        replay(cpu.plan);
        replay(cuda.plan);
        const float *a = nn_plan_data(cpu.plan, "y"), *b = nn_plan_data(cuda.plan, "y");
        const int64_t live = nn_plan_rows(cpu.plan, cpu.rows);
        double most = 0;
        for (int64_t i = 0; i < live * OUT; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
        CHECK(most <= tolerance);
        const float *la = nn_plan_data(cpu.plan, "loss"), *lb = nn_plan_data(cuda.plan, "loss");
        CHECK_CLOSE(lb[0], la[0], tolerance * (double)la[0]);
        CHECK_INT(lb[3], live);
        CHECK_INT(nn_params_fetch_grad(cuda.params), ADAMOD_OK);
        double difference = 0, size = 0;
        for (int64_t i = 0; i < OUT * COLS; i++) {
            difference += pow((double)cpu.params->grad[i] - (double)cuda.params->grad[i], 2);
            size += pow((double)cpu.params->grad[i], 2);
        }
        CHECK(sqrt(difference / size) <= 2 * tolerance);
    }
    drop(&cpu);
    drop(&cuda);
}

TEST(images_of_f32_are_converted_in_every_run) {
    if (!cudacheck_open()) SKIP("no device");
    compare(NN_FULL, 1e-5);
    compare(NN_MIXED, 2e-2);
}

TEST(recordings_see_the_live_rows_of_each_run) {
    if (!cudacheck_open()) SKIP("no device");
    model m = make("cuda", NN_MIXED);
    for (int run = 0; m.plan && run < RUNS; run++) {
        int64_t there = -1;
        feed(m.plan, m.rows, run);
        replay(m.plan);
        const nn_array *x = &m.plan->steps[0].call.input[0];
        CHECK_INT(x->rows, ROWS);
        m.plan->f->download(m.params->on_device->device, &there, x->live_rows, sizeof there);
        CHECK_INT(m.plan->f->wait(m.params->on_device->device), ADAMOD_OK);
        CHECK_INT(there, ROWS - 7 * run);
    }
    drop(&m);
}

TEST(states_go_to_a_device_and_back) {
    if (!cudacheck_open()) SKIP("no device");
    for (int mixed = 0; mixed < 2; mixed++) {
        nn_params *p = nn_params_create();
        nn_graph *g = nn_graph_create(p);
        nn_parameter(g, "w", 1, (int64_t[]){4}, (nn_init){.kind = NN_ONES});
        nn_persistent(g, "s", 2, (int64_t[]){3, 5}, (nn_init){.kind = NN_ONES});
        CHECK_INT(nn_params_allocate(p, 1), ADAMOD_OK);
        for (int i = 0; i < 15; i++) p->state_data[i] = 1.0f / (float)(i + 3);
        CHECK_INT(nn_params_to_device(p, "cuda", mixed ? NN_MIXED : NN_FULL), ADAMOD_OK);
        for (int i = 0; i < 15; i++) p->state_data[i] = 0;
        CHECK_INT(nn_params_fetch(p), ADAMOD_OK);
        for (int i = 0; i < 15; i++) CHECK(p->state_data[i] == 1.0f / (float)(i + 3));
        nn_graph_free(g);
        nn_params_free(p);
    }
}

TEST(an_op_that_the_backend_lacks_is_named) {
    if (!cudacheck_open()) SKIP("no device");
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    nn_plan *plan = NULL;
    const nn_value w = nn_parameter(g, "w", 1, (int64_t[]){6}, (nn_init){.kind = NN_ONES});
    const nn_value x = nn_input(g, "x", NN_F32, nn_symbol(g, "rows", 8), 6);
    nn_output(g, "y", plan_two_ways(g, x, w));
    CHECK_INT(nn_params_allocate(p, 1), ADAMOD_OK);
    CHECK_INT(nn_params_to_device(p, "cuda", NN_FULL), ADAMOD_OK);
    CHECK_INT(nn_plan_create(&plan, g, &(nn_plan_options){.loss = -1}), ADAMOD_ERROR_NAME);
    CHECK_HAS(adamod_last_error(), "cuda: the backend has no op 'two_ways'");
    nn_graph_free(g);
    nn_params_free(p);
}

RUN_TESTS(ENTRY(images_of_f32_are_converted_in_every_run), ENTRY(recordings_see_the_live_rows_of_each_run),
          ENTRY(states_go_to_a_device_and_back), ENTRY(an_op_that_the_backend_lacks_is_named))
