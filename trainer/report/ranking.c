#include "report/ranking.h"

#include "report/welch.h"
#include "support/text.h"

#include <math.h>
#include <string.h>

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

/* A variant's median, larger for better; NAN: it has no rank. */
static double rank_value(const report *r, int column, int variant) {
    const report_variant *v = &r->variant[variant];
    return v->fates[REPORT_DIVERGED] == v->n ? NAN : r->column[column].better * v->of[column].median;
}

/* The only variant with the best median; -1: none. */
static int best_in(const report *r, int column) {
    int best = -1;
    bool alone = false;
    for (int i = 0; i < r->n_variants; i++) {
        const double own = rank_value(r, column, i), other = best < 0 ? -INFINITY : rank_value(r, column, best);
        if (!isfinite(own)) continue;
        if (own > other) best = i;
        alone = own > other || (alone && own < other);
    }
    return alone ? best : -1;
}

ranking ranking_of(const report *r, int column) {
    ranking k = {.best = -1};
    if (column < 0 || r->column[column].better == METRIC_NEITHER || r->n_variants < 2) return k;
    if (!report_comparable(r, column, NULL, 0) || (k.best = best_in(r, column)) < 0) return k;
    for (int i = 0; i < r->n_variants; i++) {
        if (!ranking_has_rival(r, column, &k, i)) continue;
        const double p = ranking_p(r, column, &k, i);
        k.rivals++;
        k.beaten += ranking_beats(r, column, &k, i);
        k.tested += !isnan(p);
        k.most_p = fmax(k.most_p, p);
    }
    return k;
}

bool ranking_is_won(const ranking *k) { return k->best >= 0 && k->rivals > 0 && k->beaten == k->rivals; }

bool ranking_has_rival(const report *r, int column, const ranking *k, int variant) {
    return k->best >= 0 && variant != k->best && isfinite(rank_value(r, column, variant));
}

double ranking_p(const report *r, int column, const ranking *k, int variant) {
    return welch_p(&r->variant[k->best].of[column], &r->variant[variant].of[column]);
}

bool ranking_beats(const report *r, int column, const ranking *k, int variant) {
    return welch_better(&r->variant[k->best].of[column], &r->variant[variant].of[column], r->column[column].better);
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

void ranking_p_words(double p, char *out, size_t size) {
    if (isnan(p)) snprintf(out, size, "too few runs");
    else if (p < 0.001) snprintf(out, size, "p < 0.001");
    else snprintf(out, size, "p = %.*f", p < 0.01 ? 4 : p < 0.1 ? 3 : 2, p);
}

void ranking_difference(const metric *m, double difference, char *out, size_t size) {
    const bool percent = strcmp(m->unit, "%") == 0;
    snprintf(out, size, "%+.*f%s%s", m->decimals, difference, *m->unit ? " " : "", percent ? "points" : m->unit);
}

void ranking_power(const report *r, char *out, size_t size) {
    int least = 0;
    bool single = false;
    *out = '\0';
    if (r->n_variants < 2) return;
    for (int i = 0; i < r->n_variants; i++) {
        const int n = r->variant[i].n;
        single |= n < 2;
        if (n > 1 && (!least || n < least)) least = n;
    }
    welch_power(least, out, size);
    if (single && least) text_add(out, size, " One run of a variant tells nothing of chance.");
}

enum { EACH = 4 }; /* most rivals with a p each */

/* Writes ", by more than chance over Adam (p = 0.01)", or the others: ", perhaps by chance over ...". */
static void print_rivals(const report *r, int column, const ranking *k, bool beaten, FILE *out) {
    const char *before = beaten ? ", by more than chance over " : ", perhaps by chance over ";
    for (int i = 0; i < r->n_variants; i++) {
        char p[24];
        if (!ranking_has_rival(r, column, k, i) || ranking_beats(r, column, k, i) != beaten) continue;
        ranking_p_words(ranking_p(r, column, k, i), p, sizeof p);
        fprintf(out, "%s", before);
        text_print(out, r->variant[i].name);
        fprintf(out, " (%s)", p);
        before = ", ";
    }
}

static bool print_column(const report *r, int column, FILE *out) {
    const ranking k = ranking_of(r, column);
    char head[96];
    if (!report_has(r, column) || !k.tested) return false;
    report_column_head(r, column, "", head, sizeof head);
    text_print(out, head);
    fputs(": best is ", out);
    text_print(out, r->variant[k.best].name);
    if (k.rivals <= EACH) {
        print_rivals(r, column, &k, true, out);
        print_rivals(r, column, &k, false, out);
    } else {
        fprintf(out, ", by more than chance over %d of %d others", k.beaten, k.rivals);
    }
    fputc('\n', out);
    return true;
}

void ranking_print(const report *r, FILE *out) {
    char power[300];
    bool any = false;
    for (int c = REPORT_FIRST_METRIC; c < REPORT_UPDATES; c++) any |= print_column(r, c, out);
    any |= print_column(r, REPORT_VALID, out);
    ranking_power(r, power, sizeof power);
    if (any) fprintf(out, "By Welch's test over seeds. ");
    if (*power) fprintf(out, "%s\n", power);
}
