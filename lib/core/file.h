/* file.h - files that are there whole or not at all, and calls that go on after a signal; internal. It knows nothing of
 * optimizers, and every file writer of the repository stands on it.
 *
 * A file is written under a temporary name in its own directory, ".adamod-0.tmp" or, while others of that directory are
 * being written, ".adamod-1.tmp" and so on; then synced, renamed, and the directory synced. The name is not longer than
 * any file's name may be. Its writer holds a lock (flock) on it: so two writers never share one, and what a killed
 * process has left is known as such, and removed by the next writer in that directory. Where locks do not exist, what is
 * left stays, and the next number is taken. */
#ifndef ADAMOD_FILE_H
#define ADAMOD_FILE_H

#include "core/platform.h" /* first */

#include <stddef.h>
#include <stdint.h>

/* open(2) with O_CLOEXEC: a descriptor, or -1 and errno. */
int adamod__file_open(const char *path, int flags);
/* 0, or an errno. *got < size only at the end of the file. */
int adamod__file_read(int fd, uint64_t offset, void *to, uint64_t size, uint64_t *got);
int adamod__file_sync(int fd);
int adamod__file_cut(int fd, uint64_t size);

/* Removes what killed writers have left in a directory, where there is something to remove. */
void adamod__file_clean(const char *directory);

/* A file that is being written. Fields are for reading only. */
typedef struct adamod__output {
    int fd, directory;
    char *path;       /* without symbolic links */
    const char *name; /* the last part of it */
    char temp[24];    /* its name until then; "" when there is none */
    uint64_t size;    /* so far */
    const char *doing;
    int error; /* after a failure: what could not be done, and its errno; 0: doing says all */
} adamod__output;

/* These return 0, or -1 and the reason in out. After a failure nothing is left but to discard it: what was at path before
 * is still there. Only when the directory cannot be synced, which is reported too, is the new file in place. An existing
 * file keeps its permissions, a symbolic link is followed, and what is not a regular file is left alone. */
int adamod__output_open(adamod__output *out, const char *path);
/* At the end of what is written so far; or somewhere else, behind which others may follow. */
int adamod__output_add(adamod__output *out, const void *data, uint64_t size);
int adamod__output_put(adamod__output *out, uint64_t offset, const void *data, uint64_t size);
int adamod__output_commit(adamod__output *out);
/* Frees it, committed or not, once after every adamod__output_open. */
void adamod__output_discard(adamod__output *out);
/* "cannot write: No space left on device". */
void adamod__output_reason(const adamod__output *out, char *text, size_t size);

#endif
