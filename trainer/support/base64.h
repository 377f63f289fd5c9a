/* base64.h - base64 of RFC 4648, with padding and without line breaks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Characters of n encoded bytes, without the terminating zero. */
size_t base64_length(size_t n);

/* Writes base64_length(n) characters and a zero. */
void base64_encode(const void *bytes, size_t n, char *out);

/* Decodes to exactly n bytes. False if text is not base64 of n bytes. */
bool base64_decode(const char *text, void *out, size_t n);
