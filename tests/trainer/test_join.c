/* Values that lie inside others: random graphs with concatenations against the same ones without, and against differences
 * of the loss; and which values the plan places where. */
#include "check.h"
#include "support/random.h"
#include "nn/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 4, ROWS = 3, SIDE = 2, CLASSES = 3 };

/* ---- graphs ---- */

typedef struct builder {
    nn_graph *g;
    uint64_t key, drawn; /* of what the graph looks like */
    bool apart;          /* nothing is placed inside a concatenation */
    int ops;
} builder;

static int draw(builder *b, int n) { return (int)(nn_uniform(b->key, b->drawn++) * n); }

static nn_value vector(builder *b, const char *name, int64_t n, nn_init_kind kind) {
    return nn_parameter(b->g, name, 1, &n, (nn_init){kind, 1});
}

static nn_value convolution(builder *b, nn_value x, int64_t out, int64_t size) {
    nn_scope_push(b->g, "%d", b->ops++);
    const nn_value w = nn_parameter(b->g, "weight", 4, (int64_t[]){out, size, size, nn_shape_of(b->g, x).dim[3]},
                                    (nn_init){NN_FAN_IN, 0});
    const nn_value y = nn_convolution(b->g, x, w, 1, (int)size / 2);
    nn_scope_pop(b->g);
    return y;
}

static nn_value norm(builder *b, nn_value x, nn_value residual) {
    const int64_t n = nn_shape_of(b->g, x).dim[3];
    nn_scope_push(b->g, "%d", b->ops++);
    const nn_value mean = nn_persistent(b->g, "mean", 1, &n, (nn_init){NN_ZEROS, 0});
    const nn_value variance = nn_persistent(b->g, "variance", 1, &n, (nn_init){NN_ONES, 0});
    const nn_value y = nn_batch_norm(b->g, x, residual, vector(b, "gamma", n, NN_ONES),
                                     vector(b, "beta", n, NN_UNIFORM), mean, variance, 1e-1, 0.1, NN_LINEAR);
    nn_scope_pop(b->g);
    return y;
}

/* dropout takes no strides. */
static nn_value concat(builder *b, nn_value x, nn_value y) {
    if (b->apart) x = nn_dropout(b->g, x, 0), y = nn_dropout(b->g, y, 0);
    const nn_value z = nn_concat(b->g, x, y);
    return b->apart ? nn_dropout(b->g, z, 0) : z;
}

static nn_value loss_of(builder *b, nn_value x, int rows) {
    const nn_value pooled = nn_average_pool(b->g, x, SIDE), targets = nn_input(b->g, "targets", NN_I32, rows, 0);
    const nn_value w =
        nn_parameter(b->g, "out", 2, (int64_t[]){CLASSES, nn_shape_of(b->g, x).dim[3]}, (nn_init){NN_FAN_IN, 0});
    const nn_value loss = nn_cross_entropy(b->g, nn_linear(b->g, pooled, w, -1, NN_LINEAR), targets, 0);
    nn_output(b->g, "loss", loss);
    return loss;
}

static nn_value images(builder *b, int *rows) {
    *rows = nn_symbol(b->g, "images", CAPACITY);
    return nn_input_images(b->g, "x", NN_F32, *rows, SIDE, SIDE, 2);
}

/* Values are used again at random, inside concatenations and outside; what nothing reads is not computed. */
static nn_value random_graph(builder *b) {
    enum { OPS = 14 };
    int rows, n = 0;
    nn_value values[OPS + 2];
    values[n++] = images(b, &rows);
    values[n++] = convolution(b, values[0], 2, 1);
    while (n < OPS + 2) {
        const nn_value x = values[n - 1 - draw(b, n < 4 ? n : 4)], y = values[draw(b, n)];
        nn_value z = -1;
        switch (draw(b, 6)) {
            case 0: z = convolution(b, x, 1 + draw(b, 3), 3); break;
            case 1: z = norm(b, x, -1); break;
            case 2: z = nn_shape_of(b->g, y).dim[3] == nn_shape_of(b->g, x).dim[3] ? norm(b, x, y) : -1; break;
            case 3: z = nn_add(b->g, x, x, 0); break; /* takes no strides either */
            default: z = concat(b, x, y); break;
        }
        if (z >= 0 && nn_shape_of(b->g, z).dim[3] < 40) values[n++] = z;
    }
    return loss_of(b, concat(b, values[n - 1], values[n - 2]), rows);
}

/* ---- runs ---- */

typedef struct model {
    nn_params *params;
    nn_graph *graph;
    nn_plan *plan;
} model;

static bool make(model *m, uint64_t key, bool apart, const char *backend) {
    m->params = nn_params_create();
    m->graph = nn_graph_create(m->params);
    builder b = {.g = m->graph, .key = key, .apart = apart};
    const nn_value loss = random_graph(&b);
    m->plan = NULL;
    nn_params_allocate(m->params, 7);
    const adamod_status status =
        nn_plan_create(&m->plan, m->graph, &(nn_plan_options){.backend = backend, .loss = loss, .training = true});
    if (status) printf("%s\n", adamod_last_error());
    if (status) return false;
    float *x = nn_plan_data(m->plan, "x");
    int32_t *targets = nn_plan_data(m->plan, "targets");
    for (int i = 0; i < ROWS * SIDE * SIDE * 2; i++) x[i] = (float)nn_normal(key, (uint64_t)i + 1000);
    for (int i = 0; i < ROWS; i++) targets[i] = i % CLASSES;
    return nn_plan_set_rows(m->plan, 1, ROWS) == ADAMOD_OK;
}

static void unmake(model *m) {
    nn_plan_free(m->plan);
    nn_graph_free(m->graph);
    nn_params_free(m->params);
}

static double loss_now(model *m) {
    nn_plan_forward(m->plan);
    return *(const float *)nn_plan_data(m->plan, "loss");
}

static int places_of(const nn_plan *plan) {
    int n = 0;
    for (nn_value v = 0; v < plan->graph->n_values; v++) n += plan->place[v].in != v;
    return n;
}

/* Parameters have the same names in both: the ops that keep values apart have none. */
static double gradients_differ(const model *a, const model *b) {
    double squares = 0, all = 1e-12;
    for (int64_t i = 0; i < a->params->count; i++) {
        squares += pow((double)a->params->grad[i] - b->params->grad[i], 2);
        all += pow(b->params->grad[i], 2);
    }
    return sqrt(squares / all);
}

/* The derivative of the loss along the gradient, by differences, over the gradient's square. */
static double by_differences(model *m) {
    const int64_t n = m->params->count;
    float *x = m->params->data, *start = malloc((size_t)n * sizeof *start);
    double norm = 0, at[4];
    memcpy(start, x, (size_t)n * sizeof *start);
    for (int64_t i = 0; i < n; i++) norm += pow(m->params->grad[i], 2);
    const double h = 0.01 / sqrt(norm);
    for (int k = 0; k < 4; k++) {
        const double step = (k & 1 ? -h : h) * (k & 2 ? 2 : 1);
        for (int64_t i = 0; i < n; i++) x[i] = (float)(start[i] + step * m->params->grad[i]);
        at[k] = loss_now(m);
    }
    memcpy(x, start, (size_t)n * sizeof *start);
    free(start);
    return (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h * norm);
}

static void check_graph(uint64_t key, const char *backend, int *placed, int *taken) {
    model joined, apart;
    if (!CHECK(make(&joined, key, false, backend)) || !CHECK(make(&apart, key, true, "ref"))) return;
    CHECK_INT(places_of(apart.plan), 0);
    *placed += places_of(joined.plan);
    *taken += places_of(joined.plan) == 0;
    for (int run = 0; run < 2; run++) { /* memory is used again */
        CHECK_CLOSE(loss_now(&joined), loss_now(&apart), 2e-6);
        nn_plan_backward(joined.plan, false);
        nn_plan_backward(apart.plan, false);
    }
    const double off = gradients_differ(&joined, &apart);
    if (!CHECK(off < 1e-5)) printf("graph %llu with %s: off by %g\n", (unsigned long long)key, backend, off);
    CHECK_CLOSE(by_differences(&apart), 1, 3e-3);
    unmake(&joined);
    unmake(&apart);
}

TEST(joined_values_change_no_results) {
    int placed = 0, without = 0;
    for (uint64_t key = 0; key < 150; key++) check_graph(key, key % 2 ? "cpu" : "ref", &placed, &without);
    printf("%d values placed; in %d graphs none\n", placed, without);
    CHECK(placed > 150 && without > 0);
}

/* ---- which ---- */

/* A dense block: each layer reads all before it and puts its features first. */
TEST(a_dense_block_is_one_array) {
    model m = {.params = nn_params_create()};
    m.graph = nn_graph_create(m.params);
    builder b = {.g = m.graph};
    int rows;
    nn_value x = convolution(&b, images(&b, &rows), 4, 3), first = x, features[3];
    for (int i = 0; i < 3; i++) {
        features[i] = convolution(&b, norm(&b, x, -1), 2, 3);
        x = nn_concat(m.graph, features[i], x);
    }
    const nn_value loss = loss_of(&b, norm(&b, x, -1), rows);
    nn_params_allocate(m.params, 1);
    if (!CHECK_INT(
            nn_plan_create(&m.plan, m.graph, &(nn_plan_options){.backend = "ref", .loss = loss, .training = true}),
            ADAMOD_OK))
        return;
    CHECK(m.plan->place[first].in == x && m.plan->place[first].offset == 6);
    for (int i = 0; i < 3; i++)
        CHECK(m.plan->place[features[i]].in == x && m.plan->place[features[i]].offset == 2 * (2 - i));
    int shared = 0;
    for (int s = 0; s < m.plan->n_steps; s++) {
        const nn_call *c = &m.plan->steps[s].call;
        if (m.plan->steps[s].node->op != &nn_op_concat) continue;
        shared += m.plan->steps[s].backward ? c->grad->input[0] == c->grad->output[0] : c->output[0].stride == 10;
    }
    CHECK_INT(shared, 6);
    unmake(&m);
}

/* One that is read elsewhere before the whole has a gradient stays apart, and so does one that is read after a run. */
TEST(values_that_cannot_be_placed_stay_apart) {
    model m = {.params = nn_params_create()};
    m.graph = nn_graph_create(m.params);
    builder b = {.g = m.graph};
    int rows;
    const nn_value x = images(&b, &rows), a = convolution(&b, x, 2, 1), c = convolution(&b, x, 2, 1);
    nn_output(m.graph, "c", c);
    const nn_value y = nn_concat(m.graph, a, c), z = norm(&b, y, -1), late = norm(&b, a, -1);
    const nn_value loss = loss_of(&b, nn_concat(m.graph, z, late), rows);
    nn_params_allocate(m.params, 1);
    CHECK_INT(nn_plan_create(&m.plan, m.graph, &(nn_plan_options){.backend = "ref", .loss = loss, .training = true}),
              ADAMOD_OK);
    CHECK(m.plan && m.plan->place[a].in == a && m.plan->place[c].in == c && m.plan->place[late].in != late);
    unmake(&m);
}

RUN_TESTS(ENTRY(joined_values_change_no_results), ENTRY(a_dense_block_is_one_array),
          ENTRY(values_that_cannot_be_placed_stay_apart))
