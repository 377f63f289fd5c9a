#include "support/json.h"

#include "core/buffer.h"
#include "core/error.h"
#include "core/number.h"
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
    adamod__buffer out = {j->text, j->n, j->room, j->failed};
    adamod__buffer_add(&out, text, n);
    *j = (json){out.text, out.n, out.room, out.failed, j->spaced};
}

/* A value follows a comma unless it is the first of its object or array, or belongs to a key. */
static void begin_value(json *j) {
    if (j->n && !strchr("{[: \n", j->text[j->n - 1])) add(j, ", ", j->spaced ? 2 : 1);
}

void json_raw(json *j, const char *text) {
    begin_value(j);
    add(j, text, strlen(text));
}

void json_open(json *j, char bracket) {
    begin_value(j);
    add(j, &bracket, 1);
}

void json_close(json *j, char bracket) { add(j, &bracket, 1); }

static void add_quoted(json *j, const char *text) {
    add(j, "\"", 1);
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest), taken = n ? n : 1;
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
        rest = (text_slice){rest.bytes + taken, rest.n - taken};
    }
    add(j, "\"", 1);
}

void json_key(json *j, const char *key) {
    begin_value(j);
    add_quoted(j, key);
    add(j, ": ", j->spaced ? 2 : 1);
}

void json_string(json *j, const char *text) {
    begin_value(j);
    if (text) add_quoted(j, text);
    else add(j, "null", 4);
}

void json_pair(json *j, const char *key, const char *text) {
    json_key(j, key);
    json_string(j, text);
}

void json_pair_open(json *j, const char *key, char bracket) {
    json_key(j, key);
    json_open(j, bracket);
}

void json_pair_integer(json *j, const char *key, int64_t x) {
    json_key(j, key);
    json_integer(j, x);
}

void json_pair_boolean(json *j, const char *key, bool x) {
    json_key(j, key);
    json_boolean(j, x);
}

void json_pair_number(json *j, const char *key, double x) {
    json_key(j, key);
    json_number(j, x);
}

void json_integer(json *j, int64_t x) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, x);
    json_raw(j, text);
}

void json_boolean(json *j, bool x) { json_raw(j, x ? "true" : "false"); }

void json_number(json *j, double x) {
    char text[32];
    json_raw(j, isfinite(x) ? json_shortest(x, text) : "null");
}

void json_end_line(json *j) { add(j, "\n", 1); }

int json_save(json *j, const char *path) {
    const int status = j->failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path)
                                 : text_write(path, (text_slice){j->text, j->n});
    json_free(j);
    return status;
}

const char *json_shortest(double x, char out[32]) { return adamod__shortest(x, 1, 1e15, out); }
