/* option_sets.h - options for the library and for tests/support/reference.c at once, from text like "lr=0.1 flavour=keras", and the
 * sets of them that are worth a run.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_OPTION_SETS_H
#define ADAMOD_TESTS_OPTION_SETS_H

#include "adamod.h"
#include "rule_table.h"

#include <stdbool.h>

/* Sets options in any of: the reference, a handle (group -1: all) and a hyper. Unknown names fail a check, except
 * clip_norm, state_type and low_precision, which the reference does not have. */
void apply(const char *text, ref_options *o, adamod_optimizer *opt, int group, adamod_hyper *h);

/* Set number i of all: those of one rule, ROW_SETS of its row, then those for every rule; false past the end. */
bool set_at(int i, option_set *out);

#endif
