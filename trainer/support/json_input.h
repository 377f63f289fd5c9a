/* json_input.h - reads JSON value by value, strictly as in RFC 8259, without allocating memory. json.h writes it.
 *
 *     json_input in = json_input_of(text, n);
 *     for (bool more = json_input_enter(&in, '{'); more; more = json_input_next(&in, '}')) {
 *         json_input_key(&in, key, sizeof key);
 *         if (strcmp(key, "loss") == 0) loss = json_input_number(&in);
 *         else json_input_skip(&in);
 *     }
 *     json_input_end(&in);
 *     if (in.expected) ...                             // at in.at
 *
 * After a failure loops end and values are empty, so it is enough to look at `expected` once, at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct json_input {
    const char *begin, *at, *end;
    const char *expected; /* after a failure, such as "a number"; NULL: none so far */
} json_input;

json_input json_input_of(const char *text, size_t n);

/* Enters an object or array by its opening bracket. Returns whether it has a member. */
bool json_input_enter(json_input *in, char bracket);
/* After a member, by the closing bracket: returns whether another follows. */
bool json_input_next(json_input *in, char bracket);

/* These take one value each. A text longer than size loses whole characters at its end; a zero becomes U+FFFD. */
void json_input_key(json_input *in, char *out, size_t size);
void json_input_text(json_input *in, char *out, size_t size);
/* null is NAN, as json_number writes it. */
double json_input_number(json_input *in);
bool json_input_flag(json_input *in); /* true or false */
/* A string, number, boolean or null as text; "" for an object or array. */
void json_input_scalar(json_input *in, char *out, size_t size);
void json_input_skip(json_input *in);

/* Fails if anything but white space follows the outermost value. */
void json_input_end(json_input *in);
