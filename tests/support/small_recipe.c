#include "small_recipe.h"

#include "check.h"
#include "core/error.h"
#include "tasks/tasks.h"

#include <string.h>

bool small_recipe(recipe *r, const char *text, const char *const *assignments) {
    recipe_defaults(r, tasks_all);
    adamod__fail(ADAMOD_OK, "%s", "");
    if (!CHECK_INT(recipe_parse(r, text, strlen(text), "r.yaml"), 0)) return false;
    for (int i = 0; assignments && assignments[i]; i++) {
        if (recipe_set(r, assignments[i])) return false;
    }
    return recipe_check(r) == 0;
}
