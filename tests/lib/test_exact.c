/* test_exact.c - what must hold to the last bit: threads, instruction sets, alignment, statistics and the cutting of arrays
 * change nothing; a handle does what raw calls do; AdaMod without its bound is Adam.
 *
 * SPDX-License-Identifier: MIT
 */
#include "bitwise.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- by handle ---- */

TEST(any_number_of_threads) {
    static const int threads[] = {2, 3, 4, 7};
#ifdef __SANITIZE_THREAD__
    const int before = threads_now() + 1; /* the sanitizer's own, which comes with the first other one */
#else
    const int before = threads_now();
#endif
    EACH_KERNEL(v, s) {
        config one = config_of(v, s);
        one.n = MANY;
        one.shapes = shapes_many;
        written_bytes expected = bitwise_written_after(&one, 2, true);
        for (int k = 0; k < 4; k++) {
            config many = one;
            many.threads = threads[k];
            if (fast() ? k != (v + s) % 4 : k % 2 == (v + s) % 2) continue;
            written_bytes p = bitwise_written_after(&many, 2, true);
            if (!same_bytes(&p, &expected)) printf("%s {%s}, %d threads\n", one.rule, one.options, threads[k]);
            free(p.bytes);
        }
        free(expected.bytes);
    }
    /* the threads were used: else the test would show nothing */
    config c = config_of(0, 0);
    c.n = MANY;
    c.shapes = shapes_many;
    c.threads = 7;
    bitwise_run r;
    if (threads_now() < 0 || !bitwise_open(&r, &c)) return;
    CHECK_INT(bitwise_step(&r), 0);
    /* threads that were joined may be listed a moment longer */
    for (int i = 0; i < 6000 && threads_now() != before + 6; i++) usleep(10000);
    CHECK_INT(threads_now(), before + 6);
    bitwise_close(&r);
}

TEST(any_instruction_set) {
    int sets = 0;
    while (adamod_isa_name(sets)) sets++;
    CHECK_STR(adamod_isa_name(sets - 1), "plain");
    if (sets == 1) SKIP("this processor has one only");
    EACH_KERNEL(v, s) {
        config c = config_of(v, s);
        c.isa = "plain";
        written_bytes expected = bitwise_written_after(&c, 3, true); /* once for all others: it takes the longest */
        for (int k = 0; k < sets - 1; k++) {
            config other = c;
            if (fast() && k != (v + s) % (sets - 1)) continue;
            other.isa = adamod_isa_name(k);
            written_bytes p = bitwise_written_after(&other, 3, true);
            if (!same_bytes(&p, &expected)) printf("%s {%s}, %s\n", c.rule, c.options, other.isa);
            free(p.bytes);
        }
        free(expected.bytes);
    }
}

TEST(any_alignment) {
    EACH_KERNEL(v, s) {
        const config c = config_of(v, s);
        for (int offset = 1; offset <= 3; offset++) {
            config other = c;
            other.offset = offset;
            if (offset == 1 + (v + s) % 3) expect_same(&c, &other, 2, true);
        }
    }
}

TEST(statistics_change_nothing) {
    EACH_KERNEL(v, s) {
        const config c = config_of(v, s);
        config other = c;
        other.collect = true;
        expect_same(&c, &other, 2, true);
    }
}

/* One array, and the same memory as several arrays: cut at random places, with empty pieces. */
TEST(any_cutting_of_arrays) {
    static int64_t one[1][2] = {{0, TOTAL}}, many[MOST_TENSORS][2];
    rng_state = 2;
    EACH_KERNEL(v, s) {
        if (variant_of(v).whole || storages[s].random) continue;
        int64_t cut[MOST_TENSORS + 1] = {0};
        for (int k = 1; k < MOST_TENSORS; k++) {
            cut[k] = k % 5 == 0 ? cut[k - 1] : cut[k - 1] + (int64_t)(rng() % (2 * TOTAL / MOST_TENSORS));
            if (cut[k] > TOTAL) cut[k] = TOTAL;
        }
        cut[MOST_TENSORS] = TOTAL;
        for (int k = 0; k < MOST_TENSORS; k++) many[k][1] = cut[k + 1] - cut[k];
        config a = config_of(v, s);
        a.grad_type = (v + s) % 4;
        a.n = 1;
        a.shapes = (const int64_t(*)[2])one;
        config b = a;
        b.n = MOST_TENSORS;
        b.shapes = (const int64_t(*)[2])many;
        expect_same(&a, &b, 3, false);
    }
}

/* Random numbers follow from a parameter's name, not from when it was added. */
TEST(any_order_of_adding) {
    enum { N = 3000 };
    static const char *const names[2] = {"weight", "bias"};
    bitwise_make_sources();
    for (int v = 0; variant_of(v).rule; v++) {
        uint16_t *p[2][2];
        for (int turned = 0; turned < 2; turned++) {
            adamod_optimizer *opt;
            if (!CHECK_INT(adamod_create(&opt, variant_of(v).rule), 0)) return;
            set_options(opt, variant_of(v).options);
            set_options(opt, "low_precision=stochastic state_type=bf16");
            for (int i = 0; i < 2; i++) {
                const int which = turned ? 1 - i : i;
                p[turned][which] = room(N, sizeof(uint16_t));
                memcpy(p[turned][which], bitwise_parameters[ADAMOD_BF16], N * sizeof(uint16_t));
                const adamod_tensor t = {.name = names[which],
                                         .param = p[turned][which],
                                         .grad = bitwise_gradients[ADAMOD_BF16][0],
                                         .param_type = ADAMOD_BF16,
                                         .grad_type = ADAMOD_BF16,
                                         .ndim = 1,
                                         .shape = {N}};
                CHECK_INT(adamod_add_tensor(opt, 0, &t, NULL), 0);
            }
            for (int t = 0; t < 4; t++) CHECK_INT(adamod_step(opt), 0);
            adamod_free(opt);
        }
        bool good = CHECK(!memcmp(p[0][0], p[1][0], N * sizeof(uint16_t)));
        good &= CHECK(!memcmp(p[0][1], p[1][1], N * sizeof(uint16_t)));
        good &= CHECK(memcmp(p[0][0], p[0][1], N * sizeof(uint16_t)) != 0); /* nor are two parameters rounded alike */
        if (!good) printf("%s {%s}\n", variant_of(v).rule, variant_of(v).options);
        for (int i = 0; i < 4; i++) free(p[i / 2][i % 2]);
    }
}

/* ---- raw spans ---- */

static void set_hyper(adamod_hyper *h, const char *text) {
    char copy[256], *rest = copy, *name, *value;
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    while (next_option(&rest, &name, &value)) CHECK_INT(adamod_hyper_set_text(h, name, value), 0);
}

enum { RAW_ARRAYS = 1 + ADAMOD_MAX_STATES };

/* One update of all elements, in pieces of these lengths, with a pool or without. */
static void raw_update(const adamod_hyper *h, adamod_type type, const void *const grad[2],
                       char *const arrays[RAW_ARRAYS], int64_t n, int step, int pieces, adamod_pool *pool) {
    adamod_span spans[16] = {0};
    const size_t size = adamod__type_size(type);
    int64_t at = 0;
    for (int k = 0; k < pieces; k++) {
        const int64_t count = k == pieces - 1 ? n - at : (int64_t)(rng() % (uint64_t)(n - at + 1)) / 2;
        const size_t bytes = (size_t)at * size;
        spans[k] = (adamod_span){.param = arrays[0] + bytes,
                                 .grad = (const char *)grad[step - 1] + bytes,
                                 .param_type = type,
                                 .grad_type = type,
                                 .state_type = type,
                                 .count = count,
                                 .step = step};
        for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
            adamod_state_desc desc;
            CHECK_INT(adamod_state_at(h, 1, &n, i, &desc), 0);
            if (desc.name) spans[k].state[i] = arrays[1 + i] + bytes;
        }
        at += count;
    }
    CHECK_INT(adamod_update(h, spans, (size_t)pieces, pool), 0);
}

TEST(raw_spans_cut_anywhere) {
    enum { N = TOTAL };
    adamod_pool *pool[2] = {NULL};
    bitwise_make_sources();
    CHECK_INT(adamod_pool_create(&pool[1], 3), 0);
    CHECK_INT(adamod_pool_threads(pool[1]), 3);
    rng_state = 3;
    for (int v = 0; variant_of(v).rule; v++) {
        if (variant_of(v).whole) continue;
        for (int type = ADAMOD_F32; type <= ADAMOD_F64; type++) {
            adamod_hyper *h;
            const size_t size = adamod__type_size((adamod_type)type);
            char *arrays[3][RAW_ARRAYS];
            if (!CHECK_INT(adamod_hyper_create(&h, variant_of(v).rule), 0)) continue;
            set_hyper(h, variant_of(v).options);
            for (int way = 0; way < 3; way++) { /* one piece; eleven; seven on three threads */
                for (int i = 0; i < RAW_ARRAYS; i++) arrays[way][i] = room(N, size);
                memcpy(arrays[way][0], bitwise_parameters[type], N * size);
                const void *const grad[2] = {bitwise_gradients[type][0], bitwise_gradients[type][1]};
                for (int step = 1; step <= 2; step++) {
                    raw_update(h, (adamod_type)type, grad, arrays[way], N, step,
                               way == 0   ? 1
                               : way == 1 ? 11
                                          : 7,
                               pool[way == 2]);
                }
                for (int i = 0; i < RAW_ARRAYS; i++) {
                    if (!CHECK(!memcmp(arrays[way][i], arrays[0][i], N * size))) {
                        printf("%s {%s}, type %d, array %d\n", variant_of(v).rule, variant_of(v).options, type, i);
                    }
                }
            }
            for (int way = 0; way < 3; way++) {
                for (int i = 0; i < RAW_ARRAYS; i++) free(arrays[way][i]);
            }
            adamod_hyper_free(h);
        }
    }
    adamod_pool_free(pool[1]);
}

/* A handle does what raw calls with the same numbers do, those that name its random numbers included. */
static void expect_raw(const config *c) {
    bitwise_run r;
    adamod_hyper *h;
    if (!bitwise_open(&r, c) || !CHECK_INT(adamod_hyper_create(&h, c->rule), 0)) return;
    set_hyper(h, c->options);
    set_hyper(h, c->more);
    const int64_t n = r.start[1];
    const size_t size = adamod__type_size(c->type);
    const bool half = c->more && strstr(c->more, "state_type=bf16");
    const bool master = size == 2 && !(c->more && strstr(c->more, "stochastic"));
    const adamod_type type = half ? ADAMOD_BF16 : adamod__compute_type(c->type), grad_type = grad_type_of(c, 0);
    adamod_span x = {.param = room((size_t)n, size),
                     .param_type = c->type,
                     .grad_type = grad_type,
                     .state_type = type,
                     .ndim = 2,
                     .shape = {c->shapes[0][0], c->shapes[0][1]},
                     .count = n,
                     .stream = r.opt->tensors[0].span.stream};
    memcpy(x.param, bitwise_parameters[c->type], (size_t)n * size);
    if (master) {
        x.master = room((size_t)n, sizeof(float));
        const real_kernels *k = adamod__kernels_plain.f32;
        for (int64_t i = 0; i < n; i++) { /* conversions have a test of their own */
            (c->type == ADAMOD_BF16 ? k->load_bf16 : k->load_f16)((float *)x.master + i, (uint16_t *)x.param + i, 1);
        }
    }
    adamod_state_desc desc[ADAMOD_MAX_STATES];
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        CHECK_INT(adamod_state_at(h, x.ndim, x.shape, i, &desc[i]), 0);
        if (!desc[i].name) continue;
        x.state[i] = room((size_t)desc[i].count, adamod__type_size(type));
        for (int64_t j = 0; j < desc[i].count; j++) put(type, x.state[i], j, desc[i].initial);
    }
    for (x.step = 1; x.step <= 3; x.step++) {
        x.grad = bitwise_gradients[grad_type][x.step - 1];
        CHECK_INT(adamod_update(h, &x, 1, NULL), 0);
        CHECK_INT(bitwise_step(&r), 0);
    }
    bool same = !memcmp(x.param, r.param, (size_t)n * size);
    for (int i = 0; i < ADAMOD_MAX_STATES; i++) {
        void *data = NULL;
        adamod_type found;
        int64_t count;
        if (!desc[i].name) continue;
        CHECK_INT(adamod_state(r.opt, 0, desc[i].name, &data, &found, &count), 0);
        CHECK(found == type && count == desc[i].count);
        same = same && !memcmp(data, x.state[i], (size_t)count * adamod__type_size(type));
        free(x.state[i]);
    }
    if (!CHECK(same)) printf("%s {%s %s}, type %d\n", c->rule, c->options, c->more ? c->more : "", c->type);
    free(x.param);
    free(x.master);
    adamod_hyper_free(h);
    bitwise_close(&r);
}

TEST(handles_and_raw_calls) {
    static const int64_t shape[1][2] = {{113, 150}};
    EACH_KERNEL(v, s) {
        config c = config_of(v, s);
        c.n = 1;
        c.shapes = shape;
        c.grad_type = (v + s) % 4;
        if (!c.more || !strstr(c.more, "clip_norm")) expect_raw(&c);
    }
}

/* ---- AdaMod ---- */

/* Parameters, averages and squares; AdaMod's third state is its own. */
static void expect_adam(const config *adamod) {
    config adam = *adamod;
    adam.rule = "adam";
    bitwise_run a, b;
    char with_bound[256];
    snprintf(with_bound, sizeof with_bound, "%s beta3=0", adamod->options);
    config c = *adamod;
    c.options = with_bound;
    if (!bitwise_open(&a, &c) || !bitwise_open(&b, &adam)) return;
    for (int t = 0; t < STEPS; t++) {
        CHECK_INT(bitwise_step(&a), 0);
        CHECK_INT(bitwise_step(&b), 0);
    }
    bool same = !memcmp(a.param, b.param, (size_t)a.start[c.n] * adamod__type_size(c.type));
    for (int s = 0; s < 2; s++) {
        for (int k = 0; k < c.n; k++) {
            void *x = NULL, *y = NULL;
            adamod_type type;
            int64_t count;
            CHECK_INT(adamod_state(a.opt, k, state_name(s), &x, &type, &count), 0);
            CHECK_INT(adamod_state(b.opt, k, state_name(s), &y, &type, &count), 0);
            same = same && (count == 0 || !memcmp(x, y, (size_t)count * adamod__type_size(type)));
        }
    }
    if (!CHECK(same)) printf("{%s}, type %d\n", c.options, c.type);
    bitwise_close(&a);
    bitwise_close(&b);
}

TEST(without_its_bound_adamod_is_adam) {
    static const char *const flavours[] = {"paper", "published", "keras", "adamd"};
    static const char *const besides[] = {
        "", "weight_decay=0.01 decay=l2", "weight_decay=0.01", "eps=1e-30 maximize=1",
        "weight_decay=0.01 decay=independent beta1=0.5 beta2=0.9 lr=0.1 clip_value=1"};
    for (int flavour = 0; flavour < 4; flavour++) {
        for (int k = 0; k < 5; k++) {
            for (int s = 0; s < storage_count; s++) {
                if (fast() && (flavour + k + s) % 5) continue;
                char options[200];
                snprintf(options, sizeof options, "flavour=%s %s", flavours[flavour], besides[k]);
                config c = config_of(0, s);
                c.options = options;
                expect_adam(&c);
            }
        }
    }
}

RUN_TESTS(ENTRY(any_number_of_threads), ENTRY_OF_ONE_THREAD(any_instruction_set), ENTRY_OF_ONE_THREAD(any_alignment),
          ENTRY_OF_ONE_THREAD(statistics_change_nothing), ENTRY_OF_ONE_THREAD(any_cutting_of_arrays),
          ENTRY_OF_ONE_THREAD(any_order_of_adding), ENTRY(raw_spans_cut_anywhere),
          ENTRY_OF_ONE_THREAD(handles_and_raw_calls), ENTRY_OF_ONE_THREAD(without_its_bound_adamod_is_adam))
