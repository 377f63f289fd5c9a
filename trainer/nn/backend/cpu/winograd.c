/* y = A^T [sum over channels of (G w G^T) (B^T d B)] A for each tile of 4 x 4 numbers of y, d the 6 x 6 of x behind it:
 * 36 matrix products [tiles, in] [in, out], one for each place in a tile, between transforms of tiles. The gradient of
 * W is G^T [sum over tiles of (A dy A^T) (B^T d B)] G.
 *
 * The algorithm's points are 0, +-a, +-b and infinity, with a = sqrt(1/2) and b = sqrt(2): a b = 1 keeps all constants
 * small, which loses fewer bits than the usual 1 and 2.
 *
 * A number of a product is a sum in the order of channels (or tiles), whatever is computed together, so that results do
 * not depend on threads. */
#include "nn/backend/cpu/winograd.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/vector.h"

#include <stdatomic.h>
#include <string.h>

enum {
    LANES = NN_LANES,           /* channels at once */
    POINTS = 36,                /* of a tile */
    BLOCK = 32,                 /* tiles of an item, whose arrays stay in the second cache */
    FEW = 16 * BLOCK,           /* with fewer tiles, threads share these rather than the weights */
    GROUP = 8,                  /* tiles of a task where threads share them */
    CHUNK_FLOATS = 3 * 1 << 20, /* about: of transformed x and dy that a gradient of W sums at once */
    LARGE = 128 * 128           /* in times out: transformed weights that are better kept in a cache */
};

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

#define A1 0.70710678118654752f /* a, a^2 = 1/2, a^3 */
#define A3 0.35355339059327376f
#define B1 1.41421356237309505f /* b, b^2 = 2, b^3 */
#define B3 2.82842712474619010f

/* ---- shapes ---- */

typedef struct tiles {
    int64_t height, width; /* of y */
    int64_t down, across, each, all;
} tiles;

static tiles tiles_of(const nn_winograd *s) {
    tiles t = {.height = s->height + 2 * s->padding - 2, .width = s->width + 2 * s->padding - 2};
    t.down = nn_parts(t.height, 4);
    t.across = nn_parts(t.width, 4);
    t.each = t.down * t.across;
    t.all = s->images * t.each;
    return t;
}

bool nn_winograd_fits(const nn_winograd *s) {
    const tiles t = tiles_of(s);
    return s->in % LANES == 0 && s->out % LANES == 0 && t.height > 0 && t.width > 0 &&
           16 * t.each <= 2 * t.height * t.width;
}

/* The first pixel of tile i in y. */
typedef struct tile_place {
    int64_t image, row, column;
} tile_place;

static tile_place place_of(const tiles *t, int64_t i) {
    return (tile_place){i / t->each, i % t->each / t->across * 4, i % t->across * 4};
}

/* ---- transforms of one tile, for all of its channels ---- */

/* B^T d of one column: six numbers of d, `step` lanes apart. */
INLINE void transform_input(const lanes *d, int step, lanes *r) {
    const lanes d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step];
    const lanes even = d4 - 2.0f * d2, odd = A1 * (d3 - 2.0f * d1);
    const lanes even_b = d4 - 0.5f * d2, odd_b = B1 * (d3 - 0.5f * d1);
    r[0] = d[0] - 2.5f * d2 + d4;
    r[1] = even + odd;
    r[2] = even - odd;
    r[3] = even_b + odd_b;
    r[4] = even_b - odd_b;
    r[5] = d1 - 2.5f * d3 + d[5 * step];
}

INLINE void transform_output(const lanes *m, int step, lanes *y) {
    const lanes s1 = m[step] + m[2 * step], e1 = m[step] - m[2 * step];
    const lanes s2 = m[3 * step] + m[4 * step], e2 = m[3 * step] - m[4 * step];
    y[0] = m[0] + s1 + s2;
    y[1] = A1 * e1 + B1 * e2;
    y[2] = 0.5f * s1 + 2.0f * s2;
    y[3] = A3 * e1 + B3 * e2 + m[5 * step];
}

/* The transpose of transform_output. */
INLINE void transform_output_grad(const lanes *y, int step, lanes *q) {
    const lanes y0 = y[0], y1 = y[step], y2 = y[2 * step], y3 = y[3 * step];
    const lanes even = y0 + 0.5f * y2, odd = A1 * y1 + A3 * y3;
    const lanes even_b = y0 + 2.0f * y2, odd_b = B1 * y1 + B3 * y3;
    q[0] = y0;
    q[1] = even + odd;
    q[2] = even - odd;
    q[3] = even_b + odd_b;
    q[4] = even_b - odd_b;
    q[5] = y3;
}

INLINE void transform_weight(const lanes *g, int step, lanes *w) {
    const lanes g0 = g[0], g1 = g[step], g2 = g[2 * step];
    const lanes even = (g0 + 0.5f * g2) * (-2.0f / 3), odd = g1 * (A1 * (-2.0f / 3));
    const lanes even_b = (g0 + 2.0f * g2) * (1.0f / 6), odd_b = g1 * (B1 * (1.0f / 6));
    w[0] = g0;
    w[1] = even + odd;
    w[2] = even - odd;
    w[3] = even_b + odd_b;
    w[4] = even_b - odd_b;
    w[5] = g2;
}

/* The transpose of transform_weight. */
INLINE void transform_weight_grad(const lanes *u, int step, lanes *g) {
    const lanes s1 = (u[step] + u[2 * step]) * (-2.0f / 3), e1 = (u[step] - u[2 * step]) * (A1 * (-2.0f / 3));
    const lanes s2 = (u[3 * step] + u[4 * step]) * (1.0f / 6), e2 = (u[3 * step] - u[4 * step]) * (B1 * (1.0f / 6));
    g[0] = u[0] + s1 + s2;
    g[1] = e1 + e2;
    g[2] = 0.5f * s1 + 2.0f * s2 + u[5 * step];
}

/* The pixels behind a tile; NULL: outside of the image. */
typedef struct patch {
    const float *pixel[POINTS];
} patch;

static patch patch_of(const float *x, int64_t stride, int64_t height, int64_t width, int64_t row, int64_t column,
                      int size) {
    patch p;
    for (int i = 0; i < size * size; i++) {
        const int64_t r = row + i / size, c = column + i % size;
        p.pixel[i] = r < 0 || r >= height || c < 0 || c >= width ? NULL : x + (r * width + c) * stride;
    }
    return p;
}

/* Transforms 6 x 6 pixels of x to 36 points, which lie `apart` numbers from each other. */
NN_CLONES
static void input_tile(const patch *p, int64_t channels, float *v, int64_t apart) {
    for (int64_t c = 0; c < channels; c += LANES) {
        lanes d[POINTS], t[POINTS];
        for (int i = 0; i < POINTS; i++) d[i] = p->pixel[i] ? *(const lanes *)(p->pixel[i] + c) : (lanes){0};
        for (int j = 0; j < 6; j++) transform_input(d + j, 6, t + 6 * j);
        for (int i = 0; i < 6; i++) {
            lanes r[6];
            transform_input(t + i, 6, r);
            for (int j = 0; j < 6; j++) *(lanes *)(v + (6 * i + j) * apart + c) = r[j];
        }
    }
}

/* Transforms 36 points to 4 x 4 pixels of y; pixels outside of the image are not written. */
NN_CLONES
static void output_tile(const float *m, int64_t apart, int64_t channels, const patch *p, bool add) {
    for (int64_t c = 0; c < channels; c += LANES) {
        lanes t[24];
        for (int j = 0; j < 6; j++) {
            lanes d[6];
            for (int i = 0; i < 6; i++) d[i] = *(const lanes *)(m + (6 * i + j) * apart + c);
            transform_output(d, 1, t + 4 * j);
        }
        for (int i = 0; i < 4; i++) {
            lanes y[4];
            transform_output(t + i, 4, y);
            for (int j = 0; j < 4; j++) {
                float *to = (float *)(uintptr_t)p->pixel[4 * i + j];
                if (to && add) y[j] += *(lanes *)(to + c);
                if (to) *(lanes *)(to + c) = y[j];
            }
        }
    }
}

/* Transforms 4 x 4 pixels of y's gradient to 36 points. */
NN_CLONES
static void output_grad_tile(const patch *p, int64_t channels, float *v, int64_t apart) {
    for (int64_t c = 0; c < channels; c += LANES) {
        lanes d[16], t[24];
        for (int i = 0; i < 16; i++) d[i] = p->pixel[i] ? *(const lanes *)(p->pixel[i] + c) : (lanes){0};
        for (int j = 0; j < 4; j++) transform_output_grad(d + j, 4, t + 6 * j);
        for (int i = 0; i < 6; i++) {
            lanes q[6];
            transform_output_grad(t + i, 6, q);
            for (int j = 0; j < 6; j++) *(lanes *)(v + (6 * i + j) * apart + c) = q[j];
        }
    }
}

/* Transforms 3 x 3 weights of LANES channels to 36 points. Weights lie `channels` numbers from each other. */
NN_CLONES
static void weight_tile(const float *w, int64_t channels, bool turned, float *u, int64_t apart) {
    lanes g[9], t[18];
    for (int i = 0; i < 9; i++) g[i] = *(const lanes *)(w + (turned ? 8 - i : i) * channels);
    for (int j = 0; j < 3; j++) transform_weight(g + j, 3, t + 6 * j);
    for (int i = 0; i < 6; i++) {
        lanes r[6];
        transform_weight(t + i, 6, r);
        for (int j = 0; j < 6; j++) *(lanes *)(u + (6 * i + j) * apart) = r[j];
    }
}

/* Transforms 36 points to the gradient of 3 x 3 weights. */
NN_CLONES
static void weight_grad_tile(const float *u, int64_t apart, float *w, int64_t channels, bool add) {
    lanes t[18];
    for (int j = 0; j < 6; j++) {
        lanes d[6];
        for (int i = 0; i < 6; i++) d[i] = *(const lanes *)(u + (6 * i + j) * apart);
        transform_weight_grad(d, 1, t + 3 * j);
    }
    for (int i = 0; i < 3; i++) {
        lanes g[3];
        transform_weight_grad(t + i, 3, g);
        for (int j = 0; j < 3; j++) {
            lanes *const to = (lanes *)(w + (3 * i + j) * channels);
            if (add) g[j] += *to;
            *to = g[j];
        }
    }
}

/* ---- y ---- */

typedef struct apply_job {
    const nn_winograd *s;
    tiles t;
    const nn_vector *vector;
    const float *x, *w;
    float *y;
    bool turned, add;
    int64_t panel; /* columns of transformed weights that lie together: [POINTS][in][panel] */
    float *u, *v, *m;
    atomic_llong next; /* of what threads take: blocks, panels */
} apply_job;

static int64_t panel_of(int64_t out) { return out % (2 * LANES) ? LANES : 2 * LANES; }

/* Transforms a panel's weights [panel, 3, 3, in], and transposes them, LANES of in at a time. Points lie `apart`
 * numbers from each other. */
static void upright_weights(const apply_job *j, int64_t first, float *u, int64_t apart) {
    _Alignas(64) float square[POINTS * 2 * LANES * LANES];
    const int64_t in = j->s->in, size = j->panel * LANES;
    for (int64_t c = 0; c < in; c += LANES) {
        for (int64_t k = 0; k < j->panel; k++)
            weight_tile(j->w + (first + k) * 9 * in + c, in, false, square + k * LANES, size);
        for (int64_t f = 0; f < POINTS; f++) {
            float *const to = u + f * apart + c * j->panel;
            j->vector->transpose(j->panel, LANES, square + f * size, LANES, to, j->panel);
        }
    }
}

/* Transforms turned weights [in, 3, 3, out], which need no transposition. */
static void turned_weights(const apply_job *j, int64_t first, float *u, int64_t apart) {
    const int64_t in = j->s->in, out = j->s->out;
    for (int64_t c = 0; c < in; c++) {
        for (int64_t k = 0; k < j->panel; k += LANES)
            weight_tile(j->w + c * 9 * out + first + k, out, true, u + c * j->panel + k, apart);
    }
}

static void panel_weights(const apply_job *j, int64_t panel, float *u, int64_t apart) {
    if (j->turned) turned_weights(j, panel * j->panel, u, apart);
    else upright_weights(j, panel * j->panel, u, apart);
}

/* Transforms tiles first .. first + n - 1 of x to rows of v, [POINTS][rows][in]. */
static void transform_tiles(const apply_job *j, int64_t first, int64_t n, float *v, int64_t rows) {
    const nn_winograd *s = j->s;
    for (int64_t i = 0; i < n; i++) {
        const tile_place at = place_of(&j->t, first + i);
        const patch p = patch_of(j->x + at.image * s->height * s->width * s->x_stride, s->x_stride, s->height, s->width,
                                 at.row - s->padding, at.column - s->padding, 6);
        input_tile(&p, s->in, v + i * s->in, rows * s->in);
    }
}

/* Multiplies n rows of v by a panel of weights, at one point. */
static void multiply(const apply_job *j, int64_t f, int64_t panel, const float *u, int64_t n, float *v, float *m,
                     int64_t rows) {
    const int64_t in = j->s->in, out = j->s->out;
    const nn_tile a = {v + f * rows * in, in, 1}, b = {(float *)(uintptr_t)u, j->panel, 1},
                  c = {m + f * rows * out + panel * j->panel, out, 1};
    j->vector->product(n, j->panel, in, a, b, c, false);
}

static void finish_tiles(const apply_job *j, int64_t first, int64_t n, const float *m, int64_t rows) {
    const nn_winograd *s = j->s;
    for (int64_t i = 0; i < n; i++) {
        const tile_place at = place_of(&j->t, first + i);
        const patch p = patch_of(j->y + at.image * j->t.height * j->t.width * s->y_stride, s->y_stride, j->t.height,
                                 j->t.width, at.row, at.column, 4);
        output_tile(m + i * s->out, rows * s->out, s->out, &p, j->add);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t take(atomic_llong *next) { return atomic_fetch_add_explicit(next, 1, memory_order_relaxed); }

/* ---- of many tiles: all weights first, then blocks of tiles, each from x to y by one thread in its own memory ---- */

static void weights_task(void *context, int64_t panel) {
    const apply_job *j = context;
    panel_weights(j, panel, j->u + panel * j->panel * j->s->in, j->s->in * j->s->out);
}

static void blocks_task(void *context, int64_t thread) {
    apply_job *j = context;
    const int64_t in = j->s->in, out = j->s->out;
    float *v = j->v + thread * POINTS * BLOCK * (in + out), *m = v + POINTS * BLOCK * in;
    for (int64_t first; (first = take(&j->next) * BLOCK) < j->t.all;) {
        const int64_t n = least(BLOCK, j->t.all - first);
        transform_tiles(j, first, n, v, BLOCK);
        for (int64_t f = 0; f < POINTS; f++) {
            for (int64_t p = 0; p < out / j->panel; p++)
                multiply(j, f, p, j->u + (f * out + p * j->panel) * in, n, v, m, BLOCK);
        }
        finish_tiles(j, first, n, m, BLOCK);
    }
}

/* ---- of few: all tiles first, then panels of weights, each transformed by the thread that multiplies with it ---- */

static void transform_task(void *context, int64_t i) {
    const apply_job *j = context;
    transform_tiles(j, i * GROUP, least(GROUP, j->t.all - i * GROUP), j->v + i * GROUP * j->s->in, j->t.all);
}

static void panels_task(void *context, int64_t thread) {
    apply_job *j = context;
    const int64_t size = j->s->in * j->panel;
    float *u = j->u + thread * POINTS * size;
    for (int64_t p; (p = take(&j->next)) < j->s->out / j->panel;) {
        panel_weights(j, p, u, size);
        for (int64_t f = 0; f < POINTS; f++) multiply(j, f, p, u + f * size, j->t.all, j->v, j->m, j->t.all);
    }
}

static void finish_task(void *context, int64_t i) {
    const apply_job *j = context;
    finish_tiles(j, i * GROUP, least(GROUP, j->t.all - i * GROUP), j->m + i * GROUP * j->s->out, j->t.all);
}

/* ---- either ---- */

void nn_winograd_apply(adamod_pool *pool, const nn_winograd *s, const float *x, const float *w, bool turned, float *y,
                       bool add, float *workspace) {
    apply_job j = {.s = s, .t = tiles_of(s), .vector = nn_vector_choose(), .x = x, .w = w, .y = y};
    j.turned = turned, j.add = add;
    j.panel = panel_of(s->out);
    atomic_init(&j.next, 0);
    if (j.t.all >= FEW) {
        j.u = workspace;
        j.v = j.u + POINTS * s->in * s->out;
        nn_parallel(pool, s->out / j.panel, weights_task, &j);
        nn_parallel(pool, adamod_pool_threads(pool), blocks_task, &j);
    } else {
        j.v = workspace;
        j.m = j.v + POINTS * j.t.all * s->in;
        j.u = j.m + POINTS * j.t.all * s->out;
        nn_parallel(pool, nn_parts(j.t.all, GROUP), transform_task, &j);
        nn_parallel(pool, adamod_pool_threads(pool), panels_task, &j);
        nn_parallel(pool, nn_parts(j.t.all, GROUP), finish_task, &j);
    }
}

/* A run may have fewer images than the capacity, and so few tiles where that has many. */
size_t nn_winograd_apply_floats(adamod_pool *pool, const nn_winograd *s) {
    const tiles t = tiles_of(s);
    const int64_t threads = adamod_pool_threads(pool), both = s->in + s->out;
    const int64_t few = least(t.all, FEW) * both + threads * s->in * panel_of(s->out);
    const int64_t many = t.all >= FEW ? s->in * s->out + threads * BLOCK * both : 0;
    return (size_t)(POINTS * (few > many ? few : many));
}

/* ---- the gradient of W ---- */

typedef struct weights_job {
    const nn_winograd *s;
    tiles t;
    const nn_vector *vector;
    const float *x, *dy;
    float *dw, *u, *v, *q; /* q: the transformed gradient of y */
    int64_t first, n, rows;
    bool add;
    atomic_llong next;
} weights_job;

enum { OUT_ROWS = 32 }; /* of what is computed at once */

static void gradients_task(void *context, int64_t i) {
    const weights_job *j = context;
    const nn_winograd *s = j->s;
    for (int64_t k = i * GROUP; k < least(j->n, (i + 1) * GROUP); k++) {
        const tile_place at = place_of(&j->t, j->first + k);
        patch p = patch_of(j->x + at.image * s->height * s->width * s->x_stride, s->x_stride, s->height, s->width,
                           at.row - s->padding, at.column - s->padding, 6);
        input_tile(&p, s->in, j->v + k * s->in, j->rows * s->in);
        p = patch_of(j->dy + at.image * j->t.height * j->t.width * s->y_stride, s->y_stride, j->t.height, j->t.width,
                     at.row, at.column, 4);
        output_grad_tile(&p, s->out, j->q + k * s->out, j->rows * s->out);
    }
}

/* Computes rows o .. o + n - 1 of the product at a point: writes them to u, or adds them. */
static void sum_tiles(const weights_job *j, int64_t f, int64_t o, int64_t n, float *u) {
    const int64_t in = j->s->in, out = j->s->out;
    const nn_tile a = {j->q + f * j->rows * out + o, 1, out}, b = {j->v + f * j->rows * in, in, 1}, c = {u, in, 1};
    j->vector->product(n, in, j->n, a, b, c, j->first > 0);
}

/* Computes the gradient of output o from its points, which lie `apart` numbers from each other. */
static void back(const weights_job *j, const float *u, int64_t apart, int64_t o) {
    const int64_t in = j->s->in;
    for (int64_t c = 0; c < in; c += LANES) weight_grad_tile(u + c, apart, j->dw + o * 9 * in + c, in, j->add);
}

/* ---- in memory, added up over chunks of tiles: [POINTS][out][in] ---- */

static void sum_task(void *context, int64_t i) {
    const weights_job *j = context;
    const int64_t out = j->s->out, parts = nn_parts(out, OUT_ROWS), o = i % parts * OUT_ROWS;
    sum_tiles(j, i / parts, o, least(OUT_ROWS, out - o), j->u + (i / parts * out + o) * j->s->in);
}

static void back_task(void *context, int64_t o) {
    const weights_job *j = context;
    back(j, j->u + o * j->s->in, j->s->out * j->s->in, o);
}

/* ---- in a thread's cache, some outputs after the others: [POINTS][OUT_ROWS][in] ---- */

static void outputs_task(void *context, int64_t thread) {
    weights_job *j = context;
    const int64_t in = j->s->in, size = OUT_ROWS * in;
    float *u = j->u + thread * POINTS * size;
    for (int64_t o; (o = take(&j->next) * OUT_ROWS) < j->s->out;) {
        const int64_t n = least(OUT_ROWS, j->s->out - o);
        for (int64_t f = 0; f < POINTS; f++) sum_tiles(j, f, o, n, u + f * size);
        for (int64_t k = 0; k < n; k++) back(j, u + k * in, size, o + k);
    }
}

/* ---- either ---- */

/* Tiles that are transformed and summed at once. */
static int64_t chunk_of(const nn_winograd *s) {
    const int64_t n = CHUNK_FLOATS / (POINTS * (s->in + s->out)) / BLOCK * BLOCK;
    return n < 2 * BLOCK ? 2 * BLOCK : n;
}

static bool in_cache(const nn_winograd *s, int64_t n_tiles) {
    return n_tiles <= chunk_of(s) && s->in * s->out >= LARGE;
}

void nn_winograd_weights(adamod_pool *pool, const nn_winograd *s, const float *x, const float *dy, float *dw, bool add,
                         float *workspace) {
    weights_job j = {.s = s, .t = tiles_of(s), .vector = nn_vector_choose(), .x = x, .dy = dy, .dw = dw, .add = add};
    j.rows = least(chunk_of(s), j.t.all);
    j.v = workspace;
    j.q = j.v + POINTS * j.rows * s->in;
    j.u = j.q + POINTS * j.rows * s->out;
    atomic_init(&j.next, 0);
    if (in_cache(s, j.t.all)) {
        j.n = j.rows;
        nn_parallel(pool, nn_parts(j.n, GROUP), gradients_task, &j);
        nn_parallel(pool, adamod_pool_threads(pool), outputs_task, &j);
        return;
    }
    if (!j.t.all) memset(j.u, 0, (size_t)(POINTS * s->in * s->out) * sizeof *j.u);
    for (; j.first < j.t.all; j.first += j.rows) {
        j.n = least(j.rows, j.t.all - j.first);
        nn_parallel(pool, nn_parts(j.n, GROUP), gradients_task, &j);
        nn_parallel(pool, POINTS * nn_parts(s->out, OUT_ROWS), sum_task, &j);
    }
    nn_parallel(pool, s->out, back_task, &j);
}

size_t nn_winograd_weights_floats(adamod_pool *pool, const nn_winograd *s) {
    const tiles t = tiles_of(s);
    const int64_t local = s->in * s->out >= LARGE ? adamod_pool_threads(pool) * OUT_ROWS * s->in : 0;
    const int64_t kept = in_cache(s, t.all) ? 0 : s->in * s->out;
    return (size_t)(POINTS * (least(chunk_of(s), t.all) * (s->in + s->out) + (local > kept ? local : kept)));
}
