/* text.h - UTF-8 text: files of lines, lines of tokens. What vocab.c, corpus.c and bleu.c stand on.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a token is: a word, that is a run of anything but ASCII spaces; or a code point, spaces included. */
typedef enum text_unit { TEXT_WORDS, TEXT_CHARACTERS } text_unit;

/* n bytes within something else, not terminated. */
typedef struct text_slice {
    const char *bytes;
    size_t n;
} text_slice;

text_slice text_of(const char *string);

/* For terminals. What may have a name in it, of a file or in one, is printed by these: what is not UTF-8, controls and
 * what changes the direction of text become '?', so that a line stays one line and no name speaks to the terminal. */
void text_print(FILE *out, const char *text);
/* A line, without its '\n', of at most 8 KiB. */
void text_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same in place. */
void text_plain(char *text);

/* How many bytes the code point at the beginning has; 0: there is none, or it is not UTF-8 (RFC 3629: neither overlong
 * forms nor surrogates nor anything above U+10FFFF). */
size_t text_code_point(text_slice text);

/* Refuses what is not UTF-8, and zero bytes, which no C string could carry. Messages begin with "name:line: ". */
int text_check(text_slice text, const char *name, int64_t line);

/* Takes the next token, or the next line without its '\n', from the front of rest. 0: there was none. The text of
 * tokens must be UTF-8; a last line needs no '\n'. */
int text_next_token(text_unit unit, text_slice *rest, text_slice *token);
int text_next_line(text_slice *rest, text_slice *line);
int64_t text_count_tokens(text_unit unit, text_slice text);
int64_t text_count_lines(text_slice text);

/* A whole file, to be freed; a pipe is read to its end. */
int text_read(const char *path, char **bytes, size_t *n);
/* Whatever fails, path holds the old file or the new one, whole: see optim/file.h. */
int text_write(const char *path, text_slice text);

#endif
