/* study_plan.c - the runs that a study needs. */
#include "study/study_parts.h"

#include "core/error.h"

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

void study_slug(const study *s, study_place of, char *out, size_t size) {
    run_list_slug(s->experiment[of.experiment].method[of.method].name, out, size);
}

/* ---- Recipes ----------------------------------------------------------------------------------------------------- */

static int set_all(recipe *r, char *const *text, int n) {
    for (int i = 0; i < n; i++) {
        if (recipe_set(r, text[i])) return -1;
    }
    return 0;
}

/* Sets what the file says, in its order. */
static int set_keys(recipe *r, const study_experiment *e, const study_method *m, bool quick) {
    const study_list *first = quick ? &e->quick.set : &e->set;
    if (set_all(r, first->at, first->n) || set_all(r, m->set.at, m->set.n)) return -1;
    return quick ? set_all(r, m->quick.at, m->quick.n) : 0;
}

static int set_run(recipe *r, const study_method *m, int64_t seed) {
    char text[96];
    snprintf(text, sizeof text, "name=%.60s", m->name);
    if (recipe_set(r, text)) return -1;
    snprintf(text, sizeof text, "train.seed=%lld", (long long)seed);
    return seed ? recipe_set(r, text) : 0;
}

int study_recipe(const study *s, const study_options *o, study_place of, int64_t seed, recipe *out) {
    const study_experiment *e = &s->experiment[of.experiment];
    const study_method *m = &e->method[of.method];
    const char *file = o->quick ? e->quick.recipe : e->recipe;
    if (!file) return adamod__refuse("%s:%d: %s has no quick recipe", s->file, e->line, e->name);
    if (recipe_defaults(out, o->tasks)) return -1;
    int status = recipe_load(out, file);
    if (!status && (set_keys(out, e, m, o->quick) || set_run(out, m, seed)))
        status = adamod__context("%s:%d: %s: ", s->file, m->line, m->name);
    if (!status) status = set_all(out, (char *const *)o->set, o->n_set);
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

static int add_run(const needs *n, study_place of, int64_t seed, run_list *out) {
    const study_experiment *e = &n->s->experiment[of.experiment];
    char slug[96], directory[1100];
    recipe r;
    if (study_recipe(n->s, n->o, of, seed, &r)) return -1;
    study_slug(n->s, of, slug, sizeof slug);
    snprintf(directory, sizeof directory, "%.800s/%.96s/%s-seed-%lld", n->o->out, e->name, slug, (long long)seed);
    const int status =
        run_list_add(out, &r, directory, e->name, e->method[of.method].name, guess(n->s, n->o, of.experiment));
    recipe_free(&r);
    return status ? adamod__context("%s:%d: ", n->s->file, e->method[of.method].line) : 0;
}

static int add_seed(const needs *n, int64_t seed, run_list *out) {
    for (int e = 0; e < n->s->n_experiments; e++) {
        for (int m = 0; m < n->s->experiment[e].n_methods; m++) {
            if (seed <= n->at[e][m] && add_run(n, (study_place){e, m}, seed, out)) return -1;
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
    for (int64_t seed = 1; !status && seed <= n.most; seed++) status = add_seed(&n, seed, out);
    for (int i = 0; n.at && i < s->n_experiments; i++) free(n.at[i]);
    free(n.at);
    if (status) run_list_free(out);
    return status;
}
