/* points.h - text as a growing array of code points, for rules that look at characters before and behind.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef POINTS_H
#define POINTS_H

#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

typedef struct points {
    uint32_t *at;
    size_t n, room;
    bool failed; /* out of memory: what was added since is missing */
} points;

static inline void points_add(points *p, uint32_t c) {
    if (p->n == p->room) {
        const size_t room = p->room * 2 + 256;
        uint32_t *at = p->failed ? NULL : realloc(p->at, room * sizeof *at);
        p->failed = !at;
        if (!at) return;
        p->at = at;
        p->room = room;
    }
    p->at[p->n++] = c;
}

/* ASCII. */
static inline void points_add_text(points *p, const char *text) {
    for (; *text; text++) points_add(p, (unsigned char)*text);
}

static inline void points_add_slice(points *p, text_slice text) {
    while (text.n) points_add(p, unicode_next(&text));
}

/* As UTF-8, terminated, to be freed; NULL: out of memory. */
static inline char *points_utf8(const points *p, size_t *n) {
    char *out = p->failed ? NULL : malloc(p->n * 4 + 1);
    *n = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < p->n; i++) *n += unicode_put(p->at[i], out + *n);
    out[*n] = 0;
    return out;
}

static inline void points_free(points *p) {
    free(p->at);
    *p = (points){0};
}

#endif
