/* standings_page.c - the page of standings: tables, figures, and links to the pages of the recipes. */
#include "study/standings_parts.h"

#include "core/error.h"
#include "report/page.h"
#include "support/directory.h"
#include "support/text.h"

#include <stdlib.h>
#include <string.h>

static const char tables[] = "report-tables", figures[] = "report-figures";

static void write_head(FILE *out, const standings *s) {
    page_head(out, NULL);
    fputs("<title>Comparison – adamod report</title>\n", out);
    page_style(out, REPORT_COLOURS);
    html(out, "</head>\n<body>\n<main>\n<h1>Comparison of %d variants</h1>\n", s->n_variants);
}

static void write_links(FILE *out, const standings *s, const standings_files *to, const char *what) {
    const standings_name name = standings_file_name(s, what);
    html(out, "<p class=\"legend\">As files: ");
    for (int i = 0; i < 3; i++) {
        const char *const kind[] = {"csv", "md", "tex"};
        html(out, "%s<a href=\"%s/%s.%s\">%s.%s</a>", i ? ", " : "", to->tables_link, name.text, kind[i], name.text,
             kind[i]);
    }
    fputs(".</p>\n", out);
}

static int write_table(FILE *out, const standings *s, const standings_files *to, const char *what, sheet *of) {
    if (!of) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    fputs("<div class=\"scroll\">\n", out);
    const int status = sheet_html(of, out);
    sheet_free(of);
    fputs("</div>\n", out);
    write_links(out, s, to, what);
    return status;
}

static int write_figures(FILE *out, const standings *s, const standings_files *to, const report_figures *f) {
    if (*f->why) {
        html(out, "<p>%s</p>\n", f->why);
        return 0;
    }
    fputs("<figure>\n<div class=\"panels\">\n", out);
    for (int i = 0; i < f->n; i++) {
        if (f->drawing[i].svg) fprintf(out, "%s\n", f->drawing[i].svg);
    }
    fputs(
        "</div>\n<figcaption>Medians over the seeds that finished; bars from the least to the most. A × marks a value with "
        "which a run diverged, or with which runs end no better than they began. For print: ",
        out);
    for (int i = 0; i < f->n; i++) {
        const char *name = f->drawing[i].name;
        if (f->drawing[i].pdf)
            html(out, "%s<a href=\"%s/%s.pdf\">%s.pdf</a>", i ? ", " : "", to->figures_link, name, name);
    }
    fputs(".", out);
    const int status = standings_write_remarks(s, out);
    fputs("</figcaption>\n</figure>\n", out);
    return status;
}

static void write_pages(FILE *out, const standings *s, const char *const *pages) {
    fputs("<section>\n<h2>Curves</h2>\n<ul>\n", out);
    for (int g = 0; g < s->n_groups; g++) {
        const char *name = *s->group[g] ? s->group[g] : "all variants";
        if (pages[g]) html(out, "<li><a href=\"%s\">%s</a></li>\n", pages[g], name);
    }
    html(out, "</ul>\n%s</section>\n",
         s->o.tuned ? "These pages show the runs with the best value of each variant." : "");
}

static int draw(const standings *s, const char *directory, report_figures *f) {
    snprintf(f->directory, sizeof f->directory, "%s", directory);
    const int error = directory_make(f->directory, NULL);
    if (error)
        return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", f->directory, strerror(error));
    return report_figures_style(f) ? -1 : standings_draw(s, f);
}

static int write_figures_and_values(FILE *out, const standings *s, const standings_files *to) {
    report_figures f = {0};
    int status = draw(s, to->figures, &f);
    if (!status) {
        html(out, "<h3>Results against %s</h3>\n", s->o.tuned);
        status = write_figures(out, s, to, &f);
        fputs("<h3>Every value</h3>\n", out);
        if (!status) status = write_table(out, s, to, "values", standings_values_sheet(s));
    }
    report_figures_free(&f);
    return status;
}

static int write_results(FILE *out, const standings *s, const standings_files *to) {
    int status = write_table(out, s, to, "results", standings_results_sheet(s));
    if (!status && standings_count_tests(s)) {
        fputs("<h3>Is it chance?</h3>\n", out);
        status = write_table(out, s, to, "tests", standings_tests_sheet(s));
    }
    standings_write_untested(s, out);
    return !status && s->o.tuned ? write_figures_and_values(out, s, to) : status;
}

int standings_section(const standings *s, const standings_files *to, FILE *page) {
    return standings_save(s, to->tables) ? -1 : write_results(page, s, to);
}

static int write_page(FILE *out, const standings *s, const char *directory, const char *const *pages) {
    char tables_at[4096], figures_at[4096];
    const standings_files to = {tables_at, tables, figures_at, figures};
    snprintf(tables_at, sizeof tables_at, "%s/%s", directory, tables);
    snprintf(figures_at, sizeof figures_at, "%s/%s", directory, figures);
    write_head(out, s);
    fputs("<section>\n<h2>Results</h2>\n", out);
    const int status = write_results(out, s, &to);
    fputs("</section>\n", out);
    write_pages(out, s, pages);
    fputs("</main>\n</body>\n</html>\n", out);
    return status;
}

int standings_page(const standings *s, const char *directory, const char *const *pages) {
    char path[4096], *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    snprintf(path, sizeof path, "%s/report.html", directory);
    int status = out ? write_page(out, s, directory, pages) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (out && fclose(out) && !status) status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    if (!status) status = text_write(path, (text_slice){text, n});
    free(text);
    return status;
}
