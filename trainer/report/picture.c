/* picture.c - small pictures in the page as PNG in data URIs, not compressed: they have a few kilobytes. */
#include "report/page.h"

#include "support/base64.h"
#include "core/crc32.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STORED = 65535 }; /* most bytes of a stored block of deflate */

typedef struct bytes {
    unsigned char *at;
    size_t n;
} bytes;

static void add(bytes *b, const void *from, size_t n) {
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void add_u32(bytes *b, uint32_t x) {
    const unsigned char big[4] = {(unsigned char)(x >> 24), (unsigned char)(x >> 16), (unsigned char)(x >> 8),
                                  (unsigned char)x};
    add(b, big, sizeof big);
}

static uint32_t adler32(const unsigned char *x, size_t n) {
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + x[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static size_t zlib_size(size_t n) { return 2 + n + 5 * ((n + STORED - 1) / STORED) + 4; }

static void add_zlib(bytes *b, const unsigned char *x, size_t n) {
    add(b, "\x78\x01", 2);
    for (size_t at = 0; at < n; at += STORED) {
        const unsigned m = (unsigned)(n - at < STORED ? n - at : STORED);
        const unsigned char head[5] = {at + m == n, (unsigned char)m, (unsigned char)(m >> 8), (unsigned char)~m,
                                       (unsigned char)(~m >> 8)};
        add(b, head, sizeof head);
        add(b, x + at, m);
    }
    add_u32(b, adler32(x, n));
}

/* A chunk is its length, its name, its content, and a checksum of name and content. */
static size_t begin_chunk(bytes *b, const char *name, size_t n) {
    add_u32(b, (uint32_t)n);
    add(b, name, 4);
    return b->n - 4;
}

static void end_chunk(bytes *b, size_t from) { add_u32(b, adamod__crc32(0, b->at + from, b->n - from)); }

/* rows: for each row a byte 0 (no filter), then the pixels. */
static void add_png(bytes *b, const unsigned char *rows, int height, int width, int channels) {
    const size_t n = (size_t)height * (1 + (size_t)width * (size_t)channels);
    const unsigned char kind[5] = {8, channels == 3 ? 2 : 0, 0, 0, 0};
    add(b, "\x89PNG\r\n\x1a\n", 8);
    size_t chunk = begin_chunk(b, "IHDR", 13);
    add_u32(b, (uint32_t)width);
    add_u32(b, (uint32_t)height);
    add(b, kind, sizeof kind);
    end_chunk(b, chunk);
    chunk = begin_chunk(b, "IDAT", zlib_size(n));
    add_zlib(b, rows, n);
    end_chunk(b, chunk);
    chunk = begin_chunk(b, "IEND", 0);
    end_chunk(b, chunk);
}

void html_picture(FILE *out, const unsigned char *pixels, int height, int width, int channels) {
    const size_t row = (size_t)width * (size_t)channels, n = (size_t)height * (row + 1), all = zlib_size(n) + 57;
    bytes png = {.at = malloc(all)};
    unsigned char *rows = calloc(n, 1);
    char *text = malloc(base64_length(all) + 1);
    if (png.at && rows && text) {
        for (int i = 0; i < height; i++) memcpy(rows + (size_t)i * (row + 1) + 1, pixels + (size_t)i * row, row);
        add_png(&png, rows, height, width, channels);
        base64_encode(png.at, png.n, text);
        fprintf(out, "data:image/png;base64,%s", text);
    }
    free(png.at);
    free(rows);
    free(text);
}
