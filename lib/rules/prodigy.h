/* Shared by Prodigy's drivers for the CPU and for GPUs: d, and how it changes. See rules/prodigy.inc.h. */
#ifndef ADAMOD_PRODIGY_H
#define ADAMOD_PRODIGY_H

#include "adamod.h"
#include "kernels/kernels.h"
#include "optim/option_ids.h"

#include <math.h>

/* States 5 to 7 of every array; zeros before the first update. */
typedef struct prodigy_numbers {
    double d, most, numerator;
} prodigy_numbers;
enum { PRODIGY_D = 5, PRODIGY_MOST, PRODIGY_NUMERATOR };

static ADAMOD__DEVICE inline prodigy_numbers adamod__prodigy_started(prodigy_numbers x, const double *o) {
    const prodigy_numbers first = {o[OPT_D0], o[OPT_D0], 0};
    return x.d > 0 ? x : first;
}

/* Puts d into an array's coefficients. high is the factor of its part of the numerator. */
static ADAMOD__DEVICE inline void adamod__prodigy_begin(const double *o, double d, double d0, adamod__coef_f64 *c) {
    const double rate = d * c->lr, grown = d / d0;
    c->beta1c *= d;
    c->beta2c *= d * d;
    c->beta4c = c->weight * grown * (o[OPT_SAFEGUARD_WARMUP] != 0 ? d : rate);
    c->high = grown * rate;
    c->lr = d * rate;
    c->mscale = 1 / d;
    if (o[OPT_DECAY] == DECAY_DECOUPLED) c->low *= d;
}

/* Computes d after this update, from the sums over all arrays. kept is the relative error with which d was stored; 0:
 * none. A sum that is not finite leaves d unchanged. */
static ADAMOD__DEVICE inline void adamod__prodigy_estimate(const double *o, double along, double size, double kept,
                                                           prodigy_numbers *x) {
    if (size == 0) return; /* no gradient yet */
    const double decay = o[OPT_BETA_D] > 0 ? o[OPT_BETA_D] : sqrt(o[OPT_BETA2]);
    x->numerator = decay * x->numerator + along;
    const double found = o[OPT_D_COEF] * x->numerator / size;
    if (x->d <= o[OPT_D0] * (1 + kept) && found > x->d) x->d = found;
    if (found > x->most) x->most = found;
    const double grown = x->d * o[OPT_GROWTH_RATE];
    x->d = grown < x->most ? grown : x->most;
}

/* Puts the new d into the coefficients. eps must not become 0 in f32. */
static ADAMOD__DEVICE inline void adamod__prodigy_end(double d, adamod__coef_f64 *c) {
    c->eps = fmax(c->eps * d, 1e-37);
}

/* The relative error with which a type stores a number. */
static ADAMOD__BOTH inline double adamod__prodigy_kept(adamod_type type) {
    return type == ADAMOD_F64 ? 0 : type == ADAMOD_F32 ? 1e-6 : 1e-2;
}

#endif
