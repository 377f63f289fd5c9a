/* The rules of 13a are about ASCII alone, so they work on bytes. */
#include "data/score_tokens.h"

#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

static size_t without_entities(char *s, size_t n) {
    n = text_replace(s, n, "<skipped>", "");
    n = text_replace(s, n, "&quot;", "\"");
    n = text_replace(s, n, "&amp;", "&");
    n = text_replace(s, n, "&lt;", "<");
    return text_replace(s, n, "&gt;", ">");
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_point(char c) { return c == '.' || c == ','; }

static bool is_symbol(char c) {
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
           (c >= ':' && c <= '@') || c == '/';
}

/* Each pass reads n bytes of in and writes at most three times as many to out. */
static size_t pad_symbols(const char *in, size_t n, char *out) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_symbol(in[i])) out[m++] = ' ';
        out[m++] = in[i];
        if (is_symbol(in[i])) out[m++] = ' ';
    }
    return m;
}

/* Puts spaces around each of the marks that follows a digit (digit) or a character other than a digit. */
static size_t pad_after(const char *in, size_t n, char *out, bool digit, const char *marks) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        out[m++] = in[i];
        if (is_digit(in[i]) != digit || i + 1 == n || !in[i + 1] || !strchr(marks, in[i + 1])) continue;
        out[m++] = ' ';
        out[m++] = in[++i];
        out[m++] = ' ';
    }
    return m;
}

/* Puts spaces around each point or comma that is followed by a character other than a digit. */
static size_t points_before_others(const char *in, size_t n, char *out) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const bool split = is_point(in[i]) && i + 1 < n && !is_digit(in[i + 1]);
        if (split) out[m++] = ' ';
        out[m++] = in[i];
        if (!split) continue;
        out[m++] = ' ';
        out[m++] = in[++i];
    }
    return m;
}

static text_slice strip_end(text_slice line) {
    for (size_t n = line.n; n;) {
        while (n && ((unsigned char)line.bytes[n - 1] & 0xc0) == 0x80) n--;
        text_slice last = {line.bytes + (n ? n - 1 : 0), line.n - (n ? n - 1 : 0)};
        if (!n || !unicode_is_space(unicode_next(&last))) break;
        line.n = --n;
    }
    return line;
}

static char *split_13a(text_slice line) {
    char *a = malloc(32 * line.n + 64), *b = malloc(32 * line.n + 64);
    if (a && b) {
        size_t n = 0;
        a[n++] = ' ';
        if (line.n) memcpy(a + n, line.bytes, line.n);
        n += without_entities(a + n, line.n);
        a[n++] = ' ';
        n = pad_symbols(a, n, b);
        n = pad_after(b, n, a, false, ".,");
        n = points_before_others(a, n, b);
        n = pad_after(b, n, a, true, "-");
        a[n] = 0;
    }
    free(b);
    if (b) return a;
    free(a);
    return NULL;
}

static char *split_characters(text_slice line) {
    char *out = malloc(2 * line.n + 1);
    size_t n = 0;
    while (out && line.n) {
        const char *at = line.bytes;
        unicode_next(&line);
        const size_t length = (size_t)(line.bytes - at);
        memcpy(out + n, at, length);
        n += length;
        out[n++] = ' ';
    }
    if (out) out[n] = 0;
    return out;
}

char *score_split(score_tokens how, text_slice line) {
    line = strip_end(line);
    if (how == SCORE_13A) return split_13a(line);
    return how == SCORE_CHAR ? split_characters(line) : strndup(line.bytes ? line.bytes : "", line.n);
}
