#include "data/unicode.h"

/* Every step-th code point from first to last; step is 1 or 2. */
typedef struct unicode_range {
    uint32_t first, last, step;
} unicode_range;

typedef struct category_range {
    unicode_range of;
    unicode_class class;
} category_range;
#define L UNICODE_LETTER
#define N UNICODE_NUMBER

/* Their lower case is delta further on. */
typedef struct lower_range {
    unicode_range of;
    int delta;
} lower_range;

#include "data/unicode_tables.inc.h"

/* ---- UTF-8 ---- */

uint32_t unicode_next(text_slice *rest) {
    const unsigned char *b = (const unsigned char *)rest->bytes;
    size_t n = *b < 0x80 ? 1 : text_code_point(*rest);
    uint32_t c = *b;
    if (n == 0) {
        n = 1;
        c += 0xdc00;
    } else if (n > 1) {
        c &= 0xffu >> (n + 1);
        for (size_t i = 1; i < n; i++) c = c << 6 | (b[i] & 0x3fu);
    }
    rest->bytes += n;
    rest->n -= n;
    return c;
}

size_t unicode_put(uint32_t c, char out[4]) {
    if (c < 0xdc00 || c >= 0xdd00) return text_put_code_point(c, out);
    out[0] = (char)(c - 0xdc00); /* a byte that was not UTF-8 */
    return 1;
}

/* ---- classes ---- */

/* The place of c in a sorted table, whose elements of this size begin with a range; NULL: it is in none. */
static inline const void *find(const void *table, size_t n, size_t size, uint32_t c) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const unicode_range *r = (const void *)((const char *)table + middle * size);
        if (c > r->last) low = middle + 1;
        else high = middle;
    }
    const unicode_range *r = (const void *)((const char *)table + low * size);
    return low < n && c >= r->first && ((c - r->first) & (r->step - 1)) == 0 ? r : NULL;
}

#define FIND(table, c) find(table, sizeof table / sizeof *table, sizeof *table, c)
#define IS_IN(table, c) (FIND(table, c) != NULL)

bool unicode_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool unicode_is_digit(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : IS_IN(digits, c); }
bool unicode_is_number(uint32_t c) {
    return c < 0x80 ? c >= '0' && c <= '9' : c < 0x10000 && unicode_class_beyond_ascii(c) == UNICODE_NUMBER;
}
bool unicode_is_letter(uint32_t c) { return c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : IS_IN(letters, c); }
bool unicode_is_small(uint32_t c) { return c < 0x80 ? c >= 'a' && c <= 'z' : IS_IN(small_letters, c); }
bool unicode_is_cased(uint32_t c) { return c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : IS_IN(cased, c); }
bool unicode_is_case_ignorable(uint32_t c) { return IS_IN(case_ignorable, c); }
bool unicode_is_currency(uint32_t c) { return IS_IN(currencies, c); }
bool unicode_is_han(uint32_t c) { return IS_IN(han, c) || (c >= 0x20000 && c <= 0x3134a); }
bool unicode_is_hangul(uint32_t c) { return IS_IN(hangul, c); }
bool unicode_is_kana(uint32_t c) { return IS_IN(kana, c); }
bool unicode_is_unprinted(uint32_t c) {
    if (c < 0x80) return c < ' ' || c == 0x7f;
    return c < 0x10000 ? IS_IN(unprinted, c) : c >= 0x40000 && (c < 0xe0100 || c > 0xe01ef);
}

unicode_class unicode_class_beyond_ascii(uint32_t c) {
    if (unicode_is_space(c)) return UNICODE_WHITE;
    const category_range *r = FIND(categories, c);
    return r ? r->class : UNICODE_OTHER;
}

int unicode_lower(uint32_t c, uint32_t out[2]) {
    out[0] = c;
    if (c < 0x80) {
        if (c >= 'A' && c <= 'Z') out[0] = c + 32;
        return 1;
    }
    if (c == 0x130) { /* with its dot: i and a combining dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    const lower_range *r = FIND(lower_case, c);
    if (r) out[0] = (uint32_t)((int64_t)c + r->delta);
    return 1;
}
