/* download.h - a file from a server, by libcurl, which is loaded when it is wanted.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef DOWNLOAD_H
#define DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DOWNLOAD_SLOWEST = 1000 }; /* bytes a second */

typedef struct download {
    const char *url; /* http, https or file */
    const char *path;
    int64_t size; /* that it has; 0: not known */
    int64_t most; /* bytes that it may have, where neither its size is known nor the server announces one */
    double
        timeout; /* seconds without data, or with less than is worth waiting for, after which the server is given up */
    void (*progress)(void *context, int64_t done, int64_t total); /* NULL: nobody wants to know */
    void *context;
} download;

typedef enum download_result {
    DOWNLOAD_DONE,
    DOWNLOAD_FAILED, /* this address; another may do */
    DOWNLOAD_STOPPED /* this machine: no libcurl, no room */
} download_result;

/* Writes what the server has to path, from its end on, if the server can do that; if not, from the beginning. *resumed:
 * some of it had been there before. What was written before a failure stays. The file is then synced, not closed for
 * others: the caller holds its lock, as fd. */
download_result download_run(const download *d, int fd, bool *resumed);

/* Fails if there can be no downloads. */
int download_missing(void);

#endif
