/* Splits words into subwords. */
#include "data/bpe.h"

#include "core/buffer.h"
#include "core/error.h"
#include "data/mersenne.h"
#include "data/strings.h"
#include "support/array.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char end_of_word[] = "</w>";
enum { END = sizeof end_of_word - 1, CACHED = 1 << 19 };

typedef struct code {
    int32_t first, second, merged, rank; /* first -1: a free slot */
} code;

struct bpe {
    int version; /* 1: the end of a word is a symbol of its own; 2: it belongs to the last character */
    strings *symbols;
    code *codes; /* by hash */
    uint32_t mask;
    int32_t (*parts)[2]; /* of each symbol: the pair that makes it first; -1: none */
    int64_t merges;
    strings *vocabulary; /* NULL: no restriction */
    char separator[32];
};

/* ---- codes ---- */

static code *slot_of(const bpe *b, int32_t first, int32_t second) {
    uint32_t i = (uint32_t)strings_hash_pair(first, second) & b->mask;
    while (b->codes[i].first >= 0 && (b->codes[i].first != first || b->codes[i].second != second))
        i = (i + 1) & b->mask;
    return &b->codes[i];
}

static const code *find_code(const bpe *b, int32_t first, int32_t second) {
    if (first < 0 || second < 0) return NULL;
    const code *c = slot_of(b, first, second);
    return c->first >= 0 ? c : NULL;
}

/* "a b" with exactly one space. */
static bool split_code(text_slice line, text_slice out[2]) {
    const char *space = line.n ? memchr(line.bytes, ' ', line.n) : NULL;
    if (!space) return false;
    out[0] = (text_slice){line.bytes, (size_t)(space - line.bytes)};
    out[1] = (text_slice){space + 1, line.n - out[0].n - 1};
    return out[0].n && out[1].n && !memchr(out[1].bytes, ' ', out[1].n);
}

/* Reads 0.1 or 0.2 from "#version: 0.2", ignoring trailing ".0". */
static int read_version(bpe *b, text_slice *rest, const char *name) {
    static const char head[] = "#version:";
    text_slice line, after = *rest;
    b->version = 1;
    if (rest->n < sizeof head - 1 || memcmp(rest->bytes, head, sizeof head - 1) != 0) return 0;
    text_next_line(&after, &line);
    *rest = after;
    line = bpe_strip((text_slice){line.bytes + sizeof head - 1, line.n - (sizeof head - 1)});
    while (line.n > 3 && line.bytes[line.n - 1] == '0' && line.bytes[line.n - 2] == '.') line.n -= 2;
    if (line.n == 3 && memcmp(line.bytes, "0.1", 3) == 0) return 0;
    b->version = 2;
    if (line.n == 3 && memcmp(line.bytes, "0.2", 3) == 0) return 0;
    return adamod__refuse("%s:1: codes of version '%.*s', expected 0.1 or 0.2", name, line.n < 20 ? (int)line.n : 20,
                          line.bytes);
}

static int add_code(bpe *b, const text_slice parts[2], int32_t rank) {
    const int32_t first = strings_add(b->symbols, parts[0]), second = strings_add(b->symbols, parts[1]);
    if (first < 0 || second < 0) return -1;
    code *c = slot_of(b, first, second);
    if (c->first >= 0) return 0; /* a repeated code does not count */
    const int32_t merged = strings_add_joined(b->symbols, parts[0], parts[1]);
    if (merged < 0) return -1;
    *c = (code){first, second, merged, rank};
    b->merges++;
    return 0;
}

static int read_codes(bpe *b, text_slice rest, int64_t limit, int64_t number, const char *name) {
    text_slice line, parts[2];
    for (int32_t rank = 0; (limit < 0 || rank < limit) && text_next_line(&rest, &line); rank++, number++) {
        if (text_check(line, name, number)) return -1;
        if (!split_code(bpe_strip(line), parts))
            return adamod__refuse("%s:%" PRId64 ": expected two symbols with a space between", name, number);
        if (add_code(b, parts, rank)) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    }
    return 0;
}

/* Finds the first code that makes each symbol. */
static int find_parts(bpe *b) {
    const size_t n = (size_t)strings_count(b->symbols) + 1;
    int32_t *rank = malloc(n * sizeof *rank);
    b->parts = malloc(n * sizeof *b->parts);
    for (size_t i = 0; rank && b->parts && i < n; i++) rank[i] = INT32_MAX, b->parts[i][0] = b->parts[i][1] = -1;
    for (uint32_t i = 0; rank && b->parts && i <= b->mask; i++) {
        const code *c = &b->codes[i];
        if (c->first < 0 || c->rank >= rank[c->merged]) continue;
        rank[c->merged] = c->rank;
        b->parts[c->merged][0] = c->first;
        b->parts[c->merged][1] = c->second;
    }
    free(rank);
    return rank && b->parts ? 0 : -1;
}

int bpe_parse(bpe **out, text_slice codes, int64_t limit, const char *name) {
    *out = NULL;
    if (!codes.n) return adamod__refuse("%s: empty, expected codes of subwords", name);
    bpe *b = *out = calloc(1, sizeof *b);
    if (!b) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    text_slice rest = codes;
    int failed = read_version(b, &rest, name);
    while (rest.n && rest.bytes[rest.n - 1] == '\n') rest.n--;
    const int64_t lines = text_count_lines(rest);
    for (b->mask = 1023; b->mask / 2 < (uint64_t)lines && b->mask < UINT32_MAX / 2;) b->mask = b->mask * 2 + 1;
    b->symbols = strings_create();
    b->codes = malloc(((size_t)b->mask + 1) * sizeof *b->codes);
    if (!failed && (!b->symbols || !b->codes || lines > INT32_MAX / 4))
        failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    for (uint32_t i = 0; !failed && i <= b->mask; i++) b->codes[i].first = -1;
    const int64_t first = rest.bytes == codes.bytes ? 1 : 2;
    if (!failed) failed = read_codes(b, rest, limit, first, name);
    if (!failed && find_parts(b)) failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    if (!failed) return 0;
    bpe_free(b);
    *out = NULL;
    return -1;
}

void bpe_free(bpe *b) {
    if (!b) return;
    strings_free(b->symbols);
    strings_free(b->vocabulary);
    free(b->codes);
    free(b->parts);
    free(b);
}

int64_t bpe_merges(const bpe *b) { return b->merges; }

int bpe_restrict(bpe *b, text_slice vocabulary, int64_t threshold, const char *separator, const char *name) {
    text_slice line, parts[2];
    strings *words = strings_create();
    int failed = words ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    for (int64_t number = 1; !failed && text_next_line(&vocabulary, &line); number++) {
        char count[24], *end;
        failed = text_check(line, name, number);
        if (failed) break;
        const bool whole = split_code(bpe_strip(line), parts) && parts[1].n < sizeof count;
        snprintf(count, sizeof count, "%.*s", whole ? (int)parts[1].n : 0, whole ? parts[1].bytes : "");
        const long long frequency = strtoll(count, &end, 10);
        if (!whole || *end)
            failed = adamod__refuse("%s:%" PRId64 ": expected a word and how often it was seen", name, number);
        else if (frequency >= threshold && strings_add(words, parts[0]) < 0)
            failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    }
    if (failed || strings_count(words) == 0) { /* an empty vocabulary restricts nothing, as in subword-nmt */
        strings_free(words);
        return failed ? -1 : 0;
    }
    snprintf(b->separator, sizeof b->separator, "%s", separator ? separator : "@@");
    b->vocabulary = words;
    return 0;
}

bool bpe_is_restricted(const bpe *b) { return b->vocabulary != NULL; }

/* ---- one word ---- */

typedef struct symbol {
    int32_t id;      /* -1: in no code */
    uint32_t at, to; /* bytes of the word */
} symbol;

struct bpe_worker {
    const bpe *b;
    bpe_options o;
    mersenne random;
    symbol *symbols;
    bool *drop;
    size_t n, room_symbols, room_drop;
    strings *words; /* cached: word i becomes text[at[i] .. at[i + 1]) */
    adamod__buffer text;
    size_t *at;
    size_t room_at;
    adamod__buffer name; /* of a subword in codes or a vocabulary */
};

/* The symbol of a text; last: at the end of a word. */
static int32_t find_symbol(const bpe *b, text_slice text, bool last) {
    char with_end[64];
    if (!last) return strings_find(b->symbols, text);
    if (text.n + END > sizeof with_end) return -1;
    memcpy(with_end, text.bytes, text.n);
    memcpy(with_end + text.n, end_of_word, END);
    return strings_find(b->symbols, (text_slice){with_end, text.n + END});
}

static int split_characters(bpe_worker *w, text_slice word) {
    text_slice rest = word, c;
    const bool own_end = w->b->version == 1;
    if (!ARRAY_RESERVE(w->symbols, word.n + 1, w->room_symbols) || !ARRAY_RESERVE(w->drop, word.n + 1, w->room_drop))
        return -1;
    for (w->n = 0; text_next_token(TEXT_CHARACTERS, &rest, &c); w->n++) {
        const uint32_t at = (uint32_t)(c.bytes - word.bytes);
        w->symbols[w->n] = (symbol){find_symbol(w->b, c, !own_end && !rest.n), at, at + (uint32_t)c.n};
    }
    if (own_end) {
        const uint32_t at = (uint32_t)word.n;
        w->symbols[w->n++] = (symbol){strings_find(w->b->symbols, text_of(end_of_word)), at, at};
    }
    return 0;
}

/* Merges all occurrences of the pair with the lowest rank. False: no pair has a code. */
static bool merge_once(bpe_worker *w) {
    const code *best = NULL;
    size_t n = 0;
    for (size_t i = 0; i + 1 < w->n; i++) {
        w->drop[i] = w->o.dropout > 0 && !(mersenne_next(&w->random) > w->o.dropout);
        const code *c = w->drop[i] ? NULL : find_code(w->b, w->symbols[i].id, w->symbols[i + 1].id);
        if (c && (!best || c->rank < best->rank)) best = c;
    }
    if (!best) return false;
    for (size_t i = 0; i < w->n; i++) {
        symbol s = w->symbols[i];
        const bool here = i + 1 < w->n && !w->drop[i] && s.id == best->first && w->symbols[i + 1].id == best->second;
        if (here) s = (symbol){best->merged, s.at, w->symbols[++i].to};
        w->symbols[n++] = s;
    }
    w->n = n;
    return true;
}

static void put_subword(bpe_worker *w, adamod__buffer *out, text_slice text, bool last) {
    adamod__buffer_add(out, text.bytes, text.n);
    if (last) return;
    const char *separator = w->o.separator ? w->o.separator : "@@";
    adamod__buffer_text(out, separator);
    adamod__buffer_text(out, " ");
}

/* A subword followed by a mark. Valid until the next call. */
static text_slice named(bpe_worker *w, text_slice text, const char *mark) {
    w->name.n = 0;
    adamod__buffer_add(&w->name, text.bytes, text.n);
    adamod__buffer_text(&w->name, mark);
    return w->name.failed ? (text_slice){0} : (text_slice){w->name.text, w->name.n};
}

/* Whether the vocabulary has a subword, with the separator unless it is a word's last. */
static bool is_known(bpe_worker *w, text_slice text, bool last) {
    return strings_find(w->b->vocabulary, last ? text : named(w, text, w->b->separator)) >= 0;
}

/* Splits a subword that is not in the vocabulary into the two it was merged from, and these likewise. The symbol of a
 * word's last subword ends in "</w>", its text does not. */
static void put_split(bpe_worker *w, adamod__buffer *out, int32_t id, text_slice text, bool last) {
    const int32_t *parts = id >= 0 ? w->b->parts[id] : NULL;
    if (!parts || parts[0] < 0) {
        put_subword(w, out, text, last);
        return;
    }
    const size_t n = strings_get(w->b->symbols, parts[0]).n;
    const text_slice left = {text.bytes, n < text.n ? n : text.n}, right = {text.bytes + left.n, text.n - left.n};
    if (is_known(w, left, false)) put_subword(w, out, left, false);
    else put_split(w, out, parts[0], left, false);
    if (is_known(w, right, last)) put_subword(w, out, right, last);
    else put_split(w, out, parts[1], right, last);
}

static void put_word(bpe_worker *w, adamod__buffer *out, text_slice word) {
    text_slice rest = word, c;
    text_next_token(TEXT_CHARACTERS, &rest, &c);
    if (!rest.n) { /* a single character is never split */
        adamod__buffer_add(out, word.bytes, word.n);
        return;
    }
    if (split_characters(w, word)) {
        out->failed = true;
        return;
    }
    while (w->n > 1 && merge_once(w)) continue;
    if (w->b->version == 1 && w->symbols[w->n - 1].at == word.n) w->n--; /* "</w>" alone */
    for (size_t i = 0; i < w->n; i++) {
        const symbol *s = &w->symbols[i];
        const text_slice text = {word.bytes + s->at, s->to - s->at};
        const bool last = i + 1 == w->n;
        if (!w->b->vocabulary || is_known(w, text, last)) {
            put_subword(w, out, text, last);
        } else {
            const int32_t id = strings_find(w->b->symbols, last ? named(w, text, end_of_word) : text);
            put_split(w, out, id, text, last);
        }
    }
    out->failed = out->failed || w->name.failed;
}

/* ---- a line ---- */

static bool reserve_cache(bpe_worker *w) {
    if (strings_count(w->words) >= CACHED) { /* full: start again */
        strings_free(w->words);
        w->words = strings_create();
        w->text.n = 0;
        if (!w->words) return false;
    }
    return ARRAY_RESERVE(w->at, strings_count(w->words) + 2, w->room_at);
}

static void put_cached(bpe_worker *w, adamod__buffer *out, text_slice word) {
    if (w->o.dropout > 0) {
        put_word(w, out, word);
        return;
    }
    int32_t id = strings_find(w->words, word);
    if (id < 0) {
        if (!reserve_cache(w) || (id = strings_add(w->words, word)) < 0) {
            out->failed = true;
            return;
        }
        w->at[id] = w->text.n;
        put_word(w, &w->text, word);
        w->at[id + 1] = w->text.n;
        out->failed = out->failed || w->text.failed;
    }
    if (!out->failed) adamod__buffer_add(out, w->text.text + w->at[id], w->at[id + 1] - w->at[id]);
}

/* Keeps blanks at both ends; joins words by one space. */
static void put_piece(bpe_worker *w, adamod__buffer *out, text_slice piece) {
    text_slice rest = bpe_strip(piece);
    const size_t begin = (size_t)(rest.bytes - piece.bytes), end = begin + rest.n;
    bool first = true;
    adamod__buffer_add(out, piece.bytes, begin);
    for (text_slice word; text_next_token(TEXT_WORDS, &rest, &word); first = false) {
        if (!first) adamod__buffer_text(out, " ");
        put_cached(w, out, word);
    }
    adamod__buffer_add(out, piece.bytes + end, piece.n - end);
}

char *bpe_apply(bpe_worker *w, text_slice line) {
    adamod__buffer out = {0};
    adamod__buffer_text(&out, "");
    for (text_slice piece; bpe_next_piece(&line, &piece);) put_piece(w, &out, piece);
    if (out.failed) adamod__buffer_free(&out);
    return out.text;
}

bpe_worker *bpe_worker_create(const bpe *b, const bpe_options *o) {
    bpe_worker *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->b = b;
    w->o = *o;
    w->words = strings_create();
    mersenne_seed(&w->random, o->seed);
    if (w->words) return w;
    free(w);
    return NULL;
}

void bpe_worker_free(bpe_worker *w) {
    if (!w) return;
    strings_free(w->words);
    free(w->symbols);
    free(w->drop);
    adamod__buffer_free(&w->text);
    adamod__buffer_free(&w->name);
    free(w->at);
    free(w);
}
