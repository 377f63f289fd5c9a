/* dense_cases.h - cases of add_norm and cross_entropy, for tests on every backend. */
#ifndef DENSE_CASES_H
#define DENSE_CASES_H

#include "opcheck.h"

opcheck add_norm_case(int64_t rows, int64_t cols, bool branch, double dropout, bool training);

/* One of five rows has no target. targets: room for the rows. */
opcheck cross_entropy_case(int64_t rows, int64_t classes, double smoothing, int32_t *targets);

#endif
