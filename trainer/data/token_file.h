/* token_file.h - files of token ids packed end to end, and windows of them to train on.
 *
 *     token_set *s;
 *     if (token_set_open(&s, n, paths, 50257)) ...
 *     const token_windows w = {.length = 1024, .seed = 7, .shuffled = true};
 *     for (int64_t i = 0; i < token_set_windows(s, 1024); i++)
 *         if (token_set_window(s, &w, epoch, i, ids)) ...       // 1025 ids
 *
 * Ids have 16 bits. There are two formats: that of llm.c has a header of 256 whole numbers of 32 bits (20240520, 1,
 * the number of ids, zeros), that of nanoGPT has none. Files are mapped into memory, so they may be larger than it. A
 * file must not shrink while it is open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_FILE_IDS = 1 << 16 }; /* most different ids */

/* ---- reading ---- */

/* The ids of one or more files, in order. */
typedef struct token_set token_set;

/* Opens n files. size: the number of ids of the vocabulary; 0: any. */
int token_set_open(token_set **out, int n, const char *const *paths, int32_t size);
void token_set_close(token_set *s);          /* NULL is fine */
int64_t token_set_count(const token_set *s); /* ids in all files */
/* Fails at the first id that is not in the vocabulary, with its place. Opening checks the first ids of each file, and a
 * window those it has; this reads all. */
int token_set_check(const token_set *s);

/* Whether a file that begins with these bytes has llm.c's header. */
bool token_file_begins(const void *bytes, size_t n);

/* ---- windows ---- */

/* Windows lie end to end in each file, from its first id on. Each has `length` ids and the one after them; what is left
 * at the end of a file is in none. */
typedef struct token_windows {
    int64_t length;
    uint64_t seed;
    bool shuffled; /* in another order in each epoch; else in the order of the files */
} token_windows;

int64_t token_set_windows(const token_set *s, int64_t length);
/* Copies the length + 1 ids of window `at` of an epoch. It depends on the files and these arguments alone. */
int token_set_window(const token_set *s, const token_windows *w, int64_t epoch, int64_t at, int32_t *ids);

/* ---- writing, as llm.c does ---- */

typedef struct token_writer token_writer;
int token_writer_open(token_writer **out, const char *path);
/* Ids are below TOKEN_FILE_IDS. */
int token_writer_add(token_writer *w, const int32_t *ids, size_t n);
int64_t token_writer_count(const token_writer *w);
/* Frees w. keep: the file takes its place; else it is dropped. NULL is fine. */
int token_writer_close(token_writer *w, bool keep);
