/* comm.h - ranks: processes that train one model, and their communication by MPI.
 *
 *     comm *c = NULL;                                          // NULL: a single process; all functions take it
 *     if (comm_launched().size > 1 && comm_open(&c, &alone)) ...
 *     comm_all_reduce(c, gradients, n, COMM_ORDERED);          // the sum over all ranks, on each of them
 *     comm_free(c);
 *
 * mpirun or srun starts ranks 0, 1, ... size - 1. MPI is loaded at run time and not needed to build the program or to run
 * it alone: Open MPI, or any library with MPICH's binary interface. Memory is the host's; nccl.h has sums on GPUs.
 *
 * All ranks call every function from comm_barrier on, in the same order. None can fail: if MPI fails, for example when a
 * rank has died, it ends all ranks with a message. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct comm comm;

/* How this process was started, by the environment; MPI is not loaded. */
typedef struct comm_launch {
    const char *by;       /* "mpirun", "mpiexec", "srun"; NULL: not started by a launcher */
    const char *variable; /* environment variable with the size */
    int rank, size;       /* 0 and 1 without a launcher */
    int local;            /* rank on this machine */
} comm_launch;
comm_launch comm_launched(void);

/* Joins the other ranks, which must run the same program. A failure is on all ranks, with the same message, unless *alone:
 * this rank could not join. Signals that MPI's threads must not receive must be blocked before. */
int comm_open(comm **out, bool *alone);
/* Waits for all ranks. */
void comm_free(comm *c);
/* Ends all ranks at once, for failures that the others cannot be told about. */
void comm_abort(comm *c, int status) __attribute__((noreturn));

/* "Open MPI v4.1.4, libmpi.so.40"; false: there is none. Loads MPI without joining ranks. */
bool comm_library(char *out, size_t size);

int comm_rank(const comm *c);
int comm_size(const comm *c);

/* A rank among those of its machine. */
typedef struct comm_place {
    int rank, size;
    int cores_shared; /* ranks on the same cores, this one included */
    char host[64];
} comm_place;
comm_place comm_local(const comm *c);

/* Bytes that sums need besides the data. */
size_t comm_memory(const comm *c);

/* Whether any thread may call the functions below, one at a time. */
bool comm_threads(const comm *c);

void comm_barrier(comm *c);
void comm_broadcast(comm *c, void *data, size_t bytes, int from);
/* all has room for `bytes` bytes of each rank, in the order of ranks. */
void comm_gather(comm *c, const void *mine, size_t bytes, void *all);
/* Replaces x[i] by its sum over ranks, in the order of ranks. */
void comm_add(comm *c, double *x, int64_t n);
/* Replaces x[i] by its maximum over ranks. */
void comm_most(comm *c, int *x, int n);

/* Fails on all ranks if it failed on any (status not 0): all return the status and the message of the first that failed,
 * with "rank 2: " in front unless all messages are equal. */
int comm_agree(comm *c, int status);

/* ---- sums of large arrays ---- */

/* ORDERED: x_0 + x_1 + ... in the order of ranks, with the bits of one process that adds in this order. FAST: in MPI's
 * order. */
typedef enum comm_order { COMM_ORDERED, COMM_FAST } comm_order;
void comm_all_reduce(comm *c, float *x, int64_t n, comm_order order);

/* The two halves of an ordered sum of at most COMM_BLOCK numbers. Rank r has the part from comm_part(c, n, r) to
 * comm_part(c, n, r + 1) - 1. */
enum { COMM_BLOCK = 1 << 20 };
int64_t comm_part(const comm *c, int64_t n, int rank);
/* Writes this rank's part of the sum of x over the first `ranks` ranks to part, or adds it with add. */
void comm_reduce_scatter(comm *c, const float *x, int64_t n, int ranks, bool add, float *part);
/* Sends each rank's part of x to all. */
void comm_all_gather(comm *c, float *x, int64_t n);
