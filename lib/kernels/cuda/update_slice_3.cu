#define UPDATE_SLICE 3 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
