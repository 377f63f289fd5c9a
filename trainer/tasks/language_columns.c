/* language_columns.c - text as an LSTM reads it. It is cut into columns, one for each row of a batch, and read from left to
 * right. The network's state is carried from batch to batch and starts as zeros at the beginning of an epoch or an
 * evaluation. The lengths of batches are drawn once and shuffled for each epoch, so that all epochs have the same number of
 * batches. */
#include "core/error.h"
#include "data/shuffle.h"
#include "models/lstm.h"
#include "tasks/language_reader.h"

#include <stdlib.h>

/* ---- lengths ---- */

/* The time steps of a split; the last word of a column is only a target. */
static int64_t steps_of(const experiment *e, int split) {
    return language_of(e)->n[split] / language_batch(language_settings_of(&e->recipe), split) - 1;
}

enum { DRAW_LENGTHS = 0x6c656e67, ORDER_LENGTHS };

static int64_t draw_length(const language_settings *r, uint64_t seed, int64_t i) {
    const bool half = nn_uniform(nn_key(seed, 1, DRAW_LENGTHS), (uint64_t)i) < r->data.halved;
    const double normal = nn_normal(nn_key(seed, 2, DRAW_LENGTHS), (uint64_t)i);
    const double length = r->data.length / (half ? 2. : 1.) + r->data.spread * normal;
    return length > r->data.shortest ? (int64_t)length : r->data.shortest;
}

/* Draws lengths up to the end of the text; the last batch has the rest. */
static int begin(experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const int64_t steps = steps_of(e, SPLIT_TRAIN), most = steps / r->data.shortest + 1;
    s->drawn = malloc((size_t)most * sizeof *s->drawn);
    s->lengths = malloc((size_t)most * sizeof *s->lengths);
    if (!s->drawn || !s->lengths) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the lengths of batches");
    for (int64_t done = 0; done < steps; s->batches++) {
        const int64_t length = draw_length(r, e->recipe.train.seed, s->batches);
        const int64_t n = length < steps - done ? length : steps - done;
        s->drawn[s->batches] = n;
        s->longest = n > s->longest ? n : s->longest;
        done += n;
    }
    return 0;
}

static void order_epoch(language *s, uint64_t seed) {
    if (s->ordered_epoch == s->epoch) return;
    memcpy(s->lengths, s->drawn, (size_t)s->batches * sizeof *s->lengths);
    shuffle(s->lengths, s->batches, s->batches, nn_key(seed, (uint64_t)s->epoch, ORDER_LENGTHS));
    s->ordered_epoch = s->epoch;
}

/* ---- graphs ---- */

/* Builds a graph for at most `steps` time steps of a split. Its inputs are ids, targets and carried; its output "loss". */
static nn_value build_graph(const experiment *e, nn_graph *g, int split, int64_t steps, int *rows) {
    const int64_t columns = language_batch(language_settings_of(&e->recipe), split);
    const lstm_settings *model = (const void *)e->recipe.model_settings;
    *rows = nn_symbol(g, "tokens", steps * columns);
    const int one = nn_symbol(g, "one", 1);
    lstm_text text = {.words = language_of(e)->words, .batch = columns, .state = task_split_name((task_split)split)};
    text.ids = nn_input(g, "ids", NN_I32, *rows, 0);
    text.targets = nn_input(g, "targets", NN_I32, *rows, 0);
    text.carried = nn_input(g, "carried", NN_I32, one, 0);
    nn_pad(g, text.targets, -1);
    const nn_value loss = lstm_build(g, model, &text, split == SPLIT_TRAIN);
    nn_output(g, "loss", loss);
    return loss;
}

static nn_value build(experiment *e, nn_graph *g) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const nn_value loss = build_graph(e, g, SPLIT_TRAIN, s->longest > 0 ? s->longest : r->data.length, &s->rows);
    for (int split = SPLIT_VALID; split < SPLITS; split++)
        lstm_declare(g, (const void *)e->recipe.model_settings, task_split_name((task_split)split),
                     language_batch(r, split));
    return loss;
}

static nn_value build_scoring(const experiment *e, nn_graph *g, int split, language_scoring *x) {
    const int64_t most = language_score_length(language_settings_of(&e->recipe)), steps = steps_of(e, split);
    return build_graph(e, g, split, steps < most ? steps : most, &x->rows);
}

/* ---- batches ---- */

static int64_t least(const language_settings *r, int split, char *why, size_t size) {
    const int columns = language_batch(r, split);
    snprintf(why, size, "two for each of %s %d columns", language_batch_key(split), columns);
    return 2 * (int64_t)columns;
}

/* Columns are equally long, so the last tokens may be unused. */
static bool unused(const experiment *e, int split, char *out, size_t size) {
    const int64_t n = language_of(e)->n[split], columns = language_batch(language_settings_of(&e->recipe), split);
    snprintf(out, size, "uses %lld of %lld tokens, in %lld columns of equal length", (long long)(n - n % columns),
             (long long)n, (long long)columns);
    return n % columns != 0;
}

/* Copies time steps first .. first + n - 1 of a split into a plan's inputs. */
static void feed(const experiment *e, nn_plan *plan, int rows, int split, int64_t first, int64_t n, bool carried) {
    const int64_t columns = language_batch(language_settings_of(&e->recipe), split), height = steps_of(e, split) + 1;
    const int32_t *text = language_of(e)->text[split];
    int32_t *ids = nn_plan_data(plan, "ids"), *targets = nn_plan_data(plan, "targets");
    *(int32_t *)nn_plan_data(plan, "carried") = carried;
    nn_plan_set_rows(plan, rows, n * columns);
    for (int64_t t = 0; t < n; t++) {
        for (int64_t b = 0; b < columns; b++) {
            ids[t * columns + b] = text[b * height + first + t];
            targets[t * columns + b] = text[b * height + first + t + 1];
        }
    }
}

static void feed_next(experiment *e, task_batch *out) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    order_epoch(s, e->recipe.train.seed);
    if (s->index == 0) s->place = 0;
    const int64_t length = s->lengths[s->index];
    feed(e, e->plan, s->rows, SPLIT_TRAIN, s->place, length, s->index > 0);
    s->place += length;
    out->items = length * r->data.batch;
    if (r->data.scale_lr) out->lr_factor = (double)length / r->data.length;
}

static void seek(experiment *e) {
    language *s = language_of(e);
    s->place = 0;
    order_epoch(s, e->recipe.train.seed);
    for (int64_t i = 0; i < s->index; i++) s->place += s->lengths[i];
}

static int score(experiment *e, task_split split, bool glance, double *sum, int64_t *tokens) {
    const language_settings *r = language_settings_of(&e->recipe);
    const language_scoring *x = &language_of(e)->scoring[split];
    const int64_t length = language_score_length(r), all = steps_of(e, split), columns = language_batch(r, split);
    const int64_t steps = glance && all > length ? length : all;
    for (int64_t at = 0; at < steps; at += length) {
        const int64_t n = steps - at < length ? steps - at : length;
        feed(e, x->plan, x->rows, split, at, n, at > 0);
        nn_plan_forward(x->plan);
        if (nn_plan_wait(x->plan)) return -1;
        *sum += (double)*(const float *)nn_plan_data(x->plan, "loss");
        experiment_progress(e, "tokens", (at + n) * columns, steps * columns);
    }
    *tokens = steps * columns;
    return 0;
}

const language_reader language_columns = {.least = least,
                                          .unused = unused,
                                          .begin = begin,
                                          .build = build,
                                          .build_scoring = build_scoring,
                                          .feed = feed_next,
                                          .seek = seek,
                                          .score = score,
                                          .predict = language_predict_lstm};
