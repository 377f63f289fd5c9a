/* Fused steps of a plan (nn/fuse.c), on a device whose kernels are the reference's: a DenseNet whose
 * convolutions tell moments, apply linear parts of gradients and take in the norms before them trains as one whose ops
 * stay to themselves. */
#include "check.h"
#include "fake_device.h"
#include "nn/op.h"
#include "nn/ops/attributes.h"
#include "small_vision.h"

#include <math.h>
#include <stdlib.h>

static int taken_in, moments_found, parts_applied;
static bool fuse;

/* ---- arrays ---- */

/* A copy that has the same distance from pixel to pixel. */
static float *copy_of(const nn_array *a, const float *from) {
    const size_t n = (size_t)(nn_pixels(a) * a->stride);
    float *copy = calloc(n, sizeof *copy);
    if (!copy) abort();
    for (int64_t p = 0; from && p < nn_pixels(a); p++)
        memcpy(copy + p * a->stride, from + p * a->stride, (size_t)nn_channels(a) * sizeof(float));
    return copy;
}

/* g + sign (a + b x), number by number. */
static void add_linear(const nn_array *x, const nn_channel_pairs *l, float sign, float *g) {
    for (int64_t p = 0; p < nn_pixels(x); p++) {
        for (int64_t k = 0; k < nn_channels(x); k++)
            g[p * x->stride + k] +=
                sign * (l->first[k] + l->first[l->stride + k] * ((const float *)x->data)[p * x->stride + k]);
    }
}

static void leave_moments(const nn_array *x, const nn_channel_pairs *to) {
    for (int64_t k = 0; k < nn_channels(x); k++) {
        double sum = 0, squares = 0;
        const int64_t n = nn_pixels(x);
        const float *at = (const float *)x->data + k;
        for (int64_t p = 0; p < n; p++) sum += at[p * x->stride];
        for (int64_t p = 0; p < n; p++) squares += pow(at[p * x->stride] - sum / (double)n, 2);
        to->first[k] = (float)(sum / (double)n);
        to->first[to->stride + k] = (float)(squares / (double)n);
    }
}

/* ---- norms ---- */

static void norm_forward(const nn_call *c) {
    nn_op_batch_norm.ref.forward(c);
    for (int64_t k = 0; c->fused->moments.first && k < nn_channels(&c->input[0]); k++) {
        CHECK_CLOSE(c->fused->moments.first[k], c->saved[k], 1e-6);
        CHECK_CLOSE(1 / sqrt(c->fused->moments.first[c->fused->moments.stride + k] + NN_ATTR(batch_norm, c)->eps),
                    c->saved[nn_channels(&c->input[0]) + k], 1e-5);
        moments_found++;
    }
}

/* Leaves some of the gradient: any part will do. */
static void norm_backward(const nn_call *c) {
    const nn_array *x = &c->input[0];
    nn_call d = *c;
    nn_gradients grad = *c->grad;
    if (!c->fused->linear.first) {
        nn_op_batch_norm.ref.backward(c);
        return;
    }
    d.grad = &grad;
    grad.input[0] = copy_of(x, NULL);
    grad.accumulate[0] = false;
    nn_op_batch_norm.ref.backward(&d);
    float *part = calloc(2 * (size_t)nn_channels(x), sizeof *part);
    const nn_channel_pairs own = {part, nn_channels(x)};
    for (int64_t k = 0; k < 2 * nn_channels(x); k++) {
        float *const at = c->fused->linear.first + k / nn_channels(x) * c->fused->linear.stride + k % nn_channels(x);
        part[k] = 0.25f + 0.125f * (float)(k % 3);
        *at = part[k] + (c->grad->accumulate[0] ? *at : 0);
    }
    add_linear(x, &own, -1, grad.input[0]);
    for (int64_t p = 0; p < nn_pixels(x); p++) {
        for (int64_t k = p * x->stride; k < p * x->stride + nn_channels(x); k++)
            c->grad->input[0][k] = grad.input[0][k] + (c->grad->accumulate[0] ? c->grad->input[0][k] : 0);
    }
    free(part);
    free(grad.input[0]);
}

/* ---- convolutions ---- */

/* The output that the norm before would have written, with what it keeps for backward. */
static float *normalised(const nn_call *norm, nn_array *y, double momentum) {
    nn_call d = *norm;
    nn_batch_norm_attributes a = *NN_ATTR(batch_norm, norm);
    a.momentum = momentum;
    d.attributes = &a;
    d.output[0].data = copy_of(&d.output[0], NULL);
    norm_forward(&d);
    *y = d.output[0];
    taken_in++;
    return y->data;
}

static void conv_forward(const nn_call *c) {
    nn_call d = *c;
    float *x = c->fused->maker
                   ? normalised(c->fused->maker, &d.input[0], NN_ATTR(batch_norm, c->fused->maker)->momentum)
                   : NULL;
    nn_op_convolution.ref.forward(&d);
    if (c->fused->output_moments.first) leave_moments(&c->output[0], &c->fused->output_moments);
    free(x);
}

static void conv_backward_to(const nn_call *c) {
    nn_call d = *c, norm;
    nn_gradients grad = *c->grad, norm_grad;
    if (!c->fused->maker) {
        nn_op_convolution.ref.backward(c);
        return;
    }
    norm = *c->fused->maker;
    norm_grad = *norm.grad;
    d.grad = &grad;
    norm.grad = &norm_grad;
    float *x = normalised(c->fused->maker, &d.input[0], 0), *dx = copy_of(&d.input[0], NULL);
    grad.input[0] = norm_grad.output[0] = dx;
    grad.accumulate[0] = false;
    norm.output[0] = d.input[0];
    nn_op_convolution.ref.backward(&d);
    norm_backward(&norm);
    free(x);
    free(dx);
}

static void conv_backward(const nn_call *c) {
    nn_call d = *c;
    nn_gradients grad = *c->grad;
    d.grad = &grad;
    if (c->fused->output_linear.first) {
        grad.output[0] = copy_of(&c->output[0], c->grad->output[0]);
        add_linear(&c->output[0], &c->fused->output_linear, 1, grad.output[0]);
        parts_applied++;
    }
    conv_backward_to(&d);
    if (c->fused->output_linear.first) free(grad.output[0]);
}

/* ---- pooling ---- */

static void pool_forward(const nn_call *c) {
    nn_op_average_pool.ref.forward(c);
    if (c->fused->output_moments.first) leave_moments(&c->output[0], &c->fused->output_moments);
}

static void pool_backward(const nn_call *c) {
    nn_call d = *c;
    nn_gradients grad = *c->grad;
    d.grad = &grad;
    grad.output[0] = copy_of(&c->output[0], c->grad->output[0]);
    if (c->fused->output_linear.first) add_linear(&c->output[0], &c->fused->output_linear, 1, grad.output[0]);
    nn_op_average_pool.ref.backward(&d);
    free(grad.output[0]);
}

/* ---- the device ---- */

static bool yes(const nn_call *c) {
    (void)c;
    return fuse;
}

/* Convolutions of one pixel give moments only if they have taken in the norm before them. */
static bool gives_moments(const nn_call *c) { return fuse && (c->fused->maker || c->input[1].shape->dim[1] > 1); }

static bool absorbs(const nn_call *c, const char *op, const nn_call *maker) {
    (void)c;
    return fuse && strcmp(op, "batch_norm") == 0 && maker->fused->moments.first;
}

static size_t conv_workspace(const nn_call *c) { return nn_op_convolution.ref.workspace(c); }

static const nn_kernels conv_kernels = {
    .forward = conv_forward,
    .backward = conv_backward,
    .workspace = conv_workspace,
    .fusion = {.gives_moments = gives_moments, .takes_linear = yes, .absorbs = absorbs}};
static const nn_kernels norm_kernels = {
    .forward = norm_forward, .backward = norm_backward, .fusion = {.takes_moments = true, .leaves_linear = true}};
static const nn_kernels pool_kernels = {
    .forward = pool_forward, .backward = pool_backward, .fusion = {.gives_moments = yes, .takes_linear = yes}};

static const nn_backend_op ops[] = {{"convolution", &conv_kernels},
                                    {"batch_norm", &norm_kernels},
                                    {"average_pool", &pool_kernels},
                                    {"concat", &nn_op_concat.ref},
                                    {"linear", &nn_op_linear.ref},
                                    {"cross_entropy", &nn_op_cross_entropy.ref},
                                    {NULL, NULL}};
static const nn_backend device = {.name = "test", .ops = ops, .device = &fake_device_functions};

/* ---- one step ---- */

static small_vision run(bool fusion_is_on, float *loss) {
    const densenet_settings d = small_densenet();
    fuse = fusion_is_on;
    small_vision s = small_vision_make_with(&d, &device);
    *loss = small_vision_loss(&s);
    CHECK_INT(nn_params_fetch(s.params), ADAMOD_OK);
    return s;
}

static void check_same(const nn_param *list, int n, const float *a, const float *b, double tolerance) {
    for (int i = 0; i < n; i++) {
        for (int64_t k = list[i].offset; k < list[i].offset + list[i].count; k++) CHECK_CLOSE(a[k], b[k], tolerance);
    }
}

TEST(fused_ops_train_as_those_that_are_not) {
    float loss = 0, same = 0;
    small_vision alone = run(false, &loss);
    const nn_params *a = alone.params;
    CHECK_INT(taken_in + moments_found + parts_applied, 0);
    small_vision together = run(true, &same);
    const nn_params *b = together.params;
    CHECK(moments_found > 0 && parts_applied > 0);
    /* Both norms of 5 layers, the second with moments from the step that has taken in the first; and the transition's. */
    CHECK_INT(taken_in, 2 * (2 * 5 + 1));
    CHECK_CLOSE(same, loss, 1e-6);
    check_same(a->list, a->n, b->grad, a->grad, 2e-5);
    check_same(a->states, a->n_states, b->state_data, a->state_data, 1e-6);
    /* The norms' outputs have no memory. */
    CHECK(nn_plan_memory(together.plan).values < nn_plan_memory(alone.plan).values);
    small_vision_free(&alone);
    small_vision_free(&together);
}

/* ---- norms of several processes ---- */

static void add_nothing(void *calls, double *x, int64_t n) {
    (void)x, (void)n;
    ++*(int *)calls;
}

static adamod_status both_ways(void *plan) {
    nn_plan_forward(plan);
    nn_plan_backward(plan, false);
    return ADAMOD_OK;
}

/* Other steps are not asked for what only these processes together know. Runs that wait for others' sums are not recorded,
 * which this device could not. */
TEST(norms_of_several_processes_stay_to_themselves) {
    densenet_settings d = small_densenet();
    int calls = 0;
    bool any = false;
    float loss = 0;
    small_vision alone = run(false, &loss);
    CHECK_INT(nn_plan_sync(alone.plan, add_nothing, &calls, true, &any), ADAMOD_OK);
    CHECK(!any);
    d.model.sync_norm = true;
    fuse = true;
    taken_in = moments_found = parts_applied = 0;
    small_vision s = small_vision_make_with(&d, &device);
    CHECK_INT(nn_plan_sync(s.plan, add_nothing, &calls, true, &any), ADAMOD_OK);
    CHECK(any);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(nn_plan_replay(s.plan, 0, both_ways, s.plan), ADAMOD_OK);
        CHECK_INT(nn_plan_wait(s.plan), ADAMOD_OK);
        CHECK_CLOSE(*(const float *)nn_plan_data(s.plan, "loss"), loss, 1e-6);
    }
    CHECK_INT(taken_in + moments_found + parts_applied, 0);
    small_vision_free(&alone);
    small_vision_free(&s);
}

RUN_TESTS(ENTRY(fused_ops_train_as_those_that_are_not), ENTRY(norms_of_several_processes_stay_to_themselves))
