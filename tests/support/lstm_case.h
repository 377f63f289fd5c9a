/* lstm_case.h - sizes of a layer of long short-term memory, and how its op is checked; for tests of its kernels.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef LSTM_CASE_H
#define LSTM_CASE_H

#include "opcheck.h"

typedef struct lstm_case {
    int steps, batch, in, h;
    bool carried, training;
    double dropout;
} lstm_case;

opcheck lstm_of(const lstm_case *a);

#endif
