/* language_load.c - see language.h: text from files, or generated.
 *
 * SPDX-License-Identifier: MIT
 */
#include "tasks/language.h"

#include "data/text_input.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 2 * RECIPE_PATH + 2 };

static text_unit unit_of(const language_settings *r) {
    return strcmp(r->data.tokens, "words") == 0 ? TEXT_WORDS : TEXT_CHARACTERS;
}

/* The file of a split; false: there is none. */
static bool path_of(const language_settings *r, int split, char path[PATH]) {
    const char *const files[SPLITS] = {r->data.train_file, r->data.valid_file, r->data.test_file};
    if (files[split][0] == '/') snprintf(path, PATH, "%s", files[split]);
    else snprintf(path, PATH, "%s/%s", r->data.path, files[split]);
    return *files[split] != '\0';
}

/* ---- vocabulary ---- */

static int count_tokens(vocab_counter *counter, text_unit unit, const char *path, char *message, size_t size) {
    text_input *in;
    text_slice line;
    int got;
    if (text_input_open(&in, path, message, size)) return -1;
    while ((got = text_input_line(in, &line, message, size)) > 0) {
        if (vocab_counter_add(counter, unit, line, 1)) {
            got = text_fail(message, size, "out of memory for the vocabulary");
            break;
        }
    }
    text_input_close(in);
    return got;
}

static int make_vocabulary(experiment *e, char *message, size_t size) {
    const language_settings *r = language_settings_of(&e->recipe);
    /* The mark that begins sentences is in every vocabulary; no text has it, and no model here. */
    const vocab_options o = {.min_count = r->data.min_count, .max_size = r->data.max_vocab ? r->data.max_vocab + 1 : 0};
    char path[PATH];
    vocab_counter *counter = vocab_counter_create();
    if (!counter) return text_fail(message, size, "out of memory for the vocabulary");
    path_of(r, SPLIT_TRAIN, path);
    int failed = count_tokens(counter, unit_of(r), path, message, size);
    if (!failed) failed = vocab_build(&language_of(e)->vocab, counter, &o, message, size);
    vocab_counter_free(counter);
    return failed;
}

/* ---- files ---- */

/* Room for more numbers in the text of a split. */
static int grow(language *s, int split, int64_t more, int64_t *room, char *message, size_t size) {
    if (s->n[split] + more <= *room) return 0;
    const int64_t wanted = 2 * (s->n[split] + more);
    int32_t *text = realloc(s->text[split], (size_t)wanted * sizeof *text);
    if (!text) return text_fail(message, size, "out of memory for %lld tokens", (long long)wanted);
    s->text[split] = text;
    *room = wanted;
    return 0;
}

/* Numbers are the vocabulary's without the mark that begins sentences; what ends them is <eos>. */
static int add_line(experiment *e, int split, text_slice line, int64_t *room, char *message, size_t size) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const int64_t n = text_count_tokens(unit_of(r), line);
    if (grow(s, split, n + 1, room, message, size)) return -1;
    int32_t *to = s->text[split] + s->n[split];
    vocab_encode(s->vocab, unit_of(r), line, to, n);
    for (int64_t i = 0; i < n; i++) to[i] -= VOCAB_END;
    if (r->data.eos) to[n] = 0;
    s->n[split] += n + r->data.eos;
    return 0;
}

static int read_file(experiment *e, int split, char *message, size_t size) {
    char path[PATH];
    text_input *in;
    text_slice line;
    int64_t room = 0;
    int got;
    if (!path_of(language_settings_of(&e->recipe), split, path)) return 0;
    if (text_input_open(&in, path, message, size)) return -1;
    while ((got = text_input_line(in, &line, message, size)) > 0) {
        if (add_line(e, split, line, &room, message, size)) {
            got = -1;
            break;
        }
    }
    text_input_close(in);
    if (got == 0 && language_of(e)->n[split] == 0) return text_fail(message, size, "%s: there is no text in it", path);
    return got;
}

static int read_files(experiment *e, const char *directory, int uses, char *message, size_t size) {
    language *s = language_of(e);
    char path[1100];
    if (directory) snprintf(path, sizeof path, "%s/words.vocab", directory);
    if (directory ? vocab_load(&s->vocab, path, message, size) : make_vocabulary(e, message, size)) return -1;
    s->words = vocab_size(s->vocab) - VOCAB_END;
    if (!directory && read_file(e, SPLIT_TRAIN, message, size)) return -1;
    if (directory && !(uses & TASK_SCORE)) return 0;
    return read_file(e, SPLIT_VALID, message, size) || read_file(e, SPLIT_TEST, message, size) ? -1 : 0;
}

/* ---- generated ---- */

static int generate(experiment *e, bool train, char *message, size_t size) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const markov_language l = {r->data.words, r->data.branches, r->data.order, r->data.seed};
    const int64_t n[SPLITS] = {train ? r->data.train : 0, r->data.valid, r->data.test};
    s->words = r->data.words;
    for (int split = 0; split < SPLITS; split++) {
        if (n[split] == 0) continue;
        s->text[split] = malloc((size_t)n[split] * sizeof *s->text[split]);
        if (!s->text[split]) return text_fail(message, size, "out of memory for %lld words", (long long)n[split]);
        markov_text(&l, (uint64_t)split, n[split], s->text[split]);
        s->n[split] = n[split];
    }
    return 0;
}

double language_entropy(const recipe *whole) {
    const language_settings *r = language_settings_of(whole);
    const markov_language l = {r->data.words, r->data.branches, r->data.order, r->data.seed};
    return strcmp(r->data.set, "generated") == 0 ? markov_entropy(&l) : (double)NAN;
}

/* ---- either ---- */

/* A column needs a word and its successor. */
static int check_columns(const experiment *e, char *message, size_t size) {
    static const char *const keys[SPLITS] = {"data.batch", "data.valid_batch", "data.test_batch"};
    const language_settings *r = language_settings_of(&e->recipe);
    const int batch[SPLITS] = {r->data.batch, r->data.valid_batch, r->data.test_batch};
    for (int split = 0; split < SPLITS; split++) {
        const int64_t n = language_of(e)->n[split];
        if (n == 0 || n / batch[split] >= 2) continue;
        return text_fail(
            message, size, "the %s text has %lld tokens, expected at least %d: two for each of %s %d columns",
            task_split_label((task_split)split), (long long)n, 2 * batch[split], keys[split], batch[split]);
    }
    return 0;
}

int language_load(experiment *e, const char *directory, int uses, char *message, size_t size) {
    const bool generated = strcmp(language_settings_of(&e->recipe)->data.set, "generated") == 0;
    if (generated ? generate(e, !directory, message, size) : read_files(e, directory, uses, message, size)) return -1;
    return check_columns(e, message, size);
}
