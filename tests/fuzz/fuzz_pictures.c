/* libFuzzer target: what reads pictures (trainer/data/cifar.c, image_file.c, pictures.c), on the bytes of a file.
 *
 * The first byte says what the rest is: a file of CIFAR-10, of CIFAR-100 with fine or coarse labels, a list of names, or
 * for anything above a PNG or JPEG, with how far a JPEG may be halved.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "support/text.h"
#include "data/cifar.h"
#include "data/image_file.h"
#include "core/error.h"

#include <stdio.h>

static void check_message(void) { require(strlen(adamod__last_message()) > 3 && is_line(adamod__last_message())); }

static void check_cifar(cifar_kind kind, const uint8_t *bytes, size_t n) {
    static const int classes[] = {10, 100, 20};
    pictures p = {.size = 32};
    if (cifar_parse(&p, "f", bytes, n, kind)) {
        require(p.n == 0);
        check_message();
    } else {
        require(p.n > 0);
        for (int64_t i = 0; i < p.n; i++) require(p.labels[i] >= 0 && p.labels[i] < classes[kind]);
    }
    pictures_free(&p);
}

static void check_names(const uint8_t *bytes, size_t n) {
    char path[64];
    class_names c;
    snprintf(path, sizeof path, "/dev/shm/adamod-fuzz-%ld", (long)getpid());
    if (text_write(path, (text_slice){(const char *)bytes, n})) return;
    if (class_names_load(&c, path)) {
        require(c.n == 0);
        check_message();
    } else {
        for (int i = 0; i < c.n; i++) require(class_names_find(&c, c.name[i]) == i);
        class_names_free(&c);
    }
    unlink(path);
}

static void check_image(int least, const uint8_t *bytes, size_t n) {
    static uint8_t square[8 * 8 * 3];
    image x;
    if (image_decode(&x, bytes, n, least)) {
        require(!x.pixels && strlen(adamod__last_message()) > 3);
        return;
    }
    require(x.width > 0 && x.height > 0 && x.pixels);
    require(image_square(&x, 8, square) == 0);
    image_free(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    if (data[0] < 3) check_cifar((cifar_kind)data[0], data + 1, size - 1);
    else if (data[0] == 3) check_names(data + 1, size - 1);
    else check_image(data[0] - 4, data + 1, size - 1);
    return 0;
}
