/* option_sets.h - options for the library and for tests/support/reference.c at once, from text like "lr=0.1 flavour=keras", and the
 * sets of them that are worth a run.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_OPTION_SETS_H
#define ADAMOD_TESTS_OPTION_SETS_H

#include "adamod.h"
#include "reference.h"

#include <stdbool.h>

/* The reference's option number i, by the library's name; NULL past the end. spatial, a choice, is not among them. */
const char *reference_option(int i);
double reference_value(const ref_options *o, int i);

/* Sets options in any of: the reference, a handle (group -1: all) and a hyper. Unknown names fail a check, but for
 * clip_norm, state_type and low_precision, which the reference does not have. */
void apply(const char *text, ref_options *o, adamod_optimizer *opt, int group, adamod_hyper *h);

typedef struct option_set {
    const char *rule, *options;
} option_set;
/* For one rule; other sets are for every rule. */
extern const option_set own_sets[];
extern const int own_set_count;
/* Set number i of all, own_sets first; false past the end. */
bool set_at(int i, option_set *out);

#endif
