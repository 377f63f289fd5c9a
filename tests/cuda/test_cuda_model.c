/* A whole Transformer on a device: loss and gradients against the processor's, in each precision; runs that repeat bit for
 * bit, recorded or not; decoding.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "cudacheck.h"
#include "optim/internal.h"
#include "nn/device_params.h"
#include "small_transformer.h"
#include "sums_graph.h"
#include "values.h"

#include <math.h>
#include <stdlib.h>

static transformer_config device_config(void) {
    transformer_config c = small_config();
    c.d = 64;
    c.ffn = 96;
    c.heads = 2;
    return c;
}

static adamod_status both_ways(void *context) {
    small_transformer *s = context;
    nn_plan_forward(s->plan);
    nn_plan_backward(s->plan, false);
    return ADAMOD_OK;
}

static void run(small_transformer *s) {
    CHECK_INT(nn_plan_replay(s->plan, 0, both_ways, s), ADAMOD_OK);
    if (!CHECK_INT(nn_plan_wait(s->plan), ADAMOD_OK)) printf("%s\n", adamod_last_error());
    CHECK_INT(nn_params_fetch_grad(s->params), ADAMOD_OK);
}

static double distance(const nn_params *a, const nn_params *b) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < a->count; i++) {
        const double d = (double)a->grad[i] - (double)b->grad[i];
        difference += d * d;
        size += (double)a->grad[i] * (double)a->grad[i];
    }
    return sqrt(difference / size);
}

/* Dropout draws the same numbers everywhere, so that it may be on. Rounding flips the sign of a few numbers that ReLU
 * sees: of 41 x 96 in a layer here, one that flips changes the gradient by about a hundredth. */
static void compare(transformer_config c, nn_precision precision, double loss_tolerance, double grad_tolerance) {
    small_transformer cpu = small_make(&c, "cpu", 2, true), cuda = small_make_on(&c, "cuda", precision, true);
    small_feed(&cpu);
    small_feed(&cuda);
    run(&cpu);
    run(&cuda);
    const float *x = nn_plan_data(cpu.plan, "loss"), *y = nn_plan_data(cuda.plan, "loss");
    const double apart = distance(cpu.params, cuda.params);
    printf("precision %d: loss %.6f, %.6f on the device; gradients %.2g apart\n", precision, (double)x[0], (double)y[0],
           apart);
    CHECK_CLOSE(y[0], x[0], loss_tolerance * (double)x[0]);
    CHECK_CLOSE(y[1], x[1], loss_tolerance * (double)x[1]);
    CHECK(x[3] == y[3]);
    CHECK(apart < grad_tolerance);
    small_free(&cpu);
    small_free(&cuda);
}

TEST(loss_and_gradients_are_those_of_the_processor) {
    if (!cudacheck_open()) SKIP("no device");
    for (int dropout = getenv("ADAMOD_TEST_FAST") ? 1 : 0; dropout < 2; dropout++) {
        for (int form = 0; form < 4; form++) {
            transformer_config c = device_config();
            c.dropout = c.attention_dropout = dropout ? 0.1 : 0;
            c.pre_norm = form == 1;
            c.tie_output = form == 2;
            c.share_all = form == 3;
            if (form == 3) c.src_vocab = c.tgt_vocab = SMALL_VOCAB + 2;
            compare(c, NN_FULL, 1e-5, 1e-5);
            compare(c, NN_TF32, 2e-4, 3e-2);
            compare(c, NN_MIXED, 2e-3, 1e-1);
        }
    }
}

/* The first run is not recorded, the second and third are as they are recorded, all later ones replayed. */
TEST(every_run_gives_the_same_bits) {
    if (!cudacheck_open()) SKIP("no device");
    transformer_config c = device_config();
    c.dropout = c.attention_dropout = 0.1;
    for (int precision = NN_FULL; precision <= NN_MIXED; precision++) {
        small_transformer s = small_make_on(&c, "cuda", (nn_precision)precision, true);
        float loss[4], *grad = NULL;
        for (int i = 0; i < 7; i++) {
            small_feed(&s);
            if (i == 3) nn_plan_set_random(s.plan, 3, 6); /* a replay takes new random numbers */
            run(&s);
            const float *now = nn_plan_data(s.plan, "loss");
            const size_t bytes = (size_t)s.params->count * sizeof *grad;
            if (i == 0) {
                grad = malloc(bytes);
                memcpy(grad, s.params->grad, bytes);
                memcpy(loss, now, sizeof loss);
            } else if (i == 3) {
                CHECK(loss[0] != now[0]);
            } else {
                CHECK(memcmp(loss, now, sizeof loss) == 0);
                CHECK(memcmp(grad, s.params->grad, bytes) == 0);
            }
        }
        free(grad);
        small_free(&s);
    }
}

typedef struct training {
    small_transformer *s;
    adamod_optimizer *opt;
} training;

static adamod_status train_step(void *context) {
    const training *t = context;
    nn_plan_forward(t->s->plan);
    nn_plan_backward(t->s->plan, false);
    return adamod_step(t->opt);
}

/* Trains on one batch; the loss of every step. */
static void train(small_transformer *s, int steps, double *losses) {
    training t = {.s = s};
    CHECK_INT(adamod_create_on(&t.opt, "adamod", nn_params_device(s->params)), ADAMOD_OK);
    CHECK_INT(adamod_set(t.opt, "lr", 1e-3), ADAMOD_OK);
    CHECK_INT(adamod_set(t.opt, "beta3", 0.99), ADAMOD_OK);
    if (s->params->on_device) CHECK_INT(adamod_set_stream(t.opt, nn_params_stream(s->params)), ADAMOD_OK);
    for (int i = 0; i < s->params->n; i++) {
        const nn_param *p = &s->params->list[i];
        const nn_param_memory m = nn_params_memory(s->params, p);
        adamod_tensor x = {.name = p->name, .param = m.half ? m.half : m.data, .grad = m.grad, .ndim = p->ndim};
        if (m.half) x.param_type = ADAMOD_BF16, x.master = m.data;
        for (int d = 0; d < p->ndim; d++) x.shape[d] = p->shape[d];
        CHECK_INT(adamod_add_tensor(t.opt, 0, &x, NULL), ADAMOD_OK);
    }
    for (int i = 0; i < steps; i++) {
        small_feed(s);
        nn_plan_set_random(s->plan, 3, (uint64_t)i);
        CHECK_INT(adamod_set(t.opt, "grad_scale", 1.0 / 41), ADAMOD_OK);
        CHECK_INT(nn_plan_replay(s->plan, 0, train_step, &t), ADAMOD_OK);
        CHECK_INT(nn_plan_wait(s->plan), ADAMOD_OK);
        losses[i] = (double)((float *)nn_plan_data(s->plan, "loss"))[0] / 41;
    }
    adamod_free(t.opt);
}

TEST(a_hundred_steps_follow_those_of_the_processor) {
    enum { MOST = 100 };
    const int steps = getenv("ADAMOD_TEST_FAST") ? 5 : MOST;
    if (!cudacheck_open()) SKIP("no device");
    transformer_config c = device_config();
    c.dropout = 0.1;
    double losses[4][MOST];
    small_transformer cpu = small_make(&c, "cpu", 2, true);
    train(&cpu, steps, losses[3]);
    small_free(&cpu);
    if (steps == MOST) CHECK(losses[3][steps - 1] < 0.7 * losses[3][0]); /* it learns */
    for (int precision = NN_FULL; precision <= NN_MIXED; precision++) {
        small_transformer s = small_make_on(&c, "cuda", (nn_precision)precision, true);
        train(&s, steps, losses[precision]);
        small_free(&s);
        double worst = 0;
        for (int i = 0; i < steps; i++) worst = fmax(worst, fabs(losses[precision][i] / losses[3][i] - 1));
        printf("precision %d: losses at most %.2g apart, the last %.4f and %.4f\n", precision, worst,
               losses[precision][steps - 1], losses[3][steps - 1]);
        CHECK(worst < (precision == NN_FULL ? 1e-3 : precision == NN_TF32 ? 1e-2 : 5e-2));
    }
}

/* Else the optimizer would take the difference for a change by hand. */
TEST(the_bf16_copy_is_always_the_parameters_rounded) {
    if (!cudacheck_open()) SKIP("no device");
    const transformer_config c = device_config();
    small_transformer s = small_make_on(&c, "cuda", NN_MIXED, true);
    const nn_device_params *on = s.params->on_device;
    const size_t bytes = (size_t)s.params->count * sizeof(uint16_t);
    uint16_t *half = malloc(bytes);
    for (int round = 0; round < 3; round++) {
        double loss;
        if (round == 1) train(&s, 1, &loss);
        if (round == 2) {
            for (int64_t i = 0; i < s.params->count; i++) s.params->data[i] *= 1.7f;
            CHECK_INT(nn_params_store(s.params), ADAMOD_OK);
        }
        CHECK_INT(nn_params_fetch(s.params), ADAMOD_OK);
        on->backend->device->download(on->device, half, on->half, bytes);
        CHECK_INT(on->backend->device->wait(on->device), ADAMOD_OK);
        int64_t wrong = 0;
        for (int64_t i = 0; i < s.params->count; i++) {
            wrong += half[i] != nearest16(ADAMOD_BF16, (double)s.params->data[i]);
        }
        CHECK_INT(wrong, 0);
    }
    free(half);
    small_free(&s);
}

/* The table is the output's matrix too: its gradient comes from two steps, one after the other, the first of which is
 * computed beside the second. */
static nn_params *tied_gradient(const char *device) {
    enum { ROWS = 300, WORDS = 500, COLS = 256 };
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    const int rows = nn_symbol(g, "rows", ROWS);
    const nn_value ids = nn_input(g, "ids", NN_I32, rows, 0), targets = nn_input(g, "targets", NN_I32, rows, 0);
    const nn_value table = nn_parameter(g, "table", 2, (int64_t[]){WORDS, COLS}, (nn_init){NN_NORMAL, 0.1});
    const nn_value x = nn_embedding(g, ids, -1, table, 1);
    const nn_value loss = nn_cross_entropy(g, nn_linear(g, x, table, -1, NN_LINEAR), targets, 0);
    nn_plan *plan = NULL;
    nn_output(g, "loss", loss);
    CHECK_INT(nn_params_allocate(p, 3), ADAMOD_OK);
    CHECK_INT(nn_params_to_device(p, device, NN_FULL), ADAMOD_OK);
    if (CHECK_INT(nn_plan_create(&plan, g, &(nn_plan_options){.loss = loss}), ADAMOD_OK)) {
        for (int i = 0; i < ROWS; i++) {
            ((int32_t *)nn_plan_data(plan, "ids"))[i] = (int32_t)nn_below(1, (uint64_t)i, WORDS);
            ((int32_t *)nn_plan_data(plan, "targets"))[i] = (int32_t)nn_below(2, (uint64_t)i, WORDS);
        }
        nn_plan_forward(plan);
        nn_plan_backward(plan, false);
        CHECK_INT(nn_plan_wait(plan), ADAMOD_OK);
        CHECK_INT(nn_params_fetch_grad(p), ADAMOD_OK);
    }
    nn_plan_free(plan);
    nn_graph_free(g);
    return p;
}

TEST(a_gradient_from_two_steps_has_both) {
    if (!cudacheck_open()) SKIP("no device");
    nn_params *cpu = tied_gradient("cpu");
    const int times = getenv("ADAMOD_TEST_FAST") ? 2 : 20;
    for (int i = 0; i < times; i++) {
        nn_params *cuda = tied_gradient("cuda");
        CHECK(distance(cpu, cuda) < 1e-5);
        nn_params_free(cuda);
    }
    nn_params_free(cpu);
}

static adamod_status on_cuda(nn_params *p, void *precision) {
    return nn_params_to_device(p, "cuda", *(const nn_precision *)precision);
}

static void compare_sums(nn_precision precision, int64_t rows, int64_t cols, double tolerance) {
    nn_params *cpu = sums_gradient(rows, cols, NULL, NULL), *cuda = sums_gradient(rows, cols, on_cuda, &precision);
    if (CHECK(cpu && cuda)) CHECK(sums_agree(cpu, cuda, tolerance));
    nn_params_free(cpu);
    nn_params_free(cuda);
}

TEST(sums_over_rows_are_those_of_the_processor) {
    if (!cudacheck_open()) SKIP("no device");
    static const int64_t sizes[][2] = {{1, 64}, {37, 64}, {1090, 64}, {300, 512}, {100, 1024}, {50, 20}};
    for (int i = 0; i < 6; i++) {
        compare_sums(NN_FULL, sizes[i][0], sizes[i][1], 1e-4);
        compare_sums(NN_MIXED, sizes[i][0], sizes[i][1], 0.2);
    }
}

TEST(decoding_on_a_device_agrees_with_its_training_graph) {
    if (!cudacheck_open()) SKIP("no device");
    transformer_config c = device_config();
    c.smoothing = 0;
    for (int precision = NN_FULL; precision <= NN_MIXED; precision += NN_MIXED - NN_FULL) {
        small_transformer s = small_make_on(&c, "cuda", (nn_precision)precision, false);
        for (int64_t i = 0; i < s.params->count; i++) s.params->data[i] *= 1.7f;
        CHECK_INT(nn_params_store(s.params), ADAMOD_OK);
        const int32_t src[] = {3, 5, 9, 1, 4, 4, 7, 2, 11, 1, 20, 1};
        const int32_t ranges[3][2] = {{0, 4}, {4, 10}, {10, 12}};
        decoder *d = NULL;
        decode_result results[3];
        const decode_options o = {.beam = 3,
                                  .max_length = 12,
                                  .length_penalty = 1,
                                  .sentences = 3,
                                  .src_tokens = 30,
                                  .start = 0,
                                  .end = 1,
                                  .pool = s.pool};
        if (!CHECK_INT(decoder_create(&d, s.params, &c, &o), ADAMOD_OK)) printf("%s\n", adamod_last_error());
        if (d && CHECK_INT(decoder_run(d, 3, src, ranges, results), ADAMOD_OK)) {
            for (int i = 0; i < 3; i++) {
                const int length = results[i].length + (results[i].complete ? 1 : 0);
                const double score = small_score(&s, src, ranges[i], &results[i]);
                CHECK_CLOSE(results[i].score * length, score, (precision == NN_MIXED ? 3e-2 : 1e-4) * length);
            }
        }
        decoder_free(d);
        small_free(&s);
    }
}

/* Enough sentences that a device goes through several plans while they leave. */
enum { MANY = 80, OUTPUT = 14 };

typedef struct outputs {
    decoder *d;
    int32_t tokens[MANY][3][OUTPUT];
    int length[MANY][3];
    double score[MANY][3];
} outputs;

static int take_output(void *context, int64_t i, int place) {
    outputs *o = context;
    for (int k = 0; k < 3; k++) {
        decode_result r;
        if (!CHECK(decoder_result(o->d, place, k, &r))) return 1;
        memcpy(o->tokens[i][k], r.tokens, (size_t)r.length * sizeof *r.tokens);
        o->length[i][k] = r.length;
        o->score[i][k] = r.score;
    }
    return 0;
}

static bool decode_many(const transformer_config *c, const char *device, nn_precision precision, outputs *out) {
    static int32_t src[MANY * 8];
    int64_t at[MANY + 1] = {0};
    int taken = 1;
    for (int i = 0; i < MANY; i++) {
        at[i + 1] = at[i] + 2 + i * 5 % 7;
        for (int64_t k = at[i]; k < at[i + 1] - 1; k++) src[k] = 3 + (int32_t)nn_below(7, (uint64_t)k, SMALL_VOCAB - 3);
        src[at[i + 1] - 1] = 1;
    }
    small_transformer s = small_make_on(c, device, precision, false);
    memset(out, 0, sizeof *out);
    const decode_options o = {.beam = 3,
                              .max_length = OUTPUT,
                              .length_penalty = 1,
                              .sentences = 64,
                              .src_tokens = 400,
                              .start = 0,
                              .end = 1,
                              .pool = s.pool};
    if (!CHECK_INT(decoder_create(&out->d, s.params, c, &o), ADAMOD_OK) ||
        !CHECK_INT(decoder_run_all(out->d, MANY, src, at, take_output, out, &taken), ADAMOD_OK))
        printf("%s\n", adamod_last_error());
    decoder_free(out->d);
    out->d = NULL;
    small_free(&s);
    return taken == 0;
}

TEST(searches_on_a_device_are_those_of_the_processor) {
    if (!cudacheck_open()) SKIP("no device");
    static outputs cpu, cuda, again;
    const transformer_config c = device_config();
    if (!CHECK(decode_many(&c, "cpu", NN_FULL, &cpu) && decode_many(&c, "cuda", NN_FULL, &cuda) &&
               decode_many(&c, "cuda", NN_FULL, &again)))
        return;
    int lengths[OUTPUT + 1] = {0}, different = 0;
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < 3; k++) {
            CHECK_CLOSE(cuda.score[i][k], cpu.score[i][k], 1e-4);
            if (CHECK_INT(cuda.length[i][k], cpu.length[i][k]))
                CHECK(memcmp(cuda.tokens[i][k], cpu.tokens[i][k], sizeof cpu.tokens[i][k]) == 0);
        }
        lengths[cpu.length[i][0]]++;
    }
    for (int n = 0; n <= OUTPUT; n++) different += lengths[n] > 0;
    CHECK(different > 2);
    CHECK(memcmp(&cuda, &again, sizeof cuda) == 0); /* and every run gives the same bits */
    CHECK(decode_many(&c, "cuda", NN_MIXED, &again));
}

TEST(devices_that_are_not_there_are_told) {
    if (!cudacheck_open()) SKIP("no device");
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    nn_parameter(g, "w", 1, (int64_t[]){4}, (nn_init){NN_ONES, 0});
    CHECK_INT(nn_params_allocate(p, 1), ADAMOD_OK);
    CHECK_INT(nn_params_to_device(p, "cuda:99", NN_FULL), ADAMOD_ERROR_DEVICE);
    CHECK_HAS(adamod_last_error(), "there is no device 99");
    CHECK_INT(nn_params_to_device(p, "cuda:x", NN_FULL), ADAMOD_ERROR_NAME);
    CHECK_INT(nn_params_to_device(p, "gpu", NN_FULL), ADAMOD_ERROR_NAME);
    CHECK_INT(nn_params_to_device(p, "cuda:0", NN_FULL), ADAMOD_OK);
    nn_graph_free(g);
    nn_params_free(p);
}

RUN_TESTS(ENTRY(loss_and_gradients_are_those_of_the_processor), ENTRY(every_run_gives_the_same_bits),
          ENTRY(a_hundred_steps_follow_those_of_the_processor), ENTRY(the_bf16_copy_is_always_the_parameters_rounded),
          ENTRY(a_gradient_from_two_steps_has_both), ENTRY(sums_over_rows_are_those_of_the_processor),
          ENTRY(decoding_on_a_device_agrees_with_its_training_graph),
          ENTRY(searches_on_a_device_are_those_of_the_processor), ENTRY(devices_that_are_not_there_are_told))
