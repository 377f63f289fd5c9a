/* Updates that fail on one rank alone: alone, and under mpirun, where test_ranks.sh runs this on several. The device is the
 * host's memory (fake_device.h).
 *
 * SPDX-License-Identifier: MIT
 */
#include "core/error.h"
#include "check.h"
#include "fake_device.h"
#include "nn/device_params.h"
#include "nn/plan.h"
#include "small_recipe.h"
#include "train/task.h"
#include "train/one_update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static comm *c;

/* The last rank: the one that something goes wrong on. */
static bool is_unlucky(void) { return comm_rank(c) == comm_size(c) - 1; }

static void open_one(experiment *e, const char *assignment) {
    OWNED_RECIPE r = {0};
    char batches[40];
    snprintf(batches, sizeof batches, "train.accumulate=%d", comm_size(c));
    const bool made = small_recipe(&r,
                                   "data: {task: numbers, train: 40, valid: 4, test: 4, sentences: 4}\n"
                                   "model: {layers: 1, d: 8, ffn: 8, heads: 2}\n"
                                   "train: {threads: 1, backend: cpu}\n",
                                   WITH(batches, assignment));
    if (!CHECK(made && experiment_open(e, &r, NULL, TASK_TRAIN) == 0 && experiment_join(e, c) == 0))
        printf("%s\n", adamod__last_message());
}

/* If a rank's own part of the optimizer fails, all say so. One process has no parts. */
TEST(a_part_that_fails_is_told_to_all) {
    experiment e;
    checkpoint_meta at = {0};
    update u;
    adamod_optimizer *none;
    open_one(&e, "train.shard=true");
    CHECK_INT(update_begin(&e, &at, false, &u), 0);
    if (c && is_unlucky()) {
        CHECK_INT(adamod_create(&none, "adamod"), ADAMOD_OK); /* has no parameters, and can make no step */
        adamod_free(e.optimizer);
        e.optimizer = none;
    }
    CHECK_INT(update_begin(&e, &at, false, &u), c ? ADAMOD_ERROR_ORDER : ADAMOD_OK);
    char expected[80];
    snprintf(expected, sizeof expected, "update 2: rank %d: step: no parameters were added", comm_size(c) - 1);
    if (c) CHECK_HAS(adamod__last_message(), expected);
    CHECK_INT(comm_agree(c, 0), 0); /* ranks are where they can meet */
    experiment_close(&e);
}

/* ---- devices that fail ---- */

static adamod_status failure(void) { return adamod__fail(ADAMOD_ERROR_CUDA, "the device was told to fail"); }

static adamod_status fail_to_wait(nn_device *d) {
    (void)d;
    return failure();
}

static adamod_status fail_to_wait_for(nn_device *d, void *event) {
    (void)d, (void)event;
    return failure();
}

static nn_device_functions functions;

/* The processor computes; what ranks sum is on the device. */
static void open_on_device(experiment *e) {
    static const nn_backend_op no_ops[] = {{NULL, NULL}};
    static const nn_backend backend = {.name = "test", .ops = no_ops, .device = &functions};
    functions = fake_device_functions;
    open_one(e, "train.comm=mpi");
    CHECK_INT(fake_device_take(e->params, &backend, NN_FULL), ADAMOD_OK);
    memset(e->params->on_device->grad, 0, (size_t)e->params->count * sizeof(float));
}

/* Gradients that are not finite are no failure: the sum has them, and all ranks say the same. */
TEST(gradients_that_are_not_finite_are_told) {
    experiment e;
    checkpoint_meta at = {0};
    update u;
    open_on_device(&e);
    if (is_unlucky()) *e.params->on_device->grad = NAN; /* which one process does not sum */
    CHECK_INT(update_begin(&e, &at, false, &u), 0);
    if (c) CHECK_HAS(u.diverged, "its gradient holds a NaN or an infinity in update 1");
    CHECK_INT(comm_agree(c, 0), 0);
    experiment_close(&e);
}

/* Without NCCL the host sums, and says so. */
TEST(what_is_slow_is_told) {
    experiment e;
    open_on_device(&e);
    e.recipe.train.comm = SUM_BY_ANY;
    setenv("ADAMOD_NCCL_LIBRARY", "nothing.so", 1);
    CHECK_INT(experiment_join(&e, c), 0);
    if (c) CHECK_HAS(e.slow, "gradients are summed by the host, not by NCCL: nothing.so: ");
    else CHECK_INT(*e.slow, '\0');
    e.recipe.train.comm = SUM_BY_NCCL;
    CHECK_INT(experiment_join(&e, c), -1);
    CHECK_HAS(adamod__last_message(), "nothing.so: ");
    experiment_close(&e);
}

/* It happens where others wait for this rank: it ends all, and so the test. One process has nothing to sum, and goes on. */
TEST(a_device_that_fails_at_a_sum_ends_all) {
    experiment e;
    checkpoint_meta at = {0};
    update u;
    open_on_device(&e);
    if (is_unlucky()) functions.wait = fail_to_wait;
    const int failed = update_begin(&e, &at, false, &u);
    CHECK_INT(comm_agree(c, failed), 0);
    CHECK(!c);
    experiment_close(&e);
}

/* An update that was under way fails, too; one process says what happened. */
TEST(a_device_that_fails_at_an_end_ends_all) {
    experiment e;
    checkpoint_meta at = {0};
    update u;
    open_on_device(&e);
    CHECK_INT(update_begin(&e, &at, false, &u), 0);
    u.waited = false;
    e.plan->on_device = e.params->on_device;
    e.plan->f = &functions;
    e.plan->traffic.begun = 1;
    if (is_unlucky()) functions.wait_for = fail_to_wait_for;
    else e.plan->on_device = NULL; /* all is well there */
    CHECK_INT(update_end(&e, &u), -1);
    CHECK_HAS(adamod__last_message(), "update 1: the device was told to fail");
    CHECK(!c);
    e.plan->on_device = NULL;
    experiment_close(&e);
}

int main(int argc, char **argv) {
    bool alone;
    if (comm_launched().size > 1 && comm_open(&c, &alone)) {
        fprintf(stderr, "%s\n", adamod__last_message());
        return 1;
    }
    static const check_test tests[] = {ENTRY(a_part_that_fails_is_told_to_all),
                                       ENTRY(gradients_that_are_not_finite_are_told), ENTRY(what_is_slow_is_told),
                                       ENTRY(a_device_that_fails_at_a_sum_ends_all),
                                       ENTRY(a_device_that_fails_at_an_end_ends_all)};
    const int status = check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
    comm_free(c);
    return status;
}
