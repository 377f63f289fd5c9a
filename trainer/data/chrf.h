/* chrf.h - the counts of chrF (Popović, WMT 2015) and chrF++ (2017): n-grams of characters without white space, and of words,
 * that a hypothesis shares with its reference.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CHRF_H
#define CHRF_H

#include "support/text.h"

enum { CHRF_CHARACTERS = 6, CHRF_WORDS = 2, CHRF_ORDERS = CHRF_CHARACTERS + CHRF_WORDS };

/* Of the hypothesis (0 if the reference has none), of the reference, and common to both; of each order. */
typedef struct chrf {
    int64_t hyp[CHRF_ORDERS], ref[CHRF_ORDERS], match[CHRF_ORDERS];
} chrf;

/* -1: out of memory. words: those of words too. */
int chrf_count(chrf *c, text_slice hyp, text_slice ref, int words);

#endif
