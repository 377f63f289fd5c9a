#include "tasks/sampling.h"

#include "support/random.h"

#include <stdlib.h>

enum { DRAW_TOKENS = 0x746f6b65 };

typedef struct ranked {
    float score;
    int32_t token;
} ranked;

struct sampler {
    sampling_options o;
    int tokens;
    double *weight; /* of each token, 1 for the likeliest, 0 for no candidate */
    ranked *order;
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

static int by_score(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* Sets the weights of all but the candidates to 0. */
static void cut(sampler *s, const float *scores) {
    const int64_t k = s->o.top_k > 0 && s->o.top_k < s->tokens ? s->o.top_k : s->tokens;
    if (k == s->tokens && s->o.top_p >= 1) return;
    for (int32_t i = 0; i < s->tokens; i++) s->order[i] = (ranked){scores[i], i};
    qsort(s->order, (size_t)s->tokens, sizeof *s->order, by_score);
    double sum = 0, before = 0;
    for (int64_t i = 0; i < k; i++) sum += s->weight[s->order[i].token];
    for (int64_t i = 0; i < s->tokens; i++) {
        double *weight = &s->weight[s->order[i].token];
        const double own = *weight;
        if (i >= k || (i > 0 && before >= s->o.top_p * sum)) *weight = 0;
        before += own;
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
