/* task_bench.h - optional parts of a task for `adamod bench train`. Batches are those that task.next wrote to the plan. */
#pragma once

#include "train/task.h"

enum { TASK_MOST_SETTINGS = 24 };

/* A model and a batch size that need no data of the user, and goals on a GPU. */
typedef struct task_shape {
    const char *name;   /* value of --shape, unique; NULL ends a list */
    const char *recipe; /* YAML, without the files that make writes */
    int vocabulary;     /* words of either side, or classes */
    int samples;        /* per batch */
    double seconds;     /* per step, at most; 0: no goal */
    double speedup;     /* over compiled PyTorch, at least; 0: no goal */
} task_shape;

/* A number for the model in PyTorch that shapes of parameters do not tell. */
typedef struct task_setting {
    const char *key;
    double value;
} task_setting;

/* An f32 array for the model in PyTorch. */
typedef struct task_array {
    const char *name;
    int ndim;
    int64_t shape[NN_MAX_DIMS];
    float *data; /* the caller frees it; NULL: no memory */
} task_array;

struct task_bench {
    const char *peer;         /* models in PyTorch, unless they have their own: bench/torch_PEER.py; NULL: none */
    const task_shape *shapes; /* NULL: none */
    double share, speedup; /* goals on a CPU: share of the matrix library's speed, speedup over PyTorch; 0: no goal */
    /* Writes random data for at least `batches` batches into an empty folder and names the files in the recipe. NULL:
     * shapes need no files. */
    int (*make)(const task_shape *shape, int batches, const char *folder, recipe *r);
    /* Builds the graph of a training step without randomness, whose loss must equal PyTorch's. NULL: task.build, outside
     * training. */
    nn_value (*check)(experiment *e, nn_graph *g);
    /* Numbers for the peer, at most TASK_MOST_SETTINGS; returns how many. */
    int (*settings)(const experiment *e, task_setting *out);
    /* An array for the peer besides the inputs of the plan: the pictures of places. May be NULL. */
    task_array (*array)(const experiment *e, nn_plan *plan);
    /* Describes the model: "6 layers, d 512". */
    void (*describe)(const experiment *e, char *out, size_t size);
};
