/* text_input.h - reads the lines of a file, a pipe or standard input.
 *
 *     text_input *in;
 *     if (text_input_open(&in, path)) ...
 *     for (text_slice line; (got = text_input_line(in, &line)) > 0;) ...
 *     text_input_close(in);
 *
 * All text from users is read this way:
 *
 * - Files compressed by gzip or zstd are decompressed. The first bytes tell the format, not the name. Other formats, UTF-16,
 *   and formats that this build lacks are refused.
 * - A byte order mark (U+FEFF) at the beginning is skipped.
 * - A line ends with "\n" or "\r\n"; the last one may lack it.
 * - A line is UTF-8 without zero bytes.
 *
 * A line is returned as soon as its end was read, even from a slow pipe. Messages begin with the name of the file. */
#pragma once

#include "support/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text_input text_input;

/* NULL or "-" is standard input. */
int text_input_open(text_input **out, const char *path);
void text_input_close(text_input *in); /* NULL is fine */

/* For messages: the path, or "standard input". */
const char *text_input_name(const text_input *in);
/* Whether it is a regular file, not a pipe or terminal. */
bool text_input_is_file(const text_input *in);

/* Whether reading the next line would wait. */
bool text_input_waits(const text_input *in);

/* Returns 1 and the next line without its end, valid until the next call; 0 at the end. */
int text_input_line(text_input *in, text_slice *line);
/* Returns 1 and the next bytes, whatever they are, valid until the next call; 0 at the end. Not to be mixed with lines. */
int text_input_bytes(text_input *in, text_slice *bytes);
/* From now on, lines may be any bytes. */
void text_input_any(text_input *in);
/* The number of the last line, from 1; 0 before the first. */
int64_t text_input_number(const text_input *in);

/* Reads a whole file without its byte order mark, without checking for UTF-8. The caller frees *bytes. */
int text_input_read(const char *path, char **bytes, size_t *n);
/* Fails if the text, decompressed, has more than `most` bytes. */
int text_input_read_most(const char *path, size_t most, char **bytes, size_t *n);
