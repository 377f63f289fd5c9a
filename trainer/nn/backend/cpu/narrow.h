/* Products whose factors are rounded to bf16, to the nearest and ties to even, and whose sums are f32: what linear layers,
 * convolutions and others of a plan in mixed precision compute. gemm.c rounds factors to room that the op has in its
 * workspace, then multiplies tile by tile.
 *
 * A processor with instructions for bf16 multiplies by oneDNN, which chooses AMX or AVX-512. For others the room holds the
 * rounded numbers as f32, and a product is one of f32: as fast as that, with the same meaning. */
#pragma once

#include "nn/backend/cpu/gemm.h"

/* The rows of a tile are a multiple of NN_NARROW_ROWS, except in the last tile; its columns are at most
 * NN_NARROW_COLS. */
enum { NN_NARROW_ROWS = 32, NN_NARROW_COLS = 512 };

/* Whether a product of these sizes is rounded where it has room. */
bool nn_narrow_pays(int64_t m, int64_t n, int64_t k);

/* Rounds the factors of products that have room, each stored matrix once, and lets the products refer to it. */
void nn_narrow_factors(adamod_pool *pool, nn_product *products, int n);

/* Whether rounded factors are stored as bf16: then the function below multiplies them. */
bool nn_narrow_is_stored(void);
/* Bytes of a rounded number. */
static inline int64_t nn_narrow_bytes(void) { return nn_narrow_is_stored() ? 2 : 4; }
/* One tile on this thread. */
void nn_narrow_product(const nn_product *p);
