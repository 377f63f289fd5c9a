/* Beam search: its op against a slow search that keeps whole sentences, and sentences that leave a run early. */
#include "nn/backend/cpu/packed.h"
#include "nn/op.h"
#include "nn/ops/beam.h"
#include "small_transformer.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a language of random numbers, in which the next word depends on all before ---- */

enum { WORDS = 9, MOST = 12, BEAM = 5, START = 0, END = 1 };

static void language(uint64_t seed, const int32_t *tokens, int n, float x[WORDS]) {
    uint64_t key = nn_key(seed, 0, 0);
    for (int i = 0; i < n; i++) key = nn_key(key, (uint64_t)i, (uint64_t)tokens[i]);
    for (int v = 0; v < WORDS; v++) x[v] = (float)nn_normal(key, (uint64_t)v);
    if (seed % 3 == 0) x[END] -= 4; /* seldom ends by itself */
}

static void log_probs(uint64_t seed, const int32_t *tokens, int n, float y[WORDS]) {
    float x[WORDS];
    double most = -INFINITY, sum = 0;
    language(seed, tokens, n, x);
    for (int v = 0; v < WORDS; v++) most = fmax(most, (double)x[v]);
    for (int v = 0; v < WORDS; v++) sum += exp((double)x[v] - most);
    for (int v = 0; v < WORDS; v++) y[v] = (float)((double)x[v] - most - log(sum));
}

/* ---- the slow search ---- */

typedef struct sentence {
    int32_t tokens[MOST + 1];
    int length;
    double score;
    bool complete;
    int parent, word;
} sentence;

static int by_score(const void *a, const void *b) {
    const sentence *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->parent != y->parent ? x->parent - y->parent : x->word - y->word;
}

/* Beam search in the plainest way. kept: sentences that ended, the best first, then those that did not. */
static int slow_search(uint64_t seed, const nn_beam_options *o, sentence *kept) {
    sentence live[BEAM] = {{.length = 0}}, all[BEAM * WORDS], finished[MOST * BEAM];
    int n_live = 1, n_finished = 0, n = 0;
    for (int time = 0; time < o->max_length && n_live && n_finished < o->beam; time++) {
        int found = 0, next = 0;
        for (int h = 0; h < n_live; h++) {
            float y[WORDS];
            log_probs(seed, live[h].tokens, time, y);
            for (int v = 0; v < WORDS; v++) {
                if (v == START) continue;
                all[found] = live[h];
                all[found].score += (double)y[v];
                all[found].parent = h;
                all[found].word = v;
                all[found++].tokens[time] = v;
            }
        }
        qsort(all, (size_t)found, sizeof *all, by_score);
        for (int k = 0; k < found && k < 2 * o->beam && next < o->beam; k++) {
            if (all[k].word != END) {
                live[next] = all[k];
                live[next++].length = time + 1;
            } else if (k < o->beam) {
                finished[n_finished] = all[k];
                finished[n_finished].length = time;
                finished[n_finished].score /= pow(time + 1, o->length_penalty);
                finished[n_finished].parent = n_finished; /* the first found comes first */
                finished[n_finished++].complete = true;
            }
        }
        n_live = next;
    }
    qsort(finished, (size_t)n_finished, sizeof *finished, by_score);
    for (; n < n_finished && n < o->beam; n++) kept[n] = finished[n];
    for (int h = 0; n_finished < o->beam && h < n_live && n < o->beam; h++) {
        kept[n] = live[h];
        kept[n++].score /= pow(live[h].length, o->length_penalty);
    }
    return n;
}

/* ---- the op, told what the language says of each hypothesis's path ---- */

enum { SENTENCES = 3, ROWS = SENTENCES * BEAM };

typedef struct states {
    int32_t *search, ids[ROWS], positions[ROWS], paths[ROWS * MOST];
    int32_t token[ROWS * MOST]; /* of rows of the cache, as the attention of each step finds them */
    float best[ROWS * 2 * WORDS], live[SENTENCES];
} states;

static void read_paths(states *s, const nn_beam_options *o, uint64_t seed, int n) {
    for (int r = 0; r < SENTENCES * o->beam; r++) {
        float y[WORDS], *best = s->best + r * 2 * n;
        int32_t tokens[MOST], *path = s->paths + r * o->max_length;
        bool taken[WORDS] = {false};
        for (int k = 0; k < 2 * n; k++) best[k] = NAN; /* rows without a hypothesis */
        if (path[s->positions[r]] < 0) continue;
        s->token[path[s->positions[r]]] = s->ids[r];
        for (int t = 1; t <= s->positions[r]; t++) tokens[t - 1] = s->token[path[t]];
        log_probs(seed + (uint64_t)(r / o->beam), tokens, s->positions[r], y);
        for (int k = 0; k < n; k++) {
            int at = -1;
            for (int v = 0; v < WORDS; v++) at = !taken[v] && (at < 0 || y[v] > y[at]) ? v : at;
            taken[at] = true;
            best[k] = y[at];
            best[n + k] = (float)at;
        }
    }
}

static void check_search(uint64_t seed, const nn_beam_options *o) {
    static states s;
    const int n = 2 * o->beam + 1 < WORDS ? 2 * o->beam + 1 : WORDS;
    const int64_t words = nn_beam_words(o);
    memset(&s, 0, sizeof s);
    s.search = calloc((size_t)words * SENTENCES, sizeof *s.search);
    for (int i = 0; i < SENTENCES; i++) {
        nn_beam_begin(o, (int64_t)i * o->beam * o->max_length,
                      &(nn_beam_rows){s.search + i * words, s.ids + i * o->beam, s.positions + i * o->beam,
                                      s.paths + i * o->beam * o->max_length});
        s.live[i] = 1;
    }
    nn_call c = {.attributes = o};
    c.input[BEAM_BEST] = (nn_array){.data = s.best, .rows = SENTENCES * o->beam, .cols = 2 * n};
    c.output[0] = (nn_array){.data = s.live, .rows = SENTENCES, .cols = 1};
    c.output[BEAM_SEARCH] = (nn_array){.data = s.search, .rows = SENTENCES, .cols = words};
    c.output[BEAM_IDS].data = s.ids;
    c.output[BEAM_POSITIONS].data = s.positions;
    c.output[BEAM_PATHS].data = s.paths;
    for (int step = 0; step < o->max_length; step++) {
        read_paths(&s, o, seed, n);
        nn_op_beam.ref.forward(&c);
    }
    for (int i = 0; i < SENTENCES; i++) {
        sentence want[BEAM];
        nn_beam_found got;
        const int kept = slow_search(seed + (uint64_t)i, o, want);
        CHECK(s.live[i] == 0);
        for (int k = 0; k < kept; k++) {
            if (!CHECK(nn_beam_result(o, s.search + i * words, k, &got))) break;
            CHECK(got.score == want[k].score);
            CHECK_INT(got.complete, want[k].complete);
            if (CHECK_INT(got.length, want[k].length))
                CHECK(memcmp(got.tokens, want[k].tokens, (size_t)got.length * sizeof *got.tokens) == 0);
        }
        CHECK(!nn_beam_result(o, s.search + i * words, kept, &got));
    }
    free(s.search);
}

TEST(the_search_is_that_of_whole_sentences) {
    for (uint64_t seed = 1; seed < 60; seed++) {
        for (int beam = 1; beam <= BEAM; beam += 2) {
            check_search(seed, &(nn_beam_options){beam, MOST, 1, START, END});
            check_search(seed, &(nn_beam_options){beam, 1 + (int)(seed % MOST), 0.6, START, END});
        }
    }
}

enum { MANY = 40, LONGEST = 9 };

typedef struct outputs {
    decoder *d;
    int32_t tokens[MANY][LONGEST + 1];
    int length[MANY], times[MANY];
    double score[MANY];
} outputs;

/* ---- products with a copy of a matrix ---- */

typedef struct parts_seen {
    int64_t rows, out;
    int *times; /* [rows, out] */
} parts_seen;

static void see(void *context, int64_t row, int64_t column, int64_t rows, int64_t columns) {
    const parts_seen *p = context;
    for (int64_t i = row; i < row + rows; i++) {
        for (int64_t j = column; j < column + columns; j++) p->times[i * p->out + j]++;
    }
}

static void check_packed(int64_t rows, int64_t out, int64_t in, adamod_pool *pool) {
    float *x = malloc((size_t)(rows * in) * sizeof *x), *w = malloc((size_t)(out * in) * sizeof *w);
    float *y = malloc((size_t)(2 * rows * out + 1) * sizeof *y);
    parts_seen seen = {rows, out, calloc((size_t)(rows * out), sizeof *seen.times)};
    nn_packed *p = nn_packed_create(out, in);
    for (int64_t i = 0; i < rows * in; i++) x[i] = (float)nn_normal(1, (uint64_t)i);
    for (int64_t i = 0; i < out * in; i++) w[i] = (float)nn_normal(2, (uint64_t)i);
    y[2 * rows * out] = 77;
    nn_product q = {.m = rows,
                    .a = {.data = x, .stride = in},
                    .b = {w, in, .transposed = true},
                    .c = y,
                    .then = see,
                    .context = &seen};
    nn_packed_product(p, pool, &q);
    for (int64_t i = 0; i < out * in; i++) w[i] = NAN; /* it has its copy */
    q.c = y + rows * out;
    q.then = NULL;
    nn_packed_product(p, NULL, &q);
    double worst = 0;
    bool once = true;
    for (int64_t i = 0; i < rows * out; i++) {
        double sum = 0;
        for (int64_t k = 0; k < in; k++)
            sum += (double)x[i / out * in + k] * (float)nn_normal(2, (uint64_t)(i % out * in + k));
        worst = fmax(worst, fabs(sum - (double)y[i]));
        once = once && seen.times[i] == 1;
    }
    CHECK_CLOSE(worst, 0, 1e-5);
    CHECK(once);
    CHECK(memcmp(y, y + rows * out, (size_t)(rows * out) * sizeof *y) == 0); /* whatever the threads */
    CHECK(y[2 * rows * out] == 77);
    nn_packed_free(p);
    free(seen.times);
    free(x);
    free(w);
    free(y);
}

TEST(a_product_with_a_copy_of_the_matrix_is_the_product) {
    static const int64_t rows[] = {1, 7, 64, 65, 9}, out[] = {1, 48, 50, 96, 177}, in[] = {1, 5, 16, 33, 40};
    adamod_pool *pool = NULL;
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    for (int i = 0; i < 5; i++) check_packed(rows[i], out[i], in[i], pool);
    adamod_pool_free(pool);
}

/* ---- sentences that leave a run ---- */

static int take(void *context, int64_t i, int place) {
    outputs *o = context;
    decode_result r;
    if (!CHECK(decoder_result(o->d, place, 0, &r))) return 1;
    memcpy(o->tokens[i], r.tokens, (size_t)r.length * sizeof *r.tokens);
    o->length[i] = r.length;
    o->score[i] = r.score;
    return o->times[i]++;
}

TEST(translations_do_not_depend_on_the_company) {
    transformer_config c = small_config();
    small_transformer s = small_make(&c, "cpu", 2, false);
    for (int64_t i = 0; i < s.params->count; i++) s.params->data[i] *= 1.7f;
    static int32_t src[MANY * 8];
    int64_t at[MANY + 1] = {0};
    for (int i = 0; i < MANY; i++) {
        at[i + 1] = at[i] + 2 + i * 5 % 7;
        for (int64_t k = at[i]; k < at[i + 1] - 1; k++) src[k] = 3 + (int32_t)nn_below(7, (uint64_t)k, SMALL_VOCAB - 3);
        src[at[i + 1] - 1] = END;
    }
    static outputs all;
    memset(&all, 0, sizeof all);
    decode_options o = {.beam = 3,
                        .max_length = LONGEST,
                        .length_penalty = 1,
                        .sentences = 16,
                        .src_tokens = 100,
                        .start = START,
                        .end = END,
                        .backend = "cpu",
                        .pool = s.pool};
    int taken, lengths[LONGEST + 1] = {0}, different = 0;
    CHECK_INT(decoder_create(&all.d, s.params, &c, &o), ADAMOD_OK);
    CHECK_INT(decoder_run_all(all.d, MANY, src, at, take, &all, &taken), ADAMOD_OK);
    CHECK_INT(taken, 0);
    for (int i = 0; i < MANY; i++) {
        decode_result alone;
        const int32_t range[1][2] = {{0, (int32_t)(at[i + 1] - at[i])}};
        CHECK_INT(all.times[i], 1);
        CHECK_INT(decoder_run(all.d, 1, src + at[i], range, &alone), ADAMOD_OK);
        CHECK_CLOSE(all.score[i], alone.score, 1e-5);
        if (CHECK_INT(all.length[i], alone.length))
            CHECK(memcmp(all.tokens[i], alone.tokens, (size_t)alone.length * sizeof *alone.tokens) == 0);
        lengths[alone.length]++;
    }
    for (int n = 0; n <= LONGEST; n++) different += lengths[n] > 0;
    CHECK(different > 2); /* some did leave before others */
    CHECK_INT(decoder_run_all(all.d, 1, src, (int64_t[]){0, 101}, take, &all, &taken), ADAMOD_ERROR_RANGE);
    decoder_free(all.d);
    /* Nor on copies of parameters in another order. */
    static outputs packed;
    memset(&packed, 0, sizeof packed);
    o.constant = true;
    CHECK_INT(decoder_create(&packed.d, s.params, &c, &o), ADAMOD_OK);
    CHECK_INT(decoder_run_all(packed.d, MANY, src, at, take, &packed, &taken), ADAMOD_OK);
    for (int i = 0; i < MANY; i++) CHECK_CLOSE(packed.score[i], all.score[i], 1e-5);
    CHECK(memcmp(packed.tokens, all.tokens, sizeof all.tokens) == 0);
    decoder_free(packed.d);
    small_free(&s);
}

RUN_TESTS(ENTRY(the_search_is_that_of_whole_sentences), ENTRY(a_product_with_a_copy_of_the_matrix_is_the_product),
          ENTRY(translations_do_not_depend_on_the_company))
