/* libFuzzer target: adamod_load on the bytes of a state file, with an optimizer that is in use.
 *
 *     cmake --preset fuzz && cmake --build --preset fuzz --target fuzz_load
 *
 * The first byte chooses the optimizer, the rest is the file. A refused file changes nothing; after an accepted one the
 * optimizer can step, be saved and loaded again. Checksums are not compared in a fuzzer's build, since none could be
 * guessed. First inputs are in corpus/load: files that seed_corpus wrote.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "load_model.h"
#include "optim/optimizer.h"

#include <stdio.h>
#include <sys/mman.h>

/* All that a file of the optimizer has: names, metadata, data. */
typedef struct contents {
    unsigned char bytes[4096];
    size_t n;
} contents;

static void add(contents *c, const void *data, size_t n) {
    load_require(n <= sizeof c->bytes - c->n);
    memcpy(c->bytes + c->n, data, n);
    c->n += n;
}

static void take_contents(const adamod_optimizer *opt, contents *c) {
    adamod__state_list list;
    c->n = 0;
    load_require(adamod__state_list_make(opt, "", &list) == ADAMOD_OK);
    for (int i = 0; i < ADAMOD__STATE_PAIRS; i++) add(c, list.metadata[i].value, strlen(list.metadata[i].value) + 1);
    for (size_t i = 0; i < list.n; i++) {
        const adamod__st_tensor *t = &list.tensors[i];
        size_t bits = adamod__st_dtype_bits(t->dtype);
        for (int d = 0; d < t->ndim; d++) bits *= (size_t)t->shape[d];
        add(c, t->name, strlen(t->name) + 1);
        add(c, t->data, bits / 8);
    }
    adamod__state_list_free(&list);
}

static void check_line(const char *path) {
    const char *words = adamod_last_error();
    load_require(strstr(words, path) && is_line(words));
}

/* A directory in memory for files that are saved; it is removed at the end. */
static char folder[64], saved[80];

static void remove_folder(void) {
    unlink(saved);
    rmdir(folder);
}

static void make_folder(void) {
    if (*folder) return;
    snprintf(folder, sizeof folder, "%s/fuzz_load.XXXXXX", fuzz_place());
    load_require(mkdtemp(folder) != NULL);
    snprintf(saved, sizeof saved, "%s/state", folder);
    atexit(remove_folder);
}

static void check_loaded(const load_model *m) {
    contents before, after;
    load_require(adamod_step(m->opt) == ADAMOD_OK);
    load_require(adamod_save(m->opt, saved) == ADAMOD_OK);
    take_contents(m->opt, &before);
    load_require(adamod_load(m->opt, saved) == ADAMOD_OK);
    take_contents(m->opt, &after);
    load_require(before.n == after.n && memcmp(before.bytes, after.bytes, before.n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    make_folder();
    load_model m;
    contents before, after;
    char path[32];
    load_model_make(&m, data[0] % LOAD_MODELS);
    take_contents(m.opt, &before);
    const int fd = memfd_create("state", 0);
    load_require(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (adamod_load(m.opt, path) == ADAMOD_OK) {
        check_loaded(&m);
    } else {
        check_line(path);
        take_contents(m.opt, &after);
        load_require(before.n == after.n && memcmp(before.bytes, after.bytes, before.n) == 0);
    }
    close(fd);
    adamod_free(m.opt);
    return 0;
}
