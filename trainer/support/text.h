/* text.h - UTF-8 text: characters, tokens, lines and files. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A token is either a word, a run of bytes without ASCII spaces, or a code point, spaces included. */
typedef enum text_unit { TEXT_WORDS, TEXT_CHARACTERS } text_unit;

/* n bytes of a longer text, not terminated. */
typedef struct text_slice {
    const char *bytes;
    size_t n;
} text_slice;

text_slice text_of(const char *string);
bool text_begins(const char *text, const char *with);
bool text_ends(const char *text, const char *with);
bool text_equal(text_slice a, text_slice b);
/* Compares bytes, which sorts UTF-8 by code points: below, at or above 0. */
int text_compare(text_slice a, text_slice b);

/* Print text that may contain names from users or files. Bytes that are not UTF-8, control characters and direction marks
 * become '?', so that no name breaks a line or controls the terminal. */
void text_print(FILE *out, const char *text);
/* Prints a line of at most 8 KiB; adds the '\n'. */
void text_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Replaces such characters in place. */
void text_plain(char *text);

/* Bytes of the first code point; 0 if text is empty or does not begin with UTF-8 (RFC 3629: no overlong forms, surrogates
 * or code points above U+10FFFF). */
size_t text_code_point(text_slice text);
/* Writes a code point as UTF-8. Returns its 1 to 4 bytes. */
size_t text_put_code_point(uint32_t code, char out[4]);

/* Fails if text is not UTF-8 or has a zero byte, with a message that begins with "name:line: ". */
int text_check(text_slice text, const char *name, int64_t line);

/* Takes the next token, or the next line without its '\n', from the front of rest. Returns 0 if there is none. Text of
 * tokens must be UTF-8. The last line needs no '\n'. */
int text_next_token(text_unit unit, text_slice *rest, text_slice *token);
int text_next_line(text_slice *rest, text_slice *line);
int64_t text_count_tokens(text_unit unit, text_slice text);
int64_t text_count_lines(text_slice text);

/* Add to the text in a buffer of this size, as much as fits: by a format; a word, after the separator unless it is the first. */
void text_add(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
void text_join(char *text, size_t size, const char *separator, const char *word);

/* Replaces every `from` in n bytes by `to`, which is not longer, in place. Returns the new length. */
size_t text_replace(char *text, size_t n, const char *from, const char *to);

/* DIRECTORY/NAME. A path longer than PATH_MAX is cut, but stays too long to be opened. */
typedef struct path_text {
    char text[PATH_MAX + 64];
} path_text;
path_text path_join(const char *directory, const char *name);

/* Reads a whole file, or a pipe to its end. The caller frees *bytes. */
int text_read(const char *path, char **bytes, size_t *n);
/* Refuses a file of more bytes, also one without an end. */
int text_read_small(const char *path, size_t most, char **bytes, size_t *n);
/* Does the same with messages that do not name the file. */
int text_load(const char *path, char **bytes, size_t *n);
/* Replaces a file atomically (core/file.h): after a failure, the old file is still there. */
int text_write(const char *path, text_slice text);
