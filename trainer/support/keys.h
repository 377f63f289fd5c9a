/* keys.h - tables of recipe keys: the fields of a struct by dotted name ("train.steps"), with type, bounds, default and
 * help. Tasks and models own tables; recipes read, write, check and explain the keys of all tables alike.
 *
 *     typedef struct lstm_settings {
 *         struct { int layers; double dropout; } model;
 *     } lstm_settings;
 *     static const key_spec keys[] = {
 *         WHOLE_KEY(lstm_settings, model.layers, "3", 1, 100, STRICT, "one upon the other"),
 *         REAL_KEY(lstm_settings, model.dropout, "0.4", 0, 1, true, STRICT, "of the output"),
 *     };
 *     const key_table lstm_keys = {keys, sizeof keys / sizeof *keys, sizeof(lstm_settings)}; */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum key_kind {
    KEY_TEXT,
    KEY_PATH,
    KEY_CHOICE,
    KEY_ENUM,
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
    size_t offset, size;  /* of the field: char[], int, int64_t, uint64_t, double, bool, an enum or key_span */
    const char *standard; /* the default, as text */
    double low, high;     /* bounds of numbers, none of which needs more than 53 bits */
    const char *help;
    const char *choices; /* separated by spaces */
    key_kind kind;
    bool below;           /* values must be below high, not equal */
    bool loose;           /* may differ when a run is continued */
    const char *expected; /* short text in place of the list of choices; NULL: the list */
} key_spec;

/* A duration in updates ("100") or epochs ("1 epoch", "0.5 epochs"). At least one of them is 0. */
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
/* Stored as an enum whose constants 0, 1, ... stand for the choices in their order. */
#define ENUM_KEY(type, field, standard, choices, loose, help)                                                          \
    { #field, KEY_AT(type, field), standard, 0, 0, help, choices, KEY_ENUM, false, loose, NULL }
#define WHOLE_KEY(type, field, standard, low, high, loose, help)                                                       \
    { #field, KEY_AT(type, field), standard, low, high, help, NULL, KEY_WHOLE, false, loose, NULL }
#define REAL_KEY(type, field, standard, low, high, below, loose, help)                                                 \
    { #field, KEY_AT(type, field), standard, low, high, help, NULL, KEY_REAL, below, loose, NULL }
#define SWITCH_KEY(type, field, standard, loose, help)                                                                 \
    { #field, KEY_AT(type, field), standard, 0, 0, help, NULL, KEY_SWITCH, false, loose, NULL }
#define SPAN_KEY(type, field, standard, loose, help)                                                                   \
    { #field, KEY_AT(type, field), standard, 0, KEY_MOST_UPDATES, help, NULL, KEY_SPAN, false, loose, NULL }
/* A list of choices, possibly empty: "biases,norms", or [biases, norms] in YAML. */
#define LIST_KEY(type, field, choices, loose, help)                                                                    \
    { #field, KEY_AT(type, field), "", 0, 0, help, choices, KEY_LIST, false, loose, NULL }
/* A list of numbers: "3,4,6,3", or [3, 4, 6, 3] in YAML. Its owner checks them. */
#define NUMBERS_KEY(type, field, standard, loose, help)                                                                \
    { #field, KEY_AT(type, field), standard, 0, 0, help, NULL, KEY_NUMBERS, false, loose, NULL }
/* Patterns of names: "stem.*,*.bias", or [stem.*, '*.bias'] in YAML. */
#define PATTERNS_KEY(type, field, loose, help)                                                                         \
    { #field, KEY_AT(type, field), "", 0, 0, help, NULL, KEY_PATTERNS, false, loose, NULL }

#define KEY_MOST_UPDATES 1e15
#define KEY_MOST_EPOCHS 1e6
#define KEY_MOST_INT 2147483647.0
#define KEY_MOST_SEED 9007199254740991.0

/* Sets a field from text, or fails with "NAME is 'x', expected a whole number from 1 to 9". A path must be absolute
 * already. Unused bytes of a text field are cleared. */
int key_set(const key_spec *k, const char *name, const char *text, void *settings);

/* Whether a list ("biases,norms") has this choice. */
bool key_lists(const char *list, const char *choice);

/* Whether one of the patterns, with * and ? as in a shell, matches a name. */
bool key_matches(const char *patterns, const char *name);
/* Copies pattern number index to out. False if there are fewer. */
bool key_pattern(const char *patterns, int index, char out[128]);

/* Formats a field as text. Returns out, or the field itself if it is text. */
const char *key_text(const key_spec *k, const void *settings, char out[32]);

/* Describes the valid values: "a whole number from 1 to 1000". Returns out. */
const char *key_expected(const key_spec *k, char *out, size_t size);

/* Fails unless text is UTF-8 without control characters and fits into room bytes. */
int key_check_text(const char *name, const char *text, size_t room);

/* Reads a decimal number with an optional fraction and exponent. False for anything else, such as "0x1", "inf" or " 1". */
bool key_parse_number(const char *text, double *out);

/* NULL: there is none. */
const key_spec *key_find(const key_table *table, const char *path);

void key_defaults(const key_table *table, void *settings);

/* The beginning of a text from users or files, for messages. */
typedef struct key_shown {
    char text[48];
} key_shown;
key_shown key_show(const char *text);
