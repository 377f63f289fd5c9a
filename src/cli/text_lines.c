/* text_lines.c - see text_lines.h. */
#include "cli/text_lines.h"

#include "base/pool.h"
#include "data/text_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Lines worked on at once, of which a thread takes LOT at a time. */
enum { LINES = 8192, LOT = 64 };

typedef struct batch_of_lines {
    const text_lines *t;
    void **workers; /* one for each thread */
    char *bytes;    /* of all lines, end to end */
    size_t n_bytes, room;
    size_t at[LINES + 1];
    char *out[LINES];
    int n;
} batch_of_lines;

static int add_line(batch_of_lines *b, text_slice line) {
    if (b->room - b->n_bytes < line.n || !b->bytes) {
        const size_t room = (b->n_bytes + line.n) * 2 + 65536;
        char *bytes = realloc(b->bytes, room);
        if (!bytes) return -1;
        b->bytes = bytes;
        b->room = room;
    }
    if (line.n) memcpy(b->bytes + b->n_bytes, line.bytes, line.n);
    b->n_bytes += line.n;
    b->at[++b->n] = b->n_bytes;
    return 0;
}

static void run_lot(void *context, int64_t lot, int thread) {
    batch_of_lines *b = context;
    const int64_t end = (lot + 1) * LOT < b->n ? (lot + 1) * LOT : b->n;
    for (int64_t i = lot * LOT; i < end; i++) {
        const text_slice line = {b->bytes + b->at[i], b->at[i + 1] - b->at[i]};
        b->out[i] = b->t->run(b->workers[thread], line);
    }
}

/* Works on the lines that were read, and prints them: exit status. */
static int flush_lines(batch_of_lines *b, adamod_pool *pool) {
    int status = 0;
    adamod__pool_run(pool, (b->n + LOT - 1) / LOT, run_lot, b);
    for (int i = 0; i < b->n; i++) {
        if (!b->out[i]) status = CLI_FAILURE;
        if (!status) {
            fputs(b->out[i], stdout);
            putchar('\n');
        }
        free(b->out[i]);
    }
    b->n = 0;
    b->n_bytes = 0;
    fflush(stdout);
    if (ferror(stdout)) return cli_fail(b->t->command, "cannot write to standard output: %s", strerror(errno));
    return status ? cli_fail(b->t->command, "out of memory") : 0;
}

static int run_file(batch_of_lines *b, adamod_pool *pool, const char *path) {
    text_input *in;
    text_slice line;
    char message[512];
    int status = 0, got = 1;
    if (text_input_open(&in, path, message, sizeof message)) return cli_fail(b->t->command, "%s", message);
    while (!status && (got = text_input_line(in, &line, message, sizeof message)) > 0) {
        if (add_line(b, line)) status = cli_fail(b->t->command, "%s: out of memory", text_input_name(in));
        else if (b->n == LINES || text_input_waits(in)) status = flush_lines(b, pool);
    }
    if (!status && b->n) status = flush_lines(b, pool);
    if (!status && got < 0) status = cli_fail(b->t->command, "%s", message);
    text_input_close(in);
    return status;
}

static int run_files(batch_of_lines *b, adamod_pool *pool) {
    int status = b->t->n ? 0 : run_file(b, pool, NULL);
    for (int i = 0; i < b->t->n && !status; i++) status = run_file(b, pool, b->t->paths[i]);
    return status;
}

int text_lines_run(const text_lines *t) {
    adamod_pool *pool = NULL;
    batch_of_lines *b = calloc(1, sizeof *b);
    const adamod_status made = adamod_pool_create(&pool, (int)t->threads);
    if (made || !b) {
        free(b);
        adamod_pool_free(pool);
        return made ? cli_library(t->command, made) : cli_fail(t->command, "out of memory");
    }
    const int threads = adamod_pool_threads(pool);
    bool whole = (b->workers = calloc((size_t)threads, sizeof *b->workers)) != NULL;
    b->t = t;
    for (int i = 0; whole && i < threads; i++) whole = (b->workers[i] = t->open(t->options)) != NULL;
    const int status = whole ? run_files(b, pool) : cli_fail(t->command, "out of memory");
    for (int i = 0; b->workers && i < threads; i++) t->close(b->workers[i]);
    adamod_pool_free(pool);
    free(b->workers);
    free(b->bytes);
    free(b);
    return status;
}
