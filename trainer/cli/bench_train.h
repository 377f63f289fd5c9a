/* bench_train.h - the parts of `adamod bench train`: batches, shapes that need no data, the file with model and batches for
 * PyTorch, the matrix products alone, PyTorch, the race on a device, and the results. */
#pragma once

#include "cli/bench_python.h"
#include "cli/cli.h"
#include "nn/profile.h"
#include "train/task_bench.h"

#define BENCH_TRAIN "bench train"

enum { BENCH_BATCHES = 10, BENCH_MOST_STEPS = 10000, BENCH_MOST_SHAPES = 32 };

/* ---- batches (bench_train_batches.c) ---- */

/* A batch as a task fed it to a plan: rows and numbers of each input of the graph. */
typedef struct bench_batch {
    int n_inputs;
    nn_profile_input *inputs;
    int64_t *rows;
    void **data;
    task_batch counts;
} bench_batch;

/* Takes the task's next batch. Returns false if out of memory; free it in any case. */
bool bench_batch_take(bench_batch *b, experiment *s);
void bench_batch_feed(const bench_batch *b, nn_plan *plan);
/* Rows of a symbol of the graph; -1: no input has it. */
int64_t bench_batch_rows(const bench_batch *b, int symbol);
void bench_batch_free(bench_batch *b);

/* ---- shapes that need no data (bench_train_shape.c) ---- */

/* NULL: there is none of that name. */
const task_shape *bench_train_find_shape(const char *name);
/* "small, base or big" */
const char *bench_train_shape_names(char *out, size_t size);
/* Makes data for it in a new folder, whose name it stores in folder, and names the files in the recipe. Call
 * bench_train_drop_data once they have been read. */
int bench_train_make_data(const task_shape *shape, recipe *r, char *folder, size_t folder_size);
void bench_train_drop_data(const char *folder);

/* Shape i of all tasks, and the bench of its task; NULL: there are fewer. */
const task_shape *bench_train_shape_at(int i, const task_bench **of);

/* ---- the file (bench_train_file.c) ---- */

/* A safetensors file with every parameter by its name, its gradient as "gradient/NAME", the inputs of batch i as
 * "batch/I/NAME", and the task's settings, device and precision as JSON values in the metadata. */
int bench_train_write(const char *path, const experiment *s, const bench_batch *batches, int n);

/* ---- the matrix products alone (bench_products.c) ---- */

typedef struct bench_products bench_products;

/* Allocates the arrays of products, for batches no larger than these. NULL: out of memory. */
bench_products *bench_products_create(const experiment *s, const bench_batch *batches, int n);
void bench_products_free(bench_products *p);
/* Floating-point operations of a step's products on a batch, with convolutions by their definition: forward, and twice as
 * many backward. NULL: on all rows of the capacity. */
double bench_products_flops(const experiment *s, const bench_batch *b);
/* Seconds that they take alone, one after another on the experiment's threads. */
double bench_products_run(const bench_products *p, const bench_batch *b);

/* ---- PyTorch and llm.c (bench_train_peer.c) ---- */

typedef struct bench_train_peer {
    const char *name;                /* torch, llm.c */
    bench_python *process;           /* NULL: there is none */
    char version[64], optimizer[16]; /* fused, foreach */
    char attention[16], layout[32];  /* fused, bmm; channels-last, contiguous; "": it has none */
    double loss;                     /* per target, of the first batch with nothing random */
    double rows;                     /* of all batches, with padding; 0: not padded */
    double base, peak;               /* bytes of the resident set after importing torch, and the most since */
    double convolutions;             /* shortest seconds of a step's convolutions alone; 0: none */
    /* On a device base is 0, and peak the most that tensors took. */
    char how[256];   /* "eager"; "compiled, one CUDA graph"; llm.c: its program */
    double reserved; /* bytes, at most */
} bench_train_peer;

/* Starts a Python with torch and the task's model, which reads the file; process stays NULL if there is none. device: the
 * file names a device, so settings of threads are not tried. */
void bench_train_peer_start(bench_train_peer *p, const experiment *e, const char *python, int threads, bool device,
                            const char *file);
/* Starts a Python that builds llm.c of a folder and lets it train the file's model; process stays NULL if it cannot. Its
 * first answer is in version, how and loss. */
void bench_train_llmc_start(bench_train_peer *p, const char *python, int threads, const char *file, const char *folder);
/* The functions below return 0, or the command's exit status. */
/* Makes a step on a device one CUDA graph of the compiled model, or of the model itself if compiling fails or takes too
 * long; how says which. */
int bench_train_peer_compile(bench_train_peer *p);
/* Takes steps on batches first, first + 1, ...; stores the seconds of each. */
int bench_train_peer_run(bench_train_peer *p, int first, int steps, double *seconds);
/* Takes them without waiting in between; stores the seconds of all. */
int bench_train_peer_burst(bench_train_peer *p, int first, int steps, double *seconds);
/* Asks for base, peak and reserved. */
int bench_train_peer_memory(bench_train_peer *p);
/* Runs the convolutions of a step alone, on the host. */
int bench_train_peer_convolutions(bench_train_peer *p);

/* ---- the result (bench_train_print.c) ---- */

typedef struct bench_spread {
    double low, median, high; /* quartiles */
} bench_spread;

/* Kernels of one op, direction and shape. */
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
    bench_class *classes; /* one for each op, in the order of the first step */
    int n_classes;
    double optimizer;      /* seconds of its step alone */
    bench_kernel *kernels; /* those that take the most time first */
    int n_kernels;
    double used; /* bytes of parameters, gradients, values, workspaces and states */
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
    double check;      /* loss per target of the first batch with nothing random */
    double *losses;    /* of the first n_losses steps, with dropout */
    int n_losses;
    bench_train_peer peer, llmc;
    bench_spread peer_step, llmc_step;
    char no_torch[512], no_llmc[512]; /* why there is none; no_llmc "": it was not asked for */
} bench_train_result;

/* Whether only some items are targets, as in translation; then both are counted. */
bool bench_train_has_source(const bench_train_result *r);
double bench_train_padding(const bench_train_result *r);
double bench_train_difference(const bench_train_result *r, const bench_train_peer *p);
void bench_train_print(const bench_train_result *r);
/* The head of a table of shapes, with machine and PyTorch, and the row of a result. */
void bench_train_print_columns(const bench_train_result *r);
void bench_train_print_row(const bench_train_result *r);
/* bench_train_json.c */
int bench_train_print_json(const bench_train_result *r, const char *path);

/* ---- the race (bench_train.c; on a device bench_train_device.c) ---- */

typedef struct bench_request {
    const char *recipe, *python, *json, *dump, *llmc;
    const task_shape *shapes[BENCH_MOST_SHAPES]; /* in place of a recipe; of several, each is measured alone */
    int n_shapes;
    const task_shape *shape; /* the one to measure; NULL: the recipe */
    cli_changes changes;
    int64_t threads, steps, seconds, losses; /* threads -1: the recipe's; steps 0: as many as fit */
    bool no_torch, verbose, all;
    bool row, head; /* print a row of a table of shapes in place of the whole result; the table's head before it */
} bench_request;

typedef struct bench {
    bench_request ask;
    experiment s;
    bench_batch batches[BENCH_BATCHES];
    int64_t steps_done; /* for the random numbers of dropout */
    bench_products *products;
    double *samples[7]; /* of each step, or each burst of steps: */
    bench_train_result result;
} bench;
enum {
    BENCH_TOTAL,
    BENCH_FORWARD,
    BENCH_BACKWARD,
    BENCH_OPTIMIZER,
    BENCH_PRODUCTS,
    BENCH_TORCH,
    BENCH_LLMC,
    BENCH_SAMPLES
};
/* On a device a step has no parts, so its array is free. */
enum { BENCH_TORCH_GRAPH = BENCH_FORWARD };

/* Measures one recipe or shape and prints the result. 0, or the exit status. Call it once in a process. */
int bench_train_one(const bench_request *ask);
/* Measures each shape in a process of its own, and prints a table (bench_train_table.c). */
int bench_train_table(const bench_request *ask);

bench_spread bench_train_spread(double *x, int n);
/* Tells the user that contestants are measured now, as the request says, in at most `most` steps. */
void bench_train_measuring(const bench *b, int64_t most);
/* Takes steps on each batch, races torch, times every kernel; fills the result. 0, or the exit status. */
int bench_train_on_device(bench *b);
