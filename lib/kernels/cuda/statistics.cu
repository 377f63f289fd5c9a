/* The host's side of statistics: memory in which kernels count (collect.cuh), and its contents. */
#include "kernels/cuda/cuda_host.h"

#include <stdlib.h>
#include <string.h>

adamod_status collect(adamod__device *d, const float *edge, const uint16_t *bin) {
    const size_t edge_bytes = (ADAMOD_HIST_BINS + 1) * sizeof *edge, bin_bytes = FINE_BINS * sizeof *bin;
    device_guard guard(d->index);
    adamod_status status = ADAMOD_OK;
    if (!d->edge && (status = allocate(d, edge_bytes, (void **)&d->edge))) return status;
    if (!d->bin && (status = allocate(d, bin_bytes, (void **)&d->bin))) return status;
    d->v.edge = d->edge;
    d->v.bin = d->bin;
    TRY(d, cudaMemsetAsync(&d->shared->filled, 0, sizeof d->shared->filled, d->stream));
    if ((status = copy_in(d, d->edge, edge, edge_bytes))) return status;
    return copy_in(d, d->bin, bin, bin_bytes);
}

adamod_status reserve_counts(adamod__device *d) {
    if (d->counts) return ADAMOD_OK;
    int yes;
    adamod_status status = capturing(d, &yes);
    if (status) return status;
    if (yes) return fail(ADAMOD_ERROR_ORDER, "cuda: statistics were switched on: take a step before it is captured");
    bump b = {NULL, 0};
    b.take<device_counts>(d->v.n_groups);
    b.take<double>(2 * d->n_list);
    if ((status = allocate(d, b.used, &d->counts))) return status;
    TRY(d, cudaMemsetAsync(d->counts, 0, b.used, d->stream));
    b = bump{(char *)d->counts, 0};
    d->v.counts = b.take<device_counts>(d->v.n_groups);
    d->v.sums = b.take<double>(2 * d->n_list);
    d->v.row_sums = d->v.sums + 2 * d->v.n_chunks;
    return ADAMOD_OK;
}

static double from_order(unsigned long long bits) {
    const unsigned long long sign = 1ull << 63, plain = bits & sign ? bits & ~sign : ~bits;
    double x;
    memcpy(&x, &plain, sizeof x);
    return x;
}

static void add_counts(stats_counts *to, const device_counts *from) {
    to->elements = (int64_t)from->elements;
    to->bounded = (int64_t)from->bounded;
    to->nonfinite = (int64_t)from->nonfinite;
    for (int which = 0; which < 2; which++) {
        if (from->elements > 0) {
            to->least[which] = from_order(from->least[which]);
            to->most[which] = from_order(from->most[which]);
        }
        for (int i = 0; i < FINE_BINS; i++) to->fine[which][i] = (int64_t)from->bins.fine[which][i];
        for (int i = 0; i < ADAMOD_HIST_BINS; i++) {
            to->histogram[which][i] = (int64_t)from->bins.histogram[which][i];
            to->idle[which][i] = (int64_t)from->bins.idle[which][i];
        }
    }
}

/* Adds sums of tensors that the driver takes, or of the others: the CPU adds the driver's first. */
static void add_sums(const adamod__device *d, const double *sums, int taken, stats_counts *groups) {
    const uint32_t takes = d->driver ? d->driver->takes : 0;
    for (int64_t i = 0; i < d->n_list; i++) {
        const device_tensor *t = &d->tensors[d->chunk_list[i].tensor];
        if ((int)(takes >> t->variant & 1) != taken) continue;
        groups[t->group].grad_sumsq += sums[2 * i];
        groups[t->group].update_sumsq += sums[2 * i + 1];
    }
}

adamod_status statistics(adamod__device *d, stats_counts *groups, int *filled) {
    const size_t counts_bytes = (size_t)d->v.n_groups * sizeof(device_counts);
    const size_t sums_bytes = 2 * (size_t)d->n_list * sizeof(double);
    int32_t there = 0;
    *filled = 0;
    if (!d->counts) return ADAMOD_OK;
    adamod_status status = copy_out(d, &there, &d->shared->filled, sizeof there);
    if (status || !there) return status;
    device_counts *counts = (device_counts *)malloc(counts_bytes + 1);
    double *sums = (double *)malloc(sums_bytes + 1);
    status = counts && sums ? copy_out(d, counts, d->v.counts, counts_bytes) : no_memory();
    if (!status) status = copy_out(d, sums, d->v.sums, sums_bytes);
    for (int g = 0; !status && g < d->v.n_groups; g++) add_counts(&groups[g], &counts[g]);
    for (int taken = 1; !status && taken >= 0; taken--) add_sums(d, sums, taken, groups);
    *filled = status == ADAMOD_OK;
    free(counts);
    free(sums);
    return status;
}
