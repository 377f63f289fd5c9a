#include "report/reader_parts.h"

#include "core/error.h"
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char reader_no_memory[] = "out of memory";
const char reader_not_a_step[] = "\"step\" is not a whole number from 0 on";

bool reader_is_step(double x) { return x >= 0 && x <= 1e15 && x == floor(x); }

void reader_expect(json_input *in, const char *what) {
    if (!in->expected) in->expected = what;
}

int reader_fail(const reader_place *at, const char *what) {
    if (at->line) return adamod__refuse("%s:%" PRId64 ": %s", at->path, at->line, what);
    return adamod__refuse("%s: %s", at->path, what);
}

reader_place reader_file(const char *directory, const char *name) {
    reader_place at = {.line = 0};
    snprintf(at.path, sizeof at.path, "%s/%s", directory, name); /* longer than PATH_MAX cannot be opened */
    return at;
}

int reader_open(const reader_place *at, FILE **out) {
    struct stat st;
    const int fd = adamod__file_open(at->path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return 0;
    if (fd < 0) return reader_fail(at, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (*out = fdopen(fd, "r"))) return 1;
    close(fd);
    return reader_fail(at, "it is not a file that can be read");
}

int reader_small(const reader_place *at, size_t most, char **text, size_t *n) {
    FILE *file = NULL;
    const int status = reader_open(at, &file);
    if (status <= 0) return status;
    *text = malloc(most + 1);
    *n = *text ? fread(*text, 1, most + 1, file) : 0;
    const bool failed = ferror(file);
    fclose(file);
    if (*text && !failed && *n <= most) {
        (*text)[*n] = '\0';
        return 1;
    }
    char why[64];
    if (*text && !failed) snprintf(why, sizeof why, "it is larger than %zu MiB", most >> 20);
    else snprintf(why, sizeof why, "%s", *text ? "cannot read it" : reader_no_memory);
    free(*text);
    *text = NULL;
    return reader_fail(at, why);
}

typedef struct line {
    char text[READER_BYTES];
    size_t n;
    bool ended; /* by a line feed */
} line;

/* False: no more lines, or (n is READER_BYTES) the line is too long. */
static bool next_line(FILE *file, line *l) {
    int c = EOF;
    l->n = 0;
    while (l->n < READER_BYTES && (c = getc_unlocked(file)) != EOF && c != '\n') l->text[l->n++] = (char)c;
    l->ended = c == '\n';
    return (l->n > 0 || l->ended) && l->n < READER_BYTES;
}

static int complain(const reader_place *at, const json_input *in, const char *what) {
    char text[160];
    if (what) snprintf(text, sizeof text, "%s", what);
    else snprintf(text, sizeof text, "expected %s at byte %zu", in->expected, (size_t)(in->at - in->begin) + 1);
    return reader_fail(at, text);
}

static int read_each(report_run *r, FILE *file, reader_place *at, line *l, reader_of *reader) {
    for (at->line = 1; next_line(file, l); at->line++) {
        json_input in = json_input_of(l->text, l->n);
        const char *what = reader(r, &in);
        if (!what && !in.expected) continue;
        return l->ended ? complain(at, &in, what) : 0; /* else the line is incomplete: the run goes on, or it crashed */
    }
    if (l->n == READER_BYTES) return reader_fail(at, "the line is longer than 1 MiB");
    return ferror(file) ? reader_fail(at, "cannot read") : 0;
}

int reader_lines(report_run *r, const char *name, reader_of *reader) {
    reader_place at = reader_file(r->directory, name);
    line *l = malloc(sizeof *l);
    FILE *file = NULL;
    int status = l ? reader_open(&at, &file) : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    if (status > 0) status = read_each(r, file, &at, l, reader);
    if (file) fclose(file);
    free(l);
    return status;
}

int reader_value(report_run *r, const char *name, size_t most, reader_of *reader) {
    reader_place at = reader_file(r->directory, name);
    char *text = NULL;
    size_t n = 0;
    int status = reader_small(&at, most, &text, &n);
    if (status > 0) {
        json_input in = json_input_of(text, n);
        const char *what = reader(r, &in);
        at.line = 1;
        if (in.expected) {
            for (const char *c = text; c < in.at; c++) at.line += *c == '\n';
        }
        if (what || in.expected) status = complain(&at, &in, what);
    }
    free(text);
    return status;
}
