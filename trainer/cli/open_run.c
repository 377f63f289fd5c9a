#include "cli/open_run.h"

#include "core/error.h"
#include "support/run_format.h"
#include "tasks/gpt_folder.h"
#include "tasks/tasks.h"
#include "train/checkpoints.h"
#include "train/rank_setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Loads the run's recipe, and finds the checkpoint to read: averaged, best, last, step-N or a path; if o->checkpoint is NULL,
 * the first that exists of averaged, best and last, which it then names. */
static int find_checkpoint(const char *command, opened_run *o, recipe *r, char *path, size_t size) {
    if (recipe_defaults(r, tasks_all)) return cli_failed(command);
    o->foreign = gpt_folder_is(o->directory);
    if (o->foreign) {
        if (o->checkpoint)
            return cli_usage(command, "--checkpoint is for runs, but %s is a folder of transformers", o->directory);
        o->checkpoint = "model.safetensors";
        snprintf(path, size, "%s/%s", o->directory, o->checkpoint);
        return gpt_folder_recipe(o->directory, r) || recipe_check(r) ? cli_failed(command) : 0;
    }
    snprintf(path, size, "%s/recipe.yaml", o->directory);
    if (access(path, R_OK))
        return cli_fail(command, "%s: not a run directory: recipe.yaml: %s", o->directory, strerror(errno));
    if (run_format_check(o->directory) || recipe_load(r, path) || recipe_check(r)) return cli_failed(command);
    if (o->checkpoint && !checkpoints_is_name(o->checkpoint))
        return cli_usage(command, "--checkpoint is '%.80s', expected averaged, best, last, step-N or a file",
                         o->checkpoint);
    if (!checkpoints_find(o->directory, &o->checkpoint, path, size)) return 0;
    if (o->checkpoint) (void)checkpoints_offer(o->directory, path, false);
    return cli_failed(command);
}

static int load_foreign(experiment *e, const char *path) {
    bool known = false;
    if (e->task->foreign(e, path, &known)) return -1;
    return known ? 0 : adamod__refuse("%s: these are not GPT-2's weights as transformers saves them", path);
}

static int load_model(const char *command, opened_run *o, const recipe *r, const char *path, experiment *e, int uses) {
    const bool shows = comm_rank(o->comm) == 0 && isatty(STDERR_FILENO);
    progress_outside(&o->progress, shows ? TRAIN_LIVE : TRAIN_SILENT, NULL, 0);
    const task_progress tell = {progress_within, &o->progress};
    const int failed = experiment_open_telling(e, r, o->directory, uses, tell);
    progress_end(&o->progress);
    if (failed) return cli_failed(command);
    o->meta = (checkpoint_meta){.fingerprint = e->task->fingerprint(e)};
    if (!(o->foreign ? load_foreign(e, path) : checkpoint_load(path, e->params, NULL, &o->meta))) return -1;
    experiment_close(e);
    if (!o->foreign) (void)checkpoints_offer(o->directory, path, false);
    return cli_failed(command);
}

/* A file of the recipe is in data.path, but one of the command line in the current directory. */
static int take_test_file(recipe *r, const char *file) {
    static const char flag[] = "--data";
    char path[2 * RECIPE_PATH] = "";
    const task *t = recipe_task(r);
    int i = 0;
    while (!tasks_all[i]->set_test_file) i++;
    if (!t->set_test_file)
        return adamod__refuse("%s is for %s, but the run is of data.task %s", flag, tasks_all[i]->name, t->name);
    if (!*file) return adamod__refuse("%s is empty, expected a file", flag);
    if (*file != '/' && !getcwd(path, RECIPE_PATH))
        return adamod__fail(ADAMOD_ERROR_IO, "%s: the current directory: %s", flag, strerror(errno));
    const size_t n = strlen(path);
    snprintf(path + n, sizeof path - n, "%s%s", n ? "/" : "", file);
    return t->set_test_file(r, flag, path);
}

int open_run(const cli_syntax *syntax, int argc, char **argv, opened_run *o, experiment *e, int uses) {
    static recipe r;
    char path[1200];
    const char *command = syntax->command;
    int status = cli_parse(syntax, argc, argv, o);
    if (status < 0) status = o->directory ? 0 : cli_usage(command, "needs a run directory");
    else return free(o->changes.list), status;
    if (!status) status = find_checkpoint(command, o, &r, path, sizeof path);
    if (!status && recipe_change(&r, &o->changes)) status = cli_refused(command);
    if (!status && o->test_file && take_test_file(&r, o->test_file)) status = cli_refused(command);
    free(o->changes.list);
    if (status) return status;
    if (o->on_host && o->on_host(&r)) snprintf(r.train.backend, sizeof r.train.backend, "cpu");
    if (recipe_check(&r)) return cli_refused(command);
    rank_setup_local(&r, o->comm);
    return load_model(command, o, &r, path, e, uses);
}
