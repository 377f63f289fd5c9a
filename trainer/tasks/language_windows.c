/* language_windows.c - text as GPT reads it: in windows of data.length tokens, each on its own. This file cuts text in
 * memory; token_file.h says how packed ids are cut into windows, and in which order they come.
 *
 * The windows of an epoch stand end to end and come in an order drawn for it. Their number fills whole batches. The
 * first begins at a token drawn for the epoch, so each epoch has other borders and leaves out other tokens. An
 * evaluation reads all of a split, window after window. */
#include "core/error.h"
#include "data/shuffle.h"
#include "tasks/language_reader.h"

#include <stdlib.h>

gpt_config language_gpt(const experiment *e) {
    const int length = language_settings_of(&e->recipe)->data.length;
    return gpt_configure((const void *)e->recipe.model_settings, language_of(e)->words, length);
}

/* The last token of a window is only a target. */
static int64_t least(const language_settings *r, int split, char *why, size_t size) {
    const int64_t windows = r->data.batch, length = r->data.length;
    snprintf(why, size, "one and its successor");
    if (split != SPLIT_TRAIN) return 2;
    snprintf(why, size, "one more than data.batch %lld windows of data.length %lld", (long long)windows,
             (long long)length);
    return windows * length + 1;
}

static bool unused(const experiment *e, int split, char *out, size_t size) {
    (void)e, (void)split, (void)out, (void)size;
    return false;
}

/* ---- epochs ---- */

enum { ORDER_WINDOWS = 0x77696e64, FIRST_WINDOW };

static int64_t windows_of(const experiment *e) {
    return language_of(e)->batches * language_settings_of(&e->recipe)->data.batch;
}

static int begin(experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const token_set *packed = s->packed[SPLIT_TRAIN];
    s->batches = packed ? token_set_windows(packed, r->data.length) / r->data.batch
                        : (s->n[SPLIT_TRAIN] - 1) / ((int64_t)r->data.batch * r->data.length);
    if (packed) return 0;
    s->windows = malloc((size_t)windows_of(e) * sizeof *s->windows);
    return s->windows ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the order of windows");
}

static void order_epoch(experiment *e) {
    language *s = language_of(e);
    const int64_t n = windows_of(e), read = n * language_settings_of(&e->recipe)->data.length;
    const uint64_t seed = e->recipe.train.seed, epoch = (uint64_t)s->epoch;
    if (s->ordered_epoch == s->epoch || s->packed[SPLIT_TRAIN]) return;
    for (int64_t i = 0; i < n; i++) s->windows[i] = i;
    shuffle(s->windows, n, n, nn_key(seed, epoch, ORDER_WINDOWS));
    s->first = (int64_t)nn_below(nn_key(seed, epoch, FIRST_WINDOW), 0, (uint64_t)(s->n[SPLIT_TRAIN] - read));
    s->ordered_epoch = s->epoch;
}

/* ---- graphs ---- */

static nn_value build(experiment *e, nn_graph *g) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const gpt_config c = language_gpt(e);
    gpt_symbols symbols;
    const nn_value loss = gpt_training(g, &c, (int64_t)r->data.batch * r->data.length, r->data.batch, &symbols);
    s->rows = symbols.tokens;
    s->n_windows = symbols.windows;
    return loss;
}

/* Tokens of a split that an evaluation reads, each with its successor. */
static int64_t scored_tokens(const experiment *e, int split) {
    const language *s = language_of(e);
    const int64_t length = language_score_length(language_settings_of(&e->recipe));
    return s->packed[split] ? token_set_windows(s->packed[split], length) * length : s->n[split] - 1;
}

/* The windows of a batch of an evaluation: no more than there are. */
static int64_t scored_at_once(const experiment *e, int split) {
    const language_settings *r = language_settings_of(&e->recipe);
    const int64_t length = language_score_length(r), most = language_batch(r, split);
    const int64_t windows = (scored_tokens(e, split) + length - 1) / length;
    return windows < most ? windows : most;
}

static nn_value build_scoring(const experiment *e, nn_graph *g, int split, language_scoring *x) {
    const gpt_config c = language_gpt(e);
    const int64_t windows = scored_at_once(e, split);
    gpt_symbols symbols;
    const nn_value loss =
        gpt_training(g, &c, windows * language_score_length(language_settings_of(&e->recipe)), windows, &symbols);
    x->rows = symbols.tokens;
    x->windows = symbols.windows;
    return loss;
}

/* ---- batches ---- */

/* A plan's inputs, while windows are added. */
typedef struct filling {
    int32_t *ids, *positions, *targets, (*ranges)[2];
    int32_t rows, windows;
} filling;

static filling fill(nn_plan *plan) {
    return (filling){nn_plan_data(plan, "ids"),
                     nn_plan_data(plan, "positions"),
                     nn_plan_data(plan, "targets"),
                     nn_plan_data(plan, "ranges"),
                     0,
                     0};
}

static void add_window(filling *f, const int32_t *text, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        f->ids[f->rows + i] = text[i];
        f->targets[f->rows + i] = text[i + 1];
        f->positions[f->rows + i] = (int32_t)i;
    }
    f->ranges[f->windows][0] = f->rows;
    f->ranges[f->windows][1] = f->rows += (int32_t)n;
    f->windows++;
}

/* Window `at` of this epoch, and its last successor. Packed ids were checked when they were opened. */
static const int32_t *training_window(const experiment *e, int64_t at) {
    const int64_t length = language_settings_of(&e->recipe)->data.length;
    const language *s = language_of(e);
    if (!s->packed[SPLIT_TRAIN]) return s->text[SPLIT_TRAIN] + s->first + s->windows[at] * length;
    const token_windows w = {.length = length, .seed = e->recipe.train.seed, .shuffled = true};
    token_set_window(s->packed[SPLIT_TRAIN], &w, s->epoch, at, s->ids);
    return s->ids;
}

static void feed(experiment *e, task_batch *out) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    filling f = fill(e->plan);
    order_epoch(e);
    for (int64_t i = 0; i < r->data.batch; i++)
        add_window(&f, training_window(e, s->index * r->data.batch + i), r->data.length);
    nn_plan_set_rows(e->plan, s->rows, f.rows);
    nn_plan_set_rows(e->plan, s->n_windows, f.windows);
    out->items = f.rows;
}

static void seek(experiment *e) { order_epoch(e); }

/* ---- scores ---- */

/* The window of an evaluation that begins at a token. */
static const int32_t *held_out_window(const experiment *e, int split, int64_t first) {
    const int64_t length = language_score_length(language_settings_of(&e->recipe));
    const language *s = language_of(e);
    if (!s->packed[split]) return s->text[split] + first;
    language_packed_at(s, split, length, first / length, s->ids);
    return s->ids;
}

/* Scores a batch of windows from token `first` on. */
static void score_batch(const experiment *e, int split, int64_t first) {
    const language_scoring *x = &language_of(e)->scoring[split];
    const int64_t most = scored_at_once(e, split), length = language_score_length(language_settings_of(&e->recipe));
    const int64_t end = scored_tokens(e, split);
    filling f = fill(x->plan);
    while (f.windows < most && first < end) {
        const int64_t n = end - first < length ? end - first : length;
        add_window(&f, held_out_window(e, split, first), n);
        first += n;
    }
    nn_plan_set_rows(x->plan, x->rows, f.rows);
    nn_plan_set_rows(x->plan, x->windows, f.windows);
    nn_plan_forward(x->plan);
}

static int score_batches(experiment *e, task_split split, int64_t batches, int64_t each, double *nll) {
    nn_plan *plan = language_of(e)->scoring[split].plan;
    for (int64_t i = 0; i < batches; i++) {
        if (!experiment_is_mine(e, i)) continue;
        score_batch(e, split, i * each);
        if (nn_plan_wait(plan)) return -1;
        nll[i] = (double)((const float *)nn_plan_data(plan, "loss"))[1];
        experiment_progress(e, "scoring batch", i + 1, batches);
    }
    return 0;
}

/* Ranks divide the batches. Their sums are added in order, so that the result does not depend on the number of ranks. */
static int score(experiment *e, task_split split, bool glance, double *sum, int64_t *tokens) {
    const int64_t all = scored_tokens(e, split);
    const int64_t each = scored_at_once(e, split) * language_score_length(language_settings_of(&e->recipe));
    const int64_t batches = glance ? 1 : (all + each - 1) / each;
    double *nll = calloc((size_t)batches, sizeof *nll);
    int failed = nll ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for scores");
    if (!failed) failed = score_batches(e, split, batches, each, nll);
    failed = comm_agree(e->comm, failed);
    if (!failed) comm_add(e->comm, nll, batches);
    for (int64_t i = 0; !failed && i < batches; i++) *sum += nll[i];
    *tokens = all < batches * each ? all : batches * each;
    free(nll);
    return failed;
}

const language_reader language_windows = {.gpt = true,
                                          .least = least,
                                          .unused = unused,
                                          .begin = begin,
                                          .build = build,
                                          .build_scoring = build_scoring,
                                          .feed = feed,
                                          .seek = seek,
                                          .score = score,
                                          .predict = language_predict_gpt};
