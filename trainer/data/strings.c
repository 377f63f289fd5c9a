/* A hash table with open addressing, at most half full. */
#include "data/strings.h"

#include "core/buffer.h"
#include "support/array.h"

#include <stdlib.h>
#include <string.h>

struct strings {
    adamod__buffer bytes; /* of all strings, each with a terminating 0 */
    size_t *at;           /* [count + 1]: where each string begins */
    uint32_t *hashes;     /* the low half, to compare first and to grow without reading strings */
    int32_t count;
    size_t room_at, room_hashes;
    int32_t *slots; /* numbers, or -1 */
    uint32_t mask;
};

static uint64_t hash_of(text_slice text) {
    uint64_t h = 0x243f6a8885a308d3u ^ text.n;
    const char *b = text.bytes;
    size_t n = text.n;
    for (; n >= 8; b += 8, n -= 8) {
        uint64_t x;
        memcpy(&x, b, 8);
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint64_t)(unsigned char)b[i] << (8 * i);
    h = (h ^ x) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

strings *strings_create(void) {
    strings *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->mask = 1023;
    s->slots = malloc((s->mask + 1) * sizeof *s->slots);
    if (s->slots && ARRAY_RESERVE(s->at, 1, s->room_at)) {
        s->at[0] = 0;
        memset(s->slots, -1, (s->mask + 1) * sizeof *s->slots);
        return s;
    }
    strings_free(s);
    return NULL;
}

void strings_free(strings *s) {
    if (!s) return;
    adamod__buffer_free(&s->bytes);
    free(s->at);
    free(s->hashes);
    free(s->slots);
    free(s);
}

text_slice strings_get(const strings *s, int32_t number) {
    return (text_slice){s->bytes.text + s->at[number], s->at[number + 1] - s->at[number] - 1};
}

int32_t strings_count(const strings *s) { return s->count; }

/* The slot of a string, or the free one where it belongs. */
static uint32_t slot_of(const strings *s, text_slice text, uint32_t hash) {
    uint32_t i = hash & s->mask;
    for (; s->slots[i] >= 0; i = (i + 1) & s->mask) {
        if (s->hashes[s->slots[i]] != hash) continue;
        if (text_equal(strings_get(s, s->slots[i]), text)) break;
    }
    return i;
}

int32_t strings_find(const strings *s, text_slice text) { return s->slots[slot_of(s, text, (uint32_t)hash_of(text))]; }

static int grow_slots(strings *s) {
    const uint32_t mask = s->mask * 2 + 1;
    int32_t *slots = malloc(((size_t)mask + 1) * sizeof *slots);
    if (!slots) return -1;
    memset(slots, -1, ((size_t)mask + 1) * sizeof *slots);
    for (int32_t k = 0; k < s->count; k++) {
        uint32_t i = s->hashes[k] & mask;
        while (slots[i] >= 0) i = (i + 1) & mask;
        slots[i] = k;
    }
    free(s->slots);
    s->slots = slots;
    s->mask = mask;
    return 0;
}

int32_t strings_add(strings *s, text_slice text) {
    const uint32_t hash = (uint32_t)hash_of(text);
    uint32_t slot = slot_of(s, text, hash);
    if (s->slots[slot] >= 0) return s->slots[slot];
    if (s->count == INT32_MAX / 4 || !ARRAY_RESERVE(s->at, s->count + 2, s->room_at) ||
        !ARRAY_RESERVE(s->hashes, s->count + 1, s->room_hashes))
        return -1;
    if ((uint32_t)s->count * 2 >= s->mask) {
        if (grow_slots(s)) return -1;
        slot = slot_of(s, text, hash);
    }
    adamod__buffer_add(&s->bytes, text.bytes, text.n);
    adamod__buffer_add(&s->bytes, "", 1);
    if (s->bytes.failed) return -1;
    s->hashes[s->count] = hash;
    s->at[s->count + 1] = s->bytes.n;
    s->slots[slot] = s->count;
    return s->count++;
}

int32_t strings_add_joined(strings *s, text_slice first, text_slice second) {
    adamod__buffer both = {0};
    adamod__buffer_add(&both, first.bytes, first.n);
    adamod__buffer_add(&both, second.bytes, second.n);
    const int32_t number = both.failed ? -1 : strings_add(s, (text_slice){both.text, both.n});
    adamod__buffer_free(&both);
    return number;
}

int string_counts_add(string_counts *c, text_slice text, int64_t times) {
    const int32_t before = c->of->count;
    if (!ARRAY_RESERVE(c->times, before + 1, c->room)) return -1; /* first, so that each string has a count */
    const int32_t number = strings_add(c->of, text);
    if (number < 0) return -1;
    if (number == before) c->times[number] = 0;
    c->times[number] += times;
    return 0;
}

void string_counts_free(string_counts *c) {
    strings_free(c->of);
    free(c->times);
}
