/* Runs the contestants of `adamod optim bench` in turns, one burst each, so that other load on the machine affects all of
 * them; the medians are the result. */
#include "cli/optim_bench.h"
#include "cli/bench.h"
#include "support/clock.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#define COMMAND "optim bench"

enum { MOST_ROUNDS = 25 };

/* ---- the library ---- */

typedef struct bench_ours {
    adamod_pool *pool;
    adamod_optimizer **optimizers; /* one for each set */
    void **arrays;                 /* two for each tensor */
    int sets, n_arrays;
    int period; /* steps of each set in a burst */
} bench_ours;

static void free_ours(bench_ours *ours) {
    for (int i = 0; i < ours->sets; i++) adamod_free(ours->optimizers[i]);
    for (int i = 0; i < ours->n_arrays; i++) free(ours->arrays[i]);
    adamod_pool_free(ours->pool);
    free(ours->optimizers);
    free(ours->arrays);
    *ours = (bench_ours){0};
}

adamod_status bench_set_type(adamod_optimizer *opt, bench_type type) {
    if (type == BENCH_Q8) return adamod_set_text(opt, "state_type", "q8");
    if (type != BENCH_BF16) return ADAMOD_OK;
    const adamod_status status = adamod_set_text(opt, "low_precision", "stochastic");
    return status ? status : adamod_set_text(opt, "state_type", "bf16");
}

bool bench_is_embedding(const bench_shape *shape) {
    bool large = false;
    for (int d = 0; d < shape->ndim; d++) large = large || shape->dim[d] > BENCH_EMBEDDING;
    return shape->ndim >= 2 && large;
}

adamod_status bench_add_embeddings(adamod_optimizer *opt, const char *rule, int *group) {
    *group = 0;
    if (strcmp(rule, "muon") != 0) return ADAMOD_OK;
    const adamod_status status = adamod_add_group(opt, group);
    return status ? status : adamod_group_set(opt, *group, "use_muon", 0);
}

static adamod_status add_tensor(bench_ours *ours, adamod_optimizer *opt, int group, bench_type type,
                                const bench_shape *shape) {
    adamod_tensor x = {.param_type = type == BENCH_F32 ? ADAMOD_F32 : ADAMOD_BF16, .ndim = shape->ndim};
    size_t bytes = type == BENCH_F32 ? 4 : 2;
    for (int d = 0; d < shape->ndim; d++) bytes *= (size_t)(x.shape[d] = shape->dim[d]);
    x.grad_type = x.param_type;
    void *array[2];
    for (int i = 0; i < 2; i++) {
        if (!(array[i] = bench_alloc(bytes))) return ADAMOD_ERROR_MEMORY;
        ours->arrays[ours->n_arrays++] = array[i];
        bench_fill(array[i], bytes, type, (uint64_t)ours->n_arrays);
    }
    x.param = array[0];
    x.grad = array[1];
    return adamod_add_tensor(opt, group, &x, NULL);
}

static adamod_status make_set(bench_ours *ours, const bench_case *c, const char *rule) {
    adamod_optimizer *opt;
    adamod_status status = adamod_create(&opt, rule);
    if (status) return status;
    ours->optimizers[ours->sets++] = opt;
    status = adamod_set_pool(opt, ours->pool);
    if (!status) status = bench_set_type(opt, c->type);
    int embeddings = 0;
    if (!status) status = bench_add_embeddings(opt, rule, &embeddings);
    for (int i = 0; i < c->n_shapes && !status; i++) {
        const int group = bench_is_embedding(&c->shapes[i]) ? embeddings : 0;
        status = add_tensor(ours, opt, group, c->type, &c->shapes[i]);
    }
    return status;
}

static int make_ours(bench_ours *ours, const bench_case *c, const char *rule, int threads) {
    adamod_status status = adamod_pool_create(&ours->pool, threads);
    ours->period = bench_period(rule, c);
    if (status) return cli_library(COMMAND, status);
    ours->optimizers = calloc((size_t)c->sets, sizeof(void *));
    ours->arrays = calloc((size_t)c->sets * (size_t)c->n_shapes, 2 * sizeof(void *));
    if (!ours->optimizers || !ours->arrays) return cli_fail(COMMAND, "out of memory");
    for (int i = 0; i < c->sets && !status; i++) status = make_set(ours, c, rule);
    if (status == ADAMOD_ERROR_MEMORY) return cli_fail(COMMAND, "out of memory");
    return status ? cli_library(COMMAND, status) : 0;
}

/* Seconds of a step of every set. */
static double burst_of_ours(bench_ours *ours) {
    const double start = clock_seconds();
    for (int i = 0; i < ours->sets; i++) {
        for (int k = 0; k < ours->period; k++) {
            if (adamod_step(ours->optimizers[i])) return -1;
        }
    }
    return (clock_seconds() - start) / ours->period;
}

int bench_attempt_ours(void *race_, const bench_case *c, double *seconds) {
    const bench_race *race = race_;
    bench_ours ours = {0};
    bench_case one = *c;
    one.sets = 1;
    int status = make_ours(&ours, &one, race->rule, race->threads);
    const double start = clock_seconds();
    if (!status && adamod_step(ours.optimizers[0])) status = cli_failed(COMMAND);
    *seconds = clock_seconds() - start;
    free_ours(&ours);
    return status;
}

/* ---- the race ---- */

typedef struct field {
    bench_ours ours[BENCH_ROWS];
    bench_loop *loop;
    double samples[BENCH_CONTESTANTS][MOST_ROUNDS];
} field;

static bool takes_part(const bench_race *race, int who) {
    if (who < BENCH_ROWS) return who < race->n_rows;
    if (who == BENCH_LOOP || who == BENCH_NEAR_LOOP) return true;
    return race->torch && (who == BENCH_ADAMW || race->same);
}

static int prepare(const bench_race *race, field *f) {
    for (int i = 0; i < race->n_rows; i++) {
        const int status = make_ours(&f->ours[i], &race->rows[i], race->rule, race->threads);
        if (status) return status;
    }
    f->loop = bench_loop_create(&race->rows[0], race->states, race->threads);
    if (!f->loop) return cli_fail(COMMAND, "cannot start the loop to compare with: out of memory or threads");
    if (race->torch && !bench_torch_prepare(race->torch, &race->rows[0], race->same))
        return bench_torch_failed(race->torch);
    return 0;
}

static int burst(const bench_race *race, field *f, int who, double *seconds) {
    bench_pause();
    if (who < BENCH_ROWS) *seconds = burst_of_ours(&f->ours[who]);
    else if (who == BENCH_LOOP || who == BENCH_NEAR_LOOP) *seconds = bench_loop_burst(f->loop, who == BENCH_NEAR_LOOP);
    else *seconds = bench_torch_burst(race->torch, who == BENCH_ADAMW ? PEER_ADAMW : PEER_SAME);
    if (*seconds >= 0) return 0;
    if (who < BENCH_ROWS) return cli_failed(COMMAND);
    return bench_torch_failed(race->torch);
}

static bool is_enough(const bench_race *race, double seconds) {
    if (race->rounds < race->least_rounds) return race->rounds > 0 && race->most > 0 && seconds > race->most;
    return race->rounds >= MOST_ROUNDS || seconds >= race->budget;
}

/* Each round begins with another contestant. The first, which touches all memory, is not counted. */
static int run_rounds(bench_race *race, field *f) {
    double start = clock_seconds();
    race->rounds = -1;
    while (!is_enough(race, clock_seconds() - start)) {
        for (int i = 0; i < BENCH_CONTESTANTS; i++) {
            const int who = (i + race->rounds + 1) % BENCH_CONTESTANTS;
            double seconds = 0;
            if (!takes_part(race, who)) continue;
            const int status = burst(race, f, who, &seconds);
            if (status) return status;
            if (race->rounds >= 0) f->samples[who][race->rounds] = seconds / race->rows[0].sets;
        }
        if (++race->rounds == 0) start = clock_seconds();
    }
    for (int i = 0; i < race->n_rows; i++) race->steps[i] = race->rounds * race->rows[i].sets * f->ours[i].period;
    for (int who = 0; who < BENCH_CONTESTANTS; who++)
        race->seconds[who] = takes_part(race, who) ? bench_quantile(f->samples[who], race->rounds, 0.5) : -1;
    if (race->seconds[BENCH_NEAR_LOOP] < race->seconds[BENCH_LOOP])
        race->seconds[BENCH_LOOP] = race->seconds[BENCH_NEAR_LOOP];
    return 0;
}

int bench_run(bench_race *race) {
    field *f = calloc(1, sizeof *f);
    if (!f) return cli_fail(COMMAND, "out of memory");
    int status = prepare(race, f);
    if (!status) status = run_rounds(race, f);
    for (int i = 0; i < BENCH_ROWS; i++) free_ours(&f->ours[i]);
    bench_loop_free(f->loop);
    free(f);
    if (!status && race->torch && !bench_torch_drop(race->torch)) return bench_torch_failed(race->torch);
    return status;
}

double bench_memory(const bench_race *race) {
    const bench_case *c = &race->rows[0];
    const double elements = (double)c->elements * c->sets;
    const double ours = c->type == BENCH_MASTER ? 4 + 4.0 * (1 + race->states)
                                                : (c->type == BENCH_F32 ? 4.0 : 2.0) * (2 + race->states);
    double bytes = elements * ours * (race->n_rows + 1);
    if (race->torch) bytes += elements * (race->same ? 16 + 20 : 16) + (double)c->elements * 12 + 3e8;
    return bytes;
}
