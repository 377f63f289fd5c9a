/* runs_view.h - the live line of several runs side by side on a terminal: the progress of each run and of all.
 *
 *     2 of 12 runs over, 41m05s left  [3] adam, seed 1: step 405/900, validation loss 2.9871  [4] sgd, seed 1: reading data */
#pragma once

#include "study/run_list.h"
#include "train/scoreboard.h"

/* p: the runs of the board, for their labels. */
void runs_view_draw(scoreboard *b, const run_list *p);
