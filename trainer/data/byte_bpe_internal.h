/* byte_bpe_internal.h - what the files of byte_bpe.h share. */
#pragma once

#include "data/byte_bpe.h"
#include "data/pair_map.h"
#include "data/strings.h"

typedef struct byte_bpe_merge {
    int32_t left, right, both;
} byte_bpe_merge;

struct byte_bpe {
    strings *tokens; /* bytes by id */
    int32_t of_byte[256], end;
    byte_bpe_merge *merges; /* the first learned first: the index is the rank */
    int32_t n_merges;
    size_t room_merges;
    pair_map ranks; /* of two ids */
};

byte_bpe *byte_bpe_create(void); /* NULL: out of memory */
/* Finds the tokens of bytes and of the end, once all tokens are added. Returns a byte that has no token, or -1. */
int byte_bpe_find_bytes(byte_bpe *b);
/* Adds a merge behind all others. Returns its rank, or that of an earlier merge of the same pair. -1: out of memory. */
int32_t byte_bpe_add_merge(byte_bpe *b, byte_bpe_merge m);

/* Pieces and how often each was seen. */
struct byte_bpe_learner {
    string_counts pieces;
};

/* ---- how files spell bytes: printable ones as themselves, the others as the characters from U+0100 on, in order ---- */

/* The byte that a character stands for; -1: none. */
int byte_bpe_byte(uint32_t character);
/* Replaces the buffer's content by the bytes that a text spells. false: *other is a character that stands for no
 * byte. */
bool byte_bpe_read_bytes(text_slice spelled, adamod__buffer *out, uint32_t *other);
void byte_bpe_spell(text_slice bytes, adamod__buffer *out);
