/* download.h - downloads a file with libcurl, which is loaded when needed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DOWNLOAD_SLOWEST = 1000 }; /* bytes a second */

typedef struct download {
    const char *url; /* http, https or file */
    const char *path;
    int64_t size;   /* 0: not known */
    int64_t most;   /* most bytes if neither size nor the server tells its size */
    double timeout; /* seconds without data, or at less than DOWNLOAD_SLOWEST, before giving up */
    void (*progress)(void *context, int64_t done, int64_t total); /* may be NULL */
    void *context;
} download;

typedef enum download_result {
    DOWNLOAD_DONE,
    DOWNLOAD_FAILED, /* another address may work */
    DOWNLOAD_STOPPED /* no address will work: no libcurl, disk full */
} download_result;

/* Continues the file fd at path, or starts it again if the server cannot continue. *resumed: it had a part before. After a
 * failure, the part stays. The file is synced; fd, which may hold a lock, stays open. */
download_result download_run(const download *d, int fd, bool *resumed);
