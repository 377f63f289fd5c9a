/* Tests of rules that look at whole arrays, with one that is no rule of the library: what makes it special is in its
 * record alone. It takes the direction of a matrix's gradient, and is sgd for all other arrays.
 *
 * SPDX-License-Identifier: MIT
 */
#include "optim/update.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

enum { OTHERS, MATRICES }; /* variants, of sgd's kernels */

/* sgd's, with a variant and a learning rate that depend on the shape. */
static void toy_coefs(const double *o, const step_info *info, adamod__coef_f64 *c) {
    c->lr = o[OPT_LR];
    c->variant = info->cols > 0 ? MATRICES : OTHERS;
    if (info->cols > 0) c->high = c->lr * sqrt((double)info->rows / (double)info->cols);
}

/* A copy of every matrix's gradient, one behind the other. */
static size_t toy_workspace(const work *w) {
    size_t bytes = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (adamod__matrix_shape(w->items[i].span).cols > 0) bytes += (size_t)w->items[i].span->count * sizeof(float);
    }
    return bytes;
}

static int runs, items_taken;

static void toy_run(const work *w, work_space *space) {
    float *g = space->workspace;
    runs++;
    if (toy_workspace(w) > 0) CHECK(g && (uintptr_t)g % 64 == 0);
    for (size_t i = 0; i < w->n; i++) {
        const adamod_span *x = w->items[i].span;
        const adamod__coef_f64 *c = &space->coefs[space->coef_of[i]];
        if (!adamod__driver_takes(w, c) || !x->grad) continue;
        items_taken++;
        double sum = 0;
        memcpy(g, x->grad, (size_t)x->count * sizeof *g);
        for (int64_t j = 0; j < x->count; j++) sum += (double)g[j] * (double)g[j];
        for (int64_t j = 0; j < x->count; j++) ((float *)x->param)[j] -= (float)(c->high * (double)g[j] / sqrt(sum));
        g += x->count;
    }
}

static const rule_driver toy_driver = {.run = toy_run, .takes = 1u << MATRICES, .workspace = toy_workspace};

/* A handle of sgd with a record of its own: sgd's, but with a driver and other coefficients. */
static adamod_hyper *toy_hyper(rule *record, const rule_driver *driver) {
    adamod_hyper *h = NULL;
    runs = items_taken = 0;
    if (!CHECK_INT(adamod_hyper_create(&h, "sgd"), ADAMOD_OK)) abort();
    *record = *h->rule;
    record->coefs = toy_coefs;
    record->driver = driver;
    h->rule = record;
    CHECK_INT(adamod_hyper_set(h, "lr", 0.5), ADAMOD_OK);
    return h;
}

enum { ROWS = 8, COLS = 2, N = ROWS * COLS, ARRAYS = 4 };
static float param[ARRAYS][N], grad[ARRAYS][N];
static adamod_span spans[ARRAYS];

/* A vector, a matrix, a matrix without a gradient, a vector. */
static void make_spans(void) {
    for (int k = 0; k < ARRAYS; k++) {
        const bool matrix = k == 1 || k == 2;
        for (int i = 0; i < N; i++) {
            param[k][i] = 1;
            grad[k][i] = (float)(i % 2 ? 3 : -3);
        }
        spans[k] = (adamod_span){.param = param[k], .grad = k == 2 ? NULL : grad[k], .count = N, .step = 1};
        spans[k].ndim = matrix ? 2 : 1;
        spans[k].shape[0] = matrix ? ROWS : N;
        spans[k].shape[1] = matrix ? COLS : 0;
    }
}

TEST(a_driver_takes_some_arrays_and_leaves_others) {
    rule record;
    adamod_hyper *h = toy_hyper(&record, &toy_driver);
    for (int threads = 1; threads <= 2; threads++) {
        adamod_pool *pool = NULL;
        CHECK_INT(adamod_pool_create(&pool, threads), ADAMOD_OK);
        make_spans();
        CHECK_INT(adamod_update(h, spans, ARRAYS, pool), ADAMOD_OK);
        for (int i = 0; i < N; i++) {
            const double sign = i % 2 ? 1 : -1;
            CHECK(param[0][i] == (float)(1 - 0.5 * 3 * sign) && param[3][i] == param[0][i]);
            CHECK_CLOSE(param[1][i], 1 - 0.5 * 2 * sign / 4, 1e-6); /* |g| is 12; sqrt(rows / cols) is 2 */
            CHECK(param[2][i] == 1);
        }
        adamod_pool_free(pool);
    }
    CHECK_INT(runs, 2);
    CHECK_INT(items_taken, 2);
    adamod_hyper_free(h);
}

/* Statistics of what the driver leaves are those of the same arrays without it. */
TEST(statistics_of_what_a_driver_leaves) {
    rule record;
    adamod_hyper *h = toy_hyper(&record, &toy_driver), *sgd = NULL;
    adamod_statistics all, others;
    make_spans();
    CHECK_INT(adamod_update_collect(h, spans, ARRAYS, NULL, &all), ADAMOD_OK);
    make_spans();
    spans[1] = spans[3];
    CHECK_INT(adamod_hyper_create(&sgd, "sgd"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(sgd, "lr", 0.5), ADAMOD_OK);
    CHECK_INT(adamod_update_collect(sgd, spans, 2, NULL, &others), ADAMOD_OK);
    CHECK_INT(all.elements, 2 * N);
    CHECK(all.elements == others.elements && all.grad_norm == others.grad_norm);
    CHECK(all.update_norm == others.update_norm && all.eta_max == others.eta_max);
    adamod_hyper_free(sgd);
    adamod_hyper_free(h);
}

/* Each array has coefficients of its own, though options and step are the same. */
static void halve_the_first(const work *w, work_space *space) {
    CHECK(space->coef_of[0] != space->coef_of[w->n - 1]);
    space->coefs[space->coef_of[0]].lr /= 2;
}

TEST(a_driver_changes_coefficients_of_one_array) {
    static const rule_driver driver = {.run = halve_the_first};
    rule record;
    adamod_hyper *h = toy_hyper(&record, &driver);
    make_spans();
    spans[1] = spans[3];
    CHECK_INT(adamod_update(h, spans, 2, NULL), ADAMOD_OK);
    CHECK(param[0][1] == 1 - 0.25f * 3 && param[3][1] == 1 - 0.5f * 3);
    adamod_hyper_free(h);
}

/* Values that all chunks of an array share are computed once an update, not once a chunk. */
static int states_asked;
static bool count_states(const double *o, int ndim, const adamod_rule_state *s) {
    (void)o, (void)ndim, (void)s;
    states_asked++;
    return false;
}

TEST(states_are_asked_for_once_an_array) {
    enum { CHUNKS = 8 };
    const int64_t sizes[] = {adamod__chunk_size(1), CHUNKS * adamod__chunk_size(1)};
    int asked[2];
    for (int i = 0; i < 2; i++) {
        rule record;
        adamod_hyper *h = toy_hyper(&record, NULL);
        record.has_state = count_states; /* asked for sgd's one optional state */
        float *values = calloc((size_t)sizes[i], 2 * sizeof *values);
        if (!CHECK(values)) abort();
        adamod_span x = {.param = values, .grad = values + sizes[i], .count = sizes[i], .step = 1, .ndim = 1};
        x.shape[0] = sizes[i];
        states_asked = 0;
        CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_OK);
        asked[i] = states_asked;
        free(values);
        adamod_hyper_free(h);
    }
    CHECK_INT(asked[1], asked[0]);
}

static size_t too_much(const work *w) {
    (void)w;
    return SIZE_MAX;
}

TEST(a_workspace_that_cannot_be) {
    static const rule_driver driver = {.run = toy_run, .takes = UINT32_MAX, .workspace = too_much};
    rule record;
    adamod_hyper *h = toy_hyper(&record, &driver);
    make_spans();
    CHECK_INT(adamod_update(h, spans, ARRAYS, NULL), ADAMOD_ERROR_MEMORY);
    CHECK_HAS(adamod_last_error(), "out of memory updating 4 arrays");
    for (int i = 0; i < N; i++) CHECK(param[0][i] == 1 && param[1][i] == 1);
    CHECK_INT(runs, 0);
    adamod_hyper_free(h);
}

/* The record also says whether states can be in 8 bits. */
TEST(states_in_8_bits_if_the_record_says_so) {
    rule record;
    adamod_hyper *h = toy_hyper(&record, NULL);
    CHECK_INT(adamod_hyper_set_text(h, "state_type", "q8"), ADAMOD_OK);
    record.q8 = false;
    CHECK(adamod_hyper_set_text(h, "state_type", "q8") != ADAMOD_OK);
    adamod_hyper_free(h);
}

RUN_TESTS(ENTRY(a_driver_takes_some_arrays_and_leaves_others), ENTRY(statistics_of_what_a_driver_leaves),
          ENTRY(a_driver_changes_coefficients_of_one_array), ENTRY(states_are_asked_for_once_an_array),
          ENTRY(a_workspace_that_cannot_be), ENTRY(states_in_8_bits_if_the_record_says_so))
