#include "data/normalizer.h"

#include <stdio.h>

/* ---- rules ---- */

/* Replaces `from` by `to`. In `from`, D is a digit, A an ASCII letter, P one of .!:?;, and S a run of spaces. In `to`, 1 and
 * 2 are the first and second character that matched D, A or P. */
typedef struct rule {
    const char *from, *to;
} rule;

#define NBSP "\u00a0"

static const rule spaces[] = {
    {"\r", ""},    {"(", " ("}, {")", ") "}, {"S", " "}, {") P", ")1"},  {"( ", "("}, {" )", ")"},
    {"D %", "1%"}, {" :", ":"}, {" ;", ";"}, {"`", "'"}, {"''", " \" "}, {0},
};
static const rule marks[] = {
    {"„", "\""}, {"“", "\""},    {"”", "\""},    {"–", "-"}, {"—", " - "}, {"S", " "},
    {"´", "'"},  {"A‘A", "1'2"}, {"A’A", "1'2"}, {"‘", "'"}, {"‚", "'"},   {0},
};
static const rule right_mark[] = {{"’", "'"}, {0}}, moses_right_mark[] = {{"’", "\""}, {0}};
static const rule double_marks[] = {{"''", "\""}, {"´´", "\""}, {"…", "..."}, {0}};
static const rule guillemets[] = {
    {NBSP "«" NBSP, "\""}, {"«" NBSP, "\""}, {"«", "\""}, {NBSP "»" NBSP, "\""}, {NBSP "»", "\""}, {"»", "\""}, {0},
};
static const rule moses_guillemets[] = {
    {NBSP "«" NBSP, " \""}, {"«" NBSP, "\""}, {"«", "\""}, {NBSP "»" NBSP, "\" "}, {NBSP "»", "\""}, {"»", "\""}, {0},
};
static const rule pseudo_spaces[] = {
    {NBSP "%", "%"},
    {"nº" NBSP, "nº "},
    {NBSP ":", ":"},
    {NBSP "ºC", " ºC"},
    {NBSP "cm", " cm"},
    {NBSP "?", "?"},
    {NBSP "!", "!"},
    {NBSP ";", ";"},
    {"," NBSP, ", "},
    {"S", " "},
    {0},
};
static const rule comma_quotes[] = {{",\"", "\","}, {0}};
static const rule decimal_comma[] = {{"D" NBSP "D", "1,2"}, {0}};
static const rule decimal_point[] = {{"D" NBSP "D", "1.2"}, {0}};

static bool is_class(uint32_t pattern, uint32_t c) {
    switch (pattern) {
        case 'D': return unicode_is_digit(c);
        case 'A': return c < 0x80 && unicode_is_letter(c);
        case 'P': return c < 0x80 && c && strchr(".!:?;,", (int)c);
        default: return false;
    }
}

static bool is_placeholder(uint32_t pattern) { return pattern == 'D' || pattern == 'A' || pattern == 'P'; }

/* Returns how many characters from i on a rule matches; 0: it does not. Stores what D, A and P matched in taken. */
static size_t match(const points *s, size_t i, text_slice from, uint32_t taken[2]) {
    size_t n = 0;
    for (int k = 0; from.n; n++) {
        const uint32_t pattern = unicode_next(&from);
        if (pattern == 'S') {
            while (i + n < s->n && s->at[i + n] == ' ') n++;
            return n;
        }
        if (i + n >= s->n) return 0;
        const uint32_t c = s->at[i + n];
        if (is_placeholder(pattern) ? !is_class(pattern, c) : c != pattern) return 0;
        if (is_placeholder(pattern) && k < 2) taken[k++] = c;
    }
    return n;
}

static void write_to(points *out, text_slice to, const uint32_t taken[2]) {
    while (to.n) {
        const uint32_t c = unicode_next(&to);
        points_add(out, c == '1' || c == '2' ? taken[c - '1'] : c);
    }
}

static void apply(normalizer *n, const rule *rules) {
    for (; rules->from; rules++) {
        const text_slice from = text_of(rules->from), to = text_of(rules->to);
        const uint32_t first = unicode_next(&(text_slice){from.bytes, from.n});
        const bool literal = !is_placeholder(first) && first != 'S';
        for (size_t i = 0; i < n->in.n;) {
            uint32_t taken[2] = {0};
            const bool may_match = !literal || n->in.at[i] == first; /* for speed */
            const size_t length = may_match ? match(&n->in, i, from, taken) : 0;
            if (length) write_to(&n->out, to, taken);
            else points_add(&n->out, n->in.at[i]);
            i += length ? length : 1;
        }
        points_swap(&n->in, &n->out);
    }
}

/* English: ", and ". become ," and ." */
static void quotes_after(normalizer *n) {
    const points *s = &n->in;
    for (size_t i = 0; i < s->n; i++) {
        size_t marks_behind = 0;
        while (s->at[i] == '"' && i + 1 + marks_behind < s->n &&
               (s->at[i + 1 + marks_behind] == ',' || s->at[i + 1 + marks_behind] == '.'))
            marks_behind++;
        for (size_t k = 1; k <= marks_behind; k++) points_add(&n->out, s->at[i + k]);
        points_add(&n->out, s->at[i]);
        i += marks_behind;
    }
    points_swap(&n->in, &n->out);
}

/* German, Spanish, French: ." becomes "., but not at the end of a line or before <. */
static void quotes_before_stops(normalizer *n) {
    const points *s = &n->in;
    for (size_t i = 0; i < s->n; i++) {
        size_t stops = 0, end;
        while (i + stops < s->n && s->at[i + stops] == '.') stops++;
        /* then ", white space, and any character but < */
        for (end = i + stops + 1; end < s->n && unicode_is_space(s->at[end]); end++) continue;
        bool found = stops && i + stops < s->n && s->at[i + stops] == '"';
        if (found && (end >= s->n || s->at[end] == '<')) {
            /* that character may be white space */
            found = end > i + stops + 1 || (n->moses && end >= s->n); /* or, for Moses, the end of the line */
            end--;
        }
        if (!found) {
            for (size_t k = 0; k < (stops ? stops : 1); k++) points_add(&n->out, s->at[i + k]);
            i += stops ? stops - 1 : 0;
            continue;
        }
        points_add(&n->out, '"');
        for (size_t k = 0; k < stops; k++) points_add(&n->out, '.');
        for (size_t k = i + stops + 1; k <= end; k++) points_add(&n->out, s->at[k]);
        i = end;
    }
    points_swap(&n->in, &n->out);
}

/* ---- all of them ---- */

static bool is_one_of(const normalizer *n, const char *languages) {
    const size_t length = strlen(n->language);
    for (const char *at = languages; (at = strstr(at, n->language)); at++) {
        if ((at == languages || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return length > 0;
    }
    return false;
}

void normalizer_start(normalizer *n, const char *language) {
    snprintf(n->language, sizeof n->language, "%s", language);
}

static char *finish(normalizer *n) {
    size_t from = 0, length;
    points *s = &n->in;
    while (s->n && unicode_is_space(s->at[s->n - 1])) s->n--;
    while (from < s->n && unicode_is_space(s->at[from])) from++;
    const points stripped = {s->n ? s->at + from : NULL, s->n - from, 0, s->failed};
    return points_utf8(&stripped, &length);
}

char *normalizer_line(normalizer *n, text_slice line) {
    n->in.n = n->out.n = 0;
    points_add_slice(&n->in, line);
    apply(n, spaces);
    apply(n, marks);
    apply(n, n->moses ? moses_right_mark : right_mark);
    apply(n, double_marks);
    apply(n, n->moses ? moses_guillemets : guillemets);
    apply(n, pseudo_spaces);
    if (is_one_of(n, "en")) quotes_after(n);
    if (is_one_of(n, "de es fr")) {
        apply(n, comma_quotes);
        quotes_before_stops(n);
    }
    apply(n, is_one_of(n, "de es cz cs fr") ? decimal_comma : decimal_point);
    return finish(n);
}

char *normalizer_lower(normalizer *n, text_slice line) {
    size_t length;
    n->in.n = 0;
    while (line.n) {
        uint32_t lower[2];
        const int count = unicode_lower(unicode_next(&line), lower);
        for (int i = 0; i < count; i++) points_add(&n->in, lower[i]);
    }
    return points_utf8(&n->in, &length);
}

enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };

/* Unicode's Final_Sigma: after a letter with case and not before one, ignoring marks and apostrophes in between. */
static bool ends_word(const points *s, size_t i) {
    size_t before = i, after = i + 1;
    while (before && unicode_is_case_ignorable(s->at[before - 1])) before--;
    while (after < s->n && unicode_is_case_ignorable(s->at[after])) after++;
    return before && unicode_is_cased(s->at[before - 1]) && (after == s->n || !unicode_is_cased(s->at[after]));
}

char *normalizer_lower_words(normalizer *n, text_slice line) {
    size_t length;
    n->in.n = n->out.n = 0;
    points_add_slice(&n->in, line);
    for (size_t i = 0; i < n->in.n; i++) {
        uint32_t lower[2];
        int count = unicode_lower(n->in.at[i], lower);
        if (n->in.at[i] == CAPITAL_SIGMA && ends_word(&n->in, i)) lower[0] = FINAL_SIGMA;
        for (int k = 0; k < count; k++) points_add(&n->out, lower[k]);
    }
    n->out.failed = n->out.failed || n->in.failed;
    return points_utf8(&n->out, &length);
}

void normalizer_free(normalizer *n) {
    points_free(&n->in);
    points_free(&n->out);
}
