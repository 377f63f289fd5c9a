/* safetensors.c - see safetensors.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors data is little-endian and is moved here as it is: this machine would need conversion"
#endif

_Static_assert(sizeof(off_t) >= 8, "compile with -D_FILE_OFFSET_BITS=64, for files above 2 GiB");

#define ST_TRY(call)                                                                                                   \
    do {                                                                                                               \
        adamod_status st_status = (call);                                                                              \
        if (st_status != ADAMOD_OK) return st_status;                                                                  \
    } while (0)

/* Linux moves at most 2 GiB - 4 KiB in one call, and other systems refuse more than INT_MAX. */
#define ST_MAX_TRANSFER ((size_t)1 << 30)

/* ---- Data types -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned bits;
} st_dtypes[ADAMOD__ST_DTYPES] = {
    [ADAMOD__ST_F32] = {"F32", 32},
    [ADAMOD__ST_F64] = {"F64", 64},
    [ADAMOD__ST_BF16] = {"BF16", 16},
    [ADAMOD__ST_F16] = {"F16", 16},
    [ADAMOD__ST_I64] = {"I64", 64},
    [ADAMOD__ST_I32] = {"I32", 32},
    [ADAMOD__ST_U8] = {"U8", 8},
    [ADAMOD__ST_I8] = {"I8", 8},
    [ADAMOD__ST_I16] = {"I16", 16},
    [ADAMOD__ST_U16] = {"U16", 16},
    [ADAMOD__ST_U32] = {"U32", 32},
    [ADAMOD__ST_U64] = {"U64", 64},
    [ADAMOD__ST_BOOL] = {"BOOL", 8},
    [ADAMOD__ST_C64] = {"C64", 64},
    [ADAMOD__ST_F8_E4M3] = {"F8_E4M3", 8},
    [ADAMOD__ST_F8_E5M2] = {"F8_E5M2", 8},
    [ADAMOD__ST_F8_E8M0] = {"F8_E8M0", 8},
    [ADAMOD__ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [ADAMOD__ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [ADAMOD__ST_F6_E2M3] = {"F6_E2M3", 6},
    [ADAMOD__ST_F6_E3M2] = {"F6_E3M2", 6},
    [ADAMOD__ST_F4] = {"F4", 4},
};

static int st_dtype_known(adamod__st_dtype dtype) { return (unsigned)dtype < (unsigned)ADAMOD__ST_DTYPES; }

const char *adamod__st_dtype_name(adamod__st_dtype dtype) {
    return st_dtype_known(dtype) ? st_dtypes[dtype].name : NULL;
}

unsigned adamod__st_dtype_bits(adamod__st_dtype dtype) { return st_dtype_known(dtype) ? st_dtypes[dtype].bits : 0; }

/* NULL, or why there is no such tensor. */
static const char *st_tensor_bytes(adamod__st_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes) {
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

typedef struct st_report {
    const char *path;
    char *msg;
    size_t size;
} st_report;

static adamod_status st_fail(const st_report *to, adamod_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static adamod_status st_fail(const st_report *to, adamod_status status, const char *format, ...) {
    int used = snprintf(to->msg, to->size, "%s: ", to->path);
    if (used >= 0 && (size_t)used < to->size) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(to->msg + used, to->size - (size_t)used, format, args);
        va_end(args);
    }
    return status;
}

static adamod_status st_fail_memory(const st_report *to) { return st_fail(to, ADAMOD_ERROR_MEMORY, "out of memory"); }

/* strerror may be called from any thread in glibc (since 2.32) and musl; strerror_r is two different functions. */
static adamod_status st_fail_system(const st_report *to, int error, const char *doing) {
    adamod_status status = error == ENOMEM ? ADAMOD_ERROR_MEMORY : ADAMOD_ERROR_IO;
    return st_fail(to, status, "%s: %s", doing, strerror(error));
}

/* Text from a file, cut and cleaned so that a message stays one line that a terminal can be trusted with. */
typedef struct st_quoted {
    char text[64];
} st_quoted;

static st_quoted st_quote(const char *s) {
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

static int st_utf8_valid(const char *s) {
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        n = adamod__utf8_length(s, left);
        if (!n) return 0;
    }
    return 1;
}

static size_t st_utf8_encode(uint32_t c, char *out) {
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)(lead[length] | c);
    return length;
}

/* ---- Header: JSON ------------------------------------------------------------------------------------------------ */

/* The header has one shape only, so the parser is that shape: it does not recurse, and nothing is ever skipped. */
typedef struct st_parser {
    const st_report *to;
    const char *json;
    size_t len, pos;
    const char *tensor; /* being parsed, for messages */
    adamod__st_file *file;
    size_t text_used;
    size_t max_entries, max_metadata;
    int metadata_seen;
} st_parser;

static adamod_status st_malformed(const st_parser *ps, const char *format, ...) __attribute__((format(printf, 2, 3)));

static adamod_status st_malformed(const st_parser *ps, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!ps->tensor) return st_fail(ps->to, ADAMOD_ERROR_FORMAT, "header byte %zu: %s", ps->pos, text);
    return st_fail(ps->to, ADAMOD_ERROR_FORMAT, "header byte %zu, tensor \"%s\": %s", ps->pos,
                   st_quote(ps->tensor).text, text);
}

static adamod_status st_unexpected(const st_parser *ps, const char *expected) {
    if (ps->pos >= ps->len) return st_malformed(ps, "expected %s, found the end of the header", expected);
    unsigned char c = (unsigned char)ps->json[ps->pos];
    if (c <= 0x20 || c >= 0x7f) return st_malformed(ps, "expected %s, found byte 0x%02x", expected, c);
    return st_malformed(ps, "expected %s, found '%c'", expected, c);
}

static void st_skip_space(st_parser *ps) {
    while (ps->pos < ps->len && memchr(" \t\n\r", ps->json[ps->pos], 4)) ps->pos++;
}

static int st_at(const st_parser *ps, char c) { return ps->pos < ps->len && ps->json[ps->pos] == c; }

static adamod_status st_expect(st_parser *ps, char c) {
    st_skip_space(ps);
    if (!st_at(ps, c)) return st_unexpected(ps, (const char[]){'\'', c, '\'', '\0'});
    ps->pos++;
    return ADAMOD_OK;
}

/* Inside of an object or array, before its item number n: is there one? Takes the comma, or the closing bracket. */
static adamod_status st_next_item(st_parser *ps, char closing, size_t n, int *more) {
    st_skip_space(ps);
    *more = !st_at(ps, closing);
    if (!*more || (n && st_at(ps, ','))) ps->pos++;
    else if (n) return st_unexpected(ps, closing == '}' ? "',' or '}'" : "',' or ']'");
    return ADAMOD_OK;
}

static adamod_status st_parse_hex4(st_parser *ps, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, ps->pos++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = ps->pos < ps->len ? memchr(digits, ps->json[ps->pos], 32) : NULL;
        if (!digit) return st_unexpected(ps, "four hexadecimal digits after \\u");
        *out = *out << 4 | (uint32_t)((digit - digits) & 15);
    }
    return ADAMOD_OK;
}

/* After "\u": one character, for which a surrogate takes a second escape. */
static adamod_status st_parse_unicode(st_parser *ps, uint32_t *out) {
    uint32_t low = 0;
    ST_TRY(st_parse_hex4(ps, out));
    if (*out == 0) return st_malformed(ps, "the character U+0000 is not allowed");
    if (*out < 0xd800 || *out > 0xdfff) return ADAMOD_OK;
    if (*out > 0xdbff || ps->len - ps->pos < 2 || memcmp(ps->json + ps->pos, "\\u", 2))
        return st_malformed(ps, "lone surrogate \\u%04" PRIx32, *out);
    ps->pos += 2;
    ST_TRY(st_parse_hex4(ps, &low));
    if (low < 0xdc00 || low > 0xdfff) return st_malformed(ps, "lone surrogate \\u%04" PRIx32, *out);
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return ADAMOD_OK;
}

static adamod_status st_parse_escape(st_parser *ps, uint32_t *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    ps->pos++;
    if (st_at(ps, 'u')) {
        ps->pos++;
        return st_parse_unicode(ps, out);
    }
    const char *found = ps->pos < ps->len ? memchr(from, ps->json[ps->pos], sizeof from - 1) : NULL;
    if (!found) return st_unexpected(ps, "one of \"\\/bfnrtu after a backslash");
    *out = (unsigned char)to[found - from];
    ps->pos++;
    return ADAMOD_OK;
}

/* Decoded into file->text, which is as long as the header: no escape is shorter than the UTF-8 it stands for, and the
 * quotes leave room for the null. */
static adamod_status st_parse_string(st_parser *ps, const char *expected, const char **out) {
    st_skip_space(ps);
    if (!st_at(ps, '"')) return st_unexpected(ps, expected);
    ps->pos++;
    char *start = ps->file->text + ps->text_used, *to = start;
    while (!st_at(ps, '"')) {
        if (ps->pos == ps->len) return st_unexpected(ps, "'\"' to end a string");
        if (st_at(ps, '\\')) {
            uint32_t c = 0;
            ST_TRY(st_parse_escape(ps, &c));
            to += st_utf8_encode(c, to);
            continue;
        }
        size_t n = adamod__utf8_length(ps->json + ps->pos, ps->len - ps->pos);
        if (!n) return st_malformed(ps, "invalid UTF-8");
        if ((unsigned char)ps->json[ps->pos] < 0x20) return st_unexpected(ps, "a control character to be escaped");
        memcpy(to, ps->json + ps->pos, n);
        to += n;
        ps->pos += n;
    }
    ps->pos++;
    *to++ = '\0';
    ps->text_used += (size_t)(to - start);
    *out = start;
    return ADAMOD_OK;
}

static adamod_status st_parse_integer(st_parser *ps, uint64_t max, uint64_t *out) {
    st_skip_space(ps);
    size_t start = ps->pos;
    uint64_t value = 0;
    for (; ps->pos < ps->len && ps->json[ps->pos] >= '0' && ps->json[ps->pos] <= '9'; ps->pos++) {
        unsigned digit = (unsigned)(ps->json[ps->pos] - '0');
        if (value > (max - digit) / 10) return st_malformed(ps, "a number is above %" PRIu64, max);
        value = value * 10 + digit;
    }
    if (ps->pos == start) return st_unexpected(ps, "a non-negative integer");
    if (ps->json[start] == '0' && ps->pos - start > 1) return st_malformed(ps, "a number has a leading zero");
    if (st_at(ps, '.') || st_at(ps, 'e') || st_at(ps, 'E')) return st_unexpected(ps, "an integer to end");
    *out = value;
    return ADAMOD_OK;
}

/* ---- Header: its members ----------------------------------------------------------------------------------------- */

static adamod_status st_parse_dtype(st_parser *ps, adamod__st_entry *entry) {
    const char *name = "";
    ST_TRY(st_parse_string(ps, "a string for dtype", &name));
    for (int i = 0; i < ADAMOD__ST_DTYPES; i++) {
        if (strcmp(name, st_dtypes[i].name)) continue;
        entry->dtype = (adamod__st_dtype)i;
        return ADAMOD_OK;
    }
    return st_malformed(ps, "unknown dtype \"%s\"", st_quote(name).text);
}

static adamod_status st_parse_shape(st_parser *ps, adamod__st_entry *entry) {
    ST_TRY(st_expect(ps, '['));
    for (int n = 0;; n++) {
        int more = 0;
        uint64_t dim = 0;
        ST_TRY(st_next_item(ps, ']', (size_t)n, &more));
        entry->ndim = n;
        if (!more) return ADAMOD_OK;
        if (n == ADAMOD_MAX_DIMS) return st_malformed(ps, "shape has more than %d dimensions", ADAMOD_MAX_DIMS);
        ST_TRY(st_parse_integer(ps, INT64_MAX, &dim));
        entry->shape[n] = (int64_t)dim;
    }
}

static adamod_status st_parse_offsets(st_parser *ps, adamod__st_entry *entry) {
    ST_TRY(st_expect(ps, '['));
    ST_TRY(st_parse_integer(ps, UINT64_MAX, &entry->begin));
    ST_TRY(st_expect(ps, ','));
    ST_TRY(st_parse_integer(ps, UINT64_MAX, &entry->end));
    return st_expect(ps, ']');
}

static adamod_status st_parse_fields(st_parser *ps, adamod__st_entry *entry) {
    static const struct {
        const char *name;
        adamod_status (*parse)(st_parser *ps, adamod__st_entry *entry);
    } fields[] = {{"dtype", st_parse_dtype}, {"shape", st_parse_shape}, {"data_offsets", st_parse_offsets}};
    int seen[3] = {0};
    ST_TRY(st_expect(ps, '{'));
    for (size_t n = 0;; n++) {
        int more = 0, i = 0;
        const char *key = "";
        ST_TRY(st_next_item(ps, '}', n, &more));
        if (!more) break;
        ST_TRY(st_parse_string(ps, "a field's name", &key));
        while (i < 3 && strcmp(key, fields[i].name)) i++;
        if (i == 3) return st_malformed(ps, "unknown field \"%s\"", st_quote(key).text);
        if (seen[i]++) return st_malformed(ps, "%s is given twice", key);
        ST_TRY(st_expect(ps, ':'));
        ST_TRY(fields[i].parse(ps, entry));
    }
    for (int i = 0; i < 3; i++)
        if (!seen[i]) return st_malformed(ps, "%s is missing", fields[i].name);
    return ADAMOD_OK;
}

/* One more element, in *items of *max elements, n of them used. */
static void *st_grow(void *items, size_t n, size_t *max, size_t size) {
    if (n < *max) return items;
    size_t new_max = *max ? *max * 2 : 16;
    void *bigger = new_max > SIZE_MAX / size ? NULL : realloc(items, new_max * size);
    if (bigger) *max = new_max;
    return bigger;
}

static adamod_status st_check_entry(const st_report *to, const adamod__st_entry *e, uint64_t data_size) {
    st_quoted name = st_quote(e->name);
    uint64_t bytes;
    if (e->begin > e->end || e->end > data_size)
        return st_fail(to, ADAMOD_ERROR_FORMAT,
                       "tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64 "] are not a range within %" PRIu64
                       " bytes of data",
                       name.text, e->begin, e->end, data_size);
    const char *why = st_tensor_bytes(e->dtype, e->ndim, e->shape, &bytes);
    if (why) return st_fail(to, ADAMOD_ERROR_FORMAT, "tensor \"%s\": %s", name.text, why);
    if (bytes != e->end - e->begin)
        return st_fail(to, ADAMOD_ERROR_FORMAT,
                       "tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64 "] hold %" PRIu64
                       " bytes, shape and dtype %s need %" PRIu64,
                       name.text, e->begin, e->end, e->end - e->begin, st_dtypes[e->dtype].name, bytes);
    return ADAMOD_OK;
}

static adamod_status st_parse_tensor(st_parser *ps, const char *name, uint64_t data_size) {
    adamod__st_file *file = ps->file;
    void *entries = st_grow(file->entries, file->n_entries, &ps->max_entries, sizeof *file->entries);
    if (!entries) return st_fail_memory(ps->to);
    file->entries = entries;
    adamod__st_entry *entry = &file->entries[file->n_entries];
    *entry = (adamod__st_entry){.name = name};
    ps->tensor = name;
    ST_TRY(st_parse_fields(ps, entry));
    ps->tensor = NULL;
    ST_TRY(st_check_entry(ps->to, entry, data_size));
    file->n_entries++;
    return ADAMOD_OK;
}

static adamod_status st_parse_metadata(st_parser *ps) {
    adamod__st_file *file = ps->file;
    if (ps->metadata_seen++) return st_malformed(ps, "__metadata__ is given twice");
    ST_TRY(st_expect(ps, '{'));
    for (;;) {
        int more = 0;
        ST_TRY(st_next_item(ps, '}', file->n_metadata, &more));
        if (!more) return ADAMOD_OK;
        void *pairs = st_grow(file->metadata, file->n_metadata, &ps->max_metadata, sizeof *file->metadata);
        if (!pairs) return st_fail_memory(ps->to);
        file->metadata = pairs;
        adamod__st_pair *pair = &file->metadata[file->n_metadata];
        ST_TRY(st_parse_string(ps, "a key of __metadata__", &pair->key));
        ST_TRY(st_expect(ps, ':'));
        ST_TRY(st_parse_string(ps, "a string as a value of __metadata__", &pair->value));
        file->n_metadata++;
    }
}

static adamod_status st_parse_header(st_parser *ps, uint64_t data_size) {
    if (!st_at(ps, '{')) return st_unexpected(ps, "'{'");
    ps->pos++;
    for (size_t n = 0;; n++) {
        int more = 0;
        const char *name = "";
        ST_TRY(st_next_item(ps, '}', n, &more));
        if (!more) break;
        ST_TRY(st_parse_string(ps, "a tensor's name", &name));
        ST_TRY(st_expect(ps, ':'));
        if (!strcmp(name, "__metadata__")) ST_TRY(st_parse_metadata(ps));
        else ST_TRY(st_parse_tensor(ps, name, data_size));
    }
    while (st_at(ps, ' ')) ps->pos++;
    return ps->pos == ps->len ? ADAMOD_OK : st_unexpected(ps, "nothing but spaces after the last '}'");
}

/* ---- Header: the whole ------------------------------------------------------------------------------------------- */

static int st_compare_offsets(const void *a, const void *b) {
    const adamod__st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int st_compare_names(const void *a, const void *b) {
    return strcmp(((const adamod__st_entry *)a)->name, ((const adamod__st_entry *)b)->name);
}

static int st_compare_keys(const void *a, const void *b) {
    return strcmp(((const adamod__st_pair *)a)->key, ((const adamod__st_pair *)b)->key);
}

static void st_sort(void *items, size_t n, size_t size, int (*compare)(const void *, const void *)) {
    if (n > 1) qsort(items, n, size, compare);
}

/* The tensors fill the data from its first byte to its last, each beginning where the one before ends. */
static adamod_status st_check_layout(const st_report *to, adamod__st_file *file, uint64_t data_size) {
    uint64_t end = 0;
    st_sort(file->entries, file->n_entries, sizeof *file->entries, st_compare_offsets);
    for (size_t i = 0; i < file->n_entries; i++) {
        const adamod__st_entry *e = &file->entries[i];
        if (e->begin != end)
            return st_fail(to, ADAMOD_ERROR_FORMAT,
                           "tensor \"%s\": begins at byte %" PRIu64 " of the data and %s, expected %" PRIu64,
                           st_quote(e->name).text, e->begin,
                           e->begin < end ? "overlaps the one before" : "leaves a hole", end);
        end = e->end;
    }
    if (end != data_size)
        return st_fail(to, ADAMOD_ERROR_FORMAT,
                       "the tensors end at byte %" PRIu64 " of the data, which has %" PRIu64 " bytes", end, data_size);
    return ADAMOD_OK;
}

static adamod_status st_check_names(const st_report *to, adamod__st_file *file) {
    st_sort(file->entries, file->n_entries, sizeof *file->entries, st_compare_names);
    for (size_t i = 1; i < file->n_entries; i++)
        if (!st_compare_names(&file->entries[i - 1], &file->entries[i]))
            return st_fail(to, ADAMOD_ERROR_FORMAT, "tensor \"%s\" is there twice",
                           st_quote(file->entries[i].name).text);
    st_sort(file->metadata, file->n_metadata, sizeof *file->metadata, st_compare_keys);
    for (size_t i = 1; i < file->n_metadata; i++)
        if (!st_compare_keys(&file->metadata[i - 1], &file->metadata[i]))
            return st_fail(to, ADAMOD_ERROR_FORMAT, "__metadata__ has \"%s\" twice",
                           st_quote(file->metadata[i].key).text);
    return ADAMOD_OK;
}

static adamod_status st_parse_all(const st_report *to, const char *json, size_t len, uint64_t data_size,
                                  adamod__st_file *file) {
    st_parser ps = {.to = to, .json = json, .len = len, .file = file};
    if (!len) return st_fail(to, ADAMOD_ERROR_FORMAT, "the header is empty");
    if (len > ADAMOD__ST_MAX_HEADER)
        return st_fail(to, ADAMOD_ERROR_FORMAT, "header length %zu exceeds the limit of %u bytes", len,
                       ADAMOD__ST_MAX_HEADER);
    file->text = malloc(len);
    if (!file->text) return st_fail_memory(to);
    ST_TRY(st_parse_header(&ps, data_size));
    ST_TRY(st_check_layout(to, file, data_size));
    return st_check_names(to, file);
}

adamod_status adamod__st_parse(const char *json, size_t len, uint64_t data_size, const char *path, adamod__st_file *out,
                               char *msg, size_t msg_size) {
    st_report to = {path, msg, msg_size};
    *out = (adamod__st_file){0};
    adamod_status status = st_parse_all(&to, json, len, data_size, out);
    if (status != ADAMOD_OK) adamod__st_close(out);
    return status;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static adamod_status st_read_at(const st_report *to, int fd, uint64_t offset, void *dst, uint64_t size) {
    char *p = dst;
    while (size) {
        ssize_t n = pread(fd, p, size < ST_MAX_TRANSFER ? (size_t)size : ST_MAX_TRANSFER, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return st_fail_system(to, errno, "cannot read");
        if (n == 0)
            return st_fail(to, ADAMOD_ERROR_FORMAT, "ends at byte %" PRIu64 ", expected %" PRIu64 " more bytes", offset,
                           size);
        p += n;
        offset += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return ADAMOD_OK;
}

static adamod_status st_read_header_length(const st_report *to, int fd, uint64_t *length, uint64_t *file_size) {
    struct stat st;
    unsigned char bytes[8];
    if (fstat(fd, &st) < 0) return st_fail_system(to, errno, "cannot read");
    if (!S_ISREG(st.st_mode)) return st_fail(to, ADAMOD_ERROR_IO, "not a regular file");
    *file_size = (uint64_t)st.st_size;
    if (*file_size < 8)
        return st_fail(to, ADAMOD_ERROR_FORMAT, "%" PRIu64 " bytes are too few for a safetensors file", *file_size);
    ST_TRY(st_read_at(to, fd, 0, bytes, 8));
    *length = 0;
    for (int i = 7; i >= 0; i--) *length = *length << 8 | bytes[i];
    if (*length > *file_size - 8)
        return st_fail(to, ADAMOD_ERROR_FORMAT, "header length %" PRIu64 " exceeds the file's %" PRIu64 " bytes",
                       *length, *file_size);
    if (*length > ADAMOD__ST_MAX_HEADER)
        return st_fail(to, ADAMOD_ERROR_FORMAT, "header length %" PRIu64 " exceeds the limit of %u bytes", *length,
                       ADAMOD__ST_MAX_HEADER);
    return ADAMOD_OK;
}

static adamod_status st_read_header(const st_report *to, int fd, adamod__st_file *out) {
    uint64_t length = 0, file_size = 0;
    ST_TRY(st_read_header_length(to, fd, &length, &file_size));
    char *json = malloc(length ? (size_t)length : 1);
    if (!json) return st_fail_memory(to);
    adamod_status status = st_read_at(to, fd, 8, json, length);
    if (status == ADAMOD_OK) status = st_parse_all(to, json, (size_t)length, file_size - 8 - length, out);
    free(json);
    out->data_start = 8 + length;
    return status;
}

adamod_status adamod__st_open(const char *path, adamod__st_file *out, char *msg, size_t msg_size) {
    st_report to = {path, msg, msg_size};
    *out = (adamod__st_file){0};
    /* Without O_NONBLOCK, opening a pipe would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return st_fail_system(&to, errno, "cannot open");
    adamod_status status = st_read_header(&to, fd, out);
    if (status == ADAMOD_OK) {
        out->path = strdup(path);
        if (!out->path) status = st_fail_memory(&to);
    }
    out->fd = fd;
    if (status == ADAMOD_OK) return ADAMOD_OK;
    close(fd);
    adamod__st_close(out);
    return status;
}

const adamod__st_entry *adamod__st_find(const adamod__st_file *file, const char *name) {
    adamod__st_entry key = {.name = name};
    if (!file->n_entries) return NULL;
    return bsearch(&key, file->entries, file->n_entries, sizeof key, st_compare_names);
}

const char *adamod__st_metadata(const adamod__st_file *file, const char *key) {
    adamod__st_pair wanted = {.key = key};
    if (!file->n_metadata) return NULL;
    const adamod__st_pair *pair = bsearch(&wanted, file->metadata, file->n_metadata, sizeof wanted, st_compare_keys);
    return pair ? pair->value : NULL;
}

adamod_status adamod__st_read(const adamod__st_file *file, const adamod__st_entry *entry, void *dst, char *msg,
                              size_t msg_size) {
    st_report to = {file->path ? file->path : "safetensors", msg, msg_size};
    if (!file->path) return st_fail(&to, ADAMOD_ERROR_ARGUMENT, "no file is open");
    return st_read_at(&to, file->fd, file->data_start + entry->begin, dst, entry->end - entry->begin);
}

void adamod__st_close(adamod__st_file *file) {
    if (!file) return;
    if (file->path) close(file->fd);
    free(file->path);
    free(file->entries);
    free(file->metadata);
    free(file->text);
    *file = (adamod__st_file){0};
}

/* ---- Writing: the header ----------------------------------------------------------------------------------------- */

/* Text that grows up to the longest header there may be. After a failure, adding does nothing. */
typedef struct st_builder {
    char *text;
    size_t used, max;
    adamod_status status;
} st_builder;

#define ST_MAX_TEXT ((size_t)8 + ADAMOD__ST_MAX_HEADER)

static void st_add(st_builder *b, const char *text, size_t n) {
    if (b->status != ADAMOD_OK) return;
    if (n > ST_MAX_TEXT - b->used) {
        b->status = ADAMOD_ERROR_ARGUMENT;
        return;
    }
    if (n > b->max - b->used) {
        size_t max = b->used * 2 + n + 64;
        char *bigger = realloc(b->text, max);
        if (!bigger) {
            b->status = ADAMOD_ERROR_MEMORY;
            return;
        }
        b->text = bigger;
        b->max = max;
    }
    memcpy(b->text + b->used, text, n);
    b->used += n;
}

static void st_add_format(st_builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void st_add_format(st_builder *b, const char *format, ...) {
    char text[96]; /* two numbers of 20 digits and what stands around them */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    st_add(b, text, (size_t)n);
}

static void st_add_string(st_builder *b, const char *s) {
    st_add(b, "\"", 1);
    while (*s) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\') plain++;
        st_add(b, s, plain);
        s += plain;
        if (!*s) break;
        if ((unsigned char)*s < 0x20) st_add_format(b, "\\u%04x", (unsigned)(unsigned char)*s);
        else st_add_format(b, "\\%c", *s);
        s++;
    }
    st_add(b, "\"", 1);
}

static void st_add_tensor(st_builder *b, const adamod__st_tensor *t, uint64_t begin, uint64_t end) {
    st_add_string(b, t->name);
    st_add_format(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtypes[t->dtype].name);
    for (int i = 0; i < t->ndim; i++) st_add_format(b, "%s%" PRId64, i ? "," : "", t->shape[i]);
    st_add_format(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

static adamod_status st_check_tensor(const st_report *to, const adamod__st_tensor *t, uint64_t *bytes) {
    if (!t->name) return st_fail(to, ADAMOD_ERROR_ARGUMENT, "a tensor has no name");
    st_quoted name = st_quote(t->name);
    if (!st_utf8_valid(t->name))
        return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\": the name is not UTF-8", name.text);
    if (!strcmp(t->name, "__metadata__"))
        return st_fail(to, ADAMOD_ERROR_ARGUMENT, "a tensor cannot have the name \"__metadata__\"");
    if (!st_dtype_known(t->dtype))
        return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\": unknown dtype %d", name.text, (int)t->dtype);
    if (t->ndim < 0 || t->ndim > ADAMOD_MAX_DIMS)
        return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\": %d dimensions, expected 0 to %d", name.text, t->ndim,
                       ADAMOD_MAX_DIMS);
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0)
            return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\": dimension %d is %" PRId64 ", expected >= 0",
                           name.text, i, t->shape[i]);
    const char *why = st_tensor_bytes(t->dtype, t->ndim, t->shape, bytes);
    return why ? st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\": %s", name.text, why) : ADAMOD_OK;
}

static int st_compare_order_names(const void *a, const void *b) {
    const adamod__st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int st_compare_order(const void *a, const void *b) {
    const adamod__st_tensor *const *x = a, *const *y = b;
    unsigned bits_x = st_dtypes[(*x)->dtype].bits, bits_y = st_dtypes[(*y)->dtype].bits;
    return bits_x != bits_y ? (bits_x > bits_y ? -1 : 1) : st_compare_order_names(a, b);
}

/* Checks the tensors and puts them in their order in the file. */
static adamod_status st_order_tensors(const st_report *to, const adamod__st_tensor *tensors, size_t n,
                                      const adamod__st_tensor ***out) {
    const adamod__st_tensor **order = n > SIZE_MAX / sizeof *order ? NULL : malloc(n ? n * sizeof *order : 1);
    if (!order) return st_fail_memory(to);
    *out = order;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        ST_TRY(st_check_tensor(to, &tensors[i], &bytes));
        if (bytes > (uint64_t)INT64_MAX - ADAMOD__ST_MAX_HEADER - 8 - total)
            return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\": the data is too large for a file",
                           st_quote(tensors[i].name).text);
        total += bytes;
        order[i] = &tensors[i];
    }
    st_sort(order, n, sizeof *order, st_compare_order_names);
    for (size_t i = 1; i < n; i++)
        if (!st_compare_order_names(&order[i - 1], &order[i]))
            return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\" is there twice", st_quote(order[i]->name).text);
    st_sort(order, n, sizeof *order, st_compare_order);
    return ADAMOD_OK;
}

static adamod_status st_check_metadata(const st_report *to, const adamod__st_pair *metadata, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const adamod__st_pair *m = &metadata[i];
        if (!m->key || !m->value) return st_fail(to, ADAMOD_ERROR_ARGUMENT, "metadata %zu has no key or no value", i);
        if (!st_utf8_valid(m->key) || !st_utf8_valid(m->value))
            return st_fail(to, ADAMOD_ERROR_ARGUMENT, "metadata \"%s\" is not UTF-8", st_quote(m->key).text);
    }
    if (n < 2) return ADAMOD_OK;
    adamod__st_pair *sorted = n > SIZE_MAX / sizeof *sorted ? NULL : malloc(n * sizeof *sorted);
    if (!sorted) return st_fail_memory(to);
    memcpy(sorted, metadata, n * sizeof *sorted);
    st_sort(sorted, n, sizeof *sorted, st_compare_keys);
    const char *twice = NULL;
    for (size_t i = 1; i < n && !twice; i++)
        if (!st_compare_keys(&sorted[i - 1], &sorted[i])) twice = sorted[i].key;
    free(sorted);
    return twice ? st_fail(to, ADAMOD_ERROR_ARGUMENT, "metadata \"%s\" is there twice", st_quote(twice).text)
                 : ADAMOD_OK;
}

static void st_add_metadata(st_builder *b, const adamod__st_pair *metadata, size_t n) {
    st_add_string(b, "__metadata__");
    for (size_t i = 0; i < n; i++) {
        st_add(b, i ? "," : ":{", i ? 1 : 2);
        st_add_string(b, metadata[i].key);
        st_add(b, ":", 1);
        st_add_string(b, metadata[i].value);
    }
    st_add(b, "}", 1);
}

static adamod_status st_make_header(const st_report *to, const adamod__st_pair *metadata, size_t n_metadata,
                                    size_t n_tensors, adamod__st_plan *plan) {
    st_builder b = {0};
    uint64_t begin = 0;
    st_add(&b, "\0\0\0\0\0\0\0\0{", 9);
    if (n_metadata) st_add_metadata(&b, metadata, n_metadata);
    for (size_t i = 0; i < n_tensors; i++) {
        const adamod__st_tensor *t = plan->order[i];
        uint64_t bytes = 0;
        (void)st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        if (i || n_metadata) st_add(&b, ",", 1);
        st_add_tensor(&b, t, begin, begin + bytes);
        begin += bytes;
    }
    st_add(&b, "}", 1);
    st_add(&b, "       ", (8 - b.used % 8) % 8);
    plan->header = b.text;
    plan->header_size = b.used;
    if (b.status == ADAMOD_ERROR_MEMORY) return st_fail_memory(to);
    if (b.status != ADAMOD_OK)
        return st_fail(to, b.status, "the header would exceed the limit of %u bytes", ADAMOD__ST_MAX_HEADER);
    for (int i = 0; i < 8; i++) b.text[i] = (char)(unsigned char)((uint64_t)(b.used - 8) >> (8 * i) & 0xff);
    return ADAMOD_OK;
}

adamod_status adamod__st_plan_make(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                                   const adamod__st_tensor *tensors, size_t n_tensors, adamod__st_plan *out, char *msg,
                                   size_t msg_size) {
    st_report to = {path, msg, msg_size};
    *out = (adamod__st_plan){0};
    adamod_status status = st_check_metadata(&to, metadata, n_metadata);
    if (status == ADAMOD_OK) status = st_order_tensors(&to, tensors, n_tensors, &out->order);
    if (status == ADAMOD_OK) status = st_make_header(&to, metadata, n_metadata, n_tensors, out);
    if (status != ADAMOD_OK) adamod__st_plan_free(out);
    return status;
}

void adamod__st_plan_free(adamod__st_plan *plan) {
    free(plan->header);
    free(plan->order);
    *plan = (adamod__st_plan){0};
}

/* ---- Writing: the file ------------------------------------------------------------------------------------------- */

/* A file that appears under its name only when it is complete. */
typedef struct st_output {
    const st_report *to;
    char *path; /* where the data will be: without symbolic links */
    char *temp; /* where it is until then; NULL once it is gone */
    int fd;
} st_output;

static void st_output_discard(st_output *out) {
    if (out->fd >= 0) close(out->fd);
    if (out->temp) unlink(out->temp);
    free(out->temp);
    free(out->path);
}

static adamod_status st_resolve_link(st_output *out, const char *path) {
    struct stat st;
    int is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    out->path = is_link ? realpath(path, NULL) : strdup(path);
    if (out->path) return ADAMOD_OK;
    return st_fail_system(out->to, errno, is_link ? "cannot follow the symbolic link" : "cannot write");
}

/* A number may still be taken by a process that had this one's id and was killed, hence the tries. */
static adamod_status st_create_temp(st_output *out) {
    size_t size = strlen(out->path) + 64;
    out->temp = malloc(size);
    if (!out->temp) return st_fail_memory(out->to);
    for (int i = 0; i < 100; i++) {
        snprintf(out->temp, size, i ? "%s.tmp.%ld.%d" : "%s.tmp.%ld", out->path, (long)getpid(), i);
        out->fd = open(out->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->fd >= 0) return ADAMOD_OK;
        if (errno != EEXIST && errno != EINTR) break;
    }
    int error = errno;
    free(out->temp);
    out->temp = NULL;
    return st_fail_system(out->to, error, "cannot create a temporary file beside it");
}

static adamod_status st_output_open(st_output *out, const char *path) {
    struct stat st;
    ST_TRY(st_resolve_link(out, path));
    int exists = stat(out->path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) return st_fail(out->to, ADAMOD_ERROR_IO, "exists and is not a regular file");
    ST_TRY(st_create_temp(out));
    /* Some file systems have no permissions to set; that is no reason to lose the data. */
    if (exists) (void)fchmod(out->fd, st.st_mode & 0777);
    return ADAMOD_OK;
}

static adamod_status st_output_write(st_output *out, const void *data, uint64_t size) {
    const char *p = data;
    while (size) {
        ssize_t n = write(out->fd, p, size < ST_MAX_TRANSFER ? (size_t)size : ST_MAX_TRANSFER);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return st_fail_system(out->to, n ? errno : EIO, "cannot write");
        p += n;
        size -= (uint64_t)n;
    }
    return ADAMOD_OK;
}

static int st_sync_fd(int fd) {
    int result;
    do result = fsync(fd);
    while (result < 0 && errno == EINTR);
    return result;
}

/* The rename itself lasts only once the directory is on disk. Where a directory may not be read, or its file system
 * does not sync directories, nothing more can be done and there is nothing to report. */
static adamod_status st_sync_directory(st_output *out) {
    char *slash = strrchr(out->path, '/');
    if (slash) slash[slash == out->path] = '\0';
    int fd = open(slash ? out->path : ".", O_RDONLY | O_CLOEXEC);
    int error = fd < 0 || st_sync_fd(fd) < 0 ? errno : 0;
    if (fd >= 0) close(fd);
    if (!error || error == EACCES || error == EINVAL || error == ENOTSUP) return ADAMOD_OK;
    return st_fail_system(out->to, error, "written, but cannot sync its directory");
}

static adamod_status st_output_commit(st_output *out) {
    if (st_sync_fd(out->fd) < 0) return st_fail_system(out->to, errno, "cannot sync");
    int closed = close(out->fd);
    out->fd = -1;
    if (closed < 0 && errno != EINTR) return st_fail_system(out->to, errno, "cannot close");
    if (rename(out->temp, out->path) < 0)
        return st_fail_system(out->to, errno, "cannot rename the temporary file to it");
    free(out->temp);
    out->temp = NULL;
    return st_sync_directory(out);
}

static adamod_status st_write_tensors(st_output *out, const adamod__st_plan *plan, size_t n) {
    ST_TRY(st_output_write(out, plan->header, plan->header_size));
    for (size_t i = 0; i < n; i++) {
        const adamod__st_tensor *t = plan->order[i];
        uint64_t bytes = 0;
        (void)st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        ST_TRY(st_output_write(out, t->data, bytes));
    }
    return st_output_commit(out);
}

static adamod_status st_check_data(const st_report *to, const adamod__st_tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const adamod__st_tensor *t = &tensors[i];
        uint64_t bytes = 0;
        (void)st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        if (bytes && !t->data)
            return st_fail(to, ADAMOD_ERROR_ARGUMENT, "tensor \"%s\" has no data", st_quote(t->name).text);
    }
    return ADAMOD_OK;
}

adamod_status adamod__st_write(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                               const adamod__st_tensor *tensors, size_t n_tensors, char *msg, size_t msg_size) {
    st_report to = {path, msg, msg_size};
    st_output out = {.to = &to, .fd = -1};
    adamod__st_plan plan;
    ST_TRY(adamod__st_plan_make(path, metadata, n_metadata, tensors, n_tensors, &plan, msg, msg_size));
    adamod_status status = st_check_data(&to, tensors, n_tensors);
    if (status == ADAMOD_OK) status = st_output_open(&out, path);
    if (status == ADAMOD_OK) status = st_write_tensors(&out, &plan, n_tensors);
    st_output_discard(&out);
    adamod__st_plan_free(&plan);
    return status;
}
