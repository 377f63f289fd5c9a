/* npy.c - see npy.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "data/npy.h"

#include "core/error.h"
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) < 0) return -1;                                                                                     \
    } while (0)

/* Linux moves at most 2 GiB - 4 KiB in one call, and other systems refuse more than INT_MAX. */
#define MAX_TRANSFER ((size_t)1 << 30)

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define MAX_PREAMBLE 12 /* magic, version and the longer of the two lengths */

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static int fail(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(const char *path, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return adamod__refuse("%s: %s", path, text);
}

static int fail_memory(const char *path) { return fail(path, "out of memory"); }

static int fail_system(const char *path, int error, const char *doing) {
    return fail(path, "%s: %s", doing, strerror(error));
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

size_t npy_type_size(npy_type type) { return type == NPY_F64 ? 8 : 4; }

static char host_order(void) {
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first ? '<' : '>';
}

static void swap_bytes(void *data, size_t count, size_t size) {
    unsigned char *p = data;
    for (size_t i = 0; i < count; i++, p += size) {
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char byte = p[a];
            p[a] = p[b];
            p[b] = byte;
        }
    }
}

/* ---- Header: a Python dict --------------------------------------------------------------------------------------- */

typedef struct slice {
    const char *text;
    int length;
} slice;

typedef struct parser {
    const char *path;
    const char *text;
    size_t len, pos;
    npy_array *array;
    int swapped, fortran;
} parser;

static int unexpected(const parser *ps, const char *expected) {
    if (ps->pos >= ps->len) return fail(ps->path, "header ends where %s was expected", expected);
    unsigned char c = (unsigned char)ps->text[ps->pos];
    if (c <= 0x20 || c >= 0x7f)
        return fail(ps->path, "header byte %zu: expected %s, found byte 0x%02x", ps->pos, expected, c);
    return fail(ps->path, "header byte %zu: expected %s, found '%c'", ps->pos, expected, c);
}

static void skip_space(parser *ps) {
    while (ps->pos < ps->len && memchr(" \t\n\r", ps->text[ps->pos], 4)) ps->pos++;
}

static int take(parser *ps, char c) {
    skip_space(ps);
    if (ps->pos >= ps->len || ps->text[ps->pos] != c) return 0;
    ps->pos++;
    return 1;
}

static int take_word(parser *ps, const char *word) {
    size_t n = strlen(word);
    skip_space(ps);
    if (ps->len - ps->pos < n || memcmp(ps->text + ps->pos, word, n)) return 0;
    ps->pos += n;
    return 1;
}

/* Neither the keys nor any dtype that can be read here have a quote, a backslash or anything beyond ASCII. */
static int parse_string(parser *ps, const char *expected, slice *out) {
    char quote = take(ps, '\'') ? '\'' : take(ps, '"') ? '"' : '\0';
    if (!quote) return unexpected(ps, expected);
    size_t start = ps->pos;
    for (; ps->pos < ps->len && ps->text[ps->pos] != quote; ps->pos++) {
        unsigned char c = (unsigned char)ps->text[ps->pos];
        if (c < 0x20 || c >= 0x7f || c == '\\' || ps->pos - start >= 60)
            return unexpected(ps, "at most 60 plain characters in quotes");
    }
    *out = (slice){ps->text + start, (int)(ps->pos - start)};
    return take(ps, quote) ? 0 : unexpected(ps, "the closing quote");
}

static int equals(slice s, const char *text) {
    return (size_t)s.length == strlen(text) && !memcmp(s.text, text, strlen(text));
}

static int parse_descr(parser *ps) {
    slice descr = {0};
    skip_space(ps);
    if (ps->pos < ps->len && memchr("[({", ps->text[ps->pos], 3))
        return fail(ps->path, "a structured dtype (header byte %zu), expected '<f4' or '<f8'", ps->pos);
    TRY(parse_string(ps, "a dtype in quotes", &descr));
    slice kind = descr;
    char order = host_order();
    if (kind.length && memchr("<>=|", kind.text[0], 4)) {
        if (kind.text[0] == '<' || kind.text[0] == '>') order = kind.text[0];
        kind.text++;
        kind.length--;
    }
    if (kind.length && kind.text[0] == 'O')
        return fail(ps->path, "dtype '%.*s' holds Python objects, expected '<f4' or '<f8'", descr.length, descr.text);
    if (!equals(kind, "f4") && !equals(kind, "f8"))
        return fail(ps->path, "dtype '%.*s' cannot be read, expected '<f4' or '<f8'", descr.length, descr.text);
    ps->array->type = kind.text[1] == '4' ? NPY_F32 : NPY_F64;
    ps->swapped = order != host_order();
    return 0;
}

static int parse_fortran_order(parser *ps) {
    ps->fortran = take_word(ps, "True");
    return ps->fortran || take_word(ps, "False") ? 0 : unexpected(ps, "True or False");
}

static int parse_dimension(parser *ps, int64_t *out) {
    skip_space(ps);
    size_t start = ps->pos;
    int64_t value = 0;
    for (; ps->pos < ps->len && ps->text[ps->pos] >= '0' && ps->text[ps->pos] <= '9'; ps->pos++) {
        int digit = ps->text[ps->pos] - '0';
        if (value > (INT64_MAX - digit) / 10)
            return fail(ps->path, "header byte %zu: a dimension is above %" PRId64, start, INT64_MAX);
        value = value * 10 + digit;
    }
    if (ps->pos == start) return unexpected(ps, "a dimension");
    if (ps->pos < ps->len && ps->text[ps->pos] == 'L') ps->pos++; /* a long integer, as Python 2 wrote it */
    *out = value;
    return 0;
}

static int parse_shape(parser *ps) {
    npy_array *array = ps->array;
    if (!take(ps, '(')) return unexpected(ps, "'(' of a tuple");
    for (array->ndim = 0; !take(ps, ')'); array->ndim++) {
        if (array->ndim == NPY_MAX_DIMS) return fail(ps->path, "shape has more than %d dimensions", NPY_MAX_DIMS);
        TRY(parse_dimension(ps, &array->shape[array->ndim]));
        if (take(ps, ',')) continue;
        /* "(3)" is no tuple in Python but a number */
        if (array->ndim == 0) return unexpected(ps, "',' after the first dimension");
        if (!take(ps, ')')) return unexpected(ps, "',' or ')'");
        array->ndim++;
        return 0;
    }
    return 0;
}

static int parse_dict(parser *ps) {
    static const struct {
        const char *key;
        int (*parse)(parser *ps);
    } items[] = {{"descr", parse_descr}, {"fortran_order", parse_fortran_order}, {"shape", parse_shape}};
    int seen[3] = {0};
    if (!take(ps, '{')) return unexpected(ps, "'{' of a dict");
    while (!take(ps, '}')) {
        slice key = {0};
        int i = 0;
        TRY(parse_string(ps, "a key in quotes", &key));
        while (i < 3 && !equals(key, items[i].key)) i++;
        if (i == 3)
            return fail(ps->path, "unknown key '%.*s', expected descr, fortran_order and shape", key.length, key.text);
        if (seen[i]++) return fail(ps->path, "key '%s' is given twice", items[i].key);
        if (!take(ps, ':')) return unexpected(ps, "':'");
        TRY(items[i].parse(ps));
        if (take(ps, ',')) continue;
        if (!take(ps, '}')) return unexpected(ps, "',' or '}'");
        break;
    }
    for (int i = 0; i < 3; i++)
        if (!seen[i]) return fail(ps->path, "key '%s' is missing", items[i].key);
    skip_space(ps);
    return ps->pos == ps->len ? 0 : unexpected(ps, "nothing after the dict");
}

/* ---- Header: the whole ------------------------------------------------------------------------------------------- */

static int shape_count(const char *path, npy_type type, int ndim, const int64_t *shape, size_t *count) {
    *count = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return fail(path, "dimension %d is %" PRId64 ", expected >= 0", i, shape[i]);
        uint64_t dim = (uint64_t)shape[i];
        if (dim && *count > (size_t)PTRDIFF_MAX / npy_type_size(type) / dim)
            return fail(path, "the shape's size overflows at dimension %d, %" PRId64, i, shape[i]);
        *count *= (size_t)dim;
    }
    return 0;
}

/* Where the header's text begins and how long it is; b holds the file's first bytes, MAX_PREAMBLE if it has so many. */
static int parse_preamble(const char *path, const unsigned char *b, uint64_t file_size, size_t *start, size_t *length) {
    if (file_size < MAGIC_SIZE || memcmp(b, MAGIC, MAGIC_SIZE))
        return fail(path, "not a .npy file: it does not begin with \\x93NUMPY");
    if (file_size < 8) return fail(path, "ends within the version, at byte %" PRIu64, file_size);
    if (b[6] < 1 || b[6] > 3 || b[7]) return fail(path, "format version %d.%d, expected 1.0, 2.0 or 3.0", b[6], b[7]);
    *start = b[6] == 1 ? 10 : 12;
    if (file_size < *start) return fail(path, "ends within the header's length, at byte %" PRIu64, file_size);
    uint32_t n = 0;
    for (size_t i = *start; i > 8; i--) n = n << 8 | b[i - 1];
    if (n > file_size - *start)
        return fail(path, "header length %" PRIu32 " exceeds the file's %" PRIu64 " bytes", n, file_size);
    *length = n;
    return 0;
}

/* Fills in all of array but its data, which begins at data_start. */
static int parse_header(const char *path, const char *text, size_t length, size_t data_start, uint64_t file_size,
                        npy_array *array, int *swapped) {
    parser ps = {.path = path, .text = text, .len = length, .array = array};
    TRY(parse_dict(&ps));
    TRY(shape_count(path, array->type, array->ndim, array->shape, &array->count));
    if (ps.fortran && array->ndim > 1)
        return fail(path, "fortran_order is True with %d dimensions, expected C order (False)", array->ndim);
    uint64_t expected = (uint64_t)array->count * npy_type_size(array->type), found = file_size - data_start;
    if (found < expected)
        return fail(path, "truncated: %" PRIu64 " bytes of data, the shape needs %" PRIu64, found, expected);
    if (found > expected)
        return fail(path, "%" PRIu64 " bytes after the end of the array, expected none", found - expected);
    *swapped = ps.swapped;
    return 0;
}

static int allocate(const char *path, npy_array *array) {
    array->data = calloc(array->count ? array->count : 1, npy_type_size(array->type));
    return array->data ? 0 : fail_memory(path);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static int parse_memory(const char *path, const char *bytes, size_t n, npy_array *out) {
    size_t start = 0, length = 0;
    int swapped = 0;
    TRY(parse_preamble(path, (const unsigned char *)bytes, n, &start, &length));
    TRY(parse_header(path, bytes + start, length, start + length, n, out, &swapped));
    TRY(allocate(path, out));
    memcpy(out->data, bytes + start + length, n - start - length);
    if (swapped) swap_bytes(out->data, out->count, npy_type_size(out->type));
    return 0;
}

int npy_parse(const void *bytes, size_t n, const char *path, npy_array *out) {
    *out = (npy_array){0};
    int result = parse_memory(path, bytes, n, out);
    if (result < 0) npy_free(out);
    return result;
}

static int read_exactly(const char *path, int fd, void *dst, size_t size) {
    char *p = dst;
    while (size) {
        ssize_t n = read(fd, p, size < MAX_TRANSFER ? size : MAX_TRANSFER);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_system(path, errno, "cannot read");
        if (n == 0) return fail(path, "became shorter while it was read: %zu bytes are missing", size);
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

static int read_header(const char *path, int fd, uint64_t file_size, npy_array *out, int *swapped) {
    unsigned char preamble[MAX_PREAMBLE];
    size_t available = file_size < sizeof preamble ? (size_t)file_size : sizeof preamble, start = 0, length = 0;
    TRY(read_exactly(path, fd, preamble, available));
    TRY(parse_preamble(path, preamble, file_size, &start, &length));
    char *text = malloc(length ? length : 1);
    if (!text) return fail_memory(path);
    int result = lseek(fd, (off_t)start, SEEK_SET) < 0 ? fail_system(path, errno, "cannot seek") : 0;
    if (!result) result = read_exactly(path, fd, text, length);
    if (!result) result = parse_header(path, text, length, start + length, file_size, out, swapped);
    free(text);
    return result;
}

static int read_file(const char *path, int fd, npy_array *out) {
    struct stat st;
    int swapped = 0;
    if (fstat(fd, &st) < 0) return fail_system(path, errno, "cannot read");
    if (!S_ISREG(st.st_mode)) return fail(path, "not a regular file");
    TRY(read_header(path, fd, (uint64_t)st.st_size, out, &swapped));
    TRY(allocate(path, out));
    TRY(read_exactly(path, fd, out->data, out->count * npy_type_size(out->type)));
    if (swapped) swap_bytes(out->data, out->count, npy_type_size(out->type));
    return 0;
}

int npy_read(const char *path, npy_array *out) {
    *out = (npy_array){0};
    /* Without O_NONBLOCK, opening a pipe would wait for its writer. */
    int fd = adamod__file_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return fail_system(path, errno, "cannot open");
    int result = read_file(path, fd, out);
    close(fd);
    if (result < 0) npy_free(out);
    return result;
}

void npy_free(npy_array *array) {
    free(array->data);
    *array = (npy_array){0};
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

struct npy_writer {
    char *name; /* as the caller gave it, for messages */
    adamod__output file;
    int failed;
    uint64_t promised, appended;
    size_t buffered;
    char buffer[1 << 16];
};

static int fail_output(const char *path, npy_writer *w) {
    char reason[256];
    adamod__output_reason(&w->file, reason, sizeof reason);
    w->failed = 1;
    return fail(path, "%s", reason);
}

static int write_fully(const char *path, npy_writer *w, const char *data, size_t size) {
    return adamod__output_add(&w->file, data, size) ? fail_output(path, w) : 0;
}

static int flush(const char *path, npy_writer *w) {
    size_t size = w->buffered;
    w->buffered = 0;
    return write_fully(path, w, w->buffer, size);
}

static int put(const char *path, npy_writer *w, const void *data, size_t size) {
    if (size > sizeof w->buffer - w->buffered) TRY(flush(path, w));
    if (size > sizeof w->buffer) return write_fully(path, w, data, size);
    if (size) memcpy(w->buffer + w->buffered, data, size);
    w->buffered += size;
    return 0;
}

/* As NumPy does, the header is padded so that the data is aligned to 64 bytes. */
static int put_header(const char *path, npy_writer *w, npy_type type, int ndim, const int64_t *shape) {
    char dict[320], dims[200] = "";
    size_t used = 0;
    for (int i = 0; i < ndim; i++)
        used += (size_t)snprintf(dims + used, sizeof dims - used, i ? ", %" PRId64 : "%" PRId64, shape[i]);
    int length = snprintf(dict, sizeof dict, "{'descr': '%cf%zu', 'fortran_order': False, 'shape': (%s%s), }",
                          host_order(), npy_type_size(type), dims, ndim == 1 ? "," : "");
    size_t padded = ((size_t)length + 10 + 1 + 63) / 64 * 64 - 10;
    unsigned char preamble[] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(padded & 0xff), (unsigned char)(padded >> 8)};
    memset(dict + length, ' ', padded - (size_t)length);
    dict[padded - 1] = '\n';
    TRY(put(path, w, preamble, sizeof preamble));
    return put(path, w, dict, padded);
}

int npy_writer_open(npy_writer **out, const char *path, npy_type type, int ndim, const int64_t *shape) {
    size_t count = 0;
    *out = NULL;
    if (type != NPY_F32 && type != NPY_F64) return fail(path, "unknown type %d", (int)type);
    if (ndim < 0 || ndim > NPY_MAX_DIMS) return fail(path, "%d dimensions, expected 0 to %d", ndim, NPY_MAX_DIMS);
    TRY(shape_count(path, type, ndim, shape, &count));
    npy_writer *w = calloc(1, sizeof *w);
    if (!w) return fail_memory(path);
    w->promised = (uint64_t)count * npy_type_size(type);
    w->name = strdup(path);
    int result = adamod__output_open(&w->file, path) ? fail_output(path, w) : 0;
    if (!result && !w->name) result = fail_memory(path);
    if (!result) result = put_header(path, w, type, ndim, shape);
    if (result < 0) npy_writer_abort(w);
    else *out = w;
    return result;
}

int npy_writer_append(npy_writer *w, const void *data, size_t bytes) {
    const char *path = w->name;
    if (w->failed) return fail(path, "an earlier write failed");
    if (bytes > w->promised - w->appended) {
        w->failed = 1;
        return fail(path, "%zu bytes too many: the shape needs %" PRIu64, bytes - (size_t)(w->promised - w->appended),
                    w->promised);
    }
    w->appended += bytes;
    return put(path, w, data, bytes);
}

static int commit(const char *path, npy_writer *w) {
    if (w->failed) return fail(path, "an earlier write failed");
    if (w->appended != w->promised)
        return fail(path, "%" PRIu64 " bytes were written, the shape needs %" PRIu64, w->appended, w->promised);
    TRY(flush(path, w));
    return adamod__output_commit(&w->file) ? fail_output(path, w) : 0;
}

int npy_writer_close(npy_writer *w) {
    const char *path = w->name;
    int result = commit(path, w);
    npy_writer_abort(w);
    return result;
}

void npy_writer_abort(npy_writer *w) {
    if (!w) return;
    adamod__output_discard(&w->file);
    free(w->name);
    free(w);
}
