#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) >= 8, "compile with -D_FILE_OFFSET_BITS=64, for files above 2 GiB");

/* Linux transfers at most 2 GiB - 4 KiB in one call; other systems refuse more than INT_MAX. */
#define FILE_MAX_TRANSFER ((size_t)1 << 30)
/* Limit of files written at once in one directory. */
#define FILE_SLOTS 1000

/* ---- Calls that a signal may interrupt ---------------------------------------------------------------------------- */

static int file_open_at(int directory, const char *name, int flags) {
    int fd;
    do fd = openat(directory, name, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int adamod__file_open(const char *path, int flags) { return file_open_at(AT_FDCWD, path, flags); }

int adamod__file_read(int fd, uint64_t offset, void *to, uint64_t size, uint64_t *got) {
    *got = 0;
    while (*got < size) {
        const uint64_t left = size - *got;
        const ssize_t n = pread(fd, (char *)to + *got, left < FILE_MAX_TRANSFER ? (size_t)left : FILE_MAX_TRANSFER,
                                (off_t)(offset + *got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return 0;
        *got += (uint64_t)n;
    }
    return 0;
}

int adamod__file_sync(int fd) {
    int result;
    do result = fsync(fd);
    while (result < 0 && errno == EINTR);
    return result < 0 ? errno : 0;
}

int adamod__file_cut(int fd, uint64_t size) {
    int result;
    do result = ftruncate(fd, (off_t)size);
    while (result < 0 && errno == EINTR);
    return result < 0 ? errno : 0;
}

static int file_write(int fd, uint64_t offset, const char *data, uint64_t size) {
    while (size) {
        const ssize_t n = pwrite(fd, data, size < FILE_MAX_TRANSFER ? (size_t)size : FILE_MAX_TRANSFER, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        data += n;
        offset += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return 0;
}

/* Whether name refers to the open file. */
static bool file_is_at(int fd, int directory, const char *name) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(directory, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* On some file systems a signal can interrupt a rename that is already done; the second try then finds no file. */
static int file_rename(const adamod__output *out) {
    int result;
    do result = renameat(out->directory, out->temp, out->directory, out->name);
    while (result < 0 && errno == EINTR);
    const int error = result < 0 ? errno : 0;
    return error == ENOENT && file_is_at(out->fd, out->directory, out->name) ? 0 : error;
}

/* ---- The temporary name ------------------------------------------------------------------------------------------- */

/* 0: the lock is ours; EWOULDBLOCK: another has it; else there are no locks here. */
static int file_lock(int fd) { return flock(fd, LOCK_EX | LOCK_NB) ? errno : 0; }

static void file_name_temp(char name[24], int slot) { snprintf(name, 24, ".adamod-%d.tmp", slot); }

/* Removes a temporary file whose writer is gone. Returns false if it has a writer, or that is unknown. Only the holder of
 * the lock may remove or rename the file, so no other process can take it between the check and the removal. */
static bool file_remove_stale(int directory, const char *name) {
    struct stat st;
    const int fd = file_open_at(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT;
    bool gone = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && file_lock(fd) == 0;
    if (gone && file_is_at(fd, directory, name)) gone = unlinkat(directory, name, 0) == 0;
    close(fd);
    return gone;
}

/* Between the creation of a file and its lock, another process may have taken it for a stale one. */
static bool file_claim(const adamod__output *out) {
    const int error = file_lock(out->fd);
    if (error == EWOULDBLOCK) return false;
    return error || file_is_at(out->fd, out->directory, out->temp);
}

/* Removes the leftovers of killed processes in the slots after this one. */
static void file_sweep(int directory, int slot) {
    char name[24];
    struct stat st;
    while (++slot < FILE_SLOTS) {
        file_name_temp(name, slot);
        if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW)) return;
        (void)file_remove_stale(directory, name);
    }
}

void adamod__file_clean(const char *directory) {
    const int fd = adamod__file_open(directory, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return;
    file_sweep(fd, -1);
    close(fd);
}

/* Returns 0 or an errno. */
static int file_create_temp(adamod__output *out) {
    for (int slot = 0; slot < FILE_SLOTS; slot++) {
        file_name_temp(out->temp, slot);
        for (int tries = 0; tries < 8; tries++) {
            out->fd = file_open_at(out->directory, out->temp, O_RDWR | O_CREAT | O_EXCL);
            if (out->fd < 0 && errno != EEXIST) {
                const int error = errno;
                out->temp[0] = '\0';
                return error;
            }
            if (out->fd < 0) {
                if (!file_remove_stale(out->directory, out->temp)) break;
                continue;
            }
            if (file_claim(out)) {
                file_sweep(out->directory, slot);
                return 0;
            }
            close(out->fd);
            out->fd = -1;
        }
    }
    out->temp[0] = '\0';
    return EBUSY;
}

/* ---- A file that is being written --------------------------------------------------------------------------------- */

static int file_failed(adamod__output *out, const char *doing, int error) {
    out->doing = doing;
    out->error = error;
    return -1;
}

static int file_resolve(adamod__output *out, const char *path) {
    struct stat st;
    const bool exists = lstat(path, &st) == 0, is_link = exists && S_ISLNK(st.st_mode);
    if (!exists && errno != ENOENT) return file_failed(out, "cannot write", errno);
    out->path = is_link ? realpath(path, NULL) : strdup(path);
    if (!out->path) return file_failed(out, is_link ? "cannot follow the symbolic link" : "cannot write", errno);
    char *slash = strrchr(out->path, '/');
    out->name = slash ? slash + 1 : out->path;
    return *out->name ? 0 : file_failed(out, "cannot write", *out->path ? EISDIR : ENOENT);
}

/* A directory that may be written but not read can be used; it only cannot be synced. */
static int file_open_directory(adamod__output *out) {
    const size_t n = (size_t)(out->name - out->path);
    char *parent = n ? strndup(out->path, n) : strdup(".");
    if (!parent) return ENOMEM;
    out->directory = adamod__file_open(parent, O_RDONLY | O_DIRECTORY);
    if (out->directory < 0 && errno == EACCES) out->directory = adamod__file_open(parent, O_PATH | O_DIRECTORY);
    const int error = out->directory < 0 ? errno : 0;
    free(parent);
    return error;
}

int adamod__output_open(adamod__output *out, const char *path) {
    struct stat st;
    *out = (adamod__output){.fd = -1, .directory = -1};
    if (file_resolve(out, path)) return -1;
    int error = file_open_directory(out);
    if (error) return file_failed(out, "cannot create a temporary file beside it", error);
    const bool exists = fstatat(out->directory, out->name, &st, 0) == 0;
    if (!exists && errno != ENOENT) return file_failed(out, "cannot write", errno);
    if (exists && !S_ISREG(st.st_mode)) return file_failed(out, "exists and is not a regular file", 0);
    error = file_create_temp(out);
    if (error) return file_failed(out, "cannot create a temporary file beside it", error);
    /* Some file systems have no permissions to set; that is no reason to lose the data. */
    if (exists) (void)fchmod(out->fd, st.st_mode & 0777);
    return 0;
}

int adamod__output_put(adamod__output *out, uint64_t offset, const void *data, uint64_t size) {
    const int error = file_write(out->fd, offset, data, size);
    if (error) return file_failed(out, "cannot write", error);
    if (out->size < offset + size) out->size = offset + size;
    return 0;
}

int adamod__output_add(adamod__output *out, const void *data, uint64_t size) {
    return adamod__output_put(out, out->size, data, size);
}

/* The rename is durable only once the directory is synced. That is not possible, and no error, if the directory may not
 * be read or its file system does not sync directories. */
static int file_sync_directory(adamod__output *out) {
    const int error = adamod__file_sync(out->directory);
    if (!error || error == EBADF || error == EINVAL || error == ENOTSUP) return 0;
    return file_failed(out, "written, but cannot sync its directory", error);
}

int adamod__output_commit(adamod__output *out) {
    int error = adamod__file_sync(out->fd);
    if (error) return file_failed(out, "cannot sync", error);
    error = file_rename(out); /* before close, which ends the lock */
    if (error) return file_failed(out, "cannot rename the temporary file to it", error);
    out->temp[0] = '\0';
    return file_sync_directory(out);
}

void adamod__output_discard(adamod__output *out) {
    if (*out->temp) (void)unlinkat(out->directory, out->temp, 0);
    if (out->fd >= 0) close(out->fd);
    if (out->directory >= 0) close(out->directory);
    free(out->path);
    *out = (adamod__output){.fd = -1, .directory = -1};
}

/* strerror may be called from any thread in glibc (since 2.32) and musl; strerror_r is two different functions. */
void adamod__output_reason(const adamod__output *out, char *text, size_t size) {
    snprintf(text, size, "%s%s%s", out->doing, out->error ? ": " : "", out->error ? strerror(out->error) : "");
}
