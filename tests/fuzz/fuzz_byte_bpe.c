/* libFuzzer target: trainer/data/byte_bpe*.c on any vocab.json and merges.txt, and on any text.
 *
 * An input is a byte of options, then vocab.json, a byte 0xff, merges.txt, a byte 0xff, and the text. With an option
 * the vocabulary has the 256 bytes already, and the input more tokens. Every text decodes to itself, in parts too; a
 * model that is read or learned is written and read again; what is refused gets one line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "core/error.h"
#include "data/byte_bpe.h"

static char folder[64];
static void remove_folder(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/vocab.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/merges.txt", folder);
    unlink(path);
    rmdir(folder);
}

static void choose_folder(void) {
    snprintf(folder, sizeof folder, "%s/fuzz_byte_bpe.%d", fuzz_place(), (int)getpid());
    atexit(remove_folder);
}

static text_slice take(text_slice *rest) {
    const char *end = rest->n ? memchr(rest->bytes, 0xff, rest->n) : NULL;
    const text_slice part = {rest->bytes, end ? (size_t)(end - rest->bytes) : rest->n};
    const size_t n = part.n + (end != NULL);
    *rest = (text_slice){rest->bytes + n, rest->n - n};
    return part;
}

/* A vocabulary of the 256 bytes, and what follows. */
static void put_vocab(adamod__buffer *out, text_slice more) {
    int id = 0;
    for (unsigned c = 33; c < 324; c++) {
        char spelled[4];
        if ((c > 126 && c < 161) || c == 173) continue;
        adamod__buffer_text(out, id ? ",\"" : "{\"");
        if (c == '"' || c == '\\') adamod__buffer_text(out, "\\");
        adamod__buffer_add(out, spelled, text_put_code_point(c, spelled));
        adamod__buffer_format(out, "\":%d", id++);
    }
    adamod__buffer_add(out, more.bytes, more.n);
    adamod__buffer_text(out, "}");
    require(!out->failed && id == 256);
}

static void check_text(const byte_bpe *b, text_slice text, bool marks) {
    byte_bpe_encoder *e = byte_bpe_encoder_create(b, marks);
    byte_bpe_ids ids = {0}, parts = {0};
    adamod__buffer out = {0};
    require(e && byte_bpe_encode(e, text, &ids) == 0);
    for (size_t i = 0; i < ids.n; i++) require(ids.list[i] >= 0 && ids.list[i] < byte_bpe_size(b));
    byte_bpe_decode(b, ids.list, ids.n, &out);
    require(out.n == text.n && (!text.n || memcmp(out.text, text.bytes, text.n) == 0));
    size_t at = 0;
    for (size_t end = 0; end <= text.n; end += 13) {
        const int64_t taken = byte_bpe_encode_part(e, (text_slice){text.bytes + at, end - at}, &parts);
        require(taken >= 0 && (size_t)taken <= end - at);
        at += (size_t)taken;
    }
    require(byte_bpe_encode(e, (text_slice){text.bytes + at, text.n - at}, &parts) == 0);
    require(parts.n == ids.n && (!ids.n || memcmp(parts.list, ids.list, ids.n * sizeof *ids.list) == 0));
    byte_bpe_encoder_free(e);
    adamod__buffer_free(&out);
    free(ids.list);
    free(parts.list);
}

static void check_saved(const byte_bpe *b, text_slice text) {
    byte_bpe *again = NULL;
    require(byte_bpe_save(b, folder) == 0 && byte_bpe_load(&again, folder) == 0);
    require(byte_bpe_size(again) == byte_bpe_size(b) && byte_bpe_end(again) == byte_bpe_end(b));
    check_text(again, text, true);
    byte_bpe_free(again);
}

static void check_learned(text_slice text, int64_t size) {
    byte_bpe *b = NULL;
    byte_bpe_learner *l = byte_bpe_learner_create();
    require(l && byte_bpe_learner_add(l, text) == 0 && byte_bpe_learn(&b, l, size, 1 + size % 3) == 0);
    require(byte_bpe_size(b) >= 257 && byte_bpe_size(b) <= size && byte_bpe_end(b) == byte_bpe_size(b) - 1);
    check_text(b, text, false);
    check_saved(b, text);
    byte_bpe_free(b);
    byte_bpe_learner_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    byte_bpe *b;
    adamod__buffer whole = {0};
    if (size < 1) return 0;
    if (!*folder) choose_folder();
    text_slice rest = {(const char *)data + 1, size - 1};
    text_slice vocab = take(&rest);
    const text_slice merges = take(&rest), text = rest;
    if (data[0] & 1) {
        put_vocab(&whole, vocab);
        vocab = (text_slice){whole.text, whole.n};
    }
    if (byte_bpe_parse(&b, vocab, "v", merges, "m")) {
        const char *line = adamod__last_message();
        require(!b && (*line == 'v' || *line == 'm') && line[1] == ':' && is_line(line));
    } else {
        check_text(b, text, data[0] & 2);
        check_saved(b, text);
    }
    byte_bpe_free(b);
    if (data[0] & 4) check_learned(text, 257 + data[0]);
    adamod__buffer_free(&whole);
    return 0;
}
