#include "data/token_pack.h"

#include "core/error.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 1 << 20 }; /* bytes that are read before they are encoded */

typedef struct packing {
    const token_pack *p;
    byte_bpe_encoder *encoder;
    token_writer *out;
    adamod__buffer text; /* read, not yet encoded */
    byte_bpe_ids ids;
    bool begun; /* some of a document was encoded, the rest follows */
} packing;

/* Encodes the rest of a document, or as much of it as later text cannot change. Returns the bytes taken. */
static int64_t encode(packing *k, text_slice text, bool ends) {
    const int32_t end = byte_bpe_end(k->p->b);
    k->ids.n = 0;
    if (!k->begun && text.n && token_writer_add(k->out, &end, 1)) return -1;
    k->begun = (k->begun || text.n) && !ends;
    const int64_t taken = ends ? (byte_bpe_encode(k->encoder, text, &k->ids) ? -1 : (int64_t)text.n)
                               : byte_bpe_encode_part(k->encoder, text, &k->ids);
    if (taken < 0) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    return token_writer_add(k->out, k->ids.list, k->ids.n) ? -1 : taken;
}

/* Finds the end of the first document: it has n bytes and is followed by the next at *next. */
static bool find_end(const packing *k, text_slice text, size_t *n, size_t *next) {
    const char *mark = k->p->document == TOKEN_DOCUMENT_BLANK ? "\n\n" : "\n";
    const char *end =
        k->p->document == TOKEN_DOCUMENT_FILE || !text.n ? NULL : memmem(text.bytes, text.n, mark, strlen(mark));
    if (!end) return false;
    *n = (size_t)(end - text.bytes);
    *next = *n + strlen(mark);
    if (k->p->document == TOKEN_DOCUMENT_BLANK) *n = *next;
    else if (*n && text.bytes[*n - 1] == '\r') --*n;
    return true;
}

/* Encodes the text that was read, and keeps the part that later text may change. */
static int encode_text(packing *k, bool last) {
    text_slice rest = {k->text.text, k->text.n};
    for (size_t n, next; find_end(k, rest, &n, &next); rest = (text_slice){rest.bytes + next, rest.n - next}) {
        if (encode(k, (text_slice){rest.bytes, n}, true) < 0) return -1;
    }
    const int64_t taken = rest.n || last ? encode(k, rest, last) : 0;
    if (taken < 0) return -1;
    k->text.n = rest.n - (size_t)taken;
    if (k->text.n) memmove(k->text.text, rest.bytes + taken, k->text.n);
    return 0;
}

static int pack_input(packing *k, text_input *in) {
    text_slice bytes;
    size_t enough = BATCH;
    int got;
    while ((got = text_input_bytes(in, &bytes)) > 0) {
        adamod__buffer_add(&k->text, bytes.bytes, bytes.n);
        if (k->text.failed) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
        if (k->text.n < enough) continue;
        if (encode_text(k, false)) return -1;
        enough = 2 * k->text.n > BATCH ? 2 * k->text.n : BATCH; /* else a long piece would be searched repeatedly */
    }
    return got < 0 ? got : encode_text(k, true);
}

static int pack_file(packing *k, const char *path) {
    text_input *in;
    if (text_input_open(&in, path)) return -1;
    const int status = pack_input(k, in);
    text_input_close(in);
    return status;
}

int token_pack_run(const token_pack *p, int n, const char *const *paths, token_writer *out) {
    packing k = {.p = p, .out = out, .encoder = byte_bpe_encoder_create(p->b, p->marks)};
    int status = k.encoder ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (!status && n == 0) status = pack_file(&k, NULL);
    for (int i = 0; i < n && !status; i++) status = pack_file(&k, paths[i]);
    byte_bpe_encoder_free(k.encoder);
    adamod__buffer_free(&k.text);
    free(k.ids.list);
    return status;
}
