/* Everything a recipe needs in memory: text, vocabularies, model, plans, optimizer, decoder. */
#ifndef ADAMOD_EXPERIMENT_H
#define ADAMOD_EXPERIMENT_H

#include "batch.h"
#include "decode.h"
#include "recipe.h"
#include "transformer.h"

enum { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST, SPLITS };

typedef struct experiment {
    recipe recipe;
    adamod_pool *pool;
    corpus_text text[SPLITS];
    corpus pairs[SPLITS];
    vocab *src_vocab, *tgt_vocab; /* may be the same one */
    text_unit unit;
    transformer_config config;
    nn_params *params;
    /* training */
    batcher *batches;
    nn_graph *graph;
    nn_plan *plan;
    transformer_symbols symbols;
    adamod_optimizer *optimizer;
    /* scoring, with all of a split in the order of lengths */
    nn_graph *score_graph;
    nn_plan *score_plan;
    transformer_symbols score_symbols;
    batch_shape score_shape;
    decoder *decoder;
} experiment;

typedef enum experiment_use {
    EXPERIMENT_TRAIN = 1, /* training batches, plan and optimizer */
    EXPERIMENT_SCORE = 2, /* loss on held-out text */
    EXPERIMENT_DECODE = 4
} experiment_use;

/* 0, or -1 with one line in message; the experiment is then empty. uses is a sum of experiment_use. */
int experiment_open(experiment *s, const recipe *r, int uses, char *message, size_t size);
void experiment_close(experiment *s);

/* The vocabularies, which give rows of embeddings their meaning, are saved with a run. */
int experiment_save_vocab(const experiment *s, const char *directory, char *message, size_t size);
/* For a checkpoint: what its parameters mean. */
uint64_t experiment_fingerprint(const experiment *s);

/* The same as experiment_open for the model of a run, with the vocabularies in its directory: text is read only where it
 * is scored, and training text not at all, so it may have changed or gone. uses is without EXPERIMENT_TRAIN. */
int experiment_open_run(experiment *s, const recipe *r, const char *directory, int uses, char *message, size_t size);

/* Whether runs can be on a GPU, where the optimizer needs a driver and the model more than that: cuBLASLt, a GPU that is
 * new enough. If not, the library's last error says why. */
adamod_status experiment_cuda_status(void);

/* One line on what of a split's files is not used as it is: pairs left out or cut, and by which key. False: all is. */
bool experiment_text_note(const experiment *s, int split, char *out, size_t size);

/* Copies a batch into a plan's inputs. */
void experiment_feed(nn_plan *plan, const transformer_symbols *symbols, const batch *b);

typedef struct experiment_score {
    double loss, nll; /* per target token */
    double tokens;
    double accuracy; /* of next tokens */
} experiment_score;

/* Over the first so many batches of a split; 0: over all. */
int experiment_score_split(experiment *s, int split, int64_t batches, experiment_score *out, char *message,
                           size_t size);

/* Decodes the first n pairs of a split (all, if n is 0) and compares. each, if given, is called with the texts. */
typedef void (*experiment_each)(void *context, const char *source, const char *reference, const char *output);
typedef struct experiment_quality {
    double bleu, exact; /* over the decoded */
    int64_t sentences;
    double seconds;
} experiment_quality;
int experiment_decode_split(experiment *s, int split, int64_t n, experiment_each each, void *context,
                            experiment_quality *out, char *message, size_t size);

/* Translates n lines of UTF-8, at most EXPERIMENT_LINES of them; out[i] is to be freed, or NULL without memory. A line
 * without a token becomes an empty one; of one with more than data.max_length, the first are read. */
enum { EXPERIMENT_LINES = 64 };
int experiment_translate(experiment *s, int n, const text_slice *lines, char **out, char *message, size_t size);

#endif
