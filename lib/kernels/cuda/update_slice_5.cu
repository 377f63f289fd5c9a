#define UPDATE_SLICE 5 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
