/* libFuzzer target: trainer/data/corpus.c and vocab.c, on the bytes of two aligned text files, or of a vocabulary.
 *
 * An input is three bytes of options, then the source, a byte 0xff, and the target.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "data/corpus.h"
#include "core/error.h"

static void check_message(const char *msg) { require(strlen(msg) > 3 && is_line(msg)); }

/* Every pair obeys the options, and every line is accounted for. */
static void check_text(const corpus_text *text, const corpus_options *o) {
    const corpus_counts *r = &text->counts;
    require(text->n > 0 && text->n + r->empty + r->ratio + r->too_long == r->lines && r->truncated <= text->n);
    for (int64_t i = 0; i < text->n; i++) {
        text_slice src = corpus_sentence(&text->src, i), tgt = corpus_sentence(&text->tgt, i);
        int64_t n_src = text_count_tokens(text->unit, src), n_tgt = text_count_tokens(text->unit, tgt);
        require(!text_check(src, "s", i) && !text_check(tgt, "t", i));
        require(!memchr(src.bytes, '\n', src.n) && !memchr(tgt.bytes, '\n', tgt.n));
        require(n_src > 0 && n_tgt > 0);
        if (o->max_tokens) require(n_src <= o->max_tokens && n_tgt <= o->max_tokens);
        if (o->max_ratio > 0 && !r->truncated)
            require((double)n_src <= o->max_ratio * (double)n_tgt && (double)n_tgt <= o->max_ratio * (double)n_src);
    }
}

/* Without unknown tokens, the ids of a sentence decode to it: exactly for characters, to the same words for words. */
static void check_decoding(const corpus_text *text, const corpus_lines *lines, const corpus_side *side,
                           const vocab *v) {
    for (int64_t i = 0; i < text->n; i++) {
        text_slice expected = corpus_sentence(lines, i), a, b;
        const int32_t *ids = side->ids + side->at[i];
        int64_t n = corpus_length(side, i);
        size_t length = vocab_decode(v, text->unit, ids, n, NULL, 0);
        char *out = malloc(length + 1);
        require(out && vocab_decode(v, text->unit, ids, n, out, length + 1) == length && strlen(out) == length);
        text_slice found = {out, length};
        while (!side->unknown && text_next_token(text->unit, &expected, &a)) {
            require(text_next_token(text->unit, &found, &b));
            require(a.n == b.n && !memcmp(a.bytes, b.bytes, a.n));
        }
        require(side->unknown || !found.n);
        free(out);
    }
}

static void check_ids(const corpus_text *text, const vocab_options *options) {
    vocab *v;
    corpus c;
    require(!corpus_vocab(text, CORPUS_SOURCE | CORPUS_TARGET, options, &v));
    require(!options->max_size || vocab_size(v) <= options->max_size);
    for (int32_t id = VOCAB_SPECIALS; id < vocab_size(v); id++) require(vocab_find(v, vocab_token(v, id)) == id);
    require(!corpus_encode(&c, text, v, v));
    check_decoding(text, &text->src, &c.src, v);
    check_decoding(text, &text->tgt, &c.tgt, v);
    corpus_free(&c);
    vocab_free(v);
}

static void check_vocabulary(text_slice bytes) {
    vocab *v;
    if (vocab_parse(&v, bytes, "f")) {
        require(!v && adamod__last_message()[0] == 'f' && adamod__last_message()[1] == ':');
        check_message(adamod__last_message());
        return;
    }
    size_t length = 0;
    for (int32_t id = 0; id < vocab_size(v); id++) {
        text_slice token = vocab_token(v, id);
        require(token.n > 0 && (id < VOCAB_SPECIALS || vocab_find(v, token) == id));
        length += token.n + 1;
    }
    require(length == bytes.n);
    vocab_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    corpus_text text;
    if (size < 3) return 0;
    corpus_options options = {.unit = data[0] & 1 ? TEXT_CHARACTERS : TEXT_WORDS,
                              .empty = data[0] & 2 ? CORPUS_SKIP : CORPUS_REFUSE,
                              .too_long = (corpus_rule)((data[0] >> 2) % 3),
                              .max_tokens = data[1] % 16,
                              .max_ratio = data[0] & 64 ? 1.5 : 0};
    const char *rest = (const char *)data + 3, *split = memchr(rest, 0xff, size - 3);
    size_t n = size - 3, n_src = split ? (size_t)(split - rest) : n;
    corpus_file src = {"f", {rest, n_src}}, tgt = {"f", split ? (text_slice){split + 1, n - n_src - 1} : src.bytes};
    check_vocabulary(src.bytes);
    if (corpus_parse(&text, &src, &tgt, &options)) {
        require(!text.n && !text.src.bytes && !text.tgt.bytes && adamod__last_message()[0] == 'f');
        check_message(adamod__last_message());
        return 0;
    }
    check_text(&text, &options);
    check_ids(&text,
              &(vocab_options){.min_count = data[2] % 4, .max_size = data[2] & 64 ? 3 + (data[2] >> 2) % 16 + 1 : 0});
    corpus_text_free(&text);
    return 0;
}
