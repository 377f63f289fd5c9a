/* study_page.c - the page of a study: its tables, figures, and what each experiment is. */
#include "study/study_parts.h"

#include "core/error.h"
#include "report/page.h"
#include "support/directory.h"
#include "support/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Head -------------------------------------------------------------------------------------------------------- */

/* The number of runs in a state. */
typedef struct tally {
    int finished, diverged, going, wanted;
} tally;

static void count_cell(const study_results *r, study_place at, tally *t) {
    const study_place owner = study_owner(r->s, r->o, at);
    const study_cell *c = &r->at[at.experiment][at.method];
    if (owner.experiment != at.experiment || owner.method != at.method) return;
    t->finished += c->finished;
    t->diverged += c->diverged;
    t->going += c->going;
    t->wanted += (int)study_seeds(r->s, r->o, at.experiment) * study_count_values(r->s, r->o, at.experiment);
}

static tally count_runs(const study_results *r) {
    tally t = {0};
    for (int e = 0; e < r->s->n_experiments; e++) {
        for (int m = 0; m < r->s->experiment[e].n_methods; m++) count_cell(r, (study_place){e, m}, &t);
    }
    return t;
}

static void write_missing(const study_results *r, FILE *page) {
    for (int e = 0; r->missing && e < r->s->n_experiments; e++) {
        if (r->missing[e])
            html(page, "<p class=\"note\">%s: data are missing. %s</p>\n", r->s->experiment[e].title, r->missing[e]);
    }
}

static void write_head(const study_results *r, FILE *page) {
    const study *s = r->s;
    const tally t = count_runs(r);
    page_head(page, NULL);
    html(page, "<title>%s – adamod reproduce</title>\n", s->title);
    page_style(page, REPORT_COLOURS);
    html(page, "</head>\n<body>\n<main>\n<h1>%s</h1>\n<p class=\"sub\">", s->title);
    if (s->link) html(page, "<a href=\"%s\">%s</a>. ", s->link, s->link);
    html(page, "%d of %d runs are over", t.finished + t.diverged, t.wanted);
    if (t.diverged) html(page, ", %d of them diverged", t.diverged);
    if (t.going) html(page, "; %d begun", t.going);
    fputs(".</p>\n", page);
    if (r->o->quick && s->quick_about) html(page, "<p class=\"note\"><b>%s</b></p>\n", s->quick_about);
    write_missing(r, page);
    fputs(
        "<p class=\"legend\">Numbers are of the test data at the end of a run: the median, then mean ± standard deviation over "
        "the seeds. A number is bold if Welch's test finds it better than every other of its column (p &lt; 0.05). Figures show "
        "medians, with the range of the seeds behind them.</p>\n",
        page);
}

void study_write_name(FILE *page, const char *name) {
    const int letters = (int)strcspn(name, "0123456789");
    char text[128];
    snprintf(text, sizeof text, "%.*s%s%.60s", letters < 60 ? letters : 60, name, name[letters] ? " " : "",
             name + letters);
    *text = report_capital(*text);
    html_text(page, text);
}

/* ---- Experiments ------------------------------------------------------------------------------------------------- */

static void write_words(const char *before, const study_list *words, FILE *page) {
    for (int i = 0; i < words->n; i++) html(page, "%s<code>%s</code>", i ? ", " : before, words->at[i]);
}

static void write_method(const study_results *r, int experiment, int method, FILE *page) {
    const study_experiment *e = &r->s->experiment[experiment];
    const study_method *m = &e->method[method];
    const study_place owner = study_owner(r->s, r->o, (study_place){experiment, method});
    html(page, "<li>%s", m->name);
    if (owner.experiment != experiment) {
        html(page, ": the runs of %s of %s", r->s->experiment[owner.experiment].method[owner.method].name,
             r->s->experiment[owner.experiment].name);
    } else {
        write_words(": ", &m->set, page);
        if (r->o->quick) write_words(m->set.n ? ", then " : ": ", &m->quick, page);
        if (m->factor > 0) html(page, "; %s times %.6f", r->s->experiment[experiment].tune.key, m->factor);
    }
    fputs("</li>\n", page);
}

/* The median of the finished runs' minutes; NAN: there are none. */
static double minutes_of(const study_results *r, int experiment) {
    double x[1024];
    int n = 0;
    for (int m = 0; m < r->s->experiment[experiment].n_methods; m++) {
        const study_cell *c = &r->at[experiment][m];
        for (int i = 0; i < c->n && n < 1024; i++) {
            if (report_fate_of(&c->run[i]) == REPORT_FINISHED) x[n++] = c->run[i].seconds / 60;
        }
    }
    return report_spread_of(x, n).median;
}

static void write_experiment(const study_results *r, int index, FILE *page) {
    const study_experiment *e = &r->s->experiment[index];
    const char *file = r->o->quick ? e->quick.recipe : e->recipe, *slash = file ? strrchr(file, '/') : NULL;
    const double minutes = minutes_of(r, index);
    html(page, "<details>\n<summary>%s (%s)</summary>\n<p>Recipe <code>%s</code>", e->title, e->name,
         slash  ? slash + 1
         : file ? file
                : "none");
    write_words(", with ", r->o->quick ? &e->quick.set : &e->set, page);
    html(page, "; measured: %s", study_measure(r, index));
    if (e->tune.key) {
        html(page, "; <code>%s</code> is", e->tune.key);
        write_words(" ", &study_tuned(r->s, r->o, index)->values, page);
    }
    if (!isnan(minutes)) html(page, "; %.1f minutes a run", minutes);
    fputs(".</p>\n<ul>\n", page);
    for (int i = 0; i < e->n_methods; i++) write_method(r, index, i, page);
    fputs("</ul>\n", page);
    study_write_makers(r, index, page);
    if (e->n_sources && !r->o->quick) fputs("<p>Where its values come from:</p>\n<ul>\n", page);
    for (int i = 0; i < e->n_sources && !r->o->quick; i++) {
        html(page, "<li><b>%s</b>", e->source[i].name);
        write_words(": ", &e->source[i].keys, page);
        fputs("</li>\n", page);
    }
    fputs(e->n_sources && !r->o->quick ? "</ul>\n</details>\n" : "</details>\n", page);
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static bool has_runs(const study_results *r, int experiment) {
    int n = 0;
    for (int i = 0; i < r->s->experiment[experiment].n_methods; i++) n += study_cell_of(r, experiment, i)->n;
    return n > 0;
}

/* Whether the page shows a table or a figure: it or one of its experiments was asked for, or has runs from before. */
static bool shows_table(const study_results *r, const study_table *t) {
    bool shows = study_wants(r->o, t->name);
    for (int i = 0; i < t->columns.n; i++) shows |= study_wants(r->o, t->columns.at[i]) || has_runs(r, t->column[i]);
    return shows;
}

static bool shows_figure(const study_results *r, const study_figure *f) {
    bool shows = study_wants(r->o, f->name);
    for (int i = 0; i < f->n_panels; i++)
        shows |= study_wants(r->o, f->panel[i].of) || has_runs(r, f->panel[i].experiment);
    return shows;
}

/* The metrics that a run may measure, for runs without a task.json. */
typedef struct metrics {
    const metric *known;
    int n;
} metrics;

static bool shows_tuned(const study_results *r, int experiment) {
    const study_experiment *e = &r->s->experiment[experiment];
    return e->tune.key && (study_wants(r->o, e->name) || has_runs(r, experiment));
}

static int write_parts(const study_results *r, const metrics *m, const char *tables, const char *figures, FILE *page) {
    for (int i = 0; i < r->s->n_experiments; i++) {
        if (shows_tuned(r, i) && study_write_tuned(r, i, tables, figures, m->known, m->n, page)) return -1;
    }
    for (int i = 0; i < r->s->n_tables; i++) {
        const study_table *t = &r->s->table[i];
        if (shows_table(r, t) && study_write_table(r, t, tables, "tables", page)) return -1;
    }
    for (int i = 0; i < r->s->n_figures; i++) {
        const study_figure *f = &r->s->figure[i];
        if (shows_figure(r, f) && study_write_figure(r, f, figures, "figures", page)) return -1;
    }
    return 0;
}

static int write_page(const study_results *r, const metrics *m, const char *tables, const char *figures, FILE *page) {
    write_head(r, page);
    if (write_parts(r, m, tables, figures, page)) return -1;
    fputs("<section>\n<h2>Experiments</h2>\n", page);
    for (int i = 0; i < r->s->n_experiments; i++) write_experiment(r, i, page);
    fputs("</section>\n</main>\n</body>\n</html>\n", page);
    return 0;
}

static int make_folder(const char *out, const char *name, char *path, size_t size) {
    snprintf(path, size, "%s/%s", out, name);
    const int error = directory_make(path, NULL);
    return error ? adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make this directory: %s", path, strerror(error)) : 0;
}

static int write_results(const study_results *r, const metrics *m, const char *out) {
    char tables[1100], figures[1100], path[1100], *text = NULL;
    size_t n = 0;
    if (make_folder(out, "tables", tables, sizeof tables) || make_folder(out, "figures", figures, sizeof figures))
        return -1;
    FILE *page = open_memstream(&text, &n);
    if (!page) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    int status = write_page(r, m, tables, figures, page);
    if (fclose(page) && !status) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    snprintf(path, sizeof path, "%s/index.html", out);
    if (!status) status = text_write(path, (text_slice){text, n});
    free(text);
    return status;
}

/* Refuses a directory without a run: a wrong name would make a page that says "not run" everywhere. */
static int check_source(const study_results *r, const char *from) {
    char slug[STUDY_SLUG];
    const study_place first = {0, 0};
    for (int i = 0; i < r->s->n_experiments; i++) {
        if (has_runs(r, i)) return 0;
    }
    if (access(from, F_OK)) return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", from, strerror(errno));
    study_slug(r->s, first, study_value_at(r->s, r->o, first, 0), slug, sizeof slug);
    return adamod__refuse("%s has no runs of this study, expected directories such as %s/%s-seed-1", from,
                          r->s->experiment[0].name, slug);
}

int study_report(const study *s, const study_options *o, const char *from, const char *const *missing,
                 const metric *known, int n_known) {
    study_results r;
    if (study_results_read(&r, s, o, from, missing, known, n_known)) return -1;
    int status = strcmp(from, o->out) == 0 ? 0 : check_source(&r, from);
    if (!status) status = write_results(&r, &(metrics){known, n_known}, o->out);
    study_results_free(&r);
    return status;
}
