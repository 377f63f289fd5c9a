/* line_map.h - lines of text to lines of text, in order, on many threads.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef LINE_MAP_H
#define LINE_MAP_H

#include "support/text.h"

#include <stdbool.h>

typedef struct line_map {
    int threads;                    /* 0: one for each core */
    bool any;                       /* lines may be any bytes, which run makes text of; else UTF-8, see text_input.h */
    bool (*keeps)(text_slice line); /* lines for which it is false are passed over; NULL: none */
    void *(*open)(const void *options); /* a worker for each thread; NULL: out of memory */
    void (*close)(void *worker);        /* NULL is fine */
    const void *options;
    /* What a line becomes, to be freed; NULL: out of memory. */
    char *(*run)(void *worker, text_slice line);
    /* Takes the next n lines that came out. All before a line that must be waited for, as of a pipe, are given at once. */
    int (*take)(void *context, int n, char *const *lines);
    void *context;
} line_map;

/* Of the files one after the other; see text_input.h. n 0: standard input. What came before a line that is not text is
 * taken before the call fails. */
int line_map_run(const line_map *m, int n, const char *const *paths);

#endif
