/* The Transformer's three graphs, layer by layer. */
#include "models/transformer.h"

#include <math.h>
#include <stdio.h>

/* ---- settings ---- */

static const key_spec keys[] = {
    WHOLE_KEY(transformer_settings, model.layers, "6", 1, 1000, STRICT, "layers of the encoder, and of the decoder"),
    WHOLE_KEY(transformer_settings, model.d, "128", 2, 65536, STRICT, "width of the model"),
    WHOLE_KEY(transformer_settings, model.ffn, "256", 1, 1048576, STRICT, "width of the feed-forward layers"),
    WHOLE_KEY(transformer_settings, model.heads, "4", 1, 1024, STRICT, "attention heads; must divide d"),
    SWITCH_KEY(transformer_settings, model.pre_norm, "false", STRICT,
               "normalise before each sublayer instead of after it"),
    SWITCH_KEY(transformer_settings, model.share_all, "false", STRICT,
               "one table for source, target and output; needs data.joint"),
    SWITCH_KEY(transformer_settings, model.tie_output, "false", STRICT,
               "the output layer shares the target's embedding"),
    REAL_KEY(transformer_settings, model.dropout, "0.1", 0, 1, true, STRICT, "dropout of embeddings and sublayers"),
    REAL_KEY(transformer_settings, model.attention_dropout, "0", 0, 1, true, STRICT, "dropout of attention weights"),
    REAL_KEY(transformer_settings, model.smoothing, "0.1", 0, 1, true, STRICT, "label smoothing"),
};
const key_table transformer_keys = {keys, sizeof keys / sizeof *keys, sizeof(transformer_settings)};

transformer_config transformer_configure(const transformer_settings *s, int src_vocab, int tgt_vocab) {
    return (transformer_config){.encoder_layers = s->model.layers,
                                .decoder_layers = s->model.layers,
                                .d = s->model.d,
                                .ffn = s->model.ffn,
                                .heads = s->model.heads,
                                .pre_norm = s->model.pre_norm,
                                .share_all = s->model.share_all,
                                .tie_output = s->model.tie_output,
                                .dropout = s->model.dropout,
                                .attention_dropout = s->model.attention_dropout,
                                .smoothing = s->model.smoothing,
                                .src_vocab = src_vocab,
                                .tgt_vocab = tgt_vocab};
}

/* ---- parameters ---- */

static nn_value matrix(nn_graph *g, const char *name, int64_t out, int64_t in, nn_init init) {
    return nn_parameter(g, name, 2, (int64_t[]){out, in}, init);
}

static nn_value vector(nn_graph *g, const char *name, int64_t n, nn_init_kind kind) {
    return nn_parameter(g, name, 1, &n, (nn_init){kind, 0});
}

/* x W^T + b under a name. */
static nn_value dense(nn_graph *g, const char *name, nn_value x, int64_t out, int64_t in, nn_init init,
                      nn_activation a) {
    nn_scope_push(g, "%s", name);
    const nn_value y = nn_linear(g, x, matrix(g, "weight", out, in, init), vector(g, "bias", out, NN_ZEROS), a);
    nn_scope_pop(g);
    return y;
}

static nn_value embedding_table(nn_graph *g, const char *name, int64_t words, int64_t d) {
    return matrix(g, name, words, d, (nn_init){NN_NORMAL, 1 / sqrt((double)d)});
}

static nn_value source_table(nn_graph *g, const transformer_config *c) {
    return embedding_table(g, c->share_all ? "embedding.weight" : "encoder.embedding.weight", c->src_vocab, c->d);
}

static nn_value target_table(nn_graph *g, const transformer_config *c) {
    return embedding_table(g, c->share_all ? "embedding.weight" : "decoder.embedding.weight", c->tgt_vocab, c->d);
}

static nn_value output_table(nn_graph *g, const transformer_config *c) {
    if (c->share_all || c->tie_output) return target_table(g, c);
    return embedding_table(g, "decoder.output.weight", c->tgt_vocab, c->d);
}

/* ---- blocks ---- */

static nn_value norm(nn_graph *g, const transformer_config *c, const char *name, nn_value x, nn_value branch) {
    nn_scope_push(g, "%s", name);
    const nn_value y = nn_add_norm(g, x, branch, c->dropout, vector(g, "weight", c->d, NN_ONES),
                                   vector(g, "bias", c->d, NN_ZEROS), 1e-5);
    nn_scope_pop(g);
    return y;
}

/* A residual block is norm(x + f(x)), or x + f(norm(x)) with pre_norm. begin returns the argument of f, end takes the
 * value of f. */
static nn_value begin(nn_graph *g, const transformer_config *c, const char *name, nn_value x) {
    return c->pre_norm ? norm(g, c, name, x, -1) : x;
}

static nn_value end(nn_graph *g, const transformer_config *c, const char *name, nn_value x, nn_value branch) {
    return c->pre_norm ? nn_add(g, x, branch, c->dropout) : norm(g, c, name, x, branch);
}

/* Queries, keys and values are drawn as one 3d x d matrix, also where they are kept apart. */
static nn_init packed_init(const transformer_config *c) { return (nn_init){NN_UNIFORM, sqrt(6.0 / (4.0 * c->d))}; }
static nn_init xavier(void) { return (nn_init){NN_XAVIER, 0}; }

/* Keys and values of earlier tokens, in a decoder step. */
typedef struct cache_io {
    nn_value cache, paths, positions;
} cache_io;

static nn_value self_attention(nn_graph *g, const transformer_config *c, nn_value x, nn_value ranges, bool causal,
                               const cache_io *io) {
    nn_value y = begin(g, c, "self_norm", x);
    y = dense(g, "self_qkv", y, 3 * c->d, c->d, packed_init(c), NN_LINEAR);
    y = io ? nn_path_attention(g, y, io->cache, io->paths, io->positions, c->heads, c->heads)
           : nn_attention(g, y, -1, ranges, ranges, c->heads, causal, c->attention_dropout);
    y = dense(g, "self_out", y, c->d, c->d, xavier(), NN_LINEAR);
    return end(g, c, "self_norm", x, y);
}

static nn_value cross_keys(nn_graph *g, const transformer_config *c, nn_value memory) {
    return dense(g, "cross_kv", memory, 2 * c->d, c->d, packed_init(c), NN_LINEAR);
}

static nn_value cross_attention(nn_graph *g, const transformer_config *c, nn_value x, nn_value kv, nn_value q_ranges,
                                nn_value k_ranges) {
    nn_value y = begin(g, c, "cross_norm", x);
    y = dense(g, "cross_q", y, c->d, c->d, packed_init(c), NN_LINEAR);
    y = nn_attention(g, y, kv, q_ranges, k_ranges, c->heads, false, c->attention_dropout);
    y = dense(g, "cross_out", y, c->d, c->d, xavier(), NN_LINEAR);
    return end(g, c, "cross_norm", x, y);
}

static nn_value feed_forward(nn_graph *g, const transformer_config *c, nn_value x) {
    nn_value y = begin(g, c, "ffn_norm", x);
    y = dense(g, "ffn_in", y, c->ffn, c->d, xavier(), NN_RELU);
    y = dense(g, "ffn_out", y, c->d, c->ffn, xavier(), NN_LINEAR);
    return end(g, c, "ffn_norm", x, y);
}

static nn_value embed(nn_graph *g, const transformer_config *c, nn_value ids, nn_value positions, nn_value table) {
    const nn_value x = nn_embedding(g, ids, positions, table, sqrt((double)c->d));
    return c->dropout > 0 ? nn_dropout(g, x, c->dropout) : x;
}

/* ---- encoder and decoder ---- */

static nn_value encoder(nn_graph *g, const transformer_config *c, const transformer_symbols *s, nn_value ranges) {
    const nn_value ids = nn_input(g, "src_ids", NN_I32, s->src, 0);
    const nn_value positions = nn_input(g, "src_positions", NN_I32, s->src, 0);
    nn_value x = embed(g, c, ids, positions, source_table(g, c));
    for (int i = 0; i < c->encoder_layers; i++) {
        nn_scope_push(g, "encoder.%d", i);
        x = self_attention(g, c, x, ranges, false, NULL);
        x = feed_forward(g, c, x);
        nn_scope_pop(g);
    }
    return c->pre_norm ? norm(g, c, "encoder.norm", x, -1) : x;
}

static nn_value logits(nn_graph *g, const transformer_config *c, nn_value x) {
    if (c->pre_norm) x = norm(g, c, "decoder.norm", x, -1);
    return nn_linear(g, x, output_table(g, c), -1, NN_LINEAR);
}

static void symbols_of(nn_graph *g, const transformer_sizes *sizes, transformer_symbols *s) {
    s->src = nn_symbol(g, "src", sizes->src);
    s->tgt = nn_symbol(g, "tgt", sizes->tgt);
    s->sentences = nn_symbol(g, "sentences", sizes->sentences);
}

nn_value transformer_training(nn_graph *g, const transformer_config *c, const transformer_sizes *sizes,
                              transformer_symbols *s) {
    symbols_of(g, sizes, s);
    const nn_value src_ranges = nn_input(g, "src_ranges", NN_I32, s->sentences, 2);
    const nn_value tgt_ranges = nn_input(g, "tgt_ranges", NN_I32, s->sentences, 2);
    const nn_value ids = nn_input(g, "tgt_in", NN_I32, s->tgt, 0);
    const nn_value positions = nn_input(g, "tgt_positions", NN_I32, s->tgt, 0);
    const nn_value targets = nn_input(g, "tgt_out", NN_I32, s->tgt, 0);
    nn_pad(g, targets, -1);
    const nn_value memory = encoder(g, c, s, src_ranges);
    nn_value x = embed(g, c, ids, positions, target_table(g, c));
    for (int i = 0; i < c->decoder_layers; i++) {
        nn_scope_push(g, "decoder.%d", i);
        x = self_attention(g, c, x, tgt_ranges, true, NULL);
        x = cross_attention(g, c, x, cross_keys(g, c, memory), tgt_ranges, src_ranges);
        x = feed_forward(g, c, x);
        nn_scope_pop(g);
    }
    const nn_value loss = nn_cross_entropy(g, logits(g, c, x), targets, c->smoothing);
    nn_output(g, "loss", loss);
    return loss;
}

void transformer_encoder(nn_graph *g, const transformer_config *c, const transformer_sizes *sizes,
                         transformer_symbols *s) {
    symbols_of(g, sizes, s);
    const nn_value memory = encoder(g, c, s, nn_input(g, "src_ranges", NN_I32, s->sentences, 2));
    for (int i = 0; i < c->decoder_layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "cross.%d", i);
        nn_scope_push(g, "decoder.%d", i);
        nn_keep(g, name, cross_keys(g, c, memory));
        nn_scope_pop(g);
    }
}

void transformer_step(nn_graph *g, const transformer_config *c, const transformer_step_sizes *sizes,
                      const nn_beam_options *o, transformer_step_symbols *s) {
    const int64_t hypotheses = sizes->sentences * o->beam;
    s->src = nn_symbol(g, "src", sizes->src);
    s->sentences = nn_symbol(g, "sentences", sizes->sentences);
    s->hypotheses = nn_symbol(g, "hypotheses", hypotheses);
    s->cache = nn_symbol(g, "cache", sizes->slots * o->beam * o->max_length);
    const nn_value ids = nn_state(g, "ids", NN_I32, s->hypotheses, 0);
    const nn_value positions = nn_state(g, "positions", NN_I32, s->hypotheses, 0);
    const nn_value paths = nn_state(g, "paths", NN_I32, s->hypotheses, o->max_length);
    const nn_value rows = nn_state(g, "rows", NN_I32, s->sentences, 2);
    const nn_value ranges = nn_state(g, "cross_ranges", NN_I32, s->sentences, 2);
    nn_value x = embed(g, c, ids, positions, target_table(g, c));
    for (int i = 0; i < c->decoder_layers; i++) {
        char cache[32], cross[32];
        snprintf(cache, sizeof cache, "cache.%d", i);
        snprintf(cross, sizeof cross, "cross.%d", i);
        const cache_io io = {nn_state(g, cache, NN_F32, s->cache, 2 * c->d), paths, positions};
        nn_scope_push(g, "decoder.%d", i);
        x = self_attention(g, c, x, -1, true, &io);
        x = cross_attention(g, c, x, nn_state(g, cross, NN_F32, s->src, 2 * c->d), rows, ranges);
        x = feed_forward(g, c, x);
        nn_scope_pop(g);
    }
    const int most = 2 * o->beam + 1;
    const nn_value best = nn_best(g, logits(g, c, x), most < c->tgt_vocab ? most : c->tgt_vocab);
    const nn_value search = nn_state(g, "search", NN_I32, s->sentences, nn_beam_words(o));
    nn_output(g, "live", nn_beam(g, best, search, ids, positions, paths, o));
}
