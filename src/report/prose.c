/* prose.c - the sentences of the page: what came of the variants, and what to see in the figures. They state what the
 * numbers say; what the paper found is said to be the paper's.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report/page.h"

#include <math.h>
#include <string.h>

/* ---- Judging ----------------------------------------------------------------------------------------------------- */

/* How a variant did, from bad to good. */
typedef enum verdict { NO_DATA, DIVERGED, NEVER_STARTED, LEARNED } verdict;

/* The largest fall of the training loss that any variant made. Three quarters of the first loss count as made by one
 * that is not here, so that a variant alone is judged as well. */
static double best_fall(const report *r) {
    double best = 0;
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        best = fmax(best, fmax(v->first_loss - v->of[REPORT_LOSS].median, 0.75 * v->first_loss));
    }
    return best;
}

/* A model that learned nothing but how frequent each answer is has made the first part of the way, and stands still
 * there: less than half of the best fall, and next to nothing of it after the first sixth of the updates. */
static verdict judge(const report *r, const report_variant *v) {
    const double loss = v->of[REPORT_LOSS].median, best = best_fall(r);
    if (v->fates[REPORT_DIVERGED] == v->n) return DIVERGED;
    if (!isfinite(loss)) return NO_DATA;
    const bool low = v->first_loss - loss < 0.5 * best, still = v->early_loss - loss < 0.1 * best;
    return low && still ? NEVER_STARTED : LEARNED;
}

static const report_variant *best_variant(const report *r) {
    const report_variant *best = NULL;
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (judge(r, v) < NEVER_STARTED) continue;
        if (!best || v->of[REPORT_LOSS].median < best->of[REPORT_LOSS].median) best = v;
    }
    return best;
}

/* ---- Sentences --------------------------------------------------------------------------------------------------- */

static const char *number_word(int n, char out[16]) {
    static const char *const words[] = {"no",    "one",   "two",  "three", "four",   "five",  "six",
                                        "seven", "eight", "nine", "ten",   "eleven", "twelve"};
    if (n < (int)(sizeof words / sizeof *words)) snprintf(out, 16, "%s", words[n]);
    else snprintf(out, 16, "%d", n);
    return out;
}

static const char *plural(double n) { return n == 1 ? "" : "s"; }

static void emphasis(FILE *out, const char *name) {
    fputs("<b>", out);
    html_text(out, name);
    fputs("</b>", out);
}

/* "; accuracy 97.2 %, F1 0.96. " */
static void write_metrics(FILE *out, const report *r, const report_variant *v) {
    const char *before = "; ";
    for (int c = REPORT_FIRST_METRIC; c < REPORT_FIRST_METRIC + r->n_metrics; c++) {
        const metric *m = &r->column[c];
        char number[32];
        if (!v->of[c].n) continue;
        report_number(v->of[c].median, m->decimals, number, sizeof number);
        fputs(before, out);
        html_text(out, m->about);
        fprintf(out, "&nbsp;%s%s", number, *m->unit ? "&nbsp;" : "");
        html_text(out, m->unit);
        before = ", ";
    }
    fputs(". ", out);
}

static void write_learned(FILE *out, const report *r, const report_variant *v, const report_variant *best) {
    emphasis(out, v->name);
    if (v == best && r->n_variants > 1) fputs(" came furthest, to a training loss of ", out);
    else fputs(" reached a training loss of ", out);
    fprintf(out, "%.3f", v->of[REPORT_LOSS].median);
    if (v->of[REPORT_VALID].n) fprintf(out, " and a validation loss of %.3f", v->of[REPORT_VALID].median);
    write_metrics(out, r, v);
}

static void write_never_started(FILE *out, const report *r, const report_variant *v) {
    emphasis(out, v->name);
    fprintf(
        out,
        " never started: its training loss is %.2f after %.0f updates, where it was %.2f after %lld and %.2f at the "
        "first",
        v->of[REPORT_LOSS].median, v->of[REPORT_UPDATES].median, v->early_loss, (long long)v->early_step,
        v->first_loss);
    write_metrics(out, r, v);
}

static void write_diverged(FILE *out, const report_variant *v) {
    emphasis(out, v->name);
    fprintf(out, " diverged: its loss was no longer a finite number after %.0f update%s. ",
            v->of[REPORT_UPDATES].median, plural(v->of[REPORT_UPDATES].median));
}

/* Whether no run of any variant has come to its end. */
static bool all_open(const report *r) {
    int open = 0;
    for (int i = 0; i < r->n_variants; i++) {
        open += r->variant[i].fates[REPORT_GOING] + r->variant[i].fates[REPORT_INTERRUPTED];
    }
    return open == r->n;
}

/* What the numbers of a variant leave out. */
static void write_reservations(FILE *out, const report *r) {
    const bool none_finished = r->n > 1 && all_open(r);
    if (none_finished) fputs("No run has finished; the numbers are those of now. ", out);
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        char word[16];
        if (v->fates[REPORT_DIVERGED] && v->fates[REPORT_DIVERGED] < v->n) {
            fprintf(out, "Of the runs of ");
            emphasis(out, v->name);
            fprintf(out, ", %s diverged and %s not counted. ", number_word(v->fates[REPORT_DIVERGED], word),
                    v->fates[REPORT_DIVERGED] == 1 ? "is" : "are");
        }
        const int open = v->fates[REPORT_GOING] + v->fates[REPORT_INTERRUPTED];
        if (!open || none_finished || judge(r, v) == NO_DATA) continue;
        emphasis(out, v->name);
        if (open == v->n) fprintf(out, " has not finished; its numbers are those of now. ");
        else fprintf(out, " has %s run%s that did not finish. ", number_word(open, word), plural(open));
    }
}

/* "Three variants, two runs each, 900 updates." */
static void write_setting(FILE *out, const report *r) {
    char word[16];
    double least = INFINITY, most = 0;
    bool even = true;
    for (int i = 0; i < r->n_variants; i++) {
        least = fmin(least, r->variant[i].of[REPORT_UPDATES].min);
        most = fmax(most, r->variant[i].of[REPORT_UPDATES].max);
        even &= r->variant[i].n == r->variant[0].n;
    }
    number_word(r->n_variants, word);
    fprintf(out, "%c%s variant%s", report_capital(word[0]), word + 1, plural(r->n_variants));
    fprintf(out, ", %s run%s%s", number_word(even ? r->variant[0].n : r->n, word),
            plural(even ? r->variant[0].n : r->n),
            r->n_variants == 1 ? ""
            : even             ? " each"
                               : " in all");
    if (least == most) fprintf(out, ", %.0f updates. ", most);
    else fprintf(out, ", up to %.0f updates. ", most);
}

/* Those that learned besides the best: a sentence each, or one for all where there are many. */
static void write_others(FILE *out, const report *r, const report_variant *best) {
    enum { EACH = 4 };
    int n = 0;
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (v == best || judge(r, v) != LEARNED) continue;
        n++;
        least = fmin(least, v->of[REPORT_LOSS].median);
        most = fmax(most, v->of[REPORT_LOSS].median);
    }
    if (n > EACH) fprintf(out, "%d others reached training losses from %.3f to %.3f. ", n, least, most);
    for (int i = 0; n <= EACH && i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (v != best && judge(r, v) == LEARNED) write_learned(out, r, v, best);
    }
}

void page_summary(FILE *out, const report *r) {
    const report_variant *best = best_variant(r);
    fputs("<p class=\"summary\">", out);
    write_setting(out, r);
    if (best && judge(r, best) == LEARNED) write_learned(out, r, best, best);
    write_others(out, r, best);
    for (int i = 0; i < r->n_variants; i++) {
        const verdict is = judge(r, &r->variant[i]);
        if (is == NEVER_STARTED) write_never_started(out, r, &r->variant[i]);
        if (is == DIVERGED) write_diverged(out, &r->variant[i]);
        if (is != NO_DATA) continue;
        emphasis(out, r->variant[i].name);
        fputs(" has not recorded anything yet. ", out);
    }
    write_reservations(out, r);
    fputs("</p>\n", out);
}

/* ---- Captions ---------------------------------------------------------------------------------------------------- */

static void write_seeds(FILE *out, const report *r) {
    bool single = false, several = false;
    for (int i = 0; i < r->n_variants; i++) {
        single |= r->variant[i].n == 1;
        several |= r->variant[i].n > 1;
    }
    if (several)
        fprintf(out, "Lines are medians over the runs of a variant, bands reach from the lowest to the highest");
    if (single && several) fprintf(out, "; of a variant with one run, the thin line is every update");
    if (single && !several) fprintf(out, "The thin lines are every update");
    fputs(". ", out);
}

static void caption_losses(FILE *out, const report *r, const report_figures *f) {
    fputs("<b>Training loss</b> against updates and against time. ", out);
    write_seeds(out, r);
    if (f->window > 1) fprintf(out, "Smoothed lines are means of %lld updates. ", (long long)f->window);
    if (f->clipped) fputs("A line that leaves at the top has diverged. ", out);
    fputs("The paper’s Figures 1 and 2 show the same: there Adam without warm-up stays high, and AdaMod, which has no "
          "warm-up either, trains as Adam does with it. ",
          out);
}

static void caption_validations(FILE *out, const report *r) {
    bool several = false;
    for (int i = 0; i < r->n_variants; i++) several |= r->variant[i].n > 1;
    fputs("<b>Validation</b>: how well the model does on held-out data while training goes on. ", out);
    const char *pairs = page_common(r, "train.evaluate_pairs");
    if (pairs && strcmp(pairs, "0") != 0 && html_metrics(out, r, true)) {
        fputs(": of the first ", out);
        html_text(out, pairs);
        fputs(" validation pairs at most. ", out);
    }
    if (several) fputs("Bands reach from the lowest run to the highest. ", out);
    fputs("A loss that falls in training but not here would be overfitting. ", out);
}

static void write_percent(FILE *out, double share) {
    const double percent = 100 * share;
    if (percent > 0 && percent < 0.01) fputs("below 0.01&nbsp;%", out);
    else fprintf(out, "%.*f&nbsp;%%", percent == 0 ? 0 : percent < 1 ? 2 : 1, percent);
}

static void caption_rates(FILE *out, const report *r, const report_figures *f) {
    fprintf(out,
            "<b>Learning rates</b> that the elements of the model are really given, from update %lld, at the back, to "
            "update %lld in front. The height is the share of elements within a tenth of a power of ten; the bar gives "
            "its scale, and all panels have the same axes. The paper’s Figures 1 and 3 show these histograms: without "
            "warm-up, Adam gives many elements rates above 10,000 at first; with warm-up "
            "the schedule keeps them low, in AdaMod the bound does. Here the largest share of elements above "
            "10,000 at any update that was recorded is ",
            (long long)f->rows[0], (long long)f->rows[1]);
    bool first = true;
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (!run) continue;
        fputs(first ? "" : ", ", out);
        write_percent(out, report_share_above(run, 4));
        fputs(" for ", out);
        html_text(out, r->variant[i].name);
        first = false;
    }
    fputs(". ", out);
}

static void caption_bounds(FILE *out, const report *r) {
    fputs(
        "<b>What the bound does</b>: learning rates before it (η, as Adam would take them) and after it (the smaller "
        "of η and its moving average s). s begins at zero, so that at first all rates are held down: that is AdaMod’s "
        "warm-up. Afterwards only those far above their past are. ",
        out);
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (!report_is_bounded(&r->variant[i])) continue;
        const report_histogram *a = &run->histogram[0], *b = &run->histogram[run->n_histograms - 1];
        fputs("In ", out);
        html_text(out, r->variant[i].name);
        fprintf(out, " it acts on ");
        write_percent(out, a->bounded);
        fprintf(out, " of the elements at update %lld and on ", (long long)a->step);
        write_percent(out, b->bounded);
        fprintf(out, " at update %lld. ", (long long)b->step);
    }
    fputs("After the paper’s Figure 3. ", out);
}

void page_caption(FILE *out, const report *r, const report_figures *f, report_group group) {
    switch (group) {
        case REPORT_LOSSES: caption_losses(out, r, f); break;
        case REPORT_VALIDATIONS: caption_validations(out, r); break;
        case REPORT_RATES: caption_rates(out, r, f); break;
        case REPORT_BOUNDS: caption_bounds(out, r); break;
        default: break;
    }
}
