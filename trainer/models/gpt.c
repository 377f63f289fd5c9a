/* GPT's graphs, layer by layer. */
#include "models/gpt.h"

#include "core/error.h"

#include <math.h>
#include <stdio.h>

/* ---- settings ---- */

#define S gpt_settings
static const key_spec keys[] = {
    ENUM_KEY(S, model.size, "custom", "custom d12 d24 d36 d48", STRICT,
             "GPT-2's sizes, of 124, 350, 774 and 1558 million parameters, instead of layers, d and heads"),
    WHOLE_KEY(S, model.layers, "4", 1, 1000, STRICT, "number of blocks"),
    WHOLE_KEY(S, model.d, "128", 2, 65536, STRICT, "width of the model"),
    WHOLE_KEY(S, model.heads, "4", 1, 1024, STRICT, "attention heads; must divide d"),
    WHOLE_KEY(S, model.kv_heads, "0", 0, 1024, STRICT,
              "heads of keys and values, which queries share; must divide heads; 0: as many as heads"),
    WHOLE_KEY(S, model.ffn, "0", 0, 1048576, STRICT, "width of the feed-forward layers; 0: 4 d, with swiglu 8 d / 3"),
    WHOLE_KEY(S, model.context, "0", 0, 1048576, STRICT, "most tokens that the model sees at once; 0: data.length"),
    ENUM_KEY(S, model.norm, "layer", "layer rms", STRICT, "kind of norm before each sublayer"),
    ENUM_KEY(S, model.positions, "learned", "learned rotary", STRICT,
             "a table that is added to the embedding, or a rotation of queries and keys"),
    REAL_KEY(S, model.rotary_base, "10000", 1, 1e12, false, STRICT, "rotary: base of the wavelengths"),
    ENUM_KEY(S, model.activation, "gelu", "gelu swiglu", STRICT, "of the feed-forward layers"),
    SWITCH_KEY(S, model.qk_norm, "false", STRICT, "an RMS norm of the queries and keys of each head"),
    SWITCH_KEY(S, model.biases, "true", STRICT, "linear layers have biases; layer norms always do"),
    REAL_KEY(S, model.dropout, "0", 0, 1, true, STRICT, "dropout of embeddings, attention weights and sublayers"),
    REAL_KEY(S, model.z_loss, "0", 0, 1, false, STRICT,
             "weight of the square of log sum exp(logits) in the loss, which keeps logits small"),
    ENUM_KEY(S, model.recompute, "none", "none cheap blocks", LOOSE,
             "what the backward pass computes again to save memory: nothing, norms and activations, or whole blocks"),
};
#undef S
const key_table gpt_keys = {keys, sizeof keys / sizeof *keys, sizeof(gpt_settings)};

gpt_config gpt_configure(const gpt_settings *s, int words, int length) {
    static const struct {
        int layers, d, heads;
    } sizes[] = {
        [GPT_D12] = {12, 768, 12}, [GPT_D24] = {24, 1024, 16}, [GPT_D36] = {36, 1280, 20}, [GPT_D48] = {48, 1600, 25}};
    gpt_config c = {.layers = s->model.layers,
                    .d = s->model.d,
                    .heads = s->model.heads,
                    .kv_heads = s->model.kv_heads,
                    .ffn = s->model.ffn,
                    .context = s->model.context ? s->model.context : length,
                    .words = words,
                    .norm = s->model.norm,
                    .positions = s->model.positions,
                    .activation = s->model.activation,
                    .recompute = s->model.recompute,
                    .qk_norm = s->model.qk_norm,
                    .biases = s->model.biases,
                    .rotary_base = s->model.rotary_base,
                    .dropout = s->model.dropout,
                    .z_loss = s->model.z_loss};
    if (s->model.size != GPT_CUSTOM) {
        c.layers = sizes[s->model.size].layers;
        c.d = sizes[s->model.size].d;
        c.heads = sizes[s->model.size].heads;
    }
    if (!c.kv_heads) c.kv_heads = c.heads;
    /* SwiGLU has three matrices where GELU has two. The width is a multiple of 8, for tensor cores. */
    if (!c.ffn) c.ffn = c.activation == GPT_SWIGLU ? (c.d * 8 / 3 + 7) / 8 * 8 : 4 * c.d;
    return c;
}

double gpt_flops(const gpt_config *c, int64_t length) {
    const double d = c->d, of_keys = d / c->heads * c->kv_heads, ffn = c->ffn;
    const double block = d * (2 * d + 2 * of_keys) + (c->activation == GPT_SWIGLU ? 3 : 2) * d * ffn;
    return 6 * (c->layers * block + d * c->words) + 12.0 * c->layers * d * (double)length;
}

/* For checks: the message, then the path of the key. */
#define refuse(path, ...) (adamod__refuse(__VA_ARGS__), path)

const char *gpt_check(const gpt_settings *s) {
    const gpt_config c = gpt_configure(s, 1, 1);
    if (c.heads < 1 || c.d % c.heads)
        return refuse("model.heads", "model.heads is %d, expected a divisor of model.d, %d", c.heads, c.d);
    if (c.heads % c.kv_heads)
        return refuse("model.kv_heads", "model.kv_heads is %d, expected a divisor of model.heads, %d", c.kv_heads,
                      c.heads);
    if (c.positions == GPT_ROTARY && c.d / c.heads % 2)
        return refuse("model.positions", "model.positions is rotary, but a head has an odd number of columns, %d",
                      c.d / c.heads);
    return NULL;
}

/* ---- parameters ---- */

/* GPT-2's deviations: of matrices, of positions, and of projections into the residual stream, which adds up 2 L of them. */
static nn_init normal(double deviation) { return (nn_init){NN_NORMAL, deviation}; }
static nn_init usual(void) { return normal(0.02); }
static nn_init residual(const gpt_config *c) { return normal(0.02 / sqrt(2.0 * c->layers)); }

static nn_value matrix(nn_graph *g, const char *name, int64_t out, int64_t in, nn_init init) {
    return nn_parameter(g, name, 2, (int64_t[]){out, in}, init);
}

static nn_value vector(nn_graph *g, const char *name, int64_t n, nn_init_kind kind) {
    return nn_parameter(g, name, 1, &n, (nn_init){kind, 0});
}

static nn_value words(nn_graph *g, const gpt_config *c) { return matrix(g, "wte.weight", c->words, c->d, usual()); }

static nn_value linear(nn_graph *g, const gpt_config *c, const char *name, nn_value x, int64_t out, nn_init init) {
    const int64_t in = nn_shape_of(g, x).dim[1];
    nn_scope_push(g, "%s", name);
    const nn_value w = matrix(g, "weight", out, in, init);
    const nn_value y = nn_linear(g, x, w, c->biases ? vector(g, "bias", out, NN_ZEROS) : -1, NN_LINEAR);
    nn_scope_pop(g);
    return y;
}

/* Mark the ops between them as cheap to recompute: their outputs are large, their work is small. */
static void begin_cheap(nn_graph *g, const gpt_config *c) {
    if (c->recompute == GPT_RECOMPUTE_CHEAP) nn_recompute(g, true);
}
static void end_cheap(nn_graph *g, const gpt_config *c) {
    if (c->recompute == GPT_RECOMPUTE_CHEAP) nn_recompute(g, false);
}

static nn_value norm(nn_graph *g, const gpt_config *c, const char *name, nn_value x) {
    static const double eps = 1e-5;
    nn_scope_push(g, "%s", name);
    begin_cheap(g, c);
    const nn_value gain = vector(g, "weight", c->d, NN_ONES);
    const nn_value y = c->norm == GPT_RMS_NORM ? nn_rms_norm(g, x, gain, eps)
                                               : nn_add_norm(g, x, -1, 0, gain, vector(g, "bias", c->d, NN_ZEROS), eps);
    end_cheap(g, c);
    nn_scope_pop(g);
    return y;
}

/* ---- blocks ---- */

/* A graph's inputs: ranges in windows of text, or paths and cache where tokens before are in the caches of layers. */
typedef struct text {
    nn_value ids, positions;
    nn_value ranges; /* of windows */
    nn_value paths;  /* of tokens in the caches */
    int cache;       /* symbol of their rows */
} text;

/* Normed and rotated, if the model does either. */
static nn_value queries_and_keys(nn_graph *g, const gpt_config *c, const text *t, nn_value qkv) {
    const int64_t size = c->d / c->heads;
    const bool rotary = c->positions == GPT_ROTARY;
    if (!c->qk_norm && !rotary) return qkv;
    const nn_value q_gain = c->qk_norm ? vector(g, "q_norm.weight", size, NN_ONES) : -1;
    const nn_value k_gain = c->qk_norm ? vector(g, "k_norm.weight", size, NN_ONES) : -1;
    return nn_query_key(g, qkv, rotary ? t->positions : -1, q_gain, k_gain, c->heads, c->kv_heads,
                        rotary ? c->rotary_base : 0, 1e-5);
}

/* Attention of new tokens to a layer's cached tokens and to themselves. */
static nn_value cached_attention(nn_graph *g, const gpt_config *c, const text *t, int layer, nn_value qkv) {
    char name[32];
    snprintf(name, sizeof name, "cache.%d", layer);
    const nn_value cache = nn_state(g, name, NN_F32, t->cache, 2 * (int64_t)c->d / c->heads * c->kv_heads);
    return nn_path_attention(g, qkv, cache, t->paths, t->positions, c->heads, c->kv_heads);
}

static nn_value attention(nn_graph *g, const gpt_config *c, const text *t, int layer, nn_value x) {
    const int64_t columns = (int64_t)c->d / c->heads * (c->heads + 2 * c->kv_heads);
    nn_scope_push(g, "attn");
    nn_value y = linear(g, c, "c_attn", x, columns, usual());
    y = queries_and_keys(g, c, t, y);
    y = t->ranges < 0 ? cached_attention(g, c, t, layer, y)
                      : nn_grouped_attention(g, y, t->ranges, c->heads, c->kv_heads, true, c->dropout);
    y = linear(g, c, "c_proj", y, c->d, residual(c));
    nn_scope_pop(g);
    return y;
}

static nn_value feed_forward(nn_graph *g, const gpt_config *c, nn_value x) {
    const bool gated = c->activation == GPT_SWIGLU;
    nn_scope_push(g, "mlp");
    nn_value y = linear(g, c, "c_fc", x, gated ? 2 * (int64_t)c->ffn : c->ffn, usual());
    begin_cheap(g, c);
    y = gated ? nn_swiglu(g, y) : nn_gelu(g, y);
    end_cheap(g, c);
    y = linear(g, c, "c_proj", y, c->d, residual(c));
    nn_scope_pop(g);
    return y;
}

static nn_value embed(nn_graph *g, const gpt_config *c, const text *t) {
    nn_value x = nn_embedding(g, t->ids, -1, words(g, c), 1);
    if (c->positions == GPT_LEARNED) {
        const nn_value table = matrix(g, "wpe.weight", c->context, c->d, normal(0.01));
        x = nn_add(g, x, nn_embedding(g, t->positions, -1, table, 1), 0);
    }
    return c->dropout > 0 ? nn_dropout(g, x, c->dropout) : x;
}

/* Embeddings, blocks and the last norm; returns the output layer's input. */
static nn_value decoder(nn_graph *g, const gpt_config *c, const text *t) {
    nn_value x = embed(g, c, t);
    for (int i = 0; i < c->layers; i++) {
        nn_scope_push(g, "h.%d", i);
        nn_recompute(g, c->recompute == GPT_RECOMPUTE_BLOCKS);
        x = nn_add(g, x, attention(g, c, t, i, norm(g, c, "ln_1", x)), c->dropout);
        const nn_value branch = feed_forward(g, c, norm(g, c, "ln_2", x));
        nn_recompute(g, false);
        x = nn_add(g, x, branch, c->dropout);
        nn_scope_pop(g);
    }
    return norm(g, c, "ln_f", x);
}

/* ---- graphs ---- */

static text inputs(nn_graph *g, int64_t tokens, int64_t windows, gpt_symbols *s) {
    s->tokens = nn_symbol(g, "tokens", tokens);
    s->windows = nn_symbol(g, "windows", windows);
    return (text){.ids = nn_input(g, "ids", NN_I32, s->tokens, 0),
                  .positions = nn_input(g, "positions", NN_I32, s->tokens, 0),
                  .ranges = nn_input(g, "ranges", NN_I32, s->windows, 2)};
}

nn_value gpt_training(nn_graph *g, const gpt_config *c, int64_t tokens, int64_t windows, gpt_symbols *symbols) {
    const text t = inputs(g, tokens, windows, symbols);
    const nn_value targets = nn_input(g, "targets", NN_I32, symbols->tokens, 0);
    nn_pad(g, targets, -1);
    const nn_value x = decoder(g, c, &t);
    const nn_value loss = nn_linear_cross_entropy(g, x, words(g, c), -1, targets, 0, c->z_loss);
    nn_output(g, "loss", loss);
    return loss;
}

void gpt_step(nn_graph *g, const gpt_config *c, int64_t tokens, bool predicts, int *rows) {
    *rows = nn_symbol(g, "tokens", tokens);
    const text t = {.ids = nn_input(g, "ids", NN_I32, *rows, 0),
                    .positions = nn_input(g, "positions", NN_I32, *rows, 0),
                    .ranges = -1,
                    .paths = nn_input(g, "paths", NN_I32, *rows, c->context),
                    .cache = nn_symbol(g, "cache", c->context)};
    const nn_value x = decoder(g, c, &t);
    if (!predicts) nn_keep(g, "read", x);
    else nn_output(g, "scores", nn_log_softmax(g, nn_linear(g, x, words(g, c), -1, NN_LINEAR)));
}
