#include "data/vocab.h"

#include "core/buffer.h"
#include "core/error.h"
#include "data/strings.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const specials[VOCAB_SPECIALS] = {"<s>", "</s>", "<unk>"};

struct vocab_counter {
    string_counts tokens;
};

vocab_counter *vocab_counter_create(void) {
    vocab_counter *counter = calloc(1, sizeof *counter);
    if (counter && (counter->tokens.of = strings_create())) return counter;
    free(counter);
    return NULL;
}

void vocab_counter_free(vocab_counter *counter) {
    if (!counter) return;
    string_counts_free(&counter->tokens);
    free(counter);
}

int vocab_counter_add(vocab_counter *counter, text_unit unit, text_slice text, int64_t times) {
    for (text_slice token; text_next_token(unit, &text, &token);)
        if (string_counts_add(&counter->tokens, token, times)) return -1;
    return 0;
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

struct vocab {
    strings *tokens;
};

static int special_id(text_slice token) {
    for (int id = 0; id < VOCAB_SPECIALS; id++)
        if (text_equal(token, text_of(specials[id]))) return id;
    return -1;
}

/* A vocabulary file has one token per line, and tokens are also C strings. */
static int storable(text_slice token) {
    return special_id(token) < 0 && !memchr(token.bytes, '\n', token.n) && !memchr(token.bytes, '\0', token.n);
}

static vocab *create(void) {
    vocab *v = calloc(1, sizeof *v);
    bool made = v && (v->tokens = strings_create());
    for (int id = 0; made && id < VOCAB_SPECIALS; id++) made = strings_add(v->tokens, text_of(specials[id])) == id;
    if (made) return v;
    vocab_free(v);
    return NULL;
}

void vocab_free(vocab *v) {
    if (!v) return;
    strings_free(v->tokens);
    free(v);
}

typedef struct ranked {
    int64_t times;
    text_slice token;
} ranked;

static int by_rank(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->times != b->times) return a->times > b->times ? -1 : 1;
    return text_compare(a->token, b->token);
}

static int add_ranked(vocab *v, const vocab_counter *counter, const vocab_options *options) {
    const string_counts *c = &counter->tokens;
    const int32_t all = strings_count(c->of);
    ranked *list = malloc(((size_t)all + 1) * sizeof *list);
    int32_t n = 0;
    int status = list ? 0 : -1;
    for (int32_t i = 0; list && i < all; i++) {
        const text_slice token = strings_get(c->of, i);
        if (c->times[i] >= options->min_count && storable(token)) list[n++] = (ranked){c->times[i], token};
    }
    if (n) qsort(list, (size_t)n, sizeof *list, by_rank);
    for (int32_t i = 0; !status && i < n && (!options->max_size || vocab_size(v) < options->max_size); i++)
        if (strings_add(v->tokens, list[i].token) < 0) status = -1;
    free(list);
    return status;
}

int vocab_build(vocab **out, const vocab_counter *counter, const vocab_options *options) {
    *out = NULL;
    if (options->min_count < 0)
        return adamod__refuse("vocabulary: min_count is %" PRId64 ", expected >= 0", options->min_count);
    if (options->max_size && options->max_size <= VOCAB_SPECIALS)
        return adamod__refuse("vocabulary: max_size is %" PRId64 ", expected more than the %d special tokens",
                              options->max_size, VOCAB_SPECIALS);
    vocab *v = create();
    if (v && !add_ranked(v, counter, options)) {
        *out = v;
        return 0;
    }
    vocab_free(v);
    return adamod__fail(ADAMOD_ERROR_MEMORY, "vocabulary: out of memory");
}

/* ---- Use --------------------------------------------------------------------------------------------------------- */

int32_t vocab_size(const vocab *v) { return strings_count(v->tokens); }

int32_t vocab_find(const vocab *v, text_slice token) {
    const int32_t id = strings_find(v->tokens, token);
    return id < VOCAB_SPECIALS ? VOCAB_UNK : id;
}

text_slice vocab_token(const vocab *v, int32_t id) {
    return strings_get(v->tokens, id >= 0 && id < vocab_size(v) ? id : VOCAB_UNK);
}

int64_t vocab_encode(const vocab *v, text_unit unit, text_slice text, int32_t *ids, int64_t room) {
    int64_t n = 0;
    for (text_slice token; text_next_token(unit, &text, &token); n++)
        if (n < room) ids[n] = vocab_find(v, token);
    return n;
}

typedef struct writer {
    char *out;
    size_t size, used;
} writer;

static void put(writer *w, text_slice text) {
    if (w->used < w->size) {
        size_t space = w->size - w->used;
        memcpy(w->out + w->used, text.bytes, text.n < space ? text.n : space);
    }
    w->used += text.n;
}

size_t vocab_decode(const vocab *v, text_unit unit, const int32_t *ids, int64_t n, char *out, size_t size) {
    writer w = {out, size, 0};
    for (int64_t i = 0; i < n && ids[i] != VOCAB_END; i++) {
        if (ids[i] == VOCAB_START) continue;
        if (unit == TEXT_WORDS && w.used) put(&w, text_of(" "));
        put(&w, vocab_token(v, ids[i]));
    }
    if (size) out[w.used < size ? w.used : size - 1] = '\0';
    return w.used;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

int vocab_save(const vocab *v, const char *path) {
    adamod__buffer lines = {0};
    for (int32_t id = 0; id < vocab_size(v); id++) {
        const text_slice token = strings_get(v->tokens, id);
        adamod__buffer_add(&lines, token.bytes, token.n);
        adamod__buffer_add(&lines, "\n", 1);
    }
    const int status = lines.failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path)
                                    : text_write(path, (text_slice){lines.text, lines.n});
    adamod__buffer_free(&lines);
    return status;
}

static int parse_token(vocab *v, text_slice token, const char *name, int32_t line) {
    if (text_check(token, name, line)) return -1;
    if (line <= VOCAB_SPECIALS && special_id(token) != line - 1)
        return adamod__refuse("%s:%" PRId32 ": not a vocabulary, expected the special token %s here", name, line,
                              specials[line - 1]);
    if (line <= VOCAB_SPECIALS) return 0;
    if (!token.n) return adamod__refuse("%s:%" PRId32 ": empty line, expected a token", name, line);
    const int32_t id = strings_add(v->tokens, token);
    if (id < 0) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    if (id != line - 1)
        return adamod__refuse("%s:%" PRId32 ": the token of line %" PRId32 " again, expected a new one", name, line,
                              id + 1);
    return 0;
}

static int parse_tokens(vocab *v, text_slice bytes, const char *name) {
    int32_t line = 0;
    int truncated = bytes.n && bytes.bytes[bytes.n - 1] != '\n';
    for (text_slice token; text_next_line(&bytes, &token);)
        if (parse_token(v, token, name, ++line)) return -1;
    if (line < VOCAB_SPECIALS)
        return adamod__refuse("%s: not a vocabulary: %" PRId32 " lines, expected at least %d", name, line,
                              VOCAB_SPECIALS);
    if (truncated) return adamod__refuse("%s:%" PRId32 ": truncated: no newline after the last token", name, line);
    return 0;
}

int vocab_parse(vocab **out, text_slice bytes, const char *name) {
    *out = NULL;
    vocab *v = create();
    if (!v) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    if (parse_tokens(v, bytes, name)) {
        vocab_free(v);
        return -1;
    }
    *out = v;
    return 0;
}

int vocab_load(vocab **out, const char *path) {
    char *bytes;
    size_t n;
    *out = NULL;
    if (text_read(path, &bytes, &n)) return -1;
    int status = vocab_parse(out, (text_slice){bytes, n}, path);
    free(bytes);
    return status;
}
