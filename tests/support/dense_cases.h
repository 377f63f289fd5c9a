/* dense_cases.h - cases of dropout, add_norm, cross_entropy and embedding, for tests on every backend. */
#ifndef DENSE_CASES_H
#define DENSE_CASES_H

#include "opcheck.h"

opcheck dropout_case(int64_t rows, int64_t cols, double p, bool training);
opcheck add_norm_case(int64_t rows, int64_t cols, bool branch, double dropout, bool training);

/* One of five rows has no target. targets: room for the rows. */
opcheck cross_entropy_case(int64_t rows, int64_t classes, double smoothing, int32_t *targets);

/* A table of n rows of d columns. ids and positions: room for the rows; positions NULL: none; else they are below furthest. */
opcheck embedding_case(int64_t rows, int64_t n, int64_t d, int32_t *ids, int32_t *positions, uint64_t furthest);

#endif
