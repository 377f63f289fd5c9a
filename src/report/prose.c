/* prose.c - the sentences of the page: what came of the variants, and what to see in the figures. They state what was
 * measured in these runs, and nothing else.
 *
 * SPDX-License-Identifier: MIT
 */
#include "report/page.h"

#include <math.h>
#include <string.h>

/* ---- Judging ----------------------------------------------------------------------------------------------------- */

/* How a variant did, from bad to good. */
typedef enum verdict { NO_DATA, DIVERGED, STANDS_STILL, LEARNED } verdict;

/* The largest fall of the training loss that any variant made, of those that it can be compared with. Three quarters of
 * the first loss count as made by one that is not here, so that a variant alone is judged as well. */
static double best_fall(const report *r, const report_variant *own) {
    const bool comparable = report_comparable(r, REPORT_LOSS, NULL, 0);
    double best = 0;
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (comparable || v == own)
            best = fmax(best, fmax(v->first_loss - v->of[REPORT_LOSS].median, 0.75 * v->first_loss));
    }
    return best;
}

/* A model that learned nothing but how frequent each answer is has made the first part of the way, and stands still
 * there: less than half of the best fall, and next to nothing of it after the first sixth of the updates. One whose loss
 * fell and rose again, or rose from the start, has moved. */
static verdict judge(const report *r, const report_variant *v) {
    const double loss = v->of[REPORT_LOSS].median, best = best_fall(r, v);
    if (v->fates[REPORT_DIVERGED] == v->n) return DIVERGED;
    if (!isfinite(loss)) return NO_DATA;
    const bool low = v->first_loss - loss < 0.5 * best;
    const bool rose = loss - v->early_loss > 0.1 * best;
    const bool fell = v->early_loss - fmin(loss, v->lowest_loss) >= 0.1 * best;
    return low && !fell && !rose ? STANDS_STILL : LEARNED;
}

/* NULL: their losses do not compare, or there is none. */
static const report_variant *best_variant(const report *r) {
    const report_variant *best = NULL;
    if (!report_comparable(r, REPORT_LOSS, NULL, 0)) return NULL;
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (judge(r, v) < STANDS_STILL) continue;
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

/* "; on the test data accuracy 97.2 %, F1 0.96. " */
static void write_metrics(FILE *out, const report *r, const report_variant *v) {
    bool test = false, any = false;
    for (int i = 0; i < r->n_metrics; i++) test |= v->of[REPORT_FIRST_METRIC + i].n > 0;
    const int first = test ? REPORT_FIRST_METRIC : REPORT_FIRST_VALID;
    for (int c = first; c < first + r->n_metrics; c++) {
        const metric *m = &r->column[c];
        char number[32];
        if (!v->of[c].n) continue;
        report_number(v->of[c].median, m->decimals, number, sizeof number);
        fprintf(out, any ? ", " : "; on the %s data ", test ? "test" : "validation");
        html_text(out, m->about);
        fprintf(out, "&nbsp;%s%s", number, *m->unit ? "&nbsp;" : "");
        html_text(out, m->unit);
        any = true;
    }
    fputs(". ", out);
}

/* Whether another variant has the same training loss, as of runs that differ only in what they are tested on. */
static bool is_shared_loss(const report *r, const report_variant *v) {
    int n = 0;
    for (int i = 0; i < r->n_variants; i++) n += r->variant[i].of[REPORT_LOSS].median == v->of[REPORT_LOSS].median;
    return n > 1;
}

static void write_learned(FILE *out, const report *r, const report_variant *v, const report_variant *best) {
    const double loss = v->of[REPORT_LOSS].median;
    const bool lowest = v == best && r->n_variants > 1 && !is_shared_loss(r, v), rose = loss > v->first_loss;
    emphasis(out, v->name);
    if (lowest) fputs(" has the lowest training loss, ", out);
    else fprintf(out, " %s a training loss of ", rose ? "ended with" : "reached");
    fprintf(out, "%.3f", loss);
    if (rose) fprintf(out, ", above the %.3f of its first update", v->first_loss);
    if (v->of[REPORT_VALID].n)
        fprintf(out, "%s a validation loss of %.3f",
                lowest ? ", with"
                : rose ? ", and"
                       : " and",
                v->of[REPORT_VALID].median);
    write_metrics(out, r, v);
}

static void write_still(FILE *out, const report *r, const report_variant *v) {
    emphasis(out, v->name);
    fprintf(out,
            " hardly moved: its training loss is %.2f after %.0f updates, where it was %.2f after %lld and %.2f at the "
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
    if (none_finished) fputs("No run has finished; the numbers are the current ones. ", out);
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
        if (open == v->n) fprintf(out, " has not finished; its numbers are the current ones. ");
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
        if (is == STANDS_STILL) write_still(out, r, &r->variant[i]);
        if (is == DIVERGED) write_diverged(out, &r->variant[i]);
        if (is != NO_DATA) continue;
        emphasis(out, r->variant[i].name);
        fputs(" has not recorded anything yet. ", out);
    }
    write_reservations(out, r);
    fputs("</p>\n", out);
}

/* ---- Captions ---------------------------------------------------------------------------------------------------- */

/* Long runs record some of their updates alone. */
static bool recorded_all(const report_run *run) {
    for (size_t i = 0; i < run->train.n; i++) {
        if (run->train.at[i].weight > 1) return false;
    }
    return true;
}

static void write_seeds(FILE *out, const report *r) {
    bool single = false, several = false, all = true;
    for (int i = 0; i < r->n_variants; i++) {
        single |= r->variant[i].n == 1;
        several |= r->variant[i].n > 1;
        all &= r->variant[i].n > 1 || recorded_all(r->variant[i].run[0]);
    }
    const char *which = all ? "update" : "recorded update";
    if (several)
        fprintf(out, "Lines are medians over the runs of a variant, bands reach from the lowest to the highest");
    if (single && several) fprintf(out, "; of a variant with one run, the thin line is every %s", which);
    if (single && !several) fprintf(out, "The thin lines are every %s", which);
    fputs(". ", out);
}

/* "Training losses do not compare: the runs differ in label smoothing. " */
static void write_incomparable(FILE *out, const report *r, int column, const char *what) {
    char why[160];
    if (!report_comparable(r, column, why, sizeof why))
        fprintf(out, "%s do not compare: the runs differ in %s. ", what, why);
}

static void caption_losses(FILE *out, const report *r, const report_figures *f) {
    char times[200];
    bool diverged = false;
    for (int i = 0; i < r->n_variants; i++) diverged |= r->variant[i].fates[REPORT_DIVERGED] > 0;
    fputs("<b>Training loss</b>. ", out);
    write_seeds(out, r);
    if (diverged) fputs("A × stands where a run diverged; at the top, if it never had a finite loss. ", out);
    if (f->window > 1) fprintf(out, "Smoothed lines are means of %lld updates. ", (long long)f->window);
    if (f->clipped) fputs("A line that leaves at the top continues above it. ", out);
    write_incomparable(out, r, REPORT_LOSS, "Training losses");
    report_times(r, times, sizeof times);
    html_text(out, times);
    fputs(*times ? " " : "", out);
}

/* The lowest validation loss of a variant's first run, and where. */
static void write_lowest(FILE *out, const report_variant *v) {
    const report_series *s = &v->run[0]->valid;
    const report_point *lowest = NULL, *last = NULL;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->at[i].loss)) continue;
        last = &s->at[i];
        if (!lowest || last->loss < lowest->loss) lowest = last;
    }
    if (!lowest || lowest == last) return;
    fputs("In ", out);
    html_text(out, v->name);
    fprintf(out, "%s the validation loss was lowest after update %lld (%.3f) and is %.3f at the last. ",
            v->n > 1 ? ", first run," : "", (long long)lowest->step, lowest->loss, last->loss);
}

/* Of metrics that are recorded of training too. */
static void caption_training(FILE *out, const report *r) {
    fputs("<b>On the training data</b>: each batch as the model saw it. ", out);
    write_seeds(out, r);
}

static void caption_tests(FILE *out, const report *r) {
    fputs("<b>Test</b>: the model on the test data during training. ", out);
    for (int i = 0; i < r->n_metrics; i++) {
        char why[160];
        const int c = REPORT_FIRST_METRIC + i;
        if (!report_has(r, c) || report_comparable(r, c, why, sizeof why)) continue;
        fprintf(out, "They do not compare: the runs differ in %s. ", why);
        return;
    }
}

static void caption_perplexities(FILE *out, const report *r) {
    fputs("<b>Perplexity</b>: exp of the mean negative log-likelihood of a target, without label smoothing. ", out);
    write_incomparable(out, r, REPORT_LOSS, "Those of training");
}

static void caption_steps(FILE *out) {
    fputs(
        "<b>Learning rate</b> with its schedule, of the first group of parameters, and <b>norm of the gradient</b> of all "
        "parameters. ",
        out);
}

/* The next fingerprint of a split's data, from the place *at on; NULL: there is no more. */
static const char *next_of(const report_run *run, const char *split, size_t *at) {
    const size_t n = strlen(split);
    while (*at < run->data.n) {
        const report_pair *p = &run->data.at[(*at)++];
        if (strncmp(p->key, split, n) == 0 && p->key[n] == ' ') return p->value;
    }
    return NULL;
}

/* As the recipes of papers that show curves of the test set. */
static bool validates_on_test(const report_run *run) {
    size_t at_valid = 0, at_test = 0;
    for (int n = 0;; n++) {
        const char *valid = next_of(run, "valid", &at_valid), *test = next_of(run, "test", &at_test);
        if (!valid || !test) return n > 0 && !valid && !test;
        if (strcmp(valid, test) != 0) return false;
    }
}

static void write_what_validates(FILE *out, const report *r) {
    int n = 0;
    for (int i = 0; i < r->n; i++) n += validates_on_test(&r->run[i]);
    if (n == r->n) fputs("The validation data are the test data. ", out);
    else if (n) fprintf(out, "Of %d of %d runs, the validation data are the test data. ", n, r->n);
}

static void caption_validations(FILE *out, const report *r) {
    bool several = false;
    for (int i = 0; i < r->n_variants; i++) several |= r->variant[i].n > 1;
    fputs("<b>Validation</b>: the model on held-out data during training. ", out);
    if (page_limits_loss(r)) page_limit(out, r, "Of");
    else if (page_limits(r) && html_metrics(out, r, true)) page_limit(out, r, ": of");
    write_what_validates(out, r);
    if (several) fputs("Bands reach from the lowest run to the highest. ", out);
    write_incomparable(out, r, REPORT_VALID, "Validation losses");
    for (int i = 0; i < r->n_variants; i++) write_lowest(out, &r->variant[i]);
}

static void write_percent(FILE *out, double share) {
    const double percent = 100 * share;
    if (percent > 0 && percent < 0.01) fputs("below 0.01&nbsp;%", out);
    else fprintf(out, "%.*f&nbsp;%%", percent == 0 ? 0 : percent < 1 ? 2 : 1, percent);
}

/* The largest share of elements without a gradient so far, in any histogram of a run; NAN: not known. */
static double most_idle(const report_run *run) {
    double most = 0;
    for (size_t i = 0; i < run->n_histograms; i++) {
        if (isnan(run->histogram[i].idle)) return NAN;
        most = fmax(most, run->histogram[i].idle);
    }
    return most;
}

/* Elements that are left out of the histograms, or should be. */
static void write_idle(FILE *out, const report *r) {
    bool known = true, first = true;
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (run) known &= !isnan(most_idle(run));
    }
    if (!known) {
        fputs("Elements that never had a gradient, whose rate is α/ε, count as well: not all of these runs tell them "
              "apart. ",
              out);
        return;
    }
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (!run || !(most_idle(run) > 0)) continue;
        fputs(first ? "Elements that never had a gradient, whose rate is α/ε, are left out: at most " : ", ", out);
        write_percent(out, most_idle(run));
        fputs(" of all for ", out);
        html_text(out, r->variant[i].name);
        first = false;
    }
    fputs(first ? "" : ". ", out);
}

static void caption_rates(FILE *out, const report *r, const report_figures *f) {
    fprintf(out,
            "<b>Learning rates</b> that the elements of the model really get, from update %lld, at the back, to "
            "update %lld in front. The height is the share of elements within a tenth of a power of ten; the bar gives "
            "its scale, and all panels have the same axes. The largest share of elements above 10,000 at any update "
            "that was recorded is ",
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
    write_idle(out, r);
}

/* What AdaMod's bound did: how many elements it acted on, at the first update and at the last. */
static void caption_bounds(FILE *out, const report *r) {
    fputs("<b>What the bound does</b>: learning rates before it (η, as Adam would take them) and after it (the smaller "
          "of η and its moving average s). ",
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
}

static void write_caption(FILE *out, const report *r, const report_figures *f, report_group group) {
    switch (group) {
        case REPORT_LOSSES: caption_losses(out, r, f); break;
        case REPORT_TRAINING: caption_training(out, r); break;
        case REPORT_TESTS: caption_tests(out, r); break;
        case REPORT_PERPLEXITIES: caption_perplexities(out, r); break;
        case REPORT_STEPS: caption_steps(out); break;
        case REPORT_VALIDATIONS: caption_validations(out, r); break;
        case REPORT_RATES: caption_rates(out, r, f); break;
        case REPORT_BOUNDS: caption_bounds(out, r); break;
        default: break;
    }
}

void page_caption(FILE *out, const report *r, const report_figures *f, report_group group) {
    write_caption(out, r, f, group);
    if (f->from_below[group]) fputs("A line that enters from below begins there. ", out);
}
