/* Groups of parameters in a recipe: frozen ones stay as they are and cost nothing, others have options of their own, and a
 * run with groups goes on as any other.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "scratch.h"
#include "small_recipe.h"
#include "tasks/tasks.h"
#include "train/loop.h"
#include "train/one_update.h"
#include "core/error.h"

#include <stdlib.h>

/* Batches differ in length, and so in their learning rate. */
static const char small[] =
    "data: {task: language, words: 4, branches: 2, order: 1, train: 2000, valid: 203, test: 100, batch: 4, length: 10,\n"
    "  spread: 2, valid_batch: 3, score_length: 20}\n"
    "model: {layers: 2, embedding: 8, hidden: 12}\n"
    "optimizer: {rule: adam, lr: 1e-2, weight_decay: 0.1, clip_norm: 0.25, schedule: {lr: 'warmup(1e-7,3)'}}\n"
    "train: {steps: 9, evaluate_every: 4, checkpoint_every: 4, threads: 1, backend: cpu}\n";

static bool open_with(experiment *e, const char *const *assignments) {
    OWNED_RECIPE r = {0};
    if (!CHECK(small_recipe(&r, small, assignments))) return puts(adamod__last_message()), false;
    if (!CHECK_INT(recipe_check(&r), 0)) return puts(adamod__last_message()), false;
    return experiment_open(e, &r, NULL, TASK_TRAIN) == 0;
}

/* The parameters before, to be freed, and those of e after some updates. */
static float *train_some(experiment *e) {
    const size_t bytes = (size_t)e->params->count * sizeof(float);
    float *before = memcpy(malloc(bytes), e->params->data, bytes);
    checkpoint_meta at = {.recipe = &e->recipe};
    for (int i = 0; i < 5; i++) {
        update u;
        if (!CHECK(update_begin(e, &at, false, &u) == 0 && update_end(e, &u) == 0)) puts(adamod__last_message());
    }
    return before;
}

static bool stayed(const experiment *e, const float *before, const nn_param *p) {
    return memcmp(before + p->offset, e->params->data + p->offset, (size_t)p->count * sizeof *before) == 0;
}

TEST(frozen_parameters_stay_as_they_are_and_cost_nothing) {
    static const char *const rules[] = {"optimizer=adam", "optimizer=sgd", "optimizer=adafactor",
                                        "optimizer=schedulefree_adamw"};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        experiment e;
        if (!CHECK(open_with(&e, WITH(rules[r], "optimizer.groups.trunk.match=embedding.*, *.1.*",
                                      "optimizer.groups.trunk.freeze=true"))))
            return;
        float *before = train_some(&e);
        int frozen = 0;
        for (int i = 0; i < e.params->n; i++) {
            const nn_param *p = &e.params->list[i];
            const bool is = strncmp(p->name, "embedding.", 10) == 0 || strstr(p->name, ".1.");
            if (!CHECK_INT(stayed(&e, before, p), is)) puts(p->name);
            frozen += is;
        }
        CHECK(frozen > 1 && frozen < e.params->n);
        CHECK_INT(adamod_tensors(e.optimizer), e.params->n - frozen);
        free(before);
        experiment_close(&e);
    }
}

/* The last group that matches counts, with options or without. */
TEST(all_but_one_layer_can_be_frozen) {
    experiment e;
    if (!CHECK(open_with(&e, WITH("optimizer.groups.all.match=*", "optimizer.groups.all.freeze=true",
                                  "optimizer.groups.head.match=decoder.*"))))
        return;
    float *before = train_some(&e);
    for (int i = 0; i < e.params->n; i++) {
        const nn_param *p = &e.params->list[i];
        if (!CHECK_INT(stayed(&e, before, p), strncmp(p->name, "decoder.", 8) != 0)) puts(p->name);
    }
    free(before);
    experiment_close(&e);
}

/* Options of a group that all parameters are in are as good as those of the recipe: with schedules, clipping, batches that
 * change the learning rate, and parameters that do not decay. */
TEST(a_group_of_all_is_as_the_whole) {
    const char *const *const both[] = {
        WITH("optimizer.no_decay=biases", "optimizer.lr=0.02", "optimizer.weight_decay=0.3", "optimizer.beta1=0.8"),
        WITH("optimizer.no_decay=biases", "optimizer.groups.all.match=*", "optimizer.groups.all.lr=0.02",
             "optimizer.groups.all.weight_decay=0.3", "optimizer.groups.all.beta1=0.8")};
    experiment e[2];
    for (int i = 0; i < 2; i++) {
        if (!CHECK(open_with(&e[i], both[i]))) return;
        free(train_some(&e[i]));
    }
    CHECK(memcmp(e[0].params->data, e[1].params->data, (size_t)e[0].params->count * sizeof(float)) == 0);
    double lr;
    CHECK_INT(adamod_group_get(e[1].optimizer, recipe_library_group(&e[1].recipe, 1, true), "lr", &lr), ADAMOD_OK);
    CHECK(lr == 0.02); /* as it was, after updates that changed it */
    CHECK_INT(adamod_get(e[1].optimizer, "lr", &lr), ADAMOD_OK);
    CHECK(lr == 0.01);
    for (int i = 0; i < 2; i++) experiment_close(&e[i]);
}

static const char *refusal(const char *const *assignments) {
    experiment e;
    adamod__fail(ADAMOD_OK, "(none)");
    if (open_with(&e, assignments)) experiment_close(&e);
    return adamod__last_message();
}

TEST(groups_without_parameters_are_refused) {
    CHECK_STR(refusal(WITH("optimizer.groups.head.match=decoder.*,embeding.*")),
              "optimizer.groups.head.match: no parameter is called 'embeding.*'; did you mean 'embedding.*'?");
    CHECK_STR(refusal(WITH("optimizer.groups.head.match=fc")),
              "optimizer.groups.head.match: no parameter is called 'fc'; names begin with embedding,layers,decoder");
    CHECK_STR(refusal(WITH("optimizer.groups.head.match=decoder.bais")),
              "optimizer.groups.head.match: no parameter is called 'decoder.bais'; did you mean 'decoder.bias'?");
    CHECK_STR(refusal(WITH("optimizer.groups.all.match=*", "optimizer.groups.all.freeze=true")),
              "optimizer.groups: all parameters are frozen, nothing is left to train");
}

static train_result run_in(const char *directory, bool resume, const char *const *assignments) {
    train_result out = {0};
    OWNED_RECIPE r = {0};
    const train_options o = {.directory = directory, .resume = resume};
    if (!CHECK(small_recipe(&r, small, assignments) && train_run(&r, &o, &out) == 0)) puts(adamod__last_message());
    return out;
}

/* Also with a rule whose weights to use follow from its states, which what is frozen has not; averaged, too. */
TEST(a_run_with_groups_in_parts_ends_as_one) {
#define GROUPS                                                                                                         \
    "optimizer=schedulefree_adamw", "train.average=2", "optimizer.groups.trunk.match=embedding.*",                     \
        "optimizer.groups.trunk.freeze=true", "optimizer.groups.head.match=decoder.*", "optimizer.groups.head.lr=0.1"
    enter_scratch(true);
    run_in("parts", false, WITH(GROUPS, "train.steps=5"));
    const train_result a = run_in("parts", true, WITH(GROUPS)), b = run_in("whole", false, WITH(GROUPS));
    CHECK(a.train_loss == b.train_loss && a.valid.value[0] == b.valid.value[0] && a.final.value[0] == b.final.value[0]);
    const train_result other = run_in("other", false, WITH(GROUPS, "optimizer.groups.head.lr=0.2"));
    CHECK(other.final.value[0] != b.final.value[0]);
}

RUN_TESTS(ENTRY(frozen_parameters_stay_as_they_are_and_cost_nothing), ENTRY(all_but_one_layer_can_be_frozen),
          ENTRY(a_group_of_all_is_as_the_whole), ENTRY(groups_without_parameters_are_refused),
          ENTRY(a_run_with_groups_in_parts_ends_as_one))
