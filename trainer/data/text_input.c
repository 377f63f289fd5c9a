#include "data/text_input.h"

#include "core/error.h"
#include "core/file.h"
#include "data/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, SNIFF = 6 };

struct text_input {
    char *name;
    int fd;
    bool any; /* lines may be any bytes */
    bool owned, file, started;
    bool marked; /* looked for a byte order mark */
    bool ended;  /* text has the rest of the input */
    int64_t number;
    unpacker *unpacker; /* NULL: the bytes are the text */
    char *raw;          /* as read; [raw_at, raw_end) is to be decompressed */
    size_t raw_at, raw_end;
    char *text; /* [at, end) is to be returned; no line ends in [at, seen) */
    size_t at, seen, end, room;
};

/* ---- what a file is, by its first bytes ---- */

static const struct signature {
    const char *bytes;
    size_t n;
    const char *how; /* NULL: UTF-16 */
} signatures[] = {
    {"\x1f\x8b", 2, "gzip"},  {"\x28\xb5\x2f\xfd", 4, "zstd"}, {"\xfd\x37zXZ\0", 6, "xz"}, {"BZh", 3, "bzip2"},
    {"PK\x03\x04", 4, "zip"}, {"\xff\xfe", 2, NULL},           {"\xfe\xff", 2, NULL},
};

static int recognize(text_input *in) {
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const struct signature *s = &signatures[i];
        if (in->raw_end < s->n || memcmp(in->raw, s->bytes, s->n) != 0) continue;
        /* "BZh" may begin a line of text; bzip2 continues with a digit and the digits of pi */
        if (s->how && strcmp(s->how, "bzip2") == 0 && (in->raw_end < 5 || memcmp(in->raw + 4, "1A", 2) != 0)) continue;
        if (!s->how) return adamod__refuse("%s: the text is UTF-16, expected UTF-8", in->name);
        if (unpacker_knows(s->how)) {
            in->unpacker = unpacker_create(s->how);
            return in->unpacker ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", in->name);
        }
        return adamod__refuse("%s: compressed with %s, which this build does not read: decompress it first", in->name,
                              s->how);
    }
    return 0;
}

/* ---- bytes ---- */

/* Reads more raw bytes. Returns 1, 0 at the end, or -1. */
static int read_raw(text_input *in) {
    for (;;) {
        const ssize_t got = read(in->fd, in->raw + in->raw_end, CHUNK - in->raw_end);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot read: %s", in->name, strerror(errno));
        in->raw_end += (size_t)got;
        return got > 0;
    }
}

/* Reads the first bytes, only as many as are needed to tell the format. */
static int start(text_input *in) {
    int got = 1;
    in->started = true;
    while (got > 0 && in->raw_end < SNIFF) {
        if ((got = read_raw(in)) < 0) return -1;
        bool open = in->raw_end == 0;
        for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
            const struct signature *s = &signatures[i];
            const size_t n = in->raw_end < s->n ? in->raw_end : s->n;
            open = open || memcmp(in->raw, s->bytes, n) == 0;
        }
        if (!open) break;
    }
    return recognize(in);
}

static int reserve(text_input *in) {
    if (in->at > 0) {
        memmove(in->text, in->text + in->at, in->end - in->at);
        in->seen -= in->at;
        in->end -= in->at;
        in->at = 0;
    }
    if (in->room - in->end >= CHUNK) return 0;
    const size_t room = in->room * 2 + 2 * CHUNK;
    char *text = room > in->room ? realloc(in->text, room) : NULL;
    if (!text) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s:%" PRId64 ": out of memory", in->name, in->number + 1);
    in->text = text;
    in->room = room;
    return 0;
}

/* Decompresses or copies raw bytes to text. */
static int convert(text_input *in) {
    size_t taken = in->raw_end - in->raw_at, given = in->room - in->end;
    const char *fault = NULL;
    if (in->unpacker) {
        fault = unpacker_run(in->unpacker, in->raw + in->raw_at, &taken, in->text + in->end, &given);
    } else {
        if (given > taken) given = taken;
        if (given) memcpy(in->text + in->end, in->raw + in->raw_at, given);
        taken = given;
    }
    if (fault) return adamod__refuse("%s: %s", in->name, fault);
    in->raw_at += taken;
    in->end += given;
    return 0;
}

static const char mark[] = "\xef\xbb\xbf";

static void skip_mark(text_input *in) {
    if (in->marked) return;
    in->marked = true;
    if (in->end - in->at >= 3 && memcmp(in->text + in->at, mark, 3) == 0) in->at += 3;
    if (in->seen < in->at) in->seen = in->at;
}

/* Reads more text. Returns 1, 0 at the end, or -1. */
static int more_text(text_input *in) {
    if (in->ended) return 0;
    if (!in->started && start(in)) return -1;
    if (reserve(in)) return -1;
    const size_t before = in->end;
    while (in->end == before) {
        if (convert(in)) return -1;
        if (in->end > before || in->raw_at < in->raw_end) continue;
        in->raw_at = in->raw_end = 0;
        const int got = read_raw(in);
        if (got < 0) return -1;
        if (got) continue;
        in->ended = true;
        if (in->unpacker && !unpacker_done(in->unpacker))
            return adamod__refuse("%s: the compressed data are truncated", in->name);
        return 0;
    }
    return 1;
}

/* ---- lines ---- */

static int give_line(text_input *in, size_t end, size_t next, text_slice *line) {
    skip_mark(in);
    *line = (text_slice){in->text + in->at, end > in->at ? end - in->at : 0};
    if (line->n && line->bytes[line->n - 1] == '\r') line->n--;
    in->at = in->seen = next;
    in->number++;
    return !in->any && text_check(*line, in->name, in->number) ? -1 : 1;
}

void text_input_any(text_input *in) { in->any = true; }

int text_input_line(text_input *in, text_slice *line) {
    for (;;) {
        const char *end = in->seen < in->end ? memchr(in->text + in->seen, '\n', in->end - in->seen) : NULL;
        if (end) {
            const size_t at = (size_t)(end - in->text);
            return give_line(in, at, at + 1, line);
        }
        in->seen = in->end;
        const int got = more_text(in);
        if (got < 0) return -1;
        if (got) continue;
        skip_mark(in);
        return in->at < in->end ? give_line(in, in->end, in->end, line) : 0;
    }
}

int text_input_bytes(text_input *in, text_slice *bytes) {
    int got = 1;
    in->at = in->end;
    while (got > 0 && (in->at == in->end || (!in->marked && in->end - in->at < sizeof mark - 1))) got = more_text(in);
    if (got < 0) return got;
    skip_mark(in);
    *bytes = (text_slice){in->text + in->at, in->end - in->at};
    return bytes->n > 0;
}

bool text_input_waits(const text_input *in) {
    if (in->file || in->ended || (in->seen < in->end && memchr(in->text + in->seen, '\n', in->end - in->seen)))
        return false;
    struct pollfd ready = {.fd = in->fd, .events = POLLIN};
    return poll(&ready, 1, 0) == 0;
}

int64_t text_input_number(const text_input *in) { return in->number; }

/* ---- open and close ---- */

const char *text_input_name(const text_input *in) { return in->name; }
bool text_input_is_file(const text_input *in) { return in->file; }

int text_input_open(text_input **out, const char *path) {
    const bool standard = !path || strcmp(path, "-") == 0;
    text_input *in = *out = calloc(1, sizeof *in);
    if (!in) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", standard ? "standard input" : path);
    in->name = strdup(standard ? "standard input" : path);
    in->raw = malloc(CHUNK);
    in->fd = -1;
    int failed =
        in->name && in->raw ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", standard ? "-" : path);
    if (!failed) in->fd = standard ? STDIN_FILENO : adamod__file_open(path, O_RDONLY);
    if (!failed && in->fd < 0) failed = adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    in->owned = !standard && in->fd >= 0;
    struct stat st;
    in->file = !failed && fstat(in->fd, &st) == 0 && S_ISREG(st.st_mode);
    if (!failed) return 0;
    text_input_close(in);
    *out = NULL;
    return -1;
}

void text_input_close(text_input *in) {
    if (!in) return;
    if (in->owned) close(in->fd);
    unpacker_free(in->unpacker);
    free(in->name);
    free(in->raw);
    free(in->text);
    free(in);
}

int text_input_read(const char *path, char **bytes, size_t *n) {
    return text_input_read_most(path, SIZE_MAX, bytes, n);
}

int text_input_read_most(const char *path, size_t most, char **bytes, size_t *n) {
    text_input *in;
    int got = 1;
    *bytes = NULL;
    *n = 0;
    if (text_input_open(&in, path)) return -1;
    while ((got = more_text(in)) > 0) {
        if (in->end <= most) continue;
        got = adamod__refuse("%s: unpacks to more than the %zu bytes allowed", in->name, most);
        break;
    }
    if (got == 0 && !in->text) got = reserve(in);
    if (got == 0) {
        skip_mark(in);
        *n = in->end - in->at;
        if (*n) memmove(in->text, in->text + in->at, *n);
        *bytes = in->text;
        in->text = NULL;
    }
    text_input_close(in);
    return got;
}
