/* study_compare.c - runs that are not as the study plans them: shorter, on other data, with other keys. */
#include "study/study_parts.h"

#include "core/error.h"
#include "core/number.h"
#include "study/tree.h"
#include "support/keys.h"

#include <stdlib.h>
#include <string.h>

/* Whether a key changes results. Keys of train other than these only record or place the computation. */
static bool matters(const char *key) {
    static const char *const train[] = {"train.epochs",   "train.steps", "train.accumulate", "train.average",
                                        "train.patience", "train.test",  "train.init_from"};
    for (size_t i = 0; i < sizeof train / sizeof *train; i++) {
        if (strcmp(key, train[i]) == 0) return true;
    }
    return strncmp(key, "train.", 6) != 0 && strcmp(key, "name") != 0 && strcmp(key, "decode.samples") != 0;
}

static bool same_value(const char *a, const char *b) {
    double x, y;
    if (key_parse_number(a, &x) && key_parse_number(b, &y)) return x == y;
    return strcmp(a, b) == 0;
}

/* A path without its directories, which say nothing to readers elsewhere. */
static const char *shown(const char *value) {
    const char *slash = strrchr(value, '/');
    return slash && slash[1] ? slash + 1 : value;
}

static void note_length(study_cell *cell, const char *unit, const char *is, const char *planned) {
    char text[sizeof cell->length];
    snprintf(text, sizeof text, "%.20s of %.20s %s", is, planned, unit);
    if (*cell->length && strcmp(cell->length, text) != 0) snprintf(text, sizeof text, "other lengths");
    snprintf(cell->length, sizeof cell->length, "%s", text);
}

/* Whether a list with ", " between its parts has this one: "a=10" does not have "a=1". */
static bool has_part(const char *list, const char *text) {
    const size_t n = strlen(text);
    for (const char *at = list; (at = strstr(at, text)); at++) {
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ',')) return true;
    }
    return false;
}

/* Notes a text once in the list of keys. */
static void add_note(study_cell *cell, const char *text) {
    const size_t used = strlen(cell->keys);
    if (has_part(cell->keys, text) || used + strlen(text) + 3 > sizeof cell->keys) return;
    snprintf(cell->keys + used, sizeof cell->keys - used, "%s%s", used ? ", " : "", text);
}

static void note_key(study_cell *cell, const char *key, const char *is) {
    char text[160];
    snprintf(text, sizeof text, "%.60s=%.60s", key, shown(is));
    add_note(cell, text);
}

void study_note_seed(study_cell *cell, const report_run *run, int64_t seed) {
    const char *is = report_pairs_find(&run->recipe, "train.seed");
    char text[96];
    if (!is || strtoll(is, NULL, 10) == seed) return;
    snprintf(text, sizeof text, "seed %.20s in the directory of seed %lld", is, (long long)seed);
    add_note(cell, text);
}

void study_note_data(study_cell *cell, const char *method) {
    char text[160];
    snprintf(cell->data, sizeof cell->data, "other data");
    snprintf(text, sizeof text, "data of another content than those of %.60s", method);
    add_note(cell, text);
}

static void note(study_cell *cell, const char *key, const char *is, const char *planned) {
    if (strcmp(key, "train.epochs") == 0) note_length(cell, "epochs", is, planned);
    if (strcmp(key, "train.steps") == 0) note_length(cell, "updates", is, planned);
    if (strcmp(key, "data.path") == 0 && !*cell->data) snprintf(cell->data, sizeof cell->data, REMARKS_OWN);
    else if (strncmp(key, "data.", 5) == 0) snprintf(cell->data, sizeof cell->data, "other data");
    note_key(cell, key, is);
}

static const char option_section[] = "optimizer.", schedule_section[] = "optimizer.schedule.";

/* The value of an option or a schedule that a recipe does not give; NULL: the key is neither. */
static const char *default_of(const char *rule, const char *key, char out[32]) {
    adamod_option o;
    if (strncmp(key, schedule_section, strlen(schedule_section)) == 0) return "none";
    if (!rule || strncmp(key, option_section, strlen(option_section)) != 0 ||
        adamod_option_find(rule, key + strlen(option_section), &o))
        return NULL;
    return o.kind == ADAMOD_CHOICE ? o.choices[(int)o.value] : adamod__number(o.value, out);
}

/* The value of a key in a run; NULL: not known. */
static const char *value_in(const report_run *run, const char *key, char out[32]) {
    const char *given = report_pairs_find(&run->recipe, key);
    return given ? given : default_of(report_pairs_find(&run->recipe, "optimizer.rule"), key, out);
}

/* Notes options and schedules that the run has and the plan has not, and that are not the default. */
static void compare_options(study_cell *cell, const report_run *run, const recipe *planned) {
    for (size_t i = 0; i < run->recipe.n; i++) {
        const report_pair *p = &run->recipe.at[i];
        const bool schedule = strncmp(p->key, schedule_section, strlen(schedule_section)) == 0;
        const size_t prefix = strlen(schedule ? schedule_section : option_section);
        char number[32];
        const char *usual = default_of(planned->optimizer.rule, p->key, number);
        if (!usual || same_value(p->value, usual)) continue;
        if (!recipe_find_pair(schedule ? &planned->optimizer.schedules : &planned->optimizer.options, p->key + prefix))
            note_key(cell, p->key, p->value);
    }
}

/* Compares the run with the planned recipe, key by key. A key that the run lacks is of another version, or gives the
 * length in the other unit (steps for epochs). */
static void walk(study_cell *cell, const report_run *run, const tree *t, const char *path) {
    for (int i = 0; i < t->n; i++) {
        const tree *child = &t->child[i];
        char key[256];
        snprintf(key, sizeof key, "%.160s%s%.80s", path, *path ? "." : "", child->key ? child->key : "");
        if (child->kind == TREE_SECTION) {
            walk(cell, run, child, key);
            continue;
        }
        char number[32];
        const char *is = child->kind == TREE_WORD ? value_in(run, key, number) : NULL;
        if (is && matters(key) && !same_value(is, child->text)) note(cell, key, is, child->text);
    }
}

/* Notes a length in updates where the plan has epochs, or the other way round. */
static void compare_units(study_cell *cell, const report_run *run, const recipe *planned) {
    const bool epochs = planned->train.epochs > 0;
    const char *other = report_pairs_find(&run->recipe, epochs ? "train.steps" : "train.epochs");
    if (!other || report_pairs_find(&run->recipe, epochs ? "train.epochs" : "train.steps")) return;
    if (!*cell->length)
        snprintf(cell->length, sizeof cell->length, "%.20s %s%s", other, epochs ? "update" : "epoch",
                 strcmp(other, "1") == 0 ? "" : "s");
    note_key(cell, epochs ? "train.steps" : "train.epochs", other);
}

/* Notes that the run's recipe cannot be read. */
static void note_no_recipe(study_cell *cell) {
    snprintf(cell->data, sizeof cell->data, "recipe not known");
    add_note(cell, "recipe.yaml cannot be read");
}

/* Notes that the data set in the cache was not the published one; other data say more. */
static void note_own(study_cell *cell, const report_run *run) {
    if (!*run->own) return;
    if (!*cell->data) snprintf(cell->data, sizeof cell->data, REMARKS_OWN);
    add_note(cell, run->own);
}

int study_compare(study_cell *cell, const report_run *run, const recipe *planned) {
    if (remarks_add_note(&cell->notes, run)) return -1;
    if (!run->recipe.n) return note_no_recipe(cell), 0;
    char *text = NULL;
    size_t n = 0;
    tree t = {0};
    FILE *file = open_memstream(&text, &n);
    if (!file) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    int status = recipe_write(planned, file);
    if (fclose(file) || status) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (!status) status = tree_parse(&t, text, n, "recipe");
    if (!status) {
        walk(cell, run, &t, "");
        compare_units(cell, run, planned);
        compare_options(cell, run, planned);
        note_own(cell, run);
    }
    tree_free(&t);
    free(text);
    return status;
}
