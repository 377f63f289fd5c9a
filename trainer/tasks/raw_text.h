/* raw_text.h - raw sentences to subwords and back: tokenized by Moses' rules, then split by BPE. */
#pragma once

#include "data/corpus.h"
#include "data/text_chain.h"
#include "tasks/subword_codes.h"

enum { RAW_SOURCE, RAW_TARGET, RAW_SIDES };

typedef struct raw_text {
    text_chain *chains[RAW_SIDES];
    subword_codes codes;
} raw_text;

/* sides: how sentences of source and target become tokens. raw_text_close accepts {0}. */
int raw_text_open(raw_text *r, const text_chain_options sides[RAW_SIDES]);
void raw_text_close(raw_text *r);

/* Reads two aligned files in subwords, as corpus_bitext does. Learns codes with `merges` merges from both if there are none
 * yet. kept, unless NULL, gets the pairs as raw text; then no pairs are left out but those with an empty side, if options
 * say so. hashes are of all lines of each file. */
int raw_text_load(raw_text *r, const char *source, const char *target, int64_t merges, const corpus_options *options,
                  corpus_text *out, corpus_text *kept, uint64_t hashes[RAW_SIDES]);

/* Subwords to tokens, in place: "lo@@ wer" to "lower". */
void raw_text_unite(char *subwords);

/* Allocate the subwords of a source sentence, and the sentence of target subwords. NULL: out of memory. */
char *raw_text_split(raw_text *r, text_slice line);
char *raw_text_join(raw_text *r, const char *subwords);
