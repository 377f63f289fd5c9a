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

static void write_links(FILE *out, const char *name) {
    html(out, "<p class=\"legend\">As files: ");
    for (int i = 0; i < 3; i++) {
        const char *const kind[] = {"csv", "md", "tex"};
        html(out, "%s<a href=\"%s/%s.%s\">%s.%s</a>", i ? ", " : "", tables, name, kind[i], name, kind[i]);
    }
    fputs(".</p>\n", out);
}

static int write_table(FILE *out, const char *title, const char *name, sheet *of) {
    if (!of) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    html(out, "<section>\n<h2>%s</h2>\n<div class=\"scroll\">\n", title);
    const int status = sheet_html(of, out);
    sheet_free(of);
    fputs("</div>\n", out);
    write_links(out, name);
    fputs("</section>\n", out);
    return status;
}

static void write_figures(FILE *out, const standings *s, const report_figures *f) {
    html(out, "<section>\n<h2>Results against %s</h2>\n", s->o.tuned);
    if (*f->why) {
        html(out, "<p>%s</p>\n</section>\n", f->why);
        return;
    }
    fputs("<figure>\n<div class=\"panels\">\n", out);
    for (int i = 0; i < f->n; i++) {
        if (f->drawing[i].svg) fprintf(out, "%s\n", f->drawing[i].svg);
    }
    fputs(
        "</div>\n<figcaption>Medians over the seeds that finished; bars from the least to the most. A × marks a value with "
        "which a run diverged. For print: ",
        out);
    for (int i = 0; i < f->n; i++) {
        const char *name = f->drawing[i].name;
        if (f->drawing[i].pdf) html(out, "%s<a href=\"%s/%s.pdf\">%s.pdf</a>", i ? ", " : "", figures, name, name);
    }
    fputs(".</figcaption>\n</figure>\n</section>\n", out);
}

/* Pages with curves, recipes and machines. */
static void write_pages(FILE *out, const standings *s, const char *const *pages) {
    fputs("<section>\n<h2>Curves</h2>\n<ul>\n", out);
    for (int g = 0; g < s->n_groups; g++) {
        const char *name = *s->group[g] ? s->group[g] : "all variants";
        if (pages[g]) html(out, "<li><a href=\"%s\">%s</a></li>\n", pages[g], name);
    }
    html(out, "</ul>\n%s</section>\n",
         s->o.tuned ? "These pages show the runs with the best value of each variant." : "");
}

static int write_page(FILE *out, const standings *s, const report_figures *f, const char *const *pages) {
    write_head(out, s);
    int status = write_table(out, "Results", "results", standings_results_sheet(s));
    if (s->o.tuned) write_figures(out, s, f);
    if (!status && s->o.tuned) status = write_table(out, "Every value", "values", standings_values_sheet(s));
    write_pages(out, s, pages);
    fputs("</main>\n</body>\n</html>\n", out);
    return status;
}

static int draw(const standings *s, const char *directory, report_figures *f) {
    snprintf(f->directory, sizeof f->directory, "%s/%s", directory, figures);
    const int error = directory_make(f->directory, NULL);
    if (error)
        return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", f->directory, strerror(error));
    return report_figures_style(f) ? -1 : standings_draw(s, f);
}

int standings_page(const standings *s, const char *directory, const char *const *pages) {
    report_figures f = {0};
    char path[4096], *text = NULL;
    size_t n = 0;
    int status = s->o.tuned ? draw(s, directory, &f) : 0;
    FILE *out = open_memstream(&text, &n);
    snprintf(path, sizeof path, "%s/report.html", directory);
    if (!status) status = out ? write_page(out, s, &f, pages) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (out && fclose(out) && !status) status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    if (!status) status = text_write(path, (text_slice){text, n});
    free(text);
    report_figures_free(&f);
    return status;
}
