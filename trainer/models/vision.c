#include "models/vision.h"

#include "core/error.h"

#include <stdlib.h>

int vision_list(const char *text, int most, int list[VISION_STAGES]) {
    int n = 0;
    for (;; text++) {
        char *end;
        const long x = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : 0;
        if (x < 1 || x > most || n == VISION_STAGES) return 0;
        list[n++] = (int)x;
        text = end;
        if (!*text) return n;
        if (*text != ',') return 0;
    }
}

void vision_no_list(const char *path, const char *text, int most) {
    adamod__refuse("%s is '%s', expected 1 to %d whole numbers from 1 to %d with commas between them", path, text,
                   VISION_STAGES, most);
}

static nn_value vector(nn_graph *g, const char *name, int64_t n, nn_init init) {
    return nn_parameter(g, name, 1, &n, init);
}

static int64_t channels_of(const nn_graph *g, nn_value x) { return nn_shape_of(g, x).dim[3]; }

nn_value vision_convolution(nn_graph *g, const char *name, nn_value x, int64_t out, int64_t size, int stride,
                            nn_init init) {
    nn_scope_push(g, "%s", name);
    const nn_value w = nn_parameter(g, "weight", 4, (int64_t[]){out, size, size, channels_of(g, x)}, init);
    const nn_value y = nn_convolution(g, x, w, stride, (int)size / 2);
    nn_scope_pop(g);
    return y;
}

nn_value vision_norm(nn_graph *g, const char *name, nn_value x, nn_value residual, vision_gamma gamma,
                     nn_activation a) {
    const int64_t n = channels_of(g, x);
    const bool uniform = gamma == GAMMA_UNIFORM;
    nn_scope_push(g, "%s", name);
    const nn_value weight = vector(g, "weight", n, (nn_init){uniform ? NN_UNIT : NN_ONES, 1});
    const nn_value bias = vector(g, "bias", n, (nn_init){NN_ZEROS, 0});
    const nn_value mean = nn_persistent(g, "mean", 1, &n, (nn_init){NN_ZEROS, 0});
    const nn_value variance = nn_persistent(g, "variance", 1, &n, (nn_init){NN_ONES, 0});
    const nn_value y = nn_batch_norm(g, x, residual, weight, bias, mean, variance, 1e-5, 0.1, a);
    nn_scope_pop(g);
    return y;
}

nn_value vision_head(nn_graph *g, nn_value x, int classes, nn_init weight, nn_init bias) {
    const int64_t n = channels_of(g, x);
    x = nn_average_pool(g, x, (int)nn_shape_of(g, x).dim[1]);
    nn_scope_push(g, "linear");
    const nn_value w = nn_parameter(g, "weight", 2, (int64_t[]){classes, n}, weight);
    const nn_value y = nn_linear(g, x, w, vector(g, "bias", classes, bias), NN_LINEAR);
    nn_scope_pop(g);
    return y;
}
