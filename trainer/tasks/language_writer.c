#include "tasks/language_writer.h"

#include "core/error.h"
#include "models/lstm.h"
#include "tasks/sampling.h"

#include <math.h>
#include <stdlib.h>

struct language_writer {
    const experiment *e;
    nn_params *params; /* a copy, for one column */
    nn_graph *graph;
    nn_plan *plan;
    sampler *sampler;
    bool begun;  /* something was read */
    bool spaced; /* a word that follows has a space before it */
};

/* ---- the model ---- */

static int build(language_writer *w) {
    const language *s = language_of(w->e);
    w->params = nn_params_create();
    w->graph = w->params ? nn_graph_create(w->params) : NULL;
    if (!w->graph) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    const int one = nn_symbol(w->graph, "one", 1);
    lstm_text text = {.words = s->words, .batch = 1, .state = "writer"};
    text.ids = nn_input(w->graph, "ids", NN_I32, one, 0);
    text.carried = nn_input(w->graph, "carried", NN_I32, one, 0);
    nn_output(w->graph, "scores", lstm_predict(w->graph, (const void *)w->e->recipe.model_settings, &text));
    const nn_plan_options o = {.backend = "ref", .loss = -1};
    adamod_status status = nn_params_allocate(w->params, 0);
    if (!status) status = nn_plan_create(&w->plan, w->graph, &o);
    if (!status) status = nn_plan_set_rows(w->plan, one, 1);
    return status;
}

/* The experiment's weights, from wherever they are. */
static int copy_weights(language_writer *w) {
    const nn_params *from = w->e->params;
    if (nn_params_fetch(from)) return -1;
    for (int i = 0; i < w->params->n; i++) {
        const nn_param *to = &w->params->list[i], *own = nn_params_find(from, to->name);
        if (!own || own->count != to->count) return adamod__refuse("the model has no %s", to->name);
        memcpy(w->params->data + to->offset, from->data + own->offset, (size_t)own->count * sizeof *from->data);
    }
    return 0;
}

int language_writer_create(language_writer **out, const experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    const sampling_options o = {r->generate.temperature, r->generate.top_k, r->generate.top_p};
    language_writer *w = calloc(1, sizeof *w);
    int failed = 0;
    if (!w) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    w->e = e;
    w->sampler = sampler_create(&o, language_of(e)->words);
    if (!w->sampler) failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for drawing tokens");
    if (!failed) failed = build(w) || copy_weights(w);
    if (failed) language_writer_free(w);
    else *out = w;
    return failed ? -1 : 0;
}

void language_writer_free(language_writer *w) {
    if (!w) return;
    nn_plan_free(w->plan);
    nn_graph_free(w->graph);
    nn_params_free(w->params);
    sampler_free(w->sampler);
    free(w);
}

void language_writer_begin(language_writer *w) { w->begun = w->spaced = false; }

static int feed(language_writer *w, int32_t token) {
    *(int32_t *)nn_plan_data(w->plan, "ids") = token;
    *(int32_t *)nn_plan_data(w->plan, "carried") = w->begun;
    w->begun = true;
    nn_plan_forward(w->plan);
    return nn_plan_wait(w->plan);
}

/* ---- text ---- */

static bool is_characters(const experiment *e) {
    return strcmp(language_settings_of(&e->recipe)->data.tokens, "characters") == 0;
}

static bool ends_lines(const experiment *e) {
    return language_of(e)->vocab && language_settings_of(&e->recipe)->data.eos;
}

/* Words have spaces between them, parts of a word do not. */
static int show_word(language_writer *w, text_slice word, language_sink sink, void *context) {
    const bool part =
        subword_codes_exist(&language_of(w->e)->codes) && word.n > 2 && memcmp(word.bytes + word.n - 2, "@@", 2) == 0;
    if (w->spaced && sink(context, text_of(" "))) return -1;
    w->spaced = !part;
    if (part) word.n -= 2;
    return sink(context, word);
}

/* The end of a line that a text begins after is not shown. */
static int show(language_writer *w, int32_t token, language_sink sink, void *context) {
    const language *s = language_of(w->e);
    char number[16];
    if (!s->vocab) {
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
    for (int64_t i = 0; i < n; i++) {
        if (sink && show(w, tokens[i], sink, context)) return -1;
        if (feed(w, tokens[i])) return -1;
    }
    return 0;
}

int language_writer_write(language_writer *w, int64_t tokens, uint64_t seed, language_sink sink, void *context) {
    float *scores = nn_plan_data(w->plan, "scores");
    for (int64_t i = 0; i < tokens; i++) {
        if (language_of(w->e)->vocab && !ends_lines(w->e)) scores[LANGUAGE_EOS] = -INFINITY; /* no text has it */
        const int32_t token = sampler_draw(w->sampler, scores, seed, (uint64_t)i);
        if (token < 0) return adamod__refuse("the model's scores are not finite");
        if (show(w, token, sink, context)) return -1;
        if (i + 1 < tokens && feed(w, token)) return -1;
    }
    return 0;
}

/* ---- prompts ---- */

/* Tokens that are collected, and the words that are none. */
typedef struct prompting {
    const experiment *e;
    int32_t *tokens;
    int64_t n;
    char *unknown;
    size_t room;
    int named, more;
} prompting;

static int add_tokens(prompting *p, const int32_t *tokens, int64_t n) {
    int32_t *grown = realloc(p->tokens, (size_t)(p->n + n + 1) * sizeof *grown);
    if (!grown) return -1;
    p->tokens = grown;
    if (n > 0) memcpy(grown + p->n, tokens, (size_t)n * sizeof *tokens);
    p->n += n;
    return 0;
}

/* Each once, as far as there is room for it. */
static void name_unknown(prompting *p, text_slice word) {
    enum { NAMED = 5 };
    const size_t used = strlen(p->unknown);
    char text[60], quoted[64];
    snprintf(text, sizeof text, "%.*s", word.n < sizeof text ? (int)word.n : (int)sizeof text - 1, word.bytes);
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    snprintf(quoted, sizeof quoted, "'%s'", key_show(text).text);
    if (strstr(p->unknown, quoted)) return;
    if (p->named < NAMED && used + strlen(quoted) + 40 < p->room) {
        snprintf(p->unknown + used, p->room - used, "%s%s", p->named ? ", " : "", quoted);
        p->named++;
    } else {
        p->more++;
    }
}

/* Word by word, so that those can be named that are not in the vocabulary. */
static int add_line(prompting *p, text_slice line) {
    const text_unit unit = is_characters(p->e) ? TEXT_CHARACTERS : TEXT_WORDS;
    int failed = 0;
    for (text_slice word; !failed && text_next_token(unit, &line, &word);) {
        int32_t *ids;
        bool unknown = false;
        const int64_t n = language_encode(p->e, word, &ids);
        for (int64_t i = 0; i < n; i++) unknown = unknown || ids[i] == LANGUAGE_UNK;
        if (unknown && (word.n != 5 || memcmp(word.bytes, "<unk>", 5) != 0)) name_unknown(p, word);
        failed = n < 0 || add_tokens(p, ids, n);
        free(ids);
    }
    return failed ? -1 : 0;
}

static int encode_lines(prompting *p, text_slice text) {
    static const int32_t eos = LANGUAGE_EOS, frequent = LANGUAGE_UNK + 1;
    const bool ends = ends_lines(p->e);
    int failed = ends ? add_tokens(p, &eos, 1) : 0;
    for (text_slice line; !failed && text.n > 0;) {
        const size_t before = text.n;
        text_next_line(&text, &line);
        const bool ended = before > line.n + text.n; /* by its '\n' */
        failed = add_line(p, line) || (ended && ends && add_tokens(p, &eos, 1));
    }
    if (!failed && p->n == 0) failed = add_tokens(p, &frequent, 1);
    return failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the prompt") : 0;
}

/* The words of a generated language are numbers. */
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
            return adamod__refuse("'%.*s' is no word of the generated language, whose words are 0 to %d",
                                  word.n < 40 ? (int)word.n : 40, word.bytes, words - 1);
        if (add_tokens(p, &token, 1)) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the prompt");
    }
    static const int32_t first = 0;
    return p->n || !add_tokens(p, &first, 1) ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the prompt");
}

int language_prompt(const experiment *e, text_slice text, int32_t **tokens, int64_t *n, char *unknown,
                    size_t unknown_size) {
    prompting p = {.e = e, .unknown = unknown, .room = unknown_size};
    *unknown = '\0';
    const int failed = language_of(e)->vocab ? encode_lines(&p, text) : encode_numbers(&p, text);
    if (failed) {
        free(p.tokens);
        return -1;
    }
    const size_t used = strlen(unknown);
    if (p.more) snprintf(unknown + used, unknown_size - used, "%s%d more", p.named ? " and " : "", p.more);
    *tokens = p.tokens;
    *n = p.n;
    return 0;
}
