/* translation_keys.h - the recipe of a translation: its keys, and what no single key can tell. */
#ifndef ADAMOD_TRANSLATION_KEYS_H
#define ADAMOD_TRANSLATION_KEYS_H

#include "data/sets/data_sets.h"
#include "tasks/translation.h"

/* As task.keys and task.check, and task_model.check. */
extern const key_table *const translation_bitext_keys[], *const translation_numbers_keys[];
const char *translation_check_bitext(const recipe *r);
const char *translation_check_numbers(const recipe *r);
const char *translation_check_transformer(const recipe *r);

/* The data set that is read; NULL: files. */
const data_set *translation_set(const translation_settings *s);
/* Whether the files are in subwords already, with tokens as the data set's preparation has them. */
bool translation_is_split(const translation_settings *s);
/* Whether translations can be scored as text: against raw references, in the case that these have. */
bool translation_scores_text(const translation_settings *s);

#endif
