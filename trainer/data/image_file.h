/* image_file.h - a picture out of a PNG or JPEG file, as far as this build has libpng and libjpeg; and scaled to a square.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef IMAGE_FILE_H
#define IMAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Neither side of a picture may be longer, nor may it have more pixels: a small file can claim any size. */
enum { IMAGE_MOST_SIDE = 32768, IMAGE_MOST_PIXELS = 1 << 27 };

typedef struct image {
    int width, height;
    uint8_t *pixels; /* [height, width, 3]: red, green, blue */
} image;

/* "PNG and JPEG", "PNG", "JPEG", or "" where the build has neither. */
const char *image_formats(void);

/* Reads a file, or its bytes; which format it is, its first bytes say. Grey becomes grey of three channels, transparency is
 * left out. A JPEG's decoder may halve a picture, once or more, as long as both sides keep `least` pixels, which is
 * faster; 0: it must not. Reasons do not name the file. */
int image_read(image *out, const char *path, int least);
int image_decode(image *out, const void *bytes, size_t n, int least);
void image_free(image *x);

/* The square in the middle, scaled to [size, size, 3]: bilinear, antialiased, that is with a triangle as wide as two pixels
 * of whichever is coarser, as Pillow's BILINEAR does it. */
int image_square(const image *x, int size, uint8_t *out);

/* Both: a file as [size, size, 3]. A JPEG is halved down to twice the size before. */
int image_read_square(const char *path, int size, uint8_t *out);

#endif
