/* Gradients that are sums over rows: see sums_graph.h. */
#include "sums_graph.h"
#include "support/random.h"

#include <math.h>
#include <stdio.h>

enum { CAPACITY = 1100, SENTENCES = 70, WORDS = 40, PASSES = 3 };

/* x W^T + b under names. */
static nn_value dense(nn_graph *g, const char *w, const char *b, nn_value x, int64_t out, int64_t in,
                      nn_activation activation) {
    const nn_value weight = nn_parameter(g, w, 2, (int64_t[]){out, in}, (nn_init){NN_XAVIER, 0});
    return nn_linear(g, x, weight, nn_parameter(g, b, 1, &out, (nn_init){NN_NORMAL, 0.2}), activation);
}

static nn_value norm(nn_graph *g, const char *name, nn_value x, nn_value branch, int64_t cols) {
    nn_scope_push(g, "%s", name);
    const nn_value gamma = nn_parameter(g, "gamma", 1, &cols, (nn_init){NN_ONES, 0});
    const nn_value beta = nn_parameter(g, "beta", 1, &cols, (nn_init){NN_NORMAL, 0.2});
    nn_scope_pop(g);
    return nn_add_norm(g, x, branch, 0.1, gamma, beta, 1e-5);
}

/* Biases of one node and of two; before a norm, before a norm and something else, before GELU, before attention of both
 * kinds, and before what cannot sum for them; weights of norms of their own and shared. */
static nn_value sums_graph(nn_graph *g, int rows, int sentences, int64_t d) {
    const int heads = d % 64 ? 2 : (int)(d / 32);
    const nn_value ids = nn_input(g, "ids", NN_I32, rows, 0), targets = nn_input(g, "targets", NN_I32, rows, 0);
    const nn_value ranges = nn_input(g, "ranges", NN_I32, sentences, 2);
    nn_pad(g, targets, -1);
    const nn_value table = nn_parameter(g, "table", 2, (int64_t[]){WORDS, d}, (nn_init){NN_NORMAL, 1});
    nn_value x = nn_embedding(g, ids, -1, table, 1);
    x = norm(g, "shared", x, dense(g, "w0", "b", x, d, d, NN_LINEAR), d);
    x = norm(g, "n1", x, dense(g, "w1", "b", x, d, d, NN_LINEAR), d);
    x = norm(g, "shared", x, dense(g, "w2", "b2", x, d, d, NN_LINEAR), d);
    const nn_value twice = dense(g, "w3", "b3", x, d, d, NN_LINEAR);
    x = norm(g, "n3", nn_add(g, x, twice, 0), twice, d);
    x = norm(g, "n4", x, dense(g, "w4", "b4", x, d, d, NN_GELU), d);
    const nn_value qkv = dense(g, "w5", "b5", x, 3 * d, d, NN_LINEAR);
    nn_value y = nn_attention(g, qkv, -1, ranges, ranges, heads, true, 0.1);
    x = norm(g, "n5", x, dense(g, "w6", "b6", y, d, d, NN_LINEAR), d);
    const nn_value q = dense(g, "w7", "b7", x, d, d, NN_LINEAR), kv = dense(g, "w8", "b8", x, 2 * d, d, NN_LINEAR);
    y = nn_attention(g, q, kv, ranges, ranges, heads, false, 0);
    x = norm(g, "n6", x, y, d);
    return nn_cross_entropy(g, dense(g, "out", "b_out", x, WORDS, d, NN_LINEAR), targets, 0);
}

/* Sentences of up to 70 tokens, some of none, and now and then a token in none of them. */
static void fill(nn_plan *plan, int sentences, int64_t rows, int pass) {
    int32_t *ids = nn_plan_data(plan, "ids"), *targets = nn_plan_data(plan, "targets");
    int32_t(*ranges)[2] = nn_plan_data(plan, "ranges"), at = 0;
    int n = 0;
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)nn_below(1, (uint64_t)(PASSES * i + pass), WORDS);
        targets[i] = (int32_t)nn_below(2, (uint64_t)i, WORDS);
    }
    for (; n < SENTENCES && at < rows; n++) {
        const int32_t length = (int32_t)nn_below(3, (uint64_t)n, n % 5 == 1 ? 71 : 20);
        ranges[n][0] = at;
        ranges[n][1] = at + length < rows ? at + length : (int32_t)rows;
        at = ranges[n][1] + (n % 3 == 0);
    }
    nn_plan_set_rows(plan, sentences, n);
    nn_plan_set_random(plan, 5, (uint64_t)pass);
}

static adamod_status run_passes(nn_plan *plan, int sentences, int64_t rows) {
    adamod_status status = ADAMOD_OK;
    for (int pass = 0; !status && pass < PASSES; pass++) {
        fill(plan, sentences, rows, pass);
        nn_plan_forward(plan);
        nn_plan_backward(plan, pass > 0);
        status = nn_plan_wait(plan);
    }
    return status;
}

nn_params *sums_gradient(int64_t rows, int64_t cols, adamod_status (*to_device)(nn_params *p, void *context),
                         void *context) {
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    const int row_symbol = nn_symbol(g, "rows", CAPACITY), sentences = nn_symbol(g, "sentences", SENTENCES);
    const nn_plan_options o = {.loss = sums_graph(g, row_symbol, sentences, cols), .training = true};
    nn_plan *plan = NULL;
    adamod_status status = nn_params_allocate(p, 3);
    if (!status && to_device) status = to_device(p, context);
    if (!status) status = nn_plan_create(&plan, g, &o);
    if (!status) status = nn_plan_set_rows(plan, row_symbol, rows);
    if (!status) status = run_passes(plan, sentences, rows);
    if (!status) status = nn_params_fetch_grad(p);
    nn_plan_free(plan);
    nn_graph_free(g);
    if (!status) return p;
    printf("sums_graph: %s\n", adamod_last_error());
    nn_params_free(p);
    return NULL;
}

static double difference(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += ((double)a[k] - (double)b[k]) * ((double)a[k] - (double)b[k]);
    return sqrt(sum);
}

static double norm_of(const float *a, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)a[k];
    return sqrt(sum);
}

bool sums_agree(const nn_params *a, const nn_params *b, double tolerance) {
    const double least = 1e-3 * norm_of(a->grad, a->count); /* with one key, a query's gradient is 0 */
    bool agree = true;
    for (int i = 0; i < a->n; i++) {
        const nn_param *p = &a->list[i];
        const double size = fmax(norm_of(a->grad + p->offset, p->count), least);
        const double off = difference(a->grad + p->offset, b->grad + p->offset, p->count) / size;
        if (off <= tolerance) continue;
        printf("sums_graph: the gradient of %s is off by %.2g of its size\n", p->name, off);
        agree = false;
    }
    return agree;
}
