/* small_gpt.h - a GPT of three layers and a step of it, forward and backward, for tests of what plans do with its ops.
 *
 *     small_gpt s = small_gpt_make(small_gpt_settings(), 11);
 *     nn_params_to_device(s.params, "cuda", NN_MIXED);    // or nothing: the host
 *     small_gpt_step(&s);                                 // s.loss, s.params->grad
 *     small_gpt_free(&s);
 */
#ifndef SMALL_GPT_H
#define SMALL_GPT_H

#include "models/gpt.h"
#include "nn/nn.h"

enum { SMALL_GPT_LAYERS = 3, SMALL_GPT_LENGTH = 6, SMALL_GPT_WINDOWS = 2 };

typedef struct small_gpt {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
    nn_plan_options options;
    gpt_symbols symbols;
    int words;
    float loss;
} small_gpt;

/* 8 columns and 2 heads; the rest as by default. */
gpt_settings small_gpt_settings(void);
/* The graph, and parameters with their first values. */
small_gpt small_gpt_make(gpt_settings settings, int words);
/* A plan and its first run; gradients are fetched from a device. Ends the program if it cannot. */
void small_gpt_step(small_gpt *s);
void small_gpt_free(small_gpt *s);

#endif
