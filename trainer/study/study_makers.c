/* study_makers.c - the builds and machines that made the runs of an experiment. */
#include "study/study_parts.h"

#include "report/page.h"

#include <string.h>

enum { MAKERS = 32 };

/* A build on a machine. */
typedef struct maker {
    char text[400];
    int runs;
} maker;

typedef struct makers {
    maker at[MAKERS];
    int n;
    int moved; /* runs that more than one of them made */
} makers;

static const char *fact(const report_pairs *m, const char *key) {
    const char *value = report_pairs_find(m, key);
    return value ? value : "";
}

/* "adamod 1.0.0 (3ed9c94321ff), NVIDIA H200, mixed precision": a device of "cuda:0 (NVIDIA H200)" without its number. */
static void describe(const report_pairs *m, char *out, size_t size) {
    const char *version = fact(m, "version"), *commit = fact(m, "commit"), *precision = fact(m, "precision");
    const char *device = fact(m, "device"), *processor = fact(m, "processor");
    const bool gpu = strstr(device, "cuda") || strcmp(fact(m, "backend"), "cuda") == 0;
    const char *where = gpu && *device ? device : *processor ? processor : *device ? device : "a machine not recorded";
    const char *name = strncmp(where, "cuda:", 5) == 0 ? strchr(where, '(') : NULL;
    const int length = name ? (int)strcspn(++name, ")") : 120;
    snprintf(out, size, "adamod %.40s%s%.40s%s, %.*s%s%.20s%s", *version ? version : "of unknown version",
             *commit ? " (" : "", commit, *commit ? ")" : "", length, name ? name : where, *precision ? ", " : "",
             precision, *precision ? " precision" : "");
}

/* Counts the run for the maker of one of its parts. Returns false if an earlier part has the same maker. */
static bool add_maker(makers *all, const report_run *run, int machine) {
    maker m = {.runs = 1};
    describe(&run->machine[machine], m.text, sizeof m.text);
    for (int i = 0; i < machine; i++) {
        char other[sizeof m.text];
        describe(&run->machine[i], other, sizeof other);
        if (strcmp(other, m.text) == 0) return false;
    }
    for (int i = 0; i < all->n; i++) {
        if (strcmp(all->at[i].text, m.text) != 0) continue;
        all->at[i].runs++;
        return true;
    }
    if (all->n < MAKERS) all->at[all->n++] = m;
    return true;
}

static void find_makers(const study_results *r, int experiment, makers *out) {
    *out = (makers){.n = 0};
    for (int i = 0; i < r->s->experiment[experiment].n_methods; i++) {
        const study_cell *c = study_cell_of(r, experiment, i);
        for (int k = 0; k < c->n; k++) {
            int own = 0;
            for (int m = 0; m < c->run[k].n_machines; m++) own += add_maker(out, &c->run[k], m);
            out->moved += own > 1;
        }
    }
}

void study_write_mixture(const study_results *r, int experiment, FILE *page) {
    makers m;
    find_makers(r, experiment, &m);
    if (m.n < 2) return;
    html(
        page,
        "<p class=\"legend\">%s: the runs are of %d builds or machines, which may round differently; they are named under "
        "Experiments.</p>\n",
        r->s->experiment[experiment].title, m.n);
}

void study_write_makers(const study_results *r, int experiment, FILE *page) {
    makers m;
    find_makers(r, experiment, &m);
    if (m.n) fputs("<p>Made by ", page);
    for (int i = 0; i < m.n; i++)
        html(page, "%s%s: %d run%s", i ? "; " : "", m.at[i].text, m.at[i].runs, m.at[i].runs == 1 ? "" : "s");
    if (m.moved)
        html(page, ". %d run%s begun by one of these and continued by another", m.moved,
             m.moved == 1 ? " was" : "s were");
    if (m.n) fputs(".</p>\n", page);
}
