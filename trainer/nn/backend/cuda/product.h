/* One product of matrices by cuBLASLt: made once, run many times. */
#ifndef ADAMOD_NN_CUDA_PRODUCT_H
#define ADAMOD_NN_CUDA_PRODUCT_H

#include "nn/backend/cuda/cuda.h"

#include <cublasLt.h>

/* The most workspace of a run: the beginning of the call's. */
enum { PRODUCT_WORKSPACE = 32 << 20 };

/* D [m, n] = op(A) op(B), by columns. */
typedef struct product_shape {
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldd;
    cudaDataType_t in, out;
    cublasLtEpilogue_t epilogue;
    int count; /* products in one, each with pointers of its own */
} product_shape;

typedef struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes that it takes */
    bool ready;
} product;

/* ADAMOD_OK also says that the library could be started. */
adamod_status product_library(void);

/* cuBLASLt recommends algorithms; the first is taken, always the same for the same shapes on the same chip. If measured,
 * the fastest of those is taken that give the same bits as the first, so that measuring, which has noise, does not show in
 * any result; not where results are too few to tell. Each shape is measured once in a program. */
adamod_status product_make(product *p, const product_shape *s, nn_precision precision, bool measured);
/* As above, but returns false, without a message, if cuBLASLt has none. */
bool product_try(product *p, const product_shape *s, nn_precision precision, bool measured);
void product_free(product *p);

/* D = op(A) op(B), or that added to D. bias: what the epilogue adds; NULL: none. If count is more than 1, a, b and d are
 * arrays of pointers on the device. */
void product_run(const nn_call *c, const product *p, const void *a, const void *b, void *d, bool add, const void *bias);

/* More arrays of a product; those that are NULL are not there. */
typedef struct product_more {
    const void *bias;
    const void *added; /* like D, to which it is added; may be D */
    void *before;      /* like D: receives what the epilogue's function is applied to (CUBLASLT_EPILOGUE_GELU_AUX) */
} product_more;

void product_run_more(const nn_call *c, const product *p, const void *a, const void *b, void *d,
                      const product_more *more);

#endif
