/* strings.h - a table of different strings, numbered from 0 in the order in which they were added. */
#pragma once

#include "support/text.h"

typedef struct strings strings;

strings *strings_create(void); /* NULL: out of memory */
void strings_free(strings *s); /* NULL is fine */

/* Returns the number of a string, which is copied if it is new; -1: out of memory. */
int32_t strings_add(strings *s, text_slice text);
/* Adds a string that consists of two parts. */
int32_t strings_add_joined(strings *s, text_slice first, text_slice second);
/* -1: there is none. */
int32_t strings_find(const strings *s, text_slice text);
text_slice strings_get(const strings *s, int32_t number); /* zero-terminated; valid until the next string is added */
int32_t strings_count(const strings *s);

static inline uint64_t strings_hash_pair(int32_t a, int32_t b) {
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

/* Strings and how often each was added. Starts as {.of = strings_create()}. */
typedef struct string_counts {
    strings *of;
    int64_t *times;
    size_t room;
} string_counts;

int string_counts_add(string_counts *c, text_slice text, int64_t times); /* -1: out of memory */
void string_counts_free(string_counts *c);
