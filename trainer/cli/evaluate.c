/* adamod evaluate: what a trained model is worth on held-out data, as its task measures it. */
#include "support/json.h"
#include "cli/ranks.h"
#include "cli/trained.h"
#include "train/resume.h"
#include "train/rank_setup.h"

#include <math.h>
#include <string.h>

enum { FLAG_SPLIT = TRAINED_FLAGS, FLAG_JSON };
static const cli_flag flags[] = {TRAINED_MODEL_FLAGS,
                                 {"split", "valid|test", "the data to evaluate on (test, if there is one)"},
                                 {"json", NULL, "print one JSON object"},
                                 {0}};

typedef struct arguments {
    const char *split;
    bool json;
} arguments;

static int read_flag(void *context, int flag, const char *value) {
    arguments *a = context;
    if (flag == FLAG_JSON) {
        a->json = true;
        return 0;
    }
    a->split = value;
    if (strcmp(value, "valid") == 0 || strcmp(value, "test") == 0) return 0;
    return cli_usage("evaluate", "--split is '%.40s', expected valid or test", value);
}

static bool is_any(const metric *m) { return m != NULL; }

static void print_text(const experiment *e, const trained *t, task_split split, const task_result *r) {
    printf("%s set, %lld %s, %s checkpoint: ", split == SPLIT_TEST ? "test" : "validation", (long long)r->samples,
           e->task->samples, t->checkpoint);
    training_print_metrics(e->task, r, is_any, "", "");
    printf("\n");
    for (int i = 0; i < e->task->n_metrics; i++) {
        const metric *m = &e->task->metrics[i];
        if (m->signature && !isnan(r->value[i])) printf("%s: %s\n", m->label, m->signature);
    }
}

static int print_json(const experiment *e, const trained *t, task_split split, const task_result *r) {
    json j = {0};
    json_open(&j, '{');
    json_pair(&j, "split", split == SPLIT_TEST ? "test" : "valid");
    json_pair(&j, "checkpoint", t->checkpoint);
    json_key(&j, e->task->items);
    json_number(&j, r->items);
    if (strcmp(e->task->samples, e->task->items) != 0) {
        json_key(&j, e->task->samples);
        json_integer(&j, r->samples);
    }
    for (int i = 0; i < e->task->n_metrics; i++) {
        json_key(&j, e->task->metrics[i].name);
        json_number(&j, r->value[i]);
        if (!e->task->metrics[i].signature) continue;
        char name[64];
        snprintf(name, sizeof name, "%s_signature", e->task->metrics[i].name);
        json_pair(&j, name, e->task->metrics[i].signature);
    }
    json_key(&j, "seconds");
    json_number(&j, r->seconds);
    json_close(&j, '}');
    const int status = j.failed ? cli_fail("evaluate", "out of memory") : 0;
    if (!status) printf("%s\n", j.text);
    json_free(&j);
    return status;
}

/* Of an experiment that is open, and closed then; the exit status. */
static int evaluate(const arguments *a, trained *t, experiment *e) {
    task_result result;
    char remark[1024];
    const bool test = a->split ? strcmp(a->split, "test") == 0 : e->task->has(e, SPLIT_TEST) || *e->gone[SPLIT_TEST];
    const task_split split = test ? SPLIT_TEST : SPLIT_VALID;
    const bool first = comm_rank(t->comm) == 0;
    int status = 0;
    const bool there = e->task->has(e, split), noted = e->task->note(e, split, remark, sizeof remark);
    if (first && there && noted) training_note(remark);
    if (first && resume_other_data(e, split, &t->meta, t->run, remark, sizeof remark)) training_note(remark);
    e->progress = (task_progress){progress_within, &t->progress};
    e->comm = t->comm;
    if (rank_setup_compare(e)) status = cli_failed("evaluate");
    else if (*e->gone[split]) status = cli_fail("evaluate", "%s", e->gone[split]);
    else if (!there)
        status = cli_fail("evaluate", "%s: the recipe has no %s set", t->run, test ? "test" : "validation");
    if (status) {
        experiment_close(e);
        return status;
    }
    const int failed = e->task->evaluate(e, split, TASK_WHOLE, NULL, NULL, &result);
    progress_end(&t->progress);
    if (failed) status = cli_failed("evaluate");
    else if (a->json) status = print_json(e, t, split, &result);
    else print_text(e, t, split, &result);
    experiment_close(e);
    return status;
}

int cli_evaluate(int argc, char **argv) {
    arguments a = {0};
    trained t = {
        .command = "evaluate",
        .flags = flags,
        .help =
            "usage: adamod evaluate RUN [--split valid|test] ...\n\n"
            "Measures a run's model on held-out data: loss, accuracy, BLEU and whatever else its task measures.\n\n",
        .own = read_flag,
        .context = &a};
    experiment e;
    int status = ranks_join("evaluate", &t.comm);
    if (status) return status;
    status = trained_open(&t, argc, argv, &e, TASK_SCORE | TASK_APPLY);
    status = ranks_agree("evaluate", t.comm, status, a.split ? a.split : "");
    if (status < 0) status = evaluate(&a, &t, &e);
    return ranks_leave("evaluate", t.comm, status);
}
