/* The ops of recurrent networks: lstm, locked_dropout, word_dropout and activity. */
#include "nn/backend/cpu/activation.h"
#include "nn/backend/cpu/cpu.h"
#include "check.h"
#include "lstm_case.h"
#include "nn/ops/lstm_view.h"

#include <math.h>

static const lstm_case small[] = {{1, 1, 1, 1, true, true, 0},
                                  {3, 2, 3, 2, true, true, 0},
                                  {3, 2, 3, 2, false, true, 0},
                                  {4, 1, 2, 3, true, true, 0.4},
                                  {2, 3, 1, 2, true, false, 0.4}};

TEST(lstm_ref_has_the_gradients_of_differences) {
    for (int i = 0; i < 5; i++) {
        const opcheck o = lstm_of(&small[i]);
        if (!CHECK(opcheck_gradients(&o))) printf("  case %d\n", i);
    }
}

TEST(lstm_cpu_is_ref) {
    static const lstm_case more[] = {
        {7, 5, 12, 9, true, true, 0},     {5, 20, 8, 33, true, true, 0.5},
        {6, 3, 17, 16, false, true, 0.3}, {2, 66, 3, 17, true, true, 0.5}, /* more sequences than one tile has */
        {2, 1, 1, 131, true, true, 0.5},                                   /* weights that are packed in parts */
        {2, 2, 70, 17, true, true, 0},                                     /* the input's weights, too */
        {0, 3, 4, 2, true, true, 0.5}};
    for (int i = 0; i < 12; i++) {
        const opcheck o = lstm_of(i < 5 ? &small[i] : &more[i - 5]);
        if (!CHECK(opcheck_kernels(&o, &nn_cpu_lstm))) printf("  case %d\n", i);
    }
}

/* By hand: one unit, no input, and weights that make all gates 1/2 but g: c = c0 / 2 + g / 2, y = tanh(c) / 2. */
static void step_of(nn_call *c, const nn_kernels *k, float *saved, float *workspace, bool carried) {
    static const int32_t on = 1, off = 0;
    c->input[LSTM_CARRIED].data = (void *)(uintptr_t)(carried ? &on : &off);
    c->saved = saved;
    c->workspace = workspace;
    k->forward(c);
}

TEST(the_state_goes_on_or_begins_with_zeros) {
    const nn_kernels *const kernels[] = {&nn_op_lstm.ref, &nn_cpu_lstm};
    for (int k = 0; k < 2; k++) {
        float x[2] = {0}, w[4] = {0}, b[4] = {0, 0, 1, 0}, none[4] = {0}, h[1] = {0}, cell[1] = {3}, y[2];
        float saved[64], workspace[256];
        const nn_lstm_attributes a = {0};
        nn_call c = {.attributes = &a,
                     OPCHECK_NO_PARTS,
                     .input = {{.data = x, .rows = 2, .cols = 1},
                               {.data = w, .rows = 4, .cols = 1},
                               {.data = w, .rows = 4, .cols = 1},
                               {.data = b, .rows = 4, .cols = 1},
                               {.data = none, .rows = 4, .cols = 1},
                               {.data = h, .rows = 1, .cols = 1},
                               {.data = cell, .rows = 1, .cols = 1},
                               {.rows = 1, .cols = 1}},
                     .output = {{.data = y, .rows = 2, .cols = 1},
                                {.data = h, .rows = 1, .cols = 1},
                                {.data = cell, .rows = 1, .cols = 1}}};
        step_of(&c, kernels[k], saved, workspace, true);
        const double g = tanh(1), c1 = 1.5 + g / 2, c2 = c1 / 2 + g / 2;
        CHECK_CLOSE(y[0], tanh(c1) / 2, 1e-6);
        CHECK_CLOSE(y[1], tanh(c2) / 2, 1e-6);
        CHECK_CLOSE(cell[0], c2, 1e-6);
        CHECK(h[0] == y[1]);
        step_of(&c, kernels[k], saved, workspace, true);
        CHECK_CLOSE(y[0], tanh(c2 / 2 + g / 2) / 2, 1e-6);
        step_of(&c, kernels[k], saved, workspace, false);
        CHECK_CLOSE(y[0], tanh(g / 2) / 2, 1e-6);
    }
}

/* In units of the last place of what is expected, where that is normal. */
static double places(float found, double expected) {
    return fabs((double)found - expected) / (fabs(expected) * 0x1p-23 + 0x1p-126);
}

TEST(activations_are_those_of_the_library) {
    double worst[2] = {0};
    for (int i = -90000; i <= 90000; i++) {
        const float z = (float)i * (i % 2 ? 1e-3f : 1e-5f);
        worst[0] = fmax(worst[0], places(nn_sigmoid(z), 1 / (1 + exp(-(double)z))) * (z > -87));
        worst[1] = fmax(worst[1], places(nn_tanh(z), tanh((double)z)));
    }
    if (!CHECK(worst[0] < 2.5 && worst[1] < 2.5)) printf("  sigmoid %.2f, tanh %.2f\n", worst[0], worst[1]);
    CHECK(nn_sigmoid(INFINITY) == 1 && nn_sigmoid(-INFINITY) < 1e-37f && nn_sigmoid(0) == 0.5f);
    CHECK(nn_tanh(INFINITY) == 1 && nn_tanh(-INFINITY) == -1 && nn_tanh(1e-30f) == 1e-30f && nn_tanh(0) == 0);
    CHECK(isnan(nn_sigmoid(NAN)) && isnan(nn_tanh(NAN)));
}

TEST(lstm_names_what_does_not_fit) {
    opcheck o = lstm_of(&(lstm_case){2, 2, 3, 4, true, true, 0});
    CHECK(!opcheck_shape(&o));
    o.input[LSTM_W_STATE].shape.dim[1] = 5;
    CHECK_STR(opcheck_shape(&o), "W_state has the wrong shape for x of 3 columns and 4 units");
    o = lstm_of(&(lstm_case){2, 2, 3, 4, true, true, 1});
    CHECK_STR(opcheck_shape(&o), "dropout is 1, expected 0 <= p < 1");
}

/* ---- dropout ---- */

static opcheck locked_of(int steps, int batch, int cols, double p) {
    return (opcheck){.op = &nn_op_locked_dropout,
                     .attributes = {.locked_dropout = {.dropout = p, .batch = batch}},
                     .n_inputs = 1,
                     .input = {OPCHECK_ROWS(1, steps * batch, cols)},
                     .training = true,
                     .seed = 5};
}

TEST(locked_dropout_has_its_gradients_and_cpu_is_ref) {
    for (int i = 0; i < 3; i++) {
        const opcheck o = locked_of(4, 1 + i, 3 + i, 0.5 * (i > 0));
        CHECK(opcheck_gradients(&o));
        CHECK(opcheck_kernels(&o, &nn_cpu_locked_dropout));
    }
    const opcheck large = locked_of(9, 20, 117, 0.3);
    CHECK(opcheck_kernels(&large, &nn_cpu_locked_dropout));
}

/* Ones in: what comes out is the mask. */
TEST(masks_are_the_same_at_all_time_steps_and_for_all_places_of_a_word) {
    enum { STEPS = 3, BATCH = 4, COLS = 25, N = STEPS * BATCH * COLS };
    float x[N], y[N];
    int32_t ids[STEPS * BATCH];
    int zeros = 0;
    for (int i = 0; i < N; i++) x[i] = 1;
    for (int i = 0; i < STEPS * BATCH; i++) ids[i] = 7 * (i % 5);
    const nn_locked_dropout_attributes a = {.dropout = 0.5, .batch = BATCH};
    nn_call c = {
        .attributes = &a,
        OPCHECK_NO_PARTS,
        .training = true,
        .key = 9,
        .input = {{.data = x, .rows = STEPS * BATCH, .cols = COLS}, {.data = ids, .rows = STEPS * BATCH, .cols = 1}},
        .output = {{.data = y, .rows = STEPS * BATCH, .cols = COLS}}};
    nn_op_locked_dropout.ref.forward(&c);
    for (int i = 0; i < N; i++) {
        CHECK(y[i] == 0 || y[i] == 2);
        CHECK(y[i] == y[i % (BATCH * COLS)]);
        zeros += y[i] == 0;
    }
    CHECK(zeros > N / 4 && zeros < 3 * N / 4);
    nn_op_word_dropout.ref.forward(&c);
    zeros = 0;
    for (int i = 0; i < N; i++) {
        CHECK(y[i] == y[i / COLS % 5 * COLS]);
        zeros += y[i] == 0;
    }
    CHECK(zeros > 0 && zeros < N);
    c.training = false;
    nn_op_word_dropout.ref.forward(&c);
    for (int i = 0; i < N; i++) CHECK(y[i] == 1);
}

TEST(word_dropout_has_its_gradients) {
    static const int32_t ids[] = {4, 0, 4, 9, 2, 0};
    const opcheck o = {.op = &nn_op_word_dropout,
                       .attributes = {.word_dropout = {.dropout = 0.5}},
                       .n_inputs = 2,
                       .input = {OPCHECK_ROWS(1, 6, 3), OPCHECK_INDEX(1, 6, 0, ids)},
                       .training = true,
                       .seed = 3};
    CHECK(opcheck_gradients(&o));
    CHECK(opcheck_kernels(&o, &nn_op_word_dropout.ref));
}

/* ---- activity ---- */

TEST(activity_has_its_gradients) {
    for (int steps = 1; steps < 4; steps++) {
        const opcheck o = {
            .op = &nn_op_activity,
            .attributes = {.activity = {.size = 2, .change = 1, .batch = 2}},
            .n_inputs = 3,
            .input = {OPCHECK_MATRIX(1, 4), OPCHECK_ROWS(1, 2 * steps, 3), OPCHECK_ROWS(1, 2 * steps, 3)},
            .weighted = 1,
            .seed = 3};
        CHECK(opcheck_gradients(&o));
        CHECK(opcheck_kernels(&o, &nn_op_activity.ref));
    }
}

/* Two sequences of two steps of one number: means 7.5 and 10, for each of four rows. */
TEST(activity_adds_means_for_each_row) {
    float loss[4] = {1, 2, 3, 4}, x[] = {1, 2, 3, 4}, z[] = {0, 1, 2, 5}, out[4];
    const nn_activity_attributes a = {.size = 2, .change = 0.5, .batch = 2};
    const nn_call c = {.attributes = &a,
                       OPCHECK_NO_PARTS,
                       .input = {{.data = loss, .rows = 1, .cols = 4},
                                 {.data = x, .rows = 4, .cols = 1},
                                 {.data = z, .rows = 4, .cols = 1}},
                       .output = {{.data = out, .rows = 1, .cols = 4}}};
    nn_op_activity.ref.forward(&c);
    CHECK_CLOSE(out[0], 1 + 4 * (2 * 7.5 + 0.5 * 10), 1e-5);
    CHECK(out[1] == 2 && out[2] == 3 && out[3] == 4);
}

RUN_TESTS(ENTRY(lstm_ref_has_the_gradients_of_differences), ENTRY(lstm_cpu_is_ref),
          ENTRY(the_state_goes_on_or_begins_with_zeros), ENTRY(activations_are_those_of_the_library),
          ENTRY(lstm_names_what_does_not_fit), ENTRY(locked_dropout_has_its_gradients_and_cpu_is_ref),
          ENTRY(masks_are_the_same_at_all_time_steps_and_for_all_places_of_a_word),
          ENTRY(word_dropout_has_its_gradients), ENTRY(activity_has_its_gradients),
          ENTRY(activity_adds_means_for_each_row))
