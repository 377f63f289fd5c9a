/* States in 8 bits: what a code holds, that all ways to an update give the same bits, and what training loses by it.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "check.h"
#include "option_sets.h"
#include "rule_table.h"
#include "values.h"
#include "optim/internal.h"
#include "kernels/q8.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Kinds of states are 0 to 2: with a sign, positive, and positive with zeros. Without the sign: */
static uint32_t largest_code(int state) { return state == 0 ? 127 : 255; }

static double next_uniform(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(*random >> 32) * 0x1p-31;
}

/* ---- codes ---- */

static double decoded_mean(float x, float scale, int state) {
    enum { DRAWS = 65536 };
    const q8_block b = adamod__q8_block(scale, state);
    double sum = 0;
    for (uint32_t r = 0; r < DRAWS; r++) {
        sum += (double)adamod__q8_decode(adamod__q8_encode(x, &b, r << 16 | 0x8000u, state), &b, state);
    }
    return sum / DRAWS;
}

TEST(codes_are_right_on_average) {
    uint64_t random = 1;
    for (int state = 0; state < 3; state++) {
        for (int i = 0; i < 60; i++) {
            const float scale = adamod__q8_scale(adamod__to_bits((float)exp(40 * next_uniform(&random))));
            const double range = state == 0 ? 1e-8 : 1e-9; /* of state 0 also what is below its least code */
            float x = scale * (float)exp(log(range) * fabs(next_uniform(&random)));
            if (state == 0 && i % 2) x = -x;
            const double mean = decoded_mean(x, scale, state), unit = 0.125 * 0x1p-16;
            CHECK_CLOSE(mean, x, unit * fabs((double)x) + (state == 0 ? 2e-5 * 0x1p-17 * (double)scale : 0));
        }
    }
}

TEST(codes_at_the_ends) {
    CHECK(adamod__q8_scale(adamod__to_bits(3.3f)) == 2);
    CHECK(adamod__q8_scale(adamod__to_bits(3.75f)) == 2);
    CHECK(adamod__q8_scale(adamod__to_bits(3.8f)) == 4); /* which might be rounded to 4 */
    for (int state = 0; state < 3; state++) {
        const q8_block b = adamod__q8_block(2, state);
        const uint32_t top = largest_code(state), always = UINT32_MAX;
        CHECK_INT(adamod__q8_encode(3.75f, &b, always, state), top);
        CHECK(adamod__q8_decode(top, &b, state) == 3.75f);
        CHECK_INT(adamod__q8_encode(3.74f, &b, always, state), top);
        CHECK(adamod__q8_decode(0, &b, state) == 0);
        /* squares and learning rates never vanish beside larger ones, unless they are 0 and shall stay so */
        CHECK_INT(adamod__q8_encode(1e-30f, &b, always, state), state == 0 ? 0 : 1);
        CHECK_INT(adamod__q8_encode(0, &b, always, state), state == 1 ? 1 : 0);
        const q8_block lost = adamod__q8_block(adamod__q8_scale(0x7f800001u), state);
        CHECK(isnan(adamod__q8_decode(17, &lost, state)));
        const q8_block empty = adamod__q8_block(adamod__q8_scale(0), state);
        CHECK(adamod__q8_decode(adamod__q8_encode(0, &empty, always, state), &empty, state) == 0);
        const float least = 1e-44f, most = 3e38f;
        const q8_block tiny = adamod__q8_block(adamod__q8_scale(adamod__to_bits(least)), state);
        CHECK(adamod__q8_decode(adamod__q8_encode(least, &tiny, always, state), &tiny, state) <= 0x1p-96f);
        const q8_block huge = adamod__q8_block(adamod__q8_scale(adamod__to_bits(most)), state);
        CHECK(fabsf(adamod__q8_decode(adamod__q8_encode(most, &huge, 0, state), &huge, state) - most) < most / 8);
    }
}

/* On GPUs by way of the least of f32's numbers. */
TEST(the_quick_way_gives_the_same) {
    uint64_t random = 5;
    for (int state = 0; state < 3; state++) {
        const uint32_t top = largest_code(state);
        int quick = 0;
        for (int i = 0; i < 200000; i++) {
            const float most = (float)exp(60 * next_uniform(&random) - 20),
                        scale = adamod__q8_scale(adamod__to_bits(most));
            const float x = i % 100 == 0 ? 0 : most * (float)exp((state == 0 ? 14 : 26) * (next_uniform(&random) - 1));
            const float signed_x = state == 0 && i % 2 ? -x : x;
            const uint32_t bits = (uint32_t)(int64_t)(next_uniform(&random) * 0x1p31);
            if (!adamod__q8_is_quick(scale, state)) continue;
            quick++;
            const q8_block b = adamod__q8_block(scale, state);
            const float inverse = adamod__q8_quick_inverse(scale, state);
            const uint32_t code = adamod__q8_encode(signed_x, &b, bits, state);
            const uint32_t other = adamod__q8_quick_encode(signed_x, inverse, bits, state);
            if (!CHECK_INT((other >> 20 & top) | (state == 0 ? other >> 24 & 128u : 0), code)) return;
            const float factor = adamod__q8_quick_factor(scale, state);
            const uint32_t shifted = (code & top) << 20 | (code & ~top) << 24;
            if (!CHECK(adamod__q8_quick_decode(shifted, factor) == adamod__q8_decode(code, &b, state))) return;
        }
        CHECK(quick > 100000);
    }
}

/* ---- random numbers ---- */

/* Whether each of the 16 numbers of a group rounds a remainder up, of groups side by side and of steps. */
enum { GROUP = 16, GROUPS = 128, STEPS = 512 };
static void draw(double *up, uint64_t step, double remainder) {
    const uint64_t key = adamod__array_key(0, 17, (int64_t)step);
    for (uint32_t group = 0; group < GROUPS; group++) {
        for (int k = 0; k < GROUP; k++) {
            const uint32_t random = adamod__random_bits(4 * group + (uint32_t)k / 4, k % 4, adamod__block_key(key, 0));
            up[group * GROUP + (uint32_t)k] = ((double)random + remainder * 0x1p32 >= 0x1p32 ? 1 : 0) - remainder;
        }
    }
}

/* In units of what chance gives. */
static double correlation(double *const *draws, int steps_apart, int apart) {
    double sum = 0, n = 0;
    for (int t = 0; t + steps_apart < STEPS; t++) {
        for (int i = 0; i + apart < GROUP * GROUPS; i++, n++) sum += draws[t][i] * draws[t + steps_apart][i + apart];
    }
    return sum / sqrt(n);
}

TEST(rounding_has_no_bias_and_no_memory) {
    double *draws[STEPS];
    for (int t = 0; t < STEPS; t++) draws[t] = malloc(GROUP * GROUPS * sizeof *draws[t]);
    for (int r = 1; r < 8; r += fast() ? 3 : 1) {
        const double remainder = r / 8.0, deviation = sqrt(remainder * (1 - remainder));
        for (int t = 0; t < STEPS; t++) draw(draws[t], (uint64_t)t, remainder);
        double bias[GROUP] = {0};
        for (int t = 0; t < STEPS; t++) {
            for (int i = 0; i < GROUP * GROUPS; i++) bias[i % GROUP] += draws[t][i];
        }
        for (int k = 0; k < GROUP; k++) CHECK(fabs(bias[k]) < 4 * deviation * sqrt((double)STEPS * GROUPS));
        for (int apart = 1; apart <= 2 * GROUP; apart++) {
            if (!CHECK(fabs(correlation(draws, 0, apart)) < 4 * deviation * deviation)) printf("    %d\n", apart);
        }
        for (int steps = 1; steps < 4; steps++) CHECK(fabs(correlation(draws, steps, 0)) < 4 * deviation * deviation);
    }
    for (int t = 0; t < STEPS; t++) free(draws[t]);
}

/* ---- the same bits ---- */

enum { ARRAYS = 3 };
static const int64_t counts[ARRAYS] = {70001, 300, 5};

typedef struct setting {
    adamod_optimizer *opt;
    float *p[ARRAYS], *g[ARRAYS];
} setting;

static void setting_make(setting *x, const option_set *set, const char *isa, int threads) {
    uint64_t random = 7;
    if (isa) setenv("ADAMOD_ISA", isa, 1);
    CHECK_INT(adamod_create(&x->opt, set->rule), ADAMOD_OK);
    unsetenv("ADAMOD_ISA");
    CHECK_INT(adamod_set_text(x->opt, "state_type", "q8"), ADAMOD_OK);
    CHECK_INT(adamod_set(x->opt, "threads", threads), ADAMOD_OK);
    CHECK_INT(adamod_set(x->opt, "clip_norm", 50), ADAMOD_OK);
    apply(set->options, NULL, x->opt, -1, NULL);
    for (int k = 0; k < ARRAYS; k++) {
        x->p[k] = malloc((size_t)counts[k] * sizeof(float));
        x->g[k] = malloc((size_t)counts[k] * sizeof(float));
        for (int64_t i = 0; i < counts[k]; i++) x->p[k][i] = (float)next_uniform(&random);
        CHECK_INT(adamod_add(x->opt, NULL, x->p[k], x->g[k], 1, &counts[k]), ADAMOD_OK);
    }
}

/* The gradients of a step, whoever asks: most of the time would go into drawing them again. */
static const float *gradients_of(int t) {
    enum { MOST = 8, ALL = 70001 + 300 + 5 };
    static float drawn[MOST][ALL];
    static bool there[MOST];
    uint64_t random = (uint64_t)t + 1000;
    if (!CHECK(t < MOST)) abort();
    for (int i = 0; !there[t] && i < ALL; i++)
        drawn[t][i] = (float)(next_uniform(&random) * exp(8 * next_uniform(&random)));
    there[t] = true;
    return drawn[t];
}

static void setting_run(setting *x, int first, int steps) {
    for (int t = first; t < first + steps; t++) {
        const float *g = gradients_of(t);
        for (int k = 0; k < ARRAYS; g += counts[k++]) memcpy(x->g[k], g, (size_t)counts[k] * sizeof(float));
        CHECK_INT(adamod_step(x->opt), ADAMOD_OK);
    }
}

static void setting_free(setting *x) {
    adamod_free(x->opt);
    for (int k = 0; k < ARRAYS; k++) {
        free(x->p[k]);
        free(x->g[k]);
    }
}

/* Both have the state, or neither. */
static bool same_state(const setting *a, const setting *b, int k, const char *name) {
    void *x, *y;
    adamod_type type = ADAMOD_F32;
    int64_t count = 0;
    const adamod_status one = adamod_state(a->opt, k, name, &x, &type, &count);
    const adamod_status other = adamod_state(b->opt, k, name, &y, &type, &count);
    return one == other && (one || memcmp(x, y, (size_t)count * adamod__type_size(type)) == 0);
}

static void same_setting(const setting *a, const setting *b, const option_set *set) {
    adamod_rule info;
    bool same = true;
    CHECK_INT(adamod_rule_info(set->rule, &info, sizeof info), ADAMOD_OK);
    for (int k = 0; k < ARRAYS; k++) {
        same = same && memcmp(a->p[k], b->p[k], (size_t)counts[k] * sizeof(float)) == 0;
        for (int i = 0; i < info.n_states; i++) {
            char scale[64];
            snprintf(scale, sizeof scale, "%s_scale", info.states[i].name);
            same = same && same_state(a, b, k, info.states[i].name) && same_state(a, b, k, scale);
        }
    }
    if (!CHECK(same)) printf("    %s %s\n", set->rule, set->options);
}

static const option_set adamod = {"adamod", ""};
static const char *const rules[][2] = {{"adamod", "exp_avg_lr"}, {"adam", "exp_avg_sq"}, {"sgd", "momentum_buffer"}};
static option_set set_of(int r) { return (option_set){rules[r][0], r == 2 ? "momentum=0.9" : ""}; }

TEST(instruction_sets_and_threads_agree) {
    const int steps = fast() ? 3 : 6;
    int sets = 0;
    option_set set;
    while (adamod_isa_name(sets)) sets++;
    for (int r = 0; rule_options(ROW_Q8, r, &set); r++) {
        setting first;
        setting_make(&first, &set, "plain", 1);
        setting_run(&first, 0, steps);
        for (int i = 0; adamod_isa_name(i); i++) {
            setting x;
            if (fast() && i != r % sets) continue; /* every rule with one of them, on one thread or more */
            setting_make(&x, &set, adamod_isa_name(i), 1 + i);
            setting_run(&x, 0, steps);
            same_setting(&first, &x, &set);
            setting_free(&x);
        }
        setting_free(&first);
    }
}

TEST(files_continue_bit_for_bit) {
    char path[64];
    option_set set;
    snprintf(path, sizeof path, "q8_state.%d.tmp", (int)getpid());
    for (int r = 0; rule_options(ROW_Q8, r, &set); r++) {
        setting a, b;
        setting_make(&a, &set, NULL, 1);
        setting_make(&b, &set, NULL, 1);
        setting_run(&a, 0, 3);
        CHECK_INT(adamod_save(a.opt, path), ADAMOD_OK);
        CHECK_INT(adamod_load(b.opt, path), ADAMOD_OK);
        for (int k = 0; k < ARRAYS; k++) memcpy(b.p[k], a.p[k], (size_t)counts[k] * sizeof(float));
        setting_run(&a, 3, 2);
        setting_run(&b, 3, 2);
        same_setting(&a, &b, &set);
        /* not into states of another type */
        adamod_optimizer *other;
        CHECK_INT(adamod_create(&other, set.rule), ADAMOD_OK);
        apply(set.options, NULL, other, -1, NULL);
        for (int k = 0; k < ARRAYS; k++) CHECK_INT(adamod_add(other, NULL, a.p[k], a.g[k], 1, &counts[k]), ADAMOD_OK);
        CHECK_INT(adamod_load(other, path), ADAMOD_ERROR_MISMATCH);
        adamod_free(other);
        setting_free(&a);
        setting_free(&b);
    }
    unlink(path);
}

TEST(raw_updates_are_the_handles) {
    setting x;
    setting_make(&x, &adamod, NULL, 1);
    CHECK_INT(adamod_set(x.opt, "clip_norm", INFINITY), ADAMOD_OK);
    setting_run(&x, 0, 1); /* fills the gradients */
    enum { N = 300 };
    float p[N], scale[3][2] = {{0}};
    uint8_t state[3][N] = {{0}};
    adamod_optimizer *opt;
    adamod_hyper *h;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "state_type", "q8"), ADAMOD_OK);
    for (int i = 0; i < N; i++) p[i] = x.p[1][i];
    CHECK_INT(adamod_add(opt, "w", x.p[1], x.g[1], 1, (int64_t[]){N}), ADAMOD_OK);
    CHECK_INT(adamod_hyper_create(&h, "adamod"), ADAMOD_OK);
    adamod_span s = {.param = p, .grad = x.g[1], .state_type = ADAMOD_Q8, .count = N};
    for (int i = 0; i < 3; i++) s.state[i] = state[i];
    s.stream = 0xcbf29ce484222325u; /* of the name "w", as the handle has it */
    s.stream = (s.stream ^ 'w') * 0x100000001b3u;
    s.step = 1;
    CHECK_INT(adamod_update(h, &s, 1, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "scale[0], of exp_avg, is NULL");
    for (int i = 0; i < 3; i++) s.scale[i] = scale[i];
    for (int t = 1; t <= 5; t++) {
        s.step = t;
        CHECK_INT(adamod_update(h, &s, 1, NULL), ADAMOD_OK);
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
    }
    CHECK(memcmp(p, x.p[1], sizeof p) == 0);
    adamod_hyper_free(h);
    adamod_free(opt);
    setting_free(&x);
}

/* Parameters of 100 and of 300 elements: with a least size of 101 the first is as with auto, the second as without. */
TEST(small_parameters_have_states_as_with_auto) {
    enum { SMALL = 100, LARGE = 300 };
    static const struct {
        const char *type;
        double least;
        adamod_type small, large;
    } runs[] = {{"q8", 101, ADAMOD_F32, ADAMOD_Q8},
                {"auto", 0, ADAMOD_F32, ADAMOD_F32},
                {"q8", 0, ADAMOD_Q8, ADAMOD_Q8},
                {"q8", 100, ADAMOD_Q8, ADAMOD_Q8},
                {"bf16", 101, ADAMOD_BF16, ADAMOD_BF16}};
    float p[5][SMALL + LARGE], g[SMALL + LARGE];
    for (int r = 0; r < 5; r++) {
        adamod_optimizer *opt;
        void *data;
        adamod_type type;
        CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
        CHECK_INT(adamod_set_text(opt, "state_type", runs[r].type), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "min_8bit_size", runs[r].least), ADAMOD_OK);
        for (int i = 0; i < SMALL + LARGE; i++) p[r][i] = (float)(i % 7) - 3;
        CHECK_INT(adamod_add(opt, "small", p[r], g, 1, (int64_t[]){SMALL}), ADAMOD_OK);
        CHECK_INT(adamod_add(opt, "large", p[r] + SMALL, g + SMALL, 1, (int64_t[]){LARGE}), ADAMOD_OK);
        for (int t = 1; t <= 5; t++) {
            for (int i = 0; i < SMALL + LARGE; i++) g[i] = sinf((float)(i * t));
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
        }
        CHECK_INT(adamod_state(opt, 0, "exp_avg_sq", &data, &type, NULL), ADAMOD_OK);
        CHECK_INT(type, runs[r].small);
        CHECK_INT(adamod_state(opt, 1, "exp_avg_sq", &data, &type, NULL), ADAMOD_OK);
        CHECK_INT(type, runs[r].large);
        /* A value that changes no state may be set; one that does may not. */
        const bool fixed = runs[r].large == ADAMOD_Q8;
        CHECK_INT(adamod_set(opt, "min_8bit_size", runs[r].least + (runs[r].least == 101)), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "min_8bit_size", 301), fixed ? ADAMOD_ERROR_ORDER : ADAMOD_OK);
        adamod_free(opt);
    }
    CHECK(memcmp(p[0], p[1], SMALL * sizeof(float)) == 0);
    CHECK(memcmp(p[0] + SMALL, p[2] + SMALL, LARGE * sizeof(float)) == 0);
    CHECK(memcmp(p[2], p[3], sizeof p[2]) == 0);
    CHECK(memcmp(p[0], p[2], SMALL * sizeof(float)) != 0);
}

/* ---- states that the caller keeps ---- */

TEST(states_of_the_callers_are_as_the_handles) {
    for (int r = 0; r < 3; r++) {
        enum { N = 300 };
        setting x;
        float p[N], g[N], scale[3][2] = {{0}};
        uint8_t state[3][N] = {{0}};
        adamod_optimizer *opt;
        const int states = r == 0 ? 3 : r == 1 ? 2 : 1;
        const option_set set = set_of(r);
        setting_make(&x, &set, NULL, 1);
        CHECK_INT(adamod_create(&opt, rules[r][0]), ADAMOD_OK);
        CHECK_INT(adamod_set_text(opt, "state_type", "q8"), ADAMOD_OK);
        CHECK_INT(adamod_set(opt, "clip_norm", INFINITY), ADAMOD_OK);
        CHECK_INT(adamod_set(x.opt, "clip_norm", INFINITY), ADAMOD_OK);
        if (r == 2) CHECK_INT(adamod_set(opt, "momentum", 0.9), ADAMOD_OK);
        memcpy(p, x.p[1], sizeof p);
        adamod_tensor t = {.name = "param.1", .param = p, .grad = g, .ndim = 1, .shape = {N}};
        for (int i = 0; i < states; i++) t.state[i] = state[i];
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
        CHECK_HAS(adamod_last_error(), "param.1: scale[0] is NULL, but the states are 8-bit");
        for (int i = 0; i < states; i++) t.scale[i] = scale[i];
        t.scale[states - 1] = (float *)(void *)((char *)scale[states - 1] + 1);
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
        CHECK_HAS(adamod_last_error(), "_scale is not aligned to its elements");
        t.scale[states - 1] = p;
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
        CHECK_HAS(adamod_last_error(), "_scale overlap");
        t.scale[states - 1] = scale[states - 1];
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_set_grad(opt, 0, scale[states - 1]), ADAMOD_ERROR_ARGUMENT);
        for (int step = 0; step < 5; step++) {
            setting_run(&x, step, 1);
            memcpy(g, x.g[1], sizeof g);
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
        }
        CHECK(memcmp(p, x.p[1], sizeof p) == 0);
        void *codes, *scales;
        char name[64];
        snprintf(name, sizeof name, "%s_scale", rules[r][1]);
        CHECK_INT(adamod_state(x.opt, 1, rules[r][1], &codes, NULL, NULL), ADAMOD_OK);
        CHECK_INT(adamod_state(x.opt, 1, name, &scales, NULL, NULL), ADAMOD_OK);
        CHECK(memcmp(codes, state[states - 1], N) == 0);
        CHECK(memcmp(scales, scale[states - 1], sizeof scale[0]) == 0);
        adamod_free(opt);
        setting_free(&x);
    }
}

TEST(scales_without_states_in_8_bits_are_refused) {
    float p[4] = {0}, state[3][4] = {{0}}, scale[3] = {0};
    adamod_optimizer *opt;
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    adamod_tensor t = {.name = "t", .param = p, .ndim = 1, .shape = {4}, .scale = {&scale[0], &scale[1], &scale[2]}};
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "t: scale[0] is set, but there is no 8-bit state for it");
    for (int i = 0; i < 3; i++) t.state[i] = state[i];
    CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
    adamod_free(opt);
}

/* ---- to 8 bits and back ---- */

TEST(values_are_encoded_to_the_nearest_code) {
    enum { N = 600 };
    float in[N], out[N], scale[3], again[3];
    uint8_t codes[N], other[N];
    uint64_t random = 5;
    for (int state = 0; state < 3; state++) {
        for (int size = 0; size < 3; size++) {
            const float unit = size == 0 ? 1 : size == 1 ? 1e-38f : 1e36f;
            for (int i = 0; i < N; i++) {
                const float x = (float)(next_uniform(&random) * exp(4 * next_uniform(&random))) * unit;
                in[i] = i % 50 == 0 ? 0 : state == 0 ? x : fabsf(x);
            }
            CHECK_INT(adamod_q8_encode(state, N, in, codes, scale), ADAMOD_OK);
            CHECK_INT(adamod_q8_decode(state, N, codes, scale, out), ADAMOD_OK);
            for (int i = 0; i < N; i++) {
                const float least = scale[i / ADAMOD_Q8_BLOCK] * (state == 0 ? 2e-5f : 3e-10f) + 1.5e-39f;
                if (!CHECK(fabsf(out[i] - in[i]) <= fabsf(in[i]) / 16 + least)) break;
                /* Squares and rates stay above 0 unless they are 0. Subnormal codes may be 0. */
                if (!CHECK(out[i] != 0 || in[i] == 0 || state == 0 || size == 1)) break;
            }
            CHECK_INT(adamod_q8_encode(state, N, out, other, again), ADAMOD_OK);
            float back[N];
            CHECK_INT(adamod_q8_decode(state, N, other, again, back), ADAMOD_OK);
            CHECK(memcmp(out, back, sizeof out) == 0);
        }
    }
}

TEST(encoding_refuses_what_it_cannot_do) {
    float x[1] = {1}, scale[1];
    uint8_t code[1];
    CHECK_INT(adamod_q8_encode(-1, 1, x, code, scale), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_q8_decode(ADAMOD_MAX_STATES, 1, code, scale, x), ADAMOD_ERROR_RANGE);
    CHECK_INT(adamod_q8_encode(0, -1, x, code, scale), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_q8_encode(0, 1, NULL, code, scale), ADAMOD_ERROR_ARGUMENT);
    CHECK_HAS(adamod_last_error(), "q8: values is NULL");
    CHECK_INT(adamod_q8_decode(0, 1, code, NULL, x), ADAMOD_ERROR_ARGUMENT);
    CHECK_INT(adamod_q8_encode(0, 0, NULL, NULL, NULL), ADAMOD_OK);
    x[0] = INFINITY;
    CHECK_INT(adamod_q8_encode(1, 1, x, code, scale), ADAMOD_OK);
    CHECK(scale[0] == 0x1p127f && code[0] == 255);
    x[0] = NAN;
    CHECK_INT(adamod_q8_encode(1, 1, x, code, scale), ADAMOD_OK);
    CHECK(isnan(scale[0]) && code[0] == 0);
}

/* Infinities, and what is nearly infinite, become the largest number there is, whatever the random bits; the rest of the
 * block stays, as far as codes reach. */
TEST(infinities_saturate) {
    static const float large[] = {INFINITY, FLT_MAX, 0x1.fp127f, 0x1.e00002p127f};
    for (int s = 0; adamod__kernels_at(s); s++) {
        const real_kernels *k = adamod__kernels_at(s)->f32;
        for (int c = 0; c < 4; c++) {
            enum { N = 600 };
            float in[N], out[N], scale[3];
            uint8_t codes[N];
            for (int state = 0; state < 3; state++) {
                for (int i = 0; i < N; i++) in[i] = 0x1p120f * (float)(1 + i);
                in[300] = large[c];
                in[301] = state == 0 ? -large[c] : large[c];
                for (uint32_t key = 0; key < 8; key++) {
                    k->store_q8(codes, scale, in, N, state, key, 1);
                    k->load_q8(out, codes, scale, N, state);
                    CHECK(out[300] == 0x1.ep127f && fabsf(out[301]) == 0x1.ep127f);
                    CHECK(signbit(out[301]) == signbit(in[301]));
                    for (int i = 0; i < N; i++) {
                        if (i == 300 || i == 301 || fabsf(in[i]) >= 0x1.ep127f) continue;
                        if (!CHECK(fabsf(out[i] - in[i]) <= in[i] / 8)) break;
                    }
                }
            }
        }
    }
}

/* A square that overflows stops its own block for a while, and destroys nothing. */
TEST(one_huge_gradient_does_not_ruin_its_block) {
    static const char *const names[] = {"adamod", "adam", "sgd"};
    for (int r = 0; r < 3; r++) {
        enum { N = 700, HUGE_ONE = 300 };
        static float p[N], g[N], then[N];
        adamod_optimizer *opt;
        adamod_statistics s;
        if (!CHECK_INT(adamod_create(&opt, names[r]), ADAMOD_OK)) return;
        CHECK_INT(adamod_set_text(opt, "state_type", "q8"), ADAMOD_OK);
        if (r == 2) CHECK_INT(adamod_set(opt, "momentum", 0.5), ADAMOD_OK);
        else CHECK_INT(adamod_set(opt, "beta1", 0.5) | adamod_set(opt, "beta2", 0.5), ADAMOD_OK);
        if (r == 0) CHECK_INT(adamod_set(opt, "beta3", 0.5), ADAMOD_OK);
        for (int i = 0; i < N; i++) p[i] = 1, g[i] = 0.25f;
        CHECK_INT(adamod_add(opt, "w", p, g, 1, (const int64_t[]){N}), ADAMOD_OK);
        CHECK_INT(adamod_collect(opt, 1), ADAMOD_OK);
        for (int t = 0; t < 400; t++) {
            g[HUGE_ONE] = t == 3 ? 1e21f : 0.25f;
            CHECK_INT(adamod_step(opt), ADAMOD_OK);
            CHECK_INT(adamod_get_statistics(opt, -1, &s), ADAMOD_OK);
            CHECK_INT(s.nonfinite, t == 3 && r < 2); /* its v, before it is rounded to 8 bits */
            if (t == 3) memcpy(then, p, sizeof p);
            bool finite = true;
            for (int i = 0; i < N; i++) finite = finite && isfinite(p[i]);
            if (!CHECK(finite)) break;
        }
        /* all of them have moved on since */
        int still = 0;
        for (int i = 0; i < N; i++) still += p[i] == then[i];
        if (!CHECK_INT(still, 0)) printf("  %s\n", names[r]);
        adamod_free(opt);
    }
}

/* The codes of a block with a NaN do not depend on the NaN's bits. */
TEST(a_block_with_a_nan_is_lost) {
    static const uint32_t nans[] = {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0x7f800001u};
    for (int k = 0; k < 4; k++) {
        enum { N = 600 };
        float in[N], out[N], scale[3];
        uint8_t codes[N];
        for (int i = 0; i < N; i++) in[i] = 1 + (float)i;
        in[300] = adamod__from_bits(nans[k]);
        for (int state = 0; state < 3; state++) {
            adamod__kernels_plain.f32->store_q8(codes, scale, in, N, state, 5, 1);
            adamod__kernels_plain.f32->load_q8(out, codes, scale, N, state);
            for (int i = 0; i < N; i++) {
                const bool lost = i / ADAMOD_Q8_BLOCK == 1;
                if (!CHECK(lost ? codes[i] == 0 && isnan(out[i]) : fabsf(out[i] - in[i]) <= in[i] / 8)) break;
            }
        }
    }
}

/* ---- options, memory ---- */

TEST(only_rules_that_have_it_take_it) {
    option_set set;
    for (int r = 0; adamod_rule_name(r); r++) {
        const char *name = adamod_rule_name(r);
        adamod_optimizer *opt;
        float p = 1, g = 1;
        bool has = false;
        for (int i = 0; rule_options(ROW_Q8, i, &set); i++) has = has || strcmp(set.rule, name) == 0;
        CHECK_INT(adamod_create(&opt, name), ADAMOD_OK);
        CHECK_INT(adamod_set_text(opt, "state_type", "q8"), has ? ADAMOD_OK : ADAMOD_ERROR_NAME);
        CHECK_INT(adamod_set(opt, "state_type", 2), has ? ADAMOD_OK : ADAMOD_ERROR_RANGE);
        adamod_tensor t = {.param = &p, .grad = &g, .param_type = ADAMOD_Q8};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_ERROR_ARGUMENT);
        adamod_free(opt);
    }
}

/* v - a^2 would be nothing but the error of rounding. */
TEST(centered_rmsprop_does_not_take_it) {
    adamod_optimizer *opt;
    adamod_hyper *h;
    float p = 1, g = 1, scale = 0;
    uint8_t v = 0, a = 0;
    CHECK_INT(adamod_create(&opt, "rmsprop"), ADAMOD_OK);
    apply("centered=1 state_type=q8", NULL, opt, -1, NULL);
    CHECK_INT(adamod_add(opt, "w", &p, &g, 0, NULL), ADAMOD_ERROR_RANGE);
    CHECK_STR(adamod_last_error(),
              "adamod: w: rmsprop: states in 8 bits (q8) do not go with centered, expected centered = 0");
    adamod_free(opt);
    CHECK_INT(adamod_hyper_create(&h, "rmsprop"), ADAMOD_OK);
    CHECK_INT(adamod_hyper_set(h, "centered", 1), ADAMOD_OK);
    const adamod_span x = {.param = &p,
                           .grad = &g,
                           .state = {NULL, &v, &a},
                           .scale = {NULL, &scale, &scale},
                           .count = 1,
                           .state_type = ADAMOD_Q8,
                           .step = 1};
    CHECK_INT(adamod_update(h, &x, 1, NULL), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "span 0: rmsprop: states in 8 bits (q8) do not go with centered");
    adamod_hyper_free(h);
}

/* In 8 bits, too, and whatever the type of computation. */
TEST(a_state_begins_with_its_option) {
    static const adamod_type types[] = {ADAMOD_F32, ADAMOD_F64};
    for (int k = 0; k < 2; k++) {
        enum { N = 600 };
        double p[N] = {0};
        float sum[N];
        void *codes, *scales;
        adamod_optimizer *opt;
        CHECK_INT(adamod_create(&opt, "adagrad"), ADAMOD_OK);
        apply("initial=0.1 state_type=q8", NULL, opt, -1, NULL);
        adamod_tensor t = {.name = "w", .param = p, .param_type = types[k], .ndim = 1, .shape = {N}};
        CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), ADAMOD_OK);
        CHECK_INT(adamod_state(opt, 0, "sum", &codes, NULL, NULL), ADAMOD_OK);
        CHECK_INT(adamod_state(opt, 0, "sum_scale", &scales, NULL, NULL), ADAMOD_OK);
        CHECK_INT(adamod_q8_decode(1, N, codes, scales, sum), ADAMOD_OK);
        for (int i = 0; i < N; i++) CHECK_CLOSE((double)sum[i], 0.1, 0.1 / 16);
        adamod_free(opt);
    }
}

TEST(memory_of_states_in_8_bits) {
    setting x;
    size_t states, other, expected = 0;
    setting_make(&x, &adamod, NULL, 1);
    adamod_memory(x.opt, &states, &other);
    for (int k = 0; k < ARRAYS; k++) expected += 3 * ((size_t)counts[k] + 4 * (((size_t)counts[k] + 255) / 256));
    CHECK_INT(states, expected);
    setting_free(&x);
}

/* ---- what training loses ---- */

/* Regression by a network of one hidden layer on what another such network gives; returns the loss at the end. */
enum { IN = 16, HIDDEN = 48, BATCH = 16, WEIGHTS = IN * HIDDEN + HIDDEN, MOST_STEPS = 1500 };

static double forward(const float *w, const float *x, double *hidden) {
    double y = 0;
    for (int h = 0; h < HIDDEN; h++) {
        double sum = 0;
        for (int i = 0; i < IN; i++) sum += (double)w[h * IN + i] * (double)x[i];
        hidden[h] = tanh(sum);
        y += (double)w[IN * HIDDEN + h] * hidden[h];
    }
    return y;
}

/* The problem that every rule learns: first weights, each step's inputs, and the other network's outputs for them. */
static struct {
    float begin[WEIGHTS], x[MOST_STEPS][BATCH][IN];
    double wanted[MOST_STEPS][BATCH];
} lesson;
static void make_lesson(int steps) {
    float teacher[WEIGHTS];
    double hidden[HIDDEN];
    uint64_t random = 3;
    for (int i = 0; i < WEIGHTS; i++) {
        teacher[i] = (float)next_uniform(&random) * (i < IN * HIDDEN ? 0.5f : 0.3f);
        lesson.begin[i] = (float)next_uniform(&random) * 0.2f;
    }
    for (int t = 0; t < steps; t++) {
        for (int n = 0; n < BATCH; n++) {
            for (int i = 0; i < IN; i++) lesson.x[t][n][i] = (float)next_uniform(&random);
            lesson.wanted[t][n] = forward(teacher, lesson.x[t][n], hidden);
        }
    }
}

/* With a learning rate that suits the rule. */
static double rate_of(const char *name) {
    static const struct {
        const char *rule;
        double lr;
    } others[] = {{"sgd", 0.05}, {"adadelta", 1}, {"adagrad", 0.05}, {"lion", 2e-4}, {"rmsprop", 5e-4}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(others[i].rule, name) == 0) return others[i].lr;
    }
    return 3e-3;
}

static double train(const option_set *set, const char *state_type, int steps) {
    static float w[WEIGHTS], g[WEIGHTS];
    adamod_optimizer *opt;
    double late = 0;
    memcpy(w, lesson.begin, sizeof w);
    CHECK_INT(adamod_create(&opt, set->rule), ADAMOD_OK);
    CHECK_INT(adamod_set_text(opt, "state_type", state_type), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "lr", rate_of(set->rule)), ADAMOD_OK);
    apply(set->options, NULL, opt, -1, NULL);
    CHECK_INT(adamod_add(opt, "w", w, g, 1, (int64_t[]){WEIGHTS}), ADAMOD_OK);
    for (int t = 0; t < steps; t++) {
        double gradient[WEIGHTS] = {0}, loss = 0;
        for (int n = 0; n < BATCH; n++) {
            const float *x = lesson.x[t][n];
            double hidden[HIDDEN];
            const double error = forward(w, x, hidden) - lesson.wanted[t][n];
            loss += error * error / BATCH;
            for (int h = 0; h < HIDDEN; h++) {
                const double back = 2 * error / BATCH * (double)w[IN * HIDDEN + h] * (1 - hidden[h] * hidden[h]);
                gradient[IN * HIDDEN + h] += 2 * error / BATCH * hidden[h];
                for (int i = 0; i < IN; i++) gradient[h * IN + i] += back * (double)x[i];
            }
        }
        for (int i = 0; i < WEIGHTS; i++) g[i] = (float)gradient[i];
        CHECK_INT(adamod_step(opt), ADAMOD_OK);
        if (t >= steps - 200) late += loss / 200;
    }
    adamod_free(opt);
    return late;
}

TEST(training_hardly_notices) {
    const int steps = fast() ? 300 : MOST_STEPS;
    option_set set;
    make_lesson(steps);
    for (int r = 0; rule_options(ROW_Q8, r, &set); r += fast() ? 4 : 1) {
        const double f32 = train(&set, "auto", steps), q8 = train(&set, "q8", steps);
        printf("    %s %s: loss %.4g with states in f32, %.4g in 8 bits, %.3f of it\n", set.rule, set.options, f32, q8,
               q8 / f32);
        CHECK(q8 < 1.05 * f32);
    }
}

RUN_TESTS(ENTRY_OF_ONE_THREAD(codes_are_right_on_average), ENTRY(codes_at_the_ends),
          ENTRY(instruction_sets_and_threads_agree), ENTRY_OF_ONE_THREAD(files_continue_bit_for_bit),
          ENTRY(raw_updates_are_the_handles), ENTRY(small_parameters_have_states_as_with_auto),
          ENTRY(states_of_the_callers_are_as_the_handles), ENTRY(scales_without_states_in_8_bits_are_refused),
          ENTRY(values_are_encoded_to_the_nearest_code), ENTRY(encoding_refuses_what_it_cannot_do),
          ENTRY(a_block_with_a_nan_is_lost), ENTRY(infinities_saturate),
          ENTRY_OF_ONE_THREAD(one_huge_gradient_does_not_ruin_its_block), ENTRY(only_rules_that_have_it_take_it),
          ENTRY(centered_rmsprop_does_not_take_it), ENTRY(a_state_begins_with_its_option),
          ENTRY(memory_of_states_in_8_bits), ENTRY_OF_ONE_THREAD(training_hardly_notices),
          ENTRY_OF_ONE_THREAD(the_quick_way_gives_the_same), ENTRY_OF_ONE_THREAD(rounding_has_no_bias_and_no_memory))
