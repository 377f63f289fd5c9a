/* libFuzzer target: the header parser of lib/core/safetensors_header.c, on 8 bytes of data size (little-endian) and a header.
 *
 * A header that is accepted must keep what the parser promises, and survive being written and parsed again.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "core/safetensors_internal.h"

static adamod_status parse(const char *path, const char *json, size_t len, uint64_t data_size, adamod__st_file *out) {
    char *text = malloc(len + 1);
    if (!text) abort();
    memcpy(text, json, len);
    *out = (adamod__st_file){0};
    const adamod_status status = adamod__st_parse_text(path, text, len, data_size, out);
    if (status) adamod__st_close(out);
    return status;
}

static void check_line(const char *msg) {
    require(strlen(msg) > 3 && !strncmp(msg, "f: ", 3));
    require(is_line(msg));
}

static void check_promises(const adamod__st_file *file, uint64_t data_size) {
    uint64_t total = 0;
    for (size_t i = 0; i < file->n_entries; i++) {
        const adamod__st_entry *e = &file->entries[i];
        require(e->begin <= e->end && e->end <= data_size);
        require(e->ndim >= 0 && e->ndim <= ADAMOD_MAX_DIMS);
        for (int d = 0; d < e->ndim; d++) require(e->shape[d] >= 0);
        require(adamod__st_dtype_name(e->dtype) && adamod__st_dtype_bits(e->dtype) > 0);
        require(adamod__st_find(file, e->name) == e);
        require(!i || strcmp(file->entries[i - 1].name, e->name) < 0);
        total += e->end - e->begin;
    }
    require(total == data_size);
    for (size_t i = 0; i < file->n_metadata; i++)
        require(adamod__st_metadata(file, file->metadata[i].key) == file->metadata[i].value);
    require(!adamod__st_find(file, "__metadata__"));
}

static void check_equal(const adamod__st_file *a, const adamod__st_file *b) {
    require(a->n_entries == b->n_entries && a->n_metadata == b->n_metadata);
    for (size_t i = 0; i < a->n_entries; i++) {
        const adamod__st_entry *x = &a->entries[i], *y = &b->entries[i];
        require(!strcmp(x->name, y->name) && x->dtype == y->dtype && x->ndim == y->ndim);
        require(!memcmp(x->shape, y->shape, sizeof x->shape) && x->end - x->begin == y->end - y->begin);
    }
    for (size_t i = 0; i < a->n_metadata; i++)
        require(!strcmp(a->metadata[i].key, b->metadata[i].key) && !strcmp(a->metadata[i].value, b->metadata[i].value));
}

static void check_round_trip(const adamod__st_file *file, uint64_t data_size) {
    adamod__st_plan plan;
    adamod__st_file again;
    adamod__st_tensor *tensors = calloc(file->n_entries + 1, sizeof *tensors);
    require(tensors != NULL);
    for (size_t i = 0; i < file->n_entries; i++) {
        const adamod__st_entry *e = &file->entries[i];
        tensors[i] = (adamod__st_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
        memcpy(tensors[i].shape, e->shape, sizeof e->shape);
    }
    adamod_status status = adamod__st_plan_make("f", file->metadata, file->n_metadata, tensors, file->n_entries, &plan);
    if (data_size < UINT64_C(1) << 62) {
        require(status == ADAMOD_OK);
        require(plan.header_size % 8 == 0);
        adamod__st_plan_seal(&plan);
        require(parse("f", plan.header + 8, plan.header_size - 8, data_size, &again) == ADAMOD_OK);
        check_promises(&again, data_size);
        check_equal(file, &again);
        adamod__st_close(&again);
    }
    adamod__st_plan_free(&plan);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t data_size = 0;
    adamod__st_file file;
    if (size < 8) return 0;
    for (int i = 7; i >= 0; i--) data_size = data_size << 8 | data[i];
    adamod_status status = parse("f", (const char *)data + 8, size - 8, data_size, &file);
    if (status == ADAMOD_OK) {
        check_promises(&file, data_size);
        check_round_trip(&file, data_size);
    } else {
        check_line(adamod__last_message());
    }
    adamod__st_close(&file);
    return 0;
}
