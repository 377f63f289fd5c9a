#include "optim/matrices.h"

typedef struct matrices {
    work_context base;
    const matrix_driver *driver;
} matrices;

static bool adamod__is_small(const adamod_span *x) { return x->count <= 16384; }

static bool adamod__is_taken(const matrix_driver *d, const work_item *item) {
    return item->span->grad && item->span->ndim >= 2 && item->span->count > 0 && (!d->takes || d->takes(item));
}

/* The workspace: offsets of the small matrices, the small matrices, then room for the largest of the others. */
size_t adamod__matrices_workspace(const work *w) {
    const matrix_driver *d = w->rule->driver->matrices;
    size_t small = adamod__aligned(w->n * sizeof(size_t)), large = 0;
    for (size_t i = 0; i < w->n; i++) {
        const work_item *item = &w->items[i];
        if (!adamod__is_taken(d, item)) continue;
        const size_t bytes = d->bytes(w, item);
        if (adamod__is_small(item->span)) small = adamod__more_bytes(small, 1, bytes);
        else large = bytes > large ? bytes : large;
    }
    return large > 0 ? adamod__more_bytes(small, 1, large) : small;
}

static void adamod__small_task(void *context, int64_t i, int thread) {
    const matrices *m = context;
    const work_item *item = &m->base.w->items[i];
    if (!adamod__is_taken(m->driver, item) || !adamod__is_small(item->span)) return;
    char *workspace = m->base.space->workspace;
    m->driver->update(&m->base, (size_t)i, workspace + ((size_t *)m->base.space->workspace)[i], NULL, thread);
}

void adamod__matrices_run(const work *w, work_space *space) {
    const matrix_driver *d = w->rule->driver->matrices;
    matrices m = {{w, space}, d};
    int64_t chunks = 0;
    size_t small = adamod__aligned(w->n * sizeof(size_t)), *place = space->workspace;
    for (size_t i = 0; i < w->n; i++) {
        const work_item *item = &w->items[i];
        space->first_chunk[i] = chunks;
        if (!adamod__is_taken(d, item)) continue;
        chunks += (item->span->count + space->chunk - 1) / space->chunk;
        if (!adamod__is_small(item->span)) continue;
        place[i] = small;
        small += d->bytes(w, item);
    }
    space->first_chunk[w->n] = chunks;
    adamod__pool_run(w->pool, (int64_t)w->n, adamod__small_task, &m);
    for (size_t i = 0; i < w->n; i++) {
        const work_item *item = &w->items[i];
        if (!adamod__is_taken(d, item) || adamod__is_small(item->span)) continue;
        d->update(&m.base, i, (char *)space->workspace + small, w->pool, 0);
    }
    adamod__add_partial(w, space);
}
