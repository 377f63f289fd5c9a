/* archive_file.h - files out of a tar archive (packed by gzip, bzip2, xz or zstd), by libarchive, which is loaded when it is
 * wanted.
 *
 * An archive may be anything. Only members that are asked for are written, each once, as plain files in directories that
 * are made for them. An archive is refused that has a name which leads out of the folder (absolute, ".."), a link or a
 * device, anywhere; or more bytes, or more for each that was read, than it may have; or if what is asked for is empty.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ARCHIVE_FILE_H
#define ARCHIVE_FILE_H

#include <stddef.h>
#include <stdint.h>

typedef struct archive_options {
    const char *const *members;                                   /* all of which must be there; ends with NULL */
    int64_t most;                                                 /* bytes of all that is in it, taken or not */
    void (*progress)(void *context, int64_t done, int64_t total); /* of the archive's own bytes; may be NULL */
    void *context;
} archive_options;

/* Into a directory that nobody else writes to. A failure may leave some of it. */
int archive_unpack(const char *path, const char *directory, const archive_options *o);
/* The same for an archive in memory; name stands for it in messages. */
int archive_unpack_bytes(const void *bytes, size_t n, const char *name, const char *directory,
                         const archive_options *o);

/* Whether it could be unpacked, all of it: 1, or 0 if not. -1: that cannot be found out here. name stands for it. */
int archive_check(const char *path, const char *name, const archive_options *o);

/* Whether an archive may have a member of this name: NULL, or what is wrong with it. */
const char *archive_name_fault(const char *name);

/* Bytes that so many packed ones may unpack to: more is a bomb. */
int64_t archive_most(int64_t packed);

/* Fails if nothing can be unpacked. */
int archive_missing(void);

#endif
