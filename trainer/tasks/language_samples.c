#include "tasks/language_writer.h"

#include "core/buffer.h"
#include "core/error.h"

#include <stdlib.h>

static int collect(void *context, text_slice piece) {
    adamod__buffer *text = context;
    adamod__buffer_add(text, piece.bytes, piece.n);
    return text->failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a sample") : 0;
}

/* The first token of sample k: the beginning of a line if the text has ends of lines. */
static int64_t place_of(const language *s, task_split split, int64_t k, int64_t samples) {
    const int64_t n = s->n[split], at = n / samples * k;
    if (!s->vocab || at == 0) return at;
    for (int64_t i = at; i + 1 < n; i++) {
        if (s->text[split][i - 1] == LANGUAGE_EOS) return i;
    }
    return at;
}

/* The number of tokens of the prompt: to the end of its line, but at least one. */
static int64_t length_of(const language *s, task_split split, int64_t at, int64_t most) {
    int64_t n = 0;
    while (n < most && at + n < s->n[split] && (n == 0 || !s->vocab || s->text[split][at + n] != LANGUAGE_EOS)) n++;
    return n;
}

/* Packed ids are read in windows. */
static int read_prompt(language_writer *w, const language *s, task_split split, int64_t at, int64_t n,
                       adamod__buffer *text) {
    if (!s->packed[split]) return language_writer_read(w, s->text[split] + at, n, collect, text);
    if (n < 1) return 0;
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    int failed = ids ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a sample");
    if (!failed) failed = language_packed_at(s, split, n, at / n, ids);
    if (!failed) failed = language_writer_read(w, ids, n, collect, text);
    free(ids);
    return failed;
}

static int write_one(const experiment *e, language_writer *w, task_split split, int64_t k, adamod__buffer text[2]) {
    const language_settings *r = language_settings_of(&e->recipe);
    const language *s = language_of(e);
    const int64_t at = place_of(s, split, k, r->generate.samples);
    const int64_t most = language_writer_most(w);
    const int64_t n = length_of(s, split, at, most && most < r->generate.prompt ? most : r->generate.prompt);
    static const int32_t eos = LANGUAGE_EOS;
    language_writer_begin(w);
    if (s->vocab && r->data.eos && language_writer_read(w, &eos, 1, NULL, NULL)) return -1;
    if (read_prompt(w, s, split, at, n, &text[0])) return -1;
    return language_writer_write(w, r->generate.tokens, r->generate.seed + (uint64_t)k, collect, &text[1]);
}

int language_samples(const experiment *e, task_split split, task_sample sample, void *context) {
    const int64_t n = language_settings_of(&e->recipe)->generate.samples;
    language_writer *w;
    if (n == 0) return 0;
    if (language_writer_create(&w, e)) return -1;
    int failed = 0;
    for (int64_t k = 0; k < n && !failed; k++) {
        adamod__buffer text[2] = {{0}, {0}};
        experiment_progress(e, "writing sample", k + 1, n);
        failed = write_one(e, w, split, k, text);
        const char *prompt = text[0].n ? text[0].text : "", *output = text[1].n ? text[1].text : "";
        const task_text texts[] = {{"prompt", prompt}, {"output", output + (*output == ' ')}};
        if (!failed) failed = sample(context, 2, texts);
        adamod__buffer_free(&text[0]);
        adamod__buffer_free(&text[1]);
    }
    language_writer_free(w);
    return failed ? -1 : 0;
}
