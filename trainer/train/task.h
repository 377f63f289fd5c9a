/* task.h - what differs between translation, images and language modelling, as one table of functions. The loop, the
 * optimizer, checkpoints and reports know only this table. */
#pragma once

#include "core/error.h"
#include "support/fingerprint.h"
#include "support/metric.h"
#include "nn/nn.h"
#include "train/epochs.h"
#include "train/exchange.h"
#include "train/recipe.h"

#include <stdio.h>

enum { TASK_MOST_METRICS = 16 };

typedef enum task_split { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST, SPLITS } task_split;

/* How much of a split to evaluate. */
typedef enum task_depth {
    TASK_GLANCE,   /* a little, to see if the loss is finite */
    TASK_PERIODIC, /* during training */
    TASK_WHOLE     /* all, at the end */
} task_depth;

/* The uses of an experiment; a sum of these. */
typedef enum task_use {
    TASK_TRAIN = 1,
    TASK_SCORE = 2, /* the loss of held-out data */
    TASK_APPLY = 4  /* the model's answers, such as translations */
} task_use;

/* An architecture and its keys, all below "model.". */
struct task_model {
    const char *kind;
    const key_table *keys;
    /* Checks combinations of keys: NULL, or the path of the wrong key, with a message. */
    const char *(*check)(const recipe *r);
    /* Adds the model to a graph and returns its logits. NULL: the only model of its task, which builds it. */
    nn_value (*build)(nn_graph *g, const void *settings, nn_value x, int classes);
    /* Patterns of the parameters that depend on the fingerprint: the layer of classes, embeddings of words. Other
     * parameters can be used with other data. NULL: not known, or the function writes them. */
    const char *meaning;
    void (*write_meaning)(const recipe *r, char *out, size_t size);
    /* Writes the model's sizes for people: "resnet, blocks 3,4,6,3 of 64,128,256,512". NULL: its kind says enough. */
    void (*describe)(const recipe *r, char *out, size_t size);
    bool carries;     /* a training batch starts with the model's states after the previous one */
    const void *own;  /* what else the task's own files know of the model */
    const char *peer; /* the model in PyTorch for bench train: bench/torch_PEER.py; NULL: task_bench.peer */
};

/* For checks: the message, then the path of the key. */
#define task_refuse(path, ...) (adamod__refuse(__VA_ARGS__), path)

/* The use of a trained model. */
typedef enum task_answer { TASK_ONLY_SCORES, TASK_TRANSLATES, TASK_CLASSIFIES, TASK_WRITES } task_answer;

/* Something that a recipe takes from elsewhere and a run keeps a copy of. */
typedef struct task_kept {
    const char *key, *from;
    const char *name; /* its path in the run's directory, with a slash; "": the run itself stands for it */
} task_kept;
enum { TASK_MOST_KEPT = 2 };

/* A batch that was fed to a plan. */
typedef struct task_batch {
    int64_t items;        /* that throughput counts, such as tokens or images */
    int64_t samples;      /* sentences, images */
    int64_t targets;      /* rows that the loss counts */
    int64_t epoch, index; /* of the next batch */
    double lr_factor;     /* the update's learning rate is multiplied by the mean over its batches; 0: 1 */
} task_batch;

/* The result of an evaluation. */
typedef struct task_result {
    double value[TASK_MOST_METRICS]; /* of each of the task's metrics; NAN: not measured */
    double items;                    /* evaluated tokens, images; 0: the split is empty */
    int64_t samples;                 /* sentences answered; 0: none */
    double seconds;                  /* spent on the answers */
} task_result;

/* A part of the data: a file, or what was generated for a split. */
typedef struct task_part {
    task_split split;
    const char *key;      /* of the recipe: "data.source" */
    const char *file;     /* "": generated */
    uint64_t fingerprint; /* of the content as it is used, however it is stored: see fingerprint.h */
    uint64_t text;        /* fingerprint of the raw text that it was made from; 0: none */
} task_part;
enum { TASK_MOST_PARTS = 8 };

/* A sample for the report is a list of named texts. */
typedef struct task_text {
    const char *name, *text;
} task_text;
typedef void (*task_fact)(void *context, const char *name, const char *value);
typedef int (*task_sample)(void *context, int n, const task_text *texts);

typedef struct experiment experiment;
typedef struct task_bench task_bench;
struct data_set;

struct task {
    const char *name;                /* value of data.task */
    const char *about;               /* a short description: "German number words to English" */
    const char *items;               /* what throughput counts, plural: "tokens" */
    const char *samples;             /* what is answered one by one, plural: "sentences" */
    const key_table *const *keys;    /* tables of one struct of settings; ends with NULL */
    const task_model *const *models; /* ends with NULL; the first is the default */
    const metric *metrics;           /* the first is "loss" */
    int n_metrics;
    task_answer answer;
    bool generates;                               /* its data are never read from files */
    bool (*measures)(const recipe *r, int index); /* whether the recipe measures a metric; NULL: all */
    const char *(*check)(const recipe *r);        /* as a model's */
    /* For reports; each may be NULL. */
    const char *answers;         /* name of the answers, plural: "Translations" */
    const char *limit;           /* key that limits the answers of an evaluation during training */
    const char *const *subtitle; /* keys that describe what was trained; ends with NULL */

    /* Reads data and makes e->state. directory NULL: for training. Else it is the run that trained the model: training
     * data are not read, and a held-out split may be missing (experiment_gone). A failure leaves nothing to close. */
    int (*open)(experiment *e, const char *directory, int uses);
    void (*close)(experiment *e);

    /* Builds the graph of a training step; the first one defines the parameters. Returns the loss as by
     * nn_cross_entropy, which is also the output "loss". */
    nn_value (*build)(experiment *e, nn_graph *g);
    /* Makes plans for scoring and answers, as in uses, after parameters were made. */
    int (*prepare)(experiment *e, int uses);

    /* Floating-point operations of training on an item; progress compares them with the GPU's peak. 0, or NULL: not
     * known. */
    double (*flops)(const experiment *e);
    /* Samples of each batch of training. 0, or NULL: batches differ. */
    int64_t (*batch)(const experiment *e);
    /* Batches per epoch of training; of the first, if epochs differ. */
    int64_t (*batches)(const experiment *e);
    /* Feeds the next training batch to e->plan. */
    void (*next)(experiment *e, task_batch *out);
    /* Makes this batch of this epoch the next. */
    int (*seek)(experiment *e, int64_t epoch, int64_t index);

    /* Number of samples of a split; 0: there is no such split. */
    int64_t (*count)(const experiment *e, task_split split);
    /* sample, unless NULL, is called for each answer that the recipe keeps. Long work calls experiment_progress. */
    int (*evaluate)(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out);

    /* Writes more results of the evaluation of the whole split, which came just before, into a run's directory. May be
     * NULL. */
    int (*write_details)(experiment *e, task_split split, int64_t step, const char *directory);

    /* Saves what gives parameters their meaning (vocabularies) in a run's directory; fingerprint is of that. */
    int (*save)(const experiment *e, const char *directory);
    const char *const *saves; /* names of these files; ends with NULL; NULL: there are none */
    uint64_t (*fingerprint)(const experiment *e);
    const char *vocabulary_key; /* key that takes the vocabulary from a run's directory; NULL: none */
    const char *other_meaning;  /* describes another fingerprint: "another vocabulary" */
    int (*kept)(const recipe *r, task_kept out[TASK_MOST_KEPT]); /* how many; NULL: none */
    /* Loads weights from a file of another program, if it is one of a form that the task knows. NULL: it knows none. */
    int (*foreign)(experiment *e, const char *path, bool *known);
    /* Sets the key of the file to evaluate on, in place of the test set; flag is for messages. NULL: it has no such key. */
    int (*set_test_file)(recipe *r, const char *flag, const char *path);
    /* Lists all parts of the data that open has read, at most TASK_MOST_PARTS; returns how many. A run is not resumed with
     * other data unless the user asks for it. Strings live as long as the experiment. */
    int (*data)(const experiment *e, task_part *out);
    /* Facts about the data for people: ("source vocabulary", "7000 tokens"). May be NULL. */
    void (*describe)(const experiment *e, task_fact fact, void *context);
    /* One line about data of a split that are not used as they are. False: there are none. */
    bool (*note)(const experiment *e, task_split split, char *out, size_t size);

    const task_bench *bench; /* for adamod bench train; NULL: none */
};

/* The task's metric of this name; -1: it has none. */
int task_metric(const task *t, const char *name);

/* Name of a split in files ("train", "valid", "test") and for people ("training", "validation", "test"). */
const char *task_split_name(task_split split);
const char *task_split_label(task_split split);

/* ---- an experiment: a recipe in memory, with data, model and optimizer ---- */

typedef struct shard shard; /* shard.h */

/* Receives the progress of long work: reading data, an evaluation. */
typedef struct task_progress {
    void (*tell)(void *context, const char *what, int64_t done, int64_t total); /* may be NULL */
    void *context;
} task_progress;

struct experiment {
    recipe recipe;
    const task *task;
    void *state; /* the task's */
    adamod_pool *pool;
    nn_params *params;
    /* training */
    nn_graph *graph;
    nn_plan *plan;
    adamod_optimizer *optimizer;
    int64_t updates_before; /* of the run before the optimizer's first: it may have been reset */
    epoch_length epoch;
    int64_t steps; /* updates in all, by train.steps or train.epochs */
    comm *comm;    /* ranks; NULL: this process alone */
    exchange *exchange;
    shard *shard;   /* of the optimizer's states; NULL: every rank has all */
    char slow[256]; /* why the exchange is slower than it could be; "": it is not */
    task_progress progress;
    const struct data_set *set; /* in the cache, which the data are read from (data/sets/data_sets.h); NULL: none */
    char gone[SPLITS][1024]; /* why a split of a trained model cannot be read any more; "": it can, or there is none */
};

/* The experiment is empty after a failure. directory and uses as in task.open. */
int experiment_open(experiment *e, const recipe *r, const char *directory, int uses);
/* Like experiment_open; progress hears about the reading of data. */
int experiment_open_telling(experiment *e, const recipe *r, const char *directory, int uses, task_progress progress);
void experiment_close(experiment *e);
/* Divides the batches of an update and evaluations among ranks, which have all opened the same experiment. */
int experiment_join(experiment *e, comm *c);

/* Whether a parameter is trained: no group of it is frozen. */
bool experiment_trains(const experiment *e, const nn_param *p);

/* Makes the recipe's optimizer for the trained ones of parameters first to end - 1. on_host: it only stores states, on the
 * host, also for parameters on a device. */
int experiment_optimizer(experiment *e, int first, int end, bool on_host, adamod_optimizer **out);

/* Whether a training batch starts with the model's states after the previous one. */
static inline bool experiment_carries(const experiment *e) { return recipe_model(&e->recipe)->carries; }

/* The precision in use: "full", "tf32" or "mixed". */
const char *experiment_precision(const experiment *e);
/* In mixed precision on the host: the instructions that multiply bf16, "AVX512_BF16", or "no bf16 instructions"; else
 * NULL. */
const char *experiment_bf16(const experiment *e);

/* Whether a GPU can be used: optimizer and model need the driver, the model also cuBLASLt and a recent GPU. */
adamod_status experiment_cuda_status(void);
/* Whether train.backend is a GPU, or auto and a GPU can be used. */
bool experiment_wants_gpu(const recipe *r);

/* For tasks: reports the progress of long work: (e, "translating", 64, 1000). It is cheap enough for every batch and every
 * picture. what is the same pointer until other work begins. */
static inline void experiment_progress(const experiment *e, const char *what, int64_t done, int64_t total) {
    if (e->progress.tell) e->progress.tell(e->progress.context, what, done, total);
}

/* For tasks: whether this rank computes piece i of an evaluation. comm_add of arrays with zeros for other pieces collects
 * the results. */
static inline bool experiment_is_mine(const experiment *e, int64_t i) {
    return i % comm_size(e->comm) == comm_rank(e->comm);
}

/* For tasks: notes that a split could not be read, with the last message. Returns -1 in training, and 0 for a model that
 * was trained in directory, as another split may be wanted. */
int experiment_gone(experiment *e, const char *directory, task_split split);
