/* ranking.h - which variant is the best in a column of results, and whether its lead is more than chance. */
#pragma once

#include "report/variants.h"

typedef struct ranking {
    int best;           /* the only variant with the best median; -1: none, or the column is not ranked */
    int rivals, beaten; /* other variants with a number; those that the best one leads by more than chance */
    int tested;         /* rivals that Welch's test can be asked about */
    double most_p;      /* of these; 0: none */
} ranking;

/* A variant whose runs all diverged has no rank. */
ranking ranking_of(const report *r, int column);

/* Whether the best variant is better than every other by more than chance. Only this is a win. */
bool ranking_is_won(const ranking *k);

/* Whether a variant has a rank in the column and is not the best one. */
bool ranking_has_rival(const report *r, int column, const ranking *k, int variant);
/* Welch's p between the best variant and another, and whether that is beyond chance. */
double ranking_p(const report *r, int column, const ranking *k, int variant);
bool ranking_beats(const report *r, int column, const ranking *k, int variant);

/* Writes "p = 0.043", "p < 0.001" or, for NAN, "too few runs". */
void ranking_p_words(double p, char *out, size_t size);

/* Says what these numbers of seeds can tell: welch_power of the variant with the fewest runs. "": one variant. */
void ranking_power(const report *r, char *out, size_t size);

/* Prints the ranked results of evaluations for a terminal: who leads whom, with p. Nothing if nothing is ranked. */
void ranking_print(const report *r, FILE *out);

/* Writes a difference of a column's numbers with its sign: "+0.42"; of percentages "+0.42 points". */
void ranking_difference(const metric *m, double difference, char *out, size_t size);
