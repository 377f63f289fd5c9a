/* translation_outputs.h - what a model writes: translations of a split, against those that people wrote. */
#ifndef ADAMOD_TRANSLATION_OUTPUTS_H
#define ADAMOD_TRANSLATION_OUTPUTS_H

#include "tasks/translation.h"

typedef struct translation_verdict {
    double exact, bleu;
    double bleu_13a; /* NAN: there is no raw text */
    int64_t sentences;
    double seconds;
} translation_verdict;

/* Translates the first pairs of a split, all ranks together, and judges them; decode.samples of them go to sample, if it is
 * not NULL. */
int translation_judge(experiment *e, task_split split, int64_t pairs, task_sample sample, void *context,
                      translation_verdict *out);

#endif
