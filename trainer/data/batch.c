#include "data/batch.h"
#include "core/error.h"
#include "core/thread.h"
#include "data/shuffle.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RING 64

/* Streams of random numbers under (seed, epoch). */
#define SHUFFLE_PAIRS 0x7061697273u       /* "pairs" */
#define SHUFFLE_BATCHES 0x62617463686573u /* "batches" */

typedef struct place {
    int64_t epoch, index;
} place;

struct batcher {
    const corpus *corpus;
    batch_policy policy;
    uint64_t seed;
    batch_shape capacity;
    int64_t n_batches, steps; /* of an epoch: in all, for this rank */
    int64_t *starts;          /* [n_batches + 1] where each batch begins in order; the same in every epoch */

    /* The order of an epoch. Only the thread uses it once it runs. */
    int64_t epoch; /* -1: none yet */
    int64_t *order, *scratch, *batch_order;
    int64_t *buckets; /* for sorting by length */

    /* The ring: from `first` on, `held` (0 or 1) slots are the caller's, then `ready` hold batches, the rest are free. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t room, filled;
    batch slots[MAX_RING];
    int first, held, ready;
    place next; /* what the thread makes next */
    int64_t seeks;
    int stop, running;
};

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static int64_t src_rows(const batcher *b, int64_t pair) { return corpus_length(&b->corpus->src, pair) + 1; }
static int64_t tgt_rows(const batcher *b, int64_t pair) { return corpus_length(&b->corpus->tgt, pair) + 1; }

static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

static int64_t longest(const batcher *b, int64_t (*rows)(const batcher *, int64_t)) {
    int64_t most = 0;
    for (int64_t i = 0; i < b->corpus->n; i++) most = larger(most, rows(b, i));
    return most;
}

/* A stable sort, linear in the number of pairs and the longest sentence. */
static void counting_sort(batcher *b, int64_t (*rows)(const batcher *, int64_t), int64_t most) {
    int64_t n = b->corpus->n, at = 0;
    memset(b->buckets, 0, (size_t)(most + 1) * sizeof *b->buckets);
    for (int64_t i = 0; i < n; i++) b->buckets[rows(b, i)]++;
    for (int64_t length = 0; length <= most; length++) {
        int64_t count = b->buckets[length];
        b->buckets[length] = at;
        at += count;
    }
    for (int64_t i = 0; i < n; i++) b->scratch[b->buckets[rows(b, b->order[i])]++] = b->order[i];
    int64_t *sorted = b->scratch;
    b->scratch = b->order;
    b->order = sorted;
}

static void order_epoch(batcher *b, int64_t epoch) {
    int64_t n = b->corpus->n;
    for (int64_t i = 0; i < n; i++) b->order[i] = i;
    for (int64_t i = 0; i < b->n_batches; i++) b->batch_order[i] = i;
    if (b->policy.shuffle) shuffle(b->order, n, n, nn_key(b->seed, (uint64_t)epoch, SHUFFLE_PAIRS));
    if (b->policy.tokens) {
        counting_sort(b, tgt_rows, longest(b, tgt_rows));
        counting_sort(b, src_rows, longest(b, src_rows));
        if (b->policy.shuffle)
            shuffle(b->batch_order, b->n_batches, b->n_batches, nn_key(b->seed, (uint64_t)epoch, SHUFFLE_BATCHES));
    }
    b->epoch = epoch;
}

/* Each batch takes pairs as long as it stays within the limits. */
static void cut_batches(batcher *b) {
    int64_t n = 0, most = 1, in_batch = 0; /* every sentence has its </s> */
    b->starts[0] = 0;
    for (int64_t i = 0; i < b->corpus->n; i++) {
        int64_t pair = b->order[i], rows = larger(src_rows(b, pair), tgt_rows(b, pair));
        int full = b->policy.sentences && in_batch == b->policy.sentences;
        /* a quotient, because the product may overflow */
        if (b->policy.tokens && in_batch + 1 > b->policy.tokens / larger(most, rows)) full = 1;
        if (full && in_batch) {
            b->starts[++n] = i;
            most = 1;
            in_batch = 0;
        }
        most = larger(most, rows);
        in_batch++;
    }
    b->starts[++n] = b->corpus->n;
    b->n_batches = n;
}

/* ---- Capacity ---------------------------------------------------------------------------------------------------- */

/* The total rows of the n longest sentences. */
static int64_t rows_of_longest(batcher *b, int64_t (*rows)(const batcher *, int64_t), int64_t n) {
    int64_t most = longest(b, rows), total = 0;
    memset(b->buckets, 0, (size_t)(most + 1) * sizeof *b->buckets);
    for (int64_t i = 0; i < b->corpus->n; i++) b->buckets[rows(b, i)]++;
    for (int64_t length = most; length > 0 && n > 0; length--) {
        int64_t taken = b->buckets[length] < n ? b->buckets[length] : n;
        total += taken * length;
        n -= taken;
    }
    return total;
}

static void exact_rows(const batcher *b, int64_t *src, int64_t *tgt) {
    for (int64_t k = 0; k < b->n_batches; k++) {
        int64_t s = 0, t = 0;
        for (int64_t i = b->starts[k]; i < b->starts[k + 1]; i++) {
            s += src_rows(b, b->order[i]);
            t += tgt_rows(b, b->order[i]);
        }
        *src = larger(*src, s);
        *tgt = larger(*tgt, t);
    }
}

static int find_capacity(batcher *b) {
    int64_t n = 0, src = 0, tgt = 0;
    for (int64_t k = 0; k < b->n_batches; k++) n = larger(n, b->starts[k + 1] - b->starts[k]);
    if (b->policy.tokens || !b->policy.shuffle) {
        exact_rows(b, &src, &tgt);
    } else {
        src = rows_of_longest(b, src_rows, n);
        tgt = rows_of_longest(b, tgt_rows, n);
    }
    if (n > INT32_MAX / 2 || src > INT32_MAX || tgt > INT32_MAX)
        return adamod__refuse("batches: up to %" PRId64 " source and %" PRId64 " target tokens in one, "
                              "expected at most %" PRId32,
                              src, tgt, INT32_MAX);
    b->capacity = (batch_shape){(int32_t)n, (int32_t)src, (int32_t)tgt};
    return 0;
}

/* ---- One batch --------------------------------------------------------------------------------------------------- */

static void add_source(batch *x, const int32_t *ids, int64_t n) {
    int32_t at = x->n_src;
    if (n) memcpy(x->src_ids + at, ids, (size_t)n * sizeof *ids);
    x->src_ids[at + n] = VOCAB_END;
    for (int32_t i = 0; i <= n; i++) x->src_positions[at + i] = i;
    x->n_src += (int32_t)n + 1;
    x->src_ranges[x->n][0] = at;
    x->src_ranges[x->n][1] = x->n_src;
}

static void add_target(batch *x, const int32_t *ids, int64_t n) {
    int32_t at = x->n_tgt;
    x->tgt_in[at] = VOCAB_START;
    if (n) memcpy(x->tgt_in + at + 1, ids, (size_t)n * sizeof *ids);
    if (n) memcpy(x->tgt_out + at, ids, (size_t)n * sizeof *ids);
    x->tgt_out[at + n] = VOCAB_END;
    for (int32_t i = 0; i <= n; i++) x->tgt_positions[at + i] = i;
    x->n_tgt += (int32_t)n + 1;
    x->tgt_ranges[x->n][0] = at;
    x->tgt_ranges[x->n][1] = x->n_tgt;
}

static void fill_rest(batch *x, batch_shape most) {
    for (int32_t i = x->n_src; i < most.n_src; i++) x->src_ids[i] = VOCAB_END, x->src_positions[i] = 0;
    for (int32_t i = x->n_tgt; i < most.n_tgt; i++)
        x->tgt_in[i] = VOCAB_END, x->tgt_out[i] = -1, x->tgt_positions[i] = 0;
    for (int32_t i = x->n; i < most.n; i++)
        x->src_ranges[i][0] = x->src_ranges[i][1] = x->tgt_ranges[i][0] = x->tgt_ranges[i][1] = 0;
}

static void make_batch(batcher *b, place at, batch *x) {
    const corpus *c = b->corpus;
    if (b->epoch != at.epoch) order_epoch(b, at.epoch);
    x->epoch = at.epoch;
    x->index = at.index;
    x->last = at.index == b->steps - 1;
    x->n = x->n_src = x->n_tgt = 0;
    int64_t k = at.index * b->policy.ranks + b->policy.rank;
    if (k < b->n_batches) {
        int64_t which = b->batch_order[k];
        for (int64_t i = b->starts[which]; i < b->starts[which + 1]; i++, x->n++) {
            int64_t pair = b->order[i];
            x->pairs[x->n] = pair;
            add_source(x, c->src.ids + c->src.at[pair], corpus_length(&c->src, pair));
            add_target(x, c->tgt.ids + c->tgt.at[pair], corpus_length(&c->tgt, pair));
        }
    }
    fill_rest(x, b->capacity);
}

static int allocate_batch(batch *x, batch_shape most) {
    const size_t n = (size_t)most.n + 1, src = (size_t)most.n_src + 1, tgt = (size_t)most.n_tgt + 1;
    x->pairs = malloc(n * sizeof *x->pairs);
    x->src_ids = malloc((2 * src + 3 * tgt + 4 * n) * sizeof *x->src_ids); /* all arrays of int32_t, end to end */
    if (!x->pairs || !x->src_ids) return -1;
    x->src_positions = x->src_ids + src;
    x->tgt_in = x->src_positions + src;
    x->tgt_out = x->tgt_in + tgt;
    x->tgt_positions = x->tgt_out + tgt;
    x->src_ranges = (int32_t(*)[2])(x->tgt_positions + tgt);
    x->tgt_ranges = x->src_ranges + n;
    return 0;
}

static void free_batch(batch *x) {
    free(x->pairs);
    free(x->src_ids);
}

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static place after(const batcher *b, place at) {
    return at.index + 1 < b->steps ? (place){at.epoch, at.index + 1} : (place){at.epoch + 1, 0};
}

static void *prepare(void *argument) {
    batcher *b = argument;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        while (!b->stop && b->held + b->ready == b->policy.ring) pthread_cond_wait(&b->room, &b->lock);
        if (b->stop) break;
        place at = b->next;
        int64_t seeks = b->seeks;
        batch *slot = &b->slots[(b->first + b->held + b->ready) % b->policy.ring];
        pthread_mutex_unlock(&b->lock);
        make_batch(b, at, slot);
        pthread_mutex_lock(&b->lock);
        if (b->seeks != seeks) continue; /* batcher_seek was called meanwhile */
        b->ready++;
        b->next = after(b, at);
        pthread_cond_signal(&b->filled);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static int start_thread(batcher *b) {
    b->running = adamod__start_thread(&b->thread, prepare, b) == 0;
    return b->running ? 0 : -1;
}

const batch *batcher_next(batcher *b) {
    pthread_mutex_lock(&b->lock);
    if (b->held) {
        b->first = (b->first + 1) % b->policy.ring;
        b->held = 0;
        pthread_cond_signal(&b->room);
    }
    while (!b->ready) pthread_cond_wait(&b->filled, &b->lock);
    b->ready--;
    b->held = 1;
    const batch *x = &b->slots[b->first];
    pthread_mutex_unlock(&b->lock);
    return x;
}

int batcher_seek(batcher *b, int64_t epoch, int64_t index) {
    if (epoch < 0 || epoch == INT64_MAX || index < 0 || index > b->steps)
        return adamod__refuse("batches: no batch %" PRId64 " of epoch %" PRId64 ", expected an index from 0 to %" PRId64
                              " and an epoch from 0",
                              index, epoch, b->steps);
    pthread_mutex_lock(&b->lock);
    b->next = index < b->steps ? (place){epoch, index} : (place){epoch + 1, 0};
    b->seeks++;
    b->held = b->ready = 0;
    pthread_cond_signal(&b->room);
    pthread_mutex_unlock(&b->lock);
    return 0;
}

int64_t batcher_steps(const batcher *b) { return b->steps; }
batch_shape batcher_capacity(const batcher *b) { return b->capacity; }

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static int check_policy(const batch_policy *p) {
    if (p->sentences < 0 || p->tokens < 0 || (!p->sentences && !p->tokens))
        return adamod__refuse("batches: %" PRId64 " sentences, %" PRId64
                              " tokens, expected one of them > 0 and none < 0",
                              p->sentences, p->tokens);
    if (p->ranks < 0 || p->rank < 0 || p->rank >= p->ranks + !p->ranks)
        return adamod__refuse("batches: rank %d of %d, expected 0 <= rank < ranks", p->rank, p->ranks);
    if (p->ring && (p->ring < 2 || p->ring > MAX_RING))
        return adamod__refuse("batches: a ring of %d, expected 2 to %d", p->ring, MAX_RING);
    return 0;
}

static int check_lengths(const batcher *b) {
    int64_t tokens = b->policy.tokens;
    if (!b->corpus->n) return adamod__refuse("batches: the corpus is empty");
    for (int64_t i = 0; tokens && i < b->corpus->n; i++) {
        int64_t rows = larger(src_rows(b, i), tgt_rows(b, i));
        if (rows > tokens)
            return adamod__refuse("batches: pair %" PRId64 " has %" PRId64
                                  " tokens with its end, expected at most the %" PRId64 " of a batch",
                                  i + 1, rows, tokens);
    }
    return 0;
}

static int allocate_orders(batcher *b) {
    size_t n = (size_t)b->corpus->n, most = (size_t)larger(longest(b, src_rows), longest(b, tgt_rows));
    b->order = malloc(n * sizeof *b->order);
    b->scratch = malloc(n * sizeof *b->scratch);
    b->starts = malloc((n + 1) * sizeof *b->starts);
    b->batch_order = malloc(n * sizeof *b->batch_order);
    b->buckets = malloc((most + 1) * sizeof *b->buckets);
    return b->order && b->scratch && b->starts && b->batch_order && b->buckets ? 0 : -1;
}

static int prepare_batcher(batcher *b) {
    int status = allocate_orders(b);
    if (!status) {
        order_epoch(b, 0); /* batches are cut by lengths, which have the same order in every epoch */
        cut_batches(b);
        b->epoch = -1;
        b->steps = (b->n_batches + b->policy.ranks - 1) / b->policy.ranks;
        if (find_capacity(b)) return -1;
    }
    for (int i = 0; !status && i < b->policy.ring; i++) status = allocate_batch(&b->slots[i], b->capacity);
    if (status) return adamod__fail(ADAMOD_ERROR_MEMORY, "batches: out of memory");
    return start_thread(b) ? adamod__refuse("batches: cannot start a thread") : 0;
}

int batcher_create(batcher **out, const corpus *c, const batch_policy *policy, uint64_t seed) {
    *out = NULL;
    if (check_policy(policy)) return -1;
    batcher *b = calloc(1, sizeof *b);
    if (!b) return adamod__fail(ADAMOD_ERROR_MEMORY, "batches: out of memory");
    b->corpus = c;
    b->policy = *policy;
    b->seed = seed;
    if (!b->policy.ring) b->policy.ring = 3;
    if (!b->policy.ranks) b->policy.ranks = 1;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->room, NULL);
    pthread_cond_init(&b->filled, NULL);
    if (check_lengths(b) || prepare_batcher(b)) {
        batcher_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

void batcher_free(batcher *b) {
    if (!b) return;
    if (b->running) {
        pthread_mutex_lock(&b->lock);
        b->stop = 1;
        pthread_cond_signal(&b->room);
        pthread_mutex_unlock(&b->lock);
        pthread_join(b->thread, NULL);
    }
    for (int i = 0; i < MAX_RING; i++) free_batch(&b->slots[i]);
    pthread_cond_destroy(&b->filled);
    pthread_cond_destroy(&b->room);
    pthread_mutex_destroy(&b->lock);
    free(b->order);
    free(b->scratch);
    free(b->starts);
    free(b->batch_order);
    free(b->buckets);
    free(b);
}
