/* keys.h - tables of keys: the fields of a struct by dotted name ("train.steps"), with type, bounds, default and help. A
 * task or a model owns a table; recipes read, write, check and explain the keys of all tables alike.
 *
 *     typedef struct lstm_settings {
 *         struct { int layers; double dropout; } model;
 *     } lstm_settings;
 *     static const key_spec keys[] = {
 *         WHOLE_KEY(lstm_settings, model.layers, "3", 1, 100, STRICT, "one upon the other"),
 *         REAL_KEY(lstm_settings, model.dropout, "0.4", 0, 1, true, STRICT, "of the output"),
 *     };
 *     const key_table lstm_keys = {keys, sizeof keys / sizeof *keys, sizeof(lstm_settings)};
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_KEYS_H
#define ADAMOD_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum key_kind {
    KEY_TEXT,
    KEY_PATH,
    KEY_CHOICE,
    KEY_WHOLE,
    KEY_REAL,
    KEY_SWITCH,
    KEY_SPAN,
    KEY_LIST,
    KEY_NUMBERS,
    KEY_PATTERNS
} key_kind;

typedef struct key_spec {
    const char *path;
    size_t offset, size;  /* of the field: char[], int, int64_t, uint64_t, double, bool or key_span */
    const char *standard; /* the default, as text */
    double low, high;     /* of numbers; none needs more than the 53 bits of a double */
    const char *help;
    const char *choices; /* separated by spaces */
    key_kind kind;
    bool below;           /* high itself is too much */
    bool loose;           /* another value may continue a run */
    const char *expected; /* of many choices, in fewer words; NULL: all are named */
} key_spec;

/* How long or how often, in updates ("100") or epochs ("1 epoch", "0.5 epochs"). One of them, or both, is 0. */
typedef struct key_span {
    int64_t updates;
    double epochs;
} key_span;

typedef struct key_table {
    const key_spec *keys;
    int n;
    size_t size; /* of the struct */
} key_table;

#define STRICT false
#define LOOSE true
#define KEY_AT(type, field) offsetof(type, field), sizeof(((type *)0)->field)
#define TEXT_KEY(type, field, standard, loose, help)                                                                   \
    { #field, KEY_AT(type, field), standard, 0, 0, help, NULL, KEY_TEXT, false, loose, NULL }
#define PATH_KEY(type, field, loose, help)                                                                             \
    { #field, KEY_AT(type, field), "", 0, 0, help, NULL, KEY_PATH, false, loose, NULL }
#define CHOICE_KEY(type, field, standard, choices, loose, help)                                                        \
    { #field, KEY_AT(type, field), standard, 0, 0, help, choices, KEY_CHOICE, false, loose, NULL }
#define WHOLE_KEY(type, field, standard, low, high, loose, help)                                                       \
    { #field, KEY_AT(type, field), standard, low, high, help, NULL, KEY_WHOLE, false, loose, NULL }
#define REAL_KEY(type, field, standard, low, high, below, loose, help)                                                 \
    { #field, KEY_AT(type, field), standard, low, high, help, NULL, KEY_REAL, below, loose, NULL }
#define SWITCH_KEY(type, field, standard, loose, help)                                                                 \
    { #field, KEY_AT(type, field), standard, 0, 0, help, NULL, KEY_SWITCH, false, loose, NULL }
#define SPAN_KEY(type, field, standard, loose, help)                                                                   \
    { #field, KEY_AT(type, field), standard, 0, KEY_MOST_UPDATES, help, NULL, KEY_SPAN, false, loose, NULL }
/* Some of the choices, or none, in any order: "biases,norms", in YAML [biases, norms] too. */
#define LIST_KEY(type, field, choices, loose, help)                                                                    \
    { #field, KEY_AT(type, field), "", 0, 0, help, choices, KEY_LIST, false, loose, NULL }
/* A text of numbers, "3,4,6,3", in YAML [3, 4, 6, 3] too; how many and which, its owner checks. */
#define NUMBERS_KEY(type, field, standard, loose, help)                                                                \
    { #field, KEY_AT(type, field), standard, 0, 0, help, NULL, KEY_NUMBERS, false, loose, NULL }

/* Patterns of names, "stem.*,*.bias", in YAML [stem.*, '*.bias'] too. */
#define PATTERNS_KEY(type, field, loose, help)                                                                         \
    { #field, KEY_AT(type, field), "", 0, 0, help, NULL, KEY_PATTERNS, false, loose, NULL }

#define KEY_MOST_UPDATES 1e15
#define KEY_MOST_EPOCHS 1e6
#define KEY_MOST_INT 2147483647.0
#define KEY_MOST_SEED 9007199254740991.0

/* Sets a field from text. It fails with "NAME is 'x', expected a whole number from 1 to 9". name stands for the key in
 * messages. A path must be absolute already. A text keeps no bytes of what was there before. */
int key_set(const key_spec *k, const char *name, const char *text, void *settings);

/* Whether a list names this choice. */
bool key_lists(const char *list, const char *choice);

/* Whether one of the patterns matches a name: "stem.*,*.bias", where * is any text and ? any character, as in a shell. */
bool key_matches(const char *patterns, const char *name);
/* Pattern number index, in out; false: there are not so many. */
bool key_pattern(const char *patterns, int index, char out[128]);

/* The way back. Returns out, or the text in the settings itself. */
const char *key_text(const key_spec *k, const void *settings, char out[32]);

/* "a whole number from 1 to 1000", "words or characters". Returns out. */
const char *key_expected(const key_spec *k, char *out, size_t size);

/* UTF-8 without control characters that fits into room bytes. */
int key_check_text(const char *name, const char *text, size_t room);

/* Decimal, with a fraction and an exponent if wanted: no hexadecimal, no infinity, nothing before or after. */
bool key_parse_number(const char *text, double *out);

/* The key of this path, or NULL. */
const key_spec *key_find(const key_table *table, const char *path);

void key_defaults(const key_table *table, void *settings);

/* The beginning of a text that came from outside, for messages. */
typedef struct key_shown {
    char text[48];
} key_shown;
key_shown key_show(const char *text);

#endif
