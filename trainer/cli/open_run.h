/* open_run.h - for commands that use a run's model: the flags they share, and how the model comes into memory. */
#pragma once

#include "cli/run_recipe.h"
#include "train/checkpoint.h"
#include "train/progress.h"

/* The first member of such a command's struct of arguments, which is named `arguments`, the member `run`. */
typedef struct opened_run {
    comm *comm; /* of a command that ranks run together, and agree on the rest of this; NULL: one process */
    bool (*on_host)(const recipe *r); /* whether it computes on the processor, whatever --device says; NULL: never */

    const char *directory;
    const char *checkpoint; /* as given; once the run is open, the name of the one that was read: "best" */
    cli_changes changes;
    const char *test_file; /* language: in place of the recipe's, and in the current directory; NULL: the recipe's */
    bool foreign;          /* the directory is no run, but a model of transformers (gpt_folder.h) */
    checkpoint_meta meta;  /* of that checkpoint */
    progress progress;     /* on a terminal: how far reading is, and the command after it */
} opened_run;

#define OPEN_RUN_FLAGS                                                                                                 \
    CLI_TEXT("checkpoint", "NAME", "averaged, best, last (the first of these that exists), step-N or a file",          \
             arguments, run.checkpoint),                                                                               \
        RECIPE_DEVICE_FLAG(arguments, run.changes),                                                                    \
        CLI_CHANGE("set", "KEY=VALUE", "override a key of the recipe; may be repeated", arguments, run.changes, NULL), \
        CLI_HELP_FLAG
/* For commands that can translate. */
#define OPEN_RUN_BEAM_FLAGS                                                                                            \
    CLI_CHANGE("beam", "N", "translation: hypotheses of beam search (the recipe's)", arguments, run.changes,           \
               "decode.beam"),                                                                                         \
        CLI_CHANGE("length-penalty", "X", "translation: exponent of the length (the recipe's)", arguments,             \
                   run.changes, "decode.length_penalty")

/* Parses the command line into the struct of arguments that begins with o, and brings the run's model into memory. Returns
 * the exit status, or -1 to go on. */
int open_run(const cli_syntax *syntax, int argc, char **argv, opened_run *o, experiment *e, int uses);
