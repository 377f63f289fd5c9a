#include "tasks/sampling.h"

#include "support/random.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { DRAW_TOKENS = 0x746f6b65 };

typedef struct ranked {
    float score;
    int32_t token;
    double weight;
} ranked;

struct sampler {
    sampling_options o;
    int tokens;
    double *weight; /* of each token, 1 for the likeliest, 0 for no candidate */
    ranked *order;  /* a heap, then behind it the likeliest, the first at the end */
};

sampler *sampler_create(const sampling_options *o, int tokens) {
    sampler *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->o = *o;
    s->tokens = tokens;
    s->weight = malloc((size_t)tokens * sizeof *s->weight);
    s->order = malloc((size_t)tokens * sizeof *s->order);
    if (s->weight && s->order) return s;
    sampler_free(s);
    return NULL;
}

void sampler_free(sampler *s) {
    if (!s) return;
    free(s->weight);
    free(s->order);
    free(s);
}

static bool is_likelier(const ranked *a, const ranked *b) {
    return a->score != b->score ? a->score > b->score : a->token < b->token;
}

/* Moves item `at` of a heap of n down to its place: the likeliest is first. */
static void sift(ranked *heap, int n, int at) {
    const ranked moved = heap[at];
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_likelier(&heap[child + 1], &heap[child])) child++;
        if (!is_likelier(&heap[child], &moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(sampler *s, const float *scores) {
    for (int i = 0; i < s->tokens; i++) s->order[i] = (ranked){scores[i], i, s->weight[i]};
    for (int i = s->tokens / 2; i-- > 0;) sift(s->order, s->tokens, i);
}

/* Candidate number i, when all before it were taken. */
static const ranked *take(sampler *s, int i) {
    const int last = s->tokens - 1 - i;
    const ranked first = s->order[0];
    s->order[0] = s->order[last];
    s->order[last] = first;
    sift(s->order, last, 0);
    return &s->order[last];
}

/* Sets the weights of all but the candidates to 0. Few of many tokens are candidates: the others are not sorted. */
static void cut(sampler *s, const float *scores) {
    const bool some = s->o.top_k > 0 && s->o.top_k < s->tokens;
    double sum = 0, before = 0;
    int n = 0, kept = 0;
    if (!some && s->o.top_p >= 1) return;
    make_heap(s, scores);
    for (int i = 0; !some && i < s->tokens; i++) sum += s->weight[i];
    while (some && n < s->o.top_k) sum += take(s, n++)->weight;
    memset(s->weight, 0, (size_t)s->tokens * sizeof *s->weight);
    for (; kept < (some ? n : s->tokens) && (kept == 0 || before < s->o.top_p * sum); kept++) {
        const ranked *next = some ? &s->order[s->tokens - 1 - kept] : take(s, kept);
        s->weight[next->token] = next->weight;
        before += next->weight;
    }
}

/* A random number in [0, 1) with 53 bits. */
static double uniform(uint64_t seed, uint64_t draw) {
    const nn_random4 r = nn_philox(nn_key(seed, 0, DRAW_TOKENS), draw);
    return (double)(((uint64_t)r.x[0] << 32 | r.x[1]) >> 11) * 0x1p-53;
}

int32_t sampler_draw(sampler *s, const float *scores, uint64_t seed, uint64_t draw) {
    int32_t best = 0;
    for (int32_t i = 0; i < s->tokens; i++) {
        if (isnan(scores[i])) return -1;
        if (scores[i] > scores[best]) best = i;
    }
    if (!isfinite(scores[best])) return -1;
    if (s->o.temperature == 0) return best;
    for (int32_t i = 0; i < s->tokens; i++)
        s->weight[i] = exp(((double)scores[i] - (double)scores[best]) / s->o.temperature);
    cut(s, scores);
    double sum = 0, before = 0;
    for (int32_t i = 0; i < s->tokens; i++) sum += s->weight[i];
    const double place = uniform(seed, draw) * sum;
    for (int32_t i = 0; i < s->tokens; i++) {
        before += s->weight[i];
        if (s->weight[i] > 0 && before > place) return i;
    }
    return best; /* rounding put the place at the very end */
}
