#include "tasks/language.h"

#include "core/error.h"
#include "support/clock.h"
#include "data/shuffle.h"
#include "models/lstm.h"
#include "train/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

#define S language_settings
static const key_spec keys[] = {
    CHOICE_KEY(S, data.set, "generated", "generated text ptb", STRICT,
               "a language of known entropy, files, or Penn Treebank, which is text"),
    PATH_KEY(S, data.path, LOOSE, "text: the directory of the files; ptb: not given, what `adamod data prepare` made"),
    TEXT_KEY(S, data.train_file, "train.txt", LOOSE, "text: training file"),
    TEXT_KEY(S, data.valid_file, "valid.txt", LOOSE, "text: validation file"),
    TEXT_KEY(S, data.test_file, "test.txt", LOOSE, "text: test file; empty: none"),
    ENUM_KEY(S, data.tokens, "words", "words characters subwords", STRICT, "text: what a token is"),
    PATH_KEY(S, data.bpe, LOOSE, "subwords: file of BPE codes; if not given, learned from the training text"),
    WHOLE_KEY(S, data.merges, "10000", 1, 10000000, STRICT, "subwords: number of BPE codes to learn"),
    PATH_KEY(S, data.vocabularies, LOOSE,
             "text: a run to take vocabulary and codes from, instead of the training text"),
    SWITCH_KEY(S, data.eos, "true", STRICT, "text: the end of a line is a token, <eos>"),
    WHOLE_KEY(S, data.min_count, "1", 1, KEY_MOST_INT, STRICT, "text: tokens seen less often become <unk>"),
    WHOLE_KEY(S, data.max_vocab, "0", 0, 1e8, STRICT,
              "text: size of the vocabulary, including <eos> and <unk>; 0: all tokens"),
    WHOLE_KEY(S, data.words, "16", 1, 1e6, STRICT, "generated: size of the vocabulary"),
    WHOLE_KEY(S, data.branches, "4", 1, 32, STRICT,
              "generated: number of words that can follow, each half as likely as the one before"),
    WHOLE_KEY(S, data.order, "2", 1, 2, STRICT, "generated: number of words that the next one depends on"),
    WHOLE_KEY(S, data.train, "200000", 2, 1e9, STRICT, "generated: words of training text"),
    WHOLE_KEY(S, data.valid, "10000", 2, 1e9, STRICT, "generated: words of validation text"),
    WHOLE_KEY(S, data.test, "20000", 0, 1e9, STRICT, "generated: words of test text"),
    WHOLE_KEY(S, data.seed, "1", 0, KEY_MOST_SEED, STRICT, "seed of the generated language"),
    WHOLE_KEY(S, data.batch, "20", 1, 1e6, STRICT, "number of columns that the training text is cut into"),
    WHOLE_KEY(S, data.valid_batch, "10", 1, 1e6, STRICT, "the same for the validation text"),
    WHOLE_KEY(S, data.test_batch, "1", 1, 1e6, STRICT, "the same for the test text"),
    WHOLE_KEY(S, data.length, "70", 1, 100000, STRICT, "mean number of time steps in a batch"),
    REAL_KEY(S, data.halved, "0.05", 0, 1, false, STRICT, "probability that this mean is halved for a batch"),
    REAL_KEY(S, data.spread, "5", 0, 10000, false, STRICT, "standard deviation of the number of time steps"),
    WHOLE_KEY(S, data.shortest, "5", 1, 100000, STRICT, "fewest time steps in a batch, except at the end of an epoch"),
    SWITCH_KEY(S, data.scale_lr, "true", STRICT, "multiply a batch's learning rate by its time steps / data.length"),
    WHOLE_KEY(S, data.score_length, "70", 1, 100000, LOOSE, "time steps in a batch of an evaluation"),
    WHOLE_KEY(S, generate.samples, "3", 0, 1000, LOOSE, "number of texts that the trained model writes for the report"),
    WHOLE_KEY(S, generate.prompt, "10", 1, 100000, LOOSE, "held-out tokens that each of these texts continues"),
    WHOLE_KEY(S, generate.tokens, "80", 1, 1e9, LOOSE, "number of tokens to write"),
    REAL_KEY(S, generate.temperature, "1", 0, 1000, false, LOOSE,
             "log-probabilities are divided by it; 0: always the likeliest token"),
    WHOLE_KEY(S, generate.top_k, "0", 0, 1e9, LOOSE, "draw only from this many of the likeliest tokens; 0: all"),
    REAL_KEY(S, generate.top_p, "1", 0, 1, false, LOOSE,
             "draw only from the likeliest tokens that together have this probability"),
    WHOLE_KEY(S, generate.seed, "1", 0, KEY_MOST_SEED, LOOSE, "seed of the draws"),
};
#undef S
static const key_table table = {keys, sizeof keys / sizeof *keys, sizeof(language_settings)};

/* ---- checks of several keys ---- */

static const char *check_generated(const language_settings *r) {
    if (r->data.tokens != LANGUAGE_WORDS)
        return task_refuse("data.tokens", "data.tokens is %s, expected words, which data.set generated is made of",
                           r->data.tokens == LANGUAGE_CHARACTERS ? "characters" : "subwords");
    if (*r->data.vocabularies)
        return task_refuse("data.vocabularies", "data.vocabularies is given, but data.set generated has its own");
    if (r->data.branches <= r->data.words) return NULL;
    return task_refuse("data.branches", "data.branches is %d, expected at most data.words, %d", r->data.branches,
                       r->data.words);
}

static const char *check_vocabulary(const language_settings *r) {
    if (*r->data.bpe && r->data.tokens != LANGUAGE_SUBWORDS)
        return task_refuse("data.bpe", "data.bpe is given, but data.tokens is %s, expected subwords",
                           r->data.tokens == LANGUAGE_WORDS ? "words" : "characters");
    if (*r->data.bpe && *r->data.vocabularies)
        return task_refuse("data.bpe", "data.bpe is given, but the run of data.vocabularies has codes of its own");
    if (r->data.max_vocab != 1 && r->data.max_vocab != 2) return NULL;
    return task_refuse("data.max_vocab", "data.max_vocab is %d, expected 0 or more than 2, <eos> and <unk>",
                       r->data.max_vocab);
}

/* Penn Treebank has fixed file names. */
static const char *check_ptb(const language_settings *r) {
    static const char *const usual[SPLITS] = {"train.txt", "valid.txt", "test.txt"};
    static const char *const keys_of[SPLITS] = {"data.train_file", "data.valid_file", "data.test_file"};
    const char *const given[SPLITS] = {r->data.train_file, r->data.valid_file, r->data.test_file};
    for (int split = 0; split < SPLITS; split++) {
        if (strcmp(given[split], usual[split]) == 0 || strcmp(given[split], language_file(r, split)) == 0) continue;
        return task_refuse(keys_of[split], "%s is '%s', but data.set ptb reads %s", keys_of[split], given[split],
                           language_file(r, split));
    }
    return NULL;
}

static const char *check_task(const recipe *whole) {
    const language_settings *r = language_settings_of(whole);
    const bool generated = language_is_generated(whole), ptb = strcmp(r->data.set, "ptb") == 0;
    const char *empty = !*r->data.train_file ? "data.train_file" : !*r->data.valid_file ? "data.valid_file" : NULL;
    if (generated && *r->data.path)
        return task_refuse("data.path", "data.path is given, but data.set generated reads no files");
    if (!generated && !ptb && !*r->data.path)
        return task_refuse("data.path", "data.path is not given; data.set text needs it");
    if (!generated && empty) return task_refuse(empty, "%s is empty; data.set text needs it", empty);
    const char *path = generated ? check_generated(r) : ptb ? check_ptb(r) : NULL;
    return path ? path : check_vocabulary(r);
}

/* One table of words serves both ends of the model. */
static void meaning(const recipe *r, char *out, size_t size) {
    (void)r;
    snprintf(out, size, "embedding.weight,decoder.bias");
}

static const task_model lstm = {"lstm", &lstm_keys, .meaning = meaning};
static const task_model *const models[] = {&lstm, NULL};

/* ---- lengths ---- */

/* The number of columns and of time steps of a split; the last word of a column is only a target. */
static int64_t columns_of(const language_settings *r, int split) {
    return split == SPLIT_TRAIN ? r->data.batch : split == SPLIT_VALID ? r->data.valid_batch : r->data.test_batch;
}
static int64_t steps_of(const experiment *e, int split) {
    return language_of(e)->n[split] / columns_of(language_settings_of(&e->recipe), split) - 1;
}

enum { DRAW_LENGTHS = 0x6c656e67, ORDER_LENGTHS };

static int64_t draw_length(const language_settings *r, uint64_t seed, int64_t i) {
    const bool half = nn_uniform(nn_key(seed, 1, DRAW_LENGTHS), (uint64_t)i) < r->data.halved;
    const double normal = nn_normal(nn_key(seed, 2, DRAW_LENGTHS), (uint64_t)i);
    const double length = r->data.length / (half ? 2. : 1.) + r->data.spread * normal;
    return length > r->data.shortest ? (int64_t)length : r->data.shortest;
}

/* Draws lengths up to the end of the text; the last batch has the rest. */
static int draw_lengths(experiment *e) {
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
    const int64_t columns = columns_of(language_settings_of(&e->recipe), split);
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
                     columns_of(r, split));
    return loss;
}

static int prepare(experiment *e, int uses) {
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1, .pool = e->pool};
    const int64_t most = language_settings_of(&e->recipe)->data.score_length;
    language *s = language_of(e);
    for (int split = SPLIT_VALID; (uses & TASK_SCORE) && split < SPLITS; split++) {
        language_scoring *x = &s->scoring[split];
        if (s->n[split] == 0) continue;
        const int64_t steps = steps_of(e, split);
        if (!(x->graph = nn_graph_create(e->params)))
            return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a graph");
        build_graph(e, x->graph, split, steps < most ? steps : most, &x->rows);
        if (nn_plan_create(&x->plan, x->graph, &o)) return -1;
    }
    return 0;
}

/* ---- open and close ---- */

static void close_language(experiment *e) {
    language *s = language_of(e);
    if (!s) return;
    for (int split = 0; split < SPLITS; split++) {
        nn_plan_free(s->scoring[split].plan);
        nn_graph_free(s->scoring[split].graph);
        free(s->text[split]);
    }
    vocab_free(s->vocab);
    subword_codes_close(&s->codes);
    free(s->drawn);
    free(s->lengths);
    free(s);
    e->state = NULL;
}

static int open_language(experiment *e, const char *directory, int uses) {
    language *s = e->state = calloc(1, sizeof *s);
    if (!s) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the task");
    s->ordered_epoch = -1;
    int failed = language_load(e, directory, uses);
    if (!failed && !directory) failed = draw_lengths(e);
    if (failed) close_language(e);
    return failed ? -1 : 0;
}

static int save(const experiment *e, const char *directory) {
    const language *s = language_of(e);
    if (s->vocab && vocab_save(s->vocab, task_file(directory, "words.vocab").text)) return -1;
    return s->codes.text ? subword_codes_save(&s->codes, task_file(directory, "bpe.codes").text) : 0;
}

static int kept(const recipe *r, task_kept out[TASK_MOST_KEPT]) {
    out[0] = (task_kept){"data.vocabularies", language_settings_of(r)->data.vocabularies, ""};
    return 1;
}

static uint64_t fingerprint(const experiment *e) {
    const language *s = language_of(e);
    uint64_t hash = fingerprint_names(FINGERPRINT_NAMES, &s->words, sizeof s->words);
    for (int32_t i = 0; s->vocab && i < vocab_size(s->vocab); i++) {
        const text_slice token = vocab_token(s->vocab, i);
        hash = fingerprint_names(hash, token.bytes, token.n + 1);
    }
    return s->codes.text ? fingerprint_names(hash, s->codes.text, strlen(s->codes.text)) : hash;
}

static int data_parts(const experiment *e, task_part *out) {
    static const char *const names[2][SPLITS] = {{"data.train_file", "data.valid_file", "data.test_file"},
                                                 {"data.train", "data.valid", "data.test"}};
    const language *s = language_of(e);
    const bool generated = language_is_generated(&e->recipe);
    int n = subword_codes_part(&s->codes, language_settings_of(&e->recipe)->data.bpe, out);
    for (int split = 0; split < SPLITS; split++) {
        if (s->n[split] == 0) continue;
        out[n++] =
            (task_part){(task_split)split, names[generated][split],
                        generated ? "" : language_file(language_settings_of(&e->recipe), split), s->hash[split], 0};
    }
    return n;
}

static void describe(const experiment *e, task_fact fact, void *context) {
    const double entropy = language_entropy(&e->recipe);
    char text[64];
    snprintf(text, sizeof text, "%d tokens", language_of(e)->words);
    fact(context, "vocabulary", text);
    if (isnan(entropy)) return;
    snprintf(text, sizeof text, "%.4f", exp(entropy));
    fact(context, "best perplexity", text);
}

/* Columns are equally long, so the last tokens may be unused. */
static bool note(const experiment *e, task_split split, char *out, size_t size) {
    const language_settings *r = language_settings_of(&e->recipe);
    const int64_t n = language_of(e)->n[split], columns = columns_of(r, split),
                  unknown = language_of(e)->unknown[split];
    char used[128] = "", strange[64] = "";
    if ((n % columns == 0 && unknown == 0) || language_is_generated(&e->recipe)) return false;
    if (n % columns)
        snprintf(used, sizeof used, "uses %lld of %lld tokens, in %lld columns of equal length%s",
                 (long long)(n - n % columns), (long long)n, (long long)columns, unknown ? "; " : "");
    if (unknown)
        snprintf(strange, sizeof strange, "%lld of %lld tokens not in the vocabulary", (long long)unknown,
                 (long long)n);
    snprintf(out, size, "%.*s: %s%s", RECIPE_PATH, language_file(r, split), used, strange);
    return true;
}

/* ---- batches ---- */

/* Copies time steps first .. first + n - 1 of a split into a plan's inputs. */
static void feed(const experiment *e, nn_plan *plan, int rows, int split, int64_t first, int64_t n, bool carried) {
    const int64_t columns = columns_of(language_settings_of(&e->recipe), split), height = steps_of(e, split) + 1;
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

static int64_t batches(const experiment *e) { return language_of(e)->batches; }

static void next(experiment *e, task_batch *out) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    order_epoch(s, e->recipe.train.seed);
    const int64_t length = s->lengths[s->index], tokens = length * r->data.batch;
    feed(e, e->plan, s->rows, SPLIT_TRAIN, s->place, length, s->index > 0);
    s->place += length;
    if (++s->index == s->batches) s->index = 0, s->place = 0, s->epoch++;
    *out = (task_batch){.items = tokens, .samples = tokens, .targets = tokens, .epoch = s->epoch, .index = s->index};
    if (r->data.scale_lr) out->lr_factor = (double)length / r->data.length;
}

static int seek(experiment *e, int64_t epoch, int64_t index) {
    language *s = language_of(e);
    if (epoch < 0 || index < 0 || index >= s->batches)
        return adamod__refuse(
            "the checkpoint is at batch %lld of an epoch, but an epoch has %lld batches: have the data changed?",
            (long long)index, (long long)s->batches);
    s->epoch = epoch;
    s->index = index;
    s->place = 0;
    order_epoch(s, e->recipe.train.seed);
    for (int64_t i = 0; i < index; i++) s->place += s->lengths[i];
    return 0;
}

/* ---- scores ---- */

enum { LOSS, PERPLEXITY, BITS, METRICS };
static const metric metrics[METRICS] = {
    [LOSS] = {"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true, NULL},
    [PERPLEXITY] = {"perplexity", "perplexity", "perplexity", "", 1, 2, METRIC_LOWER, true, NULL},
    [BITS] = {"bits", "bits", "bits for each character", "", 1, 3, METRIC_LOWER, false, NULL},
};

static int64_t count(const experiment *e, task_split split) { return language_of(e)->n[split]; }

static int evaluate(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out) {
    const language_settings *r = language_settings_of(&e->recipe);
    const language_scoring *x = &language_of(e)->scoring[split];
    const int64_t length = r->data.score_length, all = count(e, split) > 0 ? steps_of(e, split) : 0;
    const int64_t steps = depth == TASK_GLANCE && all > length ? length : all;
    const double start = clock_seconds();
    double sum = 0;
    *out = (task_result){0};
    for (int i = 0; i < TASK_MOST_METRICS; i++) out->value[i] = NAN;
    if (steps == 0 || !x->plan) return 0;
    for (int64_t at = 0; at < steps; at += length) {
        const int64_t n = steps - at < length ? steps - at : length;
        feed(e, x->plan, x->rows, split, at, n, at > 0);
        nn_plan_forward(x->plan);
        if (nn_plan_wait(x->plan)) return -1;
        sum += (double)*(const float *)nn_plan_data(x->plan, "loss");
        experiment_progress(e, "tokens", (at + n) * columns_of(r, split), steps * columns_of(r, split));
    }
    out->items = (double)(steps * columns_of(r, split));
    out->samples = steps * columns_of(r, split);
    out->seconds = clock_seconds() - start;
    out->value[LOSS] = sum / out->items;
    out->value[PERPLEXITY] = exp(out->value[LOSS]);
    if (r->data.tokens == LANGUAGE_CHARACTERS) out->value[BITS] = out->value[LOSS] / log(2);
    return sample && depth == TASK_WHOLE ? language_samples(e, split, sample, context) : 0;
}

/* ---- the table ---- */

static const key_table *const tables[] = {&table, NULL};
static const char *const subtitle[] = {"model.kind",  "model.layers", "model.embedding", "model.hidden",
                                       "data.tokens", "data.batch",   "data.length",     NULL};
const task task_language = {.name = "language",
                            .about = "the next word of a text",
                            .items = "tokens",
                            .samples = "tokens",
                            .keys = tables,
                            .models = models,
                            .answer = TASK_WRITES,
                            .metrics = metrics,
                            .n_metrics = METRICS,
                            .check = check_task,
                            .vocabulary_key = "data.vocabularies",
                            .kept = kept,
                            .other_meaning = "another vocabulary",
                            .answers = "Generated text",
                            .subtitle = subtitle,
                            .carries = true,
                            .open = open_language,
                            .close = close_language,
                            .build = build,
                            .prepare = prepare,
                            .batches = batches,
                            .next = next,
                            .seek = seek,
                            .count = count,
                            .evaluate = evaluate,
                            .save = save,
                            .saves = (const char *const[]){"words.vocab", "bpe.codes", NULL},
                            .fingerprint = fingerprint,
                            .describe = describe,
                            .data = data_parts,
                            .note = note,
                            .bench = &language_bench};
