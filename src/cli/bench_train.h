/* The parts of `adamod bench train`: the batches, the file that carries model and batches elsewhere, the matrix products
 * alone, PyTorch, and what is printed.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_BENCH_TRAIN_H
#define CLI_BENCH_TRAIN_H

#include "cli.h"
#include "experiment.h"

#define BENCH_TRAIN "bench train"

enum { BENCH_BATCHES = 10, BENCH_MOST_STEPS = 10000 };

/* ---- the file (bench_train_file.c) ---- */

/* A safetensors file with every parameter by its name, its gradient as "gradient/NAME", the arrays of batch i as
 * "batch/I/src_ids" and so on, and what of the configuration shapes do not tell as JSON values in the metadata. */
int bench_train_write(const char *path, const experiment *s, const batch *batches, int n, char *message, size_t size);

/* ---- the matrix products alone (bench_products.c) ---- */

typedef struct bench_products bench_products;

/* For batches no larger than these. NULL: no memory. */
bench_products *bench_products_create(const experiment *s, const batch *batches, int n);
void bench_products_free(bench_products *p);
/* Operations of the products of a step on this batch, forward and backward. */
double bench_products_flops(const bench_products *p, const batch *b);
/* Seconds that they take, one after another on the experiment's threads, with nothing else. */
double bench_products_run(const bench_products *p, const batch *b);

/* ---- PyTorch (bench_train_peer.c) ---- */

typedef struct bench_train_peer {
    void *process;                                  /* NULL: there is none */
    char version[64], optimizer[16], attention[16]; /* fused, foreach; fused, bmm */
    double loss;                                    /* of the first batch without dropout, a token */
    double rows;                                    /* of all batches, with their padding */
    double base, peak;                              /* resident set after importing torch, and the most since; bytes */
} bench_train_peer;

/* Starts a Python with torch and gives it the file; process stays NULL, with why in message, where there is none. */
void bench_train_peer_start(bench_train_peer *p, const char *python, int threads, const char *file, char *message,
                            size_t size);
/* Steps on batches first, first + 1, ...; the seconds of each. 0, or the command's exit status. */
int bench_train_peer_run(bench_train_peer *p, int first, int steps, double *seconds);
/* Asks for base and peak. */
int bench_train_peer_memory(bench_train_peer *p);
const char *bench_train_peer_python(const bench_train_peer *p);
/* What was set in its environment to make it faster; "": nothing. */
const char *bench_train_peer_settings(const bench_train_peer *p);
void bench_train_peer_stop(bench_train_peer *p);

/* ---- the result (bench_train_print.c) ---- */

typedef struct bench_spread {
    double low, median, high; /* quartiles */
} bench_spread;

typedef struct bench_train_result {
    const experiment *s;
    const char *recipe;
    int threads, steps;                              /* steps counted of each contestant */
    double sentences, source, target;                /* of a step, the mean of those counted */
    double rows;                                     /* tokens of all batches */
    bench_spread step, forward, backward, optimizer; /* seconds */
    double flops;                                    /* of a step's matrix products, mean */
    bench_spread products;                           /* seconds, alone */
    nn_memory memory;
    size_t states;
    double base, peak;            /* resident set when the program began, and the most while it trained */
    double check;                 /* loss of the first batch without dropout, a token */
    double losses[BENCH_BATCHES]; /* of the first steps, with dropout */
    bench_train_peer peer;
    bench_spread peer_step;
    char no_torch[512]; /* why there is none */
} bench_train_result;

void bench_train_print(const bench_train_result *r);
int bench_train_print_json(const bench_train_result *r, const char *path, char *message, size_t size);

#endif
