/* The parts of `adamod bench train`: the batches, shapes that need no data, the file that carries model and batches
 * elsewhere, the matrix products alone, PyTorch, the race on a device, and what is printed.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_BENCH_TRAIN_H
#define CLI_BENCH_TRAIN_H

#include "cli/cli.h"
#include "nn/profile.h"
#include "train/task_bench.h"

#define BENCH_TRAIN "bench train"

enum { BENCH_BATCHES = 10, BENCH_MOST_STEPS = 10000 };

/* ---- batches (bench_train_batches.c) ---- */

/* What a task fed to a plan: for each input of the graph its rows and numbers. */
typedef struct bench_batch {
    int n_inputs;
    nn_profile_input *inputs;
    int64_t *rows;
    void **data;
    task_batch counts;
} bench_batch;

/* The task's next one. False: out of memory; free it in any case. */
bool bench_batch_take(bench_batch *b, experiment *s);
void bench_batch_feed(const bench_batch *b, nn_plan *plan);
/* Of a symbol of the graph; -1: no input has it. */
int64_t bench_batch_rows(const bench_batch *b, int symbol);
void bench_batch_free(bench_batch *b);

/* ---- shapes that need no data (bench_train_shape.c) ---- */

/* NULL: there is none of that name. */
const task_shape *bench_train_find_shape(const char *name);
/* "small, base or big" */
const char *bench_train_shape_names(char *out, size_t size);
/* Makes data for it in a new folder, whose name is left in folder, and names the files in the recipe. Call
 * bench_train_drop_data once they have been read; it may be called in any case. */
int bench_train_make_data(const task_shape *shape, recipe *r, char *folder, size_t folder_size);
void bench_train_drop_data(const char *folder);

/* ---- the file (bench_train_file.c) ---- */

/* A safetensors file with every parameter by its name, its gradient as "gradient/NAME", the inputs of batch i as
 * "batch/I/NAME", and the task's settings, device and precision as JSON values in the metadata. */
int bench_train_write(const char *path, const experiment *s, const bench_batch *batches, int n);

/* ---- the matrix products alone (bench_products.c) ---- */

typedef struct bench_products bench_products;

/* For batches no larger than these. NULL: no memory. */
bench_products *bench_products_create(const experiment *s, const bench_batch *batches, int n);
void bench_products_free(bench_products *p);
/* Operations of the products of a step on a batch, those of convolutions by their definition among them, forward and twice
 * as many backward; NULL: on all rows of the capacity. */
double bench_products_flops(const experiment *s, const bench_batch *b);
/* Seconds that they take, one after another on the experiment's threads, with nothing else. */
double bench_products_run(const bench_products *p, const bench_batch *b);

/* ---- PyTorch (bench_train_peer.c) ---- */

typedef struct bench_train_peer {
    void *process;                   /* NULL: there is none */
    char version[64], optimizer[16]; /* fused, foreach */
    char attention[16], layout[32];  /* fused, bmm; channels-last, contiguous; "": it has none */
    double loss;                     /* of the first batch with nothing random, a target */
    double rows;                     /* of all batches, with their padding; 0: it has none */
    double base, peak;               /* resident set after importing torch, and the most since; bytes */
    double convolutions;             /* shortest seconds of those of a step alone; 0: it has none */
    /* on a device; base and peak are then 0 and the most that tensors took */
    char how[256];   /* "eager"; "compiled, one CUDA graph" */
    double reserved; /* bytes, at most */
} bench_train_peer;

/* Starts a Python with torch and the task's model, and gives it the file; process stays NULL where
 * there is none. device: the file says that it is to be used, so that nothing is tried with threads. */
void bench_train_peer_start(bench_train_peer *p, const task *t, const char *python, int threads, bool device,
                            const char *file);
/* Tells the user if it is not the first Python that was tried, or its torch is old. */
void bench_train_peer_warn(const bench_train_peer *p);
/* On a device: from now on a step is one CUDA graph of a compiled model, or of one that is not if compiling fails or
 * takes too long; how says which. 0, or the command's exit status. */
int bench_train_peer_compile(bench_train_peer *p);
/* Steps on batches first, first + 1, ...; the seconds of each. 0, or the command's exit status. */
int bench_train_peer_run(bench_train_peer *p, int first, int steps, double *seconds);
/* The same without waiting in between; the seconds of all. */
int bench_train_peer_burst(bench_train_peer *p, int first, int steps, double *seconds);
/* Asks for base and peak. */
int bench_train_peer_memory(bench_train_peer *p);
/* On the host: runs the convolutions of a step alone. */
int bench_train_peer_convolutions(bench_train_peer *p);
const char *bench_train_peer_python(const bench_train_peer *p);
/* What was set in its environment to make it faster; "": nothing. */
const char *bench_train_peer_settings(const bench_train_peer *p);
void bench_train_peer_stop(bench_train_peer *p);

/* ---- the result (bench_train_print.c) ---- */

typedef struct bench_spread {
    double low, median, high; /* quartiles */
} bench_spread;

/* Kernels of one op and direction on one shape. */
typedef struct bench_kernel {
    nn_profile_step step; /* seconds: of all calls in a step */
    int calls;
} bench_kernel;

/* All kernels of an op. */
typedef struct bench_class {
    const char *op;
    double seconds[2]; /* forward and backward */
} bench_class;

typedef struct bench_train_device {
    char name[192];       /* "" : there is none */
    int burst;            /* steps between two looks at the clock */
    double peak;          /* operations in a second of one large product */
    double flops;         /* of a step's products, at the rows that the device runs */
    bench_class *classes; /* one for each op, as they first ran */
    int n_classes;
    double optimizer;      /* seconds of its step alone */
    bench_kernel *kernels; /* those that take the most time first */
    int n_kernels;
    double used; /* bytes, all of parameters, gradients, values, workspaces and states */
    bench_train_peer graph;
    bench_spread graph_step;
} bench_train_device;

typedef struct bench_train_result {
    const experiment *s;
    const char *recipe;
    const task_shape *shape; /* NULL: the recipe is the user's */
    bool verbose;
    bench_train_device device;
    int threads, steps;                              /* steps counted of each contestant */
    double samples, items, targets;                  /* of a step, the mean of those counted */
    double rows;                                     /* items of all batches */
    bench_spread step, forward, backward, optimizer; /* seconds */
    double flops;                                    /* of a step's matrix products, mean */
    bench_spread products;                           /* seconds, alone */
    nn_memory memory;
    size_t states;
    double base, peak; /* resident set when the program began, and the most while it trained */
    double check;      /* loss of the first batch with nothing random, a target */
    double *losses;    /* of the first n_losses steps, with dropout */
    int n_losses;
    bench_train_peer peer;
    bench_spread peer_step;
    char no_torch[512]; /* why there is none */
} bench_train_result;

/* Whether only some of the items are targets, as those of a translation: then both are counted. */
bool bench_train_has_source(const bench_train_result *r);
double bench_train_padding(const bench_train_result *r);
double bench_train_difference(const bench_train_result *r, const bench_train_peer *p);
void bench_train_print(const bench_train_result *r);
/* bench_train_json.c */
int bench_train_print_json(const bench_train_result *r, const char *path);

/* ---- the race (bench_train.c; on a device bench_train_device.c) ---- */

typedef struct bench_request {
    const char *recipe, *python, *json, *dump;
    const task_shape *shape;                 /* in place of a recipe */
    int64_t threads, steps, seconds, losses; /* threads -1: the recipe's; steps 0: as many as fit */
    bool no_torch, verbose;
} bench_request;

typedef struct bench {
    bench_request ask;
    experiment s;
    bench_batch batches[BENCH_BATCHES];
    int64_t steps_done; /* for the random numbers of dropout */
    bench_products *products;
    double *samples[6]; /* of each step, or each burst of steps: */
    bench_train_result result;
} bench;
enum { BENCH_TOTAL, BENCH_FORWARD, BENCH_BACKWARD, BENCH_OPTIMIZER, BENCH_PRODUCTS, BENCH_TORCH, BENCH_SAMPLES };
/* The same arrays on a device, where a step has no parts. */
enum { BENCH_TORCH_GRAPH = BENCH_FORWARD };

bench_spread bench_train_spread(double *x, int n);
/* Tells the user that contestants are measured now: as the request says, and at most so many steps. */
void bench_train_measuring(const bench *b, int64_t most);
/* Takes steps on each batch, races torch, times every kernel; fills the result. 0, or the exit status. */
int bench_train_on_device(bench *b);

#endif
