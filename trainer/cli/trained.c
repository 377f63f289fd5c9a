#include "cli/trained.h"

#include "core/error.h"
#include "train/checkpoints.h"
#include "train/rank_setup.h"

#include <string.h>
#include <unistd.h>

/* A flag for a key that only some tasks have. */
static int set_of_task(recipe *r, const char *flag, const char *key, const char *value) {
    for (const key_table *const *table = recipe_task(r)->keys; *table; table++) {
        for (int i = 0; i < (*table)->n; i++) {
            if (strcmp((*table)->keys[i].path, key) == 0) return recipe_set_flag(r, flag, key, value);
        }
    }
    return adamod__refuse("%s is for translation, but the run is of data.task %s", flag, r->data.task);
}

/* What overrides the run's recipe: 0, or -1 with a message. */
static int override(recipe *r, int flag, const char *value) {
    switch (flag) {
        case TRAINED_BEAM: return set_of_task(r, "--beam", "decode.beam", value);
        case TRAINED_LENGTH_PENALTY: return set_of_task(r, "--length-penalty", "decode.length_penalty", value);
        case TRAINED_DEVICE: return training_device(r, value);
        case TRAINED_SET: return recipe_set(r, value);
        default: return 0;
    }
}

static int take_operand(trained *t, const char *value) {
    if (t->run && t->operand) return t->operand(t->context, value);
    if (t->run) return cli_usage(t->command, "unexpected argument '%.80s'", value);
    t->run = value;
    return 0;
}

/* Exit status, or -1 to go on. What overrides the run's recipe is for a second pass, once that is loaded. */
static int parse(trained *t, int argc, char **argv, recipe *r) {
    cli_parser p = {.command = t->command, .flags = t->flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        int status = 0;
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == TRAINED_HELP) {
            fputs(t->help, stdout);
            cli_print_flags(stdout, t->flags);
            return 0;
        }
        if (flag == CLI_OPERAND) {
            status = r ? 0 : take_operand(t, p.value);
        } else if (flag == TRAINED_CHECKPOINT) {
            t->checkpoint = r ? t->checkpoint : p.value;
        } else if (flag >= (t->plain ? TRAINED_PLAIN_FLAGS : TRAINED_FLAGS)) {
            status = t->own(t->context, flag, p.value);
        } else if (r && override(r, flag, p.value)) {
            return cli_refused(t->command);
        }
        if (status) return status;
    }
    return t->run ? -1 : cli_usage(t->command, "needs a run directory");
}

int trained_open(trained *t, int argc, char **argv, experiment *e, int uses) {
    static recipe r;
    char checkpoint[1200];
    int status = parse(t, argc, argv, NULL);
    if (status >= 0) return status;
    if ((status = training_open_run(t->command, t->run, &t->checkpoint, &r, checkpoint, sizeof checkpoint)))
        return status;
    if ((status = parse(t, argc, argv, &r)) >= 0) return status;
    if (t->on_host) snprintf(r.train.backend, sizeof r.train.backend, "cpu");
    if (recipe_check(&r)) return cli_refused(t->command);
    rank_setup_local(&r, t->comm);
    const bool shows = comm_rank(t->comm) == 0 && isatty(STDERR_FILENO);
    progress_outside(&t->progress, shows ? TRAIN_LIVE : TRAIN_SILENT, NULL, 0);
    const task_progress tell = {progress_within, &t->progress};
    const int failed = experiment_open_telling(e, &r, t->run, uses, tell);
    progress_end(&t->progress);
    if (failed) return cli_failed(t->command);
    t->meta = (checkpoint_meta){.fingerprint = e->task->fingerprint(e)};
    if (checkpoint_load(checkpoint, e->params, NULL, &t->meta)) {
        experiment_close(e);
        (void)checkpoints_offer(t->run, checkpoint, false);
        return cli_failed(t->command);
    }
    return -1;
}
