#include "tasks/class_details.h"

#include "core/error.h"
#include "support/base64.h"
#include "support/json.h"
#include "support/text.h"
#include "data/image_file.h"

#include <stdlib.h>

int class_details_begin(class_details *c, int classes) {
    class_details_free(c);
    if (classes > CLASS_MOST) return 0;
    c->confusion = calloc((size_t)classes * (size_t)classes, sizeof *c->confusion);
    if (!c->confusion) return -1;
    c->classes = classes;
    return 0;
}

void class_details_free(class_details *c) {
    free(c->confusion);
    *c = (class_details){0};
}

void class_details_add(class_details *c, int label, int prediction, double probability, int64_t place) {
    if (!c->confusion) return;
    c->confusion[(int64_t)label * c->classes + prediction]++;
    if (label == prediction) return;
    int at = c->mistakes;
    while (at > 0 && probability > c->mistake[at - 1].probability) at--;
    if (at == CLASS_MISTAKES) return;
    if (c->mistakes < CLASS_MISTAKES) c->mistakes++;
    for (int i = c->mistakes - 1; i > at; i--) c->mistake[i] = c->mistake[i - 1];
    c->mistake[at] = (class_mistake){place, prediction, probability};
}

static void write_confusion(json *j, const class_details *c) {
    json_pair_open(j, "confusion", '[');
    for (int i = 0; i < c->classes; i++) {
        json_open(j, '[');
        for (int k = 0; k < c->classes; k++) json_integer(j, c->confusion[(int64_t)i * c->classes + k]);
        json_close(j, ']');
    }
    json_close(j, ']');
}

/* ---- little pictures ---- */

enum { MOST_SIDE = 128, MOST_BYTES = MOST_SIDE * MOST_SIDE * 3 };

typedef struct little {
    int side;
    uint8_t scaled[MOST_BYTES]; /* [side, side, 3], of larger pictures */
    char text[MOST_BYTES / 3 * 4 + 1];
} little;

static int little_encode(little *l, const pictures *p, int64_t place) {
    uint8_t *pixels = p->bytes + (size_t)place * pictures_bytes(p);
    const bool large = p->size > MOST_SIDE;
    if (large && image_square(&(image){p->size, p->size, pixels}, l->side, l->scaled)) return -1;
    base64_encode(large ? l->scaled : pixels, (size_t)l->side * (size_t)l->side * 3, l->text);
    return 0;
}

static void write_picture(json *j, const little *l) {
    json_pair_open(j, "picture", '{');
    json_pair_integer(j, "height", l->side);
    json_pair_integer(j, "width", l->side);
    json_pair_integer(j, "channels", 3);
    json_close(j, '}');
}

static int write_mistake(json *j, const class_mistake *m, const pictures *p, little *l) {
    if (little_encode(l, p, m->place)) return -1;
    json_open(j, '{');
    json_pair_integer(j, "label", p->labels[m->place]);
    json_pair_integer(j, "prediction", m->prediction);
    json_pair_number(j, "probability", m->probability);
    json_pair(j, "pixels", l->text);
    json_close(j, '}');
    return 0;
}

int class_details_write(const class_details *c, const pictures *p, int64_t step, const char *split, const char *path) {
    if (!c->confusion) return 0;
    little *shown = malloc(sizeof *shown);
    if (!shown) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    shown->side = p->size < MOST_SIDE ? p->size : MOST_SIDE;
    int status = 0;
    json j = {0};
    json_open(&j, '{');
    json_pair_integer(&j, "step", step);
    json_pair(&j, "split", split);
    json_pair_open(&j, "classes", '[');
    for (int i = 0; i < c->classes; i++) json_string(&j, p->classes.name[i]);
    json_close(&j, ']');
    write_confusion(&j, c);
    write_picture(&j, shown);
    json_pair_open(&j, "mistakes", '[');
    for (int i = 0; !status && i < c->mistakes; i++) status = write_mistake(&j, &c->mistake[i], p, shown);
    json_close(&j, ']');
    json_close(&j, '}');
    json_end_line(&j);
    if (!status) status = json_save(&j, path);
    json_free(&j);
    free(shown);
    return status;
}
