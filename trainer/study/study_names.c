/* study_names.c - names in a study: what they refer to, and what the user asks for. */
#include "study/study_parts.h"

#include "core/edit_distance.h"
#include "core/error.h"
#include "support/keys.h"

#include <stdlib.h>
#include <string.h>

const char *study_nearest(const char *name, const char *const *names, int n) {
    const char *nearest = NULL;
    int least = 1 + (int)strlen(name) / 3;
    for (int i = 0; i < n; i++) {
        const int distance = adamod__edit_distance(name, names[i]);
        if (distance > least || (nearest && distance == least)) continue;
        least = distance;
        nearest = names[i];
    }
    return nearest;
}

int study_find_experiment(const study *s, const char *name) {
    for (int i = 0; i < s->n_experiments; i++) {
        if (strcmp(s->experiment[i].name, name) == 0) return i;
    }
    return -1;
}

int study_find_method(const study_experiment *e, const char *name) {
    for (int i = 0; i < e->n_methods; i++) {
        if (strcmp(e->method[i].name, name) == 0) return i;
    }
    return -1;
}

/* "; did you mean X?", or "". */
typedef struct hint {
    char text[128];
} hint;

static hint hint_of(const char *name, const char *const *names, int n) {
    const char *nearest = study_nearest(name, names, n);
    hint h = {""};
    if (nearest) snprintf(h.text, sizeof h.text, "; did you mean '%.80s'?", nearest);
    return h;
}

/* All names that n elements of this size begin with; to be freed. */
static const char **names_of(const void *at, int n, size_t size) {
    const char **names = calloc((size_t)n + 1, sizeof *names);
    for (int i = 0; names && i < n; i++) names[i] = *(char *const *)(const void *)((const char *)at + (size_t)i * size);
    return names;
}

static int no_such(const study *s, int line, const char *what, const char *name, const void *at, int n, size_t size) {
    const char **names = names_of(at, n, size);
    const hint h = names ? hint_of(name, names, n) : (hint){""};
    free(names);
    return adamod__refuse("%s:%d: there is no %s '%s'%s", s->file, line, what, key_show(name).text, h.text);
}

static int need_experiment(const study *s, int line, const char *name, int *out) {
    *out = study_find_experiment(s, name);
    if (*out >= 0) return 0;
    return no_such(s, line, "experiment", name, s->experiment, s->n_experiments, sizeof *s->experiment);
}

static int need_method(const study *s, int line, int experiment, const char *name, int *out) {
    const study_experiment *e = &s->experiment[experiment];
    *out = study_find_method(e, name);
    return *out >= 0 ? 0 : no_such(s, line, "method", name, e->method, e->n_methods, sizeof *e->method);
}

/* ---- Experiments ------------------------------------------------------------------------------------------------- */

static int resolve_same(study *s, study_method *m) {
    const char *slash = strchr(m->same, '/');
    char name[128];
    if (!slash)
        return adamod__refuse("%s:%d: same is '%s', expected EXPERIMENT/METHOD", s->file, m->line,
                              key_show(m->same).text);
    snprintf(name, sizeof name, "%.*s", (int)(slash - m->same), m->same);
    if (need_experiment(s, m->line, name, &m->experiment)) return -1;
    if (need_method(s, m->line, m->experiment, slash + 1, &m->method)) return -1;
    const study_method *other = &s->experiment[m->experiment].method[m->method];
    if (other->same)
        return adamod__refuse("%s:%d: %s is the same as another method, %s: name that", s->file, m->line,
                              key_show(m->same).text, key_show(other->same).text);
    if (m->set.n)
        return adamod__refuse("%s:%d: %s has keys of its own, so it is not the same as %s", s->file, m->line,
                              key_show(m->name).text, key_show(m->same).text);
    return 0;
}

/* Names become names of directories, which must differ. */
static int check_directories(const study *s, const study_experiment *e, int method) {
    char own[96], other[96];
    run_list_slug(e->method[method].name, own, sizeof own);
    if (!*own)
        return adamod__refuse("%s:%d: the name '%s' has no letter or digit", s->file, e->method[method].line,
                              key_show(e->method[method].name).text);
    for (int i = 0; i < method; i++) {
        run_list_slug(e->method[i].name, other, sizeof other);
        if (strcmp(own, other) == 0)
            return adamod__refuse("%s:%d: %s and %s would have the same directory, %s", s->file, e->method[method].line,
                                  key_show(e->method[i].name).text, key_show(e->method[method].name).text, own);
    }
    return 0;
}

/* ---- Tuned keys -------------------------------------------------------------------------------------------------- */

static int check_value(const study *s, const study_experiment *e, const char *value) {
    double x;
    if (!*value || strlen(value) >= sizeof(study_value))
        return adamod__refuse("%s:%d: %s tunes %s: '%s' is no value of 1 to %d letters", s->file, e->line, e->name,
                              e->tune.key, key_show(value).text, (int)sizeof(study_value) - 1);
    for (int i = 0; i < e->n_methods; i++) {
        const study_method *m = &e->method[i];
        if (m->factor > 0 && !key_parse_number(value, &x))
            return adamod__refuse("%s:%d: %s has a factor, and the value '%s' is no number", s->file, m->line,
                                  key_show(m->name).text, key_show(value).text);
    }
    return 0;
}

static int check_tune(const study *s, const study_experiment *e, const study_tune *t) {
    if (t->key && !t->values.n)
        return adamod__refuse("%s:%d: %s tunes %s without values", s->file, e->line, e->name, t->key);
    for (int i = 0; i < t->values.n; i++) {
        if (check_value(s, e, t->values.at[i])) return -1;
    }
    return 0;
}

static int check_tuned(const study *s, const study_experiment *e) {
    const char *quick = e->quick.tune.key, *key = e->tune.key;
    if (key && (strcmp(key, "name") == 0 || strcmp(key, "train.seed") == 0))
        return adamod__refuse("%s:%d: %s tunes %s, which each run has of its own", s->file, e->line, e->name, key);
    if (quick && (!e->tune.key || strcmp(quick, e->tune.key) != 0))
        return adamod__refuse("%s:%d: %s tunes %s with --quick, and %s without", s->file, e->line, e->name,
                              key_show(quick).text, e->tune.key ? key_show(e->tune.key).text : "nothing");
    for (int i = 0; i < e->n_methods; i++) {
        const study_method *m = &e->method[i];
        if (m->factor > 0 && !e->tune.key)
            return adamod__refuse("%s:%d: %s has a factor, and %s tunes nothing", s->file, m->line,
                                  key_show(m->name).text, e->name);
        if (m->same && (e->tune.key || s->experiment[m->experiment].tune.key))
            return adamod__refuse("%s:%d: %s cannot be the same as another: a key is tuned", s->file, m->line,
                                  key_show(m->name).text);
    }
    return check_tune(s, e, &e->tune) || check_tune(s, e, &e->quick.tune) ? -1 : 0;
}

/* Tables and figures show one value of each key. */
static int refuse_tuned(const study *s, int line, int experiment) {
    const study_experiment *e = &s->experiment[experiment];
    if (!e->tune.key) return 0;
    return adamod__refuse("%s:%d: %s tunes %s, and has a table and a figure of its own", s->file, line, e->name,
                          e->tune.key);
}

static int resolve_experiment(study *s, int index) {
    study_experiment *e = &s->experiment[index];
    char slug[96];
    run_list_slug(e->name, slug, sizeof slug);
    if (strcmp(slug, e->name) != 0)
        return adamod__refuse("%s:%d: the experiment '%s' needs a name of lower-case letters, digits, dots and dashes",
                              s->file, e->line, key_show(e->name).text);
    for (int i = 0; i < e->n_methods; i++) {
        study_method *m = &e->method[i];
        m->experiment = index;
        m->method = i;
        if (check_directories(s, e, i) || (m->same && resolve_same(s, m))) return -1;
    }
    return check_tuned(s, e);
}

/* ---- Tables and figures ------------------------------------------------------------------------------------------ */

/* A row must have a number in some column. */
static int check_row(const study *s, const study_table *t, const char *row) {
    for (int i = 0; i < t->columns.n; i++) {
        if (study_find_method(&s->experiment[t->column[i]], row) >= 0) return 0;
    }
    const study_experiment *first = &s->experiment[t->column[0]];
    return no_such(s, t->line, "method", row, first->method, first->n_methods, sizeof *first->method);
}

static int resolve_table(study *s, study_table *t) {
    if (!t->columns.n || !t->rows.n)
        return adamod__refuse("%s:%d: %s needs rows and columns", s->file, t->line, key_show(t->name).text);
    if (!(t->column = calloc((size_t)t->columns.n, sizeof *t->column)))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", s->file);
    for (int i = 0; i < t->columns.n; i++) {
        if (need_experiment(s, t->line, t->columns.at[i], &t->column[i])) return -1;
        if (refuse_tuned(s, t->line, t->column[i])) return -1;
    }
    for (int i = 0; i < t->rows.n; i++) {
        if (check_row(s, t, t->rows.at[i])) return -1;
    }
    return 0;
}

/* "test accuracy", "train loss", "rates". */
static int resolve_show(const study *s, study_panel *p) {
    static const struct {
        const char *word;
        drawing_split split;
    } splits[] = {{"train ", DRAWING_TRAIN}, {"valid ", DRAWING_VALID}, {"test ", DRAWING_TEST}};
    p->rates = strcmp(p->show, "rates") == 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const size_t n = strlen(splits[i].word);
        if (strncmp(p->show, splits[i].word, n) != 0 || !p->show[n]) continue;
        p->split = splits[i].split;
        p->metric = p->show + n;
    }
    if (p->rates || p->metric) return 0;
    return adamod__refuse("%s:%d: show is '%s', expected rates, or train, valid or test with a metric", s->file,
                          p->line, key_show(p->show).text);
}

static int resolve_panel(study *s, study_panel *p) {
    if (need_experiment(s, p->line, p->of, &p->experiment) || resolve_show(s, p)) return -1;
    if (refuse_tuned(s, p->line, p->experiment)) return -1;
    const study_experiment *e = &s->experiment[p->experiment];
    p->n_methods = p->lines.n ? p->lines.n : e->n_methods;
    if (!(p->method = calloc((size_t)p->n_methods, sizeof *p->method)))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", s->file);
    for (int i = 0; i < p->n_methods; i++) {
        p->method[i] = i;
        if (p->lines.n && need_method(s, p->line, p->experiment, p->lines.at[i], &p->method[i])) return -1;
    }
    p->epochs = p->over && strcmp(p->over, "epochs") == 0;
    if (!p->over || p->epochs || strcmp(p->over, "updates") == 0) return 0;
    return adamod__refuse("%s:%d: over is '%s', expected epochs or updates", s->file, p->line, key_show(p->over).text);
}

/* ---- All names --------------------------------------------------------------------------------------------------- */

typedef struct part {
    const char *name;
    int line;
} part;

static int count_parts(const study *s) { return s->n_experiments + s->n_tables + s->n_figures; }

/* Number i of the experiments, tables and figures. */
static part part_at(const study *s, int i) {
    if (i < s->n_tables) return (part){s->table[i].name, s->table[i].line};
    i -= s->n_tables;
    if (i < s->n_figures) return (part){s->figure[i].name, s->figure[i].line};
    i -= s->n_figures;
    return (part){s->experiment[i].name, s->experiment[i].line};
}

static int find_part(const study *s, const char *name) {
    for (int i = 0; i < count_parts(s); i++) {
        if (strcmp(part_at(s, i).name, name) == 0) return i;
    }
    return -1;
}

/* A table or a figure becomes a file of its name. */
static int check_parts(const study *s) {
    for (int i = 0; i < count_parts(s); i++) {
        const part p = part_at(s, i);
        char slug[96];
        run_list_slug(p.name, slug, sizeof slug);
        if (strcmp(slug, p.name) != 0)
            return adamod__refuse("%s:%d: '%s': expected a name of lower-case letters, digits, dots and dashes",
                                  s->file, p.line, key_show(p.name).text);
        const int first = find_part(s, p.name);
        if (first != i)
            return adamod__refuse("%s:%d: %s is a name in line %d already", s->file, p.line, key_show(p.name).text,
                                  part_at(s, first).line);
    }
    return 0;
}

int study_resolve(study *s) {
    for (int i = 0; i < s->n_experiments; i++) {
        if (resolve_experiment(s, i)) return -1;
    }
    for (int i = 0; i < s->n_tables; i++) {
        if (resolve_table(s, &s->table[i])) return -1;
    }
    for (int i = 0; i < s->n_figures; i++) {
        for (int k = 0; k < s->figure[i].n_panels; k++) {
            if (resolve_panel(s, &s->figure[i].panel[k])) return -1;
        }
    }
    return check_parts(s);
}

bool study_wants(const study_options *o, const char *name) {
    for (int i = 0; i < o->n_names; i++) {
        if (strcmp(o->name[i], name) == 0) return true;
    }
    return o->n_names == 0;
}

int study_check_names(const study *s, const study_options *o) {
    const char **names = calloc((size_t)count_parts(s), sizeof *names);
    if (!names) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    int status = 0;
    for (int i = 0; i < count_parts(s); i++) names[i] = part_at(s, i).name;
    for (int i = 0; i < o->n_names && !status; i++) {
        if (find_part(s, o->name[i]) >= 0) continue;
        status = adamod__refuse("%s has no table, figure or experiment '%s'%s", s->file, key_show(o->name[i]).text,
                                hint_of(o->name[i], names, count_parts(s)).text);
    }
    free(names);
    return status;
}
