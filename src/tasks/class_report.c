#include "tasks/class_report.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/text.h"

#include <stdlib.h>

int class_report_begin(class_report *c, int classes) {
    class_report_free(c);
    if (classes > CLASS_MOST) return 0;
    c->confusion = calloc((size_t)classes * (size_t)classes, sizeof *c->confusion);
    if (!c->confusion) return -1;
    c->classes = classes;
    return 0;
}

void class_report_free(class_report *c) {
    free(c->confusion);
    *c = (class_report){0};
}

void class_report_add(class_report *c, int label, int prediction, double probability, int64_t place) {
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

static void write_confusion(json *j, const class_report *c) {
    json_key(j, "confusion");
    json_open(j, '[');
    for (int i = 0; i < c->classes; i++) {
        json_open(j, '[');
        for (int k = 0; k < c->classes; k++) json_integer(j, c->confusion[(int64_t)i * c->classes + k]);
        json_close(j, ']');
    }
    json_close(j, ']');
}

static void write_picture(json *j, const pictures *p) {
    json_key(j, "picture");
    json_open(j, '{');
    json_key(j, "height");
    json_integer(j, p->size);
    json_key(j, "width");
    json_integer(j, p->size);
    json_key(j, "channels");
    json_integer(j, 3);
    json_close(j, '}');
}

static void write_mistake(json *j, const class_mistake *m, const pictures *p, char *text) {
    json_open(j, '{');
    json_key(j, "label");
    json_integer(j, p->labels[m->place]);
    json_key(j, "prediction");
    json_integer(j, m->prediction);
    json_key(j, "probability");
    json_number(j, m->probability);
    if (text) {
        base64_encode(p->bytes + (size_t)m->place * pictures_bytes(p), pictures_bytes(p), text);
        json_key(j, "pixels");
        json_string(j, text);
    }
    json_close(j, '}');
}

enum { MOST_SIDE = 256 }; /* that the format allows */

int class_report_write(const class_report *c, const pictures *p, int64_t step, const char *split, const char *path,
                       char *message, size_t size) {
    if (!c->confusion) return 0;
    const bool shown = p->size <= MOST_SIDE;
    char *text = shown ? malloc(base64_length(pictures_bytes(p)) + 1) : NULL;
    json j = {0};
    json_open(&j, '{');
    json_key(&j, "step");
    json_integer(&j, step);
    json_key(&j, "split");
    json_string(&j, split);
    json_key(&j, "classes");
    json_open(&j, '[');
    for (int i = 0; i < c->classes; i++) json_string(&j, p->classes.name[i]);
    json_close(&j, ']');
    write_confusion(&j, c);
    if (shown) write_picture(&j, p);
    json_key(&j, "mistakes");
    json_open(&j, '[');
    for (int i = 0; i < c->mistakes; i++) write_mistake(&j, &c->mistake[i], p, text);
    json_close(&j, ']');
    json_close(&j, '}');
    json_end_line(&j);
    const bool failed = j.failed || (shown && !text);
    const int status = failed ? text_fail(message, size, "%s: out of memory", path)
                              : text_write(path, (text_slice){j.text, j.n}, message, size);
    json_free(&j);
    free(text);
    return status;
}
