/* strings.h - numbers for strings: equal ones have one number, counted from 0 in the order in which they were added.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef STRINGS_TABLE_H
#define STRINGS_TABLE_H

#include "support/text.h"

typedef struct strings strings;

strings *strings_create(void); /* NULL: out of memory */
void strings_free(strings *s); /* NULL is fine */

/* The number of a string, which is copied if it is new; -1: out of memory. */
int32_t strings_add(strings *s, text_slice text);
/* -1: there is none. */
int32_t strings_find(const strings *s, text_slice text);
text_slice strings_get(const strings *s, int32_t number); /* until the next string is added */
int32_t strings_count(const strings *s);

/* A hash of bytes, and of two numbers. */
uint64_t strings_hash(text_slice text);
static inline uint64_t strings_hash_pair(int32_t a, int32_t b) {
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

#endif
