#include "data/line_map.h"

#include "core/buffer.h"
#include "core/error.h"
#include "core/pool.h"
#include "data/text_input.h"

#include <stdlib.h>

/* Lines per batch, of which a thread takes LOT at a time. */
enum { LINES = 8192, LOT = 64 };

typedef struct line_batch {
    const line_map *m;
    adamod_pool *pool;
    void **workers;       /* one for each thread */
    adamod__buffer bytes; /* of all lines, end to end */
    size_t at[LINES + 1];
    char *out[LINES];
    int n;
} line_batch;

static int add_line(line_batch *b, text_slice line) {
    adamod__buffer_add(&b->bytes, line.bytes, line.n);
    if (b->bytes.failed) return -1;
    b->at[++b->n] = b->bytes.n;
    return 0;
}

static void run_lot(void *context, int64_t lot, int thread) {
    line_batch *b = context;
    const int64_t end = (lot + 1) * LOT < b->n ? (lot + 1) * LOT : b->n;
    for (int64_t i = lot * LOT; i < end; i++) {
        const text_slice line = {b->bytes.text + b->at[i], b->at[i + 1] - b->at[i]};
        b->out[i] = b->m->run(b->workers[thread], line);
    }
}

/* Processes the lines that were read and passes them on. */
static int flush_lines(line_batch *b) {
    int good = 0, status = 0;
    adamod__pool_run(b->pool, (b->n + LOT - 1) / LOT, run_lot, b);
    while (good < b->n && b->out[good]) good++;
    status = b->m->take(b->m->context, good, b->out);
    if (!status && good < b->n) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < b->n; i++) free(b->out[i]);
    b->n = 0;
    b->bytes.n = 0;
    return status;
}

static int run_file(line_batch *b, const char *path) {
    text_input *in;
    text_slice line;
    adamod__failure unread;
    int status = 0, got = 1;
    if (text_input_open(&in, path)) return -1;
    if (b->m->any) text_input_any(in);
    while (!status && (got = text_input_line(in, &line)) > 0) {
        if (b->m->keeps && !b->m->keeps(line)) continue;
        if (add_line(b, line)) status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(in));
        else if (b->n == LINES || text_input_waits(in)) status = flush_lines(b);
    }
    if (got < 0) adamod__save_failure(&unread);
    if (!status && b->n) status = flush_lines(b);
    if (!status && got < 0) status = adamod__fail_again(&unread);
    text_input_close(in);
    return status;
}

int line_map_run(const line_map *m, int n, const char *const *paths) {
    line_batch *b = calloc(1, sizeof *b);
    if (!b) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    int status = adamod_pool_create(&b->pool, m->threads);
    if (status) {
        free(b);
        return status;
    }
    const int threads = adamod_pool_threads(b->pool);
    bool whole = (b->workers = calloc((size_t)threads, sizeof *b->workers)) != NULL;
    b->m = m;
    for (int i = 0; whole && i < threads; i++) whole = (b->workers[i] = m->open(m->options)) != NULL;
    status = whole ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (!status && n == 0) status = run_file(b, NULL);
    for (int i = 0; i < n && !status; i++) status = run_file(b, paths[i]);
    for (int i = 0; b->workers && i < threads; i++) m->close(b->workers[i]);
    adamod_pool_free(b->pool);
    free(b->workers);
    adamod__buffer_free(&b->bytes);
    free(b);
    return status;
}
