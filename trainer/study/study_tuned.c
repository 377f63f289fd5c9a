/* study_tuned.c - experiments that tune a key: their results by standings.h. */
#include "study/study_parts.h"

#include "core/error.h"
#include "report/page.h"
#include "study/standings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* A run as standings read it: with the state that its directory tells. */
static int add_run(const study_results *r, study_place of, study_value value, int64_t seed, run_list *out) {
    const study_method *m = &r->s->experiment[of.experiment].method[of.method];
    char directory[1100];
    recipe made;
    if (study_recipe(r->s, r->o, of, value, seed, &made)) return -1;
    study_directory(r->s, of, value, seed, r->from, directory, sizeof directory);
    int status = run_list_add(out, &made, directory, "", m->label ? m->label : m->name, 0);
    recipe_free(&made);
    if (!status) status = run_list_value(out, value.text);
    if (!status) run_list_see_end(out);
    return status;
}

/* The seeds that are shown: those that the study wants, and in recorded runs those that are there. */
static int64_t last_seed(const study_results *r, int experiment) {
    int64_t last = study_seeds(r->s, r->o, experiment);
    for (int m = 0; r->all_seeds && m < r->s->experiment[experiment].n_methods; m++) {
        const study_cell *c = &r->at[experiment][m];
        for (int i = 0; i < c->n; i++) {
            const char *text = report_pairs_find(&c->run[i].recipe, "train.seed");
            const int64_t seed = text ? strtoll(text, NULL, 10) : 0;
            if (seed > last && seed <= STUDY_MOST_SEEDS) last = seed;
        }
    }
    return last;
}

static int list_runs(const study_results *r, int experiment, run_list *out) {
    const int64_t last = last_seed(r, experiment);
    for (int m = 0; m < r->s->experiment[experiment].n_methods; m++) {
        const study_place of = {experiment, m};
        for (int i = 0; i < study_count_values(r->s, r->o, experiment); i++) {
            for (int64_t seed = 1; seed <= last; seed++) {
                if (add_run(r, of, study_value_at(r->s, r->o, of, i), seed, out)) return -1;
            }
        }
    }
    return 0;
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

/* Says what of a method is not as the study plans it. */
static void write_difference(const study_cell *c, const char *name, FILE *page) {
    const char *before = ": ";
    if (!*c->length && !*c->data && !*c->keys && !c->more && !c->validation) return;
    html(page, "<p class=\"note\">%s", name);
    if (*c->length) html(page, "%s%s", before, c->length), before = "; ";
    if (*c->data) html(page, "%s%s", before, c->data), before = "; ";
    if (c->validation) html(page, "%smeasured on validation data", before), before = "; ";
    if (*c->keys) html(page, "%sthese runs differ from the plan: %s", before, c->keys), before = "; ";
    if (c->more) html(page, "%s%d with larger seeds than asked for do not count", before, c->more);
    fputs(".</p>\n", page);
}

static bool any_over(const standings *s) {
    for (int i = 0; i < s->p->n; i++) {
        if (s->p->at[i].state == RUN_IS_OVER) return true;
    }
    return false;
}

static int write_standings(const study_results *r, int experiment, const standings *s, const standings_files *to,
                           FILE *page) {
    const study_experiment *e = &r->s->experiment[experiment];
    html(page, "<section id=\"%s\">\n<h2>%s</h2>\n", e->name, e->title);
    if (r->o->quick) fputs("<p class=\"legend\">" STUDY_QUICK_NOTE ".</p>\n", page);
    const int status = any_over(s) ? standings_section(s, to, page) : 0;
    if (!any_over(s)) fputs("<p>No run is over yet.</p>\n", page);
    for (int m = 0; m < e->n_methods; m++) write_difference(&r->at[experiment][m], e->method[m].name, page);
    fputs("</section>\n", page);
    return status;
}

int study_write_tuned(const study_results *r, int experiment, const char *tables, const char *figures,
                      const metric *known, int n_known, FILE *page) {
    const study_experiment *e = &r->s->experiment[experiment];
    const study_tune *t = study_tuned(r->s, r->o, experiment);
    const standings_options how = {.metric = study_measure(r, experiment),
                                   .tuned = t->key,
                                   .started = t->counts_started ? t->started : NAN,
                                   .started_share = t->started_share,
                                   .name = e->name,
                                   .asks = "measure"};
    const standings_files to = {tables, "tables", figures, "figures"};
    run_list runs = {0};
    standings s = {0};
    int status = list_runs(r, experiment, &runs);
    if (!status) status = standings_make(&s, &runs, &how, known, n_known);
    if (!status) status = write_standings(r, experiment, &s, &to, page);
    standings_free(&s);
    run_list_free(&runs);
    return status ? adamod__context("%s:%d: %s: ", r->s->file, e->line, e->name) : 0;
}
