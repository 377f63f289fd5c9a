/* adamod train --dry-run: the size, memory and time of a run, found by reading the data, making a few updates and evaluating
 * once. Writes no file. */
#include "support/text.h"
#include "cli/run_recipe.h"
#include "nn/profile.h"
#include "train/estimate.h"
#include "train/progress.h"
#include "train/resume.h"
#include "train/rank_setup.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- known without a measurement ---- */

static void print_fact(void *unused, const char *name, const char *value) {
    (void)unused;
    text_line(stdout, "%-20s%s", name, value);
}

static void print_data(const experiment *e) {
    const task *t = e->task;
    print_fact(NULL, "task", t->name);
    for (int split = 0; split < SPLITS; split++) {
        char name[40], value[64];
        const int64_t n = t->count(e, (task_split)split);
        snprintf(name, sizeof name, "%s set", task_split_label((task_split)split));
        snprintf(value, sizeof value, "%lld %s", (long long)n, t->samples);
        if (n > 0) print_fact(NULL, name, value);
    }
    if (t->describe) t->describe(e, print_fact, NULL);
}

/* The outermost part of a parameter's name: "encoder". */
static int part_length(const nn_param *p) { return (int)strcspn(p->name, "."); }

static bool same_part(const nn_param *a, const nn_param *b) {
    return part_length(a) == part_length(b) && strncmp(a->name, b->name, (size_t)part_length(a)) == 0;
}

static void print_model(const experiment *e) {
    const nn_params *p = e->params;
    int64_t kinds[3] = {0};
    printf("%-20s%s, %lld parameters\n", "model", e->recipe.model.kind, (long long)nn_params_total(p));
    for (int i = 0; i < p->n; i++) {
        int64_t count = 0;
        bool first = true;
        for (int k = 0; k < p->n; k++) {
            first = first && (k >= i || !same_part(&p->list[k], &p->list[i]));
            if (same_part(&p->list[k], &p->list[i])) count += p->list[k].count;
        }
        kinds[p->list[i].kind] += p->list[i].count;
        if (first) printf("  %-18.*s%lld\n", part_length(&p->list[i]), p->list[i].name, (long long)count);
    }
    printf("  of these%10s%lld in biases, %lld in norms\n", "", (long long)kinds[NN_BIAS], (long long)kinds[NN_NORM]);
}

/* Prints the size of a group and its options. */
static void print_group(const experiment *e, int index, const recipe_group *g) {
    const recipe_pair *option;
    int64_t count = 0;
    bool unused;
    for (int i = 0; i < e->params->n; i++) {
        const nn_param *p = &e->params->list[i];
        if (recipe_group_of(&e->recipe, p->name, &unused) == index) count += p->count;
    }
    printf("  group %-12s%lld%s", g->name, (long long)count, g->freeze ? ", frozen" : "");
    for (int i = 0; !g->freeze && (option = recipe_group_option(&e->recipe, g->name, i)); i++)
        printf(", %s %s", option->key + strlen(g->name) + 1, option->value);
    printf("\n");
}

static void print_groups(const experiment *e) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    const int n = recipe_groups(&e->recipe, groups);
    int64_t count = 0;
    for (int i = 0; i < e->params->n; i++) {
        if (experiment_trains(e, &e->params->list[i])) count += e->params->list[i].count;
    }
    if (n) printf("%-20s%lld of %lld parameters\n", "trained", (long long)count, (long long)nn_params_total(e->params));
    for (int i = 0; i < n; i++) print_group(e, i + 1, &groups[i]);
}

static const char *span_text(key_span every, char out[64]) {
    if (every.epochs > 0) snprintf(out, 64, "every %.15g epoch%s", every.epochs, every.epochs > 1 ? "s" : "");
    else if (every.updates > 0) snprintf(out, 64, "every %lld updates", (long long)every.updates);
    else snprintf(out, 64, "at the end");
    return out;
}

static void print_length(const experiment *e) {
    char evaluate[64], save[64];
    const double epochs = (double)e->steps * e->epoch.accumulate / (double)e->epoch.batches;
    printf("%-20s%lld per epoch, %d per update\n", "batches", (long long)e->epoch.batches, e->epoch.accumulate);
    printf("%-20s%lld (%.4g epochs)\n", "updates", (long long)e->steps, epochs);
    printf("%-20s%s; checkpoints %s\n", "evaluations", span_text(e->recipe.train.evaluate_every, evaluate),
           span_text(e->recipe.train.checkpoint_every, save));
    if (e->comm) printf("%-20s%d\n", "ranks", comm_size(e->comm));
    printf("%-20s%s, %d threads\n", "device", nn_params_device(e->params), adamod_pool_threads(e->pool));
}

/* ---- measured ---- */

static void print_memory(const experiment *e) {
    const nn_memory m = nn_plan_memory(e->plan);
    const double mebi = 1024 * 1024;
    struct rusage usage;
    size_t states, other;
    adamod_memory(e->optimizer, &states, &other);
    printf("%-20sparameters and gradients %.1f MiB, optimizer %.1f MiB, values %.1f MiB\n", "memory",
           (double)m.params / mebi, (double)states / mebi, (double)(m.values + m.workspace) / mebi);
    const size_t sums = exchange_memory(e->exchange);
    if (sums > 0) printf("%-20ssums of gradients %.1f MiB\n", "", (double)sums / mebi);
    if (e->params->on_device)
        printf("%-20s%.1f MiB on the device\n", "", (double)(nn_profile_device_bytes(e->plan) + states) / mebi);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        printf("%-20s%.1f MiB in all for the process, including data and evaluation\n", "",
               (double)usage.ru_maxrss / 1024);
}

static void print_time(const experiment *e, const estimate *m) {
    char all[32];
    printf("%-20s%.4g s per update (%.0f %s/s), %.3g s per evaluation\n", "time", m->update, m->items / m->update,
           e->task->items, m->evaluation);
    printf("%-20sabout %s in all without checkpoints, estimated from %d updates and one evaluation\n", "",
           progress_duration(m->whole, all), m->updates);
}

int run_recipe_dry(const recipe *r, comm *c) {
    const bool first = comm_rank(c) == 0;
    const train_options o = {.comm = c,
                             .show = first && isatty(STDERR_FILENO) ? TRAIN_LIVE : TRAIN_SILENT,
                             .note = first ? run_recipe_note : NULL};
    experiment e = {0};
    estimate m;
    if (train_open(&e, r, &o)) {
        experiment_close(&e);
        return cli_failed("train");
    }
    if (comm_agree(c, resume_init(&e)) || rank_setup_compare(&e)) {
        experiment_close(&e);
        return cli_failed("train");
    }
    train_note(&e, r, &o);
    print_data(&e);
    print_model(&e);
    print_groups(&e);
    print_length(&e);
    fflush(stdout); /* the rest takes a while */
    int status = estimate_run(&e, &m) ? cli_failed("train") : 0;
    if (!status) print_memory(&e);
    if (!status && *m.diverged) status = cli_fail("train", "%s", m.diverged);
    else if (!status) print_time(&e, &m);
    experiment_close(&e);
    return status;
}
