#include "core/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for n bytes and a terminating 0. */
static bool adamod__buffer_reserve(adamod__buffer *b, size_t n) {
    if (b->failed || n < b->room - b->n) return !b->failed;
    const size_t room = 2 * (b->n + n) + 128;
    char *grown = room > b->n + n ? realloc(b->text, room) : NULL; /* else it overflowed */
    b->failed = !grown;
    if (!grown) return false;
    b->text = grown;
    b->room = room;
    return true;
}

void adamod__buffer_add(adamod__buffer *b, const void *bytes, size_t n) {
    if (!adamod__buffer_reserve(b, n)) return;
    if (n) memcpy(b->text + b->n, bytes, n);
    b->n += n;
    b->text[b->n] = '\0';
}

void adamod__buffer_text(adamod__buffer *b, const char *text) { adamod__buffer_add(b, text, strlen(text)); }

void adamod__buffer_format(adamod__buffer *b, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int n = vsnprintf(NULL, 0, format, arguments);
    if (n < 0) b->failed = true;
    if (n >= 0 && adamod__buffer_reserve(b, (size_t)n)) {
        vsnprintf(b->text + b->n, (size_t)n + 1, format, again);
        b->n += (size_t)n;
    }
    va_end(again);
    va_end(arguments);
}

void adamod__buffer_free(adamod__buffer *b) {
    free(b->text);
    *b = (adamod__buffer){0};
}
