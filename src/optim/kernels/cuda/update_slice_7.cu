#define UPDATE_SLICE 7 /* see update_launches.h */
#include "optim/kernels/cuda/update_slice.cuh"
