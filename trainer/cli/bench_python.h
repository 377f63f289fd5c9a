/* bench_python.h - a Python process that answers requests, so that its measurements can alternate with ours.
 *
 * Its script gets the number of threads and an argument. It first prints one line of JSON about itself, then answers each
 * line with one. "python" in the first is the program it runs in. An answer with "error" is a failure; strings in answers
 * have no quotes in them. It answers the request {"do": "probe"} by the "seconds" that a little of its work took. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct bench_python bench_python;

/* Settings of the environment ("NAME=VALUE") to try one after another. A setting that makes a probe faster is kept.
 * Variables that the user has set are not tried. */
enum { BENCH_TRIALS = 2 };
/* Threads sleep while they wait. On a busy machine threads that spin are many times slower, on an idle one faster. */
#define BENCH_WAIT_ASLEEP "OMP_WAIT_POLICY=passive"

/* Starts the first of python (NULL: none), python3 and /usr/bin/python3 whose script answers; NULL if none does.
 * bench_python_get reads its first answer. argument and any of trials may be NULL. */
bench_python *bench_python_start(const char *python, const char *script, int threads, const char *argument,
                                 const char *const trials[BENCH_TRIALS]);
void bench_python_stop(bench_python *p);

/* The stream for a request that is written in parts, one line in all, and the wait for its answer. After a failure
 * bench_python_error says why. */
FILE *bench_python_request(bench_python *p);
bool bench_python_answer(bench_python *p);
/* Sends the request, a line, and waits for its answer. */
bool bench_python_ask(bench_python *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Copies the string or number after a key of the last answer. */
bool bench_python_get(const bench_python *p, const char *key, char *out, size_t size);
/* The number after a key of the last answer; 0: none. */
double bench_python_number(const bench_python *p, const char *key);

/* The program as it names itself, or as it was called. */
const char *bench_python_name(const bench_python *p);
/* Warns that another Python than the user's runs, or that its torch, of this version, is old. */
void bench_python_warn(const bench_python *p, const char *command, const char *version);
/* The settings that were kept, separated by spaces. */
const char *bench_python_settings(const bench_python *p);
const char *bench_python_error(const bench_python *p);
