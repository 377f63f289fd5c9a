/* libFuzzer target: trainer/data/vocab.c, on the bytes of a vocabulary's file, and on a text to make one of.
 *
 * An input is a byte of options, then the file, a byte 0xff, and the text. A vocabulary that is read or made is written to
 * the same bytes; what is refused gets one line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "data/vocab.h"
#include "core/error.h"

#include <stdbool.h>

static char path[64];
static void remove_file(void) { unlink(path); }

static void choose_path(void) {
    snprintf(path, sizeof path, "%s/fuzz_vocab.%d", fuzz_place(), (int)getpid());
    atexit(remove_file);
}

/* Every token is found by itself, and no text is a mark. */
static void check_tokens(const vocab *v) {
    for (int32_t id = VOCAB_SPECIALS; id < vocab_size(v); id++) {
        const text_slice token = vocab_token(v, id);
        require(token.n > 0 && vocab_find(v, token) == id && strlen(token.bytes) == token.n);
    }
    require(vocab_size(v) >= VOCAB_SPECIALS);
    for (int32_t id = 0; id < VOCAB_SPECIALS; id++) require(vocab_find(v, vocab_token(v, id)) == VOCAB_UNK);
    require(vocab_token(v, -1).bytes == vocab_token(v, VOCAB_UNK).bytes);
    require(vocab_token(v, vocab_size(v)).bytes == vocab_token(v, VOCAB_UNK).bytes);
}

static void check_saved(const vocab *v, const text_slice *file) {
    char *bytes = NULL;
    size_t n = 0;
    vocab *again;
    require(vocab_save(v, path) == 0 && text_read(path, &bytes, &n) == 0);
    if (file) require(n == file->n && memcmp(bytes, file->bytes, n) == 0);
    require(vocab_parse(&again, (text_slice){bytes, n}, "f") == 0);
    require(vocab_size(again) == vocab_size(v));
    vocab_free(again);
    free(bytes);
}

/* Encoded text is decoded to the same tokens, except unknown ones. */
static void check_text(const vocab *v, text_unit unit, text_slice text) {
    const int64_t n = vocab_encode(v, unit, text, NULL, 0);
    int32_t *ids = malloc((size_t)n * sizeof *ids + 1);
    require(ids && n == text_count_tokens(unit, text) && vocab_encode(v, unit, text, ids, n) == n);
    const size_t length = vocab_decode(v, unit, ids, n, NULL, 0);
    char *out = malloc(length + 1);
    require(out && vocab_decode(v, unit, ids, n, out, length + 1) == length && strlen(out) == length);
    text_slice token, rest = text;
    for (int64_t i = 0; text_next_token(unit, &rest, &token); i++) {
        require(ids[i] >= VOCAB_UNK && ids[i] < vocab_size(v));
        const text_slice found = vocab_token(v, ids[i]);
        if (ids[i] != VOCAB_UNK) require(found.n == token.n && memcmp(found.bytes, token.bytes, found.n) == 0);
    }
    free(out);
    free(ids);
}

static void check_built(text_unit unit, text_slice text, const vocab_options *o) {
    vocab *v;
    vocab_counter *counter = vocab_counter_create();
    require(counter && vocab_counter_add(counter, unit, text, 1) == 0);
    require(vocab_build(&v, counter, o) == 0);
    require(!o->max_size || vocab_size(v) <= o->max_size);
    check_tokens(v);
    check_text(v, unit, text);
    check_saved(v, NULL);
    vocab_free(v);
    vocab_counter_free(counter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    vocab *v;
    if (size < 1) return 0;
    if (!*path) choose_path();
    const text_unit unit = data[0] & 1 ? TEXT_CHARACTERS : TEXT_WORDS;
    const char *bytes = (const char *)data + 1, *split = memchr(bytes, 0xff, size - 1);
    const text_slice file = {bytes, split ? (size_t)(split - bytes) : size - 1};
    const text_slice text = split ? (text_slice){split + 1, size - 2 - file.n} : file;
    const bool utf8 = text_check(text, "t", 1) == 0;
    if (vocab_parse(&v, file, "f")) {
        require(!v && strncmp(adamod__last_message(), "f:", 2) == 0 && is_line(adamod__last_message()));
    } else {
        check_tokens(v);
        check_saved(v, &file);
        if (utf8) check_text(v, unit, text);
        vocab_free(v);
    }
    const int64_t most = data[0] & 16 ? VOCAB_SPECIALS + 1 + (data[0] >> 5) : 0;
    if (utf8) check_built(unit, text, &(vocab_options){.min_count = data[0] >> 1 & 3, .max_size = most});
    return 0;
}
