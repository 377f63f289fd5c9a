#define UPDATE_SLICE 1 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
