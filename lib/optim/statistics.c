/* Histograms of the learning rates of single elements: the paper's Figure 1 as numbers. */
#include "optim/internal.h"

#include <math.h>
#include <string.h>

/* The first 12 bits after the sign of an f32: 16 bins for each power of two, in order. */
static unsigned adamod__fine_bin(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 19 & (FINE_BINS - 1);
}

static float adamod__fine_edge(unsigned bin) {
    const uint32_t bits = (uint32_t)bin << 19;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void adamod__stats_init(adamod__stats *stats) {
    *stats = (adamod__stats){0};
    pthread_mutex_init(&stats->lock, NULL);
    const double width = (ADAMOD_HIST_HIGH - ADAMOD_HIST_LOW) / ADAMOD_HIST_BINS;
    for (int i = 0; i <= ADAMOD_HIST_BINS; i++) stats->edge[i] = (float)pow(10, ADAMOD_HIST_LOW + i * width);
    /* A bin of the histogram is wider than a fine one, so at most one edge lies within a fine bin. */
    int bin = 0;
    for (unsigned fine = 0; fine < FINE_BINS; fine++) {
        while (bin < ADAMOD_HIST_BINS - 1 && adamod__fine_edge(fine) >= stats->edge[bin + 1]) bin++;
        stats->bin[fine] = (uint16_t)bin;
    }
}

void adamod__stats_clear(stats_counts *counts) {
    memset(counts, 0, sizeof *counts);
    for (int i = 0; i < 2; i++) {
        counts->least[i] = INFINITY;
        counts->most[i] = -INFINITY;
    }
}

static void adamod__stats_count(const adamod__stats *stats, stats_counts *counts, int which, double value, bool idle) {
    const float x = value > 3e38 ? 3e38f : (float)value;
    const unsigned fine = adamod__fine_bin(x);
    int bin = stats->bin[fine];
    if (bin < ADAMOD_HIST_BINS - 1 && x >= stats->edge[bin + 1]) bin++;
    counts->fine[which][fine]++;
    counts->histogram[which][bin]++;
    counts->idle[which][bin] += idle;
    if (value < counts->least[which]) counts->least[which] = value;
    if (value > counts->most[which]) counts->most[which] = value;
}

void adamod__stats_add(const adamod__stats *stats, stats_counts *counts, adamod_type type, const void *eta,
                       const void *step, const void *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double before = adamod__real_at(type, eta, i), after = adamod__real_at(type, step, i);
        if (!isfinite(before) || !isfinite(after)) continue;
        counts->elements++;
        counts->bounded += after < before;
        const bool idle = v && adamod__real_at(type, v, i) == 0;
        adamod__stats_count(stats, counts, 0, before, idle);
        adamod__stats_count(stats, counts, 1, after, idle);
    }
}

void adamod__stats_nonfinite(stats_counts *counts, adamod_type type, const block *x) {
    const void *const arrays[] = {x->p, x->m, x->v, x->s, x->t, x->u};
    for (size_t i = 0; i < x->n; i++) {
        bool finite = true;
        for (int a = 0; a < 1 + KERNEL_STATES; a++)
            finite = finite && (!arrays[a] || isfinite(adamod__real_at(type, arrays[a], i)));
        counts->nonfinite += !finite;
    }
}

void adamod__stats_merge(adamod__stats *stats, int group, const stats_counts *counts) {
    pthread_mutex_lock(&stats->lock);
    stats_counts *sum = &stats->groups[group];
    sum->elements += counts->elements;
    sum->bounded += counts->bounded;
    sum->nonfinite += counts->nonfinite;
    for (int which = 0; which < 2; which++) {
        if (counts->least[which] < sum->least[which]) sum->least[which] = counts->least[which];
        if (counts->most[which] > sum->most[which]) sum->most[which] = counts->most[which];
        for (int i = 0; i < FINE_BINS; i++) sum->fine[which][i] += counts->fine[which][i];
        for (int i = 0; i < ADAMOD_HIST_BINS; i++) {
            sum->histogram[which][i] += counts->histogram[which][i];
            sum->idle[which][i] += counts->idle[which][i];
        }
    }
    pthread_mutex_unlock(&stats->lock);
}

/* The median of the elements of n groups: the middle of its fine bin, but not below `least` nor above `most`. */
static double adamod__median(const stats_counts *groups, int n, int which, int64_t elements, double least,
                             double most) {
    int64_t below = 0;
    for (unsigned i = 0; i < FINE_BINS; i++) {
        for (int g = 0; g < n; g++) below += groups[g].fine[which][i];
        if (2 * below < elements) continue;
        const double low = (double)adamod__fine_edge(i);
        const double high = i + 1 < FINE_BINS ? (double)adamod__fine_edge(i + 1) : low;
        return fmin(fmax((low + high) / 2, least), most);
    }
    return 0;
}

/* Group by group into the result, since a sum of all counts would take 70 KB of stack. */
void adamod__stats_result(const adamod__stats *stats, int group, adamod_statistics *out) {
    const stats_counts *groups = &stats->groups[group < 0 ? 0 : group];
    const int n = group < 0 ? stats->n_groups : 1;
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY}, grad = 0, update = 0;
    int64_t bounded = 0;
    *out = (adamod_statistics){0};
    for (int g = 0; g < n; g++) {
        const stats_counts *c = &groups[g];
        out->elements += c->elements;
        out->nonfinite += c->nonfinite;
        bounded += c->bounded;
        grad += c->grad_sumsq;
        update += c->update_sumsq;
        for (int which = 0; which < 2; which++) {
            if (c->least[which] < least[which]) least[which] = c->least[which];
            if (c->most[which] > most[which]) most[which] = c->most[which];
        }
        for (int i = 0; i < ADAMOD_HIST_BINS; i++) {
            out->eta[i] += c->histogram[0][i];
            out->step[i] += c->histogram[1][i];
            out->idle_eta[i] += c->idle[0][i];
            out->idle_step[i] += c->idle[1][i];
        }
    }
    out->grad_norm = sqrt(grad);
    out->update_norm = sqrt(update);
    if (out->elements == 0) return;
    out->bounded = (double)bounded / (double)out->elements;
    out->eta_min = least[0];
    out->eta_max = most[0];
    out->step_min = least[1];
    out->step_max = most[1];
    out->eta_median = adamod__median(groups, n, 0, out->elements, least[0], most[0]);
    out->step_median = adamod__median(groups, n, 1, out->elements, least[1], most[1]);
}
