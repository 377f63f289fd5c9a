/* metric.h - what a task measures, as data: whoever records, shows, compares or ranks it needs to know nothing else.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_METRIC_H
#define ADAMOD_METRIC_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum metric_better { METRIC_LOWER = -1, METRIC_NEITHER = 0, METRIC_HIGHER = 1 } metric_better;

typedef struct metric {
    const char *name;     /* in files and keys: "bleu" */
    const char *label;    /* for people, where room is short: "BLEU" */
    const char *about;    /* for people, in a sentence: "exact translations" */
    const char *unit;     /* follows the number: "%"; "": none */
    double scale;         /* what is shown is the number in files times this: 100 for a share shown in percent */
    int decimals;         /* shown */
    metric_better better; /* which direction */
    bool headline;        /* a result: in tables, figures and progress lines. Others are recorded and printed only. */
    const char
        *signature; /* how exactly it is measured, for those who compare numbers ("nrefs:1|case:mixed|..."); NULL:
                              its name says all */
} metric;

/* A number as people read it: one of a million or more, as the perplexity of a model that diverges, in three digits. */
static inline const char *metric_number(double x, int decimals, char out[32]) {
    if (fabs(x) < 1e6) snprintf(out, 32, "%.*f", decimals, x);
    else snprintf(out, 32, "%.3g", x);
    return out;
}

/* What was found where a bound was asked for: in two decimals, or as many more as it takes to tell it from the bound. */
static inline const char *metric_beside(double found, double bound, char out[32]) {
    for (int decimals = 2; decimals <= 12; decimals++) {
        snprintf(out, 32, "%.*f", decimals, found);
        if (found == bound || strtod(out, NULL) != bound) break;
    }
    return out;
}

#endif
