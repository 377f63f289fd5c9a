/* json_input.h - JSON text, read value by value: what train/json.h is for writing. Strict, as RFC 8259 has it, and in
 * no need of memory.
 *
 *     json_input in = json_input_of(text, n);
 *     for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
 *         json_input_key(&in, key, sizeof key);
 *         if (strcmp(key, "loss") == 0) loss = json_input_number(&in);
 *         else json_input_skip(&in);
 *     }
 *     json_input_end(&in);
 *     if (in.expected) ...                             // it went wrong at in.at
 *
 * After a failure loops end and values are empty, so that one look at the end is enough.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_JSON_INPUT_H
#define ADAMOD_JSON_INPUT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct json_input {
    const char *begin, *at, *end;
    const char *expected; /* what was not there, "a number"; NULL: nothing is wrong so far */
} json_input;

json_input json_input_of(const char *text, size_t n);

/* Into an object or an array, by its opening bracket: whether it has a first member. */
bool json_input_enter(json_input *in, char bracket);
/* After a member, by the closing bracket: whether there is another one. */
bool json_input_next(json_input *in, char bracket);

/* These take one value each. A text that is too long for its room loses its end, never half a code point; a zero in it
 * becomes U+FFFD, since no C string could carry it. */
void json_input_key(json_input *in, char *out, size_t size);
void json_input_text(json_input *in, char *out, size_t size);
/* null is NAN: so run directories write what is not finite. */
double json_input_number(json_input *in);
bool json_input_flag(json_input *in); /* true or false */
/* A string, a number, true, false or null, as text; "" for an object or an array. */
void json_input_scalar(json_input *in, char *out, size_t size);
void json_input_skip(json_input *in);

/* Nothing may follow the outermost value. */
void json_input_end(json_input *in);

#endif
