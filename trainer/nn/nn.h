/* nn.h - a static graph of coarse ops, its backward pass, and plans that run both without allocating.
 *
 *   nn_params   named parameters and their gradients, one block each
 *   nn_graph    values and the ops between them, built by the functions below
 *   nn_plan     their order, memory by lifetime, and kernels of a backend; can be run any number of times
 *
 * A value is a matrix [rows, cols], or images [rows, height, width, channels], of f32, or of i32 for indices. The number
 * of rows may be a symbol (tokens, sentences, images of a batch): memory is planned for its capacity, and each run says
 * how many there are. Sequences of a batch stand end to end in the rows, without padding. Channels of an image come last
 * because tensor cores read them so; a library that wants another order converts inside its kernels.
 *
 * Building functions do not fail: the first mistake (a shape that does not fit) is kept as a message, later calls do
 * nothing, and nn_plan_create reports it. */
#pragma once

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NN_MAX_DIMS 4
#define NN_MAX_INPUTS 8
#define NN_MAX_OUTPUTS 5
#define NN_MAX_SYMBOLS 8

typedef enum nn_type { NN_F32, NN_I32, NN_BF16, NN_U8 } nn_type; /* u8: constants only */

/* How a device computes. Parameters, their gradients and all sums are always f32. On the host values are f32, too: there
 * NN_MIXED rounds the factors of matrix products alone, and NN_TF32 is NN_FULL. */
typedef enum nn_precision {
    NN_FULL, /* f32 */
    NN_TF32, /* f32, but matrix products round their factors to 11 bits */
    NN_MIXED /* values are bf16, and so are the copies of parameters that matrix products read */
} nn_precision;

/* dim[0] is the capacity if rows is a symbol (> 0). */
typedef struct nn_shape {
    int rows; /* symbol, or 0: dim[0] is fixed */
    int ndim;
    int64_t dim[NN_MAX_DIMS];
} nn_shape;

/* ---- parameters ---- */

typedef enum nn_init_kind {
    NN_ZEROS,
    NN_ONES,
    NN_NORMAL,  /* mean 0, standard deviation scale */
    NN_UNIFORM, /* within +- scale */
    NN_XAVIER,  /* uniform within +- sqrt(6 / (rows + columns)) of the matrix */
    NN_FAN_IN,  /* uniform within +- 1 / sqrt(fan in): the columns of a matrix [out, in], or height * width * in of a
                 * convolution [out, height, width, in] */
    NN_UNIT     /* uniform from 0 to scale */
} nn_init_kind;

typedef struct nn_init {
    nn_init_kind kind;
    double scale;
} nn_init;

/* The role of a parameter in the op that reads it. */
typedef enum nn_param_kind { NN_WEIGHT, NN_BIAS, NN_NORM } nn_param_kind;

typedef struct nn_param {
    char *name;
    nn_param_kind kind; /* set once a graph reads it */
    int ndim;
    int64_t shape[NN_MAX_DIMS];
    int64_t count;
    int64_t offset; /* of its first number, in both data and grad */
    nn_init init;
    bool carried; /* a state made by nn_carried */
} nn_param;

typedef struct nn_params {
    nn_param *list;
    int n;
    int64_t count;      /* all numbers, with the padding between parameters */
    float *data, *grad; /* on the host; NULL until nn_params_allocate */
    nn_param *states;   /* made by nn_persistent: like parameters, but without gradient or optimizer */
    int n_states;
    int64_t state_count;
    float *state_data;                  /* on the host; NULL until nn_params_allocate, and if there are none */
    nn_precision precision;             /* of plans on the host */
    struct nn_device_params *on_device; /* NULL: there are only those on the host */
} nn_params;

nn_params *nn_params_create(void);
void nn_params_free(nn_params *p);
/* Allocates all parameters, gradients and persistent states after the first graph was built, and fills them as their init
 * says, from seed and name alone. Graphs built later may only use those that exist. */
adamod_status nn_params_allocate(nn_params *p, uint64_t seed);
/* Like nn_params_allocate, but all numbers are 0: for a model whose weights are loaded next. */
adamod_status nn_params_allocate_zeros(nn_params *p);
/* Copies parameters to a device ("cuda", "cuda:1"), where all plans made later run; data on the host is then a copy, which
 * fetch and store below update. For "cpu" it sets the precision of these plans, for "ref" it does nothing. */
adamod_status nn_params_to_device(nn_params *p, const char *device, nn_precision precision);
/* Whether the device can be used, memory aside; if not, the last error says why. */
adamod_status nn_device_status(const char *device);
/* Note i, from 0, on how a device runs an op, for people; out->op is NULL: there are no more. */
typedef struct nn_note {
    const char *op, *title; /* the op's name, and its title for people */
    char text[96];
} nn_note;
adamod_status nn_device_note(const char *device, int i, nn_note *out);
/* fetch: from the device to data and state_data, or to grad. store: back. Without a device they do nothing. */
adamod_status nn_params_fetch(const nn_params *p);
adamod_status nn_params_fetch_grad(const nn_params *p);
adamod_status nn_params_store(nn_params *p);
/* Gradients back, and persistent states alone both ways, for sums over processes. */
adamod_status nn_params_store_grad(nn_params *p);
adamod_status nn_params_fetch_states(const nn_params *p);
adamod_status nn_params_store_states(nn_params *p);
/* Copies bytes from the device's memory to the host's, or back, and waits. */
adamod_status nn_params_read(const nn_params *p, void *host, const void *on_device, size_t bytes);
adamod_status nn_params_write(const nn_params *p, void *on_device, const void *host, size_t bytes);
/* Updates the bf16 copies of parameters on a device, if any, after another has written the parameters there. */
void nn_params_narrow(const nn_params *p);
float *nn_params_states(const nn_params *p); /* the persistent states in use; NULL: there are none */
/* A parameter and its gradient for the optimizer, and the parameter's copy as bf16. */
typedef struct nn_param_memory {
    float *data, *grad;
    void *half; /* NULL: there is none */
} nn_param_memory;
nn_param_memory nn_params_memory(const nn_params *p, const nn_param *param);
/* The device ("cuda:0") and its stream; "cpu" and NULL without a device. */
const char *nn_params_device(const nn_params *p);
void *nn_params_stream(const nn_params *p);
nn_param *nn_params_find(const nn_params *p, const char *name);
nn_param *nn_params_find_state(const nn_params *p, const char *name);
/* Numbers in parameters, without padding. */
int64_t nn_params_total(const nn_params *p);

/* ---- graphs ---- */

typedef struct nn_graph nn_graph;
typedef int nn_value; /* negative: none, after an error */

typedef enum nn_activation { NN_LINEAR, NN_RELU, NN_GELU } nn_activation;

nn_graph *nn_graph_create(nn_params *params);
void nn_graph_free(nn_graph *g);
/* A symbol for a number of rows that each run sets, at most capacity. */
int nn_symbol(nn_graph *g, const char *name, int64_t capacity);
int64_t nn_capacity(const nn_graph *g, int symbol);

/* An input of each run; cols 0 makes a vector [rows]. */
nn_value nn_input(nn_graph *g, const char *name, nn_type type, int rows, int64_t cols);
/* Images [rows, height, width, channels]. In mixed precision a device converts f32 inputs once, as a run begins. */
nn_value nn_input_images(nn_graph *g, const char *name, nn_type type, int rows, int64_t height, int64_t width,
                         int64_t channels);
/* An input that stays from run to run of one plan, and is filled by nn_plan_copy or by ops. For decoding. */
nn_value nn_state(nn_graph *g, const char *name, nn_type type, int rows, int64_t cols);
/* Sets what an i32 input holds past the rows of a batch, as a device runs all rows of the capacity. Default: 0. */
void nn_pad(nn_graph *g, nn_value input, int32_t value);
nn_value nn_parameter(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init);

/* A state that stays from run to run, for all plans of the parameters, and is part of a checkpoint, but has no gradient:
 * running statistics. Always f32, of fixed size, and filled as init says until an op writes it (see aliases in op.h). A
 * name used twice is one state. */
nn_value nn_persistent(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init);
/* A persistent state that belongs to a place in the data, not to the model: a model loaded from a checkpoint, for use or to
 * start a new run, does not take it. */
nn_value nn_carried(nn_graph *g, const char *name, int ndim, const int64_t *shape, nn_init init);

/* Numbers that never change, i32 or u8: a data set. The caller keeps them as long as plans of the graph are used. On the
 * host they are read in place; to a device they are copied once for all plans of the same parameters that live at the
 * same time. data may be NULL in a graph that makes no plan. */
nn_value nn_constant(nn_graph *g, const char *name, nn_type type, int ndim, const int64_t *shape, const void *data);

/* Parameters and persistent states made within a scope are named "scope.name". */
void nn_scope_push(nn_graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void nn_scope_pop(nn_graph *g);

/* Trades time for memory: while it is on, the outputs of ops that are added do not stay from the forward to the backward pass.
 * The backward pass runs these ops again, just before it needs them, from values that did stay. Results have the same bits,
 * but on a device in mixed precision, where products may do the work of ops behind them that are not run again.
 * Ops that write states are not run again: their outputs stay. */
void nn_recompute(nn_graph *g, bool on);

/* y = activation(x W^T + b); W is [out, in], b is [out] or -1 for none. */
nn_value nn_linear(nn_graph *g, nn_value x, nn_value w, nn_value b, nn_activation activation);

/* y[i] = scale * table[ids[i]] + position(positions[i]), sinusoids laid out [sin | cos]; positions -1: none added. */
nn_value nn_embedding(nn_graph *g, nn_value ids, nn_value positions, nn_value table, double scale);

/* Zero with probability p, else divided by 1 - p; the identity outside training. */
nn_value nn_dropout(nn_graph *g, nn_value x, double p);

/* y = x + dropout(branch): the end of a pre-norm block. */
nn_value nn_add(nn_graph *g, nn_value x, nn_value branch, double dropout);

/* y = gamma (z - mean) / sqrt(variance + eps) + beta over columns, of z = x + dropout(branch); branch -1: z = x. */
nn_value nn_add_norm(nn_graph *g, nn_value x, nn_value branch, double dropout, nn_value gamma, nn_value beta,
                     double eps);

/* y = gain x / sqrt(mean(x^2) + eps) over columns. */
nn_value nn_rms_norm(nn_graph *g, nn_value x, nn_value gain, double eps);

/* y = gelu(x) by the tanh approximation, GPT-2's: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). NN_GELU above is
 * exact. */
nn_value nn_gelu(nn_graph *g, nn_value x);
/* y = silu(a) b of x = [a | b], [rows, 2 n]; silu(a) = a / (1 + exp(-a)). */
nn_value nn_swiglu(nn_graph *g, nn_value x);

/* softmax(q k^T / sqrt(d / heads)) v within sequences, with dropout on the weights. Sequence i has queries in rows
 * [q_ranges[i][0], q_ranges[i][1]) and keys in rows [k_ranges[i][0], k_ranges[i][1]); ranges are i32 [sequences, 2].
 * Self-attention: kv is -1 and q is [rows, 3 d] = [q | k | v]. Otherwise q is [rows, d] and kv is [rows', 2 d] = [k | v];
 * q may be [q | k | v] there too, for decoding; only q is read.
 * causal: query j of a sequence of nq sees the first nk - nq + j + 1 of its nk keys. */
nn_value nn_attention(nn_graph *g, nn_value q, nn_value kv, nn_value q_ranges, nn_value k_ranges, int heads,
                      bool causal, double dropout);
/* Self-attention of qkv = [q | k | v] with fewer heads of keys and values than of queries: heads, kv_heads and kv_heads of
 * them. Head h of q sees head h kv_heads / heads of k and v; kv_heads divides heads. */
nn_value nn_grouped_attention(nn_graph *g, nn_value qkv, nn_value ranges, int heads, int kv_heads, bool causal,
                              double dropout);
/* Prepares queries and keys of x = [q | k | v] for attention: heads, kv_heads and kv_heads heads. Each head of q and k has
 * an RMS norm with q_gain or k_gain, [size of a head] or -1: no norm; then numbers i and i + size / 2 of it are rotated by
 * positions[row] base^(-2 i / size), as Hugging Face's Llama does; base 0 or less: no rotation, and positions may be -1.
 * positions are i32 [rows]. v is copied. */
nn_value nn_query_key(nn_graph *g, nn_value x, nn_value positions, nn_value q_gain, nn_value k_gain, int heads,
                      int kv_heads, double base, double eps);

/* Sums over rows: [0] the label-smoothed loss (1 - s) nll + s / V sum of -log p, [1] the nll, [2] rows whose largest
 * logit is the target, [3] rows counted. Rows with a negative target are left out. Output is f32 [1, 4];
 * nn_plan_backward differentiates [0]. */
nn_value nn_cross_entropy(nn_graph *g, nn_value logits, nn_value targets, double smoothing);
/* nn_cross_entropy of nn_linear(x, w, b), and z lse^2 in each row's loss, lse being the log of the sum of exp(logit). Logits
 * are computed for some rows at a time, never all of them. In training, forward computes the gradients too: they take the
 * memory of x and of w until backward. */
nn_value nn_linear_cross_entropy(nn_graph *g, nn_value x, nn_value w, nn_value b, nn_value targets, double smoothing,
                                 double z);

/* Normalised pictures of a data set: row i is picture indices[i] of images, a constant u8 [n, height, width, 3], as f32
 * [rows, size, size, 3] with (x / 255 - mean) / deviation in each channel.
 *
 * In training, crop pads it with black (zeros before normalisation, as torchvision pads) and cuts out a random window, and
 * mirror mirrors it with probability 1/2. Otherwise it is the window in the middle. Random choices follow from the op's
 * random numbers of the run and draws[i], an i32 that tells pictures of one run apart: the picture's place in the epoch.
 * Forward only. */
typedef struct nn_picture_options {
    int64_t size;
    int padding; /* pixels on each side */
    bool crop, mirror;
    float mean[3], deviation[3];
} nn_picture_options;
nn_value nn_pictures(nn_graph *g, nn_value images, nn_value indices, nn_value draws, const nn_picture_options *o);

/* Cross-correlation of images with square kernels: y[r, i, j, o] = the sum over a, b and c of
 * x[r, i stride + a - padding, j stride + b - padding, c] w[o, a, b, c], where pixels outside an image are 0. There is no
 * bias. W is [out, size, size, in]: PyTorch's weight is w.permute(0, 3, 1, 2). */
nn_value nn_convolution(nn_graph *g, nn_value x, nn_value w, int stride, int padding);

/* y = activation(gamma (x - m) / sqrt(v + eps) + beta + residual) for each channel of images or column of a matrix; residual
 * -1: none; activation: NN_LINEAR or NN_RELU. In training m and v are the batch's mean and (biased) variance, and the
 * persistent mean and variance, [channels], become (1 - momentum) times their old value plus momentum times the batch's,
 * with the unbiased variance, as in PyTorch. Otherwise m and v are mean and variance. */
nn_value nn_batch_norm(nn_graph *g, nn_value x, nn_value residual, nn_value gamma, nn_value beta, nn_value mean,
                       nn_value variance, double eps, double momentum, nn_activation activation);

/* Makes later batch norms of this graph compute their statistics, in training, over the batches of all processes that
 * nn_plan_sync connects. */
void nn_sync_norms(nn_graph *g);

/* y = activation(scale x + shift + residual) for networks without norms. scale and shift are parameters of one number; -1: 1
 * and 0. residual -1: none; activation: NN_LINEAR or NN_RELU. */
nn_value nn_scale_shift(nn_graph *g, nn_value x, nn_value scale, nn_value shift, nn_value residual,
                        nn_activation activation);

/* The mean of each size x size window; windows do not overlap, and size divides height and width. nn_linear takes an
 * output of [rows, 1, 1, channels] as a matrix. */
nn_value nn_average_pool(nn_graph *g, nn_value x, int size);

/* The channels of a, then those of b. It costs nothing if both are written and read by ops that work inside wider arrays:
 * convolution, batch_norm, average_pool, concat. Else it is a copy. */
nn_value nn_concat(nn_graph *g, nn_value a, nn_value b);

/* ---- recurrent networks: row t * batch + b is time step t of sequence b, for a fixed number of sequences ---- */

/* A layer of long short-term memory over the time steps that a run has. x is [rows, in], W_in [4 units, in], W_state
 * [4 units, units], biases [4 units]: gates i, f, g, o and two biases, as in PyTorch. h and c, [batch, units], are
 * persistent or states of the plan: a run continues from the last one, or from zeros if carried, i32 [1], is 0. Gradients
 * end at the beginning of a run. dropout applies to W_state, one mask for all time steps. */
nn_value nn_lstm(nn_graph *g, nn_value x, nn_value w_in, nn_value w_state, nn_value b_in, nn_value b_state, nn_value h,
                 nn_value c, nn_value carried, double dropout);
/* Dropout with one mask for all time steps. */
nn_value nn_locked_dropout(nn_graph *g, nn_value x, int64_t batch, double p);
/* Drops whole rows, all rows of an id or none: words, if x is their embedding. */
nn_value nn_word_dropout(nn_graph *g, nn_value x, nn_value ids, double p);
/* Adds size * mean(x^2) + change * mean((z_t - z_(t-1))^2) for each row of x to the loss's element 0: the activation
 * regularisers of AWD-LSTM, AR of outputs after dropout and TAR of those before. */
nn_value nn_activity(nn_graph *g, nn_value loss, nn_value x, nn_value z, int64_t batch, double size, double change);

/* log softmax of each row; forward only. */
nn_value nn_log_softmax(nn_graph *g, nn_value x);

/* ---- decoding: forward only ---- */

/* The n largest numbers of log softmax(x) in each row, in order: [rows, 2 n] has the numbers, then their columns as f32.
 * Among equals the lower column comes first. */
nn_value nn_best(nn_graph *g, nn_value x, int n);

/* Attention of one new token of each hypothesis to those before it and to itself. Row r of q, [q | k | v] with heads,
 * kv_heads and kv_heads heads, is the token at positions[r] of hypothesis r. Its k and v go to row paths[r][positions[r]] of
 * cache, a state [.., k | v]; it sees the rows paths[r][0 .. positions[r]]. So a common prefix is stored once, and nothing
 * moves when one hypothesis replaces another. If the path's end is negative there is no hypothesis: nothing is written, and
 * the result is 0. On the host, rows may also be tokens of one text: all are written before any is read. */
nn_value nn_path_attention(nn_graph *g, nn_value q, nn_value cache, nn_value paths, nn_value positions, int heads,
                           int kv_heads);

/* A step of beam search for many sentences. Sentence i has rows i beam .. (i + 1) beam - 1 of ids, positions and paths (see
 * nn_path_attention), one for each hypothesis. The step takes the output of nn_best, with at least 2 beam + 1 tokens if the
 * vocabulary has them, and writes ids, positions and paths for the next step; results collect in search. All but best are
 * states of i32. Output [sentences, 1]: 1 if the search goes on, else 0. */
enum { NN_MOST_BEAM = 64 };
typedef struct nn_beam_options {
    int beam;
    int max_length;        /* tokens of an output, its end included */
    double length_penalty; /* scores are sums of log p divided by length^penalty */
    int32_t start, end;    /* tokens */
} nn_beam_options;
nn_value nn_beam(nn_graph *g, nn_value best, nn_value search, nn_value ids, nn_value positions, nn_value paths,
                 const nn_beam_options *o);
/* Columns of search: [sentences, words]. paths are [hypotheses, max_length]. */
int64_t nn_beam_words(const nn_beam_options *o);
/* A sentence's rows of the states, on the host. */
typedef struct nn_beam_rows {
    int32_t *search, *ids, *positions, *paths;
} nn_beam_rows;
/* Fills the rows before the first step. The sentence takes beam max_length rows of the cache, from first_row on; negative:
 * there is no sentence here, and steps skip it. */
void nn_beam_begin(const nn_beam_options *o, int64_t first_row, const nn_beam_rows *rows);
/* The (k+1)-th best result in a row of search that has ended; false: the search found fewer. Results that ended by
 * themselves come first. */
typedef struct nn_beam_found {
    const int32_t *tokens; /* without start and end, in that row */
    int length;
    double score;
    bool complete; /* ended by itself, not by max_length */
} nn_beam_found;
bool nn_beam_result(const nn_beam_options *o, const int32_t *search, int k, nn_beam_found *out);

/* Keeps a value after a run: nn_output to be read, nn_keep for nn_plan_copy only. */
void nn_output(nn_graph *g, const char *name, nn_value v);
void nn_keep(nn_graph *g, const char *name, nn_value v);

/* The input, output or kept value of this name; -1: none. */
nn_value nn_named_value(const nn_graph *g, const char *name);
nn_shape nn_shape_of(const nn_graph *g, nn_value v);
/* Floating-point operations of the matrix products in a forward pass at full capacity, without attention. */
double nn_graph_flops(const nn_graph *g);

/* ---- plans ---- */

typedef struct nn_plan nn_plan;

typedef struct nn_plan_options {
    const char *backend; /* "ref" or "cpu"; NULL or "auto": the fastest. On a device: the device's */
    nn_value loss;       /* the value to differentiate; -1: forward only */
    adamod_pool *pool;   /* NULL: one thread */
    bool training;       /* dropout drops */
    bool synced;         /* nn_plan_sync follows */
    bool constant;       /* parameters do not change after the first run: kernels may keep reordered copies */
    /* A plan whose states this one uses, by their names, instead of its own: they have the same columns and no fewer rows
     * there. It must live longer. NULL: none. */
    struct nn_plan *states;
} nn_plan_options;

typedef struct nn_memory {
    size_t values;        /* bytes of the block that holds all values and gradients, reused by lifetime */
    size_t without_reuse; /* bytes they would take without reuse */
    size_t params;        /* parameters, their gradients and persistent states */
    size_t workspace;
} nn_memory;

adamod_status nn_plan_create(nn_plan **out, nn_graph *g, const nn_plan_options *options);
void nn_plan_free(nn_plan *plan);

/* The memory of an input or output, at full capacity, always on the host; NULL: no such name. */
void *nn_plan_data(nn_plan *plan, const char *name);
adamod_status nn_plan_set_rows(nn_plan *plan, int symbol, int64_t rows);
int64_t nn_plan_rows(const nn_plan *plan, int symbol);
/* A run's random numbers follow from these and the op alone. */
void nn_plan_set_random(nn_plan *plan, uint64_t seed, uint64_t step);

/* A device copies inputs when a run begins, works while the host goes on, and reports failures to nn_plan_wait. Two runs
 * may be in flight; a third waits for the first. */
void nn_plan_forward(nn_plan *plan);
/* After forward: adds the gradient of the loss's element 0 to the parameters' gradients, or replaces them. */
void nn_plan_backward(nn_plan *plan, bool accumulate);
/* Makes each backward pass report stretches of `numbers` numbers of the parameters' gradients as soon as they are complete;
 * on a device, as soon as the work that completes them is enqueued. The order is the same for all plans of one graph. ready
 * NULL: no more reports. nn_plan_tell_all reports all stretches without a pass. */
typedef void nn_gradient_ready(void *context, int64_t first, int64_t count);
adamod_status nn_plan_watch(nn_plan *plan, int64_t numbers, nn_gradient_ready *ready, void *context);
void nn_plan_tell_all(nn_plan *plan);
/* Connects processes that run the same plans at the same time, for batch norms after nn_sync_norms; *any: there are some.
 * add replaces each of n numbers by its sum over all processes. On a device the plan needs the option synced, and x is in
 * the device's memory; add enqueues the sum, or waits for it, in which case the plan is not recorded. Fails if the backend
 * has no such norms. */
typedef void nn_add_up(void *context, double *x, int64_t n);
adamod_status nn_plan_sync(nn_plan *plan, nn_add_up *add, void *context, bool waits, bool *any);
/* Defers running statistics, for processes that each run a batch of their own on the host: in training, what a batch adds
 * to statistics that are not synced goes to added, nn_plan_defers numbers. added NULL: statistics take it at once again.
 * nn_plan_take adds the numbers of any process. Taken in the order of batches, statistics have the bits of one process that
 * runs batch after batch. */
int64_t nn_plan_defers(const nn_plan *plan);
void nn_plan_defer(nn_plan *plan, double *added);
void nn_plan_take(nn_plan *plan, const double *added);
/* Waits until the outputs of the oldest run that was not waited for can be read. */
adamod_status nn_plan_wait(nn_plan *plan);

/* Runs steps(context), which calls nn_plan_forward, nn_plan_backward or adamod_step. A device records the second run of a
 * variant and replays it from then on; steps that differ need another variant. */
enum { NN_VARIANTS = 8 };
adamod_status nn_plan_replay(nn_plan *plan, int variant, adamod_status (*steps)(void *context), void *context);

/* Copies the first rows of a value kept by one plan to a state of another, of the same parameters. */
void nn_plan_copy(nn_plan *to, const char *state, nn_plan *from, const char *kept, int64_t rows);
/* Moves rows within a state: rows from[i] .. from[i] + rows[i] - 1 go to to[i]; none overlap. */
void nn_plan_move(nn_plan *plan, const char *state, int64_t n, const int64_t *from, const int64_t *to,
                  const int64_t *rows);
/* Copies rows of an i32 state from the host and back; reading waits for earlier work. */
void nn_plan_write(nn_plan *plan, const char *state, int64_t first, int64_t rows, const int32_t *data);
adamod_status nn_plan_read(nn_plan *plan, const char *state, int64_t first, int64_t rows, int32_t *data);
nn_memory nn_plan_memory(const nn_plan *plan);
/* Whether an op takes a slow way that other settings would avoid; out says which and why, for people. */
bool nn_plan_remark(const nn_plan *plan, char *out, size_t size);
