/* libFuzzer target: trainer/train/recipe.c, on the bytes of a recipe.
 *
 * A recipe that is accepted must be written to one that is read back the same; what is refused gets one line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "tasks/tasks.h"
#include "core/error.h"

static void check_line(const char *message) { require(is_line(message)); }

/* To be freed. */
static char *written(const recipe *r, size_t *n) {
    char *text = NULL;
    FILE *file = open_memstream(&text, n);
    require(file && recipe_write(r, file) == 0 && fclose(file) == 0);
    return text;
}

static void check_round_trip(const recipe *r) {
    recipe again;
    size_t n, m;
    char *first = written(r, &n);
    recipe_defaults(&again, tasks_all);
    require(recipe_parse(&again, first, n, "f") == 0);
    char *second = written(&again, &m);
    require(n == m && memcmp(first, second, n) == 0);
    free(first);
    free(second);
    recipe_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    recipe r, before;
    recipe_defaults(&r, tasks_all);
    before = r;
    if (recipe_parse(&r, (const char *)data, size, "f")) {
        check_line(adamod__last_message());
        require(strncmp(adamod__last_message(), "f:", 2) == 0 && memcmp(&r, &before, sizeof r) == 0);
        recipe_free(&r);
        return 0;
    }
    check_round_trip(&r);
    if (recipe_check(&r)) check_line(adamod__last_message());
    /* These bytes as the value of --set. */
    char text[128] = "name=";
    const size_t n = size < 100 ? size : 100;
    memcpy(text + 5, data, n);
    text[5 + n] = '\0';
    if (recipe_set(&r, text)) check_line(adamod__last_message());
    else check_round_trip(&r);
    recipe_free(&r);
    return 0;
}
