/* Saving and loading an optimizer's states as safetensors, alone in a file or as the part of one that a prefix marks. */
#include "optim/optimizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char adamod__format[] = "adamod optimizer state 1";

/* Returns "PREFIXNAME.STATE" in new memory, or NULL; without ".STATE" if state is NULL. */
static char *adamod__entry_name(const char *prefix, const char *name, const char *state) {
    const size_t size = strlen(prefix) + strlen(name) + (state ? strlen(state) : 0) + 2;
    char *text = malloc(size);
    if (text) snprintf(text, size, "%s%s%s%s", prefix, name, state ? "." : "", state ? state : "");
    return text;
}

/* Goes over the entries of all parameters in the order of files: for each its states, its master, its step. Starts as {0}. */
typedef struct entry_walk {
    tensor *t;
    state_ref s; /* without data: the step */
    size_t n;    /* entries so far */
    int64_t tensor;
    int next; /* entry of this tensor */
} entry_walk;

static bool adamod__next_entry(const adamod_optimizer *opt, entry_walk *e) {
    if (e->tensor == opt->n) return false;
    e->t = &opt->tensors[e->tensor];
    e->n++;
    if (adamod__state_ref(opt, e->t, e->next++, &e->s)) return true;
    e->s = (state_ref){.name = "step", .bytes = sizeof e->t->span.step};
    e->tensor++;
    e->next = 0;
    return true;
}

static size_t adamod__entries(const adamod_optimizer *opt) {
    entry_walk e = {0};
    while (adamod__next_entry(opt, &e)) continue;
    return e.n;
}

/* A copy on the host of a state that is on a device; NULL if there is no memory or the copy failed. */
static void *adamod__fetch(const adamod_optimizer *opt, const state_ref *s) {
    void *copy = malloc(s->bytes + 1);
    if (copy && s->bytes && adamod__device_out(opt, copy, *s->data, s->bytes)) {
        free(copy);
        return NULL;
    }
    return copy;
}

static adamod__st_dtype adamod__entry_dtype(const state_ref *s) {
    if (!s->data) return ADAMOD__ST_I64;
    return s->type == ADAMOD_Q8 ? ADAMOD__ST_U8 : (adamod__st_dtype)s->type;
}

static bool adamod__list_entries(const adamod_optimizer *opt, const char *prefix, adamod__st_tensor *out) {
    for (entry_walk e = {0}; adamod__next_entry(opt, &e); out++) {
        *out = (adamod__st_tensor){.dtype = adamod__entry_dtype(&e.s), .ndim = e.s.desc.ndim};
        memcpy(out->shape, e.s.desc.shape, sizeof out->shape);
        out->data = e.s.data ? *e.s.data : &e.t->span.step;
        if (!(out->name = adamod__entry_name(prefix, e.t->name, e.s.name))) return false;
        if (e.s.data && opt->device && !(out->data = adamod__fetch(opt, &e.s))) return false;
    }
    return true;
}

static bool adamod__list_metadata(const adamod_optimizer *opt, const char *prefix, adamod__st_pair *out) {
    char steps[24], skipped[24];
    snprintf(steps, sizeof steps, "%lld", (long long)opt->steps);
    snprintf(skipped, sizeof skipped, "%lld", (long long)opt->skipped);
    const adamod__st_pair pairs[ADAMOD__STATE_PAIRS] = {
        {"format", adamod__format}, {"rule", adamod__rule_in_files(opt->rule)}, {"steps", steps}, {"skipped", skipped}};
    for (int i = 0; i < ADAMOD__STATE_PAIRS; i++) {
        out[i].key = adamod__entry_name(prefix, pairs[i].key, NULL);
        out[i].value = strdup(pairs[i].value);
        if (!out[i].key || !out[i].value) return false;
    }
    return true;
}

adamod_status adamod__state_list_make(const adamod_optimizer *opt, const char *prefix, adamod__state_list *out) {
    ADAMOD__TRY(adamod__device_pull((adamod_optimizer *)(uintptr_t)opt));
    *out = (adamod__state_list){.n = adamod__entries(opt), .copies = opt->device != NULL};
    out->tensors = calloc(out->n + 1, sizeof *out->tensors);
    if (out->tensors && adamod__list_entries(opt, prefix, out->tensors) &&
        adamod__list_metadata(opt, prefix, out->metadata)) {
        return ADAMOD_OK;
    }
    const size_t n = out->n;
    adamod__state_list_free(out);
    return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory listing %zu tensors", n);
}

void adamod__state_list_free(adamod__state_list *list) {
    for (size_t i = 0; list->tensors && i < list->n; i++) {
        free((char *)(uintptr_t)list->tensors[i].name);
        if (list->copies && list->tensors[i].dtype != ADAMOD__ST_I64) free((void *)(uintptr_t)list->tensors[i].data);
    }
    free(list->tensors);
    for (int i = 0; i < ADAMOD__STATE_PAIRS; i++) {
        free((char *)(uintptr_t)list->metadata[i].key);
        free((char *)(uintptr_t)list->metadata[i].value);
    }
    *list = (adamod__state_list){0};
}

adamod_status adamod_save(const adamod_optimizer *opt, const char *path) {
    if (!opt || !path) return adamod__refuse("save: %s is NULL", opt ? "the path" : "the optimizer");
    if (!*path) return adamod__fail(ADAMOD_ERROR_IO, "save: the path is empty");
    if (opt->kept) return adamod__evaluates("save"); /* parameters saved beside the file would not fit it */
    adamod__state_list list;
    ADAMOD__TRY(adamod__state_list_make(opt, "", &list));
    const adamod_status status = adamod__st_write(path, list.metadata, ADAMOD__STATE_PAIRS, list.tensors, list.n);
    adamod__state_list_free(&list);
    return status;
}

/* ---- loading ---- */

/* The states read from a file, which replace the optimizer's once all are read: an array for each entry. */
typedef struct incoming {
    const adamod__st_file *file;
    const char *path, *prefix;
    void **data;
    size_t n;
    int64_t steps, skipped;
} incoming;

/* Returns NULL if there is no such key. */
static const char *adamod__incoming_metadata(const incoming *in, const char *key) {
    char name[64]; /* prefixes and keys are this program's own, and short */
    snprintf(name, sizeof name, "%s%s", in->prefix, key);
    return adamod__st_metadata(in->file, name);
}

static size_t adamod__incoming_entries(const incoming *in) {
    const size_t length = strlen(in->prefix);
    size_t n = 0;
    for (size_t i = 0; i < in->file->n_entries; i++) n += strncmp(in->file->entries[i].name, in->prefix, length) == 0;
    return n;
}

static bool adamod__parse_count(const char *text, int64_t *out) {
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    *out = x;
    return errno == 0 && *end == '\0' && x <= ADAMOD__MOST_STEPS;
}

/* Whether a name from a file can be shown in a line. */
static bool adamod__is_plain(const char *name) {
    while ((unsigned char)*name >= 0x20 && *name != 0x7f) name++;
    return *name == '\0';
}

/* Returns, in new memory, the name of the first tensor of the file that is no state of the optimizer, or of the first state
 * that is missing in the file; NULL if there is none, or out of memory. */
static char *adamod__first_odd(const adamod_optimizer *opt, const incoming *in, bool missing) {
    unsigned char *wanted = calloc(in->file->n_entries + 1, 1);
    for (entry_walk x = {0}; wanted && adamod__next_entry(opt, &x);) {
        char *name = adamod__entry_name(in->prefix, x.t->name, x.s.name);
        const adamod__st_entry *e = name ? adamod__st_find(in->file, name) : NULL;
        if (e) wanted[e - in->file->entries] = 1;
        if (missing && name && !e) {
            free(wanted);
            return name;
        }
        free(name);
    }
    const char *odd = NULL;
    for (size_t i = 0; wanted && !missing && !odd && i < in->file->n_entries; i++) {
        const char *name = in->file->entries[i].name;
        if (!wanted[i] && strncmp(name, in->prefix, strlen(in->prefix)) == 0 && adamod__is_plain(name)) odd = name;
    }
    free(wanted);
    return odd ? strdup(odd) : NULL;
}

static adamod_status adamod__check_metadata(const adamod_optimizer *opt, incoming *in) {
    const char *format = adamod__incoming_metadata(in, "format"), *rule_name = adamod__incoming_metadata(in, "rule");
    const size_t found = adamod__incoming_entries(in);
    if (!format || strcmp(format, adamod__format) != 0) {
        return adamod__fail(ADAMOD_ERROR_MISMATCH, "%s: format is '%.40s', expected '%s'", in->path,
                            format ? format : "", adamod__format);
    }
    if (!rule_name || strcmp(rule_name, adamod__rule_in_files(opt->rule)) != 0) {
        return adamod__fail(ADAMOD_ERROR_MISMATCH, "%s: state of rule '%.40s', expected '%s'", in->path,
                            rule_name ? rule_name : "", adamod__rule_in_files(opt->rule));
    }
    if (!adamod__parse_count(adamod__incoming_metadata(in, "steps"), &in->steps) ||
        !adamod__parse_count(adamod__incoming_metadata(in, "skipped"), &in->skipped)) {
        return adamod__fail(ADAMOD_ERROR_FORMAT, "%s: its metadata lacks the numbers steps and skipped", in->path);
    }
    if (found != in->n) {
        char *odd = adamod__first_odd(opt, in, found < in->n);
        char which[128] = "";
        if (odd) snprintf(which, sizeof which, "; it has %s'%.100s'", found < in->n ? "no " : "", odd);
        adamod__fail(ADAMOD_ERROR_MISMATCH, "%s: %zu tensors, expected %zu for %lld parameters%s", in->path, found,
                     in->n, (long long)opt->n, which);
        free(odd);
        return ADAMOD_ERROR_MISMATCH;
    }
    return ADAMOD_OK;
}

static adamod_status adamod__check_entry(const adamod__st_entry *e, const state_ref *s, const char *path,
                                         const char *name) {
    const adamod__st_dtype dtype = adamod__entry_dtype(s);
    if (!e) return adamod__fail(ADAMOD_ERROR_MISMATCH, "%s: no tensor '%s'", path, name);
    if (e->dtype != dtype) {
        return adamod__fail(ADAMOD_ERROR_MISMATCH, "%s: '%s' is %s, expected %s", path, name,
                            adamod__st_dtype_name(e->dtype), adamod__st_dtype_name(dtype));
    }
    if (e->ndim == s->desc.ndim && memcmp(e->shape, s->desc.shape, (size_t)e->ndim * sizeof *e->shape) == 0)
        return ADAMOD_OK;
    char has[176], wants[176];
    adamod__shape_text(e->ndim, e->shape, has, sizeof has);
    adamod__shape_text(s->desc.ndim, s->desc.shape, wants, sizeof wants);
    return adamod__fail(ADAMOD_ERROR_MISMATCH, "%s: '%s' has shape %s, expected %s", path, name, has, wants);
}

static adamod_status adamod__read_entry(const adamod_optimizer *opt, const incoming *in, const tensor *t,
                                        const state_ref *s, void **out) {
    char *name = adamod__entry_name(in->prefix, t->name, s->name);
    if (!name) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for a name", in->path);
    const adamod__st_entry *e = adamod__st_find(in->file, name);
    adamod_status status = adamod__check_entry(e, s, in->path, name);
    if (status == ADAMOD_OK && s->bytes > 0) {
        *out = adamod__alloc(opt, s->bytes);
        status = *out ? adamod__st_read(in->file, e, *out)
                      : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for '%s'", in->path, name);
        const int64_t steps = !status && !s->data ? *(int64_t *)*out : 0;
        if (steps < 0 || steps > ADAMOD__MOST_STEPS) {
            status = adamod__fail(ADAMOD_ERROR_FORMAT, "%s: '%s' is %lld, expected a number of steps", in->path, name,
                                  (long long)steps);
        }
    }
    free(name);
    return status;
}

static adamod_status adamod__read_all(const adamod_optimizer *opt, incoming *in) {
    for (entry_walk e = {0}; adamod__next_entry(opt, &e);) {
        ADAMOD__TRY(adamod__read_entry(opt, in, e.t, &e.s, &in->data[e.n - 1]));
    }
    return ADAMOD_OK;
}

/* Exchanges the optimizer's arrays with those read, if the reading succeeded; then frees what is left over. Arrays on a
 * device stay where they are, since graphs may know them, and are overwritten. */
static adamod_status adamod__exchange(adamod_optimizer *opt, incoming *in, bool complete) {
    adamod_status status = ADAMOD_OK;
    for (entry_walk e = {0}; in->data && adamod__next_entry(opt, &e);) {
        void **read = &in->data[e.n - 1];
        if (complete && !e.s.data) {
            e.t->span.step = *(int64_t *)*read;
        } else if (complete && opt->device) {
            status = status || !e.s.bytes ? status : adamod__device_in(opt, *e.s.data, *read, e.s.bytes);
        } else if (complete) {
            void *old = *e.s.data;
            *e.s.data = *read;
            *read = old;
        }
        adamod__free(opt, *read, e.s.bytes);
    }
    if (complete && !opt->device) adamod__renew_ranges(opt);
    free(in->data);
    return status;
}

adamod_status adamod__state_restore(adamod_optimizer *opt, const adamod__st_file *file, const char *path,
                                    const char *prefix) {
    incoming in = {.file = file, .path = path, .prefix = prefix, .n = adamod__entries(opt)};
    in.data = calloc(in.n + 1, sizeof *in.data);
    adamod_status status = in.data
                               ? adamod__check_metadata(opt, &in)
                               : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory loading %zu tensors", path, in.n);
    if (status == ADAMOD_OK) status = adamod__read_all(opt, &in);
    if (status == ADAMOD_OK) status = adamod__device_outside(opt, "load");
    const adamod_status exchanged = adamod__exchange(opt, &in, status == ADAMOD_OK);
    if (status == ADAMOD_OK) status = exchanged;
    if (status == ADAMOD_OK) {
        opt->steps = in.steps;
        opt->skipped = in.skipped;
        memset(opt->reports, 0, sizeof opt->reports);
        status = adamod__device_push(opt);
        if (status == ADAMOD_OK) status = adamod__device_forget(opt);
    }
    return status;
}

adamod_status adamod__state_take(adamod_optimizer *opt, const adamod__state_list *list) {
    size_t at = 0;
    adamod_status status = ADAMOD_OK;
    for (entry_walk e = {0}; !status && adamod__next_entry(opt, &e);) {
        char *name = adamod__entry_name("", e.t->name, e.s.name);
        if (!name) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for a name", e.t->name);
        while (at < list->n && strcmp(list->tensors[at].name, name) != 0) at++; /* both are in one order */
        if (at == list->n) status = adamod__fail(ADAMOD_ERROR_MISMATCH, "no state '%s' to take", name);
        else if (e.s.data && opt->device) status = adamod__device_in(opt, *e.s.data, list->tensors[at].data, e.s.bytes);
        else if (e.s.bytes > 0) memcpy(e.s.data ? *e.s.data : &e.t->span.step, list->tensors[at].data, e.s.bytes);
        free(name);
    }
    if (!opt->device) adamod__renew_ranges(opt);
    return status ? status : adamod__device_push(opt);
}

/* The longest header that a file of this optimizer can have: twice what it needs if every character of the names is escaped,
 * every shape is the longest, and metadata has a megabyte. A file with a longer header is refused. */
static uint64_t adamod__state_header_limit(const adamod_optimizer *opt) {
    uint64_t bytes = (uint64_t)1 << 20;
    for (entry_walk e = {0}; adamod__next_entry(opt, &e);) bytes += 1024 + 12 * (uint64_t)strlen(e.t->name);
    return bytes;
}

adamod_status adamod_load(adamod_optimizer *opt, const char *path) {
    if (!opt || !path) return adamod__refuse("load: %s is NULL", opt ? "the path" : "the optimizer");
    if (!*path) return adamod__fail(ADAMOD_ERROR_IO, "load: the path is empty");
    if (opt->kept) return adamod__evaluates("load"); /* the end of the evaluation would overwrite the loaded weights */
    adamod__st_file file;
    adamod_status status = adamod__st_open_within(path, adamod__state_header_limit(opt), &file);
    if (status) return status;
    status = adamod__state_restore(opt, &file, path, "");
    adamod__st_close(&file);
    return status;
}
