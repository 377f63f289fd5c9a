/* adamod compare: variants of recipes one after another or at the same time, ending in one report. */
#include "cli/compare.h"

#include "support/text.h"
#include "report/report.h"
#include "study/standings.h"
#include "tasks/tasks.h"
#include "cli/make_runs.h"
#include "cli/run_recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_JOBS = 256, MAX_LISTS = 8 };

static const char *const splits[] = {"auto", "valid", "test", NULL};

static int read_started(void *arguments, const cli_flag *flag, const char *value) {
    comparison *c = arguments;
    char *end;
    c->started = strtod(value, &end);
    c->started_share = *end == '%';
    if (c->started_share) c->started /= 100;
    if (end > value && !end[c->started_share] && isfinite(c->started) && !(c->started_share && c->started <= 0))
        return 0;
    return cli_usage("compare", "--%s is '%.40s', expected a number, or a distance from the best such as 5%%",
                     flag->name, value);
}

static const cli_flag flags[] = {
    CLI_CHANGE("vary", "KEY=A,B,..", "a run for each value; if repeated, for each combination of values", comparison,
               vary, NULL),
    CLI_CHANGE("variant", "'NAME: K=V ..'", "a run with these keys set; may be repeated", comparison, variants, NULL),
    CLI_CHANGE("tune", "KEY=A,B,..", "a run for each value, of which the table shows the best by validation",
               comparison, tune, NULL),
    CLI_WHOLE("seeds", "N", "repeat each run with seeds 1 to N (1)", comparison, seeds, 1, 100),
    CLI_CHANGE("set", "KEY=VALUE", "override a key of the recipe in all runs; may be repeated", comparison, changes,
               NULL),
    CLI_TEXT("out", "DIR", "where the run directories go (runs/NAME-compare; of several recipes runs/compare)",
             comparison, out),
    RECIPE_DEVICE_FLAG(comparison, changes),
    CLI_WHOLE("jobs", "N", "number of runs at the same time, which share the cores (1)", comparison, jobs, 1, MAX_JOBS),
    MAKE_RUNS_MINUTES(comparison, minutes),
    CLI_TEXT("metric", "NAME", "the metric of the table (the task's headline)", comparison, metric),
    CLI_CHOICE("split", "auto|valid|test", "the data it is of (test data if there are any)", comparison, split, splits),
    CLI_READ("started", "X|P%", "count the runs that end better than X, or within P % of the best mean", read_started),
    CLI_SWITCH("drop-checkpoints", "delete the checkpoints of each run that is over", comparison, drop),
    CLI_SWITCH("dry-run", "only say what there is to do: runs, time, disk", comparison, dry_run),
    CLI_SWITCH("resume", "continue an interrupted comparison", comparison, resume),
    CLI_SWITCH("show", "make no run: show those that are over", comparison, show),
    CLI_SWITCH("no-report", "write no report", comparison, no_report),
    CLI_HELP_FLAG,
    {0}};

static const cli_syntax syntax = {
    .command = "compare",
    .help =
        "usage: adamod compare RECIPE... [--vary KEY=A,B,..]... [--variant 'NAME: KEY=VALUE ..']... [--tune KEY=A,B,..] [--seeds N] [--jobs N] [--out DIR]\n\n"
        "Runs variants of a recipe and writes one report of them all, DIR/report.html. Several recipes have a table of\n"
        "variants and recipes; --tune shows each variant with its best value, chosen by validation.\n"
        "--vary optimizer=adamod,adam,sgd is short for optimizer.rule; options the rule does not have are dropped.\n\n",
    .flags = flags,
    .takes = CLI_OPERANDS,
    .operands = offsetof(comparison, recipes)};

/* ---- reports ---- */

/* Lists the runs of a group that are over; with standings only those of the best values. Returns their number. */
static int select_runs(const comparison *c, const standings *s, const char *group, const char **runs) {
    int n = 0;
    for (int i = 0; i < c->runs.n; i++) {
        const run_entry *e = &c->runs.at[i];
        if (e->state != RUN_IS_OVER || strcmp(e->group, group) != 0) continue;
        if (!s || !*c->tuned || standings_is_best(s, e)) runs[n++] = e->directory;
    }
    return n;
}

/* Variants of one recipe: a report of all runs. */
static int report_runs(const comparison *c, const char **runs) {
    char page[1400];
    const int n = select_runs(c, NULL, "", runs);
    snprintf(page, sizeof page, "%s/report.html", c->out);
    if (n == 0) return 0;
    printf("\n");
    return cli_write_report("compare", runs, n, c->no_report ? NULL : page);
}

/* Writes the page of each recipe, with curves, and then that of all. */
static int write_pages(const comparison *c, const standings *s, const char **runs) {
    char(*page)[200] = calloc((size_t)s->n_groups + 1, sizeof *page);
    const char **link = calloc((size_t)s->n_groups + 1, sizeof *link);
    int known, status = page && link ? 0 : cli_fail("compare", "out of memory");
    const metric *metrics = tasks_metrics(&known);
    for (int g = 0; !status && g < s->n_groups; g++) {
        char path[1400];
        const char *group = s->group[g];
        const int n = select_runs(c, s, group, runs);
        snprintf(page[g], sizeof *page, "%.150s%s", group, *group ? "/report.html" : "curves.html");
        snprintf(path, sizeof path, "%s/%s", c->out, page[g]);
        link[g] = n ? page[g] : NULL;
        if (n && report_write(runs, n, metrics, known, path)) status = cli_failed("compare");
    }
    if (!status && standings_page(s, c->out, link)) status = cli_failed("compare");
    free(page);
    free(link);
    return status;
}

/* A table of the best of each variant. */
static int report_standings(const comparison *c, const char **runs) {
    const standings_options o = {.metric = c->metric,
                                 .split = c->split ? splits[c->split] : NULL,
                                 .tuned = *c->tuned ? c->tuned : NULL,
                                 .started = c->started,
                                 .started_share = c->started_share};
    char tables[1400];
    standings s;
    int known;
    const metric *metrics = tasks_metrics(&known);
    if (standings_make(&s, &c->runs, &o, metrics, known)) return cli_failed("compare");
    snprintf(tables, sizeof tables, "%s/report-tables", c->out);
    printf("\n");
    int status = standings_print(&s) || standings_save(&s, tables) ? cli_failed("compare") : 0;
    fflush(stdout);
    if (!status && !c->no_report) status = write_pages(c, &s, runs);
    standings_free(&s);
    if (status) return status;
    printf("\n");
    text_line(stdout, "The tables are in %s", tables);
    if (!c->no_report) text_line(stdout, "The report is %s/report.html", c->out);
    return 0;
}

static int report_all(const comparison *c) {
    const bool ranked = c->recipes.n > 1 || *c->tuned || c->metric || c->split || !isnan(c->started);
    const char **runs = calloc((size_t)c->runs.n, sizeof *runs);
    bool any = false;
    for (int i = 0; i < c->runs.n; i++) any |= c->runs.at[i].state == RUN_IS_OVER;
    const int status = !runs    ? cli_fail("compare", "out of memory")
                       : !any   ? 0
                       : ranked ? report_standings(c, runs)
                                : report_runs(c, runs);
    free(runs);
    return status;
}

/* ---- all ---- */

static int compare(comparison *c) {
    int failed = 0, status = compare_list_runs(c);
    const make_options how = {.command = "compare",
                              .out = c->out,
                              .jobs = c->jobs,
                              .minutes = c->minutes,
                              .drop = c->drop,
                              .again = "the same command and --resume"};
    if (!status && c->dry_run) return make_runs_print(&c->runs, &how), 0;
    if (!status && !c->show) status = make_runs(&c->runs, &how, &failed);
    if (!status) status = report_all(c);
    return !status && failed ? CLI_FAILURE : status;
}

int cli_compare(int argc, char **argv) {
    comparison c = {.started = NAN};
    int status = cli_parse(&syntax, argc, argv, &c);
    if (status >= 0) return status;
    if (c.vary.n > MAX_LISTS) status = cli_usage("compare", "more than %d --vary", MAX_LISTS);
    else if (!c.recipes.n) status = cli_usage("compare", "needs a recipe, say recipes/demo.yaml");
    else status = compare(&c);
    run_list_free(&c.runs);
    free(c.changes.list);
    free(c.vary.list);
    free(c.variants.list);
    free(c.tune.list);
    return status;
}
