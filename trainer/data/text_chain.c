#include "data/text_chain.h"

#include "data/normalizer.h"
#include "data/tokenizer.h"
#include "data/unicode.h"

#include <stdlib.h>
#include <string.h>

struct text_chain {
    bool normalize, lower;
    normalizer normalizer;
    tokenizer *tokenizer;
};

text_chain *text_chain_create(const text_chain_options *o) {
    text_chain *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->normalize = o->normalize;
    c->lower = o->lower;
    normalizer_start(&c->normalizer, o->language);
    c->normalizer.moses = true;
    c->tokenizer = tokenizer_create(&(tokenizer_options){
        .language = o->language, .plain = o->plain, .split_hyphens = o->split_hyphens, .split_last = o->split_last});
    if (c->tokenizer) return c;
    text_chain_free(c);
    return NULL;
}

void text_chain_free(text_chain *c) {
    if (!c) return;
    normalizer_free(&c->normalizer);
    tokenizer_free(c->tokenizer);
    free(c);
}

/* Replaces unprintable characters by spaces, in place. */
static void blank_unprinted(char *line) {
    text_slice rest = text_of(line);
    char *to = line;
    while (rest.n) {
        const char *from = rest.bytes;
        const bool unprinted = unicode_is_unprinted(unicode_next(&rest));
        const size_t n = unprinted ? 1 : (size_t)(rest.bytes - from);
        if (unprinted) *to = ' ';
        else memmove(to, from, n);
        to += n;
    }
    *to = 0;
}

char *text_chain_split(text_chain *c, text_slice line) {
    char *text = NULL, *tokens, *lower;
    if (c->normalize) {
        if (!(text = normalizer_line(&c->normalizer, line))) return NULL;
        blank_unprinted(text);
        line = text_of(text);
    }
    tokens = tokenizer_split(c->tokenizer, line);
    free(text);
    if (!tokens || !c->lower) return tokens;
    lower = normalizer_lower(&c->normalizer, text_of(tokens));
    free(tokens);
    return lower;
}

char *text_chain_join(text_chain *c, text_slice tokens) { return tokenizer_join(c->tokenizer, tokens); }
