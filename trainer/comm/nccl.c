#include "comm/nccl.h"

#include "support/functions.h"
#include "core/error.h"

#include <stdio.h>
#include <stdlib.h>

/* From NVIDIA's nccl.h and cuda.h, whose binary interfaces are stable. */
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
enum {
    NCCL_BYTE = 0,
    NCCL_FLOAT = 7,
    NCCL_DOUBLE = 8,
    NCCL_SUM = 0,
    NCCL_MEAN = 4,
    STREAM_BESIDE = 1,
    EVENT_WITHOUT_TIME = 2
};

typedef struct functions {
    int (*version)(int *version);
    int (*make_id)(nccl_id *id);
    int (*join)(void **comm, int size, nccl_id id, int rank);
    int (*leave)(void *comm);
    int (*all_reduce)(const void *x, void *y, size_t n, int type, int op, void *comm, void *stream);
    int (*reduce)(const void *x, void *y, size_t n, int type, int op, int root, void *comm, void *stream);
    int (*broadcast)(const void *x, void *y, size_t n, int type, int root, void *comm, void *stream);
    int (*begin)(void);
    int (*end)(void);
    const char *(*error)(int status);
    /* of the driver */
    int (*make_stream)(void **stream, unsigned flags);
    int (*drop_stream)(void *stream);
    int (*make_event)(void **event, unsigned flags);
    int (*drop_event)(void *event);
    int (*record)(void *event, void *stream);
    int (*wait)(void *stream, void *event, unsigned flags);
} functions;

struct nccl {
    const functions *f;
    int size;
    void *comm, *stream, *before, *after; /* stream of the sums; events before a sum and after all */
};

/* ---- loading ---- */

static const char *const of_cuda[] = {"libcuda.so.1", NULL}; /* the driver */

static int load_nccl(functions *f) {
    static const char *const names[] = {"libnccl.so.2", NULL};
    const function_place list[] = {{"ncclGetVersion", &f->version},
                                   {"ncclGetUniqueId", &f->make_id},
                                   {"ncclCommInitRank", &f->join},
                                   {"ncclCommDestroy", &f->leave},
                                   {"ncclAllReduce", &f->all_reduce},
                                   {"ncclReduce", &f->reduce},
                                   {"ncclBroadcast", &f->broadcast},
                                   {"ncclGroupStart", &f->begin},
                                   {"ncclGroupEnd", &f->end},
                                   {"ncclGetErrorString", &f->error},
                                   {NULL, NULL}};
    return functions_load(names, "ADAMOD_NCCL_LIBRARY", list, NULL) ? 0 : -1;
}

static int load_driver(functions *f) {
    const function_place list[] = {{"cuStreamCreate", &f->make_stream},
                                   {"cuStreamDestroy_v2", &f->drop_stream},
                                   {"cuEventCreate", &f->make_event},
                                   {"cuEventDestroy_v2", &f->drop_event},
                                   {"cuEventRecord", &f->record},
                                   {"cuStreamWaitEvent", &f->wait},
                                   {NULL, NULL}};
    return functions_load(of_cuda, NULL, list, NULL) ? 0 : -1;
}

bool nccl_library(char *out, size_t size) {
    functions f;
    int version = 0;
    if (load_nccl(&f)) return false;
    f.version(&version);
    snprintf(out, size, "%d.%d.%d, libnccl.so.2", version / 10000, version / 100 % 100, version % 100);
    return true;
}

bool nccl_gpu(int device, char id[33]) {
    int (*init)(unsigned), (*get)(int *, int), (*uuid)(unsigned char *, int), handle;
    unsigned char bytes[16];
    const function_place list[] = {{"cuInit", &init}, {"cuDeviceGet", &get}, {"cuDeviceGetUuid", &uuid}, {NULL, NULL}};
    if (!functions_load(of_cuda, NULL, list, NULL)) return false;
    if (init(0) || get(&handle, device) || uuid(bytes, handle)) return false;
    for (int i = 0; i < 16; i++) snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* ---- ranks ---- */

static int failed(const nccl *n, const char *what, int status) {
    return status ? adamod__fail(ADAMOD_ERROR_CUDA, "NCCL: %s: %s", what, n->f->error(status)) : 0;
}

static int driver_failed(const char *what, int status) {
    return status ? adamod__fail(ADAMOD_ERROR_CUDA, "CUDA: %s: error %d", what, status) : 0;
}

static int join(nccl *n, comm *c) {
    nccl_id id = {{0}};
    int status = 0;
    n->size = comm_size(c);
    if (comm_rank(c) == 0) status = failed(n, "ncclGetUniqueId", n->f->make_id(&id));
    if (comm_agree(c, status)) return -1;
    comm_broadcast(c, &id, sizeof id, 0);
    status = n->f->join(&n->comm, comm_size(c), id, comm_rank(c));
    return failed(n, "ncclCommInitRank", status);
}

static int make_streams(nccl *n) {
    int status = n->f->make_stream(&n->stream, STREAM_BESIDE);
    if (!status) status = n->f->make_event(&n->before, EVENT_WITHOUT_TIME);
    if (!status) status = n->f->make_event(&n->after, EVENT_WITHOUT_TIME);
    return driver_failed("cannot make a stream", status);
}

int nccl_open(nccl **out, comm *c) {
    static functions f;
    nccl *n = calloc(1, sizeof *n);
    int status = n ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for NCCL");
    if (!status) n->f = &f;
    if (!status) status = load_nccl(&f) || load_driver(&f);
    if (!status) status = make_streams(n);
    if (comm_agree(c, status) || comm_agree(c, join(n, c))) {
        nccl_free(n);
        return -1;
    }
    *out = n;
    return 0;
}

void nccl_free(nccl *n) {
    if (!n) return;
    if (n->comm) n->f->leave(n->comm);
    if (n->before) n->f->drop_event(n->before);
    if (n->after) n->f->drop_event(n->after);
    if (n->stream) n->f->drop_stream(n->stream);
    free(n);
}

/* ---- sums ---- */

static int begin_sum(nccl *n, void *stream) {
    int status = n->f->record(n->before, stream);
    if (!status) status = n->f->wait(n->stream, n->before, 0);
    return driver_failed("cannot enqueue a sum", status);
}

int nccl_sum(nccl *n, float *x, int64_t count, void *stream) {
    if (begin_sum(n, stream)) return -1;
    const int status = n->f->all_reduce(x, x, (size_t)count, NCCL_FLOAT, NCCL_SUM, n->comm, n->stream);
    return failed(n, "ncclAllReduce", status);
}

/* NCCL's reduce-scatter needs parts of one size, but ranks have whole parameters. */
int nccl_sum_parts(nccl *n, float *x, int64_t first, int64_t count, const int64_t *parts, void *stream) {
    if (begin_sum(n, stream)) return -1;
    int status = n->f->begin();
    for (int r = 0; !status && r < n->size; r++) {
        const int64_t from = parts[r] > first ? parts[r] : first;
        const int64_t to = parts[r + 1] < first + count ? parts[r + 1] : first + count;
        float *part = x + (from - first);
        if (from < to)
            status = n->f->reduce(part, part, (size_t)(to - from), NCCL_FLOAT, NCCL_SUM, r, n->comm, n->stream);
    }
    const int ended = n->f->end();
    return failed(n, "ncclReduce", status ? status : ended);
}

int nccl_add(nccl *n, double *x, int64_t count, void *stream) {
    const int status = n->f->all_reduce(x, x, (size_t)count, NCCL_DOUBLE, NCCL_SUM, n->comm, stream);
    return failed(n, "ncclAllReduce", status);
}

int nccl_mean(nccl *n, float *x, int64_t count, void *stream) {
    const int status = n->f->all_reduce(x, x, (size_t)count, NCCL_FLOAT, NCCL_MEAN, n->comm, stream);
    return failed(n, "ncclAllReduce", status);
}

int nccl_spread(nccl *n, void *x, size_t unit, const int64_t *parts, void *stream) {
    int status = n->f->begin();
    for (int r = 0; !status && r < n->size; r++) {
        char *part = (char *)x + (size_t)parts[r] * unit;
        const size_t bytes = (size_t)(parts[r + 1] - parts[r]) * unit;
        if (bytes > 0) status = n->f->broadcast(part, part, bytes, NCCL_BYTE, r, n->comm, stream);
    }
    const int ended = n->f->end();
    return failed(n, "ncclBroadcast", status ? status : ended);
}

int nccl_join(nccl *n, void *stream) {
    int status = n->f->record(n->after, n->stream);
    if (!status) status = n->f->wait(stream, n->after, 0);
    return driver_failed("cannot wait for a sum", status);
}
