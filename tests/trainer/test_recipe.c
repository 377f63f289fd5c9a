/* Recipes: what a file and --set may say, what is said about what they may not, and that a recipe survives being
 * written.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "small_recipe.h"
#include "train/epochs.h"
#include "tasks/tasks.h"
#include "tasks/translation.h"
#include "core/error.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA(r) translation_settings_of(&(r))->data
#define MODEL(r) transformer_settings_of(&(r))->model

static int parse(recipe *r, const char *text) {
    adamod__fail(ADAMOD_OK, "%s", "");
    recipe_free(r);
    recipe_defaults(r, tasks_all);
    return recipe_parse(r, text, strlen(text), "demo.yaml");
}

static int set(recipe *r, const char *assignment) { return recipe_set(r, assignment); }
static int check(const recipe *r) { return recipe_check(r); }

/* The message that a text gets, by parsing or else by the check. */
static const char *complaint(const char *text) {
    OWNED_RECIPE r = {0};
    if (parse(&r, text) == 0 && check(&r) == 0) return "(none)";
    return adamod__last_message();
}

static const char *set_complaint(const char *assignment) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    if (set(&r, assignment) == 0 && check(&r) == 0) return "(none)";
    return adamod__last_message();
}

static const char *recipe_file(const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/recipes/%s", source_dir(), name);
    return access(path, R_OK) == 0 ? path : NULL;
}

static void check_round_trip(const recipe *r) {
    OWNED_RECIPE again = {0};
    char *first = recipe_text(r);
    recipe_defaults(&again, tasks_all);
    CHECK_INT(recipe_parse(&again, first, strlen(first), "again"), 0);
    CHECK(recipes_equal(r, &again, false));
    char *second = recipe_text(&again);
    CHECK_STR(first, second);
    free(first);
    free(second);
}

/* ---- what is accepted ---- */

TEST(defaults_are_the_demos_model_and_pass_the_check) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    CHECK_STR(r.name, "numbers");
    CHECK_STR(r.data.task, "numbers");
    CHECK_INT(MODEL(r).layers, 6);
    CHECK_INT(MODEL(r).d, 128);
    CHECK_CLOSE(MODEL(r).smoothing, 0.1, 0);
    CHECK(!MODEL(r).pre_norm && DATA(r).skip_empty);
    CHECK_STR(r.optimizer.rule, "adamod");
    CHECK_INT(r.train.seed, 1);
    CHECK_INT(check(&r), 0);
}

TEST(a_file_sets_what_it_gives_and_nothing_else) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "name: small\n"
                        "model: {layers: 2, d: 64, pre_norm: true, dropout: 2.5e-1}\n"
                        "optimizer:\n"
                        "  rule: adam\n"
                        "  lr: 1e-3\n"
                        "  schedule: {lr: 'warmup_rsqrt(1e-7,4000)'}\n"
                        "train:\n"
                        "  steps: 1e3 # a thousand\n"
                        "  seed: 9007199254740991\n"
                        "decode:\n"),
              0);
    CHECK_STR(r.name, "small");
    CHECK_INT(MODEL(r).layers, 2);
    CHECK(MODEL(r).pre_norm);
    CHECK_CLOSE(MODEL(r).dropout, 0.25, 0);
    CHECK_INT(MODEL(r).ffn, 256);
    CHECK_INT(r.train.steps, 1000);
    CHECK(r.train.seed == UINT64_C(9007199254740991));
    CHECK_STR(r.optimizer.rule, "adam");
    CHECK_INT(r.optimizer.options.n, 1);
    CHECK_STR(r.optimizer.options.at[0].key, "lr");
    CHECK_STR(r.optimizer.options.at[0].value, "1e-3");
    CHECK_INT(r.optimizer.options.at[0].line, 5);
    CHECK_INT(r.optimizer.schedules.n, 1);
    CHECK_STR(r.optimizer.schedules.at[0].key, "lr");
    CHECK_STR(r.optimizer.schedules.at[0].value, "warmup_rsqrt(1e-7,4000)");
    CHECK_INT(check(&r), 0);
}

TEST(set_overrides_the_file) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "train: {steps: 5}\noptimizer: {lr: 1}\n"), 0);
    CHECK_INT(set(&r, "train.steps=7"), 0);
    CHECK_INT(set(&r, "train.steps=8"), 0);
    CHECK_INT(set(&r, "optimizer.lr=0.5"), 0);
    CHECK_INT(set(&r, "optimizer.schedule.lr=warmup(0,500)*500 > cosine(0,10000)"), 0);
    CHECK_INT(set(&r, "model.pre_norm=true"), 0);
    CHECK_INT(r.train.steps, 8);
    CHECK(MODEL(r).pre_norm);
    CHECK_INT(r.optimizer.options.n, 1);
    CHECK_STR(r.optimizer.options.at[0].value, "0.5");
    CHECK_STR(r.optimizer.schedules.at[0].value, "warmup(0,500)*500 > cosine(0,10000)");
    CHECK_INT(check(&r), 0);
}

TEST(an_option_can_be_taken_away) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "optimizer: {lr: 1, beta3: 0.99, eps: 1, schedule: {lr: constant}}\n"), 0);
    CHECK_INT(set(&r, "optimizer.beta3="), 0);
    CHECK_INT(set(&r, "optimizer.schedule.lr="), 0);
    CHECK_INT(check(&r), 0);
    CHECK_INT(r.optimizer.options.n, 2);
    CHECK_STR(r.optimizer.options.at[1].key, "eps");
    CHECK_INT(r.optimizer.schedules.n, 0);
    CHECK(set(&r, "optimizer.beta3="));
    CHECK_STR(adamod__last_message(), "--set: optimizer.beta3 is not set, so it cannot be removed");
    CHECK_STR(complaint("optimizer: {rule: sgd, lr: 1, beta3: 0.99, eps: 1}"),
              "demo.yaml:1: optimizer.beta3: sgd has no such option; --set optimizer.beta3= --set optimizer.eps= "
              "remove them");
    CHECK_STR(complaint("optimizer: {rule: adabound, beta3: 0.99}"),
              "demo.yaml:1: optimizer.beta3: adabound has no such option; --set optimizer.beta3= removes it");
}

/* As --vary has always done it; what no rule has is still a mistake. */
TEST(another_rule_drops_what_it_does_not_have_and_says_so) {
    const char *const words[] = {"optimizer=sgd", "optimizer.rule=sgd"};
    OWNED_RECIPE r = {0};
    char line[1200];
    for (int i = 0; i < 2; i++) {
        CHECK_INT(parse(&r, "optimizer: {lr: 1, beta3: 0.99, eps: 1, weight_decay: 0, schedule: {lr: constant, "
                            "beta3: 'linear(0.9,10)'}}\n"),
                  0);
        CHECK(!recipe_dropped(&r, line, sizeof line));
        CHECK_INT(set(&r, words[i]), 0);
        if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
        CHECK_STR(r.optimizer.rule, "sgd");
        CHECK_INT(r.optimizer.options.n, 2);
        CHECK_STR(r.optimizer.options.at[1].key, "weight_decay");
        CHECK_INT(r.optimizer.schedules.n, 1);
        CHECK(recipe_dropped(&r, line, sizeof line));
        CHECK_STR(line,
                  "optimizer sgd: dropped options of the recipe that it does not have: beta3, eps, schedule.beta3");
    }
    CHECK_INT(set(&r, "optimizer.beta3=") || set(&r, "optimizer.schedule.beta3="), 0); /* as commands before did */
    CHECK(set(&r, "optimizer.momentum="));
    CHECK_INT(set(&r, "optimizer.beta3=0.9"), 0);
    CHECK(check(&r));
    CHECK_STR(adamod__last_message(),
              "--set: optimizer.beta3: sgd has no such option; --set optimizer.beta3= removes it");
    CHECK_INT(parse(&r, "optimizer: {bet3: 0.99}\n") || set(&r, "optimizer=sgd"), 0);
    CHECK(check(&r));
    CHECK_HAS(adamod__last_message(), "demo.yaml:1: optimizer.bet3: sgd has no option 'bet3'");
    CHECK_INT(parse(&r, "optimizer: {beta3: 0.99}\n") || set(&r, "optimizer=sgdd"), 0);
    CHECK_INT(r.optimizer.options.n, 1);
}

TEST(a_recipe_becomes_an_optimizer) {
    OWNED_RECIPE r = {0};
    adamod_optimizer *opt = NULL;
    double x = 0;
    CHECK_INT(parse(&r, "optimizer: {rule: sgd, lr: 0.5, momentum: 0.9, nesterov: true, decay: none}\n"), 0);
    if (!CHECK_INT(recipe_optimizer(&r, "cpu", 0, &opt), 0)) return;
    CHECK_INT(adamod_get(opt, "lr", &x), ADAMOD_OK);
    CHECK_CLOSE(x, 0.5, 0);
    CHECK_INT(adamod_get(opt, "nesterov", &x), ADAMOD_OK);
    CHECK_CLOSE(x, 1, 0);
    adamod_free(opt);
}

TEST(paths_are_made_absolute) {
    char here[PATH_MAX], expected[PATH_MAX + 64];
    OWNED_RECIPE r = {0};
    if (!CHECK(getcwd(here, sizeof here) != NULL)) return;
    recipe_defaults(&r, tasks_all);
    const char *text = "data: {task: bitext, source: de.txt, target: ../en.txt, valid_source: /a/b}\n";
    CHECK_INT(recipe_parse(&r, text, strlen(text), "some/where/r.yaml"), 0);
    snprintf(expected, sizeof expected, "%s/some/where/de.txt", here);
    CHECK_STR(DATA(r).source, expected);
    snprintf(expected, sizeof expected, "%s/some/where/../en.txt", here);
    CHECK_STR(DATA(r).target, expected);
    CHECK_STR(DATA(r).valid_source, "/a/b");
    CHECK_STR(DATA(r).test_source, "");
    recipe_free(&r);
    recipe_defaults(&r, tasks_all);
    CHECK_INT(recipe_parse(&r, text, strlen(text), "/x/r.yaml"), 0);
    CHECK_STR(DATA(r).source, "/x/de.txt");
    CHECK_INT(set(&r, "data.source=train.de"), 0);
    snprintf(expected, sizeof expected, "%s/train.de", here);
    CHECK_STR(DATA(r).source, expected);
    CHECK_INT(set(&r, "data.source="), 0);
    CHECK_STR(DATA(r).source, "");
}

TEST(the_repositorys_recipes_are_good) {
    OWNED_RECIPE r = {0};
    const char *demo = recipe_file("demo.yaml");
    if (!demo) SKIP("the recipes are not here; SOURCE_DIR says where");
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, demo), 0)) printf("%s\n", adamod__last_message());
    if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
    CHECK_INT(r.train.steps, 900);
    CHECK_INT(DATA(r).sentences, 48);
    check_round_trip(&r);
    recipe_free(&r);
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, recipe_file("iwslt14-small.yaml")), 0)) printf("%s\n", adamod__last_message());
    if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
    check_round_trip(&r);
    CHECK_INT(set(&r, "data.set=files"), 0);
    CHECK(check(&r));
    CHECK_HAS(adamod__last_message(), "data.source is not given; data.task bitext needs it");
    const char *const files[] = {"data.source=a", "data.target=b", "data.valid_source=c", "data.valid_target=d"};
    for (int i = 0; i < 4; i++) CHECK_INT(set(&r, files[i]), 0);
    if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
    check_round_trip(&r);
    CHECK_INT(set(&r, "optimizer.rule=adam") || set(&r, "optimizer.beta3="), 0);
    CHECK_INT(set(&r, "optimizer.schedule.lr=warmup_rsqrt(1e-7,4000)"), 0);
    if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
}

/* The paper's table of Transformers (its section on translation): what differs between the models. */
TEST(recipes_of_translation_are_the_papers) {
    static const struct {
        const char *name, *set;
        int d, ffn, heads, tokens, beam;
        double dropout, length_penalty, epochs, beta3;
        bool joint;
    } all[] = {{"iwslt14-small.yaml", "iwslt14-de-en", 512, 1024, 4, 4000, 5, 0.3, 1, 0, 0.9999, false},
               {"wmt14-base.yaml", "wmt14-en-de", 512, 2048, 8, 3584, 4, 0.1, 0.6, 50, 0.999, true},
               {"wmt14-big.yaml", "wmt14-en-de", 1024, 4096, 16, 3584, 4, 0.3, 0.6, 50, 0.9999, true}};
    if (!recipe_file("demo.yaml")) SKIP("the recipes are not here; SOURCE_DIR says where");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        OWNED_RECIPE r = {0};
        recipe_defaults(&r, tasks_all);
        if (!CHECK_INT(recipe_load(&r, recipe_file(all[i].name)), 0)) printf("%s\n", adamod__last_message());
        if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
        const transformer_settings *m = transformer_settings_of(&r);
        const translation_settings *t = translation_settings_of(&r);
        CHECK_STR(t->data.set, all[i].set);
        CHECK(m->model.layers == 6 && m->model.d == all[i].d && m->model.ffn == all[i].ffn);
        CHECK(m->model.heads == all[i].heads && !m->model.pre_norm);
        CHECK(!m->model.share_all && !m->model.tie_output);
        CHECK_CLOSE(m->model.dropout, all[i].dropout, 0);
        CHECK_CLOSE(m->model.smoothing, 0.1, 0);
        CHECK(t->data.joint == all[i].joint && t->data.max_tokens == all[i].tokens && t->decode.beam == all[i].beam);
        CHECK_CLOSE(t->decode.length_penalty, all[i].length_penalty, 0);
        CHECK_CLOSE(r.train.epochs, all[i].epochs, 0);
        CHECK_INT(r.train.average, 10);
        for (int k = 0; k < r.optimizer.options.n; k++) {
            if (strcmp(r.optimizer.options.at[k].key, "beta3") == 0)
                CHECK_CLOSE(atof(r.optimizer.options.at[k].value), all[i].beta3, 0);
        }
        CHECK_STR(r.optimizer.schedules.at[0].value, "constant_rsqrt(4000)");
    }
    OWNED_RECIPE r = {0};
    recipe_free(&r);
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, recipe_file("multi30k.yaml")) || check(&r), 0))
        printf("%s\n", adamod__last_message());
    CHECK(translation_settings_of(&r)->data.raw);
    CHECK_INT(set(&r, "data.target_lang=fr"), 0);
    CHECK(check(&r));
    CHECK_HAS(adamod__last_message(), "data.target_lang is fr, expected en, which data.set multi30k-de-en has");
}

/* Adam is that of PyTorch and fairseq of 2019 in all of them. */
TEST(adam_is_the_same_in_all_recipes_of_the_paper) {
    static const char *const all[] = {
        "cifar10-resnet34.yaml", "cifar10-densenet121.yaml", "cifar100-resnet34.yaml", "cifar100-densenet121.yaml",
        "ptb-lstm.yaml",         "iwslt14-small.yaml",       "wmt14-base.yaml",        "wmt14-big.yaml"};
    if (!recipe_file("demo.yaml")) SKIP("the recipes are not here; SOURCE_DIR says where");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        OWNED_RECIPE r = {0};
        recipe_defaults(&r, tasks_all);
        if (!CHECK_INT(recipe_load(&r, recipe_file(all[i])) || set(&r, "optimizer=adam") || check(&r), 0))
            printf("%s\n", adamod__last_message());
        const recipe_pair *flavour = recipe_find_pair(&r.optimizer.options, "flavour");
        CHECK_STR(flavour ? flavour->value : "none", "published");
        CHECK(!recipe_find_pair(&r.optimizer.options, "bound"));
    }
}

/* ---- epochs ---- */

TEST(how_long_to_train_is_said_once) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "train: {steps: 5}\n"), 0);
    CHECK_INT(set(&r, "train.epochs=200"), 0);
    CHECK_CLOSE(r.train.epochs, 200, 0);
    char *text = recipe_text(&r);
    CHECK_HAS(text, "\n  epochs: 200\n");
    CHECK(!strstr(text, "\n  steps: "));
    free(text);
    check_round_trip(&r);
    CHECK_INT(set(&r, "train.steps=7"), 0);
    CHECK_CLOSE(r.train.epochs, 0, 0);
    CHECK_INT(r.train.steps, 7);
    text = recipe_text(&r);
    CHECK(!strstr(text, "\n  epochs: "));
    free(text);
    CHECK_STR(complaint("train:\n  steps: 3\n  epochs: 2\n"),
              "demo.yaml:3: train.epochs is given, but so is train.steps in line 2: expected one of them");
    CHECK_STR(complaint("train:\n  epochs: 2\n  steps: 3\n"),
              "demo.yaml:3: train.steps is given, but so is train.epochs in line 2: expected one of them");
    CHECK_STR(complaint("train: {epochs: 0, steps: 3}\n"), "(none)");
    CHECK_STR(set_complaint("train.epochs=-1"), "--set: train.epochs is '-1', expected a number from 0 to 1e+06");
}

TEST(intervals_are_of_updates_or_epochs) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "train: {evaluate_every: 1 epoch, checkpoint_every: 2.5epochs}\n"), 0);
    CHECK_CLOSE(r.train.evaluate_every.epochs, 1, 0);
    CHECK_INT(r.train.evaluate_every.updates, 0);
    CHECK_CLOSE(r.train.checkpoint_every.epochs, 2.5, 0);
    char *text = recipe_text(&r);
    CHECK_HAS(text, "  evaluate_every: \"1 epoch\"\n");
    CHECK_HAS(text, "  checkpoint_every: \"2.5 epochs\"\n");
    free(text);
    check_round_trip(&r);
    CHECK_INT(set(&r, "train.evaluate_every=30"), 0);
    CHECK_INT(r.train.evaluate_every.updates, 30);
    CHECK_CLOSE(r.train.evaluate_every.epochs, 0, 0);
    const char *const wrong[] = {"epoch", "1 epochss", "1.5", "-1 epoch", "1 epoch 2", "2e6 epochs", "1 day", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char assignment[64];
        snprintf(assignment, sizeof assignment, "train.evaluate_every=%s", wrong[i]);
        CHECK_HAS(set_complaint(assignment),
                  "expected updates ('100', at most 1000000000000000) or epochs ('1 epoch')");
    }
    CHECK_STR(complaint("train: {average: 3, checkpoint_every: 1 epoch}"), "(none)");
}

TEST(epochs_become_updates) {
    const epoch_length plain = {98, 1}, thirds = {10, 3};
    CHECK_INT(epochs_to_updates(plain, 150), 14700);
    CHECK_INT(epochs_to_updates(plain, 0.001), 1);
    CHECK_INT(epochs_to_updates(thirds, 1), 4); /* the update that ends after the tenth batch */
    CHECK_INT(epochs_to_updates(thirds, 3), 10);
    CHECK_INT(epochs_to_updates((epoch_length){10, 1}, 0.7), 7);
    int64_t seen = 0;
    for (int64_t step = 1; step <= 20; step++) seen += epochs_due(thirds, (key_span){0, 1}, step) ? 1 << step : 0;
    CHECK_INT(seen, 1 << 4 | 1 << 7 | 1 << 10 | 1 << 14 | 1 << 17 | 1 << 20);
    CHECK(epochs_due(plain, (key_span){0, 0.01}, 1) && epochs_due(plain, (key_span){0, 0.01}, 2));
    CHECK(!epochs_due(plain, (key_span){0, 0}, 98));
    CHECK(epochs_due(plain, (key_span){7, 0}, 14) && !epochs_due(plain, (key_span){7, 0}, 15));
    CHECK_CLOSE(epochs_done(plain, 2, 49), 2.5, 0);
    CHECK_CLOSE(epochs_done(thirds, 0, 3), 0.3, 0);
    CHECK_CLOSE(epochs_done(thirds, 4, 11), 4.999999, 0); /* an epoch that is longer than the first was */
}

TEST(schedules_may_count_epochs) {
    char text[256];
    const epoch_length length = {98, 1}, unknown = {0, 1};
    CHECK(epochs_schedule(length, "multistep(150 epochs,225epochs;0.1)", text, sizeof text));
    CHECK_STR(text, "multistep(14700,22050;0.1)");
    CHECK(epochs_schedule(length, "warmup(1e-7,5 epochs)*1 epoch > cosine(0,0.5 epochs)", text, sizeof text));
    CHECK_STR(text, "warmup(1e-7,490)*98 > cosine(0,49)");
    CHECK(epochs_schedule(unknown, "multistep(1 epoch,12.5 epochs;0.1)", text, sizeof text));
    CHECK_STR(text, "multistep(10000  ,125000     ;0.1)");
    CHECK(!epochs_schedule(length, "multistep(150 epochs,225 epochs;0.1)", text, 20));
    CHECK_STR(complaint("optimizer: {rule: sgd, lr: 0.1, schedule: {lr: 'multistep(150 epochs,225 epochs;0.1)'}}"),
              "(none)");
    CHECK_STR(complaint("optimizer: {schedule: {lr: 'multistep(150 epochs 2;0.1)'}}"),
              "demo.yaml:1: optimizer.schedule.lr: schedule 'multistep(150 epochs 2;0.1)': expected ',' or ';' and the "
              "factor at character 22");
    CHECK_HAS(complaint("optimizer: {schedule: {lr: 'cosine(0,5 epoch2)'}}"),
              "schedule 'cosine(0,5 epoch2)': expected ')'");
    CHECK_HAS(complaint("optimizer: {schedule: {lr: 'cosine(0,0 epochs)'}}"),
              "optimizer.schedule.lr: schedule: steps is 0");
}

/* Updates and epochs may be mixed, as their order depends on the data. */
TEST(a_schedule_may_count_both_epochs_and_updates) {
    OWNED_RECIPE r = {0};
    adamod_optimizer *opt = NULL;
    CHECK_INT(parse(&r, "optimizer: {rule: sgd, lr: 0.1, schedule: {lr: 'multistep(1 epoch,20;0.1)'}}"), 0);
    CHECK_INT(check(&r), 0);
    CHECK_INT(recipe_optimizer(&r, "cpu", 19, &opt), 0);
    adamod_free(opt);
    CHECK_INT(recipe_optimizer(&r, "cpu", 20, &opt), -1);
    CHECK_STR(adamod__last_message(),
              "demo.yaml:1: optimizer.schedule.lr: 'multistep(1 epoch,20;0.1)' is 'multistep(20,20;0.1)' in "
              "updates: multistep: milestone 2 is 20, expected ascending numbers from 1");
}

/* ---- groups of parameters ---- */

TEST(groups_have_options_of_their_own) {
    OWNED_RECIPE r = {0};
    recipe_group groups[RECIPE_MAX_GROUPS];
    adamod_optimizer *opt = NULL;
    double lr, decay;
    bool frozen;
    CHECK_INT(parse(&r, "optimizer:\n  rule: adam\n  weight_decay: 0.5\n  no_decay: biases\n  groups:\n"
                        "    trunk: {match: [stem.*, 'stages.*'], freeze: true}\n"
                        "    head:\n      lr: 0.25\n      match: 'linear.*, *.bias'\n"),
              0);
    if (!CHECK_INT(check(&r), 0)) printf("%s\n", adamod__last_message());
    check_round_trip(&r);
    CHECK_INT(recipe_groups(&r, groups), 2);
    CHECK_STR(groups[0].name, "trunk");
    CHECK_STR(groups[0].match, "stem.*,stages.*");
    CHECK(groups[0].freeze && !groups[1].freeze);
    CHECK_STR(groups[1].match, "linear.*,*.bias");
    CHECK_INT(recipe_group_of(&r, "stem.conv.weight", &frozen), 1);
    CHECK(frozen);
    CHECK_INT(recipe_group_of(&r, "stem.norm.bias", &frozen), 2); /* the last that matches */
    CHECK(!frozen);
    CHECK_INT(recipe_group_of(&r, "shift", &frozen), 0);
    CHECK(!frozen);
    CHECK_INT(recipe_optimizer(&r, "cpu", 0, &opt), 0);
    CHECK_INT(recipe_library_groups(&r), 6);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(adamod_group_get(opt, i, "lr", &lr) || adamod_group_get(opt, i, "weight_decay", &decay), ADAMOD_OK);
        CHECK_CLOSE(lr, i < 4 ? 1e-3 : 0.25, 0);
        CHECK_CLOSE(decay, i % 2 ? 0 : 0.5, 0);
    }
    CHECK_INT(recipe_library_group(&r, 2, true), 5);
    adamod_free(opt);
    CHECK_INT(set(&r, "optimizer.groups.head.lr=0.5") || set(&r, "optimizer.groups.trunk="), 0);
    CHECK_INT(recipe_groups(&r, groups), 1);
    CHECK_STR(recipe_group_option(&r, "head", 0)->value, "0.5");
    CHECK_INT(set(&r, "optimizer.groups.head.beta2=0.9") || set(&r, "optimizer=sgd") || check(&r), 0);
    CHECK(!recipe_group_option(&r, "head", 1));
    char line[1200];
    CHECK(recipe_dropped(&r, line, sizeof line) && strstr(line, "groups.head.beta2"));
}

TEST(wrong_groups_are_named) {
    CHECK_STR(complaint("optimizer:\n  groups:\n    head: {lr: 1}"),
              "demo.yaml:3: optimizer.groups.head has no match, expected names of parameters, such as 'stem.*'");
    CHECK_STR(complaint("optimizer:\n  groups:\n    head: {match: x, lr: -1}"),
              "demo.yaml:3: optimizer.groups.head.lr: lr is -1, expected 0 <= lr < inf");
    CHECK_STR(complaint("optimizer:\n  groups:\n    head: {match: x, lrr: 1}"),
              "demo.yaml:3: optimizer.groups.head.lrr: adamod has no option 'lrr'; did you mean 'lr'?");
    CHECK_STR(complaint("optimizer:\n  groups:\n    head: {match: x, freeze: 1}"),
              "demo.yaml:3: optimizer.groups.head.freeze is '1', expected true or false");
    CHECK_STR(
        complaint("optimizer:\n  groups:\n    head: {match: x, seed: 1}"),
        "demo.yaml:3: optimizer.groups.head.seed: seed is of the whole optimizer, so it cannot differ between groups");
    CHECK_STR(complaint("optimizer:\n  groups:\n    head: {match: x, match: y}"),
              "demo.yaml:3: optimizer.groups.head.match is given twice, first in line 3");
    CHECK_HAS(complaint("optimizer:\n  groups:\n    - {match: x}"), "optimizer.groups is a list, expected a section");
    CHECK_HAS(complaint("optimizer:\n  groups:\n    head: x"), "optimizer.groups.head is a section");
    CHECK_STR(set_complaint("optimizer.groups.head="),
              "--set: optimizer.groups.head is not set, so it cannot be removed");
    CHECK_STR(set_complaint("optimizer.group.head.lr=1"),
              "--set: optimizer.group.head.lr: no such key; did you mean optimizer.groups.NAME.lr?");
    CHECK_STR(set_complaint("optimizer.groups.head.lr.x=1"),
              "--set: optimizer.groups.head.lr.x: no such key; a group has match, freeze and options of the rule");
    /* names as long as they may be by themselves, but not together */
    CHECK_HAS(set_complaint("optimizer.groups.a23456789012345678901234567890.b2345678901234567890123456789012345678=1"),
              "no such key; a group has match, freeze and options of the rule");
    CHECK_HAS(set_complaint("optimizer.groups.a2345678901234567890123456789012.lr=1"), "no such key");
    OWNED_RECIPE r = {0};
    char text[64];
    CHECK_INT(parse(&r, "name: a\n"), 0);
    for (int i = 0; i <= RECIPE_MAX_GROUPS; i++) {
        snprintf(text, sizeof text, "optimizer.groups.g%d.match=x", i);
        CHECK_INT(set(&r, text), 0);
    }
    CHECK(check(&r));
    CHECK_STR(adamod__last_message(), "--set: optimizer.groups.g16: too many groups, expected at most 16");
}

/* ---- lists ---- */

TEST(a_list_may_be_written_as_yaml_or_with_commas) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "optimizer:\n  rule: adam\n  no_decay: [norms, biases]\n"), 0);
    CHECK_STR(r.optimizer.no_decay, "biases,norms");
    CHECK_INT(check(&r), 0);
    check_round_trip(&r);
    CHECK_INT(parse(&r, "optimizer:\n  no_decay:\n  - norms\n"), 0);
    CHECK_STR(r.optimizer.no_decay, "norms");
    CHECK_INT(set(&r, "optimizer.no_decay=biases, norms"), 0);
    CHECK_STR(r.optimizer.no_decay, "biases,norms");
    CHECK_INT(set(&r, "optimizer.no_decay="), 0);
    CHECK_STR(r.optimizer.no_decay, "");
    CHECK_INT(parse(&r, "optimizer: {no_decay: []}\n"), 0);
    CHECK_STR(complaint("optimizer: {no_decay: [biases, weights]}"),
              "demo.yaml:1: optimizer.no_decay is 'biases,weights', expected a list of biases or norms, with commas "
              "between them");
    CHECK_HAS(set_complaint("optimizer.no_decay=biases,biases"), "expected a list of");
    CHECK_HAS(set_complaint("optimizer.no_decay=,"), "expected a list of");
    CHECK_HAS(complaint("optimizer: {no_decay: [[biases]]}"), "optimizer.no_decay: expected a list of words");
    CHECK_HAS(complaint("optimizer: {no_decay: {biases: 1}}"), "optimizer.no_decay is a section, expected a list of");
}

TEST(numbers_may_be_written_as_a_yaml_list) {
    OWNED_RECIPE r = {0};
    CHECK_INT(
        parse(&r, "data: {task: images, mean: [0.5, 0.4,0.3]}\nmodel: {kind: resnet, blocks: [1, 2], widths: '8, 16'}"),
        0);
    CHECK_INT(check(&r), 0);
    char *text = recipe_text(&r);
    CHECK_HAS(text, "  blocks: \"1,2\"\n");
    CHECK_HAS(text, "  widths: \"8,16\"\n");
    CHECK_HAS(text, "  mean: \"0.5,0.4,0.3\"\n");
    free(text);
    check_round_trip(&r);
    CHECK_HAS(complaint("data: {task: images}\nmodel: {kind: densenet, blocks: 2 2}"),
              "model.blocks is '2 2', expected");
    CHECK_STR(complaint("data: {task: images}\nmodel: {kind: densenet, blocks: {a: 1}}"),
              "demo.yaml:2: model.blocks is a section, expected numbers with commas between them");
    CHECK_HAS(complaint("data: {task: images}\nmodel: {kind: densenet, blocks: [2, x]}"),
              "model.blocks is '2,x', expected 1 to 8 whole numbers");
}

/* ---- what is written ---- */

TEST(a_written_recipe_reads_back_the_same) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    check_round_trip(&r);
    const char *const all[] = {"name=\"quoted\" \\ back: #not a comment",
                               "data.task=bitext",
                               "data.source=/tmp/\xc3\xbc\xe2\x82\xac x",
                               "data.target=/a/\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\xf0\x9f\x98\x80",
                               "data.joint=true",
                               "data.max_ratio=1.1",
                               "model.dropout=0.30000000000000004",
                               "model.smoothing=1e-300",
                               "optimizer.lr=3e-3",
                               "optimizer.flavour=keras",
                               "optimizer.maximize=true",
                               "optimizer.clip_norm=inf",
                               "optimizer.schedule.lr=warmup(1e-7,4000)*4000 > constant",
                               "optimizer.schedule.beta3=linear(0.9999,1000)",
                               "train.steps=1000000000000000",
                               "train.seed=9007199254740991",
                               "decode.length_penalty=0.6"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!CHECK_INT(set(&r, all[i]), 0)) printf("%s\n", adamod__last_message());
        check_round_trip(&r);
    }
    char *text = recipe_text(&r);
    CHECK_HAS(text, "  dropout: 0.30000000000000004\n");
    CHECK_HAS(text, "  attention_dropout: 0\n");
    CHECK_HAS(text, "  joint: true\n");
    CHECK_HAS(text, "  lr: 3e-3\n");
    free(text);
}

TEST(words_that_yaml_takes_for_others_are_quoted) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    CHECK_INT(set(&r, "name=no"), 0);
    char *text = recipe_text(&r);
    CHECK_HAS(text, "name: \"no\"\n");
    free(text);
    check_round_trip(&r);
}

TEST(a_full_disk_is_noticed) {
    OWNED_RECIPE r = {0};
    FILE *full = fopen("/dev/full", "w");
    if (!full) SKIP("no /dev/full");
    recipe_defaults(&r, tasks_all);
    CHECK_INT(recipe_write(&r, full), -1);
    fclose(full);
}

TEST(every_key_is_described_in_a_line) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    if (!CHECK(file != NULL)) return;
    recipe_describe(file, tasks_all);
    fclose(file);
    CHECK_HAS(text, "data.tokens");
    CHECK_HAS(text, "words or characters");
    CHECK_HAS(text, "a whole number from 1 to 1000 ");
    CHECK_HAS(text, "optimizer.schedule.OPTION");
    CHECK_HAS(text, "optimizer.groups.NAME.match");
    free(text);
}

/* ---- what is refused ---- */

TEST(unknown_keys_get_the_nearest) {
    CHECK_STR(complaint("model:\n  d: 4\n  layer: 3\n"),
              "demo.yaml:3: model.layer: no such key; did you mean model.layers?");
    CHECK_STR(complaint("steps: 3\n"), "demo.yaml:1: steps: no such key; did you mean train.steps?");
    CHECK_STR(complaint("model: {steps: 3}\n"), "demo.yaml:1: model.steps: no such key; did you mean train.steps?");
    CHECK_STR(complaint("modell: {d: 3}\n"), "demo.yaml:1: modell: no such key; did you mean model?");
    CHECK_STR(complaint("modle: {d: 3}\n"), "demo.yaml:1: modle: no such key; did you mean model?");
    CHECK_STR(complaint("tarin: {steps: 3}\n"), "demo.yaml:1: tarin: no such key; did you mean train?");
    CHECK_STR(complaint("xyzzy: 3\n"),
              "demo.yaml:1: xyzzy: no such key; a recipe has name, data, model, optimizer, train, decode");
    char longest[152] = ""; /* near to nothing, long as it is */
    memset(longest, 'x', 148);
    CHECK_HAS(set_complaint(strcat(longest, "=3")), ": no such key; a recipe has name, data, model,");
    CHECK_STR(set_complaint("train.stpes=3"), "--set: train.stpes: no such key; did you mean train.steps?");
    CHECK_STR(set_complaint("optimiser.lr=3"), "--set: optimiser.lr: no such key; did you mean optimizer.lr?");
    CHECK_STR(set_complaint("decode.qqqqqq=3"),
              "--set: decode.qqqqqq: no such key; decode has beam, max_length, length_penalty, samples");
}

TEST(wrong_values_get_what_was_expected) {
    CHECK_STR(complaint("train:\n  steps: many\n"),
              "demo.yaml:2: train.steps is 'many', expected a whole number from 1 to 1000000000000000");
    CHECK_STR(complaint("model: {layers: 0}"),
              "demo.yaml:1: model.layers is '0', expected a whole number from 1 to 1000");
    CHECK_STR(complaint("model: {layers: 1.5}"),
              "demo.yaml:1: model.layers is '1.5', expected a whole number from 1 to 1000");
    CHECK_STR(complaint("model: {layers: }"),
              "demo.yaml:1: model.layers is empty, expected a whole number from 1 to 1000");
    CHECK_STR(complaint("model: {layers: ~}"),
              "demo.yaml:1: model.layers is empty, expected a whole number from 1 to 1000");
    CHECK_STR(complaint("model: {dropout: 1}"),
              "demo.yaml:1: model.dropout is '1', expected a number from 0 to less than 1");
    CHECK_STR(complaint("model: {dropout: nan}"),
              "demo.yaml:1: model.dropout is 'nan', expected a number from 0 to less than 1");
    CHECK_STR(complaint("model: {pre_norm: yes}"), "demo.yaml:1: model.pre_norm is 'yes', expected true or false");
    CHECK_STR(complaint("data: {tokens: words}"),
              "demo.yaml:1: data.tokens is words, expected characters, which data.task numbers is made of");
    CHECK_STR(
        complaint("data: {max_length: 94}"),
        "demo.yaml:1: data.max_length is 94, expected at least 95: the longest of data.task numbers would be cut");
    CHECK_STR(complaint("data: {max_length: 95}"), "(none)");
    CHECK_STR(complaint("data: {tokens: bytes}"), "demo.yaml:1: data.tokens is 'bytes', expected words or characters");
    CHECK_STR(complaint("train: {backend: gpu}"),
              "demo.yaml:1: train.backend is 'gpu', expected auto, ref, cpu, cuda or cuda:0 to cuda:7");
    CHECK_STR(set_complaint("train.seed=-1"),
              "--set: train.seed is '-1', expected a whole number from 0 to 9007199254740991");
    const char *const numbers[] = {"0x10", " 5", "5 ",  "5a",    "1e",  "1e+",  "e5",
                                   ".",    "-",  "inf", "1e999", "--5", "1_000"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[64];
        snprintf(text, sizeof text, "train.steps=%s", numbers[i]);
        CHECK_HAS(set_complaint(text), "expected a whole number from 1 to");
    }
    CHECK_HAS(set_complaint("train.steps"), "--set: 'train.steps' is not KEY=VALUE");
    CHECK_HAS(set_complaint("=3"), "is not KEY=VALUE");
    CHECK_HAS(set_complaint("train=adam"), "train is a section");
}

TEST(keys_are_given_once) {
    CHECK_STR(complaint("model:\n  d: 4\n  d: 4\n"), "demo.yaml:3: model.d is given twice, first in line 2");
    CHECK_STR(complaint("model:\n  d: 4\ntrain:\nmodel:\n  heads: 4\n"),
              "demo.yaml:4: model is given twice, first in line 1");
    CHECK_STR(complaint("optimizer:\n  lr: 4\n  lr: 4\n"), "demo.yaml:3: optimizer.lr is given twice, first in line 2");
}

TEST(lists_and_sections_stand_where_they_belong) {
    CHECK_STR(complaint("model: {layers: [1, 2]}"),
              "demo.yaml:1: model.layers is a list, expected a whole number from 1 to 1000");
    CHECK_STR(complaint("model: {layers: {a: 2}}"),
              "demo.yaml:1: model.layers is a section, expected a whole number from 1 to 1000");
    CHECK_STR(complaint("model: [1]"), "demo.yaml:1: model is a list, expected a section: keys with values");
    CHECK_STR(complaint("model: 3"), "demo.yaml:1: model is a section: its keys are set one by one");
    CHECK_STR(complaint("optimizer: {lr: [3]}"), "demo.yaml:1: optimizer.lr is a list, expected a value");
    CHECK_STR(complaint("model.layers: 3"),
              "demo.yaml:1: model.layers: sections are not written with dots in a file: put layers below model:");
    CHECK_STR(complaint("- name\n"), "demo.yaml:1: expected keys with values ('name: ...')");
    CHECK_STR(complaint("hello\n"), "demo.yaml:1: expected keys with values ('name: ...')");
    CHECK_STR(complaint("? [a]\n: 3\n"), "demo.yaml:1: a key is a list, expected a word");
    CHECK_HAS(complaint(""), "it is empty");
    CHECK_HAS(complaint("# nothing but a comment\n"), "it is empty");
    CHECK_HAS(complaint("name: a\n---\nname: b\n"), "demo.yaml:2: a second document begins");
}

TEST(yaml_that_recipes_do_not_need_is_refused) {
    const char *const texts[] = {"name: &a b\n", "name: *a\n",         "name: !!str b\n",
                                 "name: !x b\n", "model: &m {d: 4}\n", "&k name: b\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_HAS(complaint(texts[i]), "demo.yaml:1: anchors (&), aliases (*) and tags (!) have no place in a recipe");
    }
}

TEST(malformed_yaml_gets_line_and_column) {
    CHECK_HAS(complaint("model: {layers: 3\n"), "demo.yaml:2:1: not YAML: ");
    CHECK_HAS(complaint("model:\n\tlayers: 3\n"), "demo.yaml:2:1: not YAML: ");
    CHECK_HAS(complaint("name: a\nmodel:\n  d: \"4\n"), "demo.yaml:4:1: not YAML: ");
    CHECK_HAS(complaint("name: a\x01\n"), "demo.yaml:1:8: not YAML: control characters are not allowed");
    CHECK_HAS(complaint("name: a\nmodel: \xff\n"), "demo.yaml:2:8: not YAML: ");
}

TEST(texts_are_one_line_of_utf8) {
    CHECK_STR(complaint("name: \"a\\nb\"\n"), "demo.yaml:1: name contains a control character or a line break");
    CHECK_STR(complaint("name: \"a\\0b\"\n"), "demo.yaml:1: name contains a zero byte");
    CHECK_STR(complaint("\"na\\0me\": b\n"), "demo.yaml:1: a key contains a zero byte");
    CHECK_STR(set_complaint("name=a\xff"), "--set: name is not UTF-8");
    CHECK_STR(set_complaint("optimizer.lr=1\x1b[31m"),
              "--set: optimizer.lr contains a control character or a line break");
    CHECK_STR(set_complaint("name=0123456789012345678901234567890123456789012345678901234567890123"),
              "--set: name is longer than 63 bytes");
    CHECK_STR(set_complaint("name=a/b"), "--set: name is 'a/b', expected one without '/' that does not begin with '.'");
    CHECK(!strpbrk(complaint("\"x\\ny\\ez\": b\n"), "\n\r\033"));
    char lengthy[700] = "data.source=/";
    memset(lengthy + strlen(lengthy), 'x', 600);
    CHECK_STR(set_complaint(lengthy), "--set: data.source is longer than 511 bytes");
}

TEST(the_library_checks_the_optimizer) {
    CHECK_STR(complaint("optimizer:\n  rule: adammod\n"),
              "demo.yaml:2: optimizer.rule: no rule 'adammod'; did you mean 'adamod'?");
    CHECK_STR(complaint("optimizer:\n  lr: -1\n"), "demo.yaml:2: optimizer.lr: lr is -1, expected 0 <= lr < inf");
    CHECK_STR(complaint("optimizer:\n  lr: fast\n"), "demo.yaml:2: optimizer.lr: lr is 'fast', expected a number");
    CHECK_STR(complaint("optimizer:\n  bta3: 1\n"),
              "demo.yaml:2: optimizer.bta3: adamod has no option 'bta3'; did you mean 'beta3'?");
    CHECK_HAS(complaint("optimizer:\n  flavour: vanilla\n"),
              "demo.yaml:2: optimizer.flavour: flavour is 'vanilla', expected one of paper, published, keras");
    CHECK_HAS(complaint("optimizer:\n  schedule:\n    lr: up(3)\n"),
              "demo.yaml:3: optimizer.schedule.lr: schedule 'up(3)': ");
    CHECK_HAS(complaint("optimizer:\n  schedule:\n    flavour: constant\n"),
              "demo.yaml:3: optimizer.schedule.flavour: ");
    CHECK_HAS(complaint("optimizer:\n  schedule:\n    nope: constant\n"), "demo.yaml:3: optimizer.schedule.nope: ");
    CHECK_STR(set_complaint("optimizer.beta3=1"), "--set: optimizer.beta3: beta3 is 1, expected 0 <= beta3 < 1");
    CHECK_STR(set_complaint("optimizer.lr=nan"), "--set: optimizer.lr: lr is nan, expected 0 <= lr < inf");
    CHECK_STR(complaint("optimizer:\n  lr:\n"), "demo.yaml:2: optimizer.lr is empty");
}

TEST(keys_must_fit_together) {
    CHECK_STR(set_complaint("model.heads=3"), "--set: model.heads is 3, which does not divide model.d 128");
    CHECK_HAS(complaint("model: {d: 3, heads: 1}"), "demo.yaml:1: model.d is 3, expected an even number");
    CHECK_HAS(set_complaint("model.share_all=true"), "data.joint must be true");
    CHECK_HAS(set_complaint("data.source=/x"), "--set: data.source is given, but data.task numbers has no such key");
    CHECK_HAS(set_complaint("data.task=bitext"), "data.source is not given; data.task bitext needs it");
    CHECK_HAS(complaint("data: {task: bitext, source: a, target: b, valid_source: c, valid_target: d, test_target: e}"),
              "demo.yaml: data.test_source is not given");
    CHECK_HAS(set_complaint("data.max_ratio=0.5"), "data.max_ratio is 0.5, expected 0 or at least 1");
    CHECK_HAS(set_complaint("data.max_tokens=175"), "data.max_tokens is 175: a sentence of data.max_length 175");
    CHECK_HAS(complaint("train: {average: 3, checkpoint_every: 0}"), "train.average is 3");
    CHECK_STR(complaint("train: {test: averaged}"),
              "demo.yaml:1: train.test is averaged, but train.average is 0: it says how many checkpoints");
    CHECK_STR(complaint("train: {patience: 3, evaluate_every: 0}"),
              "demo.yaml:1: train.patience is 3, but train.evaluate_every 0 evaluates at the end only");
}

TEST(too_many_options_are_refused) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    for (int i = 0; i < RECIPE_MAX_OPTIONS; i++) {
        char text[32];
        snprintf(text, sizeof text, "optimizer.o%d=1", i);
        CHECK_INT(set(&r, text), 0);
    }
    CHECK(set(&r, "optimizer.lr=1"));
    CHECK_STR(adamod__last_message(), "--set: optimizer.lr: too many keys, expected at most 40");
    CHECK_INT(set(&r, "optimizer.o3=2"), 0);
}

TEST(a_failed_call_changes_nothing) {
    OWNED_RECIPE r = {0}, before = {0};
    CHECK_INT(parse(&r, "name: x\noptimizer: {lr: 3}\n"), 0);
    CHECK_INT(recipe_copy(&before, &r), 0);
    const char *text = "name: y\nmodel: {d: 256}\noptimizer: {beta1: 0.5}\ntrain: {steps: no}\n";
    CHECK(recipe_parse(&r, text, strlen(text), "other.yaml"));
    CHECK(set(&r, "model.d=x") && set(&r, "optimizer.lr=\x01") && set(&r, "nothing=1"));
    CHECK(recipes_equal(&r, &before, true));
}

/* Enums have the order of their choices. */
TEST(choices_become_enums) {
    const struct {
        const char *assignment;
        size_t offset;
        int value;
    } all[] = {{"train.sum=ordered", offsetof(recipe, train.sum), COMM_ORDERED},
               {"train.sum=fast", offsetof(recipe, train.sum), COMM_FAST},
               {"train.overlap=auto", offsetof(recipe, train.overlap), OVERLAP_AUTO},
               {"train.overlap=on", offsetof(recipe, train.overlap), OVERLAP_ON},
               {"train.overlap=off", offsetof(recipe, train.overlap), OVERLAP_OFF},
               {"train.comm=auto", offsetof(recipe, train.comm), SUM_BY_ANY},
               {"train.comm=mpi", offsetof(recipe, train.comm), SUM_BY_MPI},
               {"train.comm=nccl", offsetof(recipe, train.comm), SUM_BY_NCCL},
               {"train.precision=auto", offsetof(recipe, train.precision), PRECISION_AUTO},
               {"train.precision=full", offsetof(recipe, train.precision), PRECISION_FULL},
               {"train.precision=tf32", offsetof(recipe, train.precision), PRECISION_TF32},
               {"train.precision=mixed", offsetof(recipe, train.precision), PRECISION_MIXED},
               {"train.nonfinite=stop", offsetof(recipe, train.nonfinite), STOP_TRAINING},
               {"train.nonfinite=skip", offsetof(recipe, train.nonfinite), SKIP_UPDATE}};
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int value;
        CHECK_INT(set(&r, all[i].assignment), 0);
        memcpy(&value, (const char *)&r + all[i].offset, sizeof value);
        if (!CHECK_INT(value, all[i].value)) puts(all[i].assignment);
        check_round_trip(&r);
    }
}

TEST(a_copy_is_a_recipe_of_its_own) {
    OWNED_RECIPE r = {0}, copy = {0};
    CHECK_INT(parse(&r, "model: {d: 64}\noptimizer: {lr: 3, schedule: {lr: constant}}\n"), 0);
    CHECK_INT(recipe_copy(&copy, &r), 0);
    CHECK(recipes_equal(&r, &copy, true));
    CHECK_INT(set(&copy, "optimizer.lr=4") || set(&copy, "model.d=32") || set(&copy, "optimizer.eps=1"), 0);
    CHECK_STR(r.optimizer.options.at[0].value, "3");
    CHECK_INT(r.optimizer.options.n, 1);
    CHECK_INT(MODEL(r).d, 64);
    CHECK_INT(MODEL(copy).d, 32);
}

TEST(a_second_file_forgets_the_lines_of_the_first) {
    OWNED_RECIPE r = {0};
    CHECK_INT(parse(&r, "model: {heads: 3}\noptimizer: {lr: 3}\n"), 0);
    CHECK_INT(recipe_parse(&r, "optimizer: {lr: 4}\n", 19, "b.yaml"), 0);
    CHECK(check(&r));
    CHECK_STR(adamod__last_message(), "b.yaml: model.heads is 3, which does not divide model.d 128");
    CHECK_STR(r.optimizer.options.at[0].value, "4");
}

/* ---- files ---- */

static char directory[] = "/tmp/test_recipe.XXXXXX";

static const char *file_complaint(const char *name, const char *bytes, size_t n) {
    static char path[128];
    OWNED_RECIPE r = {0};
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = bytes ? fopen(path, "wb") : NULL;
    if (file) {
        fwrite(bytes, 1, n, file);
        fclose(file);
    }
    recipe_defaults(&r, tasks_all);
    adamod__fail(ADAMOD_OK, "%s", "");
    const int status = recipe_load(&r, path);
    unlink(path);
    if (status == 0) return "(none)";
    const char *colon = strchr(adamod__last_message(), ':');
    CHECK(!strncmp(adamod__last_message(), path, strlen(path)));
    return colon ? colon + 2 : adamod__last_message();
}

TEST(files_that_are_no_recipes_are_refused) {
    if (!CHECK(mkdtemp(directory) != NULL)) return;
    CHECK_STR(file_complaint("good.yaml", "name: x\n", 8), "(none)");
    CHECK_STR(file_complaint("missing.yaml", NULL, 0), "No such file or directory");
    CHECK_STR(file_complaint("zero.yaml", "name: \0x", 8), "it contains a zero byte, expected text in UTF-8");
    CHECK_STR(file_complaint(".", NULL, 0), "it is a directory, expected a YAML file");
    char *large = malloc((1 << 20) + 1);
    if (CHECK(large != NULL)) {
        memset(large, '#', (1 << 20) + 1);
        CHECK_STR(file_complaint("large.yaml", large, (1 << 20) + 1),
                  "it is larger than 1048576 bytes, expected a recipe");
        memcpy(large, "name: x\n", 8);
        CHECK_STR(file_complaint("most.yaml", large, 1 << 20), "(none)");
    }
    free(large);
    rmdir(directory);
}

/* ---- comparing ---- */

static const char *difference(const char *then, const char *now) {
    OWNED_RECIPE a = {0}, b = {0};
    if (parse(&a, then) || check(&a) || parse(&b, now) || check(&b)) return adamod__last_message();
    return recipe_compare(&a, &b, 0) ? adamod__last_message() : "(none)";
}

TEST(what_may_differ_when_a_run_is_resumed) {
    CHECK_STR(difference("name: a\n", "optimizer: {no_decay: [norms]}\n"),
              "optimizer.no_decay is norms, but was empty");
    CHECK_STR(
        difference("name: a\n", "name: b\ntrain: {steps: 5000, threads: 3, evaluate_every: 7}\ndecode: {beam: 2}\n"),
        "(none)");
    CHECK_STR(difference("model: {d: 128}", "model: {d: 256}"), "model.d is 256, but was 128");
    CHECK_STR(difference("train: {seed: 1}", "train: {seed: 2}"), "train.seed is 2, but was 1");
#define GROUP(text) "optimizer: {groups: {head: {match: a" text "}}}"
    CHECK_STR(difference(GROUP(", lr: 1e-1, freeze: false"), GROUP(", lr: 0.1")), "(none)");
    CHECK_STR(difference(GROUP(", lr: 1"), GROUP(", lr: 2")), "optimizer.groups.head.lr is 2, but was 1");
    CHECK_STR(difference(GROUP(""), GROUP(", freeze: true")), "optimizer.groups.head.freeze is true, but was false");
    CHECK_STR(difference(GROUP(""), GROUP("b")), "optimizer.groups.head.match is ab, but was a");
    CHECK_STR(difference("name: a", GROUP("")), "optimizer.groups.head.match is a, but was not given");
    CHECK_STR(difference(GROUP(""), "name: a"), "optimizer.groups.head.match is not given, but was a");
    CHECK_STR(difference("optimizer: {rule: adam}", "optimizer: {rule: adamod}"),
              "optimizer.rule is adamod, but was adam");
    CHECK_STR(difference("optimizer: {lr: 3e-3, beta3: 0.999}", "optimizer: {lr: 0.003, threads: 2}"), "(none)");
    CHECK_STR(difference("optimizer: {lr: 3e-3}", "optimizer: {lr: 3e-4}"), "optimizer.lr is 0.0003, but was 0.003");
    CHECK_STR(difference("optimizer: {}", "optimizer: {flavour: keras}"), "optimizer.flavour is keras, but was paper");
    CHECK_STR(difference("optimizer: {}", "optimizer: {schedule: {lr: constant}}"), "(none)");
    CHECK_STR(difference("optimizer: {}", "optimizer: {schedule: {lr: 'warmup(0,9)'}}"),
              "optimizer.schedule.lr is warmup(0,9), but was constant");
}

RUN_TESTS(ENTRY(defaults_are_the_demos_model_and_pass_the_check), ENTRY(a_file_sets_what_it_gives_and_nothing_else),
          ENTRY(set_overrides_the_file), ENTRY(an_option_can_be_taken_away),
          ENTRY(another_rule_drops_what_it_does_not_have_and_says_so), ENTRY(a_recipe_becomes_an_optimizer),
          ENTRY(paths_are_made_absolute), ENTRY(the_repositorys_recipes_are_good),
          ENTRY(recipes_of_translation_are_the_papers), ENTRY(adam_is_the_same_in_all_recipes_of_the_paper),
          ENTRY(how_long_to_train_is_said_once), ENTRY(intervals_are_of_updates_or_epochs),
          ENTRY(epochs_become_updates), ENTRY(schedules_may_count_epochs),
          ENTRY(a_schedule_may_count_both_epochs_and_updates), ENTRY(groups_have_options_of_their_own),
          ENTRY(wrong_groups_are_named), ENTRY(a_list_may_be_written_as_yaml_or_with_commas),
          ENTRY(numbers_may_be_written_as_a_yaml_list), ENTRY(a_written_recipe_reads_back_the_same),
          ENTRY(words_that_yaml_takes_for_others_are_quoted), ENTRY(a_full_disk_is_noticed),
          ENTRY(every_key_is_described_in_a_line), ENTRY(unknown_keys_get_the_nearest),
          ENTRY(wrong_values_get_what_was_expected), ENTRY(keys_are_given_once),
          ENTRY(lists_and_sections_stand_where_they_belong), ENTRY(yaml_that_recipes_do_not_need_is_refused),
          ENTRY(malformed_yaml_gets_line_and_column), ENTRY(texts_are_one_line_of_utf8),
          ENTRY(the_library_checks_the_optimizer), ENTRY(keys_must_fit_together), ENTRY(too_many_options_are_refused),
          ENTRY(a_failed_call_changes_nothing), ENTRY(choices_become_enums), ENTRY(a_copy_is_a_recipe_of_its_own),
          ENTRY(a_second_file_forgets_the_lines_of_the_first), ENTRY(files_that_are_no_recipes_are_refused),
          ENTRY(what_may_differ_when_a_run_is_resumed))
