#include "optim/ranges.h"
#include "optim/internal.h"
#include "kernels/half.h"

#include <stdlib.h>

/* Sizes are not checked against real memory, so an end may overflow. */
static uintptr_t adamod__range_end(const void *data, size_t bytes) {
    const uintptr_t begin = (uintptr_t)data;
    return begin + bytes < begin ? UINTPTR_MAX : begin + bytes;
}

static uint64_t adamod__priority(int32_t node) { return adamod__mix64((uint64_t)node); }

/* The order of ranges; no two are equal. */
static bool adamod__range_before(const adamod__range *a, const adamod__range *b) {
    if (a->begin != b->begin) return a->begin < b->begin;
    return a->owner != b->owner ? a->owner < b->owner : a->order < b->order;
}

/* Call after the subtrees of a node have changed. */
static void adamod__range_update(adamod__range *nodes, int32_t i) {
    adamod__range *n = &nodes[i];
    n->reach = n->end;
    n->reach_written = n->written ? n->end : 0;
    const int32_t below[2] = {n->left, n->right};
    for (int k = 0; k < 2; k++) { /* node 0 reaches nowhere */
        const adamod__range *b = &nodes[below[k]];
        if (b->reach > n->reach) n->reach = b->reach;
        if (b->reach_written > n->reach_written) n->reach_written = b->reach_written;
    }
}

/* Splits a subtree into the nodes before and after a range. */
static void adamod__ranges_split(adamod__range *nodes, int32_t at, const adamod__range *by, int32_t *before,
                                 int32_t *after) {
    if (!at) {
        *before = *after = 0;
        return;
    }
    if (adamod__range_before(&nodes[at], by)) {
        adamod__ranges_split(nodes, nodes[at].right, by, &nodes[at].right, after);
        *before = at;
    } else {
        adamod__ranges_split(nodes, nodes[at].left, by, before, &nodes[at].left);
        *after = at;
    }
    adamod__range_update(nodes, at);
}

/* Joins two subtrees; all nodes of before come before those of after. */
static int32_t adamod__ranges_join(adamod__range *nodes, int32_t before, int32_t after) {
    if (!before || !after) return before ? before : after;
    const bool first = adamod__priority(before) > adamod__priority(after);
    const int32_t top = first ? before : after;
    if (first) nodes[top].right = adamod__ranges_join(nodes, nodes[top].right, after);
    else nodes[top].left = adamod__ranges_join(nodes, before, nodes[top].left);
    adamod__range_update(nodes, top);
    return top;
}

static int32_t adamod__ranges_insert(adamod__range *nodes, int32_t at, int32_t node) {
    if (at && adamod__priority(at) > adamod__priority(node)) {
        int32_t *side = adamod__range_before(&nodes[node], &nodes[at]) ? &nodes[at].left : &nodes[at].right;
        *side = adamod__ranges_insert(nodes, *side, node);
        adamod__range_update(nodes, at);
        return at;
    }
    adamod__ranges_split(nodes, at, &nodes[node], &nodes[node].left, &nodes[node].right);
    adamod__range_update(nodes, node);
    return node;
}

static int32_t adamod__ranges_erase(adamod__ranges *r, int32_t at, const adamod__range *key) {
    if (!at) return 0;
    adamod__range *n = &r->nodes[at];
    if (adamod__range_before(key, n)) {
        n->left = adamod__ranges_erase(r, n->left, key);
    } else if (adamod__range_before(n, key)) {
        n->right = adamod__ranges_erase(r, n->right, key);
    } else {
        const int32_t joined = adamod__ranges_join(r->nodes, n->left, n->right);
        n->left = r->unused;
        r->unused = at;
        return joined;
    }
    adamod__range_update(r->nodes, at);
    return at;
}

bool adamod__ranges_reserve(adamod__ranges *r, size_t more) {
    const size_t needed = (size_t)r->used + more + 1; /* those that were removed come on top */
    if (needed <= (size_t)r->capacity) return true;
    const size_t half = (size_t)r->capacity / 2, room = needed > r->capacity + half ? needed : r->capacity + half;
    adamod__range *grown = room <= INT32_MAX ? adamod__resize(r->nodes, room, sizeof *grown) : NULL;
    if (!grown) return false;
    if (!r->nodes) grown[0] = (adamod__range){0};
    r->nodes = grown;
    r->capacity = (int32_t)room;
    return true;
}

void adamod__ranges_add(adamod__ranges *r, const void *data, size_t bytes, int64_t owner, int order, bool written) {
    if (!data || !bytes) return;
    int32_t node = r->unused;
    if (node) r->unused = r->nodes[node].left;
    else node = ++r->used;
    r->nodes[node] = (adamod__range){.begin = (uintptr_t)data,
                                     .end = adamod__range_end(data, bytes),
                                     .owner = (int32_t)owner,
                                     .order = order,
                                     .written = written};
    r->root = adamod__ranges_insert(r->nodes, r->root, node);
}

void adamod__ranges_remove(adamod__ranges *r, const void *data, size_t bytes, int64_t owner, int order) {
    if (!data || !bytes) return;
    const adamod__range key = {.begin = (uintptr_t)data, .owner = (int32_t)owner, .order = order};
    r->root = adamod__ranges_erase(r, r->root, &key);
}

const adamod__range *adamod__ranges_find(const adamod__ranges *r, const void *data, size_t bytes, bool written) {
    const uintptr_t begin = (uintptr_t)data, end = adamod__range_end(data, bytes);
    if (!data || !bytes) return NULL;
    for (int32_t at = r->root; at;) {
        const adamod__range *n = &r->nodes[at], *left = &r->nodes[n->left];
        if ((written || n->written) && n->begin < end && begin < n->end) return n;
        /* If a left range reaches beyond begin but none overlaps, all of those, and all on the right, begin after end. */
        at = (written ? left->reach : left->reach_written) > begin ? n->left : n->right;
    }
    return NULL;
}

void adamod__ranges_clear(adamod__ranges *r) { r->root = r->used = r->unused = 0; }

void adamod__ranges_free(adamod__ranges *r) {
    free(r->nodes);
    *r = (adamod__ranges){0};
}
