/* language_bytes.c - text as bytes: byte-level BPE, learned or read, and files of packed ids. */
#include "core/error.h"
#include "data/text_input.h"
#include "support/fingerprint.h"
#include "tasks/language_reader.h"

#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- vocabulary ---- */

static int learn(experiment *e, const char *path) {
    const int64_t size = 257 + (int64_t)language_settings_of(&e->recipe)->data.merges; /* bytes and <|endoftext|> */
    byte_bpe_learner *l = byte_bpe_learner_create();
    int failed = l ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for learning tokens");
    if (!failed) failed = byte_bpe_learner_add_files(l, 1, &path, e->recipe.train.threads);
    if (!failed) failed = byte_bpe_learn(&language_of(e)->bytes, l, size, 2);
    byte_bpe_learner_free(l);
    return failed;
}

/* Whether there is a vocabulary. A run of packed ids may have none: then its text is numbers. */
static bool has_vocabulary(const experiment *e, const char *run) {
    const language_settings *r = language_settings_of(&e->recipe);
    if (!language_is_packed(&e->recipe)) return true;
    return run ? access(path_join(run, "vocab.json").text, F_OK) == 0 : *r->data.bpe != '\0';
}

int language_bytes_open(experiment *e, const char *run, const char *train_file) {
    const language_settings *r = language_settings_of(&e->recipe);
    language *s = language_of(e);
    const char *from = run ? run : r->data.bpe;
    s->words = r->data.words;
    if (!has_vocabulary(e, run)) return 0;
    if (*from ? byte_bpe_load(&s->bytes, from) : learn(e, train_file)) return -1;
    s->words = byte_bpe_size(s->bytes);
    s->encoder = byte_bpe_encoder_create(s->bytes, true);
    return s->encoder ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for encoding text");
}

void language_bytes_close(language *s) {
    byte_bpe_encoder_free(s->encoder);
    byte_bpe_free(s->bytes);
    for (int split = 0; split < SPLITS; split++) token_set_close(s->packed[split]);
    free(s->ids);
}

/* ---- files ---- */

static int read_all(const char *path, adamod__buffer *text) {
    text_input *in;
    text_slice bytes;
    int got;
    if (text_input_open(&in, path)) return -1;
    while ((got = text_input_bytes(in, &bytes)) > 0) adamod__buffer_add(text, bytes.bytes, bytes.n);
    text_input_close(in);
    if (text->failed) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for the text", path);
    if (got == 0 && token_file_begins(text->text, text->n))
        return adamod__refuse("%s: packed tokens, expected text: data.set packed reads them", path);
    return got < 0 ? -1 : text->n ? 0 : adamod__refuse("%s: the file has no text", path);
}

int language_bytes_read(experiment *e, int split, const char *path) {
    language *s = language_of(e);
    adamod__buffer text = {0};
    byte_bpe_ids ids = {0};
    int failed = read_all(path, &text);
    if (!failed && byte_bpe_encode(s->encoder, (text_slice){text.text, text.n}, &ids))
        failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory for its tokens", path);
    if (!failed) s->hash[split] = fingerprint_data(0, text.text, text.n);
    adamod__buffer_free(&text);
    s->text[split] = ids.list;
    s->n[split] = (int64_t)ids.n;
    return failed;
}

/* ---- packed ids ---- */

int language_packed_at(const language *s, int split, int64_t length, int64_t window, int32_t *ids) {
    return token_set_window(s->packed[split], &(token_windows){.length = length}, 0, window, ids);
}

/* Hashes the number of ids, the first and the last ones: files may be larger than memory. */
static int hash_packed(language *s, int split) {
    enum { SOME = 1024 };
    const int64_t n = s->n[split], length = n - 1 < SOME ? n - 1 : SOME;
    int32_t ids[SOME + 1];
    s->hash[split] = fingerprint_data(0, &n, sizeof n);
    const int64_t windows = token_set_windows(s->packed[split], length);
    for (int64_t at = 0; at<windows; at += windows> 1 ? windows - 1 : 1) {
        if (language_packed_at(s, split, length, at, ids)) return -1;
        s->hash[split] = fingerprint_data(s->hash[split], ids, (size_t)(length + 1) * sizeof *ids);
    }
    return 0;
}

/* No window reaches from a file into the next one. */
static int check_windows(const experiment *e, int split, const char *pattern) {
    const language_settings *r = language_settings_of(&e->recipe);
    const bool train = split == SPLIT_TRAIN;
    const int length = train ? r->data.length : (int)language_score_length(r), least = train ? r->data.batch : 1;
    const int64_t have = token_set_windows(language_of(e)->packed[split], length);
    if (have >= least) return 0;
    return adamod__refuse("%s: room for %lld windows of %s %d and a next token, expected at least %s%d", pattern,
                          (long long)have, train ? "data.length" : "data.score_length", length,
                          train ? "data.batch, " : "", least);
}

static int make_window(experiment *e) {
    const language_settings *r = language_settings_of(&e->recipe);
    const int longest = r->data.length > r->data.score_length ? r->data.length : r->data.score_length;
    language *s = language_of(e);
    if (!s->ids) s->ids = calloc((size_t)longest + 1, sizeof *s->ids);
    return s->ids ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a window");
}

int language_packed_open(experiment *e, int split, const char *pattern) {
    language *s = language_of(e);
    glob_t found;
    if (make_window(e)) return -1;
    const int none = glob(pattern, GLOB_NOCHECK, NULL, &found);
    if (none) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot look for the file", pattern);
    int failed = token_set_open(&s->packed[split], (int)found.gl_pathc, (const char *const *)found.gl_pathv, s->words);
    globfree(&found);
    if (!failed) failed = token_set_check(s->packed[split]);
    if (failed || check_windows(e, split, pattern)) return -1;
    s->n[split] = token_set_count(s->packed[split]);
    return hash_packed(s, split);
}
