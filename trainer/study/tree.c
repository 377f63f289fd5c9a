#include "study/tree.h"

#include "core/error.h"
#include "support/keys.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MOST_DEPTH = 12 };

typedef struct reader {
    yaml_parser_t yaml;
    const char *name;
} reader;

const char *tree_kind_name(tree_kind kind) {
    static const char *const names[] = {"a word", "a list", "a section"};
    return names[kind];
}

static int fail_at(const reader *in, size_t line, const char *what) {
    return adamod__refuse("%s:%d: %s", in->name, (int)line + 1, what);
}

/* Gets the next event, to be deleted. */
static int next_event(reader *in, yaml_event_t *event) {
    if (!yaml_parser_parse(&in->yaml, event)) {
        const yaml_parser_t *p = &in->yaml;
        if (p->error == YAML_MEMORY_ERROR) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", in->name);
        return adamod__refuse("%s:%d: not YAML: %s", in->name, (int)p->problem_mark.line + 1,
                              p->problem ? p->problem : "unknown error");
    }
    const bool scalar = event->type == YAML_SCALAR_EVENT, map = event->type == YAML_MAPPING_START_EVENT;
    const bool list = event->type == YAML_SEQUENCE_START_EVENT;
    const void *anchor = scalar ? event->data.scalar.anchor
                         : map  ? event->data.mapping_start.anchor
                         : list ? event->data.sequence_start.anchor
                                : NULL;
    const void *tag = scalar ? event->data.scalar.tag
                      : map  ? event->data.mapping_start.tag
                      : list ? event->data.sequence_start.tag
                             : NULL;
    if (event->type != YAML_ALIAS_EVENT && !anchor && !tag) return 0;
    const size_t line = event->start_mark.line;
    yaml_event_delete(event);
    return fail_at(in, line, "anchors (&), aliases (*) and tags (!) have no place here; quote a text that begins so");
}

/* Copies the text of a word. */
static int copy_word(const reader *in, const yaml_event_t *event, char **out) {
    const char *text = (const char *)event->data.scalar.value;
    const size_t line = event->start_mark.line;
    if (strlen(text) != event->data.scalar.length) return fail_at(in, line, "a text contains a zero byte");
    if (key_check_text("a text", text, 4096)) return adamod__context("%s:%d: ", in->name, (int)line + 1);
    *out = strdup(text);
    return *out ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", in->name);
}

static int read_node(reader *in, const yaml_event_t *event, tree *out, int depth);

static tree *add_child(tree *to) {
    tree *grown = adamod__resize(to->child, (size_t)to->n + 1, sizeof *grown);
    if (!grown) return NULL;
    to->child = grown;
    memset(&grown[to->n], 0, sizeof *grown);
    return &grown[to->n++];
}

static int check_new(const reader *in, const tree *section, int line) {
    const tree *last = &section->child[section->n - 1];
    if (!*last->key) return fail_at(in, (size_t)line - 1, "a key is empty");
    for (const tree *t = section->child; t < last; t++) {
        if (strcmp(t->key, last->key) != 0) continue;
        return adamod__refuse("%s:%d: %s is given twice, first in line %d", in->name, line, key_show(t->key).text,
                              t->line);
    }
    return 0;
}

/* Reads the key of a child, then the event of its value. */
static int read_key(reader *in, tree *section, tree *child, yaml_event_t *event) {
    const int line = (int)event->start_mark.line + 1;
    const bool word = event->type == YAML_SCALAR_EVENT;
    int status = word ? copy_word(in, event, &child->key) : fail_at(in, (size_t)line - 1, "expected a word as key");
    yaml_event_delete(event);
    if (!status) status = check_new(in, section, line);
    return status ? status : next_event(in, event);
}

static int read_children(reader *in, tree *out, int depth) {
    for (;;) {
        yaml_event_t event;
        if (next_event(in, &event)) return -1;
        if (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT)
            return yaml_event_delete(&event), 0;
        const int line = (int)event.start_mark.line + 1;
        tree *child = add_child(out);
        if (!child) {
            yaml_event_delete(&event);
            return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", in->name);
        }
        if (out->kind == TREE_SECTION && read_key(in, out, child, &event)) return -1;
        const int status = read_node(in, &event, child, depth + 1);
        yaml_event_delete(&event);
        if (status) return status;
        child->line = line; /* of the key, as an empty value has none */
    }
}

static int read_node(reader *in, const yaml_event_t *event, tree *out, int depth) {
    out->line = (int)event->start_mark.line + 1;
    if (event->type == YAML_SCALAR_EVENT) return copy_word(in, event, &out->text);
    if (depth == MOST_DEPTH) return fail_at(in, event->start_mark.line, "too deep");
    out->kind = event->type == YAML_SEQUENCE_START_EVENT ? TREE_LIST : TREE_SECTION;
    return read_children(in, out, depth);
}

static int expect(reader *in, yaml_event_type_t type) {
    yaml_event_t event;
    if (next_event(in, &event)) return -1;
    const bool right = event.type == type;
    const size_t line = event.start_mark.line;
    yaml_event_delete(&event);
    return right ? 0 : fail_at(in, line, "expected one document");
}

static int read_document(reader *in, tree *out) {
    yaml_event_t event;
    if (expect(in, YAML_STREAM_START_EVENT) || expect(in, YAML_DOCUMENT_START_EVENT) || next_event(in, &event))
        return -1;
    const bool section = event.type == YAML_MAPPING_START_EVENT;
    const int status = section ? read_node(in, &event, out, 0)
                               : fail_at(in, event.start_mark.line, "expected keys with values ('title: ...')");
    yaml_event_delete(&event);
    return status || expect(in, YAML_DOCUMENT_END_EVENT) || expect(in, YAML_STREAM_END_EVENT) ? -1 : 0;
}

int tree_parse(tree *out, const char *text, size_t n, const char *name) {
    reader in = {.name = name};
    *out = (tree){0};
    if (n && memchr(text, 0, n)) return adamod__refuse("%s: it contains a zero byte, expected text in UTF-8", name);
    if (!yaml_parser_initialize(&in.yaml)) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
    yaml_parser_set_input_string(&in.yaml, (const unsigned char *)(n ? text : ""), n);
    const int status = read_document(&in, out);
    yaml_parser_delete(&in.yaml);
    if (status) tree_free(out);
    return status;
}

void tree_free(tree *t) {
    for (int i = 0; i < t->n; i++) tree_free(&t->child[i]);
    free(t->child);
    free(t->key);
    free(t->text);
    *t = (tree){0};
}
