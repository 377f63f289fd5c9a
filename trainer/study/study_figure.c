/* study_figure.c - the study's figures, drawn by drawing.h. */
#include "study/study_parts.h"

#include "core/error.h"
#include "report/page.h"

#include <stdlib.h>
#include <string.h>

static const char *label_of(const study_method *m) { return m->label ? m->label : m->name; }

/* ---- Colours ----------------------------------------------------------------------------------------------------- */

/* The number of a name among the different rows of all tables, so that a method has one colour on the page; -1: in no
 * table. */
static int row_number(const study *s, const char *name) {
    const char *seen[64];
    int n = 0;
    for (int t = 0; t < s->n_tables; t++) {
        for (int i = 0; i < s->table[t].rows.n; i++) {
            const char *row = s->table[t].rows.at[i];
            int k = 0;
            while (k < n && strcmp(seen[k], row) != 0) k++;
            if (strcmp(row, name) == 0) return k;
            if (k == n && n < 64) seen[n++] = row;
        }
    }
    return -1;
}

/* The number of a label among those of the figure. */
static int label_number(const study *s, const study_figure *f, const char *label) {
    const char *seen[64];
    int n = 0;
    for (int p = 0; p < f->n_panels; p++) {
        for (int i = 0; i < f->panel[p].n_methods; i++) {
            const char *other = label_of(&s->experiment[f->panel[p].experiment].method[f->panel[p].method[i]]);
            int k = 0;
            while (k < n && strcmp(seen[k], other) != 0) k++;
            if (strcmp(other, label) == 0) return k;
            if (k == n && n < 64) seen[n++] = other;
        }
    }
    return 0;
}

static int colour_of(const study *s, const study_figure *f, const char *label) {
    const int row = row_number(s, label);
    return row >= 0 ? row : label_number(s, f, label);
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

/* Whether a run recorded curves of its test data. */
static bool has_test_curve(const report_run *r) { return r->test.n > 1 || report_validates_on_test(r); }

typedef struct canvas {
    const study_results *r;
    const study_figure *f;
    drawing_panel *panel;
    drawing_line **line; /* of each panel */
    int lacking;         /* lines without a run */
    bool validation;     /* a panel of test data shows validation data */
} canvas;

static void fill_line(canvas *c, const study_panel *p, int i, drawing_line *out) {
    const study_cell *cell = study_cell_of(c->r, p->experiment, p->method[i]);
    const char *label = label_of(&c->r->s->experiment[p->experiment].method[p->method[i]]);
    *out = (drawing_line){.name = label, .colour = colour_of(c->r->s, c->f, label), .run = cell->at, .n = cell->n};
    c->lacking += cell->n == 0;
}

/* The split that runs recorded during training. */
static drawing_split split_of(canvas *c, const study_panel *p, const drawing_line *line) {
    bool any = false;
    if (p->split != DRAWING_TEST) return p->split;
    for (int i = 0; i < p->n_methods; i++) {
        for (int k = 0; k < line[i].n; k++, any = true) {
            if (has_test_curve(line[i].run[k])) return DRAWING_TEST;
        }
    }
    c->validation |= any;
    return any ? DRAWING_VALID : DRAWING_TEST;
}

static int fill_panel(canvas *c, int index) {
    const study_panel *p = &c->f->panel[index];
    drawing_line *line = c->line[index] = calloc((size_t)p->n_methods, sizeof *line);
    if (!line) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < p->n_methods; i++) fill_line(c, p, i, &line[i]);
    c->panel[index] = (drawing_panel){.title = p->title,
                                      .kind = p->rates ? DRAWING_RATES : DRAWING_CURVES,
                                      .split = split_of(c, p, line),
                                      .metric = p->metric,
                                      .epochs = p->epochs,
                                      .until = c->r->o->quick ? 0 : p->until,
                                      .line = line,
                                      .n_lines = p->n_methods};
    return 0;
}

static int open_canvas(canvas *c) {
    const int n = c->f->n_panels;
    c->panel = calloc((size_t)n, sizeof *c->panel);
    c->line = calloc((size_t)n, sizeof *c->line);
    if (!c->panel || !c->line) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        if (fill_panel(c, i)) return -1;
    }
    return 0;
}

static void close_canvas(canvas *c) {
    for (int i = 0; c->line && i < c->f->n_panels; i++) free(c->line[i]);
    free(c->line);
    free(c->panel);
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

/* Whether some panel of the figure shows a method of an experiment without a run. */
static bool lacks(const canvas *c, int experiment, int method) {
    for (int p = 0; p < c->f->n_panels; p++) {
        for (int i = 0; c->f->panel[p].experiment == experiment && i < c->f->panel[p].n_methods; i++) {
            if (c->f->panel[p].method[i] == method) return c->line[p][i].n == 0;
        }
    }
    return false;
}

/* Names what the figure does not show: "Not run: ResNet-34 on CIFAR-10: SGDM, Adam; DenseNet-121 on CIFAR-10: SGDM." */
static void write_lacking(const canvas *c, FILE *page) {
    const char *before = " Not run: ";
    for (int e = 0; e < c->r->s->n_experiments; e++) {
        const study_experiment *of = &c->r->s->experiment[e];
        int n = 0;
        for (int i = 0; i < of->n_methods; i++) {
            if (!lacks(c, e, i)) continue;
            if (n++ == 0) html(page, "%s%s: %s", before, of->title, of->method[i].name);
            else html(page, ", %s", of->method[i].name);
            before = "; ";
        }
        if (n && c->r->missing && c->r->missing[e]) html(page, " (data are missing: %s)", c->r->missing[e]);
    }
    if (c->lacking) fputs(".", page);
}

/* What is not as planned in the runs of a line, and the keys that make it; "": nothing, or no runs. */
typedef struct remark {
    char text[700];
} remark;

static remark remark_of(const canvas *c, int experiment, int method) {
    const study_cell *cell = study_cell_of(c->r, experiment, method);
    const study_marks m = study_marks_of(cell, (int)study_seeds(c->r->s, c->r->o, experiment));
    remark out = {""};
    if (cell->n && *m.text && *cell->keys) snprintf(out.text, sizeof out.text, "%s (%s)", m.text, cell->keys);
    else if (cell->n) snprintf(out.text, sizeof out.text, "%s%s", m.text, cell->keys);
    return out;
}

static bool shows(const canvas *c, int experiment, int method) {
    for (int p = 0; p < c->f->n_panels; p++) {
        for (int i = 0; c->f->panel[p].experiment == experiment && i < c->f->panel[p].n_methods; i++) {
            if (c->f->panel[p].method[i] == method) return study_cell_of(c->r, experiment, method)->n > 0;
        }
    }
    return false;
}

/* Writes a remark with the methods that it is of, unless it is of all or was written before. Returns whether it did. */
static bool write_remark(const canvas *c, int experiment, int method, const char *before, FILE *page) {
    const study_experiment *e = &c->r->s->experiment[experiment];
    const remark own = remark_of(c, experiment, method);
    int with = 0, shown = 0;
    for (int i = 0; i < e->n_methods; i++) {
        if (!shows(c, experiment, i)) continue;
        const bool same = strcmp(remark_of(c, experiment, i).text, own.text) == 0;
        if (same && i < method) return false;
        with += same;
        shown++;
    }
    html(page, "%s%s", before, e->title);
    for (int i = method, n = 0; i < e->n_methods && with < shown; i++) {
        if (shows(c, experiment, i) && strcmp(remark_of(c, experiment, i).text, own.text) == 0)
            html(page, "%s%s", n++ ? ", " : " (", e->method[i].name);
    }
    html(page, "%s: %s", with < shown ? ")" : "", own.text);
    return true;
}

/* "Not as planned: ResNet-34 on CIFAR-10 (Adam, AdaMod): 1 of 3 seeds; 30 of 200 epochs (train.epochs=30)." */
static void write_remarks(const canvas *c, FILE *page) {
    const char *before = " Not as planned: ";
    bool any = false;
    for (int e = 0; e < c->r->s->n_experiments; e++) {
        for (int i = 0; i < c->r->s->experiment[e].n_methods; i++) {
            if (!shows(c, e, i) || !*remark_of(c, e, i).text || !write_remark(c, e, i, before, page)) continue;
            before = ". ";
            any = true;
        }
    }
    if (any) fputs(".", page);
}

/* " Note on ResNet-34 on CIFAR-10 (Adam, AdaMod): TEXT." */
static int write_notes(const canvas *c, FILE *page) {
    for (int e = 0; e < c->r->s->n_experiments; e++) {
        const study_experiment *of = &c->r->s->experiment[e];
        remarks *notes = calloc((size_t)of->n_methods, sizeof *notes);
        const char **name = calloc((size_t)of->n_methods, sizeof *name);
        int n = 0;
        for (int i = 0; notes && name && i < of->n_methods; i++) {
            if (!shows(c, e, i)) continue;
            notes[n] = study_cell_of(c->r, e, i)->notes; /* borrowed */
            name[n++] = of->method[i].name;
        }
        const bool whole = notes && name;
        if (whole) remarks_write(page, of->title, notes, name, n);
        free(notes);
        free(name);
        if (!whole) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    }
    return 0;
}

static int write_figure(const canvas *c, const drawing_result *drawn, const char *link, FILE *page) {
    const study_figure *f = c->f;
    html(page, "<section id=\"%s\">\n<h2>", f->name);
    study_write_name(page, f->name);
    fputs("</h2>\n<figure>\n", page);
    if (drawn->svg) fprintf(page, "<div class=\"panels%s\">%s</div>\n", f->n_panels > 1 ? " wide" : "", drawn->svg);
    else html(page, "<p class=\"note\">Not drawn: %s.</p>\n", drawn->why);
    html(page, "<figcaption><b>%s.</b>", f->title);
    if (c->r->o->quick) html(page, " %s.", STUDY_QUICK_NOTE);
    if (c->validation)
        fputs(" Curves of the validation data: these runs measured the test data only at the end.", page);
    write_remarks(c, page);
    const int status = write_notes(c, page);
    write_lacking(c, page);
    if (drawn->svg) html(page, " <a href=\"%s/%s.svg\">SVG</a>", link, f->name);
    if (drawn->pdf) html(page, " <a href=\"%s/%s.pdf\">PDF</a>", link, f->name);
    if (drawn->svg) html(page, " <a href=\"%s/%s.gp\">gnuplot</a>", link, f->name);
    fputs("</figcaption>\n</figure>\n</section>\n", page);
    return status;
}

int study_write_figure(const study_results *r, const study_figure *f, const char *directory, const char *link,
                       FILE *page) {
    canvas c = {.r = r, .f = f};
    drawing_result drawn = {0};
    int status = open_canvas(&c);
    const drawing d = {.name = f->name, .label = f->title, .panel = c.panel, .n_panels = f->n_panels};
    if (!status) status = drawing_make(&d, directory, &drawn);
    if (!status) status = write_figure(&c, &drawn, link, page);
    drawing_free(&drawn);
    close_canvas(&c);
    return status;
}
