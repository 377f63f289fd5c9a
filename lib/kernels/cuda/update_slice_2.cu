#define UPDATE_SLICE 2 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
