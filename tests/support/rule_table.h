/* rule_table.h - what tests know of each rule beyond what adamod_rule_info tells, in one table: rule_table.inc.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_RULE_TABLE_H
#define ADAMOD_TESTS_RULE_TABLE_H

#include "reference.h"

/* Sets of options that are worth a run, as "lr=0.1 flavour=keras"; the defaults are "". */
typedef enum row_list {
    ROW_SETS,  /* against the reference */
    ROW_BITS,  /* the same bits on every instruction set, for every type and number of threads: one for each kernel */
    ROW_WHOLE, /* the same, where an element depends on the whole array */
    ROW_FILES, /* going on from a state file: one for each set of states */
    ROW_Q8,    /* with states in 8 bits, on the CPU and on a GPU: one for each kernel */
    ROW_CUDA,  /* the same bits on a GPU */
    ROW_LISTS
} row_list;
enum { ROW_OPTIONS = 12 };

typedef struct rule_row {
    const char *name;
    void (*step)(ref_state *s, double *p, const double *g, const ref_options *o); /* the reference, in reference.c */
    const char *defaults; /* of the rule's own options; decay is decoupled unless it is here */
    const char *states;   /* the reference's, of one number for each element */
    int (*more_states)(ref_state *s, const ref_options *o); /* adds others, by options and shape; 0: no memory */
    bool own_decay; /* the formula has the decoupled decay in it, and needs the parameters as they were */
    bool recovers;  /* a gradient whose square overflows leaves nothing that is not finite */
    const char *options[ROW_LISTS][ROW_OPTIONS];
} rule_row;
extern const rule_row rule_table[];
extern const int rule_table_count;

/* The row of a rule; NULL: there is none. */
const rule_row *rule_row_of(const char *rule);

typedef struct option_set {
    const char *rule, *options;
} option_set;
/* Number i of a list, of all rows; false past the end. */
bool rule_options(row_list list, int i, option_set *out);

#endif
