/* child.h - functions in a process of their own, since their effects cannot be undone: limits, rights, mounts.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_CHILD_H
#define ADAMOD_TESTS_CHILD_H

#include <stdbool.h>

/* Runs the function in a new process. Returns the text that it returned there, valid until the next call; NULL: it failed. */
const char *in_child(const char *(*function)(void));

/* These are for such a process. They return false if it lacks the rights. */
/* Writes beyond this size fail. */
bool limit_files(unsigned bytes);
/* Mounts an empty file system of a size such as "64k" on a directory, for this process alone. */
bool mount_small_disk(const char *directory, const char *size);

#endif
