#include "small_recipe.h"

#include "check.h"
#include "tasks/tasks.h"

#include <string.h>

bool small_recipe(recipe *r, const char *text, const char *const *assignments, char *message, size_t size) {
    recipe_defaults(r, tasks_all);
    *message = '\0';
    if (!CHECK_INT(recipe_parse(r, text, strlen(text), "r.yaml", message, size), 0)) return false;
    for (int i = 0; assignments && assignments[i]; i++) {
        if (recipe_set(r, assignments[i], message, size)) return false;
    }
    return recipe_check(r, message, size) == 0;
}
