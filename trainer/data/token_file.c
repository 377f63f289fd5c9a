#include "data/token_file.h"

#include "core/error.h"
#include "core/file.h"
#include "data/shuffle.h"
#include "support/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 20240520, WIDE_MAGIC = 20240801, VERSION = 1, HEADER = 256, CHECKED = 1 << 16 };

typedef struct token_file {
    char *path;
    void *map;
    size_t bytes; /* of the map */
    const uint16_t *ids;
    int64_t count;
} token_file;

struct token_set {
    token_file *files;
    int n;
    int32_t size; /* 0: any */
};

/* ---- a file ---- */

/* The number of ids behind llm.c's header. */
static int read_header(const token_file *f, int64_t bytes, int64_t *count) {
    int32_t head[3];
    const int64_t header = HEADER * (int64_t)sizeof *head;
    if (bytes < header)
        return adamod__refuse("%s: cut short: %" PRId64 " bytes, expected a header of %" PRId64, f->path, bytes,
                              header);
    memcpy(head, f->map, sizeof head);
    if (head[1] != VERSION)
        return adamod__refuse("%s: version %" PRId32 " of llm.c's format, expected %d", f->path, head[1], VERSION);
    *count = head[2];
    const int64_t have = (bytes - header) / 2;
    if (*count < 0)
        return adamod__refuse("%s: its header says %" PRId32 " tokens, expected 0 or more", f->path, head[2]);
    if (*count > have)
        return adamod__refuse("%s: cut short: %" PRId64 " tokens, its header says %" PRId32, f->path, have, head[2]);
    if (bytes != header + 2 * *count)
        return adamod__refuse("%s: %" PRId64 " bytes behind the %" PRId64 " tokens that its header says", f->path,
                              bytes - header - 2 * *count, *count);
    return 0;
}

bool token_file_begins(const void *bytes, size_t n) {
    int32_t first = 0;
    if (n < sizeof first) return false;
    memcpy(&first, bytes, sizeof first);
    return first == MAGIC || first == WIDE_MAGIC;
}

static int recognize(token_file *f, int64_t bytes) {
    int32_t first = 0;
    if (bytes < 2) return adamod__refuse("%s: %s, expected tokens", f->path, bytes ? "one byte" : "empty");
    memcpy(&first, f->map, bytes < 4 ? 2 : 4);
    if (first == WIDE_MAGIC)
        return adamod__refuse("%s: tokens of 32 bits, as llm.c packs those of Llama, expected 16 bits", f->path);
    if (memcmp(f->map, "\x93N", 2) == 0 && bytes > 5 && memcmp(f->map, "\x93NUMPY", 6) == 0)
        return adamod__refuse("%s: an array of numpy, expected tokens packed as llm.c or nanoGPT do", f->path);
    if (first == MAGIC) {
        if (read_header(f, bytes, &f->count)) return -1;
        f->ids = (const uint16_t *)f->map + 2 * HEADER;
        return f->count ? 0 : adamod__refuse("%s: no tokens behind its header", f->path);
    }
    if (bytes % 2)
        return adamod__refuse("%s: %" PRId64 " bytes, an odd number, expected tokens of 2 bytes each", f->path, bytes);
    f->count = bytes / 2;
    f->ids = f->map;
    return 0;
}

static int check_ids(const token_set *s, const token_file *f, int64_t at, int64_t n) {
    if (!s->size || s->size >= TOKEN_FILE_IDS) return 0;
    for (int64_t i = at; i < at + n; i++) {
        if (f->ids[i] >= s->size)
            return adamod__refuse("%s: token %" PRId64 " is %d, but the vocabulary has %" PRId32
                                  " ids: the file is of another vocabulary, or no file of tokens",
                                  f->path, i, f->ids[i], s->size);
    }
    return 0;
}

static int map_file(token_file *f) {
    struct stat st;
    /* Without O_NONBLOCK, opening a pipe would wait for its writer. */
    const int fd = adamod__file_open(f->path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", f->path, strerror(errno));
    int error = fstat(fd, &st) ? errno : 0;
    const bool regular = !error && S_ISREG(st.st_mode);
    if (regular && st.st_size > 0) {
        f->bytes = (size_t)st.st_size;
        f->map = (uint64_t)st.st_size > SIZE_MAX ? MAP_FAILED : mmap(NULL, f->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (f->map == MAP_FAILED) {
            error = errno;
            f->map = NULL;
        }
    }
    close(fd);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot map it into memory: %s", f->path, strerror(error));
    if (!regular) return adamod__refuse("%s: not a regular file", f->path);
    return recognize(f, (int64_t)st.st_size);
}

static int open_file(token_set *s, const char *path) {
    token_file *f = &s->files[s->n];
    if (!(f->path = strdup(path))) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    s->n++;
    if (map_file(f)) return -1;
    return check_ids(s, f, 0, f->count < CHECKED ? f->count : CHECKED);
}

/* ---- a set ---- */

int token_set_open(token_set **out, int n, const char *const *paths, int32_t size) {
    token_set *s = *out = calloc(1, sizeof *s);
    if (s) s->files = calloc((size_t)n + 1, sizeof *s->files);
    int status = s && s->files ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (s) s->size = size;
    for (int i = 0; i < n && !status; i++) status = open_file(s, paths[i]);
    if (!status) return 0;
    token_set_close(s);
    *out = NULL;
    return status;
}

void token_set_close(token_set *s) {
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        if (s->files[i].map) munmap(s->files[i].map, s->files[i].bytes);
        free(s->files[i].path);
    }
    free(s->files);
    free(s);
}

int64_t token_set_count(const token_set *s) {
    int64_t count = 0;
    for (int i = 0; i < s->n; i++) count += s->files[i].count;
    return count;
}

int token_set_check(const token_set *s) {
    for (int i = 0; i < s->n; i++) ADAMOD__TRY(check_ids(s, &s->files[i], 0, s->files[i].count));
    return 0;
}

static int64_t windows_of(const token_file *f, int64_t length) { return (f->count - 1) / length; }

int64_t token_set_windows(const token_set *s, int64_t length) {
    int64_t n = 0;
    for (int i = 0; i < s->n; i++) n += windows_of(&s->files[i], length);
    return n;
}

int token_set_window(const token_set *s, const token_windows *w, int64_t epoch, int64_t at, int32_t *ids) {
    const int64_t n = token_set_windows(s, w->length);
    if (at < 0 || at >= n) return adamod__refuse("window %" PRId64 ", expected one of 0 to %" PRId64, at, n - 1);
    if (w->shuffled) at = (int64_t)shuffle_place((uint64_t)at, (uint64_t)n, nn_key(w->seed, (uint64_t)epoch, 0));
    const token_file *f = s->files;
    for (; at >= windows_of(f, w->length); f++) at -= windows_of(f, w->length);
    at *= w->length;
    ADAMOD__TRY(check_ids(s, f, at, w->length + 1));
    for (int64_t i = 0; i <= w->length; i++) ids[i] = f->ids[at + i];
    return 0;
}

/* ---- writing ---- */

struct token_writer {
    writer *file;
    char *path;
    int64_t count;
};

int token_writer_open(token_writer **out, const char *path) {
    static const int32_t empty[HEADER];
    token_writer *w = *out = calloc(1, sizeof *w);
    int status = w && (w->path = strdup(path)) ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    if (!status) status = writer_open(&w->file, path);
    if (!status) status = writer_add(w->file, empty, sizeof empty);
    if (!status) return 0;
    (void)token_writer_close(w, false);
    *out = NULL;
    return status;
}

int token_writer_add(token_writer *w, const int32_t *ids, size_t n) {
    uint16_t some[1024];
    if ((int64_t)n > INT32_MAX - w->count)
        return adamod__refuse("%s: more than the %d tokens that its header can say: pack fewer into a file", w->path,
                              INT32_MAX);
    w->count += (int64_t)n;
    for (size_t k; n; ids += k, n -= k) {
        k = n < sizeof some / sizeof *some ? n : sizeof some / sizeof *some;
        for (size_t i = 0; i < k; i++) some[i] = (uint16_t)ids[i];
        ADAMOD__TRY(writer_add(w->file, some, k * sizeof *some));
    }
    return 0;
}

int64_t token_writer_count(const token_writer *w) { return w->count; }

int token_writer_close(token_writer *w, bool keep) {
    if (!w) return 0;
    const int32_t head[] = {MAGIC, VERSION, (int32_t)w->count};
    int status = keep ? writer_put(w->file, 0, head, sizeof head) : 0;
    const int closed = writer_close(w->file, keep && !status);
    if (!status) status = closed;
    free(w->path);
    free(w);
    return status;
}
