#define UPDATE_SLICE 0 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
