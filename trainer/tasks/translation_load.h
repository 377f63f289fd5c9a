/* translation_load.h - the sentence pairs of a recipe and their vocabularies: read, kept with a run, and described. */
#ifndef ADAMOD_TRANSLATION_LOAD_H
#define ADAMOD_TRANSLATION_LOAD_H

#include "tasks/translation.h"

/* Fills unit, raw, text, pairs and the vocabularies: with those of a run's directory; NULL: for training, with those that
 * the recipe says. A failure may leave parts. */
int translation_load(experiment *e, const char *directory, int uses);

/* As task.save, .fingerprint, .data, .note and .describe. */
int translation_save(const experiment *e, const char *directory);
uint64_t translation_fingerprint(const experiment *e);
int translation_data(const experiment *e, task_part *out);
bool translation_note(const experiment *e, task_split split, char *out, size_t size);
void translation_describe(const experiment *e, task_fact fact, void *context);

#endif
