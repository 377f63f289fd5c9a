/* LSTM layers between an embedding and a decoder with the same table: AWD-LSTM (Merity, Keskar and Socher, arXiv
 * 1708.02182), which the AdaMod paper trains on Penn Treebank. */
#pragma once

#include "support/keys.h"
#include "nn/nn.h"

/* The recipe's keys. */
typedef struct lstm_settings {
    struct {
        int layers, embedding, hidden; /* the last layer is as wide as the embedding */
        double output_dropout, layer_dropout, input_dropout, word_dropout, weight_dropout;
        double activity, change; /* AR's and TAR's factors */
    } model;
} lstm_settings;
extern const key_table lstm_keys;

/* Text as the model reads it: row t * batch + b is time step t of sequence b. */
typedef struct lstm_text {
    nn_value ids, targets; /* i32 [rows] */
    nn_value carried;      /* i32 [1]: 0 where a text begins, so that the state is zeros */
    int words;             /* of the vocabulary */
    int64_t batch;
    const char *state; /* names the layers' states, which last from run to run: each text has its own */
} lstm_text;

/* The output of nn_cross_entropy; regularised: with AR and TAR in its first number. */
nn_value lstm_build(nn_graph *g, const lstm_settings *s, const lstm_text *text, bool regularised);

/* log p of each word of the vocabulary after each row, [rows, words]; forward only, and targets are not read. */
nn_value lstm_predict(nn_graph *g, const lstm_settings *s, const lstm_text *text);

/* Declares the states of another text, for graphs that are built after parameters were made. */
void lstm_declare(nn_graph *g, const lstm_settings *s, const char *state, int64_t batch);
