#include "data/sets/folders.h"

#include "support/directory.h"
#include "core/file.h"
#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { LONGEST = 4096 };

int folder_make(const char *path) {
    const int error = directory_make(path, NULL);
    return error ? adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", path, strerror(error)) : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)type;
    (void)where;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

int folder_remove(const char *path) {
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot remove it: %s", path, strerror(errno));
}

int folder_rename(const char *from, const char *to) {
    char parent[LONGEST];
    if (rename(from, to))
        return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(to, '/') - to), to);
    const int fd = adamod__file_open(parent, O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        (void)adamod__file_sync(fd); /* some file systems cannot sync a directory */
        close(fd);
    }
    return 0;
}

int folder_space(const char *path, int64_t needed) {
    struct statvfs st;
    if (needed <= 0 || statvfs(path, &st)) return 0;
    const double left = (double)st.f_bavail * (double)st.f_frsize;
    if (left >= (double)needed) return 0;
    return adamod__refuse("%s: needs %.1f MB, and %.1f MB are free", path, (double)needed / 1e6, left / 1e6);
}

/* Whether fd is still the file at path: the previous owner of the lock may have renamed or removed it. */
static bool is_named(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int folder_lock(const char *path) {
    for (int attempt = 0; attempt < 10; attempt++) {
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", path,
                                errno == ELOOP ? "it is a symbolic link, expected a file" : strerror(errno));
        const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; /* some systems have no locks */
        if (locked && is_named(fd, path)) return fd;
        close(fd);
        if (!locked) break;
    }
    return adamod__refuse("%s: in use by another process", path);
}
