#include "study/run_list.h"

#include "core/error.h"
#include "train/checkpoints.h"
#include "train/run.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the list ---- */

static int fail_memory(void) { return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the list of runs"); }

static void free_entry(run_entry *e) {
    recipe_free(&e->r);
    free(e->directory);
    free(e->group);
    free(e->variant);
    free(e->value);
    free(e->label);
}

void run_list_free(run_list *p) {
    for (int i = 0; i < p->n; i++) free_entry(&p->at[i]);
    free(p->at);
    *p = (run_list){0};
}

void run_list_remove(run_list *p, int index) {
    free_entry(&p->at[index]);
    p->n--;
    memmove(&p->at[index], &p->at[index + 1], (size_t)(p->n - index) * sizeof *p->at);
}

static int reserve(run_list *p) {
    if (p->n < p->room) return 0;
    const int room = p->room ? 2 * p->room : 16;
    run_entry *grown = adamod__resize(p->at, (size_t)room, sizeof *grown);
    if (!grown) return fail_memory();
    p->at = grown;
    p->room = room;
    return 0;
}

static int check(const run_list *p, const recipe *r, const char *directory, const char *variant) {
    if (recipe_check(r)) return adamod__context("%s: ", variant);
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->at[i].directory, directory) == 0)
            return adamod__refuse("%s: another variant is in %s too; give it another name", variant, directory);
    }
    return 0;
}

int run_list_add(run_list *p, recipe *r, const char *directory, const char *group, const char *variant,
                 double seconds) {
    char label[512];
    if (check(p, r, directory, variant) || reserve(p)) return -1;
    snprintf(label, sizeof label, "%.200s%s%.200s, seed %llu", group, *group ? ": " : "", variant,
             (unsigned long long)r->train.seed);
    run_entry e = {.directory = strdup(directory),
                   .group = strdup(group),
                   .variant = strdup(variant),
                   .label = strdup(label),
                   .seed = r->train.seed,
                   .seconds = seconds,
                   .bytes = NAN,
                   .spent = NAN};
    if (!e.directory || !e.group || !e.variant || !e.label) return free_entry(&e), fail_memory();
    e.r = *r;
    *r = (recipe){0};
    p->at[p->n++] = e;
    return 0;
}

static int replace(char **text, const char *by) {
    char *copy = strdup(by);
    if (!copy) return fail_memory();
    free(*text);
    *text = copy;
    return 0;
}

int run_list_label(run_list *p, const char *label) { return replace(&p->at[p->n - 1].label, label); }
void run_list_bytes(run_list *p, double bytes) { p->at[p->n - 1].bytes = bytes; }

int run_list_value(run_list *p, const char *value) { return replace(&p->at[p->n - 1].value, value); }

/* ---- what is there ---- */

/* Whether two trainings are of the same length, which recipe_compare does not ask. */
static int compare_lengths(const recipe *was, const recipe *is) {
    const double epochs = is->train.epochs, before = was->train.epochs;
    if (epochs != before) return adamod__refuse("train.epochs is %.15g, but was %.15g", epochs, before);
    if (epochs > 0 || is->train.steps == was->train.steps) return 0;
    return adamod__refuse("train.steps is %lld, but was %lld", (long long)is->train.steps, (long long)was->train.steps);
}

/* Fails if the run in the directory is not of the entry's recipe. */
static int check_recipe(const run_entry *e) {
    recipe was;
    if (recipe_defaults(&was, e->r.tasks)) return -1;
    int failed = checkpoints_recipe(e->directory, &was);
    if (!failed) {
        failed = recipe_compare(&was, &e->r, 0) || (e->state == RUN_IS_OVER && compare_lengths(&was, &e->r));
        if (failed) (void)adamod__context("%s is a run of another recipe: ", e->directory);
    }
    recipe_free(&was);
    return failed ? -1 : 0;
}

static int look(run_entry *e) {
    char path[4096];
    struct stat st;
    e->state = RUN_IS_NEW;
    e->spent = NAN;
    if (stat(e->directory, &st)) {
        if (errno == ENOENT || errno == ENOTDIR) return 0;
        return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", e->directory, strerror(errno));
    }
    if (S_ISDIR(st.st_mode) && access(e->directory, R_OK | X_OK))
        return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", e->directory, strerror(errno));
    if (run_is_unbegun(e->directory, &e->r)) return 0;
    snprintf(path, sizeof path, "%s/recipe.yaml", e->directory);
    if (access(path, F_OK)) return adamod__refuse("%s exists and is not a run: choose another --out", e->directory);
    e->state = run_is_over(e->directory) ? RUN_IS_OVER : RUN_IS_BEGUN;
    e->spent = run_seconds(e->directory);
    return check_recipe(e);
}

int run_list_look(run_list *p) {
    for (int i = 0; i < p->n; i++) {
        if (look(&p->at[i])) return -1;
    }
    return 0;
}

void run_list_see_end(run_list *p) {
    run_entry *e = &p->at[p->n - 1];
    e->state = run_is_over(e->directory) ? RUN_IS_OVER : RUN_IS_NEW;
}

/* ---- time ---- */

/* Mean time of the runs of the group that are over, of one variant or (NULL) of all. */
static double usual(const run_list *p, const char *group, const char *variant) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const run_entry *e = &p->at[i];
        if (e->state != RUN_IS_OVER || isnan(e->spent) || strcmp(e->group, group) != 0) continue;
        if (variant && strcmp(e->variant, variant) != 0) continue;
        sum += e->spent;
        n++;
    }
    return n ? sum / n : NAN;
}

double run_list_expect(const run_list *p, int index) {
    const run_entry *e = &p->at[index];
    if (e->state == RUN_IS_OVER) return 0;
    double whole = usual(p, e->group, e->variant);
    if (isnan(whole)) whole = usual(p, e->group, NULL);
    if (isnan(whole)) whole = e->seconds;
    if (isnan(whole) || e->state != RUN_IS_BEGUN || isnan(e->spent)) return whole;
    return fmax(whole - e->spent, 0);
}

double run_list_left(const run_list *p, const char *group, int *unknown) {
    double sum = 0;
    *unknown = 0;
    for (int i = 0; i < p->n; i++) {
        if (group && strcmp(p->at[i].group, group) != 0) continue;
        const double seconds = run_list_expect(p, i);
        if (isnan(seconds)) ++*unknown;
        else sum += seconds;
    }
    return sum;
}

/* ---- names ---- */

/* A value in a name: the last part of a path. */
static const char *label_of(const char *value) {
    const char *slash = strrchr(value, '/');
    return slash && slash[1] ? slash + 1 : value;
}

void run_list_add_to_name(const char *key, const char *value, char *name, size_t size) {
    const size_t used = strlen(name);
    const char *dot = strrchr(key, '.'), *space = used ? " " : "";
    const bool rule = strcmp(key, "optimizer") == 0 || strcmp(key, "optimizer.rule") == 0;
    if (rule) snprintf(name + used, size - used, "%s%.60s", space, label_of(value));
    else snprintf(name + used, size - used, "%s%.40s=%.60s", space, dot ? dot + 1 : key, label_of(value));
}

void run_list_fill_in(const char *value, char *text, size_t size) {
    static const char place[] = "{value}";
    for (char *at = text; (at = strstr(at, place)) && strlen(text) + strlen(value) < size; at += strlen(value)) {
        const size_t rest = strlen(at + sizeof place - 1) + 1;
        memmove(at + strlen(value), at + sizeof place - 1, rest);
        memcpy(at, value, strlen(value));
    }
}

void run_list_slug(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (; *name && n + 1 < size; name++) {
        if (isalnum((unsigned char)*name) || *name == '.') out[n++] = (char)tolower((unsigned char)*name);
        else if (n > 0 && out[n - 1] != '-') out[n++] = '-';
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
}
