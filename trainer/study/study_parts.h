/* study_parts.h - between the files of study.h. */
#ifndef ADAMOD_STUDY_PARTS_H
#define ADAMOD_STUDY_PARTS_H

#include "study/study.h"

enum { STUDY_MOST_SEEDS = 100 };

/* Turns the names in a study into numbers; refuses those that nothing has. */
int study_resolve(study *s);

/* The one of n names that is nearest to a mistyped one; NULL: none is near. */
const char *study_nearest(const char *name, const char *const *names, int n);

/* The number of an experiment, or of a method of it; -1: there is none. */
int study_find_experiment(const study *s, const char *name);
int study_find_method(const study_experiment *e, const char *name);

/* Whether the user asks for this part, or for all. */
bool study_wants(const study_options *o, const char *name);

/* The name of a method's directories, before "-seed-N". */
void study_slug(const study *s, study_place of, char *out, size_t size);

#endif
