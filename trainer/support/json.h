/* json.h - JSON text, written from its beginning to its end; commas come by themselves.
 *
 *     json j = {0};
 *     json_open(&j, '{');
 *     json_key(&j, "loss");
 *     json_number(&j, 0.5);
 *     json_close(&j, '}');                             // {"loss":0.5}
 *     if (j.failed) ...                                // memory ran out somewhere
 *     json_free(&j);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_JSON_H
#define ADAMOD_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json {
    char *text; /* terminated once anything was written */
    size_t n, room;
    bool failed;
} json;

void json_free(json *j);

void json_open(json *j, char bracket);  /* '{' or '[' */
void json_close(json *j, char bracket); /* '}' or ']' */
void json_key(json *j, const char *key);
/* NULL becomes null. What is not UTF-8 becomes U+FFFD, byte by byte, so that a bad line of a corpus spoils nothing. */
void json_string(json *j, const char *text);
void json_pair(json *j, const char *key, const char *text); /* a key and its string */
void json_integer(json *j, int64_t x);
void json_boolean(json *j, bool x);
/* NaN and infinities become null: JSON has no others. */
void json_number(json *j, double x);
/* After the outermost value, for files with a value in each line. */
void json_end_line(json *j);

/* A finite number in the fewest digits that give it back exactly: "0.1", "1e-08". Returns out. */
const char *json_shortest(double x, char out[32]);

#endif
