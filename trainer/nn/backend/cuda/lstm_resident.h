/* LSTM layers whose weights of the state stay on the chip, in registers, for all time steps of a run: see lstm_resident.cu. */
#ifndef ADAMOD_NN_CUDA_LSTM_RESIDENT_H
#define ADAMOD_NN_CUDA_LSTM_RESIDENT_H

#include "nn/backend/cuda/lstm_arrays.h"

/* Whether this device can, for bf16 values and layers of these sizes: at most 21 sequences and 1152 units, an even number. */
bool lstm_resident_fits(int64_t steps, int64_t batch, int64_t h);

/* For people: which layers fit, on this device. */
void lstm_resident_describe(char *out, size_t size);

/* Why it does not fit, for people. */
void lstm_resident_refuse(bool mixed, int64_t batch, int64_t h, char *out, size_t size);

/* Bytes through which multiprocessors tell each other outputs, and gradients. */
size_t lstm_resident_bytes(int64_t steps, int64_t batch, int64_t h, bool backward);

/* All steps. Gates hold what x adds to them; exchange has the bytes above. */
void lstm_resident_forward(cudaStream_t stream, const lstm_forward_arrays<bf16> &a, void *exchange);
/* All gradients of gates, and those of both biases. */
void lstm_resident_backward(cudaStream_t stream, const lstm_backward_arrays<bf16> &a, void *exchange,
                            target<float> db_in, target<float> db_state);

#endif
