/* error.h - how a call fails: with a status and a one-line message that the thread keeps (adamod_last_error). */
#ifndef ADAMOD_CORE_ERROR_H
#define ADAMOD_CORE_ERROR_H

#include "core/platform.h" /* first */

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The convention of the whole tree: a function that can fail returns 0 (or a pointer that is not NULL, or true), or a negative
 * status after it has set the thread's message with adamod__fail. No function takes a buffer for its message.
 *
 *     if (n < 0) return adamod__refuse("%s is %d, expected a number above 0", name, n);
 *     if (!file) return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path, strerror(errno));
 *     if (parse(text)) return adamod__context("%s:%d: ", path, line);
 *
 * A function that calls others after a failure, to clean up or to look for a remedy, saves the failure if they can fail. */

/* Room for a message with "adamod: " before it; a longer one loses its middle. */
#define ADAMOD__MESSAGE 2056

/* Sets the thread's message and returns status. The arguments may include adamod__last_message(). */
adamod_status adamod__fail(adamod_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails because of wrong input. */
#define adamod__refuse(...) adamod__fail(ADAMOD_ERROR_ARGUMENT, __VA_ARGS__)
/* Puts text in front of the thread's message and returns the status of its failure. */
adamod_status adamod__context(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A failure to report later, or from another thread. */
typedef struct adamod__failure {
    adamod_status status; /* ADAMOD_OK: none */
    char message[ADAMOD__MESSAGE];
} adamod__failure;

/* Copies the thread's last failure. */
void adamod__save_failure(adamod__failure *out);
/* Makes it the thread's last failure and returns its status. */
adamod_status adamod__fail_again(const adamod__failure *failure);

/* The thread's message: adamod_last_error without "adamod: " at its beginning. */
static inline const char *adamod__last_message(void) {
    static const char prefix[] = "adamod: ";
    const char *line = adamod_last_error();
    return strncmp(line, prefix, sizeof prefix - 1) == 0 ? line + sizeof prefix - 1 : line;
}

/* Decodes a UTF-8 character of n bytes. */
unsigned adamod__code_point(const char *text, size_t n);

/* Whether the character at text, with left >= 1 bytes, can be printed to a terminal: valid UTF-8, no control character, no
 * mark that changes the direction of text. Stores its length in *n; 1 if it is not valid. Names come from callers and
 * files, and may be cut. */
bool adamod__is_harmless(const char *text, size_t left, size_t *n);
/* Replaces each character that is not harmless by a question mark, in place. */
void adamod__make_plain(char *text);

/* realloc for n elements of the given size; NULL if the product overflows. */
void *adamod__resize(void *old, size_t n, size_t size);

/* Returns from the calling function with the status of call if that failed. */
#define ADAMOD__TRY(call)                                                                                              \
    do {                                                                                                               \
        const adamod_status adamod__tried = (call);                                                                    \
        if (adamod__tried) return adamod__tried;                                                                       \
    } while (0)

#endif
