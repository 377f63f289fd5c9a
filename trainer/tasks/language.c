#include "tasks/language.h"

#include "core/error.h"
#include "support/clock.h"
#include "models/gpt.h"
#include "models/lstm.h"
#include "tasks/gpt_folder.h"
#include "tasks/language_reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

#define S language_settings
static const key_spec keys[] = {
    ENUM_KEY(S, data.set, "generated",
             "generated text packed ptb tinyshakespeare tinystories fineweb-edu fineweb-edu-10b", STRICT,
             "a language of known entropy, files of text or of packed token ids, or a public data set of either"),
    PATH_KEY(S, data.path, LOOSE,
             "text, packed: the directory of the files; others: not given, what `adamod data prepare` made"),
    TEXT_KEY(S, data.train_file, "train.txt", LOOSE,
             "text: training file; packed: train.bin, or a pattern such as train_*.bin"),
    TEXT_KEY(S, data.valid_file, "valid.txt", LOOSE, "text: validation file; packed: val.bin"),
    TEXT_KEY(S, data.test_file, "test.txt", LOOSE, "text: test file; empty: none; packed: none"),
    ENUM_KEY(S, data.tokens, "words", "words characters subwords bytes", STRICT,
             "text: what a token is; bytes: byte-level BPE, as GPT-2's"),
    PATH_KEY(
        S, data.bpe, LOOSE,
        "subwords: file of BPE codes; bytes, packed: directory with vocab.json and merges.txt; if not given, learned "
        "from the training text"),
    WHOLE_KEY(S, data.merges, "10000", 1, 10000000, STRICT, "subwords, bytes: number of merges to learn"),
    PATH_KEY(S, data.vocabularies, LOOSE,
             "text: a run to take vocabulary and codes from, instead of the training text"),
    SWITCH_KEY(S, data.eos, "true", STRICT, "text: the end of a line is a token, <eos>"),
    WHOLE_KEY(S, data.min_count, "1", 1, KEY_MOST_INT, STRICT, "text: tokens seen less often become <unk>"),
    WHOLE_KEY(S, data.max_vocab, "0", 0, 1e8, STRICT,
              "text: size of the vocabulary, including <eos> and <unk>; 0: all tokens"),
    WHOLE_KEY(S, data.words, "16", 1, 1e6, STRICT, "generated, packed without data.bpe: size of the vocabulary"),
    WHOLE_KEY(S, data.branches, "4", 1, 32, STRICT,
              "generated: number of words that can follow, each half as likely as the one before"),
    WHOLE_KEY(S, data.order, "2", 1, 2, STRICT, "generated: number of words that the next one depends on"),
    WHOLE_KEY(S, data.train, "200000", 2, 1e9, STRICT, "generated: words of training text"),
    WHOLE_KEY(S, data.valid, "10000", 2, 1e9, STRICT, "generated: words of validation text"),
    WHOLE_KEY(S, data.test, "20000", 0, 1e9, STRICT, "generated: words of test text"),
    WHOLE_KEY(S, data.seed, "1", 0, KEY_MOST_SEED, STRICT, "seed of the generated language"),
    WHOLE_KEY(S, data.batch, "20", 1, 1e6, STRICT,
              "lstm: columns that the training text is cut into; gpt: windows in a batch"),
    WHOLE_KEY(S, data.valid_batch, "10", 1, 1e6, STRICT, "the same for the validation text"),
    WHOLE_KEY(S, data.test_batch, "1", 1, 1e6, STRICT, "the same for the test text"),
    WHOLE_KEY(S, data.length, "70", 1, 100000, STRICT,
              "lstm: mean number of time steps in a batch; gpt: tokens in a window"),
    REAL_KEY(S, data.halved, "0.05", 0, 1, false, STRICT, "lstm: probability that this mean is halved for a batch"),
    REAL_KEY(S, data.spread, "5", 0, 10000, false, STRICT, "lstm: standard deviation of the number of time steps"),
    WHOLE_KEY(S, data.shortest, "5", 1, 100000, STRICT,
              "lstm: fewest time steps in a batch, except at the end of an epoch"),
    SWITCH_KEY(S, data.scale_lr, "true", STRICT,
               "lstm: multiply a batch's learning rate by its time steps / data.length"),
    WHOLE_KEY(S, data.score_length, "0", 0, 100000, LOOSE,
              "lstm: time steps in a batch of an evaluation; gpt: tokens in a window of it; 0: data.length"),
    WHOLE_KEY(S, generate.samples, "3", 0, 1000, LOOSE, "number of texts that the trained model writes for the report"),
    WHOLE_KEY(S, generate.prompt, "10", 1, 100000, LOOSE, "held-out tokens that each of these texts continues"),
    WHOLE_KEY(S, generate.tokens, "80", 1, 1e9, LOOSE, "number of tokens to write"),
    REAL_KEY(S, generate.temperature, "1", 0, 1000, false, LOOSE,
             "log-probabilities are divided by it; 0: always the likeliest token"),
    WHOLE_KEY(S, generate.top_k, "0", 0, 1e9, LOOSE, "draw only from this many of the likeliest tokens; 0: all"),
    REAL_KEY(S, generate.top_p, "1", 0, 1, false, LOOSE,
             "draw only from the likeliest tokens that together have this probability"),
    WHOLE_KEY(S, generate.end, "-1", -1, 1e9, LOOSE, "number of the token that ends a text; -1: none"),
    WHOLE_KEY(S, generate.seed, "1", 0, KEY_MOST_SEED, LOOSE, "seed of the draws"),
};
#undef S
static const key_table table = {keys, sizeof keys / sizeof *keys, sizeof(language_settings)};

/* ---- checks of several keys ---- */

static const char *const token_names[] = {"words", "characters", "subwords", "bytes"};

static const char *check_generated(const language_settings *r) {
    if (r->data.tokens != LANGUAGE_WORDS)
        return task_refuse("data.tokens", "data.tokens is %s, expected words, which data.set generated is made of",
                           token_names[r->data.tokens]);
    if (*r->data.vocabularies)
        return task_refuse("data.vocabularies", "data.vocabularies is given, but data.set generated has its own");
    if (r->data.branches <= r->data.words) return NULL;
    return task_refuse("data.branches", "data.branches is %d, expected at most data.words, %d", r->data.branches,
                       r->data.words);
}

static const char *check_vocabulary(const recipe *whole) {
    const language_settings *r = language_settings_of(whole);
    if (*r->data.bpe && r->data.tokens != LANGUAGE_SUBWORDS && !language_is_bytes(whole))
        return task_refuse("data.bpe", "data.bpe is given, but data.tokens is %s, expected subwords or bytes",
                           token_names[r->data.tokens]);
    if (*r->data.bpe && *r->data.vocabularies)
        return task_refuse("data.bpe", "data.bpe is given, but the run of data.vocabularies has codes of its own");
    if (r->data.max_vocab != 1 && r->data.max_vocab != 2) return NULL;
    return task_refuse("data.max_vocab", "data.max_vocab is %d, expected 0 or more than 2, <eos> and <unk>",
                       r->data.max_vocab);
}

/* Public data sets have fixed file names, but evaluate --data reads any file, by its absolute path. A generated language has none. */
static const char *check_names(const language_settings *r) {
    static const char *const usual[SPLITS] = {"train.txt", "valid.txt", "test.txt"};
    static const char *const keys_of[SPLITS] = {"data.train_file", "data.valid_file", "data.test_file"};
    const char *const given[SPLITS] = {r->data.train_file, r->data.valid_file, r->data.test_file};
    for (int split = 0; split < SPLITS; split++) {
        const char *file = language_own_file(r, split);
        if (split == SPLIT_TEST && *given[split] == '/' && language_is_named(r)) continue;
        if (strcmp(given[split], usual[split]) == 0 || strcmp(given[split], file) == 0) continue;
        return task_refuse(keys_of[split], "%s is '%s', but data.set %s reads %s", keys_of[split], given[split],
                           language_set_name(r), *file ? file : "none");
    }
    return NULL;
}

/* The default of data.words is for generated languages. */
static bool has_words(const recipe *whole) {
    int i = 0;
    while (i < whole->n_given && strcmp(whole->given[i].path, "data.words") != 0) i++;
    return i < whole->n_given;
}

static const char *check_packed(const recipe *whole) {
    const language_settings *r = language_settings_of(whole);
    if (!language_reader_of(whole)->gpt)
        return task_refuse("data.set", "data.set is packed, which only model.kind gpt reads, not %s",
                           whole->model.kind);
    if (*r->data.bpe || *r->data.vocabularies || has_words(whole)) return NULL;
    return task_refuse("data.set",
                       "data.set is %s, which needs data.bpe, a vocabulary, or data.words, the number of ids",
                       language_set_name(r));
}

static const char *check_task(const recipe *whole) {
    const language_settings *r = language_settings_of(whole);
    const bool generated = language_is_generated(whole), named = language_is_named(r);
    const char *empty = !*r->data.train_file ? "data.train_file" : !*r->data.valid_file ? "data.valid_file" : NULL;
    if (generated && *r->data.path)
        return task_refuse("data.path", "data.path is given, but data.set generated reads no files");
    if (!generated && !named && !*r->data.path)
        return task_refuse("data.path", "data.path is not given; data.set %s needs it", language_set_name(r));
    if (!generated && empty)
        return task_refuse(empty, "%s is empty; data.set %s needs it", empty, language_set_name(r));
    const char *path = generated ? check_generated(r) : NULL;
    if (!path && language_is_packed(whole)) path = check_packed(whole);
    if (!path && (generated || named)) path = check_names(r);
    return path ? path : check_vocabulary(whole);
}

/* model.size wins over sizes of the file, which may be for another one, but not silently over those of --set. */
static const char *check_size(const recipe *whole) {
    const gpt_settings *s = (const void *)whole->model_settings;
    const gpt_config c = gpt_configure(s, 1, 1);
    const struct {
        const char *path;
        int set, used;
    } sizes[] = {{"model.layers", s->model.layers, c.layers},
                 {"model.d", s->model.d, c.d},
                 {"model.heads", s->model.heads, c.heads}};
    for (int i = 0; i < whole->n_given; i++) {
        for (int k = 0; k < 3; k++) {
            if (whole->given[i].line >= 0 || strcmp(whole->given[i].path, sizes[k].path) != 0) continue;
            if (sizes[k].set != sizes[k].used)
                return task_refuse(sizes[k].path, "%s is %d, but model.size gives %d: expected model.size custom too",
                                   sizes[k].path, sizes[k].set, sizes[k].used);
        }
    }
    return NULL;
}

/* A window of text must fit into the context. */
static const char *check_gpt(const recipe *whole) {
    const gpt_settings *s = (const void *)whole->model_settings;
    const language_settings *r = language_settings_of(whole);
    const char *path = check_size(whole);
    if (!path) path = gpt_check(s);
    if (path) return path;
    const int context = gpt_configure(s, 1, r->data.length).context;
    if (r->data.length > context)
        return task_refuse("data.length", "data.length is %d, expected at most model.context, %d", r->data.length,
                           context);
    if (r->data.score_length <= context) return NULL;
    return task_refuse("data.score_length", "data.score_length is %d, expected at most model.context, %d",
                       r->data.score_length, context);
}

/* One table of words serves both ends of either model. */
static const task_model lstm = {"lstm", &lstm_keys, .meaning = "embedding.weight,decoder.bias", .carries = true,
                                .own = &language_columns};
static const task_model gpt = {
    "gpt", &gpt_keys, .check = check_gpt, .meaning = "wte.weight", .peer = "gpt", .own = &language_windows};
static const task_model *const models[] = {&lstm, &gpt, NULL};

const language_reader *language_reader_of(const recipe *r) { return recipe_model(r)->own; }

/* ---- graphs ---- */

static nn_value build(experiment *e, nn_graph *g) { return language_reader_of(&e->recipe)->build(e, g); }

static int prepare(experiment *e, int uses) {
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1, .pool = e->pool};
    for (int split = SPLIT_VALID; (uses & TASK_SCORE) && split < SPLITS; split++) {
        language_scoring *x = &language_of(e)->scoring[split];
        if (language_of(e)->n[split] == 0) continue;
        if (!(x->graph = nn_graph_create(e->params)))
            return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a graph");
        language_reader_of(&e->recipe)->build_scoring(e, x->graph, split, x);
        if (nn_plan_create(&x->plan, x->graph, &o)) return -1;
    }
    return 0;
}

/* ---- open and close ---- */

static int set_test_file(recipe *r, const char *flag, const char *path) {
    if (language_is_generated(r)) return adamod__refuse("%s is given, but data.set generated reads no files", flag);
    return recipe_set_flag(r, flag, "data.test_file", path);
}

static void close_language(experiment *e) {
    language *s = language_of(e);
    if (!s) return;
    for (int split = 0; split < SPLITS; split++) {
        nn_plan_free(s->scoring[split].plan);
        nn_graph_free(s->scoring[split].graph);
        free(s->text[split]);
    }
    vocab_free(s->vocab);
    language_bytes_close(s);
    subword_codes_close(&s->codes);
    free(s->drawn);
    free(s->lengths);
    free(s->windows);
    free(s);
    e->state = NULL;
}

static int open_language(experiment *e, const char *directory, int uses) {
    language *s = e->state = calloc(1, sizeof *s);
    if (!s) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the task");
    s->ordered_epoch = -1;
    int failed = language_load(e, directory, uses);
    if (!failed && !directory) failed = language_reader_of(&e->recipe)->begin(e);
    if (failed) close_language(e);
    return failed ? -1 : 0;
}

static int save(const experiment *e, const char *directory) {
    const language *s = language_of(e);
    if (s->bytes && byte_bpe_save(s->bytes, directory)) return -1;
    if (s->vocab && vocab_save(s->vocab, path_join(directory, "words.vocab").text)) return -1;
    return s->codes.text ? subword_codes_save(&s->codes, path_join(directory, "bpe.codes").text) : 0;
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
    for (int32_t i = 0; s->bytes && i < byte_bpe_size(s->bytes); i++) {
        const text_slice token = byte_bpe_token(s->bytes, i);
        hash = fingerprint_names(fingerprint_names(hash, token.bytes, token.n), "", 1);
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

static bool note(const experiment *e, task_split split, char *out, size_t size) {
    const int64_t unknown = language_of(e)->unknown[split];
    char unread[128], strange[64] = "";
    const bool some = language_reader_of(&e->recipe)->unused(e, split, unread, sizeof unread);
    if ((!some && unknown == 0) || language_is_generated(&e->recipe)) return false;
    if (unknown)
        snprintf(strange, sizeof strange, "%s%lld of %lld tokens not in the vocabulary", some ? "; " : "",
                 (long long)unknown, (long long)language_of(e)->n[split]);
    snprintf(out, size, "%.*s: %s%s", RECIPE_PATH, language_file(language_settings_of(&e->recipe), split),
             some ? unread : "", strange);
    return true;
}

/* ---- batches ---- */

static double flops(const experiment *e) {
    if (recipe_model(&e->recipe) != &gpt) return 0;
    const gpt_config c = language_gpt(e);
    return gpt_flops(&c, language_settings_of(&e->recipe)->data.length);
}

static int64_t batch(const experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    return recipe_model(&e->recipe) == &gpt ? (int64_t)r->data.batch * r->data.length : 0;
}

static int64_t batches(const experiment *e) { return language_of(e)->batches; }

static void next(experiment *e, task_batch *out) {
    language *s = language_of(e);
    *out = (task_batch){0};
    language_reader_of(&e->recipe)->feed(e, out);
    if (++s->index == s->batches) s->index = 0, s->epoch++;
    out->samples = out->targets = out->items;
    out->epoch = s->epoch;
    out->index = s->index;
}

static int seek(experiment *e, int64_t epoch, int64_t index) {
    language *s = language_of(e);
    if (epoch < 0 || index < 0 || index >= s->batches)
        return adamod__refuse(
            "the checkpoint is at batch %lld of an epoch, but an epoch has %lld batches: have the data changed?",
            (long long)index, (long long)s->batches);
    s->epoch = epoch;
    s->index = index;
    language_reader_of(&e->recipe)->seek(e);
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
    const double start = clock_seconds();
    double sum = 0;
    *out = (task_result){0};
    for (int i = 0; i < TASK_MOST_METRICS; i++) out->value[i] = NAN;
    if (!language_of(e)->scoring[split].plan) return 0;
    if (language_reader_of(&e->recipe)->score(e, split, depth == TASK_GLANCE, &sum, &out->samples)) return -1;
    out->items = (double)out->samples;
    out->seconds = clock_seconds() - start;
    out->value[LOSS] = sum / out->items;
    out->value[PERPLEXITY] = exp(out->value[LOSS]);
    if (language_settings_of(&e->recipe)->data.tokens == LANGUAGE_CHARACTERS)
        out->value[BITS] = out->value[LOSS] / log(2);
    return sample && depth == TASK_WHOLE ? language_samples(e, split, sample, context) : 0;
}

/* ---- the table ---- */

static const key_table *const tables[] = {&table, NULL};
static const char *const subtitle[] = {"model.kind", "model.size",  "model.layers", "model.embedding", "model.hidden",
                                       "model.d",    "model.heads", "data.tokens",  "data.batch",      "data.length",
                                       NULL};
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
                            .open = open_language,
                            .close = close_language,
                            .build = build,
                            .prepare = prepare,
                            .flops = flops,
                            .batch = batch,
                            .batches = batches,
                            .next = next,
                            .seek = seek,
                            .count = count,
                            .evaluate = evaluate,
                            .save = save,
                            .saves =
                                (const char *const[]){"words.vocab", "bpe.codes", "vocab.json", "merges.txt", NULL},
                            .fingerprint = fingerprint,
                            .foreign = gpt_folder_load,
                            .set_test_file = set_test_file,
                            .describe = describe,
                            .data = data_parts,
                            .note = note,
                            .bench = &language_bench};
