/* writer.h - writes a file in pieces: buffered, and atomically (core/file.h).
 *
 *     writer *w;
 *     if (writer_open(&w, "x.txt")) ...
 *     int failed = writer_add(w, "text\n", 5);
 *     if (writer_close(w, !failed)) ...
 *
 * Messages begin with the path. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct writer writer;

int writer_open(writer **out, const char *path);
int writer_add(writer *w, const void *bytes, size_t n);
/* Writes over n of the bytes added so far, such as a header that could not be known before. */
int writer_put(writer *w, uint64_t offset, const void *bytes, size_t n);
/* Frees w. keep: the file takes its place; else it is dropped. NULL is fine. */
int writer_close(writer *w, bool keep);
