#include "support/text.h"

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "support/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux moves at most 2 GiB - 4 KiB in one call, and other systems refuse more than INT_MAX. */
#define MAX_TRANSFER ((size_t)1 << 30)

text_slice text_of(const char *string) { return (text_slice){string, strlen(string)}; }

int text_compare(text_slice a, text_slice b) {
    const size_t n = a.n < b.n ? a.n : b.n;
    const int order = n ? memcmp(a.bytes, b.bytes, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

bool text_begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

bool text_ends(const char *text, const char *with) {
    const size_t n = strlen(text), k = strlen(with);
    return n >= k && strcmp(text + n - k, with) == 0;
}

bool text_equal(text_slice a, text_slice b) { return a.n == b.n && text_compare(a, b) == 0; }

void text_print(FILE *out, const char *text) {
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        if (adamod__is_harmless(text, left, &n)) fwrite(text, 1, n, out);
        else fputc('?', out);
    }
}

void text_plain(char *text) { adamod__make_plain(text); }

void text_line(FILE *out, const char *format, ...) {
    char line[8192 + 1]; /* and the end of the line */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    text_plain(line);
    const size_t n = strlen(line);
    line[n] = '\n';
    /* At once: standard error has no buffer, and a launcher of ranks may lose later parts. */
    fwrite(line, 1, n + 1, out);
}

/* ---- UTF-8 ------------------------------------------------------------------------------------------------------- */

size_t text_code_point(text_slice text) {
    if (!text.n) return 0;
    return (unsigned char)*text.bytes < 0x80 ? 1 : adamod__utf8_length(text.bytes, text.n);
}

size_t text_put_code_point(uint32_t code, char out[4]) { return adamod__utf8_encode(code, out); }

int text_check(text_slice text, const char *name, int64_t line) {
    for (size_t at = 0, n = 0; at < text.n; at += n) {
        n = text_code_point((text_slice){text.bytes + at, text.n - at});
        if (!n)
            return adamod__refuse("%s:%" PRId64 ": byte %zu is 0x%02x, which is not UTF-8 here", name, line, at + 1,
                                  (unsigned char)text.bytes[at]);
        if (!text.bytes[at])
            return adamod__refuse("%s:%" PRId64 ": byte %zu is zero, expected text", name, line, at + 1);
    }
    return 0;
}

/* ---- Tokens and lines -------------------------------------------------------------------------------------------- */

static void advance(text_slice *rest, size_t n) {
    rest->bytes += n;
    rest->n -= n;
}

int text_next_token(text_unit unit, text_slice *rest, text_slice *token) {
    size_t n = 0;
    if (unit == TEXT_CHARACTERS) {
        n = text_code_point(*rest);
    } else {
        while (rest->n && rest->bytes[0] == ' ') advance(rest, 1);
        while (n < rest->n && rest->bytes[n] != ' ') n++;
    }
    if (!n) return 0;
    *token = (text_slice){rest->bytes, n};
    advance(rest, n);
    return 1;
}

int text_next_line(text_slice *rest, text_slice *line) {
    if (!rest->n) return 0;
    const char *end = memchr(rest->bytes, '\n', rest->n);
    *line = (text_slice){rest->bytes, end ? (size_t)(end - rest->bytes) : rest->n};
    advance(rest, line->n + (end != NULL));
    return 1;
}

int64_t text_count_tokens(text_unit unit, text_slice text) {
    int64_t count = 0;
    for (text_slice token; text_next_token(unit, &text, &token);) count++;
    return count;
}

int64_t text_count_lines(text_slice text) {
    int64_t count = 0;
    for (text_slice line; text_next_line(&text, &line);) count++;
    return count;
}

void text_add(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

void text_join(char *text, size_t size, const char *separator, const char *word) {
    text_add(text, size, "%s%s", *text ? separator : "", word);
}

size_t text_replace(char *text, size_t n, const char *from, const char *to) {
    const size_t n_from = strlen(from), n_to = strlen(to);
    size_t out = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= n_from && memcmp(text + i, from, n_from) == 0) {
            memcpy(text + out, to, n_to);
            out += n_to;
            i += n_from;
        } else {
            text[out++] = text[i++];
        }
    }
    return out;
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

path_text path_join(const char *directory, const char *name) {
    path_text path;
    snprintf(path.text, sizeof path.text, "%s/%s", directory, name);
    return path;
}

/* Reads to the end of fd, about `expected` bytes and `most` at most. Returns 0 or an errno. */
static int read_all(int fd, size_t expected, size_t most, char **bytes, size_t *n) {
    size_t room = (expected < most ? expected : most) + 1; /* one more, to see the end without growing */
    char *to = malloc(room);
    *n = 0;
    for (ssize_t got = 1; to && got;) {
        if (*n > most) {
            free(to);
            return EFBIG;
        }
        got = read(fd, to + *n, room - *n < MAX_TRANSFER ? room - *n : MAX_TRANSFER);
        if (got < 0 && errno != EINTR) {
            int error = errno;
            free(to);
            return error;
        }
        if (got > 0) *n += (size_t)got;
        if (*n < room) continue;
        room *= 2;
        char *more = realloc(to, room);
        if (!more) free(to);
        to = more;
    }
    *bytes = to;
    return to ? 0 : ENOMEM;
}

int text_read(const char *path, char **bytes, size_t *n) {
    return text_load(path, bytes, n) ? adamod__context("%s: ", path) : 0;
}

static int load(const char *path, size_t most, char **bytes, size_t *n) {
    struct stat st;
    *bytes = NULL;
    int fd = adamod__file_open(path, O_RDONLY);
    if (fd < 0) return adamod__fail(ADAMOD_ERROR_IO, "cannot open: %s", strerror(errno));
    size_t expected = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : (size_t)1 << 16;
    int error = read_all(fd, expected, most, bytes, n);
    close(fd);
    if (error == EFBIG) return adamod__refuse("it is larger than %zu bytes", most);
    return error ? adamod__fail(ADAMOD_ERROR_IO, "cannot read: %s", strerror(error)) : 0;
}

int text_load(const char *path, char **bytes, size_t *n) { return load(path, SIZE_MAX - 1, bytes, n); }

int text_read_small(const char *path, size_t most, char **bytes, size_t *n) {
    return load(path, most, bytes, n) ? adamod__context("%s: ", path) : 0;
}

int text_write(const char *path, text_slice text) {
    writer *w;
    ADAMOD__TRY(writer_open(&w, path));
    const int failed = writer_add(w, text.bytes, text.n), unkept = writer_close(w, !failed);
    return failed ? failed : unkept;
}
