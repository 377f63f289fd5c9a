/* Safetensors: writes files. */
#include "core/buffer.h"
#include "core/file.h"
#include "core/safetensors_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing: the header ----------------------------------------------------------------------------------------- */

static void st_add_string(adamod__buffer *b, const char *s) {
    adamod__buffer_text(b, "\"");
    while (*s) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\') plain++;
        adamod__buffer_add(b, s, plain);
        s += plain;
        if (!*s) break;
        if ((unsigned char)*s < 0x20) adamod__buffer_format(b, "\\u%04x", (unsigned)(unsigned char)*s);
        else adamod__buffer_format(b, "\\%c", *s);
        s++;
    }
    adamod__buffer_text(b, "\"");
}

static void st_add_tensor(adamod__buffer *b, const adamod__st_tensor *t, uint64_t begin, uint64_t end) {
    st_add_string(b, t->name);
    adamod__buffer_format(b, ":{\"dtype\":\"%s\",\"shape\":[", adamod__st_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++) adamod__buffer_format(b, "%s%" PRId64, i ? "," : "", t->shape[i]);
    adamod__buffer_format(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

static adamod_status st_check_tensor(const char *path, const adamod__st_tensor *t, uint64_t *bytes) {
    if (!t->name) return adamod__st_refuse(path, "a tensor has no name");
    st_quoted name = adamod__st_quote(t->name);
    if (!adamod__st_utf8_valid(t->name))
        return adamod__st_refuse(path, "tensor \"%s\": the name is not UTF-8", name.text);
    if (!strcmp(t->name, "__metadata__"))
        return adamod__st_refuse(path, "a tensor cannot have the name \"__metadata__\"");
    if (!adamod__st_dtype_name(t->dtype))
        return adamod__st_refuse(path, "tensor \"%s\": unknown dtype %d", name.text, (int)t->dtype);
    if (t->ndim < 0 || t->ndim > ADAMOD_MAX_DIMS)
        return adamod__st_refuse(path, "tensor \"%s\": %d dimensions, expected 0 to %d", name.text, t->ndim,
                                 ADAMOD_MAX_DIMS);
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0)
            return adamod__st_refuse(path, "tensor \"%s\": dimension %d is %" PRId64 ", expected >= 0", name.text, i,
                                     t->shape[i]);
    const char *why = adamod__st_tensor_bytes(t->dtype, t->ndim, t->shape, bytes);
    return why ? adamod__st_refuse(path, "tensor \"%s\": %s", name.text, why) : ADAMOD_OK;
}

static int st_compare_order_names(const void *a, const void *b) {
    const adamod__st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int st_compare_order(const void *a, const void *b) {
    const adamod__st_tensor *const *x = a, *const *y = b;
    unsigned bits_x = adamod__st_dtype_bits((*x)->dtype), bits_y = adamod__st_dtype_bits((*y)->dtype);
    return bits_x != bits_y ? (bits_x > bits_y ? -1 : 1) : st_compare_order_names(a, b);
}

/* Checks the tensors and puts them in their order in the file. */
static adamod_status st_order_tensors(const char *path, const adamod__st_tensor *tensors, size_t n,
                                      const adamod__st_tensor ***out) {
    const adamod__st_tensor **order = n > SIZE_MAX / sizeof *order ? NULL : malloc(n ? n * sizeof *order : 1);
    if (!order) return adamod__st_fail_memory(path);
    *out = order;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        ADAMOD__TRY(st_check_tensor(path, &tensors[i], &bytes));
        if (bytes > (uint64_t)INT64_MAX - ADAMOD__ST_MAX_HEADER - 8 - total)
            return adamod__st_refuse(path, "tensor \"%s\": the data is too large for a file",
                                     adamod__st_quote(tensors[i].name).text);
        total += bytes;
        order[i] = &tensors[i];
    }
    adamod__st_sort(order, n, sizeof *order, st_compare_order_names);
    for (size_t i = 1; i < n; i++)
        if (!st_compare_order_names(&order[i - 1], &order[i]))
            return adamod__st_refuse(path, "tensor \"%s\" appears twice", adamod__st_quote(order[i]->name).text);
    adamod__st_sort(order, n, sizeof *order, st_compare_order);
    return ADAMOD_OK;
}

static adamod_status st_check_metadata(const char *path, const adamod__st_pair *metadata, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const adamod__st_pair *m = &metadata[i];
        if (!m->key || !m->value) return adamod__st_refuse(path, "metadata %zu has no key or no value", i);
        if (!adamod__st_utf8_valid(m->key) || !adamod__st_utf8_valid(m->value))
            return adamod__st_refuse(path, "metadata \"%s\" is not UTF-8", adamod__st_quote(m->key).text);
        if (!strcmp(m->key, ADAMOD__ST_SUM) || !strcmp(m->key, ADAMOD__ST_SUMS))
            return adamod__st_refuse(path, "metadata \"%s\": the checksums are made here", m->key);
    }
    if (n < 2) return ADAMOD_OK;
    adamod__st_pair *sorted = n > SIZE_MAX / sizeof *sorted ? NULL : malloc(n * sizeof *sorted);
    if (!sorted) return adamod__st_fail_memory(path);
    memcpy(sorted, metadata, n * sizeof *sorted);
    adamod__st_sort(sorted, n, sizeof *sorted, adamod__st_compare_keys);
    const char *twice = NULL;
    for (size_t i = 1; i < n && !twice; i++)
        if (!adamod__st_compare_keys(&sorted[i - 1], &sorted[i])) twice = sorted[i].key;
    free(sorted);
    return twice ? adamod__st_refuse(path, "metadata \"%s\" appears twice", adamod__st_quote(twice).text) : ADAMOD_OK;
}

/* The checksums come first, as zeros until they are known. */
static void st_add_metadata(adamod__buffer *b, const adamod__st_pair *metadata, size_t n, adamod__st_plan *plan) {
    st_add_string(b, "__metadata__");
    adamod__buffer_format(b, ":{\"%s\":\"", ADAMOD__ST_SUM);
    plan->sum_at = b->n;
    adamod__buffer_format(b, "00000000\",\"%s\":\"", ADAMOD__ST_SUMS);
    plan->sums_at = b->n;
    for (size_t i = 0; i < plan->n; i++) adamod__buffer_text(b, "00000000");
    adamod__buffer_text(b, "\"");
    for (size_t i = 0; i < n; i++) {
        adamod__buffer_text(b, ",");
        st_add_string(b, metadata[i].key);
        adamod__buffer_text(b, ":");
        st_add_string(b, metadata[i].value);
    }
    adamod__buffer_text(b, "}");
}

static adamod_status st_make_header(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                                    adamod__st_plan *plan) {
    adamod__buffer b = {0};
    uint64_t begin = 0;
    adamod__buffer_add(&b, "\0\0\0\0\0\0\0\0{", 9);
    st_add_metadata(&b, metadata, n_metadata, plan);
    for (size_t i = 0; i < plan->n; i++) {
        const adamod__st_tensor *t = plan->order[i];
        uint64_t bytes = 0;
        (void)adamod__st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        adamod__buffer_text(&b, ",");
        st_add_tensor(&b, t, begin, begin + bytes);
        begin += bytes;
    }
    adamod__buffer_text(&b, "}");
    adamod__buffer_add(&b, "       ", (8 - b.n % 8) % 8);
    plan->header = b.text;
    plan->header_size = b.n;
    if (b.failed) return adamod__st_fail_memory(path);
    if (b.n - 8 > ADAMOD__ST_MAX_HEADER)
        return adamod__st_refuse(path, "the header would exceed the limit of %u bytes", ADAMOD__ST_MAX_HEADER);
    for (int i = 0; i < 8; i++) b.text[i] = (char)(unsigned char)((uint64_t)(b.n - 8) >> (8 * i) & 0xff);
    return ADAMOD_OK;
}

static void st_put_sum(adamod__st_plan *plan, size_t at, uint32_t sum) {
    char digits[9];
    snprintf(digits, sizeof digits, "%08" PRIx32, sum);
    memcpy(plan->header + at, digits, 8);
}

void adamod__st_plan_seal(adamod__st_plan *plan) {
    st_put_sum(plan, plan->sum_at, 0);
    st_put_sum(plan, plan->sum_at, adamod__crc32(0, plan->header, plan->header_size));
}

adamod_status adamod__st_plan_make(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                                   const adamod__st_tensor *tensors, size_t n_tensors, adamod__st_plan *out) {
    *out = (adamod__st_plan){.n = n_tensors};
    adamod_status status = st_check_metadata(path, metadata, n_metadata);
    if (status == ADAMOD_OK) status = st_order_tensors(path, tensors, n_tensors, &out->order);
    if (status == ADAMOD_OK) status = st_make_header(path, metadata, n_metadata, out);
    if (status != ADAMOD_OK) adamod__st_plan_free(out);
    return status;
}

void adamod__st_plan_free(adamod__st_plan *plan) {
    free(plan->header);
    free(plan->order);
    *plan = (adamod__st_plan){0};
}

/* ---- Writing: the file ------------------------------------------------------------------------------------------- */

static adamod_status st_fail_output(const char *path, const adamod__output *out) {
    char reason[256];
    adamod__output_reason(out, reason, sizeof reason);
    return adamod__st_fail(path, out->error == ENOMEM ? ADAMOD_ERROR_MEMORY : ADAMOD_ERROR_IO, "%s", reason);
}

static int st_write_tensor(adamod__output *out, uint64_t at, const char *data, uint64_t bytes, uint32_t *sum) {
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = bytes - done < ADAMOD__ST_PIECE ? bytes - done : ADAMOD__ST_PIECE;
        *sum = adamod__crc32(*sum, data + done, (size_t)piece);
        if (adamod__output_put(out, at + done, data + done, piece)) return -1;
    }
    return 0;
}

/* Writes the data first and the header last, when the checksums are known. */
static int st_write_all(adamod__output *out, adamod__st_plan *plan) {
    uint64_t at = plan->header_size;
    for (size_t i = 0; i < plan->n; i++) {
        const adamod__st_tensor *t = plan->order[i];
        uint64_t bytes = 0;
        uint32_t sum = 0;
        (void)adamod__st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        if (st_write_tensor(out, at, t->data, bytes, &sum)) return -1;
        st_put_sum(plan, plan->sums_at + 8 * i, sum);
        at += bytes;
    }
    adamod__st_plan_seal(plan);
    return adamod__output_put(out, 0, plan->header, plan->header_size) ? -1 : adamod__output_commit(out);
}

static adamod_status st_check_data(const char *path, const adamod__st_tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const adamod__st_tensor *t = &tensors[i];
        uint64_t bytes = 0;
        (void)adamod__st_tensor_bytes(t->dtype, t->ndim, t->shape, &bytes);
        if (bytes && !t->data)
            return adamod__st_refuse(path, "tensor \"%s\" has no data", adamod__st_quote(t->name).text);
    }
    return ADAMOD_OK;
}

adamod_status adamod__st_write(const char *path, const adamod__st_pair *metadata, size_t n_metadata,
                               const adamod__st_tensor *tensors, size_t n_tensors) {
    adamod__output out;
    adamod__st_plan plan;
    ADAMOD__TRY(adamod__st_plan_make(path, metadata, n_metadata, tensors, n_tensors, &plan));
    adamod_status status = st_check_data(path, tensors, n_tensors);
    if (status == ADAMOD_OK) {
        if (adamod__output_open(&out, path) || st_write_all(&out, &plan)) status = st_fail_output(path, &out);
        adamod__output_discard(&out);
    }
    adamod__st_plan_free(&plan);
    return status;
}
