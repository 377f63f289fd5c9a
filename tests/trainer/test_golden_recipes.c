/* Tests of tests/golden/VERSION/recipes: every recipe and study that a version left there is read by all later ones, to the
 * same values.
 *
 *     test_golden_recipes --write DIRECTORY       writes all-TASK-KIND.yaml of this version
 *     test_golden_recipes --values FILE           prints NAME.values of a recipe or study
 *
 * scripts/golden calls both, once for a version. all-TASK-KIND.yaml has every key that a task and a kind of model have, with its
 * default; NAME.yaml is a recipe or study that came with the version. NAME.values has every value of the recipe, given or
 * default; of a study, the values that each of its runs changes in its recipe. Version 0.1 left no values.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "small_recipe.h"
#include "core/error.h"
#include "study/study.h"
#include "tasks/tasks.h"

#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

/* The lines of a file are those of a text, in the same order; the text may have more, as of keys that were added. */
static void check_lines(const char *path, const char *text) {
    char line[1024], wanted[1026];
    FILE *file = fopen(path, "r");
    if (!CHECK(file != NULL)) return;
    while (fgets(line, sizeof line, file)) {
        snprintf(wanted, sizeof wanted, "\n%s", line);
        const char *found = strncmp(text, line, strlen(line)) == 0 ? text : strstr(text, wanted);
        if (!CHECK(found != NULL)) {
            printf("  %s: lost or changed: %s", path, line);
            break;
        }
        text = found + 1;
    }
    fclose(file);
}

/* ---- values ---- */

static bool is_study(const char *path) {
    char line[1024];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file)) found = strcmp(line, "experiments:\n") == 0;
    if (file) fclose(file);
    return found;
}

/* The lines of a text that another one lacks. */
static void print_new(const char *text, const char *old, FILE *out) {
    char line[1024], wanted[1026];
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
        snprintf(wanted, sizeof wanted, "\n%s\n", line);
        if (!strstr(old, wanted)) fprintf(out, "%s\n", line);
    }
}

/* What a run of a study changes in the recipe of its experiment. */
static int print_run(const study *s, const study_options *o, study_place of, int value, FILE *out) {
    const study_experiment *e = &s->experiment[of.experiment];
    OWNED_RECIPE r = {0}, own = {0};
    const study_value v = study_value_at(s, o, of, value);
    recipe_defaults(&own, tasks_all);
    if (study_recipe(s, o, of, v, 2, &r) || recipe_load(&own, o->quick ? e->quick.recipe : e->recipe)) return -1;
    fprintf(out, "%s/%s%s%s%s:\n", e->name, e->method[of.method].name, *v.text ? " " : "", v.text,
            o->quick ? ", quick" : "");
    char *text = recipe_text(&r), *old = recipe_text(&own);
    print_new(text, old, out);
    free(text);
    free(old);
    return 0;
}

/* Of each method's runs, those with the first and the last value that is tuned. */
static int print_method(const study *s, const study_options *o, study_place of, FILE *out) {
    const int last = study_count_values(s, o, of.experiment) - 1;
    const study_place owner = study_owner(s, o, of);
    if (owner.experiment != of.experiment || owner.method != of.method) return 0;
    return print_run(s, o, of, 0, out) || (last > 0 && print_run(s, o, of, last, out)) ? -1 : 0;
}

static int print_study(const char *path, FILE *out) {
    study s;
    int failed = study_read(&s, path);
    if (failed) return -1;
    for (int quick = 0; quick < 2; quick++) {
        const study_options o = {.quick = quick, .tasks = tasks_all};
        for (int i = 0; i < s.n_experiments; i++) {
            if (quick && !s.experiment[i].quick.recipe) continue;
            for (int m = 0; m < s.experiment[i].n_methods; m++)
                failed |= print_method(&s, &o, (study_place){i, m}, out);
        }
    }
    study_free(&s);
    return failed;
}

static int print_recipe(const char *path, FILE *out) {
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    if (recipe_load(&r, path) || recipe_check(&r)) return -1;
    char *text = recipe_text(&r);
    fputs(text, out);
    free(text);
    return 0;
}

static int print_values(const char *path, FILE *out) {
    return is_study(path) ? print_study(path, out) : print_recipe(path, out);
}

/* ---- reading ---- */

static void check_all(const char *path) { /* recipe_check would ask for files that some tasks need */
    OWNED_RECIPE r = {0};
    recipe_defaults(&r, tasks_all);
    if (!CHECK_INT(recipe_load(&r, path), 0)) {
        printf("  %s\n", adamod__last_message());
        return;
    }
    char *text = recipe_text(&r);
    check_lines(path, text);
    free(text);
}

/* Whether the version left the values too. */
static bool check_file(const char *path) {
    char values[1024], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    snprintf(values, sizeof values, "%.*s.values", (int)(strlen(path) - strlen(".yaml")), path);
    const bool has_values = access(values, F_OK) == 0;
    if (!CHECK(out != NULL)) return false;
    if (!CHECK_INT(print_values(path, out), 0)) printf("  %s\n", adamod__last_message());
    fclose(out);
    if (has_values) check_lines(values, text);
    free(text);
    return has_values;
}

TEST(every_recipe_of_every_version_is_read) {
    char pattern[512];
    glob_t found = {0};
    int n = 0;
    snprintf(pattern, sizeof pattern, "%s/tests/golden/*/recipes/*.yaml", source_dir());
    CHECK_INT(glob(pattern, 0, NULL, &found), 0);
    CHECK(found.gl_pathc >= 47); /* those of versions 0.1 and 1.0 */
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (strstr(found.gl_pathv[i], "/all-")) check_all(found.gl_pathv[i]);
        else n += check_file(found.gl_pathv[i]);
    }
    CHECK(n >= 18); /* those of 1.0 */
    globfree(&found);
}

/* ---- writing ---- */

/* Every key that a task and a model have, with its default. */
static int write_all(const char *directory, const task *t, const task_model *m) {
    OWNED_RECIPE r = {0};
    char path[1024], text[128];
    snprintf(path, sizeof path, "%s/all-%s-%s.yaml", directory, t->name, m->kind);
    snprintf(text, sizeof text, "data: {task: %s}\nmodel: {kind: %s}\n", t->name, m->kind);
    recipe_defaults(&r, tasks_all);
    FILE *file = fopen(path, "w");
    if (!file) return perror(path), 1;
    int failed = recipe_parse(&r, text, strlen(text), path) || recipe_write(&r, file);
    failed |= fclose(file) != 0;
    if (failed) printf("%s: %s\n", path, adamod__last_message());
    return failed;
}

int main(int argc, char **argv) {
    static const check_test tests[] = {ENTRY(every_recipe_of_every_version_is_read)};
    if (argc == 3 && !strcmp(argv[1], "--write")) {
        int failed = 0;
        for (const task *const *t = tasks_all; *t; t++) {
            for (const task_model *const *m = (*t)->models; *m; m++) failed |= write_all(argv[2], *t, *m);
        }
        return failed;
    }
    if (argc == 3 && !strcmp(argv[1], "--values")) {
        const int failed = print_values(argv[2], stdout);
        if (failed) fprintf(stderr, "%s\n", adamod__last_message());
        return failed != 0;
    }
    return check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
}
