/* optim_bench.h - the contestants of `adamod optim bench`. Each works on enough sets of arrays to outgrow the caches, and a
 * burst is one step of every set, so that no contestant finds its arrays in a cache. */
#pragma once

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_python;

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

/* A row of the table. */
typedef struct bench_case {
    const char *name;
    bench_type type;
    const bench_shape *shapes;
    int n_shapes;
    int64_t elements; /* of all shapes together */
    int sets;
} bench_case;

/* Memory as the library allocates its states: huge pages for large arrays. NULL: out of memory. */
void *bench_alloc(size_t bytes);
/* Fills with random numbers, neither tiny nor huge, in f32 and in bf16. */
void bench_fill(void *array, size_t bytes, bench_type type, uint64_t seed);

/* ---- the loop that only moves the bytes (bench_loop.c) ---- */

typedef struct bench_loop bench_loop;

/* states: of the parameters' size, 0 to 6. NULL: out of memory or threads. */
bench_loop *bench_loop_create(const bench_case *c, int states, int threads);
/* near: prefetches into the first-level cache, else into the second. Which is faster depends on the processor. */
double bench_loop_burst(bench_loop *loop, bool near);
void bench_loop_free(bench_loop *loop);
/* Bytes a step must read and write for each element. */
int bench_bytes(bench_type type, int states);

/* ---- PyTorch (bench_peers.c) ---- */

typedef struct bench_torch {
    struct bench_python *process;
    char version[64];
    bool fused; /* it has a fused AdamW for the device; else its foreach one is measured */
    bool muon, adafactor;
    const char *same; /* the rule that it was prepared for beside AdamW; NULL: none */
} bench_torch;
typedef enum bench_peer { PEER_ADAMW, PEER_SAME } bench_peer;

/* Starts python, or python3 or /usr/bin/python3, whichever can import torch and use the device, "cpu" or "cuda"; NULL if
 * none can. 0 threads: torch's default. */
bench_torch *bench_torch_start(const char *python, int threads, const char *device);
const char *bench_torch_python(const bench_torch *torch);
/* Whether torch can run the rule: adamod in its operations, muon and adafactor as its own where it has them. */
bool bench_torch_has(const bench_torch *torch, const char *rule);
/* same: a rule that torch runs beside AdamW as PEER_SAME, or NULL. After a failure these return false or a negative number,
 * and bench_torch_failed prints the message and returns the exit status. */
bool bench_torch_prepare(bench_torch *torch, const bench_case *c, const char *same);
double bench_torch_burst(bench_torch *torch, bench_peer peer);
bool bench_torch_drop(bench_torch *torch);
int bench_torch_failed(const bench_torch *torch);
void bench_torch_stop(bench_torch *torch);

/* ---- how long it takes (bench_length.c) ---- */

/* Whether a step multiplies matrices, as with Muon and SOAP, so that it does more than move bytes. */
bool bench_multiplies(const char *rule, const bench_case *c);
/* Every period steps, one does more than the others: with SOAP it changes the bases of matrices. A fair measurement takes
 * a multiple of the period. 1: all steps are alike. */
int bench_period(const char *rule, const bench_case *c);

/* Times the first step of a case. Returns 0, or the command's exit status. */
typedef int (*bench_attempt)(void *context, const bench_case *c, double *seconds);
/* Sets *about to 0 if a first step takes at most `most` seconds, else to its estimated time. Tries short sides first, then
 * longer ones while time allows, since nothing can stop a step that takes minutes. Returns 0, or the exit status. */
int bench_fits(const bench_case *c, double most, bench_attempt attempt, void *context, double *about);
/* Whether about is above 0; then says so. */
bool bench_is_too_long(const bench_case *c, double about);

/* ---- all of them, in turns (bench_race.c) ---- */

/* All contestants of a race have the same number of elements. The first BENCH_ROWS are our step, each over its own list
 * of shapes. */
enum { BENCH_ROWS = 2, BENCH_LOOP = BENCH_ROWS, BENCH_NEAR_LOOP, BENCH_ADAMW, BENCH_SAME, BENCH_CONTESTANTS };

typedef struct bench_race {
    const char *rule;
    int states, threads;
    bench_case rows[BENCH_ROWS];
    int n_rows;
    bench_torch *torch; /* NULL: it does not take part; it runs the shapes of the first row */
    const char *same;   /* the rule, if torch runs it, too */
    double budget;      /* seconds; the race ends after these and least_rounds */
    int least_rounds;
    double most; /* seconds; after these one round is enough */
    int rounds;
    int steps[BENCH_ROWS]; /* of ours that were timed */
    /* Median time of a step over all rounds; negative: did not take part. BENCH_LOOP has the faster loop's. */
    double seconds[BENCH_CONTESTANTS];
} bench_race;

/* 0, or the command's exit status with the message printed. */
int bench_run(bench_race *race);
/* A bench_attempt with our first step; context is the race. */
int bench_attempt_ours(void *race, const bench_case *c, double *seconds);
/* Bytes of memory that it takes. */
double bench_memory(const bench_race *race);

/* ---- what is printed (optim_bench.c) ---- */

/* A goal, and the worst result found. */
typedef struct bench_verdict {
    const char *goal;
    double limit;
    bool at_most; /* the limit is an upper one */
    bool any;
    double found;
    char where[64];
    char peer[96]; /* the peer compared with, "torch 2.3.0"; "": none that has versions */
} bench_verdict;

void bench_name_peer(bench_verdict *v, const char *torch);
void bench_judge(bench_verdict *v, double found, const char *where);
void bench_print_verdict(const bench_verdict *v, bool as_json);
/* A number of a row. */
typedef struct bench_column {
    const char *key;    /* in JSON, "%s" standing for the rule that torch runs; NULL: only in the table */
    const char *format; /* in the table; NULL: only in JSON */
    int width;
    double x; /* 0 or less: unknown, a dash or null */
} bench_column;
/* rule: the one that torch runs beside AdamW; NULL: none. */
void bench_print_columns(const bench_column *columns, int n, const char *rule, bool as_json);
/* How the rule that torch runs is written, and the goal of speed over it, which with AdaMod has the limit given. */
const char *bench_title(const char *rule);
bench_verdict bench_goal_same(const char *rule, double adamod);
/* Sets the options for the type. */
adamod_status bench_set_type(adamod_optimizer *opt, bench_type type);

/* Muon leaves vectors and embeddings to AdamW, as its users do. An embedding has a dimension above BENCH_EMBEDDING. */
enum { BENCH_EMBEDDING = 1 << 14 };
bool bench_is_embedding(const bench_shape *shape);
/* Makes a group for embeddings with Muon; with other rules they belong to group 0. */
adamod_status bench_add_embeddings(adamod_optimizer *opt, const char *rule, int *group);

enum { BENCH_RESNET_TENSORS = 110, BENCH_RESNET_ELEMENTS = 21282122 };
/* ResNet-34 with the stem for CIFAR-10: 3x3 convolutions, 3, 4, 6 and 3 basic blocks. */
void bench_make_resnet34(bench_shape shapes[BENCH_RESNET_TENSORS]);

/* ---- on a GPU (bench_cuda.c) ---- */

enum { BENCH_MOST_SIZES = 16 };

typedef struct bench_optim_request {
    const char *rule, *device, *isa, *python;
    int64_t sizes[BENCH_MOST_SIZES], threads;
    int n_sizes, cases;
    int states, flat_states; /* states that a step must move, of a matrix and of a vector */
    bool no_torch, quick, json;
} bench_optim_request;

/* Returns the exit status of the command. */
int bench_cuda(const bench_optim_request *ask);
