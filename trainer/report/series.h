/* series.h - a quantity of a run between and around the points at which it was recorded. */
#pragma once

#include "report/reader.h"

/* A quantity of a point; `of` says which. */
typedef double series_value(const void *of, const report_point *p);

/* The number of points before an update. */
size_t series_before(const report_series *s, double step);

/* The value at an update, on a straight line between the points beside it. NAN before the first and after the last. */
double series_at(const report_series *s, double step, series_value *value, const void *of);

/* A quantity as sums from the start: the mean of any interval is two look-ups. */
typedef struct series_means {
    const report_series *s;
    double *sum, *weight; /* over the points before each; one allocation */
    int64_t window;       /* updates in a mean */
} series_means;

/* -1: no memory; then there is nothing to free. */
int series_means_make(series_means *out, const report_series *s, series_value *value, const void *of, int64_t window);
void series_means_free(series_means *m);

/* The mean around an update. Near the start the window shrinks on both sides, so that the first losses, which fall fast,
 * remain visible. NAN before the first point and after the last. */
double series_mean(const series_means *m, double step);
