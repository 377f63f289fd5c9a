/* The tables that kernels read: tiles, chunks, rows and strips of all tensors, in one block of the device's memory. */
#include "kernels/cuda/cuda_host.h"

#include <stdlib.h>
#include <string.h>

static int64_t pieces_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* What is counted for each tensor. A table has, for each tensor, the sum over the tensors before it. Rows and strips
 * are counted only if the driver has matrices. */
enum { CHUNKS, ELEMENTS, ROW_CHUNKS, ROWS, STRIPS, COUNTED };

/* The tables on the host, before they are copied. */
struct tables {
    piece *tiles, *chunks; /* row chunks follow the chunks */
    int64_t *first[COUNTED], n[COUNTED], n_tiles;
};

static void free_tables(tables *t) {
    free(t->tiles);
    free(t->chunks);
    for (int c = 0; c < COUNTED; c++) free(t->first[c]);
}

static void add_pieces(piece *to, int64_t *n, int64_t tensor, int64_t pieces) {
    for (int64_t i = 0; i < pieces; i++) to[(*n)++] = piece{(uint32_t)tensor, (uint32_t)i};
}

static void count_tables(const adamod__device *d, const device_layout *l, tables *t) {
    const bool matrices = d->driver && d->driver->matrices;
    for (int64_t i = 0; i < l->n; i++) {
        const device_tensor *x = &l->tensors[i];
        const int64_t counts[COUNTED] = {pieces_of(x->count, l->chunk), x->count,
                                         matrices ? pieces_of(x->count, row_chunk(x, l->chunk)) : 0,
                                         matrices ? rows_of(x) : 0, matrices ? strips_of(x) : 0};
        for (int c = 0; c < COUNTED; c++) t->first[c][i + 1] = t->n[c] += counts[c];
        t->n_tiles += pieces_of(x->count, cuda_tile(d->rule, d->tuning, x));
    }
}

static bool make_tables(const adamod__device *d, const device_layout *l, tables *t) {
    for (int c = 0; c < COUNTED; c++) {
        if (!(t->first[c] = (int64_t *)calloc((size_t)l->n + 1, sizeof(int64_t)))) return false;
    }
    count_tables(d, l, t);
    t->tiles = (piece *)calloc((size_t)t->n_tiles + 1, sizeof(piece));
    t->chunks = (piece *)calloc((size_t)(t->n[CHUNKS] + t->n[ROW_CHUNKS]) + 1, sizeof(piece));
    if (!t->tiles || !t->chunks) return false;
    int64_t at = 0;
    for (int which = CHUNKS; which <= ROW_CHUNKS; which += ROW_CHUNKS - CHUNKS) {
        const int64_t *first = t->first[which];
        for (int64_t i = 0; i < l->n; i++) add_pieces(t->chunks, &at, i, first[i + 1] - first[i]);
    }
    return true;
}

/* One class for each variant, type of computation and kind that occurs; the tiles are sorted by it. */
static adamod_status make_classes(adamod__device *d, const device_layout *l, tables *t, const piece *device_tiles) {
    enum { MOST_VARIANTS = 8 };
    enum { KEYS = 2 * KINDS * MOST_VARIANTS };
    update_class *classes = (update_class *)calloc(KEYS, sizeof *classes);
    int64_t tiles = 0;
    if (!classes) return no_memory();
    free(d->classes);
    d->classes = classes;
    d->n_classes = 0;
    for (int key = 0; key < KEYS; key++) {
        update_class c = {};
        c.variant = key / (2 * KINDS);
        c.f64 = key / KINDS % 2;
        c.kind = key % KINDS;
        c.tiles = device_tiles + tiles;
        if (d->driver && (d->driver->takes >> c.variant & 1)) continue;
        const int64_t before = tiles;
        for (int64_t i = 0; i < l->n; i++) {
            const device_tensor *x = &l->tensors[i];
            if (x->variant != c.variant || (x->p_type == ADAMOD_F64) != (c.f64 != 0)) continue;
            if (cuda_kind(d->rule, x) != c.kind) continue;
            add_pieces(t->tiles, &tiles, i, pieces_of(x->count, cuda_tile(d->rule, d->tuning, x)));
        }
        c.n_tiles = tiles - before;
        if (c.n_tiles == 0) continue;
        TRY(d, cuda_choose(d->rule, d->tuning, d->processors, &c));
        c.early = d->overlaps && d->n_classes == 0 && !d->driver; /* a driver's launches would come between */
        classes[d->n_classes++] = c;
    }
    return ADAMOD_OK;
}

/* The device's tables, within base. */
static size_t place(adamod__device *d, const device_layout *l, const tables *t, char *base, view *v, piece **tiles) {
    bump b = {base, 0};
    const int64_t most_chunks = t->n[CHUNKS] > t->n[ROW_CHUNKS] ? t->n[CHUNKS] : t->n[ROW_CHUNKS];
    v->tensors = b.take<device_tensor>(l->n);
    v->now = b.take<array_step>(l->n);
    v->steps = b.take<int64_t>(l->n);
    v->groups = b.take<device_group>(l->n_groups);
    v->effective = b.take<double>((int64_t)l->n_groups * OPT_COUNT);
    v->base_lr = b.take<double>(l->n_groups);
    v->chunks = b.take<piece>(t->n[CHUNKS]);
    v->partial = b.take<double>(2 * most_chunks);
    v->largest = b.take<double>(t->n[CHUNKS]);
    v->row_chunks = b.take<piece>(t->n[ROW_CHUNKS]);
    const int64_t **const firsts[COUNTED] = {&v->first_chunk, &v->first_element, &v->first_row_chunk, &v->first_row,
                                             &v->first_strip};
    for (int c = 0; c < COUNTED; c++) *firsts[c] = b.take<int64_t>(l->n + 1);
    v->block_sums = d->driver ? b.take<double>(2 * (t->n[ELEMENTS] / BLOCK + most_chunks + 1)) : NULL;
    v->workspace = d->workspace;
    *tiles = b.take<piece>(t->n_tiles);
    v->n = l->n;
    v->n_chunks = t->n[CHUNKS];
    v->chunk = l->chunk;
    v->n_groups = l->n_groups;
    v->rule = d->rule;
    v->n_row_chunks = t->n[ROW_CHUNKS];
    v->n_strips = t->n[STRIPS];
    v->shared = d->shared;
    v->mirror = d->mirror;
    v->limits = d->limits;
    v->edge = d->edge;
    v->bin = d->bin;
    return b.used;
}

template <class T> static adamod_status upload(adamod__device *d, const T *to, const T *from, int64_t n) {
    return CALL(
        d, cudaMemcpyAsync((void *)(uintptr_t)to, from, (size_t)n * sizeof *to, cudaMemcpyHostToDevice, d->stream));
}

static adamod_status upload_tables(adamod__device *d, const device_layout *l, const tables *t, const view *v,
                                   const piece *tiles) {
    const int64_t *const firsts[COUNTED] = {v->first_chunk, v->first_element, v->first_row_chunk, v->first_row,
                                            v->first_strip};
    adamod_status status = upload(d, v->tensors, (const device_tensor *)d->tensors, l->n);
    if (!status) status = upload(d, v->chunks, (const piece *)t->chunks, t->n[CHUNKS]);
    if (!status) status = upload(d, v->row_chunks, (const piece *)t->chunks + t->n[CHUNKS], t->n[ROW_CHUNKS]);
    if (!status) status = upload(d, tiles, (const piece *)t->tiles, t->n_tiles);
    for (int c = 0; !status && c < COUNTED; c++) status = upload(d, firsts[c], (const int64_t *)t->first[c], l->n + 1);
    if (status) return status;
    return CALL(d, cudaStreamSynchronize(d->stream));
}

static adamod_status reserve_workspace(adamod__device *d, int64_t bytes) {
    void *grown;
    if (bytes <= d->workspace_bytes) return ADAMOD_OK;
    const adamod_status status = allocate(d, (size_t)bytes, &grown);
    if (status) return status;
    keep(d, d->workspace);
    d->workspace = grown;
    d->workspace_bytes = bytes;
    return ADAMOD_OK;
}

static adamod_status reserve_groups(adamod__device *d, int n) {
    device_group *groups = (device_group *)calloc((size_t)n + 1, sizeof *groups);
    if (!groups) return no_memory();
    free(d->groups);
    d->groups = groups;
    return ADAMOD_OK;
}

static adamod_status lay_out_tables(adamod__device *d, const device_layout *l, tables *t) {
    if (!d->driver || d->driver == &cuda_caution_driver) d->driver = l->cautious ? &cuda_caution_driver : NULL;
    const int64_t workspace = d->driver && d->driver->workspace ? d->driver->workspace(l) : 0;
    adamod_status status = reserve_workspace(d, workspace);
    if (status || (status = reserve_groups(d, l->n_groups))) return status;
    if (!make_tables(d, l, t)) return no_memory();
    device_tensor *tensors = (device_tensor *)malloc((size_t)l->n * sizeof *tensors);
    if (!tensors) return no_memory();
    memcpy(tensors, l->tensors, (size_t)l->n * sizeof *tensors);
    for (int64_t i = 0; i < l->n; i++) {
        tensors[i].path = cuda_path(&tensors[i]);
        if (cuda_has_kernel(d->rule, &tensors[i])) continue;
        free(tensors);
        return fail(ADAMOD_ERROR_DEVICE, "cuda: this rule has no kernel for states in 8 bits");
    }
    free(d->tensors);
    d->tensors = tensors;
    view v = {};
    piece *tiles;
    void *arena;
    const size_t bytes = place(d, l, t, NULL, &v, &tiles);
    if ((status = allocate(d, bytes, &arena))) return status;
    keep(d, d->arena);
    d->arena = arena;
    TRY(d, cudaMemsetAsync(arena, 0, bytes, d->stream));
    place(d, l, t, (char *)arena, &v, &tiles);
    if ((status = make_classes(d, l, t, tiles)) || (status = upload_tables(d, l, t, &v, tiles))) return status;
    d->v = v;
    d->v.workspace_bytes = workspace;
    keep(d, d->counts); /* the next step that collects makes new ones */
    d->counts = NULL;
    d->dirty_first = l->n;
    d->dirty_last = -1;
    free(d->chunk_list);
    d->chunk_list = t->chunks;
    d->n_list = t->n[CHUNKS] + t->n[ROW_CHUNKS];
    t->chunks = NULL;
    return ADAMOD_OK;
}

adamod_status lay_out(adamod__device *d, const device_layout *l) {
    device_guard guard(d->index);
    tables t = {};
    const adamod_status status = lay_out_tables(d, l, &t);
    free_tables(&t);
    return status;
}
