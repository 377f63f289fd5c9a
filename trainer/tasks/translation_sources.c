#include "tasks/translation_parts.h"

#include "core/error.h"

#include <stdlib.h>

int translation_sources_open(translation_sources *x, int64_t n) {
    *x = (translation_sources){.at = calloc((size_t)n + 1, sizeof *x->at)};
    return x->at ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld sentences", (long long)n);
}

void translation_sources_close(translation_sources *x) {
    free(x->at);
    free(x->ids);
}

int translation_sources_add(const experiment *e, text_slice text, translation_sources *x) {
    const translation *s = translation_of(e);
    const int limit = translation_settings_of(&e->recipe)->data.max_length;
    const int64_t n = x->at[x->n];
    int64_t length = vocab_encode(s->src_vocab, s->unit, text, NULL, 0);
    const int64_t most = limit > 0 ? limit : length;
    if (length > most) length = most;
    if (n + length + 1 > x->room) {
        x->room = 2 * (n + length + 1);
        int32_t *grown = adamod__resize(x->ids, (size_t)x->room, sizeof *grown);
        if (!grown)
            return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a sentence of %lld tokens", (long long)length);
        x->ids = grown;
    }
    vocab_encode(s->src_vocab, s->unit, text, x->ids + n, length);
    x->ids[n + length] = VOCAB_END;
    x->at[++x->n] = n + length + 1;
    return 0;
}

int translation_sources_decode(experiment *e, const translation_sources *x,
                               int (*take)(void *context, int64_t i, int place), void *context) {
    int taken = 0;
    const adamod_status status =
        decoder_run_all(translation_of(e)->decoder, x->n, x->ids, x->at, take, context, &taken);
    return status ? status : taken;
}
