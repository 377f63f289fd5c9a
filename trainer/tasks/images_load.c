/* images_load.c - reads the pictures of a recipe and divides them into splits. */
#include "tasks/images.h"

#include "core/error.h"
#include "support/random.h"
#include "data/cifar.h"
#include "data/sets/data_sets.h"
#include "data/shapes.h"
#include "data/shuffle.h"

#include <stdlib.h>
#include <string.h>

static bool is_folder(const images_settings *r) { return r->data.set == IMAGES_FOLDER; }
static bool is_shapes(const images_settings *r) { return r->data.set == IMAGES_SHAPES; }

/* ---- how pictures become numbers ---- */

/* The name of each set, and its statistics: CIFAR has the paper's, folders ImageNet's. */
static const struct {
    const char *name;
    float mean[3], deviation[3];
} sets[] = {
    [IMAGES_SHAPES] = {"shapes", {0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}},
    [IMAGES_CIFAR10] = {"cifar10", {0.4914f, 0.4822f, 0.4465f}, {0.2023f, 0.1994f, 0.2010f}},
    [IMAGES_CIFAR100] = {"cifar100", {0.507f, 0.487f, 0.441f}, {0.267f, 0.256f, 0.276f}},
    [IMAGES_FOLDER] = {"folder", {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
};

const char *images_set_name(const images_settings *r) { return sets[r->data.set].name; }

/* Parses "0.5, 0.4, 0.3". */
static bool parse_three(const char *text, float out[3]) {
    for (int k = 0; k < 3; k++) {
        char number[32];
        const char *end = k < 2 ? strchr(text, ',') : text + strlen(text);
        double x;
        while (*text == ' ') text++;
        if (!end || end <= text || (size_t)(end - text) >= sizeof number) return false;
        memcpy(number, text, (size_t)(end - text));
        number[end - text] = '\0';
        if (!key_parse_number(number, &x) || !(x > -1e6 && x < 1e6)) return false;
        out[k] = (float)x;
        text = end + 1;
    }
    return true;
}

const char *images_check_view(const images_settings *r) {
    float x[3] = {0};
    if (*r->data.mean && !parse_three(r->data.mean, x))
        return task_refuse("data.mean", "data.mean is '%s', expected three numbers with commas between them",
                           r->data.mean);
    const bool three = !*r->data.std || parse_three(r->data.std, x);
    if (!*r->data.std || (three && x[0] > 0 && x[1] > 0 && x[2] > 0)) return NULL;
    return task_refuse("data.std", "data.std is '%s', expected three numbers above 0 with commas between them",
                       r->data.std);
}

nn_picture_options images_view(const images_settings *r) {
    nn_picture_options o = {
        .size = r->data.size, .padding = r->data.padding, .crop = r->data.crop, .mirror = r->data.flip};
    memcpy(o.mean, sets[r->data.set].mean, sizeof o.mean);
    memcpy(o.deviation, sets[r->data.set].deviation, sizeof o.deviation);
    if (*r->data.mean) parse_three(r->data.mean, o.mean);
    if (*r->data.std) parse_three(r->data.std, o.deviation);
    return o;
}

/* ---- one set of files ---- */

static int read_cifar(images *s, const images_settings *r, task_split split) {
    const bool coarse = r->data.labels == LABELS_COARSE;
    const cifar_options o = {.kind = r->data.set == IMAGES_CIFAR10 ? CIFAR_10
                                     : coarse                      ? CIFAR_100_COARSE
                                                                   : CIFAR_100_FINE,
                             .test = split == SPLIT_TEST,
                             .any_size = r->data.any_size};
    return cifar_read(&s->all, s->path, &o);
}

typedef struct telling {
    const experiment *e;
    const char *what;
} telling;

static void tell(void *context, int64_t done, int64_t total) {
    const telling *t = context;
    experiment_progress(t->e, t->what, done, total);
}

static int read_folder(experiment *e, task_split split) {
    const images_settings *r = images_settings_of(&e->recipe);
    images *s = images_of(e);
    const char *const paths[] = {s->path, r->data.valid_path, r->data.test_path};
    static const char *const whats[] = {"reading training pictures", "reading validation pictures",
                                        "reading test pictures"};
    telling t = {e, whats[split]};
    const image_folder_options o = {.skip = r->data.unreadable == UNREADABLE_SKIPPED, .crew = {e->pool, tell, &t}};
    return image_folder_read(&s->all, paths[split], &o, &s->counts[split]);
}

static int make_shapes(experiment *e, task_split split) {
    const images_settings *r = images_settings_of(&e->recipe);
    const int64_t n[] = {r->data.train, r->data.valid, r->data.test};
    static const char *const whats[] = {"generating training pictures", "generating validation pictures",
                                        "generating test pictures"};
    telling t = {e, whats[split]};
    const pictures_crew crew = {e->pool, tell, &t};
    const shapes_options o = {
        .seed = r->data.seed, .stream = split, .plain = !r->data.clutter, .upright = !r->data.turn};
    return shapes_generate(&images_of(e)->all, &o, n[split], &crew);
}

/* Reads a split's files and lists their places. */
static int read_split(experiment *e, task_split split) {
    const images_settings *r = images_settings_of(&e->recipe);
    images *s = images_of(e);
    const int64_t before = s->all.n;
    const int failed = is_shapes(r)   ? make_shapes(e, split)
                       : is_folder(r) ? read_folder(e, split)
                                      : read_cifar(s, r, split);
    if (failed) return -1;
    if (s->all.n > INT32_MAX)
        return adamod__refuse("%lld training images, expected fewer than 2147483648", (long long)s->all.n);
    s->n[split] = s->all.n - before;
    s->place[split] = malloc(((size_t)s->n[split] + 1) * sizeof *s->place[split]);
    if (!s->place[split])
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld pictures", (long long)s->all.n);
    for (int64_t i = 0; i < s->n[split]; i++) s->place[split][i] = (int32_t)(before + i);
    return 0;
}

/* ---- held-out pictures ---- */

enum { HELD_OUT = 0x68656c64 }; /* the stream of its random numbers */

/* Moves random training pictures to the validation set. Both sets keep their order. */
static int hold_out(images *s, const images_settings *r) {
    const int64_t n = s->n[SPLIT_TRAIN];
    int64_t held = (int64_t)((double)n * r->data.hold_out / 100 + 0.5),
            *order = malloc(((size_t)n + 1) * sizeof *order);
    int32_t *valid = malloc((size_t)n * sizeof *valid), *train = s->place[SPLIT_TRAIN];
    bool *chosen = calloc((size_t)n, sizeof *chosen);
    if (held < 1) held = 1;
    int failed = 0;
    if (!order || !valid || !chosen)
        failed = adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld pictures", (long long)n);
    else if (held >= n)
        failed = adamod__refuse("%s: %lld picture%s, of which data.hold_out %g %% leaves none to train on", s->path,
                                (long long)n, n == 1 ? "" : "s", r->data.hold_out);
    if (!failed) {
        int64_t kept = 0, out = 0;
        for (int64_t i = 0; i < n; i++) order[i] = i;
        shuffle(order, n, held, nn_key(r->data.seed, 0, HELD_OUT));
        for (int64_t i = 0; i < held; i++) chosen[order[i]] = true;
        for (int64_t i = 0; i < n; i++) {
            if (chosen[i]) valid[out++] = train[i];
            else train[kept++] = train[i];
        }
        s->place[SPLIT_VALID] = valid;
        s->n[SPLIT_VALID] = out;
        s->n[SPLIT_TRAIN] = kept;
        valid = NULL;
    }
    free(order);
    free(valid);
    free(chosen);
    return failed;
}

/* ---- pictures of two splits ---- */

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Allocates the hashes of a split's pictures; NULL: no memory, or no pictures. */
static uint64_t *hashes_of(const images *s, task_split split) {
    const size_t bytes = pictures_bytes(&s->all);
    uint64_t *out = s->n[split] ? malloc((size_t)s->n[split] * sizeof *out) : NULL;
    for (int64_t i = 0; out && i < s->n[split]; i++)
        out[i] = fingerprint_data(0, s->all.bytes + (size_t)s->place[split][i] * bytes, bytes);
    return out;
}

/* Only for a note: finds nothing without memory, instead of failing. */
static void find_trained_on(images *s) {
    uint64_t *train = hashes_of(s, SPLIT_TRAIN);
    if (train) qsort(train, (size_t)s->n[SPLIT_TRAIN], sizeof *train, by_value);
    for (int split = SPLIT_VALID; train && split < SPLITS; split++) {
        uint64_t *held = hashes_of(s, (task_split)split);
        for (int64_t i = 0; held && i < s->n[split]; i++)
            s->trained_on[split] +=
                bsearch(&held[i], train, (size_t)s->n[SPLIT_TRAIN], sizeof *train, by_value) != NULL;
        free(held);
    }
    free(train);
}

/* ---- all splits ---- */

/* Whether validation pictures are taken from the training files. */
static bool holds_out(const images_settings *r) {
    return !is_shapes(r) && r->data.hold_out > 0 && !*r->data.valid_path;
}

static bool has_files(const images_settings *r, task_split split) {
    if (is_shapes(r)) return split != SPLIT_TEST || r->data.test > 0;
    if (!is_folder(r)) return split != SPLIT_VALID;
    return split == SPLIT_TRAIN || *(split == SPLIT_VALID ? r->data.valid_path : r->data.test_path);
}

/* Without a validation set, takes the test set, as the paper's curves do. */
static int validate_on_test(experiment *e) {
    images *s = images_of(e);
    const size_t bytes = (size_t)s->n[SPLIT_TEST] * sizeof *s->place[SPLIT_TEST];
    if (*e->gone[SPLIT_VALID]) return 0;
    if (s->n[SPLIT_VALID] == 0) memcpy(e->gone[SPLIT_VALID], e->gone[SPLIT_TEST], sizeof e->gone[SPLIT_TEST]);
    if (s->n[SPLIT_VALID] > 0 || s->n[SPLIT_TEST] == 0) return 0;
    free(s->place[SPLIT_VALID]);
    s->place[SPLIT_VALID] = malloc(bytes);
    if (!s->place[SPLIT_VALID]) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the validation set");
    memcpy(s->place[SPLIT_VALID], s->place[SPLIT_TEST], bytes);
    s->n[SPLIT_VALID] = s->n[SPLIT_TEST];
    s->test_is_valid = true;
    return 0;
}

static int check_training(const images *s, const images_settings *r) {
    const char *where = is_shapes(r) ? "shapes" : s->path;
    if (s->all.classes.n < 2)
        return adamod__refuse("%s: 1 class, '%s': expected at least 2", where, s->all.classes.name[0]);
    if (s->n[SPLIT_TRAIN] >= r->data.batch) return 0;
    return adamod__refuse("%s: data.batch is %d, but there %s %lld training picture%s", where, r->data.batch,
                          s->n[SPLIT_TRAIN] == 1 ? "is" : "are", (long long)s->n[SPLIT_TRAIN],
                          s->n[SPLIT_TRAIN] == 1 ? "" : "s");
}

/* The data set in the cache, or NULL. */
static const data_set *set_of(const images_settings *r) {
    return *r->data.path ? NULL : data_set_find(images_set_name(r));
}

static int find_files(experiment *e) {
    const images_settings *r = images_settings_of(&e->recipe);
    images *s = images_of(e);
    const data_set *set = set_of(r);
    snprintf(s->path, sizeof s->path, "%s", r->data.path);
    e->set = set;
    return set ? data_set_path(set, s->path, sizeof s->path) : 0;
}

int images_load(experiment *e, const char *directory, int uses) {
    const images_settings *r = images_settings_of(&e->recipe);
    images *s = images_of(e);
    s->all.size = r->data.size;
    if (directory && class_names_load(&s->all.classes, path_join(directory, "classes.txt").text)) return -1;
    if (directory && !(uses & TASK_SCORE)) return 0;
    if (find_files(e)) return -1;
    for (int split = SPLIT_TRAIN; split < SPLITS; split++) {
        const bool wanted = split != SPLIT_TRAIN || !directory || holds_out(r);
        if (!wanted || !has_files(r, split) || read_split(e, split) == 0) continue;
        s->n[split] = 0;
        data_set_explain(set_of(r));
        if (experiment_gone(e, directory, split == SPLIT_TEST ? SPLIT_TEST : SPLIT_VALID)) return -1;
    }
    if (holds_out(r) && !*e->gone[SPLIT_VALID] && hold_out(s, r)) return -1;
    if (!directory && is_folder(r)) find_trained_on(s);
    if (validate_on_test(e)) return -1;
    return directory ? 0 : check_training(s, r);
}

void images_drop(images *s) {
    for (int i = 0; i < SPLITS; i++) free(s->place[i]);
    pictures_free(&s->all);
}
