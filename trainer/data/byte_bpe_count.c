/* Counts the pieces of texts. */
#include "data/byte_bpe_internal.h"

#include "core/error.h"
#include "core/pool.h"
#include "data/byte_pieces.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

/* Bytes read before they are counted, and the parts each thread gets of them. */
enum { BATCH = 8 << 20, LOTS = 4 };

byte_bpe_learner *byte_bpe_learner_create(void) {
    byte_bpe_learner *l = calloc(1, sizeof *l);
    if (l && !(l->pieces.of = strings_create())) {
        free(l);
        return NULL;
    }
    return l;
}

void byte_bpe_learner_free(byte_bpe_learner *l) {
    if (!l) return;
    string_counts_free(&l->pieces);
    free(l);
}

/* The first line with its end. */
static text_slice first_line(text_slice text) {
    const char *end = memchr(text.bytes, '\n', text.n);
    return (text_slice){text.bytes, end ? (size_t)(end - text.bytes) + 1 : text.n};
}

int byte_bpe_learner_add(byte_bpe_learner *l, text_slice text) {
    while (text.n) {
        text_slice line = first_line(text);
        text = (text_slice){text.bytes + line.n, text.n - line.n};
        while (line.n) {
            if (string_counts_add(&l->pieces, byte_pieces_next(&line), 1)) return -1;
        }
    }
    return 0;
}

/* ---- files ---- */

typedef struct counting {
    adamod_pool *pool;
    int threads;
    byte_bpe_learner **workers; /* one for each thread */
    bool *failed;               /* out of memory */
    adamod__buffer text;
    text_slice *lots;
} counting;

static void count_lot(void *context, int64_t lot, int thread) {
    counting *c = context;
    if (byte_bpe_learner_add(c->workers[thread], c->lots[lot])) c->failed[thread] = true;
}

/* Counts the first n bytes that were read, which are whole lines, and keeps the rest. */
static int count_text(counting *c, size_t n) {
    text_slice rest = {c->text.text, n};
    const size_t each = n / (size_t)(c->threads * LOTS) + 1;
    int lots = 0;
    for (; rest.n; lots++) {
        size_t size = each < rest.n ? each : rest.n;
        if (size < rest.n) size += first_line((text_slice){rest.bytes + size, rest.n - size}).n;
        c->lots[lots] = (text_slice){rest.bytes, size};
        rest = (text_slice){rest.bytes + size, rest.n - size};
    }
    adamod__pool_run(c->pool, lots, count_lot, c);
    c->text.n -= n;
    if (n) memmove(c->text.text, c->text.text + n, c->text.n);
    for (int i = 0; i < c->threads; i++) {
        if (c->failed[i]) return -1;
    }
    return 0;
}

static int count_file(counting *c, const char *path) {
    text_input *in;
    text_slice bytes;
    int got, status = 0;
    if (text_input_open(&in, path)) return -1;
    while (!status && (got = text_input_bytes(in, &bytes)) != 0) {
        if (got < 0) {
            status = got;
            break;
        }
        adamod__buffer_add(&c->text, bytes.bytes, bytes.n);
        const char *end = c->text.n >= BATCH ? memrchr(c->text.text, '\n', c->text.n) : NULL;
        if (c->text.failed || (end && count_text(c, (size_t)(end - c->text.text) + 1)))
            status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(in));
    }
    if (!status && c->text.n && count_text(c, c->text.n))
        status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(in));
    text_input_close(in);
    return status;
}

static int join(byte_bpe_learner *l, const byte_bpe_learner *other) {
    for (int32_t i = 0; i < strings_count(other->pieces.of); i++) {
        if (string_counts_add(&l->pieces, strings_get(other->pieces.of, i), other->pieces.times[i])) return -1;
    }
    return 0;
}

static bool make_workers(counting *c) {
    c->workers = calloc((size_t)c->threads, sizeof *c->workers);
    c->failed = calloc((size_t)c->threads, sizeof *c->failed);
    c->lots = calloc((size_t)c->threads * LOTS + 1, sizeof *c->lots);
    bool whole = c->workers && c->failed && c->lots;
    for (int i = 0; whole && i < c->threads; i++) whole = (c->workers[i] = byte_bpe_learner_create()) != NULL;
    return whole;
}

int byte_bpe_learner_add_files(byte_bpe_learner *l, int n, const char *const *paths, int threads) {
    counting c = {0};
    ADAMOD__TRY(adamod_pool_create(&c.pool, threads));
    c.threads = adamod_pool_threads(c.pool);
    int status = make_workers(&c) ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (!status && n == 0) status = count_file(&c, NULL);
    for (int i = 0; i < n && !status; i++) status = count_file(&c, paths[i]);
    for (int i = 0; i < c.threads && !status; i++) {
        if (join(l, c.workers[i]))
            status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the pieces of all texts");
    }
    for (int i = 0; c.workers && i < c.threads; i++) byte_bpe_learner_free(c.workers[i]);
    adamod_pool_free(c.pool);
    adamod__buffer_free(&c.text);
    free(c.workers);
    free(c.failed);
    free(c.lots);
    return status;
}
