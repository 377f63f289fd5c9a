/* token_pack.h - packs texts into a file of tokens (token_file.h): before each document comes "<|endoftext|>", as in
 * llm.c. */
#pragma once

#include "data/byte_bpe.h"
#include "data/token_file.h"

/* How input is cut into documents. Empty ones are left out. */
typedef enum token_document {
    TOKEN_DOCUMENT_FILE,
    TOKEN_DOCUMENT_BLANK, /* up to two ends of lines, which it keeps */
    TOKEN_DOCUMENT_LINE   /* without its end */
} token_document;

typedef struct token_pack {
    const byte_bpe *b;
    token_document document;
    bool marks; /* "<|endoftext|>" in the text is that token */
} token_pack;

/* Adds the documents of n files, or of standard input if n is 0. Text may be any bytes, and larger than memory. */
int token_pack_run(const token_pack *p, int n, const char *const *paths, token_writer *out);
