/* Byte-level BPE: how text is cut, merges by hand, files and what is wrong with them, learning, any bytes.
 * tests/trainer/test_tokens.py compares with other packages.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "scratch.h"

#include "core/error.h"
#include "data/byte_bpe.h"
#include "data/byte_pieces.h"
#include "support/random.h"

#include <stdlib.h>

/* ---- pieces ---- */

static const char *pieces_of(text_slice rest) {
    static char all[512];
    size_t used = 0;
    while (rest.n) {
        const text_slice piece = byte_pieces_next(&rest);
        used += (size_t)snprintf(all + used, sizeof all - used, "%.*s|", (int)piece.n, piece.bytes);
    }
    return all;
}

TEST(text_is_cut_as_the_expression_does) {
    static const char *const cases[][2] = {
        {"Hello world", "Hello| world|"},
        {"it's we'll I'd they've you're I'm can't", "it|'s| we|'ll| I|'d| they|'ve| you|'re| I|'m| can|'t|"},
        {"IT'S 'l 's ''s '", "IT|'|S| '|l| '|s| ''|s| '|"},
        {"a1 23.45 x²½Ⅷ", "a|1| 23|.|45| x|²½Ⅷ|"},
        {"a  b   c\n\n\nd \n", "a| | b|  | c|\n\n|\n|d| \n|"},
        {"\t\tx\r\ny", "\t|\t|x|\r|\n|y|"},
        {"x  ", "x|  |"},
        {" ", " |"},
        {"a\xc2\xa0 b\xc2\xa0\xc2\xa0", "a|\xc2\xa0| b|\xc2\xa0\xc2\xa0|"},
        {"naïve Straße мир 世界 e\xcc\x81!", "naïve| Straße| мир| 世界| e|\xcc\x81!|"},
        {"१२३ ١٢ 😀😀 x", "१२३| ١٢| 😀😀| x|"},
        {"a\x1c \x1f z", "a|\x1c| \x1f| z|"},       /* no white space for regular expressions */
        {"a\xff\xfe b\xc3", "a|\xff\xfe| b|\xc3|"}, /* not UTF-8 */
        {"𠀀𝒳 𐐀1", "𠀀𝒳| 𐐀|1|"},                    /* beyond the first plane */
        {"\xf0\x9e\x97\xb0\xf0\x9e\x97\xb1",
         "\xf0\x9e\x97\xb0|\xf0\x9e\x97\xb1|"}, /* a letter and a digit of Unicode 16 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) CHECK_STR(pieces_of(text_of(cases[i][0])), cases[i][1]);
    CHECK_INT(byte_pieces_next(&(text_slice){"\0\0x", 3}).n, 2); /* a zero is a character like others */
}

/* ---- files ---- */

/* The 256 bytes in the order of GPT-2's ids, then more. */
static const char *vocab_with(const char *more) {
    static char all[8192];
    size_t used = 0;
    int id = 0;
    for (unsigned c = 0; c < 324; c++) {
        const bool printable = (c > 32 && c < 127) || (c > 160 && c != 173);
        char spelled[5] = "";
        if (!printable) continue;
        spelled[text_put_code_point(c, spelled)] = 0;
        const char *escape = c == '"' || c == '\\' ? "\\" : "";
        used += (size_t)snprintf(all + used, sizeof all - used, "%s\"%s%s\": %d", id ? ", " : "{", escape, spelled, id);
        id++;
    }
    snprintf(all + used, sizeof all - used, "%s}\n", more);
    return all;
}

static int parse(byte_bpe **b, const char *vocab, const char *merges) {
    return byte_bpe_parse(b, text_of(vocab), "v", text_of(merges), "m");
}

static const char *ids_of(const byte_bpe *b, text_slice text, bool marks) {
    static char all[1024];
    byte_bpe_encoder *e = byte_bpe_encoder_create(b, marks);
    byte_bpe_ids ids = {0};
    size_t used = 0;
    *all = 0;
    for (int twice = 0; twice < 2; twice++) { /* the second time from the cache */
        ids.n = 0;
        CHECK_INT(byte_bpe_encode(e, text, &ids), 0);
    }
    for (size_t i = 0; i < ids.n; i++) used += (size_t)snprintf(all + used, sizeof all - used, " %d", (int)ids.list[i]);
    byte_bpe_encoder_free(e);
    free(ids.list);
    return all;
}

#define WORDS                                                                                                          \
    ", \"lo\": 256, \"low\": 257, \"er\": 258, \"Ġlow\": 259, \"ower\": 260, \"ow\": 261, \"<|endoftext|>\": 262"
#define MERGES "#version: 0.2\nl o\nlo w\ne r\nĠ low\no w\now er\n"

TEST(merges_by_rank_and_from_the_left) {
    byte_bpe *b;
    if (!CHECK_INT(parse(&b, vocab_with(WORDS), MERGES), 0)) return;
    CHECK_INT(byte_bpe_size(b), 263);
    CHECK_INT(byte_bpe_end(b), 262);
    CHECK_STR(ids_of(b, text_of("low"), false), " 257");
    CHECK_STR(ids_of(b, text_of("lower lower"), false), " 257 258 259 258");
    CHECK_STR(ids_of(b, text_of("power"), false), " 79 260");
    CHECK_STR(ids_of(b, text_of(""), false), "");
    CHECK_STR(ids_of(b, text_of("lo<|endoftext|>lo"), true), " 256 262 256");
    CHECK_STR(ids_of(b, text_of("<|endoftext|>"), false), " 27 91 68 77 67 78 69 83 68 87 83 91 29");
    CHECK_STR(ids_of(b, (text_slice){"\0\xff ", 3}, false), " 188 187 220");
    byte_bpe_free(b);
}

/* The file that OpenAI published has an end of its last line, copies of it in other programs have none. */
TEST(the_last_merge_needs_no_end_of_line) {
    byte_bpe *b;
    char merges[] = MERGES;
    merges[sizeof merges - 2] = '\0';
    if (!CHECK_INT(parse(&b, vocab_with(WORDS), merges), 0)) return;
    CHECK_STR(ids_of(b, text_of("power"), false), " 79 260");
    byte_bpe_free(b);
}

TEST(bad_files_get_one_line) {
    static const char *const cases[][3] = {
        {"", "", "v: byte 1: expected an object"},
        {"{\"a\": 0", "", "v: byte 8: expected ',' or '}'"},
        {"{\"a\": \"b\"}", "", "v: byte 7: expected a number"},
        {"[]", "", "v: byte 1: expected an object"},
        {"{}", "", "v: no tokens"},
        {"{\"a\": 0} x", "", "v: byte 10: expected nothing more"},
        {"{\"a\": 0, \"b\": 2}", "", "v: token 'b' has the id 2, expected ids from 0 to 1, as there are 2 tokens"},
        {"{\"a\": 0, \"b\": 0}", "", "v: tokens 'a' and 'b' both have the id 0"},
        {"{\"a\": 0, \"a\": 1}", "", "v: token 'a' is there twice, with the ids 0 and 1"},
        {"{\"a\": 0.5}", "", "v: token 'a' has the id 0.5, expected a whole number from 0 on"},
        {"{\"a\": -1}", "", "v: token 'a' has the id -1, expected a whole number from 0 on"},
        {"{\"a\": null}", "", "v: token 'a' has the id nan, expected a whole number from 0 on"},
        {"{\"\": 0}", "", "v: the token of id 0 is empty"},
        {"{\"a b\": 0}", "", "v: token 'a b' has the character U+0020, which stands for no byte"},
        {"{\"▁a\": 0}", "", "v: token '▁a' has the character U+2581, which stands for no byte"},
        {"{\"a\": 0}", "", "v: no token for the byte 0x00 ('Ā')"},
        {NULL, "l o\nlo\n", "m:2: expected two tokens with a space between"},
        {NULL, "l o\n\n", "m:2: expected two tokens with a space between"},
        {NULL, "l o x\n", "m:1: expected two tokens with a space between"},
        {NULL, " o\n", "m:1: expected two tokens with a space between"},
        {NULL, "#version: 0.2\nl o\nxy w\n", "m:3: 'xy' is no token of the vocabulary"},
        {NULL, "l o\nl \x01\n", "m:2: '?' is no token of the vocabulary"},
        {NULL, "l o\no x\n", "m:2: 'ox', which this merge makes, is no token of the vocabulary"},
        {NULL, "#version: 0.2\nl o\ne r\nl o\n", "m:4: the merge is already in line 2"},
        {NULL, "l o\nlo w\ne r\nĠ lo", "m:4: 'Ġlo', which this merge makes, is no token of the vocabulary"},
        {NULL, "l o\nlo w\ne r\nĠ low\no w\now e", "m:6: 'owe', which this merge makes, is no token of the vocabulary"},
        {NULL, "l o\nlo w\ne r\nĠ low\no w", "m: no merge makes token 'ower' of the vocabulary (id 260)"},
        {NULL, "l o\nlo w\ne r\nĠ low\n",
         "m: no merge makes token 'ower' of the vocabulary (id 260): the file is cut short"},
        {NULL, "", "m: no merge makes token 'lo' of the vocabulary (id 256)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        byte_bpe *b;
        CHECK(parse(&b, cases[i][0] ? cases[i][0] : vocab_with(WORDS), cases[i][1]) != 0 && !b);
        CHECK_HAS(adamod__last_message(), cases[i][2]);
        CHECK(!strpbrk(adamod__last_message(), "\r\n"));
    }
    byte_bpe *b;
    enter_scratch(true);
    CHECK(byte_bpe_load(&b, "nowhere") != 0);
    CHECK_HAS(adamod__last_message(), "nowhere/vocab.json: ");
}

/* ---- learning ---- */

static byte_bpe *learned(text_slice text, int64_t size, int64_t min_frequency) {
    byte_bpe *b = NULL;
    byte_bpe_learner *l = byte_bpe_learner_create();
    CHECK_INT(byte_bpe_learner_add(l, text), 0);
    CHECK_INT(byte_bpe_learn(&b, l, size, min_frequency), 0);
    byte_bpe_learner_free(l);
    return b;
}

static const char *token_names(const byte_bpe *b, int32_t from) {
    static char all[1024];
    size_t used = 0;
    *all = 0;
    for (int32_t id = from; id < byte_bpe_size(b); id++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s|", byte_bpe_token(b, id).bytes);
    return all;
}

TEST(learns_frequent_pairs_and_low_ids_first) {
    /* lo and ow are both seen 3 times, and l has the lower id. Among the pairs seen twice, the one that begins with e
     * has the lowest ids, then the one with the space. */
    byte_bpe *b = learned(text_of("low low lowest newest"), 262, 2);
    CHECK_STR(token_names(b, 256), "lo|low|es| low|est|<|endoftext|>|");
    byte_bpe_free(b);
    b = learned(text_of("aaaa"), 1000, 1);
    CHECK_STR(token_names(b, 256), "aa|aaaa|<|endoftext|>|");
    byte_bpe_free(b);
    b = learned(text_of("low low lowest newest"), 1000, 3);
    CHECK_STR(token_names(b, 256), "lo|low|<|endoftext|>|");
    byte_bpe_free(b);
    b = learned(text_of("<|endoftext|><|endoftext|>"), 1000, 1);
    CHECK_INT(byte_bpe_end(b), byte_bpe_size(b) - 1);
    CHECK_STR(ids_of(b, text_of("x"), false), " 87");
    byte_bpe_free(b);
    byte_bpe_learner *l = byte_bpe_learner_create();
    CHECK(byte_bpe_learn(&b, l, 256, 2) != 0);
    CHECK_HAS(adamod__last_message(), "a vocabulary of 256 tokens, expected at least 257");
    byte_bpe_learner_free(l);
}

/* A text of words, spaces and bytes of any kind. */
static char *make_text(size_t n, uint64_t key) {
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = nn_random_bits(key, i);
        const uint32_t kind = r % 16;
        text[i] = (char)(kind < 10    ? 'a' + r / 16 % 5
                         : kind < 13  ? ' '
                         : kind == 13 ? '\n'
                         : kind == 14 ? 'A'
                                      : r >> 8);
    }
    return text;
}

TEST(files_are_written_as_they_are_read) {
    char *text = make_text(20000, 3), first[32768], second[32768];
    byte_bpe *b = learned((text_slice){text, 20000}, 700, 2), *again = NULL;
    enter_scratch(true);
    CHECK_INT(byte_bpe_save(b, "deep/model"), 0);
    CHECK_INT(byte_bpe_load(&again, "deep/model"), 0);
    CHECK_INT(byte_bpe_save(again, "other"), 0);
    static const char *const names[] = {"vocab.json", "merges.txt"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "deep/model/%s", names[i]);
        const size_t n = get_file(path, first, sizeof first);
        snprintf(path, sizeof path, "other/%s", names[i]);
        CHECK(n > 1000 && get_file(path, second, sizeof second) == n && memcmp(first, second, n) == 0);
    }
    CHECK_INT(byte_bpe_size(again), 700);
    put_file("plain", "x", 1);
    CHECK(byte_bpe_save(b, "plain/model") != 0);
    CHECK_HAS(adamod__last_message(), "plain/model: cannot make this directory: ");
    byte_bpe_free(b);
    byte_bpe_free(again);
    free(text);
}

TEST(threads_and_files_do_not_matter) {
    const size_t n = 300000;
    char *text = make_text(n, 4), one[32768], other[32768];
    enter_scratch(true);
    put_file("whole", text, n);
    size_t cut = n / 3;
    while (text[cut - 1] != '\n') cut++;
    put_file("first", text, cut);
    put_file("rest", text + cut, n - cut);
    byte_bpe *b = learned((text_slice){text, n}, 1000, 2);
    CHECK_INT(byte_bpe_save(b, "m"), 0);
    const size_t bytes = get_file("m/merges.txt", one, sizeof one);
    byte_bpe_free(b);
    for (int threads = 1; threads <= 5; threads += 2) {
        byte_bpe_learner *l = byte_bpe_learner_create();
        const char *const paths[] = {"first", "rest"}, *const whole[] = {"whole"};
        CHECK_INT(byte_bpe_learner_add_files(l, threads > 1 ? 2 : 1, threads > 1 ? paths : whole, threads), 0);
        CHECK_INT(byte_bpe_learn(&b, l, 1000, 2), 0);
        CHECK_INT(byte_bpe_save(b, "m"), 0);
        CHECK(get_file("m/merges.txt", other, sizeof other) == bytes && memcmp(one, other, bytes) == 0);
        byte_bpe_free(b);
        byte_bpe_learner_free(l);
    }
    free(text);
}

/* ---- any bytes ---- */

TEST(every_text_decodes_to_itself) {
    const size_t n = 60000;
    char *text = make_text(n, 5);
    byte_bpe *b = learned((text_slice){text, n}, 900, 2);
    byte_bpe_encoder *e = byte_bpe_encoder_create(b, false);
    byte_bpe_ids ids = {0}, parts = {0};
    adamod__buffer out = {0};
    for (uint64_t key = 10; key < 20; key++) {
        char *other = make_text(n, key);
        ids.n = parts.n = out.n = 0;
        CHECK_INT(byte_bpe_encode(e, (text_slice){other, n}, &ids), 0);
        CHECK(ids.n < n);
        byte_bpe_decode(b, ids.list, ids.n, &out);
        CHECK(out.n == n && memcmp(out.text, other, n) == 0);
        /* read in parts: the same ids */
        size_t at = 0, end = 0;
        while (end < n) {
            end = end + 777 < n ? end + 777 : n;
            at += (size_t)byte_bpe_encode_part(e, (text_slice){other + at, end - at}, &parts);
        }
        CHECK_INT(byte_bpe_encode(e, (text_slice){other + at, n - at}, &parts), 0);
        CHECK(parts.n == ids.n && memcmp(parts.list, ids.list, ids.n * sizeof *ids.list) == 0);
        free(other);
    }
    byte_bpe_encoder_free(e);
    byte_bpe_free(b);
    adamod__buffer_free(&out);
    free(ids.list);
    free(parts.list);
    free(text);
}

/* A piece of a million letters, which merging must not look through again and again. */
TEST(long_pieces_are_merged) {
    const size_t n = 1 << 20;
    char *text = malloc(n);
    memset(text, 'a', n);
    byte_bpe *b = learned((text_slice){text, 64}, 261, 1);
    byte_bpe_encoder *e = byte_bpe_encoder_create(b, false);
    byte_bpe_ids ids = {0};
    CHECK_INT(byte_bpe_encode(e, (text_slice){text, n}, &ids), 0);
    CHECK_INT(ids.n, n / 16);
    CHECK_INT(byte_bpe_token(b, ids.list[0]).n, 16);
    byte_bpe_encoder_free(e);
    byte_bpe_free(b);
    free(ids.list);
    free(text);
}

RUN_TESTS(ENTRY(text_is_cut_as_the_expression_does), ENTRY(merges_by_rank_and_from_the_left),
          ENTRY(the_last_merge_needs_no_end_of_line), ENTRY(bad_files_get_one_line),
          ENTRY(learns_frequent_pairs_and_low_ids_first), ENTRY(files_are_written_as_they_are_read),
          ENTRY(threads_and_files_do_not_matter), ENTRY_OF_ONE_THREAD(every_text_decodes_to_itself),
          ENTRY_OF_ONE_THREAD(long_pieces_are_merged))
