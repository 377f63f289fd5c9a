/* See attention_cases.h. */
#include "attention_cases.h"
#include "nn/ops/attention.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t lay_out(int n, const int *lengths, int32_t (*ranges)[2], int *sequences) {
    int32_t row = 0;
    *sequences = 0;
    for (int i = 0; i < n; i++) {
        const int32_t length = abs(lengths[i]);
        if (lengths[i] >= 0) {
            ranges[*sequences][0] = row;
            ranges[(*sequences)++][1] = row + length;
        }
        row += length;
    }
    return row;
}

void attention_set_up(attention_setup *x, const attention_case *a) {
    int sequences, sequences_k, longest = 0;
    const int64_t d = a->heads * a->size, d_k = a->kv_heads ? a->kv_heads * a->size : d;
    const int64_t rows = lay_out(a->n, a->nq, x->q_ranges, &sequences);
    const int64_t k_rows = lay_out(a->n, a->cross ? a->nk : a->nq, x->k_ranges, &sequences_k);
    for (int i = 0; i < a->n; i++) {
        longest = a->nq[i] > longest ? a->nq[i] : longest;
        longest = a->nk[i] > longest ? a->nk[i] : longest;
    }
    x->o = (opcheck){
        .op = &nn_op_attention,
        .attributes =
            {.attention = {.heads = a->heads, .causal = a->causal, .dropout = a->dropout, .kv_heads = a->kv_heads}},
        .n_inputs = 4,
        .input = {OPCHECK_ROWS(1, rows, a->cross && !a->decoding ? d : d + 2 * d_k), OPCHECK_NONE,
                  OPCHECK_INDEX(2, sequences, 2, x->q_ranges), OPCHECK_INDEX(2, sequences, 2, x->k_ranges)},
        .training = true,
        .seed = (uint64_t)(rows + 131 * d),
        .longest_sum = a->size + longest,
        .slack = 4, /* gradients of scores are small differences of large sums */
    };
    if (a->cross) x->o.input[ATTENTION_KV] = (opcheck_input)OPCHECK_ROWS(3, k_rows, 2 * d_k);
    if (a->decoding) x->o.input[ATTENTION_Q].no_grad = x->o.input[ATTENTION_KV].no_grad = true;
}

attention_case attention_at_random(uint64_t seed, uint64_t longest) {
    attention_case a = {.heads = 1 + (int)nn_below(seed, 0, 16), .size = 1 + (int)nn_below(seed, 1, 20)};
    a.causal = nn_below(seed, 2, 2);
    a.cross = nn_below(seed, 3, 2);
    a.dropout = nn_below(seed, 4, 2) ? 0.3 : 0;
    a.n = (int)nn_below(seed, 5, 9);
    for (int i = 0; i < a.n; i++) {
        const int sign = nn_below(seed, 6 + 3 * (uint64_t)i, 8) ? 1 : -1;
        a.nq[i] = sign * (int)nn_below(seed, 7 + 3 * (uint64_t)i, longest);
        a.nk[i] = sign * (int)nn_below(seed, 8 + 3 * (uint64_t)i, longest);
        if (sign < 0 && (!a.nq[i] || !a.nk[i])) a.nq[i] = a.nk[i] = -1;
    }
    return a;
}

bool attention_told(const attention_case *a, bool ok) {
    if (!ok)
        printf("%d heads of %d, %d of keys, causal %d, cross %d, dropout %g, %d lengths\n", a->heads, a->size,
               a->kv_heads, a->causal, a->cross, a->dropout, a->n);
    return ok;
}
