/* snapshot.h - what can be seen of an optimizer and its arrays, as bytes, to tell whether a call changed anything.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_SNAPSHOT_H
#define ADAMOD_TESTS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct snapshot {
    unsigned char bytes[1 << 16];
    size_t n;
} snapshot;

void snapshot_put(snapshot *s, const void *data, size_t n);
bool snapshot_same(const snapshot *a, const snapshot *b);

#endif
