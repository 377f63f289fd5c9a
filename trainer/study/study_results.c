/* study_results.c - the runs of a study, and what they measured. */
#include "study/study_parts.h"

#include "core/error.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const study_cell *study_cell_of(const study_results *r, int experiment, int method) {
    const study_place owner = study_owner(r->s, r->o, (study_place){experiment, method});
    return &r->at[owner.experiment][owner.method];
}

const char *study_measure(const study_results *r, int experiment) {
    const study_experiment *e = &r->s->experiment[experiment];
    return r->o->quick && e->quick.measure ? e->quick.measure : e->measure;
}

static const metric *find_metric(const report_run *run, const char *name) {
    for (int i = 0; i < run->n_metrics; i++) {
        if (strcmp(run->metric[i].name, name) == 0) return &run->metric[i];
    }
    return NULL;
}

const metric *study_metric_named(const study_results *r, int experiment, const char *name) {
    const study_experiment *e = &r->s->experiment[experiment];
    for (int i = 0; i < e->n_methods; i++) {
        const study_cell *cell = study_cell_of(r, experiment, i);
        for (int k = 0; k < cell->n; k++) {
            const metric *m = find_metric(&cell->run[k], name);
            if (m) return m;
        }
    }
    return NULL;
}

const metric *study_metric(const study_results *r, int experiment) {
    return study_metric_named(r, experiment, study_measure(r, experiment));
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static double value_of(const report_run *run, const report_point *p, const char *name) {
    const metric *m = find_metric(run, name);
    if (strcmp(name, "loss") == 0) return p->loss;
    return m ? p->value[m - run->metric] : NAN;
}

/* A finished run's last measurement, on test data if there are any. */
static double result_of(study_cell *cell, const report_run *run, const char *name) {
    if (run->final_test.weight > 0) return value_of(run, &run->final_test, name);
    if (!(run->final_valid.weight > 0)) return NAN;
    cell->validation = true;
    return value_of(run, &run->final_valid, name);
}

static int sum_up(study_cell *cell, const char *measure) {
    double *x = calloc((size_t)cell->n + 1, sizeof *x);
    if (!x) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < cell->n; i++) {
        const report_fate fate = report_fate_of(&cell->run[i]);
        if (fate == REPORT_FINISHED) x[cell->finished++] = result_of(cell, &cell->run[i], measure);
        cell->diverged += fate == REPORT_DIVERGED;
        cell->going += fate == REPORT_GOING || fate == REPORT_INTERRUPTED;
    }
    cell->of = report_spread_of(x, cell->finished);
    free(x);
    return 0;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

typedef struct source {
    const char *from;
    const metric *known;
    int n_known;
} source;

static int add_run(study_cell *cell, const char *directory, const source *in, const recipe *planned) {
    report_run *grown = adamod__resize(cell->run, (size_t)cell->n + 1, sizeof *grown);
    if (!grown) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    cell->run = grown;
    if (report_run_read(&grown[cell->n], directory, in->known, in->n_known)) return -1;
    cell->n++;
    return study_compare(cell, &grown[cell->n - 1], planned);
}

static int point_at_runs(study_cell *cell) {
    cell->at = calloc((size_t)cell->n + 1, sizeof *cell->at);
    if (!cell->at) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < cell->n; i++) cell->at[i] = &cell->run[i];
    return 0;
}

/* The number of seeds that count: those asked for, or all. */
static int64_t most_seeds(const study_results *r, study_place of) {
    return r->all_seeds ? STUDY_MOST_SEEDS : study_most_seeds(r->s, r->o, of);
}

/* Reads the runs of a method with one value of the tuned key, which is "" if none is. */
static int read_runs(study_results *r, study_place of, study_value value, const source *in, const recipe *planned) {
    study_cell *cell = &r->at[of.experiment][of.method];
    char directory[1100], path[1200];
    for (int64_t seed = 1; seed <= STUDY_MOST_SEEDS; seed++) {
        study_directory(r->s, of, value, seed, in->from, directory, sizeof directory);
        snprintf(path, sizeof path, "%s/recipe.yaml", directory);
        if (access(path, F_OK) && errno == EACCES)
            return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", directory, strerror(errno));
        if (access(path, F_OK)) continue;
        if (seed > most_seeds(r, of)) cell->more++;
        else if (add_run(cell, directory, in, planned)) return -1;
        else study_note_seed(cell, &cell->run[cell->n - 1], seed);
    }
    return 0;
}

/* Reads the runs of a method, unless they are another's. */
static int read_cell(study_results *r, study_place of, const source *in) {
    const study_place owner = study_owner(r->s, r->o, of);
    study_cell *cell = &r->at[of.experiment][of.method];
    study_options as_planned = *r->o;
    int status = 0;
    if (owner.experiment != of.experiment || owner.method != of.method) return 0;
    as_planned.n_set = 0;
    as_planned.device = NULL;
    for (int i = 0; !status && i < study_count_values(r->s, r->o, of.experiment); i++) {
        const study_value value = study_value_at(r->s, r->o, of, i);
        recipe planned;
        if (study_recipe(r->s, &as_planned, of, value, 0, &planned)) return -1;
        status = read_runs(r, of, value, in, &planned);
        recipe_free(&planned);
    }
    return status || point_at_runs(cell) || sum_up(cell, study_measure(r, of.experiment)) ? -1 : 0;
}

/* Whether the fingerprints of the data that both runs have are the same; vocabularies follow from them. */
static bool has_same_data(const report_run *a, const report_run *b) {
    for (size_t i = 0; i < a->data.n; i++) {
        const report_pair *p = &a->data.at[i];
        const char *other = report_pairs_find(&b->data, p->key);
        if (strncmp(p->key, "vocabulary", 10) != 0 && other && strcmp(p->value, other) != 0) return false;
    }
    return true;
}

/* Notes runs that had another number of samples to train with than the whole data have. */
static void compare_samples(const study_results *r, int experiment) {
    const study_experiment *e = &r->s->experiment[experiment];
    for (int i = 0; i < e->n_methods && e->samples > 0 && !r->o->quick; i++) {
        study_cell *cell = &r->at[experiment][i];
        for (int k = 0; k < cell->n; k++) {
            const char *is = report_pairs_find(&cell->run[k].data, REPORT_TRAIN_SAMPLES);
            if (is && strtod(is, NULL) != e->samples)
                snprintf(cell->data, sizeof cell->data, "%.20s of %.0f samples", is, e->samples);
        }
    }
}

/* Notes runs of an experiment whose data have another content than those of its first run, whatever their recipes say. */
static void compare_data(study_results *r, int experiment) {
    const study_experiment *e = &r->s->experiment[experiment];
    const report_run *first = NULL;
    for (int i = 0, of = 0; i < e->n_methods; i++) {
        study_cell *cell = &r->at[experiment][i];
        for (int k = 0; k < cell->n; k++) {
            if (!first) first = &cell->run[k], of = i;
            else if (!has_same_data(&cell->run[k], first)) study_note_data(cell, e->method[of].name);
        }
    }
}

static int read_experiment(study_results *r, int experiment, const source *in) {
    const int n = r->s->experiment[experiment].n_methods;
    r->at[experiment] = calloc((size_t)n, sizeof **r->at);
    if (!r->at[experiment]) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        if (read_cell(r, (study_place){experiment, i}, in)) return -1;
    }
    compare_data(r, experiment);
    compare_samples(r, experiment);
    return 0;
}

int study_results_read(study_results *out, const study *s, const study_options *o, const char *from,
                       const char *const *missing, const metric *known, int n_known) {
    const source in = {from, known, n_known};
    *out = (study_results){.s = s,
                           .o = o,
                           .missing = missing,
                           .at = calloc((size_t)s->n_experiments, sizeof *out->at),
                           .from = from,
                           .all_seeds = !o->seeds && strcmp(from, o->out) != 0};
    if (!out->at) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < s->n_experiments; i++) {
        if (read_experiment(out, i, &in) == 0) continue;
        study_results_free(out);
        return -1;
    }
    return 0;
}

static void free_cell(study_cell *cell) {
    for (int i = 0; i < cell->n; i++) report_run_free(&cell->run[i]);
    free(cell->run);
    free(cell->at);
    remarks_free(&cell->notes);
}

void study_results_free(study_results *r) {
    for (int i = 0; r->at && i < r->s->n_experiments; i++) {
        for (int k = 0; r->at[i] && k < r->s->experiment[i].n_methods; k++) free_cell(&r->at[i][k]);
        free(r->at[i]);
    }
    free(r->at);
    r->at = NULL;
}
