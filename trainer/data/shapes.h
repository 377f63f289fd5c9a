/* shapes.h - generates pictures of ten classes: a disc, ring, square, triangle, star, cross, half disc, crescent, heart or
 * arrow of random colour, place, angle, size and proportion, on a colour gradient, among strokes and blots, some of them in
 * front of it, with noise. 32 x 32 pixels.
 *
 * A picture depends on the seed, the stream and its number alone. */
#ifndef SHAPES_H
#define SHAPES_H

#include "data/pictures.h"

enum { SHAPES_SIZE = 32, SHAPES_CLASSES = 10 };

/* Appends n pictures, equally many of each class, and names the classes if they have no names yet. stream: 0 for training,
 * 1 for validation, ... */
int shapes_generate(pictures *out, uint64_t seed, int stream, int64_t n, const pictures_crew *crew);

#endif
