/* images.h - the task "images": a network of any kind classifies CIFAR-10, CIFAR-100, directories of PNG and JPEG files, or
 * generated shapes.
 *
 * All pictures of a run lie in one block of bytes, which a graph reads as a constant; a split is a list of places in it. A
 * batch is therefore a few numbers, and a device holds the pictures once. */
#pragma once

#include "data/image_folder.h"
#include "tasks/class_details.h"
#include "train/task.h"

/* Values of keys, in the order of their choices. */
typedef enum images_set { IMAGES_SHAPES, IMAGES_CIFAR10, IMAGES_CIFAR100, IMAGES_FOLDER } images_set;
typedef enum images_labels { LABELS_FINE, LABELS_COARSE } images_labels; /* of CIFAR-100 */
typedef enum images_unreadable { UNREADABLE_REFUSED, UNREADABLE_SKIPPED } images_unreadable;

typedef struct images_settings {
    struct {
        images_set set;
        char path[RECIPE_PATH], valid_path[RECIPE_PATH], test_path[RECIPE_PATH]; /* absolute, or "" */
        images_labels labels;
        bool any_size; /* CIFAR's files may have another number of pictures */
        int size;      /* pixels of a side */
        images_unreadable unreadable;
        double hold_out;            /* percent of the training set */
        int64_t train, valid, test; /* shapes: pictures */
        bool clutter, turn;         /* shapes: with strokes and blots; at any angle */
        uint64_t seed;              /* of shapes, and of the choice of held-out pictures */
        int batch;
        bool crop, flip;
        int padding;
        char mean[64], std[64]; /* three numbers each; "": the statistics of the set */
    } data;
    struct {
        int64_t evaluate_images; /* validation pictures at each evaluation; 0: all */
    } train;
} images_settings;

static inline const images_settings *images_settings_of(const recipe *r) {
    return (const images_settings *)(const void *)r->task_settings;
}

/* A graph over pictures, and its plan. */
typedef struct images_graph {
    nn_graph *graph;
    nn_plan *plan;
    int rows; /* symbol */
} images_graph;

/* The task's part of an experiment. */
typedef struct images {
    pictures all;
    char path[RECIPE_PATH]; /* data.path, or the cache's directory of the set */
    int32_t *place[SPLITS]; /* places of a split's pictures in `all` */
    int64_t n[SPLITS];
    bool test_is_valid; /* the test set is also the validation set */
    image_folder_counts counts[SPLITS];
    int64_t trained_on[SPLITS]; /* folder: held-out pictures that equal a training picture */
    nn_picture_options view;
    /* training */
    int rows;              /* symbol */
    int64_t *order;        /* of an epoch */
    int64_t epoch, index;  /* of the next batch */
    int64_t ordered_epoch; /* the epoch that `order` belongs to; -1: none */
    images_graph scoring;
    class_details judged; /* by the last evaluation of a whole split */
} images;

static inline images *images_of(const experiment *e) { return e->state; }

extern const task task_images;
extern const struct task_bench images_bench; /* images_bench.c */

/* Fills all, place, n and counts with what training, or the use of a run's model, needs (see task.open). After a failure,
 * images_drop frees what was read. */
int images_load(experiment *e, const char *directory, int uses);
void images_drop(images *s);

/* The name of data.set, as recipes write it. */
const char *images_set_name(const images_settings *r);

/* How pictures become numbers. The recipe must have passed images_check_view, which is as task.check. */
nn_picture_options images_view(const images_settings *r);
const char *images_check_view(const images_settings *r);

/* Writes the probabilities [n, classes] of n pictures [n, size, size, 3] of the recipe's size. */
int images_predict(experiment *e, int64_t n, const uint8_t *bytes, float *probabilities);
