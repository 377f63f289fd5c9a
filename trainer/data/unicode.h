/* unicode.h - code points to and from UTF-8, and classes of characters for rules about text. */
#pragma once

#include "support/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes a code point from the front of a text. A byte that is not UTF-8 becomes 0xdc00 + byte. */
uint32_t unicode_next(text_slice *rest);
/* Writes a code point from unicode_next. Returns its 1 to 4 bytes. */
size_t unicode_put(uint32_t c, char out[4]);

bool unicode_is_space(uint32_t c);    /* as for Python's str.split() */
bool unicode_is_digit(uint32_t c);    /* Nd: in any script */
bool unicode_is_number(uint32_t c);   /* N: also fractions, superscripts, Roman numerals */
bool unicode_is_letter(uint32_t c);   /* in the Basic Multilingual Plane, without Han and Hangul */
bool unicode_is_small(uint32_t c);    /* lower case */
bool unicode_is_currency(uint32_t c); /* Sc */
bool unicode_is_han(uint32_t c);      /* ideographs and their marks */
bool unicode_is_hangul(uint32_t c);
bool unicode_is_kana(uint32_t c); /* Hiragana, Katakana */
/* C: control and format characters, private use, unassigned (except some in planes 1 to 3). */
bool unicode_is_unprinted(uint32_t c);

/* By general category, in all planes: \p{L}, \p{N}, and \s of regular expressions (the property White_Space). Bytes that
 * are not UTF-8 are other characters. */
typedef enum unicode_class { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_WHITE } unicode_class;
unicode_class unicode_class_beyond_ascii(uint32_t c);
static inline unicode_class unicode_class_of(uint32_t c) {
    if (c >= 0x80) return unicode_class_beyond_ascii(c);
    if ((c | 0x20) - 'a' < 26) return UNICODE_LETTER;
    if (c - '0' < 10) return UNICODE_NUMBER;
    return c == ' ' || c - '\t' < 5 ? UNICODE_WHITE : UNICODE_OTHER;
}

/* For Unicode's Final_Sigma, in the Basic Multilingual Plane: letters with case, and characters that it ignores (combining
 * marks, apostrophes, full stops). */
bool unicode_is_cased(uint32_t c);
bool unicode_is_case_ignorable(uint32_t c);

/* Writes the lower-case form. Returns its length: 1, or 2 for U+0130. */
int unicode_lower(uint32_t c, uint32_t out[2]);
