/* Matrix products by a library, tile by tile on the pool's threads; or, without one, by plain loops. */
#include "nn/backend/cpu/gemm.h"
#include "core/error.h"
#include "core/library.h"
#include "nn/backend/cpu/cpu.h"
#include "nn/backend/cpu/narrow.h"
#include "nn/backend/cpu/vector.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(ADAMOD_ONEDNN)
#include <dnnl.h>
#elif defined(ADAMOD_CBLAS)
#include <cblas.h>
#endif

/* ---- one tile on one thread ---- */

static void clear_c(const nn_product *p) {
    for (int64_t i = 0; !p->add && i < p->m; i++) memset(p->c + i * p->ldc, 0, (size_t)p->n * sizeof *p->c);
}

#ifndef ADAMOD_CBLAS

/* Panels of A and B are copied, so that one loop serves all transpositions: A to [k][ROWS], B to [k][COLS]. */
enum { ROWS = 4, COLS = 16, DEPTH = 256, WIDTH = 128 };

typedef float lanes __attribute__((vector_size(COLS * sizeof(float)), aligned(4)));

static float element(const nn_factor *f, int64_t row, int64_t col) {
    return f->data[f->transposed ? col * f->stride + row : row * f->stride + col];
}

/* Rows row .. of A, columns depth .. depth + k - 1; zeros beyond the last row. */
static void copy_a(const nn_product *p, int64_t row, int64_t depth, int64_t k, float *to) {
    for (int64_t i = 0; i < ROWS; i++) {
        for (int64_t d = 0; d < k; d++) {
            const int64_t r = row + i, c = depth + d;
            to[d * ROWS + i] = r < p->m ? element(&p->a, r, c) : 0;
        }
    }
}

static void copy_b(const nn_product *p, int64_t col, int64_t depth, int64_t k, float *to) {
    for (int64_t j = 0; j < COLS; j++) {
        for (int64_t d = 0; d < k; d++) {
            const int64_t r = depth + d, c = col + j;
            to[d * COLS + j] = c < p->n ? element(&p->b, r, c) : 0;
        }
    }
}

/* sum = the product of two panels. */
NN_CLONES
static void panel_product(int64_t k, const float *a, const float *b, float *sum) {
    lanes s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (int64_t d = 0; d < k; d++) {
        const lanes x = *(const lanes *)(b + d * COLS);
        s0 += a[d * ROWS] * x;
        s1 += a[d * ROWS + 1] * x;
        s2 += a[d * ROWS + 2] * x;
        s3 += a[d * ROWS + 3] * x;
    }
    *(lanes *)sum = s0;
    *(lanes *)(sum + COLS) = s1;
    *(lanes *)(sum + 2 * COLS) = s2;
    *(lanes *)(sum + 3 * COLS) = s3;
}

static void add_panel(const nn_product *p, int64_t row, int64_t col, const float *sum) {
    for (int64_t i = 0; i < ROWS && row + i < p->m; i++) {
        float *c = p->c + (row + i) * p->ldc + col;
        for (int64_t j = 0; j < COLS && col + j < p->n; j++) c[j] += sum[i * COLS + j];
    }
}

static void block_product(const nn_product *p, int64_t col, int64_t depth, int64_t k) {
    _Alignas(64) float b[WIDTH * DEPTH], a[ROWS * DEPTH], sum[ROWS * COLS];
    const int64_t end = p->n < col + WIDTH ? p->n : col + WIDTH;
    for (int64_t j = col; j < end; j += COLS) copy_b(p, j, depth, k, b + (j - col) * DEPTH);
    for (int64_t i = 0; i < p->m; i += ROWS) {
        copy_a(p, i, depth, k, a);
        for (int64_t j = col; j < end; j += COLS) {
            panel_product(k, a, b + (j - col) * DEPTH, sum);
            add_panel(p, i, j, sum);
        }
    }
}

static void plain_product(const nn_product *p) {
    clear_c(p);
    for (int64_t col = 0; col < p->n; col += WIDTH) {
        for (int64_t depth = 0; depth < p->k; depth += DEPTH) {
            block_product(p, col, depth, p->k - depth < DEPTH ? p->k - depth : DEPTH);
        }
    }
}

#endif

#ifndef ADAMOD_ONEDNN
adamod_status nn_gemm_prepare(void) { return ADAMOD_OK; }
#endif

#if defined(ADAMOD_ONEDNN) || defined(ADAMOD_CBLAS)
/* Calls a function of the library's thread runtime, if it exists. */
static void call_if_there(const char *name, int argument) {
    void (*function)(int);
    if (adamod__library_function(NULL, name, &function)) function(argument);
}
#endif

#if defined(ADAMOD_ONEDNN)

/* Keeps oneDNN from starting OpenMP threads; the number is a setting of each calling thread. */
static void one_thread(void) {
    static _Thread_local bool done;
    if (!done) call_if_there("omp_set_num_threads", 1);
    done = true;
}

static void tile_product(const nn_product *p) {
    one_thread();
    const char ta = p->a.transposed ? 'T' : 'N', tb = p->b.transposed ? 'T' : 'N';
    const dnnl_status_t status =
        dnnl_sgemm(ta, tb, p->m, p->n, p->k, 1, p->a.data, p->a.stride, p->b.data, p->b.stride, p->add, p->c, p->ldc);
    if (status != dnnl_success) plain_product(p); /* it found no memory for its copies */
}

/* oneDNN compiles its kernels when it first meets a kind of product. Without memory for that, an exception crosses
 * code that cannot handle it, or a missing kernel is called. So all kinds are tried first, while memory is certainly
 * enough (oneDNN 2.6 takes 18 MiB). */
static void try_all_kinds(float *memory) {
    enum { N = 48 };
    static const int64_t shapes[][3] = {{N, N, N}, {1, N, N}, {N, 1, N}, {N, N, 1}, {4, N, N}, {N, 4, N}};
    for (int kind = 0; kind < 6 * 4 * 2; kind++) {
        const int64_t *shape = shapes[kind % 6];
        const int way = kind / 6;
        const char ta = way & 1 ? 'T' : 'N', tb = way & 2 ? 'T' : 'N';
        (void)dnnl_sgemm(ta, tb, shape[0], shape[1], shape[2], 1, memory, N, memory + N * N, N, way & 4 ? 1 : 0,
                         memory + 2 * N * N, N);
    }
}

adamod_status nn_gemm_prepare(void) {
    enum { ROOM = 32 << 20, ARRAYS = 3 * 48 * 48 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool done;
    adamod_status status = ADAMOD_OK;
    pthread_mutex_lock(&lock);
    if (!done) {
        void *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        float *arrays = calloc(ARRAYS, sizeof *arrays);
        if (room != MAP_FAILED) munmap(room, ROOM);
        if (room == MAP_FAILED || !arrays) {
            status = adamod__fail(ADAMOD_ERROR_MEMORY,
                                  "out of memory for matrix products: oneDNN starts with %d MiB free", ROOM >> 20);
        } else {
            one_thread();
            try_all_kinds(arrays);
            done = true;
        }
        free(arrays);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

const char *nn_gemm_library(void) {
    static _Thread_local char name[48];
    const dnnl_version_t *v = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}

#elif defined(ADAMOD_CBLAS)

static void one_thread(void) {
    static _Thread_local bool done;
    if (!done) {
        call_if_there("omp_set_num_threads", 1);
        call_if_there("openblas_set_num_threads", 1);
    }
    done = true;
}

static void tile_product(const nn_product *p) {
    one_thread();
    cblas_sgemm(CblasRowMajor, p->a.transposed ? CblasTrans : CblasNoTrans, p->b.transposed ? CblasTrans : CblasNoTrans,
                (int)p->m, (int)p->n, (int)p->k, 1, p->a.data, (int)p->a.stride, p->b.data, (int)p->b.stride, p->add,
                p->c, (int)p->ldc);
}

/* OpenBLAS tells its version, then how it was built. */
const char *nn_gemm_library(void) {
    static _Thread_local char name[48];
    char version[24] = "";
    char *(*config)(void);
    if (!adamod__library_function(NULL, "openblas_get_config", &config) ||
        sscanf(config(), "OpenBLAS %23s", version) != 1)
        return "CBLAS";
    snprintf(name, sizeof name, "OpenBLAS %s", version);
    return name;
}

#else

static void tile_product(const nn_product *p) { plain_product(p); }

const char *nn_gemm_library(void) { return "plain C"; }

#endif

/* ---- tiles ---- */

typedef struct tiling {
    int64_t rows, cols;   /* of a tile */
    int64_t across, down; /* tiles */
} tiling;

static int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Parts of about equal size, a multiple of step. */
static int64_t even(int64_t n, int64_t size, int64_t step) { return parts(parts(n, parts(n, size)), step) * step; }

/* Measured with oneDNN, whose kernel is 48 columns by 8 rows. Packing a transposed operand is expensive, so the cut
 * goes across it and each part is packed once (B transposed: tall tiles, else wide ones). Cuts until there are
 * TILES, as long as a tile has work for some 20 microseconds. */
static tiling choose_tiles(const nn_product *p) {
    enum { TILES = 8 };
    const double enough = 4e6;
    int64_t rows = p->b.transposed ? 512 : 256, cols = p->b.transposed ? 256 : 512;
    tiling t;
    for (;;) {
        t.rows = even(p->m, rows, 8);
        t.cols = even(p->n, cols, 48);
        t.down = parts(p->m, t.rows);
        t.across = parts(p->n, t.cols);
        const double flops = 2.0 * (double)t.rows * (double)t.cols * (double)p->k;
        if (t.down * t.across >= TILES || flops < 2 * enough) return t;
        if (p->b.transposed ? t.cols > 48 : t.rows <= 64 && t.cols > 128) cols = t.cols / 2;
        else if (t.rows > 16) rows = t.rows / 2;
        else return t;
    }
}

/* Tiles of products of bf16 have fixed sizes, as each new shape costs time once, and are wide, as the library copies B
 * for each tile. */
static tiling choose_narrow_tiles(const nn_product *p) {
    enum { TILES = 8 };
    const double enough = 8e6;
    int64_t rows = 256, cols = NN_NARROW_COLS;
    tiling t;
    for (;;) {
        t.rows = rows;
        t.cols = even(p->n, cols, 64);
        t.down = parts(p->m, t.rows);
        t.across = parts(p->n, t.cols);
        const double flops = 2.0 * (double)t.rows * (double)t.cols * (double)p->k;
        if (t.down * t.across >= TILES || flops < 2 * enough) return t;
        if (rows > 64) rows /= 2;
        else if (t.cols > 64) cols = t.cols / 2;
        else if (rows > NN_NARROW_ROWS) rows /= 2;
        else return t;
    }
}

typedef struct products_work {
    const nn_product *products;
    int n;
    tiling tiles[NN_MAX_PRODUCTS];
} products_work;

static void bf16_tile(const nn_product *p) {
#ifdef ADAMOD_ONEDNN
    one_thread();
#endif
    nn_narrow_product(p);
}

static bool is_bf16(const nn_product *p) { return p->narrow && nn_narrow_is_stored(); }

static const float *ahead(const nn_product *p, const nn_factor *f, int64_t numbers) {
    return (const float *)(const void *)((const char *)f->data + numbers * (is_bf16(p) ? 2 : 4));
}

static void products_task(void *context, int64_t i) {
    const products_work *w = context;
    int which = 0;
    for (; i >= w->tiles[which].down * w->tiles[which].across; which++)
        i -= w->tiles[which].down * w->tiles[which].across;
    const tiling *t = &w->tiles[which];
    nn_product p = w->products[which];
    const int64_t row = i / t->across * t->rows, col = i % t->across * t->cols;
    p.m = p.m - row < t->rows ? p.m - row : t->rows;
    p.n = p.n - col < t->cols ? p.n - col : t->cols;
    p.a.data = ahead(&p, &p.a, p.a.transposed ? row : row * p.a.stride);
    p.b.data = ahead(&p, &p.b, p.b.transposed ? col * p.b.stride : col);
    p.c += row * p.ldc + col;
    if (is_bf16(&p)) bf16_tile(&p);
    else tile_product(&p);
    if (p.then) p.then(p.context, row, col, p.m, p.n);
}

/* ---- few rows ---- */

/* With at most this many rows, a product takes as long as reading B. Dot products read its rows in order, where they
 * are; a library copies B first, or reads it at half the speed of memory. */
enum { FEW_ROWS = 4 };

typedef struct few_work {
    const nn_product *p;
    const nn_vector *v;
    int64_t cols; /* of a task */
} few_work;

static bool has_few_rows(const nn_product *p) { return p->m <= FEW_ROWS && !p->a.transposed && p->b.transposed; }

static void few_task(void *context, int64_t i) {
    enum { SOME = 64 };
    const few_work *w = context;
    const nn_product *p = w->p;
    const int64_t first = i * w->cols, end = first + w->cols < p->n ? first + w->cols : p->n;
    float sums[SOME];
    for (int64_t col = first; col < end; col += SOME) {
        const int64_t n = end - col < SOME ? end - col : SOME;
        for (int64_t row = 0; row < p->m; row++) {
            w->v->dots(n, p->k, p->b.data + col * p->b.stride, p->b.stride, p->a.data + row * p->a.stride, sums);
            w->v->scale(n, sums, 1, p->c + row * p->ldc + col, p->add);
        }
    }
    if (p->then) p->then(p->context, 0, first, p->m, end - first);
}

/* Tasks of some hundred KiB of B. */
static void few_rows_product(adamod_pool *pool, const nn_product *p) {
    const int64_t most = p->k < 1024 ? 65536 / p->k : 64;
    few_work w = {p, nn_vector_choose(), even(p->n, most, 4)};
    nn_parallel(pool, parts(p->n, w.cols), few_task, &w);
}

void nn_products(adamod_pool *pool, const nn_product *products, int n) {
    nn_product some[NN_MAX_PRODUCTS];
    products_work w = {.products = some};
    int64_t tasks = 0;
    for (int i = 0; i < n; i++) {
        if (products[i].m <= 0 || products[i].n <= 0) continue;
        if (products[i].k <= 0) { /* libraries differ in what they make of that */
            clear_c(&products[i]);
            if (products[i].then) products[i].then(products[i].context, 0, 0, products[i].m, products[i].n);
            continue;
        }
        if (has_few_rows(&products[i])) {
            few_rows_product(pool, &products[i]);
            continue;
        }
        some[w.n] = products[i];
        if (!nn_narrow_pays(some[w.n].m, some[w.n].n, some[w.n].k)) some[w.n].narrow = NULL;
        w.tiles[w.n] = is_bf16(&some[w.n]) ? choose_narrow_tiles(&some[w.n]) : choose_tiles(&some[w.n]);
        tasks += w.tiles[w.n].down * w.tiles[w.n].across;
        w.n++;
    }
    nn_narrow_factors(pool, some, w.n);
    nn_parallel(pool, tasks, products_task, &w);
}
