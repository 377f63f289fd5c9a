#include "train/patterns.h"

#include "core/edit_distance.h"
#include "support/keys.h"
#include "core/error.h"
#include "support/text.h"

#include <stdio.h>
#include <string.h>

static bool matches_any(const nn_params *params, const char *pattern) {
    for (int i = 0; i < params->n; i++) {
        if (key_matches(pattern, params->list[i].name)) return true;
    }
    return false;
}

/* A pattern of the same form that matches this parameter: as many parts of its name, with the same ending. */
static void alike(const char *name, const char *pattern, char *out, size_t size) {
    const size_t length = strlen(pattern);
    const bool below = length >= 2 && strcmp(pattern + length - 2, ".*") == 0,
               open = length && pattern[length - 1] == '*';
    int parts = below ? 0 : 1;
    size_t n = 0;
    for (const char *c = pattern; *c; c++) parts += *c == '.';
    for (int i = 0; i < parts && name[n]; i++) n += (i > 0) + strcspn(name + n + (i > 0), ".");
    snprintf(out, size, "%.*s%s", (int)n, name, below ? ".*" : open ? "*" : "");
}

/* The nearest pattern that matches a parameter; false: none is near. */
static bool nearest(const nn_params *params, const char *pattern, char *out, size_t size) {
    int least = (int)strlen(pattern) / 3 + 1;
    bool found = false;
    for (int i = 0; i < params->n; i++) {
        char other[128];
        alike(params->list[i].name, pattern, other, sizeof other);
        const int d = adamod__edit_distance(pattern, other);
        if (d >= least) continue;
        least = d;
        found = true;
        snprintf(out, size, "%s", other);
    }
    return found;
}

/* Lists the first parts of all names. */
static void list_parts(const nn_params *params, char *out, size_t size) {
    *out = '\0';
    for (int i = 0; i < params->n; i++) {
        char part[128];
        snprintf(part, sizeof part, "%.*s", (int)strcspn(params->list[i].name, "."), params->list[i].name);
        if (!key_lists(out, part)) text_join(out, size, ",", part);
    }
}

static int matches_none(const nn_params *params, const char *key, const char *pattern) {
    char near[128], parts[256];
    if (nearest(params, pattern, near, sizeof near))
        return adamod__refuse("%s: no parameter is called '%s'; did you mean '%s'?", key, pattern, near);
    list_parts(params, parts, sizeof parts);
    return adamod__refuse("%s: no parameter is called '%s'; names begin with %s", key, pattern, parts);
}

int patterns_check(const nn_params *params, const char *key, const char *patterns) {
    char pattern[128];
    for (int i = 0; key_pattern(patterns, i, pattern); i++) {
        if (!matches_any(params, pattern)) return matches_none(params, key, pattern);
    }
    return 0;
}
