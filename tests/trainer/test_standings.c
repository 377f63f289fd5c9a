/* Standings: which value of a tuned key is the best, by which data, what counts as a win, and what is shown of runs that
 * diverged or are not over.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "run_folders.h"
#include "small_recipe.h"
#include "study/standings_parts.h"
#include "tasks/tasks.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

#define OWNED_LIST __attribute__((cleanup(run_list_free))) run_list
#define OWNED_STANDINGS __attribute__((cleanup(standings_free))) standings

static const char text[] = "name: tiny\ndata: {task: numbers}\nmodel: {layers: 1, d: 16, heads: 2}\n"
                           "optimizer: {rule: adam, lr: 0.1}\ntrain: {steps: 40}\n";

/* How a run ended: its loss and exact translations by validation, those by the test; training loss. */
typedef struct end {
    const char *variant, *value;
    int seed;
    const char *status; /* NULL: it is not over */
    double loss, exact, test_exact, training;
} end;

static void write_result(const char *directory, const end *e, const recipe *r) {
    FILE *file = create(directory, "recipe.yaml");
    recipe_write(r, file);
    fclose(file);
    if (!e->status) return;
    file = create(directory, "result.json");
    fprintf(file, "{\"status\":\"%s\",\"step\":40,\"seconds\":1,\"training_loss\":%g", e->status, e->training);
    if (strcmp(e->status, "finished") == 0) {
        fprintf(file, ",\"valid\":{\"kind\":\"valid\",\"step\":40,\"loss\":%g,\"exact\":%g}", e->loss, e->exact);
        fprintf(file, ",\"test\":{\"kind\":\"test\",\"step\":40,\"loss\":%g,\"exact\":%g}", e->loss, e->test_exact);
    }
    fprintf(file, "}\n");
    fclose(file);
}

static void add(run_list *p, const char *folder, const end *e) {
    char assignment[64];
    OWNED_RECIPE r = {0};
    const char *directory = below("%s-%s-%s-%d", folder, e->variant, e->value ? e->value : "", e->seed);
    CHECK(recipe_defaults(&r, tasks_all) == 0 && recipe_parse(&r, text, strlen(text), "tiny.yaml") == 0);
    snprintf(assignment, sizeof assignment, "train.seed=%d", e->seed);
    CHECK_INT(recipe_set(&r, assignment), 0);
    snprintf(assignment, sizeof assignment, "name=%s", e->variant);
    CHECK_INT(recipe_set(&r, assignment), 0);
    write_result(directory, e, &r);
    CHECK_INT(run_list_add(p, &r, directory, "", e->variant, NAN), 0);
    if (e->value) CHECK_INT(run_list_value(p, e->value), 0);
    p->at[p->n - 1].state = e->status ? RUN_IS_OVER : RUN_IS_NEW;
}

static void add_all(run_list *p, const char *folder, const end *ends, int n) {
    for (int i = 0; i < n; i++) add(p, folder, &ends[i]);
}
#define ADD(p, folder, ends) add_all(p, folder, ends, (int)(sizeof(ends) / sizeof *(ends)))

static const standings_options tuned = {.metric = "exact", .tuned = "optimizer.lr", .started = NAN};

TEST(chooses_by_validation) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const end ends[] = {{"a", "1", 1, "finished", 1, 0.5, 0.1, 9}, /* best by validation */
                        {"a", "2", 1, "finished", 1, 0.4, 0.9, 1}, /* best by the test data, and by training loss */
                        {"a", "3", 1, "diverged", 0, 0, 0, 0},     {"a", "4", 1, NULL, 0, 0, 0, 0},
                        {"b", "1", 1, "diverged", 0, 0, 0, 0},     {"b", "2", 1, NULL, 0, 0, 0, 0}};
    ADD(&p, "valid", ends);
    if (!CHECK_INT(standings_make(&s, &p, &tuned, KNOWN), 0)) return;
    CHECK_INT(s.n_variants, 2);
    const standing *a = standings_at(&s, 0, 0);
    CHECK_INT(a->n, 4);
    CHECK_INT(a->best, 0);
    CHECK(s.metric[0].test);
    CHECK_CLOSE(a->value[0].spread.mean, 10, 1e-6); /* shown is the test data, in percent */
    CHECK(standings_is_best(&s, &p.at[0]) && !standings_is_best(&s, &p.at[1]));
    CHECK_INT(a->value[2].diverged, 1);
    CHECK_INT(a->value[3].finished + a->value[3].diverged, 0);
    CHECK_INT(standings_at(&s, 0, 1)->best, -1);
}

TEST(all_seeds_must_finish) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const end ends[] = {{"a", "1", 1, "finished", 1, 0.9, 0.9, 1}, {"a", "1", 2, "diverged", 0, 0, 0, 0},
                        {"a", "2", 1, "finished", 1, 0.2, 0.2, 1}, {"a", "2", 2, "finished", 1, 0.4, 0.4, 1},
                        {"a", "3", 1, "finished", 1, 0.9, 0.9, 1}, {"a", "3", 2, NULL, 0, 0, 0, 0}};
    ADD(&p, "seeds", ends);
    if (!CHECK_INT(standings_make(&s, &p, &tuned, KNOWN), 0)) return;
    CHECK_INT(standings_at(&s, 0, 0)->best, 1);
    CHECK_CLOSE(standings_at(&s, 0, 0)->value[1].spread.median, 30, 1e-6);
}

/* Evaluations of the test data must not choose. */
TEST(chooses_by_training_loss_without_validation_data) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const end ends[] = {{"a", "1", 1, "finished", 1, 0.5, 0.5, 2}, {"a", "2", 1, "finished", 1, 0.4, 0.4, 1}};
    ADD(&p, "test", ends);
    for (int i = 0; i < p.n; i++)
        put(p.at[i].directory, "data.json",
            "{\"parts\":[{\"split\":\"valid\",\"key\":\"data.x\",\"file\":\"\",\"fingerprint\":\"0123456789abcdef\"},"
            "{\"split\":\"test\",\"key\":\"data.x\",\"file\":\"\",\"fingerprint\":\"0123456789abcdef\"}]}\n");
    if (!CHECK_INT(standings_make(&s, &p, &tuned, KNOWN), 0)) return;
    CHECK(s.metric[0].by_loss);
    CHECK_INT(standings_at(&s, 0, 0)->best, 1);
}

TEST(wins_only_beyond_the_spread) {
    const end clear[] = {{"a", NULL, 1, "finished", 1, 0, 0.90, 1},
                         {"a", NULL, 2, "finished", 1, 0, 0.91, 1},
                         {"b", NULL, 1, "finished", 1, 0, 0.50, 1},
                         {"b", NULL, 2, "finished", 1, 0, 0.51, 1}};
    const end vague[] = {{"a", NULL, 1, "finished", 1, 0, 0.90, 1},
                         {"a", NULL, 2, "finished", 1, 0, 0.10, 1},
                         {"b", NULL, 1, "finished", 1, 0, 0.49, 1},
                         {"b", NULL, 2, "finished", 1, 0, 0.48, 1}};
    const standings_options o = {.started = 0.495 * 100};
    OWNED_LIST p = {0}, q = {0};
    OWNED_STANDINGS s = {0}, t = {0};
    ADD(&p, "clear", clear);
    ADD(&q, "vague", vague);
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0) || !CHECK_INT(standings_make(&t, &q, &o, KNOWN), 0)) return;
    CHECK_STR(s.metric[0].name, "exact"); /* the first headline */
    CHECK(standings_wins(&s, 0, 0) && !standings_wins(&s, 0, 1));
    CHECK(!standings_wins(&t, 0, 0) && !standings_wins(&t, 0, 1));
    CHECK_INT(standings_at(&s, 0, 1)->value[0].started, 2);
    CHECK_INT(standings_at(&t, 0, 0)->value[0].started, 1);
    CHECK_INT(standings_at(&t, 0, 1)->value[0].started, 0);
}

/* Every run begins with a loss of 4. */
static void add_starts(const run_list *p) {
    for (int i = 0; i < p->n; i++)
        put(p->at[i].directory, "metrics.jsonl",
            "{\"kind\":\"train\",\"step\":1,\"loss\":4}\n{\"kind\":\"train\",\"step\":2,\"loss\":9}\n");
}

/* By hand: a has means 1, 2, 4 (diverged and 5, both capped), so 7/3 - 1; b has 3 and 3.5, so 0.25. */
TEST(measures_sensitivity) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const standings_options o = {.metric = "loss", .tuned = "optimizer.lr", .started = 2.3};
    const end ends[] = {{"a", "1e-1", 1, "finished", 1.5, 0, 0, 1}, {"a", "1e-1", 2, "finished", 0.5, 0, 0, 1},
                        {"a", "1e-2", 1, "finished", 1.9, 0, 0, 1}, {"a", "1e-2", 2, "finished", 2.1, 0, 0, 1},
                        {"a", "1e-3", 1, "diverged", 0, 0, 0, 1},   {"a", "1e-3", 2, "finished", 5, 0, 0, 1},
                        {"b", "0.01", 1, "finished", 3, 0, 0, 1},   {"b", "0.03", 1, "finished", 3.5, 0, 0, 1},
                        {"c", "0.01", 1, "finished", 3, 0, 0, 1},   {"c", "0.03", 1, NULL, 0, 0, 0, 0}};
    ADD(&p, "sensitivity", ends);
    add_starts(&p);
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0)) return;
    CHECK(standings_has_numbers(&s, 0));
    CHECK_CLOSE(standings_at(&s, 0, 0)->sensitivity, 7.0 / 3 - 1, 1e-12);
    CHECK_CLOSE(standings_at(&s, 0, 1)->sensitivity, 0.25, 1e-12);
    CHECK(isnan(standings_at(&s, 0, 2)->sensitivity)); /* a run is not over */
    CHECK_CLOSE(s.metric[0].start, 4, 0);
    CHECK_INT(standings_at(&s, 0, 0)->largest, 0); /* 1e-1, by its number and not its place */
    CHECK_INT(standings_at(&s, 0, 1)->largest, -1);
}

TEST(values_that_are_no_numbers_have_no_sensitivity) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const standings_options o = {.metric = "loss", .tuned = "optimizer.rule", .started = NAN};
    const end ends[] = {{"a", "adam", 1, "finished", 1, 0, 0, 1}, {"a", "1", 1, "finished", 2, 0, 0, 1}};
    ADD(&p, "words", ends);
    add_starts(&p);
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0)) return;
    CHECK(!standings_has_numbers(&s, 0) && isnan(standings_at(&s, 0, 0)->sensitivity));
    CHECK_INT(standings_at(&s, 0, 0)->largest, -1);
}

/* The best mean is 2: within 10 % is below 2.2, of a metric that should rise above 0.9 of it. */
TEST(started_by_the_distance_from_the_best) {
    const standings_options o = {.metric = "loss", .tuned = "optimizer.lr", .started = 0.1, .started_share = true};
    standings_options rising = o;
    const end ends[] = {{"a", "1", 1, "finished", 2, 0.1, 0.40, 1},
                        {"a", "2", 1, "finished", 2.19, 0.2, 0.44, 1},
                        {"b", "2", 1, "finished", 2.21, 0.3, 0.50, 1},
                        {"b", "3", 1, "finished", 9, 0.2, 0.46, 1}};
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0}, t = {0};
    ADD(&p, "share", ends);
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0)) return;
    CHECK_CLOSE(s.metric[0].limit, 2.2, 1e-12);
    CHECK_INT(standings_at(&s, 0, 0)->largest, 1);
    CHECK_INT(standings_at(&s, 0, 1)->largest, -1);
    rising.metric = "exact";
    if (!CHECK_INT(standings_make(&t, &p, &rising, KNOWN), 0)) return;
    CHECK_CLOSE(t.metric[0].limit, 45, 1e-9); /* of 50 % */
    CHECK_INT(standings_at(&t, 0, 1)->largest, 1);
    CHECK_INT(standings_at(&t, 0, 0)->largest, -1);
}

TEST(takes_the_first_of_equal_values) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const end ends[] = {{"a", "1", 1, "finished", 1, 0.2, 0.2, 3},
                        {"a", "2", 1, "finished", 1, 0.5, 0.6, 2},
                        {"a", "3", 1, "finished", 1, 0.5, 0.7, 1},
                        {"a", "4", 1, "finished", 1, 0.1, 0.7, 1}};
    ADD(&p, "equal", ends);
    if (!CHECK_INT(standings_make(&s, &p, &tuned, KNOWN), 0)) return;
    CHECK_INT(standings_at(&s, 0, 0)->best, 1);
    CHECK_INT(standings_save(&s, below("equal-tables")), 0);
    check_file(below("equal-tables/results.md"),
               "<sup>1</sup> 3 is as good by what chooses; the first of equal ones counts");
}

TEST(says_that_the_best_is_at_an_end) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const end ends[] = {{"a", "2", 1, "finished", 1, 0.2, 0.2, 3},
                        {"a", "1", 1, "finished", 1, 0.5, 0.6, 2},
                        {"b", "1", 1, "finished", 1, 0.2, 0.2, 3},
                        {"b", "9", 1, "finished", 1, 0.5, 0.6, 2}};
    ADD(&p, "ends", ends);
    if (!CHECK_INT(standings_make(&s, &p, &tuned, KNOWN), 0)) return;
    CHECK_INT(standings_save(&s, below("end-tables")), 0);
    check_file(below("end-tables/results.md"), "<sup>1</sup> the smallest of its list: a smaller one may be better");
    check_file(below("end-tables/results.md"), "<sup>2</sup> the largest of its list: a larger one may be better");
}

/* Welch's p of {1, 1.1} and {2, 2.2}, by integrating the density of Student's t (-9.3915, 1.4706 degrees): 0.0273751. */
TEST(tests_best_values_against_each_other) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const standings_options o = {.metric = "loss", .tuned = "optimizer.lr", .started = NAN};
    const end ends[] = {{"a", "1", 1, "finished", 2, 0, 0, 1}, {"a", "1", 2, "finished", 2.2, 0, 0, 1},
                        {"a", "2", 1, "finished", 5, 0, 0, 1}, {"a", "2", 2, "finished", 6, 0, 0, 1},
                        {"b", "1", 1, "finished", 9, 0, 0, 1}, {"b", "1", 2, "finished", 9, 0, 0, 1},
                        {"b", "2", 1, "finished", 1, 0, 0, 1}, {"b", "2", 2, "finished", 1.1, 0, 0, 1}};
    ADD(&p, "welch", ends);
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0)) return;
    CHECK_INT(standings_save(&s, below("welch-tables")), 0);
    check_file(below("welch-tables/tests.csv"),
               "recipe,metric,split,unit,best,other,best_runs,other_runs,difference,p");
    check_file(below("welch-tables/tests.csv"), "\n,loss,test,,b,a,2,2,-1.05,");
    check_file(below("welch-tables/tests.md"), "| test loss | b | a | -1.050 | p = 0.0");
    char *text_of_tests = contents(below("welch-tables/tests.csv"));
    const char *comma = strrchr(text_of_tests, ',');
    if (CHECK(comma)) CHECK_CLOSE(strtod(comma + 1, NULL), 0.0273751286, 1e-6);
    free(text_of_tests);
}

/* Makes standings of some runs, and checks why their variants are not tested; NULL: they are. */
static void check_untested(const char *name, const end *ends, int n, const char *why) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const standings_options o = {.metric = "loss", .tuned = "optimizer.lr", .started = NAN};
    add_all(&p, name, ends, n);
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0)) return;
    const char *is = standings_untested(&s, 0);
    if (why) CHECK_STR(is ? is : "", why);
    else CHECK(!is);
}

TEST(says_why_variants_are_not_tested) {
    const end one[] = {{"a", "1", 1, "finished", 2, 0, 0, 1}, {"a", "1", 2, "finished", 3, 0, 0, 1}};
    const end few[] = {{"a", "1", 1, "finished", 2, 0, 0, 1}, {"b", "1", 1, "finished", 3, 0, 0, 1}};
    const end level[] = {{"a", "1", 1, "finished", 2, 0, 0, 1},
                         {"a", "1", 2, "finished", 3, 0, 0, 1},
                         {"b", "1", 1, "finished", 2, 0, 0, 1},
                         {"b", "1", 2, "finished", 3, 0, 0, 1}};
    const end same[] = {{"a", "1", 1, "finished", 2, 0, 0, 1},
                        {"a", "1", 2, "finished", 2, 0, 0, 1},
                        {"b", "1", 1, "finished", 3, 0, 0, 1},
                        {"b", "1", 2, "finished", 3, 0, 0, 1}};
    const end tested[] = {{"a", "1", 1, "finished", 2, 0, 0, 1},
                          {"a", "1", 2, "finished", 2.5, 0, 0, 1},
                          {"b", "1", 1, "finished", 3, 0, 0, 1},
                          {"b", "1", 2, "finished", 3, 0, 0, 1}};
    check_untested("one", one, 2,
                   "there is one variant, and its values are not rivals: validation has chosen among them");
    check_untested("few", few, 2, "Welch's test needs two variants with two seeds or more that finished");
    check_untested("level", level, 4, "several variants have the best median");
    check_untested("same", same, 4, "the seeds of the best variant, or of all others, tell no spread");
    check_untested("tested", tested, 4, NULL);
}

TEST(notes_are_footnotes) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const standings_options o = {.metric = "loss", .tuned = "optimizer.lr", .started = NAN};
    const end ends[] = {{"a", "1", 1, "finished", 2, 0, 0, 1},
                        {"a", "1", 2, "finished", 2.2, 0, 0, 1},
                        {"a", "2", 1, "finished", 5, 0, 0, 1},
                        {"b", "1", 1, "finished", 9, 0, 0, 1}};
    ADD(&p, "noted", ends);
    put(p.at[0].directory, "note.txt", "half of the data\n");
    put(p.at[1].directory, "note.txt", "half of the data\n");
    put(p.at[2].directory, "note.txt", "a third\n");
    put(p.at[3].directory, "data.json", "{\"set\":\"ptb\",\"published\":false,\"why\":\"no record\"}");
    if (!CHECK_INT(standings_make(&s, &p, &o, KNOWN), 0)) return;
    CHECK_INT(standings_save(&s, below("noted-tables")), 0);
    check_file(below("noted-tables/results.md"), "2.100 (2.100 ± 0.141)<sup>");
    check_file(below("noted-tables/results.md"), "</sup> half of the data\n");
    check_file(below("noted-tables/results.md"), "| 9.000; own files<sup>");
    check_file(below("noted-tables/results.md"), "</sup> data set ptb not as published: no record\n");
    check_file(below("noted-tables/results.csv"), ",half of the data\r\n");
    check_file(below("noted-tables/results.json"), "\"notes\": [\"half of the data\"]");
    check_file(below("noted-tables/values.md"), "</sup> a third\n");
    check_file(below("noted-tables/values.tex"), "$^{");
    char *table = contents(below("noted-tables/results.md"));
    CHECK(!strstr(table, "a third")); /* of a value that is not the best */
    free(table);
}

TEST(refuses_an_unknown_metric) {
    OWNED_LIST p = {0};
    OWNED_STANDINGS s = {0};
    const end ends[] = {{"a", NULL, 1, "finished", 1, 0, 0.9, 1}};
    const standings_options o = {.metric = "blue", .started = NAN};
    ADD(&p, "metric", ends);
    CHECK(standings_make(&s, &p, &o, KNOWN) != 0);
    CHECK_HAS(adamod__last_message(), "--metric is 'blue', expected one of loss, ");
    CHECK_HAS(adamod__last_message(), "bleu");
}

RUN_TESTS(ENTRY(chooses_by_validation), ENTRY(all_seeds_must_finish),
          ENTRY(chooses_by_training_loss_without_validation_data), ENTRY(wins_only_beyond_the_spread),
          ENTRY(measures_sensitivity), ENTRY(values_that_are_no_numbers_have_no_sensitivity),
          ENTRY(started_by_the_distance_from_the_best), ENTRY(takes_the_first_of_equal_values),
          ENTRY(says_that_the_best_is_at_an_end), ENTRY(tests_best_values_against_each_other),
          ENTRY(says_why_variants_are_not_tested), ENTRY(notes_are_footnotes), ENTRY(refuses_an_unknown_metric))
