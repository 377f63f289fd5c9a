#include "train/rank_setup.h"

#include "support/clock.h"
#include "core/pool.h"
#include "core/error.h"
#include "comm/nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- cores and GPUs ---- */

/* Divides cores that several ranks may use. Cores that a launcher bound a rank to are its own. */
static void divide_cores(recipe *r, const comm *c) {
    const int cores = adamod__cores(), n = comm_local(c).cores_shared;
    if (r->train.threads == 0 && n > 1) r->train.threads = cores > n ? cores / n : 1;
}

/* Takes the GPU of the rank's place on its machine, modulo the visible GPUs: a launcher may show each rank only its own. */
static void choose_gpu(recipe *r, const comm *c) {
    adamod_cuda_device d;
    int n = 0, chosen;
    recipe_backend_of(r, &chosen);
    if (!experiment_wants_gpu(r) || chosen >= 0) return;
    if (experiment_cuda_status()) return; /* reported when the device is opened */
    while (!adamod_cuda_device_at(n, &d)) n++;
    if (n > 0) snprintf(r->train.backend, sizeof r->train.backend, "cuda:%d", comm_local(c).rank % n);
}

typedef struct claim {
    char host[64], gpu[40];
} claim;

static claim claim_of(const recipe *r, const comm *c) {
    int gpu;
    claim mine = {{0}, {0}};
    memcpy(mine.host, comm_local(c).host, sizeof mine.host);
    recipe_backend_of(r, &gpu);
    if (gpu >= 0 && !nccl_gpu(gpu, mine.gpu)) snprintf(mine.gpu, sizeof mine.gpu, "%s", r->train.backend);
    return mine;
}

static int refuse_mixture(const claim *all, int n) {
    for (int i = 1; i < n; i++) {
        const bool gpu = *all[i].gpu != '\0';
        if (gpu != (*all[0].gpu != '\0'))
            return adamod__refuse("rank %d (%s) is to compute on %s, but rank 0 (%s) on %s: choose by --device", i,
                                  all[i].host, gpu ? "a GPU" : "the CPU", all[0].host, gpu ? "the CPU" : "a GPU");
    }
    return 0;
}

static int refuse_twice(const claim *all, int n) {
    for (int i = 1; i < n; i++) {
        for (int k = 0; *all[i].gpu && k < i; k++) {
            if (memcmp(&all[i], &all[k], sizeof all[i]) != 0) continue;
            return adamod__refuse("%s: ranks %d and %d have the same GPU: start as many ranks as there are GPUs, with "
                                  "--device cuda, or share it by --set train.comm=mpi",
                                  all[i].host, k, i);
        }
    }
    return 0;
}

void rank_setup_local(recipe *r, const comm *c) {
    if (!c) return;
    divide_cores(r, c);
    choose_gpu(r, c);
}

int rank_setup_devices(recipe *r, comm *c) {
    if (!c) return 0;
    rank_setup_local(r, c);
    const claim mine = claim_of(r, c);
    claim *all = calloc((size_t)comm_size(c), sizeof *all);
    if (!all) comm_abort(c, 1);
    comm_gather(c, &mine, sizeof mine, all);
    int failed = refuse_mixture(all, comm_size(c));
    if (!failed && r->train.comm != SUM_BY_MPI) failed = refuse_twice(all, comm_size(c));
    free(all);
    return failed;
}

/* ---- the same everywhere ---- */

typedef struct fingerprints {
    char host[64];
    uint64_t recipe, meaning, weights;
    int32_t parts;
    uint64_t part[TASK_MOST_PARTS];
} fingerprints;

/* Threads and devices may differ between ranks. */
static uint64_t hash_recipe(const recipe *r) {
    char *text = NULL;
    size_t n = 0;
    recipe plain = *r; /* its lists are still those of r */
    FILE *file = open_memstream(&text, &n);
    if (!file) return 0;
    plain.train.threads = 0;
    strcpy(plain.train.backend, "auto");
    recipe_write(&plain, file);
    fclose(file);
    const uint64_t hash = fingerprint_data(0, text, n);
    free(text);
    return hash;
}

static const char *find_difference(const fingerprints *a, const fingerprints *b, const task_part *parts) {
    if (a->recipe != b->recipe) return "recipe";
    if (a->parts != b->parts) return "data";
    for (int i = 0; i < a->parts; i++) {
        if (a->part[i] != b->part[i]) return parts[i].key;
    }
    if (a->meaning != b->meaning) return "vocabulary";
    return a->weights != b->weights ? "model" : NULL;
}

static uint64_t hash_weights(const nn_params *p) {
    const uint64_t hash = fingerprint_data(0, p->data, (size_t)p->count * sizeof *p->data);
    return p->state_data ? fingerprint_data(hash, p->state_data, (size_t)p->state_count * sizeof *p->state_data) : hash;
}

int rank_setup_compare(const experiment *e) {
    comm *c = e->comm;
    task_part parts[TASK_MOST_PARTS];
    fingerprints mine;
    if (!c) return 0;
    fingerprints *all = calloc((size_t)comm_size(c), sizeof *all);
    if (!all) comm_abort(c, 1);
    memset(&mine, 0, sizeof mine);
    memcpy(mine.host, comm_local(c).host, sizeof mine.host);
    mine.recipe = hash_recipe(&e->recipe);
    mine.meaning = e->task->fingerprint(e);
    mine.weights = hash_weights(e->params);
    mine.parts = e->task->data ? e->task->data(e, parts) : 0;
    for (int i = 0; i < mine.parts; i++) mine.part[i] = parts[i].fingerprint;
    comm_gather(c, &mine, sizeof mine, all);
    int failed = 0;
    for (int i = 1; !failed && i < comm_size(c); i++) {
        const char *what = find_difference(&all[0], &all[i], parts);
        if (what)
            failed =
                adamod__refuse("rank %d (%s): its %s is not that of rank 0 (%s)", i, all[i].host, what, all[0].host);
    }
    free(all);
    return failed;
}

/* Makes a file for the other ranks to find; other files there may be another run's. */
static int leave_mark(const char *mark) {
    const int fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) return close(fd);
    return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot write: %s", mark, strerror(errno));
}

int rank_setup_see(comm *c, const char *directory) {
    char mark[4200];
    uint64_t now = (uint64_t)(1e6 * clock_wall_seconds());
    const bool first = comm_rank(c) == 0;
    if (!c) return 0;
    comm_broadcast(c, &now, sizeof now, 0);
    snprintf(mark, sizeof mark, "%s/.ranks-%016" PRIx64, directory, now);
    if (comm_agree(c, first ? leave_mark(mark) : 0)) return -1;
    int failed = access(mark, F_OK) ? adamod__fail(ADAMOD_ERROR_IO, "%s: cannot see what rank 0 has there: %s: %s",
                                                   directory, comm_local(c).host, strerror(errno))
                                    : 0;
    failed = comm_agree(c, failed);
    if (first) unlink(mark);
    return failed ? -1 : 0;
}
