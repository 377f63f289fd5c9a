#include "tasks/translation.h"

#include "core/error.h"
#include "support/clock.h"
#include "data/bleu.h"
#include "tasks/translation_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- open and close ---- */

static batch_policy policy_of(const recipe *r, bool shuffle) {
    const translation_settings *s = translation_settings_of(r);
    return (batch_policy){
        .sentences = s->data.sentences, .tokens = s->data.sort_by_length ? s->data.max_tokens : 0, .shuffle = shuffle};
}

static int open_batches(experiment *e) {
    translation *s = translation_of(e);
    const batch_policy policy = policy_of(&e->recipe, true);
    if (batcher_create(&s->batches, &s->pairs[SPLIT_TRAIN], &policy, e->recipe.train.seed)) return -1;
    s->shape = batcher_capacity(s->batches);
    return 0;
}

static void close_translation(experiment *e) {
    translation *s = translation_of(e);
    if (!s) return;
    decoder_free(s->decoder);
    nn_plan_free(s->score_plan);
    nn_graph_free(s->score_graph);
    batcher_free(s->batches);
    for (int i = 0; i < SPLITS; i++) {
        corpus_free(&s->pairs[i]);
        corpus_text_free(&s->text[i]);
        corpus_text_free(&s->raw_pairs[i]);
    }
    raw_text_close(&s->raw);
    if (s->tgt_vocab != s->src_vocab) vocab_free(s->tgt_vocab);
    vocab_free(s->src_vocab);
    free(s);
    e->state = NULL;
}

static int open_translation(experiment *e, const char *directory, int uses) {
    translation *s = e->state = calloc(1, sizeof *s);
    if (!s) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the task");
    s->shape = (batch_shape){.n = 1, .n_src = 1, .n_tgt = 1};
    int failed = translation_load(e, directory, uses);
    if (!failed && !directory) failed = open_batches(e);
    if (failed) {
        close_translation(e);
        return -1;
    }
    s->config =
        transformer_configure(transformer_settings_of(&e->recipe), vocab_size(s->src_vocab), vocab_size(s->tgt_vocab));
    return 0;
}

/* ---- graphs ---- */

static transformer_sizes sizes_of(batch_shape shape) { return (transformer_sizes){shape.n_src, shape.n_tgt, shape.n}; }

static nn_value build(experiment *e, nn_graph *g) {
    translation *s = translation_of(e);
    const transformer_sizes sizes = sizes_of(s->shape);
    return transformer_training(g, &s->config, &sizes, &s->symbols);
}

/* Batches of a held-out split, in a fixed order. Scores do not depend on how it is cut. */
static int held_out_batches(const experiment *e, int split, batcher **out) {
    const batch_policy policy = policy_of(&e->recipe, false);
    return batcher_create(out, &translation_of(e)->pairs[split], &policy, 0);
}

static void widen(batch_shape *most, batch_shape shape) {
    if (shape.n > most->n) most->n = shape.n;
    if (shape.n_src > most->n_src) most->n_src = shape.n_src;
    if (shape.n_tgt > most->n_tgt) most->n_tgt = shape.n_tgt;
}

static int open_scoring(experiment *e) {
    translation *s = translation_of(e);
    batch_shape shape = {0};
    for (int split = SPLIT_VALID; split < SPLITS; split++) {
        batcher *b;
        if (s->pairs[split].n == 0) continue;
        if (held_out_batches(e, split, &b)) return -1;
        widen(&shape, batcher_capacity(b));
        batcher_free(b);
    }
    if (shape.n == 0) return 0;
    const transformer_sizes sizes = sizes_of(shape);
    s->score_graph = nn_graph_create(e->params);
    if (!s->score_graph) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a graph");
    transformer_training(s->score_graph, &s->config, &sizes, &s->score_symbols);
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1, .pool = e->pool};
    return nn_plan_create(&s->score_plan, s->score_graph, &o);
}

int translation_beam(const experiment *e) {
    const int beam = translation_settings_of(&e->recipe)->decode.beam;
    const int64_t tokens = translation_of(e)->config.tgt_vocab;
    return beam < tokens ? beam : (int)tokens;
}

static int open_decoder(experiment *e, bool constant) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    enum { TOKENS = 64 }; /* of a sentence, for the most sentences at once */
    const int sentences = decode_sentences(e->params, &s->config, translation_beam(e), r->decode.max_length);
    const int64_t longest = r->data.max_length + 1, tokens = (int64_t)sentences * TOKENS;
    const decode_options o = {.beam = translation_beam(e),
                              .max_length = r->decode.max_length,
                              .length_penalty = r->decode.length_penalty,
                              .sentences = sentences,
                              .src_tokens = tokens > longest ? tokens : longest,
                              .start = VOCAB_START,
                              .end = VOCAB_END,
                              .constant = constant,
                              .backend = e->recipe.train.backend,
                              .pool = e->pool};
    return decoder_create(&s->decoder, e->params, &s->config, &o);
}

static int prepare(experiment *e, int uses) {
    if ((uses & TASK_SCORE) && open_scoring(e)) return -1;
    return (uses & TASK_APPLY) ? open_decoder(e, !(uses & TASK_TRAIN)) : 0;
}

/* ---- batches ---- */

/* Copies a batch into a plan's inputs. */
static void feed_batch(nn_plan *plan, const transformer_symbols *symbols, const batch *b) {
    const size_t src = (size_t)b->n_src * sizeof *b->src_ids, tgt = (size_t)b->n_tgt * sizeof *b->tgt_in;
    nn_plan_set_rows(plan, symbols->src, b->n_src);
    nn_plan_set_rows(plan, symbols->tgt, b->n_tgt);
    nn_plan_set_rows(plan, symbols->sentences, b->n);
    memcpy(nn_plan_data(plan, "src_ids"), b->src_ids, src);
    memcpy(nn_plan_data(plan, "src_positions"), b->src_positions, src);
    memcpy(nn_plan_data(plan, "src_ranges"), b->src_ranges, (size_t)b->n * sizeof *b->src_ranges);
    memcpy(nn_plan_data(plan, "tgt_in"), b->tgt_in, tgt);
    memcpy(nn_plan_data(plan, "tgt_out"), b->tgt_out, tgt);
    memcpy(nn_plan_data(plan, "tgt_positions"), b->tgt_positions, tgt);
    memcpy(nn_plan_data(plan, "tgt_ranges"), b->tgt_ranges, (size_t)b->n * sizeof *b->tgt_ranges);
}

static int64_t batches(const experiment *e) { return batcher_steps(translation_of(e)->batches); }

static void next(experiment *e, task_batch *out) {
    translation *s = translation_of(e);
    const batch *b = batcher_next(s->batches);
    feed_batch(e->plan, &s->symbols, b);
    *out = (task_batch){.items = b->n_src + b->n_tgt,
                        .samples = b->n,
                        .targets = b->n_tgt,
                        .epoch = b->last ? b->epoch + 1 : b->epoch,
                        .index = b->last ? 0 : b->index + 1};
}

static int seek(experiment *e, int64_t epoch, int64_t index) {
    return batcher_seek(translation_of(e)->batches, epoch, index);
}

/* ---- scores ---- */

#define BLEU_13A_SIGNATURE "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" BLEU_VERSION
enum { LOSS, NLL, PERPLEXITY, ACCURACY, EXACT, BLEU, BLEU_13A, METRICS };
static const metric metrics[METRICS] = {
    [LOSS] = {"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true, NULL},
    [NLL] = {"nll", "nll", "negative log-likelihood per token", "", 1, 4, METRIC_LOWER, false, NULL},
    [PERPLEXITY] = {"ppl", "perplexity", "perplexity", "", 1, 3, METRIC_LOWER, false, NULL},
    [ACCURACY] = {"accuracy", "next token right", "next tokens that are right", "%", 100, 1, METRIC_HIGHER, false,
                  NULL},
    [EXACT] = {"exact", "exact", "exact translations", "%", 100, 1, METRIC_HIGHER, true, NULL},
    [BLEU] = {"bleu", "BLEU", "BLEU", "", 1, 2, METRIC_HIGHER, true, BLEU_TOKENS_SIGNATURE},
    [BLEU_13A] = {"bleu_13a", "BLEU 13a", "BLEU of the text, detokenized", "", 1, 2, METRIC_HIGHER, true,
                  BLEU_13A_SIGNATURE},
};

static bool measures(const recipe *r, int i) {
    return i != BLEU_13A || translation_scores_text(translation_settings_of(r));
}

static int64_t count(const experiment *e, task_split split) { return translation_of(e)->text[split].n; }

/* Stores the four sums of the loss for each batch of this rank. */
static int score_batches(experiment *e, batcher *b, int64_t batches, double *sums) {
    translation *s = translation_of(e);
    for (int64_t i = 0; i < batches; i++) {
        const batch *x = batcher_next(b);
        if (!experiment_is_mine(e, i)) continue;
        feed_batch(s->score_plan, &s->score_symbols, x);
        nn_plan_forward(s->score_plan);
        if (nn_plan_wait(s->score_plan)) return -1;
        experiment_progress(e, "scoring batch", i + 1, batches);
        const float *loss = nn_plan_data(s->score_plan, "loss");
        for (int k = 0; k < 4; k++) sums[4 * i + k] = (double)loss[k];
    }
    return 0;
}

/* Scores the first batches of a split; 0: all. */
static int score(experiment *e, int split, int64_t batches, task_result *out) {
    translation *s = translation_of(e);
    batcher *b = NULL;
    if (s->pairs[split].n == 0 || !s->score_plan) return 0;
    int failed = held_out_batches(e, split, &b);
    if (!failed && (batches == 0 || batches > batcher_steps(b))) batches = batcher_steps(b);
    double sums[4] = {0}, *each = failed ? NULL : calloc((size_t)batches * 4, sizeof *each);
    if (!failed && !each) failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for scores");
    if (!failed) failed = score_batches(e, b, batches, each);
    failed = comm_agree(e->comm, failed);
    if (b) batcher_free(b);
    if (!failed) comm_add(e->comm, each, 4 * batches);
    for (int64_t i = 0; !failed && i < 4 * batches; i++) sums[i % 4] += each[i];
    free(each);
    if (failed) return -1;
    out->value[LOSS] = sums[0] / sums[3];
    out->value[NLL] = sums[1] / sums[3];
    out->value[PERPLEXITY] = exp(out->value[NLL]);
    out->value[ACCURACY] = sums[2] / sums[3];
    out->items = sums[3];
    return 0;
}

static int evaluate(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation_verdict v;
    *out = (task_result){0};
    for (int i = 0; i < TASK_MOST_METRICS; i++) out->value[i] = NAN;
    if (score(e, split, depth == TASK_GLANCE ? 1 : 0, out)) return -1;
    const int64_t pairs = depth == TASK_WHOLE ? INT64_MAX : depth == TASK_PERIODIC ? r->train.evaluate_pairs : 0;
    if (pairs == 0 || !translation_of(e)->decoder) return 0;
    if (translation_judge(e, split, pairs, sample, context, &v)) return -1;
    out->value[EXACT] = v.exact;
    out->value[BLEU] = v.bleu;
    out->value[BLEU_13A] = v.bleu_13a;
    out->samples = v.sentences;
    out->seconds = v.seconds;
    return 0;
}

/* ---- the tables ---- */

/* Its meaning is in the tables of words; with model.share some are the same. */
static const task_model transformer = {"transformer", &transformer_keys, translation_check_transformer,
                                       .meaning = "*embedding.weight,decoder.output.weight"};
static const task_model *const models[] = {&transformer, NULL};

static int kept(const recipe *r, task_kept out[TASK_MOST_KEPT]) {
    const translation_settings *s = translation_settings_of(r);
    out[0] = (task_kept){"data.vocabularies", s->data.vocabularies, ""};
    out[1] = (task_kept){"data.bpe", s->data.bpe, "/bpe.codes"};
    return 2;
}

static const char *const subtitle[] = {"model.kind",  "model.layers",   "model.d",         "model.ffn",
                                       "model.heads", "data.sentences", "data.max_tokens", NULL};

#define TRANSLATION                                                                                                    \
    .items = "tokens", .samples = "sentences", .answers = "Translations", .limit = "train.evaluate_pairs",             \
    .subtitle = subtitle, .models = models, .metrics = metrics, .n_metrics = METRICS, .measures = measures,            \
    .answer = TASK_TRANSLATES, .open = open_translation, .close = close_translation, .build = build,                   \
    .prepare = prepare, .batches = batches, .next = next, .seek = seek, .count = count, .evaluate = evaluate,          \
    .save = translation_save, .saves = (const char *const[]){"source.vocab", "target.vocab", "bpe.codes", NULL},       \
    .fingerprint = translation_fingerprint, .describe = translation_describe, .data = translation_data,                \
    .note = translation_note, .bench = &translation_bench, .vocabulary_key = "data.vocabularies",                      \
    .other_meaning = "another vocabulary"

const task task_bitext = {.name = "bitext",
                          .about = "translation of your own text",
                          .keys = translation_bitext_keys,
                          .check = translation_check_bitext,
                          .kept = kept,
                          TRANSLATION};
const task task_numbers = {.name = "numbers",
                           .about = "German number words to English",
                           .keys = translation_numbers_keys,
                           .check = translation_check_numbers,
                           .generates = true,
                           TRANSLATION};
