/* Tests of trainer/data/npy.c. They work in a directory of their own under TMPDIR (or /tmp).
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "data/npy.h"
#include "check.h"
#include "io_faults.h"
#include "scratch.h"
#include "core/error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_NAME "x.npy"

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* An empty working directory, the same for every test. */
static void begin(void) {
    enter_scratch(false);
    adamod__fail(ADAMOD_OK, "%s", "");
}

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

ssize_t read(int fd, void *data, size_t n) {
    if (faults.interrupts && faults.interrupts--) return fault(EINTR);
    return syscall(SYS_read, fd, data, at_most(n));
}

/* ---- Arrays from any header -------------------------------------------------------------------------------------- */

/* The bytes of a file with this header text and data; from malloc, and not one byte longer. */
static char *build(int version, const char *header, const void *data, size_t data_size, size_t *n) {
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    *n = start + length + data_size;
    char *bytes = malloc(*n);
    if (!bytes) abort();
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (char)version;
    bytes[7] = 0;
    for (size_t i = 8; i < start; i++) bytes[i] = (char)(unsigned char)(length >> (8 * (i - 8)) & 0xff);
    memcpy(bytes + start, header, length);
    if (data_size) memcpy(bytes + start + length, data, data_size);
    return bytes;
}

static int parse(int version, const char *header, const void *data, size_t data_size, npy_array *out) {
    size_t n;
    char *bytes = build(version, header, data, data_size, &n);
    adamod__fail(ADAMOD_OK, "%s", "");
    int result = npy_parse(bytes, n, "x", out);
    free(bytes);
    return result;
}

#define DICT(descr, fortran, shape) "{'descr': " descr ", 'fortran_order': " fortran ", 'shape': " shape ", }"
static const unsigned char one_two_le[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40};
static const unsigned char one_two_be[] = {0x3f, 0x80, 0, 0, 0x40, 0, 0, 0};

TEST(headers) {
    static const struct {
        const char *header;
        int big_endian;
        npy_type type;
        int ndim;
        int64_t shape[3];
    } cases[] = {
        {DICT("'<f4'", "False", "(2,)") "   \n", 0, NPY_F32, 1, {2}},
        {DICT("'>f4'", "False", "(2,)") "\n", 1, NPY_F32, 1, {2}},
        {DICT("'=f4'", "False", "(2,)"), 0, NPY_F32, 1, {2}},
        {DICT("'|f4'", "False", "(2,)"), 0, NPY_F32, 1, {2}},
        {DICT("'f4'", "False", "(2,)"), 0, NPY_F32, 1, {2}},
        {DICT("'<f4'", "True", "(2,)"), 0, NPY_F32, 1, {2}},
        {DICT("'<f4'", "False", "(1, 2)"), 0, NPY_F32, 2, {1, 2}},
        {DICT("'<f4'", "False", "(1, 2, )"), 0, NPY_F32, 2, {1, 2}},
        {DICT("'<f4'", "False", "(2L, 1L)"), 0, NPY_F32, 2, {2, 1}},
        {DICT("'<f4'", "False", "( 1,2 ,1 )"), 0, NPY_F32, 3, {1, 2, 1}},
        {DICT("'<f8'", "False", "()"), 0, NPY_F64, 0, {0}},
        {DICT("'<f8'", "True", "()"), 0, NPY_F64, 0, {0}},
        {"{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}", 0, NPY_F32, 1, {2}},
        {" \t{ 'fortran_order' : False ,\n'shape' : ( 2 , ) , 'descr' : '<f4' }\r\n", 0, NPY_F32, 1, {2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int version = 1; version <= 3; version++) {
            npy_array a;
            if (!CHECK_INT(parse(version, cases[i].header, cases[i].big_endian ? one_two_be : one_two_le, 8, &a), 0)) {
                printf("%s: %s\n", cases[i].header, adamod__last_message());
                continue;
            }
            CHECK_INT(a.type, cases[i].type);
            CHECK_INT(a.ndim, cases[i].ndim);
            CHECK(!memcmp(a.shape, cases[i].shape, (size_t)a.ndim * sizeof a.shape[0]));
            CHECK_INT(a.count, a.type == NPY_F64 ? 1 : 2);
            if (a.type == NPY_F32) CHECK(((float *)a.data)[0] == 1 && ((float *)a.data)[1] == 2);
            npy_free(&a);
        }
    }
}

TEST(doubles_of_either_order) {
    static const unsigned char le[] = {0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, be[] = {0xbf, 0xf8, 0, 0, 0, 0, 0, 0};
    npy_array a;
    CHECK_INT(parse(1, DICT("'<f8'", "False", "(1,)"), le, 8, &a), 0);
    CHECK_CLOSE(*(double *)a.data, -1.5, 0);
    npy_free(&a);
    CHECK_INT(parse(1, DICT("'>f8'", "False", "(1,)"), be, 8, &a), 0);
    CHECK_CLOSE(*(double *)a.data, -1.5, 0);
    npy_free(&a);
    npy_free(&a);
}

TEST(empty_arrays) {
    npy_array a;
    CHECK_INT(parse(1, DICT("'<f4'", "False", "(0,)"), NULL, 0, &a), 0);
    CHECK_INT(a.count, 0);
    CHECK(a.data);
    npy_free(&a);
    CHECK_INT(parse(1, DICT("'<f4'", "False", "(3, 0, 4)"), NULL, 0, &a), 0);
    CHECK_INT(a.count, 0);
    CHECK_INT(a.shape[2], 4);
    npy_free(&a);
}

/* ---- Files that are wrong ---------------------------------------------------------------------------------------- */

TEST(malformed_headers) {
    static const struct {
        const char *header;
        const char *fault;
    } cases[] = {
        {"", "header ends where '{' of a dict was expected"},
        {"   ", "header ends where '{' of a dict was expected"},
        {"()", "header byte 0: expected '{' of a dict, found '('"},
        {"{", "header ends where a key in quotes was expected"},
        {"{}", "key 'descr' is missing"},
        {"{'descr': '<f4', 'shape': (2,)}", "key 'fortran_order' is missing"},
        {"{'descr': '<f4', 'fortran_order': False}", "key 'shape' is missing"},
        {"{'descr': '<f4', 'descr': '<f4'}", "key 'descr' is given twice"},
        {"{'order': 1}", "unknown key 'order', expected descr, fortran_order and shape"},
        {"{descr: 1}", "header byte 1: expected a key in quotes, found 'd'"},
        {"{'descr", "header ends where the closing quote was expected"},
        {"{'de\\x73cr': 1}", "expected at most 60 plain characters in quotes, found '\\'"},
        {"{'d\xc3\xa9': 1}", "expected at most 60 plain characters in quotes, found byte 0xc3"},
        {"{'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa': 1}", "at most 60 plain characters"},
        {"{'descr' '<f4'}", "expected ':', found '''"},
        {"{'descr': '<f4' 'shape': (2,)}", "expected ',' or '}', found '''"},
        {"{'descr': f4}", "expected a dtype in quotes, found 'f'"},
        {"{'descr': [('a', '<f4')]}", "a structured dtype (header byte 10)"},
        {"{'descr': ('<f4', (2,))}", "a structured dtype"},
        {DICT("'|O'", "False", "(2,)"), "dtype '|O' holds Python objects, expected '<f4' or '<f8'"},
        {DICT("'O'", "False", "(2,)"), "dtype 'O' holds Python objects"},
        {DICT("'<i4'", "False", "(2,)"), "dtype '<i4' cannot be read, expected '<f4' or '<f8'"},
        {DICT("'<f2'", "False", "(2,)"), "dtype '<f2' cannot be read"},
        {DICT("'<f44'", "False", "(2,)"), "dtype '<f44' cannot be read"},
        {DICT("''", "False", "(2,)"), "dtype '' cannot be read"},
        {DICT("'<'", "False", "(2,)"), "dtype '<' cannot be read"},
        {DICT("'<f4'", "0", "(2,)"), "expected True or False, found '0'"},
        {DICT("'<f4'", "false", "(2,)"), "expected True or False, found 'f'"},
        {DICT("'<f4'", "Falsetto", "(2,)"), "expected ',' or '}', found 't'"},
        {DICT("'<f4'", "True", "(2, 1)"), "fortran_order is True with 2 dimensions, expected C order"},
        {DICT("'<f4'", "False", "2"), "expected '(' of a tuple, found '2'"},
        {DICT("'<f4'", "False", "[2]"), "expected '(' of a tuple, found '['"},
        {DICT("'<f4'", "False", "(2)"), "expected ',' after the first dimension, found ')'"},
        {DICT("'<f4'", "False", "(2 1)"), "expected ',' after the first dimension, found '1'"},
        {DICT("'<f4'", "False", "(,)"), "expected a dimension, found ','"},
        {DICT("'<f4'", "False", "(2,,)"), "expected a dimension, found ','"},
        {DICT("'<f4'", "False", "(-2,)"), "expected a dimension, found '-'"},
        {DICT("'<f4'", "False", "(1, 2]"), "expected ',' or ')', found ']'"},
        {"{'shape': (2,", "header ends where a dimension was expected"},
        {DICT("'<f4'", "False", "(2.0,)"), "expected ',' after the first dimension, found '.'"},
        {DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,2)"), "shape has more than 8 dimensions"},
        {DICT("'<f4'", "False", "(9223372036854775808,)"), "a dimension is above 9223372036854775807"},
        {DICT("'<f4'", "False", "(9223372036854775807,)"), "the shape's size overflows at dimension 0"},
        {DICT("'<f4'", "False", "(4294967296, 4294967296)"), "overflows at dimension "},
        {DICT("'<f4'", "False", "(2,)") " x", "expected nothing after the dict, found 'x'"},
        {DICT("'<f4'", "False", "(2,)") "\x01", "expected nothing after the dict, found byte 0x01"},
        {DICT("'<f4'", "False", "(3,)"), "truncated: 8 bytes of data, the shape needs 12"},
        {DICT("'<f4'", "False", "(1,)"), "4 bytes after the end of the array, expected none"},
        {DICT("'<f4'", "False", "(10000, 10000)"), "truncated: 8 bytes of data, the shape needs 400000000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        npy_array a;
        int version = 1 + (int)(i % 3);
        if (!CHECK_INT(parse(version, cases[i].header, one_two_le, 8, &a), -1)) printf("%s\n", cases[i].header);
        CHECK_HAS(adamod__last_message(), "x: ");
        CHECK_HAS(adamod__last_message(), cases[i].fault);
        CHECK(!a.data);
        npy_free(&a);
    }
}

static void expect_bad_bytes(const char *text, size_t n, const char *fault) {
    npy_array a;
    char *bytes = malloc(n ? n : 1);
    if (!bytes) abort();
    memcpy(bytes, text, n);
    adamod__fail(ADAMOD_OK, "%s", "");
    CHECK_INT(npy_parse(bytes, n, "x", &a), -1);
    CHECK_HAS(adamod__last_message(), fault);
    put_file(FILE_NAME, bytes, n);
    adamod__fail(ADAMOD_OK, "%s", "");
    CHECK_INT(npy_read(FILE_NAME, &a), -1);
    CHECK_HAS(adamod__last_message(), FILE_NAME ": ");
    CHECK_HAS(adamod__last_message(), fault);
    free(bytes);
}

TEST(malformed_files) {
    begin();
    expect_bad_bytes("", 0, "not a .npy file: it does not begin with \\x93NUMPY");
    expect_bad_bytes("\x93NUMP", 5, "not a .npy file");
    expect_bad_bytes("\x93NUMPY", 6, "ends within the version, at byte 6");
    expect_bad_bytes("PK\3\4 a zip file", 15, "not a .npy file");
    expect_bad_bytes("\x93NUMPY\1\0", 8, "ends within the header's length, at byte 8");
    expect_bad_bytes("\x93NUMPY\1\0\0", 9, "ends within the header's length, at byte 9");
    expect_bad_bytes("\x93NUMPY\2\0\0\0\0", 11, "ends within the header's length, at byte 11");
    expect_bad_bytes("\x93NUMPY\0\0\0\0", 10, "format version 0.0, expected 1.0, 2.0 or 3.0");
    expect_bad_bytes("\x93NUMPY\4\0\0\0\0\0", 12, "format version 4.0, expected");
    expect_bad_bytes("\x93NUMPY\1\1\0\0", 10, "format version 1.1, expected");
    expect_bad_bytes("\x93NUMPY\1\0\0\0", 10, "header ends where '{' of a dict was expected");
    expect_bad_bytes("\x93NUMPY\1\0\3\0{}", 12, "header length 3 exceeds the file's 12 bytes");
    expect_bad_bytes("\x93NUMPY\1\0\377\377{}", 12, "header length 65535 exceeds the file's 12 bytes");
    expect_bad_bytes("\x93NUMPY\2\0\377\377\377\377{}", 14, "header length 4294967295 exceeds the file's 14 bytes");
    expect_bad_bytes("\x93NUMPY\1\0\1\0{}", 12, "header ends where a key in quotes was expected");
}

/* No beginning of a file is a file. */
TEST(truncated_files) {
    size_t n;
    npy_array a;
    begin();
    char *bytes = build(2, DICT("'<f4'", "False", "(2,)") "\n", one_two_le, 8, &n);
    for (size_t i = 0; i < n; i++) expect_bad_bytes(bytes, i, "");
    put_file(FILE_NAME, bytes, n);
    CHECK_INT(npy_read(FILE_NAME, &a), 0);
    npy_free(&a);
    free(bytes);
}

TEST(special_files) {
    npy_array a;
    npy_writer *w;
    begin();
    CHECK_INT(npy_read(FILE_NAME, &a), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": cannot open: No such file or directory");
    CHECK_INT(mkfifo(FILE_NAME, 0666), 0);
    CHECK_INT(npy_read(FILE_NAME, &a), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": not a regular file");
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 0, NULL), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": exists and is not a regular file");
    CHECK(!w);
    CHECK_INT(npy_read(".", &a), -1);
    CHECK_STR(adamod__last_message(), ".: not a regular file");
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static int write_all(npy_type type, int ndim, const int64_t *shape, const void *data, size_t bytes) {
    npy_writer *w;
    if (npy_writer_open(&w, FILE_NAME, type, ndim, shape)) return -1;
    if (npy_writer_append(w, data, bytes)) {
        npy_writer_abort(w);
        return -1;
    }
    return npy_writer_close(w);
}

/* NumPy 2 writes this for np.float32([[0, 1, 2], [3, 4, 5]]). */
TEST(written_bytes) {
    static const char expected[] = "\x93NUMPY\1\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }     "
                                   "                                                     \n"
                                   "\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@";
    const float data[6] = {0, 1, 2, 3, 4, 5};
    char bytes[256];
    begin();
    CHECK_INT(write_all(NPY_F32, 2, (int64_t[]){2, 3}, data, sizeof data), 0);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), sizeof expected - 1);
    CHECK(!memcmp(bytes, expected, sizeof expected - 1));
    CHECK_INT(scratch_files(), 1);
}

TEST(round_trips) {
    static const int64_t shapes[][NPY_MAX_DIMS] = {
        {0},
        {5},
        {2, 3},
        {0, 3},
        {1, 1, 1, 1, 1, 1, 1, 2},
        {0, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    static const int ndims[] = {0, 1, 2, 2, 8, 8};
    static const size_t counts[] = {1, 5, 6, 0, 2, 0};
    const double values[6] = {1.5, -2, 1e300, 0, -1e-300, 3};
    begin();
    for (size_t i = 0; i < sizeof ndims / sizeof ndims[0]; i++) {
        npy_array a;
        CHECK_INT(write_all(NPY_F64, ndims[i], shapes[i], values, counts[i] * 8), 0);
        if (!CHECK_INT(npy_read(FILE_NAME, &a), 0)) continue;
        CHECK_INT(a.type, NPY_F64);
        CHECK_INT(a.ndim, ndims[i]);
        CHECK_INT(a.count, counts[i]);
        CHECK(!memcmp(a.shape, shapes[i], (size_t)a.ndim * sizeof a.shape[0]));
        CHECK(!memcmp(a.data, values, a.count * 8));
        npy_free(&a);
    }
}

/* Pieces of all sizes, around that of the writer's buffer and above. */
TEST(many_pieces) {
    enum { N = 500000 };
    static const size_t pieces[] = {1, 3, 1000, 16383, 16384, 16385, 100000, 0, 7};
    float *data = malloc(N * sizeof *data);
    npy_writer *w;
    npy_array a;
    begin();
    if (!data) abort();
    for (int i = 0; i < N; i++) data[i] = (float)i;
    if (!CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 1, (int64_t[]){N}), 0)) return;
    for (size_t at = 0, i = 0; at < N; i++) {
        size_t n = pieces[i % (sizeof pieces / sizeof pieces[0])];
        if (n > N - at) n = N - at;
        CHECK_INT(npy_writer_append(w, data + at, n * sizeof *data), 0);
        at += n;
    }
    CHECK_INT(npy_writer_close(w), 0);
    CHECK_INT(npy_read(FILE_NAME, &a), 0);
    CHECK_INT(a.count, N);
    CHECK(a.data && !memcmp(a.data, data, N * sizeof *data));
    npy_free(&a);
    free(data);
}

TEST(arguments_of_open) {
    npy_writer *w;
    begin();
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 9, (int64_t[9]){0}), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": 9 dimensions, expected 0 to 8");
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, -1, NULL), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": -1 dimensions, expected 0 to 8");
    CHECK_INT(npy_writer_open(&w, FILE_NAME, (npy_type)7, 0, NULL), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": unknown type 7");
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 1, (int64_t[]){-1}), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": dimension 0 is -1, expected >= 0");
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 2, (int64_t[]){3, INT64_MAX}), -1);
    CHECK_HAS(adamod__last_message(), "the shape's size overflows at dimension 1");
    CHECK_INT(npy_writer_open(&w, "none/x", NPY_F32, 0, NULL), -1);
    CHECK_STR(adamod__last_message(), "none/x: cannot create a temporary file beside it: No such file or directory");
    CHECK(!w);
    npy_writer_abort(NULL);
    CHECK_INT(scratch_files(), 0);
}

TEST(too_few_and_too_many_bytes) {
    const float data[3] = {1, 2, 3};
    char bytes[8];
    npy_writer *w;
    begin();
    put_file(FILE_NAME, "old", 3);
    CHECK_INT(write_all(NPY_F32, 1, (int64_t[]){3}, data, 8), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": 8 bytes were written, the shape needs 12");
    CHECK_INT(write_all(NPY_F32, 1, (int64_t[]){2}, data, 12), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": 4 bytes too many: the shape needs 8");
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 1, (int64_t[]){2}), 0);
    CHECK_INT(npy_writer_append(w, data, 12), -1);
    CHECK_INT(npy_writer_append(w, data, 8), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": an earlier write failed");
    CHECK_INT(npy_writer_close(w), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": an earlier write failed");
    CHECK_INT(scratch_files(), 1);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 3);
}

TEST(abort_removes_the_temporary_file) {
    npy_writer *w;
    begin();
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 1, (int64_t[]){2}), 0);
    CHECK_INT(scratch_files(), 1);
    npy_writer_abort(w);
    CHECK_INT(scratch_files(), 0);
}

/* A limit on the size of files stands in for a full disk. */
TEST(failed_write_keeps_the_old_file) {
    static char zeros[400000];
    struct rlimit before, limit;
    char bytes[8];
    begin();
    put_file(FILE_NAME, "old", 3);
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &before)) SKIP("no limit on the size of files");
    limit = before;
    limit.rlim_cur = 50000;
    if (setrlimit(RLIMIT_FSIZE, &limit)) SKIP("no limit on the size of files");
    int large = write_all(NPY_F32, 1, (int64_t[]){100000}, zeros, 400000); /* fails at once */
    int small = write_all(NPY_F32, 1, (int64_t[]){15000}, zeros, 60000);   /* fails when the buffer is written */
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_INT(large, -1);
    CHECK_INT(small, -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": cannot write: File too large");
    CHECK_INT(scratch_files(), 1);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 3);
}

static void expect_failed_write(const char *line) {
    const float data[2] = {1, 2};
    char bytes[8];
    put_file(FILE_NAME, "old", 3);
    int result = write_all(NPY_F32, 1, (int64_t[]){2}, data, sizeof data);
    memset(&faults, 0, sizeof faults);
    CHECK_INT(result, -1);
    CHECK_STR(adamod__last_message(), line);
    CHECK_INT(scratch_files(), 1);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 3);
}

TEST(failing_system_calls) {
    begin();
    faults.write_error = ENOSPC;
    expect_failed_write(FILE_NAME ": cannot write: No space left on device");
    faults.write_error = ENOSPC;
    faults.write_room = 130; /* into the data */
    expect_failed_write(FILE_NAME ": cannot write: No space left on device");
    faults.sync_error = EIO;
    expect_failed_write(FILE_NAME ": cannot sync: Input/output error");
    faults.rename_error = EACCES;
    expect_failed_write(FILE_NAME ": cannot rename the temporary file to it: Permission denied");
}

/* The file is in place by then. */
TEST(failing_directory_sync) {
    const float data[2] = {1, 2};
    npy_array a;
    begin();
    for (int i = 0; i < 2; i++) {
        faults.sync_error = i ? EINVAL : EIO; /* the first is a failure, the other a file system's limitation */
        faults.sync_skip = 1;
        int result = write_all(NPY_F32, 1, (int64_t[]){2}, data, sizeof data);
        memset(&faults, 0, sizeof faults);
        CHECK_INT(result, i ? 0 : -1);
        CHECK_STR(adamod__last_message(), FILE_NAME ": written, but cannot sync its directory: Input/output error");
        CHECK_INT(scratch_files(), 1);
        CHECK_INT(npy_read(FILE_NAME, &a), 0);
        npy_free(&a);
    }
}

TEST(interrupted_and_partial_calls) {
    const float data[6] = {0, 1, 2, 3, 4, 5};
    npy_array a;
    begin();
    faults.interrupts = 3;
    faults.most = 5;
    CHECK_INT(write_all(NPY_F32, 2, (int64_t[]){2, 3}, data, sizeof data), 0);
    faults.interrupts = 3;
    if (CHECK_INT(npy_read(FILE_NAME, &a), 0)) CHECK(!memcmp(a.data, data, sizeof data));
    npy_free(&a);
    memset(&faults, 0, sizeof faults);
}

TEST(dangling_link) {
    npy_writer *w;
    begin();
    CHECK_INT(symlink("none/y", FILE_NAME), 0);
    CHECK_INT(npy_writer_open(&w, FILE_NAME, NPY_F32, 0, NULL), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": cannot follow the symbolic link: No such file or directory");
    CHECK_INT(scratch_files(), 1);
}

TEST(existing_files) {
    struct stat st;
    npy_writer *w;
    npy_array a;
    const float value = 1;
    begin();
    put_file(FILE_NAME, "old", 3);
    CHECK_INT(chmod(FILE_NAME, 0600), 0);
    CHECK_INT(symlink(FILE_NAME, "link"), 0);
    put_file(".adamod-0.tmp", "stale", 5);
    CHECK_INT(npy_writer_open(&w, "link", NPY_F32, 0, NULL), 0);
    CHECK_INT(npy_writer_append(w, &value, 4), 0);
    CHECK_INT(npy_writer_close(w), 0);
    CHECK(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(lstat(FILE_NAME, &st) == 0 && S_ISREG(st.st_mode));
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK_INT(npy_read(FILE_NAME, &a), 0);
    npy_free(&a);
    CHECK_INT(scratch_files(), 2); /* what another process left is gone */
}

/* Data beyond 4 GiB is not asked of the machine's memory here, but its size is checked; the file is sparse. */
TEST(large_files) {
    size_t n;
    npy_array a;
    begin();
    if (SIZE_MAX <= UINT32_MAX) SKIP("a size_t has 32 bits");
    char *bytes = build(1, DICT("'<f8'", "False", "(65536, 65536, 2)"), NULL, 0, &n);
    put_file(FILE_NAME, bytes, n);
    free(bytes);
    if (truncate(FILE_NAME, (off_t)(n + (UINT64_C(1) << 36) - 1))) SKIP("no large sparse files here");
    CHECK_INT(npy_read(FILE_NAME, &a), -1);
    CHECK_STR(adamod__last_message(), FILE_NAME ": truncated: 68719476735 bytes of data, the shape needs 68719476736");
}

RUN_TESTS(ENTRY(headers), ENTRY(doubles_of_either_order), ENTRY(empty_arrays), ENTRY(malformed_headers),
          ENTRY(malformed_files), ENTRY(truncated_files), ENTRY(special_files), ENTRY(written_bytes),
          ENTRY(round_trips), ENTRY(many_pieces), ENTRY(arguments_of_open), ENTRY(too_few_and_too_many_bytes),
          ENTRY(abort_removes_the_temporary_file), ENTRY(failed_write_keeps_the_old_file), ENTRY(failing_system_calls),
          ENTRY(failing_directory_sync), ENTRY(interrupted_and_partial_calls), ENTRY(dangling_link),
          ENTRY(existing_files), ENTRY(large_files))
