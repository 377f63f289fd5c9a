/* tree.h - a YAML file in memory: words, lists and sections, each with its line. */
#pragma once

#include <stddef.h>

typedef enum tree_kind { TREE_WORD, TREE_LIST, TREE_SECTION } tree_kind;

typedef struct tree {
    char *key;  /* in a section; else NULL */
    char *text; /* of a word; "" if it is empty */
    tree_kind kind;
    int line;
    struct tree *child; /* of a list or a section */
    int n;
} tree;

/* Reads a section. name stands for the file in messages, which begin with "NAME:LINE: ". Refuses anchors, aliases, tags, and
 * a key that is given twice. After a failure there is nothing to free. */
int tree_parse(tree *out, const char *text, size_t n, const char *name);
void tree_free(tree *t);

/* "a list"; for messages. */
const char *tree_kind_name(tree_kind kind);
