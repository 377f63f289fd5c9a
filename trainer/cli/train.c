/* adamod train: one recipe into one run directory. */
#include "cli/ranks.h"
#include "cli/run_recipe.h"
#include "support/run_format.h"
#include "train/checkpoints.h"
#include "train/run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct arguments {
    const char *recipe, *out;
    cli_changes changes;
    train_options how;
    bool dry_run, keys;
} arguments;

static int read_reset(void *to, const cli_flag *flag, const char *what) {
    static const char *const names[] = {"optimizer", "options", "data", NULL};
    for (int i = 0; names[i]; i++) {
        if (strcmp(what, names[i]) == 0) return ((arguments *)to)->how.reset |= 1 << i, 0;
    }
    return cli_usage("train", "--%s is '%.40s', expected optimizer, options or data", flag->name, what);
}

static int read_resume_from(void *to, const cli_flag *flag, const char *which) {
    arguments *a = to;
    a->how.resume = true;
    a->how.resume_from = which;
    if (checkpoints_is_name(which)) return 0;
    return cli_usage("train", "--%s is '%.80s', expected best, last, step-N or a file", flag->name, which);
}

static const cli_flag flags[] = {
    CLI_CHANGE("set", "KEY=VALUE", "override a key of the recipe; may be repeated; optimizer=sgd changes the rule",
               arguments, changes, NULL),
    CLI_TEXT("out", "DIR", "the run directory (runs/NAME)", arguments, out),
    RECIPE_DEVICE_FLAG(arguments, changes),
    CLI_CHANGE("init-from", "RUN|FILE", "start from the weights of another run or a safetensors file", arguments,
               changes, "train.init_from"),
    CLI_CHANGE("init", "RUN|FILE", "short for --init-from", arguments, changes, "train.init_from"),
    CLI_SWITCH("resume", "continue the run in DIR from its last checkpoint", arguments, how.resume),
    CLI_READ("resume-from", "NAME", "continue from best, step-N or a file; later checkpoints are deleted",
             read_resume_from),
    CLI_READ("reset", "WHAT", "when resuming: optimizer, options or data, see above; may be repeated", read_reset),
    CLI_SWITCH("dry-run", "print parameters, updates, memory and estimated time of a run; write nothing", arguments,
               dry_run),
    CLI_SWITCH("keys", "list every key of a recipe, task by task, and exit", arguments, keys),
    CLI_HELP_FLAG,
    {0}};

static const cli_syntax syntax = {
    .command = "train",
    .help = "usage: adamod train RECIPE [--set KEY=VALUE]... [--out DIR]\n"
            "       adamod train --resume --out DIR\n\n"
            "Trains the model that a recipe describes. The run directory receives metrics, learning-rate histograms,\n"
            "TensorBoard events, samples and checkpoints. Ctrl-C saves a checkpoint and stops. --resume continues\n"
            "after that or after a crash; it uses the recipe in the run unless another is given.\n"
            "Processes started by mpirun or srun train together: mpirun -n 4 adamod train RECIPE.\n\n"
            "When resuming, --reset allows changes:\n\n"
            "  options    options and schedules of the optimizer, such as the learning rate; its states are kept\n"
            "  optimizer  the optimizer itself; its states are discarded\n"
            "  data       the content of training, validation or test data\n\n",
    .flags = flags,
    .takes = CLI_ONE_OPERAND,
    .operands = offsetof(arguments, recipe)};

/* Returns the exit status, or -1 to go on. */
static int check(const arguments *a) {
    struct stat st;
    for (int i = 0; i < a->changes.n; i++) {
        const struct cli_change *c = &a->changes.list[i];
        if (c->flag->key && strcmp(c->flag->key, "train.init_from") == 0 && !*c->value)
            return cli_usage("train", "--%s is empty, expected a run or a safetensors file", c->flag->name);
    }
    if (a->how.reset && !a->how.resume) return cli_usage("train", "--reset is for a run that is resumed");
    if (a->dry_run && a->how.resume) return cli_usage("train", "--dry-run is for a new run, not with --resume");
    if (a->how.resume && !a->out && a->recipe && stat(a->recipe, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_usage("train", "%.200s is a directory, expected a recipe; a run goes on by --resume --out %.200s",
                         a->recipe, a->recipe);
    if (a->recipe || (a->how.resume && a->out)) return -1;
    return cli_usage("train", a->how.resume ? "--resume needs the run's directory, --out DIR"
                                            : "needs a recipe, say recipes/demo.yaml");
}

/* A run has copies of the vocabularies and codes that its recipe names. They are taken where the originals are gone. */
static int use_kept_files(recipe *r, const char *directory) {
    char assignment[PATH_MAX + 64], whole[PATH_MAX];
    task_kept kept[TASK_MOST_KEPT];
    const int n = recipe_task(r)->kept ? recipe_task(r)->kept(r, kept) : 0;
    int status = 0;
    for (int i = 0; i < n && !status; i++) {
        if (!*kept[i].from || access(kept[i].from, F_OK) == 0 || !realpath(directory, whole)) continue;
        snprintf(assignment, sizeof assignment, "%s=%s%s", kept[i].key, whole, kept[i].name);
        status = recipe_set(r, assignment);
    }
    return status;
}

/* Loads the recipe of the run to resume. */
static int load_own(const char *directory, recipe *r) {
    char path[1200];
    snprintf(path, sizeof path, "%s/recipe.yaml", directory);
    if (access(path, R_OK)) {
        const char *why = strerror(errno);
        if (!run_is_unbegun(directory, r))
            return cli_fail("train", "%s: no run to resume: recipe.yaml: %s", directory, why);
        return cli_fail("train",
                        "%s: no run to resume: it has no recipe yet: begin it with adamod train RECIPE --out %s",
                        directory, directory);
    }
    if (run_format_check(directory)) return cli_failed("train");
    return checkpoints_recipe(directory, r) || use_kept_files(r, directory) ? cli_refused("train") : 0;
}

/* Returns the exit status, or -1 to go on. */
static int read_all(int argc, char **argv, arguments *a, recipe *r) {
    char dropped[1024];
    if (recipe_defaults(r, tasks_all)) return cli_failed("train");
    int status = cli_parse(&syntax, argc, argv, a);
    if (status >= 0) return status;
    if (a->keys) return recipe_describe(stdout, tasks_all), 0;
    if ((status = check(a)) >= 0) return status;
    if (!a->recipe && (status = load_own(a->out, r)) > 0) return status;
    if (a->recipe && recipe_load(r, a->recipe)) return cli_refused("train");
    if (recipe_change(r, &a->changes)) return cli_refused("train");
    if (recipe_dropped(r, dropped, sizeof dropped) && comm_rank(a->how.comm) == 0) run_recipe_note(dropped);
    return recipe_check(r) ? cli_refused("train") : -1;
}

int cli_train(int argc, char **argv) {
    arguments a = {0};
    static recipe r;
    char directory[160], told[600];
    train_result result;
    int status = ranks_join("train", &a.how.comm);
    if (status) return status;
    status = read_all(argc, argv, &a, &r);
    snprintf(told, sizeof told, "%d %d %.500s %d", a.dry_run, a.how.resume, a.how.resume_from ? a.how.resume_from : "",
             a.how.reset);
    status = ranks_agree("train", a.how.comm, status, told);
    if (status < 0 && a.dry_run) {
        status = run_recipe_dry(&r, a.how.comm);
    } else if (status < 0) {
        snprintf(directory, sizeof directory, "runs/%s", r.name);
        a.how.directory = a.out ? a.out : directory;
        status = run_recipe("train", &r, &a.how, NULL, &result);
    }
    free(a.changes.list);
    return ranks_leave("train", a.how.comm, status);
}
