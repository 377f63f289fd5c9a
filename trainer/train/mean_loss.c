#include "train/mean_loss.h"

#include "support/json_input.h"
#include "core/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of metrics; loss NAN: it has none. */
typedef struct point {
    double step, loss;
} point;

/* False: the line is not about training. */
static bool read_line(const char *text, size_t n, point *out) {
    json_input in = json_input_of(text, n);
    char kind[16] = "";
    *out = (point){NAN, NAN};
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        char key[32];
        json_input_key(&in, key, sizeof key);
        if (strcmp(key, "kind") == 0) json_input_text(&in, kind, sizeof kind);
        else if (strcmp(key, "step") == 0) out->step = json_input_number(&in);
        else if (strcmp(key, "loss") == 0) out->loss = json_input_number(&in);
        else json_input_skip(&in);
    }
    return !in.expected && strcmp(kind, "train") == 0 && isfinite(out->step);
}

int mean_training_loss(const char *path, int64_t step, double *out) {
    FILE *file = fopen(path, "re");
    if (!file) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    char *text = NULL;
    size_t room = 0;
    double sum = 0, weights = 0, before = 0;
    for (ssize_t n; (n = getline(&text, &room, file)) > 0;) {
        point p;
        if (!read_line(text, (size_t)n, &p)) continue;
        const double weight = fmax(1, p.step - before);
        before = p.step;
        if (!isfinite(p.loss) || p.step <= 0.95 * (double)step) continue;
        sum += weight * p.loss;
        weights += weight;
    }
    const int failed = ferror(file) ? adamod__fail(ADAMOD_ERROR_IO, "%s: cannot read: %s", path, strerror(errno)) : 0;
    free(text);
    fclose(file);
    *out = weights > 0 ? sum / weights : NAN;
    return failed;
}
