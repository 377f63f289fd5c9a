/* adamod compare: variants of a recipe one after another or at the same time, ending in one report. */
#include "support/directory.h"
#include "core/error.h"
#include "support/text.h"
#include "train/run.h"
#include "tasks/tasks.h"
#include "cli/compare_view.h"
#include "cli/jobs.h"
#include "cli/run_recipe.h"
#include "train/progress.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_RUNS = 256,
    MAX_LISTS = 8,
    MAX_VARIANTS = 64,
    VALUE = RECIPE_PATH + 1 /* a value too long for a recipe is refused, not cut */
};

typedef struct comparison {
    const char *recipe, *out;
    cli_changes vary, variants;
    int64_t seeds, jobs;
    bool resume, no_report;
    cli_changes changes;
    recipe base;
    char *directory[MAX_RUNS], *label[MAX_RUNS]; /* of each run */
    int n;
    char noted[1024];           /* list of the rules whose dropped options were named */
    const char *made[MAX_RUNS]; /* the directories of those that did not fail */
    int n_made;
    scoreboard *board;
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
    CLI_WHOLE("jobs", "N", "number of runs at the same time, which share the cores (1)", comparison, jobs, 1, MAX_RUNS),
    CLI_SWITCH("resume", "continue an interrupted comparison", comparison, resume),
    CLI_SWITCH("no-report", "write no report", comparison, no_report),
    CLI_HELP_FLAG,
    {0}};

static const cli_syntax syntax = {
    .command = "compare",
    .help =
        "usage: adamod compare RECIPE [--vary KEY=A,B,..]... [--variant 'NAME: KEY=VALUE ..']... [--seeds N] [--jobs N] [--out DIR]\n\n"
        "Runs variants of a recipe and writes one report of them all, DIR/report.html.\n"
        "--vary optimizer=adamod,adam,sgd is short for optimizer.rule; options the rule does not have are dropped.\n\n",
    .flags = flags,
    .takes = CLI_ONE_OPERAND,
    .operands = offsetof(comparison, recipe)};

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

/* Makes a directory's name of letters, digits and dashes. */
static void slug(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        if (isalnum((unsigned char)*name) || *name == '.') out[n++] = (char)tolower((unsigned char)*name);
        else if (n > 0 && out[n - 1] != '-') out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
}

static int make_directory(const char *path) {
    const int error = directory_make(path, NULL);
    if (error) return cli_fail("compare", "%s: cannot make this directory: %s", path, strerror(error));
    if (access(path, W_OK) == 0) return 0;
    return cli_fail("compare", "%s: cannot write in this directory: %s", path, strerror(errno));
}

/* ---- runs ---- */

/* A variant with a seed. */
typedef struct variant_run {
    recipe r;
    char name[1024]; /* of the variant */
    char directory[1100];
    char label[128]; /* for people, with the seed where there are several */
} variant_run;

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

static int runs(const comparison *c) { return (c->variants.n > 0 ? c->variants.n : 1) * combinations(c) * seeds(c); }

static void name_run(const comparison *c, int seed, variant_run *v) {
    char base[96];
    slug(v->name, base, sizeof base);
    snprintf(v->directory, sizeof v->directory, "%s/%s", c->out, base);
    snprintf(v->label, sizeof v->label, "%.80s", v->name);
    if (c->seeds <= 1) return;
    snprintf(v->directory, sizeof v->directory, "%s/%s-seed-%d", c->out, base, seed);
    snprintf(v->label, sizeof v->label, "%.80s, seed %d", v->name, seed);
}

/* Fills in run `index`. Returns the exit status. */
static int find_run(const comparison *c, int index, variant_run *v) {
    const int seed = 1 + index % seeds(c), combination = index / seeds(c) % combinations(c);
    const int variant = index / seeds(c) / combinations(c);
    char text[200];
    recipe_free(&v->r);
    if (recipe_copy(&v->r, &c->base)) return cli_failed("compare");
    *v->name = '\0';
    int failed = c->variants.n && apply_variant(&v->r, c->variants.list[variant].value, v->name, sizeof v->name);
    if (!failed) failed = apply_combination(c, combination, &v->r, v->name, sizeof v->name);
    if (!failed && !*v->name) snprintf(v->name, sizeof v->name, "%s", c->base.name);
    snprintf(text, sizeof text, "name=%.60s", v->name);
    if (!failed) failed = recipe_set(&v->r, text);
    snprintf(text, sizeof text, "train.seed=%d", seed);
    if (!failed && c->seeds > 0) failed = recipe_set(&v->r, text);
    if (failed) return cli_refused("compare");
    name_run(c, seed, v);
    return 0;
}

/* Notes it once for each rule. */
static void note_dropped(comparison *c, const recipe *r) {
    char line[1200];
    const size_t used = strlen(c->noted);
    if (key_lists(c->noted, r->optimizer.rule) || !recipe_dropped(r, line, sizeof line)) return;
    run_recipe_note(line);
    snprintf(c->noted + used, sizeof c->noted - used, "%s%s", used ? "," : "", r->optimizer.rule);
}

/* Checks a run before any is made, so that mistakes are not found after hours. */
static int check_run(comparison *c, const variant_run *v) {
    char path[1200];
    snprintf(path, sizeof path, "%s/recipe.yaml", v->directory);
    if (recipe_check(&v->r)) return cli_usage("compare", "%s: %s", v->name, adamod__last_message());
    note_dropped(c, &v->r);
    if (c->n == MAX_RUNS) return cli_usage("compare", "more than %d runs", MAX_RUNS);
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->directory[i], v->directory) == 0)
            return cli_usage("compare", "%s: another variant is in %s too; give it another name", v->name,
                             v->directory);
    }
    if (!c->resume && access(path, F_OK) == 0 && !run_is_unbegun(v->directory, &v->r))
        return cli_fail("compare", "%s is a run already: choose another --out, or --resume to continue it",
                        v->directory);
    if (!(c->directory[c->n] = strdup(v->directory)) || !(c->label[c->n] = strdup(v->label)))
        return cli_fail("compare", "out of memory");
    c->n++;
    return 0;
}

static int check_all(comparison *c) {
    static variant_run v;
    int status = 0;
    for (int i = 0; !status && i < runs(c); i++) {
        status = find_run(c, i, &v);
        if (!status) status = check_run(c, &v);
    }
    return status;
}

static bool is_over(const comparison *c, int index) { return c->resume && run_is_over(c->directory[index]); }

/* Makes a run. Returns the exit status: 0 for a run that diverged, which is a result too. */
static int make_run(const comparison *c, int index, int at_once) {
    static variant_run v;
    struct stat exists;
    train_result result = {0};
    int status = find_run(c, index, &v);
    if (status) return status;
    const train_options how = {.directory = v.directory,
                               .resume = c->resume && stat(v.directory, &exists) == 0,
                               .at_once = at_once,
                               .board = c->board,
                               .place = index};
    scoreboard_begin(c->board, index);
    status = run_recipe("compare", &v.r, &how, v.label, &result);
    scoreboard_end(c->board, index);
    return result.status == TRAIN_DIVERGED ? 0 : status;
}

/* ---- several at the same time ---- */

typedef struct work {
    const comparison *c;
    int run[MAX_RUNS]; /* their numbers */
    int n, at_once;
} work;

static int make_job(void *context, int job) {
    const work *w = context;
    if (job > 0) run_recipe_noted();
    return make_run(w->c, w->run[job], w->at_once);
}

/* A run that was killed has not said that it is over. */
static void end_job(void *context, int job) {
    const work *w = context;
    scoreboard_end(w->c->board, w->run[job]);
}

static void show_jobs(void *context) {
    const work *w = context;
    compare_view_draw(w->c->board, w->c->label);
}

static int make_side_by_side(const comparison *c, int *status) {
    const bool terminal = isatty(STDERR_FILENO);
    work w = {.c = c};
    int statuses[MAX_RUNS];
    for (int i = 0; i < c->n; i++) {
        status[i] = 0;
        if (!is_over(c, i)) w.run[w.n++] = i;
    }
    w.at_once = w.n < c->jobs ? w.n : (int)c->jobs;
    const jobs j = {w.n, w.at_once, make_job, &w, end_job, terminal ? show_jobs : NULL};
    const int stopped = jobs_run(&j, statuses);
    if (terminal) progress_clear();
    for (int i = 0; i < w.n; i++) status[w.run[i]] = statuses[i];
    return stopped;
}

/* ---- all ---- */

static int make_one_by_one(const comparison *c, int *status) {
    for (int i = 0; i < c->n; i++) {
        status[i] = is_over(c, i) ? 0 : make_run(c, i, 0);
        if (status[i] > 128) return status[i]; /* the user wants to stop */
    }
    return 0;
}

/* Comes first, since data may take long to read. */
static void introduce(const comparison *c) {
    int over = 0;
    if (!isatty(STDERR_FILENO) && !(c->base.train.progress_every > 0)) return;
    for (int i = 0; i < c->n; i++) over += is_over(c, i);
    fprintf(stderr, "%d run%s", c->n, c->n > 1 ? "s" : "");
    if (c->jobs > 1) fprintf(stderr, ", %lld at a time", (long long)c->jobs);
    if (over) fprintf(stderr, ", of which %d %s over", over, over > 1 ? "are" : "is");
    fprintf(stderr, "; in ");
    text_print(stderr, c->out);
    fprintf(stderr, "\n");
}

/* Makes all runs. Names those that failed, which the report leaves out. */
static int make_all(comparison *c) {
    int status[MAX_RUNS];
    c->board = scoreboard_create(c->n, (int)c->jobs);
    if (!c->board) return cli_fail("compare", "out of memory");
    for (int i = 0; i < c->n; i++) {
        if (is_over(c, i)) scoreboard_end(c->board, i);
    }
    introduce(c);
    const int stopped = c->jobs > 1 ? make_side_by_side(c, status) : make_one_by_one(c, status);
    for (int i = 0; !stopped && i < c->n; i++) {
        if (status[i] > 128) (void)cli_fail("compare", "%s was killed by signal %d", c->label[i], status[i] - 128);
        else if (status[i]) (void)cli_fail("compare", "%s failed", c->label[i]);
        else c->made[c->n_made++] = c->directory[i];
    }
    return stopped;
}

static int report_all(const comparison *c) {
    char page[1200];
    printf("\n");
    snprintf(page, sizeof page, "%s/report.html", c->out);
    return cli_write_report("compare", c->made, c->n_made, c->no_report ? NULL : page);
}

int cli_compare(int argc, char **argv) {
    static comparison c;
    static char standard[160];
    if (recipe_defaults(&c.base, tasks_all)) return cli_failed("compare");
    int status = cli_parse(&syntax, argc, argv, &c);
    if (status >= 0) return status;
    if (c.vary.n > MAX_LISTS) return cli_usage("compare", "more than %d --vary", MAX_LISTS);
    if (c.variants.n > MAX_VARIANTS) return cli_usage("compare", "more than %d --variant", MAX_VARIANTS);
    if (!c.recipe) return cli_usage("compare", "needs a recipe, say recipes/demo.yaml");
    if (recipe_load(&c.base, c.recipe) || recipe_change(&c.base, &c.changes)) return cli_refused("compare");
    snprintf(standard, sizeof standard, "runs/%s-compare", c.base.name);
    if (!c.out) c.out = standard;
    status = check_all(&c);
    if (status == 0) status = make_directory(c.out);
    if (status == 0) status = make_all(&c);
    if (status == 0 && c.n_made > 0) status = report_all(&c);
    if (status == 0 && c.n_made < c.n) status = CLI_FAILURE;
    scoreboard_free(c.board);
    free(c.changes.list);
    free(c.vary.list);
    free(c.variants.list);
    for (int i = 0; i < c.n; i++) {
        free(c.directory[i]);
        free(c.label[i]);
    }
    return status;
}
