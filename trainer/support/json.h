/* json.h - the JSON writer of the whole program: builds the text in memory and adds commas by itself.
 *
 *     json j = {.spaced = true};
 *     json_open(&j, '{');
 *     json_key(&j, "loss");
 *     json_number(&j, 0.5);
 *     json_close(&j, '}');                             // {"loss": 0.5}
 *     if (j.failed) ...                                // out of memory
 *     fputs(j.text, stdout);
 *     json_free(&j); */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json {
    char *text; /* n bytes and a terminating 0; NULL before the first addition */
    size_t n, room;
    bool failed;
    bool spaced; /* with a space after each comma and colon */
} json;

void json_free(json *j);

void json_open(json *j, char bracket);  /* '{' or '[' */
void json_close(json *j, char bracket); /* '}' or ']' */
void json_key(json *j, const char *key);
/* NULL becomes null. Each byte that is not UTF-8 becomes U+FFFD. */
void json_string(json *j, const char *text);
/* A key and its value. */
void json_pair(json *j, const char *key, const char *text);
/* A key, and the bracket that its value begins with. */
void json_pair_open(json *j, const char *key, char bracket);
void json_pair_integer(json *j, const char *key, int64_t x);
void json_pair_boolean(json *j, const char *key, bool x);
void json_pair_number(json *j, const char *key, double x);
void json_integer(json *j, int64_t x);
void json_boolean(json *j, bool x);
void json_number(json *j, double x);      /* NaN and infinities, which JSON lacks, become null */
void json_raw(json *j, const char *text); /* a value that is JSON already */
/* Ends a line after the outermost value, for files with one value per line. */
void json_end_line(json *j);
/* Writes the text to a file, which it replaces (text_write), and frees it. */
int json_save(json *j, const char *path);

/* Writes a number in the fewest digits that read back as exactly x: "0.1", "1e-08". Returns out. */
const char *json_shortest(double x, char out[32]);
