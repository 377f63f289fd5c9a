/* adamod train: one recipe into one run directory. */
#include "cli/ranks.h"
#include "cli/training.h"
#include "train/checkpoints.h"
#include "train/run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FLAG_SET,
    FLAG_OUT,
    FLAG_DEVICE,
    FLAG_INIT_FROM,
    FLAG_RESUME,
    FLAG_RESUME_FROM,
    FLAG_RESET,
    FLAG_DRY_RUN,
    FLAG_KEYS,
    FLAG_HELP
};
static const cli_flag flags[] = {
    {"set", "KEY=VALUE", "override a key of the recipe; may be repeated; optimizer=sgd changes the rule"},
    {"out", "DIR", "the run directory (runs/NAME)"},
    TRAINING_DEVICE_FLAG,
    {"init-from", "RUN|FILE", "start from the weights of another run or a safetensors file"},
    {"resume", NULL, "continue the run in DIR from its last checkpoint"},
    {"resume-from", "NAME", "continue from best, step-N or a file; later checkpoints are deleted"},
    {"reset", "WHAT", "when resuming: optimizer, options or data, see above; may be repeated"},
    {"dry-run", NULL, "print parameters, updates, memory and estimated time of a run; write nothing"},
    {"keys", NULL, "list every key of a recipe, task by task, and exit"},
    CLI_HELP_FLAG,
    {0}};

static void print_help(void) {
    printf("usage: adamod train RECIPE [--set KEY=VALUE]... [--out DIR]\n"
           "       adamod train --resume --out DIR\n\n"
           "Trains the model that a recipe describes. The run directory receives metrics, learning-rate histograms,\n"
           "TensorBoard events, samples and checkpoints. Ctrl-C saves a checkpoint and stops. --resume continues\n"
           "after that or after a crash; it uses the recipe in the run unless another is given.\n"
           "Processes started by mpirun or srun train together: mpirun -n 4 adamod train RECIPE.\n\n"
           "When resuming, --reset allows changes:\n\n"
           "  options    options and schedules of the optimizer, such as the learning rate; its states are kept\n"
           "  optimizer  the optimizer itself; its states are discarded\n"
           "  data       the content of training, validation or test data\n\n");
    cli_print_flags(stdout, flags);
}

typedef struct arguments {
    const char *recipe, *out;
    train_options how;
    bool dry_run;
} arguments;

static int read_reset(arguments *a, const char *what) {
    static const char *const names[] = {"optimizer", "options", "data", NULL};
    for (int i = 0; names[i]; i++) {
        if (strcmp(what, names[i]) == 0) return a->how.reset |= 1 << i, 0;
    }
    return cli_usage("train", "--reset is '%.40s', expected optimizer, options or data", what);
}

static int read_resume_from(arguments *a, const char *which) {
    a->how.resume = true;
    a->how.resume_from = which;
    if (checkpoints_is_name(which)) return 0;
    return cli_usage("train", "--resume-from is '%.80s', expected best, last, step-N or a file", which);
}

/* Exit status, or -1 to go on. Overrides are applied by a second pass, after the recipe is loaded. */
static int parse(int argc, char **argv, arguments *a, recipe *r, bool overrides) {
    cli_parser p = {.command = "train", .flags = flags, .argc = argc, .argv = argv};
    int status;
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        switch (flag) {
            case CLI_BAD: return CLI_USAGE;
            case CLI_OPERAND:
                if (a->recipe && !overrides) return cli_usage("train", "unexpected argument '%.80s'", p.value);
                a->recipe = p.value;
                break;
            case FLAG_SET:
                if (overrides && recipe_set(r, p.value)) return cli_refused("train");
                break;
            case FLAG_OUT: a->out = p.value; break;
            case FLAG_DEVICE:
                if (overrides && training_device(r, p.value)) return cli_refused("train");
                break;
            case FLAG_INIT_FROM:
                if (!*p.value) return cli_usage("train", "--init-from is empty, expected a run or a safetensors file");
                if (overrides && recipe_set_flag(r, "--init-from", "train.init_from", p.value))
                    return cli_refused("train");
                break;
            case FLAG_RESUME: a->how.resume = true; break;
            case FLAG_RESUME_FROM:
                if ((status = read_resume_from(a, p.value))) return status;
                break;
            case FLAG_RESET:
                if ((status = read_reset(a, p.value))) return status;
                break;
            case FLAG_DRY_RUN: a->dry_run = true; break;
            case FLAG_KEYS: recipe_describe(stdout, tasks_all); return 0;
            case FLAG_HELP: print_help(); return 0;
            default: break;
        }
    }
    if (a->how.reset && !a->how.resume) return cli_usage("train", "--reset is for a run that is resumed");
    if (a->dry_run && a->how.resume) return cli_usage("train", "--dry-run is for a new run, not with --resume");
    struct stat st;
    if (a->how.resume && !a->out && a->recipe && stat(a->recipe, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_usage("train", "%.200s is a directory, expected a recipe; a run goes on by --resume --out %.200s",
                         a->recipe, a->recipe);
    if (a->recipe || (a->how.resume && a->out)) return -1;
    return cli_usage("train", a->how.resume ? "--resume needs the run's directory, --out DIR"
                                            : "needs a recipe, say recipes/demo.yaml");
}

/* A run keeps the vocabularies and codes that it took from elsewhere, or from itself before it was moved: where those are
 * gone, its own are taken. */
static int take_what_is_kept(recipe *r, const char *directory) {
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

/* Exit status, or -1 to go on. */
static int read_all(int argc, char **argv, arguments *a, recipe *r) {
    static char own[1200];
    char dropped[1024];
    if (recipe_defaults(r, tasks_all)) return cli_failed("train");
    int status = parse(argc, argv, a, r, false);
    if (status >= 0) return status;
    if (!a->recipe) {
        snprintf(own, sizeof own, "%s/recipe.yaml", a->out);
        a->recipe = own;
        if (access(own, R_OK)) {
            const char *why = strerror(errno);
            if (!run_is_unbegun(a->out, r))
                return cli_fail("train", "%s: no run to resume: recipe.yaml: %s", a->out, why);
            return cli_fail("train",
                            "%s: no run to resume: it has no recipe yet: begin it with adamod train RECIPE --out %s",
                            a->out, a->out);
        }
    }
    if (a->recipe == own ? checkpoints_recipe(a->out, r) : recipe_load(r, a->recipe)) return cli_refused("train");
    if (a->recipe == own && take_what_is_kept(r, a->out)) return cli_refused("train");
    if ((status = parse(argc, argv, a, r, true)) >= 0) return status;
    if (recipe_dropped(r, dropped, sizeof dropped) && comm_rank(a->how.comm) == 0) training_note(dropped);
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
        status = training_dry_run(&r, a.how.comm);
    } else if (status < 0) {
        snprintf(directory, sizeof directory, "runs/%s", r.name);
        a.how.directory = a.out ? a.out : directory;
        status = training_run("train", &r, &a.how, NULL, &result);
    }
    return ranks_leave("train", a.how.comm, status);
}
