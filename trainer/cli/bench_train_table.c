/* `adamod bench train` of several shapes: each in a process of its own, so that it begins with empty memory. */
#include "cli/bench_train.h"
#include "core/error.h"
#include "cli/jobs.h"
#include "support/json.h"
#include "support/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct table {
    const bench_request *ask;
    char folder[512]; /* of the JSON files of shapes; "": not asked for */
    bool headed;      /* a shape was printed, and the head before it */
} table;

static void result_path(const table *t, int i, char *out, size_t size) {
    snprintf(out, size, "%s/%s.json", t->folder, t->ask->shapes[i]->name);
}

static int measure(void *context, int i) {
    const table *t = context;
    char file[600];
    bench_request ask = *t->ask;
    ask.shape = t->ask->shapes[i];
    ask.row = true;
    ask.head = !t->headed;
    if (ask.json) {
        result_path(t, i, file, sizeof file);
        ask.json = file;
    }
    return bench_train_one(&ask);
}

static void note_end(void *context, int i, int status) {
    table *t = context;
    t->headed = t->headed || !status;
    if (status) printf("%-12s failed\n", t->ask->shapes[i]->name);
    fflush(stdout);
}

static int make_folder(table *t) {
    const char *where = getenv("TMPDIR");
    snprintf(t->folder, sizeof t->folder, "%s/adamod-bench-XXXXXX", where && *where ? where : "/tmp");
    if (mkdtemp(t->folder)) return 0;
    const int status = cli_fail(BENCH_TRAIN, "%s: cannot make a temporary folder: %s", t->folder, strerror(errno));
    *t->folder = '\0';
    return status;
}

static int add_result(const table *t, int i, json *j) {
    char path[600], *bytes;
    size_t n;
    result_path(t, i, path, sizeof path);
    if (text_read(path, &bytes, &n)) return -1;
    bytes[n - 1] = '\0'; /* in place of the '\n' */
    json_raw(j, bytes);
    free(bytes);
    return 0;
}

/* Writes a list of the results, without those that failed. */
static int join_results(const table *t, const int *status) {
    const char *path = t->ask->json;
    json j = {0};
    int failed = 0;
    json_open(&j, '[');
    for (int i = 0; i < t->ask->n_shapes && !failed; i++) {
        if (status[i] == 0) failed = add_result(t, i, &j);
    }
    json_close(&j, ']');
    json_end_line(&j);
    if (!failed && j.failed) failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    if (!failed) failed = text_write(path, (text_slice){j.text, j.n});
    json_free(&j);
    return failed ? cli_failed(BENCH_TRAIN) : 0;
}

int bench_train_table(const bench_request *ask) {
    table t = {.ask = ask};
    int status[BENCH_MOST_SHAPES];
    if (ask->json && make_folder(&t)) return CLI_FAILURE;
    const jobs j = {
        .command = BENCH_TRAIN, .n = ask->n_shapes, .at_once = 1, .run = measure, .context = &t, .ended = note_end};
    int worst = jobs_run(&j, status);
    for (int i = 0; i < ask->n_shapes && !worst; i++) worst = status[i];
    const int failed = ask->json ? join_results(&t, status) : 0;
    bench_train_drop_data(t.folder);
    return worst ? worst : failed;
}
