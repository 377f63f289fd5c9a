/* compare_runs.c - the runs that a command line of `adamod compare` asks for. */
#include "cli/compare.h"

#include "core/error.h"
#include "support/keys.h"
#include "tasks/tasks.h"
#include "cli/run_recipe.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RUNS = 10000, VALUE = RECIPE_PATH + 1 /* a value too long for a recipe is refused, not cut */ };

/* ---- variants ---- */

static int set_key(recipe *r, recipe_origin by, const char *key, const char *value) {
    char text[128 + VALUE];
    snprintf(text, sizeof text, "%.126s=%s", key, value);
    return recipe_set_by(r, by, text);
}

/* Takes the next "KEY=VALUE" of a variant's text. Returns 0 at the end, or a negative status. */
static int next_word(const char **at, char *key, size_t key_size, char *value, size_t value_size) {
    const char *word = *at + strspn(*at, " \t");
    const size_t length = strcspn(word, " \t"), key_length = strcspn(word, "= \t");
    *at = word + length;
    if (!length) return 0;
    if (key_length == length) return adamod__refuse("'%.*s' is not KEY=VALUE", (int)(length < 80 ? length : 80), word);
    snprintf(key, key_size, "%.*s", (int)key_length, word);
    snprintf(value, value_size, "%.*s", (int)(length - key_length - 1), word + key_length + 1);
    return 1;
}

/* The end of a variant's name in "NAME: KEY=VALUE KEY=VALUE"; NULL: it is not of this form. */
static const char *end_of_name(const char *text) {
    const char *colon = strchr(text, ':');
    if (colon && colon > text) return colon;
    (void)adamod__refuse("--variant '%.80s': expected 'NAME: KEY=VALUE ...'", text);
    return NULL;
}

/* Sets the keys of a variant in their order: the rule comes first, since options must fit it. The tuned key is left out. */
static int apply_variant(const comparison *c, recipe *r, const char *text, const char *tuned, char *name, size_t size) {
    const char *at = end_of_name(text);
    char key[128], value[VALUE];
    int more = at ? 1 : -1;
    if (at) snprintf(name, size, "%.*s", (int)(at++ - text), text);
    while (more > 0 && (more = next_word(&at, key, sizeof key, value, sizeof value)) > 0) {
        if (strcmp(key, c->tuned) == 0) continue;
        if (tuned) run_list_fill_in(tuned, value, sizeof value);
        if (set_key(r, RECIPE_BY_CALLER, key, value)) return -1;
    }
    return more < 0 && at ? adamod__context("--variant '%.80s': ", name) : more;
}

/* Copies value `index` of a "KEY=A,B,C" list; false past the end. Commas within parentheses do not separate. */
static bool list_value(const char *list, int index, char *key, size_t key_size, char *value, size_t value_size) {
    const char *at = strchr(list, '=');
    if (!at) return false;
    snprintf(key, key_size, "%.*s", (int)(at - list), list);
    for (at++;; at++) {
        const char *begin = at;
        for (int depth = 0; *at && (*at != ',' || depth > 0); at++) depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        if (index-- == 0) {
            snprintf(value, value_size, "%.*s", (int)(at - begin), begin);
            return true;
        }
        if (!*at) return false;
    }
}

static int list_length(const char *list) {
    char key[128], value[VALUE];
    int n = 0;
    while (list_value(list, n, key, sizeof key, value, sizeof value)) n++;
    return n;
}

/* Refuses a list without a key or with an empty value. flag: what it is of. */
static int check_list(const char *flag, const char *list) {
    char key[128], value[VALUE];
    if (*list == '=' || !strchr(list, '='))
        return adamod__refuse("%s '%.80s': expected KEY=A,B,..", flag, key_show(list).text);
    for (int i = 0; list_value(list, i, key, sizeof key, value, sizeof value); i++) {
        if (!*value)
            return adamod__refuse("%s '%.80s': value %d is empty, expected KEY=A,B,..", flag, key_show(list).text,
                                  i + 1);
    }
    return 0;
}

/* Sets the keys of combination `index` of all lists, and adds its values to the name. */
static int apply_combination(const comparison *c, int index, recipe *r, char *name, size_t name_size) {
    for (int i = 0; i < c->vary.n; i++) {
        char key[128], value[VALUE];
        const int n = list_length(c->vary.list[i].value);
        if (check_list("--vary", c->vary.list[i].value)) return -1;
        list_value(c->vary.list[i].value, index % n, key, sizeof key, value, sizeof value);
        index /= n;
        if (set_key(r, RECIPE_BY_VARY, key, value)) return -1;
        run_list_add_to_name(key, value, name, name_size);
    }
    return 0;
}

/* ---- the tuned key ---- */

/* The "KEY=A,B,.." to tune in a variant: its own, or that of --tune. */
static void tuned_list(const comparison *c, int variant, char *out, size_t size) {
    char key[128], value[VALUE];
    const char *at = c->variants.n ? strchr(c->variants.list[variant].value, ':') : NULL;
    *out = '\0';
    if (!c->tune.n) return;
    snprintf(out, size, "%s", c->tune.list[0].value);
    if (!at) return;
    for (at++; next_word(&at, key, sizeof key, value, sizeof value) > 0;) {
        if (strcmp(key, c->tuned) == 0) snprintf(out, size, "%s=%s", key, value);
    }
}

static int read_tuned(comparison *c) {
    const char *text = c->tune.n ? c->tune.list[0].value : "";
    const size_t n = strcspn(text, "=");
    if (c->tune.n > 1) return adamod__refuse("more than one --tune");
    if (c->tune.n && (n == 0 || n >= sizeof c->tuned || list_length(text) == 0))
        return adamod__refuse("--tune '%.80s': expected KEY=A,B,..", text);
    snprintf(c->tuned, sizeof c->tuned, "%.*s", (int)n, text);
    return 0;
}

/* ---- the list of runs ---- */

/* At least 1. Stops counting above MAX_RUNS. */
static int combinations(const comparison *c) {
    int n = 1;
    for (int i = 0; i < c->vary.n && n <= MAX_RUNS; i++) {
        const int length = list_length(c->vary.list[i].value);
        if (length > 0) n *= length;
    }
    return n;
}

static int seeds(const comparison *c) { return c->seeds > 0 ? (int)c->seeds : 1; }

/* A run of a recipe. */
typedef struct choice {
    int variant, combination, seed;
    const char *tuned; /* value of the tuned key; NULL: none */
} choice;

/* Makes the recipe of a run; name: of its variant. */
static int derive(const comparison *c, const recipe *base, const choice *of, recipe *out, char *name, size_t size) {
    char text[200], whole[1200];
    *name = '\0';
    if (recipe_copy(out, base)) return -1;
    if (c->variants.n && apply_variant(c, out, c->variants.list[of->variant].value, of->tuned, name, size)) return -1;
    if (apply_combination(c, of->combination, out, name, size)) return -1;
    if (!*name) snprintf(name, size, "%s", base->name);
    snprintf(whole, sizeof whole, "%s", name);
    if (of->tuned && set_key(out, RECIPE_BY_TUNE, c->tuned, of->tuned)) return -1;
    if (of->tuned) run_list_add_to_name(c->tuned, of->tuned, whole, sizeof whole);
    snprintf(text, sizeof text, "name=%.60s", whole);
    if (recipe_set(out, text)) return -1;
    snprintf(text, sizeof text, "train.seed=%d", of->seed);
    return c->seeds > 0 ? recipe_set(out, text) : 0;
}

/* Notes it once for each rule. */
static void note_dropped(comparison *c, const recipe *r) {
    char line[1200];
    const size_t used = strlen(c->noted);
    if (key_lists(c->noted, r->optimizer.rule) || !recipe_dropped(r, line, sizeof line)) return;
    run_recipe_note(line);
    snprintf(c->noted + used, sizeof c->noted - used, "%s%s", used ? "," : "", r->optimizer.rule);
}

/* DIR/VARIANT[-KEY-VALUE][-seed-N], with several recipes DIR/RECIPE/VARIANT.... */
static int add_run(comparison *c, recipe *r, const char *group, const char *name, const char *tuned) {
    char whole[1200], slug[160], directory[1400], label[512], suffix[32] = "", seed[32] = "";
    const unsigned long long number = r->train.seed;
    const bool several = c->seeds > 1;
    snprintf(whole, sizeof whole, "%s", name);
    if (tuned) run_list_add_to_name(c->tuned, tuned, whole, sizeof whole);
    run_list_slug(whole, slug, tuned ? sizeof slug : 96);
    if (several || (tuned && c->seeds)) snprintf(suffix, sizeof suffix, "-seed-%llu", number);
    if (several) snprintf(seed, sizeof seed, ", seed %llu", number);
    snprintf(directory, sizeof directory, "%.1000s/%.100s%s%s%s", c->out, group, *group ? "/" : "", slug, suffix);
    snprintf(label, sizeof label, "%.180s%s%.120s%s", group, *group ? ": " : "", whole, seed);
    if (run_list_add(&c->runs, r, directory, group, name, NAN) || run_list_label(&c->runs, label)) return -1;
    return tuned ? run_list_value(&c->runs, tuned) : 0;
}

static int add_choice(comparison *c, const recipe *base, const char *group, const choice *of) {
    char name[1024];
    recipe r = {0};
    if (c->runs.n == MAX_RUNS) return adamod__refuse("more than %d runs", MAX_RUNS);
    int failed = derive(c, base, of, &r, name, sizeof name);
    if (!failed) note_dropped(c, &r);
    if (!failed) failed = add_run(c, &r, group, name, of->tuned);
    recipe_free(&r);
    return failed;
}

/* Adds the runs of a variant and a combination with the seeds first to last. */
static int add_values(comparison *c, const recipe *base, const char *group, choice of, int last) {
    char list[VALUE + 128], key[128], value[VALUE];
    const int first = of.seed;
    int failed = 0;
    tuned_list(c, of.variant, list, sizeof list);
    if (*list) failed = check_list("--tune", list);
    for (int i = 0; !failed && i < (*list ? list_length(list) : 1); i++) {
        if (*list) list_value(list, i, key, sizeof key, value, sizeof value);
        of.tuned = *list ? value : NULL;
        for (of.seed = first; !failed && of.seed <= last; of.seed++) failed = add_choice(c, base, group, &of);
    }
    return failed;
}

/* Adds the runs with the seeds first to last. group: the recipe's name among several, or "". */
static int add_seeds(comparison *c, const recipe *base, const char *group, int first, int last) {
    const int variants = c->variants.n > 0 ? c->variants.n : 1, n = combinations(c);
    int failed = (int64_t)variants * n > MAX_RUNS ? adamod__refuse("more than %d runs", MAX_RUNS) : 0;
    for (int v = 0; !failed && v < variants; v++) {
        for (int i = 0; !failed && i < n; i++)
            failed = add_values(c, base, group, (choice){.variant = v, .combination = i, .seed = first}, last);
    }
    return failed;
}

/* A key is tuned seed after seed, so that a comparison that is stopped has all values with the first seeds. */
static int add_runs(comparison *c, const recipe *base, const char *group) {
    int failed = 0;
    if (!*c->tuned) return add_seeds(c, base, group, 1, seeds(c));
    for (int seed = 1; !failed && seed <= seeds(c); seed++) failed = add_seeds(c, base, group, seed, seed);
    return failed;
}

/* A metric that nothing measures is refused before hours are spent. */
static int check_metric(const comparison *c, const recipe *r) {
    char known[400];
    if (!c->metric || recipe_measures(r, c->metric, known, sizeof known)) return 0;
    return adamod__refuse("--metric is '%s', expected one of %s", key_show(c->metric).text, known);
}

static int load(const comparison *c, int index, recipe *out) {
    if (recipe_defaults(out, tasks_all)) return -1;
    if (recipe_load(out, c->recipes.list[index]) || recipe_change(out, &c->changes)) return -1;
    return check_metric(c, out);
}

static int refuse_existing(const run_list *p) {
    for (int i = 0; i < p->n; i++) {
        char path[1500];
        const char *directory = p->at[i].directory;
        snprintf(path, sizeof path, "%s/recipe.yaml", directory);
        if (access(path, F_OK) == 0 && !run_is_unbegun(directory, &p->at[i].r))
            return cli_fail("compare", "%s is a run already: choose another --out, or --resume to continue it",
                            directory);
    }
    return 0;
}

static const char *standard_directory(comparison *c, const char *name) {
    if (c->recipes.n > 1) return "runs/compare";
    snprintf(c->standard, sizeof c->standard, "runs/%s-compare", name);
    return c->standard;
}

int compare_list_runs(comparison *c) {
    int failed = read_tuned(c);
    for (int i = 0; !failed && i < c->recipes.n; i++) {
        recipe base = {0};
        char group[96] = "";
        failed = load(c, i, &base);
        if (!failed && !c->out) c->out = standard_directory(c, base.name);
        if (c->recipes.n > 1) run_list_slug(base.name, group, sizeof group);
        if (!failed) failed = add_runs(c, &base, group);
        recipe_free(&base);
    }
    if (failed) return cli_refused("compare");
    const int status = c->resume || c->dry_run || c->show ? 0 : refuse_existing(&c->runs);
    return status ? status : run_list_look(&c->runs) ? cli_failed("compare") : 0;
}
