/* Graphs: the parts of a computation that do not depend on how it is run. */
#include "core/error.h"
#include "support/text.h"
#include "support/array.h"
#include "nn/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool nn_same_shape(const nn_shape *a, const nn_shape *b) {
    return a->rows == b->rows && a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

/* Keeps the first mistake. Returns -1. */
__attribute__((format(printf, 2, 3))) static nn_value nn_mistake(nn_graph *g, const char *format, ...) {
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
    for (int i = 0; i < g->n_nodes; i++) free(g->nodes[i].attributes);
    free(g->values);
    free(g->nodes);
    free(g);
}

int nn_symbol(nn_graph *g, const char *name, int64_t capacity) {
    if (g->n_symbols == NN_MAX_SYMBOLS || capacity < 1)
        return capacity < 1 ? nn_mistake(g, "symbol %s: capacity %lld, expected at least 1", name, (long long)capacity)
                            : nn_mistake(g, "symbol %s: too many, expected at most %d", name, NN_MAX_SYMBOLS);
    g->symbols[g->n_symbols].name = strdup(name);
    g->symbols[g->n_symbols].capacity = capacity;
    return ++g->n_symbols;
}

int64_t nn_capacity(const nn_graph *g, int symbol) {
    return symbol >= 1 && symbol <= g->n_symbols ? g->symbols[symbol - 1].capacity : 0;
}

/* Takes over info's name. */
static nn_value nn_add_value(nn_graph *g, nn_value_info info) {
    if (!*g->error && !ARRAY_EXTEND(g->values, g->n_values)) {
        nn_mistake(g, "out of memory");
    }
    if (*g->error) {
        free(info.name);
        return -1;
    }
    g->values[g->n_values] = info;
    return g->n_values++;
}

/* No dimension is below 1, and the bytes can be counted. */
static bool nn_shape_fits(const nn_shape *shape) {
    int64_t numbers = 1;
    for (int d = 0; d < shape->ndim; d++) {
        if (shape->dim[d] < 1 || shape->dim[d] > INT64_MAX / 16 / numbers) return false;
        numbers *= shape->dim[d];
    }
    return true;
}

/* "[src, 512]" */
static void nn_shape_text(const nn_graph *g, const nn_shape *shape, char *out, size_t size) {
    snprintf(out, size, "[");
    for (int d = 0; d < shape->ndim; d++) {
        if (d == 0 && shape->rows) text_add(out, size, "%s", g->symbols[shape->rows - 1].name);
        else text_add(out, size, "%s%lld", d ? ", " : "", (long long)shape->dim[d]);
    }
    text_add(out, size, "]");
}

static nn_value nn_add_input(nn_graph *g, const char *name, nn_type type, nn_shape shape) {
    char text[128];
    if (*g->error) return -1;
    shape.dim[0] = nn_capacity(g, shape.rows);
    if (!shape.dim[0]) return nn_mistake(g, "input %s: rows are not a symbol", name);
    if (type == NN_U8) return nn_mistake(g, "input %s: u8 is for constants only", name);
    nn_shape_text(g, &shape, text, sizeof text);
    if (!nn_shape_fits(&shape)) return nn_mistake(g, "input %s: no array can have the shape %s", name, text);
    return nn_add_value(g,
                        (nn_value_info){.source = NN_FROM_INPUT, .type = type, .shape = shape, .name = strdup(name)});
}

nn_value nn_input(nn_graph *g, const char *name, nn_type type, int rows, int64_t cols) {
    return nn_add_input(g, name, type, (nn_shape){.rows = rows, .ndim = cols ? 2 : 1, .dim = {0, cols}});
}

nn_value nn_input_images(nn_graph *g, const char *name, nn_type type, int rows, int64_t height, int64_t width,
                         int64_t channels) {
    return nn_add_input(g, name, type, (nn_shape){.rows = rows, .ndim = 4, .dim = {0, height, width, channels}});
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
    const bool deep = g->scope_depth == most;
    if (deep || n < 0 || used + (size_t)n + 2 > sizeof g->scope) {
        if (deep) nn_mistake(g, "scope '%s' is nested too deep, expected at most %d levels", g->scope, most);
        else nn_mistake(g, "scope '%s' is too long, expected at most %zu bytes", g->scope, sizeof g->scope - 2);
        g->scope[used] = '\0';
        return;
    }
    strcat(g->scope, ".");
    g->scope_length[g->scope_depth++] = used;
}

void nn_scope_pop(nn_graph *g) {
    if (g->scope_depth > 0) g->scope[g->scope_length[--g->scope_depth]] = '\0';
}

nn_value nn_constant(nn_graph *g, const char *name, nn_type type, int ndim, const int64_t *shape, const void *data) {
    nn_value_info info = {.source = NN_FROM_CONSTANT, .type = type, .shape = {.ndim = ndim}, .constant = data};
    if (*g->error) return -1;
    for (int d = 0; d < ndim && d < NN_MAX_DIMS; d++) info.shape.dim[d] = shape[d];
    if (ndim < 1 || ndim > NN_MAX_DIMS || !nn_shape_fits(&info.shape))
        return nn_mistake(g, "constant %s: no array can have this shape", name);
    if (type != NN_I32 && type != NN_U8) return nn_mistake(g, "constant %s: expected i32 or u8", name);
    info.name = strdup(name);
    return info.name ? nn_add_value(g, info) : nn_mistake(g, "out of memory");
}

/* Finds or makes a parameter or persistent state below the scope, as a value. */
static nn_value nn_named(nn_graph *g, nn_source source, const nn_param *wanted) {
    nn_params *params = g->params;
    const bool state = source == NN_FROM_PERSISTENT;
    const char *what = state ? "persistent state" : "parameter";
    char full[320];
    if (*g->error) return -1;
    snprintf(full, sizeof full, "%s%s", g->scope, wanted->name);
    nn_param like = *wanted, *p = (state ? nn_params_find_state : nn_params_find)(params, full);
    like.name = full;
    nn_value_info info = {.source = source, .shape = {.ndim = like.ndim}, .has_grad = !state};
    memcpy(info.shape.dim, like.shape, sizeof like.shape);
    if (like.ndim > NN_MAX_DIMS || !nn_shape_fits(&info.shape))
        return nn_mistake(g, "%s %s: no array can have this shape", what, full);
    if (p && (p->ndim != like.ndim || memcmp(p->shape, like.shape, sizeof like.shape) != 0))
        return nn_mistake(g, "%s %s exists with another shape", what, full);
    if (!p && params->data) return nn_mistake(g, "%s %s does not exist in the model", what, full);
    if (!p) {
        p = state ? nn_params_add(&params->states, &params->n_states, &params->state_count, &like)
                  : nn_params_add(&params->list, &params->n, &params->count, &like);
    }
    if (!p) return nn_mistake(g, "out of memory");
    info.index = (int)(p - (state ? params->states : params->list));
    /* Used twice, it is one value, so that a parameter's gradients add up. */
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].source == source && g->values[v].index == info.index) return v;
    }
    return nn_add_value(g, info);
}

static nn_param nn_param_like(const char *name, int ndim, const int64_t *shape, nn_init init) {
    nn_param p = {.name = (char *)(uintptr_t)name, .ndim = ndim, .init = init};
    for (int d = 0; d < ndim && d < NN_MAX_DIMS; d++) p.shape[d] = shape[d];
    return p;
}

nn_value nn_parameter(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init) {
    const nn_param wanted = nn_param_like(name, ndim, shape, init);
    return nn_named(g, NN_FROM_PARAM, &wanted);
}

nn_value nn_persistent(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init) {
    const nn_param wanted = nn_param_like(name, ndim, shape, init);
    return nn_named(g, NN_FROM_PERSISTENT, &wanted);
}

nn_value nn_carried(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init) {
    nn_param wanted = nn_param_like(name, ndim, shape, init);
    wanted.carried = true;
    return nn_named(g, NN_FROM_PERSISTENT, &wanted);
}

/* Fails, naming the input, if one is not of the type that the op reads. */
static int nn_check_types(const nn_graph *g, const nn_node *node) {
    static const char *const names[] = {[NN_F32] = "f32", [NN_I32] = "i32", [NN_U8] = "u8"};
    const nn_op *op = node->op;
    for (int i = 0; i < node->n_inputs; i++) {
        const nn_type wanted = op->indices >> i & 1 ? NN_I32 : op->bytes >> i & 1 ? NN_U8 : NN_F32;
        if (node->input[i] < 0 || g->values[node->input[i]].type == wanted) continue;
        return adamod__refuse("%s is %s, expected %s", op->inputs[i], names[g->values[node->input[i]].type],
                              names[wanted]);
    }
    return 0;
}

nn_value nn_memory_of(const nn_graph *g, nn_value v) {
    const nn_value_info *info = &g->values[v];
    const nn_node *node = info->source == NN_FROM_NODE ? &g->nodes[info->index] : NULL;
    const int alias = node ? node->op->aliases[info->which] : 0;
    return alias ? nn_memory_of(g, node->input[alias - 1]) : v;
}

/* Fails, naming the input, if the op cannot write an output there. */
static int nn_check_aliases(const nn_graph *g, const nn_node *node, const nn_shape *outputs) {
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        const int k = node->op->aliases[i] - 1;
        if (k < 0 || !outputs[i].ndim) continue;
        const nn_value v = node->input[k] < 0 ? -1 : nn_memory_of(g, node->input[k]);
        const nn_source source = v < 0 ? NN_FROM_NODE : g->values[v].source;
        if (source == NN_FROM_INPUT || source == NN_FROM_PERSISTENT) continue;
        return adamod__refuse("%s is written, so it must be a state", node->op->inputs[k]);
    }
    return 0;
}

/* Adds a value for each output of a node; false without memory. */
static bool nn_add_outputs(nn_graph *g, nn_node *node, const nn_shape *outputs, bool has_grad) {
    for (int i = 0; i < NN_MAX_OUTPUTS; i++) {
        node->output[i] = -1;
        if (!outputs[i].ndim) continue;
        const bool constant = node->op->aliases[i] || (node->op->constant_outputs >> i & 1);
        const int alias = node->op->aliases[i];
        node->output[i] =
            nn_add_value(g, (nn_value_info){.source = NN_FROM_NODE,
                                            .type = alias ? g->values[node->input[alias - 1]].type : NN_F32,
                                            .shape = outputs[i],
                                            .index = g->n_nodes,
                                            .which = i,
                                            .has_grad = has_grad && !constant});
        if (node->output[i] < 0) return false;
    }
    return true;
}

/* Parameters learn what they are from the first op that says so. */
static void nn_tell_kinds(nn_graph *g, const nn_node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const nn_value_info *info = node->input[i] < 0 ? NULL : &g->values[node->input[i]];
        nn_param *p = info && info->source == NN_FROM_PARAM ? &g->params->list[info->index] : NULL;
        if (!p || p->kind != NN_WEIGHT) continue;
        if (node->op->biases >> i & 1) p->kind = NN_BIAS;
        if (node->op->norms >> i & 1) p->kind = NN_NORM;
    }
}

void nn_recompute(nn_graph *g, bool on) { g->recompute = on; }

/* Whether running an op twice leaves what running it once does. */
static bool nn_can_repeat(const nn_op *op) {
    bool can = !op->running && !op->joins;
    for (int k = 0; k < NN_MAX_OUTPUTS; k++) can = can && !op->aliases[k];
    return can;
}

nn_value nn_add_node(nn_graph *g, const nn_op *op, int n, const nn_value *inputs, const void *attributes) {
    if (*g->error) return -1;
    nn_node node = {.op = op, .n_inputs = n, .attributes = (void *)(uintptr_t)attributes};
    nn_shape shapes[NN_MAX_INPUTS] = {{0}}, outputs[NN_MAX_OUTPUTS] = {{0}};
    bool has_grad = false;
    for (int i = 0; i < n; i++) {
        node.input[i] = inputs[i] < 0 ? -1 : inputs[i];
        if (inputs[i] < 0) continue;
        shapes[i] = g->values[inputs[i]].shape;
        has_grad = has_grad || g->values[inputs[i]].has_grad;
    }
    if (nn_check_types(g, &node) || op->shape(&node, shapes, outputs) || nn_check_aliases(g, &node, outputs))
        return nn_mistake(g, "%s%s: %s", g->scope, op->name, adamod__last_message());
    if (!ARRAY_EXTEND(g->nodes, g->n_nodes)) return nn_mistake(g, "out of memory");
    void *kept = malloc(op->attributes_size + 1);
    if (!kept) return nn_mistake(g, "out of memory");
    node.attributes = memcpy(kept, attributes ? attributes : "", op->attributes_size);
    if (!nn_add_outputs(g, &node, outputs, has_grad)) {
        free(kept);
        return -1;
    }
    node.recompute = g->recompute && nn_can_repeat(op);
    g->nodes[g->n_nodes++] = node;
    nn_tell_kinds(g, &node);
    return node.output[0];
}

static bool nn_name(nn_graph *g, const char *name, nn_value v) {
    if (v < 0 || *g->error) return false;
    free(g->values[v].name);
    g->values[v].name = strdup(name);
    if (!g->values[v].name) nn_mistake(g, "out of memory");
    return !*g->error;
}

void nn_output(nn_graph *g, const char *name, nn_value v) {
    if (nn_name(g, name, v)) g->values[v].output = true;
}

void nn_keep(nn_graph *g, const char *name, nn_value v) {
    if (nn_name(g, name, v)) g->values[v].kept = true;
}

nn_value nn_named_value(const nn_graph *g, const char *name) {
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].name && strcmp(g->values[v].name, name) == 0) return v;
    }
    return -1;
}

nn_shape nn_shape_of(const nn_graph *g, nn_value v) {
    return v >= 0 && v < g->n_values ? g->values[v].shape : (nn_shape){0};
}

double nn_graph_flops(const nn_graph *g) {
    double sum = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const nn_node *node = &g->nodes[i];
        nn_shape shapes[NN_MAX_INPUTS] = {{0}};
        if (!node->op->flops) continue;
        for (int k = 0; k < node->n_inputs; k++) shapes[k] = nn_shape_of(g, node->input[k]);
        sum += node->op->flops(node, shapes);
    }
    return sum;
}
