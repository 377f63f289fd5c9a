/* Tests of tests/golden/VERSION/recipes: every recipe that a version left there is read by all later ones, which write each of
 * its values back.
 *
 *     test_golden_recipes --write DIRECTORY       writes those of this version; scripts/golden calls it, once for a version
 *
 * all-TASK-KIND.yaml has every key that a task and a kind of model have, with its default; NAME.yaml is a recipe that came
 * with the version.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "small_recipe.h"
#include "core/error.h"
#include "tasks/tasks.h"

#include <glob.h>
#include <stdlib.h>

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

static void check_file(const char *path) {
    OWNED_RECIPE r = {0};
    const bool all = strstr(path, "/all-") != NULL; /* without the files that some tasks need */
    recipe_defaults(&r, tasks_all);
    if (!CHECK(recipe_load(&r, path) == 0 && (all || recipe_check(&r) == 0))) {
        printf("  %s\n", adamod__last_message());
        return;
    }
    char *text = recipe_text(&r);
    if (all) check_lines(path, text);
    free(text);
}

TEST(every_recipe_of_every_version_is_read) {
    char pattern[512];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/tests/golden/*/recipes/*.yaml", source_dir());
    CHECK_INT(glob(pattern, 0, NULL, &found), 0);
    CHECK(found.gl_pathc >= 20); /* those of version 0.1 */
    for (size_t i = 0; i < found.gl_pathc; i++) check_file(found.gl_pathv[i]);
    globfree(&found);
}

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
    return check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
}
