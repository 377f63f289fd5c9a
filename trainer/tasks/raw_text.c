#include "tasks/raw_text.h"

#include "core/buffer.h"
#include "core/error.h"
#include "data/text_input.h"
#include "train/task.h"

#include <stdlib.h>
#include <string.h>

int raw_text_open(raw_text *r, const text_chain_options sides[RAW_SIDES]) {
    *r = (raw_text){0};
    for (int i = 0; i < RAW_SIDES; i++) {
        if ((r->chains[i] = text_chain_create(&sides[i]))) continue;
        raw_text_close(r);
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a tokenizer");
    }
    return 0;
}

void raw_text_close(raw_text *r) {
    for (int i = 0; i < RAW_SIDES; i++) text_chain_free(r->chains[i]);
    subword_codes_close(&r->codes);
    *r = (raw_text){0};
}

/* ---- lines ---- */

static void add_line(adamod__buffer *b, text_slice line) {
    adamod__buffer_add(b, line.bytes, line.n);
    adamod__buffer_text(b, "\n");
}

static text_slice slice_of(const adamod__buffer *b) { return (text_slice){b->text, b->n}; }

/* Reads the lines of one side and their tokens. */
static int read_side(raw_text *r, int side, const char *path, adamod__buffer *raw, adamod__buffer *tokens) {
    text_input *in;
    text_slice line;
    int got, failed = 0;
    if (text_input_open(&in, path)) return -1;
    while (!failed && (got = text_input_line(in, &line))) {
        if ((failed = got < 0)) break;
        char *split = text_chain_split(r->chains[side], line);
        add_line(raw, line);
        if (split) add_line(tokens, text_of(split));
        failed = !split || raw->failed || tokens->failed;
        free(split);
        if (failed) adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path);
    }
    text_input_close(in);
    return failed ? -1 : 0;
}

static int learn(raw_text *r, const adamod__buffer tokens[RAW_SIDES], int64_t merges) {
    bpe_learner *l = bpe_learner_create();
    bool failed = !l;
    for (int i = 0; i < RAW_SIDES && !failed; i++) {
        text_slice rest = slice_of(&tokens[i]);
        for (text_slice line; !failed && text_next_line(&rest, &line);) failed = bpe_learner_add(l, line) != 0;
    }
    if (failed) bpe_learner_free(l);
    return subword_codes_learn(&r->codes, failed ? NULL : l, merges);
}

static int apply(raw_text *r, const adamod__buffer *tokens, adamod__buffer *out) {
    text_slice rest = slice_of(tokens);
    for (text_slice line; text_next_line(&rest, &line);) {
        char *split = bpe_apply(r->codes.worker, line);
        if (split) add_line(out, text_of(split));
        free(split);
        if (!split || out->failed) return -1;
    }
    return 0;
}

/* ---- pairs ---- */

enum { RAW, SUBWORDS, KINDS };

/* Drops pairs with a side without a token; returns how many, -1: out of memory. */
static int64_t drop_empty(adamod__buffer text[KINDS][RAW_SIDES]) {
    enum { ALL = KINDS * RAW_SIDES };
    adamod__buffer *all = text[0], kept[ALL] = {{0}};
    text_slice rest[ALL], line[ALL], *subwords = line + SUBWORDS * RAW_SIDES;
    int64_t dropped = 0;
    bool more = true, failed = false;
    for (int i = 0; i < ALL; i++) rest[i] = slice_of(&all[i]);
    for (;;) {
        for (int i = 0; i < ALL; i++) more = text_next_line(&rest[i], &line[i]) && more;
        if (!more) break;
        const bool empty = !text_count_tokens(TEXT_WORDS, subwords[RAW_SOURCE]) ||
                           !text_count_tokens(TEXT_WORDS, subwords[RAW_TARGET]);
        dropped += empty;
        for (int i = 0; i < ALL && !empty; i++) add_line(&kept[i], line[i]);
    }
    for (int i = 0; i < ALL; i++) failed |= kept[i].failed;
    for (int i = 0; i < ALL; i++) {
        adamod__buffer_free(failed ? &kept[i] : &all[i]);
        if (!failed) all[i] = kept[i];
    }
    return failed ? -1 : dropped;
}

static int parse_kind(adamod__buffer text[RAW_SIDES], const char *const paths[RAW_SIDES], const corpus_options *o,
                      corpus_text *out) {
    const corpus_file src = {paths[RAW_SOURCE], slice_of(&text[RAW_SOURCE])},
                      tgt = {paths[RAW_TARGET], slice_of(&text[RAW_TARGET])};
    return corpus_parse(out, &src, &tgt, o);
}

static int parse_pairs(adamod__buffer text[KINDS][RAW_SIDES], const char *const paths[RAW_SIDES],
                       const corpus_options *o, corpus_text *out, corpus_text *kept) {
    const bool aligned = text_count_lines(slice_of(&text[RAW][0])) == text_count_lines(slice_of(&text[RAW][1]));
    int64_t dropped = 0;
    if (kept && aligned && o->empty == CORPUS_SKIP && (dropped = drop_empty(text)) < 0)
        return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", paths[RAW_SOURCE]);
    if (dropped && !text[RAW][RAW_SOURCE].n)
        return adamod__refuse("%s: none of %lld lines left: all are empty here or in %s", paths[RAW_SOURCE],
                              (long long)dropped, paths[RAW_TARGET]);
    if (parse_kind(text[SUBWORDS], paths, o, out)) return -1;
    out->counts.lines += dropped;
    out->counts.empty += dropped;
    if (!kept) return 0;
    const corpus_options as_is = {.unit = TEXT_WORDS, .empty = CORPUS_REFUSE};
    if (parse_kind(text[RAW], paths, &as_is, kept) == 0 && kept->n == out->n) return 0;
    if (kept->n) adamod__refuse("%s: pairs were left out", paths[RAW_SOURCE]); /* never happens */
    corpus_text_free(kept);
    corpus_text_free(out);
    return -1;
}

int raw_text_load(raw_text *r, const char *source, const char *target, int64_t merges, const corpus_options *options,
                  corpus_text *out, corpus_text *kept, uint64_t hashes[RAW_SIDES]) {
    const char *const paths[RAW_SIDES] = {source, target};
    adamod__buffer text[KINDS][RAW_SIDES] = {{{0}}}, tokens[RAW_SIDES] = {{0}};
    int failed = 0;
    for (int i = 0; i < RAW_SIDES && !failed; i++) failed = read_side(r, i, paths[i], &text[RAW][i], &tokens[i]);
    for (int i = 0; i < RAW_SIDES && !failed; i++) hashes[i] = fingerprint_data(0, text[RAW][i].text, text[RAW][i].n);
    if (!failed && !subword_codes_exist(&r->codes)) failed = learn(r, tokens, merges);
    for (int i = 0; i < RAW_SIDES && !failed; i++) {
        if (apply(r, &tokens[i], &text[SUBWORDS][i]))
            failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", paths[i]);
    }
    if (!failed) failed = parse_pairs(text, paths, options, out, kept);
    for (int i = 0; i < RAW_SIDES; i++) {
        adamod__buffer_free(&tokens[i]);
        for (int k = 0; k < KINDS; k++) adamod__buffer_free(&text[k][i]);
    }
    return failed ? -1 : 0;
}

/* ---- one sentence ---- */

char *raw_text_split(raw_text *r, text_slice line) {
    char *tokens = text_chain_split(r->chains[RAW_SOURCE], line);
    char *subwords = tokens ? bpe_apply(r->codes.worker, text_of(tokens)) : NULL;
    free(tokens);
    return subwords;
}

void raw_text_unite(char *subwords) {
    static const char separator[] = "@@ ";
    const size_t length = sizeof separator - 1;
    char *to = subwords;
    for (const char *at = subwords; *at;) {
        if (strncmp(at, separator, length) == 0) at += length;
        else if (strcmp(at, "@@") == 0) at += 2; /* an output that was cut */
        else *to++ = *at++;
    }
    *to = 0;
}

char *raw_text_join(raw_text *r, const char *subwords) {
    char *tokens = strdup(subwords);
    if (!tokens) return NULL;
    raw_text_unite(tokens);
    char *text = text_chain_join(r->chains[RAW_TARGET], text_of(tokens));
    free(tokens);
    return text;
}
