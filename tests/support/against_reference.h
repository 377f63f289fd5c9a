/* against_reference.h - the library and tests/support/reference.c on the same gradients, side by side, and whether they agree.
 *
 * How near the library must come to the reference, which is in double:
 *
 * Let u be half the spacing of numbers near 1 in the type of computation (2^-24 in f32, 2^-53 in f64): every operation,
 * and every coefficient narrowed to the type, is off by at most u of itself. To first order in u, after T updates:
 *
 *   g   gradient        4u    scale and its coefficient, clamp's coefficient or the product and sum of l2
 *   m   average of g    each update multiplies what is there by beta and adds: 3u (coefficient, product, sum) an
 *                       update, and 3u + 4u on what is added. Of M, the same average of |g|: (3T + 7) u. Where m nearly
 *                       cancels that is much of m, so M it must be.
 *   v   average of g^2  (3T + 12) u of itself, as nothing cancels; so its root is off by (1.5T + 6) u
 *   eta lr / (root + eps) with corrections: (1.5T + 12) u
 *   s   average of eta  another (3T + 3) u; the lesser of the two is no further off than either
 *   step eta m          (7.5T + 26) u of eta M. We allow C = 8T + 32.
 *   p   a sum of steps  C u of the sum of eta M, and 3u |p| an update (store; decay's product and difference)
 *
 * The sum of eta M needs no formula of its own: it is how far the reference goes when it is given |g|, and no decay.
 * This second reference, "shadow" below, gives for every state the magnitude that its error is a multiple of, too. So
 * the tolerance is
 *
 *   2 u (C path + 3 T max|p|)   for parameters          2 u C shadow   for states
 *
 * per element; the 2 covers terms of second order and, with l2, that an error in p returns through the gradient (by a
 * factor of weight_decay times the sum of eta: with 0.01 and gradients whose mean square is 0.8^2 or more, and 300
 * updates of lr 0.01, that is 0.04). In f64 that is under 1e-12 of the path for 500 updates. States may fade away below
 * the least normal number, where an operation is off by half of the least number of all: with four of them an update,
 * 2 T of those in all. Where a rule does something else, allowance() says what.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_AGAINST_REFERENCE_H
#define ADAMOD_TESTS_AGAINST_REFERENCE_H

#include "adamod.h"
#include "option_sets.h"
#include "reference.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- numbers and arrays ---- */

/* Either sign, a size log-uniform from 1e-4 to 1e2; one in 20 is zero. */
double random_gradient(void);
/* An update's gradient. L2 decay adds to the gradient; here it never cancels it, since where it did the sum would be
 * all rounding, and so would the step of a rule that divides by its size (l2_is_a_gradient in test_closed_forms.c has
 * the other sign). Nor are these gradients below 0.1, so that no element has an eta by which an error in p would come
 * back many times as large. */
double next_gradient(const ref_options *o, double p);
double random_param(void);

/* An array whose first element is some elements past where memory is aligned. */
typedef struct array {
    void *memory, *data;
    adamod_type type;
    int64_t n;
} array;
array make_array(adamod_type type, int64_t n, int offset);
void fill_array(array *a, double value);
double *zeros(int64_t n);
int64_t count_of(int ndim, const int64_t *shape);
/* The name of a type, for messages. */
const char *name_of(adamod_type type);

/* ---- the two sides ---- */

enum { MAX_SHAPE = 4 };

typedef struct scenario {
    const char *rule, *options;
    adamod_type param_type, grad_type;
    int ndim;
    int64_t shape[MAX_SHAPE];
    int steps;
    int offset; /* of all arrays that are ours, in elements */
    bool raw;
    const char *schedule; /* of lr, or NULL: one that scheduled() knows */
    double clip_norm;     /* 0: none; by handle only */
} scenario;

/* The values adamod.h promises, written once more. */
double scheduled(const char *text, double base, int t);

/* The library's side: one array and its states, by handle or by raw pointers. */
typedef struct subject {
    const scenario *sc;
    adamod_optimizer *opt; /* NULL: raw */
    adamod_hyper *h;
    adamod_state_desc desc[ADAMOD_MAX_STATES];
    array param, grad, state[ADAMOD_MAX_STATES];
} subject;
void subject_open(subject *s, const scenario *sc);
void subject_close(subject *s);

/* The reference's side, with the magnitudes its errors are multiples of. */
typedef struct model {
    const scenario *sc;
    ref_options o;
    ref_state *ref, *shadow;
    int64_t n;
    int t;
    double *p, *moved;       /* the parameter; scratch for shadow's */
    double *path, *most;     /* the sum of eta M; the largest |p| so far */
    double *kappa;           /* rmsprop centered: the least (v - a^2) / v so far */
    double *e, *f, *drag;    /* adashift: see allowance() */
    double rates, least;     /* adafactor, lamb: the sum of rho; the least rms(p) */
    double numerator, found; /* prodigy: see prodigy_numbers */
    double swell;            /* lamb: how much larger than the norm of a step that of its magnitudes was at most */
    double weights;          /* nosadam: the sum of k^-gamma */
} model;
void model_open(model *m, const scenario *sc);
void model_close(model *m);
/* One update; g as the library gets it, factor what clip_norm multiplies it by. */
void model_step(model *m, const double *g, double lr, double factor);

/* ---- whether they agree ---- */

/* A state, found in the library, against the reference's of that name. */
bool compare_state(const model *m, const char *name, const array *a);
bool compare_param(const model *m, const array *a);
bool compare(const subject *s, const model *m);

/* Runs both sides on the same random gradients and compares parameters and states on the way: after every update of
 * small arrays, after the first and last of large ones. */
bool check_against_reference(const scenario *sc);

#endif
