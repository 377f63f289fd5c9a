#include "data/shapes.h"

#include "core/pool.h"
#include "support/random.h"
#include "core/error.h"

#include <math.h>
#include <stdbool.h>

static const char *const names[SHAPES_CLASSES] = {"disc",  "ring",      "square",   "triangle", "star",
                                                  "cross", "half disc", "crescent", "heart",    "arrow"};
enum { DISC, RING, SQUARE, TRIANGLE, STAR, CROSS, HALF_DISC, CRESCENT, HEART, ARROW };

/* ---- random numbers of a picture ---- */

typedef struct drawing {
    uint64_t key, at;
    int size;                                 /* pixels of a side */
    double unit;                              /* pixels of a length of 1, of which a side has 32 */
    float pixel[SHAPES_MOST][SHAPES_MOST][3]; /* 0 to 1; the first `size` of each side */
} drawing;

static double draw(drawing *d, double low, double high) { return low + (high - low) * nn_uniform(d->key, d->at++); }
static double draw_angle(drawing *d) { return draw(d, 0, 6.283185307179586); }

typedef struct colour {
    double c[3];
} colour;

static colour draw_colour(drawing *d) {
    colour x;
    for (int k = 0; k < 3; k++) x.c[k] = draw(d, 0, 1);
    return x;
}

static double difference(const colour *a, const colour *b) {
    double sum = 0;
    for (int k = 0; k < 3; k++) sum += fabs(a->c[k] - b->c[k]);
    return sum;
}

/* ---- the ten ---- */

static bool in_triangle(double u, double v) {
    const double side = 0.8660254037844386 * fabs(u) + 0.5 * v; /* the upper sides are mirror images */
    return v > -0.5 && side < 0.5;
}

/* Five points at radius 1 with dents at 0.45 between them: inside is below the line from a point to the next dent. */
static bool in_star(double u, double v) {
    const double fifth = 1.2566370614359172, r = hypot(u, v);
    double a = fmod(atan2(u, v) + 2 * 6.283185307179586, fifth);
    if (a > fifth / 2) a = fifth - a;
    const double x = r * cos(a), y = r * sin(a), dent_x = 0.45 * cos(fifth / 2), dent_y = 0.45 * sin(fifth / 2);
    return x * dent_y + y * (1 - dent_x) < dent_y;
}

static bool in_heart(double u, double v) {
    const double x = 1.25 * u, y = 1.25 * v + 0.1, s = x * x + y * y - 1;
    return s * s * s < x * x * y * y * y;
}

static bool in_arrow(double u, double v) {
    if (u < 0.05) return u > -0.95 && fabs(v) < 0.2;
    return u < 0.95 && fabs(v) < 0.7 * (0.95 - u) / 0.9;
}

/* Shapes have a radius of about 1 around (0, 0). */
static bool inside(int shape, double u, double v) {
    const double r2 = u * u + v * v;
    switch (shape) {
        case DISC: return r2 < 0.85 * 0.85;
        case RING: return r2 < 0.95 * 0.95 && r2 > 0.55 * 0.55;
        case SQUARE: return fabs(u) < 0.75 && fabs(v) < 0.75;
        case TRIANGLE: return in_triangle(u, v);
        case STAR: return in_star(u, v);
        case CROSS: return (fabs(u) < 0.27 && fabs(v) < 0.95) || (fabs(v) < 0.27 && fabs(u) < 0.95);
        case HALF_DISC: return u * u + (v + 0.4) * (v + 0.4) < 0.9 && v > -0.4;
        case CRESCENT: return r2 < 0.9 && (u - 0.5) * (u - 0.5) + v * v > 0.55;
        case HEART: return in_heart(u, v);
        default: return in_arrow(u, v);
    }
}

/* ---- drawing ---- */

static void blend(float *pixel, const colour *c, double share) {
    for (int k = 0; k < 3; k++) pixel[k] = (float)((1 - share) * (double)pixel[k] + share * c->c[k]);
}

/* Draws a gradient in a random direction. Returns its middle colour. */
static colour draw_background(drawing *d) {
    colour a = draw_colour(d), b = draw_colour(d);
    for (int k = 0; k < 3; k++) b.c[k] = a.c[k] + 0.5 * (b.c[k] - a.c[k]);
    const double angle = draw_angle(d), x = cos(angle) / d->size, y = sin(angle) / d->size;
    colour middle;
    for (int k = 0; k < 3; k++) middle.c[k] = (a.c[k] + b.c[k]) / 2;
    for (int i = 0; i < d->size; i++) {
        for (int j = 0; j < d->size; j++) {
            const double t = 0.5 + (i - d->size / 2) * y + (j - d->size / 2) * x, s = t < 0 ? 0 : t > 1 ? 1 : t;
            for (int k = 0; k < 3; k++) d->pixel[i][j][k] = (float)(a.c[k] + s * (b.c[k] - a.c[k]));
        }
    }
    return middle;
}

/* A stroke, or a blot, which is a stroke of length 0. */
static void draw_clutter(drawing *d) {
    const colour c = draw_colour(d);
    const bool stroke = draw(d, 0, 1) < 0.6;
    const double angle = draw_angle(d), length = stroke ? d->unit * draw(d, 3, 14) : 0;
    const double x = draw(d, 0, d->size), y = draw(d, 0, d->size),
                 radius = d->unit * (stroke ? draw(d, 0.5, 1) : draw(d, 1, 2.5));
    const double dx = cos(angle), dy = sin(angle);
    for (int i = 0; i < d->size; i++) {
        for (int j = 0; j < d->size; j++) {
            const double px = j + 0.5 - x, py = i + 0.5 - y, along = px * dx + py * dy;
            const double t = along < 0 ? 0 : along > length ? length : along;
            const double share = radius + 0.5 - hypot(px - t * dx, py - t * dy);
            if (share > 0) blend(d->pixel[i][j], &c, share < 1 ? share : 1);
        }
    }
}

static void draw_clutters(drawing *d, double least, double below) {
    for (int n = (int)draw(d, least, below); n > 0; n--) draw_clutter(d);
}

/* Rows of pixels go down, and shapes are described with v going up. */
#define UPRIGHT 3.141592653589793

/* Blends each pixel by how many of its four quarters the shape covers. */
static void draw_shape(drawing *d, int shape, bool upright, const colour *behind) {
    colour c = draw_colour(d);
    for (int tries = 0; tries < 8 && difference(&c, behind) < 0.9; tries++) c = draw_colour(d);
    const double radius = d->unit * draw(d, 7, 13), turn = draw_angle(d), stretch = draw(d, 0.8, 1.25),
                 room = 0.75 * radius;
    const double x = draw(d, room, d->size - room), y = draw(d, room, d->size - room);
    const double angle = upright ? UPRIGHT : turn, dx = cos(angle) / radius, dy = sin(angle) / radius;
    for (int i = 0; i < d->size; i++) {
        for (int j = 0; j < d->size; j++) {
            int covered = 0;
            for (int q = 0; q < 4; q++) {
                const double px = j + 0.25 + 0.5 * (q & 1) - x, py = i + 0.25 + 0.5 * (q >> 1) - y;
                covered += inside(shape, (px * dx + py * dy) * stretch, (py * dx - px * dy) / stretch);
            }
            if (covered) blend(d->pixel[i][j], &c, covered / 4.0);
        }
    }
}

static void add_noise(drawing *d, uint8_t *out) {
    const double noise = draw(d, 0.01, 0.08);
    const uint64_t key = nn_mix(d->key);
    const int row = d->size * 3;
    for (int i = 0; i < d->size * row; i++) {
        const double pixel = (double)d->pixel[i / row][i % row / 3][i % 3];
        const double x = 255 * (pixel + noise * nn_normal(key, (uint64_t)i)) + 0.5;
        out[i] = (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
    }
}

/* ---- all of them ---- */

typedef struct shapes_work {
    pictures *to;
    const shapes_options *o;
} shapes_work;

static void make_one(void *context, int64_t i, int thread) {
    const shapes_work *w = context;
    drawing d; /* not cleared: the background covers it */
    d.key = nn_key(w->o->seed, (uint64_t)w->o->stream, (uint64_t)i);
    d.at = 0;
    d.size = w->to->size;
    d.unit = d.size / (double)SHAPES_SIZE;
    const int shape = (int)(i % SHAPES_CLASSES);
    (void)thread;
    const colour behind = draw_background(&d);
    if (!w->o->plain) draw_clutters(&d, 1, 5);
    draw_shape(&d, shape, w->o->upright, &behind);
    if (!w->o->plain) draw_clutters(&d, 0, 2);
    add_noise(&d, w->to->bytes + (size_t)(w->to->n + i) * pictures_bytes(w->to));
    w->to->labels[w->to->n + i] = shape;
}

int shapes_generate(pictures *out, const shapes_options *o, int64_t n, const pictures_crew *crew) {
    shapes_work w = {out, o};
    if (out->size < SHAPES_LEAST || out->size > SHAPES_MOST)
        return adamod__refuse("shapes: %d pixels per side, expected %d to %d", out->size, SHAPES_LEAST, SHAPES_MOST);
    if (out->classes.n && out->classes.n != SHAPES_CLASSES)
        return adamod__refuse("shapes: %d classes, expected %d, as the model has", SHAPES_CLASSES, out->classes.n);
    for (int i = 0; i < SHAPES_CLASSES && out->classes.n < SHAPES_CLASSES; i++) {
        if (class_names_add(&out->classes, names[i])) return -1;
    }
    if (pictures_reserve(out, n)) return -1;
    pictures_each(crew, n, make_one, &w);
    out->n += n;
    return 0;
}
