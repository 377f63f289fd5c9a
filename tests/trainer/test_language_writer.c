/* Text written by a language model: which tokens are drawn, how they are put together, prompts, and samples for the report.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "scratch.h"
#include "small_recipe.h"
#include "tasks/language_writer.h"
#include "tasks/sampling.h"
#include "train/checkpoint.h"
#include "train/loop.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

/* ---- drawing ---- */

enum { TOKENS = 5, DRAWS = 20000 };
static const float scores[TOKENS] = {-1, 0, -3, 0, -2}; /* and a constant more than log p */

/* How often each token is drawn. */
static void draw_many(const sampling_options *o, int counts[TOKENS]) {
    sampler *s = sampler_create(o, TOKENS);
    memset(counts, 0, TOKENS * sizeof *counts);
    for (int i = 0; s && i < DRAWS; i++) {
        const int32_t token = sampler_draw(s, scores, 7, (uint64_t)i);
        if (CHECK(token >= 0 && token < TOKENS)) counts[token]++;
    }
    sampler_free(s);
}

static void check_shares(const int counts[TOKENS], double temperature, const bool may[TOKENS]) {
    double sum = 0;
    for (int i = 0; i < TOKENS; i++) sum += may[i] ? exp((double)scores[i] / temperature) : 0;
    for (int i = 0; i < TOKENS; i++) {
        const double p = may[i] ? exp((double)scores[i] / temperature) / sum : 0;
        CHECK_CLOSE(counts[i] / (double)DRAWS, p,
                    4 * sqrt(p * (1 - p) / DRAWS)); /* four standard deviations; 0: none */
    }
}

TEST(tokens_are_drawn_by_their_probabilities) {
    int counts[TOKENS];
    draw_many(&(sampling_options){1, 0, 1}, counts);
    check_shares(counts, 1, (bool[]){1, 1, 1, 1, 1});
    draw_many(&(sampling_options){2.5, 0, 1}, counts);
    check_shares(counts, 2.5, (bool[]){1, 1, 1, 1, 1});
    draw_many(&(sampling_options){1, 3, 1}, counts);
    check_shares(counts, 1, (bool[]){1, 1, 0, 1, 0});
    draw_many(&(sampling_options){1, 1, 1}, counts); /* of equal ones the first */
    check_shares(counts, 1, (bool[]){0, 1, 0, 0, 0});
    draw_many(&(sampling_options){1, 99, 0.7}, counts); /* the two likeliest have 0.78 */
    check_shares(counts, 1, (bool[]){0, 1, 0, 1, 0});
    draw_many(&(sampling_options){1, 0, 0.8}, counts);
    check_shares(counts, 1, (bool[]){1, 1, 0, 1, 0});
    draw_many(&(sampling_options){1, 3, 0.9}, counts); /* of what top_k leaves, 0.84 are two */
    check_shares(counts, 1, (bool[]){1, 1, 0, 1, 0});
    draw_many(&(sampling_options){1, 3, 0.83}, counts);
    check_shares(counts, 1, (bool[]){0, 1, 0, 1, 0});
    draw_many(&(sampling_options){1, 0, 0}, counts);
    check_shares(counts, 1, (bool[]){0, 1, 0, 0, 0});
    draw_many(&(sampling_options){0, 0, 1}, counts);
    check_shares(counts, 1, (bool[]){0, 1, 0, 0, 0});
    draw_many(&(sampling_options){1e-300, 0, 1}, counts); /* next to nothing: the likeliest */
    check_shares(counts, 1, (bool[]){0, 1, 0, 1, 0});
}

enum { MANY = 700 };
static float many[MANY];

static int by_score(const void *left, const void *right) {
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return many[a] != many[b] ? (many[a] > many[b] ? -1 : 1) : (a > b) - (a < b);
}

/* Which tokens of `many` may be drawn, by definition. */
static void find_candidates(const sampling_options *o, bool may[MANY]) {
    const int k = o->top_k && o->top_k < MANY ? (int)o->top_k : MANY;
    int32_t order[MANY];
    double sum = 0, before = 0;
    for (int32_t i = 0; i < MANY; i++) order[i] = i, may[i] = false;
    qsort(order, MANY, sizeof *order, by_score);
    for (int i = 0; i < k; i++) sum += exp((double)(many[order[i]] - many[*order]) / o->temperature);
    for (int i = 0; i < k && (i == 0 || before < o->top_p * sum); i++) {
        may[order[i]] = true;
        before += exp((double)(many[order[i]] - many[*order]) / o->temperature);
    }
}

TEST(the_likeliest_of_many_are_candidates) {
    static const sampling_options options[] = {{1, 40, 1},   {30, 699, 1}, {30, 700, 0.9}, {30, 0, 0.5},
                                               {30, 9, 0.5}, {30, 1, 1},   {30, 0, 0},     {1e9, 333, 0.999}};
    for (int i = 0; i < MANY; i++) many[i] = (float)(i * 7919 % 350) / -20; /* each twice */
    many[3] = -INFINITY;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        bool may[MANY], drawn[MANY] = {0};
        int missing = 0;
        find_candidates(&options[i], may);
        sampler *s = sampler_create(&options[i], MANY);
        for (uint64_t k = 0; s && k < 6000; k++) drawn[sampler_draw(s, many, 3, k)] = true;
        for (int k = 0; k < MANY; k++) {
            CHECK(may[k] || !drawn[k]);
            missing += may[k] && !drawn[k];
        }
        CHECK(missing < MANY / 20); /* of the least likely, some may not be drawn */
        sampler_free(s);
    }
}

TEST(a_draw_follows_from_seed_and_number_and_not_from_last_bits) {
    sampler *s = sampler_create(&(sampling_options){1, 0, 0.95}, TOKENS);
    float nearly[TOKENS];
    int differ = 0, moved = 0;
    for (int i = 0; i < TOKENS; i++) nearly[i] = nextafterf(scores[i], i % 2 ? 1 : -9);
    for (uint64_t i = 0; s && i < DRAWS; i++) {
        const int32_t token = sampler_draw(s, scores, 7, i);
        CHECK_INT(sampler_draw(s, scores, 7, i), token);
        differ += sampler_draw(s, scores, 8, i) != token;
        moved += sampler_draw(s, nearly, 7, i) != token;
    }
    CHECK(differ > DRAWS / 4);
    CHECK_INT(moved, 0);
    CHECK_INT(sampler_draw(s, (float[]){0, NAN, 0, 0, 0}, 7, 0), -1);
    CHECK_INT(sampler_draw(s, (float[]){-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, 7, 0), -1);
    CHECK_INT(sampler_draw(s, (float[]){-INFINITY, -INFINITY, -INFINITY, 3, -INFINITY}, 7, 0), 3);
    sampler_free(s);
}

/* ---- writing ---- */

static const char small[] =
    "data: {task: language, set: text, path: ., test_file: '', batch: 2, valid_batch: 1, length: 8, spread: 2}\n"
    "model: {layers: 1, embedding: 16, output_dropout: 0, layer_dropout: 0, input_dropout: 0, word_dropout: 0,\n"
    "  weight_dropout: 0, activity: 0, change: 0}\n"
    "optimizer: {rule: adam, lr: 2e-2, clip_norm: 1}\n"
    "generate: {samples: 2, prompt: 2, tokens: 8, temperature: 0}\n"
    "train: {steps: 120, evaluate_every: 0, checkpoint_every: 0, threads: 1, backend: cpu, histogram_dense: 0}\n";

static bool set_all(recipe *r, const char *const *assignments) { return small_recipe(r, small, assignments); }

static void train_on(const char *text, const char *const *assignments) {
    OWNED_RECIPE r = {0};
    train_result out;
    enter_scratch(true);
    if (text) {
        put_file("train.txt", text, strlen(text));
        put_file("valid.txt", text, strlen(text));
    }
    if (!CHECK(set_all(&r, assignments) && train_run(&r, &(train_options){.directory = "run"}, &out) == 0))
        puts(adamod__last_message());
}

static int collect(void *context, text_slice piece) {
    char *text = context;
    const size_t n = strlen(text);
    CHECK(piece.n > 0 && n + piece.n < 500);
    memcpy(text + n, piece.bytes, piece.n);
    text[n + piece.n] = '\0';
    return 0;
}

/* The prompt and what the run's model writes after it; unknown: what language_prompt says. */
static const char *written(const char *prompt, const char *const *assignments, char unknown[200]) {
    static char text[500];
    char ignored[200];
    OWNED_RECIPE r = {0};
    experiment e;
    language_writer *w = NULL;
    int32_t *tokens = NULL;
    int64_t n = 0;
    *text = '\0';
    if (!set_all(&r, assignments) || experiment_open(&e, &r, "run", TASK_APPLY)) return adamod__last_message();
    checkpoint_meta meta = {.fingerprint = e.task->fingerprint(&e)};
    const language_settings *l = language_settings_of(&e.recipe);
    if (checkpoint_load("run/checkpoints/last.safetensors", e.params, NULL, &meta) ||
        language_prompt(&e, text_of(prompt), &tokens, &n, unknown ? unknown : ignored, 200) ||
        language_writer_create(&w, &e) || language_writer_read(w, tokens, n, collect, text) ||
        language_writer_write(w, l->generate.tokens, l->generate.seed, collect, text))
        snprintf(text, sizeof text, "%s", adamod__last_message());
    language_writer_free(w);
    free(tokens);
    experiment_close(&e);
    return text;
}

#define LINES "the cat sat\non a mat\n"
#define MANY_LINES LINES LINES LINES LINES LINES LINES

TEST(words_are_written_with_spaces_and_lines) {
    char unknown[200];
    train_on(MANY_LINES, NULL);
    CHECK_STR(written("  on a", WITH("generate.tokens=6"), unknown), "on a mat\nthe cat sat\n");
    CHECK_STR(unknown, "");
    CHECK_STR(written("on a mat\n", WITH("generate.tokens=2"), NULL), "on a mat\nthe cat");
    CHECK_STR(written("the cat sat\non", WITH("generate.tokens=1"), NULL), "the cat sat\non a");
    /* the samples of the report begin with lines, spread over the text */
    char samples[1000];
    samples[get_file("run/samples.jsonl", samples, sizeof samples)] = 0;
    CHECK_STR(samples, "{\"step\":120,\"prompt\":\"the cat\",\"output\":\"sat\\u000aon a mat\\u000athe cat\"}\n"
                       "{\"step\":120,\"prompt\":\"the cat\",\"output\":\"sat\\u000aon a mat\\u000athe cat\"}\n");
}

TEST(unknown_words_are_named) {
    char unknown[200];
    train_on(MANY_LINES, WITH("train.steps=1"));
    written("the dog <unk> dog sat", NULL, unknown);
    CHECK_STR(unknown, "'dog'");
    written("b c d e f g h", NULL, unknown);
    CHECK_STR(unknown, "'b', 'c', 'd', 'e', 'f' and 2 more");
    char lengthy[400];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    written(lengthy, NULL, unknown);
    CHECK(strncmp(unknown, "'xxxxxxx", 8) == 0 && strlen(unknown) < 60);
    written("\033[31m", NULL, unknown); /* nothing for a terminal to obey */
    CHECK(*unknown && !strchr(unknown, '\033'));
}

/* Without <eos>, a text begins with its most frequent token, and no line ends. */
TEST(a_text_without_line_ends_has_none) {
    train_on(MANY_LINES "the\n", WITH("data.eos=false"));
    CHECK_STR(written("", WITH("data.eos=false"), NULL), "the cat sat on a mat the cat sat");
    CHECK_STR(written("on\na", WITH("data.eos=false", "generate.tokens=1"), NULL), "on a mat");
    const char *hot = written("", WITH("data.eos=false", "generate.temperature=1000", "generate.tokens=60"), NULL);
    CHECK(!strchr(hot, '\n'));
}

TEST(characters_are_written_as_they_are) {
    train_on("ab c\n\u00e9\nab c\n\u00e9\nab c\n\u00e9\nab c\n\u00e9\n", WITH("data.tokens=characters"));
    CHECK_STR(written("", WITH("data.tokens=characters"), NULL), "ab c\n\u00e9\na");
    char unknown[200];
    CHECK_STR(written("b ", WITH("data.tokens=characters", "generate.tokens=2"), unknown), "b c\n");
    CHECK_STR(unknown, "");
    written("xa", WITH("data.tokens=characters"), unknown);
    CHECK_STR(unknown, "'x'");
}

/* Subwords are learned, kept in the run, and put together again. */
TEST(subwords_are_put_together) {
    static const char text[] = "low lower lowest\nlow lower lowest\nlow lower lowest\nlow lower lowest\n";
#define SUBWORDS "data.tokens=subwords", "data.merges=2"
    train_on(text, WITH(SUBWORDS));
    char codes[200];
    codes[get_file("run/bpe.codes", codes, sizeof codes)] = 0;
    CHECK_STR(codes, "#version: 0.2\nl o\nw e\n");
    CHECK_STR(written("", WITH(SUBWORDS, "generate.tokens=14"), NULL), "low lower lowest\nlow lowe");
    CHECK_STR(written("low lower", WITH(SUBWORDS, "generate.tokens=5"), NULL), "low lower lowest\n");
    char unknown[200];
    written("low xylo", WITH(SUBWORDS), unknown);
    CHECK_STR(unknown, "'xylo'");
}

/* After each word of the generated language one follows; the model finds it. */
TEST(a_generated_language_is_written_in_numbers) {
#define GENERATED                                                                                                      \
    "data.set=generated", "data.path=", "data.words=5", "data.branches=1", "data.order=1", "data.train=400",           \
        "data.valid=20", "data.test=20"
    train_on(NULL, WITH(GENERATED));
    int32_t truth[20];
    char wanted[100] = "";
    markov_text(&(markov_language){5, 1, 1, 1}, 0, 20, truth);
    for (int i = 0; i < 10; i++) snprintf(wanted + strlen(wanted), 8, "%s%d", i ? " " : "", truth[9 + i]);
    char prompt[16];
    snprintf(prompt, sizeof prompt, "%d %d", truth[9], truth[10]);
    CHECK_STR(written(prompt, WITH(GENERATED), NULL), wanted);
    CHECK_STR(written("1 5", WITH(GENERATED), NULL),
              "'5' is no word of the generated language, whose words are 0 to 4");
    CHECK_STR(written("x", WITH(GENERATED), NULL), "'x' is no word of the generated language, whose words are 0 to 4");
    CHECK(written("", WITH(GENERATED), NULL)[0] == '0');
}

/* Whatever the experiment itself computes with. */
TEST(the_same_seed_gives_the_same_text_on_every_backend) {
    train_on(MANY_LINES, WITH("train.steps=10"));
    char first[500];
    snprintf(first, sizeof first, "%s", written("the", WITH("generate.temperature=1", "generate.tokens=60"), NULL));
    CHECK_STR(written("the", WITH("generate.temperature=1", "generate.tokens=60", "train.backend=ref"), NULL), first);
    CHECK_STR(written("the", WITH("generate.temperature=1", "generate.tokens=60", "train.threads=3"), NULL), first);
    CHECK(strcmp(written("the", WITH("generate.temperature=1", "generate.tokens=60", "generate.seed=2"), NULL), first));
    CHECK(strlen(first) > 60);
}

RUN_TESTS(ENTRY(tokens_are_drawn_by_their_probabilities), ENTRY_OF_ONE_THREAD(the_likeliest_of_many_are_candidates),
          ENTRY(a_draw_follows_from_seed_and_number_and_not_from_last_bits),
          ENTRY(words_are_written_with_spaces_and_lines), ENTRY(unknown_words_are_named),
          ENTRY(a_text_without_line_ends_has_none), ENTRY(characters_are_written_as_they_are),
          ENTRY(subwords_are_put_together), ENTRY(a_generated_language_is_written_in_numbers),
          ENTRY(the_same_seed_gives_the_same_text_on_every_backend))
