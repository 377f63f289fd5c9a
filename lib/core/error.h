/* error.h - how a call fails: a status, and one line about it that the thread keeps (adamod_last_error). */
#ifndef ADAMOD_CORE_ERROR_H
#define ADAMOD_CORE_ERROR_H

#include "core/platform.h" /* first */

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Writes the thread's last-error line and returns status, so that a failure is one statement. */
adamod_status adamod__fail(adamod_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The thread's last-error line without the "adamod: " it begins with. */
static inline const char *adamod__last_message(void) {
    static const char prefix[] = "adamod: ";
    const char *line = adamod_last_error();
    return strncmp(line, prefix, sizeof prefix - 1) == 0 ? line + sizeof prefix - 1 : line;
}

/* Of a character of n bytes in UTF-8. */
unsigned adamod__code_point(const char *text, size_t n);

/* Names are the caller's or a file's, and may be cut. Whether a terminal can be trusted with the character at text, which has
 * left >= 1 bytes: it is UTF-8, and neither a control nor what changes the direction of text. *n: its bytes; 1 where
 * there is none. */
bool adamod__is_harmless(const char *text, size_t left, size_t *n);
/* Makes every other one a question mark, in place. */
void adamod__make_plain(char *text);

/* A number in the fewest digits, 6 at least, that give it back exactly; for messages. Returns out. */
const char *adamod__number(double x, char out[32]);
/* As strtod in the C locale. */
double adamod__read_number(const char *text, char **end);

/* As realloc for n elements of so many bytes each, where their product may overflow. */
void *adamod__resize(void *old, size_t n, size_t size);

#endif
