/* Reports: that run directories are read at any moment of their life and refused where they are not what they should
 * be, that the numbers are those one gets by hand, and that the page holds them, whatever names the runs have.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "run_folders.h"
#include "support/json_input.h"
#include "report/reader.h"
#include "report/report.h"
#include "report/variants.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUNS = 6 };

/* Three variants of two seeds: one that works; one with a seed that diverged and one that goes on; one that never
 * starts. */
static const char *const *make_runs(void) {
    static char paths[RUNS][256];
    static const char *runs[RUNS];
    static const made all[RUNS] = {
        {"a1", "AdaMod", "finished", 1, 100, 4, 0.5, 0.4, 0.9, 90},
        {"a2", "AdaMod", "finished", 2, 100, 4, 0.7, 0.8, 1, 96},
        {"b1", "Adam", "diverged", 1, 60, 4, 3.5, 3, 0, 0},
        {"b2", "Adam", NULL, 2, 80, 4, 1.5, 1.25, 0.5, 50},
        {"c1", "flat", "finished", 1, 100, 4, 3.9, 3.8, 0, 0},
        {"c2", "flat", "finished", 2, 100, 4, 3.9, 3.8, 0, 0},
    };
    for (int i = 0; i < RUNS; i++) {
        snprintf(paths[i], sizeof paths[i], "%s", make_run(all[i]));
        runs[i] = paths[i];
    }
    return runs;
}

static int read_run(report_run *r, const char *directory) { return report_run_read(r, directory, KNOWN); }

/* The value of one of the run's metrics. */
static double value_of(const report_run *r, const report_point *p, const char *name) {
    for (int i = 0; i < r->n_metrics; i++) {
        if (strcmp(r->metric[i].name, name) == 0) return p->value[i];
    }
    return NAN;
}

/* The message that a file with this text gets; "(none)". */
static const char *complaint(const char *name, const char *text) {
    const char *run = bare("complaint");
    report_run r;
    put(run, name, text);
    const int status = read_run(&r, run);
    if (status == 0) report_run_free(&r);
    unlink(below("complaint/%s", name));
    return status ? adamod__last_message() : "(none)";
}

/* ---- JSON ---- */

static bool is_json(const char *text) {
    json_input in = json_input_of(text, strlen(text));
    json_input_skip(&in);
    json_input_end(&in);
    return !in.expected;
}

TEST(takes_json_as_the_standard_has_it) {
    static const char *const good[] = {
        "0",           "-0.5e+10",           "[]",   "{}",    " [1 , 2]\n", "{\"a\":{\"b\":[null]}}",
        "\"\\u00e4\"", "\"\\ud83d\\ude00\"", "true", "\"ü\"", "1E3"};
    static const char *const bad[] = {
        "",     "01",    "+1",       ".5",       "1.",    "1e",     "inf",     "nan",       "0x10",
        "[1,]", "[1 2]", "{\"a\"}",  "{\"a\":}", "{a:1}", "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\ud83d\"",
        "[",    "1 2",   "\"\xff\"", "tru",      "'a'",   "{,}",    "\"a"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!CHECK(is_json(good[i]))) printf("  %s\n", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!CHECK(!is_json(bad[i]))) printf("  %s\n", bad[i]);
    }
}

TEST(json_texts_are_cut_between_code_points) {
    const char *text = "\"a\\u00e4\\ud83d\\ude00z\"";
    char out[16];
    json_input in = json_input_of(text, strlen(text));
    json_input_text(&in, out, sizeof out);
    CHECK_STR(out, "aä😀z");
    in = json_input_of(text, strlen(text));
    json_input_text(&in, out, 6);
    CHECK_STR(out, "aä");
    CHECK(!in.expected && in.at == in.end);
}

TEST(json_that_is_nested_without_end_is_refused) {
    char text[100001];
    memset(text, '[', 100000);
    text[100000] = '\0';
    CHECK(!is_json(text));
}

/* ---- reading ---- */

TEST(reads_all_of_a_run) {
    report_run r;
    const char *run = make_run((made){"whole", "\"Ada: Mod\" # as AdaMod", "finished", 3, 100, 4, 0.5, 0.4, 0.9, 90});
    if (!CHECK_INT(read_run(&r, run), 0)) return;
    CHECK_STR(report_pairs_find(&r.recipe, "name"), "Ada: Mod");
    CHECK_STR(report_pairs_find(&r.recipe, "data.source"), "");
    CHECK_STR(report_pairs_find(&r.recipe, "optimizer.schedule.lr"), NULL);
    CHECK_STR(report_pairs_find(&r.recipe, "train.seed"), "3");
    CHECK_STR(report_pairs_find(&r.machine[0], "cores"), "8");
    CHECK_INT(r.n_machines, 1);
    CHECK_INT(r.train.n, 100);
    CHECK_INT(r.valid.n, 5);
    CHECK_INT(r.train.at[99].step, 100);
    CHECK_CLOSE(r.train.at[0].loss, 4, 1e-9);
    CHECK_CLOSE(value_of(&r, &r.valid.at[4], "exact"), 90, 1e-9);
    CHECK_STR(r.status, "finished");
    CHECK_CLOSE(r.seconds, 50, 0);
    CHECK_CLOSE(value_of(&r, &r.final_test, "bleu"), 90, 0);
    CHECK(r.n_histograms > 60);
    CHECK_INT(r.histogram[0].step, 1);
    CHECK_INT(r.histogram[r.n_histograms - 1].step, 100);
    double sum = 0;
    for (int i = 0; i < r.histogram[0].bins; i++) sum += (double)r.histogram[0].eta[i];
    CHECK_CLOSE(sum, 1, 1e-5);
    report_run_free(&r);
}

TEST(a_recipe_alone_is_a_run) {
    report_run r;
    if (!CHECK_INT(read_run(&r, bare("alone")), 0)) return;
    CHECK_INT(r.train.n + r.n_histograms + r.n_samples, 0);
    CHECK_STR(r.status, "");
    report_run_free(&r);
    CHECK_INT(read_run(&r, below("nothing-here")), -1);
    CHECK_HAS(adamod__last_message(), "nothing-here/recipe.yaml: no such file");
}

TEST(a_torn_last_line_is_left_out) {
    report_run r;
    const char *run = bare("torn");
    put(run, "metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n{\"kind\":\"train\",\"step\":2,\"loss\":1}\n{\"kind\":\"tra");
    put(run, "histograms.jsonl", "{\"step\":1,\"low\":-1,\"high\":1,\"bins\":2,\"eta_first\":0,\"eta\":[1");
    put(run, "samples.jsonl",
        "{\"step\":1,\"source\":\"a\",\"reference\":\"b\",\"output\":\"c\"}"); /* whole, if unended */
    if (!CHECK_INT(read_run(&r, run), 0)) return;
    CHECK_INT(r.train.n, 2);
    CHECK_INT(r.n_histograms, 0);
    CHECK_INT(r.n_samples, 1);
    report_run_free(&r);
}

TEST(what_is_malformed_is_named_with_its_line) {
    const char *line = "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n";
    char text[256];
    snprintf(text, sizeof text, "%s{\"kind\":\"train\",\"step\":2,}\n%s", line, line);
    CHECK_HAS(complaint("metrics.jsonl", text), "metrics.jsonl:2: expected a string at byte 26");
    CHECK_HAS(complaint("metrics.jsonl", "{\"kind\":\"train\",\"step\":1.5}\n"), "metrics.jsonl:1: \"step\" is not");
    CHECK_HAS(complaint("metrics.jsonl", "{\"kind\":\"train\",\"loss\":1}\n"), "metrics.jsonl:1: \"step\" is not");
    CHECK_HAS(complaint("metrics.jsonl", "{\"step\":1}\n"), "metrics.jsonl:1: there is no \"kind\"");
    CHECK_HAS(complaint("metrics.jsonl", "\n"), "metrics.jsonl:1: expected an object");
    CHECK_HAS(complaint("metrics.jsonl", "{\"kind\":\"train\",\"step\":2}\n{\"kind\":\"train\",\"step\":1}\n"),
              "metrics.jsonl:2: the update's number is lower");
    CHECK_HAS(complaint("result.json", "{\"status\":\"finished\",\n\"step\":x}"), "result.json:2: expected a number");
    CHECK_HAS(complaint("machine.json", "[]"), "machine.json:1: expected an object");
    CHECK_HAS(complaint("samples.jsonl", "{\"step\":1,\"source\":3}\n"), "samples.jsonl:1: expected a string");
    CHECK_STR(complaint("metrics.jsonl", "{\"kind\":\"later\",\"step\":1,\"new\":[{}]}\n"), "(none)");
    CHECK_STR(complaint("metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":null}\n"), "(none)");
    CHECK_HAS(complaint("recipe.yaml", "name: a\n- b\n"), "recipe.yaml:2: expected 'key: value'");
    CHECK_HAS(complaint("recipe.yaml", "name: \"a\n"), "recipe.yaml:1: expected a value in double quotes");
    CHECK_HAS(complaint("recipe.yaml", "name: \xff\n"), "recipe.yaml:1: byte 7 is 0xff");
    CHECK_HAS(complaint("recipe.yaml", "  d: 1\n"), "recipe.yaml:1: the key is indented");
}

TEST(histograms_must_fit_their_bins) {
    static const char format[] = "{\"step\":1,\"low\":%s,\"high\":1,\"bins\":%s,\"eta_first\":%s,\"eta\":[1,2],"
                                 "\"effective_first\":0,\"effective\":[]}\n";
    static const struct {
        const char *low, *bins, *first, *expected;
    } cases[] = {{"-1", "2", "0", "(none)"},
                 {"-1", "2", "1", "\"eta\" does not fit"},
                 {"-1", "2", "-1", "\"eta\" does not fit"},
                 {"-1", "2", "null", "\"eta\" does not fit"},
                 {"-1", "1e9", "0", "\"bins\" is not"},
                 {"2", "2", "0", "\"low\" and \"high\""},
                 {"-1e999", "2", "0", "\"low\" and \"high\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, format, cases[i].low, cases[i].bins, cases[i].first);
        CHECK_HAS(complaint("histograms.jsonl", text), cases[i].expected);
    }
}

TEST(files_that_are_no_files_or_have_no_end_are_refused) {
    report_run r;
    const char *run = bare("hostile");
    mkfifo(below("hostile/metrics.jsonl"), 0666);
    CHECK_INT(read_run(&r, run), -1);
    CHECK_HAS(adamod__last_message(), "metrics.jsonl: it is not a file");
    unlink(below("hostile/metrics.jsonl"));
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 0; i < 3 << 20; i++) fputc(' ', file);
    fclose(file);
    CHECK_INT(read_run(&r, run), -1);
    CHECK_HAS(adamod__last_message(), "metrics.jsonl:1: the line is longer than 1 MiB");
    unlink(below("hostile/metrics.jsonl"));
    file = create(run, "result.json");
    for (int i = 0; i < 3 << 20; i++) fputc(' ', file);
    fclose(file);
    CHECK_INT(read_run(&r, run), -1);
    CHECK_HAS(adamod__last_message(), "result.json: it is larger than 1 MiB");
}

TEST(long_runs_are_thinned_without_changing_their_means) {
    enum { STEPS = 100000 };
    report_run r;
    const char *run = bare("long");
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= STEPS; i++) {
        fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"time\":%d,\"loss\":%d,\"tokens\":%d}\n", i, i, i % 2, 7 * i);
    }
    fclose(file);
    file = create(run, "histograms.jsonl");
    for (int i = 1; i <= STEPS; i += i < 1000 ? 1 : 10) {
        fprintf(file,
                "{\"step\":%d,\"low\":-1,\"high\":1,\"bins\":2,\"eta_first\":0,\"eta\":[1],\"effective_first\":1,"
                "\"effective\":[4]}\n",
                i);
    }
    fclose(file);
    if (!CHECK_INT(read_run(&r, run), 0)) return;
    double sum = 0, weight = 0;
    for (size_t i = 0; i < r.train.n; i++) {
        sum += r.train.at[i].weight * r.train.at[i].loss;
        weight += r.train.at[i].weight;
    }
    CHECK(r.train.n <= 32768 && r.train.n > 8192);
    CHECK_CLOSE(weight, STEPS, 1e-6);
    CHECK_CLOSE(sum, STEPS / 2, 1e-6);
    CHECK_CLOSE(r.train.at[r.train.n - 1].items, 7.0 * STEPS, 0);
    CHECK(r.n_histograms > 300 && r.n_histograms < 1000);
    CHECK_INT(r.histogram[0].step, 1);
    CHECK_INT(r.histogram[49].step, 50);
    CHECK_INT(r.histogram[r.n_histograms - 1].step, STEPS);
    report_run_free(&r);
}

TEST(a_point_stands_for_the_updates_since_the_one_before) {
    report_run r;
    const char *run = bare("sparse");
    put(run, "metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"valid\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n"
        "{\"kind\":\"train\",\"step\":12}\n");
    if (!CHECK_INT(read_run(&r, run), 0)) return;
    CHECK_CLOSE(r.train.at[0].weight, 1, 0);
    CHECK_CLOSE(r.train.at[1].weight, 1, 0);
    CHECK_CLOSE(r.train.at[2].weight, 10, 0);
    report_run_free(&r);
}

TEST(a_directory_of_runs_stands_for_them_in_the_order_of_their_start) {
    char **runs;
    int n;
    mkdir(below("many"), 0777);
    put(below("many/x"), "recipe.yaml", "name: x\n");
    put(below("many/x"), "machine.json", "{\"started\":\"2026-01-03T00:00:00Z\"}");
    put(below("many/y"), "recipe.yaml", "name: y\n");
    put(below("many/y"), "machine.json", "{\"started\":\"2026-01-02T00:00:00Z\"}");
    put(below("many/other"), "notes.txt", "no run\n");
    if (!CHECK_INT(report_runs_find(below("many"), &runs, &n), 0)) return;
    if (CHECK_INT(n, 2)) {
        CHECK_STR(runs[0], below("many/y"));
        CHECK_STR(runs[1], below("many/x"));
    }
    for (int i = 0; i < n; i++) free(runs[i]);
    free(runs);
    if (!CHECK_INT(report_runs_find(below("many/x"), &runs, &n), 0)) return;
    CHECK_INT(n, 1);
    free(runs[0]);
    free(runs);
    CHECK_INT(report_runs_find(below("many/other"), &runs, &n), -1);
    CHECK_HAS(adamod__last_message(), "no recipe.yaml");
    CHECK_INT(report_runs_find(below("many/none"), &runs, &n), -1);
}

/* ---- numbers ---- */

TEST(spreads_are_those_of_pencil_and_paper) {
    double three[] = {6, NAN, 1, INFINITY, 2}, two[] = {3, 1}, one[] = {5}, none[] = {NAN};
    report_spread s = report_spread_of(three, 5);
    CHECK_INT(s.n, 3);
    CHECK_CLOSE(s.median, 2, 0);
    CHECK_CLOSE(s.mean, 3, 0);
    CHECK_CLOSE(s.std, sqrt(7), 1e-15); /* (9 + 4 + 1) / 2 */
    CHECK_CLOSE(s.min + s.max, 7, 0);
    s = report_spread_of(two, 2);
    CHECK_CLOSE(s.median, 2, 0);
    CHECK_CLOSE(s.std, sqrt(2), 1e-15);
    s = report_spread_of(one, 1);
    CHECK(s.median == 5 && isnan(s.std));
    s = report_spread_of(none, 1);
    CHECK(s.n == 0 && isnan(s.median));
}

/* The cells of a row, from one column on, as "a|b|c". */
static const char *row_of(const report_table *t, int row) {
    static char text[4][512];
    size_t used = 0;
    for (int k = 0; k < t->columns && used < sizeof text[0]; k++) {
        used += (size_t)snprintf(text[row] + used, sizeof text[0] - used, "%s%s", k ? "|" : "",
                                 report_table_cell(t, row, k));
    }
    return text[row];
}

TEST(the_table_has_median_mean_and_deviation) {
    report r;
    report_table t;
    if (!CHECK_INT(report_load(&r, make_runs(), RUNS, KNOWN), 0)) return;
    CHECK_INT(r.n_variants, 3);
    if (CHECK_INT(report_table_make(&t, &r), 0)) {
        static const char *const expected[4] = {
            "variant|runs|test exact %|test BLEU|validation exact %|validation BLEU|validation loss|training loss|"
            "updates|time (s)|tokens/s",
            /* 0.5 and 0.7: their deviation is 0.2 / sqrt(2) */
            "AdaMod|2|95.0 (95.0 ± 7.1)|93.00 (93.00 ± 4.24)|95.0 (95.0 ± 7.1)|93.00 (93.00 ± 4.24)|"
            "0.600 (0.600 ± 0.283)|0.600 (0.600 ± 0.141)|100|50.0 (50.0 ± 0.0)|2,000",
            "Adam|2 (1 unfinished, 1 diverged)|–|–|50.0|50.00|1.262|1.500|80|40.0|2,000",
            "flat|2|0.0 (0.0 ± 0.0)|0.00 (0.00 ± 0.00)|0.0 (0.0 ± 0.0)|0.00 (0.00 ± 0.00)|3.800 (3.800 ± 0.000)|"
            "3.900 (3.900 ± 0.000)|100|50.0 (50.0 ± 0.0)|2,000"};
        CHECK_INT(t.rows, 4);
        for (int i = 0; i < 4; i++) CHECK_STR(row_of(&t, i), expected[i]);
        report_table_free(&t);
    }
    report_free(&r);
}

TEST(the_printed_table_is_aligned_in_columns_of_the_terminal) {
    const char *const runs[] = {make_run((made){"wide", "漢字", "finished", 1, 100, 4, 1, 1, 0.5, 50}),
                                make_run((made){"plain", "a\u0301 b", "finished", 2, 100, 4, 1, 1, 0.5, 50})};
    const int kept = divert(1, below("table.txt"));
    const int status = report_print_table(runs, 2, KNOWN);
    restore(1, kept);
    char *text = contents(below("table.txt"));
    CHECK_INT(status, 0);
    CHECK_HAS(text, "variant  test exact %");
    CHECK_HAS(text, "漢字             50.0      50.00            1.000          1.000");
    CHECK_HAS(text, "a\u0301 b              50.0      50.00            1.000          1.000");
    free(text);
}

/* The table of make_runs as a terminal of this width shows it. */
static void print_at(int width, bool may_cut, char *text, size_t size) {
    report r;
    report_table t;
    memset(text, 0, size);
    if (!CHECK_INT(report_load(&r, make_runs(), RUNS, KNOWN), 0)) return;
    if (CHECK_INT(report_table_make(&t, &r), 0)) {
        FILE *file = fmemopen(text, size, "w");
        report_table_print(&t, file, width, may_cut);
        fclose(file);
        report_table_free(&t);
    }
    report_free(&r);
}

TEST(a_table_that_is_too_wide_is_turned) {
    char text[4096];
    print_at(100, true, text, sizeof text);
    CHECK_HAS(text,
              "\nupdates                               100                            80                    100\n");
    CHECK(!strstr(text, "too narrow"));
}

TEST(a_table_that_is_too_wide_when_turned_has_medians_alone) {
    char text[4096];
    print_at(80, false, text, sizeof text);
    CHECK_HAS(text, "±");
    print_at(80, true, text, sizeof text);
    CHECK_HAS(text, "\nMedians; for means and deviations the terminal is too narrow.\n");
    CHECK(!strstr(text, "±"));
    CHECK_HAS(text, "diverged)"); /* what became of runs stays */
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) CHECK(strlen(line) <= 80);
}

TEST(a_run_that_is_given_twice_counts_once) {
    report r;
    const char *run = make_run((made){"twice", "twice", "finished", 1, 100, 4, 1, 1, 0.5, 50});
    const char *const runs[] = {run, run, below("twice/.")};
    if (!CHECK_INT(report_load(&r, runs, 3, KNOWN), 0)) return;
    CHECK_INT(r.n, 1);
    report_free(&r);
    CHECK_INT(report_load(&r, runs, 0, KNOWN), -1);
}

/* ---- the page ---- */

TEST(without_gnuplot_there_is_a_page_all_the_same) {
    char *text = plain_page_of(make_runs(), RUNS, "plain.html");
    CHECK_HAS(text, "sudo apt install gnuplot-nox");
    CHECK_HAS(text, "<td>0.600<small>(0.600 ± 0.141)</small>");
    CHECK(!strstr(text, "<svg"));
    CHECK(size_of(below("plain-figures/loss.dat")) > 1000);
    CHECK(size_of(below("plain-figures/loss-updates.gp")) > 200);
    CHECK_INT(size_of(below("plain-figures/loss-updates.svg")), -1);
    free(text);
    text = contents(below("notes.txt"));
    CHECK_HAS(text, "There are no figures, because gnuplot was not found.");
    free(text);
}

TEST(the_page_says_in_words_what_happened) {
    char *text = plain_page_of(make_runs(), RUNS, "words.html");
    CHECK_HAS(text, "Three variants, two runs each");
    CHECK_HAS(text, "<b>AdaMod</b> has the highest test exact translations, 95.0&nbsp;%; test BLEU&nbsp;93.00, "
                    "validation loss&nbsp;0.600, training loss&nbsp;0.600. ");
    CHECK_HAS(text, "<b>Adam</b>: validation exact translations&nbsp;50.0&nbsp;%, validation BLEU&nbsp;50.00, "
                    "validation loss&nbsp;1.262, training loss&nbsp;1.500. ");
    CHECK_HAS(text, "What is of the validation data is that of the end, or of the last evaluation where a run has not");
    CHECK_HAS(text, "<p class=\"sub\">Task: numbers. ");
    CHECK_HAS(text, "<b>flat</b> hardly moved: its training loss is 3.90 after 100 updates");
    CHECK_HAS(text, "Of the runs of <b>Adam</b>, one diverged and is not counted.");
    CHECK_HAS(text, "<b>Adam</b> has one run that did not finish.");
    free(text);
}

TEST(a_variant_whose_runs_all_diverged_is_said_to_have) {
    const char *const runs[] = {make_run((made){"d1", "lost", "diverged", 1, 30, 4, 9, 1, 0, 0})};
    char *text = plain_page_of(runs, 1, "diverged.html");
    CHECK_HAS(text, "<b>lost</b> diverged: its loss was no longer a finite number after 30 updates.");
    CHECK_HAS(text, "1<small>(diverged)</small>");
    free(text);
}

/* ---- tasks ---- */

/* A run of another kind: it says itself what it measures, and metrics of other tasks in its files are none of its. */
static const char *make_task_run(const char *directory, const char *name, const char *task, const char *values) {
    const char *run = below("%s", directory);
    char text[128];
    snprintf(text, sizeof text, "name: %s\n", name);
    put(run, "recipe.yaml", text);
    put(run, "task.json", task);
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 40; i++) {
        fprintf(file,
                "{\"kind\":\"train\",\"step\":%d,\"time\":%g,\"loss\":%d,\"images\":%d,\"images_per_second\":1}\n", i,
                0.5 * i, i < 5 ? 8 : 2, 60 * i);
        if (i % 10 == 0) fprintf(file, "{\"kind\":\"valid\",\"step\":%d,\"loss\":1.5,\"bleu\":7,%s}\n", i, values);
    }
    fclose(file);
    file = create(run, "result.json");
    fprintf(
        file,
        "{\"status\":\"finished\",\"step\":40,\"seconds\":20,\"test\":{\"kind\":\"test\",\"step\":40,\"loss\":1,%s}}",
        values);
    fclose(file);
    return run;
}

static const char images[] =
    "{\"task\":\"images\",\"about\":\"Pictures of clothes\",\"items\":\"images\",\"later\":{\"a\":[1]},\n"
    " \"metrics\":[{\"name\":\"loss\",\"label\":\"loss\",\"better\":\"lower\",\"headline\":true},\n"
    "  {\"name\":\"accuracy\",\"label\":\"accuracy\",\"about\":\"accuracy\",\"unit\":\"%\",\"scale\":100,\"decimals\":1,"
    "\"better\":\"higher\",\"headline\":true},\n"
    "  {\"name\":\"top5\",\"label\":\"top 5\",\"about\":\"one of the first five\",\"unit\":\"%\",\"scale\":100,"
    "\"decimals\":2,\"better\":\"higher\",\"headline\":true,\"signature\":\"of:5|ties:no\",\"later\":null},\n"
    "  {\"name\":\"hidden\",\"label\":\"hidden\",\"better\":\"higher\",\"headline\":false},\n"
    "  {\"name\":\"calls\",\"label\":\"calls\",\"about\":\"calls of the model\",\"decimals\":0,\"headline\":true}]}\n";

TEST(a_run_says_itself_what_it_measures) {
    const char *run = make_task_run("images", "net", images,
                                    "\"accuracy\":0.625,\"top5\":0.9,\"hidden\":3,\"calls\":12345,\"strange\":[1]");
    report r;
    report_table t;
    if (!CHECK_INT(report_load(&r, &run, 1, KNOWN), 0)) return;
    CHECK_STR(r.run[0].about, "Pictures of clothes");
    CHECK_STR(r.run[0].items, "images");
    CHECK_INT(r.run[0].n_metrics, 5);
    CHECK_STR(r.run[0].metric[2].signature, "of:5|ties:no");
    CHECK(!r.run[0].metric[1].signature);
    CHECK_CLOSE(r.run[0].train.at[39].items, 2400, 0);
    CHECK_CLOSE(value_of(&r.run[0], &r.run[0].final_test, "hidden"), 3, 0);
    if (CHECK_INT(report_table_make(&t, &r), 0)) {
        CHECK_STR(
            row_of(&t, 0),
            "variant|test accuracy %|test top 5 %|test calls|validation loss|training loss|updates|time (s)|images/s");
        CHECK_STR(row_of(&t, 1), "net|62.5|90.00|12,345|1.500|2.000|40|20.0|120");
        report_table_free(&t);
    }
    report_free(&r);
}

TEST(what_the_page_says_of_metrics_is_the_tasks) {
    const char *run = make_task_run("words", "net", images, "\"accuracy\":0.625,\"top5\":0.9,\"calls\":12345");
    char *text = plain_page_of(&run, 1, "task.html");
    CHECK_HAS(text, "<p class=\"sub\">Task: Pictures of clothes. </p>");
    CHECK_HAS(text, "<b>net</b>: test accuracy&nbsp;62.5&nbsp;%, test one of the first five&nbsp;90.00&nbsp;%, "
                    "test calls of the model&nbsp;12,345, validation loss&nbsp;1.500, training loss&nbsp;2.000. ");
    CHECK_HAS(text, "top 5 is <code>of:5|ties:no</code>. "); /* which of the metrics of that name */
    CHECK(!strstr(text, "BLEU") && !strstr(text, "tokens/s"));
    free(text);
    text = contents(below("task-figures/valid.dat"));
    CHECK_HAS(text,
              ": loss, accuracy %, top 5 %, calls, perplexity\n10 NaN NaN 1.5 1.5 1.5 62.5 62.5 62.5 90 90 90 12345 ");
    free(text);
    text = contents(below("task-figures/valid-top5.gp"));
    CHECK_HAS(text, "set label 1 'validation one of the first five (%)' at screen ");
    CHECK_HAS(text, "set yrange [80:101]\n"); /* it is never below 90 */
    CHECK_HAS(text, "using ($1/1):10 ");
    free(text);
    text = contents(below("task-figures/valid-calls.gp")); /* neither is better: as the numbers lie */
    CHECK_HAS(text, "set yrange [12332.7:12357.3]\n");
    free(text);
    CHECK_INT(size_of(below("task-figures/valid-hidden.gp")), -1);
}

TEST(what_should_rise_is_drawn_from_zero_on) {
    static const char task[] = "{\"metrics\":[{\"name\":\"f1\",\"better\":\"higher\",\"headline\":true},"
                               "{\"name\":\"reward\",\"better\":\"higher\",\"headline\":true},"
                               "{\"name\":\"hits\",\"unit\":\"%\",\"better\":\"higher\",\"headline\":true},"
                               "{\"name\":\"growth\",\"unit\":\"%\",\"better\":\"higher\",\"headline\":true}]}";
    const char *run = make_task_run("rising", "net", task, "\"f1\":0.4,\"reward\":-20,\"hits\":40,\"growth\":300");
    free(plain_page_of(&run, 1, "rising.html"));
    char *f1 = contents(below("rising-figures/valid-f1.gp")),
         *reward = contents(below("rising-figures/valid-reward.gp")),
         *hits = contents(below("rising-figures/valid-hits.gp")),
         *growth = contents(below("rising-figures/valid-growth.gp"));
    CHECK_HAS(f1, "set yrange [0:0.42]\n");
    CHECK_HAS(reward, "set yrange [-20:-19]\n"); /* zero is far off */
    CHECK_HAS(hits, "set yrange [0:102]\n");
    CHECK_HAS(growth, "set yrange [0:315]\n"); /* beyond a hundred */
    free(f1);
    free(reward);
    free(hits);
    free(growth);
}

TEST(what_a_task_leaves_out_is_plain) {
    const char *run = make_task_run("defaults", "net", "{\"metrics\":[{\"name\":\"f1\",\"headline\":true}]}",
                                    "\"f1\":0.5,\"exact\":1,\"tokens\":3");
    report_run r;
    if (!CHECK_INT(read_run(&r, run), 0)) return;
    if (CHECK_INT(r.n_metrics, 1)) {
        const metric *m = &r.metric[0];
        CHECK_STR(m->label, "f1");
        CHECK_STR(m->about, "f1");
        CHECK_STR(m->unit, "");
        CHECK(m->scale == 1 && m->decimals == 2 && m->better == METRIC_NEITHER);
    }
    CHECK_STR(r.about, "");
    CHECK_STR(r.items, "tokens");
    report_run_free(&r);
}

/* The tables of a page, each row by row. */
static void check_tables(const char *const *runs, int n, const char *const *expected) {
    reports all;
    if (!CHECK_INT(reports_load(&all, runs, n, KNOWN), 0)) return;
    for (int i = 0; i < all.n; i++) {
        report_table t;
        if (!CHECK_INT(report_table_make(&t, &all.at[i]), 0)) continue;
        for (int k = 0; k < t.rows; k++) CHECK_STR(row_of(&t, k), *expected ? *expected++ : "no more rows");
        report_table_free(&t);
    }
    CHECK(!*expected);
    reports_free(&all);
}

TEST(each_task_has_a_table_of_its_own) {
    const char *runs[] = {make_run((made){"old", "old", "finished", 1, 100, 4, 1, 1, 0.5, 50}),
                          make_task_run("new", "new", images, "\"accuracy\":0.625"), NULL, NULL, NULL};
    /* accuracy of next words, not of pictures, and in percent in the files already */
    static const char words[] =
        "{\"task\":\"words\",\"metrics\":["
        "{\"name\":\"accuracy\",\"label\":\"next right\",\"unit\":\"%\",\"better\":\"higher\",\"headline\":true}]}";
    runs[2] = make_task_run("newer", "newer", words, "\"accuracy\":50");
    runs[3] = make_task_run("another", "another", images, "\"accuracy\":0.5");
    runs[4] = make_task_run("unknown", "unknown", "{\"metrics\":[]}", "\"accuracy\":1");
    static const char *const expected[] = {
        "variant|test exact %|test BLEU|validation loss|training loss|updates|time (s)|tokens/s",
        "old|50.0|50.00|1.000|1.000|100|50.0|2,000",
        "variant|test accuracy %|validation loss|training loss|updates|time (s)|images/s",
        "new|62.5|1.500|2.000|40|20.0|120",
        "another|50.0|1.500|2.000|40|20.0|120",
        "variant|test next right %|validation loss|training loss|updates|time (s)",
        "newer|50.00|1.500|2.000|40|20.0",
        "variant|validation loss|training loss|updates|time (s)",
        "unknown|1.500|2.000|40|20.0",
        NULL};
    check_tables(runs, 5, expected);
    char *text = plain_page_of(runs, 5, "mixed.html");
    CHECK_HAS(text, "<h1>5 variants of 4 tasks</h1>");
    CHECK_HAS(text, "<h2 class=\"task\" id=\"task-1\">Task: numbers</h2>");
    CHECK_HAS(text, "<h2 class=\"task\" id=\"task-2\">Task: Pictures of clothes</h2>");
    CHECK_HAS(text, "<h2 class=\"task\" id=\"task-4\">Task: not known</h2>");
    CHECK_HAS(text, "The highest test accuracy measured is that of <b>new</b>, 62.5&nbsp;%; ");
    CHECK(!strstr(text, "differ in task"));
    CHECK(size_of(below("mixed-figures/2-images/valid-accuracy.gp")) > 200);
    CHECK(size_of(below("mixed-figures/3-words/valid-accuracy.gp")) > 200);
    for (const char *at = text; (at = strstr(at, " id=\"")); at++) { /* ids are unique */
        char id[64];
        snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 5, "\"") + 6, at);
        if (!CHECK(!strstr(at + 1, id))) printf("  %s\n", id);
    }
    free(text);
    const int kept = divert(1, below("tasks.txt"));
    CHECK_INT(report_print_table(runs, 5, KNOWN), 0);
    restore(1, kept);
    text = contents(below("tasks.txt"));
    CHECK(strncmp(text, "Task: numbers\nvariant  test exact %", 35) == 0);
    CHECK_HAS(text, "\n\nTask: words\nvariant  test next right %");
    free(text);
}

TEST(a_run_without_a_task_is_of_the_only_one) {
    const char *runs[] = {make_task_run("unknown", "unknown", "{\"metrics\":[]}", "\"accuracy\":1"),
                          make_task_run("new", "new", images, "\"accuracy\":0.625")};
    static const char *const expected[] = {
        "variant|test accuracy %|validation loss|training loss|updates|time (s)|images/s",
        "unknown|–|1.500|2.000|40|20.0|–", "new|62.5|1.500|2.000|40|20.0|120", NULL};
    check_tables(runs, 2, expected);
}

TEST(metrics_of_one_name_are_told_apart) {
    static const char task[] =
        "{\"task\":\"x\",\"metrics\":[{\"name\":\"bleu\",\"label\":\"BLEU\",\"headline\":true%s}]}";
    static const char *const kinds[] = {",\"signature\":\"nrefs:1|tok:13a|smooth:exp\"",
                                        ",\"signature\":\"nrefs:1|tok:none|smooth:exp\"", ",\"better\":\"higher\"",
                                        ",\"better\":\"lower\""};
    const char *runs[2];
    for (int i = 0; i < 4; i++) {
        char text[256];
        snprintf(text, sizeof text, task, kinds[i]);
        runs[i % 2] = make_task_run(i % 2 ? "b" : "a", i % 2 ? "b" : "a", text, "\"x\":1");
        if (i % 2 == 0) continue;
        report r;
        report_table t;
        if (!CHECK_INT(report_load(&r, runs, 2, KNOWN), 0)) return;
        if (CHECK_INT(report_table_make(&t, &r), 0)) {
            CHECK_HAS(row_of(&t, 0), i == 1 ? "variant|validation BLEU tok:13a|validation BLEU tok:none|validation loss"
                                            : "variant|validation BLEU|validation BLEU (2)|validation loss");
            report_table_free(&t);
        }
        report_free(&r);
    }
}

TEST(the_best_is_marked_in_the_metrics_direction) {
    static const char task[] =
        "{\"metrics\":[{\"name\":\"up\",\"better\":\"higher\",\"headline\":true},{\"name\":\"down\",\"better\":"
        "\"lower\",\"headline\":true},{\"name\":\"none\",\"better\":\"neither\",\"headline\":true}]}";
    const char *runs[] = {make_task_run("one", "one", task, "\"up\":11,\"down\":12,\"none\":13"), NULL, NULL, NULL};
    runs[1] = make_task_run("two", "two", task, "\"up\":21,\"down\":22,\"none\":23");
    runs[2] = make_task_run("one-again", "one", task, "\"up\":11.2,\"down\":12.2,\"none\":13.2");
    runs[3] = make_task_run("two-again", "two", task, "\"up\":21.2,\"down\":22.2,\"none\":23.2");
    char *text = plain_page_of(runs, 4, "best.html");
    CHECK_HAS(text, "<td>11.10<small>(11.10 ± 0.14)</small></td><td><b>12.10</b><small>");
    CHECK_HAS(text, "<td><b>21.10</b><small>(21.10 ± 0.14)</small></td><td>22.10<small>");
    CHECK(!strstr(text, "<b>13.10</b>") && !strstr(text, "<b>23.10</b>"));
    free(text);
    text = plain_page_of(runs, 2, "one-each.html"); /* one run cannot tell */
    CHECK(!strstr(text, "<td><b>"));
    CHECK_HAS(text, "Nothing is bold: one run of each variant cannot tell a difference from chance. ");
    free(text);
}

TEST(a_task_that_is_malformed_is_named_with_its_line) {
    static const struct {
        const char *metrics, *expected;
    } cases[] = {
        {"{\"name\":\"a\"},{\"name\":\"b\",\"scale\":1e-3,\"decimals\":9}", "(none)"},
        {"{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"a\"}", "task.json:2: expected a metric with a name of its own"},
        {"{\"name\":\"loss\"},{\"name\":\"loss\"}", "task.json:2: expected a metric with a name of its own"},
        {"{\"label\":\"a\"}", "task.json:2: expected a metric with a \"name\" at byte"},
        {"{\"name\":\"\"}", "task.json:2: expected a name of 1 to 31 letters, digits and '_'"},
        {"{\"name\":\"../../a\"}", "task.json:2: expected a name of 1 to 31"},
        {"{\"name\":\"a\\u0000\"}", "task.json:2: expected a name of 1 to 31"},
        {"{\"name\":\"a2345678901234567890123456789012\"}", "task.json:2: expected a name of 1 to 31"},
        {"{\"name\":3}", "task.json:2: expected a string"},
        {"{\"name\":\"a\",\"label\":{}}", "task.json:2: expected a string"},
        {"{\"name\":\"a\",\"scale\":0}", "task.json:2: expected a finite scale above 0"},
        {"{\"name\":\"a\",\"scale\":-1}", "task.json:2: expected a finite scale above 0"},
        {"{\"name\":\"a\",\"scale\":1e999}", "task.json:2: expected a finite scale above 0"},
        {"{\"name\":\"a\",\"scale\":null}", "task.json:2: expected a finite scale above 0"},
        {"{\"name\":\"a\",\"scale\":\"2\"}", "task.json:2: expected a number"},
        {"{\"name\":\"a\",\"decimals\":1000000}", "task.json:2: expected a whole number from 0 to 9"},
        {"{\"name\":\"a\",\"decimals\":-1}", "task.json:2: expected a whole number from 0 to 9"},
        {"{\"name\":\"a\",\"decimals\":1.5}", "task.json:2: expected a whole number from 0 to 9"},
        {"{\"name\":\"a\",\"better\":\"best\"}", "task.json:2: expected \"lower\", \"higher\" or \"neither\""},
        {"{\"name\":\"a\",\"better\":1}", "task.json:2: expected a string"},
        {"{\"name\":\"a\",\"headline\":1}", "task.json:2: expected true or false"},
        {"{\"name\":\"a\",\"headline\":\"true\"}", "task.json:2: expected true or false"},
        {"\"a\"", "task.json:2: expected an object"},
        {"{\"name\":\"a\"},", "task.json:2: expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"task\":\"x\",\n\"metrics\":[%s]}", cases[i].metrics);
        CHECK_HAS(complaint("task.json", text), cases[i].expected);
    }
    CHECK_HAS(complaint("task.json", "[]"), "task.json:1: expected an object");
    CHECK_HAS(complaint("task.json", "{} {}"), "task.json:1: expected nothing more");
    CHECK_HAS(complaint("task.json", "{\"metrics\":{}}"), "task.json:1: expected an array");
    CHECK_HAS(complaint("task.json", "{\"metrics\":["), "task.json:1: expected an object");
    CHECK_HAS(complaint("task.json", "{\"about\":1}"), "task.json:1: expected a string");
    CHECK_HAS(complaint("task.json", "{\"items\":\"to kens\"}"), "task.json:1: expected a name of 1 to 31");
}

TEST(a_task_has_limits) {
    enum { LONG = 2 << 20 };
    char *text = malloc(LONG + 64);
    size_t used = (size_t)sprintf(text, "{\"metrics\":[{\"name\":\"m0\"}");
    for (int i = 1; i < 1000; i++) {
        if (i == 16) {
            sprintf(text + used, "]}");
            CHECK_STR(complaint("task.json", text), "(none)");
        }
        used += (size_t)sprintf(text + used, ",{\"name\":\"m%d\"}", i);
    }
    sprintf(text + used, "]}");
    CHECK_HAS(complaint("task.json", text), "task.json:1: expected at most 16 metrics at byte ");
    CHECK(!strchr(adamod__last_message(), '\n'));
    memset(text, ' ', LONG);
    sprintf(text + LONG, "{}");
    CHECK_HAS(complaint("task.json", text), "task.json: it is larger than 1 MiB");
    used = (size_t)sprintf(text, "{\"about\":\"");
    memset(text + used, 'a', 9999);
    sprintf(text + used + 9999, "\"}");
    CHECK_STR(complaint("task.json", text), "(none)"); /* it loses its end */
    free(text);
}

TEST(metrics_of_all_runs_have_a_limit) {
    const char *runs[3];
    report r;
    for (int i = 0; i < 3; i++) {
        char task[1024], name[8];
        size_t used = (size_t)sprintf(task, "{\"items\":\"i%d\",\"metrics\":[", i);
        for (int k = 0; k < 16; k++) {
            used += (size_t)sprintf(task + used, "%s{\"name\":\"m%d_%d\",\"headline\":true}", k ? "," : "", i, k);
        }
        sprintf(task + used, "]}");
        snprintf(name, sizeof name, "wide%d", i);
        runs[i] = make_task_run(name, name, task, "\"m0_0\":1");
    }
    if (CHECK_INT(report_load(&r, runs, 2, KNOWN), 0)) {
        CHECK_INT(r.n_metrics, 32);
        report_free(&r);
    }
    CHECK_INT(report_load(&r, runs, 3, KNOWN), -1);
    CHECK_HAS(adamod__last_message(), "wide2: with this run the report has too many metrics, expected at most 32");
}

/* Everything of a task that can come onto a page or into a script. */
static const char hostile_task[] =
    "{\"about\":\"<script>a\\u0007\",\"metrics\":[{\"name\":\"x\",\"label\":\"<script>l\\n0 0\",\"about\":\"it's "
    "<script>{/Bold b}_2\\n'; !id\",\"unit\":\"<u\\\">\",\"better\":\"higher\",\"headline\":true}]}";

TEST(settings_commands_and_machine_are_on_the_page) {
    char *text = plain_page_of(make_runs(), RUNS, "settings.html");
    CHECK_HAS(text,
              "<tr><th scope=\"row\"><code>optimizer.rule</code></th><td><code>adamod</code></td><td><code>adam</code>"
              "</td><td><code>adam</code></td></tr>");
    CHECK_HAS(text, "<code>optimizer.beta3</code></th><td><code>0.999</code></td><td><code>–</code></td>");
    CHECK_HAS(text, "<code>train.seed</code></th><td><code>1 / 2</code></td>");
    CHECK(!strstr(text, "<code>model.d</code>"));
    CHECK_HAS(text, "adamod train recipe.yaml --out runs/a1\n");
    CHECK_HAS(text, "adamod train recipe.yaml --out runs/a2 \\\n    --set train.seed=2\n");
    CHECK_HAS(text, "--set optimizer.rule=adam");
    CHECK_HAS(text, "--set &#39;optimizer.schedule.lr=warmup(1e-7,300)&#39;");
    CHECK_HAS(text, "--set optimizer.beta3=\n");
    CHECK_HAS(text, "<dt>processor</dt><dd>A &lt;fast&gt; one</dd>");
    free(text);
}

TEST(wrong_characters_are_marked) {
    const char *run = bare("marked");
    put(run, "recipe.yaml", "name: marked\ndata:\n  tokens: characters\n");
    put(run, "samples.jsonl",
        "{\"step\":1,\"source\":\"old\",\"reference\":\"old\",\"output\":\"old\"}\n"
        "{\"step\":2,\"source\":\"zwei\",\"reference\":\"two\",\"output\":\"two\"}\n"
        "{\"step\":2,\"source\":\"drei\",\"reference\":\"three\",\"output\":\"thxee\"}\n"
        "{\"step\":2,\"source\":\"vier\",\"reference\":\"four\",\"output\":\"fr\"}\n"
        "{\"step\":2,\"source\":\"fünf\",\"reference\":\"five\",\"output\":\"füüive\"}\n"
        "{\"step\":2,\"source\":\"sechs\",\"reference\":\"six\",\"output\":\"\"}\n");
    char *text = plain_page_of(&run, 1, "marked.html");
    CHECK_HAS(text, "two <span class=\"right\" aria-label=\"correct\">✓</span>");
    CHECK_HAS(text, "th<mark>x</mark>ee</td>");
    CHECK_HAS(text, "f<mark class=\"gap\" title=\"missing: ou\">‸</mark>r</td>");
    CHECK_HAS(text, "f<mark>üü</mark>ive</td>");
    CHECK_HAS(text, "(nothing)");
    CHECK(!strstr(text, ">old<")); /* of an earlier update */
    free(text);
}

/* Everything that a file can put onto the page. */
static const char *make_hostile(const char *directory) {
    const char *run = make_run((made){directory, "\"</title><script>alert('n')</script> `id` @x {/Bold b} it's\"",
                                      "finished", 1, 100, 4, 1, 1, 0.5, 50});
    put(run, "machine.json", "{\"<script>\":\"<script>alert('m')</script>\",\"started\":\"\\u0007\"}");
    put(run, "samples.jsonl",
        "{\"step\":2,\"source\":\"<script>s\",\"reference\":\"<script>o \\\"r\\\"\\\"\",\"output\":\"<script>o\"}\n");
    return run;
}

TEST(nothing_that_a_run_holds_becomes_markup) {
    const char *run = make_hostile("hostile-page");
    char *text = plain_page_of(&run, 1, "hostile.html");
    CHECK(!strstr(text, "<script") && !strstr(text, "http:") && !strstr(text, "https:") && !strstr(text, "\a"));
    CHECK_HAS(text, "&lt;script&gt;alert('m')&lt;/script&gt;");
    CHECK_HAS(text, "<td lang=\"\">&lt;script&gt;s</td>");
    CHECK_HAS(text, "title=\"missing: &quot;r&quot;&quot;\"");
    CHECK_HAS(text, "<h1>&lt;/title&gt;&lt;script&gt;alert('n')&lt;/script&gt; `id` @x {/Bold b} it's</h1>");
    free(text);
}

TEST(nothing_that_a_task_says_becomes_markup_or_a_command) {
    const char *run = make_task_run("hostile-task", "net", hostile_task, "\"x\":1e300");
    char *text = plain_page_of(&run, 1, "hostile-task.html");
    CHECK(!strstr(text, "<script") && !strstr(text, "<u\"") && !strchr(text, '\a'));
    CHECK_HAS(text, "Task: &lt;script&gt;a?. ");
    CHECK_HAS(text, "&lt;script&gt;l?0 0 &lt;u&quot;&gt;</th>");
    CHECK_HAS(text, "it's &lt;script&gt;{/Bold b}_2?'; !id&nbsp;1e+300&nbsp;&lt;u&quot;&gt;, ");
    free(text);
    text = contents(below("hostile-task-figures/valid.dat"));
    CHECK_HAS(text, ": loss, <script>l?0 0 <u\">, perplexity\n10 NaN NaN 1.5 ");
    free(text);
    text = contents(below("hostile-task-figures/valid-x.gp"));
    CHECK_HAS(text, "set label 1 'validation it''s <script>{/Bold b}_2?''; !id (<u\">)' at screen ");
    free(text);
    if (!have_gnuplot()) return;
    text = page_of(&run, 1, "hostile-task-drawn.html");
    CHECK_HAS(
        text,
        "aria-label=\"Validation it's &lt;script>{/Bold b}_2?'; !id (&lt;u&quot;>) against update. net: from 1e+300 to 1e+300.\"");
    CHECK_HAS(text, "{/Bold b}_2?'; !id");
    CHECK(!strstr(text, "<script") && !strstr(text, "gnuplot could not draw"));
    free(text);
}

TEST(numbers_are_as_long_as_people_read) {
    char out[32];
    CHECK_STR(metric_number(406.0604, 2, out), "406.06");
    CHECK_STR(metric_number(2.25210286e29, 2, out), "2.25e+29"); /* perplexity of a model that diverges */
    CHECK_STR(metric_number(INFINITY, 2, out), "inf");
}

TEST(gnuplot_draws_every_figure_as_svg_and_pdf) {
    static const char *const names[] = {"loss-updates", "loss-time",      "valid-loss",    "valid-exact",
                                        "valid-bleu",   "rates-1",        "rates-2",       "rates-3",
                                        "rates",        "bound-1-before", "bound-1-after", "bound"};
    if (!have_gnuplot()) SKIP("no gnuplot");
    char *text = page_of(make_runs(), RUNS, "drawn.html");
    int n = 0;
    for (const char *at = text; (at = strstr(at, "<svg viewBox=")); at++) n++;
    CHECK_INT(n, 19); /* rates and bound are there as panels */
    CHECK_HAS(
        text,
        "role=\"img\" aria-label=\"Training loss against update. AdaMod: from 4 to 0.6. Adam: from 4 to 1.5, diverged. "
        "flat: from 4 to 3.9.\" data-axis=\"updates\" ");
    CHECK_HAS(text, "stroke=\"var(--v0)\"");
    CHECK_HAS(text, "fill=\"var(--v2-tint)\"");
    CHECK_HAS(text, "<a href=\"drawn-figures/rates.pdf\">");
    CHECK(!strstr(text, "rgb(") && !strstr(text, "<title>gnuplot") && !strstr(text, "id=\"gnuplot"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *svg = contents(below("drawn-figures/%s.svg", names[i])),
             *pdf = contents(below("drawn-figures/%s.pdf", names[i]));
        CHECK_HAS(svg, "</svg>");
        CHECK_INT(strncmp(pdf, "%PDF", 4), 0);
        CHECK(strlen(svg) > 8000 && size_of(below("drawn-figures/%s.pdf", names[i])) > 4000);
        free(svg);
        free(pdf);
    }
    free(text);
    text = contents(below("notes.txt"));
    CHECK_STR(text, "");
    free(text);
}

TEST(gnuplot_takes_hostile_names_for_text) {
    if (!have_gnuplot()) SKIP("no gnuplot");
    const char *run = make_hostile("hostile-drawn");
    char *text = page_of(&run, 1, "hostile-drawn.html");
    CHECK(!strstr(text, "<script"));
    CHECK_HAS(text, ">&lt;/title>&lt;script>alert('n')&lt;/script");
    CHECK_HAS(text, "<svg");
    CHECK(!strstr(text, "gnuplot could not draw"));
    free(text);
}

TEST(runs_with_nothing_to_draw_get_a_page) {
    if (!have_gnuplot()) SKIP("no gnuplot");
    const char *runs[] = {bare("empty1"), NULL};
    runs[1] = below("empty2");
    put(runs[1], "recipe.yaml", "name: nan\n");
    put(runs[1], "metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":null}\n{\"kind\":\"train\",\"step\":2}\n");
    char *text = page_of(runs, 2, "empty.html");
    CHECK_HAS(text, "There is nothing to draw yet.");
    CHECK_HAS(text, "<b>bare</b> has not recorded anything yet.");
    CHECK_HAS(text, "</html>");
    free(text);
    text = contents(below("notes.txt"));
    CHECK_HAS(text, "empty1 has no metrics yet\n");
    CHECK_HAS(text, "empty1 and 1 other run have no learning-rate histograms\n");
    free(text);
}

TEST(runs_of_one_seed_are_noted) {
    const char *runs[] = {below("s1"), below("s2")};
    put(runs[0], "recipe.yaml", "name: same\ntrain:\n  seed: 1\n");
    put(runs[1], "recipe.yaml", "name: same\ntrain:\n  seed: 1\n");
    free(plain_page_of(runs, 2, "seeds.html"));
    char *text = contents(below("notes.txt"));
    CHECK_HAS(text, "/s1 and ");
    CHECK_HAS(text, "/s2 have the same recipe and the same seed\n");
    free(text);
}

TEST(a_page_that_cannot_be_written_leaves_none_behind) {
    const char *run = make_run((made){"unwritten", "x", "finished", 1, 40, 4, 1, 1, 0.5, 50});
    CHECK_INT(report_write(&run, 1, KNOWN, below("no/such/place.html")), -1);
    CHECK_HAS(adamod__last_message(), "no/such/place-figures: cannot make this directory");
    put(below("bad"), "recipe.yaml", "name: bad\n");
    put(below("bad"), "metrics.jsonl", "{}\n");
    const char *const runs[] = {run, below("bad")};
    CHECK_INT(report_write(runs, 2, KNOWN, below("refused.html")), -1);
    CHECK_HAS(adamod__last_message(), "bad/metrics.jsonl:1: ");
    CHECK_INT(size_of(below("refused.html")), -1);
    CHECK_INT(size_of(below("refused-figures")), -1);
}

RUN_TESTS(ENTRY(takes_json_as_the_standard_has_it), ENTRY(json_texts_are_cut_between_code_points),
          ENTRY(json_that_is_nested_without_end_is_refused), ENTRY(reads_all_of_a_run), ENTRY(a_recipe_alone_is_a_run),
          ENTRY(a_torn_last_line_is_left_out), ENTRY(what_is_malformed_is_named_with_its_line),
          ENTRY(histograms_must_fit_their_bins), ENTRY(files_that_are_no_files_or_have_no_end_are_refused),
          ENTRY(long_runs_are_thinned_without_changing_their_means),
          ENTRY(a_point_stands_for_the_updates_since_the_one_before),
          ENTRY(a_directory_of_runs_stands_for_them_in_the_order_of_their_start),
          ENTRY(spreads_are_those_of_pencil_and_paper), ENTRY(the_table_has_median_mean_and_deviation),
          ENTRY(the_printed_table_is_aligned_in_columns_of_the_terminal), ENTRY(a_table_that_is_too_wide_is_turned),
          ENTRY(a_table_that_is_too_wide_when_turned_has_medians_alone), ENTRY(a_run_that_is_given_twice_counts_once),
          ENTRY(without_gnuplot_there_is_a_page_all_the_same), ENTRY(the_page_says_in_words_what_happened),
          ENTRY(a_variant_whose_runs_all_diverged_is_said_to_have), ENTRY(a_run_says_itself_what_it_measures),
          ENTRY(what_the_page_says_of_metrics_is_the_tasks), ENTRY(what_should_rise_is_drawn_from_zero_on),
          ENTRY(what_a_task_leaves_out_is_plain), ENTRY(each_task_has_a_table_of_its_own),
          ENTRY(a_run_without_a_task_is_of_the_only_one), ENTRY(metrics_of_one_name_are_told_apart),
          ENTRY(the_best_is_marked_in_the_metrics_direction), ENTRY(a_task_that_is_malformed_is_named_with_its_line),
          ENTRY(a_task_has_limits), ENTRY(metrics_of_all_runs_have_a_limit),
          ENTRY(nothing_that_a_task_says_becomes_markup_or_a_command),
          ENTRY(settings_commands_and_machine_are_on_the_page), ENTRY(wrong_characters_are_marked),
          ENTRY(nothing_that_a_run_holds_becomes_markup), ENTRY(numbers_are_as_long_as_people_read),
          ENTRY(gnuplot_draws_every_figure_as_svg_and_pdf), ENTRY(gnuplot_takes_hostile_names_for_text),
          ENTRY(runs_with_nothing_to_draw_get_a_page), ENTRY(runs_of_one_seed_are_noted),
          ENTRY(a_page_that_cannot_be_written_leaves_none_behind))
