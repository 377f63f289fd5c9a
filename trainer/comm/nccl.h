/* nccl.h - sums of arrays on GPUs by NVIDIA's NCCL; each rank has its own GPU.
 *
 * Sums run on a stream of their own, in parallel to the caller's, and can be recorded into a CUDA graph with it. With more
 * than two ranks NCCL's order differs from that of an ordered sum, and so do the bits. NCCL and the CUDA driver are loaded
 * at run time. */
#pragma once

#include "comm/comm.h"

typedef struct nccl nccl;

/* "2.21.5, libnccl.so.2"; false: there is none. */
bool nccl_library(char *out, size_t size);

/* A GPU's UUID, as its number may differ between processes. False: it cannot be found. */
bool nccl_gpu(int device, char id[33]);

/* Joins the ranks, on this thread's current GPU. */
int nccl_open(nccl **out, comm *c);
void nccl_free(nccl *n); /* NULL is fine */

/* Replaces x, on the GPU, by its sum over ranks, after the work that is on stream so far. */
int nccl_sum(nccl *n, float *x, int64_t count, void *stream);
/* Like nccl_sum, if rank r needs only elements parts[r] to parts[r + 1] - 1; others are undefined afterwards. x[0] is
 * element first. */
int nccl_sum_parts(nccl *n, float *x, int64_t first, int64_t count, const int64_t *parts, void *stream);
/* Later work on stream waits for all sums. */
int nccl_join(nccl *n, void *stream);

/* On stream itself: replace x by its sum or mean over ranks; or send each rank's part of x, with elements of unit bytes, to
 * all. */
int nccl_add(nccl *n, double *x, int64_t count, void *stream);
int nccl_mean(nccl *n, float *x, int64_t count, void *stream);
int nccl_spread(nccl *n, void *x, size_t unit, const int64_t *parts, void *stream);
