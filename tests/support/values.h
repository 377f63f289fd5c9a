/* values.h - numbers for the tests: random ones, and how each type keeps them, by its definition and not by the library's
 * conversions.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_VALUES_H
#define ADAMOD_TESTS_VALUES_H

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array has fewer than 2 to this many elements. */
#if SIZE_MAX > UINT32_MAX
#define COUNT_BITS "60"
#else
#define COUNT_BITS "29"
#endif

/* Whether ADAMOD_TEST_FAST asks for fewer repetitions. */
bool fast(void);

/* Threads of this process, or -1 where that is not known. */
int threads_now(void);

/* ---- random numbers, the same everywhere ---- */

/* splitmix64; a test that must not depend on those before it sets the state. */
extern uint64_t rng_state;
uint64_t rng(void);
/* In [0, 1). */
double uniform(void);
/* Number i of a sequence without a state; in [-1, 1). */
double noise(uint64_t i);

/* ---- types ---- */

/* Types of parameters and gradients. */
size_t type_size(adamod_type type);

/* bf16 and f16 without their sign: the pattern of infinity, beyond which are NaNs; */
unsigned infinity16(adamod_type type);
/* the value of a pattern that is not a NaN, and for infinity's the number that would follow the largest; */
double decode16(adamod_type type, unsigned bits);
/* the last number of the type that is not above |x|. */
unsigned below16(adamod_type type, double x);
/* With its sign: to nearest, ties to even. Not for NaN. */
uint16_t nearest16(adamod_type type, double x);
/* With its sign, cut and not rounded. */
uint16_t to_bf16(double x);

/* The value of a pattern with its sign, and the pattern nearest to a value; NaNs too. */
double get16(adamod_type type, uint16_t bits);
uint16_t put16(adamod_type type, double x);

/* Element i of an array; rounded to nearest. Here, since tests spend their time in them. */
static inline double get(adamod_type type, const void *data, int64_t i) {
    if (type == ADAMOD_F64) return ((const double *)data)[i];
    if (type == ADAMOD_F32) return (double)((const float *)data)[i];
    return get16(type, ((const uint16_t *)data)[i]);
}

static inline void put(adamod_type type, void *data, int64_t i, double x) {
    if (type == ADAMOD_F64) ((double *)data)[i] = x;
    else if (type == ADAMOD_F32) ((float *)data)[i] = (float)x;
    else ((uint16_t *)data)[i] = put16(type, x);
}

/* ---- states ---- */

/* Name number i of all states that rules have, then "master"; NULL past the end. An optimizer knows some of them. */
const char *state_name(int i);

/* ---- options ---- */

/* Takes the next word off "name=value name=value", which it cuts up; false if there is none. */
bool next_option(char **rest, char **name, char **value);

#endif
