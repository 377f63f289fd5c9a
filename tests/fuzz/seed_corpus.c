/* Writes the fuzz targets' first inputs and their dictionaries: DIR/npy/, DIR/npy.dict, and so on.
 *
 *     seed_corpus DIR && fuzz_npy -dict=DIR/npy.dict DIR/npy
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "load_model.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    uint64_t data_size;
    const char *json;
} headers[] = {
    {0, "{}      "},
    {8, "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"},
    {0, "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"v\"}}"},
    {20, "{\"__metadata__\":{\"k\":\"\\ud83d\\ude00\"},"
         "\"a\":{\"dtype\":\"F64\",\"shape\":[2,1],\"data_offsets\":[0,16]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}}  "},
    {14, "{ \"\\n\\\"\xc3\xa9\" : {\"data_offsets\":[ 2, 14 ], \"shape\":[3, 4], \"dtype\":\"U8\"},\n"
         "\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]},"
         "\"z\":{\"dtype\":\"F4\",\"shape\":[0,9],\"data_offsets\":[2,2]}}"},
    {5, "{\"a\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"b\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]},"
        "\"c\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[3,5]}}"},
    {8, "{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}"},
};

static const char *const safetensors_words[] = {
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\\\"",
    "\\\\u",
    "\\\\ud800",
    "\\xc3\\xa9",
    "\\xed\\xa0\\x80",
    "\\xf0\\x9f\\x98\\x80",
    "dtype",
    "shape",
    "data_offsets",
    "__metadata__",
    "F32",
    "BF16",
    "F4",
    "F6_E2M3",
    "U8",
    "\\\"dtype\\\":\\\"F32\\\"",
    "\\\"shape\\\":[",
    "\\\"data_offsets\\\":[0,",
    "18446744073709551615",
    "9223372036854775807",
};

static const struct {
    int version;
    const char *dict;
    size_t data_size;
} arrays[] = {
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }    \n", 24},
    {2, "{'descr': '>f8', 'fortran_order': False, 'shape': (3,), }\n", 24},
    {3, "{\"shape\": (), \"descr\": \"=f8\", \"fortran_order\": True}", 8},
    {1, "{'descr': '|f4', 'fortran_order': True, 'shape': (0L,), }\n", 0},
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 2), }\n", 8},
    {1, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", 8},
    {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", 4},
};

static const char *const npy_words[] = {
    "\\x93NUMPY", "'descr': ", "'fortran_order': ",
    "'shape': ",  "'<f4'",     "'>f8'",
    "'|O'",       "True",      "False",
    "(",          ")",         ",",
    "{",          "}",         "9223372036854775807",
    "4294967296",
};

static FILE *create(const char *dir, const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, mode);
    if (f) return f;
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(1);
}

static void finish(FILE *f) {
    if (!ferror(f) && !fclose(f)) return;
    fprintf(stderr, "cannot write: %s\n", strerror(errno));
    exit(1);
}

static void put_number(FILE *f, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) fputc((int)(value >> (8 * i) & 0xff), f);
}

static void put_words(const char *dir, const char *name, const char *const *words, size_t n) {
    FILE *f = create(dir, name, "w");
    for (size_t i = 0; i < n; i++) fprintf(f, "\"%s\"\n", words[i]);
    finish(f);
}

static void make_directory(const char *path) {
    if (!mkdir(path, 0777) || errno == EEXIST) return;
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(1);
}

static void put_headers(const char *dir) {
    char path[2048], name[32];
    snprintf(path, sizeof path, "%s/safetensors", dir);
    make_directory(path);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        snprintf(name, sizeof name, "seed%zu", i);
        FILE *f = create(path, name, "wb");
        put_number(f, headers[i].data_size, 8);
        fputs(headers[i].json, f);
        finish(f);
    }
}

static void put_arrays(const char *dir) {
    char path[2048], name[32];
    snprintf(path, sizeof path, "%s/npy", dir);
    make_directory(path);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        snprintf(name, sizeof name, "seed%zu", i);
        FILE *f = create(path, name, "wb");
        fputs("\x93NUMPY", f);
        put_number(f, (uint64_t)arrays[i].version, 2);
        put_number(f, strlen(arrays[i].dict), arrays[i].version == 1 ? 2 : 4);
        fputs(arrays[i].dict, f);
        for (size_t k = 0; k < arrays[i].data_size; k++) fputc((int)k, f);
        finish(f);
    }
}

/* A state file behind the byte that chooses its optimizer; without checksums, as earlier versions wrote them, or with. */
static void put_state(const char *dir, int which, const uint8_t *bytes, size_t n, int sums) {
    static const char from[] = "\"crc32\":", to[] = "\"format\":";
    const uint8_t *a = memmem(bytes, n, from, strlen(from)), *b = memmem(bytes, n, to, strlen(to));
    uint64_t length = 0;
    char name[32];
    load_require(n > 8 && a && b && a < b);
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    if (sums) a = b;
    snprintf(name, sizeof name, sums ? "seed%d" : "without%d", which);
    FILE *f = create(dir, name, "wb");
    fputc(which, f);
    put_number(f, length - (uint64_t)(b - a), 8);
    fwrite(bytes + 8, 1, (size_t)(a - bytes) - 8, f);
    fwrite(b, 1, (size_t)(bytes + n - b), f);
    finish(f);
}

static void put_states(const char *dir) {
    char path[2048], file[2100];
    static uint8_t bytes[1 << 16];
    snprintf(path, sizeof path, "%s/load", dir);
    make_directory(path);
    snprintf(file, sizeof file, "%s/state", path);
    for (int i = 0; i < LOAD_MODELS; i++) {
        load_model m;
        load_model_make(&m, i);
        load_require(adamod_save(m.opt, file) == ADAMOD_OK);
        FILE *f = create(path, "state", "rb");
        const size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        remove(file);
        put_state(path, i, bytes, n, 1);
        if (i == 0) put_state(path, i, bytes, n, 0);
        adamod_free(m.opt);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    make_directory(argv[1]);
    put_headers(argv[1]);
    put_arrays(argv[1]);
    put_states(argv[1]);
    put_words(argv[1], "safetensors.dict", safetensors_words, sizeof safetensors_words / sizeof safetensors_words[0]);
    put_words(argv[1], "load.dict", safetensors_words, sizeof safetensors_words / sizeof safetensors_words[0]);
    put_words(argv[1], "npy.dict", npy_words, sizeof npy_words / sizeof npy_words[0]);
    return 0;
}
