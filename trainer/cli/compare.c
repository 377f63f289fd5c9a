/* adamod compare: variants of a recipe one after another or at the same time, ending in one report. */
#include "core/error.h"
#include "tasks/tasks.h"
#include "cli/make_runs.h"
#include "cli/run_recipe.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_RUNS = 10000,
    MAX_JOBS = 256,
    MAX_LISTS = 8,
    VALUE = RECIPE_PATH + 1 /* a value too long for a recipe is refused, not cut */
};

typedef struct comparison {
    cli_operands recipes;
    const char *out;
    cli_changes vary, variants;
    int64_t seeds, jobs;
    double minutes;
    bool resume, no_report, dry_run;
    cli_changes changes;
    char noted[1024]; /* list of the rules whose dropped options were named */
    run_list runs;
} comparison;

static const cli_flag flags[] = {
    CLI_CHANGE("vary", "KEY=A,B,..", "a run for each value; if repeated, for each combination of values", comparison,
               vary, NULL),
    CLI_CHANGE("variant", "'NAME: K=V ..'", "a run with these keys set; may be repeated", comparison, variants, NULL),
    CLI_WHOLE("seeds", "N", "repeat each run with seeds 1 to N (1)", comparison, seeds, 1, 100),
    CLI_CHANGE("set", "KEY=VALUE", "override a key of the recipe in all runs; may be repeated", comparison, changes,
               NULL),
    CLI_TEXT("out", "DIR", "where the run directories go (runs/NAME-compare)", comparison, out),
    RECIPE_DEVICE_FLAG(comparison, changes),
    CLI_WHOLE("jobs", "N", "number of runs at the same time, which share the cores (1)", comparison, jobs, 1, MAX_JOBS),
    MAKE_RUNS_MINUTES(comparison, minutes),
    CLI_SWITCH("dry-run", "only say what there is to do: runs, time, disk", comparison, dry_run),
    CLI_SWITCH("resume", "continue an interrupted comparison", comparison, resume),
    CLI_SWITCH("no-report", "write no report", comparison, no_report),
    CLI_HELP_FLAG,
    {0}};

static const cli_syntax syntax = {
    .command = "compare",
    .help =
        "usage: adamod compare RECIPE... [--vary KEY=A,B,..]... [--variant 'NAME: KEY=VALUE ..']... [--seeds N] [--jobs N] [--out DIR]\n\n"
        "Runs variants of a recipe and writes one report of them all, DIR/report.html.\n"
        "--vary optimizer=adamod,adam,sgd is short for optimizer.rule; options the rule does not have are dropped.\n\n",
    .flags = flags,
    .takes = CLI_OPERANDS,
    .operands = offsetof(comparison, recipes)};

/* ---- variants ---- */

static int set_key(recipe *r, const char *key, const char *value) {
    char text[128 + VALUE];
    snprintf(text, sizeof text, "%.126s=%s", key, value);
    return recipe_set(r, text);
}

/* text: "NAME: KEY=VALUE KEY=VALUE", the rule first, since options must fit it. */
static int apply_variant(recipe *r, const char *text, char *name, size_t name_size) {
    const char *colon = strchr(text, ':');
    if (!colon || colon == text) return adamod__refuse("--variant '%.80s': expected 'NAME: KEY=VALUE ...'", text);
    snprintf(name, name_size, "%.*s", (int)(colon - text), text);
    for (const char *word = colon + 1; *(word += strspn(word, " \t"));) {
        const size_t length = strcspn(word, " \t"), key_length = strcspn(word, "= \t");
        char key[128], value[VALUE];
        if (key_length == length)
            return adamod__refuse("--variant '%.80s': '%.*s' is not KEY=VALUE", name, (int)(length < 80 ? length : 80),
                                  word);
        snprintf(key, sizeof key, "%.*s", (int)key_length, word);
        snprintf(value, sizeof value, "%.*s", (int)(length - key_length - 1), word + key_length + 1);
        if (set_key(r, key, value)) return -1;
        word += length;
    }
    return 0;
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

/* A value in a name: the last part of a path. */
static const char *label_of(const char *value) {
    const char *slash = strrchr(value, '/');
    return slash && slash[1] ? slash + 1 : value;
}

/* Sets the keys of combination `index` of all lists, and adds its values to the name. */
static int apply_combination(const comparison *c, int index, recipe *r, char *name, size_t name_size) {
    for (int i = 0; i < c->vary.n; i++) {
        char key[128], value[VALUE];
        const int n = list_length(c->vary.list[i].value);
        if (n == 0) return adamod__refuse("--vary '%.80s': expected KEY=A,B,..", c->vary.list[i].value);
        list_value(c->vary.list[i].value, index % n, key, sizeof key, value, sizeof value);
        index /= n;
        if (set_key(r, key, value)) return -1;
        const size_t used = strlen(name);
        const char *dot = strrchr(key, '.');
        const bool rule = strcmp(key, "optimizer") == 0 || strcmp(key, "optimizer.rule") == 0;
        snprintf(name + used, name_size - used, "%s%.40s%s%.60s", used ? " " : "",
                 rule  ? ""
                 : dot ? dot + 1
                       : key,
                 rule ? "" : "=", label_of(value));
    }
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

static int64_t runs_of_recipe(const comparison *c) {
    return (int64_t)(c->variants.n > 0 ? c->variants.n : 1) * combinations(c) * seeds(c);
}

/* Makes the recipe of a run; name: of its variant. */
static int derive(const comparison *c, const recipe *base, int index, recipe *out, char *name, size_t size) {
    const int seed = 1 + index % seeds(c), combination = index / seeds(c) % combinations(c);
    const int variant = index / seeds(c) / combinations(c);
    char text[200];
    *name = '\0';
    if (recipe_copy(out, base)) return -1;
    if (c->variants.n && apply_variant(out, c->variants.list[variant].value, name, size)) return -1;
    if (apply_combination(c, combination, out, name, size)) return -1;
    if (!*name) snprintf(name, size, "%s", base->name);
    snprintf(text, sizeof text, "name=%.60s", name);
    if (recipe_set(out, text)) return -1;
    snprintf(text, sizeof text, "train.seed=%d", seed);
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

/* DIR/VARIANT[-seed-N], with several recipes DIR/RECIPE/VARIANT[-seed-N]. */
static int add_run(comparison *c, recipe *r, const char *group, const char *name) {
    char slug[96], folder[200] = "", directory[1400], seed[32] = "", label[512];
    run_list_slug(name, slug, sizeof slug);
    if (*group) snprintf(folder, sizeof folder, "%.180s/", group);
    if (c->seeds > 1) snprintf(seed, sizeof seed, "-seed-%llu", (unsigned long long)r->train.seed);
    snprintf(directory, sizeof directory, "%.1000s/%s%s%s", c->out, folder, slug, seed);
    if (c->seeds > 1) snprintf(seed, sizeof seed, ", seed %llu", (unsigned long long)r->train.seed);
    snprintf(label, sizeof label, "%.180s%s%.80s%s", group, *group ? ": " : "", name, seed);
    if (run_list_add(&c->runs, r, directory, group, name, NAN)) return -1;
    return run_list_label(&c->runs, label);
}

/* group: the recipe's name among several, or "". */
static int add_runs(comparison *c, const recipe *base, const char *group) {
    char name[1024];
    int failed = 0;
    if (c->runs.n + runs_of_recipe(c) > MAX_RUNS) return adamod__refuse("more than %d runs", MAX_RUNS);
    for (int i = 0; !failed && i < runs_of_recipe(c); i++) {
        recipe r = {0};
        failed = derive(c, base, i, &r, name, sizeof name);
        if (!failed) note_dropped(c, &r);
        if (!failed) failed = add_run(c, &r, group, name);
        recipe_free(&r);
    }
    return failed;
}

static int load(const comparison *c, int index, recipe *out) {
    if (recipe_defaults(out, tasks_all)) return -1;
    return recipe_load(out, c->recipes.list[index]) ? -1 : recipe_change(out, &c->changes);
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

/* Lists and checks all runs before any is made, so that mistakes are not found after hours. */
static int list_runs(comparison *c) {
    static char standard[160];
    int failed = 0;
    for (int i = 0; !failed && i < c->recipes.n; i++) {
        recipe base = {0};
        char group[96] = "";
        failed = load(c, i, &base);
        snprintf(standard, sizeof standard, "runs/%s-compare", base.name);
        if (!failed && !c->out) c->out = standard;
        if (c->recipes.n > 1) run_list_slug(base.name, group, sizeof group);
        if (!failed) failed = add_runs(c, &base, group);
        recipe_free(&base);
    }
    if (failed) return cli_refused("compare");
    const int status = c->resume || c->dry_run ? 0 : refuse_existing(&c->runs);
    return status ? status : run_list_look(&c->runs) ? cli_failed("compare") : 0;
}

/* ---- all ---- */

/* Reports the runs of a group that are over, on a page in its directory. */
static int report_group(const comparison *c, const char *group) {
    const char **runs = calloc((size_t)c->runs.n, sizeof *runs);
    char page[1400];
    int n = 0;
    if (!runs) return cli_fail("compare", "out of memory");
    for (int i = 0; i < c->runs.n; i++) {
        const run_entry *e = &c->runs.at[i];
        if (e->state == RUN_IS_OVER && strcmp(e->group, group) == 0) runs[n++] = e->directory;
    }
    snprintf(page, sizeof page, "%s/%s%sreport.html", c->out, group, *group ? "/" : "");
    if (n) printf("\n");
    const int status = n ? cli_write_report("compare", runs, n, c->no_report ? NULL : page) : 0;
    free(runs);
    return status;
}

static int report_all(const comparison *c) {
    int status = 0;
    for (int i = 0; !status && i < c->runs.n; i++) {
        if (i == 0 || strcmp(c->runs.at[i].group, c->runs.at[i - 1].group) != 0)
            status = report_group(c, c->runs.at[i].group);
    }
    return status;
}

static int compare(comparison *c) {
    int failed = 0, status = list_runs(c);
    const make_options how = {.command = "compare",
                              .out = c->out,
                              .jobs = c->jobs,
                              .minutes = c->minutes,
                              .again = "the same command and --resume"};
    if (!status && c->dry_run) return make_runs_print(&c->runs, &how), 0;
    if (!status) status = make_runs(&c->runs, &how, &failed);
    if (!status) status = report_all(c);
    return !status && failed ? CLI_FAILURE : status;
}

int cli_compare(int argc, char **argv) {
    comparison c = {0};
    int status = cli_parse(&syntax, argc, argv, &c);
    if (status >= 0) return status;
    if (c.vary.n > MAX_LISTS) status = cli_usage("compare", "more than %d --vary", MAX_LISTS);
    else if (!c.recipes.n) status = cli_usage("compare", "needs a recipe, say recipes/demo.yaml");
    else status = compare(&c);
    run_list_free(&c.runs);
    free(c.changes.list);
    free(c.vary.list);
    free(c.variants.list);
    return status;
}
