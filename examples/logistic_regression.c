/* logistic_regression.c - classifies generated points with AdaMod: two groups of parameters, a schedule, statistics.
 *
 *     cc -std=c11 -O2 logistic_regression.c $(pkg-config --cflags --libs adamod) -lm -o logistic_regression
 *
 * Each point has 20 features, some of them rare, as words are: in half, a quarter, ... or a sixteenth of all points. Rare
 * features have small gradients, and so larger learning rates of their own. Weights decay, the bias does not: so there
 * are two groups.
 *
 * SPDX-License-Identifier: MIT
 */
#include <adamod.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 20, TRAINING = 2000, TESTING = 1000, POINTS = TRAINING + TESTING, BATCH = 50, EPOCHS = 20 };

static float x[POINTS][FEATURES];
static int label[POINTS];

static void check(adamod_status status) {
    if (status == ADAMOD_OK) return;
    fprintf(stderr, "logistic_regression: %s\n", adamod_last_error());
    exit(1);
}

/* Uniform in (-1, 1), the same on every machine. */
static double uniform(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 4503599627370496.0 - 1;
}

/* A point is labelled by which side of a plane it lies on, and one in twenty wrongly. */
static void generate(void) {
    double truth[FEATURES];
    for (int j = 0; j < FEATURES; j++) truth[j] = uniform() + (j % 2 ? 1 : -1);
    for (int i = 0; i < POINTS; i++) {
        double side = 0.3;
        for (int j = 0; j < FEATURES; j++) {
            const double value = uniform(), present = (uniform() + 1) / 2;
            x[i][j] = present < ldexp(1, -(j % 5)) ? (float)value : 0;
            side += truth[j] * (double)x[i][j];
        }
        label[i] = (side > 0) != (uniform() > 0.9);
    }
}

static double probability(const float *weight, float bias, const float *point) {
    double z = (double)bias;
    for (int j = 0; j < FEATURES; j++) z += (double)weight[j] * (double)point[j];
    return 1 / (1 + exp(-z));
}

/* The gradient of the mean cross-entropy of BATCH points; returns that mean. */
static double gradients(const float *weight, float bias, int first, float *weight_grad, float *bias_grad) {
    double grad[FEATURES] = {0}, grad_bias = 0, loss = 0;
    for (int i = first; i < first + BATCH; i++) {
        const double p = probability(weight, bias, x[i]), error = p - label[i];
        loss -= log(fmax(label[i] ? p : 1 - p, 1e-12)) / BATCH;
        grad_bias += error / BATCH;
        for (int j = 0; j < FEATURES; j++) grad[j] += error * (double)x[i][j] / BATCH;
    }
    for (int j = 0; j < FEATURES; j++) weight_grad[j] = (float)grad[j];
    *bias_grad = (float)grad_bias;
    return loss;
}

static double accuracy(const float *weight, float bias, int first, int last) {
    int right = 0;
    for (int i = first; i < last; i++) right += (probability(weight, bias, x[i]) > 0.5) == label[i];
    return 100.0 * right / (last - first);
}

int main(void) {
    static float weight[FEATURES], weight_grad[FEATURES], bias, bias_grad;
    adamod_optimizer *opt = NULL;
    adamod_schedule *schedule = NULL;
    adamod_statistics s;
    int no_decay = 0;
    generate();

    check(adamod_create(&opt, "adamod"));
    check(adamod_set(opt, "lr", 0.05));
    check(adamod_set(opt, "beta3", 0.99));
    check(adamod_set(opt, "weight_decay", 1e-3));
    check(adamod_add_group(opt, &no_decay));
    check(adamod_group_set(opt, no_decay, "weight_decay", 0));

    /* constant for the first 400 of 800 updates, then down to a fiftieth */
    check(adamod_schedule_parse(&schedule, "constant*400 > cosine(0.001,400)"));
    check(adamod_set_schedule(opt, -1, "lr", schedule));
    adamod_schedule_free(schedule);

    const adamod_tensor weights = {
        .name = "weight", .param = weight, .grad = weight_grad, .ndim = 1, .shape = {FEATURES}};
    const adamod_tensor biases = {.name = "bias", .param = &bias, .grad = &bias_grad}; /* a scalar */
    check(adamod_add_tensor(opt, 0, &weights, NULL));
    check(adamod_add_tensor(opt, no_decay, &biases, NULL));
    check(adamod_collect(opt, 1));

    printf("                                   learning rates of the weights\n");
    printf("epoch   loss  accuracy       lr    least   median     most  bounded\n");
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double loss = 0, lr = 0;
        for (int first = 0; first < TRAINING; first += BATCH) {
            loss += gradients(weight, bias, first, weight_grad, &bias_grad) * BATCH / TRAINING;
            check(adamod_scheduled(opt, 0, "lr", &lr));
            check(adamod_step(opt));
        }
        if (epoch > 3 && epoch % 4) continue;
        check(adamod_get_statistics(opt, 0, &s)); /* of the last step */
        printf("%5d %6.3f %7.1f %% %8.3f %8.2f %8.1f %8.1f %6.0f %%\n", epoch, loss,
               accuracy(weight, bias, 0, TRAINING), lr, s.step_min, s.step_median, s.step_max, 100 * s.bounded);
    }
    printf("on %d points it has not seen: %.1f %% (of the labels, 95 %% are right)\n", TESTING,
           accuracy(weight, bias, TRAINING, POINTS));
    adamod_free(opt);
    return 0;
}
