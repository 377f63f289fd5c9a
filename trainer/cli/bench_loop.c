/* The yardstick of `adamod optim bench`: a loop that moves the bytes a step must move and does next to nothing with
 * them. For AdaMod in f32 it reads g, p, m, v and s and writes p, m, v and s, each xor g: five streams in, four out,
 * one instruction each. No optimizer with these states can be faster.
 *
 * bf16 is the same loop over half as many words; with masters, g and p are 16 bits wide, and the master is one more
 * among those read and written.
 *
 * The threads divide every array into equal parts, the same each time, and meet after every step. */
#include "cli/optim_bench.h"
#include "cli/bench.h"
#include "support/clock.h"
#include "core/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST = 7 };  /* arrays that are read and written: SOAP has six states */
enum { LINE = 16 }; /* words in a cache line; arrays are whole lines, and no two threads write to one */

typedef struct loop_set {
    uint32_t *both[MOST]; /* read and written */
    void *g;              /* read */
    uint16_t *half;       /* read and written; NULL: none */
} loop_set;

typedef struct loop_worker {
    bench_loop *loop;
    pthread_t thread;
    int index;
} loop_worker;

struct bench_loop {
    loop_set *sets;
    int n_sets, n_both;
    size_t words; /* in each array of both */
    int threads;
    loop_worker *workers;
    pthread_mutex_t lock; /* with wake, for workers between bursts */
    pthread_cond_t wake;
    unsigned burst; /* number of bursts asked for */
    bool near;      /* of the burst */
    bool stop;
    atomic_int arrived;  /* at the meeting after a step */
    atomic_uint meeting; /* number of meetings held */
};

/* ---- memory ---- */

void *bench_alloc(size_t bytes) {
    const size_t huge = (size_t)1 << 21;
    void *p = NULL;
    if (posix_memalign(&p, bytes >= 2 * huge ? huge : 64, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= 2 * huge) (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

/* Signs and fractions are random, exponents are those of 1/16 to 1: 123 to 126 in both types. */
void bench_fill(void *array, size_t bytes, bench_type type, uint64_t seed) {
    const uint64_t keep = type == BENCH_F32 ? 0x81ffffff81ffffff : 0x81ff81ff81ff81ff;
    const uint64_t add = type == BENCH_F32 ? 0x3d8000003d800000 : 0x3d803d803d803d80;
    uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
    for (size_t at = 0; at < bytes; at += sizeof x) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const uint64_t bits = (x & keep) + add;
        memcpy((char *)array + at, &bits, bytes - at < sizeof bits ? bytes - at : sizeof bits);
    }
}

/* ---- the loop ---- */

/* n is a constant where this is inlined, so each case becomes a loop of its own without a branch in it. */
#define INLINE static inline __attribute__((always_inline))

/* A cache line, in as few registers as the instruction set allows; and half of one. */
typedef uint32_t line __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t half_line __attribute__((vector_size(32), aligned(2), may_alias));

/* Prefetches: near, 2 KiB ahead into the first-level cache, else 1 KiB ahead into the second. For three arrays and more the
 * first is a tenth faster on Sapphire Rapids, the second a sixth faster on Zen 4. */
INLINE void ask_for(const void *array, bool near) {
    if (near) __builtin_prefetch((const void *)((uintptr_t)array + 2048), 0, 3);
    else __builtin_prefetch((const void *)((uintptr_t)array + 1024), 0, 2);
}

INLINE void move_part(const loop_set *s, int n, bool near, size_t first, size_t words) {
    for (size_t i = first; i < first + words; i += LINE) {
        ask_for((const uint32_t *)s->g + i, near);
        for (int k = 0; k < n; k++) ask_for(s->both[k] + i, near);
        const line x = *(const line *)((const uint32_t *)s->g + i);
        for (int k = 0; k < n; k++) *(line *)(s->both[k] + i) ^= x;
    }
}

INLINE void move_halves(const loop_set *s, int n, bool near, size_t first, size_t words) {
    for (size_t i = first; i < first + words; i += LINE) {
        ask_for((const uint16_t *)s->g + i, near);
        ask_for(s->half + i, near);
        for (int k = 0; k < n; k++) ask_for(s->both[k] + i, near);
        const half_line half = *(const half_line *)((const uint16_t *)s->g + i);
        const line x = __builtin_convertvector(half, line);
        for (int k = 0; k < n; k++) *(line *)(s->both[k] + i) ^= x;
        *(half_line *)(s->half + i) ^= half;
    }
}

INLINE void move_all(const loop_set *s, int n, bool near, size_t first, size_t words) {
    const loop_set copy = *s; /* no store can change it */
    if (s->half && near) move_halves(&copy, n, true, first, words);
    else if (s->half) move_halves(&copy, n, false, first, words);
    else if (near) move_part(&copy, n, true, first, words);
    else move_part(&copy, n, false, first, words);
}

/* Built for each instruction set. */
#define MOVE(name, attribute)                                                                                          \
    attribute static void move_##name(const loop_set *s, int n, bool near, size_t first, size_t words) {               \
        switch (n) {                                                                                                   \
            case 1: move_all(s, 1, near, first, words); break;                                                         \
            case 2: move_all(s, 2, near, first, words); break;                                                         \
            case 3: move_all(s, 3, near, first, words); break;                                                         \
            case 4: move_all(s, 4, near, first, words); break;                                                         \
            case 5: move_all(s, 5, near, first, words); break;                                                         \
            case 6: move_all(s, 6, near, first, words); break;                                                         \
            default: move_all(s, 7, near, first, words); break;                                                        \
        }                                                                                                              \
    }

MOVE(plain, )
#if defined(__x86_64__) && defined(__GNUC__)
MOVE(avx2, __attribute__((target("avx2"))))
MOVE(avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

typedef void (*move_fn)(const loop_set *s, int n, bool near, size_t first, size_t words);

static move_fn best_move(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return move_avx512;
    if (__builtin_cpu_supports("avx2")) return move_avx2;
#endif
    return move_plain;
}

/* ---- threads ---- */

/* Spins: the others are on their way, and a sleep would cost more than a small step takes. */
static void meet(bench_loop *loop) {
    const unsigned now = atomic_load_explicit(&loop->meeting, memory_order_relaxed);
    if (atomic_fetch_add(&loop->arrived, 1) == loop->threads - 1) {
        atomic_store(&loop->arrived, 0);
        atomic_store(&loop->meeting, now + 1);
        return;
    }
    for (int i = 0; atomic_load_explicit(&loop->meeting, memory_order_acquire) == now; i++) {
        if (i > 4000) sched_yield();
    }
}

static void run_burst(bench_loop *loop, int index) {
    const move_fn move = best_move();
    const size_t lines = loop->words / LINE, threads = (size_t)loop->threads, i = (size_t)index;
    const size_t first = lines * i / threads * LINE, last = lines * (i + 1) / threads * LINE;
    for (int s = 0; s < loop->n_sets; s++) {
        move(&loop->sets[s], loop->n_both, loop->near, first, last - first);
        meet(loop);
    }
}

static void *work(void *argument) {
    const loop_worker *self = argument;
    bench_loop *loop = self->loop;
    for (unsigned done = 0;; done++) {
        pthread_mutex_lock(&loop->lock);
        while (loop->burst == done && !loop->stop) pthread_cond_wait(&loop->wake, &loop->lock);
        const bool stop = loop->stop;
        pthread_mutex_unlock(&loop->lock);
        if (stop) return NULL;
        run_burst(loop, self->index);
    }
}

double bench_loop_burst(bench_loop *loop, bool near) {
    const double start = clock_seconds();
    pthread_mutex_lock(&loop->lock);
    loop->near = near;
    loop->burst++;
    pthread_cond_broadcast(&loop->wake);
    pthread_mutex_unlock(&loop->lock);
    run_burst(loop, 0);
    return clock_seconds() - start;
}

/* ---- create and free ---- */

int bench_bytes(bench_type type, int states) {
    if (type == BENCH_MASTER) return 2 + 4 + 8 * (1 + states);
    if (type == BENCH_Q8) return 12 + 2 * states; /* the scales are a fiftieth of that */
    return (type == BENCH_F32 ? 4 : 2) * (1 + 2 * (1 + states));
}

static bool fill_set(bench_loop *loop, const bench_case *c, loop_set *set, uint64_t seed) {
    const bool halves = c->type == BENCH_MASTER;
    const size_t bytes = loop->words * sizeof(uint32_t), g_bytes = halves ? bytes / 2 : bytes;
    if (!(set->g = bench_alloc(g_bytes))) return false;
    bench_fill(set->g, g_bytes, c->type, seed);
    for (int i = 0; i < loop->n_both; i++) {
        if (!(set->both[i] = bench_alloc(bytes))) return false;
        bench_fill(set->both[i], bytes, BENCH_F32, seed + 1 + (uint64_t)i);
    }
    if (!halves) return true;
    if (!(set->half = bench_alloc(g_bytes))) return false;
    memset(set->half, 1, g_bytes);
    return true;
}

static bool start_workers(bench_loop *loop, int threads) {
    loop->workers = calloc((size_t)threads, sizeof *loop->workers);
    if (!loop->workers) return false;
    for (loop->threads = 1; loop->threads < threads; loop->threads++) {
        loop_worker *w = &loop->workers[loop->threads];
        *w = (loop_worker){.loop = loop, .index = loop->threads};
        if (adamod__start_thread(&w->thread, work, w)) return false;
    }
    return true;
}

bench_loop *bench_loop_create(const bench_case *c, int states, int threads) {
    bench_loop *loop = calloc(1, sizeof *loop);
    if (!loop) return NULL;
    pthread_mutex_init(&loop->lock, NULL);
    pthread_cond_init(&loop->wake, NULL);
    loop->threads = 1;
    loop->n_both = 1 + states;
    loop->words = (size_t)(c->type == BENCH_BF16 ? c->elements / 2 : c->elements);
    loop->words = (loop->words + LINE - 1) / LINE * LINE;
    loop->sets = calloc((size_t)c->sets, sizeof *loop->sets);
    loop->n_sets = loop->sets ? c->sets : 0;
    bool ok = loop->sets != NULL;
    for (int s = 0; ok && s < c->sets; s++) ok = fill_set(loop, c, &loop->sets[s], 100 + 10 * (uint64_t)s);
    if (ok && start_workers(loop, threads)) return loop;
    bench_loop_free(loop);
    return NULL;
}

void bench_loop_free(bench_loop *loop) {
    if (!loop) return;
    pthread_mutex_lock(&loop->lock);
    loop->stop = true;
    pthread_cond_broadcast(&loop->wake);
    pthread_mutex_unlock(&loop->lock);
    for (int i = 1; i < loop->threads; i++) pthread_join(loop->workers[i].thread, NULL);
    for (int s = 0; s < loop->n_sets; s++) {
        for (int i = 0; i < MOST; i++) free(loop->sets[s].both[i]);
        free(loop->sets[s].g);
        free(loop->sets[s].half);
    }
    pthread_mutex_destroy(&loop->lock);
    pthread_cond_destroy(&loop->wake);
    free(loop->sets);
    free(loop->workers);
    free(loop);
}
