/* One convolution by cuDNN: made once, run many times. The library is found at run time, so that models without
 * convolutions do not need it. */
#ifndef ADAMOD_NN_CUDA_CUDNN_H
#define ADAMOD_NN_CUDA_CUDNN_H

#include "nn/backend/cuda/cuda.h"

/* The array that is computed from the other two. */
typedef enum conv_result { CONV_Y, CONV_DX, CONV_DW } conv_result;

/* x [rows, height, width, in], w [out, kernel, kernel, in], y [rows, y_height, y_width, out], all without gaps, and
 * all of one type. */
typedef struct conv_shape {
    int64_t rows, height, width, in, y_height, y_width, out, kernel, stride, padding;
    nn_type type;
} conv_shape;

typedef struct convolution {
    void *plan; /* NULL: not made */
    size_t workspace;
} convolution;

/* Bytes of workspace that a convolution may use at most. */
enum { CONV_WORKSPACE = 64 << 20 };

/* How to do a convolution. add: add to the result's array. measured: see below. */
typedef struct conv_way {
    conv_result result;
    nn_precision precision;
    bool add, measured;
} conv_way;

/* Takes the first way that cuDNN recommends among those that give the same bits in every run; f32 is never rounded to
 * fewer bits on the way unless the precision says so. If measured, the fastest of the first few that give the same bits
 * as that one; not where results are too few to tell. Each shape is measured once in a program. */
adamod_status convolution_make(convolution *v, const conv_shape *s, const conv_way *way);
/* As above, but returns false, without a message, if cuDNN has none. */
bool convolution_try(convolution *v, const conv_shape *s, const conv_way *way);
void convolution_free(convolution *v);

/* Workspace of v->workspace bytes. */
void convolution_run(const convolution *v, cudaStream_t stream, void *x, void *w, void *y, void *workspace);

#endif
