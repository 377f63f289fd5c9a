#include "core/error.h"
#include "models/gpt.h"
#include "tasks/language_reader.h"

#include <stdlib.h>

enum { AT_ONCE = 256 }; /* tokens of a prompt */

/* One way to read tokens. */
typedef struct step {
    nn_graph *graph;
    nn_plan *plan;
    int rows; /* symbol */
} step;

typedef struct gpt_predictor {
    language_predictor base;
    gpt_config config;
    step last;     /* a token, and what may come after it; it owns the caches */
    step earlier;  /* tokens before the last of a prompt; not on a device, which reads one at a time */
    int32_t *seen; /* tokens in the caches: at most model.context */
    int64_t n;
} gpt_predictor;

static int make_step(const experiment *e, gpt_predictor *p, step *s, int64_t tokens) {
    const bool predicts = s == &p->last;
    const nn_plan_options o = {
        .backend = e->recipe.train.backend, .loss = -1, .pool = e->pool, .states = predicts ? NULL : p->last.plan};
    if (!(s->graph = nn_graph_create(e->params)))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    gpt_step(s->graph, &p->config, tokens, predicts, &s->rows);
    return nn_plan_create(&s->plan, s->graph, &o) ? -1 : 0;
}

static adamod_status forward(void *plan) {
    nn_plan_forward(plan);
    return ADAMOD_OK;
}

/* Reads tokens that fit into the caches. */
static int run(gpt_predictor *p, const step *s, const int32_t *tokens, int64_t n) {
    int32_t *ids = nn_plan_data(s->plan, "ids"), *positions = nn_plan_data(s->plan, "positions"),
            *paths = nn_plan_data(s->plan, "paths");
    for (int64_t i = 0; i < n; i++) {
        ids[i] = p->seen[p->n + i] = tokens[i];
        positions[i] = (int32_t)(p->n + i);
        for (int32_t k = 0; k < p->config.context; k++) paths[i * p->config.context + k] = k;
    }
    p->n += n;
    nn_plan_set_rows(s->plan, s->rows, n);
    if (nn_plan_replay(s->plan, 0, forward, s->plan) || nn_plan_wait(s->plan)) return -1;
    return 0;
}

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

static int read_some(gpt_predictor *p, const int32_t *tokens, int64_t n) {
    while (n > 0) {
        const bool many = p->earlier.plan && n > 1;
        const int64_t now = many ? least_of(n - 1, least_of(AT_ONCE, p->config.context - p->n)) : 1;
        if (run(p, many ? &p->earlier : &p->last, tokens, now)) return -1;
        tokens += now;
        n -= now;
    }
    return 0;
}

/* Makes room in full caches. */
static int forget_half(gpt_predictor *p) {
    const int64_t kept = p->n / 2;
    memmove(p->seen, p->seen + p->n - kept, (size_t)kept * sizeof *p->seen);
    p->n = 0;
    return read_some(p, p->seen, kept);
}

static int read_tokens(language_predictor *base, const int32_t *tokens, int64_t n) {
    gpt_predictor *p = (gpt_predictor *)(void *)base;
    const int64_t context = p->config.context;
    if (n > context)
        return adamod__refuse("the text to go on from has %lld tokens, expected at most model.context, %lld",
                              (long long)n, (long long)context);
    while (n > 0) {
        if (p->n == context && forget_half(p)) return -1;
        const int64_t now = least_of(n, context - p->n);
        if (read_some(p, tokens, now)) return -1;
        tokens += now;
        n -= now;
    }
    return 0;
}

static void begin(language_predictor *base) { ((gpt_predictor *)(void *)base)->n = 0; }

static void free_gpt(language_predictor *base) {
    gpt_predictor *p = (gpt_predictor *)(void *)base;
    nn_plan_free(p->earlier.plan);
    nn_plan_free(p->last.plan);
    nn_graph_free(p->earlier.graph);
    nn_graph_free(p->last.graph);
    free(p->seen);
    free(p);
}

int language_predict_gpt(language_predictor **out, const experiment *e) {
    gpt_predictor *p = calloc(1, sizeof *p);
    if (!p) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    p->base = (language_predictor){.begin = begin, .read = read_tokens, .free = free_gpt};
    p->config = language_gpt(e);
    p->base.most = p->config.context;
    p->seen = malloc((size_t)p->config.context * sizeof *p->seen);
    int failed = p->seen ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the text");
    if (!failed) failed = make_step(e, p, &p->last, 1);
    if (!failed && !e->params->on_device) failed = make_step(e, p, &p->earlier, least_of(AT_ONCE, p->config.context));
    if (failed) {
        free_gpt(&p->base);
        return -1;
    }
    p->base.scores = nn_plan_data(p->last.plan, "scores");
    *out = &p->base;
    return 0;
}
