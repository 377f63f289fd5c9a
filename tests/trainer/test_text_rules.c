/* Rules about text, in a few lines; tests/trainer/test_text.sh compares many with sacremoses and subword-nmt.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

#include "data/bpe.h"
#include "data/mersenne.h"
#include "data/normalizer.h"
#include "data/pcg64.h"
#include "data/score.h"
#include "data/strings.h"
#include "data/text_chain.h"
#include "data/tokenizer.h"
#include "core/error.h"

#include <stdlib.h>

static void check_tokens(const char *language, const char *line, const char *tokens, const char *joined) {
    tokenizer *t = tokenizer_create(&(tokenizer_options){.language = language});
    if (!CHECK(t != NULL)) return;
    char *got = tokenizer_split(t, text_of(line)), *back = tokenizer_join(t, text_of(tokens));
    if (CHECK(got && back)) {
        CHECK_STR(got, tokens);
        CHECK_STR(back, joined);
    }
    free(got);
    free(back);
    tokenizer_free(t);
}

TEST(tokens_and_back) {
    check_tokens("en", "It's Mr. X, isn't it...", "It &apos;s Mr. X , isn &apos;t it ...", "It's Mr. X, isn't it...");
    check_tokens("de", "Am 3. Mai (z.B.) „so“.", "Am 3. Mai ( z.B. ) „ so “ .", "Am 3. Mai (z.B.) „so“.");
    check_tokens("fr", "L'été, c'est 5%!", "L&apos; été , c&apos; est 5 % !", "L'été, c'est 5 % !");
    check_tokens("cs", "Je to 3.", "Je to 3 .", "Je to 3.");
    check_tokens("fi", "Se on nk. Ö. Virta.", "Se on nk. Ö. Virta .", "Se on nk. Ö. Virta.");
    check_tokens("ru", "См. с. Анна.", "См. с. Анна .", "См. с. Анна.");
    check_tokens("sv", "En fil. Ek.", "En fil. Ek .", "En fil. Ek.");
    check_tokens("en", "", "", "");
    check_tokens("en", " \t.", ".", ".");
    for (int i = 0; i < 3; i++) { /* a full stop and an apostrophe at the end, with nothing, or little, before them */
        const char *language = ((const char *const[]){"en", "fr", "de"})[i];
        check_tokens(language, ".'", ". &apos;", ". '");
        check_tokens(language, " . ' ", ". &apos;", ". '");
        check_tokens(language, "a .'", "a . &apos;", "a. '");
        check_tokens(language, "...'", "... &apos;", "... '");
    }
    check_tokens("en", "a.'", "a . &apos;", "a. '");
    check_tokens("en", "dogs' \x01", "dogs&apos;", "dogs'"); /* nothing follows what is at the end */
}

static void check_chain(const text_chain_options *o, const char *line, const char *tokens, const char *joined) {
    text_chain *c = text_chain_create(o);
    if (!CHECK(c != NULL)) return;
    char *got = text_chain_split(c, text_of(line)), *back = text_chain_join(c, text_of(tokens));
    if (CHECK(got && back)) {
        CHECK_STR(got, tokens);
        CHECK_STR(back, joined);
    }
    free(got);
    free(back);
    text_chain_free(c);
}

/* Expected: the output of fairseq's scripts with Moses' own. */
TEST(chains_of_rules) {
    const text_chain_options iwslt = {.language = "de", .split_last = true, .lower = true},
                             sacremoses = {.language = "de"};
    text_chain_options wmt = {.language = "en", .normalize = true, .split_hyphens = true, .split_last = true};
    check_chain(&iwslt, "Am 26. Mai um 11.", "am 26. mai um 11 .", "am 26. mai um 11.");
    check_chain(&sacremoses, "Am 26. Mai um 11.", "Am 26. Mai um 11.", "Am 26. Mai um 11.");
    check_chain(&wmt, "“Well-known”\u200bto\u00adday & at 5 p.m.",
                "&quot; Well @-@ known &quot; to day &amp; at 5 p.m .", "\"Well-known\" to day & at 5 p.m.");
    check_chain(&wmt, "\x01\x7f \U000f0000 \U0001f600", "\U0001f600", "\U0001f600");
    check_chain(&wmt, "users’ needs", "users &quot; needs", "users \"needs");
    check_chain(&wmt, "", "", "");
    wmt.language = "de";
    check_chain(&wmt, "„Ja.“", "&quot; Ja &quot; .", "\"Ja\".");
    check_chain(&wmt, "a\u00a0«\u00a0b\u00a0»\u00a0c", "a &quot; b &quot; c", "a \"b\" c");
}

TEST(punctuation_and_case) {
    normalizer n = {0};
    normalizer_start(&n, "de");
    char *normal = normalizer_line(&n, text_of("„So“ – 1\u00a0000 %… ( ja ) :"));
    char *lower = normalizer_lower(&n, text_of("ÄÇ ŸΩ İ"));
    CHECK_STR(normal, "\"So\" - 1,000%... (ja):");
    CHECK_STR(lower, "äç ÿω i\u0307");
    free(normal);
    free(lower);
    normalizer_free(&n);
}

TEST(strings_have_numbers) {
    strings *s = strings_create();
    char name[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5000; i++) {
            snprintf(name, sizeof name, "%d", i * 7);
            CHECK_INT(strings_add(s, text_of(name)), i);
        }
    }
    CHECK_INT(strings_count(s), 5000);
    CHECK_INT(strings_find(s, text_of("5")), -1);
    CHECK_INT(strings_find(s, text_of("7")), 1);
    CHECK_INT(strings_add(s, text_of("")), 5000);
    strings_free(s);
}

TEST(subwords_are_learned_and_applied) {
    bpe_learner *l = bpe_learner_create();
    int64_t done;
    CHECK_INT(bpe_learner_add(l, text_of("low low lower lower newest newest newest widest")), 0);
    char *codes = bpe_learner_run(l, 5, 2, &done);
    CHECK_INT(done, 5);
    CHECK_STR(codes, "#version: 0.2\nw e\ns t</w>\nl o\nwe st</w>\nn e\n");
    bpe *b = NULL;
    if (CHECK_INT(bpe_parse(&b, text_of(codes), -1, "c"), 0)) {
        bpe_worker *w = bpe_worker_create(b, &(bpe_options){0});
        for (int i = 0; i < 2; i++) { /* the second time from the cache */
            char *line = bpe_apply(w, text_of(" lowest  newest st x"));
            CHECK_STR(line, " lo@@ west ne@@ west st x");
            free(line);
        }
        bpe_worker_free(w);
    }
    bpe_free(b);
    free(codes);
    bpe_learner_free(l);
}

/* 2^k characters are merged to one subword, however long it is; a vocabulary without it splits it again. */
TEST(long_subwords_are_split_by_a_vocabulary) {
    enum { LENGTH = 512 };
    char codes[4 * LENGTH] = "#version: 0.2\n", word[LENGTH + 2], *line = NULL;
    for (int n = 1; n < LENGTH; n *= 2) {
        memset(word, 'x', (size_t)n);
        snprintf(codes + strlen(codes), sizeof codes - strlen(codes), "%.*s %.*s\n", n, word, n, word);
    }
    memset(word, 'x', LENGTH);
    memcpy(word + LENGTH, "y", 2);
    bpe *b = NULL;
    CHECK_INT(bpe_parse(&b, text_of(codes), -1, "c"), 0);
    CHECK_INT(bpe_restrict(b, text_of("y 1\n"), 1, NULL, "v"), 0);
    bpe_worker *w = bpe_worker_create(b, &(bpe_options){0});
    line = bpe_apply(w, text_of(word));
    CHECK_INT(strlen(line), 4 * LENGTH + 1); /* x@@ x@@ ... y */
    free(line);
    bpe_worker_free(w);
    bpe_free(b);
}

/* Expected: numpy.random.default_rng(12345).choice(7, 14), and Python's random.seed(7). */
TEST(random_numbers_are_those_of_python) {
    static const uint32_t expected[] = {4, 1, 5, 2, 1, 5, 4, 4, 6, 2, 5, 2, 3, 4};
    pcg64 p;
    mersenne m;
    pcg64_seed(&p, 12345);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) CHECK_INT(pcg64_below(&p, 7), expected[i]);
    mersenne_seed(&m, 7);
    CHECK_CLOSE(mersenne_next(&m), 0.32383276483316237, 0);
    CHECK_CLOSE(mersenne_next(&m), 0.15084917392450192, 0);
}

TEST(scores_are_those_of_sacrebleu) {
    char line[200];
    const score_options o = {.metric = SCORE_BLEU}, c = {.metric = SCORE_CHRF_PLUS};
    score_text *s = score_create(&o), *t = score_create(&c);
    const char *const pairs[][2] = {{"The cat, it's said, sat on the mat.", "The cat sat, it's said, on the mat."},
                                    {"", "x"}};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(score_add(s, text_of(pairs[i][0]), text_of(pairs[i][1])), 0);
        CHECK_INT(score_add(t, text_of(pairs[i][0]), text_of(pairs[i][1])), 0);
    }
    CHECK_CLOSE(score_value(s), 48.22059513526159, 1e-12);
    CHECK_CLOSE(score_value(t), 78.05267945704871, 1e-12);
    CHECK_STR(score_signature(&o, 9, line, sizeof line),
              "nrefs:1|bs:9|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0");
    score_free(s);
    score_free(t);
}

/* chrF's intervals in float32, to the last bit. */
TEST(intervals_are_those_of_sacrebleu) {
    static const char *const pairs[][2] = {
        {"sat ran ran", "the cat cat"}, {"dog far mat", "dog sat mat"}, {"the the dog", "mat on the"}};
    const score_options o = {.metric = SCORE_CHRF};
    score_interval interval = {0};
    score_text *s = score_create(&o);
    for (int i = 0; i < 3; i++) CHECK_INT(score_add(s, text_of(pairs[i][0]), text_of(pairs[i][1])), 0);
    CHECK_INT(score_resample(s, 50, &interval), 0);
    CHECK_CLOSE(interval.mean, 16.754688262939453, 0);
    CHECK_CLOSE(interval.half, 9.20965576171875, 0);
    score_free(s);
}

TEST(bad_codes_are_refused) {
    static const char *const cases[][2] = {
        {"", "c: empty, expected codes of subwords"},
        {"#version: 1.0\na b\n", "c:1: codes of version '1.0', expected 0.1 or 0.2"},
        {"#version: 0.2\na  b\n", "c:2: expected two symbols with a space between"},
        {"a b\n\nc d\n", "c:2: expected two symbols with a space between"},
        {"a b\n\xff c\n", "c:2: byte 1 is 0xff, which is not UTF-8 here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bpe *b;
        CHECK_INT(bpe_parse(&b, text_of(cases[i][0]), -1, "c"), -1);
        CHECK_STR(adamod__last_message(), cases[i][1]);
        CHECK(b == NULL);
    }
}

RUN_TESTS(ENTRY(tokens_and_back), ENTRY(chains_of_rules), ENTRY(punctuation_and_case), ENTRY(strings_have_numbers),
          ENTRY(subwords_are_learned_and_applied), ENTRY(long_subwords_are_split_by_a_vocabulary),
          ENTRY(random_numbers_are_those_of_python), ENTRY(scores_are_those_of_sacrebleu),
          ENTRY(intervals_are_those_of_sacrebleu), ENTRY(bad_codes_are_refused))
