/* state_model.h - optimizers of every rule and type for the tests of state files, updates that are not all alike, and whether two
 * optimizers are the same.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_STATE_MODEL_H
#define ADAMOD_TESTS_STATE_MODEL_H

#include "adamod.h"
#include "check.h"
#include "rule_table.h"
#include "snapshot.h"

#define FILE_NAME "state.safetensors"

/* Number i of the rules with options, ROW_FILES; its rule is NULL past the end. The first two are adamod's. */
option_set model_rule(int i);
int model_rule_of(const char *rule, const char *options);

typedef struct kind {
    adamod_type type;
    bool stochastic, bf16_states;
} kind;
extern const kind model_kinds[];
extern const int model_kind_count;

enum { TENSORS = 5, LATE = TENSORS - 1, MOST = 35 };
typedef struct model_shape {
    const char *name;
    int ndim;
    int64_t shape[3];
} model_shape;
extern const model_shape model_layout[TENSORS];

typedef struct model {
    adamod_optimizer *opt;
    kind kind;
    double p[TENSORS][MOST], g[TENSORS][MOST]; /* room for the largest type */
    bool late;                                 /* whether it has a gradient by now */
} model;

void model_make_as(model *m, int rule, kind types, const adamod_allocator *allocator, const char *rename_last);
void model_make(model *m, int rule, kind types);
/* Updates from..to. Update 3 is preceded by one that is skipped, and from update 4 on all parameters take part. */
void model_updates(model *m, int from, int to);

/* Whether counts, parameters and states are those of another; or as they were, down to where the states lie. */
bool model_same(const model *a, const model *b);
void model_remember(const model *m);
bool model_unchanged(const model *m);

/* Loading this fails, with the message kept, and the optimizer is unchanged. */
#define REFUSED(m, path, status, part) model_refused(m, path, status, part, __FILE__, __LINE__)
bool model_refused(const model *m, const char *path, adamod_status status, const char *part, const char *file,
                   int line);
extern char model_message[600];

#endif
