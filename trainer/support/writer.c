#include "support/writer.h"

#include "core/error.h"
#include "core/file.h"

#include <stdlib.h>
#include <string.h>

struct writer {
    char *path; /* as the caller gave it */
    adamod__output out;
    size_t n; /* bytes in the buffer */
    char buffer[1 << 16];
};

static int fail_output(const writer *w, const char *path) {
    char reason[256];
    adamod__output_reason(&w->out, reason, sizeof reason);
    return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path, reason);
}

int writer_open(writer **out, const char *path) {
    writer *w = *out = malloc(sizeof *w);
    char *copy = w ? strdup(path) : NULL;
    if (!copy) {
        free(w);
        *out = NULL;
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    }
    w->path = copy;
    w->n = 0;
    if (!adamod__output_open(&w->out, path)) return 0;
    fail_output(w, path);
    (void)writer_close(w, false);
    *out = NULL;
    return ADAMOD_ERROR_IO;
}

static int flush(writer *w) {
    const size_t n = w->n;
    w->n = 0;
    return n ? adamod__output_add(&w->out, w->buffer, n) : 0;
}

int writer_add(writer *w, const void *bytes, size_t n) {
    if (n > sizeof w->buffer - w->n && flush(w)) return fail_output(w, w->path);
    if (n > sizeof w->buffer) return adamod__output_add(&w->out, bytes, n) ? fail_output(w, w->path) : 0;
    if (n) memcpy(w->buffer + w->n, bytes, n);
    w->n += n;
    return 0;
}

int writer_put(writer *w, uint64_t offset, const void *bytes, size_t n) {
    return flush(w) || adamod__output_put(&w->out, offset, bytes, n) ? fail_output(w, w->path) : 0;
}

int writer_close(writer *w, bool keep) {
    int failed = 0;
    if (!w) return 0;
    if (keep && (flush(w) || adamod__output_commit(&w->out))) failed = fail_output(w, w->path);
    adamod__output_discard(&w->out);
    free(w->path);
    free(w);
    return failed;
}
