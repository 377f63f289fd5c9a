/* line_map.h - maps lines of text to lines of text, in order, on several threads. */
#pragma once

#include "support/text.h"

#include <stdbool.h>

typedef struct line_map {
    int threads;                        /* 0: one per core */
    bool any;                           /* lines may be any bytes; else UTF-8, see text_input.h */
    bool (*keeps)(text_slice line);     /* skips lines for which it is false; NULL: none */
    void *(*open)(const void *options); /* a worker per thread; NULL: out of memory */
    void (*close)(void *worker);        /* NULL is fine */
    const void *options;
    /* Returns the new line, which is freed; NULL: out of memory. */
    char *(*run)(void *worker, text_slice line);
    /* Takes the next n new lines. It is called before the map waits for more input, such as from a pipe. */
    int (*take)(void *context, int n, char *const *lines);
    void *context;
} line_map;

/* Maps the lines of n files (text_input.h), or of standard input if n is 0. Passes on all lines before one that is not
 * text, then fails. */
int line_map_run(const line_map *m, int n, const char *const *paths);
