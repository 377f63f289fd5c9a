/* adamod bench comm: how fast ranks add up arrays, in the fixed order and in MPI's own, against a copy in memory. */
#include "support/clock.h"
#include "cli/bench.h"
#include "cli/ranks.h"

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    int64_t mib, repeat;
    bool json;
} arguments;

static const cli_flag flags[] = {
    CLI_WHOLE("mib", "N", "the largest array, in MiB (64)", arguments, mib, 1, 4096),
    CLI_WHOLE("repeat", "N", "number of measurements of each (10)", arguments, repeat, 1, 1000),
    CLI_SWITCH("json", "print one JSON object", arguments, json),
    CLI_HELP_FLAG,
    {0}};

static const cli_syntax syntax = {
    .command = "bench comm",
    .help =
        "usage: adamod bench comm [--mib N] [--repeat N] [--json]      started by mpirun\n\n"
        "Times sums of arrays over ranks: in the fixed order of train.sum ordered, which gives the same bits for any\n"
        "number of ranks, and by MPI_Allreduce. For comparison, all ranks copy the array in memory at the same time.\n"
        "Speeds are bytes of the array per second.\n\n",
    .flags = flags};

enum { ORDERED, FAST, COPY, WAYS };
static const char *const ways[WAYS] = {"ordered", "mpi", "copy"};

typedef struct measured {
    size_t bytes;
    double seconds[WAYS]; /* medians, of the slowest rank */
} measured;

static void run(comm *c, int way, float *x, float *copy, int64_t n) {
    if (way == COPY) memcpy(copy, x, (size_t)n * sizeof *x);
    else comm_all_reduce(c, x, n, way == ORDERED ? COMM_ORDERED : COMM_FAST);
}

static double slowest(comm *c, double seconds, double *all) {
    comm_gather(c, &seconds, sizeof seconds, all);
    for (int r = 0; r < comm_size(c); r++) {
        if (all[r] > seconds) seconds = all[r];
    }
    return seconds;
}

/* In turns, so that other load on the machine affects all of them. */
static void measure(comm *c, float *x, float *copy, double *of_ranks, double *times, int repeat, measured *m) {
    const int64_t n = (int64_t)(m->bytes / sizeof *x);
    for (int i = -1; i < repeat; i++) { /* the first is not counted */
        for (int way = 0; way < WAYS; way++) {
            comm_barrier(c);
            const double begin = clock_seconds();
            run(c, way, x, copy, n);
            const double seconds = slowest(c, clock_seconds() - begin, of_ranks);
            if (i >= 0) times[way * repeat + i] = seconds;
        }
    }
    for (int way = 0; way < WAYS; way++) m->seconds[way] = bench_quantile(times + way * repeat, repeat, 0.5);
}

static void print_row(const measured *m, int ranks, bool json, bool first) {
    if (json) {
        printf("%s{\"bytes\": %zu", first ? "" : ", ", m->bytes);
        for (int way = 0; way < WAYS; way++) printf(", \"%s_seconds\": %.9f", ways[way], m->seconds[way]);
        printf("}");
        return;
    }
    if (first) printf("%d ranks   ordered GB/s   MPI_Allreduce GB/s   copy GB/s   ordered over MPI\n", ranks);
    printf("%5.2f MiB  %12.3f  %19.3f  %10.3f  %17.2f\n", (double)m->bytes / (1 << 20),
           1e-9 * (double)m->bytes / m->seconds[ORDERED], 1e-9 * (double)m->bytes / m->seconds[FAST],
           1e-9 * (double)m->bytes / m->seconds[COPY], m->seconds[FAST] / m->seconds[ORDERED]);
}

static int bench(comm *c, const arguments *a) {
    const size_t most = (size_t)a->mib << 20;
    float *x = calloc(1, most), *copy = calloc(1, most);
    double *times = malloc(WAYS * (size_t)a->repeat * sizeof *times);
    double *of_ranks = malloc((size_t)comm_size(c) * sizeof *of_ranks);
    int status =
        x && copy && times && of_ranks ? 0 : cli_fail("bench comm", "out of memory for %lld MiB", (long long)a->mib);
    status = ranks_agree("bench comm", c, status, NULL);
    if (!status && a->json) printf("{\"ranks\": %d, \"sums\": [", comm_size(c));
    for (size_t bytes = 1 << 16; !status && bytes <= most; bytes *= 4) {
        measured m = {.bytes = bytes};
        measure(c, x, copy, of_ranks, times, (int)a->repeat, &m);
        print_row(&m, comm_size(c), a->json, bytes == 1 << 16);
    }
    if (!status && a->json) printf("]}\n");
    free(of_ranks);
    free(times);
    free(copy);
    free(x);
    return status;
}

int cli_bench_comm(int argc, char **argv) {
    comm *c;
    arguments a = {.mib = 64, .repeat = 10};
    char told[64];
    int status = ranks_join("bench comm", &c);
    if (status) return status;
    status = cli_parse(&syntax, argc, argv, &a);
    snprintf(told, sizeof told, "%lld %lld", (long long)a.mib, (long long)a.repeat);
    status = ranks_agree("bench comm", c, status, told);
    if (status < 0) status = c ? bench(c, &a) : cli_usage("bench comm", "needs ranks: mpirun -n 2 adamod bench comm");
    return ranks_leave("bench comm", c, status);
}
