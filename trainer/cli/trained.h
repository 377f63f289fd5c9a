/* What the commands that use a trained model share: their flags, and how a run's model comes into memory. */
#ifndef CLI_TRAINED_H
#define CLI_TRAINED_H

#include "cli/training.h"
#include "train/checkpoint.h"
#include "train/progress.h"

/* The first flags of each such command, in this order; its own follow. Those of a command that never translates follow where
 * the flags of translation would. */
enum {
    TRAINED_CHECKPOINT,
    TRAINED_DEVICE,
    TRAINED_SET,
    TRAINED_HELP,
    TRAINED_PLAIN_FLAGS,
    TRAINED_BEAM = TRAINED_PLAIN_FLAGS,
    TRAINED_LENGTH_PENALTY,
    TRAINED_FLAGS
};
#define TRAINED_PLAIN_MODEL_FLAGS                                                                                      \
    {"checkpoint", "NAME", "averaged, best, last (the first of these that exists), step-N or a file"},                 \
        TRAINING_DEVICE_FLAG, {"set", "KEY=VALUE", "override a key of the recipe; may be repeated"}, CLI_HELP_FLAG
#define TRAINED_MODEL_FLAGS                                                                                            \
    TRAINED_PLAIN_MODEL_FLAGS, {"beam", "N", "translation: hypotheses of beam search (the recipe's)"}, {               \
        "length-penalty", "X", "translation: exponent of the length (the recipe's)"                                    \
    }

typedef struct trained {
    const char *command;
    const cli_flag *flags;
    const char *help; /* printed before the flags */
    /* A flag of the command's own: 0, or its exit status. NULL: there are none. */
    int (*own)(void *context, int flag, const char *value);
    /* An argument after the run, called once for each. NULL: there must be none. */
    int (*operand)(void *context, const char *value);
    void *context;
    comm *comm;   /* of a command that ranks work on together, which agree on what follows; NULL: it is alone */
    bool plain;   /* its flags are those without translation's */
    bool on_host; /* it computes on the processor, wherever the run was trained and whatever --device says */

    const char *run;
    const char *checkpoint; /* "best"; once the run is open, the one that was read */
    checkpoint_meta meta;   /* of that */
    progress progress;      /* outside a run: on a terminal, how far reading is, and what comes then */
} trained;

/* Parses the command line and brings the run's model into memory: exit status, or -1 to go on. */
int trained_open(trained *t, int argc, char **argv, experiment *e, int uses);

#endif
