/* Reports of classifiers: that classes.json is read whatever the order of its keys, refused where it does not fit
 * together, and that the page has accuracies, confusion and pictures as one gets them by hand.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "run_folders.h"
#include "support/base64.h"
#include "report/reader.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Two classes, pictures of 2 by 3 grey pixels. */
static const char clothes[] =
    "{\"step\":900,\"split\":\"test\",\"classes\":[\"coat\",\"boot <b>\"],\"confusion\":[[90,10],[4,36]],\"later\":{},\n"
    "\"picture\":{\"height\":2,\"width\":3,\"channels\":1},\n"
    "\"mistakes\":[{\"label\":0,\"prediction\":1,\"probability\":0.75,\"pixels\":\"AAECAwQF\"},\n"
    " {\"label\":1,\"prediction\":0,\"probability\":0.998,\"pixels\":\"/wD/AP8A\"},{\"label\":1,\"prediction\":0}]}\n";

static const char *make_classifier(const char *directory, int seed, const char *classes) {
    const char *run = below("%s", directory);
    char recipe[100];
    snprintf(recipe, sizeof recipe, "name: net\ntrain:\n  seed: %d\n", seed);
    put(run, "recipe.yaml", recipe);
    put(run, "metrics.jsonl", "{\"kind\":\"train\",\"step\":1,\"loss\":2}\n");
    put(run, "classes.json", classes);
    return run;
}

TEST(base64_goes_there_and_back) {
    static const char *const pairs[][2] = {{"", ""},        {"f", "Zg=="},        {"fo", "Zm8="},
                                           {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}};
    static const char *const bad[] = {"Zm9", "Zm9vZg==", "Zm9*", "Zm=v", "Zg==", "Zm9vZm9v", "Zm8="};
    char text[16], bytes[16];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const size_t n = strlen(pairs[i][0]);
        base64_encode(pairs[i][0], n, text);
        CHECK_STR(text, pairs[i][1]);
        CHECK_INT(base64_length(n), strlen(text));
        CHECK(base64_decode(text, bytes, n) && memcmp(bytes, pairs[i][0], n) == 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!base64_decode(bad[i], bytes, 3));
}

TEST(classes_are_read) {
    report_run r;
    if (!CHECK_INT(report_run_read(&r, make_classifier("read", 1, clothes), KNOWN), 0)) return;
    const report_classes *c = &r.classes;
    CHECK_INT(c->step, 900);
    CHECK_STR(c->split, "test");
    if (CHECK_INT(c->n, 2)) {
        CHECK_STR(c->name[1], "boot <b>");
        CHECK(c->count[0] == 90 && c->count[1] == 10 && c->count[2] == 4 && c->count[3] == 36);
    }
    if (CHECK_INT(c->n_mistakes, 3)) { /* the surest first */
        CHECK_CLOSE(c->mistake[0].probability, 0.998, 0);
        CHECK(c->mistake[0].pixels && c->mistake[0].pixels[0] == 255 && c->mistake[0].pixels[5] == 0);
        CHECK(c->mistake[1].pixels && c->mistake[1].pixels[5] == 5);
        CHECK(isnan(c->mistake[2].probability) && !c->mistake[2].pixels);
    }
    report_run_free(&r);
}

TEST(classes_that_do_not_fit_together_are_refused) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1]],\"classes\":[\"a\"]}", "(none)"},
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1]],\"classes\":[\"a\",\"b\"]}",
         "\"confusion\" has not a row"},
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1,2],[1]],\"classes\":[\"a\",\"b\"]}",
         "\"confusion\" has not"},
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1,2]],\"classes\":[\"a\",\"b\"]}",
         "\"confusion\" has not a row"},
        {"{\"step\":1,\"split\":\"test\",\"classes\":[\"a\"]}", "\"confusion\" has not a row"},
        {"{\"step\":1,\"split\":\"test\"}", "there are no \"classes\""},
        {"{\"step\":1,\"classes\":[\"a\"],\"confusion\":[[1]]}", "there is no \"split\""},
        {"{\"split\":\"test\",\"classes\":[\"a\"],\"confusion\":[[1]]}", "\"step\" is not"},
        {"{\"confusion\":[[-1]]}", "classes.json:1: expected a whole number from 0 on at byte"},
        {"{\"confusion\":[[null]]}", "classes.json:1: expected a whole number from 0 on at byte"},
        {"{\"picture\":{\"height\":257,\"width\":1,\"channels\":1}}", "expected a picture with height and width"},
        {"{\"picture\":{\"height\":2,\"width\":1,\"channels\":2}}", "expected a picture with 1 or 3 channels"},
        {"{\"mistakes\":[{\"label\":0}]}", "expected a mistake with the numbers of classes"},
        {"{\"mistakes\":[{\"label\":0,\"prediction\":0.5}]}", "expected a mistake with the numbers of classes"},
        {"{\"mistakes\":[{\"label\":0,\"prediction\":0,\"probability\":2}]}", "expected a probability from 0 to 1"},
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1]],\"classes\":[\"a\"],\"mistakes\":[{\"label\":1,"
         "\"prediction\":0}]}",
         "the number of a class that there is not"},
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1]],\"classes\":[\"a\"],\"mistakes\":[{\"label\":0,"
         "\"prediction\":0,\"pixels\":\"AAAA\"}]}",
         "there are pixels, but no \"picture\""},
        {"{\"step\":1,\"split\":\"test\",\"confusion\":[[1]],\"classes\":[\"a\"],\"picture\":{\"height\":1,\"width\":1,"
         "\"channels\":1},\"mistakes\":[{\"label\":0,\"prediction\":0,\"pixels\":\"AAAA\"}]}",
         "\"pixels\" are not base64"},
        {"[]", "classes.json:1: expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        report_run r;
        const int status = report_run_read(&r, make_classifier("misfit", 1, cases[i].text), KNOWN);
        if (status == 0) report_run_free(&r);
        if (!CHECK_HAS(status ? adamod__last_message() : "(none)", cases[i].expected)) printf("  %s\n", cases[i].text);
    }
}

TEST(the_page_has_accuracies_confusion_and_mistakes) {
    const char *runs[] = {make_classifier("c1", 1, clothes), NULL};
    runs[1] = make_classifier("c2", 2,
                              "{\"step\":900,\"split\":\"test\",\"classes\":[\"coat\",\"boot <b>\"],"
                              "\"confusion\":[[100,0],[4,36]]}");
    char *text = plain_page_of(runs, 2, "classes.html");
    CHECK_HAS(text, "img-src data:");
    CHECK_HAS(text, "<p>Test data, after update 900.</p>");
    /* of both seeds: 190 of 200, 72 of 80 */
    CHECK_HAS(text,
              "<th scope=\"row\">coat</th><td><span class=\"bar\" style=\"width:95.0px;background:var(--v0-tint)\">"
              "</span>95.0&nbsp;%</td>");
    CHECK_HAS(text, "</span>90.0&nbsp;%</td>");
    CHECK_HAS(text, "net, sum of 2 runs</p>");
    CHECK_HAS(text,
              "<td class=\"miss\" style=\"--share:0.224\" title=\"coat taken for boot &lt;b&gt;: 5.0&nbsp;%\">10</td>");
    CHECK_HAS(text, "title=\"coat recognized: 95.0&nbsp;%\">190</td>");
    CHECK_HAS(text,
              "Most frequent mistakes: coat taken for boot &lt;b&gt; (10, 5.0&nbsp;%); boot &lt;b&gt; taken for coat "
              "(8, 10.0&nbsp;%).</p>");
    CHECK_HAS(text, "<img alt=\"boot &lt;b&gt;\" width=\"3\" height=\"2\" src=\"data:image/png;base64,iVBORw0KGgo");
    CHECK_HAS(text, "<b>coat</b> 99.8&nbsp;%<br>is boot &lt;b&gt;</figcaption>");
    CHECK(!strstr(text, "boot <b>"));
    free(text);
    text = contents(below("classes-tables/classes.csv"));
    CHECK_STR(text, "variant,class,runs,samples,right\r\nnet,coat,2,200,190\r\nnet,boot <b>,2,80,72\r\n");
    free(text);
    text = contents(below("classes-tables/confusion-1.csv"));
    CHECK_STR(text, "variant,class,answer,count\r\nnet,coat,coat,190\r\nnet,coat,boot <b>,10\r\nnet,boot <b>,coat,8\r\n"
                    "net,boot <b>,boot <b>,72\r\n");
    free(text);
    text = contents(below("classes-tables/confusion-1.md"));
    CHECK_HAS(text, "| true class | coat | boot \\<b> |\n|---|---:|---:|\n| coat | 190 | 10 |\n");
    free(text);
}

/* For runs that ended elsewhere, or with other classes or data, the page does not say what holds for the first alone. */
TEST(what_is_said_of_classes_is_so_of_all_runs) {
    const char *runs[] = {make_classifier("s1", 1, clothes), NULL, NULL};
    runs[1] = make_classifier("s2", 2,
                              "{\"step\":800,\"split\":\"test\",\"classes\":[\"coat\",\"boot <b>\"],"
                              "\"confusion\":[[100,0],[4,36]]}");
    char *text = plain_page_of(runs, 2, "steps.html");
    CHECK_HAS(text, "<p>Test data, after the last update of each run.</p>");
    CHECK_HAS(text, "in the first run of each variant that has some.</p>");
    free(text);
    runs[1] = make_classifier("s2", 2,
                              "{\"step\":800,\"split\":\"valid\",\"classes\":[\"coat\",\"boot <b>\"],"
                              "\"confusion\":[[99,1],[4,36]],\"mistakes\":[{\"label\":0,\"prediction\":1}]}");
    put(runs[1], "recipe.yaml", "name: other\n");
    runs[2] = make_classifier("s3", 3, "{\"step\":7,\"split\":\"test\",\"classes\":[\"a\"],\"confusion\":[[1]]}");
    put(runs[2], "recipe.yaml", "name: third\n");
    text = plain_page_of(runs, 3, "others.html");
    CHECK_HAS(text,
              "<p>Test data, after update 900. Not in these tables, since they have other classes or are not of such "
              "data: ");
    CHECK_HAS(text, "other, validation data</p>\n<div class=\"mistakes\">");
    free(text);
}

TEST(names_of_classes_are_whole) {
    char name[256], file[800];
    report_run r;
    memset(name, 'x', 255);
    name[255] = '\0';
    snprintf(file, sizeof file, "{\"step\":1,\"split\":\"test\",\"classes\":[\"%s\"],\"confusion\":[[1]]}", name);
    if (!CHECK_INT(report_run_read(&r, make_classifier("long", 1, file), KNOWN), 0)) return;
    CHECK_STR(r.classes.name[0], name);
    report_run_free(&r);
}

TEST(many_classes_have_a_picture_instead_of_a_table) {
    enum { MANY = 31 };
    const char *run = make_classifier("many", 1, "");
    FILE *file = create(run, "classes.json");
    fprintf(file, "{\"step\":1,\"split\":\"valid\",\"classes\":[");
    for (int i = 0; i < MANY; i++) fprintf(file, "%s\"c%d\"", i ? "," : "", i);
    fprintf(file, "],\"confusion\":[");
    for (int i = 0; i < MANY; i++) {
        fprintf(file, "%s[", i ? "," : "");
        for (int k = 0; k < MANY; k++) fprintf(file, "%s%d", k ? "," : "", i == k ? 8 : i == 30 && k < 2 ? 1 + k : 0);
        fprintf(file, "]");
    }
    fprintf(file, "]}");
    fclose(file);
    char *text = plain_page_of(&run, 1, "many.html");
    CHECK_HAS(text, "<p>Validation data, after update 1.</p>");
    CHECK_HAS(text, "<details><summary>31 classes</summary>\n");
    CHECK(!strstr(text, "<table class=\"confusion\">"));
    /* Behind PNG's and deflate's beginnings a row is a byte and its pixels: c30 is taken for c1 in 2 of 11 cases. */
    enum { ROW = 1 + 3 * MANY, BEGIN = 48, BYTES = BEGIN + MANY * ROW + 20 };
    static const char image[] = "<img class=\"map\" alt=\"confusion matrix\" width=\"31\" height=\"31\" "
                                "src=\"data:image/png;base64,";
    static const unsigned char expected[] = {237, 186, 146};
    unsigned char bytes[BYTES];
    char *from = strstr(text, image), *end = from ? strchr(from + sizeof image, '"') : NULL;
    if (CHECK(from && end)) {
        *end = '\0';
        if (CHECK(base64_decode(from + sizeof image - 1, bytes, BYTES)))
            CHECK(memcmp(bytes + BEGIN + 30 * ROW + 1 + 3, expected, sizeof expected) == 0);
        *end = '"';
    }
    CHECK_HAS(text, "Most frequent mistakes: c30 taken for c1 (2, 18.2&nbsp;%); c30 taken for c0 (1, 9.1&nbsp;%).</p>");
    free(text);
}

/* The bytes were checked with another program once: 2 by 3 pixels, 255 0 255 0 255 0. */
TEST(pictures_are_png) {
    static const char png[] = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAAAAAC4HznGAAAAE0lEQVR4AQEIAPf/AP8A/wAA/wAN+gL+RKqJtAA"
                              "AAABJRU5ErkJggg==";
    const char *run = make_classifier("png", 1, clothes);
    char *text = plain_page_of(&run, 1, "png.html"), *from = strstr(text, "base64,");
    if (CHECK(from != NULL)) CHECK_STR(strtok(from + 7, "\""), png);
    free(text);
}

TEST(runs_without_classes_have_none_on_the_page) {
    const char *run = bare("no-classes");
    char *text = plain_page_of(&run, 1, "no-classes.html");
    CHECK(!strstr(text, "<h2 id=\"classes\">"));
    free(text);
}

RUN_TESTS(ENTRY(base64_goes_there_and_back), ENTRY(classes_are_read),
          ENTRY(classes_that_do_not_fit_together_are_refused), ENTRY(the_page_has_accuracies_confusion_and_mistakes),
          ENTRY(pictures_are_png), ENTRY(what_is_said_of_classes_is_so_of_all_runs), ENTRY(names_of_classes_are_whole),
          ENTRY(many_classes_have_a_picture_instead_of_a_table), ENTRY(runs_without_classes_have_none_on_the_page))
