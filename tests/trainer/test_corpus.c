/* Text, vocabularies and corpora: what is read, what is refused and with which words, what is drawn.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "check.h"
#include "values.h"

#include "data/corpus.h"
#include "data/number_words.h"
#include "core/error.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT(literal) ((text_slice){literal, sizeof(literal) - 1})

static char *copy_of(text_slice s) {
    char *copy = calloc(1, s.n + 1);
    if (copy) memcpy(copy, s.bytes, s.n);
    return copy;
}

static void check_slice(text_slice s, const char *expected, int line) {
    char *copy = copy_of(s);
    check_str(copy, expected, "slice", __FILE__, line);
    free(copy);
}
#define CHECK_SLICE(s, expected) check_slice(s, expected, __LINE__)

/* ---- Text -------------------------------------------------------------------------------------------------------- */

TEST(utf8_is_what_rfc_3629_says) {
    static const struct {
        text_slice bytes;
        size_t n;
    } cases[] = {
        {TEXT(""), 0},
        {TEXT("a"), 1},
        {TEXT("\x7f"), 1},
        {TEXT("\xc2\x80"), 2},
        {TEXT("\xdf\xbf"), 2},
        {TEXT("\xe0\xa0\x80"), 3},
        {TEXT("\xed\x9f\xbf"), 3},
        {TEXT("\xee\x80\x80"), 3},
        {TEXT("\xef\xbf\xbf"), 3},
        {TEXT("\xf0\x90\x80\x80"), 4},
        {TEXT("\xf4\x8f\xbf\xbf"), 4},
        {TEXT("\x80"), 0},             /* continuation alone */
        {TEXT("\xc0\x80"), 0},         /* overlong */
        {TEXT("\xc1\xbf"), 0},         /* overlong */
        {TEXT("\xe0\x9f\xbf"), 0},     /* overlong */
        {TEXT("\xf0\x8f\xbf\xbf"), 0}, /* overlong */
        {TEXT("\xed\xa0\x80"), 0},     /* surrogate */
        {TEXT("\xf4\x90\x80\x80"), 0}, /* above U+10FFFF */
        {TEXT("\xf5\x80\x80\x80"), 0}, /* above U+10FFFF */
        {TEXT("\xff"), 0},
        {TEXT("\xc3"), 0}, /* ends early */
        {TEXT("\xe2\x82"), 0},
        {TEXT("\xf0\x9f\x98"), 0},
        {TEXT("\xc3("), 0},
        {TEXT("\xe2\x82("), 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!CHECK_INT(text_code_point(cases[i].bytes), cases[i].n)) printf("  case %zu\n", i);
}

TEST(tokens_are_words_or_code_points) {
    text_slice rest = TEXT("  ein  B\xc3\xa4r\t! "), token;
    const char *words[] = {"ein", "B\xc3\xa4r\t!"};
    for (int i = 0; i < 2; i++) {
        if (!CHECK(text_next_token(TEXT_WORDS, &rest, &token))) return;
        CHECK_SLICE(token, words[i]);
    }
    CHECK(!text_next_token(TEXT_WORDS, &rest, &token));
    rest = TEXT("a \xc3\xa4\xf0\x9f\x98\x80");
    const char *characters[] = {"a", " ", "\xc3\xa4", "\xf0\x9f\x98\x80"};
    for (int i = 0; i < 4; i++) {
        if (!CHECK(text_next_token(TEXT_CHARACTERS, &rest, &token))) return;
        CHECK_SLICE(token, characters[i]);
    }
    CHECK(!text_next_token(TEXT_CHARACTERS, &rest, &token));
    CHECK_INT(text_count_tokens(TEXT_WORDS, TEXT(" ")), 0);
    CHECK_INT(text_count_tokens(TEXT_CHARACTERS, TEXT(" ")), 1);
}

TEST(a_last_line_needs_no_newline) {
    CHECK_INT(text_count_lines(TEXT("")), 0);
    CHECK_INT(text_count_lines(TEXT("a")), 1);
    CHECK_INT(text_count_lines(TEXT("a\n")), 1);
    CHECK_INT(text_count_lines(TEXT("\n")), 1);
    CHECK_INT(text_count_lines(TEXT("a\n\nb")), 3);
}

/* ---- Vocabulary -------------------------------------------------------------------------------------------------- */

static vocab *learn(text_unit unit, const char *text, vocab_options options) {
    vocab_counter *counter = vocab_counter_create();
    vocab *v = NULL;
    if (CHECK(counter)) {
        CHECK_INT(vocab_counter_add(counter, unit, text_of(text), 1), 0);
        CHECK_INT(vocab_build(&v, counter, &options), 0);
    }
    vocab_counter_free(counter);
    return v;
}

static void check_tokens(const vocab *v, int32_t n, const char *const *tokens) {
    CHECK_INT(vocab_size(v), n + VOCAB_SPECIALS);
    CHECK_STR(vocab_token(v, VOCAB_START).bytes, "<s>");
    CHECK_STR(vocab_token(v, VOCAB_END).bytes, "</s>");
    CHECK_STR(vocab_token(v, VOCAB_UNK).bytes, "<unk>");
    for (int32_t i = 0; i < n; i++) {
        CHECK_STR(vocab_token(v, VOCAB_SPECIALS + i).bytes, tokens[i]);
        CHECK_INT(vocab_find(v, text_of(tokens[i])), VOCAB_SPECIALS + i);
    }
}

TEST(ids_go_by_count_then_by_bytes) {
    vocab *v = learn(TEXT_WORDS, "b a c b a \xc3\xa4 ab b", (vocab_options){0});
    if (!CHECK(v)) return;
    check_tokens(v, 5, (const char *const[]){"b", "a", "ab", "c", "\xc3\xa4"});
    vocab_free(v);
}

TEST(rare_tokens_and_those_beyond_the_size_are_unknown) {
    const char *text = "x x x y y z w";
    vocab *v = learn(TEXT_WORDS, text, (vocab_options){.min_count = 2});
    if (CHECK(v)) check_tokens(v, 2, (const char *const[]){"x", "y"});
    CHECK_INT(vocab_find(v, text_of("z")), VOCAB_UNK);
    vocab_free(v);
    v = learn(TEXT_WORDS, text, (vocab_options){.max_size = 6});
    if (CHECK(v)) check_tokens(v, 3, (const char *const[]){"x", "y", "w"});
    vocab_free(v);
}

TEST(text_cannot_forge_the_marks) {
    vocab *v = learn(TEXT_WORDS, "</s> <s> <unk> a </s>", (vocab_options){0});
    if (!CHECK(v)) return;
    check_tokens(v, 1, (const char *const[]){"a"});
    CHECK_INT(vocab_find(v, text_of("</s>")), VOCAB_UNK);
    CHECK_INT(vocab_find(v, text_of("<s>")), VOCAB_UNK);
    CHECK_INT(vocab_find(v, text_of("<unk>")), VOCAB_UNK);
    vocab_free(v);
}

TEST(encoding_and_decoding_are_inverse) {
    int32_t ids[16];
    char out[64];
    vocab *words = learn(TEXT_WORDS,
                         "die Katze schl\xc3\xa4"
                         "ft",
                         (vocab_options){0});
    vocab *characters = learn(TEXT_CHARACTERS,
                              "die Katze schl\xc3\xa4"
                              "ft",
                              (vocab_options){0});
    if (!CHECK(words && characters)) return;
    int64_t n = vocab_encode(words, TEXT_WORDS, text_of(" die  Katze ruft "), ids, 16);
    CHECK_INT(n, 3);
    CHECK_INT(ids[2], VOCAB_UNK);
    CHECK_INT(vocab_decode(words, TEXT_WORDS, ids, n, out, sizeof out), 15);
    CHECK_STR(out, "die Katze <unk>");
    n = vocab_encode(characters, TEXT_CHARACTERS,
                     text_of("f\xc3\xa4"
                             "ll z"),
                     ids, 16);
    CHECK_INT(n, 6);
    CHECK_INT(vocab_decode(characters, TEXT_CHARACTERS, ids, n, out, sizeof out), 7);
    CHECK_STR(out, "f\xc3\xa4"
                   "ll z");
    vocab_free(words);
    vocab_free(characters);
}

TEST(encoding_and_decoding_stay_within_their_arrays) {
    int32_t ids[4] = {-7, -7, -7, -7};
    char out[8];
    vocab *v = learn(TEXT_WORDS, "ab cd ef", (vocab_options){0});
    if (!CHECK(v)) return;
    CHECK_INT(vocab_encode(v, TEXT_WORDS, text_of("ab cd ef"), ids, 2), 3);
    CHECK_INT(ids[2], -7);
    const int32_t sentence[] = {VOCAB_START, 3, 4, VOCAB_END, 5};
    for (size_t size = 0; size < sizeof out; size++) {
        memset(out, '#', sizeof out);
        CHECK_INT(vocab_decode(v, TEXT_WORDS, sentence, 5, out, size), 5);
        CHECK(out[size] == '#');
        if (size) CHECK(!strncmp(out, "ab cd", size - 1) && strlen(out) == (size - 1 < 5 ? size - 1 : 5));
    }
    const int32_t wrong[] = {-1, 1000};
    CHECK_INT(vocab_decode(v, TEXT_CHARACTERS, wrong, 2, NULL, 0), 10);
    vocab_free(v);
}

TEST(a_vocabulary_of_many_tokens_finds_each) {
    enum { N = 50000 };
    char word[32];
    vocab_counter *counter = vocab_counter_create();
    vocab *v = NULL;
    if (!CHECK(counter)) return;
    for (int i = 0; i < N; i++) {
        int n = snprintf(word, sizeof word, "t%d", i);
        if (!CHECK_INT(vocab_counter_add(counter, TEXT_WORDS, (text_slice){word, (size_t)n}, N - i), 0)) return;
    }
    CHECK_INT(vocab_build(&v, counter, &(vocab_options){0}), 0);
    vocab_counter_free(counter);
    if (!CHECK(v)) return;
    for (int i = 0; i < N; i++) {
        snprintf(word, sizeof word, "t%d", i);
        if (!CHECK_INT(vocab_find(v, text_of(word)), i + VOCAB_SPECIALS)) break;
    }
    CHECK_INT(vocab_find(v, text_of("t-1")), VOCAB_UNK);
    vocab_free(v);
}

TEST(bad_vocabulary_options_are_refused) {
    vocab_counter *counter = vocab_counter_create();
    vocab *v = NULL;
    if (!CHECK(counter)) return;
    CHECK_INT(vocab_build(&v, counter, &(vocab_options){.max_size = 3}), -1);
    CHECK_STR(adamod__last_message(), "vocabulary: max_size is 3, expected more than the 3 special tokens");
    CHECK_INT(vocab_build(&v, counter, &(vocab_options){.min_count = -1}), -1);
    CHECK_STR(adamod__last_message(), "vocabulary: min_count is -1, expected >= 0");
    CHECK(!v);
    vocab_counter_free(counter);
    vocab_free(NULL);
    vocab_counter_free(NULL);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static char directory[] = "/tmp/test_corpus.XXXXXX";

static const char *path_of(const char *name) {
    static char paths[2][320]; /* enough for any name of a directory entry */
    static int which;
    if (strstr(directory, "XXXXXX") && !mkdtemp(directory)) abort();
    which = !which;
    snprintf(paths[which], sizeof paths[which], "%s/%s", directory, name);
    return paths[which];
}

static const char *write_file(const char *name, text_slice bytes) {
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes.bytes, 1, bytes.n, f) != bytes.n || fclose(f)) abort();
    return path;
}

static int files_in_directory(void) {
    DIR *dir = opendir(directory);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) n += e->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

static void clean_up(void) {
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') unlink(path_of(e->d_name));
    if (dir) closedir(dir);
    rmdir(directory);
    memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
}

TEST(a_saved_vocabulary_loads_the_same) {
    const char *path = write_file("vocab.txt", TEXT("old"));
    vocab *v = learn(TEXT_CHARACTERS, "ab  c\r\xc3\xa4\xe2\x82\xac", (vocab_options){0}), *again = NULL;
    CHECK_INT(vocab_save(v, path), 0);
    CHECK_INT(files_in_directory(), 1);
    if (!CHECK_INT(vocab_load(&again, path), 0)) return;
    CHECK_INT(vocab_size(again), vocab_size(v));
    for (int32_t i = 0; i < vocab_size(v); i++) CHECK_STR(vocab_token(again, i).bytes, vocab_token(v, i).bytes);
    vocab_free(again);
    char *bytes;
    size_t n;
    if (CHECK_INT(text_read(path, &bytes, &n), 0))
        CHECK_SLICE(((text_slice){bytes, n}), "<s>\n</s>\n<unk>\n \n\r\na\nb\nc\n\xc3\xa4\n\xe2\x82\xac\n");
    free(bytes);
    vocab_free(v);
    clean_up();
}

TEST(a_vocabulary_that_cannot_be_written_leaves_nothing) {
    vocab *v = learn(TEXT_WORDS, "a", (vocab_options){0});
    char path[320], expected[420];
    snprintf(path, sizeof path, "%s", path_of("none/vocab.txt"));
    CHECK_INT(vocab_save(v, path), ADAMOD_ERROR_IO);
    snprintf(expected, sizeof expected, "%s: cannot create a temporary file beside it: No such file or directory",
             path);
    CHECK_STR(adamod__last_message(), expected);
    /* A directory is in the way of the rename. */
    snprintf(path, sizeof path, "%s", path_of("taken"));
    CHECK_INT(mkdir(path, 0777), 0);
    CHECK_INT(vocab_save(v, path), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod__last_message(), "exists and is not a regular file");
    CHECK_INT(files_in_directory(), 1);
    rmdir(path);
    vocab_free(v);
    clean_up();
}

TEST(bad_vocabulary_files_are_refused) {
    static const struct {
        text_slice bytes;
        const char *says;
    } cases[] = {
        {TEXT(""), "v: not a vocabulary: 0 lines, expected at least 3"},
        {TEXT("<s>\n</s>\n"), "v: not a vocabulary: 2 lines, expected at least 3"},
        {TEXT("a\nb\nc\n"), "v:1: not a vocabulary, expected the special token <s> here"},
        {TEXT("<s>\r\n</s>\r\n<unk>\r\n"), "v:1: not a vocabulary, expected the special token <s> here"},
        {TEXT("<s>\n<unk>\n</s>\n"), "v:2: not a vocabulary, expected the special token </s> here"},
        {TEXT("<s>\n</s>\n<unk>\na\n\nb\n"), "v:5: empty line, expected a token"},
        {TEXT("<s>\n</s>\n<unk>\na\nb\na\n"), "v:6: the token of line 4 again, expected a new one"},
        {TEXT("<s>\n</s>\n<unk>\n</s>\n"), "v:4: the token of line 2 again, expected a new one"},
        {TEXT("<s>\n</s>\n<unk>\na\nb"), "v:5: truncated: no newline after the last token"},
        {TEXT("<s>\n</s>\n<unk>\na\xff\n"), "v:4: byte 2 is 0xff, which is not UTF-8 here"},
        {TEXT("<s>\n</s>\n<unk>\n\0\n"), "v:4: byte 1 is zero, expected text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vocab *v = NULL;
        CHECK_INT(vocab_parse(&v, cases[i].bytes, "v"), -1);
        CHECK_STR(adamod__last_message(), cases[i].says);
        CHECK(!v);
    }
    vocab *v;
    CHECK_INT(vocab_load(&v, "/nonexistent/vocab"), -1);
    CHECK_STR(adamod__last_message(), "/nonexistent/vocab: cannot open: No such file or directory");
    CHECK_INT(vocab_load(&v, "/tmp"), -1);
    CHECK_STR(adamod__last_message(), "/tmp: cannot read: Is a directory");
    CHECK_INT(vocab_load(&v, "/nonexistent/vocab"), -1);
}

/* ---- Two aligned files ------------------------------------------------------------------------------------------- */

static int parse(corpus_text *out, text_slice src, text_slice tgt, corpus_options options) {
    return corpus_parse(out, &(corpus_file){"s", src}, &(corpus_file){"t", tgt}, &options);
}

static void check_pair(const corpus_text *text, int64_t i, const char *src, const char *tgt) {
    if (!CHECK(i < text->n)) return;
    CHECK_SLICE(corpus_sentence(&text->src, i), src);
    CHECK_SLICE(corpus_sentence(&text->tgt, i), tgt);
}

TEST(aligned_lines_are_pairs) {
    corpus_text text;
    if (!CHECK_INT(parse(&text, TEXT("ein Hund\r\nzwei\n"), TEXT("a dog\n two "), (corpus_options){0}), 0)) return;
    CHECK_INT(text.n, 2);
    CHECK_INT(text.counts.lines, 2);
    check_pair(&text, 0, "ein Hund", "a dog");
    check_pair(&text, 1, "zwei", " two ");
    corpus_text_free(&text);
    corpus_text_free(&text);
}

TEST(two_files_are_read) {
    corpus_text text;
    char src[320], tgt[320];
    snprintf(src, sizeof src, "%s", write_file("x.de", TEXT("\xef\xbb\xbfja\nnein\n")));
    snprintf(tgt, sizeof tgt, "%s", write_file("x.en", TEXT("yes\nno")));
    if (CHECK_INT(corpus_bitext(&text, src, tgt, &(corpus_options){0}), 0))
        check_pair(&text, 0, "ja", "yes"), check_pair(&text, 1, "nein", "no");
    corpus_text_free(&text);
    CHECK_INT(corpus_bitext(&text, src, "/nonexistent/x.en", &(corpus_options){0}), -1);
    CHECK_STR(adamod__last_message(), "/nonexistent/x.en: cannot open: No such file or directory");
    CHECK(!text.n && !text.src.bytes);
    clean_up();
}

TEST(bad_files_are_refused_in_one_line) {
    static const struct {
        text_slice src, tgt;
        corpus_options options;
        const char *says;
    } cases[] = {
        {TEXT("a\nb\nc\n"), TEXT("a\nb\n"), {0}, "s has 3 lines and t has 2, expected the same number"},
        {TEXT(""), TEXT("a\n"), {0}, "s has 0 lines and t has 1, expected the same number"},
        {TEXT(""), TEXT(""), {0}, "s: no lines, expected sentences"},
        {TEXT("a\n\xc3(\n"), TEXT("a\nb\n"), {0}, "s:2: byte 1 is 0xc3, which is not UTF-8 here"},
        {TEXT("a\nb\n"), TEXT("a\nbc\xed\xa0\x80\n"), {0}, "t:2: byte 3 is 0xed, which is not UTF-8 here"},
        {TEXT("a\nb\0\n"), TEXT("a\nb\n"), {0}, "s:2: byte 2 is zero, expected text"},
        {TEXT("a\n\nb\n"), TEXT("a\nb\nc\n"), {0}, "s:2: empty line, expected a sentence"},
        {TEXT("a\nb\n"), TEXT("a\n  \n"), {.unit = TEXT_CHARACTERS}, "t:2: empty line, expected a sentence"},
        {TEXT("a\nb\n"), TEXT("a\n\r\n"), {0}, "t:2: empty line, expected a sentence"},
        {TEXT("a\na b c\n"), TEXT("a\na\n"), {.max_tokens = 2}, "s:2: 3 tokens, expected at most 2"},
        {TEXT("a\n"), TEXT("abcd\n"), {.max_tokens = 3, .unit = TEXT_CHARACTERS}, "t:1: 4 tokens, expected at most 3"},
        {TEXT("\na b\na a\n"),
         TEXT("a\na b c d\na b c\n"),
         {.empty = CORPUS_SKIP, .max_ratio = 1.5, .max_tokens = 2, .too_long = CORPUS_SKIP},
         "s: none of 3 lines left: 1 empty, 1 of unequal length, 1 too long"},
        {TEXT("a\n"), TEXT("a\n"), {.max_tokens = -1}, "corpus: max_tokens is -1, expected >= 0"},
        {TEXT("a\n"), TEXT("a\n"), {.max_ratio = 0.5}, "corpus: max_ratio is 0.5, expected 0 or >= 1"},
        {TEXT("a\n"),
         TEXT("a\n"),
         {.empty = CORPUS_TRUNCATE},
         "corpus: empty lines cannot be truncated, expected refuse or skip"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        corpus_text text;
        CHECK_INT(parse(&text, cases[i].src, cases[i].tgt, cases[i].options), -1);
        CHECK_STR(adamod__last_message(), cases[i].says);
        CHECK(!text.n && !text.src.bytes && !text.tgt.at);
    }
}

TEST(filters_leave_out_and_count) {
    corpus_text text;
    corpus_options options = {.empty = CORPUS_SKIP, .max_tokens = 4, .too_long = CORPUS_SKIP, .max_ratio = 1.5};
    text_slice src = TEXT("a b\n\na b\na b c\na b c d e\na b c d e\na\n"),
               tgt = TEXT("a b c\na\na b c d\na b\na b c d e\na b c d\n \n");
    if (!CHECK_INT(parse(&text, src, tgt, options), 0)) return;
    CHECK_INT(text.n, 2); /* 3 to 2 is a ratio of 1.5 and stays */
    check_pair(&text, 0, "a b", "a b c");
    check_pair(&text, 1, "a b c", "a b");
    CHECK_INT(text.counts.lines, 7);
    CHECK_INT(text.counts.empty, 2);
    CHECK_INT(text.counts.ratio, 1);
    CHECK_INT(text.counts.too_long, 2);
    CHECK_INT(text.counts.truncated, 0);
    corpus_text_free(&text);
}

TEST(long_sentences_can_be_truncated) {
    corpus_text text;
    corpus_options options = {.max_tokens = 3, .too_long = CORPUS_TRUNCATE};
    if (!CHECK_INT(parse(&text, TEXT("a  bb c d\nx\n"), TEXT("e f\ny z u v w\n"), options), 0)) return;
    check_pair(&text, 0, "a  bb c", "e f");
    check_pair(&text, 1, "x", "y z u");
    CHECK_INT(text.counts.truncated, 2);
    CHECK_INT(text.counts.too_long, 0);
    corpus_text_free(&text);
    options.unit = TEXT_CHARACTERS;
    if (!CHECK_INT(parse(&text, TEXT("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f\n"), TEXT("ab\n"), options), 0)) return;
    check_pair(&text, 0, "\xc3\xa4\xc3\xb6\xc3\xbc", "ab");
    corpus_text_free(&text);
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

TEST(sides_have_vocabularies_of_their_own_or_a_joint_one) {
    corpus_text text;
    vocab *src, *tgt, *joint;
    corpus_options options = {0};
    if (!CHECK_INT(parse(&text, TEXT("a b\nb\n"), TEXT("c a\nc c\n"), options), 0)) return;
    CHECK_INT(corpus_vocab(&text, CORPUS_SOURCE, &(vocab_options){0}, &src), 0);
    CHECK_INT(corpus_vocab(&text, CORPUS_TARGET, &(vocab_options){0}, &tgt), 0);
    CHECK_INT(corpus_vocab(&text, CORPUS_SOURCE | CORPUS_TARGET, &(vocab_options){0}, &joint), 0);
    check_tokens(src, 2, (const char *const[]){"b", "a"});
    check_tokens(tgt, 2, (const char *const[]){"c", "a"});
    check_tokens(joint, 3, (const char *const[]){"c", "a", "b"});
    corpus_text_free(&text);
    vocab_free(src);
    vocab_free(tgt);
    vocab_free(joint);
}

TEST(a_corpus_is_the_ids_of_its_text) {
    corpus_text text;
    corpus pairs;
    vocab *src = learn(TEXT_WORDS, "b b a", (vocab_options){0}), *tgt = learn(TEXT_WORDS, "x", (vocab_options){0});
    if (!CHECK_INT(parse(&text, TEXT("a b\nq\nb b a\n"), TEXT("x\ny x\nz\n"), (corpus_options){0}), 0)) return;
    if (!CHECK_INT(corpus_encode(&pairs, &text, src, tgt), 0)) return;
    const int32_t src_ids[] = {4, 3, VOCAB_UNK, 3, 3, 4}, tgt_ids[] = {3, VOCAB_UNK, 3, VOCAB_UNK};
    CHECK_INT(pairs.n, 3);
    CHECK(!memcmp(pairs.src.at, (const int64_t[]){0, 2, 3, 6}, 4 * sizeof(int64_t)));
    CHECK(!memcmp(pairs.tgt.at, (const int64_t[]){0, 1, 3, 4}, 4 * sizeof(int64_t)));
    CHECK(!memcmp(pairs.src.ids, src_ids, sizeof src_ids));
    CHECK(!memcmp(pairs.tgt.ids, tgt_ids, sizeof tgt_ids));
    CHECK_INT(pairs.src.unknown, 1);
    CHECK_INT(pairs.tgt.unknown, 2);
    CHECK_INT(corpus_length(&pairs.src, 2), 3);
    corpus_free(&pairs);
    corpus_free(&pairs);
    corpus_text_free(&text);
    vocab_free(src);
    vocab_free(tgt);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* The number that a pair is about, by a table of all German ones; -1 if the English does not fit. */
static vocab *all_german;

static int number_of(const corpus_text *text, int64_t i) {
    char english[NUMBERS_SIZE];
    text_slice tgt = corpus_sentence(&text->tgt, i);
    int n = vocab_find(all_german, corpus_sentence(&text->src, i)) - VOCAB_SPECIALS;
    if (n < 0 || numbers_english(n, english, sizeof english) < 0) return -1;
    return tgt.n == strlen(english) && !memcmp(tgt.bytes, english, tgt.n) ? n : -1;
}

static int make_all_german(void) {
    if (all_german) return 1;
    vocab_counter *counter = vocab_counter_create();
    for (int n = 0; counter && n < NUMBERS_LIMIT; n++) {
        char german[NUMBERS_SIZE];
        int length = numbers_german(n, german, sizeof german);
        vocab_counter_add(counter, TEXT_WORDS, (text_slice){german, (size_t)length}, NUMBERS_LIMIT - n);
    }
    vocab_build(&all_german, counter, &(vocab_options){0});
    vocab_counter_free(counter);
    return CHECK(all_german);
}

enum { NONE, IN_TRAIN, IN_VALID, IN_TEST };
static unsigned char member[NUMBERS_LIMIT];

/* Marks every number of a text, which must not be marked yet; counts them by number of digits. */
static void mark(const corpus_text *text, unsigned char set, int64_t digits[7]) {
    memset(digits, 0, 7 * sizeof *digits);
    for (int64_t i = 0; i < text->n; i++) {
        int n = number_of(text, i), length = 1;
        if (!CHECK(n >= 0) || !CHECK_INT(member[n], NONE)) return;
        member[n] = set;
        for (int limit = 10; n >= limit; limit *= 10) length++;
        digits[length]++;
    }
}

static void check_digits(const int64_t digits[7], const int64_t expected[6]) {
    for (int i = 0; i < 6; i++) CHECK_INT(digits[i + 1], expected[i]);
}

static int same_lines(const corpus_lines *a, const corpus_lines *b, int64_t n) {
    return !memcmp(a->at, b->at, (size_t)(n + 1) * sizeof *a->at) && !memcmp(a->bytes, b->bytes, (size_t)a->at[n]);
}

static int same_text(const corpus_text *a, const corpus_text *b) {
    return a->n == b->n && same_lines(&a->src, &b->src, a->n) && same_lines(&a->tgt, &b->tgt, a->n);
}

typedef struct splits {
    corpus_text train, valid, test;
} splits;

static int draw(splits *s, uint64_t seed, int64_t n_train, int64_t n_valid, int64_t n_test) {
    return CHECK_INT(corpus_numbers(seed, n_train, n_valid, n_test, &s->train, &s->valid, &s->test), 0);
}

static void free_splits(splits *s) {
    corpus_text_free(&s->train);
    corpus_text_free(&s->valid);
    corpus_text_free(&s->test);
}

TEST(number_splits_are_disjoint_and_mix_all_lengths) {
    splits s;
    int64_t digits[7];
    if (!make_all_german() || !draw(&s, 1, 20000, 500, 600)) return;
    CHECK_INT(s.train.n, 20000);
    CHECK_INT(s.valid.n, 500);
    CHECK_INT(s.test.n, 600);
    CHECK_INT(s.train.unit, TEXT_CHARACTERS);
    memset(member, NONE, sizeof member);
    mark(&s.train, IN_TRAIN, digits);
    check_digits(digits, (const int64_t[]){10, 82, 810, 6366, 6366, 6366});
    mark(&s.valid, IN_VALID, digits);
    check_digits(digits, (const int64_t[]){0, 4, 45, 150, 150, 151});
    mark(&s.test, IN_TEST, digits);
    check_digits(digits, (const int64_t[]){0, 4, 45, 183, 184, 184});
    CHECK_INT(member[0], IN_TRAIN);
    free_splits(&s);
}

TEST(held_out_numbers_depend_on_nothing_else) {
    splits a, b;
    if (!draw(&a, 1, 1000, 300, 200) || !draw(&b, 99, 30000, 300, 200)) return;
    CHECK(same_text(&a.valid, &b.valid));
    CHECK(same_text(&a.test, &b.test));
    CHECK(!same_text(&a.valid, &a.test));
    free_splits(&b);
    if (!draw(&b, 1, 1000, 700, 200)) return;
    CHECK(same_text(&a.test, &b.test));
    CHECK(same_text(&a.train, &b.train));
    free_splits(&a);
    free_splits(&b);
}

/* The held-out sets are part of what results mean: these are the first pairs of today's. */
TEST(held_out_numbers_stay_what_they_are) {
    splits s;
    if (!make_all_german() || !draw(&s, 5, 10, 3, 3)) return;
    for (int i = 0; i < 3; i++) {
        static const int valid[] = {683541, 6853, 80379}, test[] = {453741, 7463, 61679};
        CHECK_INT(number_of(&s.valid, i), valid[i]);
        CHECK_INT(number_of(&s.test, i), test[i]);
    }
    free_splits(&s);
}

TEST(the_seed_draws_the_training_numbers) {
    splits a, b, c;
    if (!draw(&a, 1, 5000, 0, 0) || !draw(&b, 1, 5000, 0, 0) || !draw(&c, 2, 5000, 0, 0)) return;
    CHECK(same_text(&a.train, &b.train));
    CHECK(!same_text(&a.train, &c.train));
    CHECK_INT(a.valid.n, 0);
    free_splits(&a);
    free_splits(&b);
    free_splits(&c);
}

TEST(a_larger_sample_holds_the_smaller) {
    splits small, large;
    int64_t digits[7];
    if (!make_all_german() || !draw(&small, 3, 3001, 501, 11) || !draw(&large, 3, 3007, 1003, 17)) return;
    memset(member, NONE, sizeof member);
    mark(&large.train, IN_TRAIN, digits);
    mark(&large.valid, IN_VALID, digits);
    mark(&large.test, IN_TEST, digits);
    for (int64_t i = 0; i < small.train.n; i++) CHECK_INT(member[number_of(&small.train, i)], IN_TRAIN);
    for (int64_t i = 0; i < small.valid.n; i++) CHECK_INT(member[number_of(&small.valid, i)], IN_VALID);
    for (int64_t i = 0; i < small.test.n; i++) CHECK_INT(member[number_of(&small.test, i)], IN_TEST);
    free_splits(&small);
    free_splits(&large);
}

TEST(all_numbers_can_be_drawn) {
    splits s;
    int64_t digits[7];
    if (fast()) SKIP("ADAMOD_TEST_FAST is set");
    if (!make_all_german()) return;
    if (!draw(&s, 4, CORPUS_NUMBERS_TRAIN, CORPUS_NUMBERS_HELD_OUT, CORPUS_NUMBERS_HELD_OUT)) return;
    memset(member, NONE, sizeof member);
    mark(&s.train, IN_TRAIN, digits);
    check_digits(digits, (const int64_t[]){10, 82, 810, 8100, 81000, 810000});
    mark(&s.valid, IN_VALID, digits);
    check_digits(digits, (const int64_t[]){0, 4, 45, 450, 4500, 45000});
    mark(&s.test, IN_TEST, digits);
    CHECK(!memchr(member, NONE, sizeof member));
    free_splits(&s);
}

/* Among six digits, every leading digit is as likely: 9 cells of 1000 / 9 each, chi-square with 8 degrees of freedom,
 * whose 0.9999 quantile is 31.8. The draw is fixed, so this either holds for ever or never. */
TEST(held_out_numbers_are_spread_evenly) {
    splits s;
    int count[10] = {0}, total = 0;
    double chi_square = 0;
    if (!make_all_german() || !draw(&s, 1, 1, 0, 5000)) return;
    for (int64_t i = 0; i < s.test.n; i++) {
        int n = number_of(&s.test, i);
        if (n >= 100000) count[n / 100000]++, total++;
    }
    for (int i = 1; i < 10; i++) chi_square += (count[i] - total / 9.0) * (count[i] - total / 9.0) / (total / 9.0);
    CHECK(total > 1000 && chi_square < 31.8);
    free_splits(&s);
}

TEST(more_numbers_than_there_are_are_refused) {
    splits s;
    CHECK_INT(corpus_numbers(1, 0, 1, 1, &s.train, &s.valid, &s.test), -1);
    CHECK_STR(adamod__last_message(), "numbers: 0 training pairs, expected 1 to 900002");
    CHECK_INT(corpus_numbers(1, 900003, 1, 1, &s.train, &s.valid, &s.test), -1);
    CHECK_STR(adamod__last_message(), "numbers: 900003 training pairs, expected 1 to 900002");
    CHECK_INT(corpus_numbers(1, 1, 50000, -1, &s.train, &s.valid, &s.test), -1);
    CHECK_STR(adamod__last_message(), "numbers: 50000 validation and -1 test pairs, expected 0 to 49999");
    CHECK(!s.train.n && !s.valid.n && !s.test.n);
}

RUN_TESTS(ENTRY(utf8_is_what_rfc_3629_says), ENTRY(tokens_are_words_or_code_points),
          ENTRY(a_last_line_needs_no_newline), ENTRY(ids_go_by_count_then_by_bytes),
          ENTRY(rare_tokens_and_those_beyond_the_size_are_unknown), ENTRY(text_cannot_forge_the_marks),
          ENTRY(encoding_and_decoding_are_inverse), ENTRY(encoding_and_decoding_stay_within_their_arrays),
          ENTRY(a_vocabulary_of_many_tokens_finds_each), ENTRY(bad_vocabulary_options_are_refused),
          ENTRY(a_saved_vocabulary_loads_the_same), ENTRY(a_vocabulary_that_cannot_be_written_leaves_nothing),
          ENTRY(bad_vocabulary_files_are_refused), ENTRY(aligned_lines_are_pairs), ENTRY(two_files_are_read),
          ENTRY(bad_files_are_refused_in_one_line), ENTRY(filters_leave_out_and_count),
          ENTRY(long_sentences_can_be_truncated), ENTRY(sides_have_vocabularies_of_their_own_or_a_joint_one),
          ENTRY(a_corpus_is_the_ids_of_its_text), ENTRY(number_splits_are_disjoint_and_mix_all_lengths),
          ENTRY(held_out_numbers_depend_on_nothing_else), ENTRY(held_out_numbers_stay_what_they_are),
          ENTRY(the_seed_draws_the_training_numbers), ENTRY(a_larger_sample_holds_the_smaller),
          ENTRY(all_numbers_can_be_drawn), ENTRY(held_out_numbers_are_spread_evenly),
          ENTRY(more_numbers_than_there_are_are_refused))
