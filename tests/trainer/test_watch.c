/* Gradients that a backward pass tells of while it goes on: each once, and complete; and running statistics of several
 * processes.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "small_transformer.h"
#include "small_vision.h"

#include <stdlib.h>

typedef struct seen {
    const nn_params *params;
    float *copy; /* of each gradient when it was told of */
    int *times;
    int64_t told, *order;
    int calls;
} seen;

static void note(void *context, int64_t first, int64_t count) {
    seen *s = context;
    s->order[s->calls++] = first;
    for (int64_t i = first; i < first + count; i++) {
        s->copy[i] = s->params->grad[i];
        s->times[i]++;
    }
}

static seen begin(const nn_params *p) {
    return (seen){.params = p,
                  .copy = calloc((size_t)p->count, sizeof(float)),
                  .times = calloc((size_t)p->count, sizeof(int)),
                  .order = calloc((size_t)p->count, sizeof(int64_t))};
}

static void end(seen *s) {
    free(s->copy);
    free(s->times);
    free(s->order);
}

static void check_pass(nn_plan *plan, const nn_params *p, int64_t numbers, bool early) {
    seen s = begin(p), all = begin(p);
    int64_t wrong = 0;
    CHECK_INT(nn_plan_watch(plan, numbers, note, &s), ADAMOD_OK);
    nn_plan_forward(plan);
    nn_plan_backward(plan, false);
    for (int64_t i = 0; i < p->count; i++) wrong += s.times[i] != 1 || s.copy[i] != p->grad[i];
    CHECK_INT(wrong, 0);
    CHECK_INT(s.calls, (p->count + numbers - 1) / numbers);
    /* the end of a model comes first, and who runs nothing is told in the same order */
    if (early) CHECK(s.order[0] > s.order[s.calls - 1]);
    CHECK_INT(nn_plan_watch(plan, numbers, note, &all), ADAMOD_OK);
    nn_plan_tell_all(plan);
    CHECK(all.calls == s.calls && memcmp(all.order, s.order, (size_t)s.calls * sizeof *s.order) == 0);
    CHECK_INT(nn_plan_watch(plan, 1, NULL, NULL), ADAMOD_OK);
    nn_plan_backward(plan, false); /* reports nothing */
    CHECK_INT(s.calls, all.calls);
    end(&s);
    end(&all);
}

TEST(stretches_are_told_once_they_are_complete) {
    const int64_t sizes[] = {64, 1000, 1 << 20};
    for (int i = 0; i < 3; i++) {
        transformer_config c = small_config();
        small_transformer s = small_make(&c, "cpu", 1, true);
        small_feed(&s);
        check_pass(s.plan, s.params, sizes[i], i < 2);
        small_free(&s);
        resnet_settings r = small_resnet(RESNET_BATCH_NORM);
        small_vision v = small_vision_make(&r, NULL, SMALL_SIDE, "cpu", 1);
        check_pass(v.plan, v.params, sizes[i], i < 2);
        small_vision_free(&v);
    }
}

TEST(a_shared_table_is_complete_at_the_end) {
    transformer_config c = small_config();
    c.share_all = true;
    c.src_vocab = c.tgt_vocab;
    small_transformer s = small_make(&c, "cpu", 1, true);
    small_feed(&s);
    check_pass(s.plan, s.params, 128, true);
    small_free(&s);
}

static void run_images(small_vision *v, int rows) {
    nn_plan_set_rows(v->plan, v->rows, rows);
    nn_plan_forward(v->plan);
}

/* Batches of several processes, taken in order, add to running statistics what they add in one process. */
static void check_statistics(small_vision *v) {
    const int64_t n = nn_plan_defers(v->plan), count = v->params->state_count;
    const size_t bytes = (size_t)count * sizeof(float);
    float *states = v->params->state_data, *before = malloc(bytes), *whole = malloc(bytes);
    double *added = calloc(2 * (size_t)n, sizeof *added);
    int64_t numbers = 0; /* without those that lie between states */
    for (int i = 0; i < v->params->n_states; i++) numbers += v->params->states[i].count;
    CHECK_INT(n, numbers);
    memcpy(before, states, bytes);
    for (int i = 0; i < 2; i++) run_images(v, SMALL_ROWS - 2 * i);
    memcpy(whole, states, bytes);
    memcpy(states, before, bytes);
    for (int i = 0; i < 2; i++) {
        nn_plan_defer(v->plan, added + i * n);
        run_images(v, SMALL_ROWS - 2 * i);
    }
    CHECK(memcmp(states, before, bytes) == 0 && memcmp(whole, before, bytes) != 0);
    for (int i = 0; i < 2; i++) nn_plan_take(v->plan, added + i * n);
    CHECK(memcmp(states, whole, bytes) == 0);
    nn_plan_defer(v->plan, NULL);
    run_images(v, SMALL_ROWS);
    CHECK(memcmp(states, whole, bytes) != 0);
    free(before);
    free(whole);
    free(added);
}

TEST(running_statistics_can_be_taken_later) {
    static const char *const backends[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        resnet_settings r = small_resnet(RESNET_BATCH_NORM);
        densenet_settings d = small_densenet();
        small_vision v = small_vision_make(&r, NULL, SMALL_SIDE, backends[i], 1);
        check_statistics(&v);
        small_vision_free(&v);
        v = small_vision_make(NULL, &d, SMALL_SIDE, backends[i], 1);
        check_statistics(&v);
        small_vision_free(&v);
    }
}

RUN_TESTS(ENTRY(stretches_are_told_once_they_are_complete), ENTRY(a_shared_table_is_complete_at_the_end),
          ENTRY(running_statistics_can_be_taken_later))
