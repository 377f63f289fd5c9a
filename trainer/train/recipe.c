#include "train/recipe_parts.h"

#include "core/error.h"
#include "core/edit_distance.h"
#include "support/text.h"
#include "train/task.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The keys of every recipe ------------------------------------------------------------------------------------ */

/* with_choices adds the choices of data.task and model.kind. */
static const key_spec loop_keys[] = {
    TEXT_KEY(recipe, name, "numbers", LOOSE, "what runs are called"),
    CHOICE_KEY(recipe, data.task, "", "", STRICT, "the kind of problem"),
    CHOICE_KEY(recipe, model.kind, "", "", STRICT, "the architecture"),
    LIST_KEY(recipe, optimizer.no_decay, "biases norms", STRICT,
             "parameters without weight decay; norms: gains and shifts of normalization layers"),
    TEXT_KEY(recipe, optimizer.rule, "adamod", STRICT, "the optimizer, one of 'adamod optim list'"),
    WHOLE_KEY(recipe, train.steps, "900", 1, KEY_MOST_UPDATES, LOOSE, "length of the training in updates"),
    REAL_KEY(recipe, train.epochs, "0", 0, KEY_MOST_EPOCHS, false, LOOSE,
             "length of the training in epochs, instead of train.steps"),
    WHOLE_KEY(recipe, train.accumulate, "1", 1, 1000000, STRICT, "batches per update, over all ranks"),
    ENUM_KEY(recipe, train.sum, "ordered", "ordered fast", LOOSE,
             "order in which gradients of several batches are added; ordered: the same for any number of ranks"),
    ENUM_KEY(recipe, train.overlap, "auto", "auto on off", LOOSE,
             "sum gradients over ranks during the backward pass; auto: on GPUs, and where each rank has several cores"),
    SWITCH_KEY(recipe, train.shard, "false", LOOSE,
               "divide the optimizer's states among ranks; no learning-rate histograms"),
    ENUM_KEY(recipe, train.comm, "auto", "auto mpi nccl", LOOSE,
             "library that sums gradients of several GPUs; auto: NCCL if available, else MPI"),
    WHOLE_KEY(recipe, train.seed, "1", 0, KEY_MOST_SEED, STRICT,
              "seed of initial parameters, order of batches and dropout"),
    WHOLE_KEY(recipe, train.threads, "0", 0, 1024, LOOSE, "number of threads; 0: one for each core"),
    {"train.backend", KEY_AT(recipe, train.backend), "auto", 0, 0,
     "where to compute; auto: cuda if there is a GPU, else cpu",
     "auto ref cpu cuda cuda:0 cuda:1 cuda:2 cuda:3 cuda:4 cuda:5 cuda:6 cuda:7", KEY_CHOICE, false, LOOSE,
     "auto, ref, cpu, cuda or cuda:0 to cuda:7"},
    ENUM_KEY(
        recipe, train.precision, "auto", "auto full tf32 mixed", LOOSE,
        "f32, on a GPU f32 with tf32 products, or bf16 with f32 parameters: on a CPU for products alone; auto: mixed on "
        "a GPU, full on a CPU"),
    SPAN_KEY(recipe, train.evaluate_every, "100", LOOSE, "how often to validate; 0: at the end only"),
    SPAN_KEY(recipe, train.checkpoint_every, "100", LOOSE, "how often to save; 0: at the end only"),
    TEXT_KEY(recipe, train.best, "loss", LOOSE, "validation metric that selects the best checkpoint"),
    WHOLE_KEY(recipe, train.patience, "0", 0, KEY_MOST_INT, LOOSE,
              "stop after this many evaluations without a better train.best, and test the best model; 0: never"),
    ENUM_KEY(
        recipe, train.test, "auto", "auto last best averaged", LOOSE,
        "model to test at the end; auto: the averaged with train.average, the best with train.patience, else the last"),
    WHOLE_KEY(recipe, train.log_every, "0", 0, KEY_MOST_INT, LOOSE,
              "updates between lines of metrics; 0: each of the first 2000, then every 10th"),
    REAL_KEY(recipe, train.progress_every, "60", 0, 1e9, false, LOOSE,
             "seconds between lines of progress on standard error, unless it is a terminal; 0: none"),
    WHOLE_KEY(recipe, train.histogram_dense, "100", 0, KEY_MOST_INT, LOOSE,
              "learning-rate histograms of each of this many first updates"),
    WHOLE_KEY(recipe, train.histogram_every, "100", 0, KEY_MOST_INT, LOOSE,
              "after those, updates from one histogram to the next; 0: no more"),
    WHOLE_KEY(recipe, train.average, "0", 0, 1000, LOOSE, "number of last checkpoints to average at the end; 0: none"),
    SPAN_KEY(recipe, train.keep_every, "0", LOOSE,
             "how often to save a checkpoint step-N that is never deleted; 0: never"),
    SWITCH_KEY(recipe, train.keep_states, "false", LOOSE,
               "keep the optimizer's states in best and every step-N, so that --resume-from can continue from them"),
    PATH_KEY(recipe, train.init_from, STRICT, "run or safetensors file with the initial weights"),
    PATTERNS_KEY(recipe, train.init_skip, STRICT,
                 "parameters that train.init_from does not set, by name; as a new layer for other classes"),
    ENUM_KEY(recipe, train.nonfinite, "stop", "stop skip", LOOSE, "what to do if a loss or a gradient is not finite"),
};
static const key_table loop_table = {loop_keys, sizeof loop_keys / sizeof *loop_keys, sizeof(recipe)};

static const char rule_key[] = "optimizer.rule";
const char recipe_option_section[] = "optimizer.";
static const char schedule_section[] = "optimizer.schedule.";
static const char *const first_sections[] = {"", "data", "model", "optimizer", "train"};

static bool chooses(const char *path) { return strcmp(path, "data.task") == 0 || strcmp(path, "model.kind") == 0; }

const task *recipe_task(const recipe *r) {
    for (int i = 0; r->tasks[i]; i++) {
        if (strcmp(r->tasks[i]->name, r->data.task) == 0) return r->tasks[i];
    }
    return r->tasks[0];
}

const task_model *recipe_model(const recipe *r) {
    for (const task_model *const *m = recipe_task(r)->models; *m; m++) {
        if (strcmp((*m)->kind, r->model.kind) == 0) return *m;
    }
    return NULL;
}

recipe_backend recipe_backend_of(const recipe *r, int *gpu) {
    const char *name = r->train.backend, *colon = strchr(name, ':');
    if (gpu) *gpu = colon ? atoi(colon + 1) : -1;
    return strcmp(name, "auto") == 0  ? BACKEND_AUTO
           : strcmp(name, "ref") == 0 ? BACKEND_REF
           : strcmp(name, "cpu") == 0 ? BACKEND_CPU
                                      : BACKEND_CUDA;
}

/* ---- Lists of keys ----------------------------------------------------------------------------------------------- */

static bool in_section(const char *path, const char *section) {
    const size_t n = strlen(section);
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot - path) == n && strncmp(path, section, n) == 0 : n == 0;
}

typedef struct key_list {
    recipe_key *out;
    int n;
} key_list;

static void add_section(key_list *list, const key_table *t, const void *settings, const char *section) {
    for (int i = 0; i < t->n; i++) {
        if (!in_section(t->keys[i].path, section)) continue;
        assert(list->n < RECIPE_MAX_KEYS); /* raise it */
        list->out[list->n++] = (recipe_key){&t->keys[i], (void *)(uintptr_t)settings};
    }
}

static void add_all(key_list *list, const recipe *r, const char *section) {
    const task_model *model = recipe_model(r);
    add_section(list, &loop_table, r, section);
    for (const key_table *const *t = recipe_task(r)->keys; *t; t++) add_section(list, *t, r->task_settings, section);
    if (model) add_section(list, model->keys, r->model_settings, section);
}

int recipe_list_keys(const recipe *r, recipe_key out[RECIPE_MAX_KEYS]) {
    enum { FIRST = sizeof first_sections / sizeof *first_sections };
    key_list list = {out, 0};
    for (int i = 0; i < FIRST; i++) add_all(&list, r, first_sections[i]);
    for (const key_table *const *t = recipe_task(r)->keys; *t; t++) { /* sections of the task's own, "decode" */
        for (int k = 0; k < (*t)->n; k++) {
            char section[48];
            const char *path = (*t)->keys[k].path;
            bool there = false;
            snprintf(section, sizeof section, "%.*s", (int)(recipe_leaf(path) - path - 1), path);
            for (int i = 0; i < list.n && !there; i++) there = in_section(out[i].k->path, section);
            if (!there) add_all(&list, r, section);
        }
    }
    return list.n;
}

static recipe_key find_key(const recipe *r, const char *path) {
    recipe_key list[RECIPE_MAX_KEYS];
    const int n = recipe_list_keys(r, list);
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i].k->path, path) == 0) return list[i];
    }
    return (recipe_key){NULL, NULL};
}

/* Number index of the tables of all tasks and models; NULL past the end. */
static const key_table *table_at(const recipe *r, int index) {
    for (int i = 0; r->tasks[i]; i++) {
        for (const key_table *const *t = r->tasks[i]->keys; *t; t++) {
            if (index-- == 0) return *t;
        }
        for (const task_model *const *m = r->tasks[i]->models; *m; m++) {
            if (index-- == 0) return (*m)->keys;
        }
    }
    return NULL;
}

/* A key of any task or model. */
static const key_spec *find_foreign(const recipe *r, const char *path) {
    const key_spec *k = NULL;
    for (int i = 0; !k && table_at(r, i); i++) k = key_find(table_at(r, i), path);
    return k;
}

bool recipe_is_section(const recipe *r, const char *path) {
    const size_t n = strlen(path);
    if (strncmp(recipe_option_section, path, n) == 0 && n == strlen("optimizer")) return true;
    if (strncmp(schedule_section, path, n) == 0 && n == strlen("optimizer.schedule")) return true;
    if (strncmp(recipe_group_section, path, n) == 0 && n == strlen("optimizer.groups")) return true;
    char group[32];
    if (recipe_group_path(path, group) && n == strlen(recipe_group_section) + strlen(group)) return true;
    for (int i = -1; i < 0 || table_at(r, i); i++) {
        const key_table *t = i < 0 ? &loop_table : table_at(r, i);
        for (int k = 0; k < t->n; k++) {
            if (n && in_section(t->keys[k].path, path)) return true;
        }
    }
    return false;
}

static const recipe_given *find_given(const recipe *r, const char *path) {
    for (int i = 0; i < r->n_given; i++) {
        if (strcmp(r->given[i].path, path) == 0) return &r->given[i];
    }
    return NULL;
}

/* ---- Choices that depend on the tasks ---------------------------------------------------------------------------- */

/* The key with its choices, which are written to names if they depend on the tasks. */
static key_spec with_choices(const recipe *r, const key_spec *k, char *names, size_t size) {
    key_spec out = *k;
    *names = '\0';
    for (int i = 0; strcmp(k->path, "data.task") == 0 && r->tasks[i]; i++)
        text_join(names, size, " ", r->tasks[i]->name);
    for (int i = 0; strcmp(k->path, "model.kind") == 0 && recipe_task(r)->models[i]; i++)
        text_join(names, size, " ", recipe_task(r)->models[i]->kind);
    if (*names) out.choices = names;
    return out;
}

bool recipe_is_list(const recipe *r, const char *path) {
    char group[32];
    if (recipe_group_path(path, group) && strcmp(recipe_leaf(path), "match") == 0) return true;
    const key_spec *k = find_key(r, path).k;
    if (!k) k = find_foreign(r, path);
    return k && (k->kind == KEY_LIST || k->kind == KEY_NUMBERS || k->kind == KEY_PATTERNS);
}

bool recipe_expected(const recipe *r, const char *path, char *out, size_t size) {
    char names[256];
    const key_spec *k = find_key(r, path).k;
    if (!k) k = find_foreign(r, path);
    if (!k) return false;
    const key_spec whole = with_choices(r, k, names, sizeof names);
    key_expected(&whole, out, size);
    return true;
}

static int out_of_memory(void) { return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a recipe"); }

static size_t task_size(const task *t) {
    size_t size = 0;
    for (const key_table *const *k = t->keys; *k; k++) size = (*k)->size > size ? (*k)->size : size;
    return size;
}

/* Settings of the task and the model that are chosen now: defaults, then what was given. */
static int settle(recipe *r) {
    const task *t = recipe_task(r);
    if (!recipe_model(r) && !find_given(r, "model.kind")) {
        memset(r->model.kind, 0, sizeof r->model.kind);
        memcpy(r->model.kind, t->models[0]->kind, strlen(t->models[0]->kind));
    }
    const task_model *model = recipe_model(r);
    free(r->task_settings);
    free(r->model_settings);
    r->task_settings = calloc(1, task_size(t));
    r->model_settings = model ? calloc(1, model->keys->size) : NULL;
    if (!r->task_settings || (model && !r->model_settings)) return out_of_memory();
    for (const key_table *const *k = t->keys; *k; k++) key_defaults(*k, r->task_settings);
    if (model) key_defaults(model->keys, r->model_settings);
    for (int i = 0; i < r->n_given; i++) {
        const recipe_given *g = &r->given[i];
        const recipe_key k = find_key(r, g->path);
        if (k.k && k.settings != r) (void)key_set(k.k, g->path, g->text, k.settings);
    }
    return 0;
}

int recipe_choose(recipe *r, const char *path, const char *text) {
    char names[256];
    const recipe_key k = find_key(r, path);
    const key_spec whole = with_choices(r, k.k, names, sizeof names);
    return key_set(&whole, path, text, r) ? 0 : settle(r);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Beginnings of messages about keys that no file gives; their line is minus their recipe_origin. */
static const char *const origins[] = {
    [RECIPE_BY_SET] = "--set: ", [RECIPE_BY_VARY] = "--vary: ", [RECIPE_BY_TUNE] = "--tune: ", [RECIPE_BY_CALLER] = ""};

int recipe_fail(const recipe_place *at, const char *format, ...) {
    char line[2048];
    int used = 0;
    if (at->flag) used = 0;
    else if (at->column > 0) used = snprintf(line, sizeof line, "%.1000s:%d:%d: ", at->file, at->line, at->column);
    else if (at->line > 0) used = snprintf(line, sizeof line, "%.1000s:%d: ", at->file, at->line);
    else if (at->line < 0) used = snprintf(line, sizeof line, "%s", origins[-at->line]);
    else if (at->file && *at->file) used = snprintf(line, sizeof line, "%.1000s: ", at->file);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++) {
        if (iscntrl((unsigned char)*c)) *c = '?'; /* file names and keys may have line breaks */
    }
    return adamod__refuse("%s", line);
}

const char *recipe_leaf(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Valid keys and sections, to suggest one of them. */
typedef struct candidates {
    recipe_key key[RECIPE_MAX_KEYS];
    int n_keys;
    char section[16][48];
    int n_sections;
} candidates;

static void add_candidate_section(candidates *c, const char *path, size_t n) {
    for (int i = 0; i < c->n_sections; i++) {
        if (strlen(c->section[i]) == n && memcmp(c->section[i], path, n) == 0) return;
    }
    if (!n || n >= sizeof c->section[0] || c->n_sections == 16) return;
    memcpy(c->section[c->n_sections++], path, n);
}

static void find_candidates(const recipe *r, candidates *c) {
    memset(c, 0, sizeof *c);
    c->n_keys = recipe_list_keys(r, c->key);
    for (int i = 0; i < c->n_keys; i++) {
        const char *path = c->key[i].k->path, *leaf = recipe_leaf(path);
        add_candidate_section(c, path, leaf > path ? (size_t)(leaf - path) - 1 : 0);
    }
    add_candidate_section(c, "optimizer", strlen("optimizer"));
    add_candidate_section(c, "optimizer.schedule", strlen("optimizer.schedule"));
    add_candidate_section(c, "optimizer.groups", strlen("optimizer.groups"));
}

/* The section, or with keys_too also the key, nearest to a mistyped path, of which about a third may be wrong; or NULL. */
static const char *nearest(const candidates *c, const char *path, bool keys_too) {
    const char *best = NULL;
    const int n = (int)strlen(path);
    int least = n >= 6 ? n / 3 : n >= 4 ? 2 : 1; /* two swapped letters are two mistakes */
    for (int i = 0; i < c->n_sections + (keys_too ? c->n_keys : 0); i++) {
        const char *candidate = i < c->n_sections ? c->section[i] : c->key[i - c->n_sections].k->path;
        const int d = adamod__edit_distance(path, candidate);
        if (d > least || (d == least && best)) continue;
        best = candidate;
        least = d;
    }
    return best;
}

/* The section of a path; "": it has none, or it does not fit. */
static void section_of(const char *path, char *out, size_t size) {
    const char *dot = strrchr(path, '.');
    *out = '\0';
    if (dot && (size_t)(dot - path) < size) snprintf(out, size, "%.*s", (int)(dot - path), path);
}

/* Finds the key or section that was probably meant: with another section, or mistyped. */
static bool suggest(const recipe *r, const candidates *c, const char *path, char *out, size_t size) {
    const char *near = NULL;
    char section[64];
    section_of(path, section, sizeof section);
    for (int i = 0; !near && i < c->n_keys; i++) {
        if (strcmp(recipe_leaf(c->key[i].k->path), recipe_leaf(path)) == 0) near = c->key[i].k->path;
    }
    if (!near && *section && !recipe_is_section(r, section)) {
        const char *other = nearest(c, section, false);
        if (other && strncmp(other, "optimizer", strlen("optimizer")) == 0) { /* any leaf may be an option */
            const bool group = strcmp(other, "optimizer.groups") == 0;
            return snprintf(out, size, "%s%s.%s", other, group ? ".NAME" : "", key_show(recipe_leaf(path)).text) > 0;
        }
    }
    if (!near) near = nearest(c, path, true);
    return near && snprintf(out, size, "%s", near) > 0;
}

/* Lists the names in a section ("": at the top), for a message. */
static const char *names_in(const candidates *c, const char *section, char *out, size_t size) {
    *out = '\0';
    for (int i = 0; i < c->n_keys + c->n_sections; i++) {
        const char *path = i < c->n_keys ? c->key[i].k->path : c->section[i - c->n_keys];
        if (in_section(path, section)) text_join(out, size, ", ", recipe_leaf(path));
    }
    return out;
}

int recipe_no_such_key(const recipe *r, const recipe_place *at, const char *path) {
    char section[64], text[512];
    candidates c;
    find_candidates(r, &c);
    if (suggest(r, &c, path, text, sizeof text))
        return recipe_fail(at, "%s: no such key; did you mean %s?", key_show(path).text, text);
    section_of(path, section, sizeof section);
    if (!recipe_is_section(r, section)) *section = '\0';
    return recipe_fail(at, "%s: no such key; %s has %s", key_show(path).text, *section ? section : "a recipe",
                       names_in(&c, section, text, sizeof text));
}

/* ---- Setting ----------------------------------------------------------------------------------------------------- */

/* Paths become absolute, as a copy of the recipe is read from the run's directory. */
static int absolute_path(const recipe_place *at, const key_spec *k, const char *text, char out[RECIPE_PATH]) {
    char here[RECIPE_PATH] = "";
    const char *slash = at->line > 0 ? strrchr(at->file, '/') : NULL;
    const int base = slash ? (int)(slash - at->file) : 0;
    if (*text && *text != '/' && !(slash && at->file[0] == '/') && !getcwd(here, sizeof here)) {
        return recipe_fail(at, "%s: cannot get the current directory: %s", k->path, strerror(errno));
    }
    int n = snprintf(out, k->size, "%s", text);
    if (*text && *text != '/') {
        n = snprintf(out, k->size, "%s%s%.*s/%s", strcmp(here, "/") == 0 ? "" : here, *here && base ? "/" : "", base,
                     slash ? at->file : "", text);
    }
    return (size_t)n < k->size ? 0 : recipe_fail(at, "%s is longer than %zu bytes in full", k->path, k->size - 1);
}

/* A list with room for one element more; NULL: no memory, and the list is as it was. */
static void *grow(void *list, int n, size_t size) {
    void *more = realloc(list, ((size_t)n + 1) * size);
    if (!more) (void)out_of_memory();
    return more;
}

static int remember(recipe *r, const char *path, const char *text, const recipe_place *at) {
    recipe_given *g = (recipe_given *)(uintptr_t)find_given(r, path);
    if (!g && r->n_given == RECIPE_MAX_KEYS)
        return recipe_fail(at, "%s: too many keys, expected at most %d", path, RECIPE_MAX_KEYS);
    if (!g) {
        recipe_given *more = grow(r->given, r->n_given, sizeof *more);
        if (!more) return -1;
        r->given = more;
        g = &r->given[r->n_given++];
    }
    memset(g, 0, sizeof *g);
    memcpy(g->path, path, strlen(path));
    memcpy(g->text, text, strlen(text));
    g->line = at->line;
    return 0;
}

static void forget(recipe *r, const recipe_given *g) {
    const ptrdiff_t i = g - r->given;
    recipe_given *last = &r->given[--r->n_given];
    memmove(&r->given[i], &r->given[i + 1], (size_t)(last - &r->given[i]) * sizeof *last);
}

/* train.steps and train.epochs replace each other, and a file may give only one of them. "0" does not count. */
static int settle_length(recipe *r, const char *path, const char *text, const recipe_place *at) {
    const bool epochs = strcmp(path, "train.epochs") == 0;
    const char *other = epochs ? "train.steps" : "train.epochs";
    const recipe_given *g = find_given(r, other);
    double number;
    if ((!epochs && strcmp(path, "train.steps") != 0) || (key_parse_number(text, &number) && !(number > 0))) return 0;
    if (g && g->line > 0 && at->line > 0 && (epochs || r->train.epochs > 0))
        return recipe_fail(at, "%s is given, but so is %s in line %d: expected one of them", path, other, g->line);
    const key_spec *k = key_find(&loop_table, other);
    (void)key_set(k, other, k->standard, r);
    if (g) forget(r, g);
    return 0;
}

/* settings NULL: the key is of a task or model that is not chosen, but its value must be valid all the same. */
static int set_field(const key_spec *k, const char *name, const char *text, void *settings) {
    if (settings) return key_set(k, name, text, settings);
    void *unused = calloc(1, k->offset + k->size);
    const int failed = unused ? key_set(k, name, text, unused) : out_of_memory();
    free(unused);
    return failed;
}

static int set_key(recipe *r, const key_spec *k, void *settings, const char *text, const recipe_place *at) {
    char names[256], whole[RECIPE_PATH];
    const key_spec with = with_choices(r, k, names, sizeof names);
    const recipe_given *before = find_given(r, k->path);
    if (before && before->line > 0 && at->line > 0)
        return recipe_fail(at, "%s is given twice, first in line %d", k->path, before->line);
    if (k->kind == KEY_PATH) {
        if (key_check_text(k->path, text, k->size)) return recipe_fail(at, "%s", adamod__last_message());
        if (absolute_path(at, k, text, whole)) return -1;
        text = whole;
    }
    if (set_field(&with, at->flag ? at->flag : k->path, text, settings))
        return recipe_fail(at, "%s", adamod__last_message());
    if (settle_length(r, k->path, text, at) || remember(r, k->path, text, at)) return -1;
    return chooses(k->path) ? settle(r) : 0;
}

recipe_pair *recipe_find_pair(const recipe_pairs *list, const char *key) {
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->at[i].key, key) == 0) return &list->at[i];
    }
    return NULL;
}

static void remove_pair(recipe_pairs *list, recipe_pair *pair) {
    const recipe_pair *end = list->at + list->n--;
    memmove(pair, pair + 1, (size_t)(end - pair - 1) * sizeof *pair);
}

static int set_pair(recipe *r, recipe_pairs *list, int most, const char *path, const char *key, const char *text,
                    const recipe_place *at) {
    recipe_pair *pair = recipe_find_pair(list, key);
    if (pair && pair->line > 0 && at->line > 0) {
        return recipe_fail(at, "%s is given twice, first in line %d", key_show(path).text, pair->line);
    }
    if (!*text && at->line < 0) {
        if (pair) return remove_pair(list, pair), 0;
        if (key_lists(r->optimizer.dropped, path + strlen(recipe_option_section))) return 0;
        return recipe_fail(at, "%s is not set, so it cannot be removed", key_show(path).text);
    }
    if (!*text) return recipe_fail(at, "%s is empty", key_show(path).text);
    if (key_check_text(path, text, sizeof pair->value)) return recipe_fail(at, "%s", adamod__last_message());
    if (!pair && list->n == most)
        return recipe_fail(at, "%s: too many keys, expected at most %d", key_show(path).text, most);
    if (!pair) {
        recipe_pair *more = grow(list->at, list->n, sizeof *more);
        if (!more) return -1;
        list->at = more;
        pair = &more[list->n++];
    }
    *pair = (recipe_pair){.line = at->line};
    memcpy(pair->key, key, strlen(key));
    memcpy(pair->value, text, strlen(text));
    return 0;
}

/* Whether a name has only the characters of options; the library knows which options exist. */
static bool is_option_name(const char *name) {
    const size_t n = strlen(name);
    if (!n || n >= sizeof((recipe_pair *)0)->key) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-') return false;
    }
    return true;
}

/* Removes options that only other rules have. Options of no rule stay: they are mistakes that recipe_check reports. */
static void drop_foreign(recipe *r, recipe_pairs *list, const char *section) {
    char *dropped = r->optimizer.dropped;
    const char *prefix = section + strlen(recipe_option_section);
    for (int i = 0; i < list->n;) {
        const char *key = list->at[i].key;
        if (!recipe_is_foreign(r, recipe_leaf(key))) {
            i++;
            continue;
        }
        text_add(dropped, sizeof r->optimizer.dropped, "%s%s%s", *dropped ? "," : "", prefix, key);
        remove_pair(list, &list->at[i]);
    }
}

/* Sets the rule from the command line, which drops foreign options; a file's options are for its own rule. */
static int set_rule(recipe *r, const char *text, const recipe_place *at) {
    if (set_key(r, key_find(&loop_table, rule_key), r, text, at)) return -1;
    drop_foreign(r, &r->optimizer.options, recipe_option_section);
    drop_foreign(r, &r->optimizer.schedules, schedule_section);
    drop_foreign(r, &r->optimizer.groups, recipe_group_section);
    return 0;
}

bool recipe_dropped(const recipe *r, char *line, size_t size) {
    int used = snprintf(line, size, "optimizer %s: dropped options of the recipe that it does not have: ",
                        key_show(r->optimizer.rule).text);
    for (const char *c = r->optimizer.dropped; *c && used > 0 && (size_t)used < size; c += *c == ',') {
        const int n = (int)strcspn(c, ",");
        used += snprintf(line + used, size - (size_t)used, "%s%.*s", c > r->optimizer.dropped ? ", " : "", n, c);
        c += n;
    }
    return *r->optimizer.dropped;
}

/* "optimizer.groups.head=" removes the whole group. */
static int remove_group(recipe *r, const char *group, const char *path, const recipe_place *at) {
    recipe_pairs *list = &r->optimizer.groups;
    const int before = list->n;
    const size_t n = strlen(group);
    for (int i = before; i-- > 0;) {
        if (strncmp(list->at[i].key, group, n) == 0 && list->at[i].key[n] == '.') remove_pair(list, &list->at[i]);
    }
    return list->n < before ? 0 : recipe_fail(at, "%s is not set, so it cannot be removed", path);
}

/* Sets a key of a group: match, freeze or an option. */
static int set_group(recipe *r, const char *group, const char *path, const char *text, const recipe_place *at) {
    recipe_pairs *list = &r->optimizer.groups;
    const char *key = path + strlen(recipe_group_section), *leaf = recipe_leaf(path);
    char plain[sizeof((recipe_pair *)0)->value];
    size_t n = 0;
    if (strlen(key) == strlen(group) && !*text && at->line < 0) return remove_group(r, group, path, at);
    if (strlen(key) == strlen(group)) return recipe_fail(at, "%s is a section: its keys are set one by one", path);
    if (!is_option_name(group) || !is_option_name(leaf) || strlen(key) >= sizeof((recipe_pair *)0)->key ||
        leaf != key + strlen(group) + 1)
        return recipe_fail(at, "%s: no such key; a group has match, freeze and options of the rule",
                           key_show(path).text);
    if (recipe_check_group_value(path, text, at)) return -1;
    if (strcmp(leaf, "match") != 0 || strlen(text) >= sizeof plain)
        return set_pair(r, list, RECIPE_MAX_GROUP_KEYS, path, key, text, at);
    for (const char *c = text; *c; c++) {
        if (*c != ' ') plain[n++] = *c; /* "a, b" is "a,b" */
    }
    plain[n] = '\0';
    return set_pair(r, list, RECIPE_MAX_GROUP_KEYS, path, key, plain, at);
}

/* The current name of a key: commands and run directories may have that of an earlier version. */
static const char *current_name(const char *path) {
    static const char *const renamed[][2] = {{"data.vocabulary", "data.vocabularies"}};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (strcmp(path, renamed[i][0]) == 0) return renamed[i][1];
    }
    return path;
}

int recipe_set_path(recipe *r, const char *path, const char *text, const recipe_place *at) {
    path = current_name(path);
    if (at->line < 0 && (strcmp(path, "optimizer") == 0 || strcmp(path, rule_key) == 0)) return set_rule(r, text, at);
    const recipe_key own = find_key(r, path);
    const key_spec *k = own.k ? own.k : find_foreign(r, path);
    if (k) return set_key(r, k, own.settings, text, at);
    char group[32];
    if (recipe_group_path(path, group)) return set_group(r, group, path, text, at);
    if (recipe_is_section(r, path)) return recipe_fail(at, "%s is a section: its keys are set one by one", path);
    const bool schedule = strncmp(path, schedule_section, strlen(schedule_section)) == 0;
    const char *section = schedule ? schedule_section : recipe_option_section, *name = path + strlen(section);
    if (strncmp(path, section, strlen(section)) != 0 || !is_option_name(name)) return recipe_no_such_key(r, at, path);
    return set_pair(r, schedule ? &r->optimizer.schedules : &r->optimizer.options,
                    schedule ? RECIPE_MAX_SCHEDULES : RECIPE_MAX_OPTIONS, path, name, text, at);
}

int recipe_defaults(recipe *r, const task *const *tasks) {
    memset(r, 0, sizeof *r);
    r->tasks = tasks;
    key_defaults(&loop_table, r);
    memcpy(r->data.task, tasks[0]->name, strlen(tasks[0]->name));
    if (!settle(r)) return 0;
    recipe_free(r);
    return -1;
}

/* One byte more, as malloc(0) may be NULL. */
static void *copy_of(const void *memory, size_t n) {
    void *copy = memory ? malloc(n + 1) : NULL;
    return copy ? memcpy(copy, memory, n) : NULL;
}

int recipe_copy(recipe *to, const recipe *from) {
    const task_model *model = recipe_model(from);
    *to = *from;
#define COPY(field, bytes) ((to->field = copy_of(from->field, bytes)) || !from->field)
#define COPY_PAIRS(list) COPY(optimizer.list.at, (size_t)from->optimizer.list.n * sizeof(recipe_pair))
    bool ok = COPY_PAIRS(options);
    ok &= COPY_PAIRS(schedules);
    ok &= COPY_PAIRS(groups);
    ok &= COPY(given, (size_t)from->n_given * sizeof *from->given);
    ok &= COPY(task_settings, task_size(recipe_task(from)));
    ok &= COPY(model_settings, model ? model->keys->size : 0);
#undef COPY_PAIRS
#undef COPY
    if (ok) return 0;
    recipe_free(to);
    return out_of_memory();
}

void recipe_free(recipe *r) {
    free(r->optimizer.options.at);
    free(r->optimizer.schedules.at);
    free(r->optimizer.groups.at);
    free(r->given);
    free(r->task_settings);
    free(r->model_settings);
    memset(r, 0, sizeof *r);
}

int recipe_set_by(recipe *r, recipe_origin by, const char *assignment) {
    const recipe_place at = {.line = -(int)by};
    const char *equals = strchr(assignment, '=');
    char path[256];
    if (!equals || equals == assignment) return recipe_fail(&at, "'%s' is not KEY=VALUE", key_show(assignment).text);
    if ((size_t)(equals - assignment) >= sizeof path)
        return recipe_fail(&at, "%s: no such key", key_show(assignment).text);
    snprintf(path, sizeof path, "%.*s", (int)(equals - assignment), assignment);
    return recipe_set_path(r, path, equals + 1, &at);
}

int recipe_set(recipe *r, const char *assignment) { return recipe_set_by(r, RECIPE_BY_SET, assignment); }

int recipe_set_flag(recipe *r, const char *flag, const char *path, const char *value) {
    const recipe_place at = {.flag = flag, .line = -1};
    return recipe_set_path(r, path, value, &at);
}

/* ---- Checking and comparing -------------------------------------------------------------------------------------- */

static recipe_place place_of(const recipe *r, const char *path) {
    const recipe_given *g = find_given(r, path);
    return (recipe_place){.file = r->file, .line = g ? g->line : 0};
}

/* Runs a task's or a model's check; the message has the place of the key that it returns. */
static int check_own(const recipe *r, const char *(*check)(const recipe *)) {
    const char *path = check ? check(r) : NULL;
    if (!path) return 0;
    const recipe_place at = place_of(r, path);
    return recipe_fail(&at, "%s", adamod__last_message());
}

/* Whether the file's key was for a task or model that --set replaced. */
static bool was_overridden(const recipe *r, const recipe_given *g, bool model) {
    const recipe_given *t = find_given(r, "data.task"), *m = find_given(r, "model.kind");
    return g->line >= 0 && ((t && t->line < 0) || (model && m && m->line < 0));
}

/* Refuses keys of other tasks and models, unless the value is the default: when all tasks shared one table, runs wrote
 * them all. */
static int check_foreign(const recipe *r) {
    for (int i = 0; i < r->n_given; i++) {
        const recipe_given *g = &r->given[i];
        const key_spec *k = find_key(r, g->path).k ? NULL : find_foreign(r, g->path);
        const bool model = strncmp(g->path, "model.", 6) == 0;
        if (!k || strcmp(k->standard, g->text) == 0 || was_overridden(r, g, model)) continue;
        const recipe_place at = place_of(r, g->path);
        return recipe_fail(&at, "%s is given, but %s %s has no such key", g->path, model ? "model.kind" : "data.task",
                           model ? r->model.kind : r->data.task);
    }
    return 0;
}

static int check_choices(const recipe *r) {
    const recipe_place kind = place_of(r, "model.kind"), best = place_of(r, "train.best");
    const task *t = recipe_task(r);
    char text[512];
    if (!recipe_model(r)) {
        (void)recipe_expected(r, "model.kind", text, sizeof text);
        return recipe_fail(&kind, "model.kind is '%s', expected %s, which data.task %s trains", r->model.kind, text,
                           t->name);
    }
    if (task_metric(t, r->train.best) >= 0) return 0;
    *text = '\0';
    for (int i = 0; i < t->n_metrics; i++) text_join(text, sizeof text, ", ", t->metrics[i].name);
    return recipe_fail(&best, "train.best is '%s', expected a metric of data.task %s: %s", key_show(r->train.best).text,
                       t->name, text);
}

static bool is_never(key_span every) { return every.updates == 0 && !(every.epochs > 0); }

static int check_intervals(const recipe *r) {
    const recipe_place average = place_of(r, "train.average"), patience = place_of(r, "train.patience"),
                       test = place_of(r, "train.test");
    if (r->train.average > 0 && is_never(r->train.checkpoint_every))
        return recipe_fail(&average,
                           "train.average is %d, but train.checkpoint_every 0 makes no checkpoints to average",
                           r->train.average);
    if (r->train.test == TEST_AVERAGED && r->train.average == 0)
        return recipe_fail(&test, "train.test is averaged, but train.average is 0: it says how many checkpoints");
    if (r->train.patience > 0 && is_never(r->train.evaluate_every))
        return recipe_fail(&patience, "train.patience is %d, but train.evaluate_every 0 evaluates at the end only",
                           r->train.patience);
    return 0;
}

static int check_init(const recipe *r) {
    const recipe_place skip = place_of(r, "train.init_skip");
    if (!*r->train.init_skip || *r->train.init_from) return 0;
    return recipe_fail(&skip, "train.init_skip is given, but train.init_from, whose weights it is about, is not");
}

int recipe_check(const recipe *r) {
    adamod_optimizer *opt;
    const recipe_place name = place_of(r, "name");
    if (!*r->name || *r->name == '.' || strchr(r->name, '/')) { /* it becomes a directory's name */
        return recipe_fail(&name, "name is '%s', expected one without '/' that does not begin with '.'",
                           key_show(r->name).text);
    }
    if (check_choices(r) || check_foreign(r)) return -1;
    if (check_own(r, recipe_task(r)->check) || check_own(r, recipe_model(r)->check)) return -1;
    if (check_intervals(r) || check_init(r)) return -1;
    if (recipe_check_groups(r) || recipe_optimizer(r, "cpu", 0, &opt)) return -1;
    adamod_free(opt);
    return 0;
}

static const char *schedule_of(const recipe *r, const char *option) {
    const recipe_pair *pair = recipe_find_pair(&r->optimizer.schedules, option);
    return pair ? pair->value : "constant";
}

static int compare_option(adamod_optimizer *a, adamod_optimizer *b, int group, const char *prefix,
                          const adamod_option *o, const recipe_place *at) {
    double x = 0, y = 0;
    (void)adamod_group_get(a, group, o->name, &x), (void)adamod_group_get(b, group, o->name, &y);
    if (x == y || strcmp(o->name, "threads") == 0) return 0;
    if (o->choices)
        return recipe_fail(at, "%s%s is %s, but was %s", prefix, o->name, o->choices[(int)y], o->choices[(int)x]);
    return recipe_fail(at, "%s%s is %.15g, but was %.15g", prefix, o->name, y, x);
}

/* Compares options by value: 3e-3 equals 0.003, and a default the same number given. */
static int compare_options(const recipe *was, const recipe *is, const recipe_place *at) {
    adamod_optimizer *a = NULL, *b = NULL;
    adamod_option o;
    recipe_group groups[RECIPE_MAX_GROUPS];
    const int n = recipe_groups(is, groups);
    int status = recipe_optimizer(was, "cpu", 0, &a) || recipe_optimizer(is, "cpu", 0, &b) ? -1 : 0;
    for (int i = 0; !status && adamod_option_at(is->optimizer.rule, i, &o) == ADAMOD_OK; i++) {
        const char *s = schedule_of(was, o.name), *t = schedule_of(is, o.name);
        if (strcmp(s, t) != 0) status = recipe_fail(at, "optimizer.schedule.%s is %s, but was %s", o.name, t, s);
        if (!status) status = compare_option(a, b, 0, recipe_option_section, &o, at);
        for (int g = 0; !status && g < n; g++) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "%s%s.", recipe_group_section, groups[g].name);
            status = compare_option(a, b, recipe_library_group(is, g + 1, false), prefix, &o, at);
        }
    }
    adamod_free(a);
    adamod_free(b);
    return status;
}

int recipe_compare(const recipe *was, const recipe *is, int except) {
    const recipe_place at = {0};
    recipe_key before[RECIPE_MAX_KEYS], now[RECIPE_MAX_KEYS];
    if (strcmp(was->data.task, is->data.task) != 0)
        return recipe_fail(&at, "data.task is %s, but was %s", is->data.task, was->data.task);
    if (strcmp(was->model.kind, is->model.kind) != 0)
        return recipe_fail(&at, "model.kind is %s, but was %s", is->model.kind, was->model.kind);
    const int n = recipe_list_keys(is, now);
    (void)recipe_list_keys(was, before);
    for (int i = 0; i < n; i++) {
        char a[32], b[32];
        const key_spec *k = now[i].k;
        const char *old = key_text(k, before[i].settings, a), *new = key_text(k, now[i].settings, b);
        if (k->loose || strcmp(old, new) == 0) continue;
        if ((except & RECIPE_RULE) && strcmp(k->path, rule_key) == 0) continue;
        return recipe_fail(&at, "%s is %s, but was %s", k->path, *new ? new : "empty", *old ? old : "empty");
    }
    if (!(except & RECIPE_RULE) && recipe_compare_groups(was, is, &at)) return -1;
    return except & RECIPE_OPTIONS ? 0 : compare_options(was, is, &at);
}

/* ---- Describing -------------------------------------------------------------------------------------------------- */

static void describe_key(FILE *file, const recipe *r, const key_spec *k) {
    char expected[256] = "", names[256];
    const key_spec with = with_choices(r, k, names, sizeof names);
    key_expected(&with, expected, sizeof expected);
    fprintf(file, "%-25s %-46s %-12s %s\n", k->path, expected, *k->standard ? k->standard : "-", k->help);
}

static void describe_table(FILE *file, const recipe *r, const key_table *t) {
    for (int i = 0; i < t->n; i++) describe_key(file, r, &t->keys[i]);
}

void recipe_describe(FILE *file, const task *const *tasks) {
    recipe r;
    if (recipe_defaults(&r, tasks)) return;
    describe_table(file, &r, &loop_table);
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.OPTION", "what the rule says", "the rule's",
            "any option of the rule: lr, beta1, ... ('adamod optim list RULE')");
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.schedule.OPTION", "a schedule", "constant",
            "of a real option: warmup(1e-7,4000), multistep(150 epochs,225 epochs;0.1), ...");
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.groups.NAME.match",
            "names with commas between them, * for any text", "-",
            "the parameters of a group; of several that match one, the last counts");
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.groups.NAME.freeze", "true or false", "false",
            "do not train these parameters");
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.groups.NAME.OPTION", "what the rule says", "the recipe's",
            "an option of the rule for these parameters: lr, weight_decay, ...");
    for (int i = 0; tasks[i]; i++) {
        fprintf(file, "\n# data.task %s: %s\n", tasks[i]->name, tasks[i]->about);
        for (const key_table *const *t = tasks[i]->keys; *t; t++) describe_table(file, &r, *t);
    }
    for (int i = 0; tasks[i]; i++) {
        for (const task_model *const *m = tasks[i]->models; *m; m++) {
            bool again = false;
            for (int k = 0; k < i && !again; k++) {
                for (const task_model *const *o = tasks[k]->models; *o; o++) again |= *o == *m;
            }
            if (again) continue;
            fprintf(file, "\n# model.kind %s\n", (*m)->kind);
            describe_table(file, &r, (*m)->keys);
        }
    }
    recipe_free(&r);
}

bool recipe_measures(const recipe *r, const char *name, char *known, size_t size) {
    const task *t = recipe_task(r);
    bool found = false;
    *known = '\0';
    for (int i = 0; i < t->n_metrics; i++) {
        if (t->measures && !t->measures(r, i)) continue;
        found |= strcmp(t->metrics[i].name, name) == 0;
        text_join(known, size, ", ", t->metrics[i].name);
    }
    return found;
}
