/* adamod evaluate: the metrics of a trained model on held-out data. */
#include "support/json.h"
#include "cli/ranks.h"
#include "cli/open_run.h"
#include "train/resume.h"
#include "train/rank_setup.h"

#include <math.h>
#include <string.h>

typedef struct arguments {
    opened_run run;
    int split; /* index of its name; -1: not given */
    bool json;
} arguments;

static const char *const splits[] = {"valid", "test", NULL};

static const cli_flag flags[] = {
    OPEN_RUN_FLAGS,
    OPEN_RUN_BEAM_FLAGS,
    CLI_CHOICE("split", "valid|test", "the data to evaluate on (test, if there is one)", arguments, split, splits),
    CLI_TEXT("data", "FILE", "language: the file to evaluate on, in place of the test set", arguments, run.test_file),
    CLI_SWITCH("json", "print one JSON object", arguments, json),
    {0}};

static const cli_syntax syntax = {
    .command = "evaluate",
    .help = "usage: adamod evaluate RUN [--split valid|test] ...\n\n"
            "Measures a run's model on held-out data: loss, accuracy, BLEU and whatever else its task measures.\n\n",
    .flags = flags,
    .takes = CLI_ONE_OPERAND,
    .operands = offsetof(arguments, run.directory)};

static bool is_any(const metric *m) { return m != NULL; }

static void print_text(const experiment *e, const opened_run *t, task_split split, const task_result *r) {
    printf("%s set, %lld %s, %s checkpoint: ", split == SPLIT_TEST ? "test" : "validation", (long long)r->samples,
           e->task->samples, t->checkpoint);
    run_recipe_print_metrics(e->task, r, is_any, "", "");
    printf("\n");
    for (int i = 0; i < e->task->n_metrics; i++) {
        const metric *m = &e->task->metrics[i];
        if (m->signature && !isnan(r->value[i])) printf("%s: %s\n", m->label, m->signature);
    }
}

static int print_json(const experiment *e, const opened_run *t, task_split split, const task_result *r) {
    json j = {0};
    json_open(&j, '{');
    json_pair(&j, "split", split == SPLIT_TEST ? "test" : "valid");
    json_pair(&j, "checkpoint", t->checkpoint);
    json_pair_number(&j, e->task->items, r->items);
    if (strcmp(e->task->samples, e->task->items) != 0) json_pair_integer(&j, e->task->samples, r->samples);
    for (int i = 0; i < e->task->n_metrics; i++) {
        json_pair_number(&j, e->task->metrics[i].name, r->value[i]);
        if (!e->task->metrics[i].signature) continue;
        char name[64];
        snprintf(name, sizeof name, "%s_signature", e->task->metrics[i].name);
        json_pair(&j, name, e->task->metrics[i].signature);
    }
    json_pair_number(&j, "seconds", r->seconds);
    json_close(&j, '}');
    return cli_print_json("evaluate", &j, "\n");
}

/* Evaluates an open experiment and closes it. Returns the exit status. */
static int evaluate(arguments *a, experiment *e) {
    opened_run *t = &a->run;
    task_result result;
    char remark[1024];
    const bool test = a->split >= 0 ? a->split == 1 : e->task->count(e, SPLIT_TEST) > 0 || *e->gone[SPLIT_TEST];
    const task_split split = test ? SPLIT_TEST : SPLIT_VALID;
    const bool first = comm_rank(t->comm) == 0;
    int status = 0;
    const bool there = e->task->count(e, split) > 0, noted = e->task->note(e, split, remark, sizeof remark);
    if (first && there && noted) run_recipe_note(remark);
    if (first && resume_other_data(e, split, &t->meta, t->directory, remark, sizeof remark)) run_recipe_note(remark);
    e->progress = (task_progress){progress_within, &t->progress};
    e->comm = t->comm;
    if (rank_setup_compare(e)) status = cli_failed("evaluate");
    else if (*e->gone[split] && t->foreign && !t->test_file)
        status = cli_usage("evaluate", "%s has a model, but no data: needs --data FILE", t->directory);
    else if (*e->gone[split]) status = cli_fail("evaluate", "%s", e->gone[split]);
    else if (!there)
        status = cli_fail("evaluate", "%s: the recipe has no %s set", t->directory, test ? "test" : "validation");
    if (status) {
        experiment_close(e);
        return status;
    }
    const int failed = e->task->evaluate(e, split, TASK_WHOLE, NULL, NULL, &result);
    progress_end(&t->progress);
    if (failed) status = cli_failed("evaluate");
    else if (!isfinite(result.value[0]))
        status = cli_fail("evaluate", "%s: the loss of the %s checkpoint is not finite", t->directory, t->checkpoint);
    else if (a->json) status = print_json(e, t, split, &result);
    else print_text(e, t, split, &result);
    experiment_close(e);
    return status;
}

int cli_evaluate(int argc, char **argv) {
    arguments a = {.split = -1};
    experiment e;
    int status = ranks_join("evaluate", &a.run.comm);
    if (status) return status;
    status = open_run(&syntax, argc, argv, &a.run, &e, TASK_SCORE | TASK_APPLY);
    if (status < 0 && a.run.test_file && a.split == 0) {
        experiment_close(&e);
        status = cli_usage("evaluate", "--split is valid, but --data is in place of the test set");
    }
    status = ranks_agree("evaluate", a.run.comm, status, a.split < 0 ? "" : splits[a.split]);
    if (status < 0) status = evaluate(&a, &e);
    return ranks_leave("evaluate", a.run.comm, status);
}
