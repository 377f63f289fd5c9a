#include "train/scoreboard.h"

#include "support/clock.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Each number is atomic by itself; they need not be of the same moment. */
typedef struct place {
    _Atomic int state;
    _Atomic double begun, ended, told, left, loss, valid, expected;
    _Atomic int64_t step, steps;
} place;

struct scoreboard {
    int n, at_once;
    pthread_mutex_t terminal;
    place run[];
};

static size_t bytes_of(int n) { return sizeof(scoreboard) + (size_t)n * sizeof(place); }

scoreboard *scoreboard_create(int n, int at_once) {
    scoreboard *b = mmap(NULL, bytes_of(n), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) return NULL;
    b->n = n;
    b->at_once = at_once > 1 ? at_once : 1;
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST); /* the owner may be killed */
    pthread_mutex_init(&b->terminal, &shared);
    pthread_mutexattr_destroy(&shared);
    return b;
}

void scoreboard_lock(scoreboard *b) {
    if (pthread_mutex_lock(&b->terminal) == EOWNERDEAD) pthread_mutex_consistent(&b->terminal);
}

void scoreboard_unlock(scoreboard *b) { pthread_mutex_unlock(&b->terminal); }

void scoreboard_free(scoreboard *b) {
    if (b) munmap(b, bytes_of(b->n));
}

int scoreboard_size(const scoreboard *b) { return b->n; }

void scoreboard_begin(scoreboard *b, int run) {
    place *p = &b->run[run];
    p->begun = clock_seconds();
    p->left = -1;
    p->loss = p->valid = NAN;
    p->step = p->steps = 0;
    p->state = SCOREBOARD_RUNS;
}

void scoreboard_tell(scoreboard *b, int run, const scoreboard_run *now) {
    place *p = &b->run[run];
    p->step = now->step;
    p->steps = now->steps;
    p->loss = now->loss;
    p->valid = now->valid;
    p->left = now->left;
    p->told = clock_seconds();
}

void scoreboard_stop(scoreboard *b, int run) { b->run[run].state = SCOREBOARD_WAITS; }

void scoreboard_end(scoreboard *b, int run) {
    place *p = &b->run[run];
    if (p->state == SCOREBOARD_RUNS) p->ended = clock_seconds();
    p->state = SCOREBOARD_OVER;
}

void scoreboard_expect(scoreboard *b, int run, double seconds) { b->run[run].expected = seconds; }

scoreboard_run scoreboard_look(const scoreboard *b, int run) {
    const place *p = &b->run[run];
    scoreboard_run now = {.state = (scoreboard_state)p->state,
                          .begun = p->begun,
                          .left = p->left,
                          .step = p->step,
                          .steps = p->steps,
                          .loss = p->loss,
                          .valid = p->valid};
    if (now.left >= 0) now.left = fmax(now.left - (clock_seconds() - p->told), 0);
    return now;
}

double scoreboard_usual(const scoreboard *b) {
    double sum[2] = {0};
    int n[2] = {0};
    for (int i = 0; i < b->n; i++) {
        const scoreboard_run r = scoreboard_look(b, i);
        const bool over = r.state == SCOREBOARD_OVER;
        if (over ? !(b->run[i].ended > 0) : r.state != SCOREBOARD_RUNS || r.left < 0) continue;
        sum[over] += over ? b->run[i].ended - r.begun : clock_seconds() - r.begun + r.left;
        n[over]++;
    }
    return n[1] ? sum[1] / n[1] : n[0] ? sum[0] / n[0] : -1;
}

/* The place that is free first. */
static int first_free(const double *until, int n) {
    int first = 0;
    for (int i = 1; i < n; i++) first = until[i] < until[first] ? i : first;
    return first;
}

/* Seconds until a run is over, by the usual length; negative: not known yet. */
static double left_of(const scoreboard *b, int run, double usual) {
    const scoreboard_run r = scoreboard_look(b, run);
    const double whole = b->run[run].expected > 0 ? b->run[run].expected : usual;
    if (r.state == SCOREBOARD_RUNS && r.left >= 0) return r.left;
    return whole < 0 || r.state == SCOREBOARD_WAITS ? whole : fmax(whole - (clock_seconds() - r.begun), 0);
}

double scoreboard_left(const scoreboard *b) {
    const double usual = scoreboard_usual(b);
    double *until = calloc((size_t)b->at_once, sizeof *until), last = 0;
    if (!until) return -1;
    for (int state = SCOREBOARD_RUNS; last >= 0 && state >= SCOREBOARD_WAITS; state--) { /* running ones first */
        for (int i = 0; last >= 0 && i < b->n; i++) {
            if (b->run[i].state != state) continue;
            const double left = left_of(b, i, usual);
            if (left < 0) last = -1;
            else until[first_free(until, b->at_once)] += left;
        }
    }
    for (int i = 0; last >= 0 && i < b->at_once; i++) last = fmax(last, until[i]);
    free(until);
    return last;
}
