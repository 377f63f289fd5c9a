/* Safetensors: data types, messages, UTF-8 and sorting, for reading and writing. */
#include "core/safetensors_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Data types -------------------------------------------------------------------------------------------------- */

#define ST_DTYPE(name, bits) {#name, bits},
static const struct {
    const char *name;
    unsigned bits;
} st_dtypes[ADAMOD__ST_DTYPES] = {ADAMOD__ST_DTYPE_LIST(ST_DTYPE)};

static int st_dtype_known(adamod__st_dtype dtype) { return (unsigned)dtype < (unsigned)ADAMOD__ST_DTYPES; }

const char *adamod__st_dtype_name(adamod__st_dtype dtype) {
    return st_dtype_known(dtype) ? st_dtypes[dtype].name : NULL;
}

unsigned adamod__st_dtype_bits(adamod__st_dtype dtype) { return st_dtype_known(dtype) ? st_dtypes[dtype].bits : 0; }

const char *adamod__st_tensor_bytes(adamod__st_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes) {
    uint64_t bits = st_dtypes[dtype].bits;
    for (int i = 0; i < ndim; i++) {
        uint64_t dim = (uint64_t)shape[i];
        if (dim && bits > UINT64_MAX / dim) return "the shape's size overflows";
        bits *= dim;
    }
    if (bits % 8) return "the shape is not a whole number of bytes";
    *bytes = bits / 8;
    return NULL;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

adamod_status adamod__st_fail(const char *path, adamod_status status, const char *format, ...) {
    char text[ADAMOD__MESSAGE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return adamod__fail(status, "%s: %s", path, text);
}

adamod_status adamod__st_fail_memory(const char *path) {
    return adamod__st_fail(path, ADAMOD_ERROR_MEMORY, "out of memory");
}

/* strerror may be called from any thread in glibc (since 2.32) and musl; strerror_r is two different functions. */
adamod_status adamod__st_fail_system(const char *path, int error, const char *doing) {
    adamod_status status = error == ENOMEM ? ADAMOD_ERROR_MEMORY : ADAMOD_ERROR_IO;
    return adamod__st_fail(path, status, "%s: %s", doing, strerror(error));
}

st_quoted adamod__st_quote(const char *s) {
    st_quoted out;
    size_t n = 0, room = sizeof out.text - 4;
    unsigned char before = 0;
    for (; n < room && s[n]; n++) {
        unsigned char c = (unsigned char)s[n];
        int control = c < 0x20 || c == 0x7f || (before == 0xc2 && c < 0xa0); /* the last: U+0080 to U+009F */
        out.text[n] = control ? '?' : s[n];
        if (control && c >= 0x80) out.text[n - 1] = '?';
        before = c;
    }
    if (s[n]) {
        while (n && ((unsigned char)s[n] & 0xc0) == 0x80) n--; /* not in the middle of a character */
        memcpy(out.text + n, "...", 3);
        n += 3;
    }
    out.text[n] = '\0';
    return out;
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

size_t adamod__utf8_length(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte: this is what refuses overlong forms and surrogates */
    size_t length;
    if (u[0] < 0x80) return 1;
    if (u[0] >= 0xc2 && u[0] <= 0xdf) length = 2;
    else if (u[0] >= 0xe0 && u[0] <= 0xef) length = 3;
    else if (u[0] >= 0xf0 && u[0] <= 0xf4) length = 4;
    else return 0;
    if (u[0] == 0xe0) low = 0xa0;
    if (u[0] == 0xed) high = 0x9f;
    if (u[0] == 0xf0) low = 0x90;
    if (u[0] == 0xf4) high = 0x8f;
    if (n < length || u[1] < low || u[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    return length;
}

size_t adamod__utf8_encode(uint32_t code, char *out) {
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(n == 1 ? code : code | (0xf00u >> n & 0xffu));
    return n;
}

int adamod__st_utf8_valid(const char *s) {
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        n = adamod__utf8_length(s, left);
        if (!n) return 0;
    }
    return 1;
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

int adamod__st_compare_keys(const void *a, const void *b) {
    return strcmp(((const adamod__st_pair *)a)->key, ((const adamod__st_pair *)b)->key);
}

void adamod__st_sort(void *items, size_t n, size_t size, int (*compare)(const void *, const void *)) {
    if (n > 1) qsort(items, n, size, compare);
}
