/* points.h - text as a growing array of code points, for rules that look at neighbouring characters. */
#pragma once

#include "data/unicode.h"
#include "support/array.h"

#include <stdlib.h>
#include <string.h>

typedef struct points {
    uint32_t *at;
    size_t n, room;
    bool failed; /* out of memory */
} points;

static inline void points_add(points *p, uint32_t c) {
    if (ARRAY_RESERVE(p->at, p->n + 1, p->room)) p->at[p->n++] = c;
    else p->failed = true;
}

/* Adds ASCII text. */
static inline void points_add_text(points *p, const char *text) {
    for (; *text; text++) points_add(p, (unsigned char)*text);
}

static inline void points_add_slice(points *p, text_slice text) {
    while (text.n) points_add(p, unicode_next(&text));
}

/* Returns zero-terminated UTF-8, which the caller frees; NULL: out of memory. */
static inline char *points_utf8(const points *p, size_t *n) {
    char *out = p->failed ? NULL : malloc(p->n * 4 + 1);
    *n = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < p->n; i++) *n += unicode_put(p->at[i], out + *n);
    out[*n] = 0;
    return out;
}

/* Makes the output of a rule the input of the next. */
static inline void points_swap(points *in, points *out) {
    const points read = *in;
    *in = *out;
    in->failed = in->failed || read.failed;
    *out = read;
    out->n = 0;
}

static inline void points_free(points *p) {
    free(p->at);
    *p = (points){0};
}
