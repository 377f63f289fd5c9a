#include "tasks/language_writer.h"

#include "core/buffer.h"
#include "core/error.h"
#include "tasks/language_reader.h"
#include "tasks/sampling.h"

#include <math.h>
#include <stdlib.h>

struct language_writer {
    const experiment *e;
    language_predictor *model;
    sampler *sampler;
    bool begun;  /* something was read */
    bool spaced; /* a word that follows has a space before it */
    bool numbers;
};

int language_writer_create(language_writer **out, const experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    const sampling_options o = {r->generate.temperature, r->generate.top_k, r->generate.top_p};
    language_writer *w = calloc(1, sizeof *w);
    int failed = 0;
    if (!w) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    w->e = e;
    w->sampler = sampler_create(&o, language_of(e)->words);
    if (!w->sampler) failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for drawing tokens");
    if (!failed) failed = language_reader_of(&e->recipe)->predict(&w->model, e);
    if (failed) language_writer_free(w);
    else *out = w;
    return failed ? -1 : 0;
}

void language_writer_free(language_writer *w) {
    if (!w) return;
    if (w->model) w->model->free(w->model);
    sampler_free(w->sampler);
    free(w);
}

void language_writer_begin(language_writer *w) {
    w->begun = w->spaced = false;
    w->model->begin(w->model);
}

void language_writer_numbers(language_writer *w, bool on) { w->numbers = on; }

int64_t language_writer_most(const language_writer *w) { return w->model->most; }

/* ---- text ---- */

static bool is_characters(const experiment *e) {
    return language_settings_of(&e->recipe)->data.tokens == LANGUAGE_CHARACTERS;
}

static bool ends_lines(const experiment *e) {
    return language_of(e)->vocab && language_settings_of(&e->recipe)->data.eos;
}

/* Writes spaces between words, not between the parts of a word. */
static int show_word(language_writer *w, text_slice word, language_sink sink, void *context) {
    const bool part =
        subword_codes_exist(&language_of(w->e)->codes) && word.n > 2 && memcmp(word.bytes + word.n - 2, "@@", 2) == 0;
    if (w->spaced && sink(context, text_of(" "))) return -1;
    w->spaced = !part;
    if (part) word.n -= 2;
    return sink(context, word);
}

/* Whether a token is shown: not the end of another document before the text. */
static bool is_shown(const language_writer *w, int32_t token) {
    return w->begun || token != byte_bpe_end(language_of(w->e)->bytes);
}

/* Does not show an <eos> before the text. */
static int show(language_writer *w, int32_t token, language_sink sink, void *context) {
    const language *s = language_of(w->e);
    char number[16];
    if (s->bytes && !w->numbers) return is_shown(w, token) ? sink(context, byte_bpe_token(s->bytes, token)) : 0;
    if (!s->vocab || w->numbers) {
        snprintf(number, sizeof number, "%d", (int)token);
        return show_word(w, text_of(number), sink, context);
    }
    if (token == LANGUAGE_EOS) {
        w->spaced = false;
        return w->begun ? sink(context, text_of("\n")) : 0;
    }
    const text_slice text = vocab_token(s->vocab, token + VOCAB_END);
    return is_characters(w->e) ? sink(context, text) : show_word(w, text, sink, context);
}

int language_writer_read(language_writer *w, const int32_t *tokens, int64_t n, language_sink sink, void *context) {
    if (w->model->read(w->model, tokens, n)) return -1;
    for (int64_t i = 0; i < n; i++) {
        if (sink && show(w, tokens[i], sink, context)) return -1;
        w->begun = true;
    }
    return 0;
}

int language_writer_write(language_writer *w, int64_t tokens, uint64_t seed, language_sink sink, void *context) {
    const int end = language_settings_of(&w->e->recipe)->generate.end;
    float *scores = w->model->scores;
    for (int64_t i = 0; i < tokens; i++) {
        if (language_of(w->e)->vocab && !ends_lines(w->e)) scores[LANGUAGE_EOS] = -INFINITY; /* no text has it */
        const int32_t token = sampler_draw(w->sampler, scores, seed, (uint64_t)i);
        if (token < 0) return adamod__refuse("the model's scores are not finite");
        if (show(w, token, sink, context)) return -1;
        if (token == end) return 0;
        if (i + 1 < tokens && w->model->read(w->model, &token, 1)) return -1;
    }
    return 0;
}

/* ---- prompts ---- */

/* The tokens of a prompt, and the names of its unknown words. */
typedef struct prompting {
    const experiment *e;
    adamod__buffer tokens; /* int32_t */
    char *unknown;
    size_t room;
    int named, more;
} prompting;

static void add_tokens(prompting *p, const int32_t *tokens, int64_t n) {
    adamod__buffer_add(&p->tokens, tokens, (size_t)n * sizeof *tokens);
}

static int end_prompt(const prompting *p) {
    return p->tokens.failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the prompt") : 0;
}

/* Names each word once, while there is room. */
static void name_unknown(prompting *p, text_slice word) {
    enum { NAMED = 5 };
    char text[60], quoted[64];
    snprintf(text, sizeof text, "%.*s", word.n < sizeof text ? (int)word.n : (int)sizeof text - 1, word.bytes);
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    snprintf(quoted, sizeof quoted, "'%s'", key_show(text).text);
    if (strstr(p->unknown, quoted)) return;
    if (p->named < NAMED && strlen(p->unknown) + strlen(quoted) + 40 < p->room) {
        text_join(p->unknown, p->room, ", ", quoted);
        p->named++;
    } else {
        p->more++;
    }
}

/* Goes word by word, to name those that are not in the vocabulary. */
static void add_line(prompting *p, text_slice line) {
    const text_unit unit = is_characters(p->e) ? TEXT_CHARACTERS : TEXT_WORDS;
    for (text_slice word; text_next_token(unit, &line, &word);) {
        int32_t *ids;
        bool unknown = false;
        const int64_t n = language_encode(p->e, word, &ids);
        for (int64_t i = 0; i < n; i++) unknown = unknown || ids[i] == LANGUAGE_UNK;
        if (unknown && (word.n != 5 || memcmp(word.bytes, "<unk>", 5) != 0)) name_unknown(p, word);
        if (n < 0) p->tokens.failed = true;
        else add_tokens(p, ids, n);
        free(ids);
    }
}

static int encode_lines(prompting *p, text_slice text) {
    static const int32_t eos = LANGUAGE_EOS, frequent = LANGUAGE_UNK + 1;
    const bool ends = ends_lines(p->e);
    if (ends) add_tokens(p, &eos, 1);
    for (text_slice line; text.n > 0;) {
        const size_t before = text.n;
        text_next_line(&text, &line);
        add_line(p, line);
        if (ends && before > line.n + text.n) add_tokens(p, &eos, 1); /* the line ended with '\n' */
    }
    if (p->tokens.n == 0) add_tokens(p, &frequent, 1);
    return end_prompt(p);
}

/* A text begins after the end of another document, if the vocabulary has such a token, else after a new line. */
static int encode_bytes(prompting *p, text_slice text) {
    const byte_bpe *b = language_of(p->e)->bytes;
    const int32_t end = byte_bpe_end(b);
    int32_t *ids = NULL;
    if (!text.n && end >= 0) {
        add_tokens(p, &end, 1);
    } else {
        const int64_t n = language_encode(p->e, text.n ? text : text_of("\n"), &ids);
        if (n < 0) p->tokens.failed = true;
        else add_tokens(p, ids, n);
        free(ids);
    }
    return end_prompt(p);
}

/* Words of a generated language are numbers, and packed ids without a vocabulary. */
static int encode_numbers(prompting *p, text_slice text) {
    const int words = language_of(p->e)->words;
    for (text_slice word; text_next_token(TEXT_WORDS, &text, &word);) {
        int64_t number = 0;
        for (size_t i = 0; i < word.n && number < words; i++) {
            const char digit = word.bytes[i];
            number = digit >= '0' && digit <= '9' ? number * 10 + digit - '0' : words;
        }
        const int32_t token = (int32_t)number;
        if (number >= words)
            return adamod__refuse(
                "'%.*s' is no word of the %s, whose words are 0 to %d", word.n < 40 ? (int)word.n : 40, word.bytes,
                language_is_generated(&p->e->recipe) ? "generated language" : "vocabulary", words - 1);
        add_tokens(p, &token, 1);
    }
    static const int32_t first = 0;
    if (p->tokens.n == 0) add_tokens(p, &first, 1);
    return end_prompt(p);
}

int language_prompt(const experiment *e, text_slice text, int32_t **tokens, int64_t *n, char *unknown,
                    size_t unknown_size) {
    prompting p = {.e = e, .unknown = unknown, .room = unknown_size};
    *unknown = '\0';
    const language *s = language_of(e);
    const int failed = s->bytes ? encode_bytes(&p, text) : s->vocab ? encode_lines(&p, text) : encode_numbers(&p, text);
    if (failed) {
        adamod__buffer_free(&p.tokens);
        return -1;
    }
    if (p.more) text_add(unknown, unknown_size, "%s%d more", p.named ? " and " : "", p.more);
    *tokens = (int32_t *)(void *)p.tokens.text;
    *n = (int64_t)(p.tokens.n / sizeof **tokens);
    return 0;
}
