/* translation_parts.h - what the files of the translation tasks share. */
#pragma once

#include "data/sets/data_sets.h"
#include "tasks/translation.h"

/* ---- the recipe: translation_keys.c ---- */

/* As task.keys and task.check, and task_model.check. */
extern const key_table *const translation_bitext_keys[], *const translation_numbers_keys[];
const char *translation_check_bitext(const recipe *r);
const char *translation_check_numbers(const recipe *r);
const char *translation_check_transformer(const recipe *r);

/* The data set of the recipe; NULL: files. */
const data_set *translation_set(const translation_settings *s);
/* Whether the data set is already in subwords. */
bool translation_is_split(const translation_settings *s);
/* Whether translations can be scored as text, against raw references in their own case. */
bool translation_scores_text(const translation_settings *s);

/* ---- sentence pairs and vocabularies: translation_load.c ---- */

/* Fills unit, raw, text, pairs and the vocabularies, from a run's directory or (NULL) for training as the recipe says. A
 * failure may leave parts. */
int translation_load(experiment *e, const char *directory, int uses);

/* As task.save, .fingerprint, .data, .note and .describe. */
int translation_save(const experiment *e, const char *directory);
uint64_t translation_fingerprint(const experiment *e);
int translation_data(const experiment *e, task_part *out);
bool translation_note(const experiment *e, task_split split, char *out, size_t size);
void translation_describe(const experiment *e, task_fact fact, void *context);

/* ---- the decoder's input: translation_sources.c ---- */

/* The tokens of sentence i, with the end mark, are ids[at[i]] .. ids[at[i + 1] - 1]. */
typedef struct translation_sources {
    int64_t n;
    int64_t *at;
    int32_t *ids;
    int64_t room; /* of ids */
} translation_sources;

int translation_sources_open(translation_sources *x, int64_t n); /* for at most n sentences */
void translation_sources_close(translation_sources *x);
/* Adds a sentence, cut to data.max_length tokens. */
int translation_sources_add(const experiment *e, text_slice text, translation_sources *x);
/* Decodes them all; take as in decoder_run_all. A failure of take leaves a message. */
int translation_sources_decode(experiment *e, const translation_sources *x,
                               int (*take)(void *context, int64_t i, int place), void *context);

/* ---- the decoder's output: translation_outputs.c ---- */

typedef struct translation_verdict {
    double exact, bleu;
    double bleu_13a; /* NAN: there is no raw text */
    int64_t sentences;
    double seconds;
} translation_verdict;

/* Translates the first pairs of a split, shared by all ranks, and compares them with the references. The first
 * decode.samples go to sample, unless it is NULL. */
int translation_judge(experiment *e, task_split split, int64_t pairs, task_sample sample, void *context,
                      translation_verdict *out);
