/* prose.c - the sentences of the page: results of the variants and captions of figures. They state only what was measured in
 * these runs. */
#include "report/page.h"
#include "report/ranking.h"

#include <math.h>
#include <string.h>

/* ---- Judging ----------------------------------------------------------------------------------------------------- */

/* From bad to good. */
typedef enum verdict { NO_DATA, DIVERGED, STANDS_STILL, LEARNED } verdict;

/* The largest fall of the training loss among comparable variants, and at least three quarters of the first loss, so that a
 * single variant is judged as well. */
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

/* A model that only learned the frequencies of answers stands still: its loss fell by less than half of the best fall, and
 * hardly after the first sixth of the updates. If the loss rose, or fell and rose again, the model has moved. */
static verdict judge(const report *r, const report_variant *v) {
    const double loss = v->of[REPORT_LOSS].median, best = best_fall(r, v);
    if (v->fates[REPORT_DIVERGED] == v->n) return DIVERGED;
    if (!isfinite(loss)) return NO_DATA;
    const bool low = v->first_loss - loss < 0.5 * best;
    const bool rose = loss - v->early_loss > 0.1 * best;
    const bool fell = v->early_loss - fmin(loss, v->lowest_loss) >= 0.1 * best;
    return low && !fell && !rose ? STANDS_STILL : LEARNED;
}

/* The first result of the summary: a column (-1: none), the only variant that is best in it (NULL: none), and its rivals. */
typedef struct lead {
    int column;
    const report_variant *best;
    ranking rank;
} lead;

static bool is_chosen(const report *r, int column) {
    const char *chosen = page_common(r, "train.best");
    return chosen && strcmp(chosen, r->column[column].name) == 0;
}

/* Prefers test over validation over training, and among metrics the one that chooses the best model. A column with a single
 * best variant comes first, unless it is the training loss. */
static lead find_lead(const report *r) {
    static const int first[] = {REPORT_FIRST_METRIC, REPORT_FIRST_VALID, REPORT_VALID, REPORT_LOSS};
    lead out = {.column = -1};
    for (int i = 0; i < (out.column < 0 ? 4 : 3); i++) {
        for (int pass = 0; pass < 2; pass++) {
            for (int k = 0; k < (i < 2 ? r->n_metrics : 1); k++) {
                const int c = first[i] + k;
                if (is_chosen(r, c) != (pass == 0) || !report_has(r, c)) continue;
                if (out.column < 0) out.column = c;
                const ranking rank = ranking_of(r, c);
                if (rank.best >= 0) return (lead){c, &r->variant[rank.best], rank};
            }
        }
    }
    return out;
}

enum { EACH = 4 }; /* most variants with a sentence each, and most metrics in it */

/* ---- Sentences --------------------------------------------------------------------------------------------------- */

static const char *number_word(int n, char out[16]) {
    static const char *const words[] = {"no",    "one",   "two",  "three", "four",   "five",  "six",
                                        "seven", "eight", "nine", "ten",   "eleven", "twelve"};
    if (n < (int)(sizeof words / sizeof *words)) snprintf(out, 16, "%s", words[n]);
    else snprintf(out, 16, "%d", n);
    return out;
}

static const char *plural(double n) { return n == 1 ? "" : "s"; }

static void write_number(FILE *out, const metric *m, double x) {
    char number[32];
    report_number(x, m->decimals, number, sizeof number);
    html(out, *m->unit ? "%s&nbsp;%s" : "%s%s", number, m->unit);
}

/* Writes "test accuracy". Labels of losses include the split. */
static void write_what(FILE *out, const report *r, int column) {
    const char *split = report_split(r, column);
    html(out, "%s%s%s", split, *split ? " " : "", r->column[column].about);
}

/* Writes "test accuracy 97.2 %, test F1 0.96, validation loss 0.1, training loss 0.05" without the column `said` and with at
 * most EACH metrics. */
static void write_values(FILE *out, const report *r, const report_variant *v, int said) {
    const char *comma = "";
    bool test = false;
    for (int i = 0; i < r->n_metrics; i++) test |= v->of[REPORT_FIRST_METRIC + i].n > 0;
    const int first = test ? REPORT_FIRST_METRIC : REPORT_FIRST_VALID;
    const int metrics = r->n_metrics < EACH ? r->n_metrics : EACH;
    for (int i = 0; i < metrics + 2; i++) {
        const int c = i < metrics ? first + i : i == metrics ? REPORT_VALID : REPORT_LOSS;
        if (!v->of[c].n || c == said) continue;
        fputs(comma, out);
        write_what(out, r, c);
        fputs("&nbsp;", out);
        write_number(out, &r->column[c], v->of[c].median);
        comma = ", ";
    }
    if (said != REPORT_LOSS && v->of[REPORT_LOSS].median > v->first_loss)
        fprintf(out, "%sabove the %.3f of its first update", comma, v->first_loss);
    fputs(". ", out);
}

/* Names the best variant as the winner only if chance cannot explain its lead. */
static void write_best(FILE *out, const report *r, lead l) {
    const metric *m = &r->column[l.column];
    const bool won = ranking_is_won(&l.rank);
    const char *end = m->better == METRIC_LOWER ? "lowest" : "highest";
    if (won) html(out, "<b>%s</b> has the %s ", l.best->name, end);
    else fprintf(out, "The %s ", end);
    write_what(out, r, l.column);
    if (won) fputs(", ", out);
    else html(out, " measured is that of <b>%s</b>, ", l.best->name);
    write_number(out, m, l.best->of[l.column].median);
    fputs("; ", out);
    write_values(out, r, l.best, l.column);
}

/* Writes what chance may explain of the lead: "Its lead over <b>Adam</b> (p = 0.43) may be chance. " */
static void write_chance(FILE *out, const report *r, lead l) {
    const int open = l.rank.rivals - l.rank.beaten;
    const char *before = "Its lead over ";
    char p[24];
    ranking_p_words(l.rank.most_p, p, sizeof p);
    if (ranking_is_won(&l.rank))
        html(out, "That is more than chance explains (Welch’s test over seeds, %s%s). ",
             l.rank.rivals > 1 ? "largest " : "", p);
    else if (!l.rank.tested && l.rank.rivals) fputs("There are too few runs to tell whether that is chance. ", out);
    else if (open > EACH) fprintf(out, "Its lead over %d of %d others may be chance. ", open, l.rank.rivals);
    if (!l.rank.tested || open > EACH) return;
    for (int i = 0; i < r->n_variants; i++) {
        if (!ranking_has_rival(r, l.column, &l.rank, i) || ranking_beats(r, l.column, &l.rank, i)) continue;
        ranking_p_words(ranking_p(r, l.column, &l.rank, i), p, sizeof p);
        html(out, "%s<b>%s</b> (%s)", before, r->variant[i].name, p);
        before = ", ";
    }
    fputs(open ? " may be chance. " : "", out);
}

static void write_learned(FILE *out, const report *r, const report_variant *v) {
    html(out, "<b>%s</b>: ", v->name);
    write_values(out, r, v, -1);
}

static void write_still(FILE *out, const report *r, const report_variant *v) {
    html(
        out,
        "<b>%s</b> hardly moved: its training loss is %.2f after %.0f updates, where it was %.2f after %lld and %.2f at "
        "the first; ",
        v->name, v->of[REPORT_LOSS].median, v->of[REPORT_UPDATES].median, v->early_loss, (long long)v->early_step,
        v->first_loss);
    write_values(out, r, v, REPORT_LOSS);
}

static void write_diverged(FILE *out, const report_variant *v) {
    html(out, "<b>%s</b> diverged: its loss was no longer a finite number after %.0f update%s. ", v->name,
         v->of[REPORT_UPDATES].median, plural(v->of[REPORT_UPDATES].median));
}

/* Whether no run has ended. */
static bool all_open(const report *r) {
    int open = 0;
    for (int i = 0; i < r->n_variants; i++) {
        open += r->variant[i].fates[REPORT_GOING] + r->variant[i].fates[REPORT_INTERRUPTED];
    }
    return open == r->n;
}

/* Writes which runs do not count or have not finished. */
static void write_reservations(FILE *out, const report *r) {
    const bool none_finished = r->n > 1 && all_open(r);
    if (none_finished) fputs("No run has finished; the numbers are the current ones. ", out);
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        char word[16];
        const int diverged = v->fates[REPORT_DIVERGED];
        if (diverged && diverged < v->n)
            html(out, "Of the runs of <b>%s</b>, %s diverged and %s not counted. ", v->name,
                 number_word(diverged, word), diverged == 1 ? "is" : "are");
        const int open = v->fates[REPORT_GOING] + v->fates[REPORT_INTERRUPTED];
        if (!open || none_finished || judge(r, v) == NO_DATA) continue;
        if (open == v->n) html(out, "<b>%s</b> has not finished; its numbers are the current ones. ", v->name);
        else html(out, "<b>%s</b> has %s run%s that did not finish. ", v->name, number_word(open, word), plural(open));
    }
}

/* Writes "Three variants, two runs each, 900 updates." */
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

/* The smallest and largest median of the variants with a verdict, without one of them. Returns their number. */
static int range_of(const report *r, verdict is, int column, const report_variant *but, double *least, double *most) {
    int n = 0;
    *least = INFINITY;
    *most = -INFINITY;
    for (int i = 0; i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (v == but || judge(r, v) != is) continue;
        n++;
        *least = fmin(*least, v->of[column].median);
        *most = fmax(*most, v->of[column].median);
    }
    return n;
}

static void write_range(FILE *out, const report *r, int column, double least, double most) {
    write_what(out, r, column);
    if (least < most) {
        fputs(" from ", out);
        write_number(out, &r->column[column], least);
    }
    fputs(least < most ? " to " : " ", out);
    write_number(out, &r->column[column], most);
}

/* Writes "13 others have test perplexity from 6.53 to 12.43. ", or "They have ..." if none is the best. */
static void write_others(FILE *out, const report *r, lead l) {
    double least = INFINITY, most = -INFINITY;
    char why[160], word[16];
    const bool best = l.best && judge(r, l.best) == LEARNED;
    const int n = range_of(r, LEARNED, l.column < 0 ? REPORT_LOSS : l.column, best ? l.best : NULL, &least, &most);
    for (int i = 0; n <= EACH && i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (judge(r, v) == LEARNED && !(best && v == l.best)) write_learned(out, r, v);
    }
    if (n <= EACH || l.column < 0) return;
    if (!report_comparable(r, l.column, why, sizeof why)) {
        fprintf(out, "Their results do not compare: the runs differ in %s. ", why);
        return;
    }
    number_word(n, word);
    if (best) fprintf(out, "%c%s others have ", report_capital(word[0]), word + 1);
    else if (n == r->n_variants) fprintf(out, "They have ");
    else fprintf(out, "%c%s of them have ", report_capital(word[0]), word + 1);
    write_range(out, r, l.column, least, most);
    fputs(". ", out);
}

/* Lists the variants with a verdict. */
static void write_names(FILE *out, const report *r, verdict is) {
    const char *comma = "";
    for (int i = 0; i < r->n_variants; i++) {
        if (judge(r, &r->variant[i]) != is) continue;
        html(out, "%s<b>%s</b>", comma, r->variant[i].name);
        comma = ", ";
    }
}

/* Writes a sentence for each variant that did not learn, or one for all with the same verdict. */
static void write_failed(FILE *out, const report *r, verdict is) {
    double least, most;
    char word[16];
    const int n = range_of(r, is, REPORT_LOSS, NULL, &least, &most);
    for (int i = 0; n <= EACH && i < r->n_variants; i++) {
        const report_variant *v = &r->variant[i];
        if (judge(r, v) != is) continue;
        if (is == STANDS_STILL) write_still(out, r, v);
        else if (is == DIVERGED) write_diverged(out, v);
        else html(out, "<b>%s</b> has not recorded anything yet. ", v->name);
    }
    if (n <= EACH) return;
    number_word(n, word);
    fprintf(out, "%c%s variants %s: ", report_capital(word[0]), word + 1,
            is == STANDS_STILL ? "hardly moved"
            : is == DIVERGED   ? "diverged"
                               : "have not recorded anything yet");
    write_names(out, r, is);
    if (is == STANDS_STILL) {
        fputs(", with ", out);
        write_range(out, r, REPORT_LOSS, least, most);
    }
    fputs(". ", out);
}

void page_summary(FILE *out, const report *r) {
    const lead l = find_lead(r);
    fputs("<p class=\"summary\">", out);
    write_setting(out, r);
    const bool best = l.best && judge(r, l.best) == LEARNED;
    if (best) write_best(out, r, l);
    if (best) write_chance(out, r, l);
    write_others(out, r, l);
    write_failed(out, r, STANDS_STILL);
    write_failed(out, r, DIVERGED);
    write_failed(out, r, NO_DATA);
    write_reservations(out, r);
    fputs("</p>\n", out);
}

/* ---- Captions ---------------------------------------------------------------------------------------------------- */

/* Whether a run recorded every update; long runs do not. */
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
    single &= !report_is_crowded(r); /* then there are none */
    if (single && several) fprintf(out, "; of a variant with one run, the thin line is every %s", which);
    if (single && !several) fprintf(out, "The thin lines are every %s", which);
    fputs(single || several ? ". " : "", out);
}

/* Writes "Training losses do not compare: the runs differ in label smoothing. " if so. */
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
    html(out, *times ? "%s " : "%s", times);
}

/* Writes the lowest loss of a variant's first run during training if it is not the last. */
static void write_lowest(FILE *out, const report *r, const report_variant *v) {
    const report_series *s = &v->run[0]->valid;
    const report_point *lowest = NULL, *last = NULL;
    for (size_t i = 0; i < s->n; i++) {
        if (!isfinite(s->at[i].loss)) continue;
        last = &s->at[i];
        if (!lowest || last->loss < lowest->loss) lowest = last;
    }
    if (!lowest || lowest == last) return;
    html(out, "In %s%s the %s loss was lowest after update %lld (%.3f) and is %.3f at the last. ", v->name,
         v->n > 1 ? ", first run," : "", report_evaluated(r), (long long)lowest->step, lowest->loss, last->loss);
}

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

static void write_what_validates(FILE *out, const report *r) {
    int n = 0;
    for (int i = 0; i < r->n; i++) n += report_validates_on_test(&r->run[i]);
    if (n && n < r->n) fprintf(out, "Of %d of %d runs, the validation data are the test data. ", n, r->n);
}

static void caption_validations(FILE *out, const report *r) {
    bool several = false;
    for (int i = 0; i < r->n_variants; i++) several |= r->variant[i].n > 1;
    fputs(r->evaluates_on_test
              ? "<b>Test</b>: the model on the test data during training, since no validation data were held out. "
              : "<b>Validation</b>: the model on held-out data during training. ",
          out);
    if (page_limits_loss(r)) page_limit(out, r, "Of");
    else if (page_limits(r) && html_metrics(out, r, true)) page_limit(out, r, ": of");
    write_what_validates(out, r);
    if (several) fputs("Bands reach from the lowest run to the highest. ", out);
    write_incomparable(out, r, REPORT_VALID, r->evaluates_on_test ? "Test losses" : "Validation losses");
    for (int i = 0; i < r->n_variants; i++) write_lowest(out, r, &r->variant[i]);
}

static void write_percent(FILE *out, double share) {
    const double percent = 100 * share;
    if (percent > 0 && percent < 0.01) fputs("below 0.01&nbsp;%", out);
    else fprintf(out, "%.*f&nbsp;%%", percent == 0 ? 0 : percent < 1 ? 2 : 1, percent);
}

/* The largest share of elements without a gradient so far, in any histogram of the variant's run; NAN: unknown. */
static double most_idle(const report_variant *v) {
    const report_run *run = report_histogram_run(v);
    double most = 0;
    for (size_t i = 0; run && i < run->n_histograms; i++) {
        if (isnan(run->histogram[i].idle)) return NAN;
        most = fmax(most, run->histogram[i].idle);
    }
    return most;
}

/* Writes which elements the histograms leave out. */
static void write_idle(FILE *out, const report *r) {
    bool known = true, first = true;
    for (int i = 0; i < r->n_variants; i++) known &= !isnan(most_idle(&r->variant[i]));
    if (!known) {
        fputs("Elements that never had a gradient, whose rate is α/ε, count as well: not all of these runs tell them "
              "apart. ",
              out);
        return;
    }
    for (int i = 0; i < r->n_variants; i++) {
        if (!(most_idle(&r->variant[i]) > 0)) continue;
        fputs(first ? "Elements that never had a gradient, whose rate is α/ε, are left out: at most " : ", ", out);
        write_percent(out, most_idle(&r->variant[i]));
        html(out, " of all for %s", r->variant[i].name);
        first = false;
    }
    fputs(first ? "" : ". ", out);
}

static void caption_rates(FILE *out, const report *r, const report_figures *f) {
    fprintf(out,
            "<b>Learning rates</b> that the elements of the model really get, from update %lld, at the back, to "
            "update %lld in front. The height is the share of elements within a tenth of a power of ten; the bar gives "
            "its scale%s. The largest share of elements above 10,000 at any update that was recorded is ",
            (long long)f->rows[0], (long long)f->rows[1],
            r->n_variants < 2 ? ""
            : f->one_scale    ? ", and all panels have the same axes"
                              : ", which is not the same in all panels");
    bool first = true;
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (!run) continue;
        fputs(first ? "" : ", ", out);
        write_percent(out, report_share_above(run, 4));
        html(out, " for %s", r->variant[i].name);
        first = false;
    }
    fputs(". ", out);
    write_idle(out, r);
}

/* Whether the bound is AdaMod's. */
static bool is_momental(const report_run *run) {
    const char *rule = report_pairs_find(&run->recipe, "optimizer.rule");
    const char *bound = report_pairs_find(&run->recipe, "optimizer.bound");
    return (rule && strcmp(rule, "adamod") == 0) || (bound && strcmp(bound, "momental") == 0);
}

/* Writes on how many elements the bound acted at the first and the last update. */
static void caption_bounds(FILE *out, const report *r) {
    bool momental = true;
    for (int i = 0; i < r->n_variants; i++)
        momental &= !report_is_bounded(&r->variant[i]) || is_momental(report_histogram_run(&r->variant[i]));
    fputs("<b>What the bound does</b>: learning rates before it ", out);
    fputs(momental ? "(η) and after it (the smaller of η and its moving average s). " : "and after it. ", out);
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = report_histogram_run(&r->variant[i]);
        if (!report_is_bounded(&r->variant[i])) continue;
        const report_histogram *a = &run->histogram[0], *b = &run->histogram[run->n_histograms - 1];
        html(out, "In %s it acts on ", r->variant[i].name);
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
