/* page.c - a self-contained HTML file with style, figures, tables and an optional script, for light and dark, wide and narrow
 * screens. */
#include "report/page.h"

#include "core/error.h"
#include "report/ranking.h"
#include "report/remarks.h"
#include "report/report.h"
#include "report/result_sheets.h"
#include "report_assets.h"
#include "support/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text -------------------------------------------------------------------------------------------------------- */

void html_text(FILE *out, const char *text) {
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest);
        const char c = *rest.bytes;
        if (!n || ((unsigned char)c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) fputs("\xef\xbf\xbd", out);
        else if (c == '&') fputs("&amp;", out);
        else if (c == '<') fputs("&lt;", out);
        else if (c == '>') fputs("&gt;", out);
        else if (c == '"') fputs("&quot;", out);
        else fwrite(rest.bytes, 1, n, out);
        rest.bytes += n ? n : 1;
        rest.n -= n ? n : 1;
    }
}

void html_words(FILE *out, const char *name) {
    char text[128];
    snprintf(text, sizeof text, "%s", name);
    for (char *c = text; *c; c++) *c = (char)(*c == '_' ? ' ' : *c);
    html_text(out, text);
}

void html(FILE *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    for (const char *at = format; *at;) {
        const size_t plain = strcspn(at, "%");
        fwrite(at, 1, plain, out);
        at += plain;
        if (!*at) break;
        const char *end = at + 1 + strcspn(at + 1, "sdf%");
        if (*end == 's') html_text(out, va_arg(arguments, const char *));
        else if (*end == 'd' && at[1] == 'l') fprintf(out, "%lld", va_arg(arguments, long long));
        else if (*end == 'd') fprintf(out, "%d", va_arg(arguments, int));
        else if (*end == 'f') fprintf(out, "%.*f", at[2] - '0', va_arg(arguments, double));
        else fputc('%', out);
        at = end + 1;
    }
    va_end(arguments);
}

/* Draws a piece of the variant's line. */
static void write_sample(FILE *out, int variant) {
    static const char *const dashes[REPORT_DASHES] = {"", " stroke-dasharray=\"9 4\"", " stroke-dasharray=\"4 3\"",
                                                      " stroke-dasharray=\"9 3 2 3\""};
    char name[24];
    fprintf(out,
            "<svg width=\"30\" height=\"10\" aria-hidden=\"true\"><path d=\"M1,5 H29\" stroke-width=\"2.4\" "
            "stroke=\"var(%s)\"%s/></svg>",
            report_colour_name(variant, REPORT_FULL, name), dashes[variant / REPORT_COLOURS % REPORT_DASHES]);
}

void html_variant(FILE *out, const report *r, int variant) {
    char name[24];
    if (report_is_crowded(r)) {
        fputs("<span class=\"line\">", out);
        write_sample(out, variant);
        fputs("</span>", out);
    } else if (r->n_variants > 1) {
        fprintf(out, "<span class=\"swatch\" style=\"background:var(%s)\"></span>",
                report_colour_name(variant, REPORT_FULL, name));
    }
    html_text(out, r->variant[variant].name);
}

void html_variant_head(FILE *out, const report *r, int variant, const char *scope) {
    html(out, "<th scope=\"%s\">", scope);
    html_variant(out, r, variant);
    fputs("</th>", out);
}

/* Whether any variant has numbers of a metric, for either split. */
static bool has_metric(const report *r, int column) {
    return report_has(r, column) || report_has(r, column + REPORT_COLUMN_METRICS);
}

void page_section(FILE *out, const report *r, const char *id, const char *title) {
    char number[16] = "";
    if (r->number) snprintf(number, sizeof number, "-%d", r->number + 1);
    html(out, "<section aria-labelledby=\"%s%s\">\n<h2 id=\"%s%s\">%s</h2>\n", id, number, id, number, title);
}

bool html_metrics(FILE *out, const report *r, bool about) {
    int n = 0, written = 0;
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) n += has_metric(r, c);
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) {
        char text[100];
        if (!has_metric(r, c)) continue;
        snprintf(text, sizeof text, "%s", about ? r->column[c].about : r->column[c].label);
        if (!written) text[0] = report_capital(text[0]);
        html(out, "%s%s", !written ? "" : written == n - 1 ? " and " : ", ", text);
        written++;
    }
    return n > 0;
}

/* ---- Style ------------------------------------------------------------------------------------------------------- */

/* In page.css the line height of sup keeps a mark from making its line taller, and panels side by side (.wide) have a least
 * width that a phone scrolls. tests/trainer/test_report_page.py checks the script's hash. */
const char *const page_script = page_js;
static const char script_hash[] = "sha256-fcNeHUoQ/fYExAkeAdXkEozEH/3u5ahFUk4N+e2J8rI=";

static void write_palette(FILE *out, int variants, bool dark) {
    static const char *const pages[2] = {
        "--page:#fff;--ink:#1a1c1f;--soft:#5b626b;--line:#d8dce1;--box:#f4f5f7;--grid:#e2e4e8;--link:#0b5cad;"
        "--mark:#ffdcd4;--mark-ink:#93240c;--right:#1a7f45;--shade:rgba(0,0,0,.28);",
        "--page:#16181c;--ink:#e4e6ea;--soft:#a0a7b1;--line:#353a42;--box:#1f2228;--grid:#31353c;--link:#7db8f5;"
        "--mark:#5b2418;--mark-ink:#ffc9bb;--right:#5cc98a;--shade:rgba(255,255,255,.3);"};
    fprintf(out, ":root{color-scheme:%s;%s", dark ? "dark" : "light", pages[dark]);
    for (int i = 0; i < variants && i < REPORT_COLOURS; i++) {
        for (int shade = 0; shade < REPORT_SHADES; shade++) {
            char name[24];
            fprintf(out, "%s:#%06x;", report_colour_name(i, (report_shade)shade, name),
                    report_colour(i, (report_shade)shade, dark));
        }
    }
    fputs("}\n", out);
}

void page_head(FILE *out, const char *script) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "img-src data:",
          out);
    if (script) fprintf(out, "; script-src '%s'", script);
    fputs("\">\n", out);
}

void page_style(FILE *out, int variants) {
    fputs("<style>\n", out);
    write_palette(out, variants, false);
    fputs("@media screen and (prefers-color-scheme:dark){\n", out);
    write_palette(out, variants, true);
    fprintf(out, "}\n%s</style>\n", page_css);
}

/* ---- Head -------------------------------------------------------------------------------------------------------- */

/* Lists the variants' names if there is room. */
static void write_title(FILE *out, const reports *all) {
    size_t length = 0;
    int n = 0;
    for (int k = 0; k < all->n; k++) {
        for (int i = 0; i < all->at[k].n_variants; i++, n++) length += strlen(all->at[k].variant[i].name) + 2;
    }
    if (all->n > 1) fprintf(out, "%d variants of %d tasks", n, all->n);
    else if (n > 4 || length > 90) fprintf(out, "%d variants compared", n);
    for (int i = 0; all->n == 1 && n <= 4 && length <= 90 && i < n; i++) {
        html(out, "%s%s", !i ? "" : i == n - 1 ? " and " : ", ", all->at[0].variant[i].name);
    }
}

/* The description of the runs' task, or its name; NULL: not all runs have the same. */
static const char *common_task(const report *r) {
    const char *about = r->run[0].about;
    for (int i = 1; i < r->n; i++) {
        if (strcmp(r->run[i].about, about) != 0) return NULL;
    }
    return *about ? about : page_common(r, "data.task");
}

static bool write_task(FILE *out, const report *r) {
    const char *task = common_task(r);
    if (task || r->of > 1) fputs("Task: ", out);
    html_text(out, task ? task : r->of < 2 ? "" : *r->run[0].task ? r->run[0].task : "not known");
    return task;
}

/* Writes "model.layers" as "layers 4", and only the value of "model.kind". */
static void write_common(FILE *out, const report *r, const char *key, const char **comma) {
    const char *value = page_common(r, key), *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key;
    if (!value || !*value || strcmp(value, "0") == 0) return;
    fputs(*comma, out);
    if (strcmp(name, "kind") != 0) {
        html_words(out, name);
        fputc(' ', out);
    }
    html_text(out, value);
    *comma = ", ";
}

static bool is_whole_number(const char *text) { return *text && text[strspn(text, "0123456789")] == '\0'; }

/* Writes what all runs share: the task and its subtitle keys; without these, the numbers of the model. */
static void write_subtitle(FILE *out, const report *r) {
    const report_run *first = &r->run[0];
    const char *comma = "";
    fputs("<p class=\"sub\">", out);
    if (r->of < 2 && write_task(out, r)) fputs(". ", out);
    for (int i = 0; i < first->n_subtitle; i++) write_common(out, r, first->subtitle[i], &comma);
    for (size_t i = 0; !first->n_subtitle && i < first->recipe.n; i++) {
        const report_pair *p = &first->recipe.at[i];
        if (strcmp(p->key, "model.kind") == 0 || (strncmp(p->key, "model.", 6) == 0 && is_whole_number(p->value)))
            write_common(out, r, p->key, &comma);
    }
    fprintf(out, "%s</p>\n", *comma ? "." : "");
}

static int most_variants(const reports *all) {
    int most = 0;
    for (int i = 0; i < all->n; i++) most = all->at[i].n_variants > most ? all->at[i].n_variants : most;
    return most;
}

static void write_head(FILE *out, const reports *all) {
    page_head(out, script_hash);
    fputs("<title>", out);
    write_title(out, all);
    fputs(" – adamod report</title>\n", out);
    page_style(out, most_variants(all));
    fputs("</head>\n<body>\n<main>\n<h1>", out);
    write_title(out, all);
    fputs("</h1>\n", out);
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Writes "0.683 (0.685 ± 0.004)" with the median in front and the rest small. */
static void write_cell(FILE *out, const char *cell, bool best) {
    const char *rest = strstr(cell, " (");
    char median[96];
    snprintf(median, sizeof median, "%.*s", rest ? (int)(rest - cell) : (int)strlen(cell), cell);
    html(out, best ? "<td><b>%s</b>" : "<td>%s", median);
    if (rest) html(out, "<small>%s</small>", rest + 1);
    fputs("</td>", out);
}

/* Writes how scores are computed: "BLEU is nrefs:1|case:mixed|…". */
static void write_signatures(FILE *out, const report *r) {
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) {
        if (!r->column[c].signature || !has_metric(r, c)) continue;
        html(out, "%s is <code>%s</code>. ", r->column[c].label, r->column[c].signature);
    }
}

/* Explains columns without a best number. */
static void write_unranked(FILE *out, const report *r) {
    for (int c = 0; c < REPORT_UPDATES; c++) {
        char why[160], head[96];
        if (r->column[c].better == METRIC_NEITHER || !report_has(r, c) || report_comparable(r, c, why, sizeof why))
            continue;
        report_column_head(r, c, "", head, sizeof head);
        head[0] = report_capital(head[0]);
        html(out, "%s: not ranked, because the runs differ in %s. ", head, why);
    }
}

/* Says what is bold, or why nothing can be. */
static void write_bold(FILE *out, const report *r) {
    if (r->n_variants < 2) return;
    fputs(r->n > r->n_variants
              ? "Bold: better than every other variant by more than chance explains (Welch’s test over "
                "seeds, p &lt; 0.05). "
              : "Nothing is bold: one run of each variant cannot tell a difference from chance. ",
          out);
}

static const char *limit_of(const report *r) {
    const char *limit = page_common(r, r->run[0].limit);
    return limit && strcmp(limit, "0") != 0 ? limit : NULL;
}

bool page_limits(const report *r) { return limit_of(r) != NULL; }

bool page_limits_loss(const report *r) { return limit_of(r) && strcmp(r->run[0].items, r->run[0].samples) == 0; }

void page_limit(FILE *out, const report *r, const char *of) {
    html(out, "%s the first %s %s %s at most. ", of, limit_of(r), report_evaluated(r), r->run[0].samples);
}

/* Whether a key of the recipe is given, other than as 0. */
static bool is_set(const report_run *run, const char *key) {
    const char *value = report_pairs_find(&run->recipe, key);
    return value && strcmp(value, "0") != 0;
}

/* The model of the evaluation at the end, as train.test has it. */
static const char *tested_model(const report_run *run) {
    const char *test = report_pairs_find(&run->recipe, "train.test");
    if (test && strcmp(test, "auto") != 0) return test;
    if (is_set(run, "train.average")) return "averaged";
    return is_set(run, "train.patience") ? "best" : "last";
}

/* Whether a run's results are of such a model; the validation loss is not (see evaluated in variants.c). */
static bool has_tested(const report *r, const char *model) {
    for (int i = 0; i < r->n; i++) {
        const report_run *run = &r->run[i];
        const bool ended = run->final_valid.weight > 0 || run->final_test.weight > 0;
        if (ended && strcmp(tested_model(run), model) == 0) return true;
    }
    return false;
}

/* A paragraph, not the table's caption, which would be as wide as the table. */
static void write_legend(FILE *out, const report *r) {
    char times[200];
    bool validation = false;
    fputs("<p class=\"legend\">", out);
    if (r->n > r->n_variants) fputs("Median (mean ± standard deviation) over the runs of a variant. ", out);
    fputs("Training loss: mean of the last twentieth of the updates. ", out);
    if (report_has(r, REPORT_VALID) && page_limits_loss(r))
        page_limit(out, r, r->evaluates_on_test ? "Test loss: of" : "Validation loss: of");
    for (int c = REPORT_FIRST_VALID; c < REPORT_UPDATES; c++) validation |= report_has(r, c);
    if (validation)
        html(out, "What is of the %s data is that of the end, or of the last evaluation where a run has not ended. ",
             report_evaluated(r));
    if (has_tested(r, "best"))
        html(
            out,
            "Where the best model is tested (<code>train.test</code>, <code>train.patience</code>), the scores of the end "
            "are those of the update that was best on the %s data, the %s loss is that of the last. ",
            report_evaluated(r), report_evaluated(r));
    if (has_tested(r, "averaged"))
        html(
            out,
            "With <code>train.average</code> the scores of the end are those of the average of the last checkpoints, the "
            "%s loss is that of the last update. ",
            report_evaluated(r));
    write_signatures(out, r);
    write_unranked(out, r);
    write_bold(out, r);
    fputs("Time: of training alone, without evaluation. ", out);
    report_times(r, times, sizeof times);
    html(out, "%s</p>\n", times);
}

/* The variant that won a column; -1: none. */
static int winner_of(const report *r, int column) {
    const ranking k = ranking_of(r, column);
    return ranking_is_won(&k) ? k.best : -1;
}

/* A variant's name with the numbers of its footnotes, which have those of their first use. */
static void write_name(FILE *out, const report *r, const report_remarks *m, int variant) {
    fputs("<th scope=\"row\">", out);
    html_variant(out, r, variant);
    const char *before = "<sup>";
    for (int i = 0; variant < m->n && i < m->of[variant].n; i++) {
        fprintf(out, "%s%d", before, remarks_number(m->of, variant, i));
        before = ",";
    }
    if (*before == ',') fputs("</sup>", out);
    if (variant < m->n && m->of[variant].own) fputs("<small>" REMARKS_OWN "</small>", out);
    fputs("</th>", out);
}

static void write_table(FILE *out, const report *r, const report_table *t, const report_remarks *m) {
    int won[REPORT_COLUMNS + 2];
    for (int k = 0; k < t->columns; k++) won[k] = winner_of(r, t->of[k]);
    fputs("<div class=\"scroll\"><table class=\"results\" aria-label=\"Results\">\n<thead><tr>", out);
    for (int k = 0; k < t->columns; k++) html(out, "<th scope=\"col\">%s</th>", report_table_cell(t, 0, k));
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < r->n_variants; i++) {
        fputs("<tr>", out);
        write_name(out, r, m, i);
        for (int k = 1; k < t->columns; k++) write_cell(out, report_table_cell(t, i + 1, k), won[k] == i);
        fputs("</tr>\n", out);
    }
    fputs("</tbody>\n</table></div>\n", out);
    remarks_footnotes(out, m->of, m->name, m->n);
    write_legend(out, r);
}

/* Writes Welch's tests between the variants, folded if there are many. */
static void write_tests(FILE *out, const report *r, page_tables *to) {
    enum { OPEN = 12 };
    const int n = tests_count(r);
    sheet *s = n ? tests_sheet(r) : NULL;
    if (!s) return;
    fprintf(out, "<details%s><summary>Is it chance? The best variant of each result against the others</summary>\n",
            n > OPEN ? "" : " open");
    to->failed |= sheet_html(s, out);
    page_keep(out, to, r, "tests", s, tests_records(r));
    fputs("</details>\n", out);
}

static void write_results(FILE *out, const report *r, const report_table *t, const report_remarks *m, page_tables *to) {
    fputs("<section aria-label=\"Results\">\n", out);
    write_table(out, r, t, m);
    page_keep(out, to, r, "results", results_sheet(r, t, m), results_records(r, m));
    write_tests(out, r, to);
    fputs("</section>\n", out);
}

/* ---- Figures ----------------------------------------------------------------------------------------------------- */

/* Links the PDF files of a figure: that of all panels together if there is one. */
static void write_links(FILE *out, const report_figures *f, report_group group) {
    bool whole = false;
    for (int i = 0; i < f->n; i++) whole |= f->drawing[i].group == group && !f->drawing[i].on_page;
    const char *comma = "For print: ";
    for (int i = 0; i < f->n; i++) {
        const report_drawing *d = &f->drawing[i];
        if (d->group != group || d->on_page == whole || !d->pdf) continue;
        html(out, "%s<a href=\"%s/%s.pdf\">%s.pdf</a>", comma, f->link, d->name, d->name);
        comma = ", ";
    }
    fputs(*comma == ',' ? "." : "", out);
}

/* Writes the key of the lines as text. */
static void write_key(FILE *out, const report *r, report_group group) {
    int diverged = 0;
    for (int i = 0; i < r->n_variants; i++) diverged += r->variant[i].fates[REPORT_DIVERGED] > 0;
    if (group >= REPORT_RATES || (r->n_variants < 2 && !diverged)) return;
    fputs("<ul class=\"key\">", out);
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        fprintf(out, "<li data-v=\"%d\">", r->first + i);
        write_sample(out, i);
        html_text(out, v->name);
        if (v->fates[REPORT_DIVERGED] == v->n) fputs(" (diverged)", out);
        else if (v->fates[REPORT_DIVERGED]) fprintf(out, " (%d of %d diverged)", v->fates[REPORT_DIVERGED], v->n);
        fputs("</li>", out);
    }
    fputs("</ul>\n", out);
}

static void write_figure(FILE *out, const report *r, const report_figures *f, const report_remarks *m,
                         report_group group, int *number) {
    bool any = false;
    for (int i = 0; i < f->n; i++) any |= f->drawing[i].group == group && f->drawing[i].svg;
    if (!any) return;
    fputs("<figure>\n", out);
    write_key(out, r, group);
    fputs("<div class=\"panels\">\n", out);
    for (int i = 0; i < f->n; i++) {
        if (f->drawing[i].group == group && f->drawing[i].svg) fprintf(out, "%s\n", f->drawing[i].svg);
    }
    fprintf(out, "</div>\n<figcaption>Figure %d. ", ++*number);
    page_caption(out, r, f, group);
    remarks_write(out, "", m->of, m->name, m->n);
    if (m->n) fputc(' ', out);
    write_links(out, f, group);
    fputs("</figcaption>\n</figure>\n", out);
}

static void write_figures(FILE *out, const report *r, const report_figures *f, const report_remarks *m, int *number) {
    const int before = *number;
    page_section(out, r, "figures", "Figures");
    for (int g = 0; g < REPORT_GROUPS; g++) write_figure(out, r, f, m, (report_group)g, number);
    if (*f->why || *number == before)
        html(out, "<p class=\"note\">%s</p>\n", *f->why ? f->why : "There is nothing to draw yet.");
    fputs("</section>\n", out);
}

/* ---- Tables as files --------------------------------------------------------------------------------------------- */

void page_keep(FILE *out, page_tables *to, const report *r, const char *name, sheet *s, sheet *records) {
    static const char *const kinds[][2] = {{"CSV", "csv"}, {"Markdown", "md"}, {"LaTeX", "tex"}};
    char file[64];
    snprintf(file, sizeof file, r->number ? "%s-%d" : "%s", name, r->number + 1);
    if (!s || !records) to->failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s/%s: out of memory", to->directory, file);
    else if (!to->failed) to->failed = sheet_save(s, records, to->directory, file);
    fputs("<p class=\"legend\">This table as ", out);
    for (int i = 0; i < 3; i++) {
        html(out, "%s<a href=\"%s/%s.%s\">%s</a>", i ? ", " : "", to->link, file, kinds[i][1], kinds[i][0]);
    }
    fputs(".</p>\n", out);
    sheet_free(s);
    sheet_free(records);
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

/* Writes the part of one task. */
static void write_report(FILE *out, const report *r, const report_figures *f, const report_table *t, page_tables *to,
                         int *number) {
    if (r->of > 1) {
        fprintf(out, "<h2 class=\"task\" id=\"task-%d\">", r->number + 1);
        write_task(out, r);
        fputs("</h2>\n", out);
    }
    report_remarks m;
    to->failed |= report_remarks_make(&m, r);
    write_subtitle(out, r);
    page_summary(out, r);
    write_results(out, r, t, &m, to);
    write_figures(out, r, f, &m, number);
    report_remarks_free(&m);
    page_classes(out, r, to);
    page_samples(out, r);
    page_settings(out, r, to);
    page_machines(out, r);
    page_commands(out, r);
}

static void write_page(FILE *out, const reports *all, const report_figures *f, const report_table *t, page_tables *to) {
    int figures = 0;
    write_head(out, all);
    for (int i = 0; i < all->n; i++) write_report(out, &all->at[i], &f[i], &t[i], to, &figures);
    fprintf(out, "</main>\n<script>%s</script>\n</body>\n</html>\n", page_script);
}

int page_write(const char *path, const reports *all, const report_figures *f, const report_table *t) {
    page_tables to = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    to.link = report_beside(path, "tables", to.directory);
    write_page(out, all, f, t, &to);
    const bool whole = !ferror(out);
    int status = to.failed;
    if (fclose(out) || !whole) status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    if (!status) status = text_write(path, (text_slice){text, n});
    free(text);
    return status;
}
