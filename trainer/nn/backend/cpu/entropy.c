/* Cross entropy of one row of logits. */
#include "nn/backend/cpu/entropy.h"

#include <math.h>
#include <string.h>

/* Whether the target is the first of the largest. */
static bool is_first(const float *x, int64_t target, float most) {
    if (!(x[target] >= most)) return false;
    for (int64_t v = 0; v < target; v++) {
        if (x[v] >= most) return false;
    }
    return true;
}

double nn_entropy_row(const nn_entropy *e, const float *logits, int32_t target, double sums[4]) {
    const double s = e->smoothing;
    double sum_x;
    const float most = e->x->most(e->n, logits);
    const double sum = e->x->sum_exp(e->n, logits, most, &sum_x);
    const double lse = (double)most + log(sum), nll = lse - (double)logits[target];
    sums[0] += s > 0 ? (1 - s) * nll + s * (lse - sum_x / (double)e->n) : nll;
    if (e->z > 0) sums[0] += e->z * lse * lse;
    sums[1] += nll;
    sums[2] += is_first(logits, target, most);
    sums[3]++;
    return lse;
}

void nn_entropy_gradient(const nn_entropy *e, const float *logits, int32_t target, float lse, double scale, float *d,
                         bool add) {
    if (target >= 0) {
        const double weight = e->z > 0 ? scale * (1 + 2 * e->z * (double)lse) : scale;
        const double shift = scale * e->smoothing / (double)e->n;
        e->x->softmax(e->n, logits, lse, (float)weight, (float)shift, d, add);
        d[target] -= (float)(scale * (1 - e->smoothing));
    } else if (!add) {
        memset(d, 0, (size_t)e->n * sizeof *d);
    }
}
