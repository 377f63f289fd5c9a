#include "train/recipe_parts.h"

#include "core/error.h"
#include "core/file.h"
#include "support/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* ---- Reading YAML ------------------------------------------------------------------------------------------------ */

enum { MOST_BYTES = 1 << 20 };

typedef struct reader {
    yaml_parser_t yaml;
    recipe *r;
    recipe_place at;
    const char *text;
    size_t n;
    bool scanning; /* reads only the task and the model, as the other keys depend on them */
    struct {
        char path[64];
        int line;
    } met[32]; /* sections */
    int n_met;
} reader;

static int fail_yaml(const reader *in) {
    const yaml_parser_t *p = &in->yaml;
    const char *problem = p->problem ? p->problem : "unknown error", *context = p->context ? p->context : "";
    recipe_place at = in->at;
    if (p->error == YAML_MEMORY_ERROR) return recipe_fail(&at, "out of memory");
    if (p->error == YAML_READER_ERROR) { /* libyaml gives an offset here, not a line */
        at.line = at.column = 1;
        for (size_t i = 0; i < p->problem_offset && i < in->n; i++) {
            at.column++;
            if (in->text[i] == '\n') at.line++, at.column = 1;
        }
    } else {
        at.line = (int)p->problem_mark.line + 1;
        at.column = (int)p->problem_mark.column + 1;
    }
    const bool tab = p->problem_mark.index < in->n && in->text[p->problem_mark.index] == '\t';
    if (p->error == YAML_SCANNER_ERROR && tab)
        return recipe_fail(&at, "not YAML: a tab; sections are indented with spaces");
    return recipe_fail(&at, "not YAML: %s%s%s", problem, *context ? ", " : "", context);
}

/* Gets the next event, to be deleted, and notes its line for messages. Refuses anchors, aliases and tags. */
static int next_event(reader *in, yaml_event_t *event) {
    if (!yaml_parser_parse(&in->yaml, event)) return fail_yaml(in);
    in->at.line = (int)event->start_mark.line + 1;
    const bool scalar = event->type == YAML_SCALAR_EVENT, map = event->type == YAML_MAPPING_START_EVENT;
    const void *anchor = scalar ? event->data.scalar.anchor : map ? event->data.mapping_start.anchor : NULL;
    const void *tag = scalar ? event->data.scalar.tag : map ? event->data.mapping_start.tag : NULL;
    if (event->type != YAML_ALIAS_EVENT && !anchor && !tag) return 0;
    yaml_event_delete(event);
    return recipe_fail(&in->at,
                       "anchors (&), aliases (*) and tags (!) have no place in a recipe; quote a text that begins so");
}

static bool is_null(const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

/* The path of a key in a section. */
static int join_path(const reader *in, const char *section, const yaml_event_t *event, char *out, size_t size) {
    if (event->type != YAML_SCALAR_EVENT) {
        return recipe_fail(&in->at, "%s%sa key is a %s, expected a word", section, *section ? ": " : "",
                           event->type == YAML_SEQUENCE_START_EVENT ? "list" : "section");
    }
    const char *name = (const char *)event->data.scalar.value;
    if (strlen(name) != event->data.scalar.length) return recipe_fail(&in->at, "a key contains a zero byte");
    if (!*name) return recipe_fail(&in->at, "a key is empty");
    const int n = snprintf(out, size, "%s%s%s", section, *section ? "." : "", name);
    if ((size_t)n >= size) return recipe_fail(&in->at, "%s: no such key", key_show(name).text);
    const char *dot = strchr(name, '.');
    if (!dot) return 0;
    return recipe_fail(&in->at,
                       "%s: sections are not written with dots in a file: put %s below %.*s:", key_show(name).text,
                       key_show(dot + 1).text, (int)(dot - name < 40 ? dot - name : 40), name);
}

static int read_section(reader *in, const char *section);

static int read_subsection(reader *in, const char *path) {
    int i = 0;
    while (i < in->n_met && strcmp(in->met[i].path, path) != 0) i++;
    if (i < in->n_met) return recipe_fail(&in->at, "%s is given twice, first in line %d", path, in->met[i].line);
    if (i < (int)(sizeof in->met / sizeof *in->met)) {
        snprintf(in->met[i].path, sizeof in->met[i].path, "%s", path);
        in->met[in->n_met++].line = in->at.line;
    }
    return read_section(in, path);
}

static int read_scalar(reader *in, const char *path, const yaml_event_t *event) {
    const char *text = is_null(event) ? "" : (const char *)event->data.scalar.value;
    if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
        return recipe_fail(&in->at, "%s contains a zero byte", key_show(path).text);
    }
    if (!in->scanning) return recipe_set_path(in->r, path, text, &in->at);
    const bool chooses = strcmp(path, "data.task") == 0 || strcmp(path, "model.kind") == 0;
    return chooses ? recipe_choose(in->r, path, text) : 0;
}

/* Reads the rest of a list of words as one text with commas. */
static int read_list(reader *in, const char *path) {
    char text[RECIPE_PATH] = "";
    for (;;) {
        yaml_event_t event;
        if (next_event(in, &event)) return -1;
        const bool end = event.type == YAML_SEQUENCE_END_EVENT, word = event.type == YAML_SCALAR_EVENT;
        if (word) text_join(text, sizeof text, ",", (const char *)event.data.scalar.value);
        yaml_event_delete(&event);
        if (end) break;
        if (!word) return recipe_fail(&in->at, "%s: expected a list of words", path);
    }
    return in->scanning ? 0 : recipe_set_path(in->r, path, text, &in->at);
}

static int read_value(reader *in, const char *path, const yaml_event_t *event) {
    const bool section = recipe_is_section(in->r, path), scalar = event->type == YAML_SCALAR_EVENT;
    char expected[256] = "a value";
    if (section && event->type == YAML_MAPPING_START_EVENT) return read_subsection(in, path);
    if (section && scalar && is_null(event)) return 0; /* its keys are commented out */
    if (scalar) return read_scalar(in, path, event);
    if (event->type == YAML_SEQUENCE_START_EVENT && recipe_is_list(in->r, path)) return read_list(in, path);
    const bool known = recipe_expected(in->r, path, expected, sizeof expected);
    if (!section && !known && strncmp(path, recipe_option_section, strlen(recipe_option_section)) != 0)
        return recipe_no_such_key(in->r, &in->at, path);
    return recipe_fail(&in->at, "%s is a %s, expected %s", key_show(path).text,
                       event->type == YAML_SEQUENCE_START_EVENT ? "list" : "section",
                       section ? "a section: keys with values" : expected);
}

/* Reads the rest of a mapping. Depth is limited by that of the sections. */
static int read_section(reader *in, const char *section) {
    for (;;) {
        yaml_event_t event;
        char path[256];
        if (next_event(in, &event)) return -1;
        const bool end = event.type == YAML_MAPPING_END_EVENT;
        int status = end ? 0 : join_path(in, section, &event, path, sizeof path);
        const int line = in->at.line;
        yaml_event_delete(&event);
        if (end || status) return status;
        if (next_event(in, &event)) return -1;
        in->at.line = line; /* of the key, as an empty value has none */
        status = read_value(in, path, &event);
        yaml_event_delete(&event);
        if (status) return -1;
    }
}

static int read_document(reader *in) {
    static const yaml_event_type_t expected[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT,
                                                 YAML_MAPPING_START_EVENT, YAML_DOCUMENT_END_EVENT,
                                                 YAML_STREAM_END_EVENT};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        yaml_event_t event;
        if (next_event(in, &event)) return -1;
        const yaml_event_type_t type = event.type;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT && i == 1)
            return recipe_fail(&in->at, "it is empty, expected keys with values");
        if (type == YAML_DOCUMENT_START_EVENT && i == 4)
            return recipe_fail(&in->at, "a second document begins, expected one");
        if (type != expected[i]) return recipe_fail(&in->at, "expected keys with values ('name: ...')");
        if (i == 2 && read_section(in, "")) return -1;
    }
    return 0;
}

static int read_all(reader *in) {
    if (!yaml_parser_initialize(&in->yaml)) return recipe_fail(&in->at, "out of memory");
    yaml_parser_set_input_string(&in->yaml, (const unsigned char *)(in->n ? in->text : ""), in->n);
    const int status = read_document(in);
    yaml_parser_delete(&in->yaml);
    return status;
}

int recipe_parse(recipe *r, const char *text, size_t n, const char *name) {
    recipe copy;
    reader in = {.r = &copy, .at = {.file = name}, .text = text, .n = n};
    if (n > MOST_BYTES) return recipe_fail(&in.at, "it is larger than %d bytes, expected a recipe", MOST_BYTES);
    if (n && memchr(text, 0, n)) return recipe_fail(&in.at, "it contains a zero byte, expected text in UTF-8");
    if (recipe_copy(&copy, r)) return -1;
    snprintf(copy.file, sizeof copy.file, "%s", name);
    /* Lines refer to this file from now on. */
    for (int i = 0; i < copy.n_given; i++) copy.given[i].line = copy.given[i].line > 0 ? 0 : copy.given[i].line;
    const recipe_pairs *const lists[] = {&copy.optimizer.options, &copy.optimizer.schedules, &copy.optimizer.groups};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < lists[i]->n; k++) lists[i]->at[k].line = 0;
    }
    reader scan = in;
    scan.scanning = true;
    (void)read_all(&scan); /* mistakes come up again in the second pass */
    const int failed = read_all(&in);
    recipe_free(failed ? &copy : r);
    if (!failed) *r = copy;
    return failed;
}

int recipe_load(recipe *r, const char *path) {
    const recipe_place at = {.file = path};
    struct stat st;
    const int fd = adamod__file_open(path, O_RDONLY);
    if (fd < 0) return recipe_fail(&at, "%s", strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return recipe_fail(&at, "it is a directory, expected a YAML file");
    }
    char *text = malloc(MOST_BYTES + 1);
    size_t n = 0;
    ssize_t got = 1;
    while (text && got != 0 && n <= MOST_BYTES) { /* one byte over the limit shows that the file is too large */
        got = read(fd, text + n, MOST_BYTES + 1 - n);
        if (got < 0 && errno != EINTR) break;
        if (got > 0) n += (size_t)got;
    }
    const int error = errno;
    close(fd);
    int status = -1;
    if (!text) (void)recipe_fail(&at, "out of memory");
    else if (got < 0) (void)recipe_fail(&at, "cannot read: %s", strerror(error));
    else status = recipe_parse(r, text, n, path);
    free(text);
    return status;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Whether no YAML reader takes the text for another type. */
static bool is_plain(const char *text) {
    static const char *const special[] = {"yes", "no", "on", "off", "null", "y", "n"};
    double number;
    if (key_parse_number(text, &number)) return true;
    if (!isalpha((unsigned char)*text) && *text != '/') return false;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (strcasecmp(text, special[i]) == 0) return false;
    }
    for (; *text; text++) {
        if (!isalnum((unsigned char)*text) && !strchr("_./-", *text)) return false;
    }
    return true;
}

/* Writes a text in double quotes, with escapes for characters that YAML forbids or takes for line ends. */
static void write_quoted(FILE *file, const char *text) {
    fputc('"', file);
    for (text_slice rest = text_of(text); rest.n;) {
        size_t n;
        const bool plain = adamod__is_harmless(rest.bytes, rest.n, &n);
        const unsigned code = adamod__code_point(rest.bytes, n);
        const bool odd = !plain || code == 0xfeff || code == 0xfffe || code == 0xffff;
        if (odd) fprintf(file, "\\u%04x", code);
        else fprintf(file, "%s%.*s", code == '"' || code == '\\' ? "\\" : "", (int)n, rest.bytes);
        rest.bytes += n;
        rest.n -= n;
    }
    fputc('"', file);
}

static void write_scalar(FILE *file, const char *text) {
    if (is_plain(text)) fputs(text, file);
    else write_quoted(file, text);
    fputc('\n', file);
}

/* Writes the pairs whose keys begin with prefix, without it. */
static void write_pairs(FILE *file, const char *indent, const recipe_pairs *list, const char *prefix) {
    const size_t n = strlen(prefix);
    for (int i = 0; i < list->n; i++) {
        if (strncmp(list->at[i].key, prefix, n) != 0) continue;
        fprintf(file, "%s%s: ", indent, list->at[i].key + n);
        write_scalar(file, list->at[i].value);
    }
}

static void write_groups(FILE *file, const recipe *r) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    const int n = recipe_groups(r, groups);
    if (n) fputs("  groups:\n", file);
    for (int i = 0; i < n; i++) {
        char prefix[sizeof groups[i].name + 1];
        snprintf(prefix, sizeof prefix, "%s.", groups[i].name);
        fprintf(file, "    %s:\n", groups[i].name);
        write_pairs(file, "      ", &r->optimizer.groups, prefix);
    }
}

int recipe_write(const recipe *r, FILE *file) {
    const char *section = "";
    recipe_key keys[RECIPE_MAX_KEYS];
    const int n = recipe_list_keys(r, keys);
    for (int i = 0; i < n; i++) {
        const char *path = keys[i].k->path, *dot = strchr(path, '.');
        const size_t length = dot ? (size_t)(dot - path) : 0;
        char buffer[32];
        if (strcmp(path, r->train.epochs > 0 ? "train.steps" : "train.epochs") == 0) continue; /* not in effect */
        if (dot && strncmp(section, path, length + 1) != 0) fprintf(file, "%.*s:\n", (int)length, path);
        section = path;
        fprintf(file, "%s%s: ", dot ? "  " : "", recipe_leaf(path));
        write_scalar(file, key_text(keys[i].k, keys[i].settings, buffer));
        if (strcmp(path, "optimizer.rule") != 0) continue;
        write_pairs(file, "  ", &r->optimizer.options, "");
        if (r->optimizer.schedules.n) fputs("  schedule:\n", file);
        write_pairs(file, "    ", &r->optimizer.schedules, "");
        write_groups(file, r);
    }
    return fflush(file) || ferror(file) ? -1 : 0;
}
