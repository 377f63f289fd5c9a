#include "support/keys.h"

#include "core/error.h"
#include "support/json.h"
#include "support/text.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

key_shown key_show(const char *text) {
    key_shown out;
    size_t end = sizeof out.text - 4;
    if ((size_t)snprintf(out.text, sizeof out.text, "%s", text) < sizeof out.text) return out;
    while (end && ((unsigned char)out.text[end] & 0xc0) == 0x80) end--; /* not within a character */
    memcpy(out.text + end, "...", 4);
    return out;
}

/* ---- what is expected ---- */

static void list_choices(const char *choices, char *out, size_t size) {
    const char *last = strrchr(choices, ' ');
    size_t used = 0;
    for (const char *c = choices; *c && used + 5 < size; c++) {
        if (*c != ' ') out[used++] = *c;
        else used += (size_t)snprintf(out + used, size - used, c == last ? " or " : ", ");
    }
    out[used] = '\0';
}

const char *key_expected(const key_spec *k, char *out, size_t size) {
    size_t n;
    switch (k->kind) {
        case KEY_TEXT: snprintf(out, size, "a text of at most %zu bytes", k->size - 1); break;
        case KEY_PATH: snprintf(out, size, "a path"); break;
        case KEY_NUMBERS: snprintf(out, size, "numbers with commas between them"); break;
        case KEY_PATTERNS: snprintf(out, size, "names with commas between them, * for any text"); break;
        case KEY_WHOLE: snprintf(out, size, "a whole number from %.15g to %.16g", k->low, k->high); break;
        case KEY_REAL:
            snprintf(out, size, k->below ? "a number from %g to less than %g" : "a number from %g to %g", k->low,
                     k->high);
            break;
        case KEY_SWITCH: snprintf(out, size, "true or false"); break;
        case KEY_LIST:
            n = (size_t)snprintf(out, size, "a list of ");
            if (n < size) list_choices(k->choices, out + n, size - n);
            n = strlen(out);
            if (n < size) snprintf(out + n, size - n, ", with commas between them");
            break;
        case KEY_SPAN: snprintf(out, size, "updates ('100', at most %.16g) or epochs ('1 epoch')", k->high); break;
        case KEY_CHOICE:
        case KEY_ENUM:
            if (k->expected) snprintf(out, size, "%s", k->expected);
            else list_choices(k->choices, out, size);
            break;
    }
    return out;
}

static int wrong_value(const key_spec *k, const char *name, const char *text) {
    char expected[256];
    key_expected(k, expected, sizeof expected);
    if (!*text) return adamod__refuse("%s is empty, expected %s", name, expected);
    return adamod__refuse("%s is '%s', expected %s", name, key_show(text).text, expected);
}

/* ---- from text ---- */

bool key_parse_number(const char *text, double *out) {
    const char *c = text + (*text == '-' || *text == '+');
    size_t digits = strspn(c, "0123456789");
    c += digits;
    if (*c == '.') {
        const size_t fraction = strspn(++c, "0123456789");
        c += fraction;
        digits += fraction;
    }
    if (!digits) return false;
    if (*c == 'e' || *c == 'E') {
        c++;
        c += *c == '-' || *c == '+';
        const size_t exponent = strspn(c, "0123456789");
        if (!exponent) return false;
        c += exponent;
    }
    *out = strtod(text, NULL);
    return !*c;
}

/* Takes the next item of a list from its front. */
static bool next_item(const char **list, const char *separator, text_slice *item) {
    if (!**list) return false;
    *item = (text_slice){*list, strcspn(*list, separator)};
    *list += item->n + (item->bytes[item->n] != '\0');
    return true;
}

/* The place of a text in a list; -1: it is not there. */
static int find_item(const char *list, const char *separator, text_slice wanted) {
    int i = 0;
    for (text_slice item; next_item(&list, separator, &item); i++) {
        if (text_equal(item, wanted)) return i;
    }
    return -1;
}

static const char *choice_at(const char *choices, int i, char out[32]) {
    for (; i > 0; i--) choices += strcspn(choices, " ") + 1;
    snprintf(out, 32, "%.*s", (int)strcspn(choices, " "), choices);
    return out;
}

bool key_lists(const char *list, const char *choice) { return find_item(list, ",", text_of(choice)) >= 0; }

int key_check_text(const char *name, const char *text, size_t room) {
    if (strlen(text) >= room) return adamod__refuse("%s is longer than %zu bytes", key_show(name).text, room - 1);
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest);
        if (!n) return adamod__refuse("%s is not UTF-8", key_show(name).text);
        if (n == 1 && iscntrl((unsigned char)*rest.bytes)) {
            return adamod__refuse("%s contains a control character or a line break", key_show(name).text);
        }
        rest.bytes += n;
        rest.n -= n;
    }
    return 0;
}

static int set_text(const key_spec *k, const char *name, const char *text, char *field) {
    if (k->kind == KEY_CHOICE && find_item(k->choices, " ", text_of(text)) < 0) return wrong_value(k, name, text);
    if (key_check_text(name, text, k->size)) return -1;
    memset(field, 0, k->size); /* so that equal settings have equal bytes */
    memcpy(field, text, strlen(text));
    return 0;
}

static int set_enum(const key_spec *k, const char *name, const char *text, char *field) {
    const int i = find_item(k->choices, " ", text_of(text));
    if (i < 0) return wrong_value(k, name, text);
    memcpy(field, &i, sizeof i);
    return 0;
}

static int set_number(const key_spec *k, const char *name, const char *text, char *field) {
    double x;
    if (!key_parse_number(text, &x) || !(x >= k->low && (k->below ? x < k->high : x <= k->high))) {
        return wrong_value(k, name, text);
    }
    if (k->kind == KEY_REAL) {
        memcpy(field, &x, sizeof x);
        return 0;
    }
    const int64_t whole = (int64_t)x;
    if ((double)whole != x) return wrong_value(k, name, text);
    if (k->size == sizeof(int)) memcpy(field, &(int){(int)whole}, sizeof(int));
    else memcpy(field, &whole, sizeof whole);
    return 0;
}

bool key_pattern(const char *patterns, int index, char out[128]) {
    for (text_slice item; next_item(&patterns, ",", &item);) {
        snprintf(out, 128, "%.*s", (int)item.n, item.bytes);
        if (index-- == 0) return true;
    }
    return false;
}

bool key_matches(const char *patterns, const char *name) {
    char pattern[128];
    for (int i = 0; key_pattern(patterns, i, pattern); i++) {
        if (fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}

/* Sorts the list as the choices are, so that equal lists are equal texts. */
static int set_list(const key_spec *k, const char *name, const char *text, char *field) {
    char given[128] = "", sorted[128] = "";
    size_t used = 0, n = 0;
    for (const char *c = text; *c && used + 1 < sizeof given; c++) {
        if (*c != ' ') given[used++] = *c;
    }
    const char *choices = k->choices;
    for (text_slice c; next_item(&choices, " ", &c);) {
        if (find_item(given, ",", c) < 0) continue;
        n += (size_t)snprintf(sorted + n, sizeof sorted - n, "%s%.*s", n ? "," : "", (int)c.n, c.bytes);
    }
    if (n != used || used >= k->size) return wrong_value(k, name, text); /* it has other words, or one twice */
    memset(field, 0, k->size);
    memcpy(field, sorted, n);
    return 0;
}

/* Removes spaces around commas: "3, 4" becomes "3,4". */
static int set_separated(const key_spec *k, const char *name, const char *text, char *field) {
    char *plain = strdup(text);
    size_t n = 0;
    if (!plain) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (const char *c = text; *c; c++) {
        const char after = c[strspn(c, " ")];
        if (*c != ' ' || (n > 0 && plain[n - 1] != ',' && after != ',' && after)) plain[n++] = *c;
    }
    plain[n] = '\0';
    const int failed = set_text(k, name, plain, field);
    free(plain);
    return failed;
}

/* "100", "1 epoch", "0.5epochs" */
static int set_span(const key_spec *k, const char *name, const char *text, char *field) {
    char number[40];
    key_span span = {0};
    double x;
    const char *unit = strstr(text, "epoch");
    size_t n = unit ? (size_t)(unit - text) : strlen(text);
    const bool known = !unit || strcmp(unit, "epoch") == 0 || strcmp(unit, "epochs") == 0;
    while (unit && n && text[n - 1] == ' ') n--;
    snprintf(number, sizeof number, "%.*s", (int)(n < sizeof number ? n : 0), text);
    if (!known || !key_parse_number(number, &x) || !(x >= k->low && x <= (unit ? KEY_MOST_EPOCHS : k->high)) ||
        (!unit && x != (double)(int64_t)x)) {
        return wrong_value(k, name, text);
    }
    if (unit) span.epochs = x;
    else span.updates = (int64_t)x;
    memcpy(field, &span, sizeof span);
    return 0;
}

int key_set(const key_spec *k, const char *name, const char *text, void *settings) {
    char *field = (char *)settings + k->offset;
    if (k->kind == KEY_WHOLE || k->kind == KEY_REAL) return set_number(k, name, text, field);
    if (k->kind == KEY_ENUM) return set_enum(k, name, text, field);
    if (k->kind == KEY_LIST) return set_list(k, name, text, field);
    if (k->kind == KEY_NUMBERS || k->kind == KEY_PATTERNS) return set_separated(k, name, text, field);
    if (k->kind == KEY_SPAN) return set_span(k, name, text, field);
    if (k->kind != KEY_SWITCH) return set_text(k, name, text, field);
    const bool on = strcmp(text, "true") == 0;
    if (!on && strcmp(text, "false") != 0) return wrong_value(k, name, text);
    memcpy(field, &on, sizeof on);
    return 0;
}

/* ---- to text ---- */

const char *key_text(const key_spec *k, const void *settings, char out[32]) {
    const char *field = (const char *)settings + k->offset;
    double x;
    int64_t whole;
    int narrow;
    key_span span;
    switch (k->kind) {
        case KEY_TEXT:
        case KEY_PATH:
        case KEY_LIST:
        case KEY_NUMBERS:
        case KEY_PATTERNS:
        case KEY_CHOICE: return field;
        case KEY_SWITCH: return *(const bool *)field ? "true" : "false";
        case KEY_REAL: memcpy(&x, field, sizeof x); return json_shortest(x, out);
        case KEY_ENUM: memcpy(&narrow, field, sizeof narrow); return choice_at(k->choices, narrow, out);
        case KEY_WHOLE: break;
        case KEY_SPAN:
            memcpy(&span, field, sizeof span);
            if (!(span.epochs > 0)) snprintf(out, 32, "%lld", (long long)span.updates);
            else snprintf(out, 32, "%.15g %s", span.epochs, span.epochs > 1 ? "epochs" : "epoch");
            return out;
    }
    memcpy(&narrow, field, sizeof narrow);
    if (k->size == sizeof narrow) whole = narrow;
    else memcpy(&whole, field, sizeof whole);
    snprintf(out, 32, "%lld", (long long)whole);
    return out;
}

/* ---- tables ---- */

const key_spec *key_find(const key_table *table, const char *path) {
    for (int i = 0; i < table->n; i++) {
        if (strcmp(table->keys[i].path, path) == 0) return &table->keys[i];
    }
    return NULL;
}

void key_defaults(const key_table *table, void *settings) {
    for (int i = 0; i < table->n; i++) {
        const key_spec *k = &table->keys[i];
        (void)key_set(k, k->path, k->standard, settings);
    }
}
