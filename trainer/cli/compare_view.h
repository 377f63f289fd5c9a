/* compare_view.h - the live line of `adamod compare --jobs N` on a terminal: the progress of each run and of all.
 *
 *     2 of 12 runs over, 41m05s left  [3] adam, seed 1: step 405/900, validation loss 2.9871  [4] sgd, seed 1: reading data */
#ifndef CLI_COMPARE_VIEW_H
#define CLI_COMPARE_VIEW_H

#include "train/scoreboard.h"

/* label: the name of each run. */
void compare_view_draw(scoreboard *b, char *const *label);

#endif
