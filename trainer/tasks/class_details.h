/* class_details.h - which classes a classifier mistook for which, and its surest mistakes: collected answer by answer, then
 * written as classes.json of a run (train/run.h). */
#pragma once

#include "data/pictures.h"

/* The number of mistakes that are kept, and of classes up to which details are collected. */
enum { CLASS_MISTAKES = 24, CLASS_MOST = 1000 };

typedef struct class_mistake {
    int64_t place; /* of the picture */
    int prediction;
    double probability;
} class_mistake;

typedef struct class_details {
    int classes;
    int64_t *confusion;                    /* [classes, classes]: true class, prediction; NULL: too many classes */
    class_mistake mistake[CLASS_MISTAKES]; /* the surest first; equally sure ones in the order of answers */
    int mistakes;
} class_details;

/* Empties it for a number of classes; -1: out of memory. */
int class_details_begin(class_details *c, int classes);
void class_details_add(class_details *c, int label, int prediction, double probability, int64_t place);
void class_details_free(class_details *c);

/* split: "test" or "valid". Writes no file if there are too many classes. Scales pictures down to at most 128 pixels a
 * side. */
int class_details_write(const class_details *c, const pictures *p, int64_t step, const char *split, const char *path);
