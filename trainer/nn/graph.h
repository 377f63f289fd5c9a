/* The inside of a graph, for the plan. */
#pragma once

#include "nn/op.h"

typedef enum nn_source { NN_FROM_INPUT, NN_FROM_PARAM, NN_FROM_PERSISTENT, NN_FROM_CONSTANT, NN_FROM_NODE } nn_source;

typedef struct nn_value_info {
    nn_source source;
    nn_type type;
    nn_shape shape;
    int index;            /* of the node, the parameter or the persistent state */
    int which;            /* number among the node's outputs */
    char *name;           /* of an input, constant or output; NULL: none */
    bool output;          /* read after a run: nn_output */
    bool kept;            /* copied after a run: nn_keep */
    bool state;           /* an input that stays: nn_state */
    int32_t pad;          /* of an input */
    const void *constant; /* the caller's numbers */
    bool has_grad;        /* a parameter, or computed from one */
} nn_value_info;

struct nn_graph {
    nn_params *params;
    nn_value_info *values;
    int n_values;
    nn_node *nodes;
    int n_nodes;
    struct {
        char *name;
        int64_t capacity;
    } symbols[NN_MAX_SYMBOLS]; /* symbol s is number s - 1 */
    int n_symbols;
    char scope[256];         /* "encoder.0.self_qkv." */
    size_t scope_length[16]; /* before each push */
    int scope_depth;
    bool synced_norms;
    bool recompute;  /* see nn_recompute */
    char error[256]; /* the first mistake; empty: none */
};

/* Appends a copy of like to a list of n parameters with count numbers; NULL without memory. */
nn_param *nn_params_add(nn_param **list, int *n, int64_t *count, const nn_param *like);

/* The value that owns v's memory, after any number of aliases; v itself if it has its own. */
nn_value nn_memory_of(const nn_graph *g, nn_value v);
