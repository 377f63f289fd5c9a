/* A step of beam search for each sentence, in place: see nn.h, and beam.h for what is decided.
 *
 * Inputs: best [hypotheses, 2 n] of nn_best, search [sentences, nn_beam_words], ids and positions [hypotheses], paths
 * [hypotheses, max_length]; sentence i has the hypotheses i beam .. (i + 1) beam - 1. Output 0, [sentences, 1], is 1 for
 * those whose search goes on. Attributes: nn_beam_options. */
#include "core/error.h"
#include "nn/ops/beam.h"
#include "nn/ops/attributes.h"
#include "nn/op.h"

#include <string.h>

static int beam_shape(nn_node *node, const nn_shape *in, nn_shape *out) {
    const nn_beam_options *o = NN_ATTR(beam, node);
    const nn_shape *best = &in[BEAM_BEST], *search = &in[BEAM_SEARCH], *paths = &in[BEAM_PATHS];
    const int64_t hypotheses = best->dim[0];
    if (o->beam < 1 || o->beam > NN_MOST_BEAM || o->max_length < 1)
        return adamod__refuse("the beam or the length is out of range");
    if (search->ndim != 2 || search->dim[1] != nn_beam_words(o))
        return adamod__refuse("search has %lld columns, expected %lld", (long long)search->dim[1],
                              (long long)nn_beam_words(o));
    if (best->ndim != 2 || best->dim[1] % 2 || paths->ndim != 2 || paths->dim[1] != o->max_length)
        return adamod__refuse("best must be pairs, and paths as long as an output");
    if (in[BEAM_IDS].ndim != 1 || in[BEAM_POSITIONS].ndim != 1 || in[BEAM_IDS].dim[0] != hypotheses ||
        in[BEAM_POSITIONS].dim[0] != hypotheses || paths->dim[0] != hypotheses ||
        search->dim[0] * o->beam != hypotheses)
        return adamod__refuse("there are not as many hypotheses in all inputs");
    out[0] = *search;
    out[0].dim[1] = 1;
    for (int k = BEAM_SEARCH; k <= BEAM_PATHS; k++) out[k] = in[k];
    return 0;
}

static void step_sentence(const nn_call *c, int64_t i) {
    const nn_beam_options *o = NN_ATTR(beam, c);
    const int64_t row = i * o->beam, n = c->input[BEAM_BEST].cols / 2;
    int32_t *search = (int32_t *)c->output[BEAM_SEARCH].data + i * c->output[BEAM_SEARCH].cols;
    int32_t *paths = (int32_t *)c->output[BEAM_PATHS].data + row * o->max_length;
    const nn_beam_view v = nn_beam_at(o->beam, o->max_length, search);
    nn_beam_step s;
    if (!v.count[BEAM_DONE]) {
        nn_beam_decide(&v, o, (const float *)c->input[BEAM_BEST].data + row * 2 * n, (int)n, &s);
        for (int k = 0; k < s.copies; k++) {
            for (int t = 0; t <= s.time; t++) nn_beam_copy_token(&v, &s, &s.copy[k], paths, t);
        }
        for (int t = 0; !s.done && t <= s.time; t++) nn_beam_follow(&v, &s, paths, t);
        for (int b = 0; b < o->beam; b++) {
            nn_beam_feed(&v, &s, b, (int32_t *)c->output[BEAM_IDS].data + row,
                         (int32_t *)c->output[BEAM_POSITIONS].data + row, paths);
        }
    }
    ((float *)c->output[0].data)[i] = v.count[BEAM_DONE] ? 0 : 1;
}

static void beam_forward(const nn_call *c) {
    for (int64_t i = 0; i < c->output[0].rows; i++) step_sentence(c, i);
}

const nn_op nn_op_beam = {
    .name = "beam",
    .inputs = {"best", "search", "ids", "positions", "paths"},
    .indices = 1u << BEAM_SEARCH | 1u << BEAM_IDS | 1u << BEAM_POSITIONS | 1u << BEAM_PATHS,
    .attributes_size = sizeof(nn_beam_attributes),
    .shape = beam_shape,
    .ref = {.forward = beam_forward},
    .aliases = {0, 1 + BEAM_SEARCH, 1 + BEAM_IDS, 1 + BEAM_POSITIONS, 1 + BEAM_PATHS},
    .full_outputs = 1u << 0,
};

nn_value nn_beam(nn_graph *g, nn_value best, nn_value search, nn_value ids, nn_value positions, nn_value paths,
                 const nn_beam_options *o) {
    return nn_add_node(g, &nn_op_beam, 5, (nn_value[]){best, search, ids, positions, paths}, o);
}

/* ---- the host's side of a search ---- */

int64_t nn_beam_words(const nn_beam_options *o) { return nn_beam_width(o->beam, o->max_length); }

void nn_beam_begin(const nn_beam_options *o, int64_t first_row, const nn_beam_rows *rows) {
    const bool live = first_row >= 0;
    memset(rows->search, 0, (size_t)nn_beam_words(o) * sizeof *rows->search);
    rows->search[BEAM_LIVE] = live;
    rows->search[BEAM_DONE] = !live;
    rows->search[BEAM_FIRST_ROW] = (int32_t)(live ? first_row : 0);
    for (int b = 0; b < o->beam; b++) {
        rows->ids[b] = live && b == 0 ? o->start : 0;
        rows->positions[b] = 0;
        rows->paths[(int64_t)b * o->max_length] = live && b == 0 ? (int32_t)first_row : -1;
    }
}

bool nn_beam_result(const nn_beam_options *o, const int32_t *search, int k, nn_beam_found *out) {
    const nn_beam_view v = nn_beam_at(o->beam, o->max_length, (int32_t *)(uintptr_t)search);
    if (k >= v.count[BEAM_KEPT]) return false;
    out->tokens = v.tokens + (int64_t)v.kept_place[k] * o->max_length;
    out->length = v.kept_length[k];
    out->score = v.kept_score[k];
    out->complete = v.kept_complete[k];
    return true;
}
