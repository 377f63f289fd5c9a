/* samples.c - translations beside their references, with what is wrong in them marked.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report/page.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 20, OPEN = 5, LONGEST = 600 };

/* ---- Alignment --------------------------------------------------------------------------------------------------- */

/* A text as code points. */
typedef struct points {
    text_slice at[LONGEST];
    int n;
    bool cut; /* there was more */
} points;

static void split(const char *text, points *out) {
    text_slice rest = text_of(text), token;
    out->n = 0;
    while (out->n < LONGEST && text_next_token(TEXT_CHARACTERS, &rest, &token)) out->at[out->n++] = token;
    out->cut = rest.n > 0;
}

static bool same(text_slice a, text_slice b) { return a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0; }

/* Edit distances of the ends of both texts: row i, column k is that of output[i..] and reference[k..]. */
typedef struct distances {
    unsigned short d[LONGEST + 1][LONGEST + 1];
} distances;

static void measure(const points *a, const points *b, distances *m) {
    for (int i = a->n; i >= 0; i--) {
        for (int k = b->n; k >= 0; k--) {
            unsigned short best = (unsigned short)(a->n - i + b->n - k); /* at an end: all of the other is left */
            if (i < a->n && k < b->n) {
                const int change = m->d[i + 1][k + 1] + !same(a->at[i], b->at[k]);
                const int drop = m->d[i + 1][k] + 1, miss = m->d[i][k + 1] + 1;
                best = (unsigned short)(change <= drop && change <= miss ? change : drop <= miss ? drop : miss);
            }
            m->d[i][k] = best;
        }
    }
}

/* ---- Marks ------------------------------------------------------------------------------------------------------- */

static void put(FILE *out, text_slice point) {
    char text[8];
    snprintf(text, sizeof text, "%.*s", (int)point.n, point.bytes);
    html_text(out, text);
}

/* Opens and closes the mark around what is wrong, so that neighbours share one. */
static void set_mark(FILE *out, bool *open, bool wrong) {
    if (wrong != *open) fputs(wrong ? "<mark>" : "</mark>", out);
    *open = wrong;
}

/* Along a shortest way from the output to the reference. What the reference has more is a caret that tells it. */
static void write_marked(FILE *out, const points *a, const points *b, const distances *m) {
    bool open = false;
    for (int i = 0, k = 0; i < a->n || k < b->n;) {
        const bool equal = i < a->n && k < b->n && same(a->at[i], b->at[k]) && m->d[i][k] == m->d[i + 1][k + 1];
        const bool change = !equal && i < a->n && k < b->n && m->d[i][k] == m->d[i + 1][k + 1] + 1;
        if (equal || change || (i < a->n && m->d[i][k] == m->d[i + 1][k] + 1)) {
            set_mark(out, &open, !equal);
            put(out, a->at[i]);
            i++;
            k += equal || change;
            continue;
        }
        set_mark(out, &open, false);
        fputs("<mark class=\"gap\" title=\"missing: ", out);
        for (; k < b->n && m->d[i][k] == m->d[i][k + 1] + 1; k++) put(out, b->at[k]);
        fputs("\">‸</mark>", out);
    }
    set_mark(out, &open, false);
    if (a->cut) fputs("…", out);
}

typedef struct aligner {
    points output, reference;
    distances distances;
} aligner;

static void write_output(FILE *out, aligner *a, const char *output, const char *reference) {
    if (strcmp(output, reference) == 0) {
        html_text(out, output);
        fputs(" <span class=\"right\" aria-label=\"correct\">✓</span>", out);
        return;
    }
    split(output, &a->output);
    split(reference, &a->reference);
    measure(&a->output, &a->reference, &a->distances);
    if (a->output.n) write_marked(out, &a->output, &a->reference, &a->distances);
    else fputs("<span class=\"muted\">(nothing)</span>", out);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* The run whose samples stand for a variant: the first that has some. */
static const report_run *sample_run(const report_variant *v) {
    for (int i = 0; i < v->n; i++) {
        if (v->run[i]->n_samples) return v->run[i];
    }
    return NULL;
}

static const report_sample *find_sample(const report_run *r, const report_sample *like) {
    for (size_t i = 0; r && i < r->n_samples; i++) {
        if (strcmp(r->sample[i].source, like->source) == 0 && strcmp(r->sample[i].reference, like->reference) == 0) {
            return &r->sample[i];
        }
    }
    return NULL;
}

static void write_sample(FILE *out, const report *r, const report_sample *s, aligner *a) {
    fputs("<tbody>\n<tr><th scope=\"row\">source</th><td lang=\"\">", out);
    html_text(out, s->source);
    fputs("</td></tr>\n<tr><th scope=\"row\">reference</th><td>", out);
    html_text(out, s->reference);
    fputs("</td></tr>\n", out);
    for (int i = 0; i < r->n_variants; i++) {
        const report_sample *own = find_sample(sample_run(&r->variant[i]), s);
        if (!own) continue;
        fputs("<tr><th scope=\"row\">", out);
        html_variant(out, r, i);
        fputs("</th><td>", out);
        write_output(out, a, own->output, own->reference);
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody>\n", out);
}

static void write_table(FILE *out, const report *r, const report_run *first, size_t from, size_t to, aligner *a) {
    fputs("<div class=\"scroll\"><table class=\"samples\">\n", out);
    for (size_t i = from; i < to; i++) write_sample(out, r, &first->sample[i], a);
    fputs("</table></div>\n", out);
}

void page_samples(FILE *out, const report *r) {
    const report_run *first = NULL;
    aligner *a = malloc(sizeof *a);
    for (int i = 0; !first && i < r->n_variants; i++) first = sample_run(&r->variant[i]);
    if (first && a) {
        const size_t n = first->n_samples < SHOWN ? first->n_samples : SHOWN, open = n < OPEN ? n : OPEN;
        fprintf(
            out,
            "<section aria-labelledby=\"samples\">\n<h2 id=\"samples\">Translations</h2>\n<p>Sentences of the test, "
            "as each variant’s first run translates them after update %lld. <mark>Marked</mark> is what differs from "
            "the reference; <mark class=\"gap\">‸</mark> stands where something is missing.</p>\n",
            (long long)first->sample_step);
        write_table(out, r, first, 0, open, a);
        if (n > open) {
            fprintf(out, "<details><summary>%zu more</summary>\n", n - open);
            write_table(out, r, first, open, n, a);
            fputs("</details>\n", out);
        }
        fputs("</section>\n", out);
    }
    free(a);
}
