#include "support/base64.h"

#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t base64_length(size_t n) { return (n + 2) / 3 * 4; }

void base64_encode(const void *bytes, size_t n, char *out) {
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i += 3, out += 4) {
        const unsigned b = i + 1 < n ? from[i + 1] : 0, c = i + 2 < n ? from[i + 2] : 0;
        const unsigned three = (unsigned)from[i] << 16 | b << 8 | c;
        for (int k = 0; k < 4; k++) out[k] = letters[three >> (18 - 6 * k) & 63];
        if (i + 1 >= n) out[2] = '=';
        if (i + 2 >= n) out[3] = '=';
    }
    *out = '\0';
}

/* The six bits of a letter; -1: not base64. */
static int value_of(char c) {
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

bool base64_decode(const char *text, void *out, size_t n) {
    unsigned char *to = out;
    if (strlen(text) != base64_length(n)) return false;
    for (size_t i = 0; i < n; i += 3, text += 4) {
        const size_t bytes = n - i < 3 ? n - i : 3;
        unsigned three = 0;
        for (size_t k = 0; k < 4; k++) {
            const int value = k <= bytes ? value_of(text[k]) : text[k] == '=' ? 0 : -1;
            if (value < 0) return false;
            three = three << 6 | (unsigned)value;
        }
        for (size_t k = 0; k < bytes; k++) to[i + k] = (unsigned char)(three >> (16 - 8 * k));
    }
    return true;
}
