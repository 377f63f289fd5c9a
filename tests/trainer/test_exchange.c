/* Gradients and weights on a device that ranks exchange, by NCCL and by way of the host: alone, and under mpirun, where
 * test_ranks.sh runs this on several. The device is the host's memory (fake_device.h), and NCCL is tests/support/fake_nccl.c.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "fake_device.h"
#include "train/exchange.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, STATES = 7 };

static comm *c;

static const nn_backend_op no_ops[] = {{NULL, NULL}};
static const nn_backend backend = {.name = "test", .ops = no_ops, .device = &fake_device_functions};

typedef struct side {
    nn_params *params;
    nn_graph *graph;
    exchange *exchange;
    int64_t parts[MOST_RANKS + 1];
} side;

/* Parts of different sizes, that begin anywhere; of one rank, nothing. */
static void make_parts(side *s) {
    const int size = comm_size(c);
    for (int r = 0; r <= size; r++) s->parts[r] = s->params->count * r / size * r / size;
    if (size > 2) s->parts[2] = s->parts[1];
}

static void make(side *s, int64_t numbers, bool by_nccl, bool in_parts) {
    *s = (side){.params = nn_params_create()};
    nccl *joined = NULL;
    s->graph = nn_graph_create(s->params);
    nn_parameter(s->graph, "w", 1, &numbers, (nn_init){.kind = NN_ZEROS});
    nn_persistent(s->graph, "mean", 1, (int64_t[]){STATES}, (nn_init){.kind = NN_ZEROS});
    CHECK_INT(nn_params_allocate(s->params, 1), ADAMOD_OK);
    CHECK_INT(fake_device_take(s->params, &backend, NN_MIXED), ADAMOD_OK);
    make_parts(s);
    if (by_nccl && !CHECK_INT(nccl_open(&joined, c), 0)) printf("%s\n", adamod__last_message());
    const exchange_options o = {
        .comm = c, .nccl = joined, .params = s->params, .parts = in_parts ? s->parts : NULL, .batches = comm_size(c)};
    CHECK_INT(exchange_open(&s->exchange, &o), 0);
}

static void drop(side *s) {
    exchange_free(s->exchange);
    nn_graph_free(s->graph);
    nn_params_free(s->params);
}

static nn_param_memory memory_of(const side *s) { return nn_params_memory(s->params, s->params->list); }

static float value(int rank, int64_t i) {
    return (float)((i * 7919 + rank * 104729) % 9973) * (rank % 2 ? -8.f : 0.25f);
}

static float sum_of(int64_t i) {
    float sum = value(0, i);
    for (int r = 1; r < comm_size(c); r++) sum += value(r, i);
    return sum;
}

/* ---- gradients ---- */

static void check_sums(bool in_parts) {
    side s; /* more than is summed at a time */
    make(&s, 4 * (int64_t)COMM_BLOCK + 4321, true, in_parts);
    float *grad = memory_of(&s).grad;
    const int rank = comm_rank(c);
    int64_t wrong = 0;
    for (int64_t i = 0; i < s.params->count; i++) grad[i] = value(rank, i);
    exchange_begin_on_device(s.exchange);
    CHECK_INT(exchange_on_device(s.exchange), ADAMOD_OK);
    const int64_t first = in_parts ? s.parts[rank] : 0, end = in_parts ? s.parts[rank + 1] : s.params->count;
    for (int64_t i = first; i < end; i++) wrong += grad[i] != sum_of(i);
    CHECK_INT(wrong, 0);
    drop(&s);
}

TEST(nccl_sums_gradients) { check_sums(false); }
TEST(nccl_sums_each_part_for_its_rank) { check_sums(true); }

/* ---- what else goes around ---- */

static int whose(const side *s, int64_t i) {
    int r = 0;
    while (i >= s->parts[r + 1]) r++;
    return r;
}

static void check_spread(bool by_nccl) {
    side s;
    make(&s, 5000, by_nccl, true);
    const nn_param_memory m = memory_of(&s);
    uint16_t *half = m.half;
    int64_t wrong = 0;
    for (int64_t i = 0; i < s.params->count; i++) {
        const int rank = comm_rank(c), mine = whose(&s, i) == rank;
        m.data[i] = mine ? value(rank, i) : -1;
        half[i] = mine ? (uint16_t)(i + rank) : 0xffff;
    }
    CHECK_INT(exchange_spread(s.exchange, m.data, sizeof *m.data), ADAMOD_OK);
    CHECK_INT(exchange_spread(s.exchange, half, sizeof *half), ADAMOD_OK);
    for (int64_t i = 0; i < s.params->count; i++)
        wrong += m.data[i] != value(whose(&s, i), i) || half[i] != (uint16_t)(i + whose(&s, i));
    CHECK_INT(wrong, 0);
    drop(&s);
}

static void check_add(bool by_nccl) {
    side s;
    make(&s, 16, by_nccl, false);
    double x[] = {1, comm_rank(c), 1e-9};
    const int size = comm_size(c);
    exchange_add(s.exchange, x, 2);
    CHECK(x[0] == size && x[1] == size * (size - 1) / 2 && x[2] == 1e-9);
    drop(&s);
}

TEST(parts_and_sums_come_to_all) {
    for (int by_nccl = 0; by_nccl < 2; by_nccl++) {
        check_spread(by_nccl);
        check_add(by_nccl);
    }
}

TEST(states_become_their_mean) {
    side s;
    make(&s, 16, true, false);
    const int size = comm_size(c);
    float *states = nn_params_states(s.params);
    CHECK(exchange_means_states(s.exchange));
    for (int i = 0; i < STATES; i++) states[i] = (float)(comm_rank(c) * 2 + i);
    CHECK_INT(exchange_mean_states(s.exchange), ADAMOD_OK);
    for (int i = 0; i < STATES; i++) CHECK_CLOSE(states[i], (size - 1) + i, 1e-6);
    drop(&s);
}

/* ---- failures ---- */

static adamod_status sum_once(side *s) {
    exchange_begin_on_device(s->exchange);
    return exchange_on_device(s->exchange);
}

TEST(what_nccl_says_is_told) {
    side whole, parts;
    double x = 1;
    make(&whole, 16, true, false);
    make(&parts, 16, true, true);
    setenv("FAKE_NCCL_FAILS", "ncclAllReduce", 1);
    CHECK_INT(sum_once(&whole), ADAMOD_ERROR_CUDA);
    CHECK_HAS(adamod_last_error(), "NCCL: ncclAllReduce: it was told to fail");
    exchange_add(parts.exchange, &x, 1); /* which cannot tell itself */
    setenv("FAKE_NCCL_FAILS", "nothing", 1);
    CHECK_INT(sum_once(&parts), ADAMOD_ERROR_CUDA);
    CHECK_INT(sum_once(&parts), ADAMOD_OK);
    setenv("FAKE_NCCL_FAILS", "ncclReduce", 1);
    CHECK_INT(sum_once(&parts), ADAMOD_ERROR_CUDA);
    setenv("FAKE_NCCL_FAILS", "ncclBroadcast", 1);
    CHECK_INT(exchange_spread(parts.exchange, memory_of(&parts).data, 4), ADAMOD_ERROR_CUDA);
    CHECK_HAS(adamod_last_error(), "NCCL: ncclBroadcast: it was told to fail");
    unsetenv("FAKE_NCCL_FAILS");
    drop(&whole);
    drop(&parts);
}

int main(int argc, char **argv) {
    bool alone;
    setenv("ADAMOD_NCCL_LIBRARY", FAKE_NCCL, 1);
    if (comm_launched().size > 1 && comm_open(&c, &alone)) {
        fprintf(stderr, "%s\n", adamod__last_message());
        return 1;
    }
    static const check_test tests[] = {ENTRY(nccl_sums_gradients), ENTRY(nccl_sums_each_part_for_its_rank),
                                       ENTRY(parts_and_sums_come_to_all), ENTRY(states_become_their_mean),
                                       ENTRY(what_nccl_says_is_told)};
    const int status = check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
    comm_free(c);
    return status;
}
