/* attributes.h - the numbers that an op's nodes are built with, for its kernels in every backend.
 *
 * Each op has a struct of its own, and only its own files read it: NN_ATTR(linear, c)->activation, where c is a call
 * or a node. The graph and the plan know its size alone (nn_op.attributes_size). */
#pragma once

#include "nn/nn.h"

#define NN_ATTR(op, of) ((const nn_##op##_attributes *)(of)->attributes)

typedef struct nn_linear_attributes {
    nn_activation activation;
} nn_linear_attributes;
typedef nn_linear_attributes nn_scale_shift_attributes;

typedef struct nn_embedding_attributes {
    double scale;
} nn_embedding_attributes;

/* Every op with dropout has the probability first: nn_dropout_of reads it. */
typedef struct nn_dropout_attributes {
    double dropout;
} nn_dropout_attributes;
typedef nn_dropout_attributes nn_add_attributes, nn_lstm_attributes, nn_word_dropout_attributes;

typedef struct nn_locked_dropout_attributes {
    double dropout;
    int64_t batch;
} nn_locked_dropout_attributes;

typedef struct nn_add_norm_attributes {
    double dropout, eps;
} nn_add_norm_attributes;

typedef struct nn_attention_attributes {
    double dropout;
    int heads;
    bool causal;
    int kv_heads; /* of keys and values, each for heads / kv_heads of queries; 0: as many as heads */
} nn_attention_attributes;

typedef struct nn_rms_norm_attributes {
    double eps;
} nn_rms_norm_attributes;

typedef struct nn_query_key_attributes {
    double base, eps;
    int heads, kv_heads;
} nn_query_key_attributes;

static inline double nn_dropout_of(const void *attributes) { return *(const double *)attributes; }

typedef struct nn_path_attention_attributes {
    int heads, kv_heads;
} nn_path_attention_attributes;

typedef struct nn_cross_entropy_attributes {
    double smoothing;
} nn_cross_entropy_attributes;

typedef struct nn_linear_cross_entropy_attributes {
    double smoothing, z;
} nn_linear_cross_entropy_attributes;

typedef struct nn_best_attributes {
    int n;
} nn_best_attributes;

typedef nn_beam_options nn_beam_attributes;
typedef nn_picture_options nn_pictures_attributes;

typedef struct nn_convolution_attributes {
    int stride, padding;
} nn_convolution_attributes;

typedef struct nn_average_pool_attributes {
    int size;
} nn_average_pool_attributes;

typedef struct nn_batch_norm_attributes {
    double eps, momentum;
    nn_activation activation;
    bool synced; /* statistics are of the batches of all processes: nn_sync_norms */
} nn_batch_norm_attributes;

/* Factors of mean(x^2) and of mean((z_t - z_(t-1))^2). */
typedef struct nn_activity_attributes {
    double size, change;
    int64_t batch;
} nn_activity_attributes;
