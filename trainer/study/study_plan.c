/* study_plan.c - the runs that a study needs. */
#include "study/study_parts.h"

#include "core/error.h"
#include "support/keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

study_place study_owner(const study *s, const study_options *o, study_place of) {
    const study_method *m = &s->experiment[of.experiment].method[of.method];
    if (!m->same || (o->quick && m->quick.n)) return of;
    return (study_place){m->experiment, m->method};
}

int64_t study_seeds(const study *s, const study_options *o, int experiment) {
    const study_experiment *e = &s->experiment[experiment];
    const int64_t all = o->quick && s->quick_seeds ? s->quick_seeds : s->seeds;
    const int64_t own = o->quick && e->quick.seeds ? e->quick.seeds : e->seeds;
    if (!o->seeds) return own ? own : all;
    return own && own < o->seeds ? own : o->seeds;
}

int64_t study_most_seeds(const study *s, const study_options *o, study_place of) {
    int64_t most = 0;
    for (int e = 0; e < s->n_experiments; e++) {
        for (int m = 0; m < s->experiment[e].n_methods; m++) {
            const study_place owner = study_owner(s, o, (study_place){e, m});
            if (owner.experiment != of.experiment || owner.method != of.method) continue;
            const int64_t seeds = study_seeds(s, o, e);
            if (seeds > most) most = seeds;
        }
    }
    return most;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

const study_tune *study_tuned(const study *s, const study_options *o, int experiment) {
    const study_experiment *e = &s->experiment[experiment];
    if (!e->tune.key) return NULL;
    return o->quick && e->quick.tune.key ? &e->quick.tune : &e->tune;
}

int study_count_values(const study *s, const study_options *o, int experiment) {
    const study_tune *t = study_tuned(s, o, experiment);
    return t ? t->values.n : 1;
}

study_value study_value_at(const study *s, const study_options *o, study_place of, int index) {
    const study_tune *t = study_tuned(s, o, of.experiment);
    const double factor = s->experiment[of.experiment].method[of.method].factor;
    study_value out = {""};
    double x;
    if (!t) return out;
    const char *text = t->values.at[index];
    if (factor > 0 && key_parse_number(text, &x)) snprintf(out.text, sizeof out.text, "%.6g", factor * x);
    else snprintf(out.text, sizeof out.text, "%s", text);
    return out;
}

/* The label of a run within its experiment: "Adam", or with a tuned key "Adam lr=0.1". */
static void label_of(const study *s, study_place of, study_value value, char *out, size_t size) {
    const study_experiment *e = &s->experiment[of.experiment];
    snprintf(out, size, "%s", e->method[of.method].name);
    if (*value.text) run_list_add_to_name(e->tune.key, value.text, out, size);
}

void study_slug(const study *s, study_place of, study_value value, char *out, size_t size) {
    char label[200];
    label_of(s, of, value, label, sizeof label);
    run_list_slug(label, out, size);
}

void study_directory(const study *s, study_place of, study_value value, int64_t seed, const char *root, char *out,
                     size_t size) {
    char slug[STUDY_SLUG];
    study_slug(s, of, value, slug, sizeof slug);
    snprintf(out, size, "%.800s/%.96s/%s-seed-%lld", root, s->experiment[of.experiment].name, slug, (long long)seed);
}

/* ---- Recipes ----------------------------------------------------------------------------------------------------- */

static int set_all(recipe *r, recipe_origin by, char *const *text, int n) {
    for (int i = 0; i < n; i++) {
        if (recipe_set_by(r, by, text[i])) return -1;
    }
    return 0;
}

/* Sets the keys of a method, in which {value} stands for the value. */
static int set_filled(recipe *r, const study_list *list, const study_value *value) {
    for (int i = 0; i < list->n; i++) {
        char text[RECIPE_PATH + 200];
        if (strlen(list->at[i]) >= sizeof text) return adamod__refuse("'%.40s...' is too long", list->at[i]);
        snprintf(text, sizeof text, "%s", list->at[i]);
        run_list_fill_in(value->text, text, sizeof text);
        if (recipe_set_by(r, RECIPE_BY_CALLER, text)) return -1;
    }
    return 0;
}

/* Sets what the file says, in its order, then the tuned key. */
static int set_keys(recipe *r, const study_experiment *e, const study_method *m, const study_value *value, bool quick) {
    const study_list *first = quick ? &e->quick.set : &e->set;
    char text[200];
    if (set_all(r, RECIPE_BY_CALLER, first->at, first->n) || set_filled(r, &m->set, value)) return -1;
    if (quick && set_filled(r, &m->quick, value)) return -1;
    snprintf(text, sizeof text, "%.120s=%s", e->tune.key ? e->tune.key : "", value->text);
    return *value->text ? recipe_set_by(r, RECIPE_BY_CALLER, text) : 0;
}

/* Refuses a metric that the experiment's task does not measure, before hours are spent. */
static int check_measure(const study *s, const study_options *o, int experiment, const recipe *r) {
    const study_experiment *e = &s->experiment[experiment];
    const char *name = o->quick && e->quick.measure ? e->quick.measure : e->measure;
    char known[400];
    if (recipe_measures(r, name, known, sizeof known)) return 0;
    return adamod__refuse("%s:%d: %s: measure is '%s', expected one of %s", s->file, e->line, e->name,
                          key_show(name).text, known);
}

static bool sets(const char *change, const char *key) {
    const size_t n = strlen(key);
    return strncmp(change, key, n) == 0 && change[n] == '=';
}

/* A change for all runs would make those of all values, or of all seeds, equal. */
static int check_changes(const study *s, const study_options *o, int experiment) {
    const study_tune *t = study_tuned(s, o, experiment);
    for (int i = 0; i < o->n_set; i++) {
        if (t && sets(o->set[i], t->key))
            return adamod__refuse("--set %s: %s tunes this key", o->set[i], s->experiment[experiment].name);
        if (sets(o->set[i], "train.seed"))
            return adamod__refuse("--set %s: each run has a seed of its own, from --seeds", o->set[i]);
    }
    return 0;
}

static int set_run(recipe *r, const study_method *m, int64_t seed) {
    char text[96];
    snprintf(text, sizeof text, "name=%.60s", m->name);
    if (recipe_set_by(r, RECIPE_BY_CALLER, text)) return -1;
    snprintf(text, sizeof text, "train.seed=%lld", (long long)seed);
    return seed ? recipe_set_by(r, RECIPE_BY_CALLER, text) : 0;
}

int study_recipe(const study *s, const study_options *o, study_place of, study_value value, int64_t seed, recipe *out) {
    const study_experiment *e = &s->experiment[of.experiment];
    const study_method *m = &e->method[of.method];
    const char *file = o->quick ? e->quick.recipe : e->recipe;
    if (!file) return adamod__refuse("%s:%d: %s has no quick recipe", s->file, e->line, e->name);
    if (check_changes(s, o, of.experiment) || recipe_defaults(out, o->tasks)) return -1;
    int status = recipe_load(out, file);
    if (!status && (set_keys(out, e, m, &value, o->quick) || set_run(out, m, seed)))
        status = adamod__context("%s:%d: %s: ", s->file, m->line, m->name);
    if (!status) status = check_measure(s, o, of.experiment, out);
    if (!status) status = set_all(out, RECIPE_BY_SET, (char *const *)o->set, o->n_set);
    if (!status && o->device) status = recipe_set_flag(out, "--device", "train.backend", o->device);
    if (status) recipe_free(out);
    return status;
}

/* ---- Needs ------------------------------------------------------------------------------------------------------- */

/* The number of seeds that each method needs: at[experiment][method]. */
typedef struct needs {
    const study *s;
    const study_options *o;
    int64_t **at;
    int64_t most;
} needs;

static void need(needs *n, int experiment, int method) {
    const study_place owner = study_owner(n->s, n->o, (study_place){experiment, method});
    const int64_t seeds = study_seeds(n->s, n->o, experiment);
    int64_t *at = &n->at[owner.experiment][owner.method];
    if (seeds > *at) *at = seeds;
    if (seeds > n->most) n->most = seeds;
}

static void need_experiment(needs *n, int experiment) {
    for (int i = 0; i < n->s->experiment[experiment].n_methods; i++) need(n, experiment, i);
}

static void need_table(needs *n, const study_table *t) {
    for (int c = 0; c < t->columns.n; c++) {
        for (int r = 0; r < t->rows.n; r++) {
            const int method = study_find_method(&n->s->experiment[t->column[c]], t->rows.at[r]);
            if (method >= 0) need(n, t->column[c], method);
        }
    }
}

static void need_panel(needs *n, const study_panel *p) {
    for (int i = 0; i < p->n_methods; i++) need(n, p->experiment, p->method[i]);
}

static void find_needs(needs *n) {
    const study *s = n->s;
    for (int i = 0; i < s->n_experiments; i++) {
        if (study_wants(n->o, s->experiment[i].name)) need_experiment(n, i);
    }
    for (int i = 0; i < s->n_tables; i++) {
        if (study_wants(n->o, s->table[i].name)) need_table(n, &s->table[i]);
    }
    for (int i = 0; i < s->n_figures; i++) {
        for (int k = 0; k < s->figure[i].n_panels && study_wants(n->o, s->figure[i].name); k++)
            need_panel(n, &s->figure[i].panel[k]);
    }
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

static double guess(const study *s, const study_options *o, int experiment) {
    const study_experiment *e = &s->experiment[experiment];
    const double minutes = o->quick ? e->quick.minutes : e->minutes;
    return minutes > 0 && (o->quick || o->minutes) ? 60 * minutes : NAN;
}

static int add_run(const needs *n, study_place of, study_value value, int64_t seed, run_list *out) {
    const study_experiment *e = &n->s->experiment[of.experiment];
    const char *name = e->method[of.method].name;
    char directory[1100], label[400], whole[200];
    recipe r;
    if (study_recipe(n->s, n->o, of, value, seed, &r)) return -1;
    study_directory(n->s, of, value, seed, n->o->out, directory, sizeof directory);
    label_of(n->s, of, value, whole, sizeof whole);
    snprintf(label, sizeof label, "%.150s: %.190s, seed %lld", e->name, whole, (long long)seed);
    int status = run_list_add(out, &r, directory, e->name, name, guess(n->s, n->o, of.experiment));
    recipe_free(&r);
    if (!status && !n->o->quick && e->gigabytes > 0) run_list_bytes(out, 1e9 * e->gigabytes);
    if (!status && *value.text) status = run_list_label(out, label) || run_list_value(out, value.text) ? -1 : 0;
    return status ? adamod__context("%s:%d: ", n->s->file, e->method[of.method].line) : 0;
}

/* Adds a run for each value of the tuned key. */
static int add_values(const needs *n, study_place of, int64_t seed, run_list *out) {
    for (int i = 0; i < study_count_values(n->s, n->o, of.experiment); i++) {
        if (add_run(n, of, study_value_at(n->s, n->o, of, i), seed, out)) return -1;
    }
    return 0;
}

static int add_seed(const needs *n, int64_t seed, run_list *out) {
    for (int e = 0; e < n->s->n_experiments; e++) {
        for (int m = 0; m < n->s->experiment[e].n_methods; m++) {
            if (seed <= n->at[e][m] && add_values(n, (study_place){e, m}, seed, out)) return -1;
        }
    }
    return 0;
}

static int allocate(needs *n) {
    n->at = calloc((size_t)n->s->n_experiments, sizeof *n->at);
    for (int i = 0; n->at && i < n->s->n_experiments; i++) {
        n->at[i] = calloc((size_t)n->s->experiment[i].n_methods, sizeof **n->at);
        if (!n->at[i]) return -1;
    }
    return n->at ? 0 : -1;
}

int study_plan(const study *s, const study_options *o, run_list *out) {
    needs n = {.s = s, .o = o};
    if (study_check_names(s, o)) return -1;
    int status = allocate(&n) ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory") : 0;
    if (!status) find_needs(&n);
    for (int64_t seed = o->first_seed > 1 ? o->first_seed : 1; !status && seed <= n.most; seed++)
        status = add_seed(&n, seed, out);
    for (int i = 0; n.at && i < s->n_experiments; i++) free(n.at[i]);
    free(n.at);
    if (status) run_list_free(out);
    return status;
}
