#include "support/json_input.h"

#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 32 };

json_input json_input_of(const char *text, size_t n) { return (json_input){text, text, text + n, NULL}; }

static bool fail(json_input *in, const char *expected) {
    if (!in->expected) in->expected = expected;
    return false;
}

/* The next character that is not white space, or 0. */
static char peek(json_input *in) {
    while (in->at < in->end && *in->at && strchr(" \t\r\n", *in->at)) in->at++;
    return !in->expected && in->at < in->end ? *in->at : '\0';
}

static bool take(json_input *in, char c) {
    if (peek(in) != c) return false;
    in->at++;
    return true;
}

bool json_input_enter(json_input *in, char bracket) {
    if (!take(in, bracket)) return fail(in, bracket == '{' ? "an object" : "an array");
    return !take(in, bracket == '{' ? '}' : ']');
}

bool json_input_next(json_input *in, char bracket) {
    if (in->expected || take(in, bracket)) return false;
    return take(in, ',') || fail(in, bracket == '}' ? "',' or '}'" : "',' or ']'");
}

void json_input_end(json_input *in) {
    if (!in->expected && (peek(in) || in->at < in->end)) (void)fail(in, "nothing more");
}

/* ---- Strings ----------------------------------------------------------------------------------------------------- */

/* Output text; full from the first character on that did not fit, so that no shorter one is added after a gap. */
typedef struct sink {
    char *out;
    size_t size, n;
    bool full;
} sink;

static void put(sink *to, const char *bytes, size_t n) {
    if (to->n + n >= to->size) to->full = true;
    if (to->full) return;
    memcpy(to->out + to->n, bytes, n);
    to->n += n;
}

static void put_code(sink *to, unsigned code) {
    char bytes[4];
    put(to, bytes, text_put_code_point(code ? code : 0xfffd, bytes));
}

/* Takes four hexadecimal digits; -1: there are none. */
static long hex4(json_input *in) {
    long code = 0;
    if (in->end - in->at < 4) return -1;
    for (int i = 0; i < 4; i++, in->at++) {
        const char c = *in->at;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* Takes what follows "\u". A character beyond U+FFFF has two such escapes. */
static bool take_unicode(json_input *in, sink *to) {
    long code = hex4(in);
    if (code >= 0xd800 && code < 0xdc00 && in->end - in->at > 2 && in->at[0] == '\\' && in->at[1] == 'u') {
        in->at += 2;
        const long low = hex4(in);
        if (low < 0xdc00 || low > 0xdfff) return fail(in, "the second half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code < 0 || (code >= 0xd800 && code < 0xe000)) return fail(in, "a code point of four hexadecimal digits");
    put_code(to, (unsigned)code);
    return true;
}

static bool take_escape(json_input *in, sink *to) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter = in->at < in->end && *in->at ? strchr(letters, *in->at) : NULL;
    if (letter) {
        put(to, &meanings[letter - letters], 1);
        in->at++;
        return true;
    }
    if (in->at == in->end || *in->at != 'u') return fail(in, "an escape");
    in->at++;
    return take_unicode(in, to);
}

static bool take_string(json_input *in, sink *to) {
    if (!take(in, '"')) return fail(in, "a string");
    while (in->at < in->end && *in->at != '"') {
        if (*in->at == '\\') {
            in->at++;
            if (!take_escape(in, to)) return false;
            continue;
        }
        const size_t n = text_code_point((text_slice){in->at, (size_t)(in->end - in->at)});
        if (!n || (unsigned char)*in->at < 0x20) return fail(in, "UTF-8 without control characters");
        put(to, in->at, n);
        in->at += n;
    }
    if (in->at == in->end) return fail(in, "the end of a string");
    in->at++;
    return true;
}

void json_input_text(json_input *in, char *out, size_t size) {
    sink to = {.out = out, .size = size};
    if (!take_string(in, &to)) to.n = 0;
    out[to.n] = '\0';
}

void json_input_key(json_input *in, char *out, size_t size) {
    json_input_text(in, out, size);
    if (!in->expected && !take(in, ':')) (void)fail(in, "':'");
}

/* ---- Other values ------------------------------------------------------------------------------------------------ */

static bool take_digits(json_input *in) {
    const char *begin = in->at;
    while (in->at < in->end && *in->at >= '0' && *in->at <= '9') in->at++;
    return in->at > begin;
}

static bool take_one_of(json_input *in, const char *set) {
    if (in->at == in->end || !*in->at || !strchr(set, *in->at)) return false;
    in->at++;
    return true;
}

/* Takes "-0.5e+3", but not hexadecimal, "inf" or a leading "+", which strtod would accept. */
static bool take_number(json_input *in) {
    (void)peek(in);
    (void)take_one_of(in, "-");
    if (!take_one_of(in, "0") && !take_digits(in)) return fail(in, "a number");
    if (take_one_of(in, ".") && !take_digits(in)) return fail(in, "digits after the point");
    if (!take_one_of(in, "eE")) return true;
    (void)take_one_of(in, "+-");
    return take_digits(in) || fail(in, "digits of an exponent");
}

static bool take_word(json_input *in, const char *word) {
    const size_t n = strlen(word);
    if (!peek(in) || (size_t)(in->end - in->at) < n || memcmp(in->at, word, n) != 0) return false;
    in->at += n;
    return true;
}

static void copy(const char *begin, const char *end, char *out, size_t size) {
    const size_t n = (size_t)(end - begin) < size ? (size_t)(end - begin) : size - 1;
    memcpy(out, begin, n);
    out[n] = '\0';
}

double json_input_number(json_input *in) {
    char digits[64];
    if (in->expected || take_word(in, "null")) return NAN;
    (void)peek(in);
    const char *begin = in->at;
    if (!take_number(in)) return NAN;
    if ((size_t)(in->at - begin) >= sizeof digits) (void)fail(in, "a number of fewer digits");
    copy(begin, in->at, digits, sizeof digits); /* the text itself need not end with a zero byte */
    return strtod(digits, NULL);
}

bool json_input_flag(json_input *in) {
    if (take_word(in, "true")) return true;
    return !take_word(in, "false") && fail(in, "true or false");
}

void json_input_scalar(json_input *in, char *out, size_t size) {
    const char first = peek(in), *begin = in->at;
    out[0] = '\0';
    if (first == '"') json_input_text(in, out, size);
    else if (first == '{' || first == '[') json_input_skip(in);
    else if (take_word(in, "true") || take_word(in, "false") || take_word(in, "null") || take_number(in)) {
        copy(begin, in->at, out, size);
    }
}

static void skip(json_input *in, int depth) {
    const char first = peek(in);
    char ignored[1];
    if (first != '{' && first != '[') {
        sink nowhere = {ignored, sizeof ignored, 0, true};
        if (first == '"') (void)take_string(in, &nowhere);
        else json_input_scalar(in, ignored, sizeof ignored);
        return;
    }
    if (depth == DEEPEST) {
        (void)fail(in, "values that are not nested so deep");
        return;
    }
    const char last = first == '{' ? '}' : ']';
    for (bool more = json_input_enter(in, first); more; more = json_input_next(in, last)) {
        if (first == '{') json_input_key(in, ignored, sizeof ignored);
        skip(in, depth + 1);
    }
}

void json_input_skip(json_input *in) { skip(in, 0); }
