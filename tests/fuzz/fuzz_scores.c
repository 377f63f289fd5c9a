/* libFuzzer target: trainer/data/score.c, score_tokens.c, bleu.c and chrf.c on any two texts.
 *
 * An input is a byte of options, then hypotheses, a byte 0xff, and references; line by line, as far as both have some.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "data/score.h"
#include "data/score_tokens.h"

#include <math.h>

static bool is_score(double x) { return x >= 0 && x <= 100 + 1e-4; } /* resampled in float */

static void check_tokens(score_tokens how, text_slice line) {
    char *tokens = score_split(how, line);
    require(tokens != NULL);
    require(text_check(text_of(tokens), "t", 1) == 0);
    free(tokens);
}

/* A text compared with itself matches wholly; without any n-gram it scores 0. */
static void check_same(const score_options *o, text_slice text) {
    score_text *s = score_create(o);
    require(s != NULL);
    for (text_slice line; text_next_line(&text, &line);) require(score_add(s, line, line) == 0);
    const double value = score_value(s);
    require(value == 0 || fabs(value - 100) < 1e-9);
    score_free(s);
}

/* bleu_add splits words at all white space that Unicode has, text_next_token at that of ASCII: alike in such a text. */
static bool is_plain(text_slice text) {
    for (size_t i = 0; i < text.n; i++) {
        if (text.bytes[i] < ' ' || text.bytes[i] > '~') return false;
    }
    return true;
}

/* By ids as by words: equal where tokens are. */
static void check_ids(text_slice hyp, text_slice ref) {
    enum { MOST = 64 };
    int32_t ids[2][MOST];
    int64_t n[2] = {0, 0};
    text_slice words[2 * MOST], rest[2] = {hyp, ref};
    int32_t known = 0;
    for (int side = 0; side < 2; side++) {
        for (text_slice word; text_next_token(TEXT_WORDS, &rest[side], &word);) {
            int32_t id = 0;
            if (n[side] == MOST) return;
            while (id < known && (words[id].n != word.n || memcmp(words[id].bytes, word.bytes, word.n))) id++;
            if (id == known) words[known++] = word;
            ids[side][n[side]++] = id;
        }
    }
    bleu by_words = {0}, by_ids = {0};
    require(bleu_add(&by_words, hyp, ref) == 0 && bleu_add_ids(&by_ids, ids[0], n[0], ids[1], n[1]) == 0);
    require(memcmp(&by_words, &by_ids, sizeof by_ids) == 0);
}

static void check_score(const score_options *o, const score_text *s, int64_t lines) {
    char text[256];
    score_interval interval = {-1, -1};
    double p = -1;
    require(is_score(score_value(s)) && strlen(score_details(s, text, sizeof text)) < sizeof text);
    require(strncmp(score_signature(o, 5, text, sizeof text), "nrefs:1|", 8) == 0 && *score_name(o));
    if (lines == 0) return;
    require(score_resample(s, 5, &interval) == 0 && is_score(interval.mean) && interval.half >= 0);
    require(score_compare(s, s, 5, &p) == 0 && p > 0 && p <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const score_options o = {.metric = (score_metric)(data[0] % 3),
                             .tokenize = (score_tokens)(data[0] / 3 % 3),
                             .lowercase = data[0] & 64,
                             .plain = data[0] & 128};
    const char *bytes = (const char *)data + 1, *split = memchr(bytes, 0xff, size - 1);
    text_slice hyps = {bytes, split ? (size_t)(split - bytes) : size - 1}, refs = hyps;
    if (split) refs = (text_slice){split + 1, size - 2 - hyps.n};
    if (text_check(hyps, "h", 1) || text_check(refs, "r", 1)) return 0; /* 'text score' refuses it */
    check_same(&o, hyps);
    score_text *s = score_create(&o);
    require(s != NULL);
    int64_t lines = 0;
    for (text_slice hyp, ref; text_next_line(&hyps, &hyp) && text_next_line(&refs, &ref); lines++) {
        check_tokens(o.tokenize, hyp);
        if (is_plain(hyp) && is_plain(ref)) check_ids(hyp, ref);
        require(score_add(s, hyp, ref) == 0);
    }
    check_score(&o, s, lines);
    score_free(s);
    return 0;
}
