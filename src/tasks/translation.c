/* translation.c - see translation.h: data, graphs, scores and translations of sentence pairs.
 *
 * SPDX-License-Identifier: MIT
 */
#include "tasks/translation.h"

#include "base/clock.h"
#include "data/bleu.h"
#include "data/score.h"
#include "data/sets/data_sets.h"
#include "data/tokenizer.h"
#include "train/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

#define S translation_settings
static const key_spec common_keys[] = {
    CHOICE_KEY(S, data.tokens, "characters", "words characters", STRICT, "what sentences are made of"),
    SWITCH_KEY(S, data.joint, "false", STRICT, "one vocabulary for both languages"),
    PATH_KEY(S, data.vocabularies, LOOSE, "a run whose vocabularies to take, instead of those of the training text"),
    WHOLE_KEY(S, data.min_count, "1", 1, KEY_MOST_INT, STRICT, "a token seen less often is unknown"),
    WHOLE_KEY(S, data.max_vocab, "0", 0, KEY_MOST_INT, STRICT, "the most frequent tokens kept; 0: all"),
    WHOLE_KEY(S, data.max_length, "175", 1, 100000, STRICT, "tokens; longer training pairs are left out"),
    REAL_KEY(S, data.max_ratio, "0", 0, 1000, false, STRICT, "of lengths; other training pairs are left out; 0: none"),
    SWITCH_KEY(S, data.skip_empty, "true", STRICT,
               "leave out training pairs with an empty side, instead of refusing them"),
    WHOLE_KEY(S, data.sentences, "0", 0, 1000000, STRICT, "sentences a batch, at most; 0: use data.max_tokens alone"),
    WHOLE_KEY(S, data.max_tokens, "4000", 1, KEY_MOST_INT, STRICT,
              "tokens a batch, at most: sentences times the longest"),
    SWITCH_KEY(S, data.sort_by_length, "true", STRICT,
               "batches of similar lengths; false: data.sentences in any order, whatever data.max_tokens says"),
    WHOLE_KEY(S, train.evaluate_pairs, "64", 0, 1e15, LOOSE,
              "validation pairs translated at each evaluation, for exact and BLEU; 0: none"),
    WHOLE_KEY(S, decode.beam, "4", 1, 64, LOOSE, "hypotheses kept for each sentence; 1: greedy"),
    WHOLE_KEY(S, decode.max_length, "200", 1, 100000, LOOSE, "tokens of a translation"),
    REAL_KEY(S, decode.length_penalty, "1", 0, 100, false, LOOSE, "the power of its length that a score is divided by"),
    WHOLE_KEY(S, decode.samples, "20", 0, 1000000, LOOSE, "translations kept for the report"),
};
static const key_spec bitext_keys[] = {
    CHOICE_KEY(S, data.set, "files", "files iwslt14-de-en wmt14-en-de multi30k-de-en", STRICT,
               "a data set that `adamod data prepare` made; files: those below"),
    PATH_KEY(S, data.source, LOOSE, "a file with a source sentence in each line"),
    PATH_KEY(S, data.target, LOOSE, "their translations"),
    PATH_KEY(S, data.valid_source, LOOSE, "the same for validation"),
    PATH_KEY(S, data.valid_target, LOOSE, "their translations"),
    PATH_KEY(S, data.test_source, LOOSE, "the same for the test, if there is one"),
    PATH_KEY(S, data.test_target, LOOSE, "their translations"),
    SWITCH_KEY(S, data.raw, "false", STRICT, "files are raw text, which is tokenized and split into subwords"),
    TEXT_KEY(S, data.source_lang, "en", STRICT, "raw: the language of the source"),
    TEXT_KEY(S, data.target_lang, "en", STRICT, "raw: the language of the target"),
    PATH_KEY(S, data.bpe, LOOSE, "raw: codes of subwords; not given: learned from the training text"),
    WHOLE_KEY(S, data.merges, "10000", 1, 10000000, STRICT, "raw: how many codes are learned"),
};
static const key_spec numbers_keys[] = {
    WHOLE_KEY(S, data.train, "100000", 1, CORPUS_NUMBERS_TRAIN, STRICT, "pairs to train on"),
    WHOLE_KEY(S, data.valid, "500", 1, CORPUS_NUMBERS_HELD_OUT, STRICT, "pairs held out for validation"),
    WHOLE_KEY(S, data.test, "1000", 1, CORPUS_NUMBERS_HELD_OUT, STRICT, "pairs held out for the test"),
    WHOLE_KEY(S, data.seed, "1", 0, KEY_MOST_SEED, STRICT, "of the choice of training pairs"),
};
#undef S
#define TABLE(keys)                                                                                                    \
    { keys, sizeof keys / sizeof *keys, sizeof(translation_settings) }
static const key_table common_table = TABLE(common_keys), bitext_table = TABLE(bitext_keys),
                       numbers_table = TABLE(numbers_keys);
_Static_assert(sizeof(translation_settings) <= RECIPE_SETTINGS, "recipe.task_settings is too small");

/* ---- what no single key can tell ---- */

static const char *check_vocabulary_size(const translation_settings *s, char *why, size_t size) {
    if (s->data.max_vocab == 0 || s->data.max_vocab > VOCAB_SPECIALS) return NULL;
    snprintf(why, size, "data.max_vocab is %d, expected 0 or more than the %d special tokens", s->data.max_vocab,
             VOCAB_SPECIALS);
    return "data.max_vocab";
}

static const char *check_batches(const translation_settings *s, char *why, size_t size) {
    if (s->data.max_ratio > 0 && s->data.max_ratio < 1) {
        snprintf(why, size, "data.max_ratio is %g, expected 0 or at least 1: no pair is below 1", s->data.max_ratio);
        return "data.max_ratio";
    }
    if (!s->data.sort_by_length && s->data.sentences == 0) {
        snprintf(why, size, "data.sort_by_length is false: batches are of data.sentences, which must be above 0");
        return "data.sort_by_length";
    }
    if (s->data.sentences > 0 || s->data.max_tokens > s->data.max_length) return NULL;
    snprintf(why, size, "data.max_tokens is %d: a sentence of data.max_length %d, and its end, would fit into no batch",
             s->data.max_tokens, s->data.max_length);
    return "data.max_tokens";
}

static const char *check_common(const recipe *r, char *why, size_t size) {
    const translation_settings *s = translation_settings_of(r);
    const char *path = check_vocabulary_size(s, why, size);
    return path ? path : check_batches(s, why, size);
}

/* NULL: files. */
static const data_set *set_of(const translation_settings *s) { return data_set_find(s->data.set); }
/* Whether the files are in subwords already, with tokens as the data set's preparation has them. */
static bool is_split(const translation_settings *s) { return set_of(s) && set_of(s)->pairs; }

/* Sets know their files, their languages and whether they are raw. */
static const char *check_set(const translation_settings *s, const data_set *set, char *why, size_t size) {
    const char *const languages[] = {s->data.source_lang, s->data.target_lang};
    for (int i = 0; i < bitext_table.n; i++) {
        const key_spec *k = &bitext_keys[i];
        if (k->kind != KEY_PATH || strcmp(k->path, "data.bpe") == 0 || !*((const char *)s + k->offset)) continue;
        snprintf(why, size, "%s is given, but data.set %s has files of its own; data.set files reads yours", k->path,
                 set->name);
        return k->path;
    }
    if (s->data.raw != !set->pairs) {
        snprintf(why, size, "data.raw is %s, but data.set %s is %s", s->data.raw ? "true" : "false", set->name,
                 set->pairs ? "in subwords" : "raw text");
        return "data.raw";
    }
    if (strcmp(s->data.tokens, "words") != 0) {
        snprintf(why, size, "data.tokens is %s, expected words: data.set %s is made of them", s->data.tokens,
                 set->name);
        return "data.tokens";
    }
    for (int i = 0; s->data.raw && i < 2; i++) {
        if (strcmp(languages[i], set->languages[i]) == 0) continue;
        snprintf(why, size, "data.%s_lang is %s, expected %s, which data.set %s has", i ? "target" : "source",
                 languages[i], set->languages[i], set->name);
        return i ? "data.target_lang" : "data.source_lang";
    }
    return NULL;
}

/* The first file that is needed and not given, or NULL. */
static const char *check_files(const translation_settings *s, char *why, size_t size) {
    if (set_of(s)) return check_set(s, set_of(s), why, size);
    const bool test = *s->data.test_source || *s->data.test_target;
    for (int i = 0; i < bitext_table.n; i++) {
        const key_spec *k = &bitext_keys[i];
        const bool of_test = strncmp(k->path, "data.test_", 10) == 0;
        if (k->kind != KEY_PATH || strcmp(k->path, "data.bpe") == 0) continue;
        if (*((const char *)s + k->offset) || (of_test && !test)) continue;
        snprintf(why, size, "%s is not given; %s", k->path,
                 of_test ? "the other half of the test is" : "data.task bitext needs it");
        return k->path;
    }
    return NULL;
}

static const char *check_raw(const translation_settings *s, char *why, size_t size) {
    if (s->data.raw && strcmp(s->data.tokens, "words") != 0) {
        snprintf(why, size, "data.raw is true: data.tokens is %s, expected words, which are subwords then",
                 s->data.tokens);
        return "data.tokens";
    }
    const char *const languages[][2] = {{"data.source_lang", s->data.source_lang},
                                        {"data.target_lang", s->data.target_lang}};
    for (int i = 0; s->data.raw && i < 2; i++) {
        const size_t n = strspn(languages[i][1], "abcdefghijklmnopqrstuvwxyz");
        if (n >= 2 && n <= 3 && !languages[i][1][n]) continue;
        snprintf(why, size, "%s is '%s', expected a code of two or three small letters", languages[i][0],
                 languages[i][1]);
        return languages[i][0];
    }
    if (s->data.raw || !*s->data.bpe) return NULL;
    snprintf(why, size, "data.bpe is given, but data.raw is false: text is taken as it is");
    return "data.bpe";
}

static const char *check_bitext(const recipe *r, char *why, size_t size) {
    const char *raw = check_raw(translation_settings_of(r), why, size);
    if (raw) return raw;
    const char *path = check_files(translation_settings_of(r), why, size);
    return path ? path : check_common(r, why, size);
}

/* Generated text is as it is: what would cut it in other ways must not be taken and ignored. */
static const char *check_numbers(const recipe *r, char *why, size_t size) {
    const translation_settings *s = translation_settings_of(r);
    if (strcmp(s->data.tokens, "characters") != 0) {
        snprintf(why, size, "data.tokens is %s, expected characters, which data.task numbers is made of",
                 s->data.tokens);
        return "data.tokens";
    }
    if (s->data.max_length >= CORPUS_NUMBERS_LONGEST) return check_common(r, why, size);
    snprintf(why, size, "data.max_length is %d, expected at least %d: the longest of data.task numbers would be cut",
             s->data.max_length, CORPUS_NUMBERS_LONGEST);
    return "data.max_length";
}

static const char *check_transformer(const recipe *r, char *why, size_t size) {
    const transformer_settings *s = transformer_settings_of(r);
    if (s->model.d % s->model.heads) {
        snprintf(why, size, "model.heads is %d, which does not divide model.d %d", s->model.heads, s->model.d);
        return "model.heads";
    }
    if (s->model.d % 2) { /* half of a position's numbers are sines, half cosines */
        snprintf(why, size, "model.d is %d, expected an even number", s->model.d);
        return "model.d";
    }
    if (!s->model.share_all || translation_settings_of(r)->data.joint) return NULL;
    snprintf(why, size, "model.share_all is true: one table needs one vocabulary, so data.joint must be true");
    return "model.share_all";
}

/* ---- data ---- */

/* Files as the recipe names them, or those of a data set. */
static int find_files(experiment *e, char *message, size_t size) {
    static const char *const names[SPLITS] = {"train", "valid", "test"};
    const translation_settings *r = translation_settings_of(&e->recipe);
    const char *const given[SPLITS][2] = {{r->data.source, r->data.target},
                                          {r->data.valid_source, r->data.valid_target},
                                          {r->data.test_source, r->data.test_target}};
    const data_set *set = set_of(r);
    char folder[RECIPE_PATH];
    if (set && data_set_path(set, folder, sizeof folder, message, size)) return -1;
    for (int i = 0; i < SPLITS; i++) {
        for (int side = 0; side < 2; side++) {
            char *file = translation_of(e)->files[i][side];
            if (set) snprintf(file, RECIPE_PATH, "%s/%s.%s", folder, names[i], set->languages[side]);
            else snprintf(file, RECIPE_PATH, "%s", given[i][side]);
        }
    }
    return 0;
}

static int read_bitext(experiment *e, int split, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    const char *source = s->files[split][0], *target = s->files[split][1];
    const corpus_options o = {.unit = s->unit,
                              .empty = r->data.skip_empty ? CORPUS_SKIP : CORPUS_REFUSE,
                              .max_tokens = r->data.max_length,
                              .too_long = split == SPLIT_TRAIN ? CORPUS_SKIP : CORPUS_TRUNCATE,
                              .max_ratio = split == SPLIT_TRAIN ? r->data.max_ratio : 0};
    if (!r->data.raw) return corpus_bitext(&s->text[split], source, target, &o, message, size);
    return raw_text_load(&s->raw, source, target, r->data.merges, &o, &s->text[split],
                         split == SPLIT_TRAIN ? NULL : &s->raw_pairs[split], message, size);
}

/* Whether translations can be scored as text: against raw references, in the case that these have. */
static bool scores_text(const translation_settings *r) {
    return r->data.raw || (is_split(r) && !set_of(r)->pairs->sides[RAW_TARGET].lower);
}

/* The test of a data set in subwords, as people write it. */
static int read_raw_test(experiment *e, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    const corpus_options as_is = {.unit = TEXT_WORDS, .empty = CORPUS_SKIP};
    char paths[RAW_SIDES][RECIPE_PATH + 32];
    if (r->data.raw || !scores_text(r)) return 0;
    for (int i = 0; i < RAW_SIDES; i++) {
        const char *file = s->files[SPLIT_TEST][i], *folder_end = strrchr(file, '/');
        snprintf(paths[i], sizeof paths[i], "%.*s/test.raw.%s", (int)(folder_end - file), file,
                 set_of(r)->languages[i]);
    }
    if (corpus_bitext(&s->raw_pairs[SPLIT_TEST], paths[0], paths[1], &as_is, message, size)) return -1;
    if (s->raw_pairs[SPLIT_TEST].n == s->text[SPLIT_TEST].n) return 0;
    return text_fail(message, size, "%s: %lld pairs, expected the %lld of the test in subwords", paths[0],
                     (long long)s->raw_pairs[SPLIT_TEST].n, (long long)s->text[SPLIT_TEST].n);
}

static bool note(const experiment *e, task_split split, char *out, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    const translation *s = translation_of(e);
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
    int used = snprintf(out, size, "%.*s: used %lld of %lld pairs", RECIPE_PATH, s->files[split][0],
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

static bool is_numbers(const experiment *e) { return e->task == &task_numbers; }

/* train: training text too. What is held out does not depend on how many numbers are for training. */
static int load_text(experiment *e, bool train, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    corpus_text *text = translation_of(e)->text;
    if (is_numbers(e)) {
        return corpus_numbers(r->data.seed, train ? r->data.train : 1, r->data.valid, r->data.test, &text[SPLIT_TRAIN],
                              &text[SPLIT_VALID], &text[SPLIT_TEST], message, size);
    }
    if (find_files(e, message, size)) return -1;
    if (train && read_bitext(e, SPLIT_TRAIN, message, size)) return -1;
    if (read_bitext(e, SPLIT_VALID, message, size)) return -1;
    if (!*translation_of(e)->files[SPLIT_TEST][0]) return 0;
    return read_bitext(e, SPLIT_TEST, message, size) ? -1 : read_raw_test(e, message, size);
}

static int check_vocabulary(const translation_settings *r, const vocab *v, char *message, size_t size) {
    if (vocab_size(v) > VOCAB_SPECIALS) return 0;
    return text_fail(message, size, "the vocabulary is empty: no token is seen data.min_count %d times",
                     r->data.min_count);
}

static int make_vocabularies(experiment *e, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    const vocab_options o = {.min_count = r->data.min_count, .max_size = r->data.max_vocab};
    const corpus_text *train = &s->text[SPLIT_TRAIN];
    if (r->data.joint) {
        if (corpus_vocab(train, CORPUS_SOURCE | CORPUS_TARGET, &o, &s->src_vocab, message, size)) return -1;
        s->tgt_vocab = s->src_vocab;
    } else if (corpus_vocab(train, CORPUS_SOURCE, &o, &s->src_vocab, message, size) ||
               corpus_vocab(train, CORPUS_TARGET, &o, &s->tgt_vocab, message, size)) {
        return -1;
    }
    return check_vocabulary(r, s->src_vocab, message, size) || check_vocabulary(r, s->tgt_vocab, message, size);
}

static int load_vocabularies(experiment *e, const char *directory, char *message, size_t size) {
    translation *s = translation_of(e);
    char path[1100];
    snprintf(path, sizeof path, "%s/source.vocab", directory);
    if (vocab_load(&s->src_vocab, path, message, size)) return -1;
    if (translation_settings_of(&e->recipe)->data.joint) {
        s->tgt_vocab = s->src_vocab;
        return 0;
    }
    snprintf(path, sizeof path, "%s/target.vocab", directory);
    return vocab_load(&s->tgt_vocab, path, message, size);
}

static int encode_text(translation *s, char *message, size_t size) {
    for (int i = 0; i < SPLITS; i++) {
        if (s->text[i].n == 0) continue;
        if (corpus_encode(&s->pairs[i], &s->text[i], s->src_vocab, s->tgt_vocab, message, size)) return -1;
    }
    return 0;
}

/* With the codes of a run's directory, of a file, or later those that are learned. */
static int open_raw(experiment *e, const char *directory, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    raw_text *raw = &translation_of(e)->raw;
    const text_chain_options sides[RAW_SIDES] = {{.language = r->data.source_lang, .plain = true},
                                                 {.language = r->data.target_lang, .plain = true}};
    const data_set *set = is_split(r) ? set_of(r) : NULL;
    char path[1100], folder[RECIPE_PATH];
    if (raw_text_open(raw, set ? set->pairs->sides : sides, message, size)) return -1;
    if (!directory && !set && !*r->data.bpe) return 0;
    if (!directory && set && data_set_path(set, folder, sizeof folder, message, size)) return -1;
    if (directory) snprintf(path, sizeof path, "%s/bpe.codes", directory);
    else if (set) snprintf(path, sizeof path, "%s/codes", folder);
    else snprintf(path, sizeof path, "%s", r->data.bpe);
    return subword_codes_read(&raw->codes, path, message, size);
}

/* With the vocabularies of a run's directory; NULL: for training, with those that the recipe says. */
static int open_text(experiment *e, const char *directory, int uses, char *message, size_t size) {
    translation *s = translation_of(e);
    const translation_settings *r = translation_settings_of(&e->recipe);
    const char *from = directory ? directory : *r->data.vocabularies ? r->data.vocabularies : NULL;
    s->unit = strcmp(r->data.tokens, "words") == 0 ? TEXT_WORDS : TEXT_CHARACTERS;
    if ((r->data.raw || is_split(r)) && open_raw(e, from, message, size)) return -1;
    if ((!directory || (uses & TASK_SCORE)) && load_text(e, !directory, message, size)) return -1;
    if (from ? load_vocabularies(e, from, message, size) : make_vocabularies(e, message, size)) return -1;
    return encode_text(s, message, size);
}

/* ---- open and close ---- */

static batch_policy policy_of(const recipe *r, bool shuffle) {
    const translation_settings *s = translation_settings_of(r);
    return (batch_policy){
        .sentences = s->data.sentences, .tokens = s->data.sort_by_length ? s->data.max_tokens : 0, .shuffle = shuffle};
}

static int open_batches(experiment *e, char *message, size_t size) {
    translation *s = translation_of(e);
    const batch_policy policy = policy_of(&e->recipe, true);
    if (batcher_create(&s->batches, &s->pairs[SPLIT_TRAIN], &policy, e->recipe.train.seed, message, size)) return -1;
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

static int open_translation(experiment *e, const char *directory, int uses, char *message, size_t size) {
    translation *s = e->state = calloc(1, sizeof *s);
    if (!s) return text_fail(message, size, "out of memory for the task");
    s->shape = (batch_shape){.n = 1, .n_src = 1, .n_tgt = 1};
    int failed = open_text(e, directory, uses, message, size);
    if (!failed && !directory) failed = open_batches(e, message, size);
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

/* Batches of a held-out split, in an order of their own; none of the scoring depends on how they are cut. */
static int held_out_batches(const experiment *e, int split, batcher **out, char *message, size_t size) {
    const batch_policy policy = policy_of(&e->recipe, false);
    return batcher_create(out, &translation_of(e)->pairs[split], &policy, 0, message, size);
}

static void widen(batch_shape *most, batch_shape shape) {
    if (shape.n > most->n) most->n = shape.n;
    if (shape.n_src > most->n_src) most->n_src = shape.n_src;
    if (shape.n_tgt > most->n_tgt) most->n_tgt = shape.n_tgt;
}

static int open_scoring(experiment *e, char *message, size_t size) {
    translation *s = translation_of(e);
    batch_shape shape = {0};
    for (int split = SPLIT_VALID; split < SPLITS; split++) {
        batcher *b;
        if (s->pairs[split].n == 0) continue;
        if (held_out_batches(e, split, &b, message, size)) return -1;
        widen(&shape, batcher_capacity(b));
        batcher_free(b);
    }
    if (shape.n == 0) return 0;
    const transformer_sizes sizes = sizes_of(shape);
    s->score_graph = nn_graph_create(e->params);
    if (!s->score_graph) return text_fail(message, size, "out of memory for a graph");
    transformer_training(s->score_graph, &s->config, &sizes, &s->score_symbols);
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1, .pool = e->pool};
    return experiment_failed(nn_plan_create(&s->score_plan, s->score_graph, &o), message, size);
}

int translation_beam(const experiment *e) {
    const int beam = translation_settings_of(&e->recipe)->decode.beam;
    const int64_t tokens = translation_of(e)->config.tgt_vocab;
    return beam < tokens ? beam : (int)tokens;
}

static int open_decoder(experiment *e, bool constant, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    enum { TOKENS = 64 }; /* of a sentence, if all are decoded at once that could be */
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
    return experiment_failed(decoder_create(&s->decoder, e->params, &s->config, &o), message, size);
}

static int prepare(experiment *e, int uses, char *message, size_t size) {
    if ((uses & TASK_SCORE) && open_scoring(e, message, size)) return -1;
    return (uses & TASK_APPLY) ? open_decoder(e, !(uses & TASK_TRAIN), message, size) : 0;
}

/* ---- vocabularies in a run's directory ---- */

static int save(const experiment *e, const char *directory, char *message, size_t size) {
    const translation *s = translation_of(e);
    char path[1100];
    snprintf(path, sizeof path, "%s/source.vocab", directory);
    if (vocab_save(s->src_vocab, path, message, size)) return -1;
    snprintf(path, sizeof path, "%s/target.vocab", directory);
    if (vocab_save(s->tgt_vocab, path, message, size)) return -1;
    snprintf(path, sizeof path, "%s/bpe.codes", directory);
    return s->raw.codes.text ? subword_codes_save(&s->raw.codes, path, message, size) : 0;
}

static uint64_t fingerprint(const experiment *e) {
    const translation *s = translation_of(e);
    uint64_t hash = CHECKPOINT_HASH;
    const vocab *both[2] = {s->src_vocab, s->tgt_vocab};
    for (int v = 0; v < 2; v++) {
        for (int32_t i = 0; i < vocab_size(both[v]); i++) {
            const text_slice token = vocab_token(both[v], i);
            hash = checkpoint_hash(hash, token.bytes, token.n);
            hash = checkpoint_hash(hash, "\n", 1);
        }
    }
    return s->raw.codes.text ? checkpoint_hash(hash, s->raw.codes.text, strlen(s->raw.codes.text)) : hash;
}

static uint64_t hash_side(const corpus_lines *lines, int64_t n) {
    const uint64_t hash = task_hash(0, lines->bytes, (size_t)lines->at[n]);
    return task_hash(hash, lines->at, (size_t)(n + 1) * sizeof *lines->at);
}

static int data_parts(const experiment *e, task_part *out) {
    static const char *const keys[SPLITS][3] = {{"data.source", "data.target", "data.train"},
                                                {"data.valid_source", "data.valid_target", "data.valid"},
                                                {"data.test_source", "data.test_target", "data.test"}};
    const translation *s = translation_of(e);
    int n = 0;
    for (int i = 0; i < SPLITS; i++) {
        const corpus_text *text = &s->text[i];
        if (text->n == 0) continue;
        const uint64_t src = hash_side(&text->src, text->n), tgt = hash_side(&text->tgt, text->n);
        if (is_numbers(e)) {
            out[n++] = (task_part){(task_split)i, keys[i][2], "", task_hash(src, &tgt, sizeof tgt)};
        } else {
            out[n++] = (task_part){(task_split)i, keys[i][0], s->files[i][0], src};
            out[n++] = (task_part){(task_split)i, keys[i][1], s->files[i][1], tgt};
        }
    }
    return n;
}

static void describe_raw(const experiment *e, task_fact fact, void *context) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    const char *const sides[][2] = {{"source language", r->data.source_lang}, {"target language", r->data.target_lang}};
    for (int i = 0; r->data.raw && i < 2; i++) {
        char text[64];
        const char *known = tokenizer_knows(sides[i][1]) ? "" : ", whose abbreviations are not known: English ones";
        snprintf(text, sizeof text, "%s%s", sides[i][1], known);
        fact(context, sides[i][0], text);
    }
}

static void describe(const experiment *e, task_fact fact, void *context) {
    const translation *s = translation_of(e);
    char text[64];
    describe_raw(e, fact, context);
    snprintf(text, sizeof text, "%lld tokens", (long long)vocab_size(s->src_vocab));
    fact(context, s->src_vocab == s->tgt_vocab ? "vocabulary" : "source vocabulary", text);
    if (s->src_vocab == s->tgt_vocab) return;
    snprintf(text, sizeof text, "%lld tokens", (long long)vocab_size(s->tgt_vocab));
    fact(context, "target vocabulary", text);
}

/* ---- batches ---- */

void translation_feed(nn_plan *plan, const transformer_symbols *symbols, const batch *b) {
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
    translation_feed(e->plan, &s->symbols, b);
    *out = (task_batch){.items = b->n_src + b->n_tgt,
                        .samples = b->n,
                        .targets = b->n_tgt,
                        .epoch = b->last ? b->epoch + 1 : b->epoch,
                        .index = b->last ? 0 : b->index + 1};
}

static int seek(experiment *e, int64_t epoch, int64_t index, char *message, size_t size) {
    return batcher_seek(translation_of(e)->batches, epoch, index, message, size);
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

static bool measures(const recipe *r, int i) { return i != BLEU_13A || scores_text(translation_settings_of(r)); }

static bool has(const experiment *e, task_split split) { return translation_of(e)->text[split].n > 0; }

static int64_t count(const experiment *e, task_split split) { return translation_of(e)->text[split].n; }

/* Adds up the loss over batches of a split, each rank's own; sums has four numbers of each batch. */
static int score_batches(experiment *e, batcher *b, int64_t batches, double *sums, char *message, size_t size) {
    translation *s = translation_of(e);
    for (int64_t i = 0; i < batches; i++) {
        const batch *x = batcher_next(b);
        if (!experiment_is_mine(e, i)) continue;
        translation_feed(s->score_plan, &s->score_symbols, x);
        nn_plan_forward(s->score_plan);
        if (experiment_failed(nn_plan_wait(s->score_plan), message, size)) return -1;
        experiment_progress(e, "scoring batch", i + 1, batches);
        const float *loss = nn_plan_data(s->score_plan, "loss");
        for (int k = 0; k < 4; k++) sums[4 * i + k] = (double)loss[k];
    }
    return 0;
}

/* Over the first so many batches of a split; 0: over all. */
static int score(experiment *e, int split, int64_t batches, task_result *out, char *message, size_t size) {
    translation *s = translation_of(e);
    batcher *b = NULL;
    if (s->pairs[split].n == 0 || !s->score_plan) return 0;
    int failed = held_out_batches(e, split, &b, message, size);
    if (!failed && (batches == 0 || batches > batcher_steps(b))) batches = batcher_steps(b);
    double sums[4] = {0}, *each = failed ? NULL : calloc((size_t)batches * 4, sizeof *each);
    if (!failed && !each) failed = text_fail(message, size, "out of memory for scores");
    if (!failed) failed = score_batches(e, b, batches, each, message, size);
    failed = comm_agree(e->comm, failed, message, size);
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

/* ---- translations ---- */

/* Sentences as the decoder reads them: the tokens of sentence i, with the end mark, are ids[at[i]] .. ids[at[i + 1] - 1]. */
typedef struct sources {
    int64_t n;
    int64_t *at;
    int32_t *ids;
    int64_t room; /* of ids */
} sources;

static int open_sources(sources *x, int64_t n, char *message, size_t size) {
    *x = (sources){.at = calloc((size_t)n + 1, sizeof *x->at)};
    return x->at ? 0 : text_fail(message, size, "out of memory for %lld sentences", (long long)n);
}

static void close_sources(sources *x) {
    free(x->at);
    free(x->ids);
}

static int append_source(const experiment *e, text_slice text, sources *x, char *message, size_t size) {
    const translation *s = translation_of(e);
    const int limit = translation_settings_of(&e->recipe)->data.max_length;
    const int64_t n = x->at[x->n];
    int64_t length = vocab_encode(s->src_vocab, s->unit, text, NULL, 0);
    const int64_t most = limit > 0 ? limit : length;
    if (length > most) length = most;
    if (n + length + 1 > x->room) {
        const int64_t room = 2 * (n + length + 1);
        int32_t *grown = realloc(x->ids, (size_t)room * sizeof *grown);
        if (!grown) return text_fail(message, size, "out of memory for a sentence of %lld tokens", (long long)length);
        x->ids = grown;
        x->room = room;
    }
    vocab_encode(s->src_vocab, s->unit, text, x->ids + n, length);
    x->ids[n + length] = VOCAB_END;
    x->at[++x->n] = n + length + 1;
    return 0;
}

/* The decoder's take, whose failure leaves a message in its context. */
static int decode_sources(experiment *e, const sources *x, int (*take)(void *context, int64_t i, int place),
                          void *context, char *message, size_t size) {
    int taken = 0;
    const adamod_status status =
        decoder_run_all(translation_of(e)->decoder, x->n, x->ids, x->at, take, context, &taken);
    if (status) return experiment_failed(status, message, size);
    return taken;
}

/* In the tokens of the target. */
static char *output_tokens(const translation *s, const decode_result *r) {
    const size_t n = vocab_decode(s->tgt_vocab, s->unit, r->tokens, r->length, NULL, 0) + 1;
    char *text = malloc(n);
    if (text) vocab_decode(s->tgt_vocab, s->unit, r->tokens, r->length, text, n);
    return text;
}

/* As the files have it: tokens, or raw text. */
static char *output_text(translation *s, const decode_result *r) {
    char *tokens = output_tokens(s, r);
    if (!tokens || !s->raw.codes.worker) return tokens;
    char *text = raw_text_join(&s->raw, tokens);
    free(tokens);
    return text;
}

/* Lines that are being translated: those without a token are answered already, and place says where the others are from. */
typedef struct lines_job {
    translation *s;
    int *place;
    int nbest;
    translation_answer *answers;
    char *message;
    size_t size;
} lines_job;

static int take_answers(void *context, int64_t i, int k) {
    const lines_job *j = context;
    translation_answer *mine = j->answers + (size_t)j->place[i] * (size_t)j->nbest;
    for (int b = 0; b < j->nbest; b++) {
        decode_result r;
        if (!decoder_result(j->s->decoder, k, b, &r)) continue;
        mine[b].text = output_text(j->s, &r);
        mine[b].score = r.score;
        if (!mine[b].text) return text_fail(j->message, j->size, "out of memory for translations");
    }
    return 0;
}

/* Appends a line's tokens to the sources, or answers it. */
static int read_line(experiment *e, int i, text_slice line, lines_job *j, sources *x) {
    translation_answer *mine = j->answers + (size_t)i * (size_t)j->nbest;
    char *subwords = NULL;
    int status = 0;
    if (j->s->raw.codes.worker) {
        if (!(subwords = raw_text_split(&j->s->raw, line)))
            return text_fail(j->message, j->size, "out of memory for a line");
        line = text_of(subwords);
    }
    mine->tokens = text_count_tokens(j->s->unit, line);
    j->place[x->n] = i;
    if (mine->tokens) status = append_source(e, line, x, j->message, j->size);
    else if (!(mine->text = strdup(""))) status = text_fail(j->message, j->size, "out of memory for a line");
    free(subwords);
    return status;
}

int translation_translate(experiment *e, int n, const text_slice *lines, int nbest, translation_answer *answers,
                          char *message, size_t size) {
    sources x;
    lines_job j = {.s = translation_of(e), .nbest = nbest, .answers = answers, .message = message, .size = size};
    memset(answers, 0, (size_t)n * (size_t)nbest * sizeof *answers);
    if (open_sources(&x, n, message, size)) return -1;
    int status = 0;
    if (!(j.place = calloc((size_t)n + 1, sizeof *j.place)))
        status = text_fail(message, size, "out of memory for lines");
    for (int i = 0; i < n && !status; i++) status = read_line(e, i, lines[i], &j, &x);
    if (!status) status = decode_sources(e, &x, take_answers, &j, message, size);
    for (int i = 0; status && i < n * nbest; i++) free(answers[i].text);
    free(j.place);
    close_sources(&x);
    return status;
}

/* Where translations of a split go: into BLEU, which counts words, and the first of them to the report. */
typedef struct judge {
    bleu score;
    score_text *text; /* of raw text; NULL: there is none */
    bool unite;       /* words are to be counted, of text in subwords */
    task_sample sample;
    void *context;
    int64_t wanted; /* samples still to be kept */
} judge;

static int keep_sample(judge *j, text_slice source, text_slice reference, const char *output, char *message,
                       size_t size) {
    char *a = strndup(source.bytes, source.n), *b = strndup(reference.bytes, reference.n);
    const task_text texts[] = {{"source", a}, {"reference", b}, {"output", output}};
    const int status = a && b ? j->sample(j->context, 3, texts, message, size)
                              : text_fail(message, size, "out of memory for a sample");
    free(a);
    free(b);
    return status;
}

static int judge_pair(judge *j, translation *s, int split, int64_t i, const decode_result *r, char *message,
                      size_t size) {
    const corpus_text *shown = j->text ? &s->raw_pairs[split] : &s->text[split];
    const text_slice source = corpus_sentence(&shown->src, i), reference = corpus_sentence(&shown->tgt, i);
    const text_slice target = corpus_sentence(&s->text[split].tgt, i);
    char *tokens = output_tokens(s, r), *output = output_text(s, r), *right = strndup(target.bytes, target.n);
    int status = -1;
    if (j->unite && tokens && right) { /* the words of the data set */
        raw_text_unite(tokens);
        raw_text_unite(right);
    }
    if (tokens && output && right && bleu_add(&j->score, text_of(tokens), text_of(right)) == 0)
        status = j->text ? score_add(j->text, text_of(output), reference) : 0;
    if (status) text_fail(message, size, "out of memory comparing translations");
    if (!status && j->sample && j->wanted-- > 0) status = keep_sample(j, source, reference, output, message, size);
    free(tokens);
    free(output);
    free(right);
    return status;
}

/* Translations of a split: ranks share its sentences, of which rank r has r, r + ranks, ..., and each gets all of them, to
 * be judged in order. Of each its length, then its tokens. */
typedef struct decoded {
    experiment *e;
    int64_t n, done, ranks;
    int32_t *all, *mine;
    size_t line, lines; /* numbers of a sentence, and of a rank's sentences */
} decoded;

static int take_result(void *context, int64_t i, int place) {
    decoded *d = context;
    decode_result r = {0};
    int32_t *to = d->mine + (size_t)i * d->line;
    decoder_result(translation_of(d->e)->decoder, place, 0, &r);
    *to = r.length;
    if (r.length > 0) memcpy(to + 1, r.tokens, (size_t)r.length * sizeof *to);
    d->done = d->done + d->ranks < d->n ? d->done + d->ranks : d->n;
    experiment_progress(d->e, "translating", d->done, d->n);
    return 0;
}

static decode_result result_of(const decoded *d, int64_t i) {
    const int32_t *at = d->all + (size_t)(i % d->ranks) * d->lines + (size_t)(i / d->ranks) * d->line;
    return (decode_result){.tokens = at + 1, .length = *at};
}

/* This rank's, into mine. */
static int decode_mine(decoded *d, int split, char *message, size_t size) {
    sources x;
    if (open_sources(&x, d->n, message, size)) return -1;
    const corpus_lines *lines = &translation_of(d->e)->text[split].src;
    int status = 0;
    for (int64_t i = comm_rank(d->e->comm); !status && i < d->n; i += d->ranks)
        status = append_source(d->e, corpus_sentence(lines, i), &x, message, size);
    if (!status) status = decode_sources(d->e, &x, take_result, d, message, size);
    close_sources(&x);
    return status;
}

static int judge_split(decoded *d, int split, judge *j, char *message, size_t size) {
    if (comm_agree(d->e->comm, decode_mine(d, split, message, size), message, size)) return -1;
    comm_gather(d->e->comm, d->mine, d->lines * sizeof *d->mine, d->all);
    for (int64_t i = 0; i < d->n; i++) {
        const decode_result r = result_of(d, i);
        if (judge_pair(j, translation_of(d->e), split, i, &r, message, size)) return -1;
    }
    return 0;
}

/* Of the first n pairs of a split. */
static int translate_split(experiment *e, int split, int64_t n, judge *j, task_result *out, char *message,
                           size_t size) {
    const double start = clock_seconds();
    decoded d = {.e = e, .ranks = comm_size(e->comm)};
    d.n = n = n < translation_of(e)->text[split].n ? n : translation_of(e)->text[split].n;
    d.line = (size_t)translation_settings_of(&e->recipe)->decode.max_length + 1;
    d.lines = (size_t)((n + d.ranks - 1) / d.ranks) * d.line;
    d.all = calloc(((size_t)d.ranks + 1) * d.lines + 1, sizeof *d.all);
    d.mine = d.all ? d.all + (size_t)d.ranks * d.lines : NULL;
    const int status = d.all ? 0 : text_fail(message, size, "out of memory for translations");
    const int failed = comm_agree(e->comm, status, message, size) || judge_split(&d, split, j, message, size);
    free(d.all);
    if (failed) return -1;
    out->value[EXACT] = bleu_exact(&j->score);
    out->value[BLEU] = bleu_score(&j->score, BLEU_PLAIN);
    if (j->text) out->value[BLEU_13A] = score_value(j->text);
    out->samples = n;
    out->seconds = clock_seconds() - start;
    return 0;
}

static int evaluate(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out, char *message, size_t size) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    judge j = {.sample = sample, .context = context, .wanted = r->decode.samples, .unite = is_split(r)};
    *out = (task_result){0};
    for (int i = 0; i < TASK_MOST_METRICS; i++) out->value[i] = NAN;
    if (score(e, split, depth == TASK_GLANCE ? 1 : 0, out, message, size)) return -1;
    const int64_t pairs = depth == TASK_WHOLE ? INT64_MAX : depth == TASK_PERIODIC ? r->train.evaluate_pairs : 0;
    if (pairs == 0 || !translation_of(e)->decoder) return 0;
    const score_options text = {.metric = SCORE_BLEU, .tokenize = SCORE_13A};
    const bool scored = translation_of(e)->raw_pairs[split].n > 0;
    if (scored && !(j.text = score_create(&text))) return text_fail(message, size, "out of memory for scores");
    const int status = translate_split(e, split, pairs, &j, out, message, size);
    score_free(j.text);
    return status;
}

/* ---- the tables ---- */

static const task_model transformer = {"transformer", &transformer_keys, check_transformer};
static const task_model *const models[] = {&transformer, NULL};
static const key_table *const of_bitext[] = {&bitext_table, &common_table, NULL};
static const key_table *const of_numbers[] = {&numbers_table, &common_table, NULL};

static const char *const subtitle[] = {"model.kind",  "model.layers",   "model.d",         "model.ffn",
                                       "model.heads", "data.sentences", "data.max_tokens", NULL};

#define TRANSLATION                                                                                                    \
    .items = "tokens", .samples = "sentences", .answers = "Translations", .limit = "train.evaluate_pairs",             \
    .subtitle = subtitle, .models = models, .metrics = metrics, .n_metrics = METRICS, .measures = measures,            \
    .open = open_translation, .close = close_translation, .build = build, .prepare = prepare, .batches = batches,      \
    .next = next, .seek = seek, .has = has, .count = count, .evaluate = evaluate, .save = save,                        \
    .fingerprint = fingerprint, .describe = describe, .data = data_parts, .note = note, .bench = &translation_bench

const task task_bitext = {
    .name = "bitext", .about = "translation of your own text", .keys = of_bitext, .check = check_bitext, TRANSLATION};
const task task_numbers = {.name = "numbers",
                           .about = "German number words to English",
                           .keys = of_numbers,
                           .check = check_numbers,
                           TRANSLATION};
