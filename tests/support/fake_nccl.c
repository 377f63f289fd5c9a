/* A library in place of NCCL and CUDA's driver, with the functions that comm/nccl.c calls, for ranks on one machine and
 * arrays in host memory. Calls finish at once, whatever the stream. Its soname is the driver's, so that it is also
 * found as the driver once it is loaded as NCCL.
 *
 * FAKE_NCCL_FAILS names a function that fails.
 *
 * SPDX-License-Identifier: MIT
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM = 1 << 20, BYTE = 0, FLOAT = 7, DOUBLE = 8, SUM = 0, MEAN = 4 };

typedef struct id {
    char path[128];
} id;

typedef struct meeting {
    atomic_int came, times;
    _Alignas(64) char slots[]; /* ROOM of each rank */
} meeting;

typedef struct joined {
    meeting *m;
    int rank, size;
} joined;

int ncclGetVersion(int *version);
int ncclGetUniqueId(id *out);
int ncclCommInitRank(void **comm, int size, id where, int rank);
int ncclCommDestroy(void *comm);
int ncclAllReduce(const void *x, void *y, size_t n, int type, int op, void *comm, void *stream);
int ncclReduce(const void *x, void *y, size_t n, int type, int op, int root, void *comm, void *stream);
int ncclBroadcast(const void *x, void *y, size_t n, int type, int root, void *comm, void *stream);
int ncclGroupStart(void);
int ncclGroupEnd(void);
const char *ncclGetErrorString(int status);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);

static int fails(const char *function) {
    const char *named = getenv("FAKE_NCCL_FAILS");
    return named && strcmp(named, function) == 0;
}

/* ---- ranks ---- */

int ncclGetVersion(int *version) { return *version = 22000, 0; }

int ncclGetUniqueId(id *out) {
    strcpy(out->path, "/tmp/adamod-fake-nccl-XXXXXX");
    const int file = mkstemp(out->path);
    return file < 0 || close(file);
}

static void meet(const joined *j) {
    const int times = atomic_load(&j->m->times);
    if (atomic_fetch_add(&j->m->came, 1) == j->size - 1) {
        atomic_store(&j->m->came, 0);
        atomic_fetch_add(&j->m->times, 1);
    } else {
        while (atomic_load(&j->m->times) == times) sched_yield();
    }
}

static size_t bytes_of(int size) { return sizeof(meeting) + (size_t)size * ROOM; }

int ncclCommInitRank(void **comm, int size, id where, int rank) {
    joined *j = calloc(1, sizeof *j);
    const int file = open(where.path, O_RDWR);
    if (!j || file < 0 || ftruncate(file, (off_t)bytes_of(size))) return 1;
    *j = (joined){mmap(NULL, bytes_of(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), rank, size};
    close(file);
    if (j->m == MAP_FAILED) return 1;
    meet(j);
    if (rank == 0) unlink(where.path);
    *comm = j;
    return 0;
}

int ncclCommDestroy(void *comm) {
    joined *j = comm;
    munmap(j->m, bytes_of(j->size));
    free(j);
    return 0;
}

/* ---- sums ---- */

static void add(char *y, const char *x, size_t n, int type) {
    for (size_t i = 0; type == FLOAT && i < n; i++) ((float *)(void *)y)[i] += ((const float *)(const void *)x)[i];
    for (size_t i = 0; type == DOUBLE && i < n; i++) ((double *)(void *)y)[i] += ((const double *)(const void *)x)[i];
}

static size_t size_of(int type) { return type == FLOAT ? 4 : type == DOUBLE ? 8 : 1; }

/* from: whose numbers; -1: the sum of all, in the order of ranks. to: who gets them; -1: all. */
static int exchange(const void *x, void *y, size_t n, int type, int op, int from, int to, const joined *j) {
    const size_t unit = size_of(type), most = ROOM / unit;
    for (size_t at = 0; at < n; at += most) {
        const size_t some = n - at < most ? n - at : most;
        char *result = (char *)y + at * unit;
        memcpy(j->m->slots + (size_t)j->rank * ROOM, (const char *)x + at * unit, some * unit);
        meet(j);
        if (to < 0 || to == j->rank) {
            memcpy(result, j->m->slots + (size_t)(from < 0 ? 0 : from) * ROOM, some * unit);
            for (int r = 1; from < 0 && r < j->size; r++) add(result, j->m->slots + (size_t)r * ROOM, some, type);
            for (size_t i = 0; op == MEAN && i < some; i++) ((float *)(void *)result)[i] /= (float)j->size;
        }
        meet(j);
    }
    return 0;
}

int ncclAllReduce(const void *x, void *y, size_t n, int type, int op, void *comm, void *stream) {
    (void)stream;
    return fails("ncclAllReduce") || exchange(x, y, n, type, op, -1, -1, comm);
}

int ncclReduce(const void *x, void *y, size_t n, int type, int op, int root, void *comm, void *stream) {
    (void)stream;
    return fails("ncclReduce") || exchange(x, y, n, type, op, -1, root, comm);
}

int ncclBroadcast(const void *x, void *y, size_t n, int type, int root, void *comm, void *stream) {
    (void)stream;
    return fails("ncclBroadcast") || exchange(x, y, n, type, SUM, root, -1, comm);
}

int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
const char *ncclGetErrorString(int status) { return status ? "it was told to fail" : "all is well"; }

/* ---- the driver ---- */

int cuStreamCreate(void **stream, unsigned flags) { return *stream = stream, (int)(flags & 0); }
int cuStreamDestroy_v2(void *stream) { return (void)stream, 0; }
int cuEventCreate(void **event, unsigned flags) { return *event = event, (int)(flags & 0); }
int cuEventDestroy_v2(void *event) { return (void)event, 0; }
int cuEventRecord(void *event, void *stream) { return (void)event, (void)stream, 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return (void)stream, (void)event, (int)(flags & 0); }
