#include "report/report.h"

#include "core/error.h"
#include "support/text.h"
#include "report/page.h"
#include "report/ranking.h"
#include "report/remarks.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Makes tables and figures of all reports, then the page. */
static int write_reports(const reports *all, report_table *tables, report_figures *figures, const char *page) {
    for (int i = 0; i < all->n; i++) {
        report_notes(&all->at[i]);
        if (report_table_make(&tables[i], &all->at[i])) return -1;
        if (report_draw(&figures[i], &all->at[i], page)) return -1;
    }
    return page_write(page, all, figures, tables);
}

int report_write(const char *const *runs, int n, const metric *known, int n_known, const char *page) {
    reports all;
    if (reports_load(&all, runs, n, known, n_known)) return -1;
    report_figures *figures = calloc((size_t)all.n, sizeof *figures);
    report_table *tables = calloc((size_t)all.n, sizeof *tables);
    const int status = figures && tables ? write_reports(&all, tables, figures, page)
                                         : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; figures && tables && i < all.n; i++) {
        report_figures_free(&figures[i]);
        report_table_free(&tables[i]);
    }
    free(figures);
    free(tables);
    reports_free(&all);
    return status;
}

int report_width(void) {
    struct winsize window;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col) return window.ws_col;
    return 120;
}

/* Prints how metrics are computed: there are many kinds of BLEU. */
static void print_signatures(const report *r) {
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) {
        const metric *m = &r->column[c];
        if (m->signature && (report_has(r, c) || report_has(r, c + REPORT_COLUMN_METRICS)))
            text_line(stdout, "%s: %s", m->label, m->signature);
    }
}

static int print_remarks(const report *r) {
    report_remarks m;
    if (report_remarks_make(&m, r)) return -1;
    remarks_print(stdout, m.of, m.name, m.n);
    report_remarks_free(&m);
    return 0;
}

/* Prints the table, under the name of its task if there are several. */
static int print_table(const report *r) {
    report_table table = {0};
    if (report_table_make(&table, r)) return -1;
    if (r->number) printf("\n");
    if (r->of > 1) text_line(stdout, "Task: %s", *r->run[0].task ? r->run[0].task : "not known");
    report_table_print(&table, stdout, report_width(), isatty(STDOUT_FILENO) != 0);
    report_table_free(&table);
    print_signatures(r);
    ranking_print(r, stdout);
    return print_remarks(r);
}

int report_print_table(const char *const *runs, int n, const metric *known, int n_known) {
    reports all;
    if (reports_load(&all, runs, n, known, n_known)) return -1;
    int status = 0;
    for (int i = 0; !status && i < all.n; i++) status = print_table(&all.at[i]);
    reports_free(&all);
    return status;
}
