/* image_folder.h - a directory of PNG and JPEG files with a subdirectory for each class.
 *
 * Classes are the subdirectories in the order of their bytes; pictures are the files in them that end in .png, .jpg or
 * .jpeg, in that order too. Names that begin with a dot are passed over. So are files of other kinds and folders in a class,
 * and pictures that are in none; these are counted. Functions as in pictures.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef IMAGE_FOLDER_H
#define IMAGE_FOLDER_H

#include "data/pictures.h"

#include <stdbool.h>

typedef struct image_folder_options {
    bool skip;          /* pictures that cannot be read; else the first of them is a failure */
    pictures_crew crew; /* decodes */
} image_folder_options;

/* What became of the files. */
typedef struct image_folder_report {
    int64_t files, unreadable;
    int missing;     /* classes without a picture here that can be read */
    char first[400]; /* of those that could not be read, with the reason */
    int64_t passed_over;
    char first_passed[200]; /* of those, by its path in the directory */
} image_folder_report;

/* Appends the pictures, scaled to out->size (image_square). Where out has no classes yet, those of this directory become
 * its; else there must be no others. */
int image_folder_read(pictures *out, const char *directory, const image_folder_options *o, image_folder_report *report);

/* Names of files, to be begun as {0}. */
typedef struct image_names {
    char **name;
    int64_t n, room;
} image_names;
int image_names_add(image_names *l, const char *name);
void image_names_free(image_names *l);

/* Appends all pictures in a directory and in those below it, in the order of their paths' bytes. A directory that cannot be
 * read is one of them. */
int image_folder_find(image_names *out, const char *directory);

#endif
