/* run_folders.h - run directories made by hand, and the pages that come of them; for tests of reports.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef RUN_FOLDERS_H
#define RUN_FOLDERS_H

#include "scratch.h"
#include "report/reader.h"

#include <stdbool.h>
#include <stdio.h>

/* Metrics that runs without a task.json may have. */
enum { KNOWN_METRICS = 4 };
extern const metric known[KNOWN_METRICS];
#define KNOWN known, KNOWN_METRICS

/* ---- files ---- */

/* A file of a run, whose directory is made if need be. */
FILE *create(const char *run, const char *name);
void put(const char *run, const char *name, const char *text);

/* A file's text, to be freed; "" if there is none. */
char *contents(const char *path);
void check_file(const char *path, const char *part); /* that it has this part */
long size_of(const char *path);                      /* -1: there is none */

/* Sends one of the standard streams to a file, until restore(). */
int divert(int fd, const char *path);
void restore(int fd, int kept);

/* ---- runs ---- */

typedef struct made {
    const char *directory, *name, *status; /* status NULL: no result.json */
    int seed, steps;
    double first, last; /* training loss at the first update, and of all in the second half */
    double valid, exact, bleu;
} made;

/* Translation of numbers, as version 0.1 left it: without a task.json. AdaMod if the name says so, else Adam. */
const char *make_run(made m);

/* task.json of a classifier of pictures. */
extern const char pictures[];

/* Forty updates in two epochs, of which all is recorded: a learning rate that rises to 1000 times its first. */
const char *make_curves(const char *directory, const char *name, const char *task);

/* A directory with a recipe alone. */
const char *bare(const char *name);

/* ---- pages ---- */

/* Writes the page of some runs, quietly (notes.txt has what it said), and gives its text without the script that every page
 * has; the second as where there is no gnuplot. */
char *page_of(const char *const *runs, int n, const char *name);
char *plain_page_of(const char *const *runs, int n, const char *name);

bool have_gnuplot(void);

#endif
