#define UPDATE_SLICE 6 /* see update_launches.h */
#include "kernels/cuda/update_slice.cuh"
