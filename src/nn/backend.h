/* Which backends there are. */
#ifndef ADAMOD_NN_BACKEND_H
#define ADAMOD_NN_BACKEND_H

#include "op.h"

/* "cpu", or "cuda" from libadamod_nn_cuda.so, which is looked for beside the program, then where the system looks; the
 * environment's ADAMOD_NN_CUDA_LIBRARY names another. NULL: there is none, and the last error says why. "ref" is no
 * backend: it is what every op brings along. */
const nn_backend *nn_backend_find(const char *name);

#endif
