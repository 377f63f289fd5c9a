#include "core/error.h"
#include "models/lstm.h"
#include "tasks/language_predictor.h"

#include <stdlib.h>

typedef struct lstm_predictor {
    language_predictor base;
    nn_params *params; /* a copy, for one column */
    nn_graph *graph;
    nn_plan *plan;
    bool begun; /* something was read */
} lstm_predictor;

static int build(const experiment *e, lstm_predictor *p) {
    p->params = nn_params_create();
    p->graph = p->params ? nn_graph_create(p->params) : NULL;
    if (!p->graph) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    const int one = nn_symbol(p->graph, "one", 1);
    lstm_text text = {.words = language_of(e)->words, .batch = 1, .state = "writer"};
    text.ids = nn_input(p->graph, "ids", NN_I32, one, 0);
    text.carried = nn_input(p->graph, "carried", NN_I32, one, 0);
    nn_output(p->graph, "scores", lstm_predict(p->graph, (const void *)e->recipe.model_settings, &text));
    const nn_plan_options o = {.backend = "ref", .loss = -1};
    adamod_status status = nn_params_allocate(p->params, 0);
    if (!status) status = nn_plan_create(&p->plan, p->graph, &o);
    if (!status) status = nn_plan_set_rows(p->plan, one, 1);
    return status;
}

/* Copies the experiment's weights, which may be on a device. */
static int copy_weights(const experiment *e, lstm_predictor *p) {
    const nn_params *from = e->params;
    if (nn_params_fetch(from)) return -1;
    for (int i = 0; i < p->params->n; i++) {
        const nn_param *to = &p->params->list[i], *own = nn_params_find(from, to->name);
        if (!own || own->count != to->count) return adamod__refuse("the model has no %s", to->name);
        memcpy(p->params->data + to->offset, from->data + own->offset, (size_t)own->count * sizeof *from->data);
    }
    return 0;
}

static void begin(language_predictor *base) { ((lstm_predictor *)(void *)base)->begun = false; }

static int read_tokens(language_predictor *base, const int32_t *tokens, int64_t n) {
    lstm_predictor *p = (lstm_predictor *)(void *)base;
    for (int64_t i = 0; i < n; i++) {
        *(int32_t *)nn_plan_data(p->plan, "ids") = tokens[i];
        *(int32_t *)nn_plan_data(p->plan, "carried") = p->begun;
        p->begun = true;
        nn_plan_forward(p->plan);
        if (nn_plan_wait(p->plan)) return -1;
    }
    return 0;
}

static void free_lstm(language_predictor *base) {
    lstm_predictor *p = (lstm_predictor *)(void *)base;
    nn_plan_free(p->plan);
    nn_graph_free(p->graph);
    nn_params_free(p->params);
    free(p);
}

int language_predict_lstm(language_predictor **out, const experiment *e) {
    lstm_predictor *p = calloc(1, sizeof *p);
    if (!p) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    p->base = (language_predictor){.begin = begin, .read = read_tokens, .free = free_lstm};
    if (build(e, p) || copy_weights(e, p)) {
        free_lstm(&p->base);
        return -1;
    }
    p->base.scores = nn_plan_data(p->plan, "scores");
    *out = &p->base;
    return 0;
}
