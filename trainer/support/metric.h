/* metric.h - describes a metric of a task: all that recording, showing, comparing and ranking need. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum metric_better { METRIC_LOWER = -1, METRIC_NEITHER = 0, METRIC_HIGHER = 1 } metric_better;

typedef struct metric {
    const char *name;      /* in files and keys: "bleu" */
    const char *label;     /* short, for people: "BLEU" */
    const char *about;     /* in a sentence: "exact translations" */
    const char *unit;      /* follows the number: "%"; "": none */
    double scale;          /* shown is the number in files times this: 100 for percent */
    int decimals;          /* shown */
    metric_better better;  /* which direction */
    bool headline;         /* in tables, figures and progress lines; others are only recorded and printed */
    const char *signature; /* how exactly it is measured ("nrefs:1|case:mixed|..."); NULL: the name says all */
} metric;

/* Formats a number for people. A million or more, such as the perplexity of a diverging model, gets three digits. */
static inline const char *metric_number(double x, int decimals, char out[32]) {
    if (fabs(x) < 1e6) snprintf(out, 32, "%.*f", decimals, x);
    else snprintf(out, 32, "%.3g", x);
    return out;
}

/* Formats a measured value that is compared with a limit: two decimals, or more if needed to differ from it. */
static inline const char *metric_beside(double found, double limit, char out[32]) {
    for (int decimals = 2; decimals <= 12; decimals++) {
        snprintf(out, 32, "%.*f", decimals, found);
        if (found == limit || strtod(out, NULL) != limit) break;
    }
    return out;
}
