/* `adamod optim bench --device cuda`: a step against what the GPU's memory allows, and against PyTorch on the same GPU.
 *
 * The yardstick is a copy within the device in the same run: a step that moves B bytes takes at least as long as a copy that
 * reads and writes B bytes together. Rules that need sums over whole arrays before an element can move read some of them
 * more than once, which B counts. Steps are replays of a captured graph between two events; "eager" is the time of one
 * of many calls of adamod_step in a row. Contestants take turns; times are medians. */
#include "cli/cli.h"
#include "core/error.h"
#include "cli/optim_bench.h"
#include "cli/bench.h"
#include "support/clock.h"
#include "optim/optim.h"
#include "support/json.h"

#include <stdlib.h>
#include <string.h>

#define COMMAND "optim bench"

enum { MOST_ROUNDS = 15, TYPES = 4 };
static const size_t COPY_BYTES = (size_t)1 << 30;

/* One optimizer and its arrays, for one type. */
typedef struct contestant {
    adamod_optimizer *opt;
    void *arrays; /* parameters, then gradients */
    void *stream, *graph;
    int period;   /* as bench_period has it */
    int launches; /* for each measurement */
    double graph_seconds[MOST_ROUNDS], eager_seconds[MOST_ROUNDS];
} contestant;

typedef struct cuda_bench {
    const bench_optim_request *ask;
    adamod_cuda_device device;
    bench_torch *torch;
    int types;        /* rows of the table: the last, states in 8 bits, not with every rule */
    const char *same; /* the rule, if torch runs it, too */
    bench_verdict goals[6];
    double copy_rate; /* bytes read and written in a second; of the last case */
} cuda_bench;
enum { GOAL_SHARE, GOAL_RESNET, GOAL_ADAMW, GOAL_SAME_BIG, GOAL_SAME_RESNET, GOAL_Q8, GOALS };

static const char *const type_names[TYPES] = {"f32", "bf16", "bf16, f32 master", "f32, 8-bit state"};

/* ---- shapes ---- */

enum { BIG_TENSORS = 186 };

/* The arrays of a layer's parts, in multiples of the model's width; no columns: a vector. */
typedef struct layer_part {
    int n;
    struct {
        int rows, columns;
    } array[4];
} layer_part;
static const layer_part attention = {4, {{3, 1}, {3, 0}, {1, 1}, {1, 0}}};
static const layer_part feed_forward = {4, {{4, 1}, {4, 0}, {1, 4}, {1, 0}}};
static const layer_part norm = {2, {{1, 0}, {1, 0}}};

static bench_shape *add_parts(bench_shape *to, const layer_part *p, int times) {
    enum { WIDTH = 1024 };
    for (int i = 0; i < times * p->n; i++) {
        const int64_t rows = p->array[i % p->n].rows * WIDTH, columns = p->array[i % p->n].columns * WIDTH;
        *to++ = columns ? (bench_shape){2, {rows, columns}} : (bench_shape){1, {rows}};
    }
    return to;
}

/* The paper's Transformer-big with 37,000 words on either side, as torch.nn.Transformer lays it out. */
static void make_transformer_big(bench_shape shapes[BIG_TENSORS]) {
    bench_shape *to = shapes;
    for (int i = 0; i < 2; i++) *to++ = (bench_shape){2, {37000, 1024}};
    for (int attentions = 1; attentions <= 2; attentions++) { /* encoder, decoder */
        for (int layer = 0; layer < 6; layer++) {
            to = add_parts(to, &attention, attentions);
            to = add_parts(to, &feed_forward, 1);
            to = add_parts(to, &norm, attentions + 1);
        }
        to = add_parts(to, &norm, 1);
    }
}

static int64_t count_elements(const bench_shape *shapes, int n) {
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        int64_t count = 1;
        for (int d = 0; d < shapes[i].ndim; d++) count *= shapes[i].dim[d];
        total += count;
    }
    return total;
}

/* ---- bytes ---- */

/* How often a step must read arrays before its update: the parameter, the gradient, and states. */
typedef struct bench_sums {
    const char *rule;
    int params, grads, states;
} bench_sums;

static bench_sums sums_of(const char *rule) {
    static const bench_sums all[] = {
        {"lamb", 1, 1, 2},        /* the norms of the parameter and of the update */
        {"stableadamw", 0, 1, 1}, /* g^2 / v */
        {"prodigy", 1, 1, 2},     /* s, and g times the way from p0 */
        {"adashift", 0, 0, 1},    /* the largest of what leaves the queue */
        {"adafactor", 1, 2, 0},   /* rows and columns and the size of the parameter; the size of the update */
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(rule, all[i].rule) == 0) return all[i];
    }
    return (bench_sums){rule, 0, 0, 0};
}

/* Bytes that a step must read and write for each element of an array of ndim dimensions. */
static int bytes_of(const char *rule, bench_type type, int states, int ndim) {
    bench_sums sums = sums_of(rule);
    if (strcmp(rule, "adafactor") == 0 && ndim < 2) sums.states = 2; /* v is as large as the array */
    const int param = type == BENCH_MASTER ? 6 : type == BENCH_BF16 ? 2 : 4;
    const int grad = type == BENCH_MASTER || type == BENCH_BF16 ? 2 : 4;
    const int state = type == BENCH_BF16 ? 2 : type == BENCH_Q8 ? 1 : 4;
    return bench_bytes(type, states) + sums.params * param + sums.grads * grad + sums.states * state;
}

static double bytes_needed(const bench_case *x, const bench_optim_request *ask) {
    double bytes = 0;
    for (int i = 0; i < x->n_shapes; i++) {
        const bench_shape *shape = &x->shapes[i];
        /* Muon's embeddings are updated as vectors are */
        const bool flat = shape->ndim < 2 || (strcmp(ask->rule, "muon") == 0 && bench_is_embedding(shape));
        const double elements = (double)count_elements(shape, 1);
        bytes += elements * bytes_of(ask->rule, x->type, flat ? ask->flat_states : ask->states, shape->ndim);
    }
    return bytes;
}

/* ---- a contestant ---- */

enum { ALIGNMENT = 256 }; /* of each array, as if it had memory of its own */
/* At most this many bytes. */
static size_t padded(size_t bytes, int arrays) {
    const size_t most = bytes + (size_t)(arrays - 1) * ALIGNMENT;
    return (most + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static adamod__gpu gpu(const contestant *c) { return adamod__gpu_of(c->opt); }

static int device_failed(const contestant *c, adamod_status status) {
    return status ? cli_fail(COMMAND, "%s", gpu(c).api->error()) : 0;
}

static void drop_contestant(contestant *c) {
    if (!c->opt) return;
    gpu(c).api->graph_free(gpu(c).device, c->graph);
    if (c->arrays) gpu(c).api->release(gpu(c).device, c->arrays);
    if (c->stream) {
        (void)adamod_set_stream(c->opt, NULL);
        gpu(c).api->stream_destroy(gpu(c).device, c->stream);
    }
    adamod_free(c->opt);
    *c = (contestant){0};
}

/* Fills with random numbers, repeated. */
static int fill_arrays(contestant *c, bench_type type, size_t bytes) {
    enum { PATTERN = 1 << 24 };
    void *pattern = malloc(PATTERN);
    if (!pattern) return cli_fail(COMMAND, "out of memory");
    bench_fill(pattern, PATTERN, type, 1);
    adamod_status status = ADAMOD_OK;
    for (size_t at = 0; at < bytes && !status; at += PATTERN) {
        const size_t part = bytes - at < PATTERN ? bytes - at : PATTERN;
        status = gpu(c).api->copy_in(gpu(c).device, (char *)c->arrays + at, pattern, part);
    }
    free(pattern);
    return device_failed(c, status);
}

static adamod_status add_tensors(contestant *c, const char *rule, const bench_case *x, size_t size) {
    char *param = c->arrays, *grad = param + padded((size_t)x->elements * size, x->n_shapes);
    int embeddings;
    adamod_status status = bench_add_embeddings(c->opt, rule, &embeddings);
    for (int i = 0; i < x->n_shapes && !status; i++) {
        adamod_tensor t = {.param = param, .grad = grad, .ndim = x->shapes[i].ndim};
        t.param_type = t.grad_type = size == 4 ? ADAMOD_F32 : ADAMOD_BF16;
        size_t bytes = size;
        for (int d = 0; d < t.ndim; d++) bytes *= (size_t)(t.shape[d] = x->shapes[i].dim[d]);
        status = adamod_add_tensor(c->opt, bench_is_embedding(&x->shapes[i]) ? embeddings : 0, &t, NULL);
        param += padded(bytes, 1);
        grad += padded(bytes, 1);
    }
    return status;
}

static int capture(contestant *c) {
    adamod_status status = adamod_step(c->opt); /* the first makes room */
    if (!status) status = adamod_sync(c->opt);
    if (status) return cli_library(COMMAND, status);
    int failed = device_failed(c, gpu(c).api->graph_begin(gpu(c).device));
    if (failed) return failed;
    status = adamod_step(c->opt);
    failed = device_failed(c, gpu(c).api->graph_end(gpu(c).device, &c->graph));
    return status ? cli_library(COMMAND, status) : failed;
}

static adamod_type states_of(bench_type type) {
    return type == BENCH_Q8 ? ADAMOD_Q8 : type == BENCH_BF16 ? ADAMOD_BF16 : ADAMOD_F32;
}

/* tuning: how the update is cut, by index; negative: the standard way. */
static int make_contestant(const cuda_bench *b, const bench_case *x, contestant *c, int tuning, const char **name) {
    const size_t size = x->type == BENCH_F32 || x->type == BENCH_Q8 ? 4 : 2;
    const size_t bytes = 2 * padded((size_t)x->elements * size, x->n_shapes);
    c->period = bench_period(b->ask->rule, x);
    adamod_status status = adamod_create_on(&c->opt, b->ask->rule, b->ask->device);
    if (!status) status = bench_set_type(c->opt, x->type);
    if (status) return cli_library(COMMAND, status);
    int failed = tuning < 0 ? 0 : device_failed(c, gpu(c).api->tune(gpu(c).device, tuning, states_of(x->type), name));
    if (!failed) failed = device_failed(c, gpu(c).api->stream_create(gpu(c).device, &c->stream));
    if (!failed) failed = device_failed(c, gpu(c).api->alloc(gpu(c).device, bytes, &c->arrays));
    if (!failed) failed = fill_arrays(c, x->type, bytes);
    if (failed) return failed;
    status = adamod_set_stream(c->opt, c->stream);
    if (!status) status = add_tensors(c, b->ask->rule, x, size);
    return status ? cli_library(COMMAND, status) : capture(c);
}

/* About 20 ms at a time, and whole periods. */
static int measure(contestant *c, int round) {
    double seconds;
    int failed = 0;
    if (c->launches == 0) {
        const int first = c->period > 1 ? c->period : 3;
        failed = device_failed(c, gpu(c).api->graph_time(gpu(c).device, c->graph, first, &seconds));
        if (failed) return failed;
        c->launches = seconds > 0 ? (int)(0.02 / seconds) + 2 : 2;
        if (c->launches > 200) c->launches = 200;
        c->launches = (c->launches + c->period - 1) / c->period * c->period;
    }
    failed = device_failed(c, gpu(c).api->graph_time(gpu(c).device, c->graph, c->launches, &c->graph_seconds[round]));
    if (failed) return failed;
    const double start = clock_seconds();
    adamod_status status = ADAMOD_OK;
    for (int i = 0; i < c->launches && !status; i++) status = adamod_step(c->opt);
    if (!status) status = adamod_sync(c->opt);
    c->eager_seconds[round] = (clock_seconds() - start) / c->launches;
    return status ? cli_library(COMMAND, status) : 0;
}

/* ---- the copy ---- */

/* By a plain kernel with 16-byte accesses, several in flight for each thread: with the caches told that nothing is used
 * again, and without; the faster counts. (A memcpy node of a graph takes the copy engine, which is slower.) */
enum { COPIES = 2 };
typedef struct copier {
    void *memory, *graph[COPIES];
    double seconds[COPIES][MOST_ROUNDS];
} copier;

static int make_copier(contestant *c, copier *copy) {
    const adamod__device_api *api = gpu(c).api;
    adamod__device *d = gpu(c).device;
    int failed = device_failed(c, api->alloc(d, 2 * COPY_BYTES, &copy->memory));
    if (!failed) failed = device_failed(c, api->fill(d, copy->memory, ADAMOD_F32, (int64_t)(COPY_BYTES / 2), 0.7));
    for (int i = 0; i < COPIES && !failed; i++) {
        if ((failed = device_failed(c, api->graph_begin(d)))) return failed;
        const adamod_status status = api->copy(d, (char *)copy->memory + COPY_BYTES, copy->memory, COPY_BYTES, i);
        failed = device_failed(c, api->graph_end(d, &copy->graph[i]));
        if (status) failed = device_failed(c, status);
    }
    return failed;
}

static int time_copy(contestant *c, copier *copy, int round) {
    int failed = 0;
    for (int i = 0; i < COPIES && !failed; i++)
        failed = device_failed(c, gpu(c).api->graph_time(gpu(c).device, copy->graph[i], 10, &copy->seconds[i][round]));
    return failed;
}

/* Bytes read and written in a second. */
static double copy_rate(copier *copy, int rounds) {
    double best = 0;
    for (int i = 0; i < COPIES; i++) {
        const double rate = 2 * (double)COPY_BYTES / bench_quantile(copy->seconds[i], rounds, 0.5);
        if (rate > best) best = rate;
    }
    return best;
}

static void drop_copier(contestant *c, copier *copy) {
    if (!c->opt) return;
    for (int i = 0; i < COPIES; i++) gpu(c).api->graph_free(gpu(c).device, copy->graph[i]);
    if (copy->memory) gpu(c).api->release(gpu(c).device, copy->memory);
}

/* ---- one list of shapes ---- */

typedef struct cuda_race {
    bench_case rows[TYPES];
    contestant ours[TYPES];
    copier copy;
    double adamw[MOST_ROUNDS], same[MOST_ROUNDS];
    int rounds;
    bool torch;
} cuda_race;

static int run_round(const cuda_bench *b, cuda_race *race, int round) {
    int failed = 0;
    for (int i = 0; i < b->types && !failed; i++) failed = measure(&race->ours[i], round);
    if (!failed) failed = time_copy(&race->ours[0], &race->copy, round);
    if (failed || !race->torch) return failed;
    race->adamw[round] = bench_torch_burst(b->torch, PEER_ADAMW);
    race->same[round] = b->same ? bench_torch_burst(b->torch, PEER_SAME) : -1;
    if (race->adamw[round] >= 0 && (!b->same || race->same[round] >= 0)) return 0;
    return bench_torch_failed(b->torch);
}

typedef struct cuda_row {
    double ms, eager_ms, gb_per_s, share, adamw_ms, times_adamw, same_ms, times_same;
} cuda_row;

static cuda_row make_row(const cuda_bench *b, cuda_race *race, int i) {
    contestant *c = &race->ours[i];
    const double elements = (double)race->rows[i].elements, bytes = bytes_needed(&race->rows[i], b->ask);
    const double seconds = bench_quantile(c->graph_seconds, race->rounds, 0.5);
    cuda_row r = {.ms = 1e3 * seconds, .eager_ms = 1e3 * bench_quantile(c->eager_seconds, race->rounds, 0.5)};
    r.gb_per_s = 1e-9 * bytes / seconds;
    r.share = bytes / b->copy_rate / seconds;
    if (!race->torch) return r;
    r.adamw_ms = 1e3 * bench_quantile(race->adamw, race->rounds, 0.5);
    r.times_adamw = r.adamw_ms / 28 / (r.ms / (bytes / elements));
    if (b->same) r.same_ms = 1e3 * bench_quantile(race->same, race->rounds, 0.5);
    r.times_same = r.same_ms / r.ms;
    return r;
}

static void print_row(const cuda_bench *b, const cuda_race *race, int i, const cuda_row *r) {
    const bench_case *x = &race->rows[i];
    const int steps = race->rounds * race->ours[i].launches;
    const bench_column columns[] = {{"ms", "%.3f", 8, r->ms},
                                    {"eager_ms", "%.3f", 8, r->eager_ms},
                                    {NULL, "%.3f", 8, r->ms * r->share},
                                    {"gb_per_s", "%.0f", 6, r->gb_per_s},
                                    {"copy_gb_per_s", NULL, 0, 1e-9 * b->copy_rate},
                                    {"of_copy", "%.3f", 8, r->share},
                                    {"adamw_ms", "%.3f", 9, r->adamw_ms},
                                    {"times_adamw", "%.2f", 8, r->times_adamw},
                                    {"%s_ms", "%.2f", 10, r->same_ms},
                                    {"times_%s", "%.1f", 9, r->times_same}};
    if (b->ask->json)
        printf("{\"case\": \"%s\", \"type\": \"%s\", \"tensors\": %d, \"elements\": %lld, \"rounds\": %d, "
               "\"steps\": %d",
               x->name, type_names[x->type], x->n_shapes, (long long)x->elements, race->rounds, steps);
    else printf("%-22s %-16s", x->name, type_names[x->type]);
    bench_print_columns(columns, sizeof columns / sizeof *columns, b->same, b->ask->json);
    if (b->ask->json) printf("}");
    else if (race->ours[i].period > 1) printf("  %d steps", steps);
    printf("\n");
    fflush(stdout);
}

static void judge_row(cuda_bench *b, const bench_case *x, const cuda_row *r) {
    const bool resnet = strncmp(x->name, "ResNet", 6) == 0, big = strncmp(x->name, "Transformer", 11) == 0;
    if (x->type == BENCH_Q8 && !resnet && r->adamw_ms > 0)
        bench_judge(&b->goals[GOAL_Q8], r->adamw_ms / r->ms, x->name);
    if (x->type != BENCH_F32) return;
    if (r->times_same > 0 && big) bench_judge(&b->goals[GOAL_SAME_BIG], r->times_same, x->name);
    if (r->times_same > 0 && resnet) bench_judge(&b->goals[GOAL_SAME_RESNET], r->times_same, x->name);
    if (bench_multiplies(b->ask->rule, x)) return;
    if (resnet) bench_judge(&b->goals[GOAL_RESNET], 1 / r->share, x->name);
    else bench_judge(&b->goals[GOAL_SHARE], r->share, x->name);
    if (r->times_adamw > 0) bench_judge(&b->goals[GOAL_ADAMW], r->times_adamw, x->name);
}

/* Ours in all types, the copy, and two optimizers of PyTorch. */
static double memory_needed(const cuda_bench *b, int64_t elements) {
    const double ours = 8 + 4 * b->ask->states + 4 + 2 * b->ask->states + 8 + 4 * b->ask->states + 8 + b->ask->states;
    return (double)elements * (ours + (b->torch ? 16 + 20 + 12 : 0)) + 2.0 * (double)COPY_BYTES + 1e9;
}

static int prepare_race(cuda_bench *b, cuda_race *race) {
    int failed = 0;
    for (int i = 0; i < b->types && !failed; i++) failed = make_contestant(b, &race->rows[i], &race->ours[i], -1, NULL);
    if (!failed) failed = make_copier(&race->ours[0], &race->copy);
    if (failed || !b->torch) return failed;
    race->torch = bench_torch_prepare(b->torch, &race->rows[0], b->same);
    if (!race->torch) return bench_torch_failed(b->torch);
    return 0;
}

/* Limits with --quick, in seconds: of rounds after the first, and of a contestant's first step. */
#define QUICK_RACE 5.0
#define QUICK_STEP 2.0

static int attempt(void *b, const bench_case *x, double *seconds) {
    const double start = clock_seconds();
    contestant c = {0};
    const int failed = make_contestant(b, x, &c, -1, NULL);
    *seconds = clock_seconds() - start;
    drop_contestant(&c);
    return failed;
}

static int run_race(cuda_bench *b, cuda_race *race) {
    const int rounds = b->ask->quick ? 5 : MOST_ROUNDS;
    int failed = prepare_race(b, race);
    const double start = clock_seconds();
    for (int i = 0; i < rounds && !failed; i++, race->rounds++) {
        if (b->ask->quick && i > 0 && clock_seconds() - start > QUICK_RACE) break;
        failed = run_round(b, race, i);
    }
    if (failed) return failed;
    b->copy_rate = copy_rate(&race->copy, race->rounds);
    for (int i = 0; i < b->types; i++) {
        const cuda_row r = make_row(b, race, i);
        print_row(b, race, i, &r);
        judge_row(b, &race->rows[i], &r);
    }
    return 0;
}

static int run_case(cuda_bench *b, const char *name, const bench_shape *shapes, int n) {
    static const bench_type types[TYPES] = {BENCH_F32, BENCH_MASTER, BENCH_BF16, BENCH_Q8};
    const int64_t elements = count_elements(shapes, n);
    if (memory_needed(b, elements) > 0.95 * (double)b->device.free_memory) {
        fprintf(stderr, "adamod: " COMMAND ": %s is left out: it takes %.1f GB on the device, %.1f are free\n", name,
                1e-9 * memory_needed(b, elements), 1e-9 * (double)b->device.free_memory);
        return 0;
    }
    cuda_race *race = calloc(1, sizeof *race);
    if (!race) return cli_fail(COMMAND, "out of memory");
    for (int i = 0; i < TYPES; i++) {
        race->rows[i] = (bench_case){
            .name = name, .type = types[i], .shapes = shapes, .n_shapes = n, .elements = elements, .sets = 1};
    }
    double about = 0;
    int failed = 0;
    if (b->ask->quick && bench_multiplies(b->ask->rule, &race->rows[0]))
        failed = bench_fits(&race->rows[0], QUICK_STEP, attempt, b, &about);
    if (!failed && !bench_is_too_long(&race->rows[0], about)) failed = run_race(b, race);
    drop_copier(&race->ours[0], &race->copy);
    for (int i = 0; i < TYPES; i++) drop_contestant(&race->ours[i]);
    if (!failed && race->torch && !bench_torch_drop(b->torch)) failed = bench_torch_failed(b->torch);
    free(race);
    return failed;
}

/* ---- ways to cut the update ---- */

/* One after the other, since memory may not hold all; for tuning the kernels for another GPU. */
static int try_tunings_of(const cuda_bench *b, bench_type type, const char *name, const bench_shape *shapes, int n) {
    enum { ROUNDS = 5, MOST = 64 };
    const bench_case x = {
        .name = name, .type = type, .shapes = shapes, .n_shapes = n, .elements = count_elements(shapes, n), .sets = 1};
    const double bytes = bytes_needed(&x, b->ask);
    int failed = 0;
    for (int tuning = 0; tuning < MOST && !failed; tuning++) {
        contestant c = {0};
        const char *what = NULL;
        failed = make_contestant(b, &x, &c, tuning, &what);
        for (int i = 0; i < ROUNDS && !failed; i++) failed = measure(&c, i);
        const double seconds = failed ? 0 : bench_quantile(c.graph_seconds, ROUNDS, 0.5);
        if (!failed) printf("%-22s %8.4f ms %6.0f GB/s  %s\n", name, 1e3 * seconds, 1e-9 * bytes / seconds, what);
        fflush(stdout);
        const bool more = c.opt && gpu(&c).api->tune(gpu(&c).device, tuning + 1, states_of(type), &what) == ADAMOD_OK;
        drop_contestant(&c);
        if (!more) break;
    }
    return failed;
}

/* which: a type; all, if it is none. */
static int try_tunings(const cuda_bench *b, const char *which, const char *name, const bench_shape *shapes, int n) {
    static const struct {
        const char *name;
        bench_type type;
    } types[] = {{"q8", BENCH_Q8}, {"f32", BENCH_F32}, {"bf16", BENCH_BF16}};
    enum { N = sizeof types / sizeof *types };
    bool all = true;
    for (int i = 0; i < N; i++) all = all && strcmp(which, types[i].name) != 0;
    int failed = 0;
    for (int i = 0; i < N && !failed; i++) {
        if (all || strcmp(which, types[i].name) == 0) failed = try_tunings_of(b, types[i].type, name, shapes, n);
    }
    return failed;
}

static int run_cases(cuda_bench *b) {
    bench_shape resnet[BENCH_RESNET_TENSORS], big[BIG_TENSORS];
    const bench_shape flat = {1, {INT64_C(1) << 28}};
    bench_make_resnet34(resnet);
    make_transformer_big(big);
    const struct {
        const char *name;
        const bench_shape *shapes;
        int n;
    } cases[] = {{"ResNet-34, 110", resnet, BENCH_RESNET_TENSORS},
                 {"Transformer-big, 186", big, BIG_TENSORS},
                 {"flat, 268M", &flat, 1}};
    const char *tunings = strcmp(b->ask->rule, "adamod") == 0 ? getenv("ADAMOD_BENCH_TUNINGS") : NULL;
    if (tunings) return try_tunings(b, tunings, cases[1].name, cases[1].shapes, cases[1].n);
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !failed; i++)
        failed = run_case(b, cases[i].name, cases[i].shapes, cases[i].n);
    return failed;
}

/* ---- what is printed before and after ---- */

static void print_setup(const cuda_bench *b, const char *why) {
    if (b->ask->json) {
        json j = {.spaced = true};
        json_open(&j, '{');
        json_pair(&j, "version", adamod_version_string());
        json_pair(&j, "rule", b->ask->rule);
        json_pair(&j, "device", b->device.name);
        json_pair(&j, "torch", b->torch ? b->torch->version : NULL);
        if (!b->torch) json_pair(&j, "no_torch", why);
        json_close(&j, '}');
        (void)cli_print_json(COMMAND, &j, "\n");
    } else {
        printf("adamod %s: rule %s, %d bytes an element in f32, %s\n", adamod_version_string(), b->ask->rule,
               bytes_of(b->ask->rule, BENCH_F32, b->ask->states, 2), b->device.name);
        if (b->torch) printf("torch %s (%s)\n", b->torch->version, bench_torch_python(b->torch));
        else printf("torch is not measured: %s\n", why);
        const char *same = bench_title(b->same);
        printf("\n%-22s %-16s %8s %8s %8s %6s %8s %9s %8s %7s ms   x %s\n", "shape, tensors", "type", "ms/step",
               "eager", "floor", "GB/s", "of copy", "AdamW ms", "x AdamW", same, same);
    }
    fflush(stdout);
}

int bench_cuda(const bench_optim_request *ask) {
    cuda_bench b = {.ask = ask};
    char why[512] = "--no-torch";
    adamod_option state_type = {0};
    (void)adamod_option_find(ask->rule, "state_type", &state_type);
    b.types = state_type.max == STATE_Q8 ? TYPES : TYPES - 1;
    adamod_optimizer *opt;
    adamod_status status = adamod_create_on(&opt, ask->rule, ask->device);
    if (status) return cli_library(COMMAND, status);
    const char *colon = strchr(adamod_device(opt), ':');
    status = adamod_cuda_device_at(colon ? atoi(colon + 1) : 0, &b.device);
    adamod_free(opt);
    if (status) return cli_library(COMMAND, status);
    b.goals[GOAL_SHARE] =
        (bench_verdict){.goal = "share of the copy's speed, f32, Transformer-big and flat", .limit = 0.92};
    b.goals[GOAL_RESNET] = (bench_verdict){.goal = "time over the floor, f32", .limit = 1.35, .at_most = true};
    b.goals[GOAL_ADAMW] = (bench_verdict){.goal = "speed per byte over torch's fused AdamW, f32", .limit = 1};
    b.goals[GOAL_Q8] = (bench_verdict){.goal = "speed over torch's fused AdamW in f32, 8-bit state", .limit = 1.7};
    if (!ask->no_torch) b.torch = bench_torch_start(ask->python, 0, ask->device);
    if (!ask->no_torch && !b.torch) snprintf(why, sizeof why, "%s", adamod__last_message());
    b.same = b.torch && bench_torch_has(b.torch, ask->rule) ? ask->rule : NULL;
    b.goals[GOAL_SAME_BIG] = bench_goal_same(b.same, 10);
    b.goals[GOAL_SAME_RESNET] = bench_goal_same(b.same, 50);
    for (int i = GOAL_ADAMW; i < GOALS && b.torch; i++) bench_name_peer(&b.goals[i], b.torch->version);
    print_setup(&b, why);
    const int failed = run_cases(&b);
    if (!failed && !ask->json && b.copy_rate > 0) {
        printf("\nfloor: the bytes a step must move at the speed of a copy within the device, %.0f GB/s here\n",
               1e-9 * b.copy_rate);
    }
    for (int i = 0; i < GOALS && !failed; i++) bench_print_verdict(&b.goals[i], ask->json);
    bench_torch_stop(b.torch);
    return failed;
}
