/* Shared by the files of libadamod_cuda: tables in device memory, and launches.
 *
 * A step is [norm, one block for each chunk] -> [prepare, one block: skip or not, clipping, schedules, step counts, the
 * coefficients of every parameter] -> [the rule's driver, if it has one] -> [update, one launch for all parameters]. */
#ifndef ADAMOD_CUDA_BACKEND_H
#define ADAMOD_CUDA_BACKEND_H

#include "optim/device.h"
#include "kernels/kernels.h"

#include <cuda_runtime.h>

enum { BLOCK = 512 }; /* elements of a block: the unit of random numbers and sums */
enum { UPDATE_THREADS = 256 };
enum { SUM_THREADS = 512 };

/* Types of a parameter's arrays, for loads and stores. */
enum {
    PATH_ANY,    /* one element at a time, whatever the types */
    PATH_F32,    /* all f32 */
    PATH_MASTER, /* parameter and gradient bf16; master and states f32 */
    PATH_COPY,   /* parameter bf16; gradient, master and states f32 */
    PATH_BF16,   /* all bf16, rounded at random */
    PATH_Q8      /* parameter and gradient f32; states in 8 bits */
};

/* Kernels that update a parameter. */
enum {
    KIND_ANY,
    KIND_Q8,   /* states in 8 bits */
    KIND_BF16, /* all bf16, rounded at random, if the formula has a kernel for that */
    KINDS
};

static __host__ __device__ inline int kind_of(const device_tensor *t, bool has_bf16) {
    if (t->state_type == ADAMOD_Q8) return KIND_Q8;
    const bool bf16 = t->p_type == ADAMOD_BF16 && t->g_type == ADAMOD_BF16 && t->state_type == ADAMOD_BF16;
    return bf16 && !t->master && has_bf16 ? KIND_BF16 : KIND_ANY;
}

/* A parameter's update, written by prepare. */
typedef struct array_step {
    adamod__coef_f64 wide;
    adamod__coef_f32 narrow;
    int32_t transform; /* the gradient is clipped or decayed, too */
    uint64_t key;      /* of random numbers */
    int64_t turn;      /* place of the queue's array that this update replaces, in elements */
} array_step;

/* A piece of a parameter: elements from index * (the tile's or the chunk's size) on. */
typedef struct piece {
    uint32_t tensor, index;
} piece;

typedef struct control {
    int64_t steps, skipped;
    double norm;
    int32_t skip;   /* the step under way is not taken */
    int32_t filled; /* statistics */
    uint32_t errors;
    const float *found_inf, *loss_scale;
    const device_schedule *schedules;
    const int64_t *numbers;
} control;

/* Statistics as they are collected: integers, so that their order does not matter. */
template <class T> struct counts_of {
    T elements, bounded, nonfinite;
    unsigned long long least[2], most[2]; /* order_bits of doubles */
    struct {
        T fine[2][FINE_BINS], histogram[2][ADAMOD_HIST_BINS], idle[2][ADAMOD_HIST_BINS];
    } bins;
    enum { BINS = sizeof bins / sizeof(T) };

    /* Called by all threads of a block. */
    __device__ void clear() {
        for (int i = (int)threadIdx.x; i < BINS; i += (int)blockDim.x) ((T *)&bins)[i] = 0;
        if (threadIdx.x != 0) return;
        elements = bounded = nonfinite = 0;
        for (int i = 0; i < 2; i++) least[i] = ~0ull, most[i] = 0;
    }
};
typedef counts_of<unsigned long long> device_counts; /* of a group */

/* Everything a kernel may read. */
typedef struct view {
    const device_tensor *tensors;
    array_step *now;
    int64_t *steps; /* of each tensor */
    device_group *groups;
    double *effective; /* options of each group in this update */
    double *base_lr;   /* of each group, before the schedule */
    control *shared;
    device_mirror *mirror; /* on the host */
    const device_limit *limits;
    const piece *chunks;          /* the library's pieces for sums */
    const int64_t *first_chunk;   /* of each tensor, and one past the last */
    double *partial;              /* two numbers for each chunk */
    double *largest;              /* one for each chunk */
    const int64_t *first_element; /* of each tensor, among those of all */
    double *block_sums;           /* two numbers for each block of elements: see joins.cuh */
    double *part_sums;            /* of each rank: the sum of partial, the largest; where parameters are in parts */
    int64_t n, n_chunks, chunk;
    int n_groups, rule;
    int rank, ranks; /* ranks 0: all parameters are here */
    /* statistics */
    device_counts *counts;
    double *sums; /* of squares of gradients and of changes, for each chunk */
    const float *edge;
    const uint16_t *bin;
    /* for drivers with matrices: chunks of whole rows; rows, and strips of columns, of all tensors before each */
    const piece *row_chunks;
    const int64_t *first_row_chunk, *first_row, *first_strip;
    void *workspace; /* the driver's */
    int64_t workspace_bytes;
    int64_t n_row_chunks, n_strips;
    double *row_sums; /* as sums, for each chunk of rows */
    /* on the host, at the time of the step */
    const device_tensor *host_tensors;
    const device_group *host_groups;
} view;

/* ---- drivers ---- */

/* Launches of a rule that looks at whole arrays, as cuda_NAME_driver in its own file; named in the rule's file. update.h
 * has the CPU's. */
typedef struct cuda_driver {
    /* Launches everything between prepare and the update. collect: with statistics of the tensors it takes. */
    void (*run)(const view *v, int collect, cudaStream_t stream);
    /* A bit for each variant that run updates itself; the update takes the others. */
    uint32_t takes;
    /* Needs the tables of rows and strips of columns. */
    bool matrices;
    /* Bytes of workspace for these tensors, on the host; NULL: none. */
    int64_t (*workspace)(const device_layout *l);
} cuda_driver;
/* Runs cautious steps of rules that have no driver of their own. */
extern const cuda_driver cuda_caution_driver;
#define DRIVER(name) extern const cuda_driver cuda_##name##_driver;
#include "rules/names.inc.h"

/* Bytes of workspace for batches of matrices: those of all matrices, but at most `enough`, unless the largest matrix
 * needs more. bytes_of: 0 if the tensor is no matrix of the driver's. */
template <class BYTES> static inline int64_t batch_workspace(const device_layout *l, int64_t enough, BYTES bytes_of) {
    int64_t all = 0, most = enough;
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t bytes = bytes_of(&l->tensors[i]);
        all += bytes;
        most = bytes > most ? bytes : most;
    }
    return all < most ? all : most;
}

/* Rows of all matrices in a tensor: there may be many behind each other. */
static inline int64_t rows_of(const device_tensor *t) { return t->cols > 0 ? t->count / t->cols : 0; }

/* Strips of STRIP columns of all matrices in a tensor; 0: matrices are small, and a thread takes a column. */
enum { STRIP = 32, SMALL_ROWS = 64, SMALL_COLS = 1024 };
static __host__ __device__ inline int64_t strips_of(const device_tensor *t) {
    const bool small = t->rows <= SMALL_ROWS && t->cols <= SMALL_COLS;
    return t->cols == 0 || small ? 0 : (t->count / t->rows + STRIP - 1) / STRIP;
}

/* Elements in a chunk of a tensor's whole rows. */
static __host__ __device__ inline int64_t row_chunk(const device_tensor *t, int64_t chunk) {
    return t->cols > 0 ? (chunk + t->cols - 1) / t->cols * t->cols : chunk;
}

/* The tensors that one launch of an update covers. */
typedef struct update_class {
    int variant, f64, kind;
    const piece *tiles;
    int64_t n_tiles;
    int64_t blocks; /* at most: enough to fill the device */
    const struct variant_launch *launch;
    bool early; /* it may start while prepare runs */
} update_class;

/* prepare.cu */
void cuda_set_group(device_group *to, const device_group *from, cudaStream_t stream);
void cuda_set_pointers(device_tensor *tensors, const device_tensor *from, int64_t first, int64_t n,
                       cudaStream_t stream);
void cuda_set_control(control *to, const float *found_inf, const float *loss_scale, const device_schedule *schedules,
                      const int64_t *numbers, cudaStream_t stream);
void cuda_fill(void *to, adamod_type type, int64_t count, double value, cudaStream_t stream);
void cuda_copy(void *to, const void *from, size_t bytes, int hint, cudaStream_t stream);
void cuda_widen(float *to, const void *from, adamod_type type, int64_t count, cudaStream_t stream);
void cuda_norm(const view *v, cudaStream_t stream);
void cuda_prepare(const view *v, const device_step *how, cudaStream_t stream);
void cuda_clear_counts(const view *v, cudaStream_t stream);
/* The path of a tensor, from its types and pointers. */
uint8_t cuda_path(const device_tensor *t);

/* update.cu */
int cuda_kind(int rule, const device_tensor *t);
/* Whether there is a kernel: not every formula has one for states in 8 bits. */
bool cuda_has_kernel(int rule, const device_tensor *t);
/* Cuts of a rule's update of a kind, by index; NULL past the end. Elsewhere an index past the end is the standard cut. */
const char *cuda_tuning(int rule, int index, int kind);
/* Elements that a block handles at a time; whole BLOCKs. */
int64_t cuda_tile(int rule, int tuning, const device_tensor *t);
/* Fills in how a class is launched. */
cudaError_t cuda_choose(int rule, int tuning, int processors, update_class *c);
void cuda_update(const view *v, const update_class *c, cudaStream_t stream);
void cuda_update_collect(const view *v, const update_class *c, cudaStream_t stream);

#endif
