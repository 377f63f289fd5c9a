#include "small_recipe.h"

#include "check.h"
#include "core/error.h"
#include "tasks/tasks.h"
#include "train/task.h"

#include <string.h>

bool small_recipe(recipe *r, const char *text, const char *const *assignments) {
    recipe_free(r);
    if (recipe_defaults(r, tasks_all)) return false;
    adamod__fail(ADAMOD_OK, "%s", "");
    if (!CHECK_INT(recipe_parse(r, text, strlen(text), "r.yaml"), 0)) return false;
    for (int i = 0; assignments && assignments[i]; i++) {
        if (recipe_set(r, assignments[i])) return false;
    }
    return recipe_check(r) == 0;
}

static bool same_bytes(const void *a, const void *b, size_t n) { return n == 0 || memcmp(a, b, n) == 0; }

static bool same_pairs(const recipe_pairs *a, const recipe_pairs *b, bool origins) {
    for (int i = 0; a->n == b->n && i < a->n; i++) {
        const recipe_pair *x = &a->at[i], *y = &b->at[i];
        if (strcmp(x->key, y->key) != 0 || strcmp(x->value, y->value) != 0) return false;
        if (origins && x->line != y->line) return false;
    }
    return a->n == b->n;
}

static recipe without_lists(const recipe *r, bool origins) {
    recipe plain = *r;
    plain.optimizer.options.at = plain.optimizer.schedules.at = plain.optimizer.groups.at = NULL;
    plain.task_settings = plain.model_settings = NULL;
    plain.given = NULL;
    if (!origins) plain.n_given = 0;
    if (!origins) memset(plain.file, 0, sizeof plain.file);
    return plain;
}

bool recipes_equal(const recipe *a, const recipe *b, bool origins) {
    const recipe x = without_lists(a, origins), y = without_lists(b, origins);
    const task *t = recipe_task(a);
    const task_model *m = recipe_model(a);
    if (memcmp(&x, &y, sizeof x) != 0) return false;
    for (const key_table *const *k = t->keys; *k; k++) {
        if (!same_bytes(a->task_settings, b->task_settings, (*k)->size)) return false;
    }
    if (m && !same_bytes(a->model_settings, b->model_settings, m->keys->size)) return false;
    if (origins && !same_bytes(a->given, b->given, (size_t)a->n_given * sizeof *a->given)) return false;
    return same_pairs(&a->optimizer.options, &b->optimizer.options, origins) &&
           same_pairs(&a->optimizer.schedules, &b->optimizer.schedules, origins) &&
           same_pairs(&a->optimizer.groups, &b->optimizer.groups, origins);
}

char *recipe_text(const recipe *r) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    CHECK(file && recipe_write(r, file) == 0);
    if (file) fclose(file);
    return text;
}
