/* file.h - atomic replacement of files, and system calls that are repeated after a signal.
 *
 * A file is written under a temporary name in its directory, then synced and renamed, and the directory is synced. The
 * temporary name is ".adamod-N.tmp", with the first N that is free. Its writer holds a lock (flock) on it, so two writers
 * never share one, and the next writer in the directory can tell and remove the leftovers of a killed process. Without
 * locks, leftovers stay and the next N is used. */
#ifndef ADAMOD_FILE_H
#define ADAMOD_FILE_H

#include "core/platform.h" /* first */

#include <stddef.h>
#include <stdint.h>

/* open(2) with O_CLOEXEC: returns a descriptor, or -1 with errno set. */
int adamod__file_open(const char *path, int flags);
/* These return 0 or an errno. Reading stores the number of bytes in *got; it is below size only at the end of the file. */
int adamod__file_read(int fd, uint64_t offset, void *to, uint64_t size, uint64_t *got);
int adamod__file_sync(int fd);
int adamod__file_cut(int fd, uint64_t size);

/* Removes the temporary files that killed writers left in a directory. */
void adamod__file_clean(const char *directory);

/* A file that is being written. Fields are for reading only. */
typedef struct adamod__output {
    int fd, directory;
    char *path;        /* without symbolic links */
    const char *name;  /* last part of path */
    char temp[24];     /* temporary name; "": there is no temporary file */
    uint64_t size;     /* so far */
    const char *doing; /* after a failure: what could not be done */
    int error;         /* and its errno; 0: doing says all */
} adamod__output;

/* These return 0, or -1 with the reason in out. After a failure, discard it: the old file is still at path, except if
 * only the sync of the directory failed, which comes after the rename. An existing file keeps its permissions, a symbolic
 * link is followed, and anything but a regular file is refused. */
int adamod__output_open(adamod__output *out, const char *path);
/* Write at the end of the file so far, or at an offset. */
int adamod__output_add(adamod__output *out, const void *data, uint64_t size);
int adamod__output_put(adamod__output *out, uint64_t offset, const void *data, uint64_t size);
int adamod__output_commit(adamod__output *out);
/* Call once after each adamod__output_open, committed or not. */
void adamod__output_discard(adamod__output *out);
/* Writes the reason of a failure: "cannot write: No space left on device". */
void adamod__output_reason(const adamod__output *out, char *text, size_t size);

#endif
