/* BLEU against what sacreBLEU 2.6.0 says of the same sentences, with tokenize "none", smooth_method "none" and "exp".
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "values.h"

#include "data/bleu.h"

#include <stdlib.h>

typedef struct expected {
    int64_t match[BLEU_ORDER], total[BLEU_ORDER];
    int64_t hyp_tokens, ref_tokens;
    double plain, smoothed;
    int exact;
} expected;

static void check_score(const char *name, const bleu *b, const expected *e) {
    int before = check_failures;
    for (int i = 0; i < BLEU_ORDER; i++) {
        CHECK_INT(b->match[i], e->match[i]);
        CHECK_INT(b->total[i], e->total[i]);
    }
    CHECK_INT(b->hyp_tokens, e->hyp_tokens);
    CHECK_INT(b->ref_tokens, e->ref_tokens);
    CHECK_INT(b->exact, e->exact);
    CHECK_CLOSE(bleu_score(b, BLEU_PLAIN), e->plain, 1e-11);
    CHECK_CLOSE(bleu_score(b, BLEU_EXP), e->smoothed, 1e-11);
    if (check_failures > before) printf("  in \"%s\"\n", name);
}

static const struct {
    const char *name;
    const char *pairs[3][2]; /* hypothesis, reference */
    expected says;
} sentences[] = {
    {"identical",
     {{"the cat sat on the mat", "the cat sat on the mat"}},
     {{6, 5, 4, 3}, {6, 5, 4, 3}, 6, 6, 100, 100, 1}},
    {"one word wrong",
     {{"the cat sat on the rug", "the cat sat on the mat"}},
     {{5, 4, 3, 2}, {6, 5, 4, 3}, 6, 6, 75.98356856515926, 75.98356856515926, 0}},
    {"shorter",
     {{"the cat sat on the", "the cat sat on the mat today"}},
     {{5, 4, 3, 2}, {5, 4, 3, 2}, 5, 7, 67.032004603563962, 67.032004603563962, 0}},
    {"longer",
     {{"the cat sat on the mat today and slept", "the cat sat on the mat"}},
     {{6, 5, 4, 3}, {9, 8, 7, 6}, 9, 6, 58.739490946992127, 58.739490946992127, 0}},
    {"repeated words are clipped",
     {{"the the the the the the the", "the cat is on the mat"}},
     {{2, 0, 0, 0}, {7, 6, 5, 4}, 7, 6, 0, 7.8098498423006371, 0}},
    {"empty hypothesis", {{"", "the cat sat"}}, {{0}, {0}, 0, 3, 0, 0, 0}},
    {"empty among others",
     {{"", "the cat sat"}, {"a small dog ran off", "a small dog ran off"}},
     {{5, 4, 3, 2}, {5, 4, 3, 2}, 5, 8, 54.881163609402662, 54.881163609402662, 1}},
    {"both empty", {{"", ""}}, {{0}, {0}, 0, 0, 0, 0, 1}},
    {"empty reference",
     {{"a b c d", ""}, {"a b c d e", "a b c d e"}},
     {{5, 4, 3, 2}, {9, 7, 5, 3}, 9, 5, 59.694917920196445, 59.694917920196445, 1}},
    {"no 4-gram matches",
     {{"a b c x d e f y", "a b c d e f g h"}},
     {{6, 4, 2, 0}, {8, 7, 6, 5}, 8, 8, 0, 34.572078464194121, 0}},
    {"no 3-gram and no 4-gram matches",
     {{"a b x c d y e f", "a b c d e f g h"}},
     {{6, 3, 0, 0}, {8, 7, 6, 5}, 8, 8, 0, 19.130147081392227, 0}},
    {"only words match", {{"d c b a e", "a b c d e"}}, {{5, 0, 0, 0}, {5, 4, 3, 2}, 5, 5, 0, 15.973577606156811, 0}},
    {"nothing matches", {{"x y z u v", "a b c d e"}}, {{0}, {5, 4, 3, 2}, 5, 5, 0, 0, 0}},
    {"no 4-gram in the hypothesis", {{"the cat sat", "the cat sat"}}, {{3, 2, 1, 0}, {3, 2, 1, 0}, 3, 3, 0, 0, 1}},
    {"one word", {{"yes", "yes"}}, {{1, 0, 0, 0}, {1, 0, 0, 0}, 1, 1, 0, 0, 1}},
    {"short ones with a long one",
     {{"yes", "yes"}, {"no no", "no"}, {"I do not know that man", "I do not know this man"}},
     {{7, 3, 2, 1}, {9, 6, 4, 3}, 9, 8, 50.456668400584846, 50.456668400584846, 1}},
    {"white space",
     {{"  the  cat\tsat on the mat ", "the cat sat on the mat"}, {"a\u00a0b c\u2009d e\u3000f", "a b c d e f"}},
     {{12, 10, 8, 6}, {12, 10, 8, 6}, 12, 12, 100, 100, 2}},
    {"case and umlauts",
     {{"der Bär läuft über die Straße .", "der bär läuft über die Straße ."}},
     {{6, 4, 3, 2}, {7, 6, 5, 4}, 7, 7, 64.345888416076164, 64.345888416076164, 0}},
};

TEST(sentences_score_as_sacrebleu_says) {
    for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++) {
        bleu b = {0};
        for (int k = 0; k < 3 && sentences[i].pairs[k][0]; k++)
            CHECK_INT(bleu_add(&b, text_of(sentences[i].pairs[k][0]), text_of(sentences[i].pairs[k][1])), 0);
        check_score(sentences[i].name, &b, &sentences[i].says);
    }
}

TEST(brevity_penalty_and_exact_rate) {
    bleu b = {0};
    CHECK_CLOSE(bleu_exact(&b), 0, 0);
    CHECK_CLOSE(bleu_score(&b, BLEU_EXP), 0, 0);
    bleu_add(&b, text_of("the cat sat on the"), text_of("the cat sat on the mat today"));
    CHECK_CLOSE(bleu_brevity_penalty(&b), 0.67032004603563933, 1e-15);
    CHECK_CLOSE(bleu_exact(&b), 0, 0);
    bleu_add(&b, text_of("yes it  is"), text_of("yes it is"));
    CHECK_CLOSE(bleu_exact(&b), 0.5, 0);
    bleu nothing = {0};
    bleu_add(&nothing, text_of(""), text_of("a b"));
    CHECK_CLOSE(bleu_brevity_penalty(&nothing), 0, 0);
}

/* ---- Whole corpora, generated here as they were for sacreBLEU ---- */

static uint64_t state;

static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* A reference of up to 30 words, and a hypothesis in which words are changed, lost or said twice. */
static void generate(int vocabulary, int change, int32_t *hyp, int64_t *n_hyp, int32_t *ref, int64_t *n_ref) {
    *n_hyp = 0;
    *n_ref = 1 + draw(30);
    for (int64_t i = 0; i < *n_ref; i++) {
        ref[i] = draw(vocabulary);
        int what = draw(100);
        if (what < change) {
            hyp[(*n_hyp)++] = draw(vocabulary);
        } else if (what >= change + 5) {
            hyp[(*n_hyp)++] = ref[i];
            if (what < change + 10) hyp[(*n_hyp)++] = ref[i];
        }
    }
}

static text_slice spell(const int32_t *ids, int64_t n, char *out, size_t size) {
    size_t used = 0;
    for (int64_t i = 0; i < n; i++) used += (size_t)snprintf(out + used, size - used, i ? " w%d" : "w%d", ids[i]);
    return (text_slice){out, used};
}

TEST(corpora_score_as_sacrebleu_says_as_text_and_as_ids) {
    static const struct {
        uint64_t seed;
        int sentences, vocabulary, change;
        expected says;
    } corpora[] = {
        {1,
         50,
         20,
         30,
         {{612, 359, 210, 123}, {812, 762, 713, 666}, 812, 805, 37.279826228728062, 37.279826228728062, 1}},
        {2,
         500,
         200,
         10,
         {{6764, 5409, 4024, 3016}, {7963, 7463, 6973, 6502}, 7963, 7911, 63.714499434929031, 63.714499434929031, 62}},
        {3, 10, 3, 50, {{148, 111, 75, 41}, {174, 164, 154, 145}, 174, 173, 53.062413390267423, 53.062413390267423, 1}},
        {4,
         2000,
         1000,
         60,
         {{11275, 3557, 999, 292},
          {31854, 29857, 27922, 26045},
          31854,
          31924,
          6.399006602131732,
          6.399006602131732,
          21}},
        {5, 7, 5000, 90, {{6, 1, 0, 0}, {133, 126, 119, 112}, 133, 136, 0, 0.7442561074067896, 0}},
    };
    for (size_t i = 0; i < sizeof corpora / sizeof corpora[0]; i++) {
        bleu text = {0}, ids = {0};
        state = corpora[i].seed;
        for (int k = 0; k < corpora[i].sentences; k++) {
            int32_t hyp[60], ref[30];
            int64_t n_hyp, n_ref;
            char hyp_text[600], ref_text[300];
            generate(corpora[i].vocabulary, corpora[i].change, hyp, &n_hyp, ref, &n_ref);
            CHECK_INT(bleu_add_ids(&ids, hyp, n_hyp, ref, n_ref), 0);
            CHECK_INT(bleu_add(&text, spell(hyp, n_hyp, hyp_text, sizeof hyp_text),
                               spell(ref, n_ref, ref_text, sizeof ref_text)),
                      0);
        }
        check_score("text", &text, &corpora[i].says);
        check_score("ids", &ids, &corpora[i].says);
    }
}

/* Every byte ends where it should, whatever it is: run under the address sanitizer. */
TEST(bytes_that_are_not_utf8_are_words) {
    for (int byte = 1; byte < 256; byte++) {
        char *one = malloc(1);
        if (!CHECK(one)) return;
        one[0] = (char)byte;
        bleu b = {0};
        CHECK_INT(bleu_add(&b, (text_slice){one, 1}, (text_slice){one, 1}), 0);
        int space = (byte >= 0x09 && byte <= 0x0d) || (byte >= 0x1c && byte <= 0x20);
        CHECK_INT(b.match[0], !space);
        free(one);
    }
}

TEST(long_sentences_take_no_quadratic_time) {
    const int n = fast() ? 100000 : 1000000;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!CHECK(ids)) return;
    for (int i = 0; i < n; i++) ids[i] = i % 1000;
    bleu b = {0};
    CHECK_INT(bleu_add_ids(&b, ids, n, ids, n), 0);
    CHECK_CLOSE(bleu_score(&b, BLEU_PLAIN), 100, 1e-9);
    CHECK_INT(b.match[3], n - 3);
    free(ids);
}

RUN_TESTS(ENTRY(sentences_score_as_sacrebleu_says), ENTRY(brevity_penalty_and_exact_rate),
          ENTRY(corpora_score_as_sacrebleu_says_as_text_and_as_ids), ENTRY(bytes_that_are_not_utf8_are_words),
          ENTRY(long_sentences_take_no_quadratic_time))
