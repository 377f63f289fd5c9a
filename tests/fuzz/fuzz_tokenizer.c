/* libFuzzer target: trainer/data/tokenizer.c, detokenizer.c and normalizer.c on a line of any bytes.
 *
 * The first byte chooses the language and the options, the rest is the line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "data/normalizer.h"
#include "data/tokenizer.h"

/* Words between single spaces; UTF-8 if the line was. */
static void check_spaces(const char *text, bool utf8) {
    const size_t n = strlen(text);
    require(n == 0 || (text[0] != ' ' && text[n - 1] != ' '));
    require(!strstr(text, "  ") && !strchr(text, '\n'));
    if (utf8) require(text_check(text_of(text), "t", 1) == 0);
}

static void check_tokens(const tokenizer_options *o, text_slice line, bool utf8) {
    tokenizer *t = tokenizer_create(o);
    char *tokens = t ? tokenizer_split(t, line) : NULL;
    require(tokens != NULL);
    check_spaces(tokens, utf8);
    char *joined = tokenizer_join(t, text_of(tokens));
    require(joined != NULL);
    check_spaces(joined, utf8);
    free(joined);
    free(tokens);
    tokenizer_free(t);
}

static void check_normal(const char *language, text_slice line, bool utf8) {
    normalizer n = {0};
    normalizer_start(&n, language);
    char *normal = normalizer_line(&n, line), *lower = normalizer_lower(&n, line);
    require(normal && lower);
    if (utf8) require(!text_check(text_of(normal), "n", 1) && !text_check(text_of(lower), "l", 1));
    free(normal);
    free(lower);
    normalizer_free(&n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const languages[] = {"en", "de", "fr", "cs", "ja", "ko", "xx", "ga"};
    if (size < 1) return 0;
    const text_slice line = {(const char *)data + 1, size - 1};
    const bool utf8 = text_check(line, "f", 1) == 0;
    const tokenizer_options o = {.language = languages[data[0] & 7],
                                 .plain = data[0] & 8,
                                 .split_hyphens = data[0] & 16,
                                 .split_last = data[0] & 32};
    if (memchr(line.bytes, 0, line.n)) return 0; /* never comes from a text */
    check_tokens(&o, line, utf8);
    check_normal(o.language, line, utf8);
    return 0;
}
