/* class_report.h - what a classifier took for what, and its surest mistakes: gathered answer by answer, then written as
 * classes.json of a run (train/run.h). */
#ifndef ADAMOD_CLASS_REPORT_H
#define ADAMOD_CLASS_REPORT_H

#include "data/pictures.h"

/* Mistakes that are kept, and most classes: of more, nothing is kept. */
enum { CLASS_MISTAKES = 24, CLASS_MOST = 1000 };

typedef struct class_mistake {
    int64_t place; /* of the picture */
    int prediction;
    double probability;
} class_mistake;

typedef struct class_report {
    int classes;
    int64_t *confusion;                    /* [classes, classes]: true class, prediction; NULL: too many */
    class_mistake mistake[CLASS_MISTAKES]; /* the surest first; equally sure, in the order of answers */
    int mistakes;
} class_report;

/* Empty, for so many classes; -1: out of memory. */
int class_report_begin(class_report *c, int classes);
void class_report_add(class_report *c, int label, int prediction, double probability, int64_t place);
void class_report_free(class_report *c);

/* split: "test" or "valid". Of too many classes there is no file. Pictures are scaled down to 128 pixels a side at most. */
int class_report_write(const class_report *c, const pictures *p, int64_t step, const char *split, const char *path);

#endif
