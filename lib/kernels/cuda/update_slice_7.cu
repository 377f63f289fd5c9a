#define UPDATE_SLICE 7 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
