/* Batches: their contents, that every epoch visits every pair once, and that nothing but (seed, epoch, index) matters.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

#include "data/batch.h"
#include "core/error.h"

#include <stdlib.h>

/* ---- Corpora made by hand ---- */

/* Pair i has src_lengths[i] and tgt_lengths[i] tokens; every token of the corpus is another number. */
static void make_side(corpus_side *side, int64_t n, const int64_t *lengths, int32_t first) {
    side->at = calloc((size_t)n + 1, sizeof *side->at);
    if (!side->at) abort();
    for (int64_t i = 0; i < n; i++) side->at[i + 1] = side->at[i] + lengths[i];
    side->ids = malloc(((size_t)side->at[n] + 1) * sizeof *side->ids);
    if (!side->ids) abort();
    for (int64_t i = 0; i < side->at[n]; i++) side->ids[i] = first + (int32_t)i;
}

static corpus make_corpus(int64_t n, const int64_t *src_lengths, const int64_t *tgt_lengths) {
    corpus c = {.n = n};
    make_side(&c.src, n, src_lengths, 100);
    make_side(&c.tgt, n, tgt_lengths, 100000);
    return c;
}

/* Lengths from 0 to most, both sides alike but not the same. */
static corpus random_corpus(int64_t n, int64_t most, uint64_t seed) {
    int64_t *src = malloc((size_t)n * sizeof *src), *tgt = malloc((size_t)n * sizeof *tgt);
    if (!src || !tgt) abort();
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        src[i] = (int64_t)((seed >> 33) % (uint64_t)(most + 1));
        tgt[i] = (src[i] * 3 + (int64_t)((seed >> 50) % 5)) / 4;
    }
    corpus c = make_corpus(n, src, tgt);
    free(src);
    free(tgt);
    return c;
}

static batcher *make(const corpus *c, batch_policy policy, uint64_t seed) {
    batcher *b = NULL;
    if (!CHECK_INT(batcher_create(&b, c, &policy, seed), 0)) printf("  %s\n", adamod__last_message()), abort();
    return b;
}

/* ---- Contents ---- */

static void check_numbers(const int32_t *x, const int32_t *expected, int64_t n, int line) {
    for (int64_t i = 0; i < n; i++) check_int(x[i], expected[i], "number", __FILE__, line);
}
#define CHECK_NUMBERS(x, ...)                                                                                          \
    check_numbers(x, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), __LINE__)

TEST(a_batch_is_laid_out_end_to_end) {
    corpus c = make_corpus(3, (const int64_t[]){2, 1, 4}, (const int64_t[]){1, 3, 2});
    batcher *b = make(&c, (batch_policy){.sentences = 2}, 1);
    CHECK_INT(batcher_steps(b), 2);
    const batch *x = batcher_next(b);
    CHECK_INT(x->epoch, 0);
    CHECK_INT(x->index, 0);
    CHECK_INT(x->last, 0);
    CHECK_INT(x->n, 2);
    CHECK_INT(x->n_src, 5);
    CHECK_INT(x->n_tgt, 6);
    CHECK(x->pairs[0] == 0 && x->pairs[1] == 1);
    CHECK_NUMBERS(x->src_ids, 100, 101, VOCAB_END, 102, VOCAB_END);
    CHECK_NUMBERS(x->src_positions, 0, 1, 2, 0, 1);
    CHECK_NUMBERS(x->src_ranges[0], 0, 3, 3, 5);
    CHECK_NUMBERS(x->tgt_in, VOCAB_START, 100000, VOCAB_START, 100001, 100002, 100003);
    CHECK_NUMBERS(x->tgt_out, 100000, VOCAB_END, 100001, 100002, 100003, VOCAB_END);
    CHECK_NUMBERS(x->tgt_positions, 0, 1, 0, 1, 2, 3);
    CHECK_NUMBERS(x->tgt_ranges[0], 0, 2, 2, 6);
    x = batcher_next(b);
    CHECK_INT(x->index, 1);
    CHECK_INT(x->last, 1);
    CHECK_INT(x->n, 1);
    CHECK_INT(x->pairs[0], 2);
    CHECK_NUMBERS(x->src_ids, 103, 104, 105, 106, VOCAB_END);
    CHECK_NUMBERS(x->tgt_in, VOCAB_START, 100004, 100005);
    x = batcher_next(b);
    CHECK_INT(x->epoch, 1);
    CHECK_INT(x->index, 0);
    batcher_free(b);
    corpus_free(&c);
}

TEST(rows_behind_a_batch_count_for_nothing) {
    corpus c = make_corpus(3, (const int64_t[]){2, 1, 1}, (const int64_t[]){1, 3, 0});
    batcher *b = make(&c, (batch_policy){.sentences = 2}, 1);
    batch_shape most = batcher_capacity(b);
    CHECK(most.n == 2 && most.n_src == 5 && most.n_tgt == 6);
    batcher_next(b);
    const batch *x = batcher_next(b);
    CHECK(x->n == 1 && x->n_src == 2 && x->n_tgt == 1);
    CHECK_NUMBERS(x->src_ids, 103, VOCAB_END, VOCAB_END, VOCAB_END, VOCAB_END);
    CHECK_NUMBERS(x->src_positions, 0, 1, 0, 0, 0);
    CHECK_NUMBERS(x->src_ranges[0], 0, 2, 0, 0);
    CHECK_NUMBERS(x->tgt_in, VOCAB_START, VOCAB_END, VOCAB_END, VOCAB_END, VOCAB_END, VOCAB_END);
    CHECK_NUMBERS(x->tgt_out, VOCAB_END, -1, -1, -1, -1, -1);
    CHECK_NUMBERS(x->tgt_positions, 0, 0, 0, 0, 0, 0);
    CHECK_NUMBERS(x->tgt_ranges[0], 0, 1, 0, 0);
    batcher_free(b);
    corpus_free(&c);
}

/* Any batch is what its list of pairs says. */
static void check_batch(const corpus *c, const batch *x) {
    int32_t s = 0, t = 0;
    int wrong = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const int32_t *src = c->src.ids + c->src.at[x->pairs[i]], *tgt = c->tgt.ids + c->tgt.at[x->pairs[i]];
        int32_t n_src = (int32_t)corpus_length(&c->src, x->pairs[i]),
                n_tgt = (int32_t)corpus_length(&c->tgt, x->pairs[i]);
        wrong += x->src_ranges[i][0] != s || x->src_ranges[i][1] != s + n_src + 1;
        wrong += x->tgt_ranges[i][0] != t || x->tgt_ranges[i][1] != t + n_tgt + 1;
        for (int32_t k = 0; k <= n_src; k++, s++)
            wrong += x->src_ids[s] != (k < n_src ? src[k] : VOCAB_END) || x->src_positions[s] != k;
        for (int32_t k = 0; k <= n_tgt; k++, t++)
            wrong += x->tgt_in[t] != (k ? tgt[k - 1] : VOCAB_START) || x->tgt_positions[t] != k ||
                     x->tgt_out[t] != (k < n_tgt ? tgt[k] : VOCAB_END);
    }
    CHECK_INT(wrong, 0);
    CHECK(x->n_src == s && x->n_tgt == t);
}

/* ---- Epochs ---- */

static const batch_policy policies[] = {
    {.sentences = 48, .shuffle = 1},
    {.sentences = 7},
    {.tokens = 400, .shuffle = 1},
    {.tokens = 61},
    {.tokens = 1000, .sentences = 9, .shuffle = 1},
    {.sentences = 100000, .shuffle = 1},
};
enum { POLICIES = sizeof policies / sizeof policies[0] };

TEST(an_epoch_visits_every_pair_once) {
    corpus c = random_corpus(1003, 60, 1);
    for (int p = 0; p < POLICIES; p++) {
        batcher *b = make(&c, policies[p], 7);
        batch_shape most = batcher_capacity(b);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int seen[1003] = {0}, once = 0;
            for (int64_t k = 0; k < batcher_steps(b); k++) {
                const batch *x = batcher_next(b);
                CHECK(x->epoch == epoch && x->index == k && x->last == (k == batcher_steps(b) - 1));
                CHECK(x->n > 0 && x->n <= most.n && x->n_src <= most.n_src && x->n_tgt <= most.n_tgt);
                check_batch(&c, x);
                for (int32_t i = 0; i < x->n; i++) seen[x->pairs[i]]++;
            }
            for (int i = 0; i < 1003; i++) once += seen[i] == 1;
            CHECK_INT(once, 1003);
        }
        batcher_free(b);
    }
    corpus_free(&c);
}

TEST(batches_by_sentences_have_that_many) {
    corpus c = random_corpus(100, 10, 2);
    batcher *b = make(&c, (batch_policy){.sentences = 48, .shuffle = 1}, 7);
    CHECK_INT(batcher_steps(b), 3);
    CHECK_INT(batcher_next(b)->n, 48);
    CHECK_INT(batcher_next(b)->n, 48);
    CHECK_INT(batcher_next(b)->n, 4);
    batcher_free(b);
    corpus_free(&c);
}

/* ---- By tokens ---- */

static int64_t rows_of(const corpus *c, int64_t pair) {
    int64_t s = corpus_length(&c->src, pair) + 1, t = corpus_length(&c->tgt, pair) + 1;
    return s > t ? s : t;
}

/* Negative, 0 or positive, as the first pair sorts before, with or after the second. */
static int64_t by_length(const corpus *c, int64_t x, int64_t y) {
    int64_t source = corpus_length(&c->src, x) - corpus_length(&c->src, y);
    return source ? source : corpus_length(&c->tgt, x) - corpus_length(&c->tgt, y);
}

/* fairseq's batches, the slow way: insertion sort from the order of the corpus, then greedy. Returns how many. */
static int64_t slow_batches(const corpus *c, int64_t tokens, int64_t *order, int64_t *starts) {
    int64_t batches = 0, longest = 0;
    for (int64_t i = 0; i < c->n; i++) {
        int64_t k = i;
        for (; k && by_length(c, order[k - 1], i) > 0; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    starts[0] = 0;
    for (int64_t i = 0; i < c->n; i++) {
        int64_t rows = rows_of(c, order[i]), with = rows > longest ? rows : longest;
        if ((i - starts[batches] + 1) * with > tokens) {
            starts[++batches] = i;
            with = rows;
        }
        longest = with;
    }
    starts[++batches] = c->n;
    return batches;
}

TEST(batches_by_tokens_are_those_of_the_plain_method) {
    enum { N = 500 };
    int64_t order[N], starts[N + 1];
    corpus c = random_corpus(N, 30, 3);
    for (int64_t tokens = 31; tokens < 2000; tokens = tokens * 5 / 3) {
        batcher *b = make(&c, (batch_policy){.tokens = tokens}, 7);
        int64_t n = slow_batches(&c, tokens, order, starts);
        CHECK_INT(batcher_steps(b), n);
        for (int64_t k = 0; k < n; k++) {
            const batch *x = batcher_next(b);
            if (!CHECK_INT(x->n, starts[k + 1] - starts[k])) break;
            for (int32_t i = 0; i < x->n; i++) CHECK_INT(x->pairs[i], order[starts[k] + i]);
        }
        batcher_free(b);
    }
    corpus_free(&c);
}

static int compare_shapes(const void *a, const void *b) { return memcmp(a, b, sizeof(batch_shape)); }

/* The shapes of an epoch's batches, sorted. */
static void shapes_of(batcher *b, batch_shape *to) {
    for (int64_t k = 0; k < batcher_steps(b); k++) {
        const batch *x = batcher_next(b);
        to[k] = (batch_shape){x->n, x->n_src, x->n_tgt};
    }
    qsort(to, (size_t)batcher_steps(b), sizeof *to, compare_shapes);
}

TEST(every_epoch_by_tokens_has_the_same_shapes_and_the_capacity_is_exact) {
    enum { N = 2000 };
    static batch_shape first[N], other[N];
    corpus c = random_corpus(N, 30, 4);
    batcher *b = make(&c, (batch_policy){.tokens = 300, .shuffle = 1}, 7);
    batch_shape most = batcher_capacity(b), found = {0};
    size_t n = (size_t)batcher_steps(b);
    shapes_of(b, first);
    for (size_t i = 0; i < n; i++) {
        if (first[i].n > found.n) found.n = first[i].n;
        if (first[i].n_src > found.n_src) found.n_src = first[i].n_src;
        if (first[i].n_tgt > found.n_tgt) found.n_tgt = first[i].n_tgt;
    }
    CHECK(!memcmp(&most, &found, sizeof most));
    for (int epoch = 1; epoch < 4; epoch++) {
        shapes_of(b, other);
        CHECK(!memcmp(first, other, n * sizeof *first));
    }
    batcher_free(b);
    corpus_free(&c);
}

/* ---- Order ---- */

/* The pairs of an epoch in their order, all batches end to end. */
static void pairs_of(batcher *b, int64_t epoch, int64_t *to) {
    CHECK_INT(batcher_seek(b, epoch, 0), 0);
    for (int64_t k = 0; k < batcher_steps(b); k++) {
        const batch *x = batcher_next(b);
        for (int32_t i = 0; i < x->n; i++) *to++ = x->pairs[i];
    }
}

TEST(order_depends_on_seed_and_epoch) {
    enum { N = 300 };
    int64_t a[N], b[N];
    corpus c = random_corpus(N, 20, 5);
    for (int p = 0; p < POLICIES; p++) {
        batcher *one = make(&c, policies[p], 7), *other_seed = make(&c, policies[p], 8);
        pairs_of(one, 0, a);
        pairs_of(one, 1, b);
        CHECK_INT(!memcmp(a, b, sizeof a), !policies[p].shuffle);
        pairs_of(other_seed, 0, b);
        CHECK_INT(!memcmp(a, b, sizeof a), !policies[p].shuffle);
        pairs_of(one, 0, b);
        CHECK(!memcmp(a, b, sizeof a));
        batcher_free(one);
        batcher_free(other_seed);
    }
    corpus_free(&c);
}

/* 24 orders of 4 pairs over 4800 epochs: chi-square with 23 degrees of freedom, whose 0.9999 quantile is 57. */
TEST(every_order_is_as_likely) {
    corpus c = make_corpus(4, (const int64_t[]){1, 1, 1, 1}, (const int64_t[]){1, 1, 1, 1});
    batcher *b = make(&c, (batch_policy){.sentences = 4, .shuffle = 1}, 7);
    int count[256] = {0};
    double chi_square = 0;
    for (int epoch = 0; epoch < 4800; epoch++) {
        const int64_t *p = batcher_next(b)->pairs;
        count[p[0] * 64 + p[1] * 16 + p[2] * 4 + p[3]]++;
    }
    for (int i = 0; i < 256; i++)
        if (count[i]) chi_square += (count[i] - 200) * (count[i] - 200) / 200.0;
    CHECK(chi_square < 57);
    batcher_free(b);
    corpus_free(&c);
}

/* ---- Resuming ---- */

static uint64_t fingerprint(const batch *x) {
    uint64_t h = (uint64_t)x->epoch * 1000003 + (uint64_t)x->index;
    for (int32_t i = 0; i < x->n; i++) h = (h ^ (uint64_t)x->pairs[i]) * 0x100000001b3u;
    for (int32_t i = 0; i < x->n_src; i++) h = (h ^ (uint64_t)x->src_ids[i]) * 0x100000001b3u;
    for (int32_t i = 0; i < x->n_tgt; i++) h = (h ^ (uint64_t)x->tgt_out[i]) * 0x100000001b3u;
    return h;
}

TEST(a_batch_is_the_same_wherever_one_comes_from) {
    enum { EPOCHS = 3, MOST = 100 };
    static uint64_t expected[EPOCHS * MOST];
    corpus c = random_corpus(200, 20, 6);
    for (int p = 0; p < POLICIES; p++) {
        batcher *b = make(&c, policies[p], 7);
        int64_t steps = batcher_steps(b);
        uint64_t seed = 1;
        if (!CHECK(steps <= MOST)) return;
        for (int64_t i = 0; i < EPOCHS * steps; i++) expected[i] = fingerprint(batcher_next(b));
        batcher_free(b);
        for (int ring = 2; ring < 6; ring++) {
            batch_policy policy = policies[p];
            policy.ring = ring;
            b = make(&c, policy, 7);
            for (int trial = 0; trial < 60; trial++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                int64_t at = (int64_t)((seed >> 33) % (uint64_t)(EPOCHS * steps)), read = (int64_t)(seed >> 60);
                CHECK_INT(batcher_seek(b, at / steps, at % steps), 0);
                for (; read > 0 && at < EPOCHS * steps; read--, at++)
                    if (!CHECK(fingerprint(batcher_next(b)) == expected[at])) return;
            }
            batcher_free(b);
        }
    }
    corpus_free(&c);
}

TEST(the_end_of_an_epoch_is_the_beginning_of_the_next) {
    corpus c = random_corpus(100, 20, 6);
    batcher *b = make(&c, (batch_policy){.sentences = 10, .shuffle = 1}, 7);
    CHECK_INT(batcher_seek(b, 4, 10), 0);
    const batch *x = batcher_next(b);
    CHECK(x->epoch == 5 && x->index == 0);
    batcher_free(b);
    corpus_free(&c);
}

TEST(a_place_there_is_not_is_refused_and_changes_nothing) {
    corpus c = random_corpus(100, 20, 6);
    batcher *b = make(&c, (batch_policy){.sentences = 10, .shuffle = 1}, 7);
    batcher_next(b);
    CHECK_INT(batcher_seek(b, 2, 11), -1);
    CHECK_STR(adamod__last_message(),
              "batches: no batch 11 of epoch 2, expected an index from 0 to 10 and an epoch from 0");
    CHECK_INT(batcher_seek(b, -1, 0), -1);
    CHECK_INT(batcher_seek(b, 0, -1), -1);
    CHECK_INT(batcher_next(b)->index, 1);
    batcher_free(b);
    corpus_free(&c);
}

TEST(a_batcher_may_be_freed_at_any_time) {
    corpus c = random_corpus(100, 20, 6);
    for (int i = 0; i < 50; i++) {
        batcher *b = make(&c, (batch_policy){.tokens = 100, .shuffle = 1}, 7);
        for (int k = 0; k < i % 5; k++) batcher_next(b);
        if (i % 2) batcher_seek(b, i, 0);
        batcher_free(b);
    }
    batcher_free(NULL);
    corpus_free(&c);
}

/* ---- Ranks ---- */

TEST(ranks_share_an_epoch) {
    corpus c = random_corpus(103, 20, 8);
    batch_policy policy = {.sentences = 10, .shuffle = 1};
    batcher *alone = make(&c, policy, 7), *ranks[3];
    CHECK_INT(batcher_steps(alone), 11);
    for (int r = 0; r < 3; r++) {
        policy.ranks = 3;
        policy.rank = r;
        ranks[r] = make(&c, policy, 7);
        CHECK_INT(batcher_steps(ranks[r]), 4);
    }
    for (int k = 0; k < 12; k++) {
        const batch *x = batcher_next(ranks[k % 3]);
        CHECK_INT(x->index, k / 3);
        CHECK_INT(x->last, k >= 9);
        if (k == 11) {
            CHECK(!x->n && !x->n_src && !x->n_tgt);
            CHECK_INT(x->tgt_out[0], -1);
            break;
        }
        const batch *y = batcher_next(alone);
        CHECK(x->n == y->n && !memcmp(x->pairs, y->pairs, (size_t)x->n * sizeof *x->pairs));
    }
    for (int r = 0; r < 3; r++) batcher_free(ranks[r]);
    batcher_free(alone);
    corpus_free(&c);
}

/* ---- Mistakes ---- */

TEST(bad_policies_are_refused) {
    corpus c = make_corpus(2, (const int64_t[]){2, 1}, (const int64_t[]){1, 3}), empty = {0};
    static const struct {
        batch_policy policy;
        const char *says;
    } cases[] = {
        {{0}, "batches: 0 sentences, 0 tokens, expected one of them > 0 and none < 0"},
        {{.sentences = -1, .tokens = 10}, "batches: -1 sentences, 10 tokens, expected one of them > 0 and none < 0"},
        {{.tokens = 3}, "batches: pair 2 has 4 tokens with its end, expected at most the 3 of a batch"},
        {{.sentences = 1, .ring = 1}, "batches: a ring of 1, expected 2 to 64"},
        {{.sentences = 1, .ring = 65}, "batches: a ring of 65, expected 2 to 64"},
        {{.sentences = 1, .rank = 2, .ranks = 2}, "batches: rank 2 of 2, expected 0 <= rank < ranks"},
        {{.sentences = 1, .rank = 1}, "batches: rank 1 of 0, expected 0 <= rank < ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        batcher *b;
        CHECK_INT(batcher_create(&b, &c, &cases[i].policy, 1), -1);
        CHECK_STR(adamod__last_message(), cases[i].says);
        CHECK(!b);
    }
    batcher *b;
    CHECK_INT(batcher_create(&b, &empty, &(batch_policy){.sentences = 1}, 1), -1);
    CHECK_STR(adamod__last_message(), "batches: the corpus is empty");
    corpus_free(&c);
}

RUN_TESTS(ENTRY(a_batch_is_laid_out_end_to_end), ENTRY(rows_behind_a_batch_count_for_nothing),
          ENTRY(an_epoch_visits_every_pair_once), ENTRY(batches_by_sentences_have_that_many),
          ENTRY(batches_by_tokens_are_those_of_the_plain_method),
          ENTRY(every_epoch_by_tokens_has_the_same_shapes_and_the_capacity_is_exact),
          ENTRY(order_depends_on_seed_and_epoch), ENTRY(every_order_is_as_likely),
          ENTRY(a_batch_is_the_same_wherever_one_comes_from), ENTRY(the_end_of_an_epoch_is_the_beginning_of_the_next),
          ENTRY(a_place_there_is_not_is_refused_and_changes_nothing), ENTRY(a_batcher_may_be_freed_at_any_time),
          ENTRY(ranks_share_an_epoch), ENTRY(bad_policies_are_refused))
