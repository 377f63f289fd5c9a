/* class_details.h - what a classifier took for what, and its surest mistakes: gathered answer by answer, then written as
 * classes.json of a run (train/run.h). */
#ifndef ADAMOD_CLASS_DETAILS_H
#define ADAMOD_CLASS_DETAILS_H

#include "data/pictures.h"

/* Mistakes that are kept, and most classes: of more, nothing is kept. */
enum { CLASS_MISTAKES = 24, CLASS_MOST = 1000 };

typedef struct class_mistake {
    int64_t place; /* of the picture */
    int prediction;
    double probability;
} class_mistake;

typedef struct class_details {
    int classes;
    int64_t *confusion;                    /* [classes, classes]: true class, prediction; NULL: too many */
    class_mistake mistake[CLASS_MISTAKES]; /* the surest first; equally sure, in the order of answers */
    int mistakes;
} class_details;

/* Empty, for so many classes; -1: out of memory. */
int class_details_begin(class_details *c, int classes);
void class_details_add(class_details *c, int label, int prediction, double probability, int64_t place);
void class_details_free(class_details *c);

/* split: "test" or "valid". Of too many classes there is no file. Pictures are scaled down to 128 pixels a side at most. */
int class_details_write(const class_details *c, const pictures *p, int64_t step, const char *split, const char *path);

#endif
