/* Convolutions of 3 x 3 with a stride of 1 by Winograd's short algorithms (Lavin and Gray, arXiv 1509.09308), F(4 x 4, 3 x 3):
 * 36 products for 16 numbers where the definition takes 144. Images are channels-last; pixels may be any distance apart. */
#pragma once

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_winograd {
    int64_t images, height, width, in; /* of x */
    int64_t out;                       /* channels of y */
    int padding;                       /* 0 to 2: y is larger by 2 padding - 2 */
    int64_t x_stride, y_stride;        /* from pixel to pixel */
} nn_winograd;

/* Whether channels are multiples of what it computes at once, and tiles of 4 x 4 waste little of y. */
bool nn_winograd_fits(const nn_winograd *s);

/* y = x convolved with W [out, 3, 3, in], or added to y. turned: W is [in, 3, 3, out], turned by 180 degrees, which
 * gives the gradient of x from the gradient of y. */
void nn_winograd_apply(adamod_pool *pool, const nn_winograd *s, const float *x, const float *w, bool turned, float *y,
                       bool add, float *workspace);
/* dw = the gradient of W, or added to it, from the gradient of y. */
void nn_winograd_weights(adamod_pool *pool, const nn_winograd *s, const float *x, const float *dy, float *dw, bool add,
                         float *workspace);
/* Floats of the workspaces. */
size_t nn_winograd_apply_floats(adamod_pool *pool, const nn_winograd *s);
size_t nn_winograd_weights_floats(adamod_pool *pool, const nn_winograd *s);
