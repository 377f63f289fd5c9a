/* Bytes to compare: see snapshot.h. */
#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

void snapshot_put(snapshot *s, const void *data, size_t n) {
    if (s->n + n > sizeof s->bytes) abort();
    if (n) memcpy(s->bytes + s->n, data, n);
    s->n += n;
}

bool snapshot_same(const snapshot *a, const snapshot *b) { return a->n == b->n && !memcmp(a->bytes, b->bytes, a->n); }
