#include "tasks/gpt_folder.h"

#include "core/error.h"
#include "core/safetensors.h"
#include "support/directory.h"
#include "support/json.h"
#include "support/json_input.h"
#include "support/text.h"
#include "tasks/language_reader.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const char weights_file[] = "model.safetensors", config_file[] = "config.json";

bool gpt_folder_is(const char *directory) {
    return access(path_join(directory, "recipe.yaml").text, F_OK) != 0 &&
           access(path_join(directory, config_file).text, F_OK) == 0;
}

/* ---- config.json ---- */

/* The keys of config.json that our model supports, with the defaults of transformers' GPT2Config. */
typedef struct hub_config {
    double n_layer, n_embd, n_head, n_positions, n_inner, layer_norm_epsilon, eos_token_id;
    char model_type[32], activation_function[32];
    bool tie_word_embeddings, scale_attn_weights, scale_attn_by_inverse_layer_idx;
} hub_config;

/* NAN: null, or a list of tokens. */
static double token_or_none(json_input *in) {
    char text[64], *end;
    json_input_scalar(in, text, sizeof text);
    const double x = strtod(text, &end);
    return *text && !*end ? x : (double)NAN;
}

static void read_pair(hub_config *c, const char *key, json_input *in) {
    const struct {
        const char *key;
        double *value;
    } numbers[] = {{"n_layer", &c->n_layer}, {"n_embd", &c->n_embd},
                   {"n_head", &c->n_head},   {"n_positions", &c->n_positions},
                   {"n_inner", &c->n_inner}, {"layer_norm_epsilon", &c->layer_norm_epsilon}};
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{"tie_word_embeddings", &c->tie_word_embeddings},
                 {"scale_attn_weights", &c->scale_attn_weights},
                 {"scale_attn_by_inverse_layer_idx", &c->scale_attn_by_inverse_layer_idx}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(key, numbers[i].key) == 0) {
            *numbers[i].value = json_input_number(in);
            return;
        }
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(key, flags[i].key) == 0) {
            *flags[i].value = json_input_flag(in);
            return;
        }
    }
    if (strcmp(key, "eos_token_id") == 0) c->eos_token_id = token_or_none(in);
    else if (strcmp(key, "model_type") == 0) json_input_text(in, c->model_type, sizeof c->model_type);
    else if (strcmp(key, "activation_function") == 0)
        json_input_text(in, c->activation_function, sizeof c->activation_function);
    else json_input_skip(in);
}

static int parse_config(const char *text, size_t n, const char *path, hub_config *c) {
    *c = (hub_config){12, 768, 12, 1024, NAN, 1e-5, 50256, "", "gelu_new", true, true, false};
    json_input in = json_input_of(text, n);
    for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
        char key[64];
        json_input_key(&in, key, sizeof key);
        read_pair(c, key, &in);
    }
    json_input_end(&in);
    if (!in.expected) return 0;
    return adamod__refuse("%s: byte %lld: expected %s", path, (long long)(in.at - in.begin) + 1, in.expected);
}

static int check_config(const char *path, const hub_config *c) {
    if (strcmp(c->model_type, "gpt2") != 0)
        return adamod__refuse("%s: model_type is '%s', expected gpt2", path, key_show(c->model_type).text);
    if (strcmp(c->activation_function, "gelu_new") != 0 && strcmp(c->activation_function, "gelu_pytorch_tanh") != 0)
        return adamod__refuse("%s: activation_function is '%s', expected gelu_new", path,
                              key_show(c->activation_function).text);
    if (!c->tie_word_embeddings || !c->scale_attn_weights || c->scale_attn_by_inverse_layer_idx)
        return adamod__refuse("%s: expected tie_word_embeddings and scale_attn_weights, not "
                              "scale_attn_by_inverse_layer_idx, as GPT-2 has them",
                              path);
    if (c->layer_norm_epsilon == 1e-5) return 0;
    return adamod__refuse("%s: layer_norm_epsilon is %g, expected 1e-5", path, c->layer_norm_epsilon);
}

static int read_config(const char *path, hub_config *c) {
    char *text = NULL;
    size_t n = 0;
    if (text_read(path, &text, &n)) return -1;
    const int failed = parse_config(text, n, path, c) || check_config(path, c);
    free(text);
    return failed ? -1 : 0;
}

static int set(recipe *r, const char *path, const char *field, const char *key, const char *value) {
    return recipe_set_flag(r, field, key, value) ? adamod__context("%s: ", path) : 0;
}

static int set_number(recipe *r, const char *path, const char *field, const char *key, double x) {
    char value[32];
    return set(r, path, field, key, json_shortest(x, value));
}

/* The absolute path of a file's folder. Data are not looked for where the user happens to be. */
static void find_folder(const char *path, char *out, size_t size) {
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) : 0;
    if (*path != '/' && !getcwd(out, size)) *out = '\0';
    const size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%.*s", *path == '/' ? "" : "/", n, path);
}

static int make_recipe(const hub_config *c, const char *path, recipe *r) {
    char folder[RECIPE_PATH] = "";
    find_folder(path, folder, sizeof folder);
    if (set(r, path, "", "data.task", "language") || set(r, path, "", "data.set", "text") ||
        set(r, path, "", "data.tokens", "bytes") || set(r, path, "", "data.path", folder) ||
        set(r, path, "", "data.batch", "1") || set_number(r, path, "n_positions", "data.length", c->n_positions) ||
        set(r, path, "", "model.kind", "gpt") || set_number(r, path, "n_layer", "model.layers", c->n_layer) ||
        set_number(r, path, "n_embd", "model.d", c->n_embd) ||
        set_number(r, path, "n_head", "model.heads", c->n_head) ||
        set_number(r, path, "n_inner", "model.ffn", isnan(c->n_inner) ? 0 : c->n_inner) ||
        set_number(r, path, "n_positions", "model.context", c->n_positions) ||
        set_number(r, path, "eos_token_id", "generate.end", isnan(c->eos_token_id) ? -1 : c->eos_token_id))
        return -1;
    if (fmod(c->n_embd, c->n_head) == 0) return 0;
    return adamod__refuse("%s: n_head is %g, expected a divisor of n_embd, %g", path, c->n_head, c->n_embd);
}

int gpt_folder_parse(const char *text, size_t n, const char *path, recipe *r) {
    hub_config c;
    return parse_config(text, n, path, &c) || check_config(path, &c) ? -1 : make_recipe(&c, path, r);
}

int gpt_folder_recipe(const char *directory, recipe *r) {
    const path_text path = path_join(directory, config_file);
    char *text = NULL;
    size_t n = 0;
    if (text_read(path.text, &text, &n)) return -1;
    const int failed = gpt_folder_parse(text, n, path.text, r);
    free(text);
    return failed;
}

/* ---- weights ---- */

/* Whether GPT-2's program has this layer as a convolution: then its matrix is [in, out]. */
static bool is_transposed(const char *name) {
    return key_matches("*.c_attn.weight,*.c_proj.weight,*.c_fc.weight", name);
}

static const adamod__st_entry *find(const adamod__st_file *file, const char *name) {
    char longer[160];
    const adamod__st_entry *entry = adamod__st_find(file, name);
    snprintf(longer, sizeof longer, "transformer.%s", name);
    return entry ? entry : adamod__st_find(file, longer);
}

/* Ours has [3 d, d] there. */
static bool is_known(const adamod__st_file *file) {
    const adamod__st_entry *entry = find(file, "h.0.attn.c_attn.weight");
    return entry && entry->ndim == 2 && entry->shape[1] == 3 * entry->shape[0];
}

static int check_tensor(const char *path, const adamod__st_file *file, const nn_param *p) {
    const adamod__st_entry *entry = find(file, p->name);
    const bool turned = is_transposed(p->name);
    if (!entry) return adamod__refuse("%s: there is no %s", path, p->name);
    if (entry->dtype != ADAMOD__ST_F32 && entry->dtype != ADAMOD__ST_BF16 && entry->dtype != ADAMOD__ST_F16)
        return adamod__refuse("%s: %s is %s, expected F32, BF16 or F16", path, p->name,
                              adamod__st_dtype_name(entry->dtype));
    bool fits = entry->ndim == p->ndim;
    for (int i = 0; fits && i < p->ndim; i++) fits = entry->shape[i] == p->shape[turned ? p->ndim - 1 - i : i];
    if (fits) return 0;
    char there[64] = "", wanted[64] = "";
    for (int i = 0; i < entry->ndim && i < 4; i++)
        snprintf(there + strlen(there), sizeof there - strlen(there), "%s%lld", i ? ", " : "",
                 (long long)entry->shape[i]);
    for (int i = 0; i < p->ndim; i++)
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s%lld", i ? ", " : "",
                 (long long)p->shape[turned ? p->ndim - 1 - i : i]);
    return adamod__refuse("%s: %s is [%s], expected [%s] for the recipe's model and vocabulary", path, p->name, there,
                          wanted);
}

/* Whether a tensor is not needed: causal masks, which old versions saved, and the output layer, which is wte. */
static bool is_no_parameter(const char *name) {
    return key_matches("h.*.attn.bias,h.*.attn.masked_bias,lm_head.weight", name);
}

/* Refuses tensors that the model lacks: a model with fewer blocks than the file, for example, is another one. */
static int check_others(const char *path, const adamod__st_file *file, const nn_params *params, const char *skip) {
    static const char prefix[] = "transformer.";
    for (size_t i = 0; i < file->n_entries; i++) {
        const char *name = file->entries[i].name;
        if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
        int at = 0;
        while (at < params->n && strcmp(params->list[at].name, name) != 0) at++;
        if (at == params->n && !is_no_parameter(name) && !key_matches(skip, name))
            return adamod__refuse("%s: the recipe's model has no %s", path, key_show(name).text);
    }
    return 0;
}

/* A sign, 5 bits of exponent and 10 of the mantissa (IEEE 754, binary16). */
static float from_f16(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                                      : ldexpf((float)mantissa, -24);
    return bits >> 15 ? -size : size;
}

static float number_at(const void *data, adamod__st_dtype dtype, int64_t i) {
    float x;
    if (dtype == ADAMOD__ST_F32) return ((const float *)data)[i];
    const uint16_t half = ((const uint16_t *)data)[i];
    if (dtype == ADAMOD__ST_F16) return from_f16(half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int take_tensor(const adamod__st_file *file, nn_params *params, const nn_param *p, void *room) {
    const adamod__st_entry *entry = find(file, p->name);
    float *to = params->data + p->offset;
    if (adamod__st_read(file, entry, room)) return -1;
    const int64_t rows = p->shape[0], columns = p->count / rows;
    const bool turned = is_transposed(p->name);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++)
            to[i * columns + k] = number_at(room, entry->dtype, turned ? k * rows + i : i * columns + k);
    }
    return 0;
}

static int take_all(experiment *e, const char *path, const adamod__st_file *file) {
    nn_params *params = e->params;
    const char *skip = e->recipe.train.init_skip;
    int64_t most = 0;
    for (int i = 0; i < params->n; i++) {
        const nn_param *p = &params->list[i];
        if (!key_matches(skip, p->name) && check_tensor(path, file, p)) return -1;
        most = p->count > most ? p->count : most;
    }
    if (check_others(path, file, params, skip)) return -1;
    void *room = malloc((size_t)most * sizeof(float));
    int failed = room ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for its weights", path);
    for (int i = 0; i < params->n && !failed; i++) {
        if (!key_matches(skip, params->list[i].name)) failed = take_tensor(file, params, &params->list[i], room);
    }
    free(room);
    return failed || nn_params_store(params) ? -1 : 0;
}

/* Refuses models with another formula, whose weights can have the same shapes. */
static int check_beside(const experiment *e, const char *path) {
    char directory[RECIPE_PATH];
    const char *slash = strrchr(path, '/');
    hub_config c;
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    const path_text config = path_join(directory, config_file);
    if (access(config.text, F_OK) != 0) return 0;
    if (read_config(config.text, &c)) return -1;
    const int heads = language_gpt(e).heads;
    return c.n_head == heads
               ? 0
               : adamod__refuse("%s: n_head is %g, but the recipe's model.heads is %d", config.text, c.n_head, heads);
}

int gpt_folder_load(experiment *e, const char *path, bool *known) {
    enum { MOST_HEADER = 1 << 26 };
    adamod__st_file file;
    *known = false;
    if (!language_reader_of(&e->recipe)->gpt) return 0;
    if (adamod__st_open_within(path, MOST_HEADER, &file)) return -1;
    *known = is_known(&file);
    const int failed = *known && (check_beside(e, path) || take_all(e, path, &file)) ? -1 : 0;
    adamod__st_close(&file);
    return failed;
}

/* ---- saving ---- */

static int check_form(const char *directory, const gpt_config *c) {
    const char *key = c->norm != GPT_LAYER_NORM     ? "model.norm layer"
                      : c->positions != GPT_LEARNED ? "model.positions learned"
                      : c->activation != GPT_GELU   ? "model.activation gelu"
                      : c->qk_norm                  ? "model.qk_norm false"
                      : !c->biases                  ? "model.biases true"
                      : c->kv_heads != c->heads     ? "as many model.kv_heads as model.heads"
                                                    : NULL;
    return key ? adamod__refuse("%s: a model of GPT-2's form is expected: %s", directory, key) : 0;
}

static int save_config(const experiment *e, const gpt_config *c, const char *path) {
    const byte_bpe *bytes = language_of(e)->bytes;
    const int32_t end = bytes ? byte_bpe_end(bytes) : -1;
    json j = {.spaced = true};
    json_open(&j, '{');
    json_key(&j, "architectures");
    json_raw(&j, "[\"GPT2LMHeadModel\"]");
    json_pair(&j, "model_type", "gpt2");
    json_pair(&j, "activation_function", "gelu_new");
    json_pair_integer(&j, "n_layer", c->layers);
    json_pair_integer(&j, "n_embd", c->d);
    json_pair_integer(&j, "n_head", c->heads);
    json_pair_integer(&j, "n_inner", c->ffn);
    json_pair_integer(&j, "n_positions", c->context);
    json_pair_integer(&j, "n_ctx", c->context);
    json_pair_integer(&j, "vocab_size", c->words);
    json_pair_number(&j, "layer_norm_epsilon", 1e-5);
    json_pair_number(&j, "initializer_range", 0.02);
    json_pair_number(&j, "embd_pdrop", c->dropout);
    json_pair_number(&j, "attn_pdrop", c->dropout);
    json_pair_number(&j, "resid_pdrop", c->dropout);
    json_pair_boolean(&j, "tie_word_embeddings", true);
    json_pair_number(&j, "bos_token_id", end < 0 ? (double)NAN : end);
    json_pair_number(&j, "eos_token_id", end < 0 ? (double)NAN : end);
    json_close(&j, '}');
    json_end_line(&j);
    return json_save(&j, path);
}

/* Writes the parameter to `to` as the file has it: transposed, if it is one of those layers. */
static void turn(const nn_params *params, const nn_param *p, float *to) {
    const float *from = params->data + p->offset;
    const int64_t rows = p->shape[0], columns = p->count / rows;
    const bool turned = is_transposed(p->name);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) to[turned ? k * rows + i : i * columns + k] = from[i * columns + k];
    }
}

static int save_weights(const nn_params *params, const char *path) {
    adamod__st_tensor *tensors = calloc((size_t)params->n, sizeof *tensors);
    float *all = malloc((size_t)params->count * sizeof *all);
    int failed = tensors && all ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for the weights", path);
    for (int i = 0; i < params->n && !failed; i++) {
        const nn_param *p = &params->list[i];
        turn(params, p, all + p->offset);
        tensors[i] = (adamod__st_tensor){p->name, ADAMOD__ST_F32, p->ndim, {0}, all + p->offset};
        for (int k = 0; k < p->ndim; k++) tensors[i].shape[k] = p->shape[is_transposed(p->name) ? p->ndim - 1 - k : k];
    }
    if (!failed)
        failed = adamod__st_write(path, &(adamod__st_pair){"format", "pt"}, 1, tensors, (size_t)params->n) ? -1 : 0;
    free(tensors);
    free(all);
    return failed;
}

int gpt_folder_save(const experiment *e, const char *directory) {
    if (!language_reader_of(&e->recipe)->gpt)
        return adamod__refuse("%s: model.kind is %s, expected gpt", directory, e->recipe.model.kind);
    const gpt_config c = language_gpt(e);
    if (check_form(directory, &c) || nn_params_fetch(e->params)) return -1;
    const int error = directory_make(directory, NULL);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", directory, strerror(error));
    if (save_weights(e->params, path_join(directory, weights_file).text)) return -1;
    return save_config(e, &c, path_join(directory, config_file).text);
}
