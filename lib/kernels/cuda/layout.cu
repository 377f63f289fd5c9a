/* The tables that kernels read: tiles, chunks, rows and strips of all tensors, in one block of the device's memory. */
#include "kernels/cuda/cuda_host.h"

#include <stdlib.h>
#include <string.h>

static int64_t pieces_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* The tables on the host, before they are copied. */
struct tables {
    piece *tiles, *chunks, *row_chunks; /* the latter behind the chunks */
    int64_t *first_chunk, *first_element, *first_row_chunk, *first_row, *first_strip;
    int64_t n_tiles, n_chunks, n_elements, n_row_chunks, n_rows, n_strips;
};

static void free_tables(tables *t) {
    free(t->tiles);
    free(t->chunks);
    free(t->first_chunk);
    free(t->first_element);
    free(t->first_row_chunk);
    free(t->first_row);
    free(t->first_strip);
}

static void add_pieces(piece *to, int64_t *n, int64_t tensor, int64_t pieces) {
    for (int64_t i = 0; i < pieces; i++) to[(*n)++] = piece{(uint32_t)tensor, (uint32_t)i};
}

static void count_tables(const adamod__device *d, const device_layout *l, tables *t) {
    for (int64_t i = 0; i < l->n; i++) {
        const device_tensor *x = &l->tensors[i];
        t->first_chunk[i] = t->n_chunks;
        t->first_element[i] = t->n_elements;
        t->first_row_chunk[i] = t->n_row_chunks;
        t->first_row[i] = t->n_rows;
        t->first_strip[i] = t->n_strips;
        t->n_tiles += pieces_of(x->count, cuda_tile(d->rule, d->tuning, x));
        t->n_chunks += pieces_of(x->count, l->chunk);
        t->n_elements += x->count;
        if (!d->driver || !d->driver->matrices) continue;
        t->n_row_chunks += pieces_of(x->count, row_chunk(x, l->chunk));
        t->n_rows += rows_of(x);
        t->n_strips += strips_of(x);
    }
    t->first_chunk[l->n] = t->n_chunks;
    t->first_element[l->n] = t->n_elements;
    t->first_row_chunk[l->n] = t->n_row_chunks;
    t->first_row[l->n] = t->n_rows;
    t->first_strip[l->n] = t->n_strips;
}

static bool make_tables(const adamod__device *d, const device_layout *l, tables *t) {
    int64_t **const firsts[] = {&t->first_chunk, &t->first_element, &t->first_row_chunk, &t->first_row,
                                &t->first_strip};
    for (int i = 0; i < 5; i++) {
        if (!(*firsts[i] = (int64_t *)calloc((size_t)l->n + 1, sizeof(int64_t)))) return false;
    }
    count_tables(d, l, t);
    t->tiles = (piece *)calloc((size_t)t->n_tiles + 1, sizeof(piece));
    t->chunks = (piece *)calloc((size_t)(t->n_chunks + t->n_row_chunks) + 1, sizeof(piece));
    if (!t->tiles || !t->chunks) return false;
    t->row_chunks = t->chunks + t->n_chunks;
    int64_t chunks = 0, row_chunks = 0;
    for (int64_t i = 0; i < l->n; i++) {
        add_pieces(t->chunks, &chunks, i, t->first_chunk[i + 1] - t->first_chunk[i]);
        add_pieces(t->row_chunks, &row_chunks, i, t->first_row_chunk[i + 1] - t->first_row_chunk[i]);
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
        c.early = d->overlaps && d->n_classes == 0 && !d->driver; /* whose launches come between */
        classes[d->n_classes++] = c;
    }
    return ADAMOD_OK;
}

/* The device's tables, within base. */
static size_t place(adamod__device *d, const device_layout *l, const tables *t, char *base, view *v, piece **tiles) {
    bump b = {base, 0};
    const int64_t most_chunks = t->n_chunks > t->n_row_chunks ? t->n_chunks : t->n_row_chunks;
    v->tensors = b.take<device_tensor>(l->n);
    v->now = b.take<array_step>(l->n);
    v->steps = b.take<int64_t>(l->n);
    v->groups = b.take<device_group>(l->n_groups);
    v->effective = b.take<double>((int64_t)l->n_groups * OPT_COUNT);
    v->base_lr = b.take<double>(l->n_groups);
    v->chunks = b.take<piece>(t->n_chunks);
    v->first_chunk = b.take<int64_t>(l->n + 1);
    v->partial = b.take<double>(2 * most_chunks);
    v->largest = b.take<double>(t->n_chunks);
    v->row_chunks = b.take<piece>(t->n_row_chunks);
    v->first_row_chunk = b.take<int64_t>(l->n + 1);
    v->first_row = b.take<int64_t>(l->n + 1);
    v->first_strip = b.take<int64_t>(l->n + 1);
    v->first_element = b.take<int64_t>(l->n + 1);
    v->block_sums = d->driver ? b.take<double>(2 * (t->n_elements / BLOCK + most_chunks + 1)) : NULL;
    v->workspace = d->workspace;
    *tiles = b.take<piece>(t->n_tiles);
    v->n = l->n;
    v->n_chunks = t->n_chunks;
    v->chunk = l->chunk;
    v->n_groups = l->n_groups;
    v->rule = d->rule;
    v->n_row_chunks = t->n_row_chunks;
    v->n_strips = t->n_strips;
    v->shared = d->shared;
    v->mirror = d->mirror;
    v->limits = d->limits;
    v->edge = d->edge;
    v->bin = d->bin;
    return b.used;
}

static adamod_status upload(adamod__device *d, const void *to, const void *from, size_t bytes) {
    TRY(d, cudaMemcpyAsync((void *)(uintptr_t)to, from, bytes, cudaMemcpyHostToDevice, d->stream));
    return ADAMOD_OK;
}

static adamod_status upload_tables(adamod__device *d, const device_layout *l, const tables *t, const view *v,
                                   piece *tiles) {
    const struct {
        const void *to, *from;
        size_t bytes;
    } parts[] = {
        {v->tensors, d->tensors, (size_t)l->n * sizeof *d->tensors},
        {v->chunks, t->chunks, (size_t)t->n_chunks * sizeof(piece)},
        {v->first_chunk, t->first_chunk, (size_t)(l->n + 1) * sizeof(int64_t)},
        {v->row_chunks, t->row_chunks, (size_t)t->n_row_chunks * sizeof(piece)},
        {v->first_row_chunk, t->first_row_chunk, (size_t)(l->n + 1) * sizeof(int64_t)},
        {v->first_row, t->first_row, (size_t)(l->n + 1) * sizeof(int64_t)},
        {v->first_strip, t->first_strip, (size_t)(l->n + 1) * sizeof(int64_t)},
        {v->first_element, t->first_element, (size_t)(l->n + 1) * sizeof(int64_t)},
        {tiles, t->tiles, (size_t)t->n_tiles * sizeof(piece)},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const adamod_status status = upload(d, parts[i].to, parts[i].from, parts[i].bytes);
        if (status) return status;
    }
    TRY(d, cudaStreamSynchronize(d->stream));
    return ADAMOD_OK;
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
    keep(d, d->counts); /* made anew by the next step that needs them */
    d->counts = NULL;
    d->dirty_first = l->n;
    d->dirty_last = -1;
    free(d->chunk_list);
    d->chunk_list = t->chunks;
    d->n_list = t->n_chunks + t->n_row_chunks;
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
