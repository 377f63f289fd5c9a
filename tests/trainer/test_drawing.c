/* Drawings of several panels: medians and bands over seeds, histograms of learning rates, what is lacking.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "run_folders.h"
#include "study/drawing.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST = 8 };
static report_run runs[MOST];
static const report_run *list[MOST];
static int n_runs;

static void forget(void) {
    while (n_runs) report_run_free(&runs[--n_runs]);
}

static const report_run *const *take(const char *directory) {
    if (!CHECK_INT(report_run_read(&runs[n_runs], directory, KNOWN), 0)) printf("  %s\n", adamod__last_message());
    list[n_runs] = &runs[n_runs];
    return &list[n_runs++];
}

/* Twelve epochs of ten updates. The test accuracy is 40 % and a point more for each epoch, and so for each seed; the
 * training loss is 1 for each seed. */
static const char *make_seed(const char *name, int seed, const char *status) {
    char directory[64];
    snprintf(directory, sizeof directory, "%s-%d", name, seed);
    const char *run = make_curves(directory, name, pictures);
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 120; i++) {
        fprintf(file, "{\"kind\":\"train\",\"step\":%d,\"epoch\":%g,\"loss\":%d,\"nll\":1}\n", i, i / 10.0, seed);
        if (i % 10 == 0)
            fprintf(file, "{\"kind\":\"test\",\"step\":%d,\"epoch\":%d,\"loss\":1,\"accuracy\":%g}\n", i, i / 10,
                    0.4 + 0.01 * (i / 10) + 0.01 * seed);
    }
    fclose(file);
    file = create(run, "result.json");
    fprintf(file, "{\"status\":\"%s\",\"step\":120,\"seconds\":20}", status);
    fclose(file);
    return run;
}

static drawing_line make_line(const char *name, int colour, int n, const char *status) {
    const drawing_line line = {name, colour, &list[n_runs], n};
    for (int i = 0; i < n; i++) take(make_seed(name, i + 1, status));
    return line;
}

/* Draws into a directory of its own, with gnuplot or as if there were none. */
static drawing_result draw(const drawing_panel *panel, int n, bool with_gnuplot) {
    const drawing d = {"figure", "What it shows", panel, n};
    char *path = strdup(getenv("PATH") ? getenv("PATH") : "");
    drawing_result out;
    mkdir(below("drawn"), 0777);
    if (!with_gnuplot) setenv("PATH", below("no-programs"), 1);
    if (!CHECK_INT(drawing_make(&d, below("drawn"), &out), 0)) printf("  %s\n", adamod__last_message());
    setenv("PATH", path, 1);
    free(path);
    return out;
}

TEST(curves_are_medians_with_bands) {
    const drawing_line lines[] = {make_line("adam", 0, 3, "finished"), make_line("sgd", 2, 1, "finished")};
    const drawing_panel panel = {"Net", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, lines, 2};
    drawing_result r = draw(&panel, 1, false);
    check_file(below("drawn/figure-1.dat"),
               "# line 1: update, epoch, then median, least and most of 3\n10 1 43 42 44\n");
    check_file(below("drawn/figure-1.dat"), "\n120 12 54 53 55\nNaN ");
    check_file(below("drawn/figure-1.dat"),
               "# line 2: update, epoch, then median, least and most of 1\n10 1 42 42 42\n");
    check_file(below("drawn/figure.gp"), "set label 4 'test accuracy (%)' at screen ");
    check_file(below("drawn/figure.gp"), "'figure-1.dat' index 0 using ($2/1):4:5 with filledcurves");
    check_file(below("drawn/figure.gp"), "'figure-1.dat' index 1 using ($2/1):3 with linespoints");
    check_file(below("drawn/figure.gp"), "set xtics ('0' 0, '2' 2, '4' 4, '6' 6, '8' 8, '10' 10, '12' 12)\n");
    check_file(below("drawn/figure.gp"), "colour(3) notitle"); /* the line's own colour */
    CHECK(!r.svg && !r.pdf);
    CHECK_HAS(r.why, "gnuplot was not found");
    drawing_free(&r);
    forget();
}

/* Seeds that were evaluated at other updates count by what lies between their points. */
TEST(medians_stand_at_the_union_of_the_points) {
    const drawing_line line = make_line("adam", 0, 2, "finished");
    forget();
    FILE *file = create(below("adam-2"), "metrics.jsonl");
    for (int i = 5; i <= 125; i += 60) /* 42 %, 54 % and 66 % */
        fprintf(file, "{\"kind\":\"test\",\"step\":%d,\"epoch\":%g,\"accuracy\":%g}\n", i, i / 10.0, 0.41 + 0.002 * i);
    fclose(file);
    take(below("adam-1"));
    take(below("adam-2"));
    const drawing_panel panel = {"Net", DRAWING_CURVES, DRAWING_TEST, "accuracy", false, 100, &line, 1};
    drawing_result r = draw(&panel, 1, false);
    check_file(below("drawn/figure-1.dat"), "\n5 0.5 42 42 42\n10 1 42.5 42 43\n");
    check_file(below("drawn/figure-1.dat"), "\n65 6.5 50.75 47.5 54\n"); /* 47.5 is between 47 and 48 */
    char *text = contents(below("drawn/figure-1.dat"));
    CHECK_HAS(text, "\n100 10 56 51 61\nNaN "); /* and none after the end of the axis */
    free(text);
    drawing_free(&r);
    forget();
}

TEST(training_is_smoothed_and_says_so) {
    const drawing_line line = make_line("adam", 0, 3, "finished");
    const drawing_panel panel = {"", DRAWING_CURVES, DRAWING_TRAIN, "loss", false, 0, &line, 1};
    drawing_result r = draw(&panel, 1, false);
    check_file(below("drawn/figure-1.dat"), "\n60 6 2 1 3\n");
    check_file(below("drawn/figure.gp"), "set label 4 'training loss' at screen ");
    check_file(below("drawn/figure.gp"), "set label 6 'means of 2 updates' at screen ");
    drawing_free(&r);
    forget();
}

TEST(perplexity_is_the_exponential_of_the_mean) {
    const drawing_line line = make_line("adam", 0, 1, "finished");
    const drawing_panel panel = {"", DRAWING_CURVES, DRAWING_TRAIN, "perplexity", false, 0, &line, 1};
    drawing_result r = draw(&panel, 1, false);
    check_file(below("drawn/figure-1.dat"), "\n60 6 2.71828 2.71828 2.71828\n");
    drawing_free(&r);
    forget();
}

/* CIFAR's test set is looked at after each epoch, and recorded as validation. */
TEST(validation_data_that_are_test_data_are_test_data) {
    static const char data[] = "{\"parts\":[{\"split\":\"valid\",\"key\":\"data.valid_path\",\"file\":\"\","
                               "\"fingerprint\":\"%s\"},{\"split\":\"test\",\"key\":\"data.test_path\",\"file\":\"\","
                               "\"fingerprint\":\"1\"}]}";
    for (int same = 0; same < 2; same++) {
        const char *run = make_curves("cifar", "net", pictures);
        FILE *file = create(run, "data.json");
        fprintf(file, data, same ? "1" : "2");
        fclose(file);
        put(run, "metrics.jsonl",
            "{\"kind\":\"valid\",\"step\":9,\"accuracy\":0.5}\n{\"kind\":\"test\",\"step\":10,\"accuracy\":0.6}\n");
        const drawing_line line = {"net", 0, take(run), 1};
        const drawing_panel panel = {"", DRAWING_CURVES, DRAWING_TEST, "accuracy", false, 0, &line, 1};
        drawing_result r = draw(&panel, 1, false);
        check_file(below("drawn/figure-1.dat"), same ? "\n9 NaN 50 50 50\nNaN" : "\n10 NaN 60 60 60\nNaN");
        drawing_free(&r);
        forget();
    }
}

TEST(what_lacks_is_named) {
    const drawing_line lines[] = {
        make_line("adam", 0, 1, "finished"), make_line("lost", 1, 2, "diverged"), {"later", 2, NULL, 0}};
    const drawing_panel panels[] = {{"A", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, lines, 3},
                                    {"B", DRAWING_CURVES, DRAWING_VALID, "accuracy", true, 0, lines, 3}};
    drawing_result r = draw(panels, 2, false);
    check_file(below("drawn/figure.gp"), "'lost (diverged)'");
    check_file(below("drawn/figure.gp"), "'later (not run)'");
    check_file(below("drawn/figure.gp"), "'adam (not recorded)'"); /* no validation data */
    check_file(below("drawn/figure.gp"), "set label 5 'no data yet'");
    check_file(below("drawn/figure-1-diverged.dat"), "\n120 12 53\n120 12 54\nNaN ");
    drawing_free(&r);
    r = draw(panels + 1, 1, true);
    CHECK(!r.svg);
    CHECK_STR(r.why, "there are no data of it yet");
    drawing_free(&r);
    forget();
}

/* The number of times that a text is in a file. */
static int count(const char *path, const char *part) {
    char *text = contents(path);
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    free(text);
    return n;
}

TEST(panels_with_the_same_lines_have_one_legend) {
    const drawing_line lines[] = {make_line("adam", 0, 1, "finished"), make_line("sgd", 1, 1, "finished")};
    const drawing_panel same[] = {{"A", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, lines, 2},
                                  {"B", DRAWING_CURVES, DRAWING_TRAIN, "loss", true, 0, lines, 2}};
    const drawing_panel other[] = {same[0], {"B", DRAWING_CURVES, DRAWING_TRAIN, "loss", true, 0, lines, 1}};
    drawing_result r = draw(same, 2, false);
    CHECK_INT(count(below("drawn/figure.gp"), " 'adam' at screen"), 1);
    drawing_free(&r);
    r = draw(other, 2, false);
    CHECK_INT(count(below("drawn/figure.gp"), " 'adam' at screen"), 2);
    drawing_free(&r);
    forget();
}

TEST(panels_of_the_same_score_have_the_same_axis) {
    const drawing_line low = make_line("adam", 0, 1, "finished");
    const drawing_line high = {"sgd", 1, take(make_seed("sgd", 45, "finished")), 1}; /* 86 to 97 % */
    const drawing_panel panels[] = {{"Low", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, &low, 1},
                                    {"High", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, &high, 1},
                                    {"Loss", DRAWING_CURVES, DRAWING_TRAIN, "loss", true, 0, &high, 1}};
    drawing_result r = draw(&panels[1], 1, false);
    CHECK_INT(count(below("drawn/figure.gp"), "set yrange [80:"), 1);
    drawing_free(&r);
    r = draw(panels, 3, false);
    CHECK_INT(count(below("drawn/figure.gp"), "set yrange [0:"), 2); /* not that of the loss */
    drawing_free(&r);
    forget();
}

TEST(rates_have_rows_up_to_their_end) {
    const report_run *const *adam = take(make_run((made){"rates", "AdaMod", "finished", 1, 100, 4, 1, 1, 0.5, 20}));
    const drawing_line lines[] = {{"AdaMod", 2, adam, 1}, {"Adam", 1, NULL, 0}};
    const drawing_panel panel = {"", DRAWING_RATES, DRAWING_TRAIN, "loss", false, 50, lines, 2};
    drawing_result r = draw(&panel, 1, false);
    const int rows = count(below("drawn/figure-1-1.dat"), "# update ");
    CHECK(rows >= 8 && rows <= 12);
    check_file(below("drawn/figure-1-1.dat"), "# update 1\n");
    check_file(below("drawn/figure-1-1.dat"), "# update 50\n");
    check_file(below("drawn/figure.gp"), "set label 3 'Adam (not run)'");
    drawing_free(&r);
    forget();
}

TEST(gnuplot_draws_svg_and_pdf) {
    if (!have_gnuplot()) SKIP("no gnuplot");
    const drawing_line lines[] = {
        make_line("it's <new>", 0, 3, "finished"), make_line("sgd", 9, 1, "diverged"), {"later", 2, NULL, 0}};
    const report_run *const *rates = take(make_run((made){"rates", "AdaMod", "finished", 1, 100, 4, 1, 1, 0.5, 20}));
    const drawing_line bounded[] = {{"AdaMod", 2, rates, 1}, {"Adam", 1, NULL, 0}};
    const drawing_panel panels[] = {{"A", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, lines, 3},
                                    {"", DRAWING_RATES, DRAWING_TRAIN, "loss", false, 0, bounded, 2},
                                    {"B", DRAWING_CURVES, DRAWING_TRAIN, "loss", false, 0, lines, 2},
                                    {"C", DRAWING_CURVES, DRAWING_VALID, "accuracy", false, 0, lines, 2}};
    drawing_result r = draw(panels, 4, true);
    CHECK_STR(r.why, "");
    if (!CHECK(r.svg != NULL)) return;
    CHECK_HAS(r.svg, "aria-label=\"What it shows. A, test accuracy (%) against epoch: it's &lt;new> ends at 54,");
    CHECK_HAS(r.svg, "C, no data yet.");
    CHECK_HAS(r.svg, "<text>it's &lt;new></text>");
    CHECK_HAS(r.svg, "later (not run)");
    CHECK_HAS(r.svg, "stroke=\"var(--v0)\"");
    CHECK_HAS(r.svg, "var(--v2-tint)");
    CHECK(strstr(r.svg, "no data yet</tspan>") != NULL);
    CHECK(size_of(below("drawn/figure.svg")) > 1000);
    CHECK_INT(r.pdf, size_of(below("drawn/figure.pdf")) > 1000);
    drawing_free(&r);
    forget();
}

TEST(a_directory_that_is_not_there_is_named) {
    const drawing_line line = make_line("adam", 0, 1, "finished");
    const drawing_panel panel = {"", DRAWING_CURVES, DRAWING_TEST, "accuracy", true, 0, &line, 1};
    const drawing d = {"figure", "", &panel, 1};
    drawing_result r;
    CHECK(drawing_make(&d, below("nowhere"), &r) != 0);
    CHECK_HAS(adamod__last_message(), "nowhere/style.gp");
    forget();
}

RUN_TESTS(ENTRY(curves_are_medians_with_bands), ENTRY(medians_stand_at_the_union_of_the_points),
          ENTRY(training_is_smoothed_and_says_so), ENTRY(perplexity_is_the_exponential_of_the_mean),
          ENTRY(validation_data_that_are_test_data_are_test_data), ENTRY(what_lacks_is_named),
          ENTRY(panels_with_the_same_lines_have_one_legend), ENTRY(panels_of_the_same_score_have_the_same_axis),
          ENTRY(rates_have_rows_up_to_their_end), ENTRY(gnuplot_draws_svg_and_pdf),
          ENTRY(a_directory_that_is_not_there_is_named))
