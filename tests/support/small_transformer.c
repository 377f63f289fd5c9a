#include "small_transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

transformer_config small_config(void) {
    return (transformer_config){.encoder_layers = 2,
                                .decoder_layers = 2,
                                .d = 16,
                                .ffn = 24,
                                .heads = 4,
                                .smoothing = 0.1,
                                .src_vocab = SMALL_VOCAB + 2,
                                .tgt_vocab = SMALL_VOCAB};
}

static void must(adamod_status status) {
    if (!status) return;
    printf("small_transformer: %s\n", adamod_last_error());
    exit(1);
}

static small_transformer make(const transformer_config *c, const char *backend, const char *device,
                              nn_precision precision, int threads, bool training) {
    const transformer_sizes sizes = {SMALL_SRC, SMALL_TGT, SMALL_SENTENCES};
    small_transformer s = {.params = nn_params_create()};
    s.graph = nn_graph_create(s.params);
    must(adamod_pool_create(&s.pool, threads));
    s.loss = transformer_training(s.graph, c, &sizes, &s.symbols);
    must(nn_params_allocate(s.params, 7));
    must(nn_params_to_device(s.params, device, precision));
    const nn_plan_options o = {.backend = backend, .loss = s.loss, .pool = s.pool, .training = training};
    must(nn_plan_create(&s.plan, s.graph, &o));
    return s;
}

small_transformer small_make(const transformer_config *c, const char *backend, int threads, bool training) {
    return make(c, backend, "cpu", NN_FULL, threads, training);
}

small_transformer small_make_mixed(const transformer_config *c, int threads) {
    return make(c, NULL, "cpu", NN_MIXED, threads, true);
}

small_transformer small_make_on(const transformer_config *c, const char *device, nn_precision precision,
                                bool training) {
    return make(c, NULL, device, precision, 1, training);
}

void small_free(small_transformer *s) {
    nn_plan_free(s->plan);
    nn_graph_free(s->graph);
    nn_params_free(s->params);
    adamod_pool_free(s->pool);
}

void small_feed(small_transformer *s) {
    static const int32_t src[] = {0, 7, 8, 25, 38}, tgt[] = {0, 9, 20, 21, 41};
    int32_t *src_ids = nn_plan_data(s->plan, "src_ids"), *src_positions = nn_plan_data(s->plan, "src_positions");
    int32_t *in = nn_plan_data(s->plan, "tgt_in"), *out = nn_plan_data(s->plan, "tgt_out");
    int32_t *positions = nn_plan_data(s->plan, "tgt_positions");
    int32_t(*src_ranges)[2] = nn_plan_data(s->plan, "src_ranges"), (*ranges)[2] = nn_plan_data(s->plan, "tgt_ranges");
    nn_plan_set_rows(s->plan, s->symbols.src, src[SMALL_SENTENCES]);
    nn_plan_set_rows(s->plan, s->symbols.tgt, tgt[SMALL_SENTENCES]);
    nn_plan_set_rows(s->plan, s->symbols.sentences, SMALL_SENTENCES);
    for (int i = 0; i < SMALL_SENTENCES; i++) {
        for (int32_t r = src[i]; r < src[i + 1]; r++) {
            src_ids[r] = (int32_t)nn_below(1, (uint64_t)r, SMALL_VOCAB + 2);
            src_positions[r] = r - src[i];
        }
        for (int32_t r = tgt[i]; r < tgt[i + 1]; r++) {
            in[r] = (int32_t)nn_below(2, (uint64_t)r, SMALL_VOCAB);
            out[r] = (int32_t)nn_below(3, (uint64_t)r, SMALL_VOCAB);
            positions[r] = r - tgt[i];
        }
        src_ranges[i][0] = src[i], src_ranges[i][1] = src[i + 1];
        ranges[i][0] = tgt[i], ranges[i][1] = tgt[i + 1];
    }
    nn_plan_set_random(s->plan, 3, 5);
}

double small_score(small_transformer *s, const int32_t *src, const int32_t range[2], const decode_result *r) {
    const int32_t n_src = range[1] - range[0], n = r->length + (r->complete ? 1 : 0);
    int32_t *src_ids = nn_plan_data(s->plan, "src_ids"), *src_positions = nn_plan_data(s->plan, "src_positions");
    int32_t *in = nn_plan_data(s->plan, "tgt_in"), *out = nn_plan_data(s->plan, "tgt_out");
    int32_t *positions = nn_plan_data(s->plan, "tgt_positions");
    int32_t(*src_ranges)[2] = nn_plan_data(s->plan, "src_ranges"), (*ranges)[2] = nn_plan_data(s->plan, "tgt_ranges");
    nn_plan_set_rows(s->plan, s->symbols.src, n_src);
    nn_plan_set_rows(s->plan, s->symbols.tgt, n);
    nn_plan_set_rows(s->plan, s->symbols.sentences, 1);
    for (int32_t i = 0; i < n_src; i++) src_ids[i] = src[range[0] + i], src_positions[i] = i;
    for (int32_t i = 0; i < n; i++) {
        in[i] = i == 0 ? 0 : r->tokens[i - 1];
        out[i] = i < r->length ? r->tokens[i] : 1;
        positions[i] = i;
    }
    src_ranges[0][0] = ranges[0][0] = 0;
    src_ranges[0][1] = n_src;
    ranges[0][1] = n;
    nn_plan_forward(s->plan);
    if (nn_plan_wait(s->plan)) return NAN;
    return -(double)((float *)nn_plan_data(s->plan, "loss"))[1];
}
