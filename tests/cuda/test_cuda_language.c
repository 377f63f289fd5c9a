/* Recurrent networks on a GPU: their ops against the reference, the model against the processor's over batches of several
 * lengths in one recording, and whole runs: the same twice, and in parts.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "cudacheck.h"
#include "lstm_case.h"
#include "scratch.h"
#include "small_recipe.h"
#include "tasks/language.h"
#include "train/loop.h"
#include "train/one_update.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

#define NEEDS_DEVICE()                                                                                                 \
    if (!cudacheck_open()) SKIP(adamod_last_error())

/* ---- ops ---- */

/* With bf16 the sizes that are even and small enough keep their weights on the chip; others are streamed. */
TEST(lstm_is_the_reference) {
    NEEDS_DEVICE();
    static const lstm_case cases[] = {
        {3, 2, 3, 2, true, true, 0},       {1, 1, 1, 1, true, true, 0},     {4, 1, 2, 3, true, true, 0.4},
        {2, 3, 1, 2, true, false, 0.4},    {5, 20, 8, 66, true, true, 0.5}, {7, 5, 12, 9, true, true, 0},
        {6, 3, 17, 16, false, true, 0.3},  {3, 24, 8, 50, true, true, 0.5}, {3, 25, 8, 50, true, true, 0.5},
        {4, 10, 5, 130, false, true, 0.5}, {0, 3, 4, 2, true, true, 0.5},   {2, 9, 3, 14, true, true, 0}};
    const size_t some = getenv("ADAMOD_TEST_FAST") ? 5 : sizeof cases / sizeof *cases;
    for (size_t i = 0; i < some; i++) {
        opcheck o = lstm_of(&cases[i]);
        bool ok = CHECK(cudacheck(&o, NN_F32));
        o.slack = 4 * 1024; /* each factor is off by up to 2^-11, not 2^-24; a hundredth of them do not add up */
        ok = CHECK(cudacheck_tf32(&o)) && ok;
        o.slack = 4;
        o.rounded = 3; /* weights, outputs and gates' gradients on the way */
        ok = CHECK(cudacheck(&o, NN_BF16)) && ok;
        if (!ok) printf("  case %zu\n", i);
    }
}

TEST(locked_dropout_is_the_reference) {
    NEEDS_DEVICE();
    static const int sizes[][3] = {{4, 1, 3}, {9, 20, 117}, {5, 4, 400}, {3, 2, 4}};
    for (int i = 0; i < 4; i++) {
        const opcheck o = {.op = &nn_op_locked_dropout,
                           .attributes = {.locked_dropout = {.dropout = 0.3 * i, .batch = sizes[i][1]}},
                           .n_inputs = 1,
                           .input = {OPCHECK_ROWS(1, sizes[i][0] * sizes[i][1], sizes[i][2])},
                           .training = true,
                           .seed = 5};
        CHECK(cudacheck(&o, NN_F32));
        CHECK(cudacheck(&o, NN_BF16));
    }
}

TEST(word_dropout_is_the_reference) {
    NEEDS_DEVICE();
    static const int32_t ids[] = {4, 0, 4, 9, 2, 0};
    for (int cols = 3; cols < 20; cols += 13) {
        const opcheck o = {.op = &nn_op_word_dropout,
                           .attributes = {.word_dropout = {.dropout = 0.5}},
                           .n_inputs = 2,
                           .input = {OPCHECK_ROWS(1, 6, cols), OPCHECK_INDEX(1, 6, 0, ids)},
                           .training = true,
                           .seed = 3};
        CHECK(cudacheck(&o, NN_F32));
        CHECK(cudacheck(&o, NN_BF16));
    }
}

TEST(activity_is_the_reference) {
    NEEDS_DEVICE();
    static const int sizes[][3] = {{1, 2, 3}, {2, 2, 3}, {3, 1, 8}, {30, 20, 117}};
    for (int i = 0; i < 4; i++) {
        const int rows = sizes[i][0] * sizes[i][1];
        const opcheck o = {
            .op = &nn_op_activity,
            .attributes = {.activity = {.size = 2, .change = 1, .batch = sizes[i][1]}},
            .n_inputs = 3,
            .input = {OPCHECK_MATRIX(1, 4), OPCHECK_ROWS(1, rows, sizes[i][2]), OPCHECK_ROWS(1, rows, sizes[i][2])},
            .weighted = 1,
            .longest_sum = 16,
            .seed = 3};
        CHECK(cudacheck(&o, NN_F32));
        CHECK(cudacheck(&o, NN_BF16));
    }
}

TEST(people_are_told_how_layers_run) {
    nn_note note = {.op = "?"};
    CHECK_INT(nn_device_note("cpu", 0, &note), ADAMOD_OK);
    CHECK(!note.op);
    NEEDS_DEVICE();
    CHECK_INT(nn_device_note("cuda", 0, &note), ADAMOD_OK);
    CHECK_STR(note.op, "lstm");
    CHECK_HAS(note.text, "weights");
    CHECK_INT(nn_device_note("cuda", 1, &note), ADAMOD_OK);
    CHECK(!note.op);
}

/* ---- the model ---- */

static const char small[] =
    "data: {task: language, words: 40, branches: 2, order: 1, train: 4000, valid: 203, test: 100, batch: 8,\n"
    "  length: 10, spread: 2, valid_batch: 3, score_length: 20}\n"
    "model: {layers: 3, embedding: 16, hidden: 60}\n"
    "optimizer: {rule: adamod, lr: 1e-2, clip_norm: 0.25}\n"
    "train: {steps: 10, evaluate_every: 5, checkpoint_every: 4, threads: 1, backend: cuda, precision: full}\n";

static bool recipe_of(recipe *r, const char *const *assignments) { return small_recipe(r, small, assignments); }

static bool open_with(experiment *e, const char *const *assignments) {
    OWNED_RECIPE r = {0};
    const bool ok = CHECK(recipe_of(&r, assignments) && experiment_open(e, &r, NULL, TASK_TRAIN | TASK_SCORE) == 0);
    if (!ok) puts(adamod__last_message());
    return ok;
}

static adamod_status both_ways(void *context) {
    nn_plan_forward(context);
    nn_plan_backward(context, false);
    return ADAMOD_OK;
}

static void run_batch(experiment *e, uint64_t step, float loss[4]) {
    task_batch b;
    e->task->next(e, &b);
    nn_plan_set_random(e->plan, 1, step);
    CHECK_INT(nn_plan_replay(e->plan, 0, both_ways, e->plan), ADAMOD_OK);
    if (!CHECK_INT(nn_plan_wait(e->plan), ADAMOD_OK)) puts(adamod_last_error());
    CHECK_INT(nn_params_fetch(e->params), ADAMOD_OK);
    CHECK_INT(nn_params_fetch_grad(e->params), ADAMOD_OK);
    memcpy(loss, nn_plan_data(e->plan, "loss"), 4 * sizeof *loss);
}

static double apart(const float *a, const float *b, int64_t n) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(difference / size);
}

/* Batches of several lengths: the first run is not recorded, the next two are, all others replayed. Every number of the
 * gradient and of the state that is carried on. */
static void follow(const char *size, const char *precision, double loss_tolerance, double tolerance) {
    experiment cpu, cuda;
    const int batches = getenv("ADAMOD_TEST_FAST") ? 4 : 6;
    double worst[3] = {0};
    if (!open_with(&cpu, WITH(size, "train.backend=cpu"))) return;
    if (open_with(&cuda, WITH(size, precision))) {
        for (int i = 0; i < batches; i++) {
            float a[4], b[4];
            run_batch(&cpu, (uint64_t)i, a);
            run_batch(&cuda, (uint64_t)i, b);
            CHECK(a[3] == b[3]);
            worst[0] = fmax(worst[0], fabs((double)b[0] / (double)a[0] - 1));
            worst[1] = fmax(worst[1], apart(cuda.params->grad, cpu.params->grad, cpu.params->count));
            worst[2] = fmax(worst[2], apart(cuda.params->state_data, cpu.params->state_data, cpu.params->state_count));
        }
        printf("%s, %s: loss %.2g apart, gradients %.2g, states %.2g\n", size, precision, worst[0], worst[1], worst[2]);
        CHECK(worst[0] < loss_tolerance && worst[1] < tolerance && worst[2] < tolerance);
        experiment_close(&cuda);
    }
    experiment_close(&cpu);
}

TEST(batches_of_several_lengths_are_those_of_the_processor) {
    NEEDS_DEVICE();
    static const char *const sizes[] = {"model.hidden=60", "model.hidden=61", "data.batch=30", "model.hidden=1150"};
    for (int i = 0; i < (getenv("ADAMOD_TEST_FAST") ? 2 : 4); i++) {
        follow(sizes[i], "train.precision=full", 1e-5, 1e-4);
        follow(sizes[i], "train.precision=tf32", 1e-3, 1e-2);
        follow(sizes[i], "train.precision=mixed", 1e-2, 5e-2);
    }
}

/* Weights are streamed for odd numbers of units, for many sequences, and in full precision. Those of 60 units stay on
 * the chip if the GPU can. */
TEST(a_run_says_that_weights_are_streamed) {
    NEEDS_DEVICE();
    static const struct {
        const char *size, *precision, *says;
    } cases[] = {{"model.hidden=60", "train.precision=mixed", NULL},
                 {"model.hidden=61", "train.precision=mixed", "LSTM of 61 units x 8 sequences: weights are streamed"},
                 {"data.batch=30", "train.precision=mixed", "LSTM of 60 units x 30 sequences: weights are streamed"},
                 {"model.hidden=60", "train.precision=full", "mixed precision"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        experiment e;
        char text[256] = "";
        if (!open_with(&e, WITH(cases[i].size, cases[i].precision))) return;
        CHECK(nn_plan_remark(e.plan, text, sizeof text) == (cases[i].says != NULL));
        CHECK_HAS(text, cases[i].says ? cases[i].says : "");
        experiment_close(&e);
    }
}

/* Multiprocessors wait for a number by its bits: no number may look as if it were missing. */
TEST(numbers_that_are_not_finite_come_through) {
    NEEDS_DEVICE();
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        experiment e;
        float loss[4];
        if (!open_with(&e, WITH("train.precision=mixed"))) return;
        const nn_param *w = nn_params_find(e.params, "layers.0.weight_hh"),
                       *b = nn_params_find(e.params, "layers.1.bias_hh");
        for (int64_t k = 0; k < w->count; k += 3) e.params->data[w->offset + k] = bad[i];
        for (int64_t k = 0; k < b->count; k += 5) e.params->data[b->offset + k] = bad[i];
        CHECK_INT(nn_params_store(e.params), ADAMOD_OK);
        for (int pass = 0; pass < 3; pass++) run_batch(&e, (uint64_t)pass, loss);
        CHECK(isnan(loss[0]));
        experiment_close(&e);
    }
}

/* A batch without rows has zero gradients, and leaves the state as it was. */
TEST(a_batch_may_be_empty) {
    NEEDS_DEVICE();
    static const char *const precisions[] = {"train.precision=full", "train.precision=mixed"};
    for (int i = 0; i < 2; i++) {
        experiment e;
        float loss[4];
        if (!open_with(&e, WITH(precisions[i]))) return;
        const size_t bytes = (size_t)e.params->state_count * sizeof(float);
        float *states = malloc(bytes);
        run_batch(&e, 1, loss);
        memcpy(states, e.params->state_data, bytes);
        *(int32_t *)nn_plan_data(e.plan, "carried") = 1;
        CHECK_INT(nn_plan_set_rows(e.plan, language_of(&e)->rows, 0), ADAMOD_OK);
        CHECK_INT(nn_plan_replay(e.plan, 0, both_ways, e.plan), ADAMOD_OK);
        CHECK_INT(nn_plan_wait(e.plan), ADAMOD_OK);
        CHECK_INT(nn_params_fetch(e.params), ADAMOD_OK);
        CHECK_INT(nn_params_fetch_grad(e.params), ADAMOD_OK);
        CHECK(*(const float *)nn_plan_data(e.plan, "loss") == 0);
        CHECK(memcmp(states, e.params->state_data, bytes) == 0);
        double most = 0;
        for (int64_t k = 0; k < e.params->count; k++) most = fmax(most, fabs((double)e.params->grad[k]));
        CHECK(most == 0);
        free(states);
        experiment_close(&e);
    }
}

static train_result run_in(const char *directory, bool resume, const char *const *assignments) {
    train_result out = {0};
    OWNED_RECIPE r = {0};
    const train_options o = {.directory = directory, .resume = resume};
    if (!CHECK(recipe_of(&r, assignments) && train_run(&r, &o, &out) == 0)) puts(adamod__last_message());
    return out;
}

TEST(ten_steps_follow_those_of_the_processor) {
    NEEDS_DEVICE();
    enter_scratch(true);
    const train_result cpu = run_in("cpu", false, WITH("train.backend=cpu")),
                       full = run_in("full", false, WITH("train.precision=full")),
                       mixed = run_in("mixed", false, WITH("train.precision=mixed"));
    printf("loss %.6f, %.6f in f32, %.6f mixed; then %.6f, %.6f, %.6f\n", cpu.train_loss, full.train_loss,
           mixed.train_loss, cpu.final.value[0], full.final.value[0], mixed.final.value[0]);
    CHECK_CLOSE(full.train_loss, cpu.train_loss, 1e-4 * cpu.train_loss);
    CHECK_CLOSE(full.final.value[0], cpu.final.value[0], 1e-4 * cpu.final.value[0]);
    CHECK_CLOSE(mixed.train_loss, cpu.train_loss, 1e-2 * cpu.train_loss);
    CHECK_CLOSE(mixed.final.value[0], cpu.final.value[0], 1e-2 * cpu.final.value[0]);
}

/* Stopped within an epoch, with all that is random on. */
TEST(a_run_in_parts_ends_as_one_and_runs_repeat) {
    NEEDS_DEVICE();
    enter_scratch(true);
    static const char *const precisions[] = {"train.precision=full", "train.precision=mixed"};
    for (int i = 0; i < 2; i++) {
        char parts[16], once[16];
        snprintf(parts, sizeof parts, "parts%d", i);
        snprintf(once, sizeof once, "once%d", i);
        run_in(parts, false, WITH(precisions[i], "train.steps=7"));
        const train_result a = run_in(parts, true, WITH(precisions[i], "train.steps=60")),
                           b = run_in(once, false, WITH(precisions[i], "train.steps=60"));
        CHECK_CLOSE(a.train_loss, b.train_loss, 0);
        CHECK_CLOSE(a.final.value[0], b.final.value[0], 0);
        CHECK(isfinite(b.train_loss));
    }
}

/* tests/trainer/test_groups.c on a device: frozen parameters stay through replayed updates, and options of a group act
 * as those of the recipe do. */
TEST(groups_of_parameters) {
    NEEDS_DEVICE();
    enter_scratch(true);
    static const char *const precisions[] = {"train.precision=full", "train.precision=mixed"};
    for (int i = 0; i < 2; i++) {
        char whole[16], group[16];
        snprintf(whole, sizeof whole, "whole%d", i);
        snprintf(group, sizeof group, "group%d", i);
        const train_result a = run_in(whole, false, WITH(precisions[i], "optimizer.lr=0.02")),
                           b = run_in(
                               group, false,
                               WITH(precisions[i], "optimizer.groups.all.match=*", "optimizer.groups.all.lr=0.02"));
        CHECK_CLOSE(a.train_loss, b.train_loss, 0);
        CHECK_CLOSE(a.final.value[0], b.final.value[0], 0);
        experiment e;
        checkpoint_meta at = {0};
        update u;
        if (!open_with(&e, WITH(precisions[i], "optimizer.groups.trunk.match=embedding.*,layers.0.*",
                                "optimizer.groups.trunk.freeze=true")))
            return;
        const size_t bytes = (size_t)e.params->count * sizeof(float);
        float *before = memcpy(malloc(bytes), e.params->data, bytes);
        for (int k = 0; k < 8; k++) CHECK(update_begin(&e, &at, false, &u) == 0 && update_end(&e, &u) == 0);
        CHECK_INT(nn_params_fetch(e.params), ADAMOD_OK);
        for (int k = 0; k < e.params->n; k++) {
            const nn_param *p = &e.params->list[k];
            const bool frozen = !experiment_trains(&e, p);
            CHECK_INT(frozen, strncmp(p->name, "embedding.", 10) == 0 || strncmp(p->name, "layers.0.", 9) == 0);
            CHECK_INT(memcmp(before + p->offset, e.params->data + p->offset, (size_t)p->count * sizeof *before) == 0,
                      frozen);
        }
        free(before);
        experiment_close(&e);
    }
}

RUN_TESTS(ENTRY(lstm_is_the_reference), ENTRY(locked_dropout_is_the_reference), ENTRY(word_dropout_is_the_reference),
          ENTRY(activity_is_the_reference), ENTRY(people_are_told_how_layers_run),
          ENTRY(a_run_says_that_weights_are_streamed), ENTRY(batches_of_several_lengths_are_those_of_the_processor),
          ENTRY(numbers_that_are_not_finite_come_through), ENTRY(a_batch_may_be_empty),
          ENTRY(ten_steps_follow_those_of_the_processor), ENTRY(a_run_in_parts_ends_as_one_and_runs_repeat),
          ENTRY(groups_of_parameters))
