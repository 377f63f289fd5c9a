/* buffer.h - bytes or text that grow at the end.
 *
 *     adamod__buffer b = {0};
 *     adamod__buffer_format(&b, "%d,", 7);
 *     if (b.failed) ...                                // one of the calls ran out of memory
 *     adamod__buffer_free(&b);
 *
 * After a failure, adding does nothing, so it is enough to look at `failed` once, at the end. */
#ifndef ADAMOD_CORE_BUFFER_H
#define ADAMOD_CORE_BUFFER_H

#include "core/platform.h" /* first */

#include <stdbool.h>
#include <stddef.h>

typedef struct adamod__buffer {
    char *text; /* n bytes and a terminating 0; NULL before the first addition */
    size_t n, room;
    bool failed;
} adamod__buffer;

void adamod__buffer_add(adamod__buffer *b, const void *bytes, size_t n);
void adamod__buffer_text(adamod__buffer *b, const char *text);
void adamod__buffer_format(adamod__buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Frees the memory and leaves an empty buffer. */
void adamod__buffer_free(adamod__buffer *b);

#endif
