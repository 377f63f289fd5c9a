#include "models/mlp.h"

#include <math.h>

static const key_spec keys[] = {
    WHOLE_KEY(mlp_settings, model.layers, "2", 0, 100, STRICT, "hidden layers; 0: logistic regression"),
    WHOLE_KEY(mlp_settings, model.width, "128", 1, 65536, STRICT, "units of a hidden layer"),
};
const key_table mlp_keys = {keys, sizeof keys / sizeof *keys, sizeof(mlp_settings)};

static nn_value layer(nn_graph *g, nn_value x, int64_t out, nn_activation activation) {
    const nn_shape s = nn_shape_of(g, x);
    int64_t in = 1;
    for (int d = 1; d < s.ndim; d++) in *= s.dim[d];
    const nn_value w = nn_parameter(g, "weight", 2, (int64_t[]){out, in}, (nn_init){NN_FAN_IN, 0});
    const nn_value b = nn_parameter(g, "bias", 1, &out, (nn_init){NN_UNIFORM, 1 / sqrt((double)in)});
    return nn_linear(g, x, w, b, activation);
}

nn_value mlp_build(nn_graph *g, const mlp_settings *s, nn_value x, int classes) {
    for (int i = 0; i <= s->model.layers; i++) {
        const bool last = i == s->model.layers;
        nn_scope_push(g, "layers.%d", i);
        x = layer(g, x, last ? classes : s->model.width, last ? NN_LINEAR : NN_RELU);
        nn_scope_pop(g);
    }
    return x;
}
