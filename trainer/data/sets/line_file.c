#include "data/sets/line_file.h"

#include "core/error.h"
#include "core/file.h"

#include <stdlib.h>
#include <string.h>

struct line_file {
    adamod__output out;
    int64_t lines;
    char buffer[1 << 16]; /* n bytes not written yet */
    size_t n;
};

static int fail_output(const line_file *f, const char *path) {
    char reason[256];
    adamod__output_reason(&f->out, reason, sizeof reason);
    return adamod__refuse("%s: %s", path ? path : "a file", reason);
}

int line_file_open(line_file **out, const char *path) {
    line_file *f = *out = malloc(sizeof *f);
    if (!f) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    f->lines = 0;
    f->n = 0;
    if (adamod__output_open(&f->out, path) == 0) return 0;
    fail_output(f, path);
    line_file_close(f, false);
    *out = NULL;
    return -1;
}

static int flush(line_file *f) {
    const size_t n = f->n;
    f->n = 0;
    return n ? adamod__output_add(&f->out, f->buffer, n) : 0;
}

static int put(line_file *f, const char *bytes, size_t n) {
    if (f->n + n > sizeof f->buffer && flush(f)) return -1;
    if (n > sizeof f->buffer) return adamod__output_add(&f->out, bytes, n);
    if (n) memcpy(f->buffer + f->n, bytes, n);
    f->n += n;
    return 0;
}

int line_file_put(line_file *f, text_slice line) {
    f->lines++;
    if (put(f, line.bytes, line.n) == 0 && put(f, "\n", 1) == 0) return 0;
    return fail_output(f, f->out.path);
}

int64_t line_file_count(const line_file *f) { return f->lines; }

int line_file_close(line_file *f, bool keep) {
    int status = 0;
    if (!f) return 0;
    if (keep && (flush(f) || adamod__output_commit(&f->out))) status = fail_output(f, f->out.path);
    adamod__output_discard(&f->out);
    free(f);
    return status;
}
