/* A hash table with open addressing, at most half full. */
#include "data/pair_map.h"

#include "data/strings.h"

#include <stdbool.h>
#include <stdlib.h>

/* The slot of two numbers, or the free one where they belong. */
static struct pair_map_slot *slot_of(const pair_map *m, int32_t a, int32_t b) {
    size_t i = strings_hash_pair(a, b) & m->mask;
    while (m->slots[i].a >= 0 && (m->slots[i].a != a || m->slots[i].b != b)) i = (i + 1) & m->mask;
    return &m->slots[i];
}

static bool grow(pair_map *m) {
    pair_map more = {.mask = m->slots ? m->mask * 2 + 1 : 1023, .count = m->count};
    more.slots = malloc((more.mask + 1) * sizeof *more.slots);
    if (!more.slots) return false;
    for (size_t i = 0; i <= more.mask; i++) more.slots[i].a = -1;
    for (size_t i = 0; m->slots && i <= m->mask; i++) {
        if (m->slots[i].a >= 0) *slot_of(&more, m->slots[i].a, m->slots[i].b) = m->slots[i];
    }
    free(m->slots);
    *m = more;
    return true;
}

int32_t *pair_map_at(pair_map *m, int32_t a, int32_t b) {
    if ((!m->slots || m->count * 2 > m->mask) && !grow(m)) return NULL;
    struct pair_map_slot *s = slot_of(m, a, b);
    if (s->a < 0) {
        *s = (struct pair_map_slot){a, b, PAIR_MAP_NEW};
        m->count++;
    }
    return &s->value;
}

int32_t pair_map_get(const pair_map *m, int32_t a, int32_t b) {
    if (!m->slots) return PAIR_MAP_NEW;
    const struct pair_map_slot *s = slot_of(m, a, b);
    return s->a < 0 ? (int32_t)PAIR_MAP_NEW : s->value;
}

void pair_map_free(pair_map *m) {
    free(m->slots);
    *m = (pair_map){0};
}
