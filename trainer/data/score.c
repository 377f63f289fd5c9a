/* sacreBLEU resamples in float32, so scores of resamples are rounded to float after each operation. As a double has more
 * than twice the digits of a float, that gives the same bits as arithmetic in float. */
#include "data/score.h"

#include "data/chrf.h"
#include "data/normalizer.h"
#include "data/pcg64.h"
#include "data/score_tokens.h"
#include "support/array.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The counts of a sentence. BLEU: hypothesis tokens, reference tokens, then matches and n-grams of each order. chrF: for
 * each order, n-grams of the hypothesis, of the reference and of both. */
enum { BLEU_NUMBERS = 2 + 2 * BLEU_ORDER, MOST_NUMBERS = 3 * CHRF_ORDERS };

struct score_text {
    score_options o;
    int width; /* numbers per sentence */
    int32_t *numbers;
    int64_t n;
    size_t room;
    normalizer lower;
};

static int orders_of(const score_options *o) { return o->metric == SCORE_CHRF_PLUS ? CHRF_ORDERS : CHRF_CHARACTERS; }

score_text *score_create(const score_options *o) {
    score_text *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->o = *o;
    s->width = o->metric == SCORE_BLEU ? BLEU_NUMBERS : 3 * orders_of(o);
    return s;
}

void score_free(score_text *s) {
    if (!s) return;
    normalizer_free(&s->lower);
    free(s->numbers);
    free(s);
}

/* ---- counts ---- */

static int count_bleu(const score_text *s, text_slice hyp, text_slice ref, int32_t *to) {
    bleu b = {0};
    char *h = score_split(s->o.tokenize, hyp), *r = score_split(s->o.tokenize, ref);
    const int status = h && r ? bleu_add(&b, text_of(h), text_of(r)) : -1;
    free(h);
    free(r);
    to[0] = (int32_t)b.hyp_tokens;
    to[1] = (int32_t)b.ref_tokens;
    for (int k = 0; k < BLEU_ORDER; k++) {
        to[2 + k] = (int32_t)b.match[k];
        to[2 + BLEU_ORDER + k] = (int32_t)b.total[k];
    }
    return status;
}

static int count_chrf(const score_text *s, text_slice hyp, text_slice ref, int32_t *to) {
    chrf c;
    if (chrf_count(&c, hyp, ref, s->o.metric == SCORE_CHRF_PLUS)) return -1;
    for (int k = 0; k < orders_of(&s->o); k++) {
        to[3 * k] = (int32_t)c.hyp[k];
        to[3 * k + 1] = (int32_t)c.ref[k];
        to[3 * k + 2] = (int32_t)c.match[k];
    }
    return 0;
}

static int count(score_text *s, text_slice hyp, text_slice ref, int32_t *to) {
    return s->o.metric == SCORE_BLEU ? count_bleu(s, hyp, ref, to) : count_chrf(s, hyp, ref, to);
}

int score_add(score_text *s, text_slice hyp, text_slice ref) {
    if (!ARRAY_RESERVE(s->numbers, (s->n + 1) * s->width, s->room)) return -1;
    int32_t *to = s->numbers + s->n * s->width;
    int status = 0;
    if (s->o.lowercase) {
        char *h = normalizer_lower_words(&s->lower, hyp), *r = normalizer_lower_words(&s->lower, ref);
        status = h && r ? count(s, text_of(h), text_of(r), to) : -1;
        free(h);
        free(r);
    } else {
        status = count(s, hyp, ref, to);
    }
    s->n += status == 0;
    return status;
}

static void add_up(const score_text *s, double sums[MOST_NUMBERS]) {
    for (int k = 0; k < s->width; k++) sums[k] = 0;
    for (int64_t i = 0; i < s->n; i++) {
        for (int k = 0; k < s->width; k++) sums[k] += s->numbers[i * s->width + k];
    }
}

/* ---- scores of sums ---- */

static double brevity(double hyp, double ref) {
    if (hyp >= ref) return 1;
    return hyp > 0 ? exp(1 - ref / hyp) : 0;
}

/* floats: as float arithmetic rounds it. */
static double rounded(bool floats, double x) { return floats ? (double)(float)x : x; }

/* In percent. False: nothing matches, and the score is 0. */
static bool precisions(const score_options *o, const double *sums, bool floats, double out[BLEU_ORDER]) {
    double halving = 1;
    bool any = false;
    for (int k = 0; k < BLEU_ORDER; k++) out[k] = 0, any = any || sums[2 + k] > 0;
    for (int k = 0; any && k < BLEU_ORDER; k++) {
        const double match = sums[2 + k], total = sums[2 + BLEU_ORDER + k];
        if (total == 0) break;
        if (match > 0) out[k] = rounded(floats, rounded(floats, 100 * match) / total);
        else if (!o->plain) out[k] = rounded(floats, 100 / rounded(floats, (halving *= 2) * total));
    }
    return any;
}

static double bleu_of(const double precision[BLEU_ORDER], double penalty) {
    double sum = 0;
    for (int k = 0; k < BLEU_ORDER; k++) sum += precision[k] > 0 ? log(precision[k]) : -9999999999;
    return penalty * exp(sum / BLEU_ORDER);
}

static double chrf_of(const score_options *o, const double *sums, bool floats) {
    double precision = 0, recall = 0;
    int orders = 0;
    for (int k = 0; k < orders_of(o); k++) {
        const double hyp = sums[3 * k], ref = sums[3 * k + 1], match = sums[3 * k + 2];
        if (hyp <= 0 || ref <= 0) continue;
        precision = rounded(floats, precision + rounded(floats, match / hyp));
        recall = rounded(floats, recall + rounded(floats, match / ref));
        orders++;
    }
    if (!orders || precision + recall == 0) return 0;
    precision = rounded(floats, precision / orders);
    recall = rounded(floats, recall / orders);
    const double product = rounded(floats, rounded(floats, 5 * precision) * recall);
    return rounded(floats, 100 * rounded(floats, product / rounded(floats, 4 * precision + recall)));
}

static double score_of(const score_options *o, const double *sums, bool floats) {
    double precision[BLEU_ORDER];
    if (o->metric != SCORE_BLEU) return chrf_of(o, sums, floats);
    if (!precisions(o, sums, floats, precision)) return 0;
    return bleu_of(precision, brevity(sums[0], sums[1]));
}

double score_value(const score_text *s) {
    double sums[MOST_NUMBERS];
    add_up(s, sums);
    return score_of(&s->o, sums, false);
}

const char *score_details(const score_text *s, char *out, size_t size) {
    double sums[MOST_NUMBERS], p[BLEU_ORDER];
    *out = 0;
    if (s->o.metric != SCORE_BLEU) return out;
    add_up(s, sums);
    precisions(&s->o, sums, false, p);
    snprintf(out, size, "%.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %.0f ref_len = %.0f)", p[0], p[1], p[2],
             p[3], brevity(sums[0], sums[1]), sums[1] > 0 ? sums[0] / sums[1] : 0, sums[0], sums[1]);
    return out;
}

/* ---- names ---- */

const char *score_name(const score_options *o) {
    static const char *const names[] = {"BLEU", "chrF2", "chrF2++"};
    return names[o->metric];
}

const char *score_signature(const score_options *o, int64_t samples, char *out, size_t size) {
    static const char *const tokens[] = {"13a", "none", "char"};
    const char *letters = o->lowercase ? "lc" : "mixed";
    char drawn[64] = "", how[96];
    if (samples) snprintf(drawn, sizeof drawn, "|bs:%" PRId64 "|seed:%d", samples, SCORE_SEED);
    if (o->metric == SCORE_BLEU)
        snprintf(how, sizeof how, "eff:no|tok:%s|smooth:%s", tokens[o->tokenize], o->plain ? "none" : "exp");
    else snprintf(how, sizeof how, "eff:yes|nc:6|nw:%d|space:no", o->metric == SCORE_CHRF_PLUS ? CHRF_WORDS : 0);
    snprintf(out, size, "nrefs:1%s|case:%s|%s|version:" BLEU_VERSION, drawn, letters, how);
    return out;
}

/* ---- resampling ---- */

/* The scores of all resamples; NULL: out of memory. */
static double *resampled(const score_text *s, int64_t samples) {
    double *scores = malloc((size_t)samples * sizeof *scores);
    pcg64 random;
    pcg64_seed(&random, SCORE_SEED);
    for (int64_t i = 0; scores && i < samples; i++) {
        float sums[MOST_NUMBERS] = {0};
        double wide[MOST_NUMBERS];
        for (int64_t k = 0; k < s->n; k++) {
            const int32_t *numbers = s->numbers + (int64_t)pcg64_below(&random, (uint32_t)s->n) * s->width;
            for (int j = 0; j < s->width; j++) sums[j] += (float)numbers[j];
        }
        for (int j = 0; j < s->width; j++) wide[j] = (double)sums[j];
        scores[i] = score_of(&s->o, wide, true);
    }
    return scores;
}

static int compare_doubles(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double mean_of(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

int score_resample(const score_text *s, int64_t samples, score_interval *out) {
    double *scores = resampled(s, samples);
    if (!scores) return -1;
    qsort(scores, (size_t)samples, sizeof *scores, compare_doubles);
    const int64_t cut = samples / 40;
    const double mean = mean_of(scores, samples), width = scores[samples - cut - 1] - scores[cut];
    const bool floats = s->o.metric != SCORE_BLEU; /* sacreBLEU's chrF is float32 */
    *out = (score_interval){floats ? (double)(float)mean : mean, 0.5 * (floats ? (double)(float)width : width)};
    free(scores);
    return 0;
}

int score_compare(const score_text *baseline, const score_text *other, int64_t samples, double *p) {
    double *a = resampled(baseline, samples), *b = resampled(other, samples);
    const double difference = fabs(score_value(baseline) - score_value(other));
    int64_t larger = 0;
    for (int64_t i = 0; a && b && i < samples; i++) a[i] = fabs(b[i] - a[i]);
    const double mean = a && b ? mean_of(a, samples) : 0;
    for (int64_t i = 0; a && b && i < samples; i++) larger += a[i] - mean > difference;
    if (mean == 0) larger = samples; /* no resample differs; here sacreBLEU returns its smallest p */
    *p = (double)(larger + 1) / (double)(samples + 1);
    const int status = a && b ? 0 : -1;
    free(a);
    free(b);
    return status;
}
