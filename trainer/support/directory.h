/* directory.h - a directory with all those above it.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_DIRECTORY_H
#define ADAMOD_DIRECTORY_H

#include <stdbool.h>

/* 0, also if it is there, or the errno of the first that cannot be made: ENOTDIR where a file is in the way. *made, which
 * may be NULL, tells whether the last one was not there. */
int directory_make(const char *path, bool *made);

#endif
