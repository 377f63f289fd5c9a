/* GPT-2's decoder (Radford et al. 2019) over packed windows of text, and its variants of today by switches: RMS norms
 * (arXiv 1910.07467), rotary positions (2104.09864), SwiGLU (2002.05202), grouped keys and values (2305.13245), norms of
 * queries and keys (2010.04245), no biases.
 *
 * Parameters have the names of GPT-2's own files: wte.weight, wpe.weight, h.0.ln_1.weight, h.0.attn.c_attn.weight, ...,
 * ln_f.bias. Matrices are [out, in], where those files have [in, out]. The output layer is wte. */
#pragma once

#include "support/keys.h"
#include "nn/nn.h"

typedef enum gpt_size { GPT_CUSTOM, GPT_D12, GPT_D24, GPT_D36, GPT_D48 } gpt_size;
typedef enum gpt_norm { GPT_LAYER_NORM, GPT_RMS_NORM } gpt_norm;
typedef enum gpt_positions { GPT_LEARNED, GPT_ROTARY } gpt_positions;
typedef enum gpt_activation { GPT_GELU, GPT_SWIGLU } gpt_activation;
typedef enum gpt_recompute { GPT_KEEP, GPT_RECOMPUTE_CHEAP, GPT_RECOMPUTE_BLOCKS } gpt_recompute;

/* The recipe's keys. */
typedef struct gpt_settings {
    struct {
        gpt_size size;
        int layers, d, heads, kv_heads, ffn, context;
        gpt_norm norm;
        gpt_positions positions;
        gpt_activation activation;
        gpt_recompute recompute;
        bool qk_norm, biases;
        double rotary_base, dropout, z_loss;
    } model;
} gpt_settings;
extern const key_table gpt_keys;

/* gpt_settings with every default resolved. */
typedef struct gpt_config {
    int layers, d, heads, kv_heads;
    int ffn;     /* width between the two layers of a block; with SwiGLU the first one has twice as many outputs */
    int context; /* most tokens of a window */
    int words;   /* of the vocabulary */
    gpt_norm norm;
    gpt_positions positions;
    gpt_activation activation;
    gpt_recompute recompute;
    bool qk_norm, biases;
    double rotary_base, dropout, z_loss;
} gpt_config;

/* length: the context, if the settings name none. */
gpt_config gpt_configure(const gpt_settings *s, int words, int length);

/* Floating-point operations of training on a token of a window of `length`: 6 for each weight that it is multiplied with, and
 * 12 layers d length for attention, as if each token saw the whole window. llm.c and the PaLM paper (arXiv 2204.02311) count so. */
double gpt_flops(const gpt_config *c, int64_t length);

/* NULL, or the path of a key that does not fit the others, with a message. */
const char *gpt_check(const gpt_settings *s);

typedef struct gpt_symbols {
    int tokens, windows;
} gpt_symbols;

/* The loss of at most `tokens` tokens in at most `windows` windows. Inputs: ids, positions and targets [tokens], ranges
 * [windows, 2], the rows of each window. Returns the loss (see nn_cross_entropy), also the output "loss". */
nn_value gpt_training(nn_graph *g, const gpt_config *c, int64_t tokens, int64_t windows, gpt_symbols *symbols);

/* Reads up to `tokens` tokens of one text after those read before, whose keys and values are in the states cache.L of
 * model.context rows. Inputs: ids, positions [tokens] and paths [tokens, context], rows of the caches: 0, 1, 2, ... for each
 * token. predicts: the output "scores" [tokens, words] has log p of each word of the vocabulary after each token; else the
 * tokens are only read. On a device, tokens is 1. */
void gpt_step(nn_graph *g, const gpt_config *c, int64_t tokens, bool predicts, int *rows);
