#include "tasks/translation_parts.h"

#include "core/error.h"

#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

#define S translation_settings
static const key_spec common_keys[] = {
    ENUM_KEY(S, data.tokens, "characters", "words characters", STRICT, "what a token is"),
    SWITCH_KEY(S, data.joint, "false", STRICT, "one vocabulary for both languages"),
    PATH_KEY(S, data.vocabularies, LOOSE, "a run to take vocabularies and codes from, instead of the training text"),
    WHOLE_KEY(S, data.min_count, "1", 1, KEY_MOST_INT, STRICT, "tokens seen less often become the unknown token"),
    WHOLE_KEY(S, data.max_vocab, "0", 0, KEY_MOST_INT, STRICT,
              "size of a vocabulary, the most frequent tokens; 0: all"),
    WHOLE_KEY(S, data.max_length, "175", 1, 100000, STRICT,
              "most tokens in a sentence; longer training pairs are skipped, others cut"),
    REAL_KEY(S, data.max_ratio, "0", 0, 1000, false, STRICT,
             "largest ratio of lengths in a training pair; others are skipped; 0: no limit"),
    SWITCH_KEY(S, data.skip_empty, "true", STRICT, "skip training pairs with an empty side; false: refuse them"),
    WHOLE_KEY(S, data.sentences, "0", 0, 1000000, STRICT,
              "most sentences in a batch; 0: only data.max_tokens limits it"),
    WHOLE_KEY(S, data.max_tokens, "4000", 1, KEY_MOST_INT, STRICT,
              "most tokens in a batch: sentences times the longest"),
    SWITCH_KEY(
        S, data.sort_by_length, "true", STRICT,
        "sentences of similar lengths in a batch; false: data.sentences in random order, data.max_tokens ignored"),
    WHOLE_KEY(S, train.evaluate_pairs, "64", 0, 1e15, LOOSE,
              "validation pairs translated at each evaluation, for exact matches and BLEU; 0: none"),
    WHOLE_KEY(S, decode.beam, "4", 1, 64, LOOSE, "hypotheses kept in beam search; 1: greedy"),
    WHOLE_KEY(S, decode.max_length, "200", 1, 100000, LOOSE, "most tokens in a translation"),
    REAL_KEY(S, decode.length_penalty, "1", 0, 100, false, LOOSE, "a score is divided by the length to this power"),
    WHOLE_KEY(S, decode.samples, "20", 0, 1000000, LOOSE, "number of translations kept for the report"),
};
static const key_spec bitext_keys[] = {
    CHOICE_KEY(S, data.set, "files", "files iwslt14-de-en wmt14-en-de multi30k-de-en", STRICT,
               "a data set that `adamod data prepare` made, or files: the files below"),
    PATH_KEY(S, data.source, LOOSE, "a file with one source sentence per line"),
    PATH_KEY(S, data.target, LOOSE, "a file with their translations"),
    PATH_KEY(S, data.valid_source, LOOSE, "the same for validation"),
    PATH_KEY(S, data.valid_target, LOOSE, "their translations"),
    PATH_KEY(S, data.test_source, LOOSE, "the same for the test; optional"),
    PATH_KEY(S, data.test_target, LOOSE, "their translations"),
    SWITCH_KEY(S, data.raw, "false", STRICT, "the files are raw text, to be tokenized and split into subwords"),
    TEXT_KEY(S, data.source_lang, "en", STRICT, "raw: the language of the source"),
    TEXT_KEY(S, data.target_lang, "en", STRICT, "raw: the language of the target"),
    PATH_KEY(S, data.bpe, LOOSE, "raw: file of BPE codes; if not given, learned from the training text"),
    WHOLE_KEY(S, data.merges, "10000", 1, 10000000, STRICT, "raw: number of BPE codes to learn"),
};
static const key_spec numbers_keys[] = {
    WHOLE_KEY(S, data.train, "100000", 1, CORPUS_NUMBERS_TRAIN, STRICT, "pairs to train on"),
    WHOLE_KEY(S, data.valid, "500", 1, CORPUS_NUMBERS_HELD_OUT, STRICT, "pairs held out for validation"),
    WHOLE_KEY(S, data.test, "1000", 1, CORPUS_NUMBERS_HELD_OUT, STRICT, "pairs held out for the test"),
    WHOLE_KEY(S, data.seed, "1", 0, KEY_MOST_SEED, STRICT, "seed of the choice of training pairs"),
};
#undef S
#define TABLE(keys)                                                                                                    \
    { keys, sizeof keys / sizeof *keys, sizeof(translation_settings) }
static const key_table common_table = TABLE(common_keys), bitext_table = TABLE(bitext_keys),
                       numbers_table = TABLE(numbers_keys);
const key_table *const translation_bitext_keys[] = {&bitext_table, &common_table, NULL};
const key_table *const translation_numbers_keys[] = {&numbers_table, &common_table, NULL};

/* ---- checks of several keys ---- */

static const char *check_vocabulary_size(const translation_settings *s) {
    if (s->data.max_vocab == 0 || s->data.max_vocab > VOCAB_SPECIALS) return NULL;
    return task_refuse("data.max_vocab", "data.max_vocab is %d, expected 0 or more than the %d special tokens",
                       s->data.max_vocab, VOCAB_SPECIALS);
}

static const char *check_batches(const translation_settings *s) {
    if (s->data.max_ratio > 0 && s->data.max_ratio < 1)
        return task_refuse("data.max_ratio", "data.max_ratio is %g, expected 0 or at least 1: no pair is below 1",
                           s->data.max_ratio);
    if (!s->data.sort_by_length && s->data.sentences == 0)
        return task_refuse("data.sort_by_length",
                           "data.sort_by_length is false: batches are of data.sentences, which must be above 0");
    if (s->data.sentences > 0 || s->data.max_tokens > s->data.max_length) return NULL;
    return task_refuse("data.max_tokens",
                       "data.max_tokens is %d: a sentence of data.max_length %d, and its end, would fit into no batch",
                       s->data.max_tokens, s->data.max_length);
}

static const char *check_common(const recipe *r) {
    const translation_settings *s = translation_settings_of(r);
    const char *path = check_vocabulary_size(s);
    return path ? path : check_batches(s);
}

const data_set *translation_set(const translation_settings *s) { return data_set_find(s->data.set); }

bool translation_is_split(const translation_settings *s) { return translation_set(s) && translation_set(s)->pairs; }

bool translation_scores_text(const translation_settings *s) {
    return s->data.raw || (translation_is_split(s) && !translation_set(s)->pairs->sides[RAW_TARGET].lower);
}

/* A data set has its own files and languages, and is raw or not. */
static const char *check_set(const translation_settings *s, const data_set *set) {
    const char *const languages[] = {s->data.source_lang, s->data.target_lang};
    for (int i = 0; i < bitext_table.n; i++) {
        const key_spec *k = &bitext_keys[i];
        if (k->kind != KEY_PATH || strcmp(k->path, "data.bpe") == 0 || !*((const char *)s + k->offset)) continue;
        return task_refuse(k->path, "%s is given, but data.set %s has files of its own; data.set files reads yours",
                           k->path, set->name);
    }
    if (s->data.raw != !set->pairs)
        return task_refuse("data.raw", "data.raw is %s, but data.set %s is %s", s->data.raw ? "true" : "false",
                           set->name, set->pairs ? "in subwords" : "raw text");
    if (s->data.tokens != TEXT_WORDS)
        return task_refuse("data.tokens", "data.tokens is characters, expected words: data.set %s is made of them",
                           set->name);
    for (int i = 0; s->data.raw && i < 2; i++) {
        const char *key = i ? "data.target_lang" : "data.source_lang";
        if (strcmp(languages[i], set->languages[i]) != 0)
            return task_refuse(key, "%s is %s, expected %s, which data.set %s has", key, languages[i],
                               set->languages[i], set->name);
    }
    return NULL;
}

/* The first file that is needed and not given, or NULL. */
static const char *check_files(const translation_settings *s) {
    if (translation_set(s)) return check_set(s, translation_set(s));
    const bool test = *s->data.test_source || *s->data.test_target;
    for (int i = 0; i < bitext_table.n; i++) {
        const key_spec *k = &bitext_keys[i];
        const bool of_test = strncmp(k->path, "data.test_", 10) == 0;
        if (k->kind != KEY_PATH || strcmp(k->path, "data.bpe") == 0) continue;
        if (*((const char *)s + k->offset) || (of_test && !test)) continue;
        return task_refuse(k->path, "%s is not given; %s", k->path,
                           of_test ? "the other half of the test is" : "data.task bitext needs it");
    }
    return NULL;
}

static const char *check_raw(const translation_settings *s) {
    if (s->data.raw && s->data.tokens != TEXT_WORDS)
        return task_refuse("data.tokens",
                           "data.raw is true: data.tokens is characters, expected words, which are subwords then");
    const char *const languages[][2] = {{"data.source_lang", s->data.source_lang},
                                        {"data.target_lang", s->data.target_lang}};
    for (int i = 0; s->data.raw && i < 2; i++) {
        const size_t n = strspn(languages[i][1], "abcdefghijklmnopqrstuvwxyz");
        if (n >= 2 && n <= 3 && !languages[i][1][n]) continue;
        return task_refuse(languages[i][0], "%s is '%s', expected a code of two or three small letters",
                           languages[i][0], languages[i][1]);
    }
    if (s->data.raw || !*s->data.bpe) return NULL;
    return task_refuse("data.bpe", "data.bpe is given, but data.raw is false: text is taken as it is");
}

const char *translation_check_bitext(const recipe *r) {
    const char *raw = check_raw(translation_settings_of(r));
    if (raw) return raw;
    const char *path = check_files(translation_settings_of(r));
    return path ? path : check_common(r);
}

/* Refuses keys that would have no effect on generated text. */
const char *translation_check_numbers(const recipe *r) {
    const translation_settings *s = translation_settings_of(r);
    if (s->data.tokens != TEXT_CHARACTERS)
        return task_refuse("data.tokens",
                           "data.tokens is words, expected characters, which data.task numbers is made of");
    if (s->data.max_length >= CORPUS_NUMBERS_LONGEST) return check_common(r);
    return task_refuse("data.max_length",
                       "data.max_length is %d, expected at least %d: the longest of data.task numbers would be cut",
                       s->data.max_length, CORPUS_NUMBERS_LONGEST);
}

const char *translation_check_transformer(const recipe *r) {
    const transformer_settings *s = transformer_settings_of(r);
    if (s->model.d % s->model.heads)
        return task_refuse("model.heads", "model.heads is %d, which does not divide model.d %d", s->model.heads,
                           s->model.d);
    if (s->model.d % 2) /* half of a position's numbers are sines, half cosines */
        return task_refuse("model.d", "model.d is %d, expected an even number", s->model.d);
    if (!s->model.share_all || translation_settings_of(r)->data.joint) return NULL;
    return task_refuse("model.share_all",
                       "model.share_all is true: one table needs one vocabulary, so data.joint must be true");
}
