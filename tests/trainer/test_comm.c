/* Sums of ranks: alone, and under mpirun, where test_ranks.sh runs this on several.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"
#include "core/error.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

static comm *c;

/* Sums of these differ with their order. */
static float value(int rank, int64_t i) {
    return (float)((i * 7919 + rank * 104729) % 9973) / 97.0f * (rank % 2 ? -1e3f : 1e-2f);
}

static float *values(int64_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = value(comm_rank(c), i);
    return x;
}

/* x_0 + x_1 + ... of the first ranks, added to *before if there is one. */
static float in_order(int ranks, int64_t i, const float *before) {
    float sum = before ? *before + value(0, i) : value(0, i);
    for (int r = 1; r < ranks; r++) sum += value(r, i);
    return sum;
}

TEST(sums_are_added_in_the_order_of_ranks) {
    const int64_t sizes[] = {0, 1, 15, 16, 33, 1000, COMM_BLOCK + 12345};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k];
        float *x = values(n + 1);
        int64_t wrong = 0;
        comm_all_reduce(c, x, n, COMM_ORDERED);
        for (int64_t i = 0; i < n; i++) wrong += x[i] != in_order(comm_size(c), i, NULL);
        CHECK_INT(wrong, 0);
        CHECK(x[n] == value(comm_rank(c), n)); /* nothing past the end */
        free(x);
    }
}

TEST(the_fast_order_gives_nearly_the_same) {
    enum { N = 5000 };
    float *x = values(N);
    comm_all_reduce(c, x, N, COMM_FAST);
    for (int64_t i = 0; i < N; i += 499) CHECK_CLOSE(x[i], in_order(comm_size(c), i, NULL), 0.1);
    free(x);
}

TEST(parts_of_some_ranks_are_added_to_what_was_there) {
    enum { N = 1237 };
    for (int ranks = 1; ranks <= comm_size(c); ranks++) {
        const int64_t first = comm_part(c, N, comm_rank(c)), end = comm_part(c, N, comm_rank(c) + 1);
        float *x = values(N), *part = malloc(N * sizeof *part);
        int64_t wrong = 0;
        comm_reduce_scatter(c, x, N, comm_size(c), false, part);
        for (int64_t i = first; i < end; i++) wrong += part[i - first] != in_order(comm_size(c), i, NULL);
        comm_reduce_scatter(c, x, N, ranks, true, part);
        for (int64_t i = first; i < end; i++) {
            const float before = in_order(comm_size(c), i, NULL);
            wrong += part[i - first] != in_order(ranks, i, &before);
        }
        memcpy(x + first, part, (size_t)(end - first) * sizeof *x);
        comm_all_gather(c, x, N);
        for (int64_t i = 0; i < N; i++) {
            const float before = in_order(comm_size(c), i, NULL);
            wrong += x[i] != in_order(ranks, i, &before);
        }
        CHECK_INT(wrong, 0);
        free(part);
        free(x);
    }
}

TEST(parts_cover_all_numbers_once) {
    for (int64_t n = 0; n < 300; n += 7) {
        CHECK_INT(comm_part(c, n, 0), 0);
        CHECK_INT(comm_part(c, n, comm_size(c)), n);
        for (int r = 0; r < comm_size(c); r++) CHECK(comm_part(c, n, r) <= comm_part(c, n, r + 1));
    }
}

TEST(small_things_reach_every_rank) {
    const int rank = comm_rank(c), size = comm_size(c);
    int x[3] = {rank, -rank, 7}, *all = calloc((size_t)size, sizeof *all);
    comm_gather(c, &rank, sizeof rank, all);
    for (int r = 0; r < size; r++) CHECK_INT(all[r], r);
    comm_most(c, x, 3);
    CHECK(x[0] == size - 1 && x[1] == 0 && x[2] == 7);
    char text[16] = "mine";
    if (rank == size - 1) strcpy(text, "the last's");
    comm_broadcast(c, text, sizeof text, size - 1);
    CHECK_STR(text, "the last's");
    double sums[1000];
    for (int i = 0; i < 1000; i++) sums[i] = 0.1 * i + rank;
    comm_add(c, sums, 1000);
    double expected = 0.1 * 999;
    for (int r = 1; r < size; r++) expected += 0.1 * 999 + r;
    CHECK(sums[999] == expected);
    CHECK(comm_local(c).size >= 1 && comm_local(c).rank < comm_local(c).size && *comm_local(c).host);
    comm_barrier(c);
    free(all);
}

TEST(a_failure_of_one_rank_is_told_to_all) {
    const int last = comm_size(c) - 1;
    char expected[100];
    adamod__fail(ADAMOD_OK, "unchanged");
    CHECK_INT(comm_agree(c, 0), 0);
    CHECK_STR(adamod__last_message(), "unchanged");
    adamod__fail(ADAMOD_OK, "of rank %d", comm_rank(c));
    CHECK_INT(comm_agree(c, comm_rank(c) == last ? 3 : 0), 3);
    snprintf(expected, sizeof expected, last ? "rank %d: of rank %d" : "of rank 0", last, last);
    CHECK_STR(adamod__last_message(), expected);
    adamod__fail(ADAMOD_OK, "of all");
    CHECK_INT(comm_agree(c, 2), 2);
    CHECK_STR(adamod__last_message(), "of all");
}

TEST(launchers_are_known_by_what_they_set) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",     "PMI_SIZE",
                                        "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"};
    if (c) return; /* it is in use */
    for (int i = 0; i < 7; i++) unsetenv(names[i]);
    CHECK(!comm_launched().by && comm_launched().size == 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    CHECK(!comm_launched().by); /* a batch script */
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK_STR(comm_launched().by, "srun");
    setenv("PMI_RANK", "2", 1);
    setenv("PMI_SIZE", "3", 1);
    CHECK(comm_launched().rank == 2 && comm_launched().size == 3);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "many", 1);
    CHECK(comm_launched().size == 3); /* what is no number is no launcher's */
    for (int i = 0; i < 7; i++) unsetenv(names[i]);
}

int main(int argc, char **argv) {
    bool alone;
    if (comm_launched().size > 1 && comm_open(&c, &alone)) {
        fprintf(stderr, "%s\n", adamod__last_message());
        return 1;
    }
    static const check_test tests[] = {ENTRY(sums_are_added_in_the_order_of_ranks),
                                       ENTRY(the_fast_order_gives_nearly_the_same),
                                       ENTRY(parts_of_some_ranks_are_added_to_what_was_there),
                                       ENTRY(parts_cover_all_numbers_once),
                                       ENTRY(small_things_reach_every_rank),
                                       ENTRY(a_failure_of_one_rank_is_told_to_all),
                                       ENTRY(launchers_are_known_by_what_they_set)};
    const int status = check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
    comm_free(c);
    return status;
}
