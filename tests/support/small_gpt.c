/* See small_gpt.h. */
#include "small_gpt.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = SMALL_GPT_WINDOWS * SMALL_GPT_LENGTH };

static void check_ok(adamod_status status) {
    if (!status) return;
    printf("small_gpt: %s\n", adamod_last_error());
    exit(1);
}

gpt_settings small_gpt_settings(void) {
    gpt_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&gpt_keys, &s);
    s.model.layers = SMALL_GPT_LAYERS;
    s.model.d = 8;
    s.model.heads = 2;
    return s;
}

small_gpt small_gpt_make(gpt_settings settings, int words) {
    const gpt_config c = gpt_configure(&settings, words, SMALL_GPT_LENGTH);
    small_gpt s = {.params = nn_params_create(), .words = words};
    s.graph = nn_graph_create(s.params);
    s.options.loss = gpt_training(s.graph, &c, TOKENS, SMALL_GPT_WINDOWS, &s.symbols);
    s.options.training = true;
    check_ok(nn_params_allocate(s.params, 3));
    return s;
}

static void fill(small_gpt *s) {
    int32_t *ids = nn_plan_data(s->plan, "ids"), *positions = nn_plan_data(s->plan, "positions"),
            *targets = nn_plan_data(s->plan, "targets"), *ranges = nn_plan_data(s->plan, "ranges");
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i * 7 % s->words;
        positions[i] = i % SMALL_GPT_LENGTH;
        targets[i] = (i + 1) * 7 % s->words;
    }
    for (int w = 0; w < SMALL_GPT_WINDOWS; w++) {
        ranges[2 * w] = w * SMALL_GPT_LENGTH;
        ranges[2 * w + 1] = (w + 1) * SMALL_GPT_LENGTH;
    }
    check_ok(nn_plan_set_rows(s->plan, s->symbols.tokens, TOKENS));
    check_ok(nn_plan_set_rows(s->plan, s->symbols.windows, SMALL_GPT_WINDOWS));
}

void small_gpt_step(small_gpt *s) {
    check_ok(nn_plan_create(&s->plan, s->graph, &s->options));
    fill(s);
    nn_plan_forward(s->plan);
    nn_plan_backward(s->plan, false);
    check_ok(nn_plan_wait(s->plan));
    s->loss = *(const float *)nn_plan_data(s->plan, "loss");
    check_ok(nn_params_fetch_grad(s->params));
}

void small_gpt_free(small_gpt *s) {
    nn_plan_free(s->plan);
    nn_graph_free(s->graph);
    nn_params_free(s->params);
}
