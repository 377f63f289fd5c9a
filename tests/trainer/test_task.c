/* A task of the test's own: all that a new kind of problem takes is a table, and the loop, checkpoints, recipes and run
 * directories serve it as they serve the program's.
 *
 * It classifies numbers by their remainder, with a table of vectors and a matrix.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "small_recipe.h"
#include "support/text.h"
#include "scratch.h"
#include "tasks/tasks.h"
#include "train/checkpoint.h"
#include "train/resume.h"
#include "train/progress.h"
#include "train/loop.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <fcntl.h>
#include <unistd.h>

/* ---- the task ---- */

typedef struct remainder_settings {
    struct {
        int numbers, divisor, batch;
    } data;
} remainder_settings;

typedef struct table_settings {
    struct {
        int width;
    } model;
} table_settings;

static const key_spec task_keys[] = {
    WHOLE_KEY(remainder_settings, data.numbers, "24", 2, 1000, STRICT, "to classify"),
    WHOLE_KEY(remainder_settings, data.divisor, "3", 2, 10, STRICT, "whose remainders are the classes"),
    WHOLE_KEY(remainder_settings, data.batch, "8", 1, 1000, STRICT, "numbers"),
};
static const key_spec model_keys[] = {
    WHOLE_KEY(table_settings, model.width, "8", 1, 100, STRICT, "of a number's vector"),
};
static const key_table task_table = {task_keys, 3, sizeof(remainder_settings)};
static const key_table model_table = {model_keys, 1, sizeof(table_settings)};

static const remainder_settings *settings(const recipe *r) { return (const void *)r->task_settings; }
static const table_settings *model_settings(const recipe *r) { return (const void *)r->model_settings; }

typedef struct remainders {
    int rows;
    int64_t at, epoch; /* the batch that comes next */
    nn_graph *graph;
    nn_plan *plan;
    int score_rows;
} remainders;

static const char *check_task(const recipe *r) {
    if (settings(r)->data.numbers % settings(r)->data.batch == 0) return NULL;
    adamod__fail(ADAMOD_ERROR_ARGUMENT, "data.batch is %d, which does not divide data.numbers %d",
                 settings(r)->data.batch, settings(r)->data.numbers);
    return "data.batch";
}

static int open_task(experiment *e, const char *directory, int uses) {
    (void)directory, (void)uses;
    e->state = calloc(1, sizeof(remainders));
    return e->state ? 0 : -1;
}

static void close_task(experiment *e) {
    remainders *s = e->state;
    nn_plan_free(s->plan);
    nn_graph_free(s->graph);
    free(s);
    e->state = NULL;
}

static nn_value build_rows(experiment *e, nn_graph *g, int64_t capacity, int *rows) {
    const remainder_settings *s = settings(&e->recipe);
    const int64_t width = model_settings(&e->recipe)->model.width;
    *rows = nn_symbol(g, "rows", capacity);
    const nn_value ids = nn_input(g, "ids", NN_I32, *rows, 0), targets = nn_input(g, "targets", NN_I32, *rows, 0);
    nn_pad(g, targets, -1);
    const nn_value table = nn_parameter(g, "table", 2, (int64_t[]){s->data.numbers, width}, (nn_init){NN_NORMAL, 0.5});
    const nn_value w = nn_parameter(g, "weight", 2, (int64_t[]){s->data.divisor, width}, (nn_init){NN_XAVIER, 0});
    const nn_value x = nn_embedding(g, ids, -1, table, 1);
    const nn_value loss = nn_cross_entropy(g, nn_linear(g, x, w, -1, NN_LINEAR), targets, 0);
    nn_output(g, "loss", loss);
    return loss;
}

static nn_value build(experiment *e, nn_graph *g) {
    return build_rows(e, g, settings(&e->recipe)->data.batch, &((remainders *)e->state)->rows);
}

static int prepare(experiment *e, int uses) {
    remainders *s = e->state;
    if (!(uses & TASK_SCORE)) return 0;
    s->graph = nn_graph_create(e->params);
    build_rows(e, s->graph, settings(&e->recipe)->data.numbers, &s->score_rows);
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1, .pool = e->pool};
    return nn_plan_create(&s->plan, s->graph, &o);
}

static void fill(const experiment *e, nn_plan *plan, int rows, int64_t first, int64_t n) {
    int32_t *ids = nn_plan_data(plan, "ids"), *targets = nn_plan_data(plan, "targets");
    nn_plan_set_rows(plan, rows, n);
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(first + i);
        targets[i] = ids[i] % settings(&e->recipe)->data.divisor;
    }
}

static int64_t batches(const experiment *e) {
    return settings(&e->recipe)->data.numbers / settings(&e->recipe)->data.batch;
}

static void next(experiment *e, task_batch *out) {
    remainders *s = e->state;
    const remainder_settings *r = settings(&e->recipe);
    fill(e, e->plan, s->rows, s->at * r->data.batch, r->data.batch);
    s->at++;
    if (s->at * r->data.batch == r->data.numbers) s->at = 0, s->epoch++;
    *out = (task_batch){
        .items = r->data.batch, .samples = r->data.batch, .targets = r->data.batch, .epoch = s->epoch, .index = s->at};
}

static int seek(experiment *e, int64_t epoch, int64_t index) {
    ((remainders *)e->state)->epoch = epoch;
    ((remainders *)e->state)->at = index;
    return 0;
}

static int64_t count(const experiment *e, task_split split) {
    return split == SPLIT_TEST ? 0 : settings(&e->recipe)->data.numbers;
}

static int evaluate(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out) {
    remainders *s = e->state;
    (void)split;
    *out = (task_result){.value = {NAN, NAN}};
    fill(e, s->plan, s->score_rows, 0, settings(&e->recipe)->data.numbers);
    nn_plan_forward(s->plan);
    if (nn_plan_wait(s->plan)) return -1;
    const float *loss = nn_plan_data(s->plan, "loss");
    out->items = (double)loss[3];
    out->value[0] = (double)loss[0] / (double)loss[3];
    if (depth == TASK_GLANCE) return 0;
    out->value[1] = (double)loss[2] / (double)loss[3];
    const task_text texts[] = {{"number", "7"}, {"remainder", "1"}};
    return sample ? sample(context, 2, texts) : 0;
}

static int save(const experiment *e, const char *directory) {
    (void)e, (void)directory;
    return 0;
}

static uint64_t fingerprint(const experiment *e) { return (uint64_t)settings(&e->recipe)->data.divisor; }

static uint64_t contents[2] = {7, 8}; /* as if numbers were read from files */

static int data_parts(const experiment *e, task_part *out) {
    (void)e;
    out[0] = (task_part){SPLIT_TRAIN, "data.numbers", "numbers.txt", contents[0], 0};
    out[1] = (task_part){SPLIT_VALID, "data.valid", "valid.txt", contents[1], 0};
    return 2;
}

static bool note(const experiment *e, task_split split, char *out, size_t size) {
    (void)e, (void)split, (void)out, (void)size;
    return false;
}

static const metric metrics[] = {
    {"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true, NULL},
    {"right", "right", "remainders that are right", "%", 100, 1, METRIC_HIGHER, true, NULL}};
static const key_table *const tables[] = {&task_table, NULL};
static const task_model lookup = {.kind = "lookup", .keys = &model_table};
static const task_model *const models[] = {&lookup, NULL};
static const char *const subtitle[] = {"model.kind", NULL};
static const task remainder_task = {.name = "remainders",
                                    .about = "remainders of numbers",
                                    .items = "numbers",
                                    .samples = "numbers",
                                    .answers = "Remainders",
                                    .subtitle = subtitle,
                                    .keys = tables,
                                    .models = models,
                                    .metrics = metrics,
                                    .n_metrics = 2,
                                    .check = check_task,
                                    .open = open_task,
                                    .close = close_task,
                                    .build = build,
                                    .prepare = prepare,
                                    .batches = batches,
                                    .next = next,
                                    .seek = seek,
                                    .count = count,
                                    .evaluate = evaluate,
                                    .save = save,
                                    .fingerprint = fingerprint,
                                    .data = data_parts,
                                    .note = note};

/* With those of the program, whose keys it must not meet. */
static const task *const *all_tasks(void) {
    static const task *list[16];
    int n = 0;
    list[n++] = &remainder_task;
    for (int i = 0; tasks_all[i]; i++) list[n++] = tasks_all[i];
    list[n] = NULL;
    return list;
}

/* ---- runs ---- */

static recipe recipe_of(const char *more) {
    static const char text[] = "model: {width: 6}\n" /* before what it belongs to is known */
                               "optimizer: {rule: adam, lr: 0.1}\n"
                               "train: {steps: 30, evaluate_every: 5, checkpoint_every: 10, threads: 1, backend: cpu, "
                               "histogram_dense: 1, best: right}\n"
                               "data: {task: remainders}\n";
    recipe r;
    recipe_defaults(&r, all_tasks());
    CHECK_INT(recipe_parse(&r, text, strlen(text), "r.yaml"), 0);
    if (*more) CHECK_INT(recipe_set(&r, more), 0);
    if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
    return r;
}

static char *read_text(const char *path) {
    char *text = calloc(1, 1 << 20);
    FILE *file = fopen(path, "r");
    if (file && text) (void)!fread(text, 1, (1 << 20) - 1, file);
    if (file) fclose(file);
    return text;
}

static train_result run_in(const char *directory, const recipe *r, bool resume) {
    train_result out = {0};
    const train_options o = {.directory = directory, .resume = resume};
    if (!CHECK_INT(train_run(r, &o, &out), 0)) puts(adamod__last_message());
    return out;
}

TEST(a_task_of_ones_own_is_trained_and_measured) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_of("");
    const char *directory = "run";
    const train_result out = run_in(directory, &r, false);
    CHECK_INT(out.status, TRAIN_FINISHED);
    CHECK(out.valid.value[0] < 0.2);
    CHECK_CLOSE(out.final.value[1], 1, 0);
    char path[400];
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    char *text = read_text(path);
    CHECK_HAS(text, "\"numbers\":240,\"numbers_per_second\":");
    CHECK_HAS(text, "{\"kind\":\"valid\",\"step\":5,");
    CHECK_HAS(text, ",\"numbers\":24,\"loss\":");
    CHECK_HAS(text, ",\"right\":1}\n{\"kind\":\"final_valid\",\"step\":30,");
    free(text);
    snprintf(path, sizeof path, "%s/task.json", directory);
    text = read_text(path);
    CHECK_HAS(
        text,
        "{\"format\":1,\"task\":\"remainders\",\"about\":\"remainders of numbers\",\"items\":\"numbers\",\"samples\":\"numbers\",\"answers\":\"Remainders\",\"subtitle\":[\"model.kind\"],\"metrics\":[");
    CHECK_HAS(text, "{\"name\":\"right\",\"label\":\"right\",\"about\":\"remainders that are right\",\"unit\":\"%\","
                    "\"scale\":100,\"decimals\":1,\"better\":\"higher\",\"headline\":true}]}");
    free(text);
    snprintf(path, sizeof path, "%s/samples.jsonl", directory);
    text = read_text(path);
    CHECK_STR(text, "{\"step\":30,\"number\":\"7\",\"remainder\":\"1\"}\n");
    free(text);
}

/* It has no test set: nothing may say that it was tested. */
TEST(what_comes_of_the_validation_set_is_not_called_a_test) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_of("");
    const train_result out = run_in("run", &r, false);
    CHECK_INT(out.final_split, SPLIT_VALID);
    static const char *const files[] = {"run/metrics.jsonl", "run/result.json"};
    for (int i = 0; i < 2; i++) {
        char *text = read_text(files[i]);
        CHECK_HAS(text, "\"final_valid\"");
        CHECK(!strstr(text, "test"));
        free(text);
    }
    char command[] = "grep -qa final_valid/loss run/events.* && ! grep -qa test/ run/events.*";
    CHECK_INT(system(command), 0);
}

/* In the file it is what the lines of the last updates say; and what the caller is told. */
TEST(the_training_loss_is_the_mean_of_the_last_twentieth) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_of("train.steps=40");
    const train_result out = run_in("run", &r, false);
    char *text = read_text("run/metrics.jsonl");
    double sum = 0;
    for (int step = 39; step <= 40; step++) {
        char begin[64];
        snprintf(begin, sizeof begin, "{\"kind\":\"train\",\"step\":%d,", step);
        const char *line = strstr(text, begin), *loss = line ? strstr(line, "\"loss\":") : NULL;
        if (CHECK(loss)) sum += strtod(loss + strlen("\"loss\":"), NULL);
    }
    free(text);
    CHECK_CLOSE(out.train_loss, sum / 2, 1e-15);
    text = read_text("run/result.json");
    const char *found = strstr(text, "\"training_loss\":");
    if (CHECK(found)) CHECK_CLOSE(strtod(found + strlen("\"training_loss\":"), NULL), out.train_loss, 0);
    free(text);
}

/* The best by a metric of which more is better: the first evaluation at which all is right, not the last. */
TEST(the_best_checkpoint_is_best_by_the_metric_that_was_named) {
    checkpoint_meta by_right = {0}, by_loss = {0};
    char path[400];
    enter_scratch(true);
    OWNED_RECIPE named = recipe_of("");
    run_in("named", &named, false);
    snprintf(path, sizeof path, "%s/checkpoints/best.safetensors", "named");
    CHECK_INT(checkpoint_info(path, &by_right, NULL), 0);
    OWNED_RECIPE r = recipe_of("train.best=loss");
    run_in("by-loss", &r, false);
    snprintf(path, sizeof path, "%s/checkpoints/best.safetensors", "by-loss");
    CHECK_INT(checkpoint_info(path, &by_loss, NULL), 0);
    CHECK_CLOSE(by_right.best, 1, 0);
    CHECK(by_right.step < 30);
    CHECK_INT(by_loss.step, 30);
}

/* The best by one metric says nothing of another: with a loss above 1, no share of right ones would be better. */
TEST(the_best_so_far_is_forgotten_when_another_metric_is_named) {
    checkpoint_meta best = {0};
    enter_scratch(true);
    OWNED_RECIPE by_loss = recipe_of("train.best=loss");
    OWNED_RECIPE by_right = recipe_of("");
    CHECK_INT(recipe_set(&by_loss, "train.steps=1"), 0);
    CHECK(run_in("renamed", &by_loss, false).valid.value[0] > 1);
    run_in("renamed", &by_right, true);
    CHECK_INT(checkpoint_info("renamed/checkpoints/best.safetensors", &best, NULL), 0);
    CHECK(best.step > 1);
    CHECK_CLOSE(best.best, 1, 0);
}

TEST(a_run_in_two_parts_ends_as_one) {
    OWNED_RECIPE half = recipe_of("train.steps=10"), whole = recipe_of("");
    enter_scratch(true);
    run_in("parts", &half, false);
    const train_result a = run_in("parts", &whole, true), b = run_in("once", &whole, false);
    CHECK_CLOSE(a.valid.value[0], b.valid.value[0], 0);
    CHECK_CLOSE(a.train_loss, b.train_loss, 0);
}

/* ---- epochs: of 3 batches ---- */

/* A recipe with all of a list that ends with NULL set. */
static recipe recipe_with(const char *const *assignments) {
    recipe r = recipe_of("");
    for (; *assignments; assignments++) CHECK_INT(recipe_set(&r, *assignments), 0);
    if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
    return r;
}

/* A run's metrics without what is of the clock, for comparing. */
static char *metrics_of(const char *directory) {
    char path[400];
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    char *text = read_text(path), *to = text;
    for (const char *from = text; *from;) {
        const bool clock = strncmp(from, "\"time\":", 7) == 0 || strncmp(from, "\"numbers_per_second\":", 21) == 0;
        if (clock) from += strcspn(from, ",}") + 1;
        else *to++ = *from++;
    }
    *to = '\0';
    return text;
}

TEST(epochs_are_the_updates_they_have) {
    enter_scratch(true);
    OWNED_RECIPE epochs = recipe_with((const char *[]){"train.epochs=10", "train.evaluate_every=2 epochs",
                                                       "train.checkpoint_every=4epochs",
                                                       "optimizer.schedule.lr=multistep(3 epochs,5 epochs;0.1)", NULL});
    OWNED_RECIPE updates =
        recipe_with((const char *[]){"train.steps=30", "train.evaluate_every=6", "train.checkpoint_every=12",
                                     "optimizer.schedule.lr=multistep(9,15;0.1)", NULL});
    CHECK_INT(run_in("epochs", &epochs, false).step, 30);
    CHECK_INT(run_in("updates", &updates, false).step, 30);
    char *a = metrics_of("epochs"), *b = metrics_of("updates");
    CHECK_STR(a, b);
    CHECK_HAS(a, "{\"kind\":\"train\",\"step\":1,\"epoch\":0.333333,");
    CHECK_HAS(a, "{\"kind\":\"train\",\"step\":9,\"epoch\":3,");
    CHECK_HAS(a, "{\"kind\":\"valid\",\"step\":6,\"epoch\":2,");
    CHECK_HAS(a, "{\"kind\":\"valid\",\"step\":30,\"epoch\":10,");
    free(a);
    free(b);
}

/* An update of two batches may span the end of an epoch. Both parts end in the middle of one. */
TEST(a_run_by_epochs_in_two_parts_ends_as_one) {
    enter_scratch(true);
    const char *const first[] = {"train.accumulate=2", "train.epochs=2.5", "train.evaluate_every=1 epoch",
                                 "optimizer.schedule.lr=cosine(0,7 epochs)", NULL};
    const char *const both[] = {"train.accumulate=2", "train.epochs=7", "train.evaluate_every=1 epoch",
                                "optimizer.schedule.lr=cosine(0,7 epochs)", NULL};
    OWNED_RECIPE half = recipe_with(first), whole = recipe_with(both);
    CHECK_INT(run_in("epoch-parts", &half, false).step, 4);
    const train_result a = run_in("epoch-parts", &whole, true), b = run_in("epochs-once", &whole, false);
    CHECK_INT(a.step, 11);
    CHECK_INT(b.step, 11);
    CHECK_CLOSE(a.train_loss, b.train_loss, 0);
    CHECK_CLOSE(a.valid.value[0], b.valid.value[0], 0);
    char *text = metrics_of("epochs-once");
    CHECK_HAS(text, "{\"kind\":\"train\",\"step\":2,\"epoch\":1.333333,");
    CHECK_HAS(text, "{\"kind\":\"valid\",\"step\":2,\"epoch\":1.333333,");
    CHECK_HAS(text, "{\"kind\":\"valid\",\"step\":3,\"epoch\":2,");
    free(text);
}

TEST(a_schedule_that_the_epochs_do_not_allow_is_named) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_with((const char *[]){"optimizer.schedule.lr=multistep(0.1 epochs,0.2 epochs;0.1)", NULL});
    const train_options o = {.directory = "never"};
    train_result out;
    CHECK_INT(train_run(&r, &o, &out), -1);
    CHECK_STR(
        adamod__last_message(),
        "--set: optimizer.schedule.lr: 'multistep(0.1 epochs,0.2 epochs;0.1)' is 'multistep(1,1;0.1)' in updates: "
        "multistep: milestone 2 is 1, expected ascending numbers from 1");
    CHECK(access("never", F_OK) != 0);
}

/* ---- patience ---- */

/* The loss of a line of metrics that begins so. */
static double loss_in(const char *text, const char *beginning) {
    const char *line = strstr(text, beginning), *loss = line ? strstr(line, "\"loss\":") : NULL;
    return loss ? strtod(loss + 7, NULL) : NAN;
}

/* The loss goes on falling, so the best by another metric is another model than the last. */
static void check_best_was_tested(const char *text, const train_result *out, int64_t step) {
    char valid[64];
    CHECK_STR(out->tested, "best");
    CHECK_INT(out->tested_step, step);
    CHECK_HAS(text, ",\"model\":\"best\",\"model_step\":");
    snprintf(valid, sizeof valid, "{\"kind\":\"valid\",\"step\":%d,", (int)step);
    CHECK_CLOSE(loss_in(text, "{\"kind\":\"final_valid\""), loss_in(text, valid), 0);
    CHECK_CLOSE(out->final.value[0], loss_in(text, valid), 0);
    CHECK(out->final.value[0] != out->valid.value[0]);
}

/* With all remainders right after 15 updates, the third evaluation after that ends it: at 30 of 60. */
TEST(training_ends_when_nothing_gets_better) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_with((const char *[]){"train.steps=60", "train.patience=3", "train.log_every=7", NULL});
    const train_result out = run_in("patient", &r, false);
    checkpoint_meta last = {0};
    CHECK_INT(out.status, TRAIN_FINISHED);
    CHECK(out.early);
    CHECK_INT(checkpoint_info("patient/checkpoints/last.safetensors", &last, NULL), 0);
    CHECK_INT(last.step, out.step);
    CHECK_INT(last.stale, 3);
    CHECK_INT(last.best_step, out.step - 15);
    char *text = metrics_of("patient"), line[64];
    check_best_was_tested(text, &out, out.step - 15);
    snprintf(line, sizeof line, "{\"kind\":\"train\",\"step\":%d,", (int)out.step); /* reports end with it */
    CHECK_HAS(text, line);
    free(text);
    text = read_text("patient/result.json");
    CHECK_HAS(text, "{\"status\":\"finished\",");
    CHECK_HAS(text, ",\"early\":true,");
    free(text);
    const train_result again = run_in("patient", &r, true); /* it knows that it has ended */
    CHECK(again.early);
    CHECK_INT(again.step, out.step);
    CHECK_CLOSE(again.valid.value[0], out.valid.value[0], 0);
    CHECK_CLOSE(again.final.value[0], out.final.value[0], 0);
    CHECK_INT(remove("patient/checkpoints/best.safetensors"), 0); /* then the last is tested, and that is said */
    const train_result without = run_in("patient", &r, true);
    CHECK_STR(without.tested, "last");
    CHECK_CLOSE(without.final.value[0], out.valid.value[0], 0);
    OWNED_RECIPE more = recipe_with((const char *[]){"train.steps=60", "train.patience=4", NULL});
    CHECK_INT(run_in("patient", &more, true).step, out.step + 5);
    OWNED_RECIPE endless = recipe_with((const char *[]){"train.steps=60", NULL});
    const train_result whole = run_in("patient", &endless, true);
    CHECK_INT(whole.step, 60);
    CHECK(!whole.early);
}

/* With all remainders right after 15 updates, that model is the best of the 30. */
TEST(the_recipe_chooses_the_model_that_is_tested) {
    static const struct {
        const char *test, *average, *patience, *tested;
        int step;
    } all[] = {{"auto", "0", "0", "last", 30},     {"best", "0", "0", "best", 15},
               {"best", "2", "0", "best", 15},     {"last", "2", "4", "last", 30},
               {"auto", "2", "4", "averaged", 30}, {"averaged", "2", "4", "averaged", 30}};
    enter_scratch(true);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char test[32], average[32], patience[32], directory[32], model[64];
        snprintf(test, sizeof test, "train.test=%s", all[i].test);
        snprintf(average, sizeof average, "train.average=%s", all[i].average);
        snprintf(patience, sizeof patience, "train.patience=%s", all[i].patience);
        snprintf(directory, sizeof directory, "tested-%zu", i);
        OWNED_RECIPE r = recipe_with((const char *[]){test, average, patience, NULL});
        const train_result out = run_in(directory, &r, false);
        CHECK_STR(out.tested, all[i].tested);
        CHECK_INT(out.tested_step, all[i].step);
        char *text = metrics_of(directory);
        snprintf(model, sizeof model, ",\"model\":\"%s\",\"model_step\":%d", all[i].tested, all[i].step);
        CHECK_HAS(text, model);
        free(text);
    }
}

/* A signal that comes while update 22 is being made, and what there is some updates later. */
static atomic_int signalled;
static checkpoint_meta saved;

static void next_and_signal(experiment *e, task_batch *out) {
    next(e, out);
    const int64_t done = adamod_steps(e->optimizer);
    if (done == 21) signalled = 1;
    if (done == 24) CHECK_INT(checkpoint_info("asked/checkpoints/last.safetensors", &saved, NULL), 0);
}

static recipe with_signal(recipe r) {
    static task signalling;
    static const task *list[2];
    signalling = remainder_task;
    signalling.next = next_and_signal;
    list[0] = &signalling;
    r.tasks = list;
    return r;
}

/* Stopped between the evaluations of updates 20 and 25, one of three without a better one. */
TEST(a_resumed_run_has_the_patience_that_is_left) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_with((const char *[]){"train.steps=60", "train.patience=3", NULL});
    const recipe part = with_signal(r); /* its lists are those of r */
    const train_options o = {.directory = "patient-parts", .stop = &signalled};
    train_result stopped;
    CHECK_INT(train_run(&part, &o, &stopped), 0);
    CHECK_INT(stopped.step, 22);
    signalled = 0;
    const train_result once = run_in("patient-once", &r, false), resumed = run_in("patient-parts", &r, true);
    CHECK_INT(resumed.step, once.step);
    CHECK(resumed.early);
}

/* The best is of before the interruption. */
TEST(a_resumed_run_tests_the_best_model_of_all_its_parts) {
    enter_scratch(true);
    OWNED_RECIPE r = recipe_with((const char *[]){"train.test=best", NULL});
    const recipe part = with_signal(r); /* its lists are those of r */
    const train_options o = {.directory = "best-parts", .stop = &signalled};
    train_result stopped;
    CHECK_INT(train_run(&part, &o, &stopped), 0);
    CHECK_INT(stopped.step, 22);
    signalled = 0;
    const train_result once = run_in("best-once", &r, false), resumed = run_in("best-parts", &r, true);
    char *text = metrics_of("best-parts");
    check_best_was_tested(text, &resumed, 15);
    free(text);
    CHECK_CLOSE(resumed.final.value[0], once.final.value[0], 0);
}

TEST(a_checkpoint_is_saved_on_demand_and_training_goes_on) {
    enter_scratch(true);
    OWNED_RECIPE r = with_signal(recipe_of("train.checkpoint_every=0"));
    const train_options o = {.directory = "asked", .save = &signalled};
    train_result out;
    CHECK_INT(train_run(&r, &o, &out), 0);
    CHECK_INT(out.step, 30);
    CHECK_INT(signalled, 0);
    CHECK_INT(saved.step, 22);
}

/* ---- groups of parameters ---- */

/* A step of sgd with gradients of 0 leaves what does not decay as it was: all 1 here. */
static bool decays(const experiment *e, const char *name) {
    const nn_param *p = nn_params_find(e->params, name);
    CHECK(p != NULL);
    return p && e->params->data[p->offset] < 1;
}

static void open_decaying(experiment *e, const char *no_decay) {
    const char *const assignments[] = {"data.task=numbers",  "data.train=10",      "data.valid=4",
                                       "data.test=4",        "model.layers=1",     "model.d=8",
                                       "model.ffn=8",        "model.heads=1",      "optimizer.rule=sgd",
                                       "optimizer.lr=0.125", "optimizer.decay=l2", "optimizer.weight_decay=0.5",
                                       "train.threads=1",    "train.backend=cpu",  no_decay};
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, all_tasks());
    for (size_t i = 0; i < sizeof assignments / sizeof *assignments; i++)
        if (!CHECK_INT(recipe_set(&r, assignments[i]), 0)) puts(adamod__last_message());
    if (!CHECK_INT(recipe_check(&r), 0)) puts(adamod__last_message());
    if (!CHECK_INT(experiment_open(e, &r, NULL, TASK_TRAIN), 0)) puts(adamod__last_message());
    for (int64_t i = 0; i < e->params->count; i++) e->params->data[i] = 1, e->params->grad[i] = 0;
    CHECK_INT(adamod_step(e->optimizer), ADAMOD_OK);
}

TEST(biases_and_norms_decay_unless_the_recipe_says_not) {
    const struct {
        const char *no_decay;
        bool biases, norms;
    } cases[] = {{"optimizer.no_decay=", true, true},
                 {"optimizer.no_decay=biases", false, true},
                 {"optimizer.no_decay=norms", true, false},
                 {"optimizer.no_decay=biases,norms", false, false}};
    for (int i = 0; i < 4; i++) {
        experiment e;
        open_decaying(&e, cases[i].no_decay);
        CHECK(decays(&e, "encoder.0.ffn_in.weight") && decays(&e, "decoder.embedding.weight"));
        CHECK_INT(decays(&e, "encoder.0.ffn_in.bias"), cases[i].biases);
        CHECK_INT(decays(&e, "decoder.0.cross_out.bias"), cases[i].biases);
        CHECK_INT(decays(&e, "encoder.0.ffn_norm.weight"), cases[i].norms);
        CHECK_INT(decays(&e, "encoder.0.ffn_norm.bias"), cases[i].norms);
        experiment_close(&e);
    }
}

/* ---- progress ---- */

/* 30 updates of 2 s, an evaluation of 7 s every 5 updates and a checkpoint of 11 s every 10; at the end all 24 numbers are
 * scored, as in an evaluation, and answered, as 4 were in 3 s. */
TEST(the_time_left_counts_evaluations_checkpoints_and_the_test) {
    experiment e = {.recipe = recipe_of(""), .task = &remainder_task, .steps = 30, .epoch = {3, 1}};
    const train_options silent = {.show = TRAIN_SILENT};
    progress p;
    progress_begin(&p, &silent, &e, 0, 0);
    CHECK_CLOSE(progress_left(&p), 0, 0);
    for (int i = 0; i < 12; i++) progress_spent(&p, PROGRESS_TRAINING, 2);
    progress_update(&p, 12, 96, 4, 1);
    CHECK_CLOSE(progress_left(&p), 18 * 2, 1e-9);
    progress_spent(&p, PROGRESS_EVALUATING, 6);
    progress_spent(&p, PROGRESS_EVALUATING, 8);
    progress_spent(&p, PROGRESS_SAVING, 11);
    CHECK_CLOSE(progress_left(&p), 18 * 2 + 4 * 7 + 2 * 11, 1e-9);
    p.valid = (task_result){.items = 24, .samples = 4, .seconds = 3};
    CHECK_CLOSE(progress_left(&p), 18 * 2 + 4 * 7 + 2 * 11 + (7 - 3) + 24 * 3. / 4, 1e-9);
    e.recipe.train.evaluate_every = (key_span){0, 4}; /* epochs: after updates 12, 24 and the last */
    e.recipe.train.checkpoint_every = (key_span){0, 0};
    p.valid.items = 0;
    CHECK_CLOSE(progress_left(&p), 18 * 2 + 2 * 7 + 11, 1e-9);
    progress_update(&p, 30, 240, 10, 1);
    CHECK_CLOSE(progress_left(&p), 0, 1e-9);
    recipe_free(&e.recipe);
}

TEST(an_evaluation_says_that_the_run_stops_after_it) {
    static const char expected[] = "step 0/30  epoch 0.00  test set: numbers 8/24\n"
                                   "step 0/30  epoch 0.00  stops after the test set: numbers 8/24\n";
    atomic_int stop = 0;
    experiment e = {.recipe = recipe_of("train.progress_every=1e-9"), .task = &remainder_task, .steps = 30};
    const train_options lines = {.show = TRAIN_LOG, .stop = &stop};
    progress p;
    char *text;
    size_t n;
    enter_scratch(true);
    const int kept = dup(STDERR_FILENO), file = open("said", O_CREAT | O_WRONLY, 0666);
    dup2(file, STDERR_FILENO);
    progress_begin(&p, &lines, &e, 0, 0);
    progress_split(&p, "test");
    progress_within(&p, "numbers", 8, 24);
    stop = 2;
    progress_within(&p, "numbers", 8, 24);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(file);
    recipe_free(&e.recipe);
    if (!CHECK_INT(text_read("said", &text, &n), 0)) return;
    CHECK(n == sizeof expected - 1 && memcmp(text, expected, n) == 0);
    free(text);
}

TEST(a_number_is_told_from_the_bound_that_it_misses) {
    const struct {
        double found, bound;
        const char *text;
    } cases[] = {{0.598, 0.6, "0.598"}, {0.5999, 0.6, "0.5999"}, {0.604, 0.6, "0.604"},  {0.6, 0.6, "0.60"},
                 {0.59, 0.6, "0.59"},   {13.728, 1.5, "13.73"},  {0.99996, 1, "0.99996"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[32];
        CHECK_STR(metric_beside(cases[i].found, cases[i].bound, out), cases[i].text);
    }
}

/* Three runs, two at a time: those that wait take as long as those that are over, or until then as those under way. */
TEST(the_time_left_in_all_counts_runs_that_wait) {
    scoreboard *b = scoreboard_create(5, 2);
    if (!CHECK(b != NULL)) return;
    CHECK(scoreboard_left(b) < 0);
    scoreboard_end(b, 4); /* before */
    scoreboard_begin(b, 0);
    CHECK(scoreboard_left(b) < 0);
    CHECK_INT(scoreboard_look(b, 0).steps, 0);
    scoreboard_tell(b, 0, &(scoreboard_run){.left = 100, .step = 3, .steps = 30, .loss = 2, .valid = 1.5});
    CHECK_INT(scoreboard_look(b, 0).state, SCOREBOARD_RUNS);
    CHECK_INT(scoreboard_look(b, 0).steps, 30);
    CHECK_CLOSE(scoreboard_look(b, 0).valid, 1.5, 0);
    CHECK_CLOSE(scoreboard_left(b), 200, 1); /* 0 and 2 in turn, 1 and 3 beside them */
    scoreboard_begin(b, 1);
    scoreboard_tell(b, 1, &(scoreboard_run){.left = 60, .steps = 30});
    CHECK_CLOSE(scoreboard_left(b), 180, 1); /* 80 is the mean: 1 until 60, 2 until 140; 0 until 100, 3 until 180 */
    scoreboard_end(b, 0);                    /* at once, so that others take no time either */
    CHECK_CLOSE(scoreboard_left(b), 60, 1);
    scoreboard_end(b, 1);
    scoreboard_end(b, 2);
    scoreboard_end(b, 3);
    CHECK_CLOSE(scoreboard_left(b), 0, 1);
    scoreboard_free(b);
}

static checkpoint_meta last_of(const char *directory) {
    char path[400];
    checkpoint_meta meta = {0};
    snprintf(path, sizeof path, "%s/checkpoints/last.safetensors", directory);
    CHECK_INT(checkpoint_info(path, &meta, NULL), 0);
    return meta;
}

/* Refused by name; and if it is wanted so, training goes on with a new epoch, and validation with a new best. */
TEST(other_data_are_refused_or_begun_anew) {
    OWNED_RECIPE half = recipe_of("train.steps=10"), more = recipe_of("train.steps=11");
    const train_options resume = {.directory = "run", .resume = true},
                        reset = {.directory = "run", .resume = true, .reset = RESET_DATA};
    train_result out;
    enter_scratch(true);
    run_in("run", &half, false);
    checkpoint_meta at = last_of("run");
    CHECK(at.epoch == 3 && at.batch == 1 && at.best_step > 0);
    CHECK_STR(at.data, "data.numbers 0000000000000007 data.valid 0000000000000008");
    contents[0]++;
    CHECK_INT(train_run(&more, &resume, &out), -1);
    CHECK_STR(adamod__last_message(),
              "numbers.txt: data.numbers is not what the run has been trained with: its content has changed; "
              "restore it, or go on with what is there by --reset data");
    CHECK_INT(train_run(&more, &reset, &out), 0);
    at = last_of("run");
    CHECK(at.epoch == 4 && at.batch == 1 && at.best_step > 0 && at.best_step <= 10);
    CHECK_INT(train_run(&more, &resume, &out), 0);
    contents[1]++;
    CHECK_INT(train_run(&more, &resume, &out), -1);
    CHECK_HAS(adamod__last_message(), "valid.txt: data.valid is not what the run has been trained with");
    CHECK_INT(train_run(&more, &reset, &out), 0);
    CHECK_INT(last_of("run").best_step, 0);
}

/* A run is known by its data, whatever it is trained on. */
TEST(every_task_of_the_program_has_fingerprints_of_its_data) {
    for (int i = 0; tasks_all[i]; i++) {
        if (!CHECK(tasks_all[i]->data)) printf("  %s\n", tasks_all[i]->name);
    }
}

/* ---- keys ---- */

static const char *set_complaint(const char *first, const char *second) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, all_tasks());
    adamod__fail(ADAMOD_OK, "%s", "");
    if (recipe_set(&r, first) || (second && recipe_set(&r, second)) || recipe_check(&r)) return adamod__last_message();
    return "(none)";
}

TEST(keys_belong_to_their_task_and_model) {
    CHECK_STR(set_complaint("data.divisor=4", NULL), "(none)");
    CHECK_STR(set_complaint("data.divisor=4", "data.task=numbers"),
              "--set: data.divisor is given, but data.task numbers has no such key");
    CHECK_STR(set_complaint("data.task=numbers", "data.divisor=3"), "(none)"); /* what it would have been anyway */
    CHECK_STR(set_complaint("model.heads=2", NULL),
              "--set: model.heads is given, but model.kind lookup has no such key");
    CHECK_STR(set_complaint("model.heads=2", "data.task=numbers"), "(none)");
    CHECK_STR(set_complaint("data.task=words", NULL),
              "--set: data.task is 'words', expected remainders, numbers, bitext, images or language");
    CHECK_STR(set_complaint("model.kind=transformer", NULL), "--set: model.kind is 'transformer', expected lookup");
    CHECK_STR(set_complaint("data.batch=7", NULL), "--set: data.batch is 7, which does not divide data.numbers 24");
    CHECK_STR(set_complaint("train.best=bleu", NULL),
              "--set: train.best is 'bleu', expected a metric of data.task remainders: loss, right");
    CHECK_STR(set_complaint("train.best=bleu", "data.task=numbers"), "(none)");
}

TEST(what_a_file_says_of_its_own_task_does_not_hinder_another) {
    OWNED_RECIPE r = {0};
    static const char text[] = "data: {task: remainders, divisor: 5}\n";
    recipe_defaults(&r, all_tasks());
    CHECK_INT(recipe_parse(&r, text, strlen(text), "r.yaml"), 0);
    CHECK_INT(recipe_set(&r, "data.task=numbers"), 0);
    CHECK_INT(recipe_check(&r), 0);
    static const char mixed[] = "data: {task: numbers, divisor: 5}\n";
    recipe_free(&r);
    recipe_defaults(&r, all_tasks());
    CHECK_INT(recipe_parse(&r, mixed, strlen(mixed), "r.yaml"), 0);
    CHECK_INT(recipe_check(&r), -1);
    CHECK_STR(adamod__last_message(), "r.yaml:1: data.divisor is given, but data.task numbers has no such key");
}

TEST(values_given_before_the_task_is_chosen_are_kept) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, all_tasks());
    CHECK_INT(recipe_set(&r, "data.task=numbers"), 0);
    CHECK_STR(r.model.kind, "transformer");
    CHECK_INT(recipe_set(&r, "data.numbers=48"), 0);
    CHECK_INT(recipe_set(&r, "data.task=remainders"), 0);
    CHECK_STR(r.model.kind, "lookup");
    CHECK_INT(settings(&r)->data.numbers, 48);
    CHECK_INT(settings(&r)->data.divisor, 3);
    CHECK_INT(recipe_check(&r), 0);
}

RUN_TESTS(ENTRY(a_task_of_ones_own_is_trained_and_measured),
          ENTRY(what_comes_of_the_validation_set_is_not_called_a_test),
          ENTRY(the_training_loss_is_the_mean_of_the_last_twentieth),
          ENTRY(the_best_checkpoint_is_best_by_the_metric_that_was_named),
          ENTRY(the_best_so_far_is_forgotten_when_another_metric_is_named), ENTRY(a_run_in_two_parts_ends_as_one),
          ENTRY(other_data_are_refused_or_begun_anew), ENTRY(every_task_of_the_program_has_fingerprints_of_its_data),
          ENTRY(epochs_are_the_updates_they_have), ENTRY(a_run_by_epochs_in_two_parts_ends_as_one),
          ENTRY(a_schedule_that_the_epochs_do_not_allow_is_named), ENTRY(training_ends_when_nothing_gets_better),
          ENTRY(a_resumed_run_has_the_patience_that_is_left), ENTRY(the_recipe_chooses_the_model_that_is_tested),
          ENTRY(a_resumed_run_tests_the_best_model_of_all_its_parts),
          ENTRY(a_checkpoint_is_saved_on_demand_and_training_goes_on),
          ENTRY(biases_and_norms_decay_unless_the_recipe_says_not),
          ENTRY(the_time_left_counts_evaluations_checkpoints_and_the_test),
          ENTRY(a_number_is_told_from_the_bound_that_it_misses), ENTRY(the_time_left_in_all_counts_runs_that_wait),
          ENTRY(an_evaluation_says_that_the_run_stops_after_it), ENTRY(keys_belong_to_their_task_and_model),
          ENTRY(what_a_file_says_of_its_own_task_does_not_hinder_another),
          ENTRY(values_given_before_the_task_is_chosen_are_kept))
