/* adamod.h - AdaMod and other optimizers for any C or C++ program: the whole interface of libadamod.
 *
 *   1. Simple use        create a rule by name, add parameters, step, free
 *   2. Options           by name, each with its bounds
 *   3. Groups, types     groups of parameters with different options; bf16, f16, f64
 *   4. Schedules         for the learning rate, beta3, or any other real option
 *   5. Statistics        histograms of the learning rates of all elements
 *   6. State             saving and loading as safetensors; training continues bit for bit
 *   7. Raw pointers      stateless updates for programs that own their buffers
 *   8. Version, memory   instruction sets, allocators
 *   9. CUDA              the same handle with parameters on a GPU
 *
 * Failing       The library prints nothing and never exits. A call that fails changes nothing, not even its out
 *               arguments. Any call can fail with ADAMOD_ERROR_ARGUMENT if a pointer it needs is NULL, and with
 *               ADAMOD_ERROR_MEMORY. Any call with a group, parameter number or option can fail with ADAMOD_ERROR_RANGE
 *               or ADAMOD_ERROR_NAME if there is no such one. The comments below name the other causes.
 * Results       They are the same bit for bit for any number of threads, any alignment and any instruction set. The
 *               calling thread's rounding mode, flush-to-zero mode and traps have no effect: calls compute with the
 *               defaults of IEEE 754 and restore the caller's settings.
 * Ownership     An object that a function creates through an out argument (a handle, hyper, schedule or pool) belongs
 *               to the caller. Free it with the matching function; freeing NULL does nothing. The library copies the
 *               names and texts it is given. Names and texts it returns live as long as the program, unless stated
 *               otherwise.
 * Threads       The library has no global state, so different objects are independent. One handle may be used by one
 *               thread at a time. A hyper or a schedule may be read by several, but not while it is changed or freed.
 * fork          A child process may go on using its parent's objects, except handles on a GPU.
 * Stack         A call on the CPU uses at most 32 KB of the calling thread's stack.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_H
#define ADAMOD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(ADAMOD_STATIC) || !defined(__GNUC__)
#define ADAMOD_API
#else
#define ADAMOD_API __attribute__((visibility("default")))
#endif

#define ADAMOD_VERSION_MAJOR 1
#define ADAMOD_VERSION_MINOR 0
#define ADAMOD_VERSION_PATCH 0
#define ADAMOD_VERSION (ADAMOD_VERSION_MAJOR * 10000 + ADAMOD_VERSION_MINOR * 100 + ADAMOD_VERSION_PATCH)

/* The result of a call: 0 on success, a negative value on failure. The values never change meaning. */
typedef enum adamod_status {
    ADAMOD_OK = 0,
    ADAMOD_ERROR_ARGUMENT = -1,       /* a null pointer, overlapping arrays, a negative or overflowing size */
    ADAMOD_ERROR_NAME = -2,           /* no such rule, option, choice or state; a name used twice */
    ADAMOD_ERROR_RANGE = -3,          /* a value outside its bounds; no such group or parameter number */
    ADAMOD_ERROR_ORDER = -4,          /* the call comes too early or too late */
    ADAMOD_ERROR_MEMORY = -5,         /* out of memory: the allocator returned NULL */
    ADAMOD_ERROR_NONFINITE = -6,      /* a gradient is not finite or too large, and nonfinite is "error" */
    ADAMOD_ERROR_IO = -7,             /* the system could not read or write a file */
    ADAMOD_ERROR_FORMAT = -8,         /* a file is malformed or truncated */
    ADAMOD_ERROR_MISMATCH = -9,       /* a file is well-formed, but belongs to another rule or other parameters */
    ADAMOD_ERROR_THREADS = -10,       /* the system could not start a thread */
    ADAMOD_ERROR_NO_CUDA = -11,       /* libadamod_cuda, the driver or a GPU is missing */
    ADAMOD_ERROR_DRIVER = -12,        /* the driver is too old */
    ADAMOD_ERROR_DEVICE = -13,        /* no such device, or memory it cannot reach */
    ADAMOD_ERROR_DEVICE_MEMORY = -14, /* out of device memory */
    ADAMOD_ERROR_CUDA = -15           /* a CUDA call failed */
} adamod_status;

/* Returns a few words that describe status. */
ADAMOD_API const char *adamod_strerror(adamod_status status);
/* Returns one line about the last failure on this thread: what was wrong and what was expected, for example
 * "adamod: adam: lr is -1, expected 0 <= lr < inf". Before the first failure it is "no error". The text is UTF-8,
 * shorter than 512 bytes, and valid until the next failing call on this thread. */
ADAMOD_API const char *adamod_last_error(void);

/* ---- 1. Simple use ------------------------------------------------------------------------------------------------
 *
 *     adamod_optimizer *opt;
 *     if (adamod_create(&opt, "adamod")) return fail(adamod_last_error());
 *     adamod_set(opt, "lr", 1e-3);
 *     adamod_add(opt, "weight", weight, weight_grad, 2, (int64_t[]){128, 64});
 *     adamod_add(opt, "bias", bias, bias_grad, 1, (int64_t[]){128});
 *     for (int t = 0; t < 1000; t++) {
 *         compute_gradients(...);                      // writes weight_grad and bias_grad
 *         if (adamod_step(opt)) return fail(adamod_last_error());
 *     }
 *     adamod_free(opt);
 *
 * The arrays stay yours. They must outlive the handle, or be replaced with adamod_set_param and adamod_set_grad. */
typedef struct adamod_optimizer adamod_optimizer;

/* Creates an optimizer of the given rule ("adamod"; adamod_rule_name lists all) and stores it in *out. "adamw" is
 * "adam" with a weight_decay of 0.01; their state files are the same.
 * Fails with ADAMOD_ERROR_NAME if there is no such rule. */
ADAMOD_API adamod_status adamod_create(adamod_optimizer **out, const char *rule);
/* Frees the optimizer and its states. opt may be NULL. */
ADAMOD_API void adamod_free(adamod_optimizer *opt);

/* Adds a float32 parameter to group 0.
 *   name   for messages and state files. Each parameter needs a different name, in UTF-8 if it is to be saved. NULL:
 *          "param.N".
 *   param  the array that steps update. It must not overlap any other array of the optimizer.
 *   grad   the gradient that steps read. Parameters may share one, but it must overlap nothing else. NULL freezes the
 *          parameter: steps skip it, and its step count does not advance.
 *   ndim   the number of dimensions, 0 to ADAMOD_MAX_DIMS. 0 is a scalar.
 *   shape  ndim sizes; may be NULL if ndim is 0. If a size is 0, param may be NULL.
 * Fails with ADAMOD_ERROR_ARGUMENT for bad pointers or shapes, ADAMOD_ERROR_NAME if the name is taken,
 * ADAMOD_ERROR_RANGE if an option that was set does not suit float32 (section 2). */
ADAMOD_API adamod_status adamod_add(adamod_optimizer *opt, const char *name, float *param, const float *grad, int ndim,
                                    const int64_t *shape);

/* Updates every parameter once, from the gradients as they are now.
 * Fails with ADAMOD_ERROR_ORDER if no parameter was added, ADAMOD_ERROR_RANGE if a schedule leaves its option's bounds,
 * ADAMOD_ERROR_NONFINITE if a gradient is not finite and the option nonfinite is "error". The first step, and the first
 * after parameters were added or threads changed, can also fail with ADAMOD_ERROR_MEMORY or ADAMOD_ERROR_THREADS. */
ADAMOD_API adamod_status adamod_step(adamod_optimizer *opt);

/* Returns the number of updates done. */
ADAMOD_API int64_t adamod_steps(const adamod_optimizer *opt);
/* Returns the number of updates skipped because a gradient was not finite. */
ADAMOD_API int64_t adamod_skipped(const adamod_optimizer *opt);

/* Returns the global gradient norm of the last step, after grad_scale and before clipping. It is negative if the step
 * did not compute it: only clip_norm, nonfinite and statistics need it. */
ADAMOD_API double adamod_grad_norm(const adamod_optimizer *opt);

/* Stores in *out the outcome of one attempt at an update. Attempts are numbered from 1 and include skipped updates: the
 * latest is adamod_steps + adamod_skipped. The last ADAMOD_REPORTS are kept; adamod_load clears them.
 * On a GPU this never blocks; call it once the step's event has fired.
 * Fails with ADAMOD_ERROR_ORDER if the attempt is too long ago or not done yet, ADAMOD_ERROR_RANGE if it is below 1. */
#define ADAMOD_REPORTS 8
typedef struct adamod_step_report {
    int64_t attempt;
    int taken;        /* 1: updated; 0: skipped */
    double grad_norm; /* as adamod_grad_norm */
    double lr;        /* the lr of group 0 in this update, with its schedule applied */
} adamod_step_report;
ADAMOD_API adamod_status adamod_report(const adamod_optimizer *opt, int64_t attempt, adamod_step_report *out);

/* Return the name ("adamod") or a one-line summary of rule number index (0, 1, ...); NULL past the end. */
ADAMOD_API const char *adamod_rule_name(int index);
ADAMOD_API const char *adamod_rule_summary(int index);

/* The shape of a state, for a parameter of a given shape. */
typedef enum adamod_state_shape {
    ADAMOD_SHAPE_SAME = 0,         /* the parameter's */
    ADAMOD_SHAPE_SCALAR = 1,       /* one number */
    ADAMOD_SHAPE_QUEUE = 2,        /* several of the parameter's shape, with their number as first dimension */
    ADAMOD_SHAPE_ROWS = 3,         /* one number for each row of the last two dimensions */
    ADAMOD_SHAPE_COLS = 4,         /* one number for each column of them */
    ADAMOD_SHAPE_FIRST_SQUARE = 5, /* a square matrix whose side is the first dimension; may be empty */
    ADAMOD_SHAPE_OTHERS_SQUARE = 6 /* a square matrix whose side is the product of the others; may be empty */
} adamod_state_shape;

typedef enum adamod_state_presence {
    ADAMOD_STATE_ALWAYS = 0,
    ADAMOD_STATE_WITH_BOUND = 1, /* if the option bound is "momental" */
    ADAMOD_STATE_OPTIONAL = 2    /* depends on other options, or on the number of dimensions; adamod_state_at tells */
} adamod_state_presence;

typedef enum adamod_state_begin {
    ADAMOD_BEGINS_AT_ZERO = 0,
    ADAMOD_BEGINS_AT_OPTION = 1, /* filled with the option initial */
    ADAMOD_BEGINS_AS_PARAM = 2   /* fill with 0; update 1 then copies the parameter into it, before changing that */
} adamod_state_begin;

/* A state that a rule has, or has with some options or shapes. States of the same index exclude one another. */
typedef struct adamod_rule_state {
    const char *name; /* "exp_avg" */
    int index;        /* its place in adamod_span.state */
    adamod_state_shape shape;
    adamod_state_presence presence;
    adamod_state_begin begins;
} adamod_rule_state;

/* Whether a rule bounds each element's learning rate by its running average, as AdaMod does. */
typedef enum adamod_rule_bound {
    ADAMOD_BOUND_NEVER = 0,
    ADAMOD_BOUND_OPTION = 1, /* with the option bound */
    ADAMOD_BOUND_ALWAYS = 2
} adamod_rule_bound;

/* The facts about a rule; adamod_option_at lists its options and their defaults, the kind of weight decay included. */
typedef struct adamod_rule {
    const char *name;    /* as in state files: "adam" for "adamw" */
    const char *summary; /* one line */
    const char *source;  /* where it was published: "arXiv 1412.6980" */
    int year;
    int n_states;
    const adamod_rule_state *states;
    int shaped;           /* 1: the dimensions of a parameter matter, not only the number of its elements */
    int whole_arrays;     /* 1: an update needs all elements of a parameter at once, not a part of them */
    int couples_arrays;   /* 1: the update of a parameter depends on all others in the same call */
    int sparse_gradients; /* 1: without momentum and decay, an element whose gradient is 0 stays as it is */
    int q8_states;        /* 1: state_type may be "q8" */
    int averages;         /* 1: evaluate with other weights than are trained, see adamod_evaluation */
    int uncounted;        /* 1: the number of an update matters only in the first; some programs do not save it */
    adamod_rule_bound bound;
    int signed_states; /* of rules with q8_states, those that can be negative: bit i is for index i. See adamod_q8_encode */
    int matrices_only; /* 1: of rules with whole_arrays: vectors and scalars are updated element by element */
} adamod_rule;

/* Describes a rule in *out. size is sizeof *out: later versions add fields at the end, and a library that does not know
 * a field sets it to 0. Fails with ADAMOD_ERROR_NAME if there is no such rule. */
ADAMOD_API adamod_status adamod_rule_info(const char *rule, adamod_rule *out, size_t size);

/* ---- 2. Options ---------------------------------------------------------------------------------------------------
 *
 * Every rule has its own options (lr, beta1, ...). All rules share these, with their defaults:
 *
 *   weight_decay  0         lambda, the strength of the decay
 *   decay         decoupled how the decay acts:
 *                             none         not at all
 *                             l2           added to the gradient; the default of sgd, adagrad, rmsprop and adadelta
 *                             decoupled    p -= lr * lambda * p, as in the paper and AdamW
 *                             independent  p -= lambda * p, whatever the learning rate
 *   maximize      0         1: ascend
 *   clip_value    inf       gradients are clamped to [-clip_value, clip_value]
 *   low_precision master    for bf16 and f16 parameters:
 *                             master       keep an fp32 copy of the parameter
 *                             stochastic   keep none and round at random
 *   state_type    auto      the type of the states:
 *                             auto         f32, or f64 for f64 parameters
 *                             bf16         half the memory, rounded at random
 *                             q8           a quarter: 8 bits in blocks of 256, each with a scale; for rules with q8_states
 *   min_8bit_size 0         with state_type q8, parameters with fewer elements than this use auto
 *
 * These belong to the optimizer as a whole, not to a group:
 *
 *   grad_scale    1         gradients are multiplied by this first (1 / loss scale)
 *   clip_norm     inf       all gradients are scaled so that their global norm is at most this
 *   nonfinite     pass      what to do if a gradient has a NaN, an infinity or a number whose square overflows
 *                           (1.8e19 in f32), after scaling and clipping, in its type of computation:
 *                             pass         do not check
 *                             skip         skip the update: nothing changes, and adamod_skipped counts it
 *                             error        fail the step: nothing changes
 *   seed          0         seed of stochastic rounding
 *   threads       0         number of threads; 0: one for each core this process may use
 *
 * Bounds depend on the type of computation: f64 for f64 parameters with f64 states, else f32. A value is refused with
 * ADAMOD_ERROR_RANGE if it, or a number computed from it, would become 0 or infinite in that type. This is checked as
 * soon as value and type are both known: by adamod_set if such parameters were added, by adamod_add if the option was
 * set, and by adamod_step for schedules and for lr / eps. An eps of 0 is always refused, except by adashift: elements
 * whose gradients are all zero would compute 0 / 0.
 */
typedef enum adamod_option_kind { ADAMOD_REAL = 0, ADAMOD_INTEGER = 1, ADAMOD_CHOICE = 2 } adamod_option_kind;

typedef struct adamod_option {
    const char *name;
    const char *help;
    adamod_option_kind kind;
    double value;               /* the default; for a choice, its index in choices */
    double min, max;            /* bounds, before the type of computation narrows them */
    int min_open, max_open;     /* 1: the bound itself is not allowed */
    const char *const *choices; /* NULL-terminated, for a choice */
    int structural;             /* 1: it decides which states exist, so it is fixed once its group has a parameter */
    int optimizer_wide;         /* 1: it belongs to the optimizer, not to a group */
} adamod_option;

/* Describes option number index (0, 1, ...) of a rule in *out. Fails with ADAMOD_ERROR_NAME past the end. */
ADAMOD_API adamod_status adamod_option_at(const char *rule, int index, adamod_option *out);
/* Describes the option with the given name in *out. Fails with ADAMOD_ERROR_NAME if the rule has none. */
ADAMOD_API adamod_status adamod_option_find(const char *rule, const char *name, adamod_option *out);

/* Sets an option for all groups, including those added later. For a choice, value is its index.
 * Fails with ADAMOD_ERROR_RANGE if the value is out of bounds, ADAMOD_ERROR_ORDER if a structural option would change
 * the states of a parameter that was added. */
ADAMOD_API adamod_status adamod_set(adamod_optimizer *opt, const char *option, double value);
/* Like adamod_set, with the value as text: a number, or the word of a choice ("decoupled"). */
ADAMOD_API adamod_status adamod_set_text(adamod_optimizer *opt, const char *option, const char *text);
/* Stores in *out the value set for group 0, without its schedule; adamod_scheduled applies the schedule. */
ADAMOD_API adamod_status adamod_get(const adamod_optimizer *opt, const char *option, double *out);

/* ---- 3. Groups and types ------------------------------------------------------------------------------------------
 *
 * Parameters of a group share their options. Group 0 always exists. New groups are numbered 1, 2, ... */
typedef enum adamod_type {
    ADAMOD_F32 = 0,
    ADAMOD_F64 = 1,
    ADAMOD_BF16 = 2,
    ADAMOD_F16 = 3,
    ADAMOD_Q8 = 4 /* for states only: 8-bit codes, with scales in an array of their own */
} adamod_type;
#define ADAMOD_Q8_BLOCK 256 /* number of codes that share a scale */

/* Adds a group with the options and schedules of group 0, and stores its number in *group. */
ADAMOD_API adamod_status adamod_add_group(adamod_optimizer *opt, int *group);
/* Like adamod_set, adamod_set_text and adamod_get, for one group.
 * The setters fail with ADAMOD_ERROR_ARGUMENT for an option of the optimizer as a whole. */
ADAMOD_API adamod_status adamod_group_set(adamod_optimizer *opt, int group, const char *option, double value);
ADAMOD_API adamod_status adamod_group_set_text(adamod_optimizer *opt, int group, const char *option, const char *text);
ADAMOD_API adamod_status adamod_group_get(const adamod_optimizer *opt, int group, const char *option, double *out);

#define ADAMOD_MAX_DIMS 8
#define ADAMOD_MAX_STATES 8

/* A parameter of any type. Initialize it with {0} and fill in what is needed. f64 parameters are computed in f64, all
 * others in f32. Parameter and gradient may have different types, but not ADAMOD_Q8. name, param, grad, ndim and shape
 * are as in adamod_add. */
typedef struct adamod_tensor {
    const char *name;
    void *param;
    const void *grad;
    adamod_type param_type, grad_type;
    int ndim;
    int64_t shape[ADAMOD_MAX_DIMS];
    /* Your own fp32 master of a bf16 or f16 parameter, with low_precision=master. Before the first step, param must be
     * this array rounded to nearest. adamod_save does not save it. NULL: the library keeps a master, copied from param.
     * In both cases you may change elements of param between steps: an update starts from param wherever it differs
     * from the rounded master. */
    float *master;
    /* Your own arrays for all states of the rule, of the sizes adamod_state_at gives. The library updates them, but
     * does not fill, free or save them. All NULL: the library keeps the states. */
    void *state[ADAMOD_MAX_STATES];
    /* The scales of your own 8-bit states: one for each block of ADAMOD_Q8_BLOCK elements, the last of which
     * may be shorter. Codes and scales start at 0. */
    float *scale[ADAMOD_MAX_STATES];
} adamod_tensor;

/* Adds a parameter to a group, and stores its number in *id: 0, 1, 2, ... in the order of adding. id may be NULL.
 * Fails as adamod_add does. */
ADAMOD_API adamod_status adamod_add_tensor(adamod_optimizer *opt, int group, const adamod_tensor *tensor, int64_t *id);
/* Returns the number of parameters. */
ADAMOD_API int64_t adamod_tensors(const adamod_optimizer *opt);

/* Replace the array of a parameter, or that of its gradient, by another of the same type and size. A NULL grad freezes
 * the parameter. They fail with ADAMOD_ERROR_ARGUMENT if arrays overlap. */
ADAMOD_API adamod_status adamod_set_param(adamod_optimizer *opt, int64_t id, void *param);
ADAMOD_API adamod_status adamod_set_grad(adamod_optimizer *opt, int64_t id, const void *grad);
/* Replaces the arrays of n parameters in one call. If anything fails, none is replaced.
 *   ids     the numbers of the parameters; NULL: the first n.
 *   params  n new arrays; NULL: keep all.
 *   grads   n new gradients; NULL: keep all. A NULL among them freezes that parameter. */
ADAMOD_API adamod_status adamod_set_arrays(adamod_optimizer *opt, int64_t n, const int64_t *ids, void *const *params,
                                           const void *const *grads);

/* ---- 4. Schedules -------------------------------------------------------------------------------------------------
 *
 * A schedule computes the value of an option in each update, from the number t of the update (1, 2, ...) and the base,
 * the value that was set. adamod_set_schedule copies it, so you may free yours at any time.
 *
 *     adamod_schedule *s;
 *     adamod_schedule_warmup_rsqrt(&s, 1e-7, 4000);   // Adam as the paper trains Transformers
 *     adamod_set_schedule(opt, -1, "lr", s);
 *     adamod_schedule_free(s);
 */
typedef struct adamod_schedule adamod_schedule;

/* Each of these stores a new schedule in *out. They fail with ADAMOD_ERROR_RANGE if steps or a length is below 1 or a
 * number is not finite. The formula is the value in update t. */

/* base */
ADAMOD_API adamod_status adamod_schedule_constant(adamod_schedule **out);
/* base * factor^k after k milestones. Milestones are n ascending update numbers; the new value starts in the update
 * after the milestone. */
ADAMOD_API adamod_status adamod_schedule_multistep(adamod_schedule **out, int n, const int64_t *milestones,
                                                   double factor);
/* start + (base - start) * t / steps for the first steps updates, then base: the paper's warm-up */
ADAMOD_API adamod_status adamod_schedule_warmup(adamod_schedule **out, double start, int64_t steps);
/* warm-up as above, then base * sqrt(steps / t) */
ADAMOD_API adamod_status adamod_schedule_warmup_rsqrt(adamod_schedule **out, double start, int64_t steps);
/* base for the first steps updates, then base * sqrt(steps / t): what the paper uses with AdaMod */
ADAMOD_API adamod_status adamod_schedule_constant_rsqrt(adamod_schedule **out, int64_t steps);
/* from base to end along half a cosine in steps updates, then end */
ADAMOD_API adamod_status adamod_schedule_cosine(adamod_schedule **out, double end, int64_t steps);
/* from base to end along a line in steps updates, then end; for beta3, say 0.9 to 0.9999 */
ADAMOD_API adamod_status adamod_schedule_linear(adamod_schedule **out, double end, int64_t steps);
/* parts[0] for lengths[0] updates, then parts[1] for lengths[1], and so on. Each part counts its own updates from 1.
 * The last part never ends; its length is not read. The parts are copied. Chains may be nested ADAMOD_MAX_CHAINS deep;
 * deeper ones fail with ADAMOD_ERROR_RANGE. */
#define ADAMOD_MAX_CHAINS 64
ADAMOD_API adamod_status adamod_schedule_chain(adamod_schedule **out, int n, const adamod_schedule *const *parts,
                                               const int64_t *lengths);
/* Creates a schedule from text: "constant", "multistep(150,225;0.1)", "warmup(1e-7,4000)", "warmup_rsqrt(1e-7,4000)",
 * "constant_rsqrt(4000)", "cosine(0,10000)", "linear(0.9999,1000)", "warmup(0,500)*500 > cosine(0,10000)".
 * Fails with ADAMOD_ERROR_ARGUMENT if the text is malformed; adamod_last_error says where. */
ADAMOD_API adamod_status adamod_schedule_parse(adamod_schedule **out, const char *text);
/* Returns the value of the schedule in update t = 1, 2, ... With s NULL it returns base. */
ADAMOD_API double adamod_schedule_value(const adamod_schedule *s, double base, int64_t t);
/* Frees a schedule. s may be NULL. */
ADAMOD_API void adamod_schedule_free(adamod_schedule *s);

/* Sets the schedule of an option for one group, or for all if group is -1. s NULL removes it.
 * Fails with ADAMOD_ERROR_ARGUMENT unless the option is real, belongs to groups and is not structural. */
ADAMOD_API adamod_status adamod_set_schedule(adamod_optimizer *opt, int group, const char *option,
                                             const adamod_schedule *s);
/* Stores in *out the value of an option in the next update, with its schedule applied. */
ADAMOD_API adamod_status adamod_scheduled(const adamod_optimizer *opt, int group, const char *option, double *out);
/* Stores in *out the value of an option in update t = 1, 2, ... This never waits for a device. */
ADAMOD_API adamod_status adamod_scheduled_at(const adamod_optimizer *opt, int group, const char *option, int64_t t,
                                             double *out);

/* ---- 5. Statistics ------------------------------------------------------------------------------------------------
 *
 * eta is the learning rate of an element before the bound: alpha / (sqrt(v) + eps) in Adam and AdaMod, the learning
 * rate itself in sgd. step is the learning rate after the bound. adamod_step collects them while collection is on; when
 * off it costs nothing.
 *
 * Bin i of a histogram counts the values with ADAMOD_HIST_LOW + i * width <= log10(value) < ADAMOD_HIST_LOW + (i + 1) *
 * width, where width = (HIGH - LOW) / BINS. Zeros and smaller values are in the first bin, larger ones in the last. */
#define ADAMOD_HIST_BINS 200
#define ADAMOD_HIST_LOW (-12.0)
#define ADAMOD_HIST_HIGH 8.0

typedef struct adamod_statistics {
    int64_t elements;                       /* elements counted: those with finite eta and step */
    double bounded;                         /* fraction of elements whose step is below their eta */
    double eta_min, eta_median, eta_max;    /* before the bound; the median is exact to 5 % */
    double step_min, step_median, step_max; /* after the bound */
    double grad_norm, update_norm;          /* norms of the gradient as the rule sees it, and of the update */
    int64_t eta[ADAMOD_HIST_BINS];
    int64_t step[ADAMOD_HIST_BINS];
    /* elements whose parameter, or one of whose states, is a NaN or infinite; many of them never move again */
    int64_t nonfinite;
    /* Elements of eta and step that never had a gradient: their second moment is still 0, so their eta is
     * lr / eps, the largest possible. Zero for rules without a second moment for each element. */
    int64_t idle_eta[ADAMOD_HIST_BINS];
    int64_t idle_step[ADAMOD_HIST_BINS];
} adamod_statistics;

/* Switches collection on (1) or off (0, the default). */
ADAMOD_API adamod_status adamod_collect(adamod_optimizer *opt, int on);
/* Stores in *out the statistics of the last update that was not skipped, for one group, or for all if group is -1.
 * update_norm and nonfinite are taken before any rounding to 16 or 8 bits.
 * Fails with ADAMOD_ERROR_ORDER if that update was not collected. */
ADAMOD_API adamod_status adamod_get_statistics(const adamod_optimizer *opt, int group, adamod_statistics *out);

/* ---- 6. State -----------------------------------------------------------------------------------------------------
 *
 * A state file is a safetensors file with "NAME.exp_avg", "NAME.exp_avg_sq", "NAME.exp_avg_lr", "NAME.step", ... for
 * each parameter. It holds the masters the library keeps, but not the parameters: save those yourself. */

/* Saves the state to path: writes a temporary file, syncs it and renames it.
 * Fails with ADAMOD_ERROR_IO if the system cannot write, ADAMOD_ERROR_ARGUMENT if a name is not UTF-8,
 * ADAMOD_ERROR_ORDER during an evaluation. */
ADAMOD_API adamod_status adamod_save(const adamod_optimizer *opt, const char *path);
/* Loads the state from path. The optimizer then continues exactly as the one that saved it. An element of a loaded
 * master is used where the parameter equals it, rounded. The whole file is checked, checksums included, before anything
 * changes.
 * Fails with ADAMOD_ERROR_IO if the file cannot be read, ADAMOD_ERROR_FORMAT if it is malformed or damaged,
 * ADAMOD_ERROR_MISMATCH if it belongs to another rule or other parameters, ADAMOD_ERROR_ORDER during an evaluation. */
ADAMOD_API adamod_status adamod_load(adamod_optimizer *opt, const char *path);

/* Switches a schedule-free rule (schedulefree_adamw, schedulefree_sgd) to evaluation (on = 1) or back to training (0).
 * During evaluation the parameters hold the averaged weights: read them, but do not write them. Switching back restores
 * the training weights, bit for bit. In between, adamod_step, adamod_save and adamod_load fail with
 * ADAMOD_ERROR_ORDER: parameters saved then would be other weights than those that training continues from.
 * The call keeps a copy of the parameters in host memory; on a GPU it waits for the stream. It does nothing for other
 * rules, or if the optimizer is in that mode already. */
ADAMOD_API adamod_status adamod_evaluation(adamod_optimizer *opt, int on);

/* Gives access to a state of parameter id.
 *   state  "exp_avg", ...; "master" for the master; "exp_avg_scale" for the scales of an 8-bit state.
 *   data   receives a pointer to the state in memory. The library owns it. It is valid until the next load or free. You
 *          may write the state between steps. After writing a master, write its parameter too, rounded from it.
 *   type, count  receive its type and number of elements; each may be NULL.
 * Fails with ADAMOD_ERROR_NAME if the parameter has no such state. */
ADAMOD_API adamod_status adamod_state(const adamod_optimizer *opt, int64_t id, const char *state, void **data,
                                      adamod_type *type, int64_t *count);
/* Stores in *steps the step count of parameter id: how many updates it has had. */
ADAMOD_API adamod_status adamod_tensor_steps(const adamod_optimizer *opt, int64_t id, int64_t *steps);
/* Stores the step counts of the first n parameters in steps[0] to steps[n - 1]. */
ADAMOD_API adamod_status adamod_all_tensor_steps(const adamod_optimizer *opt, int64_t n, int64_t *steps);
/* Sets the step count of parameter id, for states of your own that have had updates before. Raises adamod_steps, which
 * schedules follow, to at least steps. After the first step on a GPU, this waits for the stream.
 * Fails with ADAMOD_ERROR_RANGE unless 0 <= steps < 2^62; counts do not grow beyond that. */
ADAMOD_API adamod_status adamod_set_tensor_steps(adamod_optimizer *opt, int64_t id, int64_t steps);

/* ---- 7. Raw pointers ----------------------------------------------------------------------------------------------
 *
 * For programs that own all buffers: a rule with its options (adamod_hyper), arrays (adamod_span), one call.
 *
 *     adamod_hyper *h;
 *     adamod_hyper_create(&h, "adamod");
 *     adamod_hyper_set(h, "lr", 1e-3);
 *     adamod_span x = {.param = p, .grad = g, .state = {m, v, s}, .count = n, .step = 1};
 *     adamod_update(h, &x, 1, NULL);                    // the first update; m, v, s start at 0
 *
 * adamod_state_at describes what adamod_span.state[i] must be; leave it NULL where the rule has no state. Nothing is
 * kept between calls. */
typedef struct adamod_hyper adamod_hyper;
typedef struct adamod_pool adamod_pool;

typedef struct adamod_span {
    void *param;
    const void *grad;
    void *master; /* f32 copy of a bf16 or f16 param, see adamod_tensor.master; NULL: stochastic rounding */
    void *state[ADAMOD_MAX_STATES];
    adamod_type param_type, grad_type, state_type; /* state_type: f64 for f64 parameters, else f32; or bf16, or q8 */
    int ndim; /* arrays of 2 and more are matrices to adafactor, muon and soap; other rules need only count */
    int64_t shape[ADAMOD_MAX_DIMS]; /* read when ndim > 0; its product must be count */
    int64_t count;
    int64_t step;                   /* number of this update of the array; the first is 1 */
    uint64_t stream;                /* random stream for stochastic rounding; give each array a different one */
    void *scale[ADAMOD_MAX_STATES]; /* f32 scales of q8 states, see adamod_tensor.scale */
} adamod_span;

typedef struct adamod_state_desc {
    const char *name; /* "exp_avg"; NULL: no state at this index */
    int64_t count;
    int ndim;
    int64_t shape[ADAMOD_MAX_DIMS];
    double initial; /* fill with this before the first update */
} adamod_state_desc;

/* The options of a rule: create, free, set, get. They work and fail as adamod_create, adamod_free, adamod_set,
 * adamod_set_text and adamod_get do. Setting clip_norm, nonfinite or threads fails with ADAMOD_ERROR_ARGUMENT: these
 * need an optimizer. */
ADAMOD_API adamod_status adamod_hyper_create(adamod_hyper **out, const char *rule);
ADAMOD_API void adamod_hyper_free(adamod_hyper *h);
ADAMOD_API adamod_status adamod_hyper_set(adamod_hyper *h, const char *option, double value);
ADAMOD_API adamod_status adamod_hyper_set_text(adamod_hyper *h, const char *option, const char *text);
ADAMOD_API adamod_status adamod_hyper_get(const adamod_hyper *h, const char *option, double *out);
/* Checks whether the options suit parameters of this type, with states as the option state_type says; see the bounds in
 * section 2. adamod_update does this check itself.
 * Fails with ADAMOD_ERROR_RANGE if they do not. */
ADAMOD_API adamod_status adamod_hyper_check(const adamod_hyper *h, adamod_type param_type);

/* Describes in *out the state number index (0 <= index < ADAMOD_MAX_STATES) of an array of this shape. out->name is
 * NULL if the rule has no state there. */
ADAMOD_API adamod_status adamod_state_at(const adamod_hyper *h, int ndim, const int64_t *shape, int index,
                                         adamod_state_desc *out);

/* Updates n arrays once, with the threads of pool; NULL: on this thread only. Arrays whose grad is NULL are skipped.
 * To clip the norm, or to find gradients that are not finite, use adamod_norm and the option grad_scale.
 * Fails with ADAMOD_ERROR_ARGUMENT for bad or overlapping arrays, ADAMOD_ERROR_RANGE if a step is below 1 or the
 * options do not suit a type. */
ADAMOD_API adamod_status adamod_update(const adamod_hyper *h, const adamod_span *spans, size_t n, adamod_pool *pool);
/* Validates n arrays, each with its own hyper, without changing anything. Use it before updating several groups: it
 * fails where adamod_update would fail, and also if arrays of different groups overlap. */
ADAMOD_API adamod_status adamod_check(const adamod_hyper *const *hypers, const adamod_span *spans, size_t n);
/* Like adamod_update, and stores in *out the statistics of all n arrays together. */
ADAMOD_API adamod_status adamod_update_collect(const adamod_hyper *h, const adamod_span *spans, size_t n,
                                               adamod_pool *pool, adamod_statistics *out);

/* Convert a state of count elements to 8 bits and back, on the host. index is 0 for a state that can be negative, as
 * adamod_rule.signed_states tells, and 1 for any other. Encoding rounds to nearest, while an update rounds at random.
 * Encoding decoded values is exact, and a zero stays zero. An infinity becomes the largest number, 3.19e38. A NaN makes its
 * whole block NaN: the scale is a NaN. */
ADAMOD_API adamod_status adamod_q8_encode(int index, int64_t count, const float *values, uint8_t *codes, float *scales);
ADAMOD_API adamod_status adamod_q8_decode(int index, int64_t count, const uint8_t *codes, const float *scales,
                                          float *values);

/* Stores in *norm the global norm of the gradients of n arrays. It is infinite or NaN if any gradient is not finite.
 * The instruction set is the pool's; without a pool, the best one. */
ADAMOD_API adamod_status adamod_norm(const adamod_span *spans, size_t n, adamod_pool *pool, double *norm);

/* Creates a pool of threads, to share between handles and raw calls.
 *   threads  number of threads, including the calling one: 1 to 1024; 0: one for each core this process may use.
 * The pool must outlive its users. Calls made at the same time take turns. The threads of pools and handles block all
 * signals, so that these reach the program's own threads.
 * Fails with ADAMOD_ERROR_RANGE for another number, ADAMOD_ERROR_THREADS if the system cannot start a thread. */
ADAMOD_API adamod_status adamod_pool_create(adamod_pool **out, int threads);
/* Frees a pool. pool may be NULL. */
ADAMOD_API void adamod_pool_free(adamod_pool *pool);
/* Returns the number of threads, the calling thread included; 1 for NULL. */
ADAMOD_API int adamod_pool_threads(const adamod_pool *pool);
/* Makes the optimizer use a pool. NULL removes it, and so does setting the option threads. */
ADAMOD_API adamod_status adamod_set_pool(adamod_optimizer *opt, adamod_pool *pool);

/* ---- 8. Version, instruction sets, memory ----------------------------------------------------------------------- */
ADAMOD_API int adamod_version(void);                /* returns ADAMOD_VERSION of the linked library */
ADAMOD_API const char *adamod_version_string(void); /* "MAJOR.MINOR.PATCH" */

/* Returns the name of instruction set number index that this processor can run, best first ("avx512", "avx2", "plain");
 * NULL past the end. The library uses the best, unless the environment variable ADAMOD_ISA names another when a handle,
 * hyper or pool is created. It reads the variable at no other time, and never in a set-user-ID program. */
ADAMOD_API const char *adamod_isa_name(int index);
/* Returns the name of the instruction set a handle uses; "cuda" on a GPU. */
ADAMOD_API const char *adamod_isa(const adamod_optimizer *opt);

/* Your own allocator for the handle, the states and the masters.
 *   alloc    returns size bytes aligned to alignment (a power of two), or NULL if out of memory. They need not be
 *            zeroed.
 *   free     gets a pointer from alloc and the size that was asked for.
 *   context  is passed to both. It must outlive the handle.
 * Both are called on the thread that creates, adds, loads or frees, never during a step. */
typedef struct adamod_allocator {
    void *(*alloc)(void *context, size_t size, size_t alignment);
    void (*free)(void *context, void *pointer, size_t size);
    void *context;
} adamod_allocator;

/* Like adamod_create, with an allocator, which is copied. NULL: malloc's. */
ADAMOD_API adamod_status adamod_create_with(adamod_optimizer **out, const char *rule,
                                            const adamod_allocator *allocator);
/* Stores in *states the bytes of states and masters, in *other those of all else in the handle. Each may be NULL. */
ADAMOD_API void adamod_memory(const adamod_optimizer *opt, size_t *states, size_t *other);

/* ---- 9. CUDA ------------------------------------------------------------------------------------------------------
 *
 * A handle whose parameters and gradients are in a GPU's memory has the same functions:
 *
 *     adamod_create_on(&opt, "adamod", "cuda");            // "cuda:1" for the second GPU, "cpu" for what create gives
 *     adamod_set_stream(opt, stream);                      // the default stream unless set
 *     adamod_add(opt, "weight", weight, weight_grad, 2, shape);
 *     adamod_step(opt);                                    // enqueued; the host does not wait
 *
 * Pointers     All pointers to parameters, gradients and states (adamod_state) are device pointers. Arrays of your own
 *              may also be in page-locked host memory (cudaHostAlloc), which kernels reach over the bus.
 * Results      In f32 and below they are the CPU's bit for bit, except where CUDA's pow rounds a number of the whole
 *              step differently. In f64 some last bits may differ. State files are the same: any device can load them.
 * Steps        adamod_step neither blocks nor allocates, except the first after parameters or groups were added.
 * CUDA graphs  After one step outside, a step can be captured into a CUDA graph. A replay counts as a step, follows the
 *              schedules and uses the options set since. The graph fixes the pointers, and whether clip_norm, nonfinite
 *              and statistics are in use.
 * Blocking     These wait for the stream: adamod_steps, adamod_skipped, adamod_grad_norm, adamod_tensor_steps,
 *              adamod_all_tensor_steps, adamod_set_tensor_steps, adamod_scheduled, adamod_get_statistics, adamod_save,
 *              adamod_load, adamod_sync, adamod_free. None of them is allowed during a capture. adamod_report never
 *              blocks.
 * Failing      A step can fail on the device: a gradient is not finite with nonfinite=error, or a scheduled value is
 *              out of bounds. Such a step changes nothing. adamod_sync, or the next adamod_step that finds it, then
 *              fails once and adamod_last_error says why. */

/* Creates an optimizer on a device: "cpu", "cuda" or "cuda:N".
 * Fails as adamod_create does; with ADAMOD_ERROR_NAME for another name, ADAMOD_ERROR_NO_CUDA or ADAMOD_ERROR_DRIVER if
 * CUDA cannot be used, ADAMOD_ERROR_DEVICE if there is no such GPU. */
ADAMOD_API adamod_status adamod_create_on(adamod_optimizer **out, const char *rule, const char *device);
/* Returns the device, "cpu" or "cuda:0". The text lives as long as the handle. */
ADAMOD_API const char *adamod_device(const adamod_optimizer *opt);

/* Returns ADAMOD_OK if CUDA can be used here. If not, adamod_last_error says why. The kernels are in
 * libadamod_cuda.so.0, which is searched for beside this library, then beside the program (of one that is linked
 * statically, also in ../lib and ../lib64), then in the system's library path. The environment variable
 * ADAMOD_CUDA_LIBRARY names another file. A set-user-ID program, or another with more rights than its user, searches only
 * the system's library path. */
ADAMOD_API adamod_status adamod_cuda_status(void);

typedef struct adamod_cuda_device {
    char name[256];
    int major, minor;           /* compute capability */
    size_t memory, free_memory; /* in bytes */
    int driver;                 /* the newest CUDA version the driver supports: 13000 is 13.0 */
} adamod_cuda_device;
/* Describes device number index (0, 1, ...) in *out. Fails with ADAMOD_ERROR_DEVICE past the end. */
ADAMOD_API adamod_status adamod_cuda_device_at(int index, adamod_cuda_device *out);

/* Sets the stream of all further work: a cudaStream_t; NULL is the default stream. Work already enqueued on the
 * previous stream runs first. A stream must exist until another is set or the handle is freed. */
ADAMOD_API adamod_status adamod_set_stream(adamod_optimizer *opt, void *stream);
/* Waits until every step is done. Fails if a step failed on the device; see above. */
ADAMOD_API adamod_status adamod_sync(adamod_optimizer *opt);

/* Makes each step read a real option from device memory instead of the value that was set. Schedules use it as their
 * base.
 *   group  one group, or -1 for all.
 *   value  a device pointer to one number; NULL: use the value that was set again.
 *   type   ADAMOD_F32 or ADAMOD_F64. */
ADAMOD_API adamod_status adamod_set_device_value(adamod_optimizer *opt, int group, const char *option,
                                                 const void *value, adamod_type type);
/* Connects a gradient scaler that is on the device.
 *   scale      the loss scale: each step divides the gradients by *scale. NULL: no scaling.
 *   found_inf  if *found_inf is not 0, the step is skipped, and adamod_skipped counts it. NULL: never. */
ADAMOD_API adamod_status adamod_set_scaler(adamod_optimizer *opt, const float *scale, const float *found_inf);

#ifdef __cplusplus
}
#endif
#endif
