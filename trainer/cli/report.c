/* adamod report: run directories into one page and its figures. */
#include "cli/cli.h"

#include "support/text.h"
#include "report/reader.h"
#include "report/report.h"
#include "tasks/tasks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMAND "report"

enum { FLAG_OUT, FLAG_HELP };
static const cli_flag flags[] = {{"out", "FILE", "the page (report.html); -o FILE is the same"}, CLI_HELP_FLAG, {0}};

static void print_help(void) {
    printf(
        "usage: adamod report RUN... [-o FILE]\n\n"
        "Prints a table of results and writes a self-contained page of tables and figures. Each figure is also\n"
        "written as SVG and PDF, in a directory beside the page. A RUN is a run directory, or a directory of runs\n"
        "as 'adamod compare' makes it. Runs that differ only in their seed are one variant; its numbers are medians.\n"
        "Each task has its own tables and figures. The best number is marked only where all runs measured the same\n"
        "thing. Unfinished runs can be reported too. Figures need gnuplot.\n\n");
    cli_print_flags(stdout, flags);
}

typedef struct arguments {
    const char *out;
    char **run;
    int n;
} arguments;

static int add_runs(arguments *a, const char *path) {
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

/* Exit status, or -1 to go on. */
static int parse(cli_parser *p, arguments *a) {
    for (int flag; (flag = cli_next(p)) != CLI_END;) {
        int status = 0;
        switch (flag) {
            case CLI_BAD: return CLI_USAGE;
            case CLI_OPERAND: status = add_runs(a, p->value); break;
            case FLAG_OUT: a->out = p->value; break;
            case FLAG_HELP: print_help(); return 0;
            default: break;
        }
        if (status) return status;
    }
    struct stat st;
    if (!*a->out || (stat(a->out, &st) == 0 && !S_ISREG(st.st_mode))) { /* a new file would replace a device */
        return cli_usage(COMMAND, "--out is '%.200s', expected the name of a file", a->out);
    }
    return a->n ? -1 : cli_usage(COMMAND, "needs a run directory, or a directory of them");
}

static int write_report(const arguments *a) {
    const char *const *runs = (const char *const *)a->run;
    int known;
    const metric *metrics = tasks_metrics(&known);
    int status = report_print_table(runs, a->n, metrics, known);
    fflush(stdout);
    if (!status) status = report_write(runs, a->n, metrics, known, a->out);
    if (status) return cli_failed(COMMAND);
    printf("\n");
    text_line(stdout, "The report is %s", a->out);
    return 0;
}

int cli_report(int argc, char **argv) {
    char **words = malloc(((size_t)argc + 1) * sizeof *words);
    arguments a = {.out = "report.html"};
    if (!words) return cli_fail(COMMAND, "out of memory");
    bool operands = false;
    for (int i = 0; i < argc; i++) { /* the parser knows long flags only */
        operands |= strcmp(argv[i], "--") == 0;
        words[i] = !operands && strcmp(argv[i], "-o") == 0 ? "--out" : argv[i];
    }
    cli_parser p = {.command = COMMAND, .flags = flags, .argc = argc, .argv = words};
    int status = parse(&p, &a);
    if (status < 0) status = write_report(&a);
    for (int i = 0; i < a.n; i++) free(a.run[i]);
    free(a.run);
    free(words);
    return status;
}
