/* base64.h - bytes as text of RFC 4648, with padding and without line breaks.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_BASE64_H
#define ADAMOD_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Characters that n bytes take, without a zero at the end. */
size_t base64_length(size_t n);

/* Writes base64_length(n) characters and a zero. */
void base64_encode(const void *bytes, size_t n, char *out);

/* The way back, of exactly n bytes. False: the text is not base64, or of another number of bytes. */
bool base64_decode(const char *text, void *out, size_t n);

#endif
