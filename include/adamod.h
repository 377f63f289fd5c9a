/* adamod.h - AdaMod, and every optimizer its paper names, for any C or C++ program.
 *
 *   1. Simple use        create a rule by name, add parameters, step, free
 *   2. Options           by name, with bounds that can be asked for
 *   3. Groups, types     parameters with options of their own; bf16, f16, f64
 *   4. Schedules         for the learning rate, beta3, or any other real option
 *   5. Statistics        the learning rate of every single element, as histograms
 *   6. State             saved and loaded as safetensors, continued bit for bit
 *   7. Raw pointers      stateless updates for programs that own their buffers
 *   8. Errors, version, memory
 *   9. CUDA              the same handle with parameters on a GPU
 *
 * The library keeps no global state, prints nothing and never exits. A call that fails changes nothing, what its out
 * arguments point to included. Results are the same bit for bit for any number of threads, any alignment and any
 * instruction set; and whatever the calling thread has set of rounding, flushing subnormal numbers to zero or trapping:
 * calls compute as IEEE 754 has it by default, and leave that as it was.
 *
 * What a function makes through an out argument (a handle, hyper, schedule or pool) is the caller's, to be freed with
 * the function of its name; freeing NULL is fine. Names and texts that are given are copied. Those that are returned
 * live as long as the program, unless it is said otherwise.
 *
 * One handle may be used by one thread at a time, and so may a hyper or schedule while it is changed or freed;
 * different ones are independent. A child process after fork may go on with what it has of its parent's, but for
 * handles on a GPU.
 *
 * No call takes more than 32 KB of its thread's stack, on the CPU.
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

#define ADAMOD_VERSION_MAJOR 0
#define ADAMOD_VERSION_MINOR 1
#define ADAMOD_VERSION_PATCH 0
#define ADAMOD_VERSION (ADAMOD_VERSION_MAJOR * 10000 + ADAMOD_VERSION_MINOR * 100 + ADAMOD_VERSION_PATCH)

/* Zero is success, failures are negative. The values never change meaning. */
typedef enum adamod_status {
    ADAMOD_OK = 0,
    ADAMOD_ERROR_ARGUMENT = -1,       /* a null pointer, overlapping arrays, a negative or overflowing size */
    ADAMOD_ERROR_NAME = -2,           /* no such rule, option, choice, parameter or state */
    ADAMOD_ERROR_RANGE = -3,          /* a value outside its bounds */
    ADAMOD_ERROR_ORDER = -4,          /* not possible any more, or not yet */
    ADAMOD_ERROR_MEMORY = -5,         /* the allocator returned null */
    ADAMOD_ERROR_NONFINITE = -6,      /* a gradient is not finite or too large, and the policy is "error" */
    ADAMOD_ERROR_IO = -7,             /* the system could not read or write a file */
    ADAMOD_ERROR_FORMAT = -8,         /* a file is malformed or truncated */
    ADAMOD_ERROR_MISMATCH = -9,       /* a file is well-formed, but belongs to another rule or other parameters */
    ADAMOD_ERROR_THREADS = -10,       /* the system would not start a thread */
    ADAMOD_ERROR_NO_CUDA = -11,       /* libadamod_cuda, a driver or a GPU is not there */
    ADAMOD_ERROR_DRIVER = -12,        /* the driver is too old */
    ADAMOD_ERROR_DEVICE = -13,        /* no such device, or memory that it cannot reach */
    ADAMOD_ERROR_DEVICE_MEMORY = -14, /* the device has not so much memory left */
    ADAMOD_ERROR_CUDA = -15           /* a CUDA call failed */
} adamod_status;

/* A few words for a status; and one line about the last failure on this thread, naming what was wrong and what was
 * expected ("adamod: adam: lr is -1, expected 0 <= lr < inf"; "no error" before the first). It is UTF-8, below 512
 * bytes, and lives until the thread's next failing call. */
ADAMOD_API const char *adamod_strerror(adamod_status status);
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
 * The arrays stay yours and must outlive the handle, or be replaced with adamod_set_param and adamod_set_grad. */
typedef struct adamod_optimizer adamod_optimizer;

ADAMOD_API adamod_status adamod_create(adamod_optimizer **out, const char *rule);
ADAMOD_API void adamod_free(adamod_optimizer *opt); /* NULL is fine */

/* Adds one parameter of float32, to group 0. Names are used in messages and state files and must differ; to be saved
 * they must be UTF-8; NULL gives "param.N". param and grad must not overlap each other or what else was added, but
 * gradients may be shared. A NULL grad is a frozen parameter: it is passed over, and its step count stands still. ndim
 * 0 is a scalar, shape may then be NULL; an array without elements may be NULL, too. */
ADAMOD_API adamod_status adamod_add(adamod_optimizer *opt, const char *name, float *param, const float *grad, int ndim,
                                    const int64_t *shape);

/* One update of every parameter, from the gradients as they are now. ADAMOD_ERROR_ORDER if there is no parameter,
 * ADAMOD_ERROR_RANGE if a schedule leaves its option's bounds, ADAMOD_ERROR_NONFINITE if that option says so; and the
 * first step, or the first with more parameters or other threads, may lack memory or threads. */
ADAMOD_API adamod_status adamod_step(adamod_optimizer *opt);

ADAMOD_API int64_t adamod_steps(const adamod_optimizer *opt);   /* updates done */
ADAMOD_API int64_t adamod_skipped(const adamod_optimizer *opt); /* updates skipped because a gradient was not finite */

/* The global gradient norm of the last step, after grad_scale and before clipping; negative where no option needed it
 * (clip_norm, nonfinite and statistics do). */
ADAMOD_API double adamod_grad_norm(const adamod_optimizer *opt);

/* What an attempt at an update gave. Attempts are the updates done and skipped, together: 1, 2, ..., and the latest is
 * adamod_steps + adamod_skipped. The last ADAMOD_REPORTS are kept; loading forgets them. On a GPU this never waits: who
 * knows by an event that a step is done reads here what came of it. ADAMOD_ERROR_ORDER if the attempt is not among them,
 * too long ago or not done yet. */
#define ADAMOD_REPORTS 8
typedef struct adamod_step_report {
    int64_t attempt;
    int taken;        /* 0: skipped */
    double grad_norm; /* as adamod_grad_norm */
    double lr;        /* the option lr of group 0 in this update, as its schedule said */
} adamod_step_report;
ADAMOD_API adamod_status adamod_report(const adamod_optimizer *opt, int64_t attempt, adamod_step_report *out);

/* The rules, by index: name ("adamod") and one line about it. NULL past the end. */
ADAMOD_API const char *adamod_rule_name(int index);
ADAMOD_API const char *adamod_rule_summary(int index);

/* ---- 2. Options ---------------------------------------------------------------------------------------------------
 *
 * Every rule has its own options (lr, beta1, ...) and these, shared by all:
 *
 *   weight_decay  0         the decay, lambda
 *   decay         decoupled how it acts: none; l2 (added to the gradient); decoupled (p -= lr * lambda * p, as the paper
 *                           and AdamW); independent (p -= lambda * p, whatever the learning rate). sgd, adagrad,
 *                           rmsprop and adadelta have l2 as their default.
 *   maximize      0         1: ascend
 *   clip_value    inf       gradients clamped to [-clip_value, clip_value]
 *   low_precision master    bf16 and f16 parameters: keep an fp32 master, or (stochastic) round at random instead
 *   state_type    auto      auto: f32 (f64 for f64 parameters); bf16: states in half the memory, rounded at random;
 *                           q8 (adamod, adam, sgd): in a quarter, 8 bits in blocks of 256 with a scale each
 *   min_8bit_size 0         with state_type q8, parameters with fewer elements than this have states as with auto
 *
 * and for the optimizer as a whole, not for a group:
 *
 *   grad_scale    1         gradients are multiplied by this first (1 / loss scale)
 *   clip_norm     inf       all gradients are scaled so that their global norm is at most this
 *   nonfinite     pass      a gradient with a NaN, an infinity or a number whose square overflows (1.8e19 in f32), as
 *                           the update sees it, scaled and clipped, in its type of computation: pass (it is not looked
 *                           for); skip (nothing changes, adamod_skipped counts it); error (the step fails and changes
 *                           nothing)
 *   seed          0         of stochastic rounding
 *   threads       0         0: one for each core this process may use
 *
 * Bounds follow the type of computation: f64 for f64 parameters with states of that type, else f32. What is 0 or infinite
 * there, or makes other numbers so, is refused with ADAMOD_ERROR_RANGE as soon as both are known: by adamod_set if such
 * parameters are there, by adamod_add if the option has been set, by adamod_step for schedules and for lr / eps.
 */
typedef enum adamod_option_kind { ADAMOD_REAL = 0, ADAMOD_INTEGER = 1, ADAMOD_CHOICE = 2 } adamod_option_kind;

typedef struct adamod_option {
    const char *name;
    const char *help;
    adamod_option_kind kind;
    double value;               /* the default; for a choice its index in choices */
    double min, max;            /* bounds, before the type of computation narrows them */
    int min_open, max_open;     /* 1: the bound itself is not allowed */
    const char *const *choices; /* NULL-terminated, for a choice */
    int structural;             /* 1: it decides which states exist, so it is fixed once a parameter was added */
    int optimizer_wide;         /* 1: it belongs to the optimizer, not to a group */
} adamod_option;

/* What an option of a rule is; by index (ADAMOD_ERROR_NAME past the end) or by name. */
ADAMOD_API adamod_status adamod_option_at(const char *rule, int index, adamod_option *out);
ADAMOD_API adamod_status adamod_option_find(const char *rule, const char *name, adamod_option *out);

/* Sets an option for all groups, those still to come included. A choice takes its index here, its word below. */
ADAMOD_API adamod_status adamod_set(adamod_optimizer *opt, const char *option, double value);
/* The same from text: a choice's word, or a number. */
ADAMOD_API adamod_status adamod_set_text(adamod_optimizer *opt, const char *option, const char *text);
/* As set for group 0; adamod_scheduled has what a schedule makes of it. */
ADAMOD_API adamod_status adamod_get(const adamod_optimizer *opt, const char *option, double *out);

/* ---- 3. Groups and types ------------------------------------------------------------------------------------------
 *
 * Group 0 always exists. A new group starts with the options and schedules of group 0; its number is 1, 2, ... */
typedef enum adamod_type {
    ADAMOD_F32 = 0,
    ADAMOD_F64 = 1,
    ADAMOD_BF16 = 2,
    ADAMOD_F16 = 3,
    ADAMOD_Q8 = 4 /* of states alone: codes of 8 bits, with scales in an array of their own */
} adamod_type;
#define ADAMOD_Q8_BLOCK 256 /* codes that share a scale */

ADAMOD_API adamod_status adamod_add_group(adamod_optimizer *opt, int *group);
ADAMOD_API adamod_status adamod_group_set(adamod_optimizer *opt, int group, const char *option, double value);
ADAMOD_API adamod_status adamod_group_set_text(adamod_optimizer *opt, int group, const char *option, const char *text);
ADAMOD_API adamod_status adamod_group_get(const adamod_optimizer *opt, int group, const char *option, double *out);

#define ADAMOD_MAX_DIMS 8
#define ADAMOD_MAX_STATES 4

/* A parameter of any type. Start from {0} and fill in what is needed. f64 parameters are computed in f64, all others in
 * f32; the gradient may have any type. */
typedef struct adamod_tensor {
    const char *name;
    void *param;
    const void *grad;
    adamod_type param_type, grad_type;
    int ndim;
    int64_t shape[ADAMOD_MAX_DIMS];
    /* The master of a bf16 or f16 parameter with low_precision=master, if you keep it: it is not part of the state, and
     * param must be the master, rounded to nearest, from the first step on. NULL: the library keeps one, begun from param.
     * In both cases an element of param that is anything else was changed by hand, and the update starts from it. */
    float *master;
    /* All states of the rule, if you keep them, as adamod_state_at says: they are used as they are, neither filled nor
     * freed, and not part of the state that is saved. All NULL: the library keeps them. */
    void *state[ADAMOD_MAX_STATES];
    /* And the scales of each, if they are in 8 bits: one for each ADAMOD_Q8_BLOCK elements begun, 0 as the codes. */
    float *scale[ADAMOD_MAX_STATES];
} adamod_tensor;

/* id (may be NULL) receives the parameter's number: 0, 1, 2, ... in the order they were added. */
ADAMOD_API adamod_status adamod_add_tensor(adamod_optimizer *opt, int group, const adamod_tensor *tensor, int64_t *id);
ADAMOD_API int64_t adamod_tensors(const adamod_optimizer *opt);

/* Point a parameter at another array of the same type and size; a NULL grad freezes it. */
ADAMOD_API adamod_status adamod_set_param(adamod_optimizer *opt, int64_t id, void *param);
ADAMOD_API adamod_status adamod_set_grad(adamod_optimizer *opt, int64_t id, const void *grad);
/* Both for n parameters in one call, either all or, if any of it fails, none: those with these ids, or with ids NULL the
 * first n. params or grads NULL: they stay; a NULL among grads freezes. */
ADAMOD_API adamod_status adamod_set_arrays(adamod_optimizer *opt, int64_t n, const int64_t *ids, void *const *params,
                                           const void *const *grads);

/* ---- 4. Schedules -------------------------------------------------------------------------------------------------
 *
 * A schedule turns the number of the update (1, 2, ...) and an option's value, the base, into the value used in that
 * update. It is attached to an option of a group (or all, with group -1) and copied: free yours when you like.
 *
 *     adamod_schedule *s;
 *     adamod_schedule_warmup_rsqrt(&s, 1e-7, 4000);   // Adam as the paper trains Transformers
 *     adamod_set_schedule(opt, -1, "lr", s);
 *     adamod_schedule_free(s);
 */
typedef struct adamod_schedule adamod_schedule;

/* base */
ADAMOD_API adamod_status adamod_schedule_constant(adamod_schedule **out);
/* base * factor^k after k of the milestones (update numbers, ascending; the update with that number is the last before) */
ADAMOD_API adamod_status adamod_schedule_multistep(adamod_schedule **out, int n, const int64_t *milestones,
                                                   double factor);
/* start + (base - start) * t / steps, then base: the paper's warm-up */
ADAMOD_API adamod_status adamod_schedule_warmup(adamod_schedule **out, double start, int64_t steps);
/* the same, then base * sqrt(steps / t) */
ADAMOD_API adamod_status adamod_schedule_warmup_rsqrt(adamod_schedule **out, double start, int64_t steps);
/* base for the given steps, then base * sqrt(steps / t): what the paper uses with AdaMod */
ADAMOD_API adamod_status adamod_schedule_constant_rsqrt(adamod_schedule **out, int64_t steps);
/* from base to end along half a cosine over the given steps, then end */
ADAMOD_API adamod_status adamod_schedule_cosine(adamod_schedule **out, double end, int64_t steps);
/* from base to end along a line over the given steps, then end; for beta3, say 0.9 to 0.9999 */
ADAMOD_API adamod_status adamod_schedule_linear(adamod_schedule **out, double end, int64_t steps);
/* parts[i] for lengths[i] updates, each counting its own updates from 1; the last goes on for ever, its length is not
 * read. The parts are copied; at most ADAMOD_MAX_CHAINS chains may be within each other. */
#define ADAMOD_MAX_CHAINS 64
ADAMOD_API adamod_status adamod_schedule_chain(adamod_schedule **out, int n, const adamod_schedule *const *parts,
                                               const int64_t *lengths);
/* Any of them from text: "constant", "multistep(150,225;0.1)", "warmup(1e-7,4000)", "warmup_rsqrt(1e-7,4000)",
 * "constant_rsqrt(4000)", "cosine(0,10000)", "linear(0.9999,1000)", "warmup(0,500)*500 > cosine(0,10000)" */
ADAMOD_API adamod_status adamod_schedule_parse(adamod_schedule **out, const char *text);
/* What it makes of base in update t = 1, 2, ...; of a NULL schedule base itself. */
ADAMOD_API double adamod_schedule_value(const adamod_schedule *s, double base, int64_t t);
ADAMOD_API void adamod_schedule_free(adamod_schedule *s);

/* A NULL schedule removes the one in place. The option must be real, of a group and not structural. */
ADAMOD_API adamod_status adamod_set_schedule(adamod_optimizer *opt, int group, const char *option,
                                             const adamod_schedule *s);
/* The value an option will have in the next update: as set, or as its schedule says. */
ADAMOD_API adamod_status adamod_scheduled(const adamod_optimizer *opt, int group, const char *option, double *out);
/* And in update number t; never waits for a device. */
ADAMOD_API adamod_status adamod_scheduled_at(const adamod_optimizer *opt, int group, const char *option, int64_t t,
                                             double *out);

/* ---- 5. Statistics ------------------------------------------------------------------------------------------------
 *
 * eta is the learning rate a rule would give an element (alpha / (sqrt(v) + eps) in Adam and AdaMod, the learning rate
 * itself in sgd); the step is what it is given after the bound. Collected during adamod_step while switched on; costs
 * nothing otherwise. Bin i of a histogram counts ADAMOD_HIST_LOW + i * width <= log10 < ADAMOD_HIST_LOW + (i + 1) *
 * width, width = (HIGH - LOW) / BINS; values below and above fall into the first and last bin, zeros into the first. */
#define ADAMOD_HIST_BINS 200
#define ADAMOD_HIST_LOW (-12.0)
#define ADAMOD_HIST_HIGH 8.0

typedef struct adamod_statistics {
    int64_t elements;                       /* counted: finite values; not NaN */
    double bounded;                         /* share of elements whose step is below their eta */
    double eta_min, eta_median, eta_max;    /* before the bound; the median is exact to 5 % */
    double step_min, step_median, step_max; /* after it */
    double grad_norm, update_norm;          /* of what the rule saw, and of the change in the parameters */
    int64_t eta[ADAMOD_HIST_BINS];
    int64_t step[ADAMOD_HIST_BINS];
    int64_t
        nonfinite; /* elements of which the parameter or a state is a NaN or infinite; many of them never move again */
} adamod_statistics;

ADAMOD_API adamod_status adamod_collect(adamod_optimizer *opt, int on); /* 0: off, as at first */
/* Of the last update that was not skipped, for one group or (-1) all. update_norm and nonfinite are before any rounding
 * to 16 or 8 bits. ADAMOD_ERROR_ORDER if it was not collected. */
ADAMOD_API adamod_status adamod_get_statistics(const adamod_optimizer *opt, int group, adamod_statistics *out);

/* ---- 6. State -----------------------------------------------------------------------------------------------------
 *
 * A safetensors file with "NAME.exp_avg", "NAME.exp_avg_sq", "NAME.exp_avg_lr", "NAME.step", ... for each parameter.
 * Saving writes a temporary file, syncs and renames it. Loading checks everything, checksums included, before it changes
 * anything; after it the optimizer continues exactly as the one that saved. Parameters themselves are yours to save;
 * masters are included, and used where the parameters are those they belong to. */
ADAMOD_API adamod_status adamod_save(const adamod_optimizer *opt, const char *path);
ADAMOD_API adamod_status adamod_load(adamod_optimizer *opt, const char *path);

/* A state as it lies in memory ("exp_avg"; "master" for masters; "exp_avg_scale" for the scales of one in 8 bits), with
 * its type and number of elements (each may be NULL). It stays the library's, and may be written between steps: a master
 * together with its parameter, which it must round to. Valid until the next load or free. */
ADAMOD_API adamod_status adamod_state(const adamod_optimizer *opt, int64_t id, const char *state, void **data,
                                      adamod_type *type, int64_t *count);
/* How many updates a parameter has had; and each of the first n, in one call. */
ADAMOD_API adamod_status adamod_tensor_steps(const adamod_optimizer *opt, int64_t id, int64_t *steps);
ADAMOD_API adamod_status adamod_all_tensor_steps(const adamod_optimizer *opt, int64_t n, int64_t *steps);
/* Says so, 0 <= steps < 2^62, where counting ends: for states that you keep and that have had some. adamod_steps, which
 * schedules follow, becomes at least as many. On a device that has taken a step already, it waits for the stream. */
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
 * adamod_span.state[i] is what adamod_state_at describes; a rule's missing states stay NULL. Nothing is kept between
 * calls, and threads may share a hyper in all that does not set it. */
typedef struct adamod_hyper adamod_hyper;
typedef struct adamod_pool adamod_pool;

typedef struct adamod_span {
    void *param;
    const void *grad;
    void *master; /* f32 copy of a bf16 or f16 param, see adamod_tensor.master; NULL: stochastic rounding */
    void *state[ADAMOD_MAX_STATES];
    adamod_type param_type, grad_type, state_type; /* state_type: f64 for f64 parameters, else f32; or bf16, or q8 */
    int ndim;                                      /* adafactor factors ndim >= 2; others need only count */
    int64_t shape[ADAMOD_MAX_DIMS];                /* read when ndim > 0; its product must be count */
    int64_t count;
    int64_t step;                   /* which update of this array this is: 1 for the first */
    uint64_t stream;                /* of random numbers, for stochastic rounding: another for each array */
    void *scale[ADAMOD_MAX_STATES]; /* of each state if they are q8, f32: one for each ADAMOD_Q8_BLOCK elements begun */
} adamod_span;

typedef struct adamod_state_desc {
    const char *name; /* "exp_avg"; NULL: no state at this index */
    int64_t count;
    int ndim;
    int64_t shape[ADAMOD_MAX_DIMS];
    double initial; /* fill with this before the first update */
} adamod_state_desc;

ADAMOD_API adamod_status adamod_hyper_create(adamod_hyper **out, const char *rule);
ADAMOD_API void adamod_hyper_free(adamod_hyper *h);
ADAMOD_API adamod_status adamod_hyper_set(adamod_hyper *h, const char *option, double value);
ADAMOD_API adamod_status adamod_hyper_set_text(adamod_hyper *h, const char *option, const char *text);
ADAMOD_API adamod_status adamod_hyper_get(const adamod_hyper *h, const char *option, double *out);
/* ADAMOD_ERROR_RANGE if parameters of this type, with states as state_type says, could not be computed with these options:
 * bounds follow the type (see section 2). adamod_update looks by itself. */
ADAMOD_API adamod_status adamod_hyper_check(const adamod_hyper *h, adamod_type param_type);

/* What state index (0 <= index < ADAMOD_MAX_STATES) of an array of this shape must be. */
ADAMOD_API adamod_status adamod_state_at(const adamod_hyper *h, int ndim, const int64_t *shape, int index,
                                         adamod_state_desc *out);

/* One update of n arrays; pool NULL means on this thread. clip_norm and nonfinite are the optimizer's: use
 * adamod_norm and grad_scale here. An array whose grad is NULL is passed over. */
ADAMOD_API adamod_status adamod_update(const adamod_hyper *h, const adamod_span *spans, size_t n, adamod_pool *pool);
/* What adamod_update would refuse of n arrays, each with its hyper, and whether they are apart from each other: so that
 * one who updates several groups finds what is wrong before the first is changed. */
ADAMOD_API adamod_status adamod_check(const adamod_hyper *const *hypers, const adamod_span *spans, size_t n);
/* An update with statistics of all n arrays together. */
ADAMOD_API adamod_status adamod_update_collect(const adamod_hyper *h, const adamod_span *spans, size_t n,
                                               adamod_pool *pool, adamod_statistics *out);

/* A state of count elements to 8 bits and back, on the host; index is its place in adamod_span.state, since state 0 has a
 * sign. Rounds to nearest (an update rounds at random); what was decoded is encoded without loss. Infinities become
 * the largest number there is, 3.19e38; a block with a NaN is lost, all of it: its scale is a NaN. */
ADAMOD_API adamod_status adamod_q8_encode(int index, int64_t count, const float *values, uint8_t *codes, float *scales);
ADAMOD_API adamod_status adamod_q8_decode(int index, int64_t count, const uint8_t *codes, const float *scales,
                                          float *values);

/* The global norm of the gradients of n arrays; infinite or NaN if any of them is not finite. Computed with the pool's
 * instruction set or, without a pool, the best. */
ADAMOD_API adamod_status adamod_norm(const adamod_span *spans, size_t n, adamod_pool *pool, double *norm);

/* Threads to share between handles and raw calls, the calling one counted; 0 threads: one for each core this process may
 * use; at most 1024. The pool must outlive its users; those that call at once take turns. Its threads have all signals
 * blocked, as have those that a handle makes: signals reach the program's own threads. */
ADAMOD_API adamod_status adamod_pool_create(adamod_pool **out, int threads);
ADAMOD_API void adamod_pool_free(adamod_pool *pool);
ADAMOD_API int adamod_pool_threads(const adamod_pool *pool); /* 1 for NULL */
/* NULL, or setting the option threads, takes the pool away again. */
ADAMOD_API adamod_status adamod_set_pool(adamod_optimizer *opt, adamod_pool *pool);

/* ---- 8. Version, instruction sets, memory ------------------------------------------------------------------------- */
ADAMOD_API int adamod_version(void); /* ADAMOD_VERSION of the library that is linked */
ADAMOD_API const char *adamod_version_string(void);

/* The instruction sets this processor can run, best first ("avx512", "avx2", "plain"); NULL past the end. The best is
 * used unless the environment variable ADAMOD_ISA names another when a handle, hyper or pool is made; it is not read at
 * other times. */
ADAMOD_API const char *adamod_isa_name(int index);
ADAMOD_API const char *adamod_isa(const adamod_optimizer *opt);

/* Where states, masters and the handle come from. alloc returns size bytes aligned to alignment (a power of two), or
 * NULL; the library fills them. free is given the size that was asked for. Both are called on the thread that creates,
 * adds, loads or frees, never by a step. The struct is copied; context must outlive the handle. NULL: malloc's. */
typedef struct adamod_allocator {
    void *(*alloc)(void *context, size_t size, size_t alignment);
    void (*free)(void *context, void *pointer, size_t size);
    void *context;
} adamod_allocator;

ADAMOD_API adamod_status adamod_create_with(adamod_optimizer **out, const char *rule,
                                            const adamod_allocator *allocator);
/* Bytes of states and masters, and of all else the handle holds. */
ADAMOD_API void adamod_memory(const adamod_optimizer *opt, size_t *states, size_t *other);

/* ---- 9. CUDA ------------------------------------------------------------------------------------------------------
 *
 * The same handle and the same functions, with parameters and gradients in a GPU's memory:
 *
 *     adamod_create_on(&opt, "adamod", "cuda");            // "cuda:1" for the second GPU, "cpu" for what create gives
 *     adamod_set_stream(opt, stream);                      // the default stream unless set
 *     adamod_add(opt, "weight", weight, weight_grad, 2, shape);
 *     adamod_step(opt);                                    // enqueued; the host does not wait
 *
 * Every pointer to parameters, gradients and states (adamod_state) is one to device memory. Results are those of the
 * CPU: bit for bit in f32 and below except where pow rounds a number of the whole step otherwise, some last bits in f64.
 * State files are the same: what one device saved, another continues.
 *
 * adamod_step neither waits nor allocates, except the first after parameters or groups were added. It can be captured
 * into a CUDA graph, after one step outside: replayed, it counts its steps, follows its schedules and sees options that
 * were set since. What a graph fixes: the pointers, and whether clip_norm, nonfinite and statistics are in use.
 *
 * adamod_report does not wait. These wait for the stream: adamod_steps, adamod_skipped, adamod_grad_norm,
 * adamod_tensor_steps, adamod_all_tensor_steps, adamod_set_tensor_steps, adamod_scheduled, adamod_get_statistics,
 * adamod_save, adamod_load, adamod_sync, adamod_free; none of them is allowed during a capture.
 *
 * A step the device could not take (a gradient that is not finite with nonfinite=error, a scheduled value outside its
 * bounds) changes nothing there. The host learns of it afterwards: adamod_sync, or the next adamod_step that finds it,
 * fails and says so, once. */
ADAMOD_API adamod_status adamod_create_on(adamod_optimizer **out, const char *rule, const char *device);
ADAMOD_API const char *adamod_device(const adamod_optimizer *opt); /* "cpu", "cuda:0"; lives as long as the handle */

/* Whether CUDA can be used here; if not, adamod_last_error says why. The kernels are in libadamod_cuda.so.0, looked for
 * beside this library, beside the program and where the system looks; the environment variable ADAMOD_CUDA_LIBRARY names
 * another file, but not for a program that runs with more rights than its user. */
ADAMOD_API adamod_status adamod_cuda_status(void);

typedef struct adamod_cuda_device {
    char name[256];
    int major, minor; /* compute capability */
    size_t memory, free_memory;
    int driver; /* the newest CUDA it supports: 13000 is 13.0 */
} adamod_cuda_device;
/* Device number index (0, 1, ...); ADAMOD_ERROR_DEVICE past the end. */
ADAMOD_API adamod_status adamod_cuda_device_at(int index, adamod_cuda_device *out);

/* A cudaStream_t; NULL is the default stream. What was enqueued before comes before. It must exist until another
 * has been set, or the handle freed. */
ADAMOD_API adamod_status adamod_set_stream(adamod_optimizer *opt, void *stream);
/* Waits until every step is done, and reports one that was not taken. */
ADAMOD_API adamod_status adamod_sync(adamod_optimizer *opt);

/* Reads a real option of a group (or all, with group -1) from device memory at each step, an f32 or f64, in place of
 * what was set; a schedule takes it as its base. NULL: no longer. */
ADAMOD_API adamod_status adamod_set_device_value(adamod_optimizer *opt, int group, const char *option,
                                                 const void *value, adamod_type type);
/* For loss scaling whose scale and verdict are on the device: at each step gradients are divided by *scale, and where
 * *found_inf is not 0 the step is skipped and counted by adamod_skipped. NULL: neither. */
ADAMOD_API adamod_status adamod_set_scaler(adamod_optimizer *opt, const float *scale, const float *found_inf);

#ifdef __cplusplus
}
#endif
#endif
