/* Parameters and graphs: everything about a computation that does not depend on how it is run. */
#include "graph.h"
#include "place.h"
#include "random.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const nn_op *const nn_ops[NN_OP_COUNT] = {
#define NN_OP_ENTRY(name) &nn_op_##name,
    NN_OPS(NN_OP_ENTRY)
#undef NN_OP_ENTRY
};

/* ---- parameters ---- */

enum {
    PARAM_ALIGN = 128
}; /* numbers: a quarter of a kibibyte as bf16, which the fastest products on a device ask for */

nn_params *nn_params_create(void) { return calloc(1, sizeof(nn_params)); }

void nn_params_free(nn_params *p) {
    if (!p) return;
    for (int i = 0; i < p->n; i++) free(p->list[i].name);
    free(p->list);
    free(p->data);
    free(p->grad);
    nn_place_free(p->place);
    free(p);
}

nn_param *nn_params_find(const nn_params *p, const char *name) {
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->list[i].name, name) == 0) return &p->list[i];
    }
    return NULL;
}

int64_t nn_params_total(const nn_params *p) {
    int64_t total = 0;
    for (int i = 0; i < p->n; i++) total += p->list[i].count;
    return total;
}

static uint64_t nn_name_hash(const char *name) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static void nn_fill(const nn_param *p, float *data, uint64_t seed) {
    const uint64_t key = nn_key(seed, 0, nn_name_hash(p->name));
    double bound = p->init.scale;
    if (p->init.kind == NN_XAVIER) bound = sqrt(6.0 / (double)(p->shape[0] + p->count / p->shape[0]));
    for (int64_t i = 0; i < p->count; i++) {
        switch (p->init.kind) {
            case NN_ZEROS: data[i] = 0; break;
            case NN_ONES: data[i] = 1; break;
            case NN_NORMAL: data[i] = (float)(p->init.scale * nn_normal(key, (uint64_t)i)); break;
            case NN_UNIFORM:
            case NN_XAVIER: data[i] = (float)((2 * nn_uniform(key, (uint64_t)i) - 1) * bound); break;
        }
    }
}

adamod_status nn_params_allocate(nn_params *p, uint64_t seed) {
    const size_t bytes = ((size_t)p->count + PARAM_ALIGN) * sizeof(float);
    void *data = NULL, *grad = NULL;
    if (p->data) return ADAMOD_ERROR_ORDER;
    if (posix_memalign(&data, 256, bytes) || posix_memalign(&grad, 256, bytes)) {
        free(data);
        return ADAMOD_ERROR_MEMORY;
    }
    p->data = memset(data, 0, bytes);
    p->grad = memset(grad, 0, bytes);
    for (int i = 0; i < p->n; i++) nn_fill(&p->list[i], p->data + p->list[i].offset, seed);
    return ADAMOD_OK;
}

static nn_param *nn_params_add(nn_params *p, const char *name, int ndim, const int64_t *shape, nn_init init) {
    nn_param *grown = realloc(p->list, ((size_t)p->n + 1) * sizeof *grown);
    if (!grown) return NULL;
    p->list = grown;
    nn_param *x = &grown[p->n];
    *x = (nn_param){.name = strdup(name), .ndim = ndim, .count = 1, .offset = p->count, .init = init};
    if (!x->name) return NULL;
    for (int d = 0; d < ndim; d++) {
        x->shape[d] = shape[d];
        x->count *= shape[d];
    }
    p->n++;
    p->count += (x->count + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    return x;
}

/* ---- graphs ---- */

nn_value nn_mistake(nn_graph *g, const char *format, ...) {
    if (!*g->error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(g->error, sizeof g->error, format, arguments);
        va_end(arguments);
    }
    return -1;
}

nn_graph *nn_graph_create(nn_params *params) {
    nn_graph *g = calloc(1, sizeof *g);
    if (g) g->params = params;
    return g;
}

void nn_graph_free(nn_graph *g) {
    if (!g) return;
    for (int i = 0; i < g->n_values; i++) free(g->values[i].name);
    for (int i = 0; i < g->n_symbols; i++) free(g->symbols[i].name);
    free(g->values);
    free(g->nodes);
    free(g);
}

int nn_symbol(nn_graph *g, const char *name, int64_t capacity) {
    if (g->n_symbols == NN_MAX_SYMBOLS || capacity < 1)
        return nn_mistake(g, "symbol %s: capacity %lld, or too many", name, (long long)capacity);
    g->symbols[g->n_symbols].name = strdup(name);
    g->symbols[g->n_symbols].capacity = capacity;
    return ++g->n_symbols;
}

int64_t nn_capacity(const nn_graph *g, int symbol) {
    return symbol >= 1 && symbol <= g->n_symbols ? g->symbols[symbol - 1].capacity : 0;
}

/* Grows an array by doubling; false without memory. */
static bool nn_grow(void **array, int n, int *capacity, size_t size) {
    if (n < *capacity) return true;
    const int more = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*array, (size_t)more * size);
    if (!grown) return false;
    *array = grown;
    *capacity = more;
    return true;
}

/* Takes over info's name. */
static nn_value nn_add_value(nn_graph *g, nn_value_info info) {
    if (!*g->error && !nn_grow((void **)&g->values, g->n_values, &g->values_capacity, sizeof *g->values)) {
        nn_mistake(g, "no memory");
    }
    if (*g->error) {
        free(info.name);
        return -1;
    }
    g->values[g->n_values] = info;
    return g->n_values++;
}

nn_value nn_input(nn_graph *g, const char *name, nn_type type, int rows, int64_t cols) {
    nn_shape shape = {.rows = rows, .ndim = cols ? 2 : 1, .dim = {nn_capacity(g, rows), cols}};
    if (!shape.dim[0]) return nn_mistake(g, "input %s: rows are not a symbol", name);
    return nn_add_value(g,
                        (nn_value_info){.source = NN_FROM_INPUT, .type = type, .shape = shape, .name = strdup(name)});
}

nn_value nn_state(nn_graph *g, const char *name, nn_type type, int rows, int64_t cols) {
    const nn_value v = nn_input(g, name, type, rows, cols);
    if (v >= 0) g->values[v].state = true;
    return v;
}

void nn_pad(nn_graph *g, nn_value input, int32_t value) {
    if (input >= 0 && !*g->error) g->values[input].pad = value;
}

void nn_scope_push(nn_graph *g, const char *format, ...) {
    const size_t used = strlen(g->scope);
    const int most = (int)(sizeof g->scope_length / sizeof *g->scope_length);
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(g->scope + used, sizeof g->scope - used, format, arguments);
    va_end(arguments);
    if (n < 0 || used + (size_t)n + 2 > sizeof g->scope || g->scope_depth == most) {
        nn_mistake(g, "scope '%s' is too long or too deep", g->scope);
        g->scope[used] = '\0';
        return;
    }
    strcat(g->scope, ".");
    g->scope_length[g->scope_depth++] = used;
}

void nn_scope_pop(nn_graph *g) {
    if (g->scope_depth > 0) g->scope[g->scope_length[--g->scope_depth]] = '\0';
}

nn_value nn_parameter(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init) {
    char full[320];
    if (*g->error) return -1;
    snprintf(full, sizeof full, "%s%s", g->scope, name);
    nn_param *p = nn_params_find(g->params, full);
    if (p && (p->ndim != ndim || memcmp(p->shape, shape, (size_t)ndim * sizeof *shape) != 0)) {
        return nn_mistake(g, "parameter %s exists with another shape", full);
    }
    if (!p && g->params->data) return nn_mistake(g, "parameter %s does not exist in the model", full);
    if (!p && !(p = nn_params_add(g->params, full, ndim, shape, init))) return nn_mistake(g, "no memory");
    nn_value_info info = {
        .source = NN_FROM_PARAM, .shape = {.ndim = ndim}, .index = (int)(p - g->params->list), .has_grad = true};
    memcpy(info.shape.dim, shape, (size_t)ndim * sizeof *shape);
    /* Used twice, a parameter is one value, so that its gradients add up. */
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].source == NN_FROM_PARAM && g->values[v].index == info.index) return v;
    }
    return nn_add_value(g, info);
}

void nn_shape_text(const nn_graph *g, const nn_shape *shape, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < shape->ndim; d++) {
        if (d == 0 && shape->rows) {
            used += (size_t)snprintf(out + used, size - used, "%s", g->symbols[shape->rows - 1].name);
        } else {
            used += (size_t)snprintf(out + used, size - used, "%s%lld", d ? ", " : "", (long long)shape->dim[d]);
        }
        if (used >= size) return;
    }
    snprintf(out + used, size - used, "]");
}

/* NULL, or which input is not of the type that the op reads. */
static const char *nn_wrong_type(const nn_graph *g, const nn_node *node, char *message, size_t size) {
    static const char *const names[] = {[NN_F32] = "f32", [NN_I32] = "i32"};
    const nn_op *op = nn_ops[node->op];
    for (int i = 0; i < node->n_inputs; i++) {
        const nn_type wanted = op->indices >> i & 1 ? NN_I32 : NN_F32;
        if (node->input[i] < 0 || g->values[node->input[i]].type == wanted) continue;
        snprintf(message, size, "%s is %s, expected %s", op->inputs[i], names[g->values[node->input[i]].type],
                 names[wanted]);
        return message;
    }
    return NULL;
}

nn_value nn_add_node(nn_graph *g, nn_op_id op, int n, const nn_value *inputs, const nn_attributes *attributes) {
    if (*g->error) return -1;
    nn_node node = {.op = op, .n_inputs = n, .attributes = *attributes};
    nn_shape shapes[NN_MAX_INPUTS] = {{0}}, output = {0};
    bool has_grad = false;
    for (int i = 0; i < n; i++) {
        node.input[i] = inputs[i] < 0 ? -1 : inputs[i];
        if (inputs[i] < 0) continue;
        shapes[i] = g->values[inputs[i]].shape;
        has_grad = has_grad || g->values[inputs[i]].has_grad;
    }
    char message[160] = "";
    const char *wrong = nn_wrong_type(g, &node, message, sizeof message);
    if (!wrong) wrong = nn_ops[op]->shape(&node, shapes, &output, message, sizeof message);
    if (wrong) return nn_mistake(g, "%s%s: %s", g->scope, nn_ops[op]->name, wrong);
    if (!nn_grow((void **)&g->nodes, g->n_nodes, &g->nodes_capacity, sizeof *g->nodes))
        return nn_mistake(g, "no memory");
    node.output = nn_add_value(
        g, (nn_value_info){.source = NN_FROM_NODE, .shape = output, .index = g->n_nodes, .has_grad = has_grad});
    if (node.output >= 0) g->nodes[g->n_nodes++] = node;
    return node.output;
}

static bool nn_name(nn_graph *g, const char *name, nn_value v) {
    if (v < 0 || *g->error) return false;
    free(g->values[v].name);
    g->values[v].name = strdup(name);
    if (!g->values[v].name) nn_mistake(g, "no memory");
    return !*g->error;
}

void nn_output(nn_graph *g, const char *name, nn_value v) {
    if (nn_name(g, name, v)) g->values[v].output = true;
}

void nn_keep(nn_graph *g, const char *name, nn_value v) {
    if (nn_name(g, name, v)) g->values[v].kept = true;
}

nn_shape nn_shape_of(const nn_graph *g, nn_value v) {
    return v >= 0 && v < g->n_values ? g->values[v].shape : (nn_shape){0};
}

double nn_graph_flops(const nn_graph *g) {
    double sum = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const nn_node *node = &g->nodes[i];
        nn_shape shapes[NN_MAX_INPUTS] = {{0}};
        if (!nn_ops[node->op]->flops) continue;
        for (int k = 0; k < node->n_inputs; k++) shapes[k] = nn_shape_of(g, node->input[k]);
        sum += nn_ops[node->op]->flops(node, shapes);
    }
    return sum;
}

/* ---- ops by name ---- */

nn_value nn_linear(nn_graph *g, nn_value x, nn_value w, nn_value b, nn_activation activation) {
    return nn_add_node(g, NN_OP_linear, 3, (nn_value[]){x, w, b}, &(nn_attributes){.activation = activation});
}

nn_value nn_embedding(nn_graph *g, nn_value ids, nn_value positions, nn_value table, double scale) {
    return nn_add_node(g, NN_OP_embedding, 3, (nn_value[]){ids, positions, table}, &(nn_attributes){.scale = scale});
}

nn_value nn_dropout(nn_graph *g, nn_value x, double p) {
    return nn_add_node(g, NN_OP_dropout, 1, &x, &(nn_attributes){.dropout = p});
}

nn_value nn_add(nn_graph *g, nn_value x, nn_value branch, double dropout) {
    return nn_add_node(g, NN_OP_add, 2, (nn_value[]){x, branch}, &(nn_attributes){.dropout = dropout});
}

nn_value nn_add_norm(nn_graph *g, nn_value x, nn_value branch, double dropout, nn_value gamma, nn_value beta,
                     double eps) {
    return nn_add_node(g, NN_OP_add_norm, 4, (nn_value[]){x, branch, gamma, beta},
                       &(nn_attributes){.dropout = dropout, .eps = eps});
}

nn_value nn_attention(nn_graph *g, nn_value q, nn_value kv, nn_value q_ranges, nn_value k_ranges, int heads,
                      bool causal, double dropout) {
    return nn_add_node(g, NN_OP_attention, 4, (nn_value[]){q, kv, q_ranges, k_ranges},
                       &(nn_attributes){.heads = heads, .causal = causal, .dropout = dropout});
}

nn_value nn_cross_entropy(nn_graph *g, nn_value logits, nn_value targets, double smoothing) {
    return nn_add_node(g, NN_OP_cross_entropy, 2, (nn_value[]){logits, targets},
                       &(nn_attributes){.smoothing = smoothing});
}

nn_value nn_log_softmax(nn_graph *g, nn_value x) {
    return nn_add_node(g, NN_OP_log_softmax, 1, &x, &(nn_attributes){0});
}

nn_value nn_cache_write(nn_graph *g, nn_value cache, nn_value x, nn_value index) {
    return nn_add_node(g, NN_OP_cache_write, 3, (nn_value[]){cache, x, index}, &(nn_attributes){0});
}
