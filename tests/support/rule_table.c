/* Rows of the table of rules, and the reference's options by name: see rule_table.h. */
#include "rule_table.h"
#include "values.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const rule_row *rule_row_of(const char *rule) {
    for (int i = 0; i < rule_table_count; i++)
        if (!strcmp(rule_table[i].name, rule)) return &rule_table[i];
    return NULL;
}

bool rule_options(row_list list, int i, option_set *out) {
    for (int r = 0; r < rule_table_count; r++) {
        const char *const *options = rule_table[r].options[list];
        for (int k = 0; k < ROW_OPTIONS && options[k]; k++) {
            if (i-- > 0) continue;
            *out = (option_set){rule_table[r].name, options[k]};
            return true;
        }
    }
    return false;
}

/* ---- the reference's options ---- */

static const struct {
    const char *name;
    size_t at;
    bool whole;
} fields[] = {
#define FIELD(name) {#name, offsetof(ref_options, name), false},
#define WHOLE_FIELD(name) {#name, offsetof(ref_options, name), true},
    REF_OPTIONS(FIELD, WHOLE_FIELD)};
enum { FIELDS = sizeof fields / sizeof *fields };

const char *reference_option(int i) { return i < FIELDS ? fields[i].name : NULL; }

double reference_value(const ref_options *o, int i) {
    const char *at = (const char *)o + fields[i].at;
    return fields[i].whole ? *(const int *)at : *(const double *)at;
}

bool ref_set(ref_options *o, const char *name, double value) {
    if (!strcmp(name, "spatial")) return o->spatial_max = value == 0, true;
    if (!strcmp(name, "lr")) o->base_lr = value;
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(fields[i].name, name) != 0) continue;
        if (fields[i].whole) *(int *)((char *)o + fields[i].at) = (int)value;
        else *(double *)((char *)o + fields[i].at) = value;
        return true;
    }
    return false;
}

/* Words of choices, by their numbers in the library. */
static double number_of(const char *name, const char *text) {
    static const char *const words[][4] = {{"paper", "published", "keras", "adamd"},
                                           {"none", "l2", "decoupled", "independent"},
                                           {"max", "", "", ""},
                                           {"", "momental", "", ""},
                                           {"original", "match_rms_adamw", "spectral_unclamped", ""}};
    if (!strcmp(name, "spatial")) return !strcmp(text, "none");
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 4; j++) {
            if (!strcmp(words[i][j], text)) return j;
        }
    }
    return strtod(text, NULL);
}

bool ref_set_text(ref_options *o, const char *name, const char *text) {
    return ref_set(o, name, number_of(name, text));
}

void ref_defaults(const char *rule, ref_options *o) {
    *o = (ref_options){.clip_value = INFINITY, .grad_scale = 1, .decay = REF_DECAY_DECOUPLED};
    char copy[256], *rest = copy, *name, *value;
    snprintf(copy, sizeof copy, "%s", rule_row_of(rule)->defaults);
    while (next_option(&rest, &name, &value)) {
        if (!ref_set_text(o, name, value)) abort();
    }
}
