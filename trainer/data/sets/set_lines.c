#include "data/sets/set_lines.h"

#include <stdlib.h>
#include <string.h>

/* ---- which lines ---- */

static bool holds(text_slice line, const char *part) {
    const size_t n = strlen(part);
    for (size_t i = 0; i + n <= line.n; i++) {
        if (memcmp(line.bytes + i, part, n) == 0) return true;
    }
    return false;
}

static bool is_sentence(text_slice line) {
    return !holds(line, "<url>") && !holds(line, "<talkid>") && !holds(line, "<keywords>");
}
static bool is_segment(text_slice line) { return holds(line, "<seg id"); }

/* ---- what they become ---- */

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Removes <seg id="12"> with the spaces after it, and </seg> with the spaces around it. */
static void strip_segment(char *line) {
    char *to = line;
    for (const char *at = line; *at;) {
        static const char open[] = "<seg id=\"", close[] = "</seg>";
        if (strncmp(at, open, sizeof open - 1) == 0) {
            const size_t digits = strspn(at + sizeof open - 1, "0123456789");
            const char *end = at + sizeof open - 1 + digits;
            if (end[0] == '"' && end[1] == '>') {
                for (at = end + 2; is_blank(*at); at++) {}
                continue;
            }
        } else if (strncmp(at, close, sizeof close - 1) == 0) {
            while (to > line && is_blank(to[-1])) to--;
            for (at += sizeof close - 1; is_blank(*at); at++) {}
            continue;
        }
        *to++ = *at++;
    }
    *to = 0;
}

/* A copy with a space for each byte that is zero or not UTF-8; NULL: out of memory. */
static char *mend(text_slice line, atomic_int *mended) {
    char *text = malloc(line.n + 1), *to = text;
    bool whole = true;
    if (!text) return NULL;
    while (line.n) {
        const size_t n = *line.bytes ? text_code_point(line) : 0, step = n ? n : 1;
        if (n) memcpy(to, line.bytes, n);
        else *to = ' ';
        whole = whole && n;
        to += step;
        line = (text_slice){line.bytes + step, line.n - step};
    }
    *to = 0;
    if (!whole) atomic_fetch_add(mended, 1);
    return text;
}

typedef struct line_worker {
    set_lines_kind kind;
    atomic_int *mended;
    text_chain *chain;
} line_worker;

static void close_worker(void *worker) {
    line_worker *w = worker;
    if (w) text_chain_free(w->chain);
    free(w);
}

static void *open_worker(const void *options) {
    const set_lines *lines = options;
    line_worker *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->kind = lines->kind;
    w->mended = (atomic_int *)&lines->mended; /* not const: see set_lines_map */
    if ((w->chain = text_chain_create(&lines->chain))) return w;
    free(w);
    return NULL;
}

static void replace_all(char *line, const char *const (*pairs)[2]) {
    for (; (*pairs)[0]; pairs++) line[text_replace(line, strlen(line), (*pairs)[0], (*pairs)[1])] = 0;
}

static char *run_line(void *worker, text_slice line) {
    static const char *const tags[][2] = {
        {"<title>", ""}, {"</title>", ""}, {"<description>", ""}, {"</description>", ""}, {NULL}};
    static const char *const right_mark[][2] = {{"\u2019", "'"}, {NULL}};
    static const char *const entities[][2] = {{"&lt;", "<"},   {"&gt;", ">"},  {"&quot;", "\""},
                                              {"&apos;", "'"}, {"&amp;", "&"}, {NULL}};
    line_worker *w = worker;
    char *text = mend(line, w->mended);
    if (!text) return NULL;
    if (w->kind == SET_TALKS) replace_all(text, tags);
    if (w->kind == SET_SEGMENTS || w->kind == SET_RAW) strip_segment(text);
    if (w->kind == SET_SEGMENTS) replace_all(text, right_mark);
    if (w->kind == SET_RAW) {
        replace_all(text, entities);
        return text;
    }
    char *tokens = text_chain_split(w->chain, text_of(text));
    free(text);
    return tokens;
}

line_map set_lines_map(set_lines *lines, int threads) {
    return (line_map){.threads = threads,
                      .any = true,
                      .keeps = lines->kind == SET_TALKS   ? is_sentence
                               : lines->kind == SET_LINES ? NULL
                                                          : is_segment,
                      .open = open_worker,
                      .close = close_worker,
                      .options = lines,
                      .run = run_line};
}
