/* strings.c - see strings.h: open addressing, at most half full.
 *
 * SPDX-License-Identifier: MIT
 */
#include "data/strings.h"

#include <stdlib.h>
#include <string.h>

struct strings {
    char *bytes;
    size_t n_bytes, room_bytes;
    size_t *at;       /* [count + 1] */
    uint32_t *hashes; /* the low half, to compare first and to grow without reading strings */
    int32_t count, room;
    int32_t *slots; /* numbers, or -1 */
    uint32_t mask;
};

uint64_t strings_hash(text_slice text) {
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
    s->at = calloc(1, sizeof *s->at);
    if (s->slots && s->at) {
        memset(s->slots, -1, (s->mask + 1) * sizeof *s->slots);
        return s;
    }
    strings_free(s);
    return NULL;
}

void strings_free(strings *s) {
    if (!s) return;
    free(s->bytes);
    free(s->at);
    free(s->hashes);
    free(s->slots);
    free(s);
}

text_slice strings_get(const strings *s, int32_t number) {
    return (text_slice){s->bytes + s->at[number], s->at[number + 1] - s->at[number]};
}

int32_t strings_count(const strings *s) { return s->count; }

/* Where it is, or would be. */
static uint32_t slot_of(const strings *s, text_slice text, uint32_t hash) {
    uint32_t i = hash & s->mask;
    for (; s->slots[i] >= 0; i = (i + 1) & s->mask) {
        if (s->hashes[s->slots[i]] != hash) continue;
        const text_slice other = strings_get(s, s->slots[i]);
        if (other.n == text.n && (!text.n || memcmp(other.bytes, text.bytes, text.n) == 0)) break;
    }
    return i;
}

int32_t strings_find(const strings *s, text_slice text) {
    return s->slots[slot_of(s, text, (uint32_t)strings_hash(text))];
}

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

static int grow_strings(strings *s, size_t more) {
    if (s->count == s->room) {
        const int32_t room = s->room * 2 + 256;
        size_t *at = realloc(s->at, ((size_t)room + 1) * sizeof *at);
        if (at) s->at = at;
        uint32_t *hashes = realloc(s->hashes, (size_t)room * sizeof *hashes);
        if (hashes) s->hashes = hashes;
        if (!at || !hashes) return -1;
        s->room = room;
    }
    if (s->room_bytes - s->n_bytes < more || !s->bytes) {
        const size_t room = (s->n_bytes + more) * 2 + 4096;
        char *bytes = realloc(s->bytes, room);
        if (!bytes) return -1;
        s->bytes = bytes;
        s->room_bytes = room;
    }
    return 0;
}

int32_t strings_add(strings *s, text_slice text) {
    const uint32_t hash = (uint32_t)strings_hash(text);
    uint32_t slot = slot_of(s, text, hash);
    if (s->slots[slot] >= 0) return s->slots[slot];
    if (s->count == INT32_MAX / 4 || grow_strings(s, text.n)) return -1;
    if ((uint32_t)s->count * 2 >= s->mask) {
        if (grow_slots(s)) return -1;
        slot = slot_of(s, text, hash);
    }
    if (text.n) memcpy(s->bytes + s->n_bytes, text.bytes, text.n);
    s->n_bytes += text.n;
    s->hashes[s->count] = hash;
    s->at[s->count + 1] = s->n_bytes;
    s->slots[slot] = s->count;
    return s->count++;
}
