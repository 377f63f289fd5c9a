/* The task language: the generated language, lengths of batches, the state that is carried on, text files, runs in parts,
 * and what is wrong with bad text.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "models/lstm.h"
#include "scratch.h"
#include "small_recipe.h"
#include "tasks/language.h"
#include "tasks/tasks.h"
#include "train/loop.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const char small[] =
    "data: {task: language, words: 4, branches: 2, order: 1, train: 2000, valid: 203, test: 100, batch: 4, length: 10,\n"
    "  spread: 2, valid_batch: 3, score_length: 20}\n"
    "model: {layers: 2, embedding: 8, hidden: 12}\n"
    "optimizer: {rule: adamod, lr: 1e-2, clip_norm: 0.25}\n"
    "train: {steps: 11, evaluate_every: 5, checkpoint_every: 4, threads: 1, backend: cpu}\n";
#define NO_DROPOUT                                                                                                     \
    "model.output_dropout=0", "model.layer_dropout=0", "model.input_dropout=0", "model.word_dropout=0",                \
        "model.weight_dropout=0", "model.activity=0", "model.change=0"

static bool set_all(recipe *r, const char *const *assignments) { return small_recipe(r, small, assignments); }

static bool open_with(experiment *e, const char *const *assignments) {
    OWNED_RECIPE r = {0};
    return set_all(&r, assignments) && experiment_open(e, &r, NULL, TASK_TRAIN | TASK_SCORE) == 0;
}

static train_result run_in(const char *directory, bool resume, const char *const *assignments) {
    train_result out = {0};
    OWNED_RECIPE r = {0};
    const train_options o = {.directory = directory, .resume = resume};
    if (!CHECK(set_all(&r, assignments) && train_run(&r, &o, &out) == 0)) puts(adamod__last_message());
    return out;
}

/* ---- the generated language ---- */

/* How often words follow the last two is what the entropy is computed from. */
TEST(the_generated_language_has_the_entropy_it_says) {
    enum { N = 60000, WORDS = 6 };
    const markov_language l = {WORDS, 3, 2, 5};
    static int32_t text[N], other[N];
    static int counts[WORDS][WORDS][WORDS];
    markov_text(&l, 0, N, text);
    markov_text(&l, 1, N, other);
    CHECK(memcmp(text, other, sizeof text) != 0);
    for (int i = 2; i < N; i++) {
        if (!CHECK(text[i] >= 0 && text[i] < WORDS)) return;
        counts[text[i - 2]][text[i - 1]][text[i]]++;
    }
    double entropy = 0;
    for (int i = 2; i < N; i++) {
        const int *after = counts[text[i - 2]][text[i - 1]];
        int sum = 0;
        for (int k = 0; k < WORDS; k++) sum += after[k];
        entropy -= log((double)after[text[i]] / sum) / (N - 2);
    }
    CHECK_CLOSE(markov_entropy(&l), 1.5 * log(2), 1e-12);
    CHECK_CLOSE(entropy, markov_entropy(&l), 0.01);
    const markov_language sure = {WORDS, 1, 1, 5};
    CHECK_CLOSE(markov_entropy(&sure), 0, 0);
}

TEST(a_small_model_comes_near_the_best_perplexity) {
    enter_scratch(true);
    const train_result out =
        run_in("run", false, WITH(NO_DROPOUT, "train.steps=500", "train.evaluate_every=0", "model.layers=1"));
    CHECK(out.final.value[1] < 2 * 1.1);
    CHECK(out.final.value[1] > 2 / 1.1);
    CHECK_CLOSE(out.final.value[1], exp(out.final.value[0]), 1e-9);
    CHECK(isnan(out.final.value[2]));
}

/* ---- the model ---- */

TEST(the_papers_model_has_its_parameters) {
    lstm_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&lstm_keys, &s);
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    const int rows = nn_symbol(g, "tokens", 1400), one = nn_symbol(g, "one", 1);
    const lstm_text text = {nn_input(g, "ids", NN_I32, rows, 0),
                            nn_input(g, "targets", NN_I32, rows, 0),
                            nn_input(g, "carried", NN_I32, one, 0),
                            10000,
                            20,
                            "train"};
    CHECK(lstm_build(g, &s, &text, true) >= 0);
    CHECK_INT(nn_params_total(params), 24221600);
    nn_graph_free(g);
    nn_params_free(params);
}

/* ---- batches ---- */

TEST(epochs_read_the_whole_text_in_lengths_of_an_order_of_their_own) {
    experiment e;
    if (!CHECK(open_with(&e, NULL))) return;
    const language *s = language_of(&e);
    int64_t first[100], moved = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        int64_t at = 0;
        for (int64_t i = 0; i < s->batches; i++) {
            task_batch b;
            task_language.next(&e, &b);
            const int32_t *ids = nn_plan_data(e.plan, "ids"), *targets = nn_plan_data(e.plan, "targets");
            const int64_t length = b.items / 4;
            CHECK_INT(*(const int32_t *)nn_plan_data(e.plan, "carried"), i > 0);
            for (int64_t k = 0; k < b.items; k++) {
                const int32_t *place = s->text[SPLIT_TRAIN] + k % 4 * 500 + at + k / 4;
                CHECK(ids[k] == place[0] && targets[k] == place[1]);
            }
            CHECK_CLOSE(b.lr_factor, (double)length / 10, 1e-12);
            CHECK_INT(b.epoch, i + 1 == s->batches ? epoch + 1 : epoch);
            if (epoch == 0) first[i] = length;
            else moved += first[i] != length;
            at += length;
        }
        CHECK_INT(at, 499);
    }
    CHECK(moved > 0);
    experiment_close(&e);
}

/* As drawn: mostly of one mean, some of its half, none below the shortest. */
TEST(lengths_are_those_of_the_recipe) {
    experiment e;
    if (!CHECK(open_with(&e, WITH("data.train=40000", "data.length=20", "data.spread=1", "data.halved=0.25")))) return;
    const language *s = language_of(&e);
    int64_t near = 0, half = 0;
    for (int64_t i = 0; i < s->batches; i++) {
        near += s->drawn[i] > 15 && s->drawn[i] < 25;
        half += s->drawn[i] > 5 && s->drawn[i] < 15;
    }
    CHECK(near + half >= s->batches - 1);
    CHECK(half > s->batches / 6 && half < s->batches / 3);
    experiment_close(&e);
}

/* The learning rate of an update is that of its length, and the optimizer's own stays what it was. */
TEST(the_learning_rate_follows_the_length) {
    enter_scratch(true);
    experiment e;
    task_batch b;
    if (!CHECK(open_with(&e, NULL))) return;
    task_language.next(&e, &b);
    experiment_close(&e);
    run_in("run", false, WITH("train.steps=1"));
    char text[20000], *found;
    text[get_file("run/metrics.jsonl", text, sizeof text)] = 0;
    if (CHECK(found = strstr(text, "\"lr\":"))) CHECK_CLOSE(strtod(found + 5, NULL), 0.01 * b.lr_factor, 1e-9);
    run_in("plain", false, WITH("train.steps=1", "data.scale_lr=false"));
    text[get_file("plain/metrics.jsonl", text, sizeof text)] = 0;
    if (CHECK(found = strstr(text, "\"lr\":"))) CHECK_CLOSE(strtod(found + 5, NULL), 0.01, 1e-9);
    CHECK(b.lr_factor != 1);
}

/* ---- the state ---- */

TEST(scores_do_not_depend_on_how_a_text_is_cut) {
    experiment e;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        task_result out;
        if (!CHECK(open_with(&e, WITH(i ? "data.score_length=7" : "data.score_length=1000")))) return;
        CHECK_INT(task_language.evaluate(&e, SPLIT_VALID, TASK_WHOLE, NULL, NULL, &out), 0);
        CHECK_CLOSE(out.items, 3 * 66, 0);
        CHECK_INT(out.samples, 3 * 66);
        loss[i] = out.value[0];
        CHECK_INT(task_language.evaluate(&e, SPLIT_VALID, TASK_WHOLE, NULL, NULL, &out), 0);
        CHECK_CLOSE(out.value[0], loss[i], 0); /* it begins with zeros again */
        experiment_close(&e);
    }
    CHECK_CLOSE(loss[0], loss[1], 1e-6);
}

/* Stopped within an epoch, with all that is random on. */
TEST(a_run_in_parts_ends_as_one_and_with_more_threads) {
    enter_scratch(true);
    run_in("parts", false, WITH("train.steps=7"));
    const train_result a = run_in("parts", true, WITH("train.steps=60")),
                       b = run_in("once", false, WITH("train.steps=60"));
    const train_result c = run_in("threads", false, WITH("train.steps=60", "train.threads=3"));
    CHECK_CLOSE(a.train_loss, b.train_loss, 0);
    CHECK_CLOSE(a.final.value[0], b.final.value[0], 0);
    CHECK_CLOSE(c.train_loss, b.train_loss, 0);
    CHECK_CLOSE(c.final.value[0], b.final.value[0], 0);
}

/* ---- files ---- */

#define TEXT "data.set=text", "data.path=.", "data.batch=2", "data.valid_batch=1"

static void put_text(const char *name, const char *text) { put_file(name, text, strlen(text)); }

static void put_texts(void) {
    enter_scratch(true);
    put_text("train.txt", " the cat sat \n the dog <unk>\nthe cat\n");
    put_text("valid.txt", "the bird sat\n");
    put_text("test.txt", "cat\n\nsat\n");
}

TEST(words_are_numbered_without_a_mark_for_beginnings) {
    experiment e;
    put_texts();
    if (!CHECK(open_with(&e, WITH(TEXT)))) {
        puts(adamod__last_message());
        return;
    }
    const language *s = language_of(&e);
    static const int32_t train[] = {2, 3, 5, 0, 2, 4, 1, 0, 2, 3, 0}, valid[] = {2, 1, 5, 0}, test[] = {3, 0, 0, 5, 0};
    CHECK_INT(s->words, 6); /* <eos>, <unk>, the, cat, dog, sat */
    CHECK(s->n[0] == 11 && memcmp(s->text[0], train, sizeof train) == 0);
    CHECK(s->n[1] == 4 && memcmp(s->text[1], valid, sizeof valid) == 0);
    CHECK(s->n[2] == 5 && memcmp(s->text[2], test, sizeof test) == 0);
    char line[300];
    CHECK(task_language.note(&e, SPLIT_TRAIN, line, sizeof line));
    CHECK_STR(line, "train.txt: uses 10 of 11 tokens, in 2 columns of equal length");
    CHECK(task_language.note(&e, SPLIT_VALID, line, sizeof line));
    CHECK_STR(line, "valid.txt: 1 of 4 tokens not in the vocabulary");
    CHECK(!task_language.note(&e, SPLIT_TEST, line, sizeof line));
    experiment_close(&e);
    CHECK(open_with(&e, WITH(TEXT, "data.eos=false", "data.max_vocab=3")));
    CHECK_INT(language_of(&e)->words, 3);
    CHECK_INT(language_of(&e)->n[0], 8);
    CHECK(task_language.note(&e, SPLIT_TRAIN, line, sizeof line)); /* "<unk>" in the text is a token of it */
    CHECK_STR(line, "train.txt: 4 of 8 tokens not in the vocabulary");
    experiment_close(&e);
}

TEST(characters_have_bits_and_a_run_knows_its_vocabulary) {
    put_texts();
    const train_result out = run_in("run", false, WITH(TEXT, "data.tokens=characters", "train.steps=3"));
    CHECK_CLOSE(out.final.value[2], out.final.value[0] / log(2), 1e-12);
    OWNED_RECIPE r = {0};
    experiment e;
    task_result again;
    CHECK(set_all(&r, WITH(TEXT, "data.tokens=characters")));
    unlink("train.txt");
    if (!CHECK_INT(experiment_open(&e, &r, "run", TASK_SCORE), 0)) puts(adamod__last_message());
    CHECK_INT(task_language.evaluate(&e, SPLIT_TEST, TASK_WHOLE, NULL, NULL, &again), 0);
    CHECK(isfinite(again.value[0]));
    experiment_close(&e);
}

static const char *complaint(const char *const *assignments) {
    experiment e;
    if (!open_with(&e, assignments)) return adamod__last_message();
    experiment_close(&e);
    return "(none)";
}

TEST(bad_text_is_named) {
    put_texts();
    CHECK_STR(complaint(WITH(TEXT)), "(none)");
    CHECK_HAS(
        complaint(WITH(TEXT, "data.batch=6")),
        "/train.txt: the training text has 11 tokens, expected at least 12: two for each of data.batch 6 columns");
    CHECK_HAS(
        complaint(WITH(TEXT, "data.valid_batch=3")),
        "/valid.txt: the validation text has 4 tokens, expected at least 6: two for each of data.valid_batch 3 columns");
    CHECK_STR(complaint(WITH("data.train=7")),
              "the training text has 7 tokens, expected at least 8: two for each of data.batch 4 columns");
    CHECK_STR(complaint(WITH("data.path=.")), "--set: data.path is given, but data.set generated reads no files");
    CHECK_STR(complaint(WITH("data.set=text")), "r.yaml: data.path is not given; data.set text needs it");
    CHECK_STR(complaint(WITH("data.words=1")), "r.yaml:1: data.branches is 2, expected at most data.words, 1");
    CHECK_STR(complaint(WITH("optimizer.rule=adamod", TEXT, "data.max_vocab=2")),
              "--set: data.max_vocab is 2, expected 0 or more than 2, <eos> and <unk>");
    put_text("valid.txt", "");
    CHECK_HAS(complaint(WITH(TEXT)), "/valid.txt: the file has no text");
    put_text("valid.txt", "\n \n\n\n\n\n\n\n\n\n");
    CHECK_HAS(complaint(WITH(TEXT)), "/valid.txt: the file has no text");
    put_text("valid.txt", "fine\n\xff\xfe bad\n");
    CHECK_HAS(complaint(WITH(TEXT)), "/valid.txt:2: ");
    unlink("valid.txt");
    CHECK_HAS(complaint(WITH(TEXT)), "valid.txt: ");
    put_text("train.txt", "");
    CHECK_HAS(complaint(WITH(TEXT)), "/train.txt: the file has no text");
}

TEST(the_recipes_are_the_papers_and_the_demos) {
    char path[600];
    OWNED_RECIPE r = {0};
    snprintf(path, sizeof path, "%s/recipes/ptb-lstm.yaml", source_dir());
    if (access(path, R_OK)) SKIP("the recipes are not here; SOURCE_DIR says where");
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, path) || recipe_set(&r, "data.path=/ptb"), 0)) puts(adamod__last_message());
    if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
    CHECK_STR(r.optimizer.schedules.at[0].value, "multistep(120 epochs;0.1)");
    CHECK_CLOSE(r.train.epochs, 200, 0);
    CHECK_INT(r.train.test, TEST_BEST);
    lstm_settings standard;
    memset(&standard, 0, sizeof standard);
    key_defaults(&lstm_keys, &standard);
    CHECK(memcmp(r.model_settings, &standard, sizeof standard) == 0);
    CHECK_STR(recipe_find_pair(&r.optimizer.options, "lr")->value, "3e-3");
    CHECK_INT(recipe_set(&r, "optimizer=adam") || recipe_check(&r), 0);
    snprintf(path, sizeof path, "%s/recipes/language-demo.yaml", source_dir());
    recipe_free(&r);
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, path) || recipe_check(&r), 0)) puts(adamod__last_message());
    CHECK_CLOSE(language_entropy(&r), 1.75 * log(2), 1e-12);
}

RUN_TESTS(ENTRY(the_generated_language_has_the_entropy_it_says), ENTRY(a_small_model_comes_near_the_best_perplexity),
          ENTRY(the_papers_model_has_its_parameters),
          ENTRY(epochs_read_the_whole_text_in_lengths_of_an_order_of_their_own), ENTRY(lengths_are_those_of_the_recipe),
          ENTRY(the_learning_rate_follows_the_length), ENTRY(scores_do_not_depend_on_how_a_text_is_cut),
          ENTRY(a_run_in_parts_ends_as_one_and_with_more_threads),
          ENTRY(words_are_numbered_without_a_mark_for_beginnings),
          ENTRY(characters_have_bits_and_a_run_knows_its_vocabulary), ENTRY(bad_text_is_named),
          ENTRY(the_recipes_are_the_papers_and_the_demos))
