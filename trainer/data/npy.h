/* npy.h - NumPy's .npy files of float32 and float64.
 *
 * The format: "\x93NUMPY", a version (1.0, 2.0 or 3.0), the length of a header in 2 or 4 bytes (little-endian), the
 * header, the data. The header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
 *
 * Reads float32 and float64 in either byte order ("<f4", ">f8"; the machine's with "=", "|" or none), up to 8 dimensions,
 * in C order. A file must be exactly as long as its header says.
 *
 * Messages begin with the path: "x.npy: dtype '|O' holds Python objects, expected '<f4' or '<f8'". */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NPY_MAX_DIMS 8

typedef enum npy_type { NPY_F32, NPY_F64 } npy_type;

/* 4 or 8 */
size_t npy_type_size(npy_type type);

typedef struct npy_array {
    npy_type type;
    int ndim; /* 0: a single number */
    int64_t shape[NPY_MAX_DIMS];
    size_t count; /* the product of the shape */
    void *data;   /* from malloc, in this machine's byte order; never NULL after success */
} npy_array;

/* Reads a whole file. On failure *out is empty and needs no npy_free. */
int npy_read(const char *path, npy_array *out);

/* Reads a file from memory; path is for messages. */
int npy_parse(const void *bytes, size_t n, const char *path, npy_array *out);

/* Frees the data. An empty array ({0}) is fine. */
void npy_free(npy_array *array);

/* Writes an array of known shape piece by piece, into a temporary file beside it (core/file.h):
 *
 *     npy_writer *w;
 *     if (npy_writer_open(&w, "x.npy", NPY_F32, 2, (int64_t[]){1000, 3})) ...
 *     for (int i = 0; i < 1000; i++)
 *         if (npy_writer_append(w, row, sizeof row)) { npy_writer_abort(w); ... }
 *     if (npy_writer_close(w)) ...
 *
 * npy_writer_close syncs and renames the file if all bytes of the shape were appended, and frees w in any case. After
 * npy_writer_append has failed, call npy_writer_abort, which removes the temporary file and frees w; NULL is fine. */
typedef struct npy_writer npy_writer;

int npy_writer_open(npy_writer **out, const char *path, npy_type type, int ndim, const int64_t *shape);
int npy_writer_append(npy_writer *w, const void *data, size_t bytes);
int npy_writer_close(npy_writer *w);
void npy_writer_abort(npy_writer *w);
