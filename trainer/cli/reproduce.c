/* adamod reproduce: the runs, tables and figures of a study (study/study.h), which is the paper unless another is named. */
#include "core/error.h"
#include "data/sets/data_sets.h"
#include "study/study.h"
#include "support/text.h"
#include "tasks/tasks.h"
#include "cli/jobs.h"
#include "cli/make_runs.h"
#include "cli/run_recipe.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "reproduce"
enum { MAX_JOBS = 256 };

typedef struct arguments {
    cli_operands names;
    const char *out, *data, *plan, *from;
    int64_t first_seed, seeds, jobs;
    double minutes;
    bool quick, dry_run, drop;
    cli_changes changes;
} arguments;

/* "3", or "2-3". */
static int read_seeds(void *to, const cli_flag *flag, const char *value) {
    arguments *a = to;
    char *end = NULL;
    const char *dash = strchr(value, '-');
    a->first_seed = dash ? strtoll(value, &end, 10) : 1;
    const bool begins = !dash || (end == dash && end > value);
    const char *last = dash ? dash + 1 : value;
    a->seeds = strtoll(last, &end, 10);
    if (begins && isdigit((unsigned char)*last) && !*end && a->first_seed >= 1 && a->first_seed <= a->seeds &&
        a->seeds <= 100)
        return 0;
    return cli_usage(NULL, "--%s is '%.40s', expected a number of seeds from 1 to 100, or a range such as 2-3",
                     flag->name, value);
}

static const cli_flag flags[] = {
    CLI_READ("seeds", "N|A-B", "make runs with seeds 1 to N, or A to B, of each method (the plan's: 3)", read_seeds),
    CLI_SWITCH("quick", "the same plan on generated data and small models, in minutes", arguments, quick),
    CLI_SWITCH("dry-run", "only say what there is to do: runs, time, disk, data", arguments, dry_run),
    CLI_TEXT("out", "DIR", "where runs and results go (runs/PLAN, as runs/paper; with --quick runs/PLAN-quick)",
             arguments, out),
    CLI_TEXT("data", "DIR", "the cache of data sets ($ADAMOD_DATA, or ~/.cache/adamod/data)", arguments, data),
    RECIPE_DEVICE_FLAG(arguments, changes),
    CLI_CHANGE("set", "KEY=VALUE", "override a key of the recipes in all runs; may be repeated", arguments, changes,
               NULL),
    CLI_WHOLE("jobs", "N", "number of runs at the same time, which share the cores (1; with --quick one a core)",
              arguments, jobs, 1, MAX_JOBS),
    MAKE_RUNS_MINUTES(arguments, minutes),
    CLI_SWITCH("drop-checkpoints", "delete the checkpoints of each run that is over", arguments, drop),
    CLI_TEXT("from", "DIR", "make no runs; show those recorded in DIR", arguments, from),
    CLI_TEXT("plan", "FILE", "the experiments, tables and figures (recipes/paper.yaml)", arguments, plan),
    CLI_HELP_FLAG,
    {0}};

static const cli_syntax syntax = {
    .command = COMMAND,
    .help =
        "usage: adamod reproduce [NAME]... [--seeds N] [--quick] [--dry-run] [--minutes M] [--out DIR]\n\n"
        "Makes the runs of the paper that are missing, then its tables and figures: DIR/index.html, DIR/tables and\n"
        "DIR/figures. NAME is a table (table2 to table5), a figure (figure1 to figure9) or an experiment\n"
        "(cifar10-resnet34); without one, all are made. Runs that are over are kept, and interrupted ones go on.\n\n",
    .flags = flags,
    .takes = CLI_OPERANDS,
    .operands = offsetof(arguments, names)};

/* A study under way. */
typedef struct reproduction {
    const arguments *a;
    study s;
    study_options o;
    char out[PATH_MAX]; /* where they go unless --out says */
    const char **set;   /* of o */
    char **missing;     /* of each experiment: the data that its runs lack, or NULL */
    run_list runs;
} reproduction;

/* ---- the plan ---- */

/* Finds the plan beside an installed program, beside a build directory, or in ./recipes. */
static int find_plan(char out[PATH_MAX]) {
    static const char *const places[] = {"/../share/adamod/recipes/paper.yaml", "/../recipes/paper.yaml"};
    char program[PATH_MAX / 2];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(program, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        *slash = '\0';
        snprintf(out, PATH_MAX, "%s%s", program, places[i]);
        if (access(out, R_OK) == 0) return 0;
    }
    snprintf(out, PATH_MAX, "recipes/paper.yaml");
    if (access(out, R_OK) == 0) return 0;
    return adamod__refuse("there is no recipes/paper.yaml here or beside the program; name one with --plan FILE");
}

/* Lists --set as KEY=VALUE; --device has messages of its own. */
static int take_changes(reproduction *x) {
    const cli_changes *c = &x->a->changes;
    x->set = calloc((size_t)c->n + 1, sizeof *x->set);
    for (int i = 0; x->set && i < c->n; i++) {
        if (c->list[i].flag->key) x->o.device = c->list[i].value;
        else x->set[x->o.n_set++] = c->list[i].value;
    }
    x->o.set = x->set;
    return x->set ? 0 : -1;
}

static bool has_gpu(void) { return experiment_cuda_status() == ADAMOD_OK; }

/* Whether runs will use a GPU, for which the plan's minutes are meant. */
static bool uses_gpu(const reproduction *x) {
    bool cpu = false;
    for (int i = 0; i < x->o.n_set; i++) {
        if (strncmp(x->set[i], "train.backend=", 14) == 0) cpu = strcmp(x->set[i] + 14, "cpu") == 0;
    }
    if (x->o.device) cpu = strcmp(x->o.device, "cpu") == 0;
    return !cpu && jobs_ask(has_gpu);
}

/* --from makes no runs, so flags that say how have no meaning. */
static int check_from(const arguments *a) {
    const char *const flag = a->dry_run          ? "dry-run"
                             : a->jobs           ? "jobs"
                             : a->minutes        ? "minutes"
                             : a->first_seed > 1 ? "seeds A-B"
                             : a->drop           ? "drop-checkpoints"
                             : a->changes.n      ? a->changes.list[0].flag->name
                                                 : NULL;
    if (!a->from || !flag) return 0;
    return cli_usage(COMMAND, "--from makes no runs, and --%s is about making them: leave one out", flag);
}

/* runs/PLAN, so that each plan has a page of its own: runs/paper for recipes/paper.yaml. */
static void name_out(reproduction *x, const char *plan) {
    const arguments *a = x->a;
    const char *slash = strrchr(plan, '/'), *name = slash ? slash + 1 : plan;
    const char *const dot = strrchr(name, '.');
    const size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    snprintf(x->out, sizeof x->out, "runs/%.*s%s", (int)n, name, a->from ? "-from" : a->quick ? "-quick" : "");
}

static int open_study(reproduction *x) {
    const arguments *a = x->a;
    char found[PATH_MAX];
    if (check_from(a)) return CLI_USAGE;
    if (a->data && setenv("ADAMOD_DATA", a->data, 1)) return cli_fail(COMMAND, "out of memory");
    if (!a->plan && find_plan(found)) return cli_failed(COMMAND);
    const char *plan = a->plan ? a->plan : found;
    name_out(x, plan);
    x->o = (study_options){.name = (const char *const *)a->names.list,
                           .n_names = a->names.n,
                           .seeds = a->seeds,
                           .first_seed = a->first_seed,
                           .quick = a->quick,
                           .out = a->out ? a->out : x->out,
                           .tasks = tasks_all};
    if (take_changes(x)) return cli_fail(COMMAND, "out of memory");
    x->o.minutes = uses_gpu(x);
    if (study_read(&x->s, plan)) return cli_failed(COMMAND);
    x->missing = calloc((size_t)x->s.n_experiments, sizeof *x->missing);
    if (!x->missing) return cli_fail(COMMAND, "out of memory");
    return study_check_names(&x->s, &x->o) ? cli_refused(COMMAND) : 0;
}

/* ---- data ---- */

/* The value of a key of the task; NULL: it has none. */
static const char *task_value(const recipe *r, const char *path, char out[32]) {
    for (const key_table *const *table = recipe_task(r)->keys; *table; table++) {
        const key_spec *k = key_find(*table, path);
        if (k) return key_text(k, r->task_settings, out);
    }
    return NULL;
}

/* The set of the cache that the recipe reads; NULL: none. */
static const data_set *set_of(const recipe *r) {
    char buffers[2][32];
    const char *set = task_value(r, "data.set", buffers[0]), *path = task_value(r, "data.path", buffers[1]);
    return set && !(path && *path) ? data_set_find(set) : NULL;
}

/* The same if the cache does not have it. */
static const data_set *missing_set(const recipe *r) {
    const data_set *found = set_of(r);
    return found && data_set_state(found) != DATA_PREPARED ? found : NULL;
}

static int experiment_of(const study *s, const char *name) {
    int i = 0;
    while (strcmp(s->experiment[i].name, name) != 0) i++;
    return i;
}

/* Takes out runs whose data are missing, so that the others can be made; notes it for the page. */
static int drop_missing(reproduction *x) {
    for (int i = x->runs.n - 1; i >= 0; i--) {
        const run_entry *e = &x->runs.at[i];
        const data_set *set = e->state == RUN_IS_OVER ? NULL : missing_set(&e->r);
        if (!set) continue;
        char **missing = &x->missing[experiment_of(&x->s, e->group)];
        if (!*missing && asprintf(missing, "adamod data prepare %s", set->name) < 0)
            return cli_fail(COMMAND, "out of memory");
        run_list_remove(&x->runs, i);
    }
    return 0;
}

/* ---- what there is to do ---- */

static void print_missing(const reproduction *x) {
    for (int i = 0; i < x->s.n_experiments; i++) {
        if (x->missing[i]) printf("%s: data are missing; get them by '%s'\n", x->s.experiment[i].name, x->missing[i]);
    }
}

static bool is_read(const reproduction *x, const data_set *set) {
    for (int i = 0; i < x->runs.n; i++) {
        if (x->runs.at[i].state != RUN_IS_OVER && set_of(&x->runs.at[i].r) == set) return true;
    }
    return false;
}

/* Says before hours are spent what tables will say of runs to be made. */
static void print_own(const reproduction *x) {
    for (int i = 0; i < data_sets_n; i++) {
        data_origin origin;
        if (!is_read(x, &data_sets[i])) continue;
        data_set_origin(&data_sets[i], &origin);
        if (origin.kind == DATA_OF_OWN_FILES)
            text_line(stdout, "%s: %s: tables will say \"own files\"", data_sets[i].name, origin.why);
        else if (origin.kind != DATA_AS_PUBLISHED)
            text_line(
                stdout,
                "%s: %s: tables will say \"own files\"; 'adamod data prepare --again %s' prepares the published ones",
                data_sets[i].name, origin.why, data_sets[i].name);
    }
}

/* The plan's minutes, where they are of another machine. */
static void print_hours(const reproduction *x) {
    double minutes = 0;
    for (int i = 0; i < x->runs.n; i++) {
        if (x->runs.at[i].state != RUN_IS_OVER)
            minutes += x->s.experiment[experiment_of(&x->s, x->runs.at[i].group)].minutes;
    }
    if (x->o.quick || x->o.minutes || !(minutes > 0)) return;
    text_line(stdout, "On %s, for which the plan gives times, these runs take %.1f hours in all.",
              x->s.machine ? x->s.machine : "its machine", minutes / 60);
}

static int to_do(const reproduction *x) {
    int n = 0;
    for (int i = 0; i < x->runs.n; i++) n += x->runs.at[i].state != RUN_IS_OVER;
    return n;
}

/* ---- all ---- */

static int64_t jobs_of(const arguments *a) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (a->jobs || !a->quick) return a->jobs;
    return cores < 1 ? 1 : cores > 16 ? 16 : cores;
}

static int make(reproduction *x, int *failed) {
    const make_options how = {.command = COMMAND,
                              .out = x->o.out,
                              .jobs = jobs_of(x->a),
                              .minutes = x->a->minutes,
                              .drop = x->a->drop,
                              .again = "the same command"};
    if (study_plan(&x->s, &x->o, &x->runs)) return cli_refused(COMMAND);
    if (run_list_look(&x->runs)) return cli_failed(COMMAND);
    for (int i = 0; x->a->drop && i < x->runs.n; i++) x->runs.at[i].bytes = NAN; /* the plan's are with checkpoints */
    make_runs_print(&x->runs, &how);
    print_hours(x);
    const int status = drop_missing(x);
    if (status) return status;
    print_missing(x);
    print_own(x);
    fflush(stdout);
    if (x->a->dry_run || !to_do(x)) return 0;
    return make_runs(&x->runs, &how, failed);
}

/* A run with another name than the plan expects is easily overlooked. */
static void name_strangers(const reproduction *x) {
    char first[512];
    const int n = study_strangers(&x->s, x->a->from, first, sizeof first);
    if (n)
        text_line(stderr, "adamod: " COMMAND ": %d run%s in %s %s of no method of this study and not shown: %s%s", n,
                  n > 1 ? "s" : "", x->a->from, n > 1 ? "are" : "is", first, n > 1 ? " is the first" : "");
}

static int write_report(const reproduction *x) {
    int n;
    const metric *known = tasks_metrics(&n);
    const char *from = x->a->from ? x->a->from : x->o.out;
    if (study_report(&x->s, &x->o, from, (const char *const *)x->missing, known, n)) return cli_failed(COMMAND);
    if (x->a->from) name_strangers(x);
    text_line(stdout, "The page is %s/index.html; tables and figures are beside it", x->o.out);
    return 0;
}

static int reproduce(reproduction *x) {
    int failed = 0, status = open_study(x);
    if (!status && !x->a->from) status = make(x, &failed);
    if (!status && !x->a->dry_run) status = write_report(x);
    return status ? status : failed ? CLI_FAILURE : 0;
}

static void close_reproduction(reproduction *x) {
    for (int i = 0; x->missing && i < x->s.n_experiments; i++) free(x->missing[i]);
    free(x->missing);
    free(x->set);
    run_list_free(&x->runs);
    study_free(&x->s);
}

int cli_reproduce(int argc, char **argv) {
    arguments a = {0};
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status < 0) {
        reproduction x = {.a = &a};
        status = reproduce(&x);
        close_reproduction(&x);
    }
    free(a.changes.list);
    return status;
}
