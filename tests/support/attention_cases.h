/* attention_cases.h - cases of attention, for tests on every backend. */
#ifndef ATTENTION_CASES_H
#define ATTENTION_CASES_H

#include "opcheck.h"

enum { ATTENTION_MOST = 192 };

/* Lengths of queries and keys of n sequences; a negative length is that many rows in no range. */
typedef struct attention_case {
    int heads, size;
    bool causal, cross;
    double dropout;
    int n, nq[ATTENTION_MOST], nk[ATTENTION_MOST];
    int kv_heads;  /* 0: heads */
    bool decoding; /* q is [q | k | v] beside a cache, and there are no gradients */
} attention_case;

typedef struct attention_setup {
    opcheck o;
    int32_t q_ranges[ATTENTION_MOST][2], k_ranges[ATTENTION_MOST][2];
} attention_setup;

void attention_set_up(attention_setup *x, const attention_case *a);
/* A case that follows from the seed: up to 8 sequences, each shorter than longest. */
attention_case attention_at_random(uint64_t seed, uint64_t longest);
/* Prints the case of a failure. Returns ok. */
bool attention_told(const attention_case *a, bool ok);

#endif
