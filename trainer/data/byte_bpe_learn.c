/* Learns which pairs of tokens to merge, as Hugging Face's BpeTrainer does.
 *
 * The merges depend on its queue, so the queue is the same here: an item has a pair, its count when it was queued, and
 * the words in which the pair appeared then. Counts in the queue may be out of date, but never too low. A merge does
 * not reduce the count of its pair: that matters if the pair appears again, by a token that two merges make ("ab" +
 * "c", "a" + "bc"). */
#include "data/byte_bpe_internal.h"

#include "core/error.h"
#include "data/min_heap.h"

#include <stdlib.h>
#include <string.h>

typedef struct word {
    int32_t *symbols;
    int32_t n;
    int64_t times;
} word;

typedef struct word_list {
    int32_t *list;
    size_t n, room;
} word_list;

typedef struct pair {
    int32_t first, second;
    int64_t count;
    word_list fresh; /* the words where it came up by the last merge */
    bool listed;     /* in `changed` */
} pair;

/* An item of the queue. */
typedef struct candidate {
    int32_t pair;
    word_list words;
} candidate;

typedef struct learning {
    strings *tokens;
    int32_t *symbols; /* of all words */
    word *words;
    int32_t n_words;
    pair_map index; /* of pairs */
    pair *pairs;
    int32_t n_pairs;
    int32_t *changed; /* pairs with fresh words */
    size_t n_changed;
    candidate *candidates;
    size_t n_candidates;
    size_t room_pairs, room_changed, room_candidates;
    min_heap queue;
    byte_bpe_merge *merges;
    int32_t n_merges;
    size_t room_merges;
    bool failed; /* out of memory */
} learning;

/* ---- pairs ---- */

static pair *pair_of(learning *l, int32_t first, int32_t second) {
    int32_t *i = pair_map_at(&l->index, first, second);
    if (i && *i != PAIR_MAP_NEW) return &l->pairs[*i];
    if (!i || !ARRAY_RESERVE(l->pairs, l->n_pairs + 1, l->room_pairs) ||
        !ARRAY_RESERVE(l->changed, l->n_pairs + 1, l->room_changed)) {
        l->failed = true;
        return NULL;
    }
    *i = l->n_pairs;
    l->pairs[l->n_pairs] = (pair){.first = first, .second = second};
    return &l->pairs[l->n_pairs++];
}

/* Changes the count of a pair by an occurrence in a word. */
static void change(learning *l, int32_t first, int32_t second, int32_t at, int times) {
    pair *p = pair_of(l, first, second);
    if (!p) return;
    p->count += times * l->words[at].times;
    if (times < 0) return;
    if (!p->listed) l->changed[l->n_changed++] = (int32_t)(p - l->pairs);
    p->listed = true;
    if (p->fresh.n && p->fresh.list[p->fresh.n - 1] == at) return;
    if (ARRAY_RESERVE(p->fresh.list, p->fresh.n + 1, p->fresh.room)) p->fresh.list[p->fresh.n++] = at;
    else l->failed = true;
}

static void push(learning *l, size_t which) {
    const pair *p = &l->pairs[l->candidates[which].pair];
    const uint64_t both = (uint64_t)(uint32_t)p->first << 32 | (uint32_t)p->second;
    if (!min_heap_push(&l->queue, (min_heap_item){UINT64_MAX - (uint64_t)p->count, both, (int64_t)which}))
        l->failed = true;
}

/* Queues the pairs that came up, with their words. */
static void queue_changed(learning *l) {
    for (size_t i = 0; i < l->n_changed && !l->failed; i++) {
        pair *p = &l->pairs[l->changed[i]];
        p->listed = false;
        if (p->count <= 0) {
            p->fresh.n = 0;
            continue;
        }
        if (!ARRAY_RESERVE(l->candidates, l->n_candidates + 1, l->room_candidates)) {
            l->failed = true;
            return;
        }
        l->candidates[l->n_candidates] = (candidate){l->changed[i], p->fresh};
        p->fresh = (word_list){0};
        push(l, l->n_candidates++);
    }
    l->n_changed = 0;
}

/* ---- words ---- */

static bool split_words(learning *l, const string_counts *pieces, const byte_bpe *b) {
    const int32_t n = strings_count(pieces->of);
    size_t total = 0, at = 0;
    for (int32_t i = 0; i < n; i++) total += strings_get(pieces->of, i).n;
    l->words = malloc(((size_t)n + 1) * sizeof *l->words);
    l->symbols = malloc((total + 1) * sizeof *l->symbols);
    if (!l->words || !l->symbols) return false;
    for (int32_t i = 0; i < n; i++) {
        const text_slice piece = strings_get(pieces->of, i);
        if (piece.n < 2 || piece.n > INT32_MAX) continue;
        for (size_t k = 0; k < piece.n; k++) l->symbols[at + k] = b->of_byte[(unsigned char)piece.bytes[k]];
        l->words[l->n_words++] = (word){l->symbols + at, (int32_t)piece.n, pieces->times[i]};
        at += piece.n;
    }
    return true;
}

static void count_pairs(learning *l) {
    for (int32_t i = 0; i < l->n_words; i++) {
        for (int32_t k = 0; k + 1 < l->words[i].n; k++)
            change(l, l->words[i].symbols[k], l->words[i].symbols[k + 1], i, 1);
    }
    queue_changed(l);
}

/* Merges a pair in a word, from left to right. */
static void merge_word(learning *l, int32_t at, byte_bpe_merge m) {
    word *w = &l->words[at];
    int32_t *s = w->symbols, n = 0;
    for (int32_t i = 0; i < w->n; i++) {
        if (s[i] != m.left || i + 1 == w->n || s[i + 1] != m.right) {
            s[n++] = s[i];
            continue;
        }
        if (n) {
            change(l, s[n - 1], m.left, at, -1);
            change(l, s[n - 1], m.both, at, 1);
        }
        if (i + 2 < w->n) {
            change(l, m.right, s[i + 2], at, -1);
            change(l, m.both, s[i + 2], at, 1);
        }
        s[n++] = m.both;
        i++;
    }
    w->n = n;
}

/* ---- merges ---- */

/* The most frequent pair; false: none is frequent enough. */
static bool next_candidate(learning *l, int64_t min_frequency, candidate *out) {
    while (l->queue.n && !l->failed) {
        const min_heap_item top = min_heap_pop(&l->queue);
        candidate *c = &l->candidates[top.value];
        const int64_t count = l->pairs[c->pair].count;
        if (UINT64_MAX - top.key != (uint64_t)count) {
            push(l, (size_t)top.value);
            continue;
        }
        if (count < 1 || count < min_frequency) return false;
        *out = *c;
        c->words = (word_list){0};
        return true;
    }
    return false;
}

static void merge(learning *l, const candidate *c) {
    const pair *p = &l->pairs[c->pair];
    const text_slice first = strings_get(l->tokens, p->first), second = strings_get(l->tokens, p->second);
    byte_bpe_merge m = {p->first, p->second, strings_add_joined(l->tokens, first, second)};
    if (m.both < 0 || !ARRAY_RESERVE(l->merges, l->n_merges + 1, l->room_merges)) {
        l->failed = true;
        return;
    }
    l->merges[l->n_merges++] = m;
    for (size_t i = 0; i < c->words.n && !l->failed; i++) merge_word(l, c->words.list[i], m);
    queue_changed(l);
}

/* Whether merging a pair would make the end mark, which must not come from text. */
static bool makes_end(const learning *l, const candidate *c) {
    const text_slice first = strings_get(l->tokens, l->pairs[c->pair].first),
                     second = strings_get(l->tokens, l->pairs[c->pair].second), end = text_of(BYTE_BPE_END);
    return first.n + second.n == end.n && memcmp(end.bytes, first.bytes, first.n) == 0 &&
           memcmp(end.bytes + first.n, second.bytes, second.n) == 0;
}

/* A pair that was merged twice counts where it was merged last. */
static int take_merges(byte_bpe *b, const learning *l) {
    pair_map last = {0};
    int status = 0;
    for (int32_t i = 0; i < l->n_merges && !status; i++) {
        int32_t *at = pair_map_at(&last, l->merges[i].left, l->merges[i].right);
        if (at) *at = i;
        else status = -1;
    }
    for (int32_t i = 0; i < l->n_merges && !status; i++) {
        if (pair_map_get(&last, l->merges[i].left, l->merges[i].right) == i && byte_bpe_add_merge(b, l->merges[i]) < 0)
            status = -1;
    }
    pair_map_free(&last);
    return status;
}

static void free_learning(learning *l) {
    for (size_t i = 0; i < l->n_candidates; i++) free(l->candidates[i].words.list);
    for (int32_t i = 0; i < l->n_pairs; i++) free(l->pairs[i].fresh.list);
    free(l->symbols);
    free(l->words);
    pair_map_free(&l->index);
    free(l->pairs);
    free(l->changed);
    free(l->candidates);
    free(l->queue.items);
    free(l->merges);
}

/* The 256 bytes, in the order of the characters that spell them. */
static bool add_bytes(byte_bpe *b) {
    for (uint32_t c = 0; c < 0x100 + 68; c++) {
        const int byte = byte_bpe_byte(c);
        if (byte >= 0 && strings_add(b->tokens, (text_slice){&(char){(char)byte}, 1}) < 0) return false;
    }
    return byte_bpe_find_bytes(b) < 0;
}

static bool learn(byte_bpe *b, learning *l, const string_counts *pieces, int64_t size, int64_t min_frequency) {
    candidate c;
    if (!add_bytes(b) || !split_words(l, pieces, b)) return false;
    count_pairs(l);
    while (strings_count(b->tokens) + 1 < size && next_candidate(l, min_frequency, &c)) {
        if (!makes_end(l, &c)) merge(l, &c);
        free(c.words.list);
    }
    if (l->failed || take_merges(b, l) || (b->end = strings_add(b->tokens, text_of(BYTE_BPE_END))) < 0) return false;
    return true;
}

int byte_bpe_learn(byte_bpe **out, const byte_bpe_learner *from, int64_t size, int64_t min_frequency) {
    *out = NULL;
    if (size < 257)
        return adamod__refuse("a vocabulary of %lld tokens, expected at least 257: the bytes and the end",
                              (long long)size);
    byte_bpe *b = byte_bpe_create();
    learning l = {.tokens = b ? b->tokens : NULL};
    const bool done = b && learn(b, &l, &from->pieces, size, min_frequency);
    free_learning(&l);
    if (done) {
        *out = b;
        return 0;
    }
    byte_bpe_free(b);
    return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for learning tokens");
}
