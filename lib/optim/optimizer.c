/* The optimizer's handle: its memory, threads and statistics. Its groups of options are in groups.c, its parameters in
 * tensors.c and overlap.c, the step in step.c. */
#include "optim/optim.h"
#include "optim/optimizer.h"

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* ---- memory ---- */

/* Large arrays ask for large pages, which save the processor look-ups while it streams through them. */
static void *adamod__default_alloc(void *context, size_t size, size_t alignment) {
    (void)context;
    const size_t huge = (size_t)1 << 21;
    void *p = NULL;
    if (posix_memalign(&p, size >= huge ? huge : alignment, size)) return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (size >= huge) (void)madvise(p, size, MADV_HUGEPAGE);
#endif
    return p;
}

static void adamod__default_free(void *context, void *pointer, size_t size) {
    (void)context, (void)size;
    free(pointer);
}

void *adamod__alloc(const adamod_optimizer *opt, size_t bytes) {
    return opt->allocator.alloc(opt->allocator.context, bytes, 64);
}

void adamod__free(const adamod_optimizer *opt, void *pointer, size_t bytes) {
    if (pointer) opt->allocator.free(opt->allocator.context, pointer, bytes);
}

/* ---- what its files share ---- */

adamod_status adamod__null_handle(void) { return adamod__refuse("the optimizer is NULL"); }

adamod_status adamod__refresh(const adamod_optimizer *opt) {
    return adamod__device_pull((adamod_optimizer *)(uintptr_t)opt);
}

void adamod__drop_pool(adamod_optimizer *opt) {
    if (opt->own_pool) adamod_pool_free(opt->pool);
    opt->pool = NULL;
    opt->own_pool = false;
}

/* ---- create and free ---- */

adamod_status adamod_create_with(adamod_optimizer **out, const char *rule_name, const adamod_allocator *allocator) {
    if (!out || (allocator && (!allocator->alloc || !allocator->free))) {
        return adamod__refuse("create: %s is NULL", !out ? "out" : "a function of the allocator");
    }
    const rule *r = adamod__find_rule(rule_name);
    if (!r) return rule_name ? ADAMOD_ERROR_NAME : ADAMOD_ERROR_ARGUMENT;
    const kernel_set *kernels = adamod__kernels_choose();
    if (!kernels) return ADAMOD_ERROR_NAME;
    const adamod_allocator standard = {adamod__default_alloc, adamod__default_free, NULL};
    const adamod_allocator a = allocator ? *allocator : standard;
    adamod_optimizer *opt = a.alloc(a.context, sizeof *opt, 64);
    group *groups = calloc(1, sizeof *groups);
    if (!opt || !groups) {
        if (opt) a.free(a.context, opt, sizeof *opt);
        free(groups);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for an optimizer");
    }
    *opt =
        (adamod_optimizer){.rule = r, .kernels = kernels, .allocator = a, .groups = groups, .n_groups = 1, .norm = -1};
    adamod__default_options(r, groups[0].options);
    const adamod__arithmetic before = adamod__enter_arithmetic();
    adamod__stats_init(&opt->stats);
    adamod__leave_arithmetic(before);
    *out = opt;
    return ADAMOD_OK;
}

adamod_status adamod_create(adamod_optimizer **out, const char *rule_name) {
    return adamod_create_with(out, rule_name, NULL);
}

void adamod_free(adamod_optimizer *opt) {
    if (!opt) return;
    adamod__drop_pool(opt);
    adamod__forget_kept(opt);
    for (int64_t i = 0; i < opt->n; i++) {
        adamod__free_states(opt, &opt->tensors[i]);
        free(opt->tensors[i].name);
    }
    adamod__device_close(opt);
    for (int g = 0; g < opt->n_groups; g++) {
        for (int o = 0; o < OPT_COUNT; o++) adamod_schedule_free(opt->groups[g].schedule[o]);
    }
    free(opt->groups);
    free(opt->tensors);
    free(opt->items);
    free(opt->names);
    adamod__ranges_free(&opt->ranges);
    free(opt->stats.groups);
    pthread_mutex_destroy(&opt->stats.lock);
    adamod__work_free(&opt->space);
    const adamod_allocator a = opt->allocator;
    a.free(a.context, opt, sizeof *opt);
}

/* ---- threads, statistics, memory ---- */

const char *adamod_isa(const adamod_optimizer *opt) { return !opt ? NULL : opt->device ? "cuda" : opt->kernels->name; }

adamod_status adamod_set_pool(adamod_optimizer *opt, adamod_pool *pool) {
    if (!opt) return adamod__null_handle();
    adamod__drop_pool(opt);
    opt->pool = pool;
    return ADAMOD_OK;
}

adamod_status adamod_collect(adamod_optimizer *opt, int on) {
    if (!opt) return adamod__null_handle();
    if (on && !opt->stats.groups) {
        opt->stats.groups = adamod__resize(NULL, (size_t)opt->n_groups, sizeof *opt->stats.groups);
        if (!opt->stats.groups) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for statistics");
        opt->stats.n_groups = opt->n_groups;
    }
    if (!on) {
        free(opt->stats.groups);
        free(opt->space.caller.counts);
        opt->stats.groups = NULL;
        opt->space.caller.counts = NULL;
        opt->stats.n_groups = 0;
        opt->stats.filled = false;
    }
    const bool before = opt->collect;
    opt->collect = on != 0;
    return before ? ADAMOD_OK : adamod__device_collect(opt);
}

adamod_status adamod_get_statistics(const adamod_optimizer *opt, int g, adamod_statistics *out) {
    if (!opt) return adamod__null_handle();
    if (!out) return adamod__refuse("out is NULL");
    ADAMOD__TRY(adamod__check_group_or_all(opt, g));
    ADAMOD__TRY(adamod__device_statistics((adamod_optimizer *)(uintptr_t)opt));
    if (!opt->stats.filled) {
        return adamod__fail(ADAMOD_ERROR_ORDER, "no statistics: switch them on with adamod_collect, then step");
    }
    const adamod__arithmetic before = adamod__enter_arithmetic();
    adamod__stats_result(&opt->stats, g, out);
    adamod__leave_arithmetic(before);
    return ADAMOD_OK;
}

void adamod_memory(const adamod_optimizer *opt, size_t *states, size_t *other) {
    if (states) *states = opt ? opt->state_bytes : 0;
    if (!other) return;
    *other = 0;
    if (!opt) return;
    const work_space *s = &opt->space;
    *other = sizeof *opt + (size_t)opt->n_groups * sizeof *opt->groups +
             (size_t)opt->capacity * (sizeof *opt->tensors + sizeof *opt->items + 2 * sizeof *opt->names) +
             (size_t)opt->ranges.capacity * sizeof *opt->ranges.nodes +
             s->items * (sizeof *s->first_chunk + sizeof *s->coef_of) + s->n_coefs * sizeof *s->coefs +
             s->chunks * 2 * sizeof *s->partial + (size_t)opt->stats.n_groups * sizeof *opt->stats.groups +
             (s->caller.buffer ? sizeof *s->caller.buffer : 0) + (s->caller.counts ? sizeof *s->caller.counts : 0);
    for (int64_t i = 0; i < opt->n; i++) *other += strlen(opt->tensors[i].name) + 1;
}

bool adamod__couples_arrays(const adamod_optimizer *opt) { return opt->rule->couples_arrays; }
