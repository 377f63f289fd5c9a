#define UPDATE_SLICE 4 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
