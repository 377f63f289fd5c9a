#include "data/unicode.h"

typedef struct unicode_range {
    uint16_t first, last, step;
} unicode_range;

#include "data/unicode_tables.inc.h"

#define COUNT(table) (sizeof table / sizeof *table)

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

static bool is_in(const unicode_range *table, size_t n, uint32_t c) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c > table[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < n && c >= table[low].first && (c - table[low].first) % table[low].step == 0;
}

bool unicode_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool unicode_is_digit(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : is_in(digits, COUNT(digits), c); }
bool unicode_is_number(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : is_in(numbers, COUNT(numbers), c); }
bool unicode_is_letter(uint32_t c) {
    return c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : is_in(letters, COUNT(letters), c);
}
bool unicode_is_small(uint32_t c) {
    return c < 0x80 ? c >= 'a' && c <= 'z' : is_in(small_letters, COUNT(small_letters), c);
}
bool unicode_is_cased(uint32_t c) {
    return c < 0x80 ? (c | 0x20) >= 'a' && (c | 0x20) <= 'z' : is_in(cased, COUNT(cased), c);
}
bool unicode_is_case_ignorable(uint32_t c) { return is_in(case_ignorable, COUNT(case_ignorable), c); }
bool unicode_is_currency(uint32_t c) { return is_in(currencies, COUNT(currencies), c); }
bool unicode_is_han(uint32_t c) { return is_in(han, COUNT(han), c) || (c >= 0x20000 && c <= 0x3134a); }
bool unicode_is_hangul(uint32_t c) { return is_in(hangul, COUNT(hangul), c); }
bool unicode_is_kana(uint32_t c) { return is_in(kana, COUNT(kana), c); }
bool unicode_is_unprinted(uint32_t c) {
    if (c < 0x80) return c < ' ' || c == 0x7f;
    return c < 0x10000 ? is_in(unprinted, COUNT(unprinted), c) : c >= 0x40000 && (c < 0xe0100 || c > 0xe01ef);
}

unicode_class unicode_class_beyond_ascii(uint32_t c) {
    if (unicode_is_space(c)) return UNICODE_WHITE;
    size_t low = 0, high = COUNT(categories);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c > categories[middle].last) low = middle + 1;
        else high = middle;
    }
    return low < COUNT(categories) && c >= categories[low].first ? categories[low].class : UNICODE_OTHER;
}

int unicode_lower(uint32_t c, uint32_t out[2]) {
    size_t low = 0, high = COUNT(lower_case);
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
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c > lower_case[middle].last) low = middle + 1;
        else high = middle;
    }
    if (low < COUNT(lower_case) && c >= lower_case[low].first &&
        (c - lower_case[low].first) % (uint32_t)lower_case[low].step == 0) {
        out[0] = (uint32_t)((int64_t)c + lower_case[low].delta);
    }
    return 1;
}
