/* unpack.h - what gzip or zstd has packed, piece by piece.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef UNPACK_H
#define UNPACK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct unpacker unpacker;

/* "gzip" or "zstd", if this build has zlib or libzstd. */
bool unpacker_knows(const char *how);
unpacker *unpacker_create(const char *how); /* NULL: out of memory */
void unpacker_free(unpacker *u);            /* NULL is fine */

/* Unpacks the bytes at `in` into `out`. *n_in and *n_out are how many there are, then how many were taken and given.
 * NULL, or what is wrong with them: "damaged gzip data". Where there is room, all that follows from what it was given
 * comes out. Members that follow each other, as of files put together, are one text. */
const char *unpacker_run(unpacker *u, const char *in, size_t *n_in, char *out, size_t *n_out);

/* Whether the data may end here. */
bool unpacker_done(const unpacker *u);

#endif
