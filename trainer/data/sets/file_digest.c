#include "data/sets/file_digest.h"

#include "core/error.h"
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16 };

int file_digest(const char *path, digest_kind kind, char hex[DIGEST_HEX],
                void (*progress)(void *context, int64_t done, int64_t total), void *context) {
    char *buffer = malloc(CHUNK);
    const int fd = adamod__file_open(path, O_RDONLY);
    uint64_t at = 0, got = 0;
    struct stat st = {0};
    int error = fd < 0 || fstat(fd, &st) ? errno : 0;
    digest d;
    digest_start(&d, kind);
    while (buffer && !error) {
        if ((error = adamod__file_read(fd, at, buffer, CHUNK, &got)) || got == 0) break;
        digest_add(&d, buffer, (size_t)got);
        at += got;
        if (progress) progress(context, (int64_t)at, (int64_t)st.st_size);
    }
    if (fd >= 0) close(fd);
    digest_end(&d, hex);
    if (!buffer) error = ENOMEM;
    free(buffer);
    return error ? adamod__fail(ADAMOD_ERROR_IO, "%s: cannot read: %s", path, strerror(error)) : 0;
}
