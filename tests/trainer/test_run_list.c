/* Lists of runs: what is refused before anything is made, what is found in directories, and how long the rest will take.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "run_folders.h"
#include "small_recipe.h"
#include "study/run_list.h"
#include "tasks/tasks.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

static const char text[] = "name: tiny\ndata: {task: numbers}\nmodel: {layers: 1, d: 16, heads: 2}\n"
                           "optimizer: {rule: adamod, lr: 0.1}\ntrain: {steps: 40}\n";

#define OWNED_LIST __attribute__((cleanup(run_list_free))) run_list

static int add(run_list *p, const char *directory, const char *group, const char *variant, const char *assignment) {
    OWNED_RECIPE r = {0};
    CHECK(recipe_defaults(&r, tasks_all) == 0 && recipe_parse(&r, text, strlen(text), "tiny.yaml") == 0);
    CHECK(!assignment || recipe_set(&r, assignment) == 0);
    const int status = run_list_add(p, &r, directory, group, variant, NAN);
    CHECK(status || r.given == NULL); /* taken */
    return status;
}

/* A directory as a run of the recipe leaves it; result "": it goes on. */
static void leave(const run_entry *e, const char *result) {
    FILE *file = create(e->directory, "recipe.yaml");
    recipe_write(&e->r, file);
    fclose(file);
    put(e->directory, "metrics.jsonl", "{\"kind\":\"train\"}\n");
    put(below("%s/checkpoints", strrchr(e->directory, '/') + 1), "last.safetensors", "x");
    if (*result) put(e->directory, "result.json", result);
}

static const char *finished = "{\"status\":\"finished\",\"step\":40,\"seconds\":12.5}\n";

TEST(adds_runs) {
    OWNED_LIST p = {0};
    for (int i = 0; i < 900; i++) {
        char directory[32], seed[32];
        snprintf(directory, sizeof directory, "a/x-%d", i);
        snprintf(seed, sizeof seed, "train.seed=%d", i);
        if (!CHECK_INT(add(&p, directory, "g", "x", seed), 0)) return;
    }
    CHECK_INT(p.n, 900);
    CHECK_INT(p.at[899].seed, 899);
    CHECK_STR(p.at[7].label, "g: x, seed 7");
    CHECK_INT(run_list_label(&p, "last"), 0);
    CHECK_STR(p.at[899].label, "last");
    CHECK(add(&p, "a/x-5", "g", "y", NULL));
    CHECK_HAS(adamod__last_message(), "y: another variant is in a/x-5 too");
    CHECK(add(&p, "a/bad", "g", "y", "model.heads=3"));
    CHECK_HAS(adamod__last_message(), "y: ");
    CHECK_INT(p.n, 900);
}

TEST(finds_what_is_there) {
    OWNED_LIST p = {0};
    add(&p, below("new"), "", "new", NULL);
    add(&p, below("begun"), "", "begun", NULL);
    add(&p, below("over"), "", "over", NULL);
    add(&p, below("ruined"), "", "ruined", NULL);
    leave(&p.at[1], "{\"status\":\"interrupted\",\"step\":10,\"seconds\":2.5}\n");
    leave(&p.at[2], finished);
    leave(&p.at[3], "{\"status\":\"diverged\",\"step\":4,\"seconds\":1}\n");
    CHECK_INT(run_list_look(&p), 0);
    CHECK_INT(p.at[0].state, RUN_IS_NEW);
    CHECK_INT(p.at[1].state, RUN_IS_BEGUN);
    CHECK_INT(p.at[2].state, RUN_IS_OVER);
    CHECK_INT(p.at[3].state, RUN_IS_OVER);
    CHECK_CLOSE(p.at[1].spent, 2.5, 0);
    CHECK_CLOSE(p.at[2].spent, 12.5, 0);
    CHECK(isnan(p.at[3].spent));
}

/* The message about a directory with a run that was made with one setting, and is to be made with another. */
static const char *complaint(const char *directory, const char *was, const char *is, const char *result) {
    OWNED_LIST before = {0}, p = {0};
    add(&before, directory, "", "x", was);
    leave(&before.at[0], result);
    add(&p, directory, "", "x", is);
    return run_list_look(&p) ? adamod__last_message() : "(none)";
}

TEST(refuses_other_runs) {
    const char *interrupted = "{\"status\":\"interrupted\",\"step\":1,\"seconds\":1}\n";
    const char *text_of = complaint(below("lr"), NULL, "optimizer.lr=0.05", interrupted);
    CHECK_HAS(text_of, "lr is a run of another recipe: ");
    CHECK_HAS(text_of, "lr is 0.05, but was 0.1");
    CHECK_HAS(complaint(below("seed"), NULL, "train.seed=2", finished), "train.seed is 2, but was 1");
    /* a run that goes on may be made longer, but one that is over has its length */
    CHECK_STR(complaint(below("longer"), NULL, "train.steps=80", interrupted), "(none)");
    CHECK_HAS(complaint(below("steps"), NULL, "train.steps=80", finished), "train.steps is 80, but was 40");
    CHECK_HAS(complaint(below("epochs"), NULL, "train.epochs=2", finished), "train.epochs is 2, but was 0");
    CHECK_STR(complaint(below("threads"), NULL, "train.threads=2", finished), "(none)");
    OWNED_LIST p = {0};
    put(below("letters"), "letter.txt", "dear");
    add(&p, below("letters"), "", "x", NULL);
    CHECK(run_list_look(&p));
    CHECK_HAS(adamod__last_message(), "letters exists and is not a run");
}

TEST(knows_how_long_runs_take) {
    OWNED_LIST p = {0};
    int unknown;
    const struct {
        const char *name, *group, *variant, *result; /* result NULL: not begun */
    } runs[] = {{"t1", "a", "x", "{\"status\":\"finished\",\"step\":40,\"seconds\":10}"},
                {"t2", "a", "x", "{\"status\":\"finished\",\"step\":40,\"seconds\":20}"},
                {"t3", "a", "y", "{\"status\":\"finished\",\"step\":40,\"seconds\":60}"},
                {"t4", "a", "z", "{\"status\":\"diverged\",\"step\":40,\"seconds\":1000}"},
                {"t5", "a", "x", NULL},
                {"t6", "a", "z", NULL},
                {"t7", "a", "x", "{\"status\":\"interrupted\",\"step\":20,\"seconds\":9}"},
                {"t8", "b", "x", NULL},
                {"t9", "c", "x", NULL}};
    for (int i = 0; i < 9; i++) {
        add(&p, below("%s", runs[i].name), runs[i].group, runs[i].variant, NULL);
        if (runs[i].result) leave(&p.at[i], runs[i].result);
    }
    p.at[7].seconds = 300;
    CHECK_INT(run_list_look(&p), 0);
    CHECK_CLOSE(run_list_expect(&p, 0), 0, 0);
    CHECK_CLOSE(run_list_expect(&p, 4), 15, 1e-9); /* as its variant */
    CHECK_CLOSE(run_list_expect(&p, 5), 30, 1e-9); /* as its group: a run that diverged tells nothing */
    CHECK_CLOSE(run_list_expect(&p, 6), 6, 1e-9);  /* begun */
    CHECK_CLOSE(run_list_expect(&p, 7), 300, 0);   /* a guess */
    CHECK(isnan(run_list_expect(&p, 8)));
    CHECK_CLOSE(run_list_left(&p, "a", &unknown), 51, 1e-9);
    CHECK_INT(unknown, 0);
    CHECK_CLOSE(run_list_left(&p, NULL, &unknown), 351, 1e-9);
    CHECK_INT(unknown, 1);
}

TEST(names_directories) {
    char out[16];
    run_list_slug("Adam, no warm-up", out, sizeof out);
    CHECK_STR(out, "adam-no-warm-up");
    run_list_slug(" (lr=1e-3) ", out, sizeof out);
    CHECK_STR(out, "lr-1e-3");
    run_list_slug("a long name of a run", out, sizeof out);
    CHECK_STR(out, "a-long-name-of");
}

RUN_TESTS(ENTRY(adds_runs), ENTRY(finds_what_is_there), ENTRY(refuses_other_runs), ENTRY(knows_how_long_runs_take),
          ENTRY(names_directories))
