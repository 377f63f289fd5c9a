/* cifar.h - reads the binary files of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html).
 *
 *   CIFAR-10    data_batch_1.bin ... data_batch_5.bin, test_batch.bin: 10,000 records each of a label and 3 planes of
 *               32 x 32 bytes; names in batches.meta.txt
 *   CIFAR-100   train.bin, test.bin: 50,000 and 10,000 records of a coarse and a fine label and the same planes; names in
 *               coarse_label_names.txt and fine_label_names.txt
 *
 * Without a file of names, classes are named by their numbers. */
#pragma once

#include "data/pictures.h"

#include <stdbool.h>

enum { CIFAR_SIZE = 32 }; /* pixels per side */

typedef enum cifar_kind { CIFAR_10, CIFAR_100_FINE, CIFAR_100_COARSE } cifar_kind;

typedef struct cifar_options {
    cifar_kind kind;
    bool test;     /* the test set; else the training set */
    bool any_size; /* accept any number of records, for parts of the sets */
} cifar_options;

/* Appends the pictures of a set; out->size must be CIFAR_SIZE. Names the classes if they have no names yet. The files are in
 * directory or in its folder cifar-10-batches-bin or cifar-100-binary. */
int cifar_read(pictures *out, const char *directory, const cifar_options *o);

/* Appends the pictures of one file in memory; name is for messages. */
int cifar_parse(pictures *out, const char *name, const void *bytes, size_t n, cifar_kind kind);
