/* Common to beam search's kernels in all backends: how a sentence's row lies, and what a step of its search does.
 *
 * A row of the state is words of 32 bits; a score takes two. It has counters, the scores of live hypotheses, the
 * results kept (scores, lengths, whether they ended by themselves, where their tokens are), their tokens, and the
 * token of each row that the sentence has in the cache. */
#pragma once

#include "nn/nn.h"

#include <math.h>

#ifdef __CUDACC__
#define NN_BEAM static inline __host__ __device__
#else
#define NN_BEAM static inline
#endif

/* Inputs by number. Outputs are written to the inputs' memory, except output 0. */
enum { BEAM_BEST, BEAM_SEARCH, BEAM_IDS, BEAM_POSITIONS, BEAM_PATHS };

/* Counters. */
enum { BEAM_TIME, BEAM_LIVE, BEAM_FINISHED, BEAM_KEPT, BEAM_DONE, BEAM_FIRST_ROW, BEAM_COUNTERS = 8 };

typedef struct nn_beam_view {
    int beam, max_length;
    int32_t *count; /* of BEAM_COUNTERS things; BEAM_FIRST_ROW: the first of its rows in the cache */
    double *score;  /* of live hypotheses */
    double *kept_score;
    int32_t *kept_length, *kept_complete, *kept_place; /* the best first */
    int32_t *tokens;                                   /* [beam][max_length], by place */
    int32_t *written;                                  /* [beam][max_length], by row of the cache */
} nn_beam_view;

/* A multiple of 4. */
NN_BEAM int64_t nn_beam_width(int beam, int max_length) {
    const int64_t words = BEAM_COUNTERS + 7 * (int64_t)beam + 2 * (int64_t)beam * max_length;
    return (words + 3) / 4 * 4;
}

NN_BEAM nn_beam_view nn_beam_at(int beam, int max_length, int32_t *row) {
    nn_beam_view v;
    v.beam = beam;
    v.max_length = max_length;
    v.count = row;
    v.score = (double *)(void *)(row + BEAM_COUNTERS);
    v.kept_score = v.score + beam;
    v.kept_length = row + BEAM_COUNTERS + 4 * beam;
    v.kept_complete = v.kept_length + beam;
    v.kept_place = v.kept_complete + beam;
    v.tokens = v.kept_place + beam;
    v.written = v.tokens + (int64_t)beam * max_length;
    return v;
}

/* Tokens to be kept: those of a live hypothesis and, if it is not negative, one more. */
typedef struct nn_beam_copy {
    int parent, place;
    int32_t last;
} nn_beam_copy;

/* A step's decisions; the copying that follows can be done in parallel. */
typedef struct nn_beam_step {
    int time;
    int n; /* hypotheses that go on: whose they continue, and by which token */
    int parent[NN_MOST_BEAM];
    int32_t token[NN_MOST_BEAM];
    int copies;
    nn_beam_copy copy[NN_MOST_BEAM];
    bool done;
} nn_beam_step;

/* Inserts a result among those kept, at place `at`; if there are too many, the last is dropped. */
NN_BEAM void nn_beam_keep(const nn_beam_view *v, nn_beam_step *s, int at, int parent, int32_t last, double score,
                          bool complete) {
    if (at == v->beam) return;
    int32_t *n = &v->count[BEAM_KEPT];
    const int place = *n < v->beam ? *n : v->kept_place[*n - 1];
    if (*n < v->beam) (*n)++;
    for (int k = *n - 1; k > at; k--) {
        v->kept_score[k] = v->kept_score[k - 1];
        v->kept_length[k] = v->kept_length[k - 1];
        v->kept_complete[k] = v->kept_complete[k - 1];
        v->kept_place[k] = v->kept_place[k - 1];
    }
    v->kept_score[at] = score;
    v->kept_length[at] = s->time + (last >= 0);
    v->kept_complete[at] = complete;
    v->kept_place[at] = place;
    s->copy[s->copies].parent = parent;
    s->copy[s->copies].place = place;
    s->copy[s->copies++].last = last;
}

/* Keeps a hypothesis that has ended. Results with equal scores stay in the order in which they came. */
NN_BEAM void nn_beam_finish(const nn_beam_view *v, nn_beam_step *s, int parent, double normal) {
    int at = 0;
    while (at < v->count[BEAM_KEPT] && !(normal > v->kept_score[at])) at++;
    v->count[BEAM_FINISHED]++;
    nn_beam_keep(v, s, at, parent, -1, normal, true);
}

/* The best continuation not taken yet: each live hypothesis h has taken used[h] of its list of n. Among equals the
 * first hypothesis wins, and lists are in order already. */
NN_BEAM int nn_beam_next(const nn_beam_view *v, const float *best, int n, int32_t start, int *used, double *score) {
    int parent = -1;
    for (int h = 0; h < v->count[BEAM_LIVE]; h++) {
        const float *list = best + (int64_t)h * 2 * n;
        if (used[h] < n && (int32_t)list[n + used[h]] == start) used[h]++;
        if (used[h] == n) continue;
        const double x = v->score[h] + (double)list[used[h]];
        if (parent >= 0 && !(x > *score)) continue;
        parent = h;
        *score = x;
    }
    return parent;
}

/* Takes the 2 beam best continuations, enough even if half of them end: those that end among the first beam are
 * finished, and beam of the others go on. best: a list of n for each hypothesis, log p and then tokens. */
NN_BEAM void nn_beam_decide(const nn_beam_view *v, const nn_beam_options *o, const float *best, int n,
                            nn_beam_step *s) {
    int used[NN_MOST_BEAM];
    double scores[NN_MOST_BEAM];
    s->time = v->count[BEAM_TIME];
    s->n = s->copies = 0;
    const double power = pow((double)(s->time + 1), o->length_penalty);
    for (int h = 0; h < v->count[BEAM_LIVE]; h++) used[h] = 0;
    for (int k = 0; k < 2 * v->beam && s->n < v->beam; k++) {
        double score = 0;
        const int parent = nn_beam_next(v, best, n, o->start, used, &score);
        if (parent < 0) break;
        const int32_t token = (int32_t)best[(int64_t)parent * 2 * n + n + used[parent]++];
        if (token == o->end) {
            if (k < v->beam) nn_beam_finish(v, s, parent, score / power);
            continue;
        }
        scores[s->n] = score;
        s->token[s->n] = token;
        s->parent[s->n++] = parent;
    }
    s->done = v->count[BEAM_FINISHED] >= v->beam || s->n == 0;
    if (!s->done && s->time + 1 == v->max_length) { /* fills up with what the length ended */
        for (int b = 0; b < s->n && v->count[BEAM_KEPT] < v->beam; b++)
            nn_beam_keep(v, s, v->count[BEAM_KEPT], s->parent[b], s->token[b], scores[b] / power, false);
        s->done = true;
    }
    for (int b = 0; b < s->n; b++) v->score[b] = scores[b];
    v->count[BEAM_LIVE] = s->done ? 0 : s->n;
    v->count[BEAM_TIME]++;
    v->count[BEAM_DONE] = s->done;
}

/* Token t of a result to be kept, t < time + 1. */
NN_BEAM void nn_beam_copy_token(const nn_beam_view *v, const nn_beam_step *s, const nn_beam_copy *c,
                                const int32_t *paths, int t) {
    const int32_t first = v->count[BEAM_FIRST_ROW];
    int32_t *to = v->tokens + (int64_t)c->place * v->max_length + t;
    if (t == s->time && c->last >= 0) *to = c->last;
    if (t < s->time) *to = v->written[paths[(int64_t)c->parent * v->max_length + t + 1] - first];
}

/* Copies place t of the paths: each hypothesis takes over its parent's path. */
NN_BEAM void nn_beam_follow(const nn_beam_view *v, const nn_beam_step *s, int32_t *paths, int t) {
    int32_t was[NN_MOST_BEAM];
    for (int b = 0; b < v->beam; b++) was[b] = paths[(int64_t)b * v->max_length + t];
    for (int b = 0; b < s->n; b++) paths[(int64_t)b * v->max_length + t] = was[s->parent[b]];
}

/* Writes the next step's inputs of hypothesis b. */
NN_BEAM void nn_beam_feed(const nn_beam_view *v, const nn_beam_step *s, int b, int32_t *ids, int32_t *positions,
                          int32_t *paths) {
    const int64_t row = (int64_t)b * v->max_length;
    const bool lives = !s->done && b < s->n;
    ids[b] = lives ? s->token[b] : 0;
    positions[b] = lives ? s->time + 1 : 0;
    if (!lives) {
        paths[row] = -1;
        return;
    }
    paths[row + s->time + 1] = v->count[BEAM_FIRST_ROW] + (int32_t)row + s->time + 1;
    v->written[row + s->time + 1] = s->token[b];
}
