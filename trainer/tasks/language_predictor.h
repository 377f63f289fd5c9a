/* language_predictor.h - a trained language model that reads tokens and says which may come next. */
#pragma once

#include "tasks/language.h"

typedef struct language_predictor language_predictor;
struct language_predictor {
    float *scores;                        /* log p of each word of the vocabulary after the last token read */
    int64_t most;                         /* tokens that can be read at once; 0: any number */
    void (*begin)(language_predictor *p); /* forgets everything read */
    int (*read)(language_predictor *p, const int32_t *tokens, int64_t n);
    void (*free)(language_predictor *p);
};

/* An LSTM has a copy of the experiment's weights on the host and computes with the reference kernels, in double precision
 * and in a fixed order. */
int language_predict_lstm(language_predictor **out, const experiment *e);
/* GPT computes where the experiment does. Keys and values of tokens read are in caches, of model.context tokens. When these
 * are full, it reads the last half of their tokens again, at positions from 0 on, and goes on from there. */
int language_predict_gpt(language_predictor **out, const experiment *e);
