/* text_lines.h - for commands of `adamod text` that turn lines into lines: from files or standard input to standard output,
 * in order, on several threads. */
#pragma once

#include "cli/cli.h"

#include "support/text.h"

typedef struct text_lines {
    cli_operands paths; /* none: standard input */
    int64_t threads;    /* 0: one for each core */
    bool any;           /* lines may be any bytes; else UTF-8 */
    const void *options;
    /* Makes the worker of a thread; NULL: out of memory. */
    void *(*open)(const void *options);
    void (*close)(void *worker);
    /* Returns the line to print, which is freed; NULL: out of memory. */
    char *(*run)(void *worker, text_slice line);
} text_lines;

/* Returns the exit status. Stops at a line that is not text, after printing those before it. Lines from a pipe are answered
 * one by one. */
int text_lines_run(const char *command, const text_lines *t);

/* The flag for text_lines.threads of a struct of arguments with a member `lines`. */
#define TEXT_THREADS_FLAG                                                                                              \
    CLI_WHOLE("threads", "N", "threads; 0: one for each core (0)", arguments, lines.threads, 0, 1024)
