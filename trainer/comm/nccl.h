/* nccl.h - sums of arrays on GPUs, by NVIDIA's NCCL: each rank has a GPU of its own.
 *
 * A sum runs on a stream of its own, beside what the caller's stream does next, and can be recorded into a CUDA graph
 * together with it. Its order is NCCL's: with two ranks it is the only one there is, with more the bits differ from those of
 * an ordered sum. NCCL and the CUDA driver are loaded when they are wanted. */
#ifndef ADAMOD_NCCL_H
#define ADAMOD_NCCL_H

#include "comm/comm.h"

typedef struct nccl nccl;

/* "2.21.5, libnccl.so.2"; false: there is none. */
bool nccl_library(char *out, size_t size);

/* What tells a GPU from all others, though another process may see it by another number. False: it cannot be found. */
bool nccl_gpu(int device, char id[33]);

/* Joins the ranks, on the GPU that is this thread's current one. */
int nccl_open(nccl **out, comm *c);
void nccl_free(nccl *n); /* NULL is fine */

/* x, on the GPU, becomes its sum over ranks, once all is done that stream has been given so far. */
int nccl_sum(nccl *n, float *x, int64_t count, void *stream);
/* The same where ranks have parts of the numbers: rank r, who has those from parts[r] to parts[r + 1] - 1, gets its sums
 * alone. x is number `first` of them; what others find there afterwards is undefined. */
int nccl_sum_parts(nccl *n, float *x, int64_t first, int64_t count, const int64_t *parts, void *stream);
/* What stream is given from now on waits for all sums. */
int nccl_join(nccl *n, void *stream);

/* On stream itself, in its order: x becomes its sum over ranks; its mean; and of x, of numbers of unit bytes, each rank's
 * part comes to all. */
int nccl_add(nccl *n, double *x, int64_t count, void *stream);
int nccl_mean(nccl *n, float *x, int64_t count, void *stream);
int nccl_spread(nccl *n, void *x, size_t unit, const int64_t *parts, void *stream);

#endif
