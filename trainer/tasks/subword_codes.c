#include "tasks/subword_codes.h"

#include "core/error.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

void subword_codes_close(subword_codes *s) {
    bpe_worker_free(s->worker);
    bpe_free(s->bpe);
    free(s->text);
    *s = (subword_codes){0};
}

/* Takes ownership of codes. */
static int take(subword_codes *s, char *codes, const char *name) {
    s->text = codes;
    if (bpe_parse(&s->bpe, text_of(codes), -1, name)) return -1;
    s->worker = bpe_worker_create(s->bpe, &(bpe_options){0});
    return s->worker ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", name);
}

int subword_codes_read(subword_codes *s, const char *path) {
    char *bytes;
    size_t n;
    if (text_input_read(path, &bytes, &n)) return -1;
    char *codes = memchr(bytes, 0, n) ? NULL : strndup(bytes, n);
    free(bytes);
    if (!codes) return adamod__refuse("%s: a zero byte, expected codes", path);
    return take(s, codes, path);
}

int subword_codes_learn(subword_codes *s, bpe_learner *l, int64_t merges) {
    int64_t done;
    char *codes = l ? bpe_learner_run(l, merges, 2, &done) : NULL;
    bpe_learner_free(l);
    if (!codes) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for learning subwords");
    return take(s, codes, "codes");
}

int subword_codes_save(const subword_codes *s, const char *path) { return text_write(path, text_of(s->text)); }

int subword_codes_part(const subword_codes *s, const char *file, task_part *out) {
    if (!s->text || !*file) return 0;
    *out = (task_part){SPLIT_TRAIN, "data.bpe", file, fingerprint_data(0, s->text, strlen(s->text)), 0};
    return 1;
}
