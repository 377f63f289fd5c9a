/* task.h - what differs between translation, images and language modelling, as one table of functions. The loop, the
 * optimizer, checkpoints, resuming, averaging, comparisons and reports are the same for all, and know nothing else. */
#ifndef ADAMOD_TASK_H
#define ADAMOD_TASK_H

#include "support/metric.h"
#include "nn/nn.h"
#include "train/epochs.h"
#include "train/exchange.h"
#include "train/recipe.h"

enum { TASK_MOST_METRICS = 16 };

typedef enum task_split { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST, SPLITS } task_split;

/* How much of a split an evaluation looks at. */
typedef enum task_depth {
    TASK_GLANCE,   /* a little: is the loss finite? */
    TASK_PERIODIC, /* while training goes on */
    TASK_WHOLE     /* all there is, at the end */
} task_depth;

/* What an experiment is opened for; a sum of these. */
typedef enum task_use {
    TASK_TRAIN = 1,
    TASK_SCORE = 2, /* the loss of held-out data */
    TASK_APPLY = 4  /* the model's answers: translations */
} task_use;

/* An architecture and its keys, all below "model.". */
struct task_model {
    const char *kind;
    const key_table *keys;
    /* What no single key can tell: NULL, or the path of the key that is wrong with a message about it. */
    const char *(*check)(const recipe *r);
};

/* A batch that was fed to a plan. */
typedef struct task_batch {
    int64_t items;        /* that throughput counts: tokens, images */
    int64_t samples;      /* sentences, images */
    int64_t targets;      /* rows that the loss counts */
    int64_t epoch, index; /* of the batch that comes next */
    double lr_factor;     /* its update has the learning rate times this, the mean of its batches'; 0: as it is */
} task_batch;

/* What an evaluation gave. */
typedef struct task_result {
    double value[TASK_MOST_METRICS]; /* of each of the task's metrics; NAN: not measured */
    double items;                    /* that were looked at: tokens, images; 0: the split is empty */
    int64_t samples;                 /* answered in full: sentences; 0: none */
    double seconds;                  /* that the answers took */
} task_result;

/* A part of the data that was read for training: a file, or what was generated for a split. */
typedef struct task_part {
    task_split split;
    const char *key;      /* what the recipe calls it: "data.source" */
    const char *file;     /* "": it was generated */
    uint64_t fingerprint; /* of its content as it is used, wherever and however it is stored: see task_hash */
    uint64_t text;        /* of raw text that became that: as the file has it; 0: there is none */
} task_part;
enum { TASK_MOST_PARTS = 8 };

/* One sample for the report: texts by name. */
typedef struct task_text {
    const char *name, *text;
} task_text;
typedef void (*task_fact)(void *context, const char *name, const char *value);
typedef int (*task_sample)(void *context, int n, const task_text *texts);

/* What the functions below are given: the task's own memory in state, and what the loop has made for it. */
typedef struct experiment experiment;
typedef struct task_bench task_bench;

struct task {
    const char *name;                /* what data.task says */
    const char *about;               /* for people: "German number words to English" */
    const char *items;               /* what throughput counts, plural: "tokens" */
    const char *samples;             /* what is answered one by one, plural: "sentences" */
    const key_table *const *keys;    /* into one struct of settings; ends with NULL */
    const task_model *const *models; /* ends with NULL; the first is the default */
    const metric *metrics;           /* the first is "loss" */
    int n_metrics;
    bool carries; /* a training batch goes on from the state that the one before it left in the model */
    bool (*measures)(const recipe *r, int index); /* which of them, with this recipe; NULL: all */
    const char *(*check)(const recipe *r);        /* as a model's */
    /* For reports; each may be NULL. */
    const char *answers;         /* what its answers are called, plural: "Translations" */
    const char *limit;           /* the key that limits how many samples an evaluation on the way answers */
    const char *const *subtitle; /* keys that say in short what was trained; ends with NULL */

    /* Reads data and makes e->state. directory: of a run, for a model that was trained there; its data for training may
     * have changed or gone and is not read, and of what is held out a split may have gone (experiment_gone). NULL: for
     * training. A failure leaves nothing to close. */
    int (*open)(experiment *e, const char *directory, int uses);
    void (*close)(experiment *e);

    /* The graph of a training step. The first that is built defines the parameters. Returns the loss, as
     * nn_cross_entropy gives it, which is also the output "loss". */
    nn_value (*build)(experiment *e, nn_graph *g);
    /* After parameters were made: plans for scoring and for answers, as uses says. */
    int (*prepare)(experiment *e, int uses);

    /* Batches of an epoch of training; where epochs differ, of the first. */
    int64_t (*batches)(const experiment *e);
    /* Feeds the next training batch to e->plan. */
    void (*next)(experiment *e, task_batch *out);
    /* Makes the batch of this number, in this epoch, the next. */
    int (*seek)(experiment *e, int64_t epoch, int64_t index);

    bool (*has)(const experiment *e, task_split split);
    /* Samples of a split, for estimates of time; NULL: not known. */
    int64_t (*count)(const experiment *e, task_split split);
    /* sample, if given, is called for each answer that the recipe wants to keep. What takes long tells how far it is by
     * experiment_progress. */
    int (*evaluate)(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out);

    /* What the evaluation of the whole split, which came just before, tells beyond numbers, into a run's directory. NULL:
     * nothing. */
    int (*report)(experiment *e, task_split split, int64_t step, const char *directory);

    /* What gives parameters their meaning (vocabularies), into a run's directory; and its fingerprint for checkpoints. */
    int (*save)(const experiment *e, const char *directory);
    const char *const *saves; /* the names of these files, which end with NULL; NULL: there are none */
    uint64_t (*fingerprint)(const experiment *e);
    const char
        *vocabulary_key; /* the recipe's key that takes it from a run's directory, in place of the data's; NULL: none */
    /* Patterns of the parameters that mean what the fingerprint is of: the layer of classes, embeddings of words. Another
     * run's can be used without them. NULL: not known. */
    void (*meaning)(const experiment *e, char *out, size_t size);
    const char *other_meaning; /* what another fingerprint is, in words: "another vocabulary" */
    /* What the loop computes with: all parts of the data that open has read, at most TASK_MOST_PARTS; returns how many.
     * A run is not resumed with other data unless the user says so. Strings live as long as the experiment. */
    int (*data)(const experiment *e, task_part *out);
    /* What else a person should know of the data that were read, fact by fact: ("source vocabulary", "7000 tokens"). NULL:
     * nothing. */
    void (*describe)(const experiment *e, task_fact fact, void *context);
    /* One line on what of a split's data is not used as it is. False: all is. */
    bool (*note)(const experiment *e, task_split split, char *out, size_t size);

    const task_bench
        *bench; /* train/task_bench.h: PyTorch's side of a race, and shapes that need no data; NULL: neither */
};

/* The task's metric of this name; -1: it has none. */
int task_metric(const task *t, const char *name);

/* What files call a split ("train", "valid", "test"), and what people do ("training", "validation", "test"). */
const char *task_split_name(task_split split);
const char *task_split_label(task_split split);

/* For fingerprints of data, at the speed of memory: of bytes that follow what hash is of; 0: of nothing. */
uint64_t task_hash(uint64_t hash, const void *data, size_t n);

/* ---- an experiment: everything a recipe needs in memory ---- */

typedef struct shard shard; /* shard.h */

/* Who wants to know how far something is that takes long: reading data, an evaluation. */
typedef struct task_progress {
    void (*tell)(void *context, const char *what, int64_t done, int64_t total); /* NULL: nobody */
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
    int64_t updates_before; /* made before the optimizer's first: it may have been begun anew */
    epoch_length epoch;
    int64_t steps; /* updates in all, as train.steps or train.epochs says */
    comm *comm;    /* who trains together; NULL: this process alone */
    exchange *exchange;
    shard *shard;   /* of the optimizer's states; NULL: every rank has all of them */
    char slow[256]; /* why what ranks exchange takes longer than it need; "": it does not */
    task_progress progress;
    char gone[SPLITS][1024]; /* of a trained model: why a split cannot be read any more; "": it was, or there is none */
};

/* The experiment is empty after a failure. directory and uses as in task.open. */
int experiment_open(experiment *e, const recipe *r, const char *directory, int uses);
/* The same; until it is open, progress is told how far reading is. */
int experiment_open_telling(experiment *e, const recipe *r, const char *directory, int uses, task_progress progress);
void experiment_close(experiment *e);
/* One of several that train together, opened alike: shares out the batches of an update, and evaluations. */
int experiment_join(experiment *e, comm *c);

/* Whether a parameter is trained: it is in no group that the recipe freezes. */
bool experiment_trains(const experiment *e, const nn_param *p);

/* The recipe's optimizer of those of parameters first to end - 1 that are trained. on_host: one that only keeps states, on the host, though parameters
 * may be on a device. */
int experiment_optimizer(experiment *e, int first, int end, bool on_host, adamod_optimizer **out);

/* What it computes in, whatever the recipe leaves open: "full", "tf32" or "mixed". */
const char *experiment_precision(const experiment *e);

/* Whether runs can be on a GPU, where the optimizer needs a driver and the model more than that: cuBLASLt, a GPU that is
 * new enough. If not, the library's last error says why. */
adamod_status experiment_cuda_status(void);

/* For tasks: what takes long has done so many of all: (e, "translating", 64, 1000). Cheap: call it for every batch, and for
 * every picture that is read. what is the same pointer until something else begins. */
static inline void experiment_progress(const experiment *e, const char *what, int64_t done, int64_t total) {
    if (e->progress.tell) e->progress.tell(e->progress.context, what, done, total);
}

/* For tasks: whether this rank computes piece i of an evaluation; comm_add of arrays with zeros for all others makes the
 * results of all pieces known to every rank. */
static inline bool experiment_is_mine(const experiment *e, int64_t i) {
    return i % comm_size(e->comm) == comm_rank(e->comm);
}

/* For tasks: a split could not be read, as the last message says. -1, or 0 for a model that was trained in directory: that split
 * is gone, but another may be what is asked for. */
int experiment_gone(experiment *e, const char *directory, task_split split);

#endif
