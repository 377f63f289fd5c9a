/* scratch.h - a directory of its own for a test program that works with files. Removed when the program ends.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_SCRATCH_H
#define ADAMOD_TESTS_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Makes it the working directory, and empties it. in_memory: where syncing costs nothing, if there is such a place; else
 * under TMPDIR (or /tmp). */
void enter_scratch(bool in_memory);
/* A path in it, which is not made the working directory; it is in memory if it can be. One of many buffers. */
const char *below(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* How many files there are. */
int scratch_files(void);

/* Bytes that were read, which must be fewer than there is room for; 0 if there is no such file. */
size_t get_file(const char *name, void *bytes, size_t room);
void put_file(const char *name, const void *bytes, size_t n);

#endif
