#include "data/pictures.h"

#include "core/buffer.h"
#include "core/error.h"
#include "support/text.h"
#include "support/array.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static int check_name(const char *name) {
    if (!*name) return adamod__refuse("a class has an empty name");
    if (text_check(text_of(name), "class", 1)) return adamod__refuse("the name of a class is not UTF-8");
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c < 0x20 || *c == 0x7f) return adamod__refuse("the name of a class has a control character");
    }
    return 0;
}

int class_names_add(class_names *c, const char *name) {
    if (check_name(name)) return -1;
    char *copy = strdup(name);
    if (!copy || !ARRAY_EXTEND(c->name, c->n)) {
        free(copy);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the names of classes");
    }
    c->name[c->n++] = copy;
    return 0;
}

int class_names_find(const class_names *c, const char *name) {
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->name[i], name) == 0) return i;
    }
    return -1;
}

void class_names_free(class_names *c) {
    for (int i = 0; i < c->n; i++) free(c->name[i]);
    free(c->name);
    *c = (class_names){0};
}

static int add_line(class_names *out, text_slice line) {
    if (line.n && line.bytes[line.n - 1] == '\r') line.n--;
    char *name = memchr(line.bytes, '\0', line.n) ? NULL : strndup(line.bytes, line.n);
    if (!name) return adamod__refuse("the name of a class has a zero byte");
    int failed = class_names_find(out, name) >= 0;
    if (failed) adamod__refuse("class '%.60s' is there twice", name);
    else failed = class_names_add(out, name);
    free(name);
    return failed ? -1 : 0;
}

static text_slice without_empty_end(text_slice text) {
    while (text.n && (text.bytes[text.n - 1] == '\n' || text.bytes[text.n - 1] == '\r')) text.n--;
    return text;
}

int class_names_load(class_names *out, const char *path) {
    char *bytes;
    size_t n;
    *out = (class_names){0};
    if (text_read(path, &bytes, &n)) return -1;
    text_slice rest = without_empty_end((text_slice){bytes, n}), line;
    int failed = 0;
    while (!failed && text_next_line(&rest, &line)) {
        failed = add_line(out, line);
        if (failed) adamod__context("%s:%d: ", path, out->n + 1);
    }
    if (!failed && out->n == 0) failed = adamod__refuse("%s: no names of classes in it", path);
    if (failed) class_names_free(out);
    free(bytes);
    return failed ? -1 : 0;
}

int class_names_save(const class_names *c, const char *path) {
    adamod__buffer lines = {0};
    for (int i = 0; i < c->n; i++) adamod__buffer_format(&lines, "%s\n", c->name[i]);
    const int failed = lines.failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the names of classes")
                                    : text_write(path, (text_slice){lines.text, lines.n});
    adamod__buffer_free(&lines);
    return failed;
}

/* ---- pictures ---- */

int pictures_reserve(pictures *p, int64_t more) {
    const int64_t most = (int64_t)(PTRDIFF_MAX / pictures_bytes(p)); /* also on 32 bits */
    if (more <= p->room - p->n) return 0;
    const bool fits = more <= most - p->n;
    const int64_t all = fits ? p->n + more : most;
    uint8_t *bytes = fits ? realloc(p->bytes, (size_t)all * pictures_bytes(p)) : NULL;
    if (bytes) p->bytes = bytes;
    int32_t *labels = bytes ? realloc(p->labels, (size_t)all * sizeof *labels) : NULL;
    if (!labels)
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld pictures of %d x %d", (long long)all, p->size,
                            p->size);
    p->labels = labels;
    p->room = all;
    return 0;
}

void pictures_free(pictures *p) {
    free(p->bytes);
    free(p->labels);
    class_names_free(&p->classes);
    *p = (pictures){.size = p->size};
}

/* ---- many of them ---- */

typedef struct counted {
    const pictures_crew *crew;
    pool_task task;
    void *context;
    int64_t total;
    atomic_llong done;
} counted;

static void count_one(void *context, int64_t i, int thread) {
    counted *c = context;
    c->task(c->context, i, thread);
    const int64_t done = atomic_fetch_add(&c->done, 1) + 1;
    if (thread == 0) c->crew->tell(c->crew->context, done, c->total);
}

void pictures_each(const pictures_crew *crew, int64_t n, pool_task task, void *context) {
    counted c = {.crew = crew, .task = task, .context = context, .total = n};
    adamod__pool_run(crew->pool, n, crew->tell ? count_one : task, crew->tell ? &c : context);
    if (crew->tell) crew->tell(crew->context, n, n);
}
