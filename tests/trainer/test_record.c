/* Recorded runs: that they are small, are read as the run is, and that what is there already stays.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "run_folders.h"
#include "core/error.h"
#include "report/variants.h"
#include "study/record.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const files[] = {"recipe.yaml", "machine.json",  "machine.2.json",   "task.json",
                                    "data.json",   "metrics.jsonl", "histograms.jsonl", "result.json"};
enum { FILES = sizeof files / sizeof *files };

static void check_record(const char *from, const char *to) {
    if (!CHECK_INT(record_run(from, to, NULL, KNOWN), 0)) printf("  %s\n", adamod__last_message());
}

/* Training as long as CIFAR-100's: 300 epochs of 391 updates, with noise that has many digits. */
static const char *make_long(const char *directory, int epochs) {
    const char *run = make_run((made){directory, "AdaMod", "finished", 1, 300, 4, 1, 1, 0.5, 20});
    put(run, "recipe.yaml",
        "name: net\ndata:\n  path: /home/me/cifar/\n  source: \"/data/of mine/train.de\"\n  task: images\ntrain:\n  seed: 3\n");
    put(run, "task.json", pictures);
    put(run, "machine.json", "{\"version\":\"0.1.0\",\"host\":\"secret\",\"cores\":2}\n");
    put(run, "machine.2.json", "{\"version\":\"0.1.0\",\"resumed_at\":\"40\"}\n");
    put(run, "data.json",
        "{\"parts\":[{\"split\":\"train\",\"key\":\"data.path\",\"file\":\"/home/me/cifar\",\"fingerprint\":\"12\"}]}\n");
    put(run, "target.vocab", "words\n");
    put(run, "samples.jsonl", "{\"step\":900,\"output\":\"text\"}\n");
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 391 * epochs; i++) {
        const double x = i / (391.0 * epochs), noise = fmod(i * 0.618033988749895, 1);
        if (i < 2000 || i % 10 == 0)
            fprintf(file,
                    "{\"kind\":\"train\",\"step\":%d,\"epoch\":%.6f,\"time\":%.15g,\"loss\":%.15g,\"nll\":%.15g,"
                    "\"accuracy\":%.15g,\"lr\":0.001,\"images\":%d,\"images_per_second\":%.15g,\"grad_norm\":%.15g}\n",
                    i, i / 391.0, i / 270.3, exp(-3 * x) * (1 + noise), noise, x * noise, i * 128, 30000 + noise,
                    noise);
        if (i % 391 == 0)
            fprintf(file,
                    "{\"kind\":\"valid\",\"step\":%d,\"epoch\":%d,\"time\":%.15g,\"images\":10000,\"loss\":%.15g,"
                    "\"accuracy\":%.4f}\n",
                    i, i / 391, i / 270.3, 1 - x + noise / 100, i == 391 * 7 ? 0.99 : 0.9 * x);
    }
    fprintf(
        file,
        "{\"kind\":\"test\",\"step\":%d,\"model\":\"best\",\"model_step\":%d,\"loss\":0.123456789,\"accuracy\":0.9123}\n",
        391 * epochs, 391 * 7);
    fclose(file);
    file = create(run, "result.json");
    fprintf(file,
            "{\"status\":\"finished\",\"step\":%d,\"seconds\":400,\"training_loss\":0.0625,\"test\":{\"kind\":\"test\","
            "\"step\":%d,\"loss\":0.123456789,\"accuracy\":0.9123}}\n",
            391 * epochs, 391 * epochs);
    fclose(file);
    return run;
}

/* The mean of the training loss between two updates. */
static double mean_between(const report_run *r, double from, double to) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < r->train.n; i++) {
        const report_point *p = &r->train.at[i];
        if ((double)p->step <= from || (double)p->step > to) continue;
        sum += p->weight * p->loss;
        weight += p->weight;
    }
    return sum / weight;
}

static void compare(const report *a, const report *b) {
    const report_run *x = &a->run[0], *y = &b->run[0];
    for (int c = 0; c < REPORT_COLUMNS; c++) {
        CHECK_INT(report_has(a, c), report_has(b, c));
        const double was = a->variant[0].of[c].median;
        if (report_has(a, c)) CHECK_CLOSE(was, b->variant[0].of[c].median, 1e-5 * fabs(was));
    }
    if (!CHECK_INT(x->valid.n, y->valid.n)) return;
    for (size_t i = 0; i < x->valid.n; i++) {
        CHECK_INT(x->valid.at[i].step, y->valid.at[i].step);
        CHECK_CLOSE(x->valid.at[i].loss, y->valid.at[i].loss, 1e-6);
        CHECK_CLOSE(x->valid.at[i].value[1], y->valid.at[i].value[1], 1e-4); /* percent */
    }
    CHECK_CLOSE(x->train.at[0].loss, y->train.at[0].loss, 1e-4);
    const double last = (double)x->train.at[x->train.n - 1].step;
    CHECK_INT(y->train.at[y->train.n - 1].step, last);
    for (int k = 0; k < 4; k++)
        CHECK_CLOSE(mean_between(x, last * k / 4, last * (k + 1) / 4),
                    mean_between(y, last * k / 4, last * (k + 1) / 4), 0.02);
    for (size_t i = 0; i < x->data.n; i++)
        CHECK_STR(report_pairs_find(&y->data, x->data.at[i].key), x->data.at[i].value);
    CHECK_INT(x->data.n, y->data.n);
}

TEST(a_recorded_run_is_read_as_the_run_is) {
    const char *from = make_long("long", 300), *to = below("records/long");
    report a, b;
    check_record(from, to);
    if (!CHECK_INT(report_load(&a, &from, 1, KNOWN), 0)) return;
    if (!CHECK_INT(report_load(&b, &to, 1, KNOWN), 0)) return;
    compare(&a, &b);
    CHECK(b.run[0].train.n <= RECORD_POINTS && b.run[0].train.n >= RECORD_POINTS - 2);
    CHECK(b.run[0].n_histograms >= 6 && b.run[0].n_histograms <= 14);
    CHECK_INT(b.run[0].histogram[0].step, 1);
    CHECK_INT(b.run[0].histogram[b.run[0].n_histograms - 1].step, 300);
    report_free(&a);
    report_free(&b);
}

TEST(a_recorded_run_is_small_and_names_no_place) {
    const char *to = below("records/small");
    long bytes = 0;
    check_record(make_long("long", 300), to);
    for (int i = 0; i < FILES; i++) {
        char *text = contents(below("records/small/%s", files[i]));
        if (!CHECK(*text)) printf("  %s\n", files[i]);
        CHECK(!strstr(text, "/home") && !strstr(text, "/data") && !strstr(text, "secret"));
        bytes += (long)strlen(text);
        free(text);
    }
    CHECK(bytes < 70000);
    CHECK_INT(size_of(below("records/small/samples.jsonl")), -1);
    CHECK_INT(size_of(below("records/small/target.vocab")), -1);
    check_file(below("records/small/recipe.yaml"), "\n  path: cifar/\n  source: \"train.de\"\n  task: images\n");
    check_file(below("records/small/data.json"), "\"file\":\"cifar\",\"fingerprint\":\"12\"");
    check_file(below("records/small/data.json"), "{\"split\":\"vocabulary\",\"key\":\"target\"");
    check_file(below("records/small/metrics.jsonl"), "\"model\":\"best\",\"model_step\":2737,\"loss\":0.123457,");
    check_file(below("records/small/result.json"), "\"loss\":0.123456789");
}

TEST(recording_a_record_changes_nothing) {
    check_record(make_long("long", 300), below("records/once"));
    check_record(below("records/once"), below("records/twice"));
    for (int i = 0; i < FILES; i++) {
        char *once = contents(below("records/once/%s", files[i])),
             *twice = contents(below("records/twice/%s", files[i]));
        CHECK_STR(once, twice);
        free(once);
        free(twice);
    }
}

TEST(many_evaluations_keep_the_best_and_the_last) {
    check_record(make_long("longer", 1000), below("records/longer"));
    char *text = contents(below("records/longer/metrics.jsonl"));
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"valid\"")); at++) n++;
    CHECK(n <= RECORD_EVALUATIONS && n > RECORD_EVALUATIONS / 2);
    CHECK_HAS(text, "{\"kind\":\"valid\",\"step\":2737,"); /* the best accuracy */
    CHECK_HAS(text, "{\"kind\":\"valid\",\"step\":391000,");
    CHECK_HAS(text, "{\"kind\":\"test\",\"step\":391000,");
    free(text);
}

/* As version 0.1 left it: without task.json and data.json. */
TEST(an_older_run_is_recorded) {
    const char *from = make_run((made){"old", "AdaMod", "finished", 1, 300, 4, 1, 1, 0.5, 20}),
               *to = below("records/old");
    report_run r;
    check_record(from, to);
    if (!CHECK_INT(report_run_read(&r, to, KNOWN), 0)) return;
    CHECK_CLOSE(r.train.at[0].loss, 4, 1e-9);
    CHECK_CLOSE(r.valid.at[0].value[report_find_metric(&r, "exact")], 50, 1e-9);
    CHECK(!r.has_data);
    report_run_free(&r);
}

static void check_note(const char *from, const char *name, const char *note, const char *is) {
    const char *to = below("records/%s", name);
    report_run r;
    if (!CHECK_INT(record_run(from, to, note, KNOWN), 0)) printf("  %s\n", adamod__last_message());
    if (!CHECK_INT(report_run_read(&r, to, KNOWN), 0)) return;
    CHECK_STR(r.note, is);
    CHECK_STR(r.own, "data set cifar100 not as published: its folder was made by hand");
    report_run_free(&r);
}

/* A recorded run keeps its note, or gets another; and whether its data are the published ones. */
TEST(a_note_travels_with_a_run) {
    const char *from = make_run((made){"noted", "AdaMod", "finished", 1, 300, 4, 1, 1, 0.5, 20});
    put(from, "data.json",
        "{\"train_samples\":9,\"set\":\"cifar100\",\"published\":false,\"why\":\"its folder was made by hand\",\"parts\":[]}\n");
    check_note(from, "noted-0", NULL, "");
    CHECK_INT(size_of(below("records/noted-0/note.txt")), -1);
    check_note(from, "noted-1", "half of the data", "half of the data");
    put(from, "note.txt", "a third of the data"); /* as an editor may leave it, without a line feed */
    check_note(from, "noted-2", NULL, "a third of the data");
    check_note(from, "noted-3", "half of the data", "half of the data");
    check_file(below("records/noted-2/note.txt"), "a third of the data\n");
    check_note(below("records/noted-3"), "noted-4", NULL, "half of the data");
}

static void check_published(const char *from, const char *data, const char *own) {
    report_run r;
    put(from, "data.json", data);
    if (!CHECK_INT(report_run_read(&r, from, KNOWN), 0)) return;
    CHECK_STR(r.own, own);
    report_run_free(&r);
}

/* Of older runs it is not known. */
TEST(only_data_known_not_to_be_published_are_called_own) {
    const char *from = make_run((made){"owned", "AdaMod", "finished", 1, 300, 4, 1, 1, 0.5, 20});
    check_published(from, "{\"train_samples\":9,\"parts\":[]}", "");
    check_published(from, "{\"set\":\"ptb\",\"published\":true,\"parts\":[]}", "");
    check_published(from, "{\"set\":\"ptb\",\"published\":false,\"parts\":[]}", "data set ptb not as published");
    put(from, "data.json", "{\"published\":3}");
    report_run r;
    CHECK(report_run_read(&r, from, KNOWN) != 0);
    CHECK_HAS(adamod__last_message(), "owned/data.json:1: expected true or false");
}

TEST(a_wrong_note_is_refused) {
    static const char *const faults[][2] = {{"", "it is empty"},
                                            {"\n", "it is empty"},
                                            {"  \n", "it is empty"},
                                            {"one\ntwo\n", "it has more than one line"},
                                            {"one\n\n", "it has more than one line"},
                                            {"one\ttwo\n", "it has a control character"},
                                            {"\xff\n", "it is not UTF-8"}};
    const char *from = make_run((made){"misnoted", "AdaMod", "finished", 1, 300, 4, 1, 1, 0.5, 20});
    char text[400], wanted[100];
    report_run r;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        put(from, "note.txt", faults[i][0]);
        CHECK(report_run_read(&r, from, KNOWN) != 0);
        snprintf(wanted, sizeof wanted, "misnoted/note.txt: %s", faults[i][1]);
        CHECK_HAS(adamod__last_message(), wanted);
    }
    memset(text, 'x', sizeof text);
    text[301] = '\0';
    put(from, "note.txt", text);
    CHECK(report_run_read(&r, from, KNOWN) != 0);
    CHECK_HAS(adamod__last_message(), "misnoted/note.txt: it is longer than 300 bytes");
    text[300] = '\0';
    put(from, "note.txt", text);
    if (CHECK_INT(report_run_read(&r, from, KNOWN), 0)) {
        CHECK_STR(r.note, text);
        report_run_free(&r);
    }
}

static void check_refused(const char *from, const char *to, const char *why) {
    CHECK(record_run(from, to, NULL, KNOWN) != 0);
    CHECK_HAS(adamod__last_message(), why);
}

TEST(what_cannot_be_recorded_is_refused) {
    const char *from = make_run((made){"begun", "Adam", NULL, 1, 40, 4, 1, 1, 0.5, 20});
    check_refused(from, below("records/begun"), "begun: the run is not over");
    put(from, "result.json", "{\"status\":\"interrupted\",\"step\":20,\"seconds\":3}");
    check_refused(from, below("records/begun"), "begun: the run is not over");
    CHECK_INT(access(below("records/begun"), F_OK), -1);
    put(from, "result.json", "{\"status\":\"diverged\",\"step\":20,\"seconds\":3}");
    check_record(from, below("records/begun")); /* a result too */
    check_refused(from, below("records/begun"), "records/begun: is there already, and is not replaced");
    check_refused(below("nothing"), below("records/nothing"), "nothing/recipe.yaml: no such file");
}

TEST(a_failure_leaves_nothing) {
    const char *from = make_run((made){"whole", "Adam", "finished", 1, 40, 4, 1, 1, 0.5, 20});
    put(from, "in-the-way", "");
    check_refused(from, below("whole/in-the-way/record"), "in-the-way/record.tmp: cannot make this directory");
    mkdir(below("whole/task.json"), 0777);
    check_refused(from, below("records/whole"), "whole/task.json");
    CHECK_INT(access(below("records/whole"), F_OK), -1);
    CHECK_INT(access(below("records/whole.tmp"), F_OK), -1);
}

/* Leftovers of a killed process do not become part of a record. */
TEST(leftovers_are_removed) {
    const char *from = make_run((made){"again", "Adam", "finished", 1, 40, 4, 1, 1, 0.5, 20});
    mkdir(below("records"), 0777);
    put(below("records/again.tmp"), "machine.2.json", "{}");
    check_record(from, below("records/again"));
    CHECK_INT(size_of(below("records/again/machine.2.json")), -1);
    CHECK_INT(access(below("records/again.tmp"), F_OK), -1);
}

/* Reads a run of results/, named METHOD-seed-N. */
static void check_kept(const char *run) {
    report_run r;
    long bytes = 0;
    if (!CHECK_INT(report_run_read(&r, run, NULL, 0), 0)) {
        printf("  %s\n", adamod__last_message());
        return;
    }
    const char *seed = strstr(run, "-seed-"), *recipe_seed = report_pairs_find(&r.recipe, "train.seed");
    if (!CHECK(seed && recipe_seed && strcmp(seed + 6, recipe_seed) == 0)) printf("  %s\n", run);
    CHECK(report_fate_of(&r) == REPORT_FINISHED || report_fate_of(&r) == REPORT_DIVERGED);
    CHECK(r.has_data && r.n_machines > 0 && r.n_metrics > 0);
    for (int i = 0; i < FILES; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", run, files[i]);
        if (size_of(path) > 0) bytes += size_of(path);
    }
    if (!CHECK(bytes < 100000)) printf("  %s has %ld bytes\n", run, bytes);
    CHECK(!strstr(r.recipe_text, ": /") && !strstr(r.recipe_text, ": \"/"));
    report_run_free(&r);
}

TEST(the_runs_of_the_repository_can_be_read) {
    char path[600];
    struct dirent **entry;
    int runs = 0;
    snprintf(path, sizeof path, "%s/results", source_dir());
    const int n = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < n; free(entry[i++])) {
        char **found;
        int k = 0;
        if (strchr(entry[i]->d_name, '.')) continue;
        snprintf(path, sizeof path, "%s/results/%s", source_dir(), entry[i]->d_name);
        if (!CHECK_INT(report_runs_find(path, &found, &k), 0)) continue;
        for (runs += k; k--; free(found[k])) check_kept(found[k]);
        free(found);
    }
    if (n >= 0) free(entry);
    CHECK(runs >= 4);
}

RUN_TESTS(ENTRY(a_recorded_run_is_read_as_the_run_is), ENTRY(a_recorded_run_is_small_and_names_no_place),
          ENTRY(recording_a_record_changes_nothing), ENTRY(many_evaluations_keep_the_best_and_the_last),
          ENTRY(an_older_run_is_recorded), ENTRY(a_note_travels_with_a_run),
          ENTRY(only_data_known_not_to_be_published_are_called_own), ENTRY(a_wrong_note_is_refused),
          ENTRY(what_cannot_be_recorded_is_refused), ENTRY(a_failure_leaves_nothing), ENTRY(leftovers_are_removed),
          ENTRY(the_runs_of_the_repository_can_be_read))
