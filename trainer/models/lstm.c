#include "models/lstm.h"

#include <math.h>
#include <stdio.h>

#define S lstm_settings
static const key_spec keys[] = {
    WHOLE_KEY(S, model.layers, "3", 1, 100, STRICT, "number of LSTM layers"),
    WHOLE_KEY(S, model.embedding, "400", 1, 65536, STRICT, "width of the embedding, and units of the last layer"),
    WHOLE_KEY(S, model.hidden, "1150", 1, 65536, STRICT, "units of each of the other layers"),
    REAL_KEY(S, model.output_dropout, "0.4", 0, 1, true, STRICT,
             "dropout of the last layer's output; one mask for all time steps"),
    REAL_KEY(S, model.layer_dropout, "0.25", 0, 1, true, STRICT, "dropout between layers; one mask for all time steps"),
    REAL_KEY(S, model.input_dropout, "0.4", 0, 1, true, STRICT,
             "dropout of embedded words; one mask for all time steps"),
    REAL_KEY(S, model.word_dropout, "0.1", 0, 1, true, STRICT, "dropout of whole words of the vocabulary"),
    REAL_KEY(S, model.weight_dropout, "0.5", 0, 1, true, STRICT, "dropout of recurrent weights; one mask per batch"),
    REAL_KEY(S, model.activity, "2", 0, 1e6, false, STRICT,
             "AR: weight of the mean square of the last layer's output in the loss"),
    REAL_KEY(S, model.change, "1", 0, 1e6, false, STRICT,
             "TAR: weight of the mean square of its change between time steps in the loss"),
};
#undef S
const key_table lstm_keys = {keys, sizeof keys / sizeof *keys, sizeof(lstm_settings)};

static int64_t units(const lstm_settings *s, int layer) {
    return layer == s->model.layers - 1 ? s->model.embedding : s->model.hidden;
}

/* The state "h" or "c" of a text, in the scope of a layer. */
static nn_value state_of(nn_graph *g, const char *state, char which, int64_t batch, int64_t n) {
    char name[64];
    snprintf(name, sizeof name, "%s_%c", state, which);
    return nn_carried(g, name, 2, (int64_t[]){batch, n}, (nn_init){NN_ZEROS, 0});
}

void lstm_declare(nn_graph *g, const lstm_settings *s, const char *state, int64_t batch) {
    for (int i = 0; i < s->model.layers; i++) {
        nn_scope_push(g, "layers.%d", i);
        state_of(g, state, 'h', batch, units(s, i));
        state_of(g, state, 'c', batch, units(s, i));
        nn_scope_pop(g);
    }
}

static nn_value layer(nn_graph *g, nn_value x, int64_t n, const lstm_text *text, double dropout) {
    const int64_t in = nn_shape_of(g, x).dim[1], gates = 4 * n;
    const nn_init init = {NN_UNIFORM, 1 / sqrt((double)n)};
    const nn_value w_in = nn_parameter(g, "weight_ih", 2, (int64_t[]){gates, in}, init);
    const nn_value w_state = nn_parameter(g, "weight_hh", 2, (int64_t[]){gates, n}, init);
    const nn_value b_in = nn_parameter(g, "bias_ih", 1, &gates, init);
    const nn_value b_state = nn_parameter(g, "bias_hh", 1, &gates, init);
    const nn_value h = state_of(g, text->state, 'h', text->batch, n), c = state_of(g, text->state, 'c', text->batch, n);
    return nn_lstm(g, x, w_in, w_state, b_in, b_state, h, c, text->carried, dropout);
}

static nn_value locked(nn_graph *g, nn_value x, const lstm_text *text, double p) {
    return p > 0 ? nn_locked_dropout(g, x, text->batch, p) : x;
}

/* The decoder's scores; *x and *last are what it reads, after and before dropout. */
static nn_value build_scores(nn_graph *g, const lstm_settings *s, const lstm_text *text, nn_value *x, nn_value *last) {
    const int64_t words = text->words, d = s->model.embedding;
    const nn_value table = nn_parameter(g, "embedding.weight", 2, (int64_t[]){words, d}, (nn_init){NN_UNIFORM, 0.1});
    *x = nn_embedding(g, text->ids, -1, table, 1);
    if (s->model.word_dropout > 0) *x = nn_word_dropout(g, *x, text->ids, s->model.word_dropout);
    *x = locked(g, *x, text, s->model.input_dropout);
    for (int i = 0; i < s->model.layers; i++) {
        const bool ends = i == s->model.layers - 1;
        nn_scope_push(g, "layers.%d", i);
        *last = layer(g, *x, units(s, i), text, s->model.weight_dropout);
        nn_scope_pop(g);
        *x = locked(g, *last, text, ends ? s->model.output_dropout : s->model.layer_dropout);
    }
    const nn_value bias = nn_parameter(g, "decoder.bias", 1, &words, (nn_init){NN_ZEROS, 0});
    return nn_linear(g, *x, table, bias, NN_LINEAR);
}

nn_value lstm_build(nn_graph *g, const lstm_settings *s, const lstm_text *text, bool regularised) {
    nn_value x = -1, last = -1;
    const nn_value loss = nn_cross_entropy(g, build_scores(g, s, text, &x, &last), text->targets, 0);
    if (!regularised || (s->model.activity == 0 && s->model.change == 0)) return loss;
    return nn_activity(g, loss, x, last, text->batch, s->model.activity, s->model.change);
}

nn_value lstm_predict(nn_graph *g, const lstm_settings *s, const lstm_text *text) {
    nn_value x = -1, last = -1;
    return nn_log_softmax(g, build_scores(g, s, text, &x, &last));
}
