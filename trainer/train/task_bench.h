/* task_bench.h - what `adamod bench train` asks of a task beyond what the loop does: all of it may be left out.
 *
 * Batches need nothing: a bench keeps what task.next wrote to the inputs of the plan. */
#ifndef ADAMOD_TASK_BENCH_H
#define ADAMOD_TASK_BENCH_H

#include "train/task.h"

enum { TASK_MOST_SETTINGS = 24 };

/* A model and a batch size that need no data of the user's, and what is to be reached on a GPU. */
typedef struct task_shape {
    const char *name;   /* of --shape; no two tasks share one. NULL: the end of a list */
    const char *recipe; /* YAML, without the files that make writes */
    int vocabulary;     /* words of either side, or classes */
    int samples;        /* of a batch */
    double seconds;     /* of a step, at most; ... */
    double speedup;     /* ... over PyTorch, compiled, at least; 0: no goal */
} task_shape;

/* A number that the model in PyTorch needs to know, as the shapes of parameters do not tell it. */
typedef struct task_setting {
    const char *key;
    double value;
} task_setting;

/* What the inputs of a batch stand for, in f32. */
typedef struct task_array {
    const char *name;
    int ndim;
    int64_t shape[NN_MAX_DIMS];
    float *data; /* the caller frees it; NULL: no memory */
} task_array;

struct task_bench {
    const char *peer;         /* the model in PyTorch: src/cli/torch_PEER.py; NULL: there is none */
    const task_shape *shapes; /* NULL: none */
    double share, speedup;    /* to reach on a CPU: of the matrix library's own speed, and over PyTorch; 0: no goal */
    /* Writes made-up data for at least so many batches into an empty folder and names the files in the recipe. NULL: shapes need no files. */
    int (*make)(const task_shape *shape, int batches, const char *folder, recipe *r);
    /* The graph of a training step without anything random, whose loss must be PyTorch's. NULL: the task's own, outside
     * training. */
    nn_value (*check)(experiment *e, nn_graph *g);
    /* For the peer, how many; at most TASK_MOST_SETTINGS. */
    int (*settings)(const experiment *e, task_setting *out);
    /* For the peer, beside the inputs of a batch, which the plan was given: the pictures of places. NULL: nothing. */
    task_array (*array)(const experiment *e, nn_plan *plan);
    /* The model in a few words: "6 layers, d 512". */
    void (*describe)(const experiment *e, char *out, size_t size);
};

#endif
