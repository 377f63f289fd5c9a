/* standings_tests.c - Welch's tests between variants at their best values. */
#include "study/standings_parts.h"

#include "report/page.h"
#include "report/ranking.h"
#include "report/welch.h"
#include "support/text.h"

#include <math.h>
#include <string.h>

static const report_spread *best_spread(const standings *s, int group, int variant) {
    const standing *at = standings_at(s, group, variant);
    return at->best < 0 ? NULL : &at->value[at->best].spread;
}

/* The variant with the best median in a group; -1: none, or several, or their results do not compare. */
static int leader_of(const standings *s, int group) {
    int best = -1;
    bool alone = false;
    double most = -INFINITY;
    for (int v = 0; s->comparable[group] && v < s->n_variants; v++) {
        const report_spread *own = best_spread(s, group, v);
        const double x = own ? s->metric[group].better * own->median : NAN;
        if (!isfinite(x)) continue;
        alone = x > most || (alone && x < most);
        if (x > most) best = v, most = x;
    }
    return alone && s->metric[group].better != METRIC_NEITHER ? best : -1;
}

/* Welch's p between the best values of two variants; NAN: too few runs. */
static double p_of(const standings *s, int group, int a, int b) {
    const report_spread *x = best_spread(s, group, a), *y = best_spread(s, group, b);
    return x && y ? welch_p(x, y) : NAN;
}

const char *standings_untested(const standings *s, int group) {
    const int leader = leader_of(s, group);
    int n = 0, repeated = 0;
    for (int v = 0; v < s->n_variants; v++) {
        const report_spread *x = best_spread(s, group, v);
        if (leader >= 0 && v != leader && !isnan(p_of(s, group, leader, v))) return NULL;
        n += x && x->n > 0;
        repeated += x && x->n > 1;
    }
    if (n < 2 && s->o.tuned && s->n_variants < 2)
        return "there is one variant, and its values are not rivals: validation has chosen among them";
    if (n < 2) return "fewer than two variants have a result";
    if (repeated < 2) return "Welch's test needs two variants with two seeds or more that finished";
    if (!s->comparable[group]) return "the runs did not measure the same thing";
    if (s->metric[group].better == METRIC_NEITHER) return "neither more nor less of it is better";
    return leader < 0 ? "several variants have the best median"
                      : "the seeds of the best variant, or of all others, tell no spread";
}

/* One of the tests: of the group's leader against another variant. */
typedef struct test {
    int group, leader, other;
} test;

/* Goes to the next test; begin with before_all. False: no more. */
static bool next_test(const standings *s, test *at) {
    while (at->group < s->n_groups) {
        while (at->leader >= 0 && ++at->other < s->n_variants) {
            if (at->other != at->leader && !isnan(p_of(s, at->group, at->leader, at->other))) return true;
        }
        if (++at->group == s->n_groups) break;
        at->leader = leader_of(s, at->group);
        at->other = -1;
    }
    return false;
}

static const test before_all = {.group = -1, .leader = -1};

int standings_count_tests(const standings *s) {
    int n = 0;
    for (test at = before_all; next_test(s, &at);) n++;
    return n;
}

static bool is_beaten(const standings *s, const test *at) {
    return welch_better(best_spread(s, at->group, at->leader), best_spread(s, at->group, at->other),
                        s->metric[at->group].better);
}

/* The lead of the mean. */
static double difference(const standings *s, const test *at) {
    return best_spread(s, at->group, at->leader)->mean - best_spread(s, at->group, at->other)->mean;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void put_test(const standings *s, sheet *to, int row, const test *at) {
    const standing_metric *m = &s->metric[at->group];
    const metric of = {.unit = m->unit, .decimals = m->decimals};
    char what[128], by[48], p[24];
    standings_metric_text(m, what, sizeof what);
    ranking_difference(&of, difference(s, at), by, sizeof by);
    ranking_p_words(p_of(s, at->group, at->leader, at->other), p, sizeof p);
    sheet_put(to, row, 0, "%s%s%s", s->group[at->group], *s->group[at->group] ? ": " : "", what);
    sheet_put(to, row, 1, "%s", s->variant[at->leader]);
    sheet_put(to, row, 2, "%s", s->variant[at->other]);
    sheet_put(to, row, 3, "%s", by);
    sheet_put(to, row, 4, "%s", p);
    sheet_put(to, row, 5, "%s", is_beaten(s, at) ? "yes" : "no");
}

sheet *standings_tests_sheet(const standings *s) {
    static const char *const heads[] = {"result", "best", "against", "difference", "Welch’s test", "more than chance"};
    char caption[200] = "Welch's test over seeds between the best variant and each other.";
    int row = 1;
    if (s->o.tuned)
        snprintf(caption, sizeof caption,
                 "Welch's test over seeds between the best variant and each other, each with its best %.80s.",
                 standings_key(s));
    sheet *to = sheet_under(heads, sizeof heads / sizeof *heads, standings_count_tests(s), caption);
    for (test at = before_all; to && next_test(s, &at);) put_test(s, to, row++, &at);
    return to;
}

static void put_record(const standings *s, sheet *to, int row, const test *at) {
    const standing_metric *m = &s->metric[at->group];
    sheet_put(to, row, 0, "%s", s->group[at->group]);
    sheet_put(to, row, 1, "%s", m->name);
    sheet_put(to, row, 2, "%s", m->test || m->by_loss ? "test" : "valid");
    sheet_put(to, row, 3, "%s", m->unit);
    sheet_put(to, row, 4, "%s", s->variant[at->leader]);
    sheet_put(to, row, 5, "%s", s->variant[at->other]);
    sheet_put(to, row, 6, "%d", best_spread(s, at->group, at->leader)->n);
    sheet_put(to, row, 7, "%d", best_spread(s, at->group, at->other)->n);
    sheet_put(to, row, 8, "%.10g", difference(s, at));
    sheet_put(to, row, 9, "%.10g", p_of(s, at->group, at->leader, at->other));
}

sheet *standings_tests_records(const standings *s) {
    static const char *const heads[] = {"recipe", "metric",    "split",      "unit",       "best",
                                        "other",  "best_runs", "other_runs", "difference", "p"};
    int row = 1;
    sheet *to = sheet_under(heads, sizeof heads / sizeof *heads, standings_count_tests(s), NULL);
    for (test at = before_all; to && next_test(s, &at);) put_record(s, to, row++, &at);
    return to;
}

/* ---- The terminal ------------------------------------------------------------------------------------------------ */

enum { EACH = 4 }; /* most others with a p each */

/* Writes ", by more than chance over Adam (p = 0.01)", or the others: ", perhaps by chance over ...". */
static void print_others(const standings *s, int group, bool beaten, FILE *out) {
    const char *before = beaten ? ", by more than chance over " : ", perhaps by chance over ";
    for (test at = before_all; next_test(s, &at);) {
        char p[24];
        if (at.group != group || is_beaten(s, &at) != beaten) continue;
        ranking_p_words(p_of(s, group, at.leader, at.other), p, sizeof p);
        fputs(before, out);
        text_print(out, s->variant[at.other]);
        fprintf(out, " (%s)", p);
        before = ", ";
    }
}

static void print_group(const standings *s, int group, FILE *out) {
    int n = 0, beaten = 0;
    char what[128];
    for (test at = before_all; next_test(s, &at);) {
        n += at.group == group;
        beaten += at.group == group && is_beaten(s, &at);
    }
    standings_metric_text(&s->metric[group], what, sizeof what);
    fprintf(out, "%s%s%s: ", s->group[group], *s->group[group] ? ": " : "", what);
    if (!n) {
        fprintf(out, "not tested: %s\n", standings_untested(s, group));
        return;
    }
    fputs("best is ", out);
    text_print(out, s->variant[leader_of(s, group)]);
    if (n <= EACH) {
        print_others(s, group, true, out);
        print_others(s, group, false, out);
    } else {
        fprintf(out, ", by more than chance over %d of %d others", beaten, n);
    }
    fputc('\n', out);
}

void standings_print_tests(const standings *s, FILE *out) {
    for (int g = 0; g < s->n_groups; g++) print_group(s, g, out);
    if (standings_count_tests(s)) fputs("By Welch's test over seeds. ", out);
}

void standings_write_untested(const standings *s, FILE *page) {
    for (int g = 0; g < s->n_groups; g++) {
        const char *why = standings_untested(s, g);
        char what[128];
        standings_metric_text(&s->metric[g], what, sizeof what);
        if (why)
            html(page, "<p class=\"legend\">%s%s%s: not tested by Welch’s test: %s.</p>\n", s->group[g],
                 *s->group[g] ? ": " : "", what, why);
    }
}
