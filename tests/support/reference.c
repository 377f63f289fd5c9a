/* reference.c - the rules, as their papers and programs print them. See reference.h.
 *
 * Symbols: t the number of this step (1 for the first), p the parameter, g its gradient after the common options,
 * m the first moment, v the second, bc1 = 1 - beta1^t, bc2 = 1 - beta2^t.
 *
 * SPDX-License-Identifier: MIT
 */
#include "rule_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATES 8

struct ref_state {
    const rule_row *row;
    int64_t t;                 /* the step under way, or the last one */
    int64_t count;             /* elements */
    int64_t first;             /* dimension, if there are two or more and the tensor is not empty */
    int64_t batch, rows, cols; /* the last two dimensions, and the product of those before; rows 0: not factored */
    int64_t window;
    int spatial_max;
    double b_sum, b_gamma; /* nosadam: the sum of k^-gamma for k = 1 .. b_terms */
    int64_t b_terms;
    double *g;     /* the gradient after the common options */
    double *u;     /* scratch */
    double factor; /* of the last step, by sums over the tensor */
    int states;
    char name[MAX_STATES][24];
    double *data[MAX_STATES];
    int64_t size[MAX_STATES];
};

static double *find(const ref_state *s, const char *name) {
    for (int i = 0; i < s->states; i++)
        if (!strcmp(s->name[i], name)) return s->data[i];
    return NULL;
}

/* The root of the mean square. */
static double rms(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2 */
static void moments(ref_state *s, int64_t i, double g, double beta1, double beta2) {
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
}

/* The momental bound, AdaMod's, of a rule that has it: s <- beta3 s + (1 - beta3) eta, and the lesser of eta and s. With
 * skip_idle, s stays 0 until there was a gradient. */
static double bounded_from(ref_state *s, int64_t i, double eta, const ref_options *o, bool idle) {
    double *smooth = find(s, "exp_avg_lr");
    if (!smooth) return eta;
    if (o->skip_idle && idle) return 0;
    smooth[i] = o->beta3 * smooth[i] + (1 - o->beta3) * eta;
    return eta < smooth[i] ? eta : smooth[i];
}

static double bounded(ref_state *s, int64_t i, double eta, const ref_options *o) {
    const double *smooth = find(s, "exp_avg_lr");
    return bounded_from(s, i, eta, o, smooth && smooth[i] == 0 && s->g[i] == 0);
}

/* AdaMod: Ding, Ren, Luo, Sun, arXiv 1910.12249, Algorithm 2; the authors' package lancopku/AdaMod.
 *
 *   paper      eta = lr / (sqrt(v / bc2) + eps)              p -= min(eta, s) m / bc1
 *   published  eta = lr sqrt(bc2) / bc1 / (sqrt(v) + eps)    p -= min(eta, s) m
 *   keras      eta = lr sqrt(bc2) / (sqrt(v) + eps)          p -= min(eta, s) m / bc1
 *   adamd      eta = lr sqrt(bc2) / (sqrt(v) + eps)          p -= min(eta, s) m
 *   with  s <- beta3 s + (1 - beta3) eta  before the bound */
static void step_adamod(ref_state *s, double *p, const double *g, const ref_options *o) {
    double bc1 = 1 - pow(o->beta1, (double)s->t), bc2 = 1 - pow(o->beta2, (double)s->t);
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, o->beta2);
        double eta, direction;
        if (o->flavour == REF_PUBLISHED) {
            eta = o->lr * sqrt(bc2) / bc1 / (sqrt(v[i]) + o->eps);
            direction = m[i];
        } else if (o->flavour == REF_KERAS || o->flavour == REF_ADAMD) {
            eta = o->lr * sqrt(bc2) / (sqrt(v[i]) + o->eps);
            direction = o->flavour == REF_ADAMD ? m[i] : m[i] / bc1;
        } else {
            eta = o->lr / (sqrt(v[i] / bc2) + o->eps);
            direction = m[i] / bc1;
        }
        p[i] -= bounded(s, i, eta, o) * direction;
    }
}

/* Adam: Kingma, Ba, arXiv 1412.6980. paper: Algorithm 1, and PyTorch; published: the more efficient form at the end of
 * its section 2, and TensorFlow, which adds eps to the root of the uncorrected v. keras is published with 1 / bc1 moved
 * to m, as for adamod: the same numbers; adamd (St John, arXiv 2110.10828) is without it.
 *
 *   paper      p -= lr (m / bc1) / (sqrt(v / bc2) + eps)
 *   published  p -= lr sqrt(bc2) / bc1 m / (sqrt(v) + eps) */
static double adam_step(ref_state *s, int64_t i, double m, double v, const ref_options *o) {
    double bc1 = 1 - pow(o->beta1, (double)s->t), bc2 = 1 - pow(o->beta2, (double)s->t);
    if (o->flavour == REF_PUBLISHED) return bounded(s, i, o->lr * sqrt(bc2) / bc1 / (sqrt(v) + o->eps), o) * m;
    if (o->flavour == REF_KERAS) return bounded(s, i, o->lr * sqrt(bc2) / (sqrt(v) + o->eps), o) * (m / bc1);
    if (o->flavour == REF_ADAMD) return bounded(s, i, o->lr * sqrt(bc2) / (sqrt(v) + o->eps), o) * m;
    return bounded(s, i, o->lr / (sqrt(v / bc2) + o->eps), o) * (m / bc1);
}

static void step_adam(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, o->beta2);
        p[i] -= adam_step(s, i, m[i], v[i], o);
    }
}

/* AMSGrad: Reddi, Kale, Kumar, ICLR 2018, arXiv 1904.09237, Algorithm 2 (no bias correction); PyTorch with it.
 *
 *   vmax <- max(vmax, v)
 *   bias_correction 1   Adam's step in its flavour, with vmax in place of v
 *   bias_correction 0   p -= lr m / (sqrt(vmax) + eps) */
static void step_amsgrad(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq"), *vmax = find(s, "max_exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, o->beta2);
        vmax[i] = fmax(vmax[i], v[i]);
        p[i] -= o->bias_correction ? adam_step(s, i, m[i], vmax[i], o)
                                   : bounded(s, i, o->lr / (sqrt(vmax[i]) + o->eps), o) * m[i];
    }
}

/* SGD with momentum as torch.optim.SGD: b <- g at the first step, then b <- momentum b + (1 - dampening) g;
 * p -= lr b, or with nesterov p -= lr (g + momentum b). */
static void step_sgd(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *b = find(s, "momentum_buffer");
    for (int64_t i = 0; i < s->count; i++) {
        double d = g[i];
        if (b) {
            b[i] = s->t == 1 ? g[i] : o->momentum * b[i] + (1 - o->dampening) * g[i];
            d = o->nesterov ? g[i] + o->momentum * b[i] : b[i];
        }
        p[i] -= o->lr * d;
    }
}

/* AdaGrad: Duchi, Hazan, Singer, JMLR 12, 2011; lr_decay and initial as torch.optim.Adagrad.
 *
 *   sum <- sum + g^2,  p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps),  sum = initial at the start */
static void step_adagrad(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *sum = find(s, "sum");
    double lr = o->lr / (1 + (double)(s->t - 1) * o->lr_decay);
    for (int64_t i = 0; i < s->count; i++) {
        sum[i] += g[i] * g[i];
        p[i] -= bounded(s, i, lr / (sqrt(sum[i]) + o->eps), o) * g[i];
    }
}

/* RMSProp: Tieleman, Hinton, Coursera lecture 6.5, 2012; centered: Graves, arXiv 1308.0850; as torch.optim.RMSprop.
 *
 *   v <- alpha v + (1 - alpha) g^2;  centered: a <- alpha a + (1 - alpha) g and v - a^2 in place of v below
 *   d = g / (sqrt(v) + eps);  momentum: b <- momentum b + d, p -= lr b;  without: p -= lr d
 * v - a^2 is a variance and not negative but for rounding; such a result counts as 0. */
static void step_rmsprop(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *v = find(s, "square_avg"), *b = find(s, "momentum_buffer"), *a = find(s, "grad_avg");
    for (int64_t i = 0; i < s->count; i++) {
        v[i] = o->alpha * v[i] + (1 - o->alpha) * g[i] * g[i];
        double variance = v[i];
        if (a) {
            a[i] = o->alpha * a[i] + (1 - o->alpha) * g[i];
            variance = v[i] - a[i] * a[i];
            if (variance < 0) variance = 0;
        }
        double d = bounded(s, i, o->lr / (sqrt(variance) + o->eps), o) * g[i];
        if (b && o->bound) {
            b[i] = o->momentum * b[i] + d; /* of bounded steps */
            d = b[i];
        } else if (b) {
            b[i] = o->momentum * b[i] + g[i] / (sqrt(variance) + o->eps);
            d = o->lr * b[i];
        }
        p[i] -= d;
    }
}

/* AdaDelta: Zeiler, arXiv 1212.5701, Algorithm 1, with the lr of torch.optim.Adadelta (1 in the paper).
 *
 *   v <- rho v + (1 - rho) g^2;  d = sqrt(a + eps) / sqrt(v + eps) g;  a <- rho a + (1 - rho) d^2;  p -= lr d */
static void step_adadelta(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *v = find(s, "square_avg"), *a = find(s, "acc_delta");
    for (int64_t i = 0; i < s->count; i++) {
        v[i] = o->rho * v[i] + (1 - o->rho) * g[i] * g[i];
        double rate = sqrt(a[i] + o->eps) / sqrt(v[i] + o->eps), d = rate * g[i];
        a[i] = o->rho * a[i] + (1 - o->rho) * d * d;
        p[i] -= bounded(s, i, o->lr * rate, o) * g[i];
    }
}

/* AdaBound, AMSBound: Luo, Xiong, Liu, Sun, arXiv 1902.09843; bias correction, eps and the scaling of final_lr as the
 * authors' program Luolc/AdaBound has them. AMSBound has vmax <- max(vmax, v) in place of v in eta.
 *
 *   f = final_lr lr / base_lr,  low = f (1 - 1 / (gamma t + 1)),  high = f (1 + 1 / (gamma t))
 *   eta = lr sqrt(bc2) / bc1 / (sqrt(v) + eps),  p -= clip(eta, low, high) m */
static void step_adabound(ref_state *s, double *p, const double *g, const ref_options *o) {
    double bc1 = 1 - pow(o->beta1, (double)s->t), bc2 = 1 - pow(o->beta2, (double)s->t);
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq"), *vmax = find(s, "max_exp_avg_sq");
    double f = o->base_lr > 0 ? o->final_lr * o->lr / o->base_lr : o->final_lr;
    double low = f * (1 - 1 / (o->gamma * (double)s->t + 1));
    double high = o->gamma > 0 ? f * (1 + 1 / (o->gamma * (double)s->t)) : INFINITY;
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, o->beta2);
        double second = v[i];
        if (vmax) {
            vmax[i] = fmax(vmax[i], v[i]);
            second = vmax[i];
        }
        double eta = o->lr * sqrt(bc2) / bc1 / (sqrt(second) + o->eps);
        if (eta < low) eta = low;
        if (eta > high) eta = high;
        p[i] -= eta * m[i];
    }
}

/* AdaShift: Zhou, Zhang, Lu, Wang, Zhang, Yu, arXiv 1810.00143; bias correction, eps and the first steps as in the
 * authors' programs. n is the window, phi the maximum over the tensor (spatial_max) or nothing.
 *
 *   m = sum over i = 0 .. n-1 of beta1^i g_{t-i} / sum over i = 0 .. n-1 of beta1^i,  with g_k = 0 for k < 1
 *   v <- beta2 v + (1 - beta2) phi(g_{t-n}^2)                                         for t > n
 *   p -= lr m / (sqrt(v / (1 - beta2^(t-n))) + eps)                                   for t > n and v > 0
 *
 * Nothing moves before g_{t-n} exists, nor while an element's v is 0: there is no step size for it yet. */
static void step_adashift(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq"), *queue = find(s, "grad_queue");
    int64_t n = s->window, shift = s->t - n;
    double *slot = queue + (s->t - 1) % n * s->count; /* holds g_{t-n}, and from now on g_t */
    if (shift > 0) {
        if (s->spatial_max) {
            double largest = 0;
            for (int64_t i = 0; i < s->count; i++) largest = fmax(largest, slot[i] * slot[i]);
            v[0] = o->beta2 * v[0] + (1 - o->beta2) * largest;
        } else {
            for (int64_t i = 0; i < s->count; i++) v[i] = o->beta2 * v[i] + (1 - o->beta2) * slot[i] * slot[i];
        }
    }
    memcpy(slot, g, (size_t)s->count * sizeof *g);

    double weights = 0, rate = 0; /* rate: of all elements, with spatial_max */
    for (int64_t j = 0; j < n; j++) weights += pow(o->beta1, (double)j);
    for (int64_t i = 0; i < s->count; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n && j < s->t; j++)
            sum += pow(o->beta1, (double)j) * queue[(s->t - 1 - j) % n * s->count + i];
        m[i] = sum / weights;
        if (shift > 0) {
            double second = s->spatial_max ? v[0] : v[i];
            double eta = o->lr / (sqrt(second / (1 - pow(o->beta2, (double)shift))) + o->eps);
            if (second <= 0) eta = 0;
            if (!s->spatial_max) eta = bounded(s, i, eta, o);
            else if (i == 0) rate = bounded(s, 0, eta, o);
            p[i] -= (s->spatial_max ? rate : eta) * m[i];
        }
    }
}

/* NosAdam: Huang, Wang, Dong, arXiv 1805.07557, Algorithm 1 with b_k = k^-gamma (NosAdam-HH); bias_correction 1 divides
 * m by bc1 as the authors' program NostalgicAdam-NosAdam does, 0 does not, as the paper.
 *
 *   B_t = sum over k = 1 .. t of k^-gamma,  beta2_t = B_{t-1} / B_t
 *   m <- beta1 m + (1 - beta1) g,  v <- beta2_t v + (1 - beta2_t) g^2,  p -= lr (m / bc1) / (sqrt(v) + eps) */
static void step_nosadam(ref_state *s, double *p, const double *g, const ref_options *o) {
    if (s->b_gamma != o->gamma) {
        s->b_gamma = o->gamma;
        s->b_sum = 0;
        s->b_terms = 0;
    }
    double before = 0;
    while (s->b_terms < s->t) {
        before = s->b_sum;
        s->b_terms++;
        s->b_sum += pow((double)s->b_terms, -o->gamma);
    }
    double beta2 = before / s->b_sum;
    double bc1 = o->bias_correction ? 1 - pow(o->beta1, (double)s->t) : 1;
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, beta2);
        p[i] -= bounded(s, i, o->lr / (sqrt(v[i]) + o->eps), o) * (m[i] / bc1);
    }
}

/* Adafactor: Shazeer, Stern, arXiv 1804.04235, Algorithms 4 to 6, with means in place of sums as tensor2tensor has
 * them; lr, momentum, decay and warmup_init as in fairseq and Hugging Face Transformers.
 *
 *   rho = relative_step ? min(warmup_init ? 1e-6 t : 1e-2, 1 / sqrt(t)) : lr
 *   alpha = scale_parameter ? max(eps2, RMS(p)) rho : rho                                 p before any decay
 *   beta2_t = 1 - t^-decay_rate
 *   matrices  R <- beta2_t R + (1 - beta2_t) mean over columns of (g^2 + eps1)             one number for each row
 *             C <- beta2_t C + (1 - beta2_t) mean over rows of (g^2 + eps1)                one number for each column
 *             v = R C / mean(R)
 *   others    v <- beta2_t v + (1 - beta2_t) (g^2 + eps1)
 *   u = g / sqrt(v),  u <- u / max(1, RMS(u) / clip_threshold)                             RMS over the whole tensor
 *   u <- alpha u;  beta1 > 0: m <- beta1 m + (1 - beta1) u, u = m
 *   decoupled decay: p -= alpha weight_decay p;  p -= u */
static double second(const ref_state *s, int64_t i) {
    const double *row = find(s, "exp_avg_sq_row"), *col = find(s, "exp_avg_sq_col"), *v = find(s, "exp_avg_sq");
    if (v) return v[i];
    int64_t k = i / (s->rows * s->cols), r = i / s->cols % s->rows, c = i % s->cols;
    double mean = 0;
    for (int64_t j = 0; j < s->rows; j++) mean += row[k * s->rows + j] / (double)s->rows;
    return row[k * s->rows + r] * col[k * s->cols + c] / mean;
}

static void step_adafactor(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, *u = s->u;
    double *row = find(s, "exp_avg_sq_row"), *col = find(s, "exp_avg_sq_col");
    double *v = find(s, "exp_avg_sq"), *m = find(s, "exp_avg");

    double rho = o->relative_step ? fmin(o->warmup_init ? 1e-6 * t : 1e-2, 1 / sqrt(t)) : o->lr;
    double alpha = o->scale_parameter ? fmax(o->eps2, rms(p, s->count)) * rho : rho;
    double beta2 = 1 - pow(t, -o->decay_rate);

    for (int64_t k = 0; row && k < s->batch; k++) {
        const double *gk = g + k * s->rows * s->cols;
        double *r = row + k * s->rows, *c = col + k * s->cols, mean_r = 0;
        for (int64_t i = 0; i < s->rows; i++) {
            double sum = 0;
            for (int64_t j = 0; j < s->cols; j++) sum += gk[i * s->cols + j] * gk[i * s->cols + j] + o->eps1;
            r[i] = beta2 * r[i] + (1 - beta2) * sum / (double)s->cols;
            mean_r += r[i] / (double)s->rows;
        }
        for (int64_t j = 0; j < s->cols; j++) {
            double sum = 0;
            for (int64_t i = 0; i < s->rows; i++) sum += gk[i * s->cols + j] * gk[i * s->cols + j] + o->eps1;
            c[j] = beta2 * c[j] + (1 - beta2) * sum / (double)s->rows;
        }
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->cols; j++)
                u[(k * s->rows + i) * s->cols + j] = gk[i * s->cols + j] / sqrt(r[i] * c[j] / mean_r);
    }
    for (int64_t i = 0; v && i < s->count; i++) {
        v[i] = beta2 * v[i] + (1 - beta2) * (g[i] * g[i] + o->eps1);
        u[i] = g[i] / sqrt(v[i]);
    }

    double clip = fmax(1, rms(u, s->count) / o->clip_threshold);
    for (int64_t i = 0; i < s->count; i++) {
        double step = alpha * (u[i] / clip);
        if (find(s, "exp_avg_lr")) step = bounded(s, i, alpha / clip / sqrt(second(s, i)), o) * g[i];
        if (m) {
            m[i] = o->beta1 * m[i] + (1 - o->beta1) * step;
            step = m[i];
        }
        if (o->decay == REF_DECAY_DECOUPLED) p[i] -= alpha * o->weight_decay * p[i];
        else if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
        p[i] -= step;
    }
}

/* RAdam: Liu, Jiang, He, Chen, Liu, Gao, Han, arXiv 1908.03265, Algorithm 2; the threshold 5 and the place of eps as in
 * torch.optim.RAdam (4 and none in the paper).
 *
 *   rho_inf = 2 / (1 - beta2) - 1,  rho = rho_inf - 2 t beta2^t / bc2
 *   rho > 5:  r = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))
 *             p -= lr (m / bc1) r sqrt(bc2) / (sqrt(v) + eps)
 *   else      p -= lr m / bc1 */
static void step_radam(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, bc1 = 1 - pow(o->beta1, t), bc2 = 1 - pow(o->beta2, t);
    double rho_inf = 2 / (1 - o->beta2) - 1;
    double rho = rho_inf - 2 * t * pow(o->beta2, t) / bc2;
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, o->beta2);
        double eta = o->lr;
        if (rho > 5) {
            double r = sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
            eta = o->lr * r * sqrt(bc2) / (sqrt(v[i]) + o->eps);
        }
        p[i] -= bounded(s, i, eta, o) * (m[i] / bc1);
    }
}

/* Lion: Chen et al., arXiv 2302.06675, Algorithm 2.  p -= lr sign(beta1 m + (1 - beta1) g), then m <- beta2 m + (1 - beta2) g */
static void step_lion(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg");
    for (int64_t i = 0; i < s->count; i++) {
        double c = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        p[i] -= o->lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
        m[i] = o->beta2 * m[i] + (1 - o->beta2) * g[i];
    }
}

/* NAdam: Dozat, ICLR workshop 2016; mu_t and the place of eps as in torch.optim.NAdam.
 *
 *   mu_t = beta1 (1 - 0.96^(t psi) / 2),  M = mu_1 ... mu_t
 *   p -= lr ((1 - mu_t) / (1 - M) g + mu_{t+1} / (1 - M mu_{t+1}) m) / (sqrt(v / bc2) + eps) */
static void step_nadam(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, bc2 = 1 - pow(o->beta2, t), product = 1, mu = 0;
    for (int64_t k = 1; k <= s->t; k++) {
        mu = o->beta1 * (1 - 0.5 * pow(0.96, (double)k * o->momentum_decay));
        product *= mu;
    }
    double next = o->beta1 * (1 - 0.5 * pow(0.96, (t + 1) * o->momentum_decay));
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], o->beta1, o->beta2);
        double eta = bounded(s, i, o->lr / (sqrt(v[i] / bc2) + o->eps), o);
        p[i] -= eta * ((1 - mu) / (1 - product) * g[i] + next / (1 - product * next) * m[i]);
    }
}

/* Adamax: Kingma, Ba, arXiv 1412.6980, Algorithm 2; eps as in torch.optim.Adamax (none in the paper).
 *
 *   u <- max(beta2 u, |g| + eps),  p -= lr / bc1 m / u */
static void step_adamax(ref_state *s, double *p, const double *g, const ref_options *o) {
    double bc1 = 1 - pow(o->beta1, (double)s->t);
    double *m = find(s, "exp_avg"), *u = find(s, "exp_inf");
    for (int64_t i = 0; i < s->count; i++) {
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        u[i] = fmax(o->beta2 * u[i], fabs(g[i]) + o->eps);
        p[i] -= bounded(s, i, o->lr / bc1 / u[i], o) * m[i];
    }
}

/* AdaBelief: Zhuang et al., arXiv 2010.07468; eps in v and the rectification as in adabelief_pytorch 0.2.1.
 *
 *   v <- beta2 v + (1 - beta2) (g - m)^2 + eps
 *   rectify 0   p -= lr (m / bc1) / (sqrt(v / bc2) + eps)
 *   rectify 1   as RAdam, from rho >= 5 on; before that p -= lr m / bc1 */
static void step_adabelief(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, bc1 = 1 - pow(o->beta1, t), bc2 = 1 - pow(o->beta2, t);
    double rho_inf = 2 / (1 - o->beta2) - 1, rho = rho_inf - 2 * t * pow(o->beta2, t) / bc2;
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_var");
    for (int64_t i = 0; i < s->count; i++) {
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * (g[i] - m[i]) * (g[i] - m[i]) + o->eps;
        double eta = o->lr;
        if (!o->rectify) {
            eta = o->lr / (sqrt(v[i] / bc2) + o->eps);
        } else if (rho >= 5) {
            double r = sqrt((rho - 4) / (rho_inf - 4) * (rho - 2) / rho * rho_inf / (rho_inf - 2));
            eta = o->lr * sqrt(bc2) * r / (sqrt(v[i]) + o->eps);
        }
        p[i] -= bounded(s, i, eta, o) * (m[i] / bc1);
    }
}

/* ADOPT: Taniguchi et al., arXiv 2411.02853, Algorithm 2, with the clipping of the authors' package, (t - 1)^0.25.
 *
 *   t = 1: v <- g^2 and nothing else
 *   m <- beta1 m + (1 - beta1) clip(g / max(sqrt(v), eps)),  p -= lr m,  v <- beta2 v + (1 - beta2) g^2
 * With the bound the learning rate is within m: m <- beta1 m + (1 - beta1) clip(min(eta, s) g), p -= m; with skip_idle, s
 * begins when v, which is older than g, is no longer 0. */
static void step_adopt(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    double limit = o->clip ? pow((double)(s->t - 1), 0.25) : INFINITY;
    for (int64_t i = 0; i < s->count; i++) {
        if (s->t == 1) {
            v[i] = g[i] * g[i];
            continue;
        }
        double eta = o->lr / fmax(sqrt(v[i]), o->eps);
        if (o->bound) {
            double d = bounded_from(s, i, eta, o, v[i] == 0) * g[i];
            m[i] = o->beta1 * m[i] + (1 - o->beta1) * fmax(fmin(d, o->lr * limit), -o->lr * limit);
            p[i] -= m[i];
        } else {
            double d = g[i] / fmax(sqrt(v[i]), o->eps);
            m[i] = o->beta1 * m[i] + (1 - o->beta1) * fmax(fmin(d, limit), -limit);
            p[i] -= o->lr * m[i];
        }
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
    }
}

/* AdEMAMix: Pagliardini, Ablin, Grangier, arXiv 2409.03137, Algorithm 1, with the schedules of apple/ml-ademamix: alpha
 * grows along a line, and so does f, the half-life of the slow average less 1, with the package's 1e-8.
 *
 *   n <- beta_slow n + (1 - beta_slow) g,  p -= lr (m / bc1 + alpha n) / (sqrt(v / bc2) + eps) */
static void step_ademamix(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, bc1 = 1 - pow(o->beta1, t), bc2 = 1 - pow(o->beta2, t);
    double *m = find(s, "exp_avg_fast"), *n = find(s, "exp_avg_slow"), *v = find(s, "exp_avg_sq");
    double alpha = o->alpha, slow = o->beta_slow;
    if (t < o->alpha_warmup) alpha *= t / o->alpha_warmup;
    if (t < o->beta_slow_warmup) {
        double a = t / o->beta_slow_warmup;
        double most = slow + 1e-8 < 1 ? slow + 1e-8 : slow; /* a decay of more than 1 would be none */
        double from = log(0.5) / log(o->beta1 + 1e-8) - 1, to = log(0.5) / log(most) - 1;
        slow = pow(0.5, 1 / ((1 - a) * from + a * to + 1));
    }
    for (int64_t i = 0; i < s->count; i++) {
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        n[i] = slow * n[i] + (1 - slow) * g[i];
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
        p[i] -= bounded(s, i, o->lr / (sqrt(v[i] / bc2) + o->eps), o) * (m[i] / bc1 + alpha * n[i]);
    }
}

/* Adan: Xie et al., arXiv 2208.06677, as in sail-sg/Adan with no_prox. Its betas are beta1, beta_diff, beta2 here.
 *
 *   d = g - (g of the step before), 0 in the first,  n <- beta_diff n + (1 - beta_diff) d
 *   v <- beta2 v + (1 - beta2) (g + beta_diff d)^2
 *   p -= lr (m / bc1 + beta_diff n / (1 - beta_diff^t)) / (sqrt(v / bc2) + eps) */
static void step_adan(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, bc1 = 1 - pow(o->beta1, t), bc2 = 1 - pow(o->beta2, t), bcd = 1 - pow(o->beta_diff, t);
    double *m = find(s, "exp_avg"), *n = find(s, "exp_avg_diff"), *v = find(s, "exp_avg_sq");
    double *before = find(s, "neg_pre_grad");
    for (int64_t i = 0; i < s->count; i++) {
        double d = s->t == 1 ? 0 : g[i] + before[i], ahead = g[i] + o->beta_diff * d;
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        n[i] = o->beta_diff * n[i] + (1 - o->beta_diff) * (o->magnitudes ? g[i] + fabs(before[i]) : d);
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * ahead * ahead;
        before[i] = -g[i];
        double eta = bounded(s, i, o->lr / (sqrt(v[i] / bc2) + o->eps), o);
        p[i] -= eta * (m[i] / bc1 + o->beta_diff * n[i] / bcd);
    }
}

/* LAMB: You et al., arXiv 1904.00962, Algorithm 2 with phi(z) = z; a ratio with a norm that is 0 is 1.
 *
 *   u = (m / bc1) / (sqrt(v / bc2) + eps) + weight_decay p,  p -= lr |p| / |u| u
 *
 * Independent decay is not in u: it acts before, as in other rules. */
static void step_lamb(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, bc1 = 1, bc2 = 1, *u = s->u, pp = 0, uu = 0;
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    if (o->bias_correction) bc1 = 1 - pow(o->beta1, t), bc2 = 1 - pow(o->beta2, t);
    double decay = o->decay == REF_DECAY_DECOUPLED ? o->lr : 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
        moments(s, i, g[i], o->beta1, o->beta2);
        u[i] = bounded(s, i, o->lr / (sqrt(v[i] / bc2) + o->eps), o) * (m[i] / bc1) + decay * o->weight_decay * p[i];
        pp += p[i] * p[i];
        uu += u[i] * u[i];
    }
    s->factor = o->factor > 0 ? o->factor : pp > 0 && uu > 0 ? o->lr * sqrt(pp) / sqrt(uu) : 1;
    for (int64_t i = 0; i < s->count; i++) p[i] -= s->factor * u[i];
}

/* Prodigy: Mishchenko, Defazio, arXiv 2306.06101, Algorithm 4, as in konstmish/prodigy; d is one number for the tensor.
 *
 *   dlr = d lr (sqrt(bc2) / bc1 with bias_correction)
 *   r <- betad r + d / d0 dlr <g, p0 - p>,  s <- betad s + d / d0 dlr g  (safeguard_warmup: d / d0 d g)
 *   m <- beta1 m + (1 - beta1) d g,  v <- beta2 v + (1 - beta2) d^2 g^2
 *   dhat = d_coef r / |s|_1,  d = max(d, dhat) while d is d0,  d_max <- max(d_max, dhat),  d' = min(d_max, growth_rate d)
 *   p -= dlr weight_decay p,  p -= dlr m / (sqrt(v) + d' eps), which is a learning rate d dlr / (sqrt(v) + d' eps) of m / d */
static void step_prodigy(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, betad = o->beta_d > 0 ? o->beta_d : sqrt(o->beta2), along = 0, size = 0;
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq"), *sum = find(s, "s"), *p0 = find(s, "p0");
    double *d = find(s, "d"), *most = find(s, "d_max"), *r = find(s, "d_numerator");
    if (s->t == 1) memcpy(p0, p, (size_t)s->count * sizeof *p0);
    if (*d == 0) *d = *most = o->d0;
    double dlr = *d * o->lr, now = *d;
    if (o->use_bias_correction) dlr *= sqrt(1 - pow(o->beta2, t)) / (1 - pow(o->beta1, t));
    for (int64_t i = 0; i < s->count && o->lr > 0; i++) {
        along += g[i] * (p0[i] - p[i]);
        sum[i] = betad * sum[i] + *d / o->d0 * (o->safeguard_warmup ? *d : dlr) * g[i];
        size += fabs(sum[i]);
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * *d * g[i];
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * *d * *d * g[i] * g[i];
    }
    if (size > 0) {
        *r = betad * *r + *d / o->d0 * dlr * along;
        double found = o->d_coef * *r / size;
        if (now <= o->d0 * (1 + 1e-6)) now = fmax(now, found); /* d0 may have been kept in f32 */
        *most = fmax(*most, found);
        now = fmin(*most, now * o->growth_rate);
    }
    s->factor = now;
    if (o->factor > 0) now = o->factor;
    for (int64_t i = 0; i < s->count; i++) {
        if (o->decay == REF_DECAY_DECOUPLED) p[i] -= dlr * o->weight_decay * p[i];
        else if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
        p[i] -= bounded(s, i, *d * dlr / (sqrt(v[i]) + now * o->eps), o) * m[i] / *d;
    }
    *d = now;
}

/* StableAdamW: Wortsman et al., arXiv 2304.13013, Algorithm 2; the averages' decays as in optimi.
 *
 *   b = beta (1 - beta^(t-1)) / (1 - beta^t) for both averages
 *   r = RMS(g / sqrt(max(v, eps^2))),  p -= lr / max(1, r) (m / (sqrt(v) + eps) + weight_decay p) */
static void step_stableadamw(ref_state *s, double *p, const double *g, const ref_options *o) {
    double t = (double)s->t, *u = s->u, *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    double b1 = 1 - (1 - o->beta1) / (1 - pow(o->beta1, t)), b2 = 1 - (1 - o->beta2) / (1 - pow(o->beta2, t));
    for (int64_t i = 0; i < s->count; i++) {
        moments(s, i, g[i], b1, b2);
        u[i] = g[i] / sqrt(fmax(v[i], fmax(o->eps * o->eps, 1e-37)));
    }
    s->factor = 1 / fmax(1, rms(u, s->count));
    double lr = o->lr * s->factor;
    for (int64_t i = 0; i < s->count; i++) {
        if (o->decay == REF_DECAY_DECOUPLED) p[i] -= lr * o->weight_decay * p[i];
        else if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
        p[i] -= bounded(s, i, lr / (sqrt(v[i]) + o->eps), o) * m[i];
    }
}

/* Schedule-Free: Defazio et al., arXiv 2405.15682, as in facebookresearch/schedule_free with a learning rate that only its
 * own warm-up changes. p is y.
 *
 *   w = t^r min(1, t / warmup)^weight_lr_power,  c = w / (sum of all w)
 *   AdamW  u = a (g / (sqrt(v / bc2) + eps) + weight_decay y),  SGD  u = a (g + weight_decay y),  a = lr min(1, t / warmup)
 *   y <- (1 - c) y + c z + a (beta1 (1 - c) - 1) / a u,  z <- z - u,  z = y at the start */
static void step_schedulefree(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *z = find(s, "z"), *v = find(s, "exp_avg_sq"), sum = 0, weight = 0, part = 1;
    for (int64_t k = 1; k <= s->t; k++) {
        part = k < o->warmup_steps ? (double)k / o->warmup_steps : 1;
        weight = pow((double)k, o->r) * pow(part, o->weight_lr_power);
        sum += weight;
    }
    double c = weight / sum, a = o->lr * part, bc2 = 1 - pow(o->beta2, (double)s->t);
    double decay = o->decay == REF_DECAY_DECOUPLED ? a : o->decay == REF_DECAY_INDEPENDENT ? part : 0;
    for (int64_t i = 0; i < s->count; i++) {
        if (s->t == 1) z[i] = p[i];
        double eta = a;
        if (v) {
            v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
            eta = bounded(s, i, a / (sqrt(v[i] / bc2) + o->eps), o);
        }
        double u = eta * g[i] + decay * o->weight_decay * p[i];
        p[i] = (1 - c) * p[i] + c * z[i] - (1 - o->beta1 * (1 - c)) * u;
        z[i] -= u;
    }
}

/* Sophia: Liu et al., arXiv 2305.14342; the step of the authors' SophiaG. The Hessian stays what it is.
 *
 *   p -= lr sign(m) min(|m| / (rho bs h + 1e-15), 1) */
static void step_sophia(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg"), *h = find(s, "hessian");
    for (int64_t i = 0; i < s->count; i++) {
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        double eta = o->lr / (o->rho * o->bs * h[i] + 1e-15);
        if (h[i] != 0) eta = bounded(s, i, eta, o); /* the bound begins with the first estimate */
        p[i] -= copysign(fmin(eta * fabs(m[i]), o->lr), m[i]);
    }
}

/* SOAP: Vyas et al., arXiv 2409.11321, of tensors that have no basis of their own: Adam with eps beside the uncorrected
 * root, whose first update moves nothing and is not counted, and decay behind the step. Of matrices see test_soap.c.
 *
 *   p -= lr bc2^(1/2) / bc1 m / (v^(1/2) + eps),  then p -= lr lambda p */
static void step_soap(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq"), t = (double)s->t - 1;
    if (s->t == 1) return;
    double lr = o->lr;
    if (o->bias_correction) lr *= sqrt(1 - pow(o->beta2, t)) / (1 - pow(o->beta1, t));
    for (int64_t i = 0; i < s->count; i++) {
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * g[i];
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
        p[i] -= lr * m[i] / (sqrt(v[i]) + o->eps);
        if (o->decay == REF_DECAY_DECOUPLED) p[i] -= o->lr * o->weight_decay * p[i];
        else if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
    }
}

/* Muon: Jordan et al., kellerjordan.github.io/posts/muon; nesterov, norms and scales of the learning rate as in
 * torch.optim.Muon 2.9. A tensor of two or more dimensions is a matrix of its first dimension by all others.
 *
 *   B <- mu B + (1 - mu) G;  nesterov: O = (1 - mu) G + mu B, else O = B
 *   X = O / max(|O|_F, eps), transposed if it has more rows than columns
 *   ns_steps times: A = X X^T, X <- a X + (b A + c A A) X
 *   p -= lr max(1, rows / columns)^(1/2) X       or 0.2 max(rows, columns)^(1/2), or (rows / columns)^(1/2)
 *
 * Others: AdamW, with its learning rate times what lr's schedule is to lr. */
static void step_muon_adamw(ref_state *s, double *p, const double *g, const ref_options *o) {
    double bc1 = 1 - pow(o->adamw_beta1, (double)s->t), bc2 = 1 - pow(o->adamw_beta2, (double)s->t);
    double *m = find(s, "exp_avg"), *v = find(s, "exp_avg_sq");
    double lr = o->adamw_lr * (o->base_lr > 0 ? o->lr / o->base_lr : 1);
    for (int64_t i = 0; i < s->count; i++) {
        if (o->decay == REF_DECAY_DECOUPLED) p[i] -= lr * o->weight_decay * p[i];
        else if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
        m[i] = o->adamw_beta1 * m[i] + (1 - o->adamw_beta1) * g[i];
        v[i] = o->adamw_beta2 * v[i] + (1 - o->adamw_beta2) * g[i] * g[i];
        p[i] -= lr * (m[i] / bc1) / (sqrt(v[i] / bc2) + o->adamw_eps);
    }
}

static void step_muon(ref_state *s, double *p, const double *g, const ref_options *o) {
    double *buffer = find(s, "momentum_buffer"), norm = 0;
    if (!buffer) {
        step_muon_adamw(s, p, g, o);
        return;
    }
    int64_t rows = s->first, cols = s->count / rows, tall = rows > cols;
    int64_t m = tall ? cols : rows, n = tall ? rows : cols;
    double *x = s->u, *a = calloc((size_t)(2 * m * m), sizeof *a), *poly = a + m * m;
    double *next = calloc((size_t)s->count, sizeof *next);
    if (!a || !next) abort();
    for (int64_t i = 0; i < s->count; i++) {
        buffer[i] = o->momentum * buffer[i] + (1 - o->momentum) * g[i];
        double u = o->nesterov ? (1 - o->momentum) * g[i] + o->momentum * buffer[i] : buffer[i];
        x[tall ? i % cols * rows + i / cols : i] = u;
        norm += u * u;
    }
    for (int64_t i = 0; i < s->count; i++) x[i] /= fmax(sqrt(norm), o->eps);
    for (int step = 0; step < o->ns_steps; step++) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                a[i * m + j] = 0;
                for (int64_t k = 0; k < n; k++) a[i * m + j] += x[i * n + k] * x[j * n + k];
            }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                double sum = 0;
                for (int64_t k = 0; k < m; k++) sum += a[i * m + k] * a[k * m + j];
                poly[i * m + j] = o->ns_b * a[i * m + j] + o->ns_c * sum;
            }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < m; k++) sum += poly[i * m + k] * x[k * n + j];
                next[i * n + j] = o->ns_a * x[i * n + j] + sum;
            }
        memcpy(x, next, (size_t)s->count * sizeof *x);
    }
    double ratio = (double)rows / (double)cols;
    double scale = o->adjust_lr == 1 ? 0.2 * sqrt((double)n) : sqrt(o->adjust_lr == 2 ? ratio : fmax(1, ratio));
    for (int64_t i = 0; i < s->count; i++) {
        if (o->decay == REF_DECAY_DECOUPLED) p[i] -= o->lr * o->weight_decay * p[i];
        else if (o->decay == REF_DECAY_INDEPENDENT) p[i] -= o->weight_decay * p[i];
        p[i] -= o->lr * scale * x[tall ? i % cols * rows + i / cols : i];
    }
    free(a);
    free(next);
}

/* LaProp: Ziyin, Wang, Ueda, arXiv 2002.04839, Algorithm 1; its program also corrects m for changes of lr.
 *
 *   m <- beta1 m + (1 - beta1) lr g / (sqrt(v / bc2) + eps),  p -= m / bc1 */
static void step_laprop(ref_state *s, double *p, const double *g, const ref_options *o) {
    double bc1 = 1 - pow(o->beta1, (double)s->t), bc2 = 1 - pow(o->beta2, (double)s->t);
    double *m = find(s, "exp_avg_step"), *v = find(s, "exp_avg_sq");
    for (int64_t i = 0; i < s->count; i++) {
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * g[i] * g[i];
        double eta = bounded(s, i, o->lr / (sqrt(v[i] / bc2) + o->eps), o);
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * eta * g[i];
        p[i] -= m[i] / bc1;
    }
}

double ref_factor(const ref_state *s) { return s->factor; }

const char *ref_rule_name(int index) { return index >= 0 && index < rule_table_count ? rule_table[index].name : NULL; }

/* ---- states ---- */

static double *zeros(int64_t n) { return calloc(n > 0 ? (size_t)n : 1, sizeof(double)); }

/* The name ends with a space or the text. */
static int add_state(ref_state *s, const char *name, int64_t size) {
    snprintf(s->name[s->states], sizeof *s->name, "%.*s", (int)strcspn(name, " "), name);
    s->size[s->states] = size;
    s->data[s->states] = zeros(size);
    return s->data[s->states++] != NULL;
}

static int momentum_state(ref_state *s, const ref_options *o) {
    return o->momentum == 0 || add_state(s, "momentum_buffer", s->count);
}

static int adagrad_states(ref_state *s, const ref_options *o) {
    if (!add_state(s, "sum", s->count)) return 0;
    for (int64_t i = 0; i < s->count; i++) s->data[s->states - 1][i] = o->initial;
    return 1;
}

static int rmsprop_states(ref_state *s, const ref_options *o) {
    return momentum_state(s, o) && (!o->centered || add_state(s, "grad_avg", s->count));
}

static int adafactor_states(ref_state *s, const ref_options *o) {
    return (s->rows ? add_state(s, "exp_avg_sq_row", s->batch * s->rows) &&
                          add_state(s, "exp_avg_sq_col", s->batch * s->cols)
                    : add_state(s, "exp_avg_sq", s->count)) &&
           (o->beta1 == 0 || add_state(s, "exp_avg", s->count));
}

static int adashift_states(ref_state *s, const ref_options *o) {
    (void)o;
    return s->window > 0 && add_state(s, "exp_avg", s->count) &&
           add_state(s, "exp_avg_sq", s->spatial_max ? 1 : s->count) &&
           add_state(s, "grad_queue", s->window * s->count);
}

static int muon_states(ref_state *s, const ref_options *o) {
    if (s->first && o->use_muon) return add_state(s, "momentum_buffer", s->count);
    return add_state(s, "exp_avg", s->count) && add_state(s, "exp_avg_sq", s->count);
}

static int prodigy_states(ref_state *s, const ref_options *o) {
    (void)o;
    return add_state(s, "d", 1) && add_state(s, "d_max", 1) && add_state(s, "d_numerator", 1);
}

static int add_states(ref_state *s, const ref_options *o) {
    if (o->bound && !add_state(s, "exp_avg_lr", s->spatial_max ? 1 : s->count)) return 0;
    for (const char *name = s->row->states; name && *name; name += strcspn(name, " "), name += *name == ' ') {
        if (!add_state(s, name, s->count)) return 0;
    }
    return !s->row->more_states || s->row->more_states(s, o);
}

/* ---- the table ---- */

#define SETS(...) .options[ROW_SETS] = {__VA_ARGS__}
#define BITS(...) .options[ROW_BITS] = {__VA_ARGS__}
#define WHOLE(...) .options[ROW_WHOLE] = {__VA_ARGS__}
#define FILES(...) .options[ROW_FILES] = {__VA_ARGS__}
#define Q8(...) .options[ROW_Q8] = {__VA_ARGS__}
#define CUDA(...) .options[ROW_CUDA] = {__VA_ARGS__}
#define PYTHON(text)
#include "rule_table.inc.h"
const int rule_table_count = sizeof rule_table / sizeof *rule_table;

ref_state *ref_create(const char *rule, const ref_options *o, int ndim, const int64_t *shape) {
    ref_state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->row = rule_row_of(rule);
    s->count = 1;
    for (int i = 0; i < ndim; i++) s->count *= shape[i];
    if (ndim >= 2 && s->count > 0) {
        s->rows = shape[ndim - 2];
        s->cols = shape[ndim - 1];
        s->batch = s->count / (s->rows * s->cols);
        s->first = shape[0];
    }
    s->window = o->window;
    s->spatial_max = o->spatial_max;
    s->b_gamma = NAN;
    s->g = zeros(s->count);
    s->u = zeros(s->count);
    if (!s->row || !s->g || !s->u || !add_states(s, o)) {
        ref_free(s);
        return NULL;
    }
    return s;
}

void ref_free(ref_state *s) {
    if (!s) return;
    for (int i = 0; i < s->states; i++) free(s->data[i]);
    free(s->g);
    free(s->u);
    free(s);
}

/* Cautious steps: Liang, Chen, Liu, Liu, arXiv 2411.16085, as kyleliang919/C-Optim. before: the parameters that the rule
 * stepped from.
 *
 *   mask = (step g > 0),  step <- step mask / max(mean of mask, 1e-3) */
static void be_cautious(const ref_state *s, double *p, const double *before) {
    double mean = 0;
    for (int64_t i = 0; i < s->count; i++) mean += ((before[i] - p[i]) * s->g[i] > 0) / (double)s->count;
    for (int64_t i = 0; i < s->count; i++) {
        double step = before[i] - p[i];
        p[i] = before[i] - (step * s->g[i] > 0 ? step / fmax(mean, 1e-3) : 0);
    }
}

void ref_step(ref_state *s, double *param, const double *grad, const ref_options *o) {
    s->t++;
    for (int64_t i = 0; i < s->count; i++) {
        double g = grad[i] * o->grad_scale;
        if (o->maximize) g = -g;
        if (g > o->clip_value) g = o->clip_value;
        if (g < -o->clip_value) g = -o->clip_value;
        if (o->decay == REF_DECAY_L2) g += o->weight_decay * param[i];
        s->g[i] = g;
        /* adopt moves nothing in its first step */
        if (!s->row->own_decay && !(s->row->step == step_adopt && s->t == 1)) {
            if (o->decay == REF_DECAY_DECOUPLED) param[i] -= o->lr * o->weight_decay * param[i];
            else if (o->decay == REF_DECAY_INDEPENDENT) param[i] -= o->weight_decay * param[i];
        }
    }
    if (s->count == 0) return;
    if (o->cautious) memcpy(s->u, param, (size_t)s->count * sizeof *param);
    s->row->step(s, param, s->g, o);
    if (o->cautious && (s->row->step != step_sgd || o->momentum != 0)) be_cautious(s, param, s->u);
}

const double *ref_get(const ref_state *s, const char *state_name, int64_t *count) {
    for (int i = 0; i < s->states; i++) {
        if (!strcmp(s->name[i], state_name)) {
            if (count) *count = s->size[i];
            return s->data[i];
        }
    }
    if (count) *count = 0;
    return NULL;
}

int64_t ref_steps(const ref_state *s) { return s->t; }
