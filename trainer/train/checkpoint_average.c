#include "train/checkpoint_parts.h"

#include "core/error.h"

#include <stdlib.h>
#include <string.h>

/* The checkpoints to average; all must have the parameters of the last. */
typedef struct averaging {
    const char *const *paths;
    adamod__st_file *files;
    size_t n;
    const char *path;
} averaging;

static int open_all(averaging *a, const char *const *paths, size_t n) {
    checkpoint_meta unused;
    if (!n) return adamod__refuse("%s: no checkpoints to average", a->path);
    a->paths = paths;
    a->files = calloc(n, sizeof *a->files);
    if (!a->files) return checkpoint_fail_memory(a->path);
    for (; a->n < n; a->n++) {
        if (adamod__st_open_within(paths[a->n], CHECKPOINT_MOST_HEADER, &a->files[a->n])) return -1;
        if (checkpoint_read_metadata(&a->files[a->n], &unused, paths[a->n]))
            return a->n++, -1; /* this one is open already */
    }
    return 0;
}

static const adamod__st_file *last_of(const averaging *a) { return &a->files[a->n - 1]; }

static size_t count_params(const adamod__st_file *file) {
    size_t n = 0;
    for (size_t i = 0; i < file->n_entries; i++) n += checkpoint_is_param(file->entries[i].name);
    return n;
}

static int check_same(const averaging *a) {
    const adamod__st_file *last = last_of(a);
    for (size_t i = 0; i < last->n_entries; i++) {
        const adamod__st_entry *x = &last->entries[i];
        if (!checkpoint_is_state(x->name) || x->dtype == ADAMOD__ST_F32) continue;
        return adamod__refuse("%s: '%.80s' is %s, expected F32", a->paths[a->n - 1], x->name,
                              adamod__st_dtype_name(x->dtype));
    }
    for (size_t f = 0; f < a->n; f++) {
        size_t same = 0;
        for (size_t i = 0; i < last->n_entries; i++) {
            const adamod__st_entry *x = &last->entries[i], *y = adamod__st_find(&a->files[f], x->name);
            if (!checkpoint_is_param(x->name)) continue;
            same += y && y->dtype == ADAMOD__ST_F32 && x->dtype == y->dtype && x->ndim == y->ndim &&
                    memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) == 0;
        }
        if (same == count_params(last) && same == count_params(&a->files[f])) continue;
        return adamod__refuse("%s: its parameters differ from those of %s", a->paths[f], a->paths[a->n - 1]);
    }
    return 0;
}

/* Averages the evaluation weights of a parameter. A persistent state is the last one's, as a mean of hidden states is
 * meaningless. sum and part have room for it. */
static int average_one(const averaging *a, const adamod__st_entry *e, double *sum, float *part, float *out) {
    const size_t n = (size_t)(e->end - e->begin) / sizeof *out;
    const size_t first = checkpoint_is_state(e->name) ? a->n - 1 : 0;
    memset(sum, 0, n * sizeof *sum);
    for (size_t f = first; f < a->n; f++) {
        const adamod__st_entry *x = adamod__st_find(&a->files[f], e->name);
        if (adamod__st_read(&a->files[f], x, part)) return -1;
        if (!checkpoint_is_state(e->name) && checkpoint_to_evaluate_with(&a->files[f], e->name, part, n, a->path))
            return -1;
        for (size_t i = 0; i < n; i++) sum[i] += (double)part[i];
    }
    for (size_t i = 0; i < n; i++) out[i] = (float)(sum[i] / (double)(a->n - first));
    return 0;
}

/* Averages all parameters into means, end to end, and lists them in tensors. */
static int average_each(const averaging *a, adamod__st_tensor *tensors, float *means) {
    const adamod__st_file *last = last_of(a);
    uint64_t largest = 0;
    for (size_t i = 0; i < last->n_entries; i++) {
        const uint64_t bytes = last->entries[i].end - last->entries[i].begin;
        if (!checkpoint_is_optimizers(last->entries[i].name) && bytes > largest) largest = bytes;
    }
    double *sum = malloc(2 * largest + 1);
    float *part = malloc(largest + 1);
    int status = sum && part ? 0 : -1;
    if (status) (void)checkpoint_fail_memory(a->path);
    for (size_t i = 0; !status && i < last->n_entries; i++) {
        const adamod__st_entry *e = &last->entries[i];
        if (checkpoint_is_optimizers(e->name)) continue;
        *tensors = (adamod__st_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim, .data = means};
        memcpy(tensors->shape, e->shape, sizeof tensors->shape);
        status = average_one(a, e, sum, part, means);
        tensors++;
        means += (e->end - e->begin) / sizeof *means;
    }
    free(sum);
    free(part);
    return status;
}

/* Copies the metadata of the last without the optimizer's; returns how many. */
static size_t copy_metadata(const averaging *a, adamod__st_pair *pairs, const char *count) {
    const adamod__st_file *last = last_of(a);
    size_t n = 0;
    for (size_t i = 0; i < last->n_metadata; i++) {
        const adamod__st_pair *pair = &last->metadata[i];
        if (checkpoint_is_optimizers(pair->key) || strcmp(pair->key, checkpoint_evaluation_key) == 0) continue;
        if (strcmp(pair->key, "averaged") != 0) pairs[n++] = *pair;
    }
    pairs[n++] = (adamod__st_pair){"averaged", count};
    return n;
}

static int write_average(const averaging *a) {
    const adamod__st_file *last = last_of(a);
    uint64_t bytes = 0;
    char count[24];
    snprintf(count, sizeof count, "%zu", a->n);
    for (size_t i = 0; i < last->n_entries; i++) {
        if (!checkpoint_is_optimizers(last->entries[i].name)) bytes += last->entries[i].end - last->entries[i].begin;
    }
    float *means = malloc(bytes + 1);
    adamod__st_tensor *tensors = calloc(last->n_entries + 1, sizeof *tensors);
    adamod__st_pair *pairs = calloc(last->n_metadata + 1, sizeof *pairs);
    size_t n = 0;
    for (size_t i = 0; i < last->n_entries; i++) n += !checkpoint_is_optimizers(last->entries[i].name);
    int status = means && tensors && pairs ? average_each(a, tensors, means) : checkpoint_fail_memory(a->path);
    if (!status && adamod__st_write(a->path, pairs, copy_metadata(a, pairs, count), tensors, n)) {
        status = -1;
    }
    free(means);
    free(tensors);
    free(pairs);
    return status;
}

int checkpoint_average(const char *const *paths, size_t n, const char *out_path) {
    averaging a = {.path = out_path};
    int status = open_all(&a, paths, n);
    if (!status) status = check_same(&a);
    if (!status) status = write_average(&a);
    for (size_t i = 0; i < a.n; i++) adamod__st_close(&a.files[i]);
    free(a.files);
    return status;
}
