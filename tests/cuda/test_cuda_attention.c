/* Attention on a CUDA device against ref: all sizes of heads and lengths, decoding, and shapes of real models. */
#include "nn/backend.h"
#include "attention_cases.h"
#include "check.h"
#include "cudacheck.h"
#include "nn/ops/attention.h"

#include <stdlib.h>

enum { MOST = ATTENTION_MOST };

/* Two numbers are rounded to bf16 on the way to a result, beside what is stored: the weights or the gradients of scores,
 * which the tensor cores multiply, and the output, which backward reads. */
static bool check_case(const attention_case *a, nn_type type) {
    attention_setup x;
    attention_set_up(&x, a);
    x.o.rounded = 2;
    return attention_told(a, cudacheck(&x.o, type));
}

static bool is_ref(attention_case a) { return check_case(&a, NN_F32) && check_case(&a, NN_BF16); }

#define NEED_DEVICE()                                                                                                  \
    if (!cudacheck_open()) SKIP(adamod_last_error())

TEST(is_ref_for_all_sizes_of_heads) {
    static const int sizes[] = {1, 8, 32, 33, 40, 64, 72, 96, 128};
    NEED_DEVICE();
    const int step = getenv("ADAMOD_TEST_FAST") ? 4 : 1; /* 1, 40 and 128: a kernel of each kind */
    for (int i = 0; i < 9; i += step) {
        for (int causal = 0; causal < 2; causal++) {
            const int heads = i < 3 ? 4 : 2;
            const double dropout = i % 2 ? 0.3 : 0;
            CHECK(is_ref(
                (attention_case){heads, sizes[i], .causal = causal, .dropout = dropout, .n = 3, .nq = {17, 5, 32}}));
            CHECK(is_ref((attention_case){heads, sizes[i], .causal = causal, .dropout = dropout, .cross = true, .n = 4,
                                          .nq = {9, 18, 33, 3}, .nk = {16, 7, 34, 20}}));
        }
    }
}

TEST(is_ref_for_random_lengths) {
    NEED_DEVICE();
    const uint64_t seeds = getenv("ADAMOD_TEST_FAST") ? 8 : 40;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        attention_case a = attention_at_random(seed, 50);
        if (seed % 2) a.size = 8 * a.size % 72 + 8;
        CHECK(is_ref(a));
    }
}

/* More queries and keys than a tile has, and, the other way round, than a block can see. */
TEST(is_ref_for_long_sequences) {
    NEED_DEVICE();
    for (int causal = 0; causal < 2; causal++) {
        CHECK(is_ref((attention_case){1, 16, .causal = causal, .n = 2, .nq = {300, 65}}));
        CHECK(is_ref((attention_case){2, 64, .causal = causal, .dropout = 0.1, .n = 4, .nq = {130, -150, 7, 64}}));
        CHECK(is_ref((attention_case){1, 128, .causal = causal, .dropout = 0.1, .n = 2, .nq = {97, 40}}));
        CHECK(is_ref((attention_case){2, 5, .causal = causal, .dropout = 0.2, .cross = true, .n = 4,
                                      .nq = {70, 3, 270, 10}, .nk = {600, 257, 12, 0}}));
        attention_case a = {
            2, 32, .causal = causal, .dropout = 0.2, .cross = true, .n = 3, .nq = {70, 3, 40}, .nk = {100, 257, 20}};
        CHECK(is_ref(a));
        /* With one key, gradients of scores are 0: what the rounding of the output leaves of dy . v - dy . y is not
         * small beside those of weights of 1 / 257, so this is for f32. */
        a.nk[2] = 1;
        CHECK(check_case(&a, NN_F32));
    }
}

/* A few heads see the same keys: short sequences, long ones, rows in no range, decoding. */
TEST(is_ref_for_grouped_keys) {
    static const int sizes[] = {5, 32, 64, 128};
    NEED_DEVICE();
    for (int i = 0; i < 4; i += getenv("ADAMOD_TEST_FAST") ? 2 : 1) {
        for (int causal = 0; causal < 2; causal++) {
            CHECK(is_ref((attention_case){4, sizes[i], .causal = causal, .dropout = 0.2, .n = 4, .nq = {17, -3, 0, 30},
                                          .kv_heads = 2}));
            CHECK(is_ref((attention_case){6, sizes[i], .causal = causal, .n = 3, .nq = {100, -40, 65}, .kv_heads = 2}));
            CHECK(is_ref((attention_case){3, sizes[i], .causal = causal, .cross = true, .n = 3, .nq = {70, 3, 10},
                                          .nk = {100, 40, 25}, .kv_heads = 1}));
            attention_case one = {4,      sizes[i],           .causal = causal,      .cross = true,
                                  .n = 4, .nq = {1, 1, 1, 1}, .nk = {300, 1, 0, 33}, .kv_heads = 2};
            CHECK(is_ref(one));
            one.decoding = true;
            CHECK(is_ref(one));
        }
    }
}

/* The context of GPT-2. */
TEST(is_ref_for_a_context_of_1024) {
    NEED_DEVICE();
    if (getenv("ADAMOD_TEST_FAST")) SKIP("ADAMOD_TEST_FAST is set");
    CHECK(is_ref((attention_case){2, 64, .causal = true, .n = 2, .nq = {1024, 1000}}));
    CHECK(is_ref((attention_case){2, 128, .causal = true, .n = 1, .nq = {1024}, .kv_heads = 1}));
}

/* The wgmma kernels take heads of 64 and 128, no dropout, sequences of 64 and more in the mean. Lengths at the ends of
 * tiles of 64 and 128, none, and rows in no range; as many keys as queries, fewer and more. */
TEST(is_ref_for_long_sequences_without_dropout) {
    static const int sizes[] = {64, 128};
    NEED_DEVICE();
    for (int i = 0; i < 2; i++) {
        for (int causal = 0; causal < 2; causal++) {
            const int size = sizes[i];
            CHECK(is_ref((attention_case){1, size, .causal = causal, .n = 1, .nq = {64}}));
            CHECK(is_ref((attention_case){1, size, .causal = causal, .n = 1, .nq = {128}}));
            CHECK(is_ref((attention_case){3, size, .causal = causal, .n = 2, .nq = {129, 127}}));
            CHECK(is_ref((attention_case){2, size, .causal = causal, .n = 5, .nq = {1, -70, 0, 383, 65}}));
            CHECK(is_ref((attention_case){4, size, .causal = causal, .n = 3, .nq = {200, -33, 91}, .kv_heads = 2}));
            CHECK(is_ref((attention_case){3, size, .causal = causal, .n = 2, .nq = {63, 300}, .kv_heads = 1}));
            CHECK(is_ref((attention_case){2, size, .causal = causal, .cross = true, .n = 4, .nq = {130, 3, 270, -9},
                                          .nk = {300, 257, 64, -11}}));
            CHECK(is_ref((attention_case){2, size, .causal = causal, .cross = true, .n = 2, .nq = {300, 150},
                                          .nk = {70, 150}, .kv_heads = 1}));
        }
    }
}

/* More sequences than the list of tiles is made of at a time, and more tiles than a GPU has multiprocessors. */
TEST(is_ref_for_many_long_sequences) {
    attention_case a = {.heads = 2, .size = 64, .causal = true, .n = MOST};
    NEED_DEVICE();
    for (int i = 0; i < MOST; i++) a.nq[i] = (int)nn_below(12, (uint64_t)i, i % 7 == 3 ? 400 : 140);
    CHECK(is_ref(a));
}

TEST(is_ref_for_more_sequences_than_a_block_has_threads) {
    attention_case a = {.heads = 2, .size = 32, .dropout = 0.1, .n = MOST};
    NEED_DEVICE();
    for (int i = 0; i < MOST; i++) a.nq[i] = (int)nn_below(11, (uint64_t)i, i % 40 == 7 ? 80 : 6);
    CHECK(is_ref(a));
}

TEST(is_ref_when_decoding) {
    static const int sizes[] = {4, 8, 32, 40, 64, 128};
    NEED_DEVICE();
    const int step = getenv("ADAMOD_TEST_FAST") ? 5 : 1;
    for (int i = 0; i < 6; i += step) {
        for (int causal = 0; causal < 2; causal++) {
            attention_case a = {3,
                                sizes[i],
                                .causal = causal,
                                .cross = true,
                                .n = 6,
                                .nq = {1, 1, 1, 1, 1, 1},
                                .nk = {300, 1, 25, 0, 64, 33}};
            CHECK(is_ref(a));
            a.decoding = true;
            CHECK(is_ref(a));
            a.nq[1] = 3; /* a few that see what is there already, and rows in no range */
            a.nq[4] = a.nk[4] = -2;
            CHECK(is_ref(a));
            a.nq[0] = 2;
            a.nq[4] = a.nk[4] = 0;
            a.nq[5] = 0;
            a.nq[2] = a.nq[3] = 0; /* as many queries as sequences, but not one each */
            CHECK(is_ref(a));
        }
    }
}

TEST(of_nothing_is_nothing) {
    NEED_DEVICE();
    CHECK(is_ref((attention_case){2, 8, .n = 0}));
    CHECK(is_ref((attention_case){2, 8, .n = 2, .nq = {0, 0}}));
    CHECK(is_ref((attention_case){2, 8, .n = 1, .nq = {-7}}));
    CHECK(is_ref((attention_case){2, 8, .n = 3, .nq = {-200, 3, -300}}));
    CHECK(is_ref((attention_case){2, 8, .cross = true, .n = 2, .nq = {3, 0}, .nk = {0, 4}}));
    CHECK(is_ref((attention_case){2, 8, .cross = true, .n = 2, .nq = {40, 0}, .nk = {0, 40}}));
}

TEST(is_ref_for_batches_of_real_models) {
    static const int heads[] = {4, 8}, sizes[] = {128, 64};
    NEED_DEVICE();
    if (getenv("ADAMOD_TEST_FAST")) SKIP("ADAMOD_TEST_FAST is set");
    for (int k = 0; k < 2; k++) {
        attention_case a = {.heads = heads[k], .size = sizes[k], .dropout = 0.1, .n = 100};
        for (int i = 0; i < a.n; i++) {
            a.nq[i] = 4 + (int)nn_below(1, (uint64_t)i, 43);
            a.nk[i] = 4 + (int)nn_below(2, (uint64_t)i, 43);
        }
        CHECK(is_ref(a));
        a.causal = true;
        CHECK(is_ref(a));
        a.causal = false;
        a.cross = true;
        CHECK(is_ref(a));
    }
}

TEST(heads_that_are_too_large_are_refused) {
    NEED_DEVICE();
    const nn_attention_attributes a = {.heads = 2};
    const nn_call c = {.attributes = &a, OPCHECK_NO_PARTS, .output = {{.cols = 272, .type = NN_BF16}}};
    void *prepared;
    CHECK_INT(nn_backend_kernels(nn_backend_find("cuda"), "attention")->prepare(&c, &prepared), ADAMOD_ERROR_RANGE);
    CHECK_HAS(adamod_last_error(), "heads of 136 columns, expected at most 128");
}

RUN_TESTS(ENTRY(is_ref_for_all_sizes_of_heads), ENTRY(is_ref_for_random_lengths), ENTRY(is_ref_for_long_sequences),
          ENTRY(is_ref_for_grouped_keys), ENTRY(is_ref_for_a_context_of_1024),
          ENTRY(is_ref_for_long_sequences_without_dropout), ENTRY(is_ref_for_many_long_sequences),
          ENTRY(is_ref_for_more_sequences_than_a_block_has_threads), ENTRY(is_ref_when_decoding),
          ENTRY(of_nothing_is_nothing), ENTRY(is_ref_for_batches_of_real_models),
          ENTRY(heads_that_are_too_large_are_refused))
