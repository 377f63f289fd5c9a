/* byte_bpe.h - byte-level BPE as GPT-2's (Radford et al., 2019): text to ids of tokens, and back.
 *
 *     byte_bpe *b;
 *     if (byte_bpe_load(&b, "gpt2")) ...                        // gpt2/vocab.json and gpt2/merges.txt
 *     byte_bpe_encoder *e = byte_bpe_encoder_create(b, false);
 *     byte_bpe_ids ids = {0};
 *     if (byte_bpe_encode(e, text_of("Hello world"), &ids)) ... // 15496 995
 *     byte_bpe_decode(b, ids.list, ids.n, &buffer);             // "Hello world"
 *
 * Text is any bytes, and every text decodes to itself. It is cut into pieces (byte_pieces.h), and in each piece the
 * pair of neighbours that was learned first is merged, again and again. The ids are those of tiktoken and of Hugging
 * Face's tokenizers, except for bytes that are not UTF-8: those packages replace them by U+FFFD.
 *
 * A byte_bpe never changes, and any number of threads may use it. Messages name the file and its line. */
#pragma once

#include "core/buffer.h"
#include "support/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BYTE_BPE_END "<|endoftext|>"

typedef struct byte_bpe byte_bpe;

/* ---- files ---- */

/* The files of Hugging Face: vocab.json maps tokens to ids, merges.txt has a merge a line, the first learned first. Both
 * spell bytes as printable characters. Ids are 0 to n - 1; every byte is a token, and so are both parts and the
 * result of each merge; other tokens are in brackets, "<|endoftext|>" or "[PAD]". */
int byte_bpe_load(byte_bpe **out, const char *directory);
/* Parses the bytes of the two files; their names are for messages. */
int byte_bpe_parse(byte_bpe **out, text_slice vocab, const char *vocab_name, text_slice merges,
                   const char *merges_name);
/* Makes the directory if there is none. */
int byte_bpe_save(const byte_bpe *b, const char *directory);
void byte_bpe_free(byte_bpe *b); /* NULL is fine */

int32_t byte_bpe_size(const byte_bpe *b);                 /* number of ids */
int32_t byte_bpe_end(const byte_bpe *b);                  /* the id of "<|endoftext|>"; -1: there is none */
text_slice byte_bpe_token(const byte_bpe *b, int32_t id); /* its bytes */

/* ---- ids ---- */

typedef struct byte_bpe_ids {
    int32_t *list;
    size_t n, room;
} byte_bpe_ids;

/* Has a cache of pieces. Use one per thread. marks: "<|endoftext|>" in a text is that token, as Hugging Face reads it;
 * else it is text like any other, as in tiktoken's encode_ordinary. */
typedef struct byte_bpe_encoder byte_bpe_encoder;
byte_bpe_encoder *byte_bpe_encoder_create(const byte_bpe *b, bool marks); /* NULL: out of memory */
void byte_bpe_encoder_free(byte_bpe_encoder *e);                          /* NULL is fine */

/* Adds the ids of a text at the end of a list. -1: out of memory. */
int byte_bpe_encode(byte_bpe_encoder *e, text_slice text, byte_bpe_ids *ids);
/* Adds the ids of the beginning of a text whose rest is not read yet: all ids that the rest cannot change. Returns the
 * bytes that were taken: at most a piece and BYTE_BPE_AHEAD bytes are left. -1: out of memory. */
enum { BYTE_BPE_AHEAD = 32 };
int64_t byte_bpe_encode_part(byte_bpe_encoder *e, text_slice text, byte_bpe_ids *ids);

/* Adds the bytes of n ids, which must be below byte_bpe_size. */
void byte_bpe_decode(const byte_bpe *b, const int32_t *ids, size_t n, adamod__buffer *out);

/* ---- learning ---- */

/* Counts the pieces of texts. */
typedef struct byte_bpe_learner byte_bpe_learner;
byte_bpe_learner *byte_bpe_learner_create(void); /* NULL: out of memory */
void byte_bpe_learner_free(byte_bpe_learner *l); /* NULL is fine */
/* Each line, with its end, is cut by itself, as Hugging Face's trainer does with files. -1: out of memory. */
int byte_bpe_learner_add(byte_bpe_learner *l, text_slice text);
/* Adds n files, or standard input if n is 0, on several threads (0: one per core). */
int byte_bpe_learner_add_files(byte_bpe_learner *l, int n, const char *const *paths, int threads);

/* Merges the most frequent pair until there are `size` tokens, "<|endoftext|>" and the 256 bytes included, or no pair
 * is as frequent as min_frequency. Among equally frequent pairs the one with lower ids comes first. The merges are
 * those of Hugging Face's BpeTrainer with all bytes in its alphabet; the ids are in the order of GPT-2's: bytes,
 * merges, "<|endoftext|>". */
int byte_bpe_learn(byte_bpe **out, const byte_bpe_learner *l, int64_t size, int64_t min_frequency);
