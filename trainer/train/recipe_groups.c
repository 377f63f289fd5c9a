#include "train/recipe_parts.h"

#include <string.h>

const char recipe_group_section[] = "optimizer.groups.";

/* Length of the group's name in a key such as "head.lr". */
static int name_length(const recipe_pair *pair) { return (int)strcspn(pair->key, "."); }

static bool is_of(const recipe_pair *pair, const char *group) {
    const size_t n = (size_t)name_length(pair);
    return strlen(group) == n && memcmp(pair->key, group, n) == 0;
}

/* The pair of a group for a key, or NULL. */
static const recipe_pair *find_pair(const recipe *r, const char *group, const char *leaf) {
    char key[sizeof((recipe_pair *)0)->key];
    snprintf(key, sizeof key, "%s.%s", group, leaf);
    return recipe_find_pair(&r->optimizer.groups, key);
}

const recipe_pair *recipe_group_option(const recipe *r, const char *group, int index) {
    for (int i = 0; i < r->optimizer.groups.n; i++) {
        const recipe_pair *pair = &r->optimizer.groups.at[i];
        const char *leaf = recipe_leaf(pair->key);
        const bool own = strcmp(leaf, "match") == 0 || strcmp(leaf, "freeze") == 0;
        if (is_of(pair, group) && !own && index-- == 0) return pair;
    }
    return NULL;
}

static bool is_listed(const recipe_group *groups, int n, const recipe_pair *pair) {
    for (int i = 0; i < n; i++) {
        if (is_of(pair, groups[i].name)) return true;
    }
    return false;
}

int recipe_groups(const recipe *r, recipe_group out[RECIPE_MAX_GROUPS]) {
    int n = 0;
    for (int i = 0; i < r->optimizer.groups.n && n < RECIPE_MAX_GROUPS; i++) {
        const recipe_pair *pair = &r->optimizer.groups.at[i];
        if (is_listed(out, n, pair)) continue;
        recipe_group *g = &out[n++];
        snprintf(g->name, sizeof g->name, "%.*s", name_length(pair), pair->key);
        const recipe_pair *match = find_pair(r, g->name, "match"), *freeze = find_pair(r, g->name, "freeze");
        g->match = match ? match->value : "";
        g->freeze = freeze && strcmp(freeze->value, "true") == 0;
    }
    return n;
}

int recipe_group_of(const recipe *r, const char *parameter, bool *frozen) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    int i = recipe_groups(r, groups);
    while (i > 0 && !key_matches(groups[i - 1].match, parameter)) i--;
    *frozen = i > 0 && groups[i - 1].freeze;
    return i;
}

/* Groups of the library per group of the recipe: a second one for parameters without weight decay. */
static int copies(const recipe *r) { return *r->optimizer.no_decay ? 2 : 1; }

int recipe_library_group(const recipe *r, int group, bool undecayed) { return group * copies(r) + undecayed; }

int recipe_library_groups(const recipe *r) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    return (1 + recipe_groups(r, groups)) * copies(r);
}

/* ---- setting and checking ---- */

bool recipe_group_path(const char *path, char name[32]) {
    const size_t n = strlen(recipe_group_section);
    *name = '\0';
    if (strncmp(path, recipe_group_section, n) != 0) return false;
    const size_t length = strcspn(path + n, ".");
    if (length < 32) snprintf(name, 32, "%.*s", (int)length, path + n);
    return *name != '\0';
}

int recipe_check_group_value(const char *path, const char *text, const recipe_place *at) {
    if (strcmp(recipe_leaf(path), "freeze") != 0 || !*text || strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return 0;
    return recipe_fail(at, "%s is '%s', expected true or false", path, key_show(text).text);
}

int recipe_check_groups(const recipe *r) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    const int n = recipe_groups(r, groups);
    for (int i = 0; i < r->optimizer.groups.n; i++) {
        const recipe_pair *pair = &r->optimizer.groups.at[i];
        const recipe_place at = {.file = r->file, .line = pair->line};
        char name[32];
        snprintf(name, sizeof name, "%.*s", name_length(pair), pair->key);
        if (!is_listed(groups, n, pair))
            return recipe_fail(&at, "optimizer.groups.%s: too many groups, expected at most %d", name,
                               RECIPE_MAX_GROUPS);
        if (!find_pair(r, name, "match"))
            return recipe_fail(&at, "optimizer.groups.%s has no match, expected names of parameters, such as 'stem.*'",
                               name);
    }
    return 0;
}

/* ---- comparing ---- */

static const char *text_of(const recipe *r, const recipe_group *g, int i, int n, const char *leaf) {
    if (i >= n) return "not given";
    const recipe_pair *pair = find_pair(r, g[i].name, leaf);
    return pair ? pair->value : strcmp(leaf, "freeze") == 0 ? "false" : "not given";
}

int recipe_compare_groups(const recipe *was, const recipe *is, const recipe_place *at) {
    static const char *const leaves[] = {"match", "freeze"};
    recipe_group a[RECIPE_MAX_GROUPS], b[RECIPE_MAX_GROUPS];
    const int n = recipe_groups(was, a), m = recipe_groups(is, b);
    for (int i = 0; i < n || i < m; i++) {
        for (int k = 0; k < 2; k++) {
            const char *old = text_of(was, a, i, n, leaves[k]), *new = text_of(is, b, i, m, leaves[k]);
            if (strcmp(old, new) != 0)
                return recipe_fail(at, "%s%s.%s is %s, but was %s", recipe_group_section, i < m ? b[i].name : a[i].name,
                                   leaves[k], new, old);
        }
    }
    return 0;
}
