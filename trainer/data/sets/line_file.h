/* line_file.h - writes a file line by line, atomically. */
#ifndef LINE_FILE_H
#define LINE_FILE_H

#include "support/text.h"

#include <stdbool.h>

typedef struct line_file line_file;

int line_file_open(line_file **out, const char *path);
int line_file_put(line_file *f, text_slice line);
int64_t line_file_count(const line_file *f); /* lines so far */
/* Frees it. keep: the file takes its place; else it is dropped. NULL is fine. */
int line_file_close(line_file *f, bool keep);

#endif
