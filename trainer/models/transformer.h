/* The encoder-decoder Transformer of Vaswani et al. (arXiv 1706.03762) over packed sequences, as the paper trains it:
 * post-LN unless pre_norm, ReLU, sinusoidal positions.
 *
 * One set of parameters serves three graphs: training (and scoring), the encoder, and one step of the decoder. */
#pragma once

#include "support/keys.h"
#include "nn/nn.h"

/* The recipe's keys. */
typedef struct transformer_settings {
    struct {
        int layers, d, ffn, heads;
        bool pre_norm, share_all, tie_output;
        double dropout, attention_dropout, smoothing;
    } model;
} transformer_settings;
extern const key_table transformer_keys;

typedef struct transformer_config {
    int encoder_layers, decoder_layers;
    int d, ffn, heads;
    bool pre_norm;
    bool share_all;  /* one table for source, target and output (WMT); else three */
    bool tie_output; /* the output's matrix is the target's table */
    double dropout, attention_dropout, smoothing;
    int src_vocab, tgt_vocab;
} transformer_config;

transformer_config transformer_configure(const transformer_settings *s, int src_vocab, int tgt_vocab);

/* Most rows of a batch. */
typedef struct transformer_sizes {
    int64_t src, tgt, sentences;
} transformer_sizes;

typedef struct transformer_symbols {
    int src, tgt, sentences;
} transformer_symbols;

/* Inputs src_ids, src_positions [src], src_ranges [sentences, 2], and tgt_in, tgt_positions, tgt_out [tgt], tgt_ranges.
 * Returns the loss (see nn_cross_entropy), also the output "loss". */
nn_value transformer_training(nn_graph *g, const transformer_config *c, const transformer_sizes *sizes,
                              transformer_symbols *symbols);

/* Inputs src_ids, src_positions, src_ranges. Keeps "cross.L": the keys and values [src, 2 d] that decoder layer L
 * reads in every step. */
void transformer_encoder(nn_graph *g, const transformer_config *c, const transformer_sizes *sizes,
                         transformer_symbols *symbols);

/* Beam search: one token for each hypothesis of each sentence, and which of them go on (nn_beam). All it reads are states:
 *   ids, positions, paths, search    see nn_beam
 *   rows [sentences, 2]              the hypotheses of sentence i: i beam, (i + 1) beam
 *   cross_ranges [sentences, 2]      its rows of cross.L, none where there is no sentence
 *   cross.L [src, 2 d]               from the encoder
 *   cache.L                          keys and values of beam max_length tokens for each of the slots
 * Output "live" [sentences, 1]. */
typedef struct transformer_step_sizes {
    int64_t src, sentences;
    int64_t slots; /* sentences of the cache, which may serve several graphs */
} transformer_step_sizes;
typedef struct transformer_step_symbols {
    int src, sentences, hypotheses, cache;
} transformer_step_symbols;
void transformer_step(nn_graph *g, const transformer_config *c, const transformer_step_sizes *sizes,
                      const nn_beam_options *o, transformer_step_symbols *symbols);
