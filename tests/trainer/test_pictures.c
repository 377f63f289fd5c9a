/* Constants of graphs, and the op that makes batches of pictures of one. */
#include "check.h"
#include "fake_device.h"
#include "nn/graph.h"
#include "nn/ops/picture_window.h"
#include "nn/plan.h"

#include <math.h>
#include <stdlib.h>

enum { PICTURES = 5, HEIGHT = 6, WIDTH = 7, SIZE = 6, ROWS = 64, PIXELS = SIZE * SIZE * 3 };

static uint8_t bytes[PICTURES][HEIGHT][WIDTH][3];
static const nn_picture_options augmented = {.size = SIZE,
                                             .padding = 2,
                                             .crop = true,
                                             .mirror = true,
                                             .mean = {0.5f, 0.4f, 0.3f},
                                             .deviation = {0.25f, 0.2f, 0.1f}};

typedef struct model {
    nn_params *params;
    nn_graph *g;
    int rows;
    nn_plan *plan;
} model;

static void fill_bytes(void) {
    uint8_t *x = &bytes[0][0][0][0];
    for (size_t i = 0; i < sizeof bytes; i++) x[i] = (uint8_t)(1 + (i * 2654435761u >> 13) % 255); /* none is 0 */
}

static model build(const nn_picture_options *o) {
    model m = {.params = nn_params_create()};
    fill_bytes();
    m.g = nn_graph_create(m.params);
    m.rows = nn_symbol(m.g, "rows", ROWS);
    const nn_value indices = nn_input(m.g, "indices", NN_I32, m.rows, 0),
                   draws = nn_input(m.g, "draws", NN_I32, m.rows, 0);
    const nn_value images = nn_constant(m.g, "images", NN_U8, 4, (int64_t[]){PICTURES, HEIGHT, WIDTH, 3}, bytes);
    nn_parameter(m.g, "w", 1, (int64_t[]){3}, (nn_init){.kind = NN_ONES});
    nn_output(m.g, "y", nn_pictures(m.g, images, indices, draws, o));
    CHECK_INT(nn_params_allocate(m.params, 1), ADAMOD_OK);
    return m;
}

static bool make_plan(model *m, bool training, adamod_pool *pool) {
    const nn_plan_options o = {.loss = -1, .pool = pool, .training = training};
    nn_plan_free(m->plan);
    m->plan = NULL;
    return CHECK_INT(nn_plan_create(&m->plan, m->g, &o), ADAMOD_OK);
}

static const float *run(model *m, int64_t rows, int first_draw) {
    int32_t *indices = nn_plan_data(m->plan, "indices"), *draws = nn_plan_data(m->plan, "draws");
    nn_plan_set_rows(m->plan, m->rows, rows);
    nn_plan_set_random(m->plan, 3, 4);
    for (int i = 0; i < rows; i++) {
        indices[i] = (first_draw + i) % PICTURES;
        draws[i] = first_draw + i;
    }
    nn_plan_forward(m->plan);
    CHECK_INT(nn_plan_wait(m->plan), ADAMOD_OK);
    return nn_plan_data(m->plan, "y");
}

static void drop(model *m) {
    nn_plan_free(m->plan);
    nn_graph_free(m->g);
    nn_params_free(m->params);
}

/* The pixel of a padded, then normalised picture, as torchvision's transforms say it. */
static double expected(int picture, int row, int column, int k) {
    const bool inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
    const double x = inside ? bytes[picture][row][column][k] / 255.0 : 0;
    return (x - (double)augmented.mean[k]) / (double)augmented.deviation[k];
}

static bool is_window(const float *y, int picture, int top, int left, bool mirror) {
    for (int i = 0; i < PIXELS; i++) {
        const int row = i / (3 * SIZE), column = i / 3 % SIZE;
        const double x = expected(picture, top + row, left + (mirror ? SIZE - 1 - column : column), i % 3);
        if (!(fabs((double)y[i] - x) <= 1e-5)) return false;
    }
    return true;
}

TEST(outside_training_it_is_the_middle_of_the_picture) {
    model m = build(&augmented);
    if (!make_plan(&m, false, NULL)) return;
    const float *y = run(&m, 7, 0);
    for (int i = 0; i < 7; i++) CHECK(is_window(y + i * PIXELS, i % PICTURES, 0, 0, false));
    drop(&m);
}

TEST(training_sees_every_window_and_both_sides_about_equally) {
    model m = build(&augmented);
    enum { TOPS = HEIGHT + 4 - SIZE + 1, LEFTS = WIDTH + 4 - SIZE + 1, RUNS = 40 };
    int seen[TOPS][LEFTS][2] = {{{0}}};
    if (!make_plan(&m, true, NULL)) return;
    for (int run_of = 0; run_of < RUNS; run_of++) {
        const float *y = run(&m, ROWS, run_of * ROWS);
        for (int i = 0; i < ROWS; i++) {
            int found = 0;
            for (int w = 0; w < TOPS * LEFTS * 2; w++) {
                const int top = w / 2 / LEFTS, left = w / 2 % LEFTS;
                if (!is_window(y + i * PIXELS, (run_of * ROWS + i) % PICTURES, top - 2, left - 2, w & 1)) continue;
                seen[top][left][w & 1]++;
                found++;
            }
            CHECK_INT(found, 1);
        }
    }
    /* 2560 draws of 60 windows: 43 each, with a deviation of 6.5 */
    for (int w = 0; w < TOPS * LEFTS * 2; w++) {
        const int n = seen[w / 2 / LEFTS][w / 2 % LEFTS][w & 1];
        CHECK(n > 15 && n < 75);
    }
    drop(&m);
}

TEST(each_kind_of_change_can_be_left_out) {
    nn_picture_options o = augmented;
    o.crop = o.mirror = false;
    model plain = build(&o);
    if (!make_plan(&plain, true, NULL)) return;
    const float *y = run(&plain, ROWS, 0);
    for (int i = 0; i < ROWS; i++) CHECK(is_window(y + i * PIXELS, i % PICTURES, 0, 0, false));
    drop(&plain);
    o.mirror = true;
    model mirrored = build(&o);
    if (!make_plan(&mirrored, true, NULL)) return;
    y = run(&mirrored, ROWS, 0);
    int mirrors = 0;
    for (int i = 0; i < ROWS; i++) {
        const bool mirror = is_window(y + i * PIXELS, i % PICTURES, 0, 0, true);
        CHECK(mirror || is_window(y + i * PIXELS, i % PICTURES, 0, 0, false));
        mirrors += mirror;
    }
    CHECK(mirrors > 10 && mirrors < ROWS - 10);
    drop(&mirrored);
}

/* A picture's augmentation follows from its place in the epoch, not from its row or from threads. */
TEST(what_is_drawn_depends_on_the_place_in_the_epoch_alone) {
    model m = build(&augmented);
    adamod_pool *pool;
    static float first[ROWS * PIXELS];
    CHECK_INT(adamod_pool_create(&pool, 3), ADAMOD_OK);
    if (!make_plan(&m, true, NULL)) return;
    memcpy(first, run(&m, ROWS, 10), sizeof first);
    CHECK(memcmp(first + 5 * PIXELS, run(&m, 9, 15), 9 * PIXELS * sizeof(float)) == 0);
    if (!make_plan(&m, true, pool)) return;
    CHECK(memcmp(first, run(&m, ROWS, 10), sizeof first) == 0);
    CHECK(memcmp(first, run(&m, ROWS, 11), sizeof first) != 0);
    drop(&m);
    adamod_pool_free(pool);
}

/* ---- on a device ---- */

static void there(const nn_call *c) {
    nn_call host = *c; /* a device's kernels read the key from its memory */
    host.key = nn_stream_key(*c->device->random, c->device->node);
    nn_op_pictures.ref.forward(&host);
}
static const nn_kernels kernels = {.forward = there};
static const nn_backend_op ops[] = {{"pictures", &kernels}, {NULL, NULL}};
static const nn_backend device = {.name = "test", .ops = ops, .device = &fake_device_functions};

TEST(a_constant_goes_to_a_device_once_for_all_plans) {
    model m = build(&augmented);
    static float host[ROWS * PIXELS];
    nn_plan *second = NULL;
    const nn_plan_options o = {.loss = -1};
    if (!make_plan(&m, true, NULL)) return;
    memcpy(host, run(&m, ROWS, 10), sizeof host);
    nn_plan_free(m.plan);
    m.plan = NULL;
    CHECK_INT(fake_device_take(m.params, &device, NN_FULL), ADAMOD_OK);
    if (!make_plan(&m, true, NULL)) return;
    CHECK_INT(m.params->on_device->n_constants, 1);
    CHECK(m.params->on_device->constants[0].data != (const void *)bytes);
    CHECK(memcmp(m.params->on_device->constants[0].data, bytes, sizeof bytes) == 0);
    CHECK(memcmp(host, run(&m, ROWS, 10), sizeof host) == 0);
    CHECK_INT(nn_plan_create(&second, m.g, &o), ADAMOD_OK);
    CHECK_INT(m.params->on_device->n_constants, 1);
    nn_plan_free(second);
    CHECK_INT(m.params->on_device->n_constants, 1);
    nn_plan_free(m.plan);
    m.plan = NULL;
    CHECK_INT(m.params->on_device->n_constants, 0);
    /* Other numbers at the same address are another constant. */
    memset(bytes, 7, sizeof bytes);
    if (!make_plan(&m, true, NULL)) return;
    CHECK(memcmp(m.params->on_device->constants[0].data, bytes, sizeof bytes) == 0);
    drop(&m);
}

/* ---- mistakes ---- */

static const char *mistake(int64_t size, int padding, float deviation, int64_t channels, nn_type type) {
    static char text[256];
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    const int rows = nn_symbol(g, "rows", 2);
    const nn_picture_options o = {.size = size, .padding = padding, .deviation = {1, deviation, 1}};
    const nn_value i = nn_input(g, "i", NN_I32, rows, 0);
    const nn_value x = nn_constant(g, "x", type, 4, (int64_t[]){PICTURES, HEIGHT, WIDTH, channels}, bytes);
    nn_pictures(g, x, i, i, &o);
    snprintf(text, sizeof text, "%s", g->error);
    nn_graph_free(g);
    nn_params_free(p);
    return text;
}

TEST(what_does_not_fit_is_said) {
    CHECK_STR(mistake(SIZE, 4, 1, 3, NN_U8), "");
    CHECK_STR(mistake(SIZE + 1, 4, 1, 3, NN_U8), "pictures: size is 7, expected 1 to what pictures of 6 x 7 have");
    CHECK_STR(mistake(0, 4, 1, 3, NN_U8), "pictures: size is 0, expected 1 to what pictures of 6 x 7 have");
    CHECK_STR(mistake(SIZE, -1, 1, 3, NN_U8), "pictures: padding must be 0 to 1024");
    CHECK_STR(mistake(SIZE, 4, 0, 3, NN_U8), "pictures: deviations must be positive");
    CHECK_STR(mistake(SIZE, 4, 1, 1, NN_U8), "pictures: images must be [pictures, height, width, 3]");
    CHECK_STR(mistake(SIZE, 4, 1, 3, NN_I32), "pictures: images is i32, expected u8");
    CHECK_STR(mistake(SIZE, 4, 1, 3, NN_F32), "constant x: expected i32 or u8");
    CHECK_STR(mistake(SIZE, 4, 1, 0, NN_U8), "constant x: no array can have this shape");
}

TEST(inputs_are_not_bytes_and_plans_need_data) {
    nn_params *p = nn_params_create();
    nn_graph *g = nn_graph_create(p);
    nn_plan *plan = NULL;
    const nn_plan_options o = {.loss = -1};
    const int rows = nn_symbol(g, "rows", 2);
    const nn_picture_options options = {.size = 1, .deviation = {1, 1, 1}};
    const nn_value i = nn_input(g, "i", NN_I32, rows, 0);
    const nn_value x = nn_constant(g, "x", NN_U8, 4, (int64_t[]){1, 1, 1, 3}, NULL);
    nn_output(g, "y", nn_pictures(g, x, i, i, &options));
    CHECK_INT(nn_params_allocate(p, 1), ADAMOD_OK);
    CHECK_INT(nn_plan_create(&plan, g, &o), ADAMOD_ERROR_ORDER);
    CHECK_HAS(adamod_last_error(), "constant x has no data");
    nn_input(g, "u", NN_U8, rows, 3);
    CHECK_STR(g->error, "input u: u8 is for constants only");
    nn_graph_free(g);
    nn_params_free(p);
}

RUN_TESTS(ENTRY(outside_training_it_is_the_middle_of_the_picture),
          ENTRY(training_sees_every_window_and_both_sides_about_equally), ENTRY(each_kind_of_change_can_be_left_out),
          ENTRY(what_is_drawn_depends_on_the_place_in_the_epoch_alone),
          ENTRY(a_constant_goes_to_a_device_once_for_all_plans), ENTRY(what_does_not_fit_is_said),
          ENTRY(inputs_are_not_bytes_and_plans_need_data))
