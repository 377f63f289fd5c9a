/* samples.c - answers of models beside input and reference. Differences are marked by words, or by characters if these are the
 * model's tokens. */
#include "report/page.h"

#include "support/text.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 20, OPEN = 5, LONGEST = 600 }; /* most samples; those shown without a click; most tokens compared */

/* ---- Alignment --------------------------------------------------------------------------------------------------- */

/* The words or code points of a text. */
typedef struct points {
    text_slice at[LONGEST];
    int n;
    bool cut; /* there was more */
} points;

static void split(const char *text, text_unit unit, points *out) {
    text_slice rest = text_of(text), token;
    out->n = 0;
    while (out->n < LONGEST && text_next_token(unit, &rest, &token)) out->at[out->n++] = token;
    out->cut = rest.n > 0;
}

static bool same(text_slice a, text_slice b) { return a.n == b.n && memcmp(a.bytes, b.bytes, a.n) == 0; }

/* Edit distances: row i, column k is that of output[i..] and reference[k..]. */
typedef struct distances {
    unsigned short d[LONGEST + 1][LONGEST + 1];
} distances;

static void measure(const points *a, const points *b, distances *m) {
    for (int i = a->n; i >= 0; i--) {
        for (int k = b->n; k >= 0; k--) {
            unsigned short best =
                (unsigned short)(a->n - i + b->n - k); /* at the end of one text the rest of the other is left */
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

static void put(FILE *out, text_slice token) {
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)token.n, token.bytes);
    html_text(out, text);
}

/* Opens and closes the mark around wrong tokens; neighbours share one. space: the separator before a word. */
static void set_mark(FILE *out, bool *open, bool wrong, const char *space) {
    if (wrong && *open) fputs(space, out);
    if (!wrong && *open) fputs("</mark>", out);
    if (!wrong || !*open) fputs(space, out);
    if (wrong && !*open) fputs("<mark>", out);
    *open = wrong;
}

/* Follows a shortest edit from output to reference. A caret stands for missing tokens and names them. */
static void write_marked(FILE *out, const points *a, const points *b, const distances *m, text_unit unit) {
    const char *const between = unit == TEXT_WORDS ? " " : "", *space = "";
    bool open = false;
    for (int i = 0, k = 0; i < a->n || k < b->n; space = between) {
        const bool equal = i < a->n && k < b->n && same(a->at[i], b->at[k]) && m->d[i][k] == m->d[i + 1][k + 1];
        const bool change = !equal && i < a->n && k < b->n && m->d[i][k] == m->d[i + 1][k + 1] + 1;
        if (equal || change || (i < a->n && m->d[i][k] == m->d[i + 1][k] + 1)) {
            set_mark(out, &open, !equal, space);
            put(out, a->at[i]);
            i++;
            k += equal || change;
            continue;
        }
        set_mark(out, &open, false, space);
        fputs("<mark class=\"gap\" title=\"missing: ", out);
        for (const char *before = ""; k < b->n && m->d[i][k] == m->d[i][k + 1] + 1; k++, before = between) {
            fputs(before, out);
            put(out, b->at[k]);
        }
        fputs("\">‸</mark>", out);
    }
    set_mark(out, &open, false, "");
    if (a->cut) fputs("…", out);
}

typedef struct aligner {
    text_unit unit;
    points output, reference;
    distances distances;
} aligner;

static void write_output(FILE *out, aligner *a, const char *output, const char *reference) {
    if (reference && strcmp(output, reference) == 0) {
        html(out, "%s <span class=\"right\" aria-label=\"correct\">✓</span>", output);
        return;
    }
    split(output, a->unit, &a->output);
    split(reference ? reference : "", a->unit, &a->reference);
    measure(&a->output, &a->reference, &a->distances);
    if (!a->output.n) fputs("<span class=\"muted\">(nothing)</span>", out);
    else if (reference) write_marked(out, &a->output, &a->reference, &a->distances, a->unit);
    else html_text(out, output);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static bool has_samples(const report_run *r) { return r->n_samples > 0; }

static bool is_output(const char *name) { return strcmp(name, "output") == 0; }

/* Whether all texts but the answer are equal. */
static bool same_question(const report_pairs *a, const report_pairs *b) {
    for (size_t i = 0; i < a->n; i++) {
        const char *other = report_pairs_find(b, a->at[i].key);
        if (!is_output(a->at[i].key) && (!other || strcmp(other, a->at[i].value) != 0)) return false;
    }
    return a->n == b->n;
}

static const report_pairs *find_sample(const report_run *r, const report_pairs *like) {
    for (size_t i = 0; r && i < r->n_samples; i++) {
        if (same_question(&r->sample[i], like)) return &r->sample[i];
    }
    return NULL;
}

static text_unit unit_of(const report_run *r) {
    const char *tokens = report_pairs_find(&r->recipe, "data.tokens");
    return tokens && strcmp(tokens, "characters") == 0 ? TEXT_CHARACTERS : TEXT_WORDS;
}

static void write_sample(FILE *out, const report *r, const report_pairs *s, aligner *a) {
    fputs("<tbody>\n", out);
    for (size_t i = 0; i < s->n; i++) {
        if (is_output(s->at[i].key)) continue;
        const bool reference = strcmp(s->at[i].key, "reference") == 0;
        html(out,
             reference ? "<tr><th scope=\"row\">%s</th><td>%s</td></tr>\n"
                       : "<tr><th scope=\"row\">%s</th><td lang=\"\">%s</td></tr>\n",
             s->at[i].key, s->at[i].value);
    }
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_first_run(&r->variant[i], has_samples);
        const report_pairs *own = find_sample(run, s);
        const char *output = own ? report_pairs_find(own, "output") : NULL;
        if (!output) continue;
        fputs("<tr>", out);
        html_variant_head(out, r, i, "row");
        fputs("<td>", out);
        a->unit = unit_of(run);
        write_output(out, a, output, report_pairs_find(own, "reference"));
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody>\n", out);
}

static void write_table(FILE *out, const report *r, const report_run *first, size_t from, size_t to, aligner *a) {
    fputs("<div class=\"scroll\"><table class=\"samples\">\n", out);
    for (size_t i = from; i < to; i++) write_sample(out, r, &first->sample[i], a);
    fputs("</table></div>\n", out);
}

/* Writes "Sentences of the test data, as each variant’s first run answers them after update 900." For prompts without a
 * reference: "How each variant’s first run goes on from some prompts of the test data, after update 900." */
static void write_introduction(FILE *out, const report *r, const report_run *first) {
    const bool reference = first->n_samples && report_pairs_find(&first->sample[0], "reference");
    const bool prompts = first->n_samples && !reference && report_pairs_find(&first->sample[0], "prompt");
    const char *of = first->final_test.weight > 0 || first->test.n ? " of the test data"
                     : first->final_valid.weight > 0               ? " of the validation data"
                                                                   : "";
    char what[sizeof first->samples];
    snprintf(what, sizeof what, "%s", *first->samples ? first->samples : "samples");
    what[0] = report_capital(what[0]);
    page_section(out, r, "samples", *first->answers ? first->answers : "Samples");
    const long long step = first->sample_step;
    if (prompts) html(out, "<p>How each variant’s first run goes on from some prompts%s, after update %lld.", of, step);
    else html(out, "<p>%s%s, as each variant’s first run answers them after update %lld.", what, of, step);
    if (reference)
        fprintf(out,
                " <mark>Marked</mark> is what differs from the reference, by %s; <mark class=\"gap\">‸</mark> stands "
                "where something is missing.",
                unit_of(first) == TEXT_WORDS ? "words" : "characters");
    fputs("</p>\n", out);
}

void page_samples(FILE *out, const report *r) {
    const report_run *first = NULL;
    aligner *a = malloc(sizeof *a);
    for (int i = 0; !first && i < r->n_variants; i++) first = report_first_run(&r->variant[i], has_samples);
    if (first && a) {
        const size_t n = first->n_samples < SHOWN ? first->n_samples : SHOWN, open = n < OPEN ? n : OPEN;
        write_introduction(out, r, first);
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
