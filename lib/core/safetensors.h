/* safetensors.h - reads and writes safetensors files.
 *
 * The format: the length of a JSON header in 8 bytes (little-endian), the header, the data. The header maps each
 * tensor's name to {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, offsets counting from the start of
 * the data, and may hold {"__metadata__": {"key": "value", ...}}.
 *
 * Files written here have checksums in their metadata ("crc32" and "crc32.data", see docs/c-api.md), which are verified
 * when the header and a tensor are read. Callers neither give nor get these keys. Files without checksums are read too.
 *
 * Input is not trusted. The reader refuses what the format's own reader refuses (a header above 100 MB, overlaps, holes,
 * bytes left over, sizes that do not follow from dtype and shape), and also duplicate names and keys, unknown fields, the
 * character U+0000, more than 8 dimensions and numbers that are not plain integers. It needs memory in proportion to the
 * header's real length n, and time in proportion to n log n.
 *
 * Messages begin with the file's path:
 * "x.safetensors: tensor "w": data_offsets [0, 8] hold 8 bytes, shape and dtype F32 need 12".
 * Memory comes from malloc. Nothing is global; one adamod__st_file may be read by several threads at once. */
#ifndef ADAMOD_SAFETENSORS_H
#define ADAMOD_SAFETENSORS_H

#include "core/platform.h" /* first */

#include "adamod.h"

#include <stddef.h>
#include <stdint.h>

#define ADAMOD__ST_MAX_HEADER 100000000u

/* The length of the character at s, which has n >= 1 bytes; 0 if it is not well-formed UTF-8. */
size_t adamod__utf8_length(const char *s, size_t n);
/* Writes a code point as UTF-8. Returns its 1 to 4 bytes. */
size_t adamod__utf8_encode(uint32_t code, char *out);

/* clang-format off */
/* The data types and the bits of an element. The first four have the values of adamod_type. */
#define ADAMOD__ST_DTYPE_LIST(X)                                                                                       \
    X(F32, 32) X(F64, 64) X(BF16, 16) X(F16, 16) X(I64, 64) X(I32, 32) X(U8, 8) X(I8, 8) X(I16, 16) X(U16, 16)         \
    X(U32, 32) X(U64, 64) X(BOOL, 8) X(C64, 64) X(F8_E4M3, 8) X(F8_E5M2, 8) X(F8_E8M0, 8) X(F8_E4M3FNUZ, 8)            \
    X(F8_E5M2FNUZ, 8) X(F6_E2M3, 6) X(F6_E3M2, 6) X(F4, 4)
/* clang-format on */

#define ADAMOD__ST_DTYPE_ID(name, bits) ADAMOD__ST_##name,
typedef enum adamod__st_dtype { ADAMOD__ST_DTYPE_LIST(ADAMOD__ST_DTYPE_ID) ADAMOD__ST_DTYPES } adamod__st_dtype;
_Static_assert((int)ADAMOD__ST_F32 == ADAMOD_F32 && (int)ADAMOD__ST_F64 == ADAMOD_F64 &&
                   (int)ADAMOD__ST_BF16 == ADAMOD_BF16 && (int)ADAMOD__ST_F16 == ADAMOD_F16,
               "types of adamod.h are converted by a cast");

typedef struct adamod__st_pair {
    const char *key, *value;
} adamod__st_pair;

/* Stores the size of a tensor's data in *bytes and returns NULL, or returns why there is no such tensor. */
const char *adamod__st_tensor_bytes(adamod__st_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes);

/* A tensor in a file: data bytes [begin, end). */
typedef struct adamod__st_entry {
    const char *name;
    adamod__st_dtype dtype;
    int ndim;
    int64_t shape[ADAMOD_MAX_DIMS];
    uint64_t begin, end;
    uint32_t sum; /* CRC-32 of the data, if the file has checksums */
} adamod__st_entry;

typedef struct adamod__st_file {
    adamod__st_entry *entries; /* sorted by name, by bytes */
    size_t n_entries;
    adamod__st_pair *metadata; /* sorted by key */
    size_t n_metadata;
    int summed; /* it has checksums */
    char *text; /* holds all strings */
    char *path; /* NULL unless opened from a file; fd and data_start are then unused */
    int fd;
    uint64_t data_start;
} adamod__st_file;

/* A tensor to be written; data may be NULL if the shape has no elements. */
typedef struct adamod__st_tensor {
    const char *name;
    adamod__st_dtype dtype;
    int ndim;
    int64_t shape[ADAMOD_MAX_DIMS];
    const void *data;
} adamod__st_tensor;

/* Return the name ("F32") and the bits of an element (also 4 and 6); NULL and 0 for an unknown value. */
const char *adamod__st_dtype_name(adamod__st_dtype dtype);
unsigned adamod__st_dtype_bits(adamod__st_dtype dtype);

/* Opens a file and checks all of its header. Refuses a header of more than `most` bytes before allocating memory for it. On
 * failure *out is empty, and closing it does nothing. */
adamod_status adamod__st_open_within(const char *path, uint64_t most, adamod__st_file *out);

/* Return NULL if there is none. Results are valid until the file is closed. */
const adamod__st_entry *adamod__st_find(const adamod__st_file *file, const char *name);
const char *adamod__st_metadata(const adamod__st_file *file, const char *key);

/* Reads the end - begin bytes of an entry of this file, and verifies its checksum. */
adamod_status adamod__st_read(const adamod__st_file *file, const adamod__st_entry *entry, void *dst);

/* Frees everything; file may be NULL, {0} or closed already. */
void adamod__st_close(adamod__st_file *file);

/* Writes a file, replacing it atomically (file.h). Tensors are sorted by element size, largest first, then by name: each is
 * aligned to its elements, and equal input gives equal bytes. */
adamod_status adamod__st_write(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                               const adamod__st_tensor *tensors, size_t n_tensors);

/* The contents of a file to write: the header with its length, then the data of n tensors in this order. */
typedef struct adamod__st_plan {
    char *header;
    size_t header_size, sum_at, sums_at; /* positions of the checksums' digits in the header */
    const adamod__st_tensor **order;
    size_t n;
} adamod__st_plan;

adamod_status adamod__st_plan_make(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                                   const adamod__st_tensor *tensors, size_t n_tensors, adamod__st_plan *out);
/* Sets the checksum of the header, once those of all tensors are set. */
void adamod__st_plan_seal(adamod__st_plan *plan);
void adamod__st_plan_free(adamod__st_plan *plan);

#endif
