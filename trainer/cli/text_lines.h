/* text_lines.h - what the commands of `adamod text` share that turn lines into lines: files or standard input in, standard
 * output out, in order, on many threads.
 */
#ifndef CLI_TEXT_LINES_H
#define CLI_TEXT_LINES_H

#include "cli/cli.h"

#include "support/text.h"

typedef struct text_lines {
    const char *command;
    char **paths; /* n of them; 0: standard input */
    int n;
    int64_t threads; /* 0: one for each core */
    const void *options;
    /* A worker for each thread; NULL: out of memory. */
    void *(*open)(const void *options);
    void (*close)(void *worker);
    /* What a line becomes, to be freed; NULL: out of memory. */
    char *(*run)(void *worker, text_slice line);
} text_lines;

/* Exit status. A line that is not text ends it after those before; lines of a pipe are answered as they come. */
int text_lines_run(const text_lines *t);

#define TEXT_THREADS_FLAG                                                                                              \
    { "threads", "N", "threads; 0: one for each core (0)" }

#endif
