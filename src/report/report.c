/* report.c - see report.h.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report/report.h"

#include "base/text.h"
#include "report/page.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

int report_write(const char *const *runs, int n, const metric *known, int n_known, const char *page, char *message,
                 size_t size) {
    report r;
    report_figures figures = {0};
    report_table table = {0};
    if (report_load(&r, runs, n, known, n_known, message, size)) return -1;
    report_notes(&r);
    int status = report_table_make(&table, &r, message, size);
    if (!status) status = report_draw(&figures, &r, page, message, size);
    if (!status) status = page_write(page, &r, &figures, &table, message, size);
    report_figures_free(&figures);
    report_table_free(&table);
    report_free(&r);
    return status;
}

/* Of the terminal; where there is none, what most are at least. */
static int terminal_width(void) {
    struct winsize window;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col) return window.ws_col;
    return 120;
}

/* Which of the metrics of that name it is: BLEU is many. */
static void print_signatures(const report *r) {
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) {
        const metric *m = &r->column[c];
        if (m->signature && (report_has(r, c) || report_has(r, c + REPORT_COLUMN_METRICS)))
            text_line(stdout, "%s: %s", m->label, m->signature);
    }
}

int report_print_table(const char *const *runs, int n, const metric *known, int n_known, char *message, size_t size) {
    report r;
    report_table table = {0};
    if (report_load(&r, runs, n, known, n_known, message, size)) return -1;
    const int status = report_table_make(&table, &r, message, size);
    if (!status) {
        report_table_print(&table, stdout, terminal_width(), isatty(STDOUT_FILENO) != 0);
        print_signatures(&r);
    }
    report_table_free(&table);
    report_free(&r);
    return status;
}
