/* adamod compare: variants of a recipe one after another, ending in one report. */
#include "report/report.h"
#include "train/run.h"
#include "tasks/tasks.h"
#include "cli/training.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLAG_VARY, FLAG_VARIANT, FLAG_SEEDS, FLAG_SET, FLAG_OUT, FLAG_DEVICE, FLAG_RESUME, FLAG_NO_REPORT, FLAG_HELP };
static const cli_flag flags[] = {{"vary", "KEY=A,B,..", "a run for each value; given again, for each combination"},
                                 {"variant", "'NAME: K=V ..'", "a run with these keys set; given again, one more"},
                                 {"seeds", "N", "each of them with seeds 1 to N (1)"},
                                 {"set", "KEY=VALUE", "override a key of the recipe in all runs; may be given again"},
                                 {"out", "DIR", "the directory of run directories (runs/NAME-compare)"},
                                 TRAINING_DEVICE_FLAG,
                                 {"resume", NULL, "continue what an interrupted comparison left"},
                                 {"no-report", NULL, "no page at the end"},
                                 CLI_HELP_FLAG,
                                 {0}};

static void print_help(void) {
    printf(
        "usage: adamod compare RECIPE [--vary KEY=A,B,..]... [--variant 'NAME: KEY=VALUE ..']... [--seeds N] [--out DIR]\n\n"
        "Runs variants of a recipe one after another and writes one report of them all, DIR/report.html.\n"
        "--vary optimizer=adamod,adam,sgd is short for optimizer.rule; options the rule does not have are dropped.\n\n");
    cli_print_flags(stdout, flags);
}

enum { MAX_RUNS = 256, MAX_LISTS = 8, VALUE = RECIPE_PATH + 1 /* too long for a recipe is not cut to what fits */ };

typedef struct comparison {
    const char *recipe, *out;
    const char *vary[MAX_LISTS], *variant[64];
    int n_vary, n_variants;
    int64_t seeds;
    bool resume, no_report;
    recipe base;
    /* of each run */
    char *directory[MAX_RUNS];
    int n;
} comparison;

static int parse(int argc, char **argv, comparison *c, bool overrides) {
    cli_parser p = {.command = "compare", .flags = flags, .argc = argc, .argv = argv};
    char message[1024];
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == FLAG_SET && overrides && recipe_set(&c->base, p.value, message, sizeof message)) {
            return cli_usage("compare", "%s", message);
        }
        if (flag == FLAG_DEVICE && overrides && training_device(&c->base, p.value, message, sizeof message)) {
            return cli_usage("compare", "%s", message);
        }
        if (overrides) continue;
        switch (flag) {
            case CLI_OPERAND:
                if (c->recipe) return cli_usage("compare", "unexpected argument '%.80s'", p.value);
                c->recipe = p.value;
                break;
            case FLAG_VARY:
                if (c->n_vary == MAX_LISTS) return cli_usage("compare", "more than %d --vary", MAX_LISTS);
                c->vary[c->n_vary++] = p.value;
                break;
            case FLAG_VARIANT:
                if (c->n_variants == 64) return cli_usage("compare", "more than 64 --variant");
                c->variant[c->n_variants++] = p.value;
                break;
            case FLAG_SEEDS:
                if (!cli_parse_int("compare", "seeds", p.value, 1, 100, &c->seeds)) return CLI_USAGE;
                break;
            case FLAG_OUT: c->out = p.value; break;
            case FLAG_RESUME: c->resume = true; break;
            case FLAG_NO_REPORT: c->no_report = true; break;
            case FLAG_HELP: print_help(); return 0;
            default: break;
        }
    }
    return c->recipe ? -1 : cli_usage("compare", "needs a recipe, say recipes/demo.yaml");
}

/* ---- variants ---- */

/* Another rule keeps the options it has; the recipe's others go. */
static int set_rule(recipe *r, const char *rule, char *message, size_t size) {
    char text[160];
    snprintf(text, sizeof text, "optimizer.rule=%.100s", rule);
    if (recipe_set(r, text, message, size)) return -1;
    for (int i = r->optimizer.n_options - 1; i >= 0; i--) {
        adamod_option option;
        if (adamod_option_find(rule, r->optimizer.option[i].key, &option) != ADAMOD_ERROR_NAME) continue;
        snprintf(text, sizeof text, "optimizer.%s=", r->optimizer.option[i].key);
        if (recipe_set(r, text, message, size)) return -1;
    }
    return 0;
}

static int set_key(recipe *r, const char *key, const char *value, char *message, size_t size) {
    if (strcmp(key, "optimizer") == 0 || strcmp(key, "optimizer.rule") == 0) return set_rule(r, value, message, size);
    char text[128 + VALUE];
    snprintf(text, sizeof text, "%.126s=%s", key, value);
    return recipe_set(r, text, message, size);
}

/* "NAME: key=value key=value"; the rule first, so that options fit it. */
static int apply_variant(recipe *r, const char *text, char *name, size_t name_size, char *message, size_t size) {
    const char *colon = strchr(text, ':');
    if (!colon || colon == text) {
        snprintf(message, size, "--variant '%.80s': expected 'NAME: KEY=VALUE ...'", text);
        return -1;
    }
    snprintf(name, name_size, "%.*s", (int)(colon - text), text);
    for (const char *word = colon + 1; *(word += strspn(word, " \t"));) {
        const size_t length = strcspn(word, " \t"), key_length = strcspn(word, "= \t");
        char key[128], value[VALUE];
        if (key_length == length) {
            snprintf(message, size, "--variant '%.80s': '%.*s' is not KEY=VALUE", name,
                     (int)(length < 80 ? length : 80), word);
            return -1;
        }
        snprintf(key, sizeof key, "%.*s", (int)key_length, word);
        snprintf(value, sizeof value, "%.*s", (int)(length - key_length - 1), word + key_length + 1);
        if (set_key(r, key, value, message, size)) return -1;
        word += length;
    }
    return 0;
}

/* Value number index of a "KEY=A,B,C" list; false past the end. Commas within parentheses do not separate. */
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

/* Combination number index of all lists: sets its keys and adds its values to the name. */
static int apply_combination(const comparison *c, int index, recipe *r, char *name, size_t name_size, char *message,
                             size_t size) {
    for (int i = 0; i < c->n_vary; i++) {
        char key[128], value[VALUE];
        const int n = list_length(c->vary[i]);
        if (n == 0) {
            snprintf(message, size, "--vary '%.80s': expected KEY=A,B,..", c->vary[i]);
            return -1;
        }
        list_value(c->vary[i], index % n, key, sizeof key, value, sizeof value);
        index /= n;
        if (set_key(r, key, value, message, size)) return -1;
        const size_t used = strlen(name);
        const char *dot = strrchr(key, '.');
        const bool rule = strcmp(key, "optimizer") == 0 || strcmp(key, "optimizer.rule") == 0;
        snprintf(name + used, name_size - used, "%s%.40s%s%.60s", used ? " " : "",
                 rule  ? ""
                 : dot ? dot + 1
                       : key,
                 rule ? "" : "=", value);
    }
    return 0;
}

/* A name as a directory's: letters, digits and dashes. */
static void slug(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        if (isalnum((unsigned char)*name) || *name == '.') out[n++] = (char)tolower((unsigned char)*name);
        else if (n > 0 && out[n - 1] != '-') out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
}

/* ---- runs ---- */

/* What would go wrong with a run: before any is made, so that it is not found after hours. */
static int check_run(comparison *c, const recipe *r, const char *name, const char *directory) {
    char message[1024], path[1200];
    snprintf(path, sizeof path, "%s/recipe.yaml", directory);
    if (recipe_check(r, message, sizeof message)) return cli_usage("compare", "%s: %s", name, message);
    if (c->n == MAX_RUNS) return cli_usage("compare", "more than %d runs", MAX_RUNS);
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->directory[i], directory) == 0)
            return cli_usage("compare", "%s: another variant is in %s too; give it another name", name, directory);
    }
    if (!c->resume && access(path, F_OK) == 0)
        return cli_fail("compare", "%s is a run already: choose another --out, or --resume to continue it", directory);
    if (!(c->directory[c->n++] = strdup(directory))) return cli_fail("compare", "out of memory");
    return 0;
}

/* Checks it, or (go) makes it. */
static int run_variant(comparison *c, recipe *r, const char *name, int64_t seed, bool go) {
    char message[1024], base[96], text[200], directory[1100], label[128];
    slug(name, base, sizeof base);
    snprintf(text, sizeof text, "name=%.60s", name);
    if (recipe_set(r, text, message, sizeof message)) return cli_usage("compare", "%s", message);
    if (c->seeds > 0) {
        snprintf(text, sizeof text, "train.seed=%lld", (long long)seed);
        if (recipe_set(r, text, message, sizeof message)) return cli_usage("compare", "%s", message);
    }
    snprintf(directory, sizeof directory, "%s/%s", c->out, base);
    snprintf(label, sizeof label, "%.80s", name);
    if (c->seeds > 1) {
        snprintf(directory, sizeof directory, "%s/%s-seed-%lld", c->out, base, (long long)seed);
        snprintf(label, sizeof label, "%.80s, seed %lld", name, (long long)seed);
    }
    if (!go) return check_run(c, r, name, directory);
    if (c->resume && run_is_over(directory)) return 0;
    struct stat exists;
    train_result result;
    const train_options how = {.directory = directory, .resume = c->resume && stat(directory, &exists) == 0};
    const int status = training_run("compare", r, &how, label, &result);
    return result.status == TRAIN_DIVERGED ? 0 : status; /* that is a result too; the others go on */
}

static int make_directory(const char *path) {
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *at = copy + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        (void)mkdir(copy, 0777);
        *at = '/';
    }
    (void)mkdir(copy, 0777);
    struct stat s;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode) && access(path, W_OK) == 0) return 0;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return cli_fail("compare", "%s: cannot write in this directory", path);
    return cli_fail("compare", "%s: cannot make this directory", path);
}

static int run_all(comparison *c, bool go) {
    char message[1024];
    int combinations = 1;
    for (int i = 0; i < c->n_vary; i++) combinations *= list_length(c->vary[i]) > 0 ? list_length(c->vary[i]) : 1;
    const int variants = c->n_variants > 0 ? c->n_variants : 1;
    for (int i = 0; i < variants * combinations; i++) {
        for (int64_t seed = 1; seed <= (c->seeds > 0 ? c->seeds : 1); seed++) {
            static recipe r;
            char name[1024] = "";
            r = c->base;
            if (c->n_variants &&
                apply_variant(&r, c->variant[i / combinations], name, sizeof name, message, sizeof message)) {
                return cli_usage("compare", "%s", message);
            }
            if (apply_combination(c, i % combinations, &r, name, sizeof name, message, sizeof message)) {
                return cli_usage("compare", "%s", message);
            }
            const int status = run_variant(c, &r, *name ? name : c->base.name, seed, go);
            if (status) return status;
        }
    }
    return 0;
}

static int report_all(const comparison *c) {
    char message[1024], page[1200];
    const char *const *runs = (const char *const *)c->directory;
    printf("\n");
    int known;
    const metric *metrics = tasks_metrics(&known);
    if (report_print_table(runs, c->n, metrics, known, message, sizeof message)) {
        return cli_fail("compare", "%s", message);
    }
    if (c->no_report) return 0;
    snprintf(page, sizeof page, "%s/report.html", c->out);
    if (report_write(runs, c->n, metrics, known, page, message, sizeof message)) {
        return cli_fail("compare", "%s", message);
    }
    printf("\nThe report is %s\n", page);
    return 0;
}

int cli_compare(int argc, char **argv) {
    static comparison c;
    static char standard[160];
    char message[1024];
    recipe_defaults(&c.base, tasks_all);
    int status = parse(argc, argv, &c, false);
    if (status >= 0) return status;
    if (recipe_load(&c.base, c.recipe, message, sizeof message)) return cli_usage("compare", "%s", message);
    if ((status = parse(argc, argv, &c, true)) >= 0) return status;
    snprintf(standard, sizeof standard, "runs/%s-compare", c.base.name);
    if (!c.out) c.out = standard;
    status = run_all(&c, false);
    if (status == 0) status = make_directory(c.out);
    if (status == 0) status = run_all(&c, true);
    if (status == 0) status = report_all(&c);
    for (int i = 0; i < c.n; i++) free(c.directory[i]);
    return status;
}
