/* picture.c - small pictures in the page as PNG in data URIs, not compressed: they have a few kilobytes. */
#include "report/page.h"

#include "core/buffer.h"
#include "core/crc32.h"
#include "support/base64.h"

#include <stdlib.h>

enum { STORED = 65535 }; /* most bytes of a stored block of deflate */

static void add_u32(adamod__buffer *b, uint32_t x) {
    const unsigned char big[4] = {(unsigned char)(x >> 24), (unsigned char)(x >> 16), (unsigned char)(x >> 8),
                                  (unsigned char)x};
    adamod__buffer_add(b, big, sizeof big);
}

static uint32_t adler32(const unsigned char *x, size_t n) {
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + x[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static void add_zlib(adamod__buffer *b, const unsigned char *x, size_t n) {
    adamod__buffer_add(b, "\x78\x01", 2);
    for (size_t at = 0; at < n; at += STORED) {
        const unsigned m = (unsigned)(n - at < STORED ? n - at : STORED);
        const unsigned char head[5] = {at + m == n, (unsigned char)m, (unsigned char)(m >> 8), (unsigned char)~m,
                                       (unsigned char)(~m >> 8)};
        adamod__buffer_add(b, head, sizeof head);
        adamod__buffer_add(b, x + at, m);
    }
    add_u32(b, adler32(x, n));
}

/* A chunk is its length, its name, its content, and a checksum of name and content. */
static void add_chunk(adamod__buffer *b, const char *name, const adamod__buffer *content) {
    add_u32(b, (uint32_t)content->n);
    adamod__buffer_add(b, name, 4);
    adamod__buffer_add(b, content->text, content->n);
    add_u32(b, adamod__crc32(adamod__crc32(0, name, 4), content->text, content->n));
}

static void add_png(adamod__buffer *b, const unsigned char *pixels, int height, int width, int channels) {
    const unsigned char kind[5] = {8, channels == 3 ? 2 : 0, 0, 0, 0};
    adamod__buffer head = {0}, rows = {0}, data = {0}, nothing = {0};
    const size_t row = (size_t)width * (size_t)channels;
    add_u32(&head, (uint32_t)width);
    add_u32(&head, (uint32_t)height);
    adamod__buffer_add(&head, kind, sizeof kind);
    for (int i = 0; i < height; i++) {
        adamod__buffer_add(&rows, "", 1); /* no filter */
        adamod__buffer_add(&rows, pixels + (size_t)i * row, row);
    }
    if (!rows.failed) add_zlib(&data, (const unsigned char *)rows.text, rows.n);
    adamod__buffer_add(b, "\x89PNG\r\n\x1a\n", 8);
    b->failed |= head.failed || rows.failed || data.failed;
    if (!b->failed) {
        add_chunk(b, "IHDR", &head);
        add_chunk(b, "IDAT", &data);
        add_chunk(b, "IEND", &nothing);
    }
    adamod__buffer_free(&head);
    adamod__buffer_free(&rows);
    adamod__buffer_free(&data);
}

void html_picture(FILE *out, const unsigned char *pixels, int height, int width, int channels) {
    adamod__buffer png = {0};
    add_png(&png, pixels, height, width, channels);
    char *text = png.failed ? NULL : malloc(base64_length(png.n) + 1);
    if (text) {
        base64_encode(png.text, png.n, text);
        fprintf(out, "data:image/png;base64,%s", text);
    }
    free(text);
    adamod__buffer_free(&png);
}
