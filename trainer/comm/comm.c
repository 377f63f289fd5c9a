#include "comm/comm.h"

#include "core/crc32.h"
#include "core/error.h"
#include "comm/mpi.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct comm {
    const mpi *mpi;
    int rank, size;
    bool threads;
    comm_place local;
    float *received; /* this rank's part of a block, from each rank */
    int *counts;     /* four lists with a number for each rank */
};

/* ---- how it was started ---- */

static bool number_of(const char *variable, int *out) {
    const char *text = getenv(variable);
    char *end;
    if (!text || !*text) return false;
    const long value = strtol(text, &end, 10);
    *out = (int)value;
    return *end == '\0' && value >= 0 && value <= 1 << 24;
}

/* Slurm also sets its variables for a batch script, which has no rank of a step as srun has not started it. */
comm_launch comm_launched(void) {
    static const struct {
        const char *by, *rank, *size, *local, *also;
    } known[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", NULL},
                 {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", NULL},
                 {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        comm_launch l = {.by = known[i].by, .variable = known[i].size};
        if (known[i].also && !getenv(known[i].also)) continue;
        if (!number_of(known[i].rank, &l.rank) || !number_of(known[i].size, &l.size)) continue;
        if (!number_of(known[i].local, &l.local)) l.local = 0;
        if (l.size > 0 && l.rank < l.size) return l;
    }
    return (comm_launch){NULL, NULL, 0, 1, 0};
}

bool comm_library(char *out, size_t size) {
    const mpi *m = mpi_load();
    if (m) snprintf(out, size, "%s", m->name);
    return m != NULL;
}

/* ---- joining ---- */

/* Ranks exchange this first, so its size must be the same in every build. */
typedef struct neighbour {
    char host[64];
    uint32_t cores, program;
} neighbour;

static uint32_t hash_program(void) {
    FILE *file = fopen("/proc/self/exe", "rb");
    char some[1 << 14];
    uint32_t hash = 0;
    for (size_t n; file && (n = fread(some, 1, sizeof some, file)) > 0;) hash = adamod__crc32(hash, some, n);
    if (file) fclose(file);
    return hash;
}

static int check_program(const comm *c, const neighbour *all) {
    for (int i = 1; i < c->size; i++) {
        if (all[i].program != all[0].program)
            return adamod__refuse("rank %d (%s): its program is not that of rank 0 (%s)", i, all[i].host, all[0].host);
    }
    return 0;
}

static int look_around(comm *c) {
    neighbour mine = {{0}, 0, hash_program()}, *all = calloc((size_t)c->size, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
#ifdef __linux__ /* elsewhere ranks are not bound to cores */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) mine.cores = adamod__crc32(0, &set, sizeof set);
#endif
    memcpy(c->local.host, mine.host, sizeof mine.host);
    if (!all) comm_abort(c, 1);
    comm_gather(c, &mine, sizeof mine, all);
    for (int i = 0; i < c->size; i++) {
        if (strcmp(all[i].host, mine.host) != 0) continue;
        c->local.rank += i < c->rank;
        c->local.size++;
        c->local.cores_shared += all[i].cores == mine.cores;
    }
    const int failed = check_program(c, all);
    free(all);
    return failed;
}

size_t comm_memory(const comm *c) {
    return c ? (COMM_BLOCK + 64 * (size_t)c->size) * sizeof *c->received + 4 * (size_t)c->size * sizeof *c->counts : 0;
}

static int refuse_size(const comm *c) {
    const comm_launch l = comm_launched();
    if (!l.by)
        return adamod__refuse("not started by mpirun, mpiexec or srun, but %s has %d ranks", c->mpi->name, c->size);
    return adamod__refuse(
        "%s started %d ranks, but %s knows of %d: %s, or unset %s to run alone", l.by, l.size, c->mpi->name, c->size,
        strcmp(l.by, "srun") == 0 ? "choose another srun --mpi=KIND" : "name the MPI of that by ADAMOD_MPI_LIBRARY",
        l.variable);
}

static int make(comm *c) {
    int provided = 0;
    if (c->mpi->init(NULL, NULL, MPI_SERIALIZED, &provided))
        return adamod__refuse("%s cannot start: MPI_Init_thread failed", c->mpi->name);
    c->threads = provided >= MPI_SERIALIZED;
    if (c->mpi->rank(c->mpi->world, &c->rank) || c->mpi->size(c->mpi->world, &c->size))
        return adamod__refuse("%s does not say which rank this is", c->mpi->name);
    if (comm_launched().size != c->size) return refuse_size(c);
    c->counts = malloc(4 * (size_t)c->size * sizeof *c->counts);
    c->received = malloc((COMM_BLOCK + 64 * (size_t)c->size) * sizeof *c->received);
    return c->counts && c->received ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %d ranks", c->size);
}

int comm_open(comm **out, bool *alone) {
    comm *c = calloc(1, sizeof *c);
    *alone = true;
    if (!c) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for ranks");
    c->mpi = mpi_load();
    if (!c->mpi || make(c)) {
        free(c->counts);
        free(c->received);
        free(c);
        return -1;
    }
    *alone = false;
    if (look_around(c)) {
        comm_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void comm_free(comm *c) {
    if (!c) return;
    c->mpi->finalize();
    free(c->counts);
    free(c->received);
    free(c);
}

void comm_abort(comm *c, int status) {
    if (c) c->mpi->abort(c->mpi->world, status);
    _exit(status);
}

int comm_rank(const comm *c) { return c ? c->rank : 0; }
int comm_size(const comm *c) { return c ? c->size : 1; }
bool comm_threads(const comm *c) { return !c || c->threads; }

comm_place comm_local(const comm *c) {
    comm_place alone = {0, 1, 1, ""};
    if (c) return c->local;
    gethostname(alone.host, sizeof alone.host - 1);
    return alone;
}

/* ---- small things ---- */

void comm_barrier(comm *c) {
    if (c) c->mpi->barrier(c->mpi->world);
}

enum { MOST_BYTES = 1 << 30 };

void comm_broadcast(comm *c, void *data, size_t bytes, int from) {
    for (size_t at = 0; c && at < bytes; at += MOST_BYTES) {
        const size_t n = bytes - at < MOST_BYTES ? bytes - at : MOST_BYTES;
        c->mpi->broadcast((char *)data + at, (int)n, c->mpi->byte, from, c->mpi->world);
    }
}

void comm_gather(comm *c, const void *mine, size_t bytes, void *all) {
    if (!c) memcpy(all, mine, bytes);
    else c->mpi->gather(mine, (int)bytes, c->mpi->byte, all, (int)bytes, c->mpi->byte, c->mpi->world);
}

/* Gathers and adds block by block, as the order of MPI's own sum is not defined. */
void comm_add(comm *c, double *x, int64_t n) {
    enum { SOME = 512 };
    double *all = c ? malloc((size_t)c->size * SOME * sizeof *all) : NULL;
    if (c && !all) comm_abort(c, 1);
    for (int64_t at = 0; c && at < n; at += SOME) {
        const int64_t some = n - at < SOME ? n - at : SOME;
        comm_gather(c, x + at, (size_t)some * sizeof *x, all);
        for (int64_t i = 0; i < some; i++) {
            x[at + i] = all[i];
            for (int r = 1; r < c->size; r++) x[at + i] += all[r * some + i];
        }
    }
    free(all);
}

void comm_most(comm *c, int *x, int n) {
    enum { MOST = 8 };
    double y[MOST]; /* mpi.h has no integer type; a double holds an int */
    for (int i = 0; i < n; i++) y[i] = x[i];
    if (c) c->mpi->reduce(c->mpi->in_place, y, n, c->mpi->number, c->mpi->most, c->mpi->world);
    for (int i = 0; i < n; i++) x[i] = (int)y[i];
}

/* ---- failures ---- */

typedef struct outcome {
    int status;
    uint32_t message; /* checksum */
} outcome;

int comm_agree(comm *c, int status) {
    char line[ADAMOD__MESSAGE] = "";
    if (!c) return status;
    outcome mine = {status, 0}, *all = calloc((size_t)c->size, sizeof *all);
    if (!all) comm_abort(c, 1);
    if (status) snprintf(line, sizeof line, "%s", adamod__last_message());
    if (status) mine.message = adamod__crc32(0, line, strlen(line));
    comm_gather(c, &mine, sizeof mine, all);
    int first = 0;
    bool same = true;
    while (first < c->size && !all[first].status) first++;
    status = first < c->size ? all[first].status : 0;
    for (int i = 0; status && i < c->size; i++) same &= all[i].status && all[i].message == all[first].message;
    free(all);
    if (!status) return 0;
    comm_broadcast(c, line, sizeof line, first);
    adamod__fail(status < 0 ? (adamod_status)status : ADAMOD_ERROR_ARGUMENT, "%s", line);
    if (!same) adamod__context("rank %d: ", first);
    return status;
}

/* ---- sums ---- */

/* Multiples of 16 numbers, to align parts with vectors. */
int64_t comm_part(const comm *c, int64_t n, int rank) {
    const int size = comm_size(c);
    return rank >= size ? n : n / 16 * rank / size * 16;
}

static int64_t part_size(const comm *c, int64_t n, int rank) {
    return comm_part(c, n, rank + 1) - comm_part(c, n, rank);
}

static void add(float *restrict sum, const float *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void take(float *part, const float *x, int64_t n, bool adds) {
    if (adds) add(part, x, n);
    else memcpy(part, x, (size_t)n * sizeof *x);
}

void comm_reduce_scatter(comm *c, const float *x, int64_t n, int ranks, bool adds, float *part) {
    const int64_t own = part_size(c, n, comm_rank(c));
    if (!c) {
        take(part, x, n, adds);
        return;
    }
    int *send = c->counts, *from = send + c->size, *receive = from + c->size, *to = receive + c->size;
    for (int r = 0; r < c->size; r++) {
        send[r] = c->rank < ranks ? (int)part_size(c, n, r) : 0;
        from[r] = (int)comm_part(c, n, r);
        receive[r] = r < ranks ? (int)own : 0;
        to[r] = r < ranks ? (int)own * r : 0;
    }
    c->mpi->exchange_parts(x, send, from, c->mpi->real, c->received, receive, to, c->mpi->real, c->mpi->world);
    for (int r = 0; r < ranks; r++) take(part, c->received + r * own, own, adds || r > 0);
}

void comm_all_gather(comm *c, float *x, int64_t n) {
    if (!c) return;
    int *counts = c->counts, *places = counts + c->size;
    for (int r = 0; r < c->size; r++) {
        counts[r] = (int)part_size(c, n, r);
        places[r] = (int)comm_part(c, n, r);
    }
    c->mpi->gather_parts(c->mpi->in_place, 0, c->mpi->real, x, counts, places, c->mpi->real, c->mpi->world);
}

void comm_all_reduce(comm *c, float *x, int64_t n, comm_order order) {
    for (int64_t at = 0; c && at < n; at += COMM_BLOCK) {
        const int64_t some = n - at < COMM_BLOCK ? n - at : COMM_BLOCK;
        if (order == COMM_FAST) {
            c->mpi->reduce(c->mpi->in_place, x + at, (int)some, c->mpi->real, c->mpi->sum, c->mpi->world);
            continue;
        }
        /* in place: the part is sent only to this rank itself, and written after all is received */
        comm_reduce_scatter(c, x + at, some, c->size, false, x + at + comm_part(c, some, c->rank));
        comm_all_gather(c, x + at, some);
    }
}
