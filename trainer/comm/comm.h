/* comm.h - processes that work together: which of them this is, and what they exchange.
 *
 *     comm *c = NULL;                                          // NULL: one process alone, which every function takes
 *     if (comm_launched().size > 1 && comm_open(&c, &alone)) ...
 *     comm_all_reduce(c, gradients, n, COMM_ORDERED);          // the sum over all ranks, on each of them
 *     comm_free(c);
 *
 * mpirun or srun starts the processes, which MPI calls ranks: 0, 1, ... size - 1. MPI is loaded when it is wanted, so that
 * the program needs none to be built or to run alone; Open MPI and all that share MPICH's binary interface serve. Memory
 * is the host's; nccl.h has sums on GPUs.
 *
 * Every function from comm_barrier on is called by all ranks, in the same order. None can fail: where MPI itself does, as
 * it does when a rank has died, MPI says so and ends all ranks. */
#ifndef ADAMOD_COMM_H
#define ADAMOD_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct comm comm;

/* What the environment says of how this process was started; MPI is not touched. */
typedef struct comm_launch {
    const char *by;       /* "mpirun", "srun"; NULL: by nobody that starts ranks */
    const char *variable; /* that says the size; it may be left over from elsewhere */
    int rank, size;       /* 0 and 1 then */
    int local;            /* among the ranks of this machine */
} comm_launch;
comm_launch comm_launched(void);

/* Joins the other ranks, which must run the same program. If it fails, all ranks have the same message, unless
 * this one is *alone, as it could not join them. Before it, signals must be blocked that MPI's own threads are not to have. */
int comm_open(comm **out, bool *alone);
/* Waits for all ranks. */
void comm_free(comm *c);
/* Ends all ranks at once, wherever they are: for what cannot wait until they can agree. */
void comm_abort(comm *c, int status) __attribute__((noreturn));

/* "Open MPI v4.1.4, libmpi.so.40"; false: there is none. Loads MPI, but joins nobody. */
bool comm_library(char *out, size_t size);

int comm_rank(const comm *c);
int comm_size(const comm *c);

/* Among the ranks of this machine. */
typedef struct comm_place {
    int rank, size;
    int cores_shared; /* how many of them run on the same cores, this one included */
    char host[64];
} comm_place;
comm_place comm_local(const comm *c);

/* Bytes that sums take beside what is summed. */
size_t comm_memory(const comm *c);

/* Whether one thread may call the functions below while others do not, whichever thread it is. */
bool comm_threads(const comm *c);

void comm_barrier(comm *c);
void comm_broadcast(comm *c, void *data, size_t bytes, int from);
/* all has room for bytes of each rank, in their order. */
void comm_gather(comm *c, const void *mine, size_t bytes, void *all);
/* x[i] becomes its sum over ranks, added up in their order. */
void comm_add(comm *c, double *x, int64_t n);
/* x[i] becomes the largest of all ranks'. */
void comm_most(comm *c, int *x, int n);

/* Whether any rank has failed (status not 0). Each then returns the status of the first that has, with its message: "rank 2:
 * ...", or as it is where all say the same. Nobody has failed: 0. */
int comm_agree(comm *c, int status);

/* ---- sums of large arrays ---- */

/* ORDERED: x_0 + x_1 + ... in the order of ranks, so that the sum has the same bits however often it is repeated, and those
 * of one process that adds one after another. FAST: in the order that MPI finds fastest. */
typedef enum comm_order { COMM_ORDERED, COMM_FAST } comm_order;
void comm_all_reduce(comm *c, float *x, int64_t n, comm_order order);

/* The two halves of an ordered sum, of at most COMM_BLOCK numbers. Each rank has a part of them, which begins at
 * comm_part(c, n, rank) and ends where the next one's begins. */
enum { COMM_BLOCK = 1 << 20 };
int64_t comm_part(const comm *c, int64_t n, int rank);
/* part, which has the size of this rank's, becomes the sum of x over the first `ranks` ranks; added to what was there
 * before, where add says so. */
void comm_reduce_scatter(comm *c, const float *x, int64_t n, int ranks, bool add, float *part);
/* Every rank's part of x comes to all. */
void comm_all_gather(comm *c, float *x, int64_t n);

#endif
