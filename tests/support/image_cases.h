/* image_cases.h - what tests of ops on images check, on every backend. */
#ifndef IMAGE_CASES_H
#define IMAGE_CASES_H

#include "opcheck.h"

/* rows, height, width, in, out, size, stride, padding, gap of x, gap of y. */
typedef struct conv_sizes {
    int64_t rows, height, width, in, out, size;
    int stride, padding;
    int64_t gap, out_gap;
} conv_sizes;

opcheck convolution_case(const conv_sizes *s);

/* height 0: of a matrix [rows, channels]. */
opcheck batch_norm_case(int64_t rows, int64_t height, int64_t width, int64_t channels, bool residual, bool relu,
                        bool training);

#endif
