/* unicode.h - characters: code points to and from UTF-8, and the classes that rules about text name.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef UNICODE_H
#define UNICODE_H

#include "support/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes a code point from the front of a text of UTF-8. What is not UTF-8 is a byte of its own, as 0xdc00 + byte. */
uint32_t unicode_next(text_slice *rest);
/* The way back: 1 to 4 bytes. */
size_t unicode_put(uint32_t c, char out[4]);

/* White space, all that Python's str.split() takes for it. */
bool unicode_is_space(uint32_t c);
bool unicode_is_digit(uint32_t c);    /* Nd: in any script */
bool unicode_is_number(uint32_t c);   /* N: also fractions, superscripts, letters that are numbers */
bool unicode_is_letter(uint32_t c);   /* in the Basic Multilingual Plane; neither Han nor Hangul syllables */
bool unicode_is_small(uint32_t c);    /* a small letter */
bool unicode_is_currency(uint32_t c); /* Sc */
bool unicode_is_han(uint32_t c);      /* ideographs, and marks used with them */
bool unicode_is_hangul(uint32_t c);
bool unicode_is_kana(uint32_t c); /* Hiragana, Katakana */
/* C: control and format characters, private use, what has no character (but for some of planes 1 to 3). */
bool unicode_is_unprinted(uint32_t c);

/* For Unicode's Final_Sigma, in the Basic Multilingual Plane: letters that have case, and what it looks beyond to find them
 * (combining marks, apostrophes, full stops). */
bool unicode_is_cased(uint32_t c);
bool unicode_is_case_ignorable(uint32_t c);

/* In lower case: one code point, or for U+0130 two. How many. */
int unicode_lower(uint32_t c, uint32_t out[2]);

#endif
