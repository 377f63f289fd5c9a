/* An allocator that counts: see counting_allocator.h. */
#include "counting_allocator.h"

#include <stdlib.h>
#include <string.h>

_Thread_local volatile long countdown;

bool fails_now(void) { return countdown > 0 && --countdown == 0; }

static void *counting_alloc(void *context, size_t size, size_t alignment) {
    allocation_counts *a = context;
    void *p = NULL;
    a->calls++;
    if (fails_now()) return NULL;
    if (size == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) a->errors++;
    const long keep = countdown;
    countdown = 0; /* this one was counted already */
    if (posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment, size)) p = NULL;
    countdown = keep;
    if (!p) return NULL;
    memset(p, 0xa5, size); /* the library must not count on zeros */
    for (int i = 0; i < MOST_LIVE; i++) {
        if (a->pointer[i]) continue;
        a->pointer[i] = p;
        a->size[i] = size;
        a->bytes += size;
        a->live++;
        return p;
    }
    abort();
}

static void counting_free(void *context, void *p, size_t size) {
    allocation_counts *a = context;
    for (int i = 0; i < MOST_LIVE; i++) {
        if (a->pointer[i] != p) continue;
        a->errors += a->size[i] != size;
        a->bytes -= a->size[i];
        a->live--;
        a->pointer[i] = NULL;
        free(p);
        return;
    }
    a->errors++;
}

adamod_allocator counting_allocator(allocation_counts *a) {
    return (adamod_allocator){counting_alloc, counting_free, a};
}
