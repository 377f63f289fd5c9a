/* Arrays of an LSTM layer's kernels: lstm.cu has the op and kernels for single time steps, lstm_resident.cu kernels
 * that keep the weights of the state on the chip for all time steps of a run. */
#ifndef ADAMOD_NN_CUDA_LSTM_ARRAYS_H
#define ADAMOD_NN_CUDA_LSTM_ARRAYS_H

#include "nn/backend/cuda/cuda.h"

/* T is float or bf16: what values of the plan are. Rows are those of the capacity; only the first *live_rows belong to the
 * batch (NULL: all). The others' outputs and gradients are 0. */
template <typename T> struct lstm_arrays {
    int steps, batch, h;
    const int64_t *live_rows;
    float *gates;      /* [rows, 4 h]: of x, then i, f, g, o as forward leaves them */
    float *cells, *c0; /* [rows, h]; [batch, h] before the first step */
    T *before;         /* [rows, h]: the output before each row's step */
    const T *weights;  /* [4 h, h], after dropout */
};

/* Forward. */
template <typename T> struct lstm_forward_arrays : lstm_arrays<T> {
    const float *b_in, *b_state;
    const int32_t *carried;
    float *state_h, *state_c; /* of the run before, then of this one */
    T *y;                     /* [rows, h] */
};

/* Backward. */
template <typename T> struct lstm_backward_arrays : lstm_arrays<T> {
    const T *dy; /* [rows, h] */
    T *dgates;   /* [rows, 4 h], before activations */
};

template <typename T> __device__ static inline int lstm_live_steps(const lstm_arrays<T> &a) {
    return a.live_rows ? (int)(*a.live_rows / a.batch) : a.steps;
}

#endif
