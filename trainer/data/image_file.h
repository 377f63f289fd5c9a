/* image_file.h - reads PNG and JPEG files, if built with libpng and libjpeg, and scales pictures to a square. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Limits, because a small file can claim any size. */
enum { IMAGE_MOST_SIDE = 32768, IMAGE_MOST_PIXELS = 1 << 27 };

typedef struct image {
    int width, height;
    uint8_t *pixels; /* [height, width, 3]: red, green, blue */
} image;

/* "PNG and JPEG", "PNG", "JPEG" or "", depending on the build. */
const char *image_formats(void);

/* Read a file or its bytes; the first bytes tell the format. Grey pictures get three channels, transparency is dropped. For
 * speed, JPEG pictures may be halved repeatedly as long as both sides keep `least` pixels; 0: never. Messages do not name
 * the file. */
int image_read(image *out, const char *path, int least);
int image_decode(image *out, const void *bytes, size_t n, int least);
void image_free(image *x);

/* Scales the square in the middle to [size, size, 3]: bilinear and antialiased as Pillow's BILINEAR, with a triangle as wide
 * as two pixels of the coarser picture. */
int image_square(const image *x, int size, uint8_t *out);

/* Reads a file as [size, size, 3]. A JPEG is first halved down to at least twice the size. */
int image_read_square(const char *path, int size, uint8_t *out);
