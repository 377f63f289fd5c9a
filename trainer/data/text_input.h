/* text_input.h - text as it comes: the lines of a file, a pipe or standard input.
 *
 *     text_input *in;
 *     if (text_input_open(&in, path)) ...
 *     for (text_slice line; (got = text_input_line(in, &line)) > 0;) ...
 *     text_input_close(in);
 *
 * Every text that comes from outside is read by this, so the same holds for all:
 *
 * - What gzip or zstd has packed is unpacked while it is read. That is known by the first bytes, not by the name. Other
 *   ways of packing, UTF-16, and what this build cannot unpack are refused and named.
 * - A byte order mark (U+FEFF) at the very beginning is no part of the text. Anywhere else it is a character like others.
 * - A line ends with "\n" or "\r\n"; the last one need not.
 * - A line is UTF-8 without zero bytes.
 *
 * A line is returned as soon as its end has been read, however slowly a pipe is written.
 *
 * Messages begin with the name of the file.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef TEXT_INPUT_H
#define TEXT_INPUT_H

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
/* Whether it is a plain file, all of which is there already. */
bool text_input_is_file(const text_input *in);

/* Whether the next line must be waited for, so that what is done should be shown before. */
bool text_input_waits(const text_input *in);

/* 1: the next line, without its end, until the next call. 0: there is none. */
int text_input_line(text_input *in, text_slice *line);
/* From here on, lines may be any bytes, and it is for the reader to look at them. */
void text_input_any(text_input *in);
/* Of the last line, counted from 1; 0 before the first. */
int64_t text_input_number(const text_input *in);

/* A whole file without its mark, to be freed; not looked at for UTF-8 yet. */
int text_input_read(const char *path, char **bytes, size_t *n);
/* The same of a file that may be anything: refused if it has, or unpacks to, more than so many bytes. */
int text_input_read_most(const char *path, size_t most, char **bytes, size_t *n);

/* Whether this build unpacks "gzip", "zstd". */
bool text_input_unpacks(const char *how);

#endif
