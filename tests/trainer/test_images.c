/* The task images: which pictures are for what, batches, scores, files of a run, and what is wrong with bad data.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "support/text.h"
#include "data/image_file.h"
#include "models/densenet.h"
#include "models/resnet.h"
#include "scratch.h"
#include "small_recipe.h"
#include "tasks/images.h"
#include "tasks/tasks.h"
#include "train/loop.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char shapes[] = "data: {task: images, train: 50, valid: 30, test: 21, batch: 16}\n"
                             "model: {kind: mlp, layers: 1, width: 8}\n"
                             "optimizer: {rule: adamod, lr: 1e-3}\n"
                             "train: {steps: 11, evaluate_every: 5, checkpoint_every: 4, threads: 1, backend: cpu}\n";

/* The recipe above with some keys set, up to NULL; whether it is one. */
static bool set_all(recipe *r, const char *const *assignments) { return small_recipe(r, shapes, assignments); }

static bool open_with(experiment *e, const char *const *assignments) {
    OWNED_RECIPE r = {0};
    if (set_all(&r, assignments) && experiment_open(e, &r, NULL, TASK_TRAIN | TASK_SCORE | TASK_APPLY) == 0)
        return true;
    return false;
}

/* ---- CIFAR files of a few pictures, whose first pixel is their number ---- */

static void put_cifar(const char *name, int n, int first) {
    uint8_t *x = calloc((size_t)n, 3073);
    for (int i = 0; i < n; i++) {
        x[(size_t)i * 3073] = (uint8_t)((first + i) % 10);
        x[(size_t)i * 3073 + 1] = (uint8_t)(first + i);
    }
    put_file(name, x, (size_t)n * 3073);
    free(x);
}

static void put_cifar_10(void) {
    char name[32];
    enter_scratch(true);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        put_cifar(name, 10, 10 * i);
    }
    put_cifar("test_batch.bin", 20, 100);
}
#define CIFAR "data.set=cifar10", "data.path=.", "data.any_size=true"

static int number_of(const images *s, int32_t place) { return s->all.bytes[(size_t)place * 3072]; }

/* ---- which pictures are for what ---- */

TEST(a_part_of_the_training_set_is_held_out) {
    experiment e, again, other;
    put_cifar_10();
    if (!CHECK(open_with(&e, WITH(CIFAR, "data.hold_out=20")))) return;
    const images *s = images_of(&e);
    bool seen[200] = {false};
    CHECK(s->n[SPLIT_TRAIN] == 40 && s->n[SPLIT_VALID] == 10 && s->n[SPLIT_TEST] == 20);
    for (int split = 0; split < SPLITS; split++) {
        for (int64_t i = 0; i < s->n[split]; i++) {
            const int number = number_of(s, s->place[split][i]);
            CHECK(!seen[number] && (number >= 100) == (split == SPLIT_TEST));
            seen[number] = true;
        }
    }
    CHECK(open_with(&again, WITH(CIFAR, "data.hold_out=20", "train.seed=5")));
    CHECK(memcmp(s->place[SPLIT_VALID], images_of(&again)->place[SPLIT_VALID], 10 * sizeof(int32_t)) == 0);
    CHECK(open_with(&other, WITH(CIFAR, "data.hold_out=20", "data.seed=5")));
    CHECK(memcmp(s->place[SPLIT_VALID], images_of(&other)->place[SPLIT_VALID], 10 * sizeof(int32_t)) != 0);
    experiment_close(&e);
    experiment_close(&again);
    experiment_close(&other);
}

TEST(where_nothing_is_held_out_the_test_set_is_for_both) {
    experiment e;
    task_result valid, test;
    put_cifar_10();
    if (!CHECK(open_with(&e, WITH(CIFAR, "data.hold_out=0")))) return;
    const images *s = images_of(&e);
    CHECK(s->n[SPLIT_TRAIN] == 50 && s->n[SPLIT_VALID] == 20 && s->n[SPLIT_TEST] == 20 && s->test_is_valid);
    CHECK_INT(e.task->evaluate(&e, SPLIT_VALID, TASK_PERIODIC, NULL, NULL, &valid), 0);
    CHECK_INT(e.task->evaluate(&e, SPLIT_TEST, TASK_WHOLE, NULL, NULL, &test), 0);
    CHECK_CLOSE(valid.value[0], test.value[0], 0);
    char note[1024];
    CHECK(e.task->note(&e, SPLIT_VALID, note, sizeof note));
    CHECK_HAS(note, "/.: the validation set is the test set, since data.hold_out is 0");
    CHECK(!e.task->note(&e, SPLIT_TEST, note, sizeof note));
    experiment_close(&e);
}

/* One picture differs, one label differs, or only the place of the files. */
TEST(data_that_changed_are_known_by_their_fingerprints) {
    experiment e;
    task_part was[TASK_MOST_PARTS], is[TASK_MOST_PARTS];
    put_cifar_10();
    if (!CHECK(open_with(&e, WITH(CIFAR, "data.hold_out=20")))) return;
    CHECK_INT(e.task->data(&e, was), 3);
    CHECK_STR(was[2].key, "data.test_path");
    CHECK_STR(was[2].file, images_settings_of(&e.recipe)->data.path);
    const images *s = images_of(&e);
    for (int split = 0; split < SPLITS; split++) {
        uint8_t *pixel = &s->all.bytes[(size_t)s->place[split][3] * 3072 + 1000];
        int32_t *label = &s->all.labels[s->place[split][3]];
        *pixel ^= 1;
        CHECK_INT(e.task->data(&e, is), 3);
        for (int i = 0; i < 3; i++) CHECK((is[i].fingerprint != was[i].fingerprint) == (i == split));
        *pixel ^= 1;
        *label ^= 1;
        CHECK_INT(e.task->data(&e, is), 3);
        CHECK(is[split].fingerprint != was[split].fingerprint);
        *label ^= 1;
    }
    CHECK_INT(e.task->data(&e, is), 3);
    for (int i = 0; i < 3; i++) CHECK(is[i].fingerprint == was[i].fingerprint);
    experiment_close(&e);
}

/* ---- batches ---- */

/* The numbers of an epoch's pictures, one batch after another. */
static void take_epoch(experiment *e, int *numbers, int64_t n) {
    const images *s = images_of(e);
    task_batch b;
    for (int64_t at = 0; at < n;) {
        const int64_t left = n - at;
        e->task->next(e, &b);
        CHECK_INT(b.samples, left < 16 ? left : 16);
        CHECK(b.items == b.samples && b.targets == b.samples && nn_plan_rows(e->plan, s->rows) == b.samples);
        const int32_t *places = nn_plan_data(e->plan, "places"), *draws = nn_plan_data(e->plan, "draws");
        const int32_t *targets = nn_plan_data(e->plan, "targets");
        for (int64_t i = 0; i < b.samples; i++, at++) {
            numbers[at] = number_of(s, places[i]);
            CHECK(draws[i] == at && targets[i] == numbers[at] % 10);
        }
    }
    CHECK(b.index == 0);
}

TEST(an_epoch_sees_each_picture_once_in_an_order_of_its_own) {
    experiment e;
    int numbers[3][50] = {{0}}, times[50] = {0};
    put_cifar_10();
    if (!CHECK(open_with(&e, WITH(CIFAR, "data.hold_out=0")))) return;
    CHECK_INT(e.task->batches(&e), 4);
    take_epoch(&e, numbers[0], 50);
    take_epoch(&e, numbers[1], 50);
    for (int i = 0; i < 50; i++) times[numbers[0][i]]++;
    for (int i = 0; i < 50; i++) CHECK_INT(times[i], 1);
    CHECK(memcmp(numbers[0], numbers[1], sizeof numbers[0]) != 0);
    CHECK_INT(e.task->seek(&e, 1, 0), 0);
    take_epoch(&e, numbers[2], 50);
    CHECK(memcmp(numbers[1], numbers[2], sizeof numbers[1]) == 0);
    CHECK_INT(e.task->seek(&e, 0, 4), -1);
    CHECK_STR(adamod__last_message(),
              "the checkpoint is at batch 4 of an epoch, but an epoch has 4 batches: have the data changed?");
    experiment_close(&e);
}

/* ---- scores ---- */

TEST(scores_do_not_depend_on_how_batches_are_cut) {
    static const char *const batches[] = {"data.batch=16", "data.batch=7", "data.batch=50"};
    task_result r[3];
    for (int i = 0; i < 3; i++) {
        experiment e;
        if (!CHECK(open_with(&e, WITH(batches[i])))) return;
        CHECK_INT(e.task->evaluate(&e, SPLIT_TEST, TASK_WHOLE, NULL, NULL, &r[i]), 0);
        CHECK(r[i].items == 21 && r[i].samples == 21);
        CHECK_CLOSE(r[i].value[0], r[0].value[0], 1e-6);
        CHECK_CLOSE(r[i].value[1], r[0].value[1], 0);
        CHECK_CLOSE(r[i].value[2], r[0].value[2], 0);
        CHECK(r[i].value[2] > r[i].value[1]);
        experiment_close(&e);
    }
}

TEST(an_evaluation_in_between_can_be_cut_short) {
    experiment e;
    task_result r;
    if (!CHECK(open_with(&e, WITH("train.evaluate_images=9")))) return;
    CHECK_INT(e.task->evaluate(&e, SPLIT_VALID, TASK_PERIODIC, NULL, NULL, &r), 0);
    CHECK(r.items == 9);
    CHECK_INT(e.task->evaluate(&e, SPLIT_VALID, TASK_WHOLE, NULL, NULL, &r), 0);
    CHECK(r.items == 30);
    CHECK_INT(e.task->evaluate(&e, SPLIT_VALID, TASK_GLANCE, NULL, NULL, &r), 0);
    CHECK(r.items == 16);
    experiment_close(&e);
}

/* Predictions of the test pictures are those that their evaluation counted. */
TEST(predictions_are_those_that_evaluations_count) {
    experiment e;
    task_result r;
    float p[21 * 10];
    int64_t confusion[100] = {0};
    if (!CHECK(open_with(&e, NULL))) return;
    const images *s = images_of(&e);
    CHECK_INT(e.task->evaluate(&e, SPLIT_TEST, TASK_WHOLE, NULL, NULL, &r), 0);
    const int32_t first = s->place[SPLIT_TEST][0];
    CHECK_INT(images_predict(&e, 21, s->all.bytes + (size_t)first * 3072, p), 0);
    double right = 0, nll = 0;
    for (int i = 0; i < 21; i++) {
        int best = 0;
        double sum = 0;
        for (int k = 0; k < 10; k++) best = p[10 * i + k] > p[10 * i + best] ? k : best, sum += (double)p[10 * i + k];
        CHECK_CLOSE(sum, 1, 1e-6);
        right += best == i % 10;
        nll -= log((double)p[10 * i + i % 10]);
        confusion[10 * (i % 10) + best]++;
    }
    CHECK_CLOSE(right / 21, r.value[1], 1e-12);
    CHECK_CLOSE(nll / 21, r.value[0], 1e-5);
    CHECK(memcmp(confusion, s->judged.confusion, sizeof confusion) == 0);
    CHECK(s->judged.mistakes == 21 - (int)right);
    for (int i = 1; i < s->judged.mistakes; i++)
        CHECK(s->judged.mistake[i].probability <= s->judged.mistake[i - 1].probability);
    experiment_close(&e);
}

TEST(the_surest_mistakes_are_kept_in_order) {
    class_details c = {0};
    CHECK_INT(class_details_begin(&c, 3), 0);
    for (int i = 0; i < 100; i++) class_details_add(&c, i % 3, (i + (i % 7 != 0)) % 3, (i * 37 % 50) / 50.0, i);
    CHECK_INT(c.mistakes, CLASS_MISTAKES);
    CHECK_CLOSE(c.mistake[0].probability, 0.98, 0);
    for (int i = 1; i < c.mistakes; i++) {
        const class_mistake *a = &c.mistake[i - 1], *b = &c.mistake[i];
        CHECK(a->probability > b->probability || (a->probability == b->probability && a->place < b->place));
        CHECK(b->place % 7 != 0);
    }
    class_details_free(&c);
    CHECK_INT(class_details_begin(&c, CLASS_MOST + 1), 0);
    class_details_add(&c, CLASS_MOST, 0, 0.5, 0);
    CHECK_INT(class_details_write(&c, NULL, 1, "test", "/nowhere/classes.json"), 0);
}

TEST(mistakes_on_large_pictures_are_shown_scaled_down) {
    class_details c = {0};
    pictures p = {.size = 300};
    char *text;
    size_t n;
    enter_scratch(true);
    CHECK_INT(class_names_add(&p.classes, "a") || class_names_add(&p.classes, "b"), 0);
    if (!CHECK_INT(pictures_reserve(&p, 1), 0) || !CHECK_INT(class_details_begin(&c, 2), 0)) return;
    for (size_t i = 0; i < pictures_bytes(&p); i++) p.bytes[i] = (uint8_t)(7 + i % 3);
    p.labels[p.n++] = 0;
    class_details_add(&c, 0, 1, 0.5, 0);
    CHECK_INT(class_details_write(&c, &p, 1, "test", "classes.json"), 0);
    if (CHECK_INT(text_read("classes.json", &text, &n), 0)) {
        CHECK_HAS(text, "\"picture\":{\"height\":128,\"width\":128,\"channels\":3}");
        CHECK_HAS(text, "\"pixels\":\"BwgJBwgJ");
        CHECK(n > 4 * 128 * 128 && n < 4 * 128 * 128 + 300);
        free(text);
    }
    class_details_free(&c);
    pictures_free(&p);
}

/* ---- runs ---- */

static train_result run_in(const char *directory, bool resume, const char *const *assignments) {
    train_result out = {0};
    OWNED_RECIPE r = {0};
    const train_options o = {.directory = directory, .resume = resume};
    if (!CHECK(set_all(&r, assignments)) || !CHECK_INT(train_run(&r, &o, &out), 0)) puts(adamod__last_message());
    return out;
}

TEST(a_run_in_parts_ends_as_one_and_with_more_threads) {
    static const char *const model[] = {"model.kind=resnet", "model.blocks=1,1", "model.widths=4,6"};
#define RESNET model[0], model[1], model[2], "data.train=20", "data.batch=8", "data.valid=10"
    enter_scratch(true);
    run_in("parts", false, WITH(RESNET, "train.steps=4"));
    const train_result a = run_in("parts", true, WITH(RESNET, "train.steps=5"));
    const train_result b = run_in("once", false, WITH(RESNET, "train.steps=5", "train.threads=3"));
    for (int i = 0; i < 3; i++) {
        CHECK_CLOSE(a.valid.value[i], b.valid.value[i], 0);
        CHECK_CLOSE(a.final.value[i], b.final.value[i], 0);
    }
    CHECK_CLOSE(a.train_loss, b.train_loss, 0);
}

static const char *text_of_file(const char *path) {
    static char text[1 << 18];
    text[get_file(path, text, sizeof text - 1)] = '\0';
    return text;
}

TEST(a_run_has_its_classes_and_how_each_did) {
    enter_scratch(true);
    const train_result r = run_in("run", false, NULL);
    CHECK(isfinite(r.final.value[0]) && r.final.items == 21);
    CHECK_HAS(text_of_file("run/classes.txt"), "disc\nring\nsquare\n");
    CHECK_HAS(text_of_file("run/task.json"),
              "{\"format\":1,\"task\":\"images\",\"about\":\"classes of pictures\",\"items\":\"images\"");
    const char *text = text_of_file("run/classes.json");
    CHECK_HAS(text, "{\"step\":11,\"split\":\"test\",\"classes\":[\"disc\",\"ring\",");
    CHECK_HAS(text, "\"picture\":{\"height\":32,\"width\":32,\"channels\":3},\"mistakes\":[{\"label\":");
    CHECK_HAS(text_of_file("run/metrics.jsonl"), "\"images\":16,\"images_per_second\":");
}

/* The test set of a run can be evaluated where its training files are gone; what was held out of them cannot. */
TEST(a_run_needs_its_training_files_only_for_what_was_held_out) {
    experiment e;
    OWNED_RECIPE r = {0};
    put_cifar_10();
    run_in("held", false, WITH(CIFAR, "train.steps=1"));
    unlink("data_batch_3.bin");
    CHECK(set_all(&r, WITH(CIFAR)));
    if (!CHECK_INT(experiment_open(&e, &r, "held", TASK_SCORE), 0)) return;
    CHECK(e.task->count(&e, SPLIT_TEST) > 0 && e.task->count(&e, SPLIT_VALID) == 0);
    CHECK_HAS(e.gone[SPLIT_VALID], "data_batch_3.bin: cannot open");
    CHECK_STR(e.gone[SPLIT_TEST], "");
    experiment_close(&e);
    unlink("test_batch.bin");
    if (!CHECK_INT(experiment_open(&e, &r, "held", TASK_SCORE), 0)) return;
    CHECK(e.task->count(&e, SPLIT_TEST) == 0 && e.task->count(&e, SPLIT_VALID) == 0);
    CHECK_HAS(e.gone[SPLIT_VALID], "data_batch_3.bin: cannot open");
    CHECK_HAS(e.gone[SPLIT_TEST], "test_batch.bin: cannot open");
    experiment_close(&e);
    CHECK_INT(experiment_open(&e, &r, "held", TASK_APPLY), 0); /* predicting needs neither */
    experiment_close(&e);
}

/* ---- keys and data that do not fit ---- */

static const char *complaint(const char *const *assignments) {
    experiment e;
    adamod__fail(ADAMOD_OK, "%s", "");
    if (!open_with(&e, assignments)) return adamod__last_message();
    experiment_close(&e);
    return "(none)";
}

TEST(keys_that_do_not_fit_together_are_named) {
    CHECK_STR(complaint(WITH("data.set=folder")), "r.yaml: data.path is not given; data.set folder needs it");
    CHECK_STR(complaint(WITH("data.path=x")), "--set: data.path is given, but data.set shapes reads no files");
    CHECK_STR(complaint(WITH("data.size=65")),
              "--set: data.size is 65, expected 16 to 64, in which data.set shapes is drawn");
    CHECK_STR(complaint(WITH("data.size=15")),
              "--set: data.size is 15, expected 16 to 64, in which data.set shapes is drawn");
    CHECK_STR(complaint(WITH("data.set=cifar10", "data.path=x", "data.size=16")),
              "--set: data.size is 16, expected 32, which pictures of data.set cifar10 have");
    CHECK_STR(complaint(WITH("data.set=cifar10", "data.path=x", "data.test_path=y")),
              "--set: data.test_path is given, but data.set cifar10 does not read it");
    CHECK_STR(complaint(WITH("data.labels=coarse")), "--set: data.labels is coarse, which only data.set cifar100 has");
    CHECK_STR(complaint(WITH("data.set=folder", "data.path=x", "data.hold_out=0")),
              "--set: data.hold_out is 0, and neither data.valid_path nor data.test_path is given: nothing is left to "
              "validate on");
    CHECK_STR(complaint(WITH("data.mean=1,2")),
              "--set: data.mean is '1,2', expected three numbers with commas between them");
    CHECK_STR(complaint(WITH("data.std=1,1,0")),
              "--set: data.std is '1,1,0', expected three numbers above 0 with commas between them");
    CHECK_STR(complaint(WITH("data.mean=0.5, 0.5,0.5", "data.std=1,1,1")), "(none)");
    CHECK_STR(complaint(WITH("model.kind=resnet", "model.widths=8,")),
              "--set: model.widths is '8,', expected 1 to 8 whole numbers from 1 to 65536 with commas between them");
    CHECK_STR(complaint(WITH("model.kind=resnet", "model.widths=8")),
              "--set: model.widths has 1 numbers, expected 4, as many as model.blocks has");
    CHECK_STR(complaint(WITH("model.kind=densenet", "model.blocks=x")),
              "--set: model.blocks is 'x', expected 1 to 8 whole numbers from 1 to 256 with commas between them");
    CHECK_STR(complaint(WITH("model.kind=vgg")), "--set: model.kind is 'vgg', expected resnet, densenet or mlp");
}

TEST(too_few_pictures_are_refused) {
    put_cifar_10();
    CHECK_STR(complaint(WITH("data.batch=51")), "shapes: data.batch is 51, but there are 50 training pictures");
    CHECK_STR(complaint(WITH("data.train=1", "data.batch=2")),
              "shapes: data.batch is 2, but there is 1 training picture");
    CHECK_STR(complaint(WITH("data.train=1", "data.batch=1")), "(none)");
    char cwd[512], expected[700];
    CHECK(getcwd(cwd, sizeof cwd) != NULL);
    snprintf(expected, sizeof expected, "%s/.: data.batch is 46, but there are 45 training pictures", cwd);
    CHECK_STR(complaint(WITH(CIFAR, "data.batch=46")), expected);
    snprintf(expected, sizeof expected,
             "%s/./data_batch_1.bin: 30730 bytes, expected 30730000: 10000 records of 3073; it "
             "is cut short",
             cwd);
    CHECK_STR(complaint(WITH("data.set=cifar10", "data.path=.")), expected);
    unlink("test_batch.bin");
    snprintf(expected, sizeof expected, "%s/./test_batch.bin: cannot open: No such file or directory", cwd);
    CHECK_STR(complaint(WITH(CIFAR)), expected);
}

/* Transitions halve the size: 30, 15, and no further. */
TEST(a_size_that_pooling_does_not_divide_is_refused) {
    static const uint8_t png[] = {137, 80,  78,  71, 13, 10,  26,  10, 0,   0,   0,  13,  73,  72, 68,  82, 0,   0,
                                  0,   1,   0,   0,  0,  1,   8,   2,  0,   0,   0,  144, 119, 83, 222, 0,  0,   0,
                                  12,  73,  68,  65, 84, 120, 218, 99, 112, 104, 56, 0,   0,   2,  132, 1,  129, 24,
                                  106, 116, 135, 0,  0,  0,   0,   73, 69,  78,  68, 174, 66,  96, 130};
    if (!strstr(image_formats(), "PNG")) SKIP("no libpng");
    char path[64], text[300];
    enter_scratch(true);
    mkdir("t", 0777);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "t/%d", i % 2);
        mkdir(path, 0777);
        snprintf(path, sizeof path, "t/%d/%d.png", i % 2, i);
        put_file(path, png, sizeof png);
    }
    snprintf(text, sizeof text, "%s",
             complaint(WITH("data.set=folder", "data.path=t", "data.size=30", "data.batch=2", "model.kind=densenet",
                            "model.blocks=1,1,1")));
    CHECK_STR(text,
              "--set: data.size is 30, expected a multiple of 4: a DenseNet of model.blocks 1,1,1 halves it after each "
              "but the last");
    CHECK_STR(complaint(WITH("data.set=folder", "data.path=t", "data.size=32", "data.batch=2", "model.kind=densenet",
                             "model.blocks=1,1,1", "model.growth=2", "model.stem=4")),
              "(none)");
    unlink("t/0/0.png");
    unlink("t/0/2.png");
    unlink("t/1/1.png");
    snprintf(text, sizeof text, "%s", complaint(WITH("data.set=folder", "data.path=t", "data.batch=1")));
    CHECK_HAS(text, "/t: 1 picture, of which data.hold_out 10 % leaves none to train on");
    put_file("t/0/0.png", png, sizeof png);
    put_file("t/0/2.png", png, sizeof png);
    for (int i = 1; i < 4; i += 2) {
        snprintf(path, sizeof path, "t/1/%d.png", i);
        unlink(path);
    }
    rmdir("t/1");
    snprintf(text, sizeof text, "%s", complaint(WITH("data.set=folder", "data.path=t", "data.batch=1")));
    CHECK_HAS(text, "/t: 1 class, '0': expected at least 2");
}

/* ---- recipes ---- */

/* Parameters of a recipe's model. */
static int64_t parameters_of(const recipe *r, int classes) {
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    const nn_value x = nn_input_images(g, "x", NN_F32, nn_symbol(g, "rows", 2), 32, 32, 3);
    const void *s = r->model_settings;
    if (strcmp(r->model.kind, "resnet") == 0) resnet_build(g, s, x, classes);
    else densenet_build(g, s, x, classes);
    const int64_t total = nn_params_total(p);
    nn_graph_free(g);
    nn_params_free(p);
    return total;
}

TEST(the_repositorys_recipes_are_the_papers) {
    static const struct {
        const char *name, *schedule;
        int classes, epochs;
        int64_t parameters;
        float mean;
    } all[] = {{"cifar10-resnet34", "multistep(150 epochs;0.1)", 10, 200, 21282122, 0.4914f},
               {"cifar10-densenet121", "multistep(150 epochs;0.1)", 10, 200, 6956298, 0.4914f},
               {"cifar100-resnet34", "multistep(149 epochs,224 epochs;0.1)", 100, 300, 21328292, 0.507f},
               {"cifar100-densenet121", "multistep(149 epochs,224 epochs;0.1)", 100, 300, 7048548, 0.507f}};
    char path[600];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        OWNED_RECIPE r = {0};
        snprintf(path, sizeof path, "%s/recipes/%s.yaml", source_dir(), all[i].name);
        if (access(path, R_OK)) SKIP("the recipes are not here; SOURCE_DIR says where");
        recipe_defaults(&r, tasks_all);
        if (!CHECK_INT(recipe_load(&r, path), 0)) puts(adamod__last_message());
        CHECK_INT(recipe_set(&r, "data.path=/cifar"), 0);
        if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
        CHECK_STR(r.name, all[i].name);
        CHECK_STR(r.optimizer.schedules.at[0].value, all[i].schedule);
        CHECK_CLOSE(r.train.epochs, all[i].epochs, 0);
        CHECK_INT(parameters_of(&r, all[i].classes), all[i].parameters);
        CHECK_CLOSE(images_view(images_settings_of(&r)).mean[0], all[i].mean, 0);
        CHECK_INT(images_settings_of(&r)->data.batch, 128);
        CHECK_INT(recipe_set(&r, "optimizer.rule=adam") || recipe_set(&r, "optimizer.beta3="), 0);
        if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
        CHECK_INT(recipe_set(&r, "optimizer.rule=sgd") || recipe_set(&r, "optimizer.flavour=") ||
                      recipe_set(&r, "optimizer.momentum=0.9") || recipe_set(&r, "optimizer.decay=l2"),
                  0);
        if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
    }
    snprintf(path, sizeof path, "%s/recipes/shapes.yaml", source_dir());
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, path) || recipe_check(&r), 0)) puts(adamod__last_message());
}

RUN_TESTS(ENTRY(a_part_of_the_training_set_is_held_out), ENTRY(where_nothing_is_held_out_the_test_set_is_for_both),
          ENTRY(data_that_changed_are_known_by_their_fingerprints),
          ENTRY(an_epoch_sees_each_picture_once_in_an_order_of_its_own),
          ENTRY(scores_do_not_depend_on_how_batches_are_cut), ENTRY(an_evaluation_in_between_can_be_cut_short),
          ENTRY(predictions_are_those_that_evaluations_count), ENTRY(the_surest_mistakes_are_kept_in_order),
          ENTRY(mistakes_on_large_pictures_are_shown_scaled_down),
          ENTRY(a_run_in_parts_ends_as_one_and_with_more_threads), ENTRY(a_run_has_its_classes_and_how_each_did),
          ENTRY(a_run_needs_its_training_files_only_for_what_was_held_out),
          ENTRY(keys_that_do_not_fit_together_are_named), ENTRY(too_few_pictures_are_refused),
          ENTRY(a_size_that_pooling_does_not_divide_is_refused), ENTRY(the_repositorys_recipes_are_the_papers))
