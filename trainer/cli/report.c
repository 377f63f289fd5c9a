/* adamod report: run directories into one page and its figures, or into a repository. */
#include "cli/cli.h"

#include "support/text.h"
#include "report/reader.h"
#include "report/report.h"
#include "study/record.h"
#include "tasks/tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMAND "report"

typedef struct arguments {
    const char *out, *record, *note;
    char **run;
    int n;
} arguments;

static int add_runs(void *to, const char *path) {
    arguments *a = to;
    char **found;
    int n;
    if (report_runs_find(path, &found, &n)) return cli_failed(COMMAND);
    char **grown = realloc(a->run, (size_t)(a->n + n) * sizeof *grown);
    if (grown) {
        a->run = grown;
        memcpy(grown + a->n, found, (size_t)n * sizeof *grown);
        a->n += n;
    } else {
        for (int i = 0; i < n; i++) free(found[i]);
    }
    free(found);
    return grown ? 0 : cli_fail(COMMAND, "out of memory");
}

static const cli_flag flags[] = {CLI_FLAG(TEXT, "out", "FILE", "the page (report.html); -o FILE is the same",
                                          .member = offsetof(arguments, out), .letter = 'o'),
                                 CLI_FLAG(TEXT, "record", "DIR",
                                          "no page: copies of the runs in DIR, some 50 KB each, for a repository",
                                          .member = offsetof(arguments, record)),
                                 CLI_FLAG(TEXT, "note", "TEXT",
                                          "with --record: a line on the runs' data or circumstances, which tables and "
                                          "captions then have (note.txt)",
                                          .member = offsetof(arguments, note)),
                                 CLI_HELP_FLAG,
                                 {0}};

static const cli_syntax syntax = {
    .command = COMMAND,
    .help =
        "usage: adamod report RUN... [-o FILE | --record DIR [--note TEXT]]\n\n"
        "Prints a table of results and writes a self-contained page of tables and figures. Beside the page, each figure\n"
        "is also written as SVG and PDF, and each table as CSV, Markdown and LaTeX. A RUN is a run directory, or a directory of runs\n"
        "as 'adamod compare' makes it. Runs that differ only in their seed are one variant; its numbers are medians.\n"
        "Each task has its own tables and figures. The best number is marked only where all runs measured the same\n"
        "thing and seeds show that it is more than chance (Welch's test). Unfinished runs can be reported too. Figures need gnuplot.\n\n",
    .flags = flags,
    .operand = add_runs};

static int check(const arguments *a) {
    struct stat st;
    if (a->record && !*a->record) return cli_usage(COMMAND, "--record is '', expected the name of a directory");
    const char *fault = a->note ? report_note_fault(a->note, strlen(a->note)) : NULL;
    if (fault) return cli_usage(COMMAND, "--note %s", fault);
    if (a->note && !a->record)
        return cli_usage(COMMAND,
                         "--note is written with --record DIR; a run that is here takes it as DIRECTORY/note.txt");
    if (!*a->out || (stat(a->out, &st) == 0 && !S_ISREG(st.st_mode))) /* a new file would replace a device */
        return cli_usage(COMMAND, "--out is '%.200s', expected the name of a file", a->out);
    return a->n ? 0 : cli_usage(COMMAND, "needs a run directory, or a directory of them");
}

int cli_write_report(const char *command, const char *const *runs, int n, const char *page) {
    int known;
    char tables[PATH_MAX];
    const metric *metrics = tasks_metrics(&known);
    if (report_print_table(runs, n, metrics, known)) return cli_failed(command);
    if (!page) return 0;
    fflush(stdout);
    if (report_write(runs, n, metrics, known, page)) return cli_failed(command);
    (void)report_beside(page, "tables", tables);
    printf("\n");
    text_line(stdout, "The report is %s", page);
    text_line(stdout, "Its tables as CSV, Markdown and LaTeX are in %s", tables);
    return 0;
}

/* Records each run as DIR/NAME, by the last part of its path. */
static int record_runs(const arguments *a) {
    int known;
    const metric *metrics = tasks_metrics(&known);
    for (int i = 0; i < a->n; i++) {
        char *from = realpath(a->run[i], NULL), *to = NULL; /* "." has a name too */
        int status = from && asprintf(&to, "%s%s", a->record, strrchr(from, '/')) > 0
                         ? 0
                         : cli_fail(COMMAND, "%s: %s", a->run[i], strerror(errno));
        if (!status && record_run(from, to, a->note, metrics, known)) status = cli_failed(COMMAND);
        if (!status) text_line(stdout, "recorded %s", to);
        free(from);
        free(to);
        if (status) return status;
    }
    return 0;
}

int cli_report(int argc, char **argv) {
    arguments a = {.out = "report.html"};
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status < 0 && !(status = check(&a)))
        status = a.record ? record_runs(&a) : cli_write_report(COMMAND, (const char *const *)a.run, a.n, a.out);
    for (int i = 0; i < a.n; i++) free(a.run[i]);
    free(a.run);
    return status;
}
