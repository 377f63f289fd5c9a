#include "tasks/translation_parts.h"

#include "core/buffer.h"
#include "core/error.h"
#include "data/tokenizer.h"
#include "support/run_format.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <string.h>

/* ---- text ---- */

/* Finds the files of the recipe or of a data set. */
static int find_files(experiment *e) {
    static const char *const names[SPLITS] = {"train", "valid", "test"};
    const translation_settings *r = translation_settings_of(&e->recipe);
    const char *const given[SPLITS][2] = {{r->data.source, r->data.target},
                                          {r->data.valid_source, r->data.valid_target},
                                          {r->data.test_source, r->data.test_target}};
    const data_set *set = translation_set(r);
    char folder[RECIPE_PATH];
    e->set = set;
    if (set && data_set_path(set, folder, sizeof folder)) return -1;
    for (int i = 0; i < SPLITS; i++) {
        for (int side = 0; side < 2; side++) {
            char *file = translation_of(e)->files[i][side];
            if (set) snprintf(file, RECIPE_PATH, "%s/%s.%s", folder, names[i], set->languages[side]);
            else snprintf(file, RECIPE_PATH, "%s", given[i][side]);
        }
    }
    return 0;
}

static int read_bitext(experiment *e, int split) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    const char *source = s->files[split][0], *target = s->files[split][1];
    const corpus_options o = {.unit = s->unit,
                              .empty = r->data.skip_empty ? CORPUS_SKIP : CORPUS_REFUSE,
                              .max_tokens = r->data.max_length,
                              .too_long = split == SPLIT_TRAIN ? CORPUS_SKIP : CORPUS_TRUNCATE,
                              .max_ratio = split == SPLIT_TRAIN ? r->data.max_ratio : 0};
    if (!r->data.raw) return corpus_bitext(&s->text[split], source, target, &o);
    return raw_text_load(&s->raw, source, target, r->data.merges, &o, &s->text[split],
                         split == SPLIT_TRAIN ? NULL : &s->raw_pairs[split], s->raw_hash[split]);
}

/* Reads the raw test text of a data set in subwords. */
static int read_raw_test(experiment *e) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    const corpus_options as_is = {.unit = TEXT_WORDS, .empty = CORPUS_SKIP};
    char paths[RAW_SIDES][RECIPE_PATH + 32];
    if (r->data.raw || !translation_scores_text(r)) return 0;
    for (int i = 0; i < RAW_SIDES; i++) {
        const char *file = s->files[SPLIT_TEST][i], *folder_end = strrchr(file, '/');
        snprintf(paths[i], sizeof paths[i], "%.*s/test.raw.%s", (int)(folder_end - file), file,
                 translation_set(r)->languages[i]);
    }
    if (corpus_bitext(&s->raw_pairs[SPLIT_TEST], paths[0], paths[1], &as_is)) return -1;
    if (s->raw_pairs[SPLIT_TEST].n == s->text[SPLIT_TEST].n) return 0;
    return adamod__refuse("%s: %lld pairs, expected the %lld of the test in subwords", paths[0],
                          (long long)s->raw_pairs[SPLIT_TEST].n, (long long)s->text[SPLIT_TEST].n);
}

/* For a trained model, only held-out text. Held-out numbers do not depend on how many are for training. */
static int load_text(experiment *e, const char *directory) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    corpus_text *text = translation_of(e)->text;
    if (e->task->generates) {
        return corpus_numbers(r->data.seed, directory ? 1 : r->data.train, r->data.valid, r->data.test,
                              &text[SPLIT_TRAIN], &text[SPLIT_VALID], &text[SPLIT_TEST]);
    }
    if (find_files(e)) return -1;
    if (!directory && read_bitext(e, SPLIT_TRAIN)) return -1;
    if (read_bitext(e, SPLIT_VALID) && experiment_gone(e, directory, SPLIT_VALID)) return -1;
    if (!*translation_of(e)->files[SPLIT_TEST][0]) return 0;
    if (read_bitext(e, SPLIT_TEST) == 0 && read_raw_test(e) == 0) return 0;
    corpus_text_free(&text[SPLIT_TEST]);
    return experiment_gone(e, directory, SPLIT_TEST);
}

/* ---- vocabularies ---- */

static int check_vocabulary(const translation_settings *r, const vocab *v) {
    if (vocab_size(v) > VOCAB_SPECIALS) return 0;
    return adamod__refuse("the vocabulary is empty: no token is seen data.min_count %d times", r->data.min_count);
}

static int make_vocabularies(experiment *e) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    translation *s = translation_of(e);
    const vocab_options o = {.min_count = r->data.min_count, .max_size = r->data.max_vocab};
    const corpus_text *train = &s->text[SPLIT_TRAIN];
    if (r->data.joint) {
        if (corpus_vocab(train, CORPUS_SOURCE | CORPUS_TARGET, &o, &s->src_vocab)) return -1;
        s->tgt_vocab = s->src_vocab;
    } else if (corpus_vocab(train, CORPUS_SOURCE, &o, &s->src_vocab) ||
               corpus_vocab(train, CORPUS_TARGET, &o, &s->tgt_vocab)) {
        return -1;
    }
    return check_vocabulary(r, s->src_vocab) || check_vocabulary(r, s->tgt_vocab);
}

static int load_vocabularies(experiment *e, const char *directory) {
    translation *s = translation_of(e);
    if (vocab_load(&s->src_vocab, path_join(directory, "source.vocab").text)) return -1;
    if (translation_settings_of(&e->recipe)->data.joint) {
        s->tgt_vocab = s->src_vocab;
        return 0;
    }
    return vocab_load(&s->tgt_vocab, path_join(directory, "target.vocab").text);
}

static int encode_text(translation *s) {
    for (int i = 0; i < SPLITS; i++) {
        if (s->text[i].n == 0) continue;
        if (corpus_encode(&s->pairs[i], &s->text[i], s->src_vocab, s->tgt_vocab)) return -1;
    }
    return 0;
}

/* ---- all of it ---- */

/* Reads the codes of a run's directory or of a file; else they are learned later. */
static int open_raw(experiment *e, const char *directory) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    raw_text *raw = &translation_of(e)->raw;
    const text_chain_options sides[RAW_SIDES] = {{.language = r->data.source_lang, .plain = true},
                                                 {.language = r->data.target_lang, .plain = true}};
    const data_set *set = translation_is_split(r) ? translation_set(r) : NULL;
    char folder[RECIPE_PATH];
    if (raw_text_open(raw, set ? set->pairs->sides : sides)) return -1;
    if (!directory && !set && !*r->data.bpe) return 0;
    if (!directory && set && data_set_path(set, folder, sizeof folder)) return -1;
    if (directory) return subword_codes_read(&raw->codes, path_join(directory, "bpe.codes").text);
    return subword_codes_read(&raw->codes, set ? path_join(folder, "codes").text : r->data.bpe);
}

int translation_load(experiment *e, const char *directory, int uses) {
    translation *s = translation_of(e);
    const translation_settings *r = translation_settings_of(&e->recipe);
    const char *from = directory ? directory : *r->data.vocabularies ? r->data.vocabularies : NULL;
    const data_set *set = e->task->generates ? NULL : translation_set(r);
    if (from && from != directory && run_format_check(from)) return -1;
    s->unit = r->data.tokens;
    s->is_raw = r->data.raw || translation_is_split(r);
    if (s->is_raw && open_raw(e, from)) return from ? -1 : data_set_explain(set);
    if ((!directory || (uses & TASK_SCORE)) && load_text(e, directory)) return data_set_explain(set);
    if (from ? load_vocabularies(e, from) : make_vocabularies(e)) return -1;
    return encode_text(s);
}

/* ---- what a run keeps ---- */

int translation_save(const experiment *e, const char *directory) {
    const translation *s = translation_of(e);
    if (vocab_save(s->src_vocab, path_join(directory, "source.vocab").text)) return -1;
    if (vocab_save(s->tgt_vocab, path_join(directory, "target.vocab").text)) return -1;
    return s->raw.codes.text ? subword_codes_save(&s->raw.codes, path_join(directory, "bpe.codes").text) : 0;
}

uint64_t translation_fingerprint(const experiment *e) {
    const translation *s = translation_of(e);
    uint64_t hash = FINGERPRINT_NAMES;
    const vocab *both[2] = {s->src_vocab, s->tgt_vocab};
    for (int v = 0; v < 2; v++) {
        for (int32_t i = 0; i < vocab_size(both[v]); i++) {
            const text_slice token = vocab_token(both[v], i);
            hash = fingerprint_names(hash, token.bytes, token.n);
            hash = fingerprint_names(hash, "\n", 1);
        }
    }
    return s->raw.codes.text ? fingerprint_names(hash, s->raw.codes.text, strlen(s->raw.codes.text)) : hash;
}

static uint64_t hash_side(const corpus_lines *lines, int64_t n) {
    const uint64_t hash = fingerprint_data(0, lines->bytes, (size_t)lines->at[n]);
    return fingerprint_data(hash, lines->at, (size_t)(n + 1) * sizeof *lines->at);
}

int translation_data(const experiment *e, task_part *out) {
    static const char *const keys[SPLITS][3] = {{"data.source", "data.target", "data.train"},
                                                {"data.valid_source", "data.valid_target", "data.valid"},
                                                {"data.test_source", "data.test_target", "data.test"}};
    const translation *s = translation_of(e);
    const translation_settings *r = translation_settings_of(&e->recipe);
    int n = subword_codes_part(&s->raw.codes, *r->data.vocabularies ? "" : r->data.bpe, out);
    for (int i = 0; i < SPLITS; i++) {
        const corpus_text *text = &s->text[i];
        if (text->n == 0) continue;
        const corpus_text *raw = &s->raw_pairs[i];
        const uint64_t src = hash_side(&text->src, text->n), tgt = hash_side(&text->tgt, text->n);
        const uint64_t raw_src = raw->n ? hash_side(&raw->src, raw->n) : s->raw_hash[i][RAW_SOURCE],
                       raw_tgt = raw->n ? hash_side(&raw->tgt, raw->n) : s->raw_hash[i][RAW_TARGET];
        if (e->task->generates) {
            out[n++] = (task_part){(task_split)i, keys[i][2], "", fingerprint_data(src, &tgt, sizeof tgt), 0};
        } else {
            out[n++] = (task_part){(task_split)i, keys[i][0], s->files[i][0], src, raw_src};
            out[n++] = (task_part){(task_split)i, keys[i][1], s->files[i][1], tgt, raw_tgt};
        }
    }
    return n;
}

/* ---- notes for people ---- */

/* Notes the pairs that are not used as they are. */
static void note_pairs(const experiment *e, task_split split, adamod__buffer *out) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    const translation *s = translation_of(e);
    const corpus_counts *c = &s->text[split].counts;
    const struct {
        int64_t n;
        const char *what;
        double limit;
    } parts[] = {{c->empty, "empty", 0},
                 {c->ratio, "beyond data.max_ratio", r->data.max_ratio},
                 {c->too_long, "longer than data.max_length", r->data.max_length},
                 {c->truncated, "cut to data.max_length", r->data.max_length}};
    if (c->empty + c->ratio + c->too_long + c->truncated == 0) return;
    adamod__buffer_format(out, "%.*s: used %lld of %lld pairs", RECIPE_PATH, s->files[split][0],
                          (long long)s->text[split].n, (long long)c->lines);
    const char *before = ": ";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].n == 0) continue;
        adamod__buffer_format(out, "%s%lld %s", before, (long long)parts[i].n, parts[i].what);
        if (parts[i].limit > 0) adamod__buffer_format(out, " %g", parts[i].limit);
        before = ", ";
    }
}

/* Notes languages without abbreviations of their own. */
static void note_languages(const translation_settings *r, adamod__buffer *out) {
    const bool source = !tokenizer_knows(r->data.source_lang),
               target = !tokenizer_knows(r->data.target_lang) && strcmp(r->data.source_lang, r->data.target_lang) != 0;
    if (!r->data.raw || (!source && !target)) return;
    adamod__buffer_format(out, "%sno abbreviations of %s%s%s: those of English are used", out->n ? "; " : "",
                          source ? r->data.source_lang : "", source && target ? " and " : "",
                          target ? r->data.target_lang : "");
}

bool translation_note(const experiment *e, task_split split, char *out, size_t size) {
    const bpe *codes = translation_of(e)->raw.codes.bpe;
    adamod__buffer notes = {0};
    note_pairs(e, split, &notes);
    if (split == SPLIT_TRAIN) note_languages(translation_settings_of(&e->recipe), &notes);
    if (split == SPLIT_TRAIN && codes && bpe_merges(codes) == 0)
        adamod__buffer_format(&notes, "%sno merges of subwords: tokens are characters", notes.n ? "; " : "");
    const bool any = notes.n > 0;
    if (any) snprintf(out, size, "%s", notes.text);
    adamod__buffer_free(&notes);
    return any;
}

static void describe_raw(const experiment *e, task_fact fact, void *context) {
    const translation_settings *r = translation_settings_of(&e->recipe);
    const char *const sides[][2] = {{"source language", r->data.source_lang}, {"target language", r->data.target_lang}};
    for (int i = 0; r->data.raw && i < 2; i++) {
        char text[64];
        const char *known = tokenizer_knows(sides[i][1]) ? "" : ", whose abbreviations are not known: English ones";
        snprintf(text, sizeof text, "%s%s", sides[i][1], known);
        fact(context, sides[i][0], text);
    }
}

void translation_describe(const experiment *e, task_fact fact, void *context) {
    const translation *s = translation_of(e);
    char text[64];
    describe_raw(e, fact, context);
    snprintf(text, sizeof text, "%lld tokens", (long long)vocab_size(s->src_vocab));
    fact(context, s->src_vocab == s->tgt_vocab ? "vocabulary" : "source vocabulary", text);
    if (s->src_vocab == s->tgt_vocab) return;
    snprintf(text, sizeof text, "%lld tokens", (long long)vocab_size(s->tgt_vocab));
    fact(context, "target vocabulary", text);
}
