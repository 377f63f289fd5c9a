/* number_words.h - German and English words for 0 to 999,999.
 *
 * German is one word in lower case, as in Duden: "dreihundertfünfundvierzig", with "ein" before hundert and tausend
 * ("einhundert", "eintausend") and "eins" only at the end: 101,101 is "einhunderteintausendeinhunderteins". UTF-8, with ü
 * and ß as one code point each.
 *
 * English is British: "and" before the last two digits of each group of three if anything precedes them, no commas, and a
 * hyphen within 21 to 99: "three hundred and forty-five", "one thousand and five",
 * "one thousand one hundred", "one hundred and twenty-three thousand four hundred and fifty-six". */
#pragma once

#include <stddef.h>

#define NUMBERS_LIMIT 1000000
/* Enough for any of them in either language, with the terminating zero. */
#define NUMBERS_SIZE 96

/* Return the bytes written, without the terminating zero; -1 if n is out of range or size is too small. */
int numbers_german(int n, char *out, size_t size);
int numbers_english(int n, char *out, size_t size);
