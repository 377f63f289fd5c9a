/* class_tables.c - classifiers class by class: accuracy, confusion matrix, surest mistakes. Tables need no gnuplot and work
 * with screen readers; the matrix of many classes is a picture. */
#include "report/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MATRIX = 30,  /* most classes of a matrix shown as a table */
    MAP = 300,    /* most classes of a matrix shown as a picture; more would be megabytes */
    PAIRS = 10,   /* the most frequent mistakes */
    PICTURES = 24 /* the surest mistakes */
};

/* ---- Counts ------------------------------------------------------------------------------------------------------ */

/* Sums over the runs of a variant that have the same classes and split as the first run of the report with classes. */
typedef struct tally {
    const report_classes *like;
    double *count; /* as report_classes.count */
    int runs;
} tally;

static const report_classes *first_classes(const report *r) {
    for (int i = 0; i < r->n; i++) {
        if (r->run[i].classes.n) return &r->run[i].classes;
    }
    return NULL;
}

static bool same_classes(const report_classes *a, const report_classes *b) {
    if (a->n != b->n || strcmp(a->split, b->split) != 0) return false;
    for (int i = 0; i < a->n; i++) {
        if (strcmp(a->name[i], b->name[i]) != 0) return false;
    }
    return true;
}

static bool add_up(const report_variant *v, const report_classes *like, tally *out) {
    const size_t n = (size_t)like->n * (size_t)like->n;
    *out = (tally){.like = like, .count = calloc(n, sizeof(double))};
    for (int i = 0; out->count && i < v->n; i++) {
        const report_classes *c = &v->run[i]->classes;
        if (!same_classes(c, like)) continue;
        for (size_t k = 0; k < n; k++) out->count[k] += c->count[k];
        out->runs++;
    }
    return out->count != NULL;
}

static double row_sum(const tally *t, int label) {
    double sum = 0;
    for (int k = 0; k < t->like->n; k++) sum += t->count[label * t->like->n + k];
    return sum;
}

/* The share of a class with this prediction. NAN: the class is empty. */
static double share(const tally *t, int label, int prediction) {
    const double sum = row_sum(t, label);
    return sum > 0 ? t->count[label * t->like->n + prediction] / sum : NAN;
}

/* ---- Accuracy of each class ------------------------------------------------------------------------------------- */

static const char *class_name(const report_classes *c, int i) { return *c->name[i] ? c->name[i] : "–"; }

static void write_accuracies(FILE *out, const report *r, const tally *t) {
    const report_classes *c = t[0].like;
    fputs("<h3>Accuracy of each class</h3>\n", out);
    if (c->n > MATRIX) fprintf(out, "<details><summary>%d classes</summary>\n", c->n);
    fputs(
        "<div class=\"scroll\"><table class=\"classes\" aria-label=\"Accuracy of each class\">\n<thead><tr><th scope=\"col\">class</th>",
        out);
    for (int v = 0; v < r->n_variants; v++) {
        if (t[v].runs) html_variant_head(out, r, v, "col");
    }
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < c->n; i++) {
        html(out, "<tr><th scope=\"row\">%s</th>", class_name(c, i));
        for (int v = 0; v < r->n_variants; v++) {
            const double right = 100 * (t[v].runs ? share(&t[v], i, i) : NAN);
            char name[24];
            if (!t[v].runs) continue;
            if (isnan(right)) fputs("<td>–</td>", out);
            else
                html(out, "<td><span class=\"bar\" style=\"width:%.1fpx;background:var(%s)\"></span>%.1f&nbsp;%%</td>",
                     right, report_colour_name(v, REPORT_TINT, name), right);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody>\n</table></div>\n", out);
    fputs(c->n > MATRIX ? "</details>\n" : "", out);
}

/* The table of accuracies as a sheet, in percent. */
static sheet *accuracy_sheet(const report *r, const tally *t) {
    const report_classes *c = t[0].like;
    int columns = 1;
    for (int v = 0; v < r->n_variants; v++) columns += t[v].runs > 0;
    sheet *s = sheet_create(c->n + 1, columns, "Accuracy of each class, in percent.");
    if (!s) return NULL;
    sheet_put(s, 0, 0, "class");
    for (int i = 0; i < c->n; i++) sheet_put(s, i + 1, 0, "%s", class_name(c, i));
    for (int v = 0, k = 1; v < r->n_variants; v++) {
        if (!t[v].runs) continue;
        sheet_put(s, 0, k, "%s", r->variant[v].name);
        for (int i = 0; i < c->n; i++) {
            const double right = share(&t[v], i, i);
            if (isnan(right)) sheet_put(s, i + 1, k, "–");
            else sheet_put(s, i + 1, k, "%.1f", 100 * right);
        }
        k++;
    }
    return s;
}

static sheet *accuracy_records(const report *r, const tally *t) {
    static const char *const heads[] = {"variant", "class", "runs", "samples", "right"};
    const int n = t[0].like->n;
    int rows = 0, row = 1;
    for (int v = 0; v < r->n_variants; v++) rows += t[v].runs ? n : 0;
    sheet *s = sheet_under(heads, 5, rows, NULL);
    for (int i = 0; s && i < n * r->n_variants; i++) {
        const tally *of = &t[i / n];
        if (!of->runs) continue;
        sheet_put(s, row, 0, "%s", r->variant[i / n].name);
        sheet_put(s, row, 1, "%s", of->like->name[i % n]);
        sheet_put(s, row, 2, "%d", of->runs);
        sheet_put(s, row, 3, "%.0f", row_sum(of, i % n));
        sheet_put(s, row++, 4, "%.0f", of->count[i % n * (n + 1)]);
    }
    return s;
}

/* ---- Confusion --------------------------------------------------------------------------------------------------- */

/* A cell is darker for a larger share of its row. The square root makes rare mistakes visible. */
static void write_cell(FILE *out, const tally *t, int label, int prediction) {
    const double n = t->count[label * t->like->n + prediction], part = share(t, label, prediction);
    if (!(n > 0)) {
        fputs("<td></td>", out);
        return;
    }
    const bool hit = label == prediction;
    html(out, "<td class=\"%s%s\" style=\"--share:%.3f\" title=\"%s%s%s: %.1f&nbsp;%%\">%.0f</td>",
         hit ? "hit" : "miss", part > 0.3 ? " deep" : "", sqrt(part), class_name(t->like, label),
         hit ? " recognized" : " taken for ", hit ? "" : class_name(t->like, prediction), 100 * part, n);
}

static void write_matrix(FILE *out, const tally *t) {
    const report_classes *c = t->like;
    fputs("<div class=\"scroll\"><table class=\"confusion\">\n<thead><tr><th scope=\"col\">true class</th>", out);
    for (int k = 0; k < c->n; k++) html(out, "<th scope=\"col\"><span>%s</span></th>", class_name(c, k));
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < c->n; i++) {
        html(out, "<tr><th scope=\"row\">%s</th>", class_name(c, i));
        for (int k = 0; k < c->n; k++) write_cell(out, t, i, k);
        fputs("</tr>\n", out);
    }
    fputs("</tbody>\n</table></div>\n", out);
}

static sheet *matrix_sheet(const report_variant *v, const tally *t) {
    const report_classes *c = t->like;
    char caption[300];
    snprintf(caption, sizeof caption, "%.200s: true classes in rows, answers in columns.", v->name);
    sheet *s = sheet_create(c->n + 1, c->n + 1, caption);
    if (s) sheet_put(s, 0, 0, "true class");
    for (int i = 0; s && i < c->n; i++) {
        sheet_put(s, i + 1, 0, "%s", class_name(c, i));
        sheet_put(s, 0, i + 1, "%s", class_name(c, i));
        for (int k = 0; k < c->n; k++) {
            if (t->count[i * c->n + k] > 0) sheet_put(s, i + 1, k + 1, "%.0f", t->count[i * c->n + k]);
        }
    }
    return s;
}

/* A row for each pair of classes. */
static sheet *matrix_records(const report_variant *v, const tally *t) {
    static const char *const heads[] = {"variant", "class", "answer", "count"};
    const int n = t->like->n;
    sheet *s = sheet_under(heads, 4, n * n, NULL);
    for (int i = 0; s && i < n * n; i++) {
        sheet_put(s, 1 + i, 0, "%s", v->name);
        sheet_put(s, 1 + i, 1, "%s", t->like->name[i / n]);
        sheet_put(s, 1 + i, 2, "%s", t->like->name[i % n]);
        sheet_put(s, 1 + i, 3, "%.0f", t->count[i]);
    }
    return s;
}

static void keep_matrix(FILE *out, const report *r, const tally *t, int variant, page_tables *to) {
    const report_variant *v = &r->variant[variant];
    char name[32];
    snprintf(name, sizeof name, "confusion-%d", variant + 1);
    page_keep(out, to, r, name, matrix_sheet(v, t), matrix_records(v, t));
}

/* Colours a pixel as a cell of the table on white. */
static void put_pixel(unsigned char *to, bool hit, double part) {
    static const double blue[3] = {0, 114, 178}, orange[3] = {213, 94, 0};
    const double *full = hit ? blue : orange, alpha = part > 0 ? sqrt(part) : 0;
    for (int k = 0; k < 3; k++) to[k] = (unsigned char)lround(255 + alpha * (full[k] - 255));
}

static void write_map(FILE *out, const tally *t) {
    const int n = t->like->n;
    unsigned char *pixels = malloc((size_t)n * (size_t)n * 3);
    if (!pixels) return;
    for (int i = 0; i < n * n; i++) put_pixel(pixels + 3 * (size_t)i, i / n == i % n, share(t, i / n, i % n));
    fprintf(out, "<img class=\"map\" alt=\"confusion matrix\" width=\"%d\" height=\"%d\" src=\"", n, n);
    html_picture(out, pixels, n, n, 3);
    fputs("\">\n", out);
    free(pixels);
}

/* The place of the next mistake in the order of frequency, then of place; -1: none. */
static int next_pair(const tally *t, int before) {
    const int n = t->like->n;
    int best = -1;
    for (int i = 0; i < n * n; i++) {
        if (i / n == i % n || !(t->count[i] > 0)) continue;
        if (before >= 0 && (t->count[i] > t->count[before] || (t->count[i] == t->count[before] && i <= before)))
            continue;
        if (best < 0 || t->count[i] > t->count[best]) best = i;
    }
    return best;
}

static void write_pairs(FILE *out, const tally *t) {
    const int n = t->like->n;
    int pair = next_pair(t, -1);
    if (pair < 0) return;
    fputs("<p>Most frequent mistakes: ", out);
    for (int shown = 0; shown < PAIRS && pair >= 0; shown++, pair = next_pair(t, pair)) {
        html(out, "%s%s taken for %s (%.0f, %.1f&nbsp;%%)", shown ? "; " : "", class_name(t->like, pair / n),
             class_name(t->like, pair % n), t->count[pair], 100 * share(t, pair / n, pair % n));
    }
    fputs(".</p>\n", out);
}

static void write_confusion(FILE *out, const report *r, const tally *t, int variant, page_tables *to) {
    fputs("<p>", out);
    html_variant(out, r, variant);
    if (t->runs > 1) fprintf(out, ", sum of %d runs", t->runs);
    fputs("</p>\n", out);
    if (t->like->n <= MATRIX) write_matrix(out, t);
    else if (t->like->n <= MAP) write_map(out, t);
    write_pairs(out, t);
    if (t->like->n <= MATRIX) keep_matrix(out, r, t, variant, to);
}

static const char *split_word(const char *split) {
    if (strcmp(split, "test") == 0) return "test";
    return strcmp(split, "valid") == 0 ? "validation" : "other";
}

/* ---- Mistakes ---------------------------------------------------------------------------------------------------- */

static void write_mistake(FILE *out, const report_classes *c, const report_mistake *m) {
    fputs("<figure class=\"mistake\">", out);
    if (m->pixels) {
        html(out, "<img alt=\"%s\" width=\"%d\" height=\"%d\" src=\"", class_name(c, m->label), c->width, c->height);
        html_picture(out, m->pixels, c->height, c->width, c->channels);
        fputs("\">", out);
    }
    html(out, "<figcaption><b>%s</b>", class_name(c, m->prediction));
    if (!isnan(m->probability)) fprintf(out, " %.1f&nbsp;%%", 100 * m->probability);
    html(out, "<br>is %s</figcaption></figure>\n", class_name(c, m->label));
}

static void write_mistakes(FILE *out, const report *r, int variant, const report_classes *c, const char *split) {
    const int n = c->n_mistakes < PICTURES ? c->n_mistakes : PICTURES;
    fputs("<p>", out);
    html_variant(out, r, variant);
    if (strcmp(c->split, split) != 0) fprintf(out, ", %s data", split_word(c->split));
    fputs("</p>\n<div class=\"mistakes\">\n", out);
    for (int i = 0; i < n; i++) write_mistake(out, c, &c->mistake[i]);
    fputs("</div>\n", out);
}

static bool has_mistakes(const report_run *r) { return r->classes.n_mistakes > 0; }

/* ---- The section ------------------------------------------------------------------------------------------------- */

/* Whether all runs in the tables ended with the same update. */
static bool same_step(const report *r, const report_classes *like) {
    for (int i = 0; i < r->n; i++) {
        if (same_classes(&r->run[i].classes, like) && r->run[i].classes.step != like->step) return false;
    }
    return true;
}

static bool has_classes(const report_run *r) { return r->classes.n > 0; }

/* Writes "Test data, after update 900.", and which variants are not in the tables. */
static void write_scope(FILE *out, const report *r, const tally *t) {
    const report_classes *c = t[0].like;
    int left_out = 0;
    fprintf(out, "<p>%c%s data, after ", split_word(c->split)[0] - 'a' + 'A', split_word(c->split) + 1);
    if (same_step(r, c)) fprintf(out, "update %lld.", (long long)c->step);
    else fputs("the last update of each run.", out);
    for (int v = 0; v < r->n_variants; v++) {
        if (t[v].runs || !report_first_run(&r->variant[v], has_classes)) continue;
        fputs(left_out++ ? ", " : " Not in these tables, since they have other classes or are not of such data: ", out);
        html_variant(out, r, v);
    }
    fputs(left_out ? ".</p>\n" : "</p>\n", out);
}

static void write_section(FILE *out, const report *r, const tally *t, page_tables *to) {
    const report_classes *c = t[0].like;
    bool mistakes = false;
    page_section(out, r, "classes", "Classes");
    write_scope(out, r, t);
    write_accuracies(out, r, t);
    page_keep(out, to, r, "classes", accuracy_sheet(r, t), accuracy_records(r, t));
    fputs("<h3>What is taken for what</h3>\n", out);
    if (c->n <= MATRIX)
        fputs("<p>A row for each true class, a column for each answer of the model. The darker a cell, the larger its "
              "share of the row.</p>\n",
              out);
    else if (c->n <= MAP)
        fputs("<p>A row for each true class, a column for each answer of the model, in the order of the table above: "
              "right answers in blue, mistakes in orange. The darker a cell, the larger its share of the row.</p>\n",
              out);
    for (int v = 0; v < r->n_variants; v++) {
        if (t[v].runs) write_confusion(out, r, &t[v], v, to);
        mistakes |= report_first_run(&r->variant[v], has_mistakes) != NULL;
    }
    if (mistakes) {
        fputs("<h3>Surest mistakes</h3>\n<p>The wrong answers to which the model gave the highest probability, in the "
              "first run of each variant that has some.</p>\n",
              out);
    }
    for (int v = 0; v < r->n_variants; v++) {
        const report_run *run = report_first_run(&r->variant[v], has_mistakes);
        if (run) write_mistakes(out, r, v, &run->classes, c->split);
    }
    fputs("</section>\n", out);
}

void page_classes(FILE *out, const report *r, page_tables *to) {
    const report_classes *like = first_classes(r);
    tally *t = like ? calloc((size_t)r->n_variants, sizeof *t) : NULL;
    bool memory = t != NULL;
    for (int v = 0; memory && v < r->n_variants; v++) memory = add_up(&r->variant[v], like, &t[v]);
    if (memory) write_section(out, r, t, to);
    for (int v = 0; t && v < r->n_variants; v++) free(t[v].count);
    free(t);
}
