#include "data/unpack.h"

#include <stdlib.h>
#include <string.h>

#ifdef ADAMOD_ZLIB
#include <zlib.h>
#endif
#ifdef ADAMOD_ZSTD
#include <zstd.h>
#endif

struct unpacker {
    bool done;
#ifdef ADAMOD_ZLIB
    z_stream gzip;
    bool is_gzip;
#endif
#ifdef ADAMOD_ZSTD
    ZSTD_DCtx *zstd;
#endif
};

bool unpacker_knows(const char *how) {
#ifdef ADAMOD_ZLIB
    if (strcmp(how, "gzip") == 0) return true;
#endif
#ifdef ADAMOD_ZSTD
    if (strcmp(how, "zstd") == 0) return true;
#endif
    (void)how;
    return false;
}

unpacker *unpacker_create(const char *how) {
    unpacker *u = calloc(1, sizeof *u);
    bool made = false;
    if (!u) return NULL;
#ifdef ADAMOD_ZLIB
    u->is_gzip = strcmp(how, "gzip") == 0;
    if (u->is_gzip) made = inflateInit2(&u->gzip, 16 + MAX_WBITS) == Z_OK;
#endif
#ifdef ADAMOD_ZSTD
    if (strcmp(how, "zstd") == 0) made = (u->zstd = ZSTD_createDCtx()) != NULL;
#endif
    (void)how;
    if (made) return u;
    free(u);
    return NULL;
}

void unpacker_free(unpacker *u) {
    if (!u) return;
#ifdef ADAMOD_ZLIB
    if (u->is_gzip) inflateEnd(&u->gzip);
#endif
#ifdef ADAMOD_ZSTD
    ZSTD_freeDCtx(u->zstd);
#endif
    free(u);
}

#ifdef ADAMOD_ZLIB
static const char *run_gzip(unpacker *u, const char *in, size_t *n_in, char *out, size_t *n_out) {
    z_stream *z = &u->gzip;
    const uInt room = (uInt)(*n_out < 1u << 30 ? *n_out : 1u << 30), all = (uInt)*n_in;
    z->next_in = (Bytef *)(size_t)in; /* zlib does not write to it */
    z->avail_in = all;
    z->next_out = (Bytef *)out;
    z->avail_out = room;
    const char *fault = NULL;
    int status = Z_OK;
    while ((status == Z_OK || z->avail_in) && z->avail_out &&
           !fault) { /* even without input: zlib may hold text back */
        if (u->done && z->avail_in && inflateReset(z) != Z_OK) fault = "out of memory"; /* another member */
        if (u->done && !z->avail_in) break;
        status = inflate(z, Z_NO_FLUSH);
        u->done = status == Z_STREAM_END;
        if (status == Z_BUF_ERROR) break; /* no progress without more input */
        if (status == Z_MEM_ERROR) fault = "out of memory";
        else if (status != Z_OK && status != Z_STREAM_END) fault = "damaged gzip data";
    }
    *n_in = all - z->avail_in;
    *n_out = room - z->avail_out;
    return fault;
}
#endif

#ifdef ADAMOD_ZSTD
static const char *run_zstd(unpacker *u, const char *in, size_t *n_in, char *out, size_t *n_out) {
    ZSTD_inBuffer from = {in, *n_in, 0};
    ZSTD_outBuffer to = {out, *n_out, 0};
    for (bool more = true; more && to.pos < to.size && !(u->done && from.pos == from.size);) {
        const size_t before = to.pos, taken = from.pos;
        const size_t left = ZSTD_decompressStream(u->zstd, &to, &from);
        if (ZSTD_isError(left)) return "damaged zstd data";
        u->done = left == 0;
        more = to.pos > before || from.pos > taken; /* even without input: libzstd may hold text back */
    }
    *n_in = from.pos;
    *n_out = to.pos;
    return NULL;
}
#endif

const char *unpacker_run(unpacker *u, const char *in, size_t *n_in, char *out, size_t *n_out) {
#ifdef ADAMOD_ZLIB
    if (u->is_gzip) return run_gzip(u, in, n_in, out, n_out);
#endif
#ifdef ADAMOD_ZSTD
    if (u->zstd) return run_zstd(u, in, n_in, out, n_out);
#endif
    (void)u, (void)in, (void)out;
    *n_in = *n_out = 0;
    return "packed";
}

bool unpacker_done(const unpacker *u) { return u->done; }
