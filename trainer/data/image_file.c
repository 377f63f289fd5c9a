#include "data/image_file.h"

#include "core/error.h"
#include "support/text.h"

#include <stdlib.h>
#include <string.h>

#if defined(ADAMOD_PNG)
#include <png.h>
#endif
#if defined(ADAMOD_JPEG)
#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which needs it */

#include <jerror.h>
#include <jpeglib.h>
#endif

const char *image_formats(void) {
#if defined(ADAMOD_PNG) && defined(ADAMOD_JPEG)
    return "PNG and JPEG";
#elif defined(ADAMOD_PNG)
    return "PNG";
#elif defined(ADAMOD_JPEG)
    return "JPEG";
#else
    return "";
#endif
}

void image_free(image *x) {
    free(x->pixels);
    *x = (image){0};
}

#if defined(ADAMOD_PNG) || defined(ADAMOD_JPEG)
/* Refuses a size that n bytes cannot hold before memory is allocated. No format has more than 8 * 1032 pixels per byte:
 * PNG with one bit per pixel, packed by deflate. */
static int check_size(uint64_t width, uint64_t height, size_t n) {
    if (width < 1 || height < 1 || width > IMAGE_MOST_SIDE || height > IMAGE_MOST_SIDE ||
        width * height > IMAGE_MOST_PIXELS)
        return adamod__refuse("%llu x %llu pixels, expected at most %d a side and %d in all", (unsigned long long)width,
                              (unsigned long long)height, IMAGE_MOST_SIDE, IMAGE_MOST_PIXELS);
    if (width * height / (8 * 1032) <= n) return 0;
    return adamod__refuse("%llu x %llu pixels are more than %zu bytes can hold", (unsigned long long)width,
                          (unsigned long long)height, n);
}
#endif

/* ---- PNG ---- */

#if defined(ADAMOD_PNG)
static int read_pixels(png_image *png, image *out) {
    png->format = PNG_FORMAT_RGBA;           /* with transparency, which is dropped, not blended */
    png->flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* by default, libpng takes 16 bits to be linear */
    uint8_t *rgba = malloc(PNG_IMAGE_SIZE(*png));
    if (!rgba) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %u x %u pixels", png->width, png->height);
    if (!png_image_finish_read(png, NULL, rgba, 0, NULL)) {
        free(rgba);
        return adamod__refuse("%s", png->message);
    }
    const size_t pixels = (size_t)png->width * png->height;
    for (size_t i = 0; i < pixels; i++) memmove(rgba + 3 * i, rgba + 4 * i, 3);
    *out = (image){(int)png->width, (int)png->height, rgba};
    return 0;
}

static int decode_png(image *out, const void *bytes, size_t n) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&png, bytes, n)) return adamod__refuse("%s", png.message);
    int failed = check_size(png.width, png.height, n);
    if (!failed) failed = read_pixels(&png, out);
    png_image_free(&png);
    return failed;
}
#else
static int decode_png(image *out, const void *bytes, size_t n) {
    (void)out, (void)bytes, (void)n;
    return adamod__refuse("this build reads no PNG: it was made without libpng");
}
#endif

/* ---- JPEG ---- */

#if defined(ADAMOD_JPEG)
typedef struct jpeg_failure {
    struct jpeg_error_mgr manager;
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
} jpeg_failure;

static void jpeg_fails(j_common_ptr c) {
    jpeg_failure *f = (jpeg_failure *)(void *)c->err;
    f->manager.format_message(c, f->text);
    longjmp(f->back, 1);
}

/* Warnings that a part of the picture is missing are failures. */
static void jpeg_warns(j_common_ptr c, int level) {
    if (level < 0 && (c->err->msg_code == JWRN_JPEG_EOF || c->err->msg_code == JWRN_HIT_MARKER)) jpeg_fails(c);
}

/* The largest divisor that keeps `least` pixels. libjpeg halves by leaving out coefficients. */
static unsigned halvings(unsigned width, unsigned height, int least) {
    const unsigned shorter = width < height ? width : height;
    unsigned by = 1;
    while (least > 0 && by < 8 && shorter / (2 * by) >= (unsigned)least) by *= 2;
    return by;
}

/* CMYK, inverted as Adobe's programs write it, to RGB. */
static void ink_to_light(uint8_t *row, const uint8_t *inks, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < 3; k++) row[3 * i + k] = (uint8_t)(inks[4 * i + k] * inks[4 * i + 3] / 255);
    }
}

/* Lives in the caller of the function that calls setjmp, because longjmp may lose that function's variables. */
typedef struct jpeg_work {
    struct jpeg_decompress_struct jpeg;
    jpeg_failure failure;
    uint8_t *pixels, *inks;
} jpeg_work;

static int read_rows(jpeg_work *w, size_t n, int least, image *out) {
    struct jpeg_decompress_struct *j = &w->jpeg;
    if (check_size(j->image_width, j->image_height, n)) return -1;
    const bool inks = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
    j->out_color_space = inks ? JCS_CMYK : JCS_RGB;
    j->scale_num = 1;
    j->scale_denom = halvings(j->image_width, j->image_height, least);
    j->dct_method = JDCT_ISLOW;
    jpeg_start_decompress(j);
    const size_t row = 3 * (size_t)j->output_width;
    w->pixels = malloc(row * j->output_height);
    if (inks) w->inks = malloc(4 * (size_t)j->output_width);
    if (!w->pixels || (inks && !w->inks))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %u x %u pixels", j->output_width, j->output_height);
    while (j->output_scanline < j->output_height) {
        uint8_t *to = w->pixels + row * j->output_scanline, *line = inks ? w->inks : to;
        jpeg_read_scanlines(j, &line, 1);
        if (inks) ink_to_light(to, w->inks, j->output_width);
    }
    *out = (image){(int)j->output_width, (int)j->output_height, w->pixels};
    w->pixels = NULL;
    jpeg_finish_decompress(j);
    return 0;
}

static int try_jpeg(jpeg_work *w, image *out, const void *bytes, size_t n, int least) {
    if (setjmp(w->failure.back)) return adamod__refuse("%s", w->failure.text);
    jpeg_create_decompress(&w->jpeg);
    jpeg_mem_src(&w->jpeg, bytes, (unsigned long)n);
    jpeg_read_header(&w->jpeg, TRUE);
    return read_rows(w, n, least, out);
}

static int decode_jpeg(image *out, const void *bytes, size_t n, int least) {
    jpeg_work w = {.pixels = NULL};
    w.jpeg.err = jpeg_std_error(&w.failure.manager);
    w.failure.manager.error_exit = jpeg_fails;
    w.failure.manager.emit_message = jpeg_warns;
    const int failed = try_jpeg(&w, out, bytes, n, least);
    if (failed) image_free(out);
    jpeg_destroy_decompress(&w.jpeg);
    free(w.pixels);
    free(w.inks);
    return failed;
}
#else
static int decode_jpeg(image *out, const void *bytes, size_t n, int least) {
    (void)out, (void)bytes, (void)n, (void)least;
    return adamod__refuse("this build reads no JPEG: it was made without libjpeg");
}
#endif

/* ---- either ---- */

int image_decode(image *out, const void *bytes, size_t n, int least) {
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, jpeg[] = {0xff, 0xd8, 0xff};
    *out = (image){0};
    if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0) return decode_png(out, bytes, n);
    if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0) return decode_jpeg(out, bytes, n, least);
    return adamod__refuse(n ? "neither PNG nor JPEG" : "the file is empty");
}

int image_read(image *out, const char *path, int least) {
    char *bytes;
    size_t n;
    *out = (image){0};
    ADAMOD__TRY(text_load(path, &bytes, &n));
    const int failed = image_decode(out, bytes, n, least);
    free(bytes);
    return failed;
}

/* ---- scaling ---- */

/* The source pixels of each pixel of a scaled line, and their weights. */
typedef struct line_weights {
    int taps;      /* most source pixels of a pixel */
    int *first;    /* [size] */
    float *weight; /* [size, taps]; sum 1 per pixel; unused ones are 0 */
} line_weights;

static void free_weights(line_weights *w) {
    free(w->first);
    free(w->weight);
}

/* For the middle `side` of `length` pixels, scaled to size. */
static bool make_weights(line_weights *w, int length, int side, int size) {
    const double scale = (double)side / size, support = scale > 1 ? scale : 1, start = (length - side) / 2.0;
    w->taps = (int)(2 * support) + 2;
    w->first = malloc((size_t)size * sizeof *w->first);
    w->weight = calloc((size_t)size * (size_t)w->taps, sizeof *w->weight);
    for (int i = 0; w->first && w->weight && i < size; i++) {
        const double centre = start + (i + 0.5) * scale;
        float *weight = w->weight + (size_t)i * (size_t)w->taps;
        int first = (int)(centre - support + 0.5), end = (int)(centre + support + 0.5);
        double sum = 0;
        if (first < 0) first = 0;
        if (end > length) end = length;
        for (int k = first; k < end; k++) {
            const double distance = (k + 0.5 - centre) / support, part = distance < 0 ? 1 + distance : 1 - distance;
            weight[k - first] = part > 0 ? (float)part : 0;
            sum += (double)weight[k - first];
        }
        for (int k = first; k < end; k++) weight[k - first] = (float)((double)weight[k - first] / sum);
        w->first[i] = first;
    }
    return w->first && w->weight;
}

/* Scales a row of the picture to size pixels. */
static void scale_row(const image *x, int y, const line_weights *w, int size, float *out) {
    const uint8_t *row = x->pixels + (size_t)y * (size_t)x->width * 3;
    for (int i = 0; i < size; i++) {
        const float *weight = w->weight + (size_t)i * (size_t)w->taps;
        float sum[3] = {0};
        for (int t = 0; t < w->taps && w->first[i] + t < x->width; t++) {
            for (int k = 0; k < 3; k++) sum[k] += weight[t] * (float)row[3 * (w->first[i] + t) + k];
        }
        for (int k = 0; k < 3; k++) out[3 * i + k] = sum[k];
    }
}

static uint8_t to_byte(float x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x + 0.5f); }

int image_square(const image *x, int size, uint8_t *out) {
    const int side = x->width < x->height ? x->width : x->height;
    line_weights across = {0}, down = {0};
    const size_t numbers = 3 * (size_t)size;
    float *rows = malloc(((size_t)x->height * numbers + 1) * sizeof *rows), *sum = malloc(numbers * sizeof *sum);
    const bool memory = make_weights(&across, x->width, side, size) && make_weights(&down, x->height, side, size);
    const bool made = memory && rows && sum;
    int scaled = 0; /* rows so far */
    for (int i = 0; made && i < size; i++) {
        const float *weight = down.weight + (size_t)i * (size_t)down.taps;
        memset(sum, 0, numbers * sizeof *sum);
        if (scaled < down.first[i]) scaled = down.first[i];
        for (int t = 0; t < down.taps && down.first[i] + t < x->height; t++) {
            const int y = down.first[i] + t;
            if (weight[t] == 0) continue;
            for (; scaled <= y; scaled++) scale_row(x, scaled, &across, size, rows + (size_t)scaled * numbers);
            for (size_t k = 0; k < numbers; k++) sum[k] += weight[t] * rows[(size_t)y * numbers + k];
        }
        for (size_t k = 0; k < numbers; k++) out[(size_t)i * numbers + k] = to_byte(sum[k]);
    }
    free_weights(&across);
    free_weights(&down);
    free(rows);
    free(sum);
    return made ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for scaling a picture");
}

int image_read_square(const char *path, int size, uint8_t *out) {
    image x;
    if (image_read(&x, path, 2 * size)) return -1;
    const int failed = image_square(&x, size, out);
    image_free(&x);
    return failed;
}
