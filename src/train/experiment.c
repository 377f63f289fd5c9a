#include "experiment.h"

#include "bleu.h"
#include "checkpoint.h"
#include "internal.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fail_status(adamod_status status, char *message, size_t size) {
    if (!status) return 0;
    const char *text = adamod_last_error();
    return text_fail(message, size, "%s", strncmp(text, "adamod: ", 8) == 0 ? text + 8 : text);
}

/* ---- data ---- */

static int read_bitext(experiment *s, int split, const char *source, const char *target, char *message, size_t size) {
    const recipe *r = &s->recipe;
    const corpus_options o = {.unit = s->unit,
                              .empty = r->data.skip_empty ? CORPUS_SKIP : CORPUS_REFUSE,
                              .max_tokens = r->data.max_length,
                              .too_long = split == SPLIT_TRAIN ? CORPUS_SKIP : CORPUS_TRUNCATE,
                              .max_ratio = split == SPLIT_TRAIN ? r->data.max_ratio : 0};
    return corpus_bitext(&s->text[split], source, target, &o, message, size);
}

bool experiment_text_note(const experiment *s, int split, char *out, size_t size) {
    const recipe *r = &s->recipe;
    const char *const sources[] = {r->data.source, r->data.valid_source, r->data.test_source};
    const corpus_report *c = &s->text[split].report;
    const struct {
        int64_t n;
        const char *what;
        double limit;
    } parts[] = {{c->empty, "empty", 0},
                 {c->ratio, "beyond data.max_ratio", r->data.max_ratio},
                 {c->too_long, "longer than data.max_length", r->data.max_length},
                 {c->truncated, "cut to data.max_length", r->data.max_length}};
    if (c->empty + c->ratio + c->too_long + c->truncated == 0) return false;
    int used = snprintf(out, size, "%.*s: used %lld of %lld pairs", RECIPE_PATH, sources[split],
                        (long long)s->text[split].n, (long long)c->lines);
    const char *before = ": ";
    for (size_t i = 0; i < sizeof parts / sizeof *parts && (size_t)used < size; i++) {
        if (parts[i].n == 0) continue;
        used += snprintf(out + used, size - (size_t)used, "%s%lld %s", before, (long long)parts[i].n, parts[i].what);
        if (parts[i].limit > 0 && (size_t)used < size)
            used += snprintf(out + used, size - (size_t)used, " %g", parts[i].limit);
        before = ", ";
    }
    return true;
}

static bool is_numbers(const recipe *r) { return strcmp(r->data.task, "numbers") == 0; }

/* train: training text too. What is held out does not depend on how many numbers are for training. */
static int load_text(experiment *s, bool train, char *message, size_t size) {
    const recipe *r = &s->recipe;
    if (is_numbers(r)) {
        return corpus_numbers(r->data.seed, train ? r->data.train : 1, r->data.valid, r->data.test,
                              &s->text[SPLIT_TRAIN], &s->text[SPLIT_VALID], &s->text[SPLIT_TEST], message, size);
    }
    if (train && read_bitext(s, SPLIT_TRAIN, r->data.source, r->data.target, message, size)) return -1;
    if (read_bitext(s, SPLIT_VALID, r->data.valid_source, r->data.valid_target, message, size)) return -1;
    if (!*r->data.test_source) return 0;
    return read_bitext(s, SPLIT_TEST, r->data.test_source, r->data.test_target, message, size);
}

static int check_vocabulary(const experiment *s, const vocab *v, char *message, size_t size) {
    if (vocab_size(v) > VOCAB_SPECIALS) return 0;
    return text_fail(message, size, "the vocabulary is empty: no token is seen data.min_count %d times",
                     s->recipe.data.min_count);
}

static int make_vocabularies(experiment *s, char *message, size_t size) {
    const vocab_options o = {.min_count = s->recipe.data.min_count, .max_size = s->recipe.data.max_vocab};
    const corpus_text *train = &s->text[SPLIT_TRAIN];
    if (s->recipe.data.joint) {
        if (corpus_vocab(train, CORPUS_SOURCE | CORPUS_TARGET, &o, &s->src_vocab, message, size)) return -1;
        s->tgt_vocab = s->src_vocab;
    } else if (corpus_vocab(train, CORPUS_SOURCE, &o, &s->src_vocab, message, size) ||
               corpus_vocab(train, CORPUS_TARGET, &o, &s->tgt_vocab, message, size)) {
        return -1;
    }
    return check_vocabulary(s, s->src_vocab, message, size) || check_vocabulary(s, s->tgt_vocab, message, size);
}

static int load_vocabularies(experiment *s, const char *directory, char *message, size_t size) {
    char path[1100];
    snprintf(path, sizeof path, "%s/source.vocab", directory);
    if (vocab_load(&s->src_vocab, path, message, size)) return -1;
    if (s->recipe.data.joint) {
        s->tgt_vocab = s->src_vocab;
        return 0;
    }
    snprintf(path, sizeof path, "%s/target.vocab", directory);
    return vocab_load(&s->tgt_vocab, path, message, size);
}

static int encode_text(experiment *s, char *message, size_t size) {
    for (int i = 0; i < SPLITS; i++) {
        if (s->text[i].n == 0) continue;
        if (corpus_encode(&s->pairs[i], &s->text[i], s->src_vocab, s->tgt_vocab, message, size)) return -1;
    }
    return 0;
}

/* With the vocabularies of a run's directory, or NULL for those of the training text. */
static int open_text(experiment *s, const char *directory, int uses, char *message, size_t size) {
    s->unit = is_numbers(&s->recipe) || strcmp(s->recipe.data.tokens, "words") != 0 ? TEXT_CHARACTERS : TEXT_WORDS;
    if ((!directory || (uses & EXPERIMENT_SCORE)) && load_text(s, !directory, message, size)) return -1;
    if (directory ? load_vocabularies(s, directory, message, size) : make_vocabularies(s, message, size)) return -1;
    return encode_text(s, message, size);
}

/* ---- model ---- */

static void configure(experiment *s) {
    const recipe *r = &s->recipe;
    s->config = (transformer_config){.encoder_layers = r->model.layers,
                                     .decoder_layers = r->model.layers,
                                     .d = r->model.d,
                                     .ffn = r->model.ffn,
                                     .heads = r->model.heads,
                                     .pre_norm = r->model.pre_norm,
                                     .share_all = r->model.share_all,
                                     .tie_output = r->model.tie_output,
                                     .dropout = r->model.dropout,
                                     .attention_dropout = r->model.attention_dropout,
                                     .smoothing = r->model.smoothing,
                                     .src_vocab = vocab_size(s->src_vocab),
                                     .tgt_vocab = vocab_size(s->tgt_vocab)};
}

static transformer_sizes sizes_of(batch_shape shape) { return (transformer_sizes){shape.n_src, shape.n_tgt, shape.n}; }

static batch_policy policy_of(const recipe *r, bool shuffle) {
    return (batch_policy){.sentences = r->data.sentences, .tokens = r->data.max_tokens, .shuffle = shuffle};
}

adamod_status experiment_cuda_status(void) {
    const adamod_status status = adamod_cuda_status();
    return status ? status : nn_device_status("cuda");
}

static const char *device_of(const recipe *r) {
    if (strcmp(r->train.backend, "auto") != 0) return r->train.backend;
    return experiment_cuda_status() ? "cpu" : "cuda";
}

static nn_precision precision_of(const recipe *r) {
    if (strcmp(r->train.precision, "full") == 0) return NN_FULL;
    return strcmp(r->train.precision, "tf32") == 0 ? NN_TF32 : NN_MIXED;
}

/* The first graph built defines the parameters; it is the training graph even where only others are run. */
static int make_params(experiment *s, batch_shape shape, nn_value *loss, char *message, size_t size) {
    const transformer_sizes sizes = sizes_of(shape);
    s->params = nn_params_create();
    s->graph = s->params ? nn_graph_create(s->params) : NULL;
    if (!s->graph) return text_fail(message, size, "no memory for the model");
    *loss = transformer_training(s->graph, &s->config, &sizes, &s->symbols);
    if (nn_params_allocate(s->params, s->recipe.train.seed))
        return text_fail(message, size, "no memory for %lld parameters", (long long)nn_params_total(s->params));
    return fail_status(nn_params_place(s->params, device_of(&s->recipe), precision_of(&s->recipe)), message, size);
}

static int make_model(experiment *s, batch_shape shape, char *message, size_t size) {
    nn_value loss;
    if (make_params(s, shape, &loss, message, size)) return -1;
    const nn_plan_options o = {.backend = s->recipe.train.backend, .loss = loss, .pool = s->pool, .training = true};
    return fail_status(nn_plan_create(&s->plan, s->graph, &o), message, size);
}

/* A gradient that is not finite is as bad as a loss, so the library is told the same; unless the recipe tells it itself.
 */
static adamod_status guard_gradients(experiment *s) {
    const recipe *r = &s->recipe;
    for (int i = 0; i < r->optimizer.n_options; i++) {
        if (strcmp(r->optimizer.option[i].key, "nonfinite") == 0) return ADAMOD_OK;
    }
    return adamod_set_text(s->optimizer, "nonfinite", strcmp(r->train.nonfinite, "skip") == 0 ? "skip" : "error");
}

static int make_optimizer(experiment *s, char *message, size_t size) {
    if (recipe_optimizer(&s->recipe, nn_params_device(s->params), &s->optimizer, message, size)) return -1;
    adamod_status status = guard_gradients(s);
    if (!status) status = adamod_set_pool(s->optimizer, s->pool);
    if (!status && s->params->place) status = adamod_set_stream(s->optimizer, nn_params_stream(s->params));
    for (int i = 0; !status && i < s->params->n; i++) {
        const nn_param *p = &s->params->list[i];
        const nn_param_memory m = nn_params_memory(s->params, p);
        adamod_tensor t = {.name = p->name, .param = m.half ? m.half : m.data, .grad = m.grad, .ndim = p->ndim};
        if (m.half) t.param_type = ADAMOD_BF16, t.master = m.data;
        for (int d = 0; d < p->ndim; d++) t.shape[d] = p->shape[d];
        status = adamod_add_tensor(s->optimizer, 0, &t, NULL);
    }
    return fail_status(status, message, size);
}

/* ---- open and close ---- */

/* Batches of a held-out split, in an order of their own; none of the scoring depends on how they are cut. */
static int held_out_batches(const experiment *s, int split, batcher **out, char *message, size_t size) {
    const batch_policy policy = policy_of(&s->recipe, false);
    return batcher_create(out, &s->pairs[split], &policy, 0, message, size);
}

static void widen(batch_shape *most, batch_shape shape) {
    if (shape.n > most->n) most->n = shape.n;
    if (shape.n_src > most->n_src) most->n_src = shape.n_src;
    if (shape.n_tgt > most->n_tgt) most->n_tgt = shape.n_tgt;
}

static int open_scoring(experiment *s, char *message, size_t size) {
    for (int split = SPLIT_VALID; split < SPLITS; split++) {
        batcher *b;
        if (s->pairs[split].n == 0) continue;
        if (held_out_batches(s, split, &b, message, size)) return -1;
        widen(&s->score_shape, batcher_capacity(b));
        batcher_free(b);
    }
    if (s->score_shape.n == 0) return 0;
    const transformer_sizes sizes = sizes_of(s->score_shape);
    transformer_config config = s->config;
    s->score_graph = nn_graph_create(s->params);
    if (!s->score_graph) return text_fail(message, size, "no memory for a graph");
    transformer_training(s->score_graph, &config, &sizes, &s->score_symbols);
    const nn_plan_options o = {.backend = s->recipe.train.backend, .loss = -1, .pool = s->pool};
    return fail_status(nn_plan_create(&s->score_plan, s->score_graph, &o), message, size);
}

static int open_decoder(experiment *s, char *message, size_t size) {
    const recipe *r = &s->recipe;
    /* there are no more hypotheses than tokens at first */
    const int beam = r->decode.beam < s->config.tgt_vocab ? r->decode.beam : (int)s->config.tgt_vocab;
    const decode_options o = {.beam = beam,
                              .max_length = r->decode.max_length,
                              .length_penalty = r->decode.length_penalty,
                              .sentences = EXPERIMENT_LINES,
                              .src_tokens = (int64_t)(r->data.max_length + 1) * EXPERIMENT_LINES,
                              .start = VOCAB_START,
                              .end = VOCAB_END,
                              .backend = r->train.backend,
                              .pool = s->pool};
    return fail_status(decoder_create(&s->decoder, s->params, &s->config, &o), message, size);
}

static int open_training(experiment *s, char *message, size_t size) {
    const batch_policy policy = policy_of(&s->recipe, true);
    if (batcher_create(&s->batches, &s->pairs[SPLIT_TRAIN], &policy, s->recipe.train.seed, message, size)) return -1;
    return make_model(s, batcher_capacity(s->batches), message, size);
}

static int open_all(experiment *s, const recipe *r, const char *directory, int uses, char *message, size_t size) {
    nn_value unused;
    *s = (experiment){.recipe = *r};
    int failed = fail_status(adamod_pool_create(&s->pool, r->train.threads), message, size);
    if (!failed) failed = open_text(s, directory, uses, message, size);
    if (!failed) {
        configure(s);
        failed = directory ? make_params(s, (batch_shape){.n = 1, .n_src = 1, .n_tgt = 1}, &unused, message, size)
                           : open_training(s, message, size);
    }
    if (!failed && (uses & EXPERIMENT_TRAIN)) failed = make_optimizer(s, message, size);
    if (!failed && (uses & EXPERIMENT_SCORE)) failed = open_scoring(s, message, size);
    if (!failed && (uses & EXPERIMENT_DECODE)) failed = open_decoder(s, message, size);
    if (failed) experiment_close(s);
    return failed ? -1 : 0;
}

int experiment_open(experiment *s, const recipe *r, int uses, char *message, size_t size) {
    return open_all(s, r, NULL, uses, message, size);
}

int experiment_open_run(experiment *s, const recipe *r, const char *directory, int uses, char *message, size_t size) {
    return open_all(s, r, directory, uses, message, size);
}

void experiment_close(experiment *s) {
    decoder_free(s->decoder);
    nn_plan_free(s->score_plan);
    nn_graph_free(s->score_graph);
    adamod_free(s->optimizer);
    nn_plan_free(s->plan);
    nn_graph_free(s->graph);
    nn_params_free(s->params);
    batcher_free(s->batches);
    for (int i = 0; i < SPLITS; i++) {
        corpus_free(&s->pairs[i]);
        corpus_text_free(&s->text[i]);
    }
    if (s->tgt_vocab != s->src_vocab) vocab_free(s->tgt_vocab);
    vocab_free(s->src_vocab);
    adamod_pool_free(s->pool);
    *s = (experiment){0};
}

int experiment_save_vocab(const experiment *s, const char *directory, char *message, size_t size) {
    char path[1100];
    snprintf(path, sizeof path, "%s/source.vocab", directory);
    if (vocab_save(s->src_vocab, path, message, size)) return -1;
    snprintf(path, sizeof path, "%s/target.vocab", directory);
    return vocab_save(s->tgt_vocab, path, message, size);
}

uint64_t experiment_fingerprint(const experiment *s) {
    uint64_t hash = CHECKPOINT_HASH;
    const vocab *both[2] = {s->src_vocab, s->tgt_vocab};
    for (int v = 0; v < 2; v++) {
        for (int32_t i = 0; i < vocab_size(both[v]); i++) {
            const text_slice token = vocab_token(both[v], i);
            hash = checkpoint_hash(hash, token.bytes, token.n);
            hash = checkpoint_hash(hash, "\n", 1);
        }
    }
    return hash;
}

/* ---- running ---- */

void experiment_feed(nn_plan *plan, const transformer_symbols *symbols, const batch *b) {
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

int experiment_score_split(experiment *s, int split, int64_t batches, experiment_score *out, char *message,
                           size_t size) {
    batcher *b;
    *out = (experiment_score){0};
    if (s->pairs[split].n == 0 || !s->score_plan) return 0;
    if (held_out_batches(s, split, &b, message, size)) return -1;
    double sums[4] = {0};
    if (batches == 0 || batches > batcher_steps(b)) batches = batcher_steps(b);
    for (int64_t i = 0; i < batches; i++) {
        const batch *x = batcher_next(b);
        experiment_feed(s->score_plan, &s->score_symbols, x);
        nn_plan_forward(s->score_plan);
        const adamod_status status = nn_plan_wait(s->score_plan);
        if (status) {
            batcher_free(b);
            return fail_status(status, message, size);
        }
        const float *loss = nn_plan_data(s->score_plan, "loss");
        for (int k = 0; k < 4; k++) sums[k] += (double)loss[k];
    }
    batcher_free(b);
    *out = (experiment_score){sums[0] / sums[3], sums[1] / sums[3], sums[3], sums[2] / sums[3]};
    return 0;
}

/* A text's ids with the end mark, appended to ids at *n. */
static int append_source(const experiment *s, text_slice text, int32_t **ids, int64_t *n, int32_t range[2],
                         char *message, size_t size) {
    int64_t length = vocab_encode(s->src_vocab, s->unit, text, NULL, 0);
    const int64_t most = s->recipe.data.max_length > 0 ? s->recipe.data.max_length : length;
    if (length > most) length = most;
    int32_t *grown = realloc(*ids, (size_t)(*n + length + 1) * sizeof *grown);
    if (!grown) return text_fail(message, size, "no memory for a sentence of %lld tokens", (long long)length);
    *ids = grown;
    vocab_encode(s->src_vocab, s->unit, text, grown + *n, length);
    grown[*n + length] = VOCAB_END;
    range[0] = (int32_t)*n;
    range[1] = (int32_t)(*n += length + 1);
    return 0;
}

static int decode_texts(experiment *s, int n, const text_slice *lines, decode_result *results, char *message,
                        size_t size) {
    int32_t *ids = NULL, ranges[EXPERIMENT_LINES][2];
    int64_t total = 0;
    int failed = 0;
    for (int i = 0; !failed && i < n; i++) failed = append_source(s, lines[i], &ids, &total, ranges[i], message, size);
    if (!failed)
        failed = fail_status(decoder_run(s->decoder, n, ids, (const int32_t(*)[2])ranges, results), message, size);
    free(ids);
    return failed ? -1 : 0;
}

static char *output_text(const experiment *s, const decode_result *r) {
    const size_t n = vocab_decode(s->tgt_vocab, s->unit, r->tokens, r->length, NULL, 0) + 1;
    char *text = malloc(n);
    if (text) vocab_decode(s->tgt_vocab, s->unit, r->tokens, r->length, text, n);
    return text;
}

int experiment_translate(experiment *s, int n, const text_slice *lines, char **out, char *message, size_t size) {
    text_slice some[EXPERIMENT_LINES];
    int place[EXPERIMENT_LINES], count = 0;
    decode_result results[EXPERIMENT_LINES];
    for (int i = 0; i < n; i++) {
        if (text_count_tokens(s->unit, lines[i]) == 0) continue;
        place[count] = i;
        some[count++] = lines[i];
    }
    if (count && decode_texts(s, count, some, results, message, size)) return -1;
    for (int i = 0, k = 0; i < n; i++) {
        const bool decoded = k < count && place[k] == i;
        out[i] = decoded ? output_text(s, &results[k]) : strdup("");
        k += decoded;
    }
    return 0;
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The texts of a decoded pair, for the caller and for BLEU, which counts words. */
static int compare_pair(const experiment *s, int split, int64_t i, const decode_result *r, bleu *score,
                        experiment_each each, void *context, char *message, size_t size) {
    const text_slice source = corpus_sentence(&s->text[split].src, i),
                     reference = corpus_sentence(&s->text[split].tgt, i);
    char *output = output_text(s, r);
    if (!output || bleu_add(score, text_of(output), reference)) {
        free(output);
        return text_fail(message, size, "no memory to compare translations");
    }
    if (each) {
        char *a = strndup(source.bytes, source.n), *b = strndup(reference.bytes, reference.n);
        if (a && b) each(context, a, b, output);
        free(a);
        free(b);
    }
    free(output);
    return 0;
}

int experiment_decode_split(experiment *s, int split, int64_t n, experiment_each each, void *context,
                            experiment_quality *out, char *message, size_t size) {
    const double start = seconds_now();
    bleu score = {0};
    if (n == 0 || n > s->text[split].n) n = s->text[split].n;
    for (int64_t at = 0; at < n; at += EXPERIMENT_LINES) {
        text_slice lines[EXPERIMENT_LINES];
        decode_result results[EXPERIMENT_LINES];
        const int count = n - at < EXPERIMENT_LINES ? (int)(n - at) : EXPERIMENT_LINES;
        for (int i = 0; i < count; i++) lines[i] = corpus_sentence(&s->text[split].src, at + i);
        if (decode_texts(s, count, lines, results, message, size)) return -1;
        for (int i = 0; i < count; i++) {
            if (compare_pair(s, split, at + i, &results[i], &score, each, context, message, size)) return -1;
        }
    }
    *out = (experiment_quality){bleu_score(&score, BLEU_PLAIN), bleu_exact(&score), n, seconds_now() - start};
    return 0;
}
