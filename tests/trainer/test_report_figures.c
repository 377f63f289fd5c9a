/* Figures of reports: which curves there are over which axes, what marks runs that diverged, and that the page's drawings
 * have their keys as text.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "run_folders.h"
#include "support/text.h"
#include "report/page.h"

#include <math.h>
#include <stdlib.h>

static const char words[] =
    "{\"task\":\"words\",\"metrics\":[{\"name\":\"loss\",\"headline\":true},{\"name\":\"ppl\"}]}";

static const char language[] = "{\"task\":\"language\",\"metrics\":[{\"name\":\"loss\"},{\"name\":\"perplexity\"}]}";

static bool has_script(const char *page, const char *name) {
    return size_of(below("%s-figures/%s.gp", page, name)) > 100;
}

TEST(curves_are_drawn_against_updates_epochs_and_time) {
    static const char *const names[] = {"loss-updates",
                                        "loss-epochs",
                                        "loss-time",
                                        "train-accuracy-1-updates",
                                        "train-accuracy-1-epochs",
                                        "valid-loss",
                                        "valid-loss-epochs",
                                        "valid-loss-time",
                                        "valid-accuracy",
                                        "valid-accuracy-epochs",
                                        "valid-accuracy-time",
                                        "test-loss",
                                        "test-loss-epochs",
                                        "test-accuracy",
                                        "test-accuracy-time",
                                        "lr-updates",
                                        "grad-norm-updates"};
    const char *run = make_curves("curves", "net", pictures);
    free(plain_page_of(&run, 1, "curves.html"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!CHECK(has_script("curves", names[i]))) printf("  %s\n", names[i]);
    }
    check_file(below("curves-figures/loss.dat"), "\n10 0.5 5 3 3 3\n");
    check_file(below("curves-figures/test.dat"), ": loss, accuracy %, perplexity\n20 1 10 5 5 5 50 50 50 ");
    check_file(below("curves-figures/loss-epochs.gp"), "set xlabel 'epoch'\n");
    check_file(below("curves-figures/loss-epochs.gp"), "using ($2/1):4 with lines");
    check_file(below("curves-figures/valid-accuracy-time.gp"), "using ($3/1):7 with linespoints");
    check_file(below("curves-figures/valid-accuracy-time.gp"), "set label 1 'validation accuracy (%)' at screen");
    check_file(below("curves-figures/lr-updates.gp"), "set logscale y\n"); /* from 1e-3 to 1 */
    check_file(below("curves-figures/grad-norm.dat"), "\n40 2 20 5 5 5\n");
}

/* A figure's caption, without gnuplot. */
static char *caption_of(const char *const *runs, int n_runs, const char *page, report_group group) {
    report r;
    report_figures f;
    char *text = NULL, *path = strdup(getenv("PATH") ? getenv("PATH") : ""), at[300];
    size_t n = 0;
    snprintf(at, sizeof at, "%s", below("%s", page));
    setenv("PATH", below("no-programs"), 1);
    const int kept = divert(2, below("notes.txt"));
    FILE *out = open_memstream(&text, &n);
    if (CHECK_INT(report_load(&r, runs, n_runs, KNOWN), 0)) {
        if (CHECK_INT(report_draw(&f, &r, at), 0)) page_caption(out, &r, &f, group);
        report_figures_free(&f);
        report_free(&r);
    }
    fclose(out);
    restore(2, kept);
    setenv("PATH", path, 1);
    free(path);
    return text;
}

/* A figure shows the range where a line that is soon above a half ends up, and says what lies below it. */
TEST(lines_that_begin_below_their_figure_are_told_of) {
    for (int below_it = 0; below_it < 2; below_it++) {
        const char *run = make_curves("rise", "net", pictures);
        FILE *file = create(run, "metrics.jsonl");
        for (int i = 1; i <= 8; i++)
            fprintf(file, "{\"kind\":\"valid\",\"step\":%d,\"loss\":1,\"accuracy\":%s}\n", 5 * i,
                    i > 1 || !below_it ? "0.9" : "0.4");
        fprintf(file, "{\"kind\":\"train\",\"step\":40,\"loss\":1}\n");
        fclose(file);
        char *text = caption_of(&run, 1, "rise.html", REPORT_VALIDATIONS);
        CHECK_INT(strstr(text, "A line that enters from below begins there. ") != NULL, below_it);
        free(text);
        check_file(below("rise-figures/valid-accuracy.gp"), "set yrange [80:101]\n");
    }
}

/* The titles of two variants' lines in a narrow drawing. */
static void check_titles(const char *first, const char *second, const char *const *expected) {
    const char *runs[] = {make_curves("title-1", first, pictures), make_curves("title-2", second, pictures)};
    free(caption_of(runs, 2, "titles.html", REPORT_VALIDATIONS));
    check_file(below("titles-figures/valid-accuracy.gp"), expected[0]);
    check_file(below("titles-figures/valid-accuracy.gp"), expected[1]);
}

TEST(names_in_keys_are_cut_between_words) {
    check_titles("Adam, optimizer.schedule.lr=warmup(1e-7,300)", "AdaMod",
                 (const char *[]){" title 'Adam, warmup(1e-7,300)'", " title 'AdaMod'"});
    check_titles("Adam with a long warm-up of thousands of updates", "AdaMod without any",
                 (const char *[]){" title 'Adam with a long warm-up of…'", " title 'AdaMod without any'"});
    check_titles("Adam with a long warm-up of thousands of updates", "Adam with a long warm-up of hundreds of updates",
                 (const char *[]){" title '…of thousands of updates'", " title '…of hundreds of updates'"});
}

TEST(evaluations_on_the_test_data_are_labelled_so) {
    const char *run = make_curves("on-test", "net", pictures);
    put(run, "data.json",
        "{\"parts\":[{\"split\":\"valid\",\"key\":\"data.path\",\"file\":\"/x\",\"fingerprint\":\"0b\"},"
        "{\"split\":\"test\",\"key\":\"data.path\",\"file\":\"/x\",\"fingerprint\":\"0b\"}]}\n");
    free(caption_of(&run, 1, "on-test.html", REPORT_VALIDATIONS));
    check_file(below("on-test-figures/valid-accuracy.gp"), "set label 1 'test accuracy (%)' at screen");
}

TEST(percents_end_at_the_ten_above_the_highest) {
    const char *run = make_curves("tens", "net", pictures);
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 8; i++)
        fprintf(file, "{\"kind\":\"valid\",\"step\":%d,\"loss\":1,\"accuracy\":%g}\n", 5 * i, 0.62 + 0.01 * i);
    fprintf(file, "{\"kind\":\"train\",\"step\":40,\"loss\":1}\n");
    fclose(file);
    free(caption_of(&run, 1, "tens.html", REPORT_VALIDATIONS));
    check_file(below("tens-figures/valid-accuracy.gp"), "set yrange [60:81]\n");
}

TEST(perplexity_is_drawn_where_the_task_has_one) {
    const char *run = make_curves("pictures", "net", pictures);
    free(plain_page_of(&run, 1, "pictures.html"));
    CHECK(!has_script("pictures", "perplexity-updates") && !has_script("pictures", "valid-ppl"));
    CHECK_INT(size_of(below("pictures-figures/perplexity.dat")), -1);
    run = make_curves("words", "net", words);
    free(plain_page_of(&run, 1, "words.html"));
    CHECK(has_script("words", "perplexity-updates") && has_script("words", "valid-ppl"));
    check_file(below("words-figures/perplexity.dat"), "\n10 0.5 5 7.38906 7.38906 7.38906\n"); /* exp of 2, not of 3 */
    check_file(below("words-figures/valid.dat"), "\n20 1 10 4 4 4 2.71828 2.71828 2.71828\n");
    run = make_curves("text", "net", language); /* another task's name for it */
    free(plain_page_of(&run, 1, "text.html"));
    CHECK(has_script("text", "perplexity-updates") && has_script("text", "perplexity-epochs"));
    check_file(below("text-figures/perplexity.dat"), "\n10 0.5 5 7.38906 7.38906 7.38906\n");
}

TEST(a_run_that_diverged_at_once_has_a_mark) {
    const char *runs[] = {make_curves("good", "good", pictures), below("lost"), below("later")};
    put(runs[1], "recipe.yaml", "name: lost\n");
    put(runs[1], "result.json", "{\"status\":\"diverged\",\"step\":1,\"seconds\":0.5}");
    put(runs[2], "recipe.yaml", "name: later\n");
    put(runs[2], "metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"time\":1,\"epoch\":0.05,\"loss\":3}\n"
        "{\"kind\":\"train\",\"step\":2,\"time\":2,\"epoch\":0.1,\"loss\":3.001}\n");
    put(runs[2], "result.json", "{\"status\":\"diverged\",\"step\":3,\"seconds\":3}");
    free(plain_page_of(runs, 3, "lost.html"));
    /* at the top of the figure; then where its line ends */
    check_file(below("lost-figures/diverged.dat"), "training loss\nNaN NaN NaN NaN NaN NaN\n\n\n1 0 0.5 3.004\nNaN ");
    check_file(below("lost-figures/diverged.dat"), "\n\n3 0.1 3 3.001\n");
    check_file(below("lost-figures/loss-updates.gp"), "'diverged.dat' index 1 using ($1/1):4:('×') with labels ");
    if (!have_gnuplot()) return;
    char *text = page_of(runs, 3, "lost-drawn.html");
    CHECK_HAS(text, "A × stands where a run diverged");
    CHECK_HAS(text, "good: from 3 to 3. lost: diverged. later: from 3 to 3, diverged.\" data-axis=");
    CHECK_HAS(text, "</svg>lost (diverged)</li>");
    const char *mark = strstr(text, "<g data-v=\"1\"");
    CHECK(mark && strstr(mark, ">×<"));
    free(text);
}

TEST(learning_rates_of_two_updates_are_drawn) {
    const char *run = make_curves("two", "two", pictures);
    FILE *file = create(run, "histograms.jsonl");
    for (int i = 1; i <= 2; i++)
        fprintf(file,
                "{\"step\":%d,\"bounded\":0,\"eta_median\":1,\"step_median\":1,\"low\":-12,\"high\":8,\"bins\":200,"
                "\"eta_first\":112,\"eta\":[4,2,3],\"effective_first\":112,\"effective\":[4,2,3]}\n",
                i);
    fclose(file);
    free(plain_page_of(&run, 1, "two.html"));
    check_file(below("two-figures/rates-axes.gp"), "\nset ytics ('2' 0)\n");
}

/* How many labels the vertical axis of a script has. */
static int labels_of(const char *script) {
    char *text = contents(script), *at = strstr(text, "set ytics ("), *line_end = at ? strchr(at, '\n') : NULL;
    int quotes = 0;
    for (; at && at < line_end; at++) quotes += *at == '\'';
    free(text);
    return quotes / 2;
}

TEST(axes_have_several_labels) {
    static const double ranges[][2] = {{3, 3},   {0.09, 2}, {1.1, 23}, {2.1, 43},    {5.1, 103},  {1, 20.1},
                                       {9, 900}, {1, 1e3},  {1e-9, 1}, {1e-7, 1e-5}, {2e-8, 6e9}, {-3, 5}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const char *run = make_curves("labels", "net", pictures);
        FILE *file = create(run, "metrics.jsonl");
        for (int k = 0; k < 2; k++)
            fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"loss\":1,\"lr\":%g}\n", k + 1, ranges[i][k]);
        fclose(file);
        free(plain_page_of(&run, 1, "labels.html"));
        const int n = labels_of(below("labels-figures/lr-updates.gp"));
        if (!CHECK(n >= 3 && n <= 10)) printf("  %g to %g: %d labels\n", ranges[i][0], ranges[i][1], n);
    }
}

/* A line of a script that begins so, to be freed. */
static char *line_of(const char *script, const char *begins) {
    char *text = contents(script), *at = strstr(text, begins), *line = at ? strndup(at, strcspn(at, "\n")) : strdup("");
    free(text);
    return line;
}

TEST(training_and_validation_have_the_same_scale) {
    const char *run = make_curves("scale", "net", words);
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 40; i++) {
        fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"loss\":%g,\"nll\":%g}\n", i, 40.0 / i, 4 - i / 10.0);
        if (i % 10 == 0) fprintf(file, "{\"kind\":\"valid\",\"step\":%d,\"loss\":2,\"nll\":%g}\n", i, 1 - i / 80.0);
    }
    fclose(file);
    free(plain_page_of(&run, 1, "scale.html"));
    char *a = line_of(below("scale-figures/perplexity-updates.gp"), "set yrange");
    char *b = line_of(below("scale-figures/valid-ppl.gp"), "set yrange");
    CHECK(*a);
    CHECK_STR(a, b);
    free(a);
    free(b);
    static const char *const logarithmic[] = {"perplexity-updates", "valid-ppl", "loss-updates", "valid-loss"};
    for (int i = 0; i < 4; i++) {
        check_file(below("scale-figures/%s.gp", logarithmic[i]), "set logscale y\n");
        CHECK(labels_of(below("scale-figures/%s.gp", logarithmic[i])) >= 3); /* also of a small part of it */
    }
    run = make_curves("parts", "net", pictures); /* and percents are parts of a hundred on both */
    file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 40; i++) {
        fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"loss\":1,\"accuracy\":%g}\n", i, i / 60.0);
        if (i % 10 == 0) fprintf(file, "{\"kind\":\"valid\",\"step\":%d,\"loss\":2,\"accuracy\":0.3}\n", i);
    }
    fclose(file);
    free(plain_page_of(&run, 1, "parts.html"));
    check_file(below("parts-figures/train-accuracy-1-updates.gp"), "set yrange [0:102]\n");
    check_file(below("parts-figures/valid-accuracy.gp"), "set yrange [0:102]\n");
}

/* ---- many variants ---- */

enum { MANY = 28 };

static void make_many(const char *runs[MANY]) {
    static char paths[MANY][300];
    for (int i = 0; i < MANY; i++) {
        char directory[16], name[32];
        snprintf(directory, sizeof directory, "many%d", i);
        snprintf(name, sizeof name, "rule number %d", i + 1);
        snprintf(paths[i], sizeof paths[i], "%s", make_curves(directory, name, pictures));
        runs[i] = paths[i];
        FILE *file = create(runs[i], "metrics.jsonl");
        for (int k = 1; k <= 20; k++) /* most end near each other */
            fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"time\":%d,\"loss\":%g}\n", k, k,
                    3 - k * (i < 20 ? 0.001 * i : 0.005 * i));
        fclose(file);
    }
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Names stand at the ends of lines, in their order, a line of text from each other. */
TEST(names_of_many_lines_do_not_overlap) {
    const char *runs[MANY];
    make_many(runs);
    free(plain_page_of(runs, MANY, "many.html"));
    char *text = contents(below("many-figures/loss-updates-names.dat"));
    char *range = line_of(below("many-figures/loss-updates.gp"), "set yrange");
    double x, y, dx, dy, at_x, at[MANY], line[MANY], low = 0, high = 0;
    int n = 0;
    CHECK_INT(sscanf(range, "set yrange [%lf:%lf]", &low, &high), 2);
    for (char *row = strchr(text, '\n'); row && n < MANY; row = strstr(row + 1, "\n\n\n")) {
        while (*row == '\n') row++;
        if (!CHECK_INT(sscanf(row, "%lf %lf %lf %lf %lf %lf", &x, &y, &dx, &dy, &at_x, &at[n]), 6)) break;
        CHECK_CLOSE(x, 20, 0);
        CHECK_CLOSE(y + dy, at[n], 1e-4); /* a lead goes from the line to the name */
        line[n++] = y;
    }
    CHECK_INT(n, MANY);
    for (int i = 1; i < 20; i++) CHECK(line[i] < line[i - 1] && at[i] < at[i - 1]);
    qsort(at, (size_t)n, sizeof *at, ascending);
    const double text_line = 13 * (high - low) / (13 * MANY);
    for (int i = 1; i < n; i++) CHECK(at[i] - at[i - 1] > 0.99 * text_line);
    CHECK(at[0] > low - 1e-6 && at[n - 1] < high);
    free(text);
    free(range);
}

TEST(many_lines_look_different) {
    const char *runs[MANY];
    if (!have_gnuplot()) SKIP("no gnuplot");
    make_many(runs);
    char *text = page_of(runs, MANY, "looks.html"), look[MANY][200];
    const char *at = strstr(text, "<ul class=\"key\">");
    for (int i = 0; CHECK(at != NULL) && i < MANY; i++) {
        at = strstr(at, "<path d=\"M1,5 H29\"");
        if (!CHECK(at != NULL)) break;
        snprintf(look[i], sizeof look[i], "%.*s", (int)strcspn(at, ">"), at);
        for (int k = 0; k < i; k++) CHECK(strcmp(look[i], look[k]) != 0);
        at++;
    }
    const char *svg = strstr(text, "<svg viewBox");
    for (int i = 0; svg && i < MANY; i++) { /* each has a line, what leads to its name, and the name */
        char name[40];
        snprintf(name, sizeof name, ">rule number %d<", i + 1);
        CHECK_HAS(svg, name);
    }
    CHECK_HAS(text, ";min-width:600px\" role=\"img\"");
    CHECK(!strstr(text, "thin line")); /* with this many there are none */
    free(text);
    check_file(below("looks-figures/style.gp"), "dash(i) = (i - 1) / 8 % 4 + 1\n");
}

/* The caption's words on scales, for two runs whose elements have these counts. */
TEST(panels_with_scales_of_their_own_are_told_of) {
    static const char *const counts[] = {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[20]"};
    for (int own = 0; own < 2; own++) {
        const char *runs[2] = {make_curves("a", "a", pictures), make_curves("b", "b", pictures)};
        for (int i = 0; i < 2; i++) {
            const char *x = counts[i && own];
            FILE *file = create(runs[i], "histograms.jsonl");
            fprintf(file,
                    "{\"step\":1,\"bounded\":0,\"eta_median\":1,\"step_median\":1,\"low\":-12,\"high\":8,\"bins\":200,"
                    "\"eta_first\":112,\"eta\":%s,\"effective_first\":112,\"effective\":%s}\n",
                    x, x);
            fclose(file);
        }
        char *text = caption_of(runs, 2, "scales.html", REPORT_RATES);
        CHECK_HAS(text, own ? "the bar gives its scale, which is not the same in all panels. "
                            : "the bar gives its scale, and all panels have the same axes. ");
        free(text);
    }
}

/* gnuplot can only guess how wide a name is. */
TEST(keys_are_text_of_the_page) {
    if (!have_gnuplot()) SKIP("no gnuplot");
    const char *runs[] = {make_curves("k1", "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW", pictures), NULL};
    runs[1] = make_curves("k2", "short", pictures);
    char *text = page_of(runs, 2, "keys.html"), *svg = strstr(text, "<svg viewBox=\"0 0 520");
    CHECK_HAS(text, "<ul class=\"key\"><li data-v=\"0\"><svg width=\"30\" ");
    CHECK_HAS(text, "</svg>WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW</li><li data-v=\"1\">");
    if (CHECK(svg != NULL)) {
        *strstr(svg, "</svg>") = '\0';
        CHECK(!strstr(strstr(svg, "data-axis"), "WWWW")); /* but the label has it */
        CHECK_HAS(svg,
                  "data-axis=\"updates\" data-label=\"update\" data-box=\"92 12 498 248\" data-x=\"40\" data-y=\"");
        CHECK_HAS(svg, "<g data-v=\"0\" class=\"line\"");
        CHECK_HAS(svg, "<g data-v=\"1\" class=\"line\"");
    }
    free(text);
    text = contents(below("keys-figures/valid-loss.svg")); /* for print, with a key, in which the name has room */
    CHECK_HAS(text, "WWWWWWWWWWWWWWW");
    CHECK(!strstr(text, "WWWWWWWWWWWWWWWWWWWWWWWWW"));
    free(text);
    CHECK_INT(size_of(below("keys-figures/loss-updates.page.svg")), -1);
}

/* Names with any characters, and where a label is cut. */
TEST(labels_stay_text) {
    if (!have_gnuplot()) SKIP("no gnuplot");
    char name[300] = "\"\\u0007<\\\"& ";
    const char *runs[4];
    for (int i = 0; i < 45; i++) strcat(name, "ü€");
    strcat(name, "\"");
    for (int i = 0; i < 4; i++) {
        char recipe[400], directory[8];
        snprintf(directory, sizeof directory, "u%d", i);
        runs[i] = make_curves(directory, "x", "{}");
        snprintf(recipe, sizeof recipe, "name: %s\nmodel:\n  d: %d\n", name, i);
        put(runs[i], "recipe.yaml", recipe);
    }
    char *text = page_of(runs, 4, "labels.html"), *label = strstr(text, "aria-label=\"Training loss");
    CHECK_INT(text_check(text_of(text), "labels.html", 0), 0);
    if (CHECK(label != NULL)) {
        *strstr(label + 12, "\" data-axis") = '\0';
        CHECK_HAS(label, "against update. ?&lt;&quot;&amp; ü€");
        CHECK(strlen(label) > 700 && !strchr(label, '\a'));
    }
    free(text);
}

RUN_TESTS(ENTRY(curves_are_drawn_against_updates_epochs_and_time),
          ENTRY(lines_that_begin_below_their_figure_are_told_of), ENTRY(perplexity_is_drawn_where_the_task_has_one),
          ENTRY(percents_end_at_the_ten_above_the_highest), ENTRY(names_in_keys_are_cut_between_words),
          ENTRY(evaluations_on_the_test_data_are_labelled_so), ENTRY(a_run_that_diverged_at_once_has_a_mark),
          ENTRY(learning_rates_of_two_updates_are_drawn), ENTRY(axes_have_several_labels),
          ENTRY(training_and_validation_have_the_same_scale), ENTRY(names_of_many_lines_do_not_overlap),
          ENTRY(many_lines_look_different), ENTRY(panels_with_scales_of_their_own_are_told_of),
          ENTRY(keys_are_text_of_the_page), ENTRY(labels_stay_text))
