/* language_samples.h - what a model writes for the report: it goes on from the beginnings of lines of held-out text. */
#ifndef ADAMOD_LANGUAGE_SAMPLES_H
#define ADAMOD_LANGUAGE_SAMPLES_H

#include "tasks/language.h"

/* generate.samples texts, "prompt" and "output", from places spread over a split. */
int language_samples(const experiment *e, task_split split, task_sample sample, void *context);

#endif
