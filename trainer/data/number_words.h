/* number_words.h - the German and the English words for 0 to 999,999.
 *
 * German is one word in lower case, as Duden writes it below a million: "dreihundertfünfundvierzig", with "ein" spoken
 * before hundert and tausend ("einhundert", "eintausend"; not "hundert") and "eins" only at the very end:
 * 101,101 is "einhunderteintausendeinhunderteins". UTF-8, with ü and ß each one code point.
 *
 * English follows British use: "and" stands before the last two digits of a group of three wherever something comes
 * before them, no commas, and a hyphen within 21 to 99: "three hundred and forty-five", "one thousand and five",
 * "one thousand one hundred", "one hundred and twenty-three thousand four hundred and fifty-six".
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_NUMBER_WORDS_H
#define ADAMOD_NUMBER_WORDS_H

#include <stddef.h>

#define NUMBERS_LIMIT 1000000
/* Enough for any of them in either language, its end included. */
#define NUMBERS_SIZE 96

/* Bytes written, without the terminating zero; -1: n is outside 0..999,999, or size is too small for it. */
int numbers_german(int n, char *out, size_t size);
int numbers_english(int n, char *out, size_t size);

#endif
