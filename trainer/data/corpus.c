#include "data/corpus.h"

#include "core/buffer.h"
#include "core/error.h"
#include "data/number_words.h"
#include "data/shuffle.h"
#include "data/text_input.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pairs of text ----------------------------------------------------------------------------------------------- */

void corpus_text_free(corpus_text *text) {
    free(text->src.bytes);
    free(text->src.at);
    free(text->tgt.bytes);
    free(text->tgt.at);
    *text = (corpus_text){0};
}

/* Builds a text of up to n pairs. */
typedef struct builder {
    corpus_text *text;
    adamod__buffer src, tgt;
} builder;

static int builder_start(builder *b, corpus_text *text, text_unit unit, int64_t n) {
    *text = (corpus_text){.unit = unit};
    *b = (builder){.text = text};
    text->src.at = calloc((size_t)n + 1, sizeof *text->src.at);
    text->tgt.at = calloc((size_t)n + 1, sizeof *text->tgt.at);
    return text->src.at && text->tgt.at ? 0 : -1;
}

static int append(corpus_lines *lines, int64_t i, adamod__buffer *bytes, text_slice line) {
    adamod__buffer_add(bytes, line.bytes, line.n);
    lines->bytes = bytes->text;
    lines->at[i + 1] = (int64_t)bytes->n;
    return bytes->failed ? -1 : 0;
}

static int builder_add(builder *b, text_slice src, text_slice tgt) {
    corpus_text *text = b->text;
    if (append(&text->src, text->n, &b->src, src) || append(&text->tgt, text->n, &b->tgt, tgt)) return -1;
    text->n++;
    return 0;
}

/* ---- Two aligned files ------------------------------------------------------------------------------------------- */

typedef struct reader {
    const corpus_file *src, *tgt;
    const corpus_options *options;
    builder to;
} reader;

static text_slice without_return(text_slice line) {
    return (text_slice){line.bytes, line.n - (line.n && line.bytes[line.n - 1] == '\r')};
}

static int blank(text_slice line) {
    text_slice word;
    return !text_next_token(TEXT_WORDS, &line, &word);
}

static text_slice truncate_line(text_unit unit, text_slice line, int64_t max_tokens) {
    text_slice rest = line, token = {line.bytes, 0};
    for (int64_t i = 0; i < max_tokens; i++) (void)text_next_token(unit, &rest, &token);
    return (text_slice){line.bytes, (size_t)(token.bytes + token.n - line.bytes)};
}

/* The filters return 1 if the pair is skipped. */
static int filter_empty(reader *r, int64_t number, text_slice src, text_slice tgt) {
    int src_blank = blank(src);
    if (!src_blank && !blank(tgt)) return 0;
    r->to.text->counts.empty++;
    if (r->options->empty == CORPUS_SKIP) return 1;
    return adamod__refuse("%s:%" PRId64 ": empty line, expected a sentence", src_blank ? r->src->name : r->tgt->name,
                          number);
}

static int filter_ratio(reader *r, int64_t src_tokens, int64_t tgt_tokens) {
    int64_t longer = src_tokens > tgt_tokens ? src_tokens : tgt_tokens;
    int64_t shorter = src_tokens > tgt_tokens ? tgt_tokens : src_tokens;
    int skip = r->options->max_ratio > 0 && (double)longer > r->options->max_ratio * (double)shorter;
    r->to.text->counts.ratio += skip;
    return skip;
}

static int filter_long(reader *r, int64_t number, int64_t src_tokens, int64_t tgt_tokens, text_slice *src,
                       text_slice *tgt) {
    int64_t max = r->options->max_tokens;
    int src_long = src_tokens > max;
    corpus_counts *counts = &r->to.text->counts;
    if (!max || (!src_long && tgt_tokens <= max)) return 0;
    if (r->options->too_long == CORPUS_TRUNCATE) {
        counts->truncated++;
        if (src_long) *src = truncate_line(r->options->unit, *src, max);
        if (tgt_tokens > max) *tgt = truncate_line(r->options->unit, *tgt, max);
        return 0;
    }
    counts->too_long++;
    if (r->options->too_long == CORPUS_SKIP) return 1;
    return adamod__refuse("%s:%" PRId64 ": %" PRId64 " tokens, expected at most %" PRId64,
                          src_long ? r->src->name : r->tgt->name, number, src_long ? src_tokens : tgt_tokens, max);
}

static int read_pair(reader *r, int64_t number, text_slice src, text_slice tgt) {
    if (text_check(src, r->src->name, number)) return -1;
    if (text_check(tgt, r->tgt->name, number)) return -1;
    int skip = filter_empty(r, number, src, tgt);
    if (skip) return skip < 0 ? -1 : 0;
    int64_t src_tokens = text_count_tokens(r->options->unit, src),
            tgt_tokens = text_count_tokens(r->options->unit, tgt);
    skip = filter_ratio(r, src_tokens, tgt_tokens);
    if (!skip) skip = filter_long(r, number, src_tokens, tgt_tokens, &src, &tgt);
    if (skip) return skip < 0 ? -1 : 0;
    return builder_add(&r->to, src, tgt) ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", r->src->name) : 0;
}

static int read_pairs(reader *r, text_slice src, text_slice tgt) {
    corpus_text *text = r->to.text;
    text_slice src_line, tgt_line;
    while (text_next_line(&src, &src_line) && text_next_line(&tgt, &tgt_line))
        if (read_pair(r, ++text->counts.lines, without_return(src_line), without_return(tgt_line))) return -1;
    if (text->n) return 0;
    if (!text->counts.lines) return adamod__refuse("%s: no lines, expected sentences", r->src->name);
    return adamod__refuse(
        "%s: none of %" PRId64 " lines left: %" PRId64 " empty, %" PRId64 " of unequal length, %" PRId64 " too long",
        r->src->name, text->counts.lines, text->counts.empty, text->counts.ratio, text->counts.too_long);
}

static int check_options(const corpus_options *options) {
    if (options->max_tokens < 0)
        return adamod__refuse("corpus: max_tokens is %" PRId64 ", expected >= 0", options->max_tokens);
    if (options->max_ratio && !(options->max_ratio >= 1))
        return adamod__refuse("corpus: max_ratio is %g, expected 0 or >= 1", options->max_ratio);
    if (options->empty == CORPUS_TRUNCATE)
        return adamod__refuse("corpus: empty lines cannot be truncated, expected refuse or skip");
    return 0;
}

int corpus_parse(corpus_text *out, const corpus_file *src, const corpus_file *tgt, const corpus_options *options) {
    *out = (corpus_text){0};
    if (check_options(options)) return -1;
    text_slice src_bytes = src->bytes, tgt_bytes = tgt->bytes;
    int64_t lines = text_count_lines(src_bytes), tgt_lines = text_count_lines(tgt_bytes);
    if (lines != tgt_lines)
        return adamod__refuse("%s has %" PRId64 " lines and %s has %" PRId64 ", expected the same number", src->name,
                              lines, tgt->name, tgt_lines);
    reader r = {.src = src, .tgt = tgt, .options = options};
    int status = builder_start(&r.to, out, options->unit, lines)
                     ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", src->name)
                     : read_pairs(&r, src_bytes, tgt_bytes);
    if (status) corpus_text_free(out);
    return status;
}

int corpus_bitext(corpus_text *out, const char *src_path, const char *tgt_path, const corpus_options *options) {
    char *src_bytes = NULL, *tgt_bytes = NULL;
    corpus_file src = {.name = src_path}, tgt = {.name = tgt_path};
    *out = (corpus_text){0};
    int status = text_input_read(src_path, &src_bytes, &src.bytes.n);
    if (!status) status = text_input_read(tgt_path, &tgt_bytes, &tgt.bytes.n);
    src.bytes.bytes = src_bytes;
    tgt.bytes.bytes = tgt_bytes;
    if (!status) status = corpus_parse(out, &src, &tgt, options);
    free(src_bytes);
    free(tgt_bytes);
    return status;
}

/* ---- German number words to English ------------------------------------------------------------------------------ */

#define LENGTHS 6
#define HELD_OUT_SEED 0x6e756d62657273u /* "numbers"; defines the held-out sets, so it must never change */

enum { TEST, VALID, TRAIN, SPLITS };

_Static_assert(CORPUS_NUMBERS_LONGEST == NUMBERS_SIZE - 1, "a token has a byte at least");
static const int64_t limits[LENGTHS + 1] = {0, 10, 100, 1000, 10000, 100000, NUMBERS_LIMIT};

/* The numbers of each length: first those for test and validation, shuffled, then those for training. */
typedef struct pools {
    int64_t numbers[NUMBERS_LIMIT];
    int64_t at[LENGTHS][SPLITS + 1];
} pools;

static void fill_pools(pools *p) {
    for (int64_t i = 0; i < NUMBERS_LIMIT; i++) p->numbers[i] = i;
    for (int d = 0; d < LENGTHS; d++) {
        int64_t first = limits[d], n = limits[d + 1] - first, held = n / 20;
        shuffle(p->numbers + first, n, 2 * held, nn_key(HELD_OUT_SEED, (uint64_t)d, 0));
        const int64_t at[SPLITS + 1] = {first, first + held, first + 2 * held, first + n};
        memcpy(p->at[d], at, sizeof at);
    }
}

/* Divides n as evenly as the pools allow. Longer numbers have larger pools, so what a pool lacks goes to the next. */
static void divide(const pools *p, int split, int64_t n, int64_t shares[LENGTHS]) {
    for (int d = 0; d < LENGTHS; d++) {
        int64_t even = n / (LENGTHS - d), all = p->at[d][split + 1] - p->at[d][split];
        shares[d] = even < all ? even : all;
        n -= shares[d];
    }
}

static int add_number(builder *b, int64_t number) {
    char german[NUMBERS_SIZE], english[NUMBERS_SIZE];
    if (numbers_german((int)number, german, sizeof german) < 0) return -1;
    if (numbers_english((int)number, english, sizeof english) < 0) return -1;
    return builder_add(b, text_of(german), text_of(english));
}

static int draw(pools *p, int split, uint64_t seed, int64_t n, corpus_text *out) {
    builder b;
    int64_t shares[LENGTHS], drawn = 0;
    int64_t *sample = malloc(((size_t)n + 1) * sizeof *sample);
    int status = builder_start(&b, out, TEXT_CHARACTERS, n) || !sample ? -1 : 0;
    divide(p, split, n, shares);
    for (int d = 0; !status && d < LENGTHS; d++) {
        int64_t *pool = p->numbers + p->at[d][split], all = p->at[d][split + 1] - p->at[d][split];
        if (split == TRAIN) shuffle(pool, all, shares[d], nn_key(seed, (uint64_t)d, 1));
        memcpy(sample + drawn, pool, (size_t)shares[d] * sizeof *sample);
        drawn += shares[d];
    }
    if (!status) shuffle(sample, n, n, nn_key(seed, LENGTHS, (uint64_t)split));
    for (int64_t i = 0; !status && i < n; i++) status = add_number(&b, sample[i]);
    out->counts.lines = out->n;
    free(sample);
    return status;
}

int corpus_numbers(uint64_t seed, int64_t n_train, int64_t n_valid, int64_t n_test, corpus_text *train,
                   corpus_text *valid, corpus_text *test) {
    *train = *valid = *test = (corpus_text){0};
    if (n_train < 1 || n_train > CORPUS_NUMBERS_TRAIN)
        return adamod__refuse("numbers: %" PRId64 " training pairs, expected 1 to %d", n_train, CORPUS_NUMBERS_TRAIN);
    if (n_valid < 0 || n_valid > CORPUS_NUMBERS_HELD_OUT || n_test < 0 || n_test > CORPUS_NUMBERS_HELD_OUT)
        return adamod__refuse("numbers: %" PRId64 " validation and %" PRId64 " test pairs, expected 0 to %d", n_valid,
                              n_test, CORPUS_NUMBERS_HELD_OUT);
    pools *p = malloc(sizeof *p);
    int status = p ? 0 : -1;
    if (p) fill_pools(p);
    if (!status) status = draw(p, TEST, HELD_OUT_SEED, n_test, test);
    if (!status) status = draw(p, VALID, HELD_OUT_SEED, n_valid, valid);
    if (!status) status = draw(p, TRAIN, seed, n_train, train);
    free(p);
    if (!status) return 0;
    corpus_text_free(train);
    corpus_text_free(valid);
    corpus_text_free(test);
    return adamod__fail(ADAMOD_ERROR_MEMORY, "numbers: out of memory");
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

static int count_side(vocab_counter *counter, const corpus_text *text, const corpus_lines *lines) {
    for (int64_t i = 0; i < text->n; i++)
        if (vocab_counter_add(counter, text->unit, corpus_sentence(lines, i), 1)) return -1;
    return 0;
}

int corpus_vocab(const corpus_text *text, int sides, const vocab_options *options, vocab **out) {
    *out = NULL;
    vocab_counter *counter = vocab_counter_create();
    int status = counter ? 0 : -1;
    if (!status && sides & CORPUS_SOURCE) status = count_side(counter, text, &text->src);
    if (!status && sides & CORPUS_TARGET) status = count_side(counter, text, &text->tgt);
    if (status) adamod__fail(ADAMOD_ERROR_MEMORY, "vocabulary: out of memory");
    else status = vocab_build(out, counter, options);
    vocab_counter_free(counter);
    return status;
}

static int encode_side(corpus_side *side, const corpus_text *text, const corpus_lines *lines, const vocab *v) {
    side->at = malloc(((size_t)text->n + 1) * sizeof *side->at);
    if (!side->at) return -1;
    side->at[0] = 0;
    for (int64_t i = 0; i < text->n; i++)
        side->at[i + 1] = side->at[i] + text_count_tokens(text->unit, corpus_sentence(lines, i));
    int64_t total = side->at[text->n];
    side->ids = malloc(((size_t)total + 1) * sizeof *side->ids);
    if (!side->ids) return -1;
    for (int64_t i = 0; i < text->n; i++)
        vocab_encode(v, text->unit, corpus_sentence(lines, i), side->ids + side->at[i], corpus_length(side, i));
    for (int64_t i = 0; i < total; i++) side->unknown += side->ids[i] == VOCAB_UNK;
    return 0;
}

int corpus_encode(corpus *out, const corpus_text *text, const vocab *src, const vocab *tgt) {
    *out = (corpus){.n = text->n};
    if (!encode_side(&out->src, text, &text->src, src) && !encode_side(&out->tgt, text, &text->tgt, tgt)) return 0;
    corpus_free(out);
    return adamod__fail(ADAMOD_ERROR_MEMORY, "corpus: out of memory");
}

void corpus_free(corpus *c) {
    free(c->src.ids);
    free(c->src.at);
    free(c->tgt.ids);
    free(c->tgt.at);
    *c = (corpus){0};
}
