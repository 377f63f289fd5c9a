/* What the files of run.h share: the run, and how its files are written.
 *
 * run.c has the files that grow, marks and the end; run_directory.c how a process takes the directory; run_about.c the files
 * that say what is run, which are written at once; run_records.c what is measured meanwhile. */
#ifndef ADAMOD_RUN_PARTS_H
#define ADAMOD_RUN_PARTS_H

#include "support/json.h"
#include "train/run.h"
#include "train/tfevents.h"

/* What grows while a run goes on. */
enum { RUN_METRICS, RUN_HISTOGRAMS, RUN_SAMPLES, RUN_EVENTS, RUN_FILES };
enum { RUN_NAME = 96, RUN_DESCRIPTIONS = 16 }; /* bytes of a file's name; pairs of run_describe */

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
    bool owned;                  /* the directory, by its lock */
    bool made, made_checkpoints; /* by this process: the directory, and "checkpoints" in it */
    bool cleared;                /* nothing is there that this process has not made, but perhaps a recipe */
    bool again, had_recipe;      /* of a new one: another that was never saved was there; with a recipe */
    int except;                  /* in what the recipe may differ from the one that is there */
    char machine[24];            /* the file's name; "" until it is written */
    double started;
    char description[RUN_DESCRIPTIONS][2][128];
    int n_descriptions;
};

/* Returns -1, with "DIRECTORY/NAME: what: the error's text". */
int run_fail_at(const run *r, const char *name, const char *what, int error);
/* DIRECTORY/NAME in memory of its own; without memory there is a message. */
char *run_path(const run *r, const char *name);

/* A line for one of the files that grow and, unless e is empty, a record for TensorBoard; both or none. Frees j and e. */
int run_append(run *r, int index, json *j, tfevents *e);

/* Opens one of the files that grow, and makes it if it is not there: 0, or -1; 1: another process has just made it, or removed
 * the directory. */
int run_open_file(run *r, int index);

/* ---- run_directory.c ---- */

/* Takes a directory for this process alone, with metrics.jsonl open. For a new run it is made, and what one without a
 * checkpoint has left is removed, but its recipe; what holds anything else is refused, as it is. An existing one has a
 * recipe. */
int run_take_new(run *r);
int run_take_existing(run *r);
/* Removes what this process has made there, if it has the directory. */
void run_give_up(run *r);

/* ---- run_about.c ---- */

int run_write_json(const run *r, const char *name, json *j); /* frees j */
int run_write_recipe(const run *r);
int run_write_machine(run *r); /* a resumed run's is machine.N.json, for the first N that is free */
int run_write_task(const run *r);

/* ---- run_records.c ---- */

/* The object's fields, and (e may be NULL) the same for TensorBoard. */
void run_put_metrics(const run_metrics *m, json *j, tfevents *e);

#endif
