#include "data/cifar.h"

#include "core/error.h"
#include "support/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = CIFAR_SIZE, PLANE = SIDE * SIDE };

typedef struct cifar_format {
    const char *folder, *names;
    int labels, label, classes; /* label bytes per record; the index of the label used; number of its values */
    const char *train[6], *test[2];
    int64_t train_records, test_records; /* of each file */
} cifar_format;

#define HUNDRED .folder = "cifar-100-binary", .labels = 2, .train = {"train.bin"}, .test = {"test.bin"}
static const cifar_format formats[] = {
    [CIFAR_10] = {.folder = "cifar-10-batches-bin",
                  .names = "batches.meta.txt",
                  .labels = 1,
                  .classes = 10,
                  .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                            "data_batch_5.bin"},
                  .test = {"test_batch.bin"},
                  .train_records = 10000,
                  .test_records = 10000},
    [CIFAR_100_FINE] = {HUNDRED, .names = "fine_label_names.txt", .label = 1, .classes = 100, .train_records = 50000,
                        .test_records = 10000},
    [CIFAR_100_COARSE] = {HUNDRED, .names = "coarse_label_names.txt", .label = 0, .classes = 20, .train_records = 50000,
                          .test_records = 10000},
};

/* ---- records ---- */

/* Converts planes to interleaved pixels. */
static void take_pixels(uint8_t *to, const uint8_t *planes) {
    for (int i = 0; i < PLANE; i++) {
        for (int k = 0; k < 3; k++) to[3 * i + k] = planes[k * PLANE + i];
    }
}

int cifar_parse(pictures *out, const char *name, const void *bytes, size_t n, cifar_kind kind) {
    const cifar_format *f = &formats[kind];
    const size_t record = (size_t)f->labels + 3 * PLANE;
    if (n == 0) return adamod__refuse("%s: the file is empty", name);
    if (n % record)
        return adamod__refuse("%s: %zu bytes, expected records of %zu: %zu bytes are left over after %zu", name, n,
                              record, n % record, n / record);
    if (pictures_reserve(out, (int64_t)(n / record))) return -1;
    const int64_t before = out->n;
    for (size_t i = 0; i < n / record; i++) {
        const uint8_t *x = (const uint8_t *)bytes + i * record;
        if (x[f->label] >= f->classes) {
            out->n = before;
            return adamod__refuse("%s: record %zu: label %d, expected 0 to %d", name, i + 1, x[f->label],
                                  f->classes - 1);
        }
        out->labels[out->n] = x[f->label];
        take_pixels(out->bytes + (size_t)out->n++ * pictures_bytes(out), x + f->labels);
    }
    return 0;
}

/* ---- files ---- */

static int read_file(pictures *out, const char *path, const cifar_options *o) {
    const cifar_format *f = &formats[o->kind];
    const int64_t record = f->labels + 3 * PLANE, records = o->test ? f->test_records : f->train_records;
    const int64_t whole = record * records;
    struct stat info;
    char *bytes;
    size_t n;
    if (stat(path, &info)) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!o->any_size && info.st_size != whole)
        return adamod__refuse("%s: %lld bytes, expected %lld: %lld records of %lld%s", path, (long long)info.st_size,
                              (long long)whole, (long long)records, (long long)record,
                              info.st_size < whole ? "; it is cut short" : "");
    if (text_read(path, &bytes, &n)) return -1;
    const int failed = cifar_parse(out, path, bytes, n, o->kind);
    free(bytes);
    return failed;
}

static int name_classes(class_names *out, const char *directory, const cifar_format *f) {
    const path_text path = path_join(directory, f->names);
    struct stat info;
    if (stat(path.text, &info) == 0) {
        if (class_names_load(out, path.text)) return -1;
        const int n = out->n;
        if (n == f->classes) return 0;
        class_names_free(out);
        return adamod__refuse("%s: names of %d classes, expected %d", path.text, n, f->classes);
    }
    for (int i = 0; i < f->classes; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        if (class_names_add(out, number)) return -1;
    }
    return 0;
}

int cifar_read(pictures *out, const char *directory, const cifar_options *o) {
    const cifar_format *f = &formats[o->kind];
    const char *const *files = o->test ? f->test : f->train;
    const int64_t before = out->n;
    const path_text below = path_join(directory, f->folder);
    struct stat info;
    const char *folder = stat(below.text, &info) ? directory : below.text;
    if (out->classes.n && out->classes.n != f->classes)
        return adamod__refuse("%s: %d classes, expected %d, as the model has", folder, f->classes, out->classes.n);
    int failed = out->classes.n ? 0 : name_classes(&out->classes, folder, f);
    for (int i = 0; !failed && files[i]; i++) {
        failed = read_file(out, path_join(folder, files[i]).text, o);
    }
    if (failed) out->n = before;
    return failed ? -1 : 0;
}
