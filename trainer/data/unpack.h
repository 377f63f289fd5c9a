/* unpack.h - decompresses gzip and zstd, piece by piece. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct unpacker unpacker;

/* Whether this build can decompress "gzip", "zstd". */
bool unpacker_knows(const char *how);
unpacker *unpacker_create(const char *how); /* NULL: out of memory */
void unpacker_free(unpacker *u);            /* NULL is fine */

/* Decompresses `in` into `out`. *n_in and *n_out are the bytes available, then the bytes used. Returns NULL, or what is wrong:
 * "damaged gzip data". As long as there is room in out, nothing is held back. Concatenated members are one text. */
const char *unpacker_run(unpacker *u, const char *in, size_t *n_in, char *out, size_t *n_out);

/* Whether the data are complete. */
bool unpacker_done(const unpacker *u);
