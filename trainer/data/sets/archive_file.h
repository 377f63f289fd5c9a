/* archive_file.h - unpacks tar archives (compressed by gzip, bzip2, xz or zstd) with libarchive, which is loaded when needed.
 *
 * Archives are not trusted. Only requested members are written, each once, as plain files in new directories. An archive is
 * refused if any member has a name that leads out of the folder (absolute, "..") or is a link or device, if it has too many
 * bytes in all or per compressed byte, or if a requested member is empty. */
#pragma once

#include <stdint.h>

typedef struct archive_options {
    const char *const *members;                                   /* all must be in the archive; ends with NULL */
    int64_t most;                                                 /* unpacked bytes of all members */
    void (*progress)(void *context, int64_t done, int64_t total); /* in bytes of the archive; may be NULL */
    void *context;
} archive_options;

/* Unpacks into a directory that no other process writes to. A failure may leave some files. */
int archive_unpack(const char *path, const char *directory, const archive_options *o);

/* Whether all of it can be unpacked: 1 or 0. -1: that cannot be determined. name is for messages. */
int archive_check(const char *path, const char *name, const archive_options *o);

/* Describes what is wrong with the name of a member; NULL: nothing. */
const char *archive_name_fault(const char *name);

/* Most bytes that packed bytes may unpack to; more is a decompression bomb. */
int64_t archive_most(int64_t packed);

/* Fails if libarchive is missing. */
int archive_missing(void);
