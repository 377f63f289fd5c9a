/* Learns which pairs to merge.
 *
 * Counts of pairs and the index of their words are kept and pruned exactly as in subword-nmt, because pruning changes the
 * result: two merges can make the same symbol ("ab" + "c", "a" + "bc"), whose pairs then become more frequent, and for a
 * pair that was pruned only the new occurrences are known. */
#include "data/bpe.h"

#include "core/buffer.h"
#include "data/pair_map.h"
#include "data/strings.h"
#include "support/array.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct pair {
    int32_t first, second;
    int64_t count, pruned; /* stats and big_stats of subword-nmt */
    bool counted, was_pruned;
    int64_t in_heap; /* its greatest count in the heap */
    int32_t *words;  /* that may contain it */
    int32_t n_words;
    size_t room_words;
} pair;

typedef struct learned_word {
    int32_t *symbols;
    int32_t n;
} learned_word;

typedef struct heap_entry {
    int64_t count;
    int32_t pair;
} heap_entry;

struct bpe_learner {
    string_counts words;
    /* while learning */
    strings *symbols;
    learned_word *split;
    pair *pairs;
    int32_t n_pairs;
    int32_t *live; /* pairs that are counted */
    int32_t n_live;
    size_t room_pairs, room_live;
    heap_entry *heap;
    size_t n_heap, room_heap;
    pair_map pair_of, occurrences;
    bool failed; /* out of memory */
};

/* ---- words ---- */

static bool ends_line(text_slice text, size_t *n) {
    const unsigned char *b = (const unsigned char *)text.bytes;
    *n = text_code_point(text);
    if (*n == 1) return (b[0] >= 0x0a && b[0] <= 0x0d) || (b[0] >= 0x1c && b[0] <= 0x1e);
    if (*n == 2) return b[0] == 0xc2 && b[1] == 0x85;
    return *n == 3 && b[0] == 0xe2 && b[1] == 0x80 && (b[2] == 0xa8 || b[2] == 0xa9);
}

int bpe_next_piece(text_slice *rest, text_slice *piece) {
    text_slice at = *rest;
    if (!at.n) return 0;
    for (bool end = false; at.n && !end;) {
        size_t n;
        end = ends_line(at, &n);
        n = n ? n : 1;
        at = (text_slice){at.bytes + n, at.n - n};
    }
    *piece = (text_slice){rest->bytes, rest->n - at.n};
    *rest = at;
    return 1;
}

static bool is_blank(char c) { return c == ' ' || c == '\r' || c == '\n'; }

text_slice bpe_strip(text_slice text) {
    while (text.n && is_blank(text.bytes[0])) text = (text_slice){text.bytes + 1, text.n - 1};
    while (text.n && is_blank(text.bytes[text.n - 1])) text.n--;
    return text;
}

bpe_learner *bpe_learner_create(void) {
    bpe_learner *l = calloc(1, sizeof *l);
    if (l && !(l->words.of = strings_create())) {
        free(l);
        return NULL;
    }
    return l;
}

int bpe_learner_add(bpe_learner *l, text_slice line) {
    for (text_slice piece; bpe_next_piece(&line, &piece);) {
        text_slice words = bpe_strip(piece);
        for (text_slice word; text_next_token(TEXT_WORDS, &words, &word);) {
            if (string_counts_add(&l->words, word, 1)) return -1;
        }
    }
    return 0;
}

/* ---- the most frequent pair ---- */

/* Whether x comes before y. */
static bool greater(const bpe_learner *l, const heap_entry *x, const heap_entry *y) {
    if (x->count != y->count) return x->count > y->count;
    const pair *a = &l->pairs[x->pair], *b = &l->pairs[y->pair];
    int order =
        a->first == b->first ? 0 : text_compare(strings_get(l->symbols, a->first), strings_get(l->symbols, b->first));
    if (!order && a->second != b->second)
        order = text_compare(strings_get(l->symbols, a->second), strings_get(l->symbols, b->second));
    return order > 0;
}

static void push(bpe_learner *l, int32_t id) {
    if (!ARRAY_RESERVE(l->heap, l->n_heap + 1, l->room_heap)) {
        l->failed = true;
        return;
    }
    const heap_entry entry = {l->pairs[id].count, id};
    size_t i = l->n_heap++;
    for (; i && greater(l, &entry, &l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = entry;
    l->pairs[id].in_heap = entry.count;
}

static void pop(bpe_learner *l) {
    const heap_entry last = l->heap[--l->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && greater(l, &l->heap[child + 1], &l->heap[child])) child++;
        if (!greater(l, &l->heap[child], &last)) break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = last;
}

/* -1: no pair is counted. Entries of the heap may be out of date, but are never too low. */
static int32_t most_frequent(bpe_learner *l) {
    while (l->n_heap && !l->failed) {
        const heap_entry top = l->heap[0];
        pair *p = &l->pairs[top.pair];
        if (p->counted && p->count == top.count) return top.pair;
        pop(l);
        if (p->counted && p->in_heap >= top.count) push(l, top.pair);
    }
    return -1;
}

/* ---- counts ---- */

static pair *pair_of(bpe_learner *l, int32_t first, int32_t second) {
    int32_t *id = pair_map_at(&l->pair_of, first, second);
    if (id && *id != PAIR_MAP_NEW) return &l->pairs[*id];
    if (!id || !ARRAY_RESERVE(l->pairs, l->n_pairs + 1, l->room_pairs) ||
        !ARRAY_RESERVE(l->live, l->n_pairs + 1, l->room_live)) {
        l->failed = true;
        return NULL;
    }
    *id = l->n_pairs;
    l->pairs[l->n_pairs] = (pair){.first = first, .second = second, .in_heap = INT64_MIN};
    return &l->pairs[l->n_pairs++];
}

static void set_count(bpe_learner *l, pair *p, int64_t count) {
    const int32_t id = (int32_t)(p - l->pairs);
    if (!p->counted) {
        l->live[l->n_live++] = id;
        p->counted = true;
        p->in_heap = INT64_MIN;
    }
    p->count = count;
    if (count > p->in_heap) push(l, id);
}

static void note_word(bpe_learner *l, pair *p, int32_t word) {
    if (p->n_words && p->words[p->n_words - 1] == word) return;
    if (ARRAY_RESERVE(p->words, p->n_words + 1, p->room_words)) p->words[p->n_words++] = word;
    else l->failed = true;
}

/* Changes the count of a pair, and notes its word if it is new there. Pairs of equal symbols are also counted per word:
 * subword-nmt's index misses some of them ("a a a" has two and loses three), and merges only those that it has. */
static void change(bpe_learner *l, int32_t first, int32_t second, int32_t word, int64_t frequency, int32_t times) {
    pair *p = pair_of(l, first, second);
    if (!p) return;
    set_count(l, p, (p->counted ? p->count : 0) + times * frequency);
    if (times > 0) note_word(l, p, word);
    if (first != second) return;
    int32_t *in_word = pair_map_at(&l->occurrences, (int32_t)(p - l->pairs), word);
    if (!in_word) l->failed = true;
    else *in_word = *in_word == PAIR_MAP_NEW ? times : *in_word + times;
}

/* Removes rare pairs from the counts. */
static void prune(bpe_learner *l, double threshold) {
    int32_t kept = 0;
    for (int32_t i = 0; i < l->n_live; i++) {
        pair *p = &l->pairs[l->live[i]];
        if ((double)p->count >= threshold) {
            l->live[kept++] = l->live[i];
            continue;
        }
        p->pruned = p->count < 0 && p->was_pruned ? p->pruned + p->count : p->count;
        p->was_pruned = true;
        p->counted = false;
    }
    l->n_live = kept;
}

/* Restores the counts of all pairs, then keeps those frequent enough after i merges. Returns the most frequent one, or -1. */
static int32_t restore(bpe_learner *l, int64_t i, double *threshold) {
    heap_entry best = {0, -1};
    l->n_live = 0;
    l->n_heap = 0;
    for (int32_t k = 0; k < l->n_pairs; k++) {
        pair *p = &l->pairs[k];
        p->counted = p->was_pruned;
        p->count = p->pruned;
        p->in_heap = INT64_MIN;
        if (!p->counted) continue;
        l->live[l->n_live++] = k;
        const heap_entry entry = {p->count, k};
        if (best.pair < 0 || greater(l, &entry, &best)) best = entry;
    }
    if (best.pair < 0) return -1;
    *threshold = (double)(best.count * i) / ((double)i + 10000.0);
    prune(l, *threshold);
    for (int32_t k = 0; k < l->n_live; k++) push(l, l->live[k]);
    return best.pair;
}

/* ---- merging ---- */

static void merge_word(learned_word *w, int32_t first, int32_t second, int32_t merged) {
    int32_t n = 0;
    for (int32_t i = 0; i < w->n; i++) {
        const bool here = i + 1 < w->n && w->symbols[i] == first && w->symbols[i + 1] == second;
        w->symbols[n++] = here ? merged : w->symbols[i];
        i += here;
    }
    w->n = n;
}

/* Removes the pairs that overlap a merged one from the counts. */
static void take_away(bpe_learner *l, int32_t word, int32_t first, int32_t second) {
    const learned_word *w = &l->split[word];
    const int32_t *s = w->symbols, n = w->n;
    const int64_t f = l->words.times[word];
    for (int32_t i = 0; i + 1 < n;) {
        if (s[i] != first || s[i + 1] != second) {
            i++;
            continue;
        }
        if (i) change(l, s[i - 1], s[i], word, f, -1);
        /* in "A B C B C" the next merge removes "C B" */
        if (i + 2 < n && (s[i + 2] != first || i + 3 >= n || s[i + 3] != second))
            change(l, s[i + 1], s[i + 2], word, f, -1);
        i += 2;
    }
}

/* Counts the pairs that a merged symbol is part of. */
static void bring_in(bpe_learner *l, int32_t word, int32_t merged) {
    const learned_word *w = &l->split[word];
    const int64_t f = l->words.times[word];
    for (int32_t i = 0; i < w->n; i++) {
        if (w->symbols[i] != merged) continue;
        if (i) change(l, w->symbols[i - 1], w->symbols[i], word, f, 1);
        if (i + 1 < w->n && w->symbols[i + 1] != merged) change(l, w->symbols[i], w->symbols[i + 1], word, f, 1);
    }
}

static bool contains(const learned_word *w, int32_t first, int32_t second) {
    for (int32_t i = 0; i + 1 < w->n; i++) {
        if (w->symbols[i] == first && w->symbols[i + 1] == second) return true;
    }
    return false;
}

/* Moves the words in which a pair is merged to the front of its list. Returns how many there are. */
static int32_t words_to_change(bpe_learner *l, int32_t id) {
    pair *p = &l->pairs[id];
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_words; i++) {
        bool merges = true;
        if (p->first == p->second) {
            int32_t *in_word = pair_map_at(&l->occurrences, id, p->words[i]);
            merges = in_word && *in_word >= 1;
            if (in_word) *in_word = 0;
            else l->failed = true;
        }
        if (merges) p->words[n++] = p->words[i];
    }
    return n;
}

static void merge(bpe_learner *l, int32_t id) {
    const int32_t first = l->pairs[id].first, second = l->pairs[id].second;
    const int32_t merged =
        strings_add_joined(l->symbols, strings_get(l->symbols, first), strings_get(l->symbols, second));
    const int32_t n = words_to_change(l, id);
    int32_t *words = l->pairs[id].words;
    l->pairs[id].words = NULL;
    l->pairs[id].n_words = 0;
    l->pairs[id].room_words = 0;
    if (merged < 0) l->failed = true;
    if (!l->failed) set_count(l, &l->pairs[id], 0);
    for (int32_t i = 0; i < n && !l->failed; i++) {
        if (!contains(&l->split[words[i]], first, second)) continue;
        take_away(l, words[i], first, second);
        merge_word(&l->split[words[i]], first, second, merged);
        bring_in(l, words[i], merged);
    }
    if (!l->failed) set_count(l, &l->pairs[id], 0);
    free(words);
}

/* ---- learning ---- */

/* Splits a word into characters; "</w>" is part of the last. */
static int split_word(bpe_learner *l, int32_t word) {
    text_slice rest = strings_get(l->words.of, word), c;
    const int64_t n = text_count_tokens(TEXT_CHARACTERS, rest);
    learned_word *w = &l->split[word];
    w->symbols = malloc((size_t)(n ? n : 1) * sizeof *w->symbols);
    if (!w->symbols) return -1;
    while (text_next_token(TEXT_CHARACTERS, &rest, &c)) {
        const int32_t id = strings_add_joined(l->symbols, c, text_of(rest.n ? "" : "</w>"));
        if (id < 0) return -1;
        w->symbols[w->n++] = id;
    }
    for (int32_t i = 0; i + 1 < w->n; i++) change(l, w->symbols[i], w->symbols[i + 1], word, l->words.times[word], 1);
    return 0;
}

static bool prepare(bpe_learner *l) {
    const int32_t n = strings_count(l->words.of);
    l->symbols = strings_create();
    l->split = calloc((size_t)n + 1, sizeof *l->split);
    if (!l->symbols || !l->split) return false;
    for (int32_t i = 0; i < n; i++) {
        if (split_word(l, i)) return false;
    }
    for (int32_t i = 0; i < l->n_pairs; i++) {
        l->pairs[i].pruned = l->pairs[i].count;
        l->pairs[i].was_pruned = true;
    }
    return !l->failed;
}

static void add_slice(adamod__buffer *b, text_slice text) { adamod__buffer_add(b, text.bytes, text.n); }

/* Returns the text, or NULL after a failure. */
static char *finish(adamod__buffer *b, bool failed) {
    if (failed || b->failed) adamod__buffer_free(b);
    return b->text;
}

char *bpe_learner_run(bpe_learner *l, int64_t merges, int64_t min_frequency, int64_t *done) {
    adamod__buffer codes = {0};
    *done = 0;
    adamod__buffer_text(&codes, "#version: 0.2\n");
    if (!prepare(l)) l->failed = true;
    int32_t best = l->failed ? -1 : most_frequent(l);
    double threshold = best >= 0 ? (double)l->pairs[best].count / 10 : 0;
    for (int64_t i = 0; i < merges && !l->failed; i++) {
        best = most_frequent(l);
        if (best < 0 || (i && (double)l->pairs[best].count < threshold)) {
            prune(l, threshold);
            best = restore(l, i, &threshold);
            if (best < 0) break;
        }
        if (l->pairs[best].count < min_frequency) break;
        add_slice(&codes, strings_get(l->symbols, l->pairs[best].first));
        adamod__buffer_text(&codes, " ");
        add_slice(&codes, strings_get(l->symbols, l->pairs[best].second));
        adamod__buffer_text(&codes, "\n");
        merge(l, best);
        ++*done;
        if (i % 100 == 0) prune(l, threshold);
    }
    return finish(&codes, l->failed);
}

/* ---- words and their counts ---- */

typedef struct counted_word {
    int64_t frequency;
    int32_t id;
} counted_word;

static int compare_counts(const void *left, const void *right) {
    const counted_word *a = left, *b = right;
    if (a->frequency != b->frequency) return a->frequency > b->frequency ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

char *bpe_learner_words(const bpe_learner *l) {
    const int32_t n = strings_count(l->words.of);
    counted_word *words = malloc(((size_t)n + 1) * sizeof *words);
    adamod__buffer text = {0};
    adamod__buffer_text(&text, "");
    for (int32_t i = 0; i < n && words; i++) words[i] = (counted_word){l->words.times[i], i};
    if (words) qsort(words, (size_t)n, sizeof *words, compare_counts);
    for (int32_t i = 0; i < n && words; i++) {
        add_slice(&text, strings_get(l->words.of, words[i].id));
        adamod__buffer_format(&text, " %" PRId64 "\n", words[i].frequency);
    }
    const bool failed = !words;
    free(words);
    return finish(&text, failed);
}

void bpe_learner_free(bpe_learner *l) {
    if (!l) return;
    for (int32_t i = 0; l->split && i < strings_count(l->words.of); i++) free(l->split[i].symbols);
    for (int32_t i = 0; i < l->n_pairs; i++) free(l->pairs[i].words);
    string_counts_free(&l->words);
    strings_free(l->symbols);
    free(l->split);
    free(l->pairs);
    free(l->live);
    free(l->heap);
    free(l->pair_of.slots);
    free(l->occurrences.slots);
    free(l);
}
