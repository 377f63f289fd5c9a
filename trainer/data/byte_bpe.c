/* Text to ids and back. */
#include "data/byte_bpe_internal.h"

#include "data/byte_pieces.h"
#include "data/min_heap.h"
#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- the model ---- */

byte_bpe *byte_bpe_create(void) {
    byte_bpe *b = calloc(1, sizeof *b);
    if (b && !(b->tokens = strings_create())) {
        free(b);
        return NULL;
    }
    return b;
}

void byte_bpe_free(byte_bpe *b) {
    if (!b) return;
    strings_free(b->tokens);
    free(b->merges);
    pair_map_free(&b->ranks);
    free(b);
}

int byte_bpe_find_bytes(byte_bpe *b) {
    for (int i = 0; i < 256; i++) {
        const char byte = (char)i;
        if ((b->of_byte[i] = strings_find(b->tokens, (text_slice){&byte, 1})) < 0) return i;
    }
    b->end = strings_find(b->tokens, text_of(BYTE_BPE_END));
    return -1;
}

int32_t byte_bpe_add_merge(byte_bpe *b, byte_bpe_merge m) {
    if (!ARRAY_RESERVE(b->merges, b->n_merges + 1, b->room_merges)) return -1;
    int32_t *rank = pair_map_at(&b->ranks, m.left, m.right);
    if (!rank) return -1;
    if (*rank != PAIR_MAP_NEW) return *rank;
    b->merges[b->n_merges] = m;
    return *rank = b->n_merges++;
}

int32_t byte_bpe_size(const byte_bpe *b) { return strings_count(b->tokens); }
int32_t byte_bpe_end(const byte_bpe *b) { return b->end; }
text_slice byte_bpe_token(const byte_bpe *b, int32_t id) { return strings_get(b->tokens, id); }

void byte_bpe_decode(const byte_bpe *b, const int32_t *ids, size_t n, adamod__buffer *out) {
    for (size_t i = 0; i < n; i++) {
        const text_slice token = strings_get(b->tokens, ids[i]);
        adamod__buffer_add(out, token.bytes, token.n);
    }
}

/* ---- merging ---- */

enum { NO_RANK = PAIR_MAP_NEW, NONE = -1 };

/* A token of a piece that is being merged, in a list of its neighbours. */
typedef struct symbol {
    int32_t id, before, after; /* NONE at the ends */
    int32_t rank;              /* of the merge with the one after it; NO_RANK: there is none, or it was merged away */
} symbol;

/* A cache of short pieces with few ids. An entry is a line of the processor's cache, and a new piece replaces the old
 * one there. A fuzzer, which makes many encoders, gets a small cache. */
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
enum { CACHED = 1 << 5 };
#else
enum { CACHED = 1 << 16 };
#endif
enum { CACHED_BYTES = 26, CACHED_IDS = 9 };

typedef struct cached_piece {
    uint8_t n_bytes, n_ids; /* n_bytes is 0: free */
    char bytes[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
} cached_piece;

struct byte_bpe_encoder {
    const byte_bpe *b;
    bool marks;
    symbol *symbols;
    size_t room;
    min_heap queue;
    cached_piece *cache;
};

static bool queue_merge(byte_bpe_encoder *e, int32_t at) {
    symbol *s = &e->symbols[at];
    s->rank = s->after == NONE ? (int32_t)NO_RANK : pair_map_get(&e->b->ranks, s->id, e->symbols[s->after].id);
    return s->rank == NO_RANK || min_heap_push(&e->queue, (min_heap_item){(uint64_t)s->rank, (uint64_t)at, 0});
}

static bool split_bytes(byte_bpe_encoder *e, text_slice piece) {
    if (piece.n > INT32_MAX || !ARRAY_RESERVE(e->symbols, piece.n, e->room)) return false;
    const int32_t n = (int32_t)piece.n;
    for (int32_t i = 0; i < n; i++)
        e->symbols[i] = (symbol){e->b->of_byte[(unsigned char)piece.bytes[i]], i - 1, i + 1 < n ? i + 1 : NONE, 0};
    for (int32_t i = 0; i < n; i++) {
        if (!queue_merge(e, i)) return false;
    }
    return true;
}

/* Takes the second symbol out of the list. */
static bool merge_at(byte_bpe_encoder *e, int32_t at) {
    symbol *first = &e->symbols[at], *second = &e->symbols[first->after];
    first->id = e->b->merges[first->rank].both;
    first->after = second->after;
    second->rank = NO_RANK;
    if (first->after != NONE) e->symbols[first->after].before = at;
    return queue_merge(e, at) && (first->before == NONE || queue_merge(e, first->before));
}

/* Merges the pair of the lowest rank, the leftmost of several, until there is none. */
static bool merge_piece(byte_bpe_encoder *e, text_slice piece, byte_bpe_ids *ids) {
    e->queue.n = 0;
    if (!split_bytes(e, piece)) return false;
    while (e->queue.n) {
        const min_heap_item next = min_heap_pop(&e->queue);
        const int32_t at = (int32_t)next.tie;
        if (e->symbols[at].rank != (int32_t)next.key) continue; /* one of the pair was merged with another */
        if (!merge_at(e, at)) return false;
    }
    for (int32_t i = 0; i != NONE; i = e->symbols[i].after) {
        if (!ARRAY_RESERVE(ids->list, ids->n + 1, ids->room)) return false;
        ids->list[ids->n++] = e->symbols[i].id;
    }
    return true;
}

/* ---- pieces ---- */

static uint64_t read_bytes(const char *bytes, size_t n) {
    uint64_t x = 0;
    memcpy(&x, bytes, n);
    return x;
}

static size_t hash_of(text_slice piece) {
    uint64_t h = piece.n;
    for (; piece.n > 8; piece.bytes += 8, piece.n -= 8) {
        h = (h ^ read_bytes(piece.bytes, 8)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    h = (h ^ read_bytes(piece.bytes, piece.n)) * 0xd6e8feb86659fd93u;
    return (size_t)(h >> 32 ^ h >> 48);
}

static bool encode_piece(byte_bpe_encoder *e, text_slice piece, byte_bpe_ids *ids) {
    if (piece.n > CACHED_BYTES) return merge_piece(e, piece, ids);
    cached_piece *c = &e->cache[hash_of(piece) % CACHED];
    if (c->n_bytes == piece.n && memcmp(c->bytes, piece.bytes, piece.n) == 0) {
        if (!ARRAY_RESERVE(ids->list, ids->n + CACHED_IDS, ids->room)) return false;
        for (int i = 0; i < c->n_ids; i++) ids->list[ids->n + (size_t)i] = c->ids[i];
        ids->n += c->n_ids;
        return true;
    }
    const size_t before = ids->n;
    if (!merge_piece(e, piece, ids)) return false;
    const size_t n = ids->n - before;
    if (n > CACHED_IDS) return true;
    c->n_bytes = (uint8_t)piece.n;
    c->n_ids = (uint8_t)n;
    memcpy(c->bytes, piece.bytes, piece.n);
    memcpy(c->ids, ids->list + before, n * sizeof *c->ids);
    return true;
}

/* Encodes the pieces of a text up to the first that fewer than `ahead` bytes follow. Returns the number of bytes
 * encoded; -1: out of memory. */
static int64_t encode_text(byte_bpe_encoder *e, text_slice text, size_t ahead, byte_bpe_ids *ids) {
    text_slice rest = text;
    while (rest.n) {
        text_slice after = rest;
        const text_slice piece = byte_pieces_next(&after);
        if (after.n < ahead) break;
        if (!encode_piece(e, piece, ids)) return -1;
        rest = after;
    }
    return (int64_t)(text.n - rest.n);
}

static int64_t encode_marked(byte_bpe_encoder *e, text_slice text, size_t ahead, byte_bpe_ids *ids) {
    static const size_t n = sizeof BYTE_BPE_END - 1;
    text_slice rest = text;
    const char *mark;
    while (e->marks && e->b->end >= 0 && rest.n && (mark = memmem(rest.bytes, rest.n, BYTE_BPE_END, n))) {
        const size_t before = (size_t)(mark - rest.bytes);
        if (encode_text(e, (text_slice){rest.bytes, before}, 0, ids) < 0) return -1;
        if (!ARRAY_RESERVE(ids->list, ids->n + 1, ids->room)) return -1;
        ids->list[ids->n++] = e->b->end;
        rest = (text_slice){mark + n, rest.n - before - n};
    }
    const int64_t taken = encode_text(e, rest, ahead, ids);
    return taken < 0 ? -1 : (int64_t)(text.n - rest.n) + taken;
}

int byte_bpe_encode(byte_bpe_encoder *e, text_slice text, byte_bpe_ids *ids) {
    return encode_marked(e, text, 0, ids) < 0 ? -1 : 0;
}

int64_t byte_bpe_encode_part(byte_bpe_encoder *e, text_slice text, byte_bpe_ids *ids) {
    return encode_marked(e, text, BYTE_BPE_AHEAD, ids);
}

byte_bpe_encoder *byte_bpe_encoder_create(const byte_bpe *b, bool marks) {
    byte_bpe_encoder *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->b = b;
    e->marks = marks;
    if ((e->cache = calloc(CACHED, sizeof *e->cache))) return e;
    free(e);
    return NULL;
}

void byte_bpe_encoder_free(byte_bpe_encoder *e) {
    if (!e) return;
    free(e->symbols);
    free(e->queue.items);
    free(e->cache);
    free(e);
}

/* ---- spelling ---- */

static bool spells_itself(uint32_t byte) {
    return (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte <= 0xff && byte != 0xad);
}

/* The character of a byte. Bytes 0 to 32, 127 to 160 and 173 do not spell themselves. */
static uint32_t character_of(unsigned char byte) {
    if (spells_itself(byte)) return byte;
    return 0x100u + (byte <= ' ' ? byte : byte == 0xad ? 67u : byte - 0x7fu + 33u);
}

int byte_bpe_byte(uint32_t character) {
    if (character < 0x100) return spells_itself(character) ? (int)character : -1;
    const uint32_t i = character - 0x100;
    return i > 67 ? -1 : i == 67 ? 0xad : (int)(i <= ' ' ? i : i - 33 + 0x7f);
}

bool byte_bpe_read_bytes(text_slice spelled, adamod__buffer *out, uint32_t *other) {
    out->n = 0;
    while (spelled.n) {
        const uint32_t c = unicode_next(&spelled);
        const int byte = byte_bpe_byte(c);
        if (byte < 0) {
            *other = c;
            return false;
        }
        adamod__buffer_add(out, &(char){(char)byte}, 1);
    }
    return true;
}

void byte_bpe_spell(text_slice bytes, adamod__buffer *out) {
    char c[4];
    for (size_t i = 0; i < bytes.n; i++)
        adamod__buffer_add(out, c, unicode_put(character_of((unsigned char)bytes.bytes[i]), c));
}
