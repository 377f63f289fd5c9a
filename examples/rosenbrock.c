/* rosenbrock.c - the library's rules, by name, on Rosenbrock's function
 *
 *     f(x, y) = (1 - x)^2 + 100 (y - x^2)^2
 *
 * whose minimum, 0 at (1, 1), lies in a long curved valley. Prints how far each rule gets from (-1.2, 1).
 *
 *     cc -std=c11 -O2 rosenbrock.c $(pkg-config --cflags --libs adamod) -lm -o rosenbrock
 *     ./rosenbrock [UPDATES]
 *
 * SPDX-License-Identifier: MIT
 */
#include <adamod.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings that suit this function: a rule, then options and their values. */
static const char *const runs[][7] = {
    {"adamod", "lr", "0.2"},
    {"adam", "lr", "0.05"},
    {"amsgrad", "lr", "0.1"},
    {"sgd", "lr", "0.001"},
    {"sgd", "lr", "0.001", "momentum", "0.9"},
    {"adagrad", "lr", "0.3"},
    {"rmsprop", "lr", "0.002"},
    {"adadelta", "lr", "0.05"},
    {"adabound", "lr", "0.05", "final_lr", "0.002"},
    {"amsbound", "lr", "0.05", "final_lr", "0.002"},
    {"adashift", "lr", "0.01", "spatial", "none"},
    {"nosadam", "lr", "0.1"},
    {"adafactor", "lr", "0.002", "relative_step", "0", "scale_parameter", "0"},
    {"radam", "lr", "0.01", "clip_norm", "10"},
};

static double rosenbrock(const double p[2], double gradient[2]) {
    const double valley = p[1] - p[0] * p[0];
    gradient[0] = -2 * (1 - p[0]) - 400 * p[0] * valley;
    gradient[1] = 200 * valley;
    return (1 - p[0]) * (1 - p[0]) + 100 * valley * valley;
}

/* Fails the way a small program does: says what the library says, and stops. */
static void check(adamod_status status) {
    if (status == ADAMOD_OK) return;
    fprintf(stderr, "rosenbrock: %s\n", adamod_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    const long updates = argc > 1 ? atol(argv[1]) : 5000;
    if (updates < 1) {
        fprintf(stderr, "usage: rosenbrock [UPDATES]\n");
        return 2;
    }
    printf("%-10s %-45s %8s %9s %8s\n", "rule", "settings", "f", "distance", "at 0.01");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        double p[2] = {-1.2, 1}, gradient[2], distance = 0;
        long reached = 0; /* the first update that came within 0.01 of the minimum */
        char settings[64] = "", first[24] = "-";
        adamod_optimizer *opt = NULL;
        check(adamod_create(&opt, runs[i][0]));
        for (const char *const *s = &runs[i][1]; s < runs[i] + 7 && s[0]; s += 2) {
            check(adamod_set_text(opt, s[0], s[1]));
            const size_t used = strlen(settings);
            snprintf(settings + used, sizeof settings - used, "%s%s %s", used ? ", " : "", s[0], s[1]);
        }
        const adamod_tensor t = {.name = "p",
                                 .param = p,
                                 .grad = gradient,
                                 .param_type = ADAMOD_F64,
                                 .grad_type = ADAMOD_F64,
                                 .ndim = 1,
                                 .shape = {2}};
        check(adamod_add_tensor(opt, 0, &t, NULL));
        for (long k = 1; k <= updates; k++) {
            rosenbrock(p, gradient);
            check(adamod_step(opt));
            distance = hypot(p[0] - 1, p[1] - 1);
            if (!reached && distance < 0.01) reached = k;
        }
        if (reached) snprintf(first, sizeof first, "%ld", reached);
        printf("%-10s %-45s %8.0e %9.0e %8s\n", runs[i][0], settings, rosenbrock(p, gradient), distance, first);
        adamod_free(opt);
    }
    return 0;
}
