/* shapes.h - generated pictures of ten classes: a disc, ring, square, triangle, star, cross, half disc, crescent, heart or
 * arrow of any colour, place, angle, size and proportion, on a background that changes from one colour to another, among
 * strokes and blots, some of them in front of it, under noise. 32 x 32 pixels.
 *
 * A picture follows from seed, stream and its number alone.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef SHAPES_H
#define SHAPES_H

#include "data/pictures.h"

enum { SHAPES_SIZE = 32, SHAPES_CLASSES = 10 };

/* Appends n pictures, as many of each class, and names the classes if they have no names yet. stream: 0 for training, 1 for
 * validation, ... */
int shapes_generate(pictures *out, uint64_t seed, int stream, int64_t n, const pictures_crew *crew);

#endif
