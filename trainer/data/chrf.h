/* chrf.h - the counts of chrF (Popović, WMT 2015) and chrF++ (2017): n-grams of characters without white space, and of words. */
#pragma once

#include "support/text.h"

enum { CHRF_CHARACTERS = 6, CHRF_WORDS = 2, CHRF_ORDERS = CHRF_CHARACTERS + CHRF_WORDS };

/* N-grams of each order in the hypothesis (0 if the reference has none), in the reference, and in both. */
typedef struct chrf {
    int64_t hyp[CHRF_ORDERS], ref[CHRF_ORDERS], match[CHRF_ORDERS];
} chrf;

/* words: also counts n-grams of words. -1: out of memory. */
int chrf_count(chrf *c, text_slice hyp, text_slice ref, int words);
