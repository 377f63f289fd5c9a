/* Tests of lib/core/safetensors*.c. They work in a directory of their own under TMPDIR (or /tmp).
 *
 * ADAMOD_TEST_LARGE=1 adds one that writes and reads a tensor of more than 4 GiB.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "core/safetensors_internal.h"
#include "check.h"
#include "io_faults.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_NAME "x.safetensors"

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* An empty working directory, the same for every test. */
static void begin(void) {
    enter_scratch(false);
    adamod__fail(ADAMOD_OK, "%s", "");
}

/* A file made of any length, header and number of zero bytes. */
static void put_parts(uint64_t length, const char *header, size_t data) {
    char bytes[512] = {0};
    for (int i = 0; i < 8; i++) bytes[i] = (char)(unsigned char)(length >> (8 * i) & 0xff);
    memcpy(bytes + 8, header, strlen(header));
    put_file(FILE_NAME, bytes, 8 + strlen(header) + data);
}

static adamod_status open_file(adamod__st_file *file) {
    return adamod__st_open_within(FILE_NAME, ADAMOD__ST_MAX_HEADER, file);
}

static adamod_status parse_at(const char *path, const char *json, size_t len, uint64_t data_size,
                              adamod__st_file *out) {
    char *text = malloc(len + 1);
    if (!text) abort();
    memcpy(text, json, len);
    *out = (adamod__st_file){0};
    const adamod_status status = adamod__st_parse_text(path, text, len, data_size, out);
    if (status) adamod__st_close(out);
    return status;
}

static adamod_status parse(const char *json, size_t len, uint64_t data_size, adamod__st_file *file) {
    adamod__fail(ADAMOD_OK, "%s", "");
    return parse_at("x", json, len, data_size, file);
}

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

ssize_t pread(int fd, void *data, size_t n, off_t offset) {
    if (faults.interrupts && faults.interrupts--) return fault(EINTR);
    return syscall(SYS_pread64, fd, data, at_most(n), offset);
}

/* ---- Round trips ------------------------------------------------------------------------------------------------- */

static const float weight[6] = {0, 1, 2, 3, 4, 5};
static const double bias[2] = {1, 2};
static const int64_t step = 7;
static const uint16_t half = 0x3e00;
static const uint8_t flags[3] = {1, 0, 1}, byte = 255;
static const char strange_name[] = "na\"me\\\xc3\xa9\xf0\x9f\x98\x80\n\x01\x7f/";

static const adamod__st_tensor samples[] = {
    {"weight", ADAMOD__ST_F32, 2, {2, 3}, weight}, {"bias", ADAMOD__ST_F64, 1, {2}, bias},
    {"step", ADAMOD__ST_I64, 0, {0}, &step},       {"flags", ADAMOD__ST_BOOL, 1, {3}, flags},
    {"half", ADAMOD__ST_BF16, 1, {1}, &half},      {"none", ADAMOD__ST_F32, 2, {0, 4}, NULL},
    {strange_name, ADAMOD__ST_U8, 1, {1}, &byte},  {"", ADAMOD__ST_F16, 8, {1, 1, 1, 1, 1, 1, 1, 1}, &half},
};
static const size_t n_samples = sizeof samples / sizeof samples[0];
static const adamod__st_pair sample_metadata[] = {{"rule", "adamod"}, {"", ""}, {"a\tb", "\"\\\n\xc3\xa9"}};

TEST(round_trip) {
    adamod__st_file file;
    begin();
    CHECK_INT(adamod__st_write(FILE_NAME, sample_metadata, 3, samples, n_samples), ADAMOD_OK);
    CHECK_INT(scratch_files(), 1);
    if (!CHECK_INT(open_file(&file), ADAMOD_OK)) return;
    CHECK_INT(file.n_entries, n_samples);
    CHECK_INT(file.n_metadata, 3);
    for (size_t i = 0; i < n_samples; i++) {
        char data[64];
        const adamod__st_tensor *t = &samples[i];
        const adamod__st_entry *e = adamod__st_find(&file, t->name);
        if (!CHECK(e)) continue;
        CHECK_STR(e->name, t->name);
        CHECK_INT(e->dtype, t->dtype);
        CHECK_INT(e->ndim, t->ndim);
        CHECK(!memcmp(e->shape, t->shape, (size_t)t->ndim * sizeof t->shape[0]));
        CHECK_INT(e->begin * 8 % adamod__st_dtype_bits(e->dtype), 0);
        CHECK_INT(adamod__st_read(&file, e, data), ADAMOD_OK);
        CHECK(e->begin == e->end || !memcmp(data, t->data, e->end - e->begin));
    }
    for (int i = 0; i < 3; i++) CHECK_STR(adamod__st_metadata(&file, sample_metadata[i].key), sample_metadata[i].value);
    CHECK(!adamod__st_find(&file, "weigh"));
    CHECK(!adamod__st_find(&file, "__metadata__"));
    CHECK(!adamod__st_metadata(&file, "weight"));
    CHECK_INT(file.data_start % 8, 0);
    adamod__st_close(&file);
}

TEST(empty_file) {
    static const char expected[] =
        "\x38\0\0\0\0\0\0\0{\"__metadata__\":{\"crc32\":\"d2597db2\",\"crc32.data\":\"\"}}   ";
    char bytes[128];
    adamod__st_file file;
    begin();
    CHECK_INT(adamod__st_write(FILE_NAME, NULL, 0, NULL, 0), ADAMOD_OK);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), sizeof expected - 1);
    CHECK(!memcmp(bytes, expected, sizeof expected - 1));
    CHECK_INT(open_file(&file), ADAMOD_OK);
    CHECK_INT(file.n_entries, 0);
    CHECK(!adamod__st_find(&file, "x"));
    CHECK(!adamod__st_metadata(&file, "x"));
    adamod__st_close(&file);
}

/* The exact bytes, whatever the order of the tensors. Checksums are those of Python's zlib.crc32. */
TEST(written_bytes) {
    static const char expected[] = "\xc0\0\0\0\0\0\0\0{\"__metadata__\":{\"crc32\":\"c3e4a6c8\","
                                   "\"crc32.data\":\"7ba3895f57989e8c\",\"format\":\"np\"},"
                                   "\"a\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
                                   "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]}} "
                                   "\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@\0\0\0@";
    char bytes[256];
    const adamod__st_pair metadata = {"format", "np"};
    const adamod__st_tensor tensors[2] = {{"b", ADAMOD__ST_F32, 0, {0}, &weight[2]},
                                          {"a", ADAMOD__ST_F64, 1, {2}, bias}};
    const adamod__st_tensor swapped[2] = {tensors[1], tensors[0]};
    begin();
    for (int i = 0; i < 2; i++) {
        CHECK_INT(adamod__st_write(FILE_NAME, &metadata, 1, i ? swapped : tensors, 2), ADAMOD_OK);
        CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), sizeof expected - 1);
        CHECK(!memcmp(bytes, expected, sizeof expected - 1));
    }
}

/* Written by the Python package safetensors 0.8.0 for these arrays. */
TEST(file_from_python) {
    static const char bytes[] =
        "\xc8\x01\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"np\"},"
        "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"bias\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[8,24]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[24,24]},"
        "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,48]},"
        "\"half\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[48,50]},"
        "\"na\\\"me\\\\\xc3\xa9\xf0\x9f\x98\x80\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[50,51]},"
        "\"flags\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[51,54]}}   "
        "\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@"
        "\0>\xff\x01\0\x01";
    adamod__st_file file;
    float w[6] = {0};
    double b[2] = {0};
    uint8_t u = 0;
    begin();
    put_file(FILE_NAME, bytes, sizeof bytes - 1);
    if (!CHECK_INT(open_file(&file), ADAMOD_OK)) return;
    CHECK_INT(file.n_entries, 7);
    CHECK_STR(adamod__st_metadata(&file, "format"), "np");
    CHECK_INT(adamod__st_read(&file, adamod__st_find(&file, "weight"), w), ADAMOD_OK);
    CHECK(!memcmp(w, weight, sizeof w));
    CHECK_INT(adamod__st_read(&file, adamod__st_find(&file, "bias"), b), ADAMOD_OK);
    CHECK(!memcmp(b, bias, sizeof b));
    const adamod__st_entry *e = adamod__st_find(&file, "na\"me\\\xc3\xa9\xf0\x9f\x98\x80\n");
    if (CHECK(e)) CHECK_INT(adamod__st_read(&file, e, &u), ADAMOD_OK);
    CHECK_INT(u, 255);
    adamod__st_close(&file);
}

/* ---- Headers that are right -------------------------------------------------------------------------------------- */

TEST(dtypes) {
    for (int i = 0; i < ADAMOD__ST_DTYPES; i++) {
        char json[128];
        adamod__st_file file;
        adamod__st_dtype dtype = (adamod__st_dtype)i;
        if (!CHECK(adamod__st_dtype_name(dtype))) continue;
        snprintf(json, sizeof json, "{\"t\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%u]}}",
                 adamod__st_dtype_name(dtype), adamod__st_dtype_bits(dtype) / 2);
        CHECK_INT(parse(json, strlen(json), adamod__st_dtype_bits(dtype) / 2, &file), ADAMOD_OK);
        CHECK_STR(adamod__last_message(), "");
        if (CHECK_INT(file.n_entries, 1)) CHECK_INT(file.entries[0].dtype, i);
        adamod__st_close(&file);
    }
    CHECK(!adamod__st_dtype_name(ADAMOD__ST_DTYPES));
    CHECK_INT(adamod__st_dtype_bits(ADAMOD__ST_DTYPES), 0);
    CHECK(!adamod__st_dtype_name((adamod__st_dtype)-1));
    CHECK_STR(adamod__st_dtype_name((adamod__st_dtype)ADAMOD_BF16), "BF16");
    CHECK_STR(adamod__st_dtype_name((adamod__st_dtype)ADAMOD_F16), "F16");
}

TEST(json_forms) {
    static const char json[] =
        "{ \t\r\n\"\\u0061\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\uD83D\\ude00\" :\n"
        "{\"data_offsets\" : [ 0 , 8 ] , \"shape\":[ 2 ,1],\"dty\\u0070e\":\"F32\" } ,\"__metadata__\":{} ,"
        "\"z\":{\"dtype\":\"U8\",\"shape\":[0,9223372036854775807],\"data_offsets\":[8,8]}\n}   ";
    adamod__st_file file;
    if (!CHECK_INT(parse(json, sizeof json - 1, 8, &file), ADAMOD_OK)) return;
    CHECK_STR(adamod__last_message(), "");
    CHECK_INT(file.n_entries, 2);
    const adamod__st_entry *e = adamod__st_find(&file, "a\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    if (CHECK(e)) CHECK_INT(e->shape[0] * 10 + e->shape[1], 21);
    e = adamod__st_find(&file, "z");
    if (CHECK(e)) CHECK_INT(e->shape[1], INT64_MAX);
    adamod__st_close(&file);
}

/* ---- Headers that are wrong -------------------------------------------------------------------------------------- */

#define ONE "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define SHAPE(s, end) "{\"t\":{\"dtype\":\"F32\",\"shape\":" s ",\"data_offsets\":[0," end "]}}"
#define OFFSETS(o) "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" o "}}"
#define TWO(second) ONE ",\"u\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" second "}}"
#define FIELDS(f) "{\"t\":{" f "}}"
#define META(m) "{\"__metadata__\":" m "}"
#define SUMS(header, data)                                                                                             \
    "{\"__metadata__\":{\"crc32\":\"" header "\",\"crc32.data\":\"" data                                               \
    "\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

static const struct {
    const char *json;
    uint64_t data_size;
    const char *fault;
} wrong[] = {
    /* JSON */
    {"", 0, "header is empty"},
    {" {}", 0, "header byte 0: expected '{', found byte 0x20"},
    {"[]", 0, "expected '{', found '['"},
    {"{", 0, "header byte 1: expected a tensor's name, found the end"},
    {"{}x", 0, "expected nothing but spaces after the last '}', found 'x'"},
    {"{}\n", 0, "expected nothing but spaces"},
    {"{}{}", 0, "expected nothing but spaces"},
    {"{,}", 0, "expected a tensor's name, found ','"},
    {ONE ",}", 8, "expected a tensor's name, found '}'"},
    {ONE " \"u\":1}", 8, "expected ',' or '}', found '\"'"},
    {"{\"t\"", 0, "expected ':', found the end"},
    {"{\"t\":1}", 0, "expected '{', found '1'"},
    {"{\"t\":[]}", 0, "tensor \"t\": expected '{', found '['"},
    {"{t:{}}", 0, "expected a tensor's name, found 't'"},
    {"{\"t", 0, "expected '\"' to end a string"},
    {"{\"t\\", 0, "after a backslash, found the end"},
    {"{\"\\x\":1}", 0, "after a backslash, found 'x'"},
    {"{\"\\u12", 0, "four hexadecimal digits after \\u, found the end"},
    {"{\"\\u12g4\":1}", 0, "four hexadecimal digits after \\u, found 'g'"},
    {"{\"\\ud800\":1}", 0, "lone surrogate \\ud800"},
    {"{\"\\udc00\":1}", 0, "lone surrogate \\udc00"},
    {"{\"\\ud800\\n\":1}", 0, "lone surrogate \\ud800"},
    {"{\"\\ud800\\u0041\":1}", 0, "lone surrogate \\ud800"},
    {"{\"\\ud800\\ud800\":1}", 0, "lone surrogate \\ud800"},
    {"{\"\\ud800\\u", 0, "four hexadecimal digits"},
    {"{\"a\\u0000\":1}", 0, "U+0000 is not allowed"},
    {"{\"a\tb\":1}", 0, "expected a control character to be escaped, found byte 0x09"},
    /* UTF-8 */
    {"{\"\x80\":1}", 0, "header byte 2: invalid UTF-8"},
    {"{\"\xc0\x80\":1}", 0, "invalid UTF-8"},
    {"{\"\xc1\xbf\":1}", 0, "invalid UTF-8"},
    {"{\"\xc3\":1}", 0, "invalid UTF-8"},
    {"{\"\xc3", 0, "invalid UTF-8"},
    {"{\"\xe0\x9f\xbf\":1}", 0, "invalid UTF-8"},
    {"{\"\xe2\x82\":1}", 0, "invalid UTF-8"},
    {"{\"\xed\xa0\x80\":1}", 0, "invalid UTF-8"},
    {"{\"\xf0\x8f\xbf\xbf\":1}", 0, "invalid UTF-8"},
    {"{\"\xf4\x90\x80\x80\":1}", 0, "invalid UTF-8"},
    {"{\"\xf5\x80\x80\x80\":1}", 0, "invalid UTF-8"},
    {"{\"\xff\":1}", 0, "invalid UTF-8"},
    /* fields */
    {FIELDS(""), 0, "tensor \"t\": dtype is missing"},
    {FIELDS("\"dtype\":\"F32\",\"data_offsets\":[0,0]"), 0, "shape is missing"},
    {FIELDS("\"dtype\":\"F32\",\"shape\":[0]"), 0, "data_offsets is missing"},
    {FIELDS("\"dtype\":\"F32\",\"dtype\":\"F32\""), 0, "dtype is given twice"},
    {FIELDS("\"strides\":[1]"), 0, "unknown field \"strides\""},
    {FIELDS("\"dtype\":\"F33\""), 0, "unknown dtype \"F33\""},
    {FIELDS("\"dtype\":32"), 0, "expected a string for dtype, found '3'"},
    {FIELDS("\"shape\":2"), 0, "expected '[', found '2'"},
    {FIELDS("\"shape\":[2"), 0, "expected ',' or ']', found '}'"},
    {"{\"t\":{\"shape\":[2", 0, "expected ',' or ']', found the end of the header"},
    {FIELDS("\"shape\":[2,]"), 0, "expected a non-negative integer, found ']'"},
    {FIELDS("\"shape\":[[2]]"), 0, "expected a non-negative integer, found '['"},
    {FIELDS("\"shape\":[\"2\"]"), 0, "expected a non-negative integer, found '\"'"},
    /* numbers */
    {SHAPE("[-1]", "0"), 0, "expected a non-negative integer, found '-'"},
    {SHAPE("[-0]", "0"), 0, "expected a non-negative integer, found '-'"},
    {SHAPE("[2.0]", "8"), 8, "expected an integer to end, found '.'"},
    {SHAPE("[2e0]", "8"), 8, "expected an integer to end, found 'e'"},
    {SHAPE("[2E0]", "8"), 8, "expected an integer to end, found 'E'"},
    {SHAPE("[02]", "8"), 8, "leading zero"},
    {SHAPE("[0x2]", "8"), 8, "expected ',' or ']', found 'x'"},
    {SHAPE("[null]", "8"), 8, "expected a non-negative integer, found 'n'"},
    {SHAPE("[9223372036854775808]", "0"), 0, "a number is above 9223372036854775807"},
    {SHAPE("[18446744073709551617]", "4"), 4, "a number is above 9223372036854775807"},
    {SHAPE("[1,1,1,1,1,1,1,1,1]", "4"), 4, "shape has more than 8 dimensions"},
    {OFFSETS("[0,18446744073709551616]"), 8, "a number is above 18446744073709551615"},
    {OFFSETS("[0]"), 8, "expected ',', found ']'"},
    {OFFSETS("[]"), 8, "expected a non-negative integer, found ']'"},
    {OFFSETS("[0,8,8]"), 8, "expected ']', found ','"},
    /* sizes */
    {SHAPE("[2]", "12"), 12, "data_offsets [0, 12] hold 12 bytes, shape and dtype F32 need 8"},
    {SHAPE("[]", "8"), 8, "hold 8 bytes, shape and dtype F32 need 4"},
    {SHAPE("[4611686018427387904,4]", "0"), 0, "the shape's size overflows"},
    {SHAPE("[4294967296,4294967296]", "0"), 0, "the shape's size overflows"},
    {SHAPE("[9223372036854775807,9223372036854775807,9223372036854775807]", "4"), 4, "the shape's size overflows"},
    {FIELDS("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1, "not a whole number of bytes"},
    {FIELDS("\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, "not a whole number of bytes"},
    {OFFSETS("[8,0]"), 8, "[8, 0] are not a range within 8 bytes of data"},
    {OFFSETS("[0,8]"), 7, "[0, 8] are not a range within 7 bytes of data"},
    {OFFSETS("[18446744073709551608,0]"), 8, "are not a range"},
    {OFFSETS("[0,18446744073709551615]"), 8, "are not a range"},
    {OFFSETS("[0,8]"), 9, "the tensors end at byte 8 of the data, which has 9 bytes"},
    {"{}", 1, "the tensors end at byte 0 of the data, which has 1 bytes"},
    /* layout and names */
    {OFFSETS("[1,9]"), 9, "tensor \"t\": begins at byte 1 of the data and leaves a hole, expected 0"},
    {TWO("[9,17]"), 17, "tensor \"u\": begins at byte 9 of the data and leaves a hole, expected 8"},
    {TWO("[4,12]"), 12, "tensor \"u\": begins at byte 4 of the data and overlaps the one before, expected 8"},
    {TWO("[0,8]"), 8, "overlaps the one before, expected 8"},
    {ONE ",\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16, "tensor \"t\" appears twice"},
    {ONE ",\"\\u0074\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 8, "tensor \"t\" appears twice"},
    /* metadata */
    {META("null"), 0, "expected '{', found 'n'"},
    {META("{\"a\":1}"), 0, "expected a string as a value of __metadata__, found '1'"},
    {META("{\"a\":{}}"), 0, "expected a string as a value of __metadata__, found '{'"},
    {META("{a:\"\"}"), 0, "expected a key of __metadata__, found 'a'"},
    {META("{\"a\":\"\",}"), 0, "expected a key of __metadata__, found '}'"},
    {META("{\"a\":\"\",\"a\":\"\"}"), 0, "__metadata__ has \"a\" twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is given twice"},
    /* checksums: the header's is right, as Python's zlib.crc32 has it, and the data's are too few, too many or none */
    {META("{\"crc32\":\"51a80140\",\"crc32.data\":\"0123456\"}"), 0,
     "crc32.data is not 8 digits for each of 0 tensors"},
    {SUMS("39bbcc8e", "0123456"), 4, "crc32.data is not 8 digits for each of 1 tensors"},
    {SUMS("f5ed674f", "0123456g"), 4, "crc32.data is not 8 digits for each of 1 tensors"},
    {SUMS("131b7c4b", "0123456789abcdef"), 4, "crc32.data is not 8 digits for each of 1 tensors"},
};

TEST(malformed_headers) {
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        adamod__st_file file;
        /* an exact copy, so that a sanitizer sees any read behind its end */
        size_t len = strlen(wrong[i].json);
        char *json = malloc(len ? len : 1);
        if (!json) abort();
        memcpy(json, wrong[i].json, len);
        if (!CHECK_INT(parse(json, len, wrong[i].data_size, &file), ADAMOD_ERROR_FORMAT)) printf("%s\n", wrong[i].json);
        CHECK_HAS(adamod__last_message(), wrong[i].fault);
        CHECK_HAS(adamod__last_message(), "x: ");
        CHECK(!file.entries && !file.metadata && !file.text);
        adamod__st_close(&file);
        free(json);
    }
}

/* No beginning of a header is a header. */
TEST(truncated_headers) {
    static const char json[] = "{\"__metadata__\":{\"k\":\"\\ud83d\\ude00\"},\"\xc3\xa9\":{\"dtype\":\"F32\","
                               "\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    for (size_t len = 0; len < sizeof json; len++) {
        adamod__st_file file;
        char *copy = malloc(len ? len : 1);
        if (!copy) abort();
        memcpy(copy, json, len);
        adamod_status status = parse(copy, len, 8, &file);
        CHECK_INT(status, len == sizeof json - 1 ? ADAMOD_OK : ADAMOD_ERROR_FORMAT);
        free(copy);
        adamod__st_close(&file);
        if (len == sizeof json - 1) break;
    }
}

TEST(deep_nesting) {
    enum { DEPTH = 1000000 };
    adamod__st_file file;
    char *json = malloc(DEPTH);
    if (!json) abort();
    memset(json, '[', DEPTH);
    memcpy(json, "{\"t\":", 5);
    CHECK_INT(parse(json, DEPTH, 0, &file), ADAMOD_ERROR_FORMAT);
    for (int i = 0; i + 5 <= DEPTH; i += 5) memcpy(json + i, "{\"t\":", 5);
    CHECK_INT(parse(json, DEPTH, 0, &file), ADAMOD_ERROR_FORMAT);
    CHECK_HAS(adamod__last_message(), "unknown field \"t\"");
    free(json);
}

TEST(messages) {
    adamod__st_file file;
    static const char hostile[] = "{\"\\n\\u001b\\u0080\\u007fb\":1}";
    char longest[200];
    CHECK_INT(parse(hostile, sizeof hostile - 1, 0, &file), ADAMOD_ERROR_FORMAT);
    CHECK_STR(adamod__last_message(), "x: header byte 25, tensor \"?????b\": expected '{', found '1'");
    /* 59 letters, then a character of 3 bytes that does not fit whole */
    snprintf(longest, sizeof longest, "{\"%059d\xe2\x82\xac%030d\":1}", 0, 0);
    CHECK_INT(parse(longest, strlen(longest), 0, &file), ADAMOD_ERROR_FORMAT);
    CHECK_HAS(adamod__last_message(), "00000...\"");
    char path[3000]; /* longer than a message, which loses the middle */
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    CHECK_INT(parse_at(path, "[", 1, 0, &file), ADAMOD_ERROR_FORMAT);
    CHECK_HAS(adamod__last_message(), "ppp...ppp");
    CHECK_HAS(adamod__last_message(), "p: header byte 0: expected '{', found '['");
}

/* ---- Files that are wrong ---------------------------------------------------------------------------------------- */

static void expect_bad_file(adamod_status status, const char *fault) {
    adamod__st_file file;
    adamod__fail(ADAMOD_OK, "%s", "");
    CHECK_INT(open_file(&file), status);
    CHECK_HAS(adamod__last_message(), FILE_NAME ": ");
    CHECK_HAS(adamod__last_message(), fault);
    adamod__st_close(&file);
}

TEST(malformed_files) {
    begin();
    expect_bad_file(ADAMOD_ERROR_IO, "cannot open: No such file");
    put_file(FILE_NAME, "", 0);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "0 bytes are too few");
    put_file(FILE_NAME, "\x02\0\0\0\0\0\0", 7);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "7 bytes are too few");
    put_parts(0, "", 0);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "header is empty");
    put_parts(3, "{}", 0);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "header length 3 exceeds the file's 10 bytes");
    put_parts(123456789, "{}", 78);
    expect_bad_file(ADAMOD_ERROR_FORMAT, FILE_NAME ": header length 123456789 exceeds the file's 88 bytes");
    put_parts(UINT64_MAX, "{}", 0);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "header length 18446744073709551615 exceeds");
    put_parts(UINT64_MAX - 7, "{}", 0);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "header length 18446744073709551608 exceeds");
    put_parts(2, "{}", 1);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "the tensors end at byte 0 of the data, which has 1 bytes");
    put_parts(strlen(ONE "}"), ONE "}", 7);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "[0, 8] are not a range within 7 bytes");
    put_parts(100000001, "{}", 0);
    CHECK_INT(truncate(FILE_NAME, 200000000), 0);
    expect_bad_file(ADAMOD_ERROR_FORMAT, "header length 100000001 exceeds the limit of 100000000 bytes");
}

TEST(special_files) {
    begin();
    CHECK_INT(mkdir(FILE_NAME, 0777), 0);
    expect_bad_file(ADAMOD_ERROR_IO, "not a regular file");
    CHECK_INT(adamod__st_write(FILE_NAME, NULL, 0, samples, 1), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "exists and is not a regular file");
    begin(); /* removes it */
    CHECK_INT(mkfifo(FILE_NAME, 0666), 0);
    expect_bad_file(ADAMOD_ERROR_IO, "not a regular file");
    CHECK_INT(adamod__st_write(FILE_NAME, NULL, 0, samples, 1), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "exists and is not a regular file");
    CHECK_INT(scratch_files(), 1);
}

TEST(shrunk_while_open) {
    adamod__st_file file;
    float data[2];
    begin();
    put_parts(strlen(ONE "}"), ONE "}", 8);
    if (!CHECK_INT(open_file(&file), ADAMOD_OK)) return;
    CHECK_INT(truncate(FILE_NAME, (off_t)(8 + strlen(ONE "}") + 5)), 0);
    CHECK_INT(adamod__st_read(&file, &file.entries[0], data), ADAMOD_ERROR_FORMAT);
    CHECK_HAS(adamod__last_message(), FILE_NAME ": ends at byte 67, expected 3 more bytes");
    adamod__st_close(&file);
}

TEST(reading_without_file) {
    adamod__st_file file, empty = {0};
    float data[2];
    int descriptor_0 = fcntl(0, F_GETFD);
    if (!CHECK_INT(parse(ONE "}", strlen(ONE "}"), 8, &file), ADAMOD_OK)) return;
    CHECK_INT(adamod__st_read(&file, &file.entries[0], data), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod__last_message(), "no file is open");
    adamod__st_close(&file);
    adamod__st_close(&file);
    adamod__st_close(&empty);
    adamod__st_close(NULL);
    CHECK_INT(fcntl(0, F_GETFD), descriptor_0); /* closing an empty one must not close this */
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

enum { MANY = 100000 };

static adamod__st_tensor *many_tensors(void) {
    adamod__st_tensor *tensors = calloc(MANY, sizeof *tensors);
    if (!tensors) abort();
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%d.weight", i * 7919 % MANY);
        tensors[i] = (adamod__st_tensor){.name = strdup(name), .dtype = ADAMOD__ST_F32, .ndim = 1, .shape = {i % 3}};
    }
    return tensors;
}

TEST(many_tensors) {
    adamod__st_tensor *tensors = many_tensors();
    adamod__st_plan plan = {0};
    adamod__st_file file;
    CHECK_INT(adamod__st_plan_make("x", NULL, 0, tensors, MANY, &plan), ADAMOD_OK);
    CHECK_INT(parse(plan.header + 8, plan.header_size - 8, 399996, &file), ADAMOD_ERROR_FORMAT);
    CHECK_HAS(adamod__last_message(), "damaged: the header's CRC-32 is ");
    adamod__st_plan_seal(&plan);
    CHECK_INT(parse(plan.header + 8, plan.header_size - 8, 399996, &file), ADAMOD_OK);
    CHECK_INT(file.n_entries, MANY);
    int found = 0;
    for (int i = 0; i < MANY; i++) {
        const adamod__st_entry *e = adamod__st_find(&file, tensors[i].name);
        found += e && e->shape[0] == tensors[i].shape[0];
    }
    CHECK_INT(found, MANY);
    adamod__st_close(&file);
    adamod__st_plan_free(&plan);

    free((char *)tensors[0].name);
    tensors[0].name = strdup(tensors[MANY - 1].name);
    CHECK_INT(adamod__st_plan_make("x", NULL, 0, tensors, MANY, &plan), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod__last_message(), "appears twice");
    for (int i = 0; i < MANY; i++) free((char *)tensors[i].name);
    free(tensors);
}

/* Offsets above 4 GiB; the file is sparse and takes no space. */
TEST(large_offsets) {
    static const char header[] = "{\"big\":{\"dtype\":\"U8\",\"shape\":[4294967296],\"data_offsets\":[0,4294967296]},"
                                 "\"end\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4294967296,4294967300]}}";
    const uint64_t end = 8 + sizeof header - 1 + 4294967296;
    adamod__st_file file;
    float value = 0;
    begin();
    put_parts(sizeof header - 1, header, 0);
    int fd = open(FILE_NAME, O_WRONLY);
    if (fd < 0 || pwrite(fd, &weight[5], 4, (off_t)end) != 4) {
        if (fd >= 0) close(fd);
        SKIP("no large sparse files here");
    }
    close(fd);
    if (!CHECK_INT(open_file(&file), ADAMOD_OK)) return;
    CHECK_INT(adamod__st_read(&file, adamod__st_find(&file, "end"), &value), ADAMOD_OK);
    CHECK_CLOSE(value, 5, 0);
    adamod__st_close(&file);
}

TEST(large_tensor) {
    /* 4.4 GB, which no single write or pread moves; what a size_t of 32 bits cannot count is not tried there */
    const int64_t n = SIZE_MAX > UINT32_MAX ? 1100000000 : 1000;
    adamod__st_file file;
    begin();
    if (!getenv("ADAMOD_TEST_LARGE")) SKIP("ADAMOD_TEST_LARGE is not set");
    float *data = mmap(NULL, (size_t)n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(data != MAP_FAILED)) return;
    for (int64_t i = 0; i < n; i += 1000) data[i] = (float)(i % 16777216);
    adamod__st_tensor tensor = {"t", ADAMOD__ST_F32, 1, {n}, data};
    CHECK_INT(adamod__st_write(FILE_NAME, NULL, 0, &tensor, 1), ADAMOD_OK);
    memset(data, 1, (size_t)n * 4);
    CHECK_INT(open_file(&file), ADAMOD_OK);
    CHECK_INT(adamod__st_read(&file, &file.entries[0], data), ADAMOD_OK);
    int64_t wrong_values = 0;
    for (int64_t i = 0; i < n; i++) wrong_values += data[i] != (i % 1000 ? 0.0f : (float)(i % 16777216));
    CHECK_INT(wrong_values, 0);
    adamod__st_close(&file);
    munmap(data, (size_t)n * 4);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void expect_refused(const adamod__st_pair *metadata, size_t n_metadata, const adamod__st_tensor *tensors,
                           size_t n_tensors, const char *fault) {
    CHECK_INT(adamod__st_write(FILE_NAME, metadata, n_metadata, tensors, n_tensors), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod__last_message(), FILE_NAME ": ");
    CHECK_HAS(adamod__last_message(), fault);
    CHECK_INT(scratch_files(), 0);
}

TEST(arguments_of_write) {
    const adamod__st_tensor good = samples[0];
    adamod__st_tensor t[2] = {good, good};
    begin();
    expect_refused(NULL, 0, t, 2, "tensor \"weight\" appears twice");
    t[1].dtype = ADAMOD__ST_U8;
    expect_refused(NULL, 0, t, 2, "tensor \"weight\" appears twice");
    *t = (adamod__st_tensor){NULL, ADAMOD__ST_F32, 0, {0}, weight};
    expect_refused(NULL, 0, t, 1, "has no name");
    *t = (adamod__st_tensor){"__metadata__", ADAMOD__ST_F32, 0, {0}, weight};
    expect_refused(NULL, 0, t, 1, "cannot have the name \"__metadata__\"");
    *t = (adamod__st_tensor){"a\xff", ADAMOD__ST_F32, 0, {0}, weight};
    expect_refused(NULL, 0, t, 1, "the name is not UTF-8");
    *t = (adamod__st_tensor){"a\xe2\x82", ADAMOD__ST_F32, 0, {0}, weight};
    expect_refused(NULL, 0, t, 1, "the name is not UTF-8");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_DTYPES, 0, {0}, weight};
    expect_refused(NULL, 0, t, 1, "unknown dtype 22");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_F32, 9, {0}, weight};
    expect_refused(NULL, 0, t, 1, "9 dimensions, expected 0 to 8");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_F32, -1, {0}, weight};
    expect_refused(NULL, 0, t, 1, "-1 dimensions, expected 0 to 8");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_F32, 2, {1, -3}, weight};
    expect_refused(NULL, 0, t, 1, "dimension 1 is -3, expected >= 0");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_F32, 2, {INT64_MAX, 4}, weight};
    expect_refused(NULL, 0, t, 1, "the shape's size overflows");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_F4, 1, {3}, weight};
    expect_refused(NULL, 0, t, 1, "not a whole number of bytes");
    *t = (adamod__st_tensor){"t", ADAMOD__ST_F32, 1, {1}, NULL};
    expect_refused(NULL, 0, t, 1, "tensor \"t\" has no data");
    adamod__st_tensor huge[4];
    for (int i = 0; i < 4; i++)
        huge[i] = (adamod__st_tensor){&"a\0b\0c\0d" [2 * i], ADAMOD__ST_U8, 1, { (INT64_C(1) << 61) - 8 }, weight};
    expect_refused(NULL, 0, huge, 4, "tensor \"d\": the data is too large for a file");
}

TEST(metadata_of_write) {
    const adamod__st_pair twice[2] = {{"k", "1"}, {"k", "2"}}, no_key = {NULL, "v"}, no_value = {"k", NULL};
    const adamod__st_pair bad_key = {"\xff", "v"}, bad_value = {"k", "\xc0\x80"};
    begin();
    expect_refused(twice, 2, NULL, 0, "metadata \"k\" appears twice");
    expect_refused(&(adamod__st_pair){"crc32", "01234567"}, 1, NULL, 0,
                   "metadata \"crc32\": the checksums are made here");
    expect_refused(&(adamod__st_pair){"crc32.data", ""}, 1, NULL, 0,
                   "metadata \"crc32.data\": the checksums are made here");
    expect_refused(&no_key, 1, NULL, 0, "metadata 0 has no key or no value");
    expect_refused(&no_value, 1, NULL, 0, "metadata 0 has no key or no value");
    expect_refused(&bad_key, 1, NULL, 0, "is not UTF-8");
    expect_refused(&bad_value, 1, NULL, 0, "metadata \"k\" is not UTF-8");
    char *longest = malloc(ADAMOD__ST_MAX_HEADER);
    if (!longest) abort();
    memset(longest, 'v', ADAMOD__ST_MAX_HEADER - 1);
    longest[ADAMOD__ST_MAX_HEADER - 1] = '\0';
    const adamod__st_pair too_long = {"k", longest};
    expect_refused(&too_long, 1, NULL, 0, "the header would exceed the limit of 100000000 bytes");
    free(longest);
}

/* A limit on the size of files stands in for a full disk. */
TEST(failed_write_keeps_the_old_file) {
    static char big[100000];
    const adamod__st_tensor tensor = {"t", ADAMOD__ST_U8, 1, {sizeof big}, big};
    struct rlimit before, limit;
    char bytes[16];
    begin();
    put_file(FILE_NAME, "old", 3);
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &before)) SKIP("no limit on the size of files");
    limit = before;
    limit.rlim_cur = 50000;
    if (setrlimit(RLIMIT_FSIZE, &limit)) SKIP("no limit on the size of files");
    adamod_status status = adamod__st_write(FILE_NAME, NULL, 0, &tensor, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_INT(status, ADAMOD_ERROR_IO);
    CHECK_STR(adamod__last_message(), FILE_NAME ": cannot write: File too large");
    CHECK_INT(scratch_files(), 1);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 3);
    CHECK(!memcmp(bytes, "old", 3));
}

static void expect_failed_write(const char *line) {
    char bytes[16];
    put_file(FILE_NAME, "old", 3);
    adamod_status status = adamod__st_write(FILE_NAME, NULL, 0, samples, n_samples);
    memset(&faults, 0, sizeof faults);
    CHECK_INT(status, ADAMOD_ERROR_IO);
    CHECK_STR(adamod__last_message(), line);
    CHECK_INT(scratch_files(), 1);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 3);
    CHECK(!memcmp(bytes, "old", 3));
}

TEST(failing_system_calls) {
    begin();
    faults.write_error = ENOSPC;
    expect_failed_write(FILE_NAME ": cannot write: No space left on device");
    adamod__st_plan plan;
    CHECK_INT(adamod__st_plan_make("x", NULL, 0, samples, n_samples, &plan), ADAMOD_OK);
    faults.write_error = ENOSPC;
    faults.write_room = plan.header_size + 20; /* into the data */
    adamod__st_plan_free(&plan);
    expect_failed_write(FILE_NAME ": cannot write: No space left on device");
    faults.sync_error = EIO;
    expect_failed_write(FILE_NAME ": cannot sync: Input/output error");
    faults.rename_error = EACCES;
    expect_failed_write(FILE_NAME ": cannot rename the temporary file to it: Permission denied");
}

/* The file is in place by then. */
TEST(failing_directory_sync) {
    adamod__st_file file;
    begin();
    for (int i = 0; i < 2; i++) {
        faults.sync_error = i ? EINVAL : EIO; /* the first is a failure, the other a file system's limitation */
        faults.sync_skip = 1;
        adamod_status status = adamod__st_write(FILE_NAME, NULL, 0, samples, n_samples);
        memset(&faults, 0, sizeof faults);
        CHECK_INT(status, i ? ADAMOD_OK : ADAMOD_ERROR_IO);
        CHECK_STR(adamod__last_message(), FILE_NAME ": written, but cannot sync its directory: Input/output error");
        CHECK_INT(scratch_files(), 1);
        CHECK_INT(open_file(&file), ADAMOD_OK);
        adamod__st_close(&file);
    }
}

TEST(interrupted_and_partial_calls) {
    adamod__st_file file;
    float w[6] = {0};
    begin();
    faults.interrupts = 3;
    faults.most = 5;
    CHECK_INT(adamod__st_write(FILE_NAME, sample_metadata, 3, samples, n_samples), ADAMOD_OK);
    faults.interrupts = 3;
    if (CHECK_INT(open_file(&file), ADAMOD_OK)) {
        CHECK_INT(file.n_entries, n_samples);
        faults.interrupts = 2;
        CHECK_INT(adamod__st_read(&file, adamod__st_find(&file, "weight"), w), ADAMOD_OK);
        CHECK(!memcmp(w, weight, sizeof w));
        adamod__st_close(&file);
    }
    memset(&faults, 0, sizeof faults);
}

TEST(places_that_cannot_be_written) {
    begin();
    CHECK_INT(adamod__st_write("none/x", NULL, 0, samples, 1), ADAMOD_ERROR_IO);
    CHECK_STR(adamod__last_message(), "none/x: cannot create a temporary file beside it: No such file or directory");
    CHECK_INT(adamod__st_write("", NULL, 0, samples, 1), ADAMOD_ERROR_IO);
    CHECK_INT(symlink("none/y", "link"), 0);
    CHECK_INT(adamod__st_write("link", NULL, 0, samples, 1), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "link: cannot follow the symbolic link");
    CHECK_INT(adamod__st_write("/dev/null", NULL, 0, samples, 1), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "/dev/null: exists and is not a regular file");
    CHECK_INT(scratch_files(), 1);
}

TEST(existing_files) {
    struct stat st;
    adamod__st_file file;
    begin();
    put_file(FILE_NAME, "old", 3);
    CHECK_INT(chmod(FILE_NAME, 0600), 0);
    CHECK_INT(symlink(FILE_NAME, "link"), 0);
    put_file(".adamod-0.tmp", "stale", 5);
    CHECK_INT(adamod__st_write("link", NULL, 0, samples, n_samples), ADAMOD_OK);
    CHECK(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(lstat(FILE_NAME, &st) == 0 && S_ISREG(st.st_mode));
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK_INT(open_file(&file), ADAMOD_OK);
    CHECK_INT(file.n_entries, n_samples);
    adamod__st_close(&file);
    CHECK_INT(scratch_files(), 2); /* what another process left is gone */
}

RUN_TESTS(ENTRY(round_trip), ENTRY(empty_file), ENTRY(written_bytes), ENTRY(file_from_python), ENTRY(dtypes),
          ENTRY(json_forms), ENTRY(malformed_headers), ENTRY(truncated_headers), ENTRY(deep_nesting), ENTRY(messages),
          ENTRY(malformed_files), ENTRY(special_files), ENTRY(shrunk_while_open), ENTRY(reading_without_file),
          ENTRY(many_tensors), ENTRY(large_offsets), ENTRY(large_tensor), ENTRY(arguments_of_write),
          ENTRY(metadata_of_write), ENTRY(failed_write_keeps_the_old_file), ENTRY(failing_system_calls),
          ENTRY(failing_directory_sync), ENTRY(interrupted_and_partial_calls), ENTRY(places_that_cannot_be_written),
          ENTRY(existing_files))
