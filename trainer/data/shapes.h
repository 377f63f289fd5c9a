/* shapes.h - generates pictures of ten classes: a disc, ring, square, triangle, star, cross, half disc, crescent, heart or
 * arrow of random colour, place, angle, size and proportion, on a colour gradient, among strokes and blots, some of them in
 * front of it, with noise. Pictures are square; out->size says how large, from SHAPES_LEAST to SHAPES_MOST pixels.
 *
 * A picture depends on its size, the options and its number alone. */
#pragma once

#include "data/pictures.h"

#include <stdbool.h>

enum { SHAPES_LEAST = 16, SHAPES_SIZE = 32, SHAPES_MOST = 64, SHAPES_CLASSES = 10 };

typedef struct shapes_options {
    uint64_t seed;
    int stream; /* 0 for training, 1 for validation, ... */
    /* These make shapes easier to tell apart. */
    bool plain;   /* no strokes and blots */
    bool upright; /* not turned */
} shapes_options;

/* Appends n pictures, equally many of each class, and names the classes if they have no names yet. */
int shapes_generate(pictures *out, const shapes_options *o, int64_t n, const pictures_crew *crew);
