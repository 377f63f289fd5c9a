/* json.c - see json.h.
 *
 * SPDX-License-Identifier: MIT
 */
#include "support/json.h"

#include "core/error.h"
#include "support/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void json_free(json *j) {
    free(j->text);
    *j = (json){0};
}

static void add(json *j, const char *text, size_t n) {
    if (j->failed) return;
    if (j->room - j->n <= n) {
        const size_t room = 2 * (j->n + n) + 128;
        char *grown = realloc(j->text, room);
        if (!grown) {
            j->failed = true;
            return;
        }
        j->text = grown;
        j->room = room;
    }
    memcpy(j->text + j->n, text, n);
    j->n += n;
    j->text[j->n] = '\0';
}

/* A value follows another unless it is the first of its object or array, or belongs to a key. */
static void begin_value(json *j) {
    if (j->n && !strchr("{[:\n", j->text[j->n - 1])) add(j, ",", 1);
}

static void add_value(json *j, const char *text) {
    begin_value(j);
    add(j, text, strlen(text));
}

void json_open(json *j, char bracket) {
    begin_value(j);
    add(j, &bracket, 1);
}

void json_close(json *j, char bracket) { add(j, &bracket, 1); }

static void add_quoted(json *j, const char *text) {
    text_slice rest = text_of(text);
    add(j, "\"", 1);
    while (rest.n) {
        const size_t n = text_code_point(rest);
        const unsigned char c = (unsigned char)*rest.bytes;
        char escape[8];
        size_t length;
        if (adamod__is_harmless(rest.bytes, rest.n, &length) && c != '"' && c != '\\') {
            add(j, rest.bytes, n);
        } else {
            if (!n) snprintf(escape, sizeof escape, "\\ufffd");
            else if (c == '"' || c == '\\') snprintf(escape, sizeof escape, "\\%c", c);
            else snprintf(escape, sizeof escape, "\\u%04x", adamod__code_point(rest.bytes, n));
            add(j, escape, strlen(escape));
        }
        rest.bytes += n ? n : 1;
        rest.n -= n ? n : 1;
    }
    add(j, "\"", 1);
}

void json_key(json *j, const char *key) {
    begin_value(j);
    add_quoted(j, key);
    add(j, ":", 1);
}

void json_string(json *j, const char *text) {
    if (!text) {
        add_value(j, "null");
        return;
    }
    begin_value(j);
    add_quoted(j, text);
}

void json_pair(json *j, const char *key, const char *text) {
    json_key(j, key);
    json_string(j, text);
}

void json_integer(json *j, int64_t x) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, x);
    add_value(j, text);
}

void json_boolean(json *j, bool x) { add_value(j, x ? "true" : "false"); }

void json_number(json *j, double x) {
    char text[32];
    add_value(j, isfinite(x) ? json_shortest(x, text) : "null");
}

void json_end_line(json *j) { add(j, "\n", 1); }

const char *json_shortest(double x, char out[32]) {
    if (x == floor(x) && fabs(x) < 1e15) { /* 9000, where %g would have 9e+03 */
        snprintf(out, 32, "%.0f", x);
        return out;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    return out;
}
