#include "tasks/language_reader.h"

#include "core/buffer.h"
#include "core/error.h"
#include "data/sets/data_sets.h"
#include "data/text_input.h"
#include "support/run_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 2 * RECIPE_PATH + 2 };

/* After codes are applied, subwords are words. */
static text_unit unit_of(const language_settings *r) {
    return r->data.tokens == LANGUAGE_CHARACTERS ? TEXT_CHARACTERS : TEXT_WORDS;
}

static const struct {
    const char *name;
    const char *files[SPLITS]; /* instead of train.txt, valid.txt and test.txt; "": none */
    bool packed, is_public;
} sets[] = {
    [LANGUAGE_GENERATED] = {.name = "generated"},
    [LANGUAGE_TEXT] = {.name = "text"},
    [LANGUAGE_PACKED] = {"packed", {"train.bin", "val.bin", ""}, true, false},
    [LANGUAGE_PTB] = {"ptb", {"ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"}, false, true},
    [LANGUAGE_TINYSHAKESPEARE] = {"tinyshakespeare", {"train.txt", "valid.txt", ""}, false, true},
    [LANGUAGE_TINYSTORIES] = {"tinystories", {"train.txt", "valid.txt", ""}, false, true},
    [LANGUAGE_FINEWEB] = {"fineweb-edu", {"finewebedu_train_*.bin", "finewebedu_val_*.bin", ""}, true, true},
    [LANGUAGE_FINEWEB_10B] = {"fineweb-edu-10b", {"finewebedu_train_*.bin", "finewebedu_val_*.bin", ""}, true, true},
};

const char *language_set_name(const language_settings *r) { return sets[r->data.set].name; }

bool language_is_packed(const recipe *r) { return sets[language_settings_of(r)->data.set].packed; }

bool language_is_named(const language_settings *r) { return sets[r->data.set].is_public; }

const char *language_own_file(const language_settings *r, int split) {
    const char *file = sets[r->data.set].files[split];
    return file ? file : "";
}

const char *language_file(const language_settings *r, int split) {
    static const char *const usual[SPLITS] = {"train.txt", "valid.txt", "test.txt"};
    const char *const given[SPLITS] = {r->data.train_file, r->data.valid_file, r->data.test_file};
    const char *own = sets[r->data.set].files[split];
    return own && strcmp(given[split], usual[split]) == 0 ? own : given[split];
}

/* Writes the path of a split's file; false: it has none. */
static bool path_of(const experiment *e, int split, char path[PATH]) {
    const char *file = language_file(language_settings_of(&e->recipe), split);
    if (*file == '/') snprintf(path, PATH, "%s", file);
    else snprintf(path, PATH, "%s/%s", language_of(e)->folder, file);
    return *file != '\0';
}

/* The data set in the cache, or NULL. */
static const data_set *set_of(const language_settings *r) {
    return *r->data.path ? NULL : data_set_find(language_set_name(r));
}

static int find_files(experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const data_set *set = set_of(r);
    snprintf(s->folder, sizeof s->folder, "%s", r->data.path);
    e->set = set;
    return set ? data_set_path(set, s->folder, sizeof s->folder) : 0;
}

/* ---- lines ---- */

/* Calls take for each line until it fails. */
typedef int (*take_line)(void *context, text_slice line);
static int each_line(const char *path, take_line take, void *context) {
    text_input *in;
    text_slice line;
    int got;
    if (text_input_open(&in, path)) return -1;
    while ((got = text_input_line(in, &line)) > 0) {
        if (take(context, line)) {
            got = -1;
            break;
        }
    }
    text_input_close(in);
    return got;
}

/* Splits a line into tokens; the caller frees *own. */
static int split_line(const language *s, text_slice line, text_slice *out, char **own) {
    const bool split = subword_codes_exist(&s->codes);
    *own = split ? bpe_apply(s->codes.worker, line) : NULL;
    *out = *own ? text_of(*own) : line;
    return split && !*own ? -1 : 0;
}

static int64_t encode_bytes(const language *s, text_slice text, int32_t **out) {
    byte_bpe_ids ids = {0};
    const int failed = byte_bpe_encode(s->encoder, text, &ids);
    *out = ids.list;
    return failed ? -1 : (int64_t)ids.n;
}

int64_t language_encode(const experiment *e, text_slice line, int32_t **out) {
    const text_unit unit = unit_of(language_settings_of(&e->recipe));
    const language *s = language_of(e);
    text_slice tokens;
    char *own;
    *out = NULL;
    if (s->bytes) return encode_bytes(s, line, out);
    if (split_line(s, line, &tokens, &own)) return -1;
    const int64_t n = text_count_tokens(unit, tokens);
    int32_t *ids = *out = malloc((size_t)(n + 1) * sizeof *ids);
    if (ids) vocab_encode(s->vocab, unit, tokens, ids, n);
    /* Numbers skip the vocabulary's start mark; its end mark is <eos>. */
    for (int64_t i = 0; ids && i < n; i++) ids[i] -= VOCAB_END;
    free(own);
    return ids ? n : -1;
}

/* ---- vocabulary ---- */

static int learn_line(void *learner, text_slice line) {
    return bpe_learner_add(learner, line) ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for learning subwords")
                                          : 0;
}

static int learn_codes(experiment *e, const char *path) {
    bpe_learner *l = bpe_learner_create();
    if (!l) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for learning subwords");
    if (each_line(path, learn_line, l)) {
        bpe_learner_free(l);
        return -1;
    }
    const int merges = language_settings_of(&e->recipe)->data.merges;
    return subword_codes_learn(&language_of(e)->codes, l, merges);
}

typedef struct counting {
    const experiment *e;
    vocab_counter *counter;
    bool any; /* there was a token */
} counting;

static int count_line(void *context, text_slice line) {
    counting *c = context;
    text_slice tokens;
    char *own;
    c->any = c->any || text_count_tokens(unit_of(language_settings_of(&c->e->recipe)), line) > 0;
    bool failed = split_line(language_of(c->e), line, &tokens, &own) != 0;
    failed = failed || vocab_counter_add(c->counter, unit_of(language_settings_of(&c->e->recipe)), tokens, 1);
    free(own);
    return failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the vocabulary") : 0;
}

static int make_vocabulary(experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    /* Every vocabulary has a start mark, which does not count here: no text has it. */
    const vocab_options o = {.min_count = r->data.min_count, .max_size = r->data.max_vocab ? r->data.max_vocab + 1 : 0};
    char path[PATH];
    counting c = {e, vocab_counter_create(), false};
    if (!c.counter) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the vocabulary");
    path_of(e, SPLIT_TRAIN, path);
    int failed = each_line(path, count_line, &c);
    if (!failed && !c.any) failed = adamod__refuse("%s: the file has no text", path);
    if (!failed) failed = vocab_build(&s->vocab, c.counter, &o);
    vocab_counter_free(c.counter);
    if (failed || vocab_size(s->vocab) > VOCAB_SPECIALS) return failed;
    return adamod__refuse("%s: the vocabulary is empty: no token is seen data.min_count %d times", path,
                          r->data.min_count);
}

/* Opens codes and vocabulary: from a run, or from the recipe and the training text. */
static int open_vocabulary(experiment *e, const char *run) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    char path[PATH];
    if (language_is_bytes(&e->recipe)) {
        path_of(e, SPLIT_TRAIN, path);
        return language_bytes_open(e, run, path);
    }
    if (r->data.tokens == LANGUAGE_SUBWORDS) {
        path_of(e, SPLIT_TRAIN, path);
        if (run) snprintf(path, sizeof path, "%s/bpe.codes", run);
        else if (*r->data.bpe) snprintf(path, sizeof path, "%s", r->data.bpe);
        if (run || *r->data.bpe ? subword_codes_read(&s->codes, path) : learn_codes(e, path)) return -1;
    }
    if (run ? vocab_load(&s->vocab, path_join(run, "words.vocab").text) : make_vocabulary(e)) return -1;
    s->words = vocab_size(s->vocab) - VOCAB_END;
    return 0;
}

/* ---- files ---- */

typedef struct reading {
    experiment *e;
    int split;
    adamod__buffer text; /* numbers of tokens */
} reading;

/* Hashes the tokens as text: their numbers depend on the vocabulary, and spaces between them do not matter. */
static void hash_line(reading *x, text_slice line) {
    const text_unit unit = unit_of(language_settings_of(&x->e->recipe));
    uint64_t *hash = &language_of(x->e)->hash[x->split];
    for (text_slice token; text_next_token(unit, &line, &token);) *hash = fingerprint_data(*hash, token.bytes, token.n);
    *hash = fingerprint_data(*hash, "\n", 1);
}

/* A word "<unk>" in the text itself is not unknown. */
static void count_unknown(reading *x, text_slice line, const int32_t *ids, int64_t n) {
    const bool words = language_settings_of(&x->e->recipe)->data.tokens == LANGUAGE_WORDS;
    int64_t *unknown = &language_of(x->e)->unknown[x->split];
    for (int64_t i = 0; i < n; i++) *unknown += ids[i] == LANGUAGE_UNK;
    for (text_slice word; words && text_next_token(TEXT_WORDS, &line, &word);)
        *unknown -= word.n == 5 && memcmp(word.bytes, "<unk>", 5) == 0;
}

static int add_line(void *context, text_slice line) {
    reading *x = context;
    int32_t *ids;
    const int64_t n = language_encode(x->e, line, &ids);
    if (n < 0) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a line");
    count_unknown(x, line, ids, n);
    hash_line(x, line);
    ids[n] = LANGUAGE_EOS;
    adamod__buffer_add(&x->text, ids, (size_t)(n + language_settings_of(&x->e->recipe)->data.eos) * sizeof *ids);
    free(ids);
    return x->text.failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %zu tokens", x->text.n / 4) : 0;
}

/* Whether there is nothing but ends of lines. */
static bool is_blank(const language *s, int split) {
    int64_t i = 0;
    while (i < s->n[split] && s->text[split][i] == LANGUAGE_EOS) i++;
    return i == s->n[split];
}

static int read_file(experiment *e, int split) {
    char path[PATH];
    reading x = {e, split, {0}};
    if (!path_of(e, split, path)) return 0;
    if (language_is_packed(&e->recipe)) return language_packed_open(e, split, path);
    if (language_is_bytes(&e->recipe)) return language_bytes_read(e, split, path);
    const int failed = each_line(path, add_line, &x);
    language_of(e)->text[split] = (int32_t *)(void *)x.text.text;
    language_of(e)->n[split] = (int64_t)(x.text.n / sizeof(int32_t));
    if (failed) return -1;
    return is_blank(language_of(e), split) ? adamod__refuse("%s: the file has no text", path) : 0;
}

static int read_held_out(experiment *e, const char *directory, task_split split) {
    if (read_file(e, split) == 0) return 0;
    language_of(e)->n[split] = 0;
    data_set_explain(set_of(language_settings_of(&e->recipe)));
    return experiment_gone(e, directory, split);
}

static int read_files(experiment *e, const char *directory, int uses) {
    const language_settings *r = language_settings_of(&e->recipe);
    const char *given = r->data.vocabularies;
    if ((!directory || (uses & TASK_SCORE)) && find_files(e)) return -1;
    if (!directory && *given && run_format_check(given)) return -1;
    if (open_vocabulary(e, directory ? directory : *given ? given : NULL))
        return directory ? -1 : data_set_explain(set_of(r));
    if (!directory && read_file(e, SPLIT_TRAIN)) return data_set_explain(set_of(r));
    if (directory && !(uses & TASK_SCORE)) return 0;
    if (read_held_out(e, directory, SPLIT_VALID)) return -1;
    return read_held_out(e, directory, SPLIT_TEST);
}

/* ---- generated ---- */

static int generate(experiment *e, bool train) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const markov_language l = {r->data.words, r->data.branches, r->data.order, r->data.seed};
    const int64_t n[SPLITS] = {train ? r->data.train : 0, r->data.valid, r->data.test};
    s->words = r->data.words;
    for (int split = 0; split < SPLITS; split++) {
        if (n[split] == 0) continue;
        s->text[split] = malloc((size_t)n[split] * sizeof *s->text[split]);
        if (!s->text[split])
            return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld words", (long long)n[split]);
        markov_text(&l, (uint64_t)split, n[split], s->text[split]);
        s->n[split] = n[split];
        s->hash[split] = fingerprint_data(0, s->text[split], (size_t)n[split] * sizeof *s->text[split]);
    }
    return 0;
}

double language_entropy(const recipe *whole) {
    const language_settings *r = language_settings_of(whole);
    const markov_language l = {r->data.words, r->data.branches, r->data.order, r->data.seed};
    return language_is_generated(whole) ? markov_entropy(&l) : (double)NAN;
}

/* ---- either ---- */

static int check_sizes(const experiment *e) {
    for (int split = 0; split < SPLITS; split++) {
        const int64_t n = language_of(e)->n[split];
        char why[128], path[PATH] = "";
        const int64_t least =
            language_reader_of(&e->recipe)->least(language_settings_of(&e->recipe), split, why, sizeof why);
        if (n == 0 || n >= least) continue;
        if (!language_is_generated(&e->recipe)) path_of(e, split, path);
        return adamod__refuse("%s%sthe %s text has %lld tokens, expected at least %lld: %s", path, *path ? ": " : "",
                              task_split_label((task_split)split), (long long)n, (long long)least, why);
    }
    return 0;
}

int language_load(experiment *e, const char *directory, int uses) {
    const bool generated = language_is_generated(&e->recipe);
    if (generated ? generate(e, !directory) : read_files(e, directory, uses)) return -1;
    return check_sizes(e);
}
