/* Studies: what a file of experiments, tables and figures is read as, and what is refused, with file and line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "study/study.h"
#include "study/tree.h"
#include "core/error.h"

#include <math.h>

#define HEAD "title: A study\nseeds: 3\nexperiments:\n"
#define ONE                                                                                                            \
    "  one:\n    title: One\n    recipe: one.yaml\n    measure: accuracy\n    methods:\n"                              \
    "      SGDM: {set: [optimizer=sgd, 'a=1,2'], paper: {median: 94.5, mean: 94.4, std: 0.1}}\n"                       \
    "      Adam: {paper: diverges}\n      AdaMod: {paper: 94.75, label: ours, note: Why.}\n"
#define TWO                                                                                                            \
    "  two:\n    title: Two\n    recipe: /abs/two.yaml\n    measure: bleu\n    seeds: 1\n    methods:\n"               \
    "      AdaMod: {same: one/AdaMod}\n      Other: {}\n"
#define TABLE "tables:\n  t1: {title: T, rows: [SGDM, AdaMod], columns: [one, two]}\n"
#define FIGURE(panel) "figures:\n  f1:\n    title: F\n    panels: [" panel "]\n"

#define OWNED_STUDY __attribute__((cleanup(study_free))) study
#define OWNED_TREE __attribute__((cleanup(tree_free))) tree

static int parse(study *s, const char *text) { return study_parse(s, text, strlen(text), "dir/s.yaml"); }

static void refuses(const char *text, const char *message) {
    OWNED_STUDY s = {0};
    if (CHECK(parse(&s, text) != 0)) CHECK_HAS(adamod__last_message(), message);
}

TEST(reads_a_tree) {
    static const char text[] = "a: x\nb: [1, 'two words']\nc:\n  d: {e: }\n";
    OWNED_TREE t;
    if (!CHECK_INT(tree_parse(&t, text, sizeof text - 1, "f"), 0)) return;
    CHECK_INT(t.n, 3);
    CHECK_STR(t.child[0].text, "x");
    CHECK_INT(t.child[1].kind, TREE_LIST);
    CHECK_STR(t.child[1].child[1].text, "two words");
    CHECK_INT(t.child[2].child[0].line, 4);
    CHECK_STR(t.child[2].child[0].child[0].text, "");
}

static void refuses_tree(const char *text, const char *message) {
    OWNED_TREE t = {0};
    if (CHECK(tree_parse(&t, text, strlen(text), "f") != 0)) CHECK_HAS(adamod__last_message(), message);
}

TEST(refuses_what_is_no_tree) {
    refuses_tree("", "f:1: expected one document");
    refuses_tree("- a\n", "f:1: expected keys with values");
    refuses_tree("a: 1\nb: [\n", "f:3: not YAML");
    refuses_tree("a: 1\nb: 2\na: 3\n", "f:3: a is given twice, first in line 1");
    refuses_tree("a: 1\nb: &x 2\n", "f:2: anchors (&), aliases (*) and tags (!)");
    refuses_tree("a: 1\nb: !!seq [2]\n", "f:2: anchors");
    refuses_tree("a: 1\n[b]: 2\n", "f:2: expected a word as key");
    refuses_tree("a: 1\n--- \nb: 2\n", "f:2: expected one document");
    refuses_tree("a: \"\\x01\"\n", "f:1: ");
    refuses_tree("a: [[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]\n", "f:1: too deep");
}

TEST(reads_a_study) {
    OWNED_STUDY s = {0};
    if (!CHECK_INT(parse(&s, HEAD ONE TWO TABLE FIGURE("{title: P, of: one, show: test accuracy, over: epochs}, "
                                                       "{title: Q, of: two, show: rates, lines: [AdaMod], until: 9}")),
                   0))
        return;
    CHECK_INT(s.n_experiments, 2);
    CHECK_STR(s.experiment[0].recipe, "dir/one.yaml");
    CHECK_STR(s.experiment[1].recipe, "/abs/two.yaml");
    CHECK_STR(s.experiment[0].method[0].set.at[1], "a=1,2");
    CHECK_CLOSE(s.experiment[0].method[0].paper.mean, 94.4, 0);
    CHECK_STR(s.experiment[0].method[1].paper.text, "diverges");
    CHECK(isnan(s.experiment[0].method[1].paper.median) && isnan(s.experiment[1].method[1].paper.median));
    CHECK_CLOSE(s.experiment[0].method[2].paper.median, 94.75, 0);
    CHECK_STR(s.experiment[0].method[2].note, "Why.");
    CHECK(!s.experiment[0].method[1].note);
    CHECK_INT(s.table[0].column[1], 1);
    CHECK(s.figure[0].panel[0].epochs && !s.figure[0].panel[0].rates && s.figure[0].panel[1].rates);
    CHECK_STR(s.figure[0].panel[0].metric, "accuracy");
    CHECK_INT(s.figure[0].panel[0].n_methods, 3);
    CHECK_INT(s.figure[0].panel[1].n_methods, 1);
    const study_place owner = study_owner(&s, &(study_options){0}, (study_place){1, 0});
    CHECK(owner.experiment == 0 && owner.method == 2);
}

TEST(counts_seeds) {
    OWNED_STUDY s = {0};
    if (!CHECK_INT(parse(&s, "quick: {seeds: 2}\n" HEAD ONE TWO), 0)) return;
    CHECK_INT(study_seeds(&s, &(study_options){0}, 0), 3);
    CHECK_INT(study_seeds(&s, &(study_options){0}, 1), 1);
    CHECK_INT(study_seeds(&s, &(study_options){.seeds = 5}, 0), 5);
    CHECK_INT(study_seeds(&s, &(study_options){.seeds = 5}, 1), 1);
    CHECK_INT(study_seeds(&s, &(study_options){.quick = true}, 0), 2);
}

TEST(refuses_mistakes) {
    refuses("title: A\n", "dir/s.yaml:1: it needs experiments");
    refuses("title: A\nexperiments: 3\n", "dir/s.yaml:2: experiments is a word");
    refuses("titel: A\n", "dir/s.yaml:1: no such key: titel; did you mean title?");
    refuses(HEAD "  one: {title: One, measure: x, methods: {A: {}}}\n", "dir/s.yaml:4: one needs recipe");
    refuses(HEAD "  One: {title: One, recipe: x, measure: x, methods: {A: {}}}\n",
            "dir/s.yaml:4: the experiment 'One'");
    refuses(HEAD "  one: {title: One, recipe: x, measure: x, methods: {A: {}, a: {}}}\n",
            "would have the same directory, a");
    refuses(HEAD "  one: {title: One, recipe: x, measure: x, seeds: 0, methods: {A: {}}}\n",
            "seeds is '0', expected a whole");
    refuses(HEAD "  one: {title: One, recipe: x, measure: x, minutes: soon, methods: {A: {}}}\n", "expected a number");
    refuses(HEAD "  one: {title: One, recipe: x, measure: x, methods: {A: {set: a=1}}}\n",
            "set is a word, expected a list");
    refuses(HEAD "  one: {title: One, recipe: x, measure: x, methods: {A: {paper: {mean: 1}}}}\n",
            "paper needs median");
}

TEST(refuses_unknown_names) {
    refuses(HEAD ONE "tables:\n  t: {title: T, rows: [SGDM], columns: [onne]}\n",
            "dir/s.yaml:13: there is no experiment 'onne'; did you mean 'one'?");
    refuses(HEAD ONE "tables:\n  t: {title: T, rows: [Adm], columns: [one]}\n",
            "no method 'Adm'; did you mean 'Adam'?");
    refuses(HEAD ONE "tables:\n  one: {title: T, rows: [Adam], columns: [one]}\n", "one is a name in line 13 already");
    refuses(HEAD ONE FIGURE("{title: P, of: one, show: loss}"),
            "show is 'loss', expected rates, or train, valid or test");
    refuses(HEAD ONE FIGURE("{title: P, of: one, show: rates, over: time}"),
            "over is 'time', expected epochs or updates");
    refuses(HEAD ONE FIGURE("{title: P, of: one, show: rates, lines: [Sgdm]}"),
            "no method 'Sgdm'; did you mean 'SGDM'?");
    refuses(HEAD ONE "  b: {title: B, recipe: x, measure: x, methods: {A: {same: one}}}\n",
            "expected EXPERIMENT/METHOD");
    refuses(HEAD ONE TWO "  b: {title: B, recipe: x, measure: x, methods: {A: {same: two/AdaMod}}}\n", "name that");
    refuses(HEAD ONE "  b: {title: B, recipe: x, measure: x, methods: {A: {same: one/Adam, set: [a=1]}}}\n",
            "so it is not the same");
}

#define TUNED(tune, methods) HEAD "  one: {title: One, recipe: x, measure: loss, " tune ", methods: {" methods "}}\n"
#define RATES "tune: {key: optimizer.lr, values: [1e-3, 0.03], started: 5%}"

TEST(reads_a_tuned_key) {
    OWNED_STUDY s = {0};
    const study_options o = {0}, quick = {.quick = true};
    if (!CHECK_INT(parse(&s, TUNED(RATES ", quick: {recipe: y, tune: {key: optimizer.lr, values: [7]}}",
                                   "A: {}, B: {factor: 0.1, set: ['optimizer.adamw_lr={value}']}")),
                   0))
        return;
    CHECK_STR(study_tuned(&s, &o, 0)->key, "optimizer.lr");
    CHECK(study_tuned(&s, &o, 0)->counts_started && study_tuned(&s, &o, 0)->started_share);
    CHECK_CLOSE(study_tuned(&s, &o, 0)->started, 0.05, 1e-15);
    CHECK(!study_tuned(&s, &quick, 0)->counts_started);
    CHECK_INT(study_count_values(&s, &o, 0), 2);
    CHECK_INT(study_count_values(&s, &quick, 0), 1);
    CHECK_STR(study_value_at(&s, &o, (study_place){0, 0}, 0).text, "1e-3"); /* as it is written */
    CHECK_STR(study_value_at(&s, &o, (study_place){0, 1}, 1).text, "0.003");
    CHECK_STR(study_value_at(&s, &quick, (study_place){0, 1}, 0).text, "0.7");
}

TEST(nothing_tuned_is_one_value) {
    OWNED_STUDY s = {0};
    if (!CHECK_INT(parse(&s, HEAD ONE), 0)) return;
    CHECK(study_tuned(&s, &(study_options){0}, 0) == NULL);
    CHECK_INT(study_count_values(&s, &(study_options){0}, 0), 1);
    CHECK_STR(study_value_at(&s, &(study_options){0}, (study_place){0, 0}, 0).text, "");
}

TEST(refuses_mistakes_of_tuned_keys) {
    refuses(TUNED("tune: {key: optimizer.lr, values: []}", "A: {}"), "one tunes optimizer.lr without values");
    refuses(TUNED("tune: {values: [1]}", "A: {}"), "tune needs key");
    refuses(TUNED("tune: {key: a, values: [1], started: x}", "A: {}"),
            "started is 'x', expected a number, or a distance from the best such as 5%");
    refuses(TUNED("tune: {key: a, values: [1], started: -5%}", "A: {}"), "started is '-5%', expected");
    refuses(TUNED("tune: {key: a, values: [1], started: 1e400}", "A: {}"), "started is '1e400', expected");
    refuses(TUNED("tune: {key: train.seed, values: [1]}", "A: {}"),
            "one tunes train.seed, which each run has of its own");
    refuses(TUNED("tune: {key: a, values: [x]}", "A: {factor: 2}"), "A has a factor, and the value 'x' is no number");
    refuses(TUNED("tune: {key: a, values: ['']}", "A: {}"), "'' is no value of 1 to 47 letters");
    refuses(TUNED("seeds: 2", "A: {factor: 2}"), "A has a factor, and one tunes nothing");
    refuses(TUNED(RATES ", quick: {recipe: y, tune: {key: b, values: [1]}}", "A: {}"),
            "one tunes b with --quick, and optimizer.lr without");
    refuses(TUNED(RATES, "A: {}") "  two: {title: T, recipe: x, measure: loss, methods: {A: {same: one/A}}}\n",
            "A cannot be the same as another: a key is tuned");
    refuses(TUNED(RATES, "A: {}") "tables:\n  t: {title: T, rows: [A], columns: [one]}\n",
            "dir/s.yaml:6: one tunes optimizer.lr, and has a table and a figure of its own");
    refuses(TUNED(RATES, "A: {}") FIGURE("{title: P, of: one, show: rates}"), "has a table and a figure of its own");
}

TEST(asks_for_parts) {
    static const char *const names[] = {"one", "tt"};
    OWNED_STUDY s = {0};
    if (!CHECK_INT(parse(&s, HEAD ONE TWO TABLE), 0)) return;
    CHECK_INT(study_check_names(&s, &(study_options){.name = names, .n_names = 1}), 0);
    CHECK(study_check_names(&s, &(study_options){.name = names, .n_names = 2}) != 0);
    CHECK_HAS(adamod__last_message(), "no table, figure or experiment 'tt'; did you mean 't1'?");
}

RUN_TESTS(ENTRY(reads_a_tree), ENTRY(refuses_what_is_no_tree), ENTRY(reads_a_study), ENTRY(counts_seeds),
          ENTRY(refuses_mistakes), ENTRY(refuses_unknown_names), ENTRY(reads_a_tuned_key),
          ENTRY(nothing_tuned_is_one_value), ENTRY(refuses_mistakes_of_tuned_keys), ENTRY(asks_for_parts))
