#include "data/bleu.h"

#include "data/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- n-grams ----------------------------------------------------------------------------------------------------- */

/* Padded with zeros; only n-grams of equal order are compared. */
typedef struct gram {
    int32_t ids[BLEU_ORDER];
} gram;

static int compare_grams(const void *left, const void *right) {
    const gram *a = left, *b = right;
    for (int i = 0; i < BLEU_ORDER; i++)
        if (a->ids[i] != b->ids[i]) return a->ids[i] < b->ids[i] ? -1 : 1;
    return 0;
}

static int64_t sorted_grams(gram *to, const int32_t *ids, int64_t n, int order) {
    int64_t count = n < order ? 0 : n - order + 1;
    for (int64_t i = 0; i < count; i++) {
        to[i] = (gram){{0}};
        memcpy(to[i].ids, ids + i, (size_t)order * sizeof *ids);
    }
    if (count) qsort(to, (size_t)count, sizeof *to, compare_grams);
    return count;
}

/* Counts the common n-grams of two sorted lists. */
static int64_t common(const gram *a, int64_t n_a, const gram *b, int64_t n_b) {
    int64_t count = 0;
    for (int64_t i = 0, j = 0; i < n_a && j < n_b;) {
        int order = compare_grams(&a[i], &b[j]);
        count += !order;
        i += order <= 0;
        j += order >= 0;
    }
    return count;
}

int bleu_add_ids(bleu *b, const int32_t *hyp, int64_t n_hyp, const int32_t *ref, int64_t n_ref) {
    gram *grams = malloc(((size_t)n_hyp + (size_t)n_ref + 1) * sizeof *grams);
    if (!grams) return -1;
    for (int order = 1; order <= BLEU_ORDER; order++) {
        int64_t n = sorted_grams(grams, hyp, n_hyp, order), m = sorted_grams(grams + n, ref, n_ref, order);
        b->total[order - 1] += n;
        b->match[order - 1] += common(grams, n, grams + n, m);
    }
    free(grams);
    b->hyp_tokens += n_hyp;
    b->ref_tokens += n_ref;
    b->sentences++;
    b->exact += n_hyp == n_ref && (!n_hyp || !memcmp(hyp, ref, (size_t)n_hyp * sizeof *hyp));
    return 0;
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

/* Bytes of a leading white space character; 0: none. */
static size_t space_at(text_slice text) {
    text_slice rest = text;
    return text.n && unicode_is_space(unicode_next(&rest)) ? text.n - rest.n : 0;
}

static text_slice beyond(text_slice text, size_t n) { return (text_slice){text.bytes + n, text.n - n}; }

static int next_word(text_slice *rest, text_slice *word) {
    for (size_t n; (n = space_at(*rest)) > 0;) *rest = beyond(*rest, n);
    text_slice end = *rest;
    while (end.n && !space_at(end)) {
        size_t n = text_code_point(end);
        end = beyond(end, n ? n : 1);
    }
    *word = (text_slice){rest->bytes, rest->n - end.n};
    *rest = end;
    return word->n > 0;
}

typedef struct placed_word {
    text_slice text;
    int64_t at;
} placed_word;

static int compare_words(const void *left, const void *right) {
    const placed_word *a = left, *b = right;
    if (a->text.n != b->text.n) return a->text.n < b->text.n ? -1 : 1;
    return memcmp(a->text.bytes, b->text.bytes, a->text.n);
}

static int64_t place_words(text_slice text, placed_word *words, int64_t at) {
    for (text_slice word; next_word(&text, &word); at++) words[at] = (placed_word){word, at};
    return at;
}

/* Equal words get equal ids. */
static void number_words(placed_word *words, int64_t n, int32_t *ids) {
    int32_t id = 0;
    if (n) qsort(words, (size_t)n, sizeof *words, compare_words);
    for (int64_t i = 0; i < n; i++) {
        if (i && compare_words(&words[i - 1], &words[i])) id++;
        ids[words[i].at] = id;
    }
}

int bleu_add(bleu *b, text_slice hyp, text_slice ref) {
    size_t room = hyp.n / 2 + ref.n / 2 + 2; /* each word but the last has a space */
    placed_word *words = malloc(room * sizeof *words);
    int32_t *ids = malloc(room * sizeof *ids);
    int status = -1;
    if (words && ids) {
        int64_t n_hyp = place_words(hyp, words, 0), n = place_words(ref, words, n_hyp);
        number_words(words, n, ids);
        status = bleu_add_ids(b, ids, n_hyp, ids + n_hyp, n - n_hyp);
    }
    free(words);
    free(ids);
    return status;
}

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

double bleu_brevity_penalty(const bleu *b) {
    if (b->hyp_tokens >= b->ref_tokens) return 1;
    return b->hyp_tokens ? exp(1 - (double)b->ref_tokens / (double)b->hyp_tokens) : 0;
}

double bleu_score(const bleu *b, bleu_smoothing smoothing) {
    double sum = 0, halving = 1;
    if (!b->match[0]) return 0;
    for (int i = 0; i < BLEU_ORDER; i++) {
        if (!b->total[i] || (!b->match[i] && smoothing == BLEU_PLAIN)) return 0;
        if (!b->match[i]) halving /= 2;
        sum += log((b->match[i] ? (double)b->match[i] : halving) / (double)b->total[i]);
    }
    return 100 * bleu_brevity_penalty(b) * exp(sum / BLEU_ORDER);
}

double bleu_exact(const bleu *b) { return b->sentences ? (double)b->exact / (double)b->sentences : 0; }
