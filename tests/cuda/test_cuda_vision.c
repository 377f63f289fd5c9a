/* Whole models of images on a device: loss, gradients and running statistics against the processor's, in each precision, for
 * a batch that does not fill the plan; and runs that repeat bit for bit, recorded or not. */
#include "check.h"
#include "cudacheck.h"
#include "small_vision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double apart(const float *a, const float *b, int64_t n) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - b[i], 2);
        size += pow(b[i], 2);
    }
    return sqrt(difference / size);
}

typedef struct model {
    const resnet_settings *resnet;
    const densenet_settings *densenet;
    int64_t side; /* of the images; 0: SMALL_SIDE */
} model;

static int64_t side_of(const model *m) { return m->side ? m->side : SMALL_SIDE; }

static void compare(const model *m, nn_precision precision, double loss_tolerance, double grad_tolerance) {
    small_vision cpu = small_vision_make(m->resnet, m->densenet, side_of(m), "cpu", 1);
    small_vision cuda = small_vision_make_on(m->resnet, m->densenet, side_of(m), "cuda", precision);
    const float loss = small_vision_loss(&cpu), there = small_vision_loss(&cuda);
    const double grads = apart(cuda.params->grad, cpu.params->grad, cpu.params->count);
    CHECK_INT(nn_params_fetch(cuda.params), ADAMOD_OK);
    printf("precision %d: loss %.6f, %.6f on the device; gradients %.2g apart\n", precision, (double)loss,
           (double)there, grads);
    CHECK_CLOSE(there, loss, loss_tolerance * fabs(loss));
    CHECK(grads < grad_tolerance);
    if (cpu.params->n_states)
        CHECK(apart(cuda.params->state_data, cpu.params->state_data, cpu.params->state_count) < loss_tolerance);
    small_vision_free(&cpu);
    small_vision_free(&cuda);
}

static adamod_status both_ways(void *context) {
    small_vision *s = context;
    nn_plan_forward(s->plan);
    nn_plan_backward(s->plan, false);
    return ADAMOD_OK;
}

/* The first run is not recorded, the second and third are as they are recorded, all later ones replayed. */
static void repeat(const model *m, nn_precision precision) {
    small_vision s = small_vision_make_on(m->resnet, m->densenet, side_of(m), "cuda", precision);
    const size_t bytes = (size_t)s.params->count * sizeof(float);
    float *grad = malloc(bytes), loss = 0;
    for (int i = 0; i < 5; i++) {
        CHECK_INT(nn_plan_replay(s.plan, 0, both_ways, &s), ADAMOD_OK);
        if (!CHECK_INT(nn_plan_wait(s.plan), ADAMOD_OK)) printf("%s\n", adamod_last_error());
        CHECK_INT(nn_params_fetch_grad(s.params), ADAMOD_OK);
        const float now = *(const float *)nn_plan_data(s.plan, "loss");
        if (i > 0) CHECK(now == loss && memcmp(grad, s.params->grad, bytes) == 0);
        memcpy(grad, s.params->grad, bytes);
        loss = now;
    }
    free(grad);
    small_vision_free(&s);
}

/* Rounding flips the sign of a few numbers that ReLU sees, which changes gradients more than the loss. */
static void check(const model *m) {
    if (!cudacheck_open()) SKIP("no device");
    compare(m, NN_FULL, 1e-5, 1e-4);
    compare(m, NN_TF32, 3e-3, 5e-2);
    compare(m, NN_MIXED, 3e-2, 2e-1);
    for (int precision = NN_FULL; precision <= NN_MIXED; precision++) repeat(m, (nn_precision)precision);
}

TEST(resnets_on_a_device) {
    const resnet_settings r = small_resnet(RESNET_BATCH_NORM);
    check(&(model){.resnet = &r});
}

TEST(resnets_without_norms_on_a_device) {
    const resnet_settings r = small_resnet(RESNET_FIXUP);
    check(&(model){.resnet = &r});
}

TEST(densenets_on_a_device) {
    const densenet_settings d = small_densenet();
    check(&(model){.densenet = &d});
}

static densenet_settings wide_densenet(const char *blocks) {
    densenet_settings d = small_densenet();
    strcpy(d.model.blocks, blocks);
    d.model.growth = 32;
    d.model.stem = 64;
    return d;
}

/* DenseNets whose norms are part of the next convolutions, which have 128 channels and 32. The sides are those of tiles of
 * each size. With the smallest images tf32 moves gradients by 0.09, and so does rounding the factors of all convolutions to
 * 11 bits in a model that is otherwise computed in f64: a batch norm has so few numbers that single ones that ReLU sees
 * matter. Larger images have the bounds of other models. */
TEST(wide_densenets_on_a_device) {
    const densenet_settings d = wide_densenet("2,3");
    if (!cudacheck_open()) SKIP("no device");
    static const int64_t sides[] = {8, 48, 64};
    for (int i = 0; i < 3; i++) {
        const model m = {.densenet = &d, .side = sides[i]};
        if (sides[i] > SMALL_SIDE) compare(&m, NN_TF32, 3e-3, 5e-2);
        compare(&m, NN_MIXED, 3e-2, 2e-1);
        repeat(&m, NN_MIXED);
    }
}

/* ResNets whose convolutions use wgmma, if the device has it: images of 32, 16, 8 and 4 pixels. */
TEST(wide_resnets_on_a_device) {
    static const struct {
        const char *blocks, *widths;
        int64_t side;
    } cases[] = {{"2,1", "64,128", 32}, {"1,1", "256,512", 8}};
    if (!cudacheck_open()) SKIP("no device");
    for (int i = 0; i < 2; i++) {
        resnet_settings r = small_resnet(RESNET_BATCH_NORM);
        strcpy(r.model.blocks, cases[i].blocks);
        strcpy(r.model.widths, cases[i].widths);
        const model m = {.resnet = &r, .side = cases[i].side};
        compare(&m, NN_MIXED, 3e-2, 2e-1);
        repeat(&m, NN_MIXED);
    }
}

/* One layer, so that faults show directly; with as many pixels as tiles of each size need. Blocks with several tiles
 * sum more numbers, which agree better. */
TEST(dense_layers_on_a_device) {
    const densenet_settings d = wide_densenet("1");
    if (!cudacheck_open()) SKIP("no device");
    static const struct {
        int side, images;
        double gradients;
    } cases[] = {{4, 5, 8e-2}, {8, 5, 8e-2}, {8, 70, 4e-2}, {16, 5, 8e-2}, {16, 70, 4e-2}, {32, 18, 4e-2}};
    for (int i = 0; i < 6; i++) {
        const model m = {.densenet = &d, .side = cases[i].side};
        small_vision_take(cases[i].images);
        compare(&m, NN_MIXED, 1e-2, cases[i].gradients);
        repeat(&m, NN_MIXED);
    }
    small_vision_take(SMALL_IMAGES);
}

RUN_TESTS(ENTRY(resnets_on_a_device), ENTRY(resnets_without_norms_on_a_device), ENTRY(densenets_on_a_device),
          ENTRY(wide_densenets_on_a_device), ENTRY(wide_resnets_on_a_device), ENTRY(dense_layers_on_a_device))
