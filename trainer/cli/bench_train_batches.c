/* The batches of `adamod bench train`, kept as the task fed them to a plan, to be fed again at no cost. */
#include "cli/bench_train.h"

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const bench_batch *b, int i) { return (size_t)b->rows[i] * b->inputs[i].row_bytes; }

/* Copies the rows that the plan was given. */
static bool keep(const bench_batch *b, nn_plan *plan) {
    for (int i = 0; i < b->n_inputs; i++) {
        b->rows[i] = nn_plan_rows(plan, b->inputs[i].rows);
        b->data[i] = malloc(bytes_of(b, i) + 1);
        if (!b->data[i]) return false;
        memcpy(b->data[i], nn_plan_data(plan, b->inputs[i].name), bytes_of(b, i));
    }
    return true;
}

bool bench_batch_take(bench_batch *b, experiment *s) {
    nn_profile_input found;
    int n = 0;
    while (nn_profile_input_at(s->graph, n, &found)) n++;
    *b = (bench_batch){.n_inputs = n,
                       .inputs = calloc((size_t)n + 1, sizeof *b->inputs),
                       .rows = calloc((size_t)n + 1, sizeof *b->rows),
                       .data = calloc((size_t)n + 1, sizeof *b->data)};
    if (!b->inputs || !b->rows || !b->data) return false;
    for (int i = 0; i < n; i++) nn_profile_input_at(s->graph, i, &b->inputs[i]);
    s->task->next(s, &b->counts);
    return keep(b, s->plan);
}

void bench_batch_feed(const bench_batch *b, nn_plan *plan) {
    for (int i = 0; i < b->n_inputs; i++) {
        nn_plan_set_rows(plan, b->inputs[i].rows, b->rows[i]);
        memcpy(nn_plan_data(plan, b->inputs[i].name), b->data[i], bytes_of(b, i));
    }
}

int64_t bench_batch_rows(const bench_batch *b, int symbol) {
    for (int i = 0; i < b->n_inputs; i++) {
        if (b->inputs[i].rows == symbol) return b->rows[i];
    }
    return -1;
}

void bench_batch_free(bench_batch *b) {
    for (int i = 0; b->data && i < b->n_inputs; i++) free(b->data[i]);
    free(b->inputs);
    free(b->rows);
    free(b->data);
    *b = (bench_batch){0};
}
