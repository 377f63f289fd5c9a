/* GPT in the task language: its parameters, windows of text, scores, runs in parts and with more threads, text from caches of
 * keys and values, and what is wrong with bad recipes.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "models/gpt.h"
#include "scratch.h"
#include "small_recipe.h"
#include "tasks/language_reader.h"
#include "tasks/language_writer.h"
#include "train/checkpoint.h"
#include "train/loop.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

static const char small[] =
    "data: {task: language, words: 4, branches: 2, order: 1, train: 1003, valid: 203, test: 101, batch: 4, length: 10,\n"
    "  valid_batch: 3}\n"
    "model: {kind: gpt, layers: 2, d: 16, heads: 2}\n"
    "optimizer: {rule: adamod, lr: 1e-2, clip_norm: 1}\n"
    "train: {steps: 31, evaluate_every: 5, checkpoint_every: 4, threads: 1, backend: cpu}\n";
#define MODERN                                                                                                         \
    "model.heads=4", "model.kv_heads=2", "model.norm=rms", "model.positions=rotary", "model.activation=swiglu",        \
        "model.qk_norm=true", "model.biases=false"

static bool open_with(experiment *e, const char *const *assignments) {
    OWNED_RECIPE r = {0};
    return small_recipe(&r, small, assignments) && experiment_open(e, &r, NULL, TASK_TRAIN | TASK_SCORE) == 0;
}

static train_result run_in(const char *directory, bool resume, const char *const *assignments) {
    train_result out = {0};
    OWNED_RECIPE r = {0};
    const train_options o = {.directory = directory, .resume = resume};
    if (!CHECK(small_recipe(&r, small, assignments) && train_run(&r, &o, &out) == 0)) puts(adamod__last_message());
    return out;
}

/* ---- the model ---- */

static int64_t parameters_of(const gpt_settings *s, int words) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    gpt_symbols symbols;
    const gpt_config c = gpt_configure(s, words, 1024);
    CHECK(gpt_training(g, &c, 1024, 1, &symbols) >= 0);
    const int64_t n = nn_params_total(params);
    nn_graph_free(g);
    nn_params_free(params);
    return n;
}

/* As transformers counts them in openai-community/gpt2, gpt2-medium, gpt2-large and gpt2-xl. */
TEST(gpt2s_sizes_have_its_parameters) {
    static const int64_t known[] = {124439808, 354823168, 774030080, 1557611200};
    gpt_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&gpt_keys, &s);
    for (int i = 0; i < 4; i++) {
        s.model.size = (gpt_size)(GPT_D12 + i);
        CHECK_INT(parameters_of(&s, 50257), known[i]);
    }
}

static double deviation(const experiment *e, const char *name) {
    const nn_param *p = nn_params_find(e->params, name);
    double squares = 0;
    if (!CHECK(p)) return 0;
    for (int64_t i = 0; i < p->count; i++) squares += pow((double)e->params->data[p->offset + i], 2);
    return sqrt(squares / (double)p->count);
}

/* 6 for each parameter but those of positions, biases and norms, and attention: 860 million in all for GPT-2 124M. A graph
 * knows its products, too, of which training takes three. */
TEST(operations_of_a_token_are_those_of_its_products) {
    gpt_settings s = {.model = {.size = GPT_D12, .layers = 2, .d = 64, .heads = 4}};
    gpt_config c = gpt_configure(&s, 50257, 1024);
    CHECK_CLOSE(gpt_flops(&c, 1024), 6 * (124439808.0 - 1024 * 768 - 121344) + 12.0 * 12 * 768 * 1024, 1);
    for (int i = 0; i < 2; i++) {
        s.model.size = GPT_CUSTOM;
        s.model.kv_heads = i ? 2 : 0;
        s.model.activation = i ? GPT_SWIGLU : GPT_GELU;
        c = gpt_configure(&s, 100, 32);
        nn_params *params = nn_params_create();
        nn_graph *g = nn_graph_create(params);
        gpt_symbols symbols;
        gpt_training(g, &c, 96, 3, &symbols);
        CHECK_CLOSE(96 * gpt_flops(&c, 0), 3 * nn_graph_flops(g), 1);
        nn_graph_free(g);
        nn_params_free(params);
    }
}

TEST(initial_values_are_gpt2s) {
    experiment e;
    if (!CHECK(open_with(&e, WITH("model.d=64", "model.layers=8", "data.words=200", "data.length=50", "data.batch=2"))))
        return;
    CHECK_CLOSE(deviation(&e, "wte.weight"), 0.02, 5e-4);
    CHECK_CLOSE(deviation(&e, "wpe.weight"), 0.01, 5e-4);
    CHECK_CLOSE(deviation(&e, "h.3.attn.c_attn.weight"), 0.02, 5e-4);
    CHECK_CLOSE(deviation(&e, "h.3.mlp.c_fc.weight"), 0.02, 5e-4);
    CHECK_CLOSE(deviation(&e, "h.3.attn.c_proj.weight"), 0.02 / 4, 2e-4); /* sqrt(2 * 8) */
    CHECK_CLOSE(deviation(&e, "h.7.mlp.c_proj.weight"), 0.02 / 4, 2e-4);
    CHECK_CLOSE(deviation(&e, "h.7.mlp.c_proj.bias"), 0, 0);
    CHECK_CLOSE(deviation(&e, "ln_f.weight"), 1, 0);
    CHECK(!nn_params_find(e.params, "lm_head.weight"));
    experiment_close(&e);
}

/* Decay on matrices only, by optimizer.no_decay. */
TEST(biases_and_norms_are_known_as_such) {
    static const struct {
        const char *name;
        nn_param_kind kind;
    } known[] = {
        {"wte.weight", NN_WEIGHT},    {"h.0.attn.c_attn.weight", NN_WEIGHT}, {"h.0.attn.c_attn.bias", NN_BIAS},
        {"h.0.ln_1.weight", NN_NORM}, {"h.0.attn.q_norm.weight", NN_NORM},   {"h.0.attn.k_norm.weight", NN_NORM},
        {"ln_f.weight", NN_NORM}};
    static const char *const norms[] = {"layer", "rms"};
    for (int i = 0; i < 2; i++) {
        char norm[32];
        experiment e;
        snprintf(norm, sizeof norm, "model.norm=%s", norms[i]);
        if (!CHECK(open_with(&e, WITH(norm, "model.qk_norm=true")))) return;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            const nn_param *p = nn_params_find(e.params, known[k].name);
            if (!CHECK(p && p->kind == known[k].kind)) puts(known[k].name);
        }
        experiment_close(&e);
    }
}

/* ---- windows ---- */

/* 1002 tokens with a successor: 25 batches of 40, of which an epoch leaves 2 out. */
TEST(an_epoch_reads_windows_once_in_an_order_of_its_own) {
    experiment e;
    if (!CHECK(open_with(&e, NULL))) return;
    const language *s = language_of(&e);
    int64_t order[2][100], firsts[2];
    CHECK_INT(s->batches, 25);
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[100] = {false};
        for (int64_t i = 0; i < s->batches; i++) {
            task_batch b;
            task_language.next(&e, &b);
            const int32_t *ids = nn_plan_data(e.plan, "ids"), *targets = nn_plan_data(e.plan, "targets"),
                          *positions = nn_plan_data(e.plan, "positions"), *ranges = nn_plan_data(e.plan, "ranges");
            CHECK_INT(b.items, 40);
            CHECK_INT(b.epoch, i == 24 ? epoch + 1 : epoch);
            for (int w = 0; w < 4; w++) {
                const int64_t window = order[epoch][4 * i + w] = s->windows[4 * i + w];
                CHECK(ranges[2 * w] == 10 * w && ranges[2 * w + 1] == 10 * w + 10);
                CHECK(!seen[window]);
                seen[window] = true;
                for (int k = 0; k < 10; k++) {
                    const int32_t *text = s->text[SPLIT_TRAIN] + s->first + window * 10 + k;
                    CHECK(ids[10 * w + k] == text[0] && targets[10 * w + k] == text[1] && positions[10 * w + k] == k);
                }
            }
        }
        firsts[epoch] = s->first;
        CHECK(s->first >= 0 && s->first <= 2);
    }
    CHECK(memcmp(order[0], order[1], sizeof order[0]) != 0);
    CHECK(firsts[0] != firsts[1]); /* with this seed */
    CHECK_INT(task_language.seek(&e, 1, 7), 0);
    task_batch b;
    task_language.next(&e, &b);
    CHECK_INT(b.index, 8);
    CHECK_INT(s->windows[28], order[1][28]);
    CHECK_INT(s->first, firsts[1]);
    CHECK(task_language.seek(&e, 0, 25) != 0);
    experiment_close(&e);
}

/* Every token but the first is a target once, however windows are put into batches. */
TEST(an_evaluation_counts_every_token_once) {
    static const char *const batches[] = {"data.valid_batch=3", "data.valid_batch=1", "data.valid_batch=1000"};
    double first = 0;
    for (int i = 0; i < 3; i++) {
        experiment e;
        task_result out;
        if (!CHECK(open_with(&e, WITH(batches[i], MODERN)))) return;
        CHECK_INT(task_language.evaluate(&e, SPLIT_VALID, TASK_PERIODIC, NULL, NULL, &out), 0);
        CHECK_CLOSE(out.items, 202, 0);
        if (i == 0) first = out.value[0];
        CHECK_CLOSE(out.value[0], first, 1e-6 * first);
        CHECK_CLOSE(out.value[1], exp(out.value[0]), 1e-12);
        CHECK_INT(task_language.evaluate(&e, SPLIT_VALID, TASK_GLANCE, NULL, NULL, &out), 0);
        CHECK_CLOSE(out.items, i == 0 ? 30 : i == 1 ? 10 : 202, 0);
        experiment_close(&e);
    }
}

/* ---- runs ---- */

TEST(a_small_model_comes_near_the_best_perplexity) {
    enter_scratch(true);
    const train_result out = run_in("run", false, WITH("train.steps=300", "train.evaluate_every=0"));
    CHECK(out.final.value[1] < 2 * 1.1);
    CHECK(out.final.value[1] > 2 / 1.1);
}

static void check_same_weights(const char *a, const char *b) {
    experiment e, f;
    checkpoint_meta m = {0}, n = {0};
    OWNED_RECIPE r = {0};
    if (!CHECK(small_recipe(&r, small, WITH(MODERN, "model.dropout=0.1")))) return;
    if (!CHECK(experiment_open(&e, &r, NULL, TASK_TRAIN) == 0 && experiment_open(&f, &r, NULL, TASK_TRAIN) == 0))
        return;
    m.fingerprint = n.fingerprint = task_language.fingerprint(&e);
    CHECK(checkpoint_load(a, e.params, NULL, &m) == 0 && checkpoint_load(b, f.params, NULL, &n) == 0);
    CHECK(memcmp(e.params->data, f.params->data, (size_t)e.params->count * sizeof(float)) == 0);
    experiment_close(&e);
    experiment_close(&f);
}

TEST(bits_repeat_with_threads_and_after_a_resume) {
    enter_scratch(true);
    run_in("whole", false, WITH(MODERN, "model.dropout=0.1"));
    run_in("threads", false, WITH(MODERN, "model.dropout=0.1", "train.threads=3"));
    run_in("parts", false, WITH(MODERN, "model.dropout=0.1", "train.steps=13"));
    run_in("parts", true, WITH(MODERN, "model.dropout=0.1"));
    check_same_weights("whole/checkpoints/last.safetensors", "threads/checkpoints/last.safetensors");
    check_same_weights("whole/checkpoints/last.safetensors", "parts/checkpoints/last.safetensors");
}

/* ---- recomputation ---- */

static size_t values_memory(const char *recompute, const char *layers) {
    experiment e;
    if (!CHECK(open_with(&e, WITH(recompute, layers, "model.d=64", "data.length=40")))) return 0;
    const size_t bytes = nn_plan_memory(e.plan).values;
    experiment_close(&e);
    return bytes;
}

TEST(recomputed_values_have_the_same_bits) {
    static const char *const backends[] = {"train.backend=cpu", "train.backend=ref"};
    enter_scratch(true);
    for (int i = 0; i < 2; i++) {
        run_in("none", false, WITH(MODERN, "model.dropout=0.1", backends[i], "train.steps=4", "train.accumulate=2"));
        run_in("cheap", false,
               WITH(MODERN, "model.dropout=0.1", backends[i], "train.steps=4", "train.accumulate=2",
                    "model.recompute=cheap"));
        run_in("blocks", false, WITH(MODERN, "model.dropout=0.1", backends[i], "train.steps=2", "train.accumulate=2"));
        run_in("blocks", true,
               WITH(MODERN, "model.dropout=0.1", backends[i], "train.steps=4", "train.accumulate=2",
                    "model.recompute=blocks"));
        check_same_weights("none/checkpoints/last.safetensors", "cheap/checkpoints/last.safetensors");
        check_same_weights("none/checkpoints/last.safetensors", "blocks/checkpoints/last.safetensors");
        enter_scratch(true);
    }
}

/* With recomputed blocks each block keeps one value, 40 x 4 x 64 numbers. The others take memory for one block. */
TEST(recomputed_blocks_keep_one_value_each) {
    const size_t one = sizeof(float) * 40 * 4 * 64;
    const size_t none = values_memory("model.recompute=none", "model.layers=8"),
                 cheap = values_memory("model.recompute=cheap", "model.layers=8"),
                 blocks = values_memory("model.recompute=blocks", "model.layers=8"),
                 more = values_memory("model.recompute=blocks", "model.layers=16");
    CHECK(blocks < cheap && cheap < none);
    CHECK(none > 8 * 10 * one);
    CHECK(more - blocks < 8 * (one + one / 4)); /* and statistics of norms and attention */
}

/* ---- writing ---- */

/* log p of each word after the last of n tokens, without caches: each word in turn is the only target of the training graph. */
static void score_whole(const experiment *e, const int32_t *tokens, int n, float *out) {
    nn_graph *g = nn_graph_create(e->params);
    nn_plan *plan;
    gpt_symbols symbols;
    const gpt_config c = language_gpt(e);
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1};
    gpt_training(g, &c, n, 1, &symbols);
    if (!CHECK(nn_plan_create(&plan, g, &o) == 0)) return;
    int32_t *ids = nn_plan_data(plan, "ids"), *positions = nn_plan_data(plan, "positions"),
            *targets = nn_plan_data(plan, "targets"), *ranges = nn_plan_data(plan, "ranges");
    for (int i = 0; i < n; i++) ids[i] = tokens[i], positions[i] = i, targets[i] = -1;
    ranges[0] = 0, ranges[1] = n;
    nn_plan_set_rows(plan, symbols.tokens, n);
    nn_plan_set_rows(plan, symbols.windows, 1);
    for (int k = 0; k < c.words; k++) {
        targets[n - 1] = k;
        nn_plan_forward(plan);
        CHECK_INT(nn_plan_wait(plan), 0);
        out[k] = -((const float *)nn_plan_data(plan, "loss"))[1]; /* the sum of -log p, without z-loss */
    }
    nn_plan_free(plan);
    nn_graph_free(g);
}

static int likeliest(const float *scores, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) best = scores[i] > scores[best] ? i : best;
    return best;
}

static void check_scores(const experiment *e, const language_predictor *p, const int32_t *tokens, int n) {
    float whole[64];
    score_whole(e, tokens, n, whole);
    for (int k = 0; k < language_of(e)->words; k++) CHECK_CLOSE(p->scores[k], whole[k], 2e-5);
    CHECK_INT(likeliest(p->scores, language_of(e)->words), likeliest(whole, language_of(e)->words));
}

/* A prompt is longer than what is read at once. When the context of 90 is full, its last half stays. */
static void check_caches(const char *const *assignments) {
    experiment e;
    language_predictor *p;
    if (!CHECK(open_with(&e, assignments) && language_predict_gpt(&p, &e) == 0)) {
        puts(adamod__last_message());
        return;
    }
    const int32_t *text = language_of(&e)->text[SPLIT_VALID];
    int32_t written[200];
    CHECK_INT(p->read(p, text, 5), 0);
    check_scores(&e, p, text, 5);
    CHECK_INT(p->read(p, text + 5, 1), 0);
    check_scores(&e, p, text, 6);
    p->begin(p);
    CHECK_INT(p->read(p, text, 80), 0);
    memcpy(written, text, 80 * sizeof *text);
    for (int n = 80; n < 90; n++) {
        check_scores(&e, p, written, n);
        written[n] = likeliest(p->scores, language_of(&e)->words);
        CHECK_INT(p->read(p, &written[n], 1), 0);
    }
    check_scores(&e, p, written, 90);
    CHECK_INT(p->read(p, text, 3), 0);
    memcpy(written + 90, text, 3 * sizeof *text);
    check_scores(&e, p, written + 45, 48);
    CHECK(p->read(p, text, 91) != 0);
    CHECK_HAS(adamod__last_message(), "has 91 tokens, expected at most model.context, 90");
    p->free(p);
    experiment_close(&e);
}

#define LARGER "data.words=20", "data.order=2", "model.d=32", "data.length=90", "data.batch=2"
TEST(caches_predict_what_the_whole_text_does) {
    check_caches(WITH(LARGER));
    check_caches(WITH(LARGER, MODERN));
    check_caches(WITH(LARGER, MODERN, "train.backend=ref"));
}

TEST(caches_of_two_threads_predict_it_too) {
    check_caches(WITH(LARGER, "model.heads=4", "model.kv_heads=1", "train.threads=2"));
}

static int collect(void *context, text_slice piece) {
    strncat(context, piece.bytes, piece.n);
    return 0;
}

static void write_text(const experiment *e, int64_t tokens, char *out) {
    language_writer *w;
    const int32_t first = 1;
    *out = '\0';
    if (!CHECK(language_writer_create(&w, e) == 0)) return;
    language_writer_begin(w);
    CHECK_INT(language_writer_read(w, &first, 1, collect, out), 0);
    CHECK_INT(language_writer_write(w, tokens, 3, collect, out), 0);
    language_writer_free(w);
}

TEST(text_is_longer_than_the_context_and_the_same_with_more_threads) {
    static char a[2000], b[2000];
    experiment e, f;
    if (!CHECK(open_with(&e, NULL) && open_with(&f, WITH("train.threads=2")))) return;
    write_text(&e, 35, a);
    write_text(&f, 35, b);
    CHECK_STR(a, b);
    CHECK_INT((int)strlen(a), 71);
    experiment_close(&e);
    experiment_close(&f);
}

/* ---- what is wrong ---- */

static void check_refused(const char *assignment, const char *message) {
    OWNED_RECIPE r = {0};
    CHECK(!small_recipe(&r, small, WITH(assignment)));
    CHECK_HAS(adamod__last_message(), message);
}

TEST(sizes_that_do_not_fit_are_named) {
    check_refused("model.heads=3", "model.heads is 3, expected a divisor of model.d, 16");
    check_refused("model.kv_heads=3", "model.kv_heads is 3, expected a divisor of model.heads, 2");
    check_refused("model.context=9", "data.length is 10, expected at most model.context, 9");
    check_refused("data.score_length=11", "data.score_length is 11, expected at most model.context, 10");
    check_refused("model.norm=batch", "model.norm is 'batch', expected layer or rms");
    OWNED_RECIPE r = {0};
    CHECK(!small_recipe(&r, small, WITH("model.size=d12", "model.d=32")));
    CHECK_HAS(adamod__last_message(), "model.d is 32, but model.size gives 768: expected model.size custom too");
    CHECK(small_recipe(&r, small, WITH("model.size=d12", "model.heads=12"))); /* the file has other sizes */
    CHECK(!small_recipe(&r, small, WITH("model.d=18", "model.positions=rotary")));
    CHECK_HAS(adamod__last_message(), "model.positions is rotary, but a head has an odd number of columns, 9");
    experiment e;
    CHECK(!open_with(&e, WITH("data.batch=101")));
    CHECK_HAS(adamod__last_message(), "the training text has 1003 tokens, expected at least 1011: one more than "
                                      "data.batch 101 windows of data.length 10");
}

RUN_TESTS(ENTRY(gpt2s_sizes_have_its_parameters), ENTRY(operations_of_a_token_are_those_of_its_products),
          ENTRY_OF_ONE_THREAD(initial_values_are_gpt2s), ENTRY(biases_and_norms_are_known_as_such),
          ENTRY(an_epoch_reads_windows_once_in_an_order_of_its_own), ENTRY(an_evaluation_counts_every_token_once),
          ENTRY_OF_ONE_THREAD(a_small_model_comes_near_the_best_perplexity),
          ENTRY(bits_repeat_with_threads_and_after_a_resume), ENTRY_OF_ONE_THREAD(recomputed_values_have_the_same_bits),
          ENTRY_OF_ONE_THREAD(recomputed_blocks_keep_one_value_each),
          ENTRY_OF_ONE_THREAD(caches_predict_what_the_whole_text_does), ENTRY(caches_of_two_threads_predict_it_too),
          ENTRY(text_is_longer_than_the_context_and_the_same_with_more_threads), ENTRY(sizes_that_do_not_fit_are_named))
