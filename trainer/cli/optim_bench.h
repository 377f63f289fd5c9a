/* The contestants of `adamod optim bench`. Each works on as many sets of arrays as it takes to outgrow the caches, and
 * a burst is one step of every set, so that no step finds its arrays in a cache that another contestant did not have.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_OPTIM_BENCH_H
#define CLI_OPTIM_BENCH_H

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bench_type {
    BENCH_F32,
    BENCH_BF16,   /* everything bf16: parameters rounded at random, states, gradients */
    BENCH_MASTER, /* bf16 parameters and gradients, f32 masters and states */
    BENCH_Q8      /* f32 parameters and gradients, states in 8 bits */
} bench_type;

typedef struct bench_shape {
    int ndim;
    int64_t dim[4];
} bench_shape;

/* What one row of the table measures. */
typedef struct bench_case {
    const char *name;
    bench_type type;
    const bench_shape *shapes;
    int n_shapes;
    int64_t elements; /* of all shapes together */
    int sets;
} bench_case;

/* Memory as the library gets it for its states: huge pages for what is large. NULL if there is none. */
void *bench_alloc(size_t bytes);
/* Random bits that are finite, ordinary numbers as f32 and as bf16. */
void bench_fill(void *array, size_t bytes, bench_type type, uint64_t seed);

/* ---- the loop that only moves the bytes (bench_loop.c) ---- */

typedef struct bench_loop bench_loop;

/* For a rule with so many states of the parameters' size (0 to 6). NULL if memory or threads are missing. */
bench_loop *bench_loop_create(const bench_case *c, int states, int threads);
/* near: its prefetches are for the first-level cache, else for the second. Which is faster depends on the processor. */
double bench_loop_burst(bench_loop *loop, bool near);
void bench_loop_free(bench_loop *loop);
/* Bytes a step must read and write for each element. */
int bench_bytes(bench_type type, int states);

/* ---- PyTorch (bench_peers.c) ---- */

typedef struct bench_torch bench_torch;
typedef enum bench_peer { PEER_ADAMW, PEER_SAME } bench_peer;

/* Starts python, or python3 or /usr/bin/python3, whichever can import torch and use the device, "cpu" or "cuda"; NULL if
 * none can. 0 threads: as many as it likes. */
bench_torch *bench_torch_start(const char *python, int threads, const char *device);
const char *bench_torch_python(const bench_torch *torch);
const char *bench_torch_version(const bench_torch *torch);
/* Whether this torch has a fused AdamW for the device; if not, its foreach one is measured. */
bool bench_torch_fused(const bench_torch *torch);
/* Whether torch can run the rule itself: adamod in its operations, muon and adafactor as its own where it has them. */
bool bench_torch_has(const bench_torch *torch, const char *rule);
/* same: a rule that torch runs beside AdamW, PEER_SAME; or NULL. false or negative after a failure, which is in
 * bench_torch_error. */
bool bench_torch_prepare(bench_torch *torch, const bench_case *c, const char *same);
double bench_torch_burst(bench_torch *torch, bench_peer peer);
bool bench_torch_drop(bench_torch *torch);
const char *bench_torch_error(const bench_torch *torch);
void bench_torch_stop(bench_torch *torch);

/* ---- how long it takes (bench_length.c) ---- */

/* Whether a step is more than bytes that are moved: products of matrices, of Muon and SOAP. */
bool bench_multiplies(const char *rule, const bench_case *c);
/* Of so many steps in a row one does more than the others, so that a fair measurement is of a multiple of them: with SOAP it
 * changes the bases of matrices. 1: all are alike. */
int bench_period(const char *rule, const bench_case *c);

/* Takes the first step of a case and says how long that took. 0, or the command's exit status. */
typedef int (*bench_attempt)(void *context, const bench_case *c, double *seconds);
/* Whether a first step takes at most so many seconds: *about is 0, or what it would take. It is taken with short sides
 * first, and then longer ones as long as the time allows it, since nothing can stop one that takes minutes. 0, or the exit
 * status. */
int bench_fits(const bench_case *c, double most, bench_attempt attempt, void *context, double *about);
/* Says so, if it does not. */
bool bench_is_too_long(const bench_case *c, double about);

/* ---- all of them, in turns (bench_race.c) ---- */

/* A race is run by contestants with the same number of elements. The rows are ours, over one list of shapes each. */
enum { BENCH_ROWS = 2, BENCH_LOOP = BENCH_ROWS, BENCH_NEAR_LOOP, BENCH_ADAMW, BENCH_SAME, BENCH_CONTESTANTS };

typedef struct bench_race {
    const char *rule;
    int states, threads;
    bench_case rows[BENCH_ROWS];
    int n_rows;
    bench_torch *torch; /* NULL: it does not take part; it runs the shapes of the first row */
    const char *same;   /* the rule, if torch runs it, too */
    double budget;      /* seconds; after these, and least rounds, it is over */
    int least_rounds;
    double most; /* seconds; after these one round is enough */
    int rounds;
    int steps[BENCH_ROWS]; /* of ours that were timed */
    /* Of one step, the median over all rounds; negative: did not take part. BENCH_LOOP has that of the faster loop. */
    double seconds[BENCH_CONTESTANTS];
} bench_race;

/* 0, or the command's exit status with the message printed. */
int bench_run(bench_race *race);
/* The first step of ours, as bench_attempt: context is the race. */
int bench_attempt_ours(void *race, const bench_case *c, double *seconds);
/* Bytes of memory that it takes. */
double bench_memory(const bench_race *race);

/* ---- what is printed (optim_bench.c) ---- */

/* The worst of what was found, and where. */
typedef struct bench_verdict {
    const char *goal;
    double bound;
    bool at_most; /* the bound is an upper one */
    bool any;
    double found;
    char where[64];
    char peer[96]; /* what it was found against: "torch 2.3.0"; "": nothing that has versions */
} bench_verdict;

void bench_name_peer(bench_verdict *v, const char *torch);
void bench_judge(bench_verdict *v, double found, const char *where);
void bench_print_verdict(const bench_verdict *v, bool json);
/* A number, or a dash or null where there is none. */
void bench_cell(double x, const char *format, int width);
void bench_json_pair(const char *name, double x);
/* Of the rule that torch runs, too, or NULL: its times, how it is written, and the goal, which with AdaMod is the bound
 * given. */
void bench_json_same(const char *rule, double ms, double times);
const char *bench_title(const char *rule);
bench_verdict bench_goal_same(const char *rule, double adamod);

/* Whether Muon leaves an array to AdamW, as its users do with vectors and embeddings: the latter have a dimension of more
 * than this. */
enum { BENCH_EMBEDDING = 1 << 14 };
bool bench_is_embedding(const bench_shape *shape);
/* Makes a group for them with Muon; with other rules they belong to group 0 as all do. */
adamod_status bench_add_embeddings(adamod_optimizer *opt, const char *rule, int *group);

enum { BENCH_RESNET_TENSORS = 110, BENCH_RESNET_ELEMENTS = 21282122 };
/* ResNet-34 with the stem for CIFAR-10: 3x3 convolutions, 3, 4, 6 and 3 basic blocks. */
void bench_make_resnet34(bench_shape shapes[BENCH_RESNET_TENSORS]);

/* ---- on a GPU (bench_cuda.c) ---- */

typedef struct bench_cuda_request {
    const char *rule, *device;
    const char *python;
    int states, flat_states; /* as large as a matrix, as a vector: those that a step must move */
    bool no_torch, quick, json;
} bench_cuda_request;

/* The exit status of the command. */
int bench_cuda(const bench_cuda_request *ask);

#endif
