/* libFuzzer target: trainer/data/token_file.c on any file.
 *
 * An input is two bytes for the size of the vocabulary, one for the length of windows, then the file. A file that is
 * accepted has windows whose ids are in the vocabulary, each once in an epoch; it is written and read again. What is
 * refused gets one line.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "core/error.h"
#include "data/token_file.h"

#include <fcntl.h>
#include <stdio.h>

static char path[64], other[80];
static void remove_files(void) {
    unlink(path);
    unlink(other);
}

static void choose_path(void) {
    snprintf(path, sizeof path, "%s/fuzz_tokens.%d", fuzz_place(), (int)getpid());
    snprintf(other, sizeof other, "%s.out", path);
    atexit(remove_files);
}

static void put_file(const uint8_t *data, size_t n) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    require(fd >= 0 && write(fd, data, n) == (ssize_t)n && close(fd) == 0);
}

static void check_message(void) {
    const char *line = adamod__last_message();
    require(strncmp(line, path, strlen(path)) == 0 && is_line(line));
}

static void check_written(const token_set *s, const int32_t *ids, int64_t n) {
    token_writer *w = NULL;
    token_set *again = NULL;
    const char *name = other;
    require(token_writer_open(&w, other) == 0 && token_writer_add(w, ids, (size_t)n) == 0 &&
            token_writer_count(w) == n);
    require(token_writer_close(w, true) == 0 && token_set_open(&again, 1, &name, 0) == 0);
    require(token_set_count(again) == n && n == token_set_count(s));
    token_set_close(again);
}

static void check_windows(const token_set *s, int32_t size, int64_t length) {
    const int64_t n = token_set_windows(s, length), count = token_set_count(s);
    const token_windows w = {.length = length, .seed = 5, .shuffled = true};
    int32_t *ids = malloc(((size_t)count + (size_t)length + 1) * sizeof *ids);
    require(ids && n == (count - 1) / length);
    for (int64_t i = 0; i < n && i < 50; i++) {
        if (token_set_window(s, &w, 1, i, ids)) check_message();
        else
            for (int64_t k = 0; k <= length; k++) require(ids[k] >= 0 && (!size || ids[k] < size));
    }
    require(token_set_window(s, &w, 1, n, ids) != 0);
    if (token_set_check(s)) check_message();
    else if (count > 1) {
        require(token_set_window(s, &(token_windows){.length = count - 1}, 0, 0, ids) == 0);
        check_written(s, ids, count);
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    token_set *s;
    const char *const paths[] = {path, path};
    if (size < 3) return 0;
    if (!*path) choose_path();
    const int32_t ids = data[0] | data[1] << 8;
    put_file(data + 3, size - 3);
    if (token_set_open(&s, 1, paths, ids)) {
        require(!s);
        check_message();
        return 0;
    }
    check_windows(s, ids, 1 + data[2]);
    token_set_close(s);
    return 0;
}
