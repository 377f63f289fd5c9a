/* study_read.c - a study from its YAML file. Each section has a table of fields. */
#include "study/study_parts.h"

#include "core/error.h"
#include "core/number.h"
#include "study/tree.h"
#include "support/keys.h"
#include "support/text.h"

#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

typedef struct field field;
typedef struct shape shape;

struct field {
    const char *key;
    int (*read)(const study *s, const tree *from, const field *f, void *to);
    size_t member, count; /* where to store it; the number of elements of an array */
    const shape *of;      /* of a section or of an array's elements */
    bool needed;
};

/* A struct. An element of an array begins with its name, or title, and its line. */
struct shape {
    size_t size;
    const field *fields; /* the last has no key */
    void (*begin)(void *to);
};

typedef struct element {
    char *name;
    int line;
} element;

#define TO(type, to) .member = offsetof(type, to)
#define MANY(type, to, n) .member = offsetof(type, to), .count = offsetof(type, n)

static int no_memory(const study *s) { return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", s->file); }

static int fail_kind(const study *s, const tree *from, const char *expected) {
    return adamod__refuse("%s:%d: %s is %s, expected %s", s->file, from->line,
                          from->key ? key_show(from->key).text : "it", tree_kind_name(from->kind), expected);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static int read_text(const study *s, const tree *from, const field *f, void *to) {
    char **member = (char **)((char *)to + f->member);
    if (from->kind != TREE_WORD || !*from->text) return fail_kind(s, from, "a text");
    *member = strdup(from->text);
    return *member ? 0 : no_memory(s);
}

/* Stores a path relative to the study's file. */
static int read_path(const study *s, const tree *from, const field *f, void *to) {
    char **member = (char **)((char *)to + f->member);
    if (from->kind != TREE_WORD || !*from->text) return fail_kind(s, from, "the name of a file");
    char *file = strdup(s->file);
    if (!file) return no_memory(s);
    const char *folder = *from->text == '/' ? "" : dirname(file);
    const size_t size = strlen(folder) + strlen(from->text) + 2;
    *member = malloc(size);
    if (*member) snprintf(*member, size, "%s%s%s", folder, *folder ? "/" : "", from->text);
    free(file);
    return *member ? 0 : no_memory(s);
}

static int parse_number(const study *s, const tree *from, double least, double *out) {
    if (from->kind != TREE_WORD) return fail_kind(s, from, "a number");
    if (key_parse_number(from->text, out) && *out >= least) return 0;
    return adamod__refuse("%s:%d: %s is '%s', expected a number", s->file, from->line, from->key ? from->key : "it",
                          key_show(from->text).text);
}

static int read_number(const study *s, const tree *from, const field *f, void *to) {
    return parse_number(s, from, 0, (double *)((char *)to + f->member));
}

static int read_seeds(const study *s, const tree *from, const field *f, void *to) {
    double x = 0;
    if (parse_number(s, from, 0, &x)) return -1;
    if (x < 1 || x > STUDY_MOST_SEEDS || x != floor(x))
        return adamod__refuse("%s:%d: %s is '%s', expected a whole number from 1 to %d", s->file, from->line, from->key,
                              key_show(from->text).text, STUDY_MOST_SEEDS);
    *(int64_t *)((char *)to + f->member) = (int64_t)x;
    return 0;
}

static int read_words(const study *s, const tree *from, const field *f, void *to) {
    study_list *list = (study_list *)((char *)to + f->member);
    if (from->kind != TREE_LIST) return fail_kind(s, from, "a list: [A, B]");
    if (!(list->at = calloc((size_t)from->n + 1, sizeof *list->at))) return no_memory(s);
    for (int i = 0; i < from->n; i++) {
        if (from->child[i].kind != TREE_WORD) return fail_kind(s, &from->child[i], "a word");
        if (!(list->at[list->n] = strdup(from->child[i].text))) return no_memory(s);
        list->n++;
    }
    return 0;
}

/* ---- Sections ---------------------------------------------------------------------------------------------------- */

static const field *find_field(const shape *of, const char *key) {
    const field *f = of->fields;
    while (f->key && strcmp(f->key, key) != 0) f++;
    return f->key ? f : NULL;
}

static int no_such_key(const study *s, const tree *from, const shape *of) {
    const char *names[32];
    int n = 0;
    for (const field *f = of->fields; f->key && n < 32; f++) names[n++] = f->key;
    const char *nearest = study_nearest(from->key, names, n);
    return adamod__refuse("%s:%d: no such key: %s%s%s%s", s->file, from->line, key_show(from->key).text,
                          nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static int read_fields(const study *s, const tree *from, const shape *of, void *to) {
    if (from->kind != TREE_SECTION) return fail_kind(s, from, "a section: keys with values");
    for (int i = 0; i < from->n; i++) {
        const field *f = find_field(of, from->child[i].key);
        if (!f) return no_such_key(s, &from->child[i], of);
        if (f->read(s, &from->child[i], f, to)) return -1;
    }
    for (const field *f = of->fields; f->key; f++) {
        int given = !f->needed;
        for (int i = 0; i < from->n && !given; i++) given = strcmp(from->child[i].key, f->key) == 0;
        if (!given)
            return adamod__refuse("%s:%d: %s%sneeds %s", s->file, from->line, from->key ? key_show(from->key).text : "",
                                  from->key ? " " : "it ", f->key);
    }
    return 0;
}

static int read_section(const study *s, const tree *from, const field *f, void *to) {
    return read_fields(s, from, f->of, (char *)to + f->member);
}

/* Reads an array: of a section, whose keys are names, or of a list. Elements that were read count at once, so that
 * study_free frees them. */
static int read_many(const study *s, const tree *from, const field *f, void *to) {
    int *n = (int *)((char *)to + f->count);
    if (from->kind == TREE_WORD || !from->n) return fail_kind(s, from, "a section or a list that is not empty");
    char *at = calloc((size_t)from->n, f->of->size);
    if (!at) return no_memory(s);
    memcpy((char *)to + f->member, &at, sizeof at); /* a pointer to the elements' type */
    for (int i = 0; i < from->n; i++) {
        const tree *child = &from->child[i];
        element *e = (element *)(void *)(at + (size_t)i * f->of->size);
        *n = i + 1;
        e->line = child->line;
        if (child->key && !(e->name = strdup(child->key))) return no_memory(s);
        if (f->of->begin) f->of->begin(e);
        if (read_fields(s, child, f->of, e)) return -1;
    }
    return 0;
}

/* ---- The study --------------------------------------------------------------------------------------------------- */

static const shape numbers = {.fields =
                                  (const field[]){{"median", read_number, TO(study_number, median), .needed = true},
                                                  {"mean", read_number, TO(study_number, mean)},
                                                  {"std", read_number, TO(study_number, std)},
                                                  {0}}};

/* A section, a number alone, or a word that stands for it. */
static int read_paper(const study *s, const tree *from, const field *f, void *to) {
    study_number *x = (study_number *)((char *)to + f->member);
    if (from->kind == TREE_SECTION) return read_fields(s, from, &numbers, x);
    if (from->kind != TREE_WORD || !*from->text) return fail_kind(s, from, "a number, a word, or median, mean and std");
    if (key_parse_number(from->text, &x->median)) return 0;
    x->median = NAN;
    x->text = strdup(from->text);
    return x->text ? 0 : no_memory(s);
}

static void begin_method(void *to) {
    study_method *m = to;
    m->paper.median = m->paper.mean = m->paper.std = NAN;
}

static int read_sources(const study *s, const tree *from, const field *f, void *to) {
    study_experiment *e = to;
    const field words = {.read = read_words, TO(study_source, keys)};
    (void)f;
    if (from->kind != TREE_SECTION) return fail_kind(s, from, "a section of lists");
    if (!(e->source = calloc((size_t)from->n + 1, sizeof *e->source))) return no_memory(s);
    for (int i = 0; i < from->n; i++) {
        study_source *source = &e->source[e->n_sources++];
        if (!(source->name = strdup(from->child[i].key))) return no_memory(s);
        if (read_words(s, &from->child[i], &words, source)) return -1;
    }
    return 0;
}

/* "5.2", or a distance from the best: "5%". */
static int read_started(const study *s, const tree *from, const field *f, void *to) {
    study_tune *t = to;
    char number[64] = "";
    (void)f;
    if (from->kind != TREE_WORD) return fail_kind(s, from, "a number, or a distance from the best such as 5%");
    const size_t n = strlen(from->text);
    t->started_share = n && from->text[n - 1] == '%';
    if (n < sizeof number) snprintf(number, sizeof number, "%.*s", (int)(n - t->started_share), from->text);
    t->counts_started =
        key_parse_number(number, &t->started) && isfinite(t->started) && (!t->started_share || t->started > 0);
    if (t->started_share) t->started /= 100;
    return t->counts_started
               ? 0
               : adamod__refuse("%s:%d: started is '%s', expected a number, or a distance from the best such as 5%%",
                                s->file, from->line, key_show(from->text).text);
}

static const shape tunes = {.fields = (const field[]){{"key", read_text, TO(study_tune, key), .needed = true},
                                                      {"values", read_words, TO(study_tune, values), .needed = true},
                                                      {"started", read_started, .member = 0},
                                                      {0}}};

static const shape methods = {.size = sizeof(study_method),
                              .begin = begin_method,
                              .fields = (const field[]){{"label", read_text, TO(study_method, label)},
                                                        {"set", read_words, TO(study_method, set)},
                                                        {"quick", read_words, TO(study_method, quick)},
                                                        {"paper", read_paper, TO(study_method, paper)},
                                                        {"note", read_text, TO(study_method, note)},
                                                        {"same", read_text, TO(study_method, same)},
                                                        {"factor", read_number, TO(study_method, factor)},
                                                        {0}}};

static const shape quick = {.fields = (const field[]){{"recipe", read_path, TO(study_quick, recipe), .needed = true},
                                                      {"set", read_words, TO(study_quick, set)},
                                                      {"measure", read_text, TO(study_quick, measure)},
                                                      {"minutes", read_number, TO(study_quick, minutes)},
                                                      {"seeds", read_seeds, TO(study_quick, seeds)},
                                                      {"tune", read_section, TO(study_quick, tune), .of = &tunes},
                                                      {0}}};

static const shape experiments = {
    .size = sizeof(study_experiment),
    .fields = (const field[]){
        {"title", read_text, TO(study_experiment, title), .needed = true},
        {"recipe", read_path, TO(study_experiment, recipe), .needed = true},
        {"set", read_words, TO(study_experiment, set)},
        {"measure", read_text, TO(study_experiment, measure), .needed = true},
        {"minutes", read_number, TO(study_experiment, minutes)},
        {"gigabytes", read_number, TO(study_experiment, gigabytes)},
        {"seeds", read_seeds, TO(study_experiment, seeds)},
        {"samples", read_number, TO(study_experiment, samples)},
        {"tune", read_section, TO(study_experiment, tune), .of = &tunes},
        {"quick", read_section, TO(study_experiment, quick), .of = &quick},
        {"methods", read_many, MANY(study_experiment, method, n_methods), .of = &methods, .needed = true},
        {"sources", read_sources, .member = 0},
        {0}}};

static const shape tables = {.size = sizeof(study_table),
                             .fields =
                                 (const field[]){{"title", read_text, TO(study_table, title), .needed = true},
                                                 {"rows", read_words, TO(study_table, rows), .needed = true},
                                                 {"columns", read_words, TO(study_table, columns), .needed = true},
                                                 {0}}};

static const shape panels = {.size = sizeof(study_panel),
                             .fields = (const field[]){{"title", read_text, TO(study_panel, title), .needed = true},
                                                       {"of", read_text, TO(study_panel, of), .needed = true},
                                                       {"show", read_text, TO(study_panel, show), .needed = true},
                                                       {"over", read_text, TO(study_panel, over)},
                                                       {"lines", read_words, TO(study_panel, lines)},
                                                       {"until", read_number, TO(study_panel, until)},
                                                       {0}}};

static const shape figures = {
    .size = sizeof(study_figure),
    .fields = (const field[]){{"title", read_text, TO(study_figure, title), .needed = true},
                              {"panels", read_many, MANY(study_figure, panel, n_panels), .of = &panels, .needed = true},
                              {0}}};

static const shape quick_all = {.fields = (const field[]){{"seeds", read_seeds, TO(study, quick_seeds)},
                                                          {"about", read_text, TO(study, quick_about)},
                                                          {0}}};

static const shape whole = {.fields =
                                (const field[]){{"title", read_text, TO(study, title), .needed = true},
                                                {"link", read_text, TO(study, link)},
                                                {"machine", read_text, TO(study, machine)},
                                                {"seeds", read_seeds, TO(study, seeds)},
                                                {"quick", read_section, 0, .of = &quick_all},
                                                {"experiments", read_many, MANY(study, experiment, n_experiments),
                                                 .of = &experiments, .needed = true},
                                                {"tables", read_many, MANY(study, table, n_tables), .of = &tables},
                                                {"figures", read_many, MANY(study, figure, n_figures), .of = &figures},
                                                {0}}};

int study_parse(study *out, const char *text, size_t n, const char *name) {
    study s = {.seeds = 1};
    tree t;
    if (tree_parse(&t, text, n, name)) return -1;
    int status = (s.file = strdup(name)) ? 0 : no_memory(&(study){.file = (char *)name});
    if (!status) status = read_fields(&s, &t, &whole, &s);
    if (!status) status = study_resolve(&s);
    tree_free(&t);
    if (status) study_free(&s);
    else *out = s;
    return status;
}

int study_read(study *out, const char *path) {
    char *text;
    size_t n;
    if (text_read_small(path, MOST_BYTES, &text, &n)) return -1;
    const int status = study_parse(out, text, n, path);
    free(text);
    return status;
}

/* ---- Freeing ----------------------------------------------------------------------------------------------------- */

static void free_list(study_list *l) {
    for (int i = 0; i < l->n; i++) free(l->at[i]);
    free(l->at);
}

static void free_method(study_method *m) {
    free(m->name);
    free(m->label);
    free(m->note);
    free(m->same);
    free(m->paper.text);
    free_list(&m->set);
    free_list(&m->quick);
}

static void free_tune(study_tune *t) {
    free(t->key);
    free_list(&t->values);
}

static void free_experiment(study_experiment *e) {
    for (int i = 0; i < e->n_methods; i++) free_method(&e->method[i]);
    for (int i = 0; i < e->n_sources; i++) {
        free(e->source[i].name);
        free_list(&e->source[i].keys);
    }
    free(e->method);
    free(e->source);
    free(e->name);
    free(e->title);
    free(e->recipe);
    free(e->measure);
    free(e->quick.recipe);
    free(e->quick.measure);
    free_list(&e->set);
    free_list(&e->quick.set);
    free_tune(&e->tune);
    free_tune(&e->quick.tune);
}

static void free_table(study_table *t) {
    free(t->name);
    free(t->title);
    free(t->column);
    free_list(&t->rows);
    free_list(&t->columns);
}

static void free_figure(study_figure *f) {
    for (int i = 0; i < f->n_panels; i++) {
        study_panel *p = &f->panel[i];
        free(p->title);
        free(p->of);
        free(p->show);
        free(p->over);
        free(p->method);
        free_list(&p->lines);
    }
    free(f->panel);
    free(f->name);
    free(f->title);
}

void study_free(study *s) {
    for (int i = 0; i < s->n_experiments; i++) free_experiment(&s->experiment[i]);
    for (int i = 0; i < s->n_tables; i++) free_table(&s->table[i]);
    for (int i = 0; i < s->n_figures; i++) free_figure(&s->figure[i]);
    free(s->experiment);
    free(s->table);
    free(s->figure);
    free(s->file);
    free(s->title);
    free(s->link);
    free(s->machine);
    free(s->quick_about);
    *s = (study){0};
}
