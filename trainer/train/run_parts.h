/* Internals of run.h. run.c: files that grow, marks, the end; run_directory.c: locks the directory; run_about.c: files
 * about the run, written as a whole; run_records.c: lines of measurements. */
#pragma once

#include "support/json.h"
#include "train/run.h"
#include "train/tfevents.h"

/* Files that grow. */
enum { RUN_METRICS, RUN_HISTOGRAMS, RUN_SAMPLES, RUN_EVENTS, RUN_FILES };
enum { RUN_NAME = 96, RUN_DESCRIPTIONS = 16 }; /* bytes of a file name; pairs of run_describe */

typedef struct run_file {
    char name[RUN_NAME];
    int fd;
    int64_t size;
    bool made; /* by this process */
} run_file;

struct run {
    char *directory;
    run_file file[RUN_FILES];
    recipe recipe;
    bool resume;
    bool owned;                  /* this process has locked the directory */
    bool made, made_checkpoints; /* this process made the directory, and "checkpoints" in it */
    bool cleared;                /* only files of this process are there, and perhaps a recipe */
    bool again, had_recipe;      /* a new run replaces one that was never saved; that had a recipe */
    int except;                  /* for recipe_compare */
    char machine[24];            /* name of machine.json; "" until it is written */
    double started;
    char description[RUN_DESCRIPTIONS][2][128];
    int n_descriptions;
};

/* Fails with "DIRECTORY/NAME: what: strerror(error)"; returns -1. */
int run_fail_at(const run *r, const char *name, const char *what, int error);

/* Appends a line to a file and, unless e is empty, a record to TensorBoard's; both or none. Frees j and e. */
int run_append(run *r, int index, json *j, tfevents *e);

/* Opens or makes a file. 1: another process has just made it, or removed the directory. */
int run_open_file(run *r, int index);

/* ---- run_directory.c ---- */

/* Lock a directory, with metrics.jsonl open. run_take_new makes it and clears a run without a checkpoint, except its
 * recipe; it refuses a directory with anything else. run_take_existing needs a recipe there. */
int run_take_new(run *r);
int run_take_existing(run *r);
/* Removes what this process has made, if it owns the directory. */
void run_give_up(run *r);

/* ---- run_about.c ---- */

int run_write_json(const run *r, const char *name, json *j); /* frees j */
int run_write_recipe(const run *r);
int run_write_machine(run *r); /* machine.N.json if resumed, with the first free N */
int run_write_task(const run *r);

/* ---- run_records.c ---- */

/* Adds the fields to j and, unless e is NULL, to TensorBoard's record. */
void run_put_metrics(const run_metrics *m, json *j, tfevents *e);
