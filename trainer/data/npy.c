#include "data/npy.h"

#include "core/error.h"
#include "core/file.h"
#include "support/text.h"
#include "support/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define MAX_PREAMBLE 12 /* magic, version and the longer of the two lengths */

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

typedef struct parser {
    const char *text;
    size_t len, pos;
    npy_array *array;
    int swapped, fortran;
} parser;

static int unexpected(const parser *ps, const char *expected) {
    if (ps->pos >= ps->len) return adamod__refuse("header ends where %s was expected", expected);
    unsigned char c = (unsigned char)ps->text[ps->pos];
    if (c <= 0x20 || c >= 0x7f)
        return adamod__refuse("header byte %zu: expected %s, found byte 0x%02x", ps->pos, expected, c);
    return adamod__refuse("header byte %zu: expected %s, found '%c'", ps->pos, expected, c);
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

/* No valid key or dtype has a quote, a backslash or characters beyond ASCII. */
static int parse_string(parser *ps, const char *expected, text_slice *out) {
    char quote = take(ps, '\'') ? '\'' : take(ps, '"') ? '"' : '\0';
    if (!quote) return unexpected(ps, expected);
    size_t start = ps->pos;
    for (; ps->pos < ps->len && ps->text[ps->pos] != quote; ps->pos++) {
        unsigned char c = (unsigned char)ps->text[ps->pos];
        if (c < 0x20 || c >= 0x7f || c == '\\' || ps->pos - start >= 60)
            return unexpected(ps, "at most 60 plain characters in quotes");
    }
    *out = (text_slice){ps->text + start, ps->pos - start};
    return take(ps, quote) ? 0 : unexpected(ps, "the closing quote");
}

static int parse_descr(parser *ps) {
    text_slice descr = {0};
    skip_space(ps);
    if (ps->pos < ps->len && memchr("[({", ps->text[ps->pos], 3))
        return adamod__refuse("a structured dtype (header byte %zu), expected '<f4' or '<f8'", ps->pos);
    ADAMOD__TRY(parse_string(ps, "a dtype in quotes", &descr));
    text_slice kind = descr;
    char order = host_order();
    if (kind.n && memchr("<>=|", kind.bytes[0], 4)) {
        if (kind.bytes[0] == '<' || kind.bytes[0] == '>') order = kind.bytes[0];
        kind = (text_slice){kind.bytes + 1, kind.n - 1};
    }
    if (kind.n && kind.bytes[0] == 'O')
        return adamod__refuse("dtype '%.*s' holds Python objects, expected '<f4' or '<f8'", (int)descr.n, descr.bytes);
    if (!text_equal(kind, text_of("f4")) && !text_equal(kind, text_of("f8")))
        return adamod__refuse("dtype '%.*s' cannot be read, expected '<f4' or '<f8'", (int)descr.n, descr.bytes);
    ps->array->type = kind.bytes[1] == '4' ? NPY_F32 : NPY_F64;
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
            return adamod__refuse("header byte %zu: a dimension is above %" PRId64, start, INT64_MAX);
        value = value * 10 + digit;
    }
    if (ps->pos == start) return unexpected(ps, "a dimension");
    if (ps->pos < ps->len && ps->text[ps->pos] == 'L') ps->pos++; /* a long integer of Python 2 */
    *out = value;
    return 0;
}

static int parse_shape(parser *ps) {
    npy_array *array = ps->array;
    if (!take(ps, '(')) return unexpected(ps, "'(' of a tuple");
    for (array->ndim = 0; !take(ps, ')'); array->ndim++) {
        if (array->ndim == NPY_MAX_DIMS) return adamod__refuse("shape has more than %d dimensions", NPY_MAX_DIMS);
        ADAMOD__TRY(parse_dimension(ps, &array->shape[array->ndim]));
        if (take(ps, ',')) continue;
        /* in Python, "(3)" is a number, not a tuple */
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
        text_slice key = {0};
        int i = 0;
        ADAMOD__TRY(parse_string(ps, "a key in quotes", &key));
        while (i < 3 && !text_equal(key, text_of(items[i].key))) i++;
        if (i == 3)
            return adamod__refuse("unknown key '%.*s', expected descr, fortran_order and shape", (int)key.n, key.bytes);
        if (seen[i]++) return adamod__refuse("key '%s' is given twice", items[i].key);
        if (!take(ps, ':')) return unexpected(ps, "':'");
        ADAMOD__TRY(items[i].parse(ps));
        if (take(ps, ',')) continue;
        if (!take(ps, '}')) return unexpected(ps, "',' or '}'");
        break;
    }
    for (int i = 0; i < 3; i++)
        if (!seen[i]) return adamod__refuse("key '%s' is missing", items[i].key);
    skip_space(ps);
    return ps->pos == ps->len ? 0 : unexpected(ps, "nothing after the dict");
}

/* ---- Header: the whole ------------------------------------------------------------------------------------------- */

static int shape_count(npy_type type, int ndim, const int64_t *shape, size_t *count) {
    *count = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return adamod__refuse("dimension %d is %" PRId64 ", expected >= 0", i, shape[i]);
        uint64_t dim = (uint64_t)shape[i];
        if (dim && *count > (size_t)PTRDIFF_MAX / npy_type_size(type) / dim)
            return adamod__refuse("the shape's size overflows at dimension %d, %" PRId64, i, shape[i]);
        *count *= (size_t)dim;
    }
    return 0;
}

/* Finds where the header begins and its length. b has the first MAX_PREAMBLE bytes of the file, or all if it is shorter. */
static int parse_preamble(const unsigned char *b, uint64_t file_size, size_t *start, size_t *length) {
    if (file_size < MAGIC_SIZE || memcmp(b, MAGIC, MAGIC_SIZE))
        return adamod__refuse("not a .npy file: it does not begin with \\x93NUMPY");
    if (file_size < 8) return adamod__refuse("ends within the version, at byte %" PRIu64, file_size);
    if (b[6] < 1 || b[6] > 3 || b[7])
        return adamod__refuse("format version %d.%d, expected 1.0, 2.0 or 3.0", b[6], b[7]);
    *start = b[6] == 1 ? 10 : 12;
    if (file_size < *start) return adamod__refuse("ends within the header's length, at byte %" PRIu64, file_size);
    uint32_t n = 0;
    for (size_t i = *start; i > 8; i--) n = n << 8 | b[i - 1];
    if (n > file_size - *start)
        return adamod__refuse("header length %" PRIu32 " exceeds the file's %" PRIu64 " bytes", n, file_size);
    *length = n;
    return 0;
}

/* Fills in all of array but its data, which begins at data_start. */
static int parse_header(const char *text, size_t length, size_t data_start, uint64_t file_size, npy_array *array,
                        int *swapped) {
    parser ps = {.text = text, .len = length, .array = array};
    ADAMOD__TRY(parse_dict(&ps));
    ADAMOD__TRY(shape_count(array->type, array->ndim, array->shape, &array->count));
    if (ps.fortran && array->ndim > 1)
        return adamod__refuse("fortran_order is True with %d dimensions, expected C order (False)", array->ndim);
    uint64_t expected = (uint64_t)array->count * npy_type_size(array->type), found = file_size - data_start;
    if (found < expected)
        return adamod__refuse("truncated: %" PRIu64 " bytes of data, the shape needs %" PRIu64, found, expected);
    if (found > expected)
        return adamod__refuse("%" PRIu64 " bytes after the end of the array, expected none", found - expected);
    *swapped = ps.swapped;
    return 0;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

typedef struct source {
    int fd; /* -1: in memory */
    const char *bytes;
    uint64_t size;
} source;

static int take_bytes(const source *s, uint64_t at, void *to, size_t n) {
    uint64_t got = n;
    if (s->fd < 0 && n) memcpy(to, s->bytes + at, n);
    const int error = s->fd < 0 ? 0 : adamod__file_read(s->fd, at, to, n, &got);
    if (error) return adamod__refuse("cannot read: %s", strerror(error));
    if (got < n) return adamod__refuse("became shorter while it was read: %zu bytes are missing", n - (size_t)got);
    return 0;
}

static int read_array(const source *s, npy_array *out) {
    unsigned char preamble[MAX_PREAMBLE];
    size_t start = 0, length = 0;
    int swapped = 0;
    ADAMOD__TRY(take_bytes(s, 0, preamble, s->size < sizeof preamble ? (size_t)s->size : sizeof preamble));
    ADAMOD__TRY(parse_preamble(preamble, s->size, &start, &length));
    char *text = malloc(length ? length : 1);
    if (!text) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    int failed = take_bytes(s, start, text, length);
    if (!failed) failed = parse_header(text, length, start + length, s->size, out, &swapped);
    free(text);
    if (failed) return failed;
    out->data = calloc(out->count ? out->count : 1, npy_type_size(out->type));
    if (!out->data) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    ADAMOD__TRY(take_bytes(s, start + length, out->data, out->count * npy_type_size(out->type)));
    if (swapped) swap_bytes(out->data, out->count, npy_type_size(out->type));
    return 0;
}

static int read_source(const source *s, const char *path, npy_array *out) {
    *out = (npy_array){0};
    if (!read_array(s, out)) return 0;
    npy_free(out);
    return adamod__context("%s: ", path);
}

int npy_parse(const void *bytes, size_t n, const char *path, npy_array *out) {
    return read_source(&(source){-1, bytes, n}, path, out);
}

int npy_read(const char *path, npy_array *out) {
    struct stat st;
    *out = (npy_array){0};
    /* Without O_NONBLOCK, opening a pipe would wait for its writer. */
    const int fd = adamod__file_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return adamod__refuse("%s: cannot open: %s", path, strerror(errno));
    int failed;
    if (fstat(fd, &st) < 0) failed = adamod__refuse("%s: cannot read: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) failed = adamod__refuse("%s: not a regular file", path);
    else failed = read_source(&(source){fd, NULL, (uint64_t)st.st_size}, path, out);
    close(fd);
    return failed;
}

void npy_free(npy_array *array) {
    free(array->data);
    *array = (npy_array){0};
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

struct npy_writer {
    char *path;
    writer *file;
    bool failed;
    uint64_t promised, appended;
};

/* As NumPy does, pads the header so that the data is aligned to 64 bytes. */
static int put_header(npy_writer *w, npy_type type, int ndim, const int64_t *shape) {
    char dict[320], dims[200] = "";
    for (int i = 0; i < ndim; i++) text_add(dims, sizeof dims, i ? ", %" PRId64 : "%" PRId64, shape[i]);
    int length = snprintf(dict, sizeof dict, "{'descr': '%cf%zu', 'fortran_order': False, 'shape': (%s%s), }",
                          host_order(), npy_type_size(type), dims, ndim == 1 ? "," : "");
    size_t padded = ((size_t)length + 10 + 1 + 63) / 64 * 64 - 10;
    unsigned char preamble[] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(padded & 0xff), (unsigned char)(padded >> 8)};
    memset(dict + length, ' ', padded - (size_t)length);
    dict[padded - 1] = '\n';
    ADAMOD__TRY(writer_add(w->file, preamble, sizeof preamble));
    return writer_add(w->file, dict, padded);
}

static int check_shape(npy_type type, int ndim, const int64_t *shape, size_t *count) {
    if (type != NPY_F32 && type != NPY_F64) return adamod__refuse("unknown type %d", (int)type);
    if (ndim < 0 || ndim > NPY_MAX_DIMS) return adamod__refuse("%d dimensions, expected 0 to %d", ndim, NPY_MAX_DIMS);
    return shape_count(type, ndim, shape, count);
}

int npy_writer_open(npy_writer **out, const char *path, npy_type type, int ndim, const int64_t *shape) {
    size_t count = 0;
    *out = NULL;
    if (check_shape(type, ndim, shape, &count)) return adamod__context("%s: ", path);
    npy_writer *w = calloc(1, sizeof *w);
    if (!w || !(w->path = strdup(path))) {
        free(w);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    }
    w->promised = (uint64_t)count * npy_type_size(type);
    int failed = writer_open(&w->file, path);
    if (!failed) failed = put_header(w, type, ndim, shape);
    if (failed) npy_writer_abort(w);
    else *out = w;
    return failed ? -1 : 0;
}

int npy_writer_append(npy_writer *w, const void *data, size_t bytes) {
    const uint64_t left = w->promised - w->appended;
    if (w->failed) return adamod__refuse("%s: an earlier write failed", w->path);
    w->failed = true;
    if (bytes > left)
        return adamod__refuse("%s: %zu bytes too many: the shape needs %" PRIu64, w->path, bytes - (size_t)left,
                              w->promised);
    if (writer_add(w->file, data, bytes)) return -1;
    w->appended += bytes;
    w->failed = false;
    return 0;
}

int npy_writer_close(npy_writer *w) {
    int failed = 0;
    if (w->failed) failed = adamod__refuse("%s: an earlier write failed", w->path);
    else if (w->appended != w->promised)
        failed = adamod__refuse("%s: %" PRIu64 " bytes were written, the shape needs %" PRIu64, w->path, w->appended,
                                w->promised);
    if (!failed) {
        failed = writer_close(w->file, true);
        w->file = NULL;
    }
    npy_writer_abort(w);
    return failed ? -1 : 0;
}

void npy_writer_abort(npy_writer *w) {
    if (!w) return;
    (void)writer_close(w->file, false);
    free(w->path);
    free(w);
}
