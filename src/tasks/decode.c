#include "tasks/decode.h"

#include "base/error.h"
#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One unfinished output. Its keys and values are in rows [slot * max_length, ...) of every layer's cache. */
typedef struct hypothesis {
    double score;
    int slot;
    int32_t *tokens;
} hypothesis;

typedef struct candidate {
    double score;
    int parent; /* index among the sentence's live hypotheses */
    int32_t token;
} candidate;

/* Beam search of one sentence. live and next change places at each step. */
typedef struct search {
    hypothesis *live, *next;
    int n_live, n_finished;
    int first_row; /* of the live ones, in this step's batch */
    bool done;
    decode_result *kept; /* up to beam of them, the best first; those that ended before those that did not */
    int n_kept;
    candidate *candidates;
    int n_candidates;
    bool *slot_used;  /* 2 * beam of them, the sentence's own */
    int moves[2][64]; /* slots whose keys and values are to be copied, and where to */
    int n_moves;
} search;

struct decoder {
    decode_options o;
    transformer_config config;
    nn_graph *encoder_graph, *step_graph;
    nn_plan *encoder, *step;
    transformer_symbols encoder_symbols, step_symbols;
    search *searches;
    int32_t *tokens; /* of all hypotheses */
    int time;
    /* the step's inputs and output, and each layer's cache */
    int32_t *ids, *positions, *index, (*step_ranges)[2], (*cache_ranges)[2], (*cross_ranges)[2];
    float *log_probs;
    int64_t *moves[3]; /* of a step: rows from, to, and how many */
};

/* ---- making one ---- */

static int slots_of(const decoder *d) { return 2 * d->o.beam; }

static bool allocate_searches(decoder *d) {
    const size_t n = (size_t)d->o.sentences, beam = (size_t)d->o.beam, length = (size_t)d->o.max_length + 1;
    d->searches = calloc(n, sizeof *d->searches);
    d->tokens = calloc(n * 3 * beam * length, sizeof *d->tokens);
    bool done = d->searches && d->tokens;
    for (int k = 0; k < 3; k++) {
        d->moves[k] = calloc(n * beam, sizeof *d->moves[k]);
        done = done && d->moves[k];
    }
    for (size_t i = 0; done && i < n; i++) {
        search *s = &d->searches[i];
        int32_t *tokens = d->tokens + i * 3 * beam * length;
        s->live = calloc(beam, sizeof *s->live);
        s->next = calloc(beam, sizeof *s->next);
        s->kept = calloc(beam, sizeof *s->kept);
        s->candidates = calloc(2 * beam, sizeof *s->candidates);
        s->slot_used = calloc(2 * beam, sizeof *s->slot_used);
        done = s->live && s->next && s->kept && s->candidates && s->slot_used;
        for (size_t b = 0; done && b < beam; b++) {
            s->live[b].tokens = tokens + b * length;
            s->next[b].tokens = tokens + (beam + b) * length;
            s->kept[b].tokens = tokens + (2 * beam + b) * length;
        }
    }
    return done;
}

static adamod_status make_plans(decoder *d, nn_params *params) {
    const decode_options *o = &d->o;
    const int64_t hypotheses = (int64_t)o->sentences * o->beam;
    const transformer_sizes encoder = {o->src_tokens, 1, o->sentences};
    const transformer_sizes step = {o->src_tokens, 2 * hypotheses * o->max_length, hypotheses};
    const nn_plan_options options = {.backend = o->backend, .loss = -1, .pool = o->pool};
    d->encoder_graph = nn_graph_create(params);
    d->step_graph = nn_graph_create(params);
    if (!d->encoder_graph || !d->step_graph) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a decoder");
    transformer_encoder(d->encoder_graph, &d->config, &encoder, &d->encoder_symbols);
    transformer_step(d->step_graph, &d->config, &step, &d->step_symbols);
    const adamod_status status = nn_plan_create(&d->encoder, d->encoder_graph, &options);
    return status ? status : nn_plan_create(&d->step, d->step_graph, &options);
}

static void find_arrays(decoder *d) {
    d->ids = nn_plan_data(d->step, "ids");
    d->positions = nn_plan_data(d->step, "positions");
    d->index = nn_plan_data(d->step, "cache_index");
    d->step_ranges = nn_plan_data(d->step, "step_ranges");
    d->cache_ranges = nn_plan_data(d->step, "cache_ranges");
    d->cross_ranges = nn_plan_data(d->step, "cross_ranges");
    d->log_probs = nn_plan_data(d->step, "log_probs");
}

adamod_status decoder_create(decoder **out, nn_params *params, const transformer_config *config,
                             const decode_options *o) {
    if (o->beam < 1 || o->beam > 64 || o->max_length < 1 || o->sentences < 1 || o->src_tokens < 1 ||
        o->beam > config->tgt_vocab) {
        return adamod__fail(
            ADAMOD_ERROR_RANGE,
            "decoder: beam %d, max_length %d, sentences %d: expected a beam of 1 to 64, others 1 or more", o->beam,
            o->max_length, o->sentences);
    }
    decoder *d = calloc(1, sizeof *d);
    if (!d) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a decoder");
    d->o = *o;
    d->config = *config;
    adamod_status status = ADAMOD_OK;
    if (!allocate_searches(d))
        status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %d searches", o->sentences);
    if (status == ADAMOD_OK) status = make_plans(d, params);
    if (status) {
        decoder_free(d);
        return status;
    }
    find_arrays(d);
    *out = d;
    return ADAMOD_OK;
}

void decoder_free(decoder *d) {
    if (!d) return;
    for (int i = 0; d->searches && i < d->o.sentences; i++) {
        free(d->searches[i].live);
        free(d->searches[i].next);
        free(d->searches[i].kept);
        free(d->searches[i].candidates);
        free(d->searches[i].slot_used);
    }
    nn_plan_free(d->encoder);
    nn_plan_free(d->step);
    nn_graph_free(d->encoder_graph);
    nn_graph_free(d->step_graph);
    free(d->searches);
    free(d->tokens);
    for (int k = 0; k < 3; k++) free(d->moves[k]);
    free(d);
}

/* ---- one step ---- */

/* Row r of the batch is hypothesis h of sentence i. */
static void fill_row(decoder *d, int r, int i, const hypothesis *h, const int32_t range[2]) {
    const int32_t begin = (int32_t)(((int64_t)i * slots_of(d) + h->slot) * d->o.max_length);
    d->ids[r] = d->time == 0 ? d->o.start : h->tokens[d->time - 1];
    d->positions[r] = d->time;
    d->index[r] = begin + d->time;
    d->step_ranges[r][0] = r;
    d->step_ranges[r][1] = r + 1;
    d->cache_ranges[r][0] = begin;
    d->cache_ranges[r][1] = begin + d->time + 1;
    d->cross_ranges[r][0] = range[0];
    d->cross_ranges[r][1] = range[1];
}

static bool better(const candidate *a, const candidate *b) {
    if (a->score != b->score) return a->score > b->score;
    return a->parent != b->parent ? a->parent < b->parent : a->token < b->token;
}

/* The best 2 * beam continuations: as many as can be needed if half of them end. */
static void collect_candidates(const decoder *d, search *s) {
    const int most = 2 * d->o.beam;
    s->n_candidates = 0;
    for (int h = 0; h < s->n_live; h++) {
        const float *row = d->log_probs + (size_t)(s->first_row + h) * (size_t)d->config.tgt_vocab;
        for (int32_t token = 0; token < d->config.tgt_vocab; token++) {
            const candidate c = {s->live[h].score + (double)row[token], h, token};
            if (token == d->o.start) continue;
            if (s->n_candidates == most && !better(&c, &s->candidates[most - 1])) continue;
            int at = s->n_candidates < most ? s->n_candidates++ : most - 1;
            for (; at > 0 && better(&c, &s->candidates[at - 1]); at--) s->candidates[at] = s->candidates[at - 1];
            s->candidates[at] = c;
        }
    }
}

/* Puts a result at its place among those kept, of which the last may fall out. */
static void keep(const decoder *d, search *s, int at, const hypothesis *h, double score, int length, bool complete) {
    if (at == d->o.beam) return;
    if (s->n_kept < d->o.beam) s->n_kept++;
    int32_t *tokens = s->kept[s->n_kept - 1].tokens;
    for (int k = s->n_kept - 1; k > at; k--) s->kept[k] = s->kept[k - 1];
    memcpy(tokens, h->tokens, (size_t)length * sizeof *tokens);
    s->kept[at] = (decode_result){tokens, length, score, complete};
}

/* Among equals the first comes first. */
static void finish(const decoder *d, search *s, const hypothesis *h, double score) {
    const double normal = score / pow(d->time + 1, d->o.length_penalty);
    int at = 0;
    while (at < s->n_kept && !(normal > s->kept[at].score)) at++;
    s->n_finished++;
    keep(d, s, at, h, normal, d->time, true);
}

/* Fills up with what max_length ended. */
static void keep_unfinished(const decoder *d, search *s) {
    const int length = d->time + 1;
    for (int h = 0; h < s->n_live && s->n_kept < d->o.beam; h++) {
        const double normal = s->live[h].score / pow(length, d->o.length_penalty);
        keep(d, s, s->n_kept, &s->live[h], normal, length, false);
    }
}

/* A parent's first child takes over its keys and values; others get a copy in a free slot. */
static void assign_slots(const decoder *d, search *s, const int *parents, int n) {
    s->n_moves = 0;
    for (int k = 0; k < slots_of(d); k++) s->slot_used[k] = false;
    for (int k = 0; k < n; k++) s->slot_used[s->live[parents[k]].slot] = true;
    for (int k = 0; k < n; k++) {
        const int slot = s->live[parents[k]].slot;
        bool taken = false;
        for (int j = 0; j < k; j++) taken = taken || parents[j] == parents[k];
        s->next[k].slot = slot;
        for (int free_slot = 0; taken && free_slot < slots_of(d); free_slot++) {
            if (s->slot_used[free_slot]) continue;
            s->slot_used[free_slot] = true;
            s->next[k].slot = free_slot;
            s->moves[0][s->n_moves] = slot;
            s->moves[1][s->n_moves++] = free_slot;
            break;
        }
    }
}

/* Ends hypotheses whose best continuation is the end, and continues the others. */
static void advance(const decoder *d, search *s) {
    int parents[64], n = 0;
    for (int k = 0; k < s->n_candidates && n < d->o.beam; k++) {
        const candidate *c = &s->candidates[k];
        const hypothesis *parent = &s->live[c->parent];
        if (c->token == d->o.end) {
            if (k < d->o.beam) finish(d, s, parent, c->score);
            continue;
        }
        memcpy(s->next[n].tokens, parent->tokens, (size_t)d->time * sizeof *parent->tokens);
        s->next[n].tokens[d->time] = c->token;
        s->next[n].score = c->score;
        parents[n++] = c->parent;
    }
    assign_slots(d, s, parents, n);
    hypothesis *old = s->live;
    s->live = s->next;
    s->next = old;
    s->n_live = n;
    if (s->n_finished >= d->o.beam || n == 0) s->done = true;
    if (!s->done && d->time + 1 == d->o.max_length) {
        keep_unfinished(d, s);
        s->done = true;
    }
}

typedef struct advance_context {
    decoder *d;
} advance_context;

static void advance_task(void *context, int64_t i, int thread) {
    (void)thread;
    decoder *d = ((advance_context *)context)->d;
    search *s = &d->searches[i];
    s->n_moves = 0;
    if (s->done) return;
    collect_candidates(d, s);
    advance(d, s);
}

/* Copies keys and values, in all layers, as the searches asked for. */
static void move_slots(decoder *d, int n) {
    int64_t moves = 0;
    for (int i = 0; i < n; i++) {
        search *s = &d->searches[i];
        for (int k = 0; !s->done && k < s->n_moves; k++, moves++) {
            for (int side = 0; side < 2; side++)
                d->moves[side][moves] = ((int64_t)i * slots_of(d) + s->moves[side][k]) * d->o.max_length;
            d->moves[2][moves] = d->time + 1;
        }
    }
    for (int l = 0; l < d->config.decoder_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "cache.%d", l);
        nn_plan_move(d->step, name, moves, d->moves[0], d->moves[1], d->moves[2]);
    }
}

/* ---- a whole run ---- */

static adamod_status encode(decoder *d, int n, const int32_t *src, const int32_t (*ranges)[2]) {
    int64_t rows = 0;
    for (int i = 0; i < n && n <= d->o.sentences; i++) rows = ranges[i][1] > rows ? ranges[i][1] : rows;
    if (n > d->o.sentences || rows > d->o.src_tokens) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "decoder: %d sentences of %lld tokens, expected at most %d and %lld", n,
                            (long long)rows, d->o.sentences, (long long)d->o.src_tokens);
    }
    nn_plan_set_rows(d->encoder, d->encoder_symbols.src, rows);
    nn_plan_set_rows(d->encoder, d->encoder_symbols.sentences, n);
    nn_plan_set_rows(d->step, d->step_symbols.src, rows);
    int32_t *positions = nn_plan_data(d->encoder, "src_positions");
    memcpy(nn_plan_data(d->encoder, "src_ids"), src, (size_t)rows * sizeof *src);
    memcpy(nn_plan_data(d->encoder, "src_ranges"), ranges, (size_t)n * sizeof *ranges);
    for (int i = 0; i < n; i++) {
        for (int32_t r = ranges[i][0]; r < ranges[i][1]; r++) positions[r] = r - ranges[i][0];
    }
    nn_plan_forward(d->encoder);
    for (int l = 0; l < d->config.decoder_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "cross.%d", l);
        nn_plan_copy(d->step, name, d->encoder, name, rows);
    }
    return ADAMOD_OK;
}

static int fill_rows(decoder *d, int n, const int32_t (*ranges)[2]) {
    int rows = 0;
    for (int i = 0; i < n; i++) {
        search *s = &d->searches[i];
        if (s->done) continue;
        s->first_row = rows;
        for (int h = 0; h < s->n_live; h++) fill_row(d, rows++, i, &s->live[h], ranges[i]);
    }
    return rows;
}

adamod_status decoder_run(decoder *d, int n, const int32_t *src, const int32_t (*ranges)[2], decode_result *results) {
    const adamod_status status = encode(d, n, src, ranges);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        search *s = &d->searches[i];
        s->n_live = 1;
        s->n_finished = 0;
        s->done = false;
        s->live[0].score = 0;
        s->live[0].slot = 0;
        s->n_kept = 0;
    }
    advance_context context = {d};
    for (d->time = 0; d->time < d->o.max_length; d->time++) {
        const int rows = fill_rows(d, n, ranges);
        if (rows == 0) break;
        nn_plan_set_rows(d->step, d->step_symbols.sentences, rows);
        nn_plan_forward(d->step);
        const adamod_status failed = nn_plan_wait(d->step);
        if (failed) return failed;
        adamod__pool_run(d->o.pool, n, advance_task, &context);
        move_slots(d, n);
    }
    for (int i = 0; i < n; i++) {
        if (!decoder_result(d, i, 0, &results[i]))
            results[i] = (decode_result){.tokens = d->searches[i].kept[0].tokens};
    }
    return ADAMOD_OK;
}

bool decoder_result(const decoder *d, int sentence, int k, decode_result *out) {
    const search *s = &d->searches[sentence];
    if (k >= s->n_kept) return false;
    *out = s->kept[k];
    return true;
}
