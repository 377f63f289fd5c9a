/* adamod predict: classifies pictures with a trained model. */
#include "support/json.h"
#include "core/error.h"
#include "core/pool.h"
#include "support/text.h"
#include "cli/open_run.h"
#include "data/image_file.h"
#include "data/image_folder.h"
#include "tasks/images.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct arguments {
    opened_run run;
    image_names given, pictures; /* as on the command line, and with those in directories */
    int64_t top;
    bool json;
} arguments;

static const cli_flag flags[] = {
    OPEN_RUN_FLAGS,
    CLI_WHOLE("top", "N", "number of likeliest classes to print (1)", arguments, top, 1, 1000000),
    CLI_SWITCH("json", "print a JSON object per image, one per line", arguments, json),
    {0}};

static int take_path(void *to, const char *path) {
    arguments *a = to;
    if (!a->run.directory) return a->run.directory = path, 0;
    return image_names_add(&a->given, path) ? cli_failed("predict") : 0;
}

static const cli_syntax syntax = {
    .command = "predict",
    .help = "usage: adamod predict RUN IMAGE|DIR... [--top N] [--json] ...\n\n"
            "Classifies PNG and JPEG images with the model of a run of data.task images, and prints the likeliest\n"
            "class with its probability. An image's central square is scaled to the size of the training images.\n"
            "DIR stands for all images in it and in the directories below it, in the order of their paths.\n\n",
    .flags = flags,
    .operand = take_path};

/* Replaces each directory by the pictures in it. Returns the exit status. */
static int find_pictures(arguments *a) {
    int status = 0;
    for (int64_t i = 0; i < a->given.n; i++) {
        const char *path = a->given.name[i];
        const int64_t before = a->pictures.n;
        struct stat info;
        const bool directory = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
        if (directory ? image_folder_find(&a->pictures, path) : image_names_add(&a->pictures, path))
            return cli_failed("predict");
        if (a->pictures.n == before)
            status = cli_fail("predict", "%s: no picture in this directory, expected .png, .jpg or .jpeg", path);
    }
    return status;
}

/* The class that follows `before` in the order of probability; -1: none is left. */
static int next_likeliest(const float *p, int n, int before) {
    int best = -1;
    for (int k = 0; k < n; k++) {
        const bool after = before < 0 || p[k] < p[before] || (p[k] == p[before] && k > before);
        if (after && (best < 0 || p[k] > p[best])) best = k;
    }
    return best;
}

static void print_text(const arguments *a, const char *path, const class_names *c, const float *p) {
    int k = -1;
    text_print(stdout, path);
    putchar(':');
    for (int64_t i = 0; i < a->top && (k = next_likeliest(p, c->n, k)) >= 0; i++) {
        printf("%s ", i ? "," : "");
        text_print(stdout, c->name[k]);
        printf(" %.1f %%", 100 * (double)p[k]);
    }
    printf("\n");
}

static int print_json(const arguments *a, const char *path, const class_names *c, const float *p) {
    int k = -1;
    json j = {0};
    json_open(&j, '{');
    json_pair(&j, "image", path);
    json_pair_open(&j, "classes", '[');
    for (int64_t i = 0; i < a->top && (k = next_likeliest(p, c->n, k)) >= 0; i++) {
        json_open(&j, '{');
        json_pair(&j, "label", c->name[k]);
        json_pair_number(&j, "probability", (double)p[k]);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    return cli_print_json("predict", &j, "\n");
}

/* ---- portions of pictures, so that answers come early and memory does not grow with their number ---- */

enum { PORTION = 256 };

typedef struct portion {
    char **paths; /* [n]; pictures that could be read come first */
    int64_t n;
    int size;
    uint8_t *bytes;       /* [PORTION, size, size, 3] */
    float *probabilities; /* [PORTION, classes] */
    struct {
        bool failed;
        char why[256];
    } read[PORTION];
} portion;

static size_t picture_bytes(const portion *x) { return (size_t)x->size * (size_t)x->size * 3; }

static void read_one(void *context, int64_t i, int thread) {
    portion *x = context;
    (void)thread;
    x->read[i].failed = image_read_square(x->paths[i], x->size, x->bytes + (size_t)i * picture_bytes(x)) != 0;
    if (x->read[i].failed) snprintf(x->read[i].why, sizeof x->read[i].why, "%s", adamod__last_message());
}

/* Moves the pictures that can be read to the front of paths and bytes, and names the others. Returns the exit status. */
static int read_pictures(portion *x, adamod_pool *pool) {
    const size_t each = picture_bytes(x);
    int status = 0;
    int64_t kept = 0;
    adamod__pool_run(pool, x->n, read_one, x);
    for (int64_t i = 0; i < x->n; i++) {
        if (x->read[i].failed) {
            status = cli_fail("predict", "%s: %s", x->paths[i], x->read[i].why);
            continue;
        }
        if (kept != i) memcpy(x->bytes + (size_t)kept * each, x->bytes + (size_t)i * each, each);
        char *read = x->paths[i]; /* the others stay in the list, to be freed */
        x->paths[i] = x->paths[kept];
        x->paths[kept++] = read;
    }
    x->n = kept;
    return status;
}

static int predict_portion(const arguments *a, portion *x, experiment *e) {
    const class_names *c = &images_of(e)->all.classes;
    int status = read_pictures(x, e->pool);
    if (x->n && images_predict(e, x->n, x->bytes, x->probabilities)) return cli_failed("predict");
    for (int64_t i = 0; i < x->n; i++) {
        const float *row = x->probabilities + i * c->n;
        if (a->json) status = print_json(a, x->paths[i], c, row) ? CLI_FAILURE : status;
        else print_text(a, x->paths[i], c, row);
    }
    fflush(stdout); /* main reports a failed write */
    return status;
}

static int predict(arguments *a, experiment *e) {
    portion *x = calloc(1, sizeof *x);
    int status = find_pictures(a);
    const int64_t n = a->pictures.n;
    const size_t most = (size_t)(n < PORTION ? n : PORTION) + 1; /* there may be none */
    if (!x) return cli_fail("predict", "out of memory for pictures");
    x->size = images_settings_of(&e->recipe)->data.size;
    x->bytes = calloc(most, picture_bytes(x));
    x->probabilities = calloc(most, (size_t)images_of(e)->all.classes.n * sizeof *x->probabilities);
    if (!x->bytes || !x->probabilities) status = cli_fail("predict", "out of memory for pictures");
    for (int64_t at = 0; x->bytes && x->probabilities && at < n; at += PORTION) {
        x->paths = a->pictures.name + at;
        x->n = n - at < PORTION ? n - at : PORTION;
        if (predict_portion(a, x, e)) status = CLI_FAILURE;
    }
    free(x->bytes);
    free(x->probabilities);
    free(x);
    return status;
}

int cli_predict(int argc, char **argv) {
    arguments a = {.top = 1};
    experiment e;
    int status = open_run(&syntax, argc, argv, &a.run, &e, TASK_APPLY);
    if (status < 0) {
        if (e.task->answer != TASK_CLASSIFIES)
            status = cli_fail("predict", "%s: data.task %s has no pictures", a.run.directory, e.task->name);
        else if (a.given.n == 0)
            status = cli_usage("predict", "needs a picture or a directory after the run directory");
        else status = predict(&a, &e);
        experiment_close(&e);
    }
    image_names_free(&a.given);
    image_names_free(&a.pictures);
    return status;
}
