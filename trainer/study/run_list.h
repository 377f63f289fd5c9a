/* run_list.h - runs to make: each a recipe with its directory. Commands that make several runs list them here first, so that
 * mistakes are found before hours are spent. */
#pragma once

#include "train/recipe.h"

/* The state of a run's directory. */
typedef enum run_state {
    RUN_IS_NEW,   /* nothing, or a run without a checkpoint, which is begun again */
    RUN_IS_BEGUN, /* a run to be resumed */
    RUN_IS_OVER,  /* finished or diverged */
    RUN_STATES
} run_state;

typedef struct run_entry {
    recipe r;
    char *directory;
    char *group;   /* what it is compared within: a recipe or an experiment */
    char *variant; /* what it is compared as: "Adam" */
    char *value;   /* of the key that is tuned; NULL: none is */
    char *label;   /* for people: "cifar10-resnet34: Adam, seed 2" */
    uint64_t seed;
    double seconds; /* its time as a guess from elsewhere; NAN: none */
    double bytes;   /* on the disk, in the same way */
    run_state state;
    double spent; /* seconds of training so far, or of all of it once it finished; NAN: not known, or it diverged */
} run_entry;

typedef struct run_list {
    run_entry *at;
    int n, room;
} run_list;

/* Adds a run; takes the recipe, which is left empty. Fails if the recipe does not pass recipe_check, or if another run has
 * the directory. directory, group, variant: copied; group may be "". The label is "GROUP: VARIANT, seed N". */
int run_list_add(run_list *p, recipe *r, const char *directory, const char *group, const char *variant, double seconds);
/* Replace the label or the value of the run added last. */
int run_list_label(run_list *p, const char *label);
int run_list_value(run_list *p, const char *value);
/* Guesses the bytes of the run added last. */
void run_list_bytes(run_list *p, double bytes);
/* Sets the state of the run added last to over or new by its directory, whatever recipe is there. */
void run_list_see_end(run_list *p);
void run_list_remove(run_list *p, int index);
void run_list_free(run_list *p);

/* Looks at every directory and sets the states. Fails, naming directory and key, if one has a run that the recipe here
 * cannot continue or a finished run of another recipe: "runs/x is a run of another recipe: optimizer.lr is 0.1, but was
 * 0.05". */
int run_list_look(run_list *p);

/* Seconds that are left of a run, by what others took that are over: runs of its variant, else of its group; else by the
 * guess. NAN: not known. Call run_list_look before. */
double run_list_expect(const run_list *p, int index);
/* Seconds left for the runs of a group (NULL: of all), one after another. *unknown: runs whose time is not known, which do
 * not count. */
double run_list_left(const run_list *p, const char *group, int *unknown);

/* Adds a key's value to a variant's name: "lr=0.01", or a rule alone: "adam". */
void run_list_add_to_name(const char *key, const char *value, char *name, size_t size);
/* Replaces each {value} in a text by the value, where there is room. */
void run_list_fill_in(const char *value, char *text, size_t size);

/* Makes the name of a directory of letters, digits, dots and dashes: "Adam, no warm-up" to "adam-no-warm-up". */
void run_list_slug(const char *name, char *out, size_t size);
