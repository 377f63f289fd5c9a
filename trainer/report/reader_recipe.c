#include "report/reader_parts.h"

#include <string.h>

/* Reads recipes as recipe_write makes them, and a little more: nested keys with one value each, plain or quoted. Without the
 * trainer's schema, a page can show runs of other versions. */

enum { LEVELS = 8, KEY = 128, VALUE = 2048 };

typedef struct section {
    int indent;
    size_t length; /* of its path, with the dot */
} section;

typedef struct recipe_reader {
    report_pairs *pairs;
    section level[LEVELS];
    int depth;
    char path[KEY];
} recipe_reader;

/* YAML's escapes in double quotes are read as JSON's, which are the same for all that a recipe holds. */
static const char *unquote(const char *from, const char *end, char *value) {
    if (*from == '"') {
        json_input in = json_input_of(from, (size_t)(end - from));
        json_input_text(&in, value, VALUE);
        if (!in.expected && in.at < end && *in.at == ' ') return NULL; /* a comment follows */
        json_input_end(&in);
        return in.expected ? "expected a value in double quotes" : NULL;
    }
    size_t n = 0;
    for (from++; from < end && n < VALUE - 1; from++) {
        if (*from == '\'' && (from + 1 == end || from[1] != '\'')) break;
        if (*from == '\'') from++;
        value[n++] = *from;
    }
    value[n] = '\0';
    return from < end && *from == '\'' ? NULL : "expected a value in single quotes";
}

static const char *plain(const char *from, const char *end, char *value) {
    const char *comment = memmem(from, (size_t)(end - from), " #", 2);
    if (comment) end = comment;
    while (end > from && (end[-1] == ' ' || end[-1] == '\r' || end[-1] == '\t')) end--;
    if (end - from >= VALUE) return "the value is longer than 2047 bytes";
    memcpy(value, from, (size_t)(end - from));
    value[end - from] = '\0';
    return NULL;
}

/* Sets path to that of a key with this indent. Sections with the same or a larger indent end. */
static const char *enter_key(recipe_reader *y, int indent, const char *name, size_t n) {
    while (y->depth > 0 && y->level[y->depth - 1].indent >= indent) y->depth--;
    const size_t used = y->depth ? y->level[y->depth - 1].length : 0;
    if (!y->depth && indent) return "the key is indented, but belongs to none";
    if (!n || used + n + 2 > KEY) return "the key is empty, or longer than 126 bytes with its section";
    memcpy(y->path + used, name, n);
    y->path[used + n] = '\0';
    return NULL;
}

static const char *enter_section(recipe_reader *y, int indent) {
    const size_t n = strlen(y->path);
    if (y->depth == LEVELS) return "sections are nested too deep";
    y->path[n] = '.';
    y->level[y->depth++] = (section){indent, n + 1};
    return NULL;
}

static const char *read_recipe_line(recipe_reader *y, const char *begin, const char *end) {
    char value[VALUE] = "";
    const char *key = begin;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\r')) end--;
    while (key < end && *key == ' ') key++;
    if (key == end || *key == '#') return NULL;
    const char *colon = memchr(key, ':', (size_t)(end - key));
    if (!colon || (colon + 1 < end && colon[1] != ' ')) return "expected 'key: value'";
    const char *from = colon + 1, *what = enter_key(y, (int)(key - begin), key, (size_t)(colon - key));
    while (from < end && *from == ' ') from++;
    if (what) return what;
    if (from == end || *from == '#') return enter_section(y, (int)(key - begin));
    what = *from == '"' || *from == '\'' ? unquote(from, end, value) : plain(from, end, value);
    return what ? what : reader_add_pair(y->pairs, y->path, value);
}

int reader_recipe(report_run *r) {
    reader_place at = reader_file(r->directory, "recipe.yaml");
    recipe_reader y = {.pairs = &r->recipe};
    size_t n = 0;
    int status = reader_small(&at, READER_BYTES, &r->recipe_text, &n);
    if (status == 0) status = reader_fail(&at, "no such file, expected a run directory");
    text_slice rest = {r->recipe_text, n}, l;
    while (status > 0 && text_next_line(&rest, &l)) {
        const char *what = NULL;
        at.line++;
        if (text_check(l, at.path, at.line)) status = -1;
        else if ((what = read_recipe_line(&y, l.bytes, l.bytes + l.n))) status = reader_fail(&at, what);
    }
    return status < 0 ? -1 : 0;
}
