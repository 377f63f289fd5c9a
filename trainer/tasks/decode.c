#include "tasks/decode.h"

#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_STAGES = 8,
    FEWEST = 8, /* sentences of the smallest stage; fewer would not be faster on a device */
    AT_ONCE = 64,
    AT_ONCE_DEVICE = 256,
    CACHE_GIB = 4 /* most that the cache of keys and values may take on a device */
};

/* Plans for at most `sentences` sentences. A device computes all rows of a plan, so it has stages of several sizes; the host
 * computes only the rows in use and needs one stage. */
typedef struct stage {
    int sentences;
    int64_t src_tokens;
    nn_graph *encoder_graph, *step_graph;
    nn_plan *encoder, *step; /* NULL until they are needed */
    transformer_symbols encoder_symbols;
    transformer_step_symbols step_symbols;
} stage;

/* A place is the position of a sentence in the states; the first `places` are in use. */
struct decoder {
    decode_options o;
    nn_beam_options beam;
    transformer_config config;
    nn_params *params;
    bool on_device;
    stage stages[MOST_STAGES]; /* each half the size of the one before; the first owns the states */
    int n_stages, now;
    int places;
    int *sentence;  /* at each place */
    bool *live;     /* its search goes on */
    int32_t *found; /* the row of `search` of each sentence of the last run */
    /* copies of the states' rows */
    nn_beam_rows rows;
    int32_t (*hypotheses)[2], (*ranges)[2];
    void *memory[12]; /* of all arrays here */
    int n_memory;
    int64_t *moves[3]; /* places from and to; numbers of rows */
};

/* ---- creation ---- */

static bool is_on_device(const nn_params *params) { return params->on_device != NULL; }

int decode_sentences(const nn_params *params, const transformer_config *c, int beam, int max_length) {
    if (!is_on_device(params)) return AT_ONCE;
    const double each = 8.0 * c->d * c->decoder_layers * beam * max_length;
    const double most = CACHE_GIB * 1073741824.0 / each;
    const int n = most < AT_ONCE ? AT_ONCE : most < AT_ONCE_DEVICE ? (int)most : AT_ONCE_DEVICE;
    return n / FEWEST * FEWEST;
}

static void *allocate(decoder *d, size_t n, size_t size) { return d->memory[d->n_memory++] = calloc(n, size); }

static bool allocate_all(decoder *d) {
    const size_t n = (size_t)d->o.sentences, hypotheses = n * (size_t)d->o.beam,
                 words = (size_t)nn_beam_words(&d->beam);
    d->sentence = allocate(d, n, sizeof *d->sentence);
    d->live = allocate(d, n, sizeof *d->live);
    d->found = allocate(d, n * words, sizeof *d->found);
    d->rows.search = allocate(d, n * words, sizeof *d->rows.search);
    d->rows.ids = allocate(d, hypotheses, sizeof *d->rows.ids);
    d->rows.positions = allocate(d, hypotheses, sizeof *d->rows.positions);
    d->rows.paths = allocate(d, hypotheses * (size_t)d->o.max_length, sizeof *d->rows.paths);
    d->hypotheses = allocate(d, n, sizeof *d->hypotheses);
    d->ranges = allocate(d, n, sizeof *d->ranges);
    for (int k = 0; k < 3; k++) d->moves[k] = allocate(d, n, sizeof *d->moves[k]);
    for (int i = 0; i < d->n_memory; i++) {
        if (!d->memory[i]) return false;
    }
    return true;
}

/* Sets the sizes of the stages; plans are made on first use. */
static void list_stages(decoder *d) {
    stage s = {.sentences = d->o.sentences, .src_tokens = d->o.src_tokens};
    d->stages[d->n_stages++] = s;
    while (d->on_device && d->n_stages < MOST_STAGES && s.sentences / 2 >= FEWEST) {
        s.sentences /= 2;
        s.src_tokens = (s.src_tokens + 1) / 2;
        d->stages[d->n_stages++] = s;
    }
}

static adamod_status make_graph(decoder *d, nn_graph **graph) {
    nn_graph_free(*graph);
    *graph = nn_graph_create(d->params);
    return *graph ? ADAMOD_OK : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a decoder");
}

static nn_plan_options plan_options(const decoder *d) {
    return (nn_plan_options){.backend = d->o.backend, .loss = -1, .pool = d->o.pool, .constant = d->o.constant};
}

static adamod_status make_step(decoder *d, stage *s) {
    if (s->step) return ADAMOD_OK;
    const transformer_step_sizes sizes = {d->o.src_tokens, s->sentences, d->o.sentences};
    nn_plan_options options = plan_options(d);
    if (s != d->stages) options.states = d->stages[0].step;
    ADAMOD__TRY(make_graph(d, &s->step_graph));
    transformer_step(s->step_graph, &d->config, &sizes, &d->beam, &s->step_symbols);
    return nn_plan_create(&s->step, s->step_graph, &options);
}

static adamod_status make_encoder(decoder *d, stage *s) {
    if (s->encoder) return ADAMOD_OK;
    const transformer_sizes sizes = {s->src_tokens, 1, s->sentences};
    const nn_plan_options options = plan_options(d);
    ADAMOD__TRY(make_graph(d, &s->encoder_graph));
    transformer_encoder(s->encoder_graph, &d->config, &sizes, &s->encoder_symbols);
    return nn_plan_create(&s->encoder, s->encoder_graph, &options);
}

adamod_status decoder_create(decoder **out, nn_params *params, const transformer_config *config,
                             const decode_options *o) {
    if (o->beam < 1 || o->beam > NN_MOST_BEAM || o->max_length < 1 || o->sentences < 1 || o->src_tokens < 1 ||
        o->beam > config->tgt_vocab) {
        return adamod__fail(
            ADAMOD_ERROR_RANGE,
            "decoder: beam %d, max_length %d, sentences %d: expected a beam of 1 to %d, others 1 or more", o->beam,
            o->max_length, o->sentences, NN_MOST_BEAM);
    }
    decoder *d = calloc(1, sizeof *d);
    if (!d) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a decoder");
    d->o = *o;
    d->beam = (nn_beam_options){o->beam, o->max_length, o->length_penalty, o->start, o->end};
    d->config = *config;
    d->params = params;
    d->on_device = is_on_device(params);
    adamod_status status = ADAMOD_OK;
    if (!allocate_all(d)) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %d searches", o->sentences);
    list_stages(d);
    if (!status) status = make_encoder(d, &d->stages[0]);
    if (!status) status = make_step(d, &d->stages[0]);
    if (status) {
        decoder_free(d);
        return status;
    }
    *out = d;
    return ADAMOD_OK;
}

void decoder_free(decoder *d) {
    if (!d) return;
    for (int i = d->n_stages - 1; i >= 0; i--) { /* the first owns the states */
        nn_plan_free(d->stages[i].encoder);
        nn_plan_free(d->stages[i].step);
        nn_graph_free(d->stages[i].encoder_graph);
        nn_graph_free(d->stages[i].step_graph);
    }
    for (int i = 0; i < d->n_memory; i++) free(d->memory[i]);
    free(d);
}

/* ---- start of a run ---- */

/* The smallest stage that is large enough; -1: none. */
static int stage_for(const decoder *d, int sentences, int64_t src_tokens) {
    int found = -1;
    for (int i = 0; i < d->n_stages; i++) {
        if (sentences <= d->stages[i].sentences && src_tokens <= d->stages[i].src_tokens) found = i;
    }
    return found;
}

static nn_beam_rows rows_at(const decoder *d, int place) {
    const int64_t row = (int64_t)place * d->o.beam;
    return (nn_beam_rows){d->rows.search + place * nn_beam_words(&d->beam), d->rows.ids + row, d->rows.positions + row,
                          d->rows.paths + row * d->o.max_length};
}

/* Writes all states of the places [from, to); places without a sentence get an empty search. */
static void write_places(decoder *d, int from, int to) {
    nn_plan *step = d->stages[d->now].step;
    const int n = to - from, beam = d->o.beam;
    const int64_t row = (int64_t)from * beam;
    const nn_beam_rows rows = rows_at(d, from);
    for (int i = from; i < to; i++) {
        const nn_beam_rows mine = rows_at(d, i);
        d->hypotheses[i][0] = i * beam;
        d->hypotheses[i][1] = (i + 1) * beam;
        if (i >= d->places) d->ranges[i][0] = d->ranges[i][1] = 0;
        nn_beam_begin(&d->beam, i < d->places ? (int64_t)i * beam * d->o.max_length : -1, &mine);
    }
    nn_plan_write(step, "search", from, n, rows.search);
    nn_plan_write(step, "ids", row, (int64_t)n * beam, rows.ids);
    nn_plan_write(step, "positions", row, (int64_t)n * beam, rows.positions);
    nn_plan_write(step, "paths", row, (int64_t)n * beam, rows.paths);
    nn_plan_write(step, "rows", from, n, d->hypotheses[from]);
    nn_plan_write(step, "cross_ranges", from, n, d->ranges[from]);
}

static void use_rows(decoder *d) {
    const stage *s = &d->stages[d->now];
    nn_plan_set_rows(s->step, s->step_symbols.sentences, d->places);
    nn_plan_set_rows(s->step, s->step_symbols.hypotheses, (int64_t)d->places * d->o.beam);
}

static adamod_status encode(decoder *d, int n, const int32_t *src, const int32_t (*ranges)[2]) {
    int64_t rows = 0;
    for (int i = 0; i < n && n <= d->o.sentences; i++) rows = ranges[i][1] > rows ? ranges[i][1] : rows;
    d->now = stage_for(d, n, rows);
    if (d->now < 0) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "decoder: %d sentences of %lld tokens, expected at most %d and %lld", n,
                            (long long)rows, d->o.sentences, (long long)d->o.src_tokens);
    }
    stage *s = &d->stages[d->now];
    ADAMOD__TRY(make_encoder(d, s));
    ADAMOD__TRY(make_step(d, s));
    nn_plan_set_rows(s->encoder, s->encoder_symbols.src, rows);
    nn_plan_set_rows(s->encoder, s->encoder_symbols.sentences, n);
    nn_plan_set_rows(s->step, s->step_symbols.src, rows);
    int32_t *positions = nn_plan_data(s->encoder, "src_positions");
    memcpy(nn_plan_data(s->encoder, "src_ids"), src, (size_t)rows * sizeof *src);
    memcpy(nn_plan_data(s->encoder, "src_ranges"), ranges, (size_t)n * sizeof *ranges);
    for (int i = 0; i < n; i++) {
        for (int32_t r = ranges[i][0]; r < ranges[i][1]; r++) positions[r] = r - ranges[i][0];
    }
    nn_plan_forward(s->encoder);
    for (int l = 0; l < d->config.decoder_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "cross.%d", l);
        nn_plan_copy(s->step, name, s->encoder, name, rows);
    }
    return ADAMOD_OK;
}

static void begin(decoder *d, int n, const int32_t (*ranges)[2]) {
    d->places = n;
    for (int i = 0; i < n; i++) {
        d->sentence[i] = i;
        d->live[i] = true;
    }
    memcpy(d->ranges, ranges, (size_t)n * sizeof *ranges);
    write_places(d, 0, d->on_device ? d->stages[d->now].sentences : n);
    use_rows(d);
}

/* ---- steps ---- */

static adamod_status forward(void *step) {
    nn_plan_forward(step);
    return ADAMOD_OK;
}

/* Waits for the oldest step under way and counts the sentences that go on. */
static adamod_status look(decoder *d, int *going, int *under_way) {
    nn_plan *step = d->stages[d->now].step;
    --*under_way;
    const adamod_status status = nn_plan_wait(step);
    const float *live = nn_plan_data(step, "live");
    *going = 0;
    for (int i = 0; !status && i < d->places; i++) *going += d->live[i] = live[i] > 0;
    return status;
}

/* Stores the results of finished sentences. */
static adamod_status collect(decoder *d) {
    const size_t words = (size_t)nn_beam_words(&d->beam);
    const adamod_status status = nn_plan_read(d->stages[d->now].step, "search", 0, d->places, d->rows.search);
    for (int i = 0; !status && i < d->places; i++) {
        if (!d->live[i])
            memcpy(d->found + (size_t)d->sentence[i] * words, d->rows.search + (size_t)i * words,
                   words * sizeof *d->found);
    }
    return status;
}

static void move_rows(decoder *d, const char *state, int n, int rows) {
    int64_t from[AT_ONCE_DEVICE], to[AT_ONCE_DEVICE];
    for (int first = 0; first < n; first += AT_ONCE_DEVICE) {
        const int some = n - first < AT_ONCE_DEVICE ? n - first : AT_ONCE_DEVICE;
        for (int k = 0; k < some; k++) {
            from[k] = d->moves[0][first + k] * rows;
            to[k] = d->moves[1][first + k] * rows;
            d->moves[2][k] = rows;
        }
        nn_plan_move(d->stages[d->now].step, state, some, from, to, d->moves[2]);
    }
}

/* Moves the last unfinished sentences to the places of finished ones, so that the first `going` places are in use. */
static void move_up(decoder *d, int going) {
    int n = 0, from = going;
    for (int to = 0; to < going; to++) {
        if (d->live[to]) continue;
        while (!d->live[from]) from++;
        d->sentence[to] = d->sentence[from];
        d->live[to] = true;
        d->moves[0][n] = from++;
        d->moves[1][n++] = to;
    }
    move_rows(d, "search", n, 1);
    move_rows(d, "cross_ranges", n, 1);
    move_rows(d, "ids", n, d->o.beam);
    move_rows(d, "positions", n, d->o.beam);
    move_rows(d, "paths", n, d->o.beam);
    d->places = going;
}

/* Whether finished sentences leave now: on the host at once, on a device when a smaller stage is large enough for the
 * others. */
static bool some_leave(const decoder *d, int going) {
    return d->on_device ? stage_for(d, going, 0) != d->now : going < d->places;
}

static adamod_status leave(decoder *d, int going) {
    const int next = stage_for(d, going, 0);
    const int64_t src = nn_plan_rows(d->stages[d->now].step, d->stages[d->now].step_symbols.src);
    ADAMOD__TRY(make_step(d, &d->stages[next]));
    ADAMOD__TRY(collect(d));
    move_up(d, going);
    d->now = next;
    nn_plan_set_rows(d->stages[next].step, d->stages[next].step_symbols.src, src);
    if (d->on_device) write_places(d, going, d->stages[next].sentences);
    use_rows(d);
    return ADAMOD_OK;
}

/* Searches step by step; a device gets the next step before the host looks at the last one. */
static adamod_status search(decoder *d) {
    int going = d->places, under_way = 0;
    adamod_status status = ADAMOD_OK;
    while (!status && going) {
        nn_plan *step = d->stages[d->now].step;
        status = nn_plan_replay(step, 0, forward, step);
        under_way++;
        if (!status && under_way == 1 + d->on_device) status = look(d, &going, &under_way);
        if (!going || !some_leave(d, going)) continue;
        while (!status && under_way) status = look(d, &going, &under_way);
        if (!status && going) status = leave(d, going);
    }
    while (!status && under_way) status = look(d, &going, &under_way);
    return status ? status : collect(d);
}

adamod_status decoder_run(decoder *d, int n, const int32_t *src, const int32_t (*ranges)[2], decode_result *results) {
    static const int32_t nothing[1];
    ADAMOD__TRY(encode(d, n, src, ranges));
    begin(d, n, ranges);
    const adamod_status status = search(d);
    for (int i = 0; !status && results && i < n; i++) {
        if (!decoder_result(d, i, 0, &results[i])) results[i] = (decode_result){.tokens = nothing};
    }
    return status;
}

bool decoder_result(const decoder *d, int sentence, int k, decode_result *out) {
    nn_beam_found found;
    if (!nn_beam_result(&d->beam, d->found + (int64_t)sentence * nn_beam_words(&d->beam), k, &found)) return false;
    *out = (decode_result){found.tokens, found.length, found.score, found.complete};
    return true;
}

/* ---- any number of sentences ---- */

typedef struct place_in_text {
    int64_t sentence, length;
} place_in_text;

/* Longest first, so that the slowest sentences do not run alone at the end. */
static int longer_first(const void *a, const void *b) {
    const place_in_text *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    return x->sentence < y->sentence ? -1 : x->sentence > y->sentence;
}

/* Decodes as many sentences as fit, and counts them. */
static adamod_status run_some(decoder *d, const place_in_text *order, int64_t left, const int32_t *src,
                              const int64_t *at, int32_t *ids, int32_t (*ranges)[2], int *count) {
    int64_t tokens = 0;
    int n = 0;
    for (; n < left && n < d->o.sentences && (n == 0 || tokens + order[n].length <= d->o.src_tokens); n++) {
        if (order[n].length > d->o.src_tokens) break; /* refused below */
        memcpy(ids + tokens, src + at[order[n].sentence], (size_t)order[n].length * sizeof *ids);
        ranges[n][0] = (int32_t)tokens;
        ranges[n][1] = (int32_t)(tokens += order[n].length);
    }
    *count = n;
    if (n == 0) {
        return adamod__fail(ADAMOD_ERROR_RANGE, "decoder: a sentence of %lld tokens, expected at most %lld",
                            (long long)order[0].length, (long long)d->o.src_tokens);
    }
    return decoder_run(d, n, ids, (const int32_t(*)[2])ranges, NULL);
}

adamod_status decoder_run_all(decoder *d, int64_t n, const int32_t *src, const int64_t *at,
                              int (*take)(void *context, int64_t sentence, int place), void *context, int *taken) {
    place_in_text *order = calloc((size_t)n + 1, sizeof *order);
    int32_t *ids = calloc((size_t)d->o.src_tokens, sizeof *ids);
    int32_t(*ranges)[2] = calloc((size_t)d->o.sentences, sizeof *ranges);
    adamod_status status = order && ids && ranges
                               ? ADAMOD_OK
                               : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld sentences", (long long)n);
    for (int64_t i = 0; !status && i < n; i++) order[i] = (place_in_text){i, at[i + 1] - at[i]};
    if (!status) qsort(order, (size_t)n, sizeof *order, longer_first);
    *taken = 0;
    for (int64_t first = 0; !status && !*taken && first < n;) {
        int count = 0;
        status = run_some(d, order + first, n - first, src, at, ids, ranges, &count);
        for (int i = 0; !status && !*taken && i < count; i++) *taken = take(context, order[first + i].sentence, i);
        first += count;
    }
    free(order);
    free(ids);
    free(ranges);
    return status;
}
