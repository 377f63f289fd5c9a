/* subword_codes.h - the BPE codes of a run: read or learned, saved, and ready to be applied. {0}: no codes yet. */
#pragma once

#include "data/bpe.h"
#include "train/task.h"

typedef struct subword_codes {
    char *text; /* as a file has them; NULL: none yet */
    bpe *bpe;
    bpe_worker *worker; /* for bpe_apply */
} subword_codes;

void subword_codes_close(subword_codes *s);
static inline bool subword_codes_exist(const subword_codes *s) { return s->worker != NULL; }

int subword_codes_read(subword_codes *s, const char *path);
/* Learns merges from the learner's lines, then frees the learner. NULL: the learner ran out of memory. */
int subword_codes_learn(subword_codes *s, bpe_learner *l, int64_t merges);
int subword_codes_save(const subword_codes *s, const char *path);

/* Describes codes that were read from data.bpe as a part of the data; returns the number of parts, 0 or 1. Other codes
 * change all text, so this part comes first. */
int subword_codes_part(const subword_codes *s, const char *file, task_part *out);
