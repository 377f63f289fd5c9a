/* Shapes of `adamod bench train`: their list, and a folder with data for one. */
#include "cli/bench_train.h"
#include "core/error.h"
#include "support/text.h"
#include "tasks/tasks.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const task_shape *bench_train_shape_at(int i, const task_bench **of) {
    for (const task *const *t = tasks_all; *t; t++) {
        bool seen = !(*t)->bench || !(*t)->bench->shapes; /* tasks may share a bench */
        for (const task *const *before = tasks_all; before < t; before++)
            seen = seen || (*before)->bench == (*t)->bench;
        if (seen) continue;
        *of = (*t)->bench;
        for (const task_shape *s = (*of)->shapes; s->name; s++) {
            if (i-- == 0) return s;
        }
    }
    return NULL;
}

const task_shape *bench_train_find_shape(const char *name) {
    const task_bench *of;
    const task_shape *s = NULL;
    for (int i = 0; (s = bench_train_shape_at(i, &of)) && strcmp(s->name, name) != 0; i++) {}
    return s;
}

const char *bench_train_shape_names(char *out, size_t size) {
    const task_bench *of;
    *out = '\0';
    for (int i = 0; bench_train_shape_at(i, &of); i++)
        text_join(out, size, bench_train_shape_at(i + 1, &of) ? ", " : " or ", bench_train_shape_at(i, &of)->name);
    return out;
}

int bench_train_make_data(const task_shape *shape, recipe *r, char *folder, size_t folder_size) {
    const task_bench *of = NULL;
    for (int i = 0; bench_train_shape_at(i, &of) != shape; i++) {}
    const char *where = getenv("TMPDIR");
    snprintf(folder, folder_size, "%s/adamod-bench-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(folder)) {
        const int status =
            adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make a temporary folder: %s", folder, strerror(errno));
        *folder = '\0';
        return status;
    }
    return !of->make ? 0 : of->make(shape, BENCH_BATCHES, folder, r);
}

void bench_train_drop_data(const char *folder) {
    DIR *files = *folder ? opendir(folder) : NULL;
    for (const struct dirent *file; files && (file = readdir(files));) unlinkat(dirfd(files), file->d_name, 0);
    if (files) closedir(files);
    if (*folder) rmdir(folder);
}
