/* subword_codes.h - the codes of a run's subwords: read or learned, kept, and ready to be applied. {0} has none yet. */
#ifndef ADAMOD_SUBWORD_CODES_H
#define ADAMOD_SUBWORD_CODES_H

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
/* So many merges, from all lines that the learner was given, which is freed. A learner that is NULL is out of memory. */
int subword_codes_learn(subword_codes *s, bpe_learner *l, int64_t merges);
int subword_codes_save(const subword_codes *s, const char *path);

/* Codes that were read from the file of data.bpe, as a part of the data; how many parts that are. To be the first: with
 * other codes, all text becomes other subwords. */
int subword_codes_part(const subword_codes *s, const char *file, task_part *out);

#endif
