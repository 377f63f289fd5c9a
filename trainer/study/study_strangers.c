/* study_strangers.c - runs in a directory that belong to no method of a study. */
#include "study/study_parts.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

/* Whether "adam-seed-1" is a run of a method. */
static bool is_of(const char *name, const char *slug) {
    static const char between[] = "-seed-";
    const size_t n = strlen(slug);
    if (strncmp(name, slug, n) != 0 || strncmp(name + n, between, strlen(between)) != 0) return false;
    const char *seed = name + n + strlen(between);
    return *seed && strspn(seed, "0123456789") == strlen(seed);
}

/* Whether it is a run of the experiment, with or without --quick. */
static bool is_expected(const study *s, int experiment, const char *name) {
    for (int quick = 0; quick < 2; quick++) {
        const study_options o = {.quick = quick};
        for (int i = 0; i < s->experiment[experiment].n_methods; i++) {
            const study_place of = {experiment, i};
            for (int k = 0; k < study_count_values(s, &o, experiment); k++) {
                char slug[STUDY_SLUG];
                study_slug(s, of, study_value_at(s, &o, of, k), slug, sizeof slug);
                if (is_of(name, slug)) return true;
            }
        }
    }
    return false;
}

typedef struct search {
    const study *s;
    const char *directory;
    int n;
    char *first;
    size_t size;
} search;

/* Looks at DIRECTORY/GROUP/NAME. */
static void look_at(search *x, const char *group, const char *name) {
    char path[4096], place[600];
    const int experiment = study_find_experiment(x->s, group);
    snprintf(path, sizeof path, "%.2000s/%.300s/%.300s/recipe.yaml", x->directory, group, name);
    if (access(path, F_OK) || (experiment >= 0 && is_expected(x->s, experiment, name))) return;
    snprintf(place, sizeof place, "%.290s/%.290s", group, name);
    if (x->n++ == 0 || strcmp(place, x->first) < 0) snprintf(x->first, x->size, "%s", place);
}

int study_strangers(const study *s, const char *directory, char *first, size_t size) {
    search x = {s, directory, 0, first, size};
    DIR *all = opendir(directory);
    for (struct dirent *group; all && (group = readdir(all));) {
        char path[4096];
        snprintf(path, sizeof path, "%.2000s/%.300s", directory, group->d_name);
        DIR *runs = group->d_name[0] == '.' ? NULL : opendir(path);
        for (struct dirent *run; runs && (run = readdir(runs));) {
            if (run->d_name[0] != '.') look_at(&x, group->d_name, run->d_name);
        }
        if (runs) closedir(runs);
    }
    if (all) closedir(all);
    return x.n;
}
