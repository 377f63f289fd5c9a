/* table.c - the table of results, as cells for the page and as text for a terminal; see variants.h. */
#include "report/variants.h"

#include "core/error.h"
#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = sizeof *((report_table *)0)->cell };

double report_time_unit(double most_seconds, const char **name) {
    const double unit = most_seconds < 300 ? 1 : most_seconds < 3 * 3600.0 ? 60 : 3600;
    *name = unit < 2 ? "s" : unit < 61 ? "min" : "h";
    return unit;
}

char report_capital(char c) { return (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c); }

static char *cell_at(const report_table *t, int row, int column) { return t->cell[row * t->columns + column]; }

const char *report_table_cell(const report_table *t, int row, int column) { return cell_at(t, row, column); }

void report_table_free(report_table *t) {
    free(t->cell);
    *t = (report_table){0};
}

/* ---- Cells ------------------------------------------------------------------------------------------------------- */

/* Writes 12345 as "12,345". */
static void print_whole(double x, char *out, size_t size) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.0f", x);
    const size_t n = strlen(digits);
    size_t used = 0;
    for (size_t i = 0; i < n && used + 2 < size; i++) {
        if (i && (n - i) % 3 == 0 && digits[i - 1] != '-') out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
}

void report_number(double x, int digits, char *out, size_t size) {
    char number[32];
    if (digits == 0 && fabs(x) < 1e15) print_whole(x, out, size);
    else snprintf(out, size, "%s", metric_number(x, digits, number));
}

void report_spread_text(const report_spread *s, int digits, double unit, char *out, size_t size) {
    char median[28], mean[28], std[28];
    if (s->n == 0) {
        snprintf(out, size, "–");
        return;
    }
    report_number(s->median / unit, digits, median, sizeof median);
    report_number(s->mean / unit, digits, mean, sizeof mean);
    report_number(s->std / unit, digits, std, sizeof std);
    if (s->n < 2 || (digits == 0 && s->min == s->max)) snprintf(out, size, "%s", median);
    else snprintf(out, size, "%s (%s ± %s)", median, mean, std);
}

/* Writes the number of runs, with those that did not finish: "3 (1 diverged)". */
static void print_runs(const report_variant *v, char *out, size_t size) {
    static const char *const words[REPORT_FATES] = {"", "unfinished", "interrupted", "diverged"};
    const char *before = " (";
    snprintf(out, size, "%d", v->n);
    for (int f = REPORT_GOING; f < REPORT_FATES; f++) {
        if (!v->fates[f]) continue;
        if (v->n == 1) text_add(out, size, "%s%s", before, words[f]);
        else text_add(out, size, "%s%d %s", before, v->fates[f], words[f]);
        before = ", ";
    }
    if (before[0] == ',') text_add(out, size, ")");
}

static void print_name(const char *name, char *out, size_t size) {
    snprintf(out, size, "%s", name);
    size_t n = strlen(out);
    while (n && strlen(name) > n && ((unsigned char)name[n] & 0xc0) == 0x80)
        out[--n] = '\0'; /* removes half a code point */
}

void report_column_head(const report *r, int column, const char *time_unit, char *out, size_t size) {
    const metric *m = &r->column[column];
    const char *split = report_split(r, column);
    const bool during = column >= REPORT_FIRST_VALID && column < REPORT_UPDATES && r->evaluates_on_test;
    if (column == REPORT_SECONDS) snprintf(out, size, "%s (%s)", m->label, time_unit);
    else if (column >= REPORT_FIRST_RATE) snprintf(out, size, "%s/s", m->label);
    else
        snprintf(out, size, "%s%s%s%s%s%s", split, *split ? " " : "", m->label, *m->unit ? " " : "", m->unit,
                 during ? ", during training" : "");
}

static void fill(report_table *t, const report *r, double unit, const char *unit_name) {
    for (int k = 0; k < t->columns; k++) {
        char *head = cell_at(t, 0, k);
        const int c = t->of[k];
        if (c < 0) snprintf(head, CELL, "%s", k ? "runs" : "variant");
        else report_column_head(r, c, unit_name, head, CELL);
        text_plain(head); /* it may be cut */
        for (int i = 0; i < r->n_variants; i++) {
            const report_variant *v = &r->variant[i];
            char *cell = cell_at(t, i + 1, k);
            if (c >= 0)
                report_spread_text(&v->of[c], r->column[c].decimals, c == REPORT_SECONDS ? unit : 1, cell, CELL);
            else if (k) print_runs(v, cell, CELL);
            else print_name(v->name, cell, CELL);
        }
    }
}

/* Leaves out columns without a number, and the number of runs if every variant has one finished run. */
static void choose_columns(report_table *t, const report *r) {
    static const struct {
        int first, end;
    } spans[] = {{REPORT_FIRST_METRIC, REPORT_UPDATES}, /* test results first */
                 {REPORT_VALID, REPORT_VALID + 1},
                 {REPORT_LOSS, REPORT_LOSS + 1},
                 {REPORT_UPDATES, REPORT_COLUMNS}};
    bool wanted = false;
    t->of[t->columns++] = -1;
    for (int i = 0; i < r->n_variants; i++) wanted |= r->variant[i].n > 1 || !r->variant[i].fates[REPORT_FINISHED];
    if (wanted) t->of[t->columns++] = -1;
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        for (int c = spans[i].first; c < spans[i].end; c++) {
            if (report_has(r, c)) t->of[t->columns++] = c;
        }
    }
}

int report_table_make(report_table *out, const report *r) {
    double most = 0;
    const char *unit_name;
    *out = (report_table){.rows = r->n_variants + 1};
    choose_columns(out, r);
    out->cell = calloc((size_t)out->rows * (size_t)out->columns, sizeof *out->cell);
    if (!out->cell) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < r->n_variants; i++) most = fmax(most, r->variant[i].of[REPORT_SECONDS].max);
    const double unit = report_time_unit(most, &unit_name);
    fill(out, r, unit, unit_name);
    return 0;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

/* The width of a code point on a terminal: 0 for combining marks, 2 for wide East Asian characters. */
static int code_width(unsigned code) {
    static const struct {
        unsigned first, last;
        int width;
    } ranges[] = {{0x300, 0x36f, 0},     {0x483, 0x489, 0},    {0x591, 0x5bd, 0},     {0x610, 0x61a, 0},
                  {0x64b, 0x65f, 0},     {0x1100, 0x115f, 2},  {0x1ab0, 0x1aff, 0},   {0x1dc0, 0x1dff, 0},
                  {0x200b, 0x200f, 0},   {0x202a, 0x202e, 0},  {0x2060, 0x2064, 0},   {0x20d0, 0x20ff, 0},
                  {0x2e80, 0x303e, 2},   {0x3041, 0xa4cf, 2},  {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},
                  {0xfe00, 0xfe0f, 0},   {0xfe20, 0xfe2f, 0},  {0xfe30, 0xfe6f, 2},   {0xfeff, 0xfeff, 0},
                  {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2},  {0x1f300, 0x1f64f, 2}, {0x1f900, 0x1f9ff, 2},
                  {0x20000, 0x3fffd, 2}, {0xe0100, 0xe01ef, 0}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last) return ranges[i].width;
    }
    return 1;
}

static int width_of(const char *text) {
    int width = 0;
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest) ? text_code_point(rest) : 1;
        width += code_width(adamod__code_point(rest.bytes, n));
        rest.bytes += n;
        rest.n -= n;
    }
    return width;
}

static const char *turned(const report_table *t, bool turn, int row, int column) {
    return turn ? cell_at(t, column, row) : cell_at(t, row, column);
}

static int column_width(const report_table *t, bool turn, int column) {
    int widest = 0;
    for (int i = 0; i < (turn ? t->columns : t->rows); i++) {
        const int w = width_of(turned(t, turn, i, column));
        if (w > widest) widest = w;
    }
    return widest;
}

static int table_width(const report_table *t, bool turn) {
    int width = -2;
    for (int k = 0; k < (turn ? t->rows : t->columns); k++) width += column_width(t, turn, k) + 2;
    return width;
}

static bool fits(const report_table *t, int width) {
    return table_width(t, false) <= width || table_width(t, true) <= width;
}

/* Cuts "median (mean ± std)" to "median". Returns whether there was one. */
static bool cut_spreads(report_table *t) {
    bool any = false;
    for (int i = 1; i < t->rows; i++) {
        for (int k = 0; k < t->columns; k++) {
            char *spread = t->of[k] < 0 ? NULL : strstr(cell_at(t, i, k), " (");
            if (spread) *spread = '\0';
            any |= spread != NULL;
        }
    }
    return any;
}

/* Prints a variant in each row; in each column if rows are too wide and columns are narrower. */
void report_table_print(report_table *t, FILE *out, int width, bool may_cut) {
    const bool cut = may_cut && !fits(t, width) && cut_spreads(t);
    const bool turn = table_width(t, false) > width && table_width(t, true) < table_width(t, false);
    for (int i = 0; i < (turn ? t->columns : t->rows); i++) {
        for (int k = 0; k < (turn ? t->rows : t->columns); k++) {
            const char *cell = turned(t, turn, i, k);
            const int pad = column_width(t, turn, k) - width_of(cell);
            if (k) fprintf(out, "  %*s%s", pad, "", cell);
            else fprintf(out, "%s%*s", cell, pad, "");
        }
        fputc('\n', out);
    }
    if (cut) fputs("Medians; for means and deviations the terminal is too narrow.\n", out);
}
