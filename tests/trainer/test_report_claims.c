/* Reports claim nothing that is not so: only seeds are averaged, only what measures the same thing is ranked, results
 * carry the split they come from, and times what ran beside.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "run_folders.h"
#include "report/page.h"
#include "report/ranking.h"
#include "report/report.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* A run of one name, with further lines of its recipe; training losses fall to one value. */
static const char *make_loss_run(const char *directory, const char *recipe, double loss) {
    const char *run = below("%s", directory);
    char text[512];
    snprintf(text, sizeof text, "name: net\n%s", recipe);
    put(run, "recipe.yaml", text);
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 40; i++)
        fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"time\":%d,\"loss\":%g}\n", i, i, i < 5 ? 8 * loss : loss);
    fprintf(file, "{\"kind\":\"valid\",\"step\":40,\"loss\":%g}\n", loss);
    fclose(file);
    snprintf(text, sizeof text, "{\"status\":\"finished\",\"step\":40,\"seconds\":40}");
    put(run, "result.json", text);
    return run;
}

/* Runs of three seeds around a loss. */
enum { SEEDS = 3 };
static void make_seeds(const char **out, const char *directory, const char *recipe, double loss) {
    for (int i = 0; i < SEEDS; i++) {
        char name[32], text[256];
        snprintf(name, sizeof name, "%s-%d", directory, i + 1);
        snprintf(text, sizeof text, "%strain:\n  seed: %d\n", recipe, i + 1);
        out[i] = make_loss_run(name, text, loss + 0.01 * (i - 1));
    }
}

static void put_data(const char *run, const char *train, const char *valid) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"parts\":[{\"split\":\"train\",\"key\":\"data.source\",\"file\":\"/x\",\"fingerprint\":\"%s\"},"
             "{\"split\":\"valid\",\"key\":\"data.valid_source\",\"file\":\"/y\",\"fingerprint\":\"%s\"}]}\n",
             train, valid);
    put(run, "data.json", text);
}

/* Names of the variants with their numbers of runs, or what figures call them, as "a|b". */
static char *list_variants(const char *const *runs, int n, bool labels) {
    report r;
    static char names[1024];
    size_t used = 0;
    *names = '\0';
    if (!CHECK_INT(report_load(&r, runs, n, KNOWN), 0)) return names;
    for (int i = 0; i < r.n_variants; i++) {
        const report_variant *v = &r.variant[i];
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? "|" : "", labels ? v->label : v->name);
        if (!labels) used += (size_t)snprintf(names + used, sizeof names - used, ":%d", v->n);
    }
    report_free(&r);
    return names;
}

static char *variants_of(const char *const *runs, int n) { return list_variants(runs, n, false); }

/* ---- averages ---- */

TEST(different_recipes_are_different_variants) {
    const char *runs[] = {make_loss_run("v1", "train:\n  steps: 40\n  seed: 1\n", 1), NULL, NULL, NULL};
    runs[1] = make_loss_run("v2", "train:\n  steps: 60\n  seed: 2\n", 2);
    runs[2] = make_loss_run("v3", "train:\n  steps: 40\n  seed: 3\n", 3);
    runs[3] = make_loss_run("v4", "optimizer:\n  beta3: 0.9\ntrain:\n  steps: 40\n  seed: 3\n", 3);
    CHECK_STR(variants_of(runs, 4), "net (train.steps=40):2|net (train.steps=60):1|net (train.steps=40, beta3=0.9):1");
    CHECK_STR(variants_of(runs, 1), "net:1");
}

TEST(the_rule_is_enough_of_a_name) {
    const char *runs[] = {make_loss_run("o1", "optimizer:\n  rule: adam\n  lr: 1e-3\n", 1), NULL, NULL};
    runs[1] = make_loss_run("o2", "optimizer:\n  rule: sgd\n  lr: 0.1\n  momentum: 0.9\n", 2);
    runs[2] = make_loss_run("o3", "optimizer:\n  rule: sgd\n  lr: 0.2\n", 3);
    CHECK_STR(variants_of(runs, 2), "net (adam):1|net (sgd):1");
    CHECK_STR(variants_of(runs, 3), "net (adam):1|net (sgd, lr=0.1):1|net (sgd, lr=0.2):1"); /* two of that rule */
}

TEST(names_have_the_fewest_keys_that_tell_runs_apart) {
    const char *runs[] = {
        make_loss_run("k1", "optimizer:\n  rule: adamod\n  lr: 1e-3\n  beta3: 0.9\n", 1),
        make_loss_run("k2", "optimizer:\n  rule: adam\n  lr: 1e-3\n", 2),
        make_loss_run("k3", "optimizer:\n  rule: adam\n  lr: 1e-3\n  schedule:\n    lr: warmup(0,9)\n", 3),
        make_loss_run("k4", "optimizer:\n  rule: adam\n  lr: 1e-2\n  schedule:\n    lr: warmup(0,9)\n", 4)};
    CHECK_STR(variants_of(runs, 3), "net (adamod):1|net (adam):1|net (adam, warmup(0,9)):1");
    CHECK_STR(variants_of(runs, 4), "net (adamod):1|net (adam, lr=1e-3):1|net (adam, lr=1e-3, warmup(0,9)):1|"
                                    "net (adam, lr=1e-2):1");
    CHECK_STR(list_variants(runs, 2, true), "adamod|adam"); /* figures have no room for what all have in common */
    CHECK_STR(list_variants(runs, 1, true), "net");
}

TEST(variants_never_share_a_name) {
    const char *runs[] = {make_loss_run("p1", "data:\n  path: /x/a/ok\n", 1), NULL, NULL};
    runs[1] = make_loss_run("p2", "data:\n  path: /x/b/ok\n", 2);
    runs[2] = make_loss_run("p3", "data:\n  path: ok\n", 3);
    CHECK_STR(variants_of(runs, 3), "net (data.path=a/ok):1|net (data.path=b/ok):1|net (data.path=ok):1");
    runs[2] = make_loss_run("p3", "data:\n  path: /x/b/no\n", 3);
    CHECK_STR(variants_of(runs, 3), "net (data.path=a/ok):1|net (data.path=b/ok):1|net (data.path=no):1");
    /* what differs is shown, however long what does not */
    runs[0] = make_loss_run("p1", "data:\n  path: a-name-that-is-longer-than-any-name-of-a-variant-1\n", 1);
    runs[1] = make_loss_run("p2", "data:\n  path: a-name-that-is-longer-than-any-name-of-a-variant-2\n", 2);
    CHECK_STR(variants_of(runs, 2),
              "net (data.path=…y-name-of-a-variant-1):1|net (data.path=…y-name-of-a-variant-2):1");
    CHECK_STR(list_variants(runs, 2, true), "data.path=…y-name-of-a-variant-1|data.path=…y-name-of-a-variant-2");
}

TEST(weights_that_runs_begin_with_are_named) {
    static const char recipe[] = "optimizer:\n  lr: %g\ntrain:\n  steps: 40\n  init_from: %s\n";
    static const char *const from[] = {"\"\"", "/x/base/checkpoints/best.safetensors",
                                       "/x/large/checkpoints/best.safetensors",
                                       "/x/large/checkpoints/last.safetensors"};
    const char *runs[4];
    for (int i = 0; i < 4; i++) {
        char text[256], directory[8];
        snprintf(text, sizeof text, recipe, i + 1.0, from[i]);
        snprintf(directory, sizeof directory, "w%d", i);
        runs[i] = make_loss_run(directory, text, 1);
    }
    CHECK_STR(variants_of(runs, 3), "net (from scratch):1|net (from base):1|net (from large):1");
    CHECK_STR(variants_of(runs + 2, 2), "net (from large/checkpoints/best.safetensors):1|"
                                        "net (from large/checkpoints/last.safetensors):1");
}

TEST(what_only_records_is_no_difference) {
    const char *runs[] = {make_loss_run("r1",
                                        "train:\n  seed: 1\n  threads: 1\n  log_every: 1\n  histogram_every: 5\n"
                                        "  checkpoint_every: 10\ngenerate:\n  samples: 3\n",
                                        1),
                          NULL};
    /* an earlier version without train.epochs and train.test, which are off */
    runs[1] = make_loss_run(
        "r2",
        "train:\n  seed: 2\n  threads: 4\n  log_every: 0\n  histogram_every: 0\n  epochs: 0\n  test: auto\n"
        "  checkpoint_every: 20\ngenerate:\n  samples: 5\n",
        2);
    CHECK_STR(variants_of(runs, 2), "net:2");
    runs[0] = make_loss_run("r1", "train:\n  average: 5\n  checkpoint_every: 10\n", 1);
    runs[1] = make_loss_run("r2", "train:\n  average: 5\n  checkpoint_every: 20\n", 2);
    CHECK_STR(variants_of(runs, 2), "net (train.checkpoint_every=10):1|net (train.checkpoint_every=20):1");
    runs[0] = make_loss_run("r1", "optimizer:\n  rule: adam\n", 1);
    runs[1] = make_loss_run("r2", "optimizer:\n  rule: adam\n  beta1: 0\n", 2); /* 0 is not its default */
    CHECK_STR(variants_of(runs, 2), "net (beta1=–):1|net (beta1=0):1");
}

TEST(data_count_by_content) {
    const char *runs[] = {make_loss_run("d1", "data:\n  source: /a/train.de\n", 1), NULL};
    runs[1] = make_loss_run("d2", "data:\n  source: /b/train.de\n", 2);
    put_data(runs[0], "0123", "77");
    put_data(runs[1], "0123", "77");
    CHECK_STR(variants_of(runs, 2), "net:2"); /* the same text in another place */
    put_data(runs[1], "4567", "77");
    runs[1] = make_loss_run("d2", "data:\n  source: /a/train.de\n", 2);
    CHECK_STR(variants_of(runs, 2), "net (train data.source=0123):1|net (train data.source=4567):1");
    char *text = plain_page_of(runs, 2, "data.html");
    CHECK_HAS(text, "Training loss: not ranked, because the runs differ in training data. ");
    CHECK_HAS(text, "The lowest validation loss measured is that of <b>net"); /* they have the same validation data */
    free(text);
    put_data(runs[1], "0123", "88");
    text = plain_page_of(runs, 2, "valid-data.html");
    CHECK_HAS(text, "Validation loss: not ranked, because the runs differ in validation data. ");
    free(text);
}

/* ---- ranks ---- */

TEST(losses_that_measure_something_else_are_not_ranked) {
    const char *runs[] = {make_loss_run("s1", "model:\n  smoothing: 0\n", 1), NULL};
    runs[1] = make_loss_run("s2", "model:\n  smoothing: 0.1\n", 2);
    char *text = plain_page_of(runs, 2, "smoothing.html");
    CHECK_HAS(text, "Training loss: not ranked, because the runs differ in label smoothing. ");
    CHECK_HAS(text, "Validation loss: not ranked, because the runs differ in label smoothing. ");
    CHECK(!strstr(text, "<td><b>") && !strstr(text, "lowest"));
    free(text);
    const char *seeds[2 * SEEDS];
    make_seeds(seeds, "s1", "model:\n  smoothing: 0\n", 1);
    make_seeds(seeds + SEEDS, "s2", "model:\n  smoothing: 0.1\n", 2);
    text = plain_page_of(seeds, 2 * SEEDS, "smoothing-seeds.html");
    CHECK(!strstr(text, "<td><b>") && !strstr(text, "lowest") && !strstr(text, "Is it chance?"));
    free(text);
    runs[0] = make_loss_run("s1", "data:\n  tokens: words\n", 1);
    runs[1] = make_loss_run("s2", "data:\n  tokens: characters\n", 2);
    text = plain_page_of(runs, 2, "tokens.html");
    CHECK_HAS(text, "Training loss: not ranked, because the runs differ in vocabulary. ");
    free(text);
    runs[0] = make_loss_run("s1", "data:\n  task: a\n", 1);
    runs[1] = make_loss_run("s2", "data:\n  seed: 1\n", 2); /* of which it is not known */
    put(runs[0], "target.vocab", "x\n");
    put(runs[1], "target.vocab", "y\n");
    text = plain_page_of(runs, 2, "vocab.html");
    CHECK_HAS(text, "Training loss: not ranked, because the runs differ in task, training data and vocabulary. ");
    free(text);
    runs[0] = make_loss_run("s1", "optimizer:\n  lr: 1\n", 1);
    runs[1] = make_loss_run("s2", "optimizer:\n  lr: 2\n", 2);
    put(runs[1], "target.vocab", "x\n");
    text = plain_page_of(runs, 2, "ranked.html"); /* as a check of the checks above */
    CHECK_HAS(text, "The lowest validation loss measured is that of <b>net (lr=1)</b>, 1.000; training "
                    "loss&nbsp;1.000. There are too few runs to tell whether that is chance. ");
    free(text);
    runs[1] = make_loss_run("s2", "optimizer:\n  lr: 2\n", 1);
    text = plain_page_of(runs, 2, "tie.html"); /* none of two that are equal is the lowest */
    CHECK_HAS(text, "<b>net (lr=1)</b>: validation loss&nbsp;1.000, training loss&nbsp;1.000. ");
    CHECK(!strstr(text, "lowest"));
    CHECK(!strstr(text, "not ranked"));
    free(text);
}

TEST(what_diverged_is_not_the_best) {
    const char *runs[2 * SEEDS + 1];
    make_seeds(runs, "q2", "optimizer:\n  lr: 2\n", 2);
    make_seeds(runs + SEEDS, "q3", "optimizer:\n  lr: 3\n", 3);
    runs[2 * SEEDS] = make_loss_run("q1", "optimizer:\n  lr: 1\n", 1);
    put(runs[2 * SEEDS], "result.json", "{\"status\":\"diverged\",\"step\":40,\"seconds\":40}");
    char *text = plain_page_of(runs, 2 * SEEDS + 1, "diverged-best.html");
    CHECK_HAS(text, "<td>1.000</td>");
    CHECK_HAS(text, "<td><b>2.000</b><small>");
    CHECK(!strstr(text, "<b>1.000</b>"));
    free(text);
}

/* ---- chance ---- */

TEST(a_lead_within_the_spread_is_no_win) {
    const char *runs[2 * SEEDS];
    make_seeds(runs, "c1", "optimizer:\n  lr: 1\n", 1);
    make_seeds(runs + SEEDS, "c2", "optimizer:\n  lr: 2\n", 1.005);
    char *text = plain_page_of(runs, 2 * SEEDS, "chance.html");
    CHECK_HAS(text, "The lowest validation loss measured is that of <b>net (lr=1)</b>, 1.000; training "
                    "loss&nbsp;1.000. Its lead over <b>net (lr=2)</b> (p = 0.57) may be chance. ");
    CHECK(!strstr(text, "<td><b>"));
    CHECK_HAS(text, "<td>net (lr=1)</td><td>net (lr=2)</td><td>-0.005</td><td>p = 0.57</td><td>no</td>");
    CHECK_HAS(text, "With 3 seeds each, two means count as different (p &lt; 0.05) only if they are at least 2.3");
    free(text);
    make_seeds(runs + SEEDS, "c2", "optimizer:\n  lr: 2\n", 2);
    text = plain_page_of(runs, 2 * SEEDS, "win.html");
    CHECK_HAS(text, "<td><b>1.000</b><small>(1.000 ± 0.010)</small></td>");
    CHECK_HAS(text, "<b>net (lr=1)</b> has the lowest validation loss, 1.000; training loss&nbsp;1.000. That is more "
                    "than chance explains (Welch’s test over seeds, p &lt; 0.001). ");
    free(text);
    runs[SEEDS] = make_loss_run("c3", "optimizer:\n  lr: 2\n", 2); /* a win needs seeds of both */
    text = plain_page_of(runs, SEEDS + 1, "one-sided.html");
    CHECK(!strstr(text, "<td><b>") && !strstr(text, "has the lowest"));
    free(text);
}

/* The text that the terminal shows below the table. */
static char *printed_of(const char *const *runs, int n) {
    const int kept = divert(STDOUT_FILENO, below("printed.txt"));
    CHECK_INT(report_print_table(runs, n, KNOWN), 0);
    restore(STDOUT_FILENO, kept);
    return contents(below("printed.txt"));
}

TEST(the_terminal_says_what_seeds_can_tell) {
    const char *runs[3 * SEEDS];
    make_seeds(runs, "t1", "optimizer:\n  lr: 1\n", 1);
    make_seeds(runs + SEEDS, "t2", "optimizer:\n  lr: 2\n", 1.005);
    make_seeds(runs + 2 * SEEDS, "t3", "optimizer:\n  lr: 3\n", 2);
    char *text = printed_of(runs, 3 * SEEDS);
    CHECK_HAS(text,
              "\nvalidation loss: best is net (lr=1), by more than chance over net (lr=3) (p < 0.001), perhaps by "
              "chance over net (lr=2) (p = 0.57)\nBy Welch's test over seeds. With 3 seeds each, ");
    free(text);
    runs[1] = runs[SEEDS];
    text = printed_of(runs, 2);
    CHECK_HAS(text, "\nOne seed each cannot tell a difference from chance.\n");
    free(text);
    text = printed_of(runs, 1);
    CHECK(!strstr(text, "chance"));
    free(text);
}

TEST(differences_of_percentages_are_points) {
    char text[48];
    ranking_difference(&(metric){.unit = "%", .decimals = 1}, 2.54, text, sizeof text);
    CHECK_STR(text, "+2.5 points");
    ranking_difference(&(metric){.unit = "", .decimals = 2}, -0.5, text, sizeof text);
    CHECK_STR(text, "-0.50");
}

static void check_table(const char *name, const char *expected) {
    char *text = contents(below("files-tables/%s", name));
    CHECK_STR(text, expected);
    free(text);
}

TEST(tables_are_files_too) {
    const char *runs[2 * SEEDS];
    make_seeds(runs, "f1", "optimizer:\n  lr: 1\n", 1);
    make_seeds(runs + SEEDS, "f2", "optimizer:\n  lr: 2\n", 2);
    char *text = plain_page_of(runs, 2 * SEEDS, "files.html");
    CHECK_HAS(text, "This table as <a href=\"files-tables/results.csv\">CSV</a>, <a href=\"files-tables/results.md\">");
    free(text);
    text = contents(below("files-tables/results.csv"));
    CHECK_HAS(
        text,
        "variant,metric,split,unit,runs,median,mean,std,min,max,diverged,notes\r\n"
        "net (lr=1),loss,train,,3,1,1,0.01,0.99,1.01,0,\r\nnet (lr=1),loss,validation,,3,1,1,0.01,0.99,1.01,0,\r\n"
        "net (lr=1),updates,,,3,40,40,0,40,40,0,\r\nnet (lr=1),time,,s,3,40,40,0,40,40,0,\r\n");
    free(text);
    text = contents(below("files-tables/results.md"));
    CHECK_HAS(text, "| net (lr=1) | 3 | **1.000 (1.000 ± 0.010)** | ");
    free(text);
    text = contents(below("files-tables/results.tex"));
    CHECK_HAS(text, "net (lr=1) & 3 & \\textbf{1.000 (1.000 $\\pm$ 0.010)} & ");
    free(text);
    text = contents(below("files-tables/tests.csv"));
    CHECK_HAS(text, "metric,split,unit,best,other,best_runs,other_runs,difference,p\r\n"
                    "loss,validation,,net (lr=1),net (lr=2),3,3,-1,2.66");
    free(text);
    check_table("settings.csv", "variant,key,value\r\nnet (lr=1),optimizer.lr,1\r\nnet (lr=1),train.seed,1 / 2 / 3\r\n"
                                "net (lr=2),optimizer.lr,2\r\nnet (lr=2),train.seed,1 / 2 / 3\r\n");
    check_table("settings.md", "The keys in which the recipes differ.\n\n| key | net (lr=1) | net (lr=2) |\n"
                               "|---|---:|---:|\n| optimizer.lr | 1 | 2 |\n| train.seed | 1 / 2 / 3 | 1 / 2 / 3 |\n");
}

/* ---- what moved ---- */

/* Twelve losses, one an update. */
static char *page_of_losses(const char *directory, const char *losses) {
    const char *run = make_loss_run(directory, "", 1);
    FILE *file = create(run, "metrics.jsonl");
    int step = 0;
    for (const char *at = losses; *at; at += strcspn(at, " "), at += *at == ' ')
        fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"time\":%d,\"loss\":%g}\n", step + 1, step + 1, atof(at)),
            step++;
    fprintf(file, "{\"kind\":\"valid\",\"step\":12,\"loss\":0.125}\n");
    fclose(file);
    put(run, "result.json", "{\"status\":\"finished\",\"step\":12,\"seconds\":12}");
    char page[64];
    snprintf(page, sizeof page, "%s.html", directory);
    return plain_page_of(&run, 1, page);
}

TEST(what_fell_or_rose_has_moved) {
    char *text = page_of_losses("moved0", "2 1.9 1.9 1.8 1.9 1.9 1.8 1.9 1.9 1.9 1.8 1.9");
    CHECK_HAS(text, "<b>net</b> hardly moved: its training loss is 1.90 after 12 updates");
    free(text);
    text = page_of_losses("moved1", "2 1.9 1.5 1 0.5 0.5 0.2 0.1 0.1 0.1 0.1 1.95"); /* the last batch is a hard one */
    CHECK_HAS(text, "<b>net</b>: validation loss&nbsp;0.125, training loss&nbsp;1.950. ");
    free(text);
    text = page_of_losses("moved2", "2 1.9 1.9 2.5 3 4 5 6 7 8 9 9.5");
    CHECK_HAS(text, "<b>net</b>: validation loss&nbsp;0.125, training loss&nbsp;9.500, above the 2.000 of its first "
                    "update. ");
    CHECK(!strstr(text, "hardly moved"));
    free(text);
}

/* ---- many variants ---- */

/* Makes n runs whose validation losses are first, first + step and so on. */
static char *page_of_many(int n, double first, double step, const char *page) {
    const char *runs[16];
    for (int i = 0; i < n; i++) {
        char directory[16], recipe[64];
        snprintf(directory, sizeof directory, "many%d", i);
        snprintf(recipe, sizeof recipe, "optimizer:\n  lr: %d\n", i + 1);
        runs[i] = make_loss_run(directory, recipe, first + i * step);
    }
    return plain_page_of(runs, n, page);
}

TEST(others_are_those_besides_the_best) {
    char *text = page_of_many(8, 1, 0.125, "many.html");
    CHECK_HAS(
        text,
        "Eight variants, one run each, 40 updates. The lowest validation loss measured is that of <b>net (lr=1)</b>, "
        "1.000; training loss&nbsp;1.000. There are too few runs to tell whether that is chance. Seven others have validation loss from 1.125 to 1.875. ");
    free(text);
    text = page_of_many(14, 1, 0, "many-equal.html");
    /* their settings are a row each */
    CHECK_HAS(text, "<th scope=\"col\">variant</th><th scope=\"col\"><code>optimizer.lr</code></th></tr></thead>");
    CHECK_HAS(text, "net (lr=14)</th><td><code>14</code></td></tr>\n</tbody>");
    CHECK_HAS(text, "14 variants, one run each, 40 updates. They have validation loss 1.000. ");
    CHECK(!strstr(text, "others"));
    free(text);
}

TEST(many_that_failed_are_one_sentence) {
    const char *runs[10];
    for (int i = 0; i < 10; i++) {
        char directory[16], name[16];
        snprintf(directory, sizeof directory, "failed%d", i);
        snprintf(name, sizeof name, "%s %d", i < 5 ? "flat" : "lost", i);
        runs[i] = make_run((made){directory, name, i < 5 ? "finished" : "diverged", 1, 30, 4, 3.8 + 0.02 * i, 4, 0, 0});
    }
    char *text = plain_page_of(runs, 10, "failed.html");
    CHECK_HAS(text,
              "Five variants hardly moved: <b>flat 0</b>, <b>flat 1</b>, <b>flat 2</b>, <b>flat 3</b>, <b>flat 4</b>, "
              "with training loss from 3.800 to 3.880. ");
    CHECK_HAS(text, "Five variants diverged: <b>lost 5</b>, <b>lost 6</b>, ");
    free(text);
}

/* ---- splits ---- */

/* The heads of the table. */
static char *heads_of(const char *run) {
    static char heads[512];
    report r;
    report_table t;
    size_t used = 0;
    *heads = '\0';
    if (!CHECK_INT(report_load(&r, &run, 1, KNOWN), 0)) return heads;
    if (CHECK_INT(report_table_make(&t, &r), 0)) {
        for (int k = 0; k < t.columns; k++)
            used += (size_t)snprintf(heads + used, sizeof heads - used, "%s|", report_table_cell(&t, 0, k));
        report_table_free(&t);
    }
    report_free(&r);
    return heads;
}

TEST(validation_is_never_called_test) {
    const char *run = make_loss_run("split", "data:\n  test_source: \"\"\n  test_target: \"\"\n", 1);
    /* as versions before 0.2 wrote it */
    put(run, "result.json",
        "{\"status\":\"finished\",\"step\":40,\"seconds\":40,\"test\":{\"kind\":\"test\",\"step\":40,\"bleu\":50}}");
    CHECK_STR(heads_of(run), "variant|validation BLEU|validation loss|training loss|updates|time (s)|");
    char *text = plain_page_of(&run, 1, "split.html");
    CHECK_HAS(text, "<b>net</b>: validation BLEU&nbsp;50.00, ");
    CHECK(!strstr(text, "test ") && !strstr(text, "Test"));
    free(text);
    put(run, "result.json",
        "{\"status\":\"finished\",\"step\":40,\"seconds\":40,\"final_valid\":{\"kind\":\"final_valid\",\"bleu\":50}}");
    CHECK_STR(heads_of(run), "variant|validation BLEU|validation loss|training loss|updates|time (s)|");
    /* recipes of then had the keys of all tasks */
    put(run, "recipe.yaml", "name: net\ndata:\n  test: 60\n  source: s.de\n  test_source: \"\"\n");
    put(run, "result.json",
        "{\"status\":\"finished\",\"step\":40,\"seconds\":40,\"test\":{\"kind\":\"test\",\"step\":40,\"bleu\":50}}");
    CHECK_STR(heads_of(run), "variant|validation BLEU|validation loss|training loss|updates|time (s)|");
    put(run, "recipe.yaml", "name: net\ndata:\n  test: 60\n  source: \"\"\n  test_source: \"\"\n");
    CHECK_STR(heads_of(run), "variant|test BLEU|validation loss|training loss|updates|time (s)|");
    put(run, "recipe.yaml", "name: net\ndata:\n  test_path: \"\"\n"); /* pictures for the test may be in data.path */
    put(run, "data.json", "{\"parts\":[]}");
    CHECK_STR(heads_of(run), "variant|test BLEU|validation loss|training loss|updates|time (s)|");
    remove(below("split/data.json"));
    CHECK_STR(heads_of(run), "variant|validation BLEU|validation loss|training loss|updates|time (s)|");
    put(run, "recipe.yaml", "name: net\ndata:\n  source: s.de\n  test_source: t.de\n");
    put(run, "result.json",
        "{\"status\":\"finished\",\"step\":40,\"seconds\":40,\"test\":{\"kind\":\"test\",\"step\":40,\"bleu\":50}}");
    CHECK_STR(heads_of(run), "variant|test BLEU|validation loss|training loss|updates|time (s)|");
}

TEST(lines_of_an_old_test_are_validation_too) {
    const char *run = make_loss_run("old-lines", "data:\n  test_source: \"\"\n", 1);
    put(run, "metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n{\"kind\":\"test\",\"step\":1,\"bleu\":30}\n");
    CHECK_STR(heads_of(run), "variant|validation BLEU|training loss|updates|time (s)|");
    put(run, "metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"loss\":1}\n{\"kind\":\"final_valid\",\"step\":1,\"bleu\":30}\n");
    CHECK_STR(heads_of(run), "variant|validation BLEU|training loss|updates|time (s)|");
}

TEST(training_loss_is_what_the_trainer_said) {
    const char *run = make_loss_run("said", "", 1);
    put(run, "result.json", "{\"status\":\"finished\",\"step\":40,\"seconds\":40,\"training_loss\":0.875}");
    char *text = plain_page_of(&run, 1, "said.html");
    CHECK_HAS(text, "training loss&nbsp;0.875. ");
    CHECK_HAS(text, "<td>0.875</td>");
    free(text);
}

static const char finished_with_final[] = "{\"status\":\"finished\",\"step\":40,\"seconds\":40,"
                                          "\"final_valid\":{\"kind\":\"final_valid\",\"bleu\":50}}";

TEST(scores_of_the_best_model_are_called_that) {
    static const struct {
        const char *recipe;
        bool best, averaged;
    } all[] = {{"train:\n  test: best\n  average: 10\n", true, false},
               {"train:\n  test: auto\n  average: 0\n  patience: 3\n", true, false},
               {"train:\n  test: auto\n  average: 10\n  patience: 3\n", false, true},
               {"train:\n  test: last\n  average: 10\n  patience: 3\n", false, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *run = make_loss_run("best", all[i].recipe, 1);
        put(run, "result.json", finished_with_final);
        char *text = plain_page_of(&run, 1, "best.html");
        CHECK_INT(strstr(text, "that was best on the validation data") != NULL, all[i].best);
        CHECK_INT(strstr(text, "of the average of the last checkpoints") != NULL, all[i].averaged);
        free(text);
    }
}

TEST(scores_of_an_averaged_model_are_called_that) {
    for (int average = 0; average < 3; average++) {
        const char *run = make_loss_run("average", average ? "train:\n  average: 10\n" : "train:\n  average: 0\n", 1);
        if (average < 2) put(run, "result.json", finished_with_final);
        char *text = plain_page_of(&run, 1, "average.html");
        CHECK_INT(strstr(text, "of the average of the last checkpoints") != NULL, average == 1);
        free(text);
    }
}

/* ---- signatures ---- */

TEST(a_score_says_which_of_its_name_it_is) {
    static const char task[] = "{\"metrics\":[{\"name\":\"bleu\",\"label\":\"BLEU\",\"headline\":true%s}]}";
    const char *runs[] = {make_loss_run("bleu1", "", 1), NULL};
    char text[256];
    report r;
    runs[1] = make_loss_run("bleu2", "model:\n  d: 2\n", 1);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, task, i ? ",\"signature\":\"tok:13a\"" : ",\"signature\":\"tok:none\"");
        put(runs[i], "task.json", text);
        put(runs[i], "result.json", "{\"status\":\"finished\",\"step\":40,\"seconds\":40,\"test\":{\"bleu\":7}}");
    }
    if (CHECK_INT(report_load(&r, runs, 2, KNOWN), 0)) {
        CHECK_INT(r.n_metrics, 2); /* two scores, which no column may mix */
        report_free(&r);
    }
    const int kept = divert(1, below("bleu.txt"));
    const int status = report_print_table(runs, 1, KNOWN);
    restore(1, kept);
    CHECK_INT(status, 0);
    char *printed = contents(below("bleu.txt"));
    CHECK_HAS(printed, "\nBLEU: tok:none\n");
    free(printed);
    const metric now = {"bleu", "BLEU", "BLEU", "", 1, 2, METRIC_HIGHER, true, "tok:new"};
    remove(below("bleu1/task.json")); /* an older run does not tell which it is */
    if (CHECK_INT(report_load(&r, runs, 1, &now, 1), 0)) {
        CHECK(r.n_metrics == 1 && !r.column[REPORT_FIRST_METRIC].signature);
        report_free(&r);
    }
}

/* ---- learning rates ---- */

/* The caption of the learning rates of a run with one histogram: bins from 1e-4 to 1e6, a power of ten each. */
static char *rates_caption(const char *histogram) {
    const char *run = make_loss_run("rates", "", 1);
    static char text[4096];
    report r;
    report_figures f = {.rows = {1, 40}};
    memset(text, 0, sizeof text);
    put(run, "histograms.jsonl", histogram);
    if (!CHECK_INT(report_load(&r, &run, 1, KNOWN), 0)) return text;
    FILE *out = fmemopen(text, sizeof text - 1, "w");
    page_caption(out, &r, &f, REPORT_RATES);
    fclose(out);
    report_free(&r);
    return text;
}

#define HISTOGRAM                                                                                                            \
    "{\"step\":1,\"bounded\":0,\"low\":-4,\"high\":6,\"bins\":10,\"eta_first\":6,\"eta\":[58,0,2,40],\"effective_first\":6," \
    "\"effective\":[58,0,2,40]"

TEST(elements_without_a_gradient_have_no_large_learning_rate) {
    const char *text = rates_caption(HISTOGRAM ",\"idle_eta_first\":9,\"idle_eta\":[40],\"idle_effective_first\":9,"
                                               "\"idle_effective\":[40]}\n");
    CHECK_HAS(text,
              "above 10,000 at any update that was recorded is 3.3&nbsp;% for net. "); /* 2 of 60, not 42 of 100 */
    CHECK_HAS(text, "whose rate is α/ε, are left out: at most 40.0&nbsp;% of all for net. ");
    text = rates_caption(HISTOGRAM ",\"idle_eta_first\":0,\"idle_eta\":[],\"idle_effective_first\":0,"
                                   "\"idle_effective\":[]}\n");
    CHECK(strstr(text, "42.0&nbsp;%") && !strstr(text, "never had")); /* there is none, or the rule cannot tell */
    text = rates_caption(HISTOGRAM "}\n");
    CHECK_HAS(text,
              "recorded is 42.0&nbsp;% for net. Elements that never had a gradient, whose rate is α/ε, count as well");
    report_run r;
    const char *run = make_loss_run("rates", "", 1);
    put(run, "histograms.jsonl",
        HISTOGRAM ",\"idle_eta_first\":9,\"idle_eta\":[41],\"idle_effective_first\":9,"
                  "\"idle_effective\":[40]}\n");
    CHECK_INT(report_run_read(&r, run, KNOWN), -1);
    CHECK_HAS(adamod__last_message(), "histograms.jsonl:1: \"idle_eta\" is no part of \"eta\"");
}

TEST(captions_claim_nothing_of_the_paper) {
    const char *run = make_run((made){"caption", "AdaMod", "finished", 1, 100, 4, 0.5, 0.4, 0.9, 90});
    report r;
    report_figures f = {.rows = {1, 100}};
    char *text = NULL;
    size_t n = 0;
    if (!CHECK_INT(report_load(&r, &run, 1, KNOWN), 0)) return;
    FILE *out = open_memstream(&text, &n);
    for (int g = 0; g < REPORT_GROUPS; g++) page_caption(out, &r, &f, (report_group)g);
    fclose(out);
    CHECK(strlen(text) > 500 && !strstr(text, "paper") && !strstr(text, "warm-up"));
    /* a bound of 1 / t, by the numbers of this run */
    CHECK_HAS(text, "In AdaMod it acts on 100.0&nbsp;% of the elements at update 1 and on 1.0&nbsp;% at update 100. ");
    free(text);
    report_free(&r);
}

static bool caption_has(const char *run, report_group group, const char *part) {
    report r;
    const report_figures f = {0};
    char *text = NULL;
    size_t n = 0;
    if (!CHECK_INT(report_load(&r, &run, 1, KNOWN), 0)) return false;
    FILE *out = open_memstream(&text, &n);
    page_caption(out, &r, &f, group);
    fclose(out);
    const bool has = strstr(text, part);
    free(text);
    report_free(&r);
    return has;
}

TEST(a_bound_is_adamods_where_it_is) {
    static const char momental[] = "before it (η) and after it (the smaller of η and its moving average s). ";
    const char *run = make_run((made){"bound", "AdaMod", "finished", 1, 10, 4, 0.5, 0.4, 0.9, 90});
    CHECK(caption_has(run, REPORT_BOUNDS, momental));
    put(run, "recipe.yaml", "name: net\noptimizer:\n  rule: adam\n  bound: momental\n");
    CHECK(caption_has(run, REPORT_BOUNDS, momental));
    put(run, "recipe.yaml", "name: net\noptimizer:\n  rule: adabound\n");
    CHECK(caption_has(run, REPORT_BOUNDS, "learning rates before it and after it. "));
}

TEST(thin_lines_are_what_was_recorded) {
    const char *run = make_loss_run("lines", "", 1);
    CHECK(caption_has(run, REPORT_LOSSES, "The thin lines are every update. "));
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 4; i++) fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"loss\":1}\n", i < 4 ? i : 10);
    fclose(file);
    CHECK(caption_has(run, REPORT_LOSSES, "The thin lines are every recorded update. "));
}

TEST(validation_on_the_test_data_is_called_that) {
    static const char says[] = "<b>Test</b>: the model on the test data during training, since no validation data were "
                               "held out. ";
    const char *run = make_loss_run("twice", "", 1);
    put_data(run, "0a", "0b");
    CHECK(!caption_has(run, REPORT_VALIDATIONS, says));
    put(run, "data.json",
        "{\"parts\":[{\"split\":\"valid\",\"key\":\"data.valid_path\",\"file\":\"/x\",\"fingerprint\":\"0b\"},"
        "{\"split\":\"test\",\"key\":\"data.test_path\",\"file\":\"/x\",\"fingerprint\":\"0b\"}]}\n");
    CHECK(caption_has(run, REPORT_VALIDATIONS, says));
    char *text = plain_page_of(&run, 1, "twice.html");
    CHECK_HAS(text, "<th scope=\"col\">test loss</th>");
    CHECK_HAS(text, "<b>net</b>: test loss&nbsp;1.000, ");
    CHECK(!strstr(text, "validation loss"));
    free(text);
    const char *runs[] = {run, make_loss_run("once", "train:\n  seed: 2\n", 1)};
    put_data(runs[1], "0a", "0c");
    text = plain_page_of(runs, 2, "some.html"); /* of one run of two */
    CHECK_HAS(text, "<th scope=\"col\">validation loss</th>");
    free(text);
}

/* ---- times ---- */

/* Whether the page says this of the load, for two runs whose machines say these. */
static bool says_of_times(const char *first, const char *second, const char *expected) {
    const char *runs[] = {make_loss_run("t1", "train:\n  seed: 1\n", 1), NULL};
    runs[1] = make_loss_run("t2", "train:\n  seed: 2\n", 2);
    put(runs[0], "machine.json", first);
    put(runs[1], "machine.json", second);
    char *text = plain_page_of(runs, 2, "times.html");
    const bool says = strstr(text, expected) != NULL;
    free(text);
    return says;
}

TEST(times_carry_what_ran_beside) {
    CHECK(says_of_times("{\"beside\":0}", "{\"beside\":\"0\"}",
                        "No other run of a comparison ran beside a run; other load"));
    CHECK(says_of_times("{\"beside\":2}", "{\"beside\":\"2\"}",
                        "Up to 2 other runs of a comparison ran beside each run: times"));
    CHECK(says_of_times("{\"beside\":2}", "{\"beside\":\"1\"}", "this load makes their times incomparable."));
    CHECK(says_of_times("{\"host\":\"a\",\"device\":\"cpu\"}", "{\"host\":\"b\",\"device\":\"H200\"}",
                        "The runs differ in machine and device: their times cannot be compared."));
    CHECK(says_of_times("{\"host\":\"a\",\"threads\":\"1\"}", "{\"host\":\"a\",\"threads\":\"2\"}",
                        "The runs differ in number of threads: their times cannot be compared."));
    CHECK(says_of_times("{\"host\":\"a\"}", "{\"host\":\"a\",\"threads\":\"2\"}", "Other load of the machine"));
    CHECK(says_of_times("{\"started\":\"2026-01-01T00:00:00Z\"}", "{\"started\":\"2026-01-01T00:00:30Z\"}",
                        "Some of these runs ran at the same time on one machine"));
    CHECK(says_of_times("{\"started\":\"2026-01-01T00:00:00Z\"}", "{\"started\":\"2026-01-01T00:00:41Z\"}",
                        "Other load of the machine is not recorded: compare times"));
    /* Two runs one after the other may begin in the same second. */
    const char *runs[] = {make_loss_run("t1", "train:\n  seed: 1\n", 1), NULL};
    runs[1] = make_loss_run("t2", "train:\n  seed: 2\n", 2);
    for (int i = 0; i < 2; i++) {
        put(runs[i], "machine.json", "{\"started\":\"2026-01-01T00:00:00Z\"}");
        put(runs[i], "result.json", "{\"status\":\"finished\",\"step\":40,\"seconds\":0.4}\n");
    }
    char *text = plain_page_of(runs, 2, "times-short.html");
    CHECK_HAS(text, "Other load of the machine is not recorded: compare times");
    free(text);
    const char *run = make_loss_run("t1", "", 1);
    text = plain_page_of(&run, 1, "times-one.html");
    CHECK(!strstr(text, "meanwhile"));
    free(text);
}

/* ---- samples ---- */

TEST(models_of_words_are_marked_by_words) {
    const char *run = make_loss_run("words", "data:\n  tokens: words\n", 1);
    put(run, "samples.jsonl",
        "{\"step\":40,\"prompt\":\"ein\",\"reference\":\"the old house is here today\",\"output\":\"the <b>cold house here today now\"}\n"
        "{\"step\":40,\"prompt\":\"zwei\",\"output\":\"no reference\"}\n");
    put(run, "task.json", "{\"samples\":\"lines\",\"answers\":\"Continuations\"}");
    char *text = plain_page_of(&run, 1, "words.html");
    CHECK_HAS(text, "<h2 id=\"samples\">Continuations</h2>\n<p>Lines, as each variant’s first run answers them after "
                    "update 40. <mark>Marked</mark> is what differs from the reference, by words;");
    CHECK_HAS(text, "<th scope=\"row\">prompt</th><td lang=\"\">ein</td>");
    CHECK_HAS(text,
              "<td>the <mark>&lt;b&gt;cold</mark> house <mark class=\"gap\" title=\"missing: is\">‸</mark> here today "
              "<mark>now</mark></td>");
    CHECK_HAS(text, "<th scope=\"row\">net</th><td>no reference</td>");
    free(text);
}

TEST(text_that_goes_on_from_prompts_is_called_that) {
    const char *run = make_loss_run("prompts", "data:\n  tokens: words\n", 1);
    put(run, "samples.jsonl", "{\"step\":40,\"prompt\":\"the\",\"output\":\"cat sat\\non <unk>\"}\n");
    put(run, "task.json", "{\"samples\":\"tokens\",\"answers\":\"Generated text\"}");
    char *text = plain_page_of(&run, 1, "prompts.html");
    CHECK_HAS(text, "<h2 id=\"samples\">Generated text</h2>\n"
                    "<p>How each variant’s first run goes on from some prompts, after update 40.</p>");
    CHECK_HAS(text, "<th scope=\"row\">net</th><td>cat sat\non &lt;unk&gt;</td>");
    free(text);
}

/* ---- the task's words ---- */

/* If items are what is answered, as pictures are, the limit applies to the loss too. */
TEST(losses_of_some_samples_are_called_that) {
    static const char says[] = "during training. Of the first 5 validation images at most. ";
    const char *run = make_loss_run("limit", "train:\n  evaluate_images: 5\n", 1);
    put(run, "task.json",
        "{\"items\":\"images\",\"samples\":\"images\",\"limit\":\"train.evaluate_images\",\"metrics\":[]}");
    char *text = plain_page_of(&run, 1, "limit.html");
    CHECK_HAS(text, "Validation loss: of the first 5 validation images at most. ");
    CHECK(caption_has(run, REPORT_VALIDATIONS, says));
    free(text);
    put(run, "task.json", /* the loss is of all */
        "{\"items\":\"tokens\",\"samples\":\"images\",\"limit\":\"train.evaluate_images\",\"metrics\":[]}");
    text = plain_page_of(&run, 1, "limit.html");
    CHECK(!strstr(text, "of the first 5"));
    CHECK(!caption_has(run, REPORT_VALIDATIONS, says));
    free(text);
}

TEST(the_subtitle_is_the_tasks) {
    const char *run =
        make_loss_run("subtitle", "data:\n  batch_size: 128\nmodel:\n  kind: resnet\n  depth: 20\n  rate: 0.1\n", 1);
    char *text = plain_page_of(&run, 1, "subtitle.html");
    CHECK_HAS(text, "<p class=\"sub\">resnet, depth 20.</p>");
    free(text);
    put(run, "task.json", "{\"about\":\"Pictures\",\"subtitle\":[\"model.kind\",\"data.batch_size\",\"data.none\"]}");
    text = plain_page_of(&run, 1, "subtitle.html");
    CHECK_HAS(text, "<p class=\"sub\">Task: Pictures. resnet, batch size 128.</p>");
    free(text);
}

RUN_TESTS(ENTRY(different_recipes_are_different_variants), ENTRY(the_rule_is_enough_of_a_name),
          ENTRY(names_have_the_fewest_keys_that_tell_runs_apart), ENTRY(variants_never_share_a_name),
          ENTRY(weights_that_runs_begin_with_are_named), ENTRY(what_only_records_is_no_difference),
          ENTRY(data_count_by_content), ENTRY(losses_that_measure_something_else_are_not_ranked),
          ENTRY(what_diverged_is_not_the_best), ENTRY(a_lead_within_the_spread_is_no_win),
          ENTRY(the_terminal_says_what_seeds_can_tell), ENTRY(differences_of_percentages_are_points),
          ENTRY(tables_are_files_too), ENTRY(others_are_those_besides_the_best),
          ENTRY(many_that_failed_are_one_sentence), ENTRY(what_fell_or_rose_has_moved),
          ENTRY(validation_is_never_called_test), ENTRY(lines_of_an_old_test_are_validation_too),
          ENTRY(training_loss_is_what_the_trainer_said), ENTRY(scores_of_the_best_model_are_called_that),
          ENTRY(scores_of_an_averaged_model_are_called_that), ENTRY(a_score_says_which_of_its_name_it_is),
          ENTRY(elements_without_a_gradient_have_no_large_learning_rate), ENTRY(captions_claim_nothing_of_the_paper),
          ENTRY(a_bound_is_adamods_where_it_is), ENTRY(thin_lines_are_what_was_recorded),
          ENTRY(validation_on_the_test_data_is_called_that), ENTRY(times_carry_what_ran_beside),
          ENTRY(models_of_words_are_marked_by_words), ENTRY(text_that_goes_on_from_prompts_is_called_that),
          ENTRY(losses_of_some_samples_are_called_that), ENTRY(the_subtitle_is_the_tasks))
