/* Attention over long sequences in bf16, by wgmma: heads of 64 or 128 columns, without dropout. */
#ifndef ADAMOD_NN_CUDA_HOPPER_LONG_ATTENTION_H
#define ADAMOD_NN_CUDA_HOPPER_LONG_ATTENTION_H

#include "nn/backend/cuda/cuda.h"

/* Whether these kernels take the call, by its shapes and types: asked before arrays have memory. */
bool long_attention_fits(const nn_call *c);
size_t long_attention_workspace(const nn_call *c); /* floats */
void long_attention_forward(const nn_call *c);
/* Rows of sums that backward leaves in c->grad->partials, each [dq | dk | dv]. */
int64_t long_attention_parts(const nn_call *c);
void long_attention_backward(const nn_call *c);

#endif
