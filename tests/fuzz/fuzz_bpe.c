/* libFuzzer target: trainer/data/bpe_apply.c and bpe_learn.c on any codes and any text.
 *
 * An input is a byte of options, then codes, a byte 0xff, a vocabulary, a byte 0xff, and the text.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "data/bpe.h"
#include "core/error.h"

#include <stdbool.h>

static text_slice take(text_slice *rest) {
    const char *end = rest->n ? memchr(rest->bytes, 0xff, rest->n) : NULL;
    const text_slice part = {rest->bytes, end ? (size_t)(end - rest->bytes) : rest->n};
    const size_t n = part.n + (end != NULL);
    *rest = (text_slice){rest->bytes + n, rest->n - n};
    return part;
}

/* Without separators and spaces a line is unchanged. */
static void check_same(const char *out, text_slice line) {
    size_t i = 0;
    for (const char *c = out; *c; c++) {
        if (*c == ' ') continue;
        while (i < line.n && line.bytes[i] == ' ') i++;
        if (*c == '~' && (i >= line.n || line.bytes[i] != '~')) continue;
        require(i < line.n && line.bytes[i] == *c);
        i++;
    }
    while (i < line.n && line.bytes[i] == ' ') i++;
    require(i == line.n);
}

static void apply_all(const bpe *b, text_slice text, const bpe_options *o) {
    bpe_worker *w = bpe_worker_create(b, o);
    require(w != NULL);
    for (text_slice line; text_next_line(&text, &line);) {
        if (text_check(line, "t", 1) || memchr(line.bytes, '~', line.n)) continue;
        for (int twice = 0; twice < 2; twice++) {
            char *out = bpe_apply(w, line);
            require(out != NULL);
            check_same(out, line);
            free(out);
        }
    }
    bpe_worker_free(w);
}

/* Codes that were learned are read again. */
static void learn_all(text_slice text, int64_t merges, const bpe_options *o) {
    bpe_learner *l = bpe_learner_create();
    text_slice all = text;
    int64_t done;
    require(l != NULL);
    for (text_slice line; text_next_line(&text, &line);) {
        if (!text_check(line, "t", 1)) require(bpe_learner_add(l, line) == 0);
    }
    char *words = bpe_learner_words(l), *codes = bpe_learner_run(l, merges, 2, &done);
    require(words && codes && done >= 0 && done <= merges);
    bpe *b = NULL;
    if (bpe_parse(&b, text_of(codes), -1, "c") == 0) apply_all(b, all, o);
    bpe_free(b);
    free(words);
    free(codes);
    bpe_learner_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bpe *b;
    if (size < 1) return 0;
    text_slice rest = {(const char *)data + 1, size - 1};
    const text_slice codes = take(&rest), vocabulary = take(&rest), text = rest;
    const bpe_options o = {.separator = "~", .dropout = data[0] & 1 ? 0.4 : 0, .seed = data[0]};
    if (bpe_parse(&b, codes, data[0] & 2 ? 3 : -1, "f") == 0) {
        if (!(data[0] & 4) && bpe_restrict(b, vocabulary, 2, "~", "f")) require(*adamod__last_message() == 'f');
        apply_all(b, text, &o);
    } else {
        require(!b && *adamod__last_message() == 'f' && !strchr(adamod__last_message(), '\n'));
    }
    bpe_free(b);
    if (data[0] & 8) learn_all(text, data[0] & 16 ? 500 : 20, &o);
    return 0;
}
