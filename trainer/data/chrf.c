#include "data/chrf.h"

#include "data/bleu.h"
#include "data/points.h"

#include <stdlib.h>

/* ---- characters ---- */

static int compare_first(const uint32_t *a, const uint32_t *b, int order) {
    for (int i = 0; i < order; i++) {
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

/* Compares n-grams of the highest order. Text ends with zeros, which no character is. */
static int compare_grams(const void *left, const void *right) {
    return compare_first(*(const uint32_t *const *)left, *(const uint32_t *const *)right, CHRF_CHARACTERS);
}

/* Collects the characters that are not white space, and sorts pointers to them by the n-grams that begin there. */
static const uint32_t **sort_grams(points *p, text_slice text, size_t *n) {
    while (text.n) {
        const uint32_t c = unicode_next(&text);
        if (!unicode_is_space(c)) points_add(p, c);
    }
    *n = p->n;
    for (int i = 0; i < CHRF_CHARACTERS; i++) points_add(p, 0);
    const uint32_t **at = p->failed ? NULL : malloc((*n + 1) * sizeof *at);
    for (size_t i = 0; at && i < *n; i++) at[i] = p->at + i;
    if (at && *n) qsort(at, *n, sizeof *at, compare_grams);
    return at;
}

/* The next n-gram of this order from i on, without those cut off by the end of the text. */
static size_t skip_short(const uint32_t **at, size_t i, size_t n, int order) {
    while (i < n && at[i][order - 1] == 0) i++;
    return i;
}

static int64_t common(const uint32_t **a, size_t n_a, const uint32_t **b, size_t n_b, int order) {
    int64_t count = 0;
    for (size_t i = skip_short(a, 0, n_a, order), j = skip_short(b, 0, n_b, order); i < n_a && j < n_b;) {
        const int c = compare_first(a[i], b[j], order);
        count += !c;
        if (c <= 0) i = skip_short(a, i + 1, n_a, order);
        if (c >= 0) j = skip_short(b, j + 1, n_b, order);
    }
    return count;
}

static int count_characters(chrf *c, text_slice hyp, text_slice ref) {
    points h = {0}, r = {0};
    size_t n_h, n_r;
    const uint32_t **a = sort_grams(&h, hyp, &n_h), **b = sort_grams(&r, ref, &n_r);
    for (int order = 1; a && b && order <= CHRF_CHARACTERS; order++) {
        const int64_t k = order - 1, in_h = (int64_t)n_h - k, in_r = (int64_t)n_r - k;
        c->ref[k] = in_r > 0 ? in_r : 0;
        c->hyp[k] = in_h > 0 && in_r > 0 ? in_h : 0;
        c->match[k] = common(a, n_h, b, n_r, order);
    }
    const int status = a && b ? 0 : -1;
    free(a);
    free(b);
    points_free(&h);
    points_free(&r);
    return status;
}

/* ---- words ---- */

static bool is_punctuation(uint32_t c) { return c > ' ' && c < 0x7f && !unicode_is_letter(c) && !unicode_is_digit(c); }

/* Splits off the last character if it is punctuation, or else the first. */
static void split_word(points *out, const uint32_t *word, size_t n) {
    const bool last = n > 1 && is_punctuation(word[n - 1]), first = n > 1 && !last && is_punctuation(word[0]);
    for (size_t i = 0; i < n; i++) {
        if (i && ((last && i == n - 1) || (first && i == 1))) points_add(out, ' ');
        points_add(out, word[i]);
    }
    points_add(out, ' ');
}

static char *split_words(text_slice text, size_t *n) {
    points in = {0}, out = {0};
    points_add_slice(&in, text);
    for (size_t i = 0; i < in.n;) {
        size_t end = i;
        while (end < in.n && !unicode_is_space(in.at[end])) end++;
        if (end > i) split_word(&out, in.at + i, end - i);
        i = end + 1;
    }
    out.failed = out.failed || in.failed;
    char *words = points_utf8(&out, n);
    points_free(&in);
    points_free(&out);
    return words;
}

static int count_words(chrf *c, text_slice hyp, text_slice ref) {
    size_t n_h, n_r;
    char *h = split_words(hyp, &n_h), *r = split_words(ref, &n_r);
    bleu b = {0};
    const int status = h && r ? bleu_add(&b, (text_slice){h, n_h}, (text_slice){r, n_r}) : -1;
    for (int k = 0; !status && k < CHRF_WORDS; k++) {
        const int64_t in_r = b.ref_tokens - k;
        c->ref[CHRF_CHARACTERS + k] = in_r > 0 ? in_r : 0;
        c->hyp[CHRF_CHARACTERS + k] = in_r > 0 ? b.total[k] : 0;
        c->match[CHRF_CHARACTERS + k] = b.match[k];
    }
    free(h);
    free(r);
    return status;
}

int chrf_count(chrf *c, text_slice hyp, text_slice ref, int words) {
    *c = (chrf){0};
    if (count_characters(c, hyp, ref)) return -1;
    return words ? count_words(c, hyp, ref) : 0;
}
