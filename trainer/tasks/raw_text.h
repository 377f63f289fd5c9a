/* raw_text.h - raw sentences to what a model reads, and back: tokens by Moses' rules, then subwords. */
#ifndef ADAMOD_RAW_TEXT_H
#define ADAMOD_RAW_TEXT_H

#include "data/corpus.h"
#include "data/text_chain.h"
#include "tasks/subword_codes.h"

enum { RAW_SOURCE, RAW_TARGET, RAW_SIDES };

typedef struct raw_text {
    text_chain *chains[RAW_SIDES];
    subword_codes codes;
} raw_text;

/* How sentences of either side become tokens. raw_text_close frees one that is {0}, too. */
int raw_text_open(raw_text *r, const text_chain_options sides[RAW_SIDES]);
void raw_text_close(raw_text *r);

/* Two aligned files, as corpus_bitext reads them, in subwords. Without codes, these are learned from both, so many merges.
 * kept, unless NULL, gets the same pairs as they were in the files; then pairs with an empty side are left out, if
 * options say so, and no other. hashes are of all lines of each file, whatever becomes of them. */
int raw_text_load(raw_text *r, const char *source, const char *target, int64_t merges, const corpus_options *options,
                  corpus_text *out, corpus_text *kept, uint64_t hashes[RAW_SIDES]);

/* Subwords to tokens, in place: "lo@@ wer" to "lower". */
void raw_text_unite(char *subwords);

/* A sentence of the source in subwords, and subwords of the target as a sentence; to be freed. NULL: out of memory. */
char *raw_text_split(raw_text *r, text_slice line);
char *raw_text_join(raw_text *r, const char *subwords);

#endif
