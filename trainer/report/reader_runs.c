#include "report/reader_parts.h"

#include "core/error.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RUNS = 4096 };

typedef struct found {
    char *path;
    char started[64];
} found;

static bool is_run(const char *directory) { return access(reader_file(directory, "recipe.yaml").path, F_OK) == 0; }

/* Finds when the run was started, as text that sorts; "": unknown. */
static void find_start(found *f) {
    report_run r = {.directory = f->path};
    const char *started = reader_value(&r, "machine.json", READER_BYTES, reader_machine) < 0
                              ? NULL
                              : report_pairs_find(&r.machine[0], "started");
    snprintf(f->started, sizeof f->started, "%s", started ? started : "");
    reader_free_pairs(&r.machine[0]);
}

static int by_start(const void *a, const void *b) {
    const found *x = a, *y = b;
    const int order = strcmp(x->started, y->started);
    return order ? order : strcmp(x->path, y->path);
}

static void free_found(found *list, size_t n) {
    for (size_t i = 0; i < n; i++) free(list[i].path);
    free(list);
}

static int add_found(found **list, size_t *n, const char *directory, const char *name) {
    char *path = strdup(name ? reader_file(directory, name).path : directory);
    if (path && !is_run(path)) {
        free(path);
        return 0;
    }
    if (!path || *n == MOST_RUNS || !ARRAY_EXTEND(*list, *n)) {
        free(path);
        return -1;
    }
    found *f = &(*list)[(*n)++];
    f->path = path;
    find_start(f);
    return 0;
}

static int search(const char *path, found **list, size_t *n) {
    int status = add_found(list, n, path, NULL);
    if (status == 0 && *n) return 0;
    DIR *directory = opendir(path);
    if (!directory) return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; status == 0 && (entry = readdir(directory));) {
        if (entry->d_name[0] != '.') status = add_found(list, n, path, entry->d_name);
    }
    closedir(directory);
    if (status && *n == MOST_RUNS) return adamod__refuse("%s: more than %d runs", path, MOST_RUNS);
    if (status) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    if (*n) return 0;
    return adamod__refuse("%s: not a run directory (no recipe.yaml), and no run directories in it", path);
}

int report_runs_find(const char *path, char ***out, int *n) {
    found *list = NULL;
    size_t count = 0;
    const int status = search(path, &list, &count);
    char **names = status ? NULL : calloc(count + 1, sizeof *names);
    if (!names || !list) {
        if (!status) (void)adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
        free_found(list, count);
        free(names);
        return -1;
    }
    qsort(list, count, sizeof *list, by_start);
    for (size_t i = 0; i < count; i++) names[i] = list[i].path;
    free(list);
    *out = names;
    *n = (int)count;
    return 0;
}
