/* Text as it comes: marks, line ends, what is packed, pipes.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "scratch.h"

#include "data/text_input.h"
#include "data/unpack.h"
#include "core/error.h"

#include <stdlib.h>
#include <unistd.h>

#define MARK "\xef\xbb\xbf"
#define SIZE(array) (sizeof(array) - 1)

/* "eins", "zwei", as `gzip -n` and `zstd` pack them. */
static const char gzip_bytes[] =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\x4b\xcd\xcc\x2b\xe6\xaa\x2a\x4f\xcd\xe4\x02\x00\x94\x9b"
    "\x82\xc2\x0a\x00\x00\x00";
static const char zstd_bytes[] =
    "\x28\xb5\x2f\xfd\x04\x58\x51\x00\x00\x65\x69\x6e\x73\x0a\x7a\x77\x65\x69\x0a\xe1\xde\x44\xfc";

/* Lines joined by '|', and a message after '!'. */
static const char *lines_of(const char *path) {
    static char all[4096];
    text_input *in;
    text_slice line;
    size_t used = 0;
    int got = text_input_open(&in, path);
    *all = 0;
    if (got == 0) {
        while ((got = text_input_line(in, &line)) > 0)
            used += (size_t)snprintf(all + used, sizeof all - used, "%.*s|", (int)line.n, line.bytes);
        text_input_close(in);
    }
    if (got < 0) {
        const char *colon = strstr(adamod__last_message(), ": "); /* the rest is the path */
        snprintf(all + used, sizeof all - used, "!%s", colon ? colon + 2 : adamod__last_message());
    }
    return all;
}

static const char *put(const char *bytes, size_t n) {
    enter_scratch(true);
    put_file("text", bytes, n);
    return "text";
}
#define LINES(literal) lines_of(put(literal, sizeof(literal) - 1))

TEST(lines_end_in_either_way) {
    CHECK_STR(LINES(""), "");
    CHECK_STR(LINES("a\nb"), "a|b|");
    CHECK_STR(LINES("a\r\n\r\n\nb\r\n"), "a|||b|");
    CHECK_STR(LINES("a\rb\n"), "a\rb|");
    CHECK_STR(LINES("\n"), "|");
}

TEST(a_mark_at_the_beginning_is_no_text) {
    CHECK_STR(LINES(MARK "a\nb\n"), "a|b|");
    CHECK_STR(LINES(MARK "\na\n"), "|a|");
    CHECK_STR(LINES(MARK), "");
    CHECK_STR(LINES("a\n" MARK "b\n"), "a|" MARK "b|"); /* elsewhere it is a character */
    CHECK_STR(LINES(MARK MARK "a"), MARK "a|");
    char *bytes;
    size_t n;
    if (CHECK_INT(text_input_read(put(MARK "a\n", 5), &bytes, &n), 0)) CHECK(n == 2 && memcmp(bytes, "a\n", 2) == 0);
    free(bytes);
    if (CHECK_INT(text_input_read(put("", 0), &bytes, &n), 0)) CHECK(n == 0 && bytes);
    free(bytes);
}

TEST(what_is_no_text_is_named) {
    CHECK_STR(LINES("a\nb\xff\n"), "a|!byte 2 is 0xff, which is not UTF-8 here");
    CHECK_STR(LINES("\xff\xfe"
                    "a\0"),
              "!the text is UTF-16, expected UTF-8");
    CHECK_STR(LINES("\xfe\xff\0a"), "!the text is UTF-16, expected UTF-8");
    CHECK_STR(LINES("\xfd\x37zXZ\0rest"), "!compressed with xz, which this build does not read: decompress it first");
    CHECK_STR(LINES("BZh91AY&SY"), "!compressed with bzip2, which this build does not read: decompress it first");
    CHECK_STR(LINES("PK\x03\x04rest"), "!compressed with zip, which this build does not read: decompress it first");
    CHECK_STR(LINES("BZh is how it begins\n"), "BZh is how it begins|");
    CHECK_STR(LINES("PK\n"), "PK|");
    CHECK_STR(lines_of("/nonexistent/text"), "!cannot open: No such file or directory");
    CHECK_STR(lines_of("/tmp"), "!cannot read: Is a directory");
}

/* Whole, in its parts, twice in a row, and with a byte changed. */
static void check_packed(const char *how, const char *bytes, size_t n, size_t changed) {
    char copy[256], expected[128];
    if (!unpacker_knows(how)) {
        snprintf(expected, sizeof expected, "!compressed with %s, which this build does not read: decompress it first",
                 how);
        CHECK_STR(lines_of(put(bytes, n)), expected);
        return;
    }
    CHECK_STR(lines_of(put(bytes, n)), "eins|zwei|");
    memcpy(copy, bytes, n);
    memcpy(copy + n, bytes, n);
    CHECK_STR(lines_of(put(copy, 2 * n)), "eins|zwei|eins|zwei|");
    for (size_t part = 6; part < n; part++) CHECK_HAS(lines_of(put(bytes, part)), "!the compressed data are truncated");
    copy[changed] ^= 0x10;
    snprintf(expected, sizeof expected, "!damaged %s data", how);
    CHECK_HAS(lines_of(put(copy, n)), expected);
}

TEST(packed_text_is_unpacked) {
    check_packed("gzip", gzip_bytes, SIZE(gzip_bytes), SIZE(gzip_bytes) - 6);
    check_packed("zstd", zstd_bytes, SIZE(zstd_bytes), SIZE(zstd_bytes) - 2);
}

/* Standard input is a pipe whose other end is `to`. */
static int pipe_in(int *to) {
    int ends[2], old = dup(STDIN_FILENO);
    if (pipe(ends)) return -1;
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    *to = ends[1];
    return old;
}

TEST(a_pipes_line_is_there_when_it_is_written) {
    int to = -1;
    const int old = pipe_in(&to);
    text_input *in;
    text_slice line;
    if (!CHECK_INT(text_input_open(&in, "-"), 0)) return;
    CHECK(!text_input_is_file(in));
    CHECK_STR(text_input_name(in), "standard input");
    /* nothing more is read than is there, or this would wait for ever */
    CHECK_INT(write(to, "a\nb", 3), 3);
    if (CHECK_INT(text_input_line(in, &line), 1)) CHECK(line.n == 1 && *line.bytes == 'a');
    CHECK_INT(text_input_number(in), 1);
    CHECK_INT(write(to, "c\n", 2), 2);
    if (CHECK_INT(text_input_line(in, &line), 1)) CHECK(line.n == 2 && memcmp(line.bytes, "bc", 2) == 0);
    close(to);
    CHECK_INT(text_input_line(in, &line), 0);
    text_input_close(in);
    dup2(old, STDIN_FILENO);
    close(old);
}

/* Lines longer than what is read at once. */
TEST(long_lines_are_whole) {
    enum { LONG = 300000 };
    char *bytes = malloc(LONG + 2);
    if (!CHECK(bytes != NULL)) return;
    memset(bytes, 'x', LONG);
    bytes[100] = '\n';
    memcpy(bytes + LONG, "\ny", 2);
    text_input *in;
    text_slice line;
    const char *path = put(bytes, LONG + 2);
    if (CHECK_INT(text_input_open(&in, path), 0)) {
        CHECK(text_input_is_file(in));
        CHECK_INT(text_input_line(in, &line), 1);
        CHECK_INT(line.n, 100);
        CHECK_INT(text_input_line(in, &line), 1);
        CHECK_INT(line.n, LONG - 101);
        CHECK_INT(text_input_line(in, &line), 1);
        CHECK_INT(line.n, 1);
        CHECK_INT(text_input_line(in, &line), 0);
        text_input_close(in);
    }
    free(bytes);
}

/* All that text_input_bytes gives. */
static const char *bytes_of(const char *path) {
    static char all[4096];
    text_input *in;
    text_slice bytes;
    size_t used = 0;
    CHECK_INT(text_input_open(&in, path), 0);
    while (text_input_bytes(in, &bytes) > 0)
        used += (size_t)snprintf(all + used, sizeof all - used, "%.*s", (int)bytes.n, bytes.bytes);
    text_input_close(in);
    return used ? all : "";
}

TEST(bytes_are_as_they_come) {
    enter_scratch(true);
    put_file("t", MARK "a\r\n\xff" MARK, SIZE(MARK "a\r\n\xff" MARK));
    CHECK_STR(bytes_of("t"), "a\r\n\xff" MARK);
    put_file("t", "ab", 2);
    CHECK_STR(bytes_of("t"), "ab");
    put_file("t", "", 0);
    CHECK_STR(bytes_of("t"), "");
    if (unpacker_knows("gzip")) {
        put_file("t", gzip_bytes, SIZE(gzip_bytes));
        CHECK_STR(bytes_of("t"), "eins\nzwei\n");
    }
}

RUN_TESTS(ENTRY(bytes_are_as_they_come), ENTRY(lines_end_in_either_way), ENTRY(a_mark_at_the_beginning_is_no_text),
          ENTRY(what_is_no_text_is_named), ENTRY(packed_text_is_unpacked),
          ENTRY(a_pipes_line_is_there_when_it_is_written), ENTRY(long_lines_are_whole))
