/* translation_sources.h - sentences in the numbers that the decoder reads. */
#ifndef ADAMOD_TRANSLATION_SOURCES_H
#define ADAMOD_TRANSLATION_SOURCES_H

#include "tasks/translation.h"

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

#endif
