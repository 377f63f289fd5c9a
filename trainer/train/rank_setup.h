/* rank_setup.h - how ranks begin a run together: who takes which cores and GPU, and whether all are about to do the same.
 *
 * Every function is called by all ranks; those that can fail do so on all of them, with the same message. */
#ifndef ADAMOD_RANK_SETUP_H
#define ADAMOD_RANK_SETUP_H

#include "comm/comm.h"
#include "train/task.h"

/* What a rank takes of its machine, where the recipe leaves it open: threads for its share of the cores, and a GPU of its own.
 * Of this function ranks need not agree. */
void rank_setup_local(recipe *r, const comm *c);
/* The same of ranks that train: some on GPUs and some not are refused, and so is a GPU that two ask for, unless train.comm is
 * mpi. */
int rank_setup_devices(recipe *r, comm *c);

/* Whether recipe, data and the model's weights are the same everywhere; the program is (comm.h). */
int rank_setup_compare(const experiment *e);

/* Whether all ranks see the directory that rank 0 has made or opened. */
int rank_setup_see(comm *c, const char *directory);

#endif
