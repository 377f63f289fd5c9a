/* image_folder.h - reads a directory of PNG and JPEG files with a subdirectory for each class.
 *
 * Classes are the subdirectories, pictures the files in them that end in .png, .jpg or .jpeg, both in byte order. Names that
 * begin with a dot are ignored. Other files, directories in a class, and pictures outside classes are skipped and counted. */
#pragma once

#include "data/pictures.h"

#include <stdbool.h>

typedef struct image_folder_options {
    bool skip;          /* skip pictures that cannot be read; else fail */
    pictures_crew crew; /* decodes the files */
} image_folder_options;

typedef struct image_folder_counts {
    int64_t files, unreadable;
    int missing;            /* classes without a readable picture */
    char first[400];        /* unreadable picture, with the reason */
    int64_t passed_over;    /* skipped files */
    char first_passed[200]; /* path of the first of them in the directory */
} image_folder_counts;

/* Appends the pictures, scaled to out->size (image_square). If out has no classes yet, it gets those of this directory;
 * otherwise other classes are refused. */
int image_folder_read(pictures *out, const char *directory, const image_folder_options *o, image_folder_counts *counts);

/* Names of files. Starts as {0}. */
typedef struct image_names {
    char **name;
    int64_t n;
    size_t room;
} image_names;
int image_names_add(image_names *l, const char *name);
void image_names_free(image_names *l);

/* Appends all pictures in a directory and below, in byte order of their paths. Directories that cannot be read are appended
 * as well. */
int image_folder_find(image_names *out, const char *directory);
