#include "tasks/translation_parts.h"

#include "core/error.h"
#include "support/clock.h"
#include "data/bleu.h"
#include "data/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

/* Allocates the target tokens as text. */
static char *output_tokens(const translation *s, const decode_result *r) {
    const size_t n = vocab_decode(s->tgt_vocab, s->unit, r->tokens, r->length, NULL, 0) + 1;
    char *text = malloc(n);
    if (text) vocab_decode(s->tgt_vocab, s->unit, r->tokens, r->length, text, n);
    return text;
}

/* Allocates the text as the files have it: tokens, or raw text. */
static char *output_text(translation *s, const decode_result *r) {
    char *tokens = output_tokens(s, r);
    if (!tokens || !s->is_raw) return tokens;
    char *text = raw_text_join(&s->raw, tokens);
    free(tokens);
    return text;
}

/* Lines that are being translated; place: the line of each source. Lines without a token have their answer already. */
typedef struct lines_job {
    translation *s;
    int *place;
    int nbest;
    translation_answer *answers;
} lines_job;

static int take_answers(void *context, int64_t i, int k) {
    const lines_job *j = context;
    translation_answer *mine = j->answers + (size_t)j->place[i] * (size_t)j->nbest;
    for (int b = 0; b < j->nbest; b++) {
        decode_result r;
        if (!decoder_result(j->s->decoder, k, b, &r)) continue;
        mine[b].text = output_text(j->s, &r);
        mine[b].score = r.score;
        if (!mine[b].text) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for translations");
    }
    return 0;
}

/* Adds a line to the sources, or answers it if it is empty. */
static int read_line(experiment *e, int i, text_slice line, lines_job *j, translation_sources *x) {
    translation_answer *mine = j->answers + (size_t)i * (size_t)j->nbest;
    char *subwords = NULL;
    int status = 0;
    if (j->s->is_raw) {
        if (!(subwords = raw_text_split(&j->s->raw, line)))
            return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a line");
        line = text_of(subwords);
    }
    mine->tokens = text_count_tokens(j->s->unit, line);
    j->place[x->n] = i;
    if (mine->tokens) status = translation_sources_add(e, line, x);
    else if (!(mine->text = strdup(""))) status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a line");
    free(subwords);
    return status;
}

int translation_translate(experiment *e, int n, const text_slice *lines, int nbest, translation_answer *answers) {
    translation_sources x;
    lines_job j = {.s = translation_of(e), .nbest = nbest, .answers = answers};
    memset(answers, 0, (size_t)n * (size_t)nbest * sizeof *answers);
    if (translation_sources_open(&x, n)) return -1;
    int status = 0;
    if (!(j.place = calloc((size_t)n + 1, sizeof *j.place)))
        status = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for lines");
    for (int i = 0; i < n && !status; i++) status = read_line(e, i, lines[i], &j, &x);
    if (!status) status = translation_sources_decode(e, &x, take_answers, &j);
    for (int i = 0; status && i < n * nbest; i++) free(answers[i].text);
    free(j.place);
    translation_sources_close(&x);
    return status;
}

/* ---- a split ---- */

/* Compares translations of a split with references; the first go to the report. */
typedef struct judge {
    bleu score;
    score_text *text; /* scores raw text; NULL: there is none */
    bool unite;       /* text is in subwords, but words count */
    task_sample sample;
    void *context;
    int64_t wanted; /* samples still to be kept */
} judge;

static int keep_sample(judge *j, text_slice source, text_slice reference, const char *output) {
    char *a = strndup(source.bytes, source.n), *b = strndup(reference.bytes, reference.n);
    const task_text texts[] = {{"source", a}, {"reference", b}, {"output", output}};
    const int status =
        a && b ? j->sample(j->context, 3, texts) : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a sample");
    free(a);
    free(b);
    return status;
}

static int judge_pair(judge *j, translation *s, int split, int64_t i, const decode_result *r) {
    const corpus_text *shown = j->text ? &s->raw_pairs[split] : &s->text[split];
    const text_slice source = corpus_sentence(&shown->src, i), reference = corpus_sentence(&shown->tgt, i);
    const text_slice target = corpus_sentence(&s->text[split].tgt, i);
    char *tokens = output_tokens(s, r), *output = output_text(s, r), *right = strndup(target.bytes, target.n);
    int status = -1;
    if (j->unite && tokens && right) { /* BLEU counts words */
        raw_text_unite(tokens);
        raw_text_unite(right);
    }
    if (tokens && output && right && bleu_add(&j->score, text_of(tokens), text_of(right)) == 0)
        status = j->text ? score_add(j->text, text_of(output), reference) : 0;
    if (status) adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory comparing translations");
    if (!status && j->sample && j->wanted-- > 0) status = keep_sample(j, source, reference, output);
    free(tokens);
    free(output);
    free(right);
    return status;
}

/* Translations of a split, each as its length and its tokens. Rank r translates sentences r, r + ranks, ...; then every
 * rank gets all of them. */
typedef struct decoded {
    experiment *e;
    int64_t n, done, ranks;
    int32_t *all, *mine;
    size_t line, lines; /* int32_t of a sentence, and of a rank */
} decoded;

static int take_result(void *context, int64_t i, int place) {
    decoded *d = context;
    decode_result r = {0};
    int32_t *to = d->mine + (size_t)i * d->line;
    decoder_result(translation_of(d->e)->decoder, place, 0, &r);
    *to = r.length;
    if (r.length > 0) memcpy(to + 1, r.tokens, (size_t)r.length * sizeof *to);
    d->done = d->done + d->ranks < d->n ? d->done + d->ranks : d->n;
    experiment_progress(d->e, "translating", d->done, d->n);
    return 0;
}

static decode_result result_of(const decoded *d, int64_t i) {
    const int32_t *at = d->all + (size_t)(i % d->ranks) * d->lines + (size_t)(i / d->ranks) * d->line;
    return (decode_result){.tokens = at + 1, .length = *at};
}

/* Translates this rank's sentences. */
static int decode_mine(decoded *d, int split) {
    translation_sources x;
    if (translation_sources_open(&x, d->n)) return -1;
    const corpus_lines *lines = &translation_of(d->e)->text[split].src;
    int status = 0;
    for (int64_t i = comm_rank(d->e->comm); !status && i < d->n; i += d->ranks)
        status = translation_sources_add(d->e, corpus_sentence(lines, i), &x);
    if (!status) status = translation_sources_decode(d->e, &x, take_result, d);
    translation_sources_close(&x);
    return status;
}

static int judge_split(decoded *d, int split, judge *j) {
    if (comm_agree(d->e->comm, decode_mine(d, split))) return -1;
    comm_gather(d->e->comm, d->mine, d->lines * sizeof *d->mine, d->all);
    for (int64_t i = 0; i < d->n; i++) {
        const decode_result r = result_of(d, i);
        if (judge_pair(j, translation_of(d->e), split, i, &r)) return -1;
    }
    return 0;
}

/* Judges the first n pairs of a split. */
static int translate_split(experiment *e, int split, int64_t n, judge *j) {
    decoded d = {.e = e, .n = n, .ranks = comm_size(e->comm)};
    d.line = (size_t)translation_settings_of(&e->recipe)->decode.max_length + 1;
    d.lines = (size_t)((n + d.ranks - 1) / d.ranks) * d.line;
    d.all = calloc(((size_t)d.ranks + 1) * d.lines + 1, sizeof *d.all);
    d.mine = d.all ? d.all + (size_t)d.ranks * d.lines : NULL;
    const int status = d.all ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for translations");
    const int failed = comm_agree(e->comm, status) || judge_split(&d, split, j);
    free(d.all);
    return failed ? -1 : 0;
}

int translation_judge(experiment *e, task_split split, int64_t pairs, task_sample sample, void *context,
                      translation_verdict *out) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    const translation *s = translation_of(e);
    const double start = clock_seconds();
    const int64_t n = pairs < s->text[split].n ? pairs : s->text[split].n;
    const score_options text = {.metric = SCORE_BLEU, .tokenize = SCORE_13A};
    judge j = {.sample = sample, .context = context, .wanted = r->decode.samples, .unite = translation_is_split(r)};
    if (s->raw_pairs[split].n > 0 && !(j.text = score_create(&text)))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for scores");
    const int status = translate_split(e, split, n, &j);
    if (!status)
        *out = (translation_verdict){.exact = bleu_exact(&j.score),
                                     .bleu = bleu_score(&j.score, BLEU_PLAIN),
                                     .bleu_13a = j.text ? score_value(j.text) : (double)NAN,
                                     .sentences = n,
                                     .seconds = clock_seconds() - start};
    score_free(j.text);
    return status;
}
