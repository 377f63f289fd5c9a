/* images.h - the task "images": pictures and what they show. CIFAR-10 and CIFAR-100, directories of PNG and JPEG files, and
 * generated shapes, classified by a network of any kind.
 *
 * All pictures of a run lie in one block of bytes, which a graph reads as a constant; a split is a list of places in it. So
 * a batch is a few numbers, and on a device the pictures are there once. */
#ifndef ADAMOD_IMAGES_H
#define ADAMOD_IMAGES_H

#include "data/image_folder.h"
#include "tasks/class_details.h"
#include "train/task.h"

typedef struct images_settings {
    struct {
        char set[16];                                                            /* cifar10, cifar100, folder, shapes */
        char path[RECIPE_PATH], valid_path[RECIPE_PATH], test_path[RECIPE_PATH]; /* absolute, or "" */
        char labels[16];                                                         /* of CIFAR-100: fine, coarse */
        bool any_size;              /* CIFAR's files may be cut or extended */
        int size;                   /* pixels of a side */
        char unreadable[16];        /* refuse, skip */
        double hold_out;            /* percent of the training set */
        int64_t train, valid, test; /* shapes: pictures */
        uint64_t seed;              /* of shapes, and of what is held out */
        int batch;
        bool crop, flip;
        int padding;
        char mean[64], std[64]; /* three numbers each; "": those of the set */
    } data;
    struct {
        int64_t evaluate_images; /* of the validation set, at each evaluation; 0: all */
    } train;
} images_settings;

static inline const images_settings *images_settings_of(const recipe *r) {
    return (const images_settings *)(const void *)r->task_settings;
}

/* A graph over pictures and its plan. */
typedef struct images_graph {
    nn_graph *graph;
    nn_plan *plan;
    int rows; /* symbol */
} images_graph;

/* The task's part of an experiment. */
typedef struct images {
    pictures all;
    char path[RECIPE_PATH]; /* data.path, or where a set of the cache is */
    int32_t *place[SPLITS]; /* of a split's pictures, in all */
    int64_t n[SPLITS];
    bool test_is_valid; /* there is no validation set but the test set */
    image_folder_report report[SPLITS];
    int64_t trained_on[SPLITS]; /* folder: held-out pictures that are, pixel by pixel, training pictures too */
    nn_picture_options view;
    /* training */
    int rows;              /* symbol */
    int64_t *order;        /* of an epoch */
    int64_t epoch, index;  /* of the batch that comes next */
    int64_t ordered_epoch; /* that order is of; -1: none */
    images_graph scoring;
    class_details judged; /* the last evaluation of a whole split */
} images;

static inline images *images_of(const experiment *e) { return e->state; }

extern const task task_images;
extern const struct task_bench images_bench; /* images_bench.c */

/* Fills all, place, n and report: what training needs, or what the use of a run's model does (see task.open). A failure may
 * leave parts, which images_drop frees. */
int images_load(experiment *e, const char *directory, int uses);
void images_drop(images *s);

/* How pictures become numbers, from the recipe, which has passed images_check_view. */
nn_picture_options images_view(const images_settings *r);
const char *images_check_view(const images_settings *r);

/* Probabilities [n, classes] of n pictures of the size that the recipe says, [n, size, size, 3]. */
int images_predict(experiment *e, int64_t n, const uint8_t *bytes, float *probabilities);

#endif
