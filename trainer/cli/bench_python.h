/* A Python process that answers requests, so that what it measures can alternate with what we measure.
 *
 * It runs a script, which is given the number of threads and an argument, first says one line of JSON about itself, then
 * answers each line it is given with one. "python" in the first is the program that it runs in. An answer with "error" is a failure; strings in answers have no quotes in them. The request
 * {"do": "probe"} is answered by "seconds" that a little of the script's work took.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_BENCH_PYTHON_H
#define CLI_BENCH_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct bench_python bench_python;

/* Settings of the environment to try ("NAME=VALUE"), one after another; what makes a probe faster is kept. What the
 * user's environment sets already is not tried. */
enum { BENCH_TRIALS = 2 };
/* Threads that sleep while they wait. On a busy machine those that spin are many times slower, on an idle one the other
 * way round. */
#define BENCH_WAIT_ASLEEP "OMP_WAIT_POLICY=passive"

/* Starts the first of python (NULL: none), python3 and /usr/bin/python3 whose script answers; NULL if none
 * does. Its first answer can be asked with bench_python_get. argument and any
 * of trials may be NULL. */
bench_python *bench_python_start(const char *python, const char *script, int threads, const char *argument,
                                 const char *const trials[BENCH_TRIALS]);
void bench_python_stop(bench_python *p);

/* Where to write the next request, one line; then wait for its answer. false: bench_python_error says why. */
FILE *bench_python_request(bench_python *p);
bool bench_python_answer(bench_python *p);
/* Copies the string or number after a key of the last answer. */
bool bench_python_get(const bench_python *p, const char *key, char *out, size_t size);

/* The program: as it says itself, where it does; else as it was called. */
const char *bench_python_name(const bench_python *p);
/* Tells the user of a command that another Python than theirs was taken, or one whose torch, of this version, is old. */
void bench_python_warn(const bench_python *p, const char *command, const char *version);
/* The settings that were kept, with spaces between them; "": none. */
const char *bench_python_settings(const bench_python *p);
const char *bench_python_error(const bench_python *p);

#endif
