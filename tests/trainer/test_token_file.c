/* Files of tokens: both formats, what is wrong with them, windows in another order, documents.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "scratch.h"

#include "core/error.h"
#include "data/shuffle.h"
#include "data/token_file.h"
#include "data/token_pack.h"

#include <stdlib.h>

/* ---- formats ---- */

/* A file of ids 0 to n - 1, with llm.c's header if magic is not 0. */
static void put_tokens(const char *name, int32_t magic, int32_t version, int32_t count, int n) {
    static char bytes[1 << 16];
    const int32_t head[256] = {magic, version, count};
    const size_t header = magic ? sizeof head : 0;
    memcpy(bytes, head, header);
    for (int i = 0; i < n; i++) memcpy(bytes + header + 2 * (size_t)i, &(uint16_t){(uint16_t)i}, 2);
    put_file(name, bytes, header + 2 * (size_t)n);
}

static token_set *opened(const char *name, int32_t size) {
    token_set *s;
    CHECK_INT(token_set_open(&s, 1, &name, size), 0);
    return s;
}

TEST(both_formats_are_read) {
    enter_scratch(true);
    put_tokens("llm.c", 20240520, 1, 100, 100);
    put_tokens("nanogpt", 0, 0, 0, 100);
    const char *const names[] = {"llm.c", "nanogpt"};
    const token_windows w = {.length = 33};
    int32_t ids[34];
    for (int i = 0; i < 2; i++) {
        token_set *s = opened(names[i], 100);
        CHECK_INT(token_set_count(s), 100);
        CHECK_INT(token_set_check(s), 0);
        CHECK_INT(token_set_windows(s, 33), 3);
        CHECK_INT(token_set_windows(s, 99), 1);
        CHECK_INT(token_set_windows(s, 100), 0);
        CHECK_INT(token_set_window(s, &w, 0, 2, ids), 0);
        CHECK(ids[0] == 66 && ids[33] == 99);
        CHECK(token_set_window(s, &w, 0, 3, ids) != 0);
        CHECK_HAS(adamod__last_message(), "window 3, expected one of 0 to 2");
        token_set_close(s);
    }
}

TEST(bad_files_get_one_line) {
    static const struct {
        int32_t magic, version, count;
        int n, size;
        const char *message;
    } cases[] = {
        {20240520, 1, 100, 99, 0, "t: cut short: 99 tokens, its header says 100"},
        {20240520, 1, 100, 101, 0, "t: 2 bytes behind the 100 tokens that its header says"},
        {20240520, 1, -1, 5, 0, "t: its header says -1 tokens, expected 0 or more"},
        {20240520, 2, 5, 5, 0, "t: version 2 of llm.c's format, expected 1"},
        {20240801, 7, 5, 5, 0, "t: tokens of 32 bits, as llm.c packs those of Llama, expected 16 bits"},
        {20240520, 1, 0, 0, 0, "t: no tokens behind its header"},
        {20240520, 1, 100, 100, 99,
         "t: token 99 is 99, but the vocabulary has 99 ids: the file is of another vocabulary"},
        {0, 0, 0, 100, 50, "t: token 50 is 50, but the vocabulary has 50 ids"},
        {0, 0, 0, 0, 0, "t: empty, expected tokens"},
    };
    token_set *s;
    const char *name = "t";
    enter_scratch(true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_tokens(name, cases[i].magic, cases[i].version, cases[i].count, cases[i].n);
        CHECK(token_set_open(&s, 1, &name, cases[i].size) != 0 && !s);
        CHECK_HAS(adamod__last_message(), cases[i].message);
    }
    static const struct {
        const char *bytes;
        size_t n;
        const char *message;
    } other[] = {{"\x88\xd8\x34\x01xyz", 7, "t: cut short: 7 bytes, expected a header of 1024"},
                 {"abc", 3, "t: 3 bytes, an odd number, expected tokens of 2 bytes each"},
                 {"a", 1, "t: one byte, expected tokens"},
                 {"\x93NUMPY..", 8, "t: an array of numpy"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        put_file(name, other[i].bytes, other[i].n);
        CHECK(token_set_open(&s, 1, &name, 0) != 0);
        CHECK_HAS(adamod__last_message(), other[i].message);
    }
    name = ".";
    CHECK(token_set_open(&s, 1, &name, 0) != 0);
    CHECK_HAS(adamod__last_message(), ".: not a regular file");
    name = "nowhere";
    CHECK(token_set_open(&s, 1, &name, 0) != 0);
    CHECK_HAS(adamod__last_message(), "nowhere: cannot open: ");
}

/* An id that opening does not see is found when its window is read. */
TEST(ids_of_windows_are_checked) {
    const int n = 70000;
    uint16_t *ids = calloc((size_t)n, sizeof *ids);
    int32_t window[11];
    enter_scratch(true);
    ids[69995] = 500;
    put_file("t", ids, (size_t)n * sizeof *ids);
    token_set *s = opened("t", 500);
    const token_windows w = {.length = 10};
    CHECK_INT(token_set_window(s, &w, 0, 6998, window), 0);
    CHECK(token_set_check(s) != 0);
    CHECK_HAS(adamod__last_message(), "t: token 69995 is 500, but the vocabulary has 500 ids");
    token_set_close(s);
    free(ids);
}

/* ---- windows ---- */

TEST(a_shuffle_has_every_place_once) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char *seen = calloc(sizes[k], 1);
        uint64_t fixed = 0;
        for (uint64_t i = 0; i < sizes[k]; i++) {
            const uint64_t place = shuffle_place(i, sizes[k], 77 + k);
            if (CHECK(place < sizes[k] && !seen[place])) seen[place] = 1;
            fixed += place == i;
        }
        if (sizes[k] >= 63) CHECK(fixed < 10);
        free(seen);
    }
    CHECK(shuffle_place(7, (uint64_t)1 << 60, 3) < (uint64_t)1 << 60);
}

/* Each item goes to each place equally often, and so do pairs of neighbours: chi-squared with n - 1 degrees of freedom,
 * whose standard deviation is sqrt(2 (n - 1)). */
TEST(shuffles_are_even) {
    enum { N = 16, KEYS = 64000 };
    int first[N] = {0}, apart[N] = {0};
    for (uint64_t key = 0; key < KEYS; key++) {
        const uint64_t a = shuffle_place(3, N, nn_mix(key)), b = shuffle_place(4, N, nn_mix(key));
        first[a]++;
        apart[(b - a) % N]++;
    }
    double x = 0, y = 0;
    for (int i = 0; i < N; i++) {
        x += (first[i] - KEYS / (double)N) * (first[i] - KEYS / (double)N) / (KEYS / (double)N);
        if (i) y += (apart[i] - KEYS / 15.0) * (apart[i] - KEYS / 15.0) / (KEYS / 15.0);
    }
    CHECK(apart[0] == 0 && x < 15 + 5 * 5.48 && y < 14 + 5 * 5.29);
}

TEST(windows_of_an_epoch_are_all_windows) {
    enter_scratch(true);
    put_tokens("a", 20240520, 1, 1005, 1005); /* 100 windows of 10, and 4 ids left */
    put_tokens("b", 0, 0, 0, 31);             /* 3 */
    put_tokens("c", 0, 0, 0, 5);              /* none */
    put_tokens("d", 0, 0, 0, 21);             /* 2 */
    const char *const names[] = {"a", "b", "c", "d"};
    token_set *s;
    CHECK_INT(token_set_open(&s, 4, names, 0), 0);
    CHECK_INT(token_set_count(s), 1062);
    CHECK_INT(token_set_windows(s, 10), 105);
    int32_t ids[11], again[11], same[3] = {0};
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        const token_windows w = {.length = 10, .seed = 9, .shuffled = true}, other = {10, 10, true},
                            plain = {10, 9, false};
        int starts[100] = {0};
        for (int64_t i = 0; i < 105; i++) {
            CHECK_INT(token_set_window(s, &w, epoch, i, ids), 0);
            for (int k = 0; k <= 10; k++) CHECK_INT(ids[k], ids[0] + k);
            if (CHECK(ids[0] % 10 == 0 && ids[0] < 1000)) starts[ids[0] / 10]++;
            CHECK_INT(token_set_window(s, &w, epoch, i, again), 0);
            CHECK(memcmp(ids, again, sizeof ids) == 0);
            CHECK_INT(token_set_window(s, &w, epoch + 1, i, again), 0);
            same[0] += ids[0] == again[0];
            CHECK_INT(token_set_window(s, &other, epoch, i, again), 0);
            same[1] += ids[0] == again[0];
            CHECK_INT(token_set_window(s, &plain, epoch, i, again), 0);
            CHECK_INT(again[0], i < 100 ? i * 10 : i < 103 ? (i - 100) * 10 : (i - 103) * 10);
            same[2] += ids[0] == again[0];
        }
        for (int i = 0; i < 100; i++) CHECK_INT(starts[i], 1 + (i < 3) + (i < 2));
    }
    for (int i = 0; i < 3; i++) CHECK(same[i] < 25); /* of 315 */
    token_set_close(s);
}

/* ---- writing ---- */

static byte_bpe *plain_bytes(void) {
    byte_bpe *b = NULL;
    byte_bpe_learner *l = byte_bpe_learner_create();
    CHECK_INT(byte_bpe_learn(&b, l, 257, 1), 0);
    byte_bpe_learner_free(l);
    return b;
}

/* The documents of a file, with '#' for the token that begins them. */
static const char *packed(const byte_bpe *b, token_document document, bool marks, const char *text, size_t n) {
    static char all[256];
    const token_pack p = {.b = b, .document = document, .marks = marks};
    const char *const paths[] = {"text", "text2"};
    token_writer *w;
    int32_t ids[257];
    put_file("text", text, n);
    put_file("text2", "z", 1);
    CHECK_INT(token_writer_open(&w, "out.bin"), 0);
    CHECK_INT(token_pack_run(&p, 2, paths, w), 0);
    const int64_t count = token_writer_count(w);
    CHECK_INT(token_writer_close(w, true), 0);
    token_set *s = opened("out.bin", 257);
    if (!CHECK(count > 1 && count < 200 && token_set_count(s) == count)) return "";
    CHECK_INT(token_set_window(s, &(token_windows){.length = count - 1}, 0, 0, ids), 0);
    for (int64_t i = 0; i < count; i++) all[i] = ids[i] == 256 ? '#' : *byte_bpe_token(b, ids[i]).bytes;
    all[count] = 0;
    token_set_close(s);
    return all;
}

TEST(documents_begin_with_their_mark) {
    byte_bpe *b = plain_bytes();
    enter_scratch(true);
    static const char text[] = "a\r\nb\n\nc\n\n\n\nd\n";
    CHECK_STR(packed(b, TOKEN_DOCUMENT_FILE, false, text, sizeof text - 1), "#a\r\nb\n\nc\n\n\n\nd\n#z");
    CHECK_STR(packed(b, TOKEN_DOCUMENT_BLANK, false, text, sizeof text - 1), "#a\r\nb\n\n#c\n\n#\n\n#d\n#z");
    CHECK_STR(packed(b, TOKEN_DOCUMENT_LINE, false, text, sizeof text - 1), "#a#b#c#d#z");
    static const char marked[] = "one<|endoftext|>two";
    CHECK_STR(packed(b, TOKEN_DOCUMENT_FILE, true, marked, sizeof marked - 1), "#one#two#z");
    CHECK_STR(packed(b, TOKEN_DOCUMENT_FILE, false, marked, sizeof marked - 1), "#one<|endoftext|>two#z");
    CHECK_STR(packed(b, TOKEN_DOCUMENT_FILE, false, "", 0), "#z");
    byte_bpe_free(b);
}

/* A text larger than what is encoded at a time gives the ids that it gives as a whole. */
TEST(large_texts_are_packed_in_parts) {
    const size_t n = 5000000;
    char *text = malloc(n);
    byte_bpe_learner *l = byte_bpe_learner_create();
    byte_bpe *b;
    enter_scratch(true);
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = nn_random_bits(8, i);
        text[i] = (char)(i > 1500000 && i < 3700000 ? 'x' : r % 8 ? 'a' + r / 8 % 3 : r / 8 % 2 ? ' ' : '\n');
    }
    CHECK_INT(byte_bpe_learner_add(l, (text_slice){text, 100000}), 0);
    CHECK_INT(byte_bpe_learn(&b, l, 400, 2), 0);
    put_file("text", text, n);
    const token_pack p = {.b = b};
    const char *const paths[] = {"text"};
    token_writer *w;
    CHECK_INT(token_writer_open(&w, "out.bin"), 0);
    CHECK_INT(token_pack_run(&p, 1, paths, w), 0);
    CHECK_INT(token_writer_close(w, true), 0);
    byte_bpe_encoder *e = byte_bpe_encoder_create(b, false);
    byte_bpe_ids ids = {0};
    CHECK_INT(byte_bpe_encode(e, (text_slice){text, n}, &ids), 0);
    token_set *s = opened("out.bin", 400);
    if (CHECK_INT(token_set_count(s), ids.n + 1)) {
        int32_t *found = malloc((ids.n + 1) * sizeof *found);
        CHECK_INT(token_set_window(s, &(token_windows){.length = (int64_t)ids.n}, 0, 0, found), 0);
        CHECK(found[0] == byte_bpe_end(b) && memcmp(found + 1, ids.list, ids.n * sizeof *found) == 0);
        free(found);
    }
    token_set_close(s);
    byte_bpe_encoder_free(e);
    byte_bpe_free(b);
    byte_bpe_learner_free(l);
    free(ids.list);
    free(text);
}

TEST(nothing_is_left_of_what_is_dropped) {
    token_writer *w;
    enter_scratch(true);
    CHECK_INT(token_writer_open(&w, "out.bin"), 0);
    CHECK_INT(token_writer_add(w, (const int32_t[]){1, 2}, 2), 0);
    CHECK_INT(token_writer_close(w, false), 0);
    CHECK_INT(scratch_files(), 0);
    CHECK(token_writer_open(&w, "no/out.bin") != 0 && !w);
    CHECK_HAS(adamod__last_message(), "no/out.bin: ");
}

RUN_TESTS(ENTRY(both_formats_are_read), ENTRY(bad_files_get_one_line), ENTRY(ids_of_windows_are_checked),
          ENTRY(a_shuffle_has_every_place_once), ENTRY(shuffles_are_even), ENTRY(windows_of_an_epoch_are_all_windows),
          ENTRY(documents_begin_with_their_mark), ENTRY_OF_ONE_THREAD(large_texts_are_packed_in_parts),
          ENTRY(nothing_is_left_of_what_is_dropped))
