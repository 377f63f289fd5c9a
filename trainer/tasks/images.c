#include "tasks/images.h"

#include "core/buffer.h"
#include "core/error.h"
#include "support/clock.h"
#include "support/text.h"
#include "data/cifar.h"
#include "data/shapes.h"
#include "data/shuffle.h"
#include "models/densenet.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "train/checkpoint.h"

#include <math.h>

#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

#define S images_settings
static const key_spec keys[] = {
    ENUM_KEY(S, data.set, "shapes", "shapes cifar10 cifar100 folder", STRICT,
             "generated shapes, CIFAR's binary files, or PNG and JPEG files by class"),
    PATH_KEY(S, data.path, LOOSE,
             "directory of CIFAR's files (if not given: what `adamod data prepare` made), or of training images"),
    PATH_KEY(S, data.valid_path, LOOSE, "folder: directory of validation images"),
    PATH_KEY(S, data.test_path, LOOSE, "folder: directory of test images"),
    ENUM_KEY(S, data.labels, "fine", "fine coarse", STRICT, "CIFAR-100: 100 classes or 20"),
    SWITCH_KEY(S, data.any_size, "false", STRICT,
               "CIFAR: accept files with another number of images than the standard ones"),
    WHOLE_KEY(S, data.size, "32", 1, 1024, STRICT,
              "height and width in pixels; folder: images are scaled and cropped to it; shapes: 16 to 64; CIFAR: 32"),
    ENUM_KEY(S, data.unreadable, "refuse", "refuse skip", STRICT, "folder: what to do with images that cannot be read"),
    REAL_KEY(
        S, data.hold_out, "10", 0, 90, false, STRICT,
        "percent of the training images held out for validation, if there is no validation set; 0: validate on the test set"),
    WHOLE_KEY(S, data.train, "10000", 1, 1e8, STRICT, "shapes: training images"),
    WHOLE_KEY(S, data.valid, "1000", 1, 1e8, STRICT, "shapes: validation images"),
    WHOLE_KEY(S, data.test, "2000", 0, 1e8, STRICT, "shapes: test images"),
    SWITCH_KEY(S, data.clutter, "true", STRICT, "shapes: strokes and blots beside, behind and before the shape"),
    SWITCH_KEY(S, data.turn, "true", STRICT, "shapes: at any angle, else upright"),
    WHOLE_KEY(S, data.seed, "1", 0, KEY_MOST_SEED, STRICT, "seed of the shapes, and of the choice of held-out images"),
    WHOLE_KEY(S, data.batch, "128", 1, 1000000, STRICT, "images per batch; the last batch of an epoch may be smaller"),
    SWITCH_KEY(S, data.crop, "true", STRICT, "augment: random crops after zero-padding"),
    WHOLE_KEY(S, data.padding, "4", 0, 1024, STRICT, "augment: pixels of zero-padding on each side"),
    SWITCH_KEY(S, data.flip, "true", STRICT, "augment: flip half of the images horizontally"),
    NUMBERS_KEY(S, data.mean, "", STRICT,
                "normalisation: of red, green and blue, from 0 to 1; empty: that of data.set"),
    NUMBERS_KEY(S, data.std, "", STRICT, "normalisation: standard deviations; empty: those of data.set"),
    WHOLE_KEY(S, train.evaluate_images, "0", 0, 1e15, LOOSE, "validation images at each evaluation; 0: all"),
};
#undef S
static const key_table table = {keys, sizeof keys / sizeof *keys, sizeof(images_settings)};

/* ---- checks of several keys ---- */

static const char *check_files(const images_settings *r) {
    const bool folder = r->data.set == IMAGES_FOLDER, shapes = r->data.set == IMAGES_SHAPES;
    const char *held_out = *r->data.valid_path ? "data.valid_path" : *r->data.test_path ? "data.test_path" : NULL;
    if (shapes && *r->data.path)
        return task_refuse("data.path", "data.path is given, but data.set shapes reads no files");
    if (folder && !*r->data.path) return task_refuse("data.path", "data.path is not given; data.set folder needs it");
    if (!folder && held_out)
        return task_refuse(held_out, "%s is given, but data.set %s does not read it", held_out, images_set_name(r));
    if (!folder || held_out || r->data.hold_out > 0) return NULL;
    return task_refuse("data.hold_out", "data.hold_out is 0, and neither data.valid_path nor data.test_path is given: "
                                        "nothing is left to validate on");
}

static const char *check_size(const images_settings *r) {
    const bool folder = r->data.set == IMAGES_FOLDER, shapes = r->data.set == IMAGES_SHAPES;
    if (folder || r->data.size == CIFAR_SIZE || (shapes && r->data.size >= SHAPES_LEAST && r->data.size <= SHAPES_MOST))
        return NULL;
    if (shapes)
        return task_refuse("data.size", "data.size is %d, expected %d to %d, in which data.set shapes is drawn",
                           r->data.size, SHAPES_LEAST, SHAPES_MOST);
    return task_refuse("data.size", "data.size is %d, expected %d, which pictures of data.set %s have", r->data.size,
                       CIFAR_SIZE, images_set_name(r));
}

static const char *check_task(const recipe *whole) {
    const images_settings *r = images_settings_of(whole);
    const char *path = check_files(r);
    if (path) return path;
    if ((path = check_size(r))) return path;
    if (r->data.set != IMAGES_CIFAR100 && r->data.labels == LABELS_COARSE)
        return task_refuse("data.labels", "data.labels is coarse, which only data.set cifar100 has");
    return images_check_view(r);
}

/* ---- models ---- */

static nn_value build_mlp(nn_graph *g, const void *s, nn_value x, int n) { return mlp_build(g, s, x, n); }
static nn_value build_resnet(nn_graph *g, const void *s, nn_value x, int n) { return resnet_build(g, s, x, n); }
static nn_value build_densenet(nn_graph *g, const void *s, nn_value x, int n) { return densenet_build(g, s, x, n); }

static const char *check_resnet(const recipe *r) { return resnet_check((const void *)r->model_settings); }

/* The size is halved between blocks. */
static const char *check_densenet(const recipe *r) {
    const densenet_settings *s = (const void *)r->model_settings;
    const int pixels = images_settings_of(r)->data.size;
    const char *path = densenet_check(s);
    int divisor = 1;
    for (const char *c = s->model.blocks; *c; c++) divisor *= *c == ',' ? 2 : 1;
    if (path || pixels % divisor == 0) return path;
    return task_refuse(
        "data.size",
        "data.size is %d, expected a multiple of %d: a DenseNet of model.blocks %s halves it after each but the last",
        pixels, divisor, s->model.blocks);
}

/* The parameters of the last layer. */
static const char last_linear[] = "linear.*";
static void last_of_mlp(const recipe *r, char *out, size_t size) {
    snprintf(out, size, "layers.%d.*", ((const mlp_settings *)(const void *)r->model_settings)->model.layers);
}

static void describe_resnet(const recipe *r, char *out, size_t size) {
    const resnet_settings *s = (const void *)r->model_settings;
    snprintf(out, size, "resnet, blocks %s of %s", s->model.blocks, s->model.widths);
}
static void describe_densenet(const recipe *r, char *out, size_t size) {
    const densenet_settings *s = (const void *)r->model_settings;
    snprintf(out, size, "densenet, blocks %s, growth %d", s->model.blocks, s->model.growth);
}

static const task_model resnet = {"resnet",
                                  &resnet_keys,
                                  .check = check_resnet,
                                  .build = build_resnet,
                                  .meaning = last_linear,
                                  .describe = describe_resnet};
static const task_model densenet = {"densenet",
                                    &densenet_keys,
                                    .check = check_densenet,
                                    .build = build_densenet,
                                    .meaning = last_linear,
                                    .describe = describe_densenet};
static const task_model mlp = {"mlp", &mlp_keys, .build = build_mlp, .write_meaning = last_of_mlp};
static const task_model *const models[] = {&resnet, &densenet, &mlp, NULL};

/* ---- graphs ---- */

/* Builds a graph over n pictures with at most `capacity` in a batch. Its inputs are places, draws and targets; its outputs
 * "loss" and, for answers, "logits". */
static nn_value build_graph(const experiment *e, nn_graph *g, int64_t capacity, int64_t n, const uint8_t *bytes,
                            bool answers, int *rows) {
    const images *s = images_of(e);
    const int64_t shape[] = {n > 0 ? n : 1, s->all.size, s->all.size, 3};
    *rows = nn_symbol(g, "images", capacity > 0 ? capacity : 1);
    const nn_value data = nn_constant(g, "pictures", NN_U8, 4, shape, n > 0 ? bytes : NULL);
    const nn_value places = nn_input(g, "places", NN_I32, *rows, 0), draws = nn_input(g, "draws", NN_I32, *rows, 0);
    const nn_value targets = nn_input(g, "targets", NN_I32, *rows, 0);
    nn_pad(g, targets, -1);
    const nn_value x = nn_pictures(g, data, places, draws, &s->view);
    const nn_value logits = recipe_model(&e->recipe)->build(g, e->recipe.model_settings, x, s->all.classes.n);
    const nn_value loss = nn_cross_entropy(g, logits, targets, 0);
    nn_output(g, "loss", loss);
    if (answers) nn_output(g, "logits", logits);
    return loss;
}

static nn_value build(experiment *e, nn_graph *g) {
    images *s = images_of(e);
    return build_graph(e, g, images_settings_of(&e->recipe)->data.batch, s->all.n, s->all.bytes, false, &s->rows);
}

static void free_graph(images_graph *x) {
    nn_plan_free(x->plan);
    nn_graph_free(x->graph);
    *x = (images_graph){0};
}

/* Opens a graph over n pictures that gives answers. */
static int open_graph(const experiment *e, images_graph *x, int64_t capacity, int64_t n, const uint8_t *bytes) {
    const nn_plan_options o = {.backend = e->recipe.train.backend, .loss = -1, .pool = e->pool};
    x->graph = nn_graph_create(e->params);
    if (!x->graph) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for a graph");
    build_graph(e, x->graph, capacity, n, bytes, true, &x->rows);
    return nn_plan_create(&x->plan, x->graph, &o);
}

static int prepare(experiment *e, int uses) {
    images *s = images_of(e);
    const int64_t most = s->n[SPLIT_VALID] > s->n[SPLIT_TEST] ? s->n[SPLIT_VALID] : s->n[SPLIT_TEST];
    const int64_t batch = images_settings_of(&e->recipe)->data.batch;
    if (!(uses & TASK_SCORE) || most == 0) return 0;
    return open_graph(e, &s->scoring, most < batch ? most : batch, s->all.n, s->all.bytes);
}

/* ---- open and close ---- */

static void close_images(experiment *e) {
    images *s = images_of(e);
    if (!s) return;
    free_graph(&s->scoring);
    class_details_free(&s->judged);
    free(s->order);
    images_drop(s);
    free(s);
    e->state = NULL;
}

static int open_images(experiment *e, const char *directory, int uses) {
    images *s = e->state = calloc(1, sizeof *s);
    if (!s) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the task");
    s->ordered_epoch = -1;
    s->view = images_view(images_settings_of(&e->recipe));
    int failed = images_load(e, directory, uses);
    if (!failed && !directory && !(s->order = malloc((size_t)s->n[SPLIT_TRAIN] * sizeof *s->order)))
        failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the order of pictures");
    if (failed) close_images(e);
    return failed ? -1 : 0;
}

/* The number of classes without a training picture: the folder is empty, or all its pictures are held out. */
static int untrained(const images *s) {
    bool *shown = calloc((size_t)s->all.classes.n, sizeof *shown);
    int n = shown ? s->all.classes.n : 0; /* a note must not fail */
    for (int64_t i = 0; shown && i < s->n[SPLIT_TRAIN]; i++) {
        bool *its = &shown[s->all.labels[s->place[SPLIT_TRAIN][i]]];
        n -= !*its;
        *its = true;
    }
    free(shown);
    return n;
}

/* Adds to "no picture of 1 of 3 classes; passed over ...". */
#define ADD(notes, format, ...) adamod__buffer_format(notes, "%s" format, (notes)->n ? "; " : "", __VA_ARGS__)

static bool note(const experiment *e, task_split split, char *out, size_t size) {
    const images_settings *r = images_settings_of(&e->recipe);
    const images *s = images_of(e);
    const image_folder_counts *f = &s->counts[split];
    const char *const paths[] = {*s->path ? s->path : images_set_name(r), r->data.valid_path, r->data.test_path};
    const bool train = split == SPLIT_TRAIN;
    const int missed = train ? untrained(s) : f->missing;
    adamod__buffer notes = {0};
    if (split == SPLIT_VALID && s->test_is_valid) { /* a reader must not take one for the other */
        snprintf(out, size, "%.*s: the validation set is the test set, since data.hold_out is 0", RECIPE_PATH,
                 *r->data.test_path ? r->data.test_path : s->path);
        return true;
    }
    if (f->unreadable)
        ADD(&notes, "used %lld of %lld pictures; %lld cannot be read, the first %s",
            (long long)(f->files - f->unreadable), (long long)f->files, (long long)f->unreadable, f->first);
    if (missed)
        ADD(&notes, "no %s of %d of %d classes", train ? "picture to train on" : "picture", missed, s->all.classes.n);
    if (s->trained_on[split])
        ADD(&notes, "of %lld %s pictures %lld are training pictures too", (long long)s->n[split],
            task_split_label(split), (long long)s->trained_on[split]);
    if (f->passed_over)
        ADD(&notes, "passed over %lld that are not .png, .jpg or .jpeg files of a class, the first %s",
            (long long)f->passed_over, f->first_passed);
    const bool any = notes.n > 0; /* without memory there are none */
    snprintf(out, size, "%.*s: %s", RECIPE_PATH, *paths[split] ? paths[split] : s->path, any ? notes.text : "");
    adamod__buffer_free(&notes);
    return any;
}

static int save(const experiment *e, const char *directory) {
    return class_names_save(&images_of(e)->all.classes, path_join(directory, "classes.txt").text);
}

static uint64_t fingerprint(const experiment *e) {
    const class_names *c = &images_of(e)->all.classes;
    uint64_t hash = FINGERPRINT_NAMES;
    for (int i = 0; i < c->n; i++) hash = fingerprint_names(hash, c->name[i], strlen(c->name[i]) + 1);
    return hash;
}

static void describe(const experiment *e, task_fact fact, void *context) {
    const pictures *p = &images_of(e)->all;
    char text[64];
    snprintf(text, sizeof text, "%d", p->classes.n);
    fact(context, "classes", text);
    snprintf(text, sizeof text, "%d x %d", p->size, p->size);
    fact(context, "pixels", text);
}

/* One part for each split: the pictures as they are read, and their classes. */
static int data_parts(const experiment *e, task_part *out) {
    static const char *const keys_of[2][SPLITS] = {{"data.path", "data.valid_path", "data.test_path"},
                                                   {"data.train", "data.valid", "data.test"}};
    const images_settings *r = images_settings_of(&e->recipe);
    const images *s = images_of(e);
    const bool shapes = r->data.set == IMAGES_SHAPES;
    const char *const paths[] = {s->path, r->data.valid_path, r->data.test_path};
    const size_t bytes = pictures_bytes(&s->all);
    int n = 0;
    for (int split = 0; split < SPLITS; split++) {
        uint64_t hash = 0;
        if (s->n[split] == 0) continue;
        for (int64_t i = 0; i < s->n[split]; i++) {
            const int32_t place = s->place[split][i];
            hash = fingerprint_data(hash, s->all.bytes + (size_t)place * bytes, bytes);
            hash = fingerprint_data(hash, &s->all.labels[place], sizeof *s->all.labels);
        }
        const char *file = *paths[split]
                               ? paths[split]
                               : s->path; /* CIFAR has one directory; held-out pictures are among the training files */
        out[n++] = (task_part){(task_split)split, keys_of[shapes][split], file, hash, 0};
    }
    return n;
}

/* ---- batches ---- */

static int64_t batches_of(int64_t n, int64_t batch) { return (n + batch - 1) / batch; }

static int64_t batches(const experiment *e) {
    return batches_of(images_of(e)->n[SPLIT_TRAIN], images_settings_of(&e->recipe)->data.batch);
}

static void order_epoch(images *s, uint64_t seed) {
    const int64_t n = s->n[SPLIT_TRAIN];
    enum { SHUFFLE_IMAGES = 0x696d6773 };
    if (s->ordered_epoch == s->epoch) return;
    for (int64_t i = 0; i < n; i++) s->order[i] = i;
    shuffle(s->order, n, n, nn_key(seed, (uint64_t)s->epoch, SHUFFLE_IMAGES));
    s->ordered_epoch = s->epoch;
}

static void next(experiment *e, task_batch *out) {
    images *s = images_of(e);
    const int64_t batch = images_settings_of(&e->recipe)->data.batch, first = s->index * batch;
    const int64_t left = s->n[SPLIT_TRAIN] - first, n = left < batch ? left : batch;
    int32_t *places = nn_plan_data(e->plan, "places"), *draws = nn_plan_data(e->plan, "draws");
    int32_t *targets = nn_plan_data(e->plan, "targets");
    order_epoch(s, e->recipe.train.seed);
    nn_plan_set_rows(e->plan, s->rows, n);
    for (int64_t i = 0; i < n; i++) {
        places[i] = s->place[SPLIT_TRAIN][s->order[first + i]];
        draws[i] = (int32_t)(first + i);
        targets[i] = s->all.labels[places[i]];
    }
    if (++s->index == batches(e)) s->index = 0, s->epoch++;
    *out = (task_batch){.items = n, .samples = n, .targets = n, .epoch = s->epoch, .index = s->index};
}

static int seek(experiment *e, int64_t epoch, int64_t index) {
    images *s = images_of(e);
    if (epoch < 0 || index < 0 || index >= batches(e))
        return adamod__refuse(
            "the checkpoint is at batch %lld of an epoch, but an epoch has %lld batches: have the data changed?",
            (long long)index, (long long)batches(e));
    s->epoch = epoch;
    s->index = index;
    return 0;
}

/* ---- scores ---- */

enum { LOSS, ACCURACY, TOP5, METRICS };
static const metric metrics[METRICS] = {
    [LOSS] = {"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true, NULL},
    [ACCURACY] = {"accuracy", "accuracy", "accuracy", "%", 100, 2, METRIC_HIGHER, true, NULL},
    [TOP5] = {"top5", "top 5", "pictures whose class is among the five likeliest", "%", 100, 2, METRIC_HIGHER, false,
              NULL},
};

static int64_t count(const experiment *e, task_split split) { return images_of(e)->n[split]; }

/* The number of classes likelier than the target. Ties count if they come before it; NaN is likelier than anything. */
static int rank_of(const float *logits, int n, int target) {
    int rank = 0;
    for (int k = 0; k < n; k++) rank += k < target ? !(logits[k] < logits[target]) : !(logits[k] <= logits[target]);
    return rank;
}

/* Returns the likeliest class and stores its probability. */
static int best_of(const float *logits, int n, double *probability) {
    int best = 0;
    double sum = 0;
    for (int k = 1; k < n; k++) best = logits[k] > logits[best] ? k : best;
    for (int k = 0; k < n; k++) sum += exp((double)logits[k] - (double)logits[best]);
    *probability = 1 / sum;
    return best;
}

/* Runs the graph for n pictures without augmentation. place and labels NULL: those from `first` on, without a class. */
static int run_places(const images_graph *x, const int32_t *place, int64_t first, int64_t n, const int32_t *labels) {
    int32_t *places = nn_plan_data(x->plan, "places"), *draws = nn_plan_data(x->plan, "draws");
    int32_t *targets = nn_plan_data(x->plan, "targets");
    nn_plan_set_rows(x->plan, x->rows, n);
    for (int64_t i = 0; i < n; i++) {
        places[i] = place ? place[first + i] : (int32_t)(first + i);
        draws[i] = 0;
        targets[i] = labels ? labels[places[i]] : 0;
    }
    nn_plan_forward(x->plan);
    return nn_plan_wait(x->plan);
}

/* Results of an evaluation: this rank's pictures, and zeros for those of other ranks. */
typedef struct judged {
    double *loss;                      /* of each batch */
    double *rank, *best, *probability; /* of each picture; rank: of its class; best: the likeliest class */
} judged;

static void judge_batch(const images *s, const int32_t *place, int64_t at, int64_t n, const judged *j) {
    const float *logits = nn_plan_data(s->scoring.plan, "logits");
    const int classes = s->all.classes.n;
    for (int64_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        j->rank[at + i] = rank_of(row, classes, s->all.labels[place[i]]);
        j->best[at + i] = best_of(row, classes, &j->probability[at + i]);
    }
}

/* Evaluates the first n pictures of a split batch by batch. */
static int judge_pictures(experiment *e, task_split split, int64_t n, const judged *j) {
    images *s = images_of(e);
    const int64_t batch = images_settings_of(&e->recipe)->data.batch;
    for (int64_t at = 0; at < n; at += batch) {
        const int32_t *place = s->place[split] + at;
        const int64_t rows = n - at < batch ? n - at : batch;
        if (!experiment_is_mine(e, at / batch)) continue;
        if (run_places(&s->scoring, s->place[split], at, rows, s->all.labels)) return -1;
        j->loss[at / batch] = (double)*(const float *)nn_plan_data(s->scoring.plan, "loss");
        judge_batch(s, place, at, rows, j);
        experiment_progress(e, "images", at + rows, n);
    }
    return 0;
}

static void add_up(images *s, task_split split, int64_t n, int64_t batches, bool judge, const judged *j,
                   task_result *out) {
    double loss = 0, right = 0, top5 = 0;
    for (int64_t i = 0; i < batches; i++) loss += j->loss[i];
    for (int64_t i = 0; i < n; i++) {
        const int32_t place = s->place[split][i];
        right += j->rank[i] == 0;
        top5 += j->rank[i] < 5;
        if (judge) class_details_add(&s->judged, s->all.labels[place], (int)j->best[i], j->probability[i], place);
    }
    out->value[LOSS] = loss / (double)n;
    out->value[ACCURACY] = right / (double)n;
    out->value[TOP5] = s->all.classes.n > 5 ? top5 / (double)n : NAN; /* with five classes it would always be 100 % */
}

/* Scores the first `limit` pictures of a split. */
static int score(experiment *e, task_split split, int64_t limit, bool judge, task_result *out) {
    images *s = images_of(e);
    const int64_t n = s->n[split] < limit ? s->n[split] : limit;
    const int64_t batches = batches_of(n, images_settings_of(&e->recipe)->data.batch);
    const double start = clock_seconds();
    double *all = calloc((size_t)(batches + 3 * n), sizeof *all);
    const judged j = {all, all + batches, all + batches + n, all + batches + 2 * n};
    int failed =
        all ? judge_pictures(e, split, n, &j)
            : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the classes of %lld pictures", (long long)n);
    failed = comm_agree(e->comm, failed);
    if (!failed) comm_add(e->comm, all, batches + 3 * n);
    if (!failed) add_up(s, split, n, batches, judge, &j, out);
    free(all);
    if (failed) return -1;
    out->items = (double)n;
    out->samples = n;
    out->seconds = clock_seconds() - start;
    return 0;
}

static int evaluate(experiment *e, task_split split, task_depth depth, task_sample sample, void *context,
                    task_result *out) {
    const images_settings *r = images_settings_of(&e->recipe);
    images *s = images_of(e);
    const int64_t some = r->train.evaluate_images > 0 ? r->train.evaluate_images : INT64_MAX;
    (void)sample, (void)context;
    *out = (task_result){0};
    for (int i = 0; i < TASK_MOST_METRICS; i++) out->value[i] = NAN;
    if (s->n[split] == 0 || !s->scoring.plan) return 0;
    const bool whole = depth == TASK_WHOLE;
    if (whole && class_details_begin(&s->judged, s->all.classes.n))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %d classes", s->all.classes.n);
    return score(e, split, whole ? INT64_MAX : depth == TASK_GLANCE ? r->data.batch : some, whole, out);
}

static int write_details(experiment *e, task_split split, int64_t step, const char *directory) {
    const images *s = images_of(e);
    return class_details_write(&s->judged, &s->all, step, split == SPLIT_TEST ? "test" : "valid",
                               path_join(directory, "classes.json").text);
}

/* ---- answers ---- */

/* Writes softmax(logits) to out. */
static void to_probabilities(const float *logits, int n, float *out) {
    double probability;
    const int best = best_of(logits, n, &probability);
    for (int k = 0; k < n; k++) out[k] = (float)(exp((double)logits[k] - (double)logits[best]) * probability);
}

int images_predict(experiment *e, int64_t n, const uint8_t *bytes, float *probabilities) {
    const images *s = images_of(e);
    const int classes = s->all.classes.n;
    const int64_t most = images_settings_of(&e->recipe)->data.batch, batch = n < most ? n : most;
    images_graph x = {0};
    int failed = open_graph(e, &x, batch, n, bytes);
    for (int64_t at = 0; !failed && at < n; at += batch) {
        const int64_t rows = n - at < batch ? n - at : batch;
        failed = run_places(&x, NULL, at, rows, NULL);
        const float *logits = nn_plan_data(x.plan, "logits");
        for (int64_t i = 0; !failed && i < rows; i++)
            to_probabilities(logits + i * classes, classes, probabilities + (at + i) * classes);
    }
    free_graph(&x);
    return failed;
}

/* ---- the table ---- */

static const key_table *const tables[] = {&table, NULL};
static const char *const subtitle[] = {"data.set", "model.kind", "model.blocks", "model.widths", "data.batch", NULL};

const task task_images = {.name = "images",
                          .about = "classes of pictures",
                          .items = "images",
                          .samples = "images",
                          .limit = "train.evaluate_images",
                          .subtitle = subtitle,
                          .keys = tables,
                          .models = models,
                          .answer = TASK_CLASSIFIES,
                          .metrics = metrics,
                          .n_metrics = METRICS,
                          .check = check_task,
                          .open = open_images,
                          .close = close_images,
                          .build = build,
                          .prepare = prepare,
                          .batches = batches,
                          .next = next,
                          .seek = seek,
                          .count = count,
                          .evaluate = evaluate,
                          .write_details = write_details,
                          .save = save,
                          .saves = (const char *const[]){"classes.txt", NULL},
                          .fingerprint = fingerprint,

                          .other_meaning = "other classes",
                          .describe = describe,
                          .data = data_parts,
                          .note = note,
                          .bench = &images_bench};
