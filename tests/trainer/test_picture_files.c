/* Readers of pictures: CIFAR's files, PNG and JPEG files by class, and what is wrong with bad ones; generated shapes.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "data/cifar.h"
#include "data/image_file.h"
#include "data/image_folder.h"
#include "data/shapes.h"
#include "scratch.h"
#include "core/error.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pillow wrote these: two colours side by side, 24 x 16; grey 77; CMYK; grey with transparency; a palette; a size for
 * which no machine has memory; random pixels, 7 rows of 5, and Pillow's scaled square of their middle. */
static const uint8_t jpeg[] = {
    255, 216, 255, 224, 0,   16,  74,  70,  73,  70,  0,  1,  1,   0,   0,   1,   0,   1,   0,   0,   255, 219, 0,
    67,  0,   3,   2,   2,   3,   2,   2,   3,   3,   3,  3,  4,   3,   3,   4,   5,   8,   5,   5,   4,   4,   5,
    10,  7,   7,   6,   8,   12,  10,  12,  12,  11,  10, 11, 11,  13,  14,  18,  16,  13,  14,  17,  14,  11,  11,
    16,  22,  16,  17,  19,  20,  21,  21,  21,  12,  15, 23, 24,  22,  20,  24,  18,  20,  21,  20,  255, 219, 0,
    67,  1,   3,   4,   4,   5,   4,   5,   9,   5,   5,  9,  20,  13,  11,  13,  20,  20,  20,  20,  20,  20,  20,
    20,  20,  20,  20,  20,  20,  20,  20,  20,  20,  20, 20, 20,  20,  20,  20,  20,  20,  20,  20,  20,  20,  20,
    20,  20,  20,  20,  20,  20,  20,  20,  20,  20,  20, 20, 20,  20,  20,  20,  20,  20,  20,  20,  255, 192, 0,
    17,  8,   0,   16,  0,   24,  3,   1,   17,  0,   2,  17, 1,   3,   17,  1,   255, 196, 0,   22,  0,   1,   1,
    1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,  0,  0,   0,   5,   6,   7,   255, 196, 0,   24,  16,  1,
    0,   3,   1,   0,   0,   0,   0,   0,   0,   0,   0,  0,  0,   0,   0,   0,   5,   67,  130, 193, 255, 196, 0,
    22,  1,   1,   1,   1,   0,   0,   0,   0,   0,   0,  0,  0,   0,   0,   0,   0,   0,   8,   9,   7,   255, 196,
    0,   24,  17,  1,   0,   3,   1,   0,   0,   0,   0,  0,  0,   0,   0,   0,   0,   0,   0,   0,   7,   69,  131,
    195, 255, 218, 0,   12,  3,   1,   0,   2,   17,  3,  17, 0,   63,  0,   193, 25,  249, 192, 42,  118, 141, 112,
    148, 134, 172, 50,  232, 49,  205, 85,  218, 243, 20, 74, 12,  106, 164, 215, 83,  129, 83,  180, 107, 132, 164,
    53,  97,  151, 65,  142, 106, 174, 215, 152, 162, 80, 99, 127, 255, 217};
static const uint8_t jpeg_grey[] = {
    255, 216, 255, 224, 0, 16, 74, 70, 73,  70,  0, 1,   1,   0, 0, 1, 0,   1,   0, 0,  255, 219, 0,   67,  0,  2, 1,
    1,   1,   1,   1,   2, 1,  1,  1,  2,   2,   2, 2,   2,   4, 3, 2, 2,   2,   2, 5,  4,   4,   3,   4,   6,  5, 6,
    6,   6,   5,   6,   6, 6,  7,  9,  8,   6,   7, 9,   7,   6, 6, 8, 11,  8,   9, 10, 10,  10,  10,  10,  6,  8, 11,
    12,  11,  10,  12,  9, 10, 10, 10, 255, 192, 0, 11,  8,   0, 8, 0, 8,   1,   1, 17, 0,   255, 196, 0,   20, 0, 1,
    0,   0,   0,   0,   0, 0,  0,  0,  0,   0,   0, 0,   0,   0, 0, 8, 255, 196, 0, 20, 16,  1,   0,   0,   0,  0, 0,
    0,   0,   0,   0,   0, 0,  0,  0,  0,   0,   0, 255, 218, 0, 8, 1, 1,   0,   0, 63, 0,   25,  191, 255, 217};
static const uint8_t jpeg_inks[] = {
    255, 216, 255, 238, 0,  14, 65, 100, 111, 98, 101, 0,   100, 0,   0,  0,   0,  0,   255, 219, 0,   67, 0,
    2,   1,   1,   1,   1,  1,  2,  1,   1,   1,  2,   2,   2,   2,   2,  4,   3,  2,   2,   2,   2,   5,  4,
    4,   3,   4,   6,   5,  6,  6,  6,   5,   6,  6,   6,   7,   9,   8,  6,   7,  9,   7,   6,   6,   8,  11,
    8,   9,   10,  10,  10, 10, 10, 6,   8,   11, 12,  11,  10,  12,  9,  10,  10, 10,  255, 192, 0,   20, 8,
    0,   8,   0,   8,   4,  67, 17, 0,   77,  17, 0,   89,  17,  0,   75, 17,  0,  255, 196, 0,   23,  0,  0,
    3,   1,   0,   0,   0,  0,  0,  0,   0,   0,  0,   0,   0,   0,   0,  3,   8,  9,   10,  255, 196, 0,  20,
    16,  1,   0,   0,   0,  0,  0,  0,   0,   0,  0,   0,   0,   0,   0,  0,   0,  0,   255, 218, 0,   14, 4,
    67,  0,   77,  0,   89, 0,  75, 0,   0,   63, 0,   207, 250, 254, 6,  127, 31, 255, 217};
static const uint8_t png[] = {
    137, 80,  78, 71,  13,  10,  26,  10, 0,   0,   0,   13,  73, 72, 68,  82,  0,  0,   0,   24,  0,  0,   0,
    16,  8,   2,  0,   0,   0,   131, 70, 40,  194, 0,   0,   0,  34, 73,  68,  65, 84,  120, 218, 99, 60,  33,
    167, 193, 64, 8,   248, 200, 109, 33, 168, 134, 137, 129, 74, 96, 212, 160, 81, 131, 70,  13,  26, 169, 6,
    1,   0,   10, 142, 2,   76,  20,  84, 83,  120, 0,   0,   0,  0,  73,  69,  78, 68,  174, 66,  96, 130};
static const uint8_t png_sixteen_bits[] = {
    137, 80, 78, 71,  13, 10,  26,  10,  0,  0,   0, 13, 73, 72, 68, 82, 0,  0,   0,   2,  0,  0,  0,   1,
    16,  0,  0,  0,   0,  129, 217, 252, 21, 0,   0, 0,  13, 73, 68, 65, 84, 120, 218, 99, 72, 73, 145, 107,
    2,   0,  3,  127, 1,  105, 101, 223, 91, 234, 0, 0,  0,  0,  73, 69, 78, 68,  174, 66, 96, 130};
static const uint8_t png_grey_alpha[] = {
    137, 80,  78,  71,  13, 10, 26, 10,  0,   0,   0,   13,  73,  72,  68,  82,  0,   0,  0,   6,   0,
    0,   0,   4,   8,   4,  0,  0,  0,   7,   13,  134, 200, 0,   0,   0,   26,  73,  68, 65,  84,  120,
    218, 99,  140, 98,  96, 96, 96, 96,  136, 250, 207, 192, 192, 192, 192, 196, 128, 4,  112, 115, 0,
    78,  152, 1,   187, 71, 65, 12, 215, 0,   0,   0,   0,   73,  69,  78,  68,  174, 66, 96,  130};
static const uint8_t png_palette[] = {
    137, 80,  78,  71, 13, 10, 26,  10, 0,   0,  0,  13,  73,  72, 68, 82,  0,   0,   0,   24,  0,   0,  0,   16,
    1,   3,   0,   0,  0,  54, 234, 45, 214, 0,  0,  0,   6,   80, 76, 84,  69,  200, 30,  40,  20,  60, 220, 5,
    51,  103, 136, 0,  0,  0,  18,  73, 68,  65, 84, 120, 218, 99, 96, 224, 255, 207, 196, 192, 192, 64, 46,  6,
    0,   68,  101, 1,  45, 36, 0,   71, 100, 0,  0,  0,   0,   73, 69, 78,  68,  174, 66,  96,  130};
static const uint8_t png_huge[] = {137, 80,  78,  71, 13, 10,  26, 10,  0,   0,  0,  13,  73, 72,  68,  82, 0,
                                   0,   234, 96,  0,  0,  234, 96, 8,   2,   0,  0,  0,   15, 176, 226, 21, 0,
                                   0,   0,   9,   73, 68, 65,  84, 120, 156, 99, 0,  0,   0,  1,   0,   1,  94,
                                   255, 125, 249, 0,  0,  0,   0,  73,  69,  78, 68, 174, 66, 96,  130};
static const uint8_t png_large[] = {137, 80,  78,  71, 13, 10, 26,  10,  0,   0,  0,  13,  73,  72, 68,  82,  0,
                                    0,   117, 48,  0,  0,  15, 160, 8,   2,   0,  0,  0,   188, 59, 246, 203, 0,
                                    0,   0,   9,   73, 68, 65, 84,  120, 156, 99, 0,  0,   0,   1,  0,   1,   94,
                                    255, 125, 249, 0,  0,  0,  0,   73,  69,  78, 68, 174, 66,  96, 130};
static const uint8_t noise[] = {
    37,  235, 140, 72,  255, 137, 203, 133, 79,  192, 144, 129, 204, 71,  237, 252, 134, 25,  178, 20,  254,
    101, 146, 212, 139, 252, 234, 156, 157, 142, 50,  68,  215, 215, 233, 241, 247, 222, 96,  86,  141, 233,
    137, 7,   63,  61,  22,  57,  1,   128, 60,  209, 8,   216, 141, 115, 175, 234, 121, 200, 30,  71,  131,
    198, 149, 49,  57,  3,   196, 24,  241, 43,  76,  26,  52,  80,  109, 115, 41,  210, 15,  64,  196, 25,
    111, 226, 215, 135, 26,  153, 104, 22,  9,   195, 231, 126, 23,  125, 100, 155, 165, 57,  83,  166, 136};
static const uint8_t noise_down[] = {141, 132, 159, 152, 134, 168, 92, 120, 93, 104, 127, 124};
static const uint8_t noise_up[] = {204, 156, 51,  187, 128, 109, 160, 82,  209, 141, 104, 207, 124, 143, 182,
                                   139, 190, 198, 153, 218, 206, 161, 168, 179, 167, 138, 163, 185, 112, 88};

/* ---- names ---- */

static const char *complaint_about_names(const char *text, size_t n) {
    class_names c;
    put_file("names.txt", text, n);
    adamod__fail(ADAMOD_OK, "%s", "");
    if (class_names_load(&c, "names.txt")) return CHECK_INT(c.n, 0) ? adamod__last_message() : "";
    class_names_free(&c);
    return "(none)";
}
#define NAMES(text) complaint_about_names(text, sizeof(text) - 1)

TEST(names_are_lines) {
    class_names c = {0}, back;
    enter_scratch(true);
    CHECK_INT(class_names_add(&c, "a cat"), 0);
    CHECK_INT(class_names_add(&c, "d\xc3\xb6g"), 0);
    CHECK_INT(class_names_add(&c, "two\nlines"), -1);
    CHECK_STR(adamod__last_message(), "the name of a class has a control character");
    CHECK_INT(class_names_add(&c, ""), -1);
    CHECK_INT(class_names_save(&c, "out.txt"), 0);
    CHECK_INT(class_names_load(&back, "out.txt"), 0);
    CHECK_INT(back.n, 2);
    CHECK_INT(class_names_find(&back, "d\xc3\xb6g"), 1);
    CHECK_INT(class_names_find(&back, "dog"), -1);
    class_names_free(&c);
    class_names_free(&back);
    CHECK_STR(NAMES("a\r\nb\r\n\r\n"), "(none)"); /* as batches.meta.txt ends */
    CHECK_STR(NAMES(""), "names.txt: no names of classes in it");
    CHECK_STR(NAMES("a\nb\na\n"), "names.txt:3: class 'a' is there twice");
    CHECK_STR(NAMES("a\n\nb\n"), "names.txt:2: a class has an empty name");
    CHECK_STR(NAMES("a\n\xff\n"), "names.txt:2: the name of a class is not UTF-8");
    CHECK_STR(NAMES("a\nb\0c\n"), "names.txt:2: the name of a class has a zero byte");
    CHECK_INT(class_names_load(&back, "none.txt"), -1);
    CHECK_STR(adamod__last_message(), "none.txt: cannot open: No such file or directory");
}

/* ---- CIFAR ---- */

enum { TEN = 3073, HUNDRED = 3074 };

/* Records whose pixel x, y of channel k is a function of all of them. */
static uint8_t *records(int n, int labels, size_t *bytes) {
    const size_t record = (size_t)labels + 3072;
    uint8_t *x = calloc((size_t)n + 1, record);
    for (int i = 0; i < n; i++) {
        uint8_t *r = x + (size_t)i * record;
        for (int l = 0; l < labels; l++) r[l] = (uint8_t)((i + 7 * l) % (labels == 1 ? 10 : l ? 100 : 20));
        for (int p = 0; p < 3072; p++)
            r[labels + p] = (uint8_t)(i + 3 * (p / 1024) + 5 * (p / 32 % 32) + 11 * (p % 32));
    }
    *bytes = (size_t)n * record;
    return x;
}

static void put_records(const char *name, int n, int labels) {
    size_t bytes;
    uint8_t *x = records(n, labels, &bytes);
    put_file(name, x, bytes);
    free(x);
}

static void put_ten(int n) {
    static const char *const files[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    for (int i = 0; i < 6; i++) put_records(files[i], n, 1);
}

TEST(cifar_10_is_read_with_its_names) {
    pictures p = {.size = 32};
    enter_scratch(true);
    put_ten(3);
    put_file("batches.meta.txt", "p\nq\nr\ns\nt\nu\nv\nw\nx\ny\n\n", 21);
    CHECK_INT(cifar_read(&p, ".", &(cifar_options){CIFAR_10, false, true}), 0);
    CHECK_INT(p.n, 15);
    CHECK_INT(cifar_read(&p, ".", &(cifar_options){CIFAR_10, true, true}), 0);
    CHECK_INT(p.n, 18);
    CHECK_INT(p.classes.n, 10);
    CHECK_STR(p.classes.name[9], "y");
    for (int64_t i = 0; i < p.n; i++) {
        CHECK_INT(p.labels[i], i % 3);
        const uint8_t *x = p.bytes + (size_t)i * 3072;
        for (int k = 0; k < 3; k++)
            CHECK_INT(x[(9 * 32 + 4) * 3 + k], (uint8_t)((int)(i % 3) + 3 * k + 5 * 9 + 11 * 4));
    }
    pictures_free(&p);
}

TEST(cifar_100_has_two_labels_and_a_folder_of_its_own) {
    pictures fine = {.size = 32}, coarse = {.size = 32};
    enter_scratch(true);
    mkdir("hundred", 0777);
    mkdir("hundred/cifar-100-binary", 0777);
    put_records("hundred/cifar-100-binary/train.bin", 25, 2);
    CHECK_INT(cifar_read(&fine, "hundred", &(cifar_options){CIFAR_100_FINE, false, true}), 0);
    CHECK_INT(cifar_read(&coarse, "hundred", &(cifar_options){CIFAR_100_COARSE, false, true}), 0);
    CHECK_INT(fine.classes.n, 100);
    CHECK_STR(fine.classes.name[99], "99");
    CHECK_INT(coarse.classes.n, 20);
    CHECK_INT(fine.labels[24], 31);
    CHECK_INT(coarse.labels[24], 4);
    /* those of a model come first; others' labels would be beyond them */
    CHECK_INT(cifar_read(&coarse, "hundred", &(cifar_options){CIFAR_100_FINE, false, true}), -1);
    CHECK_STR(adamod__last_message(), "hundred/cifar-100-binary: 100 classes, expected 20, as the model has");
    CHECK_INT(shapes_generate(&coarse, &(shapes_options){.seed = 1}, 1, &(pictures_crew){0}), -1);
    CHECK_STR(adamod__last_message(), "shapes: 10 classes, expected 20, as the model has");
    CHECK_INT(coarse.n, 25);
    pictures_free(&fine);
    pictures_free(&coarse);
}

static const char *cifar_complaint(cifar_kind kind, bool test, bool any_size) {
    pictures p = {.size = 32};
    adamod__fail(ADAMOD_OK, "%s", "");
    if (!cifar_read(&p, ".", &(cifar_options){kind, test, any_size})) adamod__fail(ADAMOD_OK, "(none)");
    else CHECK_INT(p.n, 0);
    pictures_free(&p);
    return adamod__last_message();
}

TEST(bad_cifar_files_are_named_with_what_was_expected) {
    size_t bytes;
    enter_scratch(true);
    CHECK_STR(cifar_complaint(CIFAR_10, false, false), "./data_batch_1.bin: cannot open: No such file or directory");
    put_ten(2);
    CHECK_STR(cifar_complaint(CIFAR_10, true, false),
              "./test_batch.bin: 6146 bytes, expected 30730000: 10000 records of 3073; it is cut short");
    CHECK_INT(truncate("test_batch.bin", 10001 * 3073), 0); /* a hole: no bytes are written */
    CHECK_STR(cifar_complaint(CIFAR_10, true, false),
              "./test_batch.bin: 30733073 bytes, expected 30730000: 10000 records of 3073");
    unlink("data_batch_4.bin");
    CHECK_STR(cifar_complaint(CIFAR_10, false, true), "./data_batch_4.bin: cannot open: No such file or directory");
    CHECK_INT(truncate("test_batch.bin", 2 * 3073 - 1), 0);
    CHECK_STR(cifar_complaint(CIFAR_10, true, true),
              "./test_batch.bin: 6145 bytes, expected records of 3073: 3072 bytes are left over after 1");
    put_file("test_batch.bin", "", 0);
    CHECK_STR(cifar_complaint(CIFAR_10, true, true), "./test_batch.bin: the file is empty");
    uint8_t *x = records(3, 1, &bytes);
    x[2 * TEN] = 10;
    put_file("test_batch.bin", x, bytes);
    free(x);
    CHECK_STR(cifar_complaint(CIFAR_10, true, true), "./test_batch.bin: record 3: label 10, expected 0 to 9");
    x = records(2, 2, &bytes);
    x[HUNDRED] = 20; /* coarse */
    put_file("test.bin", x, bytes);
    free(x);
    CHECK_STR(cifar_complaint(CIFAR_100_COARSE, true, true), "./test.bin: record 2: label 20, expected 0 to 19");
    CHECK_STR(cifar_complaint(CIFAR_100_FINE, true, true), "(none)");
    put_file("fine_label_names.txt", "a\nb\n", 4);
    CHECK_STR(cifar_complaint(CIFAR_100_FINE, true, true), "./fine_label_names.txt: names of 2 classes, expected 100");
}

/* ---- PNG and JPEG ---- */

static bool has(const char *format) { return strstr(image_formats(), format); }

/* NULL, or what decoding complains about; out is to be freed. */
static const char *decode(image *out, const void *bytes, size_t n) {
    return image_decode(out, bytes, n, 0) ? adamod__last_message() : NULL;
}

static bool pixel_is(const image *x, int row, int column, int r, int g, int b, int tolerance) {
    const uint8_t *p = x->pixels + ((size_t)row * (size_t)x->width + (size_t)column) * 3;
    return abs(p[0] - r) <= tolerance && abs(p[1] - g) <= tolerance && abs(p[2] - b) <= tolerance;
}

TEST(pngs_are_read) {
    image x;
    if (!has("PNG")) SKIP("no libpng");
    const struct {
        const uint8_t *bytes;
        size_t n;
    } both[] = {{png, sizeof png}, {png_palette, sizeof png_palette}};
    for (int i = 0; i < 2; i++) {
        if (!CHECK(!decode(&x, both[i].bytes, both[i].n))) continue;
        CHECK(x.width == 24 && x.height == 16);
        CHECK(pixel_is(&x, 15, 11, 200, 30, 40, 0) && pixel_is(&x, 0, 12, 20, 60, 220, 0));
        image_free(&x);
    }
    if (!CHECK(!decode(&x, png_grey_alpha, sizeof png_grey_alpha))) return;
    CHECK(x.width == 6 && x.height == 4);
    CHECK(pixel_is(&x, 3, 5, 180, 180, 180, 0));
    image_free(&x);
    if (!CHECK(!decode(&x, png_sixteen_bits, sizeof png_sixteen_bits))) return;
    CHECK(pixel_is(&x, 0, 0, 100, 100, 100, 0) && pixel_is(&x, 0, 1, 30, 30, 30, 0));
    image_free(&x);
}

TEST(jpegs_are_read_also_grey_ones_and_inks) {
    image x;
    if (!has("JPEG")) SKIP("no libjpeg");
    if (!CHECK(!decode(&x, jpeg, sizeof jpeg))) return;
    CHECK(x.width == 24 && x.height == 16);
    CHECK(pixel_is(&x, 8, 3, 200, 30, 40, 4) && pixel_is(&x, 8, 20, 20, 60, 220, 4));
    image_free(&x);
    if (!CHECK(!decode(&x, jpeg_grey, sizeof jpeg_grey))) return;
    CHECK(pixel_is(&x, 7, 7, 77, 77, 77, 1));
    image_free(&x);
    if (!CHECK(!decode(&x, jpeg_inks, sizeof jpeg_inks))) return;
    CHECK(pixel_is(&x, 4, 4, 0, 191, 95, 2));
    image_free(&x);
}

TEST(a_jpeg_is_halved_only_as_far_as_allowed) {
    image x;
    if (!has("JPEG")) SKIP("no libjpeg");
    static const int least[] = {0, 17, 16, 9, 8, 4, 1}, height[] = {16, 16, 16, 16, 8, 4, 2};
    for (int i = 0; i < 7; i++) {
        if (!CHECK_INT(image_decode(&x, jpeg, sizeof jpeg, least[i]), 0)) continue;
        CHECK_INT(x.height, height[i]);
        CHECK(pixel_is(&x, x.height - 1, 0, 200, 30, 40, 12));
        image_free(&x);
    }
}

TEST(bad_pictures_have_reasons) {
    image x;
    CHECK_STR(decode(&x, "", 0), "the file is empty");
    CHECK_STR(decode(&x, "GIF89a", 6), "neither PNG nor JPEG");
    CHECK_INT(image_read(&x, "/nowhere/a.png", 0), ADAMOD_ERROR_IO);
    CHECK_STR(adamod__last_message(), "cannot open: No such file or directory");
    if (has("PNG")) {
        CHECK_STR(decode(&x, png_huge, sizeof png_huge),
                  "60000 x 60000 pixels, expected at most 32768 a side and 134217728 in all");
        CHECK_STR(decode(&x, png_large, sizeof png_large), "30000 x 4000 pixels are more than 66 bytes can hold");
        CHECK_STR(decode(&x, png, 20), "read beyond end of data");
        CHECK(decode(&x, png, sizeof png - 30) != NULL); /* the reason is libpng's */
        CHECK(!x.pixels);
    }
    if (has("JPEG")) {
        CHECK_STR(decode(&x, jpeg, 100), "Premature end of JPEG file");
        CHECK_STR(decode(&x, jpeg, sizeof jpeg - 20), "Premature end of JPEG file");
        CHECK(!x.pixels);
    }
}

TEST(scaling_is_pillows) {
    image x = {5, 7, malloc(sizeof noise)};
    uint8_t out[9 * 9 * 3];
    memcpy(x.pixels, noise, sizeof noise);
    CHECK_INT(image_square(&x, 2, out), 0);
    for (size_t i = 0; i < sizeof noise_down; i++) CHECK(abs(out[i] - noise_down[i]) <= 1);
    CHECK_INT(image_square(&x, 9, out), 0);
    for (size_t i = 0; i < sizeof noise_up; i++) CHECK(abs(out[i] - noise_up[i]) <= 1);
    CHECK_INT(image_square(&x, 5, out), 0); /* the same pixels, without a row above and below */
    CHECK(memcmp(out, noise + 15, 75) == 0);
    image_free(&x);
}

/* ---- a directory of them ---- */

static void put_class(const char *directory, int n) {
    char path[100];
    mkdir(directory, 0777);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%d.PNG", directory, i);
        put_file(path, png, sizeof png);
    }
}

static int read_folder(pictures *p, const char *directory, bool skip, image_folder_counts *report) {
    adamod_pool *pool;
    CHECK_INT(adamod_pool_create(&pool, 2), ADAMOD_OK);
    const int failed =
        image_folder_read(p, directory, &(image_folder_options){.skip = skip, .crew = {.pool = pool}}, report);
    adamod_pool_free(pool);
    return failed;
}

TEST(a_folder_has_its_classes_in_order) {
    pictures p = {.size = 8};
    image_folder_counts report;
    if (!has("PNG")) SKIP("no libpng");
    enter_scratch(true);
    mkdir("train", 0777);
    put_class("train/b", 2);
    put_class("train/a", 1);
    put_class("train/.hidden", 1);
    put_class("train/c", 0);
    put_file("train/notes.txt", "x", 1);
    put_file("train/a/notes.txt", "x", 1);
    CHECK_INT(read_folder(&p, "train", false, &report), 0);
    CHECK_INT(p.n, 3);
    CHECK_INT(p.classes.n, 3);
    CHECK_STR(p.classes.name[0], "a");
    CHECK(p.labels[0] == 0 && p.labels[1] == 1 && p.labels[2] == 1);
    CHECK(report.files == 3 && report.unreadable == 0 && report.missing == 1);
    CHECK(report.passed_over == 1); /* nobody takes notes beside classes for a picture */
    CHECK_STR(report.first_passed, "a/notes.txt");
    CHECK(p.bytes[0] == 200 && p.bytes[8 * 3 - 1] == 220); /* the left and the right of the first row */
    mkdir("test", 0777);
    put_class("test/b", 1);
    CHECK_INT(read_folder(&p, "test", false, &report), 0);
    CHECK(p.n == 4 && p.labels[3] == 1 && report.missing == 2 && report.passed_over == 0);
    put_class("test/b/more", 1);
    put_class("test/b/a.png", 1);
    put_file("test/z.webp", "x", 1);
    put_file("test/aa.png", png, sizeof png);
    CHECK_INT(read_folder(&p, "test", false, &report), 0);
    CHECK(p.n == 5 && report.files == 1 && report.passed_over == 3);
    CHECK_STR(report.first_passed, "aa.png");
    put_class("test/d", 1);
    CHECK_INT(read_folder(&p, "test", false, &report), -1);
    CHECK_STR(adamod__last_message(), "test: class 'd' is not in the training set");
    CHECK_INT(p.n, 5);
    pictures_free(&p);
}

TEST(unreadable_pictures_are_refused_or_skipped_by_name) {
    pictures p = {.size = 8};
    image_folder_counts report;
    if (!has("PNG")) SKIP("no libpng");
    enter_scratch(true);
    mkdir("t", 0777);
    put_class("t/a", 3);
    put_class("t/b", 1);
    put_file("t/a/1.PNG", "what", 4);
    CHECK_INT(read_folder(&p, "t", false, &report), -1);
    CHECK_STR(adamod__last_message(), "t/a/1.PNG: neither PNG nor JPEG");
    put_file("t/a/0.PNG", png, 25);
    CHECK_INT(read_folder(&p, "t", false, &report), -1);
    CHECK_STR(adamod__last_message(), "t/a/0.PNG: read beyond end of data; 2 of 4 pictures cannot be read");
    CHECK(p.n == 0 && p.classes.n == 0);
    CHECK_INT(read_folder(&p, "t", true, &report), 0);
    CHECK(p.n == 2 && p.labels[0] == 0 && p.labels[1] == 1);
    CHECK(report.files == 4 && report.unreadable == 2 && report.missing == 0);
    CHECK_STR(report.first, "t/a/0.PNG: read beyond end of data");
    CHECK(p.bytes[0] == 200 && p.bytes[192] == 200);
    pictures_free(&p);
    CHECK_INT(symlink("nowhere", "t/b/link.jpg"), 0); /* as archives of links leave them behind */
    CHECK_INT(read_folder(&p, "t", true, &report), 0);
    CHECK(report.files == 5 && report.unreadable == 3);
    pictures_free(&p);
    CHECK_INT(unlink("t/b/link.jpg"), 0);
    put_file("t/a/2.PNG", "", 0);
    CHECK_INT(read_folder(&p, "t", true, &report), 0);
    CHECK(p.n == 1 && p.classes.n == 2 && report.missing == 1); /* no picture of a is left */
    pictures_free(&p);
    put_file("t/b/0.PNG", "", 0);
    CHECK_INT(read_folder(&p, "t", true, &report), -1); /* none is left */
    CHECK_STR(adamod__last_message(), "t/a/0.PNG: read beyond end of data; 4 of 4 pictures cannot be read");
    pictures_free(&p);
}

TEST(folders_without_pictures_say_so) {
    pictures p = {.size = 8};
    image_folder_counts report;
    if (!*image_formats()) SKIP("neither libpng nor libjpeg");
    enter_scratch(true);
    CHECK_INT(read_folder(&p, "none", false, &report), -1);
    CHECK_STR(adamod__last_message(), "none: cannot open: No such file or directory");
    mkdir("e", 0777);
    CHECK_INT(read_folder(&p, "e", false, &report), -1);
    CHECK_STR(adamod__last_message(), "e: no subdirectory in it, expected one for each class");
    mkdir("e/a", 0777);
    CHECK_INT(read_folder(&p, "e", false, &report), -1);
    CHECK_STR(adamod__last_message(), "e: no picture in its subdirectories, expected .png, .jpg or .jpeg");
    mkdir("e/a\nb", 0777);
    CHECK_INT(read_folder(&p, "e", false, &report), -1);
    CHECK_STR(adamod__last_message(), "e/a?b: the name of a class has a control character");
    CHECK_INT(p.classes.n, 0);
    CHECK_INT(rmdir("e/a\nb"), 0);
    CHECK_INT(symlink("nowhere", "e/c"), 0); /* a class must not go unnoticed */
    CHECK_INT(read_folder(&p, "e", true, &report), -1);
    CHECK_STR(adamod__last_message(), "e/c: cannot open: No such file or directory");
    pictures_free(&p);
}

/* ---- shapes ---- */

/* The last report of progress; `done` only grows. */
typedef struct told {
    int64_t done, total;
    bool fell;
} told;

static void remember(void *context, int64_t done, int64_t total) {
    told *t = context;
    t->fell |= done < t->done;
    *t = (told){done, total, t->fell};
}

TEST(shapes_follow_from_seed_stream_and_number) {
    pictures a = {.size = 32}, b = {.size = 32}, c = {.size = 32};
    adamod_pool *pool;
    told t = {0};
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    const pictures_crew crew = {pool, remember, &t};
    CHECK_INT(shapes_generate(&a, &(shapes_options){.seed = 1}, 40, &(pictures_crew){0}), 0);
    CHECK_INT(shapes_generate(&b, &(shapes_options){.seed = 1}, 20, &crew), 0);
    CHECK_INT(shapes_generate(&b, &(shapes_options){.seed = 1, .stream = 1}, 20, &(pictures_crew){.pool = pool}), 0);
    CHECK_INT(shapes_generate(&c, &(shapes_options){.seed = 2}, 20, &(pictures_crew){.pool = pool}), 0);
    CHECK(t.done == 20 && t.total == 20 && !t.fell);
    CHECK(a.n == 40 && b.n == 40 && a.classes.n == SHAPES_CLASSES);
    CHECK(memcmp(a.bytes, b.bytes, 20 * 3072) == 0);
    CHECK(memcmp(a.bytes, b.bytes + 20 * 3072, 3072) != 0);
    CHECK(memcmp(a.bytes, c.bytes, 3072) != 0);
    for (int64_t i = 0; i < a.n; i++) CHECK_INT(a.labels[i], i % SHAPES_CLASSES);
    CHECK_STR(a.classes.name[a.labels[14]], "star");
    pictures_free(&a);
    pictures_free(&b);
    pictures_free(&c);
    adamod_pool_free(pool);
}

/* Mean difference of the bytes of picture i of p from picture k of q, which is half as large. */
static double difference(const pictures *p, int i, const pictures *q, int k) {
    const uint8_t *large = p->bytes + (size_t)i * pictures_bytes(p), *small = q->bytes + (size_t)k * pictures_bytes(q);
    const int row = 3 * p->size;
    double sum = 0;
    for (int y = 0; y < q->size; y++) {
        for (int x = 0; x < row / 2; x++) {
            const uint8_t *at = large + (ptrdiff_t)(2 * y * row + 6 * (x / 3) + x % 3);
            sum += fabs((at[0] + at[3] + at[row] + at[row + 3]) / 4.0 - small[y * row / 2 + x]);
        }
    }
    return sum / (double)pictures_bytes(q);
}

TEST(smaller_shapes_are_the_same_pictures) {
    pictures a = {.size = 32}, b = {.size = 16}, c = {.size = 64};
    CHECK_INT(shapes_generate(&a, &(shapes_options){.seed = 1}, 20, &(pictures_crew){0}), 0);
    CHECK_INT(shapes_generate(&b, &(shapes_options){.seed = 1}, 20, &(pictures_crew){0}), 0);
    CHECK_INT(shapes_generate(&c, &(shapes_options){.seed = 1}, 20, &(pictures_crew){0}), 0);
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 20; k++) {
            CHECK((difference(&a, i, &b, k) < 20) == (i == k));
            CHECK((difference(&c, i, &a, k) < 20) == (i == k));
        }
    }
    pictures_free(&a);
    pictures_free(&b);
    pictures_free(&c);
    pictures d = {.size = 8};
    CHECK_INT(shapes_generate(&d, &(shapes_options){.seed = 1}, 1, &(pictures_crew){0}), -1);
    CHECK_STR(adamod__last_message(), "shapes: 8 pixels per side, expected 16 to 64");
    pictures_free(&d);
}

/* Mean difference between the same pictures of a class in two sets. */
static double change_of(const pictures *a, const pictures *b, int class) {
    const size_t bytes = pictures_bytes(a);
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = class; i < a->n; i += SHAPES_CLASSES, n++) {
        for (size_t k = 0; k < bytes; k++)
            sum += abs(a->bytes[(size_t)i * bytes + k] - b->bytes[(size_t)i * bytes + k]);
    }
    return sum / (double)n / (double)bytes;
}

/* Mean difference between neighbours in a row: strokes and blots have edges. */
static double edges_of(const pictures *p) {
    double sum = 0;
    const size_t n = (size_t)p->n * pictures_bytes(p);
    for (size_t i = 3; i < n; i++) sum += abs(p->bytes[i] - p->bytes[i - 3]);
    return sum / (double)n;
}

TEST(shapes_can_be_upright_and_without_clutter) {
    enum { DISC = 0, CROSS = 5 };
    pictures full = {.size = 32}, plain = {.size = 32}, upright = {.size = 32};
    CHECK_INT(shapes_generate(&full, &(shapes_options){.seed = 1}, 200, &(pictures_crew){0}), 0);
    CHECK_INT(shapes_generate(&plain, &(shapes_options){.seed = 1, .plain = true}, 200, &(pictures_crew){0}), 0);
    CHECK_INT(shapes_generate(&upright, &(shapes_options){.seed = 1, .plain = true, .upright = true}, 200,
                              &(pictures_crew){0}),
              0);
    CHECK(edges_of(&plain) < 0.95 * edges_of(&full));
    CHECK(change_of(&plain, &upright, DISC) < 0.5 * change_of(&plain, &upright, CROSS));
    pictures_free(&full);
    pictures_free(&plain);
    pictures_free(&upright);
}

RUN_TESTS(ENTRY(names_are_lines), ENTRY(cifar_10_is_read_with_its_names),
          ENTRY(cifar_100_has_two_labels_and_a_folder_of_its_own),
          ENTRY(bad_cifar_files_are_named_with_what_was_expected), ENTRY(pngs_are_read),
          ENTRY(jpegs_are_read_also_grey_ones_and_inks), ENTRY(a_jpeg_is_halved_only_as_far_as_allowed),
          ENTRY(bad_pictures_have_reasons), ENTRY(scaling_is_pillows), ENTRY(a_folder_has_its_classes_in_order),
          ENTRY(unreadable_pictures_are_refused_or_skipped_by_name), ENTRY(folders_without_pictures_say_so),
          ENTRY(shapes_follow_from_seed_stream_and_number), ENTRY(smaller_shapes_are_the_same_pictures),
          ENTRY(shapes_can_be_upright_and_without_clutter))
