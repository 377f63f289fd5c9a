/* vocab.c - see vocab.h.
 *
 * SPDX-License-Identifier: MIT
 */
#include "data/vocab.h"
#include "core/error.h"
#include "support/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const specials[VOCAB_SPECIALS] = {"<s>", "</s>", "<unk>"};

/* ---- A table of different tokens, numbered as they come ---------------------------------------------------------- */

typedef struct table {
    char *bytes; /* all tokens, each with a zero behind it */
    size_t used, room;
    size_t *at; /* [n_room + 1]: token i is bytes[at[i] .. at[i + 1] - 1) */
    int32_t n, n_room;
    int32_t *slots; /* open addressing, a power of two of them; -1: free */
    size_t n_slots;
} table;

static text_slice table_token(const table *t, int32_t id) {
    return (text_slice){t->bytes + t->at[id], t->at[id + 1] - t->at[id] - 1};
}

static int same(text_slice a, text_slice b) { return a.n == b.n && !memcmp(a.bytes, b.bytes, a.n); }

/* FNV-1a, mixed, because its low bits alone are weak. */
static uint64_t hash(text_slice token) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < token.n; i++) h = (h ^ (unsigned char)token.bytes[i]) * 0x100000001b3u;
    return nn_mix(h);
}

/* The slot that holds the token, or the free one where it belongs. There always is a free one. */
static size_t table_slot(const table *t, text_slice token) {
    size_t at = (size_t)hash(token) & (t->n_slots - 1);
    while (t->slots[at] >= 0 && !same(table_token(t, t->slots[at]), token)) at = (at + 1) & (t->n_slots - 1);
    return at;
}

static int table_rehash(table *t, size_t n_slots) {
    int32_t *slots = malloc(n_slots * sizeof *slots);
    if (!slots) return -1;
    memset(slots, 0xff, n_slots * sizeof *slots);
    free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (int32_t i = 0; i < t->n; i++) t->slots[table_slot(t, table_token(t, i))] = i;
    return 0;
}

/* Room for one more token of so many bytes. */
static int table_grow(table *t, size_t bytes) {
    if (t->n == INT32_MAX / 2) return -1;
    if (t->n == t->n_room) {
        int32_t n_room = t->n_room ? t->n_room * 2 : 64;
        size_t *at = realloc(t->at, ((size_t)n_room + 1) * sizeof *at);
        if (!at) return -1;
        at[t->n] = t->used;
        t->at = at;
        t->n_room = n_room;
    }
    if (t->room - t->used <= bytes) {
        size_t room = (t->used + bytes + 1) * 2;
        char *to = realloc(t->bytes, room);
        if (!to) return -1;
        t->bytes = to;
        t->room = room;
    }
    return (size_t)t->n * 2 >= t->n_slots ? table_rehash(t, t->n_slots ? t->n_slots * 2 : 128) : 0;
}

/* The token's number, a new one if it was not there; -1: out of memory. */
static int32_t table_add(table *t, text_slice token) {
    if (t->n_slots) {
        int32_t found = t->slots[table_slot(t, token)];
        if (found >= 0) return found;
    }
    if (table_grow(t, token.n)) return -1;
    size_t slot = table_slot(t, token);
    memcpy(t->bytes + t->used, token.bytes, token.n);
    t->bytes[t->used + token.n] = '\0';
    t->used += token.n + 1;
    t->slots[slot] = t->n;
    t->at[++t->n] = t->used;
    return t->n - 1;
}

static void table_free(table *t) {
    free(t->bytes);
    free(t->at);
    free(t->slots);
}

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

struct vocab_counter {
    table tokens;
    int64_t *times;
    int32_t room;
};

vocab_counter *vocab_counter_create(void) { return calloc(1, sizeof(vocab_counter)); }

void vocab_counter_free(vocab_counter *counter) {
    if (!counter) return;
    table_free(&counter->tokens);
    free(counter->times);
    free(counter);
}

static int count_token(vocab_counter *counter, text_slice token, int64_t times) {
    int32_t n = counter->tokens.n;
    if (n == counter->room) { /* first, so that a token that was added always has its count */
        int32_t room = counter->room ? counter->room * 2 : 64;
        int64_t *to = realloc(counter->times, (size_t)room * sizeof *to);
        if (!to) return -1;
        counter->times = to;
        counter->room = room;
    }
    int32_t id = table_add(&counter->tokens, token);
    if (id < 0) return -1;
    if (id == n) counter->times[id] = 0;
    counter->times[id] += times;
    return 0;
}

int vocab_counter_add(vocab_counter *counter, text_unit unit, text_slice text, int64_t times) {
    for (text_slice token; text_next_token(unit, &text, &token);)
        if (count_token(counter, token, times)) return -1;
    return 0;
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

struct vocab {
    table tokens;
};

static int special_id(text_slice token) {
    for (int id = 0; id < VOCAB_SPECIALS; id++)
        if (same(token, text_of(specials[id]))) return id;
    return -1;
}

/* A vocabulary file has a token a line, and zeros end strings. */
static int storable(text_slice token) {
    return special_id(token) < 0 && !memchr(token.bytes, '\n', token.n) && !memchr(token.bytes, '\0', token.n);
}

static vocab *create(void) {
    vocab *v = calloc(1, sizeof *v);
    for (int id = 0; v && id < VOCAB_SPECIALS; id++) {
        if (table_add(&v->tokens, text_of(specials[id])) == id) continue;
        vocab_free(v);
        v = NULL;
    }
    return v;
}

void vocab_free(vocab *v) {
    if (!v) return;
    table_free(&v->tokens);
    free(v);
}

typedef struct ranked {
    int64_t times;
    text_slice token;
} ranked;

static int by_rank(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->times != b->times) return a->times > b->times ? -1 : 1;
    int order = memcmp(a->token.bytes, b->token.bytes, a->token.n < b->token.n ? a->token.n : b->token.n);
    return order ? order : (a->token.n > b->token.n) - (a->token.n < b->token.n);
}

static int add_ranked(vocab *v, const vocab_counter *counter, const vocab_options *options) {
    ranked *list = malloc(((size_t)counter->tokens.n + 1) * sizeof *list);
    int32_t n = 0;
    int status = list ? 0 : -1;
    for (int32_t i = 0; list && i < counter->tokens.n; i++) {
        text_slice token = table_token(&counter->tokens, i);
        if (counter->times[i] >= options->min_count && storable(token)) list[n++] = (ranked){counter->times[i], token};
    }
    if (n) qsort(list, (size_t)n, sizeof *list, by_rank);
    for (int32_t i = 0; !status && i < n && (!options->max_size || v->tokens.n < options->max_size); i++)
        if (table_add(&v->tokens, list[i].token) < 0) status = -1;
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

int32_t vocab_size(const vocab *v) { return v->tokens.n; }

int32_t vocab_find(const vocab *v, text_slice token) {
    int32_t id = v->tokens.slots[table_slot(&v->tokens, token)];
    return id < VOCAB_SPECIALS ? VOCAB_UNK : id;
}

text_slice vocab_token(const vocab *v, int32_t id) {
    return table_token(&v->tokens, id >= 0 && id < v->tokens.n ? id : VOCAB_UNK);
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
    size_t n = v->tokens.used;
    char *bytes = malloc(n);
    if (!bytes) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    memcpy(bytes, v->tokens.bytes, n);
    /* The zeros between the tokens are where the newlines belong: no token has either inside (storable). */
    for (size_t i = 0; i < n; i++)
        if (!bytes[i]) bytes[i] = '\n';
    int status = text_write(path, (text_slice){bytes, n});
    free(bytes);
    return status;
}

static int parse_token(vocab *v, text_slice token, const char *name, int32_t line) {
    if (text_check(token, name, line)) return -1;
    if (line <= VOCAB_SPECIALS && special_id(token) != line - 1)
        return adamod__refuse("%s:%" PRId32 ": not a vocabulary, expected the special token %s here", name, line,
                              specials[line - 1]);
    if (line <= VOCAB_SPECIALS) return 0;
    if (!token.n) return adamod__refuse("%s:%" PRId32 ": empty line, expected a token", name, line);
    int32_t id = table_add(&v->tokens, token);
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
